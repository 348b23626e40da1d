/*
** cpu_groupnorm.c: rows group_norm and group_norm_backward.
**
** Data is N x C x the rest, seen as in batch_norm: runs of one channel, or runs
** of channels (channels-last, and N x C), else copied to C order. Whatever the
** way, a sample's pass over memory gives sums by channel; a group's statistics
** are joined from those of its channels, and a second pass applies to each
** channel a x + b (backward a g + b x + c). Threads take samples, or groups of
** samples where runs are of one channel. Gradients of weight and bias are left
** by sample and channel and added in order, whatever the number of threads.
*/
#include "cpu_norm.h"

typedef struct gn {
  int dtype, type;                    /* of the data; of the computation */
  int64_t n, c, s, groups, d;         /* images, channels, the rest; d: channels of a group */
  bool inside;                        /* channels are contiguous */
  const char *x, *g;
  char *y;                            /* output, or input's gradient */
  int64_t xn, xc, xs, gn, gc, gs, yn, yc, ys;  /* strides: image, channel, rest */
  double eps;
  void *mean, *rstd;                  /* [n][groups], in the computing type */
  const double *w, *b;                /* [c] or NULL */
  double *gw, *gb;                    /* [n][c] */
  char *buf;                          /* [thread][6][c] in double, for runs of channels */
} gn;

/* -- A group's coefficients ------------------------------------------------------------------- */

#define AT(p, e) ((p) + (e) * size)

/* gw, gb hold the sums of g (x - mean) and g by channel, and rest what the mean was rounded by: what
** a g + b (x - mean) rstd + c needs beside w r is common to a group */
#define COMMON(T, S)                                                                                \
  static void common_##S(const gn *k, int64_t n, int64_t group, double rest, double *b, double *c) { \
    int64_t at = n * k->c + group * k->d;                                                           \
    double r = ((T *)k->rstd)[n * k->groups + group], s0 = 0, s1 = 0;                               \
    double m = (double)k->d * (double)k->s;                                                         \
    for (int64_t i = 0; i < k->d; i++) {                                                            \
      double w = k->w ? k->w[group * k->d + i] : 1;                                                 \
      k->gw[at + i] -= rest * k->gb[at + i];                                                        \
      s0 += w * k->gb[at + i];                                                                      \
      s1 += w * k->gw[at + i];                                                                      \
    }                                                                                               \
    *b = -r * (s1 * r) / m;                                                                         \
    *c = -r * s0 / m - *b * rest * r;                                                               \
    for (int64_t i = 0; i < k->d; i++) k->gw[at + i] *= r;                                          \
  }
COMMON(float, f32)
COMMON(double, f64)

/* -- Runs of one channel ------------------------------------------------------------------------ */

