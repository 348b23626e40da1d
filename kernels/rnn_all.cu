/*
** rnn_all.cu: all steps of a recurrent layer in one launch, on cards with tensor cores,
** where the layer's weights fit the registers of the whole card.
**
** A block keeps its part of the weights in registers from the first step to the last, so
** that a step reads states alone: from the L2 cache, where the other blocks leave them.
** All blocks are on the card at once (a cooperative launch). No block says that it has
** got to somewhere: a value says so itself. States and gradients are filled with ABSENT
** before, a bit pattern that no conversion and no sum makes, and read until they are
** something else; an exchanged sum's last bit says of which step it is. So nothing need
** be ordered, and a step takes one way to the L2 cache and back.
**
** Forward a block has 8 hidden values, all their gates and the whole sum, which its warps
** share out. Backward the sum is gates times longer: a block has 64 columns of the
** result and a part of the sum; the blocks of the same columns exchange what they have
** and each finishes some of the rows.
**
** A float32 value is the sum of two whose mantissas have 11 bits; of the four products of
** two such values the smallest is left out, some 2^-23 of the whole. Eight products are
** added up by the tensor core, which cuts off what is behind the last bit, and such sums
** by additions that round: as exact as additions of all (Ootomo and Yokota, 2022).
**
** On the emulator, where blocks run one after the other, each step is a launch of its own.
*/
#include "mma.cuh"
#include "rnn.cuh"
#include "../src/cuda/cuda_gemm.h"

namespace {

enum {
  WARPS = 8, THREADS = WARPS * 32,
  PIECE = 32,           /* values of a sum, of which a lane has 8 of each row */
  COLS = 8,             /* forward: hidden values of a block */
  BACK_COLS = 64,       /* backward: columns of a block */
  PITCH = BACK_COLS + 8 /* of a row of sums in shared memory, so that 4 rows lie in different banks */
};
#define ABSENT 0xffffffffu /* two 16-bit floats or a float32 that are not there yet: NaNs, but a NaN that is made is 7fff or 7fffffff */

/* How a launch shares out a layer: rows a block / 16, pieces of the sum for a warp, blocks that share a sum */
typedef struct amp_rnn_share { int32_t rows, pieces, parts; float *sums; } amp_rnn_share;

#if AMP_MMA
/* -- What blocks tell each other ------------------------------------------------------------- */

/* past the L1 cache, which nobody tells */
__device__ __forceinline__ void read(uint4 &v, const void *p)
{
#ifdef AMP_EMULATED
  v = *(const uint4 *)p;
#else
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
#endif
}

__device__ __forceinline__ void read(uint2 &v, const void *p)
{
#ifdef AMP_EMULATED
  v = *(const uint2 *)p;
#else
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
#endif
}

__device__ __forceinline__ void write(void *p, const uint4 &v)
{
#ifdef AMP_EMULATED
  *(uint4 *)p = v;
#else
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1,%2,%3,%4};" :: "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
#endif
}

__device__ __forceinline__ void write(void *p, const uint2 &v)
{
#ifdef AMP_EMULATED
  *(uint2 *)p = v;
#else
  asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1,%2};" :: "l"(p), "r"(v.x), "r"(v.y) : "memory");
#endif
}

__device__ __forceinline__ void write(void *p, unsigned v)
{
#ifdef AMP_EMULATED
  *(unsigned *)p = v;
#else
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" :: "l"(p), "r"(v) : "memory");
#endif
}

/* Is a part of it absent? */
__device__ __forceinline__ bool absent(const uint4 &v)
{
#ifdef AMP_EMULATED
  (void)v;
  return false;
#else
  return max(max(v.x, v.y), max(v.z, v.w)) == ABSENT;
#endif
}

/* The last bit of float32 sums of step n, from 1 on: memory is used at every second step, and is 0 before */
__device__ __forceinline__ unsigned bit_of(int64_t n) { return (unsigned)(n + 1) >> 1 & 1; }
__device__ __forceinline__ unsigned marked(float sum, unsigned bit) { return (__float_as_uint(sum) & ~1u) | bit; }

/* N values (of 8 or 16 bytes) of each lane, at from(e) (NULL: zeros); missing(v): v is not there yet. LATE: they hardly ever are at first.
** While one waits for the rest of a warp's values others need the way to memory, so one lane asks again, for one */
template <bool LATE, int N, class V, class FROM, class MISSING> __device__ __forceinline__ void gather(V (&v)[N], FROM from, MISSING missing)
{
  const int lane = threadIdx.x & 31;
  unsigned miss = ~0u; /* a bit for each */
  if (LATE && N > 4) {
    if (lane == 0 && from(0)) {
      do read(v[0], from(0));
      while (missing(v[0]));
    }
    __syncwarp();
  }
  for (;;) {
#pragma unroll
    for (int e = 0; e < N; e++) {
      if (!(miss >> e & 1)) continue;
      v[e] = V{};
      if (from(e)) read(v[e], from(e));
    }
    miss = 0;
#pragma unroll
    for (int e = 0; e < N; e++) if (from(e) && missing(v[e])) miss |= 1u << e;
    const unsigned who = __ballot_sync(~0u, miss != 0);
    if (who == 0) break;
    if (LATE && lane == __ffs((int)who) - 1) {
      const char *one = from(0);
      V u;
#pragma unroll
      for (int e = 1; e < N; e++) if (miss >> e & 1) one = from(e);
      do read(u, one);
      while (missing(u));
    }
    __syncwarp();
  }
}

