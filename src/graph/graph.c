/*
** graph/graph.c: the form of a graph: values, nodes and their names; how one is built, checked and asked.
**
** A value that no node makes is an input, a parameter, a buffer, a constant or a number. The tensors of the last four
** are counted; a parameter's is the module's own, so a step or a load is seen by the next run.
*/
#include <stdio.h>
#include <stdlib.h>
#include "graph/graph.h"
#include "precision/float8.h"
#include "precision/precision.h"

/* -- Names ------------------------------------------------------------------- */

int graph_hash(const char *text, int room)
{
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (; *text; text++) hash = (hash ^ (uint8_t)*text) * 16777619u;
  return (int)(hash & (uint32_t)(room - 1));
}

static int place_of(const graph_names *names, const char *text)
{
  int at = graph_hash(text, names->room);
  while (names->at[at] && strcmp(names->at[at], text) != 0) at = (at + 1) & (names->room - 1);
  return at;
}

static int widen_names(graph_names *names)
{
  graph_names wider = { NULL, NULL, names->count, names->room ? names->room * 2 : 64 };
  wider.at = calloc((size_t)wider.room, sizeof *wider.at);
  wider.last = calloc((size_t)wider.room, sizeof *wider.last);
  if (wider.at == NULL || wider.last == NULL) {
    free(wider.at);
    free(wider.last);
    return amp__nomem(sizeof(char *) * (size_t)wider.room);
  }
  for (int i = 0; i < names->room; i++) {
    if (names->at[i] == NULL) continue;
    int at = place_of(&wider, names->at[i]);
    wider.at[at] = names->at[i];
    wider.last[at] = names->last[i];
  }
  free(names->at);
  free(names->last);
  *names = wider;
  return 0;
}

static int enter_name(graph_names *names, const char *text)
{
  if (names->count * 2 >= names->room && widen_names(names) < 0) return amp__S->err.code;
  names->at[place_of(names, text)] = text;
  names->count++;
  return 0;
}

static bool known_name(const graph_names *names, const char *text)
{
  return names->room > 0 && names->at[place_of(names, text)] != NULL;
}

/* A copy of the name that no other has: name, or name_1, name_2, ...; not entered. NULL: no memory. */
static char *free_name(graph_names *names, const char *name)
{
  size_t length = strlen(name);
  char *text = malloc(length + 16);
  if (text == NULL) {
    amp__nomem(length + 16);
    return NULL;
  }
  memcpy(text, name, length + 1);
  if (!known_name(names, text)) return text;
  int32_t *last = &names->last[place_of(names, name)];
  do snprintf(text + length, 16, "_%d", ++*last);
  while (known_name(names, text));
  return text;
}

char *graph_unique(amp_graph *g, const char *name)
{
  char *text = free_name(&g->names, name);
  if (text == NULL || enter_name(&g->names, text) < 0) {
    free(text);
    return NULL;
  }
  return text;
}

int graph_names_anew(amp_graph *g)
{
  free(g->names.at);
  free(g->names.last);
  memset(&g->names, 0, sizeof g->names);
  int rc = 0;
  for (int i = 0; rc == 0 && i < g->nvalue; i++) rc = enter_name(&g->names, g->values[i].info.name);
  for (int i = 0; rc == 0 && i < g->nnode; i++)
    if (!known_name(&g->names, g->nodes[i].name)) rc = enter_name(&g->names, g->nodes[i].name);
  return rc;
}

/* -- Building ---------------------------------------------------------------- */

/* Room for one more of `size` bytes each; 0 or an error. */
static int grow(void *list, int *room, int count, size_t size)
{
  void **at = list;
  if (count < *room) return 0;
  if (count >= GRAPH_MAX) return amp__fail(AMP_E_UNSUPPORTED, "a graph of more than %d parts", GRAPH_MAX);
  int wider = *room ? *room * 2 : 16;
  void *moved = realloc(*at, size * (size_t)wider);
  if (moved == NULL) return amp__nomem(size * (size_t)wider);
  *at = moved;
  *room = wider;
  return 0;
}

