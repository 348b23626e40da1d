/*
** base/ids.c: ids of what Lua keeps for the core (functions, hooks, borrowed memory), and lists of
** those whose owner is gone. A list is drained by the state's own thread (amp_dead_next).
*/
#include <pthread.h>
#include <stdlib.h>
#include "base/ids.h"
#include "base/locks.h"

/* An id belongs to the state it was made in: its low bits say whose list it comes to. Places in the table are
** used again; an id of a former owner does no harm, as no id is made twice. */
enum { PLACES = 4096 };
static struct {
  int64_t *id;
  int count, cap, states;
} dead[PLACES];
static _Atomic int64_t last_id;

int64_t amp__new_id(void) { return (atomic_fetch_add(&last_id, 1) + 1) * PLACES + amp__S->priv->ids; }

void amp__dead_open(amp_state *state)
{
  int k = 0;
  amp__lock(AMP_LOCK_IDS);
  while (k < PLACES - 1 && dead[k].states) k++; /* more states than places share the last one */
  dead[k].states++;
  state->priv->ids = k;
  amp__unlock(AMP_LOCK_IDS);
}

void amp__dead_close(amp_state *state)
{
  int k = state->priv->ids;
  amp__lock(AMP_LOCK_IDS);
  AMP_ASSERT(dead[k].states > 0);
  if (--dead[k].states == 0) {
    free(dead[k].id);
    dead[k].id = NULL;
    dead[k].count = dead[k].cap = 0;
  }
  amp__unlock(AMP_LOCK_IDS);
}

/* Never fails its caller: without memory for the list the id stays, and with it a Lua closure. */
void amp__dead_push(int64_t id)
{
  int k = (int)(id % PLACES);
  AMP_ASSERT(id > 0);
  amp__lock(AMP_LOCK_IDS);
  if (dead[k].count == dead[k].cap && dead[k].states) {
    int cap = dead[k].cap ? dead[k].cap * 2 : 64;
    int64_t *p = realloc(dead[k].id, sizeof *p * (size_t)cap);
    if (p) {
      dead[k].id = p;
      dead[k].cap = cap;
    }
  }
  if (dead[k].count < dead[k].cap) dead[k].id[dead[k].count++] = id;
  amp__unlock(AMP_LOCK_IDS);
  /* another state's fields are its own thread's: it finds out when it next paces the collector */
  if (amp__S && amp__S->priv->ids == k) amp__S->attention |= AMP_A_DEAD;
}

int64_t amp_dead_next(amp_state *state)
{
  AMP_ENTER(state);
  int k = state->priv->ids;
  amp__lock(AMP_LOCK_IDS);
  int64_t id = dead[k].count ? dead[k].id[--dead[k].count] : 0;
  amp__unlock(AMP_LOCK_IDS);
  return id;
}