/* -- Dtypes ---------------------------------------------------------------------------------- */

#endif

/* Bytes of a value; pieces of a sum for a warp at most, forward and backward; sets that 64 rows of a block are */
template <int D> struct amp_rnn_limits { enum { WIDE = 2, PIECES = 4, BACK_PIECES = 2, SETS = 2 }; };
template <> struct amp_rnn_limits<AMP_FLOAT32> { enum { WIDE = 4, PIECES = 2, BACK_PIECES = 1, SETS = 4 }; };

#if AMP_MMA
/* pair: two values beside each other as they lie in memory. A lane has 8 values of a row of a piece, in FETCHES times 16 bytes, and 8
** weights of a column */
template <int D> struct kind : amp_rnn_limits<D> {
  enum { FETCHES = 1, HOW = RNN_QUICK };
  static constexpr bool BF = D == AMP_BFLOAT16;
  typedef unsigned pair;
  typedef uint4 weights;
  static __device__ __forceinline__ pair pack(float a, float b) { return amp_pack<BF>(a, b); }
  static __device__ __forceinline__ float first(pair v) { return amp_of_half<BF>((uint16_t)(v & 0xffffu)); }
  static __device__ __forceinline__ float second(pair v) { return amp_of_half<BF>((uint16_t)(v >> 16)); }
  static __device__ __forceinline__ weights beside(const char *p) { return *(const uint4 *)p; }
  static __device__ __forceinline__ weights apart(const char *p, int64_t by)
  {
    const auto two = [&](int i) { return (unsigned)((const uint16_t *)p)[i * by] | (unsigned)((const uint16_t *)p)[(i + 1) * by] << 16; };
    return make_uint4(two(0), two(2), two(4), two(6));
  }
  static __device__ __forceinline__ weights none(void) { return make_uint4(0, 0, 0, 0); }
  /* c += a piece of a sum: u, v: of rows g and g + 8 */
  static __device__ __forceinline__ void product(float (&c)[4], const uint4 *u, const uint4 *v, const weights &w) { amp_mma32<BF>(c, *u, *v, w); }
};

template <> struct kind<AMP_FLOAT32> : amp_rnn_limits<AMP_FLOAT32> {
  enum { FETCHES = 2, HOW = RNN_NEAR };
  typedef uint2 pair;
  typedef struct { unsigned high[8], low[8]; } weights;
  static __device__ __forceinline__ pair pack(float a, float b) { return make_uint2(__float_as_uint(a), __float_as_uint(b)); }
  static __device__ __forceinline__ float first(pair v) { return __uint_as_float(v.x); }
  static __device__ __forceinline__ float second(pair v) { return __uint_as_float(v.y); }
  /* The first 11 bits of the mantissa, and the rest rounded to as many (a tensor core looks at no more); of what is not finite: 0 */
  static __device__ __forceinline__ void split(unsigned v, unsigned &high, unsigned &low)
  {
    const float x = __uint_as_float(v);
    high = v & ~0x1fffu;
    low = fabsf(x) < INFINITY ? __float_as_uint(x - __uint_as_float(high)) + 0x1000u : 0u;
  }
  static __device__ __forceinline__ weights beside(const char *p) { return apart(p, 1); }
  static __device__ __forceinline__ weights apart(const char *p, int64_t by)
  {
    weights w;
#pragma unroll
    for (int i = 0; i < 8; i++) split(((const unsigned *)p)[i * by], w.high[i], w.low[i]);
    return w;
  }
  static __device__ __forceinline__ weights none(void)
  {
    weights w;
#pragma unroll
    for (int i = 0; i < 8; i++) w.high[i] = w.low[i] = 0;
    return w;
  }
  static __device__ __forceinline__ void product(float (&c)[4], const uint4 *u, const uint4 *v, const weights &w)
  {
    const unsigned a[8] = { u[0].x, u[0].y, u[0].z, u[0].w, u[1].x, u[1].y, u[1].z, u[1].w };
    const unsigned b[8] = { v[0].x, v[0].y, v[0].z, v[0].w, v[1].x, v[1].y, v[1].z, v[1].w };
    float rest[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      unsigned high[4], low[4];
      float sum[4] = { 0, 0, 0, 0 };
#pragma unroll
      for (int e = 0; e < 2; e++) {
        split(a[i + e], high[2 * e], low[2 * e]);
        split(b[i + e], high[2 * e + 1], low[2 * e + 1]);
      }
      amp_mma_tf32(sum, high, w.high[i], w.high[i + 1]);
      amp_mma_tf32(rest, low, w.high[i], w.high[i + 1]);
      amp_mma_tf32(rest, high, w.low[i], w.low[i + 1]);
#pragma unroll
      for (int e = 0; e < 4; e++) c[e] += sum[e];
    }
#pragma unroll
    for (int e = 0; e < 4; e++) c[e] += fabsf(rest[e]) < INFINITY ? rest[e] : 0.f; /* an infinite value times a rest of 0 is NaN */
  }
};

