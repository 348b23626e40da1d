/*
** cudnn_conv.c: rows convolution, convolution_input and convolution_weight.
*/
#include "cudnn_conv.h"

int amp__cuda_convolution(amp_call *c) { return amp__cuda_conv_plain(c); }
int amp__cuda_convolution_input(amp_call *c) { return amp__cuda_conv_plain_input(c); }
int amp__cuda_convolution_weight(amp_call *c) { return amp__cuda_conv_plain_weight(c); }
