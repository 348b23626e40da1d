/*
** cpu_index.c: reading and writing by index tensors, one dimension at a time:
** index_select, index_add, index_copy, index_fill, embedding, put,
** masked_scatter, nonzero. Element by element: cpu_gather.c; several dimensions
** at once: cpu_index_put.c.
**
** Every index is checked, and made to count from 0, before anything is written.
** Sums into 16-bit floats run in float32 and into short integers in int64, and
** are rounded or wrapped once, so many additions to one place lose nothing.
*/
#include "cpu_index.h"
#include "cpu_math.h"

/* -- Index tensors -------------------------------------------------------------------- */

int amp__index_error(int64_t i, int64_t at, int dim, int64_t size)
{
  if (i == 0)
    return amp__fail(AMP_E_INDEX, "index 0 (element %lld of the index) for dimension %d of size %lld: indices count from 1, negative ones from the end",
                     (long long)at + 1, dim + 1, (long long)size);
  return amp__fail(AMP_E_INDEX, "index %lld (element %lld of the index) is out of range for dimension %d of size %lld",
                   (long long)i, (long long)at + 1, dim + 1, (long long)size);
}

/* From 1 or the end to from 0; whether some value is out of range */
static AMP_CLONES int from_zero(int64_t n, int64_t *v, int64_t size)
{
  int64_t bad = 0;
  for (int64_t k = 0; k < n; k++) {
    const int64_t i = v[k];
    bad |= (i == 0) | (i > size) | (i < -size);
    v[k] = i > 0 ? i - 1 : size + i;
  }
  return bad != 0;
}

int64_t *amp__indices(amp_tensor *t, int dim, int64_t size, amp_tensor **hold)
{
  amp_tensor *d = amp__tensor_make(AMP_INT64, AMP_CPU, 0, t->ndim, t->size);
  *hold = NULL;
  if (d == NULL) return NULL;
  int64_t *v = AMP_DATA(int64_t, d);
  bool dense = t->flags & AMP_T_CONTIGUOUS;
  if (!dense && amp__copy_to(d, t) < 0) { amp__free(d); return NULL; }
  for (int64_t at = 0; at < d->numel; at += AMP_CHUNK) {
    int64_t n = d->numel - at < AMP_CHUNK ? d->numel - at : AMP_CHUNK;
    if (dense) amp__load(AMP_C_I64, v + at, t->dtype, (char *)amp__data(t) + at * amp__dtype_size[t->dtype], 1, n);
    if (amp_likely(!from_zero(n, v + at, size))) continue;
    if (amp__copy_to(d, t) == 0) /* the values as given, to say which one it was */
      for (int64_t k = at; k < at + n; k++)
        if (v[k] == 0 || v[k] > size || v[k] < -size) { amp__index_error(v[k], k, dim, size); break; }
    amp__free(d);
    return NULL;
  }
  *hold = d;
  return v;
}

int amp__accumulator(amp_accumulator *a, amp_tensor *out)
{
  int dtype = out->dtype;
  int wide = dtype == AMP_FLOAT64 ? AMP_FLOAT64 : amp__is_float(dtype) ? AMP_FLOAT32 : AMP_INT64;
  a->out = out;
  a->cls = amp__dtype_class[wide];
  if (dtype == wide) { a->t = out; return 0; }
  a->t = amp__tensor_make(wide, AMP_CPU, 0, out->ndim, out->size);
  if (a->t == NULL) return amp__S->err.code;
  return amp__copy_to(a->t, out);
}

int amp__accumulated(amp_accumulator *a, int rc)
{
  if (a->t != a->out) {
    if (rc == 0 && a->t) rc = amp__copy_to(a->out, a->t);
    amp__free(a->t);
  }
  return rc;
}

/* The vector `index` as an index of gather's kind, for a tensor t: repeated over all dimensions but dim. NULL: error */
static amp_tensor *along(amp_tensor *index, const amp_tensor *t, int dim)
{
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM] = { 0 };
  for (int d = 0; d < t->ndim; d++) size[d] = t->size[d];
  size[dim] = index->numel;
  stride[dim] = index->ndim ? index->stride[0] : 1;
  return amp__tensor_view(index, t->ndim, size, stride, index->offset);
}

