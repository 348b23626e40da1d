/*
** ops/conv/conv_pack.c: the convolution's packers for float and double (ops/conv/conv_pack.h).
*/
#include "ops/conv/conv.h"

#define NAME(x) x##_f32
#define real float
#define REAL_DTYPE AMP_FLOAT32
#include "ops/conv/conv_pack.h"

#define NAME(x) x##_f64
#define real double
#define REAL_DTYPE AMP_FLOAT64
#include "ops/conv/conv_pack.h"
