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
#include "math.cuh"
#include "mma.cuh"

namespace {

enum { TILE = 32, MOST_K = 256, MOST_SHARED = 48 << 10, THREADS = 128 };
enum { ONE, ALONG, ACROSS };  /* how an operand is read: element by element, 8 of a row, 8 of a column */
enum { TURNED = (TILE + 8) * 2 }; /* bytes from k to k of a tile that lies across */

enum { QUICK_K = 128, QUICK_PITCH = (QUICK_K + 8) * 2, QUICK_TILE = QUICK_K * TURNED };

typedef struct quick_job {
  const char *a, *b, *mask, *bias;
  char *c, *sums;
  int32_t aline, bline, mline, cline, m, n, k, relu;
} quick_job;

typedef struct quick_pair { quick_job first, second; int32_t rows; } quick_pair; /* rows: of blocks of the first one */

#if AMP_MMA
/* Ones in the halves of a word whose 16-bit float is above 0 or NaN */
template <bool BF> __device__ __forceinline__ unsigned above(unsigned y)
{
#ifndef AMP_EMULATED
  unsigned all;
  if constexpr (BF) { all = (__uint_as_float(y << 16) <= 0 ? 0 : 0xffffu) | (__uint_as_float(y & 0xffff0000u) <= 0 ? 0 : 0xffff0000u); }
  else { asm("set.gtu.u32.f16x2 %0, %1, %2;" : "=r"(all) : "r"(y), "r"(0)); }
  return all;
#else
  const unsigned worst = 0x8000u | (BF ? 0x7f80u : 0x7c00u), lo = y & 0xffffu, hi = y >> 16; /* minus infinity; NaN lie behind it */
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
template <bool BF> __device__ __forceinline__ void put_sum(float s, int m, int i0, char *sums)
{
  const int i = i0 + (threadIdx.x >> 2);
  s += __shfl_xor_sync(0xffffffffu, s, 1);
  s += __shfl_xor_sync(0xffffffffu, s, 2);
  if (blockIdx.x == 0 && (threadIdx.x & 3) == 0 && i < m) amp_store<float>(sums, BF ? AMP_BFLOAT16 : AMP_FLOAT16, i, s);
}

/* To have at hand, not to be made again wherever it is used */
template <class T> __device__ __forceinline__ void pin(T &v)
{
#ifndef AMP_EMULATED
  if constexpr (sizeof v == 8) { asm volatile("" : "+l"(v)); }
  else { asm volatile("" : "+r"(v)); }
#else
  (void)v;
#endif
}

/* Ask for a tile, as much of it as is there: no result that is stored has anything to do with the rest */
template <int HOW> __device__ __forceinline__ void ask(amp_at tile, const char *p, int line, int from, int rows, int k)
{
  const int high = threadIdx.x >> 2, low = (threadIdx.x & 3) * 8;
  if constexpr (HOW == ALONG) {
    if (from + high >= rows) return;
    p += (int64_t)(from + high) * line + low * 2;
    tile += high * QUICK_PITCH + low * 2;
    pin(p);
    pin(tile);
#pragma unroll
    for (int c = 0; c < QUICK_K; c += 32) if (low + c < k) amp_copy16(tile + c * 2, p + c * 2, true);
  } else {
    if (from + low >= rows) return;
    p += (int64_t)high * line + (from + low) * 2;
    tile += high * TURNED + low * 2;
    pin(p);
    pin(tile);
#pragma unroll
    for (int c = 0; c < QUICK_K; c += 32) {
      if (high + c < k) amp_copy16(tile + c * TURNED, p, true);
      p += (int64_t)line * 32;
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

/* 32 x 32 of c, from row i0 on; SUMS: of A's rows as well, A lying across */
template <bool BF, int A, int B, bool SUMS> __device__ __forceinline__ void quick(const quick_job &j, int i0)
{
  const int j0 = (int)blockIdx.x * TILE;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, rows = (warp >> 1) * 16, columns = (warp & 1) * 16;
  AMP_SHARED(char, shared);
  char *as = shared;
  amp_at at = amp_at_of(as), bt = at + QUICK_TILE;
  pin(at);
  ask<A>(at, j.a, j.aline, i0, j.m, j.k);
  ask<B>(bt, j.b, j.bline, j0, j.n, j.k);
  if (j.mask) ask<A>(bt + QUICK_TILE, j.mask, j.mline, i0, j.m, j.k);
  amp_copy_commit();
  int i = i0 + rows + (lane >> 2), l = j0 + columns + (lane & 3) * 2;
  pin(i);
  pin(l);
  unsigned bias[2] = { 0, 0 };
  if (!SUMS && j.bias) {
    if (l < j.n) bias[0] = *(const unsigned *)(j.bias + l * 2);
    if (l + 8 < j.n) bias[1] = *(const unsigned *)(j.bias + l * 2 + 16);
  }
  at += A == ACROSS ? rows * 2 + amp_lane_b(lane, TURNED) : rows * QUICK_PITCH + amp_lane_a(lane, QUICK_PITCH);
  bt += B == ACROSS ? columns * 2 + amp_lane_a(lane, TURNED) : columns * QUICK_PITCH + amp_lane_b(lane, QUICK_PITCH);
  int64_t to = (int64_t)i * j.cline + l * 2;
  int summed = (threadIdx.x & 3) * TURNED + (threadIdx.x >> 2) * 2; /* each fourth of a row of A: in the same order as above */
  pin(at);
  pin(bt);
  pin(to);
  if (SUMS) pin(summed);
  float c[2][4] = { { 0, 0, 0, 0 }, { 0, 0, 0, 0 } }, sum = 0;
  amp_copy_wait<0>();
  if (j.mask) quick_clear<BF, A>(as, as + 2 * QUICK_TILE, j.k);
  __syncthreads();
#pragma unroll
  for (int k0 = 0; k0 < QUICK_K; k0 += 64) {
    if (k0 && k0 >= j.k) break;
    unsigned x[4][4], y[4][4];
    unsigned mine[4][4];
#pragma unroll
    for (int s = 0; s < 4; s++) { /* behind k nobody looks at it */
      const int k = k0 + s * 16;
      if constexpr (A == ACROSS) { amp_ldmatrix_turned(x[s], at + k * TURNED); }
      else { amp_ldmatrix(x[s], at + k * 2); }
      if constexpr (B == ACROSS) { amp_ldmatrix_turned(y[s], bt + k * TURNED); }
      else { amp_ldmatrix(y[s], bt + k * 2); }
      if (SUMS && (s == 0 || k < j.k)) {
#pragma unroll
        for (int e = 0; e < 4; e++) mine[s][e] = *(const uint16_t *)(as + summed + (k + 4 * e) * TURNED);
      }
    }
    __syncwarp(); /* all are asked for before the first one is waited for */
#pragma unroll
    for (int s = 0; s < 4; s++)
      if (s == 0 || k0 + s * 16 < j.k) {
        amp_mma<BF>(c[0], x[s], y[s][0], y[s][1]);
        amp_mma<BF>(c[1], x[s], y[s][2], y[s][3]);
      }
    if (SUMS) {
#pragma unroll
      for (int s = 0; s < 4; s++)
        if (s == 0 || k0 + s * 16 < j.k) {
#pragma unroll
          for (int e = 0; e < 4; e++) sum += amp_of_half<BF>((uint16_t)mine[s][e]);
        }
    }
  }
#pragma unroll
  for (int t = 0; t < 2; t++) {
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      float v[2] = { c[t][e], c[t][e + 1] };
      if (!SUMS && j.bias) { v[0] += amp_of_half<BF>((uint16_t)bias[t]); v[1] += amp_of_half<BF>((uint16_t)(bias[t] >> 16)); }
      if (!SUMS && j.relu) { v[0] = v[0] < 0 ? 0.f : v[0]; v[1] = v[1] < 0 ? 0.f : v[1]; }
      unsigned both = amp_pack<BF>(v[0], v[1]);
      pin(both);
      if (i + e * 4 < j.m && l + t * 8 < j.n) *(unsigned *)(j.c + to + (int64_t)(e * 4) * j.cline + t * 16) = both;
    }
  }
  if (SUMS) put_sum<BF>(sum, j.m, i0, j.sums);
}
#endif

} // namespace
#endif
