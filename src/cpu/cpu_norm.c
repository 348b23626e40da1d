/*
** cpu_norm.c: loops over runs of channels (cpu_norm.h): a column of each lane's
** values goes through the vector unit side by side with its neighbours.
*/
#include "cpu_norm.h"

/* -- Layout ------------------------------------------------------------------------------- */

bool amp__norm_strides(const amp_tensor *t, const int64_t *st, int64_t *n, int64_t *c, int64_t *s) {
  *n = t->size[0] == 1 ? 0 : st[0];
  *c = t->ndim > 1 ? st[1] : 1;
  int64_t run = 1, step = 1; /* a stride may be 0 */
  bool set = false;
  for (int d = t->ndim - 1; d >= 2; d--) {
    if (t->size[d] == 1) continue;
    if (!set) { step = st[d]; set = true; }
    else if (st[d] != step * run) return false;
    run *= t->size[d];
  }
  *s = step;
  return true;
}

/* -- Lanes --------------------------------------------------------------------------------- */

enum { LANE = NORM_LANE };

#define LANES(T, S)                                                                                 \
  AMP_INLINE void stats_##S(const T *x, int64_t ld, int64_t rows, int64_t n, T *mean, T *m2) {      \
    T s[LANE], q[LANE];                                                                             \
    for (int64_t j = 0; j < n; j++) s[j] = q[j] = 0;                                                \
    for (int64_t i = 0; i < rows; i++) for (int64_t j = 0; j < n; j++) s[j] += x[i * ld + j];       \
    for (int64_t j = 0; j < n; j++) s[j] /= (T)rows;                                                \
    for (int64_t i = 0; i < rows; i++) for (int64_t j = 0; j < n; j++) { T d = x[i * ld + j] - s[j]; q[j] += d * d; } \
    for (int64_t j = 0; j < n; j++) { mean[j] = s[j]; m2[j] = q[j]; }                               \
  }                                                                                                 \
  AMP_CLONES_OF(T) void amp__lane_stats_##S(const T *x, int64_t ld, int64_t rows, int64_t n, T *mean, T *m2) { \
    if (n == LANE) stats_##S(x, ld, rows, LANE, mean, m2); /* a number the compiler knows keeps sums in registers */ \
    else stats_##S(x, ld, rows, n, mean, m2);                                                       \
  }                                                                                                 \
  /* norm_join for every channel: the counts are alike */                                           \
  AMP_CLONES_OF(T) void amp__lane_join_##S(double *restrict all, double *restrict dev, const T *restrict mean, const T *restrict m2, int64_t nc, \
                                       double before, double n) {                                   \
    double share = n / (before + n), cross = before * share;                                        \
    for (int64_t j = 0; j < nc; j++) {                                                              \
      double d = mean[j] - all[j];                                                                  \
      dev[j] += m2[j] + d * d * cross;                                                              \
      all[j] += d * share;                                                                          \
    }                                                                                               \
  }                                                                                                 \
  AMP_CLONES_OF(T) void amp__lane_affine_##S(T *y, int64_t yld, const T *x, int64_t ld, int64_t rows, int64_t n, const T *a, const T *b) { \
    for (int64_t i = 0; i < rows; i++)                                                              \
      AMP_IVDEP for (int64_t j = 0; j < n; j++) y[i * yld + j] = a[j] * x[i * ld + j] + b[j];       \
  }                                                                                                 \
  AMP_INLINE void sums_##S(const T *g, int64_t gld, const T *x, int64_t ld, int64_t rows, int64_t n, const T *mean, T *sg, T *sx) { \
    T a[LANE], b[LANE];                                                                             \
    for (int64_t j = 0; j < n; j++) a[j] = b[j] = 0;                                                \
    for (int64_t i = 0; i < rows; i++)                                                              \
      for (int64_t j = 0; j < n; j++) { T u = g[i * gld + j]; a[j] += u; b[j] += u * (x[i * ld + j] - mean[j]); } \
    for (int64_t j = 0; j < n; j++) { sg[j] = a[j]; sx[j] = b[j]; }                                 \
  }                                                                                                 \
  AMP_CLONES_OF(T) void amp__lane_sums_##S(const T *g, int64_t gld, const T *x, int64_t ld, int64_t rows, int64_t n, const T *mean, T *sg, T *sx) { \
    if (n == LANE) sums_##S(g, gld, x, ld, rows, LANE, mean, sg, sx);                               \
    else sums_##S(g, gld, x, ld, rows, n, mean, sg, sx);                                            \
  }                                                                                                 \
  AMP_CLONES_OF(T) void amp__lane_affine2_##S(T *y, int64_t yld, const T *g, int64_t gld, const T *x, int64_t ld, int64_t rows, int64_t n, \
                                          const T *a, const T *b, const T *c) {                     \
    for (int64_t i = 0; i < rows; i++)                                                              \
      AMP_IVDEP for (int64_t j = 0; j < n; j++) y[i * yld + j] = a[j] * g[i * gld + j] + (b[j] * x[i * ld + j] + c[j]); \
  }
LANES(float, f32)
LANES(double, f64)
