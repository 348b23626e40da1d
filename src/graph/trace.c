/*
** graph/trace.c: records what a state does.
**
** The hook stands where every op passes (dispatch_slow); an op that another one runs is not noted: a composite is one
** node, and its parts run again with it. Tensors are known by their ids, which are never used twice, so nothing is kept
** alive but what the graph refers to. A tensor that comes from outside is a parameter where it requires grad, else a
** constant, unless amp_graph_know named it before.
**
** What can't be in a graph (a value read by the host, a backward, a step) fails at its call. Calls that failed leave no
** node.
*/
#include <stdio.h>
#include <stdlib.h>
#include "graph/graph.h"

enum { CALLERS = 2 }; /* grad_mode and a region's `cache`, both true, as they are until something inside sets them */

/* value of each tensor id: open addressing, 0 is no id */
typedef struct id_map {
  int64_t *ids;
  int32_t *values;
  int count, room;
} id_map;

struct amp_trace {
  amp_graph *graph;
  id_map map;
  int64_t first; /* tensors with greater ids were made since the beginning */
  int depth;     /* ops that run in one another */
  bool own;      /* the next node is called as the prefix says */
  char prefix[512];
  modes outer, inner; /* of the state: before and after, while it is suspended */
};

static int32_t *value_of(id_map *map, int64_t id)
{
  uint64_t at = (uint64_t)id * 0x9e3779b97f4a7c15u >> 32 & (uint64_t)(map->room - 1);
  while (map->ids[at] && map->ids[at] != id) at = (at + 1) & (uint64_t)(map->room - 1);
  map->ids[at] = id;
  return &map->values[at];
}

static int32_t look_up(const id_map *map, int64_t id)
{
  uint64_t at = (uint64_t)id * 0x9e3779b97f4a7c15u >> 32 & (uint64_t)(map->room - 1);
  while (map->ids[at] && map->ids[at] != id) at = (at + 1) & (uint64_t)(map->room - 1);
  return map->ids[at] ? map->values[at] : -1;
}

static int map_room(id_map *map, int room)
{
  id_map wider = { calloc((size_t)room, sizeof *wider.ids), malloc(sizeof *wider.values * (size_t)room), 0, room };
  if (wider.ids == NULL || wider.values == NULL) {
    free(wider.ids);
    free(wider.values);
    return amp__nomem(sizeof *wider.ids * (size_t)room);
  }
  for (int i = 0; i < map->room; i++)
    if (map->ids[i]) *value_of(&wider, map->ids[i]) = map->values[i];
  wider.count = map->count;
  free(map->ids);
  free(map->values);
  *map = wider;
  return 0;
}

static int map_put(id_map *map, int64_t id, int32_t value)
{
  int rc = map->count * 2 >= map->room ? map_room(map, map->room * 2) : 0;
  if (rc < 0) return rc;
  *value_of(map, id) = value;
  map->count++;
  return 0;
}

/* -- Values -------------------------------------------------------------------- */

static amp_graph_value describe(const amp_tensor *t, int kind, const char *name)
{
  amp_graph_value v = { .name = name, .node = -1, .kind = (uint8_t)kind };
  v.dtype = t->dtype;
  v.ndim = t->ndim;
  v.device = t->device;
  v.device_index = t->device_index;
  memcpy(v.size, t->size, sizeof(int64_t) * t->ndim);
  return v;
}

static int enter(struct amp_trace *trace, amp_tensor *t, int kind, const char *name)
{
  amp_graph_value v = describe(t, kind, name);
  if (kind != AMP_G_INPUT) v.tensor = t;
  int made = graph_add_value(trace->graph, &v);
  if (made < 0) return made;
  trace->graph->values[made].version = t->storage->version;
  int rc = map_put(&trace->map, t->id, made);
  return rc < 0 ? rc : made;
}

