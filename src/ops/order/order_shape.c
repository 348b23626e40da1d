/*
** ops/order/order_shape.c: shape rules of sorting, searching and counting.
** A scalar sorts as a row of one element. one_hot without a number of classes
** must look at its labels to know how many there are.
*/
#include "dispatch/shape_rules.h"

static int row_dim(const amp_tensor *input, amp_slot *slot) { return amp__row_dim(slot, input->ndim, "dim"); }

static int64_t row_size(const amp_tensor *input, int64_t dim) { return input->ndim ? input->size[dim] : 1; }

/* sort, and cummax and cummin, whose one attribute is the dimension, too */
int amp__infer_sort(amp_call *call)
{
  args_sort *args = (args_sort *)call->attrs;
  const amp_tensor *input = call->in[0];
  int status = row_dim(input, AMP_SLOT(args->dim));
  if (status < 0) return status;
  amp__out(call, 0, input->dtype, input->ndim, input->size);
  amp__out(call, 1, AMP_INT64, input->ndim, input->size);
  return 0;
}

int amp__infer_argsort(amp_call *call)
{
  args_argsort *args = (args_argsort *)call->attrs;
  const amp_tensor *input = call->in[0];
  int status = row_dim(input, AMP_SLOT(args->dim));
  if (status < 0) return status;
  amp__out(call, 0, AMP_INT64, input->ndim, input->size);
  return 0;
}

int amp__infer_topk(amp_call *call)
{
  args_topk *args = (args_topk *)call->attrs;
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM], k = args->k;
  int status = row_dim(input, AMP_SLOT(args->dim));
  if (status < 0) return status;
  int64_t n = row_size(input, args->dim);
  if (k < 0 || k > n)
    return amp__fail(AMP_E_VALUE, "k is %lld, dimension %lld has %lld elements", LL(k), LL(args->dim + 1), LL(n));
  for (int d = 0; d < input->ndim; d++) size[d] = d == args->dim ? k : input->size[d];
  if (input->ndim == 0 && k == 0) return amp__fail(AMP_E_VALUE, "k is 0, of a scalar there is one element");
  amp__out(call, 0, input->dtype, input->ndim, size);
  amp__out(call, 1, AMP_INT64, input->ndim, size);
  return 0;
}

/* Values and indices without dimension dim, or with size 1 there */
static void chosen(amp_call *call, int64_t dim, bool keepdim)
{
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM];
  int n = 0;
  for (int d = 0; d < input->ndim; d++) {
    if (d != dim) size[n++] = input->size[d];
    else if (keepdim) size[n++] = 1;
  }
  amp__out(call, 0, input->dtype, n, size);
  amp__out(call, 1, AMP_INT64, n, size);
}

int amp__infer_kthvalue(amp_call *call)
{
  args_kthvalue *args = (args_kthvalue *)call->attrs;
  const amp_tensor *input = call->in[0];
  int status = row_dim(input, AMP_SLOT(args->dim));
  if (status < 0) return status;
  int64_t k = args->k, n = row_size(input, args->dim);
  if (k < 1 || k > n)
    return amp__fail(AMP_E_VALUE, "k is %lld, it must be 1 to %lld, the size of dimension %lld", LL(k), LL(n),
                     LL(args->dim + 1));
  chosen(call, args->dim, args->keepdim != 0);
  return 0;
}

int amp__infer_mode(amp_call *call)
{
  args_mode *args = (args_mode *)call->attrs;
  const amp_tensor *input = call->in[0];
  int status = row_dim(input, AMP_SLOT(args->dim));
  if (status < 0) return status;
  if (row_size(input, args->dim) == 0)
    return amp__fail(AMP_E_SHAPE, "dimension %lld has size 0, there is no value to choose", LL(args->dim + 1));
  chosen(call, args->dim, args->keepdim != 0);
  return 0;
}

/* -- Searching and counting ---------------------------------------------------------------- */

