/*
** ops/reduce/reducers.c: the loops of reductions: how elements of a row, or of columns
** side by side, go into float, double or int64 lanes (ops/reduce/reduce.h).
*/
#include <float.h>
#include "ops/reduce/reduce.h"
#include "cpu/isa.h"
#include "cpu/vector_math.h"

#define NO_PARAM(p, j) 0
#define COLUMN_PARAM(p, j) p[j]

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

/*
** How the lanes of a row take its whole rounds. BY_ITEMS leaves it to the compiler, which keeps the lanes in memory:
*right for
** long steps. BY_VECTORS keeps them in up to eight registers of 32 bytes: wider vectors are kept in memory where
*registers have
** 32, and rounds that wait for their own stores are seven times slower on some processors. A vector's step is that of
*items,
** but comparisons give masks. BY_MASKS is BY_VECTORS for steps that compare, which compilers take apart into single
*elements
** where registers are smaller.
*/
#define BY_ITEMS(V, step)                         \
  do {                                            \
    for (int j = 0; j < LANES; j++) l[j] = START; \
    for (; i + LANES <= count; i += LANES)        \
      for (int j = 0; j < LANES; j++) {           \
        const real v = x[i + j];                  \
        l[j] = STEP(l[j], v, m);                  \
      }                                           \
  } while (0)
#define BY_VECTORS(V, step)                                                                       \
  do {                                                                                            \
    V a0 = (V){ 0 } + (real)START, a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0; \
    for (; i + LANES <= count; i += LANES) {                                                      \
      const V *from = (const V *)(x + i);                                                         \
      EACH_VECTOR(V, TAKE_VECTOR, step)                                                           \
    }                                                                                             \
    V *to = (V *)l;                                                                               \
    EACH_VECTOR(V, PUT_VECTOR, step)                                                              \
  } while (0)
#define BY_MASKS(V, step)                               \
  if (amp__cpu_isa() < AMP_ISA_AVX2) BY_ITEMS(V, step); \
  else BY_VECTORS(V, step)
#define EACH_VECTOR(V, do_, step)                                                     \
  do_(V, step, 0) do_(V, step, 1) do_(V, step, 2) do_(V, step, 3) /* at most eight */ \
      do_(V, step, 4) do_(V, step, 5) do_(V, step, 6) do_(V, step, 7)
#define TAKE_VECTOR(V, step, k)               \
  if ((k) < LANES * (int)sizeof(real) / 32) { \
    const V v##k = from[k];                   \
    a##k = step(V, a##k, v##k);               \
  }
#define PUT_VECTOR(V, step, k) \
  if ((k) < LANES * (int)sizeof(real) / 32) to[k] = a##k;

#define MASK(a) __typeof__((a) > (a))
#define KEEP(V, mask, yes, no) (V)(((MASK(yes))(yes) & (mask)) | ((MASK(no))(no) & ~(mask)))
#define SIZE(V, v) (V)((MASK(v))(v) & ~(MASK(v))(-(V){ 0 })) /* without the sign's bit */
#define V_ADD(V, a, v) ((a) + (v))
#define V_ADDI(V, a, v) (V)((words)(a) + (words)(v))
#define V_MUL(V, a, v) ((a) * (v))
#define V_BEYOND(V, a, v) ((a) + ((v)-m))
#define V_SQUARE(V, a, v) ((a) + (v) * (v))
#define V_ABS(V, a, v) ((a) + SIZE(V, v))
#define V_MAX(V, a, v) KEEP(V, ((v) > (a)) | ((v) != (v)), v, a)
#define V_MIN(V, a, v) KEEP(V, ((v) < (a)) | ((v) != (v)), v, a)
#define V_MOST(V, a, v) KEEP(V, (SIZE(V, v) > (a)) | ((v) != (v)), SIZE(V, v), a)
#define V_LEAST(V, a, v) KEEP(V, (SIZE(V, v) < (a)) | ((v) != (v)), SIZE(V, v), a)
#define V_OTHER(V, a, v) ((a) + (V)((MASK(v))((v) != 0) & (MASK(v))((V){ 0 } + 1)))
#define V_MAXI(V, a, v) KEEP(V, (v) > (a), v, a)
#define V_MINI(V, a, v) KEEP(V, (v) < (a), v, a)
typedef uint64_t words __attribute__((vector_size(32), aligned(8), may_alias));

