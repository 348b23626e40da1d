/*
** cpu_conv_pack.c: the convolution's packers for float and double (cpu_conv_pack.h).
*/
#include "cpu_conv.h"

#define CP(x) x##_f32
#define CP_T float
#define CP_TYPE AMP_FLOAT32
#include "cpu_conv_pack.h"

#define CP(x) x##_f64
#define CP_T double
#define CP_TYPE AMP_FLOAT64
#include "cpu_conv_pack.h"