/* -- index_select, embedding ------------------------------------------------------------- */

typedef struct { const amp_tensor *in, *out; const int64_t *index; int dim; int ndim; int64_t size[AMP_MAX_DIM], is[AMP_MAX_DIM], os[AMP_MAX_DIM]; int64_t run, n; bool write; } selecting;

/* One slice a (outer, index) pair; run > 0: it is that many dense elements on both sides */
static void select_part(int64_t lo, int64_t hi, void *ctx)
{
  const selecting *s = ctx;
  int es = amp__dtype_size[s->in->dtype];
  char *src = amp__data(s->in), *dst = amp__data(s->out);
  int64_t j = lo % s->n, i0 = 0, o0 = 0;
  for (int64_t k = lo; k < hi; k++, j++) {
    if (j == s->n) j = 0;
    if (k == lo || j == 0) { /* a new place of the dimensions before */
      int64_t outer = k / s->n;
      i0 = o0 = 0;
      for (int d = s->dim - 1; d >= 0; d--) {
        int64_t x = outer % s->in->size[d];
        outer /= s->in->size[d];
        i0 += x * s->in->stride[d];
        o0 += x * s->out->stride[d];
      }
    }
    int64_t i = i0 + s->index[j] * s->in->stride[s->dim], o = o0 + j * s->out->stride[s->dim];
    if (s->write) amp__copy_raw(s->ndim, s->size, src + i * es, s->in->dtype, s->is, dst + o * es, s->out->dtype, s->os);
    else if (s->run > 0) memcpy(dst + o * es, src + i * es, (size_t)(s->run * es));
    else amp__copy_raw(s->ndim, s->size, dst + o * es, s->out->dtype, s->os, src + i * es, s->in->dtype, s->is);
  }
}

/* out = in at `index` (n, from 0) of dimension dim, or the other way round; out's dimension dim holds all of them */
static void select_into(const amp_tensor *in, const amp_tensor *out, int dim, const int64_t *index, int64_t n, bool write)
{
  selecting s = { .in = in, .out = out, .index = index, .dim = dim, .n = n, .write = write };
  int64_t outer = 1, slice = 1, expect = 1;
  bool dense = true;
  if (out->numel == 0) return;
  for (int d = 0; d < dim; d++) outer *= in->size[d];
  s.ndim = in->ndim - dim - 1;
  for (int d = in->ndim - 1; d > dim; d--) {
    if (in->size[d] != 1 && (in->stride[d] != expect || out->stride[d] != expect)) dense = false;
    expect *= in->size[d];
    slice *= in->size[d];
    s.size[d - dim - 1] = in->size[d];
    s.is[d - dim - 1] = in->stride[d];
    s.os[d - dim - 1] = out->stride[d];
  }
  s.run = dense ? slice : 0;
  int threads = dense && !write ? amp__threads(out->numel) : 1;
  amp__parallel(threads, outer * n, 1, select_part, &s);
}

int amp__cpu_index_select(amp_call *c)
{
  amp_tensor *hold, *t = c->in[0];
  int dim = (int)c->a[0].i;
  if (dim == t->ndim - 1 && c->out[0]->dtype == t->dtype && t->numel > 0 && !c->flags) {
    amp_tensor *ix = along(c->in[1], t, dim);
    int rc = ix ? amp__gather(ix, dim, t, c->out[0]) : amp__S->err.code;
    amp__free(ix);
    return rc;
  }
  int64_t *index = amp__indices(c->in[1], dim, t->size[dim], &hold);
  if (index == NULL) return amp__S->err.code;
  select_into(t, c->out[0], dim, index, hold->numel, false);
  amp__free(hold);
  return 0;
}

int amp__cpu_embedding(amp_call *c)
{
  amp_tensor *hold, *w = c->in[1], *o = c->out[0];
  int64_t *index = amp__indices(c->in[0], 0, w->size[0], &hold);
  if (index == NULL) return amp__S->err.code;
  int64_t size[2] = { hold->numel, w->size[1] }, stride[2] = { w->size[1], 1 };
  amp_tensor *v = amp__tensor_view(o, 2, size, stride, o->offset);
  int rc = v ? 0 : amp__S->err.code;
  if (v) select_into(w, v, 0, index, hold->numel, false);
  amp__free(v);
  amp__free(hold);
  return rc;
}

