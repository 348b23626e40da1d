/*
** amp_engine.c: backward. A heap gives the nodes in descending order of
** creation; every consumer of a node is newer than it, so when a node comes up
** its gradients are complete and no counting of dependencies is needed.
**
** The machine stops where Lua has to act (a function or hook that lives there)
** and is resumed: begin, run until it says so, arg / supply, run, ..., end.
** Gradient buffers belong to the engine, keyed by node, so that several
** backwards may be under way at once. Hookless leaves take their share at
** once; leaves with hooks at the end, when it is complete.
** A derivative may add what came for its first input so far itself (amp_bwd.sum).
** Formulas are amp_bwd_*.c; what a leaf does with a gradient is amp_grad.c.
*/
#include <stdlib.h>
#include "amp_compose.h"
#include "amp_tape.h"

typedef struct entry {          /* a node (or hooked leaf) reached, with what came for it */
  void *key;                    /* amp_node * or amp_tensor * */
  amp_tensor **grad;            /* [nout], owned */
  int8_t state;                 /* pruning: 0 unknown, 1 being looked at, 2 needed, 3 not */
  uint8_t origin;               /* enum amp_origin of what came for it */
  bool is_leaf, queued;
  int32_t target;               /* first target of this key, -1 */
} entry;

typedef struct target { amp_tensor *t; amp_edge e; amp_tensor *grad; int next; } target;

typedef struct engine {
  amp_engine head;
  int flags;
  bool only;                    /* targets given: nothing else is reached */
  bool inner;                   /* a target is no leaf */
  bool again, collected;        /* the derivative is to be tried once more when memory was given back; it is the second time */
  entry *map; int cap, count;   /* open addressing; entries move when it grows: look up by key */
  amp_node **heap; int nheap, capheap;
  amp_tensor **leaves; int nleaves, capleaves; /* hooked ones, in order of arrival */
  int leaf_at;
  amp_later *later;             /* products that derivatives put off */
  uint8_t origin, outer;        /* of those products; the state's before this engine */
  target *targets; int ntarget;
  /* the stop in progress */
  amp_node *node; amp_tensor *leaf;
  int hook_at;                  /* next output of node whose hooks are to run */
  amp_tensor **in; int nin;     /* given to Lua, owned */
  amp_tensor **back; int nback; /* supplied, owned */
} engine;

/* -- Map and heap --------------------------------------------------------------- */

