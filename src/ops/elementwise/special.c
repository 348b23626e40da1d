/*
** ops/elementwise/special.c: elementwise kernels of rarer functions: inverse and hyperbolic
** trigonometry, the inverse error function, the gamma family.
**
** float32 forms of the first are straight-line code with minimax polynomials made
** for here (spec fixtures hold them to the table's tolerance); tan goes through
** double and is mended by libm beyond its range. The gamma family and erfinv are
** scalar loops in double for every dtype.
*/
#include <string.h>
#include "ops/elementwise/unary.h"
#include "ops/elementwise/special.h"

/* -- Inverse trigonometry ----------------------------------------------------------- */

#define HALF_PI 1.57079633f

AMP_INLINE float atanf_(float x)
{
  float a = fabsf(x), big = a > 1.f ? 1.f : 0.f;
  float y = amp__atan01f(big != 0.f ? 1.f / a : a);
  y = big != 0.f ? HALF_PI - y : y;
  return copysignf(y, x);
}

/* asin(r) for 0 <= r <= 1/2 */
AMP_INLINE float asin_core(float r)
{
  float z = r * r;
  return r
         + r * z
               * (0.166666663f
                  + z
                        * (0.0750010315f
                           + z * (0.044596627f + z * (0.0311318992f + z * (0.0170058799f + z * 0.0339209316f)))));
}
/* beyond 1/2: asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2)); beyond 1 the root is NaN */
AMP_INLINE float asinf_(float x)
{
  float a = fabsf(x), big = a > 0.5f ? 1.f : 0.f;
  float y = asin_core(big != 0.f ? sqrtf((1.f - a) * 0.5f) : a);
  return copysignf(big != 0.f ? HALF_PI - 2.f * y : y, x);
}
AMP_INLINE float acosf_(float x)
{
  float a = fabsf(x), big = a > 0.5f ? 1.f : 0.f;
  float y = asin_core(big != 0.f ? sqrtf((1.f - a) * 0.5f) : a);
  float far = x < 0.f ? 3.14159265f - 2.f * y : 2.f * y;
  return big != 0.f ? far : HALF_PI - copysignf(y, x);
}

FLOAT2(atan, 12, atanf_(a), atan(a))
FLOAT2(asin, 12, asinf_(a), asin(a))
FLOAT2(acos, 12, acosf_(a), acos(a))

/* -- Hyperbolic functions -------------------------------------------------------------- */

/* exp(|x|) overflows before sinh does: there the square of exp(|x| / 2) */
AMP_INLINE float sinhf_(float x)
{
  float a = fabsf(x), e = amp__expm1f(a > 80.f ? 80.f : a), h = amp__expf(0.5f * a);
  float y = a > 80.f ? (0.5f * h) * h : 0.5f * (e + e / (e + 1.f));
  return x != x ? x : copysignf(y, x);
}
AMP_INLINE float coshf_(float x)
{
  float a = fabsf(x), e = amp__expf(a > 80.f ? 80.f : a), h = amp__expf(0.5f * a);
  return x != x ? x : a > 80.f ? (0.5f * h) * h : 0.5f * (e + 1.f / e);
}
AMP_INLINE float asinhf_(float x)
{
  float a = fabsf(x), big = a > 1e9f ? 1.f : 0.f, c = big != 0.f ? 1.f : a, q = c * c;
  float y = amp__log1pf(c + q / (1.f + sqrtf(q + 1.f)));
  y = big != 0.f ? amp__logf(a) + 0.693147181f : y;
  return x != x ? x : copysignf(y, x);
}
AMP_INLINE float acoshf_(float x)
{
  float big = x > 1e9f ? 1.f : 0.f, t = (big != 0.f ? 2.f : x) - 1.f;
  float y = amp__log1pf(t + sqrtf(2.f * t + t * t));
  y = big != 0.f ? amp__logf(x) + 0.693147181f : y;
  return x >= 1.f ? y : NAN;
}
AMP_INLINE float atanhf_(float x)
{
  float a = fabsf(x);
  return copysignf(0.5f * amp__log1pf(2.f * a / (1.f - a)), x);
}

FLOAT2(sinh, 16, sinhf_(a), sinh(a))
FLOAT2(cosh, 16, coshf_(a), cosh(a))
const amp_loop_fn amp__sinh_loops[2] = { sinh_f, sinh_d }, amp__cosh_loops[2] = { cosh_f, cosh_d };
FLOAT2(asinh, 16, asinhf_(a), asinh(a))
FLOAT2(acosh, 16, acoshf_(a), acosh(a))
FLOAT2(atanh, 12, atanhf_(a), atanh(a))

