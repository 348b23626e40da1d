/*
** test_states.c: several states in several threads: shared weights read under
** autocast in two dtypes at once, tensors handed over and freed by the other
** thread, states that end while others use what they cached, ids of functions
** and hooks that come back to the state they were made in, letters in mailboxes; then, where LuaJIT's
** library and the built libamp.so are found, whole Lua states training at once.
** Clean under ThreadSanitizer when built without OpenMP.
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "core.h"
#include "check.h"

enum { THREADS = 4, ROUNDS = 300, N = 16 };

static _Atomic int wrong;
#define EXPECT(cond)                                                                                   \
  do {                                                                                                 \
    if (!(cond) && atomic_fetch_add(&wrong, 1) < 10) printf("%s:%d: %s\n", __FILE__, __LINE__, #cond); \
  } while (0)

static amp_ref X, W; /* shared: read by all, written by none while threads run */

static void in_threads(void *(*f)(void *), int n)
{
  pthread_t t[16];
  int before = atomic_load(&wrong);
  for (intptr_t i = 0; i < n; i++) CHECK(pthread_create(&t[i], NULL, f, (void *)i) == 0);
  for (int i = 0; i < n; i++) pthread_join(t[i], NULL);
  CHECK(atomic_load(&wrong) == before);
}

static amp_ref matrix(amp_state *S, double from, double step)
{
  double v[N * N];
  int64_t size[2] = { N, N };
  amp_ref r = { NULL };
  for (int i = 0; i < N * N; i++) v[i] = from + step * (i % 8);
  EXPECT(amp_from_double(S, &r, v, 2, size, AMP_FLOAT32) == 0);
  return r;
}

/* Sum of all gradients of `leaf` from a loss, without touching other leaves. */
static double gradient(amp_state *S, amp_ref *loss, amp_ref *leaf)
{
  amp_ref g = { NULL }, s = { NULL };
  double v = NAN;
  amp_engine *e = amp_backward_begin(S, &loss->t, NULL, 1, &leaf->t, 1, 0);
  EXPECT(e != NULL);
  if (e == NULL) return v;
  EXPECT(amp_backward_run(S, e) == 0);
  EXPECT(amp_backward_result(S, &g, e, 0) == 0);
  amp_backward_end(S, e);
  if (amp_op1(S, AMP_OP_sum, &s, &g) == 0) amp_item(S, &s, &v);
  amp_release(&g);
  amp_release(&s);
  return v;
}

/* -- Shared weights ----------------------------------------------------------- */

static void *reader(void *arg)
{
  int me = (int)(intptr_t)arg;
  amp_state *S = amp_state_new();
  amp_ref mine = matrix(S, 1, 0.5);
  EXPECT(amp_requires_grad(S, &mine, 1) == 0);
  for (int i = 0; i < ROUNDS; i++) {
    int low = me % 2 ? AMP_FLOAT16 : AMP_BFLOAT16;
    bool region = i % 3 != 2;
    amp_ref a = { NULL }, b = { NULL }, v = { NULL }, s = { NULL }, t = { NULL };
    double total, want = 0;
    S->autocast_on = S->autocast[AMP_CPU].enabled = region;
    S->autocast[AMP_CPU].dtype = (uint8_t)low;
    EXPECT(amp_op2(S, AMP_OP_matmul, &a, &mine, &W) == 0);
    EXPECT(a.t && a.t->dtype == (region ? low : AMP_FLOAT32));
    EXPECT(amp_op1(S, AMP_OP_t, &t, &W) == 0);
    EXPECT(amp_op2(S, AMP_OP_matmul, &b, &X, &t) == 0);
    amp_slot first[2] = { { .i = 1 }, { .i = 1 + i % N } };
    EXPECT(amp_opx(S, AMP_OP_select, &v, NULL, NULL, &W, NULL, NULL, NULL, NULL, first) == 0);
    EXPECT(amp_op1(S, AMP_OP_sum, &s, &a) == 0);
    S->autocast_on = S->autocast[AMP_CPU].enabled = 0;
    EXPECT(amp_item(S, &s, &total) == 0);
    for (int r = 0; r < N * N; r++) want += (1 + 0.5 * (r % 8)) * (r % N % 2 ? 0 : N) * 0.25; /* W: 0.25 in even rows */
    EXPECT(fabs(total - want) < 1e-6 * want);
    EXPECT(fabs(gradient(S, &s, &mine) - N * N / 2 * N * 0.25) < 1e-6);
    if (region && i % 5 == 0) amp_autocast_leave(S);
    if (i % 50 == 7) amp_clear_autocast_cache(S);
    amp_release(&a);
    amp_release(&b);
    amp_release(&v);
    amp_release(&s);
    amp_release(&t);
    amp_ref bad = { NULL };
    EXPECT(amp_op2(S, AMP_OP_matmul, &bad, &X, &mine) == 0);
    amp_release(&bad);
    amp_slot view[9] = { { .i = 1 }, { .i = 3 + me } };
    EXPECT(amp_opx(S, AMP_OP_view, &bad, NULL, NULL, &X, NULL, NULL, NULL, NULL, view) == AMP_E_SHAPE);
    EXPECT(strchr(S->err.message, '3' + (char)me) != NULL); /* each state its own error */
  }
  amp_release(&mine);
  amp_state_free(S);
  return NULL;
}

