/*
** ops/elementwise/function_slope.c: the kernel of slope: a gradient times a function's slope at a point, in one pass.
**
** Which point that is (an input or a result) and what p, q and r are says the derivative that calls it
** (math_derivative.c, special_derivative.c). Short slopes are loops of their own; one that is itself an op's function
** is made by that op's loop, a chunk at a time, and multiplied.
*/
#include "ops/elementwise/binary.h"
#include "ops/elementwise/unary.h"

typedef struct {
  float f[3];
  double d[3];
  const amp_loop_fn *loops; /* of a slope that is an op's function of x, or (squared) of q x^2 */
  int order;                /* polygamma's */
  bool squared;
} settings;

/* g: the gradient, x: the point; the settings are in registers, or there would be no vectors */
#define LOOP(CLONES, name, T, field, E)                                                                       \
  AMP_INLINE T name##_value(T g, T x, T p, T q, T r) { return (T)(E); }                                       \
  static CLONES void name(int64_t n, void *const *operand, unsigned scalar, const void *arg)                  \
  {                                                                                                           \
    T *out = operand[0];                                                                                      \
    const T *grad = operand[1], *point = operand[2], *s = ((const settings *)arg)->field, p = s[0], q = s[1], \
            r = s[2];                                                                                         \
    AMP_IVDEP                                                                                                 \
    for (int64_t i = 0; i < n; i++) out[i] = name##_value(grad[i], point[i], p, q, r);                        \
  }
#define SLOPE(name, EF, ED) LOOP(AMP_CLONES, name##_f, float, f, EF) LOOP(AMP_CLONES_WIDE, name##_d, double, d, ED)
#define LONG_SLOPE(name, EF, ED) LOOP(AMP_CLONES, name##_f, float, f, EF) LOOP(, name##_d, double, d, ED)
#define SAME(name, E) SLOPE(name, E, E)

SAME(line, g *(p + q * x))
SAME(over, g *q / (x * p + r))
SAME(over_square, g / (p + q * x * x))
SLOPE(over_root, g *(r / sqrtf(p + q * x * x)), g *(r / sqrt(p + q * x * x)))
SAME(times_square, g *(p + q * x * x))
SAME(abs, g *(x > 0 ? 1 : x < 0 ? -1 : x))
SAME(rsqrt, g *(x * -0.5f) * (x * x))
SAME(reciprocal, -(g *x *x))
SLOPE(finite, (fabsf(x) <= FLT_MAX ? g : 0), (fabs(x) <= DBL_MAX ? g : 0))
SAME(logit, (p != p || (x > p && x < q) ? g / (x * (1 - x)) : 0))
SAME(leaky_relu, (x > 0 ? g : g * p))
SLOPE(clamp, (((p == -INFINITY || x > p) & (q == INFINITY || x < q)) ? g / r : 0.f),
      (((p == -INFINITY || x > p) & (q == INFINITY || x < q)) ? g / r : 0.))
SAME(hardswish, (x >= 3 ? g : x <= -3 ? 0 : g * (x / 3 + 0.5f)))
SLOPE(softsign, g / ((1 + fabsf(x)) * (1 + fabsf(x))), g / ((1 + fabs(x)) * (1 + fabs(x))))
SLOPE(shrink, (fabsf(x) <= p ? 0 : g), (fabs(x) <= p ? 0 : g))
SAME(threshold, (x <= p ? 0 : g))
SAME(quotient, (x == 0 ? 0 : g * q / x))

static double sigmoid(double x) { return x < 0 ? exp(x) / (1.0 + exp(x)) : 1.0 / (1.0 + exp(-x)); }
LONG_SLOPE(softplus, (x * p > q ? g : g * amp__sigmoidf(x * p)), (x * p > q ? g : g * sigmoid(x * p)))

/* t + x s (1 - t^2) with t = tanh(softplus(x)) = n / (n + 2), n = e (e + 2), e = exp(x), and the sigmoid s = e / (1 +
** e) */
AMP_INLINE float mishf(float x)
{
  const float c = x > 20.f ? 20.f : x < -104.f ? -104.f : x, e = amp__expf(c), n = e * (e + 2.f), t = n / (n + 2.f);
  const float y = t + c * (e / (1.f + e)) * (1.f - t) * (1.f + t);
  return x > 20.f ? 1.f : x != x ? x : y;
}
static double mish(double x)
{
  if (x > 40 || x != x) return x != x ? x : 1;
  const double c = x < -800 ? -800 : x, e = exp(c), n = e * (e + 2), t = n / (n + 2);
  return t + c * (e / (1 + e)) * (1 - t) * (1 + t);
}
LONG_SLOPE(mish, g *mishf(x), g *mish(x))
static double tanh_squared(double x) { return tanh(x) * tanh(x); }
LONG_SLOPE(power, g *amp__expf(x) * p, g *exp(x) * p)
LONG_SLOPE(tanhshrink, g *(amp__tanhf(x) * amp__tanhf(x)), g *tanh_squared(x))

