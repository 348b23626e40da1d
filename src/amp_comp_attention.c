/*
** amp_comp_attention.c: scaled_dot_product_attention and its scores in recorded
** ops. The composite checks what the user gave, makes leading dimensions equal by
** views (grouped heads become a dimension of their own, which keys and values
** repeat without a copy), and runs the fused row; with dropout, or where a mask
** wants a gradient, the matrix of scores is made. multi_head_attention is in
** amp_comp_heads.c.
*/
#include <math.h>
#include "amp_attention.h"

#define SHAPE_OF(t) amp__shape_str((t)->ndim, (t)->size)

/* -- In recorded ops ---------------------------------------------------------------- */

amp_tensor *amp__causal_mask(const amp_tensor *like, int64_t length, int64_t keys) {
  int64_t size[2] = { length, keys };
  return X1(tril, amp__xfull(1, AMP_BOOL, like->device, like->device_index, 2, size));
}

/* rows of scores in which every one is -inf, as a column of bools */
static amp_tensor *blind(amp_tensor *scores) {
  int64_t last = -1;
  amp_tensor *t = amp__xdetach(scores);
  amp_sl s = amp__sl();
  amp__sl_list(&s, 1, &last);
  amp__sl_i(&s, 1);
  return XN(eq, amp__x(AMP_OP_amax, &s, 1, &t), -INFINITY);
}

amp_tensor *amp__attention_weights(amp_tensor *q, amp_tensor *k, amp_tensor *mask, bool causal, double scale) {
  amp_tensor *s = X2(matmul, XN(mul, q, scale), amp__xtranspose(k, -2, -1)), *none = NULL;
  if (!s) return NULL;
  if (mask) s = mask->dtype == AMP_BOOL ? amp__xwhere(mask, s, amp__xnum(-INFINITY)) : X2(add, s, amp__xcast(mask, s->dtype));
  if (causal) s = amp__xwhere(amp__causal_mask(q, q->size[q->ndim - 2], k->size[k->ndim - 2]), s, amp__xnum(-INFINITY));
  if (!s) return NULL;
  if (mask && s->size[s->ndim - 1] > 0) {
    if (!(none = blind(s))) return NULL;
    s = amp__xfill(none, s, 0);
  }
  s = amp__xdim(AMP_OP_softmax, -1, 1, &s);
  return none ? amp__xmask_not(none, s) : s;
}

static amp_tensor *with_scores(amp_tensor *q, amp_tensor *k, amp_tensor *v, amp_tensor *mask, bool causal, double scale, double dropout) {
  if (!q || !k || !v) return NULL;
  int dtype = q->dtype, type = amp__is_half(dtype) ? AMP_FLOAT32 : dtype;
  q = amp__xcast(q, type);
  k = amp__xcast(k, type);
  v = amp__xcast(v, type);
  if (!q || !k || !v) return NULL;
  amp_tensor *p = amp__attention_weights(q, k, mask, causal, scale);
  if (dropout > 0) {
    amp_sl s = amp__sl();
    amp__sl_f(&s, dropout);
    amp__sl_i(&s, 1);
    p = amp__x(AMP_OP_dropout, &s, 1, &p);
  }
  return amp__xcast(X2(matmul, p, v), dtype);
}

/* -- Checks ----------------------------------------------------------------------------- */

enum { DROPOUT, CAUSAL, SCALE, GROUPED }; /* slots */

