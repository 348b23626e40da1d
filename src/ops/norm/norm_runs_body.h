/*
** ops/norm/norm_runs_body.h: loops over runs of channels, for one type (cpu/each_real.h).
*/

/* In double, twice: once for the mean, once about it. Rare. */
void NAME(amp__norm_again)(norm_stat *s, const real *x, int64_t n, double about)
{
  double sum = 0, m2 = 0;
  if (!isfinite(about)) about = x[0];
  for (int64_t i = 0; i < n; i++) sum += (double)x[i] - about;
  about += sum / (double)n;
  for (int64_t i = 0; i < n; i++) m2 += ((double)x[i] - about) * ((double)x[i] - about);
  norm_join(s, (double)n, about, m2);
}

AMP_INLINE void NAME(stats)(const real *x, int64_t x_row, int64_t rows, int64_t n, const real *about, real *sum,
                            real *square)
{
  real s[HALF], squares[HALF], m[HALF];
  for (int64_t j = 0; j < n; j++) {
    s[j] = squares[j] = 0;
    m[j] = about[j];
  }
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < n; j++) {
      real d = x[i * x_row + j] - m[j];
      s[j] += d;
      squares[j] += d * d;
    }
  for (int64_t j = 0; j < n; j++) {
    sum[j] = s[j];
    square[j] = squares[j];
  }
}

CLONES
void NAME(amp__lane_stats)(const real *x, int64_t x_row, int64_t rows, int64_t width, const real *about,
                           double *restrict sum, double *restrict square, bool slow)
{
  real s[LANE], squares[LANE];
  AMP_ASSERT(width <= LANE);
  for (int64_t j = 0, n; j < width && !slow; j += n) {
    n = width - j < HALF ? width - j : HALF;
    /* a number that the compiler knows keeps sums in registers */
    if (n == HALF) NAME(stats)(x + j, x_row, rows, HALF, about + j, s + j, squares + j);
    else NAME(stats)(x + j, x_row, rows, n, about + j, s + j, squares + j);
  }
  if (!slow)
    for (int64_t j = 0; j < width; j++) {
      sum[j] += s[j];
      square[j] += squares[j];
    }
  else
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < width; j++) {
        double d = (double)x[i * x_row + j] - (double)about[j];
        sum[j] += d;
        square[j] += d * d;
      }
}

CLONES
int NAME(amp__lane_settle)(int pass, double n, int64_t width, real *restrict about, double *restrict sum,
                           double *restrict square)
{
  int64_t far = 0, lost = 0;
  double each = 1 / n;
  for (int64_t j = 0; j < width; j++) {
    double step = sum[j] * each, m2 = square[j] - step * sum[j];
    far += step * sum[j] > 16 * m2;
    lost += !(square[j] <= REAL_MAX);
    sum[j] = (double)about[j] + step;
    square[j] = m2 < 0 ? 0 : m2;
  }
  if (pass == NORM_ABOUT_FIRST && lost) return NORM_IN_DOUBLE;
  if (pass != NORM_ABOUT_FIRST || !far) return NORM_DONE;
  for (int64_t j = 0; j < width; j++) about[j] = (real)sum[j];
  return NORM_ABOUT_MEAN;
}

CLONES
void NAME(amp__lane_centre)(real *y, int64_t y_row, const real *x, int64_t x_row, int64_t rows, int64_t n,
                            const real *m, const real *a, const real *b)
{
  for (int64_t i = 0; i < rows; i++) AMP_IVDEP
  for (int64_t j = 0; j < n; j++) y[i * y_row + j] = a[j] * (x[i * x_row + j] - m[j]) + b[j];
}

CLONES
void NAME(amp__lane_centre2)(real *y, int64_t y_row, const real *g, int64_t g_row, const real *x, int64_t x_row,
                             int64_t rows, int64_t n, const real *m, const real *r, const real *a, const real *b,
                             const real *c)
{
  for (int64_t i = 0; i < rows; i++) AMP_IVDEP
  for (int64_t j = 0; j < n; j++)
    y[i * y_row + j] = a[j] * g[i * g_row + j] + (b[j] * ((x[i * x_row + j] - m[j]) * r[j]) + c[j]);
}

CLONES
void NAME(amp__lane_affine)(real *y, int64_t y_row, const real *x, int64_t x_row, int64_t rows, int64_t n,
                            const real *a, const real *b)
{
  for (int64_t i = 0; i < rows; i++) AMP_IVDEP
  for (int64_t j = 0; j < n; j++) y[i * y_row + j] = a[j] * x[i * x_row + j] + b[j];
}

AMP_INLINE void NAME(sums)(const real *g, int64_t g_row, const real *x, int64_t x_row, int64_t rows, int64_t n,
                           const real *mean, real *grad_sum, real *moment)
{
  real a[LANE], b[LANE];
  for (int64_t j = 0; j < n; j++) a[j] = b[j] = 0;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < n; j++) {
      real u = g[i * g_row + j];
      a[j] += u;
      b[j] += u * (x[i * x_row + j] - mean[j]);
    }
  for (int64_t j = 0; j < n; j++) {
    grad_sum[j] = a[j];
    moment[j] = b[j];
  }
}

CLONES
void NAME(amp__lane_sums)(const real *g, int64_t g_row, const real *x, int64_t x_row, int64_t rows, int64_t n,
                          const real *mean, real *grad_sum, real *moment)
{
  if (n == LANE) NAME(sums)(g, g_row, x, x_row, rows, LANE, mean, grad_sum, moment);
  else NAME(sums)(g, g_row, x, x_row, rows, n, mean, grad_sum, moment);
}

CLONES
void NAME(amp__lane_affine2)(real *y, int64_t y_row, const real *g, int64_t g_row, const real *x, int64_t x_row,
                             int64_t rows, int64_t n, const real *a, const real *b, const real *c)
{
  for (int64_t i = 0; i < rows; i++) AMP_IVDEP
  for (int64_t j = 0; j < n; j++) y[i * y_row + j] = a[j] * g[i * g_row + j] + (b[j] * x[i * x_row + j] + c[j]);
}
