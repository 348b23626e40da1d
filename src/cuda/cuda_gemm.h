/*
** cuda_gemm.h: a matrix product over strides, as the rows matmul and linear
** (cuda_matmul.c) hand it to cublasLt (cuda_blas.c) or to the plain kernel
** (kernels/matmul/gemm.cu), which takes whatever the other refuses.
*/
#ifndef AMP_CUDA_GEMM_H
#define AMP_CUDA_GEMM_H
#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* BIAS: + bias[j]; RELU, GELU (tanh): an activation after it (aux: gelu's argument); SUMS: sums[i] = sum over l of
 * a[i][l] */
enum amp_epilogue { AMP_EPI_NONE, AMP_EPI_BIAS, AMP_EPI_RELU, AMP_EPI_GELU, AMP_EPI_SUMS };

/* c[i][j] = sum over l of a[i][l] b[l][j] (+ bias[j]), for each of a batch; strides in elements */
typedef struct amp_product {
  int dtype; /* of all three */
  bool wide; /* but c is float32 */
  int64_t m, n, k;
  const char *a, *b, *bias; /* bias: n elements beside each other, or NULL */
  char *c, *aux;            /* aux: as c */
  char *sums;               /* m elements */
  const char *mask; /* as a: a counts as 0 where this is 0 or less, in sums as well. NULL: everywhere as it is. By the
                       small kernel alone */
  int epilogue; /* RELU, GELU and SUMS not by the plain kernel: the caller does without them where the others decline */
  int64_t ars, acs, brs, bcs, crs, ccs, mrs, mcs;
  int nbatch; /* dimensions of the batch, outermost first; none: one product */
  int64_t size[AMP_MAX_DIM], as[AMP_MAX_DIM], bs[AMP_MAX_DIM], cs[AMP_MAX_DIM];
} amp_product;

int amp__cuda_gemm(const amp_product *p);       /* the best way */
int amp__cuda_gemm_plain(const amp_product *p); /* kernels/matmul/gemm.cu: any strides and dtypes */
int amp__cuda_gemm_lt(const amp_product *p);    /* cublasLt: 1: not taken; 0 done; <0 error */
int amp__cuda_gemm_small(const amp_product *p); /* kernels/matmul/gemm_small.cu, as that */
int amp__cuda_gemv(const amp_product *p);       /* kernels/matmul/gemv.cu: a few rows, as that */
int amp__cuda_gemm_pair(const amp_product *p,
                        const amp_product *q); /* both in one launch, or neither. There, as that */
int amp__cuda_gemm_add(const amp_product *p,
                       const float *sum); /* c = sum (m x n, dense) + the product of a few l. kernels/matmul/gemm.cu */
int amp__cuda_gemm_fused(const amp_product *p); /* with an epilogue, as that */
extern int amp__cuda_small;                     /* small products by the own kernel (on unless switched off) */
extern int amp__cuda_split; /* odd extents apart from a large product: 0: never, 1: where it is worth it, 2: wherever it
                               can be */
/* dz = grad times the derivative of act (enum of row act_backward; -1: grad itself, dz not written), sums over rows.
 * kernels/matmul/linear_act.cu */
int amp__cuda_columns(int act, const amp_tensor *grad, const amp_tensor *saved, amp_tensor *dz, amp_tensor *sums);
/* A recurrent layer's step with its product in one launch (kernels/rnn/rnn_step.cu), or all steps (rnn_all.cu): 0:
** never, 1: where it is worth it, 2: a launch a step wherever it can be, 3: one for all wherever it can be */
extern int amp__cuda_rnn;
const char *amp__cuda_blas_info(void); /* version, or why it is not there */

#ifdef __cplusplus
}
#endif
#endif
