/*
** graph/pass_plain.c: nodes that nothing uses, nodes that are equal, nodes of constants.
*/
#include <stdlib.h>
#include "graph/pass.h"

/* -- Dead code ---------------------------------------------------------------------- */

int pass_dead(amp_graph *g)
{
  graph_pass p;
  int rc = pass_open(&p, g);
  if (rc < 0) return rc;
  bool *used = calloc((size_t)g->nvalue + 1, sizeof *used);
  if (used == NULL) return pass_close(&p, amp__nomem((size_t)g->nvalue));
  for (int i = 0; i < g->noutput; i++) used[g->outputs[i]] = true;
  for (int k = g->nnode - 1; k >= 0; k--) {
    const amp_graph_node *n = &g->nodes[k];
    bool lives = pass_changes(n) || pass_draws(n);
    for (int i = 0; i < n->nout; i++) lives |= n->out[i] >= 0 && used[n->out[i]];
    if (!lives) pass_kill(&p, k);
    for (int i = 0; lives && i < n->nin; i++)
      if (n->in[i] >= 0) used[n->in[i]] = true;
    if (lives && n->flags) used[n->out[0]] = true;
  }
  free(used);
  return pass_close(&p, 0);
}

/* -- Copies of constants --------------------------------------------------------------- */

int pass_made(amp_graph *g)
{
  bool any = false;
  for (int i = 0; i < g->nvalue && !any; i++) any = g->values[i].made;
  graph_pass p;
  int rc = any ? pass_open(&p, g) : 0;
  if (rc < 0 || !any) return rc;
  for (int k = 0; k < g->nnode; k++) {
    amp_graph_node *n = &g->nodes[k];
    int32_t made = n->nout == 1 ? n->out[0] : -1;
    if (made < 0 || !g->values[made].made || n->op != AMP_OP_clone
        || pass_class(&p, made, CLASS_WRITTEN | CLASS_OUTPUT))
      continue;
    int32_t from = n->in[0];
    for (int i = p.user_from[made]; i < p.user_from[made + 1]; i++) {
      amp_graph_node *user = &g->nodes[p.user[i]];
      int32_t *in = (int32_t *)(intptr_t)user->in;
      for (int j = 0; j < user->nin; j++)
        if (in[j] == made) in[j] = from;
    }
    pass_kill(&p, k);
  }
  return pass_close(&p, 0);
}

/* -- Equal nodes ---------------------------------------------------------------------- */

/* May the node be left out where an equal one came before? */
static bool repeatable(const graph_pass *p, int k)
{
  const amp_graph_node *n = &p->graph->nodes[k];
  if (n->flags || p->sized[k] || pass_draws(n) || pass_changes(n) || n->nout < 1) return false;
  for (int i = 0; i < n->nout; i++)
    if (n->out[i] >= 0 && pass_class(p, n->out[i], CLASS_WRITTEN)) return false;
  return true;
}

static uint32_t mix(uint32_t hash, const void *bytes, size_t n)
{
  const uint8_t *at = bytes;
  for (size_t i = 0; i < n; i++) hash = (hash ^ at[i]) * 16777619u;
  return hash;
}

static size_t slot_bytes(const amp_graph_node *n)
{
  return n->op < 0 ? 0 : sizeof(amp_slot) * (size_t)amp__ops[n->op].info.nslot;
}

static uint32_t hash_node(const amp_graph_node *n)
{
  uint32_t hash = mix(2166136261u, &n->op, sizeof n->op);
  hash = mix(hash, n->in, sizeof *n->in * (size_t)n->nin);
  return mix(hash, n->attrs, slot_bytes(n));
}

/* b, of equal operands, attributes and modes, may take a's results. */
static bool equal_nodes(const graph_pass *p, int a, int b)
{
  const amp_graph_node *first = &p->graph->nodes[a], *second = &p->graph->nodes[b];
  if (first->op != second->op || first->nin != second->nin || !pass_same_modes(first, second)
      || memcmp(first->in, second->in, sizeof *first->in * (size_t)first->nin) != 0
      || memcmp(first->attrs, second->attrs, slot_bytes(first)) != 0)
    return false;
  for (int i = 0; i < AMP_MAX_OUT; i++) {
    int32_t given = i < first->nout ? first->out[i] : -1, wanted = i < second->nout ? second->out[i] : -1;
    if (wanted < 0) continue;
    if (given < 0) return false;
    /* what a caller gets, it may write before backward reads the other one */
    if (pass_class(p, given, CLASS_OUTPUT) || pass_class(p, wanted, CLASS_OUTPUT)) return false;
  }
  for (int i = 0; i < first->nin; i++)
    if (first->in[i] >= 0 && !pass_unwritten(p, first->in[i], a, b)) return false;
  return true;
}

