/*
** test_nn_kernels.c: products, convolutions, pooling, normalisation, softmax
** and losses against loops in double that say what each op means. Every case
** is drawn over the float dtypes and over layouts (C order, channels-last,
** swapped dimensions, every second element of something larger); values are
** eighths, so sums of products are exact in float32. With AMP_PLUGIN_DIR set
** and AMP_ONEDNN not 0 the same cases go through oneDNN.
*/
#include <stdlib.h>
#include "check.h"
#include "amp_core.h"

static amp_state *S;
static uint32_t seed = 1;
static int draw(int lo, int hi) { seed = seed * 1664525u + 1013904223u; return lo + (int)((seed >> 8) % (uint32_t)(hi - lo + 1)); }
static int draw_dtype(void) { static const int d[] = { AMP_FLOAT64, AMP_FLOAT32, AMP_FLOAT32, AMP_FLOAT16, AMP_BFLOAT16 }; return d[draw(0, 4)]; }
static const double rounding[] = { 1e-12, 3e-6, 1.5e-3, 1.2e-2 }; /* of one result, by dtype */

/* -- Tensors --------------------------------------------------------------------------- */

static void *place(const amp_tensor *t, int64_t i) { /* the i-th element in C order */
  int64_t off = 0;
  for (int d = t->ndim - 1; d >= 0; d--) { off += i % t->size[d] * t->stride[d]; i /= t->size[d]; }
  return (char *)amp__data(t) + off * amp__dtype_size[t->dtype];
}
static double get(const amp_tensor *t, int64_t i) { return amp__value_get(place(t, i), t->dtype); }
static void put(amp_tensor *t, int64_t i, double v) { amp__value_put(place(t, i), t->dtype, v); }
static double get4(const amp_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d) {
  int64_t off = a * t->stride[0] + b * t->stride[1] + c * t->stride[2] + d * t->stride[3];
  return amp__value_get((char *)amp__data(t) + off * amp__dtype_size[t->dtype], t->dtype);
}

static amp_tensor *empty(int dtype, int layout, int ndim, const int64_t *size) {
  amp_meta m = { .dtype = (uint8_t)dtype, .ndim = (uint8_t)ndim };
  if (ndim) memcpy(m.size, size, sizeof *size * (size_t)ndim); /* a scalar has no sizes */
  if (layout == 1 && ndim == 4) {
    m.strides = 1;
    m.stride[1] = 1; m.stride[3] = size[1]; m.stride[2] = size[3] * size[1]; m.stride[0] = size[2] * m.stride[2];
  } else if (layout == 2 && ndim >= 2) { /* first two dimensions swapped in memory */
    int64_t step = 1;
    m.strides = 1;
    for (int d = ndim - 1; d >= 2; d--) { m.stride[d] = step; step *= size[d]; }
    m.stride[0] = step;
    m.stride[1] = step * size[0];
  } else if (layout == 3 && ndim >= 1) { /* every second of the last dimension, from the second on */
    m.size[ndim - 1] = 2 * size[ndim - 1] + 1;
    amp_tensor *big = amp__tensor_new(&m), *t = NULL;
    if (big) {
      int64_t stride[AMP_MAX_DIM];
      memcpy(stride, big->stride, sizeof stride);
      stride[ndim - 1] *= 2;
      t = amp__tensor_view(big, ndim, size, stride, big->numel ? 1 : 0);
    }
    amp__free(big);
    return t;
  }
  return amp__tensor_new(&m);
}

static amp_tensor *some(int dtype, int layout, int ndim, const int64_t *size) {
  amp_tensor *t = empty(dtype, layout, ndim, size);
  for (int64_t i = 0; i < t->numel; i++) put(t, i, draw(-8, 8) / 8.0);
  return t;
}
#define DIMS(...) (sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (int64_t[]){ __VA_ARGS__ }
#define SOME(dtype, ...) some(dtype, draw(0, 3), DIMS(__VA_ARGS__))

