/*
** ops/reduce/reduce_derivative.c: derivatives of reductions and running sums. A reduced
** gradient is first viewed with its reduced dimensions kept (amp__op_kept_dims), then
** broadcasts by itself; the mask of reduced dimensions comes from the node.
** Gradients are exact where the usual quotient formulas are not: products of
** zeros, logsumexp of -inf, equal maxima.
*/
#include <float.h>
#include <math.h>
#include "autograd/derivative.h"

static amp_tensor *kept(amp_bwd *bwd, amp_tensor *tensor, uint32_t mask)
{
  const amp_shape *shape = SHAPE(bwd, 0);
  return amp__op_kept_dims(tensor, shape->ndim, shape->size, mask);
}

static int64_t count(const amp_shape *shape, uint32_t mask)
{
  int64_t n = 1;
  for (int i = 0; i < shape->ndim; i++)
    if (mask >> i & 1) n *= shape->size[i];
  return n;
}

static int dims_of(uint32_t mask, int *dims)
{
  int count = 0;
  for (int i = 0; i < AMP_MAX_DIM; i++)
    if (mask >> i & 1) dims[count++] = i;
  return count;
}

/* -- Sums and means ------------------------------------------------------------- */

/* grad, cast while it is small, then repeated */
static amp_tensor *spread(amp_bwd *bwd, amp_tensor *grad)
{
  const args_sum *args = AMP_ARGS(bwd, sum);
  const amp_shape *shape = SHAPE(bwd, 0);
  uint32_t mask = amp__dim_mask(AMP_SLOT(args->dim), shape->ndim);
  return amp__op_expand(kept(bwd, amp__op_cast(grad, shape->dtype), mask), shape->ndim, shape->size);
}

int amp__bwd_sum(amp_bwd *bwd) { return INPUT_GRAD(bwd, 0, spread(bwd, GRAD(bwd))); }
int amp__bwd_sum_to(amp_bwd *bwd)
{
  return INPUT_GRAD(bwd, 0, amp__op_expand(GRAD(bwd), SHAPE(bwd, 0)->ndim, SHAPE(bwd, 0)->size));
}

int amp__bwd_mean(amp_bwd *bwd)
{
  const args_mean *args = AMP_ARGS(bwd, mean);
  int64_t n = count(SHAPE(bwd, 0), amp__dim_mask(AMP_SLOT(args->dim), SHAPE(bwd, 0)->ndim));
  return INPUT_GRAD(bwd, 0, spread(bwd, OP_NUMBER(div, GRAD(bwd), (double)n)));
}

/* -- Product -------------------------------------------------------------------- */

/* input moved by `step` along dim, ones moving in */
static amp_tensor *moved(amp_tensor *input, int dim, int64_t step)
{
  if (!input) return NULL;
  int64_t size[AMP_MAX_DIM];
  memcpy(size, input->size, sizeof size);
  size[dim] = step;
  amp_tensor *one = amp__op_full(1, input->dtype, input->device, input->device_index, input->ndim, size);
  amp_tensor *inputs[2] = { one, amp__op_narrow(input, dim, 0, input->size[dim] - step) };
  return amp__op_dim(AMP_OP_cat, dim, 2, inputs);
}

/* Products of the elements before each one along dim, in log2(n) steps; exact
** and differentiable whatever is zero. */
static amp_tensor *before(amp_tensor *input, int dim)
{
  amp_tensor *e = moved(input, dim, 1);
  for (int64_t step = 1; e && step < e->size[dim]; step *= 2) e = OP2(mul, e, moved(e, dim, step));
  return e;
}

/* The product of all other elements. Once only: by what is zero. */
static amp_tensor *others_once(amp_tensor *input, int dim)
{
  amp_tensor *zero = OP_NUMBER(eq, input, 0), *rest = amp__op_fill_where(zero, input, 1);
  amp_tensor *zeros = amp__op_sum(zero, 1, &dim, true);
  amp_attrs attrs = amp__attrs();
  amp__attrs_dim(&attrs, dim);
  amp__attrs_int(&attrs, 1);
  amp__attrs_int(&attrs, AMP_NONE);
  amp_tensor *p = amp__op(AMP_OP_prod, &attrs, 1, &rest);
  return amp__op_where(zero, amp__op_mask(OP_NUMBER(eq, zeros, 1), p),
                       amp__op_mask(OP_NUMBER(eq, zeros, 0), OP2(div, p, rest)));
}

