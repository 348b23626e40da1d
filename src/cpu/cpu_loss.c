/*
** cpu_loss.c: rows nll_loss, cross_entropy_index, mse_loss and their backward
** rows. Classes lie along dimension 2 (the only one of a vector); a row is one
** label's scores. Labels count from 1 and are all checked before anything is
** computed; rows labelled ignore_index count for nothing. Losses are summed in
** double, in the order of rows.
*/
#include "cpu_rows.h"

enum { NONE, MEAN, SUM };

typedef struct job {
  int type, reduction;
  int64_t ignore, classes;
  double smooth;
  const amp_tensor *x, *target, *y;    /* scores, labels, output */
  int64_t sx, sy;                      /* strides along classes */
  amp__nn_walk w;                      /* over rows: offsets in x, target, and out or grad, and y */
  const double *weight;                /* [classes] or NULL */
  double wsum;                         /* of all weights */
  const amp_tensor *lse, *grad;        /* lse is contiguous, one a row */
  double scale;                        /* of gradients, for mean and sum */
  double *loss, *part;                 /* [rows]: loss, weight of the label */
  char *buf;                           /* [thread][2][classes] */
} job;

static void set(job *k, const amp_tensor *x, int64_t reduction, int64_t ignore) {
  k->reduction = (int)reduction;
  k->ignore = ignore;
  k->classes = x->ndim ? x->size[x->ndim > 1 ? 1 : 0] : 1;
}

/* Rows of x (or of its gradient), the labels, and a tensor of the labels' shape (t NULL: none) */
static void walk(job *k, const amp_tensor *x, const amp_tensor *t, const amp_tensor *y) {
  int64_t size[AMP_MAX_DIM], st[4][AMP_MAX_DIM] = {{0}};
  int n = 0, cd = x->ndim > 1 ? 1 : 0;
  for (int d = 0; d < x->ndim; d++) {
    if (d == cd) continue;
    size[n] = x->size[d];
    st[0][n] = x->stride[d];
    st[1][n] = k->target->stride[n];
    st[2][n] = t ? t->stride[n] : 0;
    st[3][n] = y ? y->stride[d] : 0;
    n++;
  }
  const int64_t *strides[4] = {st[0], st[1], st[2], st[3]};
  amp__nn_walk_init(&k->w, n, size, 0, 4, strides);
  k->sx = x->ndim ? x->stride[cd] : 1;
  k->sy = y && y->ndim ? y->stride[cd] : 1;
}

static int check_labels(const job *k) {
  amp__nn_pos p;
  amp__nn_seek(&k->w, &p, 0);
  const void *t = amp__data(k->target);
  for (int64_t r = 0; r < k->w.n; r++, amp__nn_next(&k->w, &p)) {
    int64_t y = amp__nn_label(t, k->target->dtype, p.off[1]);
    if ((y < 1 || y > k->classes) && y != k->ignore)
      return amp__fail(AMP_E_INDEX, "label %lld at row %lld, expected 1..%lld", (long long)y, (long long)r + 1, (long long)k->classes);
  }
  return 0;
}

static inline int64_t label(const job *k, const amp__nn_pos *p) {
  int64_t y = amp__nn_label(amp__data(k->target), k->target->dtype, p->off[1]);
  return y == k->ignore ? -1 : y - 1;
}

static const double *weights(const amp_tensor *w, double *dst, int64_t n, double *sum) {
  *sum = (double)n;
  if (!w) return NULL;
  amp__nn_load_f64(dst, amp__data(w), w->dtype, w->ndim ? w->stride[0] : 1, n);
  *sum = 0;
  for (int64_t i = 0; i < n; i++) *sum += dst[i];
  return dst;
}

static double scalar(const amp_tensor *t) {
  double v;
  amp__nn_load_f64(&v, amp__data(t), t->dtype, 1, 1);
  return v;
}
static void put(const amp_tensor *t, int64_t off, double v) { amp__nn_store_f64((char *)amp__data(t) + off * amp__dtype_size[t->dtype], t->dtype, 1, &v, 1); }
static double get(const amp_tensor *t, int64_t off) {
  double v;
  amp__nn_load_f64(&v, amp__nn_at(t, off), t->dtype, 1, 1);
  return v;
}

