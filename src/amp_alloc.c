/*
** amp_alloc.c: where memory comes from. Nothing given back goes to the system
** until it runs short: fresh pages cost tens of times what reused ones do.
**
**   objects (tensors, storages, nodes)   64-byte classes, lists of the thread
**   blocks up to 32 KiB                  8 classes an octave, lists of the thread
**   larger blocks                        the same classes, lists of the device (a GPU's above 4 MiB fit closer)
**
** Blocks up to 8 MiB are carved from mappings of 32 MiB, larger ones have their own; both are whole 2 MiB pages, huge
** where the system can. The first mapping is resident from the start: pages that come one by one while garbage builds
** up cost faults and make a program look as if it leaked. Large blocks begin at different offsets in a page: tensors
** walked side by side at the same offset fall on the same sets of the caches and wait for each other's stores.
**
** A thread's lists take what that thread frees, whoever allocated it; what is too much for them, and everything when
** the thread ends, goes to shared lists under a mutex. Freeing takes no other lock and calls no device, so it is legal
** in finalizers, at exit and during capture. Counters of small things are kept by thread and added to amp_memory's in
** steps of 64 KiB. Under AddressSanitizer nothing is cached. Storages are in amp_storage.c. A device's block belongs
** to the stream it was asked in; if others worked on it, too, it is late when it is freed (amp_late.c).
*/
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "amp_classes.h"
#include "amp_late.h"
#include "amp_tape.h"

#if defined(__SANITIZE_ADDRESS__)
#define CACHING 0
#else
#define CACHING 1
#endif

enum {
  OBJ_STEP = 64, OBJ_CLASSES = 17,        /* cache lines, up to 1 KiB */
  OBJ_KEEP = 16384, OBJ_MOVE = 1024,      /* of a class in a thread; moved at once */
  OBJ_SLAB = 64 << 10,                    /* bytes carved into objects at once */
  SMALL_CLASSES = 73, SMALL_MAX = 32768,  /* blocks a thread keeps */
  HUGE_MIN = 1 << 20, CHUNK = 32 << 20, CHUNK_AFTER = 1 << 20,
  INDICES = 16, BATCH = 64 << 10, TROUGH_MIN = 32 << 20, FALLOW_MAX = 2 << 20, FALLOW = 16 /* of captured steps */
};
#define BLOCK_MAX ((size_t)1 << 47)
#define PACE_DEFAULT ((int64_t)4 << 20)

typedef struct obj { struct obj *next; } obj;
typedef struct piece { /* a block with what the pool knows of it */
  amp_block b;         /* first: they are one pointer */
  int32_t cls, stream; /* stream: of the device, whose list it is in when it is free */
  struct chunk *chunk; /* of which it is a part, or NULL */
  void *base;          /* what the system gave, if not */
  size_t capacity;
  amp_pool *owner;     /* of a captured step, or NULL */
  struct piece *next;
} piece;

struct amp_pool { piece *list[1 + 42 * 8]; int64_t out; uint8_t device, index; bool dropped; }; /* out: pieces that are in use */

typedef struct tcache {
  obj *obj[OBJ_CLASSES];
  piece *small[SMALL_CLASSES];
  uint32_t nobj[OBJ_CLASSES];
  uint16_t nsmall[SMALL_CLASSES];
  int64_t live, cached, allocations, collected; /* not yet in stats[AMP_CPU][0] */
  bool collecting;     /* a garbage collector is freeing */
} tcache;

static _Thread_local tcache *mine __attribute__((tls_model("initial-exec")));
static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static obj *shared_obj[OBJ_CLASSES];
static piece *pool[AMP_DEVICE_COUNT][INDICES][CLASSES];
static piece *side[INDICES][AMP_STREAMS][CLASSES]; /* of a GPU's streams from 1 on */
static piece *late[INDICES];                   /* amp_late.h */
static amp_pool *own[INDICES];                 /* open for a captured step */
static amp_memory_stats stats[AMP_DEVICE_COUNT][INDICES] = {
  [0 ... AMP_DEVICE_COUNT - 1] = { [0 ... INDICES - 1] = { .pace = PACE_DEFAULT, .pace_large = 4 * PACE_DEFAULT } } };
static _Atomic int64_t fail_after = -1;

