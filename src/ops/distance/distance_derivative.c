/*
** ops/distance/distance_derivative.c: derivatives of norms and distances.
**
** Of y = |x|_p the gradient in x is sign(x) |x|^(p-1) y^(1-p), and 0 where that
** is no number: where y is 0, and, for p < 2, where x is 0. Extremes share their
** gradient among equals. It is written in x and y, so derivatives of it find
** their way to x through y as well.
**
** Distances of rows have fused backward kernels for the first derivative. When a
** graph of it is wanted, and for the euclidean distance of many rows, it is made
** of products and norms.
*/
#include <float.h>
#include <math.h>
#include "autograd/derivative.h"

static amp_tensor *mul(amp_tensor *a, amp_tensor *b) { return OP2(mul, a, b); }

static amp_tensor *euclidean(amp_tensor *g, amp_tensor *input, amp_tensor *y)
{
  amp_tensor *inputs[3] = { g, input, y };
  return amp__op(AMP_OP_norm_backward, NULL, 3, inputs);
}

/* q = g x / y is linear in g and in x; in y it is -q / y. */
int amp__bwd_norm_backward(amp_bwd *bwd)
{
  amp_tensor *v = GRAD(bwd), *grad = INPUT(bwd, 0), *input = INPUT(bwd, 1), *y = INPUT(bwd, 2);
  int status = 0;
  OR_FAIL(v && grad && input && y);
  if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, euclidean(v, input, y)));
  if (status == 0 && NEEDS(bwd, 1)) status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, euclidean(grad, v, y)));
  if (status == 0 && NEEDS(bwd, 2))
    status = INPUT_GRAD(bwd, 2, amp__op_to_input(bwd, 2, OP1(neg, euclidean(euclidean(grad, input, y), v, y))));
  return status;
}

/* g and y with the reduced dimensions kept */
static amp_tensor *norm_grad(amp_bwd *bwd, amp_tensor *grad, amp_tensor *input, amp_tensor *y, double p, uint32_t mask)
{
  if (!input || !y || !grad) return NULL;
  grad = amp__op_cast(grad, input->dtype);
  y = amp__op_cast(y, input->dtype);
  if (p == 2) return euclidean(grad, input, y);
  if (p == 0) return amp__op_full(0, input->dtype, input->device, input->device_index, input->ndim, input->size);
  if (p == 1) return mul(OP1(sign, input), grad);
  if (isinf(p)) {
    int dims[AMP_MAX_DIM], n = 0;
    for (int dim = 0; dim < input->ndim; dim++)
      if (mask >> dim & 1) dims[n++] = dim;
    amp_tensor *equal = OP2(eq, OP1(abs, input), y);
    amp_tensor *count = n ? amp__op_sum(amp__op_cast(equal, input->dtype), n, dims, true) : NULL;
    if (n && !count) return NULL;
    return amp__op_mask(equal, mul(OP1(sign, input), count ? OP2(div, grad, count) : grad));
  }
  amp_tensor *none
      = OP_NUMBER(lt, y, input->dtype == AMP_FLOAT64 ? DBL_MIN : FLT_MIN); /* nothing, or too little to divide by */
  grad = amp__op_mask_not(none, grad);
  y = amp__op_fill_where(none, y, 1);
  bool masked = p <= 1 || bwd->create_graph; /* a power of 0 is infinite or has no derivative of its own */
  amp_tensor *zero = masked ? OP_NUMBER(eq, input, 0) : NULL,
             *one = masked ? amp__op_fill_where(zero, input, 1) : input;
  amp_tensor *size = OP1(abs, one); /* for p in (0, 2) each power is in range, else the power of the quotient */
  size = p > 0 && p < 2 ? mul(OP_NUMBER(pow, size, p - 1), OP_NUMBER(pow, y, 1 - p))
                        : OP_NUMBER(pow, OP2(div, size, y), p - 1);
  size = mul(OP1(sign, one), size);
  return mul(masked ? amp__op_mask_not(zero, size) : size, grad);
}

