/*
** cpu_ctc.c: rows ctc and ctc_backward: the likelihood of a label sequence under
** all alignments (Graves et al., 2006), by the forward-backward algorithm in the
** logarithmic domain.
**
** A sequence of S labels has L = 2 S + 1 states: blank l1 blank l2 ... blank. State s
** is reached from s, s - 1 and, where it is a label other than that of s - 2, s - 2.
** skip[s] is 0 there and -inf elsewhere, so one loop without branches does a step:
**
**   alpha[t][s] = log(sum exp(alpha[t-1][s], [s-1], [s-2] + skip[s])) + log_probs[t][label(s)]
**   beta[t][s]  = log(sum exp of beta[t+1] + log_probs[t+1] at s, s+1, s+2 + skip[s+2])
**
** beta leaves out step t itself, so exp(alpha + beta + nll) is the probability that
** the alignment is in state s at t, and the gradient of log_probs is minus its sum
** over the states of a label. The forward rows lie behind one another in `alpha`,
** L cells a step, sequence after sequence. Results beyond a sequence's length are 0.
*/
#include "cpu_nn.h"

typedef struct sequence { int64_t steps, labels, target, cells; } sequence; /* target, cells: offsets of its labels and alphas */

typedef struct job {
  bool f64;
  int64_t n, blank, classes, most;     /* most: largest number of labels */
  const amp_tensor *x, *target;
  sequence *seq;
  amp__nn_view v, alpha, dx;           /* log_probs, forward variables, gradient */
  const amp_tensor *nll, *grad;
  char *own; size_t own_bytes;         /* of a thread */
} job;

enum { PAD = 2 }; /* cells of -inf on either side of a row of states */

#define STEP(CLONES, T, S, EXP, LOG)                                                                \
  CLONES static void step_##S(T *restrict y, const T *restrict a, const T *restrict skip, const T *restrict lp, int64_t n, int64_t d) { \
    for (int64_t s = 0; s < n; s++) {                                                               \
      T p = a[s], q = a[s + d], r = a[s + 2 * d] + skip[s];                                         \
      T m = p > q ? p : q;                                                                          \
      m = m > r ? m : r;                                                                            \
      m = m == -INFINITY ? 0 : m;                                                                   \
      y[s] = LOG(EXP(p - m) + EXP(q - m) + EXP(r - m)) + m + lp[s];                                 \
    }                                                                                               \
  }                                                                                                 \
  CLONES static void posterior_##S(T *restrict y, const T *restrict a, const T *restrict b, T nll, int64_t n) { \
    for (int64_t s = 0; s < n; s++) y[s] = EXP(a[s] + b[s] + nll);                                  \
  }
STEP(AMP_CLONES, float, f32, amp__expf, amp__logf)
STEP(AMP_CLONES_WIDE, double, f64, exp, log)

static inline int64_t label(const job *k, const sequence *q, int64_t i) { /* of state 2 i + 1, from 0 */
  int64_t stride = k->target->stride[k->target->ndim - 1];
  return amp__nn_label(amp__data(k->target), k->target->dtype, q->target + i * stride) - 1;
}

