/*
** tensor/alloc_inside.h: the inside of the allocator, for
**   tensor/counters.c  what amp_memory tells, failures on demand
**   tensor/system.c    mappings, memory from and to the system or a device
**   tensor/objects.c   objects, and what a thread keeps
**   tensor/alloc.c     blocks
*/
#ifndef AMP_TENSOR_ALLOC_INSIDE_H
#define AMP_TENSOR_ALLOC_INSIDE_H
#include "tensor/size_classes.h"
#include "base/locks.h"

#if defined(__SANITIZE_ADDRESS__)
#define CACHING 0
#else
#define CACHING 1
#endif

enum {
  OBJ_STEP = 64,
  OBJ_CLASSES = 17, /* cache lines, up to 1 KiB */
  OBJ_KEEP = 16384,
  OBJ_MOVE = 1024,     /* of a class in a thread; moved at once */
  OBJ_SLAB = 64 << 10, /* bytes carved into objects at once */
  SMALL_CLASSES = 73,
  SMALL_MAX = 32768, /* blocks a thread keeps */
  HUGE_MIN = 1 << 20,
  CHUNK = 32 << 20,
  CHUNK_AFTER = 1 << 20,
  INDICES = 16,
  BATCH = 64 << 10,
  COLLECT_LEAST = 32 << 20,
  GROWTH_LEAST = 16 << 20,
  IDLE_CAPTURED_MAX = 2 << 20,
  IDLE_CAPTURED = 16 /* of captured steps */
};
#define BLOCK_MAX ((size_t)1 << 47)
#define PACE_DEFAULT ((int64_t)4 << 20)

typedef struct obj {
  struct obj *next;
} obj;
typedef struct piece { /* a block with what the pool knows of it */
  amp_block block;     /* first: they are one pointer */
  int32_t cls, stream; /* stream: of the device, whose list it is in when it is free */
  struct chunk *chunk; /* of which it is a part, or NULL */
  void *base;          /* what the system gave, if not */
  size_t capacity;
  amp_pool *owner; /* of a captured step, or NULL */
  struct piece *next;
} piece;

struct amp_pool {
  piece *list[1 + 42 * 8];
  int64_t out;
  uint8_t device, index;
  bool dropped;
}; /* out: pieces that are in use */

typedef struct tcache {
  obj *obj[OBJ_CLASSES];
  piece *small[SMALL_CLASSES];
  uint32_t nobj[OBJ_CLASSES];
  uint16_t nsmall[SMALL_CLASSES];
  int64_t live, cached, allocations, collected; /* not yet in stats[AMP_CPU][0] */
  bool collecting;                              /* a garbage collector is freeing */
} tcache;

typedef struct chunk {
  struct chunk *next;
  char *base, *at;
  int pieces, idle; /* carved; of those, found cached by amp_empty_cache */
} chunk;

/* tensor/counters.c */
extern _Thread_local tcache *amp__my_cache AMP_TLS_NEAR __attribute__((visibility("hidden")));
extern amp_memory_stats amp__memory_counts[AMP_DEVICE_COUNT][INDICES] __attribute__((visibility("hidden")));
extern _Atomic int amp__memory_tests __attribute__((visibility("hidden"))); /* failures on demand or a fill are on */
void amp__count_now(int device, int index, int64_t live, int64_t cached, int64_t allocations);
void amp__flush_counters(tcache *cache);
void amp__memory_grew(void);
bool amp__fails_slow(void);
void amp__filled(int device, int index, void *p, size_t bytes); /* with the pattern of the switch "fill" */
/* tensor/system.c */
extern chunk *amp__chunks __attribute__((visibility("hidden")));
/* `bytes` of a mapping, which, and whether they are the first of it; NULL: there is none */
void *amp__carve_chunk(size_t bytes, chunk **of, bool *first);
bool amp__raw_alloc(piece *piece, int device, int index, size_t bytes);
void amp__raw_free(piece *piece);
void amp__unmap_chunks(chunk *chunk); /* of a list */
/* tensor/objects.c */
tcache *amp__cache_slow(void);
void amp__give_back(tcache *cache); /* all that the thread keeps, to the shared lists */
/* tensor/alloc.c */
void amp__give_back_small(tcache *cache); /* its blocks. Under the lock */

static inline void add(int64_t *cell, int64_t n)
{
  if (n) __atomic_fetch_add(cell, n, __ATOMIC_RELAXED);
}

static inline void count(tcache *cache, int64_t live, int64_t cached, int64_t allocations)
{
  if (amp_unlikely(cache == NULL)) {
    amp__count_now(AMP_CPU, 0, live, cached, allocations);
    return;
  }
  cache->live += live;
  cache->cached += cached;
  cache->allocations += allocations;
  if (cache->collecting) cache->collected -= live;
  if (amp_unlikely(cache->live >= BATCH || cache->live <= -BATCH || cache->cached >= BATCH || cache->cached <= -BATCH))
    amp__flush_counters(cache);
}

static inline bool tested(void)
{
  return amp_unlikely(atomic_load_explicit(&amp__memory_tests, memory_order_relaxed) != 0);
}
static inline bool fails(void) { return tested() && amp__fails_slow(); }

static inline tcache *cache(void) { return amp_likely(amp__my_cache != NULL) ? amp__my_cache : amp__cache_slow(); }

#endif
