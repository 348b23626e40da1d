/*
** amp_view.c: the makers of views, one a V row: sizes, strides and an offset
** over the same storage, never a copy.
**
** Attributes arrive as a caller wrote them (dimensions, indices and ranges from
** 1, negative ones from the end) and are left counting from 0 and absolute, for
** derivatives: narrow and slice leave the first index, slice its last one,
** as_strided an offset relative to its input. The dispatcher adds history.
*/
#include "amp_infer.h"

static int give(amp_call *c, amp_tensor *v)
{
  c->out[0] = v;
  c->nout = 1;
  if (v == NULL) return amp__S->err.code;
  v->flags |= AMP_T_VIEW;
  return 0;
}

static int row_dim_of(amp_call *c, int slot, const char *what) { return amp__row_dim(&c->a[slot], c->in[0]->ndim, what); }
static int dim_of(amp_call *c, int slot, const char *what) { return amp__norm_dim(&c->a[slot], c->in[0]->ndim, what); }

static int copy_shape(const amp_tensor *t, int64_t *size, int64_t *stride)
{
  for (int i = 0; i < t->ndim; i++) { size[i] = t->size[i]; stride[i] = t->stride[i]; }
  return t->ndim;
}

/* An index from 1 (or negative, from the end) of dimension d to one from 0. */
static int index_of(amp_slot *s, const amp_tensor *t, int d)
{
  int64_t i = s->i, n = t->size[d];
  if (i == 0) return amp__fail(AMP_E_INDEX, "index 0 of dimension %d: indices count from 1, negative ones from the end (size %lld)", d + 1, (long long)n);
  if (i > n || i < -n) return amp__fail(AMP_E_INDEX, "index %lld is out of range for dimension %d of size %lld", (long long)i, d + 1, (long long)n);
  s->i = i > 0 ? i - 1 : n + i;
  return 0;
}

static int too_many(int n)
{
  return n > AMP_MAX_DIM ? amp__fail(AMP_E_SHAPE, "the result would have %d dimensions; at most %d are supported", n, AMP_MAX_DIM) : 0;
}

/* -- Shapes of the same elements --------------------------------------------- */

int amp__view_shape(const amp_tensor *t, amp_slot *shape, int64_t *size)
{
  int n = (int)shape[0].i, hole = -1;
  int64_t known = 1;
  bool overflow = false;
  if (shape[0].i < 0 || shape[0].i > AMP_MAX_DIM)
    return amp__fail(AMP_E_SHAPE, "a shape of at most %d sizes is expected", AMP_MAX_DIM);
  for (int i = 0; i < n; i++) {
    size[i] = shape[1 + i].i;
    if (size[i] == -1) {
      if (hole >= 0) return amp__fail(AMP_E_SHAPE, "only one size may be -1, shape %s has two", amp__shape_str(n, size));
      hole = i;
    } else if (size[i] < 0) {
      return amp__fail(AMP_E_SHAPE, "size %lld of dimension %d is negative", (long long)size[i], i + 1);
    } else overflow |= __builtin_mul_overflow(known, size[i], &known);
  }
  if (hole >= 0 && known > 0 && !overflow && t->numel % known == 0) size[hole] = shape[1 + hole].i = t->numel / known;
  else if (hole >= 0 && known == 0 && t->numel == 0)
    return amp__fail(AMP_E_SHAPE, "the size -1 can't be told in shape %s, which has no elements", amp__shape_str(n, size));
  else if (hole >= 0 || overflow || known != t->numel)
    return amp__fail(AMP_E_SHAPE, "shape %s does not fit the %lld elements of shape %s", amp__shape_str(n, size), (long long)t->numel,
                     amp__shape_str(t->ndim, t->size));
  return known ? 0 : amp__check_size(n, size, t->dtype, NULL); /* strides of nothing must fit too */
}

/* Old dimensions fall into runs that are contiguous among themselves; new ones must not cross a run. */
bool amp__view_strides(const amp_tensor *t, int ndim, const int64_t *size, int64_t *stride)
{
  if (t->flags & AMP_T_CONTIGUOUS) { amp__contiguous_strides(ndim, size, stride); return true; }
  int v = ndim - 1;
  int64_t run = 1, made = 1, base = t->ndim ? t->stride[t->ndim - 1] : 1;
  for (int d = t->ndim - 1; d >= 0; d--) {
    run *= t->size[d];
    if (d > 0 && (t->size[d - 1] == 1 || t->stride[d - 1] == run * base)) continue;
    while (v >= 0 && (made < run || size[v] == 1)) {
      stride[v] = made * base;
      made *= size[v--];
    }
    if (made != run) return false;
    if (d > 0) { run = made = 1; base = t->stride[d - 1]; }
  }
  return v < 0;
}

