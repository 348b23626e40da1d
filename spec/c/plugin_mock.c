/*
** plugin_mock.c: a GPU for specs, libamp_cuda.so as far as the core can tell.
** Every launch is copied, as a real one copies its arguments, and waits in a
** queue until the host wants something: a copy to the CPU or a synchronize.
** Then the CPU's functions run the queue in order.
**
**   kernel, optim_step, ... -> queue -> run: memory opened, CPU functions, closed
**
** Device memory can't be touched by the host: it is mapped without rights but
** while the queue runs. A core that looks at it ends the process with a line
** that names the ops around the place, so no read is missed. Reads, waits and
** launches are counted for amp_mock_* to tell.
** Memory is never given back to the system: what is freed is used again in the
** order of the queue.
*/
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "library/table_hash.h"

AMP_API const char *amp_plugin_init(uint64_t hash, amp_device_ops *devices);
AMP_API const char *amp_plugin_version(void);
AMP_API int64_t amp_mock_reads(void); /* copies to the host */
AMP_API int64_t amp_mock_launches(void);
AMP_API int64_t amp_mock_pending(void);    /* launches that have not run */
AMP_API void amp_mock_fail(int64_t bytes); /* an allocation of this size or more fails; 0: none does */

static amp_device_ops *table;
static int64_t reads, launches, pending, fail_from;

/* -- Memory -------------------------------------------------------------------- */

enum { ARENA = 1 << 30, ALIGN = 256 };
typedef struct hole {
  struct hole *next;
  char *p;
  size_t n;
} hole;
static char *arena;
static size_t used;
static hole *holes;
static const char *last = "nothing";

static void protect(int rights) { mprotect(arena, ARENA, rights); }

static void *mock_alloc(int index, size_t n)
{
  (void)index;
  if (fail_from && n >= (size_t)fail_from) return NULL;
  n = (n + ALIGN - 1) / ALIGN * ALIGN;
  for (hole **at = &holes; *at; at = &(*at)->next)
    if ((*at)->n == n) {
      hole *h = *at;
      char *p = h->p;
      *at = h->next;
      free(h);
      return p;
    }
  if (n > ARENA - used) return NULL;
  used += n;
  return arena + used - n;
}

static void mock_free(int index, void *p, size_t n)
{
  (void)index;
  hole *h = malloc(sizeof *h);
  if (h == NULL) return;
  *h = (hole){ holes, p, (n + ALIGN - 1) / ALIGN * ALIGN };
  holes = h;
}

static void touched(int sig, siginfo_t *info, void *context)
{
  char line[200];
  const char *p = info->si_addr;
  int n = p >= arena && p < arena + ARENA
              ? snprintf(line, sizeof line, "the host touched memory of the device, after the launch of %s\n", last)
              : snprintf(line, sizeof line, "address %p, after the launch of %s\n", info->si_addr, last);
  if (write(2, line, (size_t)n) < 0) _exit(98);
  signal(sig, SIG_DFL);
  (void)context;
}

/* -- Queue --------------------------------------------------------------------- */

typedef struct work {
  struct work *next;
  void (*run)(struct work *w);
  void (*drop)(struct work *w);
} work;
static work *first, **end = &first;
static bool running;

static void enqueue(work *w)
{
  w->next = NULL;
  *end = w;
  end = &w->next;
  launches++;
  pending++;
}

static void run_queue(void)
{
  if (running || first == NULL) return;
  running = true;
  protect(PROT_READ | PROT_WRITE);
  while (first) {
    work *w = first;
    first = w->next;
    w->run(w);
    if (w->drop) w->drop(w);
    free(w);
    pending--;
  }
  end = &first;
  protect(PROT_NONE);
  running = false;
}

/* -- Launches of kernels ------------------------------------------------------- */

typedef struct launch {
  work w;
  amp_call c;
  int n, nstore;
  amp_tensor *t; /* copies of the headers, as the CPU's kernels want them */
  amp_storage *store;
  const amp_tensor **was;
  const amp_storage **home;
  void **bytes; /* copies of what lay on the CPU */
} launch;

