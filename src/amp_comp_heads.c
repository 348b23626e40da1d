/*
** amp_comp_heads.c: multi_head_attention, which projects, splits into heads,
** attends and projects back. Data is length x batch x size, or batch first; or
** one sequence without a batch. Weights and masks come as a list of those that
** are there, which `parts` names by bits.
**
** Masks speak PyTorch's language: a bool is true where a key takes NO part, a
** float is added to the scores. Without weights asked for, attention is
** scaled_dot_product_attention's, so rows without a key give 0; with them it is a
** plain softmax, where such rows are NaN.
*/
#include <math.h>
#include "amp_attention.h"

#define SHAPE_OF(t) amp__shape_str((t)->ndim, (t)->size)
#define LL(x) ((long long)(x))

enum { IN_W, Q_W, K_W, V_W, IN_B, BIAS_K, BIAS_V, OUT_W, OUT_B, MASK, PADDING, PARTS };
enum { S_PARTS, S_HEADS, S_ZERO, S_DROPOUT, S_TRAINING, S_WEIGHTS, S_AVERAGE, S_CAUSAL, S_BATCH_FIRST }; /* slots */

typedef struct heads {
  amp_tensor *part[PARTS], *x[3];   /* x: query, key, value */
  int64_t n, size, heads, length, keys;
  bool batch_first, single;         /* single: no batch dimension was given */
} heads;

static const char *const part_name[PARTS] = {
  "in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias", "bias_k", "bias_v", "out_proj_weight", "out_proj_bias", "attn_mask",
     "key_padding_mask" };
static const char *const data_name[3] = { "query", "key", "value" };

/* -- Checks ----------------------------------------------------------------------- */

static int read_parts(const amp_call *c, heads *h) {
  int64_t bits = c->a[S_PARTS].i;
  int at = 3;
  if (bits < 0 || bits >> PARTS) return amp__fail(AMP_E_ARGUMENT, "parts %lld names no weights", LL(bits));
  for (int i = 0; i < PARTS; i++) {
    h->part[i] = NULL;
    if (!(bits >> i & 1)) continue;
    if (at >= c->nin) return amp__fail(AMP_E_ARGUMENT, "parts %lld names more weights than the %d that are given", LL(bits), c->nin - 3);
    h->part[i] = c->in[at++];
  }
  if (at != c->nin) return amp__fail(AMP_E_ARGUMENT, "parts %lld names %d weights, %d are given", LL(bits), at - 3, c->nin - 3);
  if (!h->part[OUT_W]) return amp__fail(AMP_E_ARGUMENT, "out_proj_weight is missing");
  if (h->part[IN_W] ? h->part[Q_W] || h->part[K_W] || h->part[V_W] : !h->part[Q_W] || !h->part[K_W] || !h->part[V_W])
    return amp__fail(AMP_E_ARGUMENT, "in_proj_weight is expected, or all of q_proj_weight, k_proj_weight and v_proj_weight");
  return (h->part[BIAS_K] == NULL) != (h->part[BIAS_V] == NULL) ? amp__fail(AMP_E_ARGUMENT, "bias_k and bias_v come together") : 0;
}

static int want_part(const heads *h, int i, int ndim, const int64_t *size) {
  const amp_tensor *t = h->part[i];
  if (!t || (t->ndim == ndim && memcmp(t->size, size, sizeof *size * (size_t)ndim) == 0)) return 0;
  return amp__fail(AMP_E_SHAPE, "%s has shape %s, expected %s", part_name[i], SHAPE_OF(t), amp__shape_str(ndim, size));
}

