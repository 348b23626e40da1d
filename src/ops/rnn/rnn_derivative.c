/*
** ops/rnn/rnn_derivative.c: derivative of a recurrent layer.
**
** Going back through the steps gives the gradients of the gates' sums; all
** others are products over the whole sequence:
**
**   dx = dg W_ih   dW_ih = dg^T x   dW_hh = du^T h_prev   db = sums of dg, du
**
** (du is dg, but for a GRU, whose last gate scales the state's part.) The steps
** are the fused row rnn_layer_backward; where a graph of the derivative is
** wanted they run once more, forward and back, in recorded ops.
*/
#include <stdlib.h>
#include "autograd/derivative.h"
#include "autograd/tape.h"

enum { IN_X, IN_H, IN_C, IN_W, IN_U, IN_BW, IN_BU, IN_SIZES };

typedef struct rnn_back {
  amp_tensor *input, *prev;          /* rows x input size; rows x state */
  amp_tensor *dgates, *dgates_state; /* of the gates' sums; of their part that comes from the state */
  amp_tensor *dfirst_h, *dfirst_c;
} rnn_back;

/* -- Steps in recorded ops ---------------------------------------------------------- */

typedef struct step {
  int64_t first, rows;
  amp_tensor *gate[4]; /* activated */
  amp_tensor *state, *cell, *before, *cell_before;
  amp_tensor *inner; /* LSTM: tanh of the cell; GRU: the state's part of the last gate */
  amp_tensor *dgates, *dgates_state;
} step;

static amp_tensor *gate(amp_tensor *tensor, int64_t i, int64_t hidden)
{
  return amp__op_narrow(tensor, 1, i * hidden, hidden);
}
static amp_tensor *rows_of(amp_tensor *tensor, int64_t first, int64_t rows)
{
  return tensor && tensor->size[0] == rows ? tensor : amp__op_narrow(tensor, 0, first, rows);
}
static amp_tensor *one_minus(amp_tensor *tensor) { return OP_NUMBER(add, OP1(neg, tensor), 1); }
static amp_tensor *join(amp_tensor *a, amp_tensor *b)
{
  amp_tensor *inputs[2] = { a, b };
  return amp__op_dim(AMP_OP_cat, 0, 2, inputs);
}
static amp_tensor *joined(int64_t count, amp_tensor *const *inputs, int dim)
{
  return count == 1 ? inputs[0] : amp__op_dim(AMP_OP_cat, dim, (int)count, inputs);
}

/* So many rows of a state: those of the step before, then those that start now */
static amp_tensor *state(amp_tensor *before, amp_tensor *initial, int64_t rows)
{
  if (!before) return rows_of(initial, 0, rows);
  if (before->size[0] >= rows) return rows_of(before, 0, rows);
  return join(before, amp__op_narrow(initial, 0, before->size[0], rows - before->size[0]));
}

static amp_tensor *linear(amp_tensor *input, amp_tensor *weight, amp_tensor *b)
{
  amp_tensor *inputs[3] = { input, weight, b };
  return amp__op(AMP_OP_linear, NULL, 3, inputs);
}

static int ahead(step *step, int mode, amp_tensor *gx, amp_tensor *weight, amp_tensor *bias, int64_t hidden)
{
  amp_tensor *u = linear(step->before, weight, bias), *input = rows_of(gx, step->first, step->rows);
  if (mode == RNN_LAYER_MODE_GRU) {
    step->gate[0] = OP1(sigmoid, OP2(add, gate(input, 0, hidden), gate(u, 0, hidden)));
    step->gate[1] = OP1(sigmoid, OP2(add, gate(input, 1, hidden), gate(u, 1, hidden)));
    step->inner = gate(u, 2, hidden);
    step->gate[2] = OP1(tanh, OP2(add, gate(input, 2, hidden), OP2(mul, step->gate[0], step->inner)));
    step->state = OP2(add, step->gate[2], OP2(mul, step->gate[1], OP2(sub, step->before, step->gate[2])));
  } else if (mode == RNN_LAYER_MODE_LSTM) {
    input = OP2(add, input, u);
    for (int i = 0; i < 4; i++) step->gate[i] = amp__op1(i == 2 ? AMP_OP_tanh : AMP_OP_sigmoid, gate(input, i, hidden));
    step->cell = OP2(add, OP2(mul, step->gate[1], step->cell_before), OP2(mul, step->gate[0], step->gate[2]));
    step->inner = OP1(tanh, step->cell);
    step->state = OP2(mul, step->gate[3], step->inner);
  } else step->state = amp__op1(mode == RNN_LAYER_MODE_TANH ? AMP_OP_tanh : AMP_OP_relu, OP2(add, input, u));
  return step->state ? 0 : amp__err();
}

