/*
** bits.cuh: rows that stay in registers: a lane's vectors of 16 bytes, loaded all
** before the first is used, and sums over the threads of a row.
*/
#ifndef AMP_BITS_CUH
#define AMP_BITS_CUH
#include "common/rows.cuh"

namespace {

/* -- Bits of V elements of B bytes ----------------------------------------------------- */

template <int BYTES> struct bits {
  unsigned w[BYTES / 4];
};

template <int BYTES> __device__ __forceinline__ bits<BYTES> fetch(const char *p, int64_t vector, bool there)
{
  bits<BYTES> b = {};
  if (!there) return b;
  if constexpr (BYTES == 8) {
    uint2 x = ((const uint2 *)p)[vector];
    b.w[0] = x.x;
    b.w[1] = x.y;
  } else {
#pragma unroll
    for (int i = 0; i < BYTES / 16; i++) {
      uint4 x = ((const uint4 *)p)[vector * (BYTES / 16) + i];
      b.w[4 * i] = x.x;
      b.w[4 * i + 1] = x.y;
      b.w[4 * i + 2] = x.z;
      b.w[4 * i + 3] = x.w;
    }
  }
  return b;
}

/* What will be fetched soon (bytes: a multiple of 16) comes to the second level cache, and no register waits for it */
__device__ __forceinline__ void announce(const char *p, int bytes)
{
#if !defined AMP_EMULATED && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "r"(bytes) : "memory");
#endif
}

template <int B, int V, int K>
__device__ __forceinline__ void widen(float (&v)[K][V], const bits<B * V> (&r)[K], int dtype)
{
  if constexpr (B == 4) {
#pragma unroll
    for (int j = 0; j < K; j++) {
#pragma unroll
      for (int q = 0; q < V; q++) v[j][q] = __uint_as_float(r[j].w[q]);
    }
  } else if (dtype == AMP_BFLOAT16) {
#pragma unroll
    for (int j = 0; j < K; j++) {
#pragma unroll
      for (int q = 0; q < V; q++) v[j][q] = __uint_as_float(q & 1 ? r[j].w[q / 2] & 0xffff0000u : r[j].w[q / 2] << 16);
    }
  } else {
#pragma unroll
    for (int j = 0; j < K; j++) {
#pragma unroll
      for (int q = 0; q < V; q++) v[j][q] = amp_h2f((uint16_t)(r[j].w[q / 2] >> (q & 1) * 16));
    }
  }
}

/* 16 bytes of a result */
template <int B, int V> __device__ __forceinline__ void put(char *p, int64_t vector, const float (&v)[V], int dtype)
{
  if constexpr (B == 4) {
    ((uint4 *)p)[vector] = amp_pack<AMP_FLOAT32>(v);
  } else if (dtype == AMP_BFLOAT16) {
    ((uint4 *)p)[vector] = amp_pack<AMP_BFLOAT16>(v);
  } else {
    ((uint4 *)p)[vector] = amp_pack<AMP_FLOAT16>(v);
  }
}

/* 4 elements in 16 bits */
template <int V> __device__ __forceinline__ void put_narrow(char *p, int64_t vector, const float (&v)[V], int dtype)
{
  unsigned lo, hi;
  if (dtype == AMP_BFLOAT16) {
    lo = (unsigned)amp_f2bf(v[0]) | (unsigned)amp_f2bf(v[1]) << 16;
    hi = (unsigned)amp_f2bf(v[2]) | (unsigned)amp_f2bf(v[3]) << 16;
  } else {
    lo = (unsigned)amp_f2h(v[0]) | (unsigned)amp_f2h(v[1]) << 16;
    hi = (unsigned)amp_f2h(v[2]) | (unsigned)amp_f2h(v[3]) << 16;
  }
  ((uint2 *)p)[vector] = make_uint2(lo, hi);
}

/* Sum over a row's threads; a block's calls take two buffers in turn */
template <bool WARP> __device__ __forceinline__ float row_sum(float v, float *part)
{
  v = amp_reduce_warp<amp_sum>(v);
  if (WARP) return v;
  if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
  __syncthreads();
  return amp_reduce_warp<amp_sum>((threadIdx.x & 31) < blockDim.x >> 5 ? part[threadIdx.x & 31] : 0.f);
}

template <bool WARP> __device__ __forceinline__ float row_most(float v, float *part)
{
  v = amp_reduce_warp<amp_most>(v);
  if (WARP) return v;
  if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
  __syncthreads();
  return amp_reduce_warp<amp_most>((threadIdx.x & 31) < blockDim.x >> 5 ? part[threadIdx.x & 31] : -INFINITY);
}
/* of two values at once */
template <bool WARP> __device__ __forceinline__ void row_sums(float &a, float &b, float (*part)[2])
{
  a = amp_reduce_warp<amp_sum>(a);
  b = amp_reduce_warp<amp_sum>(b);
  if (WARP) return;
  const int lane = threadIdx.x & 31;
  if (lane == 0) {
    part[threadIdx.x >> 5][0] = a;
    part[threadIdx.x >> 5][1] = b;
  }
  __syncthreads();
  const bool is = lane < (int)blockDim.x >> 5;
  a = amp_reduce_warp<amp_sum>(is ? part[lane][0] : 0.f);
  b = amp_reduce_warp<amp_sum>(is ? part[lane][1] : 0.f);
}

} // namespace
#endif
