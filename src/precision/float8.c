/*
** precision/float8.c: products in 8 bits. In a region `linear` and matrix products by a weight are run as
** float8_product (precision/float8_ops.c), whose three products (forward, gradients of input and weight) cast their own
** operands.
**
** float8_product is a row that calls others: float8_quantize for what has no copy, float8_mm for the product. Both have
** a kernel on each device; histories and copies are kept by precision/float8_layer.c. Where a tensor has one scale, a
** cast serves two products: forward keeps the transposed bytes for the weight's gradient (or makes the input again, by
** the same scale, of what its maker keeps), and the gradient's go into both products of backward.
*/
#include <stdlib.h>
#include "autograd/derivative.h"
#include "autograd/shadow_list.h"
#include "autograd/tape.h"
#include "ops/matmul/float8.h"
#include "precision/float8.h"

/* -- Operands in 8 bits ------------------------------------------------------------ */

typedef struct operand8 {
  amp_tensor *bits, *largest, *turned; /* in the pool; turned: bits transposed, where it was asked for */
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

/* How quantize casts, beside the attributes of its product. */
typedef struct casting {
  int kind; /* of whose history */
  int format;
  bool write, both; /* the step gets a place in the history; the transposed copy is wanted, too */
  amp_tensor *into; /* of the bits; NULL: a tensor of their own */
  amp_tensor *by;   /* the largest value that the scale is of; NULL: as the recipe says */
  int function;     /* of the tensor, whose values are cast */
} casting;

static int quantize(amp_float8_layer *layer, casting how, const args_float8_product *args, amp_tensor *tensor,
                    operand8 *made)
{
  amp_tensor *inputs[4] = { tensor, NULL, counts_of(layer, how.kind), NULL }, *out[AMP_MAX_OUT] = { how.into };
  bool shift = false;
  int place = -1, window = 0; /* 0: its own largest value is the scale's */
  if (how.by) {
    inputs[1] = how.by;
    window = 1;
  } else if (layer && how.kind < AMP_FLOAT8_HISTORIES && args->recipe == RECIPE_DELAYED) {
    window = (int)args->history;
    if ((place = amp__float8_place(layer, how.kind, llabs(args->step), window, how.write, &shift)) < -1)
      return place + 1;
    inputs[1] = layer->history[how.kind];
  }
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, how.format);
  amp__attrs_int(&attrs, args->recipe == RECIPE_BLOCK);
  amp__attrs_int(&attrs, shift ? -1 : place); /* the steps before this one have not moved yet */
  amp__attrs_int(&attrs, window);
  amp__attrs_int(&attrs, how.both);
  amp__attrs_int(&attrs, how.function);
  int status;
  if (how.into) {
    status = amp__dispatch(AMP_OP_float8_quantize, AMP_OUT, inputs, 4, out, attrs.v);
    for (int i = 1; status == 0 && i < AMP_MAX_OUT; i++)
      if (out[i]) out[i] = amp__pooled(out[i]);
  } else status = amp__op_results(AMP_OP_float8_quantize, &attrs, 4, inputs, out);
  if (status == 0 && window && how.write && place >= 0) {
    amp_tensor *noted[2] = { inputs[1], out[2] };
    attrs = amp__attrs();
    amp__attrs_int(&attrs, shift);
    amp__attrs_int(&attrs, place);
    status = amp__dispatch(AMP_OP_float8_note, AMP_INPLACE, noted, 2, NULL, attrs.v);
  }
  if (status < 0) return status;
  amp__S->casts++;
  amp__S->priv->float8_casts++;
  made->bits = how.into ? how.into : out[0];
  made->largest = out[1];
  made->turned = out[3];
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

/* Makes copy `at` of the weight; both: the other one, too, where one scale serves both. */
static int make_copy(amp_float8_layer *layer, const args_float8_product *args, amp_tensor *weight, int at, bool both)
{
  operand8 made;
  casting how = { .kind = AMP_FLOAT8_WEIGHT, .format = AMP_FLOAT8_E4M3, .both = both && args->recipe != RECIPE_BLOCK };
  int status = quantize(layer, how, args, weight, &made);
  if (status < 0) return status;
  layer->copy[at] = amp__keep(made.bits);
  layer->largest[at] = amp__keep(made.largest);
  if (made.turned) {
    layer->copy[!at] = amp__keep(made.turned);
    layer->largest[!at] = amp__keep(made.largest);
  }
  return 0;
}

/* One cast for each version serves both directions, as transposes: pieces of rows alone need one for each. both: the
** other direction will be wanted. */
static int weight_copy(amp_float8_layer *layer, const args_float8_product *args, amp_tensor *weight, bool both,
                       operand8 *made)
{
  int at = copy_index(layer, weight), status;
  bool block = args->recipe == RECIPE_BLOCK;
  casting how = { .kind = AMP_FLOAT8_WEIGHT, .format = AMP_FLOAT8_E4M3 };
  if (at < 0 || !may_keep(layer)) return quantize(layer, how, args, weight, made);
  forget_old(layer, block);
  if (layer->copy[at]) amp__S->cached_casts++;
  else if (!block && layer->copy[!at]) {
    if ((layer->copy[at] = amp__keep(turned(layer->copy[!at]))) == NULL) return amp__err();
    layer->largest[at] = amp__keep(layer->largest[!at]);
    amp__S->cached_casts++;
  } else if ((status = make_copy(layer, args, weight, at, both && weight->device != AMP_CPU)) < 0) return status;
  made->bits = amp__pooled(amp__keep(layer->copy[at]));
  made->largest = amp__pooled(amp__keep(layer->largest[at]));
  made->turned = NULL;
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
      if (rows) status = weight_copy(layer, &args, rows, used[0] && used[1], &made);
    }
    if (status < 0) state->err = before;
    amp__pool_release(mark);
    amp__plain_end(plain);
  }
  amp__float8_unlock(took);
}

