/*
** cpu_attention.h: what the attention kernels share: one call as a job over
** (batch, chunk of query rows), and where its rows lie.
**
** Every tensor has the same leading dimensions, the batch; a head that serves
** several query heads is a dimension of stride 0 there, as is a mask's that is
** the same for all. Strides are the tensors' own, nothing is copied whole.
*/
#ifndef AMP_CPU_ATTENTION_H
#define AMP_CPU_ATTENTION_H
#include "cpu_gemm.h"
#include "cpu_nn.h"

typedef struct attention {
  const amp_tensor *q, *k, *v, *mask, *out, *lse;   /* mask may be NULL */
  const amp_tensor *g, *dq, *dk, *dv;               /* backward only */
  int type;                                         /* computing type */
  int64_t batch, length, keys, size, vsize;         /* length x size queries; keys x size, keys x vsize */
  int64_t bq, bk;                                   /* a block of scores */
  int64_t chunks;                                   /* parts of a batch's rows that go to threads of their own */
  double scale;
  bool causal;
  size_t gemm_bytes, each;                          /* scratch: of a product, of a thread */
  char *scratch;
} attention;

/* Where batch b of t starts, in elements */
static inline int64_t attention_at(const amp_tensor *t, int64_t b) {
  int64_t off = 0;
  for (int d = t->ndim - 3; d >= 0; d--) {
    off += b % t->size[d] * t->stride[d];
    b /= t->size[d];
  }
  return off;
}

/* Elements (of the computing type) of the scratch of one thread */
size_t amp__attention_forward_size_f32(const attention *a);
size_t amp__attention_forward_size_f64(const attention *a);
size_t amp__attention_backward_size_f32(const attention *a);
size_t amp__attention_backward_size_f64(const attention *a);
/* One unit of work: batch b, and (forward) rows lo .. hi - 1 */
void amp__attention_forward_f32(const attention *a, int64_t b, int64_t lo, int64_t hi, void *scratch);
void amp__attention_forward_f64(const attention *a, int64_t b, int64_t lo, int64_t hi, void *scratch);
void amp__attention_backward_f32(const attention *a, int64_t b, void *scratch);
void amp__attention_backward_f64(const attention *a, int64_t b, void *scratch);

#endif
