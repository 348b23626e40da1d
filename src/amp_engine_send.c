/*
** amp_engine_send.c: gradients on their way from a node to where they are gathered:
** made fit for their argument, added to what came before, put into leaves.
*/
#include <stdlib.h>
#include "amp_engine.h"

#define find amp__engine_find
#define get amp__engine_get

/* Takes *g */
static int add_to(amp_tensor **sum, amp_tensor **g)
{
  if (*sum == NULL) { *sum = *g; *g = NULL; return 0; }
  int mark = amp__pool_mark();
  amp_tensor *s = X2(add, *sum, *g);
  int rc = s ? 0 : amp__S->err.code;
  if (s) {
    amp__retain(s);
    amp__free(*sum);
    *sum = s;
    amp__free(*g);
    *g = NULL;
  }
  amp__pool_release(mark);
  return rc;
}

static int row_flags(const amp_node *n) { return n->op >= 0 && n->op < AMP_OP_COUNT ? (int)amp__ops[n->op].info.flags : 0; }

/* *g in dtype */
static int become(amp_tensor **g, int dtype)
{
  if ((*g)->dtype == dtype) return 0;
  int mark = amp__pool_mark();
  amp_tensor *c = amp__keep(amp__xcast(*g, dtype));
  amp__pool_release(mark);
  if (c == NULL) return amp__S->err.code;
  amp__free(*g);
  *g = c;
  return 0;
}

static bool wanted(engine *e, const amp_tensor *leaf)
{
  const entry *x = e->only ? find(e, leaf) : NULL;
  return !e->only || (x && x->target >= 0);
}

static void drop(amp_tensor **g)
{
  amp__free(*g);
  *g = NULL;
}

int amp__engine_into_leaf(engine *e, amp_tensor *leaf, amp_tensor **g, bool may_keep)
{
  if (!wanted(e, leaf)) { drop(g); return 0; }
  if (amp__engine_accumulates(e)) {
    int rc = amp__grad_accumulate(leaf, *g, may_keep && !(e->flags & AMP_B_CREATE_GRAPH));
    if (rc == 0) *g = NULL;
    return rc;
  }
  int rc = become(g, leaf->dtype), first = find(e, leaf)->target; /* results are in the leaf's dtype */
  if (rc == 0) rc = add_to(&e->targets[first].grad, g);
  for (int t = e->targets[first].next; t >= 0 && rc == 0; t = e->targets[t].next) { /* the same came for all of them */
    amp__free(e->targets[t].grad);
    e->targets[t].grad = e->targets[first].grad;
    amp__retain(e->targets[t].grad);
  }
  return rc;
}

static int give_leaf(void *e, amp_tensor *leaf, amp_tensor *g) { return amp__engine_into_leaf(e, leaf, &g, true); }

int amp__engine_flush(engine *e, bool all)
{
  uint8_t origin = amp__S->priv->origin;
  amp__S->priv->origin = e->origin;
  int rc = amp__later_flush(e->later, all, give_leaf, e);
  amp__S->priv->origin = origin;
  return rc;
}

/* -- Where gradients are gathered -------------------------------------------------- */

/* Where the gradient of the output that an edge leads to is gathered. *cell NULL: nobody wants it. The node is queued. */
static int gathered(engine *e, const amp_edge *to, amp_tensor ***cell)
{
  *cell = NULL;
  if (to->node == NULL) return 0;
  entry *x = get(e, to->node, false);
  if (x == NULL) return amp__S->err.code;
  if (e->only && x->state != 2 && x->target < 0) return 0;
  if (x->grad == NULL && (x->grad = calloc(to->node->nout, sizeof *x->grad)) == NULL) return amp__nomem(sizeof *x->grad * to->node->nout);
  if (!x->queued) {
    int rc = amp__engine_push(e, to->node);
    if (rc < 0) return rc;
    x->queued = true;
  }
  x->origin |= amp__S->priv->origin;
  *cell = &x->grad[to->index];
  return 0;
}

