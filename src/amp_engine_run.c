/*
** amp_engine_run.c: the machine: one node after the other, stops where Lua has to
** act, leaves with hooks at the end. What fails for want of memory stops for a
** collection and goes on with the step that failed, once.
*/
#include <stdlib.h>
#include "amp_engine.h"

#define find amp__engine_find

static int row_flags(const amp_node *n) { return n->op >= 0 && n->op < AMP_OP_COUNT ? (int)amp__ops[n->op].info.flags : 0; }

/* -- Derivatives: from e->g to items. A failed one has given nothing. ----------------- */

static int slice_items(engine *e, amp_tensor **gin, amp_tensor *p, amp_tensor *slice, amp_sl *view, amp_sl *unperm)
{
  amp_node *n = e->node;
  amp_slices *s = n->slices;
  int rc = 0;
  amp_bwd b = { .node = s->fn, .nin = s->fn->nin, .nout = 1, .a = s->fn->a, .gin = gin, .create_graph = (e->flags & AMP_B_CREATE_GRAPH) != 0 };
  b.g[0] = slice;
  /* an op without derivative wrote without regard to what was there */
  if (amp__ops[s->fn->op].bwd) rc = amp__ops[s->fn->op].bwd(&b);
  for (int i = 1; i < n->nin && rc == 0; i++)
    if (gin[i]) rc = amp__engine_add_item(e, i, gin[i]);
  if (rc < 0 || !(n->edge[0].node || n->edge[0].leaf)) return rc;
  amp_tensor *inner = gin[0];
  if (inner == NULL) inner = amp__xfull(0, slice->dtype, slice->device, slice->device_index, slice->ndim, slice->size);
  amp_tensor *in[2] = { p, inner };
  amp_tensor *r = inner ? amp__x(AMP_OP_as_strided_scatter, view, 2, in) : NULL;
  if (r && unperm) r = amp__x(AMP_OP_permute, unperm, 1, &r);
  if (r == NULL) return amp__S->err.code;
  rc = amp__engine_add_item(e, 0, r);
  if (rc == 0) e->items[e->nitem - 1].fits = true;
  return rc;
}

/* The slice's gradient goes through the in-place op, the rest of the base's passes. */
static int derive_slices(engine *e)
{
  amp_node *n = e->node;
  amp_slices *s = n->slices;
  int rc, nd = amp__shape_of(n, 0)->ndim;
  int64_t dims[AMP_MAX_DIM], back[AMP_MAX_DIM];
  bool ordered = true;
  for (int i = 0; i < nd; i++) {
    dims[i] = s->order[i] + 1;
    back[s->order[i]] = i + 1;
    ordered &= s->order[i] == i;
  }
  amp_sl perm = amp__sl(), unperm = amp__sl(), view = amp__sl();
  amp__sl_list(&perm, nd, dims);
  amp__sl_list(&unperm, nd, back);
  amp__sl_list(&view, s->ndim, s->size);
  amp__sl_list(&view, s->ndim, s->stride);
  amp__sl_i(&view, s->offset);
  amp_tensor **gin = calloc((size_t)n->nin, sizeof *gin);
  if (gin == NULL) return amp__nomem(sizeof *gin * (size_t)n->nin);
  amp_tensor *p = ordered ? e->g[0] : amp__x(AMP_OP_permute, &perm, 1, &e->g[0]);
  p = p ? X1(contiguous, p) : NULL;
  amp_sl window = view;
  if (p) window.v[window.n - 1].i += p->offset; /* as_strided counts from the storage's start */
  amp_tensor *slice = p ? amp__x(AMP_OP_as_strided, &window, 1, &p) : NULL;
  rc = slice ? slice_items(e, gin, p, slice, &view, ordered ? NULL : &unperm) : amp__S->err.code;
  free(gin);
  return rc;
}

/* A derivative's results */
static int take_results(engine *e, const amp_bwd *b)
{
  int rc = 0;
  for (int i = 0; i < b->nin && rc == 0; i++) {
    if (b->gin[i] == NULL) continue;
    if ((rc = amp__engine_add_item(e, i, b->gin[i])) < 0) break;
    item *x = &e->items[e->nitem - 1];
    x->any_dtype = i == 0 && b->any_dtype;
    x->summed = i == 0 && b->summed;
  }
  if (rc == 0 && b->part) {
    e->part = b->part;
    amp__retain(e->part);
    memcpy(e->part_stride, b->part_stride, sizeof e->part_stride);
    e->part_offset = b->part_offset;
  }
  return rc;
}

