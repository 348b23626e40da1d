/*
** ops/loss/cross_entropy_body.h: cross_entropy of contiguous rows of classes, for one type (cpu/each_real.h).
*/

CLONES static void NAME(softgrad)(real *d, const real *x, real m, real a, real b, const double *weight, int64_t n)
{
  if (weight)
    for (int64_t i = 0; i < n; i++) d[i] = a * EXP(x[i] - m) - b * (real)weight[i];
  else
    for (int64_t i = 0; i < n; i++) d[i] = a * EXP(x[i] - m) - b;
}

static const real *NAME(scores)(const job *job, int64_t off, real *buf)
{
  const char *p = amp__address_of(job->input, off);
  if (job->input->dtype == job->type && job->x_step == 1) return (const real *)p;
  NAME(amp__load)(buf, p, job->input->dtype, job->x_step, job->classes);
  return buf;
}

static void NAME(forward)(const job *job, int64_t begin, int64_t end, int thread)
{
  int64_t count = job->classes;
  real *buf = (real *)job->buf + (size_t)thread * 2 * count, *top = (real *)amp__address_of(job->top, 0);
  amp__walk_pos pos;
  amp__walk_seek(&job->walk, &pos, begin);
  for (int64_t row = begin; row < end; row++, amp__walk_next(&job->walk, &pos)) {
    const real *x = NAME(scores)(job, pos.off[0], buf);
    real m = NAME(amp__row_max)(x, count);
    double s = (double)NAME(amp__row_exp)(NULL, x, m, count), above = log(s), most = (double)m;
    int64_t y = label(job, &pos);
    double weight = y < 0 ? 0 : job->weight ? job->weight[y] : 1, loss = 0;
    top[row] = m;
    top[job->walk.n + row] = (real)s;
    if (y >= 0) {
      loss = (1 - job->smooth) * weight * (above + (most - (double)x[y]));
      if (job->smooth != 0) {
        double all = 0;
        if (job->weight)
          for (int64_t i = 0; i < count; i++) all += job->weight[i] * (most - (double)x[i]);
        else
          for (int64_t i = 0; i < count; i++) all += most - (double)x[i];
        loss += job->smooth / (double)count * (all + job->weight_sum * above);
      }
    }
    job->loss[row] = loss;
    job->part[row] = weight;
  }
}

/* q (W softmax(x) - T): T holds the label's share and, smoothed, that of every class */
static void NAME(backward)(const job *job, int64_t begin, int64_t end, int thread)
{
  int64_t count = job->classes;
  real *buf = (real *)job->buf + (size_t)thread * 2 * count, *out = buf + count;
  bool direct = job->output->dtype == job->type && job->y_step == 1, plain = job->top->dtype == job->type;
  const real *top = (const real *)amp__address_of(job->top, 0);
  double each = job->smooth / (double)count;
  amp__walk_pos pos;
  amp__walk_seek(&job->walk, &pos, begin);
  for (int64_t row = begin; row < end; row++, amp__walk_next(&job->walk, &pos)) {
    const real *x = NAME(scores)(job, pos.off[0], buf);
    real *d = direct ? (real *)amp__address_of(job->output, pos.off[3]) : out;
    int64_t y = label(job, &pos);
    if (y < 0)
      for (int64_t i = 0; i < count; i++) d[i] = 0;
    else {
      double grad = job->reduction == REDUCTION_NONE ? get(job->grad, pos.off[2]) : job->scale,
             weight = job->weight ? job->weight[y] : 1;
      double all = (1 - job->smooth) * weight + each * job->weight_sum;
      all /= plain ? (double)top[job->walk.n + row] : get(job->top, job->walk.n + row);
      NAME(softgrad)
      (d, x, plain ? top[row] : (real)get(job->top, row), (real)(grad * all), (real)(grad * each),
       job->smooth != 0 ? job->weight : NULL, count);
      d[y] -= (real)(grad * (1 - job->smooth) * weight);
    }
    if (!direct)
      NAME(amp__store)((void *)amp__address_of(job->output, pos.off[3]), job->output->dtype, job->y_step, d, count);
  }
}
