/*
** ops/elementwise/binary.h: what kernels of two tensors are written with: a loop as one
** expression of `a` and `b` in three shapes (both dense, or either one value;
** long expressions dense only), a class each, and the call of the one that the
** operands ask for.
*/
#ifndef AMP_CPU_BINARY_H
#define AMP_CPU_BINARY_H
#include "cpu/strided.h"
#include "cpu/vector_math.h"

#define result float
#define real float
#include "ops/elementwise/binary_body.h"
#define result double
#define real double
#include "ops/elementwise/binary_body.h"
#define result int64_t
#define real int64_t
#include "ops/elementwise/binary_body.h"
#define result uint8_t
#define real float
#include "ops/elementwise/binary_body.h"
#define result uint8_t
#define real double
#include "ops/elementwise/binary_body.h"
#define result uint8_t
#define real int64_t
#include "ops/elementwise/binary_body.h"
#define result uint8_t
#define real uint8_t
#include "ops/elementwise/binary_body.h"

/* R result type, T type of both operands, E an expression of a and b; alpha from arg where used */
#define BIN_(CLONES, name, R, T, E)                                                    \
  AMP_INLINE R name##_value(T a, T b, const void *arg) { return (R)(E); }              \
  static CLONES void name(int64_t n, void *const *p, unsigned scalar, const void *arg) \
  {                                                                                    \
    binary_loop_##R##_##T(name##_value, n, p, scalar, arg);                            \
  }
#define BINF(name, E) BIN_(AMP_CLONES, name, float, float, E)
#define BIND(name, E) BIN_(AMP_CLONES_WIDE, name, double, double, E)
#define BIN3(name, EF, ED, EI)                          \
  BINF(name##_f, EF)                                    \
  BIND(name##_d, ED)                                    \
  BIN_(AMP_CLONES_WIDE, name##_i, int64_t, int64_t, EI) \
  static const amp_loop_fn name##_loops[3] = { name##_f, name##_d, name##_i };
#define CMP3(name, E)                                  \
  BIN_(AMP_CLONES, name##_f, uint8_t, float, E)        \
  BIN_(AMP_CLONES_WIDE, name##_d, uint8_t, double, E)  \
  BIN_(AMP_CLONES_WIDE, name##_i, uint8_t, int64_t, E) \
  static const amp_loop_fn name##_loops[3] = { name##_f, name##_d, name##_i };

/* E is long: one shape, dense, because copies of it for single values would take space and save nothing (run2_dense) */
#define BINF_DENSE(name, E)                                                                \
  AMP_INLINE float name##_value(float a, float b, const void *arg) { return E; }           \
  static AMP_CLONES void name(int64_t n, void *const *p, unsigned scalar, const void *arg) \
  {                                                                                        \
    binary_dense_float_float(name##_value, n, p, arg);                                     \
  }

/* no vectors to be had here: library calls and divisions */
#define BIN_PLAIN(name, T, E)                                                   \
  AMP_INLINE T name##_value(T a, T b, const void *arg) { return E; }            \
  static void name(int64_t n, void *const *p, unsigned scalar, const void *arg) \
  {                                                                             \
    binary_plain_##T##_##T(name##_value, n, p, scalar, arg);                    \
  }
static inline int run2_as(amp_call *call, const amp_loop_fn *loops, int cls, int cost, uint8_t scalar, const void *arg)
{
  amp_tensor *tensors[3] = { call->out[0], call->in[0], call->in[1] };
  const uint8_t classes[3] = { (uint8_t)cls, (uint8_t)cls, (uint8_t)cls };
  AMP_ASSERT(cls <= AMP_C_I64 && loops[cls] != NULL);
  amp_loop loop = { loops[cls], arg, 1, scalar, (uint16_t)cost };
  amp__elementwise(&loop, 3, tensors, classes);
  return 0;
}
static inline int run2(amp_call *call, const amp_loop_fn *loops, int cls, int cost, const void *arg)
{
  return run2_as(call, loops, cls, cost, 6, arg);
}
/* for loops that take no single values: the engine repeats them */
static inline int run2_dense(amp_call *call, const amp_loop_fn *loops, int cls, int cost)
{
  return run2_as(call, loops, cls, cost, 0, NULL);
}

static inline int class_of2(amp_call *call)
{
  const amp_tensor *left = call->in[0], *right = call->in[1];
  int dtype = call->out[0]->dtype;
  if (amp_likely(left->dtype == dtype && (right->dtype == dtype || (right->flags & AMP_T_NUMBER))
                 && amp__is_float(dtype)))
    return amp__dtype_class[dtype];
  return amp__class_of(dtype, call->in, 2);
}

/* fmod of floats, results first, dense (ops/elementwise/binary.c) */
void amp__fmod_loop(int64_t n, void *const *operand);

/* Loops of float32 and float64 that slopes are made of (ops/elementwise/pair_slope.c): dense, results first */
extern const amp_loop_fn amp__pow_loops[3], amp__floor_divide_loops[3];
const amp_loop_fn *amp__pow_of(double exponent,
                               int cls); /* loops for exponents that need no pow; NULL: none for this one */

#endif
