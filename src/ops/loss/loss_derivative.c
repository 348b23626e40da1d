/*
** ops/loss/loss_derivative.c: derivatives of losses. `reduction` is none 0, mean 1, sum 2
** in every row. nll_loss and its backward are linear and each other's
** derivative; cross_entropy_backward is differentiated through softmax.
*/
#include "autograd/derivative.h"

static amp_tensor *mul(amp_tensor *a, amp_tensor *b) { return OP2(mul, a, b); }

/* -- Labels ------------------------------------------------------------------------- */

static amp_tensor *nll(amp_tensor *input, amp_tensor *target, amp_tensor *w, int64_t reduction, int64_t ignore)
{
  amp_tensor *inputs[3] = { input, target, w };
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, reduction);
  amp__attrs_int(&attrs, ignore);
  return amp__op(AMP_OP_nll_loss, &attrs, 3, inputs);
}

int amp__bwd_nll_loss(amp_bwd *bwd)
{
  const args_nll_loss *args = AMP_ARGS(bwd, nll_loss);
  amp_tensor *inputs[4] = { GRAD(bwd), INPUT(bwd, 1), amp__has(bwd, 2) ? INPUT(bwd, 2) : NULL, OUTPUT(bwd, 1) };
  if (amp__has(bwd, 2)) OR_FAIL(inputs[2]);
  amp_attrs attrs = amp__attrs();
  amp__attrs_shape(&attrs, SHAPE(bwd, 0));
  amp__attrs_copy(&attrs, AMP_SLOT(args->reduction), 2);
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, amp__op(AMP_OP_nll_loss_backward, &attrs, 4, inputs)));
}

int amp__bwd_nll_loss_backward(amp_bwd *bwd)
{
  const args_nll_loss_backward *args = AMP_ARGS(bwd, nll_loss_backward);
  amp_tensor *w = NULL;
  if (amp__has(bwd, 2)) OR_FAIL(w = INPUT(bwd, 2));
  return INPUT_GRAD(bwd, 0,
                    amp__op_to_input(bwd, 0, nll(GRAD(bwd), INPUT(bwd, 1), w, args->reduction, args->ignore_index)));
}

/* The scores, if no other op reads them again: on a GPU their gradient may take their place */
static amp_tensor *spent(amp_bwd *bwd)
{
  const amp_node *node = bwd->node;
  amp_tensor *input = node->saved[0].tensor;
  if (!bwd->last || !input || input->device != AMP_CUDA || input->refs != 1 || input->storage->refs != 1
      || (node->flags & AMP_N_FREED) || node->saved[0].version != amp__version(input))
    return NULL;
  if (input->storage->block
      && input->storage->block->streams & ~((uint32_t)1 << amp__stream_here(input->device, input->device_index)))
    return NULL; /* another stream may be reading them yet */
  if (!(input->flags & AMP_T_DENSE)
      && !(input->ndim == 2 && input->stride[1] == 1 && input->stride[0] >= input->size[1]))
    return NULL; /* rows may lie apart, not on each other */
  return input->storage->flags & (AMP_S_EXPOSED | AMP_S_ARENA | AMP_S_FOREIGN) ? NULL : input;
}

int amp__bwd_cross_entropy_index(amp_bwd *bwd)
{
  const args_cross_entropy_index *args = AMP_ARGS(bwd, cross_entropy_index);
  amp_tensor *out[AMP_MAX_OUT] = { spent(bwd) };
  amp_tensor *inputs[6] = { GRAD(bwd),      INPUT(bwd, 0), INPUT(bwd, 1), amp__has(bwd, 2) ? INPUT(bwd, 2) : NULL,
                            OUTPUT(bwd, 1), OUTPUT(bwd, 2) };
  if (amp__has(bwd, 2)) OR_FAIL(inputs[3]);
  amp_attrs attrs = amp__attrs();
  amp__attrs_copy(&attrs, AMP_SLOT(args->reduction), 3);
  if (out[0] && inputs[0] && inputs[1] && inputs[2] && inputs[4] && inputs[5]) {
    int status = amp__dispatch(AMP_OP_cross_entropy_backward, AMP_OUT, inputs, 6, out, attrs.v);
    if (status == AMP_E_MEMORY)
      bwd->node->saved[0].version = amp__version(inputs[1]); /* nothing was written: it may be tried again */
    return status < 0 ? status : INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, inputs[1]));
  }
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, amp__op(AMP_OP_cross_entropy_backward, &attrs, 6, inputs)));
}

