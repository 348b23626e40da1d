/*
** graph/load.c: reads a graph from a file.
**
** The file is a safetensors file (weights.c); the graph is JSON in its metadata, under `amp.graph`, and its check
** sum (CRC-32, 8 hexadecimal digits) under `amp.graph.crc32`, which may be missing:
**
**   {"version": 1, "values": [...], "nodes": [...], "outputs": [names], "sizes": [...], and what is Lua's:
**    "arguments", "results" (how tensors nest), "names", "places", "training", "region" (that its function asked for)}
**   value   {"name", "kind": "input", "dtype", "shape", "device", "free": [dimensions]}
**           {"name", "kind": "parameter" | "buffer" | "constant", "tensor": its name in the file, "dtype", "shape",
**            "device", "requires_grad", "weight", "mask", "order": dimensions from the outermost in memory,
**            "lowered": a conversion stores it in 16 bits}
**           {"name", "kind": "number", "value"}
**   node    {"name", "op", "inputs": [names or null], "attrs", "inplace", "out", "grad",
**            "outputs": [{"name", "dtype", "shape", "device"}, null, or the name of a value that is there],
**            "regions": {device: {"enabled", "dtype", "cache", "verbose"; of 8 bits "recipe", "history"}}}
**   size    {"node" | "number": name, or "free": n, "attr", "at", "numerator", "denominator", "more", "powers": [...]}
**
** Values are known by their names, ops and attributes too, words of choices as words, so that a library with another
** table reads the file. Numbers that JSON has not are texts. The file may be anyone's: what is unknown, twice, or out
** of range is an error, and a file of a newer version is refused before anything else is looked at.
*/
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include "graph/load.h"

enum { VERSION = 1 };

/* -- Parts of values ---------------------------------------------------------------- */

static int value_named(const loader *l, uint32_t item, const char *where)
{
  const char *name = json_text(&l->json, item);
  int value = name ? map_find(&l->values, name) : -1;
  if (value >= 0) return value;
  return amp__fail(AMP_E_VALUE, "%.80s: there is no value '%.80s' before it", where, name ? name : "?");
}

static int dtype_in(const loader *l, uint32_t item, const char *where)
{
  const char *text = item ? json_text(&l->json, item) : NULL;
  for (int t = 0; text && t < AMP_DTYPE_COUNT; t++)
    if (strcmp(amp_dtype_name(t), text) == 0) return t;
  return amp__fail(AMP_E_VALUE, "'%.80s': '%.40s' is no dtype", where, text ? text : "?");
}

int load_device(const json *j, uint32_t item, const char *where)
{
  const char *text = item ? json_text(j, item) : NULL;
  if (text && strcmp(text, "cpu") == 0) return AMP_CPU;
  if (text && strncmp(text, "cuda:", 5) == 0) {
    int n = 0;
    const char *p = text + 5;
    for (; *p >= '0' && *p <= '9' && n < 1000; p++) n = n * 10 + (*p - '0');
    if (*p == 0 && n >= 1 && n <= 128) return AMP_CUDA * 256 + n - 1;
  }
  return amp__fail(AMP_E_VALUE, "'%.80s': '%.40s' is no device", where, text ? text : "?");
}

int load_flag(const json *j, uint32_t item, const char *where, bool *out)
{
  *out = item && json_kind_of(j, item) == JSON_TRUE;
  if (item == 0 || *out || json_kind_of(j, item) == JSON_FALSE) return 0;
  return amp__fail(AMP_E_VALUE, "'%.80s': neither true nor false", where);
}

/* Dtype, shape and device of a value. */
static int read_info(const loader *l, const char *name, uint32_t dtype, uint32_t shape, uint32_t device,
                     amp_graph_value *v)
{
  int ndim, type = dtype_in(l, dtype, name);
  if (type < 0) return type;
  int place = load_device(&l->json, device, name), rc;
  if (place < 0) return place;
  if ((rc = json_sizes(&l->json, shape, name, type, &ndim, v->size)) < 0) return rc;
  v->dtype = (uint8_t)type;
  v->ndim = (uint8_t)ndim;
  v->device = (uint8_t)(place >> 8);
  v->device_index = (uint8_t)(place & 255);
  return 0;
}

/* -- Values --------------------------------------------------------------------------- */

