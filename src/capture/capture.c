/*
** capture/capture.c: a captured step: what a device queues while a function runs
** becomes a graph that is queued again at once, n replays being n steps.
**
**   begin -> [pool of its own; every launch noted by the device] -> end -> replay*
**
** What a replay needs to know of the host is noted meanwhile: where the tensors
** lie that were there before (a moved one is an error), which storages change
** (their versions go on), which optimizers stepped (their hyper-parameters lie in
** device memory and are sent anew when they differ), how many random numbers are
** drawn. A shadow that the step leaves valid is valid after a replay too.
** Tensors and storages noted are counted, so nothing a graph reads goes away.
** A gradient that the step leaves is its leaf's after each replay, even if it was
** cleared meanwhile. A step that fails while it is captured is thrown away; gradients it
** touched, which were not computed, become nil, and the generator is where it was.
*/
#include <stdlib.h>
#include "capture/inside.h"

/* -- Life ------------------------------------------------------------------------- */

void amp_capture_free(amp_capture *capture)
{
  if (capture == NULL) return;
  amp_state *state = amp__S;
  if (capture->graph) amp__devices[capture->device].capture_free(capture->index, capture->graph);
  for (int i = 0; i < capture->notes_cap; i++) {
    if (capture->notes[i].storage == NULL) continue;
    amp__storage_free(capture->notes[i].storage);
    amp__free(capture->notes[i].leaf);
  }
  for (int i = 0; i < capture->nhyper; i++) {
    amp__free(capture->hypers[i].cell);
    free(capture->hypers[i].sent);
  }
  for (int i = 0; i < capture->nargument; i++) amp__free(capture->arguments[i].to);
  for (int i = 0; i < capture->ngradient; i++) {
    amp__free(capture->gradients[i].leaf);
    amp__free(capture->gradients[i].left);
  }
  for (int i = 0; i < capture->nshadow; i++) {
    amp__free(capture->shadows[i].leaf);
    amp__free(capture->shadows[i].copy);
  }
  for (int i = 0; i < capture->nscaling; i++) {
    amp__free(capture->scalings[i].cell);
    amp__free(capture->scalings[i].last);
    amp_scaler_free(capture->scalings[i].scaler);
  }
  amp__free(capture->random);
  amp__private_drop(capture->pool);
  free(capture->notes);
  free(capture->hypers);
  free(capture->gradients);
  free(capture->shadows);
  free(capture->arguments);
  free(capture->scalings);
  free(capture);
  (void)state;
}

amp_capture *amp_capture_begin(amp_state *state, int device, int index, amp_tensor *const *own, int count)
{
  AMP_ENTER(state);
  int64_t two = 2;
  if (state->priv->capture) {
    amp__fail(AMP_E_STATE, "a step is being captured already");
    return NULL;
  }
  if (device == AMP_CPU || index < 0 || index >= amp_device_available(device) || !amp__devices[device].capture_begin) {
    amp__fail(AMP_E_DEVICE, "device %s:%d can't capture a step", amp_device_name(device), index + 1);
    return NULL;
  }
  amp__shadows_before_capture();
  amp_capture *capture = calloc(1, sizeof *capture);
  if (capture == NULL) {
    amp__nomem(sizeof *capture);
    return NULL;
  }
  capture->state = state;
  capture->device = device;
  capture->index = index;
  capture->casts = state->casts;
  capture->cached_casts = state->cached_casts;
  capture->seed = state->seed;
  capture->offset = state->rng_offset;
  if (count > 0 && (capture->arguments = calloc((size_t)count, sizeof *capture->arguments)) == NULL) {
    amp__nomem(sizeof *capture->arguments * (size_t)count);
    free(capture);
    return NULL;
  }
  for (; capture->nargument < count; capture->nargument++)
    if ((capture->arguments[capture->nargument].to = own[capture->nargument]) != NULL)
      amp__retain(own[capture->nargument]);
  if ((capture->random = amp__tensor_make(AMP_INT64, device, index, 1, &two)) == NULL
      || (capture->pool = amp__private_open(device, index)) == NULL
      || amp__devices[device].capture_begin(index, amp__data(capture->random), own, count) < 0) {
    amp_capture_free(capture);
    return NULL;
  }
  state->priv->capture = capture;
  __atomic_add_fetch(&amp__capturing, 1, __ATOMIC_RELAXED);
  return capture;
}

