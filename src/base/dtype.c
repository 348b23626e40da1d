/*
** base/dtype.c: dtypes: sizes, names, the lattice of promotion, and conversion
** of single values, with errors for what does not fit an integer. Bulk
** conversion is the kernels' (cpu/convert.h).
*/
#include <float.h>
#include <math.h>
#include "base/base.h"

const uint8_t amp__dtype_size[AMP_DTYPE_COUNT] = {
  [AMP_FLOAT64] = 8, [AMP_FLOAT32] = 4, [AMP_FLOAT16] = 2,     [AMP_BFLOAT16] = 2,
  [AMP_INT64] = 8,   [AMP_INT32] = 4,   [AMP_INT16] = 2,       [AMP_INT8] = 1,
  [AMP_UINT8] = 1,   [AMP_BOOL] = 1,    [AMP_FLOAT8_E4M3] = 1, [AMP_FLOAT8_E5M2] = 1,
};

int amp_dtype_size(int dtype) { return dtype >= 0 && dtype < AMP_DTYPE_COUNT ? amp__dtype_size[dtype] : 0; }

const char *amp_dtype_name(int dtype)
{
  static const char *const names[AMP_DTYPE_COUNT]
      = { "float64", "float32", "float16", "bfloat16", "int64",       "int32",
          "int16",   "int8",    "uint8",   "bool",     "float8_e4m3", "float8_e5m2" };
  _Static_assert(AMP_DTYPE_COUNT == 12, "each dtype has a name");
  return dtype >= 0 && dtype < AMP_DTYPE_COUNT ? names[dtype] : "no dtype";
}

int amp__promote(int a, int b)
{
  if (a == b) return a;
  bool fa = amp__is_float(a), fb = amp__is_float(b);
  if (amp__is_float8(a) || amp__is_float8(b)) { /* 8 bits are stored, not computed in: the other float, or float32 */
    int other = amp__is_float8(a) ? b : a;
    return amp__is_float8(other) ? AMP_FLOAT32 : amp__is_float(other) ? other : a + b - other;
  }
  if (fa && fb) { /* the two halves meet in float32 */
    if (a == AMP_FLOAT64 || b == AMP_FLOAT64) return AMP_FLOAT64;
    return AMP_FLOAT32;
  }
  if (fa) return a;
  if (fb) return b;
  if (a == AMP_BOOL) return b;
  if (b == AMP_BOOL) return a;
  if (a == AMP_UINT8 || b == AMP_UINT8) {
    int other = a == AMP_UINT8 ? b : a;
    return other == AMP_INT8 ? AMP_INT16 : other;
  }
  return a < b ? a : b; /* int64, int32, int16, int8 stand widest first */
}

/* -- Half and bfloat16 -------------------------------------------------------- */

float amp__half_to_float(uint16_t h)
{
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023, u;
  float f;
  if (e == 31) u = sign | 0x7f800000 | m << 13;
  else if (e) u = sign | (e + 112) << 23 | m << 13;
  else {
    f = (float)m * 0x1p-24f;
    return sign ? -f : f;
  }
  memcpy(&f, &u, sizeof f);
  return f;
}

