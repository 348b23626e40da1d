/*
** cpu_loss.c: rows nll_loss, cross_entropy_index and their backward rows.
** Classes lie along dimension 2 (the only one of a vector); a row is one label's
** scores. Labels count from 1 and are all checked before anything is computed;
** rows labelled ignore_index count for nothing. Losses are summed in double, in
** the order of rows. Where neighbouring rows are neighbours in memory, as pixels of
** maps are, cross entropy goes through tiles: a few hundred rows at once, class by
** class. Losses of pairs of elements stand in cpu_loss_pair.c.
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
  const amp_tensor *top, *grad;        /* top is contiguous: each row's largest score, then each row's sum of exponentials about it */
  double scale;                        /* of gradients, for mean and sum */
  double *loss, *part;                 /* [rows]: loss, weight of the label */
  char *buf;                           /* [thread][2][classes] */
  int64_t tile;                        /* rows in a tile, 0: row by row */
} job;

enum { TILE = 256 };                   /* rows whose labels are read at once, at most */

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

/* Rows from r on that lie along one run, at most `most`; p: where they start */
static inline int64_t span(const amp__nn_walk *w, amp__nn_pos *p, int64_t r, int64_t end, int64_t most) {
  amp__nn_seek(w, p, r);
  int64_t n = w->ndim ? w->size[w->ndim - 1] - p->at[w->ndim - 1] : 1;
  if (n > most) n = most;
  return n < end - r ? n : end - r;
}
/* Step of tensor t (in the walk) from row to row of a run */
static inline int64_t along(const amp__nn_walk *w, int t) { return w->ndim ? w->stride[t][w->ndim - 1] : 0; }

static void read_labels(const job *k, const amp__nn_pos *p, int64_t n, int64_t *y) {
  amp__load(AMP_C_I64, y, k->target->dtype, amp__nn_at(k->target, p->off[1]), along(&k->w, 1), n);
}