int amp__bwd_lp_norm(amp_bwd *bwd)
{ /* p dim keepdim dtype */
  const args_lp_norm *args = AMP_ARGS(bwd, lp_norm);
  const amp_shape *shape = SHAPE(bwd, 0);
  uint32_t mask = amp__dim_mask(AMP_SLOT(args->dim), shape->ndim);
  amp_tensor *input = INPUT(bwd, 0), *y = OUTPUT(bwd, 0), *grad = GRAD(bwd);
  OR_FAIL(input && y);
  if (!bwd->create_graph && (args->p == 1 || args->p == 2)) { /* one kernel, which computes in float32 by itself */
    grad = amp__op_kept_dims(grad, shape->ndim, shape->size, mask);
    y = amp__op_kept_dims(y, shape->ndim, shape->size, mask);
    return INPUT_GRAD(
        bwd, 0,
        amp__op_to_input(bwd, 0,
                         args->p == 1 ? amp__slope(FUNCTION_ABS, grad, input, 0, 0, 0) : euclidean(grad, input, y)));
  }
  input = amp__op_cast(input, amp__is_half(input->dtype) ? AMP_FLOAT32 : amp__promote(input->dtype, y->dtype));
  grad = amp__op_kept_dims(grad, shape->ndim, shape->size, mask);
  y = amp__op_kept_dims(y, shape->ndim, shape->size, mask);
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, norm_grad(bwd, grad, input, y, args->p, mask)));
}

static amp_tensor *norm_of(amp_tensor *tensor, double p, uint32_t mask, bool keepdim)
{
  int64_t list[AMP_MAX_DIM];
  int n = 0;
  if (!tensor) return NULL;
  for (int dim = 0; dim < tensor->ndim; dim++)
    if (mask >> dim & 1) list[n++] = dim + 1;
  amp_attrs attrs = amp__attrs();
  amp__attrs_float(&attrs, p);
  amp__attrs_list(&attrs, n, list);
  amp__attrs_int(&attrs, keepdim);
  amp__attrs_int(&attrs, AMP_NONE);
  return amp__op(AMP_OP_lp_norm, &attrs, 1, &tensor);
}

/* y = x f(n), f = maxnorm / (n + 1e-7) where the norm n of a slice is above maxnorm, else 1 */
int amp__bwd_renorm(amp_bwd *bwd)
{ /* p dim maxnorm */
  const args_renorm *args = AMP_ARGS(bwd, renorm);
  const amp_shape *shape = SHAPE(bwd, 0);
  uint32_t mask = ((1u << shape->ndim) - 1) & ~(1u << args->dim);
  double p = args->p, most = args->maxnorm;
  int dims[AMP_MAX_DIM], ndim = 0;
  amp_tensor *input = INPUT(bwd, 0), *grad = GRAD(bwd);
  OR_FAIL(input);
  for (int dim = 0; dim < shape->ndim; dim++)
    if (mask >> dim & 1) dims[ndim++] = dim;
  int dtype = amp__is_half(input->dtype) ? AMP_FLOAT32 : input->dtype;
  input = amp__op_cast(input, dtype);
  grad = amp__op_cast(grad, dtype);
  amp_tensor *n = norm_of(input, p, mask, true), *over = OP_NUMBER(gt, n, most),
             *inv = OP1(reciprocal, OP_NUMBER(add, n, 1e-7));
  amp_tensor *f = amp__op_fill_where(OP1(logical_not, over), OP_NUMBER(mul, inv, most), 1);
  amp_tensor *slope = amp__op_mask(over, OP_NUMBER(mul, mul(inv, inv), -most)); /* of f in n */
  amp_tensor *gn = mul(slope, amp__op_sum(mul(grad, input), ndim, dims, true));
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, OP2(add, mul(grad, f), norm_grad(bwd, gn, input, n, p, mask))));
}

