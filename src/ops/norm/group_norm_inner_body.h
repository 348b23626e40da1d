/*
** ops/norm/group_norm_inner_body.h: group_norm of runs of channels, for one type (cpu/each_real.h).
*/

static void NAME(inner_forward)(const group_norm *job, int64_t begin, int64_t end, int thread)
{
  real buf[NORM_BLOCK];
  double *all = (double *)job->buf + (size_t)thread * ROOM * (size_t)job->channels, *dev = all + job->channels;
  real *a = (real *)(dev + job->channels), *b = (real *)(dev + 2 * job->channels),
       *mean = (real *)(dev + 3 * job->channels);
  int size = amp__dtype_size[job->dtype];
  int64_t x_row, most = norm_rows(job->channels);
  for (int64_t image = begin; image < end; image++) {
    bool far = false;
    for (int64_t channel = 0; channel < job->channels; channel++)
      mean[channel] = *NAME(norm_in)(AT(job->input, image * job->x_image + channel), job->dtype, buf, 1);
    for (int pass = NORM_ABOUT_FIRST; pass != NORM_DONE;
         pass = NAME(amp__lane_settle)(pass, (double)job->rest, job->channels, mean, all, dev)) {
      for (int64_t channel = 0; channel < 2 * job->channels; channel++) all[channel] = 0;
      EACH_BLOCK(job)
      {
        const real *x = NAME(norm_lanes)(AT(job->input, image * job->x_image + channel + i * job->x_step), job->dtype,
                                         job->x_step, rows, width, buf, &x_row);
        EACH_LANE NAME(amp__lane_stats)(x + j, x_row, rows, w, mean + channel + j, all + channel + j, dev + channel + j,
                                        pass == NORM_IN_DOUBLE);
      }
    }
    for (int64_t g = 0; g < job->groups; g++) {
      norm_stat stats = { 0, 0, 0 };
      for (int64_t channel = g * job->group_channels; channel < (g + 1) * job->group_channels; channel++)
        norm_join(&stats, (double)job->rest, all[channel], dev[channel]);
      real m = (real)stats.mean, r = (real)(1 / sqrt(stats.m2 / stats.count + job->eps));
      far = far || norm_far(stats.mean, r, stats.m2);
      dev[g] = stats.mean;
      ((real *)job->mean)[image * job->groups + g] = m;
      ((real *)job->rstd)[image * job->groups + g] = r;
      for (int64_t channel = g * job->group_channels; channel < (g + 1) * job->group_channels; channel++) {
        double u = (double)r * (job->weight ? job->weight[channel] : 1);
        a[channel] = (real)u;
        mean[channel] = m;
        b[channel] = (real)((job->bias ? job->bias[channel] : 0) - stats.mean * u);
      }
    }
    for (int64_t g = 0; g < job->groups && far; g++)
      for (int64_t channel = g * job->group_channels; channel < (g + 1) * job->group_channels; channel++)
        b[channel]
            = (real)((job->bias ? job->bias[channel] : 0) - (dev[g] - (double)mean[channel]) * (double)a[channel]);
    EACH_BLOCK(job)
    {
      const real *x = NAME(norm_lanes)(AT(job->input, image * job->x_image + channel + i * job->x_step), job->dtype,
                                       job->x_step, rows, width, buf, &x_row);
      char *y = AT(job->output, image * job->y_image + channel + i * job->y_step);
      real *target = job->dtype == job->type ? (real *)y : buf;
      int64_t y_row = target == buf ? width : job->y_step;
      if (far) NAME(amp__lane_centre)(target, y_row, x, x_row, rows, width, mean + channel, a + channel, b + channel);
      else NAME(amp__lane_affine)(target, y_row, x, x_row, rows, width, a + channel, b + channel);
      if (target == buf) NAME(norm_unlane)(y, job->dtype, job->y_step, rows, width, buf);
    }
  }
}

static double NAME(inner_rest)(const group_norm *job, int64_t image, int64_t g, real mean)
{ /* what the mean was rounded by */
  real buf[NORM_BLOCK];
  int size = amp__dtype_size[job->dtype];
  double sum = 0;
  for (int64_t i = 0; i < job->rest; i++)
    for (int64_t channel = g * job->group_channels, width; channel < (g + 1) * job->group_channels; channel += width) {
      width
          = (g + 1) * job->group_channels - channel < NORM_BLOCK ? (g + 1) * job->group_channels - channel : NORM_BLOCK;
      const real *x
          = NAME(norm_in)(AT(job->input, image * job->x_image + channel + i * job->x_step), job->dtype, buf, width);
      for (int64_t j = 0; j < width; j++) sum += (double)x[j] - (double)mean;
    }
  return sum / ((double)job->group_channels * (double)job->rest);
}

/* A thread's room: of each group, what slope and level are made of; of each channel, what its gradient
** scale g + slope x + level (or scale g + slope (x - mean) rstd + level) is made of */
typedef struct NAME(room) {
  double *pair;
  real *mean, *scale, *slope, *level, *rstd;
} NAME(room);

static NAME(room) NAME(room_of)(const group_norm *job, int thread)
{
  double *pair = (double *)job->buf + (size_t)thread * ROOM * (size_t)job->channels;
  real *mean = (real *)(pair + 2 * job->channels);
  int64_t n = job->channels;
  return (NAME(room)){ pair, mean, mean + n, mean + 2 * n, mean + 3 * n, mean + 4 * n };
}

