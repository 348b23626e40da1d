/*
** autograd/gradient_origin.c: where gradients come from, and which loss scale they carry.
**
** A backward sends on, beside each gradient, bits of its origin: enum amp_origin,
** and one bit for each loss scale that it has met (a place in S->priv->scale).
** A leaf's record keeps the origin and the scale itself, a cell that holds it. So
** what carries one scale is brought to another before both are added, and
** is unscaled by its own scale, whichever one is its scaler's by then. Nothing
** is read back: a device's scales are compared by their serial numbers, and where
** these differ their quotient is computed there.
*/
#include <math.h>
#include <stdlib.h>
#include "dispatch/op_builder.h"
#include "autograd/gradient.h"
#include "autograd/tape.h"

enum { KEPT = AMP_ORIGIN_KEPT, CARRIES = AMP_O_SCALED | AMP_O_HAND, PLACE0 = 32, PLACES = 3 };

/* -- Scales ------------------------------------------------------------------- */

uint32_t amp__scale_serial(void)
{
  static _Atomic uint32_t last;
  uint32_t n;
  do n = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
  while (n == 0);
  return n;
}

void amp__scale_known(double v)
{
  struct amp_state_private *priv = amp__S->priv;
  for (int i = 0; i < AMP_KNOWN_SCALES; i++)
    if (priv->known_scale[i] == v) return;
  priv->known_scale[priv->known_next++ % AMP_KNOWN_SCALES] = v;
}

/* Scale 1 is none: what it multiplies stays what it was. */
static bool known(double v)
{
  for (int i = 0; i < AMP_KNOWN_SCALES && v != 1; i++)
    if (v != 0 && amp__S->priv->known_scale[i] == v) return true;
  return false;
}

/* Certainly of one value. A write to a scale's tensor makes another one of it. */
bool amp__same_scale(const amp_tensor *a, const amp_tensor *b)
{
  if (a == b) return true;
  if (a->device == AMP_CPU && b->device == AMP_CPU) return amp__element(a, 0) == amp__element(b, 0);
  return amp__scale_is(a, b->scale_serial) && amp__version(b) == 0;
}

bool amp__scale_is(const amp_tensor *scale, uint32_t serial)
{
  return serial != 0 && scale->scale_serial == serial && amp__version(scale) == 0;
}

/* A scale as a float32 cell of a device, counted. */
static amp_tensor *scale_on(amp_tensor *scale, int device, int index)
{
  if (scale->device == AMP_CPU) return amp__cell(AMP_FLOAT32, device, index, amp__element(scale, 0));
  return amp__cell_copy(scale, device, index);
}

/* to / from on the device of tensor, counted; `to` NULL: 1 / from. The pool is the caller's. */
static amp_tensor *quotient(amp_tensor *to, amp_tensor *from, const amp_tensor *tensor)
{
  int device = tensor->device, index = tensor->device_index;
  if (from->device == AMP_CPU && (to == NULL || to->device == AMP_CPU))
    return amp__cell(AMP_FLOAT32, device, index, (to ? amp__element(to, 0) : 1.0) / amp__element(from, 0));
  amp_tensor *a = to ? scale_on(to, device, index) : NULL, *b = to && a == NULL ? NULL : scale_on(from, device, index),
             *q = NULL;
  if (b) q = to ? OP2(div, a, b) : OP1(reciprocal, b);
  if (q) amp__retain(q);
  amp__free(a);
  amp__free(b);
  return q;
}

amp_tensor *amp__scale_inverse(amp_tensor *scale, const amp_tensor *tensor)
{
  int mark = amp__pool_mark();
  amp_tensor *q = quotient(NULL, scale, tensor);
  amp__pool_release(mark);
  return q;
}

/* -- Scales that a backward meets ------------------------------------------------ */

void amp__scales_enter(void) { amp__S->priv->backwards++; }

static void forget(void)
{
  amp_tensor **scale = amp__S->priv->scale;
  for (int i = 0; i < PLACES; i++) {
    amp__free(scale[i]);
    scale[i] = NULL;
  }
}