static size_t hash(const void *p) { return ((uintptr_t)p >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20; }

static bool grow(engine *e)
{
  int cap = e->cap ? e->cap * 2 : 64;
  entry *map = calloc((size_t)cap, sizeof *map);
  if (map == NULL) { amp__nomem((size_t)cap * sizeof *map); return false; }
  for (int i = 0; i < e->cap; i++) {
    if (e->map[i].key == NULL) continue;
    size_t h = hash(e->map[i].key) & (size_t)(cap - 1);
    while (map[h].key) h = (h + 1) & (size_t)(cap - 1);
    map[h] = e->map[i];
  }
  free(e->map);
  e->map = map;
  e->cap = cap;
  return true;
}

static entry *find(engine *e, const void *key)
{
  if (e->cap == 0) return NULL;
  for (size_t h = hash(key) & (size_t)(e->cap - 1); e->map[h].key; h = (h + 1) & (size_t)(e->cap - 1))
    if (e->map[h].key == key) return &e->map[h];
  return NULL;
}

/* The key is counted while it is in the map. */
static entry *get(engine *e, void *key, bool is_leaf)
{
  entry *x = find(e, key);
  if (x) return x;
  if (e->count * 2 >= e->cap && !grow(e)) return NULL;
  size_t h = hash(key) & (size_t)(e->cap - 1);
  while (e->map[h].key) h = (h + 1) & (size_t)(e->cap - 1);
  x = &e->map[h];
  x->key = key;
  x->is_leaf = is_leaf;
  x->target = -1;
  if (is_leaf) amp__retain(key);
  else atomic_fetch_add_explicit(&((amp_node *)key)->refs, 1, memory_order_relaxed);
  e->count++;
  return x;
}

static int push_heap(engine *e, amp_node *n)
{
  if (e->nheap == e->capheap) {
    int cap = e->capheap ? e->capheap * 2 : 64;
    amp_node **p = realloc(e->heap, sizeof *p * (size_t)cap);
    if (p == NULL) return amp__nomem(sizeof *p * (size_t)cap);
    e->heap = p;
    e->capheap = cap;
  }
  int i = e->nheap++;
  for (; i > 0 && e->heap[(i - 1) / 2]->seq < n->seq; i = (i - 1) / 2) e->heap[i] = e->heap[(i - 1) / 2];
  e->heap[i] = n;
  return 0;
}

static amp_node *pop_heap(engine *e)
{
  amp_node *top = e->heap[0], *last = e->heap[--e->nheap];
  int i = 0;
  for (;;) {
    int k = 2 * i + 1;
    if (k >= e->nheap) break;
    if (k + 1 < e->nheap && e->heap[k + 1]->seq > e->heap[k]->seq) k++;
    if (e->heap[k]->seq <= last->seq) break;
    e->heap[i] = e->heap[k];
    i = k;
  }
  if (e->nheap) e->heap[i] = last;
  return top;
}

/* -- Pruning --------------------------------------------------------------------- */

/* Is n on a way to a target? Depth first with a stack of its own: graphs are deep. */
static int mark_needed(engine *e, amp_node *root)
{
  typedef struct frame { amp_node *n; int i; } frame;
  int depth = 0, cap = 64, rc = 0;
  frame *stack = malloc(sizeof *stack * (size_t)cap);
  if (stack == NULL) return amp__nomem(sizeof *stack * (size_t)cap);
  entry *x = get(e, root, false);
  if (x == NULL) { free(stack); return amp__S->err.code; }
  if (x->state == 0) { x->state = 1; stack[depth++] = (frame){ root, 0 }; }
  while (depth) {
    frame *f = &stack[depth - 1];
    x = find(e, f->n);
    if (f->i == f->n->nin) {
      if (x->state == 1) x->state = 3;
      depth--;
      if (depth && x->state == 2) find(e, stack[depth - 1].n)->state = 2;
      continue;
    }
    amp_edge *g = &f->n->edge[f->i++];
    if (g->leaf) {
      entry *l = find(e, g->leaf);
      if (l && l->target >= 0) x->state = 2;
    } else if (g->node) {
      entry *y = get(e, g->node, false);
      if (y == NULL) { rc = amp__S->err.code; break; }
      x = find(e, f->n);
      for (int t = y->target; t >= 0; t = e->targets[t].next) if (e->targets[t].e.index == g->index) x->state = 2;
      if (y->state == 2) x->state = 2;
      if (y->state == 0) {
        y->state = 1;
        if (depth == cap) {
          frame *p = realloc(stack, sizeof *p * (size_t)cap * 2);
          if (p == NULL) { rc = amp__nomem(sizeof *p * (size_t)cap * 2); break; }
          stack = p;
          cap *= 2;
        }
        stack[depth++] = (frame){ g->node, 0 };
      }
    }
  }
  free(stack);
  return rc;
}

/* -- Moving gradients ------------------------------------------------------------- */

static int add_to(amp_tensor **sum, amp_tensor *g) /* takes g */
{
  if (*sum == NULL) { *sum = g; return 0; }
  int mark = amp__pool_mark();
  amp_tensor *s = X2(add, *sum, g);
  int rc = s ? 0 : amp__S->err.code;
  if (s) { amp__retain(s); amp__free(*sum); *sum = s; }
  amp__pool_release(mark);
  amp__free(g);
  return rc;
}

static int row_flags(const amp_node *n) { return n->op >= 0 && n->op < AMP_OP_COUNT ? (int)amp__ops[n->op].info.flags : 0; }
static bool accumulates(const engine *e) { return (e->flags & AMP_B_ACCUMULATE) != 0; }

/* A leaf's share, complete or not. Takes g. */
static int into_leaf(engine *e, amp_tensor *leaf, amp_tensor *g, bool may_keep)
{
  entry *x = e->only ? find(e, leaf) : NULL;
  if (e->only && (x == NULL || x->target < 0)) { amp__free(g); return 0; }
  if (accumulates(e)) return amp__grad_accumulate(leaf, g, may_keep && !(e->flags & AMP_B_CREATE_GRAPH));
  if (g->dtype != leaf->dtype) { /* results are in the leaf's dtype */
    int mark = amp__pool_mark();
    amp_tensor *c = amp__keep(amp__xcast(g, leaf->dtype));
    amp__pool_release(mark);
    amp__free(g);
    if (c == NULL) return amp__S->err.code;
    g = c;
  }
  for (int t = x->target; t >= 0; t = e->targets[t].next) {
    amp__retain(g);
    int rc = add_to(&e->targets[t].grad, g);
    if (rc < 0) { amp__free(g); return rc; }
  }
  amp__free(g);
  return 0;
}

static int give_leaf(void *e, amp_tensor *leaf, amp_tensor *g) { return into_leaf(e, leaf, g, true); }

static int flush_later(engine *e, bool all)
{
  uint8_t origin = amp__S->priv->origin;
  amp__S->priv->origin = e->origin;
  int rc = amp__later_flush(e->later, all, give_leaf, e);
  amp__S->priv->origin = origin;
  return rc;
}

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
    int rc = push_heap(e, to->node);
    if (rc < 0) return rc;
    x->queued = true;
  }
  x->origin |= amp__S->priv->origin;
  *cell = &x->grad[to->index];
  return 0;
}

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

