/*
** amp_capture.c: a captured step: what a device queues while a function runs
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
** A gradient that the step leaves is its leaf's after each replay, whoever cleared
** it meanwhile. A step that fails while it is captured is thrown away; gradients it
** touched, which nobody computed, become nil.
*/
#include <stdlib.h>
#include "amp_compose.h"
#include "amp_optim.h"
#include "amp_scale.h"

typedef struct noted { amp_storage *s; void *data; amp_tensor *leaf; int32_t bumps; } noted; /* data NULL: only changed; leaf: a parameter that lies there, counted */
typedef struct hyper { const amp_optim *o; int n; amp_tensor *cell; amp_hyper *sent; bool fresh; } hyper;
typedef struct gradient { amp_tensor *leaf, *was, *left; bool cleared; } gradient; /* was: borrowed, compared only; left: when the step ends, counted; cleared: by the step, first of all */
typedef struct argument { amp_tensor *to; const amp_storage *from; const void *data; uint32_t mark, version, own; } argument; /* what lies in the step's own tensor `to` (counted), at its version */
typedef struct shadow { amp_tensor *leaf, *copy; bool right; } shadow; /* right: when the step ends, too */

struct amp_capture {
  amp_state *S;
  int device, index;
  amp_pool *pool;
  void *graph;
  amp_tensor *random;
  uint64_t draws;
  noted *note; int n, cap;        /* open addressing, cap a power of two */
  hyper *h; int nh;
  gradient *g; int ng, capg;
  shadow *sh; int nsh;
  argument *arg; int narg;
  int64_t casts, cached_casts;
  bool failed;                    /* something could not be noted */
  int other;                      /* something lies on another device of the type, counted from 1, which no replay works on; 0: nothing */
  bool ended;
};

int amp__capturing;

bool amp__capture_here(void) { return amp__S && amp__S->priv->capture != NULL; }

bool amp__capture_made(const amp_tensor *t)
{
  const amp_capture *c = amp__S->priv->capture;
  return c == NULL || amp__private_has(c->pool, t->storage->block);
}

/* -- Noting --------------------------------------------------------------------- */

static noted *find(amp_capture *c, const amp_storage *s)
{
  size_t i = ((uintptr_t)s >> 6) * 0x9E3779B9u & (size_t)(c->cap - 1);
  while (c->note[i].s && c->note[i].s != s) i = (i + 1) & (size_t)(c->cap - 1);
  return &c->note[i];
}

static noted *note(amp_capture *c, amp_storage *s)
{
  if (2 * (c->n + 1) > c->cap) {
    noted *was = c->note;
    int old = c->cap;
    c->cap = old ? old * 2 : 256;
    if ((c->note = calloc((size_t)c->cap, sizeof *c->note)) == NULL) {
      c->note = was;
      c->cap = old;
      c->failed = true;
      return NULL;
    }
    for (int i = 0; i < old; i++) if (was[i].s) *find(c, was[i].s) = was[i];
    free(was);
  }
  noted *k = find(c, s);
  if (k->s == NULL) {
    k->s = s;
    amp__storage_retain(s);
    c->n++;
  }
  return k;
}

void amp__capture_bump(amp_storage *s)
{
  amp_capture *c = amp__S->priv->capture;
  if (c == NULL || amp__private_has(c->pool, s->block)) return;
  noted *k = note(c, s);
  if (k) k->bumps++;
}

void amp__capture_note(const amp_tensor *t)
{
  amp_capture *c = amp__S->priv->capture;
  if (c == NULL || t == NULL || t->device != c->device || amp__private_has(c->pool, t->storage->block)) return;
  if (t->device_index != c->index) c->other = t->device_index + 1;
  noted *k = note(c, t->storage);
  if (k == NULL) return;
  if (k->data == NULL) k->data = t->storage->data;
  if (k->leaf == NULL && (t->flags & AMP_T_REQUIRES_GRAD)) {
    k->leaf = (amp_tensor *)t;
    amp__retain(k->leaf);
  }
}

