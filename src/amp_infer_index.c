/*
** amp_infer_index.c: shape rules of indexing. Index values stand in tensors
** that only kernels read, and kernels check them; here are ranks and sizes.
** nonzero alone must look at its input to know how many rows come out.
*/
#include <math.h>
#include "amp_infer.h"

int amp__infer_index_select(amp_call *c)
{
  const amp_tensor *t = c->in[0], *index = c->in[1];
  int64_t size[AMP_MAX_DIM];
  int rc = amp__row_dim(&c->a[0], t->ndim, "dim");
  if (rc < 0 || (rc = amp__want_index(index, 2, "index")) < 0) return rc;
  if (index->ndim > 1) return amp__fail_arg(AMP_E_SHAPE, 2, "index has shape %s, expected a vector", SHAPE_OF(index));
  if (t->ndim == 0 && index->numel != 1) return amp__fail_arg(AMP_E_SHAPE, 2, "index has %lld elements; of a scalar there is one", LL(index->numel));
  for (int d = 0; d < t->ndim; d++) size[d] = t->size[d];
  size[c->a[0].i] = index->numel;
  amp__out(c, 0, t->dtype, t->ndim, size);
  return 0;
}

int amp__infer_index_add(amp_call *c)
{
  const amp_tensor *t = c->in[0], *index = c->in[1], *src = c->in[2];
  int64_t size[AMP_MAX_DIM];
  int rc = amp__row_dim(&c->a[0], t->ndim, "dim");
  if (rc < 0 || (rc = amp__want_index(index, 2, "index")) < 0) return rc;
  if (index->ndim > 1) return amp__fail_arg(AMP_E_SHAPE, 2, "index has shape %s, expected a vector", SHAPE_OF(index));
  if (src->dtype != t->dtype)
    return amp__fail_arg(AMP_E_DTYPE, 3, "src has dtype %s and input %s; cast one of them", amp_dtype_name(src->dtype), amp_dtype_name(t->dtype));
  if (t->ndim == 0 && index->numel != 1) return amp__fail_arg(AMP_E_SHAPE, 2, "index has %lld elements; of a scalar there is one", LL(index->numel));
  for (int d = 0; d < t->ndim; d++) size[d] = t->size[d];
  size[c->a[0].i] = index->numel;
  if ((rc = amp__want_shape(src, "src", t->ndim, size)) < 0) return rc;
  if (!amp__is_float(t->dtype) && (!amp__fits(c->a[1].f, AMP_INT64) || c->a[1].f != floor(c->a[1].f)))
    return amp__fail(AMP_E_VALUE, "alpha %.17g must be integral for %s", c->a[1].f, amp_dtype_name(t->dtype));
  amp__like(c, 0, t, t->dtype);
  return 0;
}

/* index may be smaller than t in every dimension but `dim` (-1: there too) */
static int within(const amp_tensor *index, const amp_tensor *t, const char *what, int dim)
{
  if (index->ndim != t->ndim)
    return amp__fail(AMP_E_SHAPE, "index has shape %s and %s %s: the numbers of dimensions differ", SHAPE_OF(index), what, SHAPE_OF(t));
  for (int d = 0; d < t->ndim; d++)
    if (d != dim && index->size[d] > t->size[d])
      return amp__fail(AMP_E_SHAPE, "index has shape %s and %s %s: dimension %d of index is %lld, more than %lld", SHAPE_OF(index), what, SHAPE_OF(t), d + 1,
                       LL(index->size[d]), LL(t->size[d]));
  return 0;
}

int amp__infer_gather(amp_call *c)
{
  const amp_tensor *t = c->in[0], *index = c->in[1];
  int rc = amp__row_dim(&c->a[0], t->ndim, "dim");
  if (rc < 0 || (rc = amp__want_index(index, 2, "index")) < 0 || (rc = within(index, t, "input", (int)c->a[0].i)) < 0) return rc;
  amp__out(c, 0, t->dtype, index->ndim, index->size);
  return 0;
}

int amp__infer_scatter(amp_call *c)
{
  const amp_tensor *t = c->in[0], *index = c->in[1], *src = c->in[2];
  bool number = src->flags & AMP_T_NUMBER;
  int rc = amp__row_dim(&c->a[0], t->ndim, "dim");
  if (rc < 0 || (rc = amp__want_index(index, 2, "index")) < 0) return rc;
  if (!number && src->dtype != t->dtype)
    return amp__fail_arg(AMP_E_DTYPE, 3, "src has dtype %s and input %s; cast one of them", amp_dtype_name(src->dtype), amp_dtype_name(t->dtype));
  if (number && (rc = amp__value_fits(amp__element(src, 0), t->dtype)) < 0) return rc;
  if ((rc = within(index, t, "input", (int)c->a[0].i)) < 0 || (!number && (rc = within(index, src, "src", -1)) < 0)) return rc;
  amp__like(c, 0, t, t->dtype);
  return 0;
}

