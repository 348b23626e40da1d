/*
** linear_act.cu: backward of an activation and the bias's gradient in one pass:
** dz = grad * act'(saved) is written while its columns are summed.
**
** A thread has 8 columns and strides over rows, a few of which are on their way at
** once; a block adds its threads' sums and leaves a line of `partial`, which a second
** launch adds in order, so results repeat. Few rows need one line: narrow blocks of
** many rows write the sums themselves.
*/
#include "math.cuh"
#include "raw.cuh"
#include "../src/cuda/cuda_gemm.h"

namespace {

enum { RELU, GELU, GELU_TANH, GELU_QUICK, N = 8, COLS = 256, THREADS = 256, WARPS = THREADS / 32, NARROW = 8, WIDE = 32, FEW = 512 };

/* amp_gelu_tanh_grad for what is rounded to 16 bits: with s = sigmoid(2 u), tanh(u) = 2 s - 1 and 1 - tanh(u)^2 = 4 s (1 - s) */
__device__ __forceinline__ float quick_slope(float x)
{
  const float q = x * x, u = x * (1.59576912160573071176f + 0.07135481282f * q), s = __fdividef(1.f, 1 + __expf(-u));
  const float v = s + s * (1 - s) * (x * (1.59576912160573071176f + 0.21406443846f * q));
  return fabsf(x) > 50 ? (x > 0 ? 1.f : 0.f) : v;
}

template <class T> __device__ __forceinline__ T slope(int act, T g, T s)
{
  switch (act) {
  case RELU: return s <= 0 ? (T)0 : g;
  case GELU: return g * amp_gelu_grad(s);
  case GELU_TANH: return g * amp_gelu_tanh_grad(s);
  default: return g;
  }
}

typedef struct job {
  const char *g, *s;
  char *z, *sums;
  void *partial;         /* [gridDim.y][cols], or NULL: this block has all rows */
  int64_t rows, cols;
  int32_t gdt, sdt, zdt, act, whole;
} job;

/* X threads beside each other */
template <int ACT, int X> __global__ void __launch_bounds__(THREADS, X == WIDE ? 4 : 2) columns(const job k)
{
  enum { Y = THREADS / X, W = X * N, R = X == WIDE && ACT >= 0 ? 2 : 4 };
  __shared__ float part[WARPS][W];
  const int x = threadIdx.x % X, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int64_t c = (int64_t)blockIdx.x * W + x * N;
  float sum[N];
#pragma unroll
  for (int j = 0; j < N; j++) sum[j] = 0;
  if (c < k.cols) {
    const int64_t step = (int64_t)gridDim.y * Y;
    for (int64_t r = (int64_t)blockIdx.y * Y + threadIdx.x / X; r < k.rows; r += step * R) {
      amp_raw gs[R] = {}, ss[R] = {};
#pragma unroll
      for (int i = 0; i < R; i++) {
        const int64_t row = r + i * step;
        if (row >= k.rows) continue;
        amp_ask(gs[i], k.g, k.gdt, row * k.cols + c);
        if (ACT >= 0) amp_ask(ss[i], k.s, k.sdt, row * k.cols + c);
      }
#pragma unroll
      for (int i = 0; i < R; i++) {
        const int64_t row = r + i * step;
        if (row >= k.rows) continue;
        float g[N], s[N];
        amp_take(g, gs[i], k.gdt);
        if (ACT >= 0) {
          amp_take(s, ss[i], k.sdt);
#pragma unroll
          for (int j = 0; j < N; j++) g[j] = ACT == GELU_QUICK ? g[j] * quick_slope(s[j]) : slope(ACT, g[j], s[j]);
          amp_store_n<N>(k.z, k.zdt, row * k.cols + c, g);
          /* what is summed is what was written */
#pragma unroll
          for (int j = 0; j < N; j++) g[j] = amp_rounded(g[j], k.zdt);
        }
#pragma unroll
        for (int j = 0; j < N; j++) sum[j] += g[j];
      }
    }
  }
#pragma unroll
  for (int d = X; d < 32; d *= 2) {
#pragma unroll
    for (int j = 0; j < N; j++) sum[j] += __shfl_xor_sync(0xffffffffu, sum[j], d);
  }
  if (lane < X) {
#pragma unroll
    for (int j = 0; j < N; j++) part[warp][lane * N + j] = sum[j];
  }
  __syncthreads();
  c = (int64_t)blockIdx.x * W + threadIdx.x;
  if (threadIdx.x >= W || c >= k.cols) return;
  float total = 0;
#pragma unroll
  for (int j = 0; j < WARPS; j++) total += part[j][threadIdx.x];
  if (k.partial) ((float *)k.partial)[(int64_t)blockIdx.y * k.cols + c] = total;
  else amp_store<float>(k.sums, k.zdt, c, total);
}

/* rows that can't be read 16 bytes at a time: a thread a column */
template <class T> __global__ void __launch_bounds__(256) columns_any(const job k)
{
  int64_t c = (int64_t)blockIdx.x * COLS + threadIdx.x;
  if (c >= k.cols) return;
  T sum = 0;
  for (int64_t r = blockIdx.y; r < k.rows; r += gridDim.y) {
    T g = amp_load<T>(k.g, k.gdt, r * k.cols + c);
    if (k.act >= 0) {
      g = slope(k.act, g, amp_load<T>(k.s, k.sdt, r * k.cols + c));
      amp_store<T>(k.z, k.zdt, r * k.cols + c, g);
      if (sizeof(T) == 4) g = (T)amp_rounded((float)g, k.zdt);
    }
    sum += g;
  }
  if (k.partial) ((T *)k.partial)[(int64_t)blockIdx.y * k.cols + c] = sum;
  else amp_store<T>(k.sums, k.zdt, c, sum);
}

/* 32 columns a block, a warp every 8th line; 8 lines of a thread at once */
template <class T> __global__ void __launch_bounds__(THREADS) add_up(char *sums, int dtype, const T *partial, int64_t cols, int lines)
{
  __shared__ T part[WARPS][32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int64_t c = (int64_t)blockIdx.x * 32 + lane;
  T total = 0;
  if (c < cols) {
#pragma unroll 8
    for (int i = warp; i < lines; i += WARPS) total += partial[i * cols + c];
  }
  part[warp][lane] = total;
  __syncthreads();
  if (warp || c >= cols) return;
  total = 0;
#pragma unroll
  for (int i = 0; i < WARPS; i++) total += part[i][lane];
  amp_store<T>(sums, dtype, c, total);
}

/* columns, narrow or wide; the act is known to the translator */
template <int ACT> static void sum_columns(dim3 grid, bool narrow, const job &k)
{
  if (narrow) AMP_LAUNCH((columns<ACT, NARROW>), grid, THREADS, 0, k);
  else AMP_LAUNCH((columns<ACT, WIDE>), grid, THREADS, 0, k);
}

static bool short_float(int dtype) { return dtype == AMP_FLOAT32 || dtype == AMP_FLOAT16 || dtype == AMP_BFLOAT16; }

} // namespace

extern "C" {

int amp__cuda_columns(int act, const amp_tensor *grad, const amp_tensor *saved, amp_tensor *dz, amp_tensor *sums)
{
  job k;
  memset((void *)&k, 0, sizeof k);
  k.cols = sums->numel;
  k.rows = 1;
  for (int d = 0; d + 1 < grad->ndim; d++) k.rows *= grad->size[d];
  if (k.cols == 0) return 0;
  k.g = (const char *)amp__data(grad);
  k.gdt = grad->dtype;
  k.act = act;
  k.whole = k.cols % N == 0 && ((uintptr_t)k.g & 15) == 0;
  if (act >= 0) {
    k.s = (const char *)amp__data(saved);
    k.z = (char *)amp__data(dz);
    k.sdt = saved->dtype;
    k.whole = k.whole && (((uintptr_t)k.s | (uintptr_t)k.z) & 15) == 0;
  }
  k.zdt = sums->dtype;
  k.sums = (char *)amp__data(sums);
  k.whole = k.whole && short_float(k.gdt) && short_float(k.zdt) && (act < 0 || short_float(k.sdt));
  const bool narrow = k.whole && k.rows <= FEW;
  const int64_t width = narrow ? NARROW * N : COLS, many = (int64_t)amp__cuda_here()->sms * 4;
  unsigned strips = (unsigned)((k.cols + width - 1) / width), lines = 1;
  int64_t most = many / strips, wanted = (k.rows + 31) / 32;
  if (!narrow && k.rows > 128) lines = (unsigned)(wanted < most ? wanted : most < 1 ? 1 : most);
  if (lines > 1024) lines = 1024;
  return amp_by_float(k.zdt, [&](auto zero) {
    typedef decltype(zero) T;
    amp_tensor *partial = lines > 1 ? amp__cuda_scratch(sizeof(T) * (size_t)lines * (size_t)k.cols) : NULL;
    if (lines > 1 && !partial) return (int)AMP_E_MEMORY;
    k.partial = partial ? amp__data(partial) : NULL;
    dim3 grid(strips, lines);
    if (!k.whole) AMP_LAUNCH((columns_any<T>), grid, THREADS, 0, k);
    else if (act == RELU) sum_columns<RELU>(grid, narrow, k);
    else if (act == GELU) sum_columns<GELU>(grid, narrow, k);
    else if (act == GELU_TANH && k.zdt != AMP_FLOAT32) sum_columns<GELU_QUICK>(grid, narrow, k);
    else if (act == GELU_TANH) sum_columns<GELU_TANH>(grid, narrow, k);
    else sum_columns<-1>(grid, narrow, k);
    if (partial) AMP_LAUNCH((add_up<T>), (unsigned)((k.cols + 31) / 32), THREADS, 0, k.sums, (int)k.zdt, (const T *)k.partial, k.cols, (int)lines);
    amp__free(partial);
    return 0;
  });
}

int amp__cuda_act_backward(amp_call *c)
{
  amp_tensor *z = c->out[0], *g = amp__cuda_dense(c->in[0], c->in[0]->dtype), *s = amp__cuda_dense(c->in[1], c->in[1]->dtype);
  int rc = g && s ? amp__cuda_columns((int)c->a[0].i, g, s, z, c->out[1]) : AMP_E_MEMORY;
  amp__free(g);
  amp__free(s);
  return rc;
}

}
