/* base/workers.h: what a team's threads do before they work, and signals that wait meanwhile. */
#ifndef AMP_WORKERS_H
#define AMP_WORKERS_H
#include <pthread.h>
#include <signal.h>

/* Called by each thread of a team: one that is not the caller's takes no signals from then on. */
void amp__worker_begins(void);

/* The calling thread takes no signals but those of a fault, which come at once or end the process. `before`, which may
** be NULL, gets what it took. Plug-ins need it, too, so it is here. */
static inline void amp__block_signals(sigset_t *before)
{
  static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS };
  sigset_t all;
  sigfillset(&all);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&all, faults[i]);
  pthread_sigmask(SIG_BLOCK, &all, before);
}

#endif
