/*
** ops/attention/multi_head_composite.c: multi_head_attention, which projects, splits into heads,
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
#include "ops/attention/attention_scores.h"

#define SHAPE_OF(t) amp__shape_str((t)->ndim, (t)->size)
#define LL(x) ((long long)(x))

enum { IN_W, Q_W, K_W, V_W, IN_B, BIAS_K, BIAS_V, OUT_W, OUT_B, MASK, PADDING, PARTS };

typedef struct attention_heads {
  amp_tensor *part[PARTS], *data[3];        /* data: query, key, value */
  int64_t batch, size, count, length, keys; /* count: of heads */
  bool batch_first, single;                 /* single: no batch dimension was given */
} attention_heads;

static const char *const part_name[PARTS]
    = { "in_proj_weight", "q_proj_weight",   "k_proj_weight", "v_proj_weight", "in_proj_bias",    "bias_k",
        "bias_v",         "out_proj_weight", "out_proj_bias", "attn_mask",     "key_padding_mask" };
static const char *const data_name[3] = { "query", "key", "value" };

/* -- Checks ----------------------------------------------------------------------- */

static int read_parts(const amp_call *call, attention_heads *heads)
{
  int64_t bits = AMP_ARGS(call, multi_head_attention)->parts;
  int at = 3;
  if (bits < 0 || bits >> PARTS) return amp__fail(AMP_E_ARGUMENT, "parts %lld names no weights", LL(bits));
  for (int i = 0; i < PARTS; i++) {
    heads->part[i] = NULL;
    if (!(bits >> i & 1)) continue;
    if (at >= call->nin)
      return amp__fail(AMP_E_ARGUMENT, "parts %lld names more weights than the %d that are given", LL(bits),
                       call->nin - 3);
    heads->part[i] = call->in[at++];
  }
  if (at != call->nin)
    return amp__fail(AMP_E_ARGUMENT, "parts %lld names %d weights, %d are given", LL(bits), at - 3, call->nin - 3);
  if (!heads->part[OUT_W]) return amp__fail(AMP_E_ARGUMENT, "out_proj_weight is missing");
  if (heads->part[IN_W] ? heads->part[Q_W] || heads->part[K_W] || heads->part[V_W]
                        : !heads->part[Q_W] || !heads->part[K_W] || !heads->part[V_W])
    return amp__fail(AMP_E_ARGUMENT,
                     "in_proj_weight is expected, or all of q_proj_weight, k_proj_weight and v_proj_weight");
  return (heads->part[BIAS_K] == NULL) != (heads->part[BIAS_V] == NULL)
             ? amp__fail(AMP_E_ARGUMENT, "bias_k and bias_v come together")
             : 0;
}

static int want_part(const attention_heads *heads, int i, int ndim, const int64_t *size)
{
  const amp_tensor *tensor = heads->part[i];
  if (!tensor || (tensor->ndim == ndim && memcmp(tensor->size, size, sizeof *size * (size_t)ndim) == 0)) return 0;
  return amp__fail(AMP_E_SHAPE, "%s has shape %s, expected %s", part_name[i], SHAPE_OF(tensor),
                   amp__shape_str(ndim, size));
}

static int check_data(const amp_call *call, attention_heads *heads)
{
  const amp_tensor *q = call->in[0];
  for (int i = 0; i < 3; i++) {
    const amp_tensor *tensor = call->in[i];
    if (!amp__is_float(tensor->dtype))
      return amp__fail_arg(AMP_E_DTYPE, i + 1, "%s has dtype %s, expected a float dtype", data_name[i],
                           amp_dtype_name(tensor->dtype));
    if (tensor->dtype != q->dtype)
      return amp__fail_arg(AMP_E_DTYPE, i + 1, "query is %s and %s is %s; cast one of them", amp_dtype_name(q->dtype),
                           data_name[i], amp_dtype_name(tensor->dtype));
    if ((tensor->ndim != 2 && tensor->ndim != 3) || tensor->ndim != q->ndim)
      return amp__fail_arg(AMP_E_SHAPE, i + 1,
                           "%s has shape %s, query %s; expected 3 dimensions (%s), or 2 without a batch", data_name[i],
                           SHAPE_OF(tensor), SHAPE_OF(q),
                           heads->batch_first ? "batch x length x size" : "length x batch x size");
  }
  for (int i = 0; i < PARTS; i++) {
    const amp_tensor *tensor = heads->part[i];
    if (tensor && tensor->dtype != q->dtype
        && (i < MASK || (tensor->dtype != AMP_BOOL && tensor->dtype != AMP_FLOAT32)))
      return amp__fail(AMP_E_DTYPE, "query is %s and %s is %s; cast one of them or run it under amp.autocast",
                       amp_dtype_name(q->dtype), part_name[i], amp_dtype_name(tensor->dtype));
  }
  return 0;
}