int graph_add_value(amp_graph *g, const amp_graph_value *v)
{
  int rc;
  if ((rc = grow(&g->values, &g->value_room, g->nvalue, sizeof *g->values)) < 0) return rc;
  if (v->kind == AMP_G_INPUT && (rc = grow(&g->inputs, &g->input_room, g->ninput, sizeof *g->inputs)) < 0) return rc;
  graph_value *value = &g->values[g->nvalue];
  *value = (graph_value){ .info = *v, .last = -1 };
  if ((value->info.name = graph_unique(g, v->name ? v->name : "value")) == NULL) return AMP_E_MEMORY;
  if (v->tensor) amp__retain(v->tensor);
  if (v->kind == AMP_G_INPUT) g->inputs[g->ninput++] = g->nvalue;
  return g->nvalue++;
}

/* Name of result i of a node: its own for the first, name.2, name.3 for others. */
static void result_name(char *to, size_t room, const char *node, int i)
{
  if (i == 0) snprintf(to, room, "%s", node);
  else snprintf(to, room, "%s.%d", node, i + 1);
}

static int add_results(amp_graph *g, amp_graph_node *node, int which, const amp_graph_value *results)
{
  for (int i = 0; i < node->nout; i++) {
    if (results[i].kind != AMP_G_RESULT) {
      node->out[i] = -1;
      continue;
    }
    if (node->out[i] >= 0) continue; /* a value that is there */
    size_t room = strlen(node->name) + 8;
    char *name = malloc(room);
    if (name == NULL) return amp__nomem(room);
    result_name(name, room, node->name, i);
    amp_graph_value value = results[i];
    if (value.name == NULL) value.name = name;
    value.node = which;
    value.tensor = NULL;
    int made = graph_add_value(g, &value);
    free(name);
    if (made < 0) return made;
    node->out[i] = made;
  }
  return 0;
}

void graph_free_node(amp_graph_node *node)
{
  free((void *)(intptr_t)node->in);
  free((void *)(intptr_t)node->attrs);
  free((void *)(intptr_t)node->name);
}

int graph_add_node(amp_graph *g, const amp_graph_node *n, const amp_graph_value *results)
{
  int rc = grow(&g->nodes, &g->node_room, g->nnode, sizeof *g->nodes);
  if (rc < 0) return rc;
  int nslot = n->op >= 0 ? amp__ops[n->op].info.nslot : 0;
  amp_graph_node *node = &g->nodes[g->nnode];
  *node = *n;
  node->name = NULL;
  int32_t *in = malloc(sizeof *in * (size_t)(n->nin + 1));
  amp_slot *attrs = malloc(sizeof *attrs * (size_t)(nslot + 1));
  node->in = in;
  node->attrs = attrs;
  /* nodes have names of their own: they are those of their first results, which the values enter */
  char *name = in && attrs ? free_name(&g->names, n->name) : NULL;
  node->name = name;
  if (name == NULL) {
    graph_free_node(node);
    return amp__nomem(64);
  }
  memcpy(in, n->in, sizeof *in * (size_t)n->nin);
  for (int d = 0; d < 2; d++) g->float8 |= (n->regions >> d & 1) && amp__float8_recipe(&n->autocast[d]);
  if (nslot) memcpy(attrs, n->attrs ? n->attrs : amp__ops[n->op].defaults, sizeof *attrs * (size_t)nslot);
  bool enters = false; /* no value of that name comes */
  for (int i = 0; i < node->nout; i++)
    enters |= i == 0 && results[i].kind == AMP_G_RESULT && node->out[i] < 0
              && (results[i].name == NULL || strcmp(results[i].name, name) == 0);
  if (!enters && (rc = enter_name(&g->names, name)) < 0) {
    graph_free_node(node);
    return rc;
  }
  int values = g->nvalue;
  if ((rc = add_results(g, node, g->nnode, results)) < 0) {
    if (g->nvalue == values && enters) graph_free_node(node);
    else g->nnode++; /* its names are in use */
    return rc;
  }
  return g->nnode++;
}