/* The value that stands for an operand. */
static int value_for(struct amp_trace *trace, amp_tensor *t)
{
  int32_t known = look_up(&trace->map, t->id);
  if (known >= 0) return known;
  if (t->flags & AMP_T_NUMBER) return enter(trace, t, AMP_G_NUMBER, "number");
  if (t->flags & AMP_T_HISTORY)
    return amp__fail(AMP_E_AUTOGRAD,
                     "a graph can't hold a tensor that another op made outside of it and that carries a "
                     "history; give it as an input, or detach it");
  bool trained = t->id <= trace->first && (t->flags & AMP_T_REQUIRES_GRAD);
  return enter(trace, t, trained ? AMP_G_PARAMETER : AMP_G_CONSTANT, trained ? "parameter" : "constant");
}

/* -- Nodes --------------------------------------------------------------------- */

static void name_node(struct amp_trace *trace, char *to, size_t room, const char *op)
{
  if (trace->own) snprintf(to, room, "%s", trace->prefix);
  else if (trace->prefix[0]) snprintf(to, room, "%s.%s", trace->prefix, op);
  else snprintf(to, room, "%s", op);
  trace->own = false;
}

/* A mode that nothing inside has set is marked. */
static void note_modes(amp_graph_node *node)
{
  const amp_state *S = amp__S;
  node->grad = S->grad_mode == CALLERS ? -1 : S->grad_mode != 0;
  node->regions = 0;
  for (int d = 0; d < 2; d++)
    if (!(S->autocast[d].cache & CALLERS)) node->regions |= (int8_t)(1 << d);
  memcpy(node->autocast, S->autocast, sizeof node->autocast);
}

/* -- Sizes that depend on values ------------------------------------------------- */
/* What a script reads of such a size would be frozen in the graph, so its readers ask (amp_graph_varies). */

static int bits_of(const struct amp_trace *trace, const amp_tensor *t)
{
  int32_t value = t ? look_up(&trace->map, t->id) : -1;
  return value >= 0 ? trace->graph->values[value].varies : 0;
}

static int all_bits(const amp_tensor *t) { return (1 << t->ndim) - 1; }

/* Bits of an operand whose dimensions are the result's last ones. */
static int aligned(int bits, const amp_tensor *from, const amp_tensor *to)
{
  int more = to->ndim - from->ndim;
  return more >= 0 ? bits << more & all_bits(to) : all_bits(to);
}

/* Of rows that make sizes of values: of result i; -1: it is none of those. */
static int made_of_values(const struct amp_trace *trace, int op, amp_tensor *const *in, int i, const amp_tensor *t,
                          const amp_slot *attrs)
{
  int given = bits_of(trace, in[0]);
  switch (op) {
  case AMP_OP_nonzero:
  case AMP_OP_masked_select:
  case AMP_OP_bincount: return 1;
  case AMP_OP_unique:
  case AMP_OP_unique_consecutive: return t->ndim == 1 && !(i == 1 && in[0]->ndim != 1) ? 1 : given;
  case AMP_OP_one_hot: return given | (attrs == NULL || attrs[0].i == -1 ? 1 << (t->ndim - 1) : 0);
  case AMP_OP_repeat_interleave:
    if (in[1] == NULL || (in[1]->flags & AMP_T_NUMBER)) return given;
    return attrs == NULL || attrs[0].i == AMP_NONE
               ? 1
               : given | 1 << (attrs[0].i < 0 ? attrs[0].i + t->ndim : attrs[0].i - 1);
  default: return -1;
  }
}

/* Rows whose result has the first operand's shape, whatever the others are. */
static bool first_alone(int op)
{
  switch (op) {
  case AMP_OP_index_put:
  case AMP_OP_index_add:
  case AMP_OP_index_copy:
  case AMP_OP_index_fill:
  case AMP_OP_scatter:
  case AMP_OP_scatter_add:
  case AMP_OP_masked_scatter: return true;
  default: return false;
  }
}

