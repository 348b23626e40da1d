/*
** ops/reduce/reduce_shape.c: shape rules of reductions, running sums, flip and cat.
** Sums and products of integers and bools are int64; a given dtype wins. An
** empty list of dimensions means all of them, as an absent one does.
*/
#include "dispatch/shape_rules.h"

/* Result i without the dimensions of mask, or with size 1 there. */
static void reduced(amp_call *call, int i, int dtype, uint32_t mask, bool keepdim)
{
  const amp_tensor *tensor = call->in[0];
  int64_t size[AMP_MAX_DIM];
  int count = 0;
  for (int dim = 0; dim < tensor->ndim; dim++) {
    if (!(mask >> dim & 1)) size[count++] = tensor->size[dim];
    else if (keepdim) size[count++] = 1;
  }
  amp__out(call, i, dtype, count, size);
}

/* An attribute dim:D?, in place */
static int dims(const amp_call *call, amp_slot *dim, uint32_t *mask)
{
  if (dim->i == 0) dim->i = AMP_NONE;
  return amp__norm_dims(dim, call->in[0]->ndim, mask);
}

/* Extremes of nothing do not exist. */
static int not_empty(const amp_tensor *tensor, uint32_t mask)
{
  for (int dim = 0; dim < tensor->ndim; dim++)
    if ((mask >> dim & 1) && tensor->size[dim] == 0)
      return amp__fail(AMP_E_SHAPE, "dimension %d has size 0, there is no value to choose", dim + 1);
  return 0;
}

/* One dimension in slot 0, all if absent. */
static int one_dim(amp_call *call, uint32_t *mask)
{
  const args_prod *args = AMP_ARGS(call, prod);
  const amp_tensor *tensor = call->in[0];
  if (!AMP_GIVEN(args->dim)) {
    *mask = (1u << tensor->ndim) - 1;
    return 0;
  }
  int status = amp__row_dim(AMP_SLOT(args->dim), tensor->ndim, "dim");
  *mask = status < 0 ? 0 : 1u << args->dim;
  return status;
}

static int sum_dtype(int dtype) { return amp__is_float(dtype) ? dtype : AMP_INT64; }

int amp__infer_reduce_sum(amp_call *call)
{
  const args_sum *args = AMP_ARGS(call, sum);
  uint32_t mask;
  int dtype, status = dims(call, AMP_SLOT(args->dim), &mask);
  if (status < 0 || (status = amp__dtype_attr(AMP_SLOT(args->dtype), sum_dtype(call->in[0]->dtype), &dtype)) < 0)
    return status;
  reduced(call, 0, dtype, mask, args->keepdim != 0);
  return 0;
}

int amp__infer_reduce_mean(amp_call *call)
{
  const args_mean *args = AMP_ARGS(call, mean);
  uint32_t mask;
  int dtype, status = dims(call, AMP_SLOT(args->dim), &mask);
  if (status < 0 || (status = amp__dtype_attr(AMP_SLOT(args->dtype), call->in[0]->dtype, &dtype)) < 0) return status;
  if (!amp__is_float(dtype))
    return amp__fail(AMP_E_DTYPE, "a mean has a float dtype, %s was asked for", amp_dtype_name(dtype));
  reduced(call, 0, dtype, mask, args->keepdim != 0);
  return 0;
}

int amp__infer_reduce_prod(amp_call *call)
{
  const args_prod *args = AMP_ARGS(call, prod);
  uint32_t mask;
  int dtype, status = one_dim(call, &mask);
  if (status < 0 || (status = amp__dtype_attr(AMP_SLOT(args->dtype), sum_dtype(call->in[0]->dtype), &dtype)) < 0)
    return status;
  reduced(call, 0, dtype, mask, args->keepdim != 0);
  return 0;
}

int amp__infer_reduce_max(amp_call *call)
{
  const args_max *args = AMP_ARGS(call, max);
  uint32_t mask;
  int status = one_dim(call, &mask);
  if (status < 0 || (status = not_empty(call->in[0], mask)) < 0) return status;
  reduced(call, 0, call->in[0]->dtype, mask, args->keepdim != 0);
  if (AMP_GIVEN(args->dim)) reduced(call, 1, AMP_INT64, mask, args->keepdim != 0);
  return 0;
}

int amp__infer_reduce_arg(amp_call *call)
{
  const args_argmax *args = AMP_ARGS(call, argmax);
  uint32_t mask;
  int status = one_dim(call, &mask);
  if (status < 0 || (status = not_empty(call->in[0], mask)) < 0) return status;
  reduced(call, 0, AMP_INT64, mask, args->keepdim != 0);
  return 0;
}

int amp__infer_reduce_same(amp_call *call)
{
  const args_amax *args = AMP_ARGS(call, amax);
  uint32_t mask;
  int status = dims(call, AMP_SLOT(args->dim), &mask);
  if (status < 0 || (status = not_empty(call->in[0], mask)) < 0) return status;
  reduced(call, 0, call->in[0]->dtype, mask, args->keepdim != 0);
  return 0;
}

int amp__infer_reduce_bool(amp_call *call)
{
  const args_any *args = AMP_ARGS(call, any);
  uint32_t mask;
  int status = dims(call, AMP_SLOT(args->dim), &mask);
  if (status < 0) return status;
  reduced(call, 0, AMP_BOOL, mask, args->keepdim != 0);
  return 0;
}

