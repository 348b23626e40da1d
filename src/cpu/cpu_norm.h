/*
** cpu_norm.h: what the files of normalisation share: the data as
** groups of contiguous runs, and how statistics of runs are put together.
*/
#ifndef AMP_CPU_NORM_H
#define AMP_CPU_NORM_H
#include <float.h>
#include <math.h>
#include "cpu_iter.h"
#include "cpu_rows.h"

enum { NORM_RUN = 2048 };       /* elements taken through the cache at a time */

/* Count, mean and sum of squared deviations; joined without cancellation (Chan). */
typedef struct norm_stat { double n, mean, m2; } norm_stat;
static inline void norm_join(norm_stat *s, double n, double mean, double m2) {
  double d = mean - s->mean, total = s->n + n;
  if (n == 0) return;
  s->m2 += m2 + d * d * (s->n * n / total);
  s->mean += d * (n / total);
  s->n = total;
}

/* A run of contiguous elements joins: one pass over it about the mean so far, or its first element, so no common offset is
** lost and equal elements have no deviation at all. amp__norm_again: where that was too far from the run's own mean, or
** squares overflowed. */
void amp__norm_again_f32(norm_stat *s, const float *x, int64_t n, double about);
void amp__norm_again_f64(norm_stat *s, const double *x, int64_t n, double about);
#define NORM_TAKE(T, S, MOST)                                                                       \
  static inline void norm_take_##S(norm_stat *s, const T *x, int64_t n) {                           \
    T about = s->n > 0 ? (T)s->mean : x[0], sum[2];                                                 \
    amp__row_moments_##S(x, about, n, sum);                                                         \
    double step = (double)sum[0] / (double)n, m2 = (double)sum[1] - step * (double)sum[0];          \
    if (amp_unlikely(!(sum[1] <= MOST && step * (double)sum[0] <= 16 * m2))) { amp__norm_again_##S(s, x, n, (double)about + step); return; } \
    norm_join(s, (double)n, (double)about + step, m2);                                              \
  }
NORM_TAKE(float, f32, FLT_MAX)
NORM_TAKE(double, f64, DBL_MAX)

/* Whether a (x - mean) + b must be computed so: written as a x + b it would lose digits, or not be b where x is the mean */
static inline bool norm_far(double mean, double rstd, double var) { return mean != 0 && (fabs(mean) * rstd > 32 || var == 0); }

/* The same of a gradient a g + b (x - mean) rstd + c, which else is written a g + (b rstd) x + c' */
static inline bool norm_far_back(double mean, double rstd, double b) { return fabs(mean) * rstd > 32 || fabs(b * rstd) < 1e-30; }
enum { NORM_ROUNDED = 1024 };   /* of |mean| rstd: above that the mean's own rounding is taken into account */

/* A run in float or double: the memory itself, or buf after widening. */
static inline const float *norm_in_f32(const void *p, int dtype, float *buf, int64_t n) {
  if (dtype == AMP_FLOAT32) return p;
  amp__nn_load_f32(buf, p, dtype, 1, n);
  return buf;
}
static inline const double *norm_in_f64(const void *p, int dtype, double *buf, int64_t n) {
  if (dtype == AMP_FLOAT64) return p;
  amp__nn_load_f64(buf, p, dtype, 1, n);
  return buf;
}

/* Image, channel and rest strides of N x C x the rest, of strides st; false: no single stride walks the rest. */
bool amp__norm_strides(const amp_tensor *t, const int64_t *st, int64_t *n, int64_t *c, int64_t *s);

/* -- Channels inside: rows (pixels) of runs of n <= NORM_LANE channels ------------------- */

enum { NORM_LANE = 64 };                     /* channels that loops take at a time */
enum { NORM_SPAN = 1024 };                   /* channels whose sums are kept at a time */
enum { NORM_BLOCK = 4096 };                  /* elements that go through the cache at a time, all lanes of some rows */
/* Rows of a block; it depends on the number of channels alone, so sums do. */
static inline int64_t norm_rows(int64_t channels) {
  int64_t n = NORM_BLOCK / (channels < NORM_SPAN ? channels : NORM_SPAN);
  return n < 128 ? n : 128;
}

/* ld, gld, yld: elements from a row to the next. stats: sums of x - about and of its square grow, about
** being the first row (slow: in double). settle makes of them means and sums of squared deviations and says which pass is
** next: 3, none; 1, once more about the means, from which the first row was too far; 2, slowly: squares overflowed. sums: of g, and of g (x - mean) */
#define NORM_LANES(T, S)                                                                            \
  void amp__lane_stats_##S(const T *x, int64_t ld, int64_t rows, int64_t n, const T *about, double *sum, double *square, bool slow); \
  int amp__lane_settle_##S(int pass, double n, int64_t nc, T *restrict about, double *restrict sum, double *restrict square);                                                 \
  void amp__lane_centre_##S(T *y, int64_t yld, const T *x, int64_t ld, int64_t rows, int64_t n, const T *m, const T *a, const T *b); \
  void amp__lane_centre2_##S(T *y, int64_t yld, const T *g, int64_t gld, const T *x, int64_t ld, int64_t rows, int64_t n, \
                             const T *m, const T *r, const T *a, const T *b, const T *c);           \
  void amp__lane_affine_##S(T *y, int64_t yld, const T *x, int64_t ld, int64_t rows, int64_t n, const T *a, const T *b); \
  void amp__lane_sums_##S(const T *g, int64_t gld, const T *x, int64_t ld, int64_t rows, int64_t n, const T *mean, T *sg, T *sx); \
  void amp__lane_affine2_##S(T *y, int64_t yld, const T *g, int64_t gld, const T *x, int64_t ld, int64_t rows, int64_t n, \
                             const T *a, const T *b, const T *c);                                   \
  /* `rows` runs of n channels: the memory itself (*ld its stride) or widened (*ld = n) */          \
  static inline const T *norm_lanes_##S(const char *p, int dtype, int64_t stride, int64_t rows, int64_t n, T *buf, int64_t *ld) { \
    int size = amp__dtype_size[dtype];                                                              \
    *ld = stride;                                                                                   \
    if (size == sizeof(T)) return (const T *)p;                                                     \
    *ld = n;                                                                                        \
    if (stride == n) amp__nn_load_##S(buf, p, dtype, 1, rows * n);                                  \
    else for (int64_t i = 0; i < rows; i++) amp__nn_load_##S(buf + i * n, p + i * stride * size, dtype, 1, n); \
    return buf;                                                                                     \
  }                                                                                                 \
  static inline void norm_unlane_##S(char *p, int dtype, int64_t stride, int64_t rows, int64_t n, const T *buf) { \
    int size = amp__dtype_size[dtype];                                                              \
    if (stride == n) amp__nn_store_##S(p, dtype, 1, buf, rows * n);                                 \
    else for (int64_t i = 0; i < rows; i++) amp__nn_store_##S(p + i * stride * size, dtype, 1, buf + i * n, n); \
  }
NORM_LANES(float, f32)
NORM_LANES(double, f64)
#undef NORM_LANES

#endif
