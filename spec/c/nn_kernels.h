/*
** nn_kernels.h: what tests of kernels for networks share: tensors drawn over the float dtypes and over layouts
** (C order, channels-last, swapped dimensions, every second element of something larger), calls, comparison. Values are
** eighths, so sums of products are exact in float32. With AMP_PLUGIN_DIR set and AMP_ONEDNN not 0 the same cases go
** through oneDNN.
*/
#ifndef AMP_NN_KERNELS_H
#define AMP_NN_KERNELS_H
#include <stdlib.h>
#include "check.h"
#include "core.h"

static amp_state *S;
static uint32_t seed = 1;
static inline int draw(int lo, int hi)
{
  seed = seed * 1664525u + 1013904223u;
  return lo + (int)((seed >> 8) % (uint32_t)(hi - lo + 1));
}
static inline int draw_dtype(void)
{
  static const int d[] = { AMP_FLOAT64, AMP_FLOAT32, AMP_FLOAT32, AMP_FLOAT16, AMP_BFLOAT16 };
  return d[draw(0, 4)];
}
static const double rounding[] = { 1e-12, 3e-6, 1.5e-3, 1.2e-2 }; /* of one result, by dtype */

/* -- Tensors --------------------------------------------------------------------------- */

static inline void *place(const amp_tensor *t, int64_t i)
{ /* the i-th element in C order */
  int64_t off = 0;
  for (int d = t->ndim - 1; d >= 0; d--) {
    off += i % t->size[d] * t->stride[d];
    i /= t->size[d];
  }
  return (char *)amp__data(t) + off * amp__dtype_size[t->dtype];
}
static inline double get(const amp_tensor *t, int64_t i) { return amp__value_get(place(t, i), t->dtype); }
static inline void put(amp_tensor *t, int64_t i, double v) { amp__value_put(place(t, i), t->dtype, v); }
static inline double get4(const amp_tensor *t, int64_t a, int64_t b, int64_t c, int64_t d)
{
  int64_t off = a * t->stride[0] + b * t->stride[1] + c * t->stride[2] + d * t->stride[3];
  return amp__value_get((char *)amp__data(t) + off * amp__dtype_size[t->dtype], t->dtype);
}

static inline amp_tensor *empty(int dtype, int layout, int ndim, const int64_t *size)
{
  amp_meta m = { .dtype = (uint8_t)dtype, .ndim = (uint8_t)ndim };
  if (ndim) memcpy(m.size, size, sizeof *size * (size_t)ndim); /* a scalar has no sizes */
  if (layout == 1 && ndim == 4) {
    m.strides = 1;
    m.stride[1] = 1;
    m.stride[3] = size[1];
    m.stride[2] = size[3] * size[1];
    m.stride[0] = size[2] * m.stride[2];
  } else if (layout == 2 && ndim >= 2) { /* first two dimensions swapped in memory */
    int64_t step = 1;
    m.strides = 1;
    for (int d = ndim - 1; d >= 2; d--) {
      m.stride[d] = step;
      step *= size[d];
    }
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

static inline amp_tensor *some(int dtype, int layout, int ndim, const int64_t *size)
{
  amp_tensor *t = empty(dtype, layout, ndim, size);
  for (int64_t i = 0; i < t->numel; i++) put(t, i, draw(-8, 8) / 8.0);
  return t;
}
#define DIMS(...) \
  (sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }
#define SOME(dtype, ...) some(dtype, draw(0, 3), DIMS(__VA_ARGS__))

/* Outputs in out[]; the code */
static amp_tensor *out[AMP_MAX_OUT];
static inline int call(int op, const amp_slot *a, int n, amp_tensor *a0, amp_tensor *a1, amp_tensor *a2, amp_tensor *a3,
                       amp_tensor *a4, amp_tensor *a5)
{
  amp_tensor *in[6] = { a0, a1, a2, a3, a4, a5 };
  AMP_ENTER(S);
  for (int i = 0; i < AMP_MAX_OUT; i++) out[i] = NULL;
  int rc = amp__dispatch(op, 0, in, n, out, a);
  if (rc < 0) printf("%s: %s\n", S->err.op, S->err.message);
  return rc;
}
static inline void drop(void)
{
  for (int i = 0; i < AMP_MAX_OUT; i++) {
    amp__free(out[i]);
    out[i] = NULL;
  }
}
static inline void drop_all(int n, amp_tensor **t)
{
  for (int i = 0; i < n; i++) amp__free(t[i]);
  drop();
}

static const char *what;
static inline void near_at(const amp_tensor *t, int64_t i, double want, double tol)
{
  double got = get(t, i);
  bool ok = isnan(want) ? isnan(got) : isinf(want) ? got == want : fabs(got - want) <= tol * (1 + fabs(want));
  if (!ok) printf("%s %s at %lld: got %.9g, expected %.9g\n", what, amp__tensor_str(t), (long long)i, got, want);
  CHECK(ok);
}
/* One count a tensor keeps the report readable */
static inline void near_all(const amp_tensor *t, const double *want, double tol)
{
  for (int64_t i = 0; i < t->numel; i++) {
    double got = get(t, i);
    bool ok = isnan(want[i])   ? isnan(got)
              : isinf(want[i]) ? got == want[i]
                               : fabs(got - want[i]) <= tol * (1 + fabs(want[i]));
    if (!ok) {
      near_at(t, i, want[i], tol);
      return;
    }
  }
  CHECK(true);
}
static inline double *doubles(int64_t n) { return calloc((size_t)n + 1, sizeof(double)); }
#endif
