/*
** tensor/tensor.h: dtype, sizes and strides over a counted storage. A function that returns
** amp_tensor* gives its caller one count unless it says "borrowed".
*/
#ifndef AMP_TENSOR_TENSOR_H
#define AMP_TENSOR_TENSOR_H
#include "tensor/memory.h"
#ifdef __cplusplus
extern "C" {
#endif

/* What an output will be; outputs may lie in the storage of the first (which then says how large that is). */
enum { AMP_M_C_ORDER, AMP_M_STRIDES, AMP_M_ROOM, AMP_M_SHARED };
enum {
  AMP_HALF_COPY = 3
}; /* where a call's output in 16 bits is, for the cast that a region will want (precision/cast.c); not a result */
typedef struct amp_meta {
  uint8_t dtype, ndim, device, device_index;
  uint8_t strides; /* C order; as stride[] says; so, in a storage of `room` elements; so, in out[0]'s storage from
                      `room` on */
  int64_t room;
  int64_t size[AMP_MAX_DIM];
  int64_t stride[AMP_MAX_DIM];
} amp_meta;

amp_tensor *amp__tensor_new(const amp_meta *meta); /* with storage, not filled */
amp_tensor *amp__tensor_make(int dtype, int device, int index, int ndim, const int64_t *size);
amp_tensor *amp__tensor_view(const amp_tensor *tensor, int ndim, const int64_t *size, const int64_t *stride,
                             int64_t offset);            /* same storage, no history */
amp_tensor *amp__tensor_alias(const amp_tensor *tensor); /* the same view, no history */
amp_tensor *amp__tensor_of(amp_storage *storage, int dtype, int ndim, const int64_t *size, const int64_t *stride,
                           int64_t offset); /* counts storage */
amp_tensor *amp__number(double v);          /* AMP_T_NUMBER, float64, cpu, 0-d */
static inline void amp__retain(amp_tensor *tensor)
{
  AMP_ASSERT(tensor->refs > 0); /* the caller holds a count, or borrows one */
  __atomic_fetch_add(&tensor->refs, 1, __ATOMIC_RELAXED);
}
void amp__free(amp_tensor *tensor);             /* drops one count; NULL is fine */
void amp__tensor_set_flags(amp_tensor *tensor); /* CONTIGUOUS, DENSE, numel from sizes and strides */
bool amp__view_strides(const amp_tensor *tensor, int ndim, const int64_t *size,
                       int64_t *stride); /* false: it takes a copy */
void amp__meta_of(const amp_tensor *tensor, amp_meta *meta);
void amp__contiguous_strides(int ndim, const int64_t *size, int64_t *stride);
int amp__check_size(int ndim, const int64_t *size, int dtype, int64_t *numel); /* overflow, negative: error */
static inline void *amp__data(const amp_tensor *tensor)
{
  return (char *)tensor->storage->data + tensor->offset * amp__dtype_size[tensor->dtype];
}
#define AMP_DATA(type, t) ((type *)amp__data(t))
static inline bool amp__tracked(const amp_tensor *tensor)
{
  return (tensor->flags & (AMP_T_REQUIRES_GRAD | AMP_T_HISTORY)) != 0;
}
static inline uint32_t amp__version(const amp_tensor *tensor) { return tensor->storage->version; }
static inline void amp__bump(amp_tensor *tensor)
{
  AMP_ASSERT(tensor->storage->refs > 0);
  tensor->storage->version++;
  if (amp_unlikely(amp__capturing)) amp__capture_bump(tensor->storage);
}
static inline bool amp__same_size(const amp_tensor *a, const amp_tensor *b)
{
  return a->ndim == b->ndim && memcmp(a->size, b->size, sizeof(int64_t) * a->ndim) == 0;
}
bool amp__same_place(const amp_tensor *a, const amp_tensor *b); /* the same elements in the same order */
bool amp__may_overlap(const amp_tensor *a,
                      const amp_tensor *b); /* they share bytes. Bounds only: it may say so of interleaved views */
/* All elements of part lie between the first and the last of whole: those of its views do, until it lies elsewhere
** (amp_set_data) */
bool amp__lies_in(const amp_tensor *part, const amp_tensor *whole);
int amp__stream_here(int device, int index); /* the stream of this thread, 0 without streams */
/* A device works on tensor outside of dispatch, which touches operands and results itself. NULL is fine */
static inline void amp__touch(const amp_tensor *tensor)
{
  if (amp_unlikely(amp__streamed) && tensor && tensor->device != AMP_CPU && tensor->storage->block)
    amp__block_touch(tensor->storage->block);
}
double amp__element(const amp_tensor *tensor, int64_t offset); /* CPU memory, element offset from the tensor's start */
amp_tensor *amp__on_cpu(amp_tensor *tensor);                   /* tensor or a copy in CPU memory, counted */

#ifdef __cplusplus
}
#endif
#endif
