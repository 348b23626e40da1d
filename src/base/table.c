/*
** base/table.c: the descriptor array, made of amp_ops.def when the library is
** first used, and completed from each row's schema: how many tensors, which may
** be missing or numbers, how attributes lie in slots and what they default to.
** Reflection and policies for callers stand here too. What rows do is elsewhere;
** this file only reads them.
*/
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include "base/table.h"

amp_op_desc amp__ops[AMP_OP_COUNT];

/* What the table is made of, small and without pointers to texts: every pointer would be work for the loader */
static const struct {
  uint64_t flags;
  uint32_t dtypes;
  uint16_t save;
  uint8_t policy;
  char kind;
} rows[AMP_OP_COUNT] = {
#define AMP_OP(kind_, name_, schema_, infer_, policy_, dtypes_, save_, flags_, doc_) \
  { flags_, dtypes_, save_, AMP_##policy_, #kind_[0] },
#include "amp_ops.def"
#undef AMP_OP
};

/* Each row's name, schema and text, one behind the other */
static const char texts[] =
#define AMP_OP(kind_, name_, schema_, infer_, policy_, dtypes_, save_, flags_, doc_) #name_ "\0" schema_ "\0" doc_ "\0"
#include "amp_ops.def"
#undef AMP_OP
    ;

/* -- Schema ---------------------------------------------------------------- */

/* How many slots an attribute takes whose type follows `colon` */
static int slots_of(const char *colon)
{
  int n = isdigit((unsigned char)colon[2]) ? atoi(colon + 2) : 0;
  switch (colon[1]) {
  case 'I':
  case 'D':
  case 'F': return 1 + (n ? n : AMP_MAX_DIM);
  case 'i': return n ? n : 1;
  default: return 1;
  }
}

static bool is_word(const char *from, const char *end, const char *word)
{
  return (size_t)(end - from) == strlen(word) && memcmp(from, word, strlen(word)) == 0;
}

/* One attribute `name:type[?][=default]` from p to e, whose slots start at row->info.nslot. */
static void parse_attribute(amp_op_desc *row, const char *p, const char *e)
{
  const char *colon = memchr(p, ':', (size_t)(e - p));
  char type = colon[1];
  const char *eq = memchr(p, '=', (size_t)(e - p));
  bool optional = eq == NULL && e[-1] == '?';
  int count = slots_of(colon), at = row->info.nslot;
  if (type == 't' && optional) row->dtype_slot = (int8_t)at;
  if (is_word(p, colon, "training")) row->training_slot = (int8_t)at;
  if (strchr("IDFtvbe", type) && row->nrule < sizeof row->rule / sizeof row->rule[0]) {
    uint8_t most = type == 't' ? AMP_DTYPE_COUNT - 1 : type == 'b' ? 1 : (uint8_t)(count - 1);
    if (type == 'e') {
      most = 0;
      for (const char *w = colon; w < (eq ? eq : e); w++) most += *w == ',';
    }
    row->rule[row->nrule].slot = (uint8_t)at;
    row->rule[row->nrule].type = (uint8_t)type;
    row->rule[row->nrule].optional = optional;
    row->rule[row->nrule++].most = most;
  }
  for (int i = 0; i < count; i++) {
    amp_slot *s = &row->defaults[at + i];
    s->i = 0;
    if (optional) {
      if (i == 0 || type == 'i') s->i = AMP_NONE;
    } else if (eq && type == 'f') s->f = strtod(eq + 1, NULL);
    else if (eq) s->i = strtoll(eq + 1, NULL, 10);
  }
  row->info.nslot = at + count;
  AMP_ASSERT(row->info.nslot <= AMP_MAX_SLOT);
}

static void parse_schema(amp_op_desc *row)
{
  const char *p = row->info.schema;
  bool results = false;
  row->info.nout = 0;
  while (*p) {
    const char *e = p + strcspn(p, " ");
    if (results) {
      if (*p == '(' && row->info.nout == 1) row->info.flags |= AMP_F_AUX; /* a caller sees the first alone */
      row->info.nout++;
    } else if (e - p == 2 && memcmp(p, "->", 2) == 0) results = true;
    else if (memchr(p, ':', (size_t)(e - p))) parse_attribute(row, p, e);
    else {
      int i = row->info.nin++;
      char last = e[-1];
      if (last != '?' && last != '*') {
        row->required |= (uint8_t)(1 << i);
        row->nrequired = (uint8_t)(i + 1);
      }
      if (last == '#') row->number_ok |= (uint8_t)(1 << i);
      if (amp__row_is(row, AMP_R_STATISTICS)
          && (is_word(p, e - 1, "running_mean") || is_word(p, e - 1, "running_var") || is_word(p, e - 1, "batches")))
        row->statistics |= (uint8_t)(1 << i);
    }
    p = *e ? e + 1 : e;
  }
  if (!results) row->info.nout = 1;
  AMP_ASSERT(row->info.nin <= AMP_MAX_IN && row->info.nout <= AMP_MAX_OUT);
  AMP_ASSERT(!amp__row_is(row, AMP_R_STATISTICS) || (row->statistics && row->training_slot >= 0));
}

bool amp__next_attribute(const amp_op_desc *d, amp_attribute *a)
{
  const char *p = a->name ? a->colon : d->info.schema;
  int slot = a->name ? a->slot + a->count : 0;
  if (a->name) p += strcspn(p, " ");
  while (*p) {
    p += strspn(p, " ");
    const char *e = p + strcspn(p, " "), *colon = memchr(p, ':', (size_t)(e - p));
    if (e - p == 2 && memcmp(p, "->", 2) == 0) return false;
    if (colon) {
      const char *eq = memchr(p, '=', (size_t)(e - p));
      *a = (amp_attribute){
        p, colon, (int)(colon - p), slot, slots_of(colon), colon[1], eq == NULL && e[-1] == '?', eq != NULL
      };
      return true;
    }
    p = e;
  }
  return false;
}

/* The name of the attribute whose slots start at `slot`, for messages. */
static int attribute_name(const amp_op_desc *row, int slot, const char **name)
{
  amp_attribute a = { 0 };
  while (amp__next_attribute(row, &a))
    if (a.slot == slot) {
      *name = a.name;
      return a.length;
    }
  *name = "?";
  return 1;
}

int amp__check_attributes(const amp_op_desc *row, const amp_slot *attrs)
{
  for (int i = 0; i < row->nrule; i++) {
    int64_t v = attrs[row->rule[i].slot].i;
    if (amp_likely(v >= 0 && v <= row->rule[i].most)) continue;
    if (row->rule[i].optional && v == AMP_NONE) continue;
    if (row->rule[i].type == 'v' && v >= 0 && v >> 8 < AMP_DEVICE_COUNT) continue;
    const char *name;
    int count = attribute_name(row, row->rule[i].slot, &name);
    switch (row->rule[i].type) {
    case 't':
      return amp__fail(AMP_E_DTYPE, "attribute '%.*s': there is no dtype number %lld", count, name, (long long)v);
    case 'v':
      return amp__fail(AMP_E_DEVICE, "attribute '%.*s': there is no device number %lld", count, name, (long long)v);
    case 'I':
    case 'D':
    case 'F':
      return amp__fail(AMP_E_SHAPE, "attribute '%.*s': %lld values are given; at most %d are possible", count, name,
                       (long long)v, row->rule[i].most);
    default:
      return amp__fail(AMP_E_ARGUMENT, "attribute '%.*s' is %lld, expected 0 to %d", count, name, (long long)v,
                       row->rule[i].most);
    }
  }
  return 0;
}

static const char *next_text(const char **at)
{
  const char *text = *at;
  *at += strlen(text) + 1;
  return text;
}

/* Rows by their names: open addressing, row + 1; 0: free. */
enum { NAME_PLACES = 2048 };
_Static_assert(AMP_OP_COUNT * 2 < NAME_PLACES, "places of names are less than half full");
static uint16_t name_place[NAME_PLACES];

static unsigned name_hash(const char *name)
{
  uint32_t h = 2166136261u;
  for (; *name; name++) h = (h ^ (uint8_t)*name) * 16777619u;
  return (h ^ h >> 15) % NAME_PLACES;
}

static void enter_name(int op)
{
  unsigned at = name_hash(amp__ops[op].info.name);
  while (name_place[at]) at = (at + 1) % NAME_PLACES;
  name_place[at] = (uint16_t)(op + 1);
}

void amp__table_install(const amp_op_functions *functions)
{
  const char *at = texts;
  for (int i = 0; i < AMP_OP_COUNT; i++) {
    amp_op_desc *row = &amp__ops[i];
    row->info.name = next_text(&at);
    row->info.schema = next_text(&at);
    row->info.doc = next_text(&at);
    row->info.policy = rows[i].policy;
    row->info.dtypes = rows[i].dtypes;
    row->info.flags = (uint32_t)rows[i].flags;
    row->traits = (uint32_t)(rows[i].flags >> 32);
    row->info.kind = rows[i].kind;
    row->save = rows[i].save;
    row->policy = rows[i].policy;
    row->dtype_slot = row->training_slot = -1;
    row->infer = functions[i].infer;
    row->front = functions[i].front;
    row->bwd = functions[i].bwd;
    parse_schema(row);
    enter_name(i);
  }
}

/* -- Reflection ------------------------------------------------------------ */

int amp_op_count(void) { return AMP_OP_COUNT; }

const amp_op_info *amp_op_get(int op) { return op >= 0 && op < AMP_OP_COUNT ? &amp__ops[op].info : NULL; }

int amp_op_find(const char *name)
{
  for (unsigned at = name_hash(name); name_place[at]; at = (at + 1) % NAME_PLACES)
    if (strcmp(amp__ops[name_place[at] - 1].info.name, name) == 0) return name_place[at] - 1;
  return -1;
}

const char *amp_policy_name(int policy)
{
  static const char *const names[AMP_POLICY_COUNT]
      = { "passthrough", "lower", "fp32", "fp32_unless_dtype", "promote", "special", "banned" };
  return policy >= 0 && policy < AMP_POLICY_COUNT ? names[policy] : NULL;
}

enum { CONDITION = 0x80 }; /* beside the class in a row's policy */

int amp_policy_get(int op)
{
  return op >= 0 && op < AMP_OP_COUNT ? atomic_load_explicit(&amp__ops[op].policy, memory_order_relaxed) & ~CONDITION
                                      : AMP_E_ARGUMENT;
}

int amp_policy_set(int op, int policy)
{
  if (op < 0 || op >= AMP_OP_COUNT || policy < -1 || policy >= AMP_POLICY_COUNT) return AMP_E_ARGUMENT;
  if (policy < 0) policy = amp__ops[op].info.policy;
  atomic_store_explicit(&amp__ops[op].policy, (uint8_t)policy, memory_order_relaxed);
  return 0;
}

/* Conditions are set now and then, by one thread; an op that runs meanwhile sees the old one, the new one or none. */
static struct {
  _Atomic int count;
  int slot;
  bool real;
  int64_t value[8];
} conditions[AMP_OP_COUNT];

int amp_policy_condition(int op, int slot, const amp_slot *value, int count)
{
  if (op < 0 || op >= AMP_OP_COUNT || count < 0 || count > 8
      || (count && (slot < 0 || slot >= amp__ops[op].info.nslot)))
    return AMP_E_ARGUMENT;
  if (!count) return amp_policy_set(op, -1);
  const char *name, *colon;
  int length = attribute_name(&amp__ops[op], slot, &name);
  colon = name + length;
  atomic_store(&conditions[op].count, 0);
  conditions[op].slot = slot;
  conditions[op].real = colon[1] == 'f';
  for (int i = 0; i < count; i++) conditions[op].value[i] = value[i].i;
  atomic_store(&conditions[op].count, count);
  atomic_store(&amp__ops[op].policy, (uint8_t)(AMP_PASSTHROUGH | CONDITION));
  return 0;
}

int amp__policy_of(int op, const amp_slot *attrs)
{
  int policy = atomic_load_explicit(&amp__ops[op].policy, memory_order_relaxed);
  if (amp_likely(!(policy & CONDITION))) return policy;
  amp_slot v = attrs[conditions[op].slot];
  for (int i = 0, n = atomic_load(&conditions[op].count); i < n; i++) {
    amp_slot want = { .i = conditions[op].value[i] };
    if (v.i == want.i || (conditions[op].real && v.i != AMP_NONE && v.f == want.f)) return AMP_FP32;
  }
  return AMP_PASSTHROUGH;
}
