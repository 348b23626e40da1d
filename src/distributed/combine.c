/*
** distributed/combine.c: the sum (mean, largest, smallest, product) of the ranks' shares on a CPU, in rank order: in
** float32 for 16-bit floats, rounded once; in int64 for integers, wrapped; of bool or (sum, max) and and.
*/
#include <math.h>
#include "cpu/convert.h"
#include "distributed/combine.h"

enum { BLOCK = 1024 };

#define FOLD(name, type, LARGER, SMALLER)                                       \
  static void name(int op, type *restrict a, const type *restrict b, int64_t n) \
  {                                                                             \
    switch (op) {                                                               \
    case AMP_DIST_MAX:                                                          \
      for (int64_t i = 0; i < n; i++) a[i] = LARGER ? b[i] : a[i];              \
      break;                                                                    \
    case AMP_DIST_MIN:                                                          \
      for (int64_t i = 0; i < n; i++) a[i] = SMALLER ? b[i] : a[i];             \
      break;                                                                    \
    case AMP_DIST_PRODUCT:                                                      \
      for (int64_t i = 0; i < n; i++) a[i] = (type)(a[i] * b[i]);               \
      break;                                                                    \
    default:                                                                    \
      for (int64_t i = 0; i < n; i++) a[i] = (type)(a[i] + b[i]);               \
    }                                                                           \
  }
/* NaN wins, as in amp.maximum */
FOLD(fold_f32, float, (b[i] > a[i] || b[i] != b[i]), (b[i] < a[i] || b[i] != b[i]))
FOLD(fold_f64, double, (b[i] > a[i] || b[i] != b[i]), (b[i] < a[i] || b[i] != b[i]))
FOLD(fold_u64, uint64_t, ((int64_t)b[i] > (int64_t)a[i]), ((int64_t)b[i] < (int64_t)a[i]))

static void divide(int class, void *acc, int by, int64_t n)
{
  float *f = acc;
  double *d = acc;
  if (class == AMP_C_F32)
    for (int64_t i = 0; i < n; i++) f[i] /= (float)by;
  else if (class == AMP_C_F64)
    for (int64_t i = 0; i < n; i++) d[i] /= by;
}

static void fold(int class, int op, void *acc, const void *more, int64_t n)
{
  if (class == AMP_C_F32) fold_f32(op, acc, more, n);
  else if (class == AMP_C_F64) fold_f64(op, acc, more, n);
  else fold_u64(op, acc, more, n);
}

/* Floats that need no conversion, two shares at most beside the result: no copy. */
static bool straight(int dtype, int op, void *out, void *const *parts, int n, int64_t count)
{
  const float *a = parts[0], *b = parts[n - 1];
  float *to = out;
  if (dtype != AMP_FLOAT32 || n != 2 || (op != AMP_DIST_SUM && op != AMP_DIST_MEAN)) return false;
  if (op == AMP_DIST_SUM)
    for (int64_t i = 0; i < count; i++) to[i] = a[i] + b[i];
  else
    for (int64_t i = 0; i < count; i++) to[i] = (a[i] + b[i]) / 2;
  return true;
}

void amp__dist_combine(int dtype, int op, void *out, void *const *parts, int n, int64_t count)
{
  _Alignas(64) double acc[BLOCK], more[BLOCK];
  int class = amp__dtype_class[dtype];
  size_t size = amp__dtype_size[dtype];
  if (straight(dtype, op, out, parts, n, count)) return;
  for (int64_t at = 0; at < count; at += BLOCK) {
    int64_t m = count - at < BLOCK ? count - at : BLOCK;
    amp__load(class, acc, dtype, (const char *)parts[0] + (size_t)at * size, 1, m);
    for (int i = 1; i < n; i++) {
      amp__load(class, more, dtype, (const char *)parts[i] + (size_t)at * size, 1, m);
      fold(class, op, acc, more, m);
    }
    if (op == AMP_DIST_MEAN) divide(class, acc, n, m);
    amp__store(dtype, (char *)out + (size_t)at * size, 1, class, acc, m);
  }
}