/* The projection back, the masks and dropout, once sizes are known */
static int check_rest(const amp_call *call, const attention_heads *heads)
{
  int status;
  int64_t e = heads->size, out_bias;
  const amp_tensor *w = heads->part[OUT_W];
  if (w->ndim != 2 || w->size[1] != e)
    return amp__fail(AMP_E_SHAPE, "out_proj_weight has shape %s, expected ... x %lld", SHAPE_OF(w), LL(e));
  out_bias = w->size[0];
  if ((status = want_part(heads, OUT_B, 1, &out_bias)) < 0) return status;
  const amp_tensor *m = heads->part[MASK], *p = heads->part[PADDING];
  int64_t score[3] = { heads->batch * heads->count, heads->length, heads->keys },
          pad[2] = { heads->batch, heads->keys };
  if (m && !(m->ndim == 2 && m->size[0] == score[1] && m->size[1] == score[2])
      && (status = want_part(heads, MASK, 3, score)) < 0)
    return amp__fail(
        AMP_E_SHAPE,
        "attn_mask has shape %s, expected %lldx%lld (query length x key length) or %s, a mask for each head of "
        "each sample",
        SHAPE_OF(m), LL(score[1]), LL(score[2]), amp__shape_str(3, score));
  double dropout = AMP_ARGS(call, multi_head_attention)->dropout_p;
  if (!(dropout >= 0 && dropout <= 1)) return amp__fail(AMP_E_VALUE, "dropout_p %g must lie in 0..1", dropout);
  return p ? want_part(heads, PADDING, heads->single ? 1 : 2, heads->single ? pad + 1 : pad) : 0;
}

static int check(const amp_call *call, attention_heads *heads)
{
  const amp_tensor *q = call->in[0], *k = call->in[1], *v = call->in[2];
  int status = read_parts(call, heads), l = heads->single || !heads->batch_first ? 0 : 1, last = q->ndim - 1;
  if (status < 0 || (status = check_data(call, heads)) < 0) return status;
  heads->size = heads->part[IN_W]        ? (heads->part[IN_W]->ndim ? heads->part[IN_W]->size[0] / 3 : 0)
                : heads->part[Q_W]->ndim ? heads->part[Q_W]->size[0]
                                         : 0;
  heads->count = AMP_ARGS(call, multi_head_attention)->num_heads;
  if (heads->count < 1 || heads->size % heads->count != 0)
    return amp__fail(AMP_E_ARGUMENT, "embed_dim %lld is not divisible by num_heads %lld", LL(heads->size),
                     LL(heads->count));
  heads->length = q->size[l];
  heads->keys = k->size[l];
  heads->batch = heads->single ? 1 : q->size[1 - l];
  if (v->size[l] != heads->keys
      || (!heads->single && (k->size[1 - l] != heads->batch || v->size[1 - l] != heads->batch)))
    return amp__fail(AMP_E_SHAPE,
                     "query %s, key %s and value %s don't fit: key and value have one length, all have one batch size",
                     SHAPE_OF(q), SHAPE_OF(k), SHAPE_OF(v));
  int64_t e = heads->size, whole[2] = { 3 * e, q->size[last] }, in_bias = 3 * e, row[3] = { 1, 1, e };
  for (int i = 0; i < 3; i++) {
    int64_t size[2] = { e, call->in[i]->size[last] };
    if ((status = want_part(heads, Q_W + i, 2, size)) < 0) return status;
    if (heads->part[IN_W] && size[1] != whole[1])
      return amp__fail_arg(
          AMP_E_SHAPE, i + 1,
          "%s has %lld features and query %lld; other sizes take q_proj_weight, k_proj_weight and v_proj_weight",
          data_name[i], LL(size[1]), LL(whole[1]));
  }
  if ((status = want_part(heads, IN_W, 2, whole)) < 0 || (status = want_part(heads, IN_B, 1, &in_bias)) < 0
      || (status = want_part(heads, BIAS_K, 3, row)) < 0 || (status = want_part(heads, BIAS_V, 3, row)) < 0)
    return status;
  return check_rest(call, heads);
}

/* -- Parts of the computation --------------------------------------------------------- */

static amp_tensor *linear(amp_tensor *input, amp_tensor *w, amp_tensor *b)
{
  amp_tensor *inputs[3] = { input, w, b };
  return amp__op(AMP_OP_linear, NULL, 3, inputs);
}

/* The parts of what one product gave, as slices: their gradients, which attention makes beside each other, are that
** product's without a copy. */
static int unpack(attention_heads *heads, amp_tensor *all)
{
  amp_tensor *out[AMP_MAX_OUT];
  int64_t size[4] = { 0 };
  if (!all) return amp__err();
  int last = all->ndim - 1;
  memcpy(size, all->size, sizeof *size * (size_t)last);
  size[last] = 3;
  size[last + 1] = heads->size;
  if (!(all = amp__op_view(all, last + 2, size))) return amp__err();
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, last + 1); /* dimensions count from 1 */
  int status = amp__op_results(AMP_OP_unbind, &attrs, 1, &all, out);
  for (int i = 0; i < 3 && status == 0; i++) heads->data[i] = out[i];
  return status;
}

