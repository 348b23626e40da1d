/*
** ops/elementwise/clamp_body.h: values limited to [low, high]. A NaN element stays, a NaN bound makes NaN; where low is
** above high, high. The includer defines real, CLONES, CLAMP, the function's name, and LOW and HIGH, fields of
** clamp_arg; all is undefined at the end.
*/

static CLONES void CLAMP(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  real *out = operand[0];
  const real *input = operand[1], low = ((const clamp_arg *)arg)->LOW, high = ((const clamp_arg *)arg)->HIGH;
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) {
    const real a = input[i], b = a < low ? low : a;
    out[i] = b > high ? high : b;
  }
}
#undef real
#undef CLONES
#undef CLAMP
#undef LOW
#undef HIGH
