/*
** amp_state.c: the state of a caller, and what is said through it: errors,
** verbose lines, the interrupt flag. Also the library's own facts (version,
** declarations, table hash) and the number of threads.
**
** amp__S is the state of the call in progress, set by every public function;
** it may be NULL (finalizers after the state is gone), then messages are lost
** but codes are not. A state owns its pool, its log and nothing else: tensors
** outlive the state they were made in.
*/
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#include "amp_compose.h"
#define AMP_HASH_CORE
#include "amp_hash.h"

_Thread_local amp_state *amp__S __attribute__((tls_model("initial-exec"))) = NULL;

/* -- Library --------------------------------------------------------------- */

const char *amp_version(void) { return AMP_VERSION; }

double amp_clock(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
int amp_abi_version(void) { return AMP_ABI; }
uint64_t amp_table_hash(void) { return amp__table_hash(); }

const char *amp_cdef(void)
{
  static const char text[] =
#include "amp_cdef.inc"
    ;
  return text;
}

/* -- States ---------------------------------------------------------------- */

amp_state *amp_state_new(void)
{
  static _Atomic uint64_t made;
  amp__table_init();
  amp_state *S = calloc(1, sizeof *S);
  if (S == NULL) return NULL;
  S->priv = calloc(1, sizeof *S->priv);
  if (S->priv == NULL) { free(S); return NULL; }
  S->priv->region_epoch = amp__new_epoch();
  amp__dead_open(S);
  atomic_fetch_add(&amp__states, 1);
  S->grad_mode = 1;
  S->default_dtype = AMP_FLOAT32;
  S->default_device = AMP_CPU;
  for (int i = 0; i < 2; i++) {
    S->autocast[i].dtype = i == AMP_CUDA ? AMP_FLOAT16 : AMP_BFLOAT16;
    S->autocast[i].cache = 1;
  }
  /* a fixed start, another one for each further state; below 2^53, so that a Lua number holds it */
  S->seed = 0x9e3779b97f4a7c15u * (atomic_fetch_add_explicit(&made, 1, memory_order_relaxed) + 1) >> 11;
  return S;
}

void amp_state_free(amp_state *S)
{
  if (S == NULL) return;
  amp__tty_forget(S);
  amp_state *caller = amp__S;
  struct amp_state_private *p = S->priv;
  AMP_ENTER(S);
  amp_clear_autocast_cache(S);
  amp__pool_release(0);
  amp__dead_close(S);
  amp__observe_free(S);
  amp__free(p->one);
  amp__free(p->zeros);
  atomic_fetch_sub(&amp__states, 1);
  amp__S = caller == S ? NULL : caller;
  free(p->pool);
  for (int i = 0; i < p->caplog; i++) free(p->log[i]);
  free(p->log);
  free(p);
  free(S);
}

void amp_interrupt(amp_state *S)
{
  if (S) __atomic_fetch_or(&S->interrupt, AMP_I_INTERRUPT, __ATOMIC_RELAXED);
}

/* -- Errors ---------------------------------------------------------------- */

static void set_error(int code, int arg, const char *fmt, va_list ap)
{
  amp_state *S = amp__S;
  if (S == NULL) return;
  char text[sizeof S->err.message]; /* the message may quote the previous one */
  vsnprintf(text, sizeof text, fmt, ap);
  memcpy(S->err.message, text, sizeof text);
  S->err.code = code;
  S->err.arg = arg;
  snprintf(S->err.op, sizeof S->err.op, "%s", S->priv->op ? S->priv->op : "");
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

static const char *amount(char *buf, size_t n, double bytes)
{
  static const char *const unit[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
  int u = 0;
  while (bytes >= 1024 && u < 6) { bytes /= 1024; u++; }
  snprintf(buf, n, u == 0 || bytes == (double)(int64_t)bytes ? "%.0f %s" : "%.1f %s", bytes, unit[u]);
  return buf;
}

int amp__nomem(size_t bytes)
{
  char want[32], live[32], cached[32];
  const amp_memory_stats *m = amp_memory(AMP_CPU, 0);
  return amp__fail(AMP_E_MEMORY, "no memory for %s on cpu: %s live, %s cached", amount(want, sizeof want, (double)bytes),
                   amount(live, sizeof live, (double)m->live), amount(cached, sizeof cached, (double)m->cached));
}

/* -- Descriptions of tensors ------------------------------------------------ */

enum { RING = 16, TEXT = 224 };

static char *ring(void)
{
  static char lost[TEXT]; /* without a state messages go nowhere */
  if (amp__S == NULL) return lost;
  struct amp_state_private *p = amp__S->priv;
  return p->text[p->text_next++ % RING];
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

const char *amp__tensor_str(const amp_tensor *t)
{
  char *s = ring();
  if (t == NULL) { snprintf(s, TEXT, "none"); return s; }
  int at = snprintf(s, TEXT, "%s ", amp_dtype_name(t->dtype));
  at += put_shape(s + at, TEXT - 24, t->ndim, t->size);
  at += snprintf(s + at, TEXT - (size_t)at, " %s", amp_device_name(t->device));
  if (t->device != AMP_CPU) snprintf(s + at, TEXT - (size_t)at, ":%d", t->device_index + 1);
  return s;
}

/* -- Verbose lines ----------------------------------------------------------- */
/* log[0] holds the line given out last, log[1..nlog] the waiting ones. */

void amp__log(const char *fmt, ...)
{
  amp_state *S = amp__S;
  char line[512];
  va_list ap;
  if (S == NULL) return;
  struct amp_state_private *p = S->priv;
  va_start(ap, fmt);
  vsnprintf(line, sizeof line, fmt, ap);
  va_end(ap);
  if (p->nlog + 1 >= p->caplog) {
    int cap = p->caplog ? 2 * p->caplog : 16;
    char **log = realloc(p->log, sizeof *log * (size_t)cap);
    if (log == NULL) return;
    memset(log + p->caplog, 0, sizeof *log * (size_t)(cap - p->caplog));
    p->log = log;
    p->caplog = cap;
  }
  char *copy = strdup(line);
  if (copy == NULL) return;
  p->log[++p->nlog] = copy;
  S->attention |= AMP_A_LOG;
}

const char *amp_log_next(amp_state *S)
{
  AMP_ENTER(S);
  struct amp_state_private *p = S->priv;
  if (p->nlog == 0) { S->attention &= ~AMP_A_LOG; return NULL; }
  free(p->log[0]);
  memmove(p->log, p->log + 1, sizeof *p->log * (size_t)p->nlog);
  p->log[p->nlog--] = NULL;
  return p->log[0];
}

/* -- Threads ----------------------------------------------------------------- */

static _Atomic int thread_count; /* 0: not asked yet */

int amp_set_threads(int n)
{
  if (n > 0) {
    if (n > 1024) n = 1024;
    atomic_store_explicit(&thread_count, n, memory_order_relaxed);
    return n;
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
  int most = amp_set_threads(0);
  return work / GRAIN < most ? (int)(work / GRAIN) : most;
#else
  return 1;
#endif
}