static int check_data(const amp_call *c, heads *h) {
  const amp_tensor *q = c->in[0];
  for (int i = 0; i < 3; i++) {
    const amp_tensor *t = c->in[i];
    if (!amp__is_float(t->dtype)) return amp__fail_arg(AMP_E_DTYPE, i + 1, "%s has dtype %s, expected a float dtype", data_name[i], amp_dtype_name(t->dtype));
    if (t->dtype != q->dtype) return amp__fail_arg(AMP_E_DTYPE, i + 1, "query is %s and %s is %s; cast one of them", amp_dtype_name(q->dtype), data_name[i],
                                                   amp_dtype_name(t->dtype));
    if ((t->ndim != 2 && t->ndim != 3) || t->ndim != q->ndim)
      return amp__fail_arg(AMP_E_SHAPE, i + 1, "%s has shape %s, query %s; expected 3 dimensions (%s), or 2 without a batch", data_name[i], SHAPE_OF(t),
                           SHAPE_OF(q),
                           h->batch_first ? "batch x length x size" : "length x batch x size");
  }
  for (int i = 0; i < PARTS; i++) {
    const amp_tensor *t = h->part[i];
    if (t && t->dtype != q->dtype && (i < MASK || (t->dtype != AMP_BOOL && t->dtype != AMP_FLOAT32)))
      return amp__fail(AMP_E_DTYPE, "query is %s and %s is %s; cast one of them or run it under amp.autocast", amp_dtype_name(q->dtype), part_name[i],
                       amp_dtype_name(t->dtype));
  }
  return 0;
}

static int check(const amp_call *c, heads *h) {
  const amp_tensor *q = c->in[0], *k = c->in[1], *v = c->in[2];
  int rc = read_parts(c, h), l = h->single || !h->batch_first ? 0 : 1, last = q->ndim - 1;
  if (rc < 0 || (rc = check_data(c, h)) < 0) return rc;
  h->size = h->part[IN_W] ? (h->part[IN_W]->ndim ? h->part[IN_W]->size[0] / 3 : 0) : h->part[Q_W]->ndim ? h->part[Q_W]->size[0] : 0;
  h->heads = c->a[S_HEADS].i;
  if (h->heads < 1 || h->size % h->heads != 0) return amp__fail(AMP_E_ARGUMENT, "embed_dim %lld is not divisible by num_heads %lld", LL(h->size), LL(h->heads));
  h->length = q->size[l];
  h->keys = k->size[l];
  h->n = h->single ? 1 : q->size[1 - l];
  if (v->size[l] != h->keys || (!h->single && (k->size[1 - l] != h->n || v->size[1 - l] != h->n)))
    return amp__fail(AMP_E_SHAPE, "query %s, key %s and value %s don't fit: key and value have one length, all have one batch size", SHAPE_OF(q), SHAPE_OF(k),
                     SHAPE_OF(v));
  int64_t e = h->size, whole[2] = { 3 * e, q->size[last] }, in_bias = 3 * e, row[3] = { 1, 1, e }, out_bias;
  for (int i = 0; i < 3; i++) {
    int64_t size[2] = { e, c->in[i]->size[last] };
    if ((rc = want_part(h, Q_W + i, 2, size)) < 0) return rc;
    if (h->part[IN_W] && size[1] != whole[1])
      return amp__fail_arg(AMP_E_SHAPE, i + 1, "%s has %lld features and query %lld; other sizes take q_proj_weight, k_proj_weight and v_proj_weight",
                           data_name[i], LL(size[1]), LL(whole[1]));
  }
  if ((rc = want_part(h, IN_W, 2, whole)) < 0 || (rc = want_part(h, IN_B, 1, &in_bias)) < 0 || (rc = want_part(h, BIAS_K, 3, row)) < 0
      || (rc = want_part(h, BIAS_V, 3, row)) < 0) return rc;
  const amp_tensor *w = h->part[OUT_W];
  if (w->ndim != 2 || w->size[1] != e) return amp__fail(AMP_E_SHAPE, "out_proj_weight has shape %s, expected ... x %lld", SHAPE_OF(w), LL(e));
  out_bias = w->size[0];
  if ((rc = want_part(h, OUT_B, 1, &out_bias)) < 0) return rc;
  const amp_tensor *m = h->part[MASK], *p = h->part[PADDING];
  int64_t score[3] = { h->n * h->heads, h->length, h->keys }, pad[2] = { h->n, h->keys };
  if (m && !(m->ndim == 2 && m->size[0] == score[1] && m->size[1] == score[2]) && (rc = want_part(h, MASK, 3, score)) < 0)
    return amp__fail(AMP_E_SHAPE, "attn_mask has shape %s, expected %lldx%lld (query length x key length) or %s, a mask for each head of each sample",
                     SHAPE_OF(m), LL(score[1]),
                     LL(score[2]), amp__shape_str(3, score));
  if (!(c->a[S_DROPOUT].f >= 0 && c->a[S_DROPOUT].f <= 1)) return amp__fail(AMP_E_VALUE, "dropout_p %g must lie in 0..1", c->a[S_DROPOUT].f);
  return p ? want_part(h, PADDING, h->single ? 1 : 2, h->single ? pad + 1 : pad) : 0;
}

