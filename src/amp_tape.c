/*
** amp_tape.c: what remembers how tensors were made.
**
** A recorded op is an amp_node: edges to the nodes (or leaves) its inputs came
** from, the tensors its derivative needs, the shapes of all its arguments and
** its attributes, in one allocation. A tensor's amp_ag points to the node that
** made it; edges point only backwards, so graphs are acyclic and counted:
**
**   loss --ag--> node(mean) --edge--> node(mul) --edge--> leaf w
**
** Saved inputs are aliases that carry the edge they had, saved outputs are
** aliases without one (the node is known), so nothing points forward. Views
** keep their base; an in-place op on a view gives the base a "slices" node and
** every other view of it a fresh as_strided node when next used. Versions live
** in the storage; a saved tensor remembers its own.
** Walking the tape backwards is amp_engine.c; leaf gradients amp_grad.c.
*/
#include <stdio.h>
#include "amp_compose.h"
#include "amp_tape.h"

/* -- Autograd side --------------------------------------------------------- */

amp_ag *amp__ag(amp_tensor *t)
{
  if (t->ag) return t->ag;
  amp_ag *ag = amp__obj_alloc(sizeof *ag);
  if (ag == NULL) { amp__nomem(sizeof *ag); return NULL; }
  memset(ag, 0, sizeof *ag);
  ag->self = t;
  return t->ag = ag;
}

void amp__ag_free(amp_tensor *t)
{
  amp_ag *ag = t->ag;
  if (ag == NULL) return;
  t->ag = NULL;
  amp__shadow_drop(ag);
  amp__free(ag->twin);
  if (ag->hook) amp__dead_push(ag->hook);
  amp__free(ag->grad.value);
  amp__free(ag->grad.factor);
  amp__free(ag->grad.scale);
  if (ag->grad.check) amp_check_free(ag->grad.check);
  amp_node *n = ag->node;
  amp_tensor *base = ag->base;
  amp__obj_free(ag, sizeof *ag);
  if (n) amp__node_free(n);
  amp__free(base);
}

/* -- Nodes ------------------------------------------------------------------ */

static _Atomic int64_t last_seq = 1;

int64_t amp__newest_node(void) { return atomic_load_explicit(&last_seq, memory_order_relaxed) - 1; }

amp_node *amp__node_new(int op, int nin, int nout, int nslot, int nsaved, int ndim)
{
  size_t shape = offsetof(amp_shape, size) + sizeof(int64_t) * (size_t)ndim;
  size_t bytes = sizeof(amp_node) + sizeof(amp_edge) * (size_t)nin + sizeof(amp_saved) * (size_t)nsaved
                 + shape * (size_t)(nin + nout) + sizeof(amp_slot) * (size_t)nslot;
  amp_node *n = amp__obj_alloc(bytes);
  if (n == NULL) { amp__nomem(bytes); return NULL; }
  memset(n, 0, sizeof *n + sizeof(amp_edge) * (size_t)nin + sizeof(amp_saved) * (size_t)nsaved);
  atomic_store_explicit(&n->refs, 1, memory_order_relaxed);
  n->op = (int16_t)op;
  n->nin = nin;
  n->nout = (uint8_t)nout;
  n->nslot = (int16_t)nslot;
  n->nsaved = nsaved;
  n->shape_bytes = (int16_t)shape;
  n->bytes = (int32_t)bytes;
  n->seq = atomic_fetch_add_explicit(&last_seq, 1, memory_order_relaxed);
  n->edge = (amp_edge *)(n + 1);
  n->saved = (amp_saved *)(n->edge + nin);
  n->shapes = (char *)(n->saved + nsaved);
  n->a = (amp_slot *)(n->shapes + shape * (size_t)(nin + nout));
  return n;
}

void amp__edge_free(amp_edge *e)
{
  if (e->node) amp__node_free(e->node);
  if (e->leaf) amp__free(e->leaf);
  e->node = NULL;
  e->leaf = NULL;
}

