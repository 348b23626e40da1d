/*
** cuda_branches.c: a captured step as a graph of what depends on what, not as the
** one line in which its ops were called: the products of a layer's backward, say,
** run side by side.
**
** A row is a unit: nodes in one line. It depends on the units whose memory it
** reads after they wrote it, or writes after they used it; memory is known by its
** addresses, so a block that is freed and used again is in order, too. Units that
** others of the set wait for anyway are left out (a set of bits for each unit says
** what is above it). A check of gradients, an optimizer's step and an update of the
** scale are units, too, which tell what they use by addresses (parts). Otherwise
** the stream depends on all units that no other unit waits for yet: whatever else is
** launched there (a copy, a norm) waits for everything, is seen by the next unit,
** and everything later waits for it.
*/
#include <stdlib.h>
#include <string.h>
#include "cuda_branches.h"
#include "cuda_core.h"

enum { UNITS = 2048, WORDS = UNITS / 64, TAILS = 4 };

typedef struct access {
  uintptr_t lo, hi;
  int32_t unit;
  bool write;
} access;
typedef struct unit {
  cudaGraphNode_t tail[TAILS];
  int32_t ntail;
  bool waited;
  uint64_t above[WORDS];
} unit;

struct amp_branches {
  amp_cuda_device *d;
  unit *unit;
  int n; /* 0: all that was before, whose nodes are base */
  access *log;
  int nlog, caplog; /* the units' */
  access *mine;
  int nmine, capmine; /* of the row that is running */
  cudaGraphNode_t *base;
  int nbase, capbase;
  cudaGraphNode_t *given;
  int ngiven, capgiven;       /* what the stream was told to depend on */
  uint64_t need[WORDS];       /* units the row depends on, and all above them */
  int direct[UNITS], ndirect; /* those it depends on by itself */
  int depth;                  /* rows call rows */
  unsigned turns;
  bool rebased;                   /* what was before base is not known in detail */
  bool inside, alone, lost, late; /* late: a change was not announced; lost: no memory, the graph is of no use */
};

int amp__cuda_branches = 1, amp__cuda_chain = 1;

static void *more(void *list, int n, int *cap, size_t size)
{
  if (n < *cap) return list;
  int want = *cap ? 2 * *cap : 256;
  void *p = realloc(list, size * (size_t)want);
  if (p) *cap = want;
  return p;
}

/* -- The stream --------------------------------------------------------------- */

int amp__branches_depends(const amp_cuda_device *d, const cudaGraphNode_t **nodes)
{
  enum cudaStreamCaptureStatus status;
  size_t n = 0;
#if CUDART_VERSION >= 13000
  const cudaGraphEdgeData *edges = NULL;
  cudaError_t e = cudaStreamGetCaptureInfo(d->stream, &status, NULL, NULL, nodes, &edges, &n);
#else
  cudaError_t e = cudaStreamGetCaptureInfo(d->stream, &status, NULL, NULL, nodes, &n);
#endif
  if (e != cudaSuccess) cudaGetLastError();
  return e == cudaSuccess && status == cudaStreamCaptureStatusActive ? (int)n : -1;
}

static bool tell(const amp_branches *b, cudaGraphNode_t *nodes, int n, bool add)
{
  unsigned how = add ? cudaStreamAddCaptureDependencies : cudaStreamSetCaptureDependencies;
#if CUDART_VERSION >= 13000
  cudaError_t e = cudaStreamUpdateCaptureDependencies(b->d->stream, nodes, NULL, (size_t)n, how);
#else
  cudaError_t e = cudaStreamUpdateCaptureDependencies(b->d->stream, nodes, (size_t)n, how);
#endif
  if (e != cudaSuccess) cudaGetLastError();
  return e == cudaSuccess;
}

/* Is it what it was told? */
static bool as_told(const amp_branches *b, const cudaGraphNode_t *nodes, int n)
{
  if (n != b->ngiven) return false;
  for (int i = 0; i < n; i++) {
    int j = 0;
    while (j < n && b->given[(i + j) % n] != nodes[i]) j++;
    if (j == n) return false;
  }
  return true;
}

