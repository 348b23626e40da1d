/*
** distributed/mpi/mpi_plugin.c: one thread initialises MPI, calls it, and ends it; others give it jobs. Jobs of one
** group run one after the other, as do sends to, and receives from, one rank; all others side by side.
**
** The thread sleeps where there is nothing to do, and looks ever less often where what it waits for is slow.
*/
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "distributed/mpi/mpi_engine.h"

engine amp__mpi;

enum { STARTING, RUNNING, FAILED, ENDED };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER, news = PTHREAD_COND_INITIALIZER;
static pthread_t thread;
static amp_job *queue, **queue_end = &queue;
static int stage;
static bool asked, left_well; /* asked to stop */
static double stop_timeout;
static int stop_status;
static pid_t owner; /* a forked child has no such thread */
static char reason[512];

/* -- Messages -------------------------------------------------------------------- */

static MPI_Request *one_more(run *r, int peer)
{
  if (r->count == r->cap) {
    int cap = r->cap ? 2 * r->cap : 8;
    MPI_Request *more = realloc(r->request, sizeof *more * (size_t)cap);
    if (more == NULL) return NULL;
    r->request = more;
    int *peers = realloc(r->peer, sizeof *peers * (size_t)cap);
    if (peers == NULL) return NULL;
    r->peer = peers;
    r->cap = cap;
  }
  r->peer[r->count] = peer;
  return &r->request[r->count++];
}

int amp__mpi_silent(const run *r)
{
  for (int i = 0; i < r->count; i++)
    if (r->request[i] != MPI_REQUEST_NULL) return r->peer[i];
  return amp__mpi.rank;
}

static const int64_t MOST = (int64_t)1 << 30; /* bytes of a message: MPI counts in int */

int amp__mpi_isend(run *r, const void *p, int64_t n, int to, int tag)
{
  do {
    int now = (int)(n < MOST ? n : MOST);
    MPI_Request *q = one_more(r, to);
    if (q == NULL) return -1;
    *q = MPI_REQUEST_NULL;
    if (MPI_Isend(p, now, MPI_BYTE, to, tag, MPI_COMM_WORLD, q)) return -1;
    p = (const char *)p + now;
    n -= now;
  } while (n > 0);
  return 0;
}

int amp__mpi_irecv(run *r, void *p, int64_t n, int from, int tag)
{
  do {
    int now = (int)(n < MOST ? n : MOST);
    MPI_Request *q = one_more(r, from);
    if (q == NULL) return -1;
    *q = MPI_REQUEST_NULL;
    if (MPI_Irecv(p, now, MPI_BYTE, from, tag, MPI_COMM_WORLD, q)) return -1;
    p = (char *)p + now;
    n -= now;
  } while (n > 0);
  return 0;
}

int amp__mpi_done(run *r)
{
  bool all = true;
  for (int i = 0; i < r->count; i++) { /* each one: a request that is done is asked about no more */
    int flag = 1;
    if (r->request[i] != MPI_REQUEST_NULL && MPI_Test(&r->request[i], &flag, MPI_STATUS_IGNORE)) return -1;
    all = all && flag;
  }
  if (all) r->count = 0;
  return all;
}

int amp__mpi_fail(amp_job *job, const char *format, ...)
{
  va_list list;
  va_start(list, format);
  vsnprintf(job->error, sizeof job->error, format, list);
  va_end(list);
  return -1;
}

int amp__mpi_broken(amp_job *job)
{
  char call[192];
  amp__mpi.core->describe(job, call, sizeof call);
  job->stuck = true;
  amp__mpi_listen();
  for (int i = 0; i < amp__mpi.size; i++)
    if (amp__mpi.gone[i] > 1)
      return amp__mpi_fail(job, "rank %d ended with status %d in the middle of %s", i + 1, amp__mpi.gone[i] - 1, call);
  return amp__mpi_fail(job, "MPI could not talk to the other ranks in %s (rank %d)", call, amp__mpi.rank + 1);
}

