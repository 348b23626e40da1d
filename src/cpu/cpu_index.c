/*
** cpu_index.c: reading and writing elements by index tensors.
**
** Every kernel first reads all its indices into an int64 vector counting from
** 0 and checks them, so a bad one is an error before anything is written.
** Reads move bytes in the tensor's own dtype. Sums over equal indices are made
** in the compute class (float32 for 16-bit floats), in order, and rounded
** once: through a dense work tensor where the result is not that class.
** Shapes were settled by amp_infer_index.c.
*/
#include "cpu_iter.h"

/* -- Indices ------------------------------------------------------------------ */

/* The values of `index` for a dimension of n elements, from 0, in C order: a dense int64 tensor (counted). */
static amp_tensor *indices(amp_tensor *index, int64_t n, int dim)
{
  amp_tensor *t = amp__tensor_make(AMP_INT64, AMP_CPU, 0, index->ndim, index->size);
  if (t == NULL || amp__copy_to(t, index) < 0) { amp__free(t); return NULL; }
  int64_t *v = AMP_DATA(int64_t, t);
  for (int64_t i = 0; i < t->numel; i++) {
    int64_t at = v[i] < 0 ? v[i] + n : v[i] - 1;
    if (amp_unlikely(v[i] == 0 || at < 0 || at >= n)) {
      amp__fail(AMP_E_INDEX, "index %lld at place %lld is out of range for dimension %d of size %lld%s", (long long)v[i], (long long)i + 1,
                dim + 1, (long long)n, v[i] == 0 ? "; indices count from 1" : "");
      amp__free(t);
      return NULL;
    }
    v[i] = at;
  }
  return t;
}

/* Element offsets of every position of a shape, in C order, into out. */
static void offsets(int ndim, const int64_t *size, const int64_t *stride, int64_t *out)
{
  int64_t n = 1;
  out[0] = 0;
  for (int d = 0; d < ndim; d++) { /* each dimension multiplies what is there, from the back so as not to overwrite */
    for (int64_t i = n - 1; i >= 0; i--)
      for (int64_t k = size[d] - 1; k >= 0; k--) out[i * size[d] + k] = out[i] + k * stride[d];
    n *= size[d];
  }
}

static int64_t product(int ndim, const int64_t *size)
{
  int64_t n = 1;
  for (int d = 0; d < ndim; d++) n *= size[d];
  return n;
}

/* -- Sums: a work tensor in the compute class ----------------------------------- */

/* Where sums for t are made: t itself (counted) if it is dense in its class, else a dense copy in it. */
static amp_tensor *work_begin(amp_tensor *t, int cls)
{
  if (t->dtype == amp__class_dtype[cls] && (t->flags & AMP_T_CONTIGUOUS)) { amp__retain(t); return t; }
  amp_tensor *w = amp__tensor_make(amp__class_dtype[cls], AMP_CPU, 0, t->ndim, t->size);
  if (w && amp__copy_to(w, t) < 0) { amp__free(w); return NULL; }
  return w;
}

static int work_end(amp_tensor *w, amp_tensor *t, int rc)
{
  if (w == NULL) return amp__S->err.code;
  if (w != t && rc == 0) amp__copy_raw(t->ndim, t->size, amp__data(t), t->dtype, t->stride, amp__data(w), w->dtype, w->stride);
  amp__free(w);
  return rc;
}

/* dst[0..n) += alpha * src[0..n), in a class */
static void add_run(int cls, void *dst, const void *src, int64_t n, double alpha)
{
  if (cls == AMP_C_F32) {
    float *d = dst, a = (float)alpha;
    const float *s = src;
    for (int64_t i = 0; i < n; i++) d[i] += a * s[i];
  } else if (cls == AMP_C_F64) {
    double *d = dst;
    const double *s = src;
    for (int64_t i = 0; i < n; i++) d[i] += alpha * s[i];
  } else {
    uint64_t *d = dst, a = (uint64_t)(int64_t)alpha;
    const uint64_t *s = src;
    for (int64_t i = 0; i < n; i++) d[i] += a * s[i];
  }
}

/* -- One dimension by a vector of indices ---------------------------------------- */

typedef struct rows { /* out[o][k][...] = x[o][idx[k]][...], runs of `bytes` */
  char *out;
  const char *x;
  const int64_t *idx;
  int64_t nidx, size;
  size_t bytes;
} rows;

