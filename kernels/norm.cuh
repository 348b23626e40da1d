/*
** norm.cuh: layer_norm's, add_layer_norm's and rms_norm's rows that stay in
** registers: a launch's job, the kernels of float32 and 16-bit rows.
**
** A lane has the same K vectors of every row that it takes: 16 bytes of the input
** each, and as many elements of the gradient. All loads of a row are on their way
** before the first is used; backward, where registers allow it, those of the next
** row too. Up to 1024 elements a warp takes a row, else a block.
** Backward few blocks take all rows: a lane keeps its columns' sums of the gradients
** of weight and bias, and add_blocks (norm.cu) adds the blocks' ones in their order.
*/
#ifndef AMP_NORM_CUH
#define AMP_NORM_CUH
#include "bits.cuh"

namespace {

typedef struct job {
  const char *x, *r, *g, *w, *b, *more; /* r: to be added to x; w, b may be NULL; more: to be added to y (backward), or NULL */
  char *y, *sum, *mean, *rstd, *twin; /* sum: x + r; mean NULL: about 0; twin: y in 16 bits as well or, y NULL, instead; or NULL */
  int32_t tdt, xdt, rdt, gdt, wdt, bdt, ydt, sdt, wide, rms; /* sdt: of mean and rstd */
  int64_t rows, n;
  double eps;
  char *partial;               /* [blocks][2][n] */
} job;

enum { ROW_FORWARD = 32 * 512, ROW_BACK = 24 * 512 }; /* the longest rows; a thread has 32 elements, backward 24 */

__device__ __forceinline__ float rounded(float v, int dtype) { return dtype == AMP_BFLOAT16 ? amp_bf2f(amp_f2bf(v)) : amp_h2f(amp_f2h(v)); }

/* -- Forward ----------------------------------------------------------------------------- */

/* RB: bytes of an element that is added to x's first, 0: none */
template <int XB, int WB, int RB, int K, bool WARP> __global__ void __launch_bounds__(WARP ? 128 : 512, !WARP ? 1 : RB && K * 16 / XB > 24 ? 5 : 6) forward_fast(const job k)
{
  enum { V = 16 / XB };
  __shared__ float part[2][16];
  AMP_ROW_LANES(WARP);
  const int vectors = (int)k.n / V;
  const float each = 1.f / (float)k.n;
  AMP_ROW_LOOP(WARP, r, k.rows) {
    bits<16> raw[K];
    float v[K][V], sum = 0, dev = 0;
    const int64_t base = r * vectors;
    float first = k.rms ? 0.f : amp_load<float>(k.x, k.xdt, r * k.n); /* of the row */
#pragma unroll
    for (int j = 0; j < K; j++) raw[j] = fetch<16>(k.x, base + lane + j * lanes, lane + j * lanes < vectors);
    if constexpr (RB > 0) {
      bits<RB * V> added[K];
      float a[K][V];
#pragma unroll
      for (int j = 0; j < K; j++) added[j] = fetch<RB * V>(k.r, base + lane + j * lanes, lane + j * lanes < vectors);
      widen<XB, V>(v, raw, k.xdt);
      widen<RB, V>(a, added, k.rdt);
      if (!k.rms) { first += amp_load<float>(k.r, k.rdt, r * k.n); first = XB == 4 ? first : rounded(first, k.xdt); }
#pragma unroll
      for (int j = 0; j < K; j++) {
#pragma unroll
        for (int q = 0; q < V; q++) v[j][q] = XB == 4 ? v[j][q] + a[j][q] : rounded(v[j][q] + a[j][q], k.xdt);
        if (lane + j * lanes < vectors) put<XB, V>(k.sum, base + lane + j * lanes, v[j], k.xdt);
      }
    } else {
      widen<XB, V>(v, raw, k.xdt);
    }
    float mean = 0, low = 0; /* low: what the mean, which is counted from the row's first element, is rounded by */
    if (!k.rms) {
#pragma unroll
      for (int j = 0; j < K; j++) {
        if (lane + j * lanes < vectors) {
#pragma unroll
          for (int q = 0; q < V; q++) sum += v[j][q] - first;
        }
      }
      const float step = row_sum<WARP>(sum, part[0]) * each;
      mean = first + step;
      low = (first - mean) + step;
    }
#pragma unroll
    for (int j = 0; j < K; j++)
      if (lane + j * lanes < vectors) {
#pragma unroll
        for (int q = 0; q < V; q++) { float d = (v[j][q] - mean) - low; dev += d * d; }
      }
    const float rstd = 1 / sqrtf(row_sum<WARP>(dev, part[1]) * each + (float)k.eps);
    if (lane == 0) {
      if (!k.rms) ((float *)k.mean)[r] = mean;
      ((float *)k.rstd)[r] = rstd;
    }
#pragma unroll
    for (int j = 0; j < K; j++) {
      const int at = lane + j * lanes;
      if (at >= vectors) continue;
      bits<WB * V> rw[1], rb[1];
      float w[1][V], b[1][V];
      if (k.w) { rw[0] = fetch<WB * V>(k.w, at, true); widen<WB, V>(w, rw, k.wdt); }
      if (k.b) { rb[0] = fetch<WB * V>(k.b, at, true); widen<WB, V>(b, rb, k.bdt); }
#pragma unroll
      for (int q = 0; q < V; q++) {
        float y = ((v[j][q] - mean) - low) * rstd;
        if (k.w) y *= w[0][q];
        if (k.b) y += b[0][q];
        v[j][q] = y;
      }
      if (XB == 2 || k.y) put<XB, V>(k.y, base + at, v[j], k.ydt);
      if (XB == 4 && k.twin) put_narrow(k.twin, base + at, v[j], k.tdt);
    }
    if (!WARP && k.rms) __syncthreads(); /* its one sum a row has one buffer */
  }
}

/* -- Backward ----------------------------------------------------------------------------- */

/* Of a thread with E elements: threads of a block, blocks at once, and whether the next row is on its way while one is worked on */
template <int E, bool WARP> struct room {
  enum { THREADS = !WARP ? 512 : E <= 16 ? 384 : E <= 24 ? 320 : 256, BLOCKS = E <= 8 ? 2 : 1, AHEAD = WARP || E <= 8 };
};

/* A lane's part of a row, x and its gradient g: x becomes normal, g the gradient in what the weight scales; the weight's and the bias's
** gradients gw, gb and the row's sums s0, s1 grow */
template <int K, int V> __device__ __forceinline__ void add_up(float (&x)[K][V], float (&g)[K][V], float (&gw)[K][V], float (&gb)[K][V], const float *weight, int lane, int lanes, float about, float scale, float &s0, float &s1)
{
#pragma unroll
  for (int j = 0; j < K; j++) {
#pragma unroll
    for (int q = 0; q < V; q += 4) {
      const float4 w4 = *(const float4 *)(weight + (lane + j * lanes) * V + q);
      const float w[4] = { w4.x, w4.y, w4.z, w4.w };
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float &a = x[j][q + i], &d = g[j][q + i];
        a = (a - about) * scale;
        gw[j][q + i] += d * a;
        gb[j][q + i] += d;
        d *= w[i];
        s0 += d;
        s1 += d * a;
      }
    }
  }
}

