/*
** cpu_index.c: reading and writing by index tensors, one dimension at a time:
** index_select, index_add, gather, scatter, scatter_add, embedding, nonzero.
** Several dimensions at once: cpu_index_put.c.
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

/* -- index_select, embedding ------------------------------------------------------------- */

typedef struct { const amp_tensor *in, *out; const int64_t *index; int dim; int ndim; int64_t size[AMP_MAX_DIM], is[AMP_MAX_DIM], os[AMP_MAX_DIM]; int64_t run; int64_t n; } selecting;

/* One slice a (outer, index) pair; run > 0: it is that many dense elements on both sides */
static void select_part(int64_t lo, int64_t hi, void *ctx)
{
  const selecting *s = ctx;
  int es = amp__dtype_size[s->in->dtype];
  const char *src = amp__data(s->in);
  char *dst = amp__data(s->out);
  for (int64_t k = lo; k < hi; k++) {
    int64_t outer = k / s->n, j = k % s->n;
    int64_t i = s->index[j] * s->in->stride[s->dim], o = j * s->out->stride[s->dim];
    for (int d = s->dim - 1; d >= 0; d--) {
      int64_t x = outer % s->in->size[d];
      outer /= s->in->size[d];
      i += x * s->in->stride[d];
      o += x * s->out->stride[d];
    }
    if (s->run > 0) memcpy(dst + o * es, src + i * es, (size_t)(s->run * es));
    else if (s->ndim == 0) amp__move(es, dst + o * es, 1, src + i * es, 1, 1);
    else amp__copy_raw(s->ndim, s->size, dst + o * es, s->out->dtype, s->os, src + i * es, s->in->dtype, s->is);
  }
}

/* out = in at `index` (n, from 0) of dimension dim; out's dimension dim holds all of them */
static void select_into(const amp_tensor *in, const amp_tensor *out, int dim, const int64_t *index, int64_t n)
{
  selecting s = { .in = in, .out = out, .index = index, .dim = dim, .n = n };
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
  if (slice == 1 && outer == 1 && n > 0) { /* elements of a vector */
    int es = amp__dtype_size[in->dtype];
    const char *p = amp__data(in);
    char *q = amp__data(out);
    for (int64_t j = 0; j < n; j++) amp__move(es, q + j * out->stride[dim] * es, 1, p + index[j] * in->stride[dim] * es, 1, 1);
    return;
  }
  int threads = dense ? amp__threads(out->numel) : 1;
  amp__parallel(threads, outer * n, 1, select_part, &s);
}

int amp__cpu_index_select(amp_call *c)
{
  amp_tensor *hold;
  int dim = (int)c->a[0].i;
  int64_t *index = amp__indices(c->in[1], dim, c->in[0]->size[dim], &hold);
  if (index == NULL) return amp__S->err.code;
  select_into(c->in[0], c->out[0], dim, index, hold->numel);
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
  if (v) select_into(w, v, 0, index, hold->numel);
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
  if (amp__is_int(out->dtype) && a.alpha != (double)(int64_t)a.alpha) {
    rc = amp__fail(AMP_E_VALUE, "alpha is %.14g, integer tensors need an integral one", a.alpha);
    goto out;
  }
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
  if (a.n * a.inner > 0) amp__parallel(a.parts, a.parts, 1, add_part, &a);
  if (dense != acc.t) rc = amp__copy_to(acc.t, dense);
out:
  rc = amp__accumulated(&acc, rc);
  amp__free(dense);
  amp__free(src);
  amp__free(hold);
  return rc;
}

/* -- gather, scatter: element by element -------------------------------------------------------- */

/* For every place of the index: offsets into x (dimension dim by the index) and y (plain), in elements. The index
** is read row by row, in chunks; it has been checked. */
#define EACH(BODY) { \
  int64_t at[AMP_MAX_DIM] = { 0 }, xo = 0, yo = 0, io = 0, index[AMP_CHUNK]; \
  const int last = ix->ndim - 1, es = amp__dtype_size[ix->dtype]; \
  const int64_t len = ix->size[last], rows = ix->numel / len, sd = x->stride[dim], rows_in = x->size[dim]; \
  const int64_t sx = last == dim ? 0 : x->stride[last], sy = y->stride[last]; \
  for (int64_t k = 0; k < rows; k++) { \
    for (int64_t j0 = 0; j0 < len; j0 += AMP_CHUNK) { \
      const int64_t n = len - j0 < AMP_CHUNK ? len - j0 : AMP_CHUNK, xb = xo + j0 * sx, yb = yo + j0 * sy; \
      amp__load(AMP_C_I64, index, ix->dtype, (const char *)amp__data(ix) + (io + j0 * ix->stride[last]) * es, ix->stride[last], n); \
      from_zero(n, index, rows_in); \
      for (int64_t j = 0; j < n; j++) { const int64_t xi = xb + j * sx + index[j] * sd, yi = yb + j * sy; BODY; } \
    } \
    for (int d = last - 1; d >= 0; d--) { \
      if (d != dim) xo += x->stride[d]; \
      yo += y->stride[d]; io += ix->stride[d]; \
      if (++at[d] < ix->size[d]) break; \
      if (d != dim) xo -= ix->size[d] * x->stride[d]; \
      yo -= ix->size[d] * y->stride[d]; io -= ix->size[d] * ix->stride[d]; \
      at[d] = 0; \
    } \
  } }

