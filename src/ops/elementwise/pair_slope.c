/*
** ops/elementwise/pair_slope.c: the kernel of pair_slope: a gradient times a slope of a function of two operands, in
*one
** pass. Slopes with a power, a rounded quotient or a digamma are made by those ops' loops, a chunk at a time.
*/
#include "ops/elementwise/binary.h"
#include "ops/elementwise/unary.h"

typedef struct {
  float by_f;
  double by;
} settings;

/* g: the gradient, a, b: the operands */
#define LOOP(CLONES, name, T, field, E)                                                                       \
  AMP_INLINE T name##_value(T g, T a, T b) { return (T)(E); }                                                 \
  static CLONES void name(int64_t n, void *const *operand, unsigned scalar, const void *arg)                  \
  {                                                                                                           \
    T *out = operand[0];                                                                                      \
    const T *grad = operand[1], *left = operand[2], *right = operand[3], by = ((const settings *)arg)->field; \
    AMP_IVDEP                                                                                                 \
    for (int64_t i = 0; i < n; i++) out[i] = by * name##_value(grad[i], left[i], right[i]);                   \
  }
#define SLOPE(name, EF, ED) LOOP(AMP_CLONES, name##_f, float, by_f, EF) LOOP(AMP_CLONES_WIDE, name##_d, double, by, ED)
#define LONG_SLOPE(name, EF, ED) LOOP(AMP_CLONES, name##_f, float, by_f, EF) LOOP(, name##_d, double, by, ED)
#define SAME(name, E) SLOPE(name, E, E)
#define SIGN(x) ((x) > 0 ? 1 : (x) < 0 ? -1 : (x))

SAME(div, -((g / b) * (a / b)))
SAME(lower, (a > b ? 0 : a == b ? g * 0.5f : g))
SAME(upper, (a < b ? 0 : a == b ? g * 0.5f : g))
SLOPE(fmod, -(g *truncf(a / b)), -(g *trunc(a / b)))
SAME(ratio, g *(a / b))
SAME(atan2, g *(a *a + b * b == 0 ? 0 : b / (a * a + b * b)))
SAME(copysign, g *(SIGN(a) * SIGN(b)))
SAME(difference, g *(a - b))
SAME(rectify_input, (a > 0 ? g : g * b))
SAME(rectify_weight, (a > 0 ? 0 : g * a))
LONG_SLOPE(xlogy, g *(((a == 0) & (b <= 0)) ? 0 : amp__logf(b)), g *(a == 0 && b <= 0 ? 0 : log(b)))
LONG_SLOPE(exp_difference, g *amp__expf(a - b), g *exp(a - b))

static double sigmoid(double x) { return x < 0 ? exp(x) / (1.0 + exp(x)) : 1.0 / (1.0 + exp(-x)); }
AMP_INLINE float gatef(float b)
{
  const float s = amp__sigmoidf(b);
  return s * (1.f - s);
}
static double gate(double b) { return sigmoid(b) * sigmoid(-b); }
LONG_SLOPE(gate, g *a *gatef(b), g *a *gate(b))
LONG_SLOPE(logaddexp, g *amp__sigmoidf(a - b), g *sigmoid(a - b))

/* -- By the loops of other ops ------------------------------------------------------------ */

#define real float
#define NAME(name) name##_f
#define WHICH 0
#define BY by_f
#define CLONES AMP_CLONES
#define LOG_OF amp__logf
#include "ops/elementwise/pair_slope_body.h"
#define real double
#define NAME(name) name##_d
#define WHICH 1
#define BY by
#define CLONES
#define LOG_OF log
#include "ops/elementwise/pair_slope_body.h"

/* -- Calls --------------------------------------------------------------------------------- */

#define ROW(word, name, cost) [TERM_##word] = { { name##_f, name##_d }, cost }
static const struct {
  amp_loop_fn loops[2];
  uint16_t cost;
} rows[TERM_COUNT] = {
  ROW(DIV, div, 3),
  ROW(POW_BASE, pow_base, 14),
  ROW(POW_EXPONENT, pow_exponent, 10),
  ROW(LOWER, lower, 2),
  ROW(UPPER, upper, 2),
  ROW(FMOD, fmod, 3),
  ROW(MOD, mod, 10),
  ROW(RATIO, ratio, 2),
  ROW(ATAN2, atan2, 4),
  ROW(LOGADDEXP, logaddexp, 10),
  ROW(XLOGY, xlogy, 10),
  ROW(COPYSIGN, copysign, 2),
  ROW(DIFFERENCE, difference, 1),
  ROW(GAMMA, gamma, 100),
  ROW(RECTIFY_INPUT, rectify_input, 1),
  ROW(RECTIFY_WEIGHT, rectify_weight, 1),
  ROW(GATE, gate, 10),
  ROW(EXP_DIFFERENCE, exp_difference, 8),
};

int amp__cpu_pair_slope(amp_call *call) /* grad input other; term by */
{
  const args_pair_slope *args = AMP_ARGS(call, pair_slope);
  amp_tensor *tensors[4] = { call->out[0], call->in[0], call->in[1], call->in[2] };
  int cls = amp__class_of(call->out[0]->dtype, call->in, 3);
  if (cls == AMP_C_I64) cls = AMP_C_F32;
  AMP_ASSERT(rows[args->term].loops[cls] != NULL);
  const uint8_t classes[4] = { (uint8_t)cls, (uint8_t)cls, (uint8_t)cls, (uint8_t)cls };
  const settings s = { (float)args->by, args->by };
  amp_loop loop = { rows[args->term].loops[cls], &s, 1, 0, rows[args->term].cost };
  amp__elementwise(&loop, 4, tensors, classes);
  return 0;
}
