/*
** cpu_pool.c: rows max_pool2d, avg_pool2d and their backward rows.
**
** Work goes by rows of output: each tap of the window is one pass along the
** row, so the inner loops are free of bounds. Channels-last data runs along
** channels instead. Places that max_pool2d reports count from 0 in the H x W
** plane. NaN wins against everything; a window of -inf reports its first place.
*/
#include "cpu_nn.h"

typedef struct pool {
  int64_t n, c, h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw;
  bool whole;                    /* avg: padding counts */
  amp__nn_view x, y;
  int64_t xs[4], ys[4], is[4];   /* strides as N C H W, of input, output, places */
  int64_t *place;
  int type;
} pool;

/* A tensor of C x H x W has one image. */
static void four(const amp_tensor *t, const int64_t *stride, int64_t *s) {
  int d = t->ndim - 4;
  for (int i = 0; i < 4; i++) s[i] = i + d >= 0 ? stride[i + d] : 0;
}
static int64_t dim(const amp_tensor *t, int i) { i += t->ndim - 4; return i >= 0 ? t->size[i] : 1; }

static void set(pool *p, const amp_tensor *x, const amp_tensor *y) {
  p->n = dim(x, 0); p->c = dim(x, 1); p->h = dim(x, 2); p->w = dim(x, 3);
  p->oh = dim(y, 2); p->ow = dim(y, 3);
}

static void window(pool *p, const amp_slot *a, bool dilation) { /* kernel stride padding (dilation) */
  p->kh = a[0].i; p->kw = a[1].i;
  p->sh = a[2].i == AMP_NONE ? p->kh : a[2].i;
  p->sw = a[3].i == AMP_NONE ? p->kw : a[3].i;
  p->ph = a[4].i; p->pw = a[5].i;
  p->dh = dilation ? a[6].i : 1;
  p->dw = dilation ? a[7].i : 1;
}

/* Outputs [lo, hi) of a row whose tap at offset t lies inside [0, w) */
static inline void inside(int64_t ow, int64_t w, int64_t s, int64_t t, int64_t *lo, int64_t *hi) {
  *lo = t < 0 ? (-t + s - 1) / s : 0;
  *hi = t >= w ? 0 : (w - t + s - 1) / s;
  if (*hi > ow) *hi = ow;
  if (*lo > *hi) *lo = *hi;
}

static inline int64_t first_inside(int64_t at, int64_t step) { return at >= 0 ? at : at + (-at + step - 1) / step * step; }

/* What a window at (y, x) is divided by */
static inline int64_t count(const pool *p, int64_t y, int64_t x) {
  int64_t ye = y + p->kh < p->h + p->ph ? y + p->kh : p->h + p->ph, xe = x + p->kw < p->w + p->pw ? x + p->kw : p->w + p->pw;
  if (!p->whole) {
    if (y < 0) y = 0;
    if (x < 0) x = 0;
    if (ye > p->h) ye = p->h;
    if (xe > p->w) xe = p->w;
  }
  int64_t n = (ye - y) * (xe - x);
  return n > 0 ? n : 1;
}

/* -- Rows of one plane, and channels of one pixel ------------------------------------ */

/* GCC makes vector code of it: best and place never overlap the plane */
#define STEP_MAX(T, X)                                                                              \
  for (int64_t j = lo; j < hi; j++) {                                                               \
    T v = r[j * (X)], m = best[j];                                                                  \
    int32_t at = base + (int32_t)j * (int32_t)(sw), old = place[j];                                 \
    bool take = (v > m) | (v != v);                                                                 \
    best[j] = take ? v : m;                                                                         \
    place[j] = take ? at : old;                                                                     \
  }