static int check_labels(const job *k) {
  amp__nn_pos p;
  int64_t y[TILE], n;
  for (int64_t r = 0; r < k->w.n; r += n) {
    int64_t bad = 0;
    n = span(&k->w, &p, r, k->w.n, TILE);
    read_labels(k, &p, n, y);
    for (int64_t i = 0; i < n; i++) bad |= (y[i] < 1) | (y[i] > k->classes);
    for (int64_t i = 0; bad && i < n; i++)
      if ((y[i] < 1 || y[i] > k->classes) && y[i] != k->ignore)
        return amp__fail(AMP_E_INDEX, "label %lld at row %lld, expected 1..%lld", (long long)y[i], (long long)(r + i + 1), (long long)k->classes);
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

/* v[i] = x at offset + i * step + (y[i] - 1) * stride, of labels that count */
static void read_at(const amp_tensor *x, int64_t offset, int64_t step, int64_t stride, const int64_t *y, int64_t ignore, int64_t n, double *v) {
  const void *p = amp__nn_at(x, offset);
#define AT(T, expr) for (int64_t i = 0; i < n; i++) { int64_t o = i * step + (y[i] - 1) * stride; v[i] = y[i] == ignore ? 0 : (double)(expr); } break
  switch (x->dtype) {
  case AMP_FLOAT32: AT(float, ((const float *)p)[o]);
  case AMP_FLOAT64: AT(double, ((const double *)p)[o]);
  case AMP_FLOAT16: AT(uint16_t, amp__half_to_float(((const uint16_t *)p)[o]));
  default: AT(uint16_t, amp__bf16_to_float(((const uint16_t *)p)[o]));
  }
#undef AT
}

int amp__cpu_nll_loss(amp_call *c) {
  const amp_tensor *x = c->in[0], *w = amp__nn_arg(c, 2), *out = c->out[0];
  double own[1024], sum = 0, part = 0, v[TILE];
  int64_t y[TILE], n;
  amp__nn_scratch s;
  job k = {.target = c->in[1]};
  set(&k, x, c->a[0].i, c->a[1].i);
  walk(&k, x, k.reduction == NONE ? out : NULL, NULL);
  int rc = check_labels(&k);
  if (rc) return rc;
  if (!amp__nn_lend(&s, own, sizeof own, w ? (size_t)k.classes * sizeof(double) : 0)) return AMP_E_MEMORY;
  k.weight = weights(w, s.p, k.classes, &k.wsum);
  amp__nn_pos p;
  for (int64_t r = 0; r < k.w.n; r += n) {
    n = span(&k.w, &p, r, k.w.n, TILE);
    read_labels(&k, &p, n, y);
    read_at(x, p.off[0], along(&k.w, 0), k.sx, y, k.ignore, n, v);
    for (int64_t i = 0; i < n; i++) {
      double q = y[i] == k.ignore ? 0 : k.weight ? k.weight[y[i] - 1] : 1;
      v[i] = y[i] == k.ignore ? 0 : -v[i] * q;
      sum += v[i];
      part += q;
    }
    if (k.reduction == NONE) amp__nn_store_f64((char *)amp__data(out) + p.off[2] * amp__dtype_size[out->dtype], out->dtype, along(&k.w, 2), v, n);
  }
  if (k.reduction != NONE) put(out, 0, k.reduction == MEAN ? sum / part : sum);
  put(c->out[1], 0, part);
  amp__nn_give(&s);
  return 0;
}

/* grad target weight? total -> the scores' gradient, zero but at the labels */
int amp__cpu_nll_loss_backward(amp_call *c) {
  const amp_tensor *g = c->in[0], *w = amp__nn_arg(c, 2), *out = c->out[0];
  double own[1024], q[TILE];
  int64_t y[TILE], n;
  amp__nn_scratch s;
  job k = {.target = c->in[1]};
  set(&k, out, c->a[9].i, c->a[10].i);
  walk(&k, out, k.reduction == NONE ? g : NULL, NULL);
  int rc = check_labels(&k);
  if (rc) return rc;
  if (!amp__nn_lend(&s, own, sizeof own, w ? (size_t)k.classes * sizeof(double) : 0)) return AMP_E_MEMORY;
  k.weight = weights(w, s.p, k.classes, &k.wsum);
  double scale = k.reduction == NONE ? 0 : scalar(g) / (k.reduction == MEAN ? scalar(c->in[3]) : 1);
  amp__nn_pos p;
  if (out->flags & AMP_T_DENSE) memset(amp__data(out), 0, (size_t)out->numel * amp__dtype_size[out->dtype]);
  else {
    amp__nn_seek(&k.w, &p, 0);
    for (int64_t r = 0; r < k.w.n; r++, amp__nn_next(&k.w, &p))
      for (int64_t i = 0; i < k.classes; i++) put(out, p.off[0] + i * k.sx, 0);
  }
  for (int64_t r = 0; r < k.w.n; r += n) {
    n = span(&k.w, &p, r, k.w.n, TILE);
    read_labels(&k, &p, n, y);
    if (k.reduction == NONE) amp__nn_load_f64(q, amp__nn_at(g, p.off[2]), g->dtype, along(&k.w, 2), n);
    int64_t step = along(&k.w, 0);
    for (int64_t i = 0; i < n; i++) {
      if (y[i] == k.ignore) continue;
      double v = -(k.reduction == NONE ? q[i] : scale) * (k.weight ? k.weight[y[i] - 1] : 1);
      int64_t o = p.off[0] + i * step + (y[i] - 1) * k.sx;
      if (out->dtype == AMP_FLOAT32) AMP_DATA(float, out)[o] = (float)v;
      else put(out, o, v);
    }
  }
  amp__nn_give(&s);
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
    T *buf = (T *)k->buf + (size_t)thread * 2 * n, *top = (T *)amp__nn_at(k->top, 0);               \
    amp__nn_pos p;                                                                                  \
    amp__nn_seek(&k->w, &p, begin);                                                                 \
    for (int64_t r = begin; r < end; r++, amp__nn_next(&k->w, &p)) {                                \
      const T *x = scores_##S(k, p.off[0], buf);                                                    \
      T m = amp__row_max_##S(x, n);                                                                 \
      double s = (double)amp__row_exp_##S(NULL, x, m, n), above = log(s), most = (double)m;         \
      int64_t y = label(k, &p);                                                                     \
      double w = y < 0 ? 0 : k->weight ? k->weight[y] : 1, l = 0;                                   \
      top[r] = m;                                                                                   \
      top[k->w.n + r] = (T)s;                                                                       \
      if (y >= 0) {                                                                                 \
        l = (1 - k->smooth) * w * (above + (most - (double)x[y]));                                  \
        if (k->smooth != 0) {                                                                       \
          double all = 0;                                                                           \
          if (k->weight) for (int64_t i = 0; i < n; i++) all += k->weight[i] * (most - (double)x[i]); \
          else for (int64_t i = 0; i < n; i++) all += most - (double)x[i];                          \
          l += k->smooth / (double)n * (all + k->wsum * above);                                     \
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
    bool direct = k->y->dtype == k->type && k->sy == 1, plain = k->top->dtype == k->type;           \
    const T *top = (const T *)amp__nn_at(k->top, 0);                                                \
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
        all /= plain ? (double)top[k->w.n + r] : get(k->top, k->w.n + r);                           \
        softgrad_##S(d, x, plain ? top[r] : (T)get(k->top, r), (T)(q * all), (T)(q * each), k->smooth != 0 ? k->weight : NULL, n); \
        d[y] -= (T)(q * (1 - k->smooth) * w);                                                       \
      }                                                                                             \
      if (!direct) amp__nn_store_##S((void *)amp__nn_at(k->y, p.off[3]), k->y->dtype, k->sy, d, n); \
    }                                                                                               \
  }
#define SOFTGRAD(T, S, EXP)                                                                         \
  AMP_CLONES_OF(T) static void softgrad_##S(T *d, const T *x, T m, T a, T b, const double *w, int64_t n) { \
    if (w) for (int64_t i = 0; i < n; i++) d[i] = a * EXP(x[i] - m) - b * (T)w[i];                  \
    else for (int64_t i = 0; i < n; i++) d[i] = a * EXP(x[i] - m) - b;                              \
  }
SOFTGRAD(float, f32, amp__expf)
SOFTGRAD(double, f64, exp)
CE(float, f32)
CE(double, f64)

/* Tiles: rows along a run that is dense in memory, class by class */
#define TILES(CLONES, T, S, EXP, LOG)                                                               \
  CLONES static void tile_max_##S(T *restrict m, const T *restrict x, int64_t n) {                  \
    for (int64_t i = 0; i < n; i++) m[i] = x[i] > m[i] ? x[i] : m[i];                               \
  }                                                                                                 \
  CLONES static void tile_exp_##S(T *restrict s, const T *restrict x, const T *restrict m, int64_t n) { \
    for (int64_t i = 0; i < n; i++) s[i] += EXP(x[i] - m[i]);                                       \
  }                                                                                                 \
  CLONES static void tile_log_##S(T *restrict s, int64_t n) {                                       \
    for (int64_t i = 0; i < n; i++) s[i] = LOG(s[i]);                                               \
  }                                                                                                 \
  CLONES static void tile_add_##S(double *restrict s, const T *restrict x, double w, int64_t n) {   \
    for (int64_t i = 0; i < n; i++) s[i] += w * (double)x[i];                                       \
  }                                                                                                 \
  /* a exp(x - m) - b w; 0 in ignored rows, whatever x is */                                      \
  CLONES static void tile_grad_##S(T *restrict d, const T *restrict x, const T *restrict m, const T *restrict a, const T *restrict b, T w, int64_t n) { \
    for (int64_t i = 0; i < n; i++) { T e = a[i] * EXP(x[i] - m[i]) - b[i] * w; d[i] = a[i] == 0 ? -b[i] * w : e; } \
  }                                                                                                 \
  static const T *tile_##S(const job *k, int64_t off, T *buf, int64_t n) {                          \
    const char *p = amp__nn_at(k->x, off);                                                          \
    if (k->x->dtype == k->type) return (const T *)p;                                                \
    amp__nn_load_##S(buf, p, k->x->dtype, 1, n);                                                    \
    return buf;                                                                                     \
  }                                                                                                 \
  static void forward_tiles_##S(const job *k, int64_t begin, int64_t end) {                         \
    T m[TILE], s[TILE], buf[TILE];                                                                  \
    double all[TILE], at[TILE];                                                                     \
    int64_t y[TILE], n;                                                                             \
    amp__nn_pos p;                                                                                  \
    for (int64_t r = begin; r < end; r += n) {                                                      \
      n = span(&k->w, &p, r, end, k->tile);                                                         \
      read_labels(k, &p, n, y);                                                                     \
      for (int64_t i = 0; i < n; i++) { m[i] = -INFINITY; s[i] = 0; all[i] = 0; }                   \
      for (int64_t c = 0; c < k->classes; c++) tile_max_##S(m, tile_##S(k, p.off[0] + c * k->sx, buf, n), n); \
      for (int64_t c = 0; c < k->classes; c++) {                                                    \
        const T *x = tile_##S(k, p.off[0] + c * k->sx, buf, n);                                     \
        tile_exp_##S(s, x, m, n);                                                                   \
        if (k->smooth != 0) tile_add_##S(all, x, k->weight ? k->weight[c] : 1, n);                  \
      }                                                                                             \
      amp__nn_store_##S((void *)amp__nn_at(k->top, r), k->top->dtype, 1, m, n);                     \
      amp__nn_store_##S((void *)amp__nn_at(k->top, k->w.n + r), k->top->dtype, 1, s, n);            \
      tile_log_##S(s, n);                                                                           \
      read_at(k->x, p.off[0], 1, k->sx, y, k->ignore, n, at);                                       \
      for (int64_t i = 0; i < n; i++) {                                                             \
        double w = y[i] == k->ignore ? 0 : k->weight ? k->weight[y[i] - 1] : 1, l = (1 - k->smooth) * w * ((double)s[i] + ((double)m[i] - at[i])); \
        if (k->smooth != 0) l += k->smooth / (double)k->classes * (k->wsum * (double)s[i] + (k->wsum * (double)m[i] - all[i])); \
        k->loss[r + i] = y[i] == k->ignore ? 0 : l;                                                 \
        k->part[r + i] = w;                                                                         \
      }                                                                                             \
    }                                                                                               \
  }                                                                                                 \
  static void backward_tiles_##S(const job *k, int64_t begin, int64_t end) {                        \
    T m[TILE], s[TILE], a[TILE], b[TILE], buf[TILE], res[TILE];                                            \
    double q[TILE], take[TILE];                                                                     \
    int64_t y[TILE], n;                                                                             \
    double each = k->smooth / (double)k->classes;                                                   \
    amp__nn_pos p;                                                                                  \
    for (int64_t r = begin; r < end; r += n) {                                                      \
      n = span(&k->w, &p, r, end, k->tile);                                                         \
      read_labels(k, &p, n, y);                                                                     \
      amp__nn_load_##S(m, amp__nn_at(k->top, r), k->top->dtype, 1, n);                              \
      amp__nn_load_##S(s, amp__nn_at(k->top, k->w.n + r), k->top->dtype, 1, n);                     \
      if (k->reduction == NONE) amp__nn_load_f64(q, amp__nn_at(k->grad, p.off[2]), k->grad->dtype, along(&k->w, 2), n); \
      for (int64_t i = 0; i < n; i++) {                                                             \
        bool off = y[i] == k->ignore;                                                               \
        double g = k->reduction == NONE ? q[i] : k->scale, w = off ? 0 : k->weight ? k->weight[y[i] - 1] : 1; \
        a[i] = off ? 0 : (T)(g * ((1 - k->smooth) * w + each * k->wsum) / (double)s[i]);            \
        b[i] = off ? 0 : (T)(g * each);                                                             \
        take[i] = off ? 0 : g * (1 - k->smooth) * w;                                                \
      }                                                                                             \
      for (int64_t c = 0; c < k->classes; c++) {                                                    \
        const T *x = tile_##S(k, p.off[0] + c * k->sx, buf, n);                                     \
        T *to = (T *)amp__nn_at(k->y, p.off[3] + c * k->sy), *d = k->y->dtype == k->type ? to : res; \
        tile_grad_##S(d, x, m, a, b, k->smooth != 0 && k->weight ? (T)k->weight[c] : 1, n);       \
        if (d == res) {                                                                             \
          for (int64_t i = 0; i < n; i++) d[i] -= y[i] == c + 1 ? (T)take[i] : 0;                   \
          amp__nn_store_##S(to, k->y->dtype, 1, d, n);                                              \
        }                                                                                           \
      }                                                                                             \
      if (k->y->dtype == k->type)                                                                   \
        for (int64_t i = 0; i < n; i++)                                                             \
          if (y[i] != k->ignore) ((T *)amp__nn_at(k->y, p.off[3] + (y[i] - 1) * k->sy))[i] -= (T)take[i]; \
    }                                                                                               \
  }