/* -- Distances of rows ------------------------------------------------------------------------- */

/* x1, x2 with the leading dimensions of the distances */
static amp_tensor *rows_of(amp_tensor *input, const amp_shape *dist)
{
  int64_t size[AMP_MAX_DIM];
  if (!input) return NULL;
  for (int dim = 0; dim < dist->ndim - 2; dim++) size[dim] = dist->size[dim];
  size[dist->ndim - 2] = input->size[input->ndim - 2];
  size[dist->ndim - 1] = input->size[input->ndim - 1];
  return amp__op_expand(input, dist->ndim, size);
}

/* With q = g / dist: sum_j q_ij (x_i - z_j), by products */
static int euclid(amp_bwd *bwd, amp_tensor *x1, amp_tensor *x2, amp_tensor *dist, amp_tensor *grad)
{
  int status = 0, last = dist->ndim - 1, before = last - 1;
  amp_tensor *none = OP_NUMBER(eq, dist, 0);
  amp_tensor *q = OP2(div, amp__op_mask_not(none, grad), amp__op_fill_where(none, dist, 1));
  if (NEEDS(bwd, 0))
    status = INPUT_GRAD(
        bwd, 0, amp__op_to_input(bwd, 0, OP2(sub, mul(x1, amp__op_sum(q, 1, &last, true)), OP2(matmul, q, x2))));
  if (status == 0 && NEEDS(bwd, 1)) {
    amp_tensor *tensor = amp__op_transpose(q, before, last);
    status = INPUT_GRAD(
        bwd, 1,
        amp__op_to_input(bwd, 1, OP2(sub, mul(x2, amp__op_sum(tensor, 1, &last, true)), OP2(matmul, tensor, x1))));
  }
  return status;
}

int amp__bwd_cdist(amp_bwd *bwd)
{ /* p compute_mode */
  const args_cdist *args = AMP_ARGS(bwd, cdist);
  const amp_shape *shape = SHAPE(bwd, 2);
  double p = args->p;
  amp_tensor *x1 = rows_of(INPUT(bwd, 0), shape), *x2 = rows_of(INPUT(bwd, 1), shape), *dist = OUTPUT(bwd, 0),
             *grad = GRAD(bwd), *out[AMP_MAX_OUT];
  int dtype = amp__is_half(shape->dtype) ? AMP_FLOAT32 : shape->dtype, at = shape->ndim - 2, features = shape->ndim,
      status;
  OR_FAIL(x1 && x2 && dist);
  if (isinf(p) && dtype != shape->dtype) { /* no coordinate is as far as the rounded distance says */
    amp_attrs attrs = amp__attrs();
    amp__attrs_copy(&attrs, AMP_SLOT(args->p), 2);
    amp_tensor *inputs[2] = { x1 = amp__op_cast(x1, dtype), x2 = amp__op_cast(x2, dtype) };
    OR_FAIL(x1 && x2 && (dist = amp__op(AMP_OP_cdist, &attrs, 2, inputs)) && (grad = amp__op_cast(grad, dtype)));
  }
  if (p == 2 && (x1->size[at] > 25 || x2->size[at] > 25)
      && args->compute_mode != COMPUTE_MODE_DONOT_USE_MM_FOR_EUCLID_DIST)
    return euclid(bwd, amp__op_cast(x1, dtype), amp__op_cast(x2, dtype), amp__op_cast(dist, dtype),
                  amp__op_cast(grad, dtype));
  if (!bwd->create_graph) {
    amp_tensor *inputs[4] = { grad, x1, x2, dist };
    amp_attrs attrs = amp__attrs();
    amp__attrs_float(&attrs, p);
    status = amp__op_results(AMP_OP_cdist_backward, &attrs, 4, inputs, out);
    if (status == 0 && NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, out[0]));
    if (status == 0 && NEEDS(bwd, 1)) status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, out[1]));
    return status;
  }
  if (shape->ndim == AMP_MAX_DIM)
    return amp__fail(AMP_E_SHAPE, "a graph of its derivative needs a dimension more than the %d there can be",
                     AMP_MAX_DIM);
  amp_tensor *d
      = OP2(sub, amp__op_unsqueeze(amp__op_cast(x1, dtype), at + 1), amp__op_unsqueeze(amp__op_cast(x2, dtype), at));
  amp_tensor *tensor = norm_grad(bwd, amp__op_unsqueeze(amp__op_cast(grad, dtype), features), d,
                                 amp__op_unsqueeze(amp__op_cast(dist, dtype), features), p, 1u << features);
  int across = at + 1;
  status = NEEDS(bwd, 0) ? INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, amp__op_sum(tensor, 1, &across, false)))
           : tensor      ? 0
                         : amp__err();
  if (status == 0 && NEEDS(bwd, 1))
    status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, OP1(neg, amp__op_sum(tensor, 1, &at, false))));
  return status;
}