static int read_free(const loader *l, uint32_t list, amp_graph_value *v)
{
  if (list == 0) return 0;
  if (json_kind_of(&l->json, list) != JSON_ARRAY) return amp__fail(AMP_E_VALUE, "'%.80s': free is no list", v->name);
  for (uint32_t i = list + 1; i < l->json.items[list].next; i = l->json.items[i].next) {
    int64_t dim;
    if (!json_integer(&l->json, i, &dim) || dim < 1 || dim > v->ndim || v->free_dims >> (dim - 1) & 1)
      return amp__fail(AMP_E_VALUE, "'%.80s': a free dimension that it has not", v->name);
    v->free_dims |= (uint8_t)(1 << (dim - 1));
  }
  return 0;
}

/* The tensor in the layout that it had: dimensions from the outermost to the innermost. */
static amp_tensor *lay_out(const loader *l, uint32_t order, amp_tensor *from, const char *name)
{
  amp_meta m;
  uint32_t seen = 0;
  int n = 0;
  amp__meta_of(from, &m);
  int64_t dims[AMP_MAX_DIM], stride = 1;
  if (json_kind_of(&l->json, order) == JSON_ARRAY && (int)l->json.items[order].length == from->ndim)
    for (uint32_t i = order + 1; i < l->json.items[order].next; i = l->json.items[i].next, n++)
      if (json_integer(&l->json, i, &dims[n]) && dims[n] >= 1 && dims[n] <= from->ndim) seen |= 1u << (dims[n] - 1);
  if (n != from->ndim || seen != (1u << from->ndim) - 1) {
    amp__fail(AMP_E_VALUE, "'%.80s': its order is no order of its dimensions", name);
    return NULL;
  }
  for (int d = n - 1; d >= 0; stride *= from->size[dims[d--] - 1]) m.stride[dims[d] - 1] = stride;
  m.strides = AMP_M_STRIDES;
  amp_tensor *pair[2] = { amp__tensor_new(&m), from };
  if (pair[0] && amp__dispatch(AMP_OP_copy, AMP_INPLACE, pair, 2, NULL, NULL) < 0) {
    amp__free(pair[0]);
    return NULL;
  }
  return pair[0];
}

enum {
  V_NAME,
  V_KIND,
  V_DTYPE,
  V_SHAPE,
  V_DEVICE,
  V_FREE,
  V_TENSOR,
  V_GRAD,
  V_WEIGHT,
  V_MASK,
  V_ORDER,
  V_LOWERED,
  V_VALUE,
  V_COUNT
};

static int read_tensor(loader *l, const uint32_t *at, amp_graph_value *v)
{
  const char *name = at[V_TENSOR] ? json_text(&l->json, at[V_TENSOR]) : NULL;
  int32_t which = name ? map_find(&l->file.names, name) : -1;
  if (which < 0)
    return amp__fail(AMP_E_VALUE, "the tensor of '%.80s' ('%.80s') is missing", v->name, name ? name : "no name");
  weight *w = &l->file.weights[which];
  if (w->dtype != v->dtype || w->ndim != v->ndim || memcmp(w->size, v->size, sizeof *v->size * v->ndim) != 0)
    return amp__fail(AMP_E_VALUE, "'%.80s' is %s of %s in the graph, and its tensor %s of %s", v->name,
                     amp_dtype_name(v->dtype), amp__shape_str(v->ndim, v->size), amp_dtype_name(w->dtype),
                     amp__shape_str(w->ndim, w->size));
  bool fresh = w->tensor == NULL, grad, kept, mask, lowered; /* the last one is Lua's */
  if (weights_get(&l->file, which) == NULL) return amp__S->err.code;
  int rc = 0;
  if ((rc = load_flag(&l->json, at[V_GRAD], v->name, &grad)) < 0
      || (rc = load_flag(&l->json, at[V_WEIGHT], v->name, &kept)) < 0
      || (rc = load_flag(&l->json, at[V_MASK], v->name, &mask)) < 0
      || (rc = load_flag(&l->json, at[V_LOWERED], v->name, &lowered)) < 0)
    return rc;
  if (fresh && at[V_ORDER]) {
    amp_tensor *laid = lay_out(l, at[V_ORDER], w->tensor, v->name);
    if (laid == NULL) return amp__S->err.code;
    amp__free(w->tensor);
    w->tensor = laid;
  }
  v->tensor = w->tensor;
  amp_ref t = { v->tensor };
  if (grad && (rc = amp_requires_grad(amp__S, &t, 1)) < 0) return rc;
  if (kept) v->tensor->flags |= AMP_T_WEIGHT;
  if (mask && v->dtype == AMP_UINT8) v->tensor->flags |= AMP_T_MASK;
  return 0;
}

