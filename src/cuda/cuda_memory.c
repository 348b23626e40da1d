/*
** cuda_memory.c: raw memory of the cards and copies between them and the host.
**
** The pools are the core's (tensor/alloc.c): blocks come from here once and are
** reused, each in the stream it was first asked in, so it is written after what
** still reads it. Memory that a captured step uses is kept apart while the capture
** lives (cuda_capture.c); pinned memory of the host is cuda_host.c's.
*/
#include <string.h>
#include "cuda_core.h"

void *amp__cuda_alloc(int index, size_t n)
{
  void *p = NULL;
  amp_cuda_device *d = amp__cuda_enter(index);
  if (d == NULL) return NULL;
  cudaError_t before = cudaPeekAtLastError();
  if (cudaMalloc(&p, n) != cudaSuccess) {
    amp__cuda_forget(before);
    return NULL;
  }
  return p;
}

void amp__cuda_free(int index, void *p, size_t n)
{
  (void)n;
  amp_cuda_device *was = amp__cuda_here(); /* a row of that card may go on when memory was given back for it */
  if (amp__cuda_enter(index)) AMP_UNREAD(cudaFree(p));
  if (was) amp__cuda_enter(was->index);
}

static bool raw_alike(const amp_tensor *a, const amp_tensor *b)
{
  return a->dtype == b->dtype && a->numel == b->numel
         && ((amp__cuda_plain(a) && amp__cuda_plain(b))
             || ((a->flags & b->flags & AMP_T_DENSE) && amp__same_size(a, b)
                 && memcmp(a->stride, b->stride, sizeof(int64_t) * a->ndim) == 0));
}

int amp__cuda_memory(int index, size_t *free_bytes, size_t *total)
{
  return amp__cuda_enter(index) ? amp__cuda_check(cudaMemGetInfo(free_bytes, total), "asking a GPU for its memory")
                                : AMP_E_DEVICE;
}

/* -- Between the host and a card --------------------------------------------------------- */

static amp_block *pinned(const amp_tensor *t)
{
  return t->storage->block && t->storage->block->pinned ? t->storage->block : NULL;
}

/* A copy that is queued now reads or writes b */
static void copying(amp_block *b, const amp_cuda_device *d)
{
  atomic_fetch_or_explicit(&b->cards, (uint32_t)1 << d->index, memory_order_relaxed);
  atomic_fetch_or_explicit(&b->streams, (uint32_t)1 << amp__cuda_number(d->index), memory_order_relaxed);
}

/* To the card. The host does not wait unless it is a lot: what may change when the call has returned goes by way of
** pinned memory. (Not every driver has read ordinary memory when the call returns.) */
static int up(amp_cuda_device *d, amp_tensor *dst, const amp_tensor *src, size_t n)
{
  enum { STAGED = 32 << 20 };
  amp_block *pin = pinned(src);
  bool async = pin && amp__cuda_api->state()->priv->async;
  void *stage = NULL, *from = amp__data(src);
  int rc;
  if (n <= AMP_CUDA_UPLOAD) return amp__cuda_upload(amp__data(dst), from, n);
  if (d->capture)
    return amp__fail(
        AMP_E_STATE,
        "a copy from the CPU can't be captured: it would be repeated with the same values; make the tensor "
        "before, and fill it with :copy_ between steps");
  if (!async && n <= STAGED && (stage = amp__cuda_host_alloc(n))) from = memcpy(stage, from, n);
  rc = amp__cuda_check(cudaMemcpyAsync(amp__data(dst), from, n, cudaMemcpyHostToDevice, amp__cuda_stream()),
                       "a copy to the GPU");
  if (stage) amp__cuda_host_free(stage, n, (uint32_t)1 << d->index, (uint32_t)1 << amp__cuda_number(d->index));
  else if (async) copying(pin, d);
  else if (rc == 0) rc = amp__cuda_wait(d);
  return rc;
}

static int down(amp_cuda_device *d, amp_tensor *dst, const amp_tensor *src, size_t n)
{
  amp_block *pin = pinned(dst);
  int rc = amp__cuda_check_capture("a copy to the CPU");
  if (rc < 0) return rc;
  if ((rc
       = amp__cuda_check(cudaMemcpyAsync(amp__data(dst), amp__data(src), n, cudaMemcpyDeviceToHost, amp__cuda_stream()),
                         "a copy to the CPU"))
      < 0)
    return rc;
  if (!pin || !amp__cuda_api->state()->priv->async) return amp__cuda_wait(d);
  copying(pin, d);
  return 0;
}

