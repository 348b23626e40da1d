/*
** suppress.cuh: suppression of boxes that stand in order, the best first.
**
** Each box has words of 64 bits, whose bits are the later boxes that it would suppress. A block then walks
** them 64 boxes at a time: their words within the 64 lie in shared memory, where one thread decides which stay, a step
** for each that does; all threads then join the words of those into the row of boxes that are gone, eight loads of each
** under way at once. Two barriers a 64, no host.
*/
#ifndef AMP_SUPPRESS_CUH
#define AMP_SUPPRESS_CUH
#include "common/kernel.cuh"
#include "../src/ops/vision/boxes.h"

enum { AMP_BOX_BITS = 64 };

typedef struct amp_suppressing {
  const float *boxes;        /* N x K x 4 */
  const int64_t *groups;     /* N x K; negative, where no order is given: not there. NULL: one group */
  const int *order;          /* N x K: where the boxes of each image are. NULL: as they stand */
  unsigned long long *words; /* N x K x blocks */
  int64_t count, blocks;
  float threshold;
  bool inclusive;
} amp_suppressing;

/* Where box i of an image is */
__device__ __forceinline__ int64_t amp_box_at(const amp_suppressing &job, int64_t image, int64_t i)
{
  return image * job.count + (job.order ? job.order[image * job.count + i] : i);
}

/* One word: which boxes of block `column`, whose boxes and groups are given, does box `mine` suppress */
__device__ __forceinline__ unsigned long long amp_box_word(const amp_suppressing &job, const float *own,
                                                           int64_t own_group, int64_t mine, int64_t column,
                                                           const float *box, const int64_t *group, int end)
{
  unsigned long long word = 0;
  const int64_t after = mine + 1 - column * AMP_BOX_BITS;
  for (int k = after > 0 ? (int)after : 0; k < end; k++) {
    if (group[k] != own_group) continue;
    float iou = amp__box_iou(own, box + k * 4);
    if (iou > job.threshold || (job.inclusive && iou == job.threshold)) word |= 1ull << k;
  }
  return word;
}

/* A block's work: the words of `rows` boxes from `row` on, one a thread, for the boxes of a column */
__device__ __forceinline__ void amp_compare_boxes(const amp_suppressing &job, int64_t image, int64_t row,
                                                  int64_t column, int64_t there)
{
  __shared__ float box[AMP_BOX_BITS * 4];
  __shared__ int64_t group[AMP_BOX_BITS];
  const int64_t mine = row + threadIdx.x, first = column * AMP_BOX_BITS;
  const int end = there - first < AMP_BOX_BITS ? (int)(there - first) : AMP_BOX_BITS;
  __syncthreads();
  for (int k = threadIdx.x; k < end; k += blockDim.x) {
    const int64_t at = amp_box_at(job, image, first + k);
    for (int i = 0; i < 4; i++) box[k * 4 + i] = job.boxes[at * 4 + i];
    group[k] = job.groups ? job.groups[at] : 0;
  }
  __syncthreads();
  if (mine >= there || mine >= first + AMP_BOX_BITS) return;
  float own[4];
  const int64_t at = amp_box_at(job, image, mine);
  for (int i = 0; i < 4; i++) own[i] = job.boxes[at * 4 + i];
  job.words[(image * job.count + mine) * job.blocks + column]
      = amp_box_word(job, own, job.groups ? job.groups[at] : 0, mine, column, box, group, end);
}

/* Two warps: a word of which of 64 boxes are there */
__device__ __forceinline__ void amp_boxes_there(const amp_suppressing &job, int64_t image, int64_t first, int here,
                                                unsigned *half)
{
  if (threadIdx.x >= AMP_BOX_BITS) return;
  const int i = (int)threadIdx.x;
  const bool is = i < here && (!job.groups || job.order || job.groups[amp_box_at(job, image, first + i)] >= 0);
  const unsigned word = __ballot_sync(0xffffffffu, is);
  if (i % 32 == 0) half[i / 32] = word;
}

/* A block of at least 64 threads: take(i, stays, rank) of each of an image's first `there` boxes, rank: how many stayed
** before it. `gone` is shared, a word a block of boxes. All threads get how many stay. */
template <class F>
__device__ __forceinline__ int64_t amp_walk_boxes(const amp_suppressing &job, int64_t image, int64_t there,
                                                  unsigned long long *gone, F take)
{
  enum { EACH = 8 };
  __shared__ unsigned long long own[AMP_BOX_BITS], staying;
  __shared__ unsigned half[2];
  const int64_t blocks = (there + AMP_BOX_BITS - 1) / AMP_BOX_BITS;
  int64_t stayed = 0;
  for (int64_t b = threadIdx.x; b < blocks; b += blockDim.x) gone[b] = 0;
  for (int64_t b = 0; b < blocks; b++) {
    const int64_t first = b * AMP_BOX_BITS, rest = blocks - b - 1;
    const int here = there - first < AMP_BOX_BITS ? (int)(there - first) : AMP_BOX_BITS;
    const unsigned long long *words = job.words + (image * job.count + first) * job.blocks;
    for (int i = threadIdx.x; i < here; i += blockDim.x) own[i] = words[i * job.blocks + b];
    amp_boxes_there(job, image, first, here, half);
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned long long open = ((unsigned long long)half[1] << 32 | half[0]) & ~gone[b], stay = 0;
      while (open) {
        const unsigned long long best = open & (~open + 1);
        stay |= best;
        open &= ~(best | own[__popcll(best - 1)]);
      }
      staying = stay;
    }
    __syncthreads();
    const unsigned long long stay = staying;
    for (int i = threadIdx.x; i < here; i += blockDim.x)
      take(first + i, (stay >> i & 1) != 0, stayed + __popcll(stay & ((1ull << i) - 1)));
    for (int64_t q = threadIdx.x; stay && q < rest * (AMP_BOX_BITS / EACH); q += blockDim.x) {
      const int64_t c = b + 1 + q % rest;
      const int row = (int)(q / rest) * EACH;
      unsigned long long out = 0;
#pragma unroll
      for (int k = 0; k < EACH; k++) /* loads that do not wait for each other */
        if (stay >> (row + k) & 1) out |= words[(row + k) * job.blocks + c];
      if (out) atomicOr(&gone[c], out);
    }
    stayed += __popcll(stay);
  }
  return stayed;
}

/* True in the block of an image that ends last, whose writes all others' precede; the ticket is 0 again */
__device__ __forceinline__ bool amp_last_of_image(unsigned *ticket, unsigned blocks)
{
  __shared__ int last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(ticket, 1u) == blocks - 1;
  __syncthreads();
  if (last && threadIdx.x == 0) *ticket = 0;
  if (last) __threadfence();
  return last != 0;
}

/* A block: m keys (a power of two), the largest first */
__device__ __forceinline__ void amp_sort_keys(unsigned long long *keys, int m)
{
  for (int k = 2; k <= m; k *= 2)
    for (int j = k / 2; j > 0; j /= 2) {
      for (int q = threadIdx.x; q < m / 2; q += blockDim.x) {
        const int e = (q & ~(j - 1)) * 2 | (q & (j - 1)), f = e | j;
        const unsigned long long a = keys[e], b = keys[f];
        if ((e & k) != 0 ? a > b : a < b) {
          keys[e] = b;
          keys[f] = a;
        }
      }
      __syncthreads();
    }
}

static inline int amp_power_from(int64_t n)
{
  int m = 1;
  while (m < n) m *= 2;
  return m;
}

#endif