#define OUTER(T, S)                                                                                 \
  static void outer_forward_##S(const gn *k, int64_t begin, int64_t end) {                          \
    T buf[NORM_RUN];                                                                                \
    int size = amp__dtype_size[k->dtype];                                                           \
    for (int64_t u = begin; u < end; u++) {                                                         \
      int64_t n = u / k->groups, c0 = u % k->groups * k->d;                                         \
      norm_stat st = {0, 0, 0};                                                                     \
      /* channels that follow each other are one run */                                             \
      bool whole = k->xc == k->s || k->d == 1;                                                      \
      int64_t runs = whole ? 1 : k->d, length = whole ? k->d * k->s : k->s;                         \
      for (int64_t c = 0; c < runs; c++)                                                            \
        for (int64_t i = 0; i < length; i += NORM_RUN) {                                            \
          int64_t len = length - i < NORM_RUN ? length - i : NORM_RUN;                              \
          const T *x = norm_in_##S(AT(k->x, n * k->xn + (c0 + c) * k->xc + i), k->dtype, buf, len); \
          norm_take_##S(&st, x, len);                                                               \
        }                                                                                           \
      T mean = (T)st.mean, r = (T)(1 / sqrt(st.m2 / st.n + k->eps));                                \
      bool far = norm_far(st.mean, r, st.m2);                                                       \
      ((T *)k->mean)[u] = mean;                                                                     \
      ((T *)k->rstd)[u] = r;                                                                        \
      for (int64_t c = c0; c < c0 + k->d; c++) {                                                    \
        double a = (double)r * (k->w ? k->w[c] : 1), b = k->b ? k->b[c] : 0;                        \
        b -= far ? (st.mean - (double)mean) * a : st.mean * a;                                      \
        for (int64_t i = 0; i < k->s; i += NORM_RUN) {                                              \
          int64_t len = k->s - i < NORM_RUN ? k->s - i : NORM_RUN;                                  \
          const T *x = norm_in_##S(AT(k->x, n * k->xn + c * k->xc + i), k->dtype, buf, len);        \
          char *y = AT(k->y, n * k->yn + c * k->yc + i);                                            \
          T *to = k->dtype == k->type ? (T *)y : buf;                                               \
          if (far) amp__row_centre_##S(to, x, mean, (T)a, (T)b, len);                               \
          else amp__row_affine_##S(to, x, (T)a, (T)b, len);                                         \
          if (to == buf) amp__nn_store_##S(y, k->dtype, 1, buf, len);                               \
        }                                                                                           \
      }                                                                                             \
    }                                                                                               \
  }                                                                                                 \
  static void outer_backward_##S(const gn *k, int64_t begin, int64_t end) {                         \
    T bx[NORM_RUN], bg[NORM_RUN];                                                                   \
    int size = amp__dtype_size[k->dtype];                                                           \
    for (int64_t u = begin; u < end; u++) {                                                         \
      int64_t n = u / k->groups, c0 = u % k->groups * k->d;                                         \
      T mean = ((T *)k->mean)[u], r = ((T *)k->rstd)[u];                                            \
      double b = 0, d = 0, rest = 0;                                                                \
      bool rounded = fabs((double)mean) * r >= NORM_ROUNDED, far = false;                           \
      for (int pass = 0; pass < 2; pass++) {                                                        \
        for (int64_t c = c0; c < c0 + k->d; c++) {                                                  \
          double sg = 0, sx = 0, a = (double)r * (k->w ? k->w[c] : 1);                              \
          for (int64_t i = 0; i < k->s; i += NORM_RUN) {                                            \
            int64_t len = k->s - i < NORM_RUN ? k->s - i : NORM_RUN;                                \
            const T *x = norm_in_##S(AT(k->x, n * k->xn + c * k->xc + i), k->dtype, bx, len);       \
            const T *g = norm_in_##S(AT(k->g, n * k->gn + c * k->gc + i), k->dtype, bg, len);       \
            if (pass == 0) {                                                                        \
              T sum[2];                                                                             \
              amp__row_sums_##S(g, x, mean, len, sum);                                              \
              sg += sum[0];                                                                         \
              sx += sum[1];                                                                         \
              if (rounded) { amp__row_moments_##S(x, mean, len, sum); rest += sum[0]; }             \
              continue;                                                                             \
            }                                                                                       \
            char *y = AT(k->y, n * k->yn + c * k->yc + i);                                          \
            T *to = k->dtype == k->type ? (T *)y : bx;                                              \
            if (far) amp__row_centre2_##S(to, g, x, mean, r, (T)a, (T)b, (T)d, len);                \
            else amp__row_affine2_##S(to, g, x, (T)a, (T)b, (T)d, len);                             \
            if (to == bx) amp__nn_store_##S(y, k->dtype, 1, bx, len);                               \
          }                                                                                         \
          if (pass == 0) { k->gb[n * k->c + c] = sg; k->gw[n * k->c + c] = sx; }                    \
        }                                                                                           \
        if (pass == 0) {                                                                            \
          common_##S(k, n, u % k->groups, rest / ((double)k->d * (double)k->s), &b, &d);            \
          far = norm_far_back(mean, r, b);                                                          \
          if (!far) { b *= r; d -= b * mean; }                                                      \
        }                                                                                           \
      }                                                                                             \
    }                                                                                               \
  }
OUTER(float, f32)
OUTER(double, f64)

/* -- Runs of channels ----------------------------------------------------------------------------- */

