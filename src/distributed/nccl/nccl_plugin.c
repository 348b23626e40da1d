/*
** distributed/nccl/nccl_plugin.c: collectives between GPUs through NCCL, in a stream of their own beside the one that
*computes.
**
**   compute  ---- event ----------------------------- wait -> after
**   talk            `-> wait, NCCL's kernel, event ----'
**
** A call is queued, not waited for: what the caller queues after `wait` comes after it on the device. A thread looks at
** the oldest call; one that takes longer than its timeout ends the communicator, so that the device goes on, and is
*told
** by the next call. NCCL's library is opened when the first process joins. The id of the world comes through MPI, where
** mpirun started the ranks, else from NCCL_COMM_ID (MASTER_ADDR and MASTER_PORT of PyTorch's launcher).
*/
#define _GNU_SOURCE
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "distributed/collectives.h"

enum { MOST_GROUPS = 256 };
typedef struct call { /* of one job */
  cudaEvent_t before, done;
  double began;
} call;
typedef struct group {
  ncclComm_t comm;
  int n, *rank;
} group;

static const amp_collectives_core *core;
static int rank, size, device;
static group groups[MOST_GROUPS];
static int ngroup;
static cudaStream_t talk;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static amp_job *oldest, **newest = &oldest;
static pthread_t watcher;
static _Atomic bool broken, ending;
static char broken_text[AMP_JOB_ERROR];

#define FUNCTIONS(X)    \
  X(ncclGetUniqueId)    \
  X(ncclCommInitRank)   \
  X(ncclCommSplit)      \
  X(ncclCommAbort)      \
  X(ncclCommDestroy)    \
  X(ncclGetErrorString) \
  X(ncclAllReduce)      \
  X(ncclBroadcast)      \
  X(ncclReduce)         \
  X(ncclAllGather)      \
  X(ncclReduceScatter)  \
  X(ncclSend) X(ncclRecv) X(ncclGroupStart) X(ncclGroupEnd)
#define POINTER(name) static __typeof__(&name) p_##name;
FUNCTIONS(POINTER)