static amp_storage *storage_copy(launch *l, amp_storage *s, bool by_value)
{
  for (int i = 0; i < l->nstore; i++)
    if (l->home[i] == s) return &l->store[i];
  amp_storage *d = &l->store[l->nstore];
  l->home[l->nstore] = s;
  l->bytes[l->nstore++] = NULL;
  *d = *s;
  atomic_store(&d->refs, 1 << 20);
  d->device = AMP_CPU;
  d->block = NULL;
  if (s->device == AMP_CPU && by_value) {
    if (s->data == s->small) d->data = d->small;
    else {
      d->data = l->bytes[l->nstore - 1] = malloc(s->bytes ? s->bytes : 1);
      memcpy(d->data, s->data, s->bytes);
    }
  }
  return d;
}

static amp_tensor *tensor_copy(launch *l, const amp_tensor *t, bool by_value)
{
  if (t == NULL) return NULL;
  for (int i = 0; i < l->n; i++)
    if (l->was[i] == t) return &l->t[i];
  amp_tensor *d = &l->t[l->n];
  l->was[l->n++] = t;
  *d = *t;
  d->refs = 1 << 20;
  d->device = AMP_CPU;
  d->device_index = 0;
  d->ag = NULL;
  d->flags &= ~(uint32_t)(AMP_T_REQUIRES_GRAD | AMP_T_HISTORY | AMP_T_VIEW | AMP_T_UNRECORDED);
  d->storage = storage_copy(l, t->storage, by_value);
  return d;
}

static void drop_launch(work *w)
{
  launch *l = (launch *)w;
  for (int i = 0; i < l->nstore; i++) free(l->bytes[i]);
  free(l->t);
  free(l->store);
  free(l->was);
  free(l->home);
  free(l->bytes);
  if (l->c.in != l->c.in_store) free(l->c.in);
}

static void run_launch(work *w)
{
  launch *l = (launch *)w;
  last = l->c.op->info.name;
  table[AMP_CPU].kernel[l->c.id](&l->c); /* what it finds wrong with values, a device can't say */
}

static launch *copy_call(const amp_call *c, bool by_value)
{
  launch *l = calloc(1, sizeof *l);
  size_t n = (size_t)(c->nin + AMP_MAX_OUT);
  l->w.run = run_launch;
  l->w.drop = drop_launch;
  l->c = *c;
  l->t = calloc(n, sizeof *l->t);
  l->store = calloc(n, sizeof *l->store);
  l->was = calloc(n, sizeof *l->was);
  l->home = calloc(n, sizeof *l->home);
  l->bytes = calloc(n, sizeof *l->bytes);
  l->c.in = c->nin > AMP_MAX_IN ? malloc(sizeof *l->c.in * (size_t)c->nin) : l->c.in_store;
  memcpy(l->c.attr_store, c->attrs, sizeof(amp_slot) * (size_t)c->op->info.nslot);
  l->c.attrs = l->c.attr_store;
  for (int i = 0; i < c->nin; i++) l->c.in[i] = tensor_copy(l, c->in[i], by_value);
  for (int i = 0; i < AMP_MAX_OUT; i++) {
    l->c.out[i] = i < c->nout ? tensor_copy(l, c->out[i], by_value) : NULL;
    if (i < c->nout) l->c.meta[i].device = l->c.meta[i].device_index = AMP_CPU;
  }
  return l;
}

static int mock_kernel(amp_call *c)
{
  bool home = false;
  for (int i = 0; i < c->nout; i++) home |= c->out[i] && c->out[i]->device == AMP_CPU;
  launch *l = copy_call(c, !home);
  last = c->op->info.name;
  enqueue(&l->w);
  if (home) { /* the result is the host's */
    reads++;
    run_queue();
  }
  return 0;
}

/* -- The other slots ------------------------------------------------------------- */

typedef struct move {
  work w;
  void *dst;
  const void *src;
  size_t n;
  void *bytes;
} move;

static void run_move(work *w)
{
  move *m = (move *)w;
  if (m->n) memcpy(m->dst, m->bytes ? m->bytes : m->src, m->n);
  free(m->bytes);
}

static int mock_copy(amp_tensor *dst, const amp_tensor *src)
{
  static const uint8_t size[] = { 8, 4, 2, 2, 8, 4, 2, 1, 1, 1 };
  move *m = calloc(1, sizeof *m);
  m->w.run = run_move;
  m->n = (size_t)src->numel * size[src->dtype];
  m->dst = (char *)dst->storage->data + dst->offset * size[dst->dtype];
  m->src = (const char *)src->storage->data + src->offset * size[src->dtype];
  if (src->device == AMP_CPU && m->n) {
    m->bytes = malloc(m->n);
    memcpy(m->bytes, m->src, m->n);
  }
  enqueue(&m->w);
  if (dst->device == AMP_CPU) {
    reads++;
    run_queue();
  }
  return 0;
}

