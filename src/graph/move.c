/*
** graph/move.c: moves a graph to another device.
**
** The graph's own device is that of its first parameter, or, without one, of its first buffer, constant or input.
** What lies there goes to the new one, and so does what lies on any other GPU; what a graph of a GPU keeps on the CPU
** stays. Parameters and buffers keep their identity: they are a module's. Constants are the graph's own. Numbers in
** nodes that name a device follow.
*/
#include <stdlib.h>
#include "graph/graph.h"

static int device_of(const amp_graph_value *v) { return v->device * 256 + v->device_index; }

static int home_of(const amp_graph *g)
{
  static const uint8_t order[] = { AMP_G_PARAMETER, AMP_G_BUFFER, AMP_G_CONSTANT, AMP_G_INPUT, AMP_G_RESULT };
  for (size_t k = 0; k < sizeof order; k++)
    for (int i = 0; i < g->nvalue; i++)
      if (g->values[i].info.kind == order[k]) return device_of(&g->values[i].info);
  return AMP_CPU;
}

static int moved(int device, int home, int to) { return device == home || device >> 8 != AMP_CPU ? to : device; }

static void set_device(amp_graph_value *v, int device)
{
  v->device = (uint8_t)(device >> 8);
  v->device_index = (uint8_t)(device & 255);
}

/* What a value's tensor and its gradient become; the gradient's may be missing. */
typedef struct pending {
  amp_ref data, grad;
} pending;

static int copy_to(amp_tensor *t, int device, amp_ref *out)
{
  amp_tensor *made[AMP_MAX_OUT] = { NULL };
  amp_slot attrs[1] = { { .i = device } };
  amp_ref given = { t }, plain = { NULL };
  int rc = amp_detach(amp__S, &plain, &given);
  if (rc < 0) return rc;
  rc = amp__dispatch(AMP_OP_to_device, 0, &plain.t, 1, made, attrs);
  amp_release(&plain);
  out->t = made[0];
  return rc;
}

static int prepare(amp_tensor *t, int device, pending *p)
{
  amp_ref leaf = { t }, grad = { NULL };
  int rc = copy_to(t, device, &p->data);
  if (rc < 0 || !(t->flags & AMP_T_REQUIRES_GRAD) || !amp_grad_defined(&leaf)) return rc;
  if ((rc = amp_grad_get(amp__S, &grad, &leaf)) < 0 || grad.t == NULL) return rc;
  rc = copy_to(grad.t, device, &p->grad);
  amp_release(&grad);
  return rc;
}

static int commit(graph_value *value, pending *p)
{
  amp_graph_value *v = &value->info;
  amp_ref leaf = { v->tensor };
  int rc = 0;
  if (p->data.t == NULL) return 0;
  if (v->kind == AMP_G_CONSTANT) {
    graph_fold_free(value->fold);
    value->fold = NULL;
    p->data.t->flags |= v->tensor->flags & AMP_T_MASK;
    amp__free(v->tensor);
    v->tensor = p->data.t;
    p->data.t = NULL;
    return 0;
  }
  if (v->tensor->device == p->data.t->device && v->tensor->device_index == p->data.t->device_index) return 0;
  if (p->grad.t) rc = amp_grad_set(amp__S, &leaf, NULL);
  if (rc == 0) rc = amp_set_data(amp__S, &leaf, &p->data);
  if (rc == 0 && p->grad.t) rc = amp_grad_set(amp__S, &leaf, &p->grad);
  return rc;
}

static int move_tensors(amp_graph *g, int home, int to)
{
  pending *all = calloc((size_t)g->nvalue + 1, sizeof *all);
  int rc = 0;
  if (all == NULL) return amp__nomem(sizeof *all * (size_t)g->nvalue);
  for (int i = 0; rc == 0 && i < g->nvalue; i++) {
    const amp_graph_value *v = &g->values[i].info;
    int device = moved(device_of(v), home, to);
    if (v->tensor && v->kind != AMP_G_NUMBER && v->tensor->device * 256 + v->tensor->device_index != device)
      rc = prepare(v->tensor, device, &all[i]);
  }
  for (int i = 0; rc == 0 && i < g->nvalue; i++) rc = commit(&g->values[i], &all[i]);
  for (int i = 0; i < g->nvalue; i++) {
    amp_release(&all[i].data);
    amp_release(&all[i].grad);
  }
  free(all);
  return rc;
}

/* A node that makes a tensor takes no default of the state that runs it, but what it took when it was recorded. */
static void own_defaults(const amp_graph *g, amp_graph_node *n)
{
  const amp_op_desc *d = n->op >= 0 ? &amp__ops[n->op] : NULL;
  amp_attribute a = { 0 };
  if (d == NULL || n->nout == 0 || n->out[0] < 0 || n->flags) return;
  amp_slot *attrs = (amp_slot *)(intptr_t)n->attrs;
  const amp_graph_value *made = &g->values[n->out[0]].info;
  while (amp__next_attribute(d, &a)) {
    if (attrs[a.slot].i != AMP_NONE) continue;
    if (a.type == 'v') attrs[a.slot].i = device_of(made);
    else if (a.type == 't' && (d->info.flags & AMP_F_CREATE)) attrs[a.slot].i = made->dtype;
  }
}

static void move_node(amp_graph_node *n, int home, int to)
{
  amp_attribute a = { 0 };
  amp_slot *attrs = (amp_slot *)(intptr_t)n->attrs;
  while (n->op >= 0 && amp__next_attribute(&amp__ops[n->op], &a))
    if (a.type == 'v' && attrs[a.slot].i != AMP_NONE) attrs[a.slot].i = moved((int)attrs[a.slot].i, home, to);
}

int graph_place(amp_graph *g, int device)
{
  int home = home_of(g), rc = move_tensors(g, home, device);
  if (rc < 0) return rc;
  for (int k = 0; k < g->nnode; k++) {
    own_defaults(g, &g->nodes[k]);
    move_node(&g->nodes[k], home, device);
  }
  for (int i = 0; i < g->nvalue; i++)
    if (g->values[i].info.kind != AMP_G_NUMBER)
      set_device(&g->values[i].info, moved(device_of(&g->values[i].info), home, device));
  const bool passed = g->nkept > 0 || g->nchain > 0;
  graph_forget(g);
  return passed ? graph_find(g) : 0;
}

int amp_graph_to(amp_state *S, amp_graph *g, int device)
{
  AMP_ENTER(S);
  int type = device >> 8, index = device & 255;
  if (device < 0 || type >= AMP_DEVICE_COUNT || (type == AMP_CPU && index > 0) || index >= amp_device_available(type))
    return amp__fail(AMP_E_DEVICE, "device %s:%d is not there: %s", amp_device_name(type), index + 1,
                     amp_device_reason(type));
  if (amp__trace_refuse("another graph moves to a device", NULL) < 0) return S->err.code;
  amp__plain quiet = amp__plain_begin();
  int rc = graph_place(g, device);
  amp__plain_end(quiet);
  return rc;
}
