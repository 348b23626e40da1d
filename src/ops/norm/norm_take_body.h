/*
** ops/norm/norm_take_body.h: a run joins a statistic, for one type (cpu/each_real.h).
*/

static inline void NAME(norm_take)(norm_stat *s, const real *x, int64_t n)
{
  real about = s->count > 0 ? (real)s->mean : x[0], sum[2];
  NAME(amp__row_moments)(x, about, n, sum);
  double step = (double)sum[0] / (double)n, m2 = (double)sum[1] - step * (double)sum[0];
  if (amp_unlikely(!(sum[1] <= REAL_MAX && step * (double)sum[0] <= 16 * m2))) {
    NAME(amp__norm_again)(s, x, n, (double)about + step);
    return;
  }
  if (s->count == 0) *s = (norm_stat){ (double)n, (double)about + step, m2 };
  else norm_join(s, (double)n, (double)about + step, m2);
}
