/*
** cpu/convert.c: elements in bulk between dtypes and compute classes.
**
** Dense runs go through one loop per (class, dtype), vectorised by GCC; strided
** ones are gathered unchanged into a small buffer first (or scattered from one),
** so no loop exists per stride. float16 uses F16C or AVX-512 where the machine
** has them, chosen at run time, else a branch-free half_copy in integers.
*/
#include "cpu/convert.h"
#include "cpu/vector_math.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

const uint8_t amp__class_size[4] = { 4, 8, 8, 1 };
const uint8_t amp__class_dtype[4] = { AMP_FLOAT32, AMP_FLOAT64, AMP_INT64, AMP_BOOL };
const uint8_t amp__dtype_class[AMP_DTYPE_COUNT] = {
  [AMP_FLOAT64] = AMP_C_F64, [AMP_FLOAT32] = AMP_C_F32, [AMP_FLOAT16] = AMP_C_F32,     [AMP_BFLOAT16] = AMP_C_F32,
  [AMP_INT64] = AMP_C_I64,   [AMP_INT32] = AMP_C_I64,   [AMP_INT16] = AMP_C_I64,       [AMP_INT8] = AMP_C_I64,
  [AMP_UINT8] = AMP_C_I64,   [AMP_BOOL] = AMP_C_I64,    [AMP_FLOAT8_E4M3] = AMP_C_F32, [AMP_FLOAT8_E5M2] = AMP_C_F32,
};
enum { CHUNK = 512 };

/* -- 16-bit floats ----------------------------------------------------------- */

AMP_INLINE float half_to_float(uint16_t h)
{
  int32_t magnitude = h & 0x7fff, sign = (int32_t)((uint32_t)(h & 0x8000) << 16);
  int32_t normal = (magnitude << 13) + (112 << 23);
  normal = magnitude >= 0x7c00 ? normal + (112 << 23) : normal; /* inf and NaN keep the largest exponent */
  normal = magnitude > 0x7c00 ? normal | 0x400000 : normal;     /* quiet */
  int32_t small = amp__fbits(amp__bitsf(magnitude + 0x4b000000) - 8388608.f); /* magnitude as a float, exact */
  small = magnitude == 0 ? 0 : small - (24 << 23);                            /* times 2^-24 */
  return amp__bitsf((magnitude < 0x400 ? small : normal) | sign);
}

AMP_INLINE uint16_t float_to_half(float f)
{
  uint32_t bits = (uint32_t)amp__fbits(f), magnitude = bits & 0x7fffffffu, sign = (bits >> 16) & 0x8000u;
  uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u))
                    >> 13; /* a carry goes up the exponent, to inf too */
  uint32_t small = (uint32_t)amp__fbits(amp__bitsf((int32_t)magnitude) + 0.5f)
                   - 0x3f000000u; /* below 2^-14: the adder rounds at 2^-24 */
  uint32_t h = magnitude < 0x38800000u ? small : normal;
  h = magnitude >= 0x47800000u ? 0x7c00u : h;
  h = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x1ffu) : h;
  return (uint16_t)(h | sign);
}

AMP_INLINE float bf16_to_float(uint16_t h) { return amp__bitsf((int32_t)((uint32_t)h << 16)); }
AMP_INLINE uint16_t float_to_bf16(float f)
{
  uint32_t bits = (uint32_t)amp__fbits(f);
  uint32_t r = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : r);
}

AMP_CLONES void amp__portable_halves_to_floats(float *dst, const uint16_t *src, int64_t count)
{
  AMP_IVDEP
  for (int64_t i = 0; i < count; i++) dst[i] = half_to_float(src[i]);
}

AMP_CLONES void amp__portable_floats_to_halves(uint16_t *dst, const float *src, int64_t count)
{
  AMP_IVDEP
  for (int64_t i = 0; i < count; i++) dst[i] = float_to_half(src[i]);
}

AMP_CLONES void amp__bf16s_to_floats(float *dst, const uint16_t *src, int64_t count)
{
  AMP_IVDEP
  for (int64_t i = 0; i < count; i++) dst[i] = bf16_to_float(src[i]);
}

AMP_CLONES void amp__floats_to_bf16s(uint16_t *dst, const float *src, int64_t count)
{
  AMP_IVDEP
  for (int64_t i = 0; i < count; i++) dst[i] = float_to_bf16(src[i]);
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void h2f_avx512(float *dst, const uint16_t *src, int64_t count)
{
  int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    _mm512_storeu_ps(dst + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(src + i))));
  if (i < count) amp__portable_halves_to_floats(dst + i, src + i, count - i);
}