/* gx = q (W p - T) with p = softmax(x), q the gradient of a row (over the total for a mean),
** T_j = (1 - smoothing) w_y [j = y] + smoothing / C w_j, W = sum T; all 0 in ignored rows.
** For the incoming v: dx = q W p (v - sum v p), dg = sum v (W p - T). */
int amp__bwd_cross_entropy_backward(amp_bwd *bwd)
{
  const args_cross_entropy_backward *args = AMP_ARGS(bwd, cross_entropy_backward);
  const amp_shape *shape = SHAPE(bwd, 1);
  int64_t reduction = args->reduction, ignore = args->ignore_index;
  double smooth = args->label_smoothing;
  int class_dim = shape->ndim > 1 ? 1 : 0, status = 0;
  amp_tensor *v = GRAD(bwd), *input = INPUT(bwd, 1), *target = INPUT(bwd, 2), *weight = NULL, *valid = NULL,
             *total = NULL;
  OR_FAIL(input && target);
  if (amp__has(bwd, 3)) OR_FAIL(weight = INPUT(bwd, 3));
  if (reduction == REDUCTION_MEAN) OR_FAIL(total = INPUT(bwd, 5));
  amp_tensor *p = amp__op_dim(AMP_OP_softmax, class_dim, 1, &input);
  amp_tensor *ones = amp__op_expand(amp__op_full(1, input->dtype, input->device, input->device_index, 0, NULL),
                                    input->ndim, input->size);
  amp_tensor *W = OP1(neg, nll(ones, target, weight, REDUCTION_NONE, ignore));
  if (smooth != 0) {
    double each = smooth / (double)shape->size[class_dim];
    amp_tensor *tensor
        = weight ? OP1(neg, nll(ones, target, NULL, REDUCTION_NONE, ignore)) : W; /* 1, 0 where ignored */
    OR_FAIL(valid = OP_NUMBER(mul, tensor, each));
    W = OP2(add, OP_NUMBER(mul, W, 1 - smooth),
            weight ? mul(valid, amp__op_sum(weight, -1, NULL, false)) : OP_NUMBER(mul, tensor, smooth));
  }
  OR_FAIL(W);
  if (NEEDS(bwd, 0)) {
    amp_tensor *vT = OP_NUMBER(mul, nll(v, target, weight, REDUCTION_NONE, ignore), -(1 - smooth));
    if (smooth != 0) {
      amp_tensor *vw = v;
      if (weight) {
        int64_t size[AMP_MAX_DIM];
        for (int i = 0; i < shape->ndim; i++) size[i] = i == class_dim ? shape->size[class_dim] : 1;
        vw = mul(v, amp__op_view(weight, shape->ndim, size));
      }
      vT = OP2(add, vT, mul(valid, amp__op_sum(vw, 1, &class_dim, false)));
    }
    amp_tensor *tensor = OP2(sub, mul(W, amp__op_sum(mul(v, p), 1, &class_dim, false)), vT);
    if (reduction != REDUCTION_NONE) tensor = amp__op_sum(tensor, -1, NULL, false);
    status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, total ? OP2(div, tensor, total) : tensor));
  }
  if (status == 0 && NEEDS(bwd, 1)) {
    amp_tensor *q = mul(INPUT(bwd, 0), W), *inputs[2] = { v, p };
    if (total) q = OP2(div, q, total);
    q = amp__op_kept_dims(q, shape->ndim, shape->size, 1u << class_dim);
    status = INPUT_GRAD(bwd, 1,
                        amp__op_to_input(bwd, 1, mul(q, amp__op_dim(AMP_OP_softmax_backward, class_dim, 2, inputs))));
  }
  return status;
}

/* -- Squares ------------------------------------------------------------------------ */

int amp__bwd_mse_loss(amp_bwd *bwd)
{
  const args_mse_loss *args = AMP_ARGS(bwd, mse_loss);
  amp_tensor *inputs[3] = { GRAD(bwd), INPUT(bwd, 0), INPUT(bwd, 1) };
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, args->reduction);
  amp_tensor *tensor = amp__op(AMP_OP_mse_loss_backward, &attrs, 3, inputs);
  int status = 0;
  if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, tensor));
  if (status == 0 && NEEDS(bwd, 1)) status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, OP1(neg, tensor)));
  return status;
}