/* Row numbers (from 1) of the pairs of x's rows, first (0) or second (1) */
static amp_tensor *pair(const amp_tensor *input, int which)
{
  int64_t n = input->size[0];
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, n);
  amp__attrs_int(&attrs, n);
  amp__attrs_int(&attrs, 1);
  amp__attrs_int(&attrs, AMP_INT64);
  amp__attrs_int(&attrs, input->device * 256 + input->device_index);
  amp_tensor *tensor = amp__op_narrow(amp__op(AMP_OP_triu_indices, &attrs, 0, NULL), 0, which, 1);
  int64_t count = tensor ? tensor->numel : 0;
  return amp__op_view(tensor, 1, &count);
}

static amp_tensor *select_rows(amp_tensor *input, amp_tensor *index)
{
  amp_tensor *inputs[2] = { input, index };
  return amp__op_dim(AMP_OP_index_select, 0, 2, inputs);
}

static amp_tensor *add_rows(amp_tensor *input, amp_tensor *index, amp_tensor *src)
{
  amp_tensor *inputs[3] = { input, index, src };
  return amp__op_dim(AMP_OP_index_add, 0, 3, inputs);
}

int amp__bwd_pdist(amp_bwd *bwd)
{
  const args_pdist *args = AMP_ARGS(bwd, pdist);
  amp_tensor *input = INPUT(bwd, 0), *dist = OUTPUT(bwd, 0), *grad = GRAD(bwd);
  double p = args->p;
  OR_FAIL(input && dist);
  if (isinf(p) && amp__is_half(input->dtype)) { /* as above */
    amp_attrs attrs = amp__attrs();
    amp__attrs_copy(&attrs, AMP_SLOT(args->p), 1);
    OR_FAIL((input = amp__op_cast(input, AMP_FLOAT32)) && (dist = amp__op(AMP_OP_pdist, &attrs, 1, &input))
            && (grad = amp__op_cast(grad, AMP_FLOAT32)));
  }
  if (!bwd->create_graph) {
    amp_tensor *inputs[3] = { grad, input, dist };
    amp_attrs attrs = amp__attrs();
    amp__attrs_float(&attrs, p);
    return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, amp__op(AMP_OP_pdist_backward, &attrs, 3, inputs)));
  }
  int dtype = amp__is_half(input->dtype) ? AMP_FLOAT32 : input->dtype;
  amp_tensor *i = pair(input, 0), *j = pair(input, 1);
  input = amp__op_cast(input, dtype);
  amp_tensor *tensor = norm_grad(bwd, amp__op_unsqueeze(amp__op_cast(grad, dtype), 1),
                                 OP2(sub, select_rows(input, i), select_rows(input, j)),
                                 amp__op_unsqueeze(amp__op_cast(dist, dtype), 1), p, 2);
  amp_tensor *sum = add_rows(amp__op_zeros_like_in(bwd, 0, dtype), i, tensor);
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, add_rows(sum, j, OP1(neg, tensor))));
}
