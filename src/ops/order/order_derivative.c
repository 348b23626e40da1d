/*
** ops/order/order_derivative.c: derivatives of ops that choose elements by order (sort, topk,
** kthvalue, mode, median). What was chosen is known by its index, so the gradient is
** scattered there; median over everything knows no index and shares among equals.
*/
#include "autograd/derivative.h"

/* -- Chosen by order ----------------------------------------------------------------- */

static int chosen(amp_bwd *bwd, int dim, bool kept)
{
  const amp_shape *shape = SHAPE(bwd, 0);
  amp_tensor *index = OUTPUT(bwd, 1), *grad = GRAD(bwd);
  if (shape->ndim == 0) return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, grad));
  if (!kept) {
    index = amp__op_kept_dims(index, shape->ndim, shape->size, 1u << dim);
    grad = amp__op_kept_dims(grad, shape->ndim, shape->size, 1u << dim);
  }
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, amp__op_into_zeros(bwd, AMP_OP_scatter, dim, index, grad)));
}

int amp__bwd_sort(amp_bwd *bwd) { return chosen(bwd, (int)AMP_ARGS(bwd, sort)->dim, true); }
int amp__bwd_topk(amp_bwd *bwd) { return chosen(bwd, (int)AMP_ARGS(bwd, topk)->dim, true); }
int amp__bwd_kthvalue(amp_bwd *bwd) { return chosen(bwd, (int)AMP_ARGS(bwd, kthvalue)->dim, false); }
int amp__bwd_mode(amp_bwd *bwd) { return chosen(bwd, (int)AMP_ARGS(bwd, mode)->dim, false); }

static int median(amp_bwd *bwd, int64_t dim)
{
  if (dim != AMP_NONE) return chosen(bwd, (int)dim, false);
  amp_tensor *x = INPUT(bwd, 0), *y = OUTPUT(bwd, 0);
  OR_FAIL(x);
  OR_FAIL(y);
  y = amp__op_view(y, 0, y->size);
  amp_tensor *equal = amp__op_where(OP1(isnan, y), OP1(isnan, x), OP2(eq, x, y));
  amp_tensor *n = amp__op_cast(amp__op_sum(amp__op_cast(equal, AMP_INT64), -1, NULL, false),
                               amp__is_half(x->dtype) ? AMP_FLOAT32 : x->dtype);
  return INPUT_GRAD(
      bwd, 0, amp__op_to_input(bwd, 0, amp__op_mask(equal, OP2(div, amp__op_view(GRAD(bwd), 0, GRAD(bwd)->size), n))));
}
int amp__bwd_median(amp_bwd *bwd) { return median(bwd, AMP_ARGS(bwd, median)->dim); }
int amp__bwd_nanmedian(amp_bwd *bwd) { return median(bwd, AMP_ARGS(bwd, nanmedian)->dim); }
