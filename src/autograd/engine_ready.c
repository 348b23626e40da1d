/*
** autograd/engine_ready.c: leaves whose complete gradient somebody waits for, while the backward goes on: what sends
** gradients to other processes. A search from the roots counts the edges that lead to each such leaf; when the last
*node
** that has one is done, so is the gradient. Nothing of this happens where nobody waits.
*/
#include <stdlib.h>
#include "autograd/engine.h"

static _Atomic int64_t watched; /* leaves, in the process */

int64_t amp_ready(amp_state *state, const amp_ref *ref)
{
  AMP_ENTER(state);
  amp_tensor *leaf = ref->t;
  if (leaf == NULL) return amp__fail(AMP_E_ARGUMENT, "the tensor was freed");
  if (!(leaf->flags & AMP_T_REQUIRES_GRAD) || leaf->flags & AMP_T_HISTORY)
    return amp__fail(AMP_E_AUTOGRAD, "a leaf that requires grad is expected");
  amp_ag *ag = amp__ag(leaf);
  if (ag == NULL) return state->err.code;
  if (ag->ready == 0) {
    ag->ready = amp__new_id();
    watched++;
  }
  return ag->ready;
}

void amp_ready_off(const amp_ref *ref)
{
  if (!ref->t || !ref->t->ag || !ref->t->ag->ready) return;
  ref->t->ag->ready = 0;
  watched--;
}

/* -- The search ---------------------------------------------------------------------- */

typedef struct search {
  amp_node **seen, **stack;
  int cap, count, depth, room;
} search;

static int see(search *s, amp_node *node)
{
  if (s->count * 2 >= s->cap) {
    int cap = s->cap ? 2 * s->cap : 256;
    amp_node **more = calloc((size_t)cap, sizeof(amp_node *));
    if (more == NULL) return amp__nomem(sizeof *more * (size_t)cap);
    amp__pointer_refill(more, (size_t)cap, s->seen, (size_t)s->cap, sizeof(amp_node *));
    free(s->seen);
    s->seen = more;
    s->cap = cap;
  }
  size_t at = amp__pointer_find(s->seen, sizeof(amp_node *), (size_t)s->cap, node);
  if (s->seen[at]) return 0;
  s->seen[at] = node;
  s->count++;
  if (s->depth == s->room) {
    int room = s->room ? 2 * s->room : 256;
    amp_node **more = realloc(s->stack, sizeof(amp_node *) * (size_t)room);
    if (more == NULL) return amp__nomem(sizeof(amp_node *) * (size_t)room);
    s->stack = more;
    s->room = room;
  }
  s->stack[s->depth++] = node;
  return 0;
}

/* The leaf's watch, NULL: none */
static watch *watch_of(engine *engine, const amp_tensor *leaf)
{
  if (!leaf->ag || !leaf->ag->ready) return NULL;
  int at = leaf->ag->ready_at;
  if (at < engine->nwatch && engine->watches[at].leaf == leaf) return &engine->watches[at];
  for (int i = 0; i < engine->nwatch; i++) /* another backward is under way in this one */
    if (engine->watches[i].leaf == leaf) return &engine->watches[i];
  return NULL;
}

static int count_edge(engine *engine, amp_tensor *leaf)
{
  const entry *x = engine->only ? amp__engine_find(engine, leaf) : NULL;
  if (!leaf->ag || !leaf->ag->ready || (engine->only && !(x && x->target >= 0))) return 0;
  watch *w = watch_of(engine, leaf);
  if (w == NULL) {
    if (engine->nwatch == engine->capwatch) {
      int cap = engine->capwatch ? 2 * engine->capwatch : 32;
      watch *more = realloc(engine->watches, sizeof *more * (size_t)cap);
      if (more == NULL) return amp__nomem(sizeof *more * (size_t)cap);
      engine->watches = more;
      engine->capwatch = cap;
    }
    amp__retain(leaf);
    leaf->ag->ready_at = engine->nwatch;
    w = &engine->watches[engine->nwatch++];
    *w = (watch){ .leaf = leaf };
  }
  w->left++;
  return 0;
}

static bool goes_through(engine *engine, const amp_node *node)
{
  const entry *x = engine->only ? amp__engine_find(engine, node) : NULL;
  return !engine->only || (x && x->state == PRUNE_NEEDED);
}

int amp__engine_watch(engine *engine)
{
  search s = { 0 };
  int status = 0;
  if (atomic_load_explicit(&watched, memory_order_relaxed) == 0 || !amp__engine_accumulates(engine)
      || (engine->flags & AMP_B_CREATE_GRAPH))
    return 0;
  for (int i = 0; i < engine->nleaves && status == 0; i++) status = count_edge(engine, engine->leaves[i]);
  for (int i = 0; i < engine->nheap && status == 0; i++) status = see(&s, engine->heap[i]);
  while (s.depth && status == 0) {
    amp_node *node = s.stack[--s.depth];
    if (!goes_through(engine, node)) continue;
    for (int i = 0; i < node->nin && status == 0; i++) {
      if (node->edge[i].leaf) status = count_edge(engine, node->edge[i].leaf);
      else if (node->edge[i].node) status = see(&s, node->edge[i].node);
    }
  }
  free(s.seen);
  free(s.stack);
  return status;
}

/* -- While it runs ----------------------------------------------------------------------- */

void amp__engine_passed(engine *engine)
{
  const amp_node *node = engine->node;
  for (int i = 0; node && i < node->nin; i++) {
    amp_tensor *leaf = node->edge[i].leaf;
    watch *w = leaf ? watch_of(engine, leaf) : NULL;
    if (w == NULL || --w->left > 0 || w->complete) continue;
    const entry *x = amp__engine_find(engine, leaf);
    if (leaf->ag->hook || (x && x->queued)) continue; /* its gradient comes at the end */
    w->complete = true;
    w->next = engine->complete;
    engine->complete = (int)(w - engine->watches) + 1;
    if (engine->later && amp__deferred_wgrad_has(engine->later, leaf)) engine->flush = true;
  }
}

/* The next that is to be told, NULL: none */
static watch *next_watch(engine *engine, bool all)
{
  if (engine->complete) {
    watch *w = &engine->watches[engine->complete - 1];
    engine->complete = w->next;
    return w;
  }
  for (; all && engine->told < engine->nwatch; engine->told++)
    if (!engine->watches[engine->told].complete) return &engine->watches[engine->told++];
  return NULL;
}

int amp__engine_tell(engine *engine, bool all)
{
  int status;
  if (engine->flush && (status = amp__engine_flush(engine, true)) < 0) return status;
  engine->flush = false;
  for (watch *w; (w = next_watch(engine, all)) != NULL;) {
    if (!w->leaf->ag->ready) continue;
    engine->head.request = AMP_R_READY;
    engine->head.id = w->leaf->ag->ready;
    engine->head.n = engine->head.wanted = 0;
    return 1;
  }
  return 0;
}

void amp__engine_unwatch(engine *engine)
{
  for (int i = 0; i < engine->nwatch; i++) amp__free(engine->watches[i].leaf);
  free(engine->watches);
}
