/*
** cpu_layernorm.c: rows layer_norm, add_layer_norm, rms_norm, backward rows. A row
** of data (the last dimensions) is contiguous, or the data is copied to C order;
** threads take rows. rms_norm is layer_norm with a mean of 0 that no gradient
** goes through. The gradients of weight and bias are summed by blocks of rows,
** joined in order, so they don't depend on the number of threads.
*/
#include <float.h>
#include "cpu_iter.h"
#include "cpu_norm.h"

enum { BLOCKS = 64 };                 /* of rows, at most; each has its own sums of weight and bias */
enum { FLUSH = 16 };                  /* rows whose sums are kept in the computing type before they join in double */

typedef struct ln {
  int type;
  bool rms;                           /* about 0, not about the mean */
  int64_t rows, n, per;               /* per: rows of a block */
  const char *x, *g, *add;            /* add NULL, or added to y (backward) */
  char *y;
  int xdt, gdt, ydt, adt;
  void *mean, *rstd, *w, *b;          /* in the computing type, contiguous; w, b NULL: 1, 0 */
  double eps;
  double *sums;                       /* [block][2][n] */
  char *buf;                          /* [thread][3 or, backward, 5][n] */
} ln;

#define LAYER(T, S)                                                                                 \
  AMP_CLONES_OF(T) static void scale_##S(T *y, const T *x, T m, T r, T k, const T *w, const T *b, int64_t n) { \
    if (w && b) AMP_IVDEP for (int64_t i = 0; i < n; i++) y[i] = ((x[i] - m) * r + k) * w[i] + b[i]; \
    else if (w) AMP_IVDEP for (int64_t i = 0; i < n; i++) y[i] = ((x[i] - m) * r + k) * w[i];       \
    else if (b) AMP_IVDEP for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * r + k + b[i];         \
    else AMP_IVDEP for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * r + k;                       \
  }                                                                                                 \
  AMP_CLONES_OF(T) static void sums_##S(const T *restrict g, const T *restrict x, T m, T r, T k, const T *restrict w, T *restrict h, \
                                  T *restrict gw, T *restrict gb, int64_t n) {                      \
    for (int64_t i = 0; i < n; i++) {                                                               \
      h[i] = w ? g[i] * w[i] : g[i];                                                                \
      gw[i] += g[i] * ((x[i] - m) * r + k);                                                         \
      gb[i] += g[i];                                                                                \
    }                                                                                               \
  }                                                                                                 \
  AMP_CLONES_OF(T) static void flush_##S(double *restrict sum, T *restrict part, int64_t n) {       \
    for (int64_t i = 0; i < n; i++) { sum[i] += part[i]; part[i] = 0; }                             \
  }                                                                                                 \
  static void squares_##S(norm_stat *st, const T *x, int64_t n) { /* of rms_norm, about 0 */        \
    double sum = amp__row_dev_##S(x, 0, n);                                                         \
    if (!isfinite(sum)) { sum = 0; for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i]; } \
    st->n += (double)n;                                                                             \
    st->m2 += sum;                                                                                  \
  }                                                                                                 \
  static double rest_##S(const T *x, T m, int64_t n) { /* what the mean was rounded by */           \
    T s[2];                                                                                         \
    double sum = 0;                                                                                 \
    for (int64_t j = 0; j < n; j += NORM_RUN) {                                                     \
      amp__row_moments_##S(x + j, m, n - j < NORM_RUN ? n - j : NORM_RUN, s);                       \
      sum += s[0];                                                                                  \
    }                                                                                               \
    return sum / (double)n;                                                                         \
  }                                                                                                 \
  static void forward_##S(const ln *k, int64_t begin, int64_t end, int thread) {                    \
    T *buf = (T *)k->buf + (size_t)thread * 3 * k->n;                                               \
    int64_t n = k->n;                                                                               \
    for (int64_t i = begin; i < end; i++) {                                                         \
      const T *x = norm_in_##S(k->x + i * n * amp__dtype_size[k->xdt], k->xdt, buf, n);             \
      norm_stat st = {0, 0, 0};                                                                     \
      for (int64_t j = 0; j < n; j += NORM_RUN) {                                                   \
        int64_t len = n - j < NORM_RUN ? n - j : NORM_RUN;                                          \
        if (k->rms) squares_##S(&st, x + j, len);                                                   \
        else norm_take_##S(&st, x + j, len);                                                        \
      }                                                                                             \
      T m = (T)st.mean, r = (T)(1 / sqrt(st.m2 / st.n + k->eps));                                   \
      if (!k->rms) ((T *)k->mean)[i] = m;                                                           \
      ((T *)k->rstd)[i] = r;                                                                        \
      char *y = k->y + i * n * amp__dtype_size[k->ydt];                                             \
      bool direct = k->ydt == k->type;                                                              \
      T *d = direct ? (T *)y : buf;                                                                 \
      scale_##S(d, x, m, r, (T)((m - st.mean) * r), k->w, k->b, n);                                 \
      if (!direct) amp__nn_store_##S(y, k->ydt, 1, buf, n);                                         \
    }                                                                                               \
  }                                                                                                 \
  static void backward_##S(const ln *k, int64_t begin, int64_t end, int thread) {                   \
    int64_t n = k->n;                                                                               \
    T *bx = (T *)k->buf + (size_t)thread * 5 * n, *bg = bx + n, *h = bg + n, *part = h + n;         \
    for (int64_t j = 0; j < 2 * n; j++) part[j] = 0;                                                \
    for (int64_t blk = begin; blk < end; blk++) {                                                   \
      double *sum = k->sums + blk * 2 * n;                                                          \
      for (int64_t j = 0; j < 2 * n; j++) sum[j] = 0;                                               \
      for (int64_t i = blk * k->per; i < (blk + 1) * k->per && i < k->rows; i++) {                  \
        const T *x = norm_in_##S(k->x + i * n * amp__dtype_size[k->xdt], k->xdt, bx, n);            \
        const T *g = norm_in_##S(k->g + i * n * amp__dtype_size[k->gdt], k->gdt, bg, n);            \
        T m = k->rms ? 0 : ((T *)k->mean)[i], r = ((T *)k->rstd)[i], s[2];                          \
        double s0 = 0, s1 = 0, rest = k->rms || fabs((double)m) * r < NORM_ROUNDED ? 0 : rest_##S(x, m, n); \
        sums_##S(g, x, m, r, (T)(-rest * r), k->w, h, part, part + n, n);                           \
        for (int64_t j = 0; j < n; j += NORM_RUN) {                                                 \
          amp__row_sums_##S(h + j, x + j, m, n - j < NORM_RUN ? n - j : NORM_RUN, s);               \
          s0 += s[0];                                                                               \
          s1 += s[1];                                                                               \
        }                                                                                           \
        s1 -= rest * s0;                                                                            \
        double b = -(double)r * (s1 * r) / (double)n, c = k->rms ? 0 : -(double)r * s0 / (double)n - b * rest * r; \
        char *y = k->y + i * n * amp__dtype_size[k->ydt];                                           \
        bool direct = k->ydt == k->type;                                                            \
        T *d = direct ? (T *)y : h;                                                                 \
        if (norm_far_back(m, r, b)) amp__row_centre2_##S(d, h, x, m, r, r, (T)b, (T)c, n);          \
        else amp__row_affine2_##S(d, h, x, r, (T)(b * r), (T)(c - b * r * m), n);                   \
        if (k->add) {                                                                               \
          const T *add = norm_in_##S(k->add + i * n * amp__dtype_size[k->adt], k->adt, bx, n);      \
          AMP_IVDEP for (int64_t j = 0; j < n; j++) d[j] += add[j];                                 \
        }                                                                                           \
        if (!direct) amp__nn_store_##S(y, k->ydt, 1, h, n);                                         \
        if (i % FLUSH == FLUSH - 1) flush_##S(sum, part, 2 * n);                                    \
      }                                                                                             \
      flush_##S(sum, part, 2 * n);                                                                  \
    }                                                                                               \
  }
