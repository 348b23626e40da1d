/*
** amp_check.c: gradients unscaled and looked at, once, without a wait.
**
** A check is what one iteration of a scaler (amp_scale.c) knows on each device:
** a snapshot of 1/scale and a found-inf cell. Unscaling reads a gradient once,
** for its finite check, and leaves 1/scale on its record as the pending factor;
** only a tensor that the user already holds is multiplied in place. A check
** stands until the gradient's storage changes, and lives as long as a gradient
** refers to it. amp_clip.c clips the same records; amp_optim.c asks
** amp__check_cell and steps.
**
** A scaler whose step comes at once says so (AMP_CHECK_SOON): few gradients are then
** left to that step, which looks at them in its own launch (late, due); whoever asks
** for the found-inf cell before that settles it.
*/
#include <stdlib.h>
#include <string.h>
#include "amp_compose.h"
#include "amp_scale.h"

/* -- Checks ------------------------------------------------------------------ */

enum { UNTOLD, CLEAN, FOUND }; /* amp_check.told */

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

static void drop_late(amp_check *k)
{
  for (int i = 0; i < k->nlate; i++) amp__free(k->late[i].t);
  free(k->late);
  k->late = NULL;
  k->nlate = 0;
  k->due = false;
}

void amp_check_free(amp_check *k)
{
  if (!k || atomic_fetch_sub(&k->refs, 1) != 1) return;
  drop_late(k);
  for (int i = 0; i < k->nplace; i++) { amp__free(k->place[i].inv); amp__free(k->place[i].found); }
  amp__free(k->other); amp__free(k->other_inv);
  amp_scaler_free(k->s);
  free(k);
}

/* The check's cells of a device: a snapshot of 1/scale at first use, found-inf 0. */
static int check_place(amp_check *k, int device, int index)
{
  for (int i = 0; i < k->nplace; i++)
    if (k->place[i].device == device && k->place[i].index == index) return i;
  if (k->nplace == AMP_MAX_PLACES) return amp__fail(AMP_E_UNSUPPORTED, "a check serves at most %d devices", AMP_MAX_PLACES);
  amp_tensor *scale = NULL, *inv = NULL;
  int rc = amp__scaler_cells(k->s, device, index, &scale, &inv);
  if (rc) return rc;
  amp_tensor *snap = k->s->fixed ? amp__cell_copy(inv, device, index) : inv;
  if (snap == inv) amp__retain(inv);
  amp_tensor *found = snap ? amp__cell_zero(device, index) : NULL;
  if (!found) { amp__free(snap); return amp__S->err.code; }
  int i = k->nplace++;
  k->place[i].device = (uint8_t)device; k->place[i].index = (uint8_t)index;
  k->place[i].inv = snap;
  k->place[i].serial = amp__scaler_serial(k->s, device);
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

static amp_tensor *cell_mul(amp_tensor *a, amp_tensor *b)
{
  if (a->device == AMP_CPU) return amp__cell(AMP_FLOAT32, AMP_CPU, 0, (double)*AMP_DATA(float, a) * *AMP_DATA(float, b));
  amp_tensor *out[AMP_MAX_OUT] = {0}, *in[2] = {a, b};
  return amp__dispatch(AMP_OP_mul, 0, in, 2, out, NULL) ? NULL : out[0];
}

amp_tensor *amp__factor_times(amp__product *m, amp_tensor *factor, amp_tensor *c)
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
  amp_tensor *f = amp__factor_times(m, g->factor, c);
  if (!f) return amp__S->err.code;
  amp__free(g->factor);
  g->factor = f;
  return 0;
}

/* -- Gradients that several parameters share ------------------------------------- */

bool amp__same_place(const amp_tensor *a, const amp_tensor *b)
{
  return a->storage == b->storage && a->offset == b->offset && a->dtype == b->dtype && amp__same_size(a, b)
         && memcmp(a->stride, b->stride, sizeof(int64_t) * a->ndim) == 0;
}