static int check(const amp_call *c) {
  static const char *const name[3] = { "query", "key", "value" };
  const amp_tensor *q = c->in[0], *k = c->in[1], *v = c->in[2], *mask = c->in[3];
  double p = c->a[DROPOUT].f;
  for (int i = 0; i < 3; i++) {
    const amp_tensor *t = c->in[i];
    if (!amp__is_float(t->dtype)) return amp__fail_arg(AMP_E_DTYPE, i + 1, "%s has dtype %s, expected a float dtype", name[i], amp_dtype_name(t->dtype));
    if (t->ndim < 2) return amp__fail_arg(AMP_E_SHAPE, i + 1, "%s has shape %s, expected at least 2 dimensions (... x length x size)", name[i], SHAPE_OF(t));
    if (t->dtype != q->dtype)
      return amp__fail_arg(AMP_E_DTYPE, i + 1, "query is %s and %s is %s; cast one of them or run it under amp.autocast", amp_dtype_name(q->dtype), name[i],
                           amp_dtype_name(t->dtype));
  }
  if (q->size[q->ndim - 1] != k->size[k->ndim - 1])
    return amp__fail_arg(AMP_E_SHAPE, 2, "query %s and key %s differ in their last dimension (%lld and %lld)", SHAPE_OF(q), SHAPE_OF(k),
                         (long long)q->size[q->ndim - 1], (long long)k->size[k->ndim - 1]);
  if (k->size[k->ndim - 2] != v->size[v->ndim - 2])
    return amp__fail_arg(AMP_E_SHAPE, 3, "key %s and value %s differ in length (%lld and %lld)", SHAPE_OF(k), SHAPE_OF(v),
                         (long long)k->size[k->ndim - 2], (long long)v->size[v->ndim - 2]);
  if (!(p >= 0 && p <= 1)) return amp__fail(AMP_E_VALUE, "dropout_p %g must lie in 0..1", p);
  if (c->a[SCALE].i != AMP_NONE && !isfinite(c->a[SCALE].f)) return amp__fail(AMP_E_VALUE, "scale %g must be finite", c->a[SCALE].f);
  if (mask && c->a[CAUSAL].i) return amp__fail_arg(AMP_E_ARGUMENT, 4,
                                                   "attn_mask (%s) and is_causal are both given; give one, or put the causal mask into attn_mask",
                                                      SHAPE_OF(mask));
  if (mask && mask->dtype != AMP_BOOL && mask->dtype != q->dtype && mask->dtype != AMP_FLOAT32)
    return amp__fail_arg(AMP_E_DTYPE, 4, "attn_mask is %s, expected bool, float32 or query's %s", amp_dtype_name(mask->dtype), amp_dtype_name(q->dtype));
  return 0;
}

/* The leading dimensions that the last three tensors of c broadcast to; heads of keys count `times` over. */
static int leading(const amp_call *c, bool grouped, int *n, int64_t *size) {
  const amp_tensor *q = c->in[0], *k = c->in[1], *v = c->in[2];
  *n = 0;
  for (int i = 0; i < 3; i++) if (c->in[i]->ndim - 2 > *n) *n = c->in[i]->ndim - 2;
  for (int d = 0; d < *n; d++) size[d] = 1;
  for (int i = 0; i < 3; i++) {
    const amp_tensor *t = c->in[i];
    for (int d = 0; d < t->ndim - 2; d++) {
      int at = d + *n - (t->ndim - 2);
      int64_t have = t->size[d];
      if (grouped && at == *n - 1 && i > 0) continue;
      if (have == 1 || have == size[at]) continue;
      if (size[at] != 1) return amp__fail_arg(AMP_E_SHAPE, i + 1, "leading dimensions of query %s, key %s and value %s don't broadcast", SHAPE_OF(q),
                                              SHAPE_OF(k), SHAPE_OF(v));
      size[at] = have;
    }
  }
  return 0;
}

static int check_heads(const amp_call *c) {
  const amp_tensor *q = c->in[0], *k = c->in[1], *v = c->in[2];
  if (q->ndim < 3 || k->ndim < 3 || v->ndim < 3)
    return amp__fail(AMP_E_SHAPE, "enable_gqa wants a dimension of heads: query %s, key %s, value %s", SHAPE_OF(q), SHAPE_OF(k), SHAPE_OF(v));
  int64_t hq = q->size[q->ndim - 3], hk = k->size[k->ndim - 3], hv = v->size[v->ndim - 3];
  if (hk != hv || hk == 0 || hq % hk != 0)
    return amp__fail(AMP_E_SHAPE, "%lld heads of query are no multiple of key's %lld and value's %lld (query %s, key %s, value %s)", (long long)hq,
                     (long long)hk,
                     (long long)hv, SHAPE_OF(q), SHAPE_OF(k), SHAPE_OF(v));
  return 0;
}