TILES(AMP_CLONES, float, f32, amp__expf, amp__logf)
TILES(AMP_CLONES_WIDE, double, f64, exp, log)

/* A tile's scores stay in the first-level cache. y: its gradient, or NULL */
static void choose_tiles(job *k) {
  int64_t n = (48 << 10) / (k->classes * amp__dtype_size[k->type] + 1) / 16 * 16;
  k->tile = 0;
  if (k->sx == 1 || along(&k->w, 0) != 1 || k->w.size[k->w.ndim - 1] < 8 || (k->y && along(&k->w, 3) != 1)) return;
  k->tile = n < 16 ? 16 : n > TILE ? TILE : n;
}

static void forward_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const job *k = ctx;
  if (k->tile) {
    if (k->type == AMP_FLOAT64) forward_tiles_f64(k, begin, end);
    else forward_tiles_f32(k, begin, end);
    return;
  }
  if (k->type == AMP_FLOAT64) forward_f64(k, begin, end, thread);
  else forward_f32(k, begin, end, thread);
}
static void backward_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const job *k = ctx;
  if (k->tile) {
    if (k->type == AMP_FLOAT64) backward_tiles_f64(k, begin, end);
    else backward_tiles_f32(k, begin, end);
    return;
  }
  if (k->type == AMP_FLOAT64) backward_f64(k, begin, end, thread);
  else backward_f32(k, begin, end, thread);
}