static int settle(amp_capture *capture)
{
  const char *name = amp_device_name(capture->device);
  if (capture->failed) return amp__nomem(sizeof(noted));
  if (capture->reseeded)
    return amp__fail(
        AMP_E_STATE,
        "the step sets the random generator, which replays would not: call amp.manual_seed or set_rng_state "
        "between steps");
  if (capture->other)
    return amp__fail(
        AMP_E_DEVICE,
        "the captured step works on %s:%d, and on %s:%d, of which replays would not: capture a step of one device only",
        name, capture->index + 1, name, capture->other);
  for (int i = 0; i < capture->ngradient; i++) {
    amp_tensor *now = capture->gradients[i].leaf->ag ? capture->gradients[i].leaf->ag->grad.value : NULL;
    if (capture->gradients[i].was && now != capture->gradients[i].was)
      return amp__fail(AMP_E_STATE,
                       "a parameter (%s) had a gradient when the captured step began, which the step replaced: clear "
                       "gradients inside the step",
                       amp__tensor_str(capture->gradients[i].leaf));
  }
  for (int i = 0; i < capture->ngradient; i++) {
    gradient *g = &capture->gradients[i];
    if ((g->left = g->leaf->ag ? g->leaf->ag->grad.value : NULL) != NULL) {
      const amp_tensor *carried = amp__grad_scale(&g->leaf->ag->grad);
      amp__retain(g->left);
      g->origin = amp__grad_origin(&g->leaf->ag->grad);
      for (int k = 0; k < capture->nscaling && carried && g->scale < 0; k++)
        if (capture->scalings[k].cell
            && (capture->scalings[k].cell == carried || amp__same_scale(capture->scalings[k].cell, carried)))
          g->scale = k;
    }
    if (!g->was && !g->cleared) amp__grad_clear(g->leaf); /* as it was */
  }
  for (int i = 0; i < capture->nshadow; i++) {
    amp_ag *ag = capture->shadows[i].leaf->ag;
    capture->shadows[i].right
        = ag && ag->shadow == capture->shadows[i].copy && ag->shadow_version == amp__version(capture->shadows[i].leaf);
    /* made by the step and dropped by it, as regions do where no optimizer owns it: each replay makes it anew */
    if (!(ag && ag->shadow == capture->shadows[i].copy)
        && amp__private_has(capture->pool, capture->shadows[i].copy->storage->block)) {
      amp__free(capture->shadows[i].leaf);
      amp__free(capture->shadows[i].copy);
      capture->shadows[i--] = capture->shadows[--capture->nshadow];
    }
  }
  return 0;
}

/* The shadow is right for what its leaf is now. */
static void follows(amp_ag *ag)
{
  ag->shadow_version = amp__version(ag->self);
  ag->shadow_stamp = amp__version(ag->shadow);
}

int amp_capture_end(amp_state *state, amp_capture *capture, int keep)
{
  AMP_ENTER(state);
  amp_error err = state->err;
  if (capture->ended) return 0;
  capture->ended = true;
  int ready = 0;
  for (int i = 0; i < capture->ngradient && keep && ready >= 0; i++)
    ready = amp__grad_materialize(capture->gradients[i].leaf); /* what the user reads is what replays write */
  if (ready < 0) err = state->err;
  keep = keep && ready >= 0;
  int status
      = amp__devices[capture->device].capture_end(capture->index, keep ? &capture->graph : NULL, &capture->draws);
  state->priv->capture = NULL;
  AMP_ASSERT(amp__capturing > 0 && state->priv->capture == NULL);
  __atomic_sub_fetch(&amp__capturing, 1, __ATOMIC_RELAXED);
  amp__private_shut(capture->pool);
  capture->casts = state->casts - capture->casts;
  capture->cached_casts = state->cached_casts - capture->cached_casts;
  capture->reseeded = state->seed != capture->seed || state->rng_offset < capture->offset;
  state->seed = capture->seed; /* nothing was drawn yet: replays do */
  state->rng_offset = capture->offset;
  if (status >= 0 && keep) status = settle(capture);
  if (status < 0 || !keep) { /* what was not run must not be seen */
    for (int i = 0; i < capture->ngradient; i++) amp__grad_clear(capture->gradients[i].leaf);
    if (!keep) state->err = err;
    if (ready < 0) status = ready;
  } else
    for (int i = 0; i < capture->notes_cap; i++) /* as if it had not run yet: the replay that follows counts */
      if (capture->notes[i].storage) capture->notes[i].storage->version -= (uint32_t)capture->notes[i].bumps;
  if (status >= 0 && keep)
    for (int i = 0; i < capture->nshadow; i++)
      if (capture->shadows[i].right) follows(capture->shadows[i].leaf->ag);
  return status;
}