__attribute__((target("avx512f"))) static void f2h_avx512(uint16_t *dst, const float *src, int64_t count)
{
  int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    _mm256_storeu_si256((__m256i *)(dst + i), _mm512_cvtps_ph(_mm512_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
  if (i < count) amp__portable_floats_to_halves(dst + i, src + i, count - i);
}

__attribute__((target("avx,f16c"))) static void h2f_f16c(float *dst, const uint16_t *src, int64_t count)
{
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(src + i))));
  if (i < count) amp__portable_halves_to_floats(dst + i, src + i, count - i);
}

__attribute__((target("avx,f16c"))) static void f2h_f16c(uint16_t *dst, const float *src, int64_t count)
{
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128((__m128i *)(dst + i), _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
  if (i < count) amp__portable_floats_to_halves(dst + i, src + i, count - i);
}

static int half_level(void) /* 2 AVX-512, 1 F16C, 0 neither */
{
  static _Atomic int known; /* level + 1 */
  int k = atomic_load_explicit(&known, memory_order_relaxed);
  if (amp_unlikely(k == 0)) {
    /* F16C came before AVX2, and older compilers cannot ask for it */
    k = 1 + (__builtin_cpu_supports("avx512f") ? 2 : __builtin_cpu_supports("avx2") ? 1 : 0);
    atomic_store_explicit(&known, k, memory_order_relaxed);
  }
  return k - 1;
}
#elif defined(__aarch64__)
/* Every arm64 processor has the conversions; they round to nearest even and keep denormals, as the process is set. */
static int64_t h2f_neon(float *dst, const uint16_t *src, int64_t count)
{
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    uint16x8_t halves = vld1q_u16(src + i);
    vst1q_f32(dst + i, vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(halves))));
    vst1q_f32(dst + i + 4, vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(halves))));
  }
  return i;
}

static int64_t f2h_neon(uint16_t *dst, const float *src, int64_t count)
{
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    uint16x4_t low = vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(src + i)));
    uint16x4_t high = vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(src + i + 4)));
    vst1q_u16(dst + i, vcombine_u16(low, high));
  }
  return i;
}
#endif

void amp__halves_to_floats(float *dst, const uint16_t *src, int64_t count)
{
#if defined(__aarch64__)
  int64_t done = h2f_neon(dst, src, count);
  dst += done, src += done, count -= done;
#elif defined(__x86_64__)
  int level = half_level();
  if (level == 2) {
    h2f_avx512(dst, src, count);
    return;
  }
  if (level == 1) {
    h2f_f16c(dst, src, count);
    return;
  }
#endif
  amp__portable_halves_to_floats(dst, src, count);
}

void amp__floats_to_halves(uint16_t *dst, const float *src, int64_t count)
{
#if defined(__aarch64__)
  int64_t done = f2h_neon(dst, src, count);
  dst += done, src += done, count -= done;
#elif defined(__x86_64__)
  int level = half_level();
  if (level == 2) {
    f2h_avx512(dst, src, count);
    return;
  }
  if (level == 1) {
    f2h_f16c(dst, src, count);
    return;
  }
#endif
  amp__portable_floats_to_halves(dst, src, count);
}

/* -- 8-bit floats ------------------------------------------------------------- */

AMP_INLINE float e5m2_to_float(uint8_t bits) { return half_to_float((uint16_t)(bits << 8)); }
AMP_INLINE float e4m3_to_float(uint8_t bits)
{
  int32_t magnitude = bits & 0x7f, sign = (int32_t)((uint32_t)(bits & 0x80) << 24);
  float f = amp__bitsf(magnitude << 20) * 0x1p120f; /* the biases differ by 120 */
  return amp__bitsf((magnitude == 0x7f ? 0x7fc00000 : amp__fbits(f)) | sign);
}

