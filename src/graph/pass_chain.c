/*
** graph/pass_chain.c: which nodes' results are kept between runs, and which elementwise nodes run together. Neither
** changes a node; they come to stand next to one another.
*/
#include <stdlib.h>
#include "graph/pass.h"

/* -- Kept results ------------------------------------------------------------------------ */

int pass_kept(amp_graph *g)
{
  graph_pass p;
  int rc = pass_open(&p, g), count = 0;
  if (rc < 0) return rc;
  bool *held = pass_held(&p);
  if (held == NULL) return pass_close(&p, AMP_E_MEMORY);
  for (int k = 0; k < g->nnode; k++) {
    const amp_graph_node *n = &g->nodes[k];
    bool all = n->nout > 0;
    for (int i = 0; all && i < n->nout; i++) all = n->out[i] < 0 || held[n->out[i]];
    if (!all) continue;
    p.place[k] -= g->nnode;
    p.changes++;
    count++;
  }
  free(held);
  rc = pass_close(&p, rc);
  if (rc == 0) g->nkept = count;
  return rc;
}

/* Nodes from the first on that are as pass_kept would put them. */
static int count_kept(amp_graph *g)
{
  graph_pass p;
  int rc = pass_open(&p, g), count = 0;
  if (rc < 0) return rc;
  bool *held = pass_held(&p);
  if (held == NULL) return pass_close(&p, AMP_E_MEMORY);
  for (bool all = true; all && count < g->nnode; count += all) {
    const amp_graph_node *n = &g->nodes[count];
    all = n->nout > 0;
    for (int i = 0; all && i < n->nout; i++) all = n->out[i] < 0 || held[n->out[i]];
  }
  free(held);
  rc = pass_close(&p, 0);
  return rc < 0 ? rc : count;
}

int graph_find(amp_graph *g)
{
  int count = count_kept(g);
  if (count < 0) return count;
  g->nkept = count;
  int rc = pass_chains(g, false);
  return rc < 0 ? rc : graph_products_find(g);
}

/* -- Chains --------------------------------------------------------------------------------- */

typedef struct chain {
  int node[CHAIN_MOST]; /* node[0] is the last to run */
  int count;
} chain;

/* Of any size and dtype: what a device does with several rows in one launch is its own matter. */
static bool on_device(const graph_pass *p, const amp_graph_node *n, const amp_graph_value *result)
{
  const amp_op_desc *d = pass_row(n);
  if (amp__devices[result->device].chain == NULL) return false;
  if (!(d->info.flags & AMP_F_ELEMENTWISE) && !amp__row_is(d, AMP_R_CAST)) return false;
  if ((d->info.flags & AMP_F_PRIVATE) && d->bwd == NULL) return false; /* for derivatives alone */
  for (int i = 0; i < n->nin; i++) {
    const amp_graph_value *v = n->in[i] >= 0 ? pass_value(p, n->in[i]) : result;
    bool there = v->device == result->device && v->device_index == result->device_index;
    if (!there && (v->device != AMP_CPU || v->ndim > 0)) return false;
  }
  return true;
}

/* A row whose kernel works element by element and can't fail on what shape rules let pass. */
static bool elementwise(const graph_pass *p, int k, const uint8_t *taken)
{
  const amp_graph_node *n = &p->graph->nodes[k];
  const amp_op_desc *d = pass_row(n);
  if (d == NULL || taken[k] || k < p->graph->nkept || n->flags || n->regions || n->nout != 1 || n->out[0] < 0)
    return false;
  const amp_graph_value *result = pass_value(p, n->out[0]);
  int64_t elements = 1;
  for (int i = 0; i < result->ndim; i++) elements *= result->size[i];
  if (p->sized[k] || n->nin > CHAIN_OPERANDS || result->ndim < 1) return false;
  if ((d->info.flags & (AMP_F_LIST | AMP_F_RANDOM)) || d->front) return false;
  if (result->device != AMP_CPU) return on_device(p, n, result);
  if (!(d->info.flags & AMP_F_ELEMENTWISE) || (d->info.flags & AMP_F_PRIVATE)) return false;
  if (elements < CHAIN_LEAST && p->graph->nfree == 0) return false;
  if (!amp__is_float(result->dtype) && result->dtype != AMP_BOOL) return false;
  for (int i = 0; i < n->nin; i++)
    if (n->in[i] >= 0 && pass_value(p, n->in[i])->device != AMP_CPU) return false;
  return true;
}

static bool same_shape(const amp_graph_value *a, const amp_graph_value *b)
{
  return a->ndim == b->ndim && memcmp(a->size, b->size, sizeof *a->size * a->ndim) == 0;
}

static bool in_chain(const chain *c, int k)
{
  for (int i = 0; i < c->count; i++)
    if (c->node[i] == k) return true;
  return false;
}

