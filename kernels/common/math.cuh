/*
** math.cuh: scalar functions of elementwise kernels, for float and double alike,
** where CUDA's own do not say it all. Derivatives of activations stand beside them.
*/
#ifndef AMP_MATH_CUH
#define AMP_MATH_CUH
#include "common/elements.cuh"

#define AMP_FN template <class T> __device__ __forceinline__ T

AMP_FN amp_inf() { return (T)INFINITY; }
AMP_FN amp_sigmoid(T x)
{
  T e = exp(-fabs(x));
  return x < 0 ? e / (1 + e) : 1 / (1 + e);
}
AMP_FN amp_softplus(T x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
AMP_FN amp_gelu(T x) { return x == -amp_inf<T>() ? (T)0 : x * (T)0.5 * erfc(-x * (T)0.70710678118654752440); }
AMP_FN amp_gelu_tanh(T x)
{
  return x == -amp_inf<T>() ? (T)0 : x * amp_sigmoid((T)1.59576912160573071176 * (x + (T)0.044715 * x * x * x));
}
AMP_FN amp_silu(T x) { return x == -amp_inf<T>() ? (T)0 : x * amp_sigmoid(x); }
AMP_FN amp_silu_grad(T x)
{
  if (isinf(x)) return x > 0 ? (T)1 : (T)0;
  T q = amp_sigmoid(x);
  return q * (1 + x * (1 - q));
}
AMP_FN amp_logit(T x) { return log(x / (1 - x)); }
AMP_FN amp_sinc(T x)
{
  T z = x * (T)3.14159265358979323846;
  return x == 0 ? (T)1 : sin(z) / z;
}
/* Taylor's series near 0, where the difference of cosine and quotient loses all its digits; c: 2 k / (2 k + 1)! */
AMP_FN amp_sinc_grad(T x)
{
  T z = x * (T)3.14159265358979323846, u = z * z, c = (T)(18 / 121645100408832000.0), y = 0;
  if (!(fabs(z) < 1)) return (cos(z) - sin(z) / z) / x;
  for (int k = 9; k > 0; k--) {
    y = y * u + (k % 2 ? -c : c);
    c *= (T)(k - 1) / (T)k * (T)(2 * k * (2 * k + 1));
  }
  return (T)3.14159265358979323846 * z * y;
}
AMP_FN amp_gelu_grad(T x)
{
  if (isinf(x)) return x > 0 ? (T)1 : (T)0;
  return (T)0.5 * erfc(-x * (T)0.70710678118654752440) + x * (T)0.39894228040143267794 * exp((T)-0.5 * x * x);
}
AMP_FN amp_gelu_tanh_grad(T x)
{
  if (fabs(x) > 50) return x > 0 ? (T)1 : (T)0;
  T t = tanh((T)0.79788456080286535588 * (x + (T)0.044715 * x * x * x));
  return (T)0.5 * (1 + t) + (T)0.5 * x * (1 - t * t) * (T)0.79788456080286535588 * (1 + (T)0.134145 * x * x);
}
/* The same for what is rounded to 16 bits: with s = sigmoid(2 u), tanh(u) = 2 s - 1 and 1 - tanh(u)^2 = 4 s (1 - s) */
AMP_FN amp_gelu_tanh_grad_of_half(T point)
{
  const float x = (float)point, q = x * x, u = x * (1.59576912160573071176f + 0.07135481282f * q);
  const float s = __fdividef(1.f, 1 + __expf(-u));
  const float v = s + s * (1 - s) * (x * (1.59576912160573071176f + 0.21406443846f * q));
  return fabsf(x) > 50 ? (x > 0 ? (T)1 : (T)0) : (T)v;
}
AMP_FN amp_mish(T x)
{
  if (x == -amp_inf<T>()) return 0;
  T e = exp(x > 40 ? (T)40 : x), n = e * (e + 2);
  return x > (sizeof(T) == 8 ? 40 : 20) ? x : x * (n / (n + 2));
}
/* t + x s (1 - t^2) with t = tanh(softplus(x)) = n / (n + 2), n = e (e + 2), e = exp(x), and the sigmoid
** s = e / (1 + e) */
AMP_FN amp_mish_grad(T x)
{
  if (x > (sizeof(T) == 8 ? 40 : 20)) return 1;
  T c = x < (sizeof(T) == 8 ? -800 : -104) ? (T)(sizeof(T) == 8 ? -800 : -104) : x, e = exp(c), n = e * (e + 2);
  T t = n / (n + 2);
  return t + c * (e / (1 + e)) * (1 - t) * (1 + t);
}

/* Recurrence to x >= 10, then the asymptotic series; reflection below zero (Abramowitz and Stegun 6.3). */
static __device__ inline double amp_digamma(double x)
{
  double r = 0;
  if (x == 0) return copysign((double)INFINITY, -x);
  if (x < 0) {
    if (x == floor(x)) return (double)NAN;
    r = -3.14159265358979323846 / tan(3.14159265358979323846 * (x - rint(x)));
    x = 1 - x;
  }
  if (x == (double)INFINITY) return x;
  for (; x < 10; x++) r -= 1 / x;
  double z = 1 / (x * x);
  double s = z
             * (1.0 / 12
                - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
  return r + log(x) - 0.5 / x - s;
}

/* Hurwitz's zeta(s, q), s >= 2, by Euler and Maclaurin's formula */
static __device__ inline double amp_zeta(int s, double q)
{
  const double b[12] = { 1.0 / 6, -1.0 / 30,     1.0 / 42,      -1.0 / 30,       5.0 / 66,       -691.0 / 2730,
                         7.0 / 6, -3617.0 / 510, 43867.0 / 798, -174611.0 / 330, 854513.0 / 138, -236364091.0 / 2730 };
  double sum = 0;
  if (q <= 0 && q == floor(q)) return (double)INFINITY;
  if (q == (double)INFINITY) return 0;
  for (int i = 0; i < 10 || q < 10; i++, q++) sum += pow(q, (double)-s);
  sum += pow(q, 1.0 - s) / (s - 1) + 0.5 * pow(q, (double)-s);
  double term = s * pow(q, -s - 1.0), f = 2;
  for (int k = 0; k < 12; k++) {
    double add = b[k] * term / f;
    sum += add;
    if (fabs(add) < 1e-17 * fabs(sum)) break;
    term *= (double)(s + 2 * k + 1) * (double)(s + 2 * k + 2) / (q * q);
    f *= (double)(2 * k + 3) * (double)(2 * k + 4);
  }
  return sum;
}
static __device__ inline double amp_polygamma(int n, double x)
{
  if (n == 0) return amp_digamma(x);
  double sign = n & 1 ? 1 : -1, z;
  if (x < 0 && x != floor(x)) { /* the nearest pole is N, d from here: its own term, those above it, and a difference of
                                   two tails for those below */
    double d = x - rint(x), N = -rint(x);
    z = pow(d, (double)-(n + 1)) + amp_zeta(n + 1, 1 + d)
        + sign * (amp_zeta(n + 1, 1 - d) - amp_zeta(n + 1, 1 - d + N));
  } else z = amp_zeta(n + 1, x);
  return sign * tgamma(n + 1.0) * z;
}

/* -- Pairs --------------------------------------------------------------------------- */

AMP_FN amp_mod(T a, T b)
{
  T r = fmod(a, b);
  return r != 0 ? ((r < 0) != (b < 0) ? r + b : r) : copysign((T)0, b);
}
__device__ __forceinline__ int64_t amp_mod(int64_t a, int64_t b)
{
  if (b == -1 || b == 0) return 0;
  int64_t r = a % b;
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}
__device__ __forceinline__ int64_t amp_power(int64_t a, int64_t b)
{
  uint64_t r = 1, x = (uint64_t)a;
  for (; b > 0; b >>= 1, x *= x)
    if (b & 1) r *= x;
  return (int64_t)r;
}
/* the exact quotient of a - mod(a, b) */
static __device__ inline double amp_floordiv(double a, double b)
{
  if (b == 0) return a / b;
  double m = fmod(a, b), q = (a - m) / b;
  if (m != 0 && (b < 0) != (m < 0)) q -= 1;
  if (q == 0) return copysign(0.0, a / b);
  double f = floor(q);
  return q - f > 0.5 ? f + 1 : f;
}
__device__ __forceinline__ int64_t amp_floordiv(int64_t a, int64_t b)
{
  if (b == 0) return 0;
  if (b == -1) return (int64_t)(0 - (uint64_t)a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
AMP_FN amp_logaddexp(T a, T b)
{
  if (a != a || b != b) return a + b;
  T m = a > b ? a : b, d = a > b ? b - a : a - b;
  return isinf(m) ? m : m + log1p(exp(d));
}

#endif