/* Send g (taken) along an edge. */
static int send(engine *e, const amp_edge *to, amp_tensor *g, bool may_keep)
{
  int rc;
  if (to->leaf) {
    amp_tensor *leaf = to->leaf;
    if (leaf->ag == NULL || leaf->ag->hook == 0) return into_leaf(e, leaf, g, may_keep);
    if (e->only) { entry *x = find(e, leaf); if (x == NULL || x->target < 0) { amp__free(g); return 0; } }
    entry *x = get(e, leaf, true);
    if (x == NULL) { amp__free(g); return amp__S->err.code; }
    if (!x->queued) {
      if (e->nleaves == e->capleaves) {
        int cap = e->capleaves ? e->capleaves * 2 : 16;
        amp_tensor **p = realloc(e->leaves, sizeof *p * (size_t)cap);
        if (p == NULL) { amp__free(g); return amp__nomem(sizeof *p * (size_t)cap); }
        e->leaves = p;
        e->capleaves = cap;
      }
      x->grad = calloc(1, sizeof *x->grad);
      if (x->grad == NULL) { amp__free(g); return amp__nomem(sizeof *x->grad); }
      e->leaves[e->nleaves++] = leaf;
      x->queued = true;
    }
    if ((rc = become(&g, leaf->dtype)) < 0) { amp__free(g); return rc; }
    x->origin |= amp__S->priv->origin;
    return add_to(&x->grad[0], g);
  }
  amp_tensor **cell;
  rc = gathered(e, to, &cell);
  if (cell == NULL) { amp__free(g); return rc; }
  if (*cell && (row_flags(to->node) & AMP_F_STATE) && to->index == 1 && !cell[-1] && !to->node->hooks && !(e->flags & AMP_B_CREATE_GRAPH)
      && find(e, to->node)->target < 0 && (cell[-1] = amp__rnn_beside(to->node, *cell, g)) != NULL) {
    amp__free(g);
    return 0;
  }
  if (*cell) { /* one gradient may be of another dtype (any_dtype), a sum is of the result's */
    int dtype = amp__shape_of(to->node, to->node->nin + to->index)->dtype;
    if ((rc = become(cell, dtype)) == 0) rc = become(&g, dtype);
    if (rc < 0) { amp__free(g); return rc; }
  }
  return add_to(cell, g);
}

/* Send the gradient of some elements of n's first input, b->part: added in place where the sum is nobody else's. */
static int send_part(engine *e, const amp_node *n, const amp_bwd *b)
{
  amp_tensor **cell, *g = b->part;
  const amp_shape *s = amp__shape_of(n, 0);
  int mark = amp__pool_mark(), rc = gathered(e, &n->edge[0], &cell);
  if (cell == NULL) return rc;
  bool fresh = *cell == NULL;
  if (fresh) {
    *cell = amp__keep(amp__xfull(0, s->dtype, g->device, g->device_index, s->ndim, s->size));
    if (*cell == NULL) rc = amp__S->err.code;
  }
  amp_tensor *sum = *cell;
  if (rc == 0) {
    bool ours = fresh || (sum->refs == 1 && sum->storage->refs == 1 && !(sum->storage->flags & (AMP_S_EXPOSED | AMP_S_FOREIGN)) && sum->dtype == g->dtype && (sum->flags & AMP_T_CONTIGUOUS));
    amp_sl a = amp__sl();
    if (!ours) amp__sl_list(&a, s->ndim, s->size);
    amp__sl_list(&a, g->ndim, g->size);
    amp__sl_list(&a, g->ndim, b->part_stride);
    amp__sl_i(&a, b->part_offset + (ours ? sum->offset : 0));
    amp_tensor *in[2] = { amp__x(ours ? AMP_OP_as_strided : AMP_OP_as_strided_sum, &a, 1, ours ? &sum : &g), g };
    if (in[0] == NULL) rc = amp__S->err.code;
    else if (ours) rc = amp__dispatch(fresh ? AMP_OP_copy : AMP_OP_add, AMP_INPLACE, in, 2, NULL, NULL);
    else {
      amp__retain(in[0]);
      rc = add_to(cell, in[0]);
    }
  }
  amp__pool_release(mark);
  return rc;
}

