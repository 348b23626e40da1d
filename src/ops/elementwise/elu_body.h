/*
** ops/elementwise/elu_body.h: the gradient of elu and its kin, which may be one value, as behind a sum. The includer
** defines ELU, the function's name, CLONES, real, FIELD of the settings, SLOPE_BELOW, an expression of b, by, below and
** least, and UNROLL where the loop is unrolled; all is undefined at the end.
*/

static CLONES void ELU(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  real *out = operand[0];
  const real *grad = operand[1], *input = operand[2], *setting = ((const settings *)arg)->FIELD;
  const real above = setting[0], below = setting[1], by = setting[2], least = setting[3];
  (void)by;
  (void)least;
  if (scalar & 2) {
    const real a = *grad;
    AMP_IVDEP
#ifdef UNROLL
#pragma GCC unroll 2
#endif
    for (int64_t i = 0; i < n; i++) {
      const real b = input[i], e = SLOPE_BELOW;
      out[i] = a * (b > 0 ? above : e);
    }
  } else {
    AMP_IVDEP
#ifdef UNROLL
#pragma GCC unroll 2
#endif
    for (int64_t i = 0; i < n; i++) {
      const real a = grad[i], b = input[i], e = SLOPE_BELOW;
      out[i] = a * (b > 0 ? above : e);
    }
  }
}
#undef ELU
#undef CLONES
#undef real
#undef FIELD
#undef SLOPE_BELOW
#undef UNROLL