/* Losses of rows into out (by rows, or joined) and the labels' total weight */
static void finish(const job *k, const amp_tensor *out, const amp_tensor *total) {
  double sum = 0, part = 0;
  for (int64_t r = 0; r < k->w.n; r++) { sum += k->loss[r]; part += k->part[r]; }
  if (k->reduction != NONE) put(out, 0, k->reduction == MEAN ? sum / part : sum);
  else {
    amp__nn_pos p;
    amp__nn_seek(&k->w, &p, 0);
    for (int64_t r = 0; r < k->w.n; r++, amp__nn_next(&k->w, &p)) put(out, p.off[2], k->loss[r]);
  }
  if (total) put(total, 0, part);
}

/* -- nll_loss ------------------------------------------------------------------------------- */

int amp__cpu_nll_loss(amp_call *c) {
  const amp_tensor *x = c->in[0], *w = amp__nn_arg(c, 2);
  double own[1024];
  amp__nn_scratch s;
  job k = {.target = c->in[1]};
  set(&k, x, c->a[0].i, c->a[1].i);
  walk(&k, x, k.reduction == NONE ? c->out[0] : NULL, NULL);
  int rc = check_labels(&k);
  if (rc) return rc;
  if (!amp__nn_lend(&s, own, sizeof own, (size_t)(2 * k.w.n + k.classes) * sizeof(double))) return AMP_E_MEMORY;
  k.loss = s.p;
  k.part = k.loss + k.w.n;
  k.weight = weights(w, k.part + k.w.n, k.classes, &k.wsum);
  amp__nn_pos p;
  amp__nn_seek(&k.w, &p, 0);
  for (int64_t r = 0; r < k.w.n; r++, amp__nn_next(&k.w, &p)) {
    int64_t y = label(&k, &p);
    k.part[r] = y < 0 ? 0 : k.weight ? k.weight[y] : 1;
    k.loss[r] = y < 0 ? 0 : -get(x, p.off[0] + y * k.sx) * k.part[r];
  }
  finish(&k, c->out[0], c->out[1]);
  amp__nn_give(&s);
  return 0;
}

/* grad target weight? total -> the scores' gradient, zero but at the labels */
int amp__cpu_nll_loss_backward(amp_call *c) {
  const amp_tensor *g = c->in[0], *w = amp__nn_arg(c, 2), *y = c->out[0];
  job k = {.target = c->in[1]};
  set(&k, y, c->a[9].i, c->a[10].i);
  walk(&k, y, k.reduction == NONE ? g : NULL, NULL);
  int rc = check_labels(&k);
  if (rc) return rc;
  double scale = k.reduction == NONE ? 0 : scalar(g) / (k.reduction == MEAN ? scalar(c->in[3]) : 1);
  if (y->flags & AMP_T_DENSE) memset(amp__data(y), 0, (size_t)y->numel * amp__dtype_size[y->dtype]);
  else {
    amp__nn_pos p;
    amp__nn_seek(&k.w, &p, 0);
    for (int64_t r = 0; r < k.w.n; r++, amp__nn_next(&k.w, &p))
      for (int64_t i = 0; i < k.classes; i++) put(y, p.off[0] + i * k.sx, 0);
  }
  amp__nn_pos p;
  amp__nn_seek(&k.w, &p, 0);
  for (int64_t r = 0; r < k.w.n; r++, amp__nn_next(&k.w, &p)) {
    int64_t l = label(&k, &p);
    if (l < 0) continue;
    double q = k.reduction == NONE ? get(g, p.off[2]) : scale;
    put(y, p.off[0] + l * k.sx, -q * (w ? get(w, l * (w->ndim ? w->stride[0] : 1)) : 1));
  }
  return 0;
}

/* -- cross_entropy: softmax and nll_loss in one pass ----------------------------------------- */