int amp__cpu_cross_entropy_index(amp_call *c) {
  const amp_tensor *x = c->in[0], *w = amp__nn_arg(c, 2);
  char own[16 << 10] __attribute__((aligned(64)));
  amp__nn_scratch s;
  job k = {.type = amp__nn_type(x->dtype), .x = x, .target = c->in[1], .top = c->out[1], .smooth = c->a[2].f};
  set(&k, x, c->a[0].i, c->a[1].i);
  walk(&k, x, k.reduction == NONE ? c->out[0] : NULL, NULL);
  int rc = check_labels(&k);
  if (rc) return rc;
  choose_tiles(&k);
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

/* grad input target weight? top total */
int amp__cpu_cross_entropy_backward(amp_call *c) {
  const amp_tensor *g = c->in[0], *x = c->in[1], *w = c->in[3];
  char own[16 << 10] __attribute__((aligned(64)));
  amp__nn_scratch s;
  amp__nn_view top = {0};
  job k = {.type = amp__nn_type(x->dtype), .x = x, .target = c->in[2], .y = c->out[0], .grad = g, .top = c->in[4], .smooth = c->a[2].f};
  if (x->numel == 0) return 0;
  set(&k, x, c->a[0].i, c->a[1].i);
  walk(&k, x, k.reduction == NONE ? g : NULL, c->out[0]);
  int rc = check_labels(&k);
  if (rc) return rc;
  amp_tensor flat = *c->in[4];         /* top in the order of rows */
  amp_storage room;
  if (!(flat.flags & AMP_T_CONTIGUOUS)) {
    if (!amp__nn_read_c(&top, c->in[4], k.type)) return AMP_E_MEMORY;
    room = *flat.storage;
    room.data = top.p;
    flat.storage = &room;
    flat.offset = 0;
    flat.dtype = (uint8_t)k.type;
  }
  k.top = &flat;
  if (k.reduction != NONE) k.scale = scalar(g) / (k.reduction == MEAN ? scalar(c->in[5]) : 1);
  choose_tiles(&k);
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
  amp__nn_drop(&top);
  return rc;
}
