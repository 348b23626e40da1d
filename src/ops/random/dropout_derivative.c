/*
** ops/random/dropout_derivative.c: the derivative of dropout: the mask's, which the kernel left as its second result.
*/
#include "autograd/derivative.h"

int amp__bwd_dropout(amp_bwd *bwd)
{
  const args_dropout *args = AMP_ARGS(bwd, dropout);
  amp_tensor *g = GRAD(bwd);
  if (!args->training || args->p == 0) return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, g));
  if (args->p == 1) return INPUT_GRAD(bwd, 0, amp__op_zeros_like(bwd, 0));
  const double scale = 1 / (1 - args->p);
  if (!bwd->create_graph)
    return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, amp__slope(FUNCTION_LINE, g, OUTPUT(bwd, 1), 0, scale, 0)));
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, OP2(mul, OP_NUMBER(mul, g, scale), OUTPUT(bwd, 1))));
}
