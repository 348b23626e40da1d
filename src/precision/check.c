/*
** precision/check.c: gradients unscaled and looked at, once, without a wait.
**
** A check is what one iteration of a scaler (precision/scale.c) knows on each device:
** a snapshot of 1/scale and a found-inf cell. Unscaling reads a gradient once,
** for its finite check, and leaves 1/scale on its record as the pending factor;
** only a tensor that the user already holds is multiplied in place. A check
** stands until the gradient's storage changes, and lives as long as a gradient
** refers to it. precision/clip.c clips the same records; optim/optim.c asks
** amp__check_cell and steps.
**
** A scaler whose step comes at once says so (AMP_CHECK_SOON): few gradients are then
** left to that step, which looks at them in its own launch (pending, pending_check);
** a question for the found-inf cell before that settles it.
*/
#include <stdlib.h>
#include <string.h>
#include "dispatch/op_builder.h"
#include "precision/scale.h"

/* -- Checks ------------------------------------------------------------------ */

static amp_check *check_new(amp_scaler *scaler)
{
  amp_check *check = calloc(1, sizeof *check);
  if (!check) {
    amp__nomem(sizeof *check);
    return NULL;
  }
  check->refs = 1;
  check->scaler = scaler;
  check->epoch = scaler->epoch;
  atomic_fetch_add(&scaler->refs, 1);
  return check;
}

amp_check *amp_check_new(amp_state *state, amp_scaler *scaler)
{
  AMP_ENTER(state);
  return check_new(scaler);
}

void amp__check_retain(amp_check *check)
{
  AMP_ASSERT(check == NULL || check->refs > 0);
  if (check) atomic_fetch_add_explicit(&check->refs, 1, memory_order_relaxed);
}

static void drop_pending(amp_check *check)
{
  for (int i = 0; i < check->npending; i++) amp__free(check->pending[i].tensor);
  free(check->pending);
  check->pending = NULL;
  check->npending = 0;
  check->pending_check = false;
}

void amp_check_free(amp_check *check)
{
  AMP_ASSERT(check == NULL || check->refs > 0);
  if (!check || atomic_fetch_sub(&check->refs, 1) != 1) return;
  drop_pending(check);
  for (int i = 0; i < check->nplace; i++) {
    amp__free(check->place[i].inv);
    amp__free(check->place[i].found);
  }
  amp__free(check->other);
  amp__free(check->other_inv);
  amp_scaler_free(check->scaler);
  free(check);
}

/* The check's cells of a device: a snapshot of 1/scale at first use, found-inf 0. */
static int check_place(amp_check *check, int device, int index)
{
  for (int i = 0; i < check->nplace; i++)
    if (check->place[i].device == device && check->place[i].index == index) return i;
  if (check->nplace == AMP_MAX_PLACES)
    return amp__fail(AMP_E_UNSUPPORTED, "a check serves at most %d devices", AMP_MAX_PLACES);
  amp_tensor *scale = NULL, *inv = NULL;
  int status = amp__scaler_cells(check->scaler, device, index, &scale, &inv);
  if (status) return status;
  amp_tensor *snap = check->scaler->fixed ? amp__cell_copy(inv, device, index) : inv;
  if (snap == inv) amp__retain(inv);
  amp_tensor *found = snap ? amp__cell_zero(device, index) : NULL;
  if (!found) {
    amp__free(snap);
    return amp__S->err.code;
  }
  int i = check->nplace++;
  check->place[i].device = (uint8_t)device;
  check->place[i].index = (uint8_t)index;
  check->place[i].inv = snap;
  check->place[i].serial = amp__scaler_serial(check->scaler, device);
  check->place[i].found = found;
  return i;
}

static amp_tensor *found_of(const amp_grad *grad)
{
  for (int i = 0; i < grad->check->nplace; i++)
    if (grad->check->place[i].device == grad->value->device && grad->check->place[i].index == grad->value->device_index)
      return grad->check->place[i].found;
  return NULL;
}