/* The sums of g and of g (x - mean) of an image's channels; whether a group's mean was rounded by much */
static bool NAME(inner_sums)(const group_norm *job, int64_t image, real *mean)
{
  real x_buffer[NORM_BLOCK], g_buffer[NORM_BLOCK], grad_part[NORM_LANE], moment_part[NORM_LANE];
  double *grad_sum = job->bias_grad + image * job->channels, *moment = job->weight_grad + image * job->channels;
  int size = amp__dtype_size[job->dtype];
  int64_t x_row, g_row, most = norm_rows(job->channels);
  bool rounded = false;
  for (int64_t g = 0; g < job->groups; g++) {
    real m = ((real *)job->mean)[image * job->groups + g], rstd = ((real *)job->rstd)[image * job->groups + g];
    rounded = rounded || fabs((double)m) * rstd >= NORM_ROUNDED;
    for (int64_t channel = g * job->group_channels; channel < (g + 1) * job->group_channels; channel++) {
      grad_sum[channel] = moment[channel] = 0;
      mean[channel] = m;
    }
  }
  EACH_BLOCK(job)
  {
    const real *x = NAME(norm_lanes)(AT(job->input, image * job->x_image + channel + i * job->x_step), job->dtype,
                                     job->x_step, rows, width, x_buffer, &x_row);
    const real *g = NAME(norm_lanes)(AT(job->grad, image * job->g_image + channel + i * job->g_step), job->dtype,
                                     job->g_step, rows, width, g_buffer, &g_row);
    EACH_LANE
    {
      NAME(amp__lane_sums)(g + j, g_row, x + j, x_row, rows, w, mean + channel + j, grad_part, moment_part);
      for (int64_t l = 0; l < w; l++) {
        grad_sum[channel + j + l] += grad_part[l];
        moment[channel + j + l] += moment_part[l];
      }
    }
  }
  return rounded;
}

/* Scales, slopes and levels of an image's channels, of its sums; true: those of x - mean */
static bool NAME(inner_slopes)(const group_norm *job, int64_t image, bool rounded, const NAME(room) * room)
{
  bool far = false;
  for (int64_t g = 0; g < job->groups; g++) {
    int64_t first = g * job->group_channels, end = first + job->group_channels;
    double *pair = room->pair + 2 * g, mean = room->mean[first], rstd = ((real *)job->rstd)[image * job->groups + g];
    double rest = rounded ? NAME(inner_rest)(job, image, g, room->mean[first]) : 0;
    NAME(common)(job, image, g, rest, pair, pair + 1);
    double each = pair[0] * rstd;
    real slope = (real)each, level = (real)(pair[1] - each * mean);
    far = far || fabs(mean) * rstd > 32 || norm_no_factor(each);
    for (int64_t channel = first; channel < end; channel++) {
      room->scale[channel] = (real)(rstd * (job->weight ? job->weight[channel] : 1));
      room->slope[channel] = slope;
      room->level[channel] = level;
    }
  }
  for (int64_t g = 0; g < job->groups && far; g++)
    for (int64_t channel = g * job->group_channels; channel < (g + 1) * job->group_channels; channel++) {
      room->slope[channel] = (real)room->pair[2 * g];
      room->level[channel] = (real)room->pair[2 * g + 1];
      room->rstd[channel] = ((real *)job->rstd)[image * job->groups + g];
    }
  return far;
}

static void NAME(inner_backward)(const group_norm *job, int64_t begin, int64_t end, int thread)
{
  real x_buffer[NORM_BLOCK], g_buffer[NORM_BLOCK];
  const NAME(room) room = NAME(room_of)(job, thread);
  int size = amp__dtype_size[job->dtype];
  int64_t x_row, g_row, most = norm_rows(job->channels);
  for (int64_t image = begin; image < end; image++) {
    bool rounded = NAME(inner_sums)(job, image, room.mean), far = NAME(inner_slopes)(job, image, rounded, &room);
    EACH_BLOCK(job)
    {
      const real *x = NAME(norm_lanes)(AT(job->input, image * job->x_image + channel + i * job->x_step), job->dtype,
                                       job->x_step, rows, width, x_buffer, &x_row);
      const real *g = NAME(norm_lanes)(AT(job->grad, image * job->g_image + channel + i * job->g_step), job->dtype,
                                       job->g_step, rows, width, g_buffer, &g_row);
      const real *scale = room.scale + channel, *slope = room.slope + channel, *level = room.level + channel;
      char *y = AT(job->output, image * job->y_image + channel + i * job->y_step);
      real *target = job->dtype == job->type ? (real *)y : x_buffer;
      int64_t y_row = target == x_buffer ? width : job->y_step;
      if (far) {
        const real *mean = room.mean + channel, *rstd = room.rstd + channel;
        NAME(amp__lane_centre2)(target, y_row, g, g_row, x, x_row, rows, width, mean, rstd, scale, slope, level);
      } else NAME(amp__lane_affine2)(target, y_row, g, g_row, x, x_row, rows, width, scale, slope, level);
      if (target == x_buffer) NAME(norm_unlane)(y, job->dtype, job->y_step, rows, width, x_buffer);
    }
  }
}