void amp__saved_free(amp_saved *s)
{
  amp_tensor *t = s->t;
  if (t == NULL) return;
  s->t = NULL;
  amp__free(t);
  amp__edge_free(&s->edge);
}

static void hooks_free(amp_node *n)
{
  if (n->hooks == NULL) return;
  for (int i = 0; i < n->nout; i++) if (n->hooks[i] > 0) amp__dead_push(n->hooks[i]);
  amp__obj_free(n->hooks, sizeof *n->hooks * n->nout);
  n->hooks = NULL;
}

void amp__node_release_saved(amp_node *n)
{
  n->flags |= AMP_N_FREED;
  hooks_free(n); /* they have run, and may hold what holds this node */
  for (int i = 0; i < n->nsaved; i++) amp__saved_free(&n->saved[i]);
  if (n->slices) amp__node_release_saved(n->slices->fn);
}

/* A backward that keeps no graph went through outputs `went` of n. Several views of one op may have a backward
** each: they hold nothing, and what lies before them says what was freed. Only hooks go, which may hold what
** holds this node, each with the view it was on. */
void amp__node_spend(amp_node *n, uint32_t went)
{
  if (n->nout < 2 || (n->flags & AMP_N_LUA) || amp__ops[n->op].info.kind != 'V') { amp__node_release_saved(n); return; }
  for (int i = 0; n->hooks && i < n->nout; i++) {
    if (!(went >> i & 1) || n->hooks[i] <= 0) continue;
    amp__dead_push(n->hooks[i]);
    n->hooks[i] = -1;
  }
}

/* Whether a gradient for one of outputs `came` is missing a hook that went with an earlier backward. */
bool amp__node_spent(const amp_node *n, uint32_t came)
{
  for (int i = 0; n->hooks && i < n->nout && i < 32; i++) if ((came >> i & 1) && n->hooks[i] < 0) return true;
  return (n->flags & AMP_N_FREED) != 0;
}

/* A graph may be a chain of a million nodes: dead ones wait in a list, so that
** freeing never recurses. `seq` of a dead node is the link. */
static _Thread_local amp_node *dying;
static _Thread_local bool reaping;

void amp__node_free(amp_node *n)
{
  if (atomic_fetch_sub_explicit(&n->refs, 1, memory_order_acq_rel) != 1) return;
  n->seq = (int64_t)(intptr_t)dying;
  dying = n;
  if (reaping) return;
  reaping = true;
  while ((n = dying) != NULL) {
    dying = (amp_node *)(intptr_t)n->seq;
    for (int i = 0; i < n->nsaved; i++) amp__saved_free(&n->saved[i]);
    for (int i = 0; i < n->nin; i++) amp__edge_free(&n->edge[i]);
    hooks_free(n);
    if (n->flags & AMP_N_LUA) amp__dead_push(n->id);
    if (n->slices) {
      amp_node *fn = n->slices->fn;
      amp__obj_free(n->slices, sizeof *n->slices);
      amp__node_free(fn);
    }
    amp__obj_free(n, (size_t)n->bytes);
  }
  reaping = false;
}

/* -- Edges ------------------------------------------------------------------ */

static void forget_history(amp_tensor *t)
{
  amp_node *n = t->ag ? t->ag->node : NULL;
  t->flags &= ~(uint32_t)AMP_T_HISTORY;
  if (n == NULL) return;
  t->ag->node = NULL;
  amp__node_free(n);
}

/* A view whose storage changed since its node was made has a history if its base has. */
void amp__view_refresh(amp_tensor *t)
{
  amp_ag *ag = t->ag;
  if (ag->base == NULL || ag->view_version == amp__version(t)) return;
  if (amp__tracked(ag->base)) t->flags |= AMP_T_HISTORY;
  else if (!(t->flags & AMP_T_REQUIRES_GRAD)) forget_history(t);
}

