/*
** cpu_math.h: float functions that compilers can turn into vector code.
**
** Every function is straight-line code of one scalar: no calls, no tables, no
** branches, selects by ?: only. In a loop of a function marked AMP_CLONES, GCC
** makes AVX-512, AVX2 + FMA and baseline versions of it, and the loader picks
** one for the machine at start.
**
** Accuracy (spec/c/test_kernels.c checks it against double): 2 ulp, 3 for
** sigmoid and silu, 5 for gelu (whose usual form loses hundreds below -3). NaN gives NaN; infinities, zeros and denormals are right.
** Compiled with -fno-math-errno and -fno-trapping-math, never -ffast-math.
** Double arguments use libm: float64 is for checking, not for speed.
**
** Coefficients are minimax fits (weighted for relative error) made for here.
*/
#ifndef AMP_CPU_MATH_H
#define AMP_CPU_MATH_H
#include <float.h>
#include <math.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__SANITIZE_UNDEFINED__)
#define AMP_CLONES
#define AMP_CLONES_WIDE
#elif defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define AMP_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define AMP_CLONES_WIDE __attribute__((target_clones("arch=x86-64-v3", "default"))) /* 64-bit types: smaller code */
#else
#define AMP_CLONES
#define AMP_CLONES_WIDE
#endif
#define AMP_CLONES_OF(T) AMP_CLONES_OF_(T) /* T float or double: for what is written once for both */
#define AMP_CLONES_OF_(T) AMP_CLONES_##T
#define AMP_CLONES_float AMP_CLONES
#define AMP_CLONES_double AMP_CLONES_WIDE
#define AMP_INLINE static inline __attribute__((always_inline))
#define AMP_IVDEP _Pragma("GCC ivdep")

/* -- Bits ------------------------------------------------------------------ */

AMP_INLINE int32_t amp__fbits(float x) { union { float f; int32_t i; } u; u.f = x; return u.i; }
AMP_INLINE float amp__bitsf(int32_t i) { union { float f; int32_t i; } u; u.i = i; return u.f; }
AMP_INLINE double amp__bitsd(int64_t i) { union { double f; int64_t i; } u; u.i = i; return u.f; }

/* 2^n for n in [-252, 254], in two factors so that results may be denormal or infinite */
AMP_INLINE float amp__scale2f(float p, int32_t n)
{
  int32_t h = n >> 1;
  return p * amp__bitsf((int32_t)((uint32_t)(127 + h) << 23)) * amp__bitsf((int32_t)((uint32_t)(127 + (n - h)) << 23));
}

#define AMP_LN2_HI 0.693359375f      /* 9 bits: n * LN2_HI is exact */
#define AMP_LN2_LO (-2.12194440e-4f)
#define AMP_ROUND 12582912.f         /* 1.5 * 2^23: adding rounds to an integer, kept in the low bits */

/* -- Exponentials ---------------------------------------------------------- */

/* exp(r) = 1 + r + r^2 P(r) for |r| <= ln2 / 2 */
AMP_INLINE float amp__exp_p(float r)
{
  return 0.5f + r * (0.16666667f + r * (0.041666266f + r * (0.0083332723f + r * (0.0013946356f + r * 1.9914331e-4f))));
}

/* exp(x + lo) for a small lo, x + lo in [-87, 88] or NaN */
AMP_INLINE float amp__exp_hl(float x, float lo)
{
  float t = (x + lo) * 1.44269504f + AMP_ROUND;
  float n = t - AMP_ROUND;
  float r = x - n * AMP_LN2_HI;
  r = (r - n * AMP_LN2_LO) + lo;
  float s = amp__bitsf((int32_t)((uint32_t)(amp__fbits(t) - amp__fbits(AMP_ROUND) + 127) << 23));
  return s * (1.f + (r + r * r * amp__exp_p(r)));
}

AMP_INLINE float amp__expf(float x)
{
  x = x > 89.f ? 89.f : x;
  x = x < -104.f ? -104.f : x;
  float t = x * 1.44269504f + AMP_ROUND;
  float n = t - AMP_ROUND;
  float r = x - n * AMP_LN2_HI;
  r = r - n * AMP_LN2_LO;
  return amp__scale2f(1.f + (r + r * r * amp__exp_p(r)), amp__fbits(t) - amp__fbits(AMP_ROUND));
}

AMP_INLINE float amp__exp2f(float x)
{
  x = x > 129.f ? 129.f : x;
  x = x < -151.f ? -151.f : x;
  float t = x + AMP_ROUND;
  float r = (x - (t - AMP_ROUND)) * 0.69314718f;
  return amp__scale2f(1.f + (r + r * r * amp__exp_p(r)), amp__fbits(t) - amp__fbits(AMP_ROUND));
}

