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

typedef struct attention {
  const amp_tensor *query, *key, *value, *mask, *out, *lse; /* mask may be NULL */
  const amp_tensor *grad, *dquery, *dkey, *dvalue;          /* backward only */
  int type;                                                 /* computing type */
  int64_t batch, length, keys, size, value_size;            /* length x size queries; keys x size, keys x value_size */
  int64_t block_rows, block_keys;                           /* a block of scores */
  int64_t chunks; /* parts of a batch's rows that go to threads of their own */
  double scale;
  bool causal;
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