/* Outputs in out[]; the code */
static amp_tensor *out[AMP_MAX_OUT];
static int call(int op, const amp_slot *a, int n, amp_tensor *a0, amp_tensor *a1, amp_tensor *a2, amp_tensor *a3, amp_tensor *a4, amp_tensor *a5) {
  amp_tensor *in[6] = { a0, a1, a2, a3, a4, a5 };
  AMP_ENTER(S);
  for (int i = 0; i < AMP_MAX_OUT; i++) out[i] = NULL;
  int rc = amp__dispatch(op, 0, in, n, out, a);
  if (rc < 0) printf("%s: %s\n", S->err.op, S->err.message);
  return rc;
}
static void drop(void) { for (int i = 0; i < AMP_MAX_OUT; i++) { amp__free(out[i]); out[i] = NULL; } }
static void drop_all(int n, amp_tensor **t) { for (int i = 0; i < n; i++) amp__free(t[i]); drop(); }

static const char *what;
static void near_at(const amp_tensor *t, int64_t i, double want, double tol) {
  double got = get(t, i);
  bool ok = isnan(want) ? isnan(got) : isinf(want) ? got == want : fabs(got - want) <= tol * (1 + fabs(want));
  if (!ok) printf("%s %s at %lld: got %.9g, expected %.9g\n", what, amp__tensor_str(t), (long long)i, got, want);
  CHECK(ok);
}
/* One count a tensor keeps the report readable */
static void near_all(const amp_tensor *t, const double *want, double tol) {
  for (int64_t i = 0; i < t->numel; i++) {
    double got = get(t, i);
    bool ok = isnan(want[i]) ? isnan(got) : isinf(want[i]) ? got == want[i] : fabs(got - want[i]) <= tol * (1 + fabs(want[i]));
    if (!ok) { near_at(t, i, want[i], tol); return; }
  }
  CHECK(true);
}
static double *doubles(int64_t n) { return calloc((size_t)n + 1, sizeof(double)); }

/* -- Products ------------------------------------------------------------------------------- */

static void products(void) {
  what = "matmul";
  for (int r = 0; r < 60; r++) {
    int dt = draw_dtype();
    int64_t b = draw(1, 3), m = draw(1, 40), k = draw(1, r % 10 ? 40 : 700), n = draw(1, 70);
    amp_tensor *x = SOME(dt, b, m, k), *y = r & 1 ? SOME(dt, k, n) : SOME(dt, b, k, n);
    double *want = doubles(b * m * n);
    for (int64_t i = 0; i < b * m * n; i++)
      for (int64_t p = 0; p < k; p++) want[i] += get(x, i / n * k + p) * get(y, (r & 1 ? 0 : i / (m * n) * k * n) + p * n + i % n);
    OK(call(AMP_OP_matmul, NULL, 2, x, y, 0, 0, 0, 0));
    near_all(out[0], want, rounding[dt]);
    free(want);
    drop_all(2, (amp_tensor *[]){ x, y });
  }
  what = "linear";
  for (int r = 0; r < 60; r++) {
    int dt = draw_dtype();
    int64_t b = draw(1, 3), m = draw(1, 40), k = draw(1, 70), n = draw(1, 70);
    amp_tensor *x = SOME(dt, b, m, k), *w = SOME(dt, n, k), *c = r & 1 ? SOME(dt, n) : NULL;
    double *want = doubles(b * m * n);
    for (int64_t i = 0; i < b * m * n; i++) {
      if (c) want[i] = get(c, i % n);
      for (int64_t p = 0; p < k; p++) want[i] += get(x, i / n * k + p) * get(w, i % n * k + p);
    }
    OK(call(AMP_OP_linear, NULL, 3, x, w, c, 0, 0, 0));
    near_all(out[0], want, rounding[dt]);
    free(want);
    drop_all(3, (amp_tensor *[]){ x, w, c });
  }
  what = "vectors";
  amp_tensor *x = SOME(AMP_FLOAT32, 300), *y = SOME(AMP_FLOAT32, 300, 7);
  double want[7] = { 0 };
  for (int j = 0; j < 7; j++) for (int p = 0; p < 300; p++) want[j] += get(x, p) * get(y, p * 7 + j);
  OK(call(AMP_OP_matmul, NULL, 2, x, y, 0, 0, 0, 0));
  CHECK(out[0]->ndim == 1);
  near_all(out[0], want, 1e-6);
  drop_all(2, (amp_tensor *[]){ x, y });
  what = "integers wrap around";
  x = amp__tensor_make(AMP_INT8, AMP_CPU, 0, DIMS(1, 2));
  y = amp__tensor_make(AMP_INT8, AMP_CPU, 0, DIMS(2, 1));
  for (int i = 0; i < 2; i++) { put(x, i, 100); put(y, i, 3); }
  OK(call(AMP_OP_matmul, NULL, 2, x, y, 0, 0, 0, 0));
  near_at(out[0], 0, (int8_t)600, 0);
  drop_all(2, (amp_tensor *[]){ x, y });
  what = "empty";
  x = SOME(AMP_FLOAT32, 3, 0);
  y = SOME(AMP_FLOAT32, 0, 4);
  OK(call(AMP_OP_matmul, NULL, 2, x, y, 0, 0, 0, 0));
  near_all(out[0], (double[12]){ 0 }, 0);
  drop_all(2, (amp_tensor *[]){ x, y });
}

