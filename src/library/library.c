/*
** library/library.c: the roof: it knows every room. It puts their functions where the rooms
** below find them, makes and frees states, and tells the library's own facts.
*/
#include <pthread.h>
#include <stdlib.h>
#include "base/ids.h"
#include "base/locks.h"
#include "dispatch/cell.h"
#include "dispatch/op_builder.h"
#include "distributed/distributed.h"
#include "graph/graph.h"
#include "library/functions.h"
#include "precision/scale.h"
#define AMP_HASH_CORE
#include "library/table_hash.h"

/* -- Library --------------------------------------------------------------- */

static amp_state *thread_state(void);

/* Before anything can call: what is below finds its hooks, the op table and the CPU's kernels in place, and a fork the
** handlers that take the mutexes. */
__attribute__((constructor)) static void library_loaded(void)
{
  amp__functions_install();
  amp__hooks.thread_state = thread_state;
  amp__autograd_install();
  amp__journal_install();
  amp__precision_install();
  amp__check_install();
  amp__capture_install();
  amp__observe_install();
  amp__graph_install();
  amp__distributed_install();
  amp__fork_init();
#ifdef AMP_DEBUG
  for (size_t i = 0; i < sizeof amp__hooks / sizeof(void *); i++) {
    const void *hook;
    memcpy(&hook, (const char *)&amp__hooks + i * sizeof hook, sizeof hook);
    AMP_ASSERT(hook != NULL);
  }
#endif
}

const char *amp_version(void) { return AMP_VERSION; }

int amp_abi_version(void) { return AMP_ABI; }
uint64_t amp_table_hash(void) { return amp__table_hash(); }

const char *amp_cdef(void)
{
  static const char text[] =
#include "amp_cdef.inc"
      ;
  return text;
}

/* -- States ---------------------------------------------------------------- */

amp_state *amp_state_new(void)
{
  static _Atomic uint64_t made;
  amp_state *state = calloc(1, sizeof *state);
  if (state == NULL) return NULL;
  state->priv = calloc(1, sizeof *state->priv);
  if (state->priv == NULL) {
    free(state);
    return NULL;
  }
  state->priv->region_epoch = amp__new_epoch();
  amp__dead_open(state);
  atomic_fetch_add(&amp__states, 1);
  state->grad_mode = 1;
  state->default_dtype = AMP_FLOAT32;
  state->default_device = AMP_CPU;
  for (int i = 0; i < 2; i++) {
    state->autocast[i].dtype = i == AMP_CUDA ? AMP_FLOAT16 : AMP_BFLOAT16;
    state->autocast[i].cache = 1;
  }
  /* a fixed start, another one for each further state; below 2^53, so that a Lua number holds it */
  state->seed = 0x9e3779b97f4a7c15u * (atomic_fetch_add_explicit(&made, 1, memory_order_relaxed) + 1) >> 11;
  return state;
}

void amp_state_use(amp_state *state) { AMP_ENTER(state); }
amp_state *amp_state_used(void) { return amp__S; }

void amp_state_free(amp_state *state)
{
  if (state == NULL) return;
  amp__tty_forget(state);
  amp_state *caller = amp__S;
  struct amp_state_private *priv = state->priv;
  AMP_ENTER(state);
  amp_clear_autocast_cache(state);
  amp__pool_release(0);
  amp__dead_close(state);
  amp__observe_free(state);
  amp__free(priv->one);
  amp__free(priv->zeros);
  atomic_fetch_sub(&amp__states, 1);
  amp__S = caller == state ? NULL : caller;
  free(priv->pool);
  for (int i = 0; i < priv->caplog; i++) free(priv->log[i]);
  free(priv->log);
  free(priv);
  free(state);
}

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void state_over(void *state) { amp_state_free(state); }
static void make_key(void) { pthread_key_create(&key, state_over); }

/* Of a thread that has used none: one that goes with it. */
static amp_state *thread_state(void)
{
  pthread_once(&once, make_key);
  amp_state *S = pthread_getspecific(key);
  if (S == NULL && (S = amp_state_new()) != NULL && pthread_setspecific(key, S) != 0) {
    amp_state_free(S);
    S = NULL;
  }
  return S;
}
