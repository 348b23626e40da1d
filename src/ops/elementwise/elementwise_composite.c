/*
** ops/elementwise/elementwise_composite.c: elementwise composites: turned operands, limits, shrinking, gates,
** closeness.
*/
#include <math.h>
#include "autograd/derivative.h"

int amp__comp_rpow(amp_call *call)
{
  return amp__result(call, 0, NUMBER_OP(pow, AMP_ARGS(call, rpow)->number, call->in[0]));
}

int amp__comp_rdiv(amp_call *call)
{
  return amp__result(call, 0, NUMBER_OP(div, AMP_ARGS(call, rdiv)->number, call->in[0]));
}

static amp_tensor *limited(amp_tensor *input, double low, double high, bool has_lo, bool has_hi)
{
  amp_attrs attrs = amp__attrs();
  if (has_lo) amp__attrs_float(&attrs, low);
  else amp__attrs_int(&attrs, AMP_NONE);
  if (has_hi) amp__attrs_float(&attrs, high);
  else amp__attrs_int(&attrs, AMP_NONE);
  return amp__op(AMP_OP_clamp, &attrs, 1, &input);
}
int amp__comp_clamp_min(amp_call *call)
{
  return amp__result(call, 0, limited(call->in[0], AMP_ARGS(call, clamp_min)->min, 0, true, false));
}
int amp__comp_clamp_max(amp_call *call)
{
  return amp__result(call, 0, limited(call->in[0], 0, AMP_ARGS(call, clamp_max)->max, false, true));
}
int amp__comp_relu6(amp_call *call) { return amp__result(call, 0, limited(call->in[0], 0, 6, true, true)); }

int amp__comp_positive(amp_call *call) { return amp__result(call, 0, OP1(alias, call->in[0])); }

int amp__comp_glu(amp_call *call)
{
  const args_glu *args = AMP_ARGS(call, glu);
  amp_tensor *input = call->in[0];
  int dim;
  if (input->ndim == 0) return amp__fail(AMP_E_SHAPE, "a scalar has no dimension to halve");
  int status = amp__norm_dim(AMP_SLOT(args->dim), input->ndim, "dim");
  if (status < 0) return status;
  dim = (int)args->dim;
  if (input->size[dim] % 2)
    return amp__fail(AMP_E_SHAPE, "dimension %d has size %lld, which can't be halved", dim + 1,
                     (long long)input->size[dim]);
  int64_t half = input->size[dim] / 2;
  return amp__result(call, 0, OP2(gate, amp__op_narrow(input, dim, 0, half), amp__op_narrow(input, dim, half, half)));
}

int amp__comp_prelu(amp_call *call)
{
  amp_tensor *input = call->in[0], *weight = call->in[1];
  int64_t size[AMP_MAX_DIM] = { 0 }, channels = input->ndim > 1 ? input->size[1] : 1;
  if (input->dtype != weight->dtype)
    return amp__fail(AMP_E_DTYPE, "input is %s, weight %s; cast one", amp_dtype_name(input->dtype),
                     amp_dtype_name(weight->dtype));
  if (weight->ndim > 1 || (weight->numel != 1 && weight->numel != channels))
    return amp__fail(
        AMP_E_SHAPE, "weight of shape %s: one slope is expected, or %lld, one a channel of the input's shape %s",
        amp__shape_str(weight->ndim, weight->size), (long long)channels, amp__shape_str(input->ndim, input->size));
  for (int dim = 0; dim < input->ndim; dim++) size[dim] = dim == 1 && weight->numel != 1 ? channels : 1;
  if (input->ndim > 0) weight = amp__op_view(weight, input->ndim, size);
  else weight = amp__op_view(weight, 0, size);
  return amp__result(call, 0, OP2(rectify, input, weight));
}

int amp__comp_isclose(amp_call *call)
{
  const args_isclose *args = AMP_ARGS(call, isclose);
  amp_tensor *left = call->in[0], *right = call->in[1];
  double rtol = args->rtol, atol = args->atol;
  if (!(rtol >= 0 && atol >= 0)) return amp__fail(AMP_E_VALUE, "rtol %g and atol %g must not be negative", rtol, atol);
  if (!amp__is_float(left->dtype) && !amp__is_float(right->dtype)) {
    left = amp__op_cast(left, AMP_FLOAT64);
    right = amp__op_cast(right, AMP_FLOAT64);
  }
  amp_tensor *near
      = OP2(le, OP1(abs, OP2(sub, left, right)), OP_NUMBER(add, OP_NUMBER(mul, OP1(abs, right), rtol), atol));
  amp_tensor *close = OP2(logical_or, OP2(eq, left, right),
                          OP2(logical_and, near, OP2(logical_and, OP1(isfinite, left), OP1(isfinite, right))));
  if (args->equal_nan) close = OP2(logical_or, close, OP2(logical_and, OP1(isnan, left), OP1(isnan, right)));
  return amp__result(call, 0, close);
}
