/*
** gemm_quick.cuh: blocks of small 16-bit products (gemm_small.cu) whose matrices are
** as layers' mostly are, in few instructions: for what a step of a small net waits is
** mostly a block's own time, not the card's.
**
** Both operands without gaps along one dimension, k a multiple of 16, rows of c at
** even places, offsets that 32 bits hold. Lines are what lies beside each other:
** rows (ALONG) or columns (ACROSS); all offsets are bytes. How operands lie is known
** when it is translated, and tiles have a fixed pitch, so nothing is computed
** between the barrier and the products. The order of all sums is gemm_small.cu's,
** and so are the bits.
*/
#ifndef AMP_GEMM_QUICK_CUH
#define AMP_GEMM_QUICK_CUH
#include "common/kernel.cuh"
#include "common/math.cuh"
#include "common/mma.cuh"

namespace {

enum { TILE = 32, MOST_K = 256, MOST_SHARED = 48 << 10, THREADS = 128 };
enum { ONE, ALONG, ACROSS };      /* how an operand is read: element by element, 8 of a row, 8 of a column */
enum { TURNED = (TILE + 8) * 2 }; /* bytes from k to k of a tile that lies across */

enum { QUICK_K = 128, QUICK_PITCH = (QUICK_K + 8) * 2, QUICK_TILE = QUICK_K * TURNED };

typedef struct quick_job {
  const char *a, *b, *mask, *bias;
  char *c, *sums;
  int32_t aline, bline, mline, cline, m, n, k, relu;
} quick_job;

typedef struct quick_pair {
  quick_job first, second;
  int32_t rows;
} quick_pair; /* rows: of blocks of the first one */

#if AMP_MMA
/* Ones in the halves of a word whose 16-bit float is above 0 or NaN */
template <bool BF> __device__ __forceinline__ unsigned above(unsigned y)
{
#ifndef AMP_EMULATED
  unsigned all;
  if constexpr (BF) {
    all = (__uint_as_float(y << 16) <= 0 ? 0 : 0xffffu) | (__uint_as_float(y & 0xffff0000u) <= 0 ? 0 : 0xffff0000u);
  } else {
    asm("set.gtu.u32.f16x2 %0, %1, %2;" : "=r"(all) : "r"(y), "r"(0));
  }
  return all;
#else
  const unsigned worst = 0x8000u | (BF ? 0x7f80u : 0x7c00u), lo = y & 0xffffu,
                 hi = y >> 16; /* minus infinity; NaN lie behind it */
  return (lo - 1 < 0x7fffu || lo > worst ? 0xffffu : 0) | (hi - 1 < 0x7fffu || hi > worst ? 0xffff0000u : 0);
#endif
}

/* What the mask y lets through */
template <bool BF> __device__ __forceinline__ uint4 let(uint4 v, uint4 y)
{
  v.x &= above<BF>(y.x);
  v.y &= above<BF>(y.y);
  v.z &= above<BF>(y.z);
  v.w &= above<BF>(y.w);
  return v;
}

/* From the sums of each fourth of a row that of all, by the first of the blocks that have it: four threads a row */
template <bool BF> __device__ __forceinline__ void put_sum(float s, int m, int first_row, char *sums)
{
  const int i = first_row + (threadIdx.x >> 2);
  s += __shfl_xor_sync(0xffffffffu, s, 1);
  s += __shfl_xor_sync(0xffffffffu, s, 2);
  if (blockIdx.x == 0 && (threadIdx.x & 3) == 0 && i < m) amp_store<float>(sums, BF ? AMP_BFLOAT16 : AMP_FLOAT16, i, s);
}

/* To have at hand, not to be made again wherever it is used */
template <class T> __device__ __forceinline__ void pin(T &v)
{
#ifndef AMP_EMULATED
  if constexpr (sizeof v == 8) {
    asm volatile("" : "+l"(v));
  } else {
    asm volatile("" : "+r"(v));
  }
#else
  (void)v;
#endif
}

/* Ask for a tile, as much of it as is there: no result that is stored has anything to do with the rest */
template <int HOW>
__device__ __forceinline__ void ask(amp_at tile, const char *matrix, int line, int from, int rows, int k)
{
  const int high = threadIdx.x >> 2, low = (threadIdx.x & 3) * 8;
  if constexpr (HOW == ALONG) {
    if (from + high >= rows) return;
    matrix += (int64_t)(from + high) * line + low * 2;
    tile += high * QUICK_PITCH + low * 2;
    pin(matrix);
    pin(tile);
#pragma unroll
    for (int c = 0; c < QUICK_K; c += 32)
      if (low + c < k) amp_copy16(tile + c * 2, matrix + c * 2, true);
  } else {
    if (from + low >= rows) return;
    matrix += (int64_t)high * line + (from + low) * 2;
    tile += high * TURNED + low * 2;
    pin(matrix);
    pin(tile);
#pragma unroll
    for (int c = 0; c < QUICK_K; c += 32) {
      if (high + c < k) amp_copy16(tile + c * TURNED, matrix, true);
      matrix += (int64_t)line * 32;
    }
  }
}

/* The same of it, where the mask says so */
template <bool BF, int HOW> __device__ __forceinline__ void quick_clear(char *tile, const char *mask, int k)
{
  enum { NEXT = HOW == ALONG ? 64 : 32 * TURNED }; /* bytes to what the thread asked for next */
  const int high = threadIdx.x >> 2, low = (threadIdx.x & 3) * 8;
  int at = HOW == ALONG ? high * QUICK_PITCH + low * 2 : high * TURNED + low * 2;
#pragma unroll 1
  for (int c = HOW == ALONG ? low : high; c < k; c += 64, at += 2 * NEXT) {
    const bool two = c + 32 < k;
    uint4 v = *(uint4 *)(tile + at), y = *(const uint4 *)(mask + at), v2 = v, y2 = y;
    if (two) {
      v2 = *(uint4 *)(tile + at + NEXT);
      y2 = *(const uint4 *)(mask + at + NEXT);
    }
    *(uint4 *)(tile + at) = let<BF>(v, y);
    if (two) *(uint4 *)(tile + at + NEXT) = let<BF>(v2, y2);
  }
}

/* Where a thread's values lie in the tiles and in c: this lane's addresses for ldmatrix in A's and B's tile, the first
** row and column of c it has, their offset there, and its fourth of a row of A's tile, for the sums */
struct quick_place {
  amp_at a, b;
  int row, column, summed;
  int64_t to;
};

/* Asks for all tiles and computes, while they are on their way, where this thread's values lie. i0, j0: the block's
** first row and column of c */
template <int A, int B, bool SUMS>
__device__ __forceinline__ quick_place quick_begin(const quick_job &task, amp_at tiles, int first_row, int first_column)
{
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, rows = (warp >> 1) * 16, columns = (warp & 1) * 16;
  quick_place own;
  own.a = tiles;
  own.b = own.a + QUICK_TILE;
  pin(own.a);
  ask<A>(own.a, task.a, task.aline, first_row, task.m, task.k);
  ask<B>(own.b, task.b, task.bline, first_column, task.n, task.k);
  if (task.mask) ask<A>(own.b + QUICK_TILE, task.mask, task.mline, first_row, task.m, task.k);
  amp_copy_commit();
  own.row = first_row + rows + (lane >> 2);
  own.column = first_column + columns + (lane & 3) * 2;
  pin(own.row);
  pin(own.column);
  own.a += A == ACROSS ? rows * 2 + amp_lane_b(lane, TURNED) : rows * QUICK_PITCH + amp_lane_a(lane, QUICK_PITCH);
  own.b += B == ACROSS ? columns * 2 + amp_lane_a(lane, TURNED) : columns * QUICK_PITCH + amp_lane_b(lane, QUICK_PITCH);
  own.to = (int64_t)own.row * task.cline + own.column * 2;
  own.summed = (threadIdx.x & 3) * TURNED + (threadIdx.x >> 2) * 2; /* in the same order as gemm_small.cu's */
  pin(own.a);
  pin(own.b);
  pin(own.to);
  if (SUMS) pin(own.summed);
  return own;
}

/* c += the product of 64 of the inner dimension, from k0 on; SUMS: sum += this thread's values of A there. All
** fragments are asked for before the first one is waited for. */
template <bool BF, int A, int B, bool SUMS>
__device__ __forceinline__ void quick_product(float (&c)[2][4], float &sum, const quick_place &own, const char *tile_a,
                                              int k0, int depth)
{
  unsigned x[4][4], y[4][4], mine[4][4];
#pragma unroll
  for (int s = 0; s < 4; s++) { /* what lies behind depth is not read */
    const int k = k0 + s * 16;
    if constexpr (A == ACROSS) {
      amp_ldmatrix_turned(x[s], own.a + k * TURNED);
    } else {
      amp_ldmatrix(x[s], own.a + k * 2);
    }
    if constexpr (B == ACROSS) {
      amp_ldmatrix_turned(y[s], own.b + k * TURNED);
    } else {
      amp_ldmatrix(y[s], own.b + k * 2);
    }
    if (SUMS && (s == 0 || k < depth)) {
#pragma unroll
      for (int e = 0; e < 4; e++) mine[s][e] = *(const uint16_t *)(tile_a + own.summed + (k + 4 * e) * TURNED);
    }
  }
  __syncwarp();
#pragma unroll
  for (int s = 0; s < 4; s++)
    if (s == 0 || k0 + s * 16 < depth) {
      amp_mma<BF>(c[0], x[s], y[s][0], y[s][1]);
      amp_mma<BF>(c[1], x[s], y[s][2], y[s][3]);
    }
  if (SUMS) {
#pragma unroll
    for (int s = 0; s < 4; s++)
      if (s == 0 || k0 + s * 16 < depth) {
#pragma unroll
        for (int e = 0; e < 4; e++) sum += amp_of_half<BF>((uint16_t)mine[s][e]);
      }
  }
}

/* This thread's 8 values to memory, with the bias and ReLU of products without SUMS; bias: of two pairs of columns */
template <bool BF, bool SUMS>
__device__ __forceinline__ void quick_put(const quick_job &task, const float (&c)[2][4], const unsigned (&bias)[2],
                                          const quick_place &own)
{
#pragma unroll
  for (int t = 0; t < 2; t++) {
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      float v[2] = { c[t][e], c[t][e + 1] };
      if (!SUMS && task.bias) {
        v[0] += amp_of_half<BF>((uint16_t)bias[t]);
        v[1] += amp_of_half<BF>((uint16_t)(bias[t] >> 16));
      }
      if (!SUMS && task.relu) {
        v[0] = v[0] < 0 ? 0.f : v[0];
        v[1] = v[1] < 0 ? 0.f : v[1];
      }
      unsigned both = amp_pack<BF>(v[0], v[1]);
      pin(both);
      if (own.row + e * 4 < task.m && own.column + t * 8 < task.n)
        *(unsigned *)(task.c + own.to + (int64_t)(e * 4) * task.cline + t * 16) = both;
    }
  }
}

