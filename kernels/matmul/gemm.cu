/*
** gemm.cu: the plain matrix product: any strides, any dtype, float32 (float64,
** int64) sums. It is what cublasLt is checked against and what runs where that
** can't: integers, odd layouts, no cuBLAS. Tiles of 32 x 32 through shared memory,
** four results a thread; not meant to compete. add_few adds the few terms that a
** product with an odd sum (src/cuda/cuda_matmul.c) left out.
*/
#include "common/kernel.cuh"
#include "../src/cuda/cuda_gemm.h"

namespace {

enum { TILE = 32 };

template <class T> __global__ void __launch_bounds__(256) gemm(const amp_product product)
{
  __shared__ T tile_a[TILE][TILE + 1], tile_b[TILE][TILE + 1];
  int64_t batches = 1, tiles_n = (product.n + TILE - 1) / TILE, tiles_m = (product.m + TILE - 1) / TILE;
  for (int d = 0; d < product.nbatch; d++) batches *= product.size[d];
  for (int64_t tile = blockIdx.x; tile < tiles_m * tiles_n * batches; tile += gridDim.x) {
    int64_t batch = tile / (tiles_m * tiles_n), rest = tile - batch * tiles_m * tiles_n,
            first_row = rest / tiles_n * TILE, first_column = rest % tiles_n * TILE;
    int64_t at_a = 0, at_b = 0, at_c = 0;
    for (int d = product.nbatch - 1; d >= 0; d--) {
      int64_t q = batch / product.size[d], at = batch - q * product.size[d];
      at_a += at * product.as[d];
      at_b += at * product.bs[d];
      at_c += at * product.cs[d];
      batch = q;
    }
    int x = threadIdx.x & 31, y = threadIdx.x >> 5; /* 32 x 8 */
    T sum[4] = { 0, 0, 0, 0 };
    for (int64_t l0 = 0; l0 < product.k; l0 += TILE) {
      for (int q = y; q < TILE; q += 8) {
        int64_t i = first_row + q, l = l0 + x;
        tile_a[q][x] = i < product.m && l < product.k
                           ? amp_load<T>(product.a, product.dtype, at_a + i * product.ars + l * product.acs)
                           : T(0);
        int64_t lb = l0 + q, j = first_column + x;
        tile_b[q][x] = lb < product.k && j < product.n
                           ? amp_load<T>(product.b, product.dtype, at_b + lb * product.brs + j * product.bcs)
                           : T(0);
      }
      __syncthreads();
      for (int l = 0; l < TILE; l++) {
#pragma unroll
        for (int q = 0; q < 4; q++) sum[q] += tile_a[y + 8 * q][l] * tile_b[l][x];
      }
      __syncthreads();
    }
    for (int q = 0; q < 4; q++) {
      int64_t i = first_row + y + 8 * q, j = first_column + x;
      if (i < product.m && j < product.n)
        amp_store<T>(product.c, product.wide ? AMP_FLOAT32 : product.dtype, at_c + i * product.crs + j * product.ccs,
                     product.bias ? sum[q] + amp_load<T>(product.bias, product.dtype, j) : sum[q]);
    }
  }
}

/* Eight columns of a row a thread and turn */
__global__ void __launch_bounds__(256, 3) add_few(const amp_product product, const float *sum)
{
  enum { N = 8 };
  int64_t groups = (product.n + N - 1) / N;
  bool wide = product.bcs == 1 && product.brs % N == 0 && ((uintptr_t)product.b & 15) == 0;
  AMP_FOR(t, product.m * groups)
  {
    int64_t i = t / groups, first_column = (t - i * groups) * N;
    int most = product.n - first_column < N ? (int)(product.n - first_column) : N;
    float sums[N], row_of_b[N];
    bool whole = most == N && product.n % N == 0;
    if (whole) amp_load_n<N>(sums, sum, AMP_FLOAT32, i * product.n + first_column);
    else {
#pragma unroll
      for (int q = 0; q < N; q++) sums[q] = q < most ? sum[i * product.n + first_column + q] : 0;
    }
#pragma unroll 1
    for (int64_t l = 0; l < product.k; l++) {
      float a = amp_load<float>(product.a, product.dtype, i * product.ars + l * product.acs);
      if (whole && wide) amp_load_n<N>(row_of_b, product.b, product.dtype, l * product.brs + first_column);
      else {
#pragma unroll
        for (int q = 0; q < N; q++)
          row_of_b[q]
              = q < most ? amp_load<float>(product.b, product.dtype, l * product.brs + (first_column + q) * product.bcs)
                         : 0;
      }
#pragma unroll
      for (int q = 0; q < N; q++) sums[q] += a * row_of_b[q];
    }
    if (whole && product.ccs == 1 && product.crs % N == 0 && ((uintptr_t)product.c & 15) == 0)
      amp_store_n<N>(product.c, product.dtype, i * product.crs + first_column, sums);
    else {
#pragma unroll
      for (int q = 0; q < N; q++)
        if (q < most)
          amp_store<float>(product.c, product.dtype, i * product.crs + (first_column + q) * product.ccs, sums[q]);
    }
  }
}

} // namespace

extern "C" int amp__cuda_gemm_add(const amp_product *product, const float *sum)
{
  AMP_LAUNCH((add_few), amp_grid(product->m * ((product->n + 7) / 8), 256, 8), 256, 0, *product, sum);
  return 0;
}

extern "C" int amp__cuda_gemm_plain(const amp_product *product)
{
  int64_t batches = 1;
  for (int d = 0; d < product->nbatch; d++) batches *= product->size[d];
  if (product->m == 0 || product->n == 0 || batches == 0) return 0;
  int64_t tiles = ((product->m + TILE - 1) / TILE) * ((product->n + TILE - 1) / TILE) * batches;
  return amp_by_class(product->dtype, [&](auto zero) {
    typedef decltype(zero) T;
    AMP_LAUNCH((gemm<T>), amp_grid(tiles, 1, 8), 256, 0, *product);
    return 0;
  });
}
