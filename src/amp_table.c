/*
** amp_table.c: the descriptor array, made of amp_ops.def when the library is
** first used, and completed from each row's schema: how many tensors, which may
** be missing or numbers, how attributes lie in slots and what they default to.
** Reflection and policies for callers stand here too. What rows do is elsewhere;
** this file only reads them.
*/
#include <ctype.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include "amp_core.h"

#define AMP_KIND_K 'K'
#define AMP_KIND_N 'N'
#define AMP_KIND_V 'V'
#define AMP_KIND_C 'C'
#define AMP_FRONT_K(name) NULL
#define AMP_FRONT_N(name) NULL
#define AMP_FRONT_V(name) amp__view_##name
#define AMP_FRONT_C(name) amp__comp_##name
#define AMP_BWD_K(name) amp__bwd_##name
#define AMP_BWD_N(name) NULL
#define AMP_BWD_V(name) amp__bwd_##name
#define AMP_BWD_C(name) NULL

amp_op_desc amp__ops[AMP_OP_COUNT];

/* What the table is made of, small and without pointers to texts: every pointer would be work for the loader */
static const struct {
  amp_infer_fn infer;
  amp_kernel_fn front;
  amp_bwd_fn bwd;
  uint32_t dtypes, flags;
  uint16_t save;
  uint8_t policy;
  char kind;
} rows[AMP_OP_COUNT] = {
#define AMP_OP(kind_, name_, schema_, infer_, policy_, dtypes_, save_, flags_, doc_) \
  { amp__infer_##infer_, AMP_FRONT_##kind_(name_), AMP_BWD_##kind_(name_), dtypes_, flags_, save_, AMP_##policy_, AMP_KIND_##kind_ },
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
  case 'I': case 'D': case 'F': return 1 + (n ? n : AMP_MAX_DIM);
  case 'i': return n ? n : 1;
  default: return 1;
  }
}

/* One attribute `name:type[?][=default]` from p to e, whose slots start at d->info.nslot. */
static void parse_attribute(amp_op_desc *d, const char *p, const char *e)
{
  const char *colon = memchr(p, ':', (size_t)(e - p));
  char type = colon[1];
  const char *eq = memchr(p, '=', (size_t)(e - p));
  bool optional = eq == NULL && e[-1] == '?';
  int n = slots_of(colon), at = d->info.nslot;
  if (type == 't' && optional) d->dtype_slot = (int8_t)at;
  if (strchr("IDFtvbe", type) && d->nrule < sizeof d->rule / sizeof d->rule[0]) {
    uint8_t most = type == 't' ? AMP_DTYPE_COUNT - 1 : type == 'b' ? 1 : (uint8_t)(n - 1);
    if (type == 'e') {
      most = 0;
      for (const char *w = colon; w < (eq ? eq : e); w++) most += *w == ',';
    }
    d->rule[d->nrule].slot = (uint8_t)at;
    d->rule[d->nrule].type = (uint8_t)type;
    d->rule[d->nrule].optional = optional;
    d->rule[d->nrule++].most = most;
  }
  for (int i = 0; i < n; i++) {
    amp_slot *s = &d->defaults[at + i];
    s->i = 0;
    if (optional) { if (i == 0 || type == 'i') s->i = AMP_NONE; }
    else if (eq && type == 'f') s->f = strtod(eq + 1, NULL);
    else if (eq) s->i = strtoll(eq + 1, NULL, 10);
  }
  d->info.nslot = at + n;
}

static void parse_schema(amp_op_desc *d)
{
  const char *p = d->info.schema;
  while (*p) {
    const char *e = p + strcspn(p, " ");
    if (memchr(p, ':', (size_t)(e - p))) parse_attribute(d, p, e);
    else {
      int i = d->info.nin++;
      char last = e[-1];
      if (last != '?' && last != '*') { d->required |= (uint8_t)(1 << i); d->nrequired = (uint8_t)(i + 1); }
      if (last == '#') d->number_ok |= (uint8_t)(1 << i);
    }
    p = *e ? e + 1 : e;
  }
  d->info.nout = 1;
  /* rows with more results name them by what backward saves, or are these */
  if (d->save & 512) d->info.nout = 2;
  if (d->save & 1024) d->info.nout = 3;
  if (strstr(d->info.name, "_norm_backward")) d->info.nout = strcmp(d->info.name, "rms_norm_backward") == 0 ? 2 : 3;
  if (strcmp(d->info.name, "unbind") == 0) d->info.nout = 3; /* or fewer */
  if (strcmp(d->info.name, "add_layer_norm") == 0) d->info.nout = 2; /* its statistics are for backward alone */
}

/* The name of the attribute whose slots start at `slot`, for messages. */
static int attribute_name(const amp_op_desc *d, int slot, const char **name)
{
  int at = 0;
  for (const char *p = d->info.schema; *p; ) {
    const char *e = p + strcspn(p, " "), *colon = memchr(p, ':', (size_t)(e - p));
    if (colon) {
      if (at == slot) { *name = p; return (int)(colon - p); }
      at += slots_of(colon);
    }
    p = *e ? e + 1 : e;
  }
  *name = "?";
  return 1;
}

