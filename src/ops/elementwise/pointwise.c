/*
** ops/elementwise/pointwise.c: elementwise kernels of two tensors beyond plain arithmetic:
** angles and lengths, logarithmic sums, remainders of C, signs, bits.
*/
#include <string.h>
#include "ops/elementwise/binary.h"
#include "ops/elementwise/special.h"

/* -- Floats ----------------------------------------------------------------------- */

BINF_DENSE(hypot_f,
           (fabsf(a) == INFINITY || fabsf(b) == INFINITY ? INFINITY
                                                         : (float)sqrt((double)a * (double)a + (double)b * (double)b)))
BIN_PLAIN(hypot_d, double, hypot(a, b))
int amp__cpu_hypot(amp_call *call)
{
  static const amp_loop_fn loops[3] = { hypot_f, hypot_d, NULL };
  int cls = class_of2(call);
  return run2_dense(call, loops, cls == AMP_C_I64 ? AMP_C_F32 : cls, 6);
}
BINF_DENSE(atan2_f, amp__atan2f(a, b))
BIN_PLAIN(atan2_d, double, atan2(a, b))
int amp__cpu_atan2(amp_call *call)
{
  static const amp_loop_fn loops[3] = { atan2_f, atan2_d, NULL };
  int cls = class_of2(call);
  return run2_dense(call, loops, cls == AMP_C_I64 ? AMP_C_F32 : cls, 12);
}

AMP_INLINE float logaddexpf(float a, float b)
{
  float m = a > b ? a : b, d = a > b ? b - a : a - b; /* NaN from either */
  d = a == b ? 0.f : d;                               /* equal infinities */
  return m == -INFINITY || m == INFINITY ? m
                                               + (a != a   ? a
                                                  : b != b ? b
                                                           : 0.f)
                                         : (a != a ? a : m) + amp__log1pf(amp__expf(d));
}
static double logaddexp(double a, double b)
{
  if (a != a || b != b) return a + b;
  double m = a > b ? a : b, d = a > b ? b - a : a - b;
  return isinf(m) ? m : m + log1p(exp(d));
}
BINF_DENSE(logaddexp_f, logaddexpf(a, b))
BIN_PLAIN(logaddexp_d, double, logaddexp(a, b))
int amp__cpu_logaddexp(amp_call *call)
{
  static const amp_loop_fn loops[3] = { logaddexp_f, logaddexp_d, NULL };
  int cls = class_of2(call);
  return run2_dense(call, loops, cls == AMP_C_I64 ? AMP_C_F32 : cls, 16);
}

/* 0 times any logarithm is 0, except that of NaN */
BINF_DENSE(xlogy_f, (b != b ? b : a == 0.f ? 0.f : a * amp__logf(b)))
BIN_PLAIN(xlogy_d, double, b != b ? b : a == 0 ? 0 : a * log(b))
int amp__cpu_xlogy(amp_call *call)
{
  static const amp_loop_fn loops[3] = { xlogy_f, xlogy_d, NULL };
  int cls = class_of2(call);
  return run2_dense(call, loops, cls == AMP_C_I64 ? AMP_C_F32 : cls, 10);
}

BINF(copysign_f, copysignf(a, b))
BIND(copysign_d, copysign(a, b))
int amp__cpu_copysign(amp_call *call)
{
  static const amp_loop_fn loops[3] = { copysign_f, copysign_d, NULL };
  int cls = class_of2(call);
  return run2(call, loops, cls == AMP_C_I64 ? AMP_C_F32 : cls, 1, NULL);
}

/* -- Division that rounds ------------------------------------------------------------ */