static int check_node(const amp_graph *g, int which, const bool *made)
{
  const amp_graph_node *n = &g->nodes[which];
  const amp_op_desc *d = n->op >= 0 ? &amp__ops[n->op] : NULL;
  int most = d == NULL ? 1 : d->info.flags & AMP_F_LIST ? AMP_MAX_LIST : d->info.nin;
  if (n->nin > most || (d && n->nout > d->info.nout) || (d == NULL && n->nin != 1))
    return amp__fail(AMP_E_ARGUMENT, "node '%s': %s takes up to %d tensors and gives %d, not %d and %d", n->name,
                     d ? d->info.name : "detach", most, d ? d->info.nout : 1, n->nin, n->nout);
  for (int i = 0; i < n->nin; i++) {
    if (n->in[i] == -1 && !(d && (d->info.flags & AMP_F_LIST))) continue;
    if (n->in[i] < 0 || n->in[i] >= g->nvalue || !made[n->in[i]])
      return amp__fail(AMP_E_ARGUMENT, "node '%s': operand %d is no value that comes before it", n->name, i + 1);
  }
  if ((n->flags & AMP_INPLACE) && (d == NULL || !(d->info.flags & AMP_F_INPLACE) || n->nin < 1 || n->in[0] < 0))
    return amp__fail(AMP_E_ARGUMENT, "node '%s' has no in-place form", n->name);
  if ((n->flags & AMP_OUT) && (d == NULL || d->front || n->out[0] < 0 || n->out[0] >= g->nvalue || !made[n->out[0]]))
    return amp__fail(AMP_E_ARGUMENT, "node '%s' takes no out", n->name);
  for (int i = n->flags ? 1 : 0; i < n->nout; i++) {
    if (n->out[i] == -1) continue;
    if (n->out[i] < 0 || n->out[i] >= g->nvalue || g->values[n->out[i]].info.kind != AMP_G_RESULT || made[n->out[i]])
      return amp__fail(AMP_E_ARGUMENT, "node '%s': result %d is no value of its own", n->name, i + 1);
  }
  if (d == NULL && (n->flags || n->nout != 1 || n->out[0] < 0))
    return amp__fail(AMP_E_ARGUMENT, "node '%s': detach gives one result", n->name);
  if (d && n->attrs && amp__check_attributes(d, n->attrs) < 0) return amp__S->err.code;
  return 0;
}

/* When each value is read last. */
static void find_lives(amp_graph *g)
{
  for (int i = 0; i < g->nvalue; i++) g->values[i].last = -1;
  for (int k = 0; k < g->nnode; k++) {
    const amp_graph_node *n = &g->nodes[k];
    for (int i = 0; i < n->nout; i++)
      if (n->out[i] >= 0) g->values[n->out[i]].last = k;
    for (int i = 0; i < n->nin; i++)
      if (n->in[i] >= 0) g->values[n->in[i]].last = k;
  }
  for (int i = 0; i < g->noutput; i++) g->values[g->outputs[i]].last = -1;
}

void graph_forget(amp_graph *g)
{
  graph_kept_free(g->kept);
  free(g->chains);
  graph_products_free(g);
  g->kept = NULL;
  g->chains = NULL;
  g->nkept = g->nchain = 0;
}

