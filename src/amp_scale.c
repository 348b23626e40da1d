/*
** amp_scale.c: dynamic loss scaling without reading anything back.
**
** A scaler owns four device cells (scale, 1/scale, growth tracker, overflows
** left) on the first device that asks; other devices get copies. An update puts
** the new scale and 1/scale into new cells, so whoever holds the old ones keeps
** the values that his iteration used: a *check* (amp_check.c), 1/scale and
** found-inf, or a recorded product. On the CPU, and once a captured step uses
** them, as replays need, cells keep their addresses and others get copies.
**
**   scaler cells --snapshot--> check { inv, found } <--counted-- amp_grad
**        ^                                 |
**        +------- amp_scaler_update -------+
**
** This file also makes the cells, and the mode in which ops are plain.
*/
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include "amp_compose.h"
#include "amp_scale.h"

/* -- Cells ------------------------------------------------------------------ */

amp__plain amp__plain_begin(void)
{
  amp__plain p = {amp__S->grad_mode, amp__S->autocast_on};
  amp__S->grad_mode = 0;
  amp__S->autocast_on = 0;
  return p;
}

void amp__plain_end(amp__plain p)
{
  amp__S->grad_mode = p.grad_mode;
  amp__S->autocast_on = p.autocast_on;
}

amp_tensor *amp__cell(int dtype, int device, int index, double value)
{
  amp_tensor *t;
  if (device == AMP_CPU) {
    t = amp__tensor_make(dtype, device, index, 0, NULL);
    if (!t) return NULL;
    if (dtype == AMP_FLOAT64) *AMP_DATA(double, t) = value;
    else *AMP_DATA(float, t) = (float)value;
    return t;
  }
  amp_tensor *out[AMP_MAX_OUT] = {0};
  amp_sl a = amp__sl();
  amp__sl_list(&a, 0, NULL);
  amp__sl_f(&a, value);
  amp__sl_i(&a, dtype);
  amp__sl_i(&a, device * 256 + index);
  return amp__dispatch(AMP_OP_full, 0, NULL, 0, out, a.v) ? NULL : out[0];
}

amp_tensor *amp__cell_copy(amp_tensor *t, int device, int index)
{
  if (t->device == AMP_CPU && device == AMP_CPU) {
    amp_tensor *c = amp__tensor_make(t->dtype, AMP_CPU, 0, 0, NULL);
    if (c) memcpy(amp__data(c), amp__data(t), amp__dtype_size[t->dtype]);
    return c;
  }
  amp_tensor *out[AMP_MAX_OUT] = {0};
  amp_sl a = amp__sl();
  bool here = t->device == device && t->device_index == index;
  amp__sl_i(&a, here ? 0 : device * 256 + index);
  return amp__dispatch(here ? AMP_OP_clone : AMP_OP_to_device, 0, &t, 1, out, a.v) ? NULL : out[0];
}

/* A cell of its own costs a launch; a strip of them costs one for all. Captured steps fill theirs at each replay. */
amp_tensor *amp__cell_zero(int device, int index)
{
  enum { STRIP = 64 };
  struct amp_state_private *p = amp__S->priv;
  if (device == AMP_CPU || amp__capture_here()) return amp__cell(AMP_FLOAT32, device, index, 0);
  if (!p->zeros || p->zeros->device != device || p->zeros->device_index != index || p->zeros_used == STRIP
      || p->zeros_stream != amp__stream_here(device, index)) {
    amp_tensor *out[AMP_MAX_OUT] = {0};
    amp_sl a = amp__sl();
    int64_t n = STRIP;
    amp__sl_list(&a, 1, &n);
    amp__sl_f(&a, 0);
    amp__sl_i(&a, AMP_FLOAT32);
    amp__sl_i(&a, device * 256 + index);
    if (amp__dispatch(AMP_OP_full, 0, NULL, 0, out, a.v)) return NULL;
    amp__free(p->zeros);
    p->zeros = out[0];
    p->zeros_used = 0;
    p->zeros_stream = amp__stream_here(device, index);
  }
  return amp__tensor_view(p->zeros, 0, NULL, NULL, p->zeros->offset + p->zeros_used++);
}

int amp__cell_read(amp_tensor *t, double *v)
{
  if (t->device == AMP_CPU) {
    *v = t->dtype == AMP_FLOAT64 ? *AMP_DATA(double, t) : *AMP_DATA(float, t);
    return 0;
  }
  amp_tensor *here = amp__on_cpu(t);
  if (!here) return amp__S->err.code;
  *v = amp__element(here, 0);
  amp__free(here);
  return 0;
}

