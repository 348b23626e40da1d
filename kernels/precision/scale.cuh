/*
** scale.cuh: what the scaler's and the optimizers' launches share: the found-inf
** cells as an argument, the test for Inf and NaN, and the device that a cell lies on.
*/
#ifndef AMP_SCALE_CUH
#define AMP_SCALE_CUH
#include "common/kernel.cuh"

enum { AMP_FOUND_MOST = 16 };
typedef struct amp_found_list {
  int32_t n;
  const float *cell[AMP_FOUND_MOST];
} amp_found_list;

/* exponents all ones in a word of two 16-bit floats, or of one float32; of float64 only the upper word tells */
__device__ __forceinline__ int amp_bad_word(unsigned w, int dtype)
{
  unsigned one = dtype == AMP_FLOAT16 ? 0x7c000000u : 0x7f800000u;
  int bad = (w & one) == one;
  if (dtype == AMP_FLOAT16) bad |= (w & 0x7c00u) == 0x7c00u;
  else if (dtype == AMP_BFLOAT16) bad |= (w & 0x7f80u) == 0x7f80u;
  return bad;
}
__device__ __forceinline__ int amp_bad_wide(unsigned w) { return (w & 0x7ff00000u) == 0x7ff00000u; }
/* in 16 bytes of numbers */
__device__ __forceinline__ int amp_bad_quad(uint4 x, int dtype)
{
  return dtype == AMP_FLOAT64 ? amp_bad_wide(x.y) | amp_bad_wide(x.w)
                              : amp_bad_word(x.x, dtype) | amp_bad_word(x.y, dtype) | amp_bad_word(x.z, dtype)
                                    | amp_bad_word(x.w, dtype);
}
template <class T> __device__ __forceinline__ int amp_bad_value(T v)
{
  return !(fabs(v) <= (sizeof(T) == 8 ? (T)DBL_MAX : (T)FLT_MAX));
}

/* Enter the device that p lies on; NULL with error */
amp_cuda_device *amp_device_of(const void *p);
/* n cells as an argument; more than fit are joined into a cell that the caller frees once the launch is queued */
amp_tensor *amp_found_pack(amp_found_list *f, const float *const *found, int n, int *rc);

#endif
