/*
** base/locks.h: the library's mutexes. All lie in one table, in the order in which a
** thread may take them, so that a fork finds every one of them free (base/fork.c).
*/
#ifndef AMP_LOCKS_H
#define AMP_LOCKS_H
#include "base/base.h"

enum amp_lock {
  AMP_LOCK_MAILBOXES, /* letters between states (tensor/mailbox.c) */
  AMP_LOCK_FLOAT8,    /* what 8-bit regions keep of weights (precision/float8_layer.c) */
  AMP_LOCK_PLUGINS,   /* plug-ins are loaded and switched (dispatch/device.c) */
  AMP_LOCK_SHADOWS,   /* low-precision copies of leaves (autograd/shadow_list.c) */
  AMP_LOCK_MARKS,     /* marks in streams (tensor/deferred_free.c) */
  AMP_LOCK_BLOCKS,    /* shared lists of memory (tensor/alloc.c) */
  AMP_LOCK_IDS,       /* ids of what is gone (base/ids.c) */
  AMP_LOCK_MATRICES,  /* the first matrix that failed (ops/linalg/linalg.c) */
  AMP_LOCK_GRAPHS,    /* what graphs keep between runs (graph/kept.c) */
  AMP_LOCK_COUNT
};
typedef struct amp_mutex {
  _Alignas(64) pthread_mutex_t mutex;
} amp_mutex;
extern amp_mutex amp__locks[AMP_LOCK_COUNT];

#ifdef AMP_DEBUG
extern AMP_THREAD unsigned amp__held AMP_TLS_NEAR; /* bits of what this thread has taken */
#endif

/* What the caller must have taken. */
static inline void amp__assert_locked(enum amp_lock which)
{
#ifdef AMP_DEBUG
  AMP_ASSERT(amp__held >> which & 1);
#endif
  (void)which;
}

static inline void amp__lock(enum amp_lock which)
{
#ifdef AMP_DEBUG
  AMP_ASSERT(amp__held >> which == 0);
  amp__held |= 1u << which;
#endif
  pthread_mutex_lock(&amp__locks[which].mutex);
}

static inline void amp__unlock(enum amp_lock which)
{
  amp__assert_locked(which);
  pthread_mutex_unlock(&amp__locks[which].mutex);
#ifdef AMP_DEBUG
  amp__held &= ~(1u << which);
#endif
}

void amp__fork_init(void);                /* once */
bool amp__fork_alone(void);               /* this is a forked process that must work with one thread */
void amp__fork_teams(void);               /* a team of several threads is about to work */
void amp__fork_guest(pthread_mutex_t *m); /* a plug-in's mutex, taken before those behind AMP_LOCK_PLUGINS */
extern AMP_THREAD bool amp__loading_here AMP_TLS_NEAR; /* this thread is loading a plug-in */
#endif
