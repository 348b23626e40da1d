/*
** cpu_optim.c: the fused optimizer step on a CPU: SGD, Adam, AdamW.
**
** One pass over each parameter reads gradient (float64, float32, or 16 bits with
** a pending factor), master and state and writes master, state and the 16-bit
** shadow. It goes in blocks that stay in L1: 16-bit data is widened into a block
** of floats, the plain float loop runs, the result is narrowed. The formulas are
** PyTorch's; each is written once and made for float and double by STEP_LOOPS.
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
  int first, nesterov;
} consts;

#define STEP_LOOPS(T, name, sqrt_)                                                                                    \
  AMP_CLONES static void sgd_##name(T *restrict p, const T *restrict g, int64_t n, const consts *c) {                 \
    const T f = (T)c->f, lr = (T)c->lr, wd = (T)c->wd;                                                                \
    if (wd == 0) for (int64_t i = 0; i < n; i++) p[i] -= lr * (f * g[i]);                                             \
    else for (int64_t i = 0; i < n; i++) p[i] -= lr * (f * g[i] + wd * p[i]);                                         \
  }                                                                                                                   \
  AMP_CLONES static void momentum_##name(T *restrict p, const T *restrict g, T *restrict b, int64_t n, const consts *c) { \
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
  AMP_CLONES static void adam_##name(T *restrict p, const T *restrict g, T *restrict m, T *restrict v, int64_t n,     \
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
  AMP_CLONES static void amsgrad_##name(T *restrict p, const T *restrict g, T *restrict m, T *restrict v,             \
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
  static void step_##name(int kind, const amp_hyper *h, T *p, const T *g, T *s0, T *s1, T *s2, int64_t n, const consts *c) { \
    if (kind == AMP_SGD) {                                                                                            \
      if (s0) momentum_##name(p, g, s0, n, c);                                                                        \
      else sgd_##name(p, g, n, c);                                                                                    \
    } else if (h->amsgrad) amsgrad_##name(p, g, s0, s1, s2, n, c);                                                    \
    else adam_##name(p, g, s0, s1, n, c);                                                                             \
  }

STEP_LOOPS(float, f, sqrtf)
STEP_LOOPS(double, d, sqrt)

static consts prepare(int kind, const amp_hyper *h, const amp_optim_chunk *k)
{
  consts c = {0};
  c.f = (k->factor ? *k->factor : 1.0) * (h->maximize ? -1 : 1);
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
  if (kind == AMP_ADAMW) {
    c.decay = 1 - h->lr * h->weight_decay;
    c.wd = 0;
  }
  c.beta1_ = 1 - h->beta1;
  c.beta2 = h->beta2;
  c.beta2_ = 1 - h->beta2;
  c.step = h->lr / (1 - pow(h->beta1, t));
  c.root = 1 / sqrt(1 - pow(h->beta2, t));
  c.eps = h->eps;
  return c;
}

/* -- Pieces of a parameter ------------------------------------------------------ */

#define AT(p, i, size) ((char *)(p) + (i) * (int64_t)(size))
#define STATE(T, s, i) ((s) ? (T *)(void *)(s) + (i) : NULL)

/* Elements [from, to) of a chunk. */
static void piece(int kind, const amp_hyper *h, const amp_optim_chunk *k, const consts *c, int64_t from, int64_t to)
{
  _Alignas(64) float gbuf[BLOCK], pbuf[BLOCK];
  const int gsize = amp__dtype_size[k->grad_dtype];
  for (int64_t i = from; i < to; i += BLOCK) {
    int64_t n = to - i < BLOCK ? to - i : BLOCK;
    const void *g = AT(k->grad, i, gsize);
    if (k->master_dtype == AMP_FLOAT64) {
      double wide[BLOCK];
      if (k->grad_dtype != AMP_FLOAT64) { amp__load(AMP_C_F64, wide, k->grad_dtype, g, 1, n); g = wide; }
      step_d(kind, h, (double *)(void *)k->master + i, g, STATE(double, k->s0, i), STATE(double, k->s1, i), STATE(double, k->s2, i), n, c);
      continue;
    }
    if (k->grad_dtype != AMP_FLOAT32) { amp__load(AMP_C_F32, gbuf, k->grad_dtype, g, 1, n); g = gbuf; }
    float *p = k->master + i;
    bool half = k->master_dtype != AMP_FLOAT32;
    if (half) {
      amp__load(AMP_C_F32, pbuf, k->master_dtype, AT(k->master, i, 2), 1, n);
      p = pbuf;
    }
    step_f(kind, h, p, g, STATE(float, k->s0, i), STATE(float, k->s1, i), STATE(float, k->s2, i), n, c);
    if (half) amp__store(k->master_dtype, AT(k->master, i, 2), 1, AMP_C_F32, pbuf, n);
    else if (k->shadow) amp__store(k->shadow_dtype, AT(k->shadow, i, 2), 1, AMP_C_F32, p, n);
  }
}

int amp__cpu_optim_step(int kind, const amp_hyper *h, amp_optim_chunk *chunks, int n, const float *const *found, int nfound)
{
  for (int i = 0; i < nfound; i++)
    if (*found[i] != 0) return 0;
  int64_t total = 0;
  for (int i = 0; i < n; i++) total += chunks[i].n;
  consts few[8], *c = n <= 8 ? few : malloc(sizeof *c * (size_t)n);
  if (!c) return amp__nomem(sizeof *c * (size_t)n);
  for (int i = 0; i < n; i++) c[i] = prepare(kind, h, &chunks[i]);
  int threads = amp__threads(total * (kind == AMP_SGD ? 2 : 4));
  int64_t share = (total + threads - 1) / threads;
  share = (share + 63) / 64 * 64; /* whole cache lines a thread */
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
  for (int t = 0; t < threads; t++) {
    int64_t from = t * share, to = from + share, at = 0; /* on the line of all elements */
    for (int i = 0; i < n && at < to; at += chunks[i++].n) {
      int64_t a = from > at ? from - at : 0, b = to - at < chunks[i].n ? to - at : chunks[i].n;
      if (a < b) piece(kind, h, &chunks[i], &c[i], a, b);
    }
  }
  for (int i = 0; i < n; i++) {
    chunks[i].steps[0] += 1;
    if (kind == AMP_SGD && chunks[i].s0) chunks[i].steps[1] += 1;
  }
  if (c != few) free(c);
  return 0;
}