#define REDUCER sum_f, AMP_CLONES, float, double, 64, 0, ADD, ADD2, NO_PARAM, AMP_C_F32, AMP_C_F64, 0, BY_VECTORS, V_ADD
#include "ops/reduce/reducer_body.h"
/*
** Rows under 128 elements, whose ends cost little: most rows are short. Sixteen lanes go by two vectors of eight:
*vectors wider
** than a register's are kept in memory where registers have 32 bytes.
*/
typedef float lanes8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t masks8 __attribute__((vector_size(32), aligned(4), may_alias));
static const int32_t last[32] = { [16] = -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 };

/* The sum of eight lanes: no function takes vectors, which not all processors pass in the same way. */
#define ACROSS(r, a) \
  for (int j_ = 0; j_ < 4; j_++) (r) += (a)[j_] + (a)[j_ + 4]

static AMP_CLONES void total_f_row(int64_t count, const void *x_, const void *param, void *acc)
{
  if (count >= 128) {
    sum_f_row(count, x_, param, acc);
    return;
  }
  const float *x = x_;
  lanes8 a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 }, a2 = { 0 }, b2 = { 0 }, c2 = { 0 }, d2 = { 0 };
  int64_t i = 0;
  (void)param;
  for (; i + 64 <= count; i += 64) {
    const lanes8 *v = (const lanes8 *)(x + i);
    a += v[0], a2 += v[1], b += v[2], b2 += v[3];
    c += v[4], c2 += v[5], d += v[6], d2 += v[7];
  }
  for (; i + 16 <= count; i += 16) {
    const lanes8 *v = (const lanes8 *)(x + i);
    a += v[0], a2 += v[1];
  }
  float r = 0;
  if (count < 16)
    for (; i < count; i++) r += x[i];
  else if (i < count) { /* the last 16 elements, without those that were taken already */
    const masks8 *m = (const masks8 *)(last + (count - i)), *v = (const masks8 *)(x + count - 16);
    b += (lanes8)(v[0] & m[0]);
    b2 += (lanes8)(v[1] & m[1]);
  }
  a = (a + b) + (c + d);
  a2 = (a2 + b2) + (c2 + d2);
  a += a2;
  ACROSS(r, a);
  *(double *)acc += (double)r;
}
const amp_reducer amp__fold_total_f
    = { total_f_row, sum_f_cols, sum_f_init, sum_f_fold, sum_f_join, AMP_C_F32, AMP_C_F64, 1 };
#define REDUCER \
  sum_d, AMP_CLONES_WIDE, double, double, 32, 0, ADD, ADD2, NO_PARAM, AMP_C_F64, AMP_C_F64, 0, BY_VECTORS, V_ADD
#include "ops/reduce/reducer_body.h"
#define REDUCER \
  sum_i, AMP_CLONES_WIDE, int64_t, int64_t, 16, 0, ADDI, ADDI2, NO_PARAM, AMP_C_I64, AMP_C_I64, 0, BY_VECTORS, V_ADDI
#include "ops/reduce/reducer_body.h"
#define REDUCER \
  prod_d, AMP_CLONES_WIDE, double, double, 16, 1, MUL, MUL2, NO_PARAM, AMP_C_F64, AMP_C_F64, 0, BY_VECTORS, V_MUL
#include "ops/reduce/reducer_body.h"
#define REDUCER prod_i, , int64_t, int64_t, 4, 1, MULI, MULI2, NO_PARAM, AMP_C_I64, AMP_C_I64, 0, BY_ITEMS,
#include "ops/reduce/reducer_body.h"
#define REDUCER \
  beyond_f, AMP_CLONES, float, double, 64, 0, BEYOND, ADD2, COLUMN_PARAM, AMP_C_F32, AMP_C_F64, 0, BY_VECTORS, V_BEYOND
#include "ops/reduce/reducer_body.h"
#define REDUCER                                                                                                      \
  beyond_d, AMP_CLONES_WIDE, double, double, 32, 0, BEYOND, ADD2, COLUMN_PARAM, AMP_C_F64, AMP_C_F64, 0, BY_VECTORS, \
      V_BEYOND
