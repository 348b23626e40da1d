/*
** ops/elementwise/ternary.c: elementwise kernels of three tensors, in one pass over them:
** addcmul, addcdiv, lerp. 16-bit operands are computed in float32 and rounded
** once, at the end.
*/
#include "cpu/strided.h"
#include "cpu/vector_math.h"

/* x, a, b: the operands; v: the number in *arg */
#define TERN(CLONES, name, T, E)                                                               \
  AMP_INLINE T name##_value(T x, T a, T b, T v) { return E; }                                  \
  static CLONES void name(int64_t n, void *const *operand, unsigned scalar, const void *arg)   \
  {                                                                                            \
    T *out = operand[0];                                                                       \
    const T *input = operand[1], *left = operand[2], *right = operand[3], v = *(const T *)arg; \
    AMP_IVDEP                                                                                  \
    for (int64_t i = 0; i < n; i++) out[i] = name##_value(input[i], left[i], right[i], v);     \
  }
TERN(AMP_CLONES, addcmul_f, float, x + v * (a * b))
TERN(AMP_CLONES_WIDE, addcmul_d, double, x + v * (a * b))
TERN(AMP_CLONES_WIDE, addcmul_i, int64_t, (int64_t)((uint64_t)x + (uint64_t)v * ((uint64_t)a * (uint64_t)b)))
TERN(AMP_CLONES, addcdiv_f, float, x + v * (a / b))
TERN(AMP_CLONES_WIDE, addcdiv_d, double, x + v * (a / b))
/* from the nearer end, so that weight 1 gives the other end exactly */
TERN(AMP_CLONES, lerp_f, float, (fabsf(b) < 0.5f ? x + b * (a - x) : a + (b - 1.f) * (a - x)))
TERN(AMP_CLONES_WIDE, lerp_d, double, (fabs(b) < 0.5 ? x + b * (a - x) : a + (b - 1) * (a - x)))

static int run3(amp_call *call, const amp_loop_fn *loops, double value)
{
  amp_tensor *tensors[4] = { call->out[0], call->in[0], call->in[1], call->in[2] };
  int cls = amp__class_of(call->out[0]->dtype, call->in, 3);
  const uint8_t classes[4] = { (uint8_t)cls, (uint8_t)cls, (uint8_t)cls, (uint8_t)cls };
  AMP_ASSERT(loops[cls] != NULL && (cls != AMP_C_I64 || amp__fits(value, AMP_INT64)));
  float f = (float)value;
  int64_t i = cls == AMP_C_I64 ? (int64_t)value : 0; /* which fits, says the shape rule */
  amp_loop loop = { loops[cls], cls == AMP_C_F32 ? (void *)&f : cls == AMP_C_F64 ? (void *)&value : &i, 1, 0, 2 };
  amp__elementwise(&loop, 4, tensors, classes);
  return 0;
}

int amp__cpu_addcmul(amp_call *call)
{
  const args_addcmul *args = AMP_ARGS(call, addcmul);
  static const amp_loop_fn loops[3] = { addcmul_f, addcmul_d, addcmul_i };
  return run3(call, loops, args->value);
}

int amp__cpu_addcdiv(amp_call *call)
{
  const args_addcdiv *args = AMP_ARGS(call, addcdiv);
  static const amp_loop_fn loops[3] = { addcdiv_f, addcdiv_d, NULL };
  return run3(call, loops, args->value);
}

int amp__cpu_lerp(amp_call *call)
{
  static const amp_loop_fn loops[3] = { lerp_f, lerp_d, NULL };
  return run3(call, loops, 0);
}
