/*
** rnn_all.cuh: what the kernels of rnn_all.cu share: how a launch shares out a layer, values that blocks leave for each
** other in the L2 cache, and pieces of a sum by tensor cores, of 16-bit floats and of float32.
*/
#ifndef AMP_RNN_ALL_CUH
#define AMP_RNN_ALL_CUH
#include "common/mma.cuh"
#include "rnn/rnn.cuh"

namespace {

enum {
  WARPS = 8,
  THREADS = WARPS * 32,
  PIECE = 32,           /* values of a sum, of which a lane has 8 of each row */
  COLS = 8,             /* forward: hidden values of a block */
  BACK_COLS = 64,       /* backward: columns of a block */
  PITCH = BACK_COLS + 8 /* of a row of sums in shared memory, so that 4 rows lie in different banks */
};
#define ABSENT                                                                                                  \
  0xffffffffu /* two 16-bit floats or a float32 that are not there yet: NaNs, but a NaN that is made is 7fff or \
                 7fffffff */

/* How a launch shares out a layer: rows a block / 16, pieces of the sum for a warp, blocks that share a sum */
typedef struct amp_rnn_share {
  int32_t rows, pieces, parts;
  float *sums;
} amp_rnn_share;

#if AMP_MMA
/* -- What blocks tell each other ------------------------------------------------------------- */

/* past the L1 cache, which does not see what other multiprocessors write */
__device__ __forceinline__ void read(uint4 &v, const void *p)
{
#ifdef AMP_EMULATED
  v = *(const uint4 *)p;
#else
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
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
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
#endif
}

__device__ __forceinline__ void write(void *p, const uint2 &v)
{
#ifdef AMP_EMULATED
  *(uint2 *)p = v;
#else
  asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1,%2};" ::"l"(p), "r"(v.x), "r"(v.y) : "memory");
#endif
}

__device__ __forceinline__ void write(void *p, unsigned v)
{
#ifdef AMP_EMULATED
  *(unsigned *)p = v;
#else
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
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

/* N values (of 8 or 16 bytes) of each lane, at from(e) (NULL: zeros); missing(v): v is not there yet. LATE: they
** hardly ever are at first. While one waits for the rest of a warp's values others need the way to memory, so one
** lane asks again, for one */
template <bool LATE, int N, class V, class FROM, class MISSING>
__device__ __forceinline__ void gather(V (&v)[N], FROM from, MISSING missing)
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
    for (int e = 0; e < N; e++)
      if (from(e) && missing(v[e])) miss |= 1u << e;
    const unsigned waiting = __ballot_sync(~0u, miss != 0);
    if (waiting == 0) break;
    if (LATE && lane == __ffs((int)waiting) - 1) {
      const char *one = from(0);
      V u;
#pragma unroll
      for (int e = 1; e < N; e++)
        if (miss >> e & 1) one = from(e);
      do read(u, one);
      while (missing(u));
    }
    __syncwarp();
  }
}

/* -- Dtypes ---------------------------------------------------------------------------------- */

#endif

/* Bytes of a value; pieces of a sum for a warp at most, forward and backward; sets that 64 rows of a block are */
template <int D> struct amp_rnn_limits {
  enum { WIDE = 2, PIECES = 4, BACK_PIECES = 2, SETS = 2 };
};
template <> struct amp_rnn_limits<AMP_FLOAT32> {
  enum { WIDE = 4, PIECES = 2, BACK_PIECES = 1, SETS = 4 };
};

#if AMP_MMA
/* pair: two values beside each other as they lie in memory. A lane has 8 values of a row of a piece, in FETCHES
** times 16 bytes, and 8 weights of a column */
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
    const auto two = [&](int i) {
      return (unsigned)((const uint16_t *)p)[i * by] | (unsigned)((const uint16_t *)p)[(i + 1) * by] << 16;
    };
    return make_uint4(two(0), two(2), two(4), two(6));
  }
  static __device__ __forceinline__ weights none(void) { return make_uint4(0, 0, 0, 0); }
  /* c += a piece of a sum: u, v: of rows g and g + 8 */
  static __device__ __forceinline__ void product(float (&c)[4], const uint4 *u, const uint4 *v, const weights &w)
  {
    amp_mma32<BF>(c, *u, *v, w);
  }
};

template <> struct kind<AMP_FLOAT32> : amp_rnn_limits<AMP_FLOAT32> {
  enum { FETCHES = 2, HOW = RNN_NEAR };
  typedef uint2 pair;
  typedef struct {
    unsigned high[8], low[8];
  } weights;
  static __device__ __forceinline__ pair pack(float a, float b)
  {
    return make_uint2(__float_as_uint(a), __float_as_uint(b));
  }
  static __device__ __forceinline__ float first(pair v) { return __uint_as_float(v.x); }
  static __device__ __forceinline__ float second(pair v) { return __uint_as_float(v.y); }
  /* The first 11 bits of the mantissa, and the rest rounded to as many (a tensor core looks at no more); of what is not
   * finite: 0 */
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
    for (int e = 0; e < 4; e++)
      c[e] += fabsf(rest[e]) < INFINITY ? rest[e] : 0.f; /* an infinite value times a rest of 0 is NaN */
  }
};

/* What a kernel for G gates is made for, as a constant where it can be */
template <int G> __device__ __forceinline__ int mode_of(const amp_rnn &layer)
{
  return G == 4 ? AMP_RNN_LSTM : G == 3 ? AMP_RNN_GRU : layer.mode == AMP_RNN_RELU ? AMP_RNN_RELU : AMP_RNN_TANH;
}

/* Of `all` pieces those of this warp */
__device__ __forceinline__ int pieces_here(const amp_rnn_share &share, int all)
{
  const int left = all - (int)(threadIdx.x >> 5) * share.pieces;
  return left < 0 ? 0 : left < share.pieces ? left : share.pieces;
}

#endif

} // namespace

#endif
