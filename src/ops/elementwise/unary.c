/*
** ops/elementwise/unary.c: elementwise kernels of one tensor.
**
** float32 loops use the vector functions of cpu/vector_math.h; float64 uses libm. Two
** functions (sin, cos) are mended element by element where the vector form does
** not reach. Rounding and sign functions leave integers in int64.
*/
#include "ops/elementwise/unary.h"

/* -- Sign, rounding ---------------------------------------------------------------- */

#define SIGN(a) ((a) > 0 ? 1 : (a) < 0 ? -1 : (a))
#define SAME3(name, cost, EF, ED, EI)                                                    \
  UNF(name##_f, EF) UND(name##_d, ED) UNI(name##_i, EI) int amp__cpu_##name(amp_call *c) \
  {                                                                                      \
    static const amp_loop_fn loops[3] = { name##_f, name##_d, name##_i };                \
    int cls = amp__class_of(c->out[0]->dtype, c->in, 1);                                 \
    return run1(c, loops, cls, cls, cost, NULL);                                         \
  }
SAME3(neg, 1, -a, -a, (int64_t)(0 - (uint64_t)a))
SAME3(abs, 1, fabsf(a), fabs(a), a < 0 ? (int64_t)(0 - (uint64_t)a) : a)
SAME3(sign, 1, SIGN(a), SIGN(a), SIGN(a))
SAME3(floor, 1, floorf(a), floor(a), a)
SAME3(ceil, 1, ceilf(a), ceil(a), a)
SAME3(round, 1, rintf(a), rint(a), a)
SAME3(trunc, 1, truncf(a), trunc(a), a)
SAME3(square, 1, a *a, a *a, (int64_t)((uint64_t)a *(uint64_t)a))
SAME3(relu, 1, (a < 0.f ? 0.f : a), (a < 0.0 ? 0.0 : a), (a < 0 ? 0 : a))

/* -- Floats -------------------------------------------------------------------------- */

static double sigmoid(double x) { return x < 0 ? exp(x) / (1.0 + exp(x)) : 1.0 / (1.0 + exp(-x)); }
static double softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
static double gelu(double x) { return x == -INFINITY ? 0.0 : x * 0.5 * erfc(-x * 0.70710678118654752440); }
static double gelu_tanh(double x)
{
  return x == -INFINITY ? 0.0 : x * sigmoid(1.59576912160573071176 * (x + 0.044715 * x * x * x));
}

FLOAT2(exp, 8, amp__expf(a), exp(a))
const amp_loop_fn amp__exp_loops[2] = { exp_f, exp_d };
FLOAT2(exp2, 8, amp__exp2f(a), exp2(a))
FLOAT2(expm1, 8, amp__expm1f(a), expm1(a))
FLOAT2(log, 8, amp__logf(a), log(a))
FLOAT2(log2, 12, amp__log2f(a), log2(a))
FLOAT2(log10, 12, amp__log10f(a), log10(a))
FLOAT2(log1p, 10, amp__log1pf(a), log1p(a))
FLOAT2(sqrt, 3, sqrtf(a), sqrt(a))
FLOAT2(rsqrt, 4, 1.f / sqrtf(a), 1.0 / sqrt(a))
FLOAT2(reciprocal, 2, 1.f / a, 1.0 / a)
FLOAT2(tanh, 10, amp__tanhf(a), tanh(a))
FLOAT2(sigmoid, 10, amp__sigmoidf(a), sigmoid(a))
FLOAT2(log_sigmoid, 16, amp__log_sigmoidf(a), -softplus(-a))
FLOAT2(erf, 10, amp__erff(a), erf(a))
FLOAT2(silu, 10, amp__siluf(a), (a == -INFINITY ? 0.0 : a * sigmoid(a)))

UNF(gelu_f, amp__geluf(a))
UNF(gelu_tanh_f, amp__gelu_tanhf(a))
UN_PLAIN(gelu_d, double, gelu(a))
UN_PLAIN(gelu_tanh_d, double, gelu_tanh(a))
int amp__cpu_gelu(amp_call *call)
{
  const args_gelu *args = AMP_ARGS(call, gelu);
  static const amp_loop_fn exact[2] = { gelu_f, gelu_d }, approximate[2] = { gelu_tanh_f, gelu_tanh_d };
  int cls = float_class(call);
  return run1(call, args->approximate == APPROXIMATE_TANH ? approximate : exact, cls, cls, 12, NULL);
}

typedef struct {
  float beta, threshold;
  double dbeta, dthreshold;
} softplus_arg;
#define SP ((const softplus_arg *)arg)
static AMP_CLONES void softplus_f(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  float *out = operand[0];
  const float *input = operand[1], beta = SP->beta, threshold = SP->threshold; /* by value, or the loop stays scalar */
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) {
    const float z = input[i] * beta;
    out[i] = z > threshold ? input[i] : amp__softplusf(z) / beta;
  }
}
UN_PLAIN(softplus_d, double, (a * SP->dbeta > SP->dthreshold ? a : softplus(a * SP->dbeta) / SP->dbeta))
int amp__cpu_softplus(amp_call *call)
{
  const args_softplus *args = AMP_ARGS(call, softplus);
  static const amp_loop_fn loops[2] = { softplus_f, softplus_d };
  softplus_arg settings = { (float)args->beta, (float)args->threshold, args->beta, args->threshold };
  int cls = float_class(call);
  return run1(call, loops, cls, cls, 16, &settings);
}

UNF(sin_core, amp__trigf(a, 0))
UNF(cos_core, amp__trigf(a, 1))
static AMP_CLONES bool beyond(int64_t n, const float *data)
{
  int any = 0;
  for (int64_t i = 0; i < n; i++) any |= !(fabsf(data[i]) <= AMP_TRIG_MAX);
  return any;
}
static void trig(int64_t n, void *const *operand, amp_loop_fn core, float (*exact)(float))
{
  float tmp[AMP_CHUNK];
  for (int64_t first = 0; first < n; first += AMP_CHUNK) {
    int64_t count = n - first < AMP_CHUNK ? n - first : AMP_CHUNK;
    const float *input = (const float *)operand[1] + first;
    void *part[2] = { tmp, (void *)input };
    core(count, part, 0, NULL);
    if (beyond(count, input))
      for (int64_t i = 0; i < count; i++)
        if (!(fabsf(input[i]) <= AMP_TRIG_MAX)) tmp[i] = exact(input[i]);
    memcpy((float *)operand[0] + first, tmp, sizeof(float) * (size_t)count);
  }
}
static void sin_f(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  trig(n, operand, sin_core, sinf);
}
static void cos_f(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  trig(n, operand, cos_core, cosf);
}
UN_PLAIN(sin_d, double, sin(a))
const amp_loop_fn amp__sin_loops[2] = { sin_f, sin_d };
UN_PLAIN(cos_d, double, cos(a))
const amp_loop_fn amp__cos_loops[2] = { cos_f, cos_d };
int amp__cpu_sin(amp_call *call)
{
  int cls = float_class(call);
  return run1(call, amp__sin_loops, cls, cls, 12, NULL);
}
int amp__cpu_cos(amp_call *call)
{
  int cls = float_class(call);
  return run1(call, amp__cos_loops, cls, cls, 12, NULL);
}

/* -- Limits -------------------------------------------------------------------------- */

typedef struct {
  float flo, fhi;
  double lo, hi;
  int64_t ilo, ihi;
} clamp_arg;
#define real float
#define CLONES AMP_CLONES
#define CLAMP clamp_f
#define LOW flo
#define HIGH fhi
#include "ops/elementwise/clamp_body.h"
#define real double
#define CLONES AMP_CLONES_WIDE
#define CLAMP clamp_d
#define LOW lo
#define HIGH hi
#include "ops/elementwise/clamp_body.h"
#define real int64_t
#define CLONES AMP_CLONES_WIDE
#define CLAMP clamp_i
#define LOW ilo
#define HIGH ihi
#include "ops/elementwise/clamp_body.h"

static int64_t bound(double value, int64_t least, int64_t most)
{
  if (value >= 9223372036854775807.0) return most;
  if (value <= -9223372036854775808.0) return least;
  return (int64_t)value;
}

int amp__cpu_clamp(amp_call *call)
{
  const args_clamp *args = AMP_ARGS(call, clamp);
  static const amp_loop_fn loops[3] = { clamp_f, clamp_d, clamp_i };
  clamp_arg k;
  int cls = amp__class_of(call->out[0]->dtype, call->in, 1);
  k.lo = !AMP_GIVEN(args->min) ? -INFINITY : args->min;
  k.hi = !AMP_GIVEN(args->max) ? INFINITY : args->max;
  if (isnan(k.lo) || isnan(k.hi)) return amp__fill_value(call->out[0], NAN);
  k.flo = (float)k.lo;
  k.fhi = (float)k.hi;
  k.ilo = bound(k.lo, INT64_MIN, INT64_MAX);
  k.ihi = bound(k.hi, INT64_MIN, INT64_MAX);
  return run1(call, loops, cls, cls, 1, &k);
}

/* -- Truth --------------------------------------------------------------------------- */

#define TRUTH(name, EF, ED, EI)                                                          \
  UN_(AMP_CLONES_WIDE, name##_tf, uint8_t, float, EF)                                    \
  UN_(AMP_CLONES_WIDE, name##_td, uint8_t, double, ED)                                   \
  UN_(AMP_CLONES_WIDE, name##_ti, uint8_t, int64_t, EI) int amp__cpu_##name(amp_call *c) \
  {                                                                                      \
    static const amp_loop_fn loops[3] = { name##_tf, name##_td, name##_ti };             \
    return run1(c, loops, amp__dtype_class[c->in[0]->dtype], AMP_C_U8, 1, NULL);         \
  }
TRUTH(logical_not, a == 0, a == 0, a == 0)
TRUTH(isnan, a != a, a != a, 0)
TRUTH(isinf, fabsf(a) > FLT_MAX, fabs(a) > DBL_MAX, 0)
TRUTH(isfinite, fabsf(a) <= FLT_MAX, fabs(a) <= DBL_MAX, 1)
