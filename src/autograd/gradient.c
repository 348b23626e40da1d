/*
** autograd/gradient.c: the gradient a leaf owns, hooks, functions that live in Lua, and the
** gradient of one at which a backward begins.
**
** A gradient is a record (amp_grad): a value, maybe still in 16 bits as the
** cast of the weight left it, maybe with a factor (1/scale, clipping) pending
** in a float32 cell, and the check it last went through. Whoever looks at it
** gets one stable tensor of the leaf's dtype: it is materialised first, and
** from then on `visible`. Sums are made in the leaf's dtype, in place.
** What a check or a factor means is precision/scale.c's business.
*/
#include <math.h>
#include <stdlib.h>
#include "autograd/derivative.h"
#include "base/locks.h"
#include "autograd/gradient.h"
#include "autograd/tape.h"

/* -- Reading and writing -------------------------------------------------------- */

static void forget_check(amp_grad *grad)
{
  if (grad->check) amp__hooks.check_free(grad->check);
  grad->check = NULL;
}

void amp__grad_clear(amp_tensor *leaf)
{
  amp_ag *ag = leaf->ag;
  if (ag == NULL) return;
  if (amp_unlikely(amp__capturing)) amp__capture_gradient(leaf, true);
  amp__free(ag->grad.value);
  amp__free(ag->grad.factor);
  amp__free(ag->grad.scale);
  ag->grad.value = NULL;
  ag->grad.factor = NULL;
  ag->grad.scale = NULL;
  forget_check(&ag->grad);
  ag->grad.visible = 0;
  ag->grad.master = AMP_MASTER_NONE;
  ag->grad.origin = 0;
}

int amp__grad_adopt(amp_tensor *leaf, amp_tensor *value)
{
  amp_ag *ag = value || leaf->ag ? amp__ag(leaf) : NULL;
  if (ag == NULL) return value ? amp__S->err.code : 0;
  if (value) amp__retain(value);
  amp__grad_clear(leaf);
  ag->grad.value = value;
  return 0;
}

static bool same_layout(const amp_tensor *a, const amp_tensor *b)
{
  if (!amp__same_size(a, b)) return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->size[i] > 1 && a->stride[i] != b->stride[i]) return false;
  return true;
}

/* A tensor like the leaf (layout too, where it is dense), of dtype, not filled. Counted. */
static amp_tensor *like_leaf(const amp_tensor *leaf, int dtype)
{
  amp_meta meta;
  amp__meta_of(leaf, &meta);
  meta.dtype = (uint8_t)dtype;
  meta.strides = (leaf->flags & AMP_T_DENSE) != 0 && !(leaf->flags & AMP_T_CONTIGUOUS);
  return amp__tensor_new(&meta);
}

/* dst = src, converted; both of one shape. */
static int copy_into(amp_tensor *dst, amp_tensor *src)
{
  amp_tensor *inputs[2] = { dst, src };
  return amp__dispatch(AMP_OP_copy, AMP_INPLACE, inputs, 2, NULL, NULL);
}

static int inplace2(int op, amp_tensor *a, amp_tensor *b)
{
  amp_tensor *inputs[2] = { a, b };
  return amp__dispatch(op, AMP_INPLACE, inputs, 2, NULL, NULL);
}

int amp__grad_materialize(amp_tensor *leaf)
{
  if (leaf->ag == NULL || leaf->ag->grad.value == NULL) return 0;
  amp_grad *grad = &leaf->ag->grad;
  if (grad->factor == NULL && grad->value->dtype == leaf->dtype) return 0;
  int status = 0;
  bool valid = amp__check_valid(grad);
  int origin = amp__grad_origin(grad);
  amp__plain plain = amp__plain_begin();
  int mark = amp__pool_mark();
  amp_tensor *value = grad->value;
  if (value->dtype != leaf->dtype) {
    if ((value = like_leaf(leaf, leaf->dtype)) == NULL) {
      status = amp__S->err.code;
      goto out;
    }
    if ((status = copy_into(value, grad->value)) < 0) {
      amp__free(value);
      goto out;
    }
  }
  if (grad->factor && (status = inplace2(AMP_OP_mul, value, grad->factor)) < 0) {
    if (value != grad->value) amp__free(value);
    goto out;
  }
  if (value != grad->value) {
    amp__free(grad->value);
    grad->value = value;
  }
  amp__free(grad->factor);
  grad->factor = NULL;
  if (valid) grad->version = amp__version(value);
  amp__grad_from(grad, origin);
out:
  amp__pool_release(mark);
  amp__plain_end(plain);
  return status;
}

