/*
** ops/loss/loss_shape.h: what the shape rules of losses check alike.
*/
#ifndef AMP_LOSS_SHAPE_H
#define AMP_LOSS_SHAPE_H
#include "dispatch/shape_rules.h"

static inline int want_reduction(int64_t reduction)
{
  return reduction < REDUCTION_NONE || reduction > REDUCTION_SUM
             ? amp__fail(AMP_E_ARGUMENT, "there is no reduction number %lld", LL(reduction))
             : 0;
}

static inline int want_float(const amp_tensor *tensor, int arg, const char *what)
{
  return amp__is_float(tensor->dtype) ? 0
                                      : amp__fail_arg(AMP_E_DTYPE, arg, "%s has dtype %s, expected a float dtype", what,
                                                      amp_dtype_name(tensor->dtype));
}

static inline int want_scalar(const amp_tensor *tensor, int arg, const char *what)
{
  return tensor->numel == 1
             ? 0
             : amp__fail_arg(AMP_E_SHAPE, arg, "%s has shape %s, expected a scalar", what, SHAPE_OF(tensor));
}

/* A gradient of each loss, or of their mean or sum */
static inline int loss_grad(const amp_tensor *g, int64_t reduction, int n, const int64_t *rows)
{
  return reduction == REDUCTION_NONE ? amp__want_shape(g, "grad", n, rows) : want_scalar(g, 1, "grad");
}

#endif