/* -- Handing over ---------------------------------------------------------------- */

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all; /* a place of a state that ended is used again, with ids on their way to it */
static amp_ref queue[64];
static int queued;

static amp_ref exchange(amp_ref r, int slot)
{
  pthread_mutex_lock(&queue_lock);
  amp_ref old = queue[slot];
  queue[slot] = r;
  queued++;
  pthread_mutex_unlock(&queue_lock);
  return old;
}

/* Leaves with shadows and hooks, graphs with functions: freed by whoever takes them. */
static void *trader(void *arg)
{
  int me = (int)(intptr_t)arg;
  amp_state *S = amp_state_new();
  int64_t *made = calloc(4 * ROUNDS, sizeof *made);
  int nmade = 0, seen = 0;
  pthread_barrier_wait(&all);
  for (int i = 0; i < ROUNDS; i++) {
    amp_ref w = matrix(S, 0.5, 0.25), y = { NULL }, z = { NULL };
    EXPECT(amp_requires_grad(S, &w, 1) == 0);
    int64_t id = amp_hook(S, &w);
    EXPECT(id > 0);
    made[nmade++] = id;
    S->autocast_on = S->autocast[AMP_CPU].enabled = 1;
    EXPECT(amp_op2(S, AMP_OP_matmul, &y, &X, &w) == 0);
    S->autocast_on = S->autocast[AMP_CPU].enabled = 0;
    EXPECT(amp_op1(S, AMP_OP_clone, &z, &y) == 0);
    amp_ref out = { NULL };
    EXPECT(amp_detach(S, &out, &z) == 0);
    EXPECT(amp_function(S, &z.t, 1, &out.t, 1, &id) == 0 && id > 0);
    made[nmade++] = id;
    amp_release(&y);
    amp_release(&z);
    amp_ref old = exchange(i % 2 ? w : out, (i * 7 + me) % 64);
    if (i % 2) amp_release(&out);
    else amp_release(&w);
    if (i % 11 == 0) amp_autocast_leave(S);
    amp_ref twice = { NULL };
    if (old.t && amp_op2(S, AMP_OP_add, &twice, &old, &old) == 0) amp_release(&twice);
    amp_release(&old);
    for (int64_t d; (d = amp_dead_next(S)) != 0; seen++) {
      int k = 0;
      while (k < nmade && made[k] != d) k++;
      EXPECT(k < nmade); /* another state's id is none of ours */
      if (k < nmade) made[k] = made[--nmade];
    }
  }
  EXPECT(seen > 0);
  pthread_barrier_wait(&all);
  free(made);
  amp_state_free(S);
  return NULL;
}

/* -- States that come and go ------------------------------------------------------- */

static void *short_lived(void *arg)
{
  (void)arg;
  for (int i = 0; i < 60; i++) {
    amp_state *S = amp_state_new();
    amp_ref y = { NULL };
    S->autocast_on = S->autocast[AMP_CPU].enabled = 1;
    S->autocast[AMP_CPU].dtype = i % 2 ? AMP_FLOAT16 : AMP_BFLOAT16;
    EXPECT(amp_op2(S, AMP_OP_matmul, &y, &X, &W) == 0);
    amp_release(&y);
    EXPECT(amp_policy_set(AMP_OP_erf, AMP_FP32) == 0 && amp_policy_set(AMP_OP_erf, -1) == 0);
    EXPECT(__atomic_load_n(&amp_memory(AMP_CPU, 0)->live, __ATOMIC_RELAXED) > 0);
    amp_state_free(S);
  }
  return NULL;
}