LAYER(float, f32)
LAYER(double, f64)

static void forward_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const ln *k = ctx;
  if (k->type == AMP_FLOAT64) forward_f64(k, begin, end, thread);
  else forward_f32(k, begin, end, thread);
}
static void backward_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const ln *k = ctx;
  if (k->type == AMP_FLOAT64) backward_f64(k, begin, end, thread);
  else backward_f32(k, begin, end, thread);
}

/* Data in C order: as it is (any float dtype), or copied in the computing type */
static bool open_rows(amp__nn_view *v, const amp_tensor *t, int type, int *dtype) {
  bool as_is = (t->flags & AMP_T_CONTIGUOUS) != 0;
  *dtype = as_is ? t->dtype : type;
  return as_is ? amp__nn_read(v, t, t->dtype) : amp__nn_read_c(v, t, type);
}
static bool open_out(amp__nn_view *v, const amp_tensor *t, int type, int *dtype) {
  bool as_is = (t->flags & AMP_T_CONTIGUOUS) != 0;
  *dtype = as_is ? t->dtype : type;
  return as_is ? amp__nn_write(v, t, t->dtype) : amp__nn_write_c(v, t, type);
}

static void shape(ln *k, const amp_slot *a, const amp_tensor *x) {
  k->n = 1;
  for (int64_t d = 0; d < a[0].i; d++) k->n *= a[1 + d].i;
  k->rows = k->n ? x->numel / k->n : 0;
}

