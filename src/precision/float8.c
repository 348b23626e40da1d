/*
** precision/float8.c: regions of 8 bits. In one, `linear` and matrix products by a weight are run as float8_product,
*whose
** three products (forward, gradients of input and weight) cast their own operands; all else is the region of its base.
**
**   linear(x, w, b) -> view x as rows -> float8_product(rows, w, b) -> view
**
** float8_product is a row that calls others: float8_quantize for what has no copy, float8_mm for the product. Both have
** a kernel on each device; histories and copies are kept by precision/float8_layer.c. A product whose sizes are no
** multiples of 16 is left to the base.
*/
#include <stdlib.h>
#include "ops/matmul/matmul.h"
#include "autograd/shadow_list.h"
#include "precision/float8.h"
#include "precision/precision.h"

enum { UNIT = 16 }; /* sizes that 8-bit units take are multiples of this */

/* -- Operands in 8 bits ------------------------------------------------------------ */

typedef struct operand8 {
  amp_tensor *bits, *largest; /* in the pool */
} operand8;

static amp_tensor *counts_of(amp_float8_layer *layer, int kind)
{
  static const int64_t three = 3;
  if (layer == NULL || !amp__S->priv->float8_counts) return NULL;
  if (layer->counts[kind] == NULL)
    layer->counts[kind]
        = amp__keep(amp__op_full(0, AMP_FLOAT64, layer->leaf->device, layer->leaf->device_index, 1, &three));
  return layer->counts[kind];
}

/* kind: of whose history; window 0: its own largest value is the scale's */
static int quantize(amp_float8_layer *layer, int kind, const args_float8_product *args, amp_tensor *tensor, int format,
                    bool write, operand8 *made)
{
  amp_tensor *inputs[3] = { tensor, NULL, counts_of(layer, kind) }, *out[AMP_MAX_OUT] = { NULL };
  bool shift = false;
  int place = -1, window = 0;
  if (layer && kind < AMP_FLOAT8_HISTORIES && args->recipe == RECIPE_DELAYED) {
    window = (int)args->history;
    if ((place = amp__float8_place(layer, kind, llabs(args->step), window, write, &shift)) < -1) return place + 1;
    inputs[1] = layer->history[kind];
  }
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, format);
  amp__attrs_int(&attrs, args->recipe == RECIPE_BLOCK);
  amp__attrs_int(&attrs, shift ? -1 : place); /* the steps before this one have not moved yet */
  amp__attrs_int(&attrs, window);
  int status = amp__op_results(AMP_OP_float8_quantize, &attrs, 3, inputs, out);
  if (status == 0 && window && write && place >= 0) {
    amp_tensor *noted[2] = { inputs[1], out[2] };
    attrs = amp__attrs();
    amp__attrs_int(&attrs, shift);
    amp__attrs_int(&attrs, place);
    status = amp__dispatch(AMP_OP_float8_note, AMP_INPLACE, noted, 2, NULL, attrs.v);
  }
  if (status < 0) return status;
  amp__S->casts++;
  amp__S->priv->float8_casts++;
  made->bits = out[0];
  made->largest = out[1];
  return 0;
}

/* Which copy of the weight has the rows that `tensor`, the weight or its transpose, has; -1: it is neither. */
static int copy_index(const amp_float8_layer *layer, const amp_tensor *tensor)
{
  const amp_tensor *leaf = layer ? layer->leaf : NULL;
  if (leaf == NULL || leaf->ndim != 2 || leaf->storage != tensor->storage || leaf->offset != tensor->offset) return -1;
  for (int i = 0; i < 2; i++)
    if (tensor->size[0] == leaf->size[i] && tensor->size[1] == leaf->size[!i] && tensor->stride[0] == leaf->stride[i]
        && tensor->stride[1] == leaf->stride[!i])
      return i;
  return -1;
}

static bool may_keep(const amp_float8_layer *layer)
{
  return (layer->leaf->flags & (AMP_T_REQUIRES_GRAD | AMP_T_WEIGHT)) != 0 && amp__S->priv->capture == NULL;
}

static void forget_old(amp_float8_layer *layer, bool block)
{
  bool right = layer->block == block && layer->version == amp__version(layer->leaf)
               && (!amp__exposed(layer->leaf) || layer->epoch == amp__S->priv->region_epoch);
  for (int i = 0; i < 2 && !right; i++) {
    amp__free(layer->copy[i]);
    amp__free(layer->largest[i]);
    layer->copy[i] = layer->largest[i] = NULL;
  }
  layer->block = block;
  layer->version = amp__version(layer->leaf);
  layer->epoch = amp__S->priv->region_epoch;
}

/* a, by rows, in rows along its other dimension */
static amp_tensor *turned(amp_tensor *a)
{
  amp_tensor *t = a ? amp__op_transpose(a, 0, 1) : NULL;
  return t && t->device != AMP_CPU ? amp__op_contiguous(t) : t; /* units there want rows */
}