/* blocks of rows, NORM_SPAN channels wide, and in a block its lanes */
#define EACH_BLOCK(k) for (int64_t c = 0, nc; nc = (k)->c - c < NORM_SPAN ? (k)->c - c : NORM_SPAN, c < (k)->c; c += nc) \
    for (int64_t i = 0, rows; rows = (k)->s - i < most ? (k)->s - i : most, i < (k)->s; i += rows)
#define EACH_LANE for (int64_t j = 0, w; w = nc - j < NORM_LANE ? nc - j : NORM_LANE, j < nc; j += w)

#define INNER(T, S)                                                                                 \
  static void inner_forward_##S(const gn *k, int64_t begin, int64_t end, int thread) {              \
    T buf[NORM_BLOCK];                                                                              \
    double *all = (double *)k->buf + (size_t)thread * 6 * (size_t)k->c, *dev = all + k->c;          \
    T *a = (T *)(dev + k->c), *b = (T *)(dev + 2 * k->c), *mean = (T *)(dev + 3 * k->c);            \
    int size = amp__dtype_size[k->dtype];                                                           \
    int64_t ld, most = norm_rows(k->c);                                                             \
    for (int64_t n = begin; n < end; n++) {                                                         \
      bool far = false;                                                                             \
      for (int64_t c = 0; c < k->c; c++) mean[c] = *norm_in_##S(AT(k->x, n * k->xn + c), k->dtype, buf, 1); \
      for (int pass = 0; pass < 3; pass = amp__lane_settle_##S(pass, (double)k->s, k->c, mean, all, dev)) { \
      for (int64_t c = 0; c < 2 * k->c; c++) all[c] = 0;                                            \
      EACH_BLOCK(k) {                                                                               \
        const T *x = norm_lanes_##S(AT(k->x, n * k->xn + c + i * k->xs), k->dtype, k->xs, rows, nc, buf, &ld); \
        EACH_LANE amp__lane_stats_##S(x + j, ld, rows, w, mean + c + j, all + c + j, dev + c + j, pass == 2); \
      }                                                                                             \
      }                                                                                             \
      for (int64_t g = 0; g < k->groups; g++) {                                                     \
        norm_stat st = {0, 0, 0};                                                                   \
        for (int64_t c = g * k->d; c < (g + 1) * k->d; c++) norm_join(&st, (double)k->s, all[c], dev[c]); \
        T m = (T)st.mean, r = (T)(1 / sqrt(st.m2 / st.n + k->eps));                                 \
        far = far || norm_far(st.mean, r, st.m2);                                                   \
        dev[g] = st.mean;                                                                           \
        ((T *)k->mean)[n * k->groups + g] = m;                                                      \
        ((T *)k->rstd)[n * k->groups + g] = r;                                                      \
        for (int64_t c = g * k->d; c < (g + 1) * k->d; c++) {                                       \
          double u = (double)r * (k->w ? k->w[c] : 1);                                              \
          a[c] = (T)u;                                                                              \
          mean[c] = m;                                                                              \
          b[c] = (T)((k->b ? k->b[c] : 0) - st.mean * u);                                           \
        }                                                                                           \
      }                                                                                             \
      for (int64_t g = 0; g < k->groups && far; g++) for (int64_t c = g * k->d; c < (g + 1) * k->d; c++) \
        b[c] = (T)((k->b ? k->b[c] : 0) - (dev[g] - (double)mean[c]) * (double)a[c]);               \
      EACH_BLOCK(k) {                                                                               \
        const T *x = norm_lanes_##S(AT(k->x, n * k->xn + c + i * k->xs), k->dtype, k->xs, rows, nc, buf, &ld); \
        char *y = AT(k->y, n * k->yn + c + i * k->ys);                                              \
        T *to = k->dtype == k->type ? (T *)y : buf;                                                 \
        int64_t yld = to == buf ? nc : k->ys;                                                       \
        if (far) amp__lane_centre_##S(to, yld, x, ld, rows, nc, mean + c, a + c, b + c);            \
        else amp__lane_affine_##S(to, yld, x, ld, rows, nc, a + c, b + c);                          \
        if (to == buf) norm_unlane_##S(y, k->dtype, k->ys, rows, nc, buf);                          \
      }                                                                                             \
    }                                                                                               \
  }                                                                                                 \
  static double inner_rest_##S(const gn *k, int64_t n, int64_t g, T mean) { /* what the mean was rounded by */ \
    T buf[NORM_BLOCK];                                                                              \
    int size = amp__dtype_size[k->dtype];                                                           \
    double sum = 0;                                                                                 \
    for (int64_t i = 0; i < k->s; i++) for (int64_t c = g * k->d, nc; c < (g + 1) * k->d; c += nc) { \
      nc = (g + 1) * k->d - c < NORM_BLOCK ? (g + 1) * k->d - c : NORM_BLOCK;                       \
      const T *x = norm_in_##S(AT(k->x, n * k->xn + c + i * k->xs), k->dtype, buf, nc);             \
      for (int64_t j = 0; j < nc; j++) sum += (double)x[j] - (double)mean;                          \
    }                                                                                               \
    return sum / ((double)k->d * (double)k->s);                                                     \
  }                                                                                                 \
  static void inner_backward_##S(const gn *k, int64_t begin, int64_t end, int thread) {             \
    T bx[NORM_BLOCK], bg[NORM_BLOCK], ps[NORM_LANE], px[NORM_LANE];                                 \
    T *mean = (T *)((double *)k->buf + (size_t)thread * 6 * (size_t)k->c), *a = mean + k->c, *b = a + k->c, *d = b + k->c, *r = d + k->c; \
    int size = amp__dtype_size[k->dtype];                                                           \
    int64_t ld, gld, most = norm_rows(k->c);                                                        \
    for (int64_t n = begin; n < end; n++) {                                                         \
      double *gb = k->gb + n * k->c, *gw = k->gw + n * k->c;                                        \
      bool rounded = false, far = false;                                                            \
      for (int64_t g = 0; g < k->groups; g++) {                                                     \
        T m = ((T *)k->mean)[n * k->groups + g], rstd = ((T *)k->rstd)[n * k->groups + g];          \
        rounded = rounded || fabs((double)m) * rstd >= NORM_ROUNDED;                                \
        for (int64_t c = g * k->d; c < (g + 1) * k->d; c++) { gb[c] = gw[c] = 0; mean[c] = m; r[c] = rstd; } \
      }                                                                                             \
      EACH_BLOCK(k) {                                                                               \
        const T *x = norm_lanes_##S(AT(k->x, n * k->xn + c + i * k->xs), k->dtype, k->xs, rows, nc, bx, &ld); \
        const T *g = norm_lanes_##S(AT(k->g, n * k->gn + c + i * k->gs), k->dtype, k->gs, rows, nc, bg, &gld); \
        EACH_LANE {                                                                                 \
          amp__lane_sums_##S(g + j, gld, x + j, ld, rows, w, mean + c + j, ps, px);                 \
          for (int64_t l = 0; l < w; l++) { gb[c + j + l] += ps[l]; gw[c + j + l] += px[l]; }       \
        }                                                                                           \
      }                                                                                             \
      for (int64_t g = 0; g < k->groups; g++) {                                                     \
        double p, q;                                                                                \
        common_##S(k, n, g, rounded ? inner_rest_##S(k, n, g, mean[g * k->d]) : 0, &p, &q);         \
        far = far || norm_far_back(mean[g * k->d], r[g * k->d], p);                                 \
        for (int64_t c = g * k->d; c < (g + 1) * k->d; c++) { a[c] = (T)(r[c] * (k->w ? k->w[c] : 1)); b[c] = (T)p; d[c] = (T)q; } \
      }                                                                                             \
      for (int64_t c = 0; c < k->c && !far; c++) { b[c] *= r[c]; d[c] -= b[c] * mean[c]; }          \
      EACH_BLOCK(k) {                                                                               \
        const T *x = norm_lanes_##S(AT(k->x, n * k->xn + c + i * k->xs), k->dtype, k->xs, rows, nc, bx, &ld); \
        const T *g = norm_lanes_##S(AT(k->g, n * k->gn + c + i * k->gs), k->dtype, k->gs, rows, nc, bg, &gld); \
        char *y = AT(k->y, n * k->yn + c + i * k->ys);                                              \
        T *to = k->dtype == k->type ? (T *)y : bx;                                                  \
        int64_t yld = to == bx ? nc : k->ys;                                                        \
        if (far) amp__lane_centre2_##S(to, yld, g, gld, x, ld, rows, nc, mean + c, r + c, a + c, b + c, d + c); \
        else amp__lane_affine2_##S(to, yld, g, gld, x, ld, rows, nc, a + c, b + c, d + c);          \
        if (to == bx) norm_unlane_##S(y, k->dtype, k->ys, rows, nc, bx);                            \
      }                                                                                             \
    }                                                                                               \
  }