int amp_capture_hyper(amp_state *state, amp_capture *capture, const amp_optim *optim, const amp_hyper *h, int count)
{
  AMP_ENTER(state);
  for (int i = 0; i < capture->nhyper; i++) {
    hyper *k = &capture->hypers[i];
    if (k->optim != optim) continue;
    if (k->ngroup != count)
      return amp__fail(AMP_E_STATE, "the optimizer had %d groups when the step was captured, now %d", k->ngroup, count);
    for (int g = 0; g < count; g++) {
      if (!k->fresh && memcmp(&k->sent[g], &h[g], sizeof *h) == 0) continue;
      int status
          = amp__devices[capture->device].upload(capture->index, AMP_DATA(amp_hyper, k->cell) + g, &h[g], sizeof *h);
      if (status < 0) return status;
      memcpy(&k->sent[g], &h[g], sizeof *h);
    }
    k->fresh = false;
  }
  return 0;
}

/* -- Gradients ------------------------------------------------------------------- */

/* A scale as a cell of its own, counted: it is not written any more. */
static amp_tensor *scale_now(const amp_capture *capture, amp_tensor *cell, uint32_t serial)
{
  amp__plain plain = amp__plain_begin();
  amp_tensor *tensor = amp__cell_copy(cell, capture->device, capture->index);
  amp__plain_end(plain);
  if (tensor) {
    tensor->flags |= AMP_T_SCALE;
    tensor->scale_serial = serial;
  }
  return tensor;
}

/* What the step adds to is brought to the scale that it multiplies by now. */
static int rescale(const amp_capture *capture, const gradient *g)
{
  const scaling *k = &capture->scalings[g->scale];
  amp_tensor *from = amp__grad_scale(&g->leaf->ag->grad);
  if (from == NULL || amp__scale_is(from, k->scaler->serial)) return 0;
  amp_tensor *to = scale_now(capture, k->scaler->scale, k->scaler->serial);
  int status = to ? amp__grad_rescale(g->leaf, to) : amp__S->err.code;
  amp__free(to);
  return status;
}

/* What a replay has left carries the scale that it multiplied by. */
static int carry(const amp_capture *capture, const gradient *g)
{
  amp_grad *left = &g->leaf->ag->grad;
  if (g->scale >= 0) {
    scaling *k = &capture->scalings[g->scale];
    if (k->last == NULL || !amp__scale_is(k->last, k->scaler->serial)) {
      amp_tensor *tensor = scale_now(capture, k->cell, k->scaler->serial);
      if (tensor == NULL) return amp__S->err.code;
      amp__free(k->last);
      k->last = tensor;
    }
    amp__grad_scale_put(left, k->last);
  }
  amp__grad_from(left, g->origin);
  return 0;
}