/* Of `all` pieces those of this warp */
__device__ __forceinline__ int pieces_here(const amp_rnn_share &d, int all)
{
  const int left = all - (int)(threadIdx.x >> 5) * d.pieces;
  return left < 0 ? 0 : left < d.pieces ? left : d.pieces;
}

#endif

/* -- Forward --------------------------------------------------------------------------------- */

/* G gates; steps from .. to - 1. A block's rows are SETS sets of MT * 16, which know nothing of each other: while the states of one
** are on their way another's step is made. Of a set, four threads finish a row, each two hidden values. A step's time is the number
** of instructions from a state to the next: addresses are moved on rather than computed, and what can wait comes behind the result */
template <int D, int G, int MT, int SETS> __global__ void __launch_bounds__(THREADS, 1) ahead_all(const amp_rnn k, const amp_rnn_share d, int64_t from, int64_t to)
{
#if AMP_MMA
  typedef kind<D> K;
  typedef typename K::pair pair;
  constexpr int SIZE = MT * 16 * COLS, TILES = MT * 2, PIECES = K::PIECES, F = K::FETCHES, WIDE = K::WIDE; /* SIZE: values of a gate; TILES: rows of a lane in a product */
  const int mode = G == 4 ? AMP_RNN_LSTM : G == 3 ? AMP_RNN_GRU : k.mode == AMP_RNN_RELU ? AMP_RNN_RELU : AMP_RNN_TANH;
  AMP_SHARED(float, memory);                           /* of each set, of a single one twice: warps x G gates x rows x columns */
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3, h = (int)k.h, here = pieces_here(d, h / PIECE);
  const int64_t first = (int64_t)blockIdx.y * (SETS * MT * 16), col = (int64_t)blockIdx.x * COLS, j = col + t * 2;
  const int64_t begin = k.reverse ? k.t - 1 - from : from, on = k.reverse ? -k.n : k.n; /* rows from a step to the next */

  typename K::weights w[PIECES][G];
#pragma unroll
  for (int p = 0; p < PIECES; p++) {
#pragma unroll
    for (int q = 0; q < G; q++) w[p][q] = p < here ? K::beside(k.w + ((q * k.h + col + g) * k.h + (warp * d.pieces + p) * PIECE + t * 8) * WIDE) : K::none();
  }
  float bias[G][2], own[2] = { 0, 0 }; /* own: of a GRU's last gate, the state's */
#pragma unroll
  for (int e = 0; e < 2; e++) {
#pragma unroll
    for (int q = 0; q < G; q++) {
      const float x = k.bi ? amp_load<float>(k.bi, D, q * k.h + j + e) : 0.f, u = k.bh ? amp_load<float>(k.bh, D, q * k.h + j + e) : 0.f;
      const bool apart = G == 3 && q == 2;
      bias[q][e] = apart ? x : x + u;
      if (apart) own[e] = u;
    }
  }
  /* The sets' rows are other warps': a thread finishes two values of one set */
  const int mine = threadIdx.x / (THREADS / SETS), place = threadIdx.x % (THREADS / SETS), r = place >> 2;
  const int64_t row = r < MT * 16 && first + mine * (MT * 16) + r < k.n ? first + mine * (MT * 16) + r : -1; /* < 0: none */
  const int64_t start = begin * k.n + (row < 0 ? 0 : row);
  const char *input = k.xg + (start * k.g + j) * WIDE;
  char *result = k.y + (start * k.h + j) * WIDE;
  float *reserve = (float *)k.reserve + start * k.rs + j, before[2];
  pair x[G]; /* the input's part, asked for a step ahead */
  const auto ask = [&]() {
#pragma unroll
    for (int q = 0; q < G; q++) x[q] = *(const pair *)(input + (int64_t)q * h * WIDE);
  };
  ask();
  const amp_rnn_step initial = { 0, 0, begin * k.n - on, from ? k.n : 0, 0, 0, 0, 0 }; /* as far as rnn_before asks */
#pragma unroll
  for (int e = 0; e < 2; e++) before[e] = row < 0 ? 0.f : rnn_before<float>(k, initial, row, j + e);
  /* where this lane's values begin among the states; rows that are not there: any other. Of two sets they are kept */
  const auto lead = [&](int set, int e) {
    const int64_t i = first + set * (MT * 16) + g + e * 8;
    return (unsigned)(((i < k.n ? i : k.n - 1) * k.h + warp * d.pieces * PIECE + t * 8) * WIDE);
  };
  unsigned kept[2][TILES];
#pragma unroll
  for (int e = 0; e < TILES; e++) {
    kept[0][e] = lead(0, e);
    kept[1][e] = lead(1, e);
  }
  const char *states = from == 0 ? k.h0 : k.y + (begin * k.n - on) * k.h * WIDE;

  for (int64_t n = from; n < to; n++) {
#pragma unroll 1
    for (int set = 0; set < SETS; set++) { /* one piece of code for all, which then stays in the instruction cache */
      uint4 a[PIECES * TILES * F];
      const char *at[TILES];
#pragma unroll
      for (int e = 0; e < TILES; e++) at[e] = states + (SETS > 2 ? lead(set, e) : SETS == 1 || set == 0 ? kept[0][e] : kept[1][e]);
      gather<SETS == 1>(a, [&](int e) -> const char * { return e / (TILES * F) < here ? at[e / F % TILES] + e / (TILES * F) * (PIECE * WIDE) + e % F * 16 : NULL; },
                        [&](const uint4 &v) { return n > from && absent(v); });
      float acc[MT][G][4];
#pragma unroll
      for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int q = 0; q < G; q++) {
#pragma unroll
          for (int e = 0; e < 4; e++) acc[m][q][e] = 0;
        }
      }
#pragma unroll
      for (int p = 0; p < PIECES; p++) {
        if (p < here) {
#pragma unroll
          for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int q = 0; q < G; q++) K::product(acc[m][q], a + (p * MT + m) * 2 * F, a + ((p * MT + m) * 2 + 1) * F, w[p][q]);
          }
        }
      }
      /* a part of the memory that was not used last: who still reads the other is not disturbed */
      float *part = memory + (SETS > 1 ? set : (int)n & 1) * (WARPS * G * SIZE);
