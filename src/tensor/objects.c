/*
** tensor/objects.c: objects (tensors, storages, nodes) in 64-byte classes, and what a thread keeps of them and
** of small blocks. A thread's lists take what that thread frees, whichever thread allocated it; what is too much
** for them, and everything when the thread ends, goes to shared lists under a mutex.
*/
#include <stdlib.h>
#include "tensor/alloc_inside.h"

static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static obj *shared_obj[OBJ_CLASSES];

/* -- Thread caches -------------------------------------------------------------- */

void amp__give_back(tcache *cache)
{
  amp__lock(AMP_LOCK_BLOCKS);
  for (int i = 0; i < OBJ_CLASSES; i++) {
    while (cache->obj[i]) {
      obj *o = cache->obj[i];
      cache->obj[i] = o->next;
      o->next = shared_obj[i];
      shared_obj[i] = o;
    }
    cache->nobj[i] = 0;
  }
  amp__give_back_small(cache);
  amp__unlock(AMP_LOCK_BLOCKS);
  amp__flush_counters(cache);
}

static void thread_ends(void *arg)
{
  amp__give_back(arg);
  amp__my_cache = NULL;
  free(arg);
}

static void make_key(void) { (void)pthread_key_create(&key, thread_ends); }

tcache *amp__cache_slow(void)
{
  pthread_once(&key_once, make_key);
  tcache *cache = calloc(1, sizeof *cache);
  if (cache && pthread_setspecific(key, cache) != 0) {
    free(cache);
    cache = NULL;
  }
  amp__my_cache = cache;
  return cache;
}

/* -- Objects ----------------------------------------------------------------------- */

/* A slab of new objects, listed in the order of their addresses: what is made in a row lies in a row, and a
** collector that frees in the order of making runs with the prefetcher. Slabs are never given back. */
static obj *carve(tcache *cache, int cls)
{
  size_t size = (size_t)cls * OBJ_STEP, bytes = OBJ_SLAB / size;
  chunk *of;
  bool first;
  char *p = amp__carve_chunk(OBJ_SLAB, &of, &first);
  if (p == NULL) p = aligned_alloc(64, OBJ_SLAB);
  if (p == NULL) {
    amp_empty_cache(AMP_CPU);
    if ((p = aligned_alloc(64, OBJ_SLAB)) == NULL) {
      add(&amp__memory_counts[AMP_CPU][0].failures, 1);
      return NULL;
    }
  }
  for (size_t i = bytes; i-- > 0;) {
    obj *o = (obj *)(p + i * size);
    o->next = cache->obj[cls];
    cache->obj[cls] = o;
  }
  cache->nobj[cls] += (uint32_t)bytes;
  count(cache, 0, (int64_t)(bytes * size), 0);
  return cache->obj[cls];
}

static obj *refill(tcache *cache, int cls)
{
  int count = 0;
  amp__lock(AMP_LOCK_BLOCKS);
  while (shared_obj[cls] && count < OBJ_MOVE) {
    obj *o = shared_obj[cls];
    shared_obj[cls] = o->next;
    o->next = cache->obj[cls];
    cache->obj[cls] = o;
    count++;
  }
  amp__unlock(AMP_LOCK_BLOCKS);
  cache->nobj[cls] += (uint32_t)count;
  return cache->obj[cls] ? cache->obj[cls] : carve(cache, cls);
}

static void spill(tcache *cache, int cls)
{
  obj *first = cache->obj[cls], *last = first;
  for (int i = 1; i < OBJ_MOVE; i++) last = last->next;
  cache->obj[cls] = last->next;
  cache->nobj[cls] -= OBJ_MOVE;
  amp__lock(AMP_LOCK_BLOCKS);
  last->next = shared_obj[cls];
  shared_obj[cls] = first;
  amp__unlock(AMP_LOCK_BLOCKS);
}

static inline void *take(size_t bytes)
{
  int cls = (int)((bytes + OBJ_STEP - 1) / OBJ_STEP);
  tcache *mine = cache();
  if (!CACHING || amp_unlikely(cls >= OBJ_CLASSES || mine == NULL)) {
    void *p = malloc(bytes);
    if (p) count(mine, (int64_t)bytes, 0, 1);
    return p;
  }
  int64_t size = (int64_t)cls * OBJ_STEP;
  obj *o = mine->obj[cls];
  if (amp_unlikely(o == NULL) && (o = refill(mine, cls)) == NULL) return NULL;
  obj *next = o->next;
  mine->obj[cls] = next;
  mine->nobj[cls]--;
  /* the next one was freed long ago: ask for it now (a third of the time of a small op was waiting for it) */
  __builtin_prefetch(next, 1);
  __builtin_prefetch((char *)next + 64, 1);
  if (cls > 2) __builtin_prefetch((char *)next + 128, 1);
  count(mine, size, -size, 1);
  return o;
}

static __attribute__((noinline)) void *take_tested(size_t bytes)
{
  void *p = amp__fails_slow() ? NULL : take(bytes);
  amp__filled(AMP_CPU, 0, p, bytes);
  return p;
}

void *amp__obj_alloc(size_t bytes) { return tested() ? take_tested(bytes) : take(bytes); }

void amp__obj_free(void *p, size_t bytes)
{
  if (p == NULL) return;
  int cls = (int)((bytes + OBJ_STEP - 1) / OBJ_STEP);
  tcache *mine = cache();
  if (!CACHING || amp_unlikely(cls >= OBJ_CLASSES || mine == NULL)) {
    free(p);
    count(mine, -(int64_t)bytes, 0, 0);
    return;
  }
  int64_t size = (int64_t)cls * OBJ_STEP;
  obj *o = p;
  o->next = mine->obj[cls];
  mine->obj[cls] = o;
  if (amp_unlikely(++mine->nobj[cls] >= OBJ_KEEP)) spill(mine, cls);
  count(mine, -size, size, 0);
}
