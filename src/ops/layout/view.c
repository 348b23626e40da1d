/*
** ops/layout/view.c: the makers of views, one a V row: sizes, strides and an offset
** over the same storage, never a copy.
**
** Attributes arrive as a caller wrote them (dimensions, indices and ranges from
** 1, negative ones from the end) and are left counting from 0 and absolute, for
** derivatives: narrow and slice leave the first index, slice its last one,
** as_strided an offset relative to its input. The dispatcher adds history.
*/
#include "dispatch/shape_rules.h"

static int give(amp_call *call, amp_tensor *view)
{
  call->out[0] = view;
  call->nout = 1;
  if (view == NULL) return amp__S->err.code;
  AMP_ASSERT(view->storage == call->in[0]->storage);
  view->flags |= AMP_T_VIEW;
  return 0;
}

/* A dimension of the input, from 1 or the end, to one from 0; row_dim_of: a scalar is a row of one element */
static int row_dim_of(amp_call *call, int64_t *dim, const char *what)
{
  return amp__row_dim(AMP_SLOT(*dim), call->in[0]->ndim, what);
}
static int dim_of(amp_call *call, int64_t *dim, const char *what)
{
  return amp__norm_dim(AMP_SLOT(*dim), call->in[0]->ndim, what);
}

static int copy_shape(const amp_tensor *tensor, int64_t *size, int64_t *stride)
{
  for (int i = 0; i < tensor->ndim; i++) {
    size[i] = tensor->size[i];
    stride[i] = tensor->stride[i];
  }
  return tensor->ndim;
}

/* An index from 1 (or negative, from the end) of dimension dim to one from 0. */
static int index_of(int64_t *index, const amp_tensor *tensor, int dim)
{
  int64_t i = *index, n = tensor->size[dim];
  if (i == 0)
    return amp__fail(AMP_E_INDEX,
                     "index 0 of dimension %d: indices count from 1, negative ones from the end (size %lld)", dim + 1,
                     (long long)n);
  if (i > n || i < -n)
    return amp__fail(AMP_E_INDEX, "index %lld is out of range for dimension %d of size %lld", (long long)i, dim + 1,
                     (long long)n);
  *index = i > 0 ? i - 1 : n + i;
  return 0;
}

static int too_many(int n)
{
  return n > AMP_MAX_DIM
             ? amp__fail(AMP_E_SHAPE, "the result would have %d dimensions; at most %d are supported", n, AMP_MAX_DIM)
             : 0;
}

/* -- Shapes of the same elements --------------------------------------------- */

int amp__view_shape(const amp_tensor *tensor, amp_slot *shape, int64_t *size)
{
  int n = (int)shape[0].i, hole = -1;
  int64_t known = 1;
  bool overflow = false;
  if (shape[0].i < 0 || shape[0].i > AMP_MAX_DIM)
    return amp__fail(AMP_E_SHAPE, "a shape of at most %d sizes is expected", AMP_MAX_DIM);
  for (int i = 0; i < n; i++) {
    size[i] = shape[1 + i].i;
    if (size[i] == -1) {
      if (hole >= 0)
        return amp__fail(AMP_E_SHAPE, "only one size may be -1, shape %s has two", amp__shape_str(n, size));
      hole = i;
    } else if (size[i] < 0) {
      return amp__fail(AMP_E_SHAPE, "size %lld of dimension %d is negative", (long long)size[i], i + 1);
    } else overflow |= __builtin_mul_overflow(known, size[i], &known);
  }
  if (hole >= 0 && known > 0 && !overflow && tensor->numel % known == 0)
    size[hole] = shape[1 + hole].i = tensor->numel / known;
  else if (hole >= 0 && known == 0 && tensor->numel == 0)
    return amp__fail(AMP_E_SHAPE, "the size -1 can't be told in shape %s, which has no elements",
                     amp__shape_str(n, size));
  else if (hole >= 0 || overflow || known != tensor->numel)
    return amp__fail(AMP_E_SHAPE, "shape %s does not fit the %lld elements of shape %s", amp__shape_str(n, size),
                     (long long)tensor->numel, amp__shape_str(tensor->ndim, tensor->size));
  return known ? 0 : amp__check_size(n, size, tensor->dtype, NULL); /* strides of nothing must fit too */
}

int amp__view_alias(amp_call *call) { return give(call, amp__tensor_alias(call->in[0])); }