int amp__bwd_prod(amp_bwd *bwd)
{
  const args_prod *args = AMP_ARGS(bwd, prod);
  const amp_shape *shape = SHAPE(bwd, 0);
  int64_t count = amp__count(shape->ndim, shape->size);
  int dim = !AMP_GIVEN(args->dim) || shape->ndim == 0 ? -1 : (int)args->dim;
  amp_tensor *input = INPUT(bwd, 0), *grad = GRAD(bwd), *tensor;
  if (!input) return amp__err();
  if (count == 0) return INPUT_GRAD(bwd, 0, amp__op_zeros_like(bwd, 0));
  input = amp__op_cast(input, grad->dtype);
  if (dim < 0) {
    input = amp__op_view(input, 1, &count);
    grad = amp__op_view(grad, 0, shape->size);
    dim = 0;
  } else grad = kept(bwd, grad, 1u << dim);
  if (bwd->create_graph)
    tensor = OP2(mul, before(input, dim), amp__op_flip(before(amp__op_flip(input, dim), dim), dim));
  else tensor = others_once(input, dim);
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, amp__op_view(OP2(mul, tensor, grad), shape->ndim, shape->size)));
}

/* -- Extrema -------------------------------------------------------------------- */

/* Share g evenly among the elements that equal the result; `all`: a NaN among them is the result, else it leaves
** nothing but NaN. */
static int share(amp_bwd *bwd, uint32_t mask, bool all)
{
  int dims[AMP_MAX_DIM], count = dims_of(mask, dims);
  amp_tensor *input = INPUT(bwd, 0), *output = OUTPUT(bwd, 0), *each = kept(bwd, GRAD(bwd), mask);
  OR_FAIL(input && output);
  bool whole = amp__all_within(output, -INFINITY, INFINITY);
  amp_tensor *equal = OP2(eq, input, kept(bwd, output, mask));
  if (all && !whole) equal = OP2(logical_or, equal, OP1(isnan, input));
  if (count > 0) each = OP2(div, each, amp__op_sum(equal, count, dims, true));
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, all || whole ? amp__op_mask(equal, each) : OP2(mul, equal, each)));
}

static int extremum(amp_bwd *bwd)
{
  const args_max *args = AMP_ARGS(bwd, max);
  const amp_shape *shape = SHAPE(bwd, 0);
  if (!AMP_GIVEN(args->dim)) return share(bwd, (1u << shape->ndim) - 1, true);
  if (shape->ndim == 0) return INPUT_GRAD(bwd, 0, GRAD(bwd));
  int dim = (int)args->dim;
  amp_tensor *index = kept(bwd, OUTPUT(bwd, 1), 1u << dim), *grad = kept(bwd, GRAD(bwd), 1u << dim);
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, amp__op_into_zeros(bwd, AMP_OP_scatter, dim, index, grad)));
}

int amp__bwd_max(amp_bwd *bwd) { return extremum(bwd); }
int amp__bwd_min(amp_bwd *bwd) { return extremum(bwd); }
int amp__bwd_amax(amp_bwd *bwd)
{
  return share(bwd, amp__dim_mask(AMP_SLOT(AMP_ARGS(bwd, amax)->dim), SHAPE(bwd, 0)->ndim), false);
}
int amp__bwd_amin(amp_bwd *bwd)
{
  return share(bwd, amp__dim_mask(AMP_SLOT(AMP_ARGS(bwd, amin)->dim), SHAPE(bwd, 0)->ndim), false);
}

/* -- Moments and exponents -------------------------------------------------------- */

