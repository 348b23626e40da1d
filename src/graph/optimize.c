/*
** graph/optimize.c: the passes in their order.
*/
#include "graph/pass.h"

int amp_graph_optimize(amp_state *S, amp_graph *g, int passes)
{
  AMP_ENTER(S);
  if (g == NULL || !g->finished) return amp__fail(AMP_E_STATE, "the graph is not finished");
  bool anywhere = (passes & AMP_G_ANYWHERE) != 0, region = (passes & AMP_G_REGION) != 0;
  int rc = 0;
  graph_forget(g);
  g->lean = (passes & AMP_G_LEAN) != 0;
  rc = pass_made(g);
  if (rc == 0 && (passes & AMP_G_DEAD)) rc = pass_dead(g);
  if (rc == 0 && (passes & AMP_G_COMMON)) rc = pass_common(g);
  if (rc == 0 && (passes & AMP_G_CONSTANTS)) rc = pass_constants(g, region);
  if (rc == 0 && (passes & AMP_G_FOLD)) rc = pass_fold(g);
  if (rc == 0 && (passes & AMP_G_JOINS)) rc = pass_join(g, anywhere, region);
  if (rc == 0 && (passes & AMP_G_DEAD)) rc = pass_dead(g);
  if (rc == 0 && (passes & AMP_G_LAYOUT) && region && !S->grad_mode) rc = pass_layout(g);
  if (rc == 0 && (passes & (AMP_G_CONSTANTS | AMP_G_FOLD))) rc = pass_kept(g);
  if (rc == 0 && (passes & AMP_G_CHAINS)) rc = pass_chains(g, true);
  if (rc == 0) rc = graph_products_find(g);
  return rc;
}