/* -- Convolutions ------------------------------------------------------------------------------ */

static void convolution(int dt, int64_t n, int64_t groups, int64_t cg, int64_t og, int64_t h, int64_t w, int64_t kh, int64_t kw, const int64_t *g) {
  int64_t oh = (h + 2 * g[2] - g[4] * (kh - 1) - 1) / g[0] + 1, ow = (w + 2 * g[3] - g[5] * (kw - 1) - 1) / g[1] + 1;
  int64_t xs[4] = { n, groups * cg, h, w }, ws[4] = { groups * og, cg, kh, kw }, ys[4] = { n, groups * og, oh, ow };
  amp_tensor *x = some(dt, draw(0, 3), 4, xs), *wt = some(dt, draw(0, 3), 4, ws), *b = draw(0, 1) ? SOME(dt, groups * og) : NULL, *gy = some(dt, draw(0, 3), 4, ys);
  double *y = doubles(gy->numel), *gx = doubles(x->numel), *gw = doubles(wt->numel);
  for (int64_t i = 0; i < gy->numel; i++) {
    int64_t q = i % ow, p = i / ow % oh, o = i / (ow * oh) % ys[1], img = i / (ow * oh * ys[1]);
    if (b) y[i] = get(b, o);
    for (int64_t c = 0; c < cg; c++)
      for (int64_t u = 0; u < kh; u++)
        for (int64_t v = 0; v < kw; v++) {
          int64_t r = p * g[0] - g[2] + u * g[4], s = q * g[1] - g[3] + v * g[5], ch = o / og * cg + c;
          if (r < 0 || r >= h || s < 0 || s >= w) continue;
          y[i] += get4(x, img, ch, r, s) * get4(wt, o, c, u, v);
          gx[((img * xs[1] + ch) * h + r) * w + s] += get(gy, i) * get4(wt, o, c, u, v);
          gw[((o * cg + c) * kh + u) * kw + v] += get(gy, i) * get4(x, img, ch, r, s);
        }
  }
  amp_slot a[24] = { { 0 } };
  for (int i = 0; i < 9; i++) a[i].i = i % 3 ? g[i / 3 * 2 + i % 3 - 1] : i != 3;
  a[9].i = groups;
  what = "convolution";
  OK(call(AMP_OP_convolution, a, 3, x, wt, b, 0, 0, 0));
  near_all(out[0], y, 2 * rounding[dt]);
  drop();
  memmove(a + 9, a, 10 * sizeof *a);
  a[0].i = 4;
  for (int i = 0; i < 4; i++) a[1 + i].i = xs[i];
  what = "convolution_input";
  OK(call(AMP_OP_convolution_input, a, 3, gy, wt, NULL, 0, 0, 0));
  near_all(out[0], gx, 2 * rounding[dt]);
  drop();
  for (int i = 0; i < 4; i++) a[1 + i].i = ws[i];
  what = "convolution_weight";
  OK(call(AMP_OP_convolution_weight, a, 2, gy, x, 0, 0, 0, 0));
  near_all(out[0], gw, 4 * rounding[dt]);
  free(y); free(gx); free(gw);
  drop_all(4, (amp_tensor *[]){ x, wt, b, gy });
}