/* -- The product ------------------------------------------------------------------------ */

/* The input of a forward product; what backward has of it goes into the results. */
static int cast_input(amp_call *call, amp_float8_layer *layer, casting how, operand8 *made)
{
  const args_float8_product *args = AMP_ARGS(call, float8_product);
  amp_tensor *input = call->in[0], *pair[2] = { call->out[1], NULL };
  bool kept = args->again == AGAIN_KEPT;
  if (kept) {
    how.both = true;
    how.into = call->out[2];
    if ((input = amp__op_transpose(input, 0, 1)) == NULL) return amp__err();
  }
  if (args->again == AGAIN_SHARED) how.by = call->in[4];
  int status = quantize(layer, how, args, input, made);
  if (status < 0 || args->again == AGAIN_NONE || args->again == AGAIN_SHARED) return status;
  if (kept) made->bits = made->turned;
  pair[1] = made->largest;
  return amp__dispatch(AMP_OP_copy, AMP_INPLACE, pair, 2, NULL, NULL);
}

static int product(amp_call *call, amp_float8_layer *layer)
{
  const args_float8_product *args = AMP_ARGS(call, float8_product);
  amp_tensor *input = call->in[0], *other = call->in[1];
  casting how
      = { .kind = AMP_FLOAT8_GRADIENT, .format = (int)args->input_format, .write = args->layer != 0 && args->step > 0 },
      plain = { .kind = AMP_FLOAT8_WEIGHT, .format = (int)args->other_format };
  operand8 a = { NULL, NULL, NULL }, b = { NULL, NULL, NULL };
  int status = 0;
  switch (args->role) {
  case ROLE_FORWARD:
    how.kind = AMP_FLOAT8_INPUT;
    status = cast_input(call, layer, how, &a);
    if (status == 0) status = weight_copy(layer, args, other, args->step > 0, &b);
    break;
  case ROLE_INPUT:
    status = quantize(layer, how, args, input, &a);
    if (status == 0) status = weight_copy(layer, args, other, false, &b);
    break;
  case ROLE_WEIGHT:
    plain.kind = AMP_FLOAT8_INPUT;
    status = quantize(layer, how, args, input, &a);
    if (status == 0) status = quantize(layer, plain, args, other, &b);
    break;
  default:
    how.kind = AMP_FLOAT8_WEIGHT;
    how.write = false;
    status = quantize(NULL, how, args, input, &a);
    if (status == 0) status = quantize(NULL, plain, args, other, &b);
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
  args.again = AGAIN_NONE;
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
  int status = weight ? weight_copy(layer, args, weight, false, &b) : amp__err();
  return status < 0 ? status : INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, multiply(gradient, &b, args->base)));
}

/* The input made of its source, as it was. */
static amp_tensor *made_again(amp_bwd *bwd)
{
  const args_float8_product *args = AMP_ARGS(bwd, float8_product);
  const amp_shape *shape = SHAPE(bwd, 0);
  amp_tensor *inputs[3] = { INPUT(bwd, 3), NULL, NULL }, *out[AMP_MAX_OUT];
  amp_attrs attrs = amp__attrs();
  if (inputs[0] == NULL) return NULL;
  if (args->again != AGAIN_LAYER_NORM) {
    amp__attrs_int(&attrs, args->again == AGAIN_GELU_TANH ? APPROXIMATE_TANH : APPROXIMATE_NONE);
    return amp__op(AMP_OP_gelu, &attrs, 1, inputs);
  }
  for (int i = 1; i < 3; i++)
    if (amp__has(bwd, 3 + i) && (inputs[i] = INPUT(bwd, 3 + i)) == NULL) return NULL;
  if (shape->dtype == AMP_FLOAT32 && (inputs[0] = amp__op_cast(inputs[0], AMP_FLOAT32)) == NULL) return NULL;
  amp__attrs_list(&attrs, 1, &shape->size[1]);
  amp__attrs_float(&attrs, args->eps);
  return amp__op_results(AMP_OP_layer_norm, &attrs, 3, inputs, out) < 0 ? NULL : amp__op_cast(out[0], shape->dtype);
}

