/*
** cpu_pool.h: what the pooling kernels share: sizes as N C D H W whatever the
** rank is (missing ones are 1), strides to match, and the window of every output
** along each dimension, clipped to the input.
*/
#ifndef AMP_CPU_POOL_H
#define AMP_CPU_POOL_H
#include "cpu_nn.h"

typedef struct amp__pool {
  int spatial, type;                    /* type: the computing type */
  bool shares, whole, last;             /* windows that share out the input; padding counts in a mean; channels innermost */
  int64_t n, c, in[3], out[3];
  int64_t kernel[3], stride[3], padding[3], dilation[3];
  int64_t divisor;                      /* of a mean; AMP_NONE: the window's size */
  int64_t xs[5], ys[5], is[5];          /* strides of input side, output side, places */
  amp__nn_view x, y;
  int64_t *place;
  /* the window of output o along dimension a: count[a][o] elements, the first at start[a][o], dilation[a] apart */
  int64_t *start[3], *count[3];
  double *len[3];                       /* what a mean divides by */
  amp__nn_scratch scratch;
} amp__pool;

void amp__pool_attributes(amp__pool *p, const amp_slot *a); /* spatial, size, kernel_size, stride, padding */
/* x: the side of the large planes, y: of the small ones; `out` is written. After it amp__pool_close. */
int amp__pool_open(amp__pool *p, const amp_tensor *x, const amp_tensor *y, const amp_tensor *out, const amp_tensor *place, bool windows);
int amp__pool_close(amp__pool *p, const amp_tensor *x, const amp_tensor *out, int rc);

/* Outputs [lo, hi) of a row whose tap at offset t lies inside [0, w) */
static inline void amp__pool_inside(int64_t ow, int64_t w, int64_t s, int64_t t, int64_t *lo, int64_t *hi) {
  *lo = t < 0 ? (-t + s - 1) / s : 0;
  *hi = t >= w ? 0 : (w - t + s - 1) / s;
  if (*hi > ow) *hi = ow;
  if (*lo > *hi) *lo = *hi;
}

/* About how many elements a window has */
static inline int64_t amp__pool_taps(const amp__pool *p) {
  int64_t n = 1;
  for (int i = 0; i < 3; i++) n *= p->shares ? (p->in[i] + p->out[i] - 1) / p->out[i] : p->kernel[i] < p->in[i] ? p->kernel[i] : p->in[i];
  return n;
}

#define AMP_PLANE(p, v, s, i, T) ((T *)(p)->v.p + (i) / (p)->c * (p)->s[0] + (i) % (p)->c * (p)->s[1])

#endif
