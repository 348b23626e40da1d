/*
** ops/norm/norm_derivative.c: derivatives of normalisation.
**
** All norms are one formula over different dimensions. With mean E over a group
** of M elements, xh = (x - mean) r, h = grad * weight:
**
**   P(h) = h - E[h] - xh E[h xh]         gx = r P(h)
**   gw = sum grad xh                      gb = sum grad
**
** rms_norm is the same without a mean: E[h] goes from P. group_norm is seen as
** N x groups x channels of a group x the rest.
**
** The backward rows' own derivative, for the incoming v (of gx), a (of gw) and
** c (of gb), is second() below. In training mean and r depend on the input:
** dr/dx = -r^2 xh / M. When a graph of this derivative is wanted, both are made
** anew from the input, so that third derivatives see that too.
*/
#include "autograd/derivative.h"

/* Inputs of a backward row, given broadcastable: where they stand and over what they were reduced */
typedef struct norm {
  int grad_place, input_place, weight_place;       /* places of grad, input, weight */
  amp_tensor *grad, *input, *weight, *mean, *rstd; /* w NULL: ones; mean NULL: 0, not the input's */
  int ngroup, group[AMP_MAX_DIM];                  /* dimensions of one statistic */
  int nrest, rest[AMP_MAX_DIM];                    /* dimensions the weight does not have */
  double elements;                                 /* elements of one statistic */
  bool live;                                       /* the statistics are the input's own */
  amp_tensor *xh;
} norm;

static amp_tensor *mul(amp_tensor *a, amp_tensor *b) { return OP2(mul, a, b); }
static amp_tensor *sum(const norm *n, amp_tensor *tensor) { return amp__op_sum(tensor, n->ngroup, n->group, true); }
static amp_tensor *mean(const norm *n, amp_tensor *tensor) { return OP_NUMBER(div, sum(n, tensor), n->elements); }
static amp_tensor *by_weight(const norm *n, amp_tensor *tensor) { return n->weight ? mul(tensor, n->weight) : tensor; }

static amp_tensor *project(const norm *n, amp_tensor *u)
{
  if (!n->live) return u;
  return OP2(sub, n->mean ? OP2(sub, u, mean(n, u)) : u, mul(n->xh, mean(n, mul(u, n->xh))));
}

/* *sum += tensor. false: an error is set */
static bool join(amp_tensor **sum, amp_tensor *tensor)
{
  *sum = *sum && tensor ? OP2(add, *sum, tensor) : tensor;
  return *sum != NULL;
}

/* mean and 1/std as functions of the input; eps is what the given ones say it was */
static void relive(norm *n)
{
  amp_tensor *input = amp__op_cast(n->input, n->rstd->dtype);
  if (n->mean) n->mean = mean(n, input);
  amp_tensor *d = n->mean ? OP2(sub, input, n->mean) : input, *var = mean(n, mul(d, d));
  amp_tensor *eps = amp__op_detach(OP2(sub, OP1(reciprocal, mul(n->rstd, n->rstd)), var));
  n->rstd = OP1(rsqrt, OP2(add, var, eps));
}

/* A gradient in the shape that the row's input i has, where the formula saw another */
static int give(amp_bwd *bwd, int i, amp_tensor *tensor)
{
  const amp_shape *shape = SHAPE(bwd, i);
  if (tensor && amp__count(tensor->ndim, tensor->size) == amp__count(shape->ndim, shape->size))
    tensor = amp__op_view(tensor, shape->ndim, shape->size);
  return INPUT_GRAD(bwd, i, amp__op_to_input(bwd, i, tensor));
}

