/*
** ops/elementwise/activation_body.h: a loop over one operand with up to three settings, for one type (cpu/each_real.h).
*/

/* A loop that keeps its settings in registers: read through a pointer they would stop it from being vector code. */
AMP_INLINE void NAME(settings_loop)(real (*value)(real a, real first, real second, real third), int64_t n,
                                    void *const *operand, const real *settings)
{
  real *out = operand[0];
  const real *input = operand[1], first = settings[0], second = settings[1], third = settings[2];
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) out[i] = value(input[i], first, second, third);
}
