/*
** ops/elementwise/sinc.c: kernels of sinc, its derivative, and logit: one pass each.
**
** The slope (cos z - sin z / z) pi / z, z = pi x, loses all its digits near 0:
** there it is Taylor's series.
*/
#include <string.h>
#include "ops/elementwise/binary.h"
#include "ops/elementwise/unary.h"

#define PI 3.14159265358979323846

/* -- Sinc ------------------------------------------------------------------------- */

UNF(sinc_core, (a == 0.f ? 1.f : amp__trigf(a * (float)PI, 0) / (a * (float)PI)))

AMP_INLINE float slope_series(float z)
{
  float u = z * z;
  return (float)PI * z
         * (-0.333333333f + u * (0.0333333333f + u * (-0.00119047619f + u * (2.20458554e-5f + u * -2.50521084e-7f))));
}
BINF_DENSE(slope_core, a *(fabsf(b *(float)PI) < 1.f
                               ? slope_series(b * (float)PI)
                               : (amp__trigf(b * (float)PI, 1) - amp__trigf(b * (float)PI, 0) / (b * (float)PI)) / b))

AMP_INLINE int32_t in_reach(float x) { return fabsf(x * (float)PI) <= AMP_TRIG_MAX; }
static AMP_CLONES bool all_in_reach(int64_t n, const float *data)
{
  int32_t all = 1;
  for (int64_t i = 0; i < n; i++) all &= in_reach(data[i]);
  return all;
}
static float exact_sinc(float x)
{
  float z = x * (float)PI;
  return sinf(z) / z;
}
static float exact_slope(float x)
{
  float z = x * (float)PI;
  return (cosf(z) - sinf(z) / z) / x;
}

/* In place the points are needed again, to mend what is out of the core's reach. */
static void sinc_f(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  float tmp[AMP_CHUNK];
  (void)arg;
  for (int64_t first = 0; first < n; first += AMP_CHUNK) {
    int64_t count = n - first < AMP_CHUNK ? n - first : AMP_CHUNK;
    const float *input = (const float *)operand[1] + first;
    void *part[2] = { tmp, (void *)input };
    sinc_core(count, part, 0, NULL);
    if (amp_unlikely(!all_in_reach(count, input)))
      for (int64_t i = 0; i < count; i++)
        if (!in_reach(input[i])) tmp[i] = exact_sinc(input[i]);
    memcpy((float *)operand[0] + first, tmp, sizeof(float) * (size_t)count);
  }
}
static void slope_f(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  float tmp[AMP_CHUNK];
  (void)arg;
  for (int64_t first = 0; first < n; first += AMP_CHUNK) {
    int64_t count = n - first < AMP_CHUNK ? n - first : AMP_CHUNK;
    const float *grad = (const float *)operand[1] + first, *input = (const float *)operand[2] + first;
    void *part[3] = { tmp, (void *)grad, (void *)input };
    slope_core(count, part, 0, NULL);
    if (amp_unlikely(!all_in_reach(count, input)))
      for (int64_t i = 0; i < count; i++)
        if (!in_reach(input[i])) tmp[i] = grad[i] * exact_slope(input[i]);
    memcpy((float *)operand[0] + first, tmp, sizeof(float) * (size_t)count);
  }
}

static double slope(double x)
{
  double z = PI * x, u = z * z, c = 18 / 121645100408832000.0, y = 0; /* c: 2 k / (2 k + 1)! */
  if (!(fabs(z) < 1)) return (cos(z) - sin(z) / z) / x;
  for (int k = 9; k > 0; k--) {
    y = y * u + (k % 2 ? -c : c);
    c *= (double)(k - 1) / k * (2 * k) * (2 * k + 1);
  }
  return PI * z * y;
}
UN_PLAIN(sinc_d, double, a == 0 ? 1 : sin(PI * a) / (PI * a))
BIN_PLAIN(slope_d, double, a *slope(b))

int amp__cpu_sinc(amp_call *call)
{
  static const amp_loop_fn loops[2] = { sinc_f, sinc_d };
  int cls = float_class(call);
  return run1(call, loops, cls, cls, 14, NULL);
}

int amp__cpu_sinc_backward(amp_call *call) /* grad input */
{
  static const amp_loop_fn loops[3] = { slope_f, slope_d, NULL };
  return run2_dense(call, loops, class_of2(call), 28);
}

/* -- Logit ------------------------------------------------------------------------ */

typedef struct {
  float flo, fhi;
  double low, high;
} logit_arg;

static AMP_CLONES void logit_f(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  float *out = operand[0];
  const float *input = operand[1], low = ((const logit_arg *)arg)->flo, high = ((const logit_arg *)arg)->fhi;
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) {
    const float a = input[i], b = a < low ? low : a, d = b > high ? high : b;
    out[i] = amp__logf(d / (1.f - d));
  }
}
static void logit_d(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  double *out = operand[0];
  const double *input = operand[1], low = ((const logit_arg *)arg)->low, high = ((const logit_arg *)arg)->high;
  for (int64_t i = 0; i < n; i++) {
    const double a = input[i], b = a < low ? low : a, d = b > high ? high : b;
    out[i] = log(d / (1.0 - d));
  }
}

int amp__cpu_logit(amp_call *call) /* eps: limits [eps, 1 - eps] */
{
  static const amp_loop_fn loops[2] = { logit_f, logit_d };
  const args_logit *args = AMP_ARGS(call, logit);
  int cls = float_class(call);
  logit_arg k = { -INFINITY, INFINITY, -INFINITY, INFINITY };
  if (AMP_GIVEN(args->eps)) {
    k.low = args->eps;
    k.high = 1 - k.low;
    k.flo = (float)k.low;
    k.fhi = (float)k.high;
  }
  return run1(call, loops, cls, cls, 12, &k);
}
