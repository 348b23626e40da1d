/*
** tensor/storage.c: storages, the counted homes of elements. Up to 64 bytes on the
** CPU lie in the storage itself; more lie in a block of their own, or in a slice
** of a block shared by many (an arena). Moving a storage keeps its identity, so
** every tensor on it follows. Where blocks come from is tensor/alloc.c's.
*/
#include "tensor/tensor.h"

static amp_storage *make(int device, int index, size_t bytes)
{
  amp_storage *storage = amp__obj_alloc(sizeof *storage);
  if (amp_unlikely(storage == NULL)) {
    amp__nomem(sizeof *storage);
    return NULL;
  }
  atomic_store_explicit(&storage->refs, 1, memory_order_relaxed);
  storage->device = (uint8_t)device;
  storage->index = (uint8_t)index;
  storage->flags = storage->unused = 0;
  storage->version = storage->mark = 0;
  storage->born = atomic_load_explicit(&amp__epoch, memory_order_relaxed);
  storage->bytes = bytes;
  storage->data = storage->small;
  storage->block = NULL;
  return storage;
}

amp_storage *amp__storage_new(int device, int index, size_t bytes)
{
  amp_storage *storage = make(device, index, bytes);
  if (storage == NULL || (bytes <= AMP_INLINE_BYTES && device == AMP_CPU)) return storage;
  if ((storage->block = amp__block_new(device, index, bytes)) == NULL) {
    amp__obj_free(storage, sizeof *storage);
    return NULL;
  }
  storage->data = storage->block->data;
  return storage;
}

amp_storage *amp__storage_in(amp_block *block, size_t offset, size_t bytes)
{
  AMP_ASSERT(block->refs > 0 && offset <= block->bytes && bytes <= block->bytes - offset);
  amp_storage *storage = make(block->device, block->index, bytes);
  if (storage == NULL) return NULL;
  atomic_fetch_add_explicit(&block->refs, 1, memory_order_relaxed);
  storage->block = block;
  storage->data = (char *)block->data + offset;
  storage->flags = block->foreign ? AMP_S_FOREIGN | AMP_S_EXPOSED : AMP_S_ARENA;
  return storage;
}

void amp__storage_retain(amp_storage *storage)
{
  AMP_ASSERT(storage->refs > 0);
  atomic_fetch_add_explicit(&storage->refs, 1, memory_order_relaxed);
}

void amp__storage_free(amp_storage *storage)
{
  if (storage == NULL) return;
  AMP_ASSERT(storage->refs > 0);
  /* the only owner needs no atomic subtraction */
  if (atomic_load_explicit(&storage->refs, memory_order_acquire) != 1
      && atomic_fetch_sub_explicit(&storage->refs, 1, memory_order_acq_rel) != 1)
    return;
  if (storage->block) amp__block_free(storage->block);
  amp__obj_free(storage, sizeof *storage);
}

/* Copy between two places of one device other than the CPU, as byte tensors. */
static int device_copy(amp_storage *storage, amp_block *to, size_t offset)
{
  int64_t n = (int64_t)storage->bytes;
  int status = -1;
  amp_storage *moved = amp__storage_in(to, offset, storage->bytes);
  amp_tensor *src = NULL, *dst = NULL;
  if (moved == NULL) return AMP_E_MEMORY;
  src = amp__tensor_of(storage, AMP_UINT8, 1, &n, NULL, 0);
  dst = amp__tensor_of(moved, AMP_UINT8, 1, &n, NULL, 0);
  status = src && dst ? amp__devices[storage->device].copy(dst, src) : AMP_E_MEMORY;
  if (amp_unlikely(amp__streamed) && status >= 0) {
    amp__touch(src);
    amp__block_moved(to);
  }
  amp__free(src);
  amp__free(dst);
  amp__storage_free(moved);
  return status;
}

int amp__storage_move(amp_storage *storage, amp_block *block, size_t offset)
{
  amp_block *own = NULL, *old = storage->block;
  void *data;
  if (block) {
    if (block->device != storage->device || block->index != storage->index || offset + storage->bytes > block->bytes)
      return amp__fail(AMP_E_INTERNAL, "a storage of %zu bytes does not fit into a block of %zu at %zu", storage->bytes,
                       block->bytes, offset);
    data = (char *)block->data + offset;
  } else if (storage->device == AMP_CPU && storage->bytes <= AMP_INLINE_BYTES) {
    data = storage->small;
  } else {
    if ((own = amp__block_new(storage->device, storage->index, storage->bytes)) == NULL) return AMP_E_MEMORY;
    data = own->data;
  }
  if (data != storage->data && storage->bytes) {
    if (storage->device == AMP_CPU) memcpy(data, storage->data, storage->bytes);
    else {
      int status = device_copy(storage, block ? block : own, block ? offset : 0);
      if (status < 0) {
        amp__block_free(own);
        return status;
      }
    }
  }
  if (block) atomic_fetch_add_explicit(&block->refs, 1, memory_order_relaxed);
  storage->data = data;
  storage->block = block ? block : own;
  storage->flags = (uint8_t)((storage->flags & ~(AMP_S_ARENA | AMP_S_FOREIGN)) | (block ? AMP_S_ARENA : 0));
  amp__block_free(old);
  return 0;
}
