/*
** ops/elementwise/slope.c: kernels of derivatives with settings or three tensors, one pass
** each: those of elu and its relatives, and of the euclidean norm.
*/
#include "ops/elementwise/binary.h"

/* -- Elu, celu, selu ---------------------------------------------------------------- */

/* by 2^64 e^x for x <= 0 or NaN (else anything), by a minimax fit made for here: one factor is enough, and `by`
** takes 2^64 off again at the last product, denormal or not; the compiler makes by times the coefficients before
** the loop. least: -131, from where on the product is 0; as a constant it would be a select of results. */
AMP_INLINE float exp_lifted(float x, float least, float by)
{
  const float round = AMP_ROUND + 191.f; /* 64 + 127: the low bits are the exponent's */
  x = least > x ? least : x;
  const float t = x * 1.44269504f + round, n = t - round;
  const float r = (x - n * AMP_LN2_HI) - n * AMP_LN2_LO;
  float p = by * 0.00836874545f + r * (by * 0.00138145371f);
  p = by * 0.041668389f + r * p;
  p = by * 0.166665211f + r * p;
  p = by * 0.49999994f + r * p;
  p = by + r * p;
  p = by + r * p;
  return amp__bitsf((int32_t)((uint32_t)amp__fbits(t) << 23)) * p;
}

/* by 2^512 e^x, as exp_lifted; least: -1060 */
AMP_INLINE double exp_lifted_d(double x, double least, double by)
{
  const double round = 6755399441055744.0 + 1535.0; /* 1.5 * 2^52, and 512 + 1023 */
  x = least > x ? least : x;
  const double t = x * 1.44269504088896340736 + round, n = t - round;
  const double r
      = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33; /* ln 2 in two parts: the first product is exact */
  double p = by * 2.7620101012097998e-07 + r * (by * 2.5100395159429246e-08);
  p = by * 2.7557268439678002e-06 + r * p;
  p = by * 2.4801521269532122e-05 + r * p;
  p = by * 0.00019841269863066696 + r * p;
  p = by * 0.0013888888917230724 + r * p;
  p = by * 0.0083333333333300598 + r * p;
  p = by * 0.041666666666624094 + r * p;
  p = by * 0.16666666666666669 + r * p;
  p = by * 0.50000000000000011 + r * p;
  p = by + r * p;
  p = by + r * p;
  union {
    double f;
    int64_t i;
  } u = { t };
  return amp__bitsd((int64_t)((uint64_t)u.i << 52)) * p;
}

/* above, below, by, least; the gradient may be one value, as behind a sum */
typedef struct {
  float f[4];
  double d[4];
} settings;
/* elu_one: by is 1 */
#define ELU elu_one
#define CLONES AMP_CLONES
#define real float
#define FIELD f
#define SLOPE_BELOW exp_lifted(b, least, below)
#define UNROLL 2
#include "ops/elementwise/elu_body.h"

#define ELU elu_by
#define CLONES AMP_CLONES
#define real float
#define FIELD f
#define SLOPE_BELOW exp_lifted(b / by, least, below)
#include "ops/elementwise/elu_body.h"

#define ELU elu_one_d
#define CLONES AMP_CLONES_WIDE
#define real double
#define FIELD d
#define SLOPE_BELOW exp_lifted_d(b, least, below)
#include "ops/elementwise/elu_body.h"

#define ELU elu_by_d
#define CLONES AMP_CLONES_WIDE
#define real double
#define FIELD d
#define SLOPE_BELOW exp_lifted_d(b / by, least, below)
#include "ops/elementwise/elu_body.h"

#define ELU elu_any
#define CLONES
#define real float
#define FIELD f
#define SLOPE_BELOW below *amp__expf(b / by)
#include "ops/elementwise/elu_body.h"

#define ELU elu_any_d
#define CLONES
#define real double
#define FIELD d
#define SLOPE_BELOW below *exp(b / by)
#include "ops/elementwise/elu_body.h"

int amp__cpu_elu_backward(amp_call *call) /* grad input; above below by */
{
  const args_elu_backward *args = AMP_ARGS(call, elu_backward);
  const double size = fabs(args->below);
  amp_loop_fn loops[3] = { elu_any, elu_any_d, NULL };
  settings settings = { { (float)args->above, (float)args->below, (float)args->by, -131.f },
                        { args->above, args->below, args->by, -1060 } };
  if (settings.f[2] > 0 && size > 1e-12
      && size < 1e10) { /* 2^-64 below is a normal number, and e^least times it no number */
    loops[0] = settings.f[2] == 1 ? elu_one : elu_by;
    loops[1] = settings.d[2] == 1 ? elu_one_d : elu_by_d;
    settings.f[1] = (float)(settings.d[1] * 0x1p-64);
    settings.d[1] *= 0x1p-512;
  }
  return run2_as(call, loops, class_of2(call), 10, 2, &settings);
}

/* -- The euclidean norm ----------------------------------------------------------------- */

#define BODY "ops/elementwise/norm_slope_body.h"
#include "cpu/each_real.h"

/* The shape of grad / norm; false: as many as there are results, or nearly */
static bool fewer(amp_call *call, amp_meta *meta)
{
  const amp_tensor *out = call->out[0];
  int64_t n = 1;
  amp__meta_of(out, meta);
  for (int d = 0; d < out->ndim; d++) {
    meta->size[d] = 1;
    for (int i = 0; i < 3; i += 2) {
      int at = d - (out->ndim - call->in[i]->ndim);
      if (at >= 0 && call->in[i]->size[at] != 1) meta->size[d] = out->size[d];
    }
    n *= meta->size[d];
  }
  return out->numel > 0 && n <= out->numel / 2;
}

int amp__cpu_norm_backward(amp_call *call) /* grad input norm */
{
  amp_tensor *tensor[4] = { call->out[0], call->in[0], call->in[1], call->in[2] };
  int cls = amp__class_of(call->out[0]->dtype, call->in, 3);
  const bool wide = cls == AMP_C_F64;
  const uint8_t classes[4] = { (uint8_t)cls, (uint8_t)cls, (uint8_t)cls, (uint8_t)cls };
  amp_meta meta;
  int bad = 1;
  if (fewer(call, &meta)) {
    meta.dtype = wide ? AMP_FLOAT64 : AMP_FLOAT32;
    meta.strides = 0;
    amp_tensor *quotient = amp__tensor_new(&meta), *r[3] = { quotient, call->in[0], call->in[2] };
    if (!quotient) return amp__S->err.code;
    amp_loop ratio = { wide ? ratio_f64 : ratio_f32, &bad, 1, 0, 3 },
             times = { wide ? times_f64 : times_f32, NULL, 1, 4, 1 };
    bad = 0;
    amp__elementwise(&ratio, 3, r, classes);
    if (!bad) {
      amp_tensor *product[3] = { call->out[0], call->in[1], quotient };
      amp__elementwise(&times, 3, product, classes);
    }
    amp__free(quotient);
    if (!bad) return 0;
  }
  amp_loop loop = { wide ? norm_f64 : norm_f32, NULL, 1, 0, 3 };
  amp__elementwise(&loop, 4, tensor, classes);
  return 0;
}
