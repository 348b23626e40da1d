/* base/workers.h: what a team's threads do before they work. */
#ifndef AMP_WORKERS_H
#define AMP_WORKERS_H

/* Called by each thread of a team: one that is not the caller's takes no signals from then on. */
void amp__worker_begins(void);

#endif