/* Windows of 2 x 2 two apart, all inside, n >= 4: four at a time, the last four overlapping those before. Written
** with vectors: a row is short, and the scalar rest of a loop would mostly wait for mispredicted branches. */
typedef float vf4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t vi4 __attribute__((vector_size(16), aligned(4), may_alias));
#if defined(__clang__)
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7)
#else
#define EVEN(a, b) __builtin_shuffle(a, b, (vi4){0, 2, 4, 6})
#define ODD(a, b) __builtin_shuffle(a, b, (vi4){1, 3, 5, 7})
#endif
#define BETTER(v, k) { vi4 t = (v > m) | (v != v); m = (vf4)(((vi4)v & t) | ((vi4)m & ~t)); at = ((k) & t) | (at & ~t); }
static void max_two_f32(const float *a, const float *b, int64_t n, int32_t base, int32_t w, float *best, int32_t *place) {
  const vi4 step = {0, 2, 4, 6};
  for (int64_t j = 0; j < n; j += 4) {
    int64_t o = j + 4 <= n ? j : n - 4;
    vf4 a0 = *(const vf4 *)(a + 2 * o), a1 = *(const vf4 *)(a + 2 * o + 4), b0 = *(const vf4 *)(b + 2 * o), b1 = *(const vf4 *)(b + 2 * o + 4);
    vf4 m = EVEN(a0, a1), v1 = ODD(a0, a1), v2 = EVEN(b0, b1), v3 = ODD(b0, b1);
    vi4 k = step + (base + 2 * (int32_t)o), at = k;
    BETTER(v1, k + 1)
    BETTER(v2, k + w)
    BETTER(v3, k + w + 1)
    *(vf4 *)(best + o) = m;
    *(vi4 *)(place + o) = at;
  }
}
#define max_two_f64(...) (void)0

