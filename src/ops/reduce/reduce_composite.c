/*
** ops/reduce/reduce_composite.c: composites of reductions: sums and means without NaN, aminmax, and diff.
*/
#include "autograd/derivative.h"
#include "dispatch/shape_rules.h"

static amp_tensor *without_nan(amp_tensor *tensor)
{
  return amp__is_float(tensor->dtype) ? amp__op_fill_where(OP1(isnan, tensor), tensor, 0) : tensor;
}

/* dims: a D attribute */
static amp_tensor *sum(const amp_slot *dims, bool keepdim, int64_t dtype, amp_tensor *tensor)
{
  amp_attrs attrs = amp__attrs();
  amp__attrs_copy(&attrs, dims, 1 + AMP_MAX_DIM);
  amp__attrs_int(&attrs, keepdim);
  amp__attrs_int(&attrs, dtype);
  return amp__op(AMP_OP_sum, &attrs, 1, &tensor);
}

int amp__comp_nansum(amp_call *call)
{
  const args_nansum *args = AMP_ARGS(call, nansum);
  return amp__result(call, 0, sum(AMP_SLOT(args->dim), args->keepdim, args->dtype, without_nan(call->in[0])));
}

int amp__comp_nanmean(amp_call *call)
{
  amp_tensor *input = call->in[0];
  const args_nanmean *args = AMP_ARGS(call, nanmean);
  const amp_slot *dims = AMP_SLOT(args->dim);
  int dtype = AMP_GIVEN(args->dtype) ? (int)args->dtype : input->dtype, acc = amp__acc_dtype(dtype);
  if (!amp__is_float(dtype))
    return amp__fail(AMP_E_DTYPE, "a mean has a float dtype, %s was asked for", amp_dtype_name(dtype));
  amp_tensor *n = sum(dims, args->keepdim, acc, OP1(logical_not, OP1(isnan, input)));
  return amp__result(call, 0, amp__op_cast(OP2(div, sum(dims, args->keepdim, acc, without_nan(input)), n), dtype));
}

int amp__comp_aminmax(amp_call *call)
{
  const args_aminmax *args = AMP_ARGS(call, aminmax);
  amp_attrs attrs = amp__attrs();
  if (!AMP_GIVEN(args->dim)) amp__attrs_no_list(&attrs);
  else amp__attrs_list(&attrs, 1, &args->dim);
  amp__attrs_int(&attrs, args->keepdim);
  int status = amp__result(call, 0, amp__op(AMP_OP_amin, &attrs, 1, call->in));
  return status < 0 ? status : amp__result(call, 1, amp__op(AMP_OP_amax, &attrs, 1, call->in));
}

int amp__comp_diff(amp_call *call)
{
  args_diff *args = (args_diff *)call->attrs;
  amp_tensor *input = call->in[0], *inputs[3];
  int64_t n = args->n;
  int k = 0, status;
  if (n < 0) return amp__fail(AMP_E_VALUE, "n is %lld, it must not be negative", LL(n));
  if (input->ndim == 0) return amp__fail(AMP_E_SHAPE, "a scalar has no neighbours");
  if ((status = amp__norm_dim(AMP_SLOT(args->dim), input->ndim, "dim")) < 0) return status;
  int dim = (int)args->dim;
  if (call->in[1]) inputs[k++] = call->in[1];
  inputs[k++] = input;
  if (call->in[2]) inputs[k++] = call->in[2];
  if (n > 0 && k > 1) input = amp__op_dim(AMP_OP_cat, dim, k, inputs);
  if (n == 0) input = OP1(alias, input);
  for (; n > 0 && input; n--) {
    int64_t m = input->size[dim];
    if (m == 0) break;
    amp_tensor *next = amp__op_narrow(input, dim, 1, m - 1), *last = amp__op_narrow(input, dim, 0, m - 1);
    input = input->dtype == AMP_BOOL ? OP2(ne, next, last) : OP2(sub, next, last);
  }
  return amp__result(call, 0, input);
}
