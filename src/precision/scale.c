/*
** precision/scale.c: dynamic loss scaling without reading anything back.
**
** A scaler owns four device cells (scale, 1/scale, growth tracker, overflows
** left) on the first device that asks; other devices get copies. An update puts
** the new scale and 1/scale into new cells, so the old ones keep
** the values of the iteration that used them: a *check* (precision/check.c), 1/scale and
** found-inf, or a recorded product. On the CPU, and once a captured step uses
** them, as replays need, cells keep their addresses and others get copies.
**
**   scaler cells --snapshot--> check { inv, found } <--counted-- amp_grad
**        ^                                 |
**        +------- amp_scaler_update -------+
*/
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include "dispatch/op_builder.h"
#include "precision/scale.h"

/* -- Scaler ------------------------------------------------------------------ */

static int check_options(const amp_scaler_options *options)
{
  if (!(options->growth_factor >= 1) || isinf(options->growth_factor))
    return amp__fail(AMP_E_VALUE, "growth_factor must be at least 1, got %g", options->growth_factor);
  if (!(options->backoff_factor > 0 && options->backoff_factor <= 1))
    return amp__fail(AMP_E_VALUE, "backoff_factor must be in (0, 1], got %g", options->backoff_factor);
  if (options->growth_interval < 0)
    return amp__fail(AMP_E_VALUE, "growth_interval must be 0 (static) or more, got %lld",
                     (long long)options->growth_interval);
  if (options->hysteresis < 1)
    return amp__fail(AMP_E_VALUE, "hysteresis must be at least 1, got %lld", (long long)options->hysteresis);
  if (options->min_scale > options->max_scale)
    return amp__fail(AMP_E_VALUE, "min_scale %g is above max_scale %g", options->min_scale, options->max_scale);
  return 0;
}

static int check_scale_value(double v)
{
  if (!(v > 0) || v > FLT_MAX || 1 / v > FLT_MAX)
    return amp__fail(AMP_E_VALUE, "a scale and 1 over it must be positive float32 numbers, got %g", v);
  return 0;
}

amp_scaler *amp_scaler_new(amp_state *state, const amp_scaler_options *options)
{
  AMP_ENTER(state);
  if (check_options(options) || check_scale_value(options->init_scale)) return NULL;
  amp_scaler *scaler = calloc(1, sizeof *scaler);
  if (!scaler) {
    amp__nomem(sizeof *scaler);
    return NULL;
  }
  scaler->refs = 1;
  scaler->options = *options;
  scaler->scale0 = (float)options->init_scale;
  scaler->serial = amp__scale_serial();
  amp__scale_known(scaler->scale0);
  scaler->hyst0 = (double)options->hysteresis;
  return scaler;
}

static void drop_copies(amp_scaler *scaler)
{
  for (int i = 0; i < scaler->nplace; i++) {
    amp__free(scaler->place[i].scale);
    amp__free(scaler->place[i].inv);
  }
  scaler->nplace = 0;
}

static void drop_cells(amp_scaler *scaler)
{
  drop_copies(scaler);
  amp__free(scaler->scale);
  amp__free(scaler->inv);
  amp__free(scaler->tracker);
  amp__free(scaler->hyst);
  scaler->scale = scaler->inv = scaler->tracker = scaler->hyst = NULL;
}

void amp_scaler_free(amp_scaler *scaler)
{
  AMP_ASSERT(scaler == NULL || scaler->refs > 0);
  if (!scaler || atomic_fetch_sub(&scaler->refs, 1) != 1) return;
  drop_cells(scaler);
  amp__scaler_forget(scaler);
  free(scaler->done);
  free(scaler);
}

int amp_scaler_set(amp_state *state, amp_scaler *scaler, const amp_scaler_options *options)
{
  AMP_ENTER(state);
  int status = check_options(options);
  if (status) return status;
  double init = scaler->options.init_scale;
  scaler->options = *options;
  scaler->options.init_scale = init;
  return 0;
}

