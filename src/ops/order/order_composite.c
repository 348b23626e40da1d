/*
** ops/order/order_composite.c: composites of counting and order: quantiles, unique
** values, bincount. They stand on sort, nonzero and scatter,
** and what is differentiable in those is here too.
*/
#include <math.h>
#include "autograd/derivative.h"
#include "dispatch/shape_rules.h"

static amp_tensor *clamp(amp_tensor *tensor, double least)
{
  amp_attrs attrs = amp__attrs();
  amp__attrs_float(&attrs, least);
  amp__attrs_int(&attrs, AMP_NONE);
  return amp__op(AMP_OP_clamp, &attrs, 1, &tensor);
}

/* -- Quantiles -------------------------------------------------------------------------------- */

/* t with dimension dim as the last one, or back */
static amp_tensor *to_end(amp_tensor *t, int dim, bool back)
{
  int64_t order[AMP_MAX_DIM];
  if (!t || dim == t->ndim - 1) return t;
  for (int d = 0; d < t->ndim; d++) {
    int from = d < dim ? d : d == t->ndim - 1 ? dim : d + 1, to = d;
    if (back) {
      order[from] = to + 1;
    } else order[to] = from + 1;
  }
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, t->ndim, order);
  return amp__op(AMP_OP_permute, &attrs, 1, &t);
}

static int check_q(amp_tensor *ranks)
{
  if (ranks->ndim > 1)
    return amp__fail_arg(AMP_E_SHAPE, 2, "q has shape %s, expected a number or a vector", SHAPE_OF(ranks));
  if (!amp__is_float(ranks->dtype) && !amp__is_number(ranks))
    return amp__fail_arg(AMP_E_DTYPE, 2, "q has dtype %s, expected a float dtype", amp_dtype_name(ranks->dtype));
  if (ranks->device != AMP_CPU) return 0;
  for (int64_t i = 0; i < ranks->numel; i++) {
    double v = amp__element(ranks, ranks->ndim ? i * ranks->stride[0] : 0);
    if (!(v >= 0 && v <= 1))
      return amp__fail_arg(AMP_E_VALUE, 2, "q %.14g (element %lld) must lie in 0..1", v, LL(i + 1));
  }
  return 0;
}

typedef struct quantiles {
  int how, rank, dim;     /* a word of `interpolation`; the input's dimensions; the one that is looked at, from 0 */
  bool all, keepdim, one; /* over all elements; one: q is a number, which has no dimension in the result */
} quantiles;

/* q as a vector of dtype on x's device */
static amp_tensor *as_vector(amp_tensor *q, const amp_tensor *input, int dtype)
{
  int64_t count = q->numel;
  q = amp__is_number(q) ? amp__op_full(amp__element(q, 0), dtype, input->device, input->device_index, 0, NULL)
                        : amp__op_cast(amp__op_detach(q), dtype);
  if (q && (q->device != input->device || q->device_index != input->device_index)) {
    amp_attrs device = amp__attrs();
    amp__attrs_int(&device, input->device * 256 + input->device_index);
    q = amp__op(AMP_OP_to_device, &device, 1, &q);
  }
  return amp__op_view(q, 1, &count);
}

/* The values at ranks (from 0, perhaps between two) of the last dimension of sorted ones, in dtype */
static amp_tensor *at_ranks(amp_tensor *sorted, amp_tensor *ranks, int last, int how, int dtype)
{
  if (how == INTERPOLATION_HIGHER) ranks = OP1(ceil, ranks);
  if (how == INTERPOLATION_NEAREST) ranks = OP1(round, ranks);
  bool whole = how == INTERPOLATION_HIGHER || how == INTERPOLATION_NEAREST;
  amp_tensor *low = whole ? ranks : OP1(floor, ranks),
             *inputs[2] = { sorted, amp__op_cast(OP_NUMBER(add, low, 1), AMP_INT64) };
  amp_tensor *below = amp__op_cast(amp__op_dim(AMP_OP_gather, last, 2, inputs), dtype);
  if (how != INTERPOLATION_LINEAR && how != INTERPOLATION_MIDPOINT) return below;
  inputs[1] = amp__op_cast(OP_NUMBER(add, OP1(ceil, ranks), 1), AMP_INT64);
  amp_tensor *above = amp__op_cast(amp__op_dim(AMP_OP_gather, last, 2, inputs), dtype), *weight = OP2(sub, ranks, low);
  if (how == INTERPOLATION_MIDPOINT) weight = OP_NUMBER(mul, OP1(ceil, weight), 0.5);
  /* weight 0 of infinity is nothing, and from an infinity there is no way up */
  amp_tensor *step
      = amp__op_mask_not(OP2(logical_or, OP_NUMBER(eq, weight, 0), OP1(isinf, below)), OP2(sub, above, below));
  return OP2(add, below, OP2(mul, weight, step));
}