/* -- index_add ------------------------------------------------------------------------------ */

#define AXPY(name, CLONES, T, E) static CLONES void name(int64_t n, T *o, const T *x, T a) { AMP_IVDEP for (int64_t i = 0; i < n; i++) o[i] = E; }
AXPY(axpy_f, AMP_CLONES, float, o[i] + a * x[i])
AXPY(axpy_d, AMP_CLONES_WIDE, double, o[i] + a * x[i])
AXPY(axpy_i, AMP_CLONES_WIDE, int64_t, (int64_t)((uint64_t)o[i] + (uint64_t)a * (uint64_t)x[i]))

typedef struct { amp_tensor *acc, *src; const int64_t *index; int cls, dim; double alpha; int64_t n, inner, outer; int parts; } adding;

/* Part i of `parts` takes the indices that are i modulo parts: no two write one row */
static void add_part(int64_t lo, int64_t hi, void *ctx)
{
  const adding *a = ctx;
  int es = amp__class_size[a->cls];
  int64_t rows = a->acc->size[a->dim];
  for (int64_t part = lo; part < hi; part++)
    for (int64_t o = 0; o < a->outer; o++)
      for (int64_t j = 0; j < a->n; j++) {
        int64_t i = a->index[j];
        if (a->parts > 1 && i % a->parts != part) continue;
        char *dst = (char *)amp__data(a->acc) + (o * rows + i) * a->inner * es;
        const char *src = (const char *)amp__data(a->src) + (o * a->n + j) * a->inner * es;
        switch (a->cls) {
        case AMP_C_F32: axpy_f(a->inner, (float *)dst, (const float *)src, (float)a->alpha); break;
        case AMP_C_F64: axpy_d(a->inner, (double *)dst, (const double *)src, a->alpha); break;
        default: axpy_i(a->inner, (int64_t *)dst, (const int64_t *)src, (int64_t)a->alpha);
        }
      }
}

int amp__cpu_index_add(amp_call *c)
{
  amp_tensor *out = c->out[0], *hold, *src = NULL, *dense = NULL;
  int dim = (int)c->a[0].i, rc = 0;
  adding a = { .dim = dim, .alpha = c->a[1].f, .inner = 1, .outer = 1 };
  int64_t *index = amp__indices(c->in[1], dim, out->size[dim], &hold);
  amp_accumulator acc = { .t = NULL, .out = out };
  if (index == NULL) return amp__S->err.code;
  if (out != c->in[0] && (rc = amp__copy_to(out, c->in[0])) < 0) goto out;
  if ((rc = amp__accumulator(&acc, out)) < 0) goto out;
  /* the loop wants C order */
  dense = amp__dense(acc.t, acc.t->dtype);
  src = amp__dense(c->in[2], acc.t->dtype);
  if (dense == NULL || src == NULL) { rc = amp__S->err.code; goto out; }
  for (int d = 0; d < dim; d++) a.outer *= out->size[d];
  for (int d = dim + 1; d < out->ndim; d++) a.inner *= out->size[d];
  a.acc = dense; a.src = src; a.index = index; a.cls = acc.cls; a.n = hold->numel;
  a.parts = amp__threads(src->numel * 2);
  if (a.inner < 8 && a.parts == 1 && a.alpha == 1) { /* runs too short for calls */
    amp_tensor *ix = along(c->in[1], out, dim);
    rc = ix ? amp__scatter_sum(ix, dim, acc.t, src) : amp__S->err.code;
    amp__free(ix);
    goto out;
  }
  if (a.n * a.inner > 0) amp__parallel(a.parts, a.parts, 1, add_part, &a);
  if (dense != acc.t) rc = amp__copy_to(acc.t, dense);
out:
  rc = amp__accumulated(&acc, rc);
  amp__free(dense);
  amp__free(src);
  amp__free(hold);
  return rc;
}

/* -- index_copy, index_fill, put, masked_scatter: writing ---------------------------------------------- */