/* As amp__float_to_float8, which saturates, without branches */
#define TO_FLOAT8(name, LEAST, ADDER, SHIFT, REBIAS, MOST, NOT_A_NUMBER)                                         \
  AMP_INLINE uint8_t name(float f)                                                                               \
  {                                                                                                              \
    uint32_t bits = (uint32_t)amp__fbits(f), magnitude = bits & 0x7fffffffu, sign = (bits >> 24) & 0x80u;        \
    uint32_t normal = ((magnitude + (1u << (SHIFT - 1)) - 1u + ((magnitude >> SHIFT) & 1u)) >> SHIFT) - REBIAS;  \
    uint32_t small = (uint32_t)amp__fbits(amp__bitsf((int32_t)magnitude) + ADDER) - (uint32_t)amp__fbits(ADDER); \
    uint32_t r = magnitude >= MOST ? (MOST >> SHIFT) - REBIAS : normal;                                          \
    r = magnitude < LEAST ? small : r;                                                                           \
    r = magnitude > 0x7f800000u ? NOT_A_NUMBER : r;                                                              \
    return (uint8_t)(r | sign);                                                                                  \
  }
TO_FLOAT8(float_to_e4m3, 0x3c800000u, 0x1p14f, 20, (120u << 3), 0x43e00000u, 0x7fu)
TO_FLOAT8(float_to_e5m2, 0x38800000u, 0x1p7f, 21, (112u << 2), 0x47600000u, 0x7eu)

/* -- Dense runs ---------------------------------------------------------------- */

#define LOOP(D, S, EXPR)                                  \
  {                                                       \
    D *d = dst;                                           \
    const S *s = src;                                     \
    AMP_IVDEP                                             \
    for (int64_t i = 0; i < count; i++) d[i] = (D)(EXPR); \
  }                                                       \
  break;

static AMP_CLONES void load_f32(float *dst, int dtype, const void *src, int64_t count)
{
  switch (dtype) {
  case AMP_FLOAT64: LOOP(float, double, s[i])
  case AMP_FLOAT32: LOOP(float, float, s[i])
  case AMP_BFLOAT16: LOOP(float, uint16_t, bf16_to_float(s[i]))
  case AMP_FLOAT8_E4M3: LOOP(float, uint8_t, e4m3_to_float(s[i]))
  case AMP_FLOAT8_E5M2: LOOP(float, uint8_t, e5m2_to_float(s[i]))
  case AMP_INT64: LOOP(float, int64_t, s[i])
  case AMP_INT32: LOOP(float, int32_t, s[i])
  case AMP_INT16: LOOP(float, int16_t, s[i])
  case AMP_INT8: LOOP(float, int8_t, s[i])
  case AMP_UINT8: LOOP(float, uint8_t, s[i])
  default: LOOP(float, uint8_t, s[i] != 0)
  }
}

static AMP_CLONES void load_f64(double *dst, int dtype, const void *src, int64_t count)
{
  switch (dtype) {
  case AMP_FLOAT64: LOOP(double, double, s[i])
  case AMP_FLOAT32: LOOP(double, float, s[i])
  case AMP_FLOAT16: LOOP(double, uint16_t, half_to_float(s[i]))
  case AMP_BFLOAT16: LOOP(double, uint16_t, bf16_to_float(s[i]))
  case AMP_FLOAT8_E4M3: LOOP(double, uint8_t, e4m3_to_float(s[i]))
  case AMP_FLOAT8_E5M2: LOOP(double, uint8_t, e5m2_to_float(s[i]))
  case AMP_INT64: LOOP(double, int64_t, s[i])
  case AMP_INT32: LOOP(double, int32_t, s[i])
  case AMP_INT16: LOOP(double, int16_t, s[i])
  case AMP_INT8: LOOP(double, int8_t, s[i])
  case AMP_UINT8: LOOP(double, uint8_t, s[i])
  default: LOOP(double, uint8_t, s[i] != 0)
  }
}

/* A float outside int64 (or NaN) gives 0. */
AMP_INLINE int64_t to_i64(double x)
{
  return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? (int64_t)x : 0;
}

static AMP_CLONES void load_i64(int64_t *dst, int dtype, const void *src, int64_t count)
{
  switch (dtype) {
  case AMP_FLOAT64: LOOP(int64_t, double, to_i64(s[i]))
  case AMP_FLOAT32: LOOP(int64_t, float, to_i64(s[i]))
  case AMP_FLOAT16: LOOP(int64_t, uint16_t, to_i64(half_to_float(s[i])))
  case AMP_BFLOAT16: LOOP(int64_t, uint16_t, to_i64(bf16_to_float(s[i])))
  case AMP_FLOAT8_E4M3: LOOP(int64_t, uint8_t, to_i64(e4m3_to_float(s[i])))
  case AMP_FLOAT8_E5M2: LOOP(int64_t, uint8_t, to_i64(e5m2_to_float(s[i])))
  case AMP_INT64: LOOP(int64_t, int64_t, s[i])
  case AMP_INT32: LOOP(int64_t, int32_t, s[i])
  case AMP_INT16: LOOP(int64_t, int16_t, s[i])
  case AMP_INT8: LOOP(int64_t, int8_t, s[i])
  case AMP_UINT8: LOOP(int64_t, uint8_t, s[i])
  default: LOOP(int64_t, uint8_t, s[i] != 0)
  }
}

