/*
** test_norm_kernels.c: normalisation, softmax and losses against loops in double that say what each op means, and what
** is told of labels that are no labels (nn_kernels.h: how cases are drawn).
*/
#include "nn_kernels.h"

/* -- Normalisation ---------------------------------------------------------------------------------- */

/* Statistics over the elements whose group is the same; gradients by the textbook's formula */
typedef struct norm {
  int64_t n, groups;
  double *mean, *rstd, *var;
} norm;
static norm statistics(const amp_tensor *x, int64_t groups, int64_t (*group)(const amp_tensor *, int64_t), double eps)
{
  norm s = { x->numel / (groups ? groups : 1), groups, doubles(groups), doubles(groups), doubles(groups) };
  for (int64_t i = 0; i < x->numel; i++) s.mean[group(x, i)] += get(x, i) / (double)s.n;
  for (int64_t i = 0; i < x->numel; i++) {
    double d = get(x, i) - s.mean[group(x, i)];
    s.var[group(x, i)] += d * d / (double)s.n;
  }
  for (int64_t i = 0; i < groups; i++) s.rstd[i] = 1 / sqrt(s.var[i] + eps);
  return s;
}
static void norm_free(norm *s)
{
  free(s->mean);
  free(s->rstd);
  free(s->var);
}

static int64_t channel(const amp_tensor *x, int64_t i)
{
  int64_t inner = 1;
  for (int d = 2; d < x->ndim; d++) inner *= x->size[d];
  return i / inner % x->size[1];
}
static int64_t row_length;
static int64_t row(const amp_tensor *x, int64_t i) { return i / row_length; }
static int64_t column(const amp_tensor *x, int64_t i) { return i % row_length; }

/* y, gx, gw, gb for x, weight w, bias b, gradient g; live: the statistics are x's own */
static void normalised(const amp_tensor *x, const amp_tensor *g, const norm *s,
                       int64_t (*group)(const amp_tensor *, int64_t), int64_t (*affine)(const amp_tensor *, int64_t),
                       const amp_tensor *w, const amp_tensor *b, bool live, double **r)
{
  double *eh = doubles(s->groups), *ehx = doubles(s->groups);
  for (int64_t i = 0; i < x->numel; i++) {
    int64_t k = group(x, i), c = affine(x, i);
    double xh = (get(x, i) - s->mean[k]) * s->rstd[k], h = get(g, i) * (w ? get(w, c) : 1);
    r[0][i] = xh * (w ? get(w, c) : 1) + (b ? get(b, c) : 0);
    r[2][c] += get(g, i) * xh;
    r[3][c] += get(g, i);
    eh[k] += h / (double)s->n;
    ehx[k] += h * xh / (double)s->n;
  }
  for (int64_t i = 0; i < x->numel; i++) {
    int64_t k = group(x, i);
    double xh = (get(x, i) - s->mean[k]) * s->rstd[k], h = get(g, i) * (w ? get(w, affine(x, i)) : 1);
    r[1][i] = s->rstd[k] * (live ? h - eh[k] - xh * ehx[k] : h);
  }
  free(eh);
  free(ehx);
}

