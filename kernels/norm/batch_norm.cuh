/*
** batch_norm.cuh: one call of batch norm, of the rows batch_norm, batch_norm_act
** and their backwards, for the kernels that need whole vectors (batch_norm_call.cu);
** those of batch_norm.cu take what these leave.
*/
#ifndef AMP_BATCH_NORM_CUH
#define AMP_BATCH_NORM_CUH
#include "common/rows.cuh"

typedef struct amp_bn {
  amp_tensor *x, *y, *w, *b;     /* data, result (forward: to fill; backward: saved, or NULL), parameters */
  amp_tensor *residual;          /* forward: added before ReLU, or NULL */
  amp_tensor *rm, *rv, *batches; /* running statistics and count, or NULL */
  amp_tensor *mean, *rstd;
  amp_tensor *g, *dx, *dw, *db,
      *dr; /* backward: gradients of result, input, parameters (or NULL), residual (or NULL) */
  bool relu, training;
  double momentum, eps;
} amp_bn;

/* 1: not for these kernels, nothing was done; 0 or an error else */
int amp_bn_forward(const amp_bn *c);
int amp_bn_backward(const amp_bn *c);

#endif