/* 32 x 32 of c, from row i0 on: a warp 16 x 16; SUMS: of A's rows as well, A lying across. Shared memory: A's tile,
** B's, the mask's */
template <bool BF, int A, int B, bool SUMS> __device__ __forceinline__ void quick(const quick_job &task, int first_row)
{
  AMP_SHARED(char, shared);
  const quick_place own = quick_begin<A, B, SUMS>(task, amp_at_of(shared), first_row, (int)blockIdx.x * TILE);
  unsigned bias[2] = { 0, 0 };
  if (!SUMS && task.bias) {
    if (own.column < task.n) bias[0] = *(const unsigned *)(task.bias + own.column * 2);
    if (own.column + 8 < task.n) bias[1] = *(const unsigned *)(task.bias + own.column * 2 + 16);
  }
  float c[2][4] = { { 0, 0, 0, 0 }, { 0, 0, 0, 0 } }, sum = 0;
  amp_copy_wait<0>();
  if (task.mask) quick_clear<BF, A>(shared, shared + 2 * QUICK_TILE, task.k);
  __syncthreads();
#pragma unroll
  for (int k0 = 0; k0 < QUICK_K; k0 += 64) {
    if (k0 && k0 >= task.k) break;
    quick_product<BF, A, B, SUMS>(c, sum, own, shared, k0, task.k);
  }
  quick_put<BF, SUMS>(task, c, bias, own);
  if (SUMS) put_sum<BF>(sum, task.m, first_row, task.sums);
}
#endif

} // namespace
#endif