/* t with the leading dimensions `lead`, its last two kept */
static amp_tensor *spread(amp_tensor *t, int n, const int64_t *lead) {
  int64_t size[AMP_MAX_DIM];
  memcpy(size, lead, sizeof *size * (size_t)n);
  size[n] = t->size[t->ndim - 2];
  size[n + 1] = t->size[t->ndim - 1];
  return amp__xexpand(t, n + 2, size);
}

/* Dimension d of t becomes two, outer x inner */
static amp_tensor *split(amp_tensor *t, int d, int64_t outer, int64_t inner) {
  int64_t size[AMP_MAX_DIM];
  if (!t) return NULL;
  for (int i = 0, j = 0; i < t->ndim; i++) {
    if (i == d) { size[j++] = outer; size[j++] = inner; }
    else size[j++] = t->size[i];
  }
  return amp__xview(t, t->ndim + 1, size);
}

/* -- The op --------------------------------------------------------------------------------- */

int amp__comp_scaled_dot_product_attention(amp_call *c) {
  amp_tensor *q = c->in[0], *k = c->in[1], *v = c->in[2], *mask = c->in[3], *y;
  int64_t lead[AMP_MAX_DIM], size[AMP_MAX_DIM], heads = 0, groups = 0;
  bool causal = c->a[CAUSAL].i != 0, grouped = c->a[GROUPED].i != 0;
  int n, rc;
  if ((rc = check(c)) < 0 || (grouped && (rc = check_heads(c)) < 0) || (rc = leading(c, grouped, &n, lead)) < 0) return rc;
  int64_t length = q->size[q->ndim - 2], keys = k->size[k->ndim - 2], e = q->size[q->ndim - 1];
  double scale = c->a[SCALE].i != AMP_NONE ? c->a[SCALE].f : e > 0 ? 1 / sqrt((double)e) : 1;
  if (mask) { /* to the shape of the scores */
    memcpy(size, lead, sizeof *size * (size_t)n);
    size[n] = length;
    size[n + 1] = keys;
    for (int d = 0; d < mask->ndim; d++) {
      int at = d + n + 2 - mask->ndim;
      if (at < 0 || (mask->size[d] != 1 && mask->size[d] != size[at]))
        return amp__fail_arg(AMP_E_SHAPE, 4, "attn_mask has shape %s, which does not broadcast to %s (... x query length x key length)", SHAPE_OF(mask),
                             amp__shape_str(n + 2, size));
    }
    mask = amp__xexpand(mask, n + 2, size);
  }
  q = spread(q, n, lead);
  if (grouped) {
    heads = k->size[k->ndim - 3];
    groups = lead[n - 1] / heads;
    if (n + 3 > AMP_MAX_DIM) return amp__fail(AMP_E_SHAPE, "enable_gqa takes up to %d dimensions, query has shape %s", AMP_MAX_DIM - 1, SHAPE_OF(c->in[0]));
    q = split(q, n - 1, heads, groups);
    if (mask) mask = split(mask, n - 1, heads, groups);
    k = amp__xunsqueeze(k, -3);
    v = amp__xunsqueeze(v, -3);
    lead[n - 1] = heads;
    lead[n++] = groups;
    if (!k || !v) return amp__err();
  }
  k = spread(k, n, lead);
  v = spread(v, n, lead);
  if (!q || !k || !v || (c->in[3] && !mask)) return amp__err();
  bool wanted = mask && mask->dtype != AMP_BOOL && amp__S->grad_mode && amp__tracked(mask);
  if (c->a[DROPOUT].f > 0 || wanted) y = with_scores(q, k, v, mask, causal, scale, c->a[DROPOUT].f);
  else {
    amp_tensor *in[4] = { q, k, v, mask };
    amp_sl s = amp__sl();
    amp__sl_i(&s, causal);
    amp__sl_f(&s, scale);
    y = amp__x(AMP_OP_attention, &s, 4, in);
  }
  if (y && grouped) {
    memmove(size, y->size, sizeof *size * (size_t)y->ndim);
    size[n - 2] = heads * groups;
    size[n - 1] = size[n];
    size[n] = size[n + 1];
    y = amp__xview(y, n + 1, size);
  }
  return amp__ret(c, 0, y);
}