void amp__mpi_listen(void)
{
  for (;;) {
    int flag = 0;
    MPI_Status status;
    if (amp__mpi.bye_request == MPI_REQUEST_NULL
        && MPI_Irecv(amp__mpi.bye, 2, MPI_INT32_T, MPI_ANY_SOURCE, TAG_BYE, MPI_COMM_WORLD, &amp__mpi.bye_request))
      return;
    if (MPI_Test(&amp__mpi.bye_request, &flag, &status) || !flag) return;
    amp__mpi.gone[status.MPI_SOURCE] = 1 + amp__mpi.bye[0];
    amp__mpi.bye_request = MPI_REQUEST_NULL;
  }
}

/* -- Jobs --------------------------------------------------------------------------- */

static void finish(amp_job *job, int status)
{
  pthread_mutex_lock(&mutex);
  atomic_store(&job->state, status);
  pthread_cond_broadcast(&news);
  pthread_mutex_unlock(&mutex);
}

/* One step of a job. */
static int step(amp_job *job)
{
  run *r = job->own;
  if (r->began == 0) {
    r->began = amp__mpi.core->clock();
    r->until = r->began + job->timeout;
  }
  if (job->kind == AMP_DIST_SEND || job->kind == AMP_DIST_RECV) return amp__mpi_pair(job, r);
  if (amp__mpi.groups[job->group]->n == 1 && r->phase == 0) r->phase = 3;
  if (r->phase < 3) {
    int status = amp__mpi_agree(job, r);
    if (status <= 0) return status;
    r->until = amp__mpi.core->clock() + job->timeout;
  }
  return amp__mpi_move(job, r);
}

/* Does `earlier` have to end before job begins? */
static bool after(const amp_job *job, const amp_job *earlier)
{
  bool pair = job->kind == AMP_DIST_SEND || job->kind == AMP_DIST_RECV;
  bool pair_too = earlier->kind == AMP_DIST_SEND || earlier->kind == AMP_DIST_RECV;
  if (pair != pair_too) return false;
  return pair ? job->kind == earlier->kind && job->root == earlier->root : job->group == earlier->group;
}

/* One round; true: something ended. */
static bool round_of(amp_job **jobs)
{
  bool moved = false;
  for (amp_job **at = jobs; *at;) {
    amp_job *job = *at, *earlier = *jobs;
    while (earlier != job && !after(job, earlier)) earlier = earlier->next;
    int status = earlier == job ? step(job) : 0;
    if (status == 0) {
      at = &job->next;
      continue;
    }
    *at = job->next;
    moved = true;
    finish(job, status);
  }
  return moved;
}

/* What the program waits for, if it is among these */
static amp_job *waited(amp_job *jobs)
{
  amp_job *job = atomic_load(&amp__mpi.waited);
  while (jobs && jobs != job) jobs = jobs->next;
  return jobs;
}

/* Calls that can never meet are ended; true: one was */
static bool part(amp_job **jobs)
{
  if (amp__mpi_stuck(waited(*jobs)) == 0) return false;
  for (amp_job **at = jobs; *at; at = &(*at)->next) {
    amp_job *job = *at;
    if (job != amp__mpi.ended) continue;
    *at = job->next;
    finish(job, -1);
    break;
  }
  return true;
}

/* A short wait after `idle` rounds in which nothing ended */
static void rest(int idle)
{
  if (idle < 200) {
    sched_yield();
    return;
  }
  long us = idle < 1000 ? 20 : idle < 5000 ? 100 : 1000;
  struct timespec t = { 0, us * 1000 };
  nanosleep(&t, NULL);
}

/* -- The thread ------------------------------------------------------------------------ */