/* -- Scaler ------------------------------------------------------------------ */

static int check_options(const amp_scaler_options *o)
{
  if (!(o->growth_factor >= 1) || isinf(o->growth_factor)) return amp__fail(AMP_E_VALUE, "growth_factor must be at least 1, got %g", o->growth_factor);
  if (!(o->backoff_factor > 0 && o->backoff_factor <= 1)) return amp__fail(AMP_E_VALUE, "backoff_factor must be in (0, 1], got %g", o->backoff_factor);
  if (o->growth_interval < 0) return amp__fail(AMP_E_VALUE, "growth_interval must be 0 (static) or more, got %lld", (long long)o->growth_interval);
  if (o->hysteresis < 1) return amp__fail(AMP_E_VALUE, "hysteresis must be at least 1, got %lld", (long long)o->hysteresis);
  if (o->min_scale > o->max_scale) return amp__fail(AMP_E_VALUE, "min_scale %g is above max_scale %g", o->min_scale, o->max_scale);
  return 0;
}

static int check_scale_value(double v)
{
  if (!(v > 0) || v > FLT_MAX || 1 / v > FLT_MAX) return amp__fail(AMP_E_VALUE, "a scale and 1 over it must be positive float32 numbers, got %g", v);
  return 0;
}

amp_scaler *amp_scaler_new(amp_state *S, const amp_scaler_options *o)
{
  AMP_ENTER(S);
  if (check_options(o) || check_scale_value(o->init_scale)) return NULL;
  amp_scaler *s = calloc(1, sizeof *s);
  if (!s) { amp__nomem(sizeof *s); return NULL; }
  s->refs = 1;
  s->o = *o;
  s->scale0 = (float)o->init_scale;
  s->serial = amp__scale_serial();
  amp__scale_known(s->scale0);
  s->hyst0 = (double)o->hysteresis;
  return s;
}

static void drop_copies(amp_scaler *s)
{
  for (int i = 0; i < s->nplace; i++) { amp__free(s->place[i].scale); amp__free(s->place[i].inv); }
  s->nplace = 0;
}

static void drop_cells(amp_scaler *s)
{
  drop_copies(s);
  amp__free(s->scale); amp__free(s->inv); amp__free(s->tracker); amp__free(s->hyst);
  s->scale = s->inv = s->tracker = s->hyst = NULL;
}

void amp_scaler_free(amp_scaler *s)
{
  if (!s || atomic_fetch_sub(&s->refs, 1) != 1) return;
  drop_cells(s);
  amp__scaler_forget(s);
  free(s->done);
  free(s);
}

int amp_scaler_set(amp_state *S, amp_scaler *s, const amp_scaler_options *o)
{
  AMP_ENTER(S);
  int rc = check_options(o);
  if (rc) return rc;
  double init = s->o.init_scale;
  s->o = *o;
  s->o.init_scale = init;
  return 0;
}

/* Make the cells, on the device that asks first. */
static int make_cells(amp_scaler *s, int device, int index)
{
  if (s->scale) return 0;
  s->scale = amp__cell(AMP_FLOAT32, device, index, s->scale0);
  s->inv = amp__cell(AMP_FLOAT32, device, index, 1.0 / s->scale0);
  s->tracker = amp__cell(AMP_FLOAT64, device, index, s->tracker0);
  s->hyst = amp__cell(AMP_FLOAT64, device, index, s->hyst0);
  if (device == AMP_CPU) s->fixed = true; /* a copy is no launch, and an update that makes nothing can't fail */
  if (s->scale && s->inv && s->tracker && s->hyst) return 0;
  drop_cells(s);
  return amp__S->err.code;
}

int amp__scaler_cells(amp_scaler *s, int device, int index, amp_tensor **scale, amp_tensor **inv)
{
  int rc = make_cells(s, device, index);
  if (rc) return rc;
  if (amp__capture_here()) s->fixed = true;
  if (s->scale->device == device && s->scale->device_index == index) { *scale = s->scale; *inv = s->inv; return 0; }
  int i = 0;
  while (i < s->nplace && !(s->place[i].device == device && s->place[i].index == index)) i++;
  if (i == s->nplace) {
    if (i == AMP_MAX_PLACES) return amp__fail(AMP_E_UNSUPPORTED, "a scaler serves at most %d devices", AMP_MAX_PLACES);
    amp_tensor *a = amp__cell_copy(s->scale, device, index), *b = a ? amp__cell_copy(s->inv, device, index) : NULL;
    if (!b) { amp__free(a); return amp__S->err.code; }
    s->place[i].device = (uint8_t)device; s->place[i].index = (uint8_t)index;
    s->place[i].scale = a; s->place[i].inv = b;
    s->nplace++;
  }
  *scale = s->place[i].scale;
  *inv = s->place[i].inv;
  return 0;
}