#include "ops/reduce/reducer_body.h"
#define REDUCER exp_f, AMP_CLONES, float, double, 32, 0, EXPF, ADD2, COLUMN_PARAM, AMP_C_F32, AMP_C_F64, 1, BY_ITEMS,
#include "ops/reduce/reducer_body.h"
#define REDUCER exp_d, , double, double, 4, 0, EXPD, ADD2, COLUMN_PARAM, AMP_C_F64, AMP_C_F64, 1, BY_ITEMS,
#include "ops/reduce/reducer_body.h"
#define REDUCER \
  max_f, AMP_CLONES, float, double, 64, -INFINITY, MAX, MAX2, NO_PARAM, AMP_C_F32, AMP_C_F64, 0, BY_MASKS, V_MAX
#include "ops/reduce/reducer_body.h"
#define REDUCER \
  max_d, AMP_CLONES_WIDE, double, double, 32, -INFINITY, MAX, MAX2, NO_PARAM, AMP_C_F64, AMP_C_F64, 0, BY_MASKS, V_MAX
#include "ops/reduce/reducer_body.h"
#define REDUCER                                                                                                      \
  max_i, AMP_CLONES_WIDE, int64_t, int64_t, 16, INT64_MIN, MAXI, MAXI2, NO_PARAM, AMP_C_I64, AMP_C_I64, 0, BY_MASKS, \
      V_MAXI
#include "ops/reduce/reducer_body.h"
#define REDUCER \
  min_f, AMP_CLONES, float, double, 64, INFINITY, MIN, MIN2, NO_PARAM, AMP_C_F32, AMP_C_F64, 0, BY_MASKS, V_MIN
#include "ops/reduce/reducer_body.h"
#define REDUCER \
  min_d, AMP_CLONES_WIDE, double, double, 32, INFINITY, MIN, MIN2, NO_PARAM, AMP_C_F64, AMP_C_F64, 0, BY_MASKS, V_MIN
#include "ops/reduce/reducer_body.h"
#define REDUCER                                                                                                      \
  min_i, AMP_CLONES_WIDE, int64_t, int64_t, 16, INT64_MAX, MINI, MINI2, NO_PARAM, AMP_C_I64, AMP_C_I64, 0, BY_MASKS, \
      V_MINI
#include "ops/reduce/reducer_body.h"
#define REDUCER \
  square_f, AMP_CLONES, float, double, 64, 0, SQUARE, ADD2, NO_PARAM, AMP_C_F32, AMP_C_F64, 0, BY_VECTORS, V_SQUARE
#include "ops/reduce/reducer_body.h"
#define REDUCER                                                                                                  \
  square_d, AMP_CLONES_WIDE, double, double, 32, 0, SQUARE, ADD2, NO_PARAM, AMP_C_F64, AMP_C_F64, 0, BY_VECTORS, \
      V_SQUARE
#include "ops/reduce/reducer_body.h"
#define REDUCER \
  abs_f, AMP_CLONES, float, double, 64, 0, ABSF, ADD2, NO_PARAM, AMP_C_F32, AMP_C_F64, 0, BY_VECTORS, V_ABS
#include "ops/reduce/reducer_body.h"
#define REDUCER \
  abs_d, AMP_CLONES_WIDE, double, double, 32, 0, ABSD, ADD2, NO_PARAM, AMP_C_F64, AMP_C_F64, 0, BY_VECTORS, V_ABS
#include "ops/reduce/reducer_body.h"
#define REDUCER \
  most_f, AMP_CLONES, float, double, 64, 0, MOSTF, MAX2, NO_PARAM, AMP_C_F32, AMP_C_F64, 0, BY_MASKS, V_MOST
#include "ops/reduce/reducer_body.h"
#define REDUCER \
  most_d, AMP_CLONES_WIDE, double, double, 32, 0, MOSTD, MAX2, NO_PARAM, AMP_C_F64, AMP_C_F64, 0, BY_MASKS, V_MOST
#include "ops/reduce/reducer_body.h"
#define REDUCER \
  least_f, AMP_CLONES, float, double, 64, INFINITY, LEASTF, MIN2, NO_PARAM, AMP_C_F32, AMP_C_F64, 0, BY_MASKS, V_LEAST
#include "ops/reduce/reducer_body.h"
#define REDUCER                                                                                                      \
  least_d, AMP_CLONES_WIDE, double, double, 32, INFINITY, LEASTD, MIN2, NO_PARAM, AMP_C_F64, AMP_C_F64, 0, BY_MASKS, \
      V_LEAST
