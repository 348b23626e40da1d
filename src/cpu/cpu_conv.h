/*
** cpu_conv.h: the picture of a convolution that cpu_conv.c sets up and the
** packers of cpu_conv_pack.h read. It has three spatial dimensions; fewer are
** the last ones, the others have one element.
**
** out[n, r, z, y, x] = sum over c, t of
**   weight[r][c, t] * in[n, c, z * sd + td[t], y * sh + th[t], x * sw + tw[t]]
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

typedef struct conv_tap { int32_t d, h, w; } conv_tap;

typedef struct conv_image {
  const void *x;               /* first element of the group's first channel of image 0 */
  int64_t xn, xc, xd, xh, xw;  /* strides */
  int64_t c, d, h, w;          /* channels of a group, depth, height, width */
  int64_t od, oh, ow, sd, sh, sw;
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

typedef struct conv {
  int type, size, spatial;     /* computing dtype, its bytes; 1 to 3 */
  int64_t n, c, oc, groups, cg, og;
  int64_t in[3], out[3], k[3]; /* spatial sizes of input, output, kernel */
  int64_t s[3], p[3], d[3];    /* stride, padding, dilation */
  amp__nn_view x, wt, y, b;    /* input, weight, output, bias */
  int64_t xs[5], ws[5], ys[5]; /* their strides, of five dimensions */
} conv;

/* Strides of a view of t, as of five dimensions */
void conv_widen(int64_t *five, const int64_t *stride, const amp_tensor *t);

/* few channels a group: no product of matrices in it (cpu_conv_depth.c); which: 0 output, 1 input, 2 weight is the result */
bool conv_depthwise_fits(const conv *v);
int conv_depthwise(conv *v, const amp_tensor *x, const amp_tensor *w, const amp_tensor *bias, const amp_tensor *y, int which);

/* A convolution of planes (cpu_conv_direct.c): result[n, row, i] = bias[row] + the sum over channels c and taps t of
** weight[row, c, t] * source[n, c, i * step + tap[t]], for each group. Sizes and strides are spatial triples; rows and
** channels are a group's. */
typedef struct conv_direct {
  const void *src; int sdtype; int64_t sn, sc, ss[3], in[3], channels;
  void *dst; int ddtype; int64_t dn, dc, ds[3], out[3], rows;
  int64_t images, groups, step[3], taps;
  const conv_tap *tap;
  const float *weight; int64_t wg, wr, wc; const int64_t *woff; /* strides: group, row, channel; offset of each tap */
  const float *bias;                   /* groups x rows, or NULL */
} conv_direct;
/* Of the same problem with dst given, the gradient in the weight into `out`, which lies as weight does (cpu_conv_sums.c) */
int conv_direct_sums(const conv_direct *d, float *out, int threads);
int conv_direct_run(const conv_direct *d, int threads); /* both: 0, an error, or 1: better done otherwise, nothing written */

#endif
