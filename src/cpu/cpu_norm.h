/*
** cpu_norm.h: what batch_norm's and layer_norm's files share: the data as
** groups of contiguous runs, and how statistics of runs are put together.
*/
#ifndef AMP_CPU_NORM_H
#define AMP_CPU_NORM_H
#include <math.h>
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

#endif