/* One cast for each version serves both directions, as transposes: pieces of rows alone need one for each. */
static int weight_copy(amp_float8_layer *layer, const args_float8_product *args, amp_tensor *weight, operand8 *made)
{
  int at = copy_index(layer, weight), status;
  bool block = args->recipe == RECIPE_BLOCK;
  if (at < 0 || !may_keep(layer)) return quantize(layer, AMP_FLOAT8_WEIGHT, args, weight, AMP_FLOAT8_E4M3, false, made);
  forget_old(layer, block);
  if (layer->copy[at]) amp__S->cached_casts++;
  else if (!block && layer->copy[!at]) {
    if ((layer->copy[at] = amp__keep(turned(layer->copy[!at]))) == NULL) return amp__err();
    layer->largest[at] = amp__keep(layer->largest[!at]);
    amp__S->cached_casts++;
  } else {
    status = quantize(layer, AMP_FLOAT8_WEIGHT, args, weight, AMP_FLOAT8_E4M3, false, made);
    if (status < 0) return status;
    layer->copy[at] = amp__keep(made->bits);
    layer->largest[at] = amp__keep(made->largest);
  }
  made->bits = amp__pooled(amp__keep(layer->copy[at]));
  made->largest = amp__pooled(amp__keep(layer->largest[at]));
  return 0;
}

/* An optimizer has stepped the weight: copies of it that are in use are made anew, as its 16-bit copy is. Where memory
** lacks, the next use makes them. */
void amp__float8_stepped(amp_tensor *leaf)
{
  amp_state *state = amp__S;
  bool took = amp__float8_lock();
  amp_float8_layer *layer = leaf->ag->float8;
  bool used[2] = { layer->copy[0] != NULL, layer->copy[1] != NULL };
  if ((used[0] || used[1]) && may_keep(layer) && !amp__exposed(leaf)) {
    args_float8_product args = { .recipe = layer->block ? RECIPE_BLOCK : RECIPE_CURRENT };
    amp_error before = state->err;
    amp__plain plain = amp__plain_begin();
    int mark = amp__pool_mark(), status = 0;
    operand8 made;
    for (int i = 0; i < 2 && status == 0; i++) {
      amp_tensor *rows = !used[i] ? NULL : i ? amp__op_transpose(leaf, 0, 1) : leaf;
      if (rows) status = weight_copy(layer, &args, rows, &made);
    }
    if (status < 0) state->err = before;
    amp__pool_release(mark);
    amp__plain_end(plain);
  }
  amp__float8_unlock(took);
}

/* -- The product ------------------------------------------------------------------------ */

static int product(amp_call *call, amp_float8_layer *layer)
{
  const args_float8_product *args = AMP_ARGS(call, float8_product);
  amp_tensor *input = call->in[0], *other = call->in[1];
  bool write = args->layer != 0 && args->step > 0;
  operand8 a = { NULL, NULL }, b = { NULL, NULL };
  int status = 0;
  switch (args->role) {
  case ROLE_FORWARD:
    status = quantize(layer, AMP_FLOAT8_INPUT, args, input, (int)args->input_format, write, &a);
    if (status == 0) status = weight_copy(layer, args, other, &b);
    break;
  case ROLE_INPUT:
    status = quantize(layer, AMP_FLOAT8_GRADIENT, args, input, (int)args->input_format, write, &a);
    if (status == 0) status = weight_copy(layer, args, other, &b);
    break;
  case ROLE_WEIGHT:
    status = quantize(layer, AMP_FLOAT8_GRADIENT, args, input, (int)args->input_format, write, &a);
    if (status == 0) status = quantize(layer, AMP_FLOAT8_INPUT, args, other, (int)args->other_format, false, &b);
    break;
  default:
    status = quantize(NULL, AMP_FLOAT8_WEIGHT, args, input, (int)args->input_format, false, &a);
    if (status == 0) status = quantize(NULL, AMP_FLOAT8_WEIGHT, args, other, (int)args->other_format, false, &b);
  }
  if (status < 0) return status;
  amp_tensor *inputs[5] = { a.bits, b.bits, a.largest, b.largest, call->nin > 2 ? call->in[2] : NULL };
  amp_tensor *out[AMP_MAX_OUT] = { call->out[0] };
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, args->base);
  return amp__dispatch(AMP_OP_float8_mm, AMP_OUT, inputs, 5, out, attrs.v);
}

int amp__cpu_float8_product(amp_call *call)
{
  const args_float8_product *args = AMP_ARGS(call, float8_product);
  bool took = args->layer && amp__float8_lock();
  amp__plain plain = amp__plain_begin();
  int mark = amp__pool_mark();
  int status = product(call, args->layer ? amp__float8_layer_find(args->layer) : NULL);
  amp__pool_release(mark);
  amp__plain_end(plain);
  amp__float8_unlock(took);
  return status;
}

/* input @ other^T in another role, with the attributes of the product that it is a derivative of. */
static amp_tensor *part(const amp_bwd *bwd, amp_tensor *input, amp_tensor *other, int64_t role, int64_t input_format,
                        int64_t other_format)
{
  args_float8_product args = *AMP_ARGS(bwd, float8_product);
  amp_tensor *inputs[3] = { input, other, NULL };
  amp_attrs attrs = amp__attrs();
  if (input == NULL || other == NULL) return NULL;
  args.role = role;
  args.input_format = input_format;
  args.other_format = other_format;
  if (role == ROLE_OTHER) args.layer = 0;
  amp__attrs_all(&attrs, &args);
  return amp__op(AMP_OP_float8_product, &attrs, 3, inputs);
}