#pragma unroll
      for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int q = 0; q < G; q++) {
          float *p = part + (warp * G + q) * SIZE + (m * 16 + g) * COLS + 2 * t;
          *(float2 *)p = make_float2(acc[m][q][0], acc[m][q][1]);
          *(float2 *)(p + 8 * COLS) = make_float2(acc[m][q][2], acc[m][q][3]);
        }
      }
      __syncthreads();
      if (row < 0 || set != mine) continue;
      float in[G][2], sum[G][2];
#pragma unroll
      for (int q = 0; q < G; q++) {
        in[q][0] = K::first(x[q]) + bias[q][0];
        in[q][1] = K::second(x[q]) + bias[q][1];
        sum[q][0] = G == 3 && q == 2 ? own[0] : 0.f;
        sum[q][1] = G == 3 && q == 2 ? own[1] : 0.f;
#pragma unroll
        for (int v = 0; v < WARPS; v++) {
          const float2 p = *(const float2 *)(part + (v * G + q) * SIZE + place * 2);
          sum[q][0] += p.x;
          sum[q][1] += p.y;
        }
      }
      rnn_made<float> m[2];
#pragma unroll
      for (int e = 0; e < 2; e++) m[e] = rnn_make<float, K::HOW>(mode, before[e], [&](int q) { return in[q][e]; }, [&](int q) { return sum[q][e]; });
      const pair both = K::pack(m[0].y, m[1].y);
      write(result, both);
      result += on * h * WIDE;
      input += on * k.g * WIDE;
      if (n + 1 < to) ask();
      /* what the way back needs, in pairs of columns */
      float *r = reserve;
      reserve += on * k.rs;
      char *gate = (char *)(r - j + (G == 4 ? h : 0)) + j * 2;
#pragma unroll
      for (int q = 0; q < (G == 1 ? 1 : 4); q++) {
        if (WIDE == 4 || G == 1) *(float2 *)(r + (int64_t)q * h) = make_float2(m[0].keep[q], m[1].keep[q]);
        else if (q == 2) *(unsigned *)(gate + (int64_t)q * h * 2) = amp_pack<false>(m[0].keep[q], m[1].keep[q]);
        else *(unsigned *)(gate + (int64_t)q * h * 2) = (unsigned)rnn_narrow(mode, D, q, m[0].keep[q]) | (unsigned)rnn_narrow(mode, D, q, m[1].keep[q]) << 16;
      }
      if (G == 4) {
        *(float2 *)(r + (WIDE == 2 ? 0 : 4 * h)) = make_float2(m[0].c, m[1].c);
        if (n == 0) *(float2 *)((float *)k.reserve + k.rows * k.rs + row * k.h + j) = make_float2(before[0], before[1]);
      }
      if (n == k.t - 1) {
        *(pair *)(k.hn + (row * k.h + j) * WIDE) = both;
        if (G == 4) *(pair *)(k.cn + (row * k.h + j) * WIDE) = K::pack(m[0].c, m[1].c);
      }
      before[0] = G == 4 ? m[0].c : K::first(both);
      before[1] = G == 4 ? m[1].c : K::second(both);
    }
    states = n == 0 ? k.y + begin * k.n * k.h * WIDE : states + on * k.h * WIDE;
  }
#endif
}

/* -- Backward ---------------------------------------------------------------------------------- */

