/*
** graph/pass_join_rows.c: the table of joins. A new one is a row here, where larger patterns come before those they
** contain, and a case in spec/graph/passes_spec.lua. A join keeps results within rounding, in every region: where
** dtypes would differ in one, the row says JOIN_REGION. Attention's dropout draws masks of its own on a GPU.
*/
#include <math.h>
#include "graph/pass_join.h"

/* -- Activations ------------------------------------------------------------------------- */

static bool with_relu(join *j)
{
  ((args_linear_act *)j->attrs)->act = ACT_RELU;
  return true;
}

static bool with_gelu(join *j)
{
  bool tanh_form = AMP_ARGS(join_node(j, 0), gelu)->approximate == APPROXIMATE_TANH;
  ((args_linear_act *)j->attrs)->act = tanh_form ? ACT_GELU_TANH : ACT_GELU;
  return true;
}

static bool tanh_gelu(join *j)
{
  ((args_gelu *)j->attrs)->approximate = APPROXIMATE_TANH;
  return true;
}

/* -- Products with a bias ------------------------------------------------------------------ */

static bool bias_of_rows(const join *j, int64_t size)
{
  const amp_graph_value *b = join_value(j, 'b'), *x = join_value(j, 'x'), *w = join_value(j, 'w');
  return b->ndim == 1 && b->size[0] == size && x->ndim >= 2 && w->ndim == 2 && b->dtype == w->dtype
         && x->dtype == w->dtype && amp__is_float(w->dtype);
}

static bool linear_bias(join *j) { return bias_of_rows(j, join_value(j, 'w')->size[0]); }

static bool turned_bias(join *j)
{
  const amp_graph_node *n = join_node(j, 2);
  int64_t first = 1, second = 2;
  if (n->op == AMP_OP_transpose) {
    first = AMP_ARGS(n, transpose)->dim0;
    second = AMP_ARGS(n, transpose)->dim1;
  }
  bool turned = (first > 0 ? first : first + 3) != (second > 0 ? second : second + 3);
  return turned && linear_bias(j);
}

/* A bias of shape C x 1 x 1, or 1 x C x 1 x 1, after a convolution without one. */
static bool conv_bias(join *j)
{
  const amp_graph_value *b = join_value(j, 'b'), *w = join_value(j, 'w');
  const amp_graph_node *conv = join_node(j, 1);
  int ndim = pass_value(j->pass, conv->out[0])->ndim, at = b->ndim - (ndim - 1);
  if (at < 0 || at > 1 || b->dtype != w->dtype || ndim != w->ndim) return false;
  for (int d = 0; d < b->ndim; d++)
    if (b->size[d] != (d == at ? w->size[0] : 1)) return false;
  memcpy(j->attrs, conv->attrs, sizeof *j->attrs * (size_t)amp__ops[conv->op].info.nslot);
  return true;
}

/* -- Normalisation --------------------------------------------------------------------------- */

/* Is the value in the region's low dtype in every region, being made by products and what keeps their dtype? */
static bool follows_products(const graph_pass *p, int32_t value, int depth)
{
  if (value < 0 || value >= p->nvalue || depth == 0) return false;
  const amp_graph_value *v = pass_value(p, value);
  if (v->node < 0 || p->graph->nodes[v->node].op < 0) return false;
  const amp_graph_node *n = &p->graph->nodes[v->node];
  const amp_op_desc *d = &amp__ops[n->op];
  if (d->info.policy == AMP_LOWER && amp_policy_get(n->op) == AMP_LOWER) return true;
  switch (n->op) {
  case AMP_OP_add: return follows_products(p, n->in[0], depth - 1) && follows_products(p, n->in[1], depth - 1);
  case AMP_OP_batch_norm:
  case AMP_OP_batch_norm_act:
  case AMP_OP_relu:
  case AMP_OP_dropout:
  case AMP_OP_max_pool2d:
  case AMP_OP_avg_pool2d: return follows_products(p, n->in[0], depth - 1);
  default: return false;
  }
}

