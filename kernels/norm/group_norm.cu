/*
** group_norm.cu: rows group_norm and group_norm_backward.
**
** Data is N x C x the rest in C order (another layout is copied), so that a group of
** channels of a sample is one run, which a block takes: the mean, the deviations
** and the result, the second and third trip out of the cache. Backward leaves the
** sums of g and of g (x - mean) by sample and channel, from which a second launch
** adds up the gradients of weight and bias, in order.
**
** Forward moves 8 bytes an element in float32, backward 12, half of that in 16 bits, as far as a group stays in the
** cache. Memory's speed bounds it.
*/
#include "common/rows.cuh"

namespace {

/* single: 8 elements beside each other are of one channel; group_channels: channels of a group */
typedef struct job {
  const char *x, *g, *w, *b;
  char *y, *mean, *rstd; /* [samples][groups], of the computing type */
  int32_t x_dtype, g_dtype, y_dtype, w_dtype, b_dtype, wide, single;
  int64_t samples, channels, spatial, groups, group_channels, w_stride, b_stride;
  double eps;
  double *grad_w, *grad_b; /* [samples][channels] */
} job;

template <class T> __device__ __forceinline__ T channel_of(const char *p, int dtype, int64_t i, T absent)
{
  return p ? amp_load<T>(p, dtype, i) : absent;
}

/* Elements from .. to - 1, whose channels begin at c0 */
typedef struct group {
  int64_t from, to, c0;
} group;

/* Group u of all samples' groups of `length` elements */
__device__ __forceinline__ group group_of(const job &task, int64_t length, int64_t u)
{
  const int64_t from = u * length;
  return group{ from, from + length, u % task.groups * task.group_channels };
}

/* -- Forward: a block takes a group ----------------------------------------------------------- */

/* A group's statistics; low: what the mean was rounded by */
template <class T> struct moments {
  T mean, low, rstd;
};

/* The mean is counted from the group's first element, and what it is rounded by is kept: no common offset is lost */
template <class T> __device__ __forceinline__ void find_mean(const job &task, const group &o, moments<T> &m)
{
  const T base = amp_load<T>(task.x, task.x_dtype, o.from);
  T step = 0;
  amp_row_each(
      o.from, o.to, task.wide, threadIdx.x, blockDim.x,
      [&](int64_t i) {
        T v[8];
        amp_load_n<8>(v, task.x, task.x_dtype, i);
#pragma unroll
        for (int j = 0; j < 8; j++) step += v[j] - base;
      },
      [&](int64_t i) { step += amp_load<T>(task.x, task.x_dtype, i) - base; });
  step = amp_reduce_block<amp_sum>(step, (T)0) / (T)(task.group_channels * task.spatial);
  m.mean = base + step;
  m.low = (base - m.mean) + step;
}

/* Sum of squared deviations: in double where float32's range does not hold it */
template <class T> __device__ __forceinline__ double squares_of(const job &task, const group &o, const moments<T> &m)
{
  T dev = 0;
  amp_row_each(
      o.from, o.to, task.wide, threadIdx.x, blockDim.x,
      [&](int64_t i) {
        T v[8];
        amp_load_n<8>(v, task.x, task.x_dtype, i);
#pragma unroll
        for (int j = 0; j < 8; j++) {
          T d = (v[j] - m.mean) - m.low;
          dev += d * d;
        }
      },
      [&](int64_t i) {
        T d = (amp_load<T>(task.x, task.x_dtype, i) - m.mean) - m.low;
        dev += d * d;
      });
  const double total = (double)amp_reduce_block<amp_sum>(dev, (T)0);
  if (!isinf(total)) return total;
  double wide = 0;
  for (int64_t i = o.from + threadIdx.x; i < o.to; i += blockDim.x) {
    double d = amp_load<double>(task.x, task.x_dtype, i) - (double)m.mean;
    wide += d * d;
  }
  return amp_reduce_block<amp_sum>(wide, 0.0);
}

/* y = (x - mean) rstd w + b */
template <class T> __device__ __forceinline__ void write_group(const job &task, const group &o, const moments<T> &m)
{
  amp_row_each(
      o.from, o.to, task.wide && task.single, threadIdx.x, blockDim.x,
      [&](int64_t i) {
        int64_t c = o.c0 + (i - o.from) / task.spatial;
        T v[8], w = channel_of(task.w, task.w_dtype, c * task.w_stride, (T)1) * m.rstd,
                b = channel_of(task.b, task.b_dtype, c * task.b_stride, (T)0);
        amp_load_n<8>(v, task.x, task.x_dtype, i);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = ((v[j] - m.mean) - m.low) * w + b;
        amp_store_n<8>(task.y, task.y_dtype, i, v);
      },
      [&](int64_t i) {
        int64_t c = o.c0 + (i - o.from) / task.spatial;
        T w = channel_of(task.w, task.w_dtype, c * task.w_stride, (T)1) * m.rstd,
          b = channel_of(task.b, task.b_dtype, c * task.b_stride, (T)0);
        amp_store<T>(task.y, task.y_dtype, i, ((amp_load<T>(task.x, task.x_dtype, i) - m.mean) - m.low) * w + b);
      });
}

template <class T> __global__ void __launch_bounds__(1024, 1) forward_groups(const job task)
{
  const int64_t length = task.group_channels * task.spatial;
  for (int64_t u = blockIdx.x; u < task.samples * task.groups; u += gridDim.x) {
    const group o = group_of(task, length, u);
    moments<T> m;
    find_mean(task, o, m);
    m.rstd = (T)(1 / sqrt(squares_of(task, o, m) / (double)length + task.eps));
    if (threadIdx.x == 0) {
      ((T *)task.mean)[u] = m.mean;
      ((T *)task.rstd)[u] = m.rstd;
    }
    write_group(task, o, m);
  }
}

/* -- Backward: a block takes a group, for the sums its warps take channels ----------------------- */

/* Sums over a channel or a group: of g, of g (x - mean), of x - mean */
template <class T> struct sums {
  T g, gx, x;
};

/* A warp's sums over elements from .. to - 1 of a channel */
template <class T>
__device__ __forceinline__ void channel_sums(const job &task, int64_t from, int64_t to, T mean, int lane, sums<T> &s)
{
  s.g = s.gx = s.x = 0;
  amp_row_each(
      from, to, task.wide, lane, 32,
      [&](int64_t i) {
        T x[8], g[8];
        amp_load_n<8>(x, task.x, task.x_dtype, i);
        amp_load_n<8>(g, task.g, task.g_dtype, i);
#pragma unroll
        for (int j = 0; j < 8; j++) {
          s.g += g[j];
          s.gx += g[j] * (x[j] - mean);
          s.x += x[j] - mean;
        }
      },
      [&](int64_t i) {
        T g = amp_load<T>(task.g, task.g_dtype, i), x = amp_load<T>(task.x, task.x_dtype, i) - mean;
        s.g += g;
        s.gx += g * x;
        s.x += x;
      });
  s.g = amp_reduce_warp<amp_sum>(s.g);
  s.gx = amp_reduce_warp<amp_sum>(s.gx);
  s.x = amp_reduce_warp<amp_sum>(s.x);
}

/* The input's gradient: w rstd g + slope (x - mean) rstd + shift */
template <class T>
__device__ __forceinline__ void write_gradient(const job &task, const group &o, T mean, T rstd, T slope, T shift)
{
  amp_row_each(
      o.from, o.to, task.wide && task.single, threadIdx.x, blockDim.x,
      [&](int64_t i) {
        T x[8], g[8],
            a = channel_of(task.w, task.w_dtype, (o.c0 + (i - o.from) / task.spatial) * task.w_stride, (T)1) * rstd;
        amp_load_n<8>(x, task.x, task.x_dtype, i);
        amp_load_n<8>(g, task.g, task.g_dtype, i);
#pragma unroll
        for (int j = 0; j < 8; j++) x[j] = a * g[j] + (slope * ((x[j] - mean) * rstd) + shift);
        amp_store_n<8>(task.y, task.y_dtype, i, x);
      },
      [&](int64_t i) {
        T a = channel_of(task.w, task.w_dtype, (o.c0 + (i - o.from) / task.spatial) * task.w_stride, (T)1) * rstd;
        amp_store<T>(task.y, task.y_dtype, i,
                     a * amp_load<T>(task.g, task.g_dtype, i)
                         + (slope * ((amp_load<T>(task.x, task.x_dtype, i) - mean) * rstd) + shift));
      });
}

template <class T> __global__ void __launch_bounds__(1024, 1) backward_groups(const job task)
{
  const int64_t length = task.group_channels * task.spatial;
  const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
  for (int64_t u = blockIdx.x; u < task.samples * task.groups; u += gridDim.x) {
    const group o = group_of(task, length, u);
    const int64_t at = u / task.groups * task.channels + o.c0; /* the group's first cell of gw and gb */
    const T mean = ((const T *)task.mean)[u], rstd = ((const T *)task.rstd)[u];
    sums<double> all = { 0, 0, 0 };
    for (int64_t d = threadIdx.x >> 5; d < task.group_channels; d += warps) {
      sums<T> s;
      channel_sums(task, o.from + d * task.spatial, o.from + (d + 1) * task.spatial, mean, lane, s);
      if (lane == 0) {
        double w = channel_of(task.w, task.w_dtype, (o.c0 + d) * task.w_stride, 1.0);
        task.grad_b[at + d] = (double)s.g;
        task.grad_w[at + d] = (double)s.gx * (double)rstd;
        all.g += w * (double)s.g;
        all.gx += w * (double)s.gx;
        all.x += (double)s.x;
      }
    }
    all.g = amp_reduce_block<amp_sum>(all.g, 0.0);
    all.gx = amp_reduce_block<amp_sum>(all.gx, 0.0);
    const double r = (double)rstd, m = (double)length;
    const double rest = amp_reduce_block<amp_sum>(all.x, 0.0) / m; /* what the mean was rounded by */
    all.gx -= rest * all.g;
    for (int64_t d = threadIdx.x >> 5; d < task.group_channels; d += warps)
      if (lane == 0) task.grad_w[at + d] -= rest * r * task.grad_b[at + d];
    const T slope = (T)(-r * (all.gx * r) / m), shift = (T)(-r * all.g / m + r * (all.gx * r) / m * rest * r);
    write_gradient(task, o, mean, rstd, slope, shift);
  }
}

/* -- Gradients of weight and bias ----------------------------------------------------------------- */

/* block 32 x 8 */
__global__ void __launch_bounds__(256)
    add_samples(const double *sums, int64_t n, int64_t c, char *out, int dtype, int64_t stride)
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

static void sizes(job *task, const amp_tensor *x, int64_t groups)
{
  memset((void *)task, 0, sizeof *task);
  task->samples = x->size[0];
  task->channels = x->size[1];
  task->spatial = 1;
  for (int d = 2; d < x->ndim; d++) task->spatial *= x->size[d];
  task->groups = groups;
  task->group_channels = task->channels / groups;
  task->single = task->spatial % 8 == 0;
}
static void vector(const amp_tensor *t, const char **p, int32_t *dtype, int64_t *stride)
{
  if (t == NULL) return;
  *p = (const char *)amp__data(t);
  *dtype = t->dtype;
  *stride = t->stride[0];
}
static unsigned threads_for(const job *task)
{
  return task->group_channels * task->spatial < 4096 ? 128 : task->group_channels * task->spatial < 32768 ? 256 : 1024;
}

} // namespace

