/*
** ops/attention/attention_composite.c: scaled_dot_product_attention and its scores in recorded
** ops. The composite checks what the user gave, makes leading dimensions equal by
** views (grouped heads become a dimension of their own, which keys and values
** repeat without a copy), and runs the fused row; where a mask wants a gradient, the
** matrix of scores is made. multi_head_attention is in
** ops/attention/multi_head_composite.c.
*/
#include <math.h>
#include "ops/attention/attention_scores.h"

#define SHAPE_OF(t) amp__shape_str((t)->ndim, (t)->size)

/* -- In recorded ops ---------------------------------------------------------------- */

amp_tensor *amp__causal_mask(const amp_tensor *like, int64_t length, int64_t keys)
{
  int64_t size[2] = { length, keys };
  return OP1(tril, amp__op_full(1, AMP_BOOL, like->device, like->device_index, 2, size));
}

/* rows of scores in which every one is -inf, as a column of bools */
static amp_tensor *blind(amp_tensor *scores)
{
  int64_t last = -1;
  amp_tensor *tensor = amp__op_detach(scores);
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, 1, &last);
  amp__attrs_int(&attrs, 1);
  return OP_NUMBER(eq, amp__op(AMP_OP_amax, &attrs, 1, &tensor), -INFINITY);
}

amp_tensor *amp__attention_weights(amp_tensor *q, amp_tensor *k, amp_tensor *mask, bool causal, double scale)
{
  amp_tensor *s = OP2(matmul, OP_NUMBER(mul, q, scale), amp__op_transpose(k, -2, -1)), *none = NULL;
  if (!s) return NULL;
  if (mask)
    s = mask->dtype == AMP_BOOL ? amp__op_where(mask, s, amp__wrapped_number(-INFINITY))
                                : OP2(add, s, amp__op_cast(mask, s->dtype));
  if (causal)
    s = amp__op_where(amp__causal_mask(q, q->size[q->ndim - 2], k->size[k->ndim - 2]), s,
                      amp__wrapped_number(-INFINITY));
  if (!s) return NULL;
  if (mask && s->size[s->ndim - 1] > 0) {
    if (!(none = blind(s))) return NULL;
    s = amp__op_fill_where(none, s, 0);
  }
  s = amp__op_dim(AMP_OP_softmax, -1, 1, &s);
  return none ? amp__op_mask_not(none, s) : s;
}

static amp_tensor *with_scores(amp_tensor *q, amp_tensor *k, amp_tensor *v, amp_tensor *mask, bool causal, double scale,
                               double dropout)
{
  if (!q || !k || !v) return NULL;
  int dtype = q->dtype, type = amp__is_half(dtype) ? AMP_FLOAT32 : dtype;
  q = amp__op_cast(q, type);
  k = amp__op_cast(k, type);
  v = amp__op_cast(v, type);
  if (!q || !k || !v) return NULL;
  amp_tensor *p = amp__attention_weights(q, k, mask, causal, scale);
  if (dropout > 0) {
    amp_attrs attrs = amp__attrs();
    amp__attrs_float(&attrs, dropout);
    amp__attrs_int(&attrs, 1);
    p = amp__op(AMP_OP_dropout, &attrs, 1, &p);
  }
  return amp__op_cast(OP2(matmul, p, v), dtype);
}

/* -- Checks ----------------------------------------------------------------------------- */