static void ids_stay_apart(void)
{
  amp_state *a = amp_state_new(), *b = amp_state_new();
  amp_ref w = matrix(a, 1, 1);
  OK(amp_requires_grad(a, &w, 1));
  int64_t id = amp_hook(a, &w);
  CHECK(id > 0 && id < INT64_C(1) << 53);
  CHECK(amp_dead_next(b) == 0); /* b is current now */
  amp_release(&w);
  CHECK(amp_dead_next(b) == 0);
  CHECK((b->attention & AMP_A_DEAD) == 0);
  CHECK(amp_dead_next(a) == id);
  CHECK(amp_dead_next(a) == 0);
  w = matrix(a, 1, 1);
  OK(amp_requires_grad(a, &w, 1));
  CHECK(amp_hook(a, &w) > 0);
  amp_state_free(a);
  amp_state *c = amp_state_new(); /* in a's place */
  amp_release(&w);
  CHECK(amp_dead_next(b) == 0);
  (void)amp_dead_next(c);
  amp_state_free(b);
  amp_state_free(c);
}

/* -- Mailboxes -------------------------------------------------------------------------- */

/* Everybody puts and takes; a letter says in its note what its tensors hold. Boxes come and go under the same name. */
static void *correspondent(void *arg)
{
  int me = (int)(intptr_t)arg, taken = 0;
  amp_state *S = amp_state_new();
  for (int i = 0; i < ROUNDS; i++) {
    amp_mailbox *box = amp_mailbox_open(S, "everybody's", me % 2 ? 3 : 0);
    amp_ref r = matrix(S, me + i, 0);
    EXPECT(box != NULL);
    if (box == NULL) break;
    amp_tensor *two[2] = { r.t, X.t };
    double says = me + i;
    int64_t version = amp_mailbox_put(S, box, two, 2, &says, sizeof says), puts, dropped;
    EXPECT(version > 0);
    amp_release(&r);
    amp_letter *letter = i % 3 ? amp_mailbox_take(S, box, i % 50 == 1 ? 0.002 : 0) : NULL;
    if (letter) {
      amp_ref mine = { NULL }, sum = { NULL };
      double is = NAN, said;
      taken++;
      EXPECT(letter->n == 2 && letter->size == sizeof said
             && letter->version <= amp_mailbox_count(box, &puts, &dropped) + puts);
      memcpy(&said, letter->note, sizeof said);
      EXPECT(amp_letter_tensor(S, &mine, letter, 0) == 0);
      amp_letter_free(letter);
      EXPECT(amp_op1(S, AMP_OP_sum, &sum, &mine) == 0 && amp_item(S, &sum, &is) == 0 && is == said * N * N);
      amp_release(&sum);
      amp_release(&mine);
    } else EXPECT(S->err.code == 0);
    EXPECT(amp_mailbox_count(box, &puts, &dropped) <= 3 && puts >= dropped);
    if (i % 40 == 0) amp_mailbox_clear(box);
    amp_mailbox_close(box);
  }
  EXPECT(taken > 0);
  amp_state_free(S);
  return NULL;
}

static void *late_sender(void *arg)
{
  amp_state *S = amp_state_new();
  const struct timespec moment = { 0, 20000000 };
  nanosleep(&moment, NULL);
  EXPECT(amp_mailbox_put(S, arg, NULL, 0, "late", 4) == 1);
  amp_state_free(S);
  return NULL;
}

/* Who waits sleeps until a letter comes, and does not look for one each millisecond. */
static void letters_are_waited_for(void)
{
  amp_state *S = amp_state_new();
  amp_mailbox *box = amp_mailbox_open(S, "late", 1);
  pthread_t sender;
  CHECK(pthread_create(&sender, NULL, late_sender, box) == 0);
  amp_letter *letter = amp_mailbox_take(S, box, 600);
  CHECK(letter && letter->size == 4 && letter->version == 1);
  amp_letter_free(letter);
  pthread_join(sender, NULL);
  struct rusage before, after;
  double began = amp_clock();
  getrusage(RUSAGE_THREAD, &before);
  CHECK(amp_mailbox_take(S, box, 0.5) == NULL && S->err.code == 0);
  getrusage(RUSAGE_THREAD, &after);
  CHECK(amp_clock() - began >= 0.499);
  CHECK(after.ru_nvcsw - before.ru_nvcsw < 100);
  amp_mailbox_close(box);
  amp_state_free(S);
}

