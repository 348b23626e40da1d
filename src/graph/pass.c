/*
** graph/pass.c: the frame of passes: a graph is opened, marked and changed, and closed without holes.
**
** Storages: a view lies in what it is a view of; a composite row may give an operand back unless it is known to make
*its
** result; kernels make theirs. What comes from outside is known by its storage. Two inputs may be one tensor, or lie in
** a parameter, so a write into an input counts for all that comes from outside.
*/
#include <stdio.h>
#include <stdlib.h>
#include "graph/pass.h"

/* -- What nodes do --------------------------------------------------------------- */

bool pass_draws(const amp_graph_node *n)
{
  const amp_op_desc *d = pass_row(n);
  if (d == NULL) return false;
  bool training = d->training_slot < 0 || n->attrs[d->training_slot].i != 0;
  if (d->info.flags & AMP_F_RANDOM) return training;
  switch (n->op) {
  case AMP_OP_scaled_dot_product_attention: return AMP_ARGS(n, scaled_dot_product_attention)->dropout_p > 0;
  case AMP_OP_attention: return AMP_ARGS(n, attention)->dropout_p > 0;
  case AMP_OP_multi_head_attention: return training && AMP_ARGS(n, multi_head_attention)->dropout_p > 0;
  case AMP_OP_rnn: return training && AMP_ARGS(n, rnn)->dropout > 0;
  case AMP_OP_lstm: return training && AMP_ARGS(n, lstm)->dropout > 0;
  case AMP_OP_gru: return training && AMP_ARGS(n, gru)->dropout > 0;
  default: return false;
  }
}

/* Bit i: operand i is written as running statistics. */
static uint32_t statistics(const amp_graph_node *n)
{
  const amp_op_desc *d = pass_row(n);
  if (d == NULL) return 0;
  if (n->op == AMP_OP_sync_batch_norm) return AMP_ARGS(n, sync_batch_norm)->training ? 6 : 0;
  if (n->op == AMP_OP_instance_norm) return AMP_ARGS(n, instance_norm)->use_input_stats ? 6 : 0;
  if (!amp__row_is(d, AMP_R_STATISTICS)) return 0;
  return d->training_slot < 0 || n->attrs[d->training_slot].i ? d->statistics : 0;
}

static bool writes_statistics(const amp_graph_node *n)
{
  uint32_t which = statistics(n);
  for (int i = 0; i < n->nin && i < 8; i++)
    if ((which >> i & 1) && n->in[i] >= 0) return true;
  return false;
}

bool pass_changes(const amp_graph_node *n) { return n->flags != 0 || writes_statistics(n); }

/* Composite rows whose results are never one of their operands, nor a view of one. */
static bool makes_result(int op)
{
  switch (op) {
  case AMP_OP_conv1d:
  case AMP_OP_conv2d:
  case AMP_OP_conv3d:
  case AMP_OP_conv_transpose1d:
  case AMP_OP_conv_transpose2d:
  case AMP_OP_conv_transpose3d:
  case AMP_OP_max_pool1d:
  case AMP_OP_max_pool2d:
  case AMP_OP_max_pool3d:
  case AMP_OP_avg_pool1d:
  case AMP_OP_avg_pool2d:
  case AMP_OP_avg_pool3d:
  case AMP_OP_adaptive_avg_pool1d:
  case AMP_OP_adaptive_avg_pool2d:
  case AMP_OP_adaptive_avg_pool3d:
  case AMP_OP_scaled_dot_product_attention:
  case AMP_OP_cross_entropy:
  case AMP_OP_bce_with_logits:
  case AMP_OP_l1_loss:
  case AMP_OP_relu6:
  case AMP_OP_rdiv:
  case AMP_OP_rpow:
  case AMP_OP_mm:
  case AMP_OP_bmm:
  case AMP_OP_sync_batch_norm: return true;
  default: return false;
  }
}

static bool may_alias(const amp_graph_node *n)
{
  const amp_op_desc *d = pass_row(n);
  return d == NULL || d->info.kind == 'V' || (d->info.kind == 'C' && !makes_result(n->op));
}

