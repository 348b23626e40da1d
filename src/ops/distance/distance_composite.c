/*
** ops/distance/distance_composite.c: norms of vectors and matrices, and distances, on top of
** the row lp_norm. 16-bit values are widened before they are multiplied or
** subtracted, so a result is rounded once. cdist and pdist have kernels of their
** own (ops/distance/distance.c).
*/
#include <float.h>
#include <math.h>
#include "autograd/derivative.h"
#include "dispatch/shape_rules.h"

static int wide(const amp_tensor *tensor) { return amp__is_half(tensor->dtype) ? AMP_FLOAT32 : tensor->dtype; }

/* p-norm over one dimension (from 0), or all if dim < 0 */
static amp_tensor *norm_of(amp_tensor *tensor, double p, int dim, bool keepdim, int64_t dtype)
{
  int64_t one = dim + 1;
  amp_attrs attrs = amp__attrs();
  amp__attrs_float(&attrs, p);
  if (dim < 0) amp__attrs_no_list(&attrs);
  else amp__attrs_list(&attrs, 1, &one);
  amp__attrs_int(&attrs, keepdim);
  amp__attrs_int(&attrs, dtype);
  return amp__op(AMP_OP_lp_norm, &attrs, 1, &tensor);
}

static amp_tensor *at_least(amp_tensor *tensor, double low)
{
  amp_attrs attrs = amp__attrs();
  amp__attrs_float(&attrs, low);
  amp__attrs_int(&attrs, AMP_NONE);
  return amp__op(AMP_OP_clamp, &attrs, 1, &tensor);
}

/* -- Norms -------------------------------------------------------------------------------- */

static int vector_norm(amp_call *call)
{
  amp_attrs attrs = amp__attrs();
  amp__attrs_copy(&attrs, call->attrs, call->op->info.nslot);
  return amp__result(call, 0, amp__op(AMP_OP_lp_norm, &attrs, 1, call->in));
}

int amp__comp_norm(amp_call *call) { return vector_norm(call); }
int amp__comp_vector_norm(amp_call *call) { return vector_norm(call); }

/* Singular values of the matrices in dimensions d0, d1, as a new last dimension */
static amp_tensor *singular_values(amp_tensor *input, int first_dim, int second_dim)
{
  int64_t order[AMP_MAX_DIM];
  int n = 0;
  for (int dim = 0; dim < input->ndim; dim++)
    if (dim != first_dim && dim != second_dim) order[n++] = dim + 1;
  order[n++] = first_dim + 1;
  order[n++] = second_dim + 1;
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, n, order);
  return OP1(svdvals, amp__op(AMP_OP_permute, &attrs, 1, &input));
}

int amp__comp_matrix_norm(amp_call *call)
{ /* ord dim keepdim dtype */
  const args_matrix_norm *args = AMP_ARGS(call, matrix_norm);
  amp_tensor *input = call->in[0], *result;
  amp_slot pair[2];
  int status, dtype = !AMP_GIVEN(args->dtype) ? input->dtype : (int)args->dtype;
  bool keep = args->keepdim != 0, frobenius = !AMP_GIVEN(args->ord);
  double ord = frobenius ? 2 : args->ord;
  if (!amp__is_float(dtype)) return amp__fail(AMP_E_DTYPE, "dtype %s: a norm is a float", amp_dtype_name(dtype));
  if (!frobenius && ord != 0 && fabs(ord) != 1 && fabs(ord) != 2 && !isinf(ord))
    return amp__fail(AMP_E_ARGUMENT, "ord %g: a matrix has the norms 'fro', 'nuc', 1, -1, 2, -2, inf and -inf", ord);
  if (input->ndim < 2)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected at least 2 dimensions",
                         amp__shape_str(input->ndim, input->size));
  for (int i = 0; i < 2; i++) {
    if (AMP_GIVEN(args->dim) && args->dim.n != 2 && i == (args->dim.n > 0))
      return amp__fail(AMP_E_ARGUMENT, "dim names %lld dimensions, a matrix has 2", (long long)args->dim.n);
    pair[i].i = !AMP_GIVEN(args->dim) ? i - 2 : args->dim.at[i];
    if ((status = amp__norm_dim(&pair[i], input->ndim, "dim")) < 0) return status;
  }
  int first_dim = (int)pair[0].i, second_dim = (int)pair[1].i;
  if (first_dim == second_dim) return amp__fail(AMP_E_ARGUMENT, "dim names dimension %d twice", first_dim + 1);
  if (frobenius) {
    int64_t list[2] = { first_dim + 1, second_dim + 1 };
    amp_attrs attrs = amp__attrs();
    amp__attrs_float(&attrs, 2);
    amp__attrs_list(&attrs, 2, list);
    amp__attrs_int(&attrs, keep);
    amp__attrs_int(&attrs, args->dtype);
    return amp__result(call, 0, amp__op(AMP_OP_lp_norm, &attrs, 1, &input));
  }
  input = amp__op_cast(input, amp__is_half(dtype) ? AMP_FLOAT32 : dtype);
  if (fabs(ord) == 1 || isinf(ord)) { /* norms of columns or rows, then the largest or smallest of them */
    int inner = isinf(ord) ? second_dim : first_dim, outer = isinf(ord) ? first_dim : second_dim;
    result = norm_of(norm_of(input, 1, inner, true, AMP_NONE), ord > 0 ? INFINITY : -INFINITY, outer, true, AMP_NONE);
  } else {
    result = singular_values(input, first_dim, second_dim);
    if (result)
      result = norm_of(result, ord == 0 ? 1 : ord > 0 ? INFINITY : -INFINITY, result->ndim - 1, false, AMP_NONE);
  }
  if (!result) return amp__err();
  int64_t size[AMP_MAX_DIM];
  int n = 0;
  for (int dim = 0; dim < input->ndim; dim++) {
    if (dim != first_dim && dim != second_dim) size[n++] = input->size[dim];
    else if (keep) size[n++] = 1;
  }
  return amp__result(call, 0, amp__op_cast(amp__op_view(result, n, size), dtype));
}