static int check(const amp_call *call, const args_scaled_dot_product_attention *args)
{
  static const char *const name[3] = { "query", "key", "value" };
  const amp_tensor *q = call->in[0], *k = call->in[1], *v = call->in[2], *mask = call->in[3];
  double p = args->dropout_p;
  for (int i = 0; i < 3; i++) {
    const amp_tensor *tensor = call->in[i];
    if (!amp__is_float(tensor->dtype))
      return amp__fail_arg(AMP_E_DTYPE, i + 1, "%s has dtype %s, expected a float dtype", name[i],
                           amp_dtype_name(tensor->dtype));
    if (tensor->ndim < 2)
      return amp__fail_arg(AMP_E_SHAPE, i + 1, "%s has shape %s, expected at least 2 dimensions (... x length x size)",
                           name[i], SHAPE_OF(tensor));
    if (tensor->dtype != q->dtype)
      return amp__fail_arg(AMP_E_DTYPE, i + 1,
                           "query is %s and %s is %s; cast one of them or run it under amp.autocast",
                           amp_dtype_name(q->dtype), name[i], amp_dtype_name(tensor->dtype));
  }
  if (q->size[q->ndim - 1] != k->size[k->ndim - 1])
    return amp__fail_arg(AMP_E_SHAPE, 2, "query %s and key %s differ in their last dimension (%lld and %lld)",
                         SHAPE_OF(q), SHAPE_OF(k), (long long)q->size[q->ndim - 1], (long long)k->size[k->ndim - 1]);
  if (k->size[k->ndim - 2] != v->size[v->ndim - 2])
    return amp__fail_arg(AMP_E_SHAPE, 3, "key %s and value %s differ in length (%lld and %lld)", SHAPE_OF(k),
                         SHAPE_OF(v), (long long)k->size[k->ndim - 2], (long long)v->size[v->ndim - 2]);
  if (!(p >= 0 && p <= 1)) return amp__fail(AMP_E_VALUE, "dropout_p %g must lie in 0..1", p);
  if (AMP_GIVEN(args->scale) && !isfinite(args->scale))
    return amp__fail(AMP_E_VALUE, "scale %g must be finite", args->scale);
  if (mask && args->is_causal)
    return amp__fail_arg(AMP_E_ARGUMENT, 4,
                         "attn_mask (%s) and is_causal are both given; give one, or put the causal mask into attn_mask",
                         SHAPE_OF(mask));
  if (mask && mask->dtype != AMP_BOOL && mask->dtype != q->dtype && mask->dtype != AMP_FLOAT32)
    return amp__fail_arg(AMP_E_DTYPE, 4, "attn_mask is %s, expected bool, float32 or query's %s",
                         amp_dtype_name(mask->dtype), amp_dtype_name(q->dtype));
  return 0;
}

/* The leading dimensions that the last three tensors of call broadcast to; heads of keys count `times` over. */
static int leading(const amp_call *call, bool grouped, int *n, int64_t *size)
{
  const amp_tensor *q = call->in[0], *k = call->in[1], *v = call->in[2];
  *n = 0;
  for (int i = 0; i < 3; i++)
    if (call->in[i]->ndim - 2 > *n) *n = call->in[i]->ndim - 2;
  for (int dim = 0; dim < *n; dim++) size[dim] = 1;
  for (int i = 0; i < 3; i++) {
    const amp_tensor *tensor = call->in[i];
    for (int dim = 0; dim < tensor->ndim - 2; dim++) {
      int at = dim + *n - (tensor->ndim - 2);
      int64_t have = tensor->size[dim];
      if (grouped && at == *n - 1 && i > 0) continue;
      if (have == 1 || have == size[at]) continue;
      if (size[at] != 1)
        return amp__fail_arg(AMP_E_SHAPE, i + 1, "leading dimensions of query %s, key %s and value %s don't broadcast",
                             SHAPE_OF(q), SHAPE_OF(k), SHAPE_OF(v));
      size[at] = have;
    }
  }
  return 0;
}

static int check_heads(const amp_call *call)
{
  const amp_tensor *q = call->in[0], *k = call->in[1], *v = call->in[2];
  if (q->ndim < 3 || k->ndim < 3 || v->ndim < 3)
    return amp__fail(AMP_E_SHAPE, "enable_gqa wants a dimension of heads: query %s, key %s, value %s", SHAPE_OF(q),
                     SHAPE_OF(k), SHAPE_OF(v));
  int64_t hq = q->size[q->ndim - 3], hk = k->size[k->ndim - 3], hv = v->size[v->ndim - 3];
  if (hk != hv || hk == 0 || hq % hk != 0)
    return amp__fail(AMP_E_SHAPE,
                     "%lld heads of query are no multiple of key's %lld and value's %lld (query %s, key %s, value %s)",
                     (long long)hq, (long long)hk, (long long)hv, SHAPE_OF(q), SHAPE_OF(k), SHAPE_OF(v));
  return 0;
}

/* tensor with the leading dimensions `lead`, its last two kept */
static amp_tensor *spread(amp_tensor *tensor, int n, const int64_t *lead)
{
  int64_t size[AMP_MAX_DIM];
  memcpy(size, lead, sizeof *size * (size_t)n);
  size[n] = tensor->size[tensor->ndim - 2];
  size[n + 1] = tensor->size[tensor->ndim - 1];
  return amp__op_expand(tensor, n + 2, size);
}

