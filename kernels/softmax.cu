/*
** softmax.cu: rows softmax, log_softmax and their backward rows.
**
** Along contiguous memory a warp or a block takes a row. float32 and 16-bit rows of
** whole vectors stay in registers, up to 1024 elements in a warp's; others take one
** trip for the largest element and the sum (kept up to date together), a second one,
** out of the cache, that writes. Along another dimension 32 columns go side by side, 8 threads each.
** A row of -inf alone, or with +inf or NaN, gives NaN, as on the CPU.
*/
#include "bits.cuh"

namespace {

enum { SOFTMAX, LOG_SOFTMAX, SOFTMAX_BACK, LOG_SOFTMAX_BACK };

typedef struct job {
  const char *a, *b;       /* b: the result, in a backward row */
  char *y;
  int32_t adt, bdt, ydt, what, wide;
  int64_t outer, n, inner;
} job;

/* what a row's elements have in common */
template <class T> struct common { T m, s; };

template <class T> __device__ __forceinline__ T value(int what, T a, T b, const common<T> &c)
{
  switch (what) {
  case SOFTMAX: return exp(a - c.m) * c.s;
  case LOG_SOFTMAX: return (a - c.m) - c.s;
  case SOFTMAX_BACK: return b * (a - c.s);
  default: return a - exp(b) * c.s;
  }
}
template <class T> __device__ __forceinline__ void settle(int what, common<T> &c) { if (what == SOFTMAX) c.s = 1 / c.s; else if (what == LOG_SOFTMAX) c.s = log(c.s); }

template <class T, bool WARP> __global__ void __launch_bounds__(WARP ? 256 : 1024, WARP ? 4 : 1) softmax_rows(const job k)
{
  AMP_ROW_LANES(WARP);
  const bool back = k.what >= SOFTMAX_BACK, dot = k.what == SOFTMAX_BACK;
  AMP_ROW_LOOP(WARP, r, k.outer) {
    int64_t from = r * k.n, to = from + k.n;
    common<T> c = { -(T)INFINITY, 0 };
    amp_row_each(from, to, k.wide, lane, lanes,
      [&](int64_t i) {
        T a[8], b[8];
        amp_load_n<8>(a, k.a, k.adt, i);
        if (!back) { amp_fold(c.m, c.s, a); return; }
        if (dot) amp_load_n<8>(b, k.b, k.bdt, i);
#pragma unroll
        for (int j = 0; j < 8; j++) c.s += dot ? a[j] * b[j] : a[j];
      },
      [&](int64_t i) {
        T a[1] = { amp_load<T>(k.a, k.adt, i) };
        if (!back) amp_fold(c.m, c.s, a);
        else c.s += dot ? a[0] * amp_load<T>(k.b, k.bdt, i) : a[0];
      });
    if (back) c.s = amp_row_reduce<WARP, amp_sum>(c.s, (T)0);
    else amp_fold_row<WARP>(c.m, c.s);
    settle(k.what, c);
    amp_row_each(from, to, k.wide, lane, lanes,
      [&](int64_t i) {
        T a[8], b[8];
        amp_load_n<8>(a, k.a, k.adt, i);
        if (back) amp_load_n<8>(b, k.b, k.bdt, i);
#pragma unroll
        for (int j = 0; j < 8; j++) a[j] = value(k.what, a[j], back ? b[j] : (T)0, c);
        amp_store_n<8>(k.y, k.ydt, i, a);
      },
      [&](int64_t i) { amp_store<T>(k.y, k.ydt, i, value(k.what, amp_load<T>(k.a, k.adt, i), back ? amp_load<T>(k.b, k.bdt, i) : (T)0, c)); });
  }
}

/* Rows in registers: K vectors a lane, all of a, b and y of B bytes an element */
template <int B, int K, bool WARP> __global__ void __launch_bounds__(WARP ? 128 : 512, WARP ? 6 : 1) softmax_fast(const job k)
{
  enum { V = 16 / B };
  __shared__ float part[3][16];
  AMP_ROW_LANES(WARP);
  const int vectors = (int)k.n / V;
  const bool back = k.what >= SOFTMAX_BACK;
  AMP_ROW_LOOP(WARP, r, k.outer) {
    bits<16> ra[K], rb[K];
    float a[K][V], b[K][V];
    const int64_t base = r * vectors;
#pragma unroll
    for (int j = 0; j < K; j++) ra[j] = fetch<16>(k.a, base + lane + j * lanes, lane + j * lanes < vectors);
    if (back) {
#pragma unroll
      for (int j = 0; j < K; j++) rb[j] = fetch<16>(k.b, base + lane + j * lanes, lane + j * lanes < vectors);
      widen<B, V>(b, rb, k.bdt);
    }
    widen<B, V>(a, ra, k.adt);
    common<float> c = { -INFINITY, 0 };
    if (back) {
#pragma unroll
      for (int j = 0; j < K; j++) {
#pragma unroll
        for (int q = 0; q < V; q++) c.s += k.what == SOFTMAX_BACK ? a[j][q] * b[j][q] : a[j][q];
      }
    } else {
#pragma unroll
      for (int j = 0; j < K; j++)
        if (lane + j * lanes < vectors) {
#pragma unroll
          for (int q = 0; q < V; q++) c.m = fmaxf(c.m, a[j][q]);
        }
      c.m = row_most<WARP>(c.m, part[0]);
      const float about = amp_finite_or_0(c.m);
#pragma unroll
      for (int j = 0; j < K; j++) {
#pragma unroll
        for (int q = 0; q < V; q++) {
          float d = a[j][q] - about, e = amp_exp_fast(d);
          c.s += lane + j * lanes < vectors ? e : 0.f;
          a[j][q] = k.what == SOFTMAX ? e : d;
        }
      }
    }
    c.s = row_sum<WARP>(c.s, part[1]);
    if (!back && c.m == -INFINITY) c.s = NAN;
    const float by = k.what == SOFTMAX ? 1 / c.s : k.what == LOG_SOFTMAX ? logf(c.s) : c.s;
#pragma unroll
    for (int j = 0; j < K; j++) {
      if (lane + j * lanes >= vectors) continue;
#pragma unroll
      for (int q = 0; q < V; q++)
        a[j][q] = k.what == SOFTMAX ? a[j][q] * by : k.what == LOG_SOFTMAX ? a[j][q] - by : k.what == SOFTMAX_BACK ? b[j][q] * (a[j][q] - by) : a[j][q] - amp_exp_fast(b[j][q]) * by;
      put<B, V>(k.y, base + lane + j * lanes, a[j], k.ydt);
    }
    if (!WARP) __syncthreads();
  }
}

template <int B> static void fast_rows(const job &k)
{
  enum { U = B / 2 };
  const unsigned warps = amp_grid(k.outer, 4, 4096), blocks = amp_grid(k.outer, 1, 4096), t16 = (unsigned)((k.n + 511) / 512 * 32), t32 = (unsigned)((k.n + 1023) / 1024 * 32);
  if (k.n <= 256) AMP_LAUNCH((softmax_fast<B, U, true>), warps, 128, 0, k);
  else if (k.n <= 512) AMP_LAUNCH((softmax_fast<B, 2 * U, true>), warps, 128, 0, k);
  else if (k.n <= 1024) AMP_LAUNCH((softmax_fast<B, 4 * U, true>), warps, 128, 0, k);
  else if (k.n <= 16 * 512) AMP_LAUNCH((softmax_fast<B, 2 * U, false>), blocks, t16, 0, k);
  else AMP_LAUNCH((softmax_fast<B, 4 * U, false>), blocks, t32, 0, k);
}
/* May a row stay in registers? */
static bool fast(const job *k, bool back)
{
  return k->wide && k->inner == 1 && k->adt != AMP_FLOAT64 && k->adt == k->ydt && (!back || k->bdt == k->adt) && k->n % (k->adt == AMP_FLOAT32 ? 4 : 8) == 0 && k->n <= 32 * 512;
}

/* block 32 x 8 */
template <class T> __global__ void __launch_bounds__(256, 4) softmax_columns(const job k)
{
  __shared__ T ms[8][33], ss[8][33];
  const bool back = k.what >= SOFTMAX_BACK;
  const int64_t tiles = (k.inner + 31) / 32;
  for (int64_t t = blockIdx.x; t < k.outer * tiles; t += gridDim.x) {
    int64_t o = t / tiles, in = (t - o * tiles) * 32 + threadIdx.x, base = o * k.n * k.inner + in;
    bool on = in < k.inner;
    common<T> c = { -(T)INFINITY, 0 };
    for (int64_t i = threadIdx.y; on && i < k.n; i += 8) {
      T a[1] = { amp_load<T>(k.a, k.adt, base + i * k.inner) };
      if (!back) amp_fold(c.m, c.s, a);
      else c.s += k.what == SOFTMAX_BACK ? a[0] * amp_load<T>(k.b, k.bdt, base + i * k.inner) : a[0];
    }
    __syncthreads();
    ms[threadIdx.y][threadIdx.x] = c.m;
    ss[threadIdx.y][threadIdx.x] = c.s;
    __syncthreads();
    T top = -(T)INFINITY, sum = 0;
    for (int y = 0; y < 8; y++) { T m = ms[y][threadIdx.x]; top = m > top ? m : top; }
    for (int y = 0; y < 8; y++) {
      T m = ms[y][threadIdx.x], s = ss[y][threadIdx.x];
      if (!back) amp_fold_join(m, s, top);
      sum += s;
    }
    c.m = top;
    c.s = !back && top == -(T)INFINITY ? (T)NAN : sum;
    settle(k.what, c);
    for (int64_t i = threadIdx.y; on && i < k.n; i += 8) {
      int64_t at = base + i * k.inner;
      amp_store<T>(k.y, k.ydt, at, value(k.what, amp_load<T>(k.a, k.adt, at), back ? amp_load<T>(k.b, k.bdt, at) : (T)0, c));
    }
  }
}

static int run(amp_call *c, int what)
{
  bool back = what >= SOFTMAX_BACK;
  amp_tensor *y = c->out[0], *a = amp_own(c->in[0]), *b = back ? amp_own(c->in[1]) : NULL, *out = amp_own(y);
  int rc = 0, d = y->ndim ? (int)c->a[0].i : 0;
  if (y->numel > 0 && !(amp_alike(a, y) && (!b || amp_alike(b, y)))) {
    amp__free(a); amp__free(b); amp__free(out);
    a = amp__cuda_dense(c->in[0], c->in[0]->dtype);
    b = back ? amp__cuda_dense(c->in[1], c->in[1]->dtype) : NULL;
    out = amp_take(y, y->dtype);
    if (!a || (back && !b) || !out) rc = AMP_E_MEMORY;
  }
  if (rc == 0 && y->numel > 0) {
    job k;
    memset((void *)&k, 0, sizeof k);
    k.a = (const char *)amp__data(a); k.adt = a->dtype;
    if (b) { k.b = (const char *)amp__data(b); k.bdt = b->dtype; }
    k.y = (char *)amp__data(out); k.ydt = out->dtype;
    k.what = what;
    k.n = y->ndim ? y->size[d] : 1;
    k.inner = y->ndim ? out->stride[d] : 1;
    if (k.n == 1) k.inner = 1; /* its stride says nothing */
    k.outer = y->numel / (k.n * k.inner);
    k.wide = amp_wide(k.a) && amp_wide(k.y) && amp_wide(k.b);
    bool f64 = a->dtype == AMP_FLOAT64 || out->dtype == AMP_FLOAT64 || (b && b->dtype == AMP_FLOAT64);
    if (fast(&k, back)) {
      if (k.adt == AMP_FLOAT32) fast_rows<4>(k);
      else fast_rows<2>(k);
    } else rc = amp_by_float(f64 ? AMP_FLOAT64 : AMP_FLOAT32, [&](auto zero) {
      typedef decltype(zero) T;
      if (k.inner == 1) AMP_ROW_LAUNCH(softmax_rows, T, k.outer, k.n, k);
      else AMP_LAUNCH((softmax_columns<T>), amp_grid(k.outer * ((k.inner + 31) / 32), 1, 16), dim3(32, 8), 0, k);
      return 0;
    });
  }
  amp__free(a);
  amp__free(b);
  return amp_give(y, out, rc);
}

} // namespace

extern "C" {
int amp__cuda_softmax(amp_call *c) { return run(c, SOFTMAX); }
int amp__cuda_log_softmax(amp_call *c) { return run(c, LOG_SOFTMAX); }
int amp__cuda_softmax_backward(amp_call *c) { return run(c, SOFTMAX_BACK); }
int amp__cuda_log_softmax_backward(amp_call *c) { return run(c, LOG_SOFTMAX_BACK); }
}
