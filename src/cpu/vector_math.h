/*
** cpu/vector_math.h: float functions that compilers can turn into vector code.
**
** Every function is straight-line code of one scalar: no calls, no tables, no
** branches, selects by ?: only. In a loop of a function marked AMP_CLONES, GCC
** makes AVX-512, AVX2 + FMA and baseline versions of it, and the loader picks
** one for the machine at start: glibc's does; musl's knows no such symbols, and
** there is the baseline alone. On arm64 the one version is NEON code.
**
** Accuracy (spec/c/test_kernels.c checks it against double): 2 ulp, 3 for
** sigmoid and silu, 5 for gelu (whose usual form loses hundreds below -3). NaN gives NaN; infinities,
** zeros and denormals are right.
** Compiled with -fno-math-errno and -fno-trapping-math, never -ffast-math.
** Double arguments use libm: float64 is for checking, not for speed.
**
** Coefficients are minimax fits (weighted for relative error) made for here.
*/
#ifndef AMP_CPU_VECTOR_MATH_H
#define AMP_CPU_VECTOR_MATH_H
#include <float.h>
#include <math.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__SANITIZE_UNDEFINED__)
#define AMP_CLONES
#define AMP_CLONES_WIDE
#elif defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
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

AMP_INLINE int32_t amp__fbits(float x)
{
  union {
    float f;
    int32_t i;
  } u;
  u.f = x;
  return u.i;
}
AMP_INLINE float amp__bitsf(int32_t i)
{
  union {
    float f;
    int32_t i;
  } u;
  u.i = i;
  return u.f;
}
AMP_INLINE double amp__bitsd(int64_t i)
{
  union {
    double f;
    int64_t i;
  } u;
  u.i = i;
  return u.f;
}

/* 2^n for n in [-252, 254], in two factors so that results may be denormal or infinite */
AMP_INLINE float amp__scale2f(float p, int32_t n)
{
  int32_t h = n >> 1;
  return p * amp__bitsf((int32_t)((uint32_t)(127 + h) << 23)) * amp__bitsf((int32_t)((uint32_t)(127 + (n - h)) << 23));
}

/* x, which has no sign or that of `of`, with that sign: zeros get one */
AMP_INLINE float amp__with_sign(float x, float of)
{
  return amp__bitsf((int32_t)((uint32_t)amp__fbits(x) | ((uint32_t)amp__fbits(of) & 0x80000000u)));
}

#define AMP_LN2_HI 0.693359375f /* 9 bits: n * LN2_HI is exact */
#define AMP_LN2_LO (-2.12194440e-4f)
#define AMP_ROUND 12582912.f /* 1.5 * 2^23: adding rounds to an integer, kept in the low bits */

/* -- Exponentials ---------------------------------------------------------- */

/* exp(r) = 1 + r + r^2 P(r) for |r| <= ln2 / 2 */
AMP_INLINE float amp__exp_p(float r)
{
  return 0.5f + r * (0.16666667f + r * (0.041666266f + r * (0.0083332723f + r * (0.0013946356f + r * 1.9914331e-4f))));
}

/* exp(x + lo) for a small lo, x + lo in [-170, 88] or NaN */
AMP_INLINE float amp__exp_low(float x, float lo)
{
  float rounded = (x + lo) * 1.44269504f + AMP_ROUND;
  float whole = rounded - AMP_ROUND;
  float r = x - whole * AMP_LN2_HI;
  r = (r - whole * AMP_LN2_LO) + lo;
  return amp__scale2f(1.f + (r + r * r * amp__exp_p(r)), amp__fbits(rounded) - amp__fbits(AMP_ROUND));
}

/* the same for x + lo in [-87, 88] or NaN */
AMP_INLINE float amp__exp_hl(float x, float lo)
{
  float rounded = (x + lo) * 1.44269504f + AMP_ROUND;
  float whole = rounded - AMP_ROUND;
  float r = x - whole * AMP_LN2_HI;
  r = (r - whole * AMP_LN2_LO) + lo;
  float scale = amp__bitsf((int32_t)((uint32_t)(amp__fbits(rounded) - amp__fbits(AMP_ROUND) + 127) << 23));
  return scale * (1.f + (r + r * r * amp__exp_p(r)));
}

