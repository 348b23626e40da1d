/*
** autograd/engine_run.c: the machine: one node after the other, stops where Lua has to
** act, leaves with hooks at the end. What fails for want of memory stops for a
** collection and goes on with the step that failed, once.
*/
#include <stdlib.h>
#include "autograd/engine.h"

#define find amp__engine_find

/* -- Derivatives: from engine->incoming to items. A failed one has given nothing. ----------------- */

static int slice_items(engine *engine, amp_tensor **gin, amp_tensor *p, amp_tensor *slice, amp_attrs *view,
                       amp_attrs *unperm)
{
  amp_node *node = engine->node;
  amp_slices *s = node->slices;
  int status = 0;
  amp_bwd bwd = { .node = s->function,
                  .nin = s->function->nin,
                  .nout = 1,
                  .attrs = s->function->attrs,
                  .grad_in = gin,
                  .create_graph = (engine->flags & AMP_B_CREATE_GRAPH) != 0 };
  bwd.grad[0] = slice;
  /* an op without derivative wrote without regard to what was there */
  if (amp__ops[s->function->op].bwd) status = amp__ops[s->function->op].bwd(&bwd);
  for (int i = 1; i < node->nin && status == 0; i++)
    if (gin[i]) status = amp__engine_add_item(engine, i, gin[i]);
  if (status < 0 || !(node->edge[0].node || node->edge[0].leaf)) return status;
  amp_tensor *inner = gin[0];
  if (inner == NULL)
    inner = amp__op_full(0, slice->dtype, slice->device, slice->device_index, slice->ndim, slice->size);
  amp_tensor *inputs[2] = { p, inner };
  amp_tensor *r = inner ? amp__op(AMP_OP_as_strided_scatter, view, 2, inputs) : NULL;
  if (r && unperm) r = amp__op(AMP_OP_permute, unperm, 1, &r);
  if (r == NULL) return amp__S->err.code;
  status = amp__engine_add_item(engine, 0, r);
  if (status == 0) engine->items[engine->nitem - 1].fits = true;
  return status;
}

/* The slice's gradient goes through the in-place op, the rest of the base's passes. */
static int derive_slices(engine *engine)
{
  amp_node *node = engine->node;
  amp_slices *s = node->slices;
  int status, ndim = amp__shape_of(node, 0)->ndim;
  int64_t dims[AMP_MAX_DIM], back[AMP_MAX_DIM];
  bool ordered = true;
  for (int i = 0; i < ndim; i++) {
    dims[i] = s->order[i] + 1;
    back[s->order[i]] = i + 1;
    ordered &= s->order[i] == i;
  }
  amp_attrs perm = amp__attrs(), unperm = amp__attrs(), view = amp__attrs();
  amp__attrs_list(&perm, ndim, dims);
  amp__attrs_list(&unperm, ndim, back);
  amp__attrs_list(&view, s->ndim, s->size);
  amp__attrs_list(&view, s->ndim, s->stride);
  amp__attrs_int(&view, s->offset);
  amp_tensor **gin = calloc((size_t)node->nin, sizeof *gin);
  if (gin == NULL) return amp__nomem(sizeof *gin * (size_t)node->nin);
  amp_tensor *p = ordered ? engine->incoming[0] : amp__op(AMP_OP_permute, &perm, 1, &engine->incoming[0]);
  p = p ? OP1(contiguous, p) : NULL;
  amp_attrs window = view;
  if (p) window.v[window.n - 1].i += p->offset; /* as_strided counts from the storage's start */
  amp_tensor *slice = p ? amp__op(AMP_OP_as_strided, &window, 1, &p) : NULL;
  status = slice ? slice_items(engine, gin, p, slice, &view, ordered ? NULL : &unperm) : amp__S->err.code;
  free(gin);
  return status;
}

/* A derivative's results */
static int take_results(engine *engine, const amp_bwd *bwd)
{
  int status = 0;
  for (int i = 0; i < bwd->nin && status == 0; i++) {
    if (bwd->grad_in[i] == NULL) continue;
    if ((status = amp__engine_add_item(engine, i, bwd->grad_in[i])) < 0) break;
    item *x = &engine->items[engine->nitem - 1];
    x->any_dtype = (i == 0 && bwd->any_dtype) || (i < 32 && bwd->stays >> i & 1);
    x->summed = i == 0 && bwd->summed;
  }
  if (status == 0 && bwd->part) {
    engine->part = bwd->part;
    amp__retain(engine->part);
    memcpy(engine->part_stride, bwd->part_stride, sizeof engine->part_stride);
    engine->part_offset = bwd->part_offset;
  }
  return status;
}

