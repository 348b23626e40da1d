/*
** precision/float8_ops.c: which ops a region of 8 bits takes: `linear` and matrix products by a weight become
** float8_product (precision/float8.c); and how backward is to have the input of one again, so that an activation is not
** kept in 16 bits for that alone.
*/
#include "autograd/shadow_list.h"
#include "ops/matmul/matmul.h"
#include "precision/float8.h"
#include "precision/precision.h"

enum { UNIT = 16 }; /* sizes that 8-bit units take are multiples of this */

bool amp__float8_wanted(const amp_call *call)
{
  const amp_tensor *first = call->in[0];
  return call->flags == 0 && call->nin >= 2 && first && amp__float8_recipe(&amp__S->autocast[first->device]);
}

static bool eligible(const amp_tensor *tensor)
{
  return tensor && !(tensor->flags & AMP_T_NUMBER) && (tensor->dtype == AMP_FLOAT32 || amp__is_half(tensor->dtype));
}

static bool divides(int64_t size) { return size > 0 && size % UNIT == 0; }

/* rows, summed, columns: each a multiple of what units take */
static bool sizes_fit(const amp_tensor *x, int64_t columns)
{
  return x->ndim > 1 && divides(amp__count(x->ndim - 1, x->size)) && divides(x->size[x->ndim - 1]) && divides(columns);
}

/* The weight that tensor is, or is the transpose of, NULL: none. */
static amp_tensor *weight_of(amp_tensor *tensor)
{
  if (tensor->ndim != 2) return NULL;
  if (!(tensor->flags & AMP_T_HISTORY)) return tensor->flags & AMP_T_REQUIRES_GRAD ? tensor : NULL;
  amp_tensor *base = tensor->flags & AMP_T_VIEW && tensor->ag ? tensor->ag->base : NULL;
  bool turned = base && base->ndim == 2 && base->flags & AMP_T_REQUIRES_GRAD && base->offset == tensor->offset
                && base->size[0] == tensor->size[1] && base->size[1] == tensor->size[0]
                && base->stride[0] == tensor->stride[1] && base->stride[1] == tensor->stride[0];
  return turned ? base : NULL;
}

static void log_cast(const amp_call *call, int argument, const amp_tensor *tensor, bool cached)
{
  if (amp__S->autocast[tensor->device].verbose & AMP_REGION_FLAG)
    amp__log("amp: %s: argument %d from %s to %s, %s%s", call->op->info.name, argument + 1,
             amp_dtype_name(tensor->dtype), amp_dtype_name(AMP_FLOAT8_E4M3), amp__shape_str(tensor->ndim, tensor->size),
             cached ? ", cached" : "");
}

/* How backward has an input again, and of what. */
typedef struct remade {
  int64_t again;
  double eps;
  amp_tensor *source, *gain, *offset;
} remade;

/* The rows of a tensor that is saved and has not changed; NULL without an error: it is none such. */
static amp_tensor *rows_of(const amp_saved *saved, const amp_tensor *x)
{
  amp_tensor *tensor = saved->tensor;
  if (tensor == NULL || saved->version != amp__version(tensor) || tensor->numel != x->numel
      || !(tensor->flags & AMP_T_CONTIGUOUS))
    return NULL;
  return amp__op_view(tensor, 2, x->size);
}

/* A gain or an offset: input i of the node that made x. false: it is not to be had again. */
static bool vector_of(const amp_node *node, int i, bool saved, const amp_tensor *x, amp_tensor **vector)
{
  *vector = NULL;
  if (i >= node->nin || amp__shape_of(node, i)->dtype == 0xff) return true;
  *vector = saved ? node->saved[i].tensor : node->edge[i].leaf;
  if (saved && *vector && node->saved[i].version != amp__version(*vector)) return false;
  return *vector && (*vector)->ndim == 1 && (*vector)->size[0] == x->size[1];
}

