/*
** cuda_stream.c: a card's streams, events, and marks (amp_stream_ops).
**
** Stream 0 is the one the card was opened with; up to 15 more are made when they
** are asked for, come round after that, and live as long as the process, so a
** number in a block's mask always means the same stream. Which one a thread uses
** is its own affair (cuda_device.c: amp__cuda_stream). Captured steps are made of
** stream 0 alone: whatever would lead out of it is refused here meanwhile.
**
** A mark is an event in each of several streams; their events are kept and used
** again, since blocks of memory are marked for as long as a program runs.
*/
#include <stdlib.h>
#include "cuda_core.h"

typedef struct event {
  cudaEvent_t e;
  bool timing, recorded;
} event;
typedef struct mark {
  struct mark *next;
  int n;
  cudaEvent_t e[AMP_STREAMS];
} mark; /* next: of those that are idle */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mark *idle[AMP_CUDA_MAX];

/* The card, entered; NULL with error: none, or this thread captures there */
static amp_cuda_device *outside(int index, const char *what)
{
  amp_cuda_device *d = amp__cuda_enter(index);
  if (d && d->capture && pthread_equal(d->capturer, pthread_self())) {
    amp__fail(
        AMP_E_STATE,
        "%s can't be part of a captured step, which is one stream's; take it out of the function given to amp.capture",
        what);
    return NULL;
  }
  return d;
}

static cudaStream_t stream(const amp_cuda_device *d, int n) { return n ? d->side[n] : d->stream; }

/* A number a caller has: was it made? */
static amp_cuda_device *having(int index, int n, const char *what)
{
  amp_cuda_device *d = outside(index, what);
  if (d && stream(d, n) == NULL) {
    amp__fail(AMP_E_INDEX, "cuda:%d has no stream %d: none was made with this number", index + 1, n);
    return NULL;
  }
  return d;
}

/* What would reach the stream itself: into a step that another thread captures it must not come either */
static amp_cuda_device *reaching(int index, int n, const char *what)
{
  amp_cuda_device *d = having(index, n, what);
  if (d && n == 0 && d->capture) {
    amp__fail(AMP_E_STATE, "another thread is capturing a step on this GPU: %s has to come after that", what);
    return NULL;
  }
  return d;
}

static int make(int index)
{
  amp_cuda_device *d = outside(index, "making a stream");
  if (d == NULL) return AMP_E_DEVICE;
  pthread_mutex_lock(&lock);
  int n = 1 + d->made++ % (AMP_STREAMS - 1), rc = 0;
  if (d->side[n] == NULL) {
    cudaStream_t s = NULL;
    rc = amp__cuda_check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "making a stream");
    d->side[n] = s;
  }
  pthread_mutex_unlock(&lock);
  return rc < 0 ? rc : n;
}

static int use(int index, int n)
{
  int was = amp__cuda_number(index);
  if (n < 0 || n == was) return was;
  if (!having(index, n, "changing the stream")) return amp__cuda_api->state()->err.code;
  amp__cuda_choose(index, n);
  return was;
}

/* 1, 0, or an error; that something is not done yet is none. before: the last error when it had not been asked */
static int done(cudaError_t before, cudaError_t e, const char *what)
{
  if (e == cudaErrorNotReady) {
    amp__cuda_forget(before);
    return 0;
  }
  int rc = amp__cuda_check(e, what);
  return rc < 0 ? rc : 1;
}

static int query(int index, int n)
{
  amp_cuda_device *d = reaching(index, n, "asking a stream");
  if (d == NULL) return amp__cuda_api->state()->err.code;
  cudaError_t before = cudaPeekAtLastError();
  return done(before, cudaStreamQuery(stream(d, n)), "asking a stream");
}

static int wait(int index, int n)
{
  amp_cuda_device *d = &amp__cuda_devices[index];
  if (index >= amp__cuda_count || stream(d, n) == NULL) return 0; /* nothing was ever given to it */
  if (!reaching(index, n, "waiting for a stream")) return amp__cuda_api->state()->err.code;
  return amp__cuda_wait_for(d, stream(d, n));
}

/* -- Events ----------------------------------------------------------------------------- */

static void *new_event(int index, int timing)
{
  event *k = outside(index, "making an event") ? calloc(1, sizeof *k) : NULL;
  if (k == NULL) return NULL;
  k->timing = timing != 0;
  if (amp__cuda_check(cudaEventCreateWithFlags(&k->e, timing ? cudaEventDefault : cudaEventDisableTiming),
                      "making an event")
      < 0) {
    free(k);
    return NULL;
  }
  return k;
}

static void free_event(int index, void *e)
{
  (void)index; /* an event knows its card; one that is waited for lives until it is reached */
  event *k = e;
  if (!amp__cuda_forked()) AMP_UNREAD(cudaEventDestroy(k->e)); /* a DataLoader's workers collect what they inherited */
  free(k);
}

static int record(int index, void *e, int n)
{
  event *k = e;
  amp_cuda_device *d = reaching(index, n, "recording an event");
  if (d == NULL) return amp__cuda_api->state()->err.code;
  k->recorded = true;
  return amp__cuda_check(cudaEventRecord(k->e, stream(d, n)), "recording an event");
}