/* Room for the results first: what a derivative put off is not to be put off twice. */
static int derive_row(engine *engine)
{
  amp_node *node = engine->node;
  amp_tensor *small[AMP_MAX_IN] = { NULL }, **gin = small;
  if ((engine->flags & AMP_B_CREATE_GRAPH) && (amp__ops[node->op].info.flags & AMP_F_FIRST))
    return amp__fail(AMP_E_AUTOGRAD,
                     "the derivative of %s can't be differentiated again: run this backward without create_graph",
                     amp__node_name(node));
  int status = amp__engine_room(engine, node->nin);
  if (status < 0) return status;
  if (node->nin > AMP_MAX_IN && (gin = calloc((size_t)node->nin, sizeof *gin)) == NULL)
    return amp__nomem(sizeof *gin * (size_t)node->nin);
  amp_bwd bwd = { .node = node,
                  .nin = node->nin,
                  .nout = node->nout,
                  .attrs = node->attrs,
                  .grad_in = gin,
                  .create_graph = (engine->flags & AMP_B_CREATE_GRAPH) != 0,
                  .last = !(engine->flags & AMP_B_RETAIN_GRAPH) };
  bwd.takes_part = !bwd.create_graph && node->edge[0].node;
  bwd.may_alias = bwd.takes_part && !engine->only && !node->edge[0].node->hooks;
  bwd.any_dtype = bwd.may_alias && (node->flags & AMP_N_CAST) && amp__shape_of(node, 0)->device != AMP_CPU
                  && !node->edge[0].node->slices && (amp__node_flags(node->edge[0].node) & AMP_F_GRAD_ANY)
                  && node->edge[0].index == 0;
  if (!bwd.create_graph && !engine->inner) {
    bwd.later = &engine->later;
    bwd.accumulates = amp__engine_accumulates(engine) && !engine->only;
  }
  entry *to = bwd.takes_part && !amp_unlikely(amp__observing()) ? find(engine, node->edge[0].node) : NULL;
  if (to && amp_unlikely(engine->npieces) && amp__engine_pieces(engine, node->edge[0].node, node->edge[0].index))
    to = NULL;
  if (to && to->grad && (bwd.sum = to->grad[node->edge[0].index]) != NULL
      && bwd.sum->dtype != amp__shape_of(node, 0)->dtype)
    bwd.sum = NULL;
  for (int i = 0; i < node->nout && i < AMP_MAX_OUT; i++) bwd.grad[i] = engine->incoming[i];
  status = amp__ops[node->op].bwd(&bwd);
  if (engine->later) engine->origin |= amp__S->priv->origin;
  if (status == 0) status = take_results(engine, &bwd);
  if (gin != small) free(gin);
  return status;
}

