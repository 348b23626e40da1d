/*
** cpu_optim.c: the fused optimizer step on a CPU: SGD, Adam, AdamW, RMSprop,
** Adagrad, LAMB.
**
** One pass over each parameter reads gradient (float64, float32, or 16 bits with
** a pending factor), master and state and writes master, state and the 16-bit
** shadow. It goes in blocks that stay in L1: 16-bit data is widened into a block
** of floats, the plain float loop runs, the result is narrowed. The formulas are
** PyTorch's (LAMB's are You et al., 2020, with a pass before the update that takes
** the norms of parameter and update); each is made for float and double by STEP_LOOPS.
** float32 masters are the fast path; float64 ones run in double, 16-bit ones in
** float with float state.
**
** The chunks of a call are one long line of elements that the threads share
** evenly. If any found-inf cell is set, nothing at all is touched.
*/
#include <math.h>
#include <stdlib.h>
#include "../amp_scale.h"
#include "cpu_convert.h"
#include "cpu_math.h"

enum { BLOCK = 1024 }; /* elements: four float blocks are 16 KiB */

/* -- Formulas ---------------------------------------------------------------- */

typedef struct consts { /* of one parameter's step */
  double f;             /* factor of the gradient, sign included */
  double lr, wd, momentum, dampening1; /* 1 - dampening */
  double beta1_, beta2, beta2_;        /* 1 - beta1, beta2, 1 - beta2 */
  double step, root, eps;              /* lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
  double decay;                        /* AdamW: 1 - lr * wd */
  double alpha, alpha_;                /* RMSprop: alpha, 1 - alpha */
  double correct;                      /* LAMB: 1 / (1 - beta1^t); step is lr times the trust ratio */
  int first, nesterov;                 /* first: Adagrad's sum begins, at alpha */
} consts;

enum { LANES = 16 }; /* of a sum of squares */

#define RMSPROP(T, name, sqrt_, CENTER, MOVE)                                                                         \
  AMP_CLONES_OF(T) static void name(T *restrict p, const T *restrict g, T *restrict v, T *restrict b, T *restrict a, int64_t n, const consts *c) { \
    const T f = (T)c->f, wd = (T)c->wd, lr = (T)c->lr, keep = (T)c->alpha, in = (T)c->alpha_, look = (T)c->momentum, eps = (T)c->eps; \
    (void)look; (void)a; (void)b;                                                                                     \
    for (int64_t i = 0; i < n; i++) {                                                                                 \
      T x = f * g[i] + wd * p[i], v1 = keep * v[i] + in * (x * x), u = v1, d;                                         \
      v[i] = v1;                                                                                                      \
      if (CENTER) { T a1 = a[i] + in * (x - a[i]); a[i] = a1; u = v1 - a1 * a1; }                                     \
      d = x / (sqrt_(u) + eps);                                                                                       \
      if (MOVE) { d += look * b[i]; b[i] = d; }                                                                       \
      p[i] -= lr * d;                                                                                                 \
    }                                                                                                                 \
  }

