/*
** ops/random/dropout_shape.c: the shape rule of dropout.
*/
#include "dispatch/shape_rules.h"

int amp__infer_dropout(amp_call *call)
{
  const args_dropout *args = AMP_ARGS(call, dropout);
  double p = args->p;
  if (!(p >= 0 && p <= 1)) return amp__fail(AMP_E_VALUE, "p %g must lie in 0..1", p);
  amp__like(call, 0, call->in[0], call->in[0]->dtype);
  if (args->training && p > 0) amp__like(call, 1, call->in[0], AMP_UINT8);
  return 0;
}