uint32_t amp__scaler_serial(const amp_scaler *s, int device)
{
  return s->fixed && device != AMP_CPU && !amp__capture_here() ? amp__scale_serial() : s->serial;
}

int amp_scaler_scale_tensor(amp_state *S, amp_ref *out, amp_scaler *s, int device, int index)
{
  AMP_ENTER(S);
  amp__plain p = amp__plain_begin();
  amp_tensor *scale = NULL, *inv = NULL;
  int rc = amp__scaler_cells(s, device, index, &scale, &inv);
  if (!rc && s->fixed && !(out->t = amp__cell_copy(scale, device, index))) rc = S->err.code;
  if (!rc && !s->fixed) {
    amp__retain(scale);
    out->t = scale;
  }
  if (!rc) {
    out->t->flags |= AMP_T_SCALE;
    out->t->scale_serial = amp__scaler_serial(s, device);
  }
  amp__plain_end(p);
  return rc;
}

int amp_scaler_keep(amp_state *S, amp_scaler *s)
{
  AMP_ENTER(S);
  if (s->fixed || s->scale == NULL) return 0;
  amp__plain p = amp__plain_begin();
  amp_tensor *a = amp__cell_copy(s->scale, s->scale->device, s->scale->device_index), *b = a ? amp__cell_copy(s->inv, s->inv->device, s->inv->device_index) : NULL;
  amp__plain_end(p);
  if (b == NULL) { amp__free(a); return S->err.code; }
  amp__free(s->scale); amp__free(s->inv);
  s->scale = a;
  s->inv = b;
  s->fixed = true;
  return 0;
}

int amp_scaler_get(amp_state *S, amp_scaler *s, double *scale, int64_t *tracker, int64_t *hysteresis_left)
{
  AMP_ENTER(S);
  double v = s->scale0, t = s->tracker0, h = s->hyst0;
  int rc = 0;
  if (s->scale) {
    S->host_waits++;
    amp__plain p = amp__plain_begin();
    if (scale) rc = amp__cell_read(s->scale, &v);
    if (!rc && tracker) rc = amp__cell_read(s->tracker, &t);
    if (!rc && hysteresis_left) rc = amp__cell_read(s->hyst, &h);
    amp__plain_end(p);
  }
  if (rc) return rc;
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
  amp_sl a = amp__sl();
  amp__sl_f(&a, v);
  return amp__dispatch(AMP_OP_fill, AMP_INPLACE, &cell, 1, NULL, a.v);
}

int amp_scaler_put(amp_state *S, amp_scaler *s, double scale, int64_t tracker, int64_t hysteresis_left)
{
  AMP_ENTER(S);
  int rc = check_scale_value(scale);
  if (rc) return rc;
  s->scale0 = (float)scale;
  s->serial = amp__scale_serial();
  amp__scale_known(s->scale0);
  if (tracker >= 0) s->tracker0 = (double)tracker;
  if (hysteresis_left >= 0) s->hyst0 = (double)hysteresis_left;
  if (!s->scale) return 0;
  amp__plain p = amp__plain_begin();
  if (!s->fixed) { /* others may hold the old ones */
    amp_tensor *a = amp__cell(AMP_FLOAT32, s->scale->device, s->scale->device_index, s->scale0);
    amp_tensor *b = amp__cell(AMP_FLOAT32, s->scale->device, s->scale->device_index, 1.0 / s->scale0);
    if (a && b) {
      amp__free(s->scale); amp__free(s->inv);
      s->scale = a;
      s->inv = b;
    } else {
      amp__free(a); amp__free(b);
      rc = S->err.code;
    }
  } else rc = put_cell(s->scale, s->scale0);
  if (!rc && s->fixed) rc = put_cell(s->inv, 1.0 / s->scale0);
  if (!rc && tracker >= 0) rc = put_cell(s->tracker, (double)tracker);
  if (!rc && hysteresis_left >= 0) rc = put_cell(s->hyst, (double)hysteresis_left);
  drop_copies(s);
  amp__plain_end(p);
  return rc;
}