static int second(amp_bwd *bwd, norm *terms, amp_tensor *v, amp_tensor *a, amp_tensor *c)
{
  int status = 0;
  OR_FAIL(terms->rstd);
  if (terms->live && bwd->create_graph) relive(terms);
  OR_FAIL(terms->xh = mul(terms->mean ? OP2(sub, terms->input, terms->mean) : terms->input, terms->rstd));
  amp_tensor *pv = v ? mul(terms->rstd, project(terms, v)) : NULL;
  if (v) OR_FAIL(pv);
  if (NEEDS(bwd, terms->grad_place)) {
    amp_tensor *tensor = NULL;
    if (v && !join(&tensor, by_weight(terms, pv))) return amp__err();
    if (a && !join(&tensor, mul(a, terms->xh))) return amp__err();
    if (c && !join(&tensor, amp__op_expand(c, terms->input->ndim, terms->input->size))) return amp__err();
    if (tensor) status = give(bwd, terms->grad_place, tensor);
  }
  if (status == 0 && v && NEEDS(bwd, terms->weight_place))
    status = give(bwd, terms->weight_place, amp__op_sum(mul(terms->grad, pv), terms->nrest, terms->rest, false));
  if (status == 0 && NEEDS(bwd, terms->input_place)) {
    amp_tensor *u = NULL, *tensor = NULL, *h = by_weight(terms, terms->grad);
    if (a && !join(&u, mul(a, terms->grad))) return amp__err();
    if (v && terms->live) {
      amp_tensor *both = OP2(add, mul(v, mean(terms, mul(h, terms->xh))), mul(h, mean(terms, mul(v, terms->xh))));
      if (!join(&u, OP1(neg, mul(terms->rstd, both)))) return amp__err();
      amp_tensor *s
          = mul(mul(terms->rstd, terms->rstd), OP_NUMBER(div, sum(terms, mul(v, project(terms, h))), -terms->elements));
      if (!join(&tensor, mul(s, terms->xh))) return amp__err();
    }
    if (u && !join(&tensor, mul(terms->rstd, project(terms, u)))) return amp__err();
    if (tensor) status = give(bwd, terms->input_place, tensor);
  }
  return status;
}

/* -- Batch norm ----------------------------------------------------------------------- */

/* A vector over channels against data of that shape */
static amp_tensor *channels(amp_tensor *tensor, const amp_shape *shape)
{
  int64_t size[AMP_MAX_DIM];
  for (int i = 0; i < shape->ndim; i++) size[i] = i == 1 ? shape->size[1] : 1;
  return amp__op_view(tensor, shape->ndim, size);
}

int amp__bwd_batch_norm(amp_bwd *bwd)
{
  const args_batch_norm *args = AMP_ARGS(bwd, batch_norm);
  amp_tensor *out[AMP_MAX_OUT];
  amp_tensor *inputs[5]
      = { GRAD(bwd), INPUT(bwd, 0), amp__has(bwd, 3) ? INPUT(bwd, 3) : NULL, OUTPUT(bwd, 1), OUTPUT(bwd, 2) };
  if (amp__has(bwd, 3)) OR_FAIL(inputs[2]);
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, args->training);
  int status = amp__op_results(AMP_OP_batch_norm_backward, &attrs, 5, inputs, out);
  if (status == 0 && NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, out[0]));
  if (status == 0 && NEEDS(bwd, 3)) status = INPUT_GRAD(bwd, 3, amp__op_to_input(bwd, 3, out[1]));
  if (status == 0 && NEEDS(bwd, 4)) status = INPUT_GRAD(bwd, 4, amp__op_to_input(bwd, 4, out[2]));
  return status;
}

/* The result, if it was saved; else once more: in training statistics are those of the batch, with or without
** running ones */
static amp_tensor *result_again(amp_bwd *bwd)
{
  const args_batch_norm_act *args = AMP_ARGS(bwd, batch_norm_act);
  if (bwd->node->saved[bwd->nin].tensor) return OUTPUT(bwd, 0);
  amp_tensor *inputs[7] = { amp__op_detach(INPUT(bwd, 0)),
                            NULL,
                            NULL,
                            NULL,
                            amp__has(bwd, 4) ? amp__op_detach(INPUT(bwd, 4)) : NULL,
                            amp__has(bwd, 5) ? amp__op_detach(INPUT(bwd, 5)) : NULL,
                            NULL };
  amp_attrs attrs = amp__attrs();
  amp__attrs_copy(&attrs, AMP_SLOT(args->relu), 4);
  return inputs[0] ? amp__op(AMP_OP_batch_norm_act, &attrs, 7, inputs) : NULL;
}

