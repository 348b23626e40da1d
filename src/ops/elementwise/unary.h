/*
** ops/elementwise/unary.h: what kernels of one tensor are written with: a loop as one
** expression of `a`, a class each, and the call of the one that the operand
** asks for.
*/
#ifndef AMP_CPU_UNARY_H
#define AMP_CPU_UNARY_H
#include "cpu/strided.h"
#include "cpu/vector_math.h"

#define result float
#define real float
#include "ops/elementwise/unary_body.h"
#define result double
#define real double
#include "ops/elementwise/unary_body.h"
#define result int64_t
#define real int64_t
#include "ops/elementwise/unary_body.h"
#define result uint8_t
#define real float
#include "ops/elementwise/unary_body.h"
#define result uint8_t
#define real double
#include "ops/elementwise/unary_body.h"
#define result uint8_t
#define real int64_t
#include "ops/elementwise/unary_body.h"

/* R result type, T type of the operand, E an expression of a, and of arg where there is one */
#define UN_(CLONES, name, R, T, E)                                                     \
  AMP_INLINE R name##_value(T a, const void *arg) { return (R)(E); }                   \
  static CLONES void name(int64_t n, void *const *p, unsigned scalar, const void *arg) \
  {                                                                                    \
    unary_loop_##R##_##T(name##_value, n, p, arg);                                     \
  }
#define UNF(name, E) UN_(AMP_CLONES, name, float, float, E)
#define UND(name, E) UN_(AMP_CLONES_WIDE, name, double, double, E)
#define UNI(name, E) UN_(AMP_CLONES_WIDE, name, int64_t, int64_t, E)
#define UN_PLAIN(name, T, E)                                                    \
  AMP_INLINE T name##_value(T a, const void *arg) { return E; }                 \
  static void name(int64_t n, void *const *p, unsigned scalar, const void *arg) \
  {                                                                             \
    unary_plain_##T##_##T(name##_value, n, p, arg);                             \
  }

static inline int run1(amp_call *call, const amp_loop_fn *loops, int cls, int out_cls, int cost, const void *arg)
{
  amp_tensor *tensors[2] = { call->out[0], call->in[0] };
  const uint8_t classes[2] = { (uint8_t)out_cls, (uint8_t)cls };
  amp_loop loop = { loops[cls], arg, 1, 0, (uint16_t)cost };
  amp__elementwise(&loop, 2, tensors, classes);
  return 0;
}

/* Class of a float result; integers come in as float32 */
static inline int float_class(amp_call *call)
{
  int cls = amp__class_of(call->out[0]->dtype, call->in, 1);
  AMP_ASSERT(cls == AMP_C_F32 || cls == AMP_C_F64 || cls == AMP_C_I64);
  return cls == AMP_C_I64 ? AMP_C_F32 : cls;
}

#define FLOAT2(name, cost, EF, ED)                                                  \
  UNF(name##_f, EF) UN_PLAIN(name##_d, double, ED) int amp__cpu_##name(amp_call *c) \
  {                                                                                 \
    static const amp_loop_fn loops[2] = { name##_f, name##_d };                     \
    int cls = float_class(c);                                                       \
    return run1(c, loops, cls, cls, cost, NULL);                                    \
  }

/* Loops of float32 and float64 that slopes are made of (ops/elementwise/function_slope.c): result and
** operand dense, not the same; polygamma's takes its order, an int */
extern const amp_loop_fn amp__exp_loops[2], amp__sin_loops[2], amp__cos_loops[2], amp__sinh_loops[2],
    amp__cosh_loops[2], amp__digamma_loops[2], amp__polygamma_loops[2];

#endif
