/*
** autograd/shadow_list.c: lists of leaves that have a low-precision copy ("shadow") which no optimizer owns: one list a
** state. What a copy is right for, precision/cast.c knows.
*/
#include <pthread.h>
#include "autograd/shadow_list.h"
#include "base/locks.h"

/* A leaf may serve several states in several threads at once, and be freed by any of them: lists and shadows
** change under this lock. While there is one state only, its uses of a shadow need none. */
static _Thread_local bool holding AMP_TLS_NEAR;

bool amp__shadows_shared(void) { return atomic_load_explicit(&amp__states, memory_order_relaxed) > 1; }

/* Take the lock, unless this thread has it: then what `took` says is no. */
bool amp__shadows_lock(void)
{
  if (holding) return false;
  amp__lock(AMP_LOCK_SHADOWS);
  return holding = true;
}

void amp__shadows_unlock(bool took)
{
  if (!took) return;
  holding = false;
  amp__unlock(AMP_LOCK_SHADOWS);
}

void amp__shadow_list(amp_ag *ag)
{
  bool took = amp__shadows_lock();
  if (ag->list_owner == NULL) {
    struct amp_state_private *priv = amp__S->priv;
    ag->prev = NULL;
    ag->next = priv->shadows;
    if (priv->shadows) priv->shadows->prev = ag;
    __atomic_store_n(&priv->shadows, ag, __ATOMIC_RELAXED); /* its state looks whether there is one */
    __atomic_store_n(&ag->list_owner, amp__S, __ATOMIC_RELEASE);
  }
  amp__shadows_unlock(took);
}

/* Under the lock. The last thing it touches is list_owner: once that is NULL, ag is its tensor's alone. */
static void unlist(amp_ag *ag)
{
  AMP_ASSERT(holding && ag->list_owner && (ag->prev || ag->list_owner->priv->shadows == ag));
  amp_tensor *shadow = ag->shadow;
  amp_state *owner = ag->list_owner;
  if (ag->prev) ag->prev->next = ag->next;
  else __atomic_store_n(&owner->priv->shadows, ag->next, __ATOMIC_RELAXED);
  if (ag->next) ag->next->prev = ag->prev;
  ag->prev = ag->next = NULL;
  ag->shadow = NULL;
  ag->shadow_is_model = 0;
  __atomic_store_n(&ag->list_owner, NULL, __ATOMIC_RELEASE);
  amp__free(shadow);
}

void amp__shadow_drop(amp_ag *ag)
{
  if (__atomic_load_n(&ag->list_owner, __ATOMIC_ACQUIRE)) {
    bool took = amp__shadows_lock();
    if (ag->list_owner) unlist(ag);
    amp__shadows_unlock(took);
  }
  amp__free(ag->shadow);
  ag->shadow = NULL;
  ag->shadow_is_model = 0;
}

/* Drop shadows in the state's list: those of exposed storage; all that no optimizer keeps; all. */
void amp__shadows_drop(amp_state *state, int which)
{
  if (__atomic_load_n(&state->priv->shadows, __ATOMIC_RELAXED) == NULL) return;
  bool took = amp__shadows_lock();
  for (amp_ag *ag = state->priv->shadows, *next; ag; ag = next) {
    next = ag->next;
    if (which == AMP_SHADOWS_ALL || (!ag->shadow_owned && (which == AMP_SHADOWS_UNOWNED || amp__exposed(ag->self))))
      unlist(ag);
  }
  amp__shadows_unlock(took);
}

int amp__shadows_shed(int device)
{
  amp_state *state = amp__S;
  int count = 0;
  if (state == NULL || __atomic_load_n(&state->priv->shadows, __ATOMIC_RELAXED) == NULL) return 0;
  bool took = amp__shadows_lock();
  for (amp_ag *ag = state->priv->shadows, *next; ag; ag = next) {
    next = ag->next;
    if (ag->shadow_owned || ag->self->device != device) continue;
    unlist(ag);
    count++;
  }
  amp__shadows_unlock(took);
  return count;
}