static void batch_norms(void)
{
  for (int r = 0; r < 40; r++) {
    int dt = draw_dtype(), sd = dt == AMP_FLOAT64 ? dt : AMP_FLOAT32;
    int64_t c = draw(0, 3) ? draw(1, 9) : 70, size[4] = { draw(2, 4), c, draw(1, 5), draw(1, 5) };
    int nd = draw(0, 2) ? 4 : 2;
    bool training = r & 1;
    amp_tensor *x = some(dt, draw(0, 3), nd, size), *g = some(dt, draw(0, 3), nd, size);
    amp_tensor *w = draw(0, 2) ? SOME(sd, c) : NULL, *b = w ? SOME(sd, c) : NULL, *rm = SOME(sd, c), *rv = SOME(sd, c);
    amp_tensor *m0 = some(AMP_FLOAT64, 0, 1, &c), *v0 = some(AMP_FLOAT64, 0, 1, &c);
    for (int64_t i = 0; i < c; i++) {
      put(rv, i, 1 + i % 3);
      put(m0, i, get(rm, i));
      put(v0, i, get(rv, i));
    }
    norm s = statistics(x, c, channel, 1e-5);
    uint32_t version = amp__version(rm);
    if (!training)
      for (int64_t i = 0; i < c; i++) {
        s.mean[i] = get(rm, i);
        s.rstd[i] = 1 / sqrt(get(rv, i) + 1e-5);
      }
    double *res[4] = { doubles(x->numel), doubles(x->numel), doubles(c), doubles(c) };
    normalised(x, g, &s, channel, channel, w, b, training, res);
    amp_slot a[24] = { { .i = training }, { .f = 0.25 }, { .f = 1e-5 } };
    what = "batch_norm";
    OK(call(AMP_OP_batch_norm, a, 5, x, rm, rv, w, b, 0));
    amp_tensor *mean = out[1], *rstd = out[2];
    near_all(out[0], res[0], 2 * rounding[dt]);
    near_all(mean, s.mean, rounding[sd]);
    near_all(rstd, s.rstd, 2 * rounding[sd]);
    amp__free(out[0]);
    for (int64_t i = 0; i < c; i++) {
      double k = training ? 0.25 : 0, unbiased = s.var[i] * (double)s.n / (double)(s.n - 1);
      near_at(rm, i, k ? 0.75 * get(m0, i) + k * s.mean[i] : get(m0, i), rounding[sd]);
      near_at(rv, i, k ? 0.75 * get(v0, i) + k * unbiased : get(v0, i), 2 * rounding[sd]);
    }
    CHECK((amp__version(rm) != version) == training);
    what = "batch_norm_backward";
    OK(call(AMP_OP_batch_norm_backward, a, 5, g, x, w, mean, rstd, 0));
    near_all(out[0], res[1], 8 * rounding[dt]);
    near_all(out[1], res[2], 20 * rounding[sd]);
    near_all(out[2], res[3], 20 * rounding[sd]);
    for (int i = 0; i < 4; i++) free(res[i]);
    norm_free(&s);
    drop_all(10, (amp_tensor *[]){ x, g, w, b, rm, rv, m0, v0, mean, rstd });
  }
  what = "an overflow in the batch";
  amp_tensor *x = SOME(AMP_FLOAT32, 4, 2), *rm = SOME(AMP_FLOAT32, 2), *rv = SOME(AMP_FLOAT32, 2);
  double before = get(rm, 0);
  put(x, 3, INFINITY);
  amp_slot a[24] = { { .i = 1 }, { .f = 0.5 }, { .f = 1e-5 } };
  OK(call(AMP_OP_batch_norm, a, 3, x, rm, rv, 0, 0, 0));
  CHECK(get(rm, 0) == before); /* leaves the running statistics alone */
  drop_all(3, (amp_tensor *[]){ x, rm, rv });
}

static void layer_norms(void)
{
  for (int r = 0; r < 40; r++) {
    int dt = draw_dtype(), sd = dt == AMP_FLOAT64 ? dt : AMP_FLOAT32;
    int64_t n = r % 8 ? draw(2, 40) : 2500, rows = draw(1, 30), size[3] = { 1, rows, n };
    amp_tensor *x = some(dt, draw(0, 3), 3, size), *g = some(dt, draw(0, 3), 3, size),
               *w = draw(0, 2) ? SOME(sd, n) : NULL, *b = w ? SOME(sd, n) : NULL;
    for (int64_t i = 0; i < rows; i++) put(x, i * n, 1), put(x, i * n + 1, -1); /* no row is constant */
    row_length = n;
    norm s = statistics(x, rows, row, 1e-5);
    double *res[4] = { doubles(x->numel), doubles(x->numel), doubles(n), doubles(n) };
    normalised(x, g, &s, row, column, w, b, true, res);
    amp_slot a[24] = { { .i = 1 }, { .i = n } };
    a[9].f = 1e-5;
    what = "layer_norm";
    OK(call(AMP_OP_layer_norm, a, 3, x, w, b, 0, 0, 0));
    amp_tensor *mean = out[1], *rstd = out[2];
    near_all(out[0], res[0], 2 * rounding[dt]);
    near_all(mean, s.mean, rounding[sd]);
    near_all(rstd, s.rstd, 2 * rounding[sd]);
    amp__free(out[0]);
    what = "layer_norm_backward";
    amp_tensor *add = draw(0, 1) ? some(dt, draw(0, 3), 3, size) : NULL;
    for (int64_t i = 0; add && i < x->numel; i++) res[1][i] += get(add, i);
    int also = draw(0, 1) ? draw_dtype() : -1;
    a[9].i = also < 0 ? AMP_NONE : also;
    OK(call(AMP_OP_layer_norm_backward, a, 6, g, x, mean, rstd, w, add));
    near_all(out[0], res[1], 8 * rounding[dt]);
    CHECK((out[3] != NULL) == (also >= 0));
    if (also >= 0) {
      double *rounded = doubles(x->numel);
      for (int64_t i = 0; i < x->numel; i++) rounded[i] = get(out[0], i);
      CHECK(out[3]->dtype == also);
      near_all(out[3], rounded, rounding[also]);
      free(rounded);
    }
    near_all(out[1], res[2], 20 * rounding[sd]);
    near_all(out[2], res[3], 20 * rounding[sd]);
    for (int i = 0; i < 4; i++) free(res[i]);
    norm_free(&s);
    drop_all(7, (amp_tensor *[]){ x, g, w, b, mean, rstd, add });
  }
}