int amp__view_alias(amp_call *c) { return give(c, amp__tensor_alias(c->in[0])); }

int amp__view_view(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int n = (int)c->a[0].i, rc = amp__view_shape(t, c->a, size);
  if (rc < 0) return rc;
  if (!amp__view_strides(t, n, size, stride))
    return amp__fail(AMP_E_SHAPE, "shape %s can't be seen as %s without a copy: its strides don't allow it; use reshape",
                     amp__shape_str(t->ndim, t->size), amp__shape_str(n, size));
  return give(c, amp__tensor_view(t, n, size, stride, t->offset));
}

int amp__view_transpose(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int rc, n = copy_shape(t, size, stride);
  if ((rc = row_dim_of(c, 0, "dim0")) < 0 || (rc = row_dim_of(c, 1, "dim1")) < 0) return rc;
  int a = (int)c->a[0].i, b = (int)c->a[1].i;
  size[a] = t->size[b]; stride[a] = t->stride[b];
  size[b] = t->size[a]; stride[b] = t->stride[a];
  return give(c, amp__tensor_view(t, n, size, stride, t->offset));
}

int amp__view_permute(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  uint32_t seen;
  int rc;
  if (c->a[0].i != AMP_NONE && c->a[0].i != t->ndim)
    return amp__fail(AMP_E_SHAPE, "%lld dimensions are given for a tensor of %d", (long long)c->a[0].i, t->ndim);
  if ((rc = amp__norm_dims(c->a, t->ndim, &seen)) < 0) return rc;
  for (int i = 0; i < t->ndim; i++) {
    size[i] = t->size[c->a[1 + i].i];
    stride[i] = t->stride[c->a[1 + i].i];
  }
  return give(c, amp__tensor_view(t, t->ndim, size, stride, t->offset));
}

int amp__view_expand(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int n = (int)c->a[0].i, extra = n - t->ndim, rc;
  if (c->a[0].i < 0 || c->a[0].i > AMP_MAX_DIM)
    return amp__fail(AMP_E_SHAPE, "a shape of at most %d sizes is expected", AMP_MAX_DIM);
  for (int i = 0; i < n; i++) size[i] = c->a[1 + i].i;
  if (extra < 0)
    return amp__fail(AMP_E_SHAPE, "shape %s can't be expanded to %s, which has fewer dimensions", amp__shape_str(t->ndim, t->size), amp__shape_str(n, size));
  for (int i = 0; i < n; i++) {
    int64_t old = i < extra ? 1 : t->size[i - extra];
    if (size[i] == -1 && i >= extra) size[i] = c->a[1 + i].i = old;
    if (size[i] < 0) return amp__fail(AMP_E_SHAPE, "size %lld of dimension %d is negative (-1 keeps a size that is there)", (long long)size[i], i + 1);
    if (size[i] != old && old != 1)
      return amp__fail(AMP_E_SHAPE, "shape %s can't be expanded to %s: dimension %d has size %lld, not 1", amp__shape_str(t->ndim, t->size),
                       amp__shape_str(n, size), i - extra + 1, (long long)old);
    stride[i] = i < extra || size[i] != old ? 0 : t->stride[i - extra];
  }
  if ((rc = amp__check_size(n, size, t->dtype, NULL)) < 0) return rc;
  return give(c, amp__tensor_view(t, n, size, stride, t->offset));
}

int amp__view_squeeze(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int n = 0, only = -1, rc;
  if (c->a[0].i != AMP_NONE) {
    if ((rc = row_dim_of(c, 0, "dim")) < 0) return rc;
    only = (int)c->a[0].i;
  }
  for (int i = 0; i < t->ndim; i++) {
    if (t->size[i] == 1 && (only < 0 || only == i)) continue;
    size[n] = t->size[i];
    stride[n++] = t->stride[i];
  }
  return give(c, amp__tensor_view(t, n, size, stride, t->offset));
}