/* Steps from .. to - 1 from the last one on, and one more for the initial state. phase 1: up to the blocks' sums, 2: from there on,
** 3: both. Sets of rows as forward. d.parts blocks share a sum; each finishes a part of a set's values, a thread one pair of columns */
template <int D, int G, int MT, int SETS> __global__ void __launch_bounds__(THREADS, 1) behind_all(const amp_rnn k, const amp_rnn_share d, char *dh0, int64_t from, int64_t to, int phase)
{
#if AMP_MMA
  typedef kind<D> K;
  typedef typename K::pair pair;
  constexpr int SIZE = MT * 16 * BACK_COLS, ROWS = MT * 16 * PITCH, TILES = MT * 2; /* values of a set; of a warp in shared memory; rows of a lane */
  constexpr int PIECES = K::BACK_PIECES, F = K::FETCHES, WIDE = K::WIDE;
  const int mode = G == 4 ? AMP_RNN_LSTM : G == 3 ? AMP_RNN_GRU : k.mode == AMP_RNN_RELU ? AMP_RNN_RELU : AMP_RNN_TANH;
  AMP_SHARED(float, memory);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3, part = (int)blockIdx.y, h = (int)k.h;
  const int64_t first = (int64_t)blockIdx.z * (SETS * MT * 16), col = (int64_t)blockIdx.x * BACK_COLS;
  const int slice = h / d.parts, per = slice / PIECE, here = pieces_here(d, G * per); /* hidden values of a part; pieces of a gate; of this warp */
  const int64_t tile = (int64_t)blockIdx.z * gridDim.x + blockIdx.x, tiles = (int64_t)gridDim.x * gridDim.z;
  const int64_t begin = k.reverse ? from : k.t - 1 - from, on = k.reverse ? k.n : -k.n; /* rows from a step to the one before it */
  char *of = G == 3 ? k.dgh : k.dg;

  int place[PIECES]; /* where this lane's values of a piece are among the gates' */
  typename K::weights w[PIECES][BACK_COLS / 8];
#pragma unroll
  for (int p = 0; p < PIECES; p++) {
    const int v = warp * d.pieces + p;
    place[p] = p < here ? v / per * h + part * slice + v % per * PIECE + t * 8 : 0;
#pragma unroll
    for (int q = 0; q < BACK_COLS / 8; q++) w[p][q] = p < here ? K::apart(k.w + (place[p] * k.h + col + q * 8 + g) * WIDE, k.h) : K::none();
  }
  /* The sets' rows are other warps': a thread finishes two columns, from j on, of a row of one set */
  const int mine = threadIdx.x / (THREADS / SETS), v = threadIdx.x % (THREADS / SETS) * 2, mark = part * (SIZE / d.parts) + v;
  const int64_t i = first + mine * (MT * 16) + mark / BACK_COLS, j = col + mark % BACK_COLS, row = v < SIZE / d.parts && i < k.n ? i : -1; /* < 0: none */
  const int whole = d.parts * SIZE; /* a set's sums */
  const float *theirs = d.sums + (tile * SETS + mine) * whole + mark;
  float *ours = d.sums + tile * SETS * whole + part * SIZE + threadIdx.x * 4;
  const auto lead = [&](int set, int e) { /* where this lane's rows begin among the gates' gradients; rows that are not there: any other */
    const int64_t r = first + set * (MT * 16) + g + e * 8;
    return (unsigned)((r < k.n ? r : k.n - 1) * k.g * WIDE);
  };
  unsigned leads[2][TILES];
#pragma unroll
  for (int e = 0; e < TILES; e++) {
    leads[0][e] = lead(0, e);
    leads[1][e] = lead(1, e);
  }
  /* What a step needs of two hidden values, as it lies in memory, asked for a step ahead; the cell before is the next step's cell.
  ** carry: what goes from step to step beside the product: of cells (LSTM), of states (GRU) */
  uint2 gate[4] = { make_uint2(0, 0) }, before = gate[0], cell = gate[0], grad = gate[0];
  float carry[2] = { 0, 0 };
  const int wide = k.gydt == AMP_FLOAT32 ? 4 : 2;
  const int64_t start = begin * k.n + (row < 0 ? 0 : row);
  const float *kept = (const float *)k.reserve + start * k.rs + j;
  const char *grads = k.gy ? k.gy + (start * k.h + j) * wide : NULL, *state = k.y + ((start + on) * k.h + j) * WIDE;
  char *gates = of + (start * k.g + j) * WIDE;
  const int cells = WIDE == 2 ? 0 : 4 * h; /* where a row's cells are */
  const auto narrow = [](const void *p) { return make_uint2(*(const unsigned *)p, 0); };
  const auto two = [&](const void *p) { return WIDE == 2 ? narrow(p) : *(const uint2 *)p; };
  const auto ask = [&](bool last) {
    const char *halves = (const char *)(kept - j + (G == 4 ? h : 0)) + j * 2;
#pragma unroll
    for (int q = 0; q < (G == 1 ? 1 : 4); q++) gate[q] = WIDE == 2 && G > 1 ? narrow(halves + (int64_t)q * h * 2) : *(const uint2 *)(kept + (int64_t)q * h);
    if (G == 4) before = *(const uint2 *)(last ? (const float *)k.reserve + k.rows * k.rs + row * k.h + j : kept + on * k.rs + cells);
    if (G == 3) before = two(last ? k.h0 + (row * k.h + j) * WIDE : state);
    grad = !grads ? make_uint2(0, 0) : wide == 4 ? *(const uint2 *)grads : narrow(grads);
  };
  if (row >= 0 && from < k.t) {
    ask(from == k.t - 1);
    if (G == 4) cell = *(const uint2 *)(kept + cells);
  }
#pragma unroll
  for (int e = 0; e < 2; e++) {
    if (row < 0) continue;
    if (from) carry[e] = G == 1 ? 0.f : ((const float *)(G == 4 ? k.dc : k.carry))[row * k.h + j + e];
    else if (G == 4 && k.gc) carry[e] = amp_load<float>(k.gc, k.gcdt, row * k.h + j + e);
  }

  for (int64_t n = from; n < to; n++) {
    const char *later = of + ((k.reverse ? n - 1 : k.t - n) * k.n * k.g) * WIDE;
    const int64_t turn = (n & 1) * tiles * SETS * whole;
    const unsigned bit = bit_of(n);
#pragma unroll 1
    for (int set = 0; set < SETS; set++) {
      if (n && (phase & 1)) {
        uint4 a[PIECES * TILES * F];
        const char *at[PIECES * TILES];
#pragma unroll
        for (int e = 0; e < PIECES * TILES; e++) at[e] = later + (SETS > 2 ? lead(set, e % TILES) : SETS == 1 || set == 0 ? leads[0][e % TILES] : leads[1][e % TILES]) + place[e / TILES] * WIDE;
        gather<SETS == 1>(a, [&](int e) -> const char * { return e / (TILES * F) < here ? at[e / F] + e % F * 16 : NULL; }, [&](const uint4 &v) { return n > from && absent(v); });
        float *part_sums = memory + (SETS > 1 ? set : (int)n & 1) * (WARPS * ROWS);
#pragma unroll
        for (int m = 0; m < MT; m++) {
          float acc[BACK_COLS / 8][4];
#pragma unroll
          for (int q = 0; q < BACK_COLS / 8; q++) {
#pragma unroll
            for (int e = 0; e < 4; e++) acc[q][e] = 0;
          }
#pragma unroll
          for (int p = 0; p < PIECES; p++) {
            if (p < here) {
#pragma unroll
              for (int q = 0; q < BACK_COLS / 8; q++) K::product(acc[q], a + (p * MT + m) * 2 * F, a + ((p * MT + m) * 2 + 1) * F, w[p][q]);
            }
          }
#pragma unroll
          for (int q = 0; q < BACK_COLS / 8; q++) {
            float *p = part_sums + warp * ROWS + (m * 16 + g) * PITCH + q * 8 + 2 * t;
            *(float2 *)p = make_float2(acc[q][0], acc[q][1]);
            *(float2 *)(p + 8 * PITCH) = make_float2(acc[q][2], acc[q][3]);
          }
        }
        __syncthreads();
        float *to = ours + turn + set * whole;
        const float *p = part_sums + threadIdx.x / (BACK_COLS / 4) * PITCH + threadIdx.x % (BACK_COLS / 4) * 4;
#pragma unroll
        for (int e = 0; e < MT; e++) {
          float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
          for (int q = 0; q < WARPS; q++) {
            const float4 v = *(const float4 *)(p + q * ROWS + e * (THREADS * 4 / BACK_COLS) * PITCH);
            sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
          }
          write(to + e * THREADS * 4, make_uint4(marked(sum.x, bit), marked(sum.y, bit), marked(sum.z, bit), marked(sum.w, bit)));
        }
      }
      if (!(phase & 2) || row < 0 || set != mine) continue;
      float prod[2] = { 0, 0 };
      if (n) {
        uint2 p[8];
        gather<true>(p, [&](int q) { return q < d.parts ? (const char *)(theirs + turn + q * SIZE) : NULL; }, [&](const uint2 &v) { return ((v.x ^ bit) | (v.y ^ bit)) & 1; });
#pragma unroll
        for (int q = 0; q < 8; q++) {
          prod[0] += __uint_as_float(p[q].x & ~1u); /* an infinite one with a bit would be a NaN */
          prod[1] += __uint_as_float(p[q].y & ~1u);
        }
      }
      if (n == k.t) {
        *(pair *)(dh0 + (row * k.h + j) * WIDE) = K::pack(prod[0] + (G == 3 ? carry[0] : 0.f), prod[1] + (G == 3 ? carry[1] : 0.f));
        continue;
      }
      rnn_slope<float> u[2];
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const auto full = [&](const uint2 &v) { return __uint_as_float(e ? v.y : v.x); };
        const auto half = [&](const uint2 &v) { return (uint16_t)(e ? v.x >> 16 : v.x & 0xffffu); };
        rnn_saved<float> v = { 0, { 0, 0, 0, 0 }, 0, 0, 0 };
        v.grad = k.gydt == AMP_FLOAT32 ? full(grad) : k.gydt == AMP_FLOAT16 ? amp_h2f(half(grad)) : amp_bf2f(half(grad));
        if (n == 0 && k.gh) v.grad += amp_load<float>(k.gh, k.ghdt, row * k.h + j + e);
#pragma unroll
        for (int q = 0; q < (G == 1 ? 1 : 4); q++) v.gate[q] = WIDE == 4 || G == 1 ? full(gate[q]) : rnn_wide(mode, D, q, half(gate[q]));
        if (G == 4) {
          v.cell = full(cell);
          v.before = full(before);
          v.dc = carry[e];
        } else if (G == 3) {
          v.before = WIDE == 4 ? full(before) : e ? K::second(*(const pair *)&before) : K::first(*(const pair *)&before);
          v.grad += carry[e];
        }
        u[e] = rnn_back<float, K::HOW>(mode, v, prod[e]);
      }
#pragma unroll
      for (int q = 0; q < G; q++) {
        const int v = G == 3 && q == 2 ? 3 : q; /* its state's part is another */
        write(gates + (int64_t)q * h * WIDE, K::pack(u[0].gate[v], u[1].gate[v]));
      }
      if (G == 3) {
#pragma unroll
        for (int q = 0; q < 3; q++) *(pair *)(k.dg + (gates - k.dgh) + (int64_t)q * h * WIDE) = K::pack(u[0].gate[q], u[1].gate[q]);
      }
      carry[0] = u[0].state;
      carry[1] = u[1].state;
      cell = before;
      gates += on * k.g * WIDE;
      kept += on * k.rs;
      state += on * k.h * WIDE;
      if (grads) grads += on * k.h * wide;
      if (n + 1 < k.t && n + 1 < to) ask(n + 2 == k.t);
      else if (n == k.t - 1 && G == 4) *(pair *)(k.dc0 + (row * k.h + j) * WIDE) = K::pack(u[0].state, u[1].state);
    }
  }
  if (G > 1 && (phase & 2) && to <= k.t && row >= 0) /* a launch to come goes on from here */
    *(float2 *)((float *)(G == 4 ? k.dc : k.carry) + row * k.h + j) = make_float2(carry[0], carry[1]);
