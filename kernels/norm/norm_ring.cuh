/*
** norm_ring.cuh: layer_norm's and rms_norm's backward of float32 and 16-bit rows up
** to 1024 elements, whose next rows come to shared memory while one is worked on.
**
** A warp takes a row. Input, gradient and what came so far of the DEPTH rows that
** follow are on their way to the warp's ring, so that loads hold no registers; those
** are the columns' sums and one row's values. From compute capability 9.0 on the
** copy engine brings a row (cp.async.bulk), below lanes do (cp.async). Two sums a
** row in one go, no barrier until the end, when the block's warps add their columns'
** sums. Rows go to all multiprocessors alike, the last ones too.
*/
#ifndef AMP_NORM_RING_CUH
#define AMP_NORM_RING_CUH
#include "common/mma.cuh"
#include "norm/layer_norm.cuh"

namespace {

enum { RING_WARPS = 8 };
/* Rows of a ring where a lane has E elements of each */
template <int E> struct ring {
  enum { DEPTH = E <= 16 ? 4 : E <= 24 ? 3 : 2 };
};
/* Bytes of a row in it, GB: of an element of the gradient */
template <int XB, int GB> __host__ __device__ __forceinline__ int ring_row(const job &task)
{
  return (int)task.length * (XB + GB + (task.more ? XB : 0));
}

static inline bool ringed(const job *task, const amp_cuda_device *d)
{
  return task->length > 256 && task->length <= 1024 && task->length % 8 == 0 && d->cc >= 80 && d->shared >= 226 << 10;
}

/* -- Bytes on their way to shared memory ---------------------------------------------------- */

#if !defined AMP_EMULATED && __CUDA_ARCH__ >= 900
__device__ __forceinline__ unsigned ring_at(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void ring_bulk(char *to, const char *from, int bytes, uint64_t *full)
{
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(ring_at(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(ring_at(full))
      : "memory");
}
#endif

/* A lane's part of K * 32 vectors of 16 bytes, as many as there are */
template <int K> __device__ __forceinline__ void ring_lanes(char *to, const char *from, int vectors)
{
#if AMP_MMA
  const amp_at at = amp_at_of(to);
#endif
#pragma unroll
  for (int j = 0; j < K; j++) {
    const int i = (threadIdx.x & 31) + 32 * j;
#if AMP_MMA
    if (i < vectors) amp_copy16(at + i * 16, from + i * 16, true);
#else
    if (i < vectors) ((uint4 *)to)[i] = ((const uint4 *)from)[i];
#endif
  }
}

/* Row r starts on its way to `to`; full: counts a bulk copy's bytes. Lanes that copy count rows: one that isn't there
** is an empty group */
template <int XB, int GB, int K>
__device__ __forceinline__ void ring_bring(const job &task, char *to, int64_t r, uint64_t *full)
{
  const int n = (int)task.length;
#if !defined AMP_EMULATED && __CUDA_ARCH__ >= 900
  if ((threadIdx.x & 31) != 0 || r >= task.rows) return;
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(ring_at(full)),
               "r"(ring_row<XB, GB>(task))
               : "memory");
  ring_bulk(to, task.x + r * n * XB, n * XB, full);
  ring_bulk(to + n * XB, task.g + r * n * GB, n * GB, full);
  if (task.more) ring_bulk(to + n * (XB + GB), task.more + r * n * XB, n * XB, full);
#else
  (void)full;
  if (r < task.rows) {
    ring_lanes<K>(to, task.x + r * n * XB, n * XB / 16);
    ring_lanes<K * GB / XB>(to + n * XB, task.g + r * n * GB, n * GB / 16);
    if (task.more) ring_lanes<K>(to + n * (XB + GB), task.more + r * n * XB, n * XB / 16);
  }
#if AMP_MMA
  amp_copy_commit();
#endif
#endif
}

/* A warp's DEPTH barriers */
template <int DEPTH> __device__ __forceinline__ void ring_begin(uint64_t *full)
{
#if !defined AMP_EMULATED && __CUDA_ARCH__ >= 900
  if ((threadIdx.x & 31) == 0) {
    for (int i = 0; i < DEPTH; i++)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(ring_at(full + i)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncwarp();
#else
  (void)full;
#endif
}

/* Until a warp's oldest row is there: the bulk copy that `full` has counted, phase being that of its uses, or all
** lanes' part */
template <int DEPTH> __device__ __forceinline__ void ring_await(uint64_t *full, unsigned phase)
{
#if !defined AMP_EMULATED && __CUDA_ARCH__ >= 900
  unsigned done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(ring_at(full)), "r"(phase)
                 : "memory");
#else
  (void)full;
  (void)phase;
#if AMP_MMA
  amp_copy_wait<DEPTH - 1>();
#endif
  __syncwarp();
#endif
}

/* -- Backward --------------------------------------------------------------------------------- */

/* A lane's elements of a row that has come to `from`: input x and gradient g */
template <int XB, int GB, int K, int V>
__device__ __forceinline__ void ring_load(const job &task, const char *from, int lane, int vectors, float (&x)[K][V],
                                          float (&g)[K][V])
{
  bits<16> raw_x[K];
  bits<GB * V> raw_g[K];
#pragma unroll
  for (int j = 0; j < K; j++) raw_x[j] = fetch<16>(from, lane + 32 * j, lane + 32 * j < vectors);
#pragma unroll
  for (int j = 0; j < K; j++)
    raw_g[j] = fetch<GB * V>(from + (int)task.length * XB, lane + 32 * j, lane + 32 * j < vectors);
  widen<XB, V>(x, raw_x, task.x_dtype);
  widen<GB, V>(g, raw_g, task.g_dtype);
}

/* and what is to be added to the input's gradient */
template <int XB, int GB, int K, int V>
__device__ __forceinline__ void ring_load_more(const job &task, const char *from, int lane, int vectors,
                                               float (&more)[K][V])
{
  bits<16> raw[K];
#pragma unroll
  for (int j = 0; j < K; j++)
    raw[j] = fetch<16>(from + (int)task.length * (XB + GB), lane + 32 * j, lane + 32 * j < vectors);
  widen<XB, V>(more, raw, task.y_dtype);
}

/* The input's gradient of row r: scale (g - sum_g - x sum_gx) and what is to be added */
template <int XB, int K, int V>
__device__ __forceinline__ void ring_write(const job &task, int64_t r, int lane, int vectors, float (&g)[K][V],
                                           const float (&x)[K][V], const float (&more)[K][V], float scale, float sum_g,
                                           float sum_gx)
{
#pragma unroll
  for (int j = 0; j < K; j++) {
    const int at = lane + 32 * j;
    if (at >= vectors) continue;
#pragma unroll
    for (int q = 0; q < V; q++) {
      g[j][q] = scale * (g[j][q] - sum_g - x[j][q] * sum_gx);
      if (task.more) g[j][q] += more[j][q];
    }
    put<XB, V>(task.y, r * vectors + at, g[j], task.y_dtype);
    if (XB == 4 && task.half_copy) put_narrow(task.half_copy, r * vectors + at, g[j], task.half_dtype);
  }
}

/* The block's sums of the weight's and the bias's gradients: warps add theirs in their order; sums: [warp][2][n] */
template <int K, int V>
__device__ __forceinline__ void ring_columns(const job &task, int lane, int warp, int vectors,
                                             const float (&grad_w)[K][V], const float (&grad_b)[K][V], float *sums)
{
  const int n = (int)task.length;
  float *out = (float *)task.partial + (int64_t)blockIdx.x * 2 * n;
#pragma unroll
  for (int j = 0; j < K; j++)
    if (lane + 32 * j < vectors) {
#pragma unroll
      for (int q = 0; q < V; q += 4) {
        float *at = sums + warp * 2 * n + (lane + 32 * j) * V + q;
        *(float4 *)at = make_float4(grad_w[j][q], grad_w[j][q + 1], grad_w[j][q + 2], grad_w[j][q + 3]);
        *(float4 *)(at + n) = make_float4(grad_b[j][q], grad_b[j][q + 1], grad_b[j][q + 2], grad_b[j][q + 3]);
      }
    }
  __syncthreads();
  for (int c = threadIdx.x; c < 2 * n; c += RING_WARPS * 32) {
    float s = 0;
#pragma unroll
    for (int w = 0; w < RING_WARPS; w++) s += sums[w * 2 * n + c];
    out[c] = s;
  }
}

/* shared: K * 32 * V weights, then RING_WARPS rings of DEPTH rows */
template <int XB, int GB, int K> __global__ void __launch_bounds__(RING_WARPS * 32, 1) backward_ring(const job task)
{
  enum { V = 16 / XB, DEPTH = ring<K * V>::DEPTH };
  __shared__ uint64_t full[RING_WARPS][DEPTH];
  AMP_SHARED(float, weight);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, n = (int)task.length, vectors = n / V,
            row = ring_row<XB, GB>(task);
  const int64_t step = (int64_t)gridDim.x * RING_WARPS, first = (int64_t)warp * gridDim.x + blockIdx.x;
  const float each = 1.f / (float)n;
  char *const all = (char *)(weight + K * 32 * V), *const mine = all + warp * (DEPTH * row);
  float grad_w[K][V], grad_b[K][V], mean = 0, rstd = 0;
  auto statistics = [&](int64_t r) {
    if (r >= task.rows) return;
    if (!task.is_rms) mean = ((const float *)task.mean)[r];
    rstd = ((const float *)task.rstd)[r];
  };
  ring_begin<DEPTH>(full[warp]);
#pragma unroll
  for (int i = 0; i < DEPTH; i++) ring_bring<XB, GB, K>(task, mine + i * row, first + i * step, full[warp] + i);
  statistics(first);
  for (int i = threadIdx.x; i < K * 32 * V; i += RING_WARPS * 32)
    weight[i] = i >= n ? 0.f : task.w ? amp_load<float>(task.w, task.w_dtype, i) : 1.f;
  clear(grad_w, grad_b);
  __syncthreads();
  int slot = 0;
  unsigned phase = 0;
  for (int64_t r = first; r < task.rows; r += step) {
    char *const from = mine + slot * row;
    const float about = mean, scale = rstd;
    float x[K][V], g[K][V], more[K][V], sum_g = 0, sum_gx = 0;
    statistics(r + step);
    ring_await<DEPTH>(full[warp] + slot, phase);
    ring_load<XB, GB>(task, from, lane, vectors, x, g);
    add_up(x, g, grad_w, grad_b, weight, lane, 32, about, scale, sum_g, sum_gx);
    row_means<true>(task, each, sum_g, sum_gx, NULL);
    if (task.more) ring_load_more<XB, GB>(task, from, lane, vectors, more);
    __syncwarp(); /* all lanes have read it */
    ring_bring<XB, GB, K>(task, from, r + DEPTH * step, full[warp] + slot);
    ring_write<XB>(task, r, lane, vectors, g, x, more, scale, sum_g, sum_gx);
    if (++slot == DEPTH) {
      slot = 0;
      phase ^= 1;
    }
  }
  amp_let_next();
#if AMP_MMA
  amp_copy_wait<0>();
#endif
  __syncthreads();
  ring_columns(task, lane, warp, vectors, grad_w, grad_b, (float *)all);
}

} // namespace
#endif
