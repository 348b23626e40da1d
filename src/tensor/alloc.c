/*
** tensor/alloc.c: where memory comes from. Nothing given back goes to the system
** until it runs short: fresh pages cost tens of times what reused ones do.
**
**   objects (tensors, storages, nodes)   64-byte classes, lists of the thread
**   blocks up to 32 KiB                  8 classes an octave, lists of the thread
**   larger blocks                        the same classes, lists of the device (a GPU's above 4 MiB fit closer)
**
** Freeing takes no other lock than that of the shared lists and calls no device, so it is legal in finalizers, at
** exit and during capture. Under AddressSanitizer nothing is cached. A device's block belongs to the stream it was
** asked in; if others worked on it, too, its free is deferred (tensor/deferred_free.c). Objects and what threads keep
** are in tensor/objects.c, mappings in tensor/system.c, storages in tensor/storage.c.
*/
#include <stdio.h>
#include <stdlib.h>
#include "tensor/alloc_inside.h"
#include "tensor/deferred_free.h"
#include "base/ids.h"

static piece *pool[AMP_DEVICE_COUNT][INDICES][CLASSES];
static piece *stream_lists[INDICES][AMP_STREAMS][CLASSES]; /* of a GPU's streams from 1 on */
static piece *deferred[INDICES];                           /* tensor/deferred_free.h */
static amp_pool *open_pool[INDICES];                       /* for a captured step */

/* -- Free lists ------------------------------------------------------------------ */

/* The free blocks of a device's stream, by class */
static inline piece **lists_of(int device, int index, int stream)
{
  return stream ? stream_lists[index][stream] : pool[device][index];
}

/* Into the shared lists. Under the lock. */
static void put_back(piece *part)
{
  amp__assert_locked(AMP_LOCK_BLOCKS);
  AMP_ASSERT(part->owner == NULL && part->block.refs == 0);
  bool shared = part->block.device != AMP_CPU
                && (atomic_load_explicit(&part->block.streams, memory_order_relaxed) & ~((uint32_t)1 << part->stream));
  piece **head = shared ? &deferred[part->block.index]
                        : &lists_of(part->block.device, part->block.index, part->stream)[part->cls];
  part->next = *head;
  *head = part;
}

static void keep(const amp_pool *o, int64_t n) { add(&amp__memory_counts[o->device][o->index].kept, n); }

static void pool_put(piece *piece)
{
  amp__lock(AMP_LOCK_BLOCKS);
  amp_pool *other = piece->owner;
  AMP_ASSERT(other == NULL
             || (other->device == piece->block.device && other->index == piece->block.index && other->out > 0));
  if (other && other->dropped) piece->owner = NULL;
  if (piece->owner) {
    piece->next = other->list[piece->cls];
    other->list[piece->cls] = piece;
    keep(other, (int64_t)piece->capacity);
  } else put_back(piece);
  if (other && --other->out == 0 && other->dropped) free(other);
  amp__unlock(AMP_LOCK_BLOCKS);
}

amp_pool *amp__private_open(int device, int index)
{
  amp_pool *pool = calloc(1, sizeof *pool);
  if (pool == NULL) {
    amp__nomem(sizeof *pool);
    return NULL;
  }
  pool->device = (uint8_t)device;
  pool->index = (uint8_t)index;
  amp__lock(AMP_LOCK_BLOCKS);
  if (open_pool[index] == NULL) open_pool[index] = pool;
  else {
    free(pool);
    pool = NULL;
  }
  amp__unlock(AMP_LOCK_BLOCKS);
  if (pool == NULL)
    amp__fail(AMP_E_STATE, "a step is being captured on %s:%d already", amp_device_name(device), index + 1);
  return pool;
}

void amp__private_shut(amp_pool *pool)
{
  amp__lock(AMP_LOCK_BLOCKS);
  if (open_pool[pool->index] == pool) open_pool[pool->index] = NULL;
  amp__unlock(AMP_LOCK_BLOCKS);
}