int amp__view_view(amp_call *call)
{
  args_view *args = (args_view *)call->attrs;
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int n = (int)args->shape.n, status = amp__view_shape(input, AMP_SLOT(args->shape), size);
  if (status < 0) return status;
  if (!amp__view_strides(input, n, size, stride))
    return amp__fail(AMP_E_SHAPE,
                     "shape %s can't be seen as %s without a copy: its strides don't allow it; use reshape",
                     amp__shape_str(input->ndim, input->size), amp__shape_str(n, size));
  return give(call, amp__tensor_view(input, n, size, stride, input->offset));
}

int amp__view_transpose(amp_call *call)
{
  args_transpose *args = (args_transpose *)call->attrs;
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int status, n = copy_shape(input, size, stride);
  if ((status = row_dim_of(call, &args->dim0, "dim0")) < 0 || (status = row_dim_of(call, &args->dim1, "dim1")) < 0)
    return status;
  int a = (int)args->dim0, b = (int)args->dim1;
  size[a] = input->size[b];
  stride[a] = input->stride[b];
  size[b] = input->size[a];
  stride[b] = input->stride[a];
  return give(call, amp__tensor_view(input, n, size, stride, input->offset));
}

int amp__view_permute(amp_call *call)
{
  args_permute *args = (args_permute *)call->attrs;
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  uint32_t seen;
  int status;
  if (AMP_GIVEN(args->dims.n) && args->dims.n != input->ndim)
    return amp__fail(AMP_E_SHAPE, "%lld dimensions are given for a tensor of %d", (long long)args->dims.n, input->ndim);
  if ((status = amp__norm_dims(AMP_SLOT(args->dims), input->ndim, &seen)) < 0) return status;
  for (int i = 0; i < input->ndim; i++) {
    size[i] = input->size[args->dims.at[i]];
    stride[i] = input->stride[args->dims.at[i]];
  }
  return give(call, amp__tensor_view(input, input->ndim, size, stride, input->offset));
}

int amp__view_expand(amp_call *call)
{
  args_expand *args = (args_expand *)call->attrs;
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int n = (int)args->shape.n, extra = n - input->ndim, status;
  if (args->shape.n < 0 || args->shape.n > AMP_MAX_DIM)
    return amp__fail(AMP_E_SHAPE, "a shape of at most %d sizes is expected", AMP_MAX_DIM);
  for (int i = 0; i < n; i++) size[i] = args->shape.at[i];
  if (extra < 0)
    return amp__fail(AMP_E_SHAPE, "shape %s can't be expanded to %s, which has fewer dimensions",
                     amp__shape_str(input->ndim, input->size), amp__shape_str(n, size));
  for (int i = 0; i < n; i++) {
    int64_t old = i < extra ? 1 : input->size[i - extra];
    if (size[i] == -1 && i >= extra) size[i] = args->shape.at[i] = old;
    if (size[i] < 0)
      return amp__fail(AMP_E_SHAPE, "size %lld of dimension %d is negative (-1 keeps a size that is there)",
                       (long long)size[i], i + 1);
    if (size[i] != old && old != 1)
      return amp__fail(AMP_E_SHAPE, "shape %s can't be expanded to %s: dimension %d has size %lld, not 1",
                       amp__shape_str(input->ndim, input->size), amp__shape_str(n, size), i - extra + 1,
                       (long long)old);
    stride[i] = i < extra || size[i] != old ? 0 : input->stride[i - extra];
  }
  if ((status = amp__check_size(n, size, input->dtype, NULL)) < 0) return status;
  return give(call, amp__tensor_view(input, n, size, stride, input->offset));
}

int amp__view_squeeze(amp_call *call)
{
  args_squeeze *args = (args_squeeze *)call->attrs;
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int n = 0, only = -1, status;
  if (AMP_GIVEN(args->dim)) {
    if ((status = row_dim_of(call, &args->dim, "dim")) < 0) return status;
    only = (int)args->dim;
  }
  for (int i = 0; i < input->ndim; i++) {
    if (input->size[i] == 1 && (only < 0 || only == i)) continue;
    size[n] = input->size[i];
    stride[n++] = input->stride[i];
  }
  return give(call, amp__tensor_view(input, n, size, stride, input->offset));
}

int amp__view_unsqueeze(amp_call *call)
{
  args_unsqueeze *args = (args_unsqueeze *)call->attrs;
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int status = amp__norm_dim(AMP_SLOT(args->dim), input->ndim + 1, "dim"), dim = (int)args->dim;
  if (status < 0 || (status = too_many(input->ndim + 1)) < 0) return status;
  for (int i = 0, k = 0; i <= input->ndim; i++) {
    if (i == dim) {
      size[i] = 1;
      stride[i] = k < input->ndim ? input->size[k] * input->stride[k] : 1;
      continue;
    }
    size[i] = input->size[k];
    stride[i] = input->stride[k++];
  }
  return give(call, amp__tensor_view(input, input->ndim + 1, size, stride, input->offset));
}

