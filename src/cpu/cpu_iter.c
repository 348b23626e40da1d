/*
** cpu_iter.c: the strided iteration engine (see cpu_iter.h).
**
** Three ways through memory, fastest first:
**   linear  every operand is dense of its class (or one value): the loop gets
**           pointers and all n elements;
**   rows    inner runs of 64 elements and more: chunks of a row, converted;
**   packed  short inner runs: chunks gathered across rows, so that the loop
**           still sees 512 elements at a time.
** A range [lo, hi) of the flattened index goes to each thread, so results do not
** depend on their number.
*/
#include "cpu_iter.h"
#include "cpu_math.h"

void amp__parallel(int threads, int64_t n, int64_t grain, amp_part_fn body, void *ctx)
{
  int64_t blocks = (n + grain - 1) / grain;
  if (threads > blocks) threads = (int)blocks;
  if (threads <= 1) { if (n > 0) body(0, n, ctx); return; }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int i = 0; i < threads; i++) {
    int64_t lo = blocks * i / threads * grain, hi = blocks * (i + 1) / threads * grain;
    if (hi > n) hi = n;
    if (lo < hi) body(lo, hi, ctx);
  }
}

int amp__cpu_row(int op, int nin, amp_tensor *const *in, int nout, amp_tensor *const *out, const amp_slot *a)
{
  amp_call c;
  memset(&c, 0, sizeof c);
  c.op = &amp__ops[op];
  c.id = op;
  c.in = c.in_;
  c.a = c.a_;
  memcpy(c.a_, a ? a : c.op->defaults, sizeof(amp_slot) * (size_t)c.op->info.nslot);
  for (int i = 0; i < nin; i++) c.in_[i] = in[i];
  for (int i = 0; i < nout; i++) c.out[i] = out[i];
  c.nin = nin;
  c.nout = nout;
  return amp__kernel(AMP_CPU, op)(&c);
}

int amp__class_of(int out, amp_tensor *const *in, int n)
{
  int cls = out >= 0 ? amp__dtype_class[out] : AMP_C_I64, ndim = 0;
  for (int i = 0; i < n; i++)
    if (in[i] && !(in[i]->flags & AMP_T_NUMBER) && in[i]->ndim > ndim) ndim = in[i]->ndim;
  /* tensors first, then scalars (which do not widen floats), then plain numbers (nor integers, if integral) */
  for (int pass = 0; pass < 3; pass++)
    for (int i = 0; i < n; i++) {
      const amp_tensor *t = in[i];
      if (t == NULL || pass != (t->flags & AMP_T_NUMBER ? 2 : t->ndim == 0 && ndim > 0)) continue;
      int k = amp__dtype_class[t->dtype];
      if (pass == 2 && cls == AMP_C_I64) {
        double v = *AMP_DATA(double, t);
        if (!(v >= -9.2e18 && v <= 9.2e18 && v == (double)(int64_t)v)) cls = AMP_C_F64;
      } else if (k == AMP_C_F64 && (pass == 0 || cls == AMP_C_I64)) cls = k;
      else if (k == AMP_C_F32 && cls == AMP_C_I64) cls = k;
    }
  return cls;
}

/* -- Shape ------------------------------------------------------------------------- */

typedef struct iter {
  int ndim, nop, nout;                    /* dimension 0 is the innermost */
  int64_t size[AMP_MAX_DIM], total;
  amp_operand *op;
  uint8_t es[AMP_MAX_OP], cs[AMP_MAX_OP]; /* bytes of an element in memory and in its class */
  bool direct[AMP_MAX_OP];                /* the dtype is the class */
  const amp_loop *loop;
} iter;