void amp__private_drop(amp_pool *pool)
{
  if (pool == NULL) return;
  amp__lock(AMP_LOCK_BLOCKS);
  if (open_pool[pool->index] == pool) open_pool[pool->index] = NULL;
  for (int k = 0; k < CLASSES; k++)
    while (pool->list[k]) {
      piece *x = pool->list[k];
      pool->list[k] = x->next;
      x->owner = NULL;
      keep(pool, -(int64_t)x->capacity);
      put_back(x);
    }
  pool->dropped = true;
  bool idle = pool->out == 0;
  amp__unlock(AMP_LOCK_BLOCKS);
  if (idle) free(pool);
}

bool amp__private_has(const amp_pool *p, const amp_block *b)
{
  return b && !b->foreign && ((const piece *)b)->owner == p;
}
bool amp__private_any(const amp_block *b) { return b && !b->foreign && ((const piece *)b)->owner != NULL; }

void amp__give_back_small(tcache *cache)
{
  amp__assert_locked(AMP_LOCK_BLOCKS);
  for (int i = 0; i < SMALL_CLASSES; i++) {
    while (cache->small[i]) {
      piece *piece = cache->small[i];
      cache->small[i] = piece->next;
      piece->next = pool[AMP_CPU][piece->block.index][i];
      pool[AMP_CPU][piece->block.index][i] = piece;
    }
    cache->nsmall[i] = 0;
  }
}

/* -- Blocks that several streams worked on --------------------------------------------- */

void *amp__deferred_free_take(int index, uint32_t *streams)
{
  if (__atomic_load_n(&deferred[index], __ATOMIC_RELAXED) == NULL) return NULL;
  amp__lock(AMP_LOCK_BLOCKS);
  piece *list = deferred[index];
  deferred[index] = NULL;
  amp__unlock(AMP_LOCK_BLOCKS);
  for (piece *part = list; part; part = part->next)
    *streams |= atomic_load_explicit(&part->block.streams, memory_order_relaxed);
  return list;
}

void amp__deferred_free_return(int index, void *list)
{
  piece *end = list;
  while (end->next) end = end->next;
  amp__lock(AMP_LOCK_BLOCKS);
  end->next = deferred[index];
  deferred[index] = list;
  amp__unlock(AMP_LOCK_BLOCKS);
}

void amp__deferred_free_over(void *list)
{
  amp__lock(AMP_LOCK_BLOCKS);
  for (piece *piece = list, *next; piece; piece = next) {
    next = piece->next;
    atomic_store_explicit(&piece->block.streams, (uint32_t)1 << piece->stream, memory_order_relaxed);
    put_back(piece);
  }
  amp__unlock(AMP_LOCK_BLOCKS);
}

/* -- Giving memory back -------------------------------------------------------------- */

/* Pieces of mappings that are not wholly idle stay cached. Under the lock. */
static void mark_idle(void)
{
  amp__assert_locked(AMP_LOCK_BLOCKS);
  for (chunk *chunk = amp__chunks; chunk; chunk = chunk->next) chunk->idle = 0;
  for (int i = 0; i < INDICES; i++)
    for (int k = 0; k < CLASSES; k++)
      for (piece *piece = pool[AMP_CPU][i][k]; piece; piece = piece->next)
        if (piece->chunk) piece->chunk->idle++;
}

/* Idle pieces of a device onto the list `gone`. Under the lock. */
static void take_idle(int dim, piece **gone)
{
  for (int i = 0; i < INDICES; i++)
    for (int k = 0; k < CLASSES; k++)
      for (piece **at = &pool[dim][i][k]; *at;) {
        piece *part = *at;
        if (part->chunk && part->chunk->idle < part->chunk->pieces) {
          at = &part->next;
          continue;
        }
        *at = part->next;
        part->next = *gone;
        *gone = part;
      }
  if (dim == AMP_CPU || !amp__streamed) return;
  for (int i = 0; i < INDICES; i++)
    for (int n = 1; n < AMP_STREAMS; n++)
      for (int k = 0; k < CLASSES; k++)
        while (stream_lists[i][n][k]) {
          piece *part = stream_lists[i][n][k];
          stream_lists[i][n][k] = part->next;
          part->next = *gone;
          *gone = part;
        }
}

