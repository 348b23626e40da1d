/*
** cpu_batchnorm.c: rows batch_norm and batch_norm_backward.
**
** Data is N x C x the rest, seen in one of two shapes: runs of one channel
** (NCHW), or runs of channels (channels-last, and N x C), else it is copied to
** C order. Threads take channels, so sums don't depend on their number. A run's
** mean and variance are taken while it is in cache and joined in double: one
** trip to memory, no cancellation. 16-bit runs are widened on the way.
*/
#include "cpu_norm.h"

typedef struct bn {
  int dtype, type;                    /* of the data; of the computation */
  int64_t n, c, s;                    /* images, channels, the rest */
  bool inside;                        /* channels are contiguous */
  const char *x, *g;
  char *y;                            /* output, or input's gradient */
  int64_t xn, xc, xs, gn, gc, gs, yn, yc, ys;  /* strides: image, channel, rest */
  bool training;
  double eps;
  void *mean, *rstd;                  /* [c], in the computing type */
  double *var;                        /* [c] biased */
  double *low;                        /* [c] what the means were rounded by */
  const double *w, *b;                /* [c] or NULL */
  double *gw, *gb;                    /* [c] */
} bn;

/* -- NCHW: runs of one channel ---------------------------------------------------------- */

#define AT(p, e) ((p) + (e) * size)

enum { TOGETHER = 64 };               /* channels whose runs are read in memory's order, image by image */

/* y = a x + b of a channel; true: y = a (x - mean) + b */
static bool shift(const bn *k, int64_t c, double mean, double r, double *a, double *b) {
  bool far = norm_far(mean + k->low[c], r, k->var[c]);
  *a = r * (k->w ? k->w[c] : 1);
  *b = (k->b ? k->b[c] : 0) - (far ? k->low[c] : mean + k->low[c]) * *a;
  return far;
}
/* The gradient w r g + b x + d of a channel, of the sums of g and of g (x - mean - rest); true: w r g + b (x - mean) r + d */
static bool back(const bn *k, double w, double r, double mean, double sg, double sx, double m, double rest, double *b, double *d) {
  *b = *d = 0;
  if (!k->training) return false;
  *b = -w * r * (sx * r) / m;
  *d = -w * r * sg / m - *b * rest * r;
  if (norm_far_back(mean, r, *b)) return true;
  *b *= r;
  *d -= *b * mean;
  return false;
}

