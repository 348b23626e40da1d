/*
** ops/index/index_shape.c: shape rules of indexing. Index values stand in tensors
** that only kernels read, and kernels check them; here are ranks and sizes.
** nonzero alone must look at its input to know how many rows come out.
*/
#include <math.h>
#include "dispatch/shape_rules.h"

int amp__infer_index_select(amp_call *call)
{
  args_index_select *args = (args_index_select *)call->attrs;
  const amp_tensor *input = call->in[0], *index = call->in[1];
  int64_t size[AMP_MAX_DIM];
  int status = amp__row_dim(AMP_SLOT(args->dim), input->ndim, "dim");
  if (status < 0 || (status = amp__want_index(index, 2, "index")) < 0) return status;
  if (index->ndim > 1) return amp__fail_arg(AMP_E_SHAPE, 2, "index has shape %s, expected a vector", SHAPE_OF(index));
  if (input->ndim == 0 && index->numel != 1)
    return amp__fail_arg(AMP_E_SHAPE, 2, "index has %lld elements; of a scalar there is one", LL(index->numel));
  for (int d = 0; d < input->ndim; d++) size[d] = input->size[d];
  size[args->dim] = index->numel;
  amp__out(call, 0, input->dtype, input->ndim, size);
  return 0;
}

int amp__infer_index_add(amp_call *call)
{
  args_index_add *args = (args_index_add *)call->attrs;
  const amp_tensor *input = call->in[0], *index = call->in[1], *src = call->in[2];
  int64_t size[AMP_MAX_DIM];
  int status = amp__row_dim(AMP_SLOT(args->dim), input->ndim, "dim");
  if (status < 0 || (status = amp__want_index(index, 2, "index")) < 0) return status;
  if (index->ndim > 1) return amp__fail_arg(AMP_E_SHAPE, 2, "index has shape %s, expected a vector", SHAPE_OF(index));
  if (src->dtype != input->dtype)
    return amp__fail_arg(AMP_E_DTYPE, 3, "src has dtype %s and input %s; cast one of them", amp_dtype_name(src->dtype),
                         amp_dtype_name(input->dtype));
  if (input->ndim == 0 && index->numel != 1)
    return amp__fail_arg(AMP_E_SHAPE, 2, "index has %lld elements; of a scalar there is one", LL(index->numel));
  for (int d = 0; d < input->ndim; d++) size[d] = input->size[d];
  size[args->dim] = index->numel;
  if ((status = amp__want_shape(src, "src", input->ndim, size)) < 0) return status;
  if (!amp__is_float(input->dtype) && (!amp__fits(args->alpha, AMP_INT64) || args->alpha != floor(args->alpha)))
    return amp__fail(AMP_E_VALUE, "alpha %.17g must be integral for %s", args->alpha, amp_dtype_name(input->dtype));
  amp__like(call, 0, input, input->dtype);
  return 0;
}

/* index may be smaller than input in every dimension but `dim` (-1: there too) */
static int within(const amp_tensor *index, const amp_tensor *input, const char *what, int dim)
{
  if (index->ndim != input->ndim)
    return amp__fail(AMP_E_SHAPE, "index has shape %s and %s %s: the numbers of dimensions differ", SHAPE_OF(index),
                     what, SHAPE_OF(input));
  for (int d = 0; d < input->ndim; d++)
    if (d != dim && index->size[d] > input->size[d])
      return amp__fail(AMP_E_SHAPE, "index has shape %s and %s %s: dimension %d of index is %lld, more than %lld",
                       SHAPE_OF(index), what, SHAPE_OF(input), d + 1, LL(index->size[d]), LL(input->size[d]));
  return 0;
}

int amp__infer_gather(amp_call *call)
{
  args_gather *args = (args_gather *)call->attrs;
  const amp_tensor *input = call->in[0], *index = call->in[1];
  int status = amp__row_dim(AMP_SLOT(args->dim), input->ndim, "dim");
  if (status < 0 || (status = amp__want_index(index, 2, "index")) < 0
      || (status = within(index, input, "input", (int)args->dim)) < 0)
    return status;
  amp__out(call, 0, input->dtype, index->ndim, index->size);
  return 0;
}