int amp__view_unsqueeze(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int rc = amp__norm_dim(&c->a[0], t->ndim + 1, "dim"), d = (int)c->a[0].i;
  if (rc < 0 || (rc = too_many(t->ndim + 1)) < 0) return rc;
  for (int i = 0, k = 0; i <= t->ndim; i++) {
    if (i == d) {
      size[i] = 1;
      stride[i] = k < t->ndim ? t->size[k] * t->stride[k] : 1;
      continue;
    }
    size[i] = t->size[k];
    stride[i] = t->stride[k++];
  }
  return give(c, amp__tensor_view(t, t->ndim + 1, size, stride, t->offset));
}

/* -- Parts ------------------------------------------------------------------------ */

int amp__view_narrow(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int rc = dim_of(c, 0, "dim"), d = (int)c->a[0].i, n = copy_shape(t, size, stride);
  if (rc < 0) return rc;
  int64_t start = c->a[1].i, length = c->a[2].i, most = t->size[d];
  if (start < 0) start += most + 1;
  /* an empty part may start just behind the end */
  if (start < 1 || length < 0 || start > most + 1 || length > most - start + 1)
    return amp__fail(AMP_E_INDEX, "%lld elements from %lld on don't fit dimension %d of size %lld", (long long)length, (long long)c->a[1].i, d + 1, (long long)most);
  c->a[1].i = start - 1;
  size[d] = length;
  return give(c, amp__tensor_view(t, n, size, stride, t->offset + (length ? start - 1 : 0) * t->stride[d]));
}

int amp__view_slice(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int rc = dim_of(c, 0, "dim"), d = (int)c->a[0].i, n = copy_shape(t, size, stride);
  if (rc < 0) return rc;
  int64_t most = t->size[d], step = c->a[3].i;
  int64_t start = c->a[1].i == AMP_NONE ? 1 : c->a[1].i, stop = c->a[2].i == AMP_NONE ? most : c->a[2].i;
  if (step < 1)
    return amp__fail(AMP_E_ARGUMENT, "step %lld of dimension %d: steps are positive; use flip to reverse a dimension", (long long)step, d + 1);
  int64_t first = start < 0 ? start + most + 1 : start, last = stop < 0 ? stop + most + 1 : stop;
  if (first < 1 || last > most || last < first - 1)
    return amp__fail(AMP_E_INDEX, "range %lld..%lld must lie in 1..%lld (the size of dimension %d), or be empty: its end one before its start",
                     (long long)start, (long long)stop, (long long)most, d + 1);
  c->a[1].i = first - 1;
  c->a[2].i = last - 1;
  size[d] = last < first ? 0 : (last - first) / step + 1;
  if (size[d] < 2) c->a[3].i = step = 1; /* a step that is never made must not overflow */
  stride[d] *= step;
  return give(c, amp__tensor_view(t, n, size, stride, t->offset + (size[d] ? first - 1 : 0) * t->stride[d]));
}

int amp__view_select(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int rc = dim_of(c, 0, "dim"), d = (int)c->a[0].i, n = 0;
  if (rc < 0 || (rc = index_of(&c->a[1], t, d)) < 0) return rc;
  for (int i = 0; i < t->ndim; i++) {
    if (i == d) continue;
    size[n] = t->size[i];
    stride[n++] = t->stride[i];
  }
  return give(c, amp__tensor_view(t, n, size, stride, t->offset + c->a[1].i * t->stride[d]));
}

enum { FEW = 3 }; /* results that a public call can give */

/* Few enough to be results of one op, whose derivative then sees all of them at once */
int amp__view_unbind(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int rc = dim_of(c, 0, "dim"), d = (int)c->a[0].i, n = 0;
  if (rc < 0) return rc;
  if (t->size[d] < 1 || t->size[d] > FEW) return amp__fail(AMP_E_SHAPE, "dimension %d has size %lld, expected 1 to %d", d + 1, (long long)t->size[d], FEW);
  for (int i = 0; i < t->ndim; i++) {
    if (i == d) continue;
    size[n] = t->size[i];
    stride[n++] = t->stride[i];
  }
  for (int i = 0; i < t->size[d] && rc == 0; i++) {
    c->out[i] = amp__tensor_view(t, n, size, stride, t->offset + i * t->stride[d]);
    c->nout = i + 1;
    if (c->out[i]) c->out[i]->flags |= AMP_T_VIEW;
    else rc = amp__S->err.code;
  }
  return rc;
}

