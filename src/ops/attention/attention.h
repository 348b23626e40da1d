/*
** ops/attention/attention.h: what the attention kernels share: one call as a job over
** (batch, chunk of query rows), and where its rows lie.
**
** Every tensor has the same leading dimensions, the batch; a head that serves
** several query heads is a dimension of stride 0 there, as is a mask's that is
** the same for all. Strides are the tensors' own, nothing is copied whole.
*/
#ifndef AMP_CPU_ATTENTION_H
#define AMP_CPU_ATTENTION_H
#include "cpu/gemm.h"
#include "cpu/kernel_help.h"
#include "cpu/philox.h"

typedef struct attention {
  const amp_tensor *query, *key, *value, *mask, *out, *lse; /* mask may be NULL */
  const amp_tensor *grad, *dquery, *dkey, *dvalue;          /* backward only */
  int type;                                                 /* computing type */
  int64_t batch, length, keys, size, value_size;            /* length x size queries; keys x size, keys x value_size */
  int64_t block_rows, block_keys;                           /* a block of scores */
  int64_t chunks; /* parts of a batch's rows that go to threads of their own */
  double scale;
  bool causal, dropping; /* dropping: weights are dropped, by random numbers */
  double kept_scale;     /* of those that are not: 1 / (1 - p), or 0 */
  uint64_t seed, counter;
  uint32_t least;          /* words below it drop their weights */
  size_t gemm_bytes, each; /* scratch: of a product, of a thread */
  char *scratch;
} attention;

/* Where a batch of tensor starts, in elements */
static inline int64_t attention_at(const amp_tensor *tensor, int64_t batch)
{
  int64_t off = 0;
  for (int dim = tensor->ndim - 3; dim >= 0; dim--) {
    off += batch % tensor->size[dim] * tensor->stride[dim];
    batch /= tensor->size[dim];
  }
  return off;
}

/* Two blocks of random words that follow each other, the second where it was needed */
typedef struct attention_draw {
  int64_t block; /* the first one's number, or -1 */
  bool second;
  uint32_t words[2 * AMP_RNG_BLOCK] __attribute__((aligned(64)));
} attention_draw;

/* The random words for row i of a batch and `count` keys (at most a block) from j on: those that dropout would take for
** a matrix of all weights */
static inline const uint32_t *attention_words(const attention *job, attention_draw *draw, int64_t batch, int64_t i,
                                              int64_t j, int64_t count)
{
  int64_t from = (batch * job->length + i) * job->keys + j, block = from / AMP_RNG_BLOCK;
  uint64_t counter = job->counter + (uint64_t)block * (AMP_RNG_BLOCK / 4);
  uint32_t *next = draw->words + AMP_RNG_BLOCK;
  if (draw->block != block) {
    if (draw->second && draw->block == block - 1) memcpy(draw->words, next, sizeof *next * AMP_RNG_BLOCK);
    else amp__philox_block(draw->words, job->seed, counter);
    draw->block = block;
    draw->second = false;
  }
  if (!draw->second && (from + count - 1) / AMP_RNG_BLOCK > block) {
    amp__philox_block(next, job->seed, counter + AMP_RNG_BLOCK / 4);
    draw->second = true;
  }
  return draw->words + from % AMP_RNG_BLOCK;
}

/* Elements (of the computing type) of the scratch of one thread */
size_t amp__attention_forward_size_f32(const attention *job);
size_t amp__attention_forward_size_f64(const attention *job);
size_t amp__attention_backward_size_f32(const attention *job);
size_t amp__attention_backward_size_f64(const attention *job);
/* One unit of work: a batch, and (forward) rows lo .. hi - 1 */
void amp__attention_forward_f32(const attention *job, int64_t batch, int64_t lo, int64_t hi, void *scratch);
void amp__attention_forward_f64(const attention *job, int64_t batch, int64_t lo, int64_t hi, void *scratch);
void amp__attention_backward_f32(const attention *job, int64_t batch, void *scratch);
void amp__attention_backward_f64(const attention *job, int64_t batch, void *scratch);

#endif