bool pass_same_modes(const amp_graph_node *a, const amp_graph_node *b)
{
  if (a->grad != b->grad || a->regions != b->regions) return false;
  for (int d = 0; d < 2; d++)
    if ((a->regions >> d & 1) && memcmp(&a->autocast[d], &b->autocast[d], sizeof a->autocast[d]) != 0) return false;
  return true;
}

/* -- Storages --------------------------------------------------------------------- */

static int32_t find(int32_t *storage, int32_t value)
{
  while (storage[value] != value) value = storage[value] = storage[storage[value]];
  return value;
}

static void unite(int32_t *storage, int32_t a, int32_t b)
{
  a = find(storage, a);
  b = find(storage, b);
  if (a < b) storage[b] = a;
  else storage[a] = b;
}

typedef struct held {
  const amp_storage *storage;
  int32_t value;
} held;

static int by_storage(const void *a, const void *b)
{
  uintptr_t first = (uintptr_t)((const held *)a)->storage, second = (uintptr_t)((const held *)b)->storage;
  return first < second ? -1 : first > second;
}

/* Tensors of the graph that lie in one storage; inputs, which may. */
static int unite_outside(graph_pass *p)
{
  const amp_graph *g = p->graph;
  held *list = malloc(sizeof *list * (size_t)(g->nvalue + 1));
  int n = 0;
  if (list == NULL) return amp__nomem(sizeof *list * (size_t)g->nvalue);
  for (int i = 0; i < g->nvalue; i++)
    if (g->values[i].info.tensor) list[n++] = (held){ g->values[i].info.tensor->storage, i };
  qsort(list, (size_t)n, sizeof *list, by_storage);
  for (int i = 1; i < n; i++)
    if (list[i].storage == list[i - 1].storage) unite(p->storage, list[i].value, list[i - 1].value);
  for (int i = 1; i < g->ninput; i++) unite(p->storage, g->inputs[i], g->inputs[0]);
  free(list);
  return 0;
}

static void unite_results(graph_pass *p)
{
  const amp_graph *g = p->graph;
  for (int k = 0; k < g->nnode; k++) {
    const amp_graph_node *n = &g->nodes[k];
    int32_t first = -1;
    for (int i = 0; i < n->nout; i++) {
      if (n->out[i] < 0) continue;
      if (first >= 0) unite(p->storage, first, n->out[i]);
      else first = n->out[i];
    }
    if (first < 0 || n->flags || !may_alias(n)) continue;
    for (int i = 0; i < n->nin; i++)
      if (n->in[i] >= 0) unite(p->storage, first, n->in[i]);
  }
}

static void note_write(graph_pass *p, int node, int32_t value)
{
  int32_t storage = p->storage[value];
  p->write[p->nwrite++] = (graph_write){ node, storage };
  p->storage_is[storage] |= CLASS_WRITTEN;
  p->writes_input |= (p->storage_is[storage] & CLASS_INPUT) != 0;
}

static int find_storages(graph_pass *p)
{
  const amp_graph *g = p->graph;
  int rc = unite_outside(p);
  if (rc < 0) return rc;
  unite_results(p);
  for (int i = 0; i < g->nvalue; i++) p->storage[i] = find(p->storage, i);
  for (int i = 0; i < g->nvalue; i++) {
    int kind = g->values[i].info.kind;
    if (kind == AMP_G_INPUT) p->storage_is[p->storage[i]] |= CLASS_INPUT | CLASS_OUTSIDE;
    else if (kind != AMP_G_RESULT && kind != AMP_G_NUMBER) p->storage_is[p->storage[i]] |= CLASS_OUTSIDE;
  }
  for (int i = 0; i < g->noutput; i++) p->storage_is[p->storage[g->outputs[i]]] |= CLASS_OUTPUT;
  for (int k = 0; k < g->nnode; k++) {
    const amp_graph_node *n = &g->nodes[k];
    uint32_t which = statistics(n);
    if (n->flags) note_write(p, k, n->flags & AMP_INPLACE ? n->in[0] : n->out[0]);
    for (int i = 0; i < n->nin && i < 8; i++)
      if ((which >> i & 1) && n->in[i] >= 0) note_write(p, k, n->in[i]);
  }
  return 0;
}

