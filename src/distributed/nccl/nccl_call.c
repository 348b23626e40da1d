/*
** distributed/nccl/nccl_call.c: one call: what is queued for it, and what waits for it.
**
**   compute  ---- before -------------------------------- wait -> after
**   talk              `-> NCCL's kernel -> done ----------'
**
** Each group has its own stream, so that groups that are disjoint, or are used in another order, keep each other from
** nothing. Sends and receives between pairs of ranks are held back until one of them is waited for, or another call
** comes, and then launched as one: neither has to be first.
*/
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "distributed/nccl/nccl_engine.h"

static amp_job *held[64]; /* sends and receives */
static int nheld;

static int type_of(int dtype, ncclDataType_t *type)
{
  static const int known[AMP_DTYPE_COUNT] = {
    [AMP_FLOAT64] = 1 + ncclFloat64,   [AMP_FLOAT32] = 1 + ncclFloat32, [AMP_FLOAT16] = 1 + ncclFloat16,
    [AMP_BFLOAT16] = 1 + ncclBfloat16, [AMP_INT64] = 1 + ncclInt64,     [AMP_INT32] = 1 + ncclInt32,
    [AMP_INT8] = 1 + ncclInt8,         [AMP_UINT8] = 1 + ncclUint8,     [AMP_BOOL] = 1 + ncclUint8,
  };
  if (known[dtype] == 0) return -1;
  *type = (ncclDataType_t)(known[dtype] - 1);
  return 0;
}

static ncclRedOp_t op_of(const amp_job *job)
{
  static const ncclRedOp_t ops[] = { ncclSum, ncclAvg, ncclMax, ncclMin, ncclProd };
  if (job->dtype != AMP_BOOL) return ops[job->op];
  return job->op == AMP_DIST_MIN || job->op == AMP_DIST_PRODUCT ? ncclMin : ncclMax; /* and, or */
}

static bool is_pair(const amp_job *job) { return job->kind == AMP_DIST_SEND || job->kind == AMP_DIST_RECV; }

static bool by_pairs(int kind) /* connections are made pair by pair */
{
  return kind == AMP_DIST_SEND || kind == AMP_DIST_RECV || kind == AMP_DIST_GATHER || kind == AMP_DIST_SCATTER
         || kind == AMP_DIST_ALL_TO_ALL;
}

static bool sums(const amp_job *job)
{
  return job->kind == AMP_DIST_ALL_REDUCE || job->kind == AMP_DIST_REDUCE || job->kind == AMP_DIST_REDUCE_SCATTER;
}

static void refuse(amp_job *job, const char *text)
{
  snprintf(job->error, sizeof job->error, "%s", text);
  atomic_store(&job->state, -1);
}

/* -- Launches ------------------------------------------------------------------------- */

/* Pieces between the root, or all, and all, as one launch. Bytes: any dtype goes. */
static ncclResult_t pieces(const amp_job *job, const group *g, size_t bytes)
{
  ncclResult_t status = p_ncclGroupStart();
  bool each = job->kind == AMP_DIST_ALL_TO_ALL, root = g->me == job->root;
  for (int i = 0; i < g->n && status == ncclSuccess; i++) {
    if (each || (job->kind == AMP_DIST_SCATTER && root))
      status = p_ncclSend(job->in[i], bytes, ncclUint8, i, g->comm, g->talk);
    if (status == ncclSuccess && (each || (job->kind == AMP_DIST_GATHER && root)))
      status = p_ncclRecv(job->out[i], bytes, ncclUint8, i, g->comm, g->talk);
  }
  if (status == ncclSuccess && job->kind == AMP_DIST_GATHER)
    status = p_ncclSend(job->in[0], bytes, ncclUint8, job->root, g->comm, g->talk);
  if (status == ncclSuccess && job->kind == AMP_DIST_SCATTER)
    status = p_ncclRecv(job->out[0], bytes, ncclUint8, job->root, g->comm, g->talk);
  ncclResult_t end = p_ncclGroupEnd();
  return status == ncclSuccess ? end : status;
}