/* -- Softmax -------------------------------------------------------------------------------------------- */

static void softmaxes(void)
{
  for (int r = 0; r < 60; r++) {
    int dt = draw_dtype(), d = draw(0, 2);
    bool lg = r & 1;
    int64_t size[3] = { draw(1, 6), draw(1, 40), draw(1, 6) }, n = size[d], inner = 1;
    for (int i = d + 1; i < 3; i++) inner *= size[i];
    amp_tensor *x = some(dt, draw(0, 3), 3, size), *g = some(dt, draw(0, 3), 3, size);
    for (int64_t i = 0; i < x->numel; i++) put(x, i, r % 5 == 0 && i % 3 == 0 ? -INFINITY : 4 * get(x, i));
    double *want = doubles(x->numel), *gx = doubles(x->numel);
    amp_slot a[24] = { { .i = d + 1 }, { .i = AMP_NONE } };
    what = lg ? "log_softmax" : "softmax";
    OK(call(lg ? AMP_OP_log_softmax : AMP_OP_softmax, a, 1, x, 0, 0, 0, 0, 0));
    amp_tensor *y = out[0];
    for (int64_t i = 0; i < x->numel; i++) {
      int64_t base = i / (n * inner) * n * inner + i % inner;
      double top = -INFINITY, sum = 0, dot = 0, gsum = 0;
      for (int64_t j = 0; j < n; j++) top = fmax(top, get(x, base + j * inner));
      for (int64_t j = 0; j < n; j++) {
        sum += exp(get(x, base + j * inner) - top);
        dot += get(g, base + j * inner) * get(y, base + j * inner);
        gsum += get(g, base + j * inner);
      }
      want[i] = lg ? get(x, i) - top - log(sum) : exp(get(x, i) - top) / sum;
      gx[i] = lg ? get(g, i) - exp(get(y, i)) * gsum : get(y, i) * (get(g, i) - dot);
    }
    near_all(y, want, 3 * rounding[dt]);
    out[0] = NULL;
    OK(call(lg ? AMP_OP_log_softmax_backward : AMP_OP_softmax_backward, a, 2, g, y, 0, 0, 0, 0));
    near_all(out[0], gx, 8 * rounding[dt]);
    free(want);
    free(gx);
    drop_all(3, (amp_tensor *[]){ x, g, y });
  }
}

/* -- Losses ----------------------------------------------------------------------------------------------- */

enum { IGNORED = -7 };

/* Scores rows/inner x classes x inner with their labels, weights and gradient, and what the textbook makes of them */
typedef struct labelled {
  int dtype, reduction;
  int64_t size[3], rows, classes, inner;
  double smooth, total; /* the sum of the weights of the rows' labels */
  amp_tensor *x, *weight, *target, *grad;
  double *loss, *nll;    /* of each row */
  double *log_sum, *top; /* log sum exp; the largest score, then the sum over exp of the distance to it */
  double *loss_gradient, *nll_gradient; /* in the scores */
} labelled;

static labelled draw_labelled(int dtype, int reduction, double smooth)
{
  labelled l = { .dtype = dtype, .reduction = reduction, .smooth = smooth };
  int64_t n = l.size[0] = draw(1, 9);
  l.classes = l.size[1] = draw(1, 20);
  l.inner = l.size[2] = draw(1, 4);
  l.rows = n * l.inner;
  l.x = some(dtype, draw(0, 3), 3, l.size);
  l.weight = draw(0, 1) ? SOME(dtype, l.classes) : NULL;
  int label_dtype = draw(AMP_INT64, AMP_INT8);
  l.target = empty(label_dtype, draw(0, 3), DIMS(n, l.inner));
  l.grad = reduction ? some(dtype, 0, 0, NULL) : SOME(dtype, n, l.inner);
  for (int64_t i = 0; l.weight && i < l.classes; i++) put(l.weight, i, draw(1, 8) / 8.0);
  for (int64_t i = 0; i < l.rows; i++) put(l.target, i, i && draw(0, 4) == 0 ? IGNORED : draw(1, (int)l.classes));
  l.loss = doubles(l.rows);
  l.nll = doubles(l.rows);
  l.log_sum = doubles(l.rows);
  l.top = doubles(2 * l.rows);
  l.loss_gradient = doubles(l.x->numel);
  l.nll_gradient = doubles(l.x->numel);
  return l;
}