/* Make the cells, on the device that asks first. */
static int make_cells(amp_scaler *scaler, int device, int index)
{
  if (scaler->scale) return 0;
  scaler->scale = amp__cell(AMP_FLOAT32, device, index, scaler->scale0);
  scaler->inv = amp__cell(AMP_FLOAT32, device, index, 1.0 / scaler->scale0);
  scaler->tracker = amp__cell(AMP_FLOAT64, device, index, scaler->tracker0);
  scaler->hyst = amp__cell(AMP_FLOAT64, device, index, scaler->hyst0);
  if (device == AMP_CPU) scaler->fixed = true; /* a copy is no launch, and an update that makes nothing can't fail */
  if (scaler->scale && scaler->inv && scaler->tracker && scaler->hyst) return 0;
  drop_cells(scaler);
  return amp__S->err.code;
}

int amp__scaler_cells(amp_scaler *scaler, int device, int index, amp_tensor **scale, amp_tensor **inv)
{
  int status = make_cells(scaler, device, index);
  if (status) return status;
  if (amp__capture_here()) scaler->fixed = true;
  if (scaler->scale->device == device && scaler->scale->device_index == index) {
    *scale = scaler->scale;
    *inv = scaler->inv;
    return 0;
  }
  int i = 0;
  while (i < scaler->nplace && !(scaler->place[i].device == device && scaler->place[i].index == index)) i++;
  if (i == scaler->nplace) {
    if (i == AMP_MAX_PLACES) return amp__fail(AMP_E_UNSUPPORTED, "a scaler serves at most %d devices", AMP_MAX_PLACES);
    amp_tensor *a = amp__cell_copy(scaler->scale, device, index),
               *b = a ? amp__cell_copy(scaler->inv, device, index) : NULL;
    if (!b) {
      amp__free(a);
      return amp__S->err.code;
    }
    scaler->place[i].device = (uint8_t)device;
    scaler->place[i].index = (uint8_t)index;
    scaler->place[i].scale = a;
    scaler->place[i].inv = b;
    scaler->nplace++;
  }
  *scale = scaler->place[i].scale;
  *inv = scaler->place[i].inv;
  return 0;
}

uint32_t amp__scaler_serial(const amp_scaler *scaler, int device)
{
  return scaler->fixed && device != AMP_CPU && !amp__capture_here() ? amp__scale_serial() : scaler->serial;
}

int amp_scaler_scale_tensor(amp_state *state, amp_ref *out, amp_scaler *scaler, int device, int index)
{
  AMP_ENTER(state);
  amp__plain plain = amp__plain_begin();
  amp_tensor *scale = NULL, *inv = NULL;
  int status = amp__scaler_cells(scaler, device, index, &scale, &inv);
  if (!status && scaler->fixed && !(out->t = amp__cell_copy(scale, device, index))) status = state->err.code;
  if (!status && !scaler->fixed) {
    amp__retain(scale);
    out->t = scale;
  }
  if (!status) {
    out->t->flags |= AMP_T_SCALE;
    out->t->scale_serial = amp__scaler_serial(scaler, device);
    amp__capture_scale(scaler, out->t);
  }
  amp__plain_end(plain);
  return status;
}

int amp_scaler_keep(amp_state *state, amp_scaler *scaler)
{
  AMP_ENTER(state);
  if (scaler->fixed || scaler->scale == NULL) return 0;
  amp__plain plain = amp__plain_begin();
  amp_tensor *a = amp__cell_copy(scaler->scale, scaler->scale->device, scaler->scale->device_index),
             *b = a ? amp__cell_copy(scaler->inv, scaler->inv->device, scaler->inv->device_index) : NULL;
  amp__plain_end(plain);
  if (b == NULL) {
    amp__free(a);
    return state->err.code;
  }
  amp__free(scaler->scale);
  amp__free(scaler->inv);
  scaler->scale = a;
  scaler->inv = b;
  scaler->fixed = true;
  return 0;
}

int amp_scaler_get(amp_state *state, amp_scaler *scaler, double *scale, int64_t *tracker, int64_t *hysteresis_left)
{
  AMP_ENTER(state);
  double v = scaler->scale0, t = scaler->tracker0, h = scaler->hyst0;
  int status = 0;
  if (scaler->scale) {
    state->host_waits++;
    amp__plain plain = amp__plain_begin();
    if (scale) status = amp__cell_read(scaler->scale, &v);
    if (!status && tracker) status = amp__cell_read(scaler->tracker, &t);
    if (!status && hysteresis_left) status = amp__cell_read(scaler->hyst, &h);
    amp__plain_end(plain);
  }
  if (status) return status;
  if (scale) amp__scale_known(*scale = amp__one_nan(v));
  if (tracker) *tracker = (int64_t)t;
  if (hysteresis_left) *hysteresis_left = (int64_t)h;
  return 0;
}