/* shared: K * lanes * V weights */
template <int XB, int GB, int K, bool WARP> __global__ void __launch_bounds__(room<K * 16 / XB, WARP>::THREADS, room<K * 16 / XB, WARP>::BLOCKS) backward_fast(const job k)
{
  enum { V = 16 / XB, WIDE = 2 * 32 * V, AHEAD = room<K * V, WARP>::AHEAD };
  __shared__ float part[WARP ? 16 : 1][WARP ? (int)WIDE : 1], sums[2][WARP ? 1 : 16][2];
  AMP_SHARED(float, weight);
  AMP_ROW_LANES(WARP);
  const int vectors = (int)k.n / V;
  const float each = 1.f / (float)k.n;
  float gw[K][V], gb[K][V], mean = 0, rstd = 0;
  bits<16> rx[K];
  bits<GB * V> rg[K];
  auto start = [&](int64_t r) {
    const int64_t base = r * vectors;
#pragma unroll
    for (int j = 0; j < K; j++) rx[j] = fetch<16>(k.x, base + lane + j * lanes, r < k.rows && lane + j * lanes < vectors);
#pragma unroll
    for (int j = 0; j < K; j++) rg[j] = fetch<GB * V>(k.g, base + lane + j * lanes, r < k.rows && lane + j * lanes < vectors);
    if (r < k.rows) {
      if (!k.rms) mean = ((const float *)k.mean)[r];
      rstd = ((const float *)k.rstd)[r];
      if (k.more && lane == 0) announce(k.more + base * 16, vectors * 16);
    }
  };
  const int64_t step = WARP ? (int64_t)gridDim.x * (blockDim.x >> 5) : (int64_t)gridDim.x;
  start(WARP ? (int64_t)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5) : (int64_t)blockIdx.x);
