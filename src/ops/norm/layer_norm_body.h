/*
** ops/norm/layer_norm_body.h: loops of layer_norm and rms_norm, forward and backward, for one type (cpu/each_real.h).
*/

CLONES static void NAME(scale)(real *y, const real *x, real mean, real rstd, real shift, const real *weight,
                               const real *b, int64_t size)
{
  if (weight && b) AMP_IVDEP
  for (int64_t i = 0; i < size; i++) y[i] = ((x[i] - mean) * rstd + shift) * weight[i] + b[i];
  else if (weight) AMP_IVDEP
  for (int64_t i = 0; i < size; i++) y[i] = ((x[i] - mean) * rstd + shift) * weight[i];
  else if (b) AMP_IVDEP
  for (int64_t i = 0; i < size; i++) y[i] = (x[i] - mean) * rstd + shift + b[i];
  else AMP_IVDEP
  for (int64_t i = 0; i < size; i++) y[i] = (x[i] - mean) * rstd + shift;
}

CLONES
static void NAME(sums)(const real *restrict g, const real *restrict x, real mean, real rstd, real shift,
                       const real *restrict weight, real *restrict weighted, real *restrict gw, real *restrict gb,
                       int64_t size)
{
  for (int64_t i = 0; i < size; i++) {
    weighted[i] = weight ? g[i] * weight[i] : g[i];
    gw[i] += g[i] * ((x[i] - mean) * rstd + shift);
    gb[i] += g[i];
  }
}

CLONES static void NAME(flush)(double *restrict sum, real *restrict part, int64_t size)
{
  for (int64_t i = 0; i < size; i++) {
    sum[i] += part[i];
    part[i] = 0;
  }
}

/* Of rms_norm, about 0. Where squares leave float's range, or come below what float counts exactly
** and eps hides nothing, they are summed in double. */
static void NAME(squares)(norm_stat *stat, const real *x, int64_t size, double eps)
{
  double sum = NAME(amp__row_dev)(x, 0, size);
  if (!isfinite(sum) || (sum < 1e-30 && eps < 1e-24)) {
    sum = 0;
    for (int64_t i = 0; i < size; i++) sum += (double)x[i] * (double)x[i];
  }
  stat->count += (double)size;
  stat->m2 += sum;
}

static __attribute__((noinline)) double NAME(rest)(const real *x, real mean, int64_t size)
{ /* what the mean was rounded by */
  real s[2];
  double sum = 0;
  for (int64_t j = 0; j < size; j += NORM_RUN) {
    NAME(amp__row_moments)(x + j, mean, size - j < NORM_RUN ? size - j : NORM_RUN, s);
    sum += s[0];
  }
  return sum / (double)size;
}

static void NAME(forward)(const layer_norm *job, int64_t begin, int64_t end, int thread)
{
  real *buf = (real *)job->buf + (size_t)thread * 3 * job->size;
  int64_t size = job->size;
  for (int64_t i = begin; i < end; i++) {
    const real *x = NAME(norm_in)(job->input + i * size * amp__dtype_size[job->x_dtype], job->x_dtype, buf, size);
    norm_stat stats = { 0, 0, 0 };
    for (int64_t j = 0; j < size; j += NORM_RUN) {
      int64_t len = size - j < NORM_RUN ? size - j : NORM_RUN;
      if (job->is_rms) NAME(squares)(&stats, x + j, len, job->eps);
      else NAME(norm_take)(&stats, x + j, len);
    }
    real mean = (real)stats.mean, rstd = (real)(1 / sqrt(stats.m2 / stats.count + job->eps));
    if (!job->is_rms) ((real *)job->mean)[i] = mean;
    ((real *)job->rstd)[i] = rstd;
    char *y = job->output + i * size * amp__dtype_size[job->y_dtype];
    bool direct = job->y_dtype == job->type;
    real *d = direct ? (real *)y : buf;
    NAME(scale)(d, x, mean, rstd, (real)((mean - stats.mean) * rstd), job->weight, job->bias, size);
    if (!direct) NAME(amp__store)(y, job->y_dtype, 1, buf, size);
  }
}

static void NAME(backward)(const layer_norm *job, int64_t begin, int64_t end, int thread)
{
  int64_t size = job->size;
  real *x_buffer = (real *)job->buf + (size_t)thread * 5 * size, *g_buffer = x_buffer + size,
       *weighted = g_buffer + size, *part = weighted + size;
  for (int64_t j = 0; j < 2 * size; j++) part[j] = 0;
  for (int64_t block = begin; block < end; block++) {
    double *sum = job->sums + block * 2 * size;
    for (int64_t j = 0; j < 2 * size; j++) sum[j] = 0;
    for (int64_t i = block * job->rows_per_block; i < (block + 1) * job->rows_per_block && i < job->rows; i++) {
      const real *x
          = NAME(norm_in)(job->input + i * size * amp__dtype_size[job->x_dtype], job->x_dtype, x_buffer, size);
      const real *g = NAME(norm_in)(job->grad + i * size * amp__dtype_size[job->g_dtype], job->g_dtype, g_buffer, size);
      real mean = job->is_rms ? 0 : ((real *)job->mean)[i], rstd = ((real *)job->rstd)[i], s[2];
      bool far = !job->is_rms && fabs((double)mean) * rstd > 32;
      double grad_sum = 0, moment = 0,
             rest = far && fabs((double)mean) * rstd >= NORM_ROUNDED ? NAME(rest)(x, mean, size) : 0;
      NAME(sums)(g, x, mean, rstd, far ? (real)(-rest * rstd) : 0, job->weight, weighted, part, part + size, size);
      for (int64_t j = 0; j < size; j += NORM_RUN) {
        NAME(amp__row_sums)(weighted + j, x + j, mean, size - j < NORM_RUN ? size - j : NORM_RUN, s);
        grad_sum += s[0];
        moment += s[1];
      }
      if (far) moment -= rest * grad_sum;
      double b = -(double)rstd * (moment * rstd) / (double)size,
             c = job->is_rms ? 0 : -(double)rstd * grad_sum / (double)size, slope = b * rstd;
      if (far) c -= slope * rest;
      char *y = job->output + i * size * amp__dtype_size[job->y_dtype];
      bool direct = job->y_dtype == job->type;
      real *d = direct ? (real *)y : weighted;
      if (far || norm_no_factor(slope))
        NAME(amp__row_centre2)(d, weighted, x, mean, rstd, rstd, (real)b, (real)c, size);
      else NAME(amp__row_affine2)(d, weighted, x, rstd, (real)slope, (real)(c - slope * mean), size);
      if (job->add) {
        const real *add
            = NAME(norm_in)(job->add + i * size * amp__dtype_size[job->add_dtype], job->add_dtype, x_buffer, size);
        AMP_IVDEP
        for (int64_t j = 0; j < size; j++) d[j] += add[j];
      }
      if (!direct) NAME(amp__store)(y, job->y_dtype, 1, weighted, size);
      if (i % FLUSH == FLUSH - 1) NAME(flush)(sum, part, 2 * size);
    }
    NAME(flush)(sum, part, 2 * size);
  }
}
