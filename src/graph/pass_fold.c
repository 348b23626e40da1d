/*
** graph/pass_fold.c: batch norm in eval mode goes into the convolution or the linear layer before it.
**
**   bn(conv(x, w, b)) = conv(x, w * s, (b - mean) * s + beta)    s = gamma / sqrt(var + eps)
**
** What makes the new weight and bias are nodes like others: they depend on parameters and buffers alone, so their
** results are kept between runs (graph/kept.c), and a run that wants gradients records them.
*/
#include <stdlib.h>
#include "graph/pass.h"

typedef struct fold {
  graph_pass *pass;
  int product, norm; /* nodes */
  double place;
  int rc;
  /* values, -1: absent */
  int32_t weight, bias, mean, var, gamma, beta, residual;
  bool relu;
  double eps;
  int channel; /* dimension of the weight that is the result's channels, from 0 */
} fold;

/* -- Matching ------------------------------------------------------------------------- */

static int32_t operand(const amp_graph_node *n, int i) { return i < n->nin ? n->in[i] : -1; }

/* Is the node a batch norm in eval mode? */
static bool read_norm(fold *f, const amp_graph_node *n)
{
  int from;
  if (n->op == AMP_OP_batch_norm || n->op == AMP_OP_sync_batch_norm) {
    const args_batch_norm *args = AMP_ARGS(n, batch_norm); /* the other's are the same */
    if (args->training) return false;
    f->eps = args->eps;
    f->relu = false;
    f->residual = -1;
    from = 1;
  } else if (n->op == AMP_OP_batch_norm_act) {
    const args_batch_norm_act *args = AMP_ARGS(n, batch_norm_act);
    if (args->training) return false;
    f->eps = args->eps;
    f->relu = args->relu != 0;
    f->residual = operand(n, 1);
    from = 2;
  } else return false;
  f->mean = operand(n, from);
  f->var = operand(n, from + 1);
  f->gamma = operand(n, from + 2);
  f->beta = operand(n, from + 3);
  return n->flags == 0 && f->mean >= 0 && f->var >= 0;
}

/* Is it a product whose result has its channels in dimension 2? */
static bool read_product(fold *f, const amp_graph_node *n)
{
  const graph_pass *p = f->pass;
  int spatial = 0;
  f->channel = 0;
  switch (n->op) {
  case AMP_OP_linear: break;
  case AMP_OP_conv1d: spatial = 1; break;
  case AMP_OP_conv2d: spatial = 2; break;
  case AMP_OP_conv3d: spatial = 3; break;
  case AMP_OP_conv_transpose1d:
    spatial = 1;
    if (AMP_ARGS(n, conv_transpose1d)->groups != 1) return false;
    break;
  case AMP_OP_conv_transpose2d:
    spatial = 2;
    if (AMP_ARGS(n, conv_transpose2d)->groups != 1) return false;
    break;
  case AMP_OP_conv_transpose3d:
    spatial = 3;
    if (AMP_ARGS(n, conv_transpose3d)->groups != 1) return false;
    break;
  default: return false;
  }
  if (n->op == AMP_OP_conv_transpose1d || n->op == AMP_OP_conv_transpose2d || n->op == AMP_OP_conv_transpose3d)
    f->channel = 1;
  f->weight = operand(n, 1);
  f->bias = operand(n, 2);
  return n->flags == 0 && f->weight >= 0 && pass_value(p, n->out[0])->ndim == spatial + 2;
}

static bool fits(const fold *f, const bool *held)
{
  const graph_pass *p = f->pass;
  const amp_graph_node *product = &p->graph->nodes[f->product], *norm = &p->graph->nodes[f->norm];
  const int32_t read[6] = { f->weight, f->bias, f->mean, f->var, f->gamma, f->beta };
  if (!pass_only_user(p, product->out[0], f->norm) || !pass_same_modes(product, norm)) return false;
  if (pass_value(p, product->out[0])->dtype != pass_value(p, norm->out[0])->dtype) return false;
  for (int i = 0; i < 6; i++)
    if (read[i] >= 0 && !held[read[i]]) return false;
  for (int i = 0; i < product->nin; i++)
    if (product->in[i] >= 0 && !pass_unwritten(p, product->in[i], f->product, f->norm)) return false;
  return true;
}

/* -- Building --------------------------------------------------------------------------- */

static const amp_graph_value *info(const fold *f, int32_t value) { return &f->pass->graph->values[value].info; }

static int32_t call(fold *f, int op, int32_t a, int32_t b, const amp_slot *attrs, amp_graph_value result)
{
  int32_t in[2] = { a, b };
  if (f->rc < 0) return -1;
  f->rc = pass_add(f->pass, op, in, b >= 0 ? 2 : 1, attrs, f->place, f->norm, &result);
  return f->rc;
}

static int32_t cast(fold *f, int32_t value, int dtype)
{
  amp_slot attrs[AMP_MAX_SLOT] = { { 0 } };
  if (f->rc < 0 || value < 0 || info(f, value)->dtype == dtype) return value;
  amp_graph_value result = *info(f, value);
  result.dtype = (uint8_t)dtype;
  ((args_cast *)attrs)->dtype = dtype;
  return call(f, AMP_OP_cast, value, -1, attrs, result);
}