/* Where the gradient of a leaf is gathered that takes it at the end. NULL: error. */
static amp_tensor **waiting(engine *e, amp_tensor *leaf)
{
  entry *x = get(e, leaf, true);
  if (x == NULL) return NULL;
  if (x->grad == NULL && (x->grad = calloc(1, sizeof *x->grad)) == NULL) { amp__nomem(sizeof *x->grad); return NULL; }
  if (!x->queued) {
    if (e->nleaves == e->capleaves) {
      int cap = e->capleaves ? e->capleaves * 2 : 16;
      amp_tensor **p = realloc(e->leaves, sizeof *p * (size_t)cap);
      if (p == NULL) { amp__nomem(sizeof *p * (size_t)cap); return NULL; }
      e->leaves = p;
      e->capleaves = cap;
    }
    e->leaves[e->nleaves++] = leaf;
    x->queued = true;
  }
  x->origin |= amp__S->priv->origin;
  return &x->grad[0];
}

/* Takes *g */
int amp__engine_send(engine *e, const amp_edge *to, amp_tensor **g, bool may_keep, bool at_end)
{
  int rc;
  amp_tensor **cell, *leaf = to->leaf;
  if (leaf) {
    if (!at_end && (leaf->ag == NULL || leaf->ag->hook == 0)) return amp__engine_into_leaf(e, leaf, g, may_keep);
    if (!wanted(e, leaf)) { drop(g); return 0; }
    if ((cell = waiting(e, leaf)) == NULL) return amp__S->err.code;
    return (rc = become(g, leaf->dtype)) < 0 ? rc : add_to(cell, g);
  }
  if ((rc = gathered(e, to, &cell)) < 0) return rc;
  if (cell == NULL) { drop(g); return 0; }
  if (*cell && (row_flags(to->node) & AMP_F_STATE) && to->index == 1 && !cell[-1] && !to->node->hooks && !(e->flags & AMP_B_CREATE_GRAPH)
      && find(e, to->node)->target < 0 && (cell[-1] = amp__rnn_beside(to->node, *cell, *g)) != NULL) {
    drop(g);
    return 0;
  }
  if (*cell) { /* one gradient may be of another dtype (any_dtype), a sum is of the result's */
    int dtype = amp__shape_of(to->node, to->node->nin + to->index)->dtype;
    if ((rc = become(cell, dtype)) < 0 || (rc = become(g, dtype)) < 0) return rc;
  }
  return add_to(cell, g);
}

static bool ours(const amp_tensor *sum, const amp_tensor *g)
{
  return sum->refs == 1 && sum->storage->refs == 1 && !(sum->storage->flags & (AMP_S_EXPOSED | AMP_S_FOREIGN)) && sum->dtype == g->dtype
         && (sum->flags & AMP_T_CONTIGUOUS);
}

/* Added in place where the sum is nobody else's */
int amp__engine_send_part(engine *e)
{
  amp_tensor **cell, *g = e->part;
  const amp_shape *s = amp__shape_of(e->node, 0);
  int mark = amp__pool_mark(), rc = gathered(e, &e->node->edge[0], &cell);
  if (rc < 0 || cell == NULL) return rc;
  amp_tensor *sum = *cell, *fresh = NULL;
  if (sum == NULL) sum = fresh = amp__keep(amp__xfull(0, s->dtype, g->device, g->device_index, s->ndim, s->size));
  if (sum == NULL) { amp__pool_release(mark); return amp__S->err.code; }
  bool there = fresh || ours(sum, g);
  amp_sl a = amp__sl();
  if (!there) amp__sl_list(&a, s->ndim, s->size);
  amp__sl_list(&a, g->ndim, g->size);
  amp__sl_list(&a, g->ndim, e->part_stride);
  amp__sl_i(&a, e->part_offset + (there ? sum->offset : 0));
  amp_tensor *in[2] = { amp__x(there ? AMP_OP_as_strided : AMP_OP_as_strided_sum, &a, 1, there ? &sum : &g), g };
  if (in[0] == NULL) rc = amp__S->err.code;
  else if (there) rc = amp__dispatch(fresh ? AMP_OP_copy : AMP_OP_add, AMP_INPLACE, in, 2, NULL, NULL);
  else {
    amp_tensor *more = in[0];
    amp__retain(more);
    rc = add_to(cell, &more);
    amp__free(more);
  }
  if (fresh && rc == 0) *cell = fresh;
  amp__pool_release(mark);
  if (fresh && rc < 0) amp__free(fresh);
  return rc;
}

/* -- What a node sends --------------------------------------------------------------- */

int amp__engine_more_room(engine *e, int n)
{
  int cap = e->capitem ? e->capitem : 16;
  while (cap < e->nitem + n) cap *= 2;
  item *p = realloc(e->items, sizeof *p * (size_t)cap);
  if (p == NULL) return amp__nomem(sizeof *p * (size_t)cap);
  e->items = p;
  e->capitem = cap;
  return 0;
}

