/*
** pool.cu: rows max_pool, avg_pool and avg_pool_backward: a thread an element of
** the result, in 1, 2 and 3 dimensions. Long windows of few results are shared out
** over the lanes of a warp. Common max pools of images are pool_pairs.cu's.
**
** avg_pool_backward gathers: an element of the input asks which windows it lies
** in. Nothing is added by atomics, results repeat. Places count from 1; NaN wins;
** a window of -inf reports its first place.
**
** Neighbouring windows overlap, so the caches give most of what a window reads; memory's speed bounds small windows,
** arithmetic large ones.
*/
#include "pool/pool_back.cuh"

namespace {

struct windows {
  int32_t size[3], stride[3], padding[3], dilation[3];
  int32_t shares, whole; /* windows that share out the input (size 0); padding counts in a mean */
  int64_t divisor;       /* AMP_NONE: the window's size */
};

struct window {
  int start, count;
  int64_t len;
};

/* Window o of m along a dimension of n elements, clipped to it */
__device__ __forceinline__ window window_of(const windows &w, int i, int o, int n, int m)
{
  window r;
  int64_t s, end;
  if (w.size[i] == 0) {
    s = (int64_t)o * n / m;
    end = ((int64_t)(o + 1) * n + m - 1) / m;
  } else {
    s = (int64_t)o * w.stride[i] - w.padding[i];
    end = s + (int64_t)(w.size[i] - 1) * w.dilation[i] + 1;
  }
  uint32_t d = (uint32_t)w.dilation[i];
  int64_t reach = (int64_t)n + w.padding[i], len = (end < reach ? end : reach) - s;
  if (s < 0) s = d == 1 ? 0 : s + (int64_t)(((uint32_t)-s + d - 1) / d) * d;
  if (end > n) end = n;
  r.count = s >= end ? 0 : d == 1 ? (int)(end - s) : (int)((uint32_t)(end - 1 - s) / d) + 1;
  r.start = s < n ? (int)s : n - 1;
  r.len = w.whole && w.size[i] ? len : r.count > 0 ? r.count : 1;
  return r;
}

/* -- Largest values ------------------------------------------------------------- */

template <class T>
__global__ void __launch_bounds__(256) max_windows(const planes x, const planes y, const planes place, const windows w)
{
  AMP_FOR(i, y.numel)
  {
    spot s = planes_spot(y, i);
    window a = window_of(w, 0, s.z, x.size[0], y.size[0]), b = window_of(w, 1, s.y, x.size[1], y.size[1]),
           c = window_of(w, 2, s.x, x.size[2], y.size[2]);
    int64_t from = planes_channel(x, s.n, s.c);
    int at = (a.start * x.size[1] + b.start) * x.size[2] + c.start;
    T m = -(T)INFINITY;
    for (int kz = 0, z = a.start; kz < a.count; kz++, z += w.dilation[0])
      for (int ky = 0, v = b.start; ky < b.count; ky++, v += w.dilation[1])
        for (int kx = 0, u = c.start; kx < c.count; kx++, u += w.dilation[2]) {
          T t = planes_load(T(0), x.p, x.dtype, from + planes_pixel(x, z, v, u));
          if (t > m || t != t) {
            m = t;
            at = (z * x.size[1] + v) * x.size[2] + u;
          }
        }
    planes_store(y.p, y.dtype, planes_at(y, s), m);
    ((int64_t *)place.p)[planes_at(place, s)] = (int64_t)at + 1;
  }
}

/* The same for 8 neighbouring channels a thread, all of them aligned. Three loads of a row are under way at once;
** those beyond its end load the last one again, which changes nothing. */
template <int D>
__global__ void __launch_bounds__(256)
    max_pixels(const planes x, const planes y, const planes place, const windows w, const planes eighths)
{
  AMP_FOR(i, eighths.numel)
  {
    spot s = planes_spot(eighths, i);
    window a = window_of(w, 0, s.z, x.size[0], y.size[0]), b = window_of(w, 1, s.y, x.size[1], y.size[1]),
           c = window_of(w, 2, s.x, x.size[2], y.size[2]);
    s.c *= 8;
    const int64_t from = planes_channel(x, s.n, s.c);
    const int first = (a.start * x.size[1] + b.start) * x.size[2] + c.start,
              end = c.start + (c.count - 1) * w.dilation[2];
    int at[8];
    float m[8];
#pragma unroll
    for (int k = 0; k < 8; k++) {
      m[k] = -INFINITY;
      at[k] = first;
    }
    for (int kz = 0, z = a.start; kz < a.count; kz++, z += w.dilation[0])
      for (int ky = 0, v = b.start; ky < b.count; ky++, v += w.dilation[1])
        for (int kx = 0, u = c.start; kx < c.count; kx += 3, u += 3 * w.dilation[2]) {
          float t[3][8];
          const int row = (z * x.size[1] + v) * x.size[2],
                    col[3] = { u, u + w.dilation[2] < end ? u + w.dilation[2] : end,
                               u + 2 * w.dilation[2] < end ? u + 2 * w.dilation[2] : end };
#pragma unroll
          for (int j = 0; j < 3; j++) amp_load_n<8>(t[j], x.p, D, from + planes_pixel(x, z, v, col[j]));
#pragma unroll
          for (int j = 0; j < 3; j++) {
#pragma unroll
            for (int k = 0; k < 8; k++)
              if (t[j][k] > m[k] || t[j][k] != t[j][k]) {
                m[k] = t[j][k];
                at[k] = row + col[j];
              }
          }
        }
    amp_store_n<8>(y.p, D, planes_at(y, s), m);
    uint4 *to = (uint4 *)((int64_t *)place.p + planes_at(place, s));
#pragma unroll
    for (int k = 0; k < 4; k++) to[k] = make_uint4((unsigned)at[2 * k] + 1, 0, (unsigned)at[2 * k + 1] + 1, 0);
  }
}

/* -- Means ------------------------------------------------------------------------- */

template <class T> __device__ __forceinline__ T divisor_of(const windows &w, int64_t a, int64_t b, int64_t c)
{
  return w.divisor != AMP_NONE ? (T)w.divisor : (T)((double)a * (double)b * (double)c);
}

template <class T, int LANES>
__global__ void __launch_bounds__(256) mean_windows(const planes x, const planes y, const windows w)
{
  int lane = threadIdx.x % LANES;
  int64_t step = (int64_t)gridDim.x * blockDim.x / LANES;
  for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / LANES; i < y.numel; i += step) {
    spot s = planes_spot(y, i);
    window a = window_of(w, 0, s.z, x.size[0], y.size[0]), b = window_of(w, 1, s.y, x.size[1], y.size[1]),
           c = window_of(w, 2, s.x, x.size[2], y.size[2]);
    int64_t from = planes_channel(x, s.n, s.c);
    T sum = 0;
    if (LANES == 1) {
      for (int z = a.start; z < a.start + a.count; z++)
        for (int v = b.start; v < b.start + b.count; v++)
          for (int u = c.start; u < c.start + c.count; u++)
            sum += planes_load(T(0), x.p, x.dtype, from + planes_pixel(x, z, v, u));
    } else {
      int n = a.count * b.count * c.count;
      for (int k = lane; k < n; k += LANES) {
        int r = k / c.count;
        sum += planes_load(T(0), x.p, x.dtype,
                           from + planes_pixel(x, a.start + r / b.count, b.start + r % b.count, c.start + k % c.count));
      }
      sum = amp_reduce_warp<amp_sum>(sum);
    }
    if (lane == 0) planes_store(y.p, y.dtype, planes_at(y, s), sum / divisor_of<T>(w, a.len, b.len, c.len));
  }
}

