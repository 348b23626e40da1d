/*
** ops/elementwise/special.h: more float functions in the way of cpu/vector_math.h: straight-line
** code of one scalar that becomes vector code, minimax fits made for here.
** Accuracy: 1.5 ulp for the arcs of tangent, 3 for erfinv, 5 for erfc, cbrt
** correctly rounded where tried, fmod exact where it is defined.
*/
#ifndef AMP_CPU_SPECIAL_H
#define AMP_CPU_SPECIAL_H
#include "cpu/vector_math.h"

/* atan(q) for q in [0, 1] */
AMP_INLINE float amp__atan01f(float q)
{
  float z = q * q;
  return q
         + q * z
               * (-0.3333329909f
                  + z
                        * (0.1999854828f
                           + z
                                 * (-0.1426424168f
                                    + z
                                          * (0.109521858f
                                             + z
                                                   * (-0.08403450382f
                                                      + z
                                                            * (0.05795759435f
                                                               + z
                                                                     * (-0.03117784649f
                                                                        + z
                                                                              * (0.01091460602f
                                                                                 + z * -0.001793621756f))))))));
}

AMP_INLINE float amp__atan2f(float y, float x)
{
  float ax = fabsf(x), ay = fabsf(y);
  float n = ay > ax ? ax : ay, d = ay > ax ? ay : ax;
  float q = n / d;
  q = d == 0.f ? 0.f : n > FLT_MAX ? 1.f : q; /* 0 over 0, infinity over infinity */
  float r = amp__atan01f(q);
  r = ay > ax ? (1.57079637f - r) + -4.37113883e-8f : r;
  r = amp__fbits(x) < 0 ? (3.14159274f - r) + -8.74227766e-8f : r;
  r = copysignf(r, y);
  return x != x || y != y ? x + y : r;
}

/* x P(w), w = -log(1 - x^2) below 5, else x Q(sqrt(w)) */
AMP_INLINE float amp__erfinvf(float x)
{
  float w = -amp__logf((1.f - x) * (1.f + x)), c = w - 2.5f, s = sqrtf(w) - 3.f;
  float p = 1.501409359f
            + c
                  * (0.2466402862f
                     + c
                           * (-0.004177386744f
                              + c
                                    * (-0.001252741879f
                                       + c
                                             * (0.0002183444109f
                                                + c
                                                      * (-4.963351841e-06f
                                                         + c
                                                               * (-3.462697602e-06f
                                                                  + c
                                                                        * (4.66172257e-07f
                                                                           + c
                                                                                 * (2.323208123e-08f
                                                                                    + c * -8.791210153e-09f))))))));
  float t
      = 2.832977004f
        + s
              * (1.001674232f
                 + s
                       * (0.009435036409f
                          + s
                                * (-0.007626244457f
                                   + s
                                         * (0.005765547407f
                                            + s
                                                  * (-0.003656529361f
                                                     + s
                                                           * (0.001292232726f
                                                              + s * (8.250266806e-05f + s * -0.0001597640959f)))))));
  float y = x * (w < 5.f ? p : t);
  return fabsf(x) == 1.f ? copysignf(INFINITY, x) : y;
}

/* the tail of the normal distribution at sqrt(2) |x|, doubled; 0 from 10.06 on */
AMP_INLINE float amp__erfcf(float x)
{
  float a = fabsf(x), c = a > 10.06f ? 10.06f : a;
  float h = amp__bitsf(amp__fbits(c) & (int32_t)0xfffff000);
  float t = 2.f * amp__tail_ratio(c * 1.41421356f) * amp__exp_low(-h * h, -(c - h) * (c + h));
  t = a > 10.06f ? 0.f : t;
  t = x < 0.f ? 2.f - t : t;
  return x != x ? x : t;
}

/* a third of the exponent by integer arithmetic, then two steps of Halley's in double */
AMP_INLINE float amp__cbrtf(float x)
{
  float a = fabsf(x), s = a < FLT_MIN ? a * 16777216.f : a;
  int32_t b = (int32_t)((float)amp__fbits(s) * (1.f / 3.f)) + 709958130;
  double d = (double)s, t = (double)amp__bitsf(b), r = t * t * t;
  t = t * (d + d + r) / (d + r + r);
  r = t * t * t;
  t = t * (d + d + r) / (d + r + r);
  float y = (float)t * (a < FLT_MIN ? 0.00390625f : 1.f);
  y = a == 0.f || !(a <= FLT_MAX) ? a : y;
  return copysignf(y, x);
}

/* log of a normal number above 0: the exponent's, and 2 atanh of (m - 1) / (m + 1) for the rest in [sqrt 1/2, sqrt 2)
 */
AMP_INLINE double amp__log_pos(double x)
{
  union {
    double f;
    int64_t i;
  } u = { x };
  int64_t e = (int64_t)((uint64_t)u.i - 0x3fe6a09e667f3bcdULL) >> 52;
  u.i = (int64_t)((uint64_t)u.i - ((uint64_t)e << 52));
  double s = (u.f - 1) / (u.f + 1), z = s * s, w = z * z;
  double p = (2.0 / 13 + z * (2.0 / 15)) + w * (2.0 / 17 + z * (2.0 / 19));
  p = (2 + z * (2.0 / 3)) + w * ((2.0 / 5 + z * (2.0 / 7)) + w * ((2.0 / 9 + z * (2.0 / 11)) + w * p));
  return (double)(int32_t)e * 0.69314718055994530942 + s * p;
}

/* lgamma in (0, FLT_MAX]: Stirling's series from 8 on; below, at x + 8, less log x (x + 1) .. (x + 7) */
AMP_INLINE float amp__lgamma_pos(float f)
{
  double x = (double)f, low = x < 8 ? x : 1, z = x < 8 ? x + 8 : x, y = 1 / z, w = y * y;
  double p = x < 8 ? low * (low + 1) * (low + 2) * (low + 3) * ((low + 4) * (low + 5) * (low + 6) * (low + 7)) : 1;
  double tail
      = y
        * (1.0 / 12
           - w * (1.0 / 360 - w * (1.0 / 1260 - w * (1.0 / 1680 - w * (1.0 / 1188 - w * (691.0 / 360360 - w / 156))))));
  float r = (float)((z - 0.5) * amp__log_pos(z) - z + 0.91893853320467274178 + tail - amp__log_pos(p));
  return f == 1.f || f == 2.f ? 0.f : r;
}

/* exact for finite a, b != 0 and |a / b| < 2^29: the quotient cannot round up to an integer, the product and the
** difference are exact. Others: fmodf, element by element, as sin and cos do */
AMP_INLINE float amp__fmodf_core(float a, float b)
{
  double x = (double)a, y = (double)b, q = trunc(x / y);
  return copysignf((float)(x - q * y), a);
}

#endif
