/*
** graph/run.c: runs a graph.
**
** Each node is a call of its row through amp__dispatch, in the order in which it was recorded, in its caller's region
** and grad mode where the function had none of its own. A value is given up after the node that reads it last, so that
** its memory is the next one's; what backward needs the tape holds. Values of a run live in that run alone, so threads
** share a graph.
*/
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "graph/graph.h"
#include "precision/float8.h"
#include "precision/precision.h"

enum { SMALL = 256 }; /* values that lie on the stack */

/* -- Inputs ---------------------------------------------------------------------- */

/* 'cpu', or 'cuda:2' */
static const char *device_text(int device, int index, char *room, size_t size)
{
  snprintf(room, size, device == AMP_CPU ? "%s" : "%s:%d", amp_device_name(device), index + 1);
  return room;
}

static int check_input(const amp_graph_value *v, const amp_tensor *t)
{
  if (t->dtype != v->dtype)
    return amp__fail(AMP_E_DTYPE, "input '%s' is %s, got %s", v->name, amp_dtype_name(v->dtype),
                     amp_dtype_name(t->dtype));
  if (t->device != v->device || t->device_index != v->device_index) {
    char wanted[24], got[24];
    return amp__fail(AMP_E_DEVICE, "input '%s' is on %s, got one on %s; move the graph or the input, with :to(device)",
                     v->name, device_text(v->device, v->device_index, wanted, sizeof wanted),
                     device_text(t->device, t->device_index, got, sizeof got));
  }
  if (t->ndim != v->ndim)
    return amp__fail(AMP_E_SHAPE, "input '%s' has %d dimensions (%s), got %d (%s)", v->name, v->ndim,
                     amp__shape_str(v->ndim, v->size), t->ndim, amp__shape_str(t->ndim, t->size));
  for (int d = 0; d < t->ndim; d++)
    if (t->size[d] != v->size[d] && !(v->free_dims >> d & 1))
      return amp__fail(AMP_E_SHAPE,
                       "input '%s': dimension %d has size %lld, got %lld (%s); dynamic makes a size free: "
                       "amp.graph.trace(net, {x}, {dynamic = {%d}})",
                       v->name, d + 1, (long long)v->size[d], (long long)t->size[d], amp__shape_str(t->ndim, t->size),
                       d + 1);
  return 0;
}

static int take_inputs(graph_run *run, const amp_ref *inputs, int n)
{
  const amp_graph *g = run->graph;
  int rc = 0, sizes = 0;
  for (int i = 0; i < n; i++) {
    const amp_graph_value *v = &g->values[g->inputs[i]].info;
    amp_tensor *t = inputs[i].t;
    if (t == NULL) return amp__fail_arg(AMP_E_ARGUMENT, i + 1, "input '%s' is a tensor that was freed", v->name);
    if ((rc = check_input(v, t)) < 0) return rc;
    for (int d = 0; d < t->ndim; d++)
      if (v->free_dims >> d & 1) run->size[sizes++] = t->size[d];
    run->value[g->inputs[i]] = t;
  }
  return 0;
}

/* -- Free sizes ------------------------------------------------------------------- */

static double size_value(const graph_run *run, const amp_graph_size *s)
{
  double above = s->numerator, below = s->denominator;
  for (int i = 0; i < run->graph->nfree; i++)
    for (int p = s->power[i]; p != 0; p += p > 0 ? -1 : 1) {
      if (p > 0) above *= (double)run->size[i];
      else below *= (double)run->size[i];
    }
  return above / below + s->more; /* in the order in which a script computes 1 / (a * b) */
}

/* The sum of those for one place from *next on, which goes beyond them. */
static double sum_of(const graph_run *run, int *next)
{
  const amp_graph_size *s = &run->graph->sizes[*next], *end = run->graph->sizes + run->graph->nsize;
  double sum = 0;
  for (const amp_graph_size *at = s; at < end && at->node == s->node && at->slot == s->slot; at++, ++*next)
    sum += size_value(run, at);
  return sum;
}

/* Name and dimension of free size i. */
static const char *free_size(const amp_graph *g, int i, int *dim)
{
  for (int k = 0; k < g->ninput; k++) {
    const amp_graph_value *v = &g->values[g->inputs[k]].info;
    for (*dim = 0; *dim < v->ndim; ++*dim)
      if ((v->free_dims >> *dim & 1) && i-- == 0) return v->name;
  }
  return "?";
}