/* Bounds only: of interleaved views it may say yes. */
static bool may_overlap(const amp_tensor *a, const amp_tensor *b)
{
  int64_t last[2] = {a->offset, b->offset};
  if (a->storage != b->storage || a->numel == 0 || b->numel == 0) return false;
  for (int i = 0; i < a->ndim; i++) last[0] += (a->size[i] - 1) * a->stride[i];
  for (int i = 0; i < b->ndim; i++) last[1] += (b->size[i] - 1) * b->stride[i];
  return a->offset <= last[1] && b->offset <= last[0];
}

void amp__scaler_forget(amp_scaler *s)
{
  for (int i = 0; i < s->ndone; i++) amp__free(s->done[i].t);
  s->ndone = 0;
}

/* Has this iteration multiplied v already, as another parameter's gradient? */
static bool done_before(const amp_scaler *s, const amp_tensor *v)
{
  for (int i = s->ndone; i-- > 0;)
    if (amp__same_place(s->done[i].t, v) && s->done[i].version == amp__version(v)) return true;
  return false;
}

/* Before anything is multiplied: what was must be noted. */
static int room_for_done(amp_scaler *s)
{
  if (s->ndone < s->capdone) return 0;
  int cap = s->capdone ? 2 * s->capdone : 8;
  struct amp__done *more = realloc(s->done, sizeof *more * (size_t)cap);
  if (!more) return amp__nomem(sizeof *more * (size_t)cap);
  s->done = more;
  s->capdone = cap;
  return 0;
}

/* v was multiplied and has its new version; views of the same storage that were done before stay done. */
static void note_done(amp_scaler *s, amp_tensor *v, uint32_t before)
{
  for (int i = 0; i < s->ndone; i++)
    if (s->done[i].t->storage == v->storage && s->done[i].version == before) s->done[i].version = amp__version(v);
  amp__retain(v);
  s->done[s->ndone++] = (struct amp__done){v, amp__version(v)};
}

static int by_storage(const void *a, const void *b)
{
  const amp_storage *x = (*(amp_grad *const *)a)->value->storage, *y = (*(amp_grad *const *)b)->value->storage;
  return x < y ? -1 : x > y;
}

int amp__grads_part(amp_tensor *const *leaf, int n)
{
  int m = 0, rc = 0;
  for (int i = 0; i < n; i++) m += amp__grad_of(leaf[i]) && amp__grad_at_once(amp__grad_of(leaf[i]));
  if (m < 2) return 0;
  amp_grad **g = malloc(sizeof *g * (size_t)m);
  if (!g) return amp__nomem(sizeof *g * (size_t)m);
  m = 0;
  for (int i = 0; i < n; i++)
    if (amp__grad_of(leaf[i]) && amp__grad_at_once(amp__grad_of(leaf[i]))) g[m++] = amp__grad_of(leaf[i]);
  qsort(g, (size_t)m, sizeof *g, by_storage);
  for (int i = 0, first = 0; i < m && !rc; i++) {
    amp_tensor *v = g[i]->value;
    if (g[first]->value->storage != v->storage) first = i;
    for (int j = first; j < i; j++) {
      if (amp__same_place(g[j]->value, v) || !may_overlap(g[j]->value, v)) continue;
      bool valid = amp__check_valid(g[i]);
      int origin = amp__grad_origin(g[i]);
      amp_tensor *own = amp__raw_clone(v);
      if (!own) { rc = amp__S->err.code; break; }
      g[i]->value = own;
      if (valid) g[i]->version = amp__version(own);
      amp__grad_from(g[i], origin);
      amp__free(v);
      break;
    }
  }
  free(g);
  return rc;
}

/* -- The check ------------------------------------------------------------------- */

/* Tensors that one launch will look at; flushed when there are BATCH, and at the end */
enum { BATCH = 256 };
typedef struct batch { amp_check *k; int place, n; amp_tensor *t[BATCH]; } batch;

static int flush(batch *q)
{
  int n = q->n;
  q->n = 0;
  if (n == 0) return 0;
  q->k->mixed = true;
  return amp__devices[q->t[0]->device].check_many(q->t, n, AMP_DATA(float, q->k->place[q->place].found));
}

