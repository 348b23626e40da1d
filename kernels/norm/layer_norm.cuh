/*
** layer_norm.cuh: layer_norm's, add_layer_norm's and rms_norm's rows that stay in
** registers: a launch's job, the kernels of float32 and 16-bit rows.
**
** A lane has the same K vectors of every row that it takes: 16 bytes of the input
** each, and as many elements of the gradient. All loads of a row are on their way
** before the first is used; backward, where registers allow it, those of the next
** row too. Up to 1024 elements a warp takes a row, else a block.
** Backward few blocks take all rows: a lane keeps its columns' sums of the gradients
** of weight and bias, and add_blocks (layer_norm.cu) adds the blocks' ones in their order.
*/
#ifndef AMP_LAYER_NORM_CUH
#define AMP_LAYER_NORM_CUH
#include "common/bits.cuh"

namespace {

/* r: to be added to x, sum: where that goes; w, b may be NULL; mean NULL: about 0; more: to be added to y (backward),
** or NULL; half_copy: y in 16 bits as well or, y NULL, instead, or NULL; stat_dtype: of mean and rstd */
typedef struct job {
  const char *x, *r, *g, *w, *b, *more;
  char *y, *sum, *mean, *rstd, *half_copy;
  int32_t half_dtype, x_dtype, r_dtype, g_dtype, w_dtype, b_dtype, y_dtype, stat_dtype, wide, is_rms;
  int64_t rows, length;
  double eps;
  char *partial; /* [blocks][2][length] */
} job;

enum { ROW_FORWARD = 32 * 512, ROW_BACK = 24 * 512 }; /* the longest rows; a thread has 32 elements, backward 24 */

__device__ __forceinline__ float rounded(float v, int dtype)
{
  return dtype == AMP_BFLOAT16 ? amp_bf2f(amp_f2bf(v)) : amp_h2f(amp_f2h(v));
}

/* -- Forward ----------------------------------------------------------------------------- */

/* Elements of vector `at` of a weight or bias */
template <int WB, int V>
__device__ __forceinline__ void load_vector(float (&w)[1][V], const char *p, int64_t at, int dtype)
{
  bits<WB * V> raw[1] = { fetch<WB * V>(p, at, true) };
  widen<WB, V>(w, raw, dtype);
}

/* A lane's elements v of row r become their sums with the residual's, which are written; raw: the input's bits, first:
** the row's first element */
template <int XB, int RB, int K, int V>
__device__ __forceinline__ void add_residual(const job &task, int64_t r, int64_t base, int lane, int lanes, int vectors,
                                             const bits<16> (&raw)[K], float (&v)[K][V], float &first)
{
  bits<RB * V> added[K];
  float a[K][V];
#pragma unroll
  for (int j = 0; j < K; j++) added[j] = fetch<RB * V>(task.r, base + lane + j * lanes, lane + j * lanes < vectors);
  widen<XB, V>(v, raw, task.x_dtype);
  widen<RB, V>(a, added, task.r_dtype);
  if (!task.is_rms) {
    first += amp_load<float>(task.r, task.r_dtype, r * task.length);
    first = XB == 4 ? first : rounded(first, task.x_dtype);
  }
#pragma unroll
  for (int j = 0; j < K; j++) {
#pragma unroll
    for (int q = 0; q < V; q++) v[j][q] = XB == 4 ? v[j][q] + a[j][q] : rounded(v[j][q] + a[j][q], task.x_dtype);
    if (lane + j * lanes < vectors) put<XB, V>(task.sum, base + lane + j * lanes, v[j], task.x_dtype);
  }
}

/* A row's mean, counted from its first element, and what it was rounded by: no common offset is lost */
template <bool WARP, int K, int V>
__device__ __forceinline__ void find_mean(const float (&v)[K][V], float first, float each, int lane, int lanes,
                                          int vectors, float *part, float &mean, float &low)
{
  float sum = 0;
#pragma unroll
  for (int j = 0; j < K; j++) {
    if (lane + j * lanes < vectors) {
#pragma unroll
      for (int q = 0; q < V; q++) sum += v[j][q] - first;
    }
  }
  const float step = row_sum<WARP>(sum, part) * each;
  mean = first + step;
  low = (first - mean) + step;
}

/* Sum of a lane's squared deviations */
template <int K, int V>
__device__ __forceinline__ float squares_of(const float (&v)[K][V], float mean, float low, int lane, int lanes,
                                            int vectors)
{
  float dev = 0;
#pragma unroll
  for (int j = 0; j < K; j++)
    if (lane + j * lanes < vectors) {
#pragma unroll
      for (int q = 0; q < V; q++) {
        float d = (v[j][q] - mean) - low;
        dev += d * d;
      }
    }
  return dev;
}

/* RB: bytes of an element that is added to x's first, 0: none */
template <int XB, int WB, int RB, int K, bool WARP>
__global__ void __launch_bounds__(WARP ? 128 : 512, !WARP                    ? 1
                                                    : RB && K * 16 / XB > 24 ? 5
                                                                             : 6) forward_fast(const job task)
{
  amp_let_next();
  amp_await();
  enum { V = 16 / XB };
  __shared__ float part[2][16];
  AMP_ROW_LANES(WARP);
  const int vectors = (int)task.length / V;
  const float each = 1.f / (float)task.length;
  AMP_ROW_LOOP(WARP, r, task.rows)
  {
    bits<16> raw[K];
    float v[K][V], mean = 0, low = 0;
    const int64_t base = r * vectors;
    float first = task.is_rms ? 0.f : amp_load<float>(task.x, task.x_dtype, r * task.length); /* of the row */
#pragma unroll
    for (int j = 0; j < K; j++) raw[j] = fetch<16>(task.x, base + lane + j * lanes, lane + j * lanes < vectors);
    if constexpr (RB > 0) {
      add_residual<XB, RB>(task, r, base, lane, lanes, vectors, raw, v, first);
    } else {
      widen<XB, V>(v, raw, task.x_dtype);
    }
    if (!task.is_rms) find_mean<WARP>(v, first, each, lane, lanes, vectors, part[0], mean, low);
    const float dev = squares_of(v, mean, low, lane, lanes, vectors);
    const float rstd = 1 / sqrtf(row_sum<WARP>(dev, part[1]) * each + (float)task.eps);
    if (lane == 0) {
      if (!task.is_rms) ((float *)task.mean)[r] = mean;
      ((float *)task.rstd)[r] = rstd;
    }
#pragma unroll
    for (int j = 0; j < K; j++) {
      const int at = lane + j * lanes;
      if (at >= vectors) continue;
      float w[1][V], b[1][V];
      if (task.w) load_vector<WB>(w, task.w, at, task.w_dtype);
      if (task.b) load_vector<WB>(b, task.b, at, task.b_dtype);
#pragma unroll
      for (int q = 0; q < V; q++) {
        float y = ((v[j][q] - mean) - low) * rstd;
        if (task.w) y *= w[0][q];
        if (task.b) y += b[0][q];
        v[j][q] = y;
      }
      if (XB == 2 || task.y) put<XB, V>(task.y, base + at, v[j], task.y_dtype);
      if (XB == 4 && task.half_copy) put_narrow(task.half_copy, base + at, v[j], task.half_dtype);
    }
    if (!WARP && task.is_rms) __syncthreads(); /* its one sum a row has one buffer */
  }
}

/* -- Backward ----------------------------------------------------------------------------- */

/* Of a thread with E elements: threads of a block, blocks at once, and whether the next row is on its way while one
** is worked on */
template <int E, bool WARP> struct room {
  enum { THREADS = !WARP ? 512 : E <= 16 ? 384 : E <= 24 ? 320 : 256, BLOCKS = E <= 8 ? 2 : 1, AHEAD = WARP || E <= 8 };
};

/* A lane's part of a row, x and its gradient g: x becomes normal, g the gradient in what the weight scales; the
** weight's and the bias's gradients grad_w, grad_b and the row's sums sum_g, sum_gx grow */
template <int K, int V>
__device__ __forceinline__ void add_up(float (&x)[K][V], float (&g)[K][V], float (&grad_w)[K][V], float (&grad_b)[K][V],
                                       const float *weight, int lane, int lanes, float about, float scale, float &sum_g,
                                       float &sum_gx)
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
        grad_w[j][q + i] += d * a;
        grad_b[j][q + i] += d;
        d *= w[i];
        sum_g += d;
        sum_gx += d * a;
      }
    }
  }
}