/* May v, of which we hold the only count, be the gradient itself? */
static bool may_own(const amp_tensor *leaf, const amp_tensor *v)
{
  return v->refs == 1 && atomic_load_explicit(&v->storage->refs, memory_order_relaxed) == 1 && v->offset == 0
         && (v->flags & AMP_T_DENSE) && !(v->storage->flags & (AMP_S_EXPOSED | AMP_S_FOREIGN)) && same_layout(leaf, v);
}

/* What amp__grad_accumulate does in create_graph, where the gradient has history itself, in the leaf's dtype. */
static int accumulate_recorded(amp_tensor *leaf, amp_tensor *value, int origin, amp_tensor *scale)
{
  amp_grad *grad = &leaf->ag->grad;
  int status = 0, mark = amp__pool_mark();
  amp_tensor *sum = value->dtype == leaf->dtype ? value : amp__op_cast(value, leaf->dtype);
  if (grad->value == NULL && sum == value && !may_own(leaf, value))
    sum = OP1(clone, value); /* others hold it: the gradient is the leaf's own */
  if (grad->value && sum && (status = amp__grad_materialize(leaf)) == 0) sum = OP2(add, grad->value, sum);
  if (status == 0 && sum == NULL) status = amp__S->err.code;
  if (status == 0) {
    amp__retain(sum);
    if (scale) amp__retain(scale);
    amp__grad_clear(leaf);
    grad->value = sum;
    grad->scale = scale;
    amp__grad_from(grad, origin);
  }
  amp__pool_release(mark);
  if (status == 0) amp__free(value);
  return status;
}

/* Is the leaf what a graph knows it as? amp_set_data may have given it other data since. */
static __attribute__((noinline)) bool lies_as(const amp_tensor *leaf, int ndim, const int64_t *size, int device,
                                              int index)
{
  return amp__is_float(leaf->dtype) && leaf->ndim == ndim && memcmp(leaf->size, size, sizeof *size * (size_t)ndim) == 0
         && leaf->device == device && leaf->device_index == index;
}

int amp__grad_fits(const amp_tensor *leaf, const amp_tensor *value)
{
  if (amp_likely(lies_as(leaf, value->ndim, value->size, value->device, value->device_index))) return 0;
  return amp__fail(AMP_E_STATE,
                   "a gradient (%s) comes for a leaf that is %s now: its data was replaced after it was used; call "
                   "backward before that",
                   amp__tensor_str(value), amp__tensor_str(leaf));
}

/* Add value (counted, any float dtype, the leaf's shape) to the leaf's gradient, and take it; what fails leaves
** value and the gradient's value as they are. may_keep: 16 bits may stay. */
int amp__grad_accumulate(amp_tensor *leaf, amp_tensor *value, bool may_keep)
{
  amp_ag *ag = amp__ag(leaf);
  int status = 0;
  if (ag == NULL) return amp__S->err.code;
  amp_grad *grad = &ag->grad;
  AMP_ASSERT(ag->self == leaf && value->refs > 0);
  if ((status = amp__grad_fits(leaf, value)) < 0) return status;
  AMP_ASSERT(amp__is_float(value->dtype));
  if (amp_unlikely(amp__capturing)) amp__capture_gradient(leaf, false);
  if (amp__grad_dropped(leaf, false) || grad->master != AMP_MASTER_NONE) amp__grad_clear(leaf);
  amp_tensor *scale = NULL;
  if (grad->value && (status = amp__grad_drop_there(leaf)) < 0) return status;
  if ((amp_unlikely(grad->scale != NULL) || amp__S->priv->origin > AMP_O_MIXED)
      && (status = amp__grad_meet(leaf, &scale)) < 0)
    return status;
  int origin = amp__origin_of_sum(amp__grad_origin(grad), amp__S->priv->origin);
  if (amp__S->grad_mode) return accumulate_recorded(leaf, value, origin, scale);
  amp__plain plain = amp__plain_begin();
  int mark = amp__pool_mark();
  if (grad->value == NULL) {
    bool keep16 = may_keep && amp__is_half(value->dtype) && leaf->dtype == AMP_FLOAT32;
    int dtype = keep16 ? value->dtype : leaf->dtype;
    if (value->dtype == dtype && may_own(leaf, value)) {
      grad->value = value;
      value = NULL;
    } else {
      amp_tensor *own = like_leaf(leaf, dtype);
      if (own == NULL) status = amp__S->err.code;
      else if ((status = copy_into(own, value)) < 0) amp__free(own);
      else grad->value = own;
    }
    grad->visible = 0;
    forget_check(grad);
  } else if ((status = amp__grad_materialize(leaf)) == 0) {
    if (grad->value->flags & AMP_T_HISTORY) { /* a gradient of gradients: don't touch what it is part of */
      amp_tensor *sum = OP2(add, grad->value, value);
      if (sum == NULL) status = amp__S->err.code;
      else {
        amp__retain(sum);
        amp__free(grad->value);
        grad->value = sum;
        grad->master = AMP_MASTER_NONE;
      }
    } else status = inplace2(AMP_OP_add, grad->value, value);
    forget_check(grad);
  }
  if (grad->value && status == 0) {
    AMP_ASSERT(grad->value->refs > 0 && grad->value != leaf && grad->factor == NULL && grad->check == NULL);
    amp__grad_from(grad, origin);
    amp__grad_scale_put(grad, scale);
    amp__free(value);
  }
  amp__pool_release(mark);
  amp__plain_end(plain);
  return status;
}

