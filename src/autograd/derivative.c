/*
** autograd/derivative.c: a derivative's view of its node, and words that formulas use (autograd/derivative.h).
*/
#include "autograd/derivative.h"

amp_tensor *amp__op_to_input(amp_bwd *bwd, int i, amp_tensor *g)
{
  const amp_shape *shape = SHAPE(bwd, i);
  if (!g) return NULL;
  if (!(g->ndim == shape->ndim && memcmp(g->size, shape->size, sizeof *shape->size * shape->ndim) == 0))
    g = amp__op_shaped(AMP_OP_sum_to, g, shape->ndim, shape->size);
  g = amp__op_cast(g, shape->dtype);
  if (g && (g->device != shape->device || g->device_index != shape->device_index)) {
    amp_attrs attrs = amp__attrs();
    amp__attrs_int(&attrs, shape->device * 256 + shape->device_index);
    g = amp__op(AMP_OP_to_device, &attrs, 1, &g);
  }
  return g;
}

amp_tensor *amp__slope(int function, amp_tensor *grad, amp_tensor *point, double p, double q, double r)
{
  amp_tensor *inputs[2] = { grad, point };
  amp_attrs attrs = amp__attrs();
  if (!grad || !point) return NULL;
  amp__attrs_int(&attrs, function);
  amp__attrs_float(&attrs, p);
  amp__attrs_float(&attrs, q);
  amp__attrs_float(&attrs, r);
  return amp__op(AMP_OP_slope, &attrs, 2, inputs);
}

amp_tensor *amp__pair_slope(int term, amp_tensor *grad, amp_tensor *input, amp_tensor *other, double by)
{
  amp_tensor *inputs[3] = { grad, input, other };
  amp_attrs attrs = amp__attrs();
  if (!grad || !input || !other) return NULL;
  amp__attrs_int(&attrs, term);
  amp__attrs_float(&attrs, by);
  return amp__op(AMP_OP_pair_slope, &attrs, 3, inputs);
}

amp_tensor *amp__op_zeros_like_in(amp_bwd *bwd, int i, int dtype)
{
  const amp_shape *shape = SHAPE(bwd, i);
  return amp__op_full(0, dtype, shape->device, shape->device_index, shape->ndim, shape->size);
}

amp_tensor *amp__op_zeros_like(amp_bwd *bwd, int i) { return amp__op_zeros_like_in(bwd, i, SHAPE(bwd, i)->dtype); }

amp_tensor *amp__op_into_zeros(amp_bwd *bwd, int op, int dim, amp_tensor *index, amp_tensor *grad)
{
  if (!index || !grad) return NULL;
  amp_tensor *inputs[3] = { amp__op_zeros_like_in(bwd, 0, grad->dtype), index, grad };
  if (!inputs[0]) return NULL;
  amp_attrs attrs = amp__attrs();
  amp__attrs_copy(&attrs, amp__ops[op].defaults, amp__ops[op].info.nslot);
  attrs.v[0].i = dim + 1;
  if (bwd->create_graph) return amp__op(op, &attrs, 3, inputs);
  return amp__dispatch(op, AMP_INPLACE, inputs, 3, NULL, attrs.v) < 0 ? NULL : inputs[0];
}

bool amp__need(amp_bwd *bwd, int i) { return i < bwd->nin && (bwd->node->edge[i].node || bwd->node->edge[i].leaf); }
bool amp__has(amp_bwd *bwd, int i) { return i < bwd->nin && SHAPE(bwd, i)->dtype != 0xff; }
amp_tensor *amp__saved_tensor(amp_bwd *bwd, int i)
{
  return amp__pooled(amp__saved_get(bwd->node, i, bwd->create_graph));
}

int amp__input_grad(amp_bwd *bwd, int i, amp_tensor *g)
{
  if (!g) return amp__err();
  bwd->grad_in[i] = g;
  return 0;
}
