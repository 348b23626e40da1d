/*
** raw.cuh: 8 floats beside each other as they lie in memory. A kernel asks for all
** that it will need and only then takes it apart: a conversion between two loads
** makes the second wait for the first.
*/
#ifndef AMP_RAW_CUH
#define AMP_RAW_CUH
#include "common/kernel.cuh"

typedef struct amp_raw {
  uint4 a, b;
} amp_raw;

/* float32, float16 or bfloat16; p + i is aligned to 16 bytes */
__device__ __forceinline__ void amp_ask(amp_raw &r, const void *p, int dtype, int64_t i)
{
  const uint4 *q = (const uint4 *)((const char *)p + i * (dtype == AMP_FLOAT32 ? 4 : 2));
  r.a = q[0];
  if (dtype == AMP_FLOAT32) r.b = q[1];
}

__device__ __forceinline__ void amp_take(float (&v)[8], const amp_raw &r, int dtype)
{
  const unsigned w[8] = { r.a.x, r.a.y, r.a.z, r.a.w, r.b.x, r.b.y, r.b.z, r.b.w };
  if (dtype == AMP_FLOAT32) {
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = __uint_as_float(w[j]);
  } else {
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const uint16_t h = (uint16_t)(j & 1 ? w[j >> 1] >> 16 : w[j >> 1]);
      v[j] = dtype == AMP_FLOAT16 ? amp_h2f(h) : amp_bf2f(h);
    }
  }
}

#endif
