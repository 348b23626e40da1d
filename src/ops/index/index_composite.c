/*
** ops/index/index_composite.c: composites of indexing: take, take_along_dim, masked_select.
*/
#include "autograd/derivative.h"
#include "dispatch/shape_rules.h"

int amp__comp_take(amp_call *call)
{
  amp_tensor *input = call->in[0], *index = call->in[1];
  int status = amp__want_index(index, 2, "index");
  if (status < 0) return status;
  if (input->numel == 0 && index->numel > 0)
    return amp__fail(AMP_E_INDEX, "input has shape %s: there is nothing to take %lld elements from", SHAPE_OF(input),
                     LL(index->numel));
  amp_tensor *inputs[2] = { amp__op_view(input, 1, &input->numel), amp__op_view(index, 1, &index->numel) };
  input = amp__op_dim(AMP_OP_index_select, 0, 2, inputs);
  return amp__result(call, 0, amp__op_view(input, index->ndim, index->size));
}

int amp__comp_take_along_dim(amp_call *call)
{
  args_take_along_dim *args = (args_take_along_dim *)call->attrs;
  amp_tensor *input = call->in[0], *index = call->in[1];
  int64_t source_size[AMP_MAX_DIM], index_size[AMP_MAX_DIM];
  int status = amp__want_index(index, 2, "indices"), dim = 0;
  if (status < 0) return status;
  if (!AMP_GIVEN(args->dim)) {
    input = amp__op_view(input, 1, &input->numel);
    index = amp__op_view(index, 1, &index->numel);
  } else {
    if ((status = amp__row_dim(AMP_SLOT(args->dim), input->ndim, "dim")) < 0) return status;
    dim = (int)args->dim;
    if (input->ndim != index->ndim)
      return amp__fail(AMP_E_SHAPE, "indices has shape %s and input %s: the numbers of dimensions differ",
                       SHAPE_OF(index), SHAPE_OF(input));
    for (int d = 0; d < input->ndim; d++) {
      source_size[d] = input->size[d];
      index_size[d] = index->size[d];
      if (d == dim || source_size[d] == index_size[d]) continue;
      if (source_size[d] == 1) source_size[d] = index_size[d];
      else if (index_size[d] == 1) index_size[d] = source_size[d];
      else
        return amp__fail(AMP_E_SHAPE, "indices has shape %s and input %s: dimension %d is %lld and %lld",
                         SHAPE_OF(index), SHAPE_OF(input), d + 1, LL(index_size[d]), LL(source_size[d]));
    }
    input = amp__op_expand(input, input->ndim, source_size);
    index = amp__op_expand(index, index->ndim, index_size);
  }
  amp_tensor *inputs[2] = { input, index };
  return amp__result(call, 0, amp__op_dim(AMP_OP_gather, dim, 2, inputs));
}

int amp__comp_masked_select(amp_call *call)
{
  amp_tensor *input = call->in[0], *m = call->in[1];
  int64_t size[AMP_MAX_DIM], n;
  int ndim, status;
  if (m->dtype != AMP_BOOL)
    return amp__fail_arg(AMP_E_DTYPE, 2, "mask has dtype %s, expected bool", amp_dtype_name(m->dtype));
  if ((status = amp__broadcast(call, 2, &ndim, size)) < 0) return status;
  n = amp__count(ndim, size);
  input = amp__op_view(amp__op_expand(input, ndim, size), 1, &n);
  m = amp__op_view(amp__op_expand(m, ndim, size), 1, &n);
  amp_tensor *at = OP1(nonzero, m);
  if (!input || !at) return amp__err();
  amp_tensor *inputs[2] = { input, amp__op_view(at, 1, &at->numel) };
  return amp__result(call, 0, amp__op_dim(AMP_OP_index_select, 0, 2, inputs));
}
