/*
** ops/random/draw_shape.c: the shape rule of drawing by weights.
*/
#include "dispatch/shape_rules.h"

int amp__infer_multinomial(amp_call *call)
{
  const args_multinomial *args = AMP_ARGS(call, multinomial);
  const amp_tensor *input = call->in[0];
  int64_t n = args->num_samples, size[2];
  if (input->ndim < 1 || input->ndim > 2)
    return amp__fail(AMP_E_SHAPE,
                     "input has shape %s, expected a vector of weights or a matrix with a row of weights each",
                     SHAPE_OF(input));
  int64_t kinds = input->size[input->ndim - 1];
  if (n < 1) return amp__fail(AMP_E_VALUE, "num_samples is %lld, at least 1 is expected", LL(n));
  if (kinds == 0) return amp__fail(AMP_E_SHAPE, "input has shape %s: there are no weights to draw by", SHAPE_OF(input));
  if (!args->replacement && n > kinds)
    return amp__fail(AMP_E_VALUE, "num_samples is %lld, but there are %lld weights; draw with replacement = true",
                     LL(n), LL(kinds));
  size[0] = input->size[0];
  size[input->ndim - 1] = n;
  amp__out(call, 0, AMP_INT64, input->ndim, size);
  return 0;
}
