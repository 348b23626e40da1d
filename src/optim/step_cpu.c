/*
** optim/step_cpu.c: the fused optimizer step on a CPU: SGD, Adam, AdamW, RMSprop,
** Adagrad, LAMB, NAdam, RAdam, Adadelta, Adamax, Lion.
**
** One pass over each parameter reads gradient (float64, float32, or 16 bits with
** a pending factor), master and state and writes master, state and the 16-bit
** shadow. It goes in blocks that stay in L1: 16-bit data is widened into a block
** of floats, the plain float loop runs, the result is narrowed. The formulas are
** PyTorch's (LAMB's are You et al., 2020, with a pass before the update that takes
** the norms of parameter and update); each is made for float and double by STEP_LOOPS, or in optim/step_body.h.
** float32 masters are the fast path; float64 ones run in double, 16-bit ones in
** float with float state.
**
** The chunks of a call are one long line of elements that the threads share
** evenly. If any found-inf cell is set, nothing at all is touched.
*/
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include "base/workers.h"
#include "precision/scale.h"
#include "cpu/convert.h"
#include "cpu/vector_math.h"
#include "optim/rates.h"

enum { BLOCK = 1024 }; /* elements: four float blocks are 16 KiB */

/* -- Formulas ---------------------------------------------------------------- */

typedef struct consts {                          /* of one parameter's step */
  double factor;                                 /* factor of the gradient, sign included */
  double lr, weight_decay, momentum, dampening1; /* 1 - dampening */
  double beta1_, beta2, beta2_;                  /* 1 - beta1, beta2, 1 - beta2 */
  double step, root, eps;                        /* lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
  double decay;                                  /* AdamW: 1 - lr * wd */
  double alpha, alpha_;                          /* RMSprop: alpha, 1 - alpha; Adadelta's rho */
  double product;                                /* NAdam: of all momenta so far */
  double correct;                                /* LAMB: 1 / (1 - beta1^t); step is lr times the trust ratio.
                                                 ** NAdam: the gradient's rate; step is the momentum's */
  int first, nesterov;                           /* first: Adagrad's sum begins, at alpha; RAdam adapts */
} consts;

#define BODY "optim/step_body.h"
#include "cpu/each_real.h"

enum { LANES = 16 }; /* of a sum of squares */

#define RMSPROP(T, name, sqrt_, CENTER, MOVE)                                                                  \
  AMP_CLONES_OF(T)                                                                                             \
  static void name(T *restrict p, const T *restrict g, T *restrict v, T *restrict b, T *restrict a, int64_t n, \
                   const consts *consts)                                                                       \
  {                                                                                                            \
    const T f = (T)consts->factor, wd = (T)consts->weight_decay, lr = (T)consts->lr, keep = (T)consts->alpha,  \
            in = (T)consts->alpha_, look = (T)consts->momentum, eps = (T)consts->eps;                          \
    (void)look;                                                                                                \
    (void)a;                                                                                                   \
    (void)b;                                                                                                   \
    for (int64_t i = 0; i < n; i++) {                                                                          \
      T x = f * g[i] + wd * p[i], v1 = keep * v[i] + in * (x * x), u = v1, d;                                  \
      v[i] = v1;                                                                                               \
      if (CENTER) {                                                                                            \
        T a1 = a[i] + in * (x - a[i]);                                                                         \
        a[i] = a1;                                                                                             \
        u = v1 - a1 * a1;                                                                                      \
      }                                                                                                        \
      d = x / (sqrt_(u) + eps);                                                                                \
      if (MOVE) {                                                                                              \
        d += look * b[i];                                                                                      \
        b[i] = d;                                                                                              \
      }                                                                                                        \
      p[i] -= lr * d;                                                                                          \
    }                                                                                                          \
  }