/* Innermost first; size 1 dropped; ordered by operand 0's strides; merged. */
static void prepare(iter *it, const amp_loop *l, int ndim, const int64_t *size, int nop, amp_operand *op)
{
  int n = 0;
  int64_t stride[AMP_MAX_OP][AMP_MAX_DIM];
  it->loop = l; it->nop = nop; it->nout = l->nout; it->op = op;
  it->total = 1;
  for (int d = ndim - 1; d >= 0; d--) {
    it->total *= size[d];
    if (size[d] == 1) continue;
    int64_t s0 = op[0].stride[d] < 0 ? -op[0].stride[d] : op[0].stride[d];
    int at = n;
    /* insertion keeps C order among equals */
    while (at > 0 && s0 != 0) {
      int64_t prev = stride[0][at - 1] < 0 ? -stride[0][at - 1] : stride[0][at - 1];
      if (prev <= s0) break;
      at--;
    }
    for (int k = n; k > at; k--) {
      it->size[k] = it->size[k - 1];
      for (int i = 0; i < nop; i++) stride[i][k] = stride[i][k - 1];
    }
    it->size[at] = size[d];
    for (int i = 0; i < nop; i++) stride[i][at] = op[i].stride[d];
    n++;
  }
  int m = 0;
  for (int d = 1; d < n; d++) {
    bool merge = true;
    for (int i = 0; i < nop && merge; i++) merge = stride[i][d] == stride[i][m] * it->size[m];
    if (merge) it->size[m] *= it->size[d];
    else {
      m++;
      it->size[m] = it->size[d];
      for (int i = 0; i < nop; i++) stride[i][m] = stride[i][d];
    }
  }
  if (n == 0) {
    it->size[0] = 1;
    for (int i = 0; i < nop; i++) stride[i][0] = 1;
  }
  it->ndim = m + 1;
  for (int i = 0; i < nop; i++) {
    for (int d = 0; d <= m; d++) op[i].stride[d] = stride[i][d];
    it->es[i] = amp__dtype_size[op[i].dtype];
    it->cs[i] = amp__class_size[op[i].cls];
    it->direct[i] = op[i].dtype == amp__class_dtype[op[i].cls]
                    || (op[i].cls == AMP_C_U8 && op[i].dtype == AMP_UINT8);
  }
}

/* -- Rows -------------------------------------------------------------------------- */

typedef struct position { int64_t index[AMP_MAX_DIM]; char *p[AMP_MAX_OP]; } position;

static void seek(const iter *it, position *x, int64_t at)
{
  for (int i = 0; i < it->nop; i++) x->p[i] = it->op[i].p;
  for (int d = 0; d < it->ndim; d++) {
    int64_t k = it->ndim == 1 ? at : at % it->size[d];
    if (it->ndim > 1) at /= it->size[d];
    x->index[d] = k;
    for (int i = 0; i < it->nop; i++) x->p[i] += k * it->op[i].stride[d] * it->es[i];
  }
}

/* The next row; the index along dimension 0 is 0 again, the pointers stand `done` elements in. */
static void next_row(const iter *it, position *x, int64_t done)
{
  for (int i = 0; i < it->nop; i++) x->p[i] -= done * it->op[i].stride[0] * it->es[i];
  x->index[0] = 0;
  for (int d = 1; d < it->ndim; d++) {
    if (++x->index[d] < it->size[d]) {
      for (int i = 0; i < it->nop; i++) x->p[i] += it->op[i].stride[d] * it->es[i];
      return;
    }
    x->index[d] = 0;
    for (int i = 0; i < it->nop; i++) x->p[i] -= (it->size[d] - 1) * it->op[i].stride[d] * it->es[i];
  }
}

static void copy_run(const iter *it, char *const *p, int64_t n)
{
  const amp_operand *o = it->op;
  int64_t ds = o[0].stride[0], ss = o[1].stride[0];
  if (o[0].dtype == o[1].dtype) amp__move(it->es[0], p[0], ds, p[1], ss, n);
  else if (ds == 1 && it->direct[0]) amp__load(o[0].cls, p[0], o[1].dtype, p[1], ss, n);
  else if (ss == 1 && it->direct[1]) amp__store(o[0].dtype, p[0], ds, o[1].cls, p[1], n);
  else {
    double buf[AMP_CHUNK];
    for (int64_t i = 0; i < n; i += AMP_CHUNK) {
      int64_t m = n - i < AMP_CHUNK ? n - i : AMP_CHUNK;
      amp__load(o[1].cls, buf, o[1].dtype, p[1] + i * ss * it->es[1], ss, m);
      amp__store(o[0].dtype, p[0] + i * ds * it->es[0], ds, o[0].cls, buf, m);
    }
  }
}

typedef struct { char b[AMP_CHUNK * 8] __attribute__((aligned(64))); } chunk_buffer;

static void repeat(void *dst, int size, const void *v, int64_t n)
{
  amp__move(size, dst, 1, v, 0, n);
}