/* Make g fit the argument it is the gradient of: a broadcast one is summed, another dtype cast. Borrowed from the pool. */
static amp_tensor *fit(const amp_node *n, int i, amp_tensor *g, bool any_dtype)
{
  const amp_shape *s = amp__shape_of(n, i);
  bool same = g->ndim == s->ndim && memcmp(g->size, s->size, sizeof(int64_t) * s->ndim) == 0;
  if (!same) {
    bool broadcast = g->ndim >= s->ndim;
    for (int d = 0; broadcast && d < s->ndim; d++) {
      int64_t want = s->size[s->ndim - 1 - d];
      broadcast = want == g->size[g->ndim - 1 - d] || want == 1;
    }
    if (!broadcast) {
      amp__fail(AMP_E_SHAPE, "backward of %s gives a gradient of shape %s for argument %d of shape %s", amp__node_name(n),
                amp__shape_str(g->ndim, g->size), i + 1, amp__shape_str(s->ndim, s->size));
      return NULL;
    }
    amp_sl a = amp__sl();
    amp__sl_list(&a, s->ndim, s->size);
    if ((g = amp__x(AMP_OP_sum_to, &a, 1, &g)) == NULL) return NULL;
  }
  return g->dtype == s->dtype || (any_dtype && amp__is_float(g->dtype)) ? g : amp__xcast(g, s->dtype);
}

/* -- One node ------------------------------------------------------------------------ */

/* The slice's gradient goes through the in-place op, the rest of the base's passes. */
static int run_slices(engine *e, amp_node *n, amp_tensor *g)
{
  amp_slices *s = n->slices;
  int rc = AMP_E_INTERNAL, nd = amp__shape_of(n, 0)->ndim;
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
  amp_tensor *p = ordered ? g : amp__x(AMP_OP_permute, &perm, 1, &g);
  p = p ? X1(contiguous, p) : NULL;
  amp_sl window = view;
  if (p) window.v[window.n - 1].i += p->offset; /* as_strided counts from the storage's start */
  amp_tensor *slice = p ? amp__x(AMP_OP_as_strided, &window, 1, &p) : NULL;
  if (slice == NULL) { rc = amp__S->err.code; goto out; }
  amp_bwd b = { .node = s->fn, .nin = s->fn->nin, .nout = 1, .a = s->fn->a, .gin = gin, .create_graph = (e->flags & AMP_B_CREATE_GRAPH) != 0 };
  b.g[0] = slice;
  /* an op without derivative wrote without regard to what was there */
  if ((rc = amp__ops[s->fn->op].bwd ? amp__ops[s->fn->op].bwd(&b) : 0) < 0) goto out;
  for (int i = 1; i < n->nin && rc == 0; i++) {
    if (gin[i] == NULL) continue;
    amp_tensor *f = fit(n, i, gin[i], false);
    if (f == NULL) { rc = amp__S->err.code; goto out; }
    amp__retain(f);
    rc = send(e, &n->edge[i], f, true);
  }
  if (rc == 0 && (n->edge[0].node || n->edge[0].leaf)) {
    amp_tensor *inner = gin[0];
    if (inner == NULL) inner = amp__xfull(0, slice->dtype, slice->device, slice->device_index, slice->ndim, slice->size);
    amp_tensor *in[2] = { p, inner };
    amp_tensor *r = inner ? amp__x(AMP_OP_as_strided_scatter, &view, 2, in) : NULL;
    if (r && !ordered) r = amp__x(AMP_OP_permute, &unperm, 1, &r);
    if (r == NULL) { rc = amp__S->err.code; goto out; }
    amp__retain(r);
    rc = send(e, &n->edge[0], r, true);
  }
out:
  free(gin);
  return rc;
}