INNER(float, f32)
INNER(double, f64)

static void body(void *ctx, int64_t begin, int64_t end, int thread) {
  const gn *k = ctx;
  bool wide = k->type == AMP_FLOAT64;
  if (k->g == NULL) {
    if (k->inside) { if (wide) inner_forward_f64(k, begin, end, thread); else inner_forward_f32(k, begin, end, thread); }
    else if (wide) outer_forward_f64(k, begin, end);
    else outer_forward_f32(k, begin, end);
  } else if (k->inside) { if (wide) inner_backward_f64(k, begin, end, thread); else inner_backward_f32(k, begin, end, thread); }
  else if (wide) outer_backward_f64(k, begin, end);
  else outer_backward_f32(k, begin, end);
}

/* -- The rows -------------------------------------------------------------------------------------- */

typedef struct layout { amp__nn_view x, g, y; } layout;

static bool same_way(gn *k, const amp_tensor *x, const amp_tensor *g, const amp_tensor *y, layout *v) {
  if (!amp__norm_strides(x, v->x.stride, &k->xn, &k->xc, &k->xs) || !amp__norm_strides(y, v->y.stride, &k->yn, &k->yc, &k->ys) ||
      (g && !amp__norm_strides(g, v->g.stride, &k->gn, &k->gc, &k->gs))) return false;
  bool in = (k->c == 1 || k->xc == 1) && (k->c == 1 || k->yc == 1) && (!g || k->c == 1 || k->gc == 1);
  bool out = (k->s == 1 || k->xs == 1) && (k->s == 1 || k->ys == 1) && (!g || k->s == 1 || k->gs == 1);
  k->inside = in && (k->s == 1 || !out);
  return in || out;
}