/* -- Parts ------------------------------------------------------------------------ */

int amp__view_narrow(amp_call *call)
{
  args_narrow *args = (args_narrow *)call->attrs;
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int status = dim_of(call, &args->dim, "dim"), dim = (int)args->dim, n = copy_shape(input, size, stride);
  if (status < 0) return status;
  int64_t start = args->start, length = args->length, most = input->size[dim];
  if (start < 0) start += most + 1;
  /* an empty part may start just behind the end */
  if (start < 1 || length < 0 || start > most + 1 || length > most - start + 1)
    return amp__fail(AMP_E_INDEX, "%lld elements from %lld on don't fit dimension %d of size %lld", (long long)length,
                     (long long)args->start, dim + 1, (long long)most);
  args->start = start - 1;
  size[dim] = length;
  return give(call,
              amp__tensor_view(input, n, size, stride, input->offset + (length ? start - 1 : 0) * input->stride[dim]));
}

int amp__view_slice(amp_call *call)
{
  args_slice *args = (args_slice *)call->attrs;
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int status = dim_of(call, &args->dim, "dim"), dim = (int)args->dim, n = copy_shape(input, size, stride);
  if (status < 0) return status;
  int64_t most = input->size[dim], step = args->step;
  int64_t start = AMP_GIVEN(args->start) ? args->start : 1, stop = AMP_GIVEN(args->stop) ? args->stop : most;
  if (step < 1)
    return amp__fail(AMP_E_ARGUMENT, "step %lld of dimension %d: steps are positive; use flip to reverse a dimension",
                     (long long)step, dim + 1);
  int64_t first = start < 0 ? start + most + 1 : start, last = stop < 0 ? stop + most + 1 : stop;
  if (first < 1 || last > most || last < first - 1)
    return amp__fail(
        AMP_E_INDEX,
        "range %lld..%lld must lie in 1..%lld (the size of dimension %d), or be empty: its end one before its start",
        (long long)start, (long long)stop, (long long)most, dim + 1);
  args->start = first - 1;
  args->stop = last - 1;
  size[dim] = last < first ? 0 : (last - first) / step + 1;
  if (size[dim] < 2) args->step = step = 1; /* a step that is never made must not overflow */
  stride[dim] *= step;
  return give(
      call, amp__tensor_view(input, n, size, stride, input->offset + (size[dim] ? first - 1 : 0) * input->stride[dim]));
}

int amp__view_select(amp_call *call)
{
  args_select *args = (args_select *)call->attrs;
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int status = dim_of(call, &args->dim, "dim"), dim = (int)args->dim, n = 0;
  if (status < 0 || (status = index_of(&args->index, input, dim)) < 0) return status;
  for (int i = 0; i < input->ndim; i++) {
    if (i == dim) continue;
    size[n] = input->size[i];
    stride[n++] = input->stride[i];
  }
  return give(call, amp__tensor_view(input, n, size, stride, input->offset + args->index * input->stride[dim]));
}

enum { FEW = 3 }; /* results that a public call can give */

/* Few enough to be results of one op, whose derivative then sees all of them at once */
int amp__view_unbind(amp_call *call)
{
  args_unbind *args = (args_unbind *)call->attrs;
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int status = dim_of(call, &args->dim, "dim"), dim = (int)args->dim, n = 0;
  if (status < 0) return status;
  if (input->size[dim] < 1 || input->size[dim] > FEW)
    return amp__fail(AMP_E_SHAPE, "dimension %d has size %lld, expected 1 to %d", dim + 1, (long long)input->size[dim],
                     FEW);
  for (int i = 0; i < input->ndim; i++) {
    if (i == dim) continue;
    size[n] = input->size[i];
    stride[n++] = input->stride[i];
  }
  for (int i = 0; i < input->size[dim] && status == 0; i++) {
    call->out[i] = amp__tensor_view(input, n, size, stride, input->offset + i * input->stride[dim]);
    call->nout = i + 1;
    if (call->out[i]) call->out[i]->flags |= AMP_T_VIEW;
    else status = amp__S->err.code;
  }
  return status;
}

