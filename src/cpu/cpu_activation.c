/*
** cpu_activation.c: elementwise kernels of activations with settings: pieces of
** straight lines, exponentials below zero, and what is like them. The plain ones
** (relu, gelu, silu, softplus) are in cpu_unary.c.
*/
#include "cpu_unary.h"

/* Settings of a call, in both classes */
typedef struct { float f[3]; double d[3]; } settings;
/* A loop that keeps its settings in registers: read through a pointer they would stop it from being vector code. */
#define LOOP_(CLONES, name, T, field, E) \
static CLONES void name(int64_t n, void *const *p, unsigned scalar, const void *arg) \
{ \
  T *o = p[0]; const T *x = p[1], *s = ((const settings *)arg)->field; \
  const T s0 = s[0], s1 = s[1], s2 = s[2]; (void)s1; (void)s2; \
  AMP_IVDEP for (int64_t i = 0; i < n; i++) { const T a = x[i]; o[i] = (T)(E); } \
}

static int run_with(amp_call *c, amp_loop_fn f, amp_loop_fn d, int n, int cost)
{
  const amp_loop_fn loops[2] = { f, d };
  settings s = { { 0 }, { 0 } };
  for (int i = 0; i < n; i++) { s.d[i] = c->a[i].f; s.f[i] = (float)s.d[i]; }
  int cls = float_class(c);
  return run1(c, loops, cls, cls, cost, &s);
}
#define WITH(name, n, cost, E) \
LOOP_(AMP_CLONES, name##_f, float, f, E) LOOP_(AMP_CLONES_WIDE, name##_d, double, d, E) \
int amp__cpu_##name(amp_call *c) { return run_with(c, name##_f, name##_d, n, cost); }
#define WITH2(name, n, cost, EF, ED) \
LOOP_(AMP_CLONES, name##_f, float, f, EF) LOOP_(, name##_d, double, d, ED) \
int amp__cpu_##name(amp_call *c) { return run_with(c, name##_f, name##_d, n, cost); }

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
  y = x < -100.f ? x * 0.f : y; /* -inf times 0 */
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
FLOAT2(hardsigmoid, 2, (a <= -3.f ? 0.f : a >= 3.f ? 1.f : a * (1.f / 6.f) + 0.5f), (a <= -3 ? 0 : a >= 3 ? 1 : a / 6 + 0.5))
FLOAT2(hardswish, 3, (a <= -3.f ? 0.f : a >= 3.f ? a : a * (a + 3.f) * (1.f / 6.f)), (a <= -3 ? 0 : a >= 3 ? a : a * (a + 3) / 6))
FLOAT2(softsign, 3, a / (1.f + fabsf(a)), a / (1 + fabs(a)))
FLOAT2(frac, 2, a - truncf(a), a - trunc(a))

/* NaN and infinities replaced; absent: 0 and the dtype's largest */
LOOP_(AMP_CLONES, nan_to_num_f, float, f, (a != a ? s0 : a > FLT_MAX ? s1 : a < -FLT_MAX ? s2 : a))
LOOP_(AMP_CLONES_WIDE, nan_to_num_d, double, d, (a != a ? s0 : a > DBL_MAX ? s1 : a < -DBL_MAX ? s2 : a))
int amp__cpu_nan_to_num(amp_call *c)
{
  static const double most[4] = { DBL_MAX, FLT_MAX, 65504.0, 0x1.fep127 };
  const amp_loop_fn loops[2] = { nan_to_num_f, nan_to_num_d };
  settings s;
  int dtype = c->out[0]->dtype;
  if (!amp__is_float(dtype)) return amp__copy_to(c->out[0], c->in[0]);
  for (int i = 0; i < 3; i++) {
    s.d[i] = c->a[i].i != AMP_NONE ? c->a[i].f : i == 0 ? 0 : i == 1 ? most[dtype] : -most[dtype];
    s.f[i] = (float)s.d[i];
  }
  int cls = float_class(c);
  return run1(c, loops, cls, cls, 2, &s);
}