int amp__cpu_index_copy(amp_call *c)
{
  amp_tensor *out = c->out[0], *hold, *src = NULL;
  int dim = (int)c->a[0].i, rc = 0;
  int64_t *index = amp__indices(c->in[1], dim, out->size[dim], &hold);
  if (index == NULL) return amp__S->err.code;
  if ((rc = amp__check_cast(c->in[2], out->dtype)) < 0) goto out;
  if (out != c->in[0] && (rc = amp__copy_to(out, c->in[0])) < 0) goto out;
  src = c->in[2];
  if (src->dtype == out->dtype) amp__retain(src);
  else if ((src = amp__dense(src, out->dtype)) == NULL) { rc = amp__S->err.code; goto out; }
  if (src->numel > 0) select_into(out, src, dim, index, hold->numel, true);
out:
  amp__free(src);
  amp__free(hold);
  return rc;
}

int amp__cpu_index_fill(amp_call *c)
{
  static const int64_t none[AMP_MAX_DIM];
  amp_tensor *out = c->out[0], *hold, *one = NULL, *src = NULL;
  int dim = (int)c->a[0].i, rc = 0;
  int64_t *index = amp__indices(c->in[1], dim, out->size[dim], &hold), size[AMP_MAX_DIM];
  if (index == NULL) return amp__S->err.code;
  if (out != c->in[0] && (rc = amp__copy_to(out, c->in[0])) < 0) goto out;
  if (out->numel == 0 || hold->numel == 0) goto out;
  for (int d = 0; d < out->ndim; d++) size[d] = d == dim ? hold->numel : out->size[d];
  if ((one = amp__tensor_make(out->dtype, AMP_CPU, 0, 0, NULL)) == NULL || (rc = amp__fill_value(one, c->a[1].f)) < 0
      || (src = amp__tensor_view(one, out->ndim, size, none, one->offset)) == NULL) { rc = amp__S->err.code; goto out; }
  select_into(out, src, dim, index, hold->numel, true);
out:
  amp__free(src);
  amp__free(one);
  amp__free(hold);
  return rc;
}

#define PUT(T, E) { T *o = amp__data(acc.t); const T *s = amp__data(src); for (int64_t k = 0; k < n; k++) E; }

int amp__cpu_put(amp_call *c)
{
  amp_tensor *out = c->out[0], *hold, *src = NULL;
  int64_t *at = amp__indices(c->in[1], 0, out->numel, &hold), n = c->in[1]->numel;
  int rc = 0;
  amp_accumulator acc = { .t = out, .out = out };
  if (at == NULL) return amp__S->err.code;
  if ((rc = amp__check_cast(c->in[2], out->dtype)) < 0) goto out;
  if (out != c->in[0] && (rc = amp__copy_to(out, c->in[0])) < 0) goto out;
  if (c->a[0].i) {
    acc.t = NULL;
    if ((rc = amp__accumulator(&acc, out)) < 0) goto out;
  }
  if ((src = amp__dense(c->in[2], acc.t->dtype)) == NULL) { rc = amp__S->err.code; goto out; }
  if (!(acc.t->flags & AMP_T_CONTIGUOUS)) /* places in C order into offsets */
    for (int64_t k = 0; k < n; k++) {
      int64_t rest = at[k], o = 0;
      for (int d = acc.t->ndim - 1; d >= 0; d--) { o += rest % acc.t->size[d] * acc.t->stride[d]; rest /= acc.t->size[d]; }
      at[k] = o;
    }
  if (!c->a[0].i) switch (amp__dtype_size[out->dtype]) {
    case 1: PUT(uint8_t, o[at[k]] = s[k]) break;
    case 2: PUT(uint16_t, o[at[k]] = s[k]) break;
    case 4: PUT(uint32_t, o[at[k]] = s[k]) break;
    default: PUT(uint64_t, o[at[k]] = s[k])
  } else if (acc.cls == AMP_C_F32) PUT(float, o[at[k]] += s[k])
  else if (acc.cls == AMP_C_F64) PUT(double, o[at[k]] += s[k])
  else PUT(uint64_t, o[at[k]] += s[k])
out:
  rc = amp__accumulated(&acc, rc);
  amp__free(src);
  amp__free(hold);
  return rc;
}

#define NEXT(T) { T *o = amp__data(y); const T *s = amp__data(src); for (int64_t i = 0; i < y->numel; i++) if (m[i]) o[i] = s[k++]; }

