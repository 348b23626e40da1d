/*
** ops/loss/cross_entropy_tile_body.h: cross_entropy of tiles: rows along a run that is dense in memory, class by
** class; for one type (cpu/each_real.h).
*/

CLONES static void NAME(tile_max)(real *restrict most, const real *restrict x, int64_t n)
{
  for (int64_t i = 0; i < n; i++) most[i] = x[i] > most[i] ? x[i] : most[i];
}

CLONES static void NAME(tile_exp)(real *restrict sum, const real *restrict x, const real *restrict most, int64_t n)
{
  for (int64_t i = 0; i < n; i++) sum[i] += EXP(x[i] - most[i]);
}

CLONES static void NAME(tile_log)(real *restrict sum, int64_t n)
{
  for (int64_t i = 0; i < n; i++) sum[i] = LOG(sum[i]);
}

CLONES static void NAME(tile_add)(double *restrict sum, const real *restrict x, double weight, int64_t n)
{
  for (int64_t i = 0; i < n; i++) sum[i] += weight * (double)x[i];
}

/* a exp(x - m) - b w; 0 in ignored rows, whatever x is */
CLONES static void NAME(tile_grad)(real *restrict d, const real *restrict x, const real *restrict most,
                                   const real *restrict a, const real *restrict b, real weight, int64_t n)
{
  for (int64_t i = 0; i < n; i++) {
    real value = a[i] * EXP(x[i] - most[i]) - b[i] * weight;
    d[i] = a[i] == 0 ? -b[i] * weight : value;
  }
}

static const real *NAME(tile)(const job *job, int64_t off, real *buf, int64_t n)
{
  const char *p = amp__address_of(job->input, off);
  if (job->input->dtype == job->type) return (const real *)p;
  NAME(amp__load)(buf, p, job->input->dtype, 1, n);
  return buf;
}

static void NAME(forward_tiles)(const job *job, int64_t begin, int64_t end)
{
  real most[TILE], sum[TILE], buf[TILE];
  double all[TILE], at[TILE];
  int64_t label[TILE], count;
  amp__walk_pos pos;
  for (int64_t row = begin; row < end; row += count) {
    count = span(&job->walk, &pos, row, end, job->tile);
    read_labels(job, &pos, count, label);
    for (int64_t i = 0; i < count; i++) {
      most[i] = -INFINITY;
      sum[i] = 0;
      all[i] = 0;
    }
    for (int64_t cls = 0; cls < job->classes; cls++)
      NAME(tile_max)(most, NAME(tile)(job, pos.off[0] + cls * job->x_step, buf, count), count);
    for (int64_t cls = 0; cls < job->classes; cls++) {
      const real *x = NAME(tile)(job, pos.off[0] + cls * job->x_step, buf, count);
      NAME(tile_exp)(sum, x, most, count);
      if (job->smooth != 0) NAME(tile_add)(all, x, job->weight ? job->weight[cls] : 1, count);
    }
    NAME(amp__store)((void *)amp__address_of(job->top, row), job->top->dtype, 1, most, count);
    NAME(amp__store)((void *)amp__address_of(job->top, job->walk.n + row), job->top->dtype, 1, sum, count);
    NAME(tile_log)(sum, count);
    read_at(job->input, pos.off[0], 1, job->x_step, label, job->ignore, count, at);
    for (int64_t i = 0; i < count; i++) {
      double weight = label[i] == job->ignore ? 0
                      : job->weight           ? job->weight[label[i] - 1]
                                              : 1,
             loss = (1 - job->smooth) * weight * ((double)sum[i] + ((double)most[i] - at[i]));
      if (job->smooth != 0)
        loss += job->smooth / (double)job->classes
                * (job->weight_sum * (double)sum[i] + (job->weight_sum * (double)most[i] - all[i]));
      job->loss[row + i] = label[i] == job->ignore ? 0 : loss;
      job->part[row + i] = weight;
    }
  }
}

static void NAME(backward_tiles)(const job *job, int64_t begin, int64_t end)
{
  real most[TILE], sum[TILE], a[TILE], b[TILE], buf[TILE], res[TILE];
  double grad[TILE], take[TILE];
  int64_t label[TILE], count;
  double each = job->smooth / (double)job->classes;
  amp__walk_pos pos;
  for (int64_t row = begin; row < end; row += count) {
    count = span(&job->walk, &pos, row, end, job->tile);
    read_labels(job, &pos, count, label);
    NAME(amp__load)(most, amp__address_of(job->top, row), job->top->dtype, 1, count);
    NAME(amp__load)(sum, amp__address_of(job->top, job->walk.n + row), job->top->dtype, 1, count);
    if (job->reduction == REDUCTION_NONE)
      amp__load_f64(grad, amp__address_of(job->grad, pos.off[2]), job->grad->dtype, along(&job->walk, 2), count);
    for (int64_t i = 0; i < count; i++) {
      bool off = label[i] == job->ignore;
      double row_grad = job->reduction == REDUCTION_NONE ? grad[i] : job->scale,
             weight = off           ? 0
                      : job->weight ? job->weight[label[i] - 1]
                                    : 1;
      a[i] = off ? 0 : (real)(row_grad * ((1 - job->smooth) * weight + each * job->weight_sum) / (double)sum[i]);
      b[i] = off ? 0 : (real)(row_grad * each);
      take[i] = off ? 0 : row_grad * (1 - job->smooth) * weight;
    }
    for (int64_t cls = 0; cls < job->classes; cls++) {
      const real *x = NAME(tile)(job, pos.off[0] + cls * job->x_step, buf, count);
      real *target = (real *)amp__address_of(job->output, pos.off[3] + cls * job->y_step),
           *d = job->output->dtype == job->type ? target : res;
      NAME(tile_grad)(d, x, most, a, b, job->smooth != 0 && job->weight ? (real)job->weight[cls] : 1, count);
      if (d == res) {
        for (int64_t i = 0; i < count; i++) d[i] -= label[i] == cls + 1 ? (real)take[i] : 0;
        NAME(amp__store)(target, job->output->dtype, 1, d, count);
      }
    }
    if (job->output->dtype == job->type)
      for (int64_t i = 0; i < count; i++)
        if (label[i] != job->ignore)
          ((real *)amp__address_of(job->output, pos.off[3] + (label[i] - 1) * job->y_step))[i] -= (real)take[i];
  }
}