static int make_group(const int *ranks, int n)
{
  group *g = calloc(1, sizeof *g);
  if (g == NULL || amp__mpi.ngroup == MOST_GROUPS) {
    free(g);
    return -1;
  }
  *g = (group){ .n = n, .me = -1 };
  size_t m = (size_t)n;
  g->rank = malloc(sizeof *g->rank * m);
  g->heard = calloc(m, sizeof *g->heard);
  g->hearing = calloc(m, sizeof *g->hearing);
  g->posted = calloc(m, sizeof *g->posted);
  g->came = calloc(m, sizeof *g->came);
  if (!g->rank || !g->heard || !g->hearing || !g->posted || !g->came) {
    free(g->rank);
    free(g->heard);
    free(g->hearing);
    free(g->posted);
    free(g->came);
    free(g);
    return -1;
  }
  for (int i = 0; i < n; i++) {
    g->rank[i] = ranks ? ranks[i] : i;
    if (g->rank[i] == amp__mpi.rank) g->me = i;
  }
  amp__mpi.groups[amp__mpi.ngroup] = g;
  return amp__mpi.ngroup++;
}

static int begin_mpi(void)
{
  int given = 0, argc = 0;
  char **argv = NULL;
  engine *e = &amp__mpi;
  if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &given)) return -1;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (MPI_Comm_rank(MPI_COMM_WORLD, &e->rank) || MPI_Comm_size(MPI_COMM_WORLD, &e->size)) return -1;
  e->bye_request = MPI_REQUEST_NULL;
  e->pairs = calloc((size_t)e->size, sizeof *e->pairs);
  e->gone = calloc((size_t)e->size, sizeof *e->gone);
  return e->pairs && e->gone ? make_group(NULL, e->size) : -1;
}

static bool all_gone(void)
{
  for (int i = 0; i < amp__mpi.size; i++)
    if (i != amp__mpi.rank && amp__mpi.gone[i] == 0) return false;
  return true;
}

/* Who has failed, or else has not come, for the message */
static void why_not(void)
{
  int at = 0;
  bool failed = false;
  for (int i = 0; i < amp__mpi.size; i++) failed |= amp__mpi.gone[i] > 1;
  for (int i = 0; i < amp__mpi.size && at < 400; i++) {
    int gone = amp__mpi.gone[i];
    const char *before = at ? ", " : "";
    if (gone > 1)
      at += snprintf(reason + at, sizeof reason - (size_t)at, "%srank %d ended with status %d", before, i + 1,
                     gone - 1);
    else if (i != amp__mpi.rank && gone == 0 && !failed && stop_status == 0)
      at += snprintf(reason + at, sizeof reason - (size_t)at, "%srank %d did not come to finalize within %g seconds",
                     before, i + 1, stop_timeout);
  }
}

static void cancel(MPI_Request *q)
{
  if (*q == MPI_REQUEST_NULL) return;
  MPI_Cancel(q);
  MPI_Request_free(q);
}

/* What calls that were given up have left behind */
static void sweep(void)
{
  cancel(&amp__mpi.bye_request);
  for (int k = 0; k < amp__mpi.ngroup; k++) {
    group *g = amp__mpi.groups[k];
    if (g->waits) cancel(&g->answering);
    for (int i = 0; i < g->n; i++)
      if (g->posted[i]) cancel(&g->hearing[i]);
  }
  for (int flag = 1; flag;) {
    MPI_Status status;
    int n = 0;
    if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status) || !flag) break;
    MPI_Get_count(&status, MPI_BYTE, &n);
    void *p = malloc((size_t)n + 1);
    if (p == NULL || MPI_Recv(p, n, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE))
      flag = 0;
    free(p);
  }
}