/* scatter, scatter_add and scatter_reduce: their first attribute is the dimension. */
int amp__infer_scatter(amp_call *call)
{
  args_scatter *args = (args_scatter *)call->attrs;
  const amp_tensor *input = call->in[0], *index = call->in[1], *src = call->in[2];
  bool number = src->flags & AMP_T_NUMBER;
  int status = amp__row_dim(AMP_SLOT(args->dim), input->ndim, "dim");
  if (status < 0 || (status = amp__want_index(index, 2, "index")) < 0) return status;
  if (!number && src->dtype != input->dtype)
    return amp__fail_arg(AMP_E_DTYPE, 3, "src has dtype %s and input %s; cast one of them", amp_dtype_name(src->dtype),
                         amp_dtype_name(input->dtype));
  if (number && (status = amp__value_fits(amp__element(src, 0), input->dtype)) < 0) return status;
  if ((status = within(index, input, "input", (int)args->dim)) < 0
      || (!number && (status = within(index, src, "src", -1)) < 0))
    return status;
  amp__like(call, 0, input, input->dtype);
  return 0;
}

static int index_vector(amp_call *call, amp_slot *dim)
{
  const amp_tensor *index = call->in[1];
  int status = amp__row_dim(dim, call->in[0]->ndim, "dim");
  if (status < 0 || (status = amp__want_index(index, 2, "index")) < 0) return status;
  if (index->ndim > 1) return amp__fail_arg(AMP_E_SHAPE, 2, "index has shape %s, expected a vector", SHAPE_OF(index));
  amp__like(call, 0, call->in[0], call->in[0]->dtype);
  return 0;
}

static int source_dtype(const amp_call *call, const amp_tensor *source)
{
  if (source->dtype == call->in[0]->dtype) return 0;
  return amp__fail_arg(AMP_E_DTYPE, 3, "source has dtype %s and input %s; cast one of them",
                       amp_dtype_name(source->dtype), amp_dtype_name(call->in[0]->dtype));
}

int amp__infer_index_copy(amp_call *call)
{
  args_index_copy *args = (args_index_copy *)call->attrs;
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM];
  int status = index_vector(call, AMP_SLOT(args->dim));
  if (status < 0 || (status = source_dtype(call, call->in[2])) < 0) return status;
  if (input->ndim == 0 && call->in[1]->numel != 1)
    return amp__fail_arg(AMP_E_SHAPE, 2, "index has %lld elements; of a scalar there is one", LL(call->in[1]->numel));
  for (int d = 0; d < input->ndim; d++) size[d] = input->size[d];
  size[args->dim] = call->in[1]->numel;
  return amp__want_shape(call->in[2], "source", input->ndim, size);
}

int amp__infer_index_fill(amp_call *call)
{
  args_index_fill *args = (args_index_fill *)call->attrs;
  int status = index_vector(call, AMP_SLOT(args->dim));
  return status < 0 ? status : amp__value_fits(args->value, call->in[0]->dtype);
}

int amp__infer_put(amp_call *call)
{
  const amp_tensor *index = call->in[1], *source = call->in[2];
  int status = amp__want_index(index, 2, "index");
  if (status < 0 || (status = source_dtype(call, source)) < 0) return status;
  if (index->numel != source->numel)
    return amp__fail_arg(AMP_E_SHAPE, 3, "source has shape %s and index %s: as many elements are expected",
                         SHAPE_OF(source), SHAPE_OF(index));
  amp__like(call, 0, call->in[0], call->in[0]->dtype);
  return 0;
}

