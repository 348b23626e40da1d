/*
** ops/reduce/scan_shape.c: shape rules of what runs along a dimension, and of counting.
*/
#include "dispatch/shape_rules.h"

int amp__infer_running(amp_call *call)
{
  args_logcumsumexp *args = (args_logcumsumexp *)call->attrs;
  const amp_tensor *input = call->in[0];
  int status = amp__row_dim(AMP_SLOT(args->dim), input->ndim, "dim");
  if (status == 0) amp__out(call, 0, input->dtype, input->ndim, input->size);
  return status;
}

int amp__infer_count_nonzero(amp_call *call)
{
  args_count_nonzero *args = (args_count_nonzero *)call->attrs;
  const amp_tensor *input = call->in[0];
  uint32_t mask;
  int64_t size[AMP_MAX_DIM];
  int n = 0;
  if (args->dim.n == 0) args->dim.n = AMP_NONE;
  int status = amp__norm_dims(AMP_SLOT(args->dim.n), input->ndim, &mask);
  if (status < 0) return status;
  for (int d = 0; d < input->ndim; d++)
    if (!(mask >> d & 1)) size[n++] = input->size[d];
  amp__out(call, 0, AMP_INT64, n, size);
  return 0;
}
