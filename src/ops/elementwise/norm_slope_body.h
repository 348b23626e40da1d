/*
** ops/elementwise/norm_slope_body.h: the gradient of a euclidean norm, for one type (cpu/each_real.h).
*/

/* grad * (input / norm), dense: the quotient is never above 1, where grad / norm may be no number. A norm below the
** normal numbers is nothing to divide by. */
static CLONES void NAME(norm)(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  real *out = operand[0];
  const real *g = operand[1], *input = operand[2], *other = operand[3];
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) {
    const real a = g[i], b = input[i], c = other[i], q = b / (c < REAL_MIN ? 1 : c);
    out[i] = (c < REAL_MIN ? 0 : a) * q;
  }
}

/* grad / norm, for many elements each; *arg: some quotient is too small or too large to be exact */
static CLONES void NAME(ratio)(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  real *out = operand[0];
  const real *g = operand[1], *other = operand[2];
  int bad = 0;
  for (int64_t i = 0; i < n; i++) {
    const real c = other[i], a = c < REAL_MIN ? 0 : g[i], q = a / (c < REAL_MIN ? 1 : c), size = ABS_OF(q);
    bad |= ((a == 0 ? 1 : size >= REAL_MIN) & (size <= REAL_MAX)) ? 0 : 1;
    out[i] = q;
  }
  if (bad) __atomic_store_n((int *)arg, 1, __ATOMIC_RELAXED);
}

/* input * quotient, which may be one value */
static CLONES void NAME(times)(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  real *out = operand[0];
  const real *input = operand[1], *q = operand[2];
  if (scalar & 4) {
    const real b = *q;
    AMP_IVDEP
#pragma GCC unroll 2
    for (int64_t i = 0; i < n; i++) out[i] = input[i] * b;
  } else {
    AMP_IVDEP
#pragma GCC unroll 2
    for (int64_t i = 0; i < n; i++) out[i] = input[i] * q[i];
  }
}