/* input residual? running_mean? running_var? weight? bias? batches?; relu training momentum eps */
int amp__bwd_batch_norm_act(amp_bwd *bwd)
{
  const args_batch_norm_act *args = AMP_ARGS(bwd, batch_norm_act);
  bool relu = args->relu != 0, residual = amp__has(bwd, 1);
  amp_tensor *grad = GRAD(bwd), *input = INPUT(bwd, 0), *weight = NULL, *bias = NULL, *out[AMP_MAX_OUT] = { NULL };
  amp_attrs attrs = amp__attrs();
  int status;
  if (!grad) return 0;
  OR_FAIL(input);
  if (amp__has(bwd, 4)) OR_FAIL(weight = INPUT(bwd, 4));
  if (amp__has(bwd, 5)) OR_FAIL(bias = INPUT(bwd, 5));
  amp__attrs_int(&attrs, args->training);
  if (relu && !bwd->create_graph) {
    amp_tensor *y = bwd->node->saved[bwd->nin].tensor ? OUTPUT(bwd, 0) : NULL;
    amp_tensor *inputs[7] = { grad, input, y, weight, bias, OUTPUT(bwd, 1), OUTPUT(bwd, 2) };
    if (bwd->node->saved[bwd->nin].tensor) OR_FAIL(y);
    amp__attrs_int(&attrs, residual);
    status = amp__op_results(AMP_OP_batch_norm_act_backward, &attrs, 7, inputs, out);
    if (status == 0 && residual && NEEDS(bwd, 1)) status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, out[3]));
  } else {
    if (relu) {
      amp_tensor *y = result_again(bwd);
      OR_FAIL(y);
      OR_FAIL(grad = OP2(relu_backward, grad, y));
    }
    amp_tensor *inputs[5] = { grad, input, weight, OUTPUT(bwd, 1), OUTPUT(bwd, 2) };
    status = amp__op_results(AMP_OP_batch_norm_backward, &attrs, 5, inputs, out);
    if (status == 0 && residual && NEEDS(bwd, 1)) status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, grad));
  }
  if (status == 0 && NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, out[0]));
  if (status == 0 && weight && NEEDS(bwd, 4)) status = INPUT_GRAD(bwd, 4, amp__op_to_input(bwd, 4, out[1]));
  if (status == 0 && bias && NEEDS(bwd, 5)) status = INPUT_GRAD(bwd, 5, amp__op_to_input(bwd, 5, out[2]));
  return status;
}

int amp__bwd_batch_norm_backward(amp_bwd *bwd)
{
  const args_batch_norm_backward *args = AMP_ARGS(bwd, batch_norm_backward);
  const amp_shape *shape = SHAPE(bwd, 1);
  norm terms = { .grad_place = 0, .input_place = 1, .weight_place = 2, .live = args->training != 0, .elements = 1 };
  OR_FAIL(terms.grad = INPUT(bwd, 0));
  OR_FAIL(terms.input = INPUT(bwd, 1));
  if (amp__has(bwd, 2)) OR_FAIL(terms.weight = channels(INPUT(bwd, 2), shape));
  OR_FAIL(terms.mean = channels(INPUT(bwd, 3), shape));
  terms.rstd = channels(INPUT(bwd, 4), shape);
  for (int i = 0; i < shape->ndim; i++)
    if (i != 1) {
      terms.group[terms.ngroup++] = terms.rest[terms.nrest++] = i;
      terms.elements *= (double)shape->size[i];
    }
  amp_tensor *a = bwd->grad[1], *c = bwd->grad[2];
  if (a) OR_FAIL(a = channels(a, shape));
  if (c) OR_FAIL(c = channels(c, shape));
  return second(bwd, &terms, bwd->grad[0], a, c);
}

/* -- Layer norm ------------------------------------------------------------------------- */

/* What came for the input so far, if the backward row may add it */
static amp_tensor *add_so_far(amp_bwd *bwd, const amp_tensor *input)
{
  bwd->summed = bwd->sum && NEEDS(bwd, 0) && bwd->sum->dtype == input->dtype;
  return bwd->summed ? bwd->sum : NULL;
}

int amp__bwd_layer_norm(amp_bwd *bwd)
{
  const args_layer_norm *args = AMP_ARGS(bwd, layer_norm);
  amp_tensor *out[AMP_MAX_OUT];
  amp_tensor *inputs[6]
      = { GRAD(bwd), INPUT(bwd, 0), OUTPUT(bwd, 1), OUTPUT(bwd, 2), amp__has(bwd, 1) ? INPUT(bwd, 1) : NULL };
  OR_FAIL(inputs[1]);
  if (inputs[1]->device != AMP_CPU && amp__is_half(inputs[1]->dtype) && inputs[0] && inputs[0]->dtype == AMP_FLOAT32)
    OR_FAIL(inputs[1] = amp__op_cast(inputs[1], AMP_FLOAT32)); /* kernels take both of one width */
  if (amp__has(bwd, 1)) OR_FAIL(inputs[4]);
  inputs[5] = add_so_far(bwd, inputs[1]);
  amp_attrs attrs = amp__attrs();
  amp__attrs_copy(&attrs, AMP_SLOT(args->shape), 9);
  amp__attrs_int(&attrs, AMP_NONE);
  int status = amp__op_results(AMP_OP_layer_norm_backward, &attrs, 6, inputs, out);
  if (status == 0 && NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, out[0]));
  if (status == 0 && NEEDS(bwd, 1)) status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, out[1]));
  if (status == 0 && NEEDS(bwd, 2)) status = INPUT_GRAD(bwd, 2, amp__op_to_input(bwd, 2, out[2]));
  return status;
}

