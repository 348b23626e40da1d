/*
** ops/norm/softmax_composite.c: softmin, the softmax of what is turned round.
*/
#include "autograd/derivative.h"

int amp__comp_softmin(amp_call *call)
{
  const args_softmin *args = AMP_ARGS(call, softmin);
  amp_tensor *input = OP1(neg, call->in[0]);
  amp_attrs attrs = amp__attrs();
  amp__attrs_copy(&attrs, AMP_SLOT(args->dim), 2);
  return amp__result(call, 0, amp__op(AMP_OP_softmax, &attrs, 1, &input));
}