extern "C" {

int amp__cuda_group_norm(amp_call *c) /* input weight? bias?; num_groups eps */
{
  const args_group_norm *args = AMP_ARGS(c, group_norm);
  amp_tensor *x = c->in[0], *y = c->out[0], *dx = NULL, *out = NULL, *m = NULL, *r = NULL;
  int rc, type = x->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  job task;
  if (x->numel == 0) {
    if ((rc = amp__cuda_fill_value(c->out[1], 0)) < 0) return rc;
    return amp__cuda_fill_value(c->out[2], 0);
  }
  sizes(&task, x, args->num_groups);
  task.eps = args->eps;
  rc = AMP_E_MEMORY;
  if (!(dx = amp__cuda_dense(x, x->dtype)) || !(out = amp_take(y, y->dtype)) || !(m = amp_take(c->out[1], type))
      || !(r = amp_take(c->out[2], type)))
    goto out;
  task.x = (const char *)amp__data(dx);
  task.x_dtype = dx->dtype;
  task.y = (char *)amp__data(out);
  task.y_dtype = out->dtype;
  task.mean = (char *)amp__data(m);
  task.rstd = (char *)amp__data(r);
  task.wide = amp_wide(task.x) && amp_wide(task.y);
  vector(c->nin > 1 ? c->in[1] : NULL, &task.w, &task.w_dtype, &task.w_stride);
  vector(c->nin > 2 ? c->in[2] : NULL, &task.b, &task.b_dtype, &task.b_stride);
  rc = amp_by_float(type, [&](auto zero) {
    typedef decltype(zero) T;
    AMP_LAUNCH((forward_groups<T>), amp_grid(task.samples * task.groups, 1), threads_for(&task), 0, task);
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
  amp_tensor *g = c->in[0], *x = c->in[1], *y = c->out[0], *dx = NULL, *dg = NULL, *out = NULL, *m = NULL, *r = NULL,
             *s = NULL;
  int rc, type = x->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  job task;
  if (x->numel == 0) {
    for (int i = 1; i < 3; i++)
      if (c->out[i] && (rc = amp__cuda_fill_value(c->out[i], 0)) < 0) return rc;
    return 0;
  }
  sizes(&task, x, AMP_ARGS(c, group_norm_backward)->num_groups);
  rc = AMP_E_MEMORY;
  if (!(dx = amp__cuda_dense(x, x->dtype)) || !(dg = amp__cuda_dense(g, g->dtype)) || !(out = amp_take(y, y->dtype))
      || !(m = amp__cuda_dense(c->in[2], type)) || !(r = amp__cuda_dense(c->in[3], type))
      || !(s = amp__cuda_scratch(2 * (size_t)task.samples * (size_t)task.channels * sizeof(double))))
    goto out;
  task.x = (const char *)amp__data(dx);
  task.x_dtype = dx->dtype;
  task.g = (const char *)amp__data(dg);
  task.g_dtype = dg->dtype;
  task.y = (char *)amp__data(out);
  task.y_dtype = out->dtype;
  task.mean = (char *)amp__data(m);
  task.rstd = (char *)amp__data(r);
  task.grad_w = (double *)amp__data(s);
  task.grad_b = task.grad_w + task.samples * task.channels;
  task.wide = amp_wide(task.x) && amp_wide(task.y) && amp_wide(task.g);
  vector(c->nin > 4 ? c->in[4] : NULL, &task.w, &task.w_dtype, &task.w_stride);
  rc = amp_by_float(type, [&](auto zero) {
    typedef decltype(zero) T;
    AMP_LAUNCH((backward_groups<T>), amp_grid(task.samples * task.groups, 1), threads_for(&task), 0, task);
    return 0;
  });
  for (int i = 1; i < 3; i++) {
    amp_tensor *t = c->out[i];
    if (t)
      AMP_LAUNCH(add_samples, (unsigned)((task.channels + 31) / 32), dim3(32, 8), 0, i == 1 ? task.grad_w : task.grad_b,
                 task.samples, task.channels, (char *)amp__data(t), (int)t->dtype, t->stride[0]);
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
