/*
** distributed/distributed.c: several processes: the engine that is loaded, works, and what an engine may call.
**
** A work holds its tensors until the engine is done with them, be it that nobody waits any more: one that is freed
** before goes to a list, which later calls sweep. The engine sees plain memory; shapes go along for the agreement of
** all ranks, which is the engine's.
*/
#include <stdio.h>
#include <stdlib.h>
#include "core.h"
#include "distributed/collectives.h"
#include "distributed/combine.h"
#include "distributed/distributed.h"

struct amp_work {
  amp_job job;
  amp_tensor **tensor; /* counted; ins, then outs */
  int count;
  amp_work *next;
};

static const amp_collectives *engine;
static const amp_collectives *control; /* MPI beside NCCL: shares its id, compares calls */
static int world_rank, world_size;
static amp_work *left; /* freed while under way */
static const char *const kinds[AMP_DIST_KINDS]
    = { "all_reduce",     "broadcast",  "reduce", "all_gather", "gather",  "scatter",
        "reduce_scatter", "all_to_all", "send",   "recv",       "barrier", "new_group" };

/* -- For engines -------------------------------------------------------------- */

/* " of ranks 1, 3", the first AMP_MAX_DIM of them: a group's job has its ranks in place of sizes. */
static int describe_group(const amp_job *job, char *text, size_t size)
{
  size_t at = (size_t)snprintf(text, size, " of ranks ");
  for (int i = 0; i < job->ndim && at < size; i++)
    at += (size_t)snprintf(text + at, size - at, i ? ", %lld" : "%lld", (long long)job->size[i] + 1);
  if (job->op > job->ndim && at < size) at += (size_t)snprintf(text + at, size - at, ", ... (%d)", job->op);
  return (int)(at < size ? at : size - 1);
}

static const char *describe(const amp_job *job, char *text, size_t size)
{
  static const char *const ops[] = { "sum", "mean", "max", "min", "product" };
  char shape[128] = "";
  int kind = job->kind, at = 0;
  bool op = kind == AMP_DIST_ALL_REDUCE || kind == AMP_DIST_REDUCE || kind == AMP_DIST_REDUCE_SCATTER;
  bool root
      = kind == AMP_DIST_BROADCAST || kind == AMP_DIST_REDUCE || kind == AMP_DIST_GATHER || kind == AMP_DIST_SCATTER;
  if (kind < 0 || kind >= AMP_DIST_KINDS) kind = AMP_DIST_BARRIER;
  for (int i = 0; i < job->ndim && at < 100; i++)
    at += snprintf(shape + at, sizeof shape - (size_t)at, i ? "x%lld" : "%lld", (long long)job->size[i]);
  if (job->ndim == 0) snprintf(shape, sizeof shape, "scalar");
  int n = snprintf(text, size, "%s", kinds[kind]);
  if (kind == AMP_DIST_GROUP) n += describe_group(job, text + n, size - (size_t)n);
  if (op) n += snprintf(text + n, size - (size_t)n, "(%s)", ops[job->op]);
  if (root) n += snprintf(text + n, size - (size_t)n, " with root %d", job->root + 1);
  if (kind != AMP_DIST_BARRIER && kind != AMP_DIST_GROUP)
    snprintf(text + n, size - (size_t)n, " of %s %s", amp_dtype_name(job->dtype), shape);
  return text;
}

static int run_here(const amp_collectives *with, amp_job *job)
{
  with->submit(job);
  while (!with->wait(job, 3600)) continue;
  int state = atomic_load(&job->state);
  with->drop(job);
  return state < 0 ? -1 : 0;
}

static int share(void *bytes, size_t n)
{
  amp_job job = { .kind = AMP_DIST_BROADCAST, .dtype = AMP_UINT8, .count = (int64_t)n, .timeout = 300, .out = &bytes };
  if (control == NULL) return -1;
  return run_here(control, &job);
}

static const amp_collectives_core core = { amp__dtype_size, amp__dist_combine, describe, amp_clock, share };

static int played(int index, double timeout);

void amp__distributed_install(void)
{
  amp__hooks.collectives = &core;
  amp__hooks.collectives_played = played;
}

/* -- World and groups ---------------------------------------------------------- */

int amp_dist_start(amp_state *state, const char *name, int32_t *rank, int32_t *size)
{
  AMP_ENTER(state);
  char text[512] = "";
  const char *why = NULL;
  const amp_collectives *found = amp__collectives(name, &why);
  if (found == NULL) return amp__fail(AMP_E_UNSUPPORTED, "%s", why);
  if (engine == NULL || (engine != found && found->device != AMP_CPU)) {
    control = engine;
    if (found->start(&world_rank, &world_size, text, sizeof text) < 0) {
      control = NULL; /* the engine that was there goes on alone */
      return amp__fail(AMP_E_STATE, "%s", text);
    }
    engine = found;
  }
  *rank = world_rank;
  *size = world_size;
  return 0;
}