static void free_labelled(labelled *l)
{
  double *all[] = { l->loss, l->nll, l->log_sum, l->top, l->loss_gradient, l->nll_gradient };
  for (int i = 0; i < 6; i++) free(all[i]);
  drop_all(4, (amp_tensor *[]){ l->x, l->weight, l->target, l->grad });
}

/* The first score of a row, a class's weight, a row's label from 0 (negative: ignored) */
static int64_t first(const labelled *l, int64_t row) { return row / l->inner * l->classes * l->inner + row % l->inner; }
static double weight_of(const labelled *l, int64_t class) { return l->weight ? get(l->weight, class) : 1; }
static int64_t label(const labelled *l, int64_t row) { return (int64_t)get(l->target, row) - 1; }

static void label_losses(labelled *l)
{
  double spread = l->smooth / (double)l->classes;
  for (int64_t i = 0; i < l->rows; i++) {
    int64_t base = first(l, i), y = label(l, i);
    l->top[i] = -INFINITY;
    for (int64_t j = 0; j < l->classes; j++) {
      l->log_sum[i] += exp(get(l->x, base + j * l->inner));
      l->top[i] = fmax(l->top[i], get(l->x, base + j * l->inner));
    }
    l->log_sum[i] = log(l->log_sum[i]);
    l->top[l->rows + i] = exp(l->log_sum[i] - l->top[i]);
    if (y < 0) continue;
    l->total += weight_of(l, y);
    l->nll[i] = -weight_of(l, y) * get(l->x, base + y * l->inner);
    l->loss[i] = (1 - l->smooth) * weight_of(l, y) * (l->log_sum[i] - get(l->x, base + y * l->inner));
    for (int64_t j = 0; j < l->classes; j++)
      l->loss[i] += spread * weight_of(l, j) * (l->log_sum[i] - get(l->x, base + j * l->inner));
  }
}

static void label_gradients(labelled *l)
{
  double spread = l->smooth / (double)l->classes, weights = 0;
  for (int64_t j = 0; j < l->classes; j++) weights += weight_of(l, j);
  for (int64_t i = 0; i < l->rows; i++) {
    int64_t base = first(l, i), y = label(l, i);
    if (y < 0) continue;
    double q = get(l->grad, l->reduction ? 0 : i) / (l->reduction == REDUCTION_MEAN ? l->total : 1),
           own = (1 - l->smooth) * weight_of(l, y), all = own + spread * weights;
    for (int64_t j = 0; j < l->classes; j++)
      l->loss_gradient[base + j * l->inner] = q
                                              * (all * exp(get(l->x, base + j * l->inner) - l->log_sum[i])
                                                 - (j == y ? own : 0) - spread * weight_of(l, j));
    l->nll_gradient[base + y * l->inner] = -q * weight_of(l, y);
  }
}

/* out[0] is the losses, or their mean or sum */
static void near_losses(const labelled *l, const double *each)
{
  double sum = 0;
  for (int64_t i = 0; i < l->rows; i++) sum += each[i];
  if (l->reduction == REDUCTION_MEAN) sum /= l->total;
  near_all(out[0], l->reduction ? &sum : each, 4 * rounding[l->dtype]);
}

static void label_case(labelled *l)
{
  int wide = l->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  label_losses(l);
  label_gradients(l);
  amp_slot a[24] = { { .i = l->reduction }, { .i = IGNORED }, { .f = l->smooth } };
  what = "cross_entropy";
  OK(call(AMP_OP_cross_entropy_index, a, 3, l->x, l->target, l->weight, 0, 0, 0));
  near_losses(l, l->loss);
  near_all(out[1], l->top, 4 * rounding[wide]);
  near_all(out[2], &l->total, 4 * rounding[wide]);
  amp_tensor *top = out[1], *total = out[2];
  amp__free(out[0]);
  what = "cross_entropy_backward";
  OK(call(AMP_OP_cross_entropy_backward, a, 6, l->grad, l->x, l->target, l->weight, top, total));
  near_all(out[0], l->loss_gradient, 4 * rounding[l->dtype]);
  drop();
  what = "nll_loss";
  OK(call(AMP_OP_nll_loss, a, 3, l->x, l->target, l->weight, 0, 0, 0));
  near_losses(l, l->nll);
  drop();
  a[9] = a[0];
  a[10] = a[1];
  a[0].i = 3;
  for (int i = 0; i < 3; i++) a[1 + i].i = l->size[i];
  what = "nll_loss_backward";
  OK(call(AMP_OP_nll_loss_backward, a, 4, l->grad, l->target, l->weight, total, 0, 0));
  near_all(out[0], l->nll_gradient, 2 * rounding[l->dtype]);
  drop_all(2, (amp_tensor *[]){ top, total });
}