/* Room for the results first: what a derivative put off is not to be put off twice. */
static int derive_row(engine *e)
{
  amp_node *n = e->node;
  amp_tensor *small[AMP_MAX_IN] = { NULL }, **gin = small;
  if ((e->flags & AMP_B_CREATE_GRAPH) && (amp__ops[n->op].info.flags & AMP_F_FIRST))
    return amp__fail(AMP_E_AUTOGRAD, "the derivative of %s can't be differentiated again: run this backward without create_graph", amp__node_name(n));
  int rc = amp__engine_room(e, n->nin);
  if (rc < 0) return rc;
  if (n->nin > AMP_MAX_IN && (gin = calloc((size_t)n->nin, sizeof *gin)) == NULL) return amp__nomem(sizeof *gin * (size_t)n->nin);
  amp_bwd b = { .node = n, .nin = n->nin, .nout = n->nout, .a = n->a, .gin = gin, .create_graph = (e->flags & AMP_B_CREATE_GRAPH) != 0, .last = !(e->flags & AMP_B_RETAIN_GRAPH) };
  b.takes_part = !b.create_graph && n->edge[0].node;
  b.may_alias = b.takes_part && !e->only && !n->edge[0].node->hooks;
  b.any_dtype = b.may_alias && n->op == AMP_OP_cast && amp__shape_of(n, 0)->device != AMP_CPU && !n->edge[0].node->slices
                && (row_flags(n->edge[0].node) & AMP_F_GRAD_ANY) && n->edge[0].index == 0;
  if (!b.create_graph && !e->inner) { b.later = &e->later; b.accumulates = amp__engine_accumulates(e) && !e->only; }
  entry *to = b.takes_part && !amp_unlikely(amp__observing()) ? find(e, n->edge[0].node) : NULL;
  if (to && to->grad && (b.sum = to->grad[n->edge[0].index]) != NULL && b.sum->dtype != amp__shape_of(n, 0)->dtype) b.sum = NULL;
  for (int i = 0; i < n->nout && i < AMP_MAX_OUT; i++) b.g[i] = e->g[i];
  rc = amp__ops[n->op].bwd(&b);
  if (e->later) e->origin |= amp__S->priv->origin;
  if (rc == 0) rc = take_results(e, &b);
  if (gin != small) free(gin);
  return rc;
}

static int derive(engine *e)
{
  amp_node *n = e->node;
  int rc;
  if ((n->flags & AMP_N_CAST) && n->edge[0].leaf && !(e->flags & AMP_B_CREATE_GRAPH) && n->edge[0].leaf->dtype == amp__shape_of(n, 0)->dtype) {
    /* a weight's cast: the gradient may stay as it is */
    if ((rc = amp__engine_room(e, 1)) < 0) return rc;
    e->items[0] = (item){ .t = e->g[0], .fits = true };
    e->nitem = 1;
    e->g[0] = NULL;
    e->phase = AT_SEND;
    return 0;
  }
  int mark = amp__pool_mark();
  rc = n->slices ? derive_slices(e) : derive_row(e);
  amp__pool_release(mark);
  if (rc < 0) amp__engine_drop_items(e);
  else e->phase = n->slices ? AT_FIT : AT_PART;
  return rc;
}

/* -- Stops ----------------------------------------------------------------------------- */

static void clear_list(amp_tensor ***p, int *n)
{
  for (int i = 0; i < *n && *p; i++) amp__free((*p)[i]);
  free(*p);
  *p = NULL;
  *n = 0;
}

/* What begins a backward, and a scaler's cell, are not Lua's own to change. */
static int own_cells(amp_tensor **g, int n)
{
  for (int i = 0; i < n; i++)
    if (g[i] && g[i]->device != AMP_CPU && g[i]->numel == 1 && (g[i]->refs > 1 || g[i]->storage->refs > 1)) {
      int mark = amp__pool_mark();
      amp_tensor *c = amp__keep(X1(clone, g[i]));
      amp__pool_release(mark);
      if (c == NULL) return amp__S->err.code;
      amp__free(g[i]);
      g[i] = c;
    }
  return 0;
}