static int mock_sync(int index)
{
  (void)index;
  run_queue();
  return 0;
}

typedef struct step {
  work w;
  int kind, n, nfound;
  amp_hyper h;
  amp_optim_chunk *chunk;
  const float **found;
} step;

static void run_step(work *w)
{
  step *s = (step *)w;
  last = "optim_step";
  table[AMP_CPU].optim_step(s->kind, &s->h, NULL, s->chunk, s->n, s->found, s->nfound);
  free(s->chunk);
  free(s->found);
}

static void *copy_of(const void *p, size_t n)
{
  void *d = malloc(n ? n : 1);
  if (n) memcpy(d, p, n);
  return d;
}

static int mock_optim_step(int kind, const amp_hyper *h, const amp_hyper *there, amp_optim_chunk *chunks, int n,
                           const float *const *found, int nfound)
{
  step *s = calloc(1, sizeof *s);
  *s = (step){ { NULL, run_step, NULL },
               kind,
               n,
               nfound,
               *h,
               copy_of(chunks, sizeof *chunks * (size_t)n),
               copy_of(found, sizeof *found * (size_t)nfound) };
  enqueue(&s->w);
  return 0;
}

typedef struct check {
  work w;
  amp_tensor t;
  amp_storage store;
  const float *inv;
  float *found;
} check;

static void run_check(work *w)
{
  check *k = (check *)w;
  last = "check_scale";
  table[AMP_CPU].check_scale(&k->t, k->inv, k->found);
}

static int mock_check_scale(amp_tensor *t, const float *inv, float *found)
{
  check *k = calloc(1, sizeof *k);
  *k = (check){ .w = { NULL, run_check, NULL }, .t = *t, .store = *t->storage, .inv = inv, .found = found };
  k->store.device = k->t.device = AMP_CPU;
  k->t.storage = &k->store;
  enqueue(&k->w);
  return 0;
}

typedef struct update {
  work w;
  const float *scale, *inv;
  float *scale_to, *inv_to;
  double *tracker, *hyst;
  const float **found;
  int n;
  amp_scaler_options o;
} update;

static void run_update(work *w)
{
  update *u = (update *)w;
  last = "scale_update";
  table[AMP_CPU].scale_update(u->scale, u->inv, u->scale_to, u->inv_to, u->tracker, u->hyst, u->found, u->n, NULL, 0,
                              &u->o);
  free(u->found);
}

static int mock_scale_update(const float *scale, const float *inv, float *scale_to, float *inv_to, double *tracker,
                             double *hyst, const float *const *found, int n, amp_tensor *const *look, int nlook,
                             const amp_scaler_options *o)
{
  update *u = calloc(1, sizeof *u);
  *u = (update){ { NULL, run_update, NULL },
                 scale,
                 inv,
                 scale_to,
                 inv_to,
                 tracker,
                 hyst,
                 copy_of(found, sizeof *found * (size_t)n),
                 n,
                 *o };
  enqueue(&u->w);
  return 0;
}

/* -- The plug-in ------------------------------------------------------------------- */

int64_t amp_mock_reads(void) { return reads; }
int64_t amp_mock_launches(void) { return launches; }
int64_t amp_mock_pending(void) { return pending; }
void amp_mock_fail(int64_t bytes) { fail_from = bytes; }
const char *amp_plugin_version(void) { return "mock 1"; }

const char *amp_plugin_init(uint64_t hash, amp_device_ops *devices)
{
  if (hash != amp__table_hash()) return "it was built for another version of amp";
  amp_device_ops *d = &devices[AMP_CUDA];
  arena = mmap(NULL, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena == MAP_FAILED) return "no address space";
  struct sigaction act = { .sa_sigaction = touched, .sa_flags = SA_SIGINFO };
  sigaction(SIGSEGV, &act, NULL);
  table = devices;
  for (int i = 0; i < AMP_OP_COUNT; i++)
    if (devices[AMP_CPU].kernel[i]) d->kernel[i] = mock_kernel;
  d->count = 1;
  d->reason = "a GPU for specs";
  d->alloc = mock_alloc;
  d->free = mock_free;
  d->copy = mock_copy;
  d->sync = mock_sync;
  d->optim_step = mock_optim_step;
  d->check_scale = mock_check_scale;
  d->scale_update = mock_scale_update;
  return NULL;
}