amp_tensor *amp__grad_to_add(amp_bwd *bwd, int i)
{
  amp_tensor *leaf = bwd->node->edge[i].leaf;
  amp_grad *grad = leaf && leaf->ag ? &leaf->ag->grad : NULL;
  if (!bwd->accumulates || !grad || !grad->value || grad->master != AMP_MASTER_NONE || leaf->ag->hook
      || amp__S->grad_mode || (grad->value->flags & AMP_T_HISTORY))
    return NULL;
  const amp_shape *shape = amp__shape_of(bwd->node, i);
  if (amp_unlikely(amp__observing()) || grad->check || !amp__grad_meets_same(grad)) return NULL;
  if (amp_unlikely(!lies_as(leaf, shape->ndim, shape->size, shape->device, shape->device_index)
                   || !amp__same_size(grad->value, leaf)))
    return NULL;
  if (amp_unlikely(amp__capturing)) amp__capture_gradient(leaf, false);
  if (amp__grad_materialize(leaf) < 0) return NULL; /* the usual way will say why */
  amp__grad_from(grad, amp__origin_of_sum(amp__grad_origin(grad), amp__S->priv->origin));
  grad->made++; /* of the version that it has when the caller has added */
  return grad->value;
}

void amp__grad_not_added(amp_bwd *bwd, int i)
{
  amp_grad *grad = &bwd->node->edge[i].leaf->ag->grad;
  grad->made--;
  AMP_ASSERT(grad->value && grad->made == amp__version(grad->value)); /* nothing was added */
}

int amp_grad_defined(const amp_ref *ref)
{
  return ref && ref->t && ref->t->ag && ref->t->ag->grad.value != NULL && !amp__grad_dropped(ref->t, false);
}

/* A value that a master has as well (precision/master.c) is copied before a change. */
static int unshare(amp_grad *grad)
{
  if (grad->master != AMP_MASTER_HAS || (grad->value->flags & AMP_T_HISTORY)) return 0;
  if (grad->value->refs > 1) {
    int origin = amp__grad_origin(grad);
    amp_tensor *own = amp__raw_clone(grad->value);
    if (own == NULL) return amp__S->err.code;
    amp__free(grad->value);
    grad->value = own;
    amp__grad_from(grad, origin);
  }
  grad->master = AMP_MASTER_HAD;
  return 0;
}

int amp_grad_get(amp_state *state, amp_ref *out, const amp_ref *ref)
{
  AMP_ENTER(state);
  if (amp__trace_refuse("a gradient is read", NULL) < 0) return state->err.code;
  if (ref->t == NULL) return amp__fail(AMP_E_ARGUMENT, "a tensor that was freed has no gradient");
  out->t = NULL;
  if (ref->t->ag == NULL || ref->t->ag->grad.value == NULL) return 0;
  if (amp__grad_dropped(ref->t, true)) return 0; /* it is there still: zero_grad may fill it, on every device alike */
  int status = unshare(&ref->t->ag->grad);
  if (status < 0 || (status = amp__grad_materialize(ref->t)) < 0) return status;
  ref->t->ag->grad.visible = 1;
  out->t = ref->t->ag->grad.value;
  amp__retain(out->t);
  return 0;
}