static bool open_layout(gn *k, const amp_tensor *x, const amp_tensor *g, const amp_tensor *y, layout *v) {
  k->dtype = x->dtype;
  k->type = amp__nn_type(x->dtype);
  k->n = x->size[0];
  k->c = x->size[1];
  k->d = k->c / k->groups;
  k->s = 1;
  for (int d = 2; d < x->ndim; d++) k->s *= x->size[d];
  if (!amp__nn_read(&v->x, x, x->dtype) || (g && !amp__nn_read(&v->g, g, g->dtype)) || !amp__nn_write(&v->y, y, x->dtype)) return false;
  if ((g && g->dtype != x->dtype) || !same_way(k, x, g, y, v)) {
    amp__nn_drop(&v->x); amp__nn_drop(&v->g); amp__nn_drop(&v->y);
    k->dtype = k->type;
    if (!amp__nn_read_c(&v->x, x, k->type) || (g && !amp__nn_read_c(&v->g, g, k->type)) || !amp__nn_write_c(&v->y, y, k->type)) return false;
    same_way(k, x, g, y, v);
  }
  k->x = v->x.p;
  k->g = g ? v->g.p : NULL;
  k->y = v->y.p;
  return true;
}

static void close_layout(layout *v) {
  amp__nn_drop(&v->x);
  amp__nn_drop(&v->g);
  amp__nn_drop(&v->y);
}

static const double *vector(const amp_tensor *t, double *dst, int64_t c) {
  if (t) amp__nn_load_f64(dst, amp__data(t), t->dtype, t->stride[0], c);
  return t ? dst : NULL;
}

