/*
** ops/distance/distance_shape.c: shape rules of norms and distances. A norm of nothing is
** 0, but for the extremes and negative powers, which have no such value.
*/
#include <math.h>
#include "dispatch/shape_rules.h"

int amp__infer_lp_norm(amp_call *call) /* p dim keepdim dtype */
{
  args_lp_norm *args = (args_lp_norm *)call->attrs;
  const amp_tensor *input = call->in[0];
  double p = args->p;
  uint32_t mask;
  int dtype, status, count = 0;
  int64_t size[AMP_MAX_DIM];
  if (p != p) return amp__fail(AMP_E_ARGUMENT, "p is not a number");
  if (args->dim.n == 0) args->dim.n = AMP_NONE;
  if ((status = amp__norm_dims(AMP_SLOT(args->dim), input->ndim, &mask)) < 0
      || (status = amp__dtype_attr(AMP_SLOT(args->dtype), input->dtype, &dtype)) < 0)
    return status;
  if (!amp__is_float(dtype)) return amp__fail(AMP_E_DTYPE, "dtype %s: a norm is a float", amp_dtype_name(dtype));
  for (int dim = 0; dim < input->ndim; dim++) {
    bool away = mask >> dim & 1;
    if (away && input->size[dim] == 0 && (p < 0 || isinf(p)))
      return amp__fail(AMP_E_SHAPE, "dimension %d has size 0, of which there is no norm with p = %g", dim + 1, p);
    if (!away) size[count++] = input->size[dim];
    else if (args->keepdim) size[count++] = 1;
  }
  amp__out(call, 0, dtype, count, size);
  return 0;
}

int amp__infer_renorm(amp_call *call) /* p dim maxnorm */
{
  const args_renorm *args = AMP_ARGS(call, renorm);
  const amp_tensor *input = call->in[0];
  double p = args->p, most = args->maxnorm;
  int status = amp__norm_dim(AMP_SLOT(args->dim), input->ndim, "dim");
  if (status < 0) return status;
  if (input->ndim < 2)
    return amp__fail_arg(AMP_E_SHAPE, 1,
                         "input has shape %s, expected at least 2 dimensions: a slice of one has a norm",
                         SHAPE_OF(input));
  if (!(p > 0)) return amp__fail(AMP_E_VALUE, "p %g must be positive", p);
  if (!(most >= 0)) return amp__fail(AMP_E_VALUE, "maxnorm %g must not be negative", most);
  amp__like(call, 0, input, input->dtype);
  return 0;
}

/* -- Distances of rows --------------------------------------------------------------- */

static int want_p(double p) { return p >= 0 ? 0 : amp__fail(AMP_E_VALUE, "p %g must not be negative", p); }

/* x1 is ... x P x M, x2 ... x R x M: ... x P x R */
static int distances(amp_call *call, int first, int *ndim, int64_t *size)
{
  const amp_tensor *a = call->in[first], *b = call->in[first + 1];
  int most = a->ndim > b->ndim ? a->ndim : b->ndim;
  for (int i = 0; i < 2; i++) {
    const amp_tensor *tensor = i ? b : a;
    if (tensor->ndim < 2)
      return amp__fail_arg(AMP_E_SHAPE, first + i + 1,
                           "x%d has shape %s, expected rows of features: at least 2 dimensions", i + 1,
                           SHAPE_OF(tensor));
  }
  if (a->size[a->ndim - 1] != b->size[b->ndim - 1])
    return amp__fail(AMP_E_SHAPE, "x1 of shape %s and x2 of shape %s have rows of different sizes, %lld and %lld",
                     SHAPE_OF(a), SHAPE_OF(b), LL(a->size[a->ndim - 1]), LL(b->size[b->ndim - 1]));
  if (a->dtype != b->dtype)
    return amp__fail(AMP_E_DTYPE, "dtypes %s and %s of x1 and x2 differ; cast one of them", amp_dtype_name(a->dtype),
                     amp_dtype_name(b->dtype));
  for (int dim = 0; dim < most - 2; dim++) {
    int i = dim - (most - a->ndim), j = dim - (most - b->ndim);
    int64_t m = i < 0 ? 1 : a->size[i], n = j < 0 ? 1 : b->size[j];
    if (m != n && m != 1 && n != 1)
      return amp__fail(AMP_E_SHAPE, "leading dimensions of x1 (%s) and x2 (%s) do not broadcast: %lld and %lld",
                       SHAPE_OF(a), SHAPE_OF(b), LL(m), LL(n));
    size[dim] = m == 1 ? n : m;
  }
  size[most - 2] = a->size[a->ndim - 2];
  size[most - 1] = b->size[b->ndim - 2];
  *ndim = most;
  return 0;
}

int amp__infer_cdist(amp_call *call)
{
  const args_cdist *args = AMP_ARGS(call, cdist);
  int64_t size[AMP_MAX_DIM];
  int ndim, status = want_p(args->p);
  if (status < 0 || (status = distances(call, 0, &ndim, size)) < 0) return status;
  amp__out(call, 0, call->in[0]->dtype, ndim, size);
  return 0;
}

/* grad x1 x2 dist, all of the same leading dimensions */
int amp__infer_cdist_backward(amp_call *call)
{
  const amp_tensor *a = call->in[1], *b = call->in[2];
  int64_t size[AMP_MAX_DIM];
  int ndim, status = distances(call, 1, &ndim, size);
  if (status < 0 || (status = amp__want_shape(call->in[0], "grad", ndim, size)) < 0
      || (status = amp__want_shape(call->in[3], "dist", ndim, size)) < 0)
    return status;
  for (int i = 1; i < 3; i++) {
    const amp_tensor *tensor = call->in[i];
    if (tensor->ndim != ndim || memcmp(tensor->size, size, sizeof *size * (size_t)(ndim - 2)) != 0)
      return amp__fail_arg(AMP_E_SHAPE, i + 1,
                           "x%d has shape %s, its leading dimensions are not those of the distances, %s", i,
                           SHAPE_OF(tensor), amp__shape_str(ndim, size));
  }
  amp__out(call, 0, a->dtype, a->ndim, a->size);
  amp__out(call, 1, b->dtype, b->ndim, b->size);
  return 0;
}

static int pairs(const amp_tensor *input, int arg, int64_t *n)
{
  if (input->ndim != 2)
    return amp__fail_arg(AMP_E_SHAPE, arg, "input has shape %s, expected a matrix", SHAPE_OF(input));
  int64_t m = input->size[0];
  if (m > 3000000000LL) return amp__fail_arg(AMP_E_SHAPE, arg, "input has %lld rows, whose pairs are too many", LL(m));
  *n = m < 2 ? 0 : m * (m - 1) / 2;
  return 0;
}

int amp__infer_pdist(amp_call *call)
{
  const args_pdist *args = AMP_ARGS(call, pdist);
  int64_t n;
  int status = want_p(args->p);
  if (status < 0 || (status = pairs(call->in[0], 1, &n)) < 0) return status;
  amp__out(call, 0, call->in[0]->dtype, 1, &n);
  return 0;
}

int amp__infer_pdist_backward(amp_call *call) /* grad input dist */
{
  const amp_tensor *input = call->in[1];
  int64_t n;
  int status = pairs(input, 2, &n);
  if (status < 0 || (status = amp__want_shape(call->in[0], "grad", 1, &n)) < 0
      || (status = amp__want_shape(call->in[2], "dist", 1, &n)) < 0)
    return status;
  amp__out(call, 0, input->dtype, 2, input->size);
  return 0;
}