#pragma unroll
  for (int j = 0; j < K; j++) {
#pragma unroll
    for (int q = 0; q < V; q++) gw[j][q] = gb[j][q] = 0;
  }
  for (int i = threadIdx.x; i < K * lanes * V; i += blockDim.x) weight[i] = i >= k.n ? 0.f : k.w ? amp_load<float>(k.w, k.wdt, i) : 1.f;
  __syncthreads();
  int turn = 0;
  AMP_ROW_LOOP(WARP, r, k.rows) {
    float x[K][V], g[K][V], s0 = 0, s1 = 0;
    const int64_t base = r * vectors;
    const float about = mean, scale = rstd;
    widen<XB, V>(x, rx, k.xdt);
    widen<GB, V>(g, rg, k.gdt);
    if (AHEAD) start(r + step);
    add_up(x, g, gw, gb, weight, lane, lanes, about, scale, s0, s1);
    row_sums<WARP>(s0, s1, sums[turn]);
    turn ^= 1;
    s0 = k.rms ? 0.f : s0 * each;
    s1 *= each;
#pragma unroll
    for (int j = 0; j < K; j++) {
      const int at = lane + j * lanes;
      if (at >= vectors) continue;
#pragma unroll
      for (int q = 0; q < V; q++) g[j][q] = scale * (g[j][q] - s0 - x[j][q] * s1);
      if (k.more) {
        bits<16> rm[1] = { fetch<16>(k.more, base + at, true) };
        float m[1][V];
        widen<XB, V>(m, rm, k.ydt);
#pragma unroll
        for (int q = 0; q < V; q++) g[j][q] += m[0][q];
      }
      put<XB, V>(k.y, base + at, g[j], k.ydt);
      if (XB == 4 && k.twin) put_narrow(k.twin, base + at, g[j], k.tdt);
    }
    if (!AHEAD) start(r + step);
  }
  amp_let_next();
  float *out = (float *)k.partial + (int64_t)blockIdx.x * 2 * k.n;
#pragma unroll
  for (int j = 0; j < K; j++) {
    if constexpr (WARP) {
      __syncthreads();
#pragma unroll
      for (int q = 0; q < V; q++) {
        part[threadIdx.x >> 5][lane * V + q] = gw[j][q];
        part[threadIdx.x >> 5][32 * V + lane * V + q] = gb[j][q];
      }
      __syncthreads();
      for (int c = threadIdx.x; c < WIDE; c += blockDim.x) {
        float s = 0;
        for (int w = 0; w < (int)blockDim.x >> 5; w++) s += part[w][c];
        const int side = c >= 32 * V, column = j * 32 * V + c - side * 32 * V;
        if (column < k.n) out[side * k.n + column] = s;
      }
    } else if (lane + j * lanes < vectors) {
#pragma unroll
      for (int q = 0; q < V; q++) {
        out[(lane + j * lanes) * V + q] = gw[j][q];
        out[k.n + (lane + j * lanes) * V + q] = gb[j][q];
      }
    }
  }
}

} // namespace
#endif
