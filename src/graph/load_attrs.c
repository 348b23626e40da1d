/*
** graph/load_attrs.c: attributes of nodes, and the numbers in them that follow free sizes, from a file's text.
**
** Attributes stand by their names; where they lie in slots the row's schema says. One that a file has not takes its
** default, one that has none must be there.
*/
#include <stdio.h>
#include "graph/load.h"

static int bad_attribute(const amp_graph_node *n, const amp_attribute *a, const char *what)
{
  return amp__fail(AMP_E_VALUE, "node '%.80s' (%s): attribute '%.*s' %s", n->name, amp__ops[n->op].info.name, a->length,
                   a->name, what);
}

/* i1 is a list of one. */
static bool is_list(const amp_attribute *a) { return a->count > 1 || (a->colon[2] >= '0' && a->colon[2] <= '9'); }

/* The place of a word among a choice's, -1: it is none of them. */
static int place_of_word(const amp_attribute *a, const char *word)
{
  size_t length = strlen(word);
  const char *p = a->colon + 2;
  for (int i = 0;; i++) {
    size_t n = strcspn(p, ",=? ");
    if (n == length && memcmp(p, word, n) == 0) return i;
    if (p[n] != ',') return -1;
    p += n + 1;
  }
}

static bool read_one(const loader *l, uint32_t item, const amp_attribute *a, amp_slot *to)
{
  const json *j = &l->json;
  const char *word = json_text(j, item);
  bool flag;
  int found = -1;
  switch (a->type) {
  case 'f':
  case 'F': return json_number(j, item, &to->f);
  case 'b':
    if (load_flag(j, item, "?", &flag) < 0) return false;
    to->i = flag;
    return true;
  case 't':
    for (int t = 0; word && t < AMP_DTYPE_COUNT; t++)
      if (strcmp(amp_dtype_name(t), word) == 0) found = t;
    break;
  case 'e': found = word ? place_of_word(a, word) : -1; break;
  case 'v': found = load_device(j, item, "?"); break;
  default: return json_integer(j, item, &to->i);
  }
  to->i = found;
  return found >= 0;
}

static int read_attribute(const loader *l, uint32_t item, const amp_graph_node *n, const amp_attribute *a,
                          amp_slot *attrs)
{
  const json *j = &l->json;
  amp_slot *to = attrs + a->slot;
  if (!is_list(a)) return read_one(l, item, a, to) ? 0 : bad_attribute(n, a, "has an impossible value");
  bool counted = a->type != 'i'; /* the list begins with its length */
  if (json_kind_of(j, item) != JSON_ARRAY) return bad_attribute(n, a, "is no list");
  int most = a->count - counted, held = (int)j->items[item].length;
  if (held > most || (!counted && held != most)) return bad_attribute(n, a, "has too many values, or too few");
  if (counted) to++->i = held;
  for (uint32_t i = item + 1; i < j->items[item].next; i = j->items[i].next, to++) {
    if (!counted && a->optional && json_kind_of(j, i) == JSON_NULL) to->i = AMP_NONE;
    else if (!read_one(l, i, a, to)) return bad_attribute(n, a, "has an impossible value");
  }
  return 0;
}

/* The attribute of a row by its name; false: it has none such. */
static bool find_attribute(const amp_op_desc *d, const char *name, amp_attribute *a)
{
  *a = (amp_attribute){ 0 };
  while (amp__next_attribute(d, a))
    if (strlen(name) == (size_t)a->length && memcmp(name, a->name, (size_t)a->length) == 0) return true;
  return false;
}

int load_attributes(loader *l, uint32_t object, const amp_graph_node *n, amp_slot *attrs)
{
  const json *j = &l->json;
  const amp_op_desc *d = n->op >= 0 ? &amp__ops[n->op] : NULL;
  amp_attribute a;
  uint32_t seen = 0;
  int rc;
  if (d) memcpy(attrs, d->defaults, sizeof *attrs * (size_t)d->info.nslot);
  if (object && json_kind_of(j, object) != JSON_OBJECT)
    return amp__fail(AMP_E_VALUE, "node '%.80s': its attributes are no object", n->name);
  for (uint32_t i = object + 1; object && i < j->items[object].next; i = j->items[i + 1].next) {
    const char *name = json_text(j, i);
    if (d == NULL || !find_attribute(d, name, &a))
      return amp__fail(AMP_E_VALUE, "node '%.80s': %s has no attribute '%.80s'", n->name, d ? d->info.name : "detach",
                       name);
    if (seen >> a.slot & 1) return bad_attribute(n, &a, "stands there twice");
    seen |= 1u << a.slot;
    if ((rc = read_attribute(l, i + 1, n, &a, attrs)) < 0) return rc;
  }
  a = (amp_attribute){ 0 };
  while (d && amp__next_attribute(d, &a))
    if (!(seen >> a.slot & 1) && !a.optional && !a.defaulted) return bad_attribute(n, &a, "is missing");
  return 0;
}

