/*
** ops/elementwise/unary_body.h: loops over one operand, for operands of type `real` and results of type `result`, which
** are undefined at the end: unary_loop_uint8_t_float and so on. `value` is a constant, so that it is inlined.
*/
#define NAME__(name, r, t) name##_##r##_##t
#define NAME_(name, r, t) NAME__(name, r, t)
#define NAME(name) NAME_(name, result, real)

typedef result (*NAME(unary_value))(real a, const void *arg);

AMP_INLINE void NAME(unary_loop)(NAME(unary_value) value, int64_t n, void *const *operand, const void *arg)
{
  result *out = operand[0];
  const real *input = operand[1];
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) out[i] = value(input[i], arg);
}

/* No vectors are to be had: library calls and divisions */
AMP_INLINE void NAME(unary_plain)(NAME(unary_value) value, int64_t n, void *const *operand, const void *arg)
{
  result *out = operand[0];
  const real *input = operand[1];
  for (int64_t i = 0; i < n; i++) out[i] = value(input[i], arg);
}

#undef NAME__
#undef NAME_
#undef NAME
#undef result
#undef real