static void convolutions(void) {
  for (int r = 0; r < 60; r++) {
    int64_t groups = draw(0, 3) ? 1 : draw(2, 3), cg = draw(1, 4), og = draw(1, 9), kh = draw(1, 3), kw = draw(1, 3);
    int64_t g[6] = { draw(1, 3), draw(1, 3), draw(0, 2), draw(0, 2), draw(1, 2), draw(1, 2) };
    convolution(draw_dtype(), draw(1, 3), groups, cg, og, draw(5, 9), draw(5, 9), kh, kw, g);
  }
  const int64_t same[6] = { 1, 1, 1, 1, 1, 1 }, one[6] = { 1, 1, 0, 0, 1, 1 }, half[6] = { 2, 2, 1, 1, 1, 1 };
  for (int dt = AMP_FLOAT64; dt <= AMP_BFLOAT16; dt++) {
    convolution(dt, 2, 1, 16, 17, 8, 8, 3, 3, same);  /* whole panels and their edges */
    convolution(dt, 2, 1, 16, 16, 7, 7, 1, 1, one);   /* the image is the column matrix */
    convolution(dt, 2, 6, 1, 1, 7, 9, 3, 3, half);    /* one filter a channel */
    convolution(dt, 0, 1, 3, 4, 6, 6, 3, 3, same);    /* an empty batch */
  }
}

/* -- Pooling ------------------------------------------------------------------------------------- */

static void pools(void) {
  for (int r = 0; r < 60; r++) {
    int dt = draw_dtype();
    int64_t n = draw(0, 2), c = draw(1, 9), h = draw(4, 9), w = draw(4, 9), k[2] = { draw(1, 3), draw(1, 3) };
    int64_t s[2] = { draw(1, 3), draw(1, 3) }, p[2] = { draw(0, (int)k[0] / 2), draw(0, (int)k[1] / 2) };
    bool mean = r % 3 == 0, whole = draw(0, 1);
    amp_slot a[24] = { { 0 } };
    for (int i = 0; i < 2; i++) { a[i].i = k[i]; a[2 + i].i = s[i]; a[4 + i].i = p[i]; a[6 + i].i = 1; }
    if (mean) { a[6].i = 0; a[7].i = whole; a[8].i = AMP_NONE; }
    else a[9].i = 1;
    amp_tensor *x = SOME(dt, n, c, h, w);
    if (!mean && r % 4 == 1) for (int64_t i = 0; i < x->numel; i += 7) put(x, i, i % 2 ? NAN : -INFINITY);
    what = mean ? "avg_pool2d" : "max_pool2d";
    OK(call(mean ? AMP_OP_avg_pool2d : AMP_OP_max_pool2d, a, 1, x, 0, 0, 0, 0, 0));
    amp_tensor *y = out[0], *at = out[1], *g = some(dt, draw(0, 3), 4, y->size);
    int64_t oh = y->size[2], ow = y->size[3];
    double *want = doubles(y->numel), *gx = doubles(x->numel), *seen = doubles(y->numel);
    for (int64_t i = 0; i < y->numel; i++) {
      int64_t q = i % ow * s[1] - p[1], t = i / ow % oh * s[0] - p[0], ch = i / (ow * oh) % c, img = i / (ow * oh * c), best = -1, count = 0;
      double sum = 0, top = -INFINITY;
      for (int64_t u = t; u < t + k[0]; u++)
        for (int64_t v = q; v < q + k[1]; v++) {
          bool padded = u < h + p[0] && v < w + p[1];
          if (u < 0 || v < 0 || u >= h || v >= w) { count += padded && whole; continue; }
          double e = get4(x, img, ch, u, v);
          count++;
          sum += e;
          if (best < 0 || e > top || isnan(e)) { top = e; best = u * w + v; }
        }
      want[i] = mean ? sum / (double)count : top;
      seen[i] = (double)best + 1;
      if (!mean) gx[(img * c + ch) * h * w + best] += get(g, i);
      else
        for (int64_t u = t < 0 ? 0 : t; u < t + k[0] && u < h; u++)
          for (int64_t v = q < 0 ? 0 : q; v < q + k[1] && v < w; v++) gx[((img * c + ch) * h + u) * w + v] += get(g, i) / (double)count;
    }
    near_all(y, want, rounding[dt]);
    if (!mean) near_all(at, seen, 0);
    out[0] = out[1] = NULL;
    if (mean) /* spatial; size, kernel, stride, padding, of three dimensions each; count_include_pad; divisor */
      for (int i = 0; i < 15; i++) {
        const int64_t v[15] = { 2, 1, oh, ow, 1, k[0], k[1], 1, s[0], s[1], 0, p[0], p[1], whole, AMP_NONE };
        a[9 + i].i = v[i];
      }
    else a[9].i = 2;
    a[0].i = 4;
    for (int i = 0; i < 4; i++) a[1 + i].i = x->size[i];
    OK(call(mean ? AMP_OP_avg_pool_backward : AMP_OP_pool_scatter, a, mean ? 1 : 2, g, mean ? NULL : at, 0, 0, 0, 0));
    near_all(out[0], gx, 2 * rounding[dt]);
    drop();
    if (!mean) {
      OK(call(AMP_OP_pool_gather, a + 9, 2, x, at, 0, 0, 0, 0));
      near_all(out[0], want, 0);
    }
    free(want); free(gx); free(seen);
    drop_all(4, (amp_tensor *[]){ x, y, at, g });
  }
}