/* The three projections; of one tensor in one product */
static int project(amp_call *call, attention_heads *heads)
{
  int64_t e = heads->size;
  amp_tensor *bias = heads->part[IN_B];
  if (heads->part[IN_W] && call->in[0] == call->in[1] && call->in[1] == call->in[2]) {
    int status = unpack(heads, linear(call->in[0], heads->part[IN_W], bias));
    if (status < 0) return status;
  } else
    for (int i = 0; i < 3; i++)
      heads->data[i] = linear(call->in[i],
                              heads->part[IN_W] ? amp__op_narrow(heads->part[IN_W], 0, i * e, e) : heads->part[Q_W + i],
                              bias ? amp__op_narrow(bias, 0, i * e, e) : NULL);
  for (int i = 0; i < 3; i++) {
    if (heads->single && heads->data[i]) heads->data[i] = amp__op_unsqueeze(heads->data[i], heads->batch_first ? 0 : 1);
    if (!heads->data[i]) return amp__err();
  }
  return 0;
}

/* One more key (and value) for every query: `row` (1 x 1 x size), or zeros */
static amp_tensor *lengthen(const attention_heads *heads, amp_tensor *input, amp_tensor *row)
{
  int64_t size[3] = { 1, 1, heads->size };
  int dim = heads->batch_first ? 1 : 0;
  size[1 - dim] = heads->batch;
  if (!input) return NULL;
  amp_tensor *inputs[2] = { input, row ? amp__op_expand(row, 3, size)
                                       : amp__op_full(0, input->dtype, input->device, input->device_index, 3, size) };
  return amp__op_dim(AMP_OP_cat, dim, 2, inputs);
}

/* batch x heads x length x size of a head, a view */
static amp_tensor *split(const attention_heads *heads, amp_tensor *input)
{
  static const int64_t order[2][4] = { { 2, 3, 1, 4 }, { 1, 3, 2, 4 } };
  if (!input) return NULL;
  int64_t size[4] = { input->size[0], input->size[1], heads->count, heads->size / heads->count };
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, 4, order[heads->batch_first]);
  input = amp__op_view(input, 4, size);
  return amp__op(AMP_OP_permute, &attrs, 1, &input);
}

static amp_tensor *join(const attention_heads *heads, amp_tensor *y)
{
  static const int64_t order[2][4] = { { 3, 1, 2, 4 }, { 1, 3, 2, 4 } };
  int64_t size[3] = { heads->batch_first ? heads->batch : heads->length,
                      heads->batch_first ? heads->length : heads->batch, heads->size };
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, 4, order[heads->batch_first]);
  y = amp__op(AMP_OP_permute, &attrs, 1, &y);
  return amp__op_view(y, heads->single ? 2 : 3, heads->single ? (int64_t[]){ heads->length, heads->size } : size);
}

/* A mask to add, in x's dtype */
static amp_tensor *additive(amp_tensor *m, const amp_tensor *input)
{
  if (!m || m->dtype != AMP_BOOL) return amp__op_cast(m, input->dtype);
  return amp__op_fill_where(m, amp__op_full(0, input->dtype, input->device, input->device_index, m->ndim, m->size),
                            -INFINITY);
}

/* Bools both: what takes part as bools, a byte each, which attention reads as they are */
static int join_bools(attention_heads *heads, bool causal, amp_tensor **mask)
{
  amp_tensor *m = heads->part[MASK], *p = heads->part[PADDING];
  if (m || causal) {
    int64_t lead = m && m->ndim == 3,
            size[4] = { lead ? heads->batch : 1, lead ? heads->count : 1, heads->length, heads->keys };
    m = m ? OP1(logical_not, m) : amp__causal_mask(heads->data[0], heads->length, heads->keys);
    OR_FAIL(m = amp__op_view(m, 4, size));
  }
  if (p) {
    int64_t size[4] = { heads->batch, 1, 1, heads->keys };
    OR_FAIL(p = amp__op_view(OP1(logical_not, p), 4, size));
  }
  *mask = m && p ? OP2(logical_and, m, p) : m ? m : p;
  return *mask || !(m || p) ? 0 : amp__err();
}

