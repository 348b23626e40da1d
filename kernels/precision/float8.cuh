/*
** float8.cuh: what the kernels of casts to 8 bits share: scales, one element's cast, a matrix as a launch's argument.
**
** A scale is the format's largest value / the largest |x|. Scales and x times them are taken in double, as on a
** processor, so that both round alike; where float32 leaves no doubt about the result, by that.
*/
#ifndef AMP_FLOAT8_CUH
#define AMP_FLOAT8_CUH
#include "common/math.cuh"
#include "common/raw.cuh"
#include "ops/matmul/float8.h"

#define AMP_DOUBLE_MOST 1.7976931348623157e308

__device__ __forceinline__ double amp_f8_most(int format) { return format == AMP_FLOAT8_E5M2 ? 57344.0 : 448.0; }
__device__ __forceinline__ double amp_f8_scale(float largest, double most)
{
  return largest > 0.f ? most / (double)largest : 1.0;
}
/* A finite |x| as a float, 0 for what is no number: the largest of an element type is one of float32 at most. */
__device__ __forceinline__ float amp_f8_size(double x)
{
  const double size = fabs(x);
  return !(size <= AMP_DOUBLE_MOST) ? 0.f : size > 3.4028234663852886e38 ? 3.402823466e38f : (float)size;
}
__device__ __forceinline__ float amp_f8_size(float x)
{
  const float size = fabsf(x);
  return size <= FLT_MAX ? size : 0.f;
}
__device__ __forceinline__ uint8_t amp_f8_cast(double x, double scale, int format)
{
  const float v = fabs(x) <= AMP_DOUBLE_MOST ? amp_odd(x * scale) : __uint_as_float(0x7fc00000u);
  return amp_float_to_f8(v, format);
}

/* The largest of the earlier steps, 0: there is none. For a whole block */
__device__ __forceinline__ float amp_f8_before(const float *history, int place, int window)
{
  float most = 0.f;
  if (history)
    for (int i = place + 1 + (int)threadIdx.x; i <= place + window; i += (int)blockDim.x)
      most = amp_most::of(most, history[i]);
  return amp_reduce_block<amp_most>(most, 0.f);
}

/* A scale as casts use it */
struct amp_f8_scaling {
  double exact;
  float quick; /* 0: float32 does not hold it */
};
__device__ __forceinline__ amp_f8_scaling amp_f8_scaling_of(float largest, int format)
{
  amp_f8_scaling s;
  s.exact = amp_f8_scale(largest, amp_f8_most(format));
  s.quick = s.exact < 0x1p100 && s.exact > 0x1p-100 ? (float)s.exact : 0.f;
  return s;
}

/* Of a float32 product that is off by less than 2^-23 of itself, both ends of what is meant round to the same value but
** near a tie, which is left to double. */
__device__ __forceinline__ unsigned amp_f8_round(float x, const amp_f8_scaling &s, int format)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  if (s.quick != 0.f && fabsf(x) <= FLT_MAX) {
    const float v = x * s.quick, low = v * (1.f - 0x1p-22f), high = v * (1.f + 0x1p-22f);
    unsigned short both;
    if (format == AMP_FLOAT8_E5M2) asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
    else asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
    const unsigned bits = both & 0xffu;
    if (bits == (unsigned)both >> 8) return bits;
  }
#endif
  return fabsf(x) <= FLT_MAX ? amp_f8_cast((double)x, s.exact, format) : format == AMP_FLOAT8_E5M2 ? 0x7eu : 0x7fu;
}

/* What quick casts are of: rows of float32, float16 or bfloat16 that begin at multiples of 16 bytes. */
struct amp_f8_rows {
  const void *from;
  int64_t rows, cols, stride; /* of rows, in elements; multiples of 8 */
  int dtype, format, function;
};

/* 8 elements, of the function, rounded as a tensor of it is */
__device__ __forceinline__ void amp_f8_take(float (&v)[8], const amp_raw &raw, const amp_f8_rows &in)
{
  amp_take(v, raw, in.dtype);
  if (in.function == OF_NONE) return;
#pragma unroll
  for (int j = 0; j < 8; j++) {
    const float y = in.function == OF_GELU_TANH ? amp_gelu_tanh(v[j]) : amp_gelu(v[j]);
    v[j] = in.dtype == AMP_FLOAT32 ? y : in.dtype == AMP_FLOAT16 ? amp_h2f(amp_f2h(y)) : amp_bf2f(amp_f2bf(y));
  }
}

#endif
