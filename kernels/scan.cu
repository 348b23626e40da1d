/*
** scan.cu: what depends on all elements before, along a dimension: cumsum,
** cumprod, cummax, cummin, logcumsumexp, and cumprod's gradient.
**
** A functor makes states of elements and joins two of neighbouring stretches.
** A block takes a line (or a part of one: totals of parts first, then their
** running join, then all again from there); where lines lie beside each other in
** memory and are short, a thread takes one each. The order of joins is fixed.
*/
#include "kernel.cuh"

namespace {

typedef struct lines {
  const char *in;
  char *out, *index, *totals;
  int32_t dtype, odtype, nd;
  int64_t n, lines, step, ostep, xstep, parts, piece;
  int64_t size[AMP_MAX_DIM], is[AMP_MAX_DIM], os[AMP_MAX_DIM], xs[AMP_MAX_DIM]; /* the other dimensions */
} lines;

__device__ __forceinline__ void line_at(const lines &p, int64_t l, int64_t *a, int64_t *b, int64_t *x)
{
  *a = *b = *x = 0;
  for (int d = p.nd - 1; d >= 0; d--) {
    int64_t q = l / p.size[d], r = l - q * p.size[d];
    *a += r * p.is[d]; *b += r * p.os[d]; *x += r * p.xs[d];
    l = q;
  }
}

/* -- States ----------------------------------------------------------------------- */

__device__ __forceinline__ double plus(double a, double b) { return a + b; }
__device__ __forceinline__ int64_t plus(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
__device__ __forceinline__ double times(double a, double b) { return a * b; }
__device__ __forceinline__ int64_t times(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

template <class T_> struct running {
  typedef T_ T;
  typedef T_ S;
  int product;
  __device__ __forceinline__ S none() const { return (S)product; }
  __device__ __forceinline__ S of(T v, int64_t) const { return v; }
  __device__ __forceinline__ S join(S a, S b) const { return product ? times(a, b) : plus(a, b); }
  __device__ __forceinline__ void store(const lines &p, int64_t o, int64_t, S s) const { amp_store<S>(p.out, p.odtype, o, s); }
};

/* The last of equal extremes names the place; a NaN, once met, stays the extreme. */
template <class T_> struct extreme {
  typedef T_ T;
  typedef struct { T v; int64_t at; } S;
  int largest;
  __device__ __forceinline__ S none() const { S s = { (T)0, 0 }; return s; }
  __device__ __forceinline__ S of(T v, int64_t i) const { S s = { v, i + 1 }; return s; }
  __device__ __forceinline__ S join(S a, S b) const
  {
    if (a.at == 0) return b;
    if (b.at == 0) return a;
    return (largest ? b.v >= a.v : b.v <= a.v) || b.v != b.v ? b : a;
  }
  __device__ __forceinline__ void store(const lines &p, int64_t o, int64_t x, S s) const
  {
    amp_store<T>(p.out, p.odtype, o, s.v);
    ((int64_t *)p.index)[x] = s.at;
  }
};

/* s: the sum of exp(x - most), or of exp(x) where most is infinite */
struct log_sum {
  typedef double T;
  typedef struct { double most, s; } S;
  __device__ __forceinline__ double base(double most) const { return isinf(most) ? 0 : most; }
  __device__ __forceinline__ S none() const { S s = { -INFINITY, 0 }; return s; }
  __device__ __forceinline__ S of(T v, int64_t) const
  {
    S s = { v != v ? (double)-INFINITY : v, v != v ? v : v == -INFINITY ? 0 : v == (double)INFINITY ? v : 1 };
    return s;
  }
  __device__ __forceinline__ S join(S a, S b) const
  {
    double m = a.most > b.most ? a.most : b.most, c = base(m);
    S r = { m, (a.s == 0 ? 0 : a.s * exp(base(a.most) - c)) + (b.s == 0 ? 0 : b.s * exp(base(b.most) - c)) };
    return r;
  }
  __device__ __forceinline__ void store(const lines &p, int64_t o, int64_t, S s) const { amp_store<double>(p.out, p.odtype, o, log(s.s) + base(s.most)); }
};

template <class S> __device__ __forceinline__ S shift_up(S a, int d)
{
  unsigned w[sizeof(S) / 4];
  memcpy(w, &a, sizeof a);
#pragma unroll
  for (unsigned k = 0; k < sizeof(S) / 4; k++) w[k] = __shfl_up_sync(0xffffffffu, w[k], d);
  memcpy(&a, w, sizeof a);
  return a;
}

/* -- Kernels ------------------------------------------------------------------------- */

enum { EACH = 4, BLOCK = 256 };

/* A block a part of a line. totals only, or results that go on from totals */
template <class F> __global__ void __launch_bounds__(BLOCK) scan_lines(const lines p, const F f, int write)
{
  typedef typename F::S S;
  __shared__ S warp_total[BLOCK / 32];
  const int lane = threadIdx.x & 31, w = threadIdx.x >> 5;
  for (int64_t u = blockIdx.x; u < p.lines * p.parts; u += gridDim.x) {
    int64_t line = u / p.parts, lo = (u - line * p.parts) * p.piece, hi = lo + p.piece < p.n ? lo + p.piece : p.n, a, b, x;
    line_at(p, line, &a, &b, &x);
    S carry = write && p.parts > 1 ? ((const S *)p.totals)[u] : f.none();
    for (int64_t base = lo; base < hi; base += BLOCK * EACH) {
      S s[EACH];
      int64_t first = base + threadIdx.x * EACH;
#pragma unroll
      for (int k = 0; k < EACH; k++) {
        s[k] = first + k < hi ? f.of(amp_load<typename F::T>(p.in, p.dtype, a + (first + k) * p.step), first + k) : f.none();
        if (k) s[k] = f.join(s[k - 1], s[k]);
      }
      S mine = s[EACH - 1];
      for (int d = 1; d < 32; d <<= 1) {
        S up = shift_up(mine, d);
        if (lane >= d) mine = f.join(up, mine);
      }
      if (lane == 31) warp_total[w] = mine;
      S before = shift_up(mine, 1);
      if (lane == 0) before = f.none();
      __syncthreads();
      S all = carry;
#pragma unroll 1
      for (int k = 0; k < BLOCK / 32; k++) {
        if (k == w) before = f.join(all, before);
        all = f.join(all, warp_total[k]);
      }
      carry = all;
      if (write) {
#pragma unroll
        for (int k = 0; k < EACH; k++)
          if (first + k < hi) f.store(p, b + (first + k) * p.ostep, x + (first + k) * p.xstep, f.join(before, s[k]));
      }
      __syncthreads();
    }
    if (!write && threadIdx.x == 0) ((S *)p.totals)[u] = carry;
  }
}

/* Totals of a line's parts become what comes before each */
template <class F> __global__ void scan_totals(const lines p, const F f)
{
  typedef typename F::S S;
  AMP_FOR(line, p.lines) {
    S *t = (S *)p.totals + line * p.parts, all = f.none();
    for (int64_t k = 0; k < p.parts; k++) {
      S next = t[k];
      t[k] = all;
      all = f.join(all, next);
    }
  }
}

template <class F> __global__ void __launch_bounds__(BLOCK) scan_columns(const lines p, const F f)
{
  AMP_FOR(line, p.lines) {
    int64_t a, b, x;
    line_at(p, line, &a, &b, &x);
    typename F::S s = f.none();
    for (int64_t i = 0; i < p.n; i++) {
      s = f.join(s, f.of(amp_load<typename F::T>(p.in, p.dtype, a + i * p.step), i));
      f.store(p, b + i * p.ostep, x + i * p.xstep, s);
    }
  }
}

/* Forward the product of all before, then backward times s = g + (next x) s, exact whatever is zero */
template <class T> __global__ void product_gradient(const lines p, const T *g, const T *x, T *o)
{
  AMP_FOR(line, p.lines) {
    int64_t a, b, unused;
    line_at(p, line, &a, &b, &unused);
    T before = 1, sum = 0;
    for (int64_t i = 0; i < p.n; i++) { o[b + i * p.ostep] = before; before *= x[a + i * p.step]; }
    for (int64_t i = p.n - 1; i >= 0; i--) {
      sum = g[a + i * p.step] + (i + 1 < p.n ? x[a + (i + 1) * p.step] * sum : 0);
      o[b + i * p.ostep] *= sum;
    }
  }
}

/* -- Calls ------------------------------------------------------------------------------ */

static void lines_of(lines *p, const amp_tensor *t, const amp_tensor *o, const amp_tensor *index, int dim)
{
  memset((void *)p, 0, sizeof *p);
  p->in = (const char *)amp__data(t);
  p->out = (char *)amp__data(o);
  p->index = index ? (char *)amp__data(index) : NULL;
  p->dtype = t->dtype;
  p->odtype = o->dtype;
  p->n = t->ndim ? t->size[dim] : 1;
  p->step = t->ndim ? t->stride[dim] : 1;
  p->ostep = t->ndim ? o->stride[dim] : 1;
  p->xstep = index && t->ndim ? index->stride[dim] : 1;
  p->lines = p->parts = 1;
  p->piece = p->n;
  for (int d = 0; d < t->ndim; d++) {
    if (d == dim) continue;
    p->lines *= t->size[d];
    p->size[p->nd] = t->size[d];
    p->is[p->nd] = t->stride[d];
    p->os[p->nd] = o->stride[d];
    p->xs[p->nd++] = index ? index->stride[d] : 0;
  }
}

template <class F> static int run(lines *p, const F &f)
{
  int64_t sms = amp__cuda_here()->sms, want = sms * 4;
  if (p->n * p->lines == 0) return 0;
  if (p->n <= 8 || (p->step != 1 && p->lines >= 32 && (p->n <= 4096 || p->lines >= sms * BLOCK))) {
    AMP_LAUNCH((scan_columns<F>), amp_grid(p->lines, BLOCK), BLOCK, 0, *p, f);
    return 0;
  }
  amp_tensor *totals = NULL;
  if (p->lines < sms && p->n >= 16384) {
    int64_t parts = (want + p->lines - 1) / p->lines, most = p->n / 8192;
    if (parts > most) parts = most;
    p->piece = ((p->n + parts - 1) / parts + BLOCK * EACH - 1) / (BLOCK * EACH) * (BLOCK * EACH);
    p->parts = (p->n + p->piece - 1) / p->piece;
  }
  if (p->parts > 1) {
    if ((totals = amp__cuda_scratch((size_t)(p->lines * p->parts) * sizeof(typename F::S))) == NULL) return AMP_E_MEMORY;
    p->totals = (char *)amp__data(totals);
    AMP_LAUNCH((scan_lines<F>), amp_grid(p->lines * p->parts, 1), BLOCK, 0, *p, f, 0);
    AMP_LAUNCH((scan_totals<F>), amp_grid(p->lines, 32), 32, 0, *p, f);
  }
  AMP_LAUNCH((scan_lines<F>), amp_grid(p->lines * p->parts, 1), BLOCK, 0, *p, f, 1);
  amp__free(totals);
  return 0;
}

/* Sums and products in double (int64 for integers), rounded as they are stored */
static int sums(amp_call *c, int product)
{
  amp_tensor *t = c->in[0], *o = c->out[0];
  bool whole = !amp__is_float(o->dtype);
  lines p;
  if (whole && amp__is_float(t->dtype)) { if ((t = amp__cuda_dense(t, AMP_INT64)) == NULL) return AMP_E_MEMORY; }
  else amp__retain(t);
  lines_of(&p, t, o, NULL, (int)c->a[0].i);
  int rc;
  if (whole) { running<int64_t> f = { product }; rc = run(&p, f); }
  else { running<double> f = { product }; rc = run(&p, f); }
  amp__free(t);
  return rc;
}

static int extremes(amp_call *c, int largest)
{
  amp_tensor *t = c->in[0];
  lines p;
  lines_of(&p, t, c->out[0], c->out[1], (int)c->a[0].i);
  if (t->dtype == AMP_FLOAT64) { extreme<double> f = { largest }; return run(&p, f); }
  if (amp__is_float(t->dtype)) { extreme<float> f = { largest }; return run(&p, f); }
  extreme<int64_t> f = { largest };
  return run(&p, f);
}

} // namespace

extern "C" {

int amp__cuda_cumsum(amp_call *c) { return sums(c, 0); }
int amp__cuda_cumprod(amp_call *c) { return sums(c, 1); }
int amp__cuda_cummax(amp_call *c) { return extremes(c, 1); }
int amp__cuda_cummin(amp_call *c) { return extremes(c, 0); }

int amp__cuda_logcumsumexp(amp_call *c)
{
  lines p;
  log_sum f;
  lines_of(&p, c->in[0], c->out[0], NULL, (int)c->a[0].i);
  return run(&p, f);
}

int amp__cuda_cumprod_backward(amp_call *c)
{
  amp_tensor *out = c->out[0];
  int dtype = out->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  amp_tensor *g = amp__cuda_dense(c->in[0], dtype), *x = amp__cuda_dense(c->in[1], dtype);
  amp_tensor *o = out->dtype == dtype ? out : amp__cuda_make(dtype, out->ndim, out->size);
  int rc = g && x && o ? 0 : AMP_E_MEMORY;
  if (rc == 0 && x->ndim == 0) rc = amp__cuda_copy_to(o, g);
  else if (rc == 0 && x->numel > 0) {
    lines p;
    lines_of(&p, x, o, NULL, (int)c->a[0].i);
    if (dtype == AMP_FLOAT64)
      AMP_LAUNCH((product_gradient<double>), amp_grid(p.lines, 64), 64, 0, p, AMP_DATA(const double, g), AMP_DATA(const double, x), AMP_DATA(double, o));
    else AMP_LAUNCH((product_gradient<float>), amp_grid(p.lines, 64), 64, 0, p, AMP_DATA(const float, g), AMP_DATA(const float, x), AMP_DATA(float, o));
  }
  if (rc == 0 && o != out) rc = amp__cuda_copy_to(out, o);
  if (o != out) amp__free(o);
  amp__free(g);
  amp__free(x);
  return rc;
}

}
