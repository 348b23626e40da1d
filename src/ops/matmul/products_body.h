/*
** ops/matmul/products_body.h: the loops of cross and addr; included by ops/matmul/products.c
** once for each `number`, computed in `wide`, with CLONES for the processors and NAME for
** the names.
*/

/* p: out, and the factors of out = a b - c d */
ROUND_BOTH CLONES static void NAME(cross)(int64_t count, void *const *p, unsigned scalar, const void *arg)
{
  ROUND_BOTH_INSIDE
  number *o = p[0];
  const number *a = p[1], *b = p[2], *c = p[3], *d = p[4];
  (void)scalar;
  (void)arg;
  AMP_IVDEP
  for (int64_t i = 0; i < count; i++) o[i] = (number)((wide)a[i] * (wide)b[i] - (wide)c[i] * (wide)d[i]);
}

/* p: out, input, vec1, vec2; vec1 may be one number. beta 0 leaves input out, whatever it holds. */
CLONES static void NAME(addr)(int64_t count, void *const *p, unsigned scalar, const void *arg)
{
  const coefficients *k = arg;
  number *o = p[0];
  const number *x = p[1], *v = p[2], *w = p[3];
  wide beta = (wide)k->NAME(beta), alpha = (wide)k->NAME(alpha);
  if (scalar & 4) {
    wide a = alpha * (wide)*v;
    if (beta == 0) {
      AMP_IVDEP
      for (int64_t i = 0; i < count; i++) o[i] = (number)(a * (wide)w[i]);
    } else {
      AMP_IVDEP
      for (int64_t i = 0; i < count; i++) o[i] = (number)(beta * (wide)x[i] + a * (wide)w[i]);
    }
  } else if (beta == 0) {
    AMP_IVDEP
    for (int64_t i = 0; i < count; i++) o[i] = (number)(alpha * (wide)v[i] * (wide)w[i]);
  } else {
    AMP_IVDEP
    for (int64_t i = 0; i < count; i++) o[i] = (number)(beta * (wide)x[i] + alpha * (wide)v[i] * (wide)w[i]);
  }
}

#undef number
#undef wide
#undef CLONES
#undef NAME
