/*
** cpu_linalg_own.c: the table of factorisations by own loops, which every op of
** linear algebra works with where there is no LAPACK, and which small matrices
** always use: without LAPACK's preparations they are faster. LU, Cholesky,
** triangular solves and QR are cpu_linalg_body.h's, in float and in double;
** singular and eigenvalues are cpu_linalg_jacobi.c's.
*/
#include <math.h>
#include <stdlib.h>
#include "cpu_gemm.h"
#include "cpu_linalg.h"
#include "cpu_math.h"

enum { BASE = 32, WIDE = 64 };

#define T float
#define TYPE AMP_FLOAT32
#define NAME(x) x##_f32
#include "cpu_linalg_body.h"
#undef T
#undef TYPE
#undef NAME
#define T double
#define TYPE AMP_FLOAT64
#define NAME(x) x##_f64
#include "cpu_linalg_body.h"

static int lu(int type, int64_t n, void *a, int32_t *piv) {
  return type == AMP_FLOAT64 ? lu_part_f64(n, n, a, n, piv) : lu_part_f32(n, n, a, n, piv);
}

static int lu_solve(int type, bool transpose, int64_t n, int64_t k, const void *lu, const int32_t *piv, void *b) {
  return type == AMP_FLOAT64 ? lu_solve_f64(transpose, n, k, lu, piv, b) : lu_solve_f32(transpose, n, k, lu, piv, b);
}

static int lu_inverse(int type, int64_t n, void *a, const int32_t *piv) {
  return type == AMP_FLOAT64 ? lu_inverse_f64(n, a, piv) : lu_inverse_f32(n, a, piv);
}

static int cholesky(int type, int64_t n, void *a) {
  return type == AMP_FLOAT64 ? cholesky_part_f64(n, a, n) : cholesky_part_f32(n, a, n);
}

static int triangular(int type, bool upper, bool transpose, bool unit, int64_t n, int64_t k, const void *a, void *b) {
  return type == AMP_FLOAT64 ? triangular_f64(upper, transpose, unit, n, k, a, b) : triangular_f32(upper, transpose, unit, n, k, a, b);
}

static int qr(int type, int64_t m, int64_t n, int64_t nq, void *a, void *q) {
  return type == AMP_FLOAT64 ? qr_f64(m, n, nq, a, q) : qr_f32(m, n, nq, a, q);
}

const amp_linalg amp__linalg_own = { lu, lu_solve, lu_inverse, cholesky, triangular, qr, amp__jacobi_svd, amp__jacobi_eigh };
