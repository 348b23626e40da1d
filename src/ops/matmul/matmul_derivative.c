/*
** ops/matmul/matmul_derivative.c: derivatives of products. Convolutions are in
** ops/conv/conv_derivative.c, normalisation and losses in ops/norm/norm_derivative.c and
** ops/loss/loss_derivative.c.
*/
#include "autograd/derivative.h"

/* -- Products --------------------------------------------------------------------- */

/* tensor as a matrix of rows, its last dimension kept */
static amp_tensor *rows(amp_tensor *tensor)
{
  if (!tensor || tensor->ndim == 2) return tensor;
  int64_t last = tensor->ndim ? tensor->size[tensor->ndim - 1] : 1, size[2] = { 1, last };
  for (int i = 0; i + 1 < tensor->ndim; i++) size[0] *= tensor->size[i];
  return amp__op_view(tensor, 2, size);
}

static amp_tensor *transposed(amp_tensor *tensor) { return amp__op_transpose(tensor, -2, -1); }

int amp__bwd_matmul(amp_bwd *bwd)
{
  const amp_shape *ha = SHAPE(bwd, 0), *b_shape = SHAPE(bwd, 1);
  amp_tensor *grad = GRAD(bwd), *input, *output;
  int status = 0;
  if (ha->ndim == 1 && b_shape->ndim == 1) {
    if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, OP2(mul, grad, INPUT(bwd, 1))));
    if (status == 0 && NEEDS(bwd, 1))
      status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, OP2(mul, grad, INPUT(bwd, 0))));
    return status;
  }
  /* vectors become matrices; grad gets back the dimension that went */
  if (ha->ndim == 1) grad = amp__op_unsqueeze(grad, -2);
  if (b_shape->ndim == 1) grad = amp__op_unsqueeze(grad, -1);
  if (NEEDS(bwd, 0)) {
    output = INPUT(bwd, 1);
    OR_FAIL(input = OP2(matmul, grad, b_shape->ndim == 1 ? amp__op_unsqueeze(output, 0) : transposed(output)));
    status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, input));
  }
  if (status == 0 && NEEDS(bwd, 1)) {
    input = INPUT(bwd, 0);
    if (b_shape->ndim <= 2 && ha->ndim >= 2) { /* one product for all batches */
      output = OP2(matmul, transposed(rows(input)), rows(grad));
      return INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, amp__op_view(output, b_shape->ndim, b_shape->size)));
    }
    output = OP2(matmul, ha->ndim == 1 ? amp__op_unsqueeze(input, 1) : transposed(input), grad);
    if (output && b_shape->ndim == 1) output = amp__op_view(output, output->ndim - 1, output->size);
    status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, output));
  }
  return status;
}

/* Are both products of linear's backward from grad so small that a device does each in one launch? y: behind a
** ReLU, what it gave. (Otherwise ReLU's derivative is made twice, a small cost.) */
static bool small_back(amp_bwd *bwd, const amp_tensor *grad, const amp_tensor *y)
{
  enum { MOST_SUM = 256, MOST_MASKED = 192, MOST = 4096, MOST_WORK = 1 << 21 };
  if (!grad || grad->device == AMP_CPU || amp__dtype_size[grad->dtype] != 2 || bwd->create_graph
      || (y && grad->dtype != y->dtype))
    return false;
  const amp_shape *x = SHAPE(bwd, 0), *w = SHAPE(bwd, 1);
  int64_t rows = amp__count(x->ndim - 1, x->size), most = y ? MOST_MASKED : MOST_SUM;
  return x->ndim > 1 && rows <= most && w->size[0] <= most && w->size[1] <= MOST
         && rows * w->size[0] * w->size[1] <= MOST_WORK;
}

/* Gradients in input, weight and bias (here it is known: bias) from small products, in one launch */
static int both_back(amp_bwd *bwd, amp_tensor *grad, amp_tensor *output, amp_tensor *bias)
{
  amp_tensor *inputs[4] = { grad, INPUT(bwd, 0), INPUT(bwd, 1), output }, *out[AMP_MAX_OUT] = { NULL };
  int status = amp__op_results(AMP_OP_linear_both, NULL, 4, inputs, out);
  if (status == 0) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, out[0]));
  if (status == 0) status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, out[1]));
  return status < 0 || !NEEDS(bwd, 2) ? status : INPUT_GRAD(bwd, 2, amp__op_to_input(bwd, 2, bias ? bias : out[2]));
}