int amp_grad_set(amp_state *state, const amp_ref *ref, const amp_ref *grad)
{
  AMP_ENTER(state);
  if (amp__trace_refuse("a gradient is written", NULL) < 0) return state->err.code;
  amp_tensor *tensor = ref->t, *g = grad ? grad->t : NULL;
  if (tensor == NULL || (grad && g == NULL))
    return amp__fail(AMP_E_ARGUMENT, "a tensor that was freed has no gradient");
  if (g == NULL) {
    amp__grad_clear(tensor);
    return 0;
  }
  if (!amp__same_size(tensor, g))
    return amp__fail(AMP_E_SHAPE, "a gradient of shape %s is given to a tensor of shape %s",
                     amp__shape_str(g->ndim, g->size), amp__shape_str(tensor->ndim, tensor->size));
  if (g->dtype != tensor->dtype)
    return amp__fail(AMP_E_DTYPE, "a gradient of dtype %s is given to a tensor of dtype %s; cast it first",
                     amp_dtype_name(g->dtype), amp_dtype_name(tensor->dtype));
  if (g->device != tensor->device || g->device_index != tensor->device_index)
    return amp__fail(AMP_E_DEVICE, "a gradient on %s is given to a tensor on %s", amp_device_name(g->device),
                     amp_device_name(tensor->device));
  amp_ag *ag = amp__ag(tensor);
  if (ag == NULL) return state->err.code;
  if (ag->grad.value == g) {
    ag->grad.origin = 0;
    return 0;
  }
  if (g == tensor) return amp__fail(AMP_E_ARGUMENT, "a tensor can't be its own gradient; use :clone()");
  amp__retain(g);
  amp__grad_clear(tensor);
  ag->grad.value = g;
  ag->grad.visible = 1;
  return 0;
}

int amp_requires_grad(amp_state *state, const amp_ref *ref, int on)
{
  AMP_ENTER(state);
  amp_tensor *tensor = ref->t;
  if (tensor == NULL) return amp__fail(AMP_E_ARGUMENT, "the tensor was freed");
  amp__refresh(tensor);
  if (tensor->flags & AMP_T_HISTORY) {
    if (on) return 0;
    return amp__fail(AMP_E_AUTOGRAD, "only a leaf can stop requiring grad; this tensor was made by %s: use :detach()",
                     tensor->ag && tensor->ag->node ? amp__node_name(tensor->ag->node) : "an op");
  }
  if (on && !amp__is_float(tensor->dtype))
    return amp__fail(AMP_E_DTYPE, "only float tensors can require grad, this one is %s%s",
                     amp_dtype_name(tensor->dtype),
                     amp__is_float8(tensor->dtype) ? ", which is for storage: cast it first, as by t:float()" : "");
  if (((tensor->flags & AMP_T_REQUIRES_GRAD) != 0) != (on != 0) && amp__trace_refuse("requires_grad is set", NULL) < 0)
    return state->err.code;
  if (on) {
    if (amp__ag(tensor) == NULL) return state->err.code;
    tensor->flags |= AMP_T_REQUIRES_GRAD;
  } else tensor->flags &= ~(uint32_t)AMP_T_REQUIRES_GRAD;
  return 0;
}

/* -- Hooks and functions of Lua ---------------------------------------------------- */

int64_t amp_hook(amp_state *state, const amp_ref *ref)
{
  AMP_ENTER(state);
  if (amp__trace_refuse("a hook is registered", NULL) < 0) return state->err.code;
  amp_tensor *tensor = ref->t;
  if (tensor == NULL) return amp__fail(AMP_E_ARGUMENT, "the tensor was freed");
  amp__refresh(tensor);
  if (!amp__tracked(tensor)) return amp__fail(AMP_E_AUTOGRAD, "a hook needs a tensor that requires grad");
  amp_ag *ag = amp__ag(tensor);
  if (ag == NULL) return state->err.code;
  amp_edge e;
  int status = amp__edge_of(tensor, &e);
  if (status < 0) return status;
  if (e.node == NULL) {
    amp__edge_free(&e);
    if (ag->hook == 0) ag->hook = amp__new_id();
    return ag->hook;
  }
  amp_node *node = e.node;
  int i = e.index;
  int64_t id = 0;
  if (node->hooks == NULL) {
    node->hooks = amp__obj_alloc(sizeof *node->hooks * node->nout);
    if (node->hooks) memset(node->hooks, 0, sizeof *node->hooks * node->nout);
  }
  if (node->hooks == NULL) id = amp__nomem(sizeof *node->hooks * node->nout);
  else {
    if (node->hooks[i] == 0) node->hooks[i] = amp__new_id();
    id = node->hooks[i] > 0
             ? node->hooks[i]
             : amp__fail(
                 AMP_E_AUTOGRAD,
                 "the graph of this tensor was freed by an earlier backward; pass retain_graph = true to that one");
  }
  amp__node_free(node);
  return id;
}

