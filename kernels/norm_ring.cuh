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
#include "mma.cuh"
#include "norm.cuh"

namespace {

enum { RING_WARPS = 8 };
/* Rows of a ring where a lane has E elements of each */
template <int E> struct ring { enum { DEPTH = E <= 16 ? 4 : E <= 24 ? 3 : 2 }; };
/* Bytes of a row in it, GB: of an element of the gradient */
template <int XB, int GB> __host__ __device__ __forceinline__ int ring_row(const job &k) { return (int)k.n * (XB + GB + (k.more ? XB : 0)); }

static inline bool ringed(const job *k, const amp_cuda_device *d) { return k->n > 256 && k->n <= 1024 && k->n % 8 == 0 && d->cc >= 80 && d->shared >= 226 << 10; }

/* -- Bytes on their way to shared memory ---------------------------------------------------- */

#if !defined AMP_EMULATED && __CUDA_ARCH__ >= 900
__device__ __forceinline__ unsigned ring_at(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void ring_bulk(char *to, const char *from, int bytes, uint64_t *full)
{
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :: "r"(ring_at(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(ring_at(full)) : "memory");
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

/* Row r starts on its way to `to`; full: counts a bulk copy's bytes. Lanes that copy count rows: one that isn't there is an empty group */
template <int XB, int GB, int K> __device__ __forceinline__ void ring_bring(const job &k, char *to, int64_t r, uint64_t *full)
{
  const int n = (int)k.n;
#if !defined AMP_EMULATED && __CUDA_ARCH__ >= 900
  if ((threadIdx.x & 31) != 0 || r >= k.rows) return;
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(ring_at(full)), "r"(ring_row<XB, GB>(k)) : "memory");
  ring_bulk(to, k.x + r * n * XB, n * XB, full);
  ring_bulk(to + n * XB, k.g + r * n * GB, n * GB, full);
  if (k.more) ring_bulk(to + n * (XB + GB), k.more + r * n * XB, n * XB, full);
#else
  (void)full;
  if (r < k.rows) {
    ring_lanes<K>(to, k.x + r * n * XB, n * XB / 16);
    ring_lanes<K * GB / XB>(to + n * XB, k.g + r * n * GB, n * GB / 16);
    if (k.more) ring_lanes<K>(to + n * (XB + GB), k.more + r * n * XB, n * XB / 16);
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
    for (int i = 0; i < DEPTH; i++) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(ring_at(full + i)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncwarp();
#else
  (void)full;
#endif
}

/* Until a warp's oldest row is there: the bulk copy that `full` has counted, phase being that of its uses, or all lanes' part */
template <int DEPTH> __device__ __forceinline__ void ring_await(uint64_t *full, unsigned phase)
{
#if !defined AMP_EMULATED && __CUDA_ARCH__ >= 900
  unsigned done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(ring_at(full)), "r"(phase) : "memory");
#else
  (void)full; (void)phase;
#if AMP_MMA
  amp_copy_wait<DEPTH - 1>();
#endif
  __syncwarp();
#endif
}

/* -- Backward --------------------------------------------------------------------------------- */

/* shared: K * 32 * V weights, then RING_WARPS rings of DEPTH rows */
template <int XB, int GB, int K> __global__ void __launch_bounds__(RING_WARPS * 32, 1) backward_ring(const job k)
{
  enum { V = 16 / XB, DEPTH = ring<K * V>::DEPTH };
  __shared__ uint64_t full[RING_WARPS][DEPTH];
  AMP_SHARED(float, weight);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, n = (int)k.n, vectors = n / V, row = ring_row<XB, GB>(k);
  const int64_t step = (int64_t)gridDim.x * RING_WARPS, first = (int64_t)warp * gridDim.x + blockIdx.x;
  const float each = 1.f / (float)n;
  char *const all = (char *)(weight + K * 32 * V), *const mine = all + warp * (DEPTH * row);
  float gw[K][V], gb[K][V], mean = 0, rstd = 0;
  auto statistics = [&](int64_t r) {
    if (r >= k.rows) return;
    if (!k.rms) mean = ((const float *)k.mean)[r];
    rstd = ((const float *)k.rstd)[r];
  };
  ring_begin<DEPTH>(full[warp]);
#pragma unroll
  for (int i = 0; i < DEPTH; i++) ring_bring<XB, GB, K>(k, mine + i * row, first + i * step, full[warp] + i);
  statistics(first);
  for (int i = threadIdx.x; i < K * 32 * V; i += RING_WARPS * 32) weight[i] = i >= n ? 0.f : k.w ? amp_load<float>(k.w, k.wdt, i) : 1.f;
#pragma unroll
  for (int j = 0; j < K; j++) {
#pragma unroll
    for (int q = 0; q < V; q++) gw[j][q] = gb[j][q] = 0;
  }
  __syncthreads();
  int slot = 0;
  unsigned phase = 0;
  for (int64_t r = first; r < k.rows; r += step) {
    char *const from = mine + slot * row;
    const float about = mean, scale = rstd;
    float x[K][V], g[K][V], more[K][V], s0 = 0, s1 = 0;
    bits<16> rx[K];
    bits<GB * V> rg[K];
    statistics(r + step);
    ring_await<DEPTH>(full[warp] + slot, phase);
#pragma unroll
    for (int j = 0; j < K; j++) rx[j] = fetch<16>(from, lane + 32 * j, lane + 32 * j < vectors);
#pragma unroll
    for (int j = 0; j < K; j++) rg[j] = fetch<GB * V>(from + n * XB, lane + 32 * j, lane + 32 * j < vectors);
    widen<XB, V>(x, rx, k.xdt);
    widen<GB, V>(g, rg, k.gdt);
    add_up(x, g, gw, gb, weight, lane, 32, about, scale, s0, s1);
    row_sums<true>(s0, s1, NULL);
    s0 = k.rms ? 0.f : s0 * each;
    s1 *= each;
    if (k.more) {
#pragma unroll
      for (int j = 0; j < K; j++) rx[j] = fetch<16>(from + n * (XB + GB), lane + 32 * j, lane + 32 * j < vectors);
      widen<XB, V>(more, rx, k.ydt);
    }
    __syncwarp(); /* all lanes have read it */
    ring_bring<XB, GB, K>(k, from, r + DEPTH * step, full[warp] + slot);
#pragma unroll
    for (int j = 0; j < K; j++) {
      const int at = lane + 32 * j;
      if (at >= vectors) continue;
#pragma unroll
      for (int q = 0; q < V; q++) {
        g[j][q] = scale * (g[j][q] - s0 - x[j][q] * s1);
        if (k.more) g[j][q] += more[j][q];
      }
      put<XB, V>(k.y, r * vectors + at, g[j], k.ydt);
      if (XB == 4 && k.twin) put_narrow(k.twin, r * vectors + at, g[j], k.tdt);
    }
    if (++slot == DEPTH) { slot = 0; phase ^= 1; }
  }
  amp_let_next();
#if AMP_MMA
  amp_copy_wait<0>();
#endif
  __syncthreads();
  float *sums = (float *)all, *out = (float *)k.partial + (int64_t)blockIdx.x * 2 * n; /* [warp][2][n] */
#pragma unroll
  for (int j = 0; j < K; j++)
    if (lane + 32 * j < vectors) {
#pragma unroll
      for (int q = 0; q < V; q += 4) {
        float *at = sums + warp * 2 * n + (lane + 32 * j) * V + q;
        *(float4 *)at = make_float4(gw[j][q], gw[j][q + 1], gw[j][q + 2], gw[j][q + 3]);
        *(float4 *)(at + n) = make_float4(gb[j][q], gb[j][q + 1], gb[j][q + 2], gb[j][q + 3]);
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

} // namespace
#endif
