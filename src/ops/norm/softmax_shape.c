/*
** ops/norm/softmax_shape.c: shape rules of softmax, log_softmax and their backward rows.
*/
#include "dispatch/shape_rules.h"

int amp__infer_softmax(amp_call *call)
{
  const args_softmax *args = AMP_ARGS(call, softmax);
  const amp_tensor *input = call->in[0];
  int dtype, status = amp__row_dim(AMP_SLOT(args->dim), input->ndim, "dim");
  if (status < 0 || (status = amp__dtype_attr(AMP_SLOT(args->dtype), input->dtype, &dtype)) < 0) return status;
  if (!amp__is_float(dtype))
    return amp__fail(AMP_E_DTYPE, "the result has a float dtype, %s was asked for", amp_dtype_name(dtype));
  amp__like(call, 0, input, dtype);
  return 0;
}

int amp__infer_softmax_backward(amp_call *call)
{
  const args_cumprod_backward *args = AMP_ARGS(call, cumprod_backward);
  const amp_tensor *g = call->in[0], *y = call->in[1];
  int status = amp__row_dim(AMP_SLOT(args->dim), y->ndim, "dim");
  if (status < 0 || (status = amp__want_shape(g, "grad", y->ndim, y->size)) < 0) return status;
  amp__like(call, 0, y, g->dtype);
  return 0;
}
