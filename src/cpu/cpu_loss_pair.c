/*
** cpu_loss_pair.c: rows mse_loss, pair_loss and their backward rows: losses that
** are a function of one element of input and one of target.
**
** Each kind is two formulas, the loss f(x, t) and its slope in x; p is the row's
** parameter (beta, delta, margin, eps). The tensors' elements are walked in the
** order of the input's memory, in units of at most BLOCK of one run: plain dense
** memory is read where it lies, everything else is widened into small buffers.
** Sums are taken of units in the computing type and joined in double, in an
** order that the number of threads does not change.
*/
#include "cpu_rows.h"

enum { NONE, MEAN, SUM };
enum { L1, SMOOTH_L1, HUBER, KL, KL_LOG, BCE, SOFT_MARGIN, HINGE, POISSON, POISSON_LOG, BCE_PROBS, KINDS, MSE = KINDS };
enum { BLOCK = 1024, PARTS = 64 };

/* -- Formulas --------------------------------------------------------------------------- */

AMP_INLINE double softplus_d(double x) { return (x > 0 ? x : x != x ? x : 0) + log1p(exp(-fabs(x))); }
AMP_INLINE double sigmoid_d(double x) { double z = exp(-fabs(x)); return (x < 0 ? z : 1) / (1 + z); }

typedef void (*forward_f32)(float *y, const float *x, const float *t, int64_t n, float p);
typedef void (*forward_f64)(double *y, const double *x, const double *t, int64_t n, double p);
/* y = scale * (g of each, or 1 if NULL) * slope */
typedef void (*backward_f32)(float *y, const float *g, const float *x, const float *t, int64_t n, float p, float scale);
typedef void (*backward_f64)(double *y, const double *g, const double *x, const double *t, int64_t n, double p, double scale);

#define FORWARD(CLONES, name, T, S, F)                                                              \
  CLONES static void name##_f_##S(T *restrict y, const T *restrict xs, const T *restrict ts, int64_t n, T p) { \
    (void)p;                                                                                        \
    for (int64_t i = 0; i < n; i++) { T x = xs[i], t = ts[i], d = x - t; (void)d; y[i] = (F); }     \
  }
#define FORMULA(CLONES, name, T, S, F, DF)                                                          \
  FORWARD(CLONES, name, T, S, F)                                                                    \
  CLONES static void name##_b_##S(T *restrict y, const T *restrict g, const T *restrict xs, const T *restrict ts, int64_t n, T p, T scale) { \
    (void)p;                                                                                        \
    if (g) for (int64_t i = 0; i < n; i++) { T x = xs[i], t = ts[i], d = x - t; (void)d; (void)x; y[i] = scale * g[i] * (DF); } \
    else for (int64_t i = 0; i < n; i++) { T x = xs[i], t = ts[i], d = x - t; (void)d; (void)x; y[i] = scale * (DF); } \
  }
/* the slope is long: once in the code, times its factors in a loop of its own */
#define FORMULA_LONG(CLONES, name, T, S, F, DF)                                                     \
  FORWARD(CLONES, name, T, S, F)                                                                    \
  CLONES static void name##_b_##S(T *restrict y, const T *restrict g, const T *restrict xs, const T *restrict ts, int64_t n, T p, T scale) { \
    (void)p;                                                                                        \
    for (int64_t i = 0; i < n; i++) { T x = xs[i], t = ts[i], d = x - t; (void)d; (void)x; y[i] = (DF); } \
    if (g) for (int64_t i = 0; i < n; i++) y[i] = scale * g[i] * y[i];                              \
    else for (int64_t i = 0; i < n; i++) y[i] = scale * y[i];                                       \
  }
/* the same words in float and in double */
#define BOTH(name, F, DF) FORMULA(AMP_CLONES, name, float, f32, F, DF) FORMULA(AMP_CLONES_WIDE, name, double, f64, F, DF)
#define EACH(name, F32, DF32, F64, DF64) FORMULA_LONG(AMP_CLONES, name, float, f32, F32, DF32) FORMULA_LONG(, name, double, f64, F64, DF64)

#define ABS(d) ((d) < 0 ? -(d) : (d))
#define SIGN(d) ((d) > 0 ? 1 : (d) < 0 ? -1 : (d)) /* 0 and NaN stay */