#define CE(T, S)                                                                                    \
  static const T *scores_##S(const job *k, int64_t off, T *buf) {                                   \
    const char *p = amp__nn_at(k->x, off);                                                          \
    if (k->x->dtype == k->type && k->sx == 1) return (const T *)p;                                  \
    amp__nn_load_##S(buf, p, k->x->dtype, k->sx, k->classes);                                       \
    return buf;                                                                                     \
  }                                                                                                 \
  static void forward_##S(const job *k, int64_t begin, int64_t end, int thread) {                   \
    int64_t n = k->classes;                                                                         \
    T *buf = (T *)k->buf + (size_t)thread * 2 * n;                                                  \
    amp__nn_pos p;                                                                                  \
    amp__nn_seek(&k->w, &p, begin);                                                                 \
    for (int64_t r = begin; r < end; r++, amp__nn_next(&k->w, &p)) {                                \
      const T *x = scores_##S(k, p.off[0], buf);                                                    \
      T m = amp__row_max_##S(x, n);                                                                 \
      double lse = (double)m + log((double)amp__row_exp_##S(NULL, x, m, n));                        \
      int64_t y = label(k, &p);                                                                     \
      double w = y < 0 ? 0 : k->weight ? k->weight[y] : 1, l = 0;                                   \
      put(k->lse, r, lse);                                                       \
      if (y >= 0) {                                                                                 \
        l = (1 - k->smooth) * w * (lse - (double)x[y]);                                             \
        if (k->smooth != 0) {                                                                       \
          double all = 0;                                                                           \
          if (k->weight) for (int64_t i = 0; i < n; i++) all += k->weight[i] * (lse - (double)x[i]); \
          else for (int64_t i = 0; i < n; i++) all += lse - (double)x[i];                           \
          l += k->smooth / (double)n * all;                                                         \
        }                                                                                           \
      }                                                                                             \
      k->loss[r] = l;                                                                               \
      k->part[r] = w;                                                                               \
    }                                                                                               \
  }                                                                                                 \
  /* q (W softmax(x) - T): T has the label's share and, smoothed, everybody's */                    \
  static void backward_##S(const job *k, int64_t begin, int64_t end, int thread) {                  \
    int64_t n = k->classes;                                                                         \
    T *buf = (T *)k->buf + (size_t)thread * 2 * n, *out = buf + n;                                  \
    bool direct = k->y->dtype == k->type && k->sy == 1;                                             \
    double each = k->smooth / (double)n;                                                            \
    amp__nn_pos p;                                                                                  \
    amp__nn_seek(&k->w, &p, begin);                                                                 \
    for (int64_t r = begin; r < end; r++, amp__nn_next(&k->w, &p)) {                                \
      const T *x = scores_##S(k, p.off[0], buf);                                                    \
      T *d = direct ? (T *)amp__nn_at(k->y, p.off[3]) : out;                                        \
      int64_t y = label(k, &p);                                                                     \
      if (y < 0) for (int64_t i = 0; i < n; i++) d[i] = 0;                                          \
      else {                                                                                        \
        double q = k->reduction == NONE ? get(k->grad, p.off[2]) : k->scale, w = k->weight ? k->weight[y] : 1; \
        double all = (1 - k->smooth) * w + each * k->wsum;                                          \
        softgrad_##S(d, x, (T)get(k->lse, r), (T)(q * all), (T)(q * each), k->smooth != 0 ? k->weight : NULL, n); \
        d[y] -= (T)(q * (1 - k->smooth) * w);                                                       \
      }                                                                                             \
      if (!direct) amp__nn_store_##S((void *)amp__nn_at(k->y, p.off[3]), k->y->dtype, k->sy, d, n); \
    }                                                                                               \
  }
#define SOFTGRAD(T, S, EXP)                                                                         \
  AMP_CLONES static void softgrad_##S(T *d, const T *x, T lse, T a, T b, const double *w, int64_t n) { \
    if (w) for (int64_t i = 0; i < n; i++) d[i] = a * EXP(x[i] - lse) - b * (T)w[i];                \
    else for (int64_t i = 0; i < n; i++) d[i] = a * EXP(x[i] - lse) - b;                            \
  }
SOFTGRAD(float, f32, amp__expf)
SOFTGRAD(double, f64, exp)
CE(float, f32)
CE(double, f64)

static void forward_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const job *k = ctx;
  if (k->type == AMP_FLOAT64) forward_f64(k, begin, end, thread);
  else forward_f32(k, begin, end, thread);
}
static void backward_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const job *k = ctx;
  if (k->type == AMP_FLOAT64) backward_f64(k, begin, end, thread);
  else backward_f32(k, begin, end, thread);
}