/* Leave them to the step; true if that is possible */
static bool put_off(batch *q)
{
  amp_check *k = q->k;
  int64_t bytes = 0;
  if (q->n <= 0 || q->n > AMP_LOOK_MOST || k->nlate || !amp__devices[q->t[0]->device].optim_step_look) return false;
  for (int i = 0; i < q->n; i++) bytes += q->t[i]->numel * amp__dtype_size[q->t[i]->dtype];
  if (bytes > AMP_LOOK_BYTES || !(k->late = malloc(sizeof *k->late * (size_t)q->n))) return false;
  for (int i = 0; i < q->n; i++) {
    amp__retain(q->t[i]);
    k->late[i] = (struct amp__late){q->t[i], amp__version(q->t[i])};
  }
  k->nlate = q->n;
  k->late_place = q->place;
  k->due = true;
  return true;
}

bool amp__check_late(const amp_check *k, int i, int n, const amp_tensor *g)
{
  return k->nlate == n && k->late[i].t == g && k->late[i].version == amp__version(g);
}

void amp__check_looked(amp_check *k)
{
  k->due = false;
  if (!amp__capture_here()) drop_late(k); /* elsewhere an update comes after the step anyway */
}

bool amp__check_again_looks(const amp_check *k, int device, int index)
{
  if (k->due || k->nlate == 0 || k->mixed || k->nplace != 1 || k->place[0].device != device || k->place[0].index != index) return false;
  for (int i = 0; i < k->nlate; i++)
    if (k->late[i].version != amp__version(k->late[i].t)) return false;
  return true;
}

void amp__check_forget(amp_check *k) { if (!k->due) drop_late(k); }

int amp__check_settle(amp_check *k)
{
  if (!k->due) return 0;
  batch q;
  q.k = k;
  q.place = k->late_place;
  q.n = k->nlate;
  for (int i = 0; i < q.n; i++) {
    q.t[i] = k->late[i].t;
    amp__touch(q.t[i]);
  }
  amp__touch(k->place[q.place].found);
  int rc = flush(&q);
  drop_late(k);
  return rc;
}

/* 1 over the scale that g carries, borrowed: the check's own, or that of a loss that was scaled in another iteration or by another scaler. */
static amp_tensor *inverse_of(amp_check *k, int place, const amp_grad *g)
{
  amp_tensor *scale = amp__grad_scale(g), *inv = k->place[place].inv;
  if (!scale || amp__scale_is(scale, k->place[place].serial)) return inv;
  if (scale->device == AMP_CPU && inv->device == AMP_CPU && (float)(1.0 / amp__element(scale, 0)) == *AMP_DATA(float, inv)) return inv;
  if (k->other && amp__same_scale(k->other, scale) && k->other_inv->device == inv->device && k->other_inv->device_index == inv->device_index) return k->other_inv;
  amp_tensor *q = amp__scale_inverse(scale, inv);
  if (!q) return NULL;
  amp__retain(scale);
  amp__free(k->other); amp__free(k->other_inv);
  k->other = scale;
  k->other_inv = q;
  return q;
}

/* q NULL: at once */
static int check_one(amp_check *k, amp_tensor *leaf, bool unscale, amp__product *m, batch *q)
{
  amp_grad *g = &leaf->ag->grad;
  amp_tensor *v = g->value;
  if (g->check == k && g->version == amp__version(v)) return 0;
  int origin = amp__grad_origin(g);
  if ((origin & AMP_O_UNSCALED) && !(origin & (AMP_O_SCALED | AMP_O_HAND))) unscale = false; /* in an iteration before, and nothing came since */
  else if (unscale) origin = AMP_O_UNSCALED;
  if (g->check && g->check->s == k->s && g->check->epoch == k->epoch && !g->check->raw)
    unscale = false; /* it is unscaled; under another check of this iteration, or changed since */
  int i = check_place(k, v->device, v->device_index);
  if (i < 0) return i;
  amp_tensor *inv = inverse_of(k, i, g);
  if (!inv) return amp__S->err.code;
  bool now = unscale && amp__grad_at_once(g);
  if (now && done_before(k->s, v)) now = unscale = false;
  if (amp_unlikely(amp__capturing)) { amp__capture_note(v); amp__capture_note(inv); amp__capture_note(k->place[i].found); }
  amp__touch(v);
  amp__touch(inv);
  amp__touch(k->place[i].found);
  int rc = now ? room_for_done(k->s) : 0;
  if (rc) return rc;
  if (q && !now && (v->flags & AMP_T_DENSE) && amp__devices[v->device].check_many) {
    if (q->n && (q->place != i || q->n == BATCH)) rc = flush(q);
    q->k = k;
    q->place = i;
    q->t[q->n++] = v;
  } else {
    k->mixed = true;
    rc = amp__devices[v->device].check_scale(v, now ? AMP_DATA(float, inv) : NULL, AMP_DATA(float, k->place[i].found));
  }
  k->told = UNTOLD;
  if (!rc && unscale && !now) rc = amp__grad_pend(g, inv, m);
  if (rc) return rc;
  if (now) {
    uint32_t before = amp__version(v);
    amp__bump(v);
    note_done(k->s, v, before);
  }
  set_check(g, k);
  if (origin == AMP_O_UNSCALED) amp__grad_scale_put(g, NULL);
  amp__grad_from(g, origin);
  return 0;
}