static void copy_rows(int64_t lo, int64_t hi, void *ctx)
{
  const rows *r = ctx;
  for (int64_t i = lo; i < hi; i++) {
    int64_t o = i / r->nidx, k = i % r->nidx;
    memcpy(r->out + (size_t)i * r->bytes, r->x + (size_t)(o * r->size + r->idx[k]) * r->bytes, r->bytes);
  }
}

/* Rows of dense x along dim, by idx (dense, from 0), into C-ordered out */
static void take_rows(amp_tensor *out, const amp_tensor *x, int dim, const amp_tensor *idx)
{
  int inner = x->ndim > dim ? dim + 1 : x->ndim;
  rows r = { amp__data(out), amp__data(x), AMP_DATA(int64_t, idx), idx->numel, x->ndim ? x->size[dim] : 1, 0 };
  r.bytes = (size_t)(product(x->ndim - inner, x->size + inner) * amp__dtype_size[x->dtype]);
  int64_t outer = product(x->ndim ? dim : 0, x->size);
  if (r.bytes == 0 || r.nidx == 0) return;
  amp__parallel(amp__threads(outer * r.nidx * (int64_t)(r.bytes / 8 + 4)), outer * r.nidx, 1, copy_rows, &r);
}

int amp__cpu_index_select(amp_call *c)
{
  int dim = (int)c->a[0].i;
  amp_tensor *idx = indices(c->in[1], c->in[0]->ndim ? c->in[0]->size[dim] : 1, dim);
  amp_tensor *x = idx ? amp__dense(c->in[0], c->in[0]->dtype) : NULL;
  if (x) take_rows(c->out[0], x, dim, idx);
  int rc = x ? 0 : amp__S->err.code;
  amp__free(x);
  amp__free(idx);
  return rc;
}

int amp__cpu_embedding(amp_call *c)
{
  amp_tensor *idx = indices(c->in[0], c->in[1]->size[0], 0);
  amp_tensor *x = idx ? amp__dense(c->in[1], c->in[1]->dtype) : NULL;
  if (x) take_rows(c->out[0], x, 0, idx);
  int rc = x ? 0 : amp__S->err.code;
  amp__free(x);
  amp__free(idx);
  return rc;
}

int amp__cpu_index_add(amp_call *c)
{
  amp_tensor *out = c->out[0], *src = c->in[2];
  int dim = (int)c->a[0].i, rc = 0, cls = amp__dtype_class[out->dtype];
  int64_t n = out->ndim ? out->size[dim] : 1;
  amp_tensor *idx = indices(c->in[1], n, dim), *s = NULL, *w = NULL;
  if (idx == NULL) return amp__S->err.code;
  if (out != c->in[0]) rc = amp__copy_to(out, c->in[0]);
  if (rc < 0 || (s = amp__dense(src, amp__class_dtype[cls])) == NULL || (w = work_begin(out, cls)) == NULL) { rc = amp__S->err.code; goto out; }
  int64_t outer = product(out->ndim ? dim : 0, out->size), inner = out->ndim ? product(out->ndim - dim - 1, out->size + dim + 1) : 1;
  const int64_t *v = AMP_DATA(int64_t, idx);
  int es = amp__class_size[cls];
  for (int64_t o = 0; o < outer; o++)
    for (int64_t k = 0; k < idx->numel; k++)
      add_run(cls, (char *)amp__data(w) + (o * n + v[k]) * inner * es, (const char *)amp__data(s) + (o * idx->numel + k) * inner * es, inner, c->a[1].f);
  rc = work_end(w, out, 0);
out:
  amp__free(s);
  amp__free(idx);
  return rc;
}

/* -- Element by element along a dimension ------------------------------------------ */

/* One element of 1, 2, 4 or 8 bytes */
static inline void put(int es, char *d, const char *s)
{
  switch (es) {
  case 8: memcpy(d, s, 8); break;
  case 4: memcpy(d, s, 4); break;
  case 2: memcpy(d, s, 2); break;
  default: *d = *s;
  }
}

/* Step a C-ordered counter over a shape, keeping two element offsets that know nothing of dimension `skip`. */
static void step(int ndim, const int64_t *size, int64_t *at, int skip, const int64_t *sa, int64_t *a, const int64_t *sb, int64_t *b)
{
  for (int d = ndim - 1; d >= 0; d--) {
    at[d]++;
    *b += sb[d];
    if (d != skip) *a += sa[d];
    if (at[d] < size[d]) return;
    *b -= sb[d] * size[d];
    if (d != skip) *a -= sa[d] * size[d];
    at[d] = 0;
  }
}

