/*
** amp_scale.c: dynamic loss scaling without reading anything back.
**
** A scaler owns four device cells (scale, 1/scale, growth tracker, overflows
** left) on the first device that asks; other devices get copies. They keep
** their addresses for life, so a captured step can be replayed. What a gradient
** refers to is never one of them but a *check*: the snapshots of 1/scale and
** found-inf that one iteration uses.
**
**   scaler cells --snapshot--> check { inv, found } <--counted-- amp_grad
**        ^                                 |
**        +------- amp_scaler_update -------+
**
** Unscaling reads a gradient once, for its finite check, and leaves `inv` on its
** record as the pending factor; only a tensor that the user already holds is
** multiplied in place. A check stands until the gradient's storage changes.
** amp_clip.c clips the same records; amp_optim.c asks amp__check_cell and steps.
*/
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include "amp_compose.h"
#include "amp_scale.h"

enum { MAX_PLACES = 17 }; /* the CPU and 16 cards */

struct amp_scaler {
  _Atomic int32_t refs;
  amp_scaler_options o;
  uint32_t epoch;                 /* updates so far: the iteration */
  double scale0, tracker0, hyst0; /* until the cells are there */
  amp_tensor *scale, *inv, *tracker, *hyst; /* 0-d, on the home device; NULL: not yet */
  int nplace;
  struct { uint8_t device, index; amp_tensor *scale, *inv; } place[MAX_PLACES]; /* copies elsewhere */
};

struct amp_check {
  _Atomic int32_t refs;
  amp_scaler *s;
  uint32_t epoch; /* of s when made */
  bool raw;       /* looked at gradients without unscaling them first */
  bool drop;      /* on overflow the user sees no gradients */
  int nplace;
  struct { uint8_t device, index; amp_tensor *inv, *found; } place[MAX_PLACES];
};

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

/* The number in a cell; waits for a device. */
static int cell_read(amp_tensor *t, double *v)
{
  if (t->device == AMP_CPU) {
    *v = t->dtype == AMP_FLOAT64 ? *AMP_DATA(double, t) : *AMP_DATA(float, t);
    return 0;
  }
  amp_ref r = {t};
  return amp_item(amp__S, &r, v);
}

static amp_tensor *cell_mul(amp_tensor *a, amp_tensor *b)
{
  if (a->device == AMP_CPU) return amp__cell(AMP_FLOAT32, AMP_CPU, 0, (double)*AMP_DATA(float, a) * *AMP_DATA(float, b));
  amp_tensor *out[AMP_MAX_OUT] = {0}, *in[2] = {a, b};
  return amp__dispatch(AMP_OP_mul, 0, in, 2, out, NULL) ? NULL : out[0];
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
  if (!(v > 0) || v > FLT_MAX || (float)v == 0) return amp__fail(AMP_E_VALUE, "a scale must be a positive float32 number, got %g", v);
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
  if (s->scale && s->inv && s->tracker && s->hyst) return 0;
  drop_cells(s);
  return amp__S->err.code;
}