static int bits_of_result(const struct amp_trace *trace, int op, amp_tensor *const *in, int nin, int i,
                          const amp_tensor *t, const amp_slot *attrs)
{
  int bits = op >= 0 ? made_of_values(trace, op, in, i, t, attrs) : bits_of(trace, in[0]);
  if (bits >= 0) return bits;
  if (first_alone(op)) return bits_of(trace, in[0]);
  bits = 0;
  for (int k = 0; k < nin; k++) {
    int given = bits_of(trace, in[k]);
    if (given == 0) continue;
    if (op == AMP_OP_linear && k == 0) bits |= given & ~(1 << (t->ndim - 1));
    else if (op == AMP_OP_select && attrs) {
      int d = (int)(attrs[0].i < 0 ? attrs[0].i + in[0]->ndim : attrs[0].i - 1);
      bits |= (given & ((1 << d) - 1)) | (given >> (d + 1) << d);
    } else if (amp__ops[op].info.flags & AMP_F_ELEMENTWISE) bits |= aligned(given, in[k], t);
    else bits |= all_bits(t);
  }
  return bits;
}

/* Where a row has the dtype that it makes tensors of; NULL: it makes none out of nothing. */
static amp_slot *dtype_slot(int op, amp_slot *attrs)
{
  switch (op) {
  case AMP_OP_empty:
  case AMP_OP_rand:
  case AMP_OP_randn: return AMP_SLOT(((args_empty *)attrs)->dtype);
  case AMP_OP_full: return AMP_SLOT(((args_full *)attrs)->dtype);
  case AMP_OP_arange: return AMP_SLOT(((args_arange *)attrs)->dtype);
  case AMP_OP_linspace: return AMP_SLOT(((args_linspace *)attrs)->dtype);
  case AMP_OP_logspace: return AMP_SLOT(((args_logspace *)attrs)->dtype);
  case AMP_OP_eye: return AMP_SLOT(((args_eye *)attrs)->dtype);
  default: return NULL;
  }
}

/* A tensor that is made of the default dtype is of that one in each run, whatever the default is by then. */
static void settle_dtype(amp_graph_node *node, const amp_tensor *made)
{
  amp_slot *slot = dtype_slot(node->op, (amp_slot *)(intptr_t)node->attrs);
  if (slot && slot->i == AMP_NONE) slot->i = made->dtype;
}

static int note_call(struct amp_trace *trace, int op, unsigned flags, amp_tensor *const *in, int nin, amp_tensor **out,
                     const amp_slot *attrs)
{
  const amp_op_desc *d = op >= 0 ? &amp__ops[op] : NULL;
  char name[600];
  int32_t *operand = malloc(sizeof *operand * (size_t)(nin + 1));
  if (operand == NULL) return amp__nomem(sizeof *operand * (size_t)nin);
  amp_graph_node node = { .op = op, .flags = (int32_t)flags, .nin = nin, .in = operand, .attrs = attrs };
  amp_graph_value result[AMP_MAX_OUT] = { 0 };
  int rc = 0;
  for (int i = 0; i < nin; i++) {
    operand[i] = in[i] ? rc = value_for(trace, in[i]) : -1;
    if (rc < 0) goto out;
  }
  while (!(d && (d->info.flags & AMP_F_LIST)) && node.nin > 0 && operand[node.nin - 1] < 0) node.nin--;
  for (int i = 0; i < AMP_MAX_OUT; i++) {
    node.out[i] = -1;
    amp_tensor *t = i == 0 && (flags & AMP_INPLACE) ? in[0] : out[i];
    if (t == NULL) continue;
    node.nout = i + 1;
    result[i] = describe(t, AMP_G_RESULT, NULL);
    if (i == 0 && flags && (rc = node.out[0] = value_for(trace, t)) < 0) goto out;
  }
  name_node(trace, name, sizeof name, d ? d->info.name : "detach");
  node.name = name;
  note_modes(&node);
  if ((rc = graph_add_node(trace->graph, &node, result)) < 0) goto out;
  amp_graph_node *made = &trace->graph->nodes[rc];
  if (op >= 0 && out[0]) settle_dtype(made, out[0]);
  rc = 0;
  for (int i = 0; rc >= 0 && i < made->nout; i++) {
    if (made->out[i] < 0 || (i == 0 && flags)) continue;
    rc = map_put(&trace->map, out[i]->id, made->out[i]);
    trace->graph->values[made->out[i]].varies = (uint8_t)bits_of_result(trace, op, in, nin, i, out[i], attrs);
  }
out:
  free(operand);
  return rc;
}