/* Of a parameter: 16 bits are too few to compute with. */
static int32_t wide(fold *f, int32_t value)
{
  return value >= 0 && amp__is_half(info(f, value)->dtype) ? cast(f, value, AMP_FLOAT32) : value;
}

static int32_t binary(fold *f, int op, int32_t a, int32_t b)
{
  if (f->rc < 0) return -1;
  amp_graph_value result = *info(f, a);
  if (info(f, b)->kind != AMP_G_NUMBER) result.dtype = (uint8_t)amp__promote(result.dtype, info(f, b)->dtype);
  return call(f, op, a, b, NULL, result);
}

/* gamma / sqrt(var + eps) */
static int32_t scale(fold *f)
{
  if ((f->rc = pass_add_number(f->pass, f->eps)) < 0) return -1;
  int32_t sum = binary(f, AMP_OP_add, wide(f, f->var), f->rc);
  int32_t root = f->rc < 0 ? -1 : call(f, AMP_OP_rsqrt, sum, -1, NULL, *info(f, sum));
  return f->gamma >= 0 ? binary(f, AMP_OP_mul, root, wide(f, f->gamma)) : root;
}

/* s along the weight's channels */
static int32_t beside_weight(fold *f, int32_t s)
{
  amp_slot attrs[AMP_MAX_SLOT] = { { 0 } };
  args_view *args = (args_view *)attrs;
  if (f->rc < 0) return -1;
  amp_graph_value result = *info(f, s);
  result.ndim = info(f, f->weight)->ndim;
  args->shape.n = result.ndim;
  for (int d = 0; d < result.ndim; d++) {
    result.size[d] = d == f->channel ? info(f, s)->size[0] : 1;
    args->shape.at[d] = result.size[d];
  }
  return call(f, AMP_OP_view, s, -1, attrs, result);
}

/* (b - mean) * s + beta */
static int32_t shift(fold *f, int32_t s)
{
  int32_t mean = wide(f, f->mean), from;
  if (f->rc < 0) return -1;
  if (f->bias >= 0) from = binary(f, AMP_OP_sub, wide(f, f->bias), mean);
  else from = call(f, AMP_OP_neg, mean, -1, NULL, *info(f, mean));
  from = binary(f, AMP_OP_mul, from, s);
  return f->beta >= 0 ? binary(f, AMP_OP_add, from, wide(f, f->beta)) : from;
}

/* The product with the new weight and bias; what follows a row batch_norm_act's norm comes after it. */
static void replace(fold *f, int32_t weight, int32_t bias)
{
  graph_pass *p = f->pass;
  amp_graph *g = p->graph;
  int32_t in[3] = { g->nodes[f->product].in[0], weight, bias };
  if (f->rc < 0) return;
  int op = g->nodes[f->product].op;
  bool added = f->residual >= 0;
  if (!added && !f->relu) {
    f->rc = pass_rewrite(p, f->norm, op, in, 3, g->nodes[f->product].attrs);
    return;
  }
  amp_graph_value result = *info(f, g->nodes[f->product].out[0]);
  amp_slot attrs[AMP_MAX_SLOT] = { { 0 } };
  memcpy(attrs, g->nodes[f->product].attrs, sizeof *attrs * (size_t)amp__ops[op].info.nslot);
  int32_t value = f->rc = pass_add(p, op, in, 3, attrs, f->place, f->norm, &result);
  if (f->rc >= 0 && added && f->relu) value = binary(f, AMP_OP_add, value, f->residual);
  if (f->rc < 0) return;
  int32_t last[2] = { value, f->residual };
  f->rc = pass_rewrite(p, f->norm, f->relu ? AMP_OP_relu : AMP_OP_add, last, f->relu ? 1 : 2, NULL);
}

static int build(fold *f)
{
  int dtype = info(f, f->weight)->dtype, bias_dtype = f->bias >= 0 ? info(f, f->bias)->dtype : dtype;
  f->place = f->pass->place[f->norm] - 0.5;
  int32_t s = scale(f), weight = -1, bias = -1;
  int32_t beside = beside_weight(f, s);
  if (f->rc >= 0) weight = cast(f, binary(f, AMP_OP_mul, wide(f, f->weight), beside), dtype);
  if (f->rc >= 0) bias = cast(f, shift(f, s), bias_dtype);
  replace(f, weight, bias);
  if (f->rc >= 0) pass_kill(f->pass, f->product);
  return f->rc < 0 ? f->rc : 0;
}

int pass_fold(amp_graph *g)
{
  graph_pass p;
  int rc = pass_open(&p, g);
  if (rc < 0) return rc;
  bool *held = pass_held(&p);
  if (held == NULL) return pass_close(&p, AMP_E_MEMORY);
  for (int k = 0; rc == 0 && k < p.nnode; k++) {
    fold f = { .pass = &p, .norm = k };
    const amp_graph_node *norm = &g->nodes[k];
    if (norm->op < 0 || norm->nin < 1 || norm->in[0] < 0 || norm->in[0] >= p.nvalue || !read_norm(&f, norm)) continue;
    f.product = pass_value(&p, norm->in[0])->node;
    if (f.product < 0 || p.dead[f.product] || p.sized[f.product] || p.sized[k]) continue;
    if (read_product(&f, &g->nodes[f.product]) && fits(&f, held)) rc = build(&f);
  }
  free(held);
  return pass_close(&p, rc);
}