int amp__view_diagonal(amp_call *call)
{
  args_diagonal *args = (args_diagonal *)call->attrs;
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM], k = args->offset, offset = input->offset;
  int status, n = 0;
  if (input->ndim < 2)
    return amp__fail(AMP_E_SHAPE, "a tensor of at least 2 dimensions is expected, got shape %s",
                     amp__shape_str(input->ndim, input->size));
  if ((status = dim_of(call, &args->dim1, "dim1")) < 0 || (status = dim_of(call, &args->dim2, "dim2")) < 0)
    return status;
  int dim1 = (int)args->dim1, dim2 = (int)args->dim2;
  if (dim1 == dim2) return amp__fail(AMP_E_ARGUMENT, "dim1 and dim2 are both %d", dim1 + 1);
  int64_t rows = input->size[dim1], cols = input->size[dim2], length = 0;
  if (k >= 0 && k < cols) length = rows < cols - k ? rows : cols - k;
  else if (k < 0 && k > -rows) length = rows + k < cols ? rows + k : cols;
  if (length > 0) offset += k >= 0 ? k * input->stride[dim2] : -k * input->stride[dim1];
  for (int i = 0; i < input->ndim; i++) {
    if (i == dim1 || i == dim2) continue;
    size[n] = input->size[i];
    stride[n++] = input->stride[i];
  }
  size[n] = length;
  stride[n++] = input->stride[dim1] + input->stride[dim2];
  return give(call, amp__tensor_view(input, n, size, stride, offset));
}

int amp__view_unfold(amp_call *call)
{
  args_unfold *args = (args_unfold *)call->attrs;
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int status = dim_of(call, &args->dim, "dim"), dim = (int)args->dim, n = copy_shape(input, size, stride);
  int64_t window = args->size, step = args->step;
  if (status < 0 || (status = too_many(n + 1)) < 0) return status;
  if (step < 1) return amp__fail(AMP_E_ARGUMENT, "step %lld must be at least 1", (long long)step);
  if (window < 0 || window > input->size[dim])
    return amp__fail(AMP_E_SHAPE, "windows of %lld don't fit dimension %d of size %lld", (long long)window, dim + 1,
                     (long long)input->size[dim]);
  size[dim] = (input->size[dim] - window) / step + 1;
  if (size[dim] < 2) args->step = step = 1;
  stride[dim] *= step;
  size[n] = window;
  stride[n] = input->stride[dim];
  return give(call, amp__tensor_view(input, n + 1, size, stride, input->offset));
}

int amp__view_as_strided(amp_call *call)
{
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM] = { 0 }, stride[AMP_MAX_DIM];
  args_as_strided *args = (args_as_strided *)call->attrs;
  int n = (int)args->size.n, status;
  if (amp__S->grad_mode && !(input->flags & AMP_T_CONTIGUOUS) && amp__tracked((amp_tensor *)input))
    return amp__fail_arg(
        AMP_E_AUTOGRAD, 1,
        "the derivative of as_strided wants an input without gaps in C order, got strides %s; use contiguous() first",
        amp__shape_str(input->ndim, input->stride));
  if (args->size.n < 0 || args->size.n > AMP_MAX_DIM || args->stride.n != n)
    return amp__fail(AMP_E_SHAPE, "as many strides as sizes, at most %d, are expected", AMP_MAX_DIM);
  int64_t offset = AMP_GIVEN(args->offset) ? args->offset : input->offset, last = offset,
          room = (int64_t)(input->storage->bytes / amp__dtype_size[input->dtype]);
  bool empty = false, overflow = false;
  for (int i = 0; i < n; i++) {
    size[i] = args->size.at[i];
    stride[i] = args->stride.at[i];
    if (stride[i] < 0)
      return amp__fail(AMP_E_ARGUMENT, "stride %lld of dimension %d is negative", (long long)stride[i], i + 1);
  }
  if ((status = amp__check_size(n, size, input->dtype, NULL)) < 0) return status;
  for (int i = 0; i < n; i++) {
    int64_t span;
    overflow |= stride[i] > INT64_MAX / 16; /* even where nothing is reached: strides are added up */
    if (size[i] == 0) empty = true;
    else overflow |= __builtin_mul_overflow(size[i] - 1, stride[i], &span) || __builtin_add_overflow(last, span, &last);
  }
  if (offset < 0 || offset > room || overflow || (!empty && last >= room))
    return amp__fail(AMP_E_INDEX,
                     "sizes %s with strides %s from offset %lld on reach beyond the storage of %lld elements",
                     amp__shape_str(n, size), amp__shape_str(n, stride), (long long)offset, (long long)room);
  args->offset = offset - input->offset;
  return give(call, amp__tensor_view(input, n, size, stride, offset));
}
