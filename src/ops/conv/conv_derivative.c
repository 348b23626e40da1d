/*
** ops/conv/conv_derivative.c: derivatives of convolutions, im2col and col2im. Families are
** closed: convolution, convolution_input and convolution_weight are bilinear in
** their data and weights, and the derivative of each uses the two others;
** im2col and col2im are each other's.
*/
#include "autograd/derivative.h"
#include "ops/conv/conv_geometry.h"

/* -- Convolutions ------------------------------------------------------------------- */

static amp_tensor *conv(const args_convolution *args, amp_tensor *input, amp_tensor *weight)
{
  amp_tensor *inputs[3] = { input, weight, NULL };
  amp_attrs attrs = amp__attrs();
  amp__attrs_all(&attrs, args);
  return amp__op(AMP_OP_convolution, &attrs, 3, inputs);
}

/* convolution_input or convolution_weight, the result having `shape` */
static amp_tensor *back(int op, const args_convolution *args, const amp_shape *shape, amp_tensor *grad,
                        amp_tensor *other, amp_tensor *sum)
{
  amp_tensor *inputs[3] = { grad, other, sum };
  amp_attrs attrs = amp__attrs();
  amp__attrs_shape(&attrs, shape);
  amp__attrs_all(&attrs, args);
  return amp__op(op, &attrs, op == AMP_OP_convolution_input ? 3 : 2, inputs);
}

/* The gradient of a bias: all but the channels summed */
static amp_tensor *bias(amp_bwd *bwd, amp_tensor *grad)
{
  if (grad == NULL) return NULL;
  return amp__op_to_input(
      bwd, 2, SHAPE(bwd, 2)->ndim > 1 ? grad : amp__op_sum(grad, grad->ndim - 1, (int[]){ 0, 2, 3, 4 }, false));
}

/* The gradient of a sum is one element seen everywhere: kernels are faster on a copy, and two of them read it. */
static amp_tensor *dense(amp_tensor *grad)
{
  return grad && !(grad->flags & AMP_T_DENSE) ? amp__op_contiguous(grad) : grad;
}

int amp__bwd_convolution(amp_bwd *bwd)
{
  const args_convolution *args = AMP_ARGS(bwd, convolution);
  int status = 0;
  amp_tensor *grad = dense(GRAD(bwd));
  OR_FAIL(grad);
  if (NEEDS(bwd, 0)) {
    bwd->summed = bwd->sum && grad->device != AMP_CPU;
    status = INPUT_GRAD(
        bwd, 0,
        back(AMP_OP_convolution_input, args, SHAPE(bwd, 0), grad, INPUT(bwd, 1), bwd->summed ? bwd->sum : NULL));
  }
  if (status == 0 && NEEDS(bwd, 1))
    status = INPUT_GRAD(bwd, 1, back(AMP_OP_convolution_weight, args, SHAPE(bwd, 1), grad, INPUT(bwd, 0), NULL));
  if (status == 0 && NEEDS(bwd, 2)) status = INPUT_GRAD(bwd, 2, bias(bwd, grad));
  return status;
}

int amp__bwd_convolution_input(amp_bwd *bwd)
{
  const args_convolution *args = AMP_ARGS_FROM(AMP_ARGS(bwd, convolution_input), stride, convolution);
  int status = 0;
  amp_tensor *grad = dense(GRAD(bwd));
  OR_FAIL(grad);
  if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, conv(args, grad, INPUT(bwd, 1)));
  if (status == 0 && NEEDS(bwd, 1))
    status = INPUT_GRAD(bwd, 1, back(AMP_OP_convolution_weight, args, SHAPE(bwd, 1), INPUT(bwd, 0), grad, NULL));
  if (status == 0 && NEEDS(bwd, 2)) status = INPUT_GRAD(bwd, 2, bias(bwd, grad));
  return status;
}

int amp__bwd_convolution_weight(amp_bwd *bwd)
{
  const args_convolution *args = AMP_ARGS_FROM(AMP_ARGS(bwd, convolution_weight), stride, convolution);
  int status = 0;
  if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, conv(args, INPUT(bwd, 1), GRAD(bwd)));
  if (status == 0 && NEEDS(bwd, 1))
    status = INPUT_GRAD(bwd, 1, back(AMP_OP_convolution_input, args, SHAPE(bwd, 1), INPUT(bwd, 0), GRAD(bwd), NULL));
  return status;
}

/* -- Windows as columns ---------------------------------------------------------------- */

int amp__bwd_im2col(amp_bwd *bwd)
{
  const amp_shape *shape = SHAPE(bwd, 0);
  amp_tensor *grad = GRAD(bwd);
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, shape->size[shape->ndim - 2]);
  amp__attrs_int(&attrs, shape->size[shape->ndim - 1]);
  amp__attrs_all(&attrs, AMP_ARGS(bwd, im2col));
  return INPUT_GRAD(bwd, 0, amp__op(AMP_OP_col2im, &attrs, 1, &grad));
}

int amp__bwd_col2im(amp_bwd *bwd)
{
  amp_tensor *grad = GRAD(bwd);
  amp_attrs attrs = amp__attrs();
  amp__attrs_all(&attrs, AMP_ARGS_FROM(AMP_ARGS(bwd, col2im), kernel_size, im2col));
  return INPUT_GRAD(bwd, 0, amp__op(AMP_OP_im2col, &attrs, 1, &grad));
}
