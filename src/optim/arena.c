/*
** optim/arena.c: parameters of an optimizer, moved next to one another.
**
** One block per dtype and device holds, for the parameters that join at a step,
**
**   master 1 .. master n | shadow 1 .. n | state 0: 1 .. n | state 1: 1 .. n | ...
**
** each slice on a 64-byte line. Large parameters get a block each, or for a few of
** them: what they leave is free before the next block is asked for. Storages move,
** tensors stay: handles, views and saved aliases read their storage's data anew and
** follow. A storage joins once.
** Parameters that are views, have gaps, share a storage with another parameter,
** or whose address is known outside stay where they are; the step reaches
** them through its chunk list as well. The block lives as long as any storage
** in it. What a step does to the slices is optim/optim.c's and the device's.
*/
#include <stdlib.h>
#include "optim/optim.h"

static const size_t MOST = (size_t)64 << 20; /* bytes of a block for several parameters */

static size_t line(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

static bool fits(const amp__param *param)
{
  const amp_tensor *tensor = param->tensor;
  const amp_storage *s = tensor->storage;
  return !param->shared && (tensor->flags & AMP_T_DENSE) && tensor->offset == 0 && tensor->numel > 0
         && !(s->flags & (AMP_S_EXPOSED | AMP_S_ARENA | AMP_S_FOREIGN))
         && s->bytes == (size_t)tensor->numel * amp__dtype_size[tensor->dtype];
}

static bool same_class(const amp_tensor *a, const amp_tensor *b)
{
  return a->dtype == b->dtype && a->device == b->device && a->device_index == b->device_index;
}

/* The shadow that moves along, NULL: none. */
static amp_tensor *shadow_of(const amp_tensor *tensor)
{
  amp_tensor *shadow = tensor->ag ? tensor->ag->shadow : NULL;
  if (!shadow || shadow->offset != 0 || (shadow->storage->flags & (AMP_S_EXPOSED | AMP_S_ARENA | AMP_S_FOREIGN)))
    return NULL;
  return shadow;
}

/* State which of param as a zeroed slice. */
static int state_in(amp__param *param, int which, amp_block *block, size_t offset)
{
  amp_meta meta;
  amp__optim_meta(param->tensor, amp__optim_dtype(param->tensor), &meta);
  AMP_ASSERT(offset % 64 == 0 && offset < block->bytes);
  amp_storage *storage = amp__storage_in(block, offset, (size_t)param->tensor->numel * amp__dtype_size[meta.dtype]);
  if (!storage) return AMP_E_MEMORY;
  amp_tensor *tensor = amp__tensor_of(storage, meta.dtype, meta.ndim, meta.size, meta.strides ? meta.stride : NULL, 0);
  amp__storage_free(storage);
  if (!tensor) return AMP_E_MEMORY;
  int status = amp__optim_zero(tensor);
  if (status) amp__free(tensor);
  else param->state[which] = tensor;
  return status;
}

/* Bytes that param needs in a block */
static size_t room_of(const amp__param *param, unsigned need)
{
  const amp_tensor *tensor = param->tensor, *s = shadow_of(tensor);
  size_t total = line(tensor->storage->bytes) + (s ? line(s->storage->bytes) : 0);
  for (int which = 0; which < AMP_OPTIM_STATES; which++)
    if ((need >> which & 1) && !param->state[which])
      total += line((size_t)tensor->numel * amp__dtype_size[amp__optim_dtype(tensor)]);
  return total;
}

static int join_block(amp__param **params, int count, unsigned need, size_t total)
{
  amp_block *block = amp__block_new(params[0]->tensor->device, params[0]->tensor->device_index, total);
  if (!block) return 0;
  size_t offset = 0;
  int status = 0;
  for (int i = 0; i < count && !status; offset += line(params[i++]->tensor->storage->bytes))
    status = amp__storage_move(params[i]->tensor->storage, block, offset);
  for (int i = 0; i < count && !status; i++) {
    amp_tensor *shadow = shadow_of(params[i]->tensor);
    if (!shadow) continue;
    status = amp__storage_move(shadow->storage, block, offset);
    offset += line(shadow->storage->bytes);
  }
  for (int which = 0; which < AMP_OPTIM_STATES; which++)
    for (int i = 0; i < count && !status; i++) {
      if (!(need >> which & 1) || params[i]->state[which]) continue;
      status = state_in(params[i], which, block, offset);
      offset += line((size_t)params[i]->tensor->numel * amp__dtype_size[amp__optim_dtype(params[i]->tensor)]);
    }
  AMP_ASSERT(status || offset == total);
  amp__block_free(block);
  return status;
}

static int join_class(amp__param **params, int count, unsigned need)
{
  int status = 0;
  for (int i = 0, from = 0; i < count && !status; from = i) {
    size_t total = 0;
    do total += room_of(params[i++], need);
    while (i < count && total + room_of(params[i], need) <= MOST);
    status = join_block(params + from, i - from, need, total);
  }
  return status;
}

int amp__arena_join(amp__param *const *p, int count, unsigned need)
{
  amp__param **cls = malloc(sizeof *cls * (size_t)(count ? count : 1));
  if (!cls) return amp__nomem(sizeof *cls * (size_t)count);
  int status = 0;
  for (int i = 0; i < count && !status; i++) {
    if (p[i]->placed) continue;
    int m = 0;
    for (int j = i; j < count; j++)
      if (!p[j]->placed && same_class(p[i]->tensor, p[j]->tensor)) {
        p[j]->placed = 1;
        if (fits(p[j])) cls[m++] = p[j];
      }
    if (m) status = join_class(cls, m, need);
  }
  free(cls);
  return status;
}