#define OUTER(T, S)                                                                                 \
  static void outer_stats_##S(const bn *k, int64_t begin, int64_t end) {                            \
    T buf[NORM_RUN];                                                                                \
    norm_stat st[TOGETHER];                                                                         \
    int size = amp__dtype_size[k->dtype];                                                           \
    for (int64_t c = begin; c < end; c++) st[c - begin] = (norm_stat){0, 0, 0};                     \
    for (int64_t n = 0; n < k->n; n++)                                                              \
      for (int64_t c = begin; c < end; c++)                                                         \
        for (int64_t i = 0; i < k->s; i += NORM_RUN) {                                              \
          int64_t len = k->s - i < NORM_RUN ? k->s - i : NORM_RUN;                                  \
          const T *x = norm_in_##S(AT(k->x, n * k->xn + c * k->xc + i), k->dtype, buf, len);        \
          norm_take_##S(&st[c - begin], x, len);                                                    \
        }                                                                                           \
    for (int64_t c = begin; c < end; c++) {                                                         \
      k->var[c] = st[c - begin].m2 / st[c - begin].n;                                               \
      ((T *)k->mean)[c] = (T)st[c - begin].mean;                                                    \
      k->low[c] = st[c - begin].mean - (double)(T)st[c - begin].mean;                               \
      ((T *)k->rstd)[c] = (T)(1 / sqrt(k->var[c] + k->eps));                                        \
    }                                                                                               \
  }                                                                                                 \
  static void outer_apply_##S(const bn *k, int64_t begin, int64_t end) {                            \
    T buf[NORM_RUN];                                                                                \
    int size = amp__dtype_size[k->dtype];                                                           \
    for (int64_t n = 0; n < k->n; n++)                                                              \
      for (int64_t c = begin; c < end; c++) {                                                       \
        double a, b, r = ((T *)k->rstd)[c];                                                         \
        T mean = ((T *)k->mean)[c];                                                                 \
        bool far = shift(k, c, mean, r, &a, &b);                                                    \
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
  }                                                                                                 \
  static void outer_back_##S(const bn *k, int64_t begin, int64_t end) {                             \
    T bx[NORM_RUN], bg[NORM_RUN];                                                                   \
    double sg[TOGETHER] = {0}, sx[TOGETHER] = {0}, rest[TOGETHER] = {0}, bs[TOGETHER], ds[TOGETHER], m = (double)k->n * (double)k->s; \
    bool far[TOGETHER];                                                                             \
    int size = amp__dtype_size[k->dtype];                                                           \
    for (int pass = 0; pass < 2; pass++) {                                                          \
      for (int64_t c = begin, at = 0; c < end && pass; c++, at++) {                                 \
        rest[at] /= m;                                                                              \
        sx[at] -= rest[at] * sg[at];                                                                \
        far[at] = back(k, k->w ? k->w[c] : 1, ((T *)k->rstd)[c], ((T *)k->mean)[c], sg[at], sx[at], m, rest[at], &bs[at], &ds[at]); \
      }                                                                                             \
      for (int64_t n = 0; n < k->n; n++)                                                            \
        for (int64_t c = begin; c < end; c++) {                                                     \
          int64_t at = c - begin;                                                                   \
          double mean = ((T *)k->mean)[c], r = ((T *)k->rstd)[c], a = (k->w ? k->w[c] : 1) * r;     \
          bool rounded = pass == 0 && k->training && fabs(mean) * r >= NORM_ROUNDED;                \
          for (int64_t i = 0; i < k->s; i += NORM_RUN) {                                            \
            int64_t len = k->s - i < NORM_RUN ? k->s - i : NORM_RUN;                                \
            const T *x = norm_in_##S(AT(k->x, n * k->xn + c * k->xc + i), k->dtype, bx, len);       \
            const T *g = norm_in_##S(AT(k->g, n * k->gn + c * k->gc + i), k->dtype, bg, len);       \
            if (pass == 0) {                                                                        \
              T sum[2];                                                                             \
              amp__row_sums_##S(g, x, (T)mean, len, sum);                                           \
              sg[at] += sum[0];                                                                     \
              sx[at] += sum[1];                                                                     \
              if (rounded) { amp__row_moments_##S(x, (T)mean, len, sum); rest[at] += sum[0]; }      \
              continue;                                                                             \
            }                                                                                       \
            char *y = AT(k->y, n * k->yn + c * k->yc + i);                                          \
            T *to = k->dtype == k->type ? (T *)y : bx;                                              \
            if (far[at]) amp__row_centre2_##S(to, g, x, (T)mean, (T)r, (T)a, (T)bs[at], (T)ds[at], len); \
            else amp__row_affine2_##S(to, g, x, (T)a, (T)bs[at], (T)ds[at], len);                   \
            if (to == bx) amp__nn_store_##S(y, k->dtype, 1, bx, len);                               \
          }                                                                                         \
        }                                                                                           \
    }                                                                                               \
    for (int64_t c = begin, at = 0; c < end; c++, at++) { k->gb[c] = sg[at]; k->gw[c] = sx[at] * ((T *)k->rstd)[c]; } \
  }
OUTER(float, f32)
OUTER(double, f64)

/* -- Channels inside: runs of channels --------------------------------------------------- */