/* Node k gives its result to nodes of the chain alone, and may as well run where the last of them does. */
static bool belongs(const graph_pass *p, const chain *c, int k)
{
  const amp_graph_node *n = &p->graph->nodes[k], *last = &p->graph->nodes[c->node[0]];
  int32_t value = n->out[0];
  if (!same_shape(pass_value(p, value), pass_value(p, last->out[0])) || !pass_same_modes(n, last)
      || pass_class(p, value, CLASS_WRITTEN) || pass_is_output(p, value))
    return false;
  for (int i = p->user_from[value]; i < p->user_from[value + 1]; i++)
    if (!in_chain(c, p->user[i])) return false;
  for (int i = 0; i < n->nin; i++)
    if (n->in[i] >= 0 && !pass_unwritten(p, n->in[i], k, c->node[0])) return false;
  return true;
}

enum { GROWING = 2 }; /* operands that count as from outside until the nodes that make them have joined */
/* Does a launch take as many operands from outside as the chain has? Tensors once each, values of the host each time.
 */
static bool few_reads(const graph_pass *p, const chain *c, int most)
{
  int32_t seen[CHAIN_READS + GROWING];
  int tensors = 0, values = 0;
  for (int i = 0; i < c->count; i++) {
    const amp_graph_node *n = &p->graph->nodes[c->node[i]];
    for (int o = 0; o < n->nin; o++) {
      int k = 0;
      if (n->in[o] < 0 || in_chain(c, pass_value(p, n->in[o])->node)) continue;
      if (pass_value(p, n->in[o])->device == AMP_CPU) {
        values++;
        continue;
      }
      while (k < tensors && seen[k] != n->in[o]) k++;
      if (k == most) return false;
      seen[k] = n->in[o];
      if (k == tensors) tensors++;
    }
  }
  return values <= CHAIN_VALUES;
}

static bool grow(const graph_pass *p, chain *c, const uint8_t *taken)
{
  int count = c->count;
  for (int i = 0; i < c->count; i++) {
    const amp_graph_node *n = &p->graph->nodes[c->node[i]];
    for (int o = 0; o < n->nin && c->count < CHAIN_MOST; o++) {
      int maker = n->in[o] >= 0 ? pass_value(p, n->in[o])->node : -1;
      if (maker < 0 || in_chain(c, maker) || !elementwise(p, maker, taken) || !belongs(p, c, maker)) continue;
      c->node[c->count++] = maker;
      if (pass_value(p, n->in[o])->device != AMP_CPU && !few_reads(p, c, CHAIN_READS + GROWING)) c->count--;
    }
  }
  return c->count > count;
}

/* The nodes of a chain come to stand before its last one, in the order they have. */
static void move_chain(graph_pass *p, const chain *c, uint8_t *taken)
{
  for (int i = 0; i < c->count; i++) {
    taken[c->node[i]] = 1;
    p->place[c->node[i]] = c->node[0];
  }
  p->changes++;
}

static int by_first(const void *a, const void *b)
{
  return ((const graph_chain *)a)->first - ((const graph_chain *)b)->first;
}

static bool adjacent(const chain *c)
{
  for (int i = 1; i < c->count; i++)
    if (c->node[i] <= c->node[0] - c->count) return false;
  return true;
}

int pass_chains(amp_graph *g, bool move)
{
  graph_pass p;
  int rc = pass_open(&p, g), n = 0, kept = g->nkept;
  if (rc < 0) return rc;
  uint8_t *taken = calloc((size_t)g->nnode + 1, 1);
  int32_t *moved = malloc(sizeof *moved * (size_t)(g->nnode + 1));
  graph_chain *chains = malloc(sizeof *chains * (size_t)(g->nnode + 1));
  if (taken == NULL || moved == NULL || chains == NULL) rc = amp__nomem(sizeof *chains * (size_t)g->nnode);
  for (int k = p.nnode - 1; rc == 0 && k >= 0; k--) {
    chain c = { { k }, 1 };
    if (!elementwise(&p, k, taken)) continue;
    while (grow(&p, &c, taken)) continue;
    if (pass_value(&p, p.graph->nodes[k].out[0])->device != AMP_CPU)
      while (c.count > 1 && !few_reads(&p, &c, CHAIN_READS)) c.count--; /* the last to join reads for nobody else */
    if (c.count < 2 || (!move && !adjacent(&c))) continue;
    move_chain(&p, &c, taken);
    chains[n++] = (graph_chain){ k, c.count };
  }
  p.moved = moved;
  rc = pass_close(&p, rc);
  if (rc == 0 && n > 0) {
    for (int i = 0; i < n; i++) chains[i].first = moved[chains[i].first] - chains[i].count + 1;
    qsort(chains, (size_t)n, sizeof *chains, by_first);
    g->chains = chains;
    g->nchain = n;
    chains = NULL;
  }
  g->nkept = kept;
  free(taken);
  free(moved);
  free(chains);
  return rc;
}