/* exp(x) for x >= -104 or NaN. The exponent has its upper end, 128, as an integer, which is one instruction: behind
** the end the remainder grows, and the result with it. The constant that rounds leaves n + 254 in the low bits, so that
** a shift and a subtraction make both factors. */
AMP_INLINE float amp__exp_from(float x, int32_t end)
{
  const float round = AMP_ROUND + 254.f;
  const int32_t bits = amp__fbits(x * 1.44269504f + round), scale = bits < end ? bits : end, half = scale >> 1;
  float whole = amp__bitsf(scale) - round;
  float r = x - whole * AMP_LN2_HI;
  r = r - whole * AMP_LN2_LO;
  return (1.f + (r + r * r * amp__exp_p(r))) * amp__bitsf((int32_t)((uint32_t)half << 23))
         * amp__bitsf((int32_t)((uint32_t)(scale - half) << 23));
}

AMP_INLINE float amp__expf(float x)
{
  float power = amp__exp_from(x, 0x4b400000 + 254 + 128);
  return x < -104.f ? 0.f : power;
}

/* exp(-|x|) */
AMP_INLINE float amp__exp_awayf(float x)
{
  float low = -fabsf(x), power = amp__exp_from(low, INT32_MAX);
  return low < -104.f ? 0.f : power;
}

/* the same, and 0 for NaN */
AMP_INLINE float amp__exp_away_numberf(float x)
{
  const int32_t size = amp__fbits(fabsf(x)), end = 0x42d00000; /* 104 */
  return amp__exp_from(-amp__bitsf(size < end ? size : end), INT32_MAX);
}

/* exp(x) for x >= 0 or NaN; from 88 on something larger than 2^126. One factor is enough. */
AMP_INLINE float amp__exp_largef(float x)
{
  const float round = AMP_ROUND + 127.f;
  const int32_t bits = amp__fbits(x * 1.44269504f + round), end = 0x4b400000 + 127 + 126,
                scale = bits < end ? bits : end;
  float whole = amp__bitsf(scale) - round;
  float r = x - whole * AMP_LN2_HI;
  r = r - whole * AMP_LN2_LO;
  return (1.f + (r + r * r * amp__exp_p(r))) * amp__bitsf((int32_t)((uint32_t)scale << 23));
}

AMP_INLINE float amp__exp2f(float x)
{
  x = x > 129.f ? 129.f : x;
  x = x < -151.f ? -151.f : x;
  float rounded = x + AMP_ROUND;
  float r = (x - (rounded - AMP_ROUND)) * 0.69314718f;
  return amp__scale2f(1.f + (r + r * r * amp__exp_p(r)), amp__fbits(rounded) - amp__fbits(AMP_ROUND));
}

/* 2 * (s * (exp(r) - 1) + (s - 1/2)), s = 2^(whole-1): no cancellation at whole = 0. The exponent ends as exp's. */
AMP_INLINE float amp__expm1f(float x)
{
  const float round = AMP_ROUND + 126.f;
  const int32_t bits = amp__fbits(x * 1.44269504f + round), end = 0x4b400000 + 126 + 128,
                scale = bits < end ? bits : end;
  float whole = amp__bitsf(scale) - round;
  float r = x - whole * AMP_LN2_HI;
  r = r - whole * AMP_LN2_LO;
  float e = r + r * r * amp__exp_p(r);
  float s = amp__bitsf((int32_t)((uint32_t)scale << 23));
  float y = 2.f * (s * e + (s - 0.5f));
  y = x < -30.f ? -1.f : y;
  return amp__with_sign(y, x);
}

/* -- Logarithms ------------------------------------------------------------ */

/* x = 2^*exponent * (1 + f), f in [sqrt(1/2) - 1, sqrt(2) - 1], for x > 0 */
AMP_INLINE float amp__log_split(float x, float *exponent)
{
  float small = x < FLT_MIN ? 1.f : 0.f;
  float xs = x < FLT_MIN ? x * 8388608.f : x;
  int32_t ix = (int32_t)((uint32_t)amp__fbits(xs) - 0x3f3504f3u);
  *exponent = (float)(ix >> 23) - 23.f * small;
  return amp__bitsf((ix & 0x7fffff) + 0x3f3504f3) - 1.f;
}

AMP_INLINE float amp__log_p(float frac)
{
  return 0.3333333f
         + frac
               * (-0.2500082254f
                  + frac
                        * (0.2000122219f
                           + frac
                                 * (-0.1662333608f
                                    + frac
                                          * (0.1420186907f
                                             + frac
                                                   * (-0.1316048950f
                                                      + frac * (0.1276091486f + frac * -0.0763286129f))))));
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
  float exponent, frac = amp__log_split(x, &exponent), square = frac * frac;
  float y = frac * square * amp__log_p(frac) + exponent * AMP_LN2_LO;
  y = y - 0.5f * square;
  return amp__log_edge(x, exponent * AMP_LN2_HI + (frac + y));
}