int amp__infer_reduce_moments(amp_call *call)
{
  const args_var *args = AMP_ARGS(call, var);
  uint32_t mask;
  int status = dims(call, AMP_SLOT(args->dim), &mask);
  if (status < 0) return status;
  reduced(call, 0, call->in[0]->dtype, mask, args->keepdim != 0);
  return 0;
}

int amp__infer_reduce_float(amp_call *call)
{
  const args_logsumexp *args = AMP_ARGS(call, logsumexp);
  uint32_t mask;
  int status = dims(call, AMP_SLOT(args->dim), &mask);
  if (status < 0) return status;
  reduced(call, 0, call->in[0]->dtype, mask, args->keepdim != 0);
  return 0;
}

int amp__infer_center(amp_call *call)
{
  const args_var_backward *args = AMP_ARGS(call, var_backward);
  uint32_t mask;
  const amp_tensor *tensor = call->in[1];
  int status = amp__norm_dims(AMP_SLOT(args->dim), tensor->ndim, &mask);
  if (status < 0) return status;
  amp__like(call, 0, call->in[1], call->in[1]->dtype);
  return 0;
}

int amp__infer_sum_to(amp_call *call)
{
  const args_sum_to *args = AMP_ARGS(call, sum_to);
  const amp_tensor *tensor = call->in[0];
  int64_t size[AMP_MAX_DIM];
  int count, status = amp__shape_attr(AMP_SLOT(args->shape), "shape", &count, size);
  if (status < 0) return status;
  bool ok = count <= tensor->ndim;
  for (int dim = 0; dim < count && ok; dim++)
    ok = size[dim] == 1 || size[dim] == tensor->size[tensor->ndim - count + dim];
  if (!ok)
    return amp__fail(AMP_E_SHAPE, "shape %s is not one that broadcasts to %s", amp__shape_str(count, size),
                     SHAPE_OF(tensor));
  amp__out(call, 0, tensor->dtype, count, size);
  return 0;
}

int amp__infer_cumulative(amp_call *call)
{
  const args_cumsum *args = AMP_ARGS(call, cumsum);
  const amp_tensor *tensor = call->in[0];
  int dtype, status = amp__row_dim(AMP_SLOT(args->dim), tensor->ndim, "dim");
  if (status < 0 || (status = amp__dtype_attr(AMP_SLOT(args->dtype), sum_dtype(tensor->dtype), &dtype)) < 0)
    return status;
  amp__out(call, 0, dtype, tensor->ndim, tensor->size);
  return 0;
}

int amp__infer_flip(amp_call *call)
{
  const args_flip *args = AMP_ARGS(call, flip);
  uint32_t mask;
  int status = amp__norm_dims(AMP_SLOT(args->dims), call->in[0]->ndim, &mask);
  if (status < 0) return status;
  amp__like(call, 0, call->in[0], call->in[0]->dtype);
  return 0;
}

/* An empty vector joins anything, as in PyTorch. */
static bool skipped(const amp_tensor *tensor) { return tensor->ndim == 1 && tensor->size[0] == 0; }

int amp__infer_cat(amp_call *call)
{
  const args_cat *args = AMP_ARGS(call, cat);
  const amp_tensor *first = NULL;
  int64_t size[AMP_MAX_DIM], total = 0;
  int status, at = 0;
  bool last = true;
  if (call->nin < 1) return amp__fail(AMP_E_ARGUMENT, "at least one tensor is expected");
  for (int i = 0; i < call->nin && first == NULL; i++)
    if (!skipped(call->in[i])) {
      first = call->in[i];
      at = i;
    }
  if (first == NULL) first = call->in[0];
  if (first->ndim == 0) return amp__fail_arg(AMP_E_SHAPE, at + 1, "scalars can't be joined by cat; use stack");
  if ((status = amp__norm_dim(AMP_SLOT(args->dim), first->ndim, "dim")) < 0) return status;
  int dim = (int)args->dim;
  for (int dtype = 0; dtype < first->ndim; dtype++) size[dtype] = first->size[dtype];
  for (int i = 0; i < call->nin; i++) {
    const amp_tensor *tensor = call->in[i];
    if (tensor != first && skipped(tensor)) continue;
    if (tensor->ndim != first->ndim)
      return amp__fail_arg(AMP_E_SHAPE, i + 1,
                           "tensor %d has shape %s, tensor %d has %s: the numbers of dimensions differ", at + 1,
                           SHAPE_OF(first), i + 1, SHAPE_OF(tensor));
    for (int dtype = 0; dtype < tensor->ndim; dtype++)
      if (dtype != dim && tensor->size[dtype] != first->size[dtype])
        return amp__fail_arg(AMP_E_SHAPE, i + 1,
                             "shapes %s and %s do not match (dimension %d of tensor %d is %lld, of tensor %d %lld); "
                             "only dimension %d may differ",
                             SHAPE_OF(first), SHAPE_OF(tensor), dtype + 1, at + 1, LL(first->size[dtype]), i + 1,
                             LL(tensor->size[dtype]), dim + 1);
    if (__builtin_add_overflow(total, tensor->size[dim], &total))
      return amp__fail(AMP_E_SHAPE, "the joined dimension %d is too large", dim + 1);
    last = last && amp__channels_last(tensor);
  }
  size[dim] = total;
  amp__out(call, 0, amp__result_dtype(call, 0, call->nin), first->ndim, size);
  if (last && first->ndim == 4) amp__as_channels_last(&call->meta[0]);
  return 0;
}