#define POOL(T, S)                                                                                  \
  AMP_CLONES static void max_row_##S(const pool *p, const T *x, int64_t oy, T *restrict best, int32_t *restrict place) { \
    int64_t y0 = oy * p->sh - p->ph, yf = first_inside(y0, p->dh), sw = p->sw, xw = p->xs[3];       \
    if (p->kh == 2 && p->kw == 2 && sw == 2 && xw == 1 && p->dh == 1 && p->dw == 1 && p->pw == 0 && y0 >= 0 && y0 + 1 < p->h && 2 * p->ow <= p->w && p->ow >= 4 && sizeof(T) == 4) { \
      max_two_##S(x + y0 * p->xs[2], x + (y0 + 1) * p->xs[2], p->ow, (int32_t)(y0 * p->w), (int32_t)p->w, best, place); \
      return;                                                                                       \
    }                                                                                               \
    for (int64_t j = 0; j < p->ow; j++) {                                                           \
      best[j] = -INFINITY;                                                                          \
      place[j] = (int32_t)(yf * p->w + first_inside(j * sw - p->pw, p->dw));                        \
    }                                                                                               \
    for (int64_t ky = 0, y = y0; ky < p->kh; ky++, y += p->dh) {                                    \
      if (y < 0 || y >= p->h) continue;                                                             \
      for (int64_t kx = 0; kx < p->kw; kx++) {                                                      \
        int64_t t = kx * p->dw - p->pw, lo, hi;                                                     \
        inside(p->ow, p->w, sw, t, &lo, &hi);                                                       \
        const T *r = x + y * p->xs[2] + t * xw;                                                     \
        int32_t base = (int32_t)(y * p->w + t);                                                     \
        if (xw == 1 && sw == 1) { STEP_MAX(T, 1) }                                                     \
        else if (xw == 1 && sw == 2) { STEP_MAX(T, 2) }                                                \
        else { int64_t step = sw * xw; STEP_MAX(T, step) }                                             \
      }                                                                                             \
    }                                                                                               \
  }                                                                                                 \
  AMP_CLONES static void max_pixel_##S(const pool *p, const T *x, int64_t oy, int64_t ox, int64_t n, T *restrict best, int32_t *restrict place) { \
    int64_t y0 = oy * p->sh - p->ph, x0 = ox * p->sw - p->pw;                                       \
    int32_t first = (int32_t)(first_inside(y0, p->dh) * p->w + first_inside(x0, p->dw));            \
    for (int64_t j = 0; j < n; j++) { best[j] = -INFINITY; place[j] = first; }                      \
    for (int64_t ky = 0, y = y0; ky < p->kh; ky++, y += p->dh)                                      \
      for (int64_t kx = 0, q = x0; kx < p->kw; kx++, q += p->dw) {                                  \
        if (y < 0 || y >= p->h || q < 0 || q >= p->w) continue;                                     \
        const T *r = x + y * p->xs[2] + q * p->xs[3];                                               \
        int32_t base = (int32_t)(y * p->w + q), sw = 0;                                             \
        int64_t lo = 0, hi = n;                                                                     \
        STEP_MAX(T, 1)                                                                                 \
      }                                                                                             \
  }                                                                                                 \
  AMP_CLONES static void avg_pixel_##S(const pool *p, const T *x, int64_t oy, int64_t ox, int64_t n, T *restrict sum) { \
    int64_t y0 = oy * p->sh - p->ph, x0 = ox * p->sw - p->pw;                                       \
    T f = (T)count(p, y0, x0);                                                                      \
    for (int64_t j = 0; j < n; j++) sum[j] = 0;                                                     \
    for (int64_t y = y0 < 0 ? 0 : y0; y < y0 + p->kh && y < p->h; y++)                              \
      for (int64_t q = x0 < 0 ? 0 : x0; q < x0 + p->kw && q < p->w; q++) {                          \
        const T *r = x + y * p->xs[2] + q * p->xs[3];                                               \
        for (int64_t j = 0; j < n; j++) sum[j] += r[j];                                             \
      }                                                                                             \
    for (int64_t j = 0; j < n; j++) sum[j] /= f;                                                    \
  }                                                                                                 \
  AMP_CLONES static void avg_back_pixel_##S(const pool *p, const T *restrict g, T *x, int64_t oy, int64_t ox, int64_t n) { \
    int64_t y0 = oy * p->sh - p->ph, x0 = ox * p->sw - p->pw;                                       \
    T f = (T)count(p, y0, x0);                                                                      \
    for (int64_t y = y0 < 0 ? 0 : y0; y < y0 + p->kh && y < p->h; y++)                              \
      for (int64_t q = x0 < 0 ? 0 : x0; q < x0 + p->kw && q < p->w; q++) {                          \
        T *r = x + y * p->xs[2] + q * p->xs[3];                                                     \
        for (int64_t j = 0; j < n; j++) r[j] += g[j] / f;                                           \
      }                                                                                             \
  }                                                                                                 \
  AMP_CLONES static void avg_row_##S(const pool *p, const T *x, int64_t oy, T *sum) {               \
    int64_t y0 = oy * p->sh - p->ph, sw = p->sw, xw = p->xs[3];                                     \
    for (int64_t j = 0; j < p->ow; j++) sum[j] = 0;                                                 \
    for (int64_t ky = 0, y = y0; ky < p->kh; ky++, y++) {                                           \
      if (y < 0 || y >= p->h) continue;                                                             \
      for (int64_t kx = 0; kx < p->kw; kx++) {                                                      \
        int64_t t = kx - p->pw, lo, hi;                                                             \
        inside(p->ow, p->w, sw, t, &lo, &hi);                                                       \
        const T *r = x + y * p->xs[2] + t * xw;                                                     \
        if (xw == 1 && sw == 1) for (int64_t j = lo; j < hi; j++) sum[j] += r[j];                   \
        else if (xw == 1 && sw == 2) for (int64_t j = lo; j < hi; j++) sum[j] += r[2 * j];          \
        else for (int64_t j = lo; j < hi; j++) sum[j] += r[j * sw * xw];                            \
      }                                                                                             \
    }                                                                                               \
    for (int64_t j = 0; j < p->ow; j++) sum[j] /= (T)count(p, y0, j * sw - p->pw);                  \
  }                                                                                                 \
  AMP_CLONES static void avg_back_row_##S(const pool *p, const T *g, T *x, int64_t oy, T *share) {  \
    int64_t y0 = oy * p->sh - p->ph, sw = p->sw, step = p->sw * p->xs[3];                           \
    for (int64_t j = 0; j < p->ow; j++) share[j] = g[j * p->ys[3]] / (T)count(p, y0, j * sw - p->pw); \
    for (int64_t ky = 0, y = y0; ky < p->kh; ky++, y++) {                                           \
      if (y < 0 || y >= p->h) continue;                                                             \
      for (int64_t kx = 0; kx < p->kw; kx++) {                                                      \
        int64_t t = kx - p->pw, lo, hi;                                                             \
        inside(p->ow, p->w, sw, t, &lo, &hi);                                                       \
        T *r = x + y * p->xs[2] + t * p->xs[3];                                                     \
        if (step == 1) for (int64_t j = lo; j < hi; j++) r[j] += share[j];                          \
        else for (int64_t j = lo; j < hi; j++) r[j * step] += share[j];                             \
      }                                                                                             \
    }                                                                                               \
  }

