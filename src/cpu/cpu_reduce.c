/*
** cpu_reduce.c: sums, products, extremes, truth, variance, log-sum-exp, norms.
**
** Two levels of accumulation make sums both fast and accurate: many float32
** lanes (of a row, or one a column) take at most a few dozen elements each, then
** go into float64. The reduced index is cut into pieces whose size does not
** depend on threads and whose results are joined in order, so neither do sums.
**
**   lanes[64] (or columns[512]) in the class -> double / int64 -> joined by piece
*/
#include <float.h>
#include <stdlib.h>
#include "cpu_reduce.h"
#include "cpu_math.h"

/* -- Loops ------------------------------------------------------------------------- */

typedef struct reducer {
  void (*row)(int64_t n, const void *x, const void *param, void *acc);        /* fold n elements into one accumulator */
  void (*cols)(int64_t n, const void *x, int64_t stride, int rows, const void *param, void *lane); /* lane[j] takes x[k * stride + j], k < rows */
  void (*init)(int64_t n, void *lane, void *acc);                             /* either may be NULL */
  void (*fold)(int64_t n, const void *lane, void *acc);                       /* acc[j] takes lane[j] */
  void (*join)(int64_t n, const void *from, void *acc);
  uint8_t cls, acc_cls;
} reducer;

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
static const reducer name __attribute__((unused)) = { name##_row, name##_cols, name##_init, name##_fold, name##_join, c, ac };

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
static const reducer total_f = { total_f_row, sum_f_cols, sum_f_init, sum_f_fold, sum_f_join, AMP_C_F32, AMP_C_F64 };
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
static const reducer name __attribute__((unused)) = { name##_row, name##_cols, name##_init, name##_fold, name##_join, c, AMP_C_F64 };
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
static const reducer moments_f = { moments_f_row, lanes_f_cols, lanes_f_init, lanes_f_fold, lanes_f_join, AMP_C_F32, AMP_C_F64 };

/* -- Folding a range of the reduced index ---------------------------------------------- */

enum { ROW_CHUNK = 2048 }; /* converted at a time */

/* acc[0..n) takes the elements [lo, hi) of the reduced index; param: one of the class a column, or NULL */
static void fold_rows(const amp_rplan *p, const reducer *r, const amp_rblock *b, int64_t lo, int64_t hi, const char *param, char *acc)
{
  char buf[ROW_CHUNK * 8] __attribute__((aligned(64)));
  int cs = amp__class_size[r->cls];
  bool direct = p->rin[0] == 1 && (p->dtype == amp__class_dtype[r->cls] || (r->cls == AMP_C_U8 && p->dtype == AMP_UINT8));
  int64_t chunk = direct && r->cls != AMP_C_U8 ? 4096 : ROW_CHUNK;
  if (p->dtype == AMP_UINT8 && r->cls == AMP_C_U8) direct = false;  /* truth values are 0 or 1 */
  bool pack = p->nr > 1 && p->rsize[0] < (direct ? 64 : 512); /* short runs are put together first */
  if (direct && p->nr == 1 && hi - lo <= chunk) { /* a row is one run */
    const char *q = b->in + lo * p->es;
    for (int c = 0; c < b->n; c++, q += p->kin[0] * p->es) r->row(hi - lo, q, param ? param + c * cs : NULL, acc + c * 8);
    return;
  }
  for (int c = 0; c < b->n; c++) {
    const char *base = b->in + c * p->kin[0] * p->es;
    const void *m = param ? param + c * cs : NULL;
    int64_t packed = 0;
    amp_rpos x;
    amp__rseek(p, &x, lo);
    for (int64_t at = lo; at < hi; ) {
      int64_t n = p->rsize[0] - x.index[0];
      if (n > hi - at) n = hi - at;
      if (n > chunk) n = chunk;
      const char *q = base + x.offset * p->es;
      if (pack) {
        amp__load(r->cls, buf + packed * cs, p->dtype, q, p->rin[0], n);
        packed += n;
        if (packed > ROW_CHUNK - 512 || at + n == hi) {
          r->row(packed, buf, m, acc + c * 8);
          packed = 0;
        }
      } else if (direct) r->row(n, q, m, acc + c * 8);
      else {
        amp__load(r->cls, buf, p->dtype, q, p->rin[0], n);
        r->row(n, buf, m, acc + c * 8);
      }
      at += n;
      amp__rnext(p, &x, n);
    }
  }
}

/* Columns side by side. Where rows are short and follow each other without a gap, many make one. */
static void fold_columns(const amp_rplan *p, const reducer *r, const amp_rblock *b, int64_t lo, int64_t hi, const char *param, char *acc)
{
  char buf[AMP_CHUNK * 32] __attribute__((aligned(64))), lane[AMP_CHUNK * 16] __attribute__((aligned(64)));
  char sum[AMP_CHUNK * 16] __attribute__((aligned(64))), tiled[AMP_CHUNK * 8] __attribute__((aligned(64)));
  int cs = amp__class_size[r->cls], width = b->n, group = 1, taken = 0;
  bool dense = p->kin[0] == 1, direct = dense && p->dtype == amp__class_dtype[r->cls];
  if (dense && width == p->ksize[0] && p->rin[0] == width && width < 64) {
    group = AMP_CHUNK / width;
    if (param) {
      for (int g = 0; g < group; g++) memcpy(tiled + g * width * cs, param, (size_t)(width * cs));
      param = tiled;
    }
  }
  int all = width * group, several = AMP_CHUNK * 32 / (width * cs); /* rows that are widened together */
  if (several > 16) several = 16;
  r->init(all, lane, sum);
  amp_rpos x;
  amp__rseek(p, &x, lo);
  for (int64_t at = lo; at < hi; ) {
    int64_t rows = p->rsize[0] - x.index[0], most = group > 1 ? group : direct || 64 - taken < several ? 64 - taken : several;
    if (rows > hi - at) rows = hi - at;
    if (rows > most) rows = most;
    const char *q = b->in + x.offset * p->es;
    int64_t n = group > 1 ? rows * width : width;
    int together = group > 1 ? 1 : (int)rows;
    if (direct) r->cols(n, q, p->rin[0], together, param, lane);
    else if (group > 1) {
      amp__load(r->cls, buf, p->dtype, q, p->kin[0], n);
      r->cols(n, buf, 0, 1, param, lane);
    } else {
      if (dense && p->rin[0] == n) amp__load(r->cls, buf, p->dtype, q, 1, n * rows);
      else for (int64_t k = 0; k < rows; k++) amp__load(r->cls, buf + k * n * cs, p->dtype, q + k * p->rin[0] * p->es, p->kin[0], n);
      r->cols(n, buf, n, (int)rows, param, lane);
    }
    taken += together;
    if (taken == 64) {
      r->fold(all, lane, sum);
      r->init(all, lane, NULL);
      taken = 0;
    }
    at += rows;
    amp__rnext(p, &x, rows);
  }
  if (taken) r->fold(all, lane, sum);
  for (int g = 0; g < group; g++) r->join(width, sum + g * width * 8, acc);
}

static void fold(const amp_rplan *p, const reducer *r, const amp_rblock *b, int64_t lo, int64_t hi, const char *param, char *acc)
{
  if (lo >= hi) return;
  if (p->columns) fold_columns(p, r, b, lo, hi, param, acc);
  else fold_rows(p, r, b, lo, hi, param, acc);
}

typedef struct { const amp_rplan *p; const reducer *r; const amp_rblock *b; const char *param; char *part; int64_t piece, step; } pieces;

static void piece_part(int64_t lo, int64_t hi, void *ctx)
{
  const pieces *k = ctx;
  for (int64_t i = lo; i < hi; i++) {
    char *acc = k->part + i * k->step;
    int64_t a = i * k->piece, z = a + k->piece < k->p->reduced ? a + k->piece : k->p->reduced;
    k->r->init(k->b->n, NULL, acc);
    fold(k->p, k->r, k->b, a, z, k->param, acc);
  }
}

/* The whole reduced index of a block, in pieces joined in order */
static void fold_block(const amp_rplan *p, const reducer *r, const amp_rblock *b, const char *param, char *acc, int threads)
{
  int64_t width = p->columns ? b->n : 1, piece = 65536 / width > 64 ? 65536 / width : 64;
  int64_t n = (p->reduced + piece - 1) / piece;
  r->init(b->n, NULL, acc);
  if (n <= 1) { fold(p, r, b, 0, p->reduced, param, acc); return; }
  pieces k = { p, r, b, param, NULL, piece, (r == &moments_f || r == &moments_d ? AMP_CHUNK + b->n : b->n) * 8 };
  char one[AMP_CHUNK * 16] __attribute__((aligned(64)));
  if (threads > 1 && (k.part = malloc((size_t)(n * k.step))) != NULL) {
    amp__parallel(threads, n, 1, piece_part, &k);
    for (int64_t i = 0; i < n; i++) r->join(b->n, k.part + i * k.step, acc);
    free(k.part);
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    int64_t z = (i + 1) * piece < p->reduced ? (i + 1) * piece : p->reduced;
    r->init(b->n, NULL, one);
    fold(p, r, b, i * piece, z, param, one);
    r->join(b->n, one, acc);
  }
}

/* -- Operations -------------------------------------------------------------------------- */

enum finish { STORE, MEAN, CENTRE, VAR, STD, LSE, ROOT, POWER };
/* second: of log-sum-exp the exponentials, else first in double. Of a norm, correction is p. */
typedef struct operation { const amp_rplan *p; const reducer *first, *second; int finish; double correction; } operation;

/* Whether a sum of n powers in float lost what double keeps: it, or some of the powers, left float's range */
static bool out_of_range(double sum, double n) { return !(sum <= FLT_MAX && sum >= n * 1e-30); }

/* Parameters of a reducer's class */
static void narrow(double *to, const double *from, int n, const reducer *r)
{
  for (int j = 0; j < n; j++)
    if (r->cls == AMP_C_F32) ((float *)to)[j] = (float)from[j];
    else to[j] = from[j];
}

/* Sums of squared deviations into acc, by one pass about each first element: no common offset is lost, and equal elements
** give 0. Where that element lies more than four standard deviations off, once more about the mean; where squares left
** float's range, in double. */
static void deviations(const operation *o, const amp_rblock *b, double *acc, int threads)
{
  const amp_rplan *p = o->p;
  const reducer *r = o->first;
  double about[AMP_CHUNK], param[AMP_CHUNK], n = (double)p->reduced;
  if (p->reduced > 0) amp__load(AMP_C_F64, about, p->dtype, b->in, p->kin[0], b->n);
  for (int pass = 0; pass < 2; ) {
    bool lost = false, far = false;
    narrow(param, about, b->n, r);
    fold_block(p, r, b, (char *)param, (char *)acc, threads);
    for (int j = 0; j < b->n; j++) {
      double s = acc[j], q = acc[AMP_CHUNK + j], m2 = q - s * s / n;
      lost = lost || out_of_range(q, n);
      acc[j] = m2 < 0 ? 0 : m2;
      if (s * s > 16 * n * acc[j] && isfinite(s)) { acc[AMP_CHUNK + j] = s / n; far = true; }
      else acc[AMP_CHUNK + j] = 0;
    }
    if (lost && r != o->second) { r = o->second; continue; }
    if (!far) return;
    for (int j = 0; j < b->n; j++) about[j] += acc[AMP_CHUNK + j];
    pass++;
  }
}

/* Powers in float whose sum leaves its range are added once more in double. */
static void powers(const operation *o, const amp_rblock *b, double *acc, int threads)
{
  double power[AMP_CHUNK], param[AMP_CHUNK];
  bool lost = false;
  const char *each = o->finish == POWER ? (const char *)param : NULL;
  if (each) {
    for (int j = 0; j < b->n; j++) power[j] = o->correction;
    narrow(param, power, b->n, o->first);
  }
  fold_block(o->p, o->first, b, each, (char *)acc, threads);
  for (int j = 0; j < b->n; j++) lost = lost || out_of_range(acc[j], (double)o->p->reduced);
  if (!lost || o->first == o->second) return;
  fold_block(o->p, o->second, b, each ? (const char *)power : NULL, (char *)acc, threads);
}

static void log_sums(const operation *o, const amp_rblock *b, double *acc, int threads)
{
  double keep[AMP_CHUNK], param[AMP_CHUNK];
  fold_block(o->p, o->first, b, NULL, (char *)acc, threads);
  for (int j = 0; j < b->n; j++) keep[j] = isinf(acc[j]) ? 0 : acc[j];
  narrow(param, keep, b->n, o->second);
  fold_block(o->p, o->second, b, (char *)param, (char *)acc, threads);
  for (int j = 0; j < b->n; j++) acc[j] = log(acc[j]) + (o->second->cls == AMP_C_F64 ? keep[j] : (double)(float)keep[j]);
}

/* Means to more digits than the elements have: from the first element on */
static void centres(const operation *o, const amp_rblock *b, double *acc, int threads)
{
  const amp_rplan *p = o->p;
  double about[AMP_CHUNK], param[AMP_CHUNK];
  if (p->reduced > 0) amp__load(AMP_C_F64, about, p->dtype, b->in, p->kin[0], b->n);
  narrow(param, about, b->n, o->first);
  fold_block(p, o->first, b, (char *)param, (char *)acc, threads);
  for (int j = 0; j < b->n; j++) acc[j] = about[j] + acc[j] / (double)p->reduced;
}

static void run_block(const operation *o, int64_t i, int threads)
{
  const amp_rplan *p = o->p;
  double acc[2 * AMP_CHUNK], n = (double)p->reduced;
  amp_rblock b;
  amp__rblock(p, i, &b);
  if (o->finish == VAR || o->finish == STD) {
    double left = n - o->correction > 0 ? n - o->correction : 0;
    deviations(o, &b, acc, threads);
    for (int j = 0; j < b.n; j++) acc[j] = o->finish == STD ? sqrt(acc[j] / left) : acc[j] / left;
  } else if (o->finish == CENTRE) centres(o, &b, acc, threads);
  else if (o->finish == LSE) log_sums(o, &b, acc, threads);
  else if (o->finish == ROOT || o->finish == POWER) {
    powers(o, &b, acc, threads);
    for (int j = 0; j < b.n; j++) acc[j] = o->finish == ROOT ? sqrt(acc[j]) : pow(acc[j], 1 / o->correction);
  } else {
    fold_block(p, o->first, &b, NULL, (char *)acc, threads);
    if (o->finish == MEAN) for (int j = 0; j < b.n; j++) acc[j] /= n;
  }
  amp__store(p->odtype, b.out, p->kout[0], o->first->acc_cls, acc, b.n);
}

static void block_part(int64_t lo, int64_t hi, void *ctx)
{
  for (int64_t i = lo; i < hi; i++) run_block(ctx, i, 1);
}

static int run(operation *o, const amp_rplan *p, int cost)
{
  int threads = amp__threads(p->outputs * (p->reduced > 0 ? p->reduced : 1) * cost);
  o->p = p;
  if (p->blocks >= threads) amp__parallel(threads, p->blocks, 1, block_part, o);
  else if (p->blocks > 0 && p->blocks * 4 >= threads && p->reduced < 65536) amp__parallel(threads, p->blocks, 1, block_part, o);
  else for (int64_t i = 0; i < p->blocks; i++) run_block(o, i, threads);
  return 0;
}

/* Class of a sum or product with a result of dtype out */
static int simple(amp_call *c, uint32_t mask, const reducer *f, const reducer *d, const reducer *i, int finish)
{
  amp_rplan p;
  int k = amp__dtype_class[c->out[0]->dtype], rc;
  if (k == AMP_C_F32 && c->in[0]->dtype == AMP_FLOAT64) k = AMP_C_F64;
  if (k == AMP_C_I64 && (rc = amp__check_cast(c->in[0], AMP_INT64)) < 0) return rc;
  operation o = { .first = k == AMP_C_F32 ? f : k == AMP_C_F64 ? d : i, .finish = finish };
  amp__rplan_mask(&p, c->in[0], c->out[0], mask);
  return run(&o, &p, 1);
}

static uint32_t mask_of(const amp_call *c, const amp_slot *one) /* a d? attribute */
{
  return one->i == AMP_NONE ? (1u << c->in[0]->ndim) - 1 : 1u << one->i;
}

int amp__cpu_sum(amp_call *c) { return simple(c, amp__rmask(c->a), &total_f, &sum_d, &sum_i, STORE); }
int amp__cpu_mean(amp_call *c) { return simple(c, amp__rmask(c->a), &total_f, &sum_d, NULL, MEAN); }
int amp__cpu_prod(amp_call *c) { return simple(c, mask_of(c, c->a), &prod_d, &prod_d, &prod_i, STORE); }
int amp__cpu_amax(amp_call *c) { return simple(c, amp__rmask(c->a), &max_f, &max_d, &max_i, STORE); }
int amp__cpu_amin(amp_call *c) { return simple(c, amp__rmask(c->a), &min_f, &min_d, &min_i, STORE); }
/* max and min over everything; along a dimension, with indices: cpu_reduce_arg.c */
int amp__max_all(amp_call *c) { return simple(c, mask_of(c, c->a), &max_f, &max_d, &max_i, STORE); }
int amp__min_all(amp_call *c) { return simple(c, mask_of(c, c->a), &min_f, &min_d, &min_i, STORE); }

int amp__cpu_sum_to(amp_call *c)
{
  const amp_tensor *t = c->in[0], *s = c->out[0];
  int outdim[AMP_MAX_DIM], lead = t->ndim - s->ndim;
  amp_rplan p;
  for (int d = 0; d < t->ndim; d++) outdim[d] = d < lead || (s->size[d - lead] == 1 && t->size[d] != 1) ? -1 : d - lead;
  amp__rplan(&p, t, s, outdim);
  operation o = { .first = t->dtype == AMP_FLOAT64 ? &sum_d : &total_f, .finish = STORE };
  return run(&o, &p, 1);
}

static int truth(amp_call *c, const reducer *r)
{
  amp_rplan p;
  operation o = { .first = r, .finish = STORE };
  amp__rplan_mask(&p, c->in[0], c->out[0], amp__rmask(c->a));
  return run(&o, &p, 1);
}
int amp__cpu_any(amp_call *c) { return truth(c, &any_u); }
int amp__cpu_all(amp_call *c) { return truth(c, &all_u); }

static int spread(amp_call *c, int finish)
{
  amp_rplan p;
  operation o = { .first = c->in[0]->dtype == AMP_FLOAT64 ? &moments_d : &moments_f, .second = &moments_d, .finish = finish, .correction = c->a[9].f };
  amp__rplan_mask(&p, c->in[0], c->out[0], amp__rmask(c->a));
  return run(&o, &p, 2);
}
int amp__cpu_var(amp_call *c) { return spread(c, VAR); }
int amp__cpu_std(amp_call *c) { return spread(c, STD); }

int amp__means(const amp_tensor *x, uint32_t mask, amp_tensor *mean)
{
  amp_rplan p;
  operation o = { .first = x->dtype == AMP_FLOAT64 ? &beyond_d : &beyond_f, .finish = CENTRE };
  amp__rplan_mask(&p, x, mean, mask);
  return run(&o, &p, 1);
}

int amp__cpu_lp_norm(amp_call *c) /* p dim keepdim dtype */
{
  static const reducer *const of[6][2] = {
    { &square_f, &square_d }, { &abs_f, &abs_d }, { &most_f, &most_d }, { &least_f, &least_d }, { &other_f, &other_d }, { &power_f, &power_d } };
  amp_rplan plan;
  double p = c->a[0].f;
  int wide = c->in[0]->dtype == AMP_FLOAT64 || c->out[0]->dtype == AMP_FLOAT64;
  int k = p == 2 ? 0 : p == 1 ? 1 : p == INFINITY ? 2 : p == -INFINITY ? 3 : p == 0 ? 4 : 5;
  operation o = { .first = of[k][wide], .second = of[k][1], .finish = k == 0 ? ROOT : k == 5 ? POWER : STORE, .correction = p };
  amp__rplan_mask(&plan, c->in[0], c->out[0], amp__rmask(c->a + 1));
  return run(&o, &plan, k == 5 ? 8 : 1);
}

int amp__cpu_logsumexp(amp_call *c)
{
  amp_rplan p;
  bool wide = c->in[0]->dtype == AMP_FLOAT64;
  operation o = { .first = wide ? &max_d : &max_f, .second = wide ? &exp_d : &exp_f, .finish = LSE };
  amp__rplan_mask(&p, c->in[0], c->out[0], amp__rmask(c->a));
  return run(&o, &p, 8);
}