amp_tensor *amp__check_cell(const amp_grad *grad) { return amp__check_valid(grad) ? found_of(grad) : NULL; }

static void set_check(amp_grad *grad, amp_check *check)
{
  if (grad->check != check) {
    amp__check_retain(check);
    amp_check_free(grad->check);
    grad->check = check;
  }
  grad->version = amp__version(grad->value);
}

static amp_tensor *cell_mul(amp_tensor *a, amp_tensor *b)
{
  if (a->device == AMP_CPU)
    return amp__cell(AMP_FLOAT32, AMP_CPU, 0, (double)*AMP_DATA(float, a) * *AMP_DATA(float, b));
  amp_tensor *out[AMP_MAX_OUT] = { 0 }, *inputs[2] = { a, b };
  return amp__dispatch(AMP_OP_mul, 0, inputs, 2, out, NULL) ? NULL : out[0];
}

amp_tensor *amp__factor_times(amp__factor_product *factors, amp_tensor *factor, amp_tensor *c)
{
  if (!factor) {
    amp__retain(c);
    return c;
  }
  if (factors->a != factor || factors->c != c) {
    amp_tensor *ac = cell_mul(factor, c);
    if (!ac) return NULL;
    amp__factor_product_end(factors);
    amp__retain(factor);
    amp__retain(c);
    factors->a = factor;
    factors->c = c;
    factors->ac = ac;
  }
  amp__retain(factors->ac);
  return factors->ac;
}
void amp__factor_product_end(amp__factor_product *factors)
{
  amp__free(factors->a);
  amp__free(factors->c);
  amp__free(factors->ac);
}

int amp__grad_pend(amp_grad *grad, amp_tensor *c, amp__factor_product *factors)
{
  amp_tensor *f = amp__factor_times(factors, grad->factor, c);
  if (!f) return amp__S->err.code;
  amp__free(grad->factor);
  grad->factor = f;
  return 0;
}

/* -- Gradients that several parameters share ------------------------------------- */

void amp__scaler_forget(amp_scaler *scaler)
{
  for (int i = 0; i < scaler->ndone; i++) amp__free(scaler->done[i].tensor);
  scaler->ndone = 0;
}

/* Has this iteration multiplied v already, as another parameter's gradient? */
static bool done_before(const amp_scaler *scaler, const amp_tensor *v)
{
  for (int i = scaler->ndone; i-- > 0;)
    if (amp__same_place(scaler->done[i].tensor, v) && scaler->done[i].version == amp__version(v)) return true;
  return false;
}

/* Before anything is multiplied: what was must be noted. */
static int room_for_done(amp_scaler *scaler)
{
  if (scaler->ndone < scaler->capdone) return 0;
  int cap = scaler->capdone ? 2 * scaler->capdone : 8;
  struct amp__done *more = realloc(scaler->done, sizeof *more * (size_t)cap);
  if (!more) return amp__nomem(sizeof *more * (size_t)cap);
  scaler->done = more;
  scaler->capdone = cap;
  return 0;
}

/* value was multiplied and has its new version; views of the same storage that were done before stay done. */
static void note_done(amp_scaler *scaler, amp_tensor *value, uint32_t before)
{
  for (int i = 0; i < scaler->ndone; i++)
    if (scaler->done[i].tensor->storage == value->storage && scaler->done[i].version == before)
      scaler->done[i].version = amp__version(value);
  amp__retain(value);
  AMP_ASSERT(scaler->ndone < scaler->capdone); /* room_for_done came first */
  scaler->done[scaler->ndone++] = (struct amp__done){ value, amp__version(value) };
}

/* -- The check ------------------------------------------------------------------- */

/* Tensors that one launch will look at; flushed when there are BATCH, and at the end */
enum { BATCH = 256 };
typedef struct batch {
  amp_check *check;
  int place, count;
  amp_tensor *tensors[BATCH];
} batch;