POOL(float, f32)
POOL(double, f64)

/* -- Bodies ------------------------------------------------------------------------------ */

enum { LANES = 1024 };

#define PLANE(p, v, s, i, T) ((T *)(p)->v.p + (i) / (p)->c * (p)->s[0] + (i) % (p)->c * (p)->s[1])

#define BODIES(T, S)                                                                                \
  static void max_planes_##S(const pool *p, int64_t begin, int64_t end, char *buf) {                \
    T *best = (T *)buf;                                                                             \
    int32_t *place = (int32_t *)(best + p->ow);                                                     \
    for (int64_t i = begin; i < end; i++)                                                           \
      for (int64_t oy = 0; oy < p->oh; oy++) {                                                      \
        T *y = PLANE(p, y, ys, i, T) + oy * p->ys[2];                                               \
        int64_t *at = p->place + i / p->c * p->is[0] + i % p->c * p->is[1] + oy * p->is[2];         \
        max_row_##S(p, PLANE(p, x, xs, i, T), oy, p->ys[3] == 1 ? y : best, place);                 \
        if (p->ys[3] != 1) for (int64_t j = 0; j < p->ow; j++) y[j * p->ys[3]] = best[j];           \
        if (p->is[3] == 1) for (int64_t j = 0; j < p->ow; j++) at[j] = place[j];                    \
        else for (int64_t j = 0; j < p->ow; j++) at[j * p->is[3]] = place[j];                       \
      }                                                                                             \
  }                                                                                                 \
  static void max_pixels_##S(const pool *p, int64_t begin, int64_t end) {                           \
    int32_t place[LANES];                                                                           \
    for (int64_t i = begin; i < end; i++) {                                                         \
      int64_t n = i / (p->oh * p->ow), oy = i / p->ow % p->oh, ox = i % p->ow;                      \
      for (int64_t c = 0; c < p->c; c += LANES) {                                                   \
        int64_t k = p->c - c < LANES ? p->c - c : LANES;                                            \
        T *y = (T *)p->y.p + n * p->ys[0] + oy * p->ys[2] + ox * p->ys[3] + c;                      \
        int64_t *at = p->place + n * p->is[0] + oy * p->is[2] + ox * p->is[3] + c;                  \
        max_pixel_##S(p, (T *)p->x.p + n * p->xs[0] + c, oy, ox, k, y, place);                      \
        for (int64_t j = 0; j < k; j++) at[j] = place[j];                                           \
      }                                                                                             \
    }                                                                                               \
  }                                                                                                 \
  static void avg_pixels_##S(const pool *p, int64_t begin, int64_t end) {                           \
    for (int64_t i = begin; i < end; i++) {                                                         \
      int64_t n = i / (p->oh * p->ow), oy = i / p->ow % p->oh, ox = i % p->ow;                      \
      avg_pixel_##S(p, (T *)p->x.p + n * p->xs[0], oy, ox, p->c, (T *)p->y.p + n * p->ys[0] + oy * p->ys[2] + ox * p->ys[3]); \
    }                                                                                               \
  }                                                                                                 \
  /* whole images: their outputs add into the same pixels */                                        \
  static void back_images_##S(const pool *p, int64_t begin, int64_t end) {                          \
    for (int64_t n = begin; n < end; n++) {                                                         \
      T *x = (T *)p->x.p + n * p->xs[0];                                                            \
      for (int64_t y = 0; y < p->h; y++)                                                            \
        for (int64_t q = 0; q < p->w; q++) memset(x + y * p->xs[2] + q * p->xs[3], 0, (size_t)p->c * sizeof *x); \
      for (int64_t oy = 0; oy < p->oh; oy++)                                                        \
        for (int64_t ox = 0; ox < p->ow; ox++) {                                                    \
          const T *g = (T *)p->y.p + n * p->ys[0] + oy * p->ys[2] + ox * p->ys[3];                  \
          if (!p->place) { avg_back_pixel_##S(p, g, x, oy, ox, p->c); continue; }                   \
          const int64_t *at = p->place + n * p->is[0] + oy * p->is[2] + ox * p->is[3];              \
          if (p->xs[2] == p->w * p->xs[3]) for (int64_t c = 0; c < p->c; c++) x[at[c] * p->xs[3] + c] += g[c]; \
          else for (int64_t c = 0; c < p->c; c++) x[at[c] / p->w * p->xs[2] + at[c] % p->w * p->xs[3] + c] += g[c]; \
        }                                                                                           \
    }                                                                                               \
  }                                                                                                 \
  static void max_back_##S(const pool *p, int64_t begin, int64_t end) { /* images, channels */      \
    bool flat = p->xs[2] == p->w * p->xs[3];                                                        \
    for (int64_t i = begin; i < end; i++) {                                                         \
      const T *g = PLANE(p, y, ys, i, T);                                                           \
      const int64_t *at = p->place + i / p->c * p->is[0] + i % p->c * p->is[1];                     \
      T *x = PLANE(p, x, xs, i, T);                                                                 \
      if (flat && p->xs[3] == 1 && p->ys[3] == 1 && p->is[3] == 1 && p->ys[2] == p->ow && p->is[2] == p->ow) { \
        for (int64_t j = 0; j < p->oh * p->ow; j++) x[at[j]] += g[j];                               \
        continue;                                                                                   \
      }                                                                                             \
      for (int64_t oy = 0; oy < p->oh; oy++)                                                        \
        for (int64_t ox = 0; ox < p->ow; ox++) {                                                    \
          int64_t q = at[oy * p->is[2] + ox * p->is[3]];                                            \
          x[flat ? q * p->xs[3] : q / p->w * p->xs[2] + q % p->w * p->xs[3]] += g[oy * p->ys[2] + ox * p->ys[3]]; \
        }                                                                                           \
    }                                                                                               \
  }                                                                                                 \
  static void max_gather_##S(const pool *p, int64_t begin, int64_t end) {                           \
    for (int64_t i = begin; i < end; i++) {                                                         \
      T *y = PLANE(p, y, ys, i, T);                                                                 \
      const int64_t *at = p->place + i / p->c * p->is[0] + i % p->c * p->is[1];                     \
      const T *x = PLANE(p, x, xs, i, T);                                                           \
      for (int64_t oy = 0; oy < p->oh; oy++)                                                        \
        for (int64_t ox = 0; ox < p->ow; ox++) {                                                    \
          int64_t q = at[oy * p->is[2] + ox * p->is[3]];                                            \
          y[oy * p->ys[2] + ox * p->ys[3]] = x[q / p->w * p->xs[2] + q % p->w * p->xs[3]];          \
        }                                                                                           \
    }                                                                                               \
  }                                                                                                 \
  static void avg_planes_##S(const pool *p, int64_t begin, int64_t end, char *buf) {                \
    T *sum = (T *)buf;                                                                              \
    for (int64_t i = begin; i < end; i++)                                                           \
      for (int64_t oy = 0; oy < p->oh; oy++) {                                                      \
        T *y = PLANE(p, y, ys, i, T) + oy * p->ys[2];                                               \
        avg_row_##S(p, PLANE(p, x, xs, i, T), oy, sum);                                             \
        for (int64_t j = 0; j < p->ow; j++) y[j * p->ys[3]] = sum[j];                               \
      }                                                                                             \
  }                                                                                                 \
  static void avg_back_##S(const pool *p, int64_t begin, int64_t end, char *buf) {                  \
    for (int64_t i = begin; i < end; i++)                                                           \
      for (int64_t oy = 0; oy < p->oh; oy++)                                                        \
        avg_back_row_##S(p, PLANE(p, y, ys, i, T) + oy * p->ys[2], PLANE(p, x, xs, i, T), oy, (T *)buf); \
  }                                                                                                 \
  static void zero_planes_##S(const pool *p, int64_t begin, int64_t end) {                          \
    for (int64_t i = begin; i < end; i++) {                                                         \
      T *x = PLANE(p, x, xs, i, T);                                                                 \
      if (p->xs[3] == 1 && p->xs[2] == p->w) { memset(x, 0, (size_t)(p->h * p->w) * sizeof *x); continue; } \
      for (int64_t y = 0; y < p->h; y++)                                                            \
        for (int64_t j = 0; j < p->w; j++) x[y * p->xs[2] + j * p->xs[3]] = 0;                      \
    }                                                                                               \
  }