static amp_tensor *sigmoid_back(amp_tensor *g, amp_tensor *output) { return OP2(sigmoid_backward, g, output); }
static amp_tensor *tanh_back(amp_tensor *g, amp_tensor *output) { return OP2(tanh_backward, g, output); }

/* d, *dc: gradients of the step's states; they become those of the states before. */
static amp_tensor *behind(step *step, int mode, amp_tensor *weight, amp_tensor *d, amp_tensor **dc)
{
  amp_tensor **q = step->gate, *inputs[4], *carry = NULL;
  if (mode == RNN_LAYER_MODE_GRU) {
    amp_tensor *dn = tanh_back(OP2(mul, d, one_minus(q[1])), q[2]);
    inputs[0] = sigmoid_back(OP2(mul, dn, step->inner), q[0]);
    inputs[1] = sigmoid_back(OP2(mul, d, OP2(sub, step->before, q[2])), q[1]);
    inputs[2] = dn;
    step->dgates = joined(3, inputs, 1);
    inputs[2] = OP2(mul, dn, q[0]);
    step->dgates_state = joined(3, inputs, 1);
    carry = OP2(mul, d, q[1]);
  } else if (mode == RNN_LAYER_MODE_LSTM) {
    amp_tensor *tensor = tanh_back(OP2(mul, d, q[3]), step->inner);
    if (*dc) tensor = OP2(add, *dc, tensor);
    inputs[0] = sigmoid_back(OP2(mul, tensor, q[2]), q[0]);
    inputs[1] = sigmoid_back(OP2(mul, tensor, step->cell_before), q[1]);
    inputs[2] = tanh_back(OP2(mul, tensor, q[0]), q[2]);
    inputs[3] = sigmoid_back(OP2(mul, d, step->inner), q[3]);
    step->dgates = step->dgates_state = joined(4, inputs, 1);
    *dc = OP2(mul, tensor, q[1]);
    if (!*dc) return NULL;
  } else
    step->dgates = step->dgates_state
        = amp__op2(mode == RNN_LAYER_MODE_TANH ? AMP_OP_tanh_backward : AMP_OP_relu_backward, d, step->state);
  d = OP2(matmul, step->dgates_state, weight);
  return carry ? OP2(add, d, carry) : d;
}

/* Rows of d (for the first m elements of the batch) in place of those it had; all: what the others keep. */
static amp_tensor *replace(amp_tensor *all, amp_tensor *d)
{
  if (!all || !d || all->size[0] == d->size[0]) return d;
  return join(d, amp__op_narrow(all, 0, d->size[0], all->size[0] - d->size[0]));
}

static amp_tensor *zeros(const amp_tensor *like, int64_t count, int64_t hidden)
{
  int64_t size[2] = { count, hidden };
  return amp__op_full(0, like->dtype, like->device, like->device_index, 2, size);
}

static amp_tensor *in_type(amp_tensor *tensor, int type) { return amp__op_cast(tensor, type); }

/* Back through the steps. *dh, *dc: gradients of the last states; they become those of the first ones. */
static int all_behind(step *now, int64_t steps, bool reverse, int mode, amp_tensor *u, amp_tensor *gy, amp_tensor **dh,
                      amp_tensor **dc)
{
  for (int64_t i = steps - 1; i >= 0; i--) {
    step *p = now + (reverse ? steps - 1 - i : i);
    amp_tensor *d = rows_of(*dh, 0, p->rows), *e = *dc ? rows_of(*dc, 0, p->rows) : NULL;
    if (gy) d = OP2(add, d, rows_of(gy, p->first, p->rows));
    d = behind(p, mode, u, d, &e);
    if (steps == 1) *dh = d; /* its size may be another */
    else *dh = replace(*dh, d);
    if (*dc) *dc = replace(*dc, e);
    if (!*dh || (mode == RNN_LAYER_MODE_LSTM && !*dc)) return amp__err();
  }
  return 0;
}