/* What this product or another one kept of the input. */
static int bytes_of(amp_bwd *bwd, amp_tensor **bits, amp_tensor **largest)
{
  bool shared = AMP_ARGS(bwd, float8_product)->again == AGAIN_SHARED;
  *bits = shared ? INPUT(bwd, 3) : OUTPUT(bwd, 2);
  *largest = !*bits ? NULL : shared ? INPUT(bwd, 4) : OUTPUT(bwd, 1);
  return *largest ? 0 : amp__err();
}

/* The input, transposed, as the weight's gradient takes it: kept from forward, made again by the scale of then, or cast
** now. */
static int input_again(amp_bwd *bwd, amp_float8_layer *layer, operand8 *made)
{
  const args_float8_product *args = AMP_ARGS(bwd, float8_product);
  casting how = { .kind = AMP_FLOAT8_INPUT, .format = (int)args->input_format };
  amp_tensor *input;
  if (args->again == AGAIN_KEPT || args->again == AGAIN_SHARED) return bytes_of(bwd, &made->bits, &made->largest);
  if (args->again != AGAIN_NONE) OR_FAIL(how.by = made->largest = OUTPUT(bwd, 1));
  switch (args->again) {
  case AGAIN_GELU: how.function = OF_GELU; break;
  case AGAIN_GELU_TANH: how.function = OF_GELU_TANH; break;
  default: break;
  }
  input = args->again == AGAIN_NONE ? INPUT(bwd, 0) : how.function ? INPUT(bwd, 3) : made_again(bwd);
  if (input) input = amp__op_transpose(input, 0, 1);
  return input ? quantize(layer, how, args, input, made) : amp__err();
}

/* Of a forward product, where nothing is recorded. Where the gradient has one scale, one cast serves both products. */
static int plain_back(amp_bwd *bwd, amp_float8_layer *layer)
{
  const args_float8_product *args = AMP_ARGS(bwd, float8_product);
  bool block = args->recipe == RECIPE_BLOCK, first = NEEDS(bwd, 0), second = NEEDS(bwd, 1);
  casting how = { .kind = AMP_FLOAT8_GRADIENT,
                  .format = AMP_FLOAT8_E5M2,
                  .write = args->layer != 0 && args->step > 0,
                  .both = first && second && !block };
  operand8 gradient = { NULL, NULL, NULL }, other;
  int status = 0;
  if (first) {
    status = quantize(layer, how, args, GRAD(bwd), &gradient);
    if (status == 0) status = input_back(bwd, layer, &gradient);
  }
  if (status < 0 || !second) return status;
  if (how.both) gradient.bits = gradient.turned;
  else {
    amp_tensor *grad = amp__op_transpose(GRAD(bwd), 0, 1);
    OR_FAIL(grad);
    status = quantize(layer, how, args, grad, &gradient);
  }
  if (status == 0) status = input_again(bwd, layer, &other);
  if (status < 0) return status;
  amp_tensor *made = multiply(&gradient, &other, args->base), *leaf = bwd->node->edge[1].leaf;
  bool stays = bwd->accumulates && leaf && leaf->dtype == AMP_FLOAT32 && leaf->ag && leaf->ag->hook == 0;
  if (stays) bwd->stays = 1u << 1;
  return INPUT_GRAD(bwd, 1, stays ? made : amp__op_to_input(bwd, 1, made));
}

/* What was kept of the input, divided by its scale. */
static amp_tensor *expanded(amp_bwd *bwd)
{
  amp_tensor *largest, *bits;
  amp_tensor *sums = bytes_of(bwd, &bits, &largest) < 0 ? NULL : OP2(float8_expand, bits, largest);
  if (sums == NULL) return NULL;
  amp_tensor *factor = amp__op_number(AMP_OP_mul, largest, 1 / amp__float8_most(bits->dtype));
  amp_tensor *values = factor ? OP2(mul, sums, factor) : NULL;
  return values ? amp__op_cast(amp__op_contiguous(amp__op_transpose(values, 0, 1)), SHAPE(bwd, 0)->dtype) : NULL;
}

/* The input with its history. */
static amp_tensor *input_of(amp_bwd *bwd)
{
  int64_t again = AMP_ARGS(bwd, float8_product)->again;
  if (again == AGAIN_NONE) return INPUT(bwd, 0);
  const amp_edge *edge = &bwd->node->edge[0];
  amp__plain plain = amp__plain_begin();
  amp_tensor *input = again == AGAIN_KEPT || again == AGAIN_SHARED ? expanded(bwd) : made_again(bwd);
  amp__plain_end(plain);
  return input && edge->node && amp__tie(input, edge->node, edge->index) < 0 ? NULL : input;
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
    OR_FAIL(made = part(bwd, amp__op_transpose(grad, 0, 1), amp__op_transpose(input_of(bwd), 0, 1),
                        forward ? ROLE_WEIGHT : ROLE_OTHER, AMP_FLOAT8_E5M2, args->input_format));
    status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, made));
  }
  if (status == 0 && amp__has(bwd, 2) && NEEDS(bwd, 2)) status = INPUT_GRAD(bwd, 2, amp__op_to_input(bwd, 2, grad));
  return status;
}
