/*
** cudnn_conv.h: convolutions by cuDNN, if it is there and takes them.
*/
#ifndef AMP_CUDNN_CONV_H
#define AMP_CUDNN_CONV_H
#include "cuda.h"

/* own kernels (kernels/conv.cu, conv_weight.cu) */
int amp__cuda_conv_plain(amp_call *c);
int amp__cuda_conv_plain_input(amp_call *c);
int amp__cuda_conv_plain_weight(amp_call *c);

#endif