static int recorded(amp_bwd *bwd, amp_tensor *const *inputs, rnn_back *back)
{
  int mode = (int)AMP_ARGS(bwd, rnn_layer)->mode,
      type = amp__is_half(inputs[IN_U]->dtype) ? AMP_FLOAT32 : inputs[IN_U]->dtype, status = AMP_E_MEMORY;
  bool reverse = AMP_ARGS(bwd, rnn_layer)->reverse != 0;
  amp_tensor *weight = in_type(inputs[IN_W], type), *u = in_type(inputs[IN_U], type), *h0 = in_type(inputs[IN_H], type),
             *c0 = NULL;
  amp_tensor *bw = inputs[IN_BW] ? in_type(inputs[IN_BW], type) : NULL,
             *bu = inputs[IN_BU] ? in_type(inputs[IN_BU], type) : NULL;
  const amp_tensor *sizes = inputs[IN_SIZES];
  OR_FAIL(h0);
  if (inputs[IN_C]) OR_FAIL(c0 = in_type(inputs[IN_C], type));
  OR_FAIL(back->input = in_type(back->input, type));
  int64_t rows = back->input->size[0], count = h0->size[0], steps = sizes ? sizes->size[0] : SHAPE(bwd, IN_X)->size[0];
  int64_t hidden = u->size[0]
                   / (mode == RNN_LAYER_MODE_LSTM  ? 4
                      : mode == RNN_LAYER_MODE_GRU ? 3
                                                   : 1),
          flat[2] = { rows, hidden };
  amp_tensor *gx = linear(back->input, weight, bw), *gy = bwd->grad[0], *dh = bwd->grad[1],
             *dc = mode == RNN_LAYER_MODE_LSTM ? bwd->grad[2] : NULL;
  OR_FAIL(gx);
  if (gy) OR_FAIL(gy = in_type(amp__op_view(gy, 2, flat), type));
  OR_FAIL(dh = dh ? in_type(dh, type) : zeros(gx, count, hidden));
  if (dc) OR_FAIL(dc = in_type(dc, type));
  else if (mode == RNN_LAYER_MODE_LSTM) OR_FAIL(dc = zeros(gx, count, hidden));
  step *now = calloc((size_t)steps, sizeof *now);
  amp_tensor **list = malloc(sizeof *list * (size_t)steps);
  if (!now || !list) {
    amp__nomem(sizeof *now * (size_t)steps);
    goto out;
  }
  for (int64_t step_at = 0, at = 0; step_at < steps; at += now[step_at++].rows) {
    now[step_at].first = at;
    now[step_at].rows = sizes ? (int64_t)amp__element(sizes, step_at * sizes->stride[0]) : count;
  }
  amp_tensor *hs = NULL, *cs = NULL;
  for (int64_t i = 0; i < steps; i++) {
    step *p = now + (reverse ? steps - 1 - i : i);
    p->before = state(hs, h0, p->rows);
    if (mode == RNN_LAYER_MODE_LSTM) p->cell_before = state(cs, c0, p->rows);
    if ((status = ahead(p, mode, gx, u, bu, hidden)) < 0) goto out;
    hs = p->state;
    cs = p->cell;
  }
  if ((status = all_behind(now, steps, reverse, mode, u, gy, &dh, &dc)) < 0) goto out;
  for (int64_t step_at = 0; step_at < steps; step_at++) list[step_at] = now[step_at].dgates;
  back->dgates = joined(steps, list, 0);
  for (int64_t step_at = 0; step_at < steps; step_at++) list[step_at] = now[step_at].dgates_state;
  back->dgates_state = mode == RNN_LAYER_MODE_GRU ? joined(steps, list, 0) : back->dgates;
  for (int64_t step_at = 0; step_at < steps; step_at++) list[step_at] = now[step_at].before;
  back->prev = joined(steps, list, 0);
  back->dfirst_h = dh;
  back->dfirst_c = dc;
  status = back->dgates && back->dgates_state && back->prev ? 0 : amp__err();
out:
  free(now);
  free(list);
  return status;
}

/* -- The derivative -------------------------------------------------------------------- */

/* The reserve is most of what a layer holds: it is freed before the products, which need memory themselves. The places
** of the results then hold the gradients made of them, so that a second try after a lack of memory begins there. */
static int fused(amp_bwd *bwd, amp_tensor *const *inputs, rnn_back *back)
{
  const args_rnn_layer *args = AMP_ARGS(bwd, rnn_layer);
  amp_node *node = bwd->node;
  amp_saved *kept = &node->saved[bwd->nin];
  amp_tensor *out[AMP_MAX_OUT];
  if (node->flags & AMP_N_SPENT)
    for (int i = 0; i < node->nout; i++) out[i] = kept[i].tensor;
  else {
    const bool last = bwd->last && kept[3].tensor && kept[3].tensor->device != AMP_CPU;
    amp_tensor *arg[8] = { bwd->grad[0], bwd->grad[1],   NULL,         last ? kept[3].tensor : OUTPUT(bwd, 3),
                           inputs[IN_U], OUTPUT(bwd, 0), inputs[IN_H], inputs[IN_SIZES] };
    amp_attrs attrs = amp__attrs();
    amp__attrs_all(&attrs, args);
    if (args->mode == RNN_LAYER_MODE_LSTM) arg[2] = bwd->grad[2];
    int status = amp__op_results(AMP_OP_rnn_layer_backward, &attrs, 8, arg, out);
    if (status < 0) return status;
    for (int i = 0; last && i < node->nout; i++) {
      amp__saved_free(&kept[i]);
      if ((kept[i].tensor = out[i])) amp__retain(out[i]);
    }
    if (last) node->flags |= AMP_N_SPENT;
  }
  back->dgates = out[0];
  back->dgates_state = args->mode == RNN_LAYER_MODE_GRU ? out[2] : out[0];
  back->dfirst_h = out[1];
  back->dfirst_c = out[2];
  back->prev = !inputs[IN_SIZES] && SHAPE(bwd, IN_X)->size[0] == 1 ? inputs[IN_H] : out[3];
  return 0;
}

