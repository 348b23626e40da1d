/*
** pool_back.cu: gradient of a max pool whose windows are known: each element of
** the input asks the windows that cover it whether its place is the one they
** chose. Nothing is added by atomics, so results repeat, and memory is read and
** written once in the order in which it lies; 8 neighbouring channels a thread
** where they lie together. Common pools of images are pool_pairs.cu's, those of
** unknown windows pool_place.cu's.
*/
#include "common/planes.cuh"
#include "pool/pool_back.cuh"

namespace {

struct windows {
  int32_t size[3], stride[3], padding[3];
};

/* The windows lo..hi that element i lies in, of m */
__device__ __forceinline__ void covering(const windows &w, int d, int i, int m, int *lo, int *hi)
{
  unsigned s = (unsigned)w.stride[d], at = (unsigned)(i + w.padding[d]);
  int first = i + w.padding[d] - w.size[d] + 1, last = (int)(s == 1 ? at : at / s);
  *lo = first <= 0 ? 0 : (int)(((unsigned)first + s - 1) / s);
  *hi = last < m ? last : m - 1;
}

template <class T>
__global__ void __launch_bounds__(256) ask(const planes x, const planes g, const planes t, const windows w)
{
  AMP_FOR(i, x.numel)
  {
    spot s = planes_spot(x, i);
    int lo[3], hi[3];
    covering(w, 0, s.z, g.size[0], &lo[0], &hi[0]);
    covering(w, 1, s.y, g.size[1], &lo[1], &hi[1]);
    covering(w, 2, s.x, g.size[2], &lo[2], &hi[2]);
    const int64_t from = planes_channel(g, s.n, s.c), place = planes_channel(t, s.n, s.c),
                  me = ((int64_t)s.z * x.size[1] + s.y) * x.size[2] + s.x + 1;
    T sum = 0;
    for (int z = lo[0]; z <= hi[0]; z++)
      for (int y = lo[1]; y <= hi[1]; y++)
        for (int u = lo[2]; u <= hi[2]; u++)
          if (((const int64_t *)t.p)[place + planes_pixel(t, z, y, u)] == me)
            sum += planes_load(T(0), g.p, g.dtype, from + planes_pixel(g, z, y, u));
    planes_store(x.p, x.dtype, planes_at(x, s), sum);
  }
}

/* 8 neighbouring channels a thread; a place needs its lower word */
template <int D>
__global__ void __launch_bounds__(256)
    ask_eight(const planes x, const planes g, const planes t, const windows w, const planes eighths)
{
  AMP_FOR(i, eighths.numel)
  {
    spot s = planes_spot(eighths, i);
    s.c *= 8;
    int lo[3], hi[3];
    covering(w, 0, s.z, g.size[0], &lo[0], &hi[0]);
    covering(w, 1, s.y, g.size[1], &lo[1], &hi[1]);
    covering(w, 2, s.x, g.size[2], &lo[2], &hi[2]);
    const int64_t from = planes_channel(g, s.n, s.c), place = planes_channel(t, s.n, s.c);
    const unsigned me = (unsigned)((s.z * x.size[1] + s.y) * x.size[2] + s.x) + 1;
    float sum[8];
#pragma unroll
    for (int j = 0; j < 8; j++) sum[j] = 0;
    for (int z = lo[0]; z <= hi[0]; z++)
      for (int y = lo[1]; y <= hi[1]; y++)
        for (int u = lo[2]; u <= hi[2]; u++) {
          const uint4 *q = (const uint4 *)((const int64_t *)t.p + place + planes_pixel(t, z, y, u));
          uint4 a = q[0], b = q[1], c = q[2], d = q[3];
          float v[8];
          amp_load_n<8>(v, g.p, D, from + planes_pixel(g, z, y, u));
          sum[0] += a.x == me ? v[0] : 0.f;
          sum[1] += a.z == me ? v[1] : 0.f;
          sum[2] += b.x == me ? v[2] : 0.f;
          sum[3] += b.z == me ? v[3] : 0.f;
          sum[4] += c.x == me ? v[4] : 0.f;
          sum[5] += c.z == me ? v[5] : 0.f;
          sum[6] += d.x == me ? v[6] : 0.f;
          sum[7] += d.z == me ? v[7] : 0.f;
        }
    amp_store_n<8>(x.p, D, planes_at(x, s), sum);
  }
}

} // namespace

int amp_pool_back(const planes &x, const planes &g, const planes &t, const args_pool_scatter *args, bool must)
{
  windows w;
  int64_t covered = 1;
  for (int i = 0; i < 3; i++) {
    const int64_t size = args->kernel_size[i], stride = args->stride[i], padding = args->padding[i];
    if (size < 1 || size > INT32_MAX || stride < 1 || stride > INT32_MAX || padding > INT32_MAX) return 1;
    w.size[i] = (int32_t)size;
    w.stride[i] = (int32_t)stride;
    w.padding[i] = (int32_t)padding;
    int64_t most = (w.size[i] + (int64_t)w.stride[i] - 1) / w.stride[i];
    covered *= most < g.size[i] ? most : g.size[i];
    if ((int64_t)x.size[i] + w.padding[i] > INT32_MAX || covered > 64) return 1;
  }
  const int32_t known[9] = { w.size[0],   w.size[1],    w.size[2],    w.stride[0], w.stride[1],
                             w.stride[2], w.padding[0], w.padding[1], w.padding[2] };
  int rc = amp_pool_pairs_back(x, g, t, known);
  if (rc <= 0) return rc;
  if (x.dtype != AMP_FLOAT64 && x.dtype == g.dtype && planes_by_eight(x) && planes_by_eight(g) && planes_by_eight(t)) {
    planes eighths = x;
    eighths.c /= 8;
    eighths.numel /= 8;
    unsigned grid = amp_grid(eighths.numel, 256, 32);
    if (x.dtype == AMP_FLOAT16) AMP_LAUNCH((ask_eight<AMP_FLOAT16>), grid, 256, 0, x, g, t, w, eighths);
    else if (x.dtype == AMP_BFLOAT16) AMP_LAUNCH((ask_eight<AMP_BFLOAT16>), grid, 256, 0, x, g, t, w, eighths);
    else AMP_LAUNCH((ask_eight<AMP_FLOAT32>), grid, 256, 0, x, g, t, w, eighths);
    return 0;
  }
  if (!must && !x.last) return 1;
  if (x.dtype == AMP_FLOAT64) AMP_LAUNCH((ask<double>), amp_grid(x.numel, 256, 32), 256, 0, x, g, t, w);
  else AMP_LAUNCH((ask<float>), amp_grid(x.numel, 256, 32), 256, 0, x, g, t, w);
  return 0;
}
