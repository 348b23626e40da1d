/*
** philox.cuh: counter-based random numbers (Philox 4x32, 10 rounds; Salmon et al.,
** 2011). A value depends on the seed and its place in the sequence alone, so a run
** repeats whatever the grid. In a captured step the sequence's start is a cell of
** the card that the host moves on between replays.
*/
#ifndef AMP_PHILOX_CUH
#define AMP_PHILOX_CUH
#include "common/kernel.cuh"

/* Of a key and the 128 bits that are counted */
template <int ROUNDS> __device__ __forceinline__ uint4 amp_philox_of(uint64_t key, uint64_t n, uint64_t high)
{
  uint32_t a = (uint32_t)n, b = (uint32_t)(n >> 32), c = (uint32_t)high, d = (uint32_t)(high >> 32), k0 = (uint32_t)key,
           k1 = (uint32_t)(key >> 32);
#pragma unroll
  for (int round = 0; round < ROUNDS; round++) {
    uint32_t pl = a * 0xD2511F53u, ph = __umulhi(a, 0xD2511F53u), ql = c * 0xCD9E8D57u, qh = __umulhi(c, 0xCD9E8D57u);
    a = qh ^ b ^ k0;
    b = ql;
    c = ph ^ d ^ k1;
    d = pl;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return make_uint4(a, b, c, d);
}
__device__ __forceinline__ uint4 amp_philox(const amp_rng &r, uint64_t i)
{
  return amp_philox_of<10>(r.cell ? r.cell[0] : r.seed, r.counter + i + (r.cell ? r.cell[1] : 0), 0);
}
/* [0, 1) with 24 and 53 bits */
__device__ __forceinline__ float amp_uniform(uint32_t w) { return (float)(w >> 8) * 0x1p-24f; }
__device__ __forceinline__ double amp_uniform2(uint32_t hi, uint32_t lo)
{
  return (double)((((uint64_t)hi << 32) | lo) >> 11) * 0x1p-53;
}

#endif