static ncclResult_t launch(const amp_job *job, const group *g, ncclDataType_t type)
{
  size_t n = (size_t)job->count, bytes = n * amp__nccl.core->dtype_size[job->dtype];
  void *out = job->nout ? job->out[0] : NULL;
  if (n == 0 && job->kind != AMP_DIST_BARRIER) return ncclSuccess;
  switch (job->kind) {
  case AMP_DIST_ALL_REDUCE: return p_ncclAllReduce(out, out, n, type, op_of(job), g->comm, g->talk);
  case AMP_DIST_BROADCAST: return p_ncclBroadcast(out, out, bytes, ncclUint8, job->root, g->comm, g->talk);
  case AMP_DIST_REDUCE: return p_ncclReduce(job->in[0], out, n, type, op_of(job), job->root, g->comm, g->talk);
  case AMP_DIST_ALL_GATHER: return p_ncclAllGather(job->in[0], out, bytes, ncclUint8, g->comm, g->talk);
  case AMP_DIST_REDUCE_SCATTER: return p_ncclReduceScatter(job->in[0], out, n, type, op_of(job), g->comm, g->talk);
  case AMP_DIST_SEND: return p_ncclSend(job->in[0], bytes, ncclUint8, job->root, g->comm, g->talk);
  case AMP_DIST_RECV: return p_ncclRecv(out, bytes, ncclUint8, job->root, g->comm, g->talk);
  case AMP_DIST_GATHER:
  case AMP_DIST_SCATTER:
  case AMP_DIST_ALL_TO_ALL: return pieces(job, g, bytes);
  case AMP_DIST_BARRIER:
    return p_ncclAllReduce(amp__nccl.nothing, amp__nccl.nothing, 1, ncclUint8, ncclMax, g->comm, g->talk);
  default: return ncclSuccess;
  }
}

/* After what the caller has queued so far */
static cudaError_t behind(const amp_job *job, call *c, const group *g)
{
  cudaError_t e = cudaEventCreateWithFlags(&c->before, cudaEventDisableTiming);
  if (e == cudaSuccess) e = cudaEventCreateWithFlags(&c->done, cudaEventDisableTiming);
  if (e == cudaSuccess) e = cudaEventRecord(c->before, (cudaStream_t)job->stream);
  if (e == cudaSuccess) e = cudaStreamWaitEvent(g->talk, c->before, 0);
  return e;
}

typedef struct launching {
  const group *g;
  ncclDataType_t type;
  int n;
  amp_job *job[64];
} launching;

static ncclResult_t do_launch(void *given)
{
  const launching *l = given;
  ncclResult_t status = l->n > 1 ? p_ncclGroupStart() : ncclSuccess;
  for (int i = 0; i < l->n && status == ncclSuccess; i++) status = launch(l->job[i], l->g, l->type);
  if (l->n == 1) return status;
  ncclResult_t end = p_ncclGroupEnd();
  return status == ncclSuccess ? end : status;
}

/* Jobs of a group, as one launch. What has not been called before may wait for the others on the host. */
static void launch_all(amp_job *const *jobs, int n, group *g, ncclDataType_t type)
{
  launching l = { g, type, n, { 0 } }, *own;
  uint32_t kind = by_pairs(jobs[0]->kind) ? 0 : 1u << jobs[0]->kind;
  ncclResult_t status = ncclSystemError;
  memcpy(l.job, jobs, sizeof *jobs * (size_t)n);
  if (g->comm == NULL) status = ncclInvalidUsage;
  else if (g->used & kind) status = do_launch(&l);
  else if ((own = malloc(sizeof *own)) != NULL) {
    *own = l;
    status = amp__nccl_patiently(do_launch, own, jobs[0]->timeout);
    g->used |= kind;
  }
  for (int i = 0; i < n; i++) {
    call *c = jobs[i]->own;
    char text[AMP_JOB_ERROR], what[CALL_TEXT];
    c->sends = false;
    amp__nccl.core->describe(jobs[i], what, sizeof what);
    if (status == ncclInProgress && !amp__nccl.broken) {
      snprintf(text, sizeof text, "rank %d waits for other ranks in %s for more than %g seconds", amp__nccl.rank + 1,
               what, jobs[i]->timeout);
      amp__nccl_give_up(text);
    }
    if (amp__nccl.broken) refuse(jobs[i], amp__nccl.broken_text);
    else if (status != ncclSuccess) {
      snprintf(text, sizeof text, "NCCL could not do %s: %s", what, p_ncclGetErrorString(status));
      refuse(jobs[i], text);
    } else if (cudaEventRecord(c->done, g->talk) != cudaSuccess) refuse(jobs[i], "the GPU has failed");
    else if (!c->captured) amp__nccl_watch(jobs[i]);
  }
}

/* Sends and receives that were held back, as one launch */
static void release_held(void)
{
  amp_job *jobs[64];
  int n = nheld;
  if (n == 0) return;
  memcpy(jobs, held, sizeof jobs);
  nheld = 0;
  launch_all(jobs, n, &amp__nccl.groups[0], ncclUint8);
}