/* `result` has `count` quantiles in its last dimension, in place of the dimension that was looked at. */
static amp_tensor *as_result(const quantiles *k, amp_tensor *result, int last, int64_t count)
{
  static const int64_t ones[AMP_MAX_DIM] = { 1, 1, 1, 1, 1, 1, 1, 1 };
  if (k->one) {
    if (k->all) return amp__op_view(result, k->keepdim ? k->rank : 0, ones);
    if (k->rank == 0) return amp__op_view(result, 0, ones);
    return k->keepdim ? to_end(result, k->dim, true) : amp__op_dim(AMP_OP_squeeze, last, 1, &result);
  }
  if (result && last > 0) { /* the quantiles in front */
    int64_t order[AMP_MAX_DIM] = { last + 1 };
    for (int d = 1; d <= last; d++) order[d] = d;
    amp_attrs dims = amp__attrs();
    amp__attrs_list(&dims, result->ndim, order);
    result = amp__op(AMP_OP_permute, &dims, 1, &result);
  }
  if (k->keepdim && k->all) {
    int64_t kept[AMP_MAX_DIM] = { count, 1, 1, 1, 1, 1, 1, 1 };
    if (k->rank < AMP_MAX_DIM) return amp__op_view(result, k->rank + 1, kept);
    amp__fail(AMP_E_SHAPE, "the result would have more than %d dimensions", AMP_MAX_DIM);
    return NULL;
  }
  return k->keepdim && k->rank > 0 ? amp__op_unsqueeze(result, k->dim + 1) : result;
}

/* slot: the dimension, from 1, or absent */
static int quantile(amp_call *call, amp_slot *slot, bool keepdim, int how, bool skip_nan)
{
  amp_tensor *input = call->in[0], *q = call->in[1];
  quantiles k
      = { .how = how, .rank = input->ndim, .all = slot->i == AMP_NONE, .keepdim = keepdim, .one = q->ndim == 0 };
  int status = check_q(q), acc = amp__acc_dtype(input->dtype);
  if (status < 0) return status;
  if (k.all || k.rank == 0) input = amp__op_view(input, 1, &input->numel);
  else {
    if ((status = amp__norm_dim(slot, k.rank, "dim")) < 0) return status;
    k.dim = (int)slot->i;
  }
  OR_FAIL(input = to_end(input, k.dim, false));
  int last = input->ndim - 1;
  int64_t n = input->size[last], count = q->numel, size[AMP_MAX_DIM], end = last + 1;
  if (n == 0) return amp__fail(AMP_E_SHAPE, "dimension %d has size 0, there is no value to choose", k.dim + 1);
  if (!k.one && input->ndim == AMP_MAX_DIM)
    return amp__fail(AMP_E_SHAPE, "the result would have more than %d dimensions", AMP_MAX_DIM);
  /* sorted values, and the rank of each quantile among them: index (from 0) is n - 1 at q = 1 */
  amp_attrs along = amp__attrs(); /* the last dimension, kept */
  amp__attrs_list(&along, 1, &end);
  amp__attrs_int(&along, 1);
  amp_tensor *nan = OP1(isnan, input), *sorted = amp__op_dim(AMP_OP_sort, last, 1, &input), *most, *ranks, *result;
  amp_tensor *ok = OP1(logical_not, nan);
  q = as_vector(q, input, acc);
  if (skip_nan) {
    amp__attrs_int(&along, acc);
    most = clamp(OP_NUMBER(sub, amp__op(AMP_OP_sum, &along, 1, &ok), 1), 0);
  } else most = amp__op_full((double)(n - 1), acc, input->device, input->device_index, 0, NULL);
  ranks = OP2(mul, q, most);
  for (int d = 0; d < last; d++) size[d] = input->size[d];
  size[last] = count;
  result = at_ranks(sorted, amp__op_expand(ranks, input->ndim, size), last, how, acc);
  if (!skip_nan) result = amp__op_fill_where(amp__op(AMP_OP_any, &along, 1, &nan), result, NAN);
  return amp__result(call, 0, as_result(&k, amp__op_cast(result, input->dtype), last, count));
}

int amp__comp_quantile(amp_call *call)
{
  args_quantile *args = (args_quantile *)call->attrs;
  return quantile(call, AMP_SLOT(args->dim), args->keepdim != 0, (int)args->interpolation, false);
}

int amp__comp_nanquantile(amp_call *call)
{
  args_nanquantile *args = (args_nanquantile *)call->attrs;
  return quantile(call, AMP_SLOT(args->dim), args->keepdim != 0, (int)args->interpolation, true);
}

/* -- Unique values ------------------------------------------------------------------------------- */

