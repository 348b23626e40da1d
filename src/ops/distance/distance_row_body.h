/*
** ops/distance/distance_row_body.h: one row against a panel, and the gradient of one distance, for one type
** (cpu/each_real.h).
*/

/* acc[j] takes feature f of x and of row j of a panel; kind is a constant */
AMP_INLINE void NAME(accumulate)(int kind, const real *x, const real *panel, int64_t features, real p, real *out)
{
  real acc[LANE];
  for (int j = 0; j < LANE; j++) acc[j] = 0;
  for (int64_t feature = 0; feature < features; feature++) {
    const real v = x[feature];
    AMP_IVDEP
    for (int j = 0; j < LANE; j++) {
      const real d = v - panel[feature * LANE + j], a = acc[j];
      acc[j] = kind == ZERO   ? a + (d != 0 ? 1 : 0)
               : kind == ONE  ? a + NAME(abs)(d)
               : kind == TWO  ? a + d * d
               : kind == MOST ? (NAME(abs)(d) > a || d != d ? NAME(abs)(d) : a)
                              : a + NAME(powabs)(d, p);
    }
  }
  for (int j = 0; j < LANE; j++) out[j] = acc[j];
}

CLONES static void NAME(zero)(const real *x, const real *panel, int64_t features, real p, real *out)
{
  NAME(accumulate)(ZERO, x, panel, features, p, out);
}

CLONES static void NAME(one)(const real *x, const real *panel, int64_t features, real p, real *out)
{
  NAME(accumulate)(ONE, x, panel, features, p, out);
}

CLONES static void NAME(two)(const real *x, const real *panel, int64_t features, real p, real *out)
{
  NAME(accumulate)(TWO, x, panel, features, p, out);
}

CLONES static void NAME(most)(const real *x, const real *panel, int64_t features, real p, real *out)
{
  NAME(accumulate)(MOST, x, panel, features, p, out);
}

CLONES static void NAME(power)(const real *x, const real *panel, int64_t features, real p, real *out)
{
  NAME(accumulate)(POWER, x, panel, features, p, out);
}

static void NAME(distances)(int kind, const real *x, const real *panel, int64_t features, real p, real *out,
                            int64_t from, int64_t count)
{
  real d[LANE];
  AMP_ASSERT(from >= 0 && from <= count && count <= LANE);
  AMP_ASSUME(kind >= ZERO && kind <= POWER);
  switch ((enum norm_kind)kind) {
  case ZERO: NAME(zero)(x, panel, features, p, d); break;
  case ONE: NAME(one)(x, panel, features, p, d); break;
  case TWO:
    NAME(two)(x, panel, features, p, d);
    for (int j = 0; j < LANE; j++) d[j] = (real)sqrt(d[j]);
    break;
  case MOST: NAME(most)(x, panel, features, p, d); break;
  case POWER:
    NAME(power)(x, panel, features, p, d);
    for (int64_t j = 0; j < LANE; j++) d[j] = (real)pow(d[j], 1 / (double)p);
  }
  memcpy(out, d + from, (size_t)(count - from) * sizeof(real));
}

/* rows of x as panels; lanes past the last row repeat it */
static void NAME(pack)(real *dst, const real *x, int64_t rows, int64_t features)
{
  for (int64_t r = 0; r < rows; r += LANE, dst += features * LANE)
    for (int64_t j = 0; j < LANE; j++) {
      const real *row = x + (r + j < rows ? r + j : rows - 1) * features;
      for (int64_t feature = 0; feature < features; feature++) dst[feature * LANE + j] = row[feature];
    }
}

/* gx += q sign(d) |d|^(p-1), d = x - z; y is the distance */
AMP_INLINE void NAME(pull)(int kind, real *restrict x_grad, const real *restrict x, const real *restrict z,
                           int64_t features, real factor, real y, real p)
{
  if (kind == TWO)
    for (int64_t feature = 0; feature < features; feature++) x_grad[feature] += factor * (x[feature] - z[feature]);
  else if (kind == ONE)
    for (int64_t feature = 0; feature < features; feature++) {
      real d = x[feature] - z[feature];
      x_grad[feature] += d > 0 ? factor : d < 0 ? -factor : d * factor;
    }
  else if (kind == MOST) {
    int64_t equal = 0;
    for (int64_t feature = 0; feature < features; feature++) equal += NAME(abs)(x[feature] - z[feature]) == y;
    factor /= (real)(equal ? equal : 1);
    for (int64_t feature = 0; feature < features; feature++) {
      real d = x[feature] - z[feature];
      x_grad[feature] += NAME(abs)(d) == y ? (d < 0 ? -factor : factor) : 0;
    }
  } else
    for (int64_t feature = 0; feature < features; feature++) {
      real d = x[feature] - z[feature], t = d == 0 ? 0 : factor * NAME(powabs)(d, p - 1);
      x_grad[feature] += d < 0 ? -t : t;
    }
}

AMP_INLINE real NAME(share)(int kind, real g, real y, real p)
{ /* what all features of a pair have in common */
  if (y == 0 || kind == ZERO) return 0;
  return kind == TWO ? g / y : kind == POWER ? (real)(g / pow(y, (double)p - 1)) : g;
}