/* Mappings of which nothing is in use. Under the lock, after take_idle of the CPU. */
static chunk *take_idle_chunks(void)
{
  chunk *unmapped = NULL;
  for (chunk **at = &amp__chunks; *at;) {
    chunk *slab = *at;
    if (slab->idle < slab->pieces) {
      at = &slab->next;
      continue;
    }
    *at = slab->next;
    slab->next = unmapped;
    unmapped = slab;
  }
  return unmapped;
}

void amp_empty_cache(int device)
{
  piece *gone = NULL;
  chunk *unmapped = NULL;
  if (amp__my_cache) amp__give_back(amp__my_cache);
  for (int dim = 0; dim < AMP_DEVICE_COUNT; dim++) {
    if (device >= 0 && dim != device) continue;
    amp__deferred_free_settle_all(dim);
    if (amp__devices[dim].host_trim) amp__devices[dim].host_trim();
  }
  amp__lock(AMP_LOCK_BLOCKS);
  mark_idle();
  for (int dim = 0; dim < AMP_DEVICE_COUNT; dim++) {
    if (device >= 0 && dim != device) continue;
    take_idle(dim, &gone);
  }
  if (device < 0 || device == AMP_CPU) unmapped = take_idle_chunks();
  amp__unlock(AMP_LOCK_BLOCKS);
  while (gone) {
    piece *part = gone;
    gone = part->next;
    amp__count_now(part->block.device, part->block.index, 0, -(int64_t)part->capacity, 0);
    if (part->chunk) continue; /* lies in the mapping itself */
    amp__raw_free(part);
    free(part);
  }
  amp__unmap_chunks(unmapped);
}

/* -- Blocks ---------------------------------------------------------------------------------- */

/* Of a captured step's free blocks the one that was freed first: its next use waits for the least (cuda_branches.c),
** so small ones even stay unused for a while. */
static piece *take_oldest(piece **at, int cls)
{
  int n = 0;
  for (piece **p = at; *p; p = &(*p)->next) {
    at = p;
    n++;
  }
  piece *part = *at;
  if (part == NULL || (n < IDLE_CAPTURED && (size_t)n * class_bytes(cls) < IDLE_CAPTURED_MAX)) return NULL;
  *at = NULL;
  return part;
}

/* A cached block of class cls or, if large, of one up to half again as big (on a GPU an eighth), with room for
** capacity bytes. */
static piece *pool_take(int device, int index, int cls, size_t capacity, int stream)
{
  piece *part = NULL, **best = NULL; /* the smallest */
  int last = cls < SMALL_CLASSES ? cls : device == AMP_CPU ? cls + 4 : cls + 1;
  size_t most = capacity + capacity / (device == AMP_CPU ? 1 : 8);
  amp__lock(AMP_LOCK_BLOCKS);
  amp_pool *other = device != AMP_CPU ? open_pool[index] : NULL;
  for (int k = cls; k <= last && k < CLASSES; k++) {
    piece **head = other ? &other->list[k] : &lists_of(device, index, stream)[k];
    if (other && class_bytes(k) <= OLDEST_MAX) {
      if ((part = take_oldest(head, k))) break;
      continue;
    }
    for (; *head && !(best && (*best)->capacity == capacity); head = &(*head)->next)
      if ((*head)->capacity >= capacity && (*head)->capacity <= most
          && (!best || (*head)->capacity < (*best)->capacity))
        best = head;
    if (best) {
      part = *best;
      *best = part->next;
      break;
    }
  }
  if (part && other) {
    AMP_ASSERT(part->owner == other);
    other->out++;
    keep(other, -(int64_t)part->capacity);
  }
  amp__unlock(AMP_LOCK_BLOCKS);
  return part;
}

