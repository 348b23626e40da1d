/*
** autograd/engine_send.c: gradients on their way from a node to where they are gathered:
** made fit for their argument, added to what came before, put into leaves.
*/
#include <stdlib.h>
#include "autograd/engine.h"

#define find amp__engine_find
#define get amp__engine_get

/* Takes *g */
static int add_to(amp_tensor **sum, amp_tensor **g)
{
  if (*sum == NULL) {
    *sum = *g;
    *g = NULL;
    return 0;
  }
  int mark = amp__pool_mark();
  amp_tensor *s = OP2(add, *sum, *g);
  int status = s ? 0 : amp__S->err.code;
  if (s) {
    amp__retain(s);
    amp__free(*sum);
    *sum = s;
    amp__free(*g);
    *g = NULL;
  }
  amp__pool_release(mark);
  return status;
}

/* *g in dtype */
static int become(amp_tensor **g, int dtype)
{
  if ((*g)->dtype == dtype) return 0;
  int mark = amp__pool_mark();
  amp_tensor *c = amp__keep(amp__op_cast(*g, dtype));
  amp__pool_release(mark);
  if (c == NULL) return amp__S->err.code;
  amp__free(*g);
  *g = c;
  return 0;
}

static bool wanted(engine *engine, const amp_tensor *leaf)
{
  const entry *x = engine->only ? find(engine, leaf) : NULL;
  return !engine->only || (x && x->target >= 0);
}

static void drop(amp_tensor **g)
{
  amp__free(*g);
  *g = NULL;
}

int amp__engine_into_leaf(engine *engine, amp_tensor *leaf, amp_tensor **g, bool may_keep)
{
  if (!wanted(engine, leaf)) {
    drop(g);
    return 0;
  }
  if (amp__engine_accumulates(engine)) {
    int status = amp__grad_accumulate(leaf, *g, may_keep && !(engine->flags & AMP_B_CREATE_GRAPH));
    if (status == 0) *g = NULL;
    return status;
  }
  int status = amp__grad_fits(leaf, *g), first = find(engine, leaf)->target;
  if (status == 0) status = become(g, leaf->dtype); /* results are in the leaf's dtype */
  if (status == 0) status = add_to(&engine->targets[first].grad, g);
  for (int t = engine->targets[first].next; t >= 0 && status == 0;
       t = engine->targets[t].next) { /* the same came for all of them */
    amp__free(engine->targets[t].grad);
    engine->targets[t].grad = engine->targets[first].grad;
    amp__retain(engine->targets[t].grad);
  }
  return status;
}

static int give_leaf(void *e, amp_tensor *leaf, amp_tensor *g) { return amp__engine_into_leaf(e, leaf, &g, true); }

int amp__engine_flush(engine *engine, bool all)
{
  uint8_t origin = amp__S->priv->origin;
  amp__S->priv->origin = engine->origin;
  int status = amp__deferred_wgrad_flush(engine->later, all, give_leaf, engine);
  amp__S->priv->origin = origin;
  return status;
}

/* -- Where gradients are gathered -------------------------------------------------- */

/* Where the gradient of the output that an edge leads to is gathered. *cell NULL: it is not wanted. The node is
** queued. */
static int gathered(engine *engine, const amp_edge *to, amp_tensor ***cell)
{
  *cell = NULL;
  if (to->node == NULL) return 0;
  entry *x = get(engine, to->node, false);
  if (x == NULL) return amp__S->err.code;
  if (engine->only && x->state != PRUNE_NEEDED && x->target < 0) return 0;
  if (x->grad == NULL && (x->grad = calloc(to->node->nout, sizeof *x->grad)) == NULL)
    return amp__nomem(sizeof *x->grad * to->node->nout);
  if (!x->queued) {
    int status = amp__engine_push(engine, to->node);
    if (status < 0) return status;
    x->queued = true;
  }
  x->origin |= amp__S->priv->origin;
  *cell = &x->grad[to->index];
  return 0;
}

/* Where the gradient of a leaf is gathered that takes it at the end. NULL: error. */
static amp_tensor **waiting(engine *engine, amp_tensor *leaf)
{
  entry *x = get(engine, leaf, true);
  if (x == NULL) return NULL;
  if (x->grad == NULL && (x->grad = calloc(1, sizeof *x->grad)) == NULL) {
    amp__nomem(sizeof *x->grad);
    return NULL;
  }
  if (!x->queued) {
    if (engine->nleaves == engine->capleaves) {
      int cap = engine->capleaves ? engine->capleaves * 2 : 16;
      amp_tensor **p = realloc(engine->leaves, sizeof *p * (size_t)cap);
      if (p == NULL) {
        amp__nomem(sizeof *p * (size_t)cap);
        return NULL;
      }
      engine->leaves = p;
      engine->capleaves = cap;
    }
    engine->leaves[engine->nleaves++] = leaf;
    x->queued = true;
  }
  x->origin |= amp__S->priv->origin;
  return &x->grad[0];
}