/* Is there what the step adds to: nothing, as when it was captured, or what it left? What it clears itself may be
** anything. */
static int gradients_before(const amp_capture *capture)
{
  for (int i = 0; i < capture->ngradient; i++) {
    const gradient *g = &capture->gradients[i];
    amp_tensor *now = g->leaf->ag ? g->leaf->ag->grad.value : NULL;
    int status = 0;
    if (g->cleared) continue;
    if (g->was && now == NULL) { /* cleared meanwhile: it is added to zeros */
      if ((status = amp__grad_adopt(g->leaf, g->left)) == 0) status = amp__optim_zero(g->left);
    } else if (now != (g->was ? g->left : NULL))
      return amp__fail(
          AMP_E_STATE,
          "a parameter (%s) has another gradient than when the step was captured, %s: clear gradients inside "
          "the step, or before each call; to add up over calls, let them be zeros when it is captured "
          "(opt:zero_grad{set_to_none = false})",
          amp__tensor_str(g->leaf), g->was ? "which the step adds to" : "when it had none");
    else if (now && (status = amp__grad_materialize(g->leaf)) == 0 && g->scale >= 0) status = rescale(capture, g);
    if (status < 0) return status;
  }
  return 0;
}

static int gradients_after(const amp_capture *capture)
{
  for (int i = 0; i < capture->ngradient; i++) {
    const gradient *g = &capture->gradients[i];
    int status = amp__grad_adopt(g->leaf, g->left);
    if (status == 0 && g->left) {
      amp__bump(g->left);
      status = carry(capture, g);
    }
    if (status < 0) return status;
  }
  for (int i = 0; i < capture->nscaling; i++)
    if (capture->scalings[i].cell == NULL) capture->scalings[i].scaler->serial = amp__scale_serial();
  return 0;
}

/* -- Arguments ------------------------------------------------------------------- */

static bool same_layout(const amp_tensor *a, const amp_tensor *b)
{
  if (a->dtype != b->dtype || a->device_index != b->device_index || !(a->flags & b->flags & AMP_T_DENSE)) return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->stride[i] < 0 || (a->size[i] > 1 && a->stride[i] != b->stride[i])) return false;
  return true;
}

/* What lies in memory of a captured step changes at its replays, which are not counted */
static bool told_apart(const amp_storage *s)
{
  return s->mark != 0 && !(s->flags & (AMP_S_EXPOSED | AMP_S_FOREIGN)) && !amp__private_any(s->block);
}

static int copy(amp_tensor *own, amp_tensor *passed)
{
  amp__plain plain = amp__plain_begin();
  amp_tensor *inputs[2] = { amp__tensor_alias(own), passed };
  int status = inputs[0] ? amp__dispatch(AMP_OP_copy, AMP_INPLACE, inputs, 2, NULL, NULL) : amp__S->err.code;
  amp__free(inputs[0]);
  amp__plain_end(plain);
  return status;
}

/* Let the next replay find what is passed in its own tensor */
static int take(amp_capture *capture, amp_start *start, argument *slot, amp_tensor *passed)
{
  static _Atomic uint32_t last;
  amp_storage *from = passed->storage;
  amp_tensor *own = slot->to;
  if (own == passed || own->numel == 0) return 0;
  if (own->device != capture->device || !amp__same_size(own, passed))
    return amp__fail(AMP_E_SHAPE, "an argument of the captured step is %s, it was captured with %s",
                     amp__tensor_str(passed), amp__tensor_str(own));
  bool fits = passed->device == capture->device && own->device_index == capture->index && same_layout(own, passed);
  if (fits && told_apart(from) && slot->from == from && slot->mark == from->mark && slot->version == from->version
      && slot->data == amp__data(passed) && slot->own == amp__version(own))
    return 0;
  if (!fits || start->n == AMP_START_MOST) {
    int status = copy(own, passed);
    slot->from = NULL;
    return status;
  }
  AMP_ASSERT(start->n < AMP_START_MOST && slot->to == own);
  start->copy[start->n].argument = (int)(slot - capture->arguments);
  start->copy[start->n].to = amp__data(own);
  start->copy[start->n].from = amp__data(passed);
  start->copy[start->n++].bytes = (size_t)own->numel * amp__dtype_size[own->dtype];
  amp__touch(passed);
  amp__bump(own);
  if (from->mark == 0 && (from->mark = ++last) == 0) from->mark = ++last;
  *slot = (argument){ own, from, amp__data(passed), from->mark, from->version, amp__version(own) };
  return 0;
}