int amp__cpu_cross_entropy_index(amp_call *c) {
  const amp_tensor *x = c->in[0], *w = amp__nn_arg(c, 2);
  char own[16 << 10] __attribute__((aligned(64)));
  amp__nn_scratch s;
  job k = {.type = amp__nn_type(x->dtype), .x = x, .target = c->in[1], .lse = c->out[1], .smooth = c->a[2].f};
  set(&k, x, c->a[0].i, c->a[1].i);
  walk(&k, x, k.reduction == NONE ? c->out[0] : NULL, NULL);
  int rc = check_labels(&k);
  if (rc) return rc;
  int threads = amp__nn_threads(4 * x->numel, k.w.n);
  size_t head = (size_t)(2 * k.w.n + k.classes) * sizeof(double);
  if (!amp__nn_lend(&s, own, sizeof own, head + (size_t)threads * 2 * (size_t)k.classes * amp__dtype_size[k.type])) return AMP_E_MEMORY;
  k.loss = s.p;
  k.part = k.loss + k.w.n;
  k.weight = weights(w, k.part + k.w.n, k.classes, &k.wsum);
  k.buf = (char *)s.p + head;
  amp__nn_par(threads, k.w.n, forward_body, &k);
  finish(&k, c->out[0], c->out[2]);
  amp__nn_give(&s);
  return 0;
}

/* grad input target weight? lse total */
int amp__cpu_cross_entropy_backward(amp_call *c) {
  const amp_tensor *g = c->in[0], *x = c->in[1], *w = c->in[3];
  char own[16 << 10] __attribute__((aligned(64)));
  amp__nn_scratch s;
  amp__nn_view lse = {0};
  job k = {.type = amp__nn_type(x->dtype), .x = x, .target = c->in[2], .y = c->out[0], .grad = g, .lse = c->in[4], .smooth = c->a[2].f};
  if (x->numel == 0) return 0;
  set(&k, x, c->a[0].i, c->a[1].i);
  walk(&k, x, k.reduction == NONE ? g : NULL, c->out[0]);
  int rc = check_labels(&k);
  if (rc) return rc;
  amp_tensor flat = *c->in[4];         /* lse in the order of rows */
  amp_storage room;
  if (!(flat.flags & AMP_T_CONTIGUOUS)) {
    if (!amp__nn_read_c(&lse, c->in[4], k.type)) return AMP_E_MEMORY;
    room = *flat.storage;
    room.data = lse.p;
    flat.storage = &room;
    flat.offset = 0;
    flat.dtype = (uint8_t)k.type;
  }
  k.lse = &flat;
  if (k.reduction != NONE) k.scale = scalar(g) / (k.reduction == MEAN ? scalar(c->in[5]) : 1);
  int threads = amp__nn_threads(4 * x->numel, k.w.n);
  size_t head = (size_t)k.classes * sizeof(double);
  rc = AMP_E_MEMORY;
  if (!amp__nn_lend(&s, own, sizeof own, head + (size_t)threads * 2 * (size_t)k.classes * amp__dtype_size[k.type])) goto out;
  k.weight = weights(w, s.p, k.classes, &k.wsum);
  k.buf = (char *)s.p + head;
  amp__nn_par(threads, k.w.n, backward_body, &k);
  amp__nn_give(&s);
  rc = 0;
out:
  amp__nn_drop(&lse);
  return rc;
}

/* -- mse_loss ---------------------------------------------------------------------------------- */

enum { BLOCK = 1024 };

typedef struct mse {
  int type;
  const amp_tensor *x, *t, *y, *g;     /* y: output or NULL; g: gradient or NULL (a scalar: NULL too) */
  bool back;                           /* x - t is scaled, not squared */
  double scale, *sums;                 /* sums of blocks of rows */
  int64_t n, sx, st, sy, sg, per;
  amp__nn_walk w;
} mse;