/* -- Parts of the computation --------------------------------------------------------- */

static amp_tensor *linear(amp_tensor *x, amp_tensor *w, amp_tensor *b) {
  amp_tensor *in[3] = { x, w, b };
  return amp__x(AMP_OP_linear, NULL, 3, in);
}

/* The three projections; of one tensor in one product */
static int project(amp_call *c, heads *h) {
  int64_t e = h->size;
  amp_tensor *bias = h->part[IN_B], *all = NULL;
  if (h->part[IN_W] && c->in[0] == c->in[1] && c->in[1] == c->in[2]) {
    all = linear(c->in[0], h->part[IN_W], bias);
    for (int i = 0; i < 3; i++) h->x[i] = amp__xnarrow(all, -1, i * e, e);
  } else
    for (int i = 0; i < 3; i++)
      h->x[i] = linear(c->in[i], h->part[IN_W] ? amp__xnarrow(h->part[IN_W], 0, i * e, e) : h->part[Q_W + i], bias ? amp__xnarrow(bias, 0, i * e, e) : NULL);
  for (int i = 0; i < 3; i++) {
    if (h->single && h->x[i]) h->x[i] = amp__xunsqueeze(h->x[i], h->batch_first ? 0 : 1);
    if (!h->x[i]) return amp__err();
  }
  return 0;
}

/* One more key (and value) for everybody: `row` (1 x 1 x size), or zeros */
static amp_tensor *lengthen(const heads *h, amp_tensor *x, amp_tensor *row) {
  int64_t size[3] = { 1, 1, h->size };
  int dim = h->batch_first ? 1 : 0;
  size[1 - dim] = h->n;
  if (!x) return NULL;
  amp_tensor *in[2] = { x, row ? amp__xexpand(row, 3, size) : amp__xfull(0, x->dtype, x->device, x->device_index, 3, size) };
  return amp__xdim(AMP_OP_cat, dim, 2, in);
}

/* batch x heads x length x size of a head, a view */
static amp_tensor *split(const heads *h, amp_tensor *x) {
  static const int64_t order[2][4] = { { 2, 3, 1, 4 }, { 1, 3, 2, 4 } };
  if (!x) return NULL;
  int64_t size[4] = { x->size[0], x->size[1], h->heads, h->size / h->heads };
  amp_sl s = amp__sl();
  amp__sl_list(&s, 4, order[h->batch_first]);
  x = amp__xview(x, 4, size);
  return amp__x(AMP_OP_permute, &s, 1, &x);
}

static amp_tensor *join(const heads *h, amp_tensor *y) {
  static const int64_t order[2][4] = { { 3, 1, 2, 4 }, { 1, 3, 2, 4 } };
  int64_t size[3] = { h->batch_first ? h->n : h->length, h->batch_first ? h->length : h->n, h->size };
  amp_sl s = amp__sl();
  amp__sl_list(&s, 4, order[h->batch_first]);
  y = amp__x(AMP_OP_permute, &s, 1, &y);
  return amp__xview(y, h->single ? 2 : 3, h->single ? (int64_t[]){ h->length, h->size } : size);
}

/* A mask to add, in x's dtype */
static amp_tensor *additive(amp_tensor *m, const amp_tensor *x) {
  if (!m || m->dtype != AMP_BOOL) return amp__xcast(m, x->dtype);
  return amp__xfill(m, amp__xfull(0, x->dtype, x->device, x->device_index, m->ndim, m->size), -INFINITY);
}

