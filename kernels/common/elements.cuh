/*
** elements.cuh: elements of any dtype in registers, and where a kernel notes what is wrong with a value. Generated
** kernels (elementwise/chain.cuh, AMP_GENERATED) are made of this text too: it needs nothing of the host's.
*/
#ifndef AMP_ELEMENTS_CUH
#define AMP_ELEMENTS_CUH
#include <cfloat>
#include <cmath>
#ifdef AMP_GENERATED
#include "cuda_trouble.h"
#else
#include "../src/cuda/cuda.h"
#endif

/* -- Choices ------------------------------------------------------------------- */

/* Stands where no call arrives: the switch before it is made from a list, or its choice checked when compiled. */
#ifdef AMP_EMULATED
#include <cstdlib>
#define AMP_NEVER() abort()
#else
#define AMP_NEVER() __builtin_unreachable()
#endif

/* -- 16-bit floats --------------------------------------------------------------- */

__device__ __forceinline__ float amp_bf2f(uint16_t h) { return __uint_as_float((unsigned)h << 16); }
#ifdef AMP_EMULATED
static inline float amp_h2f(uint16_t h)
{
  unsigned sign = (unsigned)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
  if (e == 31) return __uint_as_float(sign | 0x7f800000u | m << 13);
  if (e == 0) {
    float v = (float)m * 0x1p-24f;
    return sign ? -v : v;
  }
  return __uint_as_float(sign | (e + 112) << 23 | m << 13);
}
static inline uint16_t amp_f2h(float f)
{
  unsigned u = __float_as_uint(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000u) return (uint16_t)(sign | 0x7fff);
  if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00);
  if (a < 0x38800000u) {
    float v = __uint_as_float(a) * 0x1p24f;
    return (uint16_t)(sign | (unsigned)(int)nearbyintf(v));
  }
  return (uint16_t)(sign | ((a - 0x38000000u + 0xfff + (a >> 13 & 1)) >> 13));
}
static inline uint16_t amp_f2bf(float f)
{
  unsigned u = __float_as_uint(f);
  if ((u & 0x7fffffff) > 0x7f800000u) return 0x7fff;
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
#else
__device__ __forceinline__ float amp_h2f(uint16_t h)
{
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
__device__ __forceinline__ uint16_t amp_f2h(float f)
{
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
__device__ __forceinline__ uint16_t amp_f2bf(float f)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint16_t h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
#else
  unsigned u = __float_as_uint(f);
  if ((u & 0x7fffffff) > 0x7f800000u) return 0x7fff;
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
#endif
}
#endif
/* to float32 so that a later rounding to fewer bits is right */
__device__ __forceinline__ float amp_odd(double x)
{
  float f = (float)x;
  if ((double)f == x || !(fabs(x) <= (double)FLT_MAX)) return f;
  unsigned u = __float_as_uint(f);
  if (fabs((double)f) > fabs(x)) u--; /* towards zero */
  return __uint_as_float(u | 1);
}

/* -- Elements of any dtype ---------------------------------------------------------- */

template <class T> struct amp_is {
  enum { real = 1 };
};
template <> struct amp_is<int64_t> {
  enum { real = 0 };
};
template <> struct amp_is<uint8_t> {
  enum { real = 0 };
};

/* 8-bit floats, as on the CPU (cpu/convert.c), without float subnormals on the way */
__device__ __forceinline__ float amp_f8_to_float(uint8_t bits, int dtype)
{
  if (dtype == AMP_FLOAT8_E5M2) return amp_h2f((uint16_t)(bits << 8)); /* the upper half of a float16 */
  const unsigned magnitude = bits & 0x7fu, sign = (unsigned)(bits & 0x80u) << 24;
  if (magnitude < 8) return __uint_as_float(__float_as_uint((float)magnitude * 0x1p-9f) | sign);
  return __uint_as_float((magnitude == 0x7fu ? 0x7fc00000u : (magnitude << 20) + (120u << 23)) | sign);
}
template <bool SATURATE = true> __device__ __forceinline__ uint8_t amp_float_to_f8(float f, int dtype)
{
  const bool wide = dtype == AMP_FLOAT8_E5M2;
  const unsigned shift = wide ? 21 : 20, rebias = wide ? 112u << 2 : 120u << 3, most = wide ? 0x7bu : 0x7eu;
  const unsigned u = __float_as_uint(f), sign = u >> 24 & 0x80u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return (uint8_t)(sign | (wide ? 0x7eu : 0x7fu));
  if (a < (wide ? 0x38800000u : 0x3c800000u)) { /* subnormal: the sum rounds for us */
    const float adder = wide ? 0x1p7f : 0x1p14f;
    return (uint8_t)(sign | (__float_as_uint(__uint_as_float(a) + adder) - __float_as_uint(adder)));
  }
  unsigned r = ((a + (1u << (shift - 1)) - 1u + (a >> shift & 1u)) >> shift) - rebias;
  if (r > most) r = SATURATE ? most : most + 1;
  return (uint8_t)(sign | r);
}

static_assert(AMP_DTYPE_COUNT == 12, "amp_load and amp_store know twelve dtypes, of which the last case is bool's");

template <class T> __device__ __forceinline__ T amp_load(const void *p, int dtype, int64_t i)
{
  switch (dtype) {
  case AMP_FLOAT64: return (T)((const double *)p)[i];
  case AMP_FLOAT32: return (T)((const float *)p)[i];
  case AMP_FLOAT16: return (T)amp_h2f(((const uint16_t *)p)[i]);
  case AMP_BFLOAT16: return (T)amp_bf2f(((const uint16_t *)p)[i]);
  case AMP_INT64: return (T)((const int64_t *)p)[i];
  case AMP_INT32: return (T)((const int32_t *)p)[i];
  case AMP_INT16: return (T)((const int16_t *)p)[i];
  case AMP_INT8: return (T)((const int8_t *)p)[i];
  case AMP_UINT8: return (T)((const uint8_t *)p)[i];
  case AMP_FLOAT8_E4M3:
  case AMP_FLOAT8_E5M2: return (T)amp_f8_to_float(((const uint8_t *)p)[i], dtype);
  default: return (T)(((const uint8_t *)p)[i] != 0);
  }
}

__device__ __forceinline__ float amp_narrow(float v) { return v; }
__device__ __forceinline__ float amp_narrow(double v) { return amp_odd(v); }
__device__ __forceinline__ float amp_narrow(int64_t v) { return amp_odd((double)v); }
__device__ __forceinline__ float amp_narrow(uint8_t v) { return (float)v; }
/* floats to integers: what does not fit is 0; integers wrap */
__device__ __forceinline__ int64_t amp_whole(float v)
{
  return v >= -9.22337203e18f && v <= 9.22337149e18f ? (int64_t)v : 0;
}
__device__ __forceinline__ int64_t amp_whole(double v)
{
  return v >= -9223372036854775808.0 && v <= 9223372036854774784.0 ? (int64_t)v : 0;
}
__device__ __forceinline__ int64_t amp_whole(int64_t v) { return v; }
__device__ __forceinline__ int64_t amp_whole(uint8_t v) { return v; }

template <class T> __device__ __forceinline__ void amp_store(void *p, int dtype, int64_t i, T v)
{
  switch (dtype) {
  case AMP_FLOAT64: ((double *)p)[i] = (double)v; break;
  case AMP_FLOAT32: ((float *)p)[i] = (float)v; break;
  case AMP_FLOAT16: ((uint16_t *)p)[i] = amp_f2h(amp_narrow(v)); break;
  case AMP_BFLOAT16: ((uint16_t *)p)[i] = amp_f2bf(amp_narrow(v)); break;
  case AMP_INT64: ((int64_t *)p)[i] = amp_whole(v); break;
  case AMP_INT32: ((int32_t *)p)[i] = (int32_t)amp_whole(v); break;
  case AMP_INT16: ((int16_t *)p)[i] = (int16_t)amp_whole(v); break;
  case AMP_INT8: ((int8_t *)p)[i] = (int8_t)amp_whole(v); break;
  case AMP_UINT8: ((uint8_t *)p)[i] = (uint8_t)amp_whole(v); break;
  case AMP_FLOAT8_E4M3:
  case AMP_FLOAT8_E5M2: ((uint8_t *)p)[i] = amp_float_to_f8(amp_narrow(v), dtype); break;
  default: ((uint8_t *)p)[i] = v != 0;
  }
}

/* The value v has once it is stored as dtype (16-bit floats round) */
__device__ __forceinline__ float amp_rounded(float v, int dtype)
{
  return dtype == AMP_FLOAT16 ? amp_h2f(amp_f2h(v)) : dtype == AMP_BFLOAT16 ? amp_bf2f(amp_f2bf(v)) : v;
}

/* N elements beside each other; whole: all are there and p + i is aligned to 16 bytes (or to their size, if that is
 * less) */
template <int N, class T> __device__ __forceinline__ void amp_load_n(T (&v)[N], const void *p, int dtype, int64_t i)
{
  if (dtype == AMP_FLOAT32 && N % 4 == 0) {
    const float4 *q = (const float4 *)((const float *)p + i);
#pragma unroll
    for (int k = 0; k < N / 4; k++) {
      float4 x = q[k];
      v[4 * k] = (T)x.x;
      v[4 * k + 1] = (T)x.y;
      v[4 * k + 2] = (T)x.z;
      v[4 * k + 3] = (T)x.w;
    }
  } else if ((dtype == AMP_FLOAT16 || dtype == AMP_BFLOAT16) && N % 8 == 0) {
    const uint4 *q = (const uint4 *)((const uint16_t *)p + i);
#pragma unroll
    for (int k = 0; k < N / 8; k++) {
      uint4 x = q[k];
      unsigned w[4] = { x.x, x.y, x.z, x.w };
#pragma unroll
      for (int j = 0; j < 4; j++) {
        uint16_t lo = (uint16_t)w[j], hi = (uint16_t)(w[j] >> 16);
        v[8 * k + 2 * j] = (T)(dtype == AMP_FLOAT16 ? amp_h2f(lo) : amp_bf2f(lo));
        v[8 * k + 2 * j + 1] = (T)(dtype == AMP_FLOAT16 ? amp_h2f(hi) : amp_bf2f(hi));
      }
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; k++) v[k] = amp_load<T>(p, dtype, i + k);
  }
}

template <int N, class T> __device__ __forceinline__ void amp_store_n(void *p, int dtype, int64_t i, const T (&v)[N])
{
  if (dtype == AMP_FLOAT32 && N % 4 == 0) {
    float4 *q = (float4 *)((float *)p + i);
#pragma unroll
    for (int k = 0; k < N / 4; k++)
      q[k] = make_float4((float)v[4 * k], (float)v[4 * k + 1], (float)v[4 * k + 2], (float)v[4 * k + 3]);
  } else if ((dtype == AMP_FLOAT16 || dtype == AMP_BFLOAT16) && N % 8 == 0) {
    uint4 *q = (uint4 *)((uint16_t *)p + i);
#pragma unroll
    for (int k = 0; k < N / 8; k++) {
      unsigned w[4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        float a = amp_narrow(v[8 * k + 2 * j]), b = amp_narrow(v[8 * k + 2 * j + 1]);
        w[j] = dtype == AMP_FLOAT16 ? (unsigned)amp_f2h(a) | (unsigned)amp_f2h(b) << 16
                                    : (unsigned)amp_f2bf(a) | (unsigned)amp_f2bf(b) << 16;
      }
      q[k] = make_uint4(w[0], w[1], w[2], w[3]);
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; k++) amp_store<T>(p, dtype, i + k, v[k]);
  }
}

/* Note what is wrong with a value; the first stays. */
__device__ __forceinline__ void amp_note(amp_trouble *t, int kind, int op, int64_t value, int64_t limit, int64_t place,
                                         double number = 0)
{
#ifdef AMP_EMULATED
  if (t->kind == 0) {
    t->kind = kind;
    t->op = op;
    t->value = value;
    t->limit = limit;
    t->place = place;
    t->number = number;
  }
#else
  if (atomicCAS((int *)&t->kind, 0, kind) == 0) {
    t->op = op;
    t->value = value;
    t->limit = limit;
    t->place = place;
    t->number = number;
    __threadfence_system();
  }
#endif
}

#endif
