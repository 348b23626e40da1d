/*
** ops/loss/pair_loss_body.h: the walk over a part of the units, for one type (cpu/each_real.h).
*/

static const real *NAME(fetch)(const amp_tensor *tensor, int64_t off, int64_t stride, real *buf, int64_t n)
{
  const void *p = amp__address_of(tensor, off);
  if (stride == 1 && tensor->dtype == REAL_DTYPE) return p;
  NAME(amp__load)(buf, p, tensor->dtype, stride, n);
  return buf;
}

static void NAME(look)(job *job, const real *x, int64_t count)
{
  int bad = 0;
  for (int64_t i = 0; i < count; i++) bad |= (x[i] < 0) | (x[i] > 1);
  for (int64_t i = 0; bad && i < count; i++)
    if (x[i] < 0 || x[i] > 1) {
      double value = (double)x[i];
      __atomic_store(&job->outside, &value, __ATOMIC_RELAXED);
      bad = 0;
    }
}

static void NAME(units)(job *job, int64_t part)
{
  real x_buffer[BLOCK], t_buffer[BLOCK], y_buffer[BLOCK], g_buffer[BLOCK];
  const bool direct = job->output && job->y_step == 1 && job->output->dtype == REAL_DTYPE;
  int64_t unit = part * job->units_per_part,
          end = unit + job->units_per_part < job->units ? unit + job->units_per_part : job->units,
          piece = unit % job->pieces;
  double sum = 0;
  amp__walk_pos at;
  amp__walk_seek(&job->walk, &at, unit / job->pieces);
  for (; unit < end; unit++) {
    int64_t i = piece * BLOCK, count = job->size - i < BLOCK ? job->size - i : BLOCK;
    const real *x = NAME(fetch)(job->input, at.off[0] + i * job->x_step, job->x_step, x_buffer, count);
    const real *t = NAME(fetch)(job->target, at.off[1] + i * job->t_step, job->t_step, t_buffer, count);
    void *target = job->output ? (void *)amp__address_of(job->output, at.off[2] + i * job->y_step) : NULL;
    real *y = direct ? target : y_buffer;
    if (job->back) {
      const real *g
          = job->grad ? NAME(fetch)(job->grad, at.off[3] + i * job->g_step, job->g_step, g_buffer, count) : NULL;
      job->formula->NAME(backward)(y, g, x, t, count, (real)job->param, (real)job->scale);
    } else {
      job->formula->NAME(forward)(y, x, t, count, (real)job->param);
      if (!job->output) sum += NAME(amp__row_sum)(y, count);
      if (job->unit) NAME(look)(job, x, count);
    }
    if (job->output && !direct) NAME(amp__store)(target, job->output->dtype, job->y_step, y, count);
    if (++piece == job->pieces) {
      piece = 0;
      amp__walk_next(&job->walk, &at);
    }
  }
  job->sums[part] = sum;
}
