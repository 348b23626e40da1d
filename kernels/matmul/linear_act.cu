/*
** linear_act.cu: backward of an activation and the bias's gradient in one pass:
** dz = grad * act'(saved) is written while its columns are summed.
**
** A thread has 8 columns and strides over rows, a few of which are on their way at
** once; a block adds its threads' sums and leaves a line of `partial`, which a second
** launch adds in order, so results repeat. Few rows need one line: narrow blocks of
** many rows write the sums themselves.
**
** 12 bytes an element are moved in float32 (gradient and saved value read, dz written), 6 in 16 bits; running sums
** stay in registers. Memory's speed bounds it.
*/
#include "common/kernel.cuh"
#include "common/math.cuh"
#include "common/raw.cuh"
#include "../src/cuda/cuda_gemm.h"

namespace {

enum {
  NO_ACT = -1,
  GELU_QUICK = ACT_COUNT, /* GELU_TANH of 16-bit values */
  N = 8,
  COLS = 256,
  THREADS = 256,
  WARPS = THREADS / 32,
  NARROW = 8,
  WIDE = 32,
  FEW = 512
};

/* Activations, a line an activation: a gradient g times the slope at s, what was kept */
/* clang-format off */
#define ACTS(ACT) \
  ACT(ACT_RELU, s <= 0 ? (T)0 : g) \
  ACT(ACT_GELU, g * amp_gelu_grad(s)) \
  ACT(ACT_GELU_TANH, g * amp_gelu_tanh_grad(s))
/* clang-format on */
#define ACT(act, formula) +1
static_assert(ACTS(ACT) == ACT_COUNT, "an activation of the op table has no formula here");
#undef ACT

template <class T> __device__ __forceinline__ T slope(int act, T g, T s)
{
  switch (act) {
#define ACT(act, formula) \
  case act: return formula;
    ACTS(ACT)
#undef ACT
  }
  AMP_NEVER();
}

typedef struct job {
  const char *g, *s;
  char *z, *sums;
  void *partial; /* [gridDim.y][cols], or NULL: this block has all rows */
  int64_t rows, cols;
  int32_t gdt, sdt, zdt, act, whole;
} job;

/* X threads beside each other */
template <int ACT, int X> __global__ void __launch_bounds__(THREADS, X == WIDE ? 4 : 2) columns(const job task)
{
  enum { Y = THREADS / X, W = X * N, R = X == WIDE && ACT >= 0 ? 2 : 4 };
  __shared__ float part[WARPS][W];
  const int x = threadIdx.x % X, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int64_t c = (int64_t)blockIdx.x * W + x * N;
  float sum[N];
#pragma unroll
  for (int j = 0; j < N; j++) sum[j] = 0;
  if (c < task.cols) {
    const int64_t step = (int64_t)gridDim.y * Y;
    for (int64_t r = (int64_t)blockIdx.y * Y + threadIdx.x / X; r < task.rows; r += step * R) {
      amp_raw gs[R] = {}, ss[R] = {};
#pragma unroll
      for (int i = 0; i < R; i++) {
        const int64_t row = r + i * step;
        if (row >= task.rows) continue;
        amp_ask(gs[i], task.g, task.gdt, row * task.cols + c);
        if (ACT >= 0) amp_ask(ss[i], task.s, task.sdt, row * task.cols + c);
      }
#pragma unroll
      for (int i = 0; i < R; i++) {
        const int64_t row = r + i * step;
        if (row >= task.rows) continue;
        float g[N], s[N];
        amp_take(g, gs[i], task.gdt);
        if (ACT >= 0) {
          amp_take(s, ss[i], task.sdt);
#pragma unroll
          for (int j = 0; j < N; j++)
            g[j] = (int)ACT == GELU_QUICK ? g[j] * amp_gelu_tanh_grad_of_half(s[j]) : slope(ACT, g[j], s[j]);
          amp_store_n<N>(task.z, task.zdt, row * task.cols + c, g);
          /* what is summed is what was written */
#pragma unroll
          for (int j = 0; j < N; j++) g[j] = amp_rounded(g[j], task.zdt);
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
  if (threadIdx.x >= W || c >= task.cols) return;
  float total = 0;
#pragma unroll
  for (int j = 0; j < WARPS; j++) total += part[j][threadIdx.x];
  if (task.partial) ((float *)task.partial)[(int64_t)blockIdx.y * task.cols + c] = total;
  else amp_store<float>(task.sums, task.zdt, c, total);
}

/* rows that can't be read 16 bytes at a time: a thread a column */
template <class T> __global__ void __launch_bounds__(256) columns_any(const job task)
{
  int64_t c = (int64_t)blockIdx.x * COLS + threadIdx.x;
  if (c >= task.cols) return;
  T sum = 0;
  for (int64_t r = blockIdx.y; r < task.rows; r += gridDim.y) {
    T g = amp_load<T>(task.g, task.gdt, r * task.cols + c);
    if (task.act >= 0) {
      g = slope(task.act, g, amp_load<T>(task.s, task.sdt, r * task.cols + c));
      amp_store<T>(task.z, task.zdt, r * task.cols + c, g);
      if (sizeof(T) == 4) g = (T)amp_rounded((float)g, task.zdt);
    }
    sum += g;
  }
  if (task.partial) ((T *)task.partial)[(int64_t)blockIdx.y * task.cols + c] = sum;
  else amp_store<T>(task.sums, task.zdt, c, sum);
}

/* 32 columns a block, a warp every 8th line; 8 lines of a thread at once */
template <class T>
__global__ void __launch_bounds__(THREADS) add_up(char *sums, int dtype, const T *partial, int64_t cols, int lines)
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
template <int ACT> static void sum_columns(dim3 grid, bool narrow, const job &task)
{
  if (narrow) AMP_LAUNCH((columns<ACT, NARROW>), grid, THREADS, 0, task);
  else AMP_LAUNCH((columns<ACT, WIDE>), grid, THREADS, 0, task);
}
static void sum_columns_of(int act, dim3 grid, bool narrow, const job &task)
{
  if (act == ACT_GELU_TANH && task.zdt != AMP_FLOAT32) act = GELU_QUICK;
  switch (act) {
#define ACT(act, formula) \
  case act: sum_columns<act>(grid, narrow, task); return;
    ACTS(ACT)
#undef ACT
  case GELU_QUICK: sum_columns<GELU_QUICK>(grid, narrow, task); return;
  case NO_ACT: sum_columns<NO_ACT>(grid, narrow, task);
  }
}

static bool short_float(int dtype) { return dtype == AMP_FLOAT32 || dtype == AMP_FLOAT16 || dtype == AMP_BFLOAT16; }

} // namespace

extern "C" {

int amp__cuda_columns(int act, const amp_tensor *grad, const amp_tensor *saved, amp_tensor *dz, amp_tensor *sums)
{
  job task;
  memset((void *)&task, 0, sizeof task);
  task.cols = sums->numel;
  task.rows = 1;
  for (int d = 0; d + 1 < grad->ndim; d++) task.rows *= grad->size[d];
  if (task.cols == 0) return 0;
  task.g = (const char *)amp__data(grad);
  task.gdt = grad->dtype;
  task.act = act;
  task.whole = task.cols % N == 0 && ((uintptr_t)task.g & 15) == 0;
  if (act >= 0) {
    task.s = (const char *)amp__data(saved);
    task.z = (char *)amp__data(dz);
    task.sdt = saved->dtype;
    task.whole = task.whole && (((uintptr_t)task.s | (uintptr_t)task.z) & 15) == 0;
  }
  task.zdt = sums->dtype;
  task.sums = (char *)amp__data(sums);
  task.whole = task.whole && short_float(task.gdt) && short_float(task.zdt) && (act < 0 || short_float(task.sdt));
  const bool narrow = task.whole && task.rows <= FEW;
  const int64_t width = narrow ? NARROW * N : COLS, many = (int64_t)amp__cuda_here()->sms * 4;
  unsigned strips = (unsigned)((task.cols + width - 1) / width), lines = 1;
  int64_t most = many / strips, wanted = (task.rows + 31) / 32;
  if (!narrow && task.rows > 128) lines = (unsigned)(wanted < most ? wanted : most < 1 ? 1 : most);
  if (lines > 1024) lines = 1024;
  return amp_by_float(task.zdt, [&](auto zero) {
    typedef decltype(zero) T;
    amp_tensor *partial = lines > 1 ? amp__cuda_scratch(sizeof(T) * (size_t)lines * (size_t)task.cols) : NULL;
    if (lines > 1 && !partial) return (int)AMP_E_MEMORY;
    task.partial = partial ? amp__data(partial) : NULL;
    dim3 grid(strips, lines);
    if (!task.whole) AMP_LAUNCH((columns_any<T>), grid, THREADS, 0, task);
    else sum_columns_of(act, grid, narrow, task);
    if (partial)
      AMP_LAUNCH((add_up<T>), (unsigned)((task.cols + 31) / 32), THREADS, 0, task.sums, (int)task.zdt,
                 (const T *)task.partial, task.cols, (int)lines);
    amp__free(partial);
    return 0;
  });
}

int amp__cuda_act_backward(amp_call *c)
{
  amp_tensor *z = c->out[0], *g = amp__cuda_dense(c->in[0], c->in[0]->dtype),
             *s = amp__cuda_dense(c->in[1], c->in[1]->dtype);
  int rc = g && s ? amp__cuda_columns((int)AMP_ARGS(c, act_backward)->act, g, s, z, c->out[1]) : AMP_E_MEMORY;
  amp__free(g);
  amp__free(s);
  return rc;
}
}