void amp__capture_gradient(amp_tensor *leaf, bool clear)
{
  amp_capture *c = amp__S->priv->capture;
  if (c == NULL) return;
  for (int i = 0; i < c->ng; i++) if (c->g[i].leaf == leaf) return;
  if (c->ng == c->capg) {
    int cap = c->capg ? 2 * c->capg : 64;
    gradient *more = realloc(c->g, sizeof *more * (size_t)cap);
    if (more == NULL) { c->failed = true; return; }
    c->g = more;
    c->capg = cap;
  }
  amp__retain(leaf);
  c->g[c->ng++] = (gradient){ leaf, leaf->ag && !clear ? leaf->ag->grad.value : NULL, NULL, clear };
}

void amp__capture_shadow(amp_tensor *leaf)
{
  amp_capture *c = amp__S->priv->capture;
  if (c == NULL || leaf->device != c->device) return;
  for (int i = 0; i < c->nsh; i++) if (c->sh[i].leaf == leaf && c->sh[i].copy == leaf->ag->shadow) return;
  shadow *more = realloc(c->sh, sizeof *more * (size_t)(c->nsh + 1));
  if (more == NULL) { c->failed = true; return; }
  c->sh = more;
  c->sh[c->nsh++] = (shadow){ leaf, leaf->ag->shadow, false };
  amp__retain(leaf);
  amp__retain(leaf->ag->shadow);
}

const amp_hyper *amp__capture_hyper(const amp_optim *o, int group, int ngroup)
{
  amp_capture *c = amp__S->priv->capture;
  hyper *h = NULL;
  if (c == NULL) return NULL;
  for (int i = 0; i < c->nh && !h; i++) if (c->h[i].o == o) h = &c->h[i];
  if (h == NULL) {
    int64_t bytes = (int64_t)sizeof(amp_hyper) * ngroup;
    hyper *more = realloc(c->h, sizeof *more * (size_t)(c->nh + 1));
    if (more == NULL) { amp__nomem(sizeof *more); return NULL; }
    c->h = more;
    h = &c->h[c->nh];
    *h = (hyper){ o, ngroup, amp__tensor_make(AMP_UINT8, c->device, c->index, 1, &bytes), calloc((size_t)ngroup, sizeof(amp_hyper)), true };
    if (h->cell == NULL || h->sent == NULL) {
      amp__free(h->cell);
      free(h->sent);
      if (h->cell) amp__nomem((size_t)bytes);
      return NULL;
    }
    c->nh++;
  }
  return AMP_DATA(amp_hyper, h->cell) + group;
}

/* -- Life ------------------------------------------------------------------------- */

void amp_capture_free(amp_capture *c)
{
  if (c == NULL) return;
  amp_state *S = amp__S;
  if (c->graph) amp__devices[c->device].capture_free(c->index, c->graph);
  for (int i = 0; i < c->cap; i++) {
    if (c->note[i].s == NULL) continue;
    amp__storage_free(c->note[i].s);
    amp__free(c->note[i].leaf);
  }
  for (int i = 0; i < c->nh; i++) { amp__free(c->h[i].cell); free(c->h[i].sent); }
  for (int i = 0; i < c->narg; i++) amp__free(c->arg[i].to);
  for (int i = 0; i < c->ng; i++) { amp__free(c->g[i].leaf); amp__free(c->g[i].left); }
  for (int i = 0; i < c->nsh; i++) { amp__free(c->sh[i].leaf); amp__free(c->sh[i].copy); }
  amp__free(c->random);
  amp__private_drop(c->pool);
  free(c->note); free(c->h); free(c->g); free(c->sh); free(c->arg);
  free(c);
  (void)S;
}

