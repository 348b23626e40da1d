/*
** amp_origin.c: where gradients come from, and which loss scale they carry.
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
#include "amp_compose.h"
#include "amp_scale.h"
#include "amp_tape.h"

enum { KEPT = AMP_O_PLAIN | AMP_O_SCALED | AMP_O_UNSCALED | AMP_O_HAND, CARRIES = AMP_O_SCALED | AMP_O_HAND, PLACE0 = 32, PLACES = 3 };

/* -- Scales ------------------------------------------------------------------- */

uint32_t amp__scale_serial(void)
{
  static _Atomic uint32_t last;
  uint32_t n;
  do n = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1; while (n == 0);
  return n;
}

void amp__scale_known(double v)
{
  struct amp_state_private *p = amp__S->priv;
  for (int i = 0; i < AMP_KNOWN_SCALES; i++)
    if (p->known_scale[i] == v) return;
  p->known_scale[p->known_next++ % AMP_KNOWN_SCALES] = v;
}

/* Scale 1 is none: what it multiplies stays what it was. */
static bool known(double v)
{
  for (int i = 0; i < AMP_KNOWN_SCALES && v != 1; i++)
    if (v != 0 && amp__S->priv->known_scale[i] == v) return true;
  return false;
}

/* Certainly of one value. Who wrote to a scale's tensor made another one of it. */
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
static amp_tensor *scale_there(amp_tensor *scale, int device, int index)
{
  if (scale->device == AMP_CPU) return amp__cell(AMP_FLOAT32, device, index, amp__element(scale, 0));
  return amp__cell_copy(scale, device, index);
}

/* to / from on the device of t, counted; `to` NULL: 1 / from. The pool is the caller's. */
static amp_tensor *quotient(amp_tensor *to, amp_tensor *from, const amp_tensor *t)
{
  int device = t->device, index = t->device_index;
  if (from->device == AMP_CPU && (to == NULL || to->device == AMP_CPU))
    return amp__cell(AMP_FLOAT32, device, index, (to ? amp__element(to, 0) : 1.0) / amp__element(from, 0));
  amp_tensor *a = to ? scale_there(to, device, index) : NULL, *b = to && a == NULL ? NULL : scale_there(from, device, index), *q = NULL;
  if (b) q = to ? X2(div, a, b) : X1(reciprocal, b);
  if (q) amp__retain(q);
  amp__free(a);
  amp__free(b);
  return q;
}