#define MSE(T, S)                                                                                   \
  static void mse_rows_##S(const mse *k, int64_t begin, int64_t end) {                              \
    T a[BLOCK], b[BLOCK], g[BLOCK];                                                                 \
    for (int64_t blk = begin; blk < end; blk++) {                                                   \
      amp__nn_pos p;                                                                                \
      double sum = 0;                                                                               \
      int64_t r0 = blk * k->per, r1 = r0 + k->per < k->w.n ? r0 + k->per : k->w.n;                  \
      amp__nn_seek(&k->w, &p, r0);                                                                  \
      for (int64_t r = r0; r < r1; r++, amp__nn_next(&k->w, &p))                                    \
        for (int64_t i = 0; i < k->n; i += BLOCK) {                                                 \
          int64_t n = k->n - i < BLOCK ? k->n - i : BLOCK;                                          \
          amp__nn_load_##S(a, amp__nn_at(k->x, p.off[0] + i * k->sx), k->x->dtype, k->sx, n);       \
          amp__nn_load_##S(b, amp__nn_at(k->t, p.off[1] + i * k->st), k->t->dtype, k->st, n);       \
          for (int64_t j = 0; j < n; j++) a[j] -= b[j];                                             \
          if (k->back) {                                                                            \
            if (k->g) {                                                                             \
              amp__nn_load_##S(g, amp__nn_at(k->g, p.off[3] + i * k->sg), k->g->dtype, k->sg, n);   \
              for (int64_t j = 0; j < n; j++) a[j] *= (T)k->scale * g[j];                           \
            } else for (int64_t j = 0; j < n; j++) a[j] *= (T)k->scale;                             \
          } else if (k->y) for (int64_t j = 0; j < n; j++) a[j] *= a[j];                            \
          else sum += amp__row_dev_##S(a, 0, n);                                                    \
          if (k->y) amp__nn_store_##S((void *)amp__nn_at(k->y, p.off[2] + i * k->sy), k->y->dtype, k->sy, a, n); \
        }                                                                                           \
      if (k->sums) k->sums[blk] = sum;                                                              \
    }                                                                                               \
  }
MSE(float, f32)
MSE(double, f64)

static void mse_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const mse *k = ctx;
  if (k->type == AMP_FLOAT64) mse_rows_f64(k, begin, end);
  else mse_rows_f32(k, begin, end);
}

/* Everything but the last dimension that can't be merged into runs */
static void mse_run(mse *k, bool sum, double *total) {
  double sums[64];
  const amp_tensor *x = k->x;
  const int64_t *st[4] = {x->stride, k->t->stride, k->y ? k->y->stride : x->stride, k->g ? k->g->stride : x->stride};
  amp__nn_walk_init(&k->w, x->ndim, x->size, 0, 4, st);
  amp__nn_walk *w = &k->w;
  k->n = k->sx = k->st = k->sy = k->sg = 1;
  if (w->ndim) {                       /* the innermost merged run is a row */
    int d = --w->ndim;
    k->n = w->size[d];
    k->sx = w->stride[0][d]; k->st = w->stride[1][d]; k->sy = w->stride[2][d]; k->sg = w->stride[3][d];
    w->n /= k->n ? k->n : 1;
    if (w->n == 1 && k->n >= 2 * BLOCK && w->ndim == 0) {  /* one long run: cut it for the threads */
      int64_t piece = BLOCK;
      while (k->n % piece) piece /= 2;
      if (piece >= 64) {
        w->ndim = 1;
        w->size[0] = w->n = k->n / piece;
        w->stride[0][0] = k->sx * piece; w->stride[1][0] = k->st * piece; w->stride[2][0] = k->sy * piece; w->stride[3][0] = k->sg * piece;
        k->n = piece;
      }
    }
  }
  k->per = (w->n + 63) / 64;
  int64_t blocks = k->per ? (w->n + k->per - 1) / k->per : 0;
  k->sums = sum ? sums : NULL;
  amp__nn_par(amp__nn_threads(x->numel, blocks), blocks, mse_body, k);
  *total = 0;
  for (int64_t i = 0; sum && i < blocks; i++) *total += sums[i];
}

static int mse_type(const amp_tensor *a, const amp_tensor *b) {
  return a->dtype == AMP_FLOAT64 || b->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
}

int amp__cpu_mse_loss(amp_call *c) {
  bool none = c->a[0].i == NONE;
  mse k = {.type = mse_type(c->in[0], c->in[1]), .x = c->in[0], .t = c->in[1], .y = none ? c->out[0] : NULL};
  double sum = 0;
  if (k.x->numel) mse_run(&k, !none, &sum);
  if (!none) put(c->out[0], 0, c->a[0].i == MEAN ? sum / (double)k.x->numel : sum);
  return 0;
}

int amp__cpu_mse_loss_backward(amp_call *c) { /* grad input target */
  bool none = c->a[0].i == NONE;
  mse k = {.type = mse_type(c->in[1], c->in[2]), .x = c->in[1], .t = c->in[2], .y = c->out[0], .g = none ? c->in[0] : NULL, .back = true, .scale = 2};
  double sum;
  if (k.x->numel == 0) return 0;
  if (c->a[0].i == MEAN) k.scale /= (double)k.x->numel;
  if (!none) k.scale *= scalar(c->in[0]);
  mse_run(&k, false, &sum);
  return 0;
}
