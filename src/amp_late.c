/*
** amp_late.c: marks in streams, behind which freed memory is free.
**
**   freed -> (late) -> settle: one mark into the streams of all that are late
**   -> settle, later: the streams passed it, the blocks go to their lists
**
** Freeing calls no device, so marks are set when memory is asked for and none is
** there. They are passed in the order in which they were set, or nearly: a group
** waits for those before it. Which blocks there are is amp_alloc.c's.
*/
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include "amp_late.h"

enum { INDICES = 16 };
typedef struct group { struct group *next; void *mark, *list; } group;
static group *first[INDICES], **last[INDICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* taken before the allocator's */

static const amp_stream_ops *streams_of(int device) { return amp__streamed && device > AMP_CPU ? amp__devices[device].streams : NULL; }

void amp__late_settle(int device, int index)
{
  const amp_stream_ops *o = streams_of(device);
  uint32_t streams = 0;
  if (o == NULL) return;
  pthread_mutex_lock(&lock);
  void *list = amp__late_take(index, &streams);
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
      amp__late_return(index, list);
    }
  }
  for (group *g; (g = first[index]) && o->reached(index, g->mark); ) {
    first[index] = g->next;
    amp__late_over(g->list);
    free(g);
  }
  pthread_mutex_unlock(&lock);
}

static bool waiting(int index)
{
  pthread_mutex_lock(&lock);
  bool yes = first[index] != NULL;
  pthread_mutex_unlock(&lock);
  return yes && !__atomic_load_n(&amp__capturing, __ATOMIC_RELAXED);
}

void amp__late_settle_all(int device)
{
  const struct timespec moment = { 0, 50000 };
  if (streams_of(device) == NULL || __atomic_load_n(&amp__capturing, __ATOMIC_RELAXED)) return;
  for (int i = 0; i < INDICES && i < amp__devices[device].count; i++) {
    amp__late_settle(device, i);
    while (waiting(i)) { /* not by a wait of the stream's: that would swallow what kernels have to tell */
      nanosleep(&moment, NULL);
      amp__late_settle(device, i);
    }
  }
}