static int fail_tie(const graph_run *run, const amp_graph_size *s, double value)
{
  const amp_graph *g = run->graph;
  int dim, other_dim, other = 0;
  while (other < g->nfree - 1 && s->power[other] == 0) other++;
  const char *name = free_size(g, s->slot, &dim), *other_name = free_size(g, other, &other_dim);
  return amp__fail(
      AMP_E_SHAPE,
      "input '%s': dimension %d has size %lld, and must have %.17g, which follows from dimension %d of '%s'", name,
      dim + 1, (long long)run->size[s->slot], value, other_dim + 1, other_name);
}

/* Numbers that follow sizes; sizes that must be others'. They come before those of nodes. */
static int set_numbers(graph_run *run, int *next)
{
  const amp_graph *g = run->graph;
  while (*next < g->nsize && g->sizes[*next].node < 0) {
    const amp_graph_size *s = &g->sizes[*next];
    double value = sum_of(run, next);
    if (s->node == -2) {
      if (value != (double)run->size[s->slot]) return fail_tie(run, s, value);
      continue;
    }
    amp_tensor *t = amp__number(value);
    if (t == NULL) return amp__S->err.code;
    if (run->value[s->slot] != g->values[s->slot].info.tensor) amp__free(run->value[s->slot]);
    run->value[s->slot] = t;
  }
  return 0;
}

/* The node's attributes for these sizes; NULL: error. */
static const amp_slot *attributes(const graph_run *run, int node, int *next, amp_slot *room)
{
  const amp_graph *g = run->graph;
  const amp_graph_node *n = &g->nodes[node];
  while (*next < g->nsize && g->sizes[*next].node < node) ++*next; /* of nodes that did not run one by one */
  if (*next >= g->nsize || g->sizes[*next].node != node) return n->attrs;
  memcpy(room, n->attrs, sizeof *room * (size_t)amp__ops[n->op].info.nslot);
  while (*next < g->nsize && g->sizes[*next].node == node) {
    const amp_graph_size *s = &g->sizes[*next];
    double value = sum_of(run, next);
    if (s->real) room[s->slot].f = value;
    else if (fabs(value - rint(value)) > 1e-6 || fabs(value) > 9e15 || value != value) {
      amp__fail(AMP_E_SHAPE, "node '%s': these sizes make %g of a number that must be whole", n->name, value);
      return NULL;
    } else room[s->slot].i = (int64_t)rint(value);
  }
  if (amp__check_attributes(&amp__ops[n->op], room) < 0) return NULL;
  return room;
}

/* -- Nodes ------------------------------------------------------------------------- */

static void enter_modes(amp_state *S, const amp_graph_node *n)
{
  if (n->grad >= 0) S->grad_mode = n->grad;
  for (int d = 0; d < 2; d++)
    if (n->regions >> d & 1) S->autocast[d] = n->autocast[d];
  if (n->regions) S->autocast_on = S->autocast[0].enabled || S->autocast[1].enabled;
}

/* May node k write its result over its first operand? It reads it last, nobody else has it, and nothing wants
** a gradient or watches. Elements, shape and dtype are then as they would be in memory of their own. */
static bool may_reuse(const graph_run *run, const amp_graph_node *n, int k, amp_tensor *const *operand)
{
  const amp_graph *g = run->graph;
  const amp_state *S = amp__S;
  if (n->op < 0 || n->flags || n->nin < 1 || n->in[0] < 0 || g->values[n->in[0]].last != k) return false;
  enum { BOTH = AMP_F_ELEMENTWISE | AMP_F_INPLACE };
  if ((amp__ops[n->op].info.flags & BOTH) != BOTH || S->autocast_on || amp__tracing() || amp__capturing
      || amp__observing())
    return false;
  amp_tensor *t = operand[0];
  const amp_graph_value *given = &g->values[n->in[0]].info, *made = &g->values[n->out[0]].info;
  if (given->kind != AMP_G_RESULT || t->refs != 1 || atomic_load_explicit(&t->storage->refs, memory_order_relaxed) != 1
      || t->dtype != made->dtype || !amp__is_float(t->dtype) || !(t->flags & AMP_T_DENSE) || amp__tracked(t)
      || t->numel == 0) /* there is nothing to save, and an expanded one would be refused */
    return false;
  for (int i = 1; i < n->nin; i++) {
    const amp_tensor *other = operand[i];
    if (other == NULL || (other->flags & AMP_T_NUMBER)) continue;
    if (other->dtype != t->dtype || other->ndim > t->ndim || (S->grad_mode && amp__tracked(other))) return false;
    for (int d = 0; d < other->ndim; d++)
      if (other->size[d] != 1 && other->size[d] != t->size[d + t->ndim - other->ndim]) return false;
    if (other->device != t->device
        || (other->numel == t->numel && memcmp(other->stride, t->stride, sizeof *t->stride * t->ndim) != 0))
      return false; /* the result would be laid out as both say */
  }
  return true;
}