static int no_memory(int device, int index, size_t bytes)
{
  add(&amp__memory_counts[device][index].failures, 1);
  if (device == AMP_CPU) return amp__nomem(bytes);
  const amp_memory_stats *m = amp_memory(device, index);
  const double mib = 1048576;
  size_t unused = 0, total = 0;
  double live = (double)m->live / mib, cached = (double)m->cached / mib, kept = (double)m->kept / mib;
  if (amp__devices[device].memory == NULL || amp__devices[device].memory(index, &unused, &total) < 0)
    return amp__fail(AMP_E_MEMORY, "no memory for %.1f MiB on %s:%d: %.1f MiB live, %.1f MiB cached",
                     (double)bytes / mib, amp_device_name(device), index + 1, live, cached);
  double others = (double)(total - unused) / mib - live - cached;
  return amp__fail(
      AMP_E_MEMORY,
      "no memory for %.1f MiB on %s:%d, which has %.1f MiB: %.1f MiB live in tensors, %.1f MiB cached (%.1f of "
      "them for captured steps), "
      "%.1f MiB taken by the driver, libraries and other programs, %.1f MiB free",
      (double)bytes / mib, amp_device_name(device), index + 1, (double)total / mib, live, cached, kept,
      others > 0 ? others : 0, (double)unused / mib);
}

static piece *fresh(int device, int index, size_t capacity, int cls, int stream)
{
  size_t head = (sizeof(piece) + 63) & ~(size_t)63;
  chunk *of = NULL;
  bool first = false;
  piece *part
      = CACHING && device == AMP_CPU && capacity <= CHUNK_MAX ? amp__carve_chunk(head + capacity, &of, &first) : NULL;
  if (part) {
    part->block.data = (char *)part + head;
  } else {
    if ((part = malloc(sizeof *part)) == NULL) return NULL;
    if (!amp__raw_alloc(part, device, index, capacity)) {
      free(part);
      return NULL;
    }
  }
  if (device == AMP_CPU && (of ? first : capacity > CHUNK_MAX)) amp__memory_grew();
  part->chunk = of;
  part->owner = NULL;
  if (device != AMP_CPU) {
    amp__lock(AMP_LOCK_BLOCKS);
    if ((part->owner = open_pool[index])) part->owner->out++;
    amp__unlock(AMP_LOCK_BLOCKS);
  }
  part->block.device = (uint8_t)device;
  part->block.index = (uint8_t)index;
  part->block.foreign = 0;
  part->block.pinned = 0;
  part->cls = cls;
  part->stream = stream;
  part->capacity = capacity;
  return part;
}

/* Before anything is looked for: a device without memory, a failure on demand, more than can be addressed. */
static bool refused(int device, int index, size_t bytes)
{
  if (amp_unlikely(index < 0 || index >= INDICES || (device != AMP_CPU && amp__devices[device].alloc == NULL))) {
    const char *why = amp__devices[device].reason;
    amp__fail(AMP_E_DEVICE, "no memory can be had on device %s:%d%s%s", amp_device_name(device), index + 1,
              why && *why ? ": " : "", why ? why : "");
    return true;
  }
  if (fails()) {
    (void)amp__hooks.memory_short(device);
    (void)amp__hooks.graphs_short(device);
    amp__nomem(bytes);
    return true;
  }
  if (amp_unlikely(bytes > BLOCK_MAX)) {
    no_memory(device, index, bytes);
    return true;
  }
  return false;
}

/* From the shared lists; what is deferred is looked through where they have none. */
static piece *take_shared(int device, int index, int cls, size_t capacity, int stream)
{
  piece *part = pool_take(device, index, cls, capacity, stream);
  if (part == NULL && device != AMP_CPU && amp_unlikely(amp__streamed)) {
    amp__deferred_free_settle(device, index);
    part = pool_take(device, index, cls, capacity, stream);
  }
  if (part) amp__count_now(device, index, (int64_t)part->capacity, -(int64_t)part->capacity, 1);
  return part;
}