static void end_mpi(void)
{
  run r = { 0 };
  int32_t bye[2] = { stop_status, 0 };
  double now = amp__mpi.core->clock(), until = now + (stop_status ? 0.5 : stop_timeout);
  for (int i = 0; i < amp__mpi.size; i++)
    if (i != amp__mpi.rank && amp__mpi_isend(&r, bye, sizeof bye, i, TAG_BYE) < 0) return;
  for (int idle = 0; now < until; idle++, now = amp__mpi.core->clock()) {
    amp__mpi_listen();
    bool sent = amp__mpi_done(&r) == 1, failed = false;
    for (int i = 0; i < amp__mpi.size; i++) failed |= amp__mpi.gone[i] > 1;
    if (sent && ((failed && !stop_status) || all_gone())) break; /* a failed one stays until the others have read it */
    rest(idle);
  }
  why_not();
  if (stop_status || reason[0]) return; /* MPI's own end would wait for those that are not there */
  sweep();
  left_well = MPI_Finalize() == 0;
}

static amp_job *take(amp_job *active)
{
  amp_job **end = &active;
  while (*end) end = &(*end)->next;
  *end = queue;
  queue = NULL;
  queue_end = &queue;
  return active;
}

static void *serve(void *unused)
{
  amp_job *active = NULL;
  int idle = 0, began = begin_mpi();
  pthread_mutex_lock(&mutex);
  stage = began < 0 ? FAILED : RUNNING;
  pthread_cond_broadcast(&news);
  while (stage == RUNNING) {
    while (!queue && !active && !asked) pthread_cond_wait(&work, &mutex);
    if (queue) idle = 0;
    active = take(active);
    if (!active && asked) break;
    pthread_mutex_unlock(&mutex);
    amp__mpi_listen();
    if (round_of(&active)) idle = 0;
    else if (idle > 1000 && idle % 16 == 0 && part(&active)) idle = 0;
    else rest(idle++);
    pthread_mutex_lock(&mutex);
  }
  pthread_mutex_unlock(&mutex);
  if (began == 0) end_mpi();
  pthread_mutex_lock(&mutex);
  stage = began < 0 ? FAILED : ENDED;
  pthread_cond_broadcast(&news);
  pthread_mutex_unlock(&mutex);
  return NULL;
}

/* -- What the core calls -------------------------------------------------------------- */

static struct timespec in_seconds(double seconds)
{
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  if (seconds < 0) seconds = 0;
  double nano = (double)t.tv_nsec + (seconds - (double)(int64_t)seconds) * 1e9;
  t.tv_sec += (time_t)seconds + (nano >= 1e9);
  t.tv_nsec = (long)(nano >= 1e9 ? nano - 1e9 : nano);
  return t;
}

static int stop(double timeout, int status, char *why, size_t room)
{
  if (getpid() != owner || stage != RUNNING) return 0;
  pthread_mutex_lock(&mutex);
  asked = true;
  stop_timeout = timeout;
  stop_status = status;
  pthread_cond_broadcast(&work);
  struct timespec until = in_seconds(2 * timeout + 10);
  while (stage == RUNNING)
    if (pthread_cond_timedwait(&news, &mutex, &until) == ETIMEDOUT) break;
  bool ended = stage == ENDED;
  pthread_mutex_unlock(&mutex);
  if (!ended) {
    snprintf(why, room, "MPI does not come to its end");
    return -1;
  }
  pthread_join(thread, NULL);
  snprintf(why, room, "%s", reason);
  return reason[0] ? -1 : 0;
}

/* `amp run` hears of a failure before the other ranks do, who fail for it. */
static void tell_runner(int status)
{
  char text[64];
  const char *path = getenv("AMP_RUN_PIPE");
  int fd = path ? open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC) : -1;
  if (fd < 0) return;
  int n = snprintf(text, sizeof text, "f %d %d 0\n", amp__mpi.rank + 1, status);
  if (write(fd, text, (size_t)n) != n) (void)close(fd);
  else close(fd);
}

