/*
** ops/linalg/linalg_own.c: the table of factorisations by own loops, which every op of
** linear algebra works with where there is no LAPACK, and which small matrices
** always use: without LAPACK's preparations they are faster. LU, Cholesky,
** triangular solves and QR are ops/linalg/linalg_body.h's, in float and in double;
** singular and eigenvalues are ops/linalg/linalg_jacobi.c's.
*/
#include <math.h>
#include <stdlib.h>
#include "cpu/gemm.h"
#include "ops/linalg/linalg.h"
#include "cpu/vector_math.h"

enum { BASE = 32, WIDE = 64 };

#define real float
#define TYPE AMP_FLOAT32
#define NAME(x) x##_f32
#include "ops/linalg/linalg_body.h"
#undef real
#undef TYPE
#undef NAME
#define real double
#define TYPE AMP_FLOAT64
#define NAME(x) x##_f64
#include "ops/linalg/linalg_body.h"

static int lu(int type, int64_t n, void *matrix, int32_t *piv)
{
  return type == AMP_FLOAT64 ? lu_part_f64(n, n, matrix, n, piv) : lu_part_f32(n, n, matrix, n, piv);
}

static int lu_solve(int type, bool transpose, int64_t n, int64_t k, const void *factors, const int32_t *piv, void *rhs)
{
  return type == AMP_FLOAT64 ? lu_solve_f64(transpose, n, k, factors, piv, rhs)
                             : lu_solve_f32(transpose, n, k, factors, piv, rhs);
}

static int lu_inverse(int type, int64_t n, void *matrix, const int32_t *piv)
{
  return type == AMP_FLOAT64 ? lu_inverse_f64(n, matrix, piv) : lu_inverse_f32(n, matrix, piv);
}

static int cholesky(int type, int64_t n, void *matrix)
{
  return type == AMP_FLOAT64 ? cholesky_part_f64(n, matrix, n) : cholesky_part_f32(n, matrix, n);
}

static int triangular(int type, bool upper, bool transpose, bool unit, int64_t n, int64_t k, const void *matrix,
                      void *rhs)
{
  return type == AMP_FLOAT64 ? triangular_f64(upper, transpose, unit, n, k, matrix, rhs)
                             : triangular_f32(upper, transpose, unit, n, k, matrix, rhs);
}

static int qr(int type, int64_t m, int64_t n, int64_t q_cols, void *matrix, void *q_matrix)
{
  return type == AMP_FLOAT64 ? qr_f64(m, n, q_cols, matrix, q_matrix) : qr_f32(m, n, q_cols, matrix, q_matrix);
}

const amp_linalg amp__linalg_own
    = { lu, lu_solve, lu_inverse, cholesky, triangular, qr, amp__jacobi_svd, amp__jacobi_eigh };
