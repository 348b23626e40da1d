/*
** ops/index/index_values.h: what kernels that take index tensors share.
*/
#ifndef AMP_OPS_INDEX_VALUES_H
#define AMP_OPS_INDEX_VALUES_H
#include "cpu/strided.h"

int amp__index_error(int64_t i, int64_t place, int dim, int64_t size);
/* The values of an index tensor, in C order, counting from 0, all within [0, size). NULL: error.
** They live in *hold, an int64 tensor of the same shape. */
int64_t *amp__indices(amp_tensor *tensor, int dim, int64_t size, amp_tensor **hold);

/* out (of the index's shape) = input at `index` along dim; dtypes equal. Checks the indices as it goes */
int amp__gather(amp_tensor *index, int dim, const amp_tensor *input, const amp_tensor *out);

/* indexed += values at the index along dim; both of dtype float32, float64 or int64 */
int amp__scatter_sum(amp_tensor *index, int dim, const amp_tensor *indexed, const amp_tensor *values);

/* Where sums into `out` are made: out itself, or a wider copy that is written back at the end. */
typedef struct amp_accumulator {
  amp_tensor *tensor, *out;
  int cls;
} amp_accumulator;
int amp__accumulator(amp_accumulator *acc, amp_tensor *out);
int amp__accumulated(amp_accumulator *acc, int status); /* write back unless status < 0; frees; passes status on */

#endif
