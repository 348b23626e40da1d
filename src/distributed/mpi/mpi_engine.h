/*
** distributed/mpi/mpi_engine.h: the inside of MPI's plug-in, compiled once for each MPI, whose handles differ.
**
**   mpi_plugin.c   the thread that alone calls MPI, the queue of jobs, start and end
**   mpi_agree.c    before data moves, all ranks of a call agree on what it is
**   mpi_move.c     data, piece by piece
**   mpi_stuck.c    calls that can never meet
**
** Nothing waits inside MPI: sends and receives are begun, then asked about, so that a rank that does not come costs
** the others their timeout and no more.
*/
#ifndef AMP_MPI_ENGINE_H
#define AMP_MPI_ENGINE_H
#include <mpi.h>
#include "distributed/collectives.h"

enum { VERDICT_TEXT = 960, MOST_GROUPS = 4096 }; /* tags go up to 32767 everywhere */
enum { TAG_BYE = 1, TAG_SEND, TAG_ANSWER, TAG_PAIR, TAG_NOTE, TAG_ASK, TAG_END, TAG_GROUPS };
enum { TAG_CALL, TAG_VERDICT, TAG_DATA, TAGS_OF_GROUP }; /* of group g: TAG_GROUPS + g * TAGS_OF_GROUP + this */

typedef struct call_header { /* what a rank calls */
  int64_t seq, size[AMP_MAX_DIM];
  int32_t kind, op, dtype, root, ndim, rest;
} call_header;

typedef struct verdict { /* what the group's first rank, or the receiver, says of it */
  int64_t seq;
  int32_t ok, rest;
  char text[VERDICT_TEXT];
} verdict;

typedef struct group {
  int n, me;          /* me: -1, this rank is none of it */
  int *rank;          /* of the world */
  int64_t seq, dead;  /* of calls; dead: those up to this one were given up by all */
  call_header *heard; /* [n]: at its first rank */
  MPI_Request *hearing;
  bool *posted, *came;
  verdict answer; /* elsewhere */
  MPI_Request answering;
  bool waits;
} group;

typedef struct run { /* a job under way */
  int phase;
  double began, until;
  call_header mine, theirs;
  verdict said;
  MPI_Request *request;
  int *peer; /* of each request: the rank that it waits for */
  int count, cap;
  void *temp, **parts;
  int64_t at; /* elements that are done */
  bool failed;
} run;

typedef struct pair { /* sends to, and receives from, a rank */
  int64_t sent, dead; /* dead: sends of this rank up to this number were given up */
} pair;

typedef struct engine {
  const amp_collectives_core *core;
  int rank, size, ngroup;
  group *groups[MOST_GROUPS];
  pair *pairs;
  int *gone; /* of each rank: 0, 1 + the status that it ended with */
  int32_t bye[2];
  MPI_Request bye_request;
  _Atomic(amp_job *) waited; /* what the program waits for, and when it said so last */
  _Atomic double waited_at;
  amp_job *ended; /* given up by amp__mpi_stuck */
} engine;
extern engine amp__mpi;

/* mpi_plugin.c */
int amp__mpi_isend(run *r, const void *p, int64_t bytes, int to, int tag); /* begun; r->request has it. <0 */
int amp__mpi_irecv(run *r, void *p, int64_t bytes, int from, int tag);
int amp__mpi_done(run *r);         /* 1: all that was begun is done */
int amp__mpi_silent(const run *r); /* a rank that has not answered */
int amp__mpi_fail(amp_job *job, const char *format, ...) AMP_PRINTF(2, 3);
int amp__mpi_broken(amp_job *job); /* MPI itself gives an error */
void amp__mpi_listen(void);        /* who has left? */

/* 1: done; 0: later; -1: it failed, job->error says how */
int amp__mpi_agree(amp_job *job, run *r);
int amp__mpi_move(amp_job *job, run *r);
int amp__mpi_pair(amp_job *job, run *r); /* send and recv, all of it */

/* mpi_stuck.c. job: what the program waits for, or NULL; 1: it was given up, all ranks know */
int amp__mpi_stuck(amp_job *job);
void amp__mpi_withdraw(amp_job *job); /* what a send or recv waits for that fails */

static inline int amp__mpi_tag(int group, int which) { return TAG_GROUPS + group * TAGS_OF_GROUP + which; }

#endif
