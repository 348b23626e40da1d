/*
** base/state.c: the state of a caller, and what is said through it: errors,
** verbose lines, the interrupt flag; and the number of threads. States are made and
** freed in library/library.c.
**
** amp__S is the state of the call in progress, set by every public function;
** it may be NULL (finalizers after the state is gone), then messages are lost
** but codes are not. A state owns its pool, its log, its observer's watch and a few
** cells: tensors that callers hold outlive the state they were made in.
*/
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#include "base/device.h"
#include "base/locks.h"
#include "base/workers.h"

_Atomic int amp__states;
_Thread_local amp_state *amp__S AMP_TLS_NEAR = NULL;

double amp_clock(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
void amp_interrupt(amp_state *state)
{
  if (state) __atomic_fetch_or(&state->interrupt, AMP_I_INTERRUPT, __ATOMIC_RELAXED);
}

/* -- Errors ---------------------------------------------------------------- */

static void set_error(int code, int arg, const char *fmt, va_list ap)
{
  amp_state *state = amp__S;
  if (state == NULL) return;
  char text[sizeof state->err.message]; /* the message may quote the previous one */
  vsnprintf(text, sizeof text, fmt, ap);
  memcpy(state->err.message, text, sizeof text);
  state->err.code = code;
  state->err.arg = arg;
  snprintf(state->err.op, sizeof state->err.op, "%s", state->priv->op ? state->priv->op : "");
}

int amp__fail(int code, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  set_error(code, 0, fmt, ap);
  va_end(ap);
  return code;
}

int amp__fail_arg(int code, int arg, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  set_error(code, arg, fmt, ap);
  va_end(ap);
  return code;
}

/* -- Descriptions of tensors ------------------------------------------------ */

enum { RING = 16, TEXT = 224 };

static char *ring(void)
{
  static char lost[TEXT]; /* without a state messages go nowhere */
  if (amp__S == NULL) return lost;
  struct amp_state_private *priv = amp__S->priv;
  return priv->text[priv->text_next++ % RING];
}

static int put_shape(char *s, size_t n, int ndim, const int64_t *size)
{
  int at = 0;
  if (ndim == 0) return snprintf(s, n, "scalar");
  for (int i = 0; i < ndim && (size_t)at < n; i++)
    at += snprintf(s + at, n - (size_t)at, i ? "x%lld" : "%lld", (long long)size[i]);
  return at;
}

const char *amp__shape_str(int ndim, const int64_t *size)
{
  char *s = ring();
  put_shape(s, TEXT, ndim, size);
  return s;
}

const char *amp__tensor_str(const amp_tensor *tensor)
{
  char *s = ring();
  if (tensor == NULL) {
    snprintf(s, TEXT, "none");
    return s;
  }
  int at = snprintf(s, TEXT, "%s ", amp_dtype_name(tensor->dtype));
  at += put_shape(s + at, TEXT - 24, tensor->ndim, tensor->size);
  at += snprintf(s + at, TEXT - (size_t)at, " %s", amp_device_name(tensor->device));
  if (tensor->device != AMP_CPU) snprintf(s + at, TEXT - (size_t)at, ":%d", tensor->device_index + 1);
  return s;
}

/* -- Verbose lines ----------------------------------------------------------- */
/* log[0] holds the line given out last, log[1..nlog] the waiting ones. */

void amp__log(const char *fmt, ...)
{
  amp_state *state = amp__S;
  char line[512];
  va_list ap;
  if (state == NULL) return;
  struct amp_state_private *priv = state->priv;
  va_start(ap, fmt);
  vsnprintf(line, sizeof line, fmt, ap);
  va_end(ap);
  if (priv->nlog + 1 >= priv->caplog) {
    int cap = priv->caplog ? 2 * priv->caplog : 16;
    char **log = realloc(priv->log, sizeof *log * (size_t)cap);
    if (log == NULL) return;
    memset(log + priv->caplog, 0, sizeof *log * (size_t)(cap - priv->caplog));
    priv->log = log;
    priv->caplog = cap;
  }
  char *copy = strdup(line);
  if (copy == NULL) return;
  priv->log[++priv->nlog] = copy;
  state->attention |= AMP_A_LOG;
}

const char *amp_log_next(amp_state *state)
{
  AMP_ENTER(state);
  struct amp_state_private *priv = state->priv;
  if (priv->nlog == 0) {
    state->attention &= ~AMP_A_LOG;
    return NULL;
  }
  free(priv->log[0]);
  memmove(priv->log, priv->log + 1, sizeof *priv->log * (size_t)priv->nlog);
  priv->log[priv->nlog--] = NULL;
  return priv->log[0];
}

/* -- Threads ----------------------------------------------------------------- */

static _Atomic int thread_count; /* 0: not asked yet */

int amp_set_threads(int count)
{
  if (amp__fork_alone()) return 1;
  if (count > 0) {
    if (count > 1024) count = 1024;
    atomic_store_explicit(&thread_count, count, memory_order_relaxed);
    return count;
  }
  int now = atomic_load_explicit(&thread_count, memory_order_relaxed);
  if (now == 0) {
#ifdef _OPENMP
    now = omp_get_max_threads();
#else
    now = 1;
#endif
    if (now < 1) now = 1;
    atomic_store_explicit(&thread_count, now, memory_order_relaxed);
  }
  return now;
}

/* A parallel region costs 3 to 20 microseconds: below some 64k simple operations one thread is faster. */
int amp__threads(int64_t work)
{
  enum { GRAIN = 32768 };
  if (work < 2 * GRAIN) return 1;
#ifdef _OPENMP
  if (omp_in_parallel()) return 1;
  int most = amp_set_threads(0), n = work / GRAIN < most ? (int)(work / GRAIN) : most;
  if (n > 1) amp__fork_teams();
  return n;
#else
  return 1;
#endif
}

/* Signals are for the threads of the program. A worker that took one in the middle of oneDNN's products would harm the
** heap (cpu/onednn/onednn_entry.h). */
void amp__worker_begins(void)
{
#ifdef _OPENMP
  static _Thread_local bool begun;
  if (begun || omp_get_thread_num() == 0) return;
  amp__block_signals(NULL);
  begun = true;
#endif
}

/* -- Invariants --------------------------------------------------------------- */

#ifdef AMP_DEBUG
void amp__assert_failed(const char *what, const char *file, int line)
{
  fprintf(stderr, "amp: %s:%d: not so: %s\n", file, line, what);
  abort();
}
#endif
