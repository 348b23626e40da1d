/*
** ops/conv/conv.h: the picture of a convolution that ops/conv/conv.c sets up and the
** packers of ops/conv/conv_pack.h read. It has three spatial dimensions; fewer are
** the last ones, the others have one element.
**
** out[n, r, z, y, x] = sum over c, t of
**   weight[r][c, t] * in[n, c, z * step_depth + d[t], y * step_height + h[t], x * step_width + w[t]]
**
** where t runs over taps (kernel positions d, h, w) and whatever falls outside `in` is
** zero. A forward pass takes all taps; the gradient in the input is the same
** picture once for each phase of the stride, with that phase's taps; the
** gradient in the weight uses its column matrix transposed.
*/
#ifndef AMP_CPU_CONV_H
#define AMP_CPU_CONV_H
#include "cpu/gemm.h"
#include "cpu/kernel_help.h"

typedef struct conv_tap {
  int32_t d, h, w;
} conv_tap;

typedef struct conv_image {
  const void *data; /* first element of the group's first channel of image 0 */
  int64_t image_stride, channel_stride, depth_stride, row_stride, pixel_stride;
  int64_t channels, depth, height, width; /* channels of a group */
  int64_t out_depth, out_height, out_width, step_depth, step_height, step_width;
  int64_t taps;
  const conv_tap *tap;
  bool channels_inside; /* k runs over (tap, channel), else over (channel, tap) */
} conv_image;

void conv_pack_cols_f32(const void *ctx, int64_t k_first, int64_t k_count, int64_t line_first, int64_t lines, int width,
                        void *dst);
void conv_pack_cols_f64(const void *ctx, int64_t k_first, int64_t k_count, int64_t line_first, int64_t lines, int width,
                        void *dst);
void conv_pack_rows_f32(const void *ctx, int64_t k_first, int64_t k_count, int64_t line_first, int64_t lines, int width,
                        void *dst);
void conv_pack_rows_f64(const void *ctx, int64_t k_first, int64_t k_count, int64_t line_first, int64_t lines, int width,
                        void *dst);

/* a [channel][image, pixel] operand whose images lie apart */
typedef struct conv_planes {
  const void *data;
  int64_t image_stride, channel_stride, pixel_stride, pixels;
} conv_planes;
void conv_pack_planes_f32(const void *ctx, int64_t k_first, int64_t k_count, int64_t line_first, int64_t lines,
                          int width, void *dst);
void conv_pack_planes_f64(const void *ctx, int64_t k_first, int64_t k_count, int64_t line_first, int64_t lines,
                          int width, void *dst);

/* One convolution of an image by a matrix weight[rows][k] into out */
typedef struct conv_pass {
  conv_image image;
  const char *weight;
  int64_t rows, inner;
  char *out;
  int64_t out_image, out_row, out_pixel; /* strides */
  const char *bias;
} conv_pass;
int conv_run_pass(const conv_pass *pass, int64_t images, int type); /* 0 or an error */
/* The stride that walks all pixels of a plane of three sizes; 0 where several do */
int64_t conv_pixel_stride(const int64_t *size, const int64_t *stride);
/* Threads for so many operations of a product, of which a core does some 32 in the time of a simple one */
int conv_threads(double flop);
/* dst[r][c, t] (or [r][t, c] with inside) = src[r * row_stride + c * channel_stride + off[t]] */
void conv_weight_matrix(char *dst, const char *src, int size, int64_t rows, int64_t row_stride, int64_t channels,
                        int64_t channel_stride, int64_t taps, const int64_t *off, bool inside);

typedef struct conv_problem {
  int type, bytes, spatial; /* computing dtype, bytes of an element; 1 to 3 */
  int64_t images, channels, filters, groups, group_channels, group_filters;
  int64_t in_size[3], out_size[3], kernel[3];
  int64_t stride[3], padding[3], dilation[3];
  amp__compute_view input, weight, output, bias;
  int64_t in_stride[5], weight_stride[5], out_stride[5]; /* as of five dimensions */
} conv_problem;

/* Strides of a view of a tensor, as of five dimensions */
void conv_widen(int64_t *five, const int64_t *stride, const amp_tensor *tensor);

/* few channels a group: no product of matrices in it (ops/conv/conv_depth.c). `made` is the result. */
enum conv_made { CONV_MADE_OUTPUT, CONV_MADE_INPUT, CONV_MADE_WEIGHT };
bool conv_depthwise_fits(const conv_problem *conv);
int conv_depthwise(conv_problem *conv, const amp_tensor *input, const amp_tensor *weight, const amp_tensor *bias,
                   const amp_tensor *output, enum conv_made made);

/* A convolution of planes (ops/conv/conv_direct.c). For each group,
**
**   result[n, row, i] = bias[row] + the sum over channels c and taps t of
**                       weight[row, c, t] * source[n, c, i * step + tap[t]]
**
** Sizes and strides are spatial triples; rows and channels are a group's. */
typedef struct conv_direct {
  const void *src;
  int src_dtype;
  int64_t src_image, src_channel, src_axis[3], in[3], channels; /* strides, sizes */
  void *dst;
  int dst_dtype;
  int64_t dst_image, dst_channel, dst_axis[3], out[3], rows;
  int64_t images, groups, step[3], taps;
  const conv_tap *tap;
  const float *weight;
  int64_t weight_group, weight_row, weight_channel; /* strides */
  const int64_t *weight_tap;                        /* offset of each tap */
  const float *bias;                                /* groups x rows, or NULL */
} conv_direct;
/* Of the same problem with dst given, the gradient in the weight into `out`, which lies as weight does
** (ops/conv/conv_sums.c) */
int conv_direct_sums(const conv_direct *direct, float *out, int threads);
int conv_direct_run(const conv_direct *direct,
                    int threads); /* both: 0, an error, or 1: better done otherwise, nothing written */

#endif
