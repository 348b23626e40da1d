/*
** norm.cuh: layer_norm's and rms_norm's rows that stay in registers: a launch's
** job, the kernels of float32 and 16-bit rows.
**
** A lane has the same K vectors of every row that it takes: 16 bytes of the input
** each, and as many elements of the gradient. All loads of a row are on their way
** before the first is used. Up to 1024 elements a warp takes a row, else a block.
** Backward few blocks take all rows: a lane keeps its columns' sums of the gradients
** of weight and bias, and add_blocks (norm.cu) adds the blocks' ones in their order.
*/
#ifndef AMP_NORM_CUH
#define AMP_NORM_CUH
#include "rows.cuh"

namespace {

typedef struct job {
  const char *x, *g, *w, *b, *more; /* w, b may be NULL; more: to be added to y (backward), or NULL */
  char *y, *mean, *rstd;       /* mean NULL: about 0 */
  int32_t xdt, gdt, wdt, bdt, ydt, sdt, wide, rms; /* sdt: of mean and rstd */
  int64_t rows, n;
  double eps;
  char *partial;               /* [blocks][2][n] */
} job;

enum { ROW_FORWARD = 32 * 512, ROW_BACK = 24 * 512 }; /* the longest rows; a thread has 32 elements, backward 24 */

/* -- Bits of V elements of B bytes ----------------------------------------------------- */

template <int BYTES> struct bits { unsigned w[BYTES / 4]; };

template <int BYTES> __device__ __forceinline__ bits<BYTES> fetch(const char *p, int64_t vector, bool there)
{
  bits<BYTES> b = {};
  if (!there) return b;
  if constexpr (BYTES == 8) {
    uint2 x = ((const uint2 *)p)[vector];
    b.w[0] = x.x; b.w[1] = x.y;
  } else {
#pragma unroll
    for (int i = 0; i < BYTES / 16; i++) {
      uint4 x = ((const uint4 *)p)[vector * (BYTES / 16) + i];
      b.w[4 * i] = x.x; b.w[4 * i + 1] = x.y; b.w[4 * i + 2] = x.z; b.w[4 * i + 3] = x.w;
    }
  }
  return b;
}

template <int B, int V, int K> __device__ __forceinline__ void widen(float (&v)[K][V], const bits<B * V> (&r)[K], int dtype)
{
  if constexpr (B == 4) {
#pragma unroll
    for (int j = 0; j < K; j++) {
#pragma unroll
      for (int q = 0; q < V; q++) v[j][q] = __uint_as_float(r[j].w[q]);
    }
  } else if (dtype == AMP_BFLOAT16) {
#pragma unroll
    for (int j = 0; j < K; j++) {
#pragma unroll
      for (int q = 0; q < V; q++) v[j][q] = __uint_as_float(q & 1 ? r[j].w[q / 2] & 0xffff0000u : r[j].w[q / 2] << 16);
    }
  } else {
#pragma unroll
    for (int j = 0; j < K; j++) {
#pragma unroll
      for (int q = 0; q < V; q++) v[j][q] = amp_h2f((uint16_t)(r[j].w[q / 2] >> (q & 1) * 16));
    }
  }
}

/* 16 bytes of a result */
template <int B, int V> __device__ __forceinline__ void put(char *p, int64_t vector, const float (&v)[V], int dtype)
{
  if constexpr (B == 4) { ((uint4 *)p)[vector] = amp_pack<AMP_FLOAT32>(v); }
  else if (dtype == AMP_BFLOAT16) { ((uint4 *)p)[vector] = amp_pack<AMP_BFLOAT16>(v); }
  else { ((uint4 *)p)[vector] = amp_pack<AMP_FLOAT16>(v); }
}

/* Sum over a row's threads; a block's calls take two buffers in turn */
template <bool WARP> __device__ __forceinline__ float row_sum(float v, float *part)
{
  v = amp_reduce_warp<amp_sum>(v);
  if (WARP) return v;
  if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
  __syncthreads();
  return amp_reduce_warp<amp_sum>((threadIdx.x & 31) < blockDim.x >> 5 ? part[threadIdx.x & 31] : 0.f);
}

/* of two values at once */
template <bool WARP> __device__ __forceinline__ void row_sums(float &a, float &b, float (*part)[2])
{
  a = amp_reduce_warp<amp_sum>(a);
  b = amp_reduce_warp<amp_sum>(b);
  if (WARP) return;
  const int lane = threadIdx.x & 31;
  if (lane == 0) { part[threadIdx.x >> 5][0] = a; part[threadIdx.x >> 5][1] = b; }
  __syncthreads();
  const bool is = lane < (int)blockDim.x >> 5;
  a = amp_reduce_warp<amp_sum>(is ? part[lane][0] : 0.f);
  b = amp_reduce_warp<amp_sum>(is ? part[lane][1] : 0.f);
}

/* -- Forward ----------------------------------------------------------------------------- */

template <int XB, int WB, int K, bool WARP> __global__ void __launch_bounds__(WARP ? 128 : 512, WARP ? 6 : 1) forward_fast(const job k)
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
#pragma unroll
    for (int j = 0; j < K; j++) raw[j] = fetch<16>(k.x, base + lane + j * lanes, lane + j * lanes < vectors);
    widen<XB, V>(v, raw, k.xdt);
    float mean = 0;
    if (!k.rms) {
#pragma unroll
      for (int j = 0; j < K; j++) {
#pragma unroll
        for (int q = 0; q < V; q++) sum += v[j][q];
      }
      mean = row_sum<WARP>(sum, part[0]) * each;
    }
#pragma unroll
    for (int j = 0; j < K; j++)
      if (lane + j * lanes < vectors) {
#pragma unroll
        for (int q = 0; q < V; q++) { float d = v[j][q] - mean; dev += d * d; }
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
        float y = (v[j][q] - mean) * rstd;
        if (k.w) y *= w[0][q];
        if (k.b) y += b[0][q];
        v[j][q] = y;
      }
      put<XB, V>(k.y, base + at, v[j], k.ydt);
    }
    if (!WARP && k.rms) __syncthreads(); /* its one sum a row has one buffer */
  }
}