void amp__engine_drop_items(engine *e)
{
  for (int i = 0; i < e->nitem; i++) amp__free(e->items[i].t);
  e->nitem = e->item_at = 0;
  amp__free(e->part);
  e->part = NULL;
}

/* Make it fit the argument it is the gradient of: a broadcast one is summed, another dtype cast. */
static int fit(const amp_node *n, item *x)
{
  const amp_shape *s = amp__shape_of(n, x->edge);
  amp_tensor *g = x->t;
  int mark = amp__pool_mark();
  bool same = g->ndim == s->ndim && memcmp(g->size, s->size, sizeof(int64_t) * s->ndim) == 0;
  if (!same) {
    bool broadcast = g->ndim >= s->ndim;
    for (int d = 0; broadcast && d < s->ndim; d++) {
      int64_t want = s->size[s->ndim - 1 - d];
      broadcast = want == g->size[g->ndim - 1 - d] || want == 1;
    }
    if (!broadcast)
      return amp__fail(AMP_E_SHAPE, "backward of %s gives a gradient of shape %s for argument %d of shape %s", amp__node_name(n),
                       amp__shape_str(g->ndim, g->size), x->edge + 1, amp__shape_str(s->ndim, s->size));
    amp_sl a = amp__sl();
    amp__sl_list(&a, s->ndim, s->size);
    g = amp__x(AMP_OP_sum_to, &a, 1, &g);
  }
  if (g && g->dtype != s->dtype && !(x->any_dtype && amp__is_float(g->dtype))) g = amp__xcast(g, s->dtype);
  if (g && g != x->t) {
    amp__retain(g);
    amp__free(x->t);
    x->t = g;
  }
  amp__pool_release(mark);
  return g ? 0 : amp__S->err.code;
}

/* A node's gradients for whoever observes, complete and not yet sent. A function's own stand in e->in. */
static int show(const engine *e)
{
  amp_node *n = e->node;
  if (n->slices) return 0;
  amp_tensor **gin = calloc((size_t)n->nin, sizeof *gin), **g = e->g ? e->g : e->in;
  if (gin == NULL) return amp__nomem(sizeof *gin * (size_t)n->nin);
  int nout = e->g ? n->nout : e->nin;
  amp_bwd b = { .node = n, .nin = n->nin, .nout = n->flags & AMP_N_LUA && nout > AMP_MAX_OUT ? AMP_MAX_OUT : nout, .a = n->a, .gin = gin };
  for (int i = 0; i < nout && i < AMP_MAX_OUT; i++) b.g[i] = g[i];
  for (int i = 0; i < e->nitem; i++) gin[e->items[i].edge] = e->items[i].t;
  amp__observe_gradients(&b);
  free(gin);
  return 0;
}

static int send_items(engine *e)
{
  amp_node *n = e->node;
  for (; e->item_at < e->nitem; e->item_at++) {
    item *x = &e->items[e->item_at];
    if (x->summed) {
      amp_tensor **sum = &find(e, n->edge[0].node)->grad[n->edge[0].index];
      amp__free(*sum);
      *sum = x->t;
      x->t = NULL;
      continue;
    }
    int rc = amp__engine_send(e, &n->edge[x->edge], &x->t, true, false);
    if (rc < 0) return rc;
  }
  e->nitem = e->item_at = 0;
  return 0;
}

int amp__engine_deliver(engine *e)
{
  int rc;
  amp_node *n = e->node;
  if (e->phase == AT_PART) {
    if (e->part && (rc = amp__engine_send_part(e)) < 0) return rc;
    amp__free(e->part);
    e->part = NULL;
    e->phase = AT_LATER;
  }
  if (e->phase == AT_LATER) {
    if (e->later && (rc = amp__engine_flush(e, false)) < 0) return rc;
    e->phase = AT_FIT;
  }
  if (e->phase == AT_FIT) {
    for (; e->item_at < e->nitem; e->item_at++) {
      item *x = &e->items[e->item_at];
      if (!x->fits && (rc = fit(n, x)) < 0) return rc;
    }
    if (amp_unlikely(amp__observing()) && (rc = show(e)) < 0) return rc;
    for (int i = 0; e->g && i < n->nout; i++) drop(&e->g[i]);
    e->item_at = 0;
    e->phase = AT_SEND;
  }
  return send_items(e);
}