static int run_node(graph_run *run, const amp_graph_node *n, int k, const amp_slot *attrs, amp_tensor **operand)
{
  amp_tensor *out[AMP_MAX_OUT] = { NULL };
  for (int i = 0; i < n->nin; i++) operand[i] = n->in[i] >= 0 ? run->value[n->in[i]] : NULL;
  if (may_reuse(run, n, k, operand)) {
    int status = amp__dispatch(n->op, AMP_INPLACE, operand, n->nin, NULL, attrs);
    if (status == 0) {
      run->value[n->out[0]] = operand[0];
      run->value[n->in[0]] = NULL;
    }
    return status;
  }
  if (n->op == AMP_G_DETACH) {
    amp_ref from = { operand[0] }, to = { NULL };
    int rc = amp_detach(amp__S, &to, &from);
    if (rc == 0) run->value[n->out[0]] = to.t;
    return rc;
  }
  if (n->flags & AMP_OUT) out[0] = run->value[n->out[0]];
  int nin = n->nin;
  if (!(amp__ops[n->op].info.flags & AMP_F_LIST)) /* a derivative counts absent operands at the end, too */
    while (nin < amp__ops[n->op].info.nin) operand[nin++] = NULL;
  int rc = amp__dispatch(n->op, (unsigned)n->flags, operand, nin, out, attrs);
  if (rc < 0) return rc;
  for (int i = n->flags ? 1 : 0; i < AMP_MAX_OUT; i++) {
    if (i < n->nout && n->out[i] >= 0) run->value[n->out[i]] = out[i];
    else amp__free(out[i]);
  }
  return 0;
}

int amp_graph_call(amp_state *S, const amp_graph *g, int node, const amp_ref *in, int nin, amp_ref *out)
{
  AMP_ENTER(S);
  if (g == NULL || node < 0 || node >= g->nnode) return amp__fail(AMP_E_INDEX, "the graph has no node %d", node);
  const amp_graph_node *n = &g->nodes[node];
  bool to = n->flags & AMP_OUT;
  if (nin != n->nin + to || nin > AMP_MAX_LIST)
    return amp__fail(AMP_E_ARGUMENT, "node '%s' has %d operands, got %d", n->name, n->nin + to, nin);
  amp_tensor *result[AMP_MAX_OUT] = { to ? in[nin - 1].t : NULL };
  amp_tensor **operand = malloc(sizeof *operand * (size_t)(nin + 1));
  if (operand == NULL) return amp__nomem(sizeof *operand * (size_t)nin);
  for (int i = 0; i < nin; i++) operand[i] = in[i].t;
  modes before = graph_modes(S);
  enter_modes(S, n);
  int rc;
  if (n->op == AMP_G_DETACH) {
    amp_ref from = { operand[0] }, made = { NULL };
    rc = amp_detach(S, &made, &from);
    result[0] = made.t;
  } else rc = amp__dispatch(n->op, (unsigned)n->flags, operand, n->nin, result, n->attrs);
  graph_set_modes(S, &before);
  free(operand);
  for (int i = 0; i < AMP_MAX_OUT; i++) out[i].t = rc < 0 || (i == 0 && n->flags) ? NULL : result[i];
  return rc;
}

static void give_up(graph_run *run, int value, int node)
{
  const graph_value *v = &run->graph->values[value];
  if (v->last != node || v->info.kind != AMP_G_RESULT) return;
  amp__free(run->value[value]);
  run->value[value] = NULL;
}

static void give_up_operands(graph_run *run, const amp_graph_node *n, int k)
{
  for (int i = 0; i < n->nin; i++)
    if (n->in[i] >= 0) give_up(run, n->in[i], k);
  for (int i = 0; i < n->nout; i++)
    if (n->out[i] >= 0) give_up(run, n->out[i], k);
}

static int fail_at(const amp_graph_node *n, int rc)
{
  amp_error *e = &amp__S->err;
  size_t length = strlen(e->message);
  snprintf(e->message + length, sizeof e->message - length, " (node '%s' of the graph)", n->name);
  return rc;
}

