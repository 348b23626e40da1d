/*
** cuda_chain.c: elementwise rows as one kernel: noted, said as text, compiled once, launched.
**
** The text names the rows' functors (kernels/elementwise/?_rows.cuh) and the dtypes between them; what a functor
** has in memory (alpha, a bound, where trouble is noted) and how operands lie are arguments of the kernel. So one
** kernel serves all shapes and numbers.
*/
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cuda_branches.h"
#include "cuda_chain.h"

#ifdef AMP_EMULATED
int amp__cuda_generated = 0;
#else
int amp__cuda_generated = 1;
#endif
__thread amp_chain *amp__chain_record;

/* -- Noting ------------------------------------------------------------------------ */

static bool note_operand(amp_chain *c, amp_chain_step *step, int o, amp_tensor *t)
{
  for (int k = 0; k < c->steps; k++)
    if (c->call[k].out[0] == t) {
      step->operand[o].from = AMP_CHAIN_MADE;
      step->operand[o].at = (uint8_t)k;
      return true;
    }
  if (t->device == AMP_CPU) {
    if (c->numbers == AMP_CHAIN_NUMBERS) return false;
    step->operand[o].from = AMP_CHAIN_NUMBER;
    step->operand[o].at = (uint8_t)c->numbers;
    c->number[c->numbers++] = amp__chain_number(t);
    return true;
  }
  int k = 0;
  while (k < c->inputs && c->input[k] != t) k++;
  if (k == AMP_CHAIN_INPUTS) return false;
  if (k == c->inputs) c->input[c->inputs++] = t;
  step->operand[o].from = AMP_CHAIN_INPUT;
  step->operand[o].at = (uint8_t)k;
  return true;
}

amp_chain_step *amp__chain_step(const char *type, const amp_tensor *out, amp_tensor *const *in, int nin)
{
  amp_chain *c = amp__chain_record;
  amp_chain_step *step = &c->step[c->steps];
  if (c->unfit || nin > AMP_CHAIN_OPERANDS || c->call[c->steps].out[0] != out) {
    c->unfit = true;
    return NULL;
  }
  step->type = type;
  step->dtype = out->dtype;
  step->nin = (uint8_t)nin;
  step->bytes = 0;
  for (int o = 0; o < nin; o++)
    if (!note_operand(c, step, o, in[o])) {
      c->unfit = true;
      return NULL;
    }
  c->steps++;
  return step;
}

/* Runs the rows' functions to see what they would compute. False: they launch more than one kernel each, or fail. */
static bool note(amp_chain *c, amp_call *call, int count)
{
  int rc = 0;
  c->call = call;
  c->steps = c->inputs = c->numbers = 0;
  c->number[0] = (amp_chain_number){ 0, 0 };
  c->unfit = false;
  amp__chain_record = c;
  for (int i = 0; rc >= 0 && i < count; i++) {
    rc = amp__cuda_row(call[i].id)(&call[i]);
    if (c->unfit || c->steps != i + 1) break;
  }
  amp__chain_record = NULL;
  return rc >= 0 && !c->unfit && c->steps == count && c->inputs > 0;
}

/* -- Saying ------------------------------------------------------------------------ */

typedef struct words {
  char *text;
  size_t length, room;
  bool lost; /* no memory */
} words;

static __attribute__((format(printf, 2, 3))) void say(words *w, const char *format, ...)
{
  va_list list;
  if (w->lost) return;
  for (;;) {
    va_start(list, format);
    int n = vsnprintf(w->text + w->length, w->room - w->length, format, list);
    va_end(list);
    if (n >= 0 && w->length + (size_t)n < w->room) {
      w->length += (size_t)n;
      return;
    }
    size_t room = 2 * w->room + 4096;
    char *more = n < 0 ? NULL : realloc(w->text, room);
    if (more == NULL) {
      w->lost = true;
      return;
    }
    w->text = more;
    w->room = room;
  }
}

