/*
** autograd/engine_map.c: what a backward has reached, by key, the heap of nodes whose
** gradients have come, newest first, and the search for nodes on a way to a target.
*/
#include <stdlib.h>
#include "autograd/engine.h"

/* -- Map and heap --------------------------------------------------------------- */

enum { SMALL = 32 }; /* most backwards reach no more than half of that; what is empty costs time, too */

static bool grow(engine *engine)
{
  int cap = engine->cap ? engine->cap * 2 : SMALL;
  size_t bytes = (size_t)cap * sizeof(entry) + (size_t)cap / 2 * sizeof(int32_t);
  entry *map = calloc(1, bytes);
  if (map == NULL) {
    amp__nomem(bytes);
    return false;
  }
  int32_t *taken = (int32_t *)(map + cap);
  for (int i = 0; i < engine->count; i++) {
    const entry *x = &engine->map[engine->taken[i]];
    size_t at = amp__pointer_find(map, sizeof *map, (size_t)cap, x->key);
    map[at] = *x;
    taken[i] = (int32_t)at;
  }
  free(engine->map);
  engine->map = map;
  engine->taken = taken;
  engine->cap = cap;
  return true;
}

entry *amp__engine_new(engine *engine, void *key, bool is_leaf)
{
  if (engine->count * 2 >= engine->cap && !grow(engine)) return NULL;
  size_t at = amp__pointer_find(engine->map, sizeof *engine->map, (size_t)engine->cap, key);
  entry *x = &engine->map[at];
  AMP_ASSERT(x->key == NULL);
  x->key = key;
  x->is_leaf = is_leaf;
  x->target = -1;
  if (is_leaf) amp__retain(key);
  else atomic_fetch_add_explicit(&((amp_node *)key)->refs, 1, memory_order_relaxed);
  engine->taken[engine->count++] = (int32_t)at;
  return x;
}

int amp__engine_push(engine *engine, amp_node *node)
{
  if (engine->nheap == engine->capheap) {
    int cap = engine->capheap ? engine->capheap * 2 : 64;
    amp_node **p = realloc(engine->heap, sizeof *p * (size_t)cap);
    if (p == NULL) return amp__nomem(sizeof *p * (size_t)cap);
    engine->heap = p;
    engine->capheap = cap;
  }
  AMP_ASSERT(node->refs > 0 && (engine->node == NULL || node->seq < engine->node->seq)); /* edges lead to older nodes */
  int i = engine->nheap++;
  for (; i > 0 && engine->heap[(i - 1) / 2]->seq < node->seq; i = (i - 1) / 2)
    engine->heap[i] = engine->heap[(i - 1) / 2];
  engine->heap[i] = node;
  return 0;
}

amp_node *amp__engine_pop(engine *engine)
{
  AMP_ASSERT(engine->nheap > 0);
  amp_node *top = engine->heap[0], *last = engine->heap[--engine->nheap];
  int i = 0;
  for (;;) {
    int k = 2 * i + 1;
    if (k >= engine->nheap) break;
    if (k + 1 < engine->nheap && engine->heap[k + 1]->seq > engine->heap[k]->seq) k++;
    if (engine->heap[k]->seq <= last->seq) break;
    engine->heap[i] = engine->heap[k];
    i = k;
  }
  if (engine->nheap) engine->heap[i] = last;
  return top;
}

/* -- Pruning --------------------------------------------------------------------- */

/* Is node on a way to a target? Depth first with a stack of its own: graphs are deep. */
int amp__engine_mark(engine *engine, amp_node *root)
{
  typedef struct frame {
    amp_node *node;
    int next; /* edge */
  } frame;
  int depth = 0, cap = 64, status = 0;
  frame *stack = malloc(sizeof *stack * (size_t)cap);
  if (stack == NULL) return amp__nomem(sizeof *stack * (size_t)cap);
  entry *x = amp__engine_get(engine, root, false);
  if (x == NULL) {
    free(stack);
    return amp__S->err.code;
  }
  if (x->state == PRUNE_UNKNOWN) {
    x->state = PRUNE_VISITING;
    stack[depth++] = (frame){ root, 0 };
  }
  while (depth) {
    frame *f = &stack[depth - 1];
    x = amp__engine_find(engine, f->node);
    if (f->next == f->node->nin) {
      if (x->state == PRUNE_VISITING) x->state = PRUNE_UNNEEDED;
      depth--;
      if (depth && x->state == PRUNE_NEEDED) amp__engine_find(engine, stack[depth - 1].node)->state = PRUNE_NEEDED;
      continue;
    }
    amp_edge *g = &f->node->edge[f->next++];
    if (g->leaf) {
      entry *l = amp__engine_find(engine, g->leaf);
      if (l && l->target >= 0) x->state = PRUNE_NEEDED;
    } else if (g->node) {
      entry *y = amp__engine_get(engine, g->node, false);
      if (y == NULL) {
        status = amp__S->err.code;
        break;
      }
      x = amp__engine_find(engine, f->node);
      for (int t = y->target; t >= 0; t = engine->targets[t].next)
        if (engine->targets[t].edge.index == g->index) x->state = PRUNE_NEEDED;
      if (y->state == PRUNE_NEEDED) x->state = PRUNE_NEEDED;
      if (y->state == PRUNE_UNKNOWN) {
        y->state = PRUNE_VISITING;
        if (depth == cap) {
          frame *p = realloc(stack, sizeof *p * (size_t)cap * 2);
          if (p == NULL) {
            status = amp__nomem(sizeof *p * (size_t)cap * 2);
            break;
          }
          stack = p;
          cap *= 2;
        }
        stack[depth++] = (frame){ g->node, 0 };
      }
    }
  }
  free(stack);
  return status;
}
