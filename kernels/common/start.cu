/*
** start.cu: what every replay of a captured step begins with: its arguments are
** copied into the graph's own tensors, cast where the step casts them, and the cell
** of random numbers is set. One node does all of it; what it does comes with each
** launch (cuda_capture.c).
*/
#include "common/kernel.cuh"
#include "common/math.cuh"

namespace {

enum { THREADS = 256, FOUR = 4 };

/* 4 floats of 16 bytes in 16 bits */
__device__ __forceinline__ uint2 low_of(uint4 v, int dtype)
{
  uint16_t h[4];
  const unsigned x[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
  for (int i = 0; i < 4; i++) amp_store<float>(h, dtype, i, __uint_as_float(x[i]));
  return make_uint2(h[0] | (unsigned)h[1] << 16, h[2] | (unsigned)h[3] << 16);
}

__global__ void __launch_bounds__(THREADS) begin_step(const amp_beginning s)
{
  const size_t first = (size_t)blockIdx.x * THREADS + threadIdx.x, step = (size_t)gridDim.x * THREADS;
  if (first < 2 && s.cell) s.cell[first] = s.random[first];
  for (int k = 0; k < s.n; k++) {
    const amp_fetch f = s.fetch[k];
    char *to = (char *)f.to, *low = (char *)f.low;
    const char *from = (const char *)f.from;
    size_t done = 0;
    if ((((uintptr_t)to | (uintptr_t)from | ((uintptr_t)low << 1)) & 15) == 0) {
      const size_t n = f.bytes / 16;
      for (size_t i = first; i < n; i += FOUR * step) {
        uint4 v[FOUR];
#pragma unroll
        for (int e = 0; e < FOUR; e++)
          if (i + e * step < n) v[e] = ((const uint4 *)from)[i + e * step];
#pragma unroll
        for (int e = 0; e < FOUR; e++) {
          const size_t at = i + e * step;
          if (at >= n) break;
          if (to) ((uint4 *)to)[at] = v[e];
          if (low) ((uint2 *)low)[at] = low_of(v[e], f.dtype);
        }
      }
      done = n * 16;
    }
    for (size_t i = done + first; to && i < f.bytes; i += step) to[i] = from[i];
    for (size_t i = done / 4 + first; low && i < f.bytes / 4; i += step)
      amp_store<float>(low, f.dtype, (int64_t)i, ((const float *)from)[i]);
  }
}

} // namespace

extern "C" void amp__cuda_start(void)
{
  amp_beginning none;
  memset((void *)&none, 0, sizeof none);
  AMP_LAUNCH(begin_step, 1, THREADS, 0, none);
}

extern "C" int amp__cuda_start_with(cudaGraphExec_t graph, cudaGraphNode_t node, const amp_beginning *b)
{
  size_t bytes = 0;
  for (int k = 0; k < b->n; k++) bytes += b->fetch[k].bytes;
  unsigned grid = amp_grid((int64_t)(bytes / (16 * FOUR)) + 1, THREADS, 8);
  return amp__cuda_check(AMP_RELAUNCH(graph, node, begin_step, grid, THREADS, 0, *b), "a captured step's arguments");
}