BODIES(float, f32)
BODIES(double, f64)

enum { MAX, MAX_BACK, MAX_GATHER, AVG, AVG_BACK };
typedef struct job { const pool *p; int what; bool inside; char *buf; size_t each; } job; /* inside: by channels */

#define RUN(name, ...) (p->type == AMP_FLOAT64 ? name##_f64(p, begin, end, ##__VA_ARGS__) : name##_f32(p, begin, end, ##__VA_ARGS__))
static void body(void *ctx, int64_t begin, int64_t end, int thread) {
  const job *k = ctx;
  const pool *p = k->p;
  char *buf = k->buf + (size_t)thread * k->each;
  switch (k->what) {
  case MAX:
    if (k->inside) RUN(max_pixels);
    else RUN(max_planes, buf);
    break;
  case MAX_BACK:
    if (k->inside) RUN(back_images);
    else { RUN(zero_planes); RUN(max_back); }
    break;
  case MAX_GATHER: RUN(max_gather); break;
  case AVG:
    if (k->inside) RUN(avg_pixels);
    else RUN(avg_planes, buf);
    break;
  default:
    if (k->inside) RUN(back_images);
    else { RUN(zero_planes); RUN(avg_back, buf); }
    break;
  }
}

static int run(pool *p, int what) {
  char own[8 << 10] __attribute__((aligned(64)));
  amp__nn_scratch s;
  job k = {p, what, p->xs[1] == 1 && p->ys[1] == 1 && (!p->place || p->is[1] == 1) && p->c >= 8 && what != MAX_GATHER, NULL, 0};
  bool back = what == MAX_BACK || what == AVG_BACK;
  int64_t n = !k.inside ? p->n * p->c : back ? p->n : p->n * p->oh * p->ow, work = p->n * p->c * p->oh * p->ow;
  if (what != MAX_GATHER && what != MAX_BACK) work *= p->kh * p->kw;
  int threads = amp__nn_threads(work / 2, n);
  k.each = ((size_t)p->ow * 12 + 127) / 64 * 64;
  if (!amp__nn_lend(&s, own, sizeof own, k.each * (size_t)threads)) return AMP_E_MEMORY;
  k.buf = s.p;
  amp__nn_par(threads, n, body, &k);
  amp__nn_give(&s);
  return 0;
}