static int index_vector(amp_call *c)
{
  const amp_tensor *index = c->in[1];
  int rc = amp__row_dim(&c->a[0], c->in[0]->ndim, "dim");
  if (rc < 0 || (rc = amp__want_index(index, 2, "index")) < 0) return rc;
  if (index->ndim > 1) return amp__fail_arg(AMP_E_SHAPE, 2, "index has shape %s, expected a vector", SHAPE_OF(index));
  amp__like(c, 0, c->in[0], c->in[0]->dtype);
  return 0;
}

static int source_dtype(const amp_call *c, const amp_tensor *source)
{
  if (source->dtype == c->in[0]->dtype) return 0;
  return amp__fail_arg(AMP_E_DTYPE, 3, "source has dtype %s and input %s; cast one of them", amp_dtype_name(source->dtype), amp_dtype_name(c->in[0]->dtype));
}

int amp__infer_index_copy(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM];
  int rc = index_vector(c);
  if (rc < 0 || (rc = source_dtype(c, c->in[2])) < 0) return rc;
  if (t->ndim == 0 && c->in[1]->numel != 1) return amp__fail_arg(AMP_E_SHAPE, 2, "index has %lld elements; of a scalar there is one", LL(c->in[1]->numel));
  for (int d = 0; d < t->ndim; d++) size[d] = t->size[d];
  size[c->a[0].i] = c->in[1]->numel;
  return amp__want_shape(c->in[2], "source", t->ndim, size);
}

int amp__infer_index_fill(amp_call *c)
{
  int rc = index_vector(c);
  return rc < 0 ? rc : amp__value_fits(c->a[1].f, c->in[0]->dtype);
}

int amp__infer_put(amp_call *c)
{
  const amp_tensor *index = c->in[1], *source = c->in[2];
  int rc = amp__want_index(index, 2, "index");
  if (rc < 0 || (rc = source_dtype(c, source)) < 0) return rc;
  if (index->numel != source->numel)
    return amp__fail_arg(AMP_E_SHAPE, 3, "source has shape %s and index %s: as many elements are expected", SHAPE_OF(source), SHAPE_OF(index));
  amp__like(c, 0, c->in[0], c->in[0]->dtype);
  return 0;
}

int amp__infer_masked_scatter(amp_call *c)
{
  const amp_tensor *t = c->in[0], *mask = c->in[1];
  if (mask->dtype != AMP_BOOL) return amp__fail_arg(AMP_E_DTYPE, 2, "mask has dtype %s, expected bool", amp_dtype_name(mask->dtype));
  bool ok = mask->ndim <= t->ndim;
  for (int k = 1; k <= mask->ndim && ok; k++) ok = mask->size[mask->ndim - k] == 1 || mask->size[mask->ndim - k] == t->size[t->ndim - k];
  if (!ok) return amp__fail_arg(AMP_E_SHAPE, 2, "mask has shape %s, which can't be broadcast to input's %s", SHAPE_OF(mask), SHAPE_OF(t));
  int rc = source_dtype(c, c->in[2]);
  if (rc < 0) return rc;
  amp__like(c, 0, t, t->dtype);
  return 0;
}

/* offset, dim1 and dim2 of the result, in which the last dimension becomes two */
int amp__infer_diag_embed(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM], offset = c->a[0].i;
  if (t->ndim == 0) return amp__fail_arg(AMP_E_SHAPE, 1, "a scalar has no dimension to become a diagonal");
  if (t->ndim == AMP_MAX_DIM) return amp__fail_arg(AMP_E_SHAPE, 1, "the result would have %d dimensions; at most %d are supported", t->ndim + 1, AMP_MAX_DIM);
  int rc = amp__norm_dim(&c->a[1], t->ndim + 1, "dim1");
  if (rc < 0 || (rc = amp__norm_dim(&c->a[2], t->ndim + 1, "dim2")) < 0) return rc;
  if (c->a[1].i == c->a[2].i) return amp__fail(AMP_E_ARGUMENT, "dim1 and dim2 are both %lld", LL(c->a[1].i + 1));
  int64_t side;
  if (offset == INT64_MIN || __builtin_add_overflow(t->size[t->ndim - 1], offset < 0 ? -offset : offset, &side))
    return amp__fail(AMP_E_VALUE, "offset %lld is too large", LL(offset));
  for (int d = 0, k = 0; d <= t->ndim; d++) size[d] = d == c->a[1].i || d == c->a[2].i ? side : t->size[k++];
  amp__out(c, 0, t->dtype, t->ndim + 1, size);
  return amp__check_size(t->ndim + 1, size, t->dtype, NULL);
}