static int64_t units(const gn *k) { return k->inside ? k->n : k->n * k->groups; }

int amp__cpu_group_norm(amp_call *c) { /* input weight? bias?; num_groups eps */
  amp_tensor *x = c->in[0], *y = c->out[0];
  double own[1024];
  gn k = {.groups = c->a[0].i, .eps = c->a[1].f};
  layout v = {0};
  amp__nn_view vm = {0}, vr = {0};
  amp__nn_scratch s = {0};
  int rc = AMP_E_MEMORY;
  if (x->numel == 0) {
    rc = amp__fill_value(c->out[1], 0);
    return rc < 0 ? rc : amp__fill_value(c->out[2], 0);
  }
  if (!open_layout(&k, x, NULL, y, &v)) goto out;
  int threads = amp__nn_threads(x->numel * 2, units(&k));
  if (!amp__nn_lend(&s, own, sizeof own, (size_t)k.c * (2 + 6 * (size_t)threads) * sizeof(double))) goto out;
  if (!amp__nn_write_c(&vm, c->out[1], k.type) || !amp__nn_write_c(&vr, c->out[2], k.type)) goto out;
  double *d = s.p;
  k.w = vector(amp__nn_arg(c, 1), d, k.c);
  k.b = vector(amp__nn_arg(c, 2), d + k.c, k.c);
  k.buf = (char *)(d + 2 * k.c);
  k.mean = vm.p;
  k.rstd = vr.p;
  amp__nn_par(threads, units(&k), body, &k);
  amp__nn_written(&v.y, y, k.dtype);
  amp__nn_written(&vm, c->out[1], k.type);
  amp__nn_written(&vr, c->out[2], k.type);
  rc = 0;
out:
  amp__nn_give(&s);
  close_layout(&v);
  amp__nn_drop(&vm);
  amp__nn_drop(&vr);
  return rc;
}

static void by_channel(const amp_tensor *t, double *sums, int64_t n, int64_t c) {
  if (!t) return;
  for (int64_t i = 1; i < n; i++) for (int64_t j = 0; j < c; j++) sums[j] += sums[i * c + j];
  amp__nn_store_f64(amp__data(t), t->dtype, t->stride[0], sums, c);
}

int amp__cpu_group_norm_backward(amp_call *c) { /* grad input mean rstd weight?; num_groups */
  amp_tensor *g = c->in[0], *x = c->in[1], *y = c->out[0];
  double own[1024];
  gn k = {.groups = c->a[0].i};
  layout v = {0};
  amp__nn_view vm = {0}, vr = {0};
  amp__nn_scratch s = {0};
  int rc = AMP_E_MEMORY;
  if (x->numel == 0) {
    if ((rc = amp__fill_value(c->out[1], 0)) < 0) return rc;
    return amp__fill_value(c->out[2], 0);
  }
  if (!open_layout(&k, x, g, y, &v)) goto out;
  int threads = amp__nn_threads(x->numel * 3, units(&k));
  if (!amp__nn_lend(&s, own, sizeof own, (size_t)k.c * (1 + 2 * (size_t)k.n + 6 * (size_t)threads) * sizeof(double))) goto out;
  if (!amp__nn_read_c(&vm, c->in[2], k.type) || !amp__nn_read_c(&vr, c->in[3], k.type)) goto out;
  double *d = s.p;
  k.w = vector(amp__nn_arg(c, 4), d, k.c);
  k.gw = d + k.c;
  k.gb = k.gw + k.n * k.c;
  k.buf = (char *)(k.gb + k.n * k.c);
  k.mean = vm.p;
  k.rstd = vr.p;
  amp__nn_par(threads, units(&k), body, &k);
  amp__nn_written(&v.y, y, k.dtype);
  by_channel(c->out[1], k.gw, k.n, k.c);
  by_channel(c->out[2], k.gb, k.n, k.c);
  rc = 0;
out:
  amp__nn_give(&s);
  close_layout(&v);
  amp__nn_drop(&vm);
  amp__nn_drop(&vr);
  return rc;
}