int amp__view_diagonal(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM], k = c->a[0].i, at = t->offset;
  int rc, n = 0;
  if (t->ndim < 2) return amp__fail(AMP_E_SHAPE, "a tensor of at least 2 dimensions is expected, got shape %s", amp__shape_str(t->ndim, t->size));
  if ((rc = dim_of(c, 1, "dim1")) < 0 || (rc = dim_of(c, 2, "dim2")) < 0) return rc;
  int d1 = (int)c->a[1].i, d2 = (int)c->a[2].i;
  if (d1 == d2) return amp__fail(AMP_E_ARGUMENT, "dim1 and dim2 are both %d", d1 + 1);
  int64_t rows = t->size[d1], cols = t->size[d2], length = 0;
  if (k >= 0 && k < cols) length = rows < cols - k ? rows : cols - k;
  else if (k < 0 && k > -rows) length = rows + k < cols ? rows + k : cols;
  if (length > 0) at += k >= 0 ? k * t->stride[d2] : -k * t->stride[d1];
  for (int i = 0; i < t->ndim; i++) {
    if (i == d1 || i == d2) continue;
    size[n] = t->size[i];
    stride[n++] = t->stride[i];
  }
  size[n] = length;
  stride[n++] = t->stride[d1] + t->stride[d2];
  return give(c, amp__tensor_view(t, n, size, stride, at));
}

int amp__view_unfold(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int rc = dim_of(c, 0, "dim"), d = (int)c->a[0].i, n = copy_shape(t, size, stride);
  int64_t window = c->a[1].i, step = c->a[2].i;
  if (rc < 0 || (rc = too_many(n + 1)) < 0) return rc;
  if (step < 1) return amp__fail(AMP_E_ARGUMENT, "step %lld must be at least 1", (long long)step);
  if (window < 0 || window > t->size[d])
    return amp__fail(AMP_E_SHAPE, "windows of %lld don't fit dimension %d of size %lld", (long long)window, d + 1, (long long)t->size[d]);
  size[d] = (t->size[d] - window) / step + 1;
  if (size[d] < 2) c->a[2].i = step = 1;
  stride[d] *= step;
  size[n] = window;
  stride[n] = t->stride[d];
  return give(c, amp__tensor_view(t, n + 1, size, stride, t->offset));
}

int amp__view_as_strided(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM] = { 0 }, stride[AMP_MAX_DIM];
  const amp_slot *a = c->a;
  int n = (int)a[0].i, rc;
  if (amp__S->grad_mode && !(t->flags & AMP_T_CONTIGUOUS) && amp__tracked((amp_tensor *)t))
    return amp__fail_arg(AMP_E_AUTOGRAD, 1, "the derivative of as_strided wants an input without gaps in C order, got strides %s; use contiguous() first", amp__shape_str(t->ndim, t->stride));
  if (a[0].i < 0 || a[0].i > AMP_MAX_DIM || a[9].i != n)
    return amp__fail(AMP_E_SHAPE, "as many strides as sizes, at most %d, are expected", AMP_MAX_DIM);
  int64_t at = a[18].i == AMP_NONE ? t->offset : a[18].i, last = at, room = (int64_t)(t->storage->bytes / amp__dtype_size[t->dtype]);
  bool empty = false, overflow = false;
  for (int i = 0; i < n; i++) {
    size[i] = a[1 + i].i;
    stride[i] = a[10 + i].i;
    if (stride[i] < 0) return amp__fail(AMP_E_ARGUMENT, "stride %lld of dimension %d is negative", (long long)stride[i], i + 1);
  }
  if ((rc = amp__check_size(n, size, t->dtype, NULL)) < 0) return rc;
  for (int i = 0; i < n; i++) {
    int64_t span;
    overflow |= stride[i] > INT64_MAX / 16; /* even where nothing is reached: strides are added up */
    if (size[i] == 0) empty = true;
    else overflow |= __builtin_mul_overflow(size[i] - 1, stride[i], &span) || __builtin_add_overflow(last, span, &last);
  }
  if (at < 0 || at > room || overflow || (!empty && last >= room))
    return amp__fail(AMP_E_INDEX, "sizes %s with strides %s from offset %lld on reach beyond the storage of %lld elements",
                     amp__shape_str(n, size), amp__shape_str(n, stride), (long long)at, (long long)room);
  c->a[18].i = at - t->offset;
  return give(c, amp__tensor_view(t, n, size, stride, at));
}
