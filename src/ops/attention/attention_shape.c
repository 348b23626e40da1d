/*
** ops/attention/attention_shape.c: shape rules of attention's kernels, of the vector
** product, of addr and of embedding_sum. The kernels want equal leading dimensions (the composite expands
** views); results lie in memory in the order of the tensor they belong to, so
** heads that were made by a transpose join again without a copy.
*/
#include <math.h>
#include "ops/matmul/matmul.h"
#include "dispatch/shape_rules.h"

/* -- Attention ------------------------------------------------------------------- */

/* Result i, contiguous with its dimensions (but the last) in the order that the tensor's strides say. */
static void in_order_of(amp_call *call, int i, const amp_tensor *tensor)
{
  amp_meta *meta = &call->meta[i];
  int order[AMP_MAX_DIM], count = meta->ndim;
  int64_t next = 1;
  for (int dim = 0; dim < count - 1; dim++) {
    int j = dim;
    if (tensor->stride[dim] <= 0 && tensor->size[dim] > 1) return;
    for (; j > 0 && tensor->stride[order[j - 1]] < tensor->stride[dim]; j--) order[j] = order[j - 1];
    order[j] = dim;
  }
  order[count - 1] = count - 1;
  for (int j = count - 1; j >= 0; j--) {
    meta->stride[order[j]] = next;
    next *= meta->size[order[j]] > 0 ? meta->size[order[j]] : 1;
  }
  meta->strides = 1;
}

static int want_batch(const amp_tensor *tensor, const char *what, const amp_tensor *q)
{
  if (tensor->ndim == q->ndim && memcmp(tensor->size, q->size, sizeof *q->size * (size_t)(q->ndim - 2)) == 0) return 0;
  return amp__fail(AMP_E_SHAPE, "%s has shape %s, expected the leading dimensions of query's %s", what,
                   SHAPE_OF(tensor), SHAPE_OF(q));
}

/* query key value from input i on, mask */
static int operands(amp_call *call, int i, const amp_tensor *mask)
{
  const amp_tensor *q = call->in[i], *k = call->in[i + 1], *v = call->in[i + 2];
  int64_t size[AMP_MAX_DIM];
  int status, count = q->ndim;
  if (count < 2) return amp__fail(AMP_E_SHAPE, "query has shape %s, expected at least 2 dimensions", SHAPE_OF(q));
  if (!amp__is_float(q->dtype) || k->dtype != q->dtype || v->dtype != q->dtype)
    return amp__fail(AMP_E_DTYPE, "query, key and value are %s, %s and %s, expected one float dtype",
                     amp_dtype_name(q->dtype), amp_dtype_name(k->dtype), amp_dtype_name(v->dtype));
  if ((status = want_batch(k, "key", q)) < 0 || (status = want_batch(v, "value", q)) < 0) return status;
  if (k->size[count - 1] != q->size[count - 1])
    return amp__fail(AMP_E_SHAPE, "query %s and key %s differ in their last dimension", SHAPE_OF(q), SHAPE_OF(k));
  if (k->size[count - 2] != v->size[count - 2])
    return amp__fail(AMP_E_SHAPE, "key %s and value %s differ in length (dimension %d)", SHAPE_OF(k), SHAPE_OF(v),
                     count - 1);
  if (mask == NULL) return 0;
  memcpy(size, q->size, sizeof size);
  size[count - 1] = k->size[count - 2];
  return amp__want_shape(mask, "attn_mask", count, size);
}

static int want_p(double p)
{
  return p >= 0 && p <= 1 ? 0 : amp__fail(AMP_E_VALUE, "dropout_p %g must lie in 0..1", p);
}

/* The seed, and the place of the first random number: bits of two unsigned integers */
static int want_draw(const amp_tensor *draw)
{
  const int64_t two = 2;
  int status = amp__want_shape(draw, "draw", 1, &two);
  if (status < 0 || (draw->dtype == AMP_INT64 && draw->stride[0] == 1)) return status;
  return amp__fail(AMP_E_DTYPE, "draw is %s, expected two int64 beside each other", amp__tensor_str(draw));
}

int amp__infer_attention(amp_call *call)
{
  const amp_tensor *q = call->in[0], *v = call->in[2];
  int64_t size[AMP_MAX_DIM];
  int status = operands(call, 0, call->in[3]), n = q->ndim;
  if (status < 0) return status;
  memcpy(size, q->size, sizeof size);
  size[n - 1] = v->size[n - 1];
  amp__out(call, 0, q->dtype, n, size);
  in_order_of(call, 0, q);
  amp__out(call, 1, amp__acc_dtype(q->dtype), n - 1, size);
  const int64_t two = 2;
  if (AMP_ARGS(call, attention)->dropout_p > 0) amp__out(call, 2, AMP_INT64, 1, &two);
  return want_p(AMP_ARGS(call, attention)->dropout_p);
}