#define CTC(T, S)                                                                                   \
  /* a row of states with its padding; labels of states, skips */                                   \
  static T *states_##S(T **at, int64_t L) {                                                         \
    T *p = *at + PAD;                                                                               \
    *at += L + 2 * PAD;                                                                             \
    for (int64_t i = -PAD; i < L + PAD; i++) p[i] = -INFINITY;                                      \
    return p;                                                                                       \
  }                                                                                                 \
  static void scores_##S(const job *k, int64_t t, int64_t n, const int64_t *cls, T *lp, int64_t L) { \
    const T *x = (const T *)k->v.p + t * k->v.stride[0] + n * k->v.stride[1];                       \
    for (int64_t s = 0; s < L; s++) lp[s] = x[cls[s] * k->v.stride[2]];                             \
  }                                                                                                 \
  /* classes of states; skip[s]: from s - 2 into s */                                               \
  static void layout_##S(const job *k, const sequence *q, int64_t *cls, T *skip) {                  \
    int64_t L = 2 * q->labels + 1;                                                                  \
    for (int64_t s = 0; s < L; s++) {                                                               \
      cls[s] = s & 1 ? label(k, q, s / 2) : k->blank;                                               \
      skip[s] = s & 1 && s > 1 && cls[s] != cls[s - 2] ? 0 : -INFINITY;                             \
    }                                                                                               \
  }                                                                                                 \
  static double forward_##S(const job *k, int64_t n, char *own) {                                   \
    const sequence *q = &k->seq[n];                                                                 \
    int64_t L = 2 * q->labels + 1, *cls = (int64_t *)own;                                           \
    T *room = (T *)(cls + 2 * k->most + 1), *skip = states_##S(&room, L), *lp = states_##S(&room, L); \
    T *prev = states_##S(&room, L), *next = states_##S(&room, L), *alpha = (T *)k->alpha.p + q->cells; \
    if (q->steps == 0) return q->labels ? INFINITY : 0;                                             \
    layout_##S(k, q, cls, skip);                                                                    \
    for (int64_t t = 0; t < q->steps; t++, alpha += L) {                                            \
      scores_##S(k, t, n, cls, lp, L);                                                              \
      if (t) step_##S(next, prev, skip, lp, L, -1);                                                 \
      else for (int64_t s = 0; s < L; s++) next[s] = s < 2 ? lp[s] : -INFINITY;                     \
      memcpy(alpha, next, (size_t)L * sizeof(T));                                                   \
      T *swap = prev;                                                                               \
      prev = next;                                                                                  \
      next = swap;                                                                                  \
    }                                                                                               \
    double a = prev[L - 1], b = prev[L - 2], m = a > b ? a : b; /* L = 1: b is padding */           \
    return m == -INFINITY ? INFINITY : -(m + log(exp(a - m) + exp(b - m)));                         \
  }                                                                                                 \
  static void backward_##S(const job *k, int64_t n, char *own) {                                    \
    const sequence *q = &k->seq[n];                                                                 \
    int64_t L = 2 * q->labels + 1, *cls = (int64_t *)own, steps = k->x->size[0];                    \
    T *room = (T *)(cls + 2 * k->most + 1), *skip = states_##S(&room, L), *lp = states_##S(&room, L); \
    T *beta = states_##S(&room, L), *sum = states_##S(&room, L), *zero = states_##S(&room, L), *post = states_##S(&room, L); \
    const T *alpha = (const T *)k->alpha.p + q->cells;                                              \
    double g, nll;                                                                                  \
    amp__nn_load_f64(&g, amp__nn_at(k->grad, n * k->grad->stride[0]), k->grad->dtype, 1, 1);        \
    amp__nn_load_f64(&nll, amp__nn_at(k->nll, n * k->nll->stride[0]), k->nll->dtype, 1, 1);         \
    layout_##S(k, q, cls, skip);                                                                    \
    for (int64_t s = 0; s < L; s++) { zero[s] = 0; beta[s] = s >= L - 2 ? 0 : -INFINITY; }          \
    for (int64_t t = steps - 1; t >= 0; t--) {                                                      \
      T *d = (T *)k->dx.p + t * k->dx.stride[0] + n * k->dx.stride[1];                              \
      memset(d, 0, (size_t)k->classes * sizeof(T));                                                 \
      if (t >= q->steps || g == 0) continue;                                                        \
      if (t < q->steps - 1) {                                                                       \
        scores_##S(k, t + 1, n, cls, lp, L);                                                        \
        for (int64_t s = 0; s < L; s++) sum[s] = beta[s] + lp[s];                                   \
        step_##S(beta, sum, skip + 2, zero, L, 1);                                                  \
      }                                                                                             \
      posterior_##S(post, alpha + t * L, beta, (T)nll, L);                                          \
      for (int64_t s = 0; s < L; s++) d[cls[s]] -= (T)g * post[s];                                  \
    }                                                                                               \
  }
CTC(float, f32)
CTC(double, f64)

static void forward_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const job *k = ctx;
  char *own = k->own + (size_t)thread * k->own_bytes;
  for (int64_t n = begin; n < end; n++) {
    double l = k->f64 ? forward_f64(k, n, own) : forward_f32(k, n, own);
    amp__nn_store_f64((char *)amp__data(k->nll) + n * amp__dtype_size[k->nll->dtype], k->nll->dtype, 1, &l, 1);
  }
}

static void backward_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const job *k = ctx;
  char *own = k->own + (size_t)thread * k->own_bytes;
  for (int64_t n = begin; n < end; n++) {
    if (k->f64) backward_f64(k, n, own);
    else backward_f32(k, n, own);
  }
}