void amp__nccl_submit(amp_job *job)
{
  call *c = calloc(1, sizeof *c);
  ncclDataType_t type = ncclUint8;
  group *g = &amp__nccl.groups[job->group];
  enum cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  char text[CALL_TEXT], why[AMP_JOB_ERROR / 2];
  job->own = c;
  job->next = NULL;
  if (c == NULL) return refuse(job, "no memory");
  if (amp__nccl.broken) return refuse(job, amp__nccl.broken_text);
  if (g->comm == NULL) return refuse(job, "this process has left the others");
  if (type_of(job->dtype, &type) && sums(job)) return refuse(job, "NCCL does not add this dtype");
  AMP_NCCL_UNREAD(cudaSetDevice(amp__nccl.device));
  AMP_NCCL_UNREAD(cudaStreamIsCapturing((cudaStream_t)job->stream, &capturing));
  c->captured = capturing != cudaStreamCaptureStatusNone;
  if (c->captured && job->kind >= AMP_DIST_BARRIER)
    return refuse(job, "the host waits in this call, which a captured step can't do");
  if (c->captured) amp__nccl.any_captured = true;
  c->began = amp__nccl.core->clock();
  if (is_pair(job) && nheld == (int)(sizeof held / sizeof *held)) release_held();
  if (!is_pair(job)) release_held();
  if (!c->captured && !is_pair(job)) {
    c->seq = ++g->seq;
    amp__board_call(job->group, c->seq, amp__nccl.core->describe(job, text, sizeof text));
    if (amp__board_tells(job->group, c->seq, text, false, job->timeout, why, sizeof why)) { /* before it is launched */
      amp__nccl_give_up(why);
      return refuse(job, amp__nccl.broken_text);
    }
  }
  if (behind(job, c, g) != cudaSuccess) return refuse(job, "the GPU has failed");
  if (is_pair(job)) {
    c->sends = true;
    held[nheld++] = job;
    return;
  }
  launch_all(&job, 1, g, type);
}

/* -- Waiting ----------------------------------------------------------------------------- */

/* The device waits, not the host; a barrier is the host's. seconds <= 0: only asked */
bool amp__nccl_wait(amp_job *job, double seconds)
{
  call *c = job->own;
  if (atomic_load(&job->state) != 0 || c == NULL) return true;
  if (c->sends) release_held();
  if (atomic_load(&job->state) != 0) return true;
  double until = amp__nccl.core->clock() + seconds;
  if (seconds <= 0 || job->kind >= AMP_DIST_BARRIER) {
    if (c->captured) return false;
    while (amp__nccl_not_ready(cudaEventQuery(c->done))) {
      const struct timespec moment = { 0, 20 * 1000 };
      if (amp__nccl.core->clock() >= until) return false;
      nanosleep(&moment, NULL);
    }
    if (amp__nccl.broken) refuse(job, amp__nccl.broken_text);
    else atomic_store(&job->state, 1);
    return true;
  }
  if (amp__nccl.broken) refuse(job, amp__nccl.broken_text);
  else if (cudaStreamWaitEvent((cudaStream_t)job->stream, c->done, 0) != cudaSuccess) refuse(job, "the GPU has failed");
  else job->waited = true;
  return true;
}

void amp__nccl_drop(amp_job *job)
{
  call *c = job->own;
  if (c == NULL) return;
  for (int i = 0; i < nheld; i++)
    if (held[i] == job) held[i] = held[--nheld];
  amp__nccl_forget(job);
  if (c->before) AMP_NCCL_UNREAD(cudaEventDestroy(c->before));
  if (c->done) AMP_NCCL_UNREAD(cudaEventDestroy(c->done));
  free(c);
  job->own = NULL;
}

int amp__nccl_played(void *stream, double timeout, char *why, size_t room)
{
  if (amp__nccl.broken) {
    snprintf(why, room, "%s", amp__nccl.broken_text);
    return -1;
  }
  amp_job *job = calloc(1, sizeof *job);
  call *c = calloc(1, sizeof *c);
  if (job == NULL || c == NULL || cudaEventCreateWithFlags(&c->done, cudaEventDisableTiming) != cudaSuccess
      || cudaEventRecord(c->done, (cudaStream_t)stream) != cudaSuccess) {
    free(job);
    free(c);
    return 0; /* it is only not looked after */
  }
  job->own = c;
  job->group = MOST_GROUPS;
  job->kind = AMP_DIST_KINDS; /* it is nobody's: who watches it frees it */
  c->seq = ++amp__nccl.plays;
  amp__board_call(MOST_GROUPS, c->seq, AMP_NCCL_STEP);
  job->timeout = timeout;
  c->began = amp__nccl.core->clock();
  amp__nccl_watch(job);
  return 0;
}
