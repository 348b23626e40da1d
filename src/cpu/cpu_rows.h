/*
** cpu_rows.h: sums and maps over contiguous runs, in float and in double, that
** normalisation, softmax and losses are made of. Runs are expected to sit in
** the first-level cache; callers combine their sums in double.
*/
#ifndef AMP_CPU_ROWS_H
#define AMP_CPU_ROWS_H
#include "cpu_nn.h"

#define AMP_ROWS(T, S)                                                                              \
  T amp__row_sum_##S(const T *x, int64_t n);                                                        \
  T amp__row_dev_##S(const T *x, T mean, int64_t n);             /* sum of (x - mean)^2 */           \
  void amp__row_sums_##S(const T *g, const T *x, T mean, int64_t n, T *sum2);  /* of g, of g (x - mean) */ \
  void amp__row_affine_##S(T *y, const T *x, T a, T b, int64_t n);             /* a x + b */         \
  void amp__row_affine2_##S(T *y, const T *g, const T *x, T a, T b, T c, int64_t n); /* a g + b x + c */ \
  void amp__row_moments_##S(const T *x, T m, int64_t n, T *sum2);              /* of x - m, of its square */ \
  void amp__row_centre_##S(T *y, const T *x, T m, T a, T b, int64_t n);        /* a (x - m) + b */   \
  void amp__row_centre2_##S(T *y, const T *g, const T *x, T m, T r, T a, T b, T c, int64_t n); /* a g + b (x - m) r + c */ \
  void amp__row_shift_##S(T *y, const T *x, T a, T b, int64_t n);              /* (x - a) - b */     \
  T amp__row_max_##S(const T *x, int64_t n);                     /* NaN ignored; n > 0 */            \
  T amp__row_exp_##S(T *y, const T *x, T m, int64_t n);          /* y = exp(x - m) (y NULL: not kept), its sum */
AMP_ROWS(float, f32)
AMP_ROWS(double, f64)
#undef AMP_ROWS

#endif