static int stop_for(engine *e, int kind, int64_t id, amp_tensor **g, int n, int wanted)
{
  int rc = own_cells(g, n);
  if (rc < 0) return rc;
  e->in = calloc((size_t)(n > 0 ? n : 1), sizeof *e->in);
  e->back = calloc((size_t)(wanted > 0 ? wanted : 1), sizeof *e->back);
  if (e->in == NULL || e->back == NULL) {
    clear_list(&e->in, &e->nin);
    clear_list(&e->back, &e->nback);
    return amp__nomem(sizeof *e->in * (size_t)(n + wanted));
  }
  e->nin = n;
  e->nback = wanted;
  for (int i = 0; i < n; i++) if ((e->in[i] = g[i]) != NULL) amp__retain(g[i]);
  e->head.request = kind;
  e->head.id = id;
  e->head.n = n;
  e->head.wanted = wanted;
  return 1;
}

void amp__engine_stop_done(engine *e)
{
  clear_list(&e->in, &e->nin);
  clear_list(&e->back, &e->nback);
  e->head.request = AMP_R_NONE;
}

/* What Lua gave for a hook: a new gradient of the same shape, or nothing. */
static int take_hook(engine *e, amp_tensor **g)
{
  amp_tensor *r = e->back[0];
  if (r) {
    if (!amp__same_size(r, *g))
      return amp__fail(AMP_E_SHAPE, "a hook gives a gradient of shape %s, expected %s",
                       amp__shape_str(r->ndim, r->size), amp__shape_str((*g)->ndim, (*g)->size));
    int mark = amp__pool_mark();
    amp_tensor *c = r->dtype == (*g)->dtype ? r : amp__xcast(r, (*g)->dtype);
    if (c) { amp__retain(c); amp__free(*g); *g = c; }
    amp__pool_release(mark);
    if (c == NULL) return amp__S->err.code;
  }
  amp__engine_stop_done(e);
  return 0;
}

/* What Lua gave for a function: items. */
static int finish_function(engine *e)
{
  amp_node *n = e->node;
  int rc = 0;
  if (e->phase == AT_DERIVATIVE) {
    for (int i = 0; i < n->nin && rc == 0; i++)
      if (e->back[i] && (n->edge[i].node || n->edge[i].leaf)) rc = amp__engine_add_item(e, i, e->back[i]);
    if (rc < 0) { amp__engine_drop_items(e); return rc; }
    clear_list(&e->back, &e->nback);
    e->phase = AT_FIT;
  }
  if ((rc = amp__engine_deliver(e)) < 0) return rc;
  amp__engine_stop_done(e);
  return 0;
}

/* -- The machine ------------------------------------------------------------------------- */

void amp__engine_drop_node(engine *e)
{
  for (int i = 0; e->g && i < e->node->nout; i++) amp__free(e->g[i]);
  free(e->g);
  e->g = NULL;
  amp__engine_drop_items(e);
}

static int to_targets(engine *e)
{
  for (; e->target_at >= 0; e->target_at = e->targets[e->target_at].next) {
    target *t = &e->targets[e->target_at];
    amp_tensor *v = e->g[t->e.index];
    if (v == NULL) continue;
    amp__retain(v);
    if (!amp__engine_accumulates(e)) {
      t->grad = v;
      continue;
    }
    int rc = t->t ? amp__grad_accumulate(t->t, v, false) : 0;
    if (rc < 0 || !t->t) amp__free(v);
    if (rc < 0) return rc;
  }
  return 0;
}

static int call_function(engine *e)
{
  amp_node *n = e->node;
  for (int i = 0; i < n->nout; i++) {
    const amp_shape *s = amp__shape_of(n, n->nin + i);
    if (e->g[i] || !amp__is_float(s->dtype)) continue;
    int mark = amp__pool_mark();
    e->g[i] = amp__keep(amp__xfull(0, s->dtype, s->device, s->device_index, s->ndim, s->size));
    amp__pool_release(mark);
    if (e->g[i] == NULL) return amp__S->err.code;
  }
  int rc = stop_for(e, AMP_R_FUNCTION, n->id, e->g, n->nout, n->nin);
  if (rc == 1) amp__engine_drop_node(e);
  return rc;
}

static int work(engine *e)
{
  amp_frame f;
  bool watched = amp_unlikely(amp__observing()) && amp__observe_begin(&f, e->node->op, AMP_SP_NODE | AMP_SP_BACKWARD, e->node->seq);
  int rc = e->phase == AT_DERIVATIVE ? derive(e) : 0;
  if (rc == 0) rc = amp__engine_deliver(e);
  if (watched) amp__observe_end(&f, rc);
  if (rc == 0 && !(e->flags & AMP_B_RETAIN_GRAPH)) amp__node_spend(e->node, e->came);
  return rc;
}

