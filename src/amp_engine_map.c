/*
** amp_engine_map.c: what a backward has reached, by key, the heap of nodes whose
** gradients have come, newest first, and the search for nodes on a way to a target.
*/
#include <stdlib.h>
#include "amp_engine.h"

/* -- Map and heap --------------------------------------------------------------- */

static bool grow(engine *e)
{
  int cap = e->cap ? e->cap * 2 : 64;
  entry *map = calloc((size_t)cap, sizeof *map);
  if (map == NULL) { amp__nomem((size_t)cap * sizeof *map); return false; }
  for (int i = 0; i < e->cap; i++) {
    if (e->map[i].key == NULL) continue;
    size_t h = amp__engine_hash(e->map[i].key) & (size_t)(cap - 1);
    while (map[h].key) h = (h + 1) & (size_t)(cap - 1);
    map[h] = e->map[i];
  }
  free(e->map);
  e->map = map;
  e->cap = cap;
  return true;
}

entry *amp__engine_new(engine *e, void *key, bool is_leaf)
{
  if (e->count * 2 >= e->cap && !grow(e)) return NULL;
  size_t h = amp__engine_hash(key) & (size_t)(e->cap - 1);
  while (e->map[h].key) h = (h + 1) & (size_t)(e->cap - 1);
  entry *x = &e->map[h];
  x->key = key;
  x->is_leaf = is_leaf;
  x->target = -1;
  if (is_leaf) amp__retain(key);
  else atomic_fetch_add_explicit(&((amp_node *)key)->refs, 1, memory_order_relaxed);
  e->count++;
  return x;
}

int amp__engine_push(engine *e, amp_node *n)
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

amp_node *amp__engine_pop(engine *e)
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
int amp__engine_mark(engine *e, amp_node *root)
{
  typedef struct frame { amp_node *n; int i; } frame;
  int depth = 0, cap = 64, rc = 0;
  frame *stack = malloc(sizeof *stack * (size_t)cap);
  if (stack == NULL) return amp__nomem(sizeof *stack * (size_t)cap);
  entry *x = amp__engine_get(e, root, false);
  if (x == NULL) { free(stack); return amp__S->err.code; }
  if (x->state == 0) { x->state = 1; stack[depth++] = (frame){ root, 0 }; }
  while (depth) {
    frame *f = &stack[depth - 1];
    x = amp__engine_find(e, f->n);
    if (f->i == f->n->nin) {
      if (x->state == 1) x->state = 3;
      depth--;
      if (depth && x->state == 2) amp__engine_find(e, stack[depth - 1].n)->state = 2;
      continue;
    }
    amp_edge *g = &f->n->edge[f->i++];
    if (g->leaf) {
      entry *l = amp__engine_find(e, g->leaf);
      if (l && l->target >= 0) x->state = 2;
    } else if (g->node) {
      entry *y = amp__engine_get(e, g->node, false);
      if (y == NULL) { rc = amp__S->err.code; break; }
      x = amp__engine_find(e, f->n);
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
