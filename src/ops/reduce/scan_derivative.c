/*
** ops/reduce/scan_derivative.c: derivatives of what runs along a dimension: cummax and cummin,
** running products, the logarithm of running sums.
*/
#include <float.h>
#include <math.h>
#include "autograd/derivative.h"

static int best_so_far(amp_bwd *bwd, int64_t dim)
{
  if (GRAD(bwd)->ndim == 0) return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, GRAD(bwd)));
  int type = amp__is_half(GRAD(bwd)->dtype) ? AMP_FLOAT32 : GRAD(bwd)->dtype;
  amp_tensor *grad = amp__op_cast(GRAD(bwd), type),
             *sum = amp__op_into_zeros(bwd, AMP_OP_scatter_add, (int)dim, OUTPUT(bwd, 1), grad);
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, sum));
}

int amp__bwd_cummax(amp_bwd *bwd) { return best_so_far(bwd, AMP_ARGS(bwd, cummax)->dim); }

int amp__bwd_cummin(amp_bwd *bwd) { return best_so_far(bwd, AMP_ARGS(bwd, cummin)->dim); }

/* t moved by `step` along dim (negative: towards the start), `fill_value` moving in */
static amp_tensor *moved(amp_tensor *t, int dim, int64_t step, double fill_value)
{
  if (!t) return NULL;
  int64_t size[AMP_MAX_DIM], by = step < 0 ? -step : step, left = t->size[dim] - by;
  memcpy(size, t->size, sizeof size);
  size[dim] = by;
  amp_tensor *fill = amp__op_full(fill_value, t->dtype, t->device, t->device_index, t->ndim, size);
  amp_tensor *inputs[2] = { fill, amp__op_narrow(t, dim, step < 0 ? by : 0, left) };
  if (step < 0) {
    inputs[0] = inputs[1];
    inputs[1] = fill;
  }
  return amp__op_dim(AMP_OP_cat, dim, 2, inputs);
}

/* s[i] = g[i] + a[i] s[i + 1], in log2(n) steps that double what each place has summed */
static amp_tensor *recur_back(amp_tensor *g, amp_tensor *a, int dim)
{
  for (int64_t step = 1; g && a && step < g->size[dim]; step *= 2) {
    g = OP2(add, g, OP2(mul, a, moved(g, dim, -step, 0)));
    if (2 * step < a->size[dim]) a = OP2(mul, a, moved(a, dim, -step, 0));
  }
  return a ? g : NULL;
}

/* Gradient i is the product of all before i, times the sum over j >= i of g[j] times what lies between: exact whatever
** is zero, and differentiable again */
int amp__bwd_cumprod(amp_bwd *bwd)
{
  int dim = (int)AMP_ARGS(bwd, cumprod)->dim, type = amp__is_half(GRAD(bwd)->dtype) ? AMP_FLOAT32 : GRAD(bwd)->dtype;
  amp_tensor *x = amp__op_cast(INPUT(bwd, 0), type), *g = amp__op_cast(GRAD(bwd), type);
  OR_FAIL(x);
  OR_FAIL(g);
  if (x->ndim == 0 || x->size[dim] < 2) return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, g));
  if (!bwd->create_graph) {
    amp_tensor *inputs[2] = { g, x };
    return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, amp__op_dim(AMP_OP_cumprod_backward, dim, 2, inputs)));
  }
  amp_tensor *before = moved(x, dim, 1, 1);
  for (int64_t step = 1; before && step < x->size[dim]; step *= 2)
    before = OP2(mul, before, moved(before, dim, step, 1));
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, OP2(mul, before, recur_back(g, moved(x, dim, -1, 0), dim))));
}

/* exp(x[i] - y[i]) times the sum over j >= i of g[j] exp(y[i] - y[j]); y grows, so no factor is above 1 */
int amp__bwd_logcumsumexp(amp_bwd *bwd)
{
  int dim = (int)AMP_ARGS(bwd, logcumsumexp)->dim,
      type = amp__is_half(GRAD(bwd)->dtype) ? AMP_FLOAT32 : GRAD(bwd)->dtype;
  amp_tensor *x = amp__op_cast(INPUT(bwd, 0), type), *y = amp__op_cast(OUTPUT(bwd, 0), type),
             *g = amp__op_cast(GRAD(bwd), type);
  OR_FAIL(x);
  OR_FAIL(y);
  OR_FAIL(g);
  if (x->ndim > 0 && x->size[dim] > 1) {
    amp_tensor *step = OP2(sub, y, moved(y, dim, -1, INFINITY));
    if (!amp__all_within(y, -FLT_MAX, FLT_MAX)) {
      amp_tensor *none = OP_NUMBER(eq, y, -INFINITY),
                 *all = OP_NUMBER(eq, y, INFINITY); /* what comes after +inf adds nothing to it */
      step = amp__op_fill_where(OP2(logical_or, none, all), step, -INFINITY);
      y = amp__op_fill_where(none, y, 0);
    }
    g = recur_back(g, OP1(exp, step), dim);
  }
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, OP2(mul, OP1(exp, OP2(sub, x, y)), g)));
}