int amp__infer_searchsorted(amp_call *call)
{
  const amp_tensor *s = call->in[0], *v = call->in[1];
  if (s->flags & AMP_T_NUMBER || s->ndim == 0)
    return amp__fail_arg(AMP_E_SHAPE, 1, "sorted_sequence is a scalar, expected a row of values");
  bool ok = s->ndim == 1 || (v->ndim == s->ndim && !(v->flags & AMP_T_NUMBER));
  for (int d = 0; d < s->ndim - 1 && ok; d++) ok = s->size[d] == v->size[d];
  if (!ok)
    return amp__fail(AMP_E_SHAPE,
                     "sorted_sequence has shape %s and input %s: "
                     "all but the last dimension must be equal, or sorted_sequence a vector",
                     SHAPE_OF(s), SHAPE_OF(v));
  amp__out(call, 0, AMP_INT64, v->ndim, v->size);
  return 0;
}

int amp__infer_bucketize(amp_call *call)
{
  const amp_tensor *v = call->in[0], *b = call->in[1];
  if (b->ndim != 1) return amp__fail_arg(AMP_E_SHAPE, 2, "boundaries has shape %s, expected a vector", SHAPE_OF(b));
  amp__out(call, 0, AMP_INT64, v->ndim, v->size);
  return 0;
}

int amp__infer_isin(amp_call *call)
{
  amp__out(call, 0, AMP_BOOL, call->in[0]->ndim, call->in[0]->size);
  return 0;
}

int amp__infer_histc(amp_call *call)
{
  const args_histc *args = AMP_ARGS(call, histc);
  int64_t bins = args->bins;
  double min = args->min, max = args->max;
  if (bins < 1) return amp__fail(AMP_E_VALUE, "bins is %lld, at least 1 is expected", LL(bins));
  if (!(min - min == 0) || !(max - max == 0))
    return amp__fail(AMP_E_VALUE, "min %g and max %g must be finite", min, max);
  if (min > max) return amp__fail(AMP_E_VALUE, "min %g is above max %g", min, max);
  amp__out(call, 0, call->in[0]->dtype, 1, &bins);
  return 0;
}

/* The largest element of an integer tensor on the CPU, at least 1 */
static int64_t largest(const amp_tensor *input)
{
  int64_t at[AMP_MAX_DIM] = { 0 }, o = 0, most = 1;
  for (int64_t i = 0; i < input->numel; i++) {
    int64_t v = (int64_t)amp__element(input, o);
    if (v > most) most = v;
    for (int d = input->ndim - 1; d >= 0; d--) {
      o += input->stride[d];
      if (++at[d] < input->size[d]) break;
      o -= at[d] * input->stride[d];
      at[d] = 0;
    }
  }
  return most;
}

int amp__infer_one_hot(amp_call *call)
{
  args_one_hot *args = (args_one_hot *)call->attrs;
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM], classes = args->num_classes;
  if (input->ndim == AMP_MAX_DIM)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has %d dimensions; at most %d are supported", input->ndim,
                         AMP_MAX_DIM - 1);
  if (classes == -1) {
    if (input->numel == 0) return amp__fail(AMP_E_VALUE, "num_classes must be given where there are no labels");
    if (input->device != AMP_CPU) { /* found on the device: one value is copied to the host */
      double most;
      int status = amp__ask(call->in[0], AMP_OP_amax, &most);
      if (status < 0) return status;
      classes = most > 1 ? (int64_t)most : 1;
    } else {
      classes = largest(input);
      amp__S->host_waits++;
    }
    args->num_classes = classes;
  } else if (classes < 1)
    return amp__fail(AMP_E_VALUE, "num_classes is %lld, at least 1 is expected (-1: the largest label)", LL(classes));
  for (int d = 0; d < input->ndim; d++) size[d] = input->size[d];
  size[input->ndim] = classes;
  amp__out(call, 0, AMP_INT64, input->ndim + 1, size);
  return amp__check_size(input->ndim + 1, size, AMP_INT64, NULL);
}
