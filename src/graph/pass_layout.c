/*
** graph/pass_layout.c: convolutions on a CPU with channels last, from the first one to where a node, or the caller, may
** ask how the data lies. Their kernels are quicker so by the moves between layouts that they save. Numbers are the
** same; what is not a convolution, pooling, batch norm or elementwise gets contiguous data, as do the graph's outputs.
** For graphs that run without gradients alone: backward is no quicker.
*/
#include <stdlib.h>
#include "graph/pass.h"

enum { CONVOLUTIONS = 4, CHANNELS = 16, PRODUCT = 1000000 /* multiplications */ };

typedef struct layout {
  graph_pass *pass;
  uint8_t *last;           /* [nvalue] may lie with channels last */
  int32_t *turned, *plain; /* [nvalue] the value with channels last, contiguous; -1: not made */
  int rc;
} layout;

/* Is it a convolution of batches in floats, without anything that changes from run to run? */
static bool is_convolution(const graph_pass *p, int k)
{
  const amp_graph_node *n = &p->graph->nodes[k];
  if (n->op != AMP_OP_conv2d || n->flags || n->regions || p->dead[k] || n->in[0] >= p->nvalue) return false;
  const amp_graph_value *x = pass_value(p, n->in[0]), *y = pass_value(p, n->out[0]);
  return x->device == AMP_CPU && x->ndim == 4 && y->ndim == 4 && (y->dtype == AMP_FLOAT32 || y->dtype == AMP_BFLOAT16)
         && x->dtype == y->dtype && AMP_ARGS(n, conv2d)->groups == 1;
}

/* Worth it: large ones, of some channels */
static bool is_large(const graph_pass *p, int k)
{
  const amp_graph_node *n = &p->graph->nodes[k];
  const amp_graph_value *w = pass_value(p, n->in[1]), *y = pass_value(p, n->out[0]);
  double each = (double)(w->size[1] * w->size[2] * w->size[3]);
  return w->size[0] >= CHANNELS && w->size[1] >= CHANNELS
         && each * (double)(y->size[0] * y->size[1] * y->size[2] * y->size[3]) >= PRODUCT;
}

/* Takes any layout, and gives the one it takes or a contiguous one. */
static bool takes_any(const graph_pass *p, int k)
{
  const amp_graph_node *n = &p->graph->nodes[k];
  const amp_op_desc *d = pass_row(n);
  if (d == NULL || n->flags) return false;
  switch (n->op) {
  case AMP_OP_batch_norm:
  case AMP_OP_batch_norm_act:
  case AMP_OP_max_pool2d:
  case AMP_OP_avg_pool2d:
  case AMP_OP_adaptive_avg_pool2d:
  case AMP_OP_mean: return true;
  default:
    return (d->info.flags & AMP_F_ELEMENTWISE) && !(d->info.flags & (AMP_F_PRIVATE | AMP_F_LIST | AMP_F_RANDOM))
           && !d->front;
  }
}

/* Which values may lie with channels last, true; false: one of them is written, or there is too little to gain. */
static bool mark(const layout *l)
{
  const graph_pass *p = l->pass;
  int large = 0;
  for (int k = 0; k < p->nnode; k++) {
    const amp_graph_node *n = &p->graph->nodes[k];
    bool convolution = is_convolution(p, k), reads = convolution;
    if (p->dead[k]) continue;
    large += convolution && is_large(p, k);
    if (convolution && pass_class(p, n->in[0], CLASS_WRITTEN)) return false;
    for (int i = 0; i < n->nin; i++) reads = reads || (n->in[i] >= 0 && l->last[n->in[i]]);
    if (!reads || !(convolution || takes_any(p, k))) continue;
    for (int i = 0; i < n->nout; i++) {
      if (n->out[i] < 0 || pass_value(p, n->out[i])->ndim != 4) continue;
      if (pass_class(p, n->out[i], CLASS_WRITTEN)) return false;
      l->last[n->out[i]] = 1;
    }
  }
  return large >= CONVOLUTIONS;
}

/* The value in a layout (a word of memory_format), made before node k */
static int32_t laid_out(layout *l, int32_t *made, int32_t value, int k, int word)
{
  graph_pass *p = l->pass;
  amp_slot attrs[AMP_MAX_SLOT] = { { 0 } };
  if (made[value] >= 0) return made[value];
  ((args_contiguous *)attrs)->memory_format = word;
  amp_graph_value result = *pass_value(p, value);
  int last = k < p->nnode ? k : p->nnode - 1;
  int32_t to = pass_add(p, AMP_OP_contiguous, &value, 1, attrs, k - 0.5, last, &result);
  if (to < 0) l->rc = to;
  else made[value] = to;
  return to;
}

static void turn_operand(layout *l, int k, int i)
{
  amp_graph_node *n = &l->pass->graph->nodes[k];
  int32_t value = n->in[i], to = -1;
  if (value < 0 || value >= l->pass->nvalue) return;
  if (is_convolution(l->pass, k)) {
    if (i == 0 && !l->last[value]) to = laid_out(l, l->turned, value, k, CONTIGUOUS_MEMORY_FORMAT_CHANNELS_LAST);
    else if (i > 0 && l->last[value]) to = laid_out(l, l->plain, value, k, CONTIGUOUS_MEMORY_FORMAT_CONTIGUOUS);
  } else if (l->last[value] && !takes_any(l->pass, k))
    to = laid_out(l, l->plain, value, k, CONTIGUOUS_MEMORY_FORMAT_CONTIGUOUS);
  if (to < 0) return;
  ((int32_t *)(intptr_t)l->pass->graph->nodes[k].in)[i] = to; /* nodes may have moved */
}

static void turn(layout *l)
{
  amp_graph *g = l->pass->graph;
  for (int k = 0; k < l->pass->nnode && l->rc == 0; k++)
    for (int i = 0; i < g->nodes[k].nin && l->rc == 0 && !l->pass->dead[k]; i++) turn_operand(l, k, i);
  for (int i = 0; i < g->noutput && l->rc == 0; i++) {
    int32_t value = g->outputs[i];
    if (value < l->pass->nvalue && l->last[value])
      value = laid_out(l, l->plain, value, l->pass->nnode, CONTIGUOUS_MEMORY_FORMAT_CONTIGUOUS);
    if (l->rc == 0) g->outputs[i] = value;
  }
}

int pass_layout(amp_graph *g)
{
  graph_pass p;
  int rc = pass_open(&p, g);
  if (rc < 0) return rc;
  size_t room = (size_t)g->nvalue + 1;
  layout l = { &p, calloc(room, 1), malloc(sizeof(int32_t) * room), malloc(sizeof(int32_t) * room), 0 };
  if (l.last == NULL || l.turned == NULL || l.plain == NULL) l.rc = amp__nomem(room);
  else {
    memset(l.turned, -1, sizeof(int32_t) * room);
    memset(l.plain, -1, sizeof(int32_t) * room);
    if (g->nfree == 0 && mark(&l)) turn(&l);
  }
  free(l.last);
  free(l.turned);
  free(l.plain);
  return pass_close(&p, l.rc);
}
