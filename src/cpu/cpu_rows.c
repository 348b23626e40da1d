/*
** cpu_rows.c: the runs of cpu_rows.h. Sums keep four chains of vectors, which
** hide the adder's latency: side by side in the sums that read a run first, so
** that memory is read in order, else down the quarters of a run.
*/
#include "cpu_rows.h"

static inline __attribute__((always_inline)) float exp_f32(float x) { return amp__expf(x); }
static inline __attribute__((always_inline)) double exp_f64(double x) { return exp(x); }

/* 16 lanes added as a tree: a chain of additions takes as long as a short row */
#define LANES(T, S)                                                                                 \
  static inline __attribute__((always_inline)) T lanes_##S(T *l) {                                  \
    for (int j = 0; j < 8; j++) l[j] += l[j + 8];                                                   \
    for (int j = 0; j < 4; j++) l[j] += l[j + 4];                                                   \
    return (l[0] + l[2]) + (l[1] + l[3]);                                                           \
  }
LANES(float, f32)
LANES(double, f64)

#define ROWS(T, S)                                                                                  \
  AMP_CLONES_OF(T) T amp__row_sum_##S(const T *x, int64_t n) {                                      \
    T l[256 / sizeof(T)], a = 0;                                                                    \
    const int64_t lanes = 256 / sizeof(T);                                                          \
    int64_t i = 0;                                                                                  \
    if (n >= lanes) {                                                                               \
      for (int j = 0; j < lanes; j++) l[j] = x[j];                                                  \
      for (i = lanes; i + lanes <= n; i += lanes) for (int j = 0; j < lanes; j++) l[j] += x[i + j]; \
      _Pragma("omp simd reduction(+ : a)") for (int j = 0; j < lanes; j++) a += l[j];               \
    }                                                                                               \
    _Pragma("omp simd reduction(+ : a)") for (int64_t j = i; j < n; j++) a += x[j];                 \
    return a;                                                                                       \
  }                                                                                                 \
  AMP_CLONES_OF(T) T amp__row_dev_##S(const T *x, T m, int64_t n) {                                 \
    T a = 0, b = 0, c = 0, d = 0;                                                                   \
    int64_t q = n / 4;                                                                              \
    const T *x1 = x + q, *x2 = x1 + q, *x3 = x2 + q;                                                \
    _Pragma("omp simd reduction(+ : a, b, c, d)") for (int64_t i = 0; i < q; i++) {                 \
      T u = x[i] - m, v = x1[i] - m, w = x2[i] - m, z = x3[i] - m;                                  \
      a += u * u; b += v * v; c += w * w; d += z * z;                                               \
    }                                                                                               \
    for (int64_t i = 4 * q; i < n; i++) a += (x[i] - m) * (x[i] - m);                               \
    return (a + b) + (c + d);                                                                       \
  }                                                                                                 \
  AMP_CLONES_OF(T) void amp__row_sums_##S(const T *g, const T *x, T m, int64_t n, T *sum2) {        \
    T l[128 / sizeof(T)], k[128 / sizeof(T)], a = 0, c = 0;                                         \
    const int64_t lanes = 128 / sizeof(T);                                                          \
    int64_t i = 0;                                                                                  \
    if (n >= lanes) {                                                                               \
      for (int j = 0; j < lanes; j++) { l[j] = g[j]; k[j] = g[j] * (x[j] - m); }                    \
      for (i = lanes; i + lanes <= n; i += lanes)                                                   \
        for (int j = 0; j < lanes; j++) { l[j] += g[i + j]; k[j] += g[i + j] * (x[i + j] - m); }    \
      _Pragma("omp simd reduction(+ : a, c)") for (int j = 0; j < lanes; j++) { a += l[j]; c += k[j]; } \
    }                                                                                               \
    _Pragma("omp simd reduction(+ : a, c)") for (int64_t j = i; j < n; j++) { a += g[j]; c += g[j] * (x[j] - m); } \
    sum2[0] = a;                                                                                    \
    sum2[1] = c;                                                                                    \
  }                                                                                                 \
  AMP_CLONES_OF(T) void amp__row_affine_##S(T *y, const T *x, T a, T b, int64_t n) {                \
    AMP_IVDEP for (int64_t i = 0; i < n; i++) y[i] = a * x[i] + b;                                  \
  }                                                                                                 \
  AMP_CLONES_OF(T) void amp__row_affine2_##S(T *y, const T *g, const T *x, T a, T b, T c, int64_t n) {  \
    AMP_IVDEP for (int64_t i = 0; i < n; i++) y[i] = a * g[i] + (b * x[i] + c);                     \
  }                                                                                                 \
  AMP_CLONES_OF(T) void amp__row_moments_##S(const T *x, T m, int64_t n, T *sum2) {                 \
    T l[128 / sizeof(T)], k[128 / sizeof(T)], a = 0, c = 0;                                         \
    const int64_t lanes = 128 / sizeof(T);                                                          \
    int64_t i = 0;                                                                                  \
    if (n >= lanes) {                                                                               \
      for (int j = 0; j < lanes; j++) { T d = x[j] - m; l[j] = d; k[j] = d * d; }                   \
      for (i = lanes; i + lanes <= n; i += lanes)                                                   \
        for (int j = 0; j < lanes; j++) { T d = x[i + j] - m; l[j] += d; k[j] += d * d; }           \
      _Pragma("omp simd reduction(+ : a, c)") for (int j = 0; j < lanes; j++) { a += l[j]; c += k[j]; } \
    }                                                                                               \
    _Pragma("omp simd reduction(+ : a, c)") for (int64_t j = i; j < n; j++) { T d = x[j] - m; a += d; c += d * d; } \
    sum2[0] = a;                                                                                    \
    sum2[1] = c;                                                                                    \
  }                                                                                                 \
  AMP_CLONES_OF(T) void amp__row_centre_##S(T *y, const T *x, T m, T a, T b, int64_t n) {           \
    AMP_IVDEP for (int64_t i = 0; i < n; i++) y[i] = a * (x[i] - m) + b;                            \
  }                                                                                                 \
  AMP_CLONES_OF(T) void amp__row_centre2_##S(T *y, const T *g, const T *x, T m, T r, T a, T b, T c, int64_t n) { \
    AMP_IVDEP for (int64_t i = 0; i < n; i++) y[i] = a * g[i] + (b * ((x[i] - m) * r) + c);         \
  }                                                                                                 \
  AMP_CLONES_OF(T) void amp__row_shift_##S(T *y, const T *x, T a, T b, int64_t n) {                 \
    AMP_IVDEP for (int64_t i = 0; i < n; i++) y[i] = (x[i] - a) - b;                                \
  }                                                                                                 \
  AMP_CLONES_OF(T) T amp__row_max_##S(const T *x, int64_t n) {                                      \
    T m[16], r = -INFINITY;                                                                         \
    for (int l = 0; l < 16; l++) m[l] = r;                                                          \
    int64_t i = 0;                                                                                  \
    for (; i + 16 <= n; i += 16)                                                                    \
      for (int l = 0; l < 16; l++) m[l] = x[i + l] > m[l] ? x[i + l] : m[l];                        \
    for (; i < n; i++) r = x[i] > r ? x[i] : r;                                                     \
    for (int l = 0; l < 8; l++) m[l] = m[l + 8] > m[l] ? m[l + 8] : m[l];                           \
    for (int l = 0; l < 4; l++) m[l] = m[l + 4] > m[l] ? m[l + 4] : m[l];                           \
    for (int l = 0; l < 4; l++) r = m[l] > r ? m[l] : r;                                            \
    return r;                                                                                       \
  }                                                                                                 \
  AMP_CLONES_OF(T) T amp__row_exp_##S(T *y, const T *x, T m, int64_t n) {                           \
    T l[16];                                                                                        \
    int64_t i = 0;                                                                                  \
    for (int j = 0; j < 16; j++) l[j] = 0;                                                          \
    if (y) {                                                                                        \
      for (; i + 16 <= n; i += 16) for (int j = 0; j < 16; j++) { T e = exp_##S(x[i + j] - m); y[i + j] = e; l[j] += e; } \
      for (int64_t k = i; k < n; k++) { T e = exp_##S(x[k] - m); y[k] = e; l[k - i] += e; }         \
    } else {                                                                                        \
      for (; i + 16 <= n; i += 16) for (int j = 0; j < 16; j++) l[j] += exp_##S(x[i + j] - m);      \
      for (int64_t k = i; k < n; k++) l[k - i] += exp_##S(x[k] - m);                                \
    }                                                                                               \
    return lanes_##S(l);                                                                            \
  }
ROWS(float, f32)
ROWS(double, f64)