/* A product, whose kernel may do nodes after it too: *done of them. */
static int run_product(graph_run *run, struct graph_product *product, const amp_slot *attrs, amp_tensor **operand,
                       int *done)
{
  const amp_graph_node *n = &run->graph->nodes[run->at];
  struct amp_state_private *priv = amp__S->priv;
  amp_offer offer;
  graph_product_offer(run, product, &offer);
  priv->offer = offer.weight ? &offer : NULL;
  int rc = run_node(run, n, run->at, attrs, operand);
  priv->offer = NULL;
  graph_product_keep((amp_graph *)(intptr_t)run->graph, product, &offer);
  if (rc == 0) *done = graph_product_done(run, product, &offer);
  return rc;
}

/* Nodes run->at..to - 1; where one fails, run->at is it. */
static int run_nodes(graph_run *run, int to)
{
  const amp_graph *g = run->graph;
  amp_state *S = amp__S;
  modes before = graph_modes(S);
  amp_slot room[AMP_MAX_SLOT];
  amp_tensor *few[AMP_MAX_IN], **many = NULL;
  while (run->at < to) {
    int k = run->at, sizes = run->next, done = 0;
    const amp_graph_node *n = &g->nodes[k];
    struct graph_product *product = graph_product_at(g, k);
    const amp_slot *attrs = g->nsize ? attributes(run, k, &sizes, room) : n->attrs;
    if (n->nin > AMP_MAX_IN && (many = malloc(sizeof *many * (size_t)n->nin)) == NULL) attrs = NULL, amp__nomem(64);
    bool own = n->grad >= 0 || n->regions != 0;
    if (own) enter_modes(S, n);
    int rc = !attrs && n->op >= 0 ? S->err.code
             : product            ? run_product(run, product, attrs, many ? many : few, &done)
                                  : run_node(run, n, k, attrs, many ? many : few);
    if (own) graph_set_modes(S, &before);
    free(many);
    many = NULL;
    if (rc < 0) return fail_at(n, rc);
    run->next = sizes;
    run->at = k + 1 + done;
    for (int i = k; i <= k + done; i++) give_up_operands(run, &g->nodes[i], i);
  }
  return 0;
}

/* The nodes whose results may be kept: taken from the last run, or run and noted. After a pause some are there. */
static int run_kept(graph_run *run)
{
  const amp_graph *g = run->graph;
  struct graph_kept *kept = NULL;
  if (run->at == 0 && graph_kept_take(run, &kept)) {
    run->at = g->nkept;
    return 0;
  }
  int rc = run_nodes(run, g->nkept);
  if (rc == 0) graph_kept_note(run, kept);
  else graph_kept_free(kept);
  return rc;
}

/* All from run->at on. */
static int run_all(graph_run *run)
{
  const amp_graph *g = run->graph;
  int rc = run->at < g->nkept ? run_kept(run) : 0;
  for (int i = 0; rc == 0 && i < g->nchain; i++) {
    const graph_chain *chain = &g->chains[i];
    if (chain->first < run->at) continue; /* done before a pause */
    rc = run_nodes(run, chain->first);
    if (rc == 0 && run->at > chain->first) continue; /* a product's kernel has done some of it */
    if (rc == 0) rc = graph_run_chain(run, chain);
    if (rc <= 0) continue;
    for (int end = run->at + chain->count; run->at < end; run->at++) give_up_operands(run, &g->nodes[run->at], run->at);
    rc = 0;
  }
  return rc < 0 ? rc : run_nodes(run, g->nnode);
}

/* A graph that runs while another one is recorded becomes a part of it, with its parameters' names. */
static int tell_names(const amp_graph *g)
{
  int rc = 0;
  for (int i = 0; rc == 0 && i < g->nvalue; i++) {
    const amp_graph_value *v = &g->values[i].info;
    if (v->tensor && v->kind != AMP_G_NUMBER) rc = graph_know(v->tensor, v->kind, v->name);
  }
  return rc;
}

struct amp_graph_paused {
  graph_run run; /* its values are its own memory */
};

/* A run that lacks memory, to be gone on with: what was done is not done again. False: there is no memory for that
 * either. */
static bool keep_run(amp_graph_paused **paused, const graph_run *run)
{
  size_t bytes = sizeof *run->value * (size_t)(run->graph->nvalue + 1);
  amp_graph_paused *p = *paused;
  if (p == NULL) {
    p = malloc(sizeof *p);
    amp_tensor **value = malloc(bytes);
    if (p == NULL || value == NULL) {
      free(p);
      free(value);
      return false;
    }
    p->run = *run;
    memcpy(value, run->value, bytes - sizeof *value);
    p->run.value = value;
  }
  *paused = p;
  return true;
}

static void end_run(graph_run *run)
{
  const amp_graph *g = run->graph;
  for (int i = 0; i < g->nvalue; i++)
    if ((g->values[i].info.kind >= AMP_G_NUMBER || g->values[i].fold) && run->value[i] != g->values[i].info.tensor)
      amp__free(run->value[i]);
}