uint32_t amp_tensor_flags(const amp_ref *a)
{
  if (a->t == NULL) return 0;
  amp__refresh(a->t);
  return a->t->flags;
}

/* Make a stale view's history anew: as_strided of the base's elements in memory order. */
static int regenerate(amp_tensor *t)
{
  amp_ag *ag = t->ag;
  amp_state *S = amp__S;
  int32_t grad_mode = S->grad_mode, autocast_on = S->autocast_on;
  int mark = amp__pool_mark();
  S->grad_mode = 1;
  S->autocast_on = 0;
  amp_tensor *p = amp__physical(ag->base), *v = NULL;
  if (p) {
    amp_sl a = amp__sl();
    amp__sl_list(&a, t->ndim, t->size);
    amp__sl_list(&a, t->ndim, t->stride);
    amp__sl_i(&a, t->offset);
    v = amp__x(AMP_OP_as_strided, &a, 1, &p);
  }
  S->grad_mode = grad_mode;
  S->autocast_on = autocast_on;
  if (v && v->ag && v->ag->node) {
    amp_node *old = ag->node;
    ag->node = v->ag->node;
    ag->index = 0;
    atomic_fetch_add_explicit(&ag->node->refs, 1, memory_order_relaxed);
    if (old) amp__node_free(old);
    ag->view_version = amp__version(t);
  }
  amp__pool_release(mark);
  return v ? 0 : S->err.code;
}

int amp__edge_of(amp_tensor *t, amp_edge *e)
{
  amp_ag *ag = t->ag;
  e->node = NULL;
  e->leaf = NULL;
  e->index = 0;
  if (!amp__tracked(t)) return 0;
  if (ag && ag->base && ag->view_version != amp__version(t)) {
    int rc = 0;
    amp__view_refresh(t);
    if (amp__tracked(ag->base) && (rc = regenerate(t)) < 0) return rc;
  }
  if (ag && ag->node) {
    e->node = ag->node;
    e->index = ag->index;
    atomic_fetch_add_explicit(&e->node->refs, 1, memory_order_relaxed);
  } else if (t->flags & AMP_T_REQUIRES_GRAD) {
    e->leaf = t;
    amp__retain(t);
  }
  return 0;
}

/* A stale view gets its node just now, after n: then n is dated anew, as the engine goes by dates. */
int amp__node_edge(amp_node *n, int i, amp_tensor *t)
{
  int rc = amp__edge_of(t, &n->edge[i]);
  if (amp_unlikely(rc == 0 && n->edge[i].node && n->edge[i].node->seq > n->seq))
    n->seq = atomic_fetch_add_explicit(&last_seq, 1, memory_order_relaxed);
  return rc;
}

/* -- Recording --------------------------------------------------------------- */

static void set_shape(amp_shape *s, const amp_tensor *t)
{
  if (t == NULL) { s->dtype = 0xff; s->ndim = 0; return; }
  s->dtype = t->dtype;
  s->ndim = t->ndim;
  s->device = t->device;
  s->device_index = t->device_index;
  for (int i = 0; i < t->ndim; i++) s->size[i] = t->size[i];
}

/* Are the places of t those of u, element by element? (What overlaps in another way, dispatch has copied.) */
static bool lies_on(const amp_tensor *t, const amp_tensor *u)
{
  return t == u || (t->storage == u->storage && t->offset == u->offset && t->dtype == u->dtype && amp__same_size(t, u)
                    && memcmp(t->stride, u->stride, sizeof(int64_t) * t->ndim) == 0);
}

/* Remember t for backward. A leaf that requires grad can't lose its history: it stands for itself. */
static int save_input(amp_saved *s, amp_tensor *t)
{
  if ((t->flags & AMP_T_REQUIRES_GRAD) && !(t->flags & AMP_T_HISTORY)) {
    s->t = t;
    amp__retain(t);
  } else {
    if ((s->t = amp__tensor_alias(t)) == NULL) return amp__S->err.code;
    s->t->flags |= t->flags & AMP_T_NUMBER;
    int rc = amp__edge_of(t, &s->edge);
    if (rc < 0) return rc;
  }
  s->version = amp__version(t);
  return 0;
}

