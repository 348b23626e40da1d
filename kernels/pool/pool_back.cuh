/*
** pool_back.cuh: what the kernels of pooling share.
*/
#ifndef AMP_POOL_BACK_CUH
#define AMP_POOL_BACK_CUH
#include "common/planes.cuh"

/* May 8 neighbouring channels go at once? */
static inline bool planes_by_eight(const planes &v)
{
  if (!v.last || v.c % 8 || v.dtype == AMP_FLOAT64 || ((uintptr_t)v.p & 15)) return false;
  return v.stride[0] % 8 == 0 && v.stride[2] % 8 == 0 && v.stride[3] % 8 == 0 && v.stride[4] % 8 == 0;
}

/* x = gradient of a max pool: g at the places t (kernel_size 0: windows are unknown).
** must: also where adding in shared memory would be faster. 1: not done. */
int amp_pool_back(const planes &x, const planes &g, const planes &t, const args_pool_scatter *args, bool must);

/* Small windows two apart, neighbouring channels in pairs; w: kernel_size, stride, padding, three each. 1: not done. */
int amp_pool_pairs(const planes &x, const planes &y, const planes &t, const int32_t *w);
int amp_pool_pairs_back(const planes &x, const planes &g, const planes &t, const int32_t *w);

#endif