/* of 2 g (x - t), over the count for a mean */
int amp__bwd_mse_loss_backward(amp_bwd *bwd)
{
  const args_mse_loss_backward *args = AMP_ARGS(bwd, mse_loss_backward);
  amp_tensor *v = GRAD(bwd), *k = NULL, *tensor;
  int64_t reduction = args->reduction;
  int status = 0;
  OR_FAIL(k = OP_NUMBER(mul, v, reduction == REDUCTION_MEAN ? 2 / (double)v->numel : 2));
  if (NEEDS(bwd, 0)) {
    tensor = mul(k, OP2(sub, INPUT(bwd, 1), INPUT(bwd, 2)));
    status = INPUT_GRAD(
        bwd, 0, amp__op_to_input(bwd, 0, reduction == REDUCTION_NONE ? tensor : amp__op_sum(tensor, -1, NULL, false)));
  }
  if (status == 0 && (NEEDS(bwd, 1) || NEEDS(bwd, 2))) {
    OR_FAIL(tensor = mul(k, INPUT(bwd, 0)));
    if (NEEDS(bwd, 1)) status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, tensor));
    if (status == 0 && NEEDS(bwd, 2)) status = INPUT_GRAD(bwd, 2, amp__op_to_input(bwd, 2, OP1(neg, tensor)));
  }
  return status;
}

/* -- Margins of many labels: linear in pieces ------------------------------------------------ */

static amp_tensor *margin_backward(amp_tensor *g, amp_tensor *x, amp_tensor *target, int64_t reduction)
{
  amp_tensor *in[3] = { g, x, target };
  amp_attrs s = amp__attrs();
  amp__attrs_int(&s, reduction);
  return amp__op(AMP_OP_multilabel_margin_loss_backward, &s, 3, in);
}

int amp__bwd_multilabel_margin_loss(amp_bwd *b)
{
  const args_multilabel_margin_loss *args = AMP_ARGS(b, multilabel_margin_loss);
  return INPUT_GRAD(b, 0, amp__op_to_input(b, 0, margin_backward(GRAD(b), INPUT(b, 0), INPUT(b, 1), args->reduction)));
}

int amp__bwd_multilabel_margin_loss_backward(amp_bwd *bwd)
{
  const args_multilabel_margin_loss_backward *args = AMP_ARGS(bwd, multilabel_margin_loss_backward);
  amp_tensor *v = GRAD(bwd), *input = INPUT(bwd, 1), *one;
  int64_t reduction = args->reduction;
  int status = 0, last = -1;
  OR_FAIL(v && input ? v : NULL);
  if (NEEDS(bwd, 0)) {
    one = amp__op_full(1, v->dtype, v->device, v->device_index, 0, NULL);
    if (reduction == REDUCTION_NONE) one = amp__op_expand(one, input->ndim - 1, input->size);
    v = mul(v, margin_backward(one, amp__op_detach(input), INPUT(bwd, 2), reduction));
    status = INPUT_GRAD(bwd, 0,
                        amp__op_to_input(bwd, 0,
                                         reduction == REDUCTION_NONE ? amp__op_sum(v, 1, &last, false)
                                                                     : amp__op_sum(v, -1, NULL, false)));
  }
  if (status == 0 && NEEDS(bwd, 1)) status = INPUT_GRAD(bwd, 1, amp__op_zeros_like(bwd, 1));
  return status;
}

/* -- Sequences ------------------------------------------------------------------------------- */

int amp__bwd_ctc(amp_bwd *b)
{
  const args_ctc *args = AMP_ARGS(b, ctc);
  amp_tensor *in[7] = { GRAD(b), INPUT(b, 0), INPUT(b, 1), INPUT(b, 2), INPUT(b, 3), OUTPUT(b, 0), OUTPUT(b, 1) };
  amp_attrs s = amp__attrs();
  for (int i = 0; i < 7; i++) OR_FAIL(in[i]);
  amp__attrs_int(&s, args->blank);
  return INPUT_GRAD(b, 0, amp__op_to_input(b, 0, amp__op(AMP_OP_ctc_backward, &s, 7, in)));
}

int amp__bwd_ctc_backward(amp_bwd *b)
{
  return amp__fail(AMP_E_AUTOGRAD, "ctc_loss has a first derivative only; its gradient can't be differentiated again");
}