int amp__cpu_masked_scatter(amp_call *c)
{
  amp_tensor *out = c->out[0], *mask = NULL, *src = NULL, *y = NULL;
  int64_t n = 0, k = 0;
  int rc = amp__S->err.code;
  if ((mask = amp__tensor_make(AMP_BOOL, AMP_CPU, 0, out->ndim, out->size)) == NULL) return rc;
  if ((rc = amp__copy_to(mask, c->in[1])) < 0 || (rc = amp__check_cast(c->in[2], out->dtype)) < 0) goto out;
  const uint8_t *m = amp__data(mask);
  for (int64_t i = 0; i < mask->numel; i++) n += m[i];
  if (n > c->in[2]->numel) {
    rc = amp__fail(AMP_E_VALUE, "mask is true at %lld places, source has %lld elements", (long long)n, (long long)c->in[2]->numel);
    goto out;
  }
  if (out != c->in[0] && (rc = amp__copy_to(out, c->in[0])) < 0) goto out;
  src = amp__dense(c->in[2], out->dtype);
  y = amp__dense(out, out->dtype);
  if (src == NULL || y == NULL) { rc = amp__S->err.code; goto out; }
  switch (amp__dtype_size[out->dtype]) {
  case 1: NEXT(uint8_t) break;
  case 2: NEXT(uint16_t) break;
  case 4: NEXT(uint32_t) break;
  default: NEXT(uint64_t)
  }
  if (y != out) rc = amp__copy_to(out, y);
out:
  amp__free(y);
  amp__free(src);
  amp__free(mask);
  return rc;
}
/* -- nonzero ---------------------------------------------------------------------------------------- */

int amp__cpu_nonzero(amp_call *c)
{
  amp_tensor *t = c->in[0], *truth = amp__dense(t, AMP_BOOL), *o = c->out[0];
  if (truth == NULL) return amp__S->err.code;
  const uint8_t *p = amp__data(truth);
  int nd = t->ndim, rc = 0;
  int64_t n = 0, at[AMP_MAX_DIM] = { 0 }, len = nd ? t->size[nd - 1] : 1;
  for (int64_t i = 0; i < t->numel; i++) n += p[i] != 0;
  if (o->size[0] != n) { /* the shape rule may not have looked */
    int64_t size[2] = { n, nd };
    if ((o = amp__tensor_make(AMP_INT64, AMP_CPU, 0, 2, size)) == NULL) { rc = amp__S->err.code; goto out; }
    amp__free(c->out[0]);
    c->out[0] = o;
  }
  int64_t *q = AMP_DATA(int64_t, o), rs = o->stride[0], cs = o->stride[1];
  if (nd == 0) goto out;
  for (int64_t i = 0; i < t->numel; i += len, p += len) { /* a row of the last dimension */
    for (int64_t j = 0; j < len; j += AMP_CHUNK) {
      int64_t found[AMP_CHUNK + 1], m = 0;
      const int64_t end = len - j < AMP_CHUNK ? len : j + AMP_CHUNK;
      for (int64_t k = j; k < end; k++) {
        uint64_t eight = 1; /* eight falses at a time */
        if (k + 8 <= end) memcpy(&eight, p + k, 8);
        if (eight == 0) { k += 7; continue; }
        if (k + 8 > end) { found[m] = k + 1; m += p[k] != 0; continue; }
        for (int l = 0; l < 8; l++) { found[m] = k + l + 1; m += p[k + l] != 0; }
        k += 7;
      }
      if (nd == 2 && cs == 1 && rs == 2) for (int64_t k = 0; k < m; k++) { q[2 * k] = at[0] + 1; q[2 * k + 1] = found[k]; }
      else for (int64_t k = 0; k < m; k++) {
        for (int d = 0; d < nd - 1; d++) q[k * rs + d * cs] = at[d] + 1;
        q[k * rs + (nd - 1) * cs] = found[k];
      }
      q += m * rs;
    }
    for (int d = nd - 2; d >= 0; d--) {
      if (++at[d] < t->size[d]) break;
      at[d] = 0;
    }
  }
out:
  amp__free(truth);
  return rc;
}
