/*
** batchnorm_planes.cu: batch norm of channels that are planes of whole vectors: a
** block takes a part of a channel over all images, 16 bytes at a time. A thread's
** sums are shifted by its first value, so nothing cancels; they are joined in an
** order that doesn't change, and the last block of a channel adds its parts up to
** statistics and coefficients.
*/
#include "batchnorm_job.cuh"

namespace {

enum { THREADS = 256, WARPS = THREADS / 32, PARTS = 256 };

/* -- Planes: a block has a channel's vectors from..to, over all images ------------------------- */

/* Vector u of the channel, THREADS vectors on: n images and i vectors more */
typedef struct walk { int64_t n, i; } walk;
__device__ __forceinline__ walk walk_to(const job &k, int64_t u) { walk w; w.n = u / k.run; w.i = u - w.n * k.run; return w; }
__device__ __forceinline__ void walk_on(const job &k, walk &w)
{
  w.n += k.step;
  w.i += k.skip;
  if (w.i >= k.run) { w.i -= k.run; w.n++; }
}
#define PLANES_HERE(D)                                                                                                 \
  enum { V = lane<D>::V };                                                                                             \
  const int64_t c = blockIdx.x, from = blockIdx.y * k.per, to = from + k.per < k.units ? from + k.per : k.units;       \
  walk w = walk_to(k, from + threadIdx.x)
#define PLANES_AT ((w.n * k.c + c) * k.run + w.i) * V

template <int D> __global__ void __launch_bounds__(THREADS) planes_stats(const job k)
{
  PLANES_HERE(D);
  __shared__ float sh[2][2 * WARPS], count[WARPS];
  const float base = amp_load<float>(k.x, D, c * k.run * V);
  float shift = 0, s = 0, q = 0, n = 0;
  for (int64_t u = from + threadIdx.x; u < to; u += THREADS, walk_on(k, w)) {
    float x[V];
    amp_load_n<V>(x, k.x, D, PLANES_AT);
    if (n == 0) shift = x[0];
    n += V;
#pragma unroll
    for (int j = 0; j < V; j++) { float d = x[j] - shift; s += d; q += d * d; }
  }
  float m = n > 0 ? s / n : 0.f, dev = q - s * m, mean = n > 0 ? shift - base + m : 0.f;
  if (dev < 0) dev = 0;
#pragma unroll
  for (int d = 16; d > 0; d >>= 1)
    join(n, mean, dev, __shfl_xor_sync(0xffffffffu, n, d), __shfl_xor_sync(0xffffffffu, mean, d), __shfl_xor_sync(0xffffffffu, dev, d));
  if ((threadIdx.x & 31) == 0) {
    const int warp = threadIdx.x >> 5;
    sh[0][2 * warp] = mean;
    sh[1][2 * warp] = dev;
    count[warp] = n;
  }
  leave_part<THREADS, 1, true>(k, 1, sh[0], sh[1], count);
  if (last_part(k))
    settle<THREADS, 1>(k, 1, [&](int i) { int64_t left = k.units - i * k.per; return (double)((left < k.per ? left : k.per) * V); },
                    [&](int64_t ch) { return amp_load<float>(k.x, D, ch * k.run * V); });
}

template <int D, int AFTER> __global__ void __launch_bounds__(THREADS) planes_apply(const job k)
{
  PLANES_HERE(D);
  if (k.update && blockIdx.y == 0) update(k, 1);
  const float a = k.coef[c], b = k.coef[k.c + c], mean = D == AMP_FLOAT32 ? k.mean[c] : 0.f;
#pragma unroll 2
  for (int64_t u = from + threadIdx.x; u < to; u += THREADS, walk_on(k, w)) {
    float x[V], z[V];
    amp_load_n<V>(x, k.x, D, PLANES_AT);
    if (AFTER == JOINED) { amp_load_n<V>(z, k.r, D, PLANES_AT); }
#pragma unroll
    for (int j = 0; j < V; j++) x[j] = finish<D, AFTER>(k, less<D>(x[j], mean), AFTER == JOINED ? z[j] : 0.f, a, b);
    amp_store_n<V>(k.y, D, PLANES_AT, x);
  }
}

template <int D, int AFTER> __global__ void __launch_bounds__(THREADS) planes_sums(const job k)
{
  PLANES_HERE(D);
  __shared__ float sh[2][2 * WARPS];
  const float mean = k.mean[c];
  float s = 0, q = 0, a, b;
  forward_coef(k, c, mean, &a, &b);
#pragma unroll 2
  for (int64_t u = from + threadIdx.x; u < to; u += THREADS, walk_on(k, w)) {
    float x[V], g[V], y[V];
    amp_load_n<V>(x, k.x, D, PLANES_AT);
    amp_load_n<V>(g, k.g, D, PLANES_AT);
    if (AFTER == JOINED) { amp_load_n<V>(y, k.r, D, PLANES_AT); }
#pragma unroll
    for (int j = 0; j < V; j++) {
      g[j] = masked<D, AFTER>(g[j], AFTER == JOINED ? y[j] : less<D>(x[j], mean), a, b);
      s += g[j];
      q += g[j] * (x[j] - mean);
    }
    if (AFTER == JOINED) { amp_store_n<V>(k.gm, D, PLANES_AT, g); }
  }
  s = amp_reduce_warp<amp_sum>(s);
  q = amp_reduce_warp<amp_sum>(q);
  if ((threadIdx.x & 31) == 0) { sh[0][2 * (threadIdx.x >> 5)] = s; sh[1][2 * (threadIdx.x >> 5)] = q; }
  leave_part<THREADS, 1, false>(k, 1, sh[0], sh[1], NULL);
  if (last_part(k)) settle_back<THREADS, 1>(k, 1);
}

template <int D, int AFTER> __global__ void __launch_bounds__(THREADS) planes_back(const job k)
{
  PLANES_HERE(D);
  const float a = k.coef[c], b = k.coef[k.c + c], d = k.coef[2 * k.c + c], f = k.coef[3 * k.c + c], mean = D == AMP_FLOAT32 ? k.mean[c] : 0.f;
#pragma unroll 2
  for (int64_t u = from + threadIdx.x; u < to; u += THREADS, walk_on(k, w)) {
    float x[V], g[V];
    amp_load_n<V>(x, k.x, D, PLANES_AT);
    amp_load_n<V>(g, k.g, D, PLANES_AT);
#pragma unroll
    for (int j = 0; j < V; j++) { float v = less<D>(x[j], mean); x[j] = fmaf(a, masked<D, AFTER>(g[j], v, a, f), fmaf(b, v, d)); }
    amp_store_n<V>(k.y, D, PLANES_AT, x);
  }
}

/* -- Launches ----------------------------------------------------------------------------- */

template <int D> static void pass(const job &k, int which, int after)
{
  const dim3 grid((unsigned)k.strips, (unsigned)k.parts);
#define BY_AFTER(kernel)                                                                          \
  do {                                                                                            \
    if (after == JOINED) AMP_LAUNCH((kernel<D, JOINED>), grid, THREADS, 0, k);                    \
    else if (after == RELU) AMP_LAUNCH((kernel<D, RELU>), grid, THREADS, 0, k);                   \
    else AMP_LAUNCH((kernel<D, PLAIN>), grid, THREADS, 0, k);                                     \
  } while (0)
  if (which == AMP_BN_STATS) AMP_LAUNCH((planes_stats<D>), grid, THREADS, 0, k);
  else if (which == AMP_BN_APPLY) BY_AFTER(planes_apply);
  else if (which == AMP_BN_SUMS) BY_AFTER(planes_sums);
  else BY_AFTER(planes_back);
#undef BY_AFTER
}

} // namespace

int amp_bn_cut_planes(amp_bn_job *k)
{
  const int64_t least = THREADS * 2;
  int64_t parts = (int64_t)amp__cuda_here()->sms * 4 / k->c, most = (k->units + least - 1) / least;
  k->strips = (int32_t)k->c;
  k->step = (int32_t)(THREADS / k->run);
  k->skip = (int32_t)(THREADS % k->run);
  if (parts > most) parts = most;
  if (parts > PARTS) parts = PARTS;
  if (parts < 1) parts = 1;
  k->per = (k->units + parts - 1) / parts;
  k->parts = (int32_t)((k->units + k->per - 1) / k->per); /* none is empty */
  return 1;
}

void amp_bn_planes(const amp_bn_job *k, int which, int dtype, int after)
{
  if (dtype == AMP_FLOAT16) pass<AMP_FLOAT16>(*k, which, after);
  else if (dtype == AMP_BFLOAT16) pass<AMP_BFLOAT16>(*k, which, after);
  else pass<AMP_FLOAT32>(*k, which, after);
}