/* -- Tensors made of Lua's numbers ------------------------------------------------- */

/* A tensor that the function makes anew each time, by no op: the graph holds a copy, and each run begins with a copy of
** that, which may be written and given away. Where none of this happens amp_graph_optimize leaves
** the second copy out. */
static int enter_made(struct amp_trace *trace, amp_tensor *t)
{
  amp_tensor *copy[AMP_MAX_OUT] = { NULL };
  amp_slot order[AMP_MAX_SLOT];
  memcpy(order, amp__ops[AMP_OP_clone].defaults, sizeof *order * (size_t)amp__ops[AMP_OP_clone].info.nslot);
  amp__plain plain = amp__plain_begin();
  trace->depth++;
  int rc = amp__dispatch(AMP_OP_clone, 0, &t, 1, copy, order);
  trace->depth--;
  amp__plain_end(plain);
  if (rc < 0) return rc;
  int32_t from = rc = enter(trace, copy[0], AMP_G_CONSTANT, "constant");
  amp__free(copy[0]);
  if (rc < 0) return rc;
  amp_graph_node node = { .op = AMP_OP_clone, .nin = 1, .nout = 1, .in = &from, .attrs = order, .name = "clone" };
  amp_graph_value result[AMP_MAX_OUT] = { describe(t, AMP_G_RESULT, NULL) };
  for (int i = 0; i < AMP_MAX_OUT; i++) node.out[i] = -1;
  note_modes(&node);
  if ((rc = graph_add_node(trace->graph, &node, result)) < 0) return rc;
  int32_t made = trace->graph->nodes[rc].out[0];
  trace->graph->values[made].made = true;
  trace->graph->values[made].version = t->storage->version;
  return map_put(&trace->map, t->id, made);
}

static int enter_operands(struct amp_trace *trace, amp_tensor *const *in, int nin, amp_tensor *to)
{
  int rc = 0;
  for (int i = 0; rc >= 0 && i <= nin; i++) {
    amp_tensor *t = i < nin ? in[i] : to;
    if (t && t->id > trace->first && !(t->flags & (AMP_T_NUMBER | AMP_T_HISTORY)) && look_up(&trace->map, t->id) < 0)
      rc = enter_made(trace, t);
  }
  return rc;
}

static int run_on(int op, unsigned flags, amp_tensor *const *in, int nin, amp_tensor **out, const amp_slot *attrs)
{
  if (amp__observing()) return amp__hooks.observe_op(op, flags, in, nin, out, attrs);
  return amp__dispatch_op(op, flags, in, nin, out, attrs);
}

static int hook_op(int op, unsigned flags, amp_tensor *const *in, int nin, amp_tensor **out, const amp_slot *attrs)
{
  struct amp_trace *trace = amp__S->priv->trace;
  amp_tensor *own[AMP_MAX_OUT] = { NULL };
  if (trace->depth > 0) return run_on(op, flags, in, nin, out, attrs);
  amp_tensor **results = out ? out : own;
  int rc = enter_operands(trace, in, nin, (flags & AMP_OUT) && out ? out[0] : NULL);
  if (rc < 0) return rc;
  trace->depth++;
  rc = run_on(op, flags, in, nin, results, attrs);
  trace->depth--;
  if (rc < 0) return rc;
  rc = note_call(trace, op, flags, in, nin, results, attrs);
  if (rc < 0) snprintf(amp__S->err.op, sizeof amp__S->err.op, "%s", amp__ops[op].info.name);
  for (int i = flags ? 1 : 0; i < AMP_MAX_OUT && (rc < 0 || !out); i++) {
    amp__free(results[i]);
    results[i] = NULL;
  }
  return rc;
}

