/*
** cpu/gemm.h: C = A B (+ C) (+ bias), float32 and float64, any strides.
**
** A is m x k, B is k x n, C is m x n; each has a row and a column stride in
** elements, so transposes cost nothing to ask for. Either operand may be
** implicit: a function that writes packed panels (a convolution never builds
** its column matrix in memory).
**
** A panel is `width` rows of A (or columns of B) with k running slowest:
** dst[panel][k][width]. A packer may write up to AMP_GEMM_SLACK elements past
** each panel's end, and what stands in lanes past the matrix's edge does not
** matter as long as it is a number that may be read.
**
** Memory: the caller lends scratch, amp__gemm_scratch() bytes (may be 0).
** No dtypes but float and double here, and no autocast, no shapes of ops.
*/
#ifndef AMP_CPU_GEMM_H
#define AMP_CPU_GEMM_H
#include "core.h"

enum { AMP_GEMM_SLACK = 8 };

/* Panels of rows i0 .. i0 + ni - 1 (of A; of B's columns), k from k0 on. */
typedef void (*amp_pack_fn)(const void *ctx, int64_t k0, int64_t kc, int64_t i0, int64_t ni, int width, void *dst);

typedef struct amp_gemm {
  int64_t m, n, k;
  const void *a, *b;
  void *c;
  int64_t ars, acs, brs, bcs, crs, ccs;
  amp_pack_fn pack_a, pack_b; /* not NULL: a (b) is the function's context */
  int64_t first_a, first_b;   /* added to i0 in calls of pack_a, pack_b */
  const void *packed_b;       /* NULL, or a B that amp__gemm_pack_b packed (one thread; C's columns contiguous) */
  int64_t packed_k, packed_n; /* sizes it was packed with: at least k and n */
  const void *bias;           /* NULL or bias[i * bias_rs + j * bias_cs] */
  int64_t bias_rs, bias_cs;
  bool accumulate; /* C += */
} amp_gemm;

/* Scratch for one thread's run of gemm; dtype AMP_FLOAT32 or AMP_FLOAT64. */
size_t amp__gemm_scratch(const amp_gemm *gemm, int dtype);
void amp__gemm(const amp_gemm *gemm, int dtype, void *scratch);
/* The same on up to `threads` threads, with scratch of its own. 0 or an error. */
int amp__gemm_threads(const amp_gemm *gemm, int dtype, int threads);
/* For packers: one panel out of n <= width lines that are contiguous along k; lanes past n repeat the last line. */
void amp__gemm_pack_lines(int dtype, const void *const *lines, int n, int64_t kc, int width, void *dst);
/* B packed once for many products: bytes it takes, and the packing (b, brs, bcs, k and n of gemm are read). */
size_t amp__gemm_packed_size(const amp_gemm *gemm, int dtype);
void amp__gemm_pack_b(const amp_gemm *gemm, int dtype, void *dst);
/* C = A B + bias in any one integer dtype, wrapping around. */
void amp__gemm_int(const amp_gemm *gemm, int dtype);

#endif