static int read_number_value(loader *l, const uint32_t *at, amp_graph_value *v)
{
  double value;
  if (at[V_VALUE] == 0 || !json_number(&l->json, at[V_VALUE], &value))
    return amp__fail(AMP_E_VALUE, "'%.80s' is no number", v->name);
  v->tensor = amp__number(value);
  v->dtype = AMP_FLOAT64;
  return v->tensor ? 0 : amp__S->err.code;
}

static int read_value(loader *l, uint32_t item)
{
  static const char *const keys[V_COUNT] = { "name",          "kind",   "dtype", "shape", "device",  "free", "tensor",
                                             "requires_grad", "weight", "mask",  "order", "lowered", "value" };
  static const char *const kinds[] = { "input", "parameter", "buffer", "constant", "number" };
  static const uint32_t fields[] = { 1 << V_FREE, 0, 0, 0, 1 << V_VALUE };
  const uint32_t all = 1 << V_NAME | 1 << V_KIND, info = 1 << V_DTYPE | 1 << V_SHAPE | 1 << V_DEVICE;
  const uint32_t tensor = 1 << V_TENSOR | 1 << V_GRAD | 1 << V_WEIGHT | 1 << V_MASK | 1 << V_ORDER | 1 << V_LOWERED;
  uint32_t at[V_COUNT];
  amp_graph_value v = { .node = -1 };
  int rc = json_fields(&l->json, item, "a value", keys, V_COUNT, at), kind = 0;
  if (rc < 0) return rc;
  v.name = at[V_NAME] ? json_text(&l->json, at[V_NAME]) : NULL;
  const char *word = at[V_KIND] ? json_text(&l->json, at[V_KIND]) : NULL;
  if (v.name == NULL || word == NULL) return amp__fail(AMP_E_VALUE, "a value has no name or kind");
  while (kind < 5 && strcmp(kinds[kind], word) != 0) kind++;
  if (kind == 5) return amp__fail(AMP_E_VALUE, "'%.80s' is of the unknown kind '%.40s'", v.name, word);
  uint32_t allowed = all | fields[kind] | (kind == AMP_G_NUMBER ? 0 : info)
                     | (kind != AMP_G_NUMBER && kind != AMP_G_INPUT ? tensor : 0);
  for (int k = 0; k < V_COUNT; k++)
    if (at[k] && !(allowed >> k & 1))
      return amp__fail(AMP_E_VALUE, "'%.80s' has an unknown field '%s'", v.name, keys[k]);
  v.kind = (uint8_t)kind;
  if (kind == AMP_G_NUMBER) rc = read_number_value(l, at, &v);
  else {
    rc = read_info(l, v.name, at[V_DTYPE], at[V_SHAPE], at[V_DEVICE], &v);
    if (rc == 0) rc = kind == AMP_G_INPUT ? read_free(l, at[V_FREE], &v) : read_tensor(l, at, &v);
  }
  if (rc == 0) rc = load_add_name(l, v.name, l->graph->nvalue);
  if (rc == 0) rc = graph_add_value(l->graph, &v);
  if (kind == AMP_G_NUMBER) amp__free(v.tensor);
  l->graph->nfree += __builtin_popcount(v.free_dims);
  return rc < 0 ? rc : 0;
}

int load_add_name(loader *l, const char *name, int value)
{
  if (*name == 0) return amp__fail(AMP_E_VALUE, "a value has an empty name");
  int rc = map_add(&l->values, name, value);
  return rc > 0 ? amp__fail(AMP_E_VALUE, "two values are called '%.80s'", name) : rc;
}

/* -- Nodes ------------------------------------------------------------------------------ */

enum { N_NAME, N_OP, N_INPUTS, N_OUTPUTS, N_ATTRS, N_INPLACE, N_OUT, N_GRAD, N_REGIONS, N_COUNT };

static int find_op(loader *l, const uint32_t *at, amp_graph_node *n)
{
  const char *op = at[N_OP] ? json_text(&l->json, at[N_OP]) : NULL;
  if (op == NULL) return amp__fail(AMP_E_VALUE, "node '%.80s' has no op", n->name);
  n->op = strcmp(op, "detach") == 0 ? AMP_G_DETACH : map_find(&l->ops, op);
  if (n->op >= 0 || strcmp(op, "detach") == 0) return 0;
  return amp__fail(AMP_E_VALUE, "node '%.80s' is of the op '%.80s', which amp %s has not", n->name, op, AMP_VERSION);
}

