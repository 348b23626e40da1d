/*
** cpu_ternary.c: elementwise kernels of three tensors, in one pass over them:
** addcmul, addcdiv, lerp. 16-bit operands are computed in float32 and rounded
** once, at the end.
*/
#include "cpu_iter.h"
#include "cpu_math.h"

/* o = E of x, a, b and the number v in *arg */
#define TERN(CLONES, name, T, E) \
static CLONES void name(int64_t n, void *const *p, unsigned scalar, const void *arg) \
{ \
  T *o = p[0]; const T *px = p[1], *pa = p[2], *pb = p[3]; const T v = *(const T *)arg; (void)v; \
  AMP_IVDEP for (int64_t i = 0; i < n; i++) { const T x = px[i], a = pa[i], b = pb[i]; o[i] = E; } \
}
TERN(AMP_CLONES, addcmul_f, float, x + v * (a * b))
TERN(AMP_CLONES_WIDE, addcmul_d, double, x + v * (a * b))
TERN(AMP_CLONES_WIDE, addcmul_i, int64_t, (int64_t)((uint64_t)x + (uint64_t)v * ((uint64_t)a * (uint64_t)b)))
TERN(AMP_CLONES, addcdiv_f, float, x + v * (a / b))
TERN(AMP_CLONES_WIDE, addcdiv_d, double, x + v * (a / b))
/* from the nearer end, so that weight 1 gives the other end exactly */
TERN(AMP_CLONES, lerp_f, float, (fabsf(b) < 0.5f ? x + b * (a - x) : a + (b - 1.f) * (a - x)))
TERN(AMP_CLONES_WIDE, lerp_d, double, (fabs(b) < 0.5 ? x + b * (a - x) : a + (b - 1) * (a - x)))

static int run3(amp_call *c, const amp_loop_fn *loops, double value)
{
  amp_tensor *t[4] = { c->out[0], c->in[0], c->in[1], c->in[2] };
  int cls = amp__class_of(c->out[0]->dtype, c->in, 3);
  const uint8_t k[4] = { (uint8_t)cls, (uint8_t)cls, (uint8_t)cls, (uint8_t)cls };
  float f = (float)value;
  int64_t i = cls == AMP_C_I64 ? (int64_t)value : 0; /* which fits, says the shape rule */
  amp_loop l = { loops[cls], cls == AMP_C_F32 ? (void *)&f : cls == AMP_C_F64 ? (void *)&value : &i, 1, 0, 2 };
  amp__elementwise(&l, 4, t, k);
  return 0;
}

int amp__cpu_addcmul(amp_call *c)
{
  static const amp_loop_fn loops[3] = { addcmul_f, addcmul_d, addcmul_i };
  return run3(c, loops, c->a[0].f);
}

int amp__cpu_addcdiv(amp_call *c)
{
  static const amp_loop_fn loops[3] = { addcdiv_f, addcdiv_d, NULL };
  return run3(c, loops, c->a[0].f);
}

int amp__cpu_lerp(amp_call *c)
{
  static const amp_loop_fn loops[3] = { lerp_f, lerp_d, NULL };
  return run3(c, loops, 0);
}