/* Lengths and labels, checked */
static int read_sequences(job *k, amp_tensor *const *in) {
  const amp_tensor *x = in[0], *t = in[1];
  bool padded = t->ndim == 2;
  int64_t at = 0, cells = 0;
  for (int64_t i = 0; i < k->n; i++) {
    sequence *q = &k->seq[i];
    q->steps = amp__nn_label(amp__data(in[2]), in[2]->dtype, i * in[2]->stride[0]);
    q->labels = amp__nn_label(amp__data(in[3]), in[3]->dtype, i * in[3]->stride[0]);
    if (q->steps < 0 || q->steps > x->size[0])
      return amp__fail_arg(AMP_E_VALUE, 3, "input_lengths is %lld at row %lld, expected 0..%lld, the steps of log_probs %s", (long long)q->steps, (long long)i + 1,
                           (long long)x->size[0], amp__shape_str(3, x->size));
    int64_t room = padded ? t->size[1] : t->size[0] - at;
    if (q->labels < 0 || q->labels > room)
      return amp__fail_arg(AMP_E_VALUE, 4, "target_lengths is %lld at row %lld, where targets %s has %lld labels%s", (long long)q->labels, (long long)i + 1,
                           amp__shape_str(t->ndim, t->size), (long long)room, padded ? "" : " left");
    q->target = padded ? i * t->stride[0] : at * t->stride[0];
    q->cells = cells * x->size[0];
    cells += 2 * q->labels + 1;
    at += q->labels;
    if (q->labels > k->most) k->most = q->labels;
    for (int64_t j = 0; j < q->labels; j++) {
      int64_t y = label(k, q, j) + 1;
      if (y < 1 || y > k->classes)
        return amp__fail_arg(AMP_E_INDEX, 2, "label %lld at row %lld, place %lld, expected 1..%lld", (long long)y, (long long)i + 1, (long long)j + 1, (long long)k->classes);
      if (y == k->blank + 1)
        return amp__fail_arg(AMP_E_INDEX, 2, "label %lld at row %lld, place %lld is the blank, which no target holds", (long long)y, (long long)i + 1, (long long)j + 1);
    }
  }
  if (!padded && at != t->size[0])
    return amp__fail_arg(AMP_E_VALUE, 4, "target_lengths add up to %lld, targets has %lld labels", (long long)at, (long long)t->size[0]);
  return 0;
}

/* in: log_probs targets input_lengths target_lengths */
static int run(job *k, amp_tensor *const *in, int64_t blank, amp__nn_body body) {
  amp__nn_scratch s = {0}, own = {0};
  int rc = AMP_E_MEMORY, type = amp__nn_type(in[0]->dtype);
  k->f64 = type == AMP_FLOAT64;
  k->x = in[0];
  k->target = in[1];
  k->n = in[0]->size[1];
  k->classes = in[0]->size[2];
  k->blank = blank - 1;
  sequence few[16];
  if (!amp__nn_lend(&s, few, sizeof few, (size_t)k->n * sizeof *k->seq)) goto out;
  k->seq = s.p;
  if ((rc = read_sequences(k, in)) < 0) goto out;
  rc = AMP_E_MEMORY;
  if (!amp__nn_read(&k->v, in[0], type)) goto out;
  int64_t states = 2 * k->most + 1;
  k->own_bytes = ((size_t)states * sizeof(int64_t) + 6 * (size_t)(states + 2 * PAD) * amp__dtype_size[type] + 63) / 64 * 64;
  int threads = amp__nn_threads(k->n * in[0]->size[0] * (states * 20), k->n);
  char small[4 << 10] __attribute__((aligned(64)));
  if (!amp__nn_lend(&own, small, sizeof small, k->own_bytes * (size_t)threads)) goto out;
  k->own = own.p;
  amp__nn_par(threads, k->n, body, k);
  rc = 0;
out:
  amp__nn_give(&own);
  amp__nn_give(&s);
  amp__nn_drop(&k->v);
  return rc;
}

int amp__cpu_ctc(amp_call *c) {
  job k = {.nll = c->out[0]};
  int type = amp__nn_type(c->in[0]->dtype);
  if (!amp__nn_write_c(&k.alpha, c->out[1], type)) return AMP_E_MEMORY;
  if (c->out[1]->numel) memset(k.alpha.p, 0, (size_t)c->out[1]->numel * amp__dtype_size[type]); /* padding is not left to chance */
  int rc = run(&k, c->in, c->a[0].i, forward_body);
  amp__nn_written(&k.alpha, c->out[1], type);
  return rc;
}

/* grad log_probs targets input_lengths target_lengths nll alpha */
int amp__cpu_ctc_backward(amp_call *c) {
  job k = {.grad = c->in[0], .nll = c->in[5]};
  int type = amp__nn_type(c->in[1]->dtype), rc = AMP_E_MEMORY;
  if (c->out[0]->numel == 0) return 0;
  if (!amp__nn_read_c(&k.alpha, c->in[6], type)) return AMP_E_MEMORY;
  if (!amp__nn_write_c(&k.dx, c->out[0], type)) goto out;
  rc = run(&k, c->in + 1, c->a[0].i, backward_body);
  amp__nn_written(&k.dx, c->out[0], type);
out:
  amp__nn_drop(&k.alpha);
  return rc;
}
