/*
** vision_boxes.cu: row box_suppress: which boxes of each image, the best first, stay.
**
** Two launches. The first compares all pairs: a thread has a box and makes one word, whose bits
** are the boxes of a block of 64 that it would suppress; K^2 / 8 bytes an image, the upper half
** of them used. The second walks an image's boxes in blocks of 64, a CUDA block an image: one thread
** decides the 64 by their own words, in registers, then all threads join the words of those that
** stay into the row of boxes that are gone, in shared memory. Two barriers a block of 64, no host.
*/
#include "common/kernel.cuh"
#include "../src/ops/vision/boxes.h"

namespace {

enum { BITS = 64, WALKERS = 256 };

typedef struct suppressing {
  const float *boxes;
  const int64_t *groups;
  unsigned long long *words; /* N x K x blocks */
  uint8_t *stays;
  int64_t count, blocks;
  float threshold;
  bool inclusive;
} suppressing;

__global__ void __launch_bounds__(BITS) compare_pairs(const suppressing job)
{
  __shared__ float box[BITS * 4];
  __shared__ int64_t group[BITS];
  const int64_t image = blockIdx.z, column = blockIdx.x, row = blockIdx.y, first = image * job.count;
  const int64_t mine = row * BITS + threadIdx.x, other = column * BITS + threadIdx.x;
  if (column < row) return;
  if (other < job.count) {
    for (int i = 0; i < 4; i++) box[threadIdx.x * 4 + i] = job.boxes[(first + other) * 4 + i];
    group[threadIdx.x] = job.groups[first + other];
  }
  __syncthreads();
  if (mine >= job.count) return;
  float own[4];
  for (int i = 0; i < 4; i++) own[i] = job.boxes[(first + mine) * 4 + i];
  const int64_t own_group = job.groups[first + mine];
  unsigned long long word = 0;
  const int64_t rest = job.count - column * BITS;
  const int end = rest < BITS ? (int)rest : BITS;
  for (int k = column == row ? (int)threadIdx.x + 1 : 0; k < end; k++) {
    if (group[k] != own_group) continue;
    float iou = amp__box_iou(own, box + k * 4);
    if (iou > job.threshold || (job.inclusive && iou == job.threshold)) word |= 1ull << k;
  }
  job.words[(first + mine) * job.blocks + column] = word;
}

__global__ void __launch_bounds__(WALKERS) walk_boxes(const suppressing job)
{
  AMP_SHARED(unsigned long long, gone); /* a word a block of boxes, then the word of those that stay */
  const int64_t first = (int64_t)blockIdx.x * job.count;
  for (int64_t b = threadIdx.x; b < job.blocks; b += WALKERS) gone[b] = 0;
  __syncthreads();
  for (int64_t b = 0; b < job.blocks; b++) {
    const int64_t rest = job.count - b * BITS;
    const int here = rest < BITS ? (int)rest : BITS;
    if (threadIdx.x == 0) {
      unsigned long long out = gone[b], stay = 0;
      for (int i = 0; i < here; i++) {
        const int64_t at = first + b * BITS + i;
        const bool stays = job.groups[at] >= 0 && !(out >> i & 1);
        if (stays) {
          stay |= 1ull << i;
          out |= job.words[at * job.blocks + b];
        }
        job.stays[at] = stays;
      }
      gone[job.blocks] = stay;
    }
    __syncthreads();
    const unsigned long long stay = gone[job.blocks];
    for (int64_t c = b + 1 + threadIdx.x; stay && c < job.blocks; c += WALKERS) {
      unsigned long long out = gone[c];
      for (int i = 0; i < here; i++)
        if (stay >> i & 1) out |= job.words[(first + b * BITS + i) * job.blocks + c];
      gone[c] = out;
    }
    __syncthreads();
  }
}

} // namespace

extern "C" int amp__cuda_box_suppress(amp_call *c)
{
  const args_box_suppress *args = AMP_ARGS(c, box_suppress);
  amp_tensor *out = c->out[0];
  int64_t images = out->size[0], count = out->size[1], blocks = (count + BITS - 1) / BITS;
  if (out->numel == 0) return 0;
  if (blocks > 6000 || images > 65535)
    return amp__fail(AMP_E_UNSUPPORTED, "suppression of more than %d boxes an image, or of more than 65535 images",
                     6000 * BITS);
  amp_tensor *boxes = amp__cuda_dense(c->in[0], AMP_FLOAT32), *groups = amp__cuda_dense(c->in[1], AMP_INT64);
  amp_tensor *stays = amp__cuda_make(AMP_BOOL, 2, out->size);
  amp_tensor *words = amp__cuda_scratch((size_t)images * (size_t)count * (size_t)blocks * 8);
  int rc = boxes && groups && stays && words ? 0 : AMP_E_MEMORY;
  if (rc == 0) {
    suppressing job = { AMP_DATA(const float, boxes),
                        AMP_DATA(const int64_t, groups),
                        AMP_DATA(unsigned long long, words),
                        AMP_DATA(uint8_t, stays),
                        count,
                        blocks,
                        (float)args->iou_threshold,
                        args->inclusive != 0 };
    AMP_LAUNCH(compare_pairs, dim3((unsigned)blocks, (unsigned)blocks, (unsigned)images), BITS, 0, job);
    AMP_LAUNCH(walk_boxes, (unsigned)images, WALKERS, (size_t)(blocks + 1) * 8, job);
    rc = amp__cuda_copy_to(out, stays);
  }
  amp__free(words);
  amp__free(stays);
  amp__free(groups);
  amp__free(boxes);
  return rc;
}