/* Are query, key and value every third element of one dense tensor, in this order? Then so are their gradients, which
** need no copy to be the gradient of that tensor. */
static void pack(amp_call *call)
{
  const amp_tensor *q = call->in[1], *k = call->in[2], *v = call->in[3];
  int64_t apart = k->offset - q->offset, next = 1;
  if (q->storage != k->storage || q->storage != v->storage || q->dtype != k->dtype || q->dtype != v->dtype || apart <= 0
      || v->offset - k->offset != apart)
    return;
  if (q->numel == 0 || !amp__same_size(q, k) || !amp__same_size(q, v)
      || memcmp(q->stride, k->stride, sizeof *q->stride * q->ndim) != 0
      || memcmp(q->stride, v->stride, sizeof *q->stride * q->ndim) != 0)
    return;
  bool taken[AMP_MAX_DIM + 1] = { false };
  for (;;) { /* the dimension, or the step from one to the other, whose elements lie `next` apart */
    int dim = 0;
    while (dim < q->ndim && (taken[dim] || q->size[dim] == 1 || q->stride[dim] != next)) dim++;
    if (dim == q->ndim && (taken[dim] || apart != next)) break;
    taken[dim] = true;
    next *= dim == q->ndim ? 3 : q->size[dim];
  }
  if (next != 3 * q->numel) return;
  for (int i = 0; i < 3; i++) {
    amp_meta *meta = &call->meta[i];
    memcpy(meta->stride, q->stride, sizeof *q->stride * q->ndim);
    meta->strides = i ? AMP_M_SHARED : AMP_M_ROOM;
    meta->room = i ? i * apart : next;
  }
}

/* grad query key value out lse attn_mask? draw? */
int amp__infer_attention_backward(amp_call *call)
{
  const amp_tensor *q = call->in[1];
  int64_t size[AMP_MAX_DIM];
  int status = operands(call, 1, call->in[6]), count = q->ndim;
  if (status < 0) return status;
  memcpy(size, q->size, sizeof size);
  size[count - 1] = call->in[3]->size[count - 1];
  for (int i = 0; i <= 4; i += 4) {
    if ((status = amp__want_shape(call->in[i], i ? "out" : "grad", count, size)) < 0) return status;
    if (!amp__is_float(call->in[i]->dtype))
      return amp__fail(AMP_E_DTYPE, "%s is %s, expected a float dtype", i ? "out" : "grad",
                       amp_dtype_name(call->in[i]->dtype));
  }
  if ((status = amp__want_shape(call->in[5], "lse", count - 1, size)) < 0) return status;
  if (!amp__is_float(call->in[5]->dtype))
    return amp__fail(AMP_E_DTYPE, "lse is %s, expected a float dtype", amp_dtype_name(call->in[5]->dtype));
  double p = AMP_ARGS(call, attention_backward)->dropout_p;
  if ((status = want_p(p)) < 0) return status;
  if (p > 0 && !call->in[7]) return amp__fail(AMP_E_ARGUMENT, "draw is missing: dropout_p is %g", p);
  if (call->in[7] && (status = want_draw(call->in[7])) < 0) return status;
  for (int i = 0; i < 3; i++) {
    const amp_tensor *tensor = call->in[1 + i];
    amp__out(call, i, tensor->dtype, tensor->ndim, tensor->size);
    in_order_of(call, i, tensor);
  }
  pack(call);
  return 0;
}

/* query key draw */
int amp__infer_attention_kept(amp_call *call)
{
  const amp_tensor *q = call->in[0], *k = call->in[1];
  int64_t size[AMP_MAX_DIM];
  int status = 0, n = q->ndim;
  if (n < 2) return amp__fail(AMP_E_SHAPE, "query has shape %s, expected at least 2 dimensions", SHAPE_OF(q));
  if ((status = want_batch(k, "key", q)) < 0 || (status = want_draw(call->in[2])) < 0
      || (status = want_p(AMP_ARGS(call, attention_kept)->dropout_p)) < 0)
    return status;
  memcpy(size, q->size, sizeof size);
  size[n - 1] = k->size[n - 2];
  amp__out(call, 0, AMP_BOOL, n, size);
  return 0;
}

/* -- Vector product ------------------------------------------------------------------ */