#define STEP_LOOPS(T, name, sqrt_)                                                                                    \
  AMP_CLONES_OF(T) static void sgd_##name(T *restrict p, const T *restrict g, int64_t n, const consts *c) {           \
    const T f = (T)c->f, lr = (T)c->lr, wd = (T)c->wd;                                                                \
    if (wd == 0) for (int64_t i = 0; i < n; i++) p[i] -= lr * (f * g[i]);                                             \
    else for (int64_t i = 0; i < n; i++) p[i] -= lr * (f * g[i] + wd * p[i]);                                         \
  }                                                                                                                   \
  AMP_CLONES_OF(T) static void momentum_##name(T *restrict p, const T *restrict g, T *restrict b, int64_t n, const consts *c) { \
    const T f = (T)c->f, lr = (T)c->lr, wd = (T)c->wd, m = c->first ? 0 : (T)c->momentum;                             \
    const T d = c->first ? 1 : (T)c->dampening1, look = (T)c->momentum;                                               \
    if (c->nesterov)                                                                                                  \
      for (int64_t i = 0; i < n; i++) {                                                                               \
        T x = f * g[i];                                                                                               \
        if (wd != 0) x += wd * p[i];                                                                                  \
        T v = m * b[i] + d * x;                                                                                       \
        b[i] = v;                                                                                                     \
        p[i] -= lr * (x + look * v);                                                                                  \
      }                                                                                                               \
    else                                                                                                              \
      for (int64_t i = 0; i < n; i++) {                                                                               \
        T x = f * g[i];                                                                                               \
        if (wd != 0) x += wd * p[i];                                                                                  \
        T v = m * b[i] + d * x;                                                                                       \
        b[i] = v;                                                                                                     \
        p[i] -= lr * v;                                                                                               \
      }                                                                                                               \
  }                                                                                                                   \
  AMP_CLONES_OF(T) static void adam_##name(T *restrict p, const T *restrict g, T *restrict m, T *restrict v, int64_t n,     \
                                     const consts *c) {                                                               \
    const T f = (T)c->f, wd = (T)c->wd, a = (T)c->beta1_, b = (T)c->beta2, b_ = (T)c->beta2_;                         \
    const T step = (T)c->step, root = (T)c->root, eps = (T)c->eps, decay = (T)c->decay;                               \
    for (int64_t i = 0; i < n; i++) {                                                                                 \
      T w = p[i] * decay, x = f * g[i];                                                                               \
      if (wd != 0) x += wd * w;                                                                                       \
      T m1 = m[i] + a * (x - m[i]);                                                                                   \
      T v1 = b * v[i] + b_ * (x * x);                                                                                 \
      m[i] = m1;                                                                                                      \
      v[i] = v1;                                                                                                      \
      p[i] = w - step * m1 / (sqrt_(v1) * root + eps);                                                                \
    }                                                                                                                 \
  }                                                                                                                   \
  AMP_CLONES_OF(T) static void amsgrad_##name(T *restrict p, const T *restrict g, T *restrict m, T *restrict v,       \
                                        T *restrict most, int64_t n, const consts *c) {                               \
    const T f = (T)c->f, wd = (T)c->wd, a = (T)c->beta1_, b = (T)c->beta2, b_ = (T)c->beta2_;                         \
    const T step = (T)c->step, root = (T)c->root, eps = (T)c->eps, decay = (T)c->decay;                               \
    for (int64_t i = 0; i < n; i++) {                                                                                 \
      T w = p[i] * decay, x = f * g[i];                                                                               \
      if (wd != 0) x += wd * w;                                                                                       \
      T m1 = m[i] + a * (x - m[i]);                                                                                   \
      T v1 = b * v[i] + b_ * (x * x);                                                                                 \
      T top = most[i] > v1 ? most[i] : v1;                                                                            \
      m[i] = m1;                                                                                                      \
      v[i] = v1;                                                                                                      \
      most[i] = top;                                                                                                  \
      p[i] = w - step * m1 / (sqrt_(top) * root + eps);                                                               \
    }                                                                                                                 \
  }                                                                                                                   \
  RMSPROP(T, rms_##name, sqrt_, 0, 0)                                                                                 \
  RMSPROP(T, rms_moving_##name, sqrt_, 0, 1)                                                                          \
  RMSPROP(T, rms_centered_##name, sqrt_, 1, 0)                                                                        \
  RMSPROP(T, rms_both_##name, sqrt_, 1, 1)                                                                            \
  AMP_CLONES_OF(T) static void adagrad_##name(T *restrict p, const T *restrict g, T *restrict s, int64_t n, const consts *c) { \
    const T f = (T)c->f, wd = (T)c->wd, lr = (T)c->lr, eps = (T)c->eps, keep = c->first ? 0 : 1, from = c->first ? (T)c->alpha : 0; \
    for (int64_t i = 0; i < n; i++) {                                                                                 \
      T x = f * g[i] + wd * p[i], s1 = keep * s[i] + from + x * x;                                                    \
      s[i] = s1;                                                                                                      \
      p[i] -= lr * (x / (sqrt_(s1) + eps));                                                                           \
    }                                                                                                                 \
  }                                                                                                                   \
  /* moments, and the squares of parameter and update added to norm */                                                \
  AMP_CLONES_OF(T) static void lamb_norms_##name(const T *restrict p, const T *restrict g, T *restrict m, T *restrict v, int64_t n, const consts *c, double *norm) { \
    const T f = (T)c->f, wd = (T)c->wd, a = (T)c->beta1_, b = (T)c->beta2, b_ = (T)c->beta2_;                         \
    const T correct = (T)c->correct, root = (T)c->root, eps = (T)c->eps;                                              \
    T ps[LANES] = {0}, us[LANES] = {0};                                                                               \
    for (int64_t i = 0; i < n; i += LANES) {                                                                          \
      int64_t k = n - i < LANES ? n - i : LANES;                                                                      \
      for (int64_t j = 0; j < k; j++) {                                                                               \
        T x = f * g[i + j], w = p[i + j], m1 = m[i + j] + a * (x - m[i + j]), v1 = b * v[i + j] + b_ * (x * x);       \
        T u = correct * m1 / (sqrt_(v1) * root + eps) + wd * w;                                                       \
        m[i + j] = m1;                                                                                                \
        v[i + j] = v1;                                                                                                \
        ps[j] += w * w;                                                                                               \
        us[j] += u * u;                                                                                               \
      }                                                                                                               \
    }                                                                                                                 \
    for (int j = 0; j < LANES; j++) { norm[0] += ps[j]; norm[1] += us[j]; }                                           \
  }                                                                                                                   \
  AMP_CLONES_OF(T) static void lamb_##name(T *restrict p, const T *restrict m, const T *restrict v, int64_t n, const consts *c) { \
    const T wd = (T)c->wd, correct = (T)c->correct, root = (T)c->root, eps = (T)c->eps, step = (T)c->step;            \
    for (int64_t i = 0; i < n; i++) p[i] -= step * (correct * m[i] / (sqrt_(v[i]) * root + eps) + wd * p[i]);         \
  }                                                                                                                   \
  static void step_##name(int kind, const amp_hyper *h, T *p, const T *g, T *s0, T *s1, T *s2, int64_t n, const consts *c, double *norm) { \
    switch (kind) {                                                                                                   \
    case AMP_SGD:                                                                                                     \
      if (s0) momentum_##name(p, g, s0, n, c);                                                                        \
      else sgd_##name(p, g, n, c);                                                                                    \
      break;                                                                                                          \
    case AMP_RMSPROP: (s2 ? s1 ? rms_both_##name : rms_centered_##name : s1 ? rms_moving_##name : rms_##name)(p, g, s0, s1, s2, n, c); break; \
    case AMP_ADAGRAD: adagrad_##name(p, g, s0, n, c); break;                                                          \
    case AMP_LAMB:                                                                                                    \
      if (norm) lamb_norms_##name(p, g, s0, s1, n, c, norm);                                                          \
      else lamb_##name(p, s0, s1, n, c);                                                                              \
      break;                                                                                                          \
    default:                                                                                                          \
      if (h->amsgrad) amsgrad_##name(p, g, s0, s1, s2, n, c);                                                         \
      else adam_##name(p, g, s0, s1, n, c);                                                                           \
    }                                                                                                                 \
  }

STEP_LOOPS(float, f, sqrtf)
STEP_LOOPS(double, d, sqrt)

static consts prepare(int kind, const amp_hyper *h, const amp_optim_chunk *k)
{
  consts c = {0};
  c.f = (k->factor ? *k->factor : 1.0) * (h->maximize ? -1 : 1) * (h->rescale != 0 ? h->rescale : 1);
  c.lr = h->lr;
  c.wd = h->weight_decay;
  c.decay = 1;
  if (kind == AMP_SGD) {
    c.momentum = h->momentum;
    c.dampening1 = 1 - h->dampening;
    c.nesterov = h->nesterov;
    c.first = k->steps[1] == 0;
    return c;
  }
  double t = k->steps[0] + 1;
  c.eps = h->eps;
  if (kind == AMP_RMSPROP) {
    c.momentum = h->momentum;
    c.alpha = h->alpha;
    c.alpha_ = 1 - h->alpha;
    return c;
  }
  if (kind == AMP_ADAGRAD) {
    c.lr = h->lr / (1 + (t - 1) * h->lr_decay);
    c.alpha = h->initial;
    c.first = k->steps[0] == 0;
    return c;
  }
  if (kind == AMP_ADAMW) {
    c.decay = 1 - h->lr * h->weight_decay;
    c.wd = 0;
  }
  c.beta1_ = 1 - h->beta1;
  c.beta2 = h->beta2;
  c.beta2_ = 1 - h->beta2;
  c.step = h->lr / (1 - pow(h->beta1, t));
  c.root = 1 / sqrt(1 - pow(h->beta2, t));
  if (kind == AMP_LAMB) {
    c.correct = h->bias_correction ? 1 / (1 - pow(h->beta1, t)) : 1;
    if (!h->bias_correction) c.root = 1;
  }
  return c;
}

/* -- Pieces of a parameter ------------------------------------------------------ */

#define AT(p, i, size) ((char *)(p) + (i) * (int64_t)(size))
#define STATE(T, s, i) ((s) ? (T *)(void *)(s) + (i) : NULL)

/* Elements [from, to) of a chunk. norm: LAMB's pass that leaves the parameter alone */
static void piece(int kind, const amp_hyper *h, const amp_optim_chunk *k, const consts *c, int64_t from, int64_t to, double *norm)
{
  _Alignas(64) float gbuf[BLOCK], pbuf[BLOCK];
  const int gsize = amp__dtype_size[k->grad_dtype];
  for (int64_t i = from; i < to; i += BLOCK) {
    int64_t n = to - i < BLOCK ? to - i : BLOCK;
    const void *g = AT(k->grad, i, gsize);
    if (k->master_dtype == AMP_FLOAT64) {
      double wide[BLOCK];
      if (k->grad_dtype != AMP_FLOAT64) { amp__load(AMP_C_F64, wide, k->grad_dtype, g, 1, n); g = wide; }
      step_d(kind, h, (double *)(void *)k->master + i, g, STATE(double, k->s0, i), STATE(double, k->s1, i), STATE(double, k->s2, i), n, c, norm);
      continue;
    }
    if (k->grad_dtype != AMP_FLOAT32) { amp__load(AMP_C_F32, gbuf, k->grad_dtype, g, 1, n); g = gbuf; }
    float *p = k->master + i;
    bool half = k->master_dtype != AMP_FLOAT32;
    if (half) {
      amp__load(AMP_C_F32, pbuf, k->master_dtype, AT(k->master, i, 2), 1, n);
      p = pbuf;
    }
    step_f(kind, h, p, g, STATE(float, k->s0, i), STATE(float, k->s1, i), STATE(float, k->s2, i), n, c, norm);
    if (norm) continue;
    if (half) amp__store(k->master_dtype, AT(k->master, i, 2), 1, AMP_C_F32, pbuf, n);
    else if (k->shadow) amp__store(k->shadow_dtype, AT(k->shadow, i, 2), 1, AMP_C_F32, p, n);
  }
}

typedef struct line { /* a call's chunks, as one line of elements */
  int kind, n, threads;
  const amp_hyper *h;
  const amp_optim_chunk *chunks;
  consts *c;
  int64_t total;
  double (*norm)[2]; /* [threads][n], or NULL */
} line;

static void pass(const line *l)
{
  int64_t share = (l->total + l->threads - 1) / l->threads;
  share = (share + 63) / 64 * 64; /* whole cache lines a thread */
#pragma omp parallel for num_threads(l->threads) schedule(static, 1) if (l->threads > 1)
  for (int t = 0; t < l->threads; t++) {
    int64_t from = t * share, to = from + share, at = 0; /* on the line of all elements */
    for (int i = 0; i < l->n && at < to; at += l->chunks[i++].n) {
      int64_t a = from > at ? from - at : 0, b = to - at < l->chunks[i].n ? to - at : l->chunks[i].n;
      if (a < b) piece(l->kind, l->h, &l->chunks[i], &l->c[i], a, b, l->norm ? l->norm[t * l->n + i] : NULL);
    }
  }
}

/* LAMB's moments, and each parameter's step: lr |parameter| / |update| */
static int trust(line *l)
{
  size_t n = (size_t)l->threads * (size_t)l->n;
  l->norm = calloc(n ? n : 1, sizeof *l->norm);
  if (!l->norm) return amp__nomem(n * sizeof *l->norm);
  pass(l);
  for (int i = 0; i < l->n; i++) {
    double p = 0, u = 0;
    for (int t = 0; t < l->threads; t++) { p += l->norm[t * l->n + i][0]; u += l->norm[t * l->n + i][1]; }
    l->c[i].step = l->h->lr;
    if ((l->h->weight_decay != 0 || l->h->always_adapt) && p > 0 && u > 0) l->c[i].step *= sqrt(p) / sqrt(u);
  }
  free(l->norm);
  l->norm = NULL;
  return 0;
}

int amp__cpu_optim_step(int kind, const amp_hyper *h, const amp_hyper *there, amp_optim_chunk *chunks, int n, const float *const *found, int nfound)
{
  for (int i = 0; i < nfound; i++)
    if (*found[i] != 0) return 0;
  consts few[8], *c = n <= 8 ? few : malloc(sizeof *c * (size_t)n);
  if (!c) return amp__nomem(sizeof *c * (size_t)n);
  line l = {.kind = kind, .n = n, .h = h, .chunks = chunks, .c = c};
  int rc = 0;
  for (int i = 0; i < n; i++) {
    c[i] = prepare(kind, h, &chunks[i]);
    l.total += chunks[i].n;
  }
  l.threads = amp__threads(l.total * (kind == AMP_SGD ? 2 : 4));
  if (kind == AMP_LAMB && (rc = trust(&l)) != 0) goto out;
  pass(&l);
  for (int i = 0; i < n; i++) {
    chunks[i].steps[0] += 1;
    if (kind == AMP_SGD && chunks[i].s0) chunks[i].steps[1] += 1;
  }
out:
  if (c != few) free(c);
  return rc;
}