/* The node of call c, without outputs tied. in0: what to save for the receiver of an in-place op and for
** arguments that lie on it, a copy; NULL: nothing is overwritten. */
static amp_node *make_node(amp_call *c, amp_tensor *in0)
{
  int nout = c->nout;
  int ndim = 0, saves = c->op->save || (c->op->info.flags & AMP_F_LIST) ? c->nin + nout : 0;
  for (int i = 0; i < c->nin; i++) if (c->in[i] && c->in[i]->ndim > ndim) ndim = c->in[i]->ndim;
  for (int i = 0; i < nout; i++) if (c->out[i]->ndim > ndim) ndim = c->out[i]->ndim;
  amp_node *n = amp__node_new(c->id, c->nin, nout, c->op->info.nslot, saves, ndim);
  if (n == NULL) return NULL;
  memcpy(n->a, c->a, sizeof(amp_slot) * (size_t)n->nslot);
  if (c->id == AMP_OP_cast) n->flags |= AMP_N_CAST;
  if (c->id == AMP_OP_mul && ((c->in[0]->flags | c->in[1]->flags) & AMP_T_SCALE)) n->flags |= AMP_N_SCALED;
  uint32_t save = c->op->save & ~c->unsaved;
  for (int i = 0; i < c->nin; i++) {
    amp_tensor *t = c->in[i];
    set_shape(amp__shape_of(n, i), t);
    if (t == NULL) continue;
    if (amp__is_float(t->dtype) && amp__node_edge(n, i, t) < 0) goto failed;
    bool wanted = i < 8 ? (save >> i & 1) : false;
    if ((c->op->info.flags & AMP_F_LIST) && i >= c->op->info.nin - 1 && !amp__is_float(t->dtype)) wanted = true; /* index lists */
    if (wanted) {
      bool overwritten = in0 && lies_on(t, c->in[0]);
      if (save_input(&n->saved[i], overwritten ? in0 : t) < 0 || (overwritten && amp__edge_of(t, &n->saved[i].edge) < 0)) goto failed;
    }
  }
  for (int i = 0; i < nout; i++) {
    amp_tensor *t = c->out[i];
    set_shape(amp__shape_of(n, c->nin + i), t);
    if (save >> (8 + i) & 1) {
      amp_saved *s = &n->saved[c->nin + i];
      if ((s->t = amp__tensor_alias(t)) == NULL) goto failed;
      s->version = amp__version(t);
    }
  }
  return n;
failed:
  amp__node_free(n);
  return NULL;
}

int amp__tie(amp_tensor *t, amp_node *n, int index)
{
  amp_ag *ag = amp__ag(t);
  if (ag == NULL) return amp__S->err.code;
  amp_node *old = ag->node;
  atomic_fetch_add_explicit(&n->refs, 1, memory_order_relaxed);
  ag->node = n;
  ag->index = index;
  t->flags |= AMP_T_HISTORY;
  if (old) amp__node_free(old);
  return 0;
}

/* The node that c will have, with all that tying it takes; NULL in *made: there is nothing to record. */
int amp__record_begin(amp_call *c, amp_node **made)
{
  bool any = false;
  *made = NULL;
  for (int i = 0; i < c->nin && !any; i++)
    any = c->in[i] && amp__is_float(c->in[i]->dtype) && amp__tracked(c->in[i]);
  if (!any || !amp__is_float(c->out[0]->dtype)) return 0;
  int last = c->op->info.flags & AMP_F_NODIFF_OUT1 ? 1 : c->nout;
  amp_node *n = make_node(c, NULL);
  if (n == NULL) return amp__S->err.code;
  for (int i = 0; i < last; i++)
    if (amp__is_float(c->out[i]->dtype) && amp__ag(c->out[i]) == NULL) { amp__node_free(n); return amp__S->err.code; }
  *made = n;
  return 0;
}

