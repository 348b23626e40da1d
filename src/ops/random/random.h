/*
** ops/random/random.h: what kernels of random draws share.
*/
#ifndef AMP_OPS_RANDOM_H
#define AMP_OPS_RANDOM_H
#include "core.h"

int amp__cpu_uniform(amp_call *call); /* the row's kernel, which draws of one uniform number a value start from */

#endif
