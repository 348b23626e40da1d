/*
** cpu_reducers.c: the loops of reductions: how elements of a row, or of columns
** side by side, go into float, double or int64 lanes (cpu_reduce.h).
*/
#include <float.h>
#include "cpu_reduce.h"
#include "cpu_math.h"

/* T class, A accumulator, L lanes; START the neutral element; STEP(a, v, m) takes an element v with parameter m;
** JOIN(a, b) two accumulations. Columns take four rows at a time, or one where STEP is LONG */
#define REDUCER(name, CLONES, T, A, L, START, STEP, JOIN, c, ac) REDUCER_(name, CLONES, T, A, L, START, STEP, JOIN, c, ac, 0)
#define REDUCER_LONG(name, CLONES, T, A, L, START, STEP, JOIN, c, ac) REDUCER_(name, CLONES, T, A, L, START, STEP, JOIN, c, ac, 1)
#define REDUCER_(name, CLONES, T, A, L, START, STEP, JOIN, c, ac, LONG) \
static CLONES void name##_row(int64_t n, const void *x_, const void *param, void *acc) \
{ \
  const T *x = x_; const T m = param ? *(const T *)param : (T)0; (void)m; \
  T l[L], r = START; int64_t i = 0; \
  if (n > 24) { /* what is left after whole rounds goes into the first lanes: no chain of dependent steps */ \
    for (int j = 0; j < L; j++) l[j] = START; \
    for (; i + L <= n; i += L) for (int j = 0; j < L; j++) { const T v = x[i + j]; l[j] = STEP(l[j], v, m); } \
    const int left = (int)(n - i); \
    AMP_IVDEP for (int j = 0; j < left; j++) { const T v = x[i + j]; l[j] = STEP(l[j], v, m); } \
    for (int w = L / 2; w >= 1; w /= 2) for (int j = 0; j < w; j++) l[j] = JOIN(l[j], l[j + w]); \
    r = l[0]; \
  } else for (; i < n; i++) { const T v = x[i]; r = STEP(r, v, m); } \
  *(A *)acc = JOIN(*(A *)acc, (A)r); \
} \
static CLONES void name##_cols(int64_t n, const void *x_, int64_t s, int rows, const void *param, void *lane) \
{ \
  const T *x = x_; T *l = lane; const T *p = param; (void)p; int k = 0; \
  for (; !LONG && k + 4 <= rows; k += 4, x += 4 * s) \
    AMP_IVDEP for (int64_t j = 0; j < n; j++) { \
      const T v0 = x[j], v1 = x[j + s], v2 = x[j + 2 * s], v3 = x[j + 3 * s], m = PARAM_##c(name, p, j); (void)m; \
      T a = STEP(l[j], v0, m); a = STEP(a, v1, m); a = STEP(a, v2, m); l[j] = STEP(a, v3, m); \
    } \
  for (; k < rows; k++, x += s) \
    AMP_IVDEP for (int64_t j = 0; j < n; j++) { const T v = x[j], m = PARAM_##c(name, p, j); (void)m; l[j] = STEP(l[j], v, m); } \
} \
static void name##_init(int64_t n, void *lane, void *acc) \
{ \
  if (lane) for (int64_t j = 0; j < n; j++) ((T *)lane)[j] = START; \
  if (acc) for (int64_t j = 0; j < n; j++) ((A *)acc)[j] = START; \
} \
static void name##_fold(int64_t n, const void *lane, void *acc) \
{ \
  for (int64_t j = 0; j < n; j++) ((A *)acc)[j] = JOIN(((A *)acc)[j], (A)((const T *)lane)[j]); \
} \
static void name##_join(int64_t n, const void *from, void *acc) \
{ \
  for (int64_t j = 0; j < n; j++) ((A *)acc)[j] = JOIN(((A *)acc)[j], ((const A *)from)[j]); \
} \
const amp_reducer amp__fold_##name = { name##_row, name##_cols, name##_init, name##_fold, name##_join, c, ac, 1 };

/* which reducers have a parameter a column */
#define PARAM_AMP_C_F32(name, p, j) PARAM_##name(p, j)
#define PARAM_AMP_C_F64(name, p, j) PARAM_##name(p, j)
#define PARAM_AMP_C_I64(name, p, j) 0
#define PARAM_AMP_C_U8(name, p, j) 0
#define PARAM_sum_f(p, j) 0
#define PARAM_sum_d(p, j) 0
#define PARAM_prod_d(p, j) 0
#define PARAM_max_f(p, j) 0
#define PARAM_max_d(p, j) 0
#define PARAM_min_f(p, j) 0
#define PARAM_min_d(p, j) 0
#define PARAM_beyond_f(p, j) p[j]
#define PARAM_beyond_d(p, j) p[j]
#define PARAM_exp_f(p, j) p[j]
#define PARAM_exp_d(p, j) p[j]
#define PARAM_square_f(p, j) 0
#define PARAM_square_d(p, j) 0
#define PARAM_abs_f(p, j) 0
#define PARAM_abs_d(p, j) 0
#define PARAM_most_f(p, j) 0
#define PARAM_most_d(p, j) 0
#define PARAM_least_f(p, j) 0
#define PARAM_least_d(p, j) 0
#define PARAM_other_f(p, j) 0
#define PARAM_other_d(p, j) 0
#define PARAM_power_f(p, j) p[j]
#define PARAM_power_d(p, j) p[j]

#define ADD(a, v, m) ((a) + (v))
#define ADDI(a, v, m) (int64_t)((uint64_t)(a) + (uint64_t)(v))
#define ADD2(a, b) ((a) + (b))
#define ADDI2(a, b) (int64_t)((uint64_t)(a) + (uint64_t)(b))
#define MUL(a, v, m) ((a) * (v))
#define MUL2(a, b) ((a) * (b))
#define MULI(a, v, m) (int64_t)((uint64_t)(a) * (uint64_t)(v))
#define MULI2(a, b) (int64_t)((uint64_t)(a) * (uint64_t)(b))
#define BEYOND(a, v, m) ((a) + ((v) - (m)))
#define EXPF(a, v, m) ((a) + amp__expf((v) - (m)))
#define EXPD(a, v, m) ((a) + exp((v) - (m)))
/* of norms */
#define SQUARE(a, v, m) ((a) + (v) * (v))
#define ABSF(a, v, m) ((a) + fabsf(v))
#define ABSD(a, v, m) ((a) + fabs(v))
#define MOSTF(a, v, m) MAX(a, fabsf(v), m)
#define MOSTD(a, v, m) MAX(a, fabs(v), m)
#define LEASTF(a, v, m) MIN(a, fabsf(v), m)
#define LEASTD(a, v, m) MIN(a, fabs(v), m)
#define OTHER(a, v, m) ((a) + ((v) != 0 ? 1 : 0))
#define POWERF(a, v, m) ((a) + abs_powf(v, m))
#define POWERD(a, v, m) ((a) + pow(fabs(v), m))
/* a NaN is taken and then kept: nothing is greater than it */
#define MAX(a, v, m) ((v) > (a) || (v) != (v) ? (v) : (a))
#define MAX2(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))
#define MIN(a, v, m) ((v) < (a) || (v) != (v) ? (v) : (a))
#define MIN2(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))
#define MAXI(a, v, m) ((v) > (a) ? (v) : (a))
#define MAXI2(a, b) ((b) > (a) ? (b) : (a))
#define MINI(a, v, m) ((v) < (a) ? (v) : (a))
#define MINI2(a, b) ((b) < (a) ? (b) : (a))

/* |x|^p for any x, p not 0 and finite */
AMP_INLINE float abs_powf(float x, float p)
{
  float a = fabsf(x), y = amp__powf_core(a > 0.f && a <= FLT_MAX ? a : 1.f, p);
  y = a == (p > 0.f ? 0.f : INFINITY) ? 0.f : a == 0.f || a == INFINITY ? INFINITY : y;
  return a != a ? a : y;
}

REDUCER(sum_f, AMP_CLONES, float, double, 64, 0, ADD, ADD2, AMP_C_F32, AMP_C_F64)
/* The same sum of a row, whose ends cost little: most rows are short */
typedef float lanes16 __attribute__((vector_size(64), aligned(4)));
typedef int32_t masks16 __attribute__((vector_size(64), aligned(4)));
static const int32_t last[32] = { [16] = -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 };
static AMP_CLONES void total_f_row(int64_t n, const void *x_, const void *param, void *acc)
{
  if (n >= 128) { sum_f_row(n, x_, param, acc); return; }
  const float *x = x_;
  lanes16 a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
  int64_t i = 0;
  (void)param;
  for (; i + 64 <= n; i += 64) {
    a += *(const lanes16 *)(x + i); b += *(const lanes16 *)(x + i + 16);
    c += *(const lanes16 *)(x + i + 32); d += *(const lanes16 *)(x + i + 48);
  }
  for (; i + 16 <= n; i += 16) a += *(const lanes16 *)(x + i);
  float r = 0;
  if (n < 16) for (; i < n; i++) r += x[i];
  else if (i < n) { /* the last 16 elements, without those that were taken already */
    masks16 m = *(const masks16 *)(last + (n - i));
    b += (lanes16)((masks16)*(const lanes16 *)(x + n - 16) & m);
  }
  a = (a + b) + (c + d);
  float l[16];
  memcpy(l, &a, sizeof l);
  for (int j = 0; j < 8; j++) l[j] += l[j + 8];
  for (int j = 0; j < 4; j++) r += l[j] + l[j + 4];
  *(double *)acc += (double)r;
}
const amp_reducer amp__fold_total_f = { total_f_row, sum_f_cols, sum_f_init, sum_f_fold, sum_f_join, AMP_C_F32, AMP_C_F64, 1 };
REDUCER(sum_d, AMP_CLONES_WIDE, double, double, 32, 0, ADD, ADD2, AMP_C_F64, AMP_C_F64)
REDUCER(sum_i, AMP_CLONES_WIDE, int64_t, int64_t, 16, 0, ADDI, ADDI2, AMP_C_I64, AMP_C_I64)
REDUCER(prod_d, AMP_CLONES_WIDE, double, double, 16, 1, MUL, MUL2, AMP_C_F64, AMP_C_F64)
REDUCER(prod_i, , int64_t, int64_t, 4, 1, MULI, MULI2, AMP_C_I64, AMP_C_I64)
REDUCER(beyond_f, AMP_CLONES, float, double, 64, 0, BEYOND, ADD2, AMP_C_F32, AMP_C_F64)
REDUCER(beyond_d, AMP_CLONES_WIDE, double, double, 32, 0, BEYOND, ADD2, AMP_C_F64, AMP_C_F64)
REDUCER_LONG(exp_f, AMP_CLONES, float, double, 32, 0, EXPF, ADD2, AMP_C_F32, AMP_C_F64)
REDUCER_LONG(exp_d, , double, double, 4, 0, EXPD, ADD2, AMP_C_F64, AMP_C_F64)
REDUCER(max_f, AMP_CLONES, float, double, 64, -INFINITY, MAX, MAX2, AMP_C_F32, AMP_C_F64)
REDUCER(max_d, AMP_CLONES_WIDE, double, double, 32, -INFINITY, MAX, MAX2, AMP_C_F64, AMP_C_F64)
REDUCER(max_i, AMP_CLONES_WIDE, int64_t, int64_t, 16, INT64_MIN, MAXI, MAXI2, AMP_C_I64, AMP_C_I64)
REDUCER(min_f, AMP_CLONES, float, double, 64, INFINITY, MIN, MIN2, AMP_C_F32, AMP_C_F64)
REDUCER(min_d, AMP_CLONES_WIDE, double, double, 32, INFINITY, MIN, MIN2, AMP_C_F64, AMP_C_F64)
REDUCER(min_i, AMP_CLONES_WIDE, int64_t, int64_t, 16, INT64_MAX, MINI, MINI2, AMP_C_I64, AMP_C_I64)
REDUCER(square_f, AMP_CLONES, float, double, 64, 0, SQUARE, ADD2, AMP_C_F32, AMP_C_F64)
REDUCER(square_d, AMP_CLONES_WIDE, double, double, 32, 0, SQUARE, ADD2, AMP_C_F64, AMP_C_F64)
REDUCER(abs_f, AMP_CLONES, float, double, 64, 0, ABSF, ADD2, AMP_C_F32, AMP_C_F64)
REDUCER(abs_d, AMP_CLONES_WIDE, double, double, 32, 0, ABSD, ADD2, AMP_C_F64, AMP_C_F64)
REDUCER(most_f, AMP_CLONES, float, double, 64, 0, MOSTF, MAX2, AMP_C_F32, AMP_C_F64)
REDUCER(most_d, AMP_CLONES_WIDE, double, double, 32, 0, MOSTD, MAX2, AMP_C_F64, AMP_C_F64)
REDUCER(least_f, AMP_CLONES, float, double, 64, INFINITY, LEASTF, MIN2, AMP_C_F32, AMP_C_F64)
REDUCER(least_d, AMP_CLONES_WIDE, double, double, 32, INFINITY, LEASTD, MIN2, AMP_C_F64, AMP_C_F64)
REDUCER(other_f, AMP_CLONES, float, double, 64, 0, OTHER, ADD2, AMP_C_F32, AMP_C_F64)
REDUCER(other_d, AMP_CLONES_WIDE, double, double, 32, 0, OTHER, ADD2, AMP_C_F64, AMP_C_F64)
REDUCER_LONG(power_f, AMP_CLONES, float, double, 16, 0, POWERF, ADD2, AMP_C_F32, AMP_C_F64)
REDUCER_LONG(power_d, , double, double, 4, 0, POWERD, ADD2, AMP_C_F64, AMP_C_F64)
REDUCER(any_u, AMP_CLONES_WIDE, uint8_t, int64_t, 64, 0, MAXI, MAXI2, AMP_C_U8, AMP_C_I64)
REDUCER(all_u, AMP_CLONES_WIDE, uint8_t, int64_t, 64, 1, MINI, MINI2, AMP_C_U8, AMP_C_I64)

/* Two sums at once: of (x - m) and of its square. The second has its lanes, and its accumulators, AMP_CHUNK places on. */
#define MOMENTS(name, CLONES, T, L, c) \
static CLONES void name##_row(int64_t n, const void *x_, const void *param, void *acc_) \
{ \
  const T *x = x_; const T m = *(const T *)param; double *acc = acc_; \
  T s[L], q[L], a = 0, b = 0; int64_t i = 0; \
  if (n > 24) { \
    for (int j = 0; j < L; j++) s[j] = q[j] = 0; \
    for (; i + L <= n; i += L) for (int j = 0; j < L; j++) { const T v = x[i + j] - m; s[j] += v; q[j] += v * v; } \
    const int left = (int)(n - i); \
    AMP_IVDEP for (int j = 0; j < left; j++) { const T v = x[i + j] - m; s[j] += v; q[j] += v * v; } \
    for (int w = L / 2; w >= 1; w /= 2) for (int j = 0; j < w; j++) { s[j] += s[j + w]; q[j] += q[j + w]; } \
    a = s[0]; b = q[0]; \
  } else for (; i < n; i++) { const T v = x[i] - m; a += v; b += v * v; } \
  acc[0] += (double)a; \
  acc[AMP_CHUNK] += (double)b; \
} \
static CLONES void name##_cols(int64_t n, const void *x_, int64_t stride, int rows, const void *param, void *lane) \
{ \
  const T *x = x_, *p = param; T *l = lane, *k = l + AMP_CHUNK; int r = 0; \
  for (; r + 4 <= rows; r += 4, x += 4 * stride) \
    AMP_IVDEP for (int64_t j = 0; j < n; j++) { \
      const T m = p[j], v0 = x[j] - m, v1 = x[j + stride] - m, v2 = x[j + 2 * stride] - m, v3 = x[j + 3 * stride] - m; \
      l[j] += (v0 + v1) + (v2 + v3); \
      k[j] += v0 * v0 + v1 * v1 + v2 * v2 + v3 * v3; \
    } \
  for (; r < rows; r++, x += stride) \
    AMP_IVDEP for (int64_t j = 0; j < n; j++) { const T v = x[j] - p[j]; l[j] += v; k[j] += v * v; } \
} \
static void name##_init(int64_t n, void *lane, void *acc) \
{ \
  if (lane) for (int64_t j = 0; j < n; j++) ((T *)lane)[j] = ((T *)lane)[AMP_CHUNK + j] = 0; \
  if (acc) for (int64_t j = 0; j < n; j++) ((double *)acc)[j] = ((double *)acc)[AMP_CHUNK + j] = 0; \
} \
static void name##_fold(int64_t n, const void *lane, void *acc_) \
{ \
  const T *l = lane; double *acc = acc_; \
  for (int64_t j = 0; j < n; j++) { acc[j] += (double)l[j]; acc[AMP_CHUNK + j] += (double)l[AMP_CHUNK + j]; } \
} \
static void name##_join(int64_t n, const void *from_, void *acc_) \
{ \
  const double *from = from_; double *acc = acc_; \
  for (int64_t j = 0; j < n; j++) { acc[j] += from[j]; acc[AMP_CHUNK + j] += from[AMP_CHUNK + j]; } \
} \
const amp_reducer amp__fold_##name = { name##_row, name##_cols, name##_init, name##_fold, name##_join, c, AMP_C_F64, 2 };
MOMENTS(lanes_f, AMP_CLONES, float, 32, AMP_C_F32)
MOMENTS(moments_d, AMP_CLONES_WIDE, double, 16, AMP_C_F64)
/* The same of a row; the ends of short ones cost little, as in total_f */
static AMP_CLONES void moments_f_row(int64_t n, const void *x_, const void *param, void *acc_)
{
  if (n >= 128) { lanes_f_row(n, x_, param, acc_); return; }
  const float *x = x_, about = *(const float *)param;
  double *acc = acc_;
  lanes16 s = { 0 }, t = { 0 }, p = { 0 }, q = { 0 };
  float r = 0, u = 0;
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    lanes16 v = *(const lanes16 *)(x + i) - about, w = *(const lanes16 *)(x + i + 16) - about;
    s += v; t += w;
    p += v * v; q += w * w;
  }
  for (; i + 16 <= n; i += 16) { lanes16 v = *(const lanes16 *)(x + i) - about; s += v; p += v * v; }
  if (n < 16) for (; i < n; i++) { float v = x[i] - about; r += v; u += v * v; }
  else if (i < n) { /* the last 16 elements, without those that were taken already */
    masks16 m = *(const masks16 *)(last + (n - i));
    lanes16 v = (lanes16)((masks16)(*(const lanes16 *)(x + n - 16) - about) & m);
    t += v; q += v * v;
  }
  s += t; p += q;
  float l[32];
  memcpy(l, &s, sizeof s);
  memcpy(l + 16, &p, sizeof p);
  for (int j = 0; j < 8; j++) { l[j] += l[j + 8]; l[16 + j] += l[24 + j]; }
  for (int j = 0; j < 4; j++) { r += l[j] + l[j + 4]; u += l[16 + j] + l[20 + j]; }
  acc[0] += (double)r;
  acc[AMP_CHUNK] += (double)u;
}
const amp_reducer amp__fold_moments_f = { moments_f_row, lanes_f_cols, lanes_f_init, lanes_f_fold, lanes_f_join, AMP_C_F32, AMP_C_F64, 2 };