static void keep(amp_branches *b, cudaGraphNode_t node)
{
  void *p = more(b->given, b->ngiven, &b->capgiven, sizeof *b->given);
  if (p == NULL) {
    b->lost = true;
    return;
  }
  b->given = p;
  b->given[b->ngiven++] = node;
}

static cudaGraphNode_t *tails(const amp_branches *b, int u, int *n)
{
  *n = u ? b->unit[u].ntail : b->nbase;
  return u ? (cudaGraphNode_t *)b->unit[u].tail : b->base;
}

static void keep_unit(amp_branches *b, int u)
{
  int n;
  cudaGraphNode_t *t = tails(b, u, &n);
  for (int i = 0; i < n; i++) keep(b, t[i]);
}

/* Everything so far is one thing that all later units wait for */
static void rebase(amp_branches *b, const cudaGraphNode_t *nodes, int n)
{
  if (n > b->capbase) {
    cudaGraphNode_t *p = realloc(b->base, sizeof *p * (size_t)n);
    if (p == NULL) {
      b->lost = true;
      return;
    }
    b->base = p;
    b->capbase = n;
  }
  if (n) memcpy(b->base, nodes, sizeof *nodes * (size_t)n);
  b->nbase = n;
  b->rebased = true;
  b->n = 1;
  memset(&b->unit[0], 0, sizeof b->unit[0]);
  b->nlog = 0;
}

/* The stream depends on all units that no other one waits for */
static void gather(amp_branches *b)
{
  b->ngiven = 0;
  for (int u = 0; u < b->n; u++)
    if (!b->unit[u].waited) keep_unit(b, u);
  if (!b->lost && !tell(b, b->given, b->ngiven, false)) b->lost = true;
}

/* -- Dependencies ----------------------------------------------------------------- */

static bool has(const uint64_t *set, int u) { return set[u >> 6] >> (u & 63) & 1; }

static void wait_for(amp_branches *b, int u)
{
  if (has(b->need, u)) return;
  for (int i = 0; i < WORDS; i++) b->need[i] |= b->unit[u].above[i];
  b->need[u >> 6] |= (uint64_t)1 << (u & 63);
  b->direct[b->ndirect++] = u;
  if (b->inside && !b->lost) { /* what is launched from now on waits */
    int n;
    cudaGraphNode_t *t = tails(b, u, &n);
    if (n && !tell(b, t, n, true)) b->lost = true;
    keep_unit(b, u);
  }
}

static void touch(amp_branches *b, uintptr_t lo, uintptr_t hi, bool write)
{
  if (b->lost || lo >= hi) return;
  for (int i = b->nlog - 1; i >= 0; i--) /* the latest first: what is above them needs no look */
    if (b->log[i].lo < hi && lo < b->log[i].hi && (write || b->log[i].write)) wait_for(b, b->log[i].unit);
  access *p = more(b->mine, b->nmine, &b->capmine, sizeof *p);
  if (p == NULL) {
    b->lost = true;
    return;
  }
  b->mine = p;
  b->mine[b->nmine++] = (access){ lo, hi, 0, write };
}

static void touch_tensor(amp_branches *b, const amp_tensor *t, bool write)
{
  if (t == NULL || t->device != AMP_CUDA || t->numel == 0 || (t->flags & AMP_T_NUMBER)) return;
  int64_t lo = 0, hi = 1, size = (int64_t)amp__dtype_size[t->dtype];
  for (int d = 0; d < t->ndim; d++) {
    int64_t far = (t->size[d] - 1) * t->stride[d];
    if (far < 0) lo += far;
    else hi += far;
  }
  uintptr_t at = (uintptr_t)amp__data(t);
  touch(b, at + (uintptr_t)(lo * size), at + (uintptr_t)(hi * size), write);
}