int amp__infer_masked_scatter(amp_call *call)
{
  const amp_tensor *input = call->in[0], *mask = call->in[1];
  if (mask->dtype != AMP_BOOL)
    return amp__fail_arg(AMP_E_DTYPE, 2, "mask has dtype %s, expected bool", amp_dtype_name(mask->dtype));
  bool ok = mask->ndim <= input->ndim;
  for (int k = 1; k <= mask->ndim && ok; k++)
    ok = mask->size[mask->ndim - k] == 1 || mask->size[mask->ndim - k] == input->size[input->ndim - k];
  if (!ok)
    return amp__fail_arg(AMP_E_SHAPE, 2, "mask has shape %s, which can't be broadcast to input's %s", SHAPE_OF(mask),
                         SHAPE_OF(input));
  int status = source_dtype(call, call->in[2]);
  if (status < 0) return status;
  amp__like(call, 0, input, input->dtype);
  return 0;
}

/* Shape of input at index tensors in[first..] for the dimensions `list` (a D attribute), which they replace where these
** stand side by side; else the index tensors' shape comes first. */
static int indexed_shape(amp_call *call, int first, amp_slot *list, int *ndim, int64_t *size)
{
  const amp_tensor *input = call->in[0];
  amp_slot *dim = list + 1;
  int n = call->nin - first, nb, status, axis = 0, k = 0;
  int64_t b[AMP_MAX_DIM];
  if (n < 1) return amp__fail(AMP_E_ARGUMENT, "at least one index tensor is expected");
  if (!is_given(list) || list->i != n)
    return amp__fail(AMP_E_ARGUMENT, "%d index tensors are given for %lld dimensions", n,
                     is_given(list) ? LL(list->i) : 0);
  for (int i = 0; i < n; i++) {
    if ((status = amp__norm_dim(&dim[i], input->ndim, "dimension")) < 0
        || (status = amp__want_index(call->in[first + i], first + i + 1, "index")) < 0)
      return status;
    if (i && dim[i].i <= dim[i - 1].i)
      return amp__fail(AMP_E_ARGUMENT, "the indexed dimensions must be in rising order");
  }
  amp_call only = { .nin = n, .in = call->in + first };
  if ((status = amp__broadcast(&only, n, &nb, b)) < 0) return status;
  if (input->ndim - n + nb > AMP_MAX_DIM)
    return amp__fail(AMP_E_SHAPE, "the result would have %d dimensions; at most %d are supported", input->ndim - n + nb,
                     AMP_MAX_DIM);
  bool adjacent = dim[n - 1].i - dim[0].i == n - 1;
  int where = adjacent ? (int)dim[0].i : 0; /* kept dimensions before the index part */
  for (int d = 0, used = 0; d <= input->ndim; d++) {
    if (k == where && used == 0) {
      for (int i = 0; i < nb; i++) size[axis++] = b[i];
      used = 1;
    }
    if (d == input->ndim) break;
    bool indexed = false;
    for (int i = 0; i < n; i++) indexed |= dim[i].i == d;
    if (!indexed) {
      size[axis++] = input->size[d];
      k++;
    }
  }
  *ndim = axis;
  return 0;
}

int amp__infer_index(amp_call *call)
{
  int64_t size[AMP_MAX_DIM];
  int ndim, status = indexed_shape(call, 1, AMP_SLOT(((args_index *)call->attrs)->dims), &ndim, size);
  if (status < 0) return status;
  amp__out(call, 0, call->in[0]->dtype, ndim, size);
  return 0;
}

int amp__infer_index_put(amp_call *call)
{
  const amp_tensor *input = call->in[0], *values = call->in[1];
  int64_t size[AMP_MAX_DIM];
  int ndim, status = indexed_shape(call, 2, AMP_SLOT(((args_index_put *)call->attrs)->dims), &ndim, size);
  if (status < 0) return status;
  if (values->dtype != input->dtype)
    return amp__fail_arg(AMP_E_DTYPE, 2, "values have dtype %s and input %s; cast one of them",
                         amp_dtype_name(values->dtype), amp_dtype_name(input->dtype));
  bool ok = values->ndim <= ndim;
  for (int d = 0; d < values->ndim && ok; d++)
    ok = values->size[d] == 1 || values->size[d] == size[ndim - values->ndim + d];
  if (!ok)
    return amp__fail_arg(AMP_E_SHAPE, 2, "values have shape %s, which can't be broadcast to the indexed part's %s",
                         SHAPE_OF(values), amp__shape_str(ndim, size));
  amp__like(call, 0, input, input->dtype);
  return 0;
}

