/*
** cpu_binary.h: what kernels of two tensors are written with: a loop as one
** expression of `a` and `b` in three shapes (both dense, or either one value;
** long expressions dense only), a class each, and the call of the one that the
** operands ask for.
*/
#ifndef AMP_CPU_BINARY_H
#define AMP_CPU_BINARY_H
#include "cpu_iter.h"
#include "cpu_math.h"

/* R result type, T type of both operands, E an expression of a and b; alpha from arg where used */
#define BIN_(CLONES, name, R, T, E) \
static CLONES void name(int64_t n, void *const *p, unsigned scalar, const void *arg) \
{ \
  R *o = p[0]; const T *x = p[1], *y = p[2]; (void)arg; \
  if ((scalar & 6) == 6) { const T a = *x, b = *y; (void)b; const R r = (R)(E); for (int64_t i = 0; i < n; i++) o[i] = r; } \
  else if (scalar & 4) { const T b = *y; (void)b; AMP_IVDEP for (int64_t i = 0; i < n; i++) { const T a = x[i]; o[i] = (R)(E); } } \
  else if (scalar & 2) { const T a = *x; AMP_IVDEP for (int64_t i = 0; i < n; i++) { const T b = y[i]; (void)b; o[i] = (R)(E); } } \
  else { AMP_IVDEP for (int64_t i = 0; i < n; i++) { const T a = x[i], b = y[i]; (void)b; o[i] = (R)(E); } } \
}
#define BINF(name, E) BIN_(AMP_CLONES, name, float, float, E)
#define BIND(name, E) BIN_(AMP_CLONES_WIDE, name, double, double, E)
#define BIN3(name, EF, ED, EI) BINF(name##_f, EF) BIND(name##_d, ED) BIN_(AMP_CLONES_WIDE, name##_i, int64_t, int64_t, EI) \
static const amp_loop_fn name##_loops[3] = { name##_f, name##_d, name##_i };
#define CMP3(name, E) BIN_(AMP_CLONES, name##_f, uint8_t, float, E) BIN_(AMP_CLONES_WIDE, name##_d, uint8_t, double, E) \
BIN_(AMP_CLONES_WIDE, name##_i, uint8_t, int64_t, E) \
static const amp_loop_fn name##_loops[3] = { name##_f, name##_d, name##_i };

/* E is long: one shape, dense, because copies of it for single values would take space and save nothing (run2_dense) */
#define BINF_DENSE(name, E) \
static AMP_CLONES void name(int64_t n, void *const *p, unsigned scalar, const void *arg) \
{ \
  float *o = p[0]; const float *x = p[1], *y = p[2]; (void)arg; \
  AMP_IVDEP for (int64_t i = 0; i < n; i++) { const float a = x[i], b = y[i]; o[i] = E; } \
}

/* no vectors to be had here: library calls and divisions */
#define BIN_PLAIN(name, T, E) \
static void name(int64_t n, void *const *p, unsigned scalar, const void *arg) \
{ \
  T *o = p[0]; const T *x = p[1], *y = p[2]; (void)arg; \
  int64_t sa = !(scalar & 2), sb = !(scalar & 4); \
  for (int64_t i = 0; i < n; i++) { const T a = x[i * sa], b = y[i * sb]; o[i] = E; } \
}
static inline int run2_as(amp_call *c, const amp_loop_fn *loops, int cls, int cost, uint8_t scalar, const void *arg)
{
  amp_tensor *t[3] = { c->out[0], c->in[0], c->in[1] };
  const uint8_t k[3] = { (uint8_t)cls, (uint8_t)cls, (uint8_t)cls };
  amp_loop l = { loops[cls], arg, 1, scalar, (uint16_t)cost };
  amp__elementwise(&l, 3, t, k);
  return 0;
}
static inline int run2(amp_call *c, const amp_loop_fn *loops, int cls, int cost, const void *arg) { return run2_as(c, loops, cls, cost, 6, arg); }
/* for loops that take no single values: the engine repeats them */
static inline int run2_dense(amp_call *c, const amp_loop_fn *loops, int cls, int cost) { return run2_as(c, loops, cls, cost, 0, NULL); }

static inline int class_of2(amp_call *c)
{
  const amp_tensor *a = c->in[0], *b = c->in[1];
  int d = c->out[0]->dtype;
  if (amp_likely(a->dtype == d && (b->dtype == d || (b->flags & AMP_T_NUMBER)) && amp__is_float(d))) return amp__dtype_class[d];
  return amp__class_of(d, c->in, 2);
}

/* fmod of floats, results first, dense (cpu_binary.c) */
void amp__fmod_loop(int64_t n, void *const *p);

#endif