/* What a layer norm gave, of its input, or of its sum with a residual. */
static bool normalised(const amp_node *node, const amp_tensor *x, remade *how)
{
  bool sum = node->op == AMP_OP_add_layer_norm;
  const amp_slot *slots = node->attrs;
  how->again = AGAIN_LAYER_NORM;
  how->eps = sum ? ((const args_add_layer_norm *)slots)->eps : ((const args_layer_norm *)slots)->eps;
  const amp_tensor *saved = node->saved[sum ? node->nin + 1 : 0].tensor;
  if (saved == NULL || saved->ndim == 0 || saved->size[saved->ndim - 1] != x->size[1]) return false;
  if ((sum ? ((const args_add_layer_norm *)slots)->shape.n : ((const args_layer_norm *)slots)->shape.n) != 1)
    return false;
  if (x->dtype != saved->dtype && !(amp__is_half(x->dtype) && saved->dtype == AMP_FLOAT32)
      && !(amp__is_half(saved->dtype) && x->dtype == AMP_FLOAT32))
    return false;
  if (!vector_of(node, sum ? 2 : 1, true, x, &how->gain) || !vector_of(node, sum ? 3 : 2, false, x, &how->offset))
    return false;
  how->source = rows_of(&node->saved[sum ? node->nin + 1 : 0], x);
  return how->source != NULL;
}

/* How backward is to have x, a matrix: itself, where it is no activation or what made it keeps it; made again of
** what its maker keeps; else its 8-bit copy. */
static remade how_again(amp_tensor *x)
{
  remade none = { AGAIN_NONE, 0, NULL, NULL, NULL }, how = none;
  amp__refresh(x);
  const amp_node *node = x->flags & AMP_T_HISTORY && x->ag ? x->ag->node : NULL;
  int index = node ? x->ag->index : 0;
  while (node && node->op < AMP_OP_COUNT && amp__ops[node->op].info.kind == 'V') {
    index = node->edge[0].index;
    node = node->edge[0].node;
  }
  if (node == NULL) return none;
  const amp_saved *saved = node->nin + index < node->nsaved ? &node->saved[node->nin + index] : NULL;
  if (saved && saved->tensor && saved->tensor->storage == x->storage) return none;
  bool whole = x->flags & AMP_T_CONTIGUOUS
               && amp__count(amp__shape_of(node, node->nin + index)->ndim, amp__shape_of(node, node->nin + index)->size)
                      == x->numel;
  if (whole && node->op == AMP_OP_gelu && node->nsaved && (how.source = rows_of(&node->saved[0], x)) != NULL
      && how.source->dtype == x->dtype) {
    how.again = ((const args_gelu *)node->attrs)->approximate == APPROXIMATE_TANH ? AGAIN_GELU_TANH : AGAIN_GELU;
    return how;
  }
  if (whole && index == 0 && (node->op == AMP_OP_layer_norm || node->op == AMP_OP_add_layer_norm) && node->nsaved
      && normalised(node, x, &how))
    return how;
  how = none;
  how.again = AGAIN_KEPT;
  return how;
}

/* What a product keeps of x serves others of x, where the scale is x's own. */
static bool has_kept(const amp_tensor *x)
{
  const amp_ag *ag = x->ag;
  return ag && ag->kept8 && ag->kept8_version == amp__version(x) && ag->kept8->numel == x->numel && !amp__exposed(x)
         && (!amp__capturing || amp__capture_made(ag->kept8));
}

static void keep_for_others(amp_tensor *x, amp_tensor *bits, amp_tensor *largest)
{
  amp_ag *ag = x->ag;
  if (ag == NULL) return;
  amp__free(ag->kept8);
  amp__free(ag->kept8_largest);
  ag->kept8 = amp__keep(bits);
  ag->kept8_largest = amp__keep(largest);
  ag->kept8_version = amp__version(x);
}