static void take_results(graph_pass *p, int a, int b, int32_t *value)
{
  const amp_graph_node *first = &p->graph->nodes[a], *second = &p->graph->nodes[b];
  for (int i = 0; i < second->nout; i++) {
    if (second->out[i] < 0) continue;
    value[second->out[i]] = first->out[i];
    p->storage_is[p->storage[first->out[i]]] |= p->storage_is[p->storage[second->out[i]]];
  }
  pass_kill(p, b);
}

/* Each number stands for all that are as large. */
static void equal_numbers(const graph_pass *p, int32_t *value)
{
  const amp_graph *g = p->graph;
  enum { RECENT = 64 };
  int32_t seen[RECENT];
  int count = 0;
  for (int i = 0; i < g->nvalue; i++) {
    double number, other;
    if (!pass_number(p, i, &number)) continue;
    bool found = false;
    for (int j = 0; j < count && j < RECENT && !found; j++)
      if (pass_number(p, seen[j], &other) && memcmp(&number, &other, sizeof number) == 0) {
        value[i] = seen[j];
        found = true;
      }
    if (!found) seen[count++ % RECENT] = i;
  }
}

static void merge_equal(graph_pass *p, int32_t *value, int32_t *table, uint32_t room)
{
  amp_graph *g = p->graph;
  for (int k = 0; k < g->nnode; k++) {
    amp_graph_node *n = &g->nodes[k];
    int32_t *in = (int32_t *)(intptr_t)n->in;
    for (int i = 0; i < n->nin; i++)
      if (in[i] >= 0 && value[in[i]] != in[i]) {
        in[i] = value[in[i]];
        p->changes++;
      }
    if (!repeatable(p, k)) continue;
    uint32_t at = hash_node(n) & (room - 1);
    while (table[at] >= 0 && !equal_nodes(p, table[at], k)) at = (at + 1) & (room - 1);
    if (table[at] >= 0) take_results(p, table[at], k, value);
    else table[at] = k;
  }
  for (int i = 0; i < g->noutput; i++) g->outputs[i] = value[g->outputs[i]];
}

int pass_common(amp_graph *g)
{
  graph_pass p;
  int rc = pass_open(&p, g);
  if (rc < 0) return rc;
  uint32_t room = 16;
  while (room < 2 * (uint32_t)g->nnode) room *= 2;
  int32_t *value = malloc(sizeof *value * (size_t)(g->nvalue + 1)), *table = malloc(sizeof *table * room);
  if (value == NULL || table == NULL) rc = amp__nomem(sizeof *table * room);
  if (rc == 0) {
    for (int i = 0; i < g->nvalue; i++) value[i] = i;
    for (uint32_t i = 0; i < room; i++) table[i] = -1;
    equal_numbers(&p, value);
    merge_equal(&p, value, table, room);
  }
  free(value);
  free(table);
  return pass_close(&p, rc);
}

/* -- Constants -------------------------------------------------------------------------- */

enum { FOLDED_MOST = 1 << 20 }; /* bytes that a folded result may have beyond its operands' */

/* In whatever region its caller is, the node gives the same. */
static bool same_in_regions(const graph_pass *p, const amp_graph_node *n)
{
  if (n->op < 0) return true;
  int policy = amp__policy_of(n->op, n->attrs);
  if (policy == AMP_PASSTHROUGH || n->nin == 0) return true;
  for (int i = 0; i < n->nin; i++) {
    if (n->in[i] < 0) continue;
    const amp_graph_value *v = pass_value(p, n->in[i]);
    if (v->kind == AMP_G_NUMBER || !amp__is_float(v->dtype)) continue;
    if (amp__is_half(v->dtype)) return false;
    if (policy != AMP_FP32 && policy != AMP_FP32_UNLESS_DTYPE && policy != AMP_PROMOTE) return false;
  }
  return true;
}

static bool shared(const amp_tensor *t)
{
  return t->refs != 1 || atomic_load_explicit(&t->storage->refs, memory_order_relaxed) != 1;
}

