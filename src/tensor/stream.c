/*
** tensor/stream.c: which streams work on which memory.
**
** A device's plug-in brings the streams (amp_stream_ops). Each thread has one in
** use for every device; what it dispatches goes there. Memory follows by itself:
** a block belongs to the stream it was asked in, dispatch notes which others work
** on it (amp__block_touch), and when it is freed it goes back to its own stream
** once those have passed a mark (tensor/deferred_free.c). Until there is a second
** stream, amp__streamed is 0 and nothing of this costs anything.
*/
#include "tensor/tensor.h"

int amp__streamed;

/* -- Blocks and streams ------------------------------------------------------------- */

void amp__block_touch(amp_block *block)
{
  const amp_stream_ops *streams = block->device != AMP_CPU ? amp__devices[block->device].streams : NULL;
  if (streams == NULL || block->foreign) return;
  uint32_t bit = (uint32_t)1 << streams->use(block->index, -1);
  if (!(atomic_load_explicit(&block->streams, memory_order_relaxed) & bit))
    atomic_fetch_or_explicit(&block->streams, bit, memory_order_relaxed);
}

void amp__block_moved(amp_block *block)
{
  if (!amp__streamed || block->device == AMP_CPU || amp__devices[block->device].streams == NULL) return;
  amp__block_touch(block);
  amp__devices[block->device].streams->fence(block->index);
}

int amp__stream_here(int device, int index)
{
  return amp__streamed && device != AMP_CPU && amp__devices[device].streams
             ? amp__devices[device].streams->use(index, -1)
             : 0;
}