amp_capture *amp_capture_begin(amp_state *S, int device, int index, amp_tensor *const *own, int n)
{
  AMP_ENTER(S);
  int64_t two = 2;
  if (S->priv->capture) { amp__fail(AMP_E_STATE, "a step is being captured already"); return NULL; }
  if (device == AMP_CPU || index < 0 || index >= amp_device_available(device) || !amp__devices[device].capture_begin) {
    amp__fail(AMP_E_DEVICE, "device %s:%d can't capture a step", amp_device_name(device), index + 1);
    return NULL;
  }
  amp__shadows_before_capture();
  amp_capture *c = calloc(1, sizeof *c);
  if (c == NULL) { amp__nomem(sizeof *c); return NULL; }
  c->S = S;
  c->device = device;
  c->index = index;
  c->casts = S->casts;
  c->cached_casts = S->cached_casts;
  if (n > 0 && (c->arg = calloc((size_t)n, sizeof *c->arg)) == NULL) {
    amp__nomem(sizeof *c->arg * (size_t)n);
    free(c);
    return NULL;
  }
  for (; c->narg < n; c->narg++)
    if ((c->arg[c->narg].to = own[c->narg]) != NULL) amp__retain(own[c->narg]);
  if ((c->random = amp__tensor_make(AMP_INT64, device, index, 1, &two)) == NULL || (c->pool = amp__private_open(device, index)) == NULL
      || amp__devices[device].capture_begin(index, amp__data(c->random), own, n) < 0) {
    amp_capture_free(c);
    return NULL;
  }
  S->priv->capture = c;
  __atomic_add_fetch(&amp__capturing, 1, __ATOMIC_RELAXED);
  return c;
}