static bool foldable(const graph_pass *p, int k, bool alone)
{
  const amp_graph_node *n = &p->graph->nodes[k];
  int64_t bytes = FOLDED_MOST;
  if (!repeatable(p, k) || n->grad == 1 || n->regions || p->writes_input) return false;
  for (int i = 0; i < n->nin; i++) {
    if (n->in[i] < 0) continue;
    const amp_graph_value *v = pass_value(p, n->in[i]);
    if (v->kind == AMP_G_NUMBER && !p->number[n->in[i]]) continue;
    if (v->kind != AMP_G_CONSTANT || pass_class(p, n->in[i], CLASS_WRITTEN)) return false;
    if (alone && shared(v->tensor)) return false; /* its holder may write it */
    bytes += v->tensor->numel * amp__dtype_size[v->tensor->dtype];
  }
  for (int i = 0; i < n->nout; i++) {
    if (n->out[i] < 0) continue;
    const amp_graph_value *v = pass_value(p, n->out[i]);
    int64_t size = amp__dtype_size[v->dtype];
    for (int d = 0; d < v->ndim; d++) size *= v->size[d];
    bytes -= size;
    if (pass_class(p, n->out[i], CLASS_OUTPUT)) return false; /* each run gives one of its own */
  }
  return bytes >= 0 && same_in_regions(p, n);
}

/* How the node's results follow what others may write; *fold is NULL where nobody else has what it reads. */
static int remember(const graph_pass *p, const amp_graph_node *n, amp_tensor *const *out, struct graph_fold **fold)
{
  bool any = false;
  *fold = NULL;
  for (int i = 0; i < n->nin && !any; i++) {
    const graph_value *v = n->in[i] >= 0 ? &p->graph->values[n->in[i]] : NULL;
    any = v && v->info.kind == AMP_G_CONSTANT && (v->fold || shared(v->info.tensor));
  }
  if (!any) return 0;
  struct graph_fold *made = *fold = graph_fold_new(n->op, n->nin, n->attrs);
  if (made == NULL) return amp__nomem(sizeof *n);
  for (int i = 0; i < n->nin; i++) {
    const graph_value *v = n->in[i] >= 0 ? &p->graph->values[n->in[i]] : NULL;
    if (v) graph_fold_reads(made, i, v->info.tensor, v->fold, v->fold_result);
  }
  for (int i = 0; i < n->nout; i++)
    if (out[i]) graph_fold_gives(made, i, out[i]);
  return 0;
}

/* The node's results; false: it failed. */
static bool compute(const graph_pass *p, int k, amp_tensor **out, struct graph_fold **fold)
{
  const amp_graph_node *n = &p->graph->nodes[k];
  amp_tensor **in = malloc(sizeof *in * (size_t)(n->nin + 1));
  if (in == NULL) return false;
  for (int i = 0; i < n->nin; i++) in[i] = n->in[i] >= 0 ? pass_value(p, n->in[i])->tensor : NULL;
  int rc = graph_compute(n->op, in, n->nin, n->attrs, out);
  if (rc == 0) rc = remember(p, n, out, fold);
  free(in);
  return rc == 0;
}

static void make_constant(amp_graph *g, int32_t value, amp_tensor *t, struct graph_fold *fold, int which)
{
  graph_value *v = &g->values[value];
  v->info.kind = AMP_G_CONSTANT;
  v->info.tensor = t;
  v->info.node = -1;
  if (fold == NULL) return;
  v->fold = fold;
  v->fold_result = (uint8_t)which;
  graph_fold_retain(fold);
  g->folds = true;
}

int pass_constants(amp_graph *g, bool alone)
{
  graph_pass p;
  int rc = pass_open(&p, g);
  if (rc < 0) return rc;
  for (int k = 0; k < g->nnode; k++) {
    amp_tensor *out[AMP_MAX_OUT] = { NULL };
    amp_graph_node *n = &g->nodes[k];
    if (!foldable(&p, k, alone)) continue;
    struct graph_fold *fold = NULL;
    bool done = compute(&p, k, out, &fold);
    for (int i = 0; done && i < n->nout; i++) done = n->out[i] < 0 || out[i] != NULL;
    for (int i = 0; i < AMP_MAX_OUT; i++) {
      if (!done || i >= n->nout || n->out[i] < 0) {
        amp__free(out[i]);
        continue;
      }
      make_constant(g, n->out[i], out[i], fold, i);
    }
    graph_fold_free(fold);
    if (done) pass_kill(&p, k);
  }
  return pass_close(&p, rc);
}