static bool norm_relu(join *j)
{
  const amp_graph_node *norm = join_node(j, j->nnode - 1);
  const args_batch_norm *from = AMP_ARGS(norm, batch_norm);
  args_batch_norm_act *to = (args_batch_norm_act *)j->attrs;
  to->relu = 1;
  to->training = from->training;
  to->momentum = from->momentum;
  to->eps = from->eps;
  return true;
}

/* May the sum of x, behind the norm, and r be one with it in every region? */
static bool residual_fits(join *j)
{
  const amp_graph_value *x = join_value(j, 'x'), *r = join_value(j, 'r');
  if (x->dtype != r->dtype || !join_same_size(j, x, r)) return false;
  enum { DEPTH = 12 };
  bool same = x->dtype == AMP_FLOAT64 /* no region changes it */
              || (follows_products(j->pass, j->value[0]['x' - 'a'], DEPTH)
                  && follows_products(j->pass, j->value[0]['r' - 'a'], DEPTH));
  return same;
}

static bool norm_add_relu(join *j) { return residual_fits(j) && norm_relu(j); }

/* The same after a row batch_norm_act, as a GPU's layers call it, which does no more than the norm. */
static bool act_relu(join *j)
{
  const args_batch_norm_act *from = AMP_ARGS(join_node(j, j->nnode - 1), batch_norm_act);
  args_batch_norm_act *to = (args_batch_norm_act *)j->attrs;
  *to = *from;
  to->relu = 1;
  return from->relu == 0;
}

static bool act_add_relu(join *j) { return j->value[0]['q' - 'a'] < 0 && residual_fits(j) && act_relu(j); }

static bool add_norm(join *j)
{
  const args_layer_norm *from = AMP_ARGS(join_node(j, 0), layer_norm);
  args_add_layer_norm *to = (args_add_layer_norm *)j->attrs;
  to->shape.n = from->shape.n;
  memcpy(to->shape.at, from->shape.at, sizeof to->shape.at);
  to->eps = from->eps;
  to->dtype = AMP_NONE;
  return join_same_size(j, join_value(j, 'x'), join_value(j, 'r')) && amp__is_float(join_value(j, 'x')->dtype)
         && amp__is_float(join_value(j, 'r')->dtype);
}

/* x * rsqrt(mean(x^2) + eps) over the last dimension */
static bool root_mean_square(join *j)
{
  const amp_graph_value *x = join_value(j, 'x'), *w = join_value(j, 'w');
  const amp_graph_node *mean = NULL;
  for (int i = 0; i < j->nnode; i++)
    if (join_node(j, i)->op == AMP_OP_mean) mean = join_node(j, i);
  const args_mean *args = AMP_ARGS(mean, mean);
  int64_t last = x->ndim;
  if (!args->keepdim || AMP_GIVEN(args->dtype) || args->dim.n != 1
      || (args->dim.at[0] != last && args->dim.at[0] != -1))
    return false;
  if (x->ndim < 1 || w->ndim != 1 || w->size[0] != x->size[x->ndim - 1] || x->dtype != w->dtype
      || (x->dtype != AMP_FLOAT32 && x->dtype != AMP_FLOAT64))
    return false;
  args_rms_norm *to = (args_rms_norm *)j->attrs;
  to->shape.n = 1;
  to->shape.at[0] = w->size[0];
  to->eps = join_number(j, 'E');
  return to->eps >= 0;
}

/* -- Attention ----------------------------------------------------------------------------------- */

static bool last_dim(int64_t dim, int ndim) { return dim == -1 || dim == ndim; }

static bool turns_last(const amp_graph_node *n, int ndim)
{
  const args_transpose *args = AMP_ARGS(n, transpose);
  int64_t a = args->dim0 < 0 ? args->dim0 + ndim : args->dim0 - 1,
          b = args->dim1 < 0 ? args->dim1 + ndim : args->dim1 - 1;
  return (a == ndim - 1 && b == ndim - 2) || (a == ndim - 2 && b == ndim - 1);
}