static int flush(batch *q)
{
  int n = q->count;
  q->count = 0;
  if (n == 0) return 0;
  q->check->mixed = true;
  return amp__devices[q->tensors[0]->device].check_many(q->tensors, n,
                                                        AMP_DATA(float, q->check->place[q->place].found));
}

/* Leave them to the step; true if that is possible */
static bool leave_pending(batch *q)
{
  amp_check *check = q->check;
  int64_t bytes = 0;
  if (q->count <= 0 || q->count > AMP_LOOK_MOST || check->npending
      || !amp__devices[q->tensors[0]->device].optim_step_look)
    return false;
  for (int i = 0; i < q->count; i++) bytes += q->tensors[i]->numel * amp__dtype_size[q->tensors[i]->dtype];
  if (bytes > AMP_LOOK_BYTES || !(check->pending = malloc(sizeof *check->pending * (size_t)q->count))) return false;
  for (int i = 0; i < q->count; i++) {
    amp__retain(q->tensors[i]);
    check->pending[i] = (struct amp__pending_gradient){ q->tensors[i], amp__version(q->tensors[i]) };
  }
  check->npending = q->count;
  check->pending_place = q->place;
  check->pending_check = true;
  return true;
}

bool amp__check_pending(const amp_check *check, int i, int n, const amp_tensor *g)
{
  return check->npending == n && check->pending[i].tensor == g && check->pending[i].version == amp__version(g);
}

void amp__check_looked(amp_check *check)
{
  check->pending_check = false;
  if (!amp__capture_here()) drop_pending(check); /* elsewhere an update comes after the step anyway */
}

bool amp__check_again_looks(const amp_check *check, int device, int index)
{
  if (check->pending_check || check->npending == 0 || check->mixed || check->nplace != 1
      || check->place[0].device != device || check->place[0].index != index)
    return false;
  for (int i = 0; i < check->npending; i++)
    if (check->pending[i].version != amp__version(check->pending[i].tensor)) return false;
  return true;
}

void amp__check_forget(amp_check *check)
{
  if (!check->pending_check) drop_pending(check);
}

int amp__check_settle(amp_check *check)
{
  if (!check->pending_check) return 0;
  batch q;
  q.check = check;
  q.place = check->pending_place;
  q.count = check->npending;
  for (int i = 0; i < q.count; i++) {
    q.tensors[i] = check->pending[i].tensor;
    amp__touch(q.tensors[i]);
  }
  amp__touch(check->place[q.place].found);
  int status = flush(&q);
  drop_pending(check);
  return status;
}

/* 1 over the scale that grad carries, borrowed: the check's own, or that of a loss that was scaled in another
** iteration or by another scaler. */
static amp_tensor *inverse_of(amp_check *check, int place, const amp_grad *grad)
{
  amp_tensor *scale = amp__grad_scale(grad), *inv = check->place[place].inv;
  if (!scale || amp__scale_is(scale, check->place[place].serial)) return inv;
  if (scale->device == AMP_CPU && inv->device == AMP_CPU
      && (float)(1.0 / amp__element(scale, 0)) == *AMP_DATA(float, inv))
    return inv;
  if (check->other && amp__same_scale(check->other, scale) && check->other_inv->device == inv->device
      && check->other_inv->device_index == inv->device_index)
    return check->other_inv;
  amp_tensor *q = amp__scale_inverse(scale, inv);
  if (!q) return NULL;
  amp__retain(scale);
  amp__free(check->other);
  amp__free(check->other_inv);
  check->other = scale;
  check->other_inv = q;
  return q;
}