BOTH(mse, d * d, 2 * d)
BOTH(l1, ABS(d), SIGN(d))
BOTH(smooth_l1, ABS(d) < p ? d * d / (2 * p) : ABS(d) - p / 2, ABS(d) < p ? d / p : SIGN(d))
BOTH(huber, ABS(d) > p ? p * (ABS(d) - p / 2) : d * d / 2, d > p ? p : d < -p ? -p : d)
EACH(kl, (t == 0 ? 0 : t * amp__logf(t)) - t * x, -t, (t == 0 ? 0 : t * log(t)) - t * x, -t)
EACH(kl_log, amp__expf(t) * (t - x), -amp__expf(t), exp(t) * (t - x), -exp(t))
EACH(bce, (1 - t) * x + amp__softplusf(-x), amp__sigmoidf(x) - t, (1 - t) * x + softplus_d(-x), sigmoid_d(x) - t)
EACH(soft_margin, amp__softplusf(-t * x), -t * amp__sigmoidf(-t * x), softplus_d(-t * x), -t * sigmoid_d(-t * x))
BOTH(hinge, (t != -1 ? x : 0) + (t != 1 ? (p - x < 0 ? 0 : p - x) : 0), (t != -1 ? 1 : 0) - (t != 1 && p - x > 0 ? 1 : 0))
EACH(poisson, x - t * amp__logf(x + p), 1 - t / (x + p), x - t * log(x + p), 1 - t / (x + p))
EACH(poisson_log, amp__expf(x) - t * x, amp__expf(x) - t, exp(x) - t * x, exp(x) - t)
#define LOG_OR(LOG, v) (LOG(v) < -100 ? -100 : LOG(v))
#define VARIANCE (x * (1 - x) < p ? p : x * (1 - x))
EACH(bce_probs, -(t * LOG_OR(amp__logf, x) + (1 - t) * LOG_OR(amp__log1pf, -x)), d / VARIANCE, -(t * LOG_OR(log, x) + (1 - t) * LOG_OR(log1p, -x)), d / VARIANCE)

#define ROW(name) { name##_f_f32, name##_b_f32, name##_f_f64, name##_b_f64, 1 }
#define COSTLY(name) { name##_f_f32, name##_b_f32, name##_f_f64, name##_b_f64, 8 }
static const struct formula { forward_f32 f32; backward_f32 b32; forward_f64 f64; backward_f64 b64; int cost; } formulas[KINDS + 1] = {
  [L1] = ROW(l1), [SMOOTH_L1] = ROW(smooth_l1), [HUBER] = ROW(huber), [KL] = COSTLY(kl), [KL_LOG] = COSTLY(kl_log), [BCE] = COSTLY(bce),
  [SOFT_MARGIN] = COSTLY(soft_margin), [HINGE] = ROW(hinge), [POISSON] = COSTLY(poisson), [POISSON_LOG] = COSTLY(poisson_log), [BCE_PROBS] = COSTLY(bce_probs),
  [MSE] = ROW(mse),
};

/* -- The walk ---------------------------------------------------------------------------- */

typedef struct job {
  const struct formula *f;
  bool f64;
  const amp_tensor *x, *t, *y, *g;     /* y: elements of the result, or NULL (sums only); g: gradient of each, or NULL */
  bool back;
  double p, scale;
  bool unit;                           /* x should lie in 0..1 */
  double outside;                      /* an element that does not, else 0 */
  double sums[PARTS];
  int64_t n, pieces, units, per;       /* length of a run, units in it, in all, in a part */
  int64_t sx, st, sy, sg;              /* strides along a run */
  amp__nn_walk w;                      /* over runs */
} job;

#define UNITS(T, S, B)                                                                              \
  static const T *fetch_##S(const amp_tensor *t, int64_t off, int64_t stride, T *buf, int64_t n) {  \
    const void *p = amp__nn_at(t, off);                                                             \
    if (stride == 1 && t->dtype == amp__class_dtype[B == 32 ? AMP_C_F32 : AMP_C_F64]) return p;     \
    amp__nn_load_##S(buf, p, t->dtype, stride, n);                                                  \
    return buf;                                                                                     \
  }                                                                                                 \
  static void look_##S(job *k, const T *x, int64_t n) {                                             \
    int bad = 0;                                                                                    \
    for (int64_t i = 0; i < n; i++) bad |= (x[i] < 0) | (x[i] > 1);                                 \
    for (int64_t i = 0; bad && i < n; i++)                                                          \
      if (x[i] < 0 || x[i] > 1) { double v = (double)x[i]; __atomic_store(&k->outside, &v, __ATOMIC_RELAXED); bad = 0; } \
  }                                                                                                 \
  static void units_##S(job *k, int64_t part) {                                                     \
    T bx[BLOCK], bt[BLOCK], by[BLOCK], bg[BLOCK];                                                   \
    const bool direct = k->y && k->sy == 1 && k->y->dtype == amp__class_dtype[B == 32 ? AMP_C_F32 : AMP_C_F64]; \
    int64_t u = part * k->per, end = u + k->per < k->units ? u + k->per : k->units, piece = u % k->pieces; \
    double sum = 0;                                                                                 \
    amp__nn_pos at;                                                                                 \
    amp__nn_seek(&k->w, &at, u / k->pieces);                                                        \
    for (; u < end; u++) {                                                                          \
      int64_t i = piece * BLOCK, n = k->n - i < BLOCK ? k->n - i : BLOCK;                           \
      const T *x = fetch_##S(k->x, at.off[0] + i * k->sx, k->sx, bx, n);                            \
      const T *t = fetch_##S(k->t, at.off[1] + i * k->st, k->st, bt, n);                            \
      void *to = k->y ? (void *)amp__nn_at(k->y, at.off[2] + i * k->sy) : NULL;                     \
      T *y = direct ? to : by;                                                                      \
      if (k->back) {                                                                                \
        const T *g = k->g ? fetch_##S(k->g, at.off[3] + i * k->sg, k->sg, bg, n) : NULL;            \
        k->f->b##B(y, g, x, t, n, (T)k->p, (T)k->scale);                                            \
      } else {                                                                                      \
        k->f->f##B(y, x, t, n, (T)k->p);                                                            \
        if (!k->y) sum += amp__row_sum_##S(y, n);                                                   \
        if (k->unit) look_##S(k, x, n);                                                             \
      }                                                                                             \
      if (k->y && !direct) amp__nn_store_##S(to, k->y->dtype, k->sy, y, n);                         \
      if (++piece == k->pieces) { piece = 0; amp__nn_next(&k->w, &at); }                            \
    }                                                                                               \
    k->sums[part] = sum;                                                                            \
  }