/* The gradients of a single step's result and of its last state add up, since both are the same tensor. Where the
** state's gradient came first, g may be the result's: g in the result's shape, or NULL. */
amp_tensor *amp__rnn_beside(amp_node *node, const amp_tensor *first, const amp_tensor *g)
{
  const amp_shape *y = amp__shape_of(node, node->nin);
  int64_t stride[AMP_MAX_DIM];
  if (y->ndim != 3 || y->size[0] != 1 || y->dtype != g->dtype || first->dtype != g->dtype
      || !(g->flags & AMP_T_CONTIGUOUS))
    return NULL;
  amp__contiguous_strides(3, y->size, stride);
  return amp__tensor_view(g, 3, y->size, stride, g->offset);
}

static amp_tensor *turned(amp_tensor *tensor) { return amp__op_transpose(tensor, 0, 1); }

int amp__bwd_rnn_layer(amp_bwd *bwd)
{
  amp_tensor *inputs[8] = { NULL }, *sum = NULL;
  rnn_back back;
  int status, zero = 0;
  memset(&back, 0, sizeof back);
  for (int i = 0; i < 8; i++)
    if (amp__has(bwd, i)) OR_FAIL(inputs[i] = INPUT(bwd, i));
  const amp_shape *shape = SHAPE(bwd, IN_X);
  int64_t flat[2] = { 1, shape->size[shape->ndim - 1] };
  for (int dim = 0; dim < shape->ndim - 1; dim++) flat[0] *= shape->size[dim];
  OR_FAIL(back.input = amp__op_view(inputs[IN_X], 2, flat));
  if ((status = bwd->create_graph ? recorded(bwd, inputs, &back) : fused(bwd, inputs, &back)) < 0) return status;
  amp_tensor *weight = amp__op_cast(inputs[IN_W], back.dgates->dtype);
  if (NEEDS(bwd, IN_X))
    status = INPUT_GRAD(
        bwd, IN_X,
        amp__op_to_input(bwd, IN_X, amp__op_view(OP2(matmul, back.dgates, weight), shape->ndim, shape->size)));
  if (status == 0 && NEEDS(bwd, IN_H)) status = INPUT_GRAD(bwd, IN_H, amp__op_to_input(bwd, IN_H, back.dfirst_h));
  if (status == 0 && NEEDS(bwd, IN_C)) status = INPUT_GRAD(bwd, IN_C, amp__op_to_input(bwd, IN_C, back.dfirst_c));
  if (status < 0) return status;
  if (!bwd->create_graph && !inputs[IN_SIZES]
      && shape->size[0] == 1) { /* a step of many: the weights' gradients are made of all at once */
    const amp_want want[] = { { IN_W, 0, 1 },
                              { IN_U, back.dgates_state == back.dgates ? 0 : 3, 2 },
                              { IN_BW, 0, -1 },
                              { IN_BU, back.dgates_state == back.dgates ? 0 : 3, -1 } };
    amp_tensor *part[4] = { back.dgates, back.input, back.prev, back.dgates_state };
    if ((status = amp__defer_wgrad(bwd, back.dgates_state == back.dgates ? 3 : 4, part, 4, want)) != 0)
      return status < 0 ? status : 0;
  }
  if (status == 0 && NEEDS(bwd, IN_W))
    status = INPUT_GRAD(bwd, IN_W, amp__op_to_input(bwd, IN_W, OP2(matmul, turned(back.dgates), back.input)));
  if (status == 0 && NEEDS(bwd, IN_U))
    status = INPUT_GRAD(bwd, IN_U, amp__op_to_input(bwd, IN_U, OP2(matmul, turned(back.dgates_state), back.prev)));
  if (status == 0 && (NEEDS(bwd, IN_BW) || (NEEDS(bwd, IN_BU) && back.dgates_state == back.dgates)))
    OR_FAIL(sum = amp__op_sum(back.dgates, 1, &zero, false));
  if (status == 0 && NEEDS(bwd, IN_BW)) status = INPUT_GRAD(bwd, IN_BW, amp__op_to_input(bwd, IN_BW, sum));
  if (status == 0 && NEEDS(bwd, IN_BU))
    status = INPUT_GRAD(
        bwd, IN_BU,
        amp__op_to_input(bwd, IN_BU,
                         back.dgates_state == back.dgates ? sum : amp__op_sum(back.dgates_state, 1, &zero, false)));
  return status;
}