/* -- Normalisation ---------------------------------------------------------------------------------- */

/* Statistics over the elements whose group is the same; gradients by the textbook's formula */
typedef struct norm { int64_t n, groups; double *mean, *rstd, *var; } norm;
static norm statistics(const amp_tensor *x, int64_t groups, int64_t (*group)(const amp_tensor *, int64_t), double eps) {
  norm s = { x->numel / (groups ? groups : 1), groups, doubles(groups), doubles(groups), doubles(groups) };
  for (int64_t i = 0; i < x->numel; i++) s.mean[group(x, i)] += get(x, i) / (double)s.n;
  for (int64_t i = 0; i < x->numel; i++) { double d = get(x, i) - s.mean[group(x, i)]; s.var[group(x, i)] += d * d / (double)s.n; }
  for (int64_t i = 0; i < groups; i++) s.rstd[i] = 1 / sqrt(s.var[i] + eps);
  return s;
}
static void norm_free(norm *s) { free(s->mean); free(s->rstd); free(s->var); }

static int64_t channel(const amp_tensor *x, int64_t i) {
  int64_t inner = 1;
  for (int d = 2; d < x->ndim; d++) inner *= x->size[d];
  return i / inner % x->size[1];
}
static int64_t row_length;
static int64_t row(const amp_tensor *x, int64_t i) { return i / row_length; }
static int64_t column(const amp_tensor *x, int64_t i) { return i % row_length; }

/* y, gx, gw, gb for x, weight w, bias b, gradient g; live: the statistics are x's own */
static void normalised(const amp_tensor *x, const amp_tensor *g, const norm *s, int64_t (*group)(const amp_tensor *, int64_t),
                       int64_t (*affine)(const amp_tensor *, int64_t), const amp_tensor *w, const amp_tensor *b, bool live, double **r) {
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
  free(eh); free(ehx);
}