/* Does the mask (of the scores' dtype, or bool) broadcast to them? */
static bool mask_fits(const join *j, const amp_graph_value *scores)
{
  if (!j->bound[0]['m' - 'a']) return true;
  const amp_graph_value *m = join_value(j, 'm');
  if (m->ndim > scores->ndim) return false;
  for (int d = 0; d < m->ndim; d++)
    if (m->size[d] != 1 && m->size[d] != scores->size[d + scores->ndim - m->ndim]) return false;
  return m->dtype == AMP_BOOL || m->dtype == AMP_FLOAT32 || m->dtype == join_value(j, 'q')->dtype;
}

/* Numbers that stand for "left out" */
static bool lowest(double value) { return value == -INFINITY; }

static bool attention(join *j)
{
  const amp_graph_value *q = join_value(j, 'q'), *k = join_value(j, 'k'), *v = join_value(j, 'v'), *scores = NULL;
  args_scaled_dot_product_attention *to = (args_scaled_dot_product_attention *)j->attrs;
  to->scale = j->bound[1]['S' - 'A'] ? join_number(j, 'S') : j->bound[1]['D' - 'A'] ? 1 / join_number(j, 'D') : 1;
  if (q->ndim < 2 || k->ndim < 2 || v->ndim < 2 || q->dtype != k->dtype || q->dtype != v->dtype
      || !amp__is_float(q->dtype))
    return false;
  for (int i = 1; i < j->nnode; i++) {
    const amp_graph_node *n = join_node(j, i);
    if (n->op == AMP_OP_matmul) scores = pass_value(j->pass, n->out[0]);
    else if (n->op == AMP_OP_transpose && !turns_last(n, k->ndim)) return false;
    else if (n->op == AMP_OP_masked_fill && !lowest(AMP_ARGS(n, masked_fill)->value)) return false;
    else if (n->op == AMP_OP_dropout) to->dropout_p = AMP_ARGS(n, dropout)->training ? AMP_ARGS(n, dropout)->p : 0;
    else if (n->op == AMP_OP_softmax
             && (AMP_GIVEN(AMP_ARGS(n, softmax)->dtype)
                 || !last_dim(AMP_ARGS(n, softmax)->dim, pass_value(j->pass, n->out[0])->ndim)))
      return false;
  }
  if (j->bound[1]['N' - 'A'] && !lowest(join_number(j, 'N'))) return false;
  return scores != NULL && isfinite(to->scale) && mask_fits(j, scores) && to->dropout_p < 1;
}

static bool attention_filled(join *j) { return join_value(j, 'm')->dtype == AMP_BOOL && attention(j); }

static bool attention_added(join *j) { return amp__is_float(join_value(j, 'm')->dtype) && attention(j); }

/* -- Losses ------------------------------------------------------------------------------------------ */

static bool cross_entropy(join *j)
{
  const args_nll_loss *from = AMP_ARGS(join_node(j, 0), nll_loss);
  const args_log_softmax *soft = AMP_ARGS(join_node(j, 1), log_softmax);
  const amp_graph_value *x = join_value(j, 'x');
  args_cross_entropy *to = (args_cross_entropy *)j->attrs;
  int64_t dim = soft->dim < 0 ? soft->dim + x->ndim + 1 : soft->dim, classes = x->ndim >= 2 ? 2 : 1;
  if (AMP_GIVEN(soft->dtype) || dim != classes || amp__is_float(join_value(j, 't')->dtype)) return false;
  to->reduction = from->reduction;
  to->ignore_index = from->ignore_index;
  return true;
}

/* -- The table ------------------------------------------------------------------------------------------ */

#define SCALED "mul(matmul(q, transpose*(k)), S)"
#define DIVIDED "div(matmul(q, transpose*(k)), D)"
#define BEFORE "matmul(mul(q, S), transpose*(k))"
#define PLAIN "matmul(q, transpose*(k))"
#define ATTENTION(scores, mask, fits)                                                                            \
  { "matmul(softmax*(" scores "), v)", "scaled_dot_product_attention(q, k, v" mask ")", fits, JOIN_GPU },        \
  {                                                                                                              \
    "matmul(dropout*(softmax*(" scores ")), v)", "scaled_dot_product_attention(q, k, v" mask ")", fits, JOIN_GPU \
  }