static void touch_call(amp_branches *b, const amp_call *c)
{
  for (int i = 0; i < c->nin; i++) touch_tensor(b, c->in[i], false);
  for (int i = 0; i < c->nout; i++) touch_tensor(b, c->out[i], true);
}

/* -- Rows and parts ------------------------------------------------------------------- */

/* What is touched until `start` it waits for. Units call each other: the outermost counts. */
static void open_unit(amp_branches *b)
{
  const cudaGraphNode_t *nodes;
  if (b->lost || b->depth++) return;
  int n = amp__branches_depends(b->d, &nodes);
  if (n < 0) {
    b->lost = true;
    return;
  }
  if (!as_told(b, nodes, n) || b->n == UNITS) rebase(b, nodes, n);
  memset(b->need, 0, sizeof b->need);
  b->nmine = b->ndirect = 0;
  b->inside = b->alone = false;
}

static void start(amp_branches *b)
{
  if (b->lost || b->inside) return;
  b->ngiven = 0;
  if (b->ndirect == 0) wait_for(b, 0);
  for (int i = 0; i < b->ndirect; i++) { /* those that no other of them waits for */
    bool above = false;
    for (int j = 0; j < b->ndirect && !above; j++) above = has(b->unit[b->direct[j]].above, b->direct[i]);
    if (!above) keep_unit(b, b->direct[i]);
  }
  if (!tell(b, b->given, b->ngiven, false)) b->lost = true;
  b->inside = true;
}

void amp__branches_enter(amp_branches *b, const amp_call *c)
{
  open_unit(b);
  touch_call(b, c);
  start(b);
}

bool amp__branches_first(const amp_branches *b, const amp_tensor *t, const amp_tensor *out)
{
  if (b == NULL || b->lost || b->rebased || b->depth != 1) return false;
  uintptr_t t0 = (uintptr_t)amp__data(t), t1 = t0 + (uintptr_t)t->numel * amp__dtype_size[t->dtype];
  uintptr_t o0 = (uintptr_t)amp__data(out), o1 = o0 + (uintptr_t)out->numel * amp__dtype_size[out->dtype];
  for (int i = 0; i < b->nlog; i++) {
    const access *a = &b->log[i];
    if ((a->lo < o1 && o0 < a->hi) || (a->write && a->lo < t1 && t0 < a->hi)) return false;
  }
  return true;
}

void amp__branches_leave(amp_branches *b)
{
  const cudaGraphNode_t *nodes;
  if (b->lost || --b->depth) return;
  start(b); /* a part that failed before its first launch */
  b->inside = false;
  int n = amp__branches_depends(b->d, &nodes);
  if (n < 0) {
    b->lost = true;
    return;
  }
  if (as_told(b, nodes, n)) {
    gather(b);
    return;
  } /* it launched nothing */
  int u = b->n;
  unit *k = &b->unit[u];
  *k = (unit){ .ntail = n };
  memcpy(k->above, b->need, sizeof k->above);
  k->above[0] |= 1;
  for (int v = 0; v < u; v++)
    if (has(k->above, v)) b->unit[v].waited = true;
  if (n > TAILS || b->alone) { /* together with what is still open they are what all wait for */
    b->ngiven = 0;
    for (int v = 0; v < u; v++)
      if (!b->unit[v].waited) keep_unit(b, v);
    for (int i = 0; i < n; i++) keep(b, nodes[i]);
    if (!b->lost && !tell(b, b->given, b->ngiven, false)) b->lost = true;
    if (!b->lost) rebase(b, b->given, b->ngiven);
    return;
  }
  memcpy(k->tail, nodes, sizeof *nodes * (size_t)n);
  b->n++;
  for (int i = 0; i < b->nmine; i++) {
    access *m = &b->mine[i];
    m->unit = u;
    for (int j = b->nlog - 1; j >= 0 && m->write; j--) /* a unit that waits for this one waits for those */
      if (m->lo <= b->log[j].lo && b->log[j].hi <= m->hi && has(k->above, b->log[j].unit)) {
        memmove(b->log + j, b->log + j + 1, sizeof *b->log * (size_t)(b->nlog - j - 1));
        b->nlog--;
      }
  }
  for (int i = 0; i < b->nmine; i++) {
    access *p = more(b->log, b->nlog, &b->caplog, sizeof *p);
    if (p == NULL) {
      b->lost = true;
      return;
    }
    b->log = p;
    b->log[b->nlog++] = b->mine[i];
  }
  gather(b);
}