/* The tensor's part i along its first dimension, which goes; without history */
static amp_tensor *part(amp_tensor *tensor, int i)
{
  amp_attrs attrs = amp__attrs();
  amp__attrs_dim(&attrs, 0);
  amp__attrs_int(&attrs, i + 1);
  return tensor ? amp__op(AMP_OP_select, &attrs, 1, &tensor) : NULL;
}

/* input residual weight? bias?; shape eps dtype -> result sum statistics. The sum's gradient is the two inputs',
** which one pass gives in float32 for one and in 16 bits for the other */
int amp__bwd_add_layer_norm(amp_bwd *bwd)
{
  const args_add_layer_norm *args = AMP_ARGS(bwd, add_layer_norm);
  const amp_shape *shape = SHAPE(bwd, bwd->nin + 1);
  amp_tensor *grad = GRAD(bwd), *tensor = amp__op_cast(bwd->grad[1], shape->dtype), *out[AMP_MAX_OUT] = { NULL };
  int status = 0, also = -1;
  if (bwd->grad[1]) OR_FAIL(tensor);
  if (grad) {
    amp_tensor *at = amp__op_detach(OUTPUT(bwd, 2)),
               *inputs[6]
               = { grad, OUTPUT(bwd, 1), part(at, 0), part(at, 1), amp__has(bwd, 2) ? INPUT(bwd, 2) : NULL, tensor };
    amp_attrs attrs = amp__attrs();
    if (!inputs[1] || !inputs[2] || !inputs[3] || (amp__has(bwd, 2) && !inputs[4])) return amp__err();
    for (int i = 0; i < 2 && !bwd->create_graph && shape->device != AMP_CPU; i++)
      if (NEEDS(bwd, i) && SHAPE(bwd, i)->dtype != shape->dtype) also = SHAPE(bwd, i)->dtype;
    amp__attrs_copy(&attrs, AMP_SLOT(args->shape), 9);
    amp__attrs_int(&attrs, also < 0 ? AMP_NONE : also);
    if ((status = amp__op_results(AMP_OP_layer_norm_backward, &attrs, 6, inputs, out)) < 0) return status;
    tensor = out[0];
  }
  for (int i = 0; i < 2 && status == 0; i++)
    if (NEEDS(bwd, i))
      status = INPUT_GRAD(bwd, i, amp__op_to_input(bwd, i, SHAPE(bwd, i)->dtype == also ? out[3] : tensor));
  for (int i = 2; i < 4 && status == 0 && grad; i++)
    if (NEEDS(bwd, i)) status = INPUT_GRAD(bwd, i, amp__op_to_input(bwd, i, out[i - 1]));
  return status;
}

/* A row of the last dimensions: im is the place of the mean, -1: none; the sum stands behind the weight, iw */
static int rows(amp_bwd *bwd, int im, int ir, int iw)
{
  const args_layer_norm_backward *args = AMP_ARGS(bwd, layer_norm_backward);
  const amp_shape *shape = SHAPE(bwd, 1);
  int first = shape->ndim - (int)args->shape.n;
  uint32_t inner = 0;
  norm terms = { .grad_place = 0, .input_place = 1, .weight_place = iw, .live = true, .elements = 1 };
  OR_FAIL(terms.grad = INPUT(bwd, 0));
  OR_FAIL(terms.input = INPUT(bwd, 1));
  if (amp__has(bwd, iw)) OR_FAIL(terms.weight = INPUT(bwd, iw));
  for (int i = 0; i < shape->ndim; i++) {
    if (i < first) terms.rest[terms.nrest++] = i;
    else {
      terms.group[terms.ngroup++] = i;
      terms.elements *= (double)shape->size[i];
      inner |= 1u << i;
    }
  }
  if (im >= 0) OR_FAIL(terms.mean = amp__op_kept_dims(INPUT(bwd, im), shape->ndim, shape->size, inner));
  terms.rstd = amp__op_kept_dims(INPUT(bwd, ir), shape->ndim, shape->size, inner);
  if (bwd->grad[0] && NEEDS(bwd, iw + 1)) {
    int status = INPUT_GRAD(bwd, iw + 1, amp__op_to_input(bwd, iw + 1, bwd->grad[0]));
    if (status < 0) return status;
  }
  return second(bwd, &terms, bwd->grad[0], bwd->grad[1], im >= 0 ? bwd->grad[2] : NULL);
}