#define INNER(T, S)                                                                                 \
  /* blocks of rows of the channels c .. c + nc - 1, nc <= NORM_SPAN */                             \
  static void inner_stats_##S(const bn *k, int64_t c, int64_t nc) {                                 \
    T buf[NORM_BLOCK];                                                                              \
    T about[NORM_SPAN];                                                                             \
    double all[NORM_SPAN], dev[NORM_SPAN], count = (double)k->n * (double)k->s;                     \
    int size = amp__dtype_size[k->dtype];                                                           \
    int64_t most = norm_rows(k->c), ld;                                                             \
    memcpy(about, norm_in_##S(AT(k->x, c), k->dtype, buf, nc), (size_t)nc * sizeof(T));              \
    for (int pass = 0; pass < 3; pass = amp__lane_settle_##S(pass, count, nc, about, all, dev)) {   \
    for (int64_t j = 0; j < nc; j++) all[j] = dev[j] = 0;                                           \
    for (int64_t n = 0; n < k->n; n++)                                                              \
      for (int64_t i = 0, rows; i < k->s; i += rows) {                                              \
        rows = k->s - i < most ? k->s - i : most;                                                   \
        const T *x = norm_lanes_##S(AT(k->x, n * k->xn + c + i * k->xs), k->dtype, k->xs, rows, nc, buf, &ld); \
        for (int64_t j = 0; j < nc; j += NORM_LANE) {                                               \
          int64_t w = nc - j < NORM_LANE ? nc - j : NORM_LANE;                                      \
          amp__lane_stats_##S(x + j, ld, rows, w, about + j, all + j, dev + j, pass == 2);          \
        }                                                                                           \
      }                                                                                             \
    }                                                                                               \
    for (int64_t j = 0; j < nc; j++) {                                                              \
      k->var[c + j] = dev[j] / count;                                                               \
      ((T *)k->mean)[c + j] = (T)all[j];                                                            \
      k->low[c + j] = all[j] - (double)(T)all[j];                                                   \
      ((T *)k->rstd)[c + j] = (T)(1 / sqrt(k->var[c + j] + k->eps));                                \
    }                                                                                               \
  }                                                                                                 \
  static void inner_apply_##S(const bn *k, int64_t c, int64_t nc) {                                 \
    T buf[NORM_BLOCK], a[NORM_SPAN], b[NORM_SPAN];                                                  \
    int size = amp__dtype_size[k->dtype];                                                           \
    int64_t most = norm_rows(k->c), ld;                                                             \
    const T *mean = (const T *)k->mean + c;                                                         \
    bool far = false;                                                                               \
    for (int64_t j = 0; j < nc; j++) {                                                              \
      double u, v;                                                                                  \
      far |= shift(k, c + j, mean[j], ((T *)k->rstd)[c + j], &u, &v);                               \
      a[j] = (T)u;                                                                                  \
      b[j] = (T)v;                                                                                  \
    }                                                                                               \
    for (int64_t j = 0; j < nc && far; j++) b[j] = (T)((k->b ? k->b[c + j] : 0) - k->low[c + j] * (double)a[j]); \
    for (int64_t n = 0; n < k->n; n++)                                                              \
      for (int64_t i = 0, rows; i < k->s; i += rows) {                                              \
        rows = k->s - i < most ? k->s - i : most;                                                   \
        const T *x = norm_lanes_##S(AT(k->x, n * k->xn + c + i * k->xs), k->dtype, k->xs, rows, nc, buf, &ld); \
        char *y = AT(k->y, n * k->yn + c + i * k->ys);                                              \
        T *to = k->dtype == k->type ? (T *)y : buf;                                                 \
        int64_t yld = to == buf ? nc : k->ys;                                                       \
        if (far) amp__lane_centre_##S(to, yld, x, ld, rows, nc, mean, a, b);                        \
        else amp__lane_affine_##S(to, yld, x, ld, rows, nc, a, b);                                  \
        if (to == buf) norm_unlane_##S(y, k->dtype, k->ys, rows, nc, buf);                          \
      }                                                                                             \
  }                                                                                                 \
  static double rest_##S(const bn *k, int64_t c) { /* what a channel's mean was rounded by */       \
    T x;                                                                                            \
    int size = amp__dtype_size[k->dtype];                                                           \
    double sum = 0, mean = ((T *)k->mean)[c];                                                       \
    for (int64_t n = 0; n < k->n; n++) for (int64_t i = 0; i < k->s; i++)                           \
      sum += (double)*norm_in_##S(AT(k->x, n * k->xn + c + i * k->xs), k->dtype, &x, 1) - mean;     \
    return sum / ((double)k->n * (double)k->s);                                                     \
  }                                                                                                 \
  static void inner_back_##S(const bn *k, int64_t c, int64_t nc) {                                  \
    T bx[NORM_BLOCK], bg[NORM_BLOCK], a[NORM_SPAN], b[NORM_SPAN], d[NORM_SPAN], ps[NORM_LANE], px[NORM_LANE]; \
    double sg[NORM_SPAN], sx[NORM_SPAN], m = (double)k->n * (double)k->s;                           \
    bool far = false;                                                                               \
    int size = amp__dtype_size[k->dtype];                                                           \
    int64_t most = norm_rows(k->c), ld, gld;                                                        \
    const T *mean = (const T *)k->mean + c, *rstd = (const T *)k->rstd + c;                         \
    for (int64_t j = 0; j < nc; j++) sg[j] = sx[j] = 0;                                             \
    for (int pass = 0; pass < 2; pass++) {                                                          \
      for (int64_t j = 0; j < nc && pass; j++) {                                                    \
        double w = k->w ? k->w[c + j] : 1, u, v, e = 0;                                             \
        if (k->training && fabs((double)mean[j]) * rstd[j] >= NORM_ROUNDED) { e = rest_##S(k, c + j); sx[j] -= e * sg[j]; } \
        bool one = back(k, w, rstd[j], mean[j], sg[j], sx[j], m, e, &u, &v);                        \
        a[j] = (T)(w * rstd[j]);                                                                    \
        b[j] = (T)u;                                                                                \
        d[j] = (T)v;                                                                                \
        for (int64_t l = 0; l < j && one && !far; l++) { d[l] += b[l] * mean[l]; b[l] /= rstd[l]; } /* all channels the same way */ \
        if (far && !one && k->training) { d[j] = (T)(v + u * mean[j]); b[j] = (T)(u / rstd[j]); }   \
        far = far || one;                                                                           \
      }                                                                                             \
      for (int64_t n = 0; n < k->n; n++)                                                            \
        for (int64_t i = 0, rows; i < k->s; i += rows) {                                            \
          rows = k->s - i < most ? k->s - i : most;                                                 \
          const T *x = norm_lanes_##S(AT(k->x, n * k->xn + c + i * k->xs), k->dtype, k->xs, rows, nc, bx, &ld); \
          const T *g = norm_lanes_##S(AT(k->g, n * k->gn + c + i * k->gs), k->dtype, k->gs, rows, nc, bg, &gld); \
          if (pass == 0) {                                                                          \
            for (int64_t j = 0; j < nc; j += NORM_LANE) {                                           \
              int64_t w = nc - j < NORM_LANE ? nc - j : NORM_LANE;                                  \
              amp__lane_sums_##S(g + j, gld, x + j, ld, rows, w, mean + j, ps, px);                 \
              for (int64_t l = 0; l < w; l++) { sg[j + l] += ps[l]; sx[j + l] += px[l]; }           \
            }                                                                                       \
            continue;                                                                               \
          }                                                                                         \
          char *y = AT(k->y, n * k->yn + c + i * k->ys);                                            \
          T *to = k->dtype == k->type ? (T *)y : bx;                                                \
          int64_t yld = to == bx ? nc : k->ys;                                                      \
          if (far) amp__lane_centre2_##S(to, yld, g, gld, x, ld, rows, nc, mean, rstd, a, b, d);    \
          else amp__lane_affine2_##S(to, yld, g, gld, x, ld, rows, nc, a, b, d);                    \
          if (to == bx) norm_unlane_##S(y, k->dtype, k->ys, rows, nc, bx);                          \
        }                                                                                           \
    }                                                                                               \
    for (int64_t j = 0; j < nc; j++) { k->gb[c + j] = sg[j]; k->gw[c + j] = sx[j] * ((T *)k->rstd)[c + j]; } \
  }