static const char *open_library(void)
{
  const char *path = getenv("AMP_NCCL_LIBRARY");
  void *lib = dlopen(path ? path : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (lib == NULL) return dlerror();
#define FIND(name)                         \
  *(void **)&p_##name = dlsym(lib, #name); \
  if (p_##name == NULL) return "libnccl.so.2 has no " #name ": a newer one is needed";
  FUNCTIONS(FIND)
  return NULL;
}

/* -- Start and end ------------------------------------------------------------------ */

static void *watch(void *unused)
{
  while (!ending) {
    const struct timespec moment = { 0, 100 * 1000000 };
    nanosleep(&moment, NULL);
    pthread_mutex_lock(&mutex);
    while (oldest && cudaEventQuery(((call *)oldest->own)->done) != cudaErrorNotReady) {
      amp_job *job = oldest;
      if ((oldest = job->next) == NULL) newest = &oldest;
      atomic_store(&job->state, 1);
    }
    amp_job *job = oldest;
    if (job && !broken && core->clock() - ((call *)job->own)->began > job->timeout) {
      char text[192];
      snprintf(broken_text, sizeof broken_text, "rank %d waits for other ranks in %s for more than %g seconds",
               rank + 1, core->describe(job, text, sizeof text), job->timeout);
      broken = true;
      for (int i = 0; i < ngroup; i++)
        if (groups[i].comm) p_ncclCommAbort(groups[i].comm);
      fprintf(stderr, "amp: %s\n", broken_text);
    }
    pthread_mutex_unlock(&mutex);
  }
  return NULL;
}

/* The launcher of PyTorch: rank 1's address in the environment is the world's id */
static int from_environment(void)
{
  const char *r = getenv("RANK"), *n = getenv("WORLD_SIZE"), *host = getenv("MASTER_ADDR"),
             *port = getenv("MASTER_PORT");
  char id[300];
  if (!r || !n || !host || !port) return -1;
  rank = atoi(r);
  size = atoi(n);
  snprintf(id, sizeof id, "%s:%d", host, atoi(port) + 1); /* the launcher itself holds the port */
  return setenv("NCCL_COMM_ID", id, 0);
}

static int start(int *at, int *n, char *why, size_t room)
{
  ncclUniqueId id;
  const char *lacks = open_library(), *local = getenv("AMP_NCCL_DEVICE");
  int cards = 0;
  if (lacks) {
    snprintf(why, room, "NCCL is not to be had: %s", lacks);
    return -1;
  }
  if (*n > 1) {
    rank = *at;
    size = *n;
  } else if (from_environment()) {
    snprintf(why, room, "NCCL needs mpirun, or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
    return -1;
  }
  if (cudaGetDeviceCount(&cards) || cards == 0) {
    snprintf(why, room, "there is no GPU");
    return -1;
  }
  device = (local ? atoi(local) : rank) % cards;
  ncclResult_t status = ncclSuccess;
  if (rank == 0 || getenv("NCCL_COMM_ID")) status = p_ncclGetUniqueId(&id);
  if (!getenv("NCCL_COMM_ID") && core->share(&id, sizeof id) < 0) status = ncclSystemError;
  if (status == ncclSuccess && (cudaSetDevice(device) || cudaStreamCreateWithFlags(&talk, cudaStreamNonBlocking)))
    status = ncclUnhandledCudaError;
  if (status == ncclSuccess) status = p_ncclCommInitRank(&groups[0].comm, size, id, rank);
  if (status != ncclSuccess) {
    snprintf(why, room, "NCCL could not join the ranks: %s", p_ncclGetErrorString(status));
    return -1;
  }
  groups[0].n = size;
  ngroup = 1;
  *at = rank;
  *n = size;
  return pthread_create(&watcher, NULL, watch, NULL) ? -1 : 0;
}

static int new_group(const int *ranks, int n, char *why, size_t room)
{
  int key = 0, color = NCCL_SPLIT_NOCOLOR;
  group *g = &groups[ngroup];
  if (ngroup == MOST_GROUPS || (g->rank = malloc(sizeof *ranks * (size_t)n)) == NULL) {
    snprintf(why, room, "no room for a group more");
    return -1;
  }
  for (int i = 0; i < n; i++) {
    g->rank[i] = ranks[i];
    if (ranks[i] != rank) continue;
    color = 1;
    key = i;
  }
  g->n = n;
  ncclResult_t status = p_ncclCommSplit(groups[0].comm, color, key, &g->comm, NULL);
  if (status == ncclSuccess) return ngroup++;
  snprintf(why, room, "NCCL: %s", p_ncclGetErrorString(status));
  return -1;
}

static int stop(double timeout, int status, char *why, size_t room)
{
  if (ngroup == 0) return 0;
  if (status == 0 && !broken) cudaStreamSynchronize(talk);
  ending = true;
  pthread_join(watcher, NULL);
  for (int i = ngroup; i-- > 0 && !broken;)
    if (groups[i].comm) status ? p_ncclCommAbort(groups[i].comm) : p_ncclCommDestroy(groups[i].comm);
  ngroup = 0;
  if (broken) snprintf(why, room, "%s", broken_text);
  return broken ? -1 : 0;
}

/* -- Calls ------------------------------------------------------------------------------ */

static int type_of(int dtype, ncclDataType_t *type)
{
  static const int known[AMP_DTYPE_COUNT] = {
    [AMP_FLOAT64] = ncclFloat64,
    [AMP_FLOAT32] = ncclFloat32,
    [AMP_FLOAT16] = ncclFloat16,
    [AMP_BFLOAT16] = ncclBfloat16,
    [AMP_INT64] = ncclInt64,
    [AMP_INT32] = ncclInt32,
    [AMP_INT16] = -1,
    [AMP_INT8] = ncclInt8,
    [AMP_UINT8] = ncclUint8,
    [AMP_BOOL] = ncclUint8,
  };
  if (known[dtype] < 0) return -1;
  *type = (ncclDataType_t)known[dtype];
  return 0;
}

static ncclRedOp_t op_of(const amp_job *job)
{
  static const ncclRedOp_t ops[] = { ncclSum, ncclAvg, ncclMax, ncclMin, ncclProd };
  if (job->dtype != AMP_BOOL) return ops[job->op];
  return job->op == AMP_DIST_MIN || job->op == AMP_DIST_PRODUCT ? ncclMin : ncclMax; /* and, or */
}

/* Pieces between pairs, as one launch. Bytes: any dtype goes. */
static ncclResult_t pairs(const amp_job *job, const group *g, size_t bytes, int me)
{
  ncclResult_t status = p_ncclGroupStart();
  bool each = job->kind == AMP_DIST_ALL_TO_ALL, root = me == job->root;
  for (int i = 0; i < g->n && status == ncclSuccess; i++) {
    if (each || (job->kind == AMP_DIST_SCATTER && root))
      status = p_ncclSend(job->in[i], bytes, ncclUint8, i, g->comm, talk);
    if (status == ncclSuccess && (each || (job->kind == AMP_DIST_GATHER && root)))
      status = p_ncclRecv(job->out[i], bytes, ncclUint8, i, g->comm, talk);
  }
  if (status == ncclSuccess && job->kind == AMP_DIST_GATHER)
    status = p_ncclSend(job->in[0], bytes, ncclUint8, job->root, g->comm, talk);
  if (status == ncclSuccess && job->kind == AMP_DIST_SCATTER)
    status = p_ncclRecv(job->out[0], bytes, ncclUint8, job->root, g->comm, talk);
  ncclResult_t end = p_ncclGroupEnd();
  return status == ncclSuccess ? end : status;
}

static ncclResult_t launch(const amp_job *job, const group *g, ncclDataType_t type)
{
  size_t n = (size_t)job->count, bytes = n * core->dtype_size[job->dtype];
  int me = rank;
  for (int i = 0; g->rank && i < g->n; i++)
    if (g->rank[i] == rank) me = i;
  switch (job->kind) {
  case AMP_DIST_ALL_REDUCE: return p_ncclAllReduce(job->out[0], job->out[0], n, type, op_of(job), g->comm, talk);
  case AMP_DIST_BROADCAST: return p_ncclBroadcast(job->out[0], job->out[0], bytes, ncclUint8, job->root, g->comm, talk);
  case AMP_DIST_REDUCE:
    return p_ncclReduce(job->in[0], me == job->root ? job->out[0] : NULL, n, type, op_of(job), job->root, g->comm,
                        talk);
  case AMP_DIST_ALL_GATHER: return p_ncclAllGather(job->in[0], job->out[0], bytes, ncclUint8, g->comm, talk);
  case AMP_DIST_REDUCE_SCATTER: return p_ncclReduceScatter(job->in[0], job->out[0], n, type, op_of(job), g->comm, talk);
  case AMP_DIST_SEND: return p_ncclSend(job->in[0], bytes, ncclUint8, job->root, groups[0].comm, talk);
  case AMP_DIST_RECV: return p_ncclRecv(job->out[0], bytes, ncclUint8, job->root, groups[0].comm, talk);
  case AMP_DIST_GATHER:
  case AMP_DIST_SCATTER:
  case AMP_DIST_ALL_TO_ALL: return pairs(job, g, bytes, me);
  default: return ncclSuccess;
  }
}

static void refuse(amp_job *job, const char *text)
{
  snprintf(job->error, sizeof job->error, "%s", text);
  atomic_store(&job->state, -1);
}

static void submit(amp_job *job)
{
  call *c = calloc(1, sizeof *c);
  ncclDataType_t type = ncclUint8;
  bool sums = job->kind == AMP_DIST_ALL_REDUCE || job->kind == AMP_DIST_REDUCE || job->kind == AMP_DIST_REDUCE_SCATTER;
  if (c == NULL || broken || ngroup == 0) {
    free(c);
    refuse(job, broken ? broken_text : c ? "this process has left the others" : "no memory");
    return;
  }
  job->own = c;
  job->next = NULL;
  c->began = core->clock();
  if (type_of(job->dtype, &type) && sums) {
    refuse(job, "NCCL adds no int16: convert it to int32");
    return;
  }
  cudaSetDevice(device);
  cudaStream_t compute = job->stream;
  bool bad = cudaEventCreateWithFlags(&c->before, cudaEventDisableTiming)
             || cudaEventCreateWithFlags(&c->done, cudaEventDisableTiming) || cudaEventRecord(c->before, compute)
             || cudaStreamWaitEvent(talk, c->before, 0);
  ncclResult_t status = bad ? ncclUnhandledCudaError : ncclSuccess;
  if (status == ncclSuccess && job->count) status = launch(job, &groups[job->group], type);
  if (status == ncclSuccess && cudaEventRecord(c->done, talk)) status = ncclUnhandledCudaError;
  if (status != ncclSuccess) {
    refuse(job, p_ncclGetErrorString(status));
    return;
  }
  pthread_mutex_lock(&mutex);
  *newest = job;
  newest = &job->next;
  pthread_mutex_unlock(&mutex);
}

/* The device waits, not the host; a barrier is the host's. */
static bool wait_for(amp_job *job, double seconds)
{
  call *c = job->own;
  if (atomic_load(&job->state) != 0 || c == NULL) return true;
  if (seconds < 0) return false; /* only asked: the thread looks */
  if (job->kind == AMP_DIST_BARRIER) cudaEventSynchronize(c->done);
  cudaStreamWaitEvent((cudaStream_t)job->stream, c->done, 0);
  job->waited = true;
  return true;
}

static void drop(amp_job *job)
{
  call *c = job->own;
  if (c == NULL) return;
  pthread_mutex_lock(&mutex);
  for (amp_job **at = &oldest; *at; at = &(*at)->next) {
    if (*at != job) continue;
    *at = job->next;
    if (newest == &job->next) newest = at;
    break;
  }
  pthread_mutex_unlock(&mutex);
  if (c->before) cudaEventDestroy(c->before);
  if (c->done) cudaEventDestroy(c->done);
  free(c);
  job->own = NULL;
}

__attribute__((visibility("default"))) const char *amp_plugin_version(void)
{
  static char text[64];
  snprintf(text, sizeof text, "NCCL (built with %d.%d.%d)", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
  return text;
}

__attribute__((visibility("default"))) const amp_collectives *amp_plugin_collectives(const amp_collectives_core *given)
{
  static const amp_collectives table = { "NCCL", AMP_CUDA, start, new_group, submit, wait_for, drop, stop };
  core = given;
  return &table;
}