/* Operands into `in`, which has room for them. */
static int read_operands(loader *l, uint32_t list, amp_graph_node *n, int32_t *in)
{
  const amp_op_desc *d = n->op >= 0 ? &amp__ops[n->op] : NULL;
  char where[100];
  int i = 0;
  snprintf(where, sizeof where, "node '%.80s'", n->name);
  for (uint32_t item = list + 1; item < l->json.items[list].next; item = l->json.items[item].next, i++) {
    in[i] = json_kind_of(&l->json, item) == JSON_NULL ? -1 : value_named(l, item, where);
    if (in[i] < -1) return in[i];
    bool listed = d && (d->info.flags & AMP_F_LIST) && i >= d->info.nin - 1;
    if (in[i] == -1 && (d == NULL || listed || (i < d->info.nin && (d->required >> i & 1))))
      return amp__fail(AMP_E_VALUE, "%s: operand %d is missing", where, i + 1);
    if (in[i] >= 0 && l->graph->values[in[i]].info.kind == AMP_G_NUMBER && !(d && i < 8 && (d->number_ok >> i & 1)))
      return amp__fail(AMP_E_VALUE, "%s: operand %d can't be a number", where, i + 1);
  }
  n->nin = i;
  n->in = in;
  if (d && i < d->nrequired) return amp__fail(AMP_E_VALUE, "%s: operand %d is missing", where, i + 1);
  return 0;
}

/* What comes out: values of its own, described, or one that is there, by its name. */
static int read_results(loader *l, uint32_t list, amp_graph_node *n, amp_graph_value *results)
{
  static const char *const keys[] = { "name", "dtype", "shape", "device" };
  uint32_t at[4];
  int i = 0, rc;
  for (uint32_t item = list + 1; item < l->json.items[list].next; item = l->json.items[item].next, i++) {
    n->out[i] = -1;
    if (json_kind_of(&l->json, item) == JSON_NULL) continue;
    if (json_kind_of(&l->json, item) == JSON_STRING) {
      if (i > 0 || n->flags == 0) return amp__fail(AMP_E_VALUE, "node '%.80s' changes nothing in place", n->name);
      if ((n->out[i] = value_named(l, item, n->name)) < 0) return n->out[i];
      results[i].kind = AMP_G_RESULT;
      continue;
    }
    if ((rc = json_fields(&l->json, item, "a result", keys, 4, at)) < 0) return rc;
    if (at[0] == 0 || json_text(&l->json, at[0]) == NULL)
      return amp__fail(AMP_E_VALUE, "node '%.80s': result %d has no name", n->name, i + 1);
    results[i].name = json_text(&l->json, at[0]);
    results[i].kind = AMP_G_RESULT;
    if ((rc = read_info(l, results[i].name, at[1], at[2], at[3], &results[i])) < 0) return rc;
  }
  n->nout = i;
  if ((n->flags & AMP_INPLACE) && (n->nin == 0 || n->in[0] < 0 || n->out[0] != n->in[0]))
    return amp__fail(AMP_E_VALUE, "node '%.80s' works in place and gives another value", n->name);
  if ((n->flags & AMP_OUT) && n->out[0] < 0) return amp__fail(AMP_E_VALUE, "node '%.80s' has no out", n->name);
  return 0;
}