/* input less its mean. The mean of what is left is what the first mean was rounded by, a number without a
** derivative. */
static amp_tensor *deviation(amp_tensor *input, int count, const int *dims)
{
  amp_tensor *d = OP2(sub, input, count ? amp__op_mean(input, count, dims, true) : input);
  return count ? OP2(sub, d, amp__op_mean(amp__op_detach(d), count, dims, true)) : d;
}

/* g (x - mean), g having the reduced dimensions kept */
static int spread_grad(amp_bwd *bwd, amp_tensor *grad, uint32_t mask)
{
  amp_tensor *input = INPUT(bwd, 0);
  int dims[AMP_MAX_DIM], count = dims_of(mask, dims);
  OR_FAIL(input && grad);
  const bool recorded = bwd->create_graph || input->numel == 0;
  if (amp__is_half(input->dtype)) { /* the kernel computes in float32 by itself */
    if (recorded) input = amp__op_cast(input, AMP_FLOAT32);
    grad = amp__op_cast(grad, AMP_FLOAT32);
  }
  OR_FAIL(input && grad);
  if (recorded) return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, OP2(mul, grad, deviation(input, count, dims))));
  amp_tensor *inputs[2] = { grad, input };
  int64_t list[AMP_MAX_DIM];
  for (int i = 0; i < count; i++) list[i] = dims[i] + 1;
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, count, list);
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, amp__op(AMP_OP_var_backward, &attrs, 2, inputs)));
}

int amp__bwd_var(amp_bwd *bwd)
{
  const args_var *args = AMP_ARGS(bwd, var);
  const amp_shape *shape = SHAPE(bwd, 0);
  uint32_t mask = amp__dim_mask(AMP_SLOT(args->dim), shape->ndim);
  double left = (double)count(shape, mask) - args->correction;
  return spread_grad(bwd, OP_NUMBER(mul, kept(bwd, GRAD(bwd), mask), 2 / (left > 0 ? left : 0)), mask);
}

/* The gradient of a root is 0, not infinity or NaN, where the root is 0. */
int amp__bwd_std(amp_bwd *bwd)
{
  const args_std *args = AMP_ARGS(bwd, std);
  const amp_shape *shape = SHAPE(bwd, 0);
  uint32_t mask = amp__dim_mask(AMP_SLOT(args->dim), shape->ndim);
  double left = (double)count(shape, mask) - args->correction;
  amp_tensor *output = OUTPUT(bwd, 0), *grad = GRAD(bwd);
  OR_FAIL(output);
  if (amp__is_half(output->dtype)) {
    output = amp__op_cast(output, AMP_FLOAT32);
    grad = amp__op_cast(grad, AMP_FLOAT32);
  }
  output = kept(bwd, output, mask);
  if (!bwd->create_graph) {
    grad = amp__slope(FUNCTION_QUOTIENT, kept(bwd, grad, mask), output, 0, 1 / (left > 0 ? left : 0), 0);
    return spread_grad(bwd, grad, mask);
  }
  amp_tensor *none = OP_NUMBER(eq, output, 0);
  grad = OP2(div, amp__op_mask_not(none, kept(bwd, grad, mask)), amp__op_fill_where(none, output, 1));
  return spread_grad(bwd, OP_NUMBER(mul, grad, 1 / (left > 0 ? left : 0)), mask);
}

static amp_tensor *at_least(amp_tensor *tensor, double low)
{
  amp_attrs attrs = amp__attrs();
  amp__attrs_float(&attrs, low);
  amp__attrs_int(&attrs, AMP_NONE);
  return amp__op(AMP_OP_clamp, &attrs, 1, &tensor);
}

/* tensor within the finite numbers of its dtype */
static amp_tensor *in_range(amp_tensor *tensor)
{
  if (!tensor) return NULL;
  double most = tensor->dtype == AMP_FLOAT64 ? DBL_MAX : FLT_MAX;
  amp_attrs attrs = amp__attrs();
  amp__attrs_float(&attrs, -most);
  amp__attrs_float(&attrs, most);
  return amp__op(AMP_OP_clamp, &attrs, 1, &tensor);
}