/* done: the kernel ran. Nothing here can fail. */
void amp__record_end(amp_call *c, amp_node *n, bool done)
{
  if (amp_likely(done)) {
    int ties = 0, last = c->op->info.flags & AMP_F_NODIFF_OUT1 ? 1 : c->nout;
    for (int i = 0; i < last; i++) {
      amp_tensor *t = c->out[i];
      if (!amp__is_float(t->dtype)) continue;
      AMP_ASSERT(t->ag && t->ag->node == NULL);
      t->ag->node = n;
      t->ag->index = i;
      t->flags |= AMP_T_HISTORY;
      ties++;
    }
    if (n->nsaved) /* a kernel may have filled a result by ops of its own */
      for (int i = c->nin; i < c->nin + c->nout; i++)
        if (n->saved[i].t) n->saved[i].version = amp__version(n->saved[i].t);
    amp__S->recorded++;
    if (ties > 1) atomic_fetch_add_explicit(&n->refs, ties - 1, memory_order_relaxed);
    if (ties) return; /* the count we had is the first tie's */
  }
  amp__node_free(n);
}

int amp__record(amp_call *c)
{
  amp_node *n;
  int rc = amp__record_begin(c, &n);
  if (rc == 0 && n) amp__record_end(c, n, true);
  return rc;
}

/* A view knows its base, so that changes through either reach the other's history. */
int amp__record_view(amp_call *c)
{
  amp_tensor *t = c->in[0], *base = t->ag && t->ag->base ? t->ag->base : t;
  if (!amp__is_float(t->dtype)) return 0;
  for (int i = 0; i < c->nout; i++) {
    amp_tensor *v = c->out[i];
    amp_ag *ag = amp__ag(v);
    if (ag == NULL) return amp__S->err.code;
    amp__retain(base);
    ag->base = base;
    ag->view_version = amp__version(v);
  }
  return amp__tracked(t) ? amp__record(c) : 0;
}

/* -- In place ----------------------------------------------------------------- */

int amp__check_inplace(const amp_tensor *t)
{
  const amp_tensor *base = t->ag ? t->ag->base : NULL;
  if ((t->flags & AMP_T_REQUIRES_GRAD) && !(t->flags & AMP_T_HISTORY))
    return amp__fail(AMP_E_AUTOGRAD, "a leaf that requires grad can't be changed in place while gradients are recorded; do it inside amp.no_grad(function() ... end)");
  if (base && (base->flags & AMP_T_REQUIRES_GRAD) && !(base->flags & AMP_T_HISTORY))
    return amp__fail(AMP_E_AUTOGRAD, "a view of a leaf that requires grad can't be changed in place while gradients are recorded; do it inside amp.no_grad(function() ... end)");
  if (base == NULL && (t->flags & AMP_T_UNRECORDED))
    return amp__fail(AMP_E_AUTOGRAD, "a view that was made inside amp.no_grad can't be changed in place while gradients are recorded: the tensor it is a view of would not know; make the view outside, or use :clone()");
  if (base && !(base->flags & AMP_T_DENSE))
    return amp__fail(AMP_E_AUTOGRAD, "a view of a tensor with gaps in memory can't be changed in place while gradients are recorded; use :clone() first");
  if (!amp__is_float(t->dtype))
    return amp__fail(AMP_E_DTYPE, "a tensor of dtype %s can't take a value that requires grad", amp_dtype_name(t->dtype));
  return 0;
}