static int after(int index, void *e, int n)
{
  event *k = e;
  amp_cuda_device *d = reaching(index, n, "waiting for an event");
  if (d == NULL) return amp__cuda_api->state()->err.code;
  return k->recorded ? amp__cuda_check(cudaStreamWaitEvent(stream(d, n), k->e, 0), "waiting for an event") : 0;
}

static int event_query(int index, void *e)
{
  event *k = e;
  if (!outside(index, "asking an event")) return amp__cuda_api->state()->err.code;
  cudaError_t before = cudaPeekAtLastError();
  return k->recorded ? done(before, cudaEventQuery(k->e), "asking an event") : 1;
}

static int event_wait(int index, void *e)
{
  event *k = e;
  amp_cuda_device *d = outside(index, "waiting for an event");
  if (d == NULL) return amp__cuda_api->state()->err.code;
  if (!k->recorded) return 0;
  int rc = amp__cuda_check(cudaEventSynchronize(k->e), "waiting for an event");
  return rc < 0 ? rc : amp__cuda_told(d);
}

static int elapsed(int index, void *from, void *to, double *ms)
{
  event *a = from, *b = to;
  float f = 0;
  if (!outside(index, "timing events")) return amp__cuda_api->state()->err.code;
  if (!a->timing || !b->timing)
    return amp__fail(AMP_E_STATE, "an event was made without timing: amp.cuda.Event { enable_timing = true }");
  if (!a->recorded || !b->recorded) return amp__fail(AMP_E_STATE, "an event was not recorded: nothing is to be timed");
  cudaError_t before = cudaPeekAtLastError(), e = cudaEventElapsedTime(&f, a->e, b->e);
  if (e == cudaErrorNotReady) {
    amp__cuda_forget(before);
    return amp__fail(AMP_E_STATE, "an event has not been reached yet: call its synchronize() first");
  }
  *ms = f;
  return amp__cuda_check(e, "timing events");
}

/* -- Memory of several streams ------------------------------------------------------------- */

static int fence(int index)
{
  amp_cuda_device *d = amp__cuda_enter(index);
  cudaEvent_t e;
  if (d == NULL) return AMP_E_DEVICE;
  if (d->capture || d->made == 0) return 0;
  cudaStream_t mine = amp__cuda_stream();
  int rc = amp__cuda_check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "an event");
  if (rc < 0) return rc;
  rc = amp__cuda_check(cudaEventRecord(e, mine), "an event");
  for (int n = 0; n < AMP_STREAMS && rc == 0; n++)
    if (stream(d, n) && stream(d, n) != mine) rc = amp__cuda_check(cudaStreamWaitEvent(stream(d, n), e, 0), "an event");
  AMP_UNREAD(cudaEventDestroy(e));
  return rc;
}

/* Under the lock. The events of m are made as they are needed. */
static bool set_mark(amp_cuda_device *d, mark *m, uint32_t streams)
{
  cudaError_t before = cudaPeekAtLastError();
  int made = m->n;
  m->n = 0;
  for (int n = 0; n < AMP_STREAMS; n++) {
    if (!(streams >> n & 1) || stream(d, n) == NULL) continue;
    if (m->n >= made) {
      if (cudaEventCreateWithFlags(&m->e[m->n], cudaEventDisableTiming) != cudaSuccess) goto bad;
      made = m->n + 1;
    }
    if (cudaEventRecord(m->e[m->n++], stream(d, n)) != cudaSuccess) goto bad;
  }
  for (int i = m->n; i < made; i++) AMP_UNREAD(cudaEventDestroy(m->e[i]));
  return true;
bad:
  amp__cuda_forget(before);
  for (int i = 0; i < made; i++) AMP_UNREAD(cudaEventDestroy(m->e[i]));
  return false;
}

/* The caller may be in the middle of another card's work: that one stays entered */
void *amp__cuda_mark(int index, uint32_t streams)
{
  amp_cuda_device *d = &amp__cuda_devices[index], *was = amp__cuda_here();
  if (d->stream == NULL || d->capture || !amp__cuda_enter(index)) return NULL;
  pthread_mutex_lock(&lock);
  mark *m = idle[index];
  if (m) idle[index] = m->next;
  else m = calloc(1, sizeof *m);
  if (m && !set_mark(d, m, streams)) {
    free(m);
    m = NULL;
  }
  pthread_mutex_unlock(&lock);
  if (was && was != d) amp__cuda_enter(was->index);
  return m;
}

int amp__cuda_reached(int index, void *p)
{
  mark *m = p;
  if (amp__cuda_devices[index].capture) return 0;
  cudaError_t before = cudaPeekAtLastError(); /* a launch's of the row that asks for memory */
  for (int i = 0; i < m->n; i++)
    if (cudaEventQuery(m->e[i]) == cudaErrorNotReady) {
      amp__cuda_forget(before);
      return 0;
    } /* (another error: others will say so) */
  pthread_mutex_lock(&lock);
  m->next = idle[index];
  idle[index] = m;
  pthread_mutex_unlock(&lock);
  return 1;
}

static void *raw(int index) { return amp__cuda_enter(index) ? (void *)amp__cuda_stream() : NULL; }

const amp_stream_ops amp__cuda_stream_ops
    = { make,        use,        query,   wait,  new_event,      free_event,        record, after,
        event_query, event_wait, elapsed, fence, amp__cuda_mark, amp__cuda_reached, raw };
