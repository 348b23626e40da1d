/*
** cpu_softmax.c: rows softmax, log_softmax and their backward rows.
**
** One row along the dimension at a time: contiguous rows of the computing type
** in place, others through a buffer, widened on reading and rounded once on
** writing. The largest value is taken off first, so nothing overflows; a row
** of -inf alone, or with +inf or NaN, gives NaN.
*/
#include "cpu_rows.h"
#include "cpu_special.h"

enum { SOFTMAX, LOG_SOFTMAX, SOFTMAX_BACK, LOG_SOFTMAX_BACK };

typedef struct job {
  int what, type;
  const amp_tensor *a, *b, *y;         /* b: the result, in a backward row */
  int64_t n, sa, sb, sy;               /* length of a row, strides along it */
  amp__nn_walk w;
  char *buf;                           /* [thread][3][n] */
} job;

#define SOFT(T, S)                                                                                  \
  AMP_CLONES_OF(T) static void scale_##S(T *y, T f, int64_t n) {                                    \
    for (int64_t i = 0; i < n; i++) y[i] *= f;                                                      \
  }                                                                                                 \
  AMP_CLONES_OF(T) static T dot_##S(const T *a, const T *b, int64_t n) {                            \
    T s = 0, t = 0;                                                                                 \
    int64_t h = n / 2;                                                                              \
    _Pragma("omp simd reduction(+ : s, t)") for (int64_t i = 0; i < h; i++) { s += a[i] * b[i]; t += a[i + h] * b[i + h]; } \
    for (int64_t i = 2 * h; i < n; i++) s += a[i] * b[i];                                           \
    return s + t;                                                                                   \
  }                                                                                                 \
  AMP_CLONES_OF(T) static void back_##S(T *x, const T *g, const T *y, T s, int64_t n) {             \
    AMP_IVDEP for (int64_t i = 0; i < n; i++) x[i] = y[i] * (g[i] - s);                             \
  }                                                                                                 \
  AMP_CLONES_OF(T) static void log_back_##S(T *x, const T *g, const T *y, T s, int64_t n) {         \
    AMP_IVDEP for (int64_t i = 0; i < n; i++) x[i] = g[i] - EXP_##S(y[i]) * s;                      \
  }                                                                                                 \
  static const T *row_##S(const amp_tensor *t, int64_t off, int64_t stride, int64_t n, int type, T *buf) { \
    const char *p = amp__nn_at(t, off);                                                             \
    if (t->dtype == type && (stride == 1 || n == 1)) return (const T *)p;                           \
    amp__nn_load_##S(buf, p, t->dtype, stride, n);                                                  \
    return buf;                                                                                     \
  }                                                                                                 \
  static void rows_##S(const job *k, int64_t begin, int64_t end, int thread) {                      \
    int64_t n = k->n;                                                                               \
    T *ba = (T *)k->buf + (size_t)thread * 3 * n, *bb = ba + n, *by = bb + n;                       \
    bool direct = k->y->dtype == k->type && (k->sy == 1 || n == 1);                                 \
    amp__nn_pos p;                                                                                  \
    amp__nn_seek(&k->w, &p, begin);                                                                 \
    for (int64_t r = begin; r < end; r++, amp__nn_next(&k->w, &p)) {                                \
      const T *a = row_##S(k->a, p.off[0], k->sa, n, k->type, ba), *b = NULL;                       \
      T *y = direct ? (T *)amp__nn_at(k->y, p.off[1]) : by;                                         \
      if (k->what >= SOFTMAX_BACK) b = row_##S(k->b, p.off[2], k->sb, n, k->type, bb);              \
      if (k->what == SOFTMAX) {                                                                     \
        T s = amp__row_exp_##S(y, a, amp__row_max_##S(a, n), n);                                    \
        scale_##S(y, 1 / s, n);                                                                     \
      } else if (k->what == LOG_SOFTMAX) {                                                          \
        T m = amp__row_max_##S(a, n), s = amp__row_exp_##S(NULL, a, m, n);                          \
        amp__row_shift_##S(y, a, m, s <= FLT_MAX ? (T)amp__log_pos((double)s) : s, n);                  \
      } else if (k->what == SOFTMAX_BACK) back_##S(y, a, b, dot_##S(a, b, n), n);                   \
      else log_back_##S(y, a, b, amp__row_sum_##S(a, n), n);                                        \
      if (!direct) amp__nn_store_##S((void *)amp__nn_at(k->y, p.off[1]), k->y->dtype, k->sy, y, n); \
    }                                                                                               \
  }
#define EXP_f32(x) amp__expf(x)
#define EXP_f64(x) exp(x)
SOFT(float, f32)
SOFT(double, f64)

static void body(void *ctx, int64_t begin, int64_t end, int thread) {
  const job *k = ctx;
  if (k->type == AMP_FLOAT64) rows_f64(k, begin, end, thread);
  else rows_f32(k, begin, end, thread);
}

static int run(amp_call *c, int what) {
  char own[16 << 10] __attribute__((aligned(64)));
  bool back = what >= SOFTMAX_BACK;
  const amp_tensor *a = c->in[0], *b = back ? c->in[1] : NULL, *y = c->out[0];
  int d = y->ndim ? (int)c->a[0].i : 0;
  job k = {.what = what, .a = a, .b = b, .y = y};
  amp__nn_scratch s;
  k.type = a->dtype == AMP_FLOAT64 || y->dtype == AMP_FLOAT64 || (b && b->dtype == AMP_FLOAT64) ? AMP_FLOAT64 : AMP_FLOAT32;
  if (y->numel == 0) return 0;
  k.n = y->ndim ? y->size[d] : 1;
  k.sa = y->ndim ? a->stride[d] : 1;
  k.sy = y->ndim ? y->stride[d] : 1;
  k.sb = b && y->ndim ? b->stride[d] : 1;
  const int64_t *strides[3] = {a->stride, y->stride, b ? b->stride : NULL};
  amp__nn_walk_init(&k.w, y->ndim, y->size, y->ndim ? 1u << d : 0, back ? 3 : 2, strides);
  int threads = amp__nn_threads(4 * y->numel, k.w.n);
  if (!amp__nn_lend(&s, own, sizeof own, (size_t)threads * 3 * (size_t)k.n * amp__dtype_size[k.type])) return AMP_E_MEMORY;
  k.buf = s.p;
  amp__nn_par(threads, k.w.n, body, &k);
  amp__nn_give(&s);
  return 0;
}

int amp__cpu_softmax(amp_call *c) { return run(c, SOFTMAX); }
int amp__cpu_log_softmax(amp_call *c) { return run(c, LOG_SOFTMAX); }
int amp__cpu_softmax_backward(amp_call *c) { return run(c, SOFTMAX_BACK); }
int amp__cpu_log_softmax_backward(amp_call *c) { return run(c, LOG_SOFTMAX_BACK); }
