/*
** cpu/strided.h: the strided iteration engine under all elementwise kernels.
**
** A kernel gives operands (results first) and a loop over dense arrays of their
** compute classes. The engine broadcasts, drops and merges dimensions, orders
** them by the first operand's strides, shares the work among threads, and hands
** the loop whole runs where memory is already as the loop wants it, else chunks
** of 512 elements converted into small buffers (and results back).
**
**   out [f16, strided]  <- store <- float[512] <- loop <- float[512] <- load <- in [f16]
**
** An operand that does not move along the inner dimension is given as one value
** if the loop says it can take that (bit i of `scalar`); else it is repeated.
*/
#ifndef AMP_CPU_STRIDED_H
#define AMP_CPU_STRIDED_H
#include "cpu/convert.h"

enum { AMP_MAX_OP = 6, AMP_CHUNK = 512 };

/* p[i]: operand i, results first; bit i of scalar: p[i] is one value, not n. */
typedef void (*amp_loop_fn)(int64_t count, void *const *p, unsigned scalar, const void *arg);

typedef struct amp_operand {
  char *p;
  uint8_t dtype, cls;
  int64_t stride[AMP_MAX_DIM]; /* elements, may be 0 or negative */
} amp_operand;

typedef struct amp_loop {
  amp_loop_fn f; /* NULL: copy operand 1 to operand 0 */
  const void *arg;
  uint8_t nout;
  uint8_t scalar; /* bit i: operand i may be given as one value */
  uint16_t cost;  /* of an element, in additions */
} amp_loop;

/* Over a shape. The operands are changed (merged) in place. */
void amp__iterate(const amp_loop *loop, int ndim, const int64_t *size, int nop, amp_operand *operand);
/* Over tensors of the CPU, broadcast to tensors[0]'s shape; cls: one class an operand. */
void amp__elementwise(const amp_loop *loop, int nop, amp_tensor *const *tensors, const uint8_t *cls);
/* Strides of tensor (elements) as an operand of a shape it broadcasts to */
void amp__operand(amp_operand *operand, const amp_tensor *tensor, int cls, int ndim, const int64_t *size);
/* Class in which these `count` inputs (NULL: absent) and a result of dtype out (-1: none) are computed */
int amp__class_of(int out, amp_tensor *const *inputs, int count);

/* Copy with broadcast and cast, without checks. */
void amp__copy_raw(int ndim, const int64_t *size, void *dst, int ddtype, const int64_t *dstride, const void *src,
                   int sdtype, const int64_t *sstride);
/* dst <- src, broadcast and cast; an error if a float does not fit an integer dtype. Tensors of the CPU. */
int amp__copy_to(amp_tensor *dst, const amp_tensor *src);
/* tensor in dtype and C order: tensor itself (counted) or a copy. NULL: error. */
amp_tensor *amp__dense(amp_tensor *tensor, int dtype);
int amp__fill_value(amp_tensor *tensor, double v);
/* An error unless every element of tensor can be cast to dtype */
int amp__check_cast(const amp_tensor *tensor, int dtype);

/* A row's kernel of the CPU on tensors as they are; a: its attributes (NULL: the defaults) */
int amp__cpu_row(int op, int nin, amp_tensor *const *inputs, int nout, amp_tensor *const *out, const amp_slot *attrs);

/* Split [0, n) among threads in multiples of `grain` and run body on each part */
typedef void (*amp_part_fn)(int64_t begin, int64_t end, void *ctx);
void amp__parallel(int threads, int64_t count, int64_t grain, amp_part_fn body, void *ctx);

#endif
