/*
** conv.cuh: a convolution as its kernels see it (conv.cu, conv_weight.cu): sizes
** and strides as of three spatial dimensions, whatever the rank is, and how the
** places of a result walk through the source.
**
** The gradient in the input is a convolution of the gradient: with a stride s the
** result falls apart into as many phases as the strides multiply to, each of which
** is a plain convolution with the taps that reach it (every (s / gcd(s, d))-th
** one). So one description, conv_line, serves both directions.
*/
#ifndef AMP_CONV_CUH
#define AMP_CONV_CUH
#include "common/kernel.cuh"

struct conv_side { /* a tensor N x C x D x H x W; an absent dimension has one element */
  char *p;
  int32_t dtype;
  int32_t size[3];
  int64_t stride[5];
};

struct conv_args {
  conv_side x, y, w; /* source, result, weight (w.stride: 0 result's channel, 1 source's, 2.. taps) */
  const char *bias;
  int64_t bias_stride;
  int64_t n;
  int32_t groups, rows, chans; /* channels of a group: of the result, of the source */
  int32_t back;                /* y is the gradient in the input */
  int32_t s[3], p[3], d[3], gcd[3], phases[3];
};

/* One dimension: place i of `n` reads source off + i * ss + t * ds through tap first + t * step of the weight, t <
** taps; it is place at + i * by of the result. */
struct conv_line {
  int n, taps, first, step, off, ss, ds, at, by;
};

__device__ __forceinline__ conv_line conv_line_of(const conv_args &conv, int i, int phase)
{
  conv_line line = { conv.y.size[i], conv.w.size[i], 0, 1, -conv.p[i], conv.s[i], conv.d[i], 0, 1 };
  if (!conv.back) return line;
  int64_t stride = conv.s[i], dilation = conv.d[i], from = (int64_t)phase + conv.p[i];
  int step = (int)(stride / conv.gcd[i]), t = 0;
  while (t < step && t < conv.w.size[i] && (from - t * dilation) % stride != 0) t++;
  line.n = phase < conv.y.size[i] ? (int)((conv.y.size[i] - phase + stride - 1) / stride) : 0;
  line.taps = t < step && t < conv.w.size[i] ? (conv.w.size[i] - t - 1) / step + 1 : 0;
  line.first = t;
  line.step = step;
  line.off = (int)((from - t * dilation) / stride);
  line.ss = 1;
  line.ds = -(int)(dilation / conv.gcd[i]);
  line.at = phase;
  line.by = (int)stride;
  return line;
}

/* Elements: all operands have one float dtype */
static_assert(AMP_DTYPE_COUNT == 12, "conv_load and conv_store know the four floats");
__device__ __forceinline__ double conv_load(double, const void *p, int, int64_t i) { return ((const double *)p)[i]; }
__device__ __forceinline__ float conv_load(float, const void *p, int dtype, int64_t i)
{
  if (dtype == AMP_FLOAT32) return ((const float *)p)[i];
  uint16_t h = ((const uint16_t *)p)[i];
  return dtype == AMP_FLOAT16 ? amp_h2f(h) : amp_bf2f(h);
}
__device__ __forceinline__ void conv_store(void *p, int, int64_t i, double v) { ((double *)p)[i] = v; }
__device__ __forceinline__ void conv_store(void *p, int dtype, int64_t i, float v)
{
  if (dtype == AMP_FLOAT32) ((float *)p)[i] = v;
  else ((uint16_t *)p)[i] = dtype == AMP_FLOAT16 ? amp_f2h(v) : amp_f2bf(v);
}

/* -- Tiles of products (the kernels pass of conv.cu and sums of conv_weight.cu) ------------------- */

/* A block makes TILE x TILE sums over pieces of DEPTH terms, a thread 4 x 4 of them. A row of a tile is 4 values longer
** than it need be, so that columns lie in different banks */
enum { CONV_TILE = 64, CONV_DEPTH = 16, CONV_THREADS = 256 };
template <class T> using conv_tile = T[CONV_DEPTH][CONV_TILE + 4];

__device__ __forceinline__ bool conv_covers(const conv_args &conv, int z, int y, int x)
{
  return (unsigned)z < (unsigned)conv.x.size[0] && (unsigned)y < (unsigned)conv.x.size[1]
         && (unsigned)x < (unsigned)conv.x.size[2];
}

/* acc += a piece's product; from `row` of left and `column` of right on */
template <class T>
__device__ __forceinline__ void conv_multiply(T (&acc)[4][4], const conv_tile<T> &left, const conv_tile<T> &right,
                                              int row, int column)
{
#pragma unroll
  for (int k = 0; k < CONV_DEPTH; k++) {
    T u[4], v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      u[i] = left[k][row + i];
      v[i] = right[k][column + i];
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
      for (int j = 0; j < 4; j++) acc[i][j] += u[i] * v[j];
    }
  }
}

/* -- On the host -------------------------------------------------------------------- */

static inline conv_side conv_side_of(const amp_tensor *tensor)
{
  conv_side side;
  int spatial = tensor->ndim - 2;
  memset((void *)&side, 0, sizeof side);
  side.p = (char *)amp__data(tensor);
  side.dtype = tensor->dtype;
  side.stride[0] = tensor->stride[0];
  side.stride[1] = tensor->stride[1];
  for (int i = 0; i < 3; i++) {
    int d = i - (3 - spatial);
    side.size[i] = d < 0 ? 1 : (int32_t)tensor->size[2 + d];
    side.stride[2 + i] = d < 0 ? 0 : tensor->stride[2 + d];
  }
  return side;
}

/* Do channels lie beside each other? */
static inline bool conv_inside(const amp_tensor *t) { return t->size[1] > 1 && t->stride[1] == 1; }

/* s, p, d, groups of the attributes of any of the rows */
template <class ARGS> static inline void conv_attributes(conv_args *conv, const ARGS *args, int spatial)
{
  for (int i = 0; i < 3; i++) {
    bool there = i >= 3 - spatial;
    conv->s[i] = there ? (int32_t)args->stride[i] : 1;
    conv->p[i] = there ? (int32_t)args->padding[i] : 0;
    conv->d[i] = there ? (int32_t)args->dilation[i] : 1;
    int p = conv->s[i], q = conv->d[i];
    while (q) {
      int r = p % q;
      p = q;
      q = r;
    }
    conv->gcd[i] = p;
    conv->phases[i] = 1;
  }
  conv->groups = (int32_t)args->groups;
}

/* By own kernels, whatever else there is: conv.cu, conv_weight.cu */
extern "C" int amp__cuda_conv_plain(amp_call *c);
extern "C" int amp__cuda_conv_plain_input(amp_call *c);
extern "C" int amp__cuda_conv_plain_weight(amp_call *c);

#endif