/* The row's means of both sums; about 0 (rms) there is only the second */
template <bool WARP>
__device__ __forceinline__ void row_means(const job &task, float each, float &sum_g, float &sum_gx, float (*part)[2])
{
  row_sums<WARP>(sum_g, sum_gx, part);
  sum_g = task.is_rms ? 0.f : sum_g * each;
  sum_gx *= each;
}

/* The columns' sums begin */
template <int K, int V> __device__ __forceinline__ void clear(float (&grad_w)[K][V], float (&grad_b)[K][V])
{
#pragma unroll
  for (int j = 0; j < K; j++) {
#pragma unroll
    for (int q = 0; q < V; q++) grad_w[j][q] = grad_b[j][q] = 0;
  }
}

/* Weights of a row's elements to shared memory, `count` with those past its end, which are 0 */
__device__ __forceinline__ void fill_weights(const job &task, float *weight, int count)
{
  for (int i = threadIdx.x; i < count; i += blockDim.x)
    weight[i] = i >= task.length ? 0.f : task.w ? amp_load<float>(task.w, task.w_dtype, i) : 1.f;
}

/* The block's sums of the weight's and the bias's gradients: warps that took rows add theirs in their order, by way of
** `part`; a block's lane has whole columns */
template <bool WARP, int K, int V, int WARPS, int WIDE>
__device__ __forceinline__ void write_columns(const job &task, int lane, int lanes, int vectors,
                                              const float (&grad_w)[K][V], const float (&grad_b)[K][V],
                                              float (&part)[WARPS][WIDE])
{
  float *out = (float *)task.partial + (int64_t)blockIdx.x * 2 * task.length;
#pragma unroll
  for (int j = 0; j < K; j++) {
    if constexpr (WARP) {
      __syncthreads();
#pragma unroll
      for (int q = 0; q < V; q++) {
        part[threadIdx.x >> 5][lane * V + q] = grad_w[j][q];
        part[threadIdx.x >> 5][32 * V + lane * V + q] = grad_b[j][q];
      }
      __syncthreads();
      for (int c = threadIdx.x; c < WIDE; c += blockDim.x) {
        float s = 0;
        for (int w = 0; w < (int)blockDim.x >> 5; w++) s += part[w][c];
        const int side = c >= 32 * V, column = j * 32 * V + c - side * 32 * V;
        if (column < task.length) out[side * task.length + column] = s;
      }
    } else if (lane + j * lanes < vectors) {
#pragma unroll
      for (int q = 0; q < V; q++) {
        out[(lane + j * lanes) * V + q] = grad_w[j][q];
        out[task.length + (lane + j * lanes) * V + q] = grad_b[j][q];
      }
    }
  }
}