/* n elements of one row, from p on */
static void run_row(const iter *it, char *const *p, int64_t n, chunk_buffer *buf)
{
  void *q[AMP_MAX_OP];
  unsigned scalar = 0, buffered = 0;
  for (int i = 0; i < it->nop; i++) {
    int64_t s = it->op[i].stride[0];
    q[i] = p[i];
    if (i >= it->nout && s == 0) {
      if (!it->direct[i]) { amp__load(it->op[i].cls, buf[i].b, it->op[i].dtype, p[i], 1, 1); q[i] = buf[i].b; }
      if ((it->loop->scalar >> i & 1) && n > 1) scalar |= 1u << i;
      else if (n > 1) {
        char v[8];
        memcpy(v, q[i], it->cs[i]);
        repeat(buf[i].b, it->cs[i], v, n < AMP_CHUNK ? n : AMP_CHUNK);
        q[i] = buf[i].b;
        buffered |= 1u << i;
      }
    } else if (!it->direct[i] || s != 1) buffered |= 1u << i;
  }
  if (buffered == 0) { it->loop->f(n, q, scalar, it->loop->arg); return; }
  for (int64_t at = 0; at < n; at += AMP_CHUNK) {
    int64_t m = n - at < AMP_CHUNK ? n - at : AMP_CHUNK;
    for (int i = 0; i < it->nop; i++) {
      int64_t s = it->op[i].stride[0];
      if (scalar >> i & 1) continue;
      if (!(buffered >> i & 1)) { q[i] = p[i] + at * it->es[i] * s; continue; }
      q[i] = buf[i].b;
      if (i >= it->nout && s != 0) amp__load(it->op[i].cls, buf[i].b, it->op[i].dtype, p[i] + at * s * it->es[i], s, m);
    }
    it->loop->f(m, q, scalar, it->loop->arg);
    for (int i = 0; i < it->nout; i++)
      if (buffered >> i & 1)
        amp__store(it->op[i].dtype, p[i] + at * it->op[i].stride[0] * it->es[i], it->op[i].stride[0], it->op[i].cls, buf[i].b, m);
  }
}

/* -- Packed ------------------------------------------------------------------------ */

/* Is operand i dense in the flattened order? */
static bool is_linear(const iter *it, int i)
{
  int64_t s = 1;
  for (int d = 0; d < it->ndim; d++) {
    if (it->op[i].stride[d] != s) return false;
    s *= it->size[d];
  }
  return true;
}

static bool is_single(const iter *it, int i)
{
  for (int d = 0; d < it->ndim; d++) if (it->op[i].stride[d] != 0) return false;
  return true;
}

/* Whole short rows, gathered: of one value each, dense ones, others */
#define ROWS(T, body) for (int64_t r = 0; r < rows; r++, d += n) { const T *a = m + r * step; body }
#define GATHER(T, name) \
static AMP_CLONES_WIDE void name(T *d, const T *m, int64_t n, int64_t s, int64_t rows, int64_t step) \
{ \
  if (s == 0 && n == 2) ROWS(T, const T v = a[0]; d[0] = v; d[1] = v;) \
  else if (s == 0 && n == 3) ROWS(T, const T v = a[0]; d[0] = v; d[1] = v; d[2] = v;) \
  else if (s == 0 && n == 4) ROWS(T, const T v = a[0]; for (int j = 0; j < 4; j++) d[j] = v;) \
  else if (s == 0) ROWS(T, const T v = a[0]; for (int64_t j = 0; j < n; j++) d[j] = v;) \
  else if (s == 1) ROWS(T, for (int64_t j = 0; j < n; j++) d[j] = a[j];) \
  else ROWS(T, for (int64_t j = 0; j < n; j++) d[j] = a[j * s];) \
}
GATHER(uint8_t, gather_uint8_t)
GATHER(uint16_t, gather_uint16_t)
GATHER(uint32_t, gather_uint32_t)
GATHER(uint64_t, gather_uint64_t)