/* What is to be unscaled comes of scaled losses alone; what was unscaled has got no gradient of a scaled loss since. */
static int check_origins(amp_tensor *const *leaf, int n, int unscale)
{
  bool scaled = (unscale & (AMP_UNSCALE | AMP_CHECK_RAW)) != 0;
  if (!scaled && (unscale & AMP_CHECK_DROP)) return 0; /* a second look at what was unscaled */
  for (int i = 0; i < n; i++) {
    const amp_grad *g = amp__grad_of(leaf[i]);
    int origin = g ? amp__grad_origin(g) : 0;
    if (!scaled && (origin & (AMP_O_SCALED | AMP_O_HAND)))
      return amp__fail_arg(AMP_E_STATE, i + 1, "the gradient of parameter %d (%s) has got that of a scaled loss after it was unscaled", i + 1, amp__tensor_str(leaf[i]));
    if (scaled && ((origin & AMP_O_PLAIN) || (origin & (AMP_O_SCALED | AMP_O_UNSCALED)) == (AMP_O_SCALED | AMP_O_UNSCALED)))
      return amp__fail_arg(AMP_E_STATE, i + 1, "the gradient of parameter %d (%s) is that of a loss that was not scaled, or a part of it is", i + 1, amp__tensor_str(leaf[i]));
  }
  return 0;
}

/* Who will unscale by himself knows of the scaler's scale only. */
static int to_scale(amp_scaler *s, amp_tensor *const *leaf, int n)
{
  int rc = 0;
  for (int i = 0; i < n && !rc; i++) {
    amp_tensor *scale, *inv;
    const amp_grad *g = amp__grad_of(leaf[i]);
    amp_tensor *has = g ? amp__grad_scale(g) : NULL;
    if (!has || amp__scale_is(has, amp__scaler_serial(s, has->device))) continue;
    if (!(rc = amp__scaler_cells(s, g->value->device, g->value->device_index, &scale, &inv))) rc = amp__grad_rescale(leaf[i], scale);
  }
  return rc;
}

static int check_grads(amp_check *k, amp_tensor *const *leaf, int n, int unscale)
{
  if ((unscale & (AMP_UNSCALE | AMP_UNSCALE_HALF)) == AMP_UNSCALE)
    for (int i = 0; i < n; i++)
      if (amp__grad_of(leaf[i]) && leaf[i]->dtype == AMP_FLOAT16)
        return amp__fail_arg(AMP_E_DTYPE, i + 1, "can't unscale float16 gradients of a float16 parameter (%s): keep parameters in float32, "
                             "autocast makes their float16 copies (only opt_level O3 keeps them in float16)", amp__tensor_str(leaf[i]));
  int wrong = check_origins(leaf, n, unscale);
  if (wrong) return wrong;
  amp__plain p = amp__plain_begin();
  batch q;
  q.n = 0;
  amp__product m = {0};
  int rc = amp__check_settle(k);
  if (!rc && (unscale & AMP_UNSCALE)) rc = amp__grads_part(leaf, n);
  if (!rc && (unscale & AMP_CHECK_RAW)) rc = to_scale(k->s, leaf, n);
  if (unscale & AMP_CHECK_RAW) k->raw = true;
  if (unscale & AMP_CHECK_DROP) k->drop = true;
  for (int i = 0; i < n && !rc; i++)
    if (amp__grad_of(leaf[i])) rc = check_one(k, leaf[i], (unscale & AMP_UNSCALE) != 0, &m, &q);
  int last = (unscale & AMP_CHECK_SOON) && put_off(&q) ? 0 : flush(&q);
  if (!rc) rc = last;
  amp__product_end(&m);
  amp__plain_end(p);
  return rc;
}

