/*
** ops/order/sort.c: keys (ops/order/sort.h) of every dtype, and sorting and selecting for
** both kinds of items. What ops make of it is in ops/order/order.c.
*/
#include "ops/order/sort.h"
#include "cpu/vector_math.h"

/* -- Keys ------------------------------------------------------------------------------ */

/* Bits of a float of that many: magnitudes above `inf` are NaN. Negative ones are turned around, below the others. */
#define FLOAT_KEY(T, S, b, inf, sign) \
  ((b & (T) ~(sign)) > (inf) ? (T) ~(T)0 : b == (sign) ? (sign) : (T)(b ^ ((T)((S)b >> (8 * sizeof(T) - 1)) | (sign))))

#define KEY_LOOP(T, x, E)           \
  for (int64_t i = 0; i < n; i++) { \
    const T b = x;                  \
    k[i] = (E) ^ mask;              \
  }
#define KEYS(name, K, T, E)                                                        \
  static AMP_CLONES void name(K *k, const T *x, int64_t stride, int64_t n, K mask) \
  {                                                                                \
    if (stride == 1) {                                                             \
      AMP_IVDEP                                                                    \
      KEY_LOOP(T, x[i], E)                                                         \
    } else KEY_LOOP(T, x[i * stride], E)                                           \
  }
KEYS(keys_f32, uint32_t, uint32_t, FLOAT_KEY(uint32_t, int32_t, b, 0x7f800000u, 0x80000000u))
KEYS(keys_f16, uint32_t, uint16_t,
     (uint32_t)(uint16_t)FLOAT_KEY(uint16_t, int16_t, b, 0x7c00u, 0x8000u) << 16 | 0xffffu)
KEYS(keys_bf16, uint32_t, uint16_t,
     (uint32_t)(uint16_t)FLOAT_KEY(uint16_t, int16_t, b, 0x7f80u, 0x8000u) << 16 | 0xffffu)
KEYS(keys_i32, uint32_t, int32_t, (uint32_t)b ^ 0x80000000u)
KEYS(keys_i16, uint32_t, int16_t, (uint32_t)(int32_t)b ^ 0x80000000u)
KEYS(keys_i8, uint32_t, int8_t, (uint32_t)(int32_t)b ^ 0x80000000u)
KEYS(keys_u8, uint32_t, uint8_t, (uint32_t)b)
KEYS(keys_f64, uint64_t, uint64_t, FLOAT_KEY(uint64_t, int64_t, b, 0x7ff0000000000000u, 0x8000000000000000u))
KEYS(keys_i64, uint64_t, int64_t, (uint64_t)b ^ 0x8000000000000000u)

void amp__keys32(uint32_t *key, int dtype, const void *data, int64_t stride, int64_t n, bool flip)
{
  AMP_ASSERT(amp__dtype_size[dtype] <= 4);
  const uint32_t mask = flip ? ~0u : 0;
  switch (dtype) {
  case AMP_FLOAT32: keys_f32(key, data, stride, n, mask); break;
  case AMP_FLOAT16: keys_f16(key, data, stride, n, mask); break;
  case AMP_BFLOAT16: keys_bf16(key, data, stride, n, mask); break;
  case AMP_INT32: keys_i32(key, data, stride, n, mask); break;
  case AMP_INT16: keys_i16(key, data, stride, n, mask); break;
  case AMP_INT8: keys_i8(key, data, stride, n, mask); break;
  default: keys_u8(key, data, stride, n, mask);
  }
}

void amp__keys64(uint64_t *key, int dtype, const void *data, int64_t stride, int64_t n, bool flip)
{
  AMP_ASSERT(dtype == AMP_FLOAT64 || dtype == AMP_INT64);
  const uint64_t mask = flip ? ~(uint64_t)0 : 0;
  if (dtype == AMP_FLOAT64) keys_f64(key, data, stride, n, mask);
  else keys_i64(key, data, stride, n, mask);
}

uint32_t amp__nan_key(void) { return ~0u; }

AMP_CLONES void amp__keys32_to_floats(float *out, const uint64_t *item, int64_t n, bool flip)
{
  const uint32_t mask = flip ? ~0u : 0;
  uint32_t *b = (uint32_t *)out;
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) {
    const uint32_t k = (uint32_t)(item[i] >> 32) ^ mask;
    b[i] = k & 0x80000000u ? k ^ 0x80000000u : ~k;
  }
}

/* -- Sorting ------------------------------------------------------------------------------ */

#define ITEM uint64_t
#define NAME(x) x##32
#define LESS(a, b) ((a) < (b))
#define KEY(x) ((x) >> 32)
#define KEY_BITS 32
#include "ops/order/sort_body.h"

#define ITEM amp_pair
#define NAME(x) x##64
#define LESS(a, b) ((a).key < (b).key || ((a).key == (b).key && (a).place < (b).place))
#define KEY(x) ((x).key)
#define KEY_BITS 64
#include "ops/order/sort_body.h"
