/*
** cpu_products.c: rows cross and addr, products without a sum over more than two.
**
** cross is the vector product along a dimension of size 3. Each component is one
** element-wise pass over the other dimensions:
**
**   out[0] = a[1] b[2] - a[2] b[1]     and so on, indices turning
**
** The two products are rounded alike, so a x a is exactly 0. addr is
** beta * input + alpha * outer(vec1, vec2) in one pass.
*/
#include "cpu_iter.h"
#include "cpu_math.h"

#ifdef __clang__
#define ROUND_BOTH
#define ROUND_BOTH_INSIDE _Pragma("clang fp contract(off)")
#else
#define ROUND_BOTH __attribute__((optimize("fp-contract=off")))
#define ROUND_BOTH_INSIDE
#endif

#define CROSS(CLONES, name, T, E)                                                     \
  ROUND_BOTH CLONES                                                                   \
  static void name(int64_t n, void *const *p, unsigned scalar, const void *arg) {     \
    ROUND_BOTH_INSIDE                                                                 \
    T *o = p[0];                                                                      \
    const T *a = p[1], *b = p[2], *c = p[3], *d = p[4];                               \
    (void)scalar; (void)arg;                                                          \
    AMP_IVDEP for (int64_t i = 0; i < n; i++) o[i] = (T)(E);                          \
  }
CROSS(AMP_CLONES, cross_f, float, a[i] * b[i] - c[i] * d[i])
CROSS(AMP_CLONES_WIDE, cross_d, double, a[i] * b[i] - c[i] * d[i])
CROSS(AMP_CLONES_WIDE, cross_i, int64_t, (uint64_t)a[i] * (uint64_t)b[i] - (uint64_t)c[i] * (uint64_t)d[i])

/* t's component k along dimension dim of the result, as an operand over the others */
static void component(amp_operand *o, const amp_tensor *t, int cls, const amp_tensor *result, int dim, int k) {
  amp__operand(o, t, cls, result->ndim, result->size);
  o->p += k * o->stride[dim] * amp__dtype_size[t->dtype];
  for (int d = dim; d < result->ndim - 1; d++) o->stride[d] = o->stride[d + 1];
}

int amp__cpu_cross(amp_call *c) {
  static const amp_loop_fn loops[3] = {cross_f, cross_d, cross_i};
  amp_tensor *a = c->in[0], *b = c->in[1], *out = c->out[0];
  int dim = (int)c->a[0].i, cls = amp__class_of(out->dtype, c->in, 2), n = 0;
  int64_t size[AMP_MAX_DIM];
  for (int d = 0; d < out->ndim; d++) if (d != dim) size[n++] = out->size[d];
  for (int k = 0; k < 3; k++) {
    int i = (k + 1) % 3, j = (k + 2) % 3;
    amp_operand o[5];
    amp_loop l = {loops[cls], NULL, 1, 0, 3};
    component(&o[0], out, cls, out, dim, k);
    component(&o[1], a, cls, out, dim, i);
    component(&o[2], b, cls, out, dim, j);
    component(&o[3], a, cls, out, dim, j);
    component(&o[4], b, cls, out, dim, i);
    amp__iterate(&l, n, size, 5, o);
  }
  return 0;
}

/* -- addr ------------------------------------------------------------------------ */

typedef struct coefficients { float bf, af; double bd, ad; int64_t bi, ai; } coefficients;

/* p: out, input, vec1, vec2; beta 0 leaves input out, whatever it holds */
#define ADDR(CLONES, name, T, U, B, A)                                                              \
  CLONES static void name(int64_t n, void *const *p, unsigned scalar, const void *arg) {            \
    const coefficients *k = arg;                                                                    \
    T *o = p[0];                                                                                    \
    const T *x = p[1], *v = p[2], *w = p[3];                                                        \
    U beta = (U)k->B, alpha = (U)k->A;                                                              \
    if (scalar & 4) {                                                                               \
      U a = alpha * (U)*v;                                                                          \
      if (beta == 0) { AMP_IVDEP for (int64_t i = 0; i < n; i++) o[i] = (T)(a * (U)w[i]); }         \
      else { AMP_IVDEP for (int64_t i = 0; i < n; i++) o[i] = (T)(beta * (U)x[i] + a * (U)w[i]); }  \
    } else if (beta == 0) { AMP_IVDEP for (int64_t i = 0; i < n; i++) o[i] = (T)(alpha * (U)v[i] * (U)w[i]); } \
    else { AMP_IVDEP for (int64_t i = 0; i < n; i++) o[i] = (T)(beta * (U)x[i] + alpha * (U)v[i] * (U)w[i]); } \
  }
ADDR(AMP_CLONES, addr_f, float, float, bf, af)
ADDR(AMP_CLONES_WIDE, addr_d, double, double, bd, ad)
ADDR(AMP_CLONES_WIDE, addr_i, int64_t, uint64_t, bi, ai)

int amp__cpu_addr(amp_call *c) {
  static const amp_loop_fn loops[3] = {addr_f, addr_d, addr_i};
  amp_tensor *out = c->out[0];
  double beta = c->a[0].f, alpha = c->a[1].f;
  int cls = amp__dtype_class[out->dtype];
  coefficients k = {.bd = beta, .ad = alpha};
  if (cls == AMP_C_I64) { k.bi = (int64_t)beta; k.ai = (int64_t)alpha; } /* the shape rule looked */
  else { k.bf = (float)beta; k.af = (float)alpha; }
  amp_loop l = {loops[cls], &k, 1, 4, 3};
  amp_operand o[4];
  for (int i = 0; i < 4; i++) amp__operand(&o[i], i ? c->in[i - 1] : out, cls, 2, out->size);
  o[2].stride[0] = o[2].stride[1]; /* vec1 runs along the rows */
  o[2].stride[1] = 0;
  amp__iterate(&l, 2, out->size, 4, o);
  return 0;
}
