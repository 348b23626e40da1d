/*
** cpu/each_real.h: code written once for float and double. After `#define BODY "ops/norm/softmax_body.h"`, including
** this file includes that one twice. In it `real` is the type, NAME(sum) is sum_f32 or sum_f64, CLONES makes the
** copies of a function for each instruction set, and EXP, LOG and so on are the functions of the type.
*/
#define real float
#define NAME(name) name##_f32
#define CLONES AMP_CLONES
#define EXP amp__expf
#define LOG amp__logf
#define SQRT sqrtf
#define ABS_OF fabsf
#define REAL_MIN FLT_MIN
#define REAL_MAX FLT_MAX
#define REAL_DTYPE AMP_FLOAT32
#define REAL_BITS 32
#include BODY
#undef real
#undef NAME
#undef CLONES
#undef EXP
#undef LOG
#undef SQRT
#undef ABS_OF
#undef REAL_MIN
#undef REAL_MAX
#undef REAL_DTYPE
#undef REAL_BITS

#define real double
#define NAME(name) name##_f64
#define CLONES AMP_CLONES_WIDE
#define EXP exp
#define LOG log
#define SQRT sqrt
#define ABS_OF fabs
#define REAL_MIN DBL_MIN
#define REAL_MAX DBL_MAX
#define REAL_DTYPE AMP_FLOAT64
#define REAL_BITS 64
#include BODY
#undef real
#undef NAME
#undef CLONES
#undef EXP
#undef LOG
#undef SQRT
#undef ABS_OF
#undef REAL_MIN
#undef REAL_MAX
#undef REAL_DTYPE
#undef REAL_BITS
#undef BODY