int amp__infer_cross(amp_call *call)
{
  args_cross *args
      = (args_cross *)call->attrs; /* dim is written: from 0, and the first one of size 3 if it is absent */
  const amp_tensor *a = call->in[0], *b = call->in[1];
  int64_t size[AMP_MAX_DIM];
  int count, status;
  if ((status = amp__broadcast(call, 2, &count, size)) < 0) return status;
  if (!AMP_GIVEN(args->dim)) {
    int dim = 0;
    while (dim < count && size[dim] != 3) dim++;
    if (dim == count)
      return amp__fail(AMP_E_SHAPE, "no dimension of shapes %s and %s has size 3", SHAPE_OF(a), SHAPE_OF(b));
    args->dim = dim;
  } else {
    if ((status = amp__norm_dim(call->attrs, count, "dim")) < 0) return status;
    if (size[args->dim] != 3)
      return amp__fail(
          AMP_E_SHAPE,
          "dimension %lld of the result %s has size %lld; a vector product is of 3 components (input %s, other %s)",
          LL(args->dim + 1), amp__shape_str(count, size), LL(size[args->dim]), SHAPE_OF(a), SHAPE_OF(b));
  }
  for (int i = 0; i < 2; i++) {
    const amp_tensor *tensor = call->in[i];
    int dim = (int)args->dim - (count - tensor->ndim);
    if (dim < 0 || tensor->size[dim] != 3)
      return amp__fail_arg(AMP_E_SHAPE, i + 1, "%s has shape %s, expected 3 components along dimension %lld of %s",
                           i ? "other" : "input", SHAPE_OF(tensor), LL(args->dim + 1), amp__shape_str(count, size));
  }
  amp__out(call, 0, amp__result_dtype(call, 0, 2), count, size);
  return 0;
}

/* -- input + outer product ------------------------------------------------------------- */

/* input vec1 vec2, beta alpha */
int amp__infer_addr(amp_call *call)
{
  static const char *const name[2] = { "beta", "alpha" };
  const double value[2] = { AMP_ARGS(call, addr)->beta, AMP_ARGS(call, addr)->alpha };
  int status = amp__equal_dtypes(call, 3);
  for (int i = 1; i < 3 && status == 0; i++) status = amp__want_dims(call, i, 1, "a vector");
  if (status < 0) return status;
  int64_t size[2] = { call->in[1]->size[0], call->in[2]->size[0] };
  if ((status = amp__want_addend(call, 2, size)) < 0) return status;
  for (int i = 0; i < 2; i++) {
    double v = value[i];
    if (!amp__is_float(call->in[0]->dtype) && !(v == floor(v) && fabs(v) <= 9007199254740992.0))
      return amp__fail(AMP_E_VALUE, "%s %g: %s tensors take an integer", name[i], v,
                       amp_dtype_name(call->in[0]->dtype));
  }
  amp__out(call, 0, call->in[0]->dtype, 2, size);
  return 0;
}

/* -- Rows of a table, summed ------------------------------------------------------------- */

/* input weight bag? scale?, count padding_idx */
int amp__infer_embedding_sum(amp_call *call)
{
  const args_embedding_sum *args = AMP_ARGS(call, embedding_sum);
  const amp_tensor *input = call->in[0], *w = call->in[1], *bag = call->in[2], *scale = call->in[3];
  int64_t count = args->count, pad = args->padding_idx;
  int status = amp__want_index(input, 1, "input");
  if (status < 0 || (bag && (status = amp__want_index(bag, 3, "bag")) < 0)) return status;
  if (w->ndim != 2 || !amp__is_float(w->dtype))
    return amp__fail_arg(AMP_E_SHAPE, 2, "weight is %s, expected a matrix of floats", amp__tensor_str(w));
  if (bag && bag->numel != input->numel)
    return amp__fail_arg(AMP_E_SHAPE, 3, "bag has shape %s and input %s; one for each index is expected", SHAPE_OF(bag),
                         SHAPE_OF(input));
  if (scale && (scale->numel != input->numel || !amp__is_float(scale->dtype)))
    return amp__fail_arg(AMP_E_SHAPE, 4, "scale is %s and input has shape %s; a float for each index is expected",
                         amp__tensor_str(scale), SHAPE_OF(input));
  if (count < 0 || (!bag && (count == 0 ? input->numel != 0 : input->numel % count != 0)))
    return amp__fail(AMP_E_SHAPE, "%lld bags don't share %lld indices evenly", LL(count), LL(input->numel));
  if (AMP_GIVEN(args->padding_idx) && (pad < 1 || pad > w->size[0]))
    return amp__fail(AMP_E_INDEX, "padding_idx %lld is out of range for %lld rows", LL(pad), LL(w->size[0]));
  int64_t size[2] = { count, w->size[1] };
  if ((status = amp__check_size(2, size, AMP_FLOAT64, NULL)) < 0) return status;
  amp__out(call, 0, amp__acc_dtype(w->dtype), 2, size);
  return 0;
}
