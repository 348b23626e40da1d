/*
** ops/elementwise/pair_slope_body.h: slopes of pairs that other ops' loops make, for one type. The includer defines
** real, NAME, CLONES, WHICH of the loops, BY of the settings and LOG_OF, which are undefined at the end.
*/

/* out = by (g (value factor)); factor NULL: 1 */
CLONES static void NAME(product)(int64_t n, real *restrict out, const real *restrict grad, const real *restrict value,
                                 const real *restrict factor, real by)
{
  if (factor)
    for (int64_t i = 0; i < n; i++) out[i] = by * (grad[i] * (value[i] * factor[i]));
  else
    for (int64_t i = 0; i < n; i++) out[i] = by * (grad[i] * value[i]);
}
/* out = by (g (power log(a))), power being that of a: 0 where a is 0 and its power finite */
CLONES static void NAME(pow_exponent)(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  real *out = operand[0];
  const real *grad = operand[1], *a = operand[2], *power = operand[3], by = ((const settings *)arg)->BY;
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) {
    const real value = power[i] * LOG_OF(a[i]);
    out[i] = by * (grad[i] * (((a[i] == 0) & (power[i] - power[i] == 0)) ? 0 : value));
  }
}

CLONES static bool NAME(differ)(int64_t n, const real *value)
{
  int other = 0;
  for (int64_t i = 0; i < n; i++) other |= value[i] != value[0];
  return other;
}
CLONES static void NAME(lowered)(int64_t n, real *restrict base, real *restrict less, const real *a, const real *b)
{
  for (int64_t i = 0; i < n; i++) {
    base[i] = b[i] == 0 ? 1 : a[i];
    less[i] = b[i] - 1;
  }
}

/* e x^(e - 1), 0 where e is 0 and not 0 times infinity */
static void NAME(pow_base)(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  real value[AMP_CHUNK], base[AMP_CHUNK], less[AMP_CHUNK];
  for (int64_t first = 0; first < n; first += AMP_CHUNK) {
    const int64_t count = n - first < AMP_CHUNK ? n - first : AMP_CHUNK;
    const real *a = (const real *)operand[2] + first, *b = (const real *)operand[3] + first;
    const amp_loop_fn *quick = b[0] == 0 || NAME(differ)(count, b) ? NULL : amp__pow_of(b[0] - 1, WHICH);
    if (quick) {
      void *part[3] = { value, (void *)a, (void *)b };
      quick[WHICH](count, part, 0, NULL);
    } else {
      void *part[3] = { value, base, less };
      NAME(lowered)(count, base, less, a, b);
      amp__pow_loops[WHICH](count, part, 0, NULL);
    }
    NAME(product)
    (count, (real *)operand[0] + first, (const real *)operand[1] + first, value, b, ((const settings *)arg)->BY);
  }
}

/* -floor(a / b) */
static void NAME(mod)(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  real value[AMP_CHUNK];
  for (int64_t first = 0; first < n; first += AMP_CHUNK) {
    const int64_t count = n - first < AMP_CHUNK ? n - first : AMP_CHUNK;
    void *part[3] = { value, (real *)operand[2] + first, (real *)operand[3] + first };
    amp__floor_divide_loops[WHICH](count, part, 0, NULL);
    NAME(product)
    (count, (real *)operand[0] + first, (const real *)operand[1] + first, value, NULL, -((const settings *)arg)->BY);
  }
}

/* a digamma(b) */
static void NAME(gamma)(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  real value[AMP_CHUNK];
  for (int64_t first = 0; first < n; first += AMP_CHUNK) {
    const int64_t count = n - first < AMP_CHUNK ? n - first : AMP_CHUNK;
    void *part[2] = { value, (real *)operand[3] + first };
    amp__digamma_loops[WHICH](count, part, 0, NULL);
    NAME(product)
    (count, (real *)operand[0] + first, (const real *)operand[1] + first, value, (const real *)operand[2] + first,
     ((const settings *)arg)->BY);
  }
}
#undef real
#undef NAME
#undef WHICH
#undef BY
#undef CLONES
#undef LOG_OF