#endif
}

/* -- Launches ------------------------------------------------------------------------------------ */

/* Blocks of these kernels that a card has room for at once: one for each multiprocessor */
static int64_t room_of(void)
{
#ifdef AMP_EMULATED
  return 132;
#else
  return amp__cuda_here()->sms;
#endif
}

static bool shared_fits(size_t bytes) { return amp__cuda_here()->shared >= bytes; }
static int gates_of(const amp_rnn *k) { return (int)(k->g / k->h); }
static int64_t tiles_of(const amp_rnn *k, int rows) { return (k->n + rows * 16 - 1) / (rows * 16); }
static int32_t pieces_of(int64_t sum) { return (int32_t)((sum + PIECE * WARPS - 1) / (PIECE * WARPS)); }
static int most_of(const amp_rnn *k, int narrow, int wide) { return k->dtype == AMP_FLOAT32 ? wide : narrow; }
#define MOST(k, what) most_of(k, amp_rnn_limits<AMP_FLOAT16>::what, amp_rnn_limits<AMP_FLOAT32>::what)
static int sets_of(const amp_rnn *k, int rows) { return rows == 4 ? MOST(k, SETS) : rows; }
/* Sums of every set, of a single one twice */
static size_t rows_kept(const amp_rnn *k, int rows) { return (size_t)(rows / sets_of(k, rows) * 16 * (sets_of(k, rows) > 1 ? sets_of(k, rows) : 2)); }
static size_t ahead_shared(const amp_rnn *k, int rows) { return sizeof(float) * WARPS * (size_t)gates_of(k) * rows_kept(k, rows) * COLS; }
static size_t behind_shared(const amp_rnn *k, int rows) { return sizeof(float) * WARPS * rows_kept(k, rows) * PITCH; }