static int run_native(engine *e, amp_node *n, amp_tensor **g)
{
  amp_tensor *small[AMP_MAX_IN] = { NULL }, **gin = small;
  int rc = 0, mark = amp__pool_mark();
  bool cast_to_leaf = (n->flags & AMP_N_CAST) && n->edge[0].leaf && !(e->flags & AMP_B_CREATE_GRAPH);
  if (cast_to_leaf) { /* a weight's cast: the gradient may stay as it is */
    amp_tensor *leaf = n->edge[0].leaf, *x = g[0];
    g[0] = NULL;
    if (leaf->dtype == amp__shape_of(n, 0)->dtype) return send(e, &n->edge[0], x, true);
    g[0] = x;
  }
  if (n->slices) {
    rc = run_slices(e, n, g[0]);
    amp__pool_release(mark);
    return rc;
  }
  if ((e->flags & AMP_B_CREATE_GRAPH) && (amp__ops[n->op].info.flags & AMP_F_FIRST))
    return amp__fail(AMP_E_AUTOGRAD, "the derivative of %s can't be differentiated again: run this backward without create_graph", amp__node_name(n));
  if (n->nin > AMP_MAX_IN && (gin = calloc((size_t)n->nin, sizeof *gin)) == NULL) return amp__nomem(sizeof *gin * (size_t)n->nin);
  amp_bwd b = { .node = n, .nin = n->nin, .nout = n->nout, .a = n->a, .gin = gin, .create_graph = (e->flags & AMP_B_CREATE_GRAPH) != 0, .last = !(e->flags & AMP_B_RETAIN_GRAPH) };
  b.takes_part = !b.create_graph && n->edge[0].node;
  b.may_alias = b.takes_part && !e->only && !n->edge[0].node->hooks;
  b.any_dtype = b.may_alias && n->op == AMP_OP_cast && amp__shape_of(n, 0)->device != AMP_CPU && !n->edge[0].node->slices
                && (row_flags(n->edge[0].node) & AMP_F_GRAD_ANY) && n->edge[0].index == 0;
  if (!b.create_graph && !e->inner) { b.later = &e->later; b.accumulates = accumulates(e) && !e->only; }
  entry *to = b.takes_part && !amp_unlikely(amp__observing()) ? find(e, n->edge[0].node) : NULL;
  if (to && to->grad && (b.sum = to->grad[n->edge[0].index]) != NULL && b.sum->dtype != amp__shape_of(n, 0)->dtype) b.sum = NULL;
  for (int i = 0; i < n->nout && i < AMP_MAX_OUT; i++) b.g[i] = g[i];
  rc = amp__ops[n->op].bwd(&b);
  if (e->later) e->origin |= amp__S->priv->origin;
  e->again = rc == AMP_E_MEMORY && (e->flags & AMP_B_COLLECT) && !e->collected; /* nothing was sent on yet */
  if (rc == 0 && b.part) rc = send_part(e, n, &b);
  if (rc == 0 && e->later) rc = flush_later(e, false);
  int kept = 0; /* gradients we hold a count of */
  for (; kept < n->nin && rc == 0; kept++) {
    if (gin[kept] == NULL) continue;
    amp_tensor *f = fit(n, kept, gin[kept], kept == 0 && b.any_dtype);
    if (f == NULL) { rc = amp__S->err.code; break; }
    amp__retain(f);
    gin[kept] = f;
  }
  if (amp_unlikely(amp__observing()) && rc == 0) amp__observe_gradients(&b);
  for (int i = 0; i < n->nout && i < AMP_MAX_OUT && !e->again; i++) { amp__free(g[i]); g[i] = NULL; }
  amp__pool_release(mark);
  for (int i = 0; i < kept; i++) {
    if (gin[i] == NULL) continue;
    if (rc < 0) amp__free(gin[i]);
    else if (i == 0 && b.summed) {
      amp_tensor **sum = &find(e, n->edge[0].node)->grad[n->edge[0].index];
      amp__free(*sum);
      *sum = gin[0];
    } else rc = send(e, &n->edge[i], gin[i], true);
  }
  if (gin != small) free(gin);
  return rc;
}

/* -- Stops ----------------------------------------------------------------------------- */

static void clear_list(amp_tensor ***p, int *n)
{
  for (int i = 0; i < *n; i++) amp__free((*p)[i]);
  free(*p);
  *p = NULL;
  *n = 0;
}