int amp__cpu_gather(amp_call *c)
{
  const amp_tensor *x = c->in[0];
  amp_tensor *out = c->out[0];
  int dim = (int)c->a[0].i, es = amp__dtype_size[x->dtype];
  amp_tensor *idx = indices(c->in[1], x->ndim ? x->size[dim] : 1, dim);
  if (idx == NULL) return amp__S->err.code;
  const int64_t *v = AMP_DATA(int64_t, idx);
  int64_t at[AMP_MAX_DIM] = { 0 }, a = 0, b = 0, s = x->ndim ? x->stride[dim] : 0;
  for (int64_t i = 0; i < idx->numel; i++) {
    put(es, (char *)amp__data(out) + b * es, (const char *)amp__data(x) + (a + v[i] * s) * es);
    step(idx->ndim, idx->size, at, dim, x->stride, &a, out->stride, &b);
  }
  amp__free(idx);
  return 0;
}

static int scatter(amp_call *c, bool add)
{
  amp_tensor *out = c->out[0], *src = c->in[2], *s = NULL, *w = NULL;
  int dim = (int)c->a[0].i, rc = 0, cls = amp__dtype_class[out->dtype];
  amp_tensor *idx = indices(c->in[1], out->ndim ? out->size[dim] : 1, dim);
  if (idx == NULL) return amp__S->err.code;
  if (out != c->in[0] && (rc = amp__copy_to(out, c->in[0])) < 0) goto out;
  if (add) {
    if ((s = amp__dense(src, amp__class_dtype[cls])) == NULL || (w = work_begin(out, cls)) == NULL) { rc = amp__S->err.code; goto out; }
  } else {
    s = src; w = out;
    amp__retain(s);
    amp__retain(w);
  }
  const int64_t *v = AMP_DATA(int64_t, idx);
  int64_t at[AMP_MAX_DIM] = { 0 }, a = 0, b = 0, stride = w->ndim ? w->stride[dim] : 0, es = amp__dtype_size[w->dtype];
  for (int64_t i = 0; i < idx->numel; i++) {
    char *d = (char *)amp__data(w) + (a + v[i] * stride) * es;
    const char *p = (const char *)amp__data(s) + b * es;
    if (add) add_run(cls, d, p, 1, 1);
    else put((int)es, d, p);
    step(idx->ndim, idx->size, at, dim, w->stride, &a, s->stride, &b);
  }
  rc = work_end(w, out, 0);
out:
  amp__free(s);
  amp__free(idx);
  return rc;
}

int amp__cpu_scatter(amp_call *c) { return scatter(c, false); }
int amp__cpu_scatter_add(amp_call *c) { return scatter(c, true); }

/* -- Several dimensions by index tensors --------------------------------------------- */

/* The indexed part of t: [before][index positions][after], element offsets of each. */
typedef struct part {
  int64_t nb, np, na;            /* positions of each */
  int nbd, npd, nad;             /* dimensions of each */
  int64_t size[AMP_MAX_DIM];     /* of the whole part */
  int64_t *b, *p, *a;
  amp_tensor *mem;
} part;

static int part_make(part *w, amp_call *c, int first, const amp_tensor *t)
{
  int n = c->nin - first, rc = 0;
  const amp_slot *dims = c->a + 1;
  bool indexed[AMP_MAX_DIM] = { false };
  int64_t bs[AMP_MAX_DIM], bt[AMP_MAX_DIM], as[AMP_MAX_DIM], at[AMP_MAX_DIM], ps[AMP_MAX_DIM];
  w->nbd = w->nad = 0;
  w->mem = NULL;
  for (int i = 0; i < n; i++) indexed[dims[i].i] = true;
  bool adjacent = dims[n - 1].i - dims[0].i == n - 1;
  for (int d = 0; d < t->ndim; d++) {
    if (indexed[d]) continue;
    if (adjacent && d < dims[0].i) { bs[w->nbd] = t->size[d]; bt[w->nbd++] = t->stride[d]; }
    else { as[w->nad] = t->size[d]; at[w->nad++] = t->stride[d]; }
  }
  amp_call only = { .nin = n, .in = c->in + first };
  if ((rc = amp__broadcast(&only, n, &w->npd, ps)) < 0) return rc;
  w->nb = product(w->nbd, bs);
  w->np = product(w->npd, ps);
  w->na = product(w->nad, as);
  int k = 0;
  for (int d = 0; d < w->nbd; d++) w->size[k++] = bs[d];
  for (int d = 0; d < w->npd; d++) w->size[k++] = ps[d];
  for (int d = 0; d < w->nad; d++) w->size[k++] = as[d];
  int64_t total = w->nb + w->np + w->na + 3;
  if ((w->mem = amp__tensor_make(AMP_INT64, AMP_CPU, 0, 1, &total)) == NULL) return amp__S->err.code;
  w->b = AMP_DATA(int64_t, w->mem);
  w->p = w->b + w->nb + 1;
  w->a = w->p + w->np + 1;
  if (w->nb) offsets(w->nbd, bs, bt, w->b);
  if (w->na) offsets(w->nad, as, at, w->a);
  memset(w->p, 0, sizeof *w->p * (size_t)w->np);
  for (int i = 0; i < n && rc == 0; i++) {
    int d = (int)dims[i].i;
    amp_tensor *idx = indices(c->in[first + i], t->size[d], d);
    if (idx == NULL) { rc = amp__S->err.code; break; }
    const int64_t *v = AMP_DATA(int64_t, idx);
    amp_operand o;
    amp__operand(&o, idx, AMP_C_I64, w->npd, ps);
    int64_t count[AMP_MAX_DIM] = { 0 }, x = 0, unused = 0;
    for (int64_t q = 0; q < w->np; q++) {
      w->p[q] += v[x] * t->stride[d];
      step(w->npd, ps, count, -1, o.stride, &x, o.stride, &unused);
    }
    amp__free(idx);
  }
  if (rc < 0) { amp__free(w->mem); w->mem = NULL; }
  return rc;
}