static int put_cell(amp_tensor *cell, double v)
{
  if (cell->device == AMP_CPU) {
    if (cell->dtype == AMP_FLOAT64) *AMP_DATA(double, cell) = v;
    else *AMP_DATA(float, cell) = (float)v;
    return 0;
  }
  amp_attrs attrs = amp__attrs();
  amp__attrs_float(&attrs, v);
  return amp__dispatch(AMP_OP_fill, AMP_INPLACE, &cell, 1, NULL, attrs.v);
}

int amp_scaler_put(amp_state *state, amp_scaler *scaler, double scale, int64_t tracker, int64_t hysteresis_left)
{
  AMP_ENTER(state);
  int status = check_scale_value(scale);
  if (status) return status;
  scaler->scale0 = (float)scale;
  scaler->serial = amp__scale_serial();
  amp__scale_known(scaler->scale0);
  if (tracker >= 0) scaler->tracker0 = (double)tracker;
  if (hysteresis_left >= 0) scaler->hyst0 = (double)hysteresis_left;
  if (!scaler->scale) return 0;
  amp__plain plain = amp__plain_begin();
  if (!scaler->fixed) { /* others may hold the old ones */
    amp_tensor *a = amp__cell(AMP_FLOAT32, scaler->scale->device, scaler->scale->device_index, scaler->scale0);
    amp_tensor *b = amp__cell(AMP_FLOAT32, scaler->scale->device, scaler->scale->device_index, 1.0 / scaler->scale0);
    if (a && b) {
      amp__free(scaler->scale);
      amp__free(scaler->inv);
      scaler->scale = a;
      scaler->inv = b;
    } else {
      amp__free(a);
      amp__free(b);
      status = state->err.code;
    }
  } else status = put_cell(scaler->scale, scaler->scale0);
  if (!status && scaler->fixed) status = put_cell(scaler->inv, 1.0 / scaler->scale0);
  if (!status && tracker >= 0) status = put_cell(scaler->tracker, (double)tracker);
  if (!status && hysteresis_left >= 0) status = put_cell(scaler->hyst, (double)hysteresis_left);
  drop_copies(scaler);
  amp__plain_end(plain);
  return status;
}

void amp_scaler_next(amp_scaler *scaler)
{
  amp__scaler_forget(scaler);
  scaler->epoch++;
  scaler->serial = amp__scale_serial();
  amp__capture_scale(scaler, NULL);
}

/* In a captured step: the gradients behind the check's found-inf cell, if the update may look at them beside the step
** that fills it, after those count that it looks at anyway; how many. */
static int look_at(const amp_check *check, int device, int index, amp_tensor **look, int count, int64_t *bytes)
{
  int64_t more = 0;
  if (!amp__capture_here() || !amp__check_again_looks(check, device, index) || count + check->npending > AMP_LOOK_MOST)
    return 0;
  for (int i = 0; i < check->npending; i++)
    more += check->pending[i].tensor->numel * amp__dtype_size[check->pending[i].tensor->dtype];
  if (*bytes + more > AMP_LOOK_BYTES) return 0;
  *bytes += more;
  for (int i = 0; i < check->npending; i++) {
    look[count + i] = check->pending[i].tensor;
    amp__capture_note(look[count + i]);
  }
  return check->npending;
}

/* The cells that an update reads, where the scaler's own are. */
typedef struct update_cells {
  int device, index;
  const float **found;
  amp_tensor **moved; /* copies of cells of other devices; owned */
  amp_tensor *look[AMP_LOOK_MOST];
  int nfound, nmoved, nlook;
} update_cells;