/* 2 * (s * (exp(r) - 1) + (s - 1/2)), s = 2^(n-1): no cancellation at n = 0 */
AMP_INLINE float amp__expm1f(float x)
{
  float c = x > 89.f ? 89.f : x;
  c = c < -30.f ? -30.f : c;
  float t = c * 1.44269504f + AMP_ROUND;
  float n = t - AMP_ROUND;
  float r = c - n * AMP_LN2_HI;
  r = r - n * AMP_LN2_LO;
  float e = r + r * r * amp__exp_p(r);
  float s = amp__bitsf((int32_t)((uint32_t)(126 + (amp__fbits(t) - amp__fbits(AMP_ROUND))) << 23));
  float y = 2.f * (s * e + (s - 0.5f));
  return x == 0.f ? x : y;
}

/* -- Logarithms ------------------------------------------------------------ */

/* x = 2^*k * (1 + f), f in [sqrt(1/2) - 1, sqrt(2) - 1], for x > 0 */
AMP_INLINE float amp__log_split(float x, float *k)
{
  float small = x < FLT_MIN ? 1.f : 0.f;
  float xs = x < FLT_MIN ? x * 8388608.f : x;
  int32_t ix = (int32_t)((uint32_t)amp__fbits(xs) - 0x3f3504f3u);
  *k = (float)(ix >> 23) - 23.f * small;
  return amp__bitsf((ix & 0x7fffff) + 0x3f3504f3) - 1.f;
}

AMP_INLINE float amp__log_p(float f)
{
  return 0.3333333f + f * (-0.2500082254f + f * (0.2000122219f + f * (-0.1662333608f
         + f * (0.1420186907f + f * (-0.1316048950f + f * (0.1276091486f + f * -0.0763286129f))))));
}

/* what log is outside (0, inf) */
AMP_INLINE float amp__log_edge(float x, float y)
{
  float special = x == 0.f ? -INFINITY : NAN;
  y = x > FLT_MAX ? x : y;
  return x > 0.f ? y : special;
}

AMP_INLINE float amp__logf(float x)
{
  float k, f = amp__log_split(x, &k), q = f * f;
  float y = f * q * amp__log_p(f) + k * AMP_LN2_LO;
  y = y - 0.5f * q;
  return amp__log_edge(x, k * AMP_LN2_HI + (f + y));
}

/* base 2 in double: for pow, log2 and log10 */
AMP_INLINE double amp__log2_d(float x)
{
  float k, f = amp__log_split(x, &k);
  double s = (double)f / (2.0 + (double)f), z = s * s;
  return (double)k + s * (2.885390081777846 + z * (0.9617966941219521 + z * (0.5770779396483444
         + z * (0.41220954629476503 + z * (0.31989291862292973 + z * 0.28309221109473953)))));
}

AMP_INLINE float amp__log2f(float x) { return amp__log_edge(x, (float)amp__log2_d(x)); }
AMP_INLINE float amp__log10f(float x) { return amp__log_edge(x, (float)(amp__log2_d(x) * 0.30102999566398120)); }

AMP_INLINE float amp__log1pf(float x)
{
  float u = 1.f + x;
  float c = (x - (u - 1.f)) / u;  /* what rounding u lost, relative */
  float y = amp__logf(u);
  y = y + (u > 0.f && u <= FLT_MAX ? c : 0.f);
  return x == 0.f ? x : y;
}

/* x^y for 0 < x < inf and finite y; the caller mends other elements with powf */
AMP_INLINE float amp__powf_core(float x, float y)
{
  double t = (double)y * amp__log2_d(x);
  t = t > 140.0 ? 140.0 : t;
  t = t < -170.0 ? -170.0 : t;
  double n = (t + 6755399441055744.0) - 6755399441055744.0, r = t - n;
  double p = 1.0 + r * (0.6931471805459694 + r * (0.24022650695610342 + r * (0.0555041094112201 + r * (0.00961812920796437
             + r * (0.0013333450624499117 + r * (0.0001540342258067862 + r * (1.5310067838545115e-05 + r * 1.326212203886846e-06)))))));
  return (float)(p * amp__bitsd((int64_t)((uint64_t)((int32_t)n + 1023) << 52)));
}

/* -- Sigmoid and relatives ------------------------------------------------- */

AMP_INLINE float amp__sigmoidf(float x)
{
  float z = amp__expf(-fabsf(x));
  return (x < 0.f ? z : 1.f) / (1.f + z);
}

/* log(1 + exp(x)) without overflow */
AMP_INLINE float amp__softplusf(float x)
{
  float l = amp__log1pf(amp__expf(-fabsf(x)));
  return (x > 0.f ? x : x != x ? x : 0.f) + l;
}

AMP_INLINE float amp__log_sigmoidf(float x)
{
  float l = amp__log1pf(amp__expf(-fabsf(x)));
  return (x < 0.f ? x : x != x ? x : 0.f) - l;
}

AMP_INLINE float amp__siluf(float x)
{
  float c = x < -200.f ? -200.f : x;  /* -inf times 0 */
  float z = amp__expf(-fabsf(c));
  return c * (x < 0.f ? z : 1.f) / (1.f + z);
}

