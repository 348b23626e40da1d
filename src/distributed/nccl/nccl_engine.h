/*
** distributed/nccl/nccl_engine.h: the inside of NCCL's plug-in.
**
**   nccl_plugin.c   start, groups and end; the thread that looks after calls under way
**   nccl_call.c     one call: its events, its launch, waiting for it
**   nccl_board.c    what the ranks of one machine call, in memory they share: for messages that name ranks
**
** What waits for other ranks on the host (joining, making a group, connections at the first use) runs in a thread of
** its own, for no longer than its timeout. All other calls only queue.
*/
#ifndef AMP_NCCL_ENGINE_H
#define AMP_NCCL_ENGINE_H
#include <cuda_runtime.h>
#include <nccl.h>
#include "distributed/collectives.h"

enum { MOST_GROUPS = 256, CALL_TEXT = 192 };

#define AMP_NCCL_STEP "a captured step"
#define AMP_NCCL_UNREAD(call) \
  do {                        \
    if (call) {}              \
  } while (0) /* a status that changes nothing: the process leaves, or the next call has it again */

typedef struct call { /* of one job */
  cudaEvent_t before, done;
  double began;
  int64_t seq;          /* the group's count of calls */
  bool captured, sends; /* part of a captured step; a send or recv that was not launched yet */
} call;

typedef struct group {
  ncclComm_t comm; /* NULL: this rank is none of it, or it was given up */
  cudaStream_t talk;
  int n, me, *rank; /* rank: of the world; NULL: the world itself */
  int64_t seq;
  uint32_t used; /* kinds of calls that were made before: their connections are there */
} group;

typedef struct engine {
  const amp_collectives_core *core;
  int rank, size, device, ngroup;
  group groups[MOST_GROUPS];
  void *nothing;     /* on the device: what a barrier sums */
  int64_t plays;     /* of captured steps */
  bool any_captured; /* a captured step holds communicators: they are not to be destroyed */
  _Atomic bool broken;
  char broken_text[AMP_JOB_ERROR];
} engine;
extern engine amp__nccl;

#define AMP_NCCL_FUNCTIONS(X) \
  X(ncclGetUniqueId)          \
  X(ncclCommInitRankConfig)   \
  X(ncclCommSplit)            \
  X(ncclCommAbort)            \
  X(ncclCommDestroy)          \
  X(ncclGetErrorString)       \
  X(ncclAllReduce)            \
  X(ncclBroadcast)            \
  X(ncclReduce)               \
  X(ncclAllGather)            \
  X(ncclReduceScatter)        \
  X(ncclSend) X(ncclRecv) X(ncclGroupStart) X(ncclGroupEnd)
#define AMP_NCCL_POINTER(name) extern __typeof__(&name) p_##name;
AMP_NCCL_FUNCTIONS(AMP_NCCL_POINTER)

/* Is the event's, or the stream's, work not done yet? The runtime would keep the answer as an error. */
static inline bool amp__nccl_not_ready(cudaError_t answer)
{
  if (answer != cudaSuccess) AMP_NCCL_UNREAD(cudaGetLastError());
  return answer == cudaErrorNotReady;
}

/* nccl_plugin.c */
/* fn(arg) in a thread of its own; ncclInProgress: not within these seconds, and arg (from malloc) stays its own. Frees
** arg. */
ncclResult_t amp__nccl_patiently(ncclResult_t (*fn)(void *arg), void *arg, double seconds);
void amp__nccl_give_up(const char *text); /* ends all communicators, so that the device goes on */
void amp__nccl_watch(amp_job *job);       /* until it is done */
void amp__nccl_forget(amp_job *job);

/* nccl_call.c */
void amp__nccl_submit(amp_job *job);
bool amp__nccl_wait(amp_job *job, double seconds);
void amp__nccl_drop(amp_job *job);
int amp__nccl_played(void *stream, double timeout, char *why, size_t room);

/* nccl_board.c */
void amp__board_open(const char *world); /* the same text on all ranks */
void amp__board_joined(void);            /* all ranks are there: nobody else opens it */
void amp__board_close(void);
void amp__board_call(int group, int64_t seq, const char *text);
/* What is known of others who keep this call waiting; false: nothing is wrong yet. late: time is up. seq 0: of who has
** not joined */
bool amp__board_tells(int group, int64_t seq, const char *text, bool late, double seconds, char *why, size_t room);

#endif