int amp_check_grads(amp_state *S, amp_check *k, amp_tensor *const *leaf, int n, int unscale)
{
  amp_frame f;
  AMP_ENTER(S);
  bool watched = amp_unlikely(amp__observing()) && amp__observe_begin(&f, AMP_SPAN_CHECK, 0, 0);
  int rc = check_grads(k, leaf, n, unscale);
  if (watched) amp__observe_end(&f, rc);
  return rc;
}

int amp_grad_check_hold(const amp_ref *a)
{
  if (!a->t || !a->t->ag || !amp__check_valid(&a->t->ag->grad)) return 0;
  return a->t->ag->grad.check->raw ? 2 : 1;
}

void amp_grad_check_keep(const amp_ref *a)
{
  amp_grad *g = a->t ? amp__grad_of(a->t) : NULL;
  if (g && g->check) g->version = amp__version(g->value);
}

int amp__check_again(amp_tensor *leaf, amp_check **fresh)
{
  amp_grad *g = &leaf->ag->grad;
  if (!g->check || amp__check_valid(g)) return 0;
  if (!*fresh && !(*fresh = check_new(g->check->s))) return amp__S->err.code;
  return check_one(*fresh, leaf, false, NULL, NULL);
}

bool amp__grad_dropped(amp_tensor *leaf, bool wait)
{
  if (!leaf->ag || !leaf->ag->grad.check || !leaf->ag->grad.check->drop) return false;
  amp_check *k = leaf->ag->grad.check;
  if (!amp__check_valid(&leaf->ag->grad)) return false;
  for (int i = 0; i < k->nplace; i++)
    if (k->place[i].device == AMP_CPU && *AMP_DATA(float, k->place[i].found) != 0) return true;
  if (k->told == UNTOLD && wait) {
    int rc = amp_check_found(amp__S, k);
    if (rc < 0) return false;
    amp__S->host_waits += (amp_check_devices(k) & ~(1 << AMP_CPU)) != 0;
    k->told = rc ? FOUND : CLEAN;
  }
  return k->told == FOUND;
}

int amp__grad_drop_there(amp_tensor *leaf)
{
  amp_grad *g = &leaf->ag->grad;
  if (!g->check || !g->check->drop || !amp__check_valid(g)) return 0;
  amp_tensor *f = found_of(g);
  if (!f || f->device == AMP_CPU) return 0;
  int rc = amp__check_settle(g->check);
  if (!rc) rc = amp__grad_materialize(leaf);
  if (rc) return rc;
  amp__plain p = amp__plain_begin();
  int mark = amp__pool_mark();
  amp_tensor *bad = XN(ne, f, 0), *in[2] = {g->value, bad};
  amp_sl zero = amp__sl();
  amp__sl_f(&zero, 0);
  rc = bad ? amp__dispatch(AMP_OP_masked_fill, AMP_INPLACE, in, 2, NULL, zero.v) : amp__S->err.code;
  amp__pool_release(mark);
  amp__plain_end(p);
  return rc;
}

int amp_check_holds(const amp_check *k, amp_tensor *const *leaf, int n)
{
  int held = 0;
  for (int i = 0; i < n; i++) {
    const amp_grad *g = amp__grad_of(leaf[i]);
    if (!g) continue;
    if (!amp__check_valid(g) || g->check->s != k->s || g->check->epoch != k->epoch) return -1;
    held++;
  }
  return held;
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
  int rc = amp__check_settle(k);
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
  int rc = amp__check_settle(k);
  for (int i = 0; i < k->nplace && !rc; i++) {
    double v;
    rc = amp__cell_read(k->place[i].found, &v);
    if (!rc) rc = v != 0;
  }
  amp__plain_end(p);
  return rc;
}