/* Gradients of linear in its arguments from that of its result; bias: its gradient, if it is known (NULL: not). On a
** device the weight's product leaves the bias's sums as well; recorded, all are ops. */
static int linear_back(amp_bwd *bwd, amp_tensor *grad, amp_tensor *bias)
{
  int status = 0;
  if (NEEDS(bwd, 0) && NEEDS(bwd, 1) && small_back(bwd, grad, NULL)) return both_back(bwd, grad, NULL, bias);
  if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, OP2(matmul, grad, INPUT(bwd, 1))));
  if (status == 0 && NEEDS(bwd, 1)) {
    if (!bwd->create_graph && NEEDS(bwd, 2) && !bias && grad && grad->device != AMP_CPU && INPUT(bwd, 0)->ndim > 1) {
      amp_tensor *out[AMP_MAX_OUT] = { NULL }, *inputs[2] = { grad, INPUT(bwd, 0) };
      if ((status = amp__op_results(AMP_OP_linear_weight, NULL, 2, inputs, out)) < 0) return status;
      status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, out[0]));
      bias = out[1];
    } else
      status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, OP2(matmul, transposed(rows(grad)), rows(INPUT(bwd, 0)))));
  }
  if (status == 0 && NEEDS(bwd, 2)) status = INPUT_GRAD(bwd, 2, amp__op_to_input(bwd, 2, bias ? bias : grad));
  return status;
}

static int relu_back(amp_bwd *bwd, amp_tensor *grad, amp_tensor *output)
{
  amp_tensor *inputs[3] = { grad, INPUT(bwd, 0), output }, *out[AMP_MAX_OUT] = { NULL };
  if (NEEDS(bwd, 0)) return both_back(bwd, grad, output, NULL);
  int status = amp__op_results(AMP_OP_linear_weight, NULL, 3, inputs, out);
  if (status == 0) status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, out[0]));
  return status < 0 ? status : INPUT_GRAD(bwd, 2, amp__op_to_input(bwd, 2, out[1]));
}

int amp__bwd_linear(amp_bwd *bwd) { return linear_back(bwd, GRAD(bwd), NULL); }

int amp__bwd_linear_act(amp_bwd *bwd)
{
  int64_t act = AMP_ARGS(bwd, linear_act)->act;
  amp_tensor *grad = GRAD(bwd), *z, *inputs[3] = { INPUT(bwd, 0), INPUT(bwd, 1), INPUT(bwd, 2) };
  amp_attrs attrs = amp__attrs();
  if (!grad) return 0;
  if (!bwd->create_graph) {
    amp_tensor *out[AMP_MAX_OUT] = { NULL }, *from[2] = { grad, OUTPUT(bwd, act == ACT_RELU ? 0 : 1) };
    if (act == ACT_RELU && NEEDS(bwd, 1) && (NEEDS(bwd, 0) || NEEDS(bwd, 2)) && from[1]
        && small_back(bwd, grad, from[1]))
      return relu_back(bwd, grad, from[1]);
    amp__attrs_int(&attrs, act);
    int status = amp__op_results(AMP_OP_act_backward, &attrs, 2, from, out);
    return status < 0 ? status : linear_back(bwd, out[0], out[1]);
  }
  if (act == ACT_RELU) return linear_back(bwd, OP2(relu_backward, grad, OUTPUT(bwd, 0)), NULL);
  OR_FAIL(z = amp__op(AMP_OP_linear, NULL, 3, inputs)); /* once more, with its history */
  inputs[0] = grad;
  inputs[1] = z;
  amp__attrs_int(&attrs, act == ACT_GELU_TANH ? APPROXIMATE_TANH : APPROXIMATE_NONE);
  return linear_back(bwd, amp__op(AMP_OP_gelu_backward, &attrs, 2, inputs), NULL);
}