static AMP_CLONES_WIDE void load_u8(uint8_t *dst, int dtype, const void *src, int64_t count)
{
  switch (dtype) {
  case AMP_FLOAT64: LOOP(uint8_t, double, s[i] != 0)
  case AMP_FLOAT32: LOOP(uint8_t, float, s[i] != 0)
  case AMP_FLOAT16:
  case AMP_BFLOAT16: LOOP(uint8_t, uint16_t, (s[i] & 0x7fff) != 0)
  case AMP_FLOAT8_E4M3:
  case AMP_FLOAT8_E5M2: LOOP(uint8_t, uint8_t, (s[i] & 0x7f) != 0)
  case AMP_INT64: LOOP(uint8_t, int64_t, s[i] != 0)
  case AMP_INT32: LOOP(uint8_t, int32_t, s[i] != 0)
  case AMP_INT16: LOOP(uint8_t, int16_t, s[i] != 0)
  default: LOOP(uint8_t, uint8_t, s[i] != 0)
  }
}

static void load_dense(int cls, void *dst, int dtype, const void *src, int64_t count)
{
  if (dtype == AMP_FLOAT16 && cls == AMP_C_F32) {
    amp__halves_to_floats(dst, src, count);
    return;
  }
  switch (cls) {
  case AMP_C_F32: load_f32(dst, dtype, src, count); return;
  case AMP_C_F64: load_f64(dst, dtype, src, count); return;
  case AMP_C_I64: load_i64(dst, dtype, src, count); return;
  default: load_u8(dst, dtype, src, count); return;
  }
}

/* what float x gives in an integer type of range [lo, hi]; 0 if none */
#define FITS(T, lo, hi) (s[i] > (lo) && s[i] < (hi) ? (T)s[i] : 0)

static AMP_CLONES void store_f32(int dtype, void *dst, const float *src, int64_t count)
{
  switch (dtype) {
  case AMP_FLOAT64: LOOP(double, float, s[i])
  case AMP_FLOAT32: LOOP(float, float, s[i])
  case AMP_BFLOAT16: LOOP(uint16_t, float, float_to_bf16(s[i]))
  case AMP_FLOAT8_E4M3: LOOP(uint8_t, float, float_to_e4m3(s[i]))
  case AMP_FLOAT8_E5M2: LOOP(uint8_t, float, float_to_e5m2(s[i]))
  case AMP_INT64: LOOP(int64_t, float, to_i64(s[i]))
  case AMP_INT32: LOOP(int32_t, float, (s[i] >= -2147483648.f && s[i] < 2147483648.f ? (int32_t)s[i] : 0))
  case AMP_INT16: LOOP(int16_t, float, FITS(int16_t, -32769.f, 32768.f))
  case AMP_INT8: LOOP(int8_t, float, FITS(int8_t, -129.f, 128.f))
  case AMP_UINT8: LOOP(uint8_t, float, FITS(uint8_t, -1.f, 256.f))
  default: LOOP(uint8_t, float, s[i] != 0)
  }
}

static AMP_CLONES void store_f64(int dtype, void *dst, const double *src, int64_t count)
{
  switch (dtype) {
  case AMP_FLOAT64: LOOP(double, double, s[i])
  case AMP_FLOAT32: LOOP(float, double, s[i])
  case AMP_INT64: LOOP(int64_t, double, to_i64(s[i]))
  case AMP_INT32: LOOP(int32_t, double, FITS(int32_t, -2147483649.0, 2147483648.0))
  case AMP_INT16: LOOP(int16_t, double, FITS(int16_t, -32769.0, 32768.0))
  case AMP_INT8: LOOP(int8_t, double, FITS(int8_t, -129.0, 128.0))
  case AMP_UINT8: LOOP(uint8_t, double, FITS(uint8_t, -1.0, 256.0))
  default: LOOP(uint8_t, double, s[i] != 0)
  }
}

