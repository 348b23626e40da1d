/*
** graph/product.c: what a run offers the kernels of products (base/base.h: amp_offer). Where no gradient is wanted and
** the weight is one that the graph holds, a kernel may keep it in a form of its own, which the graph has until the
** weight changes; what is added to the product and nothing else may be added by its kernel. A kernel that knows nothing
** of it does the product, and the addition runs. (A ReLU stays a node: libraries lose NaN in theirs.)
*/
#include <stdlib.h>
#include "base/locks.h"
#include "graph/graph.h"

/* Graphs whose products keep something; under the lock */
static amp_graph *keepers;

static void list(amp_graph *g)
{
  if (g->listed) return;
  g->before = NULL;
  g->after = keepers;
  if (keepers) keepers->before = g;
  keepers = g;
  g->listed = true;
}

static void unlist(amp_graph *g)
{
  if (!g->listed) return;
  if (g->before) g->before->after = g->after;
  else keepers = g->after;
  if (g->after) g->after->before = g->before;
  g->listed = false;
}

/* One form that some graph keeps, NULL: there is none */
static amp_tensor *take_any(void)
{
  amp_tensor *packed = NULL;
  amp__lock(AMP_LOCK_GRAPHS);
  while (keepers && packed == NULL) {
    for (int i = 0; i < keepers->nproduct && packed == NULL; i++) {
      packed = keepers->products[i].packed;
      keepers->products[i].packed = NULL;
    }
    if (packed == NULL) unlist(keepers);
  }
  amp__unlock(AMP_LOCK_GRAPHS);
  return packed;
}

int graph_products_shed(int device)
{
  int count = 0;
  if (device != AMP_CPU) return 0;
  for (amp_tensor *t; (t = take_any()) != NULL; count++) amp__free(t);
  return count;
}

void graph_products_free(amp_graph *g)
{
  amp__lock(AMP_LOCK_GRAPHS);
  unlist(g);
  amp__unlock(AMP_LOCK_GRAPHS);
  for (int i = 0; i < g->nproduct; i++) amp__free(g->products[i].packed);
  free(g->products);
  g->products = NULL;
  g->nproduct = 0;
}

/* -- Running ---------------------------------------------------------------------------- */

struct graph_product *graph_product_at(const amp_graph *g, int node)
{
  int low = 0, high = g->nproduct;
  const amp_state *S = amp__S;
  if (high == 0 || g->lean || S->grad_mode || S->autocast_on || amp__tracing() || amp__capturing || amp__observing())
    return NULL;
  while (low < high) {
    int middle = (low + high) / 2;
    if (g->products[middle].node < node) low = middle + 1;
    else high = middle;
  }
  return low < g->nproduct && g->products[low].node == node ? &g->products[low] : NULL;
}

/* The weight lasts over runs: the graph holds it, or keeps it. */
static bool lasts(const amp_graph *g, int32_t value)
{
  const graph_value *v = &g->values[value];
  return v->info.tensor != NULL || (v->info.kind == AMP_G_RESULT && v->info.node < g->nkept);
}

static bool same_weight(const struct graph_product *product, const amp_tensor *w)
{
  return product->packed && product->id == w->id && product->data == w->storage->data
         && product->version == amp__version(w);
}

void graph_product_offer(const graph_run *run, struct graph_product *product, amp_offer *offer)
{
  const amp_graph_node *n = &run->graph->nodes[product->node];
  amp_tensor *weight = run->value[n->in[1]];
  *offer = (amp_offer){ 0 };
  if (weight == NULL || !lasts(run->graph, n->in[1])) return;
  amp__refresh(weight);
  offer->weight = weight;
  offer->added = product->added >= 0 ? run->value[product->added] : NULL;
  amp__lock(AMP_LOCK_GRAPHS);
  if (same_weight(product, weight)) {
    offer->packed = product->packed;
    offer->form = product->form;
    amp__retain(offer->packed);
  }
  amp__unlock(AMP_LOCK_GRAPHS);
}

void graph_product_keep(amp_graph *g, struct graph_product *product, const amp_offer *offer)
{
  amp_tensor *before = offer->packed;
  if (before == NULL) return;
  const amp_tensor *weight = offer->weight;
  amp__lock(AMP_LOCK_GRAPHS);
  if (before != product->packed) {
    before = product->packed;
    list(g);
    product->packed = offer->packed;
    product->form = offer->form;
    product->id = weight->id;
    product->data = weight->storage->data;
    product->version = amp__version(weight);
  }
  amp__unlock(AMP_LOCK_GRAPHS);
  amp__free(before);
}

int graph_product_done(graph_run *run, const struct graph_product *product, const amp_offer *offer)
{
  const amp_graph *g = run->graph;
  if (!offer->done) return 0;
  int32_t from = g->nodes[product->node].out[0], to = g->nodes[product->node + 1].out[0];
  run->value[to] = run->value[from];
  run->value[from] = NULL;
  return 1;
}