/* x[..., K] @ weight[N,K]^T + bias: recorded, in the region's base; argument x_at of call is x. */
static amp_tensor *by_weight(const amp_call *call, amp_tensor *x, int x_at, amp_tensor *weight, amp_tensor *leaf,
                             amp_tensor *bias)
{
  amp_state *state = amp__S;
  const amp_autocast_state *region = &state->autocast[x->device];
  int64_t rows[2] = { amp__count(x->ndim - 1, x->size), x->size[x->ndim - 1] }, size[AMP_MAX_DIM];
  int64_t cached = state->cached_casts;
  if (bias && bias->dtype != region->dtype && (bias = amp__pooled(amp__cast(bias, region->dtype))) == NULL) return NULL;
  bool took = leaf && amp__float8_lock();
  bool missing = leaf && amp__float8_layer_of(leaf) == NULL;
  amp__float8_unlock(took);
  if (missing) return NULL;
  amp_tensor *inputs[6] = { x->ndim == 2 ? x : amp__op_view(x, 2, rows), weight, bias, NULL, NULL, NULL };
  if (inputs[0] == NULL) return NULL;
  args_float8_product args = { .recipe = amp__float8_recipe(region) - AMP_FLOAT8_CURRENT,
                               .history = amp__float8_window(region),
                               .base = region->dtype,
                               .role = ROLE_FORWARD,
                               .input_format = AMP_FLOAT8_E4M3,
                               .other_format = AMP_FLOAT8_E4M3,
                               .layer = leaf ? leaf->id : 0,
                               .step = amp_float8_step(state) };
  if (!state->grad_mode) args.step = -args.step; /* what is read of the history stays as it is */
  if (state->grad_mode && args.recipe != RECIPE_BLOCK && weight->flags & (AMP_T_REQUIRES_GRAD | AMP_T_HISTORY)) {
    remade how = how_again(inputs[0]);
    if (how.again == AGAIN_KEPT && args.recipe == RECIPE_CURRENT && has_kept(x)) {
      how.again = AGAIN_SHARED;
      how.source = x->ag->kept8;
      how.gain = x->ag->kept8_largest;
    }
    args.again = how.again;
    args.eps = how.eps;
    inputs[3] = how.source;
    inputs[4] = how.gain;
    inputs[5] = how.offset;
  }
  amp_attrs attrs = amp__attrs();
  amp__attrs_all(&attrs, &args);
  amp_tensor *out[AMP_MAX_OUT], *y = NULL;
  if (amp__op_results(AMP_OP_float8_product, &attrs, 6, inputs, out) == 0) y = out[0];
  if (y == NULL) return NULL;
  if (args.again == AGAIN_KEPT) keep_for_others(x, out[2], out[1]);
  log_cast(call, x_at, x, false);
  log_cast(call, x_at == 0, weight, state->cached_casts > cached);
  if (x->ndim == 2) return y;
  memcpy(size, x->size, sizeof *size * (size_t)x->ndim);
  size[x->ndim - 1] = y->size[1];
  return amp__op_view(y, x->ndim, size);
}

/* -- linear, and an activation behind it ------------------------------------------------------ */

static bool linear_fits(const amp_call *call)
{
  const amp_tensor *x = call->in[0], *weight = call->in[1], *bias = call->nin > 2 ? call->in[2] : NULL;
  if (!eligible(x) || !eligible(weight) || (bias && !eligible(bias)) || weight->ndim != 2) return false;
  if (bias && (bias->ndim != 1 || bias->size[0] != weight->size[0])) return false;
  return x->ndim > 0 && x->size[x->ndim - 1] == weight->size[1] && sizes_fit(x, weight->size[0]);
}

static amp_tensor *linear8(amp_call *call)
{
  amp_tensor *weight = call->in[1], *leaf = weight->flags & AMP_T_HISTORY ? weight_of(weight) : weight;
  amp_tensor *y = by_weight(call, call->in[0], 0, weight, leaf, call->nin > 2 ? call->in[2] : NULL);
  if (call->id == AMP_OP_linear || y == NULL) return y;
  int64_t act = AMP_ARGS(call, linear_act)->act;
  if (act == ACT_RELU) return OP1(relu, y);
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, act == ACT_GELU_TANH ? APPROXIMATE_TANH : APPROXIMATE_NONE);
  return amp__op(AMP_OP_gelu, &attrs, 1, &y);
}