int amp_function(amp_state *state, amp_tensor *const *inputs, int nin, amp_tensor *const *out, int nout, int64_t *id)
{
  AMP_ENTER(state);
  if (amp__trace_refuse("an amp.Function is called", NULL) < 0) return state->err.code;
  *id = 0;
  bool any = false;
  if (nin < 0 || nin > AMP_MAX_LIST || nout < 1 || nout > 255)
    return amp__fail(AMP_E_ARGUMENT, "a function of %d tensors with %d results; up to %d and 255 are possible", nin,
                     nout, AMP_MAX_LIST);
  for (int i = 0; i < nin; i++) {
    if (inputs[i] == NULL || !amp__has_gradient(inputs[i]->dtype)) continue;
    amp__refresh(inputs[i]);
    any |= amp__tracked(inputs[i]);
  }
  if (!state->grad_mode || !any) return 0;
  amp_node *node = amp__node_new(AMP_NODE_LUA, nin, nout, 0, 0, AMP_MAX_DIM);
  if (node == NULL) return state->err.code;
  int status = 0;
  for (int i = 0; i < nin + nout; i++) {
    const amp_tensor *tensor = i < nin ? inputs[i] : out[i - nin];
    amp_shape *shape = amp__shape_of(node, i);
    shape->dtype = tensor ? (uint8_t)amp__gradient_dtype(tensor->dtype) : 0xff;
    shape->ndim = tensor ? tensor->ndim : 0;
    if (tensor == NULL) continue;
    shape->device = tensor->device;
    shape->device_index = tensor->device_index;
    memcpy(shape->size, tensor->size, sizeof(int64_t) * tensor->ndim);
    if (i < nin && amp__has_gradient(tensor->dtype) && (status = amp__node_edge(node, i, inputs[i])) < 0) break;
  }
  for (int i = 0; i < nout && status == 0; i++) /* what tying takes, before any result is tied */
    if (out[i] && amp__has_gradient(out[i]->dtype) && amp__ag(out[i]) == NULL) status = state->err.code;
  for (int i = 0; i < nout && status == 0; i++)
    if (out[i] && amp__has_gradient(out[i]->dtype)) status = amp__tie(out[i], node, i);
  if (status == 0) {
    node->id = *id = amp__new_id();
    node->flags |= AMP_N_LUA;
  }
  amp__node_free(node);
  return status;
}

/* -- Where a backward begins -------------------------------------------------------- */

/* A gradient of one for a single value. A device's is kept, as to make one costs a launch, while no other count
** holds it and its version stands. A captured step only reads what is there, and keeps that from then on. */
amp_tensor *amp__seed(const amp_tensor *tensor)
{
  struct amp_state_private *priv = amp__S->priv;
  amp_tensor *one = priv->one;
  int dtype = amp__gradient_dtype(tensor->dtype);
  bool capture = amp__capture_here(),
       right = one && one->dtype == dtype && one->device == tensor->device && one->device_index == tensor->device_index
               && one->refs == 1 && (capture || one->storage->refs == 1) && amp__version(one) == priv->one_version
               && priv->one_stream == amp__stream_here(tensor->device, tensor->device_index);
  if (tensor->device == AMP_CPU || tensor->ndim > 0 || (capture && !right))
    return amp__op_full(1, dtype, tensor->device, tensor->device_index, tensor->ndim, tensor->size);
  if (!right) {
    if ((one = amp__keep(amp__op_full(1, dtype, tensor->device, tensor->device_index, 0, NULL))) == NULL) return NULL;
    amp__free(priv->one);
    priv->one = one;
    priv->one_version = amp__version(one);
    priv->one_stream = amp__stream_here(tensor->device, tensor->device_index);
  }
  amp__retain(one);
  return amp__pooled(one);
}
