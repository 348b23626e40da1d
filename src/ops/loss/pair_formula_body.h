/*
** ops/loss/pair_formula_body.h: a loss of pairs and its gradient, for one type (ops/loss/pair_formula.h). A long
** slope stands once in the code, and is multiplied by its factors in a loop of its own; in double there are no
** vectors for it.
*/
#if LONG_FORMULA && REAL_BITS == 64
#define COPIES
#else
#define COPIES CLONES
#endif

COPIES static void NAME_(GLUE(FORMULA, _forward))(real *restrict y, const real *restrict xs, const real *restrict ts,
                                                  int64_t count, real p)
{
  (void)p;
  for (int64_t i = 0; i < count; i++) {
    real x = xs[i], t = ts[i], d = x - t;
    (void)d;
    y[i] = (VALUE);
  }
}

COPIES static void NAME_(GLUE(FORMULA, _backward))(real *restrict y, const real *restrict g, const real *restrict xs,
                                                   const real *restrict ts, int64_t count, real p, real scale)
{
  (void)p;
#if LONG_FORMULA
  for (int64_t i = 0; i < count; i++) {
    real x = xs[i], t = ts[i], d = x - t;
    (void)d;
    (void)x;
    y[i] = (SLOPE);
  }
  if (g)
    for (int64_t i = 0; i < count; i++) y[i] = scale * g[i] * y[i];
  else
    for (int64_t i = 0; i < count; i++) y[i] = scale * y[i];
#else
  if (g)
    for (int64_t i = 0; i < count; i++) {
      real x = xs[i], t = ts[i], d = x - t;
      (void)d;
      (void)x;
      y[i] = scale * g[i] * (SLOPE);
    }
  else
    for (int64_t i = 0; i < count; i++) {
      real x = xs[i], t = ts[i], d = x - t;
      (void)d;
      (void)x;
      y[i] = scale * (SLOPE);
    }
#endif
}
#undef COPIES