int amp__bwd_layer_norm_backward(amp_bwd *bwd) { return rows(bwd, 2, 3, 4); }

/* -- Root mean square -------------------------------------------------------------------- */

int amp__bwd_rms_norm(amp_bwd *bwd)
{
  const args_rms_norm *args = AMP_ARGS(bwd, rms_norm);
  amp_tensor *out[AMP_MAX_OUT];
  amp_tensor *inputs[5] = { GRAD(bwd), INPUT(bwd, 0), OUTPUT(bwd, 1), amp__has(bwd, 1) ? INPUT(bwd, 1) : NULL };
  OR_FAIL(inputs[1]);
  if (amp__has(bwd, 1)) OR_FAIL(inputs[3]);
  inputs[4] = add_so_far(bwd, inputs[1]);
  amp_attrs attrs = amp__attrs();
  amp__attrs_copy(&attrs, AMP_SLOT(args->shape), 9);
  int status = amp__op_results(AMP_OP_rms_norm_backward, &attrs, 5, inputs, out);
  if (status == 0 && NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, out[0]));
  if (status == 0 && NEEDS(bwd, 1)) status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, out[1]));
  return status;
}

int amp__bwd_rms_norm_backward(amp_bwd *bwd) { return rows(bwd, -1, 2, 3); }

/* -- Groups of channels ------------------------------------------------------------------- */

int amp__bwd_group_norm(amp_bwd *bwd)
{
  const args_group_norm *args = AMP_ARGS(bwd, group_norm);
  amp_tensor *out[AMP_MAX_OUT];
  amp_tensor *inputs[5]
      = { GRAD(bwd), INPUT(bwd, 0), OUTPUT(bwd, 1), OUTPUT(bwd, 2), amp__has(bwd, 1) ? INPUT(bwd, 1) : NULL };
  if (amp__has(bwd, 1)) OR_FAIL(inputs[4]);
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, args->num_groups);
  int status = amp__op_results(AMP_OP_group_norm_backward, &attrs, 5, inputs, out);
  if (status == 0 && NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, out[0]));
  if (status == 0 && NEEDS(bwd, 1)) status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, out[1]));
  if (status == 0 && NEEDS(bwd, 2)) status = INPUT_GRAD(bwd, 2, amp__op_to_input(bwd, 2, out[2]));
  return status;
}

int amp__bwd_group_norm_backward(amp_bwd *bwd)
{
  const args_group_norm_backward *args = AMP_ARGS(bwd, group_norm_backward);
  const amp_shape *shape = SHAPE(bwd, 1);
  int64_t groups = args->num_groups, d = shape->size[1] / groups, rest = 1;
  for (int i = 2; i < shape->ndim; i++) rest *= shape->size[i];
  int64_t data[4] = { shape->size[0], groups, d, rest }, of_group[4] = { shape->size[0], groups, 1, 1 },
          of_channel[3] = { groups, d, 1 };
  norm terms = { .grad_place = 0,
                 .input_place = 1,
                 .weight_place = 4,
                 .ngroup = 2,
                 .group = { 2, 3 },
                 .nrest = 2,
                 .rest = { 0, 3 },
                 .live = true,
                 .elements = (double)(d * rest) };
  amp_tensor *v = bwd->grad[0], *a = bwd->grad[1], *c = bwd->grad[2];
  OR_FAIL(terms.grad = amp__op_view(INPUT(bwd, 0), 4, data));
  OR_FAIL(terms.input = amp__op_view(INPUT(bwd, 1), 4, data));
  if (amp__has(bwd, 4)) OR_FAIL(terms.weight = amp__op_view(INPUT(bwd, 4), 3, of_channel));
  OR_FAIL(terms.mean = amp__op_view(INPUT(bwd, 2), 4, of_group));
  terms.rstd = amp__op_view(INPUT(bwd, 3), 4, of_group);
  if (v) OR_FAIL(v = amp__op_view(v, 4, data));
  if (a) OR_FAIL(a = amp__op_view(a, 3, of_channel));
  if (c) OR_FAIL(c = amp__op_view(c, 3, of_channel));
  return second(bwd, &terms, v, a, c);
}