#define STEP_LOOPS(T, name, sqrt_, bits)                                                                              \
  AMP_CLONES_OF(T) static void sgd_##name(T *restrict p, const T *restrict g, int64_t n, const consts *consts)        \
  {                                                                                                                   \
    const T f = (T)consts->factor, lr = (T)consts->lr, wd = (T)consts->weight_decay;                                  \
    if (wd == 0)                                                                                                      \
      for (int64_t i = 0; i < n; i++) p[i] -= lr * (f * g[i]);                                                        \
    else                                                                                                              \
      for (int64_t i = 0; i < n; i++) p[i] -= lr * (f * g[i] + wd * p[i]);                                            \
  }                                                                                                                   \
  AMP_CLONES_OF(T)                                                                                                    \
  static void momentum_##name(T *restrict p, const T *restrict g, T *restrict b, int64_t n, const consts *consts)     \
  {                                                                                                                   \
    const T f = (T)consts->factor, lr = (T)consts->lr, wd = (T)consts->weight_decay,                                  \
            m = consts->first ? 0 : (T)consts->momentum;                                                              \
    const T d = consts->first ? 1 : (T)consts->dampening1, look = (T)consts->momentum;                                \
    if (consts->nesterov)                                                                                             \
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
  AMP_CLONES_OF(T)                                                                                                    \
  static void adam_##name(T *restrict p, const T *restrict g, T *restrict m, T *restrict v, int64_t n,                \
                          const consts *consts)                                                                       \
  {                                                                                                                   \
    const T f = (T)consts->factor, wd = (T)consts->weight_decay, a = (T)consts->beta1_, b = (T)consts->beta2,         \
            b_ = (T)consts->beta2_;                                                                                   \
    const T step = (T)consts->step, root = (T)consts->root, eps = (T)consts->eps, decay = (T)consts->decay;           \
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
  AMP_CLONES_OF(T)                                                                                                    \
  static void amsgrad_##name(T *restrict p, const T *restrict g, T *restrict m, T *restrict v, T *restrict most,      \
                             int64_t n, const consts *consts)                                                         \
  {                                                                                                                   \
    const T f = (T)consts->factor, wd = (T)consts->weight_decay, a = (T)consts->beta1_, b = (T)consts->beta2,         \
            b_ = (T)consts->beta2_;                                                                                   \
    const T step = (T)consts->step, root = (T)consts->root, eps = (T)consts->eps, decay = (T)consts->decay;           \
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
  AMP_CLONES_OF(T)                                                                                                    \
  static void adagrad_##name(T *restrict p, const T *restrict g, T *restrict s, int64_t n, const consts *consts)      \
  {                                                                                                                   \
    const T f = (T)consts->factor, wd = (T)consts->weight_decay, lr = (T)consts->lr, eps = (T)consts->eps,            \
            keep = consts->first ? 0 : 1, from = consts->first ? (T)consts->alpha : 0;                                \
    for (int64_t i = 0; i < n; i++) {                                                                                 \
      T x = f * g[i] + wd * p[i], s1 = keep * s[i] + from + x * x;                                                    \
      s[i] = s1;                                                                                                      \
      p[i] -= lr * (x / (sqrt_(s1) + eps));                                                                           \
    }                                                                                                                 \
  }                                                                                                                   \
  /* moments, and the squares of parameter and update added to norm */                                                \
  AMP_CLONES_OF(T)                                                                                                    \
  static void lamb_norms_##name(const T *restrict p, const T *restrict g, T *restrict m, T *restrict v, int64_t n,    \
                                const consts *consts, double *norm)                                                   \
  {                                                                                                                   \
    const T f = (T)consts->factor, wd = (T)consts->weight_decay, a = (T)consts->beta1_, b = (T)consts->beta2,         \
            b_ = (T)consts->beta2_;                                                                                   \
    const T correct = (T)consts->correct, root = (T)consts->root, eps = (T)consts->eps;                               \
    T ps[LANES] = { 0 }, us[LANES] = { 0 };                                                                           \
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
    for (int j = 0; j < LANES; j++) {                                                                                 \
      norm[0] += ps[j];                                                                                               \
      norm[1] += us[j];                                                                                               \
    }                                                                                                                 \
  }                                                                                                                   \
  AMP_CLONES_OF(T)                                                                                                    \
  static void lamb_##name(T *restrict p, const T *restrict m, const T *restrict v, int64_t n, const consts *consts)   \
  {                                                                                                                   \
    const T wd = (T)consts->weight_decay, correct = (T)consts->correct, root = (T)consts->root, eps = (T)consts->eps, \
            step = (T)consts->step;                                                                                   \
    for (int64_t i = 0; i < n; i++) p[i] -= step * (correct * m[i] / (sqrt_(v[i]) * root + eps) + wd * p[i]);         \
  }                                                                                                                   \
  static void step_##name(int kind, const amp_hyper *h, T *p, const T *g, T *s0, T *s1, T *s2, int64_t n,             \
                          const consts *consts, double *norm)                                                         \
  {                                                                                                                   \
    AMP_ASSUME(kind >= 0 && kind < AMP_OPTIM_COUNT);                                                                  \
    switch ((enum amp_optim_kind)kind) {                                                                              \
    case AMP_SGD:                                                                                                     \
      if (s0) momentum_##name(p, g, s0, n, consts);                                                                   \
      else sgd_##name(p, g, n, consts);                                                                               \
      break;                                                                                                          \
    case AMP_RMSPROP:                                                                                                 \
      (s2   ? s1 ? rms_both_##name : rms_centered_##name                                                              \
       : s1 ? rms_moving_##name                                                                                       \
            : rms_##name)(p, g, s0, s1, s2, n, consts);                                                               \
      break;                                                                                                          \
    case AMP_ADAGRAD: adagrad_##name(p, g, s0, n, consts); break;                                                     \
    case AMP_LAMB:                                                                                                    \
      if (norm) lamb_norms_##name(p, g, s0, s1, n, consts, norm);                                                     \
      else lamb_##name(p, s0, s1, n, consts);                                                                         \
      break;                                                                                                          \
    case AMP_ADAM:                                                                                                    \
    case AMP_ADAMW:                                                                                                   \
      if (h->amsgrad) amsgrad_##name(p, g, s0, s1, s2, n, consts);                                                    \
      else adam_##name(p, g, s0, s1, n, consts);                                                                      \
      break;                                                                                                          \
    case AMP_NADAM: nadam_##bits(p, g, s0, s1, n, consts); break;                                                     \
    case AMP_RADAM: radam_##bits(p, g, s0, s1, n, consts); break;                                                     \
    case AMP_ADADELTA: adadelta_##bits(p, g, s0, s1, n, consts); break;                                               \
    case AMP_ADAMAX: adamax_##bits(p, g, s0, s1, n, consts); break;                                                   \
    case AMP_LION: lion_##bits(p, g, s0, n, consts); break;                                                           \
    case AMP_OPTIM_COUNT: break;                                                                                      \
    }                                                                                                                 \
  }

STEP_LOOPS(float, f, sqrtf, f32)
STEP_LOOPS(double, d, sqrt, f64)

/* Constants that NAdam and RAdam have beyond Adam's, at step t. */
static void prepare_kind(consts *values, int kind, const amp_hyper *hyper, const amp_optim_chunk *chunk, double t)
{
  if (kind == AMP_NADAM) {
    amp__nadam rates = amp__nadam_rates(hyper->beta1, hyper->lr_decay, chunk->steps);
    values->product = rates.product;
    values->correct = hyper->lr * (1 - rates.mu) / (1 - rates.product);
    values->step = hyper->lr * rates.mu_next / (1 - rates.product * rates.mu_next);
  } else if (kind == AMP_RADAM) {
    double adapt = amp__radam_rate(hyper->beta2, t);
    values->first = adapt > 0;
    if (values->first) values->step *= adapt;
  }
}

static consts prepare(int kind, const amp_hyper *hyper, const amp_optim_chunk *chunk)
{
  consts values = { 0 };
  values.factor = (chunk->factor ? *chunk->factor : 1.0) * (hyper->maximize ? -1 : 1)
                  * (hyper->rescale != 0 ? hyper->rescale : 1);
  values.lr = hyper->lr;
  values.weight_decay = hyper->weight_decay;
  values.decay = 1;
  if (kind == AMP_SGD) {
    values.momentum = hyper->momentum;
    values.dampening1 = 1 - hyper->dampening;
    values.nesterov = hyper->nesterov;
    values.first = chunk->steps[1] == 0;
    return values;
  }
  double t = chunk->steps[0] + 1;
  values.eps = hyper->eps;
  if (kind == AMP_RMSPROP || kind == AMP_ADADELTA) {
    values.momentum = hyper->momentum;
    values.alpha = hyper->alpha;
    values.alpha_ = 1 - hyper->alpha;
    return values;
  }
  if (kind == AMP_ADAGRAD) {
    values.lr = hyper->lr / (1 + (t - 1) * hyper->lr_decay);
    values.alpha = hyper->initial;
    values.first = chunk->steps[0] == 0;
    return values;
  }
  if (kind == AMP_ADAMW || kind == AMP_LION || hyper->decoupled) {
    values.decay = 1 - hyper->lr * hyper->weight_decay;
    values.weight_decay = 0;
  }
  values.beta1_ = 1 - hyper->beta1;
  values.beta2 = hyper->beta2;
  values.beta2_ = 1 - hyper->beta2;
  values.step = hyper->lr / (1 - pow(hyper->beta1, t));
  values.root = 1 / sqrt(1 - pow(hyper->beta2, t));
  if (kind == AMP_LAMB) {
    values.correct = hyper->bias_correction ? 1 / (1 - pow(hyper->beta1, t)) : 1;
    if (!hyper->bias_correction) values.root = 1;
  }
  prepare_kind(&values, kind, hyper, chunk, t);
  return values;
}

/* -- Pieces of a parameter ------------------------------------------------------ */

#define AT(p, i, size) ((char *)(p) + (i) * (int64_t)(size))
#define STATE(T, s, i) ((s) ? (T *)(void *)(s) + (i) : NULL)

/* Elements [from, to) of a chunk. norm: LAMB's pass that leaves the parameter alone */
static void piece(int kind, const amp_hyper *hyper, const amp_optim_chunk *chunk, const consts *consts, int64_t from,
                  int64_t to, double *norm)
{
  AMP_ASSERT(chunk->master && chunk->grad && (kind == AMP_SGD || chunk->s0));
  AMP_ASSERT((kind != AMP_ADAM && kind != AMP_ADAMW && kind != AMP_LAMB) || chunk->s1);
  AMP_ASSERT((kind != AMP_ADAM && kind != AMP_ADAMW) || !hyper->amsgrad || chunk->s2);
  _Alignas(64) float gbuf[BLOCK], pbuf[BLOCK];
  const int gsize = amp__dtype_size[chunk->grad_dtype];
  for (int64_t i = from; i < to; i += BLOCK) {
    int64_t n = to - i < BLOCK ? to - i : BLOCK;
    const void *g = AT(chunk->grad, i, gsize);
    if (chunk->master_dtype == AMP_FLOAT64) {
      double wide[BLOCK];
      if (chunk->grad_dtype != AMP_FLOAT64) {
        amp__load(AMP_C_F64, wide, chunk->grad_dtype, g, 1, n);
        g = wide;
      }
      step_d(kind, hyper, (double *)(void *)chunk->master + i, g, STATE(double, chunk->s0, i),
             STATE(double, chunk->s1, i), STATE(double, chunk->s2, i), n, consts, norm);
      continue;
    }
    if (chunk->grad_dtype != AMP_FLOAT32) {
      amp__load(AMP_C_F32, gbuf, chunk->grad_dtype, g, 1, n);
      g = gbuf;
    }
    float *p = chunk->master + i;
    bool half = chunk->master_dtype != AMP_FLOAT32;
    if (half) {
      amp__load(AMP_C_F32, pbuf, chunk->master_dtype, AT(chunk->master, i, 2), 1, n);
      p = pbuf;
    }
    step_f(kind, hyper, p, g, STATE(float, chunk->s0, i), STATE(float, chunk->s1, i), STATE(float, chunk->s2, i), n,
           consts, norm);
    if (norm) continue;
    if (half) amp__store(chunk->master_dtype, AT(chunk->master, i, 2), 1, AMP_C_F32, pbuf, n);
    else if (chunk->shadow) amp__store(chunk->shadow_dtype, AT(chunk->shadow, i, 2), 1, AMP_C_F32, p, n);
  }
}

typedef struct line { /* a call's chunks, as one line of elements */
  int kind, count, threads;
  const amp_hyper *hyper;
  const amp_optim_chunk *chunks;
  consts *constants;
  int64_t total;
  double (*norm)[2]; /* [threads][n], or NULL */
} line;

static void pass(const line *l)
{
  int64_t share = (l->total + l->threads - 1) / l->threads;
  share = (share + 63) / 64 * 64; /* whole cache lines a thread */
#pragma omp parallel for num_threads(l->threads) schedule(static, 1) if (l->threads > 1)
  for (int t = 0; t < l->threads; t++) {
    amp__worker_begins();
    int64_t from = t * share, to = from + share, at = 0; /* on the line of all elements */
    for (int i = 0; i < l->count && at < to; at += l->chunks[i++].n) {
      int64_t a = from > at ? from - at : 0, b = to - at < l->chunks[i].n ? to - at : l->chunks[i].n;
      if (a < b)
        piece(l->kind, l->hyper, &l->chunks[i], &l->constants[i], a, b, l->norm ? l->norm[t * l->count + i] : NULL);
    }
  }
}

/* LAMB's moments, and each parameter's step: lr |parameter| / |update| */
static int trust(line *line)
{
  size_t count = (size_t)line->threads * (size_t)line->count;
  line->norm = calloc(count ? count : 1, sizeof *line->norm);
  if (!line->norm) return amp__nomem(count * sizeof *line->norm);
  pass(line);
  for (int i = 0; i < line->count; i++) {
    double p = 0, u = 0;
    for (int t = 0; t < line->threads; t++) {
      p += line->norm[t * line->count + i][0];
      u += line->norm[t * line->count + i][1];
    }
    line->constants[i].step = line->hyper->lr;
    if ((line->hyper->weight_decay != 0 || line->hyper->always_adapt) && p > 0 && u > 0)
      line->constants[i].step *= sqrt(p) / sqrt(u);
  }
  free(line->norm);
  line->norm = NULL;
  return 0;
}

int amp__cpu_optim_step(int kind, const amp_hyper *hyper, const amp_hyper *on_device, amp_optim_chunk *chunks,
                        int count, const float *const *found, int nfound)
{
  for (int i = 0; i < nfound; i++)
    if (*found[i] != 0) return 0;
  consts few[8], *values = count <= 8 ? few : malloc(sizeof *values * (size_t)count);
  if (!values) return amp__nomem(sizeof *values * (size_t)count);
  line line = { .kind = kind, .count = count, .hyper = hyper, .chunks = chunks, .constants = values };
  int status = 0;
  for (int i = 0; i < count; i++) {
    values[i] = prepare(kind, hyper, &chunks[i]);
    line.total += chunks[i].n;
  }
  line.threads = amp__threads(line.total * (kind == AMP_SGD ? 2 : 4));
  if (kind == AMP_LAMB && (status = trust(&line)) != 0) goto out;
  pass(&line);
  for (int i = 0; i < count; i++) {
    chunks[i].steps[0] += 1;
    if (kind == AMP_SGD && chunks[i].s0) chunks[i].steps[1] += 1;
    if (kind == AMP_NADAM) chunks[i].steps[1] = values[i].product;
  }
out:
  if (values != few) free(values);
  return status;
}
