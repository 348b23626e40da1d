/*
** cpu_index.h: what kernels that take index tensors share.
*/
#ifndef AMP_CPU_INDEX_H
#define AMP_CPU_INDEX_H
#include "cpu_iter.h"

int amp__index_error(int64_t i, int64_t at, int dim, int64_t size);
/* The values of an index tensor, in C order, counting from 0, all within [0, size). NULL: error.
** They live in *hold, an int64 tensor of t's shape. */
int64_t *amp__indices(amp_tensor *t, int dim, int64_t size, amp_tensor **hold);

/* out (of the index's shape) = x at `index` along dim; dtypes equal. Checks the indices as it goes */
int amp__gather(amp_tensor *index, int dim, const amp_tensor *x, const amp_tensor *out);

/* x += y at the index along dim; both of dtype float32, float64 or int64 */
int amp__scatter_sum(amp_tensor *index, int dim, const amp_tensor *x, const amp_tensor *y);

/* Where sums into `out` are made: out itself, or a wider copy that is written back at the end. */
typedef struct amp_accumulator { amp_tensor *t, *out; int cls; } amp_accumulator;
int amp__accumulator(amp_accumulator *a, amp_tensor *out);
int amp__accumulated(amp_accumulator *a, int rc); /* write back unless rc < 0; frees; passes rc on */

#endif
