/*
** graph/pass_product.c: finds the products of a graph, and what is added to each: graph/product.c has them run so.
*/
#include <stdlib.h>
#include "graph/pass.h"

static bool is_product(const amp_graph_node *n)
{
  switch (n->op) {
  case AMP_OP_conv1d:
  case AMP_OP_conv2d:
  case AMP_OP_conv3d:
  case AMP_OP_linear:
  case AMP_OP_linear_act: return n->flags == 0 && n->nin >= 2 && n->in[1] >= 0 && n->out[0] >= 0;
  default: return false;
  }
}

static bool same_kind(const amp_graph_value *a, const amp_graph_value *b)
{
  return a->dtype == b->dtype && a->device == b->device && a->ndim == b->ndim
         && memcmp(a->size, b->size, sizeof *a->size * a->ndim) == 0;
}

/* Node k alone reads the value, which the node before it made. */
static bool follows(const graph_pass *p, int k, int32_t value)
{
  const amp_graph *g = p->graph;
  return k < g->nnode && g->nodes[k].flags == 0 && pass_only_user(p, value, k) && !pass_class(p, value, CLASS_WRITTEN)
         && pass_same_modes(&g->nodes[k], &g->nodes[k - 1]);
}

/* What the node after the product adds to it */
static int32_t find_added(const graph_pass *p, int product)
{
  const amp_graph *g = p->graph;
  const amp_graph_node *n = &g->nodes[product], *next = n + 1;
  int32_t value = n->out[0];
  if (n->op == AMP_OP_linear || n->op == AMP_OP_linear_act || !follows(p, product + 1, value)) return -1;
  if (next->op != AMP_OP_add || next->in[0] == next->in[1]) return -1;
  int32_t other = next->in[next->in[0] == value];
  if (!same_kind(pass_value(p, value), pass_value(p, other)) || pass_value(p, other)->kind == AMP_G_NUMBER) return -1;
  return other;
}

int graph_products_find(amp_graph *g)
{
  graph_pass p;
  int count = 0, rc = 0;
  graph_products_free(g);
  for (int k = 0; k < g->nnode; k++) count += is_product(&g->nodes[k]);
  if (count == 0 || (rc = pass_open(&p, g)) < 0) return rc;
  g->products = calloc((size_t)count, sizeof *g->products);
  if (g->products == NULL) return pass_close(&p, amp__nomem(sizeof *g->products * (size_t)count));
  for (int k = 0; k < g->nnode; k++) {
    if (!is_product(&g->nodes[k]) || pass_value(&p, g->nodes[k].in[1])->device != AMP_CPU) continue;
    struct graph_product *product = &g->products[g->nproduct++];
    *product = (struct graph_product){ .node = k, .added = find_added(&p, k) };
  }
  return pass_close(&p, 0);
}