/* q NULL: at once */
static int check_one(amp_check *check, amp_tensor *leaf, bool unscale, amp__factor_product *factors, batch *q)
{
  amp_grad *grad = &leaf->ag->grad;
  amp_tensor *value = grad->value;
  if (grad->check == check && grad->version == amp__version(value)) return 0;
  int origin = amp__grad_origin(grad);
  if ((origin & AMP_O_UNSCALED) && !(origin & (AMP_O_SCALED | AMP_O_HAND)))
    unscale = false; /* in an iteration before, and nothing came since */
  else if (unscale) origin = AMP_O_UNSCALED;
  if (grad->check && grad->check->scaler == check->scaler && grad->check->epoch == check->epoch && !grad->check->raw)
    unscale = false; /* it is unscaled; under another check of this iteration, or changed since */
  int i = check_place(check, value->device, value->device_index);
  if (i < 0) return i;
  amp_tensor *inv = inverse_of(check, i, grad);
  if (!inv) return amp__S->err.code;
  bool now = unscale && amp__grad_at_once(grad);
  if (now && done_before(check->scaler, value)) now = unscale = false;
  if (amp_unlikely(amp__capturing)) {
    amp__capture_note(value);
    amp__capture_note(inv);
    amp__capture_note(check->place[i].found);
  }
  amp__touch(value);
  amp__touch(inv);
  amp__touch(check->place[i].found);
  int status = now ? room_for_done(check->scaler) : 0;
  if (status) return status;
  if (q && !now && (value->flags & AMP_T_DENSE) && amp__devices[value->device].check_many) {
    if (q->count && (q->place != i || q->count == BATCH)) status = flush(q);
    q->check = check;
    q->place = i;
    q->tensors[q->count++] = value;
  } else {
    check->mixed = true;
    status = amp__devices[value->device].check_scale(value, now ? AMP_DATA(float, inv) : NULL,
                                                     AMP_DATA(float, check->place[i].found));
  }
  check->found_state = AMP_FOUND_UNKNOWN;
  if (!status && unscale && !now) status = amp__grad_pend(grad, inv, factors);
  if (status) return status;
  if (now) {
    uint32_t before = amp__version(value);
    amp__bump(value);
    note_done(check->scaler, value, before);
  }
  set_check(grad, check);
  if (origin == AMP_O_UNSCALED) amp__grad_scale_put(grad, NULL);
  amp__grad_from(grad, origin);
  return 0;
}

/* What is to be unscaled comes of scaled losses alone; what was unscaled has got no gradient of a scaled loss since. */
static int check_origins(amp_tensor *const *leaf, int count, int unscale)
{
  bool scaled = (unscale & (AMP_UNSCALE | AMP_CHECK_RAW)) != 0;
  if (!scaled && (unscale & AMP_CHECK_DROP)) return 0; /* a second look at what was unscaled */
  for (int i = 0; i < count; i++) {
    const amp_grad *grad = amp__grad_of(leaf[i]);
    int origin = grad ? amp__grad_origin(grad) : 0;
    if (!scaled && (origin & (AMP_O_SCALED | AMP_O_HAND)))
      return amp__fail_arg(AMP_E_STATE, i + 1,
                           "the gradient of parameter %d (%s) has got that of a scaled loss after it was unscaled",
                           i + 1, amp__tensor_str(leaf[i]));
    if (scaled
        && ((origin & AMP_O_PLAIN) || (origin & (AMP_O_SCALED | AMP_O_UNSCALED)) == (AMP_O_SCALED | AMP_O_UNSCALED)))
      return amp__fail_arg(
          AMP_E_STATE, i + 1,
          "the gradient of parameter %d (%s) is that of a loss that was not scaled, or a part of it is", i + 1,
          amp__tensor_str(leaf[i]));
  }
  return 0;
}

/* A caller that unscales by itself knows of the scaler's scale only. */
static int to_scale(amp_scaler *scaler, amp_tensor *const *leaf, int count)
{
  int status = 0;
  for (int i = 0; i < count && !status; i++) {
    amp_tensor *scale, *inv;
    const amp_grad *grad = amp__grad_of(leaf[i]);
    amp_tensor *has = grad ? amp__grad_scale(grad) : NULL;
    if (!has || amp__scale_is(has, amp__scaler_serial(scaler, has->device))) continue;
    if (!(status = amp__scaler_cells(scaler, grad->value->device, grad->value->device_index, &scale, &inv)))
      status = amp__grad_rescale(leaf[i], scale);
  }
  return status;
}