/* *passed, or a copy of it if it lies in a tensor that the arguments before it, or beside it, are put into. Counted.
** NULL: error */
static amp_tensor *apart(const amp_capture *capture, int i, amp_tensor *passed)
{
  for (int j = 0; j < capture->nargument && passed != capture->arguments[i].to; j++)
    if (capture->arguments[j].to && capture->arguments[j].to->storage == passed->storage) return amp__raw_clone(passed);
  amp__retain(passed);
  return passed;
}

/* What was to be copied was not */
static void forget(amp_capture *capture)
{
  for (int i = 0; i < capture->nargument; i++) capture->arguments[i].from = NULL;
}

int amp_capture_replay(amp_state *state, amp_capture *capture, amp_tensor *const *passed, int count)
{
  AMP_ENTER(state);
  amp_start start;
  if (capture->graph == NULL) return amp__fail(AMP_E_STATE, "nothing was captured");
  if (count != capture->nargument)
    return amp__fail(AMP_E_ARGUMENT, "a replay gets %d arguments, the step was captured with %d", count,
                     capture->nargument);
  memset(&start, 0, sizeof start); /* compared by its bytes */
  for (int i = 0; i < capture->notes_cap; i++)
    if ((capture->notes[i].data && capture->notes[i].storage->data != capture->notes[i].data)
        || (capture->notes[i].leaf && capture->notes[i].leaf->storage != capture->notes[i].storage))
      return amp__fail(
          AMP_E_STATE,
          "a tensor of the captured step has moved (an optimizer took a parameter in, or the model went to "
          "another device or dtype): capture the step anew");
  for (int i = 0; i < capture->nshadow;
       i++) { /* a parameter changed by hand: its low copy, which the graph reads, follows */
    amp_ag *ag = capture->shadows[i].leaf->ag;
    if (ag && ag->shadow == capture->shadows[i].copy && ag->shadow_version != amp__version(capture->shadows[i].leaf)
        && !amp__shadow(capture->shadows[i].leaf, capture->shadows[i].copy->dtype))
      return state->err.code;
    if (ag == NULL || ag->shadow != capture->shadows[i].copy)
      return amp__fail(AMP_E_STATE,
                       "a parameter's low-precision copy is no longer the captured step's: capture the step anew");
  }
  int status = gradients_before(capture);
  if (status < 0) return status;
  amp_tensor *few[AMP_START_MOST], **from = count <= AMP_START_MOST ? few : malloc(sizeof *from * (size_t)count);
  int nfrom = 0;
  if (from == NULL) return amp__nomem(sizeof *from * (size_t)count);
  for (; nfrom < count && status == 0; nfrom++) {
    from[nfrom] = NULL;
    if (capture->arguments[nfrom].to && passed[nfrom] && (from[nfrom] = apart(capture, nfrom, passed[nfrom])) == NULL)
      status = state->err.code;
  }
  for (int i = 0; i < count && status == 0; i++)
    if (from[i]) status = take(capture, &start, &capture->arguments[i], from[i]);
  if (capture->draws) {
    start.cell = AMP_DATA(uint64_t, capture->random);
    start.random[0] = state->seed;
    start.random[1] = state->rng_offset;
  }
  if (status == 0) status = amp__devices[capture->device].capture_replay(capture->index, capture->graph, &start);
  if (status == 0 && capture->talks > 0) status = amp__hooks.collectives_played(capture->index, capture->talks);
  for (int i = 0; i < nfrom; i++) amp__free(from[i]); /* behind the launch that reads them */
  if (from != few) free(from);
  if (status < 0) {
    forget(capture);
    return status;
  }
  state->rng_offset += capture->draws;
  for (int i = 0; i < capture->notes_cap; i++)
    if (capture->notes[i].storage) capture->notes[i].storage->version += (uint32_t)capture->notes[i].bumps;
  for (int i = 0; i < capture->nshadow; i++) {
    amp_ag *ag = capture->shadows[i].leaf->ag;
    if (capture->shadows[i].right && ag && ag->shadow == capture->shadows[i].copy) follows(ag);
  }
  state->casts += capture->casts;
  state->cached_casts += capture->cached_casts;
  return gradients_after(capture);
}