/* The windows lo..hi that element i of a dimension lies in */
__device__ __forceinline__ void covering(const windows &w, int d, int i, int n, int m, int *lo, int *hi)
{
  if (w.size[d] == 0) { /* from floor(o n / m) to ceil((o + 1) n / m) */
    *lo = (int)((int64_t)i * m / n);
    *hi = (int)((((int64_t)i + 1) * m + n - 1) / n) - 1;
    return;
  }
  int64_t l = (int64_t)i + w.padding[d] - w.size[d] + 1, h = ((int64_t)i + w.padding[d]) / w.stride[d];
  *lo = l <= 0 ? 0 : (int)((l + w.stride[d] - 1) / w.stride[d]);
  *hi = (int)(h < m ? h : m - 1);
}

template <class T> __global__ void __launch_bounds__(256) spread_means(const planes x, const planes g, const windows w)
{
  AMP_FOR(i, x.numel)
  {
    spot s = planes_spot(x, i);
    int lo[3], hi[3];
    covering(w, 0, s.z, x.size[0], g.size[0], &lo[0], &hi[0]);
    covering(w, 1, s.y, x.size[1], g.size[1], &lo[1], &hi[1]);
    covering(w, 2, s.x, x.size[2], g.size[2], &lo[2], &hi[2]);
    int64_t from = planes_channel(g, s.n, s.c);
    T sum = 0;
    for (int z = lo[0]; z <= hi[0]; z++) {
      int64_t a = window_of(w, 0, z, x.size[0], g.size[0]).len;
      for (int y = lo[1]; y <= hi[1]; y++) {
        int64_t b = window_of(w, 1, y, x.size[1], g.size[1]).len;
        for (int u = lo[2]; u <= hi[2]; u++)
          sum += planes_load(T(0), g.p, g.dtype, from + planes_pixel(g, z, y, u))
                 / divisor_of<T>(w, a, b, window_of(w, 2, u, x.size[2], g.size[2]).len);
      }
    }
    planes_store(x.p, x.dtype, planes_at(x, s), sum);
  }
}

/* -- Calls ---------------------------------------------------------------------------- */