/* The process ends without finalize: the others are told, and waited for if it ends well. */
static void at_exit(int status, void *timeout)
{
  char why[512] = "";
  if (getpid() != owner || stage != RUNNING) return;
  if (status) tell_runner(status);
  const char *given = getenv("AMP_DISTRIBUTED_TIMEOUT");
  if (stop(given ? atof(given) : 300, status, why, sizeof why) == 0 || status) return;
  fprintf(stderr, "amp: %s\n", why);
  fflush(NULL);
  _exit(1);
}

static int start(int *rank, int *size, char *why, size_t room)
{
  if (stage == RUNNING && owner == getpid()) goto told;
  if (owner) {
    snprintf(why, room, "MPI can be joined once in a process, and this one has left it");
    return -1;
  }
  owner = getpid();
  pthread_mutex_lock(&mutex);
  if (pthread_create(&thread, NULL, serve, NULL)) {
    pthread_mutex_unlock(&mutex);
    snprintf(why, room, "no thread for MPI could be made");
    return -1;
  }
  while (stage == STARTING) pthread_cond_wait(&news, &mutex);
  pthread_mutex_unlock(&mutex);
  if (stage == FAILED) {
    snprintf(why, room, "MPI could not be initialised");
    return -1;
  }
  on_exit(at_exit, NULL);
told:
  *rank = amp__mpi.rank;
  *size = amp__mpi.size;
  return 0;
}

static int new_group(const int *ranks, int n, char *why, size_t room)
{
  int id = make_group(ranks, n); /* the thread reads a group when a job of it comes */
  if (id < 0) snprintf(why, room, "no room for a group more (%d are there)", amp__mpi.ngroup);
  return id;
}

static void submit(amp_job *job)
{
  job->own = calloc(1, sizeof(run));
  job->next = NULL;
  if (job->own == NULL || stage != RUNNING || getpid() != owner) {
    snprintf(job->error, sizeof job->error, "%s", job->own ? "this process has left the others" : "no memory");
    atomic_store(&job->state, -1);
    return;
  }
  pthread_mutex_lock(&mutex);
  *queue_end = job;
  queue_end = &job->next;
  pthread_cond_broadcast(&work);
  pthread_mutex_unlock(&mutex);
}

static bool wait_for(amp_job *job, double seconds)
{
  if (atomic_load(&job->state) != 0) return true;
  if (getpid() != owner) { /* a forked child: the job is its parent's */
    snprintf(job->error, sizeof job->error, "this process was forked; its parent talks to the other ranks");
    atomic_store(&job->state, -1);
    return true;
  }
  struct timespec until = in_seconds(seconds);
  pthread_mutex_lock(&mutex);
  if (seconds > 0) {
    atomic_store(&amp__mpi.waited_at, amp__mpi.core->clock());
    atomic_store(&amp__mpi.waited, job);
  }
  while (atomic_load(&job->state) == 0)
    if (pthread_cond_timedwait(&news, &mutex, &until) == ETIMEDOUT) break;
  pthread_mutex_unlock(&mutex);
  return atomic_load(&job->state) != 0;
}

static void drop(amp_job *job)
{
  run *r = job->own;
  if (job->stuck || r == NULL) return;
  free(r->request);
  free(r->peer);
  free(r->temp);
  free(r->parts);
  free(r);
  job->own = NULL;
}

__attribute__((visibility("default"))) const char *amp_plugin_version(void)
{
  static char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int n = 0;
  MPI_Get_library_version(text, &n);
  for (char *p = text; *p; p++)
    if (*p == '\n' || *p == ',' || *p == '\t') *p = *p == '\t' ? ' ' : 0;
  return text;
}

__attribute__((visibility("default"))) const amp_collectives *amp_plugin_collectives(const amp_collectives_core *core)
{
  static const amp_collectives table = { .name = "MPI",
                                         .device = AMP_CPU,
                                         .start = start,
                                         .group = new_group,
                                         .submit = submit,
                                         .wait = wait_for,
                                         .drop = drop,
                                         .stop = stop };
  amp__mpi.core = core;
  return &table;
}