/* Both masks as one that broadcasts to batch x heads x length x keys, with room for `more` keys that all see */
static int join_masks(heads *h, bool causal, int more, amp_tensor **mask) {
  amp_tensor *m = h->part[MASK], *p = h->part[PADDING], *x = h->x[0];
  if (causal && !m) OR_FAIL(m = X1(logical_not, amp__causal_mask(x, h->length, h->keys)));
  if (m) {
    int64_t size[4] = { m->ndim == 3 ? h->n : 1, m->ndim == 3 ? h->heads : 1, h->length, h->keys };
    OR_FAIL(m = amp__xview(additive(m, x), 4, size));
  }
  if (p) {
    int64_t size[4] = { h->n, 1, 1, h->keys };
    OR_FAIL(p = amp__xview(additive(p, x), 4, size));
    m = m ? X2(add, m, p) : p;
  }
  if (m && more) {
    int64_t size[4];
    memcpy(size, m->size, sizeof size);
    size[3] = more;
    amp_tensor *in[2] = { m, amp__xfull(0, m->dtype, m->device, m->device_index, 4, size) };
    OR_FAIL(m = amp__xdim(AMP_OP_cat, 3, 2, in));
  }
  *mask = m;
  return 0;
}

/* softmax with its weights: out, and the weights after dropout in *weights */
static amp_tensor *with_weights(const heads *h, amp_tensor *mask, double dropout, amp_tensor **weights) {
  amp_tensor *q = h->x[0], *k = h->x[1], *v = h->x[2];
  int dtype = q->dtype, type = amp__is_half(dtype) ? AMP_FLOAT32 : dtype;
  double scale = h->size > 0 ? 1 / sqrt((double)(h->size / h->heads)) : 1;
  q = amp__xcast(q, type);
  k = amp__xcast(k, type);
  if (!q || !k) return NULL;
  amp_tensor *s = amp__attention_weights(q, k, mask, false, scale); /* all 0 where the mask leaves no key */
  if (dropout > 0) {
    amp_sl a = amp__sl();
    amp__sl_f(&a, dropout);
    amp__sl_i(&a, 1);
    s = amp__x(AMP_OP_dropout, &a, 1, &s);
  }
  *weights = s;
  return amp__xcast(X2(matmul, s, amp__xcast(v, type)), dtype);
}

int amp__comp_multi_head_attention(amp_call *c) {
  heads h = { .batch_first = c->a[S_BATCH_FIRST].i != 0, .single = c->in[0]->ndim == 2 };
  bool causal = c->a[S_CAUSAL].i != 0, weights = c->a[S_WEIGHTS].i != 0;
  double dropout = c->a[S_TRAINING].i ? c->a[S_DROPOUT].f : 0;
  amp_tensor *mask = NULL, *w = NULL, *y;
  int more = 0, rc = check(c, &h);
  if (rc < 0 || (rc = project(c, &h)) < 0) return rc;
  if (h.part[BIAS_K]) {
    h.x[1] = lengthen(&h, h.x[1], h.part[BIAS_K]);
    h.x[2] = lengthen(&h, h.x[2], h.part[BIAS_V]);
    more++;
  }
  if (c->a[S_ZERO].i) {
    for (int i = 1; i < 3; i++) h.x[i] = lengthen(&h, h.x[i], NULL);
    more++;
  }
  bool plain = causal && !weights && !more && !h.part[MASK] && !h.part[PADDING]; /* the kernel's own causal mask */
  if (!plain && (rc = join_masks(&h, causal, more, &mask)) < 0) return rc;
  for (int i = 0; i < 3; i++) OR_FAIL(h.x[i] = split(&h, h.x[i]));
  if (weights) y = with_weights(&h, mask, dropout, &w);
  else {
    amp_tensor *in[4] = { h.x[0], h.x[1], h.x[2], mask };
    amp_sl s = amp__sl();
    amp__sl_f(&s, dropout);
    amp__sl_i(&s, plain);
    amp__sl_i(&s, AMP_NONE);
    amp__sl_i(&s, 0);
    y = amp__x(AMP_OP_scaled_dot_product_attention, &s, 4, in);
  }
  rc = amp__ret(c, 0, linear(join(&h, y), h.part[OUT_W], h.part[OUT_B]));
  if (rc < 0 || !weights) return rc;
  int dim = 1;
  if (c->a[S_AVERAGE].i) w = amp__xmean(w, 1, &dim, false);
  w = amp__xcast(w, c->in[0]->dtype);
  if (w && h.single) {
    int64_t size[AMP_MAX_DIM];
    for (int d = 1; d < w->ndim; d++) size[d - 1] = w->size[d];
    w = amp__xview(w, w->ndim - 1, size);
  }
  return amp__ret(c, 1, w);
}
