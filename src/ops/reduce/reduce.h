/*
** ops/reduce/reduce.h: the geometry that reductions share.
**
** A plan sorts a tensor's dimensions into kept and reduced ones, each innermost
** first and merged where strides allow. `columns` says which way memory runs:
** along the kept dimension (then whole rows of columns are folded at once) or
** along the reduced one.
*/
#ifndef AMP_CPU_REDUCE_H
#define AMP_CPU_REDUCE_H
#include "cpu/strided.h"

typedef struct amp_rplan {
  int kept_dims, reduced_dims; /* at least 1 each */
  int64_t kept_size[AMP_MAX_DIM], kept_in[AMP_MAX_DIM], kept_out[AMP_MAX_DIM];
  int64_t reduced_size[AMP_MAX_DIM], reduced_in[AMP_MAX_DIM];
  int64_t outputs, reduced; /* numbers of results, and of elements in each */
  int64_t blocks, per_row;  /* runs of at most AMP_CHUNK results; runs in a row of kept_size[0] */
  bool columns;
  const char *input;
  char *out;
  int item_size, out_item_size, dtype, out_dtype;
} amp_rplan;

/* outdim[d]: the dimension of out that dimension d of in becomes, -1: reduced */
void amp__rplan(amp_rplan *plan, const amp_tensor *input, const amp_tensor *out, const int *outdim);
/* The usual case: mask of reduced dimensions, out with or without them */
void amp__rplan_mask(amp_rplan *plan, const amp_tensor *input, const amp_tensor *out, uint32_t mask);
uint32_t amp__rmask(const amp_slot *dims); /* of a D attribute */

/* Means of input over the dimensions of mask into a tensor of float64, exact to its last places but for x's float32
** sums about an element */
int amp__means(const amp_tensor *input, uint32_t mask, amp_tensor *mean);

typedef struct amp_rblock {
  const char *from;
  char *out;
  int64_t kept;
  int count;
} amp_rblock; /* kept: offset of out[0] in elements */
void amp__rblock(const amp_rplan *plan, int64_t b, amp_rblock *x);
/* Walk the reduced index from `at` on: pointer offset (elements) of it, and how many more lie on this inner run */
typedef struct amp_rpos {
  int64_t index[AMP_MAX_DIM], offset;
} amp_rpos;
void amp__rseek(const amp_rplan *plan, amp_rpos *pos, int64_t at);
void amp__rnext(const amp_rplan *plan, amp_rpos *pos,
                int64_t count); /* count steps along the inner dimension, at most to its end */

/*
** A reducer folds elements. Two levels of accumulation make sums both fast and
** accurate: many float32 lanes (of a row, or one a column) take at most a few
** dozen elements each, then go into float64. The loops: ops/reduce/reducers.c.
*/
typedef struct amp_reducer {
  void (*row)(int64_t n, const void *x, const void *param, void *acc); /* fold n elements into one accumulator */
  void (*cols)(int64_t n, const void *x, int64_t stride, int rows, const void *param,
               void *lane);                             /* lane[j] takes x[k * stride + j], k < rows */
  void (*init)(int64_t n, void *lane, void *acc);       /* either may be NULL */
  void (*fold)(int64_t n, const void *lane, void *acc); /* acc[j] takes lane[j] */
  void (*join)(int64_t n, const void *from, void *acc);
  uint8_t cls, acc_cls;
  uint8_t sums; /* accumulations of an element; the second one lies AMP_CHUNK places on */
} amp_reducer;
extern const amp_reducer amp__fold_sum_d, amp__fold_sum_i, amp__fold_prod_d, amp__fold_prod_i, amp__fold_beyond_f,
    amp__fold_beyond_d, amp__fold_exp_f, amp__fold_exp_d, amp__fold_max_f, amp__fold_max_d, amp__fold_max_i,
    amp__fold_min_f, amp__fold_min_d, amp__fold_min_i, amp__fold_square_f, amp__fold_square_d, amp__fold_abs_f,
    amp__fold_abs_d, amp__fold_most_f, amp__fold_most_d, amp__fold_least_f, amp__fold_least_d, amp__fold_other_f,
    amp__fold_other_d, amp__fold_power_f, amp__fold_power_d, amp__fold_any_u, amp__fold_all_u, amp__fold_moments_d,
    amp__fold_total_f, amp__fold_moments_f;
/* The whole reduced index of a block into acc; param: one value of the reducer's class a column, or NULL
** (ops/reduce/fold.c) */
void amp__fold_block(const amp_rplan *plan, const amp_reducer *reducer, const amp_rblock *block, const char *param,
                     char *acc, int threads);

/* max and min over everything (ops/reduce/reduce.c) */
int amp__max_all(amp_call *call);
int amp__min_all(amp_call *call);

#endif
