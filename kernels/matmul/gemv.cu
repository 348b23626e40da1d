/*
** gemv.cu: products of a few rows (at most 4) of 16-bit numbers with a matrix whose columns lie along the inner
** dimension, as the weight of a layer does: a text model that makes one token after the other does little else.
**
** A warp, or four where columns are long, has a column: 16 bytes a lane and load, rows of `a` from the first level
** cache, sums in registers, then one shuffle. Every element of the matrix is read once and used M times, so memory
** bounds it: 2 k n bytes. What else counts is the time until the first bytes come: while the kernel before still runs,
** a block asks for its columns, which then lie in the second level cache (coherent, so whoever writes them last is
** heard), and only waits with what it reads into registers.
*/
#include "common/bits.cuh"
#include "common/math.cuh"
#include "../src/cuda/cuda_gemm.h"

namespace {

enum { THREADS = 256, WARPS = THREADS / 32, MOST = 4, LONG = 2048 };

typedef struct job {
  const char *a, *b, *bias;
  char *c, *aux;
  int64_t ars, bcs, crs, n;
  int m, vectors, epilogue, dtype; /* vectors: of 8 elements along the inner dimension */
} job;

__device__ __forceinline__ void put(const job &task, int i, int64_t column, float v)
{
  const int64_t at = i * task.crs + column;
  if (task.bias) v += amp_load<float>(task.bias, task.dtype, column);
  if (task.aux) amp_store<float>(task.aux, task.dtype, at, v);
  if (task.epilogue == AMP_EPI_RELU) v = v <= 0 ? 0.f : v;
  else if (task.epilogue == AMP_EPI_GELU) v = amp_gelu_tanh(v);
  amp_store<float>(task.c, task.dtype, at, v);
}

/* M rows of a; W warps a column */
template <int M, int W> __global__ void __launch_bounds__(THREADS) few_rows(const __grid_constant__ job task)
{
  __shared__ float sums[WARPS][M];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, part = warp % W;
  const int64_t column = (int64_t)blockIdx.x * (WARPS / W) + warp / W;
  const char *matrix = task.b + (column < task.n ? column : 0) * task.bcs * 2;
  if (part == 0 && lane == 0 && column < task.n) announce(matrix, task.vectors * 16);
  amp_let_next();
  amp_await();
  float sum[M];
#pragma unroll
  for (int i = 0; i < M; i++) sum[i] = 0;
#pragma unroll 4
  for (int at = part * 32 + lane; at < task.vectors; at += W * 32) {
    const bits<16> raw[1] = { fetch<16>(matrix, at, column < task.n) };
    float w[1][8], x[1][8];
    widen<2, 8, 1>(w, raw, task.dtype);
#pragma unroll
    for (int i = 0; i < M; i++) {
      const bits<16> row[1] = { fetch<16>(task.a + i * task.ars * 2, at, i < task.m) };
      widen<2, 8, 1>(x, row, task.dtype);
#pragma unroll
      for (int e = 0; e < 8; e++) sum[i] += w[0][e] * x[0][e];
    }
  }
#pragma unroll
  for (int i = 0; i < M; i++) sum[i] = amp_reduce_warp<amp_sum>(sum[i]);
  if (W > 1) {
    if (lane == 0) {
#pragma unroll
      for (int i = 0; i < M; i++) sums[warp][i] = sum[i];
    }
    __syncthreads();
  }
  if (part != 0 || lane >= task.m || column >= task.n) return;
  float v = 0;
  if (W > 1) {
    for (int other = 0; other < W; other++) v += sums[warp + other][lane];
  } else {
#pragma unroll
    for (int i = 0; i < M; i++) v = i == lane ? sum[i] : v;
  }
  put(task, lane, column, v);
}

template <int M> void launch(const job &task)
{
  if (task.vectors * 8 >= LONG) {
    const dim3 grid((unsigned)((task.n + WARPS / 4 - 1) / (WARPS / 4)));
    AMP_LAUNCH_NEXT(true, (few_rows<M, 4>), grid, dim3(THREADS), 0, task);
  } else {
    const dim3 grid((unsigned)((task.n + WARPS - 1) / WARPS));
    AMP_LAUNCH_NEXT(true, (few_rows<M, 1>), grid, dim3(THREADS), 0, task);
  }
}

} // namespace

extern "C" int amp__cuda_gemv(const amp_product *p)
{
  const bool relu = p->epilogue == AMP_EPI_RELU, gelu = p->epilogue == AMP_EPI_GELU;
  if (p->dtype != AMP_FLOAT16 && p->dtype != AMP_BFLOAT16) return 1;
  if (p->wide || p->mask || p->nbatch > 0 || p->m > MOST || p->m < 1 || p->n < 1 || p->n > INT32_MAX || p->k > 1 << 20)
    return 1;
  if (p->k % 8 != 0 || p->k < 8 || p->acs != 1 || p->brs != 1 || p->ccs != 1 || p->bcs % 8 != 0) return 1;
  if ((p->m > 1 && p->ars % 8 != 0) || (((uintptr_t)p->a | (uintptr_t)p->b) & 15) != 0) return 1;
  if (!(relu || gelu || p->epilogue == AMP_EPI_NONE || p->epilogue == AMP_EPI_BIAS)) return 1;
  job task = { p->a,
               p->b,
               p->bias,
               p->c,
               gelu ? p->aux : NULL,
               p->m > 1 ? p->ars : 0,
               p->bcs,
               p->m > 1 ? p->crs : 0,
               p->n,
               (int)p->m,
               (int)(p->k / 8),
               p->epilogue,
               p->dtype };
  if (task.m == 1) launch<1>(task);
  else if (task.m == 2) launch<2>(task);
  else launch<4>(task);
  return 0;
}