/* Shape of t at index tensors in[first..] for the dimensions in slot 0 on. They replace their dimensions where
** these stand side by side, else come first. */
static int indexed_shape(amp_call *c, int first, int *ndim, int64_t *size)
{
  const amp_tensor *t = c->in[0];
  int n = c->nin - first, nb, rc, at = 0, k = 0;
  int64_t b[AMP_MAX_DIM];
  if (n < 1) return amp__fail(AMP_E_ARGUMENT, "at least one index tensor is expected");
  if (!given(c->a) || c->a[0].i != n) return amp__fail(AMP_E_ARGUMENT, "%d index tensors are given for %lld dimensions", n, given(c->a) ? LL(c->a[0].i) : 0);
  for (int i = 0; i < n; i++) {
    if ((rc = amp__norm_dim(&c->a[1 + i], t->ndim, "dimension")) < 0 || (rc = amp__want_index(c->in[first + i], first + i + 1, "index")) < 0) return rc;
    if (i && c->a[1 + i].i <= c->a[i].i) return amp__fail(AMP_E_ARGUMENT, "the indexed dimensions must be in rising order");
  }
  amp_call only = { .nin = n, .in = c->in + first };
  if ((rc = amp__broadcast(&only, n, &nb, b)) < 0) return rc;
  if (t->ndim - n + nb > AMP_MAX_DIM) return amp__fail(AMP_E_SHAPE, "the result would have %d dimensions; at most %d are supported", t->ndim - n + nb, AMP_MAX_DIM);
  bool adjacent = c->a[n].i - c->a[1].i == n - 1;
  int where = adjacent ? (int)c->a[1].i : 0; /* kept dimensions before the index part */
  for (int d = 0, used = 0; d <= t->ndim; d++) {
    if (k == where && used == 0) {
      for (int i = 0; i < nb; i++) size[at++] = b[i];
      used = 1;
    }
    if (d == t->ndim) break;
    bool indexed = false;
    for (int i = 0; i < n; i++) indexed |= c->a[1 + i].i == d;
    if (!indexed) { size[at++] = t->size[d]; k++; }
  }
  *ndim = at;
  return 0;
}

int amp__infer_index(amp_call *c)
{
  int64_t size[AMP_MAX_DIM];
  int ndim, rc = indexed_shape(c, 1, &ndim, size);
  if (rc < 0) return rc;
  amp__out(c, 0, c->in[0]->dtype, ndim, size);
  return 0;
}

int amp__infer_index_put(amp_call *c)
{
  const amp_tensor *t = c->in[0], *v = c->in[1];
  int64_t size[AMP_MAX_DIM];
  int ndim, rc = indexed_shape(c, 2, &ndim, size);
  if (rc < 0) return rc;
  if (v->dtype != t->dtype)
    return amp__fail_arg(AMP_E_DTYPE, 2, "values have dtype %s and input %s; cast one of them", amp_dtype_name(v->dtype), amp_dtype_name(t->dtype));
  bool ok = v->ndim <= ndim;
  for (int d = 0; d < v->ndim && ok; d++) ok = v->size[d] == 1 || v->size[d] == size[ndim - v->ndim + d];
  if (!ok) return amp__fail_arg(AMP_E_SHAPE, 2, "values have shape %s, which can't be broadcast to the indexed part's %s", SHAPE_OF(v), amp__shape_str(ndim, size));
  amp__like(c, 0, t, t->dtype);
  return 0;
}

#define COUNT(T, E) { const T *p = amp__data(t) ; p += at; for (int64_t k = 0; k < m; k++) { const T v = p[k * step]; n += (E); } }

/* How many of m elements from `at` on, `step` apart, are not zero: NaN are not, -0 is */
static int64_t count_line(const amp_tensor *t, int64_t at, int64_t m, int64_t step)
{
  int64_t n = 0;
  switch (t->dtype) {
  case AMP_FLOAT64: COUNT(double, v != 0) break;
  case AMP_FLOAT32: COUNT(float, v != 0) break;
  case AMP_FLOAT16: case AMP_BFLOAT16: COUNT(uint16_t, (v & 0x7fff) != 0) break;
  case AMP_INT64: COUNT(int64_t, v != 0) break;
  case AMP_INT32: COUNT(int32_t, v != 0) break;
  case AMP_INT16: COUNT(int16_t, v != 0) break;
  default: COUNT(uint8_t, v != 0)
  }
  return n;
}

static int64_t count_nonzero(const amp_tensor *t)
{
  int64_t index[AMP_MAX_DIM] = { 0 }, at = 0, n = 0;
  int last = t->ndim - 1;
  if (t->numel == 0) return 0;
  if (t->flags & AMP_T_CONTIGUOUS) return count_line(t, 0, t->numel, 1);
  for (int64_t i = 0; i < t->numel; i += t->size[last]) {
    n += count_line(t, at, t->size[last], t->stride[last]);
    for (int d = last - 1; d >= 0; d--) {
      at += t->stride[d];
      if (++index[d] < t->size[d]) break;
      at -= index[d] * t->stride[d];
      index[d] = 0;
    }
  }
  return n;
}

