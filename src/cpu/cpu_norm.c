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

enum { LANE = NORM_LANE, HALF = LANE / 2 }; /* sums and squares of half a lane stay in registers */
#define MOST_f32 FLT_MAX
#define MOST_f64 DBL_MAX

/* In double, twice: once for the mean, once about it. Rare. */
#define AGAIN(T, S)                                                                                 \
  void amp__norm_again_##S(norm_stat *s, const T *x, int64_t n, double about) {                     \
    double sum = 0, m2 = 0;                                                                         \
    if (!isfinite(about)) about = x[0];                                                             \
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] - about;                                    \
    about += sum / (double)n;                                                                       \
    for (int64_t i = 0; i < n; i++) m2 += ((double)x[i] - about) * ((double)x[i] - about);          \
    norm_join(s, (double)n, about, m2);                                                             \
  }
AGAIN(float, f32)
AGAIN(double, f64)

#define LANES(T, S)                                                                                 \
  AMP_INLINE void stats_##S(const T *x, int64_t ld, int64_t rows, int64_t n, const T *about, T *sum, T *square) { \
    T s[HALF], q[HALF], m[HALF];                                                                    \
    for (int64_t j = 0; j < n; j++) { s[j] = q[j] = 0; m[j] = about[j]; }                           \
    for (int64_t i = 0; i < rows; i++)                                                              \
      for (int64_t j = 0; j < n; j++) { T d = x[i * ld + j] - m[j]; s[j] += d; q[j] += d * d; }     \
    for (int64_t j = 0; j < n; j++) { sum[j] = s[j]; square[j] = q[j]; }                            \
  }                                                                                                 \
  AMP_CLONES_OF(T) void amp__lane_stats_##S(const T *x, int64_t ld, int64_t rows, int64_t nc, const T *about, double *restrict sum, \
                                            double *restrict square, bool slow) {                   \
    T s[LANE], q[LANE];                                                                             \
    for (int64_t j = 0, n; j < nc && !slow; j += n) {                                               \
      n = nc - j < HALF ? nc - j : HALF;                                                            \
      if (n == HALF) stats_##S(x + j, ld, rows, HALF, about + j, s + j, q + j); /* a number the compiler knows keeps sums in registers */ \
      else stats_##S(x + j, ld, rows, n, about + j, s + j, q + j);                                  \
    }                                                                                               \
    if (!slow) for (int64_t j = 0; j < nc; j++) { sum[j] += s[j]; square[j] += q[j]; }              \
    else for (int64_t i = 0; i < rows; i++) for (int64_t j = 0; j < nc; j++) {                      \
      double d = (double)x[i * ld + j] - (double)about[j];                                          \
      sum[j] += d;                                                                                  \
      square[j] += d * d;                                                                           \
    }                                                                                               \
  }                                                                                                 \
  AMP_CLONES_OF(T) int amp__lane_settle_##S(int pass, double n, int64_t nc, T *restrict about, double *restrict sum, double *restrict square) { \
    int64_t far = 0, lost = 0;                                                                      \
    double each = 1 / n;                                                                            \
    for (int64_t j = 0; j < nc; j++) {                                                              \
      double step = sum[j] * each, m2 = square[j] - step * sum[j];                                  \
      far += step * sum[j] > 16 * m2;                                                               \
      lost += !(square[j] <= MOST_##S);                                                             \
      sum[j] = (double)about[j] + step;                                                             \
      square[j] = m2 < 0 ? 0 : m2;                                                                  \
    }                                                                                               \
    if (pass == 0 && lost) return 2;                                                                \
    if (pass > 0 || !far) return 3;                                                                 \
    for (int64_t j = 0; j < nc; j++) about[j] = (T)sum[j];                                          \
    return 1;                                                                                       \
  }                                                                                                 \
  AMP_CLONES_OF(T) void amp__lane_centre_##S(T *y, int64_t yld, const T *x, int64_t ld, int64_t rows, int64_t n, const T *m, const T *a, const T *b) { \
    for (int64_t i = 0; i < rows; i++)                                                              \
      AMP_IVDEP for (int64_t j = 0; j < n; j++) y[i * yld + j] = a[j] * (x[i * ld + j] - m[j]) + b[j]; \
  }                                                                                                 \
  AMP_CLONES_OF(T) void amp__lane_centre2_##S(T *y, int64_t yld, const T *g, int64_t gld, const T *x, int64_t ld, int64_t rows, int64_t n, \
                                          const T *m, const T *r, const T *a, const T *b, const T *c) { \
    for (int64_t i = 0; i < rows; i++)                                                              \
      AMP_IVDEP for (int64_t j = 0; j < n; j++) y[i * yld + j] = a[j] * g[i * gld + j] + (b[j] * ((x[i * ld + j] - m[j]) * r[j]) + c[j]); \
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