/* Both masks as one that broadcasts to batch x heads x length x keys, with room for `more` keys that
** all see */
static int join_masks(attention_heads *heads, bool causal, int more, amp_tensor **mask)
{
  amp_tensor *m = heads->part[MASK], *p = heads->part[PADDING], *input = heads->data[0];
  if (!more && (!m || m->dtype == AMP_BOOL) && (!p || p->dtype == AMP_BOOL)) return join_bools(heads, causal, mask);
  if (causal && !m) OR_FAIL(m = OP1(logical_not, amp__causal_mask(input, heads->length, heads->keys)));
  if (m) {
    int64_t size[4] = { m->ndim == 3 ? heads->batch : 1, m->ndim == 3 ? heads->count : 1, heads->length, heads->keys };
    OR_FAIL(m = amp__op_view(additive(m, input), 4, size));
  }
  if (p) {
    int64_t size[4] = { heads->batch, 1, 1, heads->keys };
    OR_FAIL(p = amp__op_view(additive(p, input), 4, size));
    m = m ? OP2(add, m, p) : p;
  }
  if (m && more) {
    int64_t size[4];
    memcpy(size, m->size, sizeof size);
    size[3] = more;
    amp_tensor *inputs[2] = { m, amp__op_full(0, m->dtype, m->device, m->device_index, 4, size) };
    OR_FAIL(m = amp__op_dim(AMP_OP_cat, 3, 2, inputs));
  }
  *mask = m;
  return 0;
}

/* softmax with its weights: out, and the weights after dropout in *weights */
static amp_tensor *with_weights(const attention_heads *heads, amp_tensor *mask, double dropout, amp_tensor **weights)
{
  amp_tensor *q = heads->data[0], *k = heads->data[1], *v = heads->data[2];
  int dtype = q->dtype, type = amp__is_half(dtype) ? AMP_FLOAT32 : dtype;
  double scale = heads->size > 0 ? 1 / sqrt((double)(heads->size / heads->count)) : 1;
  q = amp__op_cast(q, type);
  k = amp__op_cast(k, type);
  if (!q || !k) return NULL;
  amp_tensor *s = amp__attention_weights(q, k, mask, false, scale); /* all 0 where the mask leaves no key */
  if (dropout > 0) {
    amp_attrs attrs = amp__attrs();
    amp__attrs_float(&attrs, dropout);
    amp__attrs_int(&attrs, 1);
    s = amp__op(AMP_OP_dropout, &attrs, 1, &s);
  }
  *weights = s;
  return amp__op_cast(OP2(matmul, s, amp__op_cast(v, type)), dtype);
}

int amp__comp_multi_head_attention(amp_call *call)
{
  const args_multi_head_attention *args = AMP_ARGS(call, multi_head_attention);
  attention_heads heads = { .batch_first = args->batch_first != 0, .single = call->in[0]->ndim == 2 };
  bool causal = args->is_causal != 0, weights = args->need_weights != 0;
  double dropout = args->training ? args->dropout_p : 0;
  amp_tensor *mask = NULL, *w = NULL, *y;
  int more = 0, status = check(call, &heads);
  if (status < 0 || (status = project(call, &heads)) < 0) return status;
  if (heads.part[BIAS_K]) {
    heads.data[1] = lengthen(&heads, heads.data[1], heads.part[BIAS_K]);
    heads.data[2] = lengthen(&heads, heads.data[2], heads.part[BIAS_V]);
    more++;
  }
  if (args->add_zero_attn) {
    for (int i = 1; i < 3; i++) heads.data[i] = lengthen(&heads, heads.data[i], NULL);
    more++;
  }
  bool plain
      = causal && !weights && !more && !heads.part[MASK] && !heads.part[PADDING]; /* the kernel's own causal mask */
  if (!plain && (status = join_masks(&heads, causal, more, &mask)) < 0) return status;
  for (int i = 0; i < 3; i++) OR_FAIL(heads.data[i] = split(&heads, heads.data[i]));
  if (weights) y = with_weights(&heads, mask, dropout, &w);
  else {
    amp_tensor *inputs[4] = { heads.data[0], heads.data[1], heads.data[2], mask };
    amp_attrs attrs = amp__attrs();
    amp__attrs_float(&attrs, dropout);
    amp__attrs_int(&attrs, plain);
    amp__attrs_int(&attrs, AMP_NONE);
    amp__attrs_int(&attrs, 0);
    y = amp__op(AMP_OP_scaled_dot_product_attention, &attrs, 4, inputs);
  }
  status = amp__result(call, 0, linear(join(&heads, y), heads.part[OUT_W], heads.part[OUT_B]));
  if (status < 0 || !weights) return status;
  int dim = 1;
  if (args->average_attn_weights) w = amp__op_mean(w, 1, &dim, false);
  w = amp__op_cast(w, call->in[0]->dtype);
  if (w && heads.single) {
    int64_t size[AMP_MAX_DIM];
    for (int d = 1; d < w->ndim; d++) size[d - 1] = w->size[d];
    w = amp__op_view(w, w->ndim - 1, size);
  }
  return amp__result(call, 1, w);
}
