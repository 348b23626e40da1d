/*
** cpu_fft.c: rows fft_complex, fft_real and fft_half: series along one dimension
** of a tensor of any layout.
**
** Series are taken in groups: their elements are brought beside each other (re
** and im apart), transformed together, and written where the result wants them,
** times scale. Real series of even length are complex ones of half the length,
** (x0 + i x1), (x2 + i x3), ..., whose transform is then taken apart:
**
**   X[k] = (Z[k] + conj Z[h-k]) / 2 - i/2 e^(-2 pi i k / n) (Z[k] - conj Z[h-k]),  h = n / 2
**
** 16-bit data is computed in float32.
*/
#include <math.h>
#include "cpu_fft.h"
#include "cpu_nn.h"
#include "cpu_turn.h"

enum { GROUP = 16 };

typedef struct job {
  const amp_fft *plan;
  int type;
  int64_t n, group;             /* length of the series; how many together */
  bool inverse, real_in, real_out, whole; /* whole: real series of odd length, as complex ones */
  double scale;
  bool weighted;
  amp__nn_view x, y;
  amp__nn_walk w;
  int64_t xs, xp, ys, yp;       /* strides along the series and within pairs */
  char *scratch;
  size_t each;
} job;

#define BODY(T, S)                                                                                                          \
  /* element j of lane l, from pairs at x + off[l] + j * xs */                                                              \
  AMP_CLONES_OF(T) static void read_##S(int64_t n, int64_t lanes, const T *x, const int64_t *off, int64_t xs, int64_t xp, T *re, T *im) { \
    if (lanes == 1 && xp == 1 && xs == 2) {                                                                                 \
      x += off[0];                                                                                                          \
      for (int64_t j = 0; j < n; j++) { re[j] = x[2 * j]; im[j] = x[2 * j + 1]; }                                           \
    } else if (lanes > 1 && xp == 1 && off[lanes - 1] - off[0] == 2 * (lanes - 1) && off[1] - off[0] == 2) {                \
      for (int64_t j = 0; j < n; j++, re += lanes, im += lanes) {                                                           \
        const T *p = x + off[0] + j * xs;                                                                                   \
        for (int64_t l = 0; l < lanes; l++) { re[l] = p[2 * l]; im[l] = p[2 * l + 1]; }                                     \
      }                                                                                                                     \
    } else {                                                                                                                \
      int64_t first = 0;                                                                                                    \
      if (sizeof(T) == sizeof(float) && xp == 1 && xs == 2 && lanes % 8 == 0)                                               \
        for (; first + 4 <= n; first += 4)                                                                                  \
          for (int64_t l = 0; l < lanes; l += 8) {                                                                          \
            amp_v8 r[8];                                                                                                    \
            for (int k = 0; k < 8; k++) r[k] = *(const amp_v8 *)(x + off[l + k] + 2 * first);                               \
            AMP_TURN8(r);                                                                                                   \
            for (int k = 0; k < 8; k++) *(amp_v8 *)((k % 2 ? im : re) + (first + k / 2) * lanes + l) = r[k];                \
          }                                                                                                                 \
      for (int64_t j0 = first; j0 < n; j0 += 16)                                                                            \
        for (int64_t l = 0; l < lanes; l++) {                                                                               \
          const T *p = x + off[l];                                                                                          \
          for (int64_t j = j0; j < n && j < j0 + 16; j++) { re[j * lanes + l] = p[j * xs]; im[j * lanes + l] = p[j * xs + xp]; } \
        }                                                                                                                   \
    }                                                                                                                       \
  }                                                                                                                         \
  AMP_CLONES_OF(T) static void write_##S(int64_t n, int64_t lanes, T *y, const int64_t *off, int64_t ys, int64_t yp, const T *re, const T *im, T f) { \
    if (lanes == 1 && yp == 1 && ys == 2) {                                                                                 \
      y += off[0];                                                                                                          \
      for (int64_t j = 0; j < n; j++) { y[2 * j] = f * re[j]; y[2 * j + 1] = f * im[j]; }                                   \
    } else if (lanes > 1 && yp == 1 && off[lanes - 1] - off[0] == 2 * (lanes - 1) && off[1] - off[0] == 2) {                \
      for (int64_t j = 0; j < n; j++, re += lanes, im += lanes) {                                                           \
        T *p = y + off[0] + j * ys;                                                                                         \
        for (int64_t l = 0; l < lanes; l++) { p[2 * l] = f * re[l]; p[2 * l + 1] = f * im[l]; }                             \
      }                                                                                                                     \
    } else {                                                                                                                \
      int64_t first = 0;                                                                                                    \
      if (sizeof(T) == sizeof(float) && yp == 1 && ys == 2 && lanes % 8 == 0)                                               \
        for (; first + 4 <= n; first += 4)                                                                                  \
          for (int64_t l = 0; l < lanes; l += 8) {                                                                          \
            amp_v8 r[8];                                                                                                    \
            for (int k = 0; k < 8; k++) r[k] = *(const amp_v8 *)((k % 2 ? im : re) + (first + k / 2) * lanes + l) * (float)f; \
            AMP_TURN8(r);                                                                                                   \
            for (int k = 0; k < 8; k++) *(amp_v8 *)(y + off[l + k] + 2 * first) = r[k];                                     \
          }                                                                                                                 \
      for (int64_t j0 = first; j0 < n; j0 += 16)                                                                            \
        for (int64_t l = 0; l < lanes; l++) {                                                                               \
          T *p = y + off[l];                                                                                                \
          for (int64_t j = j0; j < n && j < j0 + 16; j++) { p[j * ys] = f * re[j * lanes + l]; p[j * ys + yp] = f * im[j * lanes + l]; } \
        }                                                                                                                   \
    }                                                                                                                       \
  }                                                                                                                         \
  /* real values, one a place */                                                                                            \
  static void read_real_##S(int64_t n, int64_t lanes, const T *x, const int64_t *off, int64_t xs, T *re, T *im) {           \
    for (int64_t j = 0; j < n; j++) for (int64_t l = 0; l < lanes; l++) { re[j * lanes + l] = x[off[l] + j * xs]; im[j * lanes + l] = 0; } \
  }                                                                                                                         \
  static void write_real_##S(int64_t n, int64_t lanes, T *y, const int64_t *off, int64_t ys, const T *re, T f) {            \
    for (int64_t j = 0; j < n; j++) for (int64_t l = 0; l < lanes; l++) y[off[l] + j * ys] = f * re[j * lanes + l];         \
  }                                                                                                                         \
  /* x (h + 1 places) from z (h of them) */                                                                                 \
  AMP_CLONES_OF(T) static void apart_##S(int64_t h, int64_t lanes, const T *restrict zr, const T *restrict zi, T *restrict xr, T *restrict xi, const T *wr, const T *wi) { \
    if (lanes == 1) {                                                                                                       \
      xr[0] = zr[0] + zi[0];                                                                                                \
      xr[h] = zr[0] - zi[0];                                                                                                \
      xi[0] = xi[h] = 0;                                                                                                    \
      AMP_IVDEP for (int64_t k = 1; k < h; k++) {                                                                           \
        T ar = zr[k], ai = zi[k], br = zr[h - k], bi = -zi[h - k], er = ar + br, ei = ai + bi, dr = ar - br, di = ai - bi;  \
        xr[k] = (T)0.5 * (er + wr[k] * di + wi[k] * dr);                                                                    \
        xi[k] = (T)0.5 * (ei + wi[k] * di - wr[k] * dr);                                                                    \
      }                                                                                                                     \
      return;                                                                                                               \
    }                                                                                                                       \
    for (int64_t k = 0; k <= h; k++) {                                                                                      \
      const T *pr = zr + (k % h) * lanes, *pi = zi + (k % h) * lanes, *qr = zr + (h - k) % h * lanes, *qi = zi + (h - k) % h * lanes; \
      for (int64_t l = 0; l < lanes; l++) {                                                                                 \
        T ar = pr[l], ai = pi[l], br = qr[l], bi = -qi[l], er = ar + br, ei = ai + bi, dr = ar - br, di = ai - bi;          \
        xr[k * lanes + l] = (T)0.5 * (er + wr[k] * di + wi[k] * dr);                                                        \
        xi[k * lanes + l] = (T)0.5 * (ei + wi[k] * di - wr[k] * dr);                                                        \
      }                                                                                                                     \
    }                                                                                                                       \
    for (int64_t l = 0; l < lanes; l++) xi[l] = xi[h * lanes + l] = 0;                                                      \
  }                                                                                                                         \
  /* the other way: z[k] = (x[k] + conj x[h-k]) + i e^(2 pi i k / n) (x[k] - conj x[h-k]) */                                \
  AMP_CLONES_OF(T) static void together_##S(int64_t h, int64_t lanes, const T *restrict xr, const T *restrict xi, T *restrict zr, T *restrict zi, const T *wr, const T *wi) { \
    for (int64_t k = 0; k < h; k++) {                                                                                       \
      const T *pr = xr + k * lanes, *pi = xi + k * lanes, *qr = xr + (h - k) * lanes, *qi = xi + (h - k) * lanes;           \
      const T c = wr[k], s = -wi[k];                                                                                        \
      AMP_IVDEP for (int64_t l = 0; l < lanes; l++) {                                                                       \
        T ar = pr[l], ai = pi[l], br = qr[l], bi = -qi[l], dr = ar - br, di = ai - bi;                                      \
        zr[k * lanes + l] = ar + br - (c * di + s * dr);                                                                    \
        zi[k * lanes + l] = ai + bi + (c * dr - s * di);                                                                    \
      }                                                                                                                     \
    }                                                                                                                       \
  }                                                                                                                         \
  /* half a spectrum: every frequency but 0 and n / 2 times f; at those two, only real parts if `real` */                   \
  static void weigh_##S(int64_t n, int64_t lanes, T *re, T *im, T f, bool real) {                                           \
    for (int64_t k = 0; k <= n / 2; k++) {                                                                                  \
      bool single = k == 0 || 2 * k == n;                                                                                   \
      for (int64_t l = k * lanes; l < (k + 1) * lanes; l++) {                                                               \
        if (single && real) im[l] = 0;                                                                                      \
        if (!single) { re[l] *= f; im[l] *= f; }                                                                            \
      }                                                                                                                     \
    }                                                                                                                       \
  }                                                                                                                         \
  static void mirror_##S(int64_t n, int64_t lanes, T *re, T *im) { /* the other half of a real series' spectrum */          \
    for (int64_t k = n / 2 + 1; k < n; k++)                                                                                 \
      for (int64_t l = 0; l < lanes; l++) { re[k * lanes + l] = re[(n - k) * lanes + l]; im[k * lanes + l] = -im[(n - k) * lanes + l]; } \
  }                                                                                                                         \
  static void series_##S(const job *k, int64_t lanes, const int64_t *in, const int64_t *out, T *mem) {                      \
    int64_t n = k->n, h = n / 2, size = (n + 2) * lanes;                                                                    \
    T *xr = mem, *xi = xr + size, *yr = xi + size, *yi = yr + size, *rest = yi + size, f = (T)k->scale;                     \
    const T *x = k->x.p, *wr = k->plan->turn, *wi = wr ? wr + h + 1 : NULL;                                                       \
    T *y = k->y.p;                                                                                                          \
    bool swap;                                                                                                              \
    if (k->real_in) {                                                                                                       \
      if (k->whole) read_real_##S(n, lanes, x, in, k->xs, xr, xi);                                                          \
      else read_##S(h, lanes, x, in, 2 * k->xs, k->xs, xr, xi);                                                             \
      if (amp__fft_run_##S(k->plan, lanes, xr, xi, yr, yi, rest)) { T *t = xr; xr = yr; yr = t; t = xi; xi = yi; yi = t; }  \
      if (!k->whole) {                                                                                                      \
        apart_##S(h, lanes, xr, xi, yr, yi, wr, wi);                                                                        \
        xr = yr;                                                                                                            \
        xi = yi;                                                                                                            \
      }                                                                                                                     \
      if (k->weighted) weigh_##S(n, lanes, xr, xi, 2, false);                                                               \
      write_##S(h + 1, lanes, y, out, k->ys, k->yp, xr, xi, f);                                                             \
    } else if (k->real_out) {                                                                                               \
      read_##S(h + 1, lanes, x, in, k->xs, k->xp, xr, xi);                                                                  \
      weigh_##S(n, lanes, xr, xi, k->weighted ? 1 : (T)0.5, true);                                                          \
      if (k->whole) mirror_##S(n, lanes, xr, xi);                                                                           \
      else {                                                                                                                \
        together_##S(h, lanes, xr, xi, yr, yi, wr, wi);                                                                     \
        T *t = xr; xr = yr; yr = t;                                                                                         \
        t = xi; xi = yi; yi = t;                                                                                            \
      }                                                                                                                     \
      if (amp__fft_run_##S(k->plan, lanes, xi, xr, yi, yr, rest)) { xr = yr; xi = yi; }                                     \
      if (k->whole) write_real_##S(n, lanes, y, out, k->ys, xr, f);                                                         \
      else write_##S(h, lanes, y, out, 2 * k->ys, k->ys, xr, xi, f);                                                        \
    } else {                                                                                                                \
      read_##S(n, lanes, x, in, k->xs, k->xp, xr, xi);                                                                      \
      swap = k->inverse ? amp__fft_run_##S(k->plan, lanes, xi, xr, yi, yr, rest) : amp__fft_run_##S(k->plan, lanes, xr, xi, yr, yi, rest); \
      write_##S(n, lanes, y, out, k->ys, k->yp, swap ? yr : xr, swap ? yi : xi, f);                                         \
    }                                                                                                                       \
  }
BODY(float, f32)
BODY(double, f64)

static void body(void *ctx, int64_t begin, int64_t end, int thread) {
  const job *k = ctx;
  int64_t in[GROUP], out[GROUP];
  amp__nn_pos pos;
  void *mem = k->scratch + (size_t)thread * k->each;
  amp__nn_seek(&k->w, &pos, begin);
  for (int64_t i = begin; i < end;) {
    int64_t lanes = 0;
    for (; lanes < k->group && i < end; lanes++, i++, amp__nn_next(&k->w, &pos)) {
      in[lanes] = pos.off[0];
      out[lanes] = pos.off[1];
    }
    if (k->type == AMP_FLOAT64) series_f64(k, lanes, in, out, mem);
    else series_f32(k, lanes, in, out, mem);
  }
}

static int run(amp_call *c, job *k, int dim) {
  const amp_tensor *in = c->in[0], *out = c->out[0];
  amp__nn_scratch s = {0};
  int rc = AMP_E_MEMORY, nd = k->real_in ? in->ndim : in->ndim - 1;
  k->type = amp__nn_type(in->dtype);
  k->whole = (k->real_in || k->real_out) && k->n % 2 != 0;
  if (!amp__nn_read(&k->x, in, k->type) || !amp__nn_write(&k->y, out, k->type)) goto out;
  k->xs = k->x.stride[dim];
  k->xp = k->real_in ? 0 : k->x.stride[nd];
  k->ys = k->y.stride[dim];
  k->yp = k->real_out ? 0 : k->y.stride[nd];
  const int64_t *strides[2] = { k->x.stride, k->y.stride };
  amp__nn_walk_init(&k->w, nd, out->size, 1u << dim, 2, strides);
  rc = 0;
  if (k->w.n == 0 || k->n == 0) goto out;
  int64_t length = (k->real_in || k->real_out) && !k->whole ? k->n / 2 : k->n, bytes = amp__dtype_size[k->type];
  /* together as long as they fit a cache (strided ones a slower one); else each by itself, in columns and rows */
  bool many = k->w.n >= 8 && length * bytes * GROUP * 4 <= (k->xs > 2 ? 1 << 20 : 256 << 10);
  k->group = many ? GROUP : 1;
  rc = AMP_E_MEMORY;
  if (!(k->plan = amp__fft_plan(length, k->type, many, length != k->n))) goto out;
  double work = 2.0 * (double)k->w.n * (double)k->n * log2((double)k->n + 2);
  int threads = amp__nn_threads(work > 1e15 ? (int64_t)1e15 : (int64_t)work, (k->w.n + k->group - 1) / k->group);
  k->each = ((size_t)(4 * (k->n + 2) * k->group + amp__fft_scratch(k->plan, k->group)) * (size_t)bytes + 63) / 64 * 64;
  if (!amp__nn_lend(&s, NULL, 0, k->each * (size_t)threads)) goto out;
  k->scratch = s.p;
  amp__nn_par(threads, k->w.n, body, k);
  rc = 0;
out:
  if (rc == 0) amp__nn_written(&k->y, out, k->type);
  amp__nn_drop(&k->x);
  amp__nn_drop(&k->y);
  amp__nn_give(&s);
  return rc;
}

int amp__cpu_fft_complex(amp_call *c) { /* dim inverse scale */
  int dim = (int)c->a[0].i;
  job k = { .n = c->in[0]->size[dim], .inverse = c->a[1].i != 0, .scale = c->a[2].f };
  return run(c, &k, dim);
}

int amp__cpu_fft_real(amp_call *c) { /* dim scale weighted */
  int dim = (int)c->a[0].i;
  job k = { .n = c->in[0]->size[dim], .real_in = true, .scale = c->a[1].f, .weighted = c->a[2].i != 0 };
  return run(c, &k, dim);
}

int amp__cpu_fft_half(amp_call *c) { /* dim n scale weighted */
  int dim = (int)c->a[0].i;
  job k = { .n = c->a[1].i, .real_out = true, .scale = c->a[2].f, .weighted = c->a[3].i != 0 };
  return run(c, &k, dim);
}