static int settle(amp_capture *c)
{
  const char *name = amp_device_name(c->device);
  if (c->failed) return amp__nomem(sizeof(noted));
  if (c->other)
    return amp__fail(AMP_E_DEVICE, "the captured step works on %s:%d, and on %s:%d, of which replays would not: capture a step of one device only", name, c->index + 1, name, c->other);
  for (int i = 0; i < c->ng; i++) {
    amp_tensor *now = c->g[i].leaf->ag ? c->g[i].leaf->ag->grad.value : NULL;
    if (c->g[i].was && now != c->g[i].was)
      return amp__fail(AMP_E_STATE, "a parameter (%s) had a gradient when the captured step began, which the step replaced: clear gradients inside the step",
                       amp__tensor_str(c->g[i].leaf));
  }
  for (int i = 0; i < c->ng; i++) {
    gradient *g = &c->g[i];
    if ((g->left = g->leaf->ag ? g->leaf->ag->grad.value : NULL) != NULL) amp__retain(g->left);
    if (!g->was && !g->cleared) amp__grad_clear(g->leaf); /* as it was */
  }
  for (int i = 0; i < c->nsh; i++) {
    amp_ag *ag = c->sh[i].leaf->ag;
    c->sh[i].right = ag && ag->shadow == c->sh[i].copy && ag->shadow_version == amp__version(c->sh[i].leaf);
    /* made by the step and dropped by it, as regions do where no optimizer owns it: each replay makes it anew */
    if (!(ag && ag->shadow == c->sh[i].copy) && amp__private_has(c->pool, c->sh[i].copy->storage->block)) {
      amp__free(c->sh[i].leaf);
      amp__free(c->sh[i].copy);
      c->sh[i--] = c->sh[--c->nsh];
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

int amp_capture_end(amp_state *S, amp_capture *c, int keep)
{
  AMP_ENTER(S);
  amp_error err = S->err;
  if (c->ended) return 0;
  c->ended = true;
  int ready = 0;
  for (int i = 0; i < c->ng && keep && ready >= 0; i++) ready = amp__grad_materialize(c->g[i].leaf); /* what the user reads is what replays write */
  if (ready < 0) err = S->err;
  keep = keep && ready >= 0;
  int rc = amp__devices[c->device].capture_end(c->index, keep ? &c->graph : NULL, &c->draws);
  S->priv->capture = NULL;
  __atomic_sub_fetch(&amp__capturing, 1, __ATOMIC_RELAXED);
  amp__private_shut(c->pool);
  c->casts = S->casts - c->casts;
  c->cached_casts = S->cached_casts - c->cached_casts;
  if (rc >= 0 && keep) rc = settle(c);
  if (rc < 0 || !keep) { /* what was not run must not be seen */
    for (int i = 0; i < c->ng; i++) amp__grad_clear(c->g[i].leaf);
    if (!keep) S->err = err;
    if (ready < 0) rc = ready;
  } else
    for (int i = 0; i < c->cap; i++) /* as if it had not run yet: the replay that follows counts */
      if (c->note[i].s) c->note[i].s->version -= (uint32_t)c->note[i].bumps;
  if (rc >= 0 && keep)
    for (int i = 0; i < c->nsh; i++) if (c->sh[i].right) follows(c->sh[i].leaf->ag);
  return rc;
}

int amp_capture_hyper(amp_state *S, amp_capture *c, const amp_optim *o, const amp_hyper *h, int n)
{
  AMP_ENTER(S);
  for (int i = 0; i < c->nh; i++) {
    hyper *k = &c->h[i];
    if (k->o != o) continue;
    if (k->n != n) return amp__fail(AMP_E_STATE, "the optimizer had %d groups when the step was captured, now %d", k->n, n);
    for (int g = 0; g < n; g++) {
      if (!k->fresh && memcmp(&k->sent[g], &h[g], sizeof *h) == 0) continue;
      int rc = amp__devices[c->device].upload(c->index, AMP_DATA(amp_hyper, k->cell) + g, &h[g], sizeof *h);
      if (rc < 0) return rc;
      memcpy(&k->sent[g], &h[g], sizeof *h);
    }
    k->fresh = false;
  }
  return 0;
}

/* -- Gradients ------------------------------------------------------------------- */

/* Is there what the step adds to: nothing, as when it was captured, or what it left? What it clears itself may be anything. */
static int gradients_before(const amp_capture *c)
{
  for (int i = 0; i < c->ng; i++) {
    const gradient *g = &c->g[i];
    amp_tensor *now = g->leaf->ag ? g->leaf->ag->grad.value : NULL;
    int rc = 0;
    if (g->cleared) continue;
    if (g->was && now == NULL) { /* cleared meanwhile: it is added to zeros */
      if ((rc = amp__grad_adopt(g->leaf, g->left)) == 0) rc = amp__optim_zero(g->left);
    } else if (now != (g->was ? g->left : NULL))
      return amp__fail(AMP_E_STATE, "a parameter (%s) has another gradient than when the step was captured, %s: clear gradients inside the step, or before each call",
                       amp__tensor_str(g->leaf), g->was ? "which the step adds to" : "when it had none");
    else if (now) rc = amp__grad_materialize(g->leaf);
    if (rc < 0) return rc;
  }
  return 0;
}

static int gradients_after(const amp_capture *c)
{
  for (int i = 0; i < c->ng; i++) {
    const gradient *g = &c->g[i];
    int rc = amp__grad_adopt(g->leaf, g->left);
    if (rc < 0) return rc;
    if (g->left) amp__bump(g->left);
  }
  return 0;
}

/* -- Arguments ------------------------------------------------------------------- */

static bool same_place(const amp_tensor *a, const amp_tensor *b)
{
  if (a->dtype != b->dtype || a->device_index != b->device_index || !(a->flags & b->flags & AMP_T_DENSE)) return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->stride[i] < 0 || (a->size[i] > 1 && a->stride[i] != b->stride[i])) return false;
  return true;
}

/* What lies in memory of a captured step changes at its replays, and nobody counts that */
static bool told_apart(const amp_storage *s)
{
  return s->mark != 0 && !(s->flags & (AMP_S_EXPOSED | AMP_S_FOREIGN)) && !amp__private_any(s->block);
}

static int copy(amp_tensor *own, amp_tensor *given)
{
  amp__plain p = amp__plain_begin();
  amp_tensor *in[2] = { amp__tensor_alias(own), given };
  int rc = in[0] ? amp__dispatch(AMP_OP_copy, AMP_INPLACE, in, 2, NULL, NULL) : amp__S->err.code;
  amp__free(in[0]);
  amp__plain_end(p);
  return rc;
}

/* Let the next replay find what is given in its own tensor */
static int take(amp_capture *c, amp_start *start, argument *k, amp_tensor *given)
{
  static _Atomic uint32_t last;
  amp_storage *from = given->storage;
  amp_tensor *own = k->to;
  if (own == given || own->numel == 0) return 0;
  if (own->device != c->device || !amp__same_size(own, given)) return amp__fail(AMP_E_SHAPE, "an argument of the captured step is %s, it was captured with %s", amp__tensor_str(given), amp__tensor_str(own));
  bool there = given->device == c->device && own->device_index == c->index && same_place(own, given);
  if (there && told_apart(from) && k->from == from && k->mark == from->mark && k->version == from->version
      && k->data == amp__data(given) && k->own == amp__version(own)) return 0;
  if (!there || start->n == AMP_START_MOST) {
    int rc = copy(own, given);
    k->from = NULL;
    return rc;
  }
  start->copy[start->n].argument = (int)(k - c->arg);
  start->copy[start->n].to = amp__data(own);
  start->copy[start->n].from = amp__data(given);
  start->copy[start->n++].bytes = (size_t)own->numel * amp__dtype_size[own->dtype];
  amp__touch(given);
  amp__bump(own);
  if (from->mark == 0 && (from->mark = ++last) == 0) from->mark = ++last;
  *k = (argument){ own, from, amp__data(given), from->mark, from->version, amp__version(own) };
  return 0;
}

/* *given, or a copy of it if it lies in a tensor that the arguments before it, or beside it, are put into. Counted. NULL: error */
static amp_tensor *apart(const amp_capture *c, int i, amp_tensor *given)
{
  for (int j = 0; j < c->narg && given != c->arg[i].to; j++)
    if (c->arg[j].to && c->arg[j].to->storage == given->storage) return amp__raw_clone(given);
  amp__retain(given);
  return given;
}

/* What was to be copied was not */
static void forget(amp_capture *c)
{
  for (int i = 0; i < c->narg; i++) c->arg[i].from = NULL;
}

int amp_capture_replay(amp_state *S, amp_capture *c, amp_tensor *const *given, int n)
{
  AMP_ENTER(S);
  amp_start start;
  if (c->graph == NULL) return amp__fail(AMP_E_STATE, "nothing was captured");
  if (n != c->narg) return amp__fail(AMP_E_ARGUMENT, "a replay gets %d arguments, the step was captured with %d", n, c->narg);
  memset(&start, 0, sizeof start); /* compared by its bytes */
  for (int i = 0; i < c->cap; i++)
    if ((c->note[i].data && c->note[i].s->data != c->note[i].data) || (c->note[i].leaf && c->note[i].leaf->storage != c->note[i].s))
      return amp__fail(AMP_E_STATE, "a tensor of the captured step has moved (an optimizer took a parameter in, or the model went to another device or dtype): capture the step anew");
  for (int i = 0; i < c->nsh; i++) { /* a parameter changed by hand: its low copy, which the graph reads, follows */
    amp_ag *ag = c->sh[i].leaf->ag;
    if (ag && ag->shadow == c->sh[i].copy && ag->shadow_version != amp__version(c->sh[i].leaf) && !amp__shadow(c->sh[i].leaf, c->sh[i].copy->dtype)) return S->err.code;
    if (ag == NULL || ag->shadow != c->sh[i].copy) return amp__fail(AMP_E_STATE, "a parameter's low-precision copy is no longer the captured step's: capture the step anew");
  }
  int rc = gradients_before(c);
  if (rc < 0) return rc;
  amp_tensor *few[AMP_START_MOST], **from = n <= AMP_START_MOST ? few : malloc(sizeof *from * (size_t)n);
  int nfrom = 0;
  if (from == NULL) return amp__nomem(sizeof *from * (size_t)n);
  for (; nfrom < n && rc == 0; nfrom++) {
    from[nfrom] = NULL;
    if (c->arg[nfrom].to && given[nfrom] && (from[nfrom] = apart(c, nfrom, given[nfrom])) == NULL) rc = S->err.code;
  }
  for (int i = 0; i < n && rc == 0; i++)
    if (from[i]) rc = take(c, &start, &c->arg[i], from[i]);
  if (c->draws) {
    start.cell = AMP_DATA(uint64_t, c->random);
    start.random[0] = S->seed;
    start.random[1] = S->rng_offset;
  }
  if (rc == 0) rc = amp__devices[c->device].capture_replay(c->index, c->graph, &start);
  for (int i = 0; i < nfrom; i++) amp__free(from[i]); /* behind the launch that reads them */
  if (from != few) free(from);
  if (rc < 0) { forget(c); return rc; }
  S->rng_offset += c->draws;
  for (int i = 0; i < c->cap; i++)
    if (c->note[i].s) c->note[i].s->version += (uint32_t)c->note[i].bumps;
  for (int i = 0; i < c->nsh; i++) {
    amp_ag *ag = c->sh[i].leaf->ag;
    if (c->sh[i].right && ag && ag->shadow == c->sh[i].copy) follows(ag);
  }
  S->casts += c->casts;
  S->cached_casts += c->cached_casts;
  return gradients_after(c);
}
