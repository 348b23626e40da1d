/*
** capture/note.c: what rooms below tell of a step while it is captured: tensors that a replay must find,
** storages that change, gradients, scales, hyper-parameters.
*/
#include <stdlib.h>
#include "capture/capture.h"
#include "capture/inside.h"
#include "base/pointer_map.h"

static bool hook_made(const amp_tensor *tensor)
{
  const amp_capture *capture = amp__S->priv->capture;
  return capture == NULL || amp__private_has(capture->pool, tensor->storage->block);
}

/* -- Noting --------------------------------------------------------------------- */

static noted *find(amp_capture *capture, const amp_storage *s)
{
  return &capture->notes[amp__pointer_find(capture->notes, sizeof *capture->notes, (size_t)capture->notes_cap, s)];
}

static noted *note(amp_capture *capture, amp_storage *storage)
{
  if (2 * (capture->nnoted + 1) > capture->notes_cap) {
    noted *was = capture->notes;
    int old = capture->notes_cap;
    capture->notes_cap = old ? old * 2 : 256;
    if ((capture->notes = calloc((size_t)capture->notes_cap, sizeof *capture->notes)) == NULL) {
      capture->notes = was;
      capture->notes_cap = old;
      capture->failed = true;
      return NULL;
    }
    amp__pointer_refill(capture->notes, (size_t)capture->notes_cap, was, (size_t)old, sizeof *was);
    free(was);
  }
  noted *k = find(capture, storage);
  if (k->storage == NULL) {
    k->storage = storage;
    amp__storage_retain(storage);
    capture->nnoted++;
  }
  return k;
}

static void hook_bump(amp_storage *storage)
{
  amp_capture *capture = amp__S->priv->capture;
  if (capture == NULL || amp__private_has(capture->pool, storage->block)) return;
  noted *k = note(capture, storage);
  if (k) k->bumps++;
}

static void hook_note(const amp_tensor *tensor)
{
  amp_capture *capture = amp__S->priv->capture;
  if (capture == NULL || tensor == NULL || tensor->device != capture->device
      || amp__private_has(capture->pool, tensor->storage->block))
    return;
  if (tensor->device_index != capture->index) capture->other = tensor->device_index + 1;
  noted *k = note(capture, tensor->storage);
  if (k == NULL) return;
  if (k->data == NULL) k->data = tensor->storage->data;
  if (k->leaf == NULL && (tensor->flags & AMP_T_REQUIRES_GRAD)) {
    k->leaf = (amp_tensor *)tensor;
    amp__retain(k->leaf);
  }
}

static void hook_gradient(amp_tensor *leaf, bool clear)
{
  amp_capture *capture = amp__S->priv->capture;
  if (capture == NULL) return;
  for (int i = 0; i < capture->ngradient; i++)
    if (capture->gradients[i].leaf == leaf) return;
  if (capture->ngradient == capture->gradients_cap) {
    int cap = capture->gradients_cap ? 2 * capture->gradients_cap : 64;
    gradient *more = realloc(capture->gradients, sizeof *more * (size_t)cap);
    if (more == NULL) {
      capture->failed = true;
      return;
    }
    capture->gradients = more;
    capture->gradients_cap = cap;
  }
  amp__retain(leaf);
  capture->gradients[capture->ngradient++]
      = (gradient){ leaf, leaf->ag && !clear ? leaf->ag->grad.value : NULL, NULL, clear, -1, 0 };
}

static void hook_scale(amp_scaler *scaler, amp_tensor *cell)
{
  amp_capture *capture = amp__S ? amp__S->priv->capture : NULL;
  if (capture == NULL) return;
  scaling *more = realloc(capture->scalings, sizeof *more * (size_t)(capture->nscaling + 1));
  if (more == NULL) {
    capture->failed = true;
    return;
  }
  capture->scalings = more;
  capture->scalings[capture->nscaling++] = (scaling){ scaler, cell, NULL };
  atomic_fetch_add(&scaler->refs, 1);
  if (cell) amp__retain(cell);
}

static void hook_shadow(amp_tensor *leaf)
{
  amp_capture *capture = amp__S->priv->capture;
  if (capture == NULL || leaf->device != capture->device) return;
  for (int i = 0; i < capture->nshadow; i++)
    if (capture->shadows[i].leaf == leaf && capture->shadows[i].copy == leaf->ag->shadow) return;
  shadow *more = realloc(capture->shadows, sizeof *more * (size_t)(capture->nshadow + 1));
  if (more == NULL) {
    capture->failed = true;
    return;
  }
  capture->shadows = more;
  capture->shadows[capture->nshadow++] = (shadow){ leaf, leaf->ag->shadow, false };
  amp__retain(leaf);
  amp__retain(leaf->ag->shadow);
}

static const amp_hyper *hook_hyper(const amp_optim *optim, int group, int ngroup)
{
  amp_capture *capture = amp__S->priv->capture;
  hyper *h = NULL;
  if (capture == NULL) return NULL;
  for (int i = 0; i < capture->nhyper && !h; i++)
    if (capture->hypers[i].optim == optim) h = &capture->hypers[i];
  if (h == NULL) {
    int64_t bytes = (int64_t)sizeof(amp_hyper) * ngroup;
    hyper *more = realloc(capture->hypers, sizeof *more * (size_t)(capture->nhyper + 1));
    if (more == NULL) {
      amp__nomem(sizeof *more);
      return NULL;
    }
    capture->hypers = more;
    h = &capture->hypers[capture->nhyper];
    *h = (hyper){ optim, ngroup, amp__tensor_make(AMP_UINT8, capture->device, capture->index, 1, &bytes),
                  calloc((size_t)ngroup, sizeof(amp_hyper)), true };
    if (h->cell == NULL || h->sent == NULL) {
      amp__free(h->cell);
      free(h->sent);
      if (h->cell) amp__nomem((size_t)bytes);
      return NULL;
    }
    capture->nhyper++;
  }
  return AMP_DATA(amp_hyper, h->cell) + group;
}

static void hook_talks(double timeout)
{
  amp_capture *capture = amp__S->priv->capture;
  if (capture) capture->talks = timeout;
}

/* -- What rooms below tell ------------------------------------------------------------ */

void amp__capture_install(void)
{
  amp__hooks.capture_bump = hook_bump;
  amp__hooks.capture_note = hook_note;
  amp__hooks.capture_gradient = hook_gradient;
  amp__hooks.capture_shadow = hook_shadow;
  amp__hooks.capture_hyper = hook_hyper;
  amp__hooks.capture_made = hook_made;
  amp__hooks.capture_scale = hook_scale;
  amp__hooks.capture_talks = hook_talks;
}