/* x: the side of the large planes, y: of the small ones; `out` is written */
static int pooled(pool *p, const amp_tensor *x, const amp_tensor *y, const amp_tensor *out, const amp_tensor *place, int what) {
  int rc = AMP_E_MEMORY;
  p->type = amp__nn_type(out->dtype);
  set(p, x, y);
  if (p->h * p->w > INT32_MAX) return amp__fail(AMP_E_UNSUPPORTED, "pooling over a plane of %lld elements", (long long)(p->h * p->w));
  if (!(out == x ? amp__nn_write(&p->x, x, p->type) : amp__nn_read(&p->x, x, p->type)) ||
      !(out == y ? amp__nn_write(&p->y, y, p->type) : amp__nn_read(&p->y, y, p->type))) goto out;
  four(x, p->x.stride, p->xs);
  four(y, p->y.stride, p->ys);
  if (place) {
    p->place = AMP_DATA(int64_t, place);
    four(place, place->stride, p->is);
  }
  rc = run(p, what);
  if (rc == 0) amp__nn_written(out == x ? &p->x : &p->y, out, p->type);
out:
  amp__nn_drop(&p->x);
  amp__nn_drop(&p->y);
  return rc;
}

/* -- Rows of the op table -------------------------------------------------------------------- */

int amp__cpu_max_pool2d(amp_call *c) {
  pool p = {0};
  window(&p, c->a, true);
  if (c->out[0]->numel == 0) return 0;
  return pooled(&p, c->in[0], c->out[0], c->out[0], c->out[1], MAX);
}