/* -- Matrix products --------------------------------------------------------------------------- */

/* Where the operands of a row begin, -1: it is no product of two matrices; and how many dimensions its name wants. */
static int operands_at(int op, int *ndim)
{
  *ndim = 0;
  switch (op) {
  case AMP_OP_matmul: return 0;
  case AMP_OP_mm: *ndim = 2; return 0;
  case AMP_OP_addmm: *ndim = 2; return 1;
  default: return -1;
  }
}

static bool addend_fits(amp_call *call, const amp_tensor *a, const amp_tensor *b)
{
  const amp_tensor *input = call->in[0];
  int64_t size[2] = { a->size[0], b->size[1] };
  if (!eligible(input) || input->ndim > 2) return false;
  for (int i = 0; i < input->ndim; i++)
    if (input->size[i] != 1 && input->size[i] != size[2 - input->ndim + i]) return false;
  return true;
}

/* a @ b, of which one is a weight; NULL without an error in *fits false: it is none of ours */
static amp_tensor *product8(amp_call *call, int at, int ndim, bool *fits)
{
  amp_tensor *a = call->in[at], *b = call->in[at + 1];
  *fits = false;
  if (!eligible(a) || !eligible(b) || a->ndim < 2 || b->ndim < 2 || (ndim && (a->ndim != ndim || b->ndim != ndim)))
    return NULL;
  if (a->size[a->ndim - 1] != b->size[b->ndim - 2]) return NULL;
  if (at && !addend_fits(call, a, b)) return NULL;
  amp_tensor *leaf = weight_of(b);
  if (leaf && sizes_fit(a, b->size[1])) {
    *fits = true;
    return by_weight(call, a, at, amp__op_transpose(b, 0, 1), leaf, NULL);
  }
  if ((leaf = weight_of(a)) == NULL || !divides(a->size[0]) || !divides(a->size[1])
      || !divides(amp__count(b->ndim, b->size) / a->size[1]))
    return NULL;
  *fits = true;
  amp_tensor *columns = amp__op_transpose(b, -2, -1);
  amp_tensor *y = columns ? by_weight(call, columns, at + 1, a, leaf, NULL) : NULL;
  return y ? amp__op_contiguous(amp__op_transpose(y, -2, -1)) : NULL;
}

static amp_tensor *added(amp_call *call, amp_tensor *y)
{
  const args_addmm *args = AMP_ARGS(call, addmm);
  amp_tensor *input = call->in[0];
  int base = amp__S->autocast[input->device].dtype;
  if (y == NULL) return NULL;
  if (input->dtype != base && (input = amp__pooled(amp__cast(input, base))) == NULL) return NULL;
  return amp__add_product(input, args->beta, args->alpha, y);
}

static int run(amp_call *call)
{
  int ndim, at = operands_at(call->id, &ndim);
  amp_tensor *y;
  bool fits;
  if (call->id == AMP_OP_linear || call->id == AMP_OP_linear_act) {
    if (!linear_fits(call)) return 0;
    y = linear8(call);
  } else {
    if (at < 0) return 0;
    y = product8(call, at, ndim, &fits);
    if (!fits) return 0;
    if (call->id == AMP_OP_addmm) y = added(call, y);
  }
  int status = amp__result(call, 0, y);
  call->done = status == 0;
  call->nout = 1;
  return status;
}

int amp__float8_run(amp_call *call)
{
  amp_state *state = amp__S;
  amp__plain plain = amp__plain_record(state, state->grad_mode);
  int mark = amp__pool_mark();
  uint32_t lost = state->priv->lost;
  int status = run(call);
  if (amp_unlikely(state->priv->lost != lost)) status = amp__whole(lost, status);
  amp__pool_release(mark);
  amp__plain_end(plain);
  return status;
}
