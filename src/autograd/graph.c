/*
** autograd/graph.c: what a recorded graph is made of, for callers that want to know:
** the leaves it reaches. (Checkpoints tie a recomputed part to the parameters
** that it used.) Reads edges only; nothing is kept and nothing runs.
*/
#include <stdlib.h>
#include "dispatch/op_builder.h"
#include "autograd/tape.h"
#include "base/pointer_map.h"

typedef struct set {
  void **key;
  size_t cap, count;
} set;

/* 1: new, 0: there already, <0: no memory */
static int put(set *s, void *p)
{
  if (s->count * 2 >= s->cap) {
    size_t cap = s->cap ? s->cap * 2 : 256;
    void **key = calloc(cap, sizeof *key);
    if (key == NULL) return amp__nomem(cap * sizeof *key);
    amp__pointer_refill(key, cap, s->key, s->cap, sizeof *key);
    free(s->key);
    s->key = key;
    s->cap = cap;
  }
  void **entry = &s->key[amp__pointer_find(s->key, sizeof *s->key, s->cap, p)];
  if (*entry) return 0;
  *entry = p;
  s->count++;
  return 1;
}

int amp_graph_leaves(amp_state *state, amp_tensor *const *root, int n, amp_ref *out, int cap)
{
  AMP_ENTER(state);
  set seen = { NULL, 0, 0 };
  amp_node **stack = NULL;
  size_t depth = 0, room = 0;
  int found = 0, status = 0;
  amp_edge *roots = calloc((size_t)(n > 0 ? n : 1), sizeof *roots);
  if (roots == NULL) return amp__nomem(sizeof *roots * (size_t)n);
  for (int i = 0; i < n; i++)
    if (root[i] && (status = amp__edge_of(root[i], &roots[i])) < 0) goto out;
  /* an edge leads to a leaf, which is given out, or to a node, whose edges are looked at later */
  for (int i = 0; i < n || depth > 0;) {
    amp_edge *edge;
    int count;
    if (i < n) {
      edge = &roots[i++];
      count = 1;
    } else {
      amp_node *node = stack[--depth];
      edge = node->edge;
      count = node->nin;
    }
    for (int k = 0; k < count; k++) {
      void *p = edge[k].leaf ? (void *)edge[k].leaf : (void *)edge[k].node;
      if (p == NULL) continue;
      if ((status = put(&seen, p)) < 0) goto out;
      if (status == 0) continue;
      if (edge[k].leaf) {
        if (found < cap) {
          amp__retain(edge[k].leaf);
          out[found].t = edge[k].leaf;
        }
        found++;
        continue;
      }
      if (depth == room) {
        size_t more = room ? room * 2 : 256;
        amp_node **p2 = realloc(stack, sizeof *p2 * more);
        if (p2 == NULL) {
          status = amp__nomem(sizeof *p2 * more);
          goto out;
        }
        stack = p2;
        room = more;
      }
      stack[depth++] = edge[k].node;
    }
  }
  status = found;
out:
  for (int i = 0; status < 0 && i < found && i < cap; i++) {
    amp__free(out[i].t);
    out[i].t = NULL;
  }
  for (int i = 0; i < n; i++) amp__edge_free(&roots[i]);
  free(roots);
  free(stack);
  free(seen.key);
  return status;
}