/* args: of any of the rows; size 0: windows are given, else they share the input out */
template <class ARGS> static windows windows_of(const ARGS *args)
{
  windows w;
  memset((void *)&w, 0, sizeof w);
  w.shares = args->size[2] == 0;
  w.divisor = AMP_NONE;
  for (int i = 0; i < 3; i++) {
    w.size[i] = (int32_t)args->kernel_size[i];
    w.stride[i] = (int32_t)args->stride[i];
    w.padding[i] = (int32_t)args->padding[i];
    w.dilation[i] = 1;
  }
  return w;
}

static double taps(const windows &w, const planes &x, const planes &y)
{
  double n = 1;
  for (int i = 0; i < 3; i++)
    n *= w.size[i] == 0 ? (x.size[i] + y.size[i] - 1) / y.size[i] : w.size[i] < x.size[i] ? w.size[i] : x.size[i];
  return n;
}

} // namespace

extern "C" {

int amp__cuda_max_pool(amp_call *c)
{
  const args_max_pool *args = AMP_ARGS(c, max_pool);
  int spatial = (int)args->spatial, rc;
  if (c->out[0]->numel == 0) return 0;
  planes x = planes_of(c->in[0], spatial), y = planes_of(c->out[0], spatial), place = planes_of(c->out[1], spatial);
  windows w = windows_of(args);
  for (int i = 0; i < 3; i++) w.dilation[i] = w.shares ? 1 : (int32_t)args->dilation[i];
  if ((rc = planes_check(x)) < 0) return rc;
  if (!w.shares && w.dilation[0] == 1 && w.dilation[1] == 1 && w.dilation[2] == 1) {
    const int32_t known[9] = { w.size[0],   w.size[1],    w.size[2],    w.stride[0], w.stride[1],
                               w.stride[2], w.padding[0], w.padding[1], w.padding[2] };
    if ((rc = amp_pool_pairs(x, y, place, known)) <= 0) return rc;
  }
  if (x.dtype == y.dtype && planes_by_eight(x) && planes_by_eight(y) && planes_by_eight(place)) {
    planes eighths = y;
    eighths.c /= 8;
    eighths.numel /= 8;
    unsigned grid = amp_grid(eighths.numel, 256, 32);
    if (x.dtype == AMP_FLOAT16) AMP_LAUNCH((max_pixels<AMP_FLOAT16>), grid, 256, 0, x, y, place, w, eighths);
    else if (x.dtype == AMP_BFLOAT16) AMP_LAUNCH((max_pixels<AMP_BFLOAT16>), grid, 256, 0, x, y, place, w, eighths);
    else AMP_LAUNCH((max_pixels<AMP_FLOAT32>), grid, 256, 0, x, y, place, w, eighths);
  } else if (y.dtype == AMP_FLOAT64)
    AMP_LAUNCH((max_windows<double>), amp_grid(y.numel, 256, 32), 256, 0, x, y, place, w);
  else AMP_LAUNCH((max_windows<float>), amp_grid(y.numel, 256, 32), 256, 0, x, y, place, w);
  return 0;
}

int amp__cuda_avg_pool(amp_call *c)
{
  const args_avg_pool *args = AMP_ARGS(c, avg_pool);
  int spatial = (int)args->spatial, rc;
  if (c->out[0]->numel == 0) return 0;
  planes x = planes_of(c->in[0], spatial), y = planes_of(c->out[0], spatial);
  windows w = windows_of(args);
  w.whole = args->count_include_pad != 0;
  w.divisor = args->divisor;
  if ((rc = planes_check(x)) < 0) return rc;
  bool lanes = !x.last && taps(w, x, y) >= 64;
  unsigned grid = amp_grid(y.numel * (lanes ? 32 : 1), 256, 32);
  if (y.dtype == AMP_FLOAT64) {
    if (lanes) AMP_LAUNCH((mean_windows<double, 32>), grid, 256, 0, x, y, w);
    else AMP_LAUNCH((mean_windows<double, 1>), grid, 256, 0, x, y, w);
  } else if (lanes) AMP_LAUNCH((mean_windows<float, 32>), grid, 256, 0, x, y, w);
  else AMP_LAUNCH((mean_windows<float, 1>), grid, 256, 0, x, y, w);
  return 0;
}

int amp__cuda_avg_pool_backward(amp_call *c)
{
  const args_avg_pool_backward *args = AMP_ARGS(c, avg_pool_backward);
  int spatial = (int)args->spatial, rc;
  if (c->out[0]->numel == 0) return 0;
  if (c->in[0]->numel == 0) return amp__cuda_fill_value(c->out[0], 0);
  planes g = planes_of(c->in[0], spatial), x = planes_of(c->out[0], spatial);
  windows w = windows_of(args);
  w.whole = args->count_include_pad != 0;
  w.divisor = args->divisor;
  if ((rc = planes_check(x)) < 0) return rc;
  if (x.dtype == AMP_FLOAT64) AMP_LAUNCH((spread_means<double>), amp_grid(x.numel, 256, 32), 256, 0, x, g, w);
  else AMP_LAUNCH((spread_means<float>), amp_grid(x.numel, 256, 32), 256, 0, x, g, w);
  return 0;
}
}