amp_tensor *amp__scale_inverse(amp_tensor *scale, const amp_tensor *t)
{
  int mark = amp__pool_mark();
  amp_tensor *q = quotient(NULL, scale, t);
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

/* The scale that the running backward's gradients carry, borrowed; NULL: none that is known. Of two: *rc is an error. */
static amp_tensor *scale_here(int *rc)
{
  int bits = amp__S->priv->origin / PLACE0;
  if (bits == 0) return NULL;
  if (bits & (bits - 1)) {
    *rc = amp__fail(AMP_E_STATE, "gradients of losses with different scales meet in one backward: call backward for each of them, or scale their sum");
    return NULL;
  }
  return amp__S->priv->scale[bits >> 1];
}

/* -- What a record carries --------------------------------------------------------- */

amp_tensor *amp__grad_scale(const amp_grad *g) { return g->scale && (amp__grad_origin(g) & CARRIES) ? g->scale : NULL; }

void amp__grad_scale_put(amp_grad *g, amp_tensor *scale)
{
  if (g->scale == scale) return;
  if (scale) amp__retain(scale);
  amp__free(g->scale);
  g->scale = scale;
}

int amp__grad_rescale(amp_tensor *leaf, amp_tensor *to)
{
  amp_grad *g = &leaf->ag->grad;
  amp_tensor *from = amp__grad_scale(g);
  if (from == NULL || amp__same_scale(from, to)) return 0;
  int rc = amp__grad_materialize(leaf);
  if (rc < 0) return rc;
  int origin = amp__grad_origin(g), mark = amp__pool_mark();
  amp__plain p = amp__plain_begin();
  if (amp_unlikely(amp__capturing)) {
    amp__capture_note(from);
    amp__capture_note(to);
  }
  amp_tensor *q = quotient(to, from, g->value), *in[2] = {g->value, q};
  if (q == NULL) rc = amp__S->err.code;
  else if (g->value->flags & AMP_T_HISTORY) { /* it is part of what led to it: leave that alone */
    amp__plain_end(p);
    amp_tensor *v = amp__keep(X2(mul, g->value, q));
    p = amp__plain_begin();
    if (v == NULL) rc = amp__S->err.code;
    else { amp__free(g->value); g->value = v; }
  } else rc = amp__dispatch(AMP_OP_mul, AMP_INPLACE, in, 2, NULL, NULL);
  amp__free(q);
  amp__plain_end(p);
  amp__pool_release(mark);
  if (rc < 0) return rc;
  amp__grad_scale_put(g, to);
  amp__grad_from(g, origin);
  return 0;
}

int amp__grad_meet(amp_tensor *leaf, amp_tensor **scale)
{
  amp_grad *g = &leaf->ag->grad;
  int rc = 0;
  *scale = scale_here(&rc);
  if (rc == 0 && *scale && g->value) rc = amp__grad_rescale(leaf, *scale);
  if (*scale == NULL) *scale = amp__grad_scale(g);
  return rc;
}

bool amp__grad_meets_same(const amp_grad *g)
{
  int bits = amp__S->priv->origin / PLACE0;
  amp_tensor *from = amp__grad_scale(g);
  return bits == 0 || (!(bits & (bits - 1)) && from && amp__same_scale(from, amp__S->priv->scale[bits >> 1]));
}

/* Of a sum. What was unscaled and got a plain gradient is like that one; what a number scaled is told from it as what a scaler did. */
int amp__origin_of_sum(int a, int b)
{
  int o = (a | b) & KEPT;
  if ((o & AMP_O_HAND) && (o & (AMP_O_SCALED | AMP_O_UNSCALED))) o |= AMP_O_SCALED;
  if ((o & AMP_O_UNSCALED) && !(o & CARRIES)) o &= ~AMP_O_PLAIN;
  return o;
}

/* -- Of nodes and roots ---------------------------------------------------------------- */

/* A number, or a single value of the CPU's, that a scaler's scale is or was: who multiplies by it scales by hand. */
static bool scales(const amp_tensor *t)
{
  return t && t->numel == 1 && t->device == AMP_CPU && amp__is_float(t->dtype) && known(amp__element(t, 0));
}

uint8_t amp__node_origin(const amp_node *n, uint8_t came)
{
  if (n->op != AMP_OP_mul || !n->saved) return came;
  if (n->flags & AMP_N_SCALED) {
    for (int i = 0; i < 2; i++)
      if (n->saved[i].t && (n->saved[i].t->flags & AMP_T_SCALE)) return AMP_O_SCALED | amp__scale_bit(n->saved[i].t);
    return AMP_O_SCALED;
  }
  if (came != AMP_O_PLAIN) return came;
  const amp_shape *out = amp__shape_of(n, n->nin);
  int64_t numel = 1;
  for (int i = 0; i < out->ndim; i++) numel *= out->size[i];
  for (int i = 0; i < 2 && numel == 1; i++) {
    amp_tensor *t = n->saved[i].t;
    if (!t || t->ndim != 0 || t->device != AMP_CPU || !amp__is_float(t->dtype)) continue;
    if (!isfinite(amp__element(t, 0))) return 0; /* nothing of it will step */
    if (scales(t)) return AMP_O_HAND | amp__scale_bit(t);
  }
  return came;
}

uint8_t amp__root_origin(amp_tensor *given, uint8_t outer)
{
  if (given->flags & AMP_T_SCALE) return AMP_O_SCALED | amp__scale_bit(given);
  return outer == 0 && scales(given) ? AMP_O_HAND | amp__scale_bit(given) : outer;
}

int amp_grads_origin(amp_tensor *const *leaf, int n, int mask, int *at)
{
  int all = 0;
  if (at) *at = -1;
  for (int i = 0; i < n; i++) {
    const amp_grad *g = leaf[i] && leaf[i]->ag && leaf[i]->ag->grad.value && !leaf[i]->ag->grad.given ? &leaf[i]->ag->grad : NULL;
    int origin = g ? amp__grad_origin(g) : 0;
    if ((origin & AMP_O_SCALED) && (origin & (AMP_O_PLAIN | AMP_O_UNSCALED))) origin |= AMP_O_MIXED;
    if (at && *at < 0 && (origin & mask)) *at = i;
    all |= origin;
  }
  return all;
}

void amp_grad_origin_put(const amp_ref *a, int origin)
{
  if (a->t && a->t->ag && a->t->ag->grad.value) amp__grad_from(&a->t->ag->grad, origin & KEPT);
}

int amp_backward_origin(amp_state *S, int origin)
{
  int before = S->priv->origin;
  S->priv->origin = (uint8_t)origin;
  return before;
}

int amp_backward_scale(amp_state *S, const amp_ref *scale)
{
  AMP_ENTER(S);
  if (S->priv->backwards == 0) forget();
  return amp_backward_origin(S, AMP_O_SCALED | (scale && scale->t ? amp__scale_bit(scale->t) : 0));
}
