/*
** tensor/system.c: memory from and to the system: mappings that blocks and slabs of objects are carved from,
** large blocks, and those of devices.
**
** Blocks up to 8 MiB are carved from mappings of 32 MiB, larger ones have their own; both are whole 2 MiB pages, huge
** where the system can. The first mapping is resident from the start: pages that come one by one while garbage builds
** up cost faults and make a program look as if it leaked. Large blocks begin at different offsets in a page: tensors
** walked side by side at the same offset fall on the same sets of the caches and wait for each other's stores.
*/
#include <stdlib.h>
#include <sys/mman.h>
#include "tensor/alloc_inside.h"

/* -- Mappings ----------------------------------------------------------------------- */

static void *map_huge(size_t bytes)
{
  char *raw = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return NULL;
  char *p = (char *)(((uintptr_t)raw + HUGE_PAGE - 1) & ~((uintptr_t)HUGE_PAGE - 1));
  if (p > raw) munmap(raw, (size_t)(p - raw));
  if (p + bytes < raw + bytes + HUGE_PAGE) munmap(p + bytes, (size_t)(raw + bytes + HUGE_PAGE - (p + bytes)));
#ifdef MADV_HUGEPAGE
  (void)madvise(p, bytes, MADV_HUGEPAGE); /* advice only */
#endif
  return p;
}

chunk *amp__chunks;  /* the one being carved first */
static size_t asked; /* by a program that needs little and gets no mapping */
static unsigned colour;

enum { COLOURS = 16, COLOUR = 256 };

/* `bytes` of a mapping, and which; NULL: there is none. Objects have no piece and stay for ever. */
void *amp__carve_chunk(size_t bytes, chunk **of, bool *first)
{
  char *p = NULL;
  amp__lock(AMP_LOCK_BLOCKS);
  if (asked <= CHUNK_AFTER) asked += bytes;
  if (asked > CHUNK_AFTER) {
    bytes = (bytes + 63) & ~(size_t)63;
    if (bytes >= 4096) bytes += COLOUR / 2; /* off the page raster */
    if (amp__chunks == NULL || (size_t)(amp__chunks->base + CHUNK - amp__chunks->at) < bytes) {
      chunk *slab = malloc(sizeof *slab);
      char *base = slab ? map_huge(CHUNK) : NULL;
      if (base) {
        if (amp__chunks == NULL)
          for (char *q = base; q < base + CHUNK; q += HUGE_PAGE) *(volatile char *)q = 0;
        *slab = (chunk){ .next = amp__chunks, .base = base, .at = base };
        amp__chunks = slab;
      } else free(slab);
    }
    if (amp__chunks && (size_t)(amp__chunks->base + CHUNK - amp__chunks->at) >= bytes) {
      *of = amp__chunks;
      p = amp__chunks->at;
      amp__chunks->at += bytes;
      *first = amp__chunks->pieces++ == 0;
    }
  }
  amp__unlock(AMP_LOCK_BLOCKS);
  return p;
}

void amp__unmap_chunks(chunk *slab)
{
  while (slab) {
    chunk *next = slab->next;
    munmap(slab->base, CHUNK);
    free(slab);
    slab = next;
  }
}

/* -- Blocks -------------------------------------------------------------------------- */

/* Memory for a piece from the device or the system. */
bool amp__raw_alloc(piece *piece, int device, int index, size_t bytes)
{
  piece->base = NULL;
  if (device != AMP_CPU) piece->base = amp__devices[device].alloc(index, bytes);
  else if (CACHING && bytes > CHUNK_MAX) {
    piece->base = map_huge(bytes + COLOURS * COLOUR);
    piece->block.data = piece->base
                            ? (char *)piece->base + __atomic_fetch_add(&colour, 1, __ATOMIC_RELAXED) % COLOURS * COLOUR
                            : NULL;
    return piece->base != NULL;
  } else if (posix_memalign(&piece->base, 64, bytes) != 0) piece->base = NULL;
  piece->block.data = piece->base;
  return piece->base != NULL;
}

void amp__raw_free(piece *piece)
{
  if (piece->block.device != AMP_CPU)
    amp__devices[piece->block.device].free(piece->block.index, piece->base, piece->capacity);
  else if (CACHING && piece->capacity > CHUNK_MAX) munmap(piece->base, piece->capacity + COLOURS * COLOUR);
  else free(piece->base);
}
