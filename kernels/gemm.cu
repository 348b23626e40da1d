/*
** gemm.cu: the plain matrix product: any strides, any dtype, float32 (float64,
** int64) sums. It is what cublasLt is checked against and what runs where that
** can't: integers, odd layouts, no cuBLAS. Tiles of 32 x 32 through shared memory,
** four results a thread; not meant to compete. add_few adds the few terms that a
** product with an odd sum (src/cuda/cuda_matmul.c) left out.
*/
#include "kernel.cuh"
#include "../src/cuda/cuda_gemm.h"

namespace {

enum { TILE = 32 };

template <class T> __global__ void __launch_bounds__(256) gemm(const amp_product p)
{
  __shared__ T as[TILE][TILE + 1], bs[TILE][TILE + 1];
  int64_t batches = 1, tiles_n = (p.n + TILE - 1) / TILE, tiles_m = (p.m + TILE - 1) / TILE;
  for (int d = 0; d < p.nbatch; d++) batches *= p.size[d];
  for (int64_t t = blockIdx.x; t < tiles_m * tiles_n * batches; t += gridDim.x) {
    int64_t z = t / (tiles_m * tiles_n), r = t - z * tiles_m * tiles_n, i0 = r / tiles_n * TILE, j0 = r % tiles_n * TILE;
    int64_t a = 0, b = 0, c = 0;
    for (int d = p.nbatch - 1; d >= 0; d--) {
      int64_t q = z / p.size[d], at = z - q * p.size[d];
      a += at * p.as[d];
      b += at * p.bs[d];
      c += at * p.cs[d];
      z = q;
    }
    int x = threadIdx.x & 31, y = threadIdx.x >> 5; /* 32 x 8 */
    T sum[4] = { 0, 0, 0, 0 };
    for (int64_t l0 = 0; l0 < p.k; l0 += TILE) {
      for (int q = y; q < TILE; q += 8) {
        int64_t i = i0 + q, l = l0 + x;
        as[q][x] = i < p.m && l < p.k ? amp_load<T>(p.a, p.dtype, a + i * p.ars + l * p.acs) : T(0);
        int64_t lb = l0 + q, j = j0 + x;
        bs[q][x] = lb < p.k && j < p.n ? amp_load<T>(p.b, p.dtype, b + lb * p.brs + j * p.bcs) : T(0);
      }
      __syncthreads();
      for (int l = 0; l < TILE; l++) {
#pragma unroll
        for (int q = 0; q < 4; q++) sum[q] += as[y + 8 * q][l] * bs[l][x];
      }
      __syncthreads();
    }
    for (int q = 0; q < 4; q++) {
      int64_t i = i0 + y + 8 * q, j = j0 + x;
      if (i < p.m && j < p.n)
        amp_store<T>(p.c, p.wide ? AMP_FLOAT32 : p.dtype, c + i * p.crs + j * p.ccs, p.bias ? sum[q] + amp_load<T>(p.bias, p.dtype, j) : sum[q]);
    }
  }
}

/* Eight columns of a row a thread and turn */
__global__ void __launch_bounds__(256, 3) add_few(const amp_product p, const float *sum)
{
  enum { N = 8 };
  int64_t groups = (p.n + N - 1) / N;
  bool wide = p.bcs == 1 && p.brs % N == 0 && ((uintptr_t)p.b & 15) == 0;
  AMP_FOR(t, p.m * groups) {
    int64_t i = t / groups, j0 = (t - i * groups) * N;
    int most = p.n - j0 < N ? (int)(p.n - j0) : N;
    float v[N], b[N];
    bool whole = most == N && p.n % N == 0;
    if (whole) amp_load_n<N>(v, sum, AMP_FLOAT32, i * p.n + j0);
    else {
#pragma unroll
      for (int q = 0; q < N; q++) v[q] = q < most ? sum[i * p.n + j0 + q] : 0;
    }
#pragma unroll 1
    for (int64_t l = 0; l < p.k; l++) {
      float a = amp_load<float>(p.a, p.dtype, i * p.ars + l * p.acs);
      if (whole && wide) amp_load_n<N>(b, p.b, p.dtype, l * p.brs + j0);
      else {
#pragma unroll
        for (int q = 0; q < N; q++) b[q] = q < most ? amp_load<float>(p.b, p.dtype, l * p.brs + (j0 + q) * p.bcs) : 0;
      }
#pragma unroll
      for (int q = 0; q < N; q++) v[q] += a * b[q];
    }
    if (whole && p.ccs == 1 && p.crs % N == 0 && ((uintptr_t)p.c & 15) == 0) amp_store_n<N>(p.c, p.dtype, i * p.crs + j0, v);
    else {
#pragma unroll
      for (int q = 0; q < N; q++) if (q < most) amp_store<float>(p.c, p.dtype, i * p.crs + (j0 + q) * p.ccs, v[q]);
    }
  }
}

} // namespace

extern "C" int amp__cuda_gemm_add(const amp_product *p, const float *sum)
{
  AMP_LAUNCH((add_few), amp_grid(p->m * ((p->n + 7) / 8), 256, 8), 256, 0, *p, sum);
  return 0;
}

extern "C" int amp__cuda_gemm_plain(const amp_product *p)
{
  int64_t batches = 1;
  for (int d = 0; d < p->nbatch; d++) batches *= p->size[d];
  if (p->m == 0 || p->n == 0 || batches == 0) return 0;
  int64_t tiles = ((p->m + TILE - 1) / TILE) * ((p->n + TILE - 1) / TILE) * batches;
  return amp_by_class(p->dtype, [&](auto zero) {
    typedef decltype(zero) T;
    AMP_LAUNCH((gemm<T>), amp_grid(tiles, 1, 8), 256, 0, *p);
    return 0;
  });
}