/* Between cards: after what the receiver still does, and before what it does next */
static int across(amp_tensor *dst, const amp_tensor *src, size_t n)
{
  cudaEvent_t e;
  cudaStream_t from, to;
  if (!amp__cuda_enter(src->device_index)) return AMP_E_DEVICE;
  from = amp__cuda_stream();
  if (!amp__cuda_enter(dst->device_index)) return AMP_E_DEVICE;
  to = amp__cuda_stream();
  int rc = amp__cuda_check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "an event");
  if (rc < 0) return rc;
  rc = amp__cuda_check(cudaEventRecord(e, to), "an event");
  if (!rc && !amp__cuda_enter(src->device_index)) rc = AMP_E_DEVICE;
  if (!rc) rc = amp__cuda_check(cudaStreamWaitEvent(from, e, 0), "an event");
  if (!rc)
    rc = amp__cuda_check(
        cudaMemcpyPeerAsync(amp__data(dst), dst->device_index, amp__data(src), src->device_index, n, from),
        "a copy between GPUs");
  AMP_UNREAD(cudaEventDestroy(e));
  if (!rc) rc = amp__cuda_check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "an event");
  if (rc) return rc;
  rc = amp__cuda_check(cudaEventRecord(e, from), "an event");
  if (!rc && !amp__cuda_enter(dst->device_index)) rc = AMP_E_DEVICE;
  if (!rc) rc = amp__cuda_check(cudaStreamWaitEvent(to, e, 0), "an event");
  AMP_UNREAD(cudaEventDestroy(e));
  return rc;
}

/* Bytes between two places of which one at least is a card's */
static int move(amp_tensor *dst, const amp_tensor *src)
{
  size_t n = (size_t)src->numel * amp__dtype_size[src->dtype];
  const amp_tensor *on = src->device == AMP_CUDA ? src : dst;
  if (n == 0) return 0;
  amp_cuda_device *d = amp__cuda_enter(on->device_index);
  if (d == NULL) return AMP_E_DEVICE;
  if (src->device == AMP_CPU) return up(d, dst, src, n);
  if (dst->device == AMP_CPU) return down(d, dst, src, n);
  if (dst->device_index != src->device_index) return across(dst, src, n);
  return amp__cuda_check(
      cudaMemcpyAsync(amp__data(dst), amp__data(src), n, cudaMemcpyDeviceToDevice, amp__cuda_stream()),
      "a copy on the GPU");
}

int amp__cuda_transfer(amp_tensor *dst, const amp_tensor *src) { return move(dst, src); }

/* -- Rows that copy between devices --------------------------------------------------- */

static amp_tensor *in_c_order(amp_tensor *t)
{
  amp_slot a[AMP_MAX_SLOT] = { { .i = 0 } };
  ((args_clone *)a)->memory_format = CLONE_MEMORY_FORMAT_CONTIGUOUS;
  return amp__cuda_op(AMP_OP_clone, &t, 1, a);
}

/* t in C order and in dtype, on its own device; counted */
static amp_tensor *prepared(amp_tensor *t, int dtype)
{
  if (t->device == AMP_CUDA) return amp__cuda_enter(t->device_index) ? amp__cuda_dense(t, dtype) : NULL;
  if (t->dtype == dtype && amp__cuda_plain(t)) {
    amp__retain(t);
    return t;
  }
  if (t->dtype == dtype) return in_c_order(t);
  amp_slot a[AMP_MAX_SLOT] = { { .i = 0 } };
  ((args_cast *)a)->dtype = dtype;
  return amp__cuda_op(AMP_OP_cast, &t, 1, a); /* dense where t is */
}

static int between(amp_tensor *dst, amp_tensor *src)
{
  if (raw_alike(dst, src)) return move(dst, src);
  /* the cast is made where the values are, then they travel, then they are spread out */
  int rc = AMP_E_INTERNAL;
  amp_tensor *there = NULL, *from = prepared(src, dst->dtype), *in[2];
  if (from && !amp__cuda_plain(from)) {
    amp_tensor *dense = in_c_order(from);
    amp__free(from);
    from = dense;
  }
  if (from == NULL) return amp__cuda_api->state()->err.code;
  if (raw_alike(dst, from)) {
    rc = move(dst, from);
    goto out;
  }
  there = amp__tensor_make(dst->dtype, dst->device, dst->device_index, from->ndim, from->size);
  if (there == NULL) goto out;
  if ((rc = move(there, from)) < 0) goto out;
  if (dst->device == AMP_CUDA) rc = amp__cuda_enter(dst->device_index) ? amp__cuda_copy_to(dst, there) : AMP_E_DEVICE;
  else {
    in[0] = dst;
    in[1] = there;
    amp__plain plain = amp__plain_record(amp__cuda_api->state(), 0);
    rc = amp__dispatch(AMP_OP_copy, AMP_INPLACE, in, 2, NULL, NULL);
    amp__plain_end(plain);
  }
out:
  if (rc == AMP_E_INTERNAL) rc = amp__cuda_api->state()->err.code;
  amp__free(from);
  amp__free(there);
  return rc;
}

int amp__cuda_to_device(amp_call *c) { return between(c->out[0], c->in[0]); }

int amp__cuda_copy(amp_call *c)
{
  amp_tensor *dst = c->out[0], *src = c->in[1];
  if (src->device == dst->device && src->device_index == dst->device_index) return amp__cuda_copy_to(dst, src);
  return between(dst, src);
}