/* Work on e->node, whose hooks up to e->hook_at have run. 0: done with it, 1: Lua's turn. */
static int advance(engine *e)
{
  amp_node *n = e->node;
  entry *x = find(e, n);
  int rc;
  if (e->phase == AT_HOOKS) {
    for (; n->hooks && e->hook_at < n->nout; e->hook_at++)
      if (n->hooks[e->hook_at] > 0 && x->grad[e->hook_at])
        return stop_for(e, AMP_R_HOOK, n->hooks[e->hook_at], &x->grad[e->hook_at], 1, 1);
    e->g = x->grad;
    x->grad = NULL;
    x->queued = false;
    e->target_at = x->target;
    e->came = 0; /* outputs of a view (at most AMP_MAX_OUT) */
    for (int i = 0; i < n->nout && i < AMP_MAX_OUT; i++) e->came |= (uint32_t)(e->g[i] != NULL) << i;
    e->phase = AT_TARGETS;
  }
  amp__S->priv->origin = amp__node_origin(n, x->origin);
  if (e->phase == AT_TARGETS) {
    if ((rc = to_targets(e)) < 0) return rc;
    if (e->only && (x->state != 2 || ((e->flags & AMP_B_STOP) && x->target >= 0))) {
      amp__engine_drop_node(e);
      return 0;
    }
    e->phase = AT_DERIVATIVE;
    if (amp__node_spent(n, e->came))
      return amp__fail(AMP_E_AUTOGRAD, "the graph of %s was freed by an earlier backward; pass retain_graph = true to that one", amp__node_name(n));
  }
  if (n->flags & AMP_N_LUA) return call_function(e);
  if ((rc = work(e)) == 0) amp__engine_drop_node(e);
  return rc;
}

static void done(engine *e)
{
  e->node = NULL;
  e->phase = AT_HOOKS;
  e->hook_at = 0;
  e->collected = false;
}

/* What was being done when Lua's turn came */
static int resume(engine *e)
{
  int rc = 0;
  if (e->head.request == AMP_R_MEMORY) e->head.request = e->was;
  if (e->head.request == AMP_R_HOOK) {
    amp_tensor **g = e->leaf ? &find(e, e->leaf)->grad[0] : &find(e, e->node)->grad[e->hook_at];
    if ((rc = take_hook(e, g)) < 0) return rc;
    if (!e->leaf) e->hook_at++;
  } else if (e->head.request == AMP_R_FUNCTION) {
    amp__S->priv->origin = find(e, e->node)->origin;
    if ((rc = finish_function(e)) < 0) return rc;
    if (!(e->flags & AMP_B_RETAIN_GRAPH)) amp__node_release_saved(e->node);
    done(e);
  }
  if (e->node) {
    if ((rc = advance(e)) != 0) return rc;
    done(e);
  }
  return 0;
}

static int to_leaves(engine *e)
{
  int rc;
  for (; e->leaf_at < e->nleaves; e->leaf_at++) {
    amp_tensor *leaf = e->leaves[e->leaf_at];
    entry *x = find(e, leaf);
    if (e->leaf == NULL && leaf->ag && leaf->ag->hook) {
      if ((rc = stop_for(e, AMP_R_HOOK, leaf->ag->hook, &x->grad[0], 1, 1)) == 1) e->leaf = leaf;
      return rc;
    }
    amp__S->priv->origin = x->origin;
    if ((rc = amp__engine_into_leaf(e, leaf, &x->grad[0], false)) < 0) return rc;
    e->leaf = NULL;
    e->collected = false;
  }
  return 0;
}

static int go_on(engine *e)
{
  int rc = resume(e);
  while (rc == 0 && e->nheap) {
    e->node = amp__engine_pop(e);
    if ((rc = advance(e)) == 0) done(e);
  }
  if (rc == 0 && e->later) rc = amp__engine_flush(e, true);
  return rc == 0 ? to_leaves(e) : rc;
}

int amp__engine_run(engine *e)
{
  int rc = go_on(e);
  if (rc != AMP_E_MEMORY || !(e->flags & AMP_B_COLLECT) || e->collected) return rc;
  e->collected = true;
  e->was = e->head.request;
  e->head.request = AMP_R_MEMORY;
  e->head.n = e->head.wanted = 0;
  return 1;
}
