/*
** cpu/rows_list.h: the functions of cpu/rows.h of one type, which includes it for float and
** for double. The includer defines real and NAME(x), which are undefined at the end.
*/

real NAME(amp__row_sum)(const real *x, int64_t count);
real NAME(amp__row_dev)(const real *x, real mean, int64_t count); /* sum of (x - mean)^2 */
void NAME(amp__row_sums)(const real *g, const real *x, real mean, int64_t count,
                         real *sum2);                                              /* of g, of g (x - mean) */
void NAME(amp__row_affine)(real *y, const real *x, real a, real b, int64_t count); /* a x + b */
void NAME(amp__row_affine2)(real *y, const real *g, const real *x, real a, real b, real c,
                            int64_t count);                                       /* a g + b x + c */
void NAME(amp__row_moments)(const real *x, real mean, int64_t count, real *sum2); /* of x - mean, of its square */
void NAME(amp__row_centre)(real *y, const real *x, real mean, real a, real b, int64_t count); /* a (x - mean) + b */
void NAME(amp__row_centre2)(real *y, const real *g, const real *x, real mean, real r, real a, real b, real c,
                            int64_t count);                                       /* a g + b (x - mean) r + c */
void NAME(amp__row_shift)(real *y, const real *x, real a, real b, int64_t count); /* (x - a) - b */
real NAME(amp__row_max)(const real *x, int64_t count);                            /* NaN ignored; count > 0 */
real NAME(amp__row_exp)(real *y, const real *x, real mean,
                        int64_t count); /* y = exp(x - mean) (y NULL: not kept), its sum */

#undef real
#undef NAME