INNER(float, f32)
INNER(double, f64)

/* -- Running over channels ----------------------------------------------------------------- */

typedef struct job { const bn *k; int what; int64_t lane; } job;   /* what: 0 stats and apply, 1 apply, 2 backward */

static void body(void *ctx, int64_t begin, int64_t end, int thread) {
  const job *j = ctx;
  const bn *k = j->k;
#define PICK(f, ...) (k->type == AMP_FLOAT64 ? f##_f64(__VA_ARGS__) : f##_f32(__VA_ARGS__))
  if (!k->inside) {
    for (int64_t c = begin, e; c < end; c = e) {
      e = c + TOGETHER < end ? c + TOGETHER : end;
      if (j->what == 0) PICK(outer_stats, k, c, e);
      if (j->what <= 1) PICK(outer_apply, k, c, e);
      else PICK(outer_back, k, c, e);
    }
    return;
  }
  for (int64_t i = begin; i < end; i++) {
    int64_t c = i * j->lane, nc = k->c - c < j->lane ? k->c - c : j->lane;
    if (j->what == 0) PICK(inner_stats, k, c, nc);
    if (j->what <= 1) PICK(inner_apply, k, c, nc);
    else PICK(inner_back, k, c, nc);
  }
}

static void run(const bn *k, int what) {
  job j = {k, what, k->c < NORM_SPAN ? k->c : NORM_SPAN};
  int threads = amp__nn_threads(k->n * k->c * k->s, k->c);
  if (k->inside && threads > 1 && k->c / threads < j.lane) j.lane = k->c / threads >= 16 ? k->c / threads / 16 * 16 : 16;
  int64_t units = k->inside ? (k->c + j.lane - 1) / j.lane : k->c;
  amp__nn_par(threads < units ? threads : (int)units, units, body, &j);
}