static void batch_norms(void) {
  for (int r = 0; r < 40; r++) {
    int dt = draw_dtype(), sd = dt == AMP_FLOAT64 ? dt : AMP_FLOAT32;
    int64_t c = draw(0, 3) ? draw(1, 9) : 70, size[4] = { draw(2, 4), c, draw(1, 5), draw(1, 5) };
    int nd = draw(0, 2) ? 4 : 2;
    bool training = r & 1;
    amp_tensor *x = some(dt, draw(0, 3), nd, size), *g = some(dt, draw(0, 3), nd, size);
    amp_tensor *w = draw(0, 2) ? SOME(sd, c) : NULL, *b = w ? SOME(sd, c) : NULL, *rm = SOME(sd, c), *rv = SOME(sd, c);
    amp_tensor *m0 = some(AMP_FLOAT64, 0, 1, &c), *v0 = some(AMP_FLOAT64, 0, 1, &c);
    for (int64_t i = 0; i < c; i++) { put(rv, i, 1 + i % 3); put(m0, i, get(rm, i)); put(v0, i, get(rv, i)); }
    norm s = statistics(x, c, channel, 1e-5);
    uint32_t version = amp__version(rm);
    if (!training) for (int64_t i = 0; i < c; i++) { s.mean[i] = get(rm, i); s.rstd[i] = 1 / sqrt(get(rv, i) + 1e-5); }
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
  CHECK(get(rm, 0) == before);           /* leaves the running statistics alone */
  drop_all(3, (amp_tensor *[]){ x, rm, rv });
}

static void layer_norms(void) {
  for (int r = 0; r < 40; r++) {
    int dt = draw_dtype(), sd = dt == AMP_FLOAT64 ? dt : AMP_FLOAT32;
    int64_t n = r % 8 ? draw(2, 40) : 2500, rows = draw(1, 30), size[3] = { 1, rows, n };
    amp_tensor *x = some(dt, draw(0, 3), 3, size), *g = some(dt, draw(0, 3), 3, size), *w = draw(0, 2) ? SOME(sd, n) : NULL, *b = w ? SOME(sd, n) : NULL;
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

static void softmaxes(void) {
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
    free(want); free(gx);
    drop_all(3, (amp_tensor *[]){ x, g, y });
  }
}

/* -- Losses ----------------------------------------------------------------------------------------------- */

static void losses(void) {
  for (int r = 0; r < 60; r++) {
    int dt = draw_dtype(), ad = dt == AMP_FLOAT64 ? dt : AMP_FLOAT32, how = r % 3;
    int64_t n = draw(1, 9), c = draw(1, 20), e = draw(1, 4), size[3] = { n, c, e }, rows = n * e;
    double smooth = r & 4 ? 0.25 : 0, total = 0, sum = 0;
    amp_tensor *x = some(dt, draw(0, 3), 3, size), *w = draw(0, 1) ? SOME(dt, c) : NULL;
    amp_tensor *t = empty(draw(AMP_INT64, AMP_INT8), draw(0, 3), DIMS(n, e)), *g = how ? some(dt, 0, 0, NULL) : SOME(dt, n, e);
    for (int64_t i = 0; w && i < c; i++) put(w, i, draw(1, 8) / 8.0);
    for (int64_t i = 0; i < rows; i++) put(t, i, i && draw(0, 4) == 0 ? -7 : draw(1, (int)c));
    double *loss = doubles(rows), *lse = doubles(rows), *top = doubles(2 * rows), *gx = doubles(x->numel), *nll = doubles(rows), *gn = doubles(x->numel), wall = 0;
    for (int64_t j = 0; j < c; j++) wall += w ? get(w, j) : 1;
    for (int64_t i = 0; i < rows; i++) {
      int64_t base = i / e * c * e + i % e, y = (int64_t)get(t, i) - 1;
      for (int64_t j = 0; j < c; j++) lse[i] += exp(get(x, base + j * e));
      lse[i] = log(lse[i]);
      top[i] = -INFINITY;
      for (int64_t j = 0; j < c; j++) top[i] = fmax(top[i], get(x, base + j * e));
      top[rows + i] = exp(lse[i] - top[i]);
      if (y < 0) continue;
      double wy = w ? get(w, y) : 1;
      total += wy;
      loss[i] = (1 - smooth) * wy * (lse[i] - get(x, base + y * e));
      for (int64_t j = 0; j < c; j++) loss[i] += smooth / (double)c * (w ? get(w, j) : 1) * (lse[i] - get(x, base + j * e));
      nll[i] = -wy * get(x, base + y * e);
      sum += loss[i];
    }
    for (int64_t i = 0; i < rows; i++) {
      int64_t base = i / e * c * e + i % e, y = (int64_t)get(t, i) - 1;
      if (y < 0) continue;
      double q = get(g, how ? 0 : i) / (how == 1 ? total : 1), wy = w ? get(w, y) : 1, all = (1 - smooth) * wy + smooth / (double)c * wall;
      for (int64_t j = 0; j < c; j++)
        gx[base + j * e] = q * (all * exp(get(x, base + j * e) - lse[i]) - (j == y ? (1 - smooth) * wy : 0) - smooth / (double)c * (w ? get(w, j) : 1));
      gn[base + y * e] = -q * wy;
    }
    double joined = how == 1 ? sum / total : sum;
    amp_slot a[24] = { { .i = how }, { .i = -7 }, { .f = smooth } };
    what = "cross_entropy";
    OK(call(AMP_OP_cross_entropy_index, a, 3, x, t, w, 0, 0, 0));
    near_all(out[0], how ? &joined : loss, 4 * rounding[dt]);
    near_all(out[1], top, 4 * rounding[ad]);
    near_all(out[2], &total, 4 * rounding[ad]);
    amp_tensor *l = out[1], *tw = out[2];
    amp__free(out[0]);
    what = "cross_entropy_backward";
    OK(call(AMP_OP_cross_entropy_backward, a, 6, g, x, t, w, l, tw));
    near_all(out[0], gx, 4 * rounding[dt]);
    drop();
    what = "nll_loss";
    OK(call(AMP_OP_nll_loss, a, 3, x, t, w, 0, 0, 0));
    sum = 0;
    for (int64_t i = 0; i < rows; i++) sum += nll[i];
    joined = how == 1 ? sum / total : sum;
    near_all(out[0], how ? &joined : nll, 4 * rounding[dt]);
    drop();
    a[9] = a[0]; a[10] = a[1];
    a[0].i = 3;
    for (int i = 0; i < 3; i++) a[1 + i].i = size[i];
    what = "nll_loss_backward";
    OK(call(AMP_OP_nll_loss_backward, a, 4, g, t, w, tw, 0, 0));
    near_all(out[0], gn, 2 * rounding[dt]);
    free(loss); free(lse); free(top); free(gx); free(nll); free(gn);
    drop_all(6, (amp_tensor *[]){ x, w, t, g, l, tw });
  }
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
    free(want); free(gx);
    drop_all(3, (amp_tensor *[]){ x, t, g });
  }
}

/* Labels and places come from users: each is looked at before anything is written. */
static void refusals(void) {
  amp_tensor *x = SOME(AMP_FLOAT32, 8, 10), *t = amp__tensor_make(AMP_INT64, AMP_CPU, 0, DIMS(8)), *in[2] = { x, t }, *o[AMP_MAX_OUT] = { 0 };
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
  in[0] = x; in[1] = t;
  AMP_ENTER(S);
  CHECK(amp__dispatch(AMP_OP_pool_gather, 0, in, 2, o, (amp_slot[]){ { .i = 2 } }) == AMP_E_INDEX);
  drop_all(2, in);
}

int main(void) {
  S = amp_state_new();
  if (S == NULL) return 1;
  S->grad_mode = 0;
  products();
  convolutions();
  pools();
  batch_norms();
  layer_norms();
  softmaxes();
  losses();
  refusals();
  printf("%s\n", getenv("AMP_PLUGIN_DIR") ? amp_plugin_info("onednn") : "plain kernels");
  amp_state_free(S);
  return DONE();
}