bool pass_unwritten(const graph_pass *p, int value, int early, int late)
{
  int32_t storage = p->storage[value];
  int flags = p->storage_is[storage], low = 0, high = p->nwrite;
  while (low < high) {
    int middle = (low + high) / 2;
    if (p->write[middle].node <= early) low = middle + 1;
    else high = middle;
  }
  for (; low < p->nwrite && p->write[low].node < late; low++) {
    int32_t written = p->write[low].storage;
    int other = p->storage_is[written];
    if (written == storage) return false;
    if ((flags & CLASS_OUTSIDE) && (other & CLASS_OUTSIDE) && ((flags | other) & CLASS_INPUT)) return false;
  }
  return true;
}

/* -- Users -------------------------------------------------------------------------- */

/* f(value) of each value that a node reads or writes over, once. */
static int touched(const amp_graph_node *n, int32_t *list)
{
  int count = 0;
  for (int i = 0; i <= n->nin; i++) {
    int32_t value = i < n->nin ? n->in[i] : n->flags ? n->out[0] : -1;
    bool seen = value < 0;
    for (int j = 0; j < count && !seen; j++) seen = list[j] == value;
    if (!seen) list[count++] = value;
  }
  return count;
}

static int find_users(graph_pass *p)
{
  const amp_graph *g = p->graph;
  int most = 1, total = 0;
  for (int k = 0; k < g->nnode; k++) {
    if (g->nodes[k].nin + 1 > most) most = g->nodes[k].nin + 1;
    total += g->nodes[k].nin + 1;
  }
  int32_t *list = malloc(sizeof *list * (size_t)most);
  p->user_from = calloc((size_t)g->nvalue + 2, sizeof *p->user_from);
  p->user = malloc(sizeof *p->user * (size_t)(total + 1));
  if (list == NULL || p->user_from == NULL || p->user == NULL) {
    free(list);
    return amp__nomem(sizeof *p->user * (size_t)total);
  }
  for (int k = 0; k < g->nnode; k++)
    for (int i = touched(&g->nodes[k], list) - 1; i >= 0; i--) p->user_from[list[i] + 2]++;
  for (int i = 1; i <= g->nvalue + 1; i++) p->user_from[i] += p->user_from[i - 1];
  for (int k = 0; k < g->nnode; k++)
    for (int i = touched(&g->nodes[k], list) - 1; i >= 0; i--) p->user[p->user_from[list[i] + 1]++] = k;
  free(list);
  return 0;
}

/* -- Opening -------------------------------------------------------------------------- */

static int node_room(graph_pass *p, int room)
{
  uint8_t *dead = realloc(p->dead, (size_t)room);
  if (dead == NULL) return amp__nomem((size_t)room);
  p->dead = dead;
  double *place = realloc(p->place, sizeof *place * (size_t)room);
  if (place == NULL) return amp__nomem(sizeof *place * (size_t)room);
  p->place = place;
  for (int k = p->node_room; k < room; k++) {
    p->dead[k] = 0;
    p->place[k] = k;
  }
  p->node_room = room;
  return 0;
}