/* C values of any float dtype (absent: NULL stays) */
static const double *vector(const amp_tensor *t, double *dst, int64_t c) {
  if (!t) return NULL;
  amp__nn_load_f64(dst, amp__data(t), t->dtype, t->ndim ? t->stride[0] : 1, c);
  return dst;
}

/* The data in one of the two shapes, x and y (and g) alike. Copies sit in v. */
typedef struct layout { amp__nn_view x, g, y; } layout;

static bool same_way(bn *k, const amp_tensor *x, const amp_tensor *g, const amp_tensor *y, layout *v) {
  bool ok = amp__norm_strides(x, v->x.stride, &k->xn, &k->xc, &k->xs) && amp__norm_strides(y, v->y.stride, &k->yn, &k->yc, &k->ys) &&
            (!g || amp__norm_strides(g, v->g.stride, &k->gn, &k->gc, &k->gs));
  if (!ok) return false;
  bool in = (k->c == 1 || k->xc == 1) && (k->c == 1 || k->yc == 1) && (!g || k->c == 1 || k->gc == 1);
  bool out = (k->s == 1 || k->xs == 1) && (k->s == 1 || k->ys == 1) && (!g || k->s == 1 || k->gs == 1);
  k->inside = in && (k->s == 1 || !out);
  if (!in && !out) return false;
  if (k->inside && (k->s == 1 || (k->xn == k->s * k->xs && k->yn == k->s * k->ys && (!g || k->gn == k->s * k->gs)))) {
    if (k->s == 1) { k->xs = k->xn; k->ys = k->yn; k->gs = k->gn; }  /* images are one long run of pixels */
    k->s *= k->n;
    k->n = 1;
  }
  return true;
}

