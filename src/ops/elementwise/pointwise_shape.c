/*
** ops/elementwise/pointwise_shape.c: shape rules that most elementwise rows share.
*/
#include <math.h>
#include "ops/elementwise/elementwise_shape.h"

/* -- Element-wise rules ------------------------------------------------------------------------ */

int amp__infer_none(amp_call *call) { return 0; }

int amp__infer_same(amp_call *call)
{
  amp__like(call, 0, call->in[0], call->in[0]->dtype);
  return 0;
}

int amp__infer_unary(amp_call *call)
{
  amp__like(call, 0, call->in[0], call->in[0]->dtype);
  return 0;
}

int amp__infer_unary_float(amp_call *call)
{
  int dtype = call->in[0]->dtype;
  amp__like(call, 0, call->in[0], amp__is_float(dtype) ? dtype : amp__default_float());
  return 0;
}

int amp__infer_unary_bool(amp_call *call)
{
  amp__like(call, 0, call->in[0], AMP_BOOL);
  return 0;
}

int amp__infer_broadcast(amp_call *call)
{
  int dtype, status = amp__operand_dtype(call, 0, call->nin, &dtype);
  if (status < 0) return status;
  if ((call->id == AMP_OP_add || call->id == AMP_OP_sub) && !amp__is_float(dtype)
      && amp_unlikely(!amp__fits(AMP_ARGS(call, add)->alpha, AMP_INT64)
                      || AMP_ARGS(call, add)->alpha != floor(AMP_ARGS(call, add)->alpha)))
    return amp__fail(AMP_E_VALUE, "alpha %.17g must be integral for %s operands", AMP_ARGS(call, add)->alpha,
                     amp_dtype_name(dtype));
  return amp__pointwise(call, dtype);
}

/* grad point: the result is the gradient of what the point is, or is computed from. A point without a fraction (a mask)
** leaves it the gradient's dtype. */
int amp__infer_slope(amp_call *call)
{
  const amp_tensor *point = call->in[1];
  return amp__pointwise(call, amp__is_float(point->dtype) ? point->dtype : call->in[0]->dtype);
}

int amp__infer_broadcast_float(amp_call *call)
{
  int dtype, status = amp__operand_dtype(call, 0, call->nin, &dtype);
  if (status < 0) return status;
  return amp__pointwise(call, amp__is_float(dtype) ? dtype : amp__default_float());
}

int amp__infer_broadcast_pow(amp_call *call)
{
  const amp_tensor *exponent = call->in[1];
  int dtype, status = amp__operand_dtype(call, 0, 2, &dtype);
  if (status < 0) return status;
  if (!amp__is_float(dtype) && (exponent->flags & AMP_T_NUMBER) && amp__number_of(exponent) < 0)
    return amp__fail_arg(AMP_E_VALUE, 2,
                         "integers to the negative power %.17g have no integer result; cast to a float dtype first",
                         amp__number_of(exponent));
  return amp__pointwise(call, dtype);
}

int amp__infer_compare(amp_call *call)
{
  int dtype, status = amp__operand_dtype(call, 0, call->nin, &dtype);
  return status < 0 ? status : amp__pointwise(call, AMP_BOOL);
}

int amp__infer_equal(amp_call *call)
{
  amp__out(call, 0, AMP_BOOL, 0, NULL);
  return 0;
}

int amp__infer_where(amp_call *call)
{
  int dtype, status;
  if (call->in[0]->dtype != AMP_BOOL)
    return amp__fail_arg(AMP_E_DTYPE, 1, "condition has dtype %s, expected bool", amp_dtype_name(call->in[0]->dtype));
  if ((status = amp__operand_dtype(call, 1, 2, &dtype)) < 0) return status;
  return amp__pointwise(call, dtype);
}

int amp__infer_clamp(amp_call *call)
{
  const args_clamp *args = AMP_ARGS(call, clamp);
  int dtype = call->in[0]->dtype;
  if (!AMP_GIVEN(args->min) && !AMP_GIVEN(args->max)) return amp__fail(AMP_E_ARGUMENT, "min or max must be given");
  const double min = AMP_GIVEN(args->min) ? args->min : 0, max = AMP_GIVEN(args->max) ? args->max : 0;
  if (!amp__is_float(dtype) && (min != floor(min) || max != floor(max))) dtype = amp__default_float();
  if (!amp__is_float(dtype)) { /* a bound beyond the far end would leave no value of the dtype */
    if (isfinite(min) && min >= 0 && !amp__fits(min, dtype))
      return amp__fail(AMP_E_VALUE, "min %.17g does not fit %s", min, amp_dtype_name(dtype));
    if (isfinite(max) && max < 0 && !amp__fits(max, dtype))
      return amp__fail(AMP_E_VALUE, "max %.17g does not fit %s", max, amp_dtype_name(dtype));
  }
  amp__like(call, 0, call->in[0], dtype);
  return 0;
}

int amp__infer_masked_fill(amp_call *call)
{
  const args_masked_fill *args = AMP_ARGS(call, masked_fill);
  int status;
  if (call->in[1]->dtype != AMP_BOOL)
    return amp__fail_arg(AMP_E_DTYPE, 2, "mask has dtype %s, expected bool", amp_dtype_name(call->in[1]->dtype));
  if ((status = amp__value_fits(args->value, call->in[0]->dtype)) < 0) return status;
  return amp__pointwise(call, call->in[0]->dtype);
}