/* base 2 in double: for pow, log2 and log10 */
AMP_INLINE double amp__log2_d(float x)
{
  float exponent, frac = amp__log_split(x, &exponent);
  double s = (double)frac / (2.0 + (double)frac), square = s * s;
  return (double)exponent
         + s
               * (2.885390081777846
                  + square
                        * (0.9617966941219521
                           + square
                                 * (0.5770779396483444
                                    + square
                                          * (0.41220954629476503
                                             + square * (0.31989291862292973 + square * 0.28309221109473953)))));
}

AMP_INLINE float amp__log2f(float x) { return amp__log_edge(x, (float)amp__log2_d(x)); }
AMP_INLINE float amp__log10f(float x) { return amp__log_edge(x, (float)(amp__log2_d(x) * 0.30102999566398120)); }

AMP_INLINE float amp__log1pf(float x)
{
  float u = 1.f + x;
  float lost = (x - (u - 1.f)) / u; /* what rounding u lost, relative */
  float y = amp__logf(u);
  y = y + (u > 0.f && u <= FLT_MAX ? lost : 0.f);
  return x == 0.f ? x : y;
}

/* x^y for 0 < x < inf and finite y; the caller mends other elements with powf */
AMP_INLINE float amp__powf_core(float x, float y)
{
  double t = (double)y * amp__log2_d(x);
  t = t > 140.0 ? 140.0 : t;
  t = t < -170.0 ? -170.0 : t;
  double n = (t + 6755399441055744.0) - 6755399441055744.0, r = t - n;
  double p = 1.0
             + r
                   * (0.6931471805459694
                      + r
                            * (0.24022650695610342
                               + r
                                     * (0.0555041094112201
                                        + r
                                              * (0.00961812920796437
                                                 + r
                                                       * (0.0013333450624499117
                                                          + r
                                                                * (0.0001540342258067862
                                                                   + r
                                                                         * (1.5310067838545115e-05
                                                                            + r * 1.326212203886846e-06)))))));
  return (float)(p * amp__bitsd((int64_t)((uint64_t)((int32_t)n + 1023) << 52)));
}

/* -- Sigmoid and relatives ------------------------------------------------- */

AMP_INLINE float amp__sigmoidf(float x)
{
  float power = amp__exp_awayf(x);
  return (x < 0.f ? power : 1.f) / (1.f + power);
}

/* log(1 + exp(x)) without overflow */
AMP_INLINE float amp__softplusf(float x)
{
  float log1p = amp__log1pf(amp__exp_away_numberf(x));
  return (x > 0.f ? x : x != x ? x : 0.f) + log1p;
}

AMP_INLINE float amp__log_sigmoidf(float x)
{
  float log1p = amp__log1pf(amp__exp_away_numberf(x));
  return (x < 0.f ? x : x != x ? x : 0.f) - log1p;
}

AMP_INLINE float amp__siluf(float x)
{
  float clamped = x < -200.f ? -200.f : x; /* -inf times 0 */
  float power = amp__exp_awayf(clamped);
  return clamped * (x < 0.f ? power : 1.f) / (1.f + power);
}

AMP_INLINE float amp__tanhf(float x)
{
  float size = fabsf(x), square = x * x;
  float small
      = x
        + x * square
              * (-0.33333275f
                 + square
                       * (0.13331273f + square * (-0.053725053f + square * (0.020589618f + square * -0.0056481096f))));
  float large = 1.f - 2.f / (amp__exp_largef(2.f * size) + 1.f);
  large = amp__with_sign(large, x);
  return size < 0.625f ? small : large;
}

/* -- Error function and the normal distribution ------------------------------ */

AMP_INLINE float amp__erff(float x)
{
  float size = fabsf(x), square = x * x;
  float small = x
                + x
                      * (0.1283791671f
                         + square
                               * (-0.3761263192f
                                  + square
                                        * (0.1128368974f
                                           + square
                                                 * (-0.0268590916f
                                                    + square
                                                          * (0.0052002752f
                                                             + square * (-8.134143e-4f + square * 8.334035e-5f))))));
  float clamped = size > 4.f ? 4.f : size;
  float exponent
      = 2.0680109e-4f
        + clamped
              * (1.1276283f
                 + clamped
                       * (0.63726413f
                          + clamped
                                * (0.1038579f
                                   + clamped * (-0.02219056f + clamped * (0.003033902f + clamped * -1.9496956e-4f)))));
  float large = 1.f - amp__expf(-exponent);
  large = x < 0.f ? -large : large;
  return size < 0.925f ? small : large;
}