int pass_open(graph_pass *p, amp_graph *g)
{
  memset(p, 0, sizeof *p);
  p->graph = g;
  p->nvalue = g->nvalue;
  p->nnode = g->nnode;
  int writes = 1, rc = node_room(p, g->nnode + 16);
  for (int k = 0; k < g->nnode; k++) writes += 1 + __builtin_popcount(statistics(&g->nodes[k]));
  p->storage = malloc(sizeof *p->storage * (size_t)(g->nvalue + 1));
  p->storage_is = calloc((size_t)g->nvalue + 1, 1);
  p->write = malloc(sizeof *p->write * (size_t)writes);
  p->sized = calloc((size_t)g->nnode + 1, 1);
  p->number = calloc((size_t)g->nvalue + 1, 1);
  if (rc == 0 && (!p->storage || !p->storage_is || !p->write || !p->sized || !p->number)) rc = amp__nomem(64);
  for (int i = 0; rc == 0 && i < g->nvalue; i++) p->storage[i] = i;
  if (rc == 0) rc = find_storages(p);
  if (rc == 0) rc = find_users(p);
  for (int i = 0; rc == 0 && i < g->nsize; i++) {
    if (g->sizes[i].node >= 0) p->sized[g->sizes[i].node] = 1;
    else if (g->sizes[i].node == -1) p->number[g->sizes[i].slot] = 1;
  }
  return rc < 0 ? pass_close(p, rc) : 0;
}

bool pass_is_output(const graph_pass *p, int value)
{
  for (int i = 0; i < p->graph->noutput; i++)
    if (p->graph->outputs[i] == value) return true;
  return false;
}

bool pass_only_user(const graph_pass *p, int value, int node)
{
  int from = p->user_from[value];
  return p->user_from[value + 1] - from == 1 && p->user[from] == node && !pass_is_output(p, value);
}

static bool held_node(const graph_pass *p, int k, const bool *held)
{
  const amp_graph_node *n = &p->graph->nodes[k];
  if (pass_changes(n) || pass_draws(n) || p->sized[k] || n->grad == 1) return false;
  for (int i = 0; i < n->nin; i++)
    if (n->in[i] >= 0 && !held[n->in[i]]) return false;
  for (int i = 0; i < n->nout; i++)
    if (n->out[i] >= 0 && pass_class(p, n->out[i], CLASS_WRITTEN | CLASS_OUTPUT)) return false;
  return true;
}

bool *pass_held(const graph_pass *p)
{
  const amp_graph *g = p->graph;
  bool *held = calloc((size_t)g->nvalue + 1, sizeof *held);
  if (held == NULL) {
    amp__nomem((size_t)g->nvalue);
    return NULL;
  }
  if (p->writes_input) return held; /* whatever it lies in */
  for (int i = 0; i < g->nvalue; i++) {
    int kind = g->values[i].info.kind;
    bool number = kind == AMP_G_NUMBER && !p->number[i];
    held[i] = number || (kind >= AMP_G_PARAMETER && kind <= AMP_G_CONSTANT && !pass_class(p, i, CLASS_WRITTEN));
  }
  for (int k = 0; k < g->nnode; k++) {
    bool good = held_node(p, k, held);
    for (int i = 0; good && i < g->nodes[k].nout; i++)
      if (g->nodes[k].out[i] >= 0) held[g->nodes[k].out[i]] = true;
  }
  return held;
}

bool pass_number(const graph_pass *p, int value, double *number)
{
  if (value < 0 || value >= p->nvalue || pass_value(p, value)->kind != AMP_G_NUMBER || p->number[value]) return false;
  *number = *AMP_DATA(double, pass_value(p, value)->tensor);
  return true;
}

/* -- Changing -------------------------------------------------------------------------- */

void pass_kill(graph_pass *p, int node)
{
  p->dead[node] = 1;
  p->changes++;
}

int pass_rewrite(graph_pass *p, int node, int op, const int32_t *in, int nin, const amp_slot *attrs)
{
  amp_graph_node *n = &p->graph->nodes[node];
  const amp_op_desc *d = &amp__ops[op];
  int32_t *operands = malloc(sizeof *operands * (size_t)(nin + 1));
  amp_slot *slots = malloc(sizeof *slots * (size_t)(d->info.nslot + 1));
  if (operands == NULL || slots == NULL) {
    free(operands);
    free(slots);
    return amp__nomem(sizeof *slots * (size_t)d->info.nslot);
  }
  memcpy(operands, in, sizeof *operands * (size_t)nin);
  if (d->info.nslot) memcpy(slots, attrs ? attrs : d->defaults, sizeof *slots * (size_t)d->info.nslot);
  free((void *)(intptr_t)n->in);
  free((void *)(intptr_t)n->attrs);
  n->op = op;
  n->flags = 0;
  n->nin = nin;
  n->in = operands;
  n->attrs = slots;
  n->nout = 1;
  for (int i = 1; i < AMP_MAX_OUT; i++) n->out[i] = -1;
  p->changes++;
  return 0;
}

