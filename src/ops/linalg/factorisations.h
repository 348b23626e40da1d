/*
** ops/linalg/factorisations.h: dense factorisations, the seam between the rows of linear
** algebra and who does the arithmetic: own loops (ops/linalg/linalg_own.c) or LAPACK
** (the plug-in libamp_lapack.so, for matrices large enough to be worth it).
**
** Matrices lie column by column, in float32 or float64 (`type`), without gaps:
** element (i, j) of an m x n matrix stands at i + j * m. A matrix of a tensor in
** C order is thus seen transposed, which callers make use of. Functions give 0,
** a positive number where the matrix has no such factor (said at each), or
** AMP_E_MEMORY, without a text. They may be called from any thread.
*/
#ifndef AMP_OPS_FACTORISATIONS_H
#define AMP_OPS_FACTORISATIONS_H
#include "core.h"

typedef struct amp_linalg {
  /* P A = L U in place (L's diagonal of ones is not kept); row i was exchanged with row piv[i] (from 0). k > 0: U(k,
  ** k) is 0. */
  int (*lu)(int type, int64_t n, void *a, int32_t *piv);
  /* b (n x k) <- A^-1 b, or A^-T b, by lu's factors */
  int (*lu_solve)(int type, bool transpose, int64_t n, int64_t k, const void *lu, const int32_t *piv, void *b);
  /* a <- A^-1 by lu's factors in a */
  int (*lu_inverse)(int type, int64_t n, void *a, const int32_t *piv);
  /* Lower triangle of a <- L of A = L L^T; what stands above is lost. k > 0: the leading minor of order k is not
  ** positive. */
  int (*cholesky)(int type, int64_t n, void *a);
  /* b (n x k) <- A^-1 b or A^-T b for a triangular A, the other triangle of which is not read */
  int (*triangular)(int type, bool upper, bool transpose, bool unit, int64_t n, int64_t k, const void *a, void *b);
  /* A = Q R: upper triangle of a <- R; q <- Q's first q_cols columns, min(m, n) or m */
  int (*qr)(int type, int64_t m, int64_t n, int64_t q_cols, void *a, void *q);
  /* A = U diag(s) V^T, r = min(m, n): u m x nu, vt nv x n; r or all columns each. u, vt NULL: values alone. a is lost.
  ** k > 0: it did not converge, or A is not finite. */
  int (*svd)(int type, int64_t m, int64_t n, int64_t nu, int64_t nv, void *a, void *s, void *u, void *vt);
  /* w rising; a <- eigenvectors if wanted. The lower triangle is read. k > 0 as in svd. */
  int (*eigh)(int type, bool vectors, int64_t n, void *a, void *w);
} amp_linalg;

extern const amp_linalg amp__linalg_own;

#endif