int amp__infer_nonzero(amp_call *c)
{
  amp_tensor *t = c->in[0];
  int64_t size[2] = { 0, t->ndim };
  if (t->device == AMP_CPU) {
    size[0] = count_nonzero(t);
    if (amp__S) amp__S->host_waits++;
  } else { /* counted there: one value travels */
    double n;
    int rc = amp__ask(t, AMP_OP_count_nonzero, &n);
    if (rc < 0) return rc;
    size[0] = (int64_t)n;
  }
  amp__out(c, 0, AMP_INT64, 2, size);
  return 0;
}

int amp__infer_embedding(amp_call *c)
{
  const amp_tensor *index = c->in[0], *w = c->in[1];
  int64_t size[AMP_MAX_DIM];
  int rc = amp__want_index(index, 1, "input");
  if (rc < 0) return rc;
  if (w->ndim != 2) return amp__fail_arg(AMP_E_SHAPE, 2, "weight has shape %s, expected a matrix (embeddings x size)", SHAPE_OF(w));
  if (given(&c->a[0])) { /* from 0 from here on */
    int64_t p = c->a[0].i;
    if (p == 0 || p > w->size[0] || p < -w->size[0])
      return amp__fail(AMP_E_INDEX, "padding_idx %lld is out of range for %lld rows (1..%lld, or negative from the end)", LL(p), LL(w->size[0]), LL(w->size[0]));
    c->a[0].i = p > 0 ? p - 1 : w->size[0] + p;
  }
  if (index->ndim + 1 > AMP_MAX_DIM) return amp__fail_arg(AMP_E_SHAPE, 1, "input has %d dimensions; at most %d are supported", index->ndim, AMP_MAX_DIM - 1);
  for (int d = 0; d < index->ndim; d++) size[d] = index->size[d];
  size[index->ndim] = w->size[1];
  amp__out(c, 0, w->dtype, index->ndim + 1, size);
  return 0;
}

/* Does a view of these sizes, with strides in slots from a on and this offset, stay within n elements? */
static int reaches(int ndim, const int64_t *size, const amp_slot *a, int64_t offset, int64_t n)
{
  int64_t last = offset, span;
  bool empty = false, ok = offset >= 0;
  for (int d = 0; d < ndim && ok; d++) {
    if (size[d] == 0) empty = true;
    else ok = a[d].i >= 0 && !__builtin_mul_overflow(size[d] - 1, a[d].i, &span) && !__builtin_add_overflow(last, span, &last);
  }
  if (ok && (empty || last < n)) return 0;
  return amp__fail(AMP_E_INDEX, "a view of shape %s from offset %lld on reaches beyond %lld elements", amp__shape_str(ndim, size), LL(offset), LL(n));
}

int amp__infer_as_strided_scatter(amp_call *c)
{
  const amp_tensor *t = c->in[0], *src = c->in[1];
  int64_t size[AMP_MAX_DIM];
  int n, rc = amp__shape_attr(&c->a[0], "size", &n, size);
  if (rc < 0 || (rc = amp__want_shape(src, "src", n, size)) < 0) return rc;
  if (c->a[9].i != n) return amp__fail(AMP_E_ARGUMENT, "as many strides as sizes are expected");
  if ((rc = reaches(n, size, c->a + 10, c->a[18].i, t->numel)) < 0) return rc;
  if (src->dtype != t->dtype)
    return amp__fail_arg(AMP_E_DTYPE, 2, "src has dtype %s and input %s; cast one of them", amp_dtype_name(src->dtype), amp_dtype_name(t->dtype));
  amp__out(c, 0, t->dtype, t->ndim, t->size);
  return 0;
}

/* as_strided_sum: shape, then the view's size, stride and offset, in slots 0, 9, 18 and 27 */
int amp__infer_shape_attr(amp_call *c)
{
  int64_t size[AMP_MAX_DIM], view[AMP_MAX_DIM], n = 1;
  int ndim, nview, rc = amp__shape_attr(&c->a[0], "shape", &ndim, size);
  if (rc < 0 || (rc = amp__shape_attr(&c->a[9], "size", &nview, view)) < 0) return rc;
  if ((rc = amp__want_shape(c->in[0], "input", nview, view)) < 0) return rc;
  for (int d = 0; d < ndim; d++) n *= size[d];
  if (c->a[18].i != nview) return amp__fail(AMP_E_ARGUMENT, "as many strides as sizes are expected");
  if ((rc = reaches(nview, view, c->a + 19, c->a[27].i, n)) < 0) return rc;
  amp__out(c, 0, c->in[0]->dtype, ndim, size);
  return 0;
}
