/*
** cpu_conv.h: the picture of a 2-d convolution that cpu_conv.c sets up and the
** packers of cpu_conv_pack.h read.
**
** out[n, r, y, x] = sum over c, t of weight[r][c, t] * in[n, c, y * sh + th[t], x * sw + tw[t]]
**
** where t runs over taps (kernel positions) and whatever falls outside `in` is
** zero. A forward pass takes all taps; the gradient in the input is the same
** picture once for each phase of the stride, with that phase's taps; the
** gradient in the weight uses its column matrix transposed.
*/
#ifndef AMP_CPU_CONV_H
#define AMP_CPU_CONV_H
#include "cpu_gemm.h"
#include "cpu_nn.h"

typedef struct conv_tap { int32_t h, w; } conv_tap;

typedef struct conv_image {
  const void *x;               /* first element of the group's first channel of image 0 */
  int64_t xn, xc, xh, xw;      /* strides */
  int64_t c, h, w;             /* channels of a group, height, width */
  int64_t oh, ow, sh, sw;
  int64_t ntap;
  const conv_tap *tap;
  bool channels_inside;        /* k runs over (tap, channel), else over (channel, tap) */
} conv_image;

void conv_pack_cols_f32(const void *ctx, int64_t k0, int64_t kc, int64_t i0, int64_t ni, int width, void *dst);
void conv_pack_cols_f64(const void *ctx, int64_t k0, int64_t kc, int64_t i0, int64_t ni, int width, void *dst);
void conv_pack_rows_f32(const void *ctx, int64_t k0, int64_t kc, int64_t i0, int64_t ni, int width, void *dst);
void conv_pack_rows_f64(const void *ctx, int64_t k0, int64_t kc, int64_t i0, int64_t ni, int width, void *dst);

/* a [channel][image, pixel] operand whose images lie apart */
typedef struct conv_planes { const void *p; int64_t pn, pc, pp, pixels; } conv_planes;
void conv_pack_planes_f32(const void *ctx, int64_t k0, int64_t kc, int64_t i0, int64_t ni, int width, void *dst);
void conv_pack_planes_f64(const void *ctx, int64_t k0, int64_t kc, int64_t i0, int64_t ni, int width, void *dst);

/* one filter a channel: no product of matrices in it (cpu_conv_depth.c) */
int amp__conv_depthwise(amp_call *c, int which);

#endif