/* Runs of equal neighbours in a vector: first values, and (if asked for) each element's run, scattered to `places`
** if given, and the lengths */
static int runs(amp_call *call, amp_tensor *vector, amp_tensor *places, bool inverse, bool counts)
{
  OR_FAIL(vector);
  const amp_tensor *input = call->in[0];
  int64_t n = vector->numel, one = n > 0;
  amp_tensor *first[2] = { amp__op_full(1, AMP_BOOL, input->device, input->device_index, 1, &one), NULL };
  if (n > 1) {
    amp_tensor *d = amp__op_detach(vector);
    OR_FAIL(first[1] = OP2(ne, amp__op_narrow(d, 0, 1, n - 1), amp__op_narrow(d, 0, 0, n - 1)));
  }
  amp_tensor *starts = n > 1 ? amp__op_dim(AMP_OP_cat, 0, 2, first) : first[0], *at = OP1(nonzero, starts);
  OR_FAIL(at);
  int64_t m = at->size[0];
  amp_tensor *inputs[3] = { vector, at = amp__op_view(at, 1, &m), NULL };
  /* where all differ the values are these already */
  amp_tensor *values = m < n ? amp__op_dim(AMP_OP_index_select, 0, 2, inputs) : places ? vector : OP1(clone, vector);
  int out = 0, status = amp__result(call, out++, values);
  if (status == 0 && inverse) {
    amp_tensor *run = amp__op_dim(AMP_OP_cumsum, 0, 1, &starts);
    if (places && run) {
      inputs[0] = inputs[1] = places;
      inputs[2] = run;
      run = amp__op_dim(AMP_OP_scatter, 0, 3, inputs);
    }
    status = amp__result(call, out++, amp__op_view(run, input->ndim, input->size));
  }
  if (status == 0 && counts) {
    int64_t end = m > 0;
    inputs[0] = m > 0 ? amp__op_narrow(at, 0, 1, m - 1) : at;
    inputs[1] = amp__op_full((double)(n + 1), AMP_INT64, input->device, input->device_index, 1, &end);
    status = amp__result(call, out, OP2(sub, amp__op_dim(AMP_OP_cat, 0, 2, inputs), at));
  }
  return status;
}

int amp__comp_unique(amp_call *call)
{
  const args_unique *args = AMP_ARGS(call, unique);
  amp_tensor *flat = amp__op_view(call->in[0], 1, &call->in[0]->numel), *out[AMP_MAX_OUT];
  OR_FAIL(flat);
  int status = amp__op_results(AMP_OP_sort, NULL, 1, &flat, out);
  return status < 0 ? status : runs(call, out[0], out[1], args->return_inverse != 0, args->return_counts != 0);
}

int amp__comp_unique_consecutive(amp_call *call)
{
  const args_unique_consecutive *args = AMP_ARGS(call, unique_consecutive);
  return runs(call, amp__op_view(call->in[0], 1, &call->in[0]->numel), NULL, args->return_inverse != 0,
              args->return_counts != 0);
}

/* -- Counts ---------------------------------------------------------------------------------------- */

/* The extremes of an int64 vector */
static void extremes(const int64_t *values, int64_t n, int64_t *low, int64_t *high)
{
  int64_t a = values[0], b = values[0];
  for (int64_t i = 1; i < n; i++) {
    a = values[i] < a ? values[i] : a;
    b = values[i] > b ? values[i] : b;
  }
  *low = a;
  *high = b;
}

int amp__comp_bincount(amp_call *call)
{
  amp_tensor *input = call->in[0], *weight = call->in[1];
  int64_t n = AMP_ARGS(call, bincount)->minlength, low = 1, high = 0;
  int status = amp__want_index(input, 1, "input");
  if (status < 0) return status;
  if (input->ndim != 1) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected a vector", SHAPE_OF(input));
  if (weight && (status = amp__want_shape(weight, "weights", 1, input->size)) < 0) return status;
  if (n < 0) return amp__fail(AMP_E_VALUE, "minlength is %lld, it must not be negative", LL(n));
  OR_FAIL(input = amp__op_contiguous(amp__op_cast(input, AMP_INT64)));
  if (input->numel > 0) {
    amp_tensor *cpu = amp__on_cpu(input);
    OR_FAIL(cpu);
    amp__S->host_waits += input->device != AMP_CPU;
    extremes(AMP_DATA(int64_t, cpu), cpu->numel, &low, &high);
    amp__free(cpu);
  }
  if (low < 1)
    return amp__fail_arg(AMP_E_VALUE, 1, "input has the element %lld; what is counted are indices, from 1", LL(low));
  if (high > n) n = high;
  int dtype = !weight ? AMP_INT64 : amp__is_float(weight->dtype) ? weight->dtype : AMP_FLOAT64;
  if ((status = amp__check_size(1, &n, dtype, NULL)) < 0) return status;
  if (!weight && input->device == AMP_CPU) { /* their range is known: count in place */
    amp_tensor *o = amp__op_full(0, AMP_INT64, AMP_CPU, 0, 1, &n);
    OR_FAIL(o);
    const int64_t *v = AMP_DATA(int64_t, input);
    int64_t *count = AMP_DATA(int64_t, o);
    for (int64_t i = 0; i < input->numel; i++) count[v[i] - 1]++;
    return amp__result(call, 0, o);
  }
  amp_tensor *ones
      = weight ? amp__op_cast(weight, dtype)
               : amp__op_expand(amp__op_full(1, dtype, input->device, input->device_index, 0, NULL), 1, input->size);
  amp_tensor *inputs[3] = { amp__op_full(0, dtype, input->device, input->device_index, 1, &n), input, ones };
  return amp__result(call, 0, n > 0 && input->numel > 0 ? amp__op_dim(AMP_OP_scatter_add, 0, 3, inputs) : inputs[0]);
}