/* x w? b? -> y mean? rstd */
static int forward(ln *k, amp_call *c, amp_tensor *w, amp_tensor *b, amp_tensor *mean, amp_tensor *rstd) {
  amp_tensor *x = c->in[0], *y = c->out[0];
  char own[16 << 10] __attribute__((aligned(64)));
  amp__nn_view vx = {0}, vy = {0}, vw = {0}, vb = {0}, vm = {0}, vr = {0};
  amp__nn_scratch s = {0};
  int rc = AMP_E_MEMORY;
  k->type = y->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : amp__nn_type(x->dtype);
  shape(k, c->a, x);
  if (x->numel == 0) return 0;
  if (!open_rows(&vx, x, k->type, &k->xdt) || !open_out(&vy, y, k->type, &k->ydt) || (w && !amp__nn_read_c(&vw, w, k->type)) ||
      (b && !amp__nn_read_c(&vb, b, k->type)) || (mean && !amp__nn_write_c(&vm, mean, k->type)) || !amp__nn_write_c(&vr, rstd, k->type)) goto out;
  int threads = amp__nn_threads(x->numel, k->rows);
  if (!amp__nn_lend(&s, own, sizeof own, (size_t)threads * 3 * (size_t)k->n * amp__dtype_size[k->type])) goto out;
  k->x = vx.p; k->y = vy.p; k->w = w ? vw.p : NULL; k->b = b ? vb.p : NULL; k->mean = vm.p; k->rstd = vr.p; k->buf = s.p;
  amp__nn_par(threads, k->rows, forward_body, k);
  amp__nn_written(&vy, y, k->ydt);
  if (mean) amp__nn_written(&vm, mean, k->type);
  amp__nn_written(&vr, rstd, k->type);
  rc = 0;
out:
  amp__nn_give(&s);
  amp__nn_drop(&vx); amp__nn_drop(&vy); amp__nn_drop(&vw); amp__nn_drop(&vb); amp__nn_drop(&vm); amp__nn_drop(&vr);
  return rc;
}

int amp__cpu_layer_norm(amp_call *c) { /* input weight? bias?; shape eps */
  ln k = {.eps = c->a[9].f};
  return forward(&k, c, amp__nn_arg(c, 1), amp__nn_arg(c, 2), c->out[1], c->out[2]);
}

/* input residual weight? bias?; shape eps dtype -> result sum statistics: made of the kernels of add and layer_norm */
int amp__cpu_add_layer_norm(amp_call *c) {
  amp_tensor *sum = c->out[1], *at = c->out[2], *out[3] = { c->out[0], NULL, NULL };
  amp_tensor *in[3] = { sum, amp__nn_arg(c, 2), amp__nn_arg(c, 3) };
  int rc = AMP_E_MEMORY;
  for (int i = 0; i < 2; i++) out[1 + i] = amp__tensor_view(at, at->ndim - 1, at->size + 1, at->stride + 1, at->offset + i * at->stride[0]);
  if (out[1] && out[2] && (rc = amp__cpu_row(AMP_OP_add, 2, c->in, 1, &sum, NULL)) == 0) rc = amp__cpu_row(AMP_OP_layer_norm, 3, in, 3, out, c->a);
  amp__free(out[1]);
  amp__free(out[2]);
  return rc;
}