/* Scale and 1/scale as cells of a device, borrowed. */
static int cells_on(amp_scaler *s, int device, int index, amp_tensor **scale, amp_tensor **inv)
{
  int rc = make_cells(s, device, index);
  if (rc) return rc;
  if (s->scale->device == device && s->scale->device_index == index) { *scale = s->scale; *inv = s->inv; return 0; }
  int i = 0;
  while (i < s->nplace && !(s->place[i].device == device && s->place[i].index == index)) i++;
  if (i == s->nplace) {
    if (i == MAX_PLACES) return amp__fail(AMP_E_UNSUPPORTED, "a scaler serves at most %d devices", MAX_PLACES);
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

int amp_scaler_scale_tensor(amp_state *S, amp_ref *out, amp_scaler *s, int device, int index)
{
  AMP_ENTER(S);
  amp__plain p = amp__plain_begin();
  amp_tensor *scale = NULL, *inv = NULL;
  int rc = cells_on(s, device, index, &scale, &inv);
  if (!rc && !(out->t = amp__cell_copy(scale, device, index))) rc = S->err.code;
  amp__plain_end(p);
  return rc;
}

int amp_scaler_get(amp_state *S, amp_scaler *s, double *scale, int64_t *tracker, int64_t *hysteresis_left)
{
  AMP_ENTER(S);
  double v = s->scale0, t = s->tracker0, h = s->hyst0;
  int rc = 0;
  if (s->scale) {
    S->host_waits++;
    amp__plain p = amp__plain_begin();
    rc = cell_read(s->scale, &v);
    if (!rc && tracker) rc = cell_read(s->tracker, &t);
    if (!rc && hysteresis_left) rc = cell_read(s->hyst, &h);
    amp__plain_end(p);
  }
  if (rc) return rc;
  if (scale) *scale = v;
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
  if (tracker >= 0) s->tracker0 = (double)tracker;
  if (hysteresis_left >= 0) s->hyst0 = (double)hysteresis_left;
  if (!s->scale) return 0;
  amp__plain p = amp__plain_begin();
  rc = put_cell(s->scale, s->scale0);
  if (!rc) rc = put_cell(s->inv, 1.0 / s->scale0);
  if (!rc && tracker >= 0) rc = put_cell(s->tracker, (double)tracker);
  if (!rc && hysteresis_left >= 0) rc = put_cell(s->hyst, (double)hysteresis_left);
  drop_copies(s);
  amp__plain_end(p);
  return rc;
}

int amp_scaler_update(amp_state *S, amp_scaler *s, amp_check *const *k, int n)
{
  AMP_ENTER(S);
  const float **found = NULL;
  amp_tensor **moved = NULL;
  int rc = 0, nf = 0, nm = 0, total = 0, home_device = AMP_CPU, home_index = 0;
  amp__plain p = amp__plain_begin();
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
  for (int i = 0; i < n; i++)
    for (int j = 0; j < k[i]->nplace; j++) {
      amp_tensor *f = k[i]->place[j].found;
      if (f->device != home_device || f->device_index != home_index) {
        if (!(f = amp__cell_copy(f, home_device, home_index))) { rc = S->err.code; goto out; }
        moved[nm++] = f;
      }
      found[nf++] = AMP_DATA(float, f);
    }
  rc = amp__devices[home_device].scale_update(AMP_DATA(float, s->scale), AMP_DATA(float, s->inv), AMP_DATA(double, s->tracker),
                                              AMP_DATA(double, s->hyst), found, nf, &s->o);
  if (!rc) { drop_copies(s); s->epoch++; }
out:
  for (int i = 0; i < nm; i++) amp__free(moved[i]);
  free(found); free(moved);
  amp__plain_end(p);
  return rc;
}

/* -- Checks ------------------------------------------------------------------ */

static amp_check *check_new(amp_scaler *s)
{
  amp_check *k = calloc(1, sizeof *k);
  if (!k) { amp__nomem(sizeof *k); return NULL; }
  k->refs = 1;
  k->s = s;
  k->epoch = s->epoch;
  atomic_fetch_add(&s->refs, 1);
  return k;
}

amp_check *amp_check_new(amp_state *S, amp_scaler *s)
{
  AMP_ENTER(S);
  return check_new(s);
}

void amp__check_retain(amp_check *k) { if (k) atomic_fetch_add_explicit(&k->refs, 1, memory_order_relaxed); }

void amp_check_free(amp_check *k)
{
  if (!k || atomic_fetch_sub(&k->refs, 1) != 1) return;
  for (int i = 0; i < k->nplace; i++) { amp__free(k->place[i].inv); amp__free(k->place[i].found); }
  amp_scaler_free(k->s);
  free(k);
}

/* The check's cells of a device: a snapshot of 1/scale at first use, found-inf 0. */
static int check_place(amp_check *k, int device, int index)
{
  for (int i = 0; i < k->nplace; i++)
    if (k->place[i].device == device && k->place[i].index == index) return i;
  if (k->nplace == MAX_PLACES) return amp__fail(AMP_E_UNSUPPORTED, "a check serves at most %d devices", MAX_PLACES);
  amp_tensor *scale = NULL, *inv = NULL;
  int rc = cells_on(k->s, device, index, &scale, &inv);
  if (rc) return rc;
  amp_tensor *snap = amp__cell_copy(inv, device, index);
  amp_tensor *found = snap ? amp__cell(AMP_FLOAT32, device, index, 0) : NULL;
  if (!found) { amp__free(snap); return amp__S->err.code; }
  int i = k->nplace++;
  k->place[i].device = (uint8_t)device; k->place[i].index = (uint8_t)index;
  k->place[i].inv = snap;
  k->place[i].found = found;
  return i;
}

bool amp__check_valid(const amp_grad *g)
{
  return g->value && g->check && g->version == amp__version(g->value);
}

static amp_tensor *found_of(const amp_grad *g)
{
  for (int i = 0; i < g->check->nplace; i++)
    if (g->check->place[i].device == g->value->device && g->check->place[i].index == g->value->device_index) return g->check->place[i].found;
  return NULL;
}

amp_tensor *amp__check_cell(const amp_grad *g) { return amp__check_valid(g) ? found_of(g) : NULL; }

static void set_check(amp_grad *g, amp_check *k)
{
  if (g->check != k) {
    amp__check_retain(k);
    amp_check_free(g->check);
    g->check = k;
  }
  g->version = amp__version(g->value);
}

/* factor * c as a cell. */
static amp_tensor *times(amp__product *m, amp_tensor *factor, amp_tensor *c)
{
  if (!factor) { amp__retain(c); return c; }
  if (m->a != factor || m->c != c) {
    amp_tensor *ac = cell_mul(factor, c);
    if (!ac) return NULL;
    amp__free(m->ac); amp__free(m->a);
    amp__retain(factor);
    m->a = factor; m->c = c; m->ac = ac;
  }
  amp__retain(m->ac);
  return m->ac;
}
void amp__product_end(amp__product *m)
{
  amp__free(m->a);
  amp__free(m->ac);
}

int amp__grad_pend(amp_grad *g, amp_tensor *c, amp__product *m)
{
  amp_tensor *f = times(m, g->factor, c);
  if (!f) return amp__S->err.code;
  amp__free(g->factor);
  g->factor = f;
  return 0;
}

static int check_one(amp_check *k, amp_tensor *leaf, bool unscale, amp__product *m)
{
  amp_grad *g = &leaf->ag->grad;
  amp_tensor *v = g->value;
  if (g->check == k && g->version == amp__version(v)) return 0;
  if (g->check && g->check->s == k->s && g->check->epoch == k->epoch && !g->check->raw)
    unscale = false; /* it is unscaled; under another check of this iteration, or changed since */
  int i = check_place(k, v->device, v->device_index);
  if (i < 0) return i;
  amp_tensor *inv = k->place[i].inv;
  bool now = unscale && amp__grad_at_once(g);
  int rc = amp__devices[v->device].check_scale(v, now ? AMP_DATA(float, inv) : NULL, AMP_DATA(float, k->place[i].found));
  if (!rc && unscale && !now) rc = amp__grad_pend(g, inv, m);
  if (rc) return rc;
  if (now) amp__bump(v);
  set_check(g, k);
  return 0;
}

int amp_check_grads(amp_state *S, amp_check *k, amp_tensor *const *leaf, int n, int unscale)
{
  AMP_ENTER(S);
  if ((unscale & (AMP_UNSCALE | AMP_UNSCALE_HALF)) == AMP_UNSCALE)
    for (int i = 0; i < n; i++)
      if (amp__grad_of(leaf[i]) && leaf[i]->dtype == AMP_FLOAT16)
        return amp__fail_arg(AMP_E_DTYPE, i + 1, "can't unscale float16 gradients of a float16 parameter (%s): keep parameters in float32, "
                             "autocast makes their float16 copies (only opt_level O3 keeps them in float16)", amp__tensor_str(leaf[i]));
  amp__plain p = amp__plain_begin();
  amp__product m = {0};
  int rc = 0;
  if (unscale & AMP_CHECK_RAW) k->raw = true;
  if (unscale & AMP_CHECK_DROP) k->drop = true;
  for (int i = 0; i < n && !rc; i++)
    if (amp__grad_of(leaf[i])) rc = check_one(k, leaf[i], (unscale & AMP_UNSCALE) != 0, &m);
  amp__product_end(&m);
  amp__plain_end(p);
  return rc;
}

int amp__check_again(amp_tensor *leaf, amp_check **fresh)
{
  amp_grad *g = &leaf->ag->grad;
  if (!g->check || amp__check_valid(g)) return 0;
  if (!*fresh && !(*fresh = check_new(g->check->s))) return amp__S->err.code;
  return check_one(*fresh, leaf, false, NULL);
}

bool amp__grad_dropped(amp_tensor *leaf, bool wait)
{
  if (!leaf->ag || !leaf->ag->grad.check || !leaf->ag->grad.check->drop) return false;
  amp_tensor *f = amp__check_cell(&leaf->ag->grad);
  double v = 0;
  return f && (wait || f->device == AMP_CPU) && !cell_read(f, &v) && v != 0;
}

int amp_check_devices(const amp_check *k)
{
  int bits = 0;
  for (int i = 0; i < k->nplace; i++) bits |= 1 << k->place[i].device;
  return bits;
}

int amp_check_tensor(amp_state *S, amp_ref *out, amp_check *k, int device, int index)
{
  AMP_ENTER(S);
  amp__plain p = amp__plain_begin();
  amp_tensor *sum = NULL;
  int rc = 0;
  for (int i = 0; i < k->nplace && !rc; i++) {
    amp_tensor *c = amp__cell_copy(k->place[i].found, device, index);
    if (!c) rc = S->err.code;
    else if (!sum) sum = c;
    else {
      amp_tensor *in[2] = {sum, c};
      rc = amp__dispatch(AMP_OP_add, AMP_INPLACE, in, 2, NULL, NULL);
      amp__free(c);
    }
  }
  if (!rc && !sum && !(sum = amp__cell(AMP_FLOAT32, device, index, 0))) rc = S->err.code;
  amp__plain_end(p);
  if (rc) amp__free(sum);
  else out->t = sum;
  return rc;
}

int amp_check_found(amp_state *S, amp_check *k)
{
  AMP_ENTER(S);
  amp__plain p = amp__plain_begin();
  int rc = 0;
  for (int i = 0; i < k->nplace && !rc; i++) {
    double v;
    rc = cell_read(k->place[i].found, &v);
    if (!rc) rc = v != 0;
  }
  amp__plain_end(p);
  return rc;
}
