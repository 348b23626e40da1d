/*
** distributed/collectives.h: what an engine of collectives offers (MPI's and NCCL's plug-ins), and what it may
** call of the core. Beside base/device.h: a device's table says how one process computes, this one how several talk.
*/
#ifndef AMP_COLLECTIVES_H
#define AMP_COLLECTIVES_H
#include "base/base.h"

enum { AMP_JOB_ERROR = 1024 };

/* One call of one rank. Tensors are contiguous. What stands in `in` and `out`, each of `count` elements unless said:
**   all_reduce, broadcast   out[0], in place          reduce          in[0]; out[0] at the root, the same place
**   all_gather              in[0]; out[0] of n count  gather          in[0]; out[0..n-1] at the root
**   scatter                 in[0..n-1] at the root; out[0]            all_to_all      in[0..n-1], out[0..n-1]
**   reduce_scatter          in[0] of n count; out[0]  send, recv      in[0]; out[0]
** `root` is a place in the group from 0; for send and recv, a rank of the world from 0. */
typedef struct amp_job {
  int kind, op, dtype, group, root;
  int ndim;
  int64_t size[AMP_MAX_DIM]; /* of the tensor that the caller gave, for the agreement of all ranks */
  int64_t count;
  double timeout;
  int nin, nout;
  void **in, **out;
  void *stream; /* of a device: where the caller computes */
  /* by the engine */
  _Atomic int state; /* 0: under way; 1: done; -1: error */
  bool waited;       /* what the caller queues from now on comes after it, state or not */
  bool stuck;        /* its memory is still the engine's, for ever */
  char error[AMP_JOB_ERROR];
  struct amp_job *next;
  void *own;
} amp_job;

typedef struct amp_collectives_core {
  const uint8_t *dtype_size;
  /* out = parts[0] op parts[1] ..., in this order, in float32 (64, int64), rounded once; mean divides by n. out may be
  ** one of the parts. */
  void (*combine)(int dtype, int op, void *out, void *const *parts, int n, int64_t count);
  const char *(*describe)(const amp_job *job, char *text, size_t size); /* "all_reduce(sum) of float32 2x3" */
  double (*clock)(void);
  int (*share)(void *bytes, size_t n); /* rank 1's, to all, through the engine that was started before; <0: none was */
} amp_collectives_core;

typedef struct amp_collectives {
  const char *name;
  int device, index;                                             /* where its tensors lie; start sets index */
  int (*start)(int *rank, int *size, char *why, size_t room);    /* ranks from 0. <0: why says it */
  int (*group)(const int *ranks, int n, char *why, size_t room); /* of the world; its number, from 1; 0 is the world */
  void (*submit)(amp_job *job);                                  /* job->state tells */
  bool (*wait)(amp_job *job, double seconds);                    /* its state has changed */
  void (*drop)(amp_job *job);                                    /* own memory of a job that is over */
  int (*stop)(double timeout, int status, char *why, size_t room); /* status: of the process, which ends */
  /* A captured step with calls in it was queued; NULL: there are none such. <0: why says it */
  int (*played)(void *stream, double timeout, char *why, size_t room);
} amp_collectives;
/* What a plug-in exports beside amp_plugin_version. */
typedef const amp_collectives *(*amp_plugin_collectives_fn)(const amp_collectives_core *core);

const amp_collectives *amp__collectives(const char *name, const char **why); /* dispatch/device.c */

#endif