/* A view's op, as its base sees it. */
static amp_node *slices_node(amp_call *c, amp_node *fn, amp_tensor *t, amp_tensor *base)
{
  amp_node *s = amp__node_new(c->id, c->nin, 1, 0, 0, AMP_MAX_DIM);
  if (s == NULL) return NULL;
  if ((s->slices = amp__obj_alloc(sizeof *s->slices)) == NULL) {
    amp__nomem(sizeof *s->slices);
    amp__node_free(s);
    return NULL;
  }
  s->flags |= AMP_N_SLICES;
  s->slices->fn = fn;
  atomic_fetch_add_explicit(&fn->refs, 1, memory_order_relaxed);
  s->slices->ndim = t->ndim;
  memcpy(s->slices->size, t->size, sizeof t->size);
  memcpy(s->slices->stride, t->stride, sizeof t->stride);
  s->slices->offset = t->offset - base->offset;
  amp__physical_order(base, s->slices->order);
  set_shape(amp__shape_of(s, 0), base);
  set_shape(amp__shape_of(s, c->nin), base);
  if (amp__node_edge(s, 0, base) < 0) { amp__node_free(s); return NULL; }
  for (int i = 1; i < c->nin; i++) {
    set_shape(amp__shape_of(s, i), c->in[i]);
    s->edge[i] = fn->edge[i];
    if (s->edge[i].node) atomic_fetch_add_explicit(&s->edge[i].node->refs, 1, memory_order_relaxed);
    if (s->edge[i].leaf) amp__retain(s->edge[i].leaf);
  }
  return s;
}

/* The history that an in-place op will give its receiver (c->out[0]) and, if that is a view, its base. */
int amp__rebase_begin(amp_call *c, amp_rebase *r)
{
  amp_tensor *t = c->out[0], *base, *copy = NULL;
  int rc = amp__check_inplace(t);
  if (rc < 0) return rc;
  if (amp__ag(t) == NULL) return amp__S->err.code;
  base = t->ag->base;
  if (base && amp__ag(base) == NULL) return amp__S->err.code;
  if (base == NULL && c->op->bwd == NULL) return 0; /* filled without regard to what was there */
  for (int i = 0; i < c->nin && i < 8 && copy == NULL; i++)
    if (c->in[i] && (c->op->save >> i & 1) && lies_on(c->in[i], t) && (copy = amp__raw_clone(t)) == NULL) return amp__S->err.code;
  r->node = make_node(c, copy);
  amp__free(copy);
  if (r->node && base && (r->outer = slices_node(c, r->node, t, base)) == NULL) {
    amp__node_free(r->node);
    r->node = NULL;
  }
  return r->node ? 0 : amp__S->err.code;
}

void amp__rebase_end(amp_call *c, amp_rebase *r, bool done)
{
  amp_tensor *t = c->out[0];
  amp_node *n = r->node;
  if (done && n == NULL) forget_history(t);
  else if (done) {
    for (int i = 0; i < n->nsaved; i++) /* what lies beside the receiver did not change, and the result is the new one */
      if (n->saved[i].t && n->saved[i].t->storage == t->storage) n->saved[i].version = amp__version(t);
    if (r->outer) {
      (void)amp__tie(t->ag->base, r->outer, 0);
      t->flags |= AMP_T_HISTORY; /* its node is made anew from the base at next use */
    } else (void)amp__tie(t, n, 0);
    amp__S->recorded++;
  }
  if (r->outer) amp__node_free(r->outer);
  if (n) amp__node_free(n);
}

/* Dimensions of t from the outermost in memory to the innermost. */
void amp__physical_order(const amp_tensor *t, int8_t *order)
{
  for (int i = 0; i < AMP_MAX_DIM; i++) order[i] = (int8_t)i;
  if (t->flags & AMP_T_CONTIGUOUS) return;
  for (int i = 1; i < t->ndim && i < AMP_MAX_DIM; i++) {
    int8_t x = order[i];
    int j = i;
    for (; j > 0 && t->stride[order[j - 1]] < t->stride[x]; j--) order[j] = order[j - 1];
    order[j] = x;
  }
}