bool amp__cuda_chains(void)
{
  const amp_cuda_device *d = amp__cuda_here();
  if (!amp__cuda_chain || d->cc < 90) return false;
#ifndef AMP_EMULATED
  if (d->capture) { /* after one kernel, and nothing else */
    const cudaGraphNode_t *nodes;
    enum cudaGraphNodeType type;
    return amp__branches_depends(d, &nodes) == 1 && cudaGraphNodeGetType(nodes[0], &type) == cudaSuccess
           && type == cudaGraphNodeTypeKernel;
  }
#endif
  return true;
}

static amp_branches *current(void)
{
  amp_cuda_device *d = amp__cuda_here();
  return d && d->capture ? d->branches : NULL;
}

void amp__cuda_part_begin(void)
{
  amp_branches *b = current();
  if (b) open_unit(b);
}

void amp__cuda_part_start(void)
{
  amp_branches *b = current();
  if (b && b->depth == 1) start(b);
}

void amp__cuda_part_end(void)
{
  amp_branches *b = current();
  if (b) amp__branches_leave(b);
}

void amp__cuda_touch_bytes(const void *p, size_t n, bool write)
{
  amp_branches *b = current();
  if (b && b->depth && p) touch(b, (uintptr_t)p, (uintptr_t)p + n, write);
}

void amp__cuda_touch(const amp_tensor *t, bool write)
{
  amp_branches *b = current();
  if (b && b->depth) touch_tensor(b, t, write);
}

void amp__cuda_alone(void)
{
  amp_branches *b = current();
  if (b == NULL || b->depth == 0 || b->lost) return;
  for (int u = b->n - 1; u >= 0; u--) wait_for(b, u);
  b->alone = true;
}

unsigned amp__cuda_turn(unsigned n, unsigned all)
{
  amp_branches *b = current();
  if (b == NULL) return 0;
  if (b->turns + n > all) { /* from the start again, after all others */
    amp__cuda_alone();
    b->turns = 0;
  }
  unsigned at = b->turns;
  b->turns += n;
  return at;
}

void amp__branches_changed(amp_branches *b, const amp_storage *s)
{
  if (b->lost || b->depth == 0) return;
  uintptr_t lo = (uintptr_t)s->data, hi = lo + s->bytes;
  for (int i = 0; i < b->nmine; i++)
    if (b->mine[i].write && b->mine[i].lo < hi && lo < b->mine[i].hi) return;
  b->late = true;
}

/* -- Life ------------------------------------------------------------------------------- */

amp_branches *amp__branches_new(amp_cuda_device *d)
{
  if (!amp__cuda_branches || d->first == NULL) return NULL;
  amp_branches *b = calloc(1, sizeof *b);
  if (b == NULL) return NULL;
  b->d = d;
  if ((b->unit = calloc(UNITS, sizeof *b->unit)) == NULL) {
    free(b);
    return NULL;
  }
  rebase(b, &d->first, 1); /* what depends on nothing else depends on it */
  b->rebased = false;
  gather(b);
  return b;
}

int amp__branches_free(amp_branches *b)
{
  if (b == NULL) return 0;
  bool late = b->late, lost = b->lost;
  free(b->unit);
  free(b->log);
  free(b->mine);
  free(b->base);
  free(b->given);
  free(b);
  if (lost)
    return amp__fail(AMP_E_MEMORY,
                     "no memory, or no help from the driver, for the order of a captured step's launches");
  return late ? amp__fail(AMP_E_INTERNAL, "a kernel of the captured step changed a tensor that it had not announced")
              : 0;
}
