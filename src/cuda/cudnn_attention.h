/*
** cudnn_attention.h: attention by cuDNN (cudnn_attention.c), an alternative to the
** kernels on tensor cores.
*/
#ifndef AMP_CUDNN_ATTENTION_H
#define AMP_CUDNN_ATTENTION_H
#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct amp_attend { /* tensors of one 16-bit dtype, as kernels/attention/attention_mma_call.cu arranged them */
  amp_tensor *q, *k, *v, *out, *lse; /* lse: float32 in C order, the natural logarithm */
  amp_tensor *g, *dq, *dk, *dv;      /* g NULL: forward, out and lse are made; else the gradients are */
  bool causal;                       /* query i takes keys up to i */
  float scale;
  int (*own)(void *); /* the same by own kernels, timed as well: 0, or it failed */
  void *own_data;
} amp_attend;

/* 0: done; 1: not for cuDNN, or slower there */
int amp__cuda_dnn_attention(const amp_attend *a);

#ifdef __cplusplus
}
#endif
#endif