#include "ops/reduce/reducer_body.h"
#define REDUCER \
  other_f, AMP_CLONES, float, double, 64, 0, OTHER, ADD2, NO_PARAM, AMP_C_F32, AMP_C_F64, 0, BY_MASKS, V_OTHER
#include "ops/reduce/reducer_body.h"
#define REDUCER \
  other_d, AMP_CLONES_WIDE, double, double, 32, 0, OTHER, ADD2, NO_PARAM, AMP_C_F64, AMP_C_F64, 0, BY_MASKS, V_OTHER
#include "ops/reduce/reducer_body.h"
#define REDUCER \
  power_f, AMP_CLONES, float, double, 16, 0, POWERF, ADD2, COLUMN_PARAM, AMP_C_F32, AMP_C_F64, 1, BY_ITEMS,
#include "ops/reduce/reducer_body.h"
#define REDUCER power_d, , double, double, 4, 0, POWERD, ADD2, COLUMN_PARAM, AMP_C_F64, AMP_C_F64, 1, BY_ITEMS,
#include "ops/reduce/reducer_body.h"
#define REDUCER \
  any_u, AMP_CLONES_WIDE, uint8_t, int64_t, 64, 0, MAXI, MAXI2, NO_PARAM, AMP_C_U8, AMP_C_I64, 0, BY_MASKS, V_MAXI
#include "ops/reduce/reducer_body.h"
#define REDUCER \
  all_u, AMP_CLONES_WIDE, uint8_t, int64_t, 64, 1, MINI, MINI2, NO_PARAM, AMP_C_U8, AMP_C_I64, 0, BY_MASKS, V_MINI
#include "ops/reduce/reducer_body.h"

/* -- Two sums at once, of (x - m) and of its square --------------------------------------- */

#define FOLD amp__fold_lanes_f
#define NAME(part) lanes_f_##part
#define CLONES AMP_CLONES
#define real float
#define CLASS AMP_C_F32
#define LANES 32
#include "ops/reduce/moments_body.h"

#define FOLD amp__fold_moments_d
#define NAME(part) moments_d_##part
#define CLONES AMP_CLONES_WIDE
#define real double
#define CLASS AMP_C_F64
#define LANES 16
#include "ops/reduce/moments_body.h"

/* The same of a row; the ends of short ones cost little, as in total_f */
static AMP_CLONES void moments_f_row(int64_t count, const void *x_, const void *param, void *acc_)
{
  if (count >= 128) {
    lanes_f_row(count, x_, param, acc_);
    return;
  }
  const float *x = x_, about = *(const float *)param;
  double *acc = acc_;
  lanes8 s[4] = { { 0 } }, p[4] = { { 0 } };
  float r = 0, u = 0;
  int64_t i = 0;
#define TAKE(k, w)            \
  do {                        \
    const lanes8 taken = (w); \
    s[k] += taken;            \
    p[k] += taken * taken;    \
  } while (0)
  for (; i + 32 <= count; i += 32) {
    const lanes8 *v = (const lanes8 *)(x + i);
    TAKE(0, v[0] - about);
    TAKE(1, v[1] - about);
    TAKE(2, v[2] - about);
    TAKE(3, v[3] - about);
  }
  for (; i + 16 <= count; i += 16) {
    const lanes8 *v = (const lanes8 *)(x + i);
    TAKE(0, v[0] - about);
    TAKE(1, v[1] - about);
  }
  if (count < 16)
    for (; i < count; i++) {
      float v = x[i] - about;
      r += v;
      u += v * v;
    }
  else if (i < count) { /* the last 16 elements, without those that were taken already */
    const masks8 *m = (const masks8 *)(last + (count - i));
    const lanes8 *v = (const lanes8 *)(x + count - 16);
    TAKE(2, (lanes8)((masks8)(v[0] - about) & m[0]));
    TAKE(3, (lanes8)((masks8)(v[1] - about) & m[1]));
  }
#undef TAKE
  s[0] = (s[0] + s[2]) + (s[1] + s[3]);
  p[0] = (p[0] + p[2]) + (p[1] + p[3]);
  ACROSS(r, s[0]);
  ACROSS(u, p[0]);
  acc[0] += (double)r;
  acc[AMP_CHUNK] += (double)u;
}
const amp_reducer amp__fold_moments_f
    = { moments_f_row, lanes_f_cols, lanes_f_init, lanes_f_fold, lanes_f_join, AMP_C_F32, AMP_C_F64, 2 };
