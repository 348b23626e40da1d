/*
** start.cu: what every replay of a captured step begins with: its arguments are
** copied into the graph's own tensors, and the cell of random numbers is set. One
** node does all of it; what it does comes with each launch (cuda_capture.c).
*/
#include "kernel.cuh"

namespace {

enum { THREADS = 256, FOUR = 4 };

__global__ void __launch_bounds__(THREADS) begin_step(const amp_start s)
{
  const size_t first = (size_t)blockIdx.x * THREADS + threadIdx.x, step = (size_t)gridDim.x * THREADS;
  if (first < 2 && s.cell) s.cell[first] = s.random[first];
  for (int k = 0; k < s.n; k++) {
    char *to = (char *)s.copy[k].to;
    const char *from = (const char *)s.copy[k].from;
    size_t bytes = s.copy[k].bytes, done = 0;
    if ((((uintptr_t)to | (uintptr_t)from) & 15) == 0) {
      const size_t n = bytes / 16;
      size_t i = first;
      for (; i + (FOUR - 1) * step < n; i += FOUR * step) {
        uint4 v[FOUR];
#pragma unroll
        for (int e = 0; e < FOUR; e++) v[e] = ((const uint4 *)from)[i + e * step];
#pragma unroll
        for (int e = 0; e < FOUR; e++) ((uint4 *)to)[i + e * step] = v[e];
      }
      for (; i < n; i += step) ((uint4 *)to)[i] = ((const uint4 *)from)[i];
      done = n * 16;
    }
    for (size_t i = done + first; i < bytes; i += step) to[i] = from[i];
  }
}

} // namespace

extern "C" void amp__cuda_start(void)
{
  amp_start none;
  memset((void *)&none, 0, sizeof none);
  AMP_LAUNCH(begin_step, 1, THREADS, 0, none);
}

extern "C" int amp__cuda_start_with(cudaGraphExec_t graph, cudaGraphNode_t node, const amp_start *start)
{
  size_t bytes = 0;
  for (int k = 0; k < start->n; k++) bytes += start->copy[k].bytes;
  unsigned grid = amp_grid((int64_t)(bytes / (16 * FOUR)) + 1, THREADS, 8);
  return amp__cuda_check(AMP_RELAUNCH(graph, node, begin_step, grid, THREADS, 0, *start), "a captured step's arguments");
}
