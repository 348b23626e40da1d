/*
** batch_norm_planes.cu: batch norm of channels that are planes of whole vectors: a
** block takes a part of a channel over all images, 16 bytes at a time. A thread's
** sums are shifted by its first value, so nothing cancels; they are joined in an
** order that doesn't change, and the last block of a channel adds its parts up to
** statistics and coefficients.
*/
#include "norm/batch_norm_job.cuh"

namespace {

enum { THREADS = 256, WARPS = THREADS / 32, PARTS = 256 };

/* -- Planes: a block has a channel's vectors from..to, over all images ------------------------- */

/* Vector u of the channel, THREADS vectors on: n images and i vectors more */
typedef struct walk {
  int64_t n, i;
} walk;
__device__ __forceinline__ walk walk_to(const job &task, int64_t u)
{
  walk w;
  w.n = u / task.plane_vectors;
  w.i = u - w.n * task.plane_vectors;
  return w;
}
__device__ __forceinline__ void walk_on(const job &task, walk &w)
{
  w.n += task.step;
  w.i += task.skip;
  if (w.i >= task.plane_vectors) {
    w.i -= task.plane_vectors;
    w.n++;
  }
}
#define PLANES_HERE(D)                                                                              \
  enum { V = lane<D>::V };                                                                          \
  const int64_t c = blockIdx.x, from = blockIdx.y * task.part_vectors,                              \
                to = from + task.part_vectors < task.units ? from + task.part_vectors : task.units; \
  walk w = walk_to(task, from + threadIdx.x)
#define PLANES_AT ((w.n * task.channels + c) * task.plane_vectors + w.i) * V

template <int D> __global__ void __launch_bounds__(THREADS) planes_stats(const job task)
{
  PLANES_HERE(D);
  __shared__ float sh[2][2 * WARPS], count[WARPS];
  const float base = amp_load<float>(task.x, D, c * task.plane_vectors * V);
  float shift = 0, s = 0, q = 0, n = 0;
  for (int64_t u = from + threadIdx.x; u < to; u += THREADS, walk_on(task, w)) {
    float x[V];
    amp_load_n<V>(x, task.x, D, PLANES_AT);
    if (n == 0) shift = x[0];
    n += V;
#pragma unroll
    for (int j = 0; j < V; j++) {
      float d = x[j] - shift;
      s += d;
      q += d * d;
    }
  }
  float m = n > 0 ? s / n : 0.f, dev = q - s * m, mean = n > 0 ? shift - base + m : 0.f;
  if (dev < 0) dev = 0;
#pragma unroll
  for (int d = 16; d > 0; d >>= 1)
    join(n, mean, dev, __shfl_xor_sync(0xffffffffu, n, d), __shfl_xor_sync(0xffffffffu, mean, d),
         __shfl_xor_sync(0xffffffffu, dev, d));
  if ((threadIdx.x & 31) == 0) {
    const int warp = threadIdx.x >> 5;
    sh[0][2 * warp] = mean;
    sh[1][2 * warp] = dev;
    count[warp] = n;
  }
  leave_part<THREADS, 1, true>(task, 1, sh[0], sh[1], count);
  if (last_part(task))
    settle<THREADS, 1>(
        task, 1,
        [&](int i) {
          int64_t left = task.units - i * task.part_vectors;
          return (double)((left < task.part_vectors ? left : task.part_vectors) * V);
        },
        [&](int64_t ch) { return amp_load<float>(task.x, D, ch * task.plane_vectors * V); });
}

template <int D, int AFTER> __global__ void __launch_bounds__(THREADS) planes_apply(const job task)
{
  PLANES_HERE(D);
  if (task.update && blockIdx.y == 0) update(task, 1);
  const float a = task.coef[c], b = task.coef[task.channels + c], mean = D == AMP_FLOAT32 ? task.mean[c] : 0.f;
#pragma unroll 2
  for (int64_t u = from + threadIdx.x; u < to; u += THREADS, walk_on(task, w)) {
    float x[V], z[V];
    amp_load_n<V>(x, task.x, D, PLANES_AT);
    if (AFTER == JOINED) { amp_load_n<V>(z, task.joined, D, PLANES_AT); }
#pragma unroll
    for (int j = 0; j < V; j++) x[j] = finish<D, AFTER>(task, less<D>(x[j], mean), AFTER == JOINED ? z[j] : 0.f, a, b);
    amp_store_n<V>(task.y, D, PLANES_AT, x);
  }
}

template <int D, int AFTER> __global__ void __launch_bounds__(THREADS) planes_sums(const job task)
{
  PLANES_HERE(D);
  __shared__ float sh[2][2 * WARPS];
  const float mean = task.mean[c];
  float s = 0, q = 0, a, b;
  forward_coef(task, c, mean, &a, &b);
#pragma unroll 2
  for (int64_t u = from + threadIdx.x; u < to; u += THREADS, walk_on(task, w)) {
    float x[V], g[V], y[V];
    amp_load_n<V>(x, task.x, D, PLANES_AT);
    amp_load_n<V>(g, task.g, D, PLANES_AT);
    if (AFTER == JOINED) { amp_load_n<V>(y, task.joined, D, PLANES_AT); }
#pragma unroll
    for (int j = 0; j < V; j++) {
      g[j] = masked<D, AFTER>(g[j], AFTER == JOINED ? y[j] : less<D>(x[j], mean), a, b);
      s += g[j];
      q += g[j] * (x[j] - mean);
    }
    if (AFTER == JOINED) { amp_store_n<V>(task.masked_g, D, PLANES_AT, g); }
  }
  s = amp_reduce_warp<amp_sum>(s);
  q = amp_reduce_warp<amp_sum>(q);
  if ((threadIdx.x & 31) == 0) {
    sh[0][2 * (threadIdx.x >> 5)] = s;
    sh[1][2 * (threadIdx.x >> 5)] = q;
  }
  leave_part<THREADS, 1, false>(task, 1, sh[0], sh[1], NULL);
  if (last_part(task)) settle_back<THREADS, 1>(task, 1);
}

template <int D, int AFTER> __global__ void __launch_bounds__(THREADS) planes_back(const job task)
{
  PLANES_HERE(D);
  const float a = task.coef[c], b = task.coef[task.channels + c], d = task.coef[2 * task.channels + c],
              f = task.coef[3 * task.channels + c], mean = D == AMP_FLOAT32 ? task.mean[c] : 0.f;
#pragma unroll 2
  for (int64_t u = from + threadIdx.x; u < to; u += THREADS, walk_on(task, w)) {
    float x[V], g[V];
    amp_load_n<V>(x, task.x, D, PLANES_AT);
    amp_load_n<V>(g, task.g, D, PLANES_AT);
#pragma unroll
    for (int j = 0; j < V; j++) {
      float v = less<D>(x[j], mean);
      x[j] = fmaf(a, masked<D, AFTER>(g[j], v, a, f), fmaf(b, v, d));
    }
    amp_store_n<V>(task.y, D, PLANES_AT, x);
  }
}

/* -- Launches ----------------------------------------------------------------------------- */

template <int D> static void pass(const job &task, int which, int after)
{
  const dim3 grid((unsigned)task.strips, (unsigned)task.parts);
#define BY_AFTER(kernel)                                                           \
  do {                                                                             \
    if (after == JOINED) AMP_LAUNCH((kernel<D, JOINED>), grid, THREADS, 0, task);  \
    else if (after == RELU) AMP_LAUNCH((kernel<D, RELU>), grid, THREADS, 0, task); \
    else AMP_LAUNCH((kernel<D, PLAIN>), grid, THREADS, 0, task);                   \
  } while (0)
  if (which == AMP_BN_STATS) AMP_LAUNCH((planes_stats<D>), grid, THREADS, 0, task);
  else if (which == AMP_BN_APPLY) BY_AFTER(planes_apply);
  else if (which == AMP_BN_SUMS) BY_AFTER(planes_sums);
  else BY_AFTER(planes_back);
#undef BY_AFTER
}

} // namespace

int amp_bn_cut_planes(amp_bn_job *task)
{
  const int64_t least = THREADS * 2;
  int64_t parts = (int64_t)amp__cuda_here()->sms * 4 / task->channels, most = (task->units + least - 1) / least;
  task->strips = (int32_t)task->channels;
  task->step = (int32_t)(THREADS / task->plane_vectors);
  task->skip = (int32_t)(THREADS % task->plane_vectors);
  if (parts > most) parts = most;
  if (parts > PARTS) parts = PARTS;
  if (parts < 1) parts = 1;
  task->part_vectors = (task->units + parts - 1) / parts;
  task->parts = (int32_t)((task->units + task->part_vectors - 1) / task->part_vectors); /* none is empty */
  return 1;
}

void amp_bn_planes(const amp_bn_job *task, int which, int dtype, int after)
{
  if (dtype == AMP_FLOAT16) pass<AMP_FLOAT16>(*task, which, after);
  else if (dtype == AMP_BFLOAT16) pass<AMP_BFLOAT16>(*task, which, after);
  else pass<AMP_FLOAT32>(*task, which, after);
}
