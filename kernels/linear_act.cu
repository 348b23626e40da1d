/*
** linear_act.cu: backward of an activation and the bias's gradient in one pass:
** dz = grad * act'(saved) is written while its columns are summed.
**
** A block has 256 columns (8 a thread) and strides over rows; its sums of rows go to
** a line of `partial`, which a second launch adds in order, so results repeat. Few
** rows need one block a strip, which writes the sums itself.
*/
#include "math.cuh"
#include "../src/cuda/cuda_gemm.h"

namespace {

enum { RELU, GELU, GELU_TANH, N = 8, COLS = 256, YS = 8 };

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

template <class T, int ACT> __global__ void __launch_bounds__(256) columns(const job k)
{
  __shared__ T part[YS][COLS];
  int x = threadIdx.x & 31, y = threadIdx.x >> 5;
  int64_t c = (int64_t)blockIdx.x * COLS + x * N;
  T sum[N];
#pragma unroll
  for (int j = 0; j < N; j++) sum[j] = 0;
  if (c < k.cols)
    for (int64_t r = (int64_t)blockIdx.y * YS + y; r < k.rows; r += (int64_t)gridDim.y * YS) {
      int64_t at = r * k.cols + c;
      T g[N], s[N];
      amp_load_n<N>(g, k.g, k.gdt, at);
      if (ACT >= 0) {
        amp_load_n<N>(s, k.s, k.sdt, at);
#pragma unroll
        for (int j = 0; j < N; j++) g[j] = slope(ACT, g[j], s[j]);
        amp_store_n<N>(k.z, k.zdt, at, g);
        /* what is summed is what was written */
        if (sizeof(T) == 4) {
#pragma unroll
          for (int j = 0; j < N; j++) g[j] = (T)amp_rounded((float)g[j], k.zdt);
        }
      }
#pragma unroll
      for (int j = 0; j < N; j++) sum[j] += g[j];
    }
#pragma unroll
  for (int j = 0; j < N; j++) part[y][x * N + j] = sum[j];
  __syncthreads();
  c = (int64_t)blockIdx.x * COLS + threadIdx.x;
  if (c >= k.cols) return;
  T total = 0;
#pragma unroll
  for (int j = 0; j < YS; j++) total += part[j][threadIdx.x];
  if (k.partial) ((T *)k.partial)[(int64_t)blockIdx.y * k.cols + c] = total;
  else amp_store<T>(k.sums, k.zdt, c, total);
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

template <class T> __global__ void __launch_bounds__(256) add_up(char *sums, int dtype, const T *partial, int64_t cols, int lines)
{
  AMP_FOR(c, cols) {
    T total = 0;
    for (int i = 0; i < lines; i++) total += partial[(int64_t)i * cols + c];
    amp_store<T>(sums, dtype, c, total);
  }
}

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
  unsigned strips = (unsigned)((k.cols + COLS - 1) / COLS), lines = 1;
  int64_t most = (int64_t)amp__cuda_here()->sms * 4 / strips, wanted = (k.rows + YS * 4 - 1) / (YS * 4);
  if (k.rows > 128) lines = (unsigned)(wanted < most ? wanted : most < 1 ? 1 : most);
  if (lines > 1024) lines = 1024;
  return amp_by_float(k.zdt, [&](auto zero) {
    typedef decltype(zero) T;
    amp_tensor *partial = lines > 1 ? amp__cuda_scratch(sizeof(T) * (size_t)lines * (size_t)k.cols) : NULL;
    if (lines > 1 && !partial) return (int)AMP_E_MEMORY;
    k.partial = partial ? amp__data(partial) : NULL;
    dim3 grid(strips, lines);
    if (!k.whole) AMP_LAUNCH((columns_any<T>), grid, 256, 0, k);
    else if (act == RELU) AMP_LAUNCH((columns<T, RELU>), grid, 256, 0, k);
    else if (act == GELU) AMP_LAUNCH((columns<T, GELU>), grid, 256, 0, k);
    else if (act == GELU_TANH) AMP_LAUNCH((columns<T, GELU_TANH>), grid, 256, 0, k);
    else AMP_LAUNCH((columns<T, -1>), grid, 256, 0, k);
    if (partial) AMP_LAUNCH((add_up<T>), amp_grid(k.cols, 256), 256, 0, k.sums, (int)k.zdt, (const T *)k.partial, k.cols, (int)lines);
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