static void say_words(words *w)
{
#define DTYPE(name) say(w, "AMP_" #name " = %d, ", AMP_##name);
  say(w,
      "#define AMP_GENERATED 1\n#ifdef AMP_EMULATED\n#include \"cuda_runtime.h\"\n#else\n#include <stdint.h>\n#endif\n"
      "enum { ");
  DTYPE(FLOAT64)
  DTYPE(FLOAT32)
  DTYPE(FLOAT16)
  DTYPE(BFLOAT16)
  DTYPE(INT64)
  DTYPE(INT32)
  DTYPE(INT16)
  DTYPE(INT8)
  DTYPE(UINT8)
  DTYPE(BOOL)
  DTYPE(FLOAT8_E4M3)
  DTYPE(FLOAT8_E5M2)
  _Static_assert(AMP_DTYPE_COUNT == 12, "all dtypes are said");
  DTYPE(DTYPE_COUNT)
  DTYPE(MAX_DIM)
#undef DTYPE
  say(w, "};\nenum {\n#define AMP_OP(kind, name, ...) AMP_OP_##name,\n#include \"amp_ops.def\"\n#undef AMP_OP\n"
         "  AMP_OP_COUNT\n};\n#define AMP_OVER_SLOTS\n#include \"op_args.h\"\n#include \"elementwise/chain.cuh\"\n\n");
}

static void say_operand(words *w, const amp_chain *c, const amp_chain_step *step, int o)
{
  int at = step->operand[o].at;
  switch ((enum amp_chain_from)step->operand[o].from) {
  case AMP_CHAIN_INPUT: {
    int dtype = c->input[at]->dtype;
    say(w, "amp_of_bits<%s, %d>(amp_word_bits<%d>(w[%d], q))", step->type, dtype, dtype, at);
    break;
  }
  case AMP_CHAIN_NUMBER: say(w, "amp_of_value<%s>(n.at[%d])", step->type, at); break;
  case AMP_CHAIN_MADE: say(w, "amp_of_bits<%s, %d>(y%d)", step->type, c->step[at].dtype, at); break;
  }
}

/* How a thread works: its elements at once, and whether a loop goes through them, where a row's code is long */
typedef struct shape {
  int vector, turns;
  bool rolled;
} shape;
static shape shape_of(const amp_chain *c)
{
  shape s = { c->inputs > 6 ? 4 : 8, c->inputs <= 2 ? 2 : 1, false };
  for (int i = 0; i < c->steps; i++)
    if (c->step[i].lengthy || strcmp(c->step[i].type, "double") == 0) s = (shape){ s.vector, 1, true };
  return s;
}

static void say_class(words *w, const amp_chain *c)
{
  shape sh = shape_of(c);
  say(w, "struct chain {\n  enum { inputs = %d, vector = %d, turns = %d, rolled = %d, result = %d };\n", c->inputs,
      sh.vector, sh.turns, sh.rolled, c->step[c->steps - 1].dtype);
  say(w, "  typedef amp_ew_of<inputs + 1> places;\n  typedef unsigned elements[inputs][AMP_CHAIN_WORDS];\n");
  say(w, "  struct numbers {\n    amp_value at[%d];\n  };\n  struct steps {\n", c->numbers ? c->numbers : 1);
  for (int i = 0; i < c->steps; i++) say(w, "    alignas(16) %s s%d;\n", c->step[i].functor, i);
  say(w, "  };\n  template <int N>\n  static __device__ __forceinline__ void fetch(elements &w, const places &e, "
         "const int64_t (&at)[inputs + 1])\n  {\n");
  for (int k = 0; k < c->inputs; k++)
    say(w, "    amp_chain_fetch<%d, N>(w[%d], e.op[%d].p, e.op[%d].mode, at[%d]);\n", c->input[k]->dtype, k, k + 1,
        k + 1, k + 1);
  say(w, "  }\n  static __device__ __forceinline__ void next(elements &w)\n  {\n");
  for (int k = 0; k < c->inputs; k++) say(w, "    amp_next_bits<%d>(w[%d]);\n", c->input[k]->dtype, k);
  say(w, "  }\n  static __device__ __forceinline__ amp_bits<result> of(const elements &w, int q, const numbers &n, "
         "const steps &s)\n  {\n");
  for (int i = 0; i < c->steps; i++) {
    const amp_chain_step *step = &c->step[i];
    say(w, "    const %s a%d[%d] = { ", step->type, i, step->nin);
    for (int o = 0; o < step->nin; o++) {
      if (o) say(w, ", ");
      say_operand(w, c, step, o);
    }
    say(w, " };\n    const amp_bits<%d> y%d = amp_to_bits<%d>(s.s%d.of(a%d));\n", step->dtype, i, step->dtype, i, i);
  }
  say(w, "    return y%d;\n  }\n};\n", c->steps - 1);
}

