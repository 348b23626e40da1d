/*
** ops/norm/softmax_body.h: rows of softmax, log_softmax and their backward rows, for one type (cpu/each_real.h).
*/

CLONES static void NAME(scale)(real *y, real f, int64_t n)
{
  for (int64_t i = 0; i < n; i++) y[i] *= f;
}

CLONES static real NAME(dot)(const real *a, const real *b, int64_t n)
{
  real s = 0, t = 0;
  int64_t h = n / 2;
#pragma omp simd reduction(+ : s, t)
  for (int64_t i = 0; i < h; i++) {
    s += a[i] * b[i];
    t += a[i + h] * b[i + h];
  }
  for (int64_t i = 2 * h; i < n; i++) s += a[i] * b[i];
  return s + t;
}

CLONES static void NAME(back)(real *x, const real *g, const real *y, real s, int64_t n)
{
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) x[i] = y[i] * (g[i] - s);
}

CLONES static void NAME(log_back)(real *x, const real *g, const real *y, real s, int64_t n)
{
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) x[i] = g[i] - EXP(y[i]) * s;
}

static const real *NAME(row)(const amp_tensor *tensor, int64_t off, int64_t stride, int64_t n, int type, real *buf)
{
  const char *p = amp__address_of(tensor, off);
  if (tensor->dtype == type && (stride == 1 || n == 1)) return (const real *)p;
  NAME(amp__load)(buf, p, tensor->dtype, stride, n);
  return buf;
}

static void NAME(rows)(const job *job, int64_t begin, int64_t end, int thread)
{
  int64_t n = job->size;
  real *first_buffer = (real *)job->buf + (size_t)thread * 3 * n, *result_buffer = first_buffer + n,
       *output_buffer = result_buffer + n;
  bool direct = job->output->dtype == job->type && (job->output_step == 1 || n == 1);
  amp__walk_pos pos;
  amp__walk_seek(&job->walk, &pos, begin);
  for (int64_t r = begin; r < end; r++, amp__walk_next(&job->walk, &pos)) {
    const real *a = NAME(row)(job->first, pos.off[0], job->first_step, n, job->type, first_buffer), *b = NULL;
    real *y = direct ? (real *)amp__address_of(job->output, pos.off[1]) : output_buffer;
    if (job->what >= SOFTMAX_BACK)
      b = NAME(row)(job->result, pos.off[2], job->result_step, n, job->type, result_buffer);
    if (job->what == SOFTMAX) {
      real s = NAME(amp__row_exp)(y, a, NAME(amp__row_max)(a, n), n);
      NAME(scale)(y, 1 / s, n);
    } else if (job->what == LOG_SOFTMAX) {
      real m = NAME(amp__row_max)(a, n), s = NAME(amp__row_exp)(NULL, a, m, n);
      NAME(amp__row_shift)(y, a, m, s <= FLT_MAX ? (real)amp__log_pos((double)s) : s, n);
    } else if (job->what == SOFTMAX_BACK) NAME(back)(y, a, b, NAME(dot)(a, b, n), n);
    else NAME(log_back)(y, a, b, NAME(amp__row_sum)(a, n), n);
    if (!direct)
      NAME(amp__store)((void *)amp__address_of(job->output, pos.off[1]), job->output->dtype, job->output_step, y, n);
  }
}