int amp__check_attributes(const amp_op_desc *d, const amp_slot *a)
{
  for (int i = 0; i < d->nrule; i++) {
    int64_t v = a[d->rule[i].slot].i;
    if (amp_likely(v >= 0 && v <= d->rule[i].most)) continue;
    if (d->rule[i].optional && v == AMP_NONE) continue;
    if (d->rule[i].type == 'v' && v >= 0 && v >> 8 < AMP_DEVICE_COUNT) continue;
    const char *name;
    int n = attribute_name(d, d->rule[i].slot, &name);
    switch (d->rule[i].type) {
    case 't': return amp__fail(AMP_E_DTYPE, "attribute '%.*s': there is no dtype number %lld", n, name, (long long)v);
    case 'v': return amp__fail(AMP_E_DEVICE, "attribute '%.*s': there is no device number %lld", n, name, (long long)v);
    case 'I': case 'D': case 'F': return amp__fail(AMP_E_SHAPE, "attribute '%.*s': %lld values are given; at most %d are possible", n, name, (long long)v, d->rule[i].most);
    default: return amp__fail(AMP_E_ARGUMENT, "attribute '%.*s' is %lld, expected 0 to %d", n, name, (long long)v, d->rule[i].most);
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

static void table_init(void)
{
  const char *at = texts;
  for (int i = 0; i < AMP_OP_COUNT; i++) {
    amp_op_desc *d = &amp__ops[i];
    d->info.name = next_text(&at);
    d->info.schema = next_text(&at);
    d->info.doc = next_text(&at);
    d->info.policy = rows[i].policy;
    d->info.dtypes = rows[i].dtypes;
    d->info.flags = rows[i].flags;
    d->info.kind = rows[i].kind;
    d->save = rows[i].save;
    d->policy = rows[i].policy;
    d->dtype_slot = -1;
    d->infer = rows[i].infer;
    d->front = rows[i].front;
    d->bwd = rows[i].bwd;
    parse_schema(d);
  }
  amp__devices_init();
}

void amp__table_init(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, table_init);
}

/* -- Reflection ------------------------------------------------------------ */

int amp_op_count(void) { return AMP_OP_COUNT; }

const amp_op_info *amp_op_get(int op)
{
  amp__table_init();
  return op >= 0 && op < AMP_OP_COUNT ? &amp__ops[op].info : NULL;
}

int amp_op_find(const char *name)
{
  amp__table_init();
  for (int i = 0; i < AMP_OP_COUNT; i++)
    if (strcmp(amp__ops[i].info.name, name) == 0) return i;
  return -1;
}

const char *amp_policy_name(int policy)
{
  static const char *const names[AMP_POLICY_COUNT] = {
    "passthrough", "lower", "fp32", "fp32_unless_dtype", "promote", "special", "banned" };
  return policy >= 0 && policy < AMP_POLICY_COUNT ? names[policy] : NULL;
}

enum { CONDITION = 0x80 }; /* beside the class in a row's policy */

int amp_policy_get(int op)
{
  amp__table_init();
  return op >= 0 && op < AMP_OP_COUNT ? atomic_load_explicit(&amp__ops[op].policy, memory_order_relaxed) & ~CONDITION : AMP_E_ARGUMENT;
}

int amp_policy_set(int op, int policy)
{
  amp__table_init();
  if (op < 0 || op >= AMP_OP_COUNT || policy < -1 || policy >= AMP_POLICY_COUNT) return AMP_E_ARGUMENT;
  if (policy < 0) policy = amp__ops[op].info.policy;
  atomic_store_explicit(&amp__ops[op].policy, (uint8_t)policy, memory_order_relaxed);
  return 0;
}

/* Conditions are set now and then, by one thread; an op that runs meanwhile sees the old one, the new one or none. */
static struct { _Atomic int n; int slot; bool real; int64_t value[8]; } conditions[AMP_OP_COUNT];

int amp_policy_condition(int op, int slot, const amp_slot *value, int n)
{
  amp__table_init();
  if (op < 0 || op >= AMP_OP_COUNT || n < 0 || n > 8 || (n && (slot < 0 || slot >= amp__ops[op].info.nslot))) return AMP_E_ARGUMENT;
  if (!n) return amp_policy_set(op, -1);
  const char *name, *colon;
  int length = attribute_name(&amp__ops[op], slot, &name);
  colon = name + length;
  atomic_store(&conditions[op].n, 0);
  conditions[op].slot = slot;
  conditions[op].real = colon[1] == 'f';
  for (int i = 0; i < n; i++) conditions[op].value[i] = value[i].i;
  atomic_store(&conditions[op].n, n);
  atomic_store(&amp__ops[op].policy, (uint8_t)(AMP_PASSTHROUGH | CONDITION));
  return 0;
}

int amp__policy_of(int op, const amp_slot *a)
{
  int policy = atomic_load_explicit(&amp__ops[op].policy, memory_order_relaxed);
  if (amp_likely(!(policy & CONDITION))) return policy;
  amp_slot v = a[conditions[op].slot];
  for (int i = 0, n = atomic_load(&conditions[op].n); i < n; i++) {
    amp_slot want = {.i = conditions[op].value[i]};
    if (v.i == want.i || (conditions[op].real && v.i != AMP_NONE && v.f == want.f)) return AMP_FP32;
  }
  return AMP_PASSTHROUGH;
}
