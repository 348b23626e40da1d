/*
** ops/elementwise/ternary_body.h: the loop over three operands and a number. `value` is a constant, so that it is
** inlined. The includer defines real and NAME, which are undefined at the end.
*/

AMP_INLINE void NAME(ternary_loop)(real (*value)(real x, real a, real b, real v), int64_t n, void *const *operand,
                                   real v)
{
  real *out = operand[0];
  const real *input = operand[1], *left = operand[2], *right = operand[3];
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) out[i] = value(input[i], left[i], right[i], v);
}

#undef real
#undef CLONES
#undef NAME