int pass_add(graph_pass *p, int op, const int32_t *in, int nin, const amp_slot *attrs, double place, int as,
             const amp_graph_value *result)
{
  amp_graph *g = p->graph;
  int rc = g->nnode + 1 >= p->node_room ? node_room(p, p->node_room * 2) : 0;
  if (rc < 0) return rc;
  amp_graph_node n = g->nodes[as];
  char name[600];
  snprintf(name, sizeof name, "%s.%s", g->nodes[as].name, amp__ops[op].info.name);
  n.name = name;
  n.op = op;
  n.flags = 0;
  n.nin = nin;
  n.nout = 1;
  n.in = in;
  n.attrs = attrs;
  for (int i = 0; i < AMP_MAX_OUT; i++) n.out[i] = -1;
  amp_graph_value value = *result;
  value.kind = AMP_G_RESULT;
  value.name = NULL;
  value.tensor = NULL;
  if ((rc = graph_add_node(g, &n, &value)) < 0) return rc;
  p->place[rc] = place;
  p->changes++;
  return g->nodes[rc].out[0];
}

int pass_add_number(graph_pass *p, double number)
{
  amp_tensor *t = amp__number(number);
  if (t == NULL) return amp__S->err.code;
  amp_graph_value v = { .name = "number", .tensor = t, .node = -1, .kind = AMP_G_NUMBER, .dtype = AMP_FLOAT64 };
  int made = graph_add_value(p->graph, &v);
  amp__free(t);
  p->changes++;
  return made;
}

/* -- Closing --------------------------------------------------------------------------- */

typedef struct ordered {
  double place;
  int32_t node;
} ordered;

static int by_place(const void *a, const void *b)
{
  const ordered *first = a, *second = b;
  if (first->place != second->place) return first->place < second->place ? -1 : 1;
  return first->node < second->node ? -1 : first->node > second->node;
}

static int by_node(const void *a, const void *b)
{
  const amp_graph_size *first = a, *second = b;
  if (first->node != second->node) return first->node < second->node ? -1 : 1;
  return first->slot < second->slot ? -1 : first->slot > second->slot;
}

/* Parameters and buffers stay: they are the module's. */
static void mark_used(const graph_pass *p, const ordered *order, int n, int32_t *value)
{
  const amp_graph *g = p->graph;
  for (int i = 0; i < g->nvalue; i++) {
    int kind = g->values[i].info.kind;
    value[i] = kind == AMP_G_INPUT || kind == AMP_G_PARAMETER || kind == AMP_G_BUFFER ? 0 : -1;
  }
  for (int k = 0; k < n; k++) {
    const amp_graph_node *node = &g->nodes[order[k].node];
    for (int i = 0; i < node->nin; i++)
      if (node->in[i] >= 0) value[node->in[i]] = 0;
    for (int i = 0; i < node->nout; i++)
      if (node->out[i] >= 0) value[node->out[i]] = 0;
  }
  for (int i = 0; i < g->noutput; i++) value[g->outputs[i]] = 0;
  for (int i = 0, next = 0; i < g->nvalue; i++)
    if (value[i] == 0) value[i] = next++;
}

static void move_values(amp_graph *g, const int32_t *value)
{
  int kept = 0;
  for (int i = 0; i < g->nvalue; i++) {
    if (value[i] >= 0) g->values[kept++] = g->values[i];
    else {
      graph_fold_free(g->values[i].fold);
      amp__free(g->values[i].info.tensor);
      free((void *)(intptr_t)g->values[i].info.name);
    }
  }
  g->nvalue = kept;
  for (int i = 0; i < g->ninput; i++) g->inputs[i] = value[g->inputs[i]];
  for (int i = 0; i < g->noutput; i++) g->outputs[i] = value[g->outputs[i]];
}

