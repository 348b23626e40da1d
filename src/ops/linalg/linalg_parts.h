/*
** ops/linalg/linalg_parts.h: what shape rules, composites and derivatives of linear algebra share.
*/
#ifndef AMP_OPS_LINALG_PARTS_H
#define AMP_OPS_LINALG_PARTS_H
#include "dispatch/op_builder.h"

/* Of matrices, and of square ones: 0 or an error (ops/linalg/linalg_shape.c) */
int amp__want_matrix(const amp_tensor *input, int arg, const char *what);
int amp__want_square(const amp_tensor *input, int arg, const char *what);

/* Rows of this room as formulas take them (ops/linalg/linalg_composite.c) */
amp_tensor *amp__op_linear_solve(amp_tensor *left, amp_tensor *right, bool adjoint);
amp_tensor *amp__op_trisolve(amp_tensor *left, amp_tensor *right, bool upper, bool transpose, bool unit);

#endif
