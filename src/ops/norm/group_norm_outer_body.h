/*
** ops/norm/group_norm_outer_body.h: group_norm of runs of one channel, for one type (cpu/each_real.h).
*/

/* weight_grad and bias_grad hold the sums of g (x - mean) and of g by channel, and rest is what the mean was
** rounded by. *b and *c of a g + b (x - mean) rstd + c are common to a group. */
static void NAME(common)(const group_norm *job, int64_t image, int64_t group, double rest, double *b, double *c)
{
  int64_t at = image * job->channels + group * job->group_channels;
  double r = ((real *)job->rstd)[image * job->groups + group], s0 = 0, s1 = 0;
  double m = (double)job->group_channels * (double)job->rest;
  if (rest != 0)
    for (int64_t i = 0; i < job->group_channels; i++) job->weight_grad[at + i] -= rest * job->bias_grad[at + i];
  for (int64_t i = 0; i < job->group_channels; i++) {
    double w = job->weight ? job->weight[group * job->group_channels + i] : 1;
    s0 += w * job->bias_grad[at + i];
    s1 += w * job->weight_grad[at + i];
  }
  *b = -r * (s1 * r) / m;
  *c = -r * s0 / m - *b * rest * r;
  for (int64_t i = 0; i < job->group_channels; i++) job->weight_grad[at + i] *= r;
}

static void NAME(outer_forward)(const group_norm *job, int64_t begin, int64_t end)
{
  real buf[NORM_RUN];
  int size = amp__dtype_size[job->dtype];
  for (int64_t unit = begin; unit < end; unit++) {
    int64_t image = unit / job->groups, first = unit % job->groups * job->group_channels;
    norm_stat stats = { 0, 0, 0 };
    /* channels that follow each other are one run */
    bool whole = job->x_channel == job->rest || job->group_channels == 1;
    int64_t runs = whole ? 1 : job->group_channels, length = whole ? job->group_channels * job->rest : job->rest;
    for (int64_t c = 0; c < runs; c++)
      for (int64_t i = 0; i < length; i += NORM_RUN) {
        int64_t len = length - i < NORM_RUN ? length - i : NORM_RUN;
        const real *x = NAME(norm_in)(AT(job->input, image * job->x_image + (first + c) * job->x_channel + i),
                                      job->dtype, buf, len);
        NAME(norm_take)(&stats, x, len);
      }
    real mean = (real)stats.mean, r = (real)(1 / sqrt(stats.m2 / stats.count + job->eps));
    bool far = norm_far(stats.mean, r, stats.m2);
    const double shift = far ? stats.mean - (double)mean : stats.mean;
    const bool plain = !far && job->dtype == job->type;
    ((real *)job->mean)[unit] = mean;
    ((real *)job->rstd)[unit] = r;
    for (int64_t c = first; c < first + job->group_channels; c++) {
      double a = (double)r * (job->weight ? job->weight[c] : 1), b = (job->bias ? job->bias[c] : 0) - shift * a;
      for (int64_t i = 0; i < job->rest; i += NORM_RUN) {
        int64_t len = job->rest - i < NORM_RUN ? job->rest - i : NORM_RUN;
        const real *x
            = NAME(norm_in)(AT(job->input, image * job->x_image + c * job->x_channel + i), job->dtype, buf, len);
        char *y = AT(job->output, image * job->y_image + c * job->y_channel + i);
        if (plain) {
          NAME(amp__row_affine)((real *)y, x, (real)a, (real)b, len);
          continue;
        }
        real *target = job->dtype == job->type ? (real *)y : buf;
        if (far) NAME(amp__row_centre)(target, x, mean, (real)a, (real)b, len);
        else NAME(amp__row_affine)(target, x, (real)a, (real)b, len);
        if (target == buf) NAME(amp__store)(y, job->dtype, 1, buf, len);
      }
    }
  }
}

static void NAME(outer_backward)(const group_norm *job, int64_t begin, int64_t end)
{
  real x_buffer[NORM_RUN], g_buffer[NORM_RUN];
  int size = amp__dtype_size[job->dtype];
  for (int64_t unit = begin; unit < end; unit++) {
    int64_t image = unit / job->groups, first = unit % job->groups * job->group_channels;
    real mean = ((real *)job->mean)[unit], r = ((real *)job->rstd)[unit];
    double b = 0, d = 0, rest = 0, off = fabs((double)mean) * r;
    bool rounded = off >= NORM_ROUNDED, far = false, plain = false;
    real slope = 0, level = 0;
    for (int pass = 0; pass < 2; pass++) {
      for (int64_t c = first; c < first + job->group_channels; c++) {
        double grad_sum = 0, moment = 0, a = (double)r * (job->weight ? job->weight[c] : 1);
        for (int64_t i = 0; i < job->rest; i += NORM_RUN) {
          int64_t len = job->rest - i < NORM_RUN ? job->rest - i : NORM_RUN;
          const real *x
              = NAME(norm_in)(AT(job->input, image * job->x_image + c * job->x_channel + i), job->dtype, x_buffer, len);
          const real *g
              = NAME(norm_in)(AT(job->grad, image * job->g_image + c * job->g_channel + i), job->dtype, g_buffer, len);
          if (pass == 0) {
            real sum[2];
            NAME(amp__row_sums)(g, x, mean, len, sum);
            grad_sum += sum[0];
            moment += sum[1];
            if (rounded) {
              NAME(amp__row_moments)(x, mean, len, sum);
              rest += sum[0];
            }
            continue;
          }
          char *y = AT(job->output, image * job->y_image + c * job->y_channel + i);
          if (plain) {
            NAME(amp__row_affine2)((real *)y, g, x, (real)a, slope, level, len);
            continue;
          }
          real *target = job->dtype == job->type ? (real *)y : x_buffer;
          if (far) NAME(amp__row_centre2)(target, g, x, mean, r, (real)a, slope, level, len);
          else NAME(amp__row_affine2)(target, g, x, (real)a, slope, level, len);
          if (target == x_buffer) NAME(amp__store)(y, job->dtype, 1, x_buffer, len);
        }
        if (pass == 0) {
          job->bias_grad[image * job->channels + c] = grad_sum;
          job->weight_grad[image * job->channels + c] = moment;
        }
      }
      if (pass == 0) {
        if (rounded) rest /= (double)job->group_channels * (double)job->rest;
        NAME(common)(job, image, unit % job->groups, rest, &b, &d);
        double each = b * r;
        far = off > 32 || norm_no_factor(each);
        if (!far) {
          b = each;
          d -= b * mean;
        }
        plain = !far && job->dtype == job->type;
        slope = (real)b;
        level = (real)d;
      }
    }
  }
}
