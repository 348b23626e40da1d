/*
** distributed/nccl/nccl_plugin.c: collectives between GPUs through NCCL, beside the stream that computes.
**
** A call is queued, not waited for: what the caller queues after `wait` comes after it on the device. A thread looks at
** the calls under way; one that takes longer than its timeout ends the communicators, so that the device goes on, and
** whoever waits, or calls next, is told. NCCL's library is opened when the first process joins. The id of the world
** comes through MPI, where mpirun started the ranks, else from NCCL_COMM_ID, of which NCCL makes the rest itself: the
** address that PyTorch's launcher gives.
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "distributed/nccl/nccl_engine.h"

engine amp__nccl;
pthread_mutex_t amp__nccl_calls = PTHREAD_MUTEX_INITIALIZER;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of the list */
static amp_job *under_way;                                /* in no order: groups have streams of their own */
static pthread_t watcher;
static _Atomic bool ending;

#define POINTER(name) __typeof__(&name) p_##name;
AMP_NCCL_FUNCTIONS(POINTER)

static const char *open_library(void)
{
  const char *path = getenv("AMP_NCCL_LIBRARY");
  void *lib = dlopen(path ? path : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (lib == NULL) return dlerror();
#define FIND(name)                         \
  *(void **)&p_##name = dlsym(lib, #name); \
  if (p_##name == NULL) return "libnccl.so.2 has no " #name ": a newer one is needed";
  AMP_NCCL_FUNCTIONS(FIND)
  return NULL;
}

static void pause_for(long microseconds)
{
  const struct timespec moment = { 0, microseconds * 1000 };
  nanosleep(&moment, NULL);
}

ncclResult_t amp__nccl_settle(ncclComm_t comm, ncclResult_t status, double until)
{
  for (int turn = 0; status == ncclInProgress && !amp__nccl.broken; turn++) {
    ncclResult_t now = ncclInProgress;
    pthread_mutex_lock(&amp__nccl_calls);
    if (!amp__nccl.broken) status = p_ncclCommGetAsyncError(comm, &now);
    pthread_mutex_unlock(&amp__nccl_calls);
    if (status != ncclSuccess || (status = now) != ncclInProgress) break;
    if (amp__nccl.core->clock() > until) return ncclInProgress;
    if (turn > 100) pause_for(50);
  }
  return status;
}

void amp__nccl_give_up(const char *text)
{
  pthread_mutex_lock(&amp__nccl_calls);
  if (!amp__nccl.broken) {
    snprintf(amp__nccl.broken_text, sizeof amp__nccl.broken_text, "%s", text);
    amp__nccl.broken = true;
    for (int i = 0; i < amp__nccl.ngroup; i++)
      if (amp__nccl.groups[i].comm) p_ncclCommAbort(amp__nccl.groups[i].comm);
  }
  pthread_mutex_unlock(&amp__nccl_calls);
}

/* -- The thread --------------------------------------------------------------------------- */

void amp__nccl_watch(amp_job *job)
{
  pthread_mutex_lock(&mutex);
  job->next = under_way;
  under_way = job;
  pthread_mutex_unlock(&mutex);
}

void amp__nccl_forget(amp_job *job)
{
  pthread_mutex_lock(&mutex);
  for (amp_job **at = &under_way; *at; at = &(*at)->next)
    if (*at == job) {
      *at = job->next;
      break;
    }
  pthread_mutex_unlock(&mutex);
}

static void over(amp_job *job)
{
  call *c = job->own;
  if (job->kind != AMP_DIST_KINDS) {
    atomic_store(&job->state, 1);
    return;
  }
  AMP_NCCL_UNREAD(cudaEventDestroy(c->done));
  free(c);
  free(job);
}

/* Does a call wait for ranks that will not come, or has it waited too long? */
static bool stuck(const amp_job *job, char *text, size_t size)
{
  const call *c = job->own;
  char what[CALL_TEXT], known[AMP_JOB_ERROR / 2] = "";
  bool late = amp__nccl.core->clock() - c->began > job->timeout;
  if (job->kind == AMP_DIST_KINDS) snprintf(what, sizeof what, AMP_NCCL_STEP);
  else amp__nccl.core->describe(job, what, sizeof what);
  bool told = c->seq && amp__board_tells(job->group, c->seq, what, late, job->timeout, known, sizeof known);
  if (told) snprintf(text, size, "%s", known);
  else if (late)
    snprintf(text, size, "rank %d waits for other ranks in %s for more than %g seconds", amp__nccl.rank + 1, what,
             job->timeout);
  return told || late;
}

static void look(void)
{
  char text[AMP_JOB_ERROR];
  bool given_up = false;
  pthread_mutex_lock(&mutex);
  for (amp_job **at = &under_way; *at;) {
    amp_job *job = *at;
    if (!amp__nccl_not_ready(cudaEventQuery(((call *)job->own)->done))) {
      *at = job->next;
      over(job);
      continue;
    }
    if (!amp__nccl.broken && !given_up) given_up = stuck(job, text, sizeof text);
    at = &job->next;
  }
  pthread_mutex_unlock(&mutex);
  if (!given_up) return;
  fprintf(stderr, "amp: %s\n", text);
  amp__nccl_give_up(text);
}

static void *watch(void *unused)
{
  AMP_NCCL_UNREAD(cudaSetDevice(amp__nccl.device));
  while (!ending) {
    pause_for(50 * 1000);
    look();
  }
  return NULL;
}

/* -- Start and end ------------------------------------------------------------------ */

/* The launcher of PyTorch: rank 1's address in the environment is the world's id */
static int from_environment(void)
{
  const char *r = getenv("RANK"), *n = getenv("WORLD_SIZE"), *host = getenv("MASTER_ADDR"),
             *port = getenv("MASTER_PORT");
  char id[300];
  if (!r || !n || !host || !port) return -1;
  amp__nccl.rank = atoi(r);
  amp__nccl.size = atoi(n);
  snprintf(id, sizeof id, "%s:%d", host, atoi(port) + 1); /* the launcher itself holds the port */
  return setenv("NCCL_COMM_ID", id, 0);
}

static double patience(void)
{
  const char *given = getenv("AMP_DISTRIBUTED_TIMEOUT");
  return given ? atof(given) : 300;
}

static ncclResult_t join(char *why, size_t room)
{
  engine *e = &amp__nccl;
  group *g = &e->groups[0];
  ncclUniqueId id;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  const char *given = getenv("NCCL_COMM_ID");
  char world[64];
  ncclResult_t status = ncclSuccess;
  uint64_t hash = 14695981039346656037u;
  double seconds = patience();
  memset(&id, 0, sizeof id);
  if (e->rank == 0 || given) status = p_ncclGetUniqueId(&id);
  if (status == ncclSuccess && !given && e->size > 1 && e->core->share(&id, sizeof id) < 0) status = ncclSystemError;
  for (size_t i = 0; i < sizeof id; i++) hash = (hash ^ (unsigned char)id.internal[i]) * 1099511628211u;
  snprintf(world, sizeof world, "amp-nccl-%016llx", (unsigned long long)hash);
  amp__board_open(world);
  if (status == ncclSuccess
      && (cudaSetDevice(e->device) || cudaMalloc(&e->nothing, 64)
          || cudaStreamCreateWithFlags(&g->talk, cudaStreamNonBlocking) || cudaMemsetAsync(e->nothing, 0, 64, g->talk)
          || cudaStreamSynchronize(g->talk)))
    status = ncclUnhandledCudaError;
  config.blocking = 0;
  if (status == ncclSuccess) {
    status = p_ncclCommInitRankConfig(&g->comm, e->size, id, e->rank, &config);
    status = amp__nccl_settle(g->comm, status, e->core->clock() + seconds);
  }
  if (status == ncclInProgress) {
    char known[512];
    if (!amp__board_tells(0, 0, "init", true, seconds, known, sizeof known))
      snprintf(known, sizeof known, "not all %d ranks came to init within %g seconds", e->size, seconds);
    snprintf(why, room, "%s", known);
    p_ncclCommAbort(g->comm);
  } else if (status != ncclSuccess)
    snprintf(why, room, "NCCL could not join the ranks: %s", p_ncclGetErrorString(status));
  return status;
}

static int start(int *at, int *n, char *why, size_t room);
static int new_group(const int *ranks, int n, char *why, size_t room);
static int stop(double timeout, int status, char *why, size_t room);

static amp_collectives table = { .name = "NCCL",
                                 .device = AMP_CUDA,
                                 .start = start,
                                 .group = new_group,
                                 .submit = amp__nccl_submit,
                                 .wait = amp__nccl_wait,
                                 .drop = amp__nccl_drop,
                                 .stop = stop,
                                 .played = amp__nccl_played };

/* What others wait for is done before the process ends; one that fails leaves at once. */
static void at_exit(int status, void *unused)
{
  for (int i = 0; i < amp__nccl.ngroup && status == 0 && !amp__nccl.broken; i++)
    while (amp__nccl.groups[i].talk && !amp__nccl.broken
           && amp__nccl_not_ready(cudaStreamQuery(amp__nccl.groups[i].talk)))
      pause_for(100);
}

static int start(int *at, int *n, char *why, size_t room)
{
  engine *e = &amp__nccl;
  const char *lacks = open_library(), *local = getenv("AMP_NCCL_DEVICE");
  int cards = 0;
  if (lacks) {
    snprintf(why, room, "NCCL is not to be had: %s", lacks);
    return -1;
  }
  if (e->ngroup || e->broken) {
    snprintf(why, room, "NCCL can be joined once in a process");
    return -1;
  }
  if (*n > 1) {
    e->rank = *at;
    e->size = *n;
  } else if (from_environment()) {
    snprintf(why, room, "NCCL needs mpirun, or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
    return -1;
  }
  if (cudaGetDeviceCount(&cards) || cards == 0) {
    snprintf(why, room, "there is no GPU");
    return -1;
  }
  e->device = (local ? atoi(local) : e->rank) % cards;
  if (join(why, room) != ncclSuccess) {
    amp__board_close();
    return -1;
  }
  e->groups[0].n = e->size;
  e->groups[0].me = e->rank;
  e->ngroup = 1;
  table.index = e->device;
  *at = e->rank;
  *n = e->size;
  amp__board_joined();
  on_exit(at_exit, NULL);
  return pthread_create(&watcher, NULL, watch, NULL) ? -1 : 0;
}

static int new_group(const int *ranks, int n, char *why, size_t room)
{
  engine *e = &amp__nccl;
  int color = NCCL_SPLIT_NOCOLOR;
  group *g = &e->groups[e->ngroup];
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (e->ngroup == MOST_GROUPS || e->broken || (g->rank = malloc(sizeof *ranks * (size_t)n)) == NULL) {
    snprintf(why, room, "%s", e->broken ? e->broken_text : "no room for a group more");
    return -1;
  }
  g->n = n;
  g->me = -1;
  for (int i = 0; i < n; i++) {
    g->rank[i] = ranks[i];
    if (ranks[i] == e->rank) g->me = i;
  }
  if (g->me >= 0) color = 1;
  double until = e->core->clock() + patience();
  pthread_mutex_lock(&amp__nccl_calls);
  ncclResult_t status = p_ncclCommSplit(e->groups[0].comm, color, g->me < 0 ? 0 : g->me, &g->comm, &config);
  pthread_mutex_unlock(&amp__nccl_calls);
  status = amp__nccl_settle(e->groups[0].comm, status, until);
  if (status == ncclSuccess && g->comm) status = amp__nccl_settle(g->comm, ncclInProgress, until);
  if (status == ncclSuccess && cudaStreamCreateWithFlags(&g->talk, cudaStreamNonBlocking))
    status = ncclUnhandledCudaError;
  if (status == ncclSuccess) return e->ngroup++;
  snprintf(why, room, "NCCL could not make the group: %s", p_ncclGetErrorString(status));
  return -1;
}

static void leave(int status, double until)
{
  engine *e = &amp__nccl;
  for (int i = e->ngroup; i-- > 0 && !e->broken;) {
    ncclComm_t comm = e->groups[i].comm;
    if (comm == NULL) continue;
    if (status) p_ncclCommAbort(comm);
    else if (!e->any_captured) { /* NCCL would wait for the end of steps that hold it */
      if (amp__nccl_settle(comm, p_ncclCommFinalize(comm), until) == ncclSuccess) p_ncclCommDestroy(comm);
      else p_ncclCommAbort(comm);
    }
    e->groups[i].comm = NULL;
  }
}

static int stop(double timeout, int status, char *why, size_t room)
{
  engine *e = &amp__nccl;
  if (e->ngroup == 0) return 0;
  double until = e->core->clock() + timeout;
  at_exit(status, NULL);
  ending = true;
  pthread_join(watcher, NULL);
  leave(status, until);
  e->ngroup = 0;
  amp__board_close();
  if (e->broken) snprintf(why, room, "%s", e->broken_text);
  return e->broken ? -1 : 0;
}

__attribute__((visibility("default"))) const char *amp_plugin_version(void)
{
  static char text[64];
  snprintf(text, sizeof text, "NCCL (built with %d.%d.%d)", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
  return text;
}

__attribute__((visibility("default"))) const amp_collectives *amp_plugin_collectives(const amp_collectives_core *given)
{
  amp__nccl.core = given;
  return &table;
}