static AMP_CLONES void store_i64(int dtype, void *dst, const int64_t *src, int64_t count)
{
  switch (dtype) {
  case AMP_FLOAT64: LOOP(double, int64_t, s[i])
  case AMP_FLOAT32: LOOP(float, int64_t, s[i])
  case AMP_INT64: LOOP(int64_t, int64_t, s[i])
  case AMP_INT32: LOOP(int32_t, int64_t, s[i])
  case AMP_INT16: LOOP(int16_t, int64_t, s[i])
  case AMP_INT8: LOOP(int8_t, int64_t, s[i])
  case AMP_UINT8: LOOP(uint8_t, int64_t, s[i])
  default: LOOP(uint8_t, int64_t, s[i] != 0)
  }
}

static AMP_CLONES_WIDE void store_u8(int dtype, void *dst, const uint8_t *src, int64_t count)
{
  switch (dtype) {
  case AMP_FLOAT64: LOOP(double, uint8_t, s[i])
  case AMP_FLOAT32: LOOP(float, uint8_t, s[i])
  case AMP_FLOAT16: LOOP(uint16_t, uint8_t, (s[i] ? 0x3c00 : 0))
  case AMP_BFLOAT16: LOOP(uint16_t, uint8_t, (s[i] ? 0x3f80 : 0))
  case AMP_FLOAT8_E4M3: LOOP(uint8_t, uint8_t, (s[i] ? 0x38 : 0))
  case AMP_FLOAT8_E5M2: LOOP(uint8_t, uint8_t, (s[i] ? 0x3c : 0))
  case AMP_INT64: LOOP(int64_t, uint8_t, s[i])
  case AMP_INT32: LOOP(int32_t, uint8_t, s[i])
  case AMP_INT16: LOOP(int16_t, uint8_t, s[i])
  default: LOOP(uint8_t, uint8_t, s[i])
  }
}

static void store_dense(int dtype, void *dst, int cls, const void *src, int64_t count)
{
  float tmp[CHUNK];
  switch (cls) {
  case AMP_C_F32:
    if (dtype == AMP_FLOAT16) amp__floats_to_halves(dst, src, count);
    else store_f32(dtype, dst, src, count);
    return;
  case AMP_C_U8: store_u8(dtype, dst, src, count); return;
  case AMP_C_F64:
    if (!amp__is_half(dtype) && !amp__is_float8(dtype)) {
      store_f64(dtype, dst, src, count);
      return;
    }
    break;
  default:
    if (!amp__is_half(dtype) && !amp__is_float8(dtype)) {
      store_i64(dtype, dst, src, count);
      return;
    }
  }
  /* 64-bit values to 16- and 8-bit floats: through float32, rounded once only */
  for (int64_t i = 0; i < count; i += CHUNK) {
    int64_t chunk = count - i < CHUNK ? count - i : CHUNK;
    for (int64_t j = 0; j < chunk; j++)
      tmp[j] = amp__round_odd(cls == AMP_C_F64 ? ((const double *)src)[i + j] : (double)((const int64_t *)src)[i + j]);
    if (dtype == AMP_FLOAT16) amp__floats_to_halves((uint16_t *)dst + i, tmp, chunk);
    else store_f32(dtype, (char *)dst + i * amp__dtype_size[dtype], tmp, chunk);
  }
}

/* -- Strided runs ---------------------------------------------------------------- */

/* One value repeated, and a run from its end: of a sum's gradient and of running sums from the end */
#define FILL_AND_REVERSE(T)                                                                      \
  static AMP_CLONES_WIDE void fill_##T(int64_t count, T *dst, T value)                           \
  {                                                                                              \
    for (int64_t i = 0; i < count; i++) dst[i] = value;                                          \
  }                                                                                              \
  static AMP_CLONES_WIDE void reverse_##T(int64_t count, T *restrict dst, const T *restrict src) \
  {                                                                                              \
    for (int64_t i = 0; i < count; i++) dst[i] = src[-i];                                        \
  }
FILL_AND_REVERSE(uint8_t)
FILL_AND_REVERSE(uint16_t)
FILL_AND_REVERSE(uint32_t)
FILL_AND_REVERSE(uint64_t)

#define MOVE_LOOP(T, to, value) \
  for (int64_t i = 0; i < count; i++) ((T *)dst)[to] = value
