/*
** base/running.c: whether the running coroutine is still the one that the state was last set for, resumed by the
** same ones.
**
** The address of the running coroutine says nothing of its resumers: a coroutine that yields and is resumed by another
** one is in the regions of that one. Nothing of the library's is called then, so it is seen by the words on the
** processor's stack that say whose frame lies above whose: noted when the state is set, compared before it is used. A
** frame is only looked at where the one below it, compared before, says that it is there. Above one that C resumed from
** nothing is known; there is nothing to compare there either.
*/
#include "base/base.h"

#define LINKED 1 /* as amp_state.owner: priv->linked is, as long as its links are what they were */

static bool note(struct amp_state_private *priv, uint64_t at)
{
  if (priv->links == AMP_LINKS) return false;
  amp_link *l = &priv->link[priv->links++];
  l->at = (const uint64_t *)(uintptr_t)at;
  l->is = *l->at;
  return true;
}

/* The last word noted. */
static uint64_t last(const struct amp_state_private *p) { return p->link[p->links - 1].is; }

int amp_links(amp_state *state, const amp_frames *f)
{
  struct amp_state_private *priv = state->priv;
  state->owner = 0;
  priv->links = 0;
  priv->linked = *state->running;
  note(priv, priv->linked + (uint64_t)f->word * 8);
  uint64_t frame = last(priv) & ~(uint64_t)3;
  while (frame) {
    uint64_t outer = *(const uint64_t *)(uintptr_t)(frame + (uint64_t)f->outer);
    if (outer) {
      if (!note(priv, frame + (uint64_t)f->outer)) return 0;
      frame = outer & ~(uint64_t)3;
      continue;
    }
    if (!note(priv, frame + (uint64_t)f->back)) return 0;
    if (last(priv) != f->by_resume && last(priv) != f->by_wrap) break;
    frame += (uint64_t)f->step;
    if (!note(priv, frame + (uint64_t)f->owner)) return 0;
    if (last(priv) == f->main) break;
  }
  state->owner = LINKED;
  return 1;
}

int amp_moved(const amp_state *state)
{
  if (state->running == NULL || *state->running == state->owner) return 0;
  const struct amp_state_private *p = state->priv;
  if (state->owner != LINKED || *state->running != p->linked) return 1;
  for (int i = 0; i < p->links; i++)
    if (*p->link[i].at != p->link[i].is) return 1;
  return 0;
}
