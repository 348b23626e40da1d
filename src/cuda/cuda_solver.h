/*
** cuda_solver.h: cuSOLVER's factorisations of one matrix (cuda_solver.c), which
** the kernels of linear algebra ask first where a matrix is large enough.
** Matrices lie column by column as in ops/linalg/factorisations.h; pivots count from 1. info: a
** cell of the device, > 0 where the matrix has no such factor, < 0 where the
** library refused an argument; of qr there are two.
** Functions give 0, 1 where they decline and have changed nothing (own kernels go on), or an error.
*/
#ifndef AMP_CUDA_SOLVER_H
#define AMP_CUDA_SOLVER_H
#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

extern int amp__cuda_solver,
    amp__cuda_fft;                       /* the libraries: 0 never, 1 where they are faster, 2 always where they can */
const char *amp__cuda_solver_info(void); /* version, or why it is not there */
const char *amp__cuda_fft_info(void);

int amp__cuda_solver_lu(int type, int64_t n, void *a, int32_t *piv, int32_t *info);
int amp__cuda_solver_lu_solve(int type, bool transpose, int64_t n, int64_t k, const void *lu, const int32_t *piv,
                              void *b, int32_t *info);
int amp__cuda_solver_cholesky(int type, int64_t n, void *a, int32_t *info);
int amp__cuda_solver_qr(int type, int64_t m, int64_t n, int64_t nq, void *a, void *q, int32_t *info);
/* u m x min(m, n) or m x m, v (not transposed) n x min(m, n) or n x n; NULL both: values alone. a is lost. */
int amp__cuda_solver_svd(int type, int64_t m, int64_t n, bool some, void *a, void *s, void *u, void *v, int32_t *info);
int amp__cuda_solver_eigh(int type, bool vectors, int64_t n, void *a, void *w, int32_t *info);

/* cuFFT (cuda_fft.c): `batch` series of n, each a row, or, with inner > 1, `inner` columns side by side.
** kind 0: complex; 1: real to half; 2: half to real (x may be lost). Decided by amp_to_fft in kernels/fft/fft.cu. */
int amp__cuda_fft_run(int type, int kind, bool inverse, int64_t n, int64_t batch, int64_t inner, void *x, void *y);

#ifdef __cplusplus
}
#endif
#endif