static amp_tensor *multiply(const operand8 *a, const operand8 *b, int64_t base)
{
  amp_tensor *inputs[5] = { a->bits, b->bits, a->largest, b->largest, NULL };
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, base);
  return amp__op(AMP_OP_float8_mm, &attrs, 5, inputs);
}

static int input_back(amp_bwd *bwd, amp_float8_layer *layer, const operand8 *gradient)
{
  const args_float8_product *args = AMP_ARGS(bwd, float8_product);
  amp_tensor *weight = amp__op_transpose(INPUT(bwd, 1), 0, 1);
  operand8 b;
  int status = weight ? weight_copy(layer, args, weight, &b) : amp__err();
  return status < 0 ? status : INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, multiply(gradient, &b, args->base)));
}

/* Where the gradient has one scale, its cast for the other product is this one, transposed. */
static int weight_back(amp_bwd *bwd, amp_float8_layer *layer, operand8 gradient, bool made, bool write)
{
  const args_float8_product *args = AMP_ARGS(bwd, float8_product);
  amp_tensor *input = amp__op_transpose(INPUT(bwd, 0), 0, 1);
  operand8 b;
  int status = 0;
  if (made) OR_FAIL(gradient.bits = turned(gradient.bits));
  else {
    amp_tensor *grad = amp__op_transpose(GRAD(bwd), 0, 1);
    status = grad ? quantize(layer, AMP_FLOAT8_GRADIENT, args, grad, AMP_FLOAT8_E5M2, write, &gradient) : amp__err();
  }
  if (status == 0)
    status = input ? quantize(layer, AMP_FLOAT8_INPUT, args, input, (int)args->input_format, false, &b) : amp__err();
  return status < 0 ? status : INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, multiply(&gradient, &b, args->base)));
}

/* Of a forward product, where nothing is recorded. */
static int plain_back(amp_bwd *bwd, amp_float8_layer *layer)
{
  const args_float8_product *args = AMP_ARGS(bwd, float8_product);
  bool write = args->layer != 0 && args->step > 0, made = false;
  operand8 gradient = { NULL, NULL };
  int status = 0;
  if (NEEDS(bwd, 0)) {
    status = quantize(layer, AMP_FLOAT8_GRADIENT, args, GRAD(bwd), AMP_FLOAT8_E5M2, write, &gradient);
    made = args->recipe != RECIPE_BLOCK;
    if (status == 0) status = input_back(bwd, layer, &gradient);
  }
  if (status == 0 && NEEDS(bwd, 1)) status = weight_back(bwd, layer, gradient, made, write);
  return status;
}

/* Each of the two products casts its operands along the dimension that it sums; those of a gradient are e5m2. */
int amp__bwd_float8_product(amp_bwd *bwd)
{
  const args_float8_product *args = AMP_ARGS(bwd, float8_product);
  bool forward = args->role == ROLE_FORWARD;
  amp_tensor *grad = GRAD(bwd), *made;
  int status = 0;
  if (!grad) return 0;
  if (forward && !bwd->create_graph) {
    bool took = args->layer && amp__float8_lock();
    status = plain_back(bwd, args->layer ? amp__float8_layer_find(args->layer) : NULL);
    amp__float8_unlock(took);
    return status == 0 && amp__has(bwd, 2) && NEEDS(bwd, 2) ? INPUT_GRAD(bwd, 2, amp__op_to_input(bwd, 2, grad))
                                                            : status;
  }
  if (NEEDS(bwd, 0)) {
    OR_FAIL(made = part(bwd, grad, amp__op_transpose(INPUT(bwd, 1), 0, 1), forward ? ROLE_INPUT : ROLE_OTHER,
                        AMP_FLOAT8_E5M2, args->other_format));
    status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, made));
  }
  if (status == 0 && NEEDS(bwd, 1)) {
    OR_FAIL(made = part(bwd, amp__op_transpose(grad, 0, 1), amp__op_transpose(INPUT(bwd, 0), 0, 1),
                        forward ? ROLE_WEIGHT : ROLE_OTHER, AMP_FLOAT8_E5M2, args->input_format));
    status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, made));
  }
  if (status == 0 && amp__has(bwd, 2) && NEEDS(bwd, 2)) status = INPUT_GRAD(bwd, 2, amp__op_to_input(bwd, 2, grad));
  return status;
}

/* -- Which ops ------------------------------------------------------------------------------ */

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
  amp_tensor *inputs[3] = { x->ndim == 2 ? x : amp__op_view(x, 2, rows), weight, bias };
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
  amp_attrs attrs = amp__attrs();
  amp__attrs_all(&attrs, &args);
  amp_tensor *y = amp__op(AMP_OP_float8_product, &attrs, 3, inputs);
  if (y == NULL) return NULL;
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