amp_block *amp__block_new(int device, int index, size_t bytes)
{
  int cls;
  if (refused(device, index, bytes)) return NULL;
  size_t capacity = capacity_of(device, bytes, &cls);
  piece *piece = NULL;
  int stream = device != AMP_CPU && amp_unlikely(amp__streamed) && amp__devices[device].streams
                   ? amp__devices[device].streams->use(index, -1)
                   : 0;
  if (CACHING && device == AMP_CPU && cls < SMALL_CLASSES) {
    tcache *mine = cache();
    if (amp_likely(mine && (piece = mine->small[cls]) != NULL)) {
      mine->small[cls] = piece->next;
      mine->nsmall[cls]--;
      count(mine, (int64_t)capacity, -(int64_t)capacity, 1);
      goto found;
    }
  }
  if ((CACHING || device != AMP_CPU) && (piece = take_shared(device, index, cls, capacity, stream))) goto found;
  if ((piece = fresh(device, index, capacity, cls, stream)) == NULL) {
    (void)amp__hooks.memory_short(device);
    (void)amp__hooks.graphs_short(device);
    amp_empty_cache(device);
    if ((piece = fresh(device, index, capacity, cls, stream)) == NULL) {
      no_memory(device, index, bytes);
      return NULL;
    }
  }
  amp__count_now(device, index, (int64_t)capacity, 0, 1);
found:
  AMP_ASSERT(piece->cls == cls || cls >= SMALL_CLASSES);
  AMP_ASSERT(piece->block.device == device && piece->block.index == index && piece->capacity >= bytes
             && piece->stream == stream);
  if (device != AMP_CPU) atomic_store_explicit(&piece->block.streams, (uint32_t)1 << stream, memory_order_relaxed);
  atomic_store_explicit(&piece->block.refs, 1, memory_order_relaxed);
  piece->block.bytes = bytes;
  if (tested()) amp__filled(device, index, piece->block.data, bytes);
  return &piece->block;
}

amp_block *amp__block_foreign(int device, int index, void *data, size_t bytes)
{
  amp_block *block = amp__obj_alloc(sizeof *block);
  if (block == NULL) {
    amp__nomem(sizeof *block);
    return NULL;
  }
  atomic_init(&block->refs, 1);
  block->device = (uint8_t)device;
  block->index = (uint8_t)index;
  block->foreign = 1;
  block->pinned = 0;
  atomic_init(&block->streams, 0);
  atomic_init(&block->cards, 0);
  block->data = data;
  block->bytes = bytes;
  block->id = 0;
  return block;
}

amp_block *amp__block_pinned(size_t bytes)
{
  const amp_device_ops *gpu = &amp__devices[AMP_CUDA];
  void *p = fails() ? NULL : gpu->host_alloc(bytes);
  if (p == NULL) {
    amp_empty_cache(AMP_CUDA);
    if ((p = gpu->host_alloc(bytes)) == NULL) {
      add(&amp__memory_counts[AMP_CPU][0].failures, 1);
      amp__fail(AMP_E_MEMORY, "no pinned memory for %.1f MiB: the system has not so much to pin",
                (double)bytes / 1048576);
      return NULL;
    }
  }
  amp_block *block = amp__block_foreign(AMP_CPU, 0, p, bytes);
  if (block == NULL) {
    gpu->host_free(p, bytes, 0, 0);
    return NULL;
  }
  block->pinned = 1;
  amp__count_now(AMP_CPU, 0, (int64_t)bytes, 0, 1);
  return block;
}

void amp__block_free(amp_block *block)
{
  AMP_ASSERT(block == NULL || block->refs > 0);
  if (block == NULL || atomic_fetch_sub_explicit(&block->refs, 1, memory_order_acq_rel) != 1) return;
  if (block->foreign) {
    if (block->id) amp__dead_push(block->id);
    if (block->pinned) {
      amp__devices[AMP_CUDA].host_free(block->data, block->bytes, block->cards, block->streams);
      amp__count_now(AMP_CPU, 0, -(int64_t)block->bytes, 0, 0);
    }
    amp__obj_free(block, sizeof *block);
    return;
  }
  piece *part = (piece *)block;
  AMP_ASSERT(block->bytes <= part->capacity);
  int64_t n = (int64_t)part->capacity;
  if (!CACHING && part->owner == NULL) {
    amp__raw_free(part);
    amp__count_now(block->device, block->index, -n, 0, 0);
    free(part);
    return;
  }
  if (block->device == AMP_CPU && part->cls < SMALL_CLASSES) {
    tcache *mine = cache();
    if (amp_likely(mine && mine->nsmall[part->cls] < 8 + SMALL_MAX / part->capacity)) {
      part->next = mine->small[part->cls];
      mine->small[part->cls] = part;
      mine->nsmall[part->cls]++;
      count(mine, -n, n, 0);
      return;
    }
  }
  amp__count_now(block->device, block->index, -n, n, 0); /* before others can take it */
  pool_put(part);
}