static void losses_of_labels(void)
{
  for (int r = 0; r < 60; r++) {
    labelled l = draw_labelled(draw_dtype(), r % 3, r & 4 ? 0.25 : 0);
    label_case(&l);
    free_labelled(&l);
  }
}

static void squared_losses(void)
{
  what = "mse_loss";
  for (int r = 0; r < 30; r++) {
    int dt = draw_dtype(), how = r % 3;
    int64_t n = r % 5 ? draw(1, 60) : 5000, m = draw(1, 3);
    amp_tensor *x = SOME(dt, m, n), *t = SOME(dt, m, n), *g = how ? some(dt, 0, 0, NULL) : SOME(dt, m, n);
    double *want = doubles(n * m), *gx = doubles(n * m), sum = 0;
    for (int64_t i = 0; i < n * m; i++) {
      double d = get(x, i) - get(t, i);
      sum += want[i] = d * d;
      gx[i] = 2 * d * get(g, how ? 0 : i) / (how == 1 ? (double)(n * m) : 1);
    }
    if (how == 1) sum /= (double)(n * m);
    amp_slot a[24] = { { .i = how } };
    OK(call(AMP_OP_mse_loss, a, 2, x, t, 0, 0, 0, 0));
    near_all(out[0], how ? &sum : want, 2 * rounding[dt]);
    drop();
    OK(call(AMP_OP_mse_loss_backward, a, 3, g, x, t, 0, 0, 0));
    near_all(out[0], gx, 4 * rounding[dt]);
    free(want);
    free(gx);
    drop_all(3, (amp_tensor *[]){ x, t, g });
  }
}

/* Labels and places come from users: each is looked at before anything is written. */
static void refusals(void)
{
  amp_tensor *x = SOME(AMP_FLOAT32, 8, 10), *t = amp__tensor_make(AMP_INT64, AMP_CPU, 0, DIMS(8)), *in[2] = { x, t },
             *o[AMP_MAX_OUT] = { 0 };
  for (int i = 0; i < 8; i++) put(t, i, i == 6 ? 0 : 1 + i);
  AMP_ENTER(S);
  CHECK(amp__dispatch(AMP_OP_nll_loss, 0, in, 2, o, NULL) == AMP_E_INDEX);
  CHECK(strstr(S->err.message, "label 0 at row 7, expected 1..10") != NULL);
  CHECK(amp__dispatch(AMP_OP_cross_entropy_index, 0, in, 2, o, NULL) == AMP_E_INDEX);
  put(t, 6, 11);
  CHECK(amp__dispatch(AMP_OP_cross_entropy_index, 0, in, 2, o, NULL) == AMP_E_INDEX);
  CHECK(strstr(S->err.message, "label 11 at row 7, expected 1..10") != NULL);
  drop_all(2, in);
  x = SOME(AMP_FLOAT32, 1, 1, 2, 2);
  t = amp__tensor_make(AMP_INT64, AMP_CPU, 0, DIMS(1, 1, 1, 1));
  put(t, 0, 5);
  in[0] = x;
  in[1] = t;
  AMP_ENTER(S);
  CHECK(amp__dispatch(AMP_OP_pool_gather, 0, in, 2, o, (amp_slot[]){ { .i = 2 } }) == AMP_E_INDEX);
  drop_all(2, in);
}

int main(void)
{
  S = amp_state_new();
  if (S == NULL) return 1;
  S->grad_mode = 0;
  batch_norms();
  layer_norms();
  softmaxes();
  losses_of_labels();
  squared_losses();
  refusals();
  printf("%s\n", getenv("AMP_PLUGIN_DIR") ? amp_plugin_info("onednn") : "plain kernels");
  amp_state_free(S);
  return DONE();
}