int graph_finish(amp_graph *g, const int32_t *output, int m)
{
  graph_forget(g);
  bool *made = calloc((size_t)g->nvalue + 1, sizeof *made);
  int32_t *outputs = malloc(sizeof *outputs * (size_t)(m + 1));
  int rc = 0;
  if (made == NULL || outputs == NULL) rc = amp__nomem((size_t)g->nvalue);
  for (int i = 0; rc == 0 && i < g->nvalue; i++) made[i] = g->values[i].info.kind != AMP_G_RESULT;
  for (int k = 0; rc == 0 && k < g->nnode; k++) {
    rc = check_node(g, k, made);
    for (int i = 0; rc == 0 && i < g->nodes[k].nout; i++)
      if (g->nodes[k].out[i] >= 0) made[g->nodes[k].out[i]] = true;
  }
  for (int i = 0; rc == 0 && i < m; i++)
    if (output[i] < 0 || output[i] >= g->nvalue || !made[output[i]])
      rc = amp__fail(AMP_E_ARGUMENT, "output %d is no value of the graph", i + 1);
  if (rc == 0) {
    memcpy(outputs, output, sizeof *outputs * (size_t)m);
    free(g->outputs);
    g->outputs = outputs;
    outputs = NULL;
    g->noutput = m;
    find_lives(g);
    g->finished = true;
  }
  free(outputs);
  free(made);
  return rc;
}

/* -- Public: building -------------------------------------------------------- */

amp_graph *amp_graph_new(amp_state *S)
{
  AMP_ENTER(S);
  amp_graph *g = calloc(1, sizeof *g);
  if (g == NULL) amp__nomem(sizeof *g);
  return g;
}

void amp_graph_free(amp_graph *g)
{
  if (g == NULL) return;
  graph_abandon(g);
  for (int i = 0; i < g->nvalue; i++) {
    graph_fold_free(g->values[i].fold);
    amp__free(g->values[i].info.tensor);
    free((void *)(intptr_t)g->values[i].info.name);
  }
  for (int i = 0; i < g->nnode; i++) graph_free_node(&g->nodes[i]);
  graph_forget(g);
  free(g->values);
  free(g->nodes);
  free(g->sizes);
  free(g->inputs);
  free(g->outputs);
  free(g->names.at);
  free(g->names.last);
  free(g->text);
  free(g);
}

int amp_graph_add_value(amp_state *S, amp_graph *g, const amp_graph_value *v)
{
  AMP_ENTER(S);
  if (v->kind >= AMP_G_RESULT || v->ndim > AMP_MAX_DIM || v->dtype >= AMP_DTYPE_COUNT || v->device >= AMP_DEVICE_COUNT)
    return amp__fail(AMP_E_ARGUMENT, "a value of kind %d, dtype %d, %d dimensions can't be added", v->kind, v->dtype,
                     v->ndim);
  if ((v->kind != AMP_G_INPUT) != (v->tensor != NULL))
    return amp__fail(AMP_E_ARGUMENT, "'%s': an input has no tensor, other values have one", v->name ? v->name : "?");
  amp_graph_value value = *v;
  value.node = -1;
  g->finished = false;
  return graph_add_value(g, &value);
}

int amp_graph_add_node(amp_state *S, amp_graph *g, const amp_graph_node *n, const amp_graph_value *results)
{
  AMP_ENTER(S);
  if (n->op < AMP_G_DETACH || n->op >= AMP_OP_COUNT || n->name == NULL || n->nin < 0 || n->nin > AMP_MAX_LIST
      || n->nout < 0 || n->nout > AMP_MAX_OUT || (n->flags & ~(AMP_INPLACE | AMP_OUT)))
    return amp__fail(AMP_E_ARGUMENT, "a node of op %d with %d operands and %d results can't be added", n->op, n->nin,
                     n->nout);
  g->finished = false;
  return graph_add_node(g, n, results);
}

int amp_graph_add_size(amp_state *S, amp_graph *g, const amp_graph_size *s)
{
  AMP_ENTER(S);
  bool good = s->node == -2   ? s->slot >= 0 && s->slot < g->nfree
              : s->node == -1 ? s->slot >= 0 && s->slot < g->nvalue && g->values[s->slot].info.kind == AMP_G_NUMBER
                              : s->node >= 0 && s->node < g->nnode && s->slot >= 0 && g->nodes[s->node].op >= 0
                                    && s->slot < amp__ops[g->nodes[s->node].op].info.nslot;
  if (g->nsize && s->node < g->sizes[g->nsize - 1].node) good = false;
  if (!good || s->denominator == 0)
    return amp__fail(AMP_E_ARGUMENT, "no number %d of node %d can follow a size", s->slot, s->node);
  int rc = grow(&g->sizes, &g->size_room, g->nsize, sizeof *g->sizes);
  if (rc < 0) return rc;
  g->sizes[g->nsize++] = *s;
  return 0;
}

