/*
** ops/norm/softmax_derivative.c: derivatives of softmax, log_softmax and their backward rows.
*/
#include "autograd/derivative.h"

static amp_tensor *mul(amp_tensor *a, amp_tensor *b) { return OP2(mul, a, b); }

static amp_tensor *softmax_back(int op, int64_t dim, amp_tensor *g, amp_tensor *y)
{
  amp_tensor *inputs[2] = { g, y };
  return amp__op_dim(op, (int)dim, 2, inputs);
}

BWD(softmax, softmax_back(AMP_OP_softmax_backward, AMP_ARGS(b, softmax)->dim, GRAD(b), OUTPUT(b, 0)))
BWD(log_softmax, softmax_back(AMP_OP_log_softmax_backward, AMP_ARGS(b, log_softmax)->dim, GRAD(b), OUTPUT(b, 0)))

static amp_tensor *along(amp_bwd *bwd, amp_tensor *tensor)
{
  const args_softmax_backward *args = AMP_ARGS(bwd, softmax_backward);
  int dim = (int)args->dim;
  return tensor && tensor->ndim == 0 ? tensor : amp__op_sum(tensor, 1, &dim, true);
}

/* of y (g - sum g y) */
int amp__bwd_softmax_backward(amp_bwd *bwd)
{
  const args_softmax_backward *args = AMP_ARGS(bwd, softmax_backward);
  amp_tensor *v = GRAD(bwd), *y = INPUT(bwd, 1);
  int status = 0;
  if (NEEDS(bwd, 0))
    status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, softmax_back(AMP_OP_softmax_backward, args->dim, v, y)));
  if (status == 0 && NEEDS(bwd, 1)) {
    amp_tensor *grad = INPUT(bwd, 0);
    amp_tensor *tensor = OP2(sub, mul(v, OP2(sub, grad, along(bwd, mul(grad, y)))), mul(grad, along(bwd, mul(v, y))));
    status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, tensor));
  }
  return status;
}

/* of g - exp(y) sum g */
int amp__bwd_log_softmax_backward(amp_bwd *bwd)
{
  amp_tensor *v = GRAD(bwd), *ve = mul(v, OP1(exp, INPUT(bwd, 1)));
  int status = 0;
  if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, OP2(sub, v, along(bwd, ve))));
  if (status == 0 && NEEDS(bwd, 1))
    status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, OP1(neg, mul(ve, along(bwd, INPUT(bwd, 0))))));
  return status;
}