static int hook_detach(amp_tensor *from, amp_tensor *to)
{
  struct amp_trace *trace = amp__S->priv->trace;
  amp_tensor *out[AMP_MAX_OUT] = { to };
  if (trace->depth > 0) return 0;
  int rc = enter_operands(trace, &from, 1, NULL);
  return rc < 0 ? rc : note_call(trace, AMP_G_DETACH, 0, &from, 1, out, NULL);
}

/* Made inside of what Lua knows, and not written since by an op. */
static bool made_of_numbers(const struct amp_trace *trace, const amp_tensor *t)
{
  int32_t value = look_up(&trace->map, t->id);
  if (t->id <= trace->first) return false;
  return value < 0 || (trace->graph->values[value].made && t->storage->version == trace->graph->values[value].version);
}

static int hook_refuse(const char *what, const amp_tensor *t)
{
  struct amp_trace *trace = amp__S->priv->trace;
  if (trace->depth > 0) return 0;
  if (t && made_of_numbers(trace, t)) return 0;
  return amp__fail(AMP_E_UNSUPPORTED, "a graph is recorded, which can't hold what happens here: %s; %s", what,
                   t ? "keep it a tensor (where(c, a, b) in place of if), or do this outside of what is recorded"
                     : "do this outside of what is recorded");
}

/* -- Public -------------------------------------------------------------------- */

static void trace_free(struct amp_trace *trace)
{
  free(trace->map.ids);
  free(trace->map.values);
  free(trace);
}

void graph_abandon(amp_graph *g)
{
  if (g->trace == NULL) return;
  if (amp__S) amp_graph_suspend(amp__S, g);
  trace_free(g->trace);
  g->trace = NULL;
}

static int not_recorded(const amp_graph *g)
{
  return g->trace ? 0 : amp__fail(AMP_E_STATE, "the graph is not being recorded");
}

/* What is neither of the function's setting is its caller's. */
static modes callers_modes(modes m)
{
  m.grad = CALLERS;
  for (int d = 0; d < 2; d++) m.autocast[d].cache |= CALLERS;
  return m;
}

amp_graph *amp_graph_begin(amp_state *S, amp_tensor *const *input, const char *const *name, int n)
{
  AMP_ENTER(S);
  if (S->priv->trace) {
    amp__fail(AMP_E_STATE, "a graph is being recorded; a graph that is there may run inside, but none can be traced");
    return NULL;
  }
  amp_tensor *mark = amp__number(0); /* ids up to its own were there before */
  struct amp_trace *trace = calloc(1, sizeof *trace);
  amp_graph *g = calloc(1, sizeof *g);
  if (mark == NULL || trace == NULL || g == NULL || map_room(&trace->map, 64) < 0) {
    if (mark) amp__nomem(sizeof *trace);
    goto fail;
  }
  trace->graph = g;
  trace->first = mark->id;
  for (int i = 0; i < n; i++) {
    if (look_up(&trace->map, input[i]->id) >= 0) {
      amp__fail(AMP_E_ARGUMENT, "input %d of the graph is given twice", i + 1);
      goto fail;
    }
    if (enter(trace, input[i], AMP_G_INPUT, name[i]) < 0) goto fail;
  }
  amp__free(mark);
  g->trace = trace;
  trace->inner = callers_modes(graph_modes(S));
  amp_graph_resume(S, g);
  return g;
fail:
  amp__free(mark);
  if (trace) trace_free(trace);
  amp_graph_free(g);
  return NULL;
}