static void letters_are_refused(void)
{
  amp_state *S = amp_state_new();
  amp_ref t = matrix(S, 1, 0), got = { NULL };
  char name[80];
  memset(name, 'x', sizeof name);
  name[64] = 0;
  CHECK(amp_mailbox_open(S, name, 0) == NULL && S->err.code == AMP_E_ARGUMENT);
  CHECK(amp_mailbox_open(S, "", 0) == NULL && S->err.code == AMP_E_ARGUMENT);
  CHECK(amp_mailbox_open(S, "box", -1) == NULL && S->err.code == AMP_E_ARGUMENT);
  amp_mailbox *box = amp_mailbox_open(S, "box", 2);
  CHECK(amp_mailbox_open(S, "box", 3) == NULL && S->err.code == AMP_E_STATE);
  CHECK(amp_mailbox_take(S, box, 0) == NULL && S->err.code == 0);
  CHECK(amp_mailbox_put(S, box, &W.t, 1, NULL, 0) == AMP_E_AUTOGRAD);
  CHECK(amp_mailbox_put(S, box, &t.t, 1, NULL, 0) == 1);
  amp_ref zero = { NULL };
  amp_slot value[1] = { { .f = 3 } };
  OK(amp_opx(S, AMP_OP_fill | AMP_INPLACE, &zero, NULL, NULL, &t, NULL, NULL, NULL, NULL, value)); /* changed since */
  amp_release(&zero);
  amp_letter *letter = amp_mailbox_take(S, box, 0);
  CHECK(letter != NULL && amp_letter_tensor(S, &got, letter, 0) == AMP_E_STATE && got.t == NULL);
  CHECK(amp_letter_tensor(S, &got, letter, 1) == AMP_E_INDEX);
  amp_letter_free(letter);
  for (int i = 0; i < 5; i++) CHECK(amp_mailbox_put(S, box, &t.t, 1, NULL, 0) == i + 2);
  int64_t puts, dropped;
  CHECK(amp_mailbox_count(box, &puts, &dropped) == 2 && puts == 6 && dropped == 3);
  int64_t live = __atomic_load_n(&t.t->storage->refs, __ATOMIC_RELAXED);
  amp_mailbox_close(box); /* with letters in it */
  CHECK(__atomic_load_n(&t.t->storage->refs, __ATOMIC_RELAXED) == live - 2);
  for (int64_t i = 1; i < 4; i++) { /* an allocation fails: nothing is left half done */
    box = amp_mailbox_open(S, "box", 0);
    amp_fail_allocation(i);
    int64_t version = amp_mailbox_put(S, box, &t.t, 1, "note", 4);
    amp_fail_allocation(-1);
    CHECK(version == 1 || version == AMP_E_MEMORY);
    amp_mailbox_close(box);
  }
  amp_letter_free(NULL);
  amp_mailbox_close(NULL);
  amp_release(&t);
  amp_state_free(S);
}

/* -- Lua states ----------------------------------------------------------------------- */

typedef struct lua_State lua_State;
static struct {
  lua_State *(*newstate)(void);
  void (*openlibs)(lua_State *);
  int (*loadstring)(lua_State *, const char *);
  int (*pcall)(lua_State *, int, int, int);
  const char *(*tolstring)(lua_State *, int, size_t *);
  void (*close)(lua_State *);
} lua;

static char script[4096];

static void *lua_thread(void *arg)
{
  (void)arg;
  lua_State *L = lua.newstate();
  EXPECT(L != NULL);
  if (L == NULL) return NULL;
  lua.openlibs(L);
  int failed = lua.loadstring(L, script) || lua.pcall(L, 0, 0, 0);
  EXPECT(!failed);
  if (failed) printf("%s\n", lua.tolstring(L, -1, NULL));
  lua.close(L);
  return NULL;
}

