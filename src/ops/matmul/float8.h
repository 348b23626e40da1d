/*
** ops/matmul/float8.h: what kernels and shape rules of 8-bit products share, on every device.
*/
#ifndef AMP_OPS_MATMUL_FLOAT8_H
#define AMP_OPS_MATMUL_FLOAT8_H
#include <stdint.h>
#include "amp.h"

enum { AMP_FLOAT8_PIECE = 128 }; /* elements of a row that share a scale under the recipe `block` */
static inline int64_t amp__float8_pieces(int64_t row) { return (row + AMP_FLOAT8_PIECE - 1) / AMP_FLOAT8_PIECE; }
/* The largest value of a format; a scale is this over the largest |x|. */
static inline double amp__float8_most(int64_t format) { return format == AMP_FLOAT8_E5M2 ? 57344.0 : 448.0; }

#endif