/* On the device of the first check that has a cell, unless the scaler has its own. */
static int update_home(amp_scaler *scaler, amp_check *const *k, int count, update_cells *u)
{
  int device = AMP_CPU, index = 0, total = 0;
  for (int i = 0; i < count; i++) {
    if (!total && k[i]->nplace) {
      device = k[i]->place[0].device;
      index = k[i]->place[0].index;
    }
    total += k[i]->nplace;
  }
  int status = make_cells(scaler, device, index);
  if (status) return status;
  u->device = scaler->scale->device;
  u->index = scaler->scale->device_index;
  u->found = malloc(sizeof *u->found * (size_t)(total + 1));
  u->moved = malloc(sizeof *u->moved * (size_t)(total + 1));
  return u->found && u->moved ? 0 : amp__nomem(sizeof *u->found * (size_t)total);
}

static int collect_cells(amp_check *const *k, int count, update_cells *u)
{
  int64_t bytes = 0;
  for (int i = 0; i < count; i++) {
    int more = look_at(k[i], u->device, u->index, u->look, u->nlook, &bytes);
    u->nlook += more;
    for (int j = 0; j < k[i]->nplace && !more; j++) {
      amp_tensor *f = k[i]->place[j].found;
      if (f->device != u->device || f->device_index != u->index) {
        if (!(f = amp__cell_copy(f, u->device, u->index))) return amp__S->err.code;
        u->moved[u->nmoved++] = f;
      }
      u->found[u->nfound++] = AMP_DATA(float, f);
    }
  }
  return 0;
}

static void note_cells(amp_scaler *scaler, amp_check *const *k, int count)
{
  if (amp_unlikely(amp__capturing)) {
    amp_tensor *all[] = { scaler->scale, scaler->inv, scaler->tracker, scaler->hyst };
    for (int i = 0; i < 4; i++) amp__capture_note(all[i]);
    for (int i = 0; i < count; i++)
      for (int j = 0; j < k[i]->nplace; j++) amp__capture_note(k[i]->place[j].found);
  }
  for (int i = 0; i < count; i++)
    for (int j = 0; j < k[i]->nplace; j++) amp__touch(k[i]->place[j].found);
  amp__touch(scaler->scale); /* its other cells were made in the same stream */
}

/* The device's update, into new cells unless they are fixed. */
static int update(amp_scaler *scaler, update_cells *u)
{
  amp_tensor *scale = scaler->scale, *inv = scaler->inv;
  if (amp__capture_here()) scaler->fixed = true;
  if (!scaler->fixed) {
    if (!(scale = amp__tensor_make(AMP_FLOAT32, u->device, u->index, 0, NULL))) return amp__S->err.code;
    if (!(inv = amp__tensor_make(AMP_FLOAT32, u->device, u->index, 0, NULL))) {
      amp__free(scale);
      return amp__S->err.code;
    }
  }
  int status = amp__devices[u->device].scale_update(AMP_DATA(float, scaler->scale), AMP_DATA(float, scaler->inv),
                                                    AMP_DATA(float, scale), AMP_DATA(float, inv),
                                                    AMP_DATA(double, scaler->tracker), AMP_DATA(double, scaler->hyst),
                                                    u->found, u->nfound, u->look, u->nlook, &scaler->options);
  if (scaler->fixed) return status;
  amp__free(status ? scale : scaler->scale);
  amp__free(status ? inv : scaler->inv);
  if (status) return status;
  scaler->scale = scale;
  scaler->inv = inv;
  return 0;
}

int amp_scaler_update(amp_state *state, amp_scaler *scaler, amp_check *const *k, int count)
{
  AMP_ENTER(state);
  if (amp__trace_refuse("a scaler is updated", NULL) < 0) return state->err.code;
  update_cells u = { 0 };
  int status = 0;
  amp__plain plain = amp__plain_begin();
  for (int i = 0; i < count && !status; i++) status = amp__check_settle(k[i]);
  if (!status) status = update_home(scaler, k, count, &u);
  if (!status) status = collect_cells(k, count, &u);
  if (!status) {
    note_cells(scaler, k, count);
    status = update(scaler, &u);
  }
  if (!status) {
    drop_copies(scaler);
    amp_scaler_next(scaler);
    for (int i = 0; i < count; i++) amp__check_forget(k[i]);
  }
  for (int i = 0; i < u.nmoved; i++) amp__free(u.moved[i]);
  free(u.found);
  free(u.moved);
  amp__plain_end(plain);
  return status;
}