static void zero_loop(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  const int64_t *input = operand[0];
  int found = 0;
  for (int64_t i = 0; i < n; i++) found |= input[i] == 0;
  if (found) __atomic_store_n((int *)arg, 1, __ATOMIC_RELAXED);
}
static int no_zero(amp_call *call, const char *what)
{
  int found = 0;
  uint8_t cls = AMP_C_I64;
  amp_tensor *divisor = call->in[1];
  amp_loop loop = { zero_loop, &found, 0, 0, 1 };
  if (call->out[0]->numel > 0) amp__elementwise(&loop, 1, &divisor, &cls);
  return found ? amp__fail_arg(AMP_E_VALUE, 2, "an integer %s zero; cast to a float dtype for NaN and infinity", what)
               : 0;
}
AMP_INLINE int64_t fmodi(int64_t left, int64_t right) { return right == -1 ? 0 : left % right; }
AMP_INLINE int64_t floordivi(int64_t left, int64_t right)
{
  if (right == -1) return (int64_t)(0 - (uint64_t)left);
  return left / right - (left % right != 0 && (left < 0) != (right < 0));
}
/* the exact quotient of a - mod(a, b), so that a rounded quotient of 1.0 can't count one too many */
static double floordiv(double a, double b)
{
  if (b == 0) return a / b;
  double m = fmod(a, b);
  double q = (a - m) / b;
  if (m != 0 && (b < 0) != (m < 0)) q -= 1;
  if (q == 0) return copysign(0, a / b);
  double f = floor(q);
  return q - f > 0.5 ? f + 1 : f;
}
static void fmod_f(int64_t n, void *const *operand, unsigned scalar, const void *arg) { amp__fmod_loop(n, operand); }
BIN_PLAIN(fmod_d, double, fmod(a, b))
BIN_PLAIN(fmod_i, int64_t, fmodi(a, b))
int amp__cpu_fmod(amp_call *call)
{
  static const amp_loop_fn loops[3] = { fmod_f, fmod_d, fmod_i };
  int cls = class_of2(call), status = cls == AMP_C_I64 ? no_zero(call, "modulo") : 0;
  return status < 0 ? status : run2_dense(call, loops, cls, 8);
}
/* exact as far as fmod's core is: a quotient below 2^29 in double can't round up to an integer */
AMP_INLINE int32_t floored(float q, float y) { return (fabsf(q) <= 268435456.f) & (fabsf(y) <= FLT_MAX); }
static AMP_CLONES bool floor_core(int64_t n, float *out, const float *input, const float *other)
{
  int32_t all = 1;
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) {
    const float b = other[i], q = (float)floor((double)input[i] / (double)b);
    all &= floored(q, b);
    out[i] = q;
  }
  return all;
}
static void floor_divide_f(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  float keep[AMP_CHUNK];
  for (int64_t first = 0; first < n; first += AMP_CHUNK) { /* in place the operands are needed again */
    int64_t count = n - first < AMP_CHUNK ? n - first : AMP_CHUNK;
    const float *a = (const float *)operand[1] + first, *b = (const float *)operand[2] + first;
    if (amp_unlikely(!floor_core(count, keep, a, b)))
      for (int64_t i = 0; i < count; i++)
        if (!floored(keep[i], b[i])) keep[i] = (float)floordiv((double)a[i], (double)b[i]);
    memcpy((float *)operand[0] + first, keep, sizeof(float) * (size_t)count);
  }
}
BIN_PLAIN(floor_divide_d, double, floordiv(a, b))
BIN_PLAIN(floor_divide_i, int64_t, floordivi(a, b))
const amp_loop_fn amp__floor_divide_loops[3] = { floor_divide_f, floor_divide_d, floor_divide_i };
int amp__cpu_floor_divide(amp_call *call)
{
  int cls = class_of2(call), status = cls == AMP_C_I64 ? no_zero(call, "divided by") : 0;
  return status < 0 ? status : run2_dense(call, amp__floor_divide_loops, cls, 10);
}

/* -- Bits --------------------------------------------------------------------------------- */

/* shifts by the width or more leave nothing but the sign; a left shift by a negative count leaves 0 */
AMP_INLINE int64_t shl(int64_t left, int64_t right)
{
  return right < 0 || right > 63 ? 0 : (int64_t)((uint64_t)left << right);
}
AMP_INLINE int64_t shr(int64_t left, int64_t right) { return left >> (right < 0 || right > 63 ? 63 : right); }
#define BITS(name, E)                                             \
  BIN_(AMP_CLONES_WIDE, name##_i, int64_t, int64_t, E)            \
  int amp__cpu_##name(amp_call *c)                                \
  {                                                               \
    static const amp_loop_fn loops[3] = { NULL, NULL, name##_i }; \
    return run2(c, loops, AMP_C_I64, 1, NULL);                    \
  }
BITS(bitwise_and, a &b)
BITS(bitwise_or, a | b)
BITS(bitwise_xor, a ^ b)
BITS(bitwise_left_shift, shl(a, b))
BITS(bitwise_right_shift, shr(a, b))

static AMP_CLONES_WIDE void not_i(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  int64_t *out = operand[0];
  const int64_t *input = operand[1];
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) out[i] = ~input[i];
}
static AMP_CLONES_WIDE void not_u(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  uint8_t *out = operand[0];
  const uint8_t *input = operand[1];
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) out[i] = input[i] == 0;
}
int amp__cpu_bitwise_not(amp_call *call)
{
  amp_tensor *tensors[2] = { call->out[0], call->in[0] };
  bool truth = call->in[0]->dtype == AMP_BOOL;
  uint8_t k = truth ? AMP_C_U8 : AMP_C_I64;
  const uint8_t cls[2] = { k, k };
  amp_loop loop = { truth ? not_u : not_i, NULL, 1, 0, 1 };
  amp__elementwise(&loop, 2, tensors, cls);
  return 0;
}