/* exp(-a^2/2) for a >= 0 and, through *r, the tail P(N > a) over it; 0 from 13.2 on, where the tail is below the
** normal numbers. a^2 is split exactly: a relative error of 1e-7 in a^2/2 = 80 would be 1e-5 in the result. */
AMP_INLINE float amp__tail_ratio(float c)
{
  float d = 4.f + c, lost = c - (d - 4.f), t = 4.f / d;
  t = t - t * t * (0.25f * lost); /* the ratio depends three times as much on t */
  return t
         * (0.0997463167f
            + t
                  * (0.0995216817f
                     + t
                           * (0.0952860191f
                              + t
                                    * (0.0730214119f
                                       + t
                                             * (0.0838262737f
                                                + t
                                                      * (0.0177813116f
                                                         + t
                                                               * (0.0225547720f
                                                                  + t
                                                                        * (0.0559216179f
                                                                           + t
                                                                                 * (-0.0645551085f
                                                                                    + t * 0.0168957096f)))))))));
}

AMP_INLINE float amp__normal_tail(float a, float *ratio)
{
  float clamped = a > 13.2f ? 13.2f : a;
  float high = amp__bitsf(amp__fbits(clamped) & (int32_t)0xfffff000);
  *ratio = amp__tail_ratio(clamped);
  float density = amp__exp_hl(-0.5f * high * high, -0.5f * (clamped - high) * (clamped + high));
  return a > 13.2f ? 0.f : density;
}

AMP_INLINE float amp__geluf(float x)
{
  float ratio, tail = amp__normal_tail(fabsf(x), &ratio), p = x * ratio * tail;
  p = tail == 0.f ? 0.f : p; /* infinity times 0 */
  return x < 0.f ? p : x - p;
}

AMP_INLINE float amp__gelu_gradf(float x)
{
  float ratio, tail = amp__normal_tail(fabsf(x), &ratio), p = ratio * tail;
  float density = x * 0.39894228f * tail;
  density = tail == 0.f ? 0.f : density;
  return (x < 0.f ? p : 1.f - p) + density;
}

/* x * sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3) */
AMP_INLINE float amp__gelu_tanhf(float x)
{
  float clamped = x < -30.f ? -30.f : x;
  float s = clamped > 30.f ? 30.f : clamped;
  return clamped * amp__sigmoidf(s * (1.5957691216f + 0.0713548162726f * s * s));
}

AMP_INLINE float amp__gelu_tanh_gradf(float x)
{
  float clamped = x > 30.f ? 30.f : x;
  clamped = clamped < -30.f ? -30.f : clamped;
  float sigmoid = amp__sigmoidf(clamped * (1.5957691216f + 0.0713548162726f * clamped * clamped));
  return sigmoid + clamped * sigmoid * (1.f - sigmoid) * (1.5957691216f + 0.214064448818f * clamped * clamped);
}

AMP_INLINE float amp__silu_gradf(float x)
{
  float clamped = x < -200.f ? -200.f : x;
  clamped = clamped > 200.f ? 200.f : clamped;
  float sigmoid = amp__sigmoidf(clamped);
  return sigmoid * (1.f + clamped * (1.f - sigmoid));
}

/* -- Sine and cosine ---------------------------------------------------------- */

#define AMP_TRIG_MAX 1e6f /* beyond, the caller mends with sinf and cosf */
/* sin(x + q pi/2) for |x| <= AMP_TRIG_MAX; q: 0 for sine, 1 for cosine. In double: exact reduction. */
AMP_INLINE float amp__trigf(float x, int32_t q)
{
  double d = (double)x;
  double n = (d * 0.63661977236758134 + 6755399441055744.0) - 6755399441055744.0;
  double r = (d - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11;
  int32_t k = (int32_t)n + q;
  double square = r * r;
  double s
      = r
        + r * square
              * (-0.1666666664110049
                 + square
                       * (0.00833332932431123 + square * (-0.00019839314861220611 + square * 2.7181197196716594e-06)));
  double c
      = (1.0 - 0.5 * square)
        + square * square
              * (0.04166666662189799
                 + square
                       * (-0.0013888883672453095 + square * (2.479949845106318e-05 + square * -2.720844185853927e-07)));
  double y = k & 1 ? c : s;
  return (float)(k & 2 ? -y : y);
}

#endif