/* -- Tangent: as sine and cosine in cpu/vector_math.h ------------------------------------------- */

AMP_INLINE float tanf_(float x)
{
  double d = (double)x;
  double n = (d * 0.63661977236758134 + 6755399441055744.0) - 6755399441055744.0;
  double r = (d - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11;
  double z = r * r;
  double s = r
             + r * z
                   * (-0.1666666664110049
                      + z * (0.00833332932431123 + z * (-0.00019839314861220611 + z * 2.7181197196716594e-06)));
  double c = (1.0 - 0.5 * z)
             + z * z
                   * (0.04166666662189799
                      + z * (-0.0013888883672453095 + z * (2.479949845106318e-05 + z * -2.720844185853927e-07)));
  int32_t odd = (int32_t)n & 1;
  return (float)((odd ? -c : s) / (odd ? s : c));
}
UNF(tan_core, tanf_(a))
static void tan_f(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  float tmp[AMP_CHUNK];
  for (int64_t first = 0; first < n; first += AMP_CHUNK) {
    int64_t count = n - first < AMP_CHUNK ? n - first : AMP_CHUNK;
    const float *input = (const float *)operand[1] + first;
    void *part[2] = { tmp, (void *)input };
    tan_core(count, part, 0, NULL);
    for (int64_t i = 0; i < count; i++)
      if (amp_unlikely(!(fabsf(input[i]) <= AMP_TRIG_MAX))) tmp[i] = tanf(input[i]);
    memcpy((float *)operand[0] + first, tmp, sizeof(float) * (size_t)count);
  }
}
UN_PLAIN(tan_d, double, tan(a))
int amp__cpu_tan(amp_call *call)
{
  static const amp_loop_fn loops[2] = { tan_f, tan_d };
  int cls = float_class(call);
  return run1(call, loops, cls, cls, 14, NULL);
}

/* -- Error function and roots --------------------------------------------------------------- */

/* the tail loses relative accuracy near 0, where 1 - erf has it */
UNF(erfc_f, (fabsf(a) < 0.5f ? 1.f - amp__erff(a) : amp__erfcf(a)))
UN_PLAIN(erfc_d, double, erfc(a))
UNF(cbrt_f, amp__cbrtf(a))
UN_PLAIN(cbrt_d, double, cbrt(a))

/* A first value from Winitzki's approximation of erf, then Newton steps on erf or erfc, whichever loses nothing */
static double erfinv(double x)
{
  double a = fabs(x);
  if (!(a < 1)) return a == 1 ? copysign(INFINITY, x) : NAN;
  if (a < 1e-8) return x * 0.88622692545275801365;
  double l = log1p(-a * a), t = 4.3307467508 + 0.5 * l; /* 2 / (pi 0.147) */
  double y = sqrt(sqrt(t * t - l / 0.147) - t);
  for (int i = 0; i < 3; i++) {
    double err = a < 0.5 ? erf(y) - a : (1 - a) - erfc(y);
    double step = err / (1.12837916709551257390 * exp(-y * y));
    y -= step / (1 + y * step); /* Halley's correction */
  }
  return copysign(y, x);
}
UNF(erfinv_f, amp__erfinvf(a))
UN_PLAIN(erfinv_d, double, erfinv(a))

/* -- Gamma family ------------------------------------------------------------------------------ */

static double lgamma_(double x)
{
  int sign;
  return lgamma_r(x, &sign);
}

/* Recurrence to x >= 10, then the asymptotic series ln x - 1/2x - sum B2k / (2k x^2k); reflection below zero. */
static double digamma(double x)
{
  double r = 0;
  if (x == 0) return copysign(INFINITY, -x);
  if (x < 0) {
    if (x == floor(x)) return NAN;
    return digamma(1 - x) - 3.14159265358979323846 / tan(3.14159265358979323846 * (x - rint(x)));
  }
  if (x == INFINITY) return x;
  for (; x < 10; x++) r -= 1 / x;
  double z = 1 / (x * x);
  double s = z
             * (1.0 / 12
                - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
  return r + log(x) - 0.5 / x - s;
}

/* Hurwitz's zeta(s, q) for an integer s >= 2 by Euler and Maclaurin's formula: 10 terms, then the integral and
** corrections */
static double zeta(int s, double q)
{
  static const double b[12]
      = { 1.0 / 6, -1.0 / 30,     1.0 / 42,      -1.0 / 30,       5.0 / 66,       -691.0 / 2730,
          7.0 / 6, -3617.0 / 510, 43867.0 / 798, -174611.0 / 330, 854513.0 / 138, -236364091.0 / 2730 };
  double sum = 0;
  if (q <= 0 && q == floor(q)) return INFINITY;
  if (q == INFINITY) return 0;
  for (int i = 0; i < 10 || q < 10; i++, q++) sum += pow(q, -s);
  sum += pow(q, 1 - s) / (s - 1) + 0.5 * pow(q, -s);
  double term = s * pow(q, -s - 1), f = 2; /* s (s+1) .. (s+2k-2) q^(-s-2k+1) / (2k)! */
  for (int k = 0; k < 12; k++) {
    double add = b[k] * term / f;
    sum += add;
    if (fabs(add) < 1e-17 * fabs(sum)) break;
    term *= (double)(s + 2 * k + 1) * (double)(s + 2 * k + 2) / (q * q);
    f *= (double)(2 * k + 3) * (double)(2 * k + 4);
  }
  return sum;
}
static double polygamma(int n, double x)
{
  if (n == 0) return digamma(x);
  double sign = n & 1 ? 1 : -1, z;
  if (x < 0 && x != floor(x)) { /* the nearest pole is N, d from here: its own term, those above it, and a difference of
                                   two tails for those below */
    double d = x - rint(x), N = -rint(x);
    z = pow(d, -(n + 1)) + zeta(n + 1, 1 + d) + sign * (zeta(n + 1, 1 - d) - zeta(n + 1, 1 - d + N));
  } else z = zeta(n + 1, x);
  return sign * tgamma(n + 1.0) * z;
}
UNF(lgamma_core, amp__lgamma_pos(a))
static void lgamma_f(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  float keep[AMP_CHUNK];
  for (int64_t first = 0; first < n; first += AMP_CHUNK) { /* in place the operand is needed again */
    int64_t count = n - first < AMP_CHUNK ? n - first : AMP_CHUNK;
    const float *input = (const float *)operand[1] + first;
    void *part[2] = { keep, (void *)input };
    lgamma_core(count, part, scalar, arg);
    for (int64_t i = 0; i < count; i++)
      if (!(input[i] > 0.f && input[i] <= FLT_MAX)) keep[i] = (float)lgamma_((double)input[i]);
    memcpy((float *)operand[0] + first, keep, sizeof(float) * (size_t)count);
  }
}
UN_PLAIN(lgamma_d, double, lgamma_(a))
UN_PLAIN(digamma_f, float, (float)digamma((double)a))
UN_PLAIN(digamma_d, double, digamma(a))
const amp_loop_fn amp__digamma_loops[2] = { digamma_f, digamma_d };
UN_PLAIN(gamma_f, float, (float)tgamma((double)a))
UN_PLAIN(gamma_d, double, tgamma(a))
#define ORDER (*(const int *)arg)
static void polygamma_f(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  for (int64_t i = 0; i < n; i++)
    ((float *)operand[0])[i] = (float)polygamma(ORDER, (double)((const float *)operand[1])[i]);
}
static void polygamma_d(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  for (int64_t i = 0; i < n; i++) ((double *)operand[0])[i] = polygamma(ORDER, ((const double *)operand[1])[i]);
}

const amp_loop_fn amp__polygamma_loops[2] = { polygamma_f, polygamma_d };

#define PLAIN2(name, cost)                                      \
  int amp__cpu_##name(amp_call *c)                              \
  {                                                             \
    static const amp_loop_fn loops[2] = { name##_f, name##_d }; \
    int cls = float_class(c);                                   \
    return run1(c, loops, cls, cls, cost, NULL);                \
  }
PLAIN2(erfc, 20)
PLAIN2(cbrt, 20)
PLAIN2(erfinv, 20)
PLAIN2(lgamma, 60)
PLAIN2(digamma, 60)
PLAIN2(gamma, 60)
int amp__cpu_polygamma(amp_call *call)
{
  const args_polygamma *args = AMP_ARGS(call, polygamma);
  int cls = float_class(call), n = (int)args->n;
  return run1(call, amp__polygamma_loops, cls, cls, 400, &n);
}