/* -- Counters ---------------------------------------------------------------- */

static void add(int64_t *cell, int64_t n) { if (n) __atomic_fetch_add(cell, n, __ATOMIC_RELAXED); }

static void count_now(int device, int index, int64_t live, int64_t cached, int64_t allocations)
{
  amp_memory_stats *m = &stats[device][index];
  int64_t now = __atomic_add_fetch(&m->live, live, __ATOMIC_RELAXED);
  int64_t peak = __atomic_load_n(&m->peak, __ATOMIC_RELAXED);
  while (now > peak && !__atomic_compare_exchange_n(&m->peak, &peak, now, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
  add(&m->cached, cached);
  add(&m->allocations, allocations);
  if (live >= HUGE_MIN || live <= -HUGE_MIN) add(&m->large, live); /* sums of smaller ones stay below */
  if (live <= 0) {
    if (live < 0 && mine && mine->collecting) add(&m->high, live);
    return;
  }
  if (now > __atomic_load_n(&m->high, __ATOMIC_RELAXED)) __atomic_store_n(&m->high, now, __ATOMIC_RELAXED);
  int64_t large = __atomic_load_n(&m->large, __ATOMIC_RELAXED);
  if ((now - large >= __atomic_load_n(&m->pace, __ATOMIC_RELAXED) || large >= __atomic_load_n(&m->pace_large, __ATOMIC_RELAXED)) && amp__S)
    amp__S->attention |= AMP_A_PACE;
}

static void flush_counters(tcache *c)
{
  add(&stats[AMP_CPU][0].high, -c->collected); /* before the sum below is compared with it */
  c->collected = 0;
  bool collecting = c->collecting;
  c->collecting = false;
  count_now(AMP_CPU, 0, c->live, c->cached, c->allocations);
  c->collecting = collecting;
  c->live = c->cached = c->allocations = 0;
}

static inline void count(tcache *c, int64_t live, int64_t cached, int64_t allocations)
{
  if (amp_unlikely(c == NULL)) { count_now(AMP_CPU, 0, live, cached, allocations); return; }
  c->live += live;
  c->cached += cached;
  c->allocations += allocations;
  if (c->collecting) c->collected -= live;
  if (amp_unlikely(c->live >= BATCH || c->live <= -BATCH || c->cached >= BATCH || c->cached <= -BATCH))
    flush_counters(c);
}

void amp__memory_collecting(bool on) { if (mine) mine->collecting = on; }

/* A backward has ended: what forward made and backward freed is no garbage, however often it comes and goes. */
void amp__memory_trough(void)
{
  if (mine) flush_counters(mine);
  for (int d = 0; d < AMP_DEVICE_COUNT; d++)
    for (int i = 0; i < INDICES; i++) {
      amp_memory_stats *m = &stats[d][i];
      int64_t top = __atomic_load_n(&m->high, __ATOMIC_RELAXED);
      if (top == 0) continue;
      int64_t now = __atomic_load_n(&m->live, __ATOMIC_RELAXED);
      if (top - now > __atomic_load_n(&m->swing, __ATOMIC_RELAXED)) __atomic_store_n(&m->swing, top - now, __ATOMIC_RELAXED);
      __atomic_store_n(&m->high, now, __ATOMIC_RELAXED);
      if (d == AMP_CPU || amp__S == NULL) continue;
      /* now the tape holds nothing, and the host is ahead of a GPU that has much to do: a collection costs it nothing */
      int64_t large = __atomic_load_n(&m->large, __ATOMIC_RELAXED), rest = __atomic_load_n(&m->rest, __ATOMIC_RELAXED);
      if (rest == 0 || large < rest) __atomic_store_n(&m->rest, rest = large, __ATOMIC_RELAXED);
      if (large - rest < TROUGH_MIN || large - rest < __atomic_load_n(&m->swing, __ATOMIC_RELAXED) / 8) continue;
      if (large < __atomic_load_n(&m->pace_large, __ATOMIC_RELAXED)) __atomic_store_n(&m->pace_large, large, __ATOMIC_RELAXED);
      __atomic_store_n(&m->rest, -1, __ATOMIC_RELAXED);
      amp__S->attention |= AMP_A_PACE;
    }
}

amp_memory_stats *amp_memory(int device, int index)
{
  if (device < 0 || device >= AMP_DEVICE_COUNT || index < 0 || index >= INDICES) return NULL;
  if (device == AMP_CPU && mine) flush_counters(mine);
  return &stats[device][index];
}

/* -- Injected failures --------------------------------------------------------- */

void amp_fail_allocation(int64_t n)
{
  atomic_store_explicit(&fail_after, n > 0 ? n : -1, memory_order_relaxed);
}

static bool fails_slow(void)
{
  int64_t n = atomic_fetch_sub_explicit(&fail_after, 1, memory_order_relaxed);
  if (n > 1) return false;
  atomic_store_explicit(&fail_after, -1, memory_order_relaxed);
  if (n < 1) return false;
  add(&stats[AMP_CPU][0].failures, 1);
  return true;
}

static inline bool fails(void)
{
  return amp_unlikely(atomic_load_explicit(&fail_after, memory_order_relaxed) > 0) && fails_slow();
}

/* -- Thread caches -------------------------------------------------------------- */

/* The free blocks of a device's stream, by class */
static inline piece **lists_of(int device, int index, int stream) { return stream ? side[index][stream] : pool[device][index]; }

/* Into everybody's lists. Under the lock. */
static void put_back(piece *p)
{
  bool shared = p->b.device != AMP_CPU && (atomic_load_explicit(&p->b.streams, memory_order_relaxed) & ~((uint32_t)1 << p->stream));
  piece **head = shared ? &late[p->b.index] : &lists_of(p->b.device, p->b.index, p->stream)[p->cls];
  p->next = *head;
  *head = p;
}

static void keep(const amp_pool *o, int64_t n) { add(&stats[o->device][o->index].kept, n); }

static void pool_put(piece *p)
{
  pthread_mutex_lock(&lock);
  amp_pool *o = p->owner;
  if (o && o->dropped) p->owner = NULL;
  if (p->owner) {
    p->next = o->list[p->cls];
    o->list[p->cls] = p;
    keep(o, (int64_t)p->capacity);
  } else put_back(p);
  if (o && --o->out == 0 && o->dropped) free(o);
  pthread_mutex_unlock(&lock);
}

amp_pool *amp__private_open(int device, int index)
{
  amp_pool *p = calloc(1, sizeof *p);
  if (p == NULL) { amp__nomem(sizeof *p); return NULL; }
  p->device = (uint8_t)device;
  p->index = (uint8_t)index;
  pthread_mutex_lock(&lock);
  if (own[index] == NULL) own[index] = p;
  else { free(p); p = NULL; }
  pthread_mutex_unlock(&lock);
  if (p == NULL) amp__fail(AMP_E_STATE, "a step is being captured on %s:%d already", amp_device_name(device), index + 1);
  return p;
}

void amp__private_shut(amp_pool *p)
{
  pthread_mutex_lock(&lock);
  if (own[p->index] == p) own[p->index] = NULL;
  pthread_mutex_unlock(&lock);
}

void amp__private_drop(amp_pool *p)
{
  if (p == NULL) return;
  pthread_mutex_lock(&lock);
  if (own[p->index] == p) own[p->index] = NULL;
  for (int k = 0; k < CLASSES; k++)
    while (p->list[k]) {
      piece *x = p->list[k];
      p->list[k] = x->next;
      x->owner = NULL;
      keep(p, -(int64_t)x->capacity);
      put_back(x);
    }
  p->dropped = true;
  bool idle = p->out == 0;
  pthread_mutex_unlock(&lock);
  if (idle) free(p);
}

bool amp__private_has(const amp_pool *p, const amp_block *b) { return b && !b->foreign && ((const piece *)b)->owner == p; }
bool amp__private_any(const amp_block *b) { return b && !b->foreign && ((const piece *)b)->owner != NULL; }

static void give_back(tcache *c)
{
  pthread_mutex_lock(&lock);
  for (int i = 0; i < OBJ_CLASSES; i++) {
    while (c->obj[i]) {
      obj *o = c->obj[i];
      c->obj[i] = o->next;
      o->next = shared_obj[i];
      shared_obj[i] = o;
    }
    c->nobj[i] = 0;
  }
  for (int i = 0; i < SMALL_CLASSES; i++) {
    while (c->small[i]) {
      piece *p = c->small[i];
      c->small[i] = p->next;
      p->next = pool[AMP_CPU][p->b.index][i];
      pool[AMP_CPU][p->b.index][i] = p;
    }
    c->nsmall[i] = 0;
  }
  pthread_mutex_unlock(&lock);
  flush_counters(c);
}

static void thread_ends(void *arg)
{
  give_back(arg);
  mine = NULL;
  free(arg);
}

static void make_key(void) { (void)pthread_key_create(&key, thread_ends); }

static tcache *cache_slow(void)
{
  pthread_once(&key_once, make_key);
  tcache *c = calloc(1, sizeof *c);
  if (c && pthread_setspecific(key, c) != 0) { free(c); c = NULL; }
  mine = c;
  return c;
}

static inline tcache *cache(void) { return amp_likely(mine != NULL) ? mine : cache_slow(); }

/* -- From and to the system ---------------------------------------------------------------- */

static void *map_huge(size_t n)
{
  char *raw = mmap(NULL, n + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return NULL;
  char *p = (char *)(((uintptr_t)raw + HUGE_PAGE - 1) & ~((uintptr_t)HUGE_PAGE - 1));
  if (p > raw) munmap(raw, (size_t)(p - raw));
  if (p + n < raw + n + HUGE_PAGE) munmap(p + n, (size_t)(raw + n + HUGE_PAGE - (p + n)));
#ifdef MADV_HUGEPAGE
  (void)madvise(p, n, MADV_HUGEPAGE); /* advice only */
#endif
  return p;
}

typedef struct chunk {
  struct chunk *next;
  char *base, *at;
  int pieces, idle;    /* carved; of those, found cached by amp_empty_cache */
} chunk;
static chunk *chunks;        /* the one being carved first */
static size_t asked;         /* by a program that needs little and gets no mapping */
static unsigned colour;

enum { COLOURS = 16, COLOUR = 256 };

/* n bytes of a mapping, and which; NULL: there is none. Objects have no piece and stay for ever. */
static void *carve_chunk(size_t n, chunk **of)
{
  char *p = NULL;
  pthread_mutex_lock(&lock);
  if (asked <= CHUNK_AFTER) asked += n;
  if (asked > CHUNK_AFTER) {
    n = (n + 63) & ~(size_t)63;
    if (n >= 4096) n += COLOUR / 2; /* off the page raster */
    if (chunks == NULL || (size_t)(chunks->base + CHUNK - chunks->at) < n) {
      chunk *c = malloc(sizeof *c);
      char *base = c ? map_huge(CHUNK) : NULL;
      if (base) {
        if (chunks == NULL) for (char *q = base; q < base + CHUNK; q += HUGE_PAGE) *(volatile char *)q = 0;
        *c = (chunk){ .next = chunks, .base = base, .at = base };
        chunks = c;
      } else free(c);
    }
    if (chunks && (size_t)(chunks->base + CHUNK - chunks->at) >= n) {
      *of = chunks;
      p = chunks->at;
      chunks->at += n;
      chunks->pieces++;
    }
  }
  pthread_mutex_unlock(&lock);
  return p;
}

/* -- Objects ----------------------------------------------------------------------- */

/* A slab of new objects, listed in the order of their addresses: what is made in a row lies in a row, and a
** collector that frees in the order of making runs with the prefetcher. Slabs are never given back. */
static obj *carve(tcache *c, int cls)
{
  size_t size = (size_t)cls * OBJ_STEP, n = OBJ_SLAB / size;
  chunk *of;
  char *p = carve_chunk(OBJ_SLAB, &of);
  if (p == NULL) p = aligned_alloc(64, OBJ_SLAB);
  if (p == NULL) {
    amp_empty_cache(AMP_CPU);
    if ((p = aligned_alloc(64, OBJ_SLAB)) == NULL) { add(&stats[AMP_CPU][0].failures, 1); return NULL; }
  }
  for (size_t i = n; i-- > 0; ) {
    obj *o = (obj *)(p + i * size);
    o->next = c->obj[cls];
    c->obj[cls] = o;
  }
  c->nobj[cls] += (uint32_t)n;
  count(c, 0, (int64_t)(n * size), 0);
  return c->obj[cls];
}

static obj *refill(tcache *c, int cls)
{
  int n = 0;
  pthread_mutex_lock(&lock);
  while (shared_obj[cls] && n < OBJ_MOVE) {
    obj *o = shared_obj[cls];
    shared_obj[cls] = o->next;
    o->next = c->obj[cls];
    c->obj[cls] = o;
    n++;
  }
  pthread_mutex_unlock(&lock);
  c->nobj[cls] += (uint32_t)n;
  return c->obj[cls] ? c->obj[cls] : carve(c, cls);
}

static void spill(tcache *c, int cls)
{
  obj *first = c->obj[cls], *last = first;
  for (int i = 1; i < OBJ_MOVE; i++) last = last->next;
  c->obj[cls] = last->next;
  c->nobj[cls] -= OBJ_MOVE;
  pthread_mutex_lock(&lock);
  last->next = shared_obj[cls];
  shared_obj[cls] = first;
  pthread_mutex_unlock(&lock);
}

void *amp__obj_alloc(size_t bytes)
{
  if (fails()) return NULL;
  int cls = (int)((bytes + OBJ_STEP - 1) / OBJ_STEP);
  tcache *c = cache();
  if (!CACHING || amp_unlikely(cls >= OBJ_CLASSES || c == NULL)) {
    void *p = malloc(bytes);
    if (p) count(c, (int64_t)bytes, 0, 1);
    return p;
  }
  int64_t size = (int64_t)cls * OBJ_STEP;
  obj *o = c->obj[cls];
  if (amp_unlikely(o == NULL) && (o = refill(c, cls)) == NULL) return NULL;
  obj *next = o->next;
  c->obj[cls] = next;
  c->nobj[cls]--;
  /* the next one was freed long ago: ask for it now (a third of the time of a small op was waiting for it) */
  __builtin_prefetch(next, 1);
  __builtin_prefetch((char *)next + 64, 1);
  if (cls > 2) __builtin_prefetch((char *)next + 128, 1);
  count(c, size, -size, 1);
  return o;
}

void amp__obj_free(void *p, size_t bytes)
{
  if (p == NULL) return;
  int cls = (int)((bytes + OBJ_STEP - 1) / OBJ_STEP);
  tcache *c = cache();
  if (!CACHING || amp_unlikely(cls >= OBJ_CLASSES || c == NULL)) {
    free(p);
    count(c, -(int64_t)bytes, 0, 0);
    return;
  }
  int64_t size = (int64_t)cls * OBJ_STEP;
  obj *o = p;
  o->next = c->obj[cls];
  c->obj[cls] = o;
  if (amp_unlikely(++c->nobj[cls] >= OBJ_KEEP)) spill(c, cls);
  count(c, -size, size, 0);
}

/* -- Blocks from and to the system ---------------------------------------------------------- */

/* Memory for a piece from the device or the system. */
static bool raw_alloc(piece *p, int device, int index, size_t n)
{
  p->base = NULL;
  if (device != AMP_CPU) p->base = amp__devices[device].alloc(index, n);
  else if (CACHING && n > CHUNK_MAX) {
    p->base = map_huge(n + COLOURS * COLOUR);
    p->b.data = p->base ? (char *)p->base + __atomic_fetch_add(&colour, 1, __ATOMIC_RELAXED) % COLOURS * COLOUR : NULL;
    return p->base != NULL;
  } else if (posix_memalign(&p->base, 64, n) != 0) p->base = NULL;
  p->b.data = p->base;
  return p->base != NULL;
}

static void raw_free(piece *p)
{
  if (p->b.device != AMP_CPU) amp__devices[p->b.device].free(p->b.index, p->base, p->capacity);
  else if (CACHING && p->capacity > CHUNK_MAX) munmap(p->base, p->capacity + COLOURS * COLOUR);
  else free(p->base);
}

/* Pieces of mappings that are not wholly idle stay cached. Under the lock. */
static void mark_idle(void)
{
  for (chunk *c = chunks; c; c = c->next) c->idle = 0;
  for (int i = 0; i < INDICES; i++)
    for (int k = 0; k < CLASSES; k++)
      for (piece *p = pool[AMP_CPU][i][k]; p; p = p->next) if (p->chunk) p->chunk->idle++;
}

/* -- Blocks that several streams worked on --------------------------------------------- */

void *amp__late_take(int index, uint32_t *streams)
{
  if (__atomic_load_n(&late[index], __ATOMIC_RELAXED) == NULL) return NULL;
  pthread_mutex_lock(&lock);
  piece *list = late[index];
  late[index] = NULL;
  pthread_mutex_unlock(&lock);
  for (piece *p = list; p; p = p->next) *streams |= atomic_load_explicit(&p->b.streams, memory_order_relaxed);
  return list;
}

void amp__late_return(int index, void *list)
{
  piece *end = list;
  while (end->next) end = end->next;
  pthread_mutex_lock(&lock);
  end->next = late[index];
  late[index] = list;
  pthread_mutex_unlock(&lock);
}

void amp__late_over(void *list)
{
  pthread_mutex_lock(&lock);
  for (piece *p = list, *next; p; p = next) {
    next = p->next;
    atomic_store_explicit(&p->b.streams, (uint32_t)1 << p->stream, memory_order_relaxed);
    put_back(p);
  }
  pthread_mutex_unlock(&lock);
}

void amp_empty_cache(int device)
{
  piece *gone = NULL;
  chunk *unmapped = NULL;
  if (mine) give_back(mine);
  for (int d = 0; d < AMP_DEVICE_COUNT; d++) {
    if (device >= 0 && d != device) continue;
    amp__late_settle_all(d);
    if (amp__devices[d].host_trim) amp__devices[d].host_trim();
  }
  pthread_mutex_lock(&lock);
  mark_idle();
  for (int d = 0; d < AMP_DEVICE_COUNT; d++) {
    if (device >= 0 && d != device) continue;
    for (int i = 0; i < INDICES; i++)
      for (int k = 0; k < CLASSES; k++)
        for (piece **at = &pool[d][i][k]; *at; ) {
          piece *p = *at;
          if (p->chunk && p->chunk->idle < p->chunk->pieces) { at = &p->next; continue; }
          *at = p->next;
          p->next = gone;
          gone = p;
        }
    if (d == AMP_CPU || !amp__streamed) continue;
    for (int i = 0; i < INDICES; i++)
      for (int n = 1; n < AMP_STREAMS; n++)
        for (int k = 0; k < CLASSES; k++)
          while (side[i][n][k]) {
            piece *p = side[i][n][k];
            side[i][n][k] = p->next;
            p->next = gone;
            gone = p;
          }
  }
  if (device < 0 || device == AMP_CPU)
    for (chunk **at = &chunks; *at; ) {
      chunk *c = *at;
      if (c->idle < c->pieces) { at = &c->next; continue; }
      *at = c->next;
      c->next = unmapped;
      unmapped = c;
    }
  pthread_mutex_unlock(&lock);
  while (gone) {
    piece *p = gone;
    gone = p->next;
    count_now(p->b.device, p->b.index, 0, -(int64_t)p->capacity, 0);
    if (p->chunk) continue; /* lies in the mapping itself */
    raw_free(p);
    free(p);
  }
  while (unmapped) {
    chunk *c = unmapped;
    unmapped = c->next;
    munmap(c->base, CHUNK);
    free(c);
  }
}

/* -- Blocks ---------------------------------------------------------------------------------- */

/* Of a captured step's free blocks the one that was freed first: who takes it waits for the least (cuda_branches.c), so small ones
** even lie fallow for a while. */
static piece *take_oldest(piece **at, int cls)
{
  int n = 0;
  for (piece **p = at; *p; p = &(*p)->next) {
    at = p;
    n++;
  }
  piece *p = *at;
  if (p == NULL || (n < FALLOW && (size_t)n * class_bytes(cls) < FALLOW_MAX)) return NULL;
  *at = NULL;
  return p;
}

/* A cached block of class cls or, if large, of one up to half again as big (on a GPU an eighth), with room for capacity bytes. */
static piece *pool_take(int device, int index, int cls, size_t capacity, int stream)
{
  piece *p = NULL, **best = NULL; /* the smallest */
  int last = cls < SMALL_CLASSES ? cls : device == AMP_CPU ? cls + 4 : cls + 1;
  size_t most = capacity + capacity / (device == AMP_CPU ? 1 : 8);
  pthread_mutex_lock(&lock);
  amp_pool *o = device != AMP_CPU ? own[index] : NULL;
  for (int k = cls; k <= last && k < CLASSES; k++) {
    piece **head = o ? &o->list[k] : &lists_of(device, index, stream)[k];
    if (o && class_bytes(k) <= OLDEST_MAX) {
      if ((p = take_oldest(head, k))) break;
      continue;
    }
    for (; *head && !(best && (*best)->capacity == capacity); head = &(*head)->next)
      if ((*head)->capacity >= capacity && (*head)->capacity <= most && (!best || (*head)->capacity < (*best)->capacity)) best = head;
    if (best) { p = *best; *best = p->next; break; }
  }
  if (p && o) {
    o->out++;
    keep(o, -(int64_t)p->capacity);
  }
  pthread_mutex_unlock(&lock);
  return p;
}

static int no_memory(int device, int index, size_t bytes)
{
  add(&stats[device][index].failures, 1);
  if (device == AMP_CPU) return amp__nomem(bytes);
  const amp_memory_stats *m = amp_memory(device, index);
  const double mib = 1048576;
  size_t unused = 0, total = 0;
  double live = (double)m->live / mib, cached = (double)m->cached / mib, kept = (double)m->kept / mib;
  if (amp__devices[device].memory == NULL || amp__devices[device].memory(index, &unused, &total) < 0)
    return amp__fail(AMP_E_MEMORY, "no memory for %.1f MiB on %s:%d: %.1f MiB live, %.1f MiB cached", (double)bytes / mib, amp_device_name(device), index + 1, live, cached);
  double others = (double)(total - unused) / mib - live - cached;
  return amp__fail(AMP_E_MEMORY, "no memory for %.1f MiB on %s:%d, which has %.1f MiB: %.1f MiB live in tensors, %.1f MiB cached (%.1f of them for captured steps), "
                   "%.1f MiB taken by the driver, libraries and other programs, %.1f MiB free", (double)bytes / mib, amp_device_name(device), index + 1,
                   (double)total / mib, live, cached, kept, others > 0 ? others : 0, (double)unused / mib);
}

static piece *fresh(int device, int index, size_t capacity, int cls, int stream)
{
  size_t head = (sizeof(piece) + 63) & ~(size_t)63;
  chunk *of = NULL;
  piece *p = CACHING && device == AMP_CPU && capacity <= CHUNK_MAX ? carve_chunk(head + capacity, &of) : NULL;
  if (p) {
    p->b.data = (char *)p + head;
  } else {
    if ((p = malloc(sizeof *p)) == NULL) return NULL;
    if (!raw_alloc(p, device, index, capacity)) { free(p); return NULL; }
  }
  p->chunk = of;
  p->owner = NULL;
  if (device != AMP_CPU) {
    pthread_mutex_lock(&lock);
    if ((p->owner = own[index])) p->owner->out++;
    pthread_mutex_unlock(&lock);
  }
  p->b.device = (uint8_t)device;
  p->b.index = (uint8_t)index;
  p->b.foreign = 0;
  p->b.pinned = 0;
  p->cls = cls;
  p->stream = stream;
  p->capacity = capacity;
  return p;
}

amp_block *amp__block_new(int device, int index, size_t bytes)
{
  int cls;
  if (amp_unlikely(index < 0 || index >= INDICES || (device != AMP_CPU && amp__devices[device].alloc == NULL))) {
    const char *why = amp__devices[device].reason;
    amp__fail(AMP_E_DEVICE, "no memory can be had on device %s:%d%s%s", amp_device_name(device), index + 1, why && *why ? ": " : "", why ? why : "");
    return NULL;
  }
  if (fails()) { (void)amp__shadows_shed(device); amp__nomem(bytes); return NULL; }
  if (amp_unlikely(bytes > BLOCK_MAX)) { no_memory(device, index, bytes); return NULL; }
  size_t capacity = capacity_of(device, bytes, &cls);
  piece *p = NULL;
  int stream = device != AMP_CPU && amp_unlikely(amp__streamed) && amp__devices[device].streams ? amp__devices[device].streams->use(index, -1) : 0;
  if (CACHING && device == AMP_CPU && cls < SMALL_CLASSES) {
    tcache *c = cache();
    if (amp_likely(c && (p = c->small[cls]) != NULL)) {
      c->small[cls] = p->next;
      c->nsmall[cls]--;
      count(c, (int64_t)capacity, -(int64_t)capacity, 1);
      goto found;
    }
  }
  if (CACHING || device != AMP_CPU) {
    p = pool_take(device, index, cls, capacity, stream);
    if (p == NULL && device != AMP_CPU && amp_unlikely(amp__streamed)) {
      amp__late_settle(device, index);
      p = pool_take(device, index, cls, capacity, stream);
    }
    if (p) {
      int64_t n = (int64_t)p->capacity;
      count_now(device, index, n, -n, 1);
      goto found;
    }
  }
  if ((p = fresh(device, index, capacity, cls, stream)) == NULL) {
    (void)amp__shadows_shed(device);
    amp_empty_cache(device);
    if ((p = fresh(device, index, capacity, cls, stream)) == NULL) { no_memory(device, index, bytes); return NULL; }
  }
  count_now(device, index, (int64_t)capacity, 0, 1);
found:
  if (device != AMP_CPU) atomic_store_explicit(&p->b.streams, (uint32_t)1 << stream, memory_order_relaxed);
  atomic_store_explicit(&p->b.refs, 1, memory_order_relaxed);
  p->b.bytes = bytes;
  return &p->b;
}

amp_block *amp__block_foreign(int device, int index, void *data, size_t bytes)
{
  amp_block *b = amp__obj_alloc(sizeof *b);
  if (b == NULL) { amp__nomem(sizeof *b); return NULL; }
  atomic_init(&b->refs, 1);
  b->device = (uint8_t)device;
  b->index = (uint8_t)index;
  b->foreign = 1;
  b->pinned = 0;
  atomic_init(&b->streams, 0);
  atomic_init(&b->cards, 0);
  b->data = data;
  b->bytes = bytes;
  b->id = 0;
  return b;
}

amp_block *amp__block_pinned(size_t bytes)
{
  const amp_device_ops *gpu = &amp__devices[AMP_CUDA];
  void *p = fails() ? NULL : gpu->host_alloc(bytes);
  if (p == NULL) {
    amp_empty_cache(AMP_CUDA);
    if ((p = gpu->host_alloc(bytes)) == NULL) {
      add(&stats[AMP_CPU][0].failures, 1);
      amp__fail(AMP_E_MEMORY, "no pinned memory for %.1f MiB: the system has not so much to pin", (double)bytes / 1048576);
      return NULL;
    }
  }
  amp_block *b = amp__block_foreign(AMP_CPU, 0, p, bytes);
  if (b == NULL) { gpu->host_free(p, bytes, 0, 0); return NULL; }
  b->pinned = 1;
  count_now(AMP_CPU, 0, (int64_t)bytes, 0, 1);
  return b;
}

void amp__block_free(amp_block *b)
{
  if (b == NULL || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1) return;
  if (b->foreign) {
    if (b->id) amp__dead_push(b->id);
    if (b->pinned) {
      amp__devices[AMP_CUDA].host_free(b->data, b->bytes, b->cards, b->streams);
      count_now(AMP_CPU, 0, -(int64_t)b->bytes, 0, 0);
    }
    amp__obj_free(b, sizeof *b);
    return;
  }
  piece *p = (piece *)b;
  int64_t n = (int64_t)p->capacity;
  if (!CACHING && p->owner == NULL) {
    raw_free(p);
    count_now(b->device, b->index, -n, 0, 0);
    free(p);
    return;
  }
  if (b->device == AMP_CPU && p->cls < SMALL_CLASSES) {
    tcache *c = cache();
    if (amp_likely(c && c->nsmall[p->cls] < 8 + SMALL_MAX / p->capacity)) {
      p->next = c->small[p->cls];
      c->small[p->cls] = p;
      c->nsmall[p->cls]++;
      count(c, -n, n, 0);
      return;
    }
  }
  count_now(b->device, b->index, -n, n, 0); /* before others can take it */
  pool_put(p);
}