static int none(void) { return amp__fail(AMP_E_STATE, "no engine was started"); }

int amp_dist_group(amp_state *state, const int32_t *rank, int n, double timeout)
{
  AMP_ENTER(state);
  char text[512] = "";
  if (engine == NULL) return none();
  uint32_t hash = 2166136261u; /* all ranks must give the same list */
  for (int i = 0; i < n; i++) hash = (hash ^ (uint32_t)rank[i]) * 16777619u;
  amp_tensor ranks = { .dtype = AMP_INT32, .ndim = n < AMP_MAX_DIM ? n : AMP_MAX_DIM }; /* for the words of an error */
  for (int i = 0; i < ranks.ndim; i++) ranks.size[i] = rank[i];
  int root = (int)(hash & 0x7fffffff);
  amp_work *w = amp_dist_call(state, AMP_DIST_GROUP, n, 0, root, timeout, &ranks, NULL, 0, NULL, 0);
  if (w == NULL) return state->err.code;
  int status;
  while ((status = amp_dist_wait(state, w, 3600)) == 0) continue;
  amp_dist_free(w);
  if (status < 0) return status;
  int id = engine->group(rank, n, text, sizeof text);
  return id < 0 ? amp__fail(AMP_E_STATE, "%s", text) : id;
}

int amp_dist_stop(amp_state *state, double timeout, int status)
{
  AMP_ENTER(state);
  char text[512] = "";
  if (engine == NULL) return 0;
  int failed = engine->stop(timeout, status, text, sizeof text);
  char other[512] = ""; /* of a control that ends well there is nothing to say */
  if (control && control->stop(timeout, status, other, sizeof other) < 0 && failed >= 0) {
    failed = -1;
    memcpy(text, other, sizeof text);
  }
  engine = control = NULL;
  return failed < 0 ? amp__fail(AMP_E_STATE, "%s", text) : 0;
}

/* Where this thread computes, as the engine's device knows it; NULL: it has no streams */
static void *stream_of(int index)
{
  const amp_stream_ops *streams = engine->device == AMP_CPU ? NULL : amp__devices[engine->device].streams;
  return streams && streams->raw ? streams->raw(index) : NULL;
}

static int played(int index, double timeout)
{
  char text[512];
  if (engine == NULL)
    return amp__fail(AMP_E_STATE, "the captured step talks to other ranks, which were left (finalize)");
  if (engine->played == NULL || engine->played(stream_of(index), timeout, text, sizeof text) == 0) return 0;
  return amp__fail(AMP_E_STATE, "%s", text);
}

/* -- Works ----------------------------------------------------------------------- */

static void release(amp_work *w)
{
  if (w->job.own && engine) engine->drop(&w->job);
  for (int i = 0; i < w->count && !w->job.stuck; i++) amp__free(w->tensor[i]);
  free(w->tensor);
  free(w->job.in);
  if (!w->job.stuck) free(w);
}

static void sweep(void)
{
  for (amp_work **at = &left; *at;) {
    amp_work *w = *at;
    if (engine) (void)engine->wait(&w->job, -1);
    if (atomic_load(&w->job.state) == 0) {
      at = &w->next;
      continue;
    }
    *at = w->next;
    release(w);
  }
}

void amp_dist_free(amp_work *w)
{
  if (w == NULL) return;
  if (atomic_load(&w->job.state) != 0 || w->job.waited) {
    release(w);
    return;
  }
  w->next = left;
  left = w;
}

static int check(const amp_tensor *tensor, int dtype)
{
  if (tensor == NULL) return amp__fail(AMP_E_ARGUMENT, "a tensor was freed");
  if (tensor->dtype != dtype)
    return amp__fail(AMP_E_DTYPE, "%s and %s in one call", amp_dtype_name(dtype), amp_dtype_name(tensor->dtype));
  if (tensor->device != engine->device)
    return amp__fail(AMP_E_DEVICE, "%s is for tensors of %s, got %s", engine->name, amp_device_name(engine->device),
                     amp__tensor_str(tensor));
  if (tensor->device_index != engine->index)
    return amp__fail(AMP_E_DEVICE, "rank %d talks from %s:%d, got a tensor of %s:%d (%s)", world_rank + 1,
                     amp_device_name(engine->device), engine->index + 1, amp_device_name(engine->device),
                     tensor->device_index + 1, amp__tensor_str(tensor));
  if (!(tensor->flags & AMP_T_CONTIGUOUS)) return amp__fail(AMP_E_ARGUMENT, "a tensor has gaps");
  return 0;
}