/* The kernel's text, to be freed; NULL: no memory */
static char *text_of(const amp_chain *c)
{
  words w = { NULL, 0, 0, false };
  say_words(&w);
  say_class(&w, c);
  for (int k = 0; k < 2; k++)
    say(&w,
        "extern \"C\" __global__ void __launch_bounds__(AMP_CHAIN_THREADS)\namp_chain_%s_kernel(const chain::places e, "
        "const chain::numbers n, const chain::steps s)\n{\n  amp_chain_%s<chain>(e, n, s);\n}\n",
        k ? "any" : "wide", k ? "any" : "wide");
  if (!w.lost) return w.text;
  free(w.text);
  return NULL;
}

/* -- What was compiled ------------------------------------------------------------------- */

typedef struct kernel {
  struct kernel *next; /* of the same place */
  amp_module *module;  /* NULL: it can't be had */
  size_t bytes;
  unsigned char key[];
} kernel;

enum {
  PLACES = 256,
  MOST = 1024 /* kernels: a program that makes more sets of rows than these runs them one by one */
};
enum { KEY = AMP_CHAIN_STEPS * (sizeof(((amp_chain_step *)0)->functor) + 4 + 2 * AMP_CHAIN_OPERANDS) + 32 };
static kernel *table[PLACES];
static int made, compiled, taken, launched; /* taken: from the folder */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* All that the text depends on, and the card */
static size_t key_of(const amp_chain *c, int device, unsigned char *key)
{
  unsigned char *at = key;
  *at++ = (unsigned char)device;
  *at++ = (unsigned char)c->inputs;
  *at++ = (unsigned char)c->numbers;
  for (int k = 0; k < c->inputs; k++) *at++ = c->input[k]->dtype;
  for (int i = 0; i < c->steps; i++) {
    const amp_chain_step *s = &c->step[i];
    size_t length = strlen(s->functor) + 1;
    memcpy(at, s->functor, length);
    at += length;
    *at++ = (unsigned char)s->type[0];
    *at++ = s->dtype;
    *at++ = s->nin;
    for (int o = 0; o < s->nin; o++) {
      *at++ = s->operand[o].from;
      *at++ = s->operand[o].at;
    }
  }
  return (size_t)(at - key);
}

static kernel **place_of(const unsigned char *key, size_t bytes)
{
  uint32_t h = 2166136261u;
  for (size_t i = 0; i < bytes; i++) h = (h ^ key[i]) * 16777619u;
  return &table[(h ^ h >> 16) % PLACES];
}

static amp_module *compile(const amp_chain *c, const amp_cuda_device *d, char *why, size_t room)
{
  char *text = text_of(c);
  amp_module *module = NULL;
  amp_code code = { NULL, 0, false };
  if (text == NULL) return NULL;
  for (int fresh = 0; fresh < 2 && module == NULL; fresh++) { /* what lay in the folder may be of no use */
    if (!amp__compile(text, d->cc, fresh, &code, why, room)) break;
    module = amp__module_load(&code, text, why, room);
    if (module) *(code.kept ? &taken : &compiled) += 1;
    free(code.data);
    if (!code.kept) break;
  }
  free(text);
  return module;
}