int amp__comp_normalize(amp_call *call)
{ /* p dim eps */
  const args_normalize *args = AMP_ARGS(call, normalize);
  amp_tensor *input = call->in[0];
  int status = amp__row_dim(AMP_SLOT(args->dim), input->ndim, "dim");
  if (status < 0) return status;
  amp_tensor *n = norm_of(input, args->p, (int)args->dim, true, wide(input));
  return amp__result(call, 0, amp__op_cast(OP2(div, input, at_least(n, args->eps)), input->dtype));
}

/* -- Distances -------------------------------------------------------------------------------- */

int amp__comp_dist(amp_call *call)
{
  const args_dist *args = AMP_ARGS(call, dist);
  int dtype = amp__promote(call->in[0]->dtype, call->in[1]->dtype);
  amp_tensor *d = OP2(sub, amp__op_cast(call->in[0], wide(call->in[0])), call->in[1]);
  return amp__result(call, 0, norm_of(d, args->p, -1, false, dtype));
}

int amp__comp_pairwise_distance(amp_call *call)
{ /* p eps keepdim */
  const args_pairwise_distance *args = AMP_ARGS(call, pairwise_distance);
  int dtype = amp__promote(call->in[0]->dtype, call->in[1]->dtype);
  if (call->in[0]->ndim == 0 && call->in[1]->ndim == 0)
    return amp__fail_arg(AMP_E_SHAPE, 1, "x1 and x2 are scalars, expected vectors along the last dimension");
  amp_tensor *d = OP_NUMBER(add, OP2(sub, amp__op_cast(call->in[0], wide(call->in[0])), call->in[1]), args->eps);
  return amp__result(call, 0, d ? norm_of(d, args->p, d->ndim - 1, args->keepdim != 0, dtype) : NULL);
}

/* Sums of x y, which might leave the range, over the norms; where they do (on a GPU: always), of x / |x| with y */
int amp__comp_cosine_similarity(amp_call *call)
{ /* dim eps */
  const args_cosine_similarity *args = AMP_ARGS(call, cosine_similarity);
  amp_tensor *input = call->in[0], *result = call->in[1];
  int64_t size[AMP_MAX_DIM];
  int ndim, dtype = amp__promote(input->dtype, result->dtype), status = amp__broadcast(call, 2, &ndim, size);
  if (status < 0 || (status = amp__row_dim(AMP_SLOT(args->dim), ndim, "dim")) < 0) return status;
  int dim = (int)args->dim;
  int both
      = amp__promote(wide(input), wide(result)); /* one dtype from the start, or the narrower one rounds the sums */
  input = amp__op_cast(input, both);
  result = amp__op_cast(result, both);
  if (input && result && (input->ndim != result->ndim || input->size[dim] != result->size[dim])) {
    input = amp__op_expand(input, ndim, size);
    result = amp__op_expand(result, ndim, size);
  }
  double eps = args->eps, most = both == AMP_FLOAT64 ? DBL_MAX : FLT_MAX;
  amp_tensor *x_norm = at_least(norm_of(input, 2, dim, false, AMP_NONE), eps),
             *y_norm = at_least(norm_of(result, 2, dim, false, AMP_NONE), eps), *cosine = NULL;
  OR_FAIL(x_norm && y_norm);
  if (input->device == AMP_CPU && !amp__capturing)
    OR_FAIL(cosine = OP2(div, amp__op_sum(OP2(mul, input, result), 1, &dim, false), OP2(mul, x_norm, y_norm)));
  if (!cosine)
    cosine = OP2(div, amp__op_sum(OP2(mul, OP2(div, input, amp__op_unsqueeze(x_norm, dim)), result), 1, &dim, false),
                 y_norm);
  else if (!amp__all_within(cosine, -most, most)) { /* of vectors of length 1 */
    amp_tensor *x_length = amp__op_detach(x_norm), *y_length = amp__op_detach(y_norm);
    input = OP2(div, input, amp__op_unsqueeze(x_length, dim));
    result = OP2(div, result, amp__op_unsqueeze(y_length, dim));
    x_norm = OP2(maximum, norm_of(input, 2, dim, false, AMP_NONE), NUMBER_OP(div, eps, x_length));
    y_norm = OP2(maximum, norm_of(result, 2, dim, false, AMP_NONE), NUMBER_OP(div, eps, y_length));
    cosine = OP2(div, amp__op_sum(OP2(mul, input, result), 1, &dim, false), OP2(mul, x_norm, y_norm));
  }
  return amp__result(call, 0, amp__op_cast(cosine, dtype));
}