#define MASKED(scores)                                                                \
  ATTENTION("add(" scores ", m)", ", m", attention_added),                            \
      ATTENTION("masked_fill*(" scores ", m)", ", logical_not(m)", attention_filled), \
      ATTENTION("where(m, " scores ", N)", ", m", attention_filled), ATTENTION(scores, "", attention)
#define NORM "batch_norm*(x, m?, v?, w?, b?)"
#define NORM_ACT(residual) "batch_norm_act*(x, " residual ", m?, v?, w?, b?, c?)"
#define RMS(squares)                                                                              \
  {                                                                                               \
    "mul(mul(x, rsqrt(add(mean*(" squares "), E))), w)", "rms_norm(x, w)", root_mean_square, BOTH \
  }
#define HALF "mul(x, 0.5)"

enum { BOTH = JOIN_CPU | JOIN_GPU };

const join_row graph_join_rows[] = {
  /* On a CPU the matrix of scores is quicker, in backward by a third. */
  MASKED(SCALED),
  MASKED(DIVIDED),
  MASKED(BEFORE),
  MASKED(PLAIN),
  { "relu(linear(x, w, b?))", "linear_act(x, w, b)", with_relu, BOTH | JOIN_LEAN },
  { "gelu*(linear(x, w, b?))", "linear_act(x, w, b)", with_gelu, BOTH | JOIN_LEAN },
  { "add(linear(x, w), b)", "linear(x, w, b)", linear_bias, BOTH | JOIN_REGION },
  { "add(matmul(x, t(w)), b)", "linear(x, w, b)", turned_bias, BOTH | JOIN_REGION },
  { "add(matmul(x, transpose*(w)), b)", "linear(x, w, b)", turned_bias, BOTH | JOIN_REGION },
  { "add(conv1d*(x, w), b)", "conv1d(x, w, flatten(b))", conv_bias, BOTH | JOIN_REGION },
  { "add(conv2d*(x, w), b)", "conv2d(x, w, flatten(b))", conv_bias, BOTH | JOIN_REGION },
  { "add(conv3d*(x, w), b)", "conv3d(x, w, flatten(b))", conv_bias, BOTH | JOIN_REGION },
  { "relu(add(" NORM ", r))", "batch_norm_act(x, r, m, v, w, b)", norm_add_relu, BOTH | JOIN_LEAN },
  { "relu(" NORM ")", "batch_norm_act(x, r, m, v, w, b)", norm_relu, BOTH | JOIN_LEAN },
  { "relu(add(" NORM_ACT("q?") ", r))", "batch_norm_act(x, r, m, v, w, b, c)", act_add_relu, BOTH | JOIN_LEAN },
  { "relu(" NORM_ACT("r?") ")", "batch_norm_act(x, r, m, v, w, b, c)", act_relu, BOTH | JOIN_LEAN },
  /* one pass over memory on a GPU; a CPU's row is made of the two kernels */
  { "layer_norm*(add!(x, r), w?, b?)", "add_layer_norm(x, r, w, b)", add_norm, JOIN_GPU },
  RMS("square(x)"),
  RMS("mul(x, x)"),
  RMS("pow(x, 2)"),
  { "nll_loss*(log_softmax*(x), t, w?)", "cross_entropy(x, t, w)", cross_entropy, BOTH },
  { "mul(x, sigmoid(x))", "silu(x)", NULL, BOTH },
  { "mul(" HALF ", add(erf(mul(x, 0.70710678)), 1))", "gelu(x)", NULL, BOTH },
  { "mul(" HALF ", add(erf(div(x, 1.41421356)), 1))", "gelu(x)", NULL, BOTH },
  { "mul(mul(x, add(erf(mul(x, 0.70710678)), 1)), 0.5)", "gelu(x)", NULL, BOTH },
  { "mul(mul(x, add(erf(div(x, 1.41421356)), 1)), 0.5)", "gelu(x)", NULL, BOTH },
  { "mul(" HALF ", add(tanh(mul(add(x, mul(mul(mul(x, x), x), 0.044715)), 0.79788456)), 1))", "gelu(x)", tanh_gelu,
    BOTH },
};
const int graph_join_count = (int)(sizeof graph_join_rows / sizeof *graph_join_rows);