int amp__cpu_index(amp_call *c)
{
  part w;
  const amp_tensor *t = c->in[0];
  int rc = part_make(&w, c, 1, t), es = amp__dtype_size[t->dtype];
  if (rc < 0) return rc;
  char *out = amp__data(c->out[0]);
  const char *x = amp__data(t);
  bool run = w.na > 0 && w.a[w.na - 1] == w.na - 1;
  for (int64_t i = 0; i < w.nb; i++)
    for (int64_t p = 0; p < w.np; p++) {
      const char *from = x + (w.b[i] + w.p[p]) * es;
      if (run) memcpy(out, from, (size_t)(w.na * es));
      else for (int64_t k = 0; k < w.na; k++) put(es, out + k * es, from + w.a[k] * es);
      out += w.na * es;
    }
  amp__free(w.mem);
  return 0;
}

int amp__cpu_index_put(amp_call *c)
{
  part w;
  amp_tensor *out = c->out[0], *v = c->in[1], *s = NULL, *t = NULL;
  int cls = amp__dtype_class[out->dtype], rc = 0;
  bool add = c->a[1 + AMP_MAX_DIM].i != 0;
  w.mem = NULL;
  if (out != c->in[0] && (rc = amp__copy_to(out, c->in[0])) < 0) return rc;
  if (add) {
    if ((s = amp__dense(v, amp__class_dtype[cls])) == NULL || (t = work_begin(out, cls)) == NULL) { rc = amp__S->err.code; goto out; }
  } else {
    s = v; t = out;
    amp__retain(s);
    amp__retain(t);
  }
  if ((rc = part_make(&w, c, 2, t)) < 0) { amp__free(t); goto out; }
  int es = amp__dtype_size[t->dtype];
  amp_operand o;
  amp__operand(&o, s, cls, w.nbd + w.npd + w.nad, w.size);
  int64_t at[AMP_MAX_DIM] = { 0 }, x = 0, unused = 0;
  for (int64_t i = 0; i < w.nb; i++)
    for (int64_t p = 0; p < w.np; p++)
      for (int64_t k = 0; k < w.na; k++) {
        char *d = (char *)amp__data(t) + (w.b[i] + w.p[p] + w.a[k]) * es;
        if (add) add_run(cls, d, o.p + x * es, 1, 1);
        else put(es, d, o.p + x * es);
        step(w.nbd + w.npd + w.nad, w.size, at, -1, o.stride, &x, o.stride, &unused);
      }
  rc = work_end(t, out, 0);
out:
  amp__free(w.mem);
  amp__free(s);
  return rc;
}

/* -- Places ----------------------------------------------------------------------------- */

int amp__cpu_nonzero(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t *out = AMP_DATA(int64_t, c->out[0]), at[AMP_MAX_DIM] = { 0 }, a = 0, unused = 0;
  int es = amp__dtype_size[t->dtype];
  for (int64_t i = 0; i < t->numel; i++) {
    if (amp__value_get((const char *)amp__data(t) + a * es, t->dtype) != 0)
      for (int d = 0; d < t->ndim; d++) *out++ = at[d] + 1;
    step(t->ndim, t->size, at, -1, t->stride, &a, t->stride, &unused);
  }
  return 0;
}