uint16_t amp__float_to_half(float f)
{
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  uint32_t sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (a >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and above round to infinity */
  if (a < 0x38800000) {                                  /* subnormal: the sum rounds for us */
    float r, m;
    memcpy(&m, &a, sizeof m);
    r = m + 0.5f;
    memcpy(&a, &r, sizeof a);
    return (uint16_t)(sign | (a - 0x3f000000));
  }
  a += 0xc8000fff + (a >> 13 & 1); /* rebias the exponent, round to even */
  return (uint16_t)(sign | a >> 13);
}

float amp__bf16_to_float(uint16_t h)
{
  uint32_t u = (uint32_t)h << 16;
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

uint16_t amp__float_to_bf16(float f)
{
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 64);
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* -- 8 bits --------------------------------------------------------------------- */

/* Of the OCP's 8-bit specification: exponent's bias, mantissa's bits, the largest finite pattern, that of NaN. */
float amp__float8_to_float(uint8_t bits, int dtype)
{
  if (dtype == AMP_FLOAT8_E5M2) return amp__half_to_float((uint16_t)(bits << 8)); /* the upper half of a float16 */
  uint32_t magnitude = bits & 0x7f, pattern = magnitude << 20;
  float f;
  memcpy(&f, &pattern, sizeof f);
  f = magnitude == 0x7f ? __builtin_nanf("") : f * 0x1p120f; /* the biases differ by 120 */
  return bits & 0x80 ? -f : f;
}

uint8_t amp__float_to_float8(float f, int dtype, bool saturate)
{
  const bool wide = dtype == AMP_FLOAT8_E5M2;
  const uint32_t shift = wide ? 21 : 20, rebias = wide ? 112u << 2 : 120u << 3, most = wide ? 0x7b : 0x7e;
  const float least = wide ? 0x1p-14f : 0x1p-6f, adder = wide ? 0x1p7f : 0x1p14f;
  uint32_t u, r;
  memcpy(&u, &f, sizeof u);
  uint32_t sign = u >> 24 & 0x80, a = u & 0x7fffffff;
  if (a > 0x7f800000) return (uint8_t)(sign | (wide ? 0x7e : 0x7f));
  memcpy(&f, &a, sizeof f);
  if (f < least) { /* subnormal: the sum rounds for us */
    float sum = f + adder;
    memcpy(&r, &sum, sizeof r);
    memcpy(&u, &adder, sizeof u);
    return (uint8_t)(sign | (r - u));
  }
  r = ((a + (1u << (shift - 1)) - 1 + (a >> shift & 1)) >> shift) - rebias;
  if (r > most) r = saturate ? most : most + 1;
  return (uint8_t)(sign | r);
}

float amp__round_odd(double x)
{
  float f = (float)x;
  int32_t b;
  memcpy(&b, &f, sizeof b);
  if (!((double)f == x) && x == x && !(b & 1) && fabs(x) < FLT_MAX) b += fabs((double)f) > fabs(x) ? -1 : 1;
  memcpy(&f, &b, sizeof f);
  return f;
}

/* -- Single values ---------------------------------------------------------------- */

double amp__value_get(const void *p, int dtype)
{
  switch (dtype) {
  case AMP_FLOAT64: return *(const double *)p;
  case AMP_FLOAT32: return *(const float *)p;
  case AMP_FLOAT16: return amp__half_to_float(*(const uint16_t *)p);
  case AMP_BFLOAT16: return amp__bf16_to_float(*(const uint16_t *)p);
  case AMP_INT64: return (double)*(const int64_t *)p;
  case AMP_INT32: return *(const int32_t *)p;
  case AMP_INT16: return *(const int16_t *)p;
  case AMP_INT8: return *(const int8_t *)p;
  case AMP_FLOAT8_E4M3:
  case AMP_FLOAT8_E5M2: return amp__float8_to_float(*(const uint8_t *)p, dtype);
  default: return *(const uint8_t *)p;
  }
}

bool amp__fits(double v, int dtype)
{
  static const double low[] = { -0x1p63, -0x1p31, -32768, -128, 0 }, high[] = { 0x1p63, 0x1p31, 32768, 128, 256 };
  if (!amp__is_int(dtype)) return true;
  int k = dtype - AMP_INT64;
  v = trunc(v);
  return v >= low[k] && v < high[k]; /* NaN fails both */
}

bool amp__value_put(void *p, int dtype, double v)
{
  if (amp_unlikely(!amp__fits(v, dtype))) return false;
  switch (dtype) {
  case AMP_FLOAT64: *(double *)p = v; break;
  case AMP_FLOAT32: *(float *)p = (float)v; break;
  case AMP_FLOAT16: *(uint16_t *)p = amp__float_to_half((float)v); break;
  case AMP_BFLOAT16: *(uint16_t *)p = amp__float_to_bf16((float)v); break;
  case AMP_INT64: *(int64_t *)p = (int64_t)v; break;
  case AMP_INT32: *(int32_t *)p = (int32_t)v; break;
  case AMP_INT16: *(int16_t *)p = (int16_t)v; break;
  case AMP_INT8: *(int8_t *)p = (int8_t)v; break;
  case AMP_UINT8: *(uint8_t *)p = (uint8_t)v; break;
  case AMP_FLOAT8_E4M3:
  case AMP_FLOAT8_E5M2: *(uint8_t *)p = amp__float_to_float8(amp__round_odd(v), dtype, true); break;
  default: *(uint8_t *)p = v != 0; break;
  }
  return true;
}
