/*
** ops/norm/batch_norm_inner_body.h: batch_norm of runs of channels, for one type (cpu/each_real.h).
*/

/* blocks of rows of the channels from `channel` on, as many as width */
static void NAME(inner_stats)(const batch_norm *job, int64_t channel, int64_t width)
{
  AMP_ASSERT(width <= NORM_SPAN);
  real buf[NORM_BLOCK];
  real about[NORM_SPAN];
  double all[NORM_SPAN], dev[NORM_SPAN], count = (double)job->images * (double)job->rest;
  int size = amp__dtype_size[job->dtype];
  int64_t most = norm_rows(job->channels), x_row;
  memcpy(about, NAME(norm_in)(AT(job->input, channel), job->dtype, buf, width), (size_t)width * sizeof(real));
  for (int pass = NORM_ABOUT_FIRST; pass != NORM_DONE;
       pass = NAME(amp__lane_settle)(pass, count, width, about, all, dev)) {
    for (int64_t j = 0; j < width; j++) all[j] = dev[j] = 0;
    for (int64_t image = 0; image < job->images; image++)
      for (int64_t i = 0, rows; i < job->rest; i += rows) {
        rows = job->rest - i < most ? job->rest - i : most;
        const real *x = NAME(norm_lanes)(AT(job->input, image * job->x_image + channel + i * job->x_step), job->dtype,
                                         job->x_step, rows, width, buf, &x_row);
        for (int64_t j = 0; j < width; j += NORM_LANE) {
          int64_t w = width - j < NORM_LANE ? width - j : NORM_LANE;
          NAME(amp__lane_stats)(x + j, x_row, rows, w, about + j, all + j, dev + j, pass == NORM_IN_DOUBLE);
        }
      }
  }
  for (int64_t j = 0; j < width; j++) {
    job->var[channel + j] = dev[j] / count;
    ((real *)job->mean)[channel + j] = (real)all[j];
    job->low[channel + j] = all[j] - (double)(real)all[j];
    ((real *)job->rstd)[channel + j] = (real)(1 / sqrt(job->var[channel + j] + job->eps));
  }
}

static void NAME(inner_apply)(const batch_norm *job, int64_t channel, int64_t width)
{
  AMP_ASSERT(width <= NORM_SPAN);
  real buf[NORM_BLOCK], scale[NORM_SPAN], slope[NORM_SPAN];
  int size = amp__dtype_size[job->dtype];
  int64_t most = norm_rows(job->channels), x_row;
  const real *mean = (const real *)job->mean + channel;
  bool far = NAME(shifts)(width, mean, (const real *)job->rstd + channel, job->weight ? job->weight + channel : NULL,
                          job->bias ? job->bias + channel : NULL, job->low + channel, job->var + channel, scale, slope);
  for (int64_t j = 0; j < width && far; j++)
    slope[j] = (real)((job->bias ? job->bias[channel + j] : 0) - job->low[channel + j] * (double)scale[j]);
  for (int64_t image = 0; image < job->images; image++)
    for (int64_t i = 0, rows; i < job->rest; i += rows) {
      rows = job->rest - i < most ? job->rest - i : most;
      const real *x = NAME(norm_lanes)(AT(job->input, image * job->x_image + channel + i * job->x_step), job->dtype,
                                       job->x_step, rows, width, buf, &x_row);
      char *y = AT(job->output, image * job->y_image + channel + i * job->y_step);
      real *target = job->dtype == job->type ? (real *)y : buf;
      int64_t y_row = target == buf ? width : job->y_step;
      if (far) NAME(amp__lane_centre)(target, y_row, x, x_row, rows, width, mean, scale, slope);
      else NAME(amp__lane_affine)(target, y_row, x, x_row, rows, width, scale, slope);
      if (target == buf) NAME(norm_unlane)(y, job->dtype, job->y_step, rows, width, buf);
    }
}

static double NAME(rest)(const batch_norm *k, int64_t channel)
{ /* what a channel's mean was rounded by */
  real x;
  int size = amp__dtype_size[k->dtype];
  double sum = 0, mean = ((real *)k->mean)[channel];
  for (int64_t image = 0; image < k->images; image++)
    for (int64_t i = 0; i < k->rest; i++)
      sum += (double)*NAME(norm_in)(AT(k->input, image * k->x_image + channel + i * k->x_step), k->dtype, &x, 1) - mean;
  return sum / ((double)k->images * (double)k->rest);
}