/* t seen in memory order, recorded; from the pool. A base that has gaps can't be. */
amp_tensor *amp__physical(amp_tensor *t)
{
  if (t->flags & AMP_T_CONTIGUOUS) return t;
  if (!(t->flags & AMP_T_DENSE)) {
    amp__fail(AMP_E_AUTOGRAD, "a view of a tensor with gaps in memory was changed in place; use :clone() first");
    return NULL;
  }
  int8_t order[AMP_MAX_DIM];
  int64_t dims[AMP_MAX_DIM];
  amp__physical_order(t, order);
  for (int i = 0; i < t->ndim; i++) dims[i] = order[i] + 1;
  amp_sl a = amp__sl();
  amp__sl_list(&a, t->ndim, dims);
  return amp__x(AMP_OP_permute, &a, 1, &t);
}

/* -- Saved tensors -------------------------------------------------------------- */

/* The leaf whose cast the saved tensor is (or is a view of), if it changed since. */
static const amp_saved *master_changed(const amp_saved *s)
{
  if (!amp__is_half(s->t->dtype)) return NULL;
  for (const amp_node *n = s->edge.node; n; n = n->edge[0].node) {
    if (n->flags & AMP_N_SHADOW) {
      const amp_saved *m = &n->saved[0];
      return m->t && m->version != amp__version(m->t) ? m : NULL;
    }
    if (n->op >= AMP_OP_COUNT || amp__ops[n->op].info.kind != 'V') return NULL;
  }
  return NULL;
}

static amp_tensor *changed(const amp_node *n, const amp_saved *s)
{
  amp__fail(AMP_E_AUTOGRAD, "a tensor (%s) that the backward of %s needs was changed in place: it is at version %u, saved at version %u; use a copy (:clone()) or the form without _",
            amp__tensor_str(s->t), amp__node_name(n), (unsigned)amp__version(s->t), (unsigned)s->version);
  return NULL;
}

amp_tensor *amp__saved_get(amp_node *n, int i, bool with_history)
{
  amp_saved *s = i < n->nsaved ? &n->saved[i] : &(amp_saved){ 0 };
  if (n->flags & AMP_N_FREED) {
    amp__fail(AMP_E_AUTOGRAD, "the graph of %s was freed by an earlier backward; pass retain_graph = true to that one", amp__node_name(n));
    return NULL;
  }
  if (s->t == NULL) { amp__fail(AMP_E_INTERNAL, "%s did not save argument %d", amp__node_name(n), i + 1); return NULL; }
  if (s->version != amp__version(s->t)) return changed(n, s);
  const amp_saved *master = master_changed(s);
  if (master) return changed(n, master);
  if (!with_history || (s->t->flags & AMP_T_REQUIRES_GRAD)) { amp__retain(s->t); return s->t; }
  bool output = i >= n->nin;
  if (!output && s->edge.node == NULL && s->edge.leaf == NULL) { amp__retain(s->t); return s->t; }
  amp_tensor *t = amp__tensor_alias(s->t);
  if (t == NULL) return NULL;
  t->flags |= s->t->flags & AMP_T_NUMBER;
  if (output ? !amp__is_float(t->dtype) || (i > n->nin && n->op != AMP_NODE_LUA && (amp__ops[n->op].info.flags & AMP_F_NODIFF_OUT1)) : s->edge.node == NULL) return t;
  if (amp__tie(t, output ? n : s->edge.node, output ? i - n->nin : s->edge.index) < 0) { amp__free(t); return NULL; }
  return t;
}

const char *amp__node_name(const amp_node *n)
{
  return n->op == AMP_NODE_LUA ? "an amp.Function" : amp__ops[n->op].info.name;
}

const char *amp_node_name(const amp_ref *a)
{
  if (a == NULL || a->t == NULL || a->t->ag == NULL) return NULL;
  amp__refresh(a->t);
  if (a->t->ag->node) return amp__node_name(a->t->ag->node);
  return a->t->flags & AMP_T_HISTORY ? "as_strided" : NULL; /* a view that will get its node when it is used */
}
