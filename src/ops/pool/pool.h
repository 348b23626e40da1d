/*
** ops/pool/pool.h: what the pooling kernels share: sizes as N C D H W whatever the
** rank is (missing ones are 1), strides to match, and the window of every output
** along each dimension, clipped to the input.
*/
#ifndef AMP_CPU_POOL_H
#define AMP_CPU_POOL_H
#include "cpu/kernel_help.h"
#include "ops/pool/pool_windows.h"

typedef struct amp__pool {
  int spatial, type;        /* type: the computing type */
  bool shares, whole, last; /* windows that share out the input; padding counts in a mean; channels innermost */
  int64_t images, channels, in_size[3], out[3];
  int64_t kernel[3], stride[3], padding[3], dilation[3];
  int64_t divisor; /* of a mean; AMP_NONE: the window's size */
  int64_t in_stride[5], out_stride[5], place_stride[5];
  amp__compute_view in_view, out_view;
  int64_t *place;
  /* the window of output o along dimension a: count[a][o] elements, the first at start[a][o], dilation[a] apart */
  int64_t *start[3], *count[3];
  double *len[3]; /* what a mean divides by */
  amp__scratch scratch;
} amp__pool;

void amp__pool_attributes(amp__pool *pool, const args_pool_windows *args);
/* input: the side of the large planes, output: of the small ones; `out` is written. After it amp__pool_close. */
int amp__pool_open(amp__pool *pool, const amp_tensor *input, const amp_tensor *output, const amp_tensor *out,
                   const amp_tensor *place, bool windows);
int amp__pool_close(amp__pool *pool, const amp_tensor *input, const amp_tensor *out, int status);

/* Outputs [begin, end) of a row whose tap at offset t lies inside [0, w) */
static inline void amp__pool_inside(int64_t out_width, int64_t w, int64_t s, int64_t t, int64_t *begin, int64_t *end)
{
  *begin = t < 0 ? (-t + s - 1) / s : 0;
  *end = t >= w ? 0 : (w - t + s - 1) / s;
  if (*end > out_width) *end = out_width;
  if (*begin > *end) *begin = *end;
}

/* About how many elements a window has */
static inline int64_t amp__pool_taps(const amp__pool *pool)
{
  int64_t count = 1;
  for (int i = 0; i < 3; i++)
    count *= pool->shares                         ? (pool->in_size[i] + pool->out[i] - 1) / pool->out[i]
             : pool->kernel[i] < pool->in_size[i] ? pool->kernel[i]
                                                  : pool->in_size[i];
  return count;
}

/* Plane i of a view, as pointer to `number` */
#define AMP_PLANE(pool, view, stride, i, number) \
  ((number *)(pool)->view.p + (i) / (pool)->channels * (pool)->stride[0] + (i) % (pool)->channels * (pool)->stride[1])

#endif