static int check_grads(amp_check *check, amp_tensor *const *leaf, int count, int unscale)
{
  if ((unscale & (AMP_UNSCALE | AMP_UNSCALE_HALF)) == AMP_UNSCALE)
    for (int i = 0; i < count; i++)
      if (amp__grad_of(leaf[i]) && leaf[i]->dtype == AMP_FLOAT16)
        return amp__fail_arg(AMP_E_DTYPE, i + 1,
                             "can't unscale float16 gradients of a float16 parameter (%s): keep parameters in float32, "
                             "autocast makes their float16 copies (only opt_level O3 keeps them in float16)",
                             amp__tensor_str(leaf[i]));
  int wrong = check_origins(leaf, count, unscale);
  if (wrong) return wrong;
  amp__plain plain = amp__plain_begin();
  batch q;
  q.count = 0;
  amp__factor_product m = { 0 };
  int status = amp__check_settle(check);
  if (!status && (unscale & AMP_UNSCALE)) status = amp__grads_part(leaf, count);
  if (!status && (unscale & AMP_CHECK_RAW)) status = to_scale(check->scaler, leaf, count);
  if (unscale & AMP_CHECK_RAW) check->raw = true;
  if (unscale & AMP_CHECK_DROP) check->drop = true;
  for (int i = 0; i < count && !status; i++)
    if (amp__grad_of(leaf[i])) status = check_one(check, leaf[i], (unscale & AMP_UNSCALE) != 0, &m, &q);
  int last = (unscale & AMP_CHECK_SOON) && leave_pending(&q) ? 0 : flush(&q);
  if (!status) status = last;
  amp__factor_product_end(&m);
  amp__plain_end(plain);
  return status;
}

int amp_check_grads(amp_state *state, amp_check *check, amp_tensor *const *leaf, int count, int unscale)
{
  amp_frame frame;
  AMP_ENTER(state);
  if (amp__trace_refuse("gradients are checked", NULL) < 0) return state->err.code;
  bool watched = amp_unlikely(amp__observing()) && amp__observe_begin(&frame, AMP_SPAN_CHECK, 0, 0);
  int status = check_grads(check, leaf, count, unscale);
  if (watched) amp__observe_end(&frame, status);
  return status;
}

int amp_grad_check_hold(const amp_ref *ref)
{
  if (!ref->t || !ref->t->ag || !amp__check_valid(&ref->t->ag->grad)) return 0;
  return ref->t->ag->grad.check->raw ? 2 : 1;
}

void amp_grad_check_keep(const amp_ref *ref)
{
  amp_grad *grad = ref->t ? amp__grad_of(ref->t) : NULL;
  if (grad && grad->check) grad->version = amp__version(grad->value);
}

int amp__check_again(amp_tensor *leaf, amp_check **fresh)
{
  amp_grad *grad = &leaf->ag->grad;
  if (!grad->check || amp__check_valid(grad)) return 0;
  if (!*fresh && !(*fresh = check_new(grad->check->scaler))) return amp__S->err.code;
  return check_one(*fresh, leaf, false, NULL, NULL);
}

static bool grad_dropped(amp_tensor *leaf, bool wait)
{
  if (!leaf->ag || !leaf->ag->grad.check || !leaf->ag->grad.check->drop) return false;
  amp_check *check = leaf->ag->grad.check;
  if (!amp__check_valid(&leaf->ag->grad)) return false;
  for (int i = 0; i < check->nplace; i++)
    if (check->place[i].device == AMP_CPU && *AMP_DATA(float, check->place[i].found) != 0) return true;
  if (check->found_state == AMP_FOUND_UNKNOWN && wait) {
    int status = amp_check_found(amp__S, check);
    if (status < 0) return false;
    amp__S->host_waits += (amp_check_devices(check) & ~(1 << AMP_CPU)) != 0;
    check->found_state = status ? AMP_FOUND_YES : AMP_FOUND_NO;
  }
  return check->found_state == AMP_FOUND_YES;
}