static int derive(engine *engine)
{
  amp_node *node = engine->node;
  int status;
  if ((node->flags & AMP_N_CAST) && node->edge[0].leaf && !(engine->flags & AMP_B_CREATE_GRAPH)
      && node->edge[0].leaf->dtype == amp__shape_of(node, 0)->dtype) {
    /* a weight's cast: the gradient may stay as it is */
    if ((status = amp__engine_room(engine, 1)) < 0) return status;
    engine->items[0] = (item){ .tensor = engine->incoming[0], .fits = true };
    engine->nitem = 1;
    engine->incoming[0] = NULL;
    engine->phase = AT_SEND;
    return 0;
  }
  int mark = amp__pool_mark();
  status = node->slices ? derive_slices(engine) : derive_row(engine);
  amp__pool_release(mark);
  if (status < 0) amp__engine_drop_items(engine);
  else engine->phase = node->slices ? AT_FIT : AT_PART;
  return status;
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
static int own_cells(amp_tensor **g, int count)
{
  for (int i = 0; i < count; i++)
    if (g[i] && g[i]->device != AMP_CPU && g[i]->numel == 1 && (g[i]->refs > 1 || g[i]->storage->refs > 1)) {
      int mark = amp__pool_mark();
      amp_tensor *c = amp__keep(OP1(clone, g[i]));
      amp__pool_release(mark);
      if (c == NULL) return amp__S->err.code;
      amp__free(g[i]);
      g[i] = c;
    }
  return 0;
}

static int stop_for(engine *engine, int kind, int64_t id, amp_tensor **g, int count, int wanted)
{
  int status = own_cells(g, count);
  if (status < 0) return status;
  engine->inputs = calloc((size_t)(count > 0 ? count : 1), sizeof *engine->inputs);
  engine->back = calloc((size_t)(wanted > 0 ? wanted : 1), sizeof *engine->back);
  if (engine->inputs == NULL || engine->back == NULL) {
    clear_list(&engine->inputs, &engine->nin);
    clear_list(&engine->back, &engine->nback);
    return amp__nomem(sizeof *engine->inputs * (size_t)(count + wanted));
  }
  engine->nin = count;
  engine->nback = wanted;
  for (int i = 0; i < count; i++)
    if ((engine->inputs[i] = g[i]) != NULL) amp__retain(g[i]);
  engine->head.request = kind;
  engine->head.id = id;
  engine->head.n = count;
  engine->head.wanted = wanted;
  return 1;
}

void amp__engine_stop_done(engine *engine)
{
  clear_list(&engine->inputs, &engine->nin);
  clear_list(&engine->back, &engine->nback);
  engine->head.request = AMP_R_NONE;
}

/* What Lua gave for a hook: a new gradient of the same shape, or nothing. */
static int take_hook(engine *engine, amp_tensor **g)
{
  amp_tensor *r = engine->back[0];
  if (r) {
    if (!amp__same_size(r, *g))
      return amp__fail(AMP_E_SHAPE, "a hook gives a gradient of shape %s, expected %s",
                       amp__shape_str(r->ndim, r->size), amp__shape_str((*g)->ndim, (*g)->size));
    int mark = amp__pool_mark();
    amp_tensor *c = r->dtype == (*g)->dtype ? r : amp__op_cast(r, (*g)->dtype);
    if (c) {
      amp__retain(c);
      amp__free(*g);
      *g = c;
    }
    amp__pool_release(mark);
    if (c == NULL) return amp__S->err.code;
  }
  amp__engine_stop_done(engine);
  return 0;
}

/* What Lua gave for a function: items. */
static int finish_function(engine *engine)
{
  amp_node *node = engine->node;
  int status = 0;
  if (engine->phase == AT_DERIVATIVE) {
    for (int i = 0; i < node->nin && status == 0; i++)
      if (engine->back[i] && (node->edge[i].node || node->edge[i].leaf))
        status = amp__engine_add_item(engine, i, engine->back[i]);
    if (status < 0) {
      amp__engine_drop_items(engine);
      return status;
    }
    clear_list(&engine->back, &engine->nback);
    engine->phase = AT_FIT;
  }
  if ((status = amp__engine_deliver(engine)) < 0) return status;
  amp__engine_stop_done(engine);
  return 0;
}

/* -- The machine ------------------------------------------------------------------------- */

void amp__engine_drop_node(engine *engine)
{
  for (int i = 0; engine->incoming && i < engine->node->nout; i++) amp__free(engine->incoming[i]);
  free(engine->incoming);
  engine->incoming = NULL;
  amp__engine_drop_items(engine);
}

static int to_targets(engine *engine)
{
  for (; engine->target_at >= 0; engine->target_at = engine->targets[engine->target_at].next) {
    target *t = &engine->targets[engine->target_at];
    amp_tensor *value = engine->incoming[t->edge.index];
    if (value == NULL) continue;
    amp__retain(value);
    if (!amp__engine_accumulates(engine)) {
      t->grad = value;
      continue;
    }
    int status = t->leaf ? amp__grad_accumulate(t->leaf, value, false) : 0;
    if (status < 0 || !t->leaf) amp__free(value);
    if (status < 0) return status;
  }
  return 0;
}

static int call_function(engine *engine)
{
  amp_node *node = engine->node;
  for (int i = 0; i < node->nout; i++) {
    const amp_shape *shape = amp__shape_of(node, node->nin + i);
    if (engine->incoming[i] || !amp__is_float(shape->dtype)) continue;
    int mark = amp__pool_mark();
    engine->incoming[i]
        = amp__keep(amp__op_full(0, shape->dtype, shape->device, shape->device_index, shape->ndim, shape->size));
    amp__pool_release(mark);
    if (engine->incoming[i] == NULL) return amp__S->err.code;
  }
  int status = stop_for(engine, AMP_R_FUNCTION, node->id, engine->incoming, node->nout, node->nin);
  if (status == 1) amp__engine_drop_node(engine);
  return status;
}

static int work(engine *engine)
{
  amp_frame frame;
  bool watched = amp_unlikely(amp__observing())
                 && amp__observe_begin(&frame, engine->node->op, AMP_SP_NODE | AMP_SP_BACKWARD, engine->node->seq);
  int status = engine->phase == AT_DERIVATIVE ? derive(engine) : 0;
  if (status == 0) status = amp__engine_deliver(engine);
  if (watched) amp__observe_end(&frame, status);
  if (status == 0 && !(engine->flags & AMP_B_RETAIN_GRAPH)) amp__node_spend(engine->node, engine->came);
  return status;
}

/* Work on engine->node, whose hooks up to engine->hook_at have run. 0: done with it, 1: Lua's turn. */
static int advance(engine *engine)
{
  amp_node *node = engine->node;
  entry *x = find(engine, node);
  int status;
  if (engine->phase == AT_HOOKS) {
    if (amp_unlikely(engine->npieces) && (status = amp__engine_settle(engine, node)) < 0) return status;
    for (; node->hooks && engine->hook_at < node->nout; engine->hook_at++)
      if (node->hooks[engine->hook_at] > 0 && x->grad[engine->hook_at])
        return stop_for(engine, AMP_R_HOOK, node->hooks[engine->hook_at], &x->grad[engine->hook_at], 1, 1);
    engine->incoming = x->grad;
    x->grad = NULL;
    x->queued = false;
    engine->target_at = x->target;
    engine->came = 0; /* outputs of a view (at most AMP_MAX_OUT) */
    for (int i = 0; i < node->nout && i < AMP_MAX_OUT; i++)
      engine->came |= (uint32_t)(engine->incoming[i] != NULL) << i;
    engine->phase = AT_TARGETS;
  }
  amp__S->priv->origin = amp__node_origin(node, x->origin);
  if (engine->phase == AT_TARGETS) {
    if ((status = to_targets(engine)) < 0) return status;
    if (engine->only && (x->state != PRUNE_NEEDED || ((engine->flags & AMP_B_STOP) && x->target >= 0))) {
      amp__engine_drop_node(engine);
      return 0;
    }
    engine->phase = AT_DERIVATIVE;
    if (amp__node_spent(node, engine->came))
      return amp__fail(AMP_E_AUTOGRAD,
                       "the graph of %s was freed by an earlier backward; pass retain_graph = true to that one",
                       amp__node_name(node));
  }
  if (node->flags & AMP_N_LUA) return call_function(engine);
  if ((status = work(engine)) == 0) amp__engine_drop_node(engine);
  return status;
}

static void done(engine *engine)
{
  if (amp_unlikely(engine->nwatch)) amp__engine_passed(engine);
  engine->node = NULL;
  engine->phase = AT_HOOKS;
  engine->hook_at = 0;
  engine->collected = false;
}

/* What was being done when Lua's turn came */
static int resume(engine *engine)
{
  int status = 0;
  if (engine->head.request == AMP_R_MEMORY) engine->head.request = engine->was;
  if (engine->head.request == AMP_R_READY) amp__engine_stop_done(engine);
  else if (engine->head.request == AMP_R_HOOK) {
    amp_tensor **g
        = engine->leaf ? &find(engine, engine->leaf)->grad[0] : &find(engine, engine->node)->grad[engine->hook_at];
    if ((status = take_hook(engine, g)) < 0) return status;
    if (!engine->leaf) engine->hook_at++;
  } else if (engine->head.request == AMP_R_FUNCTION) {
    amp__S->priv->origin = find(engine, engine->node)->origin;
    if ((status = finish_function(engine)) < 0) return status;
    if (!(engine->flags & AMP_B_RETAIN_GRAPH)) amp__node_release_saved(engine->node);
    done(engine);
  }
  if (engine->node) {
    if ((status = advance(engine)) != 0) return status;
    done(engine);
  }
  return 0;
}

static int to_leaves(engine *engine)
{
  int status;
  for (; engine->leaf_at < engine->nleaves; engine->leaf_at++) {
    amp_tensor *leaf = engine->leaves[engine->leaf_at];
    entry *x = find(engine, leaf);
    if (engine->leaf == NULL && leaf->ag && leaf->ag->hook) {
      if ((status = stop_for(engine, AMP_R_HOOK, leaf->ag->hook, &x->grad[0], 1, 1)) == 1) engine->leaf = leaf;
      return status;
    }
    amp__S->priv->origin = x->origin;
    if ((status = amp__engine_into_leaf(engine, leaf, &x->grad[0], false)) < 0) return status;
    engine->leaf = NULL;
    engine->collected = false;
  }
  return 0;
}

static int go_on(engine *engine)
{
  int status = resume(engine);
  if (status == 0 && amp_unlikely(engine->nwatch)) status = amp__engine_tell(engine, false);
  while (status == 0 && engine->nheap) {
    engine->node = amp__engine_pop(engine);
    if ((status = advance(engine)) == 0) done(engine);
    if (status == 0 && amp_unlikely(engine->nwatch)) status = amp__engine_tell(engine, false);
  }
  if (status == 0 && engine->later) status = amp__engine_flush(engine, true);
  if (status == 0) status = to_leaves(engine);
  return status == 0 && amp_unlikely(engine->nwatch) ? amp__engine_tell(engine, true) : status;
}

int amp__engine_run(engine *engine)
{
  int status = go_on(engine);
  if (status != AMP_E_MEMORY || !(engine->flags & AMP_B_COLLECT) || engine->collected) return status;
  engine->collected = true;
  engine->was = engine->head.request;
  engine->head.request = AMP_R_MEMORY;
  engine->head.n = engine->head.wanted = 0;
  return 1;
}