/* shared: K * lanes * V weights */
template <int XB, int GB, int K, bool WARP>
__global__ void __launch_bounds__(room<K * 16 / XB, WARP>::THREADS, room<K * 16 / XB, WARP>::BLOCKS)
    backward_fast(const job task)
{
  enum { V = 16 / XB, WIDE = 2 * 32 * V, AHEAD = room<K * V, WARP>::AHEAD };
  __shared__ float part[WARP ? 16 : 1][WARP ? (int)WIDE : 1], sums[2][WARP ? 1 : 16][2];
  AMP_SHARED(float, weight);
  AMP_ROW_LANES(WARP);
  const int vectors = (int)task.length / V;
  const float each = 1.f / (float)task.length;
  float grad_w[K][V], grad_b[K][V], mean = 0, rstd = 0;
  bits<16> rx[K];
  bits<GB * V> rg[K];
  auto start = [&](int64_t r) {
    const int64_t base = r * vectors;
#pragma unroll
    for (int j = 0; j < K; j++)
      rx[j] = fetch<16>(task.x, base + lane + j * lanes, r < task.rows && lane + j * lanes < vectors);
#pragma unroll
    for (int j = 0; j < K; j++)
      rg[j] = fetch<GB * V>(task.g, base + lane + j * lanes, r < task.rows && lane + j * lanes < vectors);
    if (r < task.rows) {
      if (!task.is_rms) mean = ((const float *)task.mean)[r];
      rstd = ((const float *)task.rstd)[r];
      if (task.more && lane == 0) announce(task.more + base * 16, vectors * 16);
    }
  };
  const int64_t step = WARP ? (int64_t)gridDim.x * (blockDim.x >> 5) : (int64_t)gridDim.x;
  start(WARP ? (int64_t)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5) : (int64_t)blockIdx.x);
  clear(grad_w, grad_b);
  fill_weights(task, weight, K * lanes * V);
  __syncthreads();
  int turn = 0;
  AMP_ROW_LOOP(WARP, r, task.rows)
  {
    float x[K][V], g[K][V], sum_g = 0, sum_gx = 0;
    const int64_t base = r * vectors;
    const float about = mean, scale = rstd;
    widen<XB, V>(x, rx, task.x_dtype);
    widen<GB, V>(g, rg, task.g_dtype);
    if (AHEAD) start(r + step);
    add_up(x, g, grad_w, grad_b, weight, lane, lanes, about, scale, sum_g, sum_gx);
    row_means<WARP>(task, each, sum_g, sum_gx, sums[turn]);
    turn ^= 1;
#pragma unroll
    for (int j = 0; j < K; j++) {
      const int at = lane + j * lanes;
      if (at >= vectors) continue;
#pragma unroll
      for (int q = 0; q < V; q++) g[j][q] = scale * (g[j][q] - sum_g - x[j][q] * sum_gx);
      if (task.more) {
        float more[1][V];
        load_vector<XB>(more, task.more, base + at, task.y_dtype);
#pragma unroll
        for (int q = 0; q < V; q++) g[j][q] += more[0][q];
      }
      put<XB, V>(task.y, base + at, g[j], task.y_dtype);
      if (XB == 4 && task.half_copy) put_narrow(task.half_copy, base + at, g[j], task.half_dtype);
    }
    if (!AHEAD) start(r + step);
  }
  amp_let_next();
  write_columns<WARP>(task, lane, lanes, vectors, grad_w, grad_b, part);
}

} // namespace
#endif
