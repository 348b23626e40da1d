/*
** groupnorm.cu: rows group_norm and group_norm_backward.
**
** Data is N x C x the rest in C order (another layout is copied), so that a group of
** channels of a sample is one run, which a block takes: the mean, the deviations
** and the result, the second and third trip out of the cache. Backward leaves the
** sums of g and of g (x - mean) by sample and channel, from which a second launch
** adds up the gradients of weight and bias, in order.
*/
#include "rows.cuh"

namespace {

typedef struct job {
  const char *x, *g, *w, *b;
  char *y, *mean, *rstd;              /* [n][groups], of the computing type */
  int32_t xdt, gdt, ydt, wdt, bdt, wide, single; /* single: 8 elements beside each other are of one channel */
  int64_t n, c, s, groups, d, sw, sb; /* d: channels of a group */
  double eps;
  double *gw, *gb;                    /* [n][c] */
} job;

template <class T> __device__ __forceinline__ T channel_of(const char *p, int dtype, int64_t i, T absent) { return p ? amp_load<T>(p, dtype, i) : absent; }

template <class T> __global__ void __launch_bounds__(1024, 1) forward_groups(const job k)
{
  const int64_t length = k.d * k.s;
  for (int64_t u = blockIdx.x; u < k.n * k.groups; u += gridDim.x) {
    const int64_t from = u * length, to = from + length, c0 = u % k.groups * k.d;
    /* the mean is counted from the first element, and what it is rounded by is kept: no common offset is lost */
    const T base = amp_load<T>(k.x, k.xdt, from);
    T step = 0, dev = 0;
    amp_row_each(from, to, k.wide, threadIdx.x, blockDim.x,
      [&](int64_t i) {
        T v[8];
        amp_load_n<8>(v, k.x, k.xdt, i);
#pragma unroll
        for (int j = 0; j < 8; j++) step += v[j] - base;
      },
      [&](int64_t i) { step += amp_load<T>(k.x, k.xdt, i) - base; });
    step = amp_reduce_block<amp_sum>(step, (T)0) / (T)length;
    const T mean = base + step, low = (base - mean) + step;
    amp_row_each(from, to, k.wide, threadIdx.x, blockDim.x,
      [&](int64_t i) {
        T v[8];
        amp_load_n<8>(v, k.x, k.xdt, i);
#pragma unroll
        for (int j = 0; j < 8; j++) { T d = (v[j] - mean) - low; dev += d * d; }
      },
      [&](int64_t i) { T d = (amp_load<T>(k.x, k.xdt, i) - mean) - low; dev += d * d; });
    double total = (double)amp_reduce_block<amp_sum>(dev, (T)0);
    if (isinf(total)) { /* squares past float32's range */
      double wide = 0;
      for (int64_t i = from + threadIdx.x; i < to; i += blockDim.x) { double d = amp_load<double>(k.x, k.xdt, i) - (double)mean; wide += d * d; }
      total = amp_reduce_block<amp_sum>(wide, 0.0);
    }
    const T rstd = (T)(1 / sqrt(total / (double)length + k.eps));
    if (threadIdx.x == 0) { ((T *)k.mean)[u] = mean; ((T *)k.rstd)[u] = rstd; }
    amp_row_each(from, to, k.wide && k.single, threadIdx.x, blockDim.x,
      [&](int64_t i) {
        int64_t c = c0 + (i - from) / k.s;
        T v[8], w = channel_of(k.w, k.wdt, c * k.sw, (T)1) * rstd, b = channel_of(k.b, k.bdt, c * k.sb, (T)0);
        amp_load_n<8>(v, k.x, k.xdt, i);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = ((v[j] - mean) - low) * w + b;
        amp_store_n<8>(k.y, k.ydt, i, v);
      },
      [&](int64_t i) {
        int64_t c = c0 + (i - from) / k.s;
        T w = channel_of(k.w, k.wdt, c * k.sw, (T)1) * rstd, b = channel_of(k.b, k.bdt, c * k.sb, (T)0);
        amp_store<T>(k.y, k.ydt, i, ((amp_load<T>(k.x, k.xdt, i) - mean) - low) * w + b);
      });
  }
}

template <class T> __global__ void __launch_bounds__(1024, 1) backward_groups(const job k)
{
  const int64_t length = k.d * k.s;
  const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
  for (int64_t u = blockIdx.x; u < k.n * k.groups; u += gridDim.x) {
    const int64_t from = u * length, to = from + length, c0 = u % k.groups * k.d, at = u / k.groups * k.c + c0;
    const T mean = ((const T *)k.mean)[u], rstd = ((const T *)k.rstd)[u];
    double s0 = 0, s1 = 0, rest = 0; /* rest: what the mean was rounded by */
    for (int64_t d = threadIdx.x >> 5; d < k.d; d += warps) {
      T sg = 0, sx = 0, sr = 0;
      amp_row_each(from + d * k.s, from + (d + 1) * k.s, k.wide, lane, 32,
        [&](int64_t i) {
          T x[8], g[8];
          amp_load_n<8>(x, k.x, k.xdt, i);
          amp_load_n<8>(g, k.g, k.gdt, i);
#pragma unroll
          for (int j = 0; j < 8; j++) { sg += g[j]; sx += g[j] * (x[j] - mean); sr += x[j] - mean; }
        },
        [&](int64_t i) { T g = amp_load<T>(k.g, k.gdt, i), x = amp_load<T>(k.x, k.xdt, i) - mean; sg += g; sx += g * x; sr += x; });
      sg = amp_reduce_warp<amp_sum>(sg);
      sx = amp_reduce_warp<amp_sum>(sx);
      sr = amp_reduce_warp<amp_sum>(sr);
      if (lane == 0) {
        double w = channel_of(k.w, k.wdt, (c0 + d) * k.sw, 1.0);
        k.gb[at + d] = (double)sg;
        k.gw[at + d] = (double)sx * (double)rstd;
        s0 += w * (double)sg;
        s1 += w * (double)sx;
        rest += (double)sr;
      }
    }
    s0 = amp_reduce_block<amp_sum>(s0, 0.0);
    s1 = amp_reduce_block<amp_sum>(s1, 0.0);
    const double r = (double)rstd, m = (double)length;
    rest = amp_reduce_block<amp_sum>(rest, 0.0) / m;
    s1 -= rest * s0;
    for (int64_t d = threadIdx.x >> 5; d < k.d; d += warps)
      if (lane == 0) k.gw[at + d] -= rest * r * k.gb[at + d];
    const T b = (T)(-r * (s1 * r) / m), e = (T)(-r * s0 / m + r * (s1 * r) / m * rest * r);
    amp_row_each(from, to, k.wide && k.single, threadIdx.x, blockDim.x,
      [&](int64_t i) {
        T x[8], g[8], a = channel_of(k.w, k.wdt, (c0 + (i - from) / k.s) * k.sw, (T)1) * rstd;
        amp_load_n<8>(x, k.x, k.xdt, i);
        amp_load_n<8>(g, k.g, k.gdt, i);
#pragma unroll
        for (int j = 0; j < 8; j++) x[j] = a * g[j] + (b * ((x[j] - mean) * rstd) + e);
        amp_store_n<8>(k.y, k.ydt, i, x);
      },
      [&](int64_t i) {
        T a = channel_of(k.w, k.wdt, (c0 + (i - from) / k.s) * k.sw, (T)1) * rstd;
        amp_store<T>(k.y, k.ydt, i, a * amp_load<T>(k.g, k.gdt, i) + (b * ((amp_load<T>(k.x, k.xdt, i) - mean) * rstd) + e));
      });
  }
}

/* block 32 x 8 */
__global__ void __launch_bounds__(256) add_samples(const double *sums, int64_t n, int64_t c, char *out, int dtype, int64_t stride)
{
  __shared__ double part[8][33];
  int64_t i = (int64_t)blockIdx.x * 32 + threadIdx.x;
  double s = 0;
  for (int64_t r = threadIdx.y; i < c && r < n; r += 8) s += sums[r * c + i];
  part[threadIdx.y][threadIdx.x] = s;
  __syncthreads();
  if (threadIdx.y != 0 || i >= c) return;
  for (int y = 1; y < 8; y++) s += part[y][threadIdx.x];
  amp_store<double>(out, dtype, i * stride, s);
}

static void sizes(job *k, const amp_tensor *x, int64_t groups)
{
  memset((void *)k, 0, sizeof *k);
  k->n = x->size[0];
  k->c = x->size[1];
  k->s = 1;
  for (int d = 2; d < x->ndim; d++) k->s *= x->size[d];
  k->groups = groups;
  k->d = k->c / groups;
  k->single = k->s % 8 == 0;
}
static void vector(const amp_tensor *t, const char **p, int32_t *dtype, int64_t *stride)
{
  if (t == NULL) return;
  *p = (const char *)amp__data(t);
  *dtype = t->dtype;
  *stride = t->stride[0];
}
static unsigned threads_for(const job *k) { return k->d * k->s < 4096 ? 128 : k->d * k->s < 32768 ? 256 : 1024; }

} // namespace