#define COUNT(T, E)                            \
  {                                            \
    const T *p = (const T *)amp__data(t) + at; \
    for (int64_t k = 0; k < m; k++) {          \
      const T v = p[k * step];                 \
      n += (E);                                \
    }                                          \
  }

/* How many of m elements from `at` on, `step` apart, are not zero: NaN are not, -0 is */
static int64_t count_line(const amp_tensor *t, int64_t at, int64_t m, int64_t step)
{
  int64_t n = 0;
  switch (t->dtype) {
  case AMP_FLOAT64: COUNT(double, v != 0) break;
  case AMP_FLOAT32: COUNT(float, v != 0) break;
  case AMP_FLOAT16:
  case AMP_BFLOAT16: COUNT(uint16_t, (v & 0x7fff) != 0) break;
  case AMP_INT64: COUNT(int64_t, v != 0) break;
  case AMP_INT32: COUNT(int32_t, v != 0) break;
  case AMP_INT16: COUNT(int16_t, v != 0) break;
  default: COUNT(uint8_t, v != 0)
  }
  return n;
}

static int64_t count_nonzero(const amp_tensor *input)
{
  int64_t index[AMP_MAX_DIM] = { 0 }, at = 0, n = 0;
  int last = input->ndim - 1;
  if (input->numel == 0) return 0;
  if (input->flags & AMP_T_CONTIGUOUS) return count_line(input, 0, input->numel, 1);
  for (int64_t i = 0; i < input->numel; i += input->size[last]) {
    n += count_line(input, at, input->size[last], input->stride[last]);
    for (int d = last - 1; d >= 0; d--) {
      at += input->stride[d];
      if (++index[d] < input->size[d]) break;
      at -= index[d] * input->stride[d];
      index[d] = 0;
    }
  }
  return n;
}

int amp__infer_nonzero(amp_call *call)
{
  amp_tensor *input = call->in[0];
  int64_t size[2] = { 0, input->ndim };
  if (input->device == AMP_CPU) {
    size[0] = count_nonzero(input);
    if (amp__S) amp__S->host_waits++;
  } else { /* counted on the device: one value is copied to the host */
    double n;
    int status = amp__ask(input, AMP_OP_count_nonzero, &n);
    if (status < 0) return status;
    size[0] = (int64_t)n;
  }
  amp__out(call, 0, AMP_INT64, 2, size);
  return 0;
}

int amp__infer_embedding(amp_call *call)
{
  args_embedding *args = (args_embedding *)call->attrs;
  const amp_tensor *index = call->in[0], *weight = call->in[1];
  int64_t size[AMP_MAX_DIM];
  int status = amp__want_index(index, 1, "input");
  if (status < 0) return status;
  if (weight->ndim != 2)
    return amp__fail_arg(AMP_E_SHAPE, 2, "weight has shape %s, expected a matrix (embeddings x size)",
                         SHAPE_OF(weight));
  if (AMP_GIVEN(args->padding_idx)) { /* from 0 from here on */
    int64_t p = args->padding_idx;
    if (p == 0 || p > weight->size[0] || p < -weight->size[0])
      return amp__fail(AMP_E_INDEX,
                       "padding_idx %lld is out of range for %lld rows (1..%lld, or negative from the end)", LL(p),
                       LL(weight->size[0]), LL(weight->size[0]));
    args->padding_idx = p > 0 ? p - 1 : weight->size[0] + p;
  }
  if (index->ndim + 1 > AMP_MAX_DIM)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has %d dimensions; at most %d are supported", index->ndim,
                         AMP_MAX_DIM - 1);
  for (int d = 0; d < index->ndim; d++) size[d] = index->size[d];
  size[index->ndim] = weight->size[1];
  amp__out(call, 0, weight->dtype, index->ndim + 1, size);
  return 0;
}
