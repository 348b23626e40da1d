/*
** ops/loss/ctc_body.h: the forward and the backward walk over a sequence, for one type (cpu/each_real.h).
*/

CLONES static void NAME(step)(real *restrict y, const real *restrict a, const real *restrict skip,
                              const real *restrict lp, int64_t count, int64_t d)
{
  for (int64_t s = 0; s < count; s++) {
    real base = a[s], seq = a[s + d], r = a[s + 2 * d] + skip[s];
    real largest = base > seq ? base : seq;
    largest = largest > r ? largest : r;
    largest = largest == -INFINITY ? 0 : largest;
    y[s] = LOG(EXP(base - largest) + EXP(seq - largest) + EXP(r - largest)) + largest + lp[s];
  }
}

CLONES static void NAME(posterior)(real *restrict y, const real *restrict a, const real *restrict b, real nll,
                                   int64_t n)
{
  for (int64_t s = 0; s < n; s++) y[s] = EXP(a[s] + b[s] + nll);
}

/* a row of states with its padding; labels of states, skips */
static real *NAME(states)(real **at, int64_t L)
{
  real *base = *at + PAD;
  *at += L + 2 * PAD;
  for (int64_t i = -PAD; i < L + PAD; i++) base[i] = -INFINITY;
  return base;
}

static void NAME(scores)(const job *job, int64_t step_at, int64_t n, const int64_t *cls, real *lp, int64_t L)
{
  const real *x = (const real *)job->log_probs.p + step_at * job->log_probs.stride[0] + n * job->log_probs.stride[1];
  for (int64_t s = 0; s < L; s++) lp[s] = x[cls[s] * job->log_probs.stride[2]];
}

/* classes of states; skip[s]: from s - 2 into s */
static void NAME(layout)(const job *job, const sequence *seq, int64_t *cls, real *skip)
{
  int64_t L = 2 * seq->labels + 1;
  for (int64_t s = 0; s < L; s++) {
    cls[s] = s & 1 ? label(job, seq, s / 2) : job->blank;
    skip[s] = s & 1 && s > 1 && cls[s] != cls[s - 2] ? 0 : -INFINITY;
  }
}

static double NAME(forward)(const job *job, int64_t count, char *own)
{
  const sequence *seq = &job->sequence[count];
  int64_t L = 2 * seq->labels + 1, *cls = (int64_t *)own;
  real *room = (real *)(cls + 2 * job->most + 1), *skip = NAME(states)(&room, L), *lp = NAME(states)(&room, L);
  real *prev = NAME(states)(&room, L), *next = NAME(states)(&room, L), *alpha = (real *)job->alpha.p + seq->cells;
  if (seq->steps == 0) return seq->labels ? INFINITY : 0;
  NAME(layout)(job, seq, cls, skip);
  for (int64_t step_at = 0; step_at < seq->steps; step_at++, alpha += L) {
    NAME(scores)(job, step_at, count, cls, lp, L);
    if (step_at) NAME(step)(next, prev, skip, lp, L, -1);
    else
      for (int64_t s = 0; s < L; s++) next[s] = s < 2 ? lp[s] : -INFINITY;
    memcpy(alpha, next, (size_t)L * sizeof(real));
    real *swap = prev;
    prev = next;
    next = swap;
  }
  double a = prev[L - 1], b = prev[L - 2], largest = a > b ? a : b; /* L = 1: b is padding */
  return largest == -INFINITY ? INFINITY : -(largest + log(exp(a - largest) + exp(b - largest)));
}

static void NAME(backward)(const job *job, int64_t count, char *own)
{
  const sequence *seq = &job->sequence[count];
  int64_t L = 2 * seq->labels + 1, *cls = (int64_t *)own, steps = job->input->size[0];
  real *room = (real *)(cls + 2 * job->most + 1), *skip = NAME(states)(&room, L), *lp = NAME(states)(&room, L);
  real *beta = NAME(states)(&room, L), *sum = NAME(states)(&room, L), *zero = NAME(states)(&room, L),
       *post = NAME(states)(&room, L);
  const real *alpha = (const real *)job->alpha.p + seq->cells;
  double g, nll;
  amp__load_f64(&g, amp__address_of(job->grad, count * job->grad->stride[0]), job->grad->dtype, 1, 1);
  amp__load_f64(&nll, amp__address_of(job->nll, count * job->nll->stride[0]), job->nll->dtype, 1, 1);
  NAME(layout)(job, seq, cls, skip);
  for (int64_t s = 0; s < L; s++) {
    zero[s] = 0;
    beta[s] = s >= L - 2 ? 0 : -INFINITY;
  }
  for (int64_t step_at = steps - 1; step_at >= 0; step_at--) {
    real *d = (real *)job->input_grad.p + step_at * job->input_grad.stride[0] + count * job->input_grad.stride[1];
    memset(d, 0, (size_t)job->classes * sizeof(real));
    if (step_at >= seq->steps || g == 0) continue;
    if (step_at < seq->steps - 1) {
      NAME(scores)(job, step_at + 1, count, cls, lp, L);
      for (int64_t s = 0; s < L; s++) sum[s] = beta[s] + lp[s];
      NAME(step)(beta, sum, skip + 2, zero, L, 1);
    }
    NAME(posterior)(post, alpha + step_at * L, beta, (real)nll, L);
    for (int64_t s = 0; s < L; s++) d[cls[s]] -= (real)g * post[s];
  }
}
