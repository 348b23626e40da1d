/*
** ops/elementwise/where_body.h: choosing by a mask. The includer defines real and NAME, which are undefined at the end.
*/

/* out = mask ? chosen : other */
static AMP_CLONES_WIDE void NAME(where)(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  real *out = operand[0];
  const uint8_t *mask = operand[1];
  const real *chosen = operand[2], *other = operand[3];
  (void)arg;
  if (scalar & 8) {
    const real b = *other;
    if (scalar & 4) {
      const real a = *chosen;
      AMP_IVDEP
      for (int64_t i = 0; i < n; i++) out[i] = mask[i] ? a : b;
    } else {
      AMP_IVDEP
      for (int64_t i = 0; i < n; i++) {
        const real a = chosen[i];
        out[i] = mask[i] ? a : b;
      }
    }
  } else if (scalar & 4) {
    const real a = *chosen;
    AMP_IVDEP
    for (int64_t i = 0; i < n; i++) {
      const real b = other[i];
      out[i] = mask[i] ? a : b;
    }
  } else {
    AMP_IVDEP
    for (int64_t i = 0; i < n; i++) {
      const real a = chosen[i], b = other[i];
      out[i] = mask[i] ? a : b;
    }
  }
}

/* out = mask ? *arg : input */
static AMP_CLONES_WIDE void NAME(masked)(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  real *out = operand[0];
  const real *input = operand[1];
  const uint8_t *mask = operand[2];
  const real value = *(const real *)arg;
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) {
    const real a = input[i];
    out[i] = mask[i] ? value : a;
  }
}

#undef real
#undef NAME