/* Takes *g */
int amp__engine_send(engine *engine, const amp_edge *to, amp_tensor **g, bool may_keep, bool at_end)
{
  int status;
  amp_tensor **cell, *leaf = to->leaf;
  if (leaf) {
    if (!at_end && (leaf->ag == NULL || leaf->ag->hook == 0)) return amp__engine_into_leaf(engine, leaf, g, may_keep);
    if (!wanted(engine, leaf)) {
      drop(g);
      return 0;
    }
    if ((cell = waiting(engine, leaf)) == NULL) return amp__S->err.code;
    return (status = become(g, leaf->dtype)) < 0 ? status : add_to(cell, g);
  }
  if ((status = gathered(engine, to, &cell)) < 0) return status;
  if (cell == NULL) {
    drop(g);
    return 0;
  }
  if (amp_unlikely(engine->npieces) && (status = amp__engine_settle(engine, to->node)) < 0) return status;
  if (*cell && (amp__node_flags(to->node) & AMP_F_STATE) && to->index == 1 && !cell[-1] && !to->node->hooks
      && !(engine->flags & AMP_B_CREATE_GRAPH) && find(engine, to->node)->target < 0
      && (cell[-1] = amp__hooks.gradient_beside(to->node, *cell, *g)) != NULL) {
    drop(g);
    return 0;
  }
  if (*cell) { /* one gradient may be of another dtype (any_dtype), a sum is of the result's */
    int dtype = amp__shape_of(to->node, to->node->nin + to->index)->dtype;
    if ((status = become(cell, dtype)) < 0 || (status = become(g, dtype)) < 0) return status;
  }
  return add_to(cell, g);
}

static bool ours(const amp_tensor *sum, const amp_tensor *g)
{
  return sum->refs == 1 && sum->storage->refs == 1 && !(sum->storage->flags & (AMP_S_EXPOSED | AMP_S_FOREIGN))
         && sum->dtype == g->dtype && (sum->flags & AMP_T_CONTIGUOUS);
}

/* Added in place where no other count holds the sum */
int amp__engine_send_part(engine *engine)
{
  amp_tensor **cell, *g = engine->part;
  const amp_shape *shape = amp__shape_of(engine->node, 0);
  int mark = amp__pool_mark(), status = gathered(engine, &engine->node->edge[0], &cell);
  if (status < 0 || cell == NULL) return status;
  if ((status = amp__engine_piece(engine, engine->node->edge[0].node, engine->node->edge[0].index, cell)) != 0)
    return status < 0 ? status : 0;
  amp_tensor *sum = *cell, *fresh = NULL;
  if (sum == NULL)
    sum = fresh = amp__keep(amp__op_full(0, shape->dtype, g->device, g->device_index, shape->ndim, shape->size));
  if (sum == NULL) {
    amp__pool_release(mark);
    return amp__S->err.code;
  }
  bool may_write = fresh || ours(sum, g);
  amp_attrs attrs = amp__attrs();
  if (!may_write) amp__attrs_list(&attrs, shape->ndim, shape->size);
  amp__attrs_list(&attrs, g->ndim, g->size);
  amp__attrs_list(&attrs, g->ndim, engine->part_stride);
  amp__attrs_int(&attrs, engine->part_offset + (may_write ? sum->offset : 0));
  amp_tensor *inputs[2]
      = { amp__op(may_write ? AMP_OP_as_strided : AMP_OP_as_strided_sum, &attrs, 1, may_write ? &sum : &g), g };
  if (inputs[0] == NULL) status = amp__S->err.code;
  else if (may_write) status = amp__dispatch(fresh ? AMP_OP_copy : AMP_OP_add, AMP_INPLACE, inputs, 2, NULL, NULL);
  else {
    amp_tensor *more = inputs[0];
    amp__retain(more);
    status = add_to(cell, &more);
    amp__free(more);
  }
  if (fresh && status == 0) *cell = fresh;
  amp__pool_release(mark);
  if (fresh && status < 0) amp__free(fresh);
  return status;
}

/* -- What a node sends --------------------------------------------------------------- */

int amp__engine_more_room(engine *engine, int count)
{
  int cap = engine->capitem ? engine->capitem : 16;
  while (cap < engine->nitem + count) cap *= 2;
  item *p = realloc(engine->items, sizeof *p * (size_t)cap);
  if (p == NULL) return amp__nomem(sizeof *p * (size_t)cap);
  engine->items = p;
  engine->capitem = cap;
  return 0;
}