static int read_regions(loader *l, uint32_t object, amp_graph_node *n)
{
  static const char *const devices[] = { "cpu", "cuda" };
  static const char *const keys[] = { "enabled", "dtype", "cache", "verbose", "recipe", "history" };
  uint32_t of[2], at[6];
  int rc = json_fields(&l->json, object, n->name, devices, 2, of);
  for (int d = 0; rc == 0 && d < 2; d++) {
    if (of[d] == 0) continue;
    if ((rc = json_fields(&l->json, of[d], n->name, keys, 6, at)) < 0) break;
    bool enabled, cache, verbose;
    int dtype = dtype_in(l, at[1], n->name);
    if (dtype < 0) return dtype;
    if ((rc = load_flag(&l->json, at[0], n->name, &enabled)) < 0
        || (rc = load_flag(&l->json, at[2], n->name, &cache)) < 0
        || (rc = load_flag(&l->json, at[3], n->name, &verbose)) < 0)
      return rc;
    if (enabled && !amp__is_half(dtype))
      return amp__fail(AMP_E_VALUE, "node '%.80s' has a region of %s", n->name, amp_dtype_name(dtype));
    int64_t recipe = 0, history = 0;
    if ((at[4] && !json_integer(&l->json, at[4], &recipe)) || (at[5] && !json_integer(&l->json, at[5], &history))
        || recipe < 0 || recipe > AMP_FLOAT8_BLOCK || history < 0 || history > 2047)
      return amp__fail(AMP_E_VALUE, "node '%.80s' has a region of an unknown recipe", n->name);
    n->regions |= (int8_t)(1 << d);
    n->autocast[d] = (amp_autocast_state){ enabled, (uint8_t)dtype, (uint8_t)(cache | recipe << 2 | history >> 7 << 4),
                                           (uint8_t)(verbose | (history & 127) << 1) };
  }
  return rc;
}

/* Its name, op, operands, attributes, modes: all but results. */
static int read_head(loader *l, const uint32_t *at, amp_graph_node *n, int32_t *in, amp_slot *attrs)
{
  bool inplace, out, grad;
  int rc;
  if ((rc = load_flag(&l->json, at[N_INPLACE], n->name, &inplace)) < 0
      || (rc = load_flag(&l->json, at[N_OUT], n->name, &out)) < 0
      || (rc = load_flag(&l->json, at[N_GRAD], n->name, &grad)) < 0 || (rc = find_op(l, at, n)) < 0)
    return rc;
  if (inplace && out) return amp__fail(AMP_E_VALUE, "node '%.80s' works in place and into out", n->name);
  n->flags = inplace ? AMP_INPLACE : out ? AMP_OUT : 0;
  n->grad = (int8_t)(at[N_GRAD] ? grad : -1);
  if ((rc = read_operands(l, at[N_INPUTS], n, in)) < 0) return rc;
  if ((rc = load_attributes(l, at[N_ATTRS], n, attrs)) < 0) return rc;
  n->attrs = attrs;
  return at[N_REGIONS] ? read_regions(l, at[N_REGIONS], n) : 0;
}

static int read_node(loader *l, uint32_t item)
{
  static const char *const keys[N_COUNT]
      = { "name", "op", "inputs", "outputs", "attrs", "inplace", "out", "grad", "regions" };
  uint32_t at[N_COUNT];
  amp_graph_value results[AMP_MAX_OUT] = { 0 };
  amp_slot attrs[AMP_MAX_SLOT];
  amp_graph_node n = { .out = { -1, -1, -1, -1 } };
  int rc = json_fields(&l->json, item, "a node", keys, N_COUNT, at);
  if (rc < 0) return rc;
  n.name = at[N_NAME] ? json_text(&l->json, at[N_NAME]) : NULL;
  if (n.name == NULL || *n.name == 0) return amp__fail(AMP_E_VALUE, "a node has no name");
  for (int k = N_INPUTS; k <= N_OUTPUTS; k++)
    if (at[k] == 0 || json_kind_of(&l->json, at[k]) != JSON_ARRAY)
      return amp__fail(AMP_E_VALUE, "node '%.80s' has no list of %s", n.name, keys[k]);
  if (l->json.items[at[N_INPUTS]].length > AMP_MAX_LIST || l->json.items[at[N_OUTPUTS]].length > AMP_MAX_OUT)
    return amp__fail(AMP_E_VALUE, "node '%.80s' has too many inputs or outputs", n.name);
  int32_t *in = malloc(sizeof *in * (l->json.items[at[N_INPUTS]].length + 1));
  if (in == NULL) return amp__nomem(sizeof *in * l->json.items[at[N_INPUTS]].length);
  rc = read_head(l, at, &n, in, attrs);
  if (rc == 0) rc = read_results(l, at[N_OUTPUTS], &n, results);
  int which = l->graph->nnode, values = l->graph->nvalue;
  if (rc == 0) rc = graph_add_node(l->graph, &n, results);
  free(in);
  if (rc < 0) return rc;
  if (strcmp(l->graph->nodes[which].name, n.name) != 0)
    return amp__fail(AMP_E_VALUE, "two nodes or values are called '%.80s'", n.name);
  for (rc = 0; rc == 0 && values < l->graph->nvalue; values++)
    rc = load_add_name(l, l->graph->values[values].info.name, values);
  for (int i = 0; rc == 0 && i < n.nout; i++)
    if (results[i].name && map_find(&l->values, results[i].name) != l->graph->nodes[which].out[i])
      rc = amp__fail(AMP_E_VALUE, "two values are called '%.80s'", results[i].name);
  if (rc == 0) rc = map_add(&l->nodes, n.name, which);
  return rc <= 0 ? rc : amp__fail(AMP_E_VALUE, "two nodes are called '%.80s'", n.name);
}