/* g e / sum e for e = exp(x - result). The result is rounded, at most by the log of e's sum, which sets that
** right; the sum of -inf alone is 0, and +inf leaves NaN at itself and 0 elsewhere. */
int amp__bwd_logsumexp(amp_bwd *bwd)
{
  const args_logsumexp *args = AMP_ARGS(bwd, logsumexp);
  int dims[AMP_MAX_DIM], ndim = SHAPE(bwd, 0)->ndim, count = dims_of(amp__dim_mask(AMP_SLOT(args->dim), ndim), dims);
  uint32_t mask = amp__dim_mask(AMP_SLOT(args->dim), ndim);
  amp_tensor *input = INPUT(bwd, 0), *output = amp__op_detach(OUTPUT(bwd, 0));
  OR_FAIL(input && output);
  if (count == 0) return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, GRAD(bwd)));
  bool exact = amp__all_within(output, -16, 16); /* within 4 units in the last place */
  if (exact && !bwd->create_graph)
    return INPUT_GRAD(bwd, 0,
                      amp__op_to_input(bwd, 0,
                                       amp__pair_slope(TERM_EXP_DIFFERENCE, kept(bwd, GRAD(bwd), mask), input,
                                                       kept(bwd, output, mask), 1)));
  if (exact)
    return INPUT_GRAD(
        bwd, 0,
        amp__op_to_input(
            bwd, 0, OP2(mul, kept(bwd, GRAD(bwd), mask), OP1(exp, OP2(sub, input, kept(bwd, OUTPUT(bwd, 0), mask))))));
  output = kept(bwd, output, mask);
  if (amp__is_half(input->dtype)) { /* the rounded result is too far off for an exponent */
    int64_t list[AMP_MAX_DIM];
    amp_attrs attrs = amp__attrs();
    for (int i = 0; i < count; i++) list[i] = dims[i] + 1;
    amp__attrs_list(&attrs, count, list);
    amp__attrs_int(&attrs, 1);
    OR_FAIL(input = amp__op_cast(input, AMP_FLOAT32));
    amp_tensor *plain = amp__op_detach(input);
    OR_FAIL(output = amp__op(AMP_OP_logsumexp, &attrs, 1, &plain));
  }
  OR_FAIL(output = in_range(output));
  amp_tensor *one
      = bwd->create_graph ? NULL : amp__op_full(1, input->dtype, input->device, input->device_index, 0, NULL),
      *e = one ? amp__pair_slope(TERM_EXP_DIFFERENCE, one, input, output, 1) : OP1(exp, OP2(sub, input, output));
  return INPUT_GRAD(
      bwd, 0,
      amp__op_to_input(
          bwd, 0,
          OP2(mul, e, OP2(div, kept(bwd, GRAD(bwd), mask), at_least(amp__op_sum(e, count, dims, true), FLT_MIN)))));
}

/* -- Along a dimension ------------------------------------------------------------- */

/* Each other's derivative; the gradient is summed in its own dtype */
static int along(amp_bwd *bwd, int op, int64_t dim)
{
  amp_tensor *grad = GRAD(bwd);
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, grad->ndim ? amp__op_dim(op, (int)dim, 1, &grad) : grad));
}

int amp__bwd_cumsum(amp_bwd *bwd) { return along(bwd, AMP_OP_cumsum_back, AMP_ARGS(bwd, cumsum)->dim); }
int amp__bwd_cumsum_back(amp_bwd *bwd) { return along(bwd, AMP_OP_cumsum, AMP_ARGS(bwd, cumsum_back)->dim); }

int amp__bwd_flip(amp_bwd *bwd)
{
  const args_flip *args = AMP_ARGS(bwd, flip);
  amp_tensor *grad = GRAD(bwd);
  amp_attrs attrs = amp__attrs();
  amp__attrs_copy(&attrs, AMP_SLOT(args->dims), 9);
  for (int i = 0; i < attrs.v[0].i; i++) attrs.v[1 + i].i++;
  return INPUT_GRAD(bwd, 0, amp__op(AMP_OP_flip, &attrs, 1, &grad));
}
