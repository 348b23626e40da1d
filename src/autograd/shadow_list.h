/*
** autograd/shadow_list.h: low-precision copies that go when they are not worth their memory (autograd/shadow_list.c).
*/
#ifndef AMP_AUTOGRAD_SHADOW_LIST_H
#define AMP_AUTOGRAD_SHADOW_LIST_H
#include "autograd/autograd.h"

/* Others can write it without giving it a version. */
static inline bool amp__exposed(const amp_tensor *tensor)
{
  return (tensor->storage->flags & (AMP_S_EXPOSED | AMP_S_FOREIGN)) != 0;
}

bool amp__shadows_shared(void); /* several states may use a leaf: its copy is read and changed under the lock */
bool amp__shadows_lock(void);   /* what it gives says whether to unlock: not where this thread had it */
void amp__shadows_unlock(bool took);
void amp__shadow_list(amp_ag *ag); /* into the list of the state in progress, unless it is in one */
enum { AMP_SHADOWS_EXPOSED, AMP_SHADOWS_UNOWNED, AMP_SHADOWS_ALL };
void amp__shadows_drop(amp_state *state,
                       int which); /* those in S's list: of exposed storage; all that no optimizer keeps; all */
int amp__shadows_shed(int device); /* memory is short: those of this state that no optimizer keeps go; how many */

#endif