/* -- The whole ---------------------------------------------------------------------------- */

enum {
  G_VERSION,
  G_AMP,
  G_VALUES,
  G_NODES,
  G_SIZES,
  G_OUTPUTS,
  G_ARGUMENTS,
  G_RESULTS,
  G_NAMES,
  G_PLACES,
  G_TRAINING,
  G_REGION,
  G_COUNT
};

static int each(loader *l, uint32_t list, const char *what, bool must, int (*read)(loader *l, uint32_t item))
{
  int rc = 0;
  if (list == 0 && !must) return 0;
  if (list == 0 || json_kind_of(&l->json, list) != JSON_ARRAY)
    return amp__fail(AMP_E_VALUE, "it has no list of %s", what);
  for (uint32_t i = list + 1; rc == 0 && i < l->json.items[list].next; i = l->json.items[i].next) rc = read(l, i);
  return rc;
}

static int read_outputs(loader *l, uint32_t list)
{
  if (list == 0 || json_kind_of(&l->json, list) != JSON_ARRAY)
    return amp__fail(AMP_E_VALUE, "it has no list of outputs");
  int32_t *outputs = malloc(sizeof *outputs * (l->json.items[list].length + 1));
  if (outputs == NULL) return amp__nomem(sizeof *outputs * l->json.items[list].length);
  int m = 0, rc = 0;
  for (uint32_t i = list + 1; rc == 0 && i < l->json.items[list].next; i = l->json.items[i].next)
    if ((outputs[m++] = value_named(l, i, "an output")) < 0) rc = AMP_E_VALUE;
  if (rc == 0) rc = graph_finish(l->graph, outputs, m);
  free(outputs);
  return rc;
}

/* A word of a region: a dtype of 16 bits, or off; -1: neither. */
static int region_word(const char *text, size_t length)
{
  if (length == 3 && strncmp(text, "off", 3) == 0) return GRAPH_OFF;
  for (int t = 0; t < AMP_DTYPE_COUNT; t++)
    if (amp__is_half(t) && strlen(amp_dtype_name(t)) == length && strncmp(text, amp_dtype_name(t), length) == 0)
      return t;
  return -1;
}

/* The region that the graph's function asked for, as amp wrote it: "cpu off, cuda float16". */
static int read_region(loader *l, uint32_t item)
{
  if (item == 0) return 0;
  const char *text = json_text(&l->json, item), *comma = text ? strchr(text, ',') : NULL;
  int cpu = -1, cuda = -1;
  if (comma && strncmp(text, "cpu ", 4) == 0 && strncmp(comma, ", cuda ", 7) == 0) {
    cpu = region_word(text + 4, (size_t)(comma - text - 4));
    cuda = region_word(comma + 7, strlen(comma + 7));
  }
  if (cpu < 0 || cuda < 0)
    return amp__fail(AMP_E_VALUE, "the region that its function asked for is none: '%.60s'", text ? text : "?");
  l->graph->asked = true;
  l->graph->region[AMP_CPU] = (uint8_t)cpu;
  l->graph->region[AMP_CUDA] = (uint8_t)cuda;
  return 0;
}

