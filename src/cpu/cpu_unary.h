/*
** cpu_unary.h: what kernels of one tensor are written with: a loop as one
** expression of `a`, a class each, and the call of the one that the operand
** asks for.
*/
#ifndef AMP_CPU_UNARY_H
#define AMP_CPU_UNARY_H
#include "cpu_iter.h"
#include "cpu_math.h"

#define UN_(CLONES, name, R, T, E) \
static CLONES void name(int64_t n, void *const *p, unsigned scalar, const void *arg) \
{ \
  R *o = p[0]; const T *x = p[1]; (void)arg; \
  AMP_IVDEP for (int64_t i = 0; i < n; i++) { const T a = x[i]; (void)a; o[i] = (R)(E); } \
}
#define UNF(name, E) UN_(AMP_CLONES, name, float, float, E)
#define UND(name, E) UN_(AMP_CLONES_WIDE, name, double, double, E)
#define UNI(name, E) UN_(AMP_CLONES_WIDE, name, int64_t, int64_t, E)
#define UN_PLAIN(name, T, E) \
static void name(int64_t n, void *const *p, unsigned scalar, const void *arg) \
{ \
  T *o = p[0]; const T *x = p[1]; (void)arg; \
  for (int64_t i = 0; i < n; i++) { const T a = x[i]; o[i] = E; } \
}

static inline int run1(amp_call *c, const amp_loop_fn *loops, int cls, int out_cls, int cost, const void *arg)
{
  amp_tensor *t[2] = { c->out[0], c->in[0] };
  const uint8_t k[2] = { (uint8_t)out_cls, (uint8_t)cls };
  amp_loop l = { loops[cls], arg, 1, 0, (uint16_t)cost };
  amp__elementwise(&l, 2, t, k);
  return 0;
}

/* Class of a float result; integers come in as float32 */
static inline int float_class(amp_call *c)
{
  int cls = amp__class_of(c->out[0]->dtype, c->in, 1);
  return cls == AMP_C_I64 ? AMP_C_F32 : cls;
}

#define FLOAT2(name, cost, EF, ED) \
UNF(name##_f, EF) UN_PLAIN(name##_d, double, ED) \
int amp__cpu_##name(amp_call *c) \
{ \
  static const amp_loop_fn loops[2] = { name##_f, name##_d }; \
  int cls = float_class(c); \
  return run1(c, loops, cls, cls, cost, NULL); \
}

#endif