/* Dimension dim of tensor becomes two, outer x inner */
static amp_tensor *split(amp_tensor *tensor, int dim, int64_t outer, int64_t inner)
{
  int64_t size[AMP_MAX_DIM];
  if (!tensor) return NULL;
  for (int i = 0, j = 0; i < tensor->ndim; i++) {
    if (i == dim) {
      size[j++] = outer;
      size[j++] = inner;
    } else size[j++] = tensor->size[i];
  }
  return amp__op_view(tensor, tensor->ndim + 1, size);
}

/* -- The op --------------------------------------------------------------------------------- */

/* The mask in the shape of the scores: the leading dimensions `lead` x length x keys */
static amp_tensor *spread_mask(amp_tensor *mask, int count, const int64_t *lead, int64_t length, int64_t keys)
{
  int64_t size[AMP_MAX_DIM];
  memcpy(size, lead, sizeof *size * (size_t)count);
  size[count] = length;
  size[count + 1] = keys;
  for (int dim = 0; dim < mask->ndim; dim++) {
    int at = dim + count + 2 - mask->ndim;
    if (at >= 0 && (mask->size[dim] == 1 || mask->size[dim] == size[at])) continue;
    amp__fail_arg(AMP_E_SHAPE, 4,
                  "attn_mask has shape %s, which does not broadcast to %s (... x query length x key length)",
                  SHAPE_OF(mask), amp__shape_str(count + 2, size));
    return NULL;
  }
  return amp__op_expand(mask, count + 2, size);
}

/* The fused row, or the matrix of scores where the mask wants a gradient */
static amp_tensor *attend(amp_tensor *q, amp_tensor *k, amp_tensor *v, amp_tensor *mask, bool causal, double scale,
                          double dropout)
{
  bool wanted = mask && mask->dtype != AMP_BOOL && amp__S->grad_mode && amp__tracked(mask);
  if (wanted) return with_scores(q, k, v, mask, causal, scale, dropout);
  amp_tensor *inputs[4] = { q, k, v, mask };
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, causal);
  amp__attrs_float(&attrs, scale);
  amp__attrs_float(&attrs, dropout);
  return amp__op(AMP_OP_attention, &attrs, 4, inputs);
}

int amp__comp_scaled_dot_product_attention(amp_call *call)
{
  const args_scaled_dot_product_attention *args = AMP_ARGS(call, scaled_dot_product_attention);
  amp_tensor *q = call->in[0], *k = call->in[1], *v = call->in[2], *mask = call->in[3], *y;
  int64_t lead[AMP_MAX_DIM], size[AMP_MAX_DIM], heads = 0, groups = 0;
  bool grouped = args->enable_gqa != 0;
  int count, status;
  if ((status = check(call, args)) < 0 || (grouped && (status = check_heads(call)) < 0)
      || (status = leading(call, grouped, &count, lead)) < 0)
    return status;
  int64_t width = q->size[q->ndim - 1];
  double scale = AMP_GIVEN(args->scale) ? args->scale : width > 0 ? 1 / sqrt((double)width) : 1;
  if (mask && !(mask = spread_mask(mask, count, lead, q->size[q->ndim - 2], k->size[k->ndim - 2]))) return amp__err();
  q = spread(q, count, lead);
  if (grouped) {
    heads = k->size[k->ndim - 3];
    groups = lead[count - 1] / heads;
    if (count + 3 > AMP_MAX_DIM)
      return amp__fail(AMP_E_SHAPE, "enable_gqa takes up to %d dimensions, query has shape %s", AMP_MAX_DIM - 1,
                       SHAPE_OF(call->in[0]));
    q = split(q, count - 1, heads, groups);
    if (mask) mask = split(mask, count - 1, heads, groups);
    k = amp__op_unsqueeze(k, -3);
    v = amp__op_unsqueeze(v, -3);
    lead[count - 1] = heads;
    lead[count++] = groups;
    if (!k || !v) return amp__err();
  }
  k = spread(k, count, lead);
  v = spread(v, count, lead);
  if (!q || !k || !v || (call->in[3] && !mask)) return amp__err();
  y = attend(q, k, v, mask, args->is_causal != 0, scale, args->dropout_p);
  if (y && grouped) {
    memmove(size, y->size, sizeof *size * (size_t)y->ndim);
    size[count - 2] = heads * groups;
    size[count - 1] = size[count];
    size[count] = size[count + 1];
    y = amp__op_view(y, count + 1, size);
  }
  return amp__result(call, 0, y);
}