int amp__cpu_rms_norm(amp_call *c) { /* input weight?; shape eps: absent, the computing type's last place */
  double last = c->in[0]->dtype == AMP_FLOAT64 ? DBL_EPSILON : FLT_EPSILON;
  ln k = {.rms = true, .eps = c->a[9].i == AMP_NONE ? last : c->a[9].f};
  return forward(&k, c, amp__nn_arg(c, 1), NULL, NULL, c->out[1]);
}

/* One sum over blocks, into a tensor of the row's shape */
static bool gradient(const ln *k, int64_t blocks, int which, const amp_tensor *t) {
  amp__nn_view v = {0};
  if (!t) return true;
  if (!amp__nn_write_c(&v, t, k->type)) return false;
  double *s = k->sums + which * k->n;
  for (int64_t b = 1; b < blocks; b++)
    for (int64_t i = 0; i < k->n; i++) s[i] += s[b * 2 * k->n + i];
  for (int64_t i = 0; i < k->n; i++) {
    double total = blocks ? s[i] : 0;
    if (k->type == AMP_FLOAT64) ((double *)v.p)[i] = total;
    else ((float *)v.p)[i] = (float)total;
  }
  amp__nn_written(&v, t, k->type);
  return true;
}

static int backward(ln *k, amp_call *c, amp_tensor *mean, amp_tensor *rstd, amp_tensor *w, amp_tensor *add) {
  amp_tensor *g = c->in[0], *x = c->in[1], *y = c->out[0];
  char own[16 << 10] __attribute__((aligned(64)));
  amp__nn_view vx = {0}, vg = {0}, vy = {0}, vw = {0}, vm = {0}, vr = {0}, va = {0};
  amp__nn_scratch s = {0};
  int rc = AMP_E_MEMORY;
  k->type = rstd->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : amp__nn_type(x->dtype);
  shape(k, c->a, x);
  if (k->n == 0) return 0;
  if (!open_rows(&vx, x, k->type, &k->xdt) || !open_rows(&vg, g, k->type, &k->gdt) || !open_out(&vy, y, k->type, &k->ydt) ||
      (add && !open_rows(&va, add, k->type, &k->adt)) || (w && !amp__nn_read_c(&vw, w, k->type)) || (mean && !amp__nn_read_c(&vm, mean, k->type)) || !amp__nn_read_c(&vr, rstd, k->type)) goto out;
  k->per = (k->rows + BLOCKS - 1) / BLOCKS;
  if (k->per < 8) k->per = 8;
  int64_t blocks = (k->rows + k->per - 1) / k->per;
  int threads = amp__nn_threads(2 * x->numel, blocks);
  size_t bytes = (size_t)blocks * 2 * (size_t)k->n * sizeof(double);
  if (!amp__nn_lend(&s, own, sizeof own, bytes + (size_t)threads * 5 * (size_t)k->n * amp__dtype_size[k->type])) goto out;
  k->x = vx.p; k->g = vg.p; k->y = vy.p; k->add = add ? va.p : NULL; k->w = w ? vw.p : NULL; k->mean = vm.p; k->rstd = vr.p;
  k->sums = s.p;
  k->buf = (char *)s.p + bytes;
  amp__nn_par(threads, blocks, backward_body, k);
  if (!gradient(k, blocks, 0, c->out[1]) || (!k->rms && !gradient(k, blocks, 1, c->out[2]))) goto out;
  amp__nn_written(&vy, y, k->ydt);
  rc = 0;
out:
  amp__nn_give(&s);
  amp__nn_drop(&vx); amp__nn_drop(&vg); amp__nn_drop(&vy); amp__nn_drop(&vw); amp__nn_drop(&vm); amp__nn_drop(&vr); amp__nn_drop(&va);
  return rc;
}

int amp__cpu_layer_norm_backward(amp_call *c) { /* grad input mean rstd weight? sum?; shape also */
  ln k = {.rms = false};
  int rc = backward(&k, c, c->in[2], c->in[3], amp__nn_arg(c, 4), amp__nn_arg(c, 5));
  return rc == 0 && c->out[3] ? amp__cpu_row(AMP_OP_cast, 1, &c->out[0], 1, &c->out[3], c->a + 9) : rc;
}

int amp__cpu_rms_norm_backward(amp_call *c) { /* grad input rstd weight? sum? */
  ln k = {.rms = true};
  return backward(&k, c, NULL, c->in[2], amp__nn_arg(c, 3), amp__nn_arg(c, 4));
}