AMP_INLINE float amp__tanhf(float x)
{
  float a = fabsf(x), z = x * x;
  float small = x + x * z * (-0.33333275f + z * (0.13331273f + z * (-0.053725053f + z * (0.020589618f + z * -0.0056481096f))));
  float c = a > 10.f ? 10.f : a;
  float large = 1.f - 2.f / (amp__expf(2.f * c) + 1.f);
  large = x < 0.f ? -large : large;
  return a < 0.625f ? small : large;
}

/* -- Error function and the normal distribution ------------------------------ */

AMP_INLINE float amp__erff(float x)
{
  float a = fabsf(x), z = x * x;
  float small = x + x * (0.1283791671f + z * (-0.3761263192f + z * (0.1128368974f + z * (-0.0268590916f
                + z * (0.0052002752f + z * (-8.134143e-4f + z * 8.334035e-5f))))));
  float c = a > 4.f ? 4.f : a;
  float q = 2.0680109e-4f + c * (1.1276283f + c * (0.63726413f + c * (0.1038579f + c * (-0.02219056f + c * (0.003033902f + c * -1.9496956e-4f)))));
  float large = 1.f - amp__expf(-q);
  large = x < 0.f ? -large : large;
  return a < 0.925f ? small : large;
}

/* exp(-a^2/2) for a >= 0 and, through *r, the tail P(N > a) over it; 0 from 13.2 on, where the tail is below the
** normal numbers. a^2 is split exactly: a relative error of 1e-7 in a^2/2 = 80 would be 1e-5 in the result. */
AMP_INLINE float amp__normal_tail(float a, float *r)
{
  float c = a > 13.2f ? 13.2f : a;
  float h = amp__bitsf(amp__fbits(c) & (int32_t)0xfffff000);
  float d = 4.f + c, lost = c - (d - 4.f), t = 4.f / d;
  t = t - t * t * (0.25f * lost);  /* r depends three times as much on t */
  *r = t * (0.0997463167f + t * (0.0995216817f + t * (0.0952860191f + t * (0.0730214119f + t * (0.0838262737f + t * (0.0177813116f
       + t * (0.0225547720f + t * (0.0559216179f + t * (-0.0645551085f + t * 0.0168957096f)))))))));
  float e = amp__exp_hl(-0.5f * h * h, -0.5f * (c - h) * (c + h));
  return a > 13.2f ? 0.f : e;
}

AMP_INLINE float amp__geluf(float x)
{
  float r, e = amp__normal_tail(fabsf(x), &r), p = x * r * e;
  p = e == 0.f ? 0.f : p;  /* infinity times 0 */
  return x < 0.f ? p : x - p;
}

AMP_INLINE float amp__gelu_gradf(float x)
{
  float r, e = amp__normal_tail(fabsf(x), &r), p = r * e;
  float c = x * 0.39894228f * e;
  c = e == 0.f ? 0.f : c;
  return (x < 0.f ? p : 1.f - p) + c;
}

/* x * sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3) */
AMP_INLINE float amp__gelu_tanhf(float x)
{
  float c = x < -30.f ? -30.f : x;
  float s = c > 30.f ? 30.f : c;
  return c * amp__sigmoidf(s * (1.5957691216f + 0.0713548162726f * s * s));
}

AMP_INLINE float amp__gelu_tanh_gradf(float x)
{
  float s = x > 30.f ? 30.f : x;
  s = s < -30.f ? -30.f : s;
  float q = amp__sigmoidf(s * (1.5957691216f + 0.0713548162726f * s * s));
  return q + s * q * (1.f - q) * (1.5957691216f + 0.214064448818f * s * s);
}

AMP_INLINE float amp__silu_gradf(float x)
{
  float c = x < -200.f ? -200.f : x;
  c = c > 200.f ? 200.f : c;
  float q = amp__sigmoidf(c);
  return q * (1.f + c * (1.f - q));
}

/* -- Sine and cosine ---------------------------------------------------------- */

#define AMP_TRIG_MAX 1e6f  /* beyond, the caller mends with sinf and cosf */
/* sin(x + q pi/2) for |x| <= AMP_TRIG_MAX; q: 0 for sine, 1 for cosine. In double: exact reduction. */
AMP_INLINE float amp__trigf(float x, int32_t q)
{
  double d = (double)x;
  double n = (d * 0.63661977236758134 + 6755399441055744.0) - 6755399441055744.0;
  double r = (d - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11;
  int32_t k = (int32_t)n + q;
  double z = r * r;
  double s = r + r * z * (-0.1666666664110049 + z * (0.00833332932431123 + z * (-0.00019839314861220611 + z * 2.7181197196716594e-06)));
  double c = (1.0 - 0.5 * z) + z * z * (0.04166666662189799 + z * (-0.0013888883672453095 + z * (2.479949845106318e-05 + z * -2.720844185853927e-07)));
  double y = k & 1 ? c : s;
  return (float)(k & 2 ? -y : y);
}

#endif
