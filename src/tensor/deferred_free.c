/*
** tensor/deferred_free.c: marks in streams, behind which freed memory is free.
**
**   freed -> (deferred) -> settle: one mark into the streams of all that are deferred
**   -> settle, later: the streams passed it, the blocks go to their lists
**
** Freeing calls no device, so marks are set when memory is asked for and none is
** there. They are passed in the order in which they were set, or nearly: a group
** waits for those before it. Which blocks there are is tensor/alloc.c's.
*/
#include <stdlib.h>
#include <time.h>
#include "tensor/deferred_free.h"
#include "base/locks.h"

enum { INDICES = 16 };
typedef struct group {
  struct group *next;
  void *mark, *list;
} group;
static group *first[INDICES], **last[INDICES];

static const amp_stream_ops *streams_of(int device)
{
  return amp__streamed && device > AMP_CPU ? amp__devices[device].streams : NULL;
}

void amp__deferred_free_settle(int device, int index)
{
  const amp_stream_ops *o = streams_of(device);
  uint32_t streams = 0;
  if (o == NULL) return;
  amp__lock(AMP_LOCK_MARKS);
  void *list = amp__deferred_free_take(index, &streams);
  if (list) {
    group *g = malloc(sizeof *g);
    if (g && (g->mark = o->mark(index, streams))) {
      g->next = NULL;
      g->list = list;
      if (first[index] == NULL) last[index] = &first[index];
      *last[index] = g;
      last[index] = &g->next;
    } else {
      free(g);
      amp__deferred_free_return(index, list);
    }
  }
  for (group *g; (g = first[index]) && o->reached(index, g->mark);) {
    first[index] = g->next;
    amp__deferred_free_over(g->list);
    free(g);
  }
  amp__unlock(AMP_LOCK_MARKS);
}

static bool waiting(int index)
{
  amp__lock(AMP_LOCK_MARKS);
  bool yes = first[index] != NULL;
  amp__unlock(AMP_LOCK_MARKS);
  return yes && !__atomic_load_n(&amp__capturing, __ATOMIC_RELAXED);
}

void amp__deferred_free_settle_all(int device)
{
  const struct timespec moment = { 0, 50000 };
  if (streams_of(device) == NULL || __atomic_load_n(&amp__capturing, __ATOMIC_RELAXED)) return;
  for (int i = 0; i < INDICES && i < amp__devices[device].count; i++) {
    amp__deferred_free_settle(device, i);
    while (waiting(i)) { /* not by a wait of the stream's: that would swallow what kernels have to tell */
      nanosleep(&moment, NULL);
      amp__deferred_free_settle(device, i);
    }
  }
}
