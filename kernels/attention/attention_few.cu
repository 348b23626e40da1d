/*
** attention_few.cu: attention of a few queries (at most 4 a head) over many keys: what a text model does for each token
** it makes.
**
** A block has one query of one head. 8 lanes (16 of heads wider than 64) have a key: 16 bytes of it, and of its value,
** in a load; 4 keys a group are on their way at once. Each group keeps its own softmax up to date (largest score, sum,
** weighted values), so keys cost a shuffle over 8 lanes and nothing else; groups are joined at the end, through
** shared memory. A key that a mask of booleans leaves out is not read: of a cache that is not full yet, only what
** is there is. 4 size bytes a key are moved, which one multiprocessor does at 64 bytes a cycle.
*/
#include "attention/attention.cuh"
#include "common/bits.cuh"

namespace {

enum { THREADS = 512, WARPS = THREADS / 32, AHEAD = 4, WIDEST = 128 };

#if AMP_MMA
/* One softmax and another: the largest score (log2), the sum, and a factor for what is weighted */
__device__ __forceinline__ void join(float &most, float &sum, float other_most, float other_sum, float &mine,
                                     float &other)
{
  const float top = other_most > most ? other_most : most, base = top == -INFINITY ? 0.f : top;
  mine = exp2f(most - base);
  other = exp2f(other_most - base);
  sum = sum * mine + other_sum * other;
  most = top;
}
#endif

/* G lanes a key */
template <int G> __global__ void __launch_bounds__(THREADS) few(const __grid_constant__ amp_flash job)
{
#if AMP_MMA
  __shared__ float tops[WARPS], totals[WARPS], values[WARPS][WIDEST];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = lane / G, chunk = lane % G;
  const int dtype = job.bf16 ? AMP_BFLOAT16 : AMP_FLOAT16;
  const unsigned batch = blockIdx.x / (unsigned)job.length;
  const int query = (int)(blockIdx.x - batch * (unsigned)job.length);
  const bool inside = chunk * 8 < job.size;
  int64_t at[AMP_F_SIDES];
  amp_flash_starts(job, batch, at);
  amp_let_next();
  amp_await();
  const amp_flash_side &keys = job.side[AMP_F_K], &vals = job.side[AMP_F_V];
  const char *k = keys.p + at[AMP_F_K] * 2, *v = vals.p + at[AMP_F_V] * 2;
  const char *mask = job.side[AMP_F_MASK].p;
  const int64_t mat = at[AMP_F_MASK] + query * job.side[AMP_F_MASK].row;
  float q[1][8], acc[8], most = -INFINITY, sum = 0;
  const bits<16> raw[1]
      = { fetch<16>(job.side[AMP_F_Q].p + (at[AMP_F_Q] + query * job.side[AMP_F_Q].row) * 2, chunk, inside) };
  widen<2, 8, 1>(q, raw, dtype);
#pragma unroll
  for (int e = 0; e < 8; e++) acc[e] = 0;
  const int limit = job.causal && query + 1 < job.keys ? query + 1 : job.keys, step = WARPS * (32 / G);
  for (int first = warp * (32 / G) + group; first - group < limit; first += step * AHEAD) {
    bits<16> kraw[AHEAD], vraw[AHEAD];
    float word[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      const int j = first + a * step;
      bool there = j < limit;
      word[a] = 0;
      if (there && mask) {
        const int64_t place = mat + j * job.mask_column;
        if (job.mask_dtype == AMP_BOOL) there = ((const uint8_t *)mask)[place] != 0;
        else word[a] = amp_mask_word(amp_load<float>(mask, job.mask_dtype, place));
      }
      if (!there) word[a] = -INFINITY;
      kraw[a] = fetch<16>(k + (int64_t)j * keys.row * 2, chunk, there && inside);
      vraw[a] = fetch<16>(v + (int64_t)j * vals.row * 2, chunk, there && inside);
      if (!there) word[a] = -INFINITY;
    }
    float x[AHEAD][8], score[AHEAD], top = most;
    widen<2, 8, AHEAD>(x, kraw, dtype);
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      float s = 0;
#pragma unroll
      for (int e = 0; e < 8; e++) s += q[0][e] * x[a][e];
#pragma unroll
      for (int d = G / 2; d > 0; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
      score[a] = word[a] == -INFINITY ? -INFINITY : s * job.c + word[a];
      top = score[a] > top ? score[a] : top;
    }
    const float base = top == -INFINITY ? 0.f : top, shrink = exp2f(most - base);
    most = top;
    sum *= shrink;
#pragma unroll
    for (int e = 0; e < 8; e++) acc[e] *= shrink;
    widen<2, 8, AHEAD>(x, vraw, dtype);
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
      const float w = exp2f(score[a] - base);
      sum += w;
#pragma unroll
      for (int e = 0; e < 8; e++) acc[e] += word[a] == -INFINITY ? 0.f : w * x[a][e];
    }
  }
  float mine, other;
#pragma unroll
  for (int d = G; d < 32; d <<= 1) { /* the groups of a warp */
    join(most, sum, __shfl_xor_sync(0xffffffffu, most, d), __shfl_xor_sync(0xffffffffu, sum, d), mine, other);
#pragma unroll
    for (int e = 0; e < 8; e++) acc[e] = acc[e] * mine + __shfl_xor_sync(0xffffffffu, acc[e], d) * other;
  }
  if (group == 0) {
#pragma unroll
    for (int e = 0; e < 8; e++) values[warp][chunk * 8 + e] = acc[e];
    if (chunk == 0) {
      tops[warp] = most;
      totals[warp] = sum;
    }
  }
  __syncthreads();
  most = -INFINITY;
  for (int w = 0; w < WARPS; w++) most = tops[w] > most ? tops[w] : most;
  const float base = most == -INFINITY ? 0.f : most;
  float total = 0, value = 0;
  const int c = (int)threadIdx.x;
  for (int w = 0; w < WARPS; w++) {
    const float f = exp2f(tops[w] - base);
    total += totals[w] * f;
    if (c < job.size) value += values[w][c] * f;
  }
  const float inv = total == 0 ? 0.f : 1 / total;
  if (c < job.size) {
    const int64_t to = at[AMP_F_OUT] + query * job.side[AMP_F_OUT].row + c;
    amp_store<float>(job.side[AMP_F_OUT].p, dtype, to, value * inv);
  }
  if (c == 0)
    job.lse[(int64_t)batch * job.length + query] = total == 0 ? -INFINITY : (most + log2f(total)) * 0.69314718056f;
#endif
}

} // namespace

bool amp_flash_is_few(const amp_flash *job) { return job->length <= 4 && job->keys > 0 && job->scale > 0; }

int amp_flash_launch_few(const amp_flash *job)
{
  const dim3 grid((unsigned)job->batch * (unsigned)job->length);
  if (job->size > 64) AMP_LAUNCH_NEXT(true, (few<16>), grid, dim3(THREADS), 0, *job);
  else AMP_LAUNCH_NEXT(true, (few<8>), grid, dim3(THREADS), 0, *job);
  return 0;
}