typedef struct { int64_t size; int bad; } checking;
static AMP_CLONES void check_loop(int64_t n, void *const *p, unsigned scalar, const void *arg)
{
  checking *k = (checking *)arg;
  const int64_t *v = p[0];
  int64_t bad = 0;
  for (int64_t i = 0; i < n; i++) bad |= (v[i] == 0) | (v[i] > k->size) | (v[i] < -k->size);
  if (bad) __atomic_store_n(&k->bad, 1, __ATOMIC_RELAXED);
}

static int check_indices(amp_tensor *t, int dim, int64_t size)
{
  static const uint8_t cls = AMP_C_I64;
  checking k = { size, 0 };
  amp_loop l = { check_loop, &k, 0, 0, 1 };
  amp_tensor *hold;
  amp__elementwise(&l, 1, &t, &cls);
  if (!k.bad) return 0;
  amp__indices(t, dim, size, &hold); /* says which one */
  return amp__S->err.code;
}

static void gather_all(const amp_tensor *ix, int dim, const amp_tensor *x, const amp_tensor *y)
{
  switch (amp__dtype_size[x->dtype]) {
  case 1: { const uint8_t *s = amp__data(x); uint8_t *o = amp__data(y); EACH(o[yi] = s[xi]) } break;
  case 2: { const uint16_t *s = amp__data(x); uint16_t *o = amp__data(y); EACH(o[yi] = s[xi]) } break;
  case 4: { const uint32_t *s = amp__data(x); uint32_t *o = amp__data(y); EACH(o[yi] = s[xi]) } break;
  default: { const uint64_t *s = amp__data(x); uint64_t *o = amp__data(y); EACH(o[yi] = s[xi]) }
  }
}

static void scatter_all(const amp_tensor *ix, int dim, const amp_tensor *x, const amp_tensor *y)
{
  switch (amp__dtype_size[x->dtype]) {
  case 1: { uint8_t *o = amp__data(x); const uint8_t *s = amp__data(y); EACH(o[xi] = s[yi]) } break;
  case 2: { uint16_t *o = amp__data(x); const uint16_t *s = amp__data(y); EACH(o[xi] = s[yi]) } break;
  case 4: { uint32_t *o = amp__data(x); const uint32_t *s = amp__data(y); EACH(o[xi] = s[yi]) } break;
  default: { uint64_t *o = amp__data(x); const uint64_t *s = amp__data(y); EACH(o[xi] = s[yi]) }
  }
}

static void scatter_sum(const amp_tensor *ix, int dim, const amp_tensor *x, const amp_tensor *y, int cls)
{
  switch (cls) {
  case AMP_C_F32: { float *o = amp__data(x); const float *s = amp__data(y); EACH(o[xi] += s[yi]) } break;
  case AMP_C_F64: { double *o = amp__data(x); const double *s = amp__data(y); EACH(o[xi] += s[yi]) } break;
  default: { uint64_t *o = amp__data(x); const uint64_t *s = amp__data(y); EACH(o[xi] += s[yi]) }
  }
}

int amp__cpu_gather(amp_call *c)
{
  int dim = (int)c->a[0].i, rc = check_indices(c->in[1], dim, c->in[0]->size[dim]);
  if (rc == 0 && c->in[1]->numel > 0) gather_all(c->in[1], dim, c->in[0], c->out[0]);
  return rc;
}

static int scatter(amp_call *c, bool sum)
{
  amp_tensor *out = c->out[0], *src = NULL;
  int dim = (int)c->a[0].i, rc = check_indices(c->in[1], dim, out->size[dim]);
  if (rc < 0 || (rc = amp__check_cast(c->in[2], out->dtype)) < 0) return rc;
  if (out != c->in[0] && (rc = amp__copy_to(out, c->in[0])) < 0) return rc;
  if (c->in[1]->numel == 0) return 0;
  amp_accumulator acc = { .t = out, .out = out };
  if (sum) {
    acc.t = NULL;
    if ((rc = amp__accumulator(&acc, out)) < 0) goto out;
  }
  src = c->in[2];
  if (src->dtype == acc.t->dtype) amp__retain(src);
  else if ((src = amp__dense(src, acc.t->dtype)) == NULL) { rc = amp__S->err.code; goto out; }
  if (sum) scatter_sum(c->in[1], dim, acc.t, src, acc.cls);
  else scatter_all(c->in[1], dim, out, src);
out:
  rc = amp__accumulated(&acc, rc);
  amp__free(src);
  return rc;
}
int amp__cpu_scatter(amp_call *c) { return scatter(c, false); }
int amp__cpu_scatter_add(amp_call *c) { return scatter(c, true); }

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
    for (int64_t j = 0; j < len; j++) {
      /* eight falses at a time */
      uint64_t eight = 1;
      if (j + 8 <= len) memcpy(&eight, p + j, 8);
      if (eight == 0) { j += 7; continue; }
      if (!p[j]) continue;
      for (int d = 0; d < nd - 1; d++) q[d * cs] = at[d] + 1;
      q[(nd - 1) * cs] = j + 1;
      q += rs;
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