extern "C" {

int amp__cuda_group_norm(amp_call *c) /* input weight? bias?; num_groups eps */
{
  amp_tensor *x = c->in[0], *y = c->out[0], *dx = NULL, *out = NULL, *m = NULL, *r = NULL;
  int rc, type = x->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  job k;
  if (x->numel == 0) {
    if ((rc = amp__cuda_fill_value(c->out[1], 0)) < 0) return rc;
    return amp__cuda_fill_value(c->out[2], 0);
  }
  sizes(&k, x, c->a[0].i);
  k.eps = c->a[1].f;
  rc = AMP_E_MEMORY;
  if (!(dx = amp__cuda_dense(x, x->dtype)) || !(out = amp_take(y, y->dtype)) || !(m = amp_take(c->out[1], type)) || !(r = amp_take(c->out[2], type))) goto out;
  k.x = (const char *)amp__data(dx); k.xdt = dx->dtype;
  k.y = (char *)amp__data(out); k.ydt = out->dtype;
  k.mean = (char *)amp__data(m);
  k.rstd = (char *)amp__data(r);
  k.wide = amp_wide(k.x) && amp_wide(k.y);
  vector(c->nin > 1 ? c->in[1] : NULL, &k.w, &k.wdt, &k.sw);
  vector(c->nin > 2 ? c->in[2] : NULL, &k.b, &k.bdt, &k.sb);
  rc = amp_by_float(type, [&](auto zero) {
    typedef decltype(zero) T;
    AMP_LAUNCH((forward_groups<T>), amp_grid(k.n * k.groups, 1), threads_for(&k), 0, k);
    return 0;
  });
out:
  amp__free(dx);
  rc = amp_give(y, out, rc);
  rc = amp_give(c->out[1], m, rc);
  return amp_give(c->out[2], r, rc);
}

int amp__cuda_group_norm_backward(amp_call *c) /* grad input mean rstd weight?; num_groups */
{
  amp_tensor *g = c->in[0], *x = c->in[1], *y = c->out[0], *dx = NULL, *dg = NULL, *out = NULL, *m = NULL, *r = NULL, *s = NULL;
  int rc, type = x->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  job k;
  if (x->numel == 0) {
    for (int i = 1; i < 3; i++)
      if (c->out[i] && (rc = amp__cuda_fill_value(c->out[i], 0)) < 0) return rc;
    return 0;
  }
  sizes(&k, x, c->a[0].i);
  rc = AMP_E_MEMORY;
  if (!(dx = amp__cuda_dense(x, x->dtype)) || !(dg = amp__cuda_dense(g, g->dtype)) || !(out = amp_take(y, y->dtype)) || !(m = amp__cuda_dense(c->in[2], type))
      || !(r = amp__cuda_dense(c->in[3], type)) || !(s = amp__cuda_scratch(2 * (size_t)k.n * (size_t)k.c * sizeof(double)))) goto out;
  k.x = (const char *)amp__data(dx); k.xdt = dx->dtype;
  k.g = (const char *)amp__data(dg); k.gdt = dg->dtype;
  k.y = (char *)amp__data(out); k.ydt = out->dtype;
  k.mean = (char *)amp__data(m);
  k.rstd = (char *)amp__data(r);
  k.gw = (double *)amp__data(s);
  k.gb = k.gw + k.n * k.c;
  k.wide = amp_wide(k.x) && amp_wide(k.y) && amp_wide(k.g);
  vector(c->nin > 4 ? c->in[4] : NULL, &k.w, &k.wdt, &k.sw);
  rc = amp_by_float(type, [&](auto zero) {
    typedef decltype(zero) T;
    AMP_LAUNCH((backward_groups<T>), amp_grid(k.n * k.groups, 1), threads_for(&k), 0, k);
    return 0;
  });
  for (int i = 1; i < 3; i++) {
    amp_tensor *t = c->out[i];
    if (t) AMP_LAUNCH(add_samples, (unsigned)((k.c + 31) / 32), dim3(32, 8), 0, i == 1 ? k.gw : k.gb, k.n, k.c, (char *)amp__data(t), (int)t->dtype, t->stride[0]);
  }
out:
  amp__free(dx);
  amp__free(dg);
  amp__free(m);
  amp__free(r);
  amp__free(s);
  return amp_give(y, out, rc);
}

}
