/*
** amp_storage.c: storages, the counted homes of elements. Up to 64 bytes on the
** CPU lie in the storage itself; more lie in a block of their own, or in a slice
** of a block shared by many (an arena). Moving a storage keeps its identity, so
** every tensor on it follows. Where blocks come from is amp_alloc.c's.
*/
#ifdef AMP_DEBUG
#include <stdio.h>
#include <stdlib.h>
#endif
#include "amp_core.h"

#ifdef AMP_DEBUG
void amp__assert_failed(const char *what, const char *file, int line)
{
  fprintf(stderr, "amp: %s:%d: not so: %s\n", file, line, what);
  abort();
}
#endif

static amp_storage *make(int device, int index, size_t bytes)
{
  amp_storage *s = amp__obj_alloc(sizeof *s);
  if (amp_unlikely(s == NULL)) { amp__nomem(sizeof *s); return NULL; }
  atomic_store_explicit(&s->refs, 1, memory_order_relaxed);
  s->device = (uint8_t)device;
  s->index = (uint8_t)index;
  s->flags = s->unused = 0;
  s->version = s->mark = 0;
  s->born = atomic_load_explicit(&amp__epoch, memory_order_relaxed);
  s->bytes = bytes;
  s->data = s->small;
  s->block = NULL;
  return s;
}

amp_storage *amp__storage_new(int device, int index, size_t bytes)
{
  amp_storage *s = make(device, index, bytes);
  if (s == NULL || (bytes <= AMP_INLINE_BYTES && device == AMP_CPU)) return s;
  if ((s->block = amp__block_new(device, index, bytes)) == NULL) {
    amp__obj_free(s, sizeof *s);
    return NULL;
  }
  s->data = s->block->data;
  return s;
}

amp_storage *amp__storage_in(amp_block *b, size_t offset, size_t bytes)
{
  amp_storage *s = make(b->device, b->index, bytes);
  if (s == NULL) return NULL;
  atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
  s->block = b;
  s->data = (char *)b->data + offset;
  s->flags = b->foreign ? AMP_S_FOREIGN | AMP_S_EXPOSED : AMP_S_ARENA;
  return s;
}

void amp__storage_retain(amp_storage *s)
{
  atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

void amp__storage_free(amp_storage *s)
{
  if (s == NULL) return;
  /* the only owner needs no atomic subtraction */
  if (atomic_load_explicit(&s->refs, memory_order_acquire) != 1
      && atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
  if (s->block) amp__block_free(s->block);
  amp__obj_free(s, sizeof *s);
}

/* Copy between two places of one device other than the CPU, as byte tensors. */
static int device_copy(amp_storage *s, amp_block *to, size_t offset)
{
  int64_t n = (int64_t)s->bytes;
  int rc = -1;
  amp_storage *there = amp__storage_in(to, offset, s->bytes);
  amp_tensor *src = NULL, *dst = NULL;
  if (there == NULL) return AMP_E_MEMORY;
  src = amp__tensor_of(s, AMP_UINT8, 1, &n, NULL, 0);
  dst = amp__tensor_of(there, AMP_UINT8, 1, &n, NULL, 0);
  rc = src && dst ? amp__devices[s->device].copy(dst, src) : AMP_E_MEMORY;
  if (amp_unlikely(amp__streamed) && rc >= 0) {
    amp__touch(src);
    amp__block_moved(to);
  }
  amp__free(src);
  amp__free(dst);
  amp__storage_free(there);
  return rc;
}

int amp__storage_move(amp_storage *s, amp_block *b, size_t offset)
{
  amp_block *own = NULL, *old = s->block;
  void *data;
  if (b) {
    if (b->device != s->device || b->index != s->index || offset + s->bytes > b->bytes)
      return amp__fail(AMP_E_INTERNAL, "a storage of %zu bytes does not fit into a block of %zu at %zu", s->bytes, b->bytes, offset);
    data = (char *)b->data + offset;
  } else if (s->device == AMP_CPU && s->bytes <= AMP_INLINE_BYTES) {
    data = s->small;
  } else {
    if ((own = amp__block_new(s->device, s->index, s->bytes)) == NULL) return AMP_E_MEMORY;
    data = own->data;
  }
  if (data != s->data && s->bytes) {
    if (s->device == AMP_CPU) memcpy(data, s->data, s->bytes);
    else {
      int rc = device_copy(s, b ? b : own, b ? offset : 0);
      if (rc < 0) { amp__block_free(own); return rc; }
    }
  }
  if (b) atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
  s->data = data;
  s->block = b ? b : own;
  s->flags = (uint8_t)((s->flags & ~(AMP_S_ARENA | AMP_S_FOREIGN)) | (b ? AMP_S_ARENA : 0));
  amp__block_free(old);
  return 0;
}