static int read_graph(loader *l)
{
  static const char *const keys[G_COUNT] = { "version",   "amp",     "values", "nodes",  "sizes",    "outputs",
                                             "arguments", "results", "names",  "places", "training", "region" };
  uint32_t at[G_COUNT];
  int64_t version;
  int rc;
  if (!json_integer(&l->json, json_get(&l->json, 0, "version"), &version) || version < 1)
    return amp__fail(AMP_E_VALUE, "its graph has no version");
  if (version > VERSION)
    return amp__fail(AMP_E_UNSUPPORTED, "its graph is of version %lld, and amp %s reads up to %d: a newer amp wrote it",
                     (long long)version, AMP_VERSION, VERSION);
  if ((rc = json_fields(&l->json, 0, "the graph", keys, G_COUNT, at)) < 0) return rc;
  for (int op = 0; rc == 0 && op < AMP_OP_COUNT; op++) rc = map_add(&l->ops, amp__ops[op].info.name, op);
  if (rc == 0) rc = each(l, at[G_VALUES], "values", true, read_value);
  if (rc == 0 && l->graph->nfree > GRAPH_SIZES) rc = amp__fail(AMP_E_VALUE, "it has %d free sizes", l->graph->nfree);
  if (rc == 0) rc = each(l, at[G_NODES], "nodes", true, read_node);
  if (rc == 0) rc = each(l, at[G_SIZES], "sizes", false, load_size);
  if (rc == 0) rc = read_region(l, at[G_REGION]);
  bool training;
  if (rc == 0) rc = load_flag(&l->json, at[G_TRAINING], "training", &training);
  return rc < 0 ? rc : read_outputs(l, at[G_OUTPUTS]);
}

/* A check sum stands before the text where amp wrote it: what no rule finds, it does. */
static int check_sum(const loader *l, const char *text, size_t length)
{
  if (l->file.sum == NULL) return 0;
  char sum[9];
  snprintf(sum, sizeof sum, "%08x", amp_crc32(0, text, length));
  return strcmp(sum, l->file.sum) == 0 ? 0
                                       : amp__fail(AMP_E_VALUE, "its graph is damaged: the check sum is another one");
}

static int load(loader *l, const char *path, int device)
{
  int rc = weights_open(&l->file, path);
  if (rc < 0) return rc;
  if (l->file.graph == NULL)
    return amp__fail(AMP_E_VALUE, "it holds tensors alone, and no graph (no amp.graph in its metadata)");
  size_t length = strlen(l->file.graph);
  if ((l->graph->text = malloc(length + 1)) == NULL) return amp__nomem(length + 1);
  memcpy(l->graph->text, l->file.graph, length + 1);
  if ((rc = json_parse(&l->json, l->file.graph, length)) < 0) return rc;
  if ((rc = read_graph(l)) < 0) return rc;
  if ((rc = check_sum(l, l->graph->text, length)) < 0) return rc;
  return graph_place(l->graph, device);
}

/* Out of any region, and with the numbers of a file whatever the program's locale is. */
static int load_plainly(loader *l, const char *path, int device)
{
  locale_t plain = newlocale(LC_NUMERIC_MASK, "C", NULL);
  if (plain == (locale_t)0) return amp__nomem(64);
  locale_t before = uselocale(plain);
  amp__plain quiet = amp__plain_begin();
  int rc = load(l, path, device);
  amp__plain_end(quiet);
  uselocale(before);
  freelocale(plain);
  return rc;
}

amp_graph *amp_graph_load(amp_state *S, const char *path, int device)
{
  if (S == NULL) return NULL;
  AMP_ENTER(S);
  int type = device >> 8, index = device & 255;
  loader l = { .file = { .fd = -1 } };
  int rc = 0;
  if (path == NULL) rc = amp__fail(AMP_E_ARGUMENT, "there is no path");
  else if (amp__tracing()) rc = amp__fail(AMP_E_STATE, "a graph is recorded, which can't hold the load of another one");
  else if (device < 0 || type >= AMP_DEVICE_COUNT || (type == AMP_CPU && index > 0)
           || index >= amp_device_available(type))
    rc = amp__fail(AMP_E_DEVICE, "device %s:%d is not there: %s", amp_device_name(type), index + 1,
                   amp_device_reason(type));
  else if ((l.graph = calloc(1, sizeof *l.graph)) == NULL) rc = amp__nomem(sizeof *l.graph);
  else {
    rc = load_plainly(&l, path, device);
    if (rc < 0) {
      amp_error e = S->err;
      amp__fail(e.code, "'%.400s': %s", path, e.message);
    }
  }
  json_free(&l.json);
  weights_close(&l.file);
  free(l.values.at);
  free(l.nodes.at);
  free(l.ops.at);
  if (rc == 0) rc = graph_find(l.graph);
  if (rc == 0) return l.graph;
  snprintf(S->err.op, sizeof S->err.op, "load_graph");
  amp_graph_free(l.graph);
  return NULL;
}

const char *amp_graph_text(const amp_graph *g) { return g ? g->text : NULL; }