/* -- Numbers that follow sizes --------------------------------------------------------- */

enum { S_NODE, S_NUMBER, S_FREE, S_ATTR, S_AT, S_NUMERATOR, S_DENOMINATOR, S_MORE, S_POWERS, S_COUNT };

/* The slot of a node's attribute, or of a value in its list. */
static int find_slot(const loader *l, const uint32_t *at, amp_graph_size *s)
{
  const amp_graph_node *n = &l->graph->nodes[s->node];
  const char *name = at[S_ATTR] ? json_text(&l->json, at[S_ATTR]) : NULL;
  amp_attribute a;
  int64_t place = 0;
  if (n->op < 0 || name == NULL || !find_attribute(&amp__ops[n->op], name, &a) || strchr("btev", a.type))
    return amp__fail(AMP_E_VALUE, "node '%.80s' has no number '%.80s' that could follow a size", n->name,
                     name ? name : "?");
  int64_t most = !is_list(&a) ? 0 : a.type == 'i' ? a.count : n->attrs[a.slot].i;
  if (at[S_AT] && !json_integer(&l->json, at[S_AT], &place)) place = -1;
  if (place < (is_list(&a) ? 1 : 0) || place > most)
    return bad_attribute(n, &a, "has no such value that could follow a size");
  s->slot = a.slot + (int)place - (is_list(&a) && a.type == 'i');
  s->real = a.type == 'f' || a.type == 'F';
  return 0;
}

static int find_place(const loader *l, const uint32_t *at, amp_graph_size *s)
{
  int64_t which;
  const char *name;
  if ((at[S_NODE] != 0) + (at[S_NUMBER] != 0) + (at[S_FREE] != 0) != 1 || (!at[S_NODE] && (at[S_ATTR] || at[S_AT])))
    return amp__fail(AMP_E_VALUE, "a size has not one place");
  if (at[S_FREE]) {
    if (!json_integer(&l->json, at[S_FREE], &which) || which < 1 || which > l->graph->nfree)
      return amp__fail(AMP_E_VALUE, "a size is of a free size that the graph has not");
    s->node = -2;
    s->slot = (int)which - 1;
    return 0;
  }
  name = json_text(&l->json, at[S_NODE] ? at[S_NODE] : at[S_NUMBER]);
  s->node = at[S_NODE] ? name ? map_find(&l->nodes, name) : -1 : -1;
  if (at[S_NODE] && s->node >= 0) return find_slot(l, at, s);
  s->slot = at[S_NUMBER] && name ? map_find(&l->values, name) : -1;
  if (s->slot < 0) return amp__fail(AMP_E_VALUE, "a size is of '%.80s', which is not there", name ? name : "?");
  return 0;
}

int load_size(loader *l, uint32_t item)
{
  static const char *const keys[S_COUNT]
      = { "node", "number", "free", "attr", "at", "numerator", "denominator", "more", "powers" };
  const json *j = &l->json;
  uint32_t at[S_COUNT];
  amp_graph_size s = { 0 };
  int rc = json_fields(j, item, "a size", keys, S_COUNT, at), n = 0;
  if (rc < 0 || (rc = find_place(l, at, &s)) < 0) return rc;
  double *const numbers[] = { &s.numerator, &s.denominator, &s.more };
  for (int k = 0; k < 3; k++)
    if (at[S_NUMERATOR + k] == 0 || !json_number(j, at[S_NUMERATOR + k], numbers[k])
        || !__builtin_isfinite(*numbers[k]))
      return amp__fail(AMP_E_VALUE, "a size has no %s", keys[S_NUMERATOR + k]);
  uint32_t powers = at[S_POWERS];
  if (!powers || json_kind_of(j, powers) != JSON_ARRAY || (int)j->items[powers].length != l->graph->nfree)
    return amp__fail(AMP_E_VALUE, "a size has not %d powers", l->graph->nfree);
  for (uint32_t i = powers + 1; i < j->items[powers].next; i = j->items[i].next) {
    int64_t power;
    if (!json_integer(j, i, &power) || power < -100 || power > 100)
      return amp__fail(AMP_E_VALUE, "a size has an impossible power");
    s.power[n++] = (int8_t)power;
  }
  return amp_graph_add_size(amp__S, l->graph, &s);
}
