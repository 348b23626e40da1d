/*
** ops/layout/join_derivative.c: derivatives of cat, whose gradient is narrowed, of triangles and of
** diag_embed.
*/
#include "autograd/derivative.h"

int amp__bwd_cat(amp_bwd *bwd)
{
  amp_tensor *grad = GRAD(bwd);
  int dim = (int)AMP_ARGS(bwd, cat)->dim, status = 0;
  int64_t start = 0;
  for (int i = 0; i < bwd->nin && status == 0; i++) {
    const amp_shape *shape = SHAPE(bwd, i);
    if (shape->ndim != grad->ndim) { /* an empty vector joins anything */
      if (NEEDS(bwd, i)) status = INPUT_GRAD(bwd, i, amp__op_zeros_like(bwd, i));
      continue;
    }
    if (NEEDS(bwd, i))
      status = INPUT_GRAD(
          bwd, i, amp__op_to_input(bwd, i, bwd->nin == 1 ? grad : amp__op_narrow(grad, dim, start, shape->size[dim])));
    start += shape->size[dim];
  }
  return status;
}

static int triangle(amp_bwd *bwd, int op, int64_t diagonal)
{
  amp_tensor *g = GRAD(bwd);
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, diagonal);
  return INPUT_GRAD(bwd, 0, amp__op(op, &attrs, 1, &g));
}

int amp__bwd_tril(amp_bwd *bwd) { return triangle(bwd, AMP_OP_tril, AMP_ARGS(bwd, tril)->diagonal); }

int amp__bwd_triu(amp_bwd *bwd) { return triangle(bwd, AMP_OP_triu, AMP_ARGS(bwd, triu)->diagonal); }

int amp__bwd_diag_embed(amp_bwd *bwd)
{
  const args_diag_embed *args = AMP_ARGS(bwd, diag_embed);
  amp_tensor *grad = GRAD(bwd);
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, args->offset);
  amp__attrs_dim(&attrs, (int)args->dim1);
  amp__attrs_dim(&attrs, (int)args->dim2);
  return INPUT_GRAD(bwd, 0, amp__op(AMP_OP_diagonal, &attrs, 1, &grad));
}