/* The module of a chain; NULL: none, why (if that was not told before) */
static amp_module *find(const amp_chain *c, const amp_cuda_device *d, char *why, size_t room)
{
  unsigned char key[KEY];
  size_t bytes = key_of(c, d->index, key);
  amp_module *module = NULL;
  pthread_mutex_lock(&lock);
  kernel **place = place_of(key, bytes), *k = *place;
  while (k && (k->bytes != bytes || memcmp(k->key, key, bytes) != 0)) k = k->next;
  if (k) module = k->module;
  else if (!d->capture && made < MOST && (k = malloc(sizeof *k + bytes)) != NULL) { /* nothing is loaded in a capture */
    memcpy(k->key, key, bytes);
    k->bytes = bytes;
    k->module = module = compile(c, d, why, room);
    k->next = *place;
    *place = k;
    made++;
  }
  pthread_mutex_unlock(&lock);
  return module;
}

/* -- Running ------------------------------------------------------------------------------- */

/* What functors have in memory, as the kernel takes it; its size */
static size_t gather(const amp_chain *c, unsigned char *to)
{
  size_t at = 0;
  for (int i = 0; i < c->steps; i++) {
    memcpy(to + at, c->step[i].part, c->step[i].bytes);
    at += (c->step[i].bytes + 15) & ~(size_t)15;
  }
  return at;
}

static int launch(const amp_chain *c, amp_module *module, amp_tensor *result)
{
  _Alignas(16) unsigned char places[AMP_CHAIN_PLACES], steps[AMP_CHAIN_STEPS * AMP_CHAIN_PART] = { 0 };
  size_t bytes;
  shape sh = shape_of(c);
  bool wide = amp__chain_places(c, result, places, &bytes);
  void *arguments[3] = { places, (void *)(intptr_t)c->number, steps };
  size_t sizes[3] = { bytes, sizeof *c->number * (size_t)(c->numbers ? c->numbers : 1), gather(c, steps) };
  unsigned grid = amp__chain_grid(result->numel, 256 * (wide ? sh.vector * sh.turns : 1));
  return amp__module_launch(module, !wide, grid, 256, arguments, sizes, 3);
}

int amp__cuda_chain_run(int index, amp_call *call, int count, char *why, size_t room)
{
  amp_chain chain;
  amp_cuda_device *d = amp__cuda_enter(index);
  if (d == NULL) return AMP_E_DEVICE;
  if (amp_unlikely(d->capture) && !pthread_equal(d->capturer, pthread_self()))
    return amp__fail(AMP_E_STATE, "another thread is capturing a step on this GPU");
  amp_tensor *result = call[count - 1].out[0];
  if (!amp__cuda_generated || count > AMP_CHAIN_STEPS || !note(&chain, call, count)) return 0;
  amp_module *module = find(&chain, d, why, room);
  if (module == NULL) return 0;
  amp_call all = call[count - 1];
  all.in = chain.input;
  all.nin = chain.inputs;
  if (d->capture && d->branches) amp__branches_enter(d->branches, &all);
  int rc = launch(&chain, module, result);
  if (d->capture && d->branches) amp__branches_leave(d->branches);
  if (rc < 0) return rc;
  __atomic_fetch_add(&launched, 1, __ATOMIC_RELAXED);
  return 1;
}

const char *amp__cuda_chain_info(void)
{
  static _Thread_local char text[384];
  pthread_mutex_lock(&lock);
  int n = compiled, m = taken;
  pthread_mutex_unlock(&lock);
  int length = snprintf(text, sizeof text, "%s", amp__compile_info());
  if (n + m > 0 && length > 0 && (size_t)length < sizeof text)
    snprintf(text + length, sizeof text - (size_t)length,
             "; kernels of this process: %d compiled, %d kept, %d launched", n, m,
             __atomic_load_n(&launched, __ATOMIC_RELAXED));
  return text;
}