void amp_scaler_next(amp_scaler *s)
{
  amp__scaler_forget(s);
  s->epoch++;
  s->serial = amp__scale_serial();
}

/* In a captured step: the gradients behind k's found-inf cell, if the update may look at them beside the step that fills it,
** after those n that it looks at anyway; how many. */
static int look_at(const amp_check *k, int device, int index, amp_tensor **look, int n, int64_t *bytes)
{
  int64_t more = 0;
  if (!amp__capture_here() || !amp__check_again_looks(k, device, index) || n + k->nlate > AMP_LOOK_MOST) return 0;
  for (int i = 0; i < k->nlate; i++) more += k->late[i].t->numel * amp__dtype_size[k->late[i].t->dtype];
  if (*bytes + more > AMP_LOOK_BYTES) return 0;
  *bytes += more;
  for (int i = 0; i < k->nlate; i++) {
    look[n + i] = k->late[i].t;
    amp__capture_note(look[n + i]);
  }
  return k->nlate;
}

int amp_scaler_update(amp_state *S, amp_scaler *s, amp_check *const *k, int n)
{
  AMP_ENTER(S);
  const float **found = NULL;
  amp_tensor **moved = NULL, *scale = NULL, *inv = NULL, *look[AMP_LOOK_MOST];
  int rc = 0, nf = 0, nm = 0, nl = 0, total = 0, home_device = AMP_CPU, home_index = 0;
  int64_t bytes = 0;
  amp__plain p = amp__plain_begin();
  for (int i = 0; i < n && !rc; i++) rc = amp__check_settle(k[i]);
  if (rc) goto out;
  for (int i = 0; i < n; i++) {
    if (!total && k[i]->nplace) { home_device = k[i]->place[0].device; home_index = k[i]->place[0].index; }
    total += k[i]->nplace;
  }
  if ((rc = make_cells(s, home_device, home_index))) goto out;
  found = malloc(sizeof *found * (size_t)(total + 1));
  moved = malloc(sizeof *moved * (size_t)(total + 1));
  if (!found || !moved) { rc = amp__nomem(sizeof *found * (size_t)total); goto out; }
  home_device = s->scale->device;
  home_index = s->scale->device_index;
  for (int i = 0; i < n; i++) {
    int more = look_at(k[i], home_device, home_index, look, nl, &bytes);
    nl += more;
    for (int j = 0; j < k[i]->nplace && !more; j++) {
      amp_tensor *f = k[i]->place[j].found;
      if (f->device != home_device || f->device_index != home_index) {
        if (!(f = amp__cell_copy(f, home_device, home_index))) { rc = S->err.code; goto out; }
        moved[nm++] = f;
      }
      found[nf++] = AMP_DATA(float, f);
    }
  }
  if (amp_unlikely(amp__capturing)) {
    amp_tensor *all[] = { s->scale, s->inv, s->tracker, s->hyst };
    for (int i = 0; i < 4; i++) amp__capture_note(all[i]);
    for (int i = 0; i < n; i++) for (int j = 0; j < k[i]->nplace; j++) amp__capture_note(k[i]->place[j].found);
  }
  for (int i = 0; i < n; i++) for (int j = 0; j < k[i]->nplace; j++) amp__touch(k[i]->place[j].found);
  amp__touch(s->scale); /* its other cells were made in the same stream */
  if (amp__capture_here()) s->fixed = true;
  if (!s->fixed && (!(scale = amp__tensor_make(AMP_FLOAT32, home_device, home_index, 0, NULL)) || !(inv = amp__tensor_make(AMP_FLOAT32, home_device, home_index, 0, NULL)))) {
    rc = S->err.code;
    goto out;
  }
  rc = amp__devices[home_device].scale_update(AMP_DATA(float, s->scale), AMP_DATA(float, s->inv), AMP_DATA(float, scale ? scale : s->scale),
                                              AMP_DATA(float, inv ? inv : s->inv), AMP_DATA(double, s->tracker), AMP_DATA(double, s->hyst), found, nf, look, nl, &s->o);
  if (!rc && scale) {
    amp_tensor *a = s->scale, *b = s->inv;
    s->scale = scale;
    s->inv = inv;
    scale = a;
    inv = b;
  }
  if (!rc) {
    drop_copies(s);
    amp_scaler_next(s);
    for (int i = 0; i < n; i++) amp__check_forget(k[i]);
  }
out:
  for (int i = 0; i < nm; i++) amp__free(moved[i]);
  amp__free(scale); amp__free(inv);
  free(found); free(moved);
  amp__plain_end(p);
  return rc;
}
