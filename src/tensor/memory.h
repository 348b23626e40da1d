/*
** tensor/memory.h: objects, blocks and storages. What they hold, tensor/tensor.h says.
*/
#ifndef AMP_TENSOR_MEMORY_H
#define AMP_TENSOR_MEMORY_H
#include "base/device.h"
#include "base/hooks.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Fixed-size objects (tensors, nodes): thread-cached free lists, zeroed not. */
void *amp__obj_alloc(size_t bytes); /* NULL: no memory (no message) */
void amp__obj_free(void *p, size_t bytes);

/* For tests: memory of any device is handed out with every byte set to this one; 0: as it is, <0: only asks. Gives what
 * it was. */
int amp__memory_fill(int byte);

/* A piece of device memory, counted; arenas are one block with many storages. */
typedef struct amp_block {
  AMP_ATOMIC(int32_t) refs;
  uint8_t device, index, foreign, pinned; /* foreign: not ours to free; pinned: memory of the host that a device gave */
  AMP_ATOMIC(uint32_t)
  streams;                    /* bit i: stream i of the device had work on it (pinned: copies that may be under way); */
  AMP_ATOMIC(uint32_t) cards; /* pinned: of which devices of the type */
  void *data;
  size_t bytes; /* as asked; the allocator rounds up */
  int64_t id;   /* foreign: reported by amp_dead_next when the block goes; 0: not */
} amp_block;
amp_block *amp__block_new(int device, int index, size_t bytes); /* 64-byte aligned; sets the error */
void amp__memory_collecting(bool on);                           /* what this thread frees now, a collector frees */
void amp__memory_backward_ended(void);                          /* a backward ended (what pacing reads) */
/* A pool of its own for what a captured step allocates; blocks that are freed come back to it as long as it lives. */
typedef struct amp_pool amp_pool;
amp_pool *amp__private_open(
    int device,
    int index); /* blocks of this device come from it until amp__private_shut. NULL: no memory, or one is open */
void amp__private_shut(amp_pool *pool);
void amp__private_drop(amp_pool *pool); /* its blocks go to the shared lists */
bool amp__private_has(const amp_pool *p, const amp_block *b);
bool amp__private_any(const amp_block *b);                                      /* a block of some captured step */
amp_block *amp__block_foreign(int device, int index, void *data, size_t bytes); /* borrowed memory */
amp_block *amp__block_pinned(size_t bytes); /* of the host, pinned by the GPUs' plug-in; sets the error */
void amp__block_free(amp_block *block);     /* drops one count */
extern int amp__streamed;                   /* a second stream was made (tensor/stream.c): */
void amp__block_touch(amp_block *block);    /* the stream of this thread works on block */
void amp__block_moved(
    amp_block *block); /* and all later work on its device, in whatever stream, comes after what this thread gave it */

enum { AMP_S_EXPOSED = 1, AMP_S_ARENA = 2, AMP_S_FOREIGN = 4 };
#define AMP_INLINE_BYTES 64
/* Storage: where elements lie. `data` may move (into an arena, or out of it):
** every tensor reads it anew at each call. Small ones hold their bytes inline. */
struct amp_storage {
  AMP_ATOMIC(int32_t) refs;
  uint8_t device, index, flags, unused;
  uint32_t version; /* bumped by every in-place change */
  uint32_t mark;    /* given when a captured step first takes a copy of it, never twice; 0: not yet */
  size_t bytes;
  void *data;
  amp_block *block; /* NULL: inline */
  uint32_t born;    /* epoch in which it was made (autograd/journal.c) */
  AMP_ALIGN(16) char small[AMP_INLINE_BYTES];
};
amp_storage *amp__storage_new(int device, int index, size_t bytes);
amp_storage *amp__storage_in(amp_block *block, size_t offset, size_t bytes); /* a slice of block; counts block */
void amp__storage_retain(amp_storage *storage);
void amp__storage_free(amp_storage *storage); /* drops one count */
/* Give storage other memory, keeping its bytes: into `block` at offset, or (block NULL) a block of its own. */
int amp__storage_move(amp_storage *storage, amp_block *block, size_t offset);

#ifdef __cplusplus
}
#endif
#endif