/* n elements from flattened index `at` on between memory (strided) and a dense array, unchanged */
#define PACK(T) { T *m = (T *)p; T *d = dense; \
  while (n > 0) { \
    int64_t k = it->size[0] - x[0] < n ? it->size[0] - x[0] : n, rows = 1; \
    if (gather && x[0] == 0 && n >= 2 * k) { \
      rows = n / k < it->size[1] - x[1] ? n / k : it->size[1] - x[1]; \
      gather_##T(d, m, k, s[0], rows, s[1]); \
      m += (rows - 1) * s[1]; x[1] += rows - 1; \
    } else if (gather) for (int64_t j = 0; j < k; j++) d[j] = m[j * s[0]]; \
    else for (int64_t j = 0; j < k; j++) m[j * s[0]] = d[j]; \
    d += k * rows; n -= k * rows; \
    m -= x[0] * s[0]; x[0] = 0; \
    for (int e = 1; e < it->ndim; e++) { \
      if (++x[e] < it->size[e]) { m += s[e]; break; } \
      x[e] = 0; m -= (it->size[e] - 1) * s[e]; \
    } \
  } \
  return; }

static void pack(const iter *it, int i, int64_t at, int64_t n, void *dense, bool gather)
{
  int64_t x[AMP_MAX_DIM];
  const int64_t *s = it->op[i].stride;
  char *p = it->op[i].p;
  for (int d = 0; d < it->ndim; d++) {
    x[d] = at % it->size[d];
    at /= it->size[d];
    p += x[d] * s[d] * it->es[i];
  }
  switch (it->es[i]) {
  case 1: PACK(uint8_t)
  case 2: PACK(uint16_t)
  case 4: PACK(uint32_t)
  default: PACK(uint64_t)
  }
}

static void run_packed(const iter *it, int64_t lo, int64_t hi)
{
  chunk_buffer buf[AMP_MAX_OP], raw;
  void *q[AMP_MAX_OP];
  bool linear[AMP_MAX_OP];
  unsigned scalar = 0;
  for (int i = 0; i < it->nop; i++) {
    linear[i] = is_linear(it, i);
    if (i >= it->nout && is_single(it, i)) {
      amp__load(it->op[i].cls, buf[i].b, it->op[i].dtype, it->op[i].p, 1, 1);
      q[i] = buf[i].b;
      if (it->loop->scalar >> i & 1) scalar |= 1u << i;
      else {
        char v[8];
        memcpy(v, buf[i].b, 8);
        repeat(buf[i].b, it->cs[i], v, AMP_CHUNK);
      }
      linear[i] = false;
    }
  }
  for (int64_t at = lo; at < hi; at += AMP_CHUNK) {
    int64_t m = hi - at < AMP_CHUNK ? hi - at : AMP_CHUNK;
    for (int i = 0; i < it->nop; i++) {
      if (i >= it->nout && is_single(it, i)) continue;
      char *p = it->op[i].p + at * it->es[i];
      if (linear[i] && it->direct[i]) { q[i] = p; continue; }
      q[i] = buf[i].b;
      if (i < it->nout) continue;
      if (linear[i]) amp__load(it->op[i].cls, buf[i].b, it->op[i].dtype, p, 1, m);
      else if (it->direct[i]) pack(it, i, at, m, buf[i].b, true);
      else {
        pack(it, i, at, m, raw.b, true);
        amp__load(it->op[i].cls, buf[i].b, it->op[i].dtype, raw.b, 1, m);
      }
    }
    if (it->loop->f) it->loop->f(m, q, scalar, it->loop->arg);
    else if (q[0] != q[1]) {
      if (it->cs[0] == it->cs[1]) memcpy(q[0], q[1], (size_t)(m * it->cs[0]));
    }
    for (int i = 0; i < it->nout; i++) {
      if (linear[i] && it->direct[i]) continue;
      if (linear[i]) amp__store(it->op[i].dtype, it->op[i].p + at * it->es[i], 1, it->op[i].cls, buf[i].b, m);
      else if (it->direct[i]) pack(it, i, at, m, buf[i].b, false);
      else {
        amp__store(it->op[i].dtype, raw.b, 1, it->op[i].cls, buf[i].b, m);
        pack(it, i, at, m, raw.b, false);
      }
    }
  }
}

/* -- Driving ------------------------------------------------------------------------- */

static void run_range(int64_t lo, int64_t hi, void *ctx)
{
  const iter *it = ctx;
  if (it->ndim > 1 && it->size[0] < 64) { run_packed(it, lo, hi); return; }
  chunk_buffer buf[AMP_MAX_OP];
  position x;
  seek(it, &x, lo);
  while (lo < hi) {
    int64_t first = x.index[0], n = it->size[0] - first < hi - lo ? it->size[0] - first : hi - lo;
    if (it->loop->f) run_row(it, x.p, n, buf);
    else copy_run(it, x.p, n);
    lo += n;
    if (lo < hi) next_row(it, &x, first);
  }
}

