/*
** base/fork.c: fork while other threads work. The child has only the thread that
** forked; a mutex that another one held would stay taken there for ever, and what
** it guards could be half changed.
**
**   before   the forking thread takes every mutex, in the order of base/locks.h
**   after    parent and child give them back
**
** Loading a plug-in may take seconds, and libraries that register handlers of
** their own while they are loaded need a lock that old C libraries hold during a
** fork: that mutex is waited for only so long. A child made in the middle of a
** load takes the plain kernels.
**
** A team of OpenMP is its parent's: where one has ever worked, a child that asked
** for another would wait for threads that are not there. It works with one.
*/
#include <time.h>
#include "base/hooks.h"
#include "base/locks.h"

amp_mutex amp__locks[AMP_LOCK_COUNT] = { [0 ... AMP_LOCK_COUNT - 1] = { PTHREAD_MUTEX_INITIALIZER } };
#ifdef AMP_DEBUG
AMP_THREAD unsigned amp__held;
#endif

enum { GUESTS = 8, PATIENCE_MS = 5000 };
enum loader { NOBODY, ANOTHER, MYSELF }; /* who has the plug-ins' mutex during a fork beside the fork itself */
static pthread_mutex_t *guests[GUESTS];
static int guest_count;
/* Of the fork under way; written and read while the mutexes behind the plug-ins' are held */
static enum loader loader;
static int taken;
static _Atomic bool teamed, alone;
AMP_THREAD bool amp__loading_here;

void amp__fork_teams(void)
{
  if (!atomic_load_explicit(&teamed, memory_order_relaxed)) atomic_store_explicit(&teamed, true, memory_order_relaxed);
}

bool amp__fork_alone(void) { return atomic_load_explicit(&alone, memory_order_relaxed); }

/* Called while a plug-in is loaded, which one thread does at a time. */
void amp__fork_guest(pthread_mutex_t *m)
{
  for (int i = 0; i < guest_count; i++)
    if (guests[i] == m) return;
  AMP_ASSERT(guest_count < GUESTS);
  if (guest_count == GUESTS) return;
  guests[guest_count] = m;
  __atomic_store_n(&guest_count, guest_count + 1, __ATOMIC_RELEASE);
}

static enum loader take_plugins(void)
{
  const struct timespec moment = { 0, 1000000 };
  if (amp__loading_here) return MYSELF; /* a library that starts a program while it is loaded */
  for (int i = 0; i < PATIENCE_MS; i++) {
    if (pthread_mutex_trylock(&amp__locks[AMP_LOCK_PLUGINS].mutex) == 0) return NOBODY;
    nanosleep(&moment, NULL);
  }
  return ANOTHER;
}

static void before(void)
{
  enum loader found = take_plugins();
  int n = __atomic_load_n(&guest_count, __ATOMIC_ACQUIRE);
  for (int i = 0; i < n; i++) pthread_mutex_lock(guests[i]);
  for (int i = AMP_LOCK_PLUGINS + 1; i < AMP_LOCK_COUNT; i++) pthread_mutex_lock(&amp__locks[i].mutex);
  loader = found;
  taken = n;
}

static void release(void)
{
  int n = taken;
  enum loader found = loader;
  for (int i = AMP_LOCK_COUNT; --i > AMP_LOCK_PLUGINS;) pthread_mutex_unlock(&amp__locks[i].mutex);
  while (n-- > 0) pthread_mutex_unlock(guests[n]);
  if (found == NOBODY) pthread_mutex_unlock(&amp__locks[AMP_LOCK_PLUGINS].mutex);
}

static void in_child(void)
{
  release();
  if (loader == ANOTHER) {
    pthread_mutex_init(&amp__locks[AMP_LOCK_PLUGINS].mutex, NULL);
    amp__hooks.plugins_abandon();
  }
  if (atomic_load_explicit(&teamed, memory_order_relaxed)) atomic_store_explicit(&alone, true, memory_order_relaxed);
}

/* Without memory for the handlers, forks are as unguarded as those of a library that has none. */
void amp__fork_init(void) { (void)pthread_atfork(before, release, in_child); }