void amp_graph_suspend(amp_state *S, amp_graph *g)
{
  struct amp_trace *trace = S->priv->trace;
  if (trace == NULL || trace->graph != g) return;
  trace->inner = graph_modes(S);
  S->priv->trace = NULL;
  __atomic_fetch_and(&S->interrupt, (uint8_t)~AMP_I_TRACE, __ATOMIC_RELAXED);
  graph_set_modes(S, &trace->outer);
}

void amp_graph_resume(amp_state *S, amp_graph *g)
{
  if (S->priv->trace || g->trace == NULL) return;
  g->trace->outer = graph_modes(S);
  graph_set_modes(S, &g->trace->inner);
  S->priv->trace = g->trace;
  __atomic_fetch_or(&S->interrupt, AMP_I_TRACE, __ATOMIC_RELAXED);
}

int amp_graph_recording(const amp_state *S) { return S->priv->trace != NULL; }

/* The function must leave grad mode and regions as they were: a run can't change its caller's. */
static int check_modes(const modes *inner)
{
  bool same = inner->grad == CALLERS;
  for (int d = 0; d < 2; d++) same = same && (inner->autocast[d].cache & CALLERS);
  if (same) return 0;
  return amp__fail(AMP_E_UNSUPPORTED,
                   "the function leaves %s changed, which a graph can't do; set it for a part of the "
                   "function (amp.no_grad(fn), amp.autocast(fn))",
                   inner->grad == CALLERS ? "amp.enabled" : "the grad mode");
}

int amp_graph_end(amp_state *S, amp_graph *g, amp_tensor *const *output, int m, int keep)
{
  AMP_ENTER(S);
  if (not_recorded(g) < 0) return S->err.code;
  amp_graph_suspend(S, g);
  int rc = 0;
  if (keep && (rc = check_modes(&g->trace->inner)) == 0) {
    int32_t *value = malloc(sizeof *value * (size_t)(m + 1));
    if (value == NULL) rc = amp__nomem(sizeof *value * (size_t)m);
    for (int i = 0; rc >= 0 && i < m; i++) {
      rc = enter_operands(g->trace, &output[i], 1, NULL);
      if (rc >= 0) rc = value[i] = value_for(g->trace, output[i]);
    }
    if (rc >= 0) rc = graph_finish(g, value, m);
    free(value);
  }
  graph_abandon(g);
  return rc < 0 ? rc : 0;
}

int amp_graph_varies(const amp_state *S, const amp_ref *t)
{
  return S->priv->trace && t->t ? bits_of(S->priv->trace, t->t) : 0;
}

int amp_graph_at(amp_state *S, amp_graph *g, const char *prefix, int own)
{
  AMP_ENTER(S);
  if (not_recorded(g) < 0) return S->err.code;
  snprintf(g->trace->prefix, sizeof g->trace->prefix, "%s", prefix);
  g->trace->own = own != 0 && prefix[0];
  return 0;
}

int amp_graph_know(amp_state *S, amp_graph *g, const amp_ref *t, int kind, const char *name)
{
  AMP_ENTER(S);
  if (not_recorded(g) < 0) return S->err.code;
  if (t->t == NULL || kind < AMP_G_PARAMETER || kind > AMP_G_CONSTANT)
    return amp__fail(AMP_E_ARGUMENT, "'%s' is no tensor that a graph can know", name);
  if (look_up(&g->trace->map, t->t->id) >= 0) return 0;
  int rc = enter(g->trace, t->t, kind, name);
  return rc < 0 ? rc : 0;
}

int graph_know(amp_tensor *t, int kind, const char *name)
{
  struct amp_trace *trace = amp__S->priv->trace;
  if (trace->depth > 0 || look_up(&trace->map, t->id) >= 0) return 0;
  int rc = enter(trace, t, kind, name);
  return rc < 0 ? rc : 0;
}

void amp__graph_install(void)
{
  amp__hooks.graphs_short = graph_products_shed;
  amp__hooks.trace_op = hook_op;
  amp__hooks.trace_detach = hook_detach;
  amp__hooks.trace_refuse = hook_refuse;
}