void amp__engine_drop_items(engine *engine)
{
  for (int i = 0; i < engine->nitem; i++) amp__free(engine->items[i].tensor);
  engine->nitem = engine->item_at = 0;
  amp__free(engine->part);
  engine->part = NULL;
}

/* Make it fit the argument it is the gradient of: a broadcast one is summed, another dtype cast. */
static int fit(const amp_node *node, item *x)
{
  const amp_shape *shape = amp__shape_of(node, x->edge);
  amp_tensor *g = x->tensor;
  int mark = amp__pool_mark();
  bool same = g->ndim == shape->ndim && memcmp(g->size, shape->size, sizeof(int64_t) * shape->ndim) == 0;
  if (!same) {
    bool broadcast = g->ndim >= shape->ndim;
    for (int dim = 0; broadcast && dim < shape->ndim; dim++) {
      int64_t want = shape->size[shape->ndim - 1 - dim];
      broadcast = want == g->size[g->ndim - 1 - dim] || want == 1;
    }
    if (!broadcast)
      return amp__fail(AMP_E_SHAPE, "backward of %s gives a gradient of shape %s for argument %d of shape %s",
                       amp__node_name(node), amp__shape_str(g->ndim, g->size), x->edge + 1,
                       amp__shape_str(shape->ndim, shape->size));
    amp_attrs attrs = amp__attrs();
    amp__attrs_list(&attrs, shape->ndim, shape->size);
    g = amp__op(AMP_OP_sum_to, &attrs, 1, &g);
  }
  if (g && g->dtype != shape->dtype && !(x->any_dtype && amp__is_float(g->dtype))) g = amp__op_cast(g, shape->dtype);
  if (g && g != x->tensor) {
    amp__retain(g);
    amp__free(x->tensor);
    x->tensor = g;
  }
  amp__pool_release(mark);
  return g ? 0 : amp__S->err.code;
}

/* A node's gradients for the observer, complete and not yet sent. A function's own stand in e->in. */
static int show(const engine *e)
{
  amp_node *node = e->node;
  if (node->slices) return 0;
  amp_tensor **gin = calloc((size_t)node->nin, sizeof *gin), **g = e->incoming ? e->incoming : e->inputs;
  if (gin == NULL) return amp__nomem(sizeof *gin * (size_t)node->nin);
  int nout = e->incoming ? node->nout : e->nin;
  amp_bwd bwd = { .node = node,
                  .nin = node->nin,
                  .nout = node->flags & AMP_N_LUA && nout > AMP_MAX_OUT ? AMP_MAX_OUT : nout,
                  .attrs = node->attrs,
                  .grad_in = gin };
  for (int i = 0; i < nout && i < AMP_MAX_OUT; i++) bwd.grad[i] = g[i];
  for (int i = 0; i < e->nitem; i++) gin[e->items[i].edge] = e->items[i].tensor;
  amp__observe_gradients(&bwd);
  free(gin);
  return 0;
}

static int send_items(engine *engine)
{
  amp_node *node = engine->node;
  for (; engine->item_at < engine->nitem; engine->item_at++) {
    item *x = &engine->items[engine->item_at];
    if (x->summed) {
      amp_tensor **sum = &find(engine, node->edge[0].node)->grad[node->edge[0].index];
      amp__free(*sum);
      *sum = x->tensor;
      x->tensor = NULL;
      continue;
    }
    int status = amp__engine_send(engine, &node->edge[x->edge], &x->tensor, true, false);
    if (status < 0) return status;
  }
  engine->nitem = engine->item_at = 0;
  return 0;
}

int amp__engine_deliver(engine *engine)
{
  int status;
  amp_node *node = engine->node;
  if (engine->phase == AT_PART) {
    if (engine->part && (status = amp__engine_send_part(engine)) < 0) return status;
    amp__free(engine->part);
    engine->part = NULL;
    engine->phase = AT_LATER;
  }
  if (engine->phase == AT_LATER) {
    if (engine->later && (status = amp__engine_flush(engine, false)) < 0) return status;
    engine->phase = AT_FIT;
  }
  if (engine->phase == AT_FIT) {
    for (; engine->item_at < engine->nitem; engine->item_at++) {
      item *x = &engine->items[engine->item_at];
      if (!x->fits && (status = fit(node, x)) < 0) return status;
    }
    if (amp_unlikely(amp__observing()) && (status = show(engine)) < 0) return status;
    for (int i = 0; engine->incoming && i < node->nout; i++) drop(&engine->incoming[i]);
    engine->item_at = 0;
    engine->phase = AT_SEND;
  }
  return send_items(engine);
}
