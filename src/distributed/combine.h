/*
** distributed/combine.h: the ranks' shares made one.
*/
#ifndef AMP_DIST_COMBINE_H
#define AMP_DIST_COMBINE_H
#include "base/base.h"

/* out = parts[0] op parts[1] ..., each of count elements; op: enum amp_dist_op. out may be one of the parts. */
void amp__dist_combine(int dtype, int op, void *out, void *const *parts, int n, int64_t count);

#endif