/* -- Backward ----------------------------------------------------------------------------- */

/* shared: K * lanes * V weights */
template <int XB, int GB, int K, bool WARP> __global__ void __launch_bounds__(WARP && K * 16 / XB > 24 ? 384 : 512, 1) backward_fast(const job k)
{
  enum { V = 16 / XB, WIDE = 2 * 32 * V };
  __shared__ float part[WARP ? 16 : 1][WARP ? (int)WIDE : 1], sums[2][WARP ? 1 : 16][2];
  AMP_SHARED(float, weight);
  AMP_ROW_LANES(WARP);
  const int vectors = (int)k.n / V;
  const float each = 1.f / (float)k.n;
  float gw[K][V], gb[K][V];
#pragma unroll
  for (int j = 0; j < K; j++) {
#pragma unroll
    for (int q = 0; q < V; q++) gw[j][q] = gb[j][q] = 0;
  }
  for (int i = threadIdx.x; i < K * lanes * V; i += blockDim.x) weight[i] = i >= k.n ? 0.f : k.w ? amp_load<float>(k.w, k.wdt, i) : 1.f;
  __syncthreads();
  int turn = 0;
  AMP_ROW_LOOP(WARP, r, k.rows) {
    bits<16> rx[K];
    bits<GB * V> rg[K];
    float x[K][V], g[K][V], s0 = 0, s1 = 0;
    const int64_t base = r * vectors;
#pragma unroll
    for (int j = 0; j < K; j++) rx[j] = fetch<16>(k.x, base + lane + j * lanes, lane + j * lanes < vectors);
#pragma unroll
    for (int j = 0; j < K; j++) rg[j] = fetch<GB * V>(k.g, base + lane + j * lanes, lane + j * lanes < vectors);
    const float mean = k.rms ? 0.f : ((const float *)k.mean)[r], rstd = ((const float *)k.rstd)[r];
    widen<XB, V>(x, rx, k.xdt);
    widen<GB, V>(g, rg, k.gdt);
#pragma unroll
    for (int j = 0; j < K; j++) {
#pragma unroll
      for (int q = 0; q < V; q += 4) {
        const float4 w4 = *(const float4 *)(weight + (lane + j * lanes) * V + q);
        const float w[4] = { w4.x, w4.y, w4.z, w4.w };
#pragma unroll
        for (int i = 0; i < 4; i++) {
          float &a = x[j][q + i], &d = g[j][q + i];
          a = (a - mean) * rstd;
          gw[j][q + i] += d * a;
          gb[j][q + i] += d;
          d *= w[i];
          s0 += d;
          s1 += d * a;
        }
      }
    }
    row_sums<WARP>(s0, s1, sums[turn]);
    turn ^= 1;
    s0 = k.rms ? 0.f : s0 * each;
    s1 *= each;
#pragma unroll
    for (int j = 0; j < K; j++) {
      const int at = lane + j * lanes;
      if (at >= vectors) continue;
#pragma unroll
      for (int q = 0; q < V; q++) g[j][q] = rstd * (g[j][q] - s0 - x[j][q] * s1);
      if (k.more) {
        bits<16> rm[1] = { fetch<16>(k.more, base + at, true) };
        float m[1][V];
        widen<XB, V>(m, rm, k.ydt);
#pragma unroll
        for (int q = 0; q < V; q++) g[j][q] += m[0][q];
      }
      put<XB, V>(k.y, base + at, g[j], k.ydt);
    }
  }
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
