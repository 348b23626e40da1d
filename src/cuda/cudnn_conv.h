/*
** cudnn_conv.h: convolutions by own kernels (kernels/conv/conv.cu, conv_weight.cu): what
** the rows use where cuDNN is not there or does not take them.
*/
#ifndef AMP_CUDNN_CONV_H
#define AMP_CUDNN_CONV_H
#include "amp_cudnn.h"

int amp__cuda_conv_plain(amp_call *c);
int amp__cuda_conv_plain_input(amp_call *c);
int amp__cuda_conv_plain_weight(amp_call *c);
int amp__cuda_conv_bias(amp_tensor *y, amp_tensor *bias); /* y += a value a channel (dimension 2) */

#endif