UNITS(float, f32, 32)
UNITS(double, f64, 64)

static void parts(void *ctx, int64_t begin, int64_t end, int thread) {
  job *k = ctx;
  for (int64_t i = begin; i < end; i++) {
    if (k->f64) units_f64(k, i);
    else units_f32(k, i);
  }
}

/* Dimensions from the largest stride of x to the smallest, so that runs are as long as can be. Gives the sum. */
static double run(job *k) {
  const amp_tensor *x = k->x, *all[4] = {x, k->t, k->y ? k->y : x, k->g ? k->g : x};
  int64_t size[AMP_MAX_DIM], st[4][AMP_MAX_DIM];
  int order[AMP_MAX_DIM];
  if (x->numel == 0) return 0;
  for (int d = 0; d < x->ndim; d++) {
    int at = d;
    for (; at > 0 && x->stride[order[at - 1]] < x->stride[d]; at--) order[at] = order[at - 1];
    order[at] = d;
  }
  for (int d = 0; d < x->ndim; d++) {
    size[d] = x->size[order[d]];
    for (int i = 0; i < 4; i++) st[i][d] = all[i]->stride[order[d]];
  }
  const int64_t *strides[4] = {st[0], st[1], st[2], st[3]};
  amp__nn_walk *w = &k->w;
  amp__nn_walk_init(w, x->ndim, size, 0, 4, strides);
  k->n = k->sx = k->st = k->sy = k->sg = 1;
  if (w->ndim) {                       /* the innermost is a run */
    int d = --w->ndim;
    k->n = w->size[d];
    k->sx = w->stride[0][d]; k->st = w->stride[1][d]; k->sy = w->stride[2][d]; k->sg = w->stride[3][d];
    w->n /= k->n;
  }
  k->pieces = (k->n + BLOCK - 1) / BLOCK;
  k->units = w->n * k->pieces;
  k->per = (k->units + PARTS - 1) / PARTS;
  int64_t nparts = (k->units + k->per - 1) / k->per;
  amp__nn_par(amp__nn_threads(x->numel * k->f->cost, nparts), nparts, parts, k);
  double sum = 0;
  for (int64_t i = 0; i < nparts; i++) sum += k->sums[i];
  return sum;
}

/* -- Rows --------------------------------------------------------------------------------- */

static bool wide(const amp_tensor *a, const amp_tensor *b) { return a->dtype == AMP_FLOAT64 || b->dtype == AMP_FLOAT64; }

static int forward(amp_call *c, int kind, double p) {
  int64_t reduction = c->a[0].i;
  job k = {.f = &formulas[kind], .f64 = wide(c->in[0], c->in[1]), .x = c->in[0], .t = c->in[1], .y = reduction == NONE ? c->out[0] : NULL, .p = p, .unit = kind == BCE_PROBS};
  double sum = run(&k);
  if (k.outside != 0) return amp__fail_arg(AMP_E_VALUE, 1, "input holds %g, expected probabilities in 0..1; bce_with_logits takes logits", k.outside);
  if (reduction == MEAN) sum /= (double)k.x->numel;
  if (reduction != NONE) amp__nn_store_f64(amp__data(c->out[0]), c->out[0]->dtype, 1, &sum, 1);
  return 0;
}

static int backward(amp_call *c, int kind, double p) { /* grad input target */
  int64_t reduction = c->a[0].i;
  const amp_tensor *g = c->in[0];
  job k = {.f = &formulas[kind], .f64 = wide(c->in[1], c->in[2]), .x = c->in[1], .t = c->in[2], .y = c->out[0], .p = p, .back = true, .scale = 1};
  if (reduction == NONE) k.g = g;
  else amp__nn_load_f64(&k.scale, amp__data(g), g->dtype, 1, 1);
  if (reduction == MEAN) k.scale /= (double)k.x->numel;
  run(&k);
  return 0;
}

int amp__cpu_mse_loss(amp_call *c) { return forward(c, MSE, 0); }
int amp__cpu_mse_loss_backward(amp_call *c) { return backward(c, MSE, 0); }
int amp__cpu_pair_loss(amp_call *c) { return forward(c, (int)c->a[1].i, c->a[2].f); }
int amp__cpu_pair_loss_backward(amp_call *c) { return backward(c, (int)c->a[1].i, c->a[2].f); }