/* -- By the loop of an op's function ---------------------------------------------------- */

#define BY_LOOP(CLONES, name, T, field, which)                                                                       \
  static CLONES void name##_times(int64_t n, T *restrict out, const T *restrict grad, const T *restrict value, T by) \
  {                                                                                                                  \
    for (int64_t i = 0; i < n; i++) out[i] = grad[i] * (value[i] * by);                                              \
  }                                                                                                                  \
  static void name(int64_t n, void *const *operand, unsigned scalar, const void *arg)                                \
  {                                                                                                                  \
    const settings *s = arg;                                                                                         \
    T value[AMP_CHUNK];                                                                                              \
    for (int64_t first = 0; first < n; first += AMP_CHUNK) {                                                         \
      const int64_t count = n - first < AMP_CHUNK ? n - first : AMP_CHUNK;                                           \
      const T *point = (const T *)operand[2] + first;                                                                \
      void *part[2] = { value, (void *)point };                                                                      \
      if (s->squared) {                                                                                              \
        for (int64_t i = 0; i < count; i++) value[i] = s->field[1] * point[i] * point[i];                            \
        part[1] = value;                                                                                             \
      }                                                                                                              \
      s->loops[which](count, part, 0, &s->order);                                                                    \
      name##_times(count, (T *)operand[0] + first, (const T *)operand[1] + first, value, s->field[0]);               \
    }                                                                                                                \
  }
BY_LOOP(AMP_CLONES, by_loop_f, float, f, 0)
BY_LOOP(AMP_CLONES_WIDE, by_loop_d, double, d, 1)

/* The op whose function the slope is, times p: of x, or of q x^2 */
static const amp_loop_fn *function_loops(int function)
{
  switch ((enum function_word)function) {
  case FUNCTION_BELL: return amp__exp_loops;
  case FUNCTION_SIN: return amp__cos_loops;
  case FUNCTION_COS: return amp__sin_loops;
  case FUNCTION_SINH: return amp__cosh_loops;
  case FUNCTION_COSH: return amp__sinh_loops;
  case FUNCTION_DIGAMMA: return amp__digamma_loops;
  case FUNCTION_POLYGAMMA: return amp__polygamma_loops;
  default: return NULL;
  }
}

/* -- Calls --------------------------------------------------------------------------------- */

#define ROW(word, name, cost) [FUNCTION_##word] = { { name##_f, name##_d, NULL }, cost }
static const struct {
  amp_loop_fn loops[3];
  uint16_t cost;
} rows[FUNCTION_COUNT] = {
  ROW(LINE, line, 1),
  ROW(OVER, over, 2),
  ROW(OVER_SQUARE, over_square, 2),
  ROW(OVER_ROOT, over_root, 4),
  ROW(TIMES_SQUARE, times_square, 1),
  ROW(ABS, abs, 1),
  ROW(RSQRT, rsqrt, 1),
  ROW(RECIPROCAL, reciprocal, 1),
  ROW(EXP, power, 8),
  ROW(BELL, by_loop, 9),
  ROW(SIN, by_loop, 12),
  ROW(COS, by_loop, 12),
  ROW(SINH, by_loop, 16),
  ROW(COSH, by_loop, 16),
  ROW(SOFTPLUS, softplus, 10),
  ROW(MISH, mish, 14),
  ROW(DIGAMMA, by_loop, 100),
  ROW(POLYGAMMA, by_loop, 400),
  ROW(FINITE, finite, 1),
  ROW(LOGIT, logit, 3),
  ROW(LEAKY_RELU, leaky_relu, 1),
  ROW(CLAMP, clamp, 2),
  ROW(HARDSWISH, hardswish, 2),
  ROW(SOFTSIGN, softsign, 3),
  ROW(SHRINK, shrink, 1),
  ROW(THRESHOLD, threshold, 1),
  ROW(TANHSHRINK, tanhshrink, 10),
  ROW(QUOTIENT, quotient, 2),
};

int amp__cpu_slope(amp_call *call) /* grad point; function p q r */
{
  const args_slope *args = AMP_ARGS(call, slope);
  const int cls = class_of2(call);
  const settings s = { { (float)args->p, (float)args->q, (float)args->r },
                       { args->p, args->q, args->r },
                       function_loops((int)args->function),
                       args->function == FUNCTION_POLYGAMMA ? (int)args->q : 0,
                       args->function == FUNCTION_BELL };
  AMP_ASSERT(rows[args->function].loops[0] != NULL);
  return run2_as(call, rows[args->function].loops, cls == AMP_C_I64 ? AMP_C_F32 : cls, rows[args->function].cost, 0,
                 &s);
}