static bool open_layout(bn *k, const amp_tensor *x, const amp_tensor *g, const amp_tensor *y, layout *v) {
  k->dtype = x->dtype;
  k->type = amp__nn_type(x->dtype);
  k->n = x->size[0];
  k->c = x->ndim > 1 ? x->size[1] : 1;
  k->s = 1;
  for (int d = 2; d < x->ndim; d++) k->s *= x->size[d];
  if (!amp__nn_read(&v->x, x, x->dtype) || (g && !amp__nn_read(&v->g, g, g->dtype)) || !amp__nn_write(&v->y, y, x->dtype)) return false;
  if ((g && g->dtype != x->dtype) || !same_way(k, x, g, y, v)) {
    amp__nn_drop(&v->x); amp__nn_drop(&v->g); amp__nn_drop(&v->y);
    int type = k->type;
    k->dtype = type;
    if (!amp__nn_read_c(&v->x, x, type) || (g && !amp__nn_read_c(&v->g, g, type)) || !amp__nn_write_c(&v->y, y, type)) return false;
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

/* -- batch_norm -------------------------------------------------------------------------------- */

static void update_running(const bn *k, amp_tensor *t, bool variance, double momentum, double count) {
  double buf[64];
  if (!t) return;
  for (int64_t c = 0; c < k->c; c += 64) {
    int64_t n = k->c - c < 64 ? k->c - c : 64, step = t->ndim ? t->stride[0] : 1;
    char *p = (char *)amp__data(t) + c * step * amp__dtype_size[t->dtype];
    amp__nn_load_f64(buf, p, t->dtype, step, n);
    for (int64_t j = 0; j < n; j++) {
      double mean = k->type == AMP_FLOAT64 ? ((double *)k->mean)[c + j] : ((float *)k->mean)[c + j];
      double v = variance ? k->var[c + j] * (count / (count - 1)) : mean;
      buf[j] = (1 - momentum) * buf[j] + momentum * v;
    }
    amp__nn_store_f64(p, t->dtype, step, buf, n);
  }
  amp__bump(t);
}

int amp__cpu_batch_norm(amp_call *call) {
  amp_tensor *x = call->in[0], *rm = amp__nn_arg(call, 1), *rv = amp__nn_arg(call, 2), *y = call->out[0], *om = call->out[1], *or = call->out[2];
  double momentum = call->a[1].f, own[512];
  bn k = {.training = call->a[0].i != 0, .eps = call->a[2].f};
  layout v = {0};
  amp__nn_view vm = {0}, vr = {0};
  amp__nn_scratch s = {0};
  int rc = AMP_E_MEMORY;
  int64_t c = x->ndim > 1 ? x->size[1] : 1;
  bool live = k.training || !rm || !rv;
  if (c == 0) return 0;
  if (!open_layout(&k, x, NULL, y, &v)) goto out;
  if (!amp__nn_lend(&s, own, sizeof own, (size_t)c * 6 * sizeof(double))) goto out;
  if (!amp__nn_write_c(&vm, om, k.type) || !amp__nn_write_c(&vr, or, k.type)) goto out;
  double *d = s.p;
  k.w = vector(amp__nn_arg(call, 3), d, c);
  k.b = vector(amp__nn_arg(call, 4), d + c, c);
  k.var = d + 2 * c;
  k.low = d + 5 * c;
  k.mean = vm.p;
  k.rstd = vr.p;
  rc = 0;
  if (live) {
    double count = (double)x->numel / (double)c;
    if (x->numel == 0) {
      for (int64_t i = 0; i < c; i++) {
        k.var[i] = NAN;
        k.low[i] = 0;
        if (k.type == AMP_FLOAT64) ((double *)k.mean)[i] = ((double *)k.rstd)[i] = NAN;
        else ((float *)k.mean)[i] = ((float *)k.rstd)[i] = NAN;
      }
    } else run(&k, 0);
    bool finite = count > 1;
    for (int64_t i = 0; i < c && finite; i++)
      finite = isfinite(k.var[i]) && isfinite(k.type == AMP_FLOAT64 ? ((double *)k.mean)[i] : ((float *)k.mean)[i]);
    if (k.training && finite) {   /* an overflowed batch must not poison what evaluation uses */
      update_running(&k, rm, false, momentum, count);
      update_running(&k, rv, true, momentum, count);
    }
  } else {
    const double *m = vector(rm, d + 3 * c, c), *q = vector(rv, d + 4 * c, c);
    for (int64_t i = 0; i < c; i++) {
      double r = 1 / sqrt(q[i] + k.eps);
      k.var[i] = q[i];
      k.low[i] = 0;
      if (k.type == AMP_FLOAT64) { ((double *)k.mean)[i] = m[i]; ((double *)k.rstd)[i] = r; }
      else { ((float *)k.mean)[i] = (float)m[i]; ((float *)k.rstd)[i] = (float)r; k.low[i] = m[i] - (double)(float)m[i]; }
    }
  }
  if (x->numel && !live) run(&k, 1);
  amp__nn_written(&v.y, y, k.dtype);
  amp__nn_written(&vm, om, k.type);
  amp__nn_written(&vr, or, k.type);
out:
  amp__nn_give(&s);
  close_layout(&v);
  amp__nn_drop(&vm);
  amp__nn_drop(&vr);
  return rc;
}

/* -- batch_norm_backward: grad input weight? mean rstd -> input's, weight's, bias's ----------------- */

static void write_vector(const amp_tensor *t, const double *src, int64_t c) {
  if (t) amp__nn_store_f64(amp__data(t), t->dtype, t->ndim ? t->stride[0] : 1, src, c);
}

int amp__cpu_batch_norm_backward(amp_call *call) {
  amp_tensor *g = call->in[0], *x = call->in[1], *w = call->in[2], *y = call->out[0];
  double own[512];
  bn k = {.training = call->a[0].i != 0};
  layout v = {0};
  amp__nn_view vm = {0}, vr = {0};
  amp__nn_scratch s = {0};
  int rc = AMP_E_MEMORY;
  int64_t c = x->ndim > 1 ? x->size[1] : 1;
  if (c == 0) return 0;
  if (!open_layout(&k, x, g, y, &v)) goto out;
  if (!amp__nn_lend(&s, own, sizeof own, (size_t)c * 3 * sizeof(double))) goto out;
  if (!amp__nn_read_c(&vm, call->in[3], k.type) || !amp__nn_read_c(&vr, call->in[4], k.type)) goto out;
  double *d = s.p;
  k.w = vector(w, d, c);
  k.gw = d + c;
  k.gb = d + 2 * c;
  k.mean = vm.p;
  k.rstd = vr.p;
  if (x->numel) run(&k, 2);
  else memset(k.gw, 0, (size_t)c * 2 * sizeof(double));
  amp__nn_written(&v.y, y, k.dtype);
  write_vector(call->out[1], k.gw, c);
  write_vector(call->out[2], k.gb, c);
  rc = 0;
out:
  amp__nn_give(&s);
  close_layout(&v);
  amp__nn_drop(&vm);
  amp__nn_drop(&vr);
  return rc;
}
