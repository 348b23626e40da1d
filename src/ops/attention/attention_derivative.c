/*
** ops/attention/attention_derivative.c: derivatives of attention, of the vector product and of addr.
**
** attention's first derivative is the fused row attention_backward, which makes
** the scores anew block by block. Where a graph of the derivative is wanted the
** same formulas run in recorded ops, with the matrix of scores:
**
**   P = softmax(q k^T * scale + mask)      dv = P^T g
**   dS = P (g v^T - sum of its row with P)  dq = dS k * scale,  dk = dS^T q * scale
**
** With dropout Z (0, or 1 / (1 - p) where a weight was kept; drawn anew by attention_kept) the result is of Z P, so
** dv = (Z P)^T g and g v^T is multiplied by Z.
*/
#include "ops/attention/attention_scores.h"

static amp_tensor *transposed(amp_tensor *tensor) { return amp__op_transpose(tensor, -2, -1); }

/* x where the weight was kept, scaled; else 0. kept NULL: x itself */
static amp_tensor *dropped(amp_tensor *kept, amp_tensor *x, double p)
{
  if (!kept) return x;
  return amp__op_where(kept, p < 1 ? OP_NUMBER(mul, x, 1 / (1 - p)) : x, amp__wrapped_number(0));
}

static int recorded(amp_bwd *bwd, amp_tensor *grad, amp_tensor *q, amp_tensor *k, amp_tensor *v, amp_tensor *mask)
{
  const args_attention *args = AMP_ARGS(bwd, attention);
  int status = 0, type = amp__is_half(q->dtype) ? AMP_FLOAT32 : q->dtype;
  double scale = args->scale, drop = args->dropout_p;
  amp_tensor *kept = NULL;
  if (drop > 0) {
    amp_tensor *from[3] = { q, k, OUTPUT(bwd, 2) };
    amp_attrs attrs = amp__attrs();
    amp__attrs_float(&attrs, drop);
    OR_FAIL(kept = amp__op(AMP_OP_attention_kept, &attrs, 3, from));
  }
  grad = amp__op_cast(grad, type);
  q = amp__op_cast(q, type);
  k = amp__op_cast(k, type);
  v = amp__op_cast(v, type);
  amp_tensor *p = amp__attention_weights(q, k, mask, args->is_causal != 0, scale);
  OR_FAIL(p);
  if (NEEDS(bwd, 2))
    status = INPUT_GRAD(bwd, 2, amp__op_to_input(bwd, 2, OP2(matmul, transposed(dropped(kept, p, drop)), grad)));
  if (status < 0 || !(NEEDS(bwd, 0) || NEEDS(bwd, 1))) return status;
  amp_tensor *inputs[2] = { dropped(kept, OP2(matmul, grad, transposed(v)), drop), p };
  amp_tensor *ds = amp__op_dim(AMP_OP_softmax_backward, -1, 2, inputs);
  if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, OP_NUMBER(mul, OP2(matmul, ds, k), scale)));
  if (status == 0 && NEEDS(bwd, 1))
    status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, OP_NUMBER(mul, OP2(matmul, transposed(ds), q), scale)));
  return status;
}

int amp__bwd_attention(amp_bwd *bwd)
{
  amp_tensor *inputs[8] = { GRAD(bwd), INPUT(bwd, 0), INPUT(bwd, 1), INPUT(bwd, 2), OUTPUT(bwd, 0), OUTPUT(bwd, 1) },
             *out[AMP_MAX_OUT];
  for (int i = 0; i < 6; i++) OR_FAIL(inputs[i]);
  if (amp__has(bwd, 3)) OR_FAIL(inputs[6] = INPUT(bwd, 3));
  if (AMP_ARGS(bwd, attention)->dropout_p > 0) OR_FAIL(inputs[7] = OUTPUT(bwd, 2));
  if (bwd->create_graph) return recorded(bwd, inputs[0], inputs[1], inputs[2], inputs[3], inputs[6]);
  amp_attrs attrs = amp__attrs();
  amp__attrs_all(&attrs, AMP_ARGS(bwd, attention));
  int status = amp__op_results(AMP_OP_attention_backward, &attrs, 8, inputs, out);
  bool all = NEEDS(bwd, 0) && NEEDS(bwd, 1) && NEEDS(bwd, 2);
  for (int i = 0; i < 3 && status == 0; i++) {
    if (!NEEDS(bwd, i)) continue;
    /* one of three in a storage would keep the others' memory */
    amp_tensor *grad = all || out[i]->storage != out[(i + 1) % 3]->storage ? out[i] : OP1(clone, out[i]);
    status = INPUT_GRAD(bwd, i, amp__op_to_input(bwd, i, grad));
  }
  return status;
}

/* a x b: of a it is b x g, of b it is g x a */
static amp_tensor *cross(amp_bwd *bwd, amp_tensor *input, amp_tensor *y)
{
  amp_tensor *inputs[2] = { input, y };
  return amp__op_dim(AMP_OP_cross, (int)AMP_ARGS(bwd, cross)->dim, 2, inputs);
}

/* tensor with as many dimensions as the result */
static amp_tensor *whole(amp_bwd *bwd, amp_tensor *tensor)
{
  const amp_shape *shape = SHAPE(bwd, bwd->nin);
  int64_t size[AMP_MAX_DIM];
  if (!tensor) return NULL;
  for (int dim = 0; dim < shape->ndim; dim++)
    size[dim] = dim < shape->ndim - tensor->ndim ? 1 : tensor->size[dim - (shape->ndim - tensor->ndim)];
  return amp__op_view(tensor, shape->ndim, size);
}

int amp__bwd_cross(amp_bwd *bwd)
{
  int status = 0;
  if (NEEDS(bwd, 0))
    status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, cross(bwd, whole(bwd, INPUT(bwd, 1)), GRAD(bwd))));
  if (status == 0 && NEEDS(bwd, 1))
    status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, cross(bwd, GRAD(bwd), whole(bwd, INPUT(bwd, 0)))));
  return status;
}

int amp__bwd_addr(amp_bwd *bwd)
{
  double beta = AMP_ARGS(bwd, addr)->beta, alpha = AMP_ARGS(bwd, addr)->alpha;
  amp_tensor *grad = GRAD(bwd);
  int status = 0;
  if (NEEDS(bwd, 0))
    status = INPUT_GRAD(bwd, 0,
                        beta == 0 ? amp__op_zeros_like(bwd, 0)
                                  : amp__op_to_input(bwd, 0, beta == 1 ? grad : OP_NUMBER(mul, grad, beta)));
  if (status == 0 && NEEDS(bwd, 1))
    status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, OP_NUMBER(mul, OP2(matmul, grad, INPUT(bwd, 2)), alpha)));
  if (status == 0 && NEEDS(bwd, 2))
    status = INPUT_GRAD(bwd, 2, amp__op_to_input(bwd, 2, OP_NUMBER(mul, OP2(matmul, INPUT(bwd, 1), grad), alpha)));
  return status;
}