void amp__scales_leave(void)
{
  if (--amp__S->priv->backwards == 0) forget();
}

uint8_t amp__scale_bit(amp_tensor *scale)
{
  amp_tensor **at = amp__S->priv->scale;
  for (int i = 0; i < PLACES; i++) {
    if (at[i] && !amp__same_scale(at[i], scale)) continue;
    if (at[i] == NULL) {
      amp__retain(scale);
      at[i] = scale;
    }
    return (uint8_t)(PLACE0 << i);
  }
  return PLACE0 | PLACE0 << 1; /* of several, which is an error where it matters */
}

/* The scale that the running backward's gradients carry, borrowed; NULL: none that is known. Of two: *status is an
** error. */
static amp_tensor *scale_here(int *status)
{
  int bits = amp__S->priv->origin / PLACE0;
  if (bits == 0) return NULL;
  if (bits & (bits - 1)) {
    *status = amp__fail(
        AMP_E_STATE,
        "gradients of losses with different scales meet in one backward: call backward for each of them, or "
        "scale their sum");
    return NULL;
  }
  return amp__S->priv->scale[bits >> 1];
}

/* -- What a record carries --------------------------------------------------------- */

amp_tensor *amp__grad_scale(const amp_grad *grad)
{
  return grad->scale && (amp__grad_origin(grad) & CARRIES) ? grad->scale : NULL;
}

void amp__grad_scale_put(amp_grad *grad, amp_tensor *scale)
{
  if (grad->scale == scale) return;
  if (scale) amp__retain(scale);
  amp__free(grad->scale);
  grad->scale = scale;
}

int amp__grad_rescale(amp_tensor *leaf, amp_tensor *to)
{
  amp_grad *grad = &leaf->ag->grad;
  amp_tensor *from = amp__grad_scale(grad);
  if (from == NULL || amp__same_scale(from, to)) return 0;
  if (amp_unlikely(amp__capture_here())
      && !amp__capture_made(grad->value)) /* replays would bring it there again and again */
    return amp__fail(
        AMP_E_STATE,
        "the captured step adds to a gradient (%s) that carries another loss scale: clear gradients after the "
        "scale was updated, before the step is captured",
        amp__tensor_str(leaf));
  int status = amp__grad_materialize(leaf);
  if (status < 0) return status;
  int origin = amp__grad_origin(grad), mark = amp__pool_mark();
  amp__plain plain = amp__plain_begin();
  if (amp_unlikely(amp__capturing)) {
    amp__capture_note(from);
    amp__capture_note(to);
  }
  amp_tensor *q = quotient(to, from, grad->value), *inputs[2] = { grad->value, q };
  if (q == NULL) status = amp__S->err.code;
  else if (grad->value->flags & AMP_T_HISTORY) { /* the value is part of a graph, which stays as it is */
    amp__plain_end(plain);
    amp_tensor *value = amp__keep(OP2(mul, grad->value, q));
    plain = amp__plain_begin();
    if (value == NULL) status = amp__S->err.code;
    else {
      amp__free(grad->value);
      grad->value = value;
    }
  } else status = amp__dispatch(AMP_OP_mul, AMP_INPLACE, inputs, 2, NULL, NULL);
  amp__free(q);
  amp__plain_end(plain);
  amp__pool_release(mark);
  if (status < 0) return status;
  amp__grad_scale_put(grad, to);
  amp__grad_from(grad, origin);
  return 0;
}

int amp__grad_meet(amp_tensor *leaf, amp_tensor **scale)
{
  amp_grad *grad = &leaf->ag->grad;
  int status = 0;
  *scale = scale_here(&status);
  if (status == 0 && *scale && grad->value) status = amp__grad_rescale(leaf, *scale);
  if (*scale == NULL) *scale = amp__grad_scale(grad);
  return status;
}

bool amp__grad_meets_same(const amp_grad *grad)
{
  int bits = amp__S->priv->origin / PLACE0;
  amp_tensor *from = amp__grad_scale(grad);
  return bits == 0 || (!(bits & (bits - 1)) && from && amp__same_scale(from, amp__S->priv->scale[bits >> 1]));
}

