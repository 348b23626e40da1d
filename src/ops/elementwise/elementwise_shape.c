/*
** ops/elementwise/elementwise_shape.c: shape rules of elementwise ops whose settings or dtypes
** have limits.
*/
#include <math.h>
#include "ops/elementwise/elementwise_shape.h"

int amp__infer_polygamma(amp_call *call)
{
  const args_polygamma *args = AMP_ARGS(call, polygamma);
  int64_t n = args->n;
  if (n < 0 || n > 100) return amp__fail(AMP_E_VALUE, "n is %lld, must be in 0..100", LL(n));
  return amp__infer_unary_float(call);
}

int amp__infer_alpha(amp_call *call)
{
  const args_celu *args = AMP_ARGS(call, celu);
  if (args->alpha == 0) return amp__fail(AMP_E_VALUE, "alpha is 0, which the input is divided by");
  return amp__infer_unary(call);
}

int amp__infer_logit(amp_call *call)
{
  const args_logit *args = AMP_ARGS(call, logit);
  double eps = args->eps;
  if (AMP_GIVEN(args->eps) && !(eps >= 0 && eps <= 0.5))
    return amp__fail(AMP_E_VALUE, "eps is %g, must be in [0, 0.5]", eps);
  return amp__infer_unary(call);
}

int amp__infer_hardtanh(amp_call *call)
{
  const args_hardtanh *args = AMP_ARGS(call, hardtanh);
  if (!(args->min_val <= args->max_val))
    return amp__fail(AMP_E_VALUE, "min_val %g is above max_val %g", args->min_val, args->max_val);
  return amp__infer_unary(call);
}

int amp__infer_shrink(amp_call *call)
{
  const args_hardshrink *args = AMP_ARGS(call, hardshrink);
  if (!(args->lambd >= 0)) return amp__fail(AMP_E_VALUE, "lambd is %g, must not be negative", args->lambd);
  return amp__infer_unary(call);
}

static double number_of(const amp_tensor *input) { return *(const double *)input->storage->data; }

int amp__infer_bitwise(amp_call *call)
{
  for (int i = 0; i < 2; i++) {
    if (!(call->in[i]->flags & AMP_T_NUMBER)) continue;
    double value = number_of(call->in[i]);
    if (!isfinite(value) || value != floor(value))
      return amp__fail_arg(AMP_E_VALUE, i + 1, "%g has no bits; an integer is expected",
                           isnan(value) ? (double)NAN : value);
  }
  return amp__infer_broadcast(call);
}

int amp__infer_addcmul(amp_call *call)
{
  const args_addcmul *args = AMP_ARGS(call, addcmul);
  bool ints = true;
  for (int i = 0; i < 3; i++) ints = ints && !amp__is_float(call->in[i]->dtype);
  if (ints && (!amp__fits(args->value, AMP_INT64) || args->value != floor(args->value)))
    return amp__fail(AMP_E_VALUE, "value %.17g must be integral for integers", args->value);
  return amp__infer_broadcast(call);
}

int amp__infer_addcdiv(amp_call *call)
{
  const amp_tensor *left = call->in[1], *right = call->in[2];
  if (!amp__is_float(left->dtype) && !amp__is_float(right->dtype))
    return amp__fail(AMP_E_DTYPE, "tensor1 (%s) and tensor2 (%s) are integers; cast one to a float dtype first",
                     amp_dtype_name(left->dtype), amp_dtype_name(right->dtype));
  return amp__infer_broadcast(call);
}

int amp__infer_lerp(amp_call *call)
{
  if (call->in[0]->dtype != call->in[1]->dtype)
    return amp__fail(AMP_E_DTYPE, "input is %s and end is %s; cast one", amp_dtype_name(call->in[0]->dtype),
                     amp_dtype_name(call->in[1]->dtype));
  return amp__infer_broadcast(call);
}