int amp_graph_finish(amp_state *S, amp_graph *g, const int32_t *output, int m)
{
  AMP_ENTER(S);
  if (m < 0 || m > GRAPH_MAX) return amp__fail(AMP_E_ARGUMENT, "%d outputs", m);
  return graph_finish(g, output, m);
}

int amp_graph_free_dims(amp_state *S, amp_graph *g, int input, int dims)
{
  AMP_ENTER(S);
  if (input < 0 || input >= g->ninput) return amp__fail(AMP_E_INDEX, "the graph has %d inputs", g->ninput);
  amp_graph_value *v = &g->values[g->inputs[input]].info;
  if (dims < 0 || dims >> v->ndim) return amp__fail(AMP_E_INDEX, "input '%s' has %d dimensions", v->name, v->ndim);
  v->free_dims = (uint8_t)dims;
  g->nfree = 0;
  for (int i = 0; i < g->ninput; i++) g->nfree += __builtin_popcount(g->values[g->inputs[i]].info.free_dims);
  return g->nfree <= GRAPH_SIZES ? 0 : amp__fail(AMP_E_UNSUPPORTED, "a graph has at most %d free sizes", GRAPH_SIZES);
}

int amp_graph_set_tensor(amp_state *S, amp_graph *g, int value, const amp_ref *t)
{
  AMP_ENTER(S);
  if (value < 0 || value >= g->nvalue || g->values[value].info.tensor == NULL || t->t == NULL)
    return amp__fail(AMP_E_ARGUMENT, "value %d of the graph has no tensor", value);
  amp_graph_value *v = &g->values[value].info;
  amp__retain(t->t);
  amp__free(v->tensor);
  v->tensor = t->t;
  v->dtype = t->t->dtype;
  v->device = t->t->device;
  v->device_index = t->t->device_index;
  return 0;
}

/* -- Public: asking ---------------------------------------------------------- */

int amp_graph_value_count(const amp_graph *g) { return g->nvalue; }
int amp_graph_node_count(const amp_graph *g) { return g->nnode; }
int amp_graph_size_count(const amp_graph *g) { return g->nsize; }
int amp_graph_inputs(const amp_graph *g) { return g ? g->ninput : 0; }
int amp_graph_outputs(const amp_graph *g) { return g ? g->noutput : 0; }

const amp_graph_value *amp_graph_value_at(const amp_graph *g, int i)
{
  return i >= 0 && i < g->nvalue ? &g->values[i].info : NULL;
}

const amp_graph_node *amp_graph_node_at(const amp_graph *g, int i)
{
  return i >= 0 && i < g->nnode ? &g->nodes[i] : NULL;
}

const amp_graph_size *amp_graph_size_at(const amp_graph *g, int i)
{
  return i >= 0 && i < g->nsize ? &g->sizes[i] : NULL;
}

int amp_graph_group(const amp_graph *g, int i)
{
  if (i < 0 || i >= g->nnode) return 0;
  if (i < g->nkept) return -1;
  for (int k = 0; k < g->nchain; k++)
    if (i >= g->chains[k].first && i - g->chains[k].first < g->chains[k].count) return k + 1;
  return 0;
}

int amp_graph_input(const amp_graph *g, int i) { return i >= 0 && i < g->ninput ? g->inputs[i] : -1; }
int amp_graph_output(const amp_graph *g, int i) { return i >= 0 && i < g->noutput ? g->outputs[i] : -1; }
