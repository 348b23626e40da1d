/*
** amp_infer_math.c: shape rules of elementwise ops whose settings or dtypes
** have limits.
*/
#include <math.h>
#include "amp_infer.h"

int amp__infer_polygamma(amp_call *c)
{
  int64_t n = c->a[0].i;
  if (n < 0 || n > 100) return amp__fail(AMP_E_VALUE, "n is %lld, must be in 0..100", LL(n));
  return amp__infer_unary_float(c);
}

int amp__infer_alpha(amp_call *c)
{
  if (c->a[0].f == 0) return amp__fail(AMP_E_VALUE, "alpha is 0, which the input is divided by");
  return amp__infer_unary(c);
}

int amp__infer_hardtanh(amp_call *c)
{
  if (!(c->a[0].f <= c->a[1].f)) return amp__fail(AMP_E_VALUE, "min_val %g is above max_val %g", c->a[0].f, c->a[1].f);
  return amp__infer_unary(c);
}

int amp__infer_shrink(amp_call *c)
{
  if (!(c->a[0].f >= 0)) return amp__fail(AMP_E_VALUE, "lambd is %g, must not be negative", c->a[0].f);
  return amp__infer_unary(c);
}

static double number_of(const amp_tensor *t) { return *(const double *)t->storage->data; }

int amp__infer_bitwise(amp_call *c)
{
  for (int i = 0; i < 2; i++)
    if ((c->in[i]->flags & AMP_T_NUMBER) && number_of(c->in[i]) != floor(number_of(c->in[i])))
      return amp__fail_arg(AMP_E_VALUE, i + 1, "%g has no bits; an integer is expected", number_of(c->in[i]));
  return amp__infer_broadcast(c);
}

int amp__infer_addcmul(amp_call *c)
{
  bool ints = true;
  for (int i = 0; i < 3; i++) ints = ints && !amp__is_float(c->in[i]->dtype);
  if (ints && (!amp__fits(c->a[0].f, AMP_INT64) || c->a[0].f != floor(c->a[0].f)))
    return amp__fail(AMP_E_VALUE, "value %.17g must be integral for integers", c->a[0].f);
  return amp__infer_broadcast(c);
}

int amp__infer_addcdiv(amp_call *c)
{
  const amp_tensor *a = c->in[1], *b = c->in[2];
  if (!amp__is_float(a->dtype) && !amp__is_float(b->dtype))
    return amp__fail(AMP_E_DTYPE, "tensor1 (%s) and tensor2 (%s) are integers; cast one to a float dtype first",
                     amp_dtype_name(a->dtype), amp_dtype_name(b->dtype));
  return amp__infer_broadcast(c);
}

int amp__infer_lerp(amp_call *c)
{
  if (c->in[0]->dtype != c->in[1]->dtype)
    return amp__fail(AMP_E_DTYPE, "input is %s and end is %s; cast one", amp_dtype_name(c->in[0]->dtype), amp_dtype_name(c->in[1]->dtype));
  return amp__infer_broadcast(c);
}
