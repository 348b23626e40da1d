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
#include "kernel.cuh"

struct conv_side { /* a tensor N x C x D x H x W; an absent dimension has one element */
  char *p;
  int32_t dtype;
  int32_t size[3];
  int64_t stride[5];
};

struct conv_args {
  conv_side x, y, w;           /* source, result, weight (w.stride: 0 result's channel, 1 source's, 2.. taps) */
  const char *bias;
  int64_t bias_stride;
  int64_t n;
  int32_t groups, rows, chans; /* channels of a group: of the result, of the source */
  int32_t back;                /* y is the gradient in the input */
  int32_t s[3], p[3], d[3], gcd[3], phases[3];
};

/* One dimension: place i of `n` reads source off + i * ss + t * ds through tap first + t * step of the weight, t < taps; it is
** place at + i * by of the result. */
struct conv_line { int n, taps, first, step, off, ss, ds, at, by; };

__device__ __forceinline__ conv_line conv_line_of(const conv_args &a, int i, int phase)
{
  conv_line l = { a.y.size[i], a.w.size[i], 0, 1, -a.p[i], a.s[i], a.d[i], 0, 1 };
  if (!a.back) return l;
  int64_t s = a.s[i], d = a.d[i], from = (int64_t)phase + a.p[i];
  int step = (int)(s / a.gcd[i]), t = 0;
  while (t < step && t < a.w.size[i] && (from - t * d) % s != 0) t++;
  l.n = phase < a.y.size[i] ? (int)((a.y.size[i] - phase + s - 1) / s) : 0;
  l.taps = t < step && t < a.w.size[i] ? (a.w.size[i] - t - 1) / step + 1 : 0;
  l.first = t;
  l.step = step;
  l.off = (int)((from - t * d) / s);
  l.ss = 1;
  l.ds = -(int)(d / a.gcd[i]);
  l.at = phase;
  l.by = (int)s;
  return l;
}

/* Elements: all operands have one float dtype */
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

/* -- On the host -------------------------------------------------------------------- */

static inline conv_side conv_side_of(const amp_tensor *t)
{
  conv_side v;
  int spatial = t->ndim - 2;
  memset((void *)&v, 0, sizeof v);
  v.p = (char *)amp__data(t);
  v.dtype = t->dtype;
  v.stride[0] = t->stride[0];
  v.stride[1] = t->stride[1];
  for (int i = 0; i < 3; i++) {
    int d = i - (3 - spatial);
    v.size[i] = d < 0 ? 1 : (int32_t)t->size[2 + d];
    v.stride[2 + i] = d < 0 ? 0 : t->stride[2 + d];
  }
  return v;
}

/* Do channels lie beside each other? */
static inline bool conv_inside(const amp_tensor *t) { return t->size[1] > 1 && t->stride[1] == 1; }

/* s, p, d, groups of the rows' attributes */
static inline void conv_attributes(conv_args *v, const amp_slot *a, int spatial)
{
  for (int i = 0; i < 3; i++) {
    bool there = i >= 3 - spatial;
    v->s[i] = there ? (int32_t)a[i].i : 1;
    v->p[i] = there ? (int32_t)a[3 + i].i : 0;
    v->d[i] = there ? (int32_t)a[6 + i].i : 1;
    int p = v->s[i], q = v->d[i];
    while (q) { int r = p % q; p = q; q = r; }
    v->gcd[i] = p;
    v->phases[i] = 1;
  }
  v->groups = (int32_t)a[9].i;
}

/* By own kernels, whatever else there is: conv.cu, conv_weight.cu */
extern "C" int amp__cuda_conv_plain(amp_call *c);
extern "C" int amp__cuda_conv_plain_input(amp_call *c);
extern "C" int amp__cuda_conv_plain_weight(amp_call *c);

#endif
