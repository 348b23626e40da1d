/*
** amp_graph.c: what a recorded graph is made of, for callers that want to know:
** the leaves it reaches. (Checkpoints tie a recomputed part to the parameters
** that it used.) Reads edges only; nothing is kept and nothing runs.
*/
#include <stdlib.h>
#include "amp_compose.h"
#include "amp_tape.h"

typedef struct set { void **key; size_t cap, count; } set;

/* 1: new, 0: there already, <0: no memory */
static int put(set *s, void *p)
{
  if (s->count * 2 >= s->cap) {
    size_t cap = s->cap ? s->cap * 2 : 256;
    void **key = calloc(cap, sizeof *key);
    if (key == NULL) return amp__nomem(cap * sizeof *key);
    for (size_t i = 0; i < s->cap; i++) {
      if (s->key[i] == NULL) continue;
      size_t h = ((uintptr_t)s->key[i] >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20 & (cap - 1);
      while (key[h]) h = (h + 1) & (cap - 1);
      key[h] = s->key[i];
    }
    free(s->key);
    s->key = key;
    s->cap = cap;
  }
  size_t h = ((uintptr_t)p >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20 & (s->cap - 1);
  for (; s->key[h]; h = (h + 1) & (s->cap - 1)) if (s->key[h] == p) return 0;
  s->key[h] = p;
  s->count++;
  return 1;
}

int amp_graph_leaves(amp_state *S, amp_tensor *const *root, int n, amp_ref *out, int cap)
{
  AMP_ENTER(S);
  set seen = { NULL, 0, 0 };
  amp_node **stack = NULL;
  size_t depth = 0, room = 0;
  int found = 0, rc = 0;
  amp_edge *roots = calloc((size_t)(n > 0 ? n : 1), sizeof *roots);
  if (roots == NULL) return amp__nomem(sizeof *roots * (size_t)n);
  for (int i = 0; i < n; i++) if (root[i] && (rc = amp__edge_of(root[i], &roots[i])) < 0) goto out;
  /* an edge leads to a leaf, which is given out, or to a node, whose edges are looked at later */
  for (int i = 0; i < n || depth > 0;) {
    amp_edge *e;
    int count;
    if (i < n) { e = &roots[i++]; count = 1; }
    else { amp_node *node = stack[--depth]; e = node->edge; count = node->nin; }
    for (int k = 0; k < count; k++) {
      void *p = e[k].leaf ? (void *)e[k].leaf : (void *)e[k].node;
      if (p == NULL) continue;
      if ((rc = put(&seen, p)) < 0) goto out;
      if (rc == 0) continue;
      if (e[k].leaf) {
        if (found < cap) { amp__retain(e[k].leaf); out[found].t = e[k].leaf; }
        found++;
        continue;
      }
      if (depth == room) {
        size_t more = room ? room * 2 : 256;
        amp_node **p2 = realloc(stack, sizeof *p2 * more);
        if (p2 == NULL) { rc = amp__nomem(sizeof *p2 * more); goto out; }
        stack = p2;
        room = more;
      }
      stack[depth++] = e[k].node;
    }
  }
  rc = found;
out:
  for (int i = 0; rc < 0 && i < found && i < cap; i++) { amp__free(out[i].t); out[i].t = NULL; }
  for (int i = 0; i < n; i++) amp__edge_free(&roots[i]);
  free(roots);
  free(stack);
  free(seen.key);
  return rc;
}