AMP_CLONES static bool any_outside(const int64_t *d, int64_t n, int64_t limit) {
  uint64_t bad = 0;
  for (int64_t i = 0; i < n; i++) bad |= (uint64_t)d[i] >= (uint64_t)limit;
  return bad != 0;
}

/* Places come from anywhere a user can put a tensor: check them. */
static int check_places(const amp_tensor *t, int64_t limit) {
  amp__nn_walk w;
  const int64_t *st[1] = {t->stride};
  amp__nn_pos p;
  const int64_t *d = AMP_DATA(int64_t, t);
  if ((t->flags & AMP_T_DENSE) && !any_outside(d, t->numel, limit)) return 0;
  amp__nn_walk_init(&w, t->ndim, t->size, 0, 1, st);
  amp__nn_seek(&w, &p, 0);
  for (int64_t i = 0; i < w.n; i++, amp__nn_next(&w, &p))
    if (d[p.off[0]] < 0 || d[p.off[0]] >= limit)
      return amp__fail(AMP_E_INDEX, "index %lld at place %lld, expected 0..%lld", (long long)d[p.off[0]], (long long)i + 1, (long long)limit - 1);
  return 0;
}

int amp__cpu_max_pool2d_backward(amp_call *c) {
  pool p = {0};
  if (c->out[0]->numel == 0) return 0;
  int rc = check_places(c->in[1], dim(c->out[0], 2) * dim(c->out[0], 3));
  return rc ? rc : pooled(&p, c->out[0], c->in[0], c->out[0], c->in[1], MAX_BACK);
}

int amp__cpu_max_pool2d_gather(amp_call *c) {
  pool p = {0};
  if (c->out[0]->numel == 0) return 0;
  int rc = check_places(c->in[1], dim(c->in[0], 2) * dim(c->in[0], 3));
  return rc ? rc : pooled(&p, c->in[0], c->out[0], c->out[0], c->in[1], MAX_GATHER);
}

int amp__cpu_avg_pool2d(amp_call *c) {
  pool p = {0};
  window(&p, c->a, false);
  p.whole = c->a[7].i != 0;
  if (c->out[0]->numel == 0) return 0;
  return pooled(&p, c->in[0], c->out[0], c->out[0], NULL, AVG);
}

int amp__cpu_avg_pool2d_backward(amp_call *c) {
  pool p = {0};
  window(&p, c->a + 9, false);
  p.whole = c->a[16].i != 0;
  if (c->out[0]->numel == 0) return 0;
  return pooled(&p, c->out[0], c->in[0], c->out[0], NULL, AVG_BACK);
}
