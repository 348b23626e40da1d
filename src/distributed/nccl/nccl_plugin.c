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

static pthread_mutex_t ends = PTHREAD_MUTEX_INITIALIZER;
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

typedef struct task {
  ncclResult_t (*fn)(void *arg), status;
  void *arg;
  _Atomic int state; /* 0: under way; 1: done; 2: nobody waits any more */
} task;

static void *do_task(void *given)
{
  task *t = given;
  int under_way = 0;
  AMP_NCCL_UNREAD(cudaSetDevice(amp__nccl.device));
  t->status = t->fn(t->arg);
  if (!atomic_compare_exchange_strong(&t->state, &under_way, 1)) {
    free(t->arg);
    free(t);
  }
  return NULL;
}

ncclResult_t amp__nccl_patiently(ncclResult_t (*fn)(void *arg), void *arg, double seconds)
{
  task *t = calloc(1, sizeof *t);
  pthread_t thread;
  int under_way = 0;
  double until = amp__nccl.core->clock() + seconds;
  if (t == NULL) return ncclSystemError;
  *t = (task){ .fn = fn, .arg = arg };
  if (pthread_create(&thread, NULL, do_task, t)) {
    free(t);
    return ncclSystemError;
  }
  pthread_detach(thread);
  for (int turn = 0; atomic_load(&t->state) == 0; turn++) {
    if (turn > 1000) pause_for(50);
    if ((amp__nccl.broken || amp__nccl.core->clock() > until)
        && atomic_compare_exchange_strong(&t->state, &under_way, 2))
      return ncclInProgress;
  }
  ncclResult_t status = t->status;
  free(t->arg);
  free(t);
  return status;
}

void amp__nccl_give_up(const char *text)
{
  pthread_mutex_lock(&ends);
  if (!amp__nccl.broken) {
    snprintf(amp__nccl.broken_text, sizeof amp__nccl.broken_text, "%s", text);
    amp__nccl.broken = true;
    for (int i = 0; i < amp__nccl.ngroup; i++)
      if (amp__nccl.groups[i].comm) p_ncclCommAbort(amp__nccl.groups[i].comm);
  }
  pthread_mutex_unlock(&ends);
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

typedef struct joining {
  ncclUniqueId id;
  ncclComm_t comm;
} joining;

static ncclResult_t do_join(void *given)
{
  joining *j = given;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclResult_t status = p_ncclCommInitRankConfig(&j->comm, amp__nccl.size, j->id, amp__nccl.rank, &config);
  if (status == ncclSuccess) amp__nccl.groups[0].comm = j->comm;
  return status;
}

static ncclResult_t join(char *why, size_t room)
{
  engine *e = &amp__nccl;
  group *g = &e->groups[0];
  ncclUniqueId id;
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
  joining *j = status == ncclSuccess ? calloc(1, sizeof *j) : NULL;
  if (status == ncclSuccess && j == NULL) status = ncclSystemError;
  if (j) {
    j->id = id;
    status = amp__nccl_patiently(do_join, j, seconds);
  }
  if (status == ncclInProgress) {
    char known[512];
    if (!amp__board_tells(0, 0, "init", true, seconds, known, sizeof known))
      snprintf(known, sizeof known, "not all %d ranks came to init within %g seconds", e->size, seconds);
    snprintf(why, room, "%s", known);
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
  (void)setenv("NCCL_RUNTIME_CONNECT", "0", 0); /* later a call would wait for the others on the host */
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

typedef struct splitting {
  group *g;
  ncclComm_t comm;
} splitting;

static ncclResult_t do_split(void *given)
{
  splitting *s = given;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  int me = s->g->me;
  ncclResult_t status
      = p_ncclCommSplit(amp__nccl.groups[0].comm, me < 0 ? NCCL_SPLIT_NOCOLOR : 1, me < 0 ? 0 : me, &s->comm, &config);
  if (status == ncclSuccess && me >= 0) s->g->comm = s->comm;
  return status;
}

static int new_group(const int *ranks, int n, char *why, size_t room)
{
  engine *e = &amp__nccl;
  group *g = &e->groups[e->ngroup];
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
  splitting *split = calloc(1, sizeof *split);
  if (split) split->g = g;
  ncclResult_t status = split ? amp__nccl_patiently(do_split, split, patience()) : ncclSystemError;
  if (status == ncclSuccess && cudaStreamCreateWithFlags(&g->talk, cudaStreamNonBlocking))
    status = ncclUnhandledCudaError;
  if (status == ncclSuccess) return e->ngroup++;
  snprintf(why, room, "NCCL could not make the group: %s", p_ncclGetErrorString(status));
  return -1;
}

static ncclResult_t do_leave(void *comm) { return p_ncclCommDestroy(*(ncclComm_t *)comm); }

static void leave(int status, double until)
{
  engine *e = &amp__nccl;
  for (int i = e->ngroup; i-- > 0 && !e->broken;) {
    ncclComm_t comm = e->groups[i].comm;
    if (comm == NULL) continue;
    if (status) p_ncclCommAbort(comm);
    else if (!e->any_captured) { /* NCCL would wait for the end of steps that hold it */
      ncclComm_t *given = malloc(sizeof *given);
      if (given) *given = comm;
      if (given) (void)amp__nccl_patiently(do_leave, given, until - e->core->clock());
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