#define MOVE(T)                                                                                                 \
  if (dstride == 1 && sstride == 1) memmove(dst, src, sizeof(T) * (size_t)count);                               \
  else if (dstride == 1 && sstride == 0) fill_##T(count, dst, *(const T *)src);                                 \
  else if (dstride == 1 && sstride == -1) reverse_##T(count, dst, src);                                         \
  else if (dstride == -1 && sstride == 1) reverse_##T(count, (T *)dst + 1 - count, (const T *)src + count - 1); \
  else if (dstride == 1) MOVE_LOOP(T, i, ((const T *)src)[i * sstride]);                                        \
  else if (sstride == 1) MOVE_LOOP(T, i *dstride, ((const T *)src)[i]);                                         \
  else MOVE_LOOP(T, i *dstride, ((const T *)src)[i * sstride]);                                                 \
  return;

void amp__move(int esize, void *dst, int64_t dstride, const void *src, int64_t sstride, int64_t count)
{
  switch (esize) {
  case 1: MOVE(uint8_t)
  case 2: MOVE(uint16_t)
  case 4: MOVE(uint32_t)
  default: MOVE(uint64_t)
  }
}

void amp__load(int cls, void *dst, int dtype, const void *src, int64_t stride, int64_t count)
{
  char raw[CHUNK * 8] __attribute__((aligned(64)));
  int element_size = amp__dtype_size[dtype];
  if (stride == 1) {
    load_dense(cls, dst, dtype, src, count);
    return;
  }
  if (dtype == amp__class_dtype[cls]) {
    amp__move(element_size, dst, 1, src, stride, count);
    return;
  }
  for (int64_t i = 0; i < count; i += CHUNK) {
    int64_t chunk = count - i < CHUNK ? count - i : CHUNK;
    amp__move(element_size, raw, 1, (const char *)src + i * stride * element_size, stride, chunk);
    load_dense(cls, (char *)dst + i * amp__class_size[cls], dtype, raw, chunk);
  }
}

void amp__store(int dtype, void *dst, int64_t stride, int cls, const void *src, int64_t count)
{
  char raw[CHUNK * 8] __attribute__((aligned(64)));
  int element_size = amp__dtype_size[dtype];
  if (stride == 1) {
    store_dense(dtype, dst, cls, src, count);
    return;
  }
  if (dtype == amp__class_dtype[cls]) {
    amp__move(element_size, dst, stride, src, 1, count);
    return;
  }
  for (int64_t i = 0; i < count; i += CHUNK) {
    int64_t chunk = count - i < CHUNK ? count - i : CHUNK;
    store_dense(dtype, raw, cls, (const char *)src + i * amp__class_size[cls], chunk);
    amp__move(element_size, (char *)dst + i * stride * element_size, stride, raw, 1, chunk);
  }
}

/* -- Range of integers -------------------------------------------------------------- */

static AMP_CLONES bool all_between_f32(const float *s, int64_t count, float lo, float hi)
{
  int bad = 0;
  for (int64_t i = 0; i < count; i++) bad |= !(s[i] > lo) | !(s[i] < hi);
  return !bad;
}

static AMP_CLONES bool all_between_f64(const double *s, int64_t count, double low, double high)
{
  int bad = 0;
  for (int64_t i = 0; i < count; i++) bad |= !(s[i] > low) | !(s[i] < high);
  return !bad;
}

int64_t amp__first_misfit(int dtype, int cls, const void *src, int64_t count)
{
  /* exclusive bounds: the value is truncated toward zero first */
  double low, high;
  switch (dtype) {
  case AMP_INT64:
    low = -0x1.0000000000001p63;
    high = 0x1p63;
    break;
  case AMP_INT32:
    low = -2147483649.0;
    high = 2147483648.0;
    break;
  case AMP_INT16:
    low = -32769.0;
    high = 32768.0;
    break;
  case AMP_INT8:
    low = -129.0;
    high = 128.0;
    break;
  case AMP_UINT8:
    low = -1.0;
    high = 256.0;
    break;
  default: return count;
  }
  if (cls == AMP_C_F32) {
    /* -2^31 - 1 and -2^63 - 1 are not float32: the next below is */
    float flo = dtype == AMP_INT64 ? -0x1.000002p63f : dtype == AMP_INT32 ? -0x1.000002p31f : (float)low;
    const float *s = src;
    if (all_between_f32(s, count, flo, (float)high)) return count;
    for (int64_t i = 0; i < count; i++)
      if (!(s[i] > flo && s[i] < high)) return i;
  } else if (cls == AMP_C_F64) {
    const double *s = src;
    if (all_between_f64(s, count, low, high)) return count;
    for (int64_t i = 0; i < count; i++)
      if (!(s[i] > low && s[i] < high)) return i;
  }
  return count;
}