/* Of a sum. What was unscaled and got a plain gradient is like that one; what a number scaled is told from it as
** what a scaler did. */
int amp__origin_of_sum(int a, int b)
{
  int o = (a | b) & KEPT;
  if ((o & AMP_O_HAND) && (o & (AMP_O_SCALED | AMP_O_UNSCALED))) o |= AMP_O_SCALED;
  if ((o & AMP_O_UNSCALED) && !(o & CARRIES)) o &= ~AMP_O_PLAIN;
  return o;
}

/* -- Of nodes and roots ---------------------------------------------------------------- */

/* A number, or a single value of the CPU's, that a scaler's scale is or was: who multiplies by it scales by hand. */
static bool scales(const amp_tensor *tensor)
{
  return tensor && tensor->numel == 1 && tensor->device == AMP_CPU && amp__is_float(tensor->dtype)
         && known(amp__element(tensor, 0));
}

uint8_t amp__node_origin(const amp_node *node, uint8_t came)
{
  if (!amp__node_is(node, AMP_R_PRODUCT)) return came;
  const amp_node *product = node->slices ? node->slices->function : node; /* of a view, as its base sees it */
  const amp_shape *out = amp__shape_of(node, node->nin);
  int64_t numel = 1;
  for (int i = 0; i < out->ndim; i++) numel *= out->size[i];
  if (product->nsaved == 0 || (product != node && numel != 1)) return came;
  if (product->flags & AMP_N_SCALED) {
    for (int i = 0; i < 2; i++)
      if (product->saved[i].tensor && (product->saved[i].tensor->flags & AMP_T_SCALE))
        return AMP_O_SCALED | amp__scale_bit(product->saved[i].tensor);
    return AMP_O_SCALED;
  }
  if (came != AMP_O_PLAIN) return came;
  for (int i = 0; i < 2 && numel == 1; i++) {
    amp_tensor *tensor = product->saved[i].tensor;
    if (!tensor || tensor->ndim != 0 || tensor->device != AMP_CPU || !amp__is_float(tensor->dtype)) continue;
    if (!isfinite(amp__element(tensor, 0))) return 0; /* nothing of it will step */
    if (scales(tensor)) return AMP_O_HAND | amp__scale_bit(tensor);
  }
  return came;
}

uint8_t amp__root_origin(amp_tensor *root_grad, uint8_t outer)
{
  if (root_grad->flags & AMP_T_SCALE) return AMP_O_SCALED | amp__scale_bit(root_grad);
  return outer == 0 && scales(root_grad) ? AMP_O_HAND | amp__scale_bit(root_grad) : outer;
}

int amp_grads_origin(amp_tensor *const *leaf, int count, int mask, int *at)
{
  int all = 0;
  if (at) *at = -1;
  for (int i = 0; i < count; i++) {
    const amp_grad *grad
        = leaf[i] && leaf[i]->ag && leaf[i]->ag->grad.value && leaf[i]->ag->grad.master == AMP_MASTER_NONE
              ? &leaf[i]->ag->grad
              : NULL;
    int origin = grad ? amp__grad_origin(grad) : 0;
    if ((origin & AMP_O_SCALED) && (origin & (AMP_O_PLAIN | AMP_O_UNSCALED))) origin |= AMP_O_MIXED;
    if (at && *at < 0 && (origin & mask)) *at = i;
    all |= origin;
  }
  return all;
}

void amp_grad_origin_put(const amp_ref *ref, int origin)
{
  if (ref->t && ref->t->ag && ref->t->ag->grad.value) amp__grad_from(&ref->t->ag->grad, origin & KEPT);
}

int amp_backward_origin(amp_state *state, int origin)
{
  int before = state->priv->origin;
  state->priv->origin = (uint8_t)origin;
  return before;
}

int amp_backward_scale(amp_state *state, const amp_ref *scale)
{
  AMP_ENTER(state);
  if (state->priv->backwards == 0) forget();
  return amp_backward_origin(state, AMP_O_SCALED | (scale && scale->t ? amp__scale_bit(scale->t) : 0));
}