static int grad_drop_there(amp_tensor *leaf)
{
  amp_grad *grad = &leaf->ag->grad;
  if (!grad->check || !grad->check->drop || !amp__check_valid(grad)) return 0;
  amp_tensor *f = found_of(grad);
  if (!f || f->device == AMP_CPU) return 0;
  int status = amp__check_settle(grad->check);
  if (!status) status = amp__grad_materialize(leaf);
  if (status) return status;
  amp__plain plain = amp__plain_begin();
  int mark = amp__pool_mark();
  amp_tensor *bad = OP_NUMBER(ne, f, 0), *inputs[2] = { grad->value, bad };
  amp_attrs zero = amp__attrs();
  amp__attrs_float(&zero, 0);
  status = bad ? amp__dispatch(AMP_OP_masked_fill, AMP_INPLACE, inputs, 2, NULL, zero.v) : amp__S->err.code;
  amp__pool_release(mark);
  amp__plain_end(plain);
  return status;
}

int amp_check_holds(const amp_check *check, amp_tensor *const *leaf, int count)
{
  int held = 0;
  for (int i = 0; i < count; i++) {
    const amp_grad *grad = amp__grad_of(leaf[i]);
    if (!grad) continue;
    if (!amp__check_valid(grad) || grad->check->scaler != check->scaler || grad->check->epoch != check->epoch)
      return -1;
    held++;
  }
  return held;
}

int amp_check_devices(const amp_check *check)
{
  int bits = 0;
  for (int i = 0; i < check->nplace; i++) bits |= 1 << check->place[i].device;
  return bits;
}

int amp_check_tensor(amp_state *state, amp_ref *out, amp_check *check, int device, int index)
{
  AMP_ENTER(state);
  amp__plain plain = amp__plain_begin();
  amp_tensor *sum = NULL;
  int status = amp__check_settle(check);
  for (int i = 0; i < check->nplace && !status; i++) {
    amp_tensor *c = amp__cell_copy(check->place[i].found, device, index);
    if (!c) status = state->err.code;
    else if (!sum) sum = c;
    else {
      amp_tensor *inputs[2] = { sum, c };
      status = amp__dispatch(AMP_OP_add, AMP_INPLACE, inputs, 2, NULL, NULL);
      amp__free(c);
    }
  }
  if (!status && !sum && !(sum = amp__cell(AMP_FLOAT32, device, index, 0))) status = state->err.code;
  amp__plain_end(plain);
  if (status) amp__free(sum);
  else out->t = sum;
  return status;
}

int amp_check_found(amp_state *state, amp_check *check)
{
  AMP_ENTER(state);
  amp__plain plain = amp__plain_begin();
  int status = amp__check_settle(check);
  for (int i = 0; i < check->nplace && !status; i++) {
    double v;
    status = amp__cell_read(check->place[i].found, &v);
    if (!status) status = v != 0;
  }
  amp__plain_end(plain);
  return status;
}

int amp_grad_hold(const amp_ref *ref)
{
  const amp_grad *grad = ref->t ? amp__grad_of(ref->t) : NULL;
  if (grad == NULL) return 0;
  return amp_grad_check_hold(ref)
         | (grad->master != AMP_MASTER_NONE ? 0 : (amp__grad_origin(grad) & AMP_ORIGIN_KEPT) << 2);
}

void amp_grad_keep(const amp_ref *ref, int held)
{
  if (held & 3) amp_grad_check_keep(ref);
  if (held >> 2) amp_grad_origin_put(ref, held >> 2);
}

void amp__check_install(void)
{
  amp__hooks.check_free = amp_check_free;
  amp__hooks.grad_dropped = grad_dropped;
  amp__hooks.grad_drop_there = grad_drop_there;
}