static int take(amp_work *w, amp_tensor *const *in, int nin, amp_tensor *const *out, int nout)
{
  int total = nin + nout, status = 0;
  w->tensor = calloc((size_t)total + 1, sizeof *w->tensor);
  w->job.in = calloc((size_t)total + 1, sizeof *w->job.in);
  if (w->tensor == NULL || w->job.in == NULL) return amp__nomem(sizeof *w->tensor * (size_t)total);
  w->job.out = w->job.in + nin;
  w->job.nin = nin;
  w->job.nout = nout;
  for (int i = 0; i < total; i++) {
    amp_tensor *t = i < nin ? in[i] : out[i - nin];
    if (i == 0 && t) w->job.dtype = t->dtype;
    if ((status = check(t, w->job.dtype)) < 0) return status;
    amp__retain(w->tensor[w->count++] = t);
    w->job.in[i] = t->numel ? amp__data(t) : NULL;
    amp__touch(t);
    if (amp_unlikely(amp__capturing)) amp__capture_note(t);
    if (i >= nin) amp__bump(t);
  }
  return 0;
}

/* Elements of a piece: of the tensor that is not n pieces long. */
static int64_t piece(int kind, amp_tensor *const *in, int nin, amp_tensor *const *out, int nout)
{
  if (kind == AMP_DIST_REDUCE_SCATTER || nin == 0) return nout ? out[0]->numel : 0;
  return in[0]->numel;
}

/* NCCL compares nothing: MPI does, where it started the ranks, but for what goes in one order on all of them
** (AMP_DIST_ALIKE) and where AMP_DISTRIBUTED_CHECK=0. */
static int compared(const amp_work *w, int op)
{
  const char *off = getenv("AMP_DISTRIBUTED_CHECK");
  amp_job job = w->job;
  if (control == NULL || w->job.group != 0 || (op & AMP_DIST_ALIKE) || (off && strcmp(off, "0") == 0)
      || w->job.kind == AMP_DIST_SEND || w->job.kind == AMP_DIST_RECV)
    return 0;
  job.count = 0;
  return run_here(control, &job) < 0 ? amp__fail(AMP_E_STATE, "%s", job.error) : 0;
}

amp_work *amp_dist_call(amp_state *state, int kind, int op, int group, int root, double timeout, amp_tensor *like,
                        amp_tensor *const *in, int nin, amp_tensor *const *out, int nout)
{
  AMP_ENTER(state);
  if (engine == NULL) {
    none();
    return NULL;
  }
  sweep();
  amp_work *w = calloc(1, sizeof *w);
  if (w == NULL) {
    amp__nomem(sizeof *w);
    return NULL;
  }
  w->job.kind = kind;
  w->job.op = op & ~AMP_DIST_ALIKE;
  w->job.group = group;
  w->job.root = root;
  w->job.timeout = timeout;
  if (take(w, in, nin, out, nout) < 0) {
    release(w);
    return NULL;
  }
  w->job.count = piece(kind, in, nin, out, nout);
  if (like) {
    w->job.dtype = like->dtype;
    w->job.ndim = like->ndim;
    memcpy(w->job.size, like->size, sizeof(int64_t) * like->ndim);
  }
  if (compared(w, op) < 0) {
    release(w);
    return NULL;
  }
  w->job.stream = stream_of(engine->index);
  if (amp_unlikely(amp__capturing)) amp__hooks.capture_talks(timeout);
  engine->submit(&w->job);
  return w;
}

int amp_dist_wait(amp_state *state, amp_work *w, double seconds)
{
  AMP_ENTER(state);
  double until = amp_clock() + seconds;
  if (engine && seconds > 0)
    w->job.stream = stream_of(engine->index); /* who waits may use another one than who called */
  for (;;) {
    double more = until - amp_clock();
    if (engine) engine->wait(&w->job, more < 0.1 ? more : 0.1);
    int now = atomic_load(&w->job.state);
    if (now < 0) return amp__fail(AMP_E_STATE, "%s", w->job.error);
    if (now > 0 || w->job.waited) {
      /* The engine may still use them; the stream that waits for it now need not be the one that called. */
      for (int i = 0; i < w->count && w->job.waited; i++) amp__touch(w->tensor[i]);
      return 1;
    }
    if (amp_clock() >= until) return 0;
    if (engine == NULL) return amp__fail(AMP_E_STATE, "this process has left the others (finalize)");
    if (__atomic_fetch_and(&state->interrupt, (uint8_t)~AMP_I_INTERRUPT, __ATOMIC_RELAXED) & AMP_I_INTERRUPT)
      return amp__fail(AMP_E_INTERRUPTED, "interrupted");
  }
}