static const char text[]
    = "package.path = '%s/lua/?.lua;%s/lua/?/init.lua;' .. package.path\n"
      "package.cpath = '%s/?.so;' .. package.cpath\n"
      "local amp = require 'amp'\n"
      "local closures = require('amp.core.call').closures\n"
      "local double = amp.Function{forward = function(ctx, x) ctx:save_for_backward(x) return x * 2 end,\n"
      "  backward = function(ctx, g) return g * 2 end}\n"
      "amp.manual_seed(7)\n"
      "local net = amp.nn.Sequential(amp.nn.Linear(4, 8), amp.nn.ReLU(), amp.nn.Linear(8, 1))\n"
      "local opt = amp.optim.SGD(net:parameters(), {lr = 0.01})\n"
      "local x = amp.arange(0, 32):view(8, 4) / 32\n"
      "local first, last, hooked = nil, nil, 0\n"
      "for i = 1, 200 do\n"
      "  local loss = amp.autocast({dtype = i %% 2 == 0 and 'bfloat16' or 'float16'}, function()\n"
      "    local h = double(net(x))\n"
      "    h:register_hook(function(g) hooked = hooked + 1 return g end)\n"
      "    return (h - 1):pow(2):mean()\n"
      "  end)\n"
      "  loss:backward() opt:step() opt:zero_grad()\n"
      "  last = loss:item() first = first or last\n"
      "end\n"
      "assert(hooked == 200 and last < first / 4, last)\n"
      "collectgarbage() collectgarbage() require('amp.core.call').attend()\n"
      "local left = 0 for _ in pairs(closures) do left = left + 1 end\n"
      "assert(left < 20, left .. ' functions of Lua left')\n";

static void lua_states(void)
{
  char folder[512], root[512] = __FILE__;
  ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
  void *h = dlopen("libluajit-5.1.so.2", RTLD_NOW | RTLD_GLOBAL);
  for (int up = 0; up < 3; up++) {
    char *s = strrchr(root, '/');
    if (s == NULL) return;
    *s = 0;
  }
  if (h == NULL || n <= 0) {
    printf("no LuaJIT library: Lua states are not tried\n");
    return;
  }
  folder[n] = 0;
  *strrchr(folder, '/') = 0;
  char library[600];
  snprintf(library, sizeof library, "%s/amp/libamp.so", folder);
  if (access(library, R_OK) != 0) {
    printf("no %s: Lua states are not tried\n", library);
    return;
  }
  if (dlopen(library, RTLD_NOW) == NULL) { /* here, since ThreadSanitizer does not see the loader's lock */
    CHECK(false);
    return;
  }
  snprintf(script, sizeof script, text, root, root, folder);
  lua.newstate = (lua_State * (*)(void)) dlsym(h, "luaL_newstate");
  lua.openlibs = (void (*)(lua_State *))dlsym(h, "luaL_openlibs");
  lua.loadstring = (int (*)(lua_State *, const char *))dlsym(h, "luaL_loadstring");
  lua.pcall = (int (*)(lua_State *, int, int, int))dlsym(h, "lua_pcall");
  lua.tolstring = (const char *(*)(lua_State *, int, size_t *))dlsym(h, "lua_tolstring");
  lua.close = (void (*)(lua_State *))dlsym(h, "lua_close");
  in_threads(lua_thread, 3);
  in_threads(lua_thread, 2); /* the library stays; states after others have closed */
}

int main(void)
{
  amp_state *S = amp_state_new();
  X = matrix(S, 1, 1);
  double w[N * N];
  int64_t size[2] = { N, N };
  for (int i = 0; i < N * N; i++) w[i] = i / N % 2 ? 0 : 0.25;
  OK(amp_from_double(S, &W, w, 2, size, AMP_FLOAT32));
  OK(amp_requires_grad(S, &W, 1));
  ids_stay_apart();
  in_threads(reader, THREADS);
  pthread_barrier_init(&all, NULL, THREADS);
  in_threads(trader, THREADS);
  pthread_barrier_destroy(&all);
  in_threads(short_lived, THREADS);
  letters_are_refused();
  letters_are_waited_for();
  in_threads(correspondent, THREADS);
  for (int i = 0; i < 64; i++) amp_release(&queue[i]);
  CHECK(queued > 0);
  CHECK(!amp_grad_defined(&W));
  amp_state_free(S);
  amp_release(&W); /* tensors outlive the state they were made in */
  amp_release(&X);
  lua_states();
  return DONE();
}
