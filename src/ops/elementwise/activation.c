/*
** ops/elementwise/activation.c: elementwise kernels of activations with settings: pieces of
** straight lines, exponentials below zero, and what is like them. The plain ones
** (relu, gelu, silu, softplus) are in ops/elementwise/unary.c.
*/
#include "ops/elementwise/unary.h"

/* Settings of a call, in both classes */
typedef struct {
  float f32[3];
  double f64[3];
} settings;
#define BODY "ops/elementwise/activation_body.h"
#include "cpu/each_real.h"

#define LOOP_(CLONES, name, T, field, E)                                               \
  AMP_INLINE T name##_value(T a, T s0, T s1, T s2) { return (T)(E); }                  \
  static CLONES void name(int64_t n, void *const *p, unsigned scalar, const void *arg) \
  {                                                                                    \
    settings_loop_##field(name##_value, n, p, ((const settings *)arg)->field);         \
  }

/* n attributes, numbers, are the settings */
static int run_with(amp_call *call, amp_loop_fn float_loop, amp_loop_fn double_loop, int n, int cost)
{
  const amp_slot *number = call->attrs;
  const amp_loop_fn loops[2] = { float_loop, double_loop };
  settings s = { { 0 }, { 0 } };
  for (int i = 0; i < n; i++) {
    s.f64[i] = number[i].f;
    s.f32[i] = (float)s.f64[i];
  }
  int cls = float_class(call);
  return run1(call, loops, cls, cls, cost, &s);
}
#define WITH(name, n, cost, E)                                                      \
  LOOP_(AMP_CLONES, name##_f, float, f32, E)                                        \
  LOOP_(AMP_CLONES_WIDE, name##_d, double, f64, E) int amp__cpu_##name(amp_call *c) \
  {                                                                                 \
    return run_with(c, name##_f, name##_d, n, cost);                                \
  }
#define WITH2(name, n, cost, EF, ED)                                                                              \
  LOOP_(AMP_CLONES, name##_f, float, f32, EF) LOOP_(, name##_d, double, f64, ED) int amp__cpu_##name(amp_call *c) \
  {                                                                                                               \
    return run_with(c, name##_f, name##_d, n, cost);                                                              \
  }

WITH(leaky_relu, 1, 1, (a > 0 ? a : a * s0))
WITH(threshold, 2, 1, (a <= s0 ? s1 : a))
WITH(hardtanh, 2, 1, (a < s0 ? s0 : a > s1 ? s1 : a))
WITH(hardshrink, 1, 1, (a >= -s0 && a <= s0 ? 0 : a))
WITH(softshrink, 1, 1, (a > s0 ? a - s0 : a < -s0 ? a + s0 : a * 0))
WITH2(elu, 1, 10, (a > 0.f ? a : s0 * amp__expm1f(a)), (a > 0 ? a : s0 * expm1(a)))
WITH2(celu, 1, 12, (a > 0.f ? a : s0 * amp__expm1f(a / s0)), (a > 0 ? a : s0 * expm1(a / s0)))

/* self-normalising constants (Klambauer et al. 2017) */
#define SELU_SCALE 1.0507009873554804934193349852946
#define SELU_ALPHA 1.6732632423543772848170429916717
FLOAT2(selu, 10, (a > 0.f ? (float)SELU_SCALE * a : (float)(SELU_SCALE * SELU_ALPHA) * amp__expm1f(a)),
       (a > 0 ? SELU_SCALE * a : SELU_SCALE * SELU_ALPHA * expm1(a)))

/* tanh(log(1 + e)) = n / (n + 2) with n = e (e + 2) */
AMP_INLINE float mishf(float x)
{
  float e = amp__expf(x > 20.f ? 20.f : x), n = e * (e + 2.f);
  float y = x * (n / (n + 2.f));
  y = x < -104.f ? x * 0.f : y; /* -inf times 0 */
  y = x == -INFINITY ? 0.f : y;
  return x > 20.f ? x : y;
}
static double mish(double x)
{
  if (x == -INFINITY) return 0;
  double e = exp(x > 40 ? 40 : x), n = e * (e + 2);
  return x > 40 ? x : x * (n / (n + 2));
}
FLOAT2(mish, 12, mishf(a), mish(a))
FLOAT2(hardsigmoid, 2,
       (a <= -3.f  ? 0.f
        : a >= 3.f ? 1.f
                   : (a + 3.f) * (1.f / 6.f)),
       (a <= -3  ? 0
        : a >= 3 ? 1
                 : (a + 3) / 6))
FLOAT2(hardswish, 3,
       (a <= -3.f  ? 0.f
        : a >= 3.f ? a
                   : a * (a + 3.f) * (1.f / 6.f)),
       (a <= -3  ? 0
        : a >= 3 ? a
                 : a * (a + 3) / 6))
FLOAT2(softsign, 3, a / (1.f + fabsf(a)), a / (1 + fabs(a)))
FLOAT2(tanhshrink, 10, a - amp__tanhf(a), a - tanh(a))
FLOAT2(frac, 2, a - truncf(a), a - trunc(a))

/* NaN and infinities replaced; absent: 0 and the dtype's largest */
LOOP_(AMP_CLONES, nan_to_num_f, float, f32, (a != a ? s0 : a > FLT_MAX ? s1 : a < -FLT_MAX ? s2 : a))
LOOP_(AMP_CLONES_WIDE, nan_to_num_d, double, f64, (a != a ? s0 : a > DBL_MAX ? s1 : a < -DBL_MAX ? s2 : a))
int amp__cpu_nan_to_num(amp_call *call)
{
  static const double most[4] = { DBL_MAX, FLT_MAX, 65504.0, 0x1.fep127 };
  const amp_loop_fn loops[2] = { nan_to_num_f, nan_to_num_d };
  const args_nan_to_num *args = AMP_ARGS(call, nan_to_num);
  int dtype = call->out[0]->dtype;
  if (!amp__is_float(dtype)) return amp__copy_to(call->out[0], call->in[0]);
  double nan = AMP_GIVEN(args->nan) ? args->nan : 0, posinf = AMP_GIVEN(args->posinf) ? args->posinf : most[dtype],
         neginf = AMP_GIVEN(args->neginf) ? args->neginf : -most[dtype];
  settings s = { { (float)nan, (float)posinf, (float)neginf }, { nan, posinf, neginf } };
  int cls = float_class(call);
  return run1(call, loops, cls, cls, 2, &s);
}