void amp_graph_drop(amp_graph_paused *paused)
{
  if (paused == NULL) return;
  end_run(&paused->run);
  free(paused->run.value);
  free(paused);
}

/* A graph whose function asked for its region, and is not known any more, is that of one region. */
static int check_region(const amp_graph *g)
{
  for (int d = 0; d < 2; d++) {
    bool on = amp__S->autocast_on && amp__S->autocast[d].enabled;
    int now = on ? amp__S->autocast[d].dtype : GRAPH_OFF;
    if (now == g->region[d]) continue;
    return amp__fail(AMP_E_UNSUPPORTED,
                     "the function of this graph asked for the region it was in: on %s it was %s, and this one is %s",
                     amp_device_name(d), g->region[d] == GRAPH_OFF ? "off" : amp_dtype_name(g->region[d]),
                     on ? amp_dtype_name(now) : "off");
  }
  return 0;
}

static int begin_run(graph_run *run, const amp_ref *inputs, int n)
{
  const amp_graph *g = run->graph;
  if (g->float8 && amp__S->autocast_depth == 0) amp__S->priv->region_epoch = amp__new_epoch();
  for (int i = 0; i < g->nvalue; i++) run->value[i] = g->values[i].info.tensor;
  int rc = amp_unlikely(g->asked) ? check_region(g) : 0;
  if (rc == 0) rc = take_inputs(run, inputs, n);
  if (rc == 0 && amp_unlikely(amp__tracing())) rc = tell_names(g);
  if (rc == 0 && g->folds) rc = graph_folds_take(run);
  if (rc == 0 && g->nsize) rc = set_numbers(run, &run->next);
  return rc;
}

static void give_outputs(const graph_run *run, amp_ref *outputs)
{
  for (int i = 0; i < run->graph->noutput; i++) {
    amp_tensor *t = run->value[run->graph->outputs[i]];
    amp__retain(t);
    outputs[i].t = t;
  }
}

static int check_call(const amp_graph *g, const amp_ref *inputs, int n, const amp_ref *outputs, int m)
{
  if (g == NULL) return amp__fail(AMP_E_STATE, "the graph is NULL");
  if (!g->finished) return amp__fail(AMP_E_STATE, "the graph is not finished");
  if (m != g->noutput)
    return amp__fail(AMP_E_ARGUMENT, "the graph has %d outputs, room for %d was given", g->noutput, m);
  if (n != g->ninput) return amp__fail(AMP_E_ARGUMENT, "the graph has %d inputs, got %d", g->ninput, n);
  if (n > 0 && inputs == NULL) return amp__fail(AMP_E_ARGUMENT, "the inputs are NULL, %d are expected", n);
  if (m > 0 && outputs == NULL) return amp__fail(AMP_E_ARGUMENT, "the outputs are NULL, room for %d is expected", m);
  return 0;
}

int amp_graph_run_on(amp_graph *g, const amp_ref *inputs, int n, amp_ref *outputs, int m, amp_graph_paused **paused)
{
  if (amp__S == NULL && AMP_ENTER(amp__hooks.thread_state()) == NULL) return AMP_E_MEMORY;
  int rc = check_call(g, inputs, n, outputs, m);
  if (rc < 0) return rc;
  amp_tensor *small[SMALL];
  graph_run own = { .graph = g, .value = small }, *run = &own;
  if (paused && *paused) {
    run = &(*paused)->run;
  } else {
    if (g->nvalue > SMALL && (own.value = malloc(sizeof *own.value * (size_t)g->nvalue)) == NULL)
      return amp__nomem(sizeof *own.value * (size_t)g->nvalue);
    rc = begin_run(run, inputs, n);
  }
  if (rc == 0) {
    rc = run_all(run);
    if (rc == AMP_E_MEMORY && paused && keep_run(paused, run)) {
      if (own.value != small) free(own.value);
      return rc;
    }
  }
  if (rc == 0) give_outputs(run, outputs);
  if (run != &own) {
    amp_graph_drop(*paused);
    *paused = NULL;
    return rc;
  }
  end_run(run);
  if (own.value != small) free(own.value);
  return rc;
}

int amp_graph_run(amp_graph *g, const amp_ref *inputs, int n, amp_ref *outputs, int m)
{
  int rc = amp_graph_run_on(g, inputs, n, outputs, m, NULL);
  if (rc < 0 && amp__S && amp__S->err.op[0] == 0) snprintf(amp__S->err.op, sizeof amp__S->err.op, "graph_run");
  return rc;
}
