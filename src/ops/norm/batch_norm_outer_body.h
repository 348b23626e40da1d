/*
** ops/norm/batch_norm_outer_body.h: batch_norm of runs of one channel, for one type (cpu/each_real.h).
*/

/* shift() of channels side by side; whether one of them is written with the mean */
static AMP_CLONES_WIDE bool NAME(shifts)(int64_t nc, const real *restrict mean, const real *restrict rstd,
                                         const double *w, const double *bias, const double *low, const double *var,
                                         real *restrict a, real *restrict b)
{
  int64_t far = 0;
  for (int64_t j = 0; j < nc; j++) {
    double r = rstd[j], u = r * (w ? w[j] : 1), m = (double)mean[j] + low[j];
    far |= (m != 0) & ((fabs(m) * r > 32) | (var[j] == 0));
    a[j] = (real)u;
    b[j] = (real)((bias ? bias[j] : 0) - m * u);
  }
  return far;
}

static void NAME(outer_stats)(const batch_norm *job, int64_t begin, int64_t end)
{
  real buf[NORM_RUN];
  norm_stat stats[TOGETHER];
  int size = amp__dtype_size[job->dtype];
  for (int64_t channel = begin; channel < end; channel++) stats[channel - begin] = (norm_stat){ 0, 0, 0 };
  for (int64_t image = 0; image < job->images; image++)
    for (int64_t channel = begin; channel < end; channel++)
      for (int64_t i = 0; i < job->rest; i += NORM_RUN) {
        int64_t len = job->rest - i < NORM_RUN ? job->rest - i : NORM_RUN;
        const real *x
            = NAME(norm_in)(AT(job->input, image * job->x_image + channel * job->x_channel + i), job->dtype, buf, len);
        NAME(norm_take)(&stats[channel - begin], x, len);
      }
  for (int64_t channel = begin; channel < end; channel++) {
    job->var[channel] = stats[channel - begin].m2 / stats[channel - begin].count;
    ((real *)job->mean)[channel] = (real)stats[channel - begin].mean;
    job->low[channel] = stats[channel - begin].mean - (double)(real)stats[channel - begin].mean;
    ((real *)job->rstd)[channel] = (real)(1 / sqrt(job->var[channel] + job->eps));
  }
}

static void NAME(outer_apply)(const batch_norm *job, int64_t begin, int64_t end)
{
  real buf[NORM_RUN], as[TOGETHER], bs[TOGETHER];
  bool far[TOGETHER];
  const real *means = (const real *)job->mean + begin, *rstds = (const real *)job->rstd + begin;
  int size = amp__dtype_size[job->dtype];
  for (int64_t channel = begin, at = 0; channel < end; channel++, at++) {
    double a, b;
    far[at] = shift(job, channel, means[at], rstds[at], &a, &b);
    as[at] = (real)a;
    bs[at] = (real)b;
  }
  for (int64_t image = 0; image < job->images; image++)
    for (int64_t channel = begin, at = 0; channel < end; channel++, at++)
      for (int64_t i = 0; i < job->rest; i += NORM_RUN) {
        int64_t len = job->rest - i < NORM_RUN ? job->rest - i : NORM_RUN;
        const real *x
            = NAME(norm_in)(AT(job->input, image * job->x_image + channel * job->x_channel + i), job->dtype, buf, len);
        char *y = AT(job->output, image * job->y_image + channel * job->y_channel + i);
        real *target = job->dtype == job->type ? (real *)y : buf;
        if (far[at]) NAME(amp__row_centre)(target, x, means[at], as[at], bs[at], len);
        else NAME(amp__row_affine)(target, x, as[at], bs[at], len);
        if (target == buf) NAME(amp__store)(y, job->dtype, 1, buf, len);
      }
}

static void NAME(outer_back)(const batch_norm *job, int64_t begin, int64_t end)
{
  real x_buffer[NORM_RUN], g_buffer[NORM_RUN];
  real as[TOGETHER], bs[TOGETHER], ds[TOGETHER];
  double grad_sum[TOGETHER], moment[TOGETHER], rest[TOGETHER], m = (double)job->images * (double)job->rest;
  bool rounded[TOGETHER], far[TOGETHER];
  const real *means = (const real *)job->mean + begin, *rstds = (const real *)job->rstd + begin;
  int size = amp__dtype_size[job->dtype];
  for (int64_t at = 0; at < end - begin; at++) {
    grad_sum[at] = moment[at] = rest[at] = 0;
    rounded[at] = job->training && fabs((double)means[at]) * rstds[at] >= NORM_ROUNDED;
  }
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t channel = begin, at = 0; channel < end && pass; channel++, at++) {
      double w = job->weight ? job->weight[channel] : 1, u, v;
      if (rounded[at]) moment[at] -= (rest[at] /= m) * grad_sum[at];
      far[at] = back(job, w, rstds[at], means[at], grad_sum[at], moment[at], m, rest[at], &u, &v);
      as[at] = (real)(w * rstds[at]);
      bs[at] = (real)u;
      ds[at] = (real)v;
    }
    for (int64_t image = 0; image < job->images; image++)
      for (int64_t channel = begin; channel < end; channel++) {
        int64_t at = channel - begin;
        for (int64_t i = 0; i < job->rest; i += NORM_RUN) {
          int64_t len = job->rest - i < NORM_RUN ? job->rest - i : NORM_RUN;
          const real *x = NAME(norm_in)(AT(job->input, image * job->x_image + channel * job->x_channel + i), job->dtype,
                                        x_buffer, len);
          const real *g = NAME(norm_in)(AT(job->grad, image * job->g_image + channel * job->g_channel + i), job->dtype,
                                        g_buffer, len);
          if (pass == 0) {
            real sum[2];
            NAME(amp__row_sums)(g, x, means[at], len, sum);
            grad_sum[at] += sum[0];
            moment[at] += sum[1];
            if (rounded[at]) {
              NAME(amp__row_moments)(x, means[at], len, sum);
              rest[at] += sum[0];
            }
            continue;
          }
          char *y = AT(job->output, image * job->y_image + channel * job->y_channel + i);
          real *target = job->dtype == job->type ? (real *)y : x_buffer;
          if (far[at]) NAME(amp__row_centre2)(target, g, x, means[at], rstds[at], as[at], bs[at], ds[at], len);
          else NAME(amp__row_affine2)(target, g, x, as[at], bs[at], ds[at], len);
          if (target == x_buffer) NAME(amp__store)(y, job->dtype, 1, x_buffer, len);
        }
      }
  }
  for (int64_t channel = begin, at = 0; channel < end; channel++, at++) {
    job->bias_grad[channel] = grad_sum[at];
    job->weight_grad[channel] = moment[at] * ((real *)job->rstd)[channel];
  }
}