void amp__iterate(const amp_loop *l, int ndim, const int64_t *size, int nop, amp_operand *op)
{
  iter it;
  prepare(&it, l, ndim, size, nop, op);
  if (it.total == 0) return;
  amp__parallel(amp__threads(it.total * l->cost), it.total, AMP_CHUNK, run_range, &it);
}

void amp__operand(amp_operand *o, const amp_tensor *t, int cls, int ndim, const int64_t *size)
{
  int lead = ndim - t->ndim;
  o->p = amp__data(t);
  o->dtype = t->dtype;
  o->cls = (uint8_t)cls;
  for (int d = 0; d < ndim; d++)
    o->stride[d] = d < lead || (t->size[d - lead] == 1 && size[d] != 1) ? 0 : t->stride[d - lead];
}

typedef struct linear { const amp_loop *l; int nop; void *p[AMP_MAX_OP]; uint8_t size[AMP_MAX_OP]; unsigned scalar; } linear;

static void run_linear(int64_t lo, int64_t hi, void *ctx)
{
  const linear *x = ctx;
  void *q[AMP_MAX_OP];
  for (int i = 0; i < x->nop; i++) q[i] = x->scalar >> i & 1 ? x->p[i] : (char *)x->p[i] + lo * x->size[i];
  x->l->f(hi - lo, q, x->scalar, x->l->arg);
}

/* Few enough for one chunk, dense, but of another dtype than the loop's */
static void run_small(const linear *x, int64_t n, amp_tensor *const *t, const uint8_t *cls, unsigned convert)
{
  chunk_buffer buf[AMP_MAX_OP];
  void *q[AMP_MAX_OP];
  for (int i = 0; i < x->nop; i++) {
    q[i] = convert >> i & 1 ? buf[i].b : x->p[i];
    if ((convert >> i & 1) && i >= x->l->nout) amp__load(cls[i], buf[i].b, t[i]->dtype, x->p[i], 1, n);
  }
  x->l->f(n, q, x->scalar, x->l->arg);
  for (int i = 0; i < x->l->nout; i++)
    if (convert >> i & 1) amp__store(t[i]->dtype, x->p[i], 1, cls[i], buf[i].b, n);
}

void amp__elementwise(const amp_loop *l, int nop, amp_tensor *const *t, const uint8_t *cls)
{
  const amp_tensor *o = t[0];
  if (amp_likely(l->f != NULL && (o->flags & AMP_T_DENSE))) {
    /* every operand lies as the first does, or is one value */
    linear x;
    uint64_t single[AMP_MAX_OP];
    int64_t n = o->numel;
    unsigned convert = 0;
    x.l = l; x.nop = nop; x.scalar = 0;
    int i = 0;
    for (; i < nop; i++) {
      const amp_tensor *a = t[i];
      if (a->numel == n) {
        if (amp_unlikely(a->dtype != amp__class_dtype[cls[i]])) {
          if (n > AMP_CHUNK) break;
          convert |= 1u << i;
        }
        if (amp_unlikely(!((a->flags & o->flags & AMP_T_CONTIGUOUS)
                         || (amp__same_size(a, o) && memcmp(a->stride, o->stride, sizeof(int64_t) * o->ndim) == 0)))) break;
        x.p[i] = amp__data(a);
        x.size[i] = amp__class_size[cls[i]];
      } else if (a->numel == 1 && (l->scalar >> i & 1)) {
        amp__load(cls[i], &single[i], a->dtype, amp__data(a), 1, 1);
        x.p[i] = &single[i];
        x.scalar |= 1u << i;
      } else break;
    }
    if (i == nop) {
      if (amp_unlikely(convert)) { if (n > 0) run_small(&x, n, t, cls, convert); }
      else if (amp_likely(n <= 2048)) { if (n > 0) l->f(n, x.p, x.scalar, l->arg); }
      else amp__parallel(amp__threads(n * l->cost), n, AMP_CHUNK, run_linear, &x);
      return;
    }
  }
  amp_operand op[AMP_MAX_OP];
  for (int i = 0; i < nop; i++) amp__operand(&op[i], t[i], cls[i], o->ndim, o->size);
  amp__iterate(l, o->ndim, o->size, nop, op);
}
