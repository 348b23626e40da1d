/*
** ops/norm/norm_runs.h: what the files of normalisation share: the data as
** groups of contiguous runs, and how statistics of runs are put together.
*/
#ifndef AMP_OPS_NORM_RUNS_H
#define AMP_OPS_NORM_RUNS_H
#include <float.h>
#include <math.h>
#include "cpu/strided.h"
#include "cpu/rows.h"

enum { NORM_RUN = 2048 }; /* elements taken through the cache at a time */

/* Count, mean and sum of squared deviations; joined without cancellation (Chan). */
typedef struct norm_stat {
  double count, mean, m2;
} norm_stat;
static inline void norm_join(norm_stat *s, double n, double mean, double m2)
{
  double d = mean - s->mean, total = s->count + n;
  AMP_ASSERT(n >= 0 && s->count >= 0);
  if (n == 0) return;
  s->m2 += m2 + d * d * (s->count * n / total);
  s->mean += d * (n / total);
  s->count = total;
}

/* A run of contiguous elements joins: one pass over it about the mean so far, or its first element, so no common
** offset is lost and equal elements have no deviation at all. amp__norm_again: where that was too far from the
** run's own mean, or squares overflowed. */
void amp__norm_again_f32(norm_stat *s, const float *x, int64_t n, double about);
void amp__norm_again_f64(norm_stat *s, const double *x, int64_t n, double about);
#define BODY "ops/norm/norm_take_body.h"
#include "cpu/each_real.h"

/* Whether a (x - mean) + b must be computed so: written as a x + b it would lose digits, or not be b where x is
** the mean */
static inline bool norm_far(double mean, double rstd, double var)
{
  return mean != 0 && (fabs(mean) * rstd > 32 || var == 0);
}

/* The same of a gradient a g + b (x - mean) rstd + c, which else is written a g + (b rstd) x + c' */
/* A factor of x that float can't hold with its digits */
static inline bool norm_no_factor(double b) { return !(fabs(b) >= 1e-30 && fabs(b) <= 1e30); }
static inline bool norm_far_back(double mean, double rstd, double b)
{
  return fabs(mean) * rstd > 32 || norm_no_factor(b * rstd);
}
enum { NORM_ROUNDED = 1024 }; /* of |mean| rstd: above that the mean's own rounding is taken into account */

/* A run in float or double: the memory itself, or buf after widening. */
static inline const float *norm_in_f32(const void *p, int dtype, float *buf, int64_t n)
{
  if (dtype == AMP_FLOAT32) return p;
  amp__load_f32(buf, p, dtype, 1, n);
  return buf;
}
static inline const double *norm_in_f64(const void *p, int dtype, double *buf, int64_t n)
{
  if (dtype == AMP_FLOAT64) return p;
  amp__load_f64(buf, p, dtype, 1, n);
  return buf;
}

/* Image, channel and rest strides of N x C x the rest; false: no single stride walks the rest. */
bool amp__norm_strides(const amp_tensor *tensor, const int64_t *st, int64_t *n, int64_t *c, int64_t *s);

/* -- Channels inside: rows (pixels) of runs of n <= NORM_LANE channels ------------------- */

enum { NORM_LANE = 64 };    /* channels that loops take at a time */
enum { NORM_SPAN = 1024 };  /* channels whose sums are kept at a time */
enum { NORM_BLOCK = 4096 }; /* elements that go through the cache at a time, all lanes of some rows */
/* Rows of a block; it depends on the number of channels alone, so sums do. */
static inline int64_t norm_rows(int64_t channels)
{
  int64_t n = NORM_BLOCK / (channels < NORM_SPAN ? channels : NORM_SPAN);
  return n < 128 ? n : 128;
}

/* Passes over lanes: sums about the first row; sums about the means, where the first row was too far from them; sums in
** double, where squares overflowed. */
enum norm_pass { NORM_ABOUT_FIRST, NORM_ABOUT_MEAN, NORM_IN_DOUBLE, NORM_DONE };

/* x_row, g_row, y_row: elements from a row to the next. amp__lane_stats: sums of x - about and of its square grow,
** `about` being the first row. amp__lane_settle makes of them means and sums of squared deviations, and says which
** pass is next. amp__lane_sums: of g, and of g (x - mean). */
#define BODY "ops/norm/norm_lanes_body.h"
#include "cpu/each_real.h"

#endif