/* The fewest rows a block with which all are on the card at once: false: there are none */
static bool share_ahead(const amp_rnn *k, amp_rnn_share *d)
{
  memset((void *)d, 0, sizeof *d);
  if (k->h % PIECE || (d->pieces = pieces_of(k->h)) > MOST(k, PIECES)) return false;
  for (d->rows = 1; d->rows <= 4; d->rows *= 2)
    if (k->h / COLS * tiles_of(k, d->rows) <= room_of()) return shared_fits(ahead_shared(k, d->rows));
  return false;
}

/* The same, and the fewest blocks that share a sum: of a set's values a thread of its warps finishes two */
static bool share_behind(const amp_rnn *k, amp_rnn_share *d)
{
  memset((void *)d, 0, sizeof *d);
  if (k->h % BACK_COLS) return false;
  for (d->rows = 1; d->rows <= 4; d->rows *= 2) {
    for (d->parts = d->rows == 1 ? 2 : 2 * d->rows; d->parts <= 8; d->parts *= 2) if (k->h % (PIECE * d->parts) == 0 && pieces_of(k->g / d->parts) <= MOST(k, BACK_PIECES)) break;
    if (d->parts > 8) return false;
    d->pieces = pieces_of(k->g / d->parts);
    if (k->h / BACK_COLS * d->parts * tiles_of(k, d->rows) <= room_of()) return shared_fits(behind_shared(k, d->rows));
  }
  return false;
}

static int fill(void *p, int value, int64_t n) { return amp__cuda_check(cudaMemsetAsync(p, value, (size_t)n, amp__cuda_stream()), "filling memory"); }

template <int D, int G, int MT, int SETS> static int ahead_of(const amp_rnn *k, const amp_rnn_share *d)
{
  const dim3 grid((unsigned)(k->h / COLS), (unsigned)tiles_of(k, MT * SETS));
#ifdef AMP_EMULATED
  for (int64_t n = 0; n < k->t; n++) AMP_LAUNCH((ahead_all<D, G, MT, SETS>), grid, THREADS, ahead_shared(k, MT * SETS), *k, *d, n, n + 1);
  return 0;
#else
  return amp_launch_together(ahead_all<D, G, MT, SETS>, grid, THREADS, ahead_shared(k, MT * SETS), *k, *d, (int64_t)0, k->t);
#endif
}