/* What makes the gradient of channels from their sums: scale g + slope x + level each; true: all with x - mean */
static bool NAME(inner_slopes)(const batch_norm *job, int64_t channel, int64_t width, double elements,
                               const double *grad_sum, double *moment, real *scale, real *slope, real *level)
{
  bool far = false;
  const real *mean = (const real *)job->mean + channel, *rstd = (const real *)job->rstd + channel;
  for (int64_t j = 0; j < width; j++) {
    double w = job->weight ? job->weight[channel + j] : 1, u, v, e = 0;
    if (job->training && fabs((double)mean[j]) * rstd[j] >= NORM_ROUNDED) {
      e = NAME(rest)(job, channel + j);
      moment[j] -= e * grad_sum[j];
    }
    bool one = back(job, w, rstd[j], mean[j], grad_sum[j], moment[j], elements, e, &u, &v);
    scale[j] = (real)(w * rstd[j]);
    slope[j] = (real)u;
    level[j] = (real)v;
    for (int64_t l = 0; l < j && one && !far; l++) {
      level[l] += slope[l] * mean[l];
      slope[l] /= rstd[l];
    } /* all channels the same way */
    if (far && !one && job->training) {
      level[j] = (real)(v + u * mean[j]);
      slope[j] = (real)(u / rstd[j]);
    }
    far = far || one;
  }
  return far;
}

static void NAME(inner_back)(const batch_norm *job, int64_t channel, int64_t width)
{
  AMP_ASSERT(width <= NORM_SPAN);
  real x_buffer[NORM_BLOCK], g_buffer[NORM_BLOCK], scale[NORM_SPAN], slope[NORM_SPAN], level[NORM_SPAN],
      grad_part[NORM_LANE], moment_part[NORM_LANE];
  double grad_sum[NORM_SPAN], moment[NORM_SPAN], elements = (double)job->images * (double)job->rest;
  bool far = false;
  int size = amp__dtype_size[job->dtype];
  int64_t most = norm_rows(job->channels), x_row, g_row;
  const real *mean = (const real *)job->mean + channel, *rstd = (const real *)job->rstd + channel;
  for (int64_t j = 0; j < width; j++) grad_sum[j] = moment[j] = 0;
  for (int pass = 0; pass < 2; pass++) {
    if (pass) far = NAME(inner_slopes)(job, channel, width, elements, grad_sum, moment, scale, slope, level);
    for (int64_t image = 0; image < job->images; image++)
      for (int64_t i = 0, rows; i < job->rest; i += rows) {
        rows = job->rest - i < most ? job->rest - i : most;
        const real *x = NAME(norm_lanes)(AT(job->input, image * job->x_image + channel + i * job->x_step), job->dtype,
                                         job->x_step, rows, width, x_buffer, &x_row);
        const real *g = NAME(norm_lanes)(AT(job->grad, image * job->g_image + channel + i * job->g_step), job->dtype,
                                         job->g_step, rows, width, g_buffer, &g_row);
        if (pass == 0) {
          for (int64_t j = 0; j < width; j += NORM_LANE) {
            int64_t w = width - j < NORM_LANE ? width - j : NORM_LANE;
            NAME(amp__lane_sums)(g + j, g_row, x + j, x_row, rows, w, mean + j, grad_part, moment_part);
            for (int64_t l = 0; l < w; l++) {
              grad_sum[j + l] += grad_part[l];
              moment[j + l] += moment_part[l];
            }
          }
          continue;
        }
        char *y = AT(job->output, image * job->y_image + channel + i * job->y_step);
        real *target = job->dtype == job->type ? (real *)y : x_buffer;
        int64_t y_row = target == x_buffer ? width : job->y_step;
        if (far)
          NAME(amp__lane_centre2)(target, y_row, g, g_row, x, x_row, rows, width, mean, rstd, scale, slope, level);
        else NAME(amp__lane_affine2)(target, y_row, g, g_row, x, x_row, rows, width, scale, slope, level);
        if (target == x_buffer) NAME(norm_unlane)(y, job->dtype, job->y_step, rows, width, x_buffer);
      }
  }
  for (int64_t j = 0; j < width; j++) {
    job->bias_grad[channel + j] = grad_sum[j];
    job->weight_grad[channel + j] = moment[j] * ((real *)job->rstd)[channel + j];
  }
}
