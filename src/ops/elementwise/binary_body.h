/*
** ops/elementwise/binary_body.h: loops over two operands, for operands of type `real` and results of type `result`,
** which are undefined at the end: binary_loop_uint8_t_float and so on. `value` is a constant, so that it is inlined.
*/
#define NAME__(name, r, t) name##_##r##_##t
#define NAME_(name, r, t) NAME__(name, r, t)
#define NAME(name) NAME_(name, result, real)

typedef result (*NAME(binary_value))(real a, real b, const void *arg);

AMP_INLINE void NAME(binary_loop)(NAME(binary_value) value, int64_t n, void *const *operand, unsigned scalar,
                                  const void *arg)
{
  result *out = operand[0];
  const real *left = operand[1], *right = operand[2];
  if ((scalar & 6) == 6) {
    const result r = value(*left, *right, arg);
    for (int64_t i = 0; i < n; i++) out[i] = r;
  } else if (scalar & 4) {
    const real b = *right;
    AMP_IVDEP
    for (int64_t i = 0; i < n; i++) out[i] = value(left[i], b, arg);
  } else if (scalar & 2) {
    const real a = *left;
    AMP_IVDEP
    for (int64_t i = 0; i < n; i++) out[i] = value(a, right[i], arg);
  } else {
    AMP_IVDEP
    for (int64_t i = 0; i < n; i++) out[i] = value(left[i], right[i], arg);
  }
}

/* Both operands are dense. */
AMP_INLINE void NAME(binary_dense)(NAME(binary_value) value, int64_t n, void *const *operand, const void *arg)
{
  result *out = operand[0];
  const real *left = operand[1], *right = operand[2];
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) out[i] = value(left[i], right[i], arg);
}

/* No vectors are to be had: library calls and divisions */
AMP_INLINE void NAME(binary_plain)(NAME(binary_value) value, int64_t n, void *const *operand, unsigned scalar,
                                   const void *arg)
{
  result *out = operand[0];
  const real *left = operand[1], *right = operand[2];
  int64_t left_step = !(scalar & 2), right_step = !(scalar & 4);
  for (int64_t i = 0; i < n; i++) out[i] = value(left[i * left_step], right[i * right_step], arg);
}

#undef NAME__
#undef NAME_
#undef NAME
#undef result
#undef real