static int stop_for(engine *e, int kind, int64_t id, amp_tensor **g, int n, int wanted)
{
  e->in = calloc((size_t)(n > 0 ? n : 1), sizeof *e->in);
  e->back = calloc((size_t)(wanted > 0 ? wanted : 1), sizeof *e->back);
  if (e->in == NULL || e->back == NULL) return amp__nomem(sizeof *e->in * (size_t)(n + wanted));
  for (int i = 0; i < n; i++) /* Lua may change it: what begins a backward, or a scaler's cell, is not its own */
    if (g[i] && g[i]->device != AMP_CPU && g[i]->numel == 1 && (g[i]->refs > 1 || g[i]->storage->refs > 1)) {
      int mark = amp__pool_mark();
      amp_tensor *c = amp__keep(X1(clone, g[i]));
      amp__pool_release(mark);
      if (c == NULL) return amp__S->err.code;
      amp__free(g[i]);
      g[i] = c;
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

static void stop_done(engine *e)
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
  stop_done(e);
  return 0;
}

static int finish_function(engine *e)
{
  amp_node *n = e->node;
  int rc = 0, mark = amp__pool_mark();
  for (int i = 0; i < n->nin && rc == 0; i++) {
    amp_tensor *r = e->back[i];
    if (r == NULL || (n->edge[i].node == NULL && n->edge[i].leaf == NULL)) continue;
    amp_tensor *f = fit(n, i, r, false);
    if (f == NULL) { rc = amp__S->err.code; break; }
    amp__retain(f);
    rc = send(e, &n->edge[i], f, true);
  }
  if (amp_unlikely(amp__observing()) && rc == 0) { /* a function's own gradients, as a derivative's */
    amp_bwd b = { .node = n, .nin = n->nin, .nout = e->nin < AMP_MAX_OUT ? e->nin : AMP_MAX_OUT, .gin = e->back };
    for (int i = 0; i < b.nout; i++) b.g[i] = e->in[i];
    amp__observe_gradients(&b);
  }
  amp__pool_release(mark);
  stop_done(e);
  return rc;
}

/* -- The machine ------------------------------------------------------------------------- */

/* Work on e->node, whose hooks up to e->hook_at have run. 0: done with it, 1: Lua's turn. */
static int advance(engine *e)
{
  amp_node *n = e->node;
  entry *x = find(e, n);
  int rc = 0;
  for (; n->hooks && e->hook_at < n->nout; e->hook_at++)
    if (n->hooks[e->hook_at] > 0 && x->grad[e->hook_at])
      return stop_for(e, AMP_R_HOOK, n->hooks[e->hook_at], &x->grad[e->hook_at], 1, 1);
  amp_tensor **g = x->grad;
  x->grad = NULL;
  x->queued = false;
  amp__S->priv->origin = amp__node_origin(n, x->origin);
  for (int t = e->collected ? -1 : x->target; t >= 0; t = e->targets[t].next) {
    amp_tensor *v = g[e->targets[t].e.index];
    if (v && !accumulates(e)) { amp__retain(v); e->targets[t].grad = v; }
    else if (v && e->targets[t].t) { amp__retain(v); rc = amp__grad_accumulate(e->targets[t].t, v, false); }
  }
  if (rc == 0 && e->only && (x->state != 2 || ((e->flags & AMP_B_STOP) && x->target >= 0))) goto done;
  uint32_t came = 0; /* outputs of a view (at most AMP_MAX_OUT) */
  for (int i = 0; i < n->nout && i < AMP_MAX_OUT; i++) came |= (uint32_t)(g[i] != NULL) << i;
  if (rc == 0 && amp__node_spent(n, came))
    rc = amp__fail(AMP_E_AUTOGRAD, "the graph of %s was freed by an earlier backward; pass retain_graph = true to that one", amp__node_name(n));
  if (rc == 0 && (n->flags & AMP_N_LUA)) {
    int mark = amp__pool_mark();
    for (int i = 0; i < n->nout && rc == 0; i++) {
      if (g[i] || !amp__is_float(amp__shape_of(n, n->nin + i)->dtype)) continue;
      const amp_shape *s = amp__shape_of(n, n->nin + i);
      g[i] = amp__keep(amp__xfull(0, s->dtype, s->device, s->device_index, s->ndim, s->size));
      if (g[i] == NULL) rc = amp__S->err.code;
    }
    amp__pool_release(mark);
    if (rc == 0) rc = stop_for(e, AMP_R_FUNCTION, n->id, g, n->nout, n->nin);
  } else if (rc == 0) {
    amp_frame f;
    bool watched = amp_unlikely(amp__observing()) && amp__observe_begin(&f, n->op, AMP_SP_NODE | AMP_SP_BACKWARD, n->seq);
    rc = run_native(e, n, g);
    if (watched) amp__observe_end(&f, rc);
    if (e->again) {
      e->again = false;
      e->collected = true;
      find(e, n)->grad = g;
      e->head.request = AMP_R_MEMORY;
      e->head.n = e->head.wanted = 0;
      return 1;
    }
    if (rc == 0 && !(e->flags & AMP_B_RETAIN_GRAPH)) amp__node_spend(n, came);
  }
done:
  for (int i = 0; i < n->nout; i++) amp__free(g[i]);
  free(g);
  return rc;
}

static int run(engine *e)
{
  int rc;
  if (e->head.request == AMP_R_HOOK) {
    if (e->leaf) {
      if ((rc = take_hook(e, &find(e, e->leaf)->grad[0])) < 0) return rc;
    } else {
      if ((rc = take_hook(e, &find(e, e->node)->grad[e->hook_at])) < 0) return rc;
      e->hook_at++;
      if ((rc = advance(e)) != 0) return rc;
      e->node = NULL;
    }
  } else if (e->head.request == AMP_R_FUNCTION) {
    amp__S->priv->origin = find(e, e->node)->origin;
    if ((rc = finish_function(e)) < 0) return rc;
    if (!(e->flags & AMP_B_RETAIN_GRAPH)) amp__node_release_saved(e->node);
    e->node = NULL;
  } else if (e->head.request == AMP_R_MEMORY) {
    e->head.request = AMP_R_NONE;
    if ((rc = advance(e)) != 0) return rc;
    e->collected = false;
    e->node = NULL;
  }
  while (e->nheap) {
    e->node = pop_heap(e);
    e->hook_at = 0;
    if ((rc = advance(e)) != 0) return rc;
    e->node = NULL;
  }
  if (e->later && (rc = flush_later(e, true)) < 0) return rc;
  for (; e->leaf_at < e->nleaves; e->leaf_at++) {
    amp_tensor *leaf = e->leaves[e->leaf_at];
    entry *x = find(e, leaf);
    if (e->leaf == NULL && leaf->ag->hook) {
      e->leaf = leaf;
      return stop_for(e, AMP_R_HOOK, leaf->ag->hook, &x->grad[0], 1, 1);
    }
    e->leaf = NULL;
    amp_tensor *g = x->grad[0];
    x->grad[0] = NULL;
    amp__S->priv->origin = x->origin;
    if ((rc = into_leaf(e, leaf, g, false)) < 0) { e->leaf_at++; return rc; }
  }
  return 0;
}

int amp_backward_run(amp_state *S, amp_engine *head)
{
  engine *e = (engine *)head;
  AMP_ENTER(S);
  int32_t grad_mode = S->grad_mode, autocast_on = S->autocast_on;
  const char *op = S->priv->op;
  S->grad_mode = (e->flags & AMP_B_CREATE_GRAPH) != 0;
  S->autocast_on = 0;
  S->priv->op = "backward"; /* errors of ops inside are told as backward's */
  S->err.op[0] = 0;
  amp_frame f;
  bool watched = amp_unlikely(amp__observing()) && amp__observe_begin(&f, AMP_SPAN_BACKWARD, AMP_SP_BACKWARD, 0);
  int rc = run(e);
  if (watched) amp__observe_end(&f, rc);
  if (rc < 0) strcpy(S->err.op, "backward");
  S->priv->op = op;
  S->grad_mode = grad_mode;
  S->autocast_on = autocast_on;
  return rc;
}

/* -- Begin and end -------------------------------------------------------------------------- */

static int add_target(engine *e, int i, amp_tensor *t)
{
  target *g = &e->targets[i];
  g->next = -1;
  if (t == NULL) return amp__fail(AMP_E_ARGUMENT, "input %d was freed", i + 1);
  amp__refresh(t);
  if (!amp__tracked(t)) return amp__fail(AMP_E_AUTOGRAD, "input %d (%s) does not require grad", i + 1, amp__tensor_str(t));
  g->t = t;
  amp__retain(t);
  e->ntarget = i + 1;
  int rc = amp__edge_of(t, &g->e);
  if (rc < 0) return rc;
  if (g->e.leaf == NULL && g->e.node == NULL) return amp__fail(AMP_E_AUTOGRAD, "input %d has no history", i + 1);
  e->inner |= g->e.leaf == NULL;
  entry *x = g->e.leaf ? get(e, g->e.leaf, true) : get(e, g->e.node, false);
  if (x == NULL) return amp__S->err.code;
  g->next = x->target;
  x->target = i;
  return 0;
}

static int add_root(engine *e, int i, amp_tensor *t, amp_tensor *g)
{
  int rc = 0;
  if (t == NULL) return amp__fail(AMP_E_ARGUMENT, "tensor %d was freed", i + 1);
  amp__refresh(t);
  if (!amp__tracked(t))
    return amp__fail(AMP_E_AUTOGRAD, "tensor %d (%s) has no recorded history and does not require grad", i + 1, amp__tensor_str(t));
  amp__S->priv->origin = !g || (e->flags & AMP_B_ONES) ? AMP_O_PLAIN : amp__root_origin(g, e->outer);
  if (g) {
    if (!amp__same_size(t, g))
      return amp__fail(AMP_E_SHAPE, "the gradient has shape %s, the tensor %s", amp__shape_str(g->ndim, g->size), amp__shape_str(t->ndim, t->size));
    if (!amp__is_float(g->dtype)) return amp__fail(AMP_E_DTYPE, "the gradient is %s, a float dtype is expected", amp_dtype_name(g->dtype));
    if (g->dtype != t->dtype) g = amp__xcast(g, t->dtype);
  } else {
    if (t->numel != 1)
      return amp__fail(AMP_E_SHAPE, "backward of a tensor of shape %s needs a gradient; without one only a single value can start it: reduce it (:sum(), "
                       "as MXNet's backward of several losses does, or :mean()), or give a gradient of its shape", amp__shape_str(t->ndim, t->size));
    g = amp__seed(t);
  }
  if (g == NULL) return amp__S->err.code;
  amp_edge to;
  if ((rc = amp__edge_of(t, &to)) < 0) return rc;
  if (e->only && to.node) rc = mark_needed(e, to.node);
  if (rc == 0) { amp__retain(g); rc = send(e, &to, g, false); }
  amp__edge_free(&to);
  return rc;
}

amp_engine *amp_backward_begin(amp_state *S, amp_tensor *const *root, amp_tensor *const *grad, int nroot,
                               amp_tensor *const *input, int ninput, int flags)
{
  AMP_ENTER(S);
  int32_t grad_mode = S->grad_mode, autocast_on = S->autocast_on;
  const char *op = S->priv->op;
  int rc = 0;
  engine *e = calloc(1, sizeof *e);
  if (e == NULL) { amp__nomem(sizeof *e); return NULL; }
  if (flags & AMP_B_CREATE_GRAPH) flags |= AMP_B_RETAIN_GRAPH;
  e->flags = flags;
  e->outer = S->priv->origin;
  amp__scales_enter();
  e->only = input != NULL;
  if (!e->only) e->flags = flags |= AMP_B_ACCUMULATE;
  S->grad_mode = (flags & AMP_B_CREATE_GRAPH) != 0;
  S->autocast_on = 0;
  S->priv->op = "backward";
  int mark = amp__pool_mark();
  if (ninput > 0 && (e->targets = calloc((size_t)ninput, sizeof *e->targets)) == NULL) rc = amp__nomem(sizeof *e->targets * (size_t)ninput);
  for (int i = 0; i < ninput && rc == 0; i++) rc = add_target(e, i, input[i]);
  for (int i = 0; i < nroot && rc == 0; i++) rc = add_root(e, i, root[i], grad ? grad[i] : NULL);
  amp__pool_release(mark);
  S->priv->op = op;
  S->grad_mode = grad_mode;
  S->autocast_on = autocast_on;
  if (rc < 0) {
    strcpy(S->err.op, "backward");
    amp_backward_end(S, &e->head);
    return NULL;
  }
  return &e->head;
}

int amp_backward_arg(amp_state *S, amp_ref *out, amp_engine *head, int i)
{
  engine *e = (engine *)head;
  AMP_ENTER(S);
  if (i < 0 || i >= e->nin) return amp__fail(AMP_E_ARGUMENT, "there are %d gradients, not %d", e->nin, i + 1);
  out->t = e->in[i];
  if (out->t) amp__retain(out->t);
  return 0;
}

int amp_backward_supply(amp_state *S, amp_engine *head, int i, const amp_ref *g)
{
  engine *e = (engine *)head;
  AMP_ENTER(S);
  if (i < 0 || i >= e->nback) return amp__fail(AMP_E_ARGUMENT, "%d gradients are wanted, not %d", e->nback, i + 1);
  if (g && g->t == NULL) return amp__fail(AMP_E_ARGUMENT, "gradient %d was freed", i + 1);
  amp__free(e->back[i]);
  e->back[i] = g ? g->t : NULL;
  if (g) amp__retain(g->t);
  return 0;
}

int amp_backward_result(amp_state *S, amp_ref *out, amp_engine *head, int i)
{
  engine *e = (engine *)head;
  AMP_ENTER(S);
  out->t = NULL;
  if (i < 0 || i >= e->ntarget) return amp__fail(AMP_E_ARGUMENT, "there are %d inputs, not %d", e->ntarget, i + 1);
  amp_tensor *g = e->targets[i].grad;
  if (g == NULL && !(e->flags & AMP_B_ALLOW_UNUSED))
    return amp__fail(AMP_E_AUTOGRAD, "input %d was not used in the outputs; pass allow_unused = true to get nil for it", i + 1);
  if (g) { out->t = g; amp__retain(g); }
  return 0;
}

void amp_backward_end(amp_state *S, amp_engine *head)
{
  engine *e = (engine *)head;
  AMP_ENTER(S);
  stop_done(e);
  if (e->node && (e->node->flags & AMP_N_SPENT)) amp__node_release_saved(e->node); /* it was given up in between */
  for (int i = 0; i < e->cap; i++) {
    entry *x = &e->map[i];
    if (x->key == NULL) continue;
    int nout = x->is_leaf ? 1 : ((amp_node *)x->key)->nout;
    for (int k = 0; x->grad && k < nout; k++) amp__free(x->grad[k]);
    free(x->grad);
  }
  for (int i = 0; i < e->ntarget; i++) amp__free(e->targets[i].grad);
  /* keys last: freeing a node may free what others point to */
  for (int i = 0; i < e->cap; i++) {
    if (e->map[i].key == NULL) continue;
    if (e->map[i].is_leaf) amp__free(e->map[i].key);
    else amp__node_free(e->map[i].key);
  }
  for (int i = 0; e->targets && i < e->ntarget; i++) {
    amp__free(e->targets[i].t);
    amp__edge_free(&e->targets[i].e);
  }
  S->priv->origin = e->outer;
  amp__scales_leave();
  amp__later_free(e->later);
  free(e->targets);
  free(e->map);
  free(e->heap);
  free(e->leaves);
  free(e);
  amp__memory_trough();
}