static void move_sizes(amp_graph *g, const int32_t *value, const int32_t *node)
{
  int kept = 0;
  for (int i = 0; i < g->nsize; i++) {
    amp_graph_size s = g->sizes[i];
    if (s.node >= 0) s.node = node[s.node];
    else if (s.node == -1) s.slot = value[s.slot];
    if (g->sizes[i].node >= 0 ? s.node < 0 : s.node == -1 && s.slot < 0) continue;
    g->sizes[kept++] = s;
  }
  g->nsize = kept;
  if (kept) qsort(g->sizes, (size_t)kept, sizeof *g->sizes, by_node);
}

static void move_nodes(graph_pass *p, amp_graph_node *nodes, const ordered *order, int n, const int32_t *value)
{
  amp_graph *g = p->graph;
  for (int k = 0; k < n; k++) {
    nodes[k] = g->nodes[order[k].node];
    int32_t *in = (int32_t *)(intptr_t)nodes[k].in;
    for (int i = 0; i < nodes[k].nin; i++)
      if (in[i] >= 0) in[i] = value[in[i]];
    for (int i = 0; i < nodes[k].nout; i++)
      if (nodes[k].out[i] >= 0) nodes[k].out[i] = value[nodes[k].out[i]];
  }
  for (int k = 0; k < g->nnode; k++)
    if (p->dead[k]) graph_free_node(&g->nodes[k]);
  free(g->nodes);
  g->nodes = nodes;
  g->nnode = n;
  g->node_room = n + 1;
}

static void find_makers(amp_graph *g)
{
  for (int i = 0; i < g->nvalue; i++) g->values[i].info.node = -1;
  for (int k = g->nnode - 1; k >= 0; k--)
    for (int i = 0; i < g->nodes[k].nout; i++)
      if (g->nodes[k].out[i] >= 0 && g->values[g->nodes[k].out[i]].info.kind == AMP_G_RESULT)
        g->values[g->nodes[k].out[i]].info.node = k;
}

/* All memory is had before anything changes. */
static int sweep(graph_pass *p)
{
  amp_graph *g = p->graph;
  ordered *order = malloc(sizeof *order * (size_t)(g->nnode + 1));
  int32_t *value = malloc(sizeof *value * (size_t)(g->nvalue + 1));
  int32_t *node = malloc(sizeof *node * (size_t)(g->nnode + 1));
  amp_graph_node *nodes = malloc(sizeof *nodes * (size_t)(g->nnode + 1));
  int n = 0, rc = 0;
  if (!order || !value || !node || !nodes) rc = amp__nomem(sizeof *nodes * (size_t)g->nnode);
  if (rc == 0) {
    for (int k = 0; k < g->nnode; k++) {
      node[k] = -1;
      if (!p->dead[k]) order[n++] = (ordered){ p->place[k], k };
    }
    qsort(order, (size_t)n, sizeof *order, by_place);
    for (int k = 0; k < n; k++) node[order[k].node] = k;
    if (p->moved) memcpy(p->moved, node, sizeof *node * (size_t)g->nnode);
    mark_used(p, order, n, value);
    move_nodes(p, nodes, order, n, value);
    nodes = NULL;
    move_sizes(g, value, node);
    move_values(g, value);
    find_makers(g);
    rc = graph_names_anew(g);
    if (rc == 0) rc = graph_finish(g, g->outputs, g->noutput);
  }
  free(order);
  free(value);
  free(node);
  free(nodes);
  return rc;
}

int pass_close(graph_pass *p, int rc)
{
  if (rc == 0 && p->changes) rc = sweep(p);
  free(p->storage);
  free(p->storage_is);
  free(p->user_from);
  free(p->user);
  free(p->write);
  free(p->sized);
  free(p->number);
  free(p->dead);
  free(p->place);
  return rc;
}