template <int D, int G, int MT, int SETS> static int behind_of(const amp_rnn *k, const amp_rnn_share *d, char *dh0)
{
  const dim3 grid((unsigned)(k->h / BACK_COLS), (unsigned)d->parts, (unsigned)tiles_of(k, MT * SETS));
#ifdef AMP_EMULATED
  for (int64_t n = 0; n <= k->t; n++) {
    const bool apart = n > 0;
    if (apart) AMP_LAUNCH((behind_all<D, G, MT, SETS>), grid, THREADS, behind_shared(k, MT * SETS), *k, *d, dh0, n, n + 1, 1);
    AMP_LAUNCH((behind_all<D, G, MT, SETS>), grid, THREADS, behind_shared(k, MT * SETS), *k, *d, dh0, n, n + 1, apart ? 2 : 3);
  }
  return 0;
#else
  return amp_launch_together(behind_all<D, G, MT, SETS>, grid, THREADS, behind_shared(k, MT * SETS), *k, *d, dh0, (int64_t)0, k->t + 1, 3);
#endif
}

template <int D, int G> static int ahead_rows(const amp_rnn *k, const amp_rnn_share *d)
{
  constexpr int SETS = amp_rnn_limits<D>::SETS;
  return d->rows == 1 ? ahead_of<D, G, 1, 1>(k, d) : d->rows == 2 ? ahead_of<D, G, 1, 2>(k, d) : ahead_of<D, G, 4 / SETS, SETS>(k, d);
}

template <int D> static int ahead_gates(const amp_rnn *k, const amp_rnn_share *d)
{
  return gates_of(k) == 4 ? ahead_rows<D, 4>(k, d) : gates_of(k) == 3 ? ahead_rows<D, 3>(k, d) : ahead_rows<D, 1>(k, d);
}

template <int D, int G> static int behind_rows(const amp_rnn *k, const amp_rnn_share *d, char *dh0)
{
  constexpr int SETS = amp_rnn_limits<D>::SETS;
  return d->rows == 1 ? behind_of<D, G, 1, 1>(k, d, dh0) : d->rows == 2 ? behind_of<D, G, 1, 2>(k, d, dh0) : behind_of<D, G, 4 / SETS, SETS>(k, d, dh0);
}

template <int D> static int behind_gates(const amp_rnn *k, const amp_rnn_share *d, char *dh0)
{
  return gates_of(k) == 4 ? behind_rows<D, 4>(k, d, dh0) : gates_of(k) == 3 ? behind_rows<D, 3>(k, d, dh0) : behind_rows<D, 1>(k, d, dh0);
}

} // namespace

/* Where a launch for each step is faster (measured on an H200): forward a simple net, whose product is small; backward where a step's
** blocks (rnn_step.cu) are on the card at once and have little to sum */
bool amp_rnn_takes_all(const amp_rnn *k, bool backward)
{
  amp_rnn_share d;
  if ((amp__cuda_rnn != 1 && amp__cuda_rnn != 3) || k->t < 2 || k->r != k->h || k->dtype == AMP_FLOAT64 || !amp_rnn_fits(k, backward, false)) return false;
  if (backward && k->gy && k->gydt != AMP_FLOAT32 && k->gydt != AMP_FLOAT16 && k->gydt != AMP_BFLOAT16) return false;
  if (backward && (uintptr_t)k->gy % (k->gydt == AMP_FLOAT32 ? 8 : 4)) return false; /* read in pairs: the caller's, or a part of something */
  if (!(backward ? share_behind(k, &d) : share_ahead(k, &d))) return false;
  if (amp__cuda_rnn == 3) return true;
  if (k->dtype == AMP_FLOAT32) return true; /* instead of a product and a launch for the rest */
  const int64_t blocks = k->h / 16 * tiles_of(k, 1);
  return backward ? blocks > room_of() || blocks * k->g >= 160000 : gates_of(k) > 1;
}

int amp_rnn_ahead_all(const amp_rnn *k)
{
  amp_rnn_share d;
  share_ahead(k, &d);
  int rc = fill(k->y, ABSENT & 0xff, k->rows * k->h * amp__dtype_size[k->dtype]);
  if (rc == 0) rc = k->dtype == AMP_FLOAT32 ? ahead_gates<AMP_FLOAT32>(k, &d) : k->dtype == AMP_BFLOAT16 ? ahead_gates<AMP_BFLOAT16>(k, &d) : ahead_gates<AMP_FLOAT16>(k, &d);
  return rc;
}

int amp_rnn_behind_all(const amp_rnn *k, char *dh0)
{
  amp_rnn_share d;
  amp_tensor *t = NULL;
  share_behind(k, &d);
  int rc = fill(k->mode == AMP_RNN_GRU ? k->dgh : k->dg, ABSENT & 0xff, k->rows * k->g * amp__dtype_size[k->dtype]);
  if (rc == 0) { /* two steps' sums */
    const int64_t bytes = 2 * k->h / BACK_COLS * tiles_of(k, d.rows) * d.parts * d.rows * 16 * BACK_COLS * 4;
    if (!(t = amp__cuda_scratch((size_t)bytes))) return AMP_E_MEMORY;
    d.sums = (float *)amp__data(t);
    rc = fill(d.sums, 0, bytes);
  }
  if (rc == 0) rc = k->dtype == AMP_FLOAT32 ? behind_gates<AMP_FLOAT32>(k, &d, dh0) : k->dtype == AMP_BFLOAT16 ? behind_gates<AMP_BFLOAT16>(k, &d, dh0) : behind_gates<AMP_FLOAT16>(k, &d, dh0);
  amp__free(t);
  return rc;
}
