/* cat.cuh: tensors joined along dim (from 0) in a launch or a few (cat.cu). 1: not taken, for operands with gaps or
** of other dtypes */
#ifndef AMP_CAT_CUH
#define AMP_CAT_CUH
#include "common/kernel.cuh"

int amp_cat_many(const amp_tensor *o, int dim, amp_tensor *const *in, int n);

#endif
