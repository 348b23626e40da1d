/*
** amp_stream.c: streams and events of a device, pinned memory, and copies that
** the host does not wait for.
**
** A device's plug-in brings the streams (amp_stream_ops). Each thread has one in
** use for every device; what it dispatches goes there. Memory follows by itself:
** a block belongs to the stream it was asked in, dispatch notes which others work
** on it (amp__block_touch), and when it is freed it goes back to its own stream
** once those have passed a mark (amp_alloc.c). Until somebody makes a second
** stream, amp__streamed is 0 and nothing of this costs anything.
*/
#include <stdlib.h>
#include "amp_core.h"

int amp__streamed;

struct amp_event { uint8_t device, index; void *e; };

/* -- Blocks and streams ------------------------------------------------------------- */

void amp__block_touch(amp_block *b)
{
  const amp_stream_ops *o = b->device != AMP_CPU ? amp__devices[b->device].streams : NULL;
  if (o == NULL || b->foreign) return;
  uint32_t bit = (uint32_t)1 << o->use(b->index, -1);
  if (!(atomic_load_explicit(&b->streams, memory_order_relaxed) & bit)) atomic_fetch_or_explicit(&b->streams, bit, memory_order_relaxed);
}

void amp__block_moved(amp_block *b)
{
  if (!amp__streamed || b->device == AMP_CPU || amp__devices[b->device].streams == NULL) return;
  amp__block_touch(b);
  amp__devices[b->device].streams->fence(b->index);
}

int amp__stream_here(int device, int index)
{
  return amp__streamed && device != AMP_CPU && amp__devices[device].streams ? amp__devices[device].streams->use(index, -1) : 0;
}

/* -- Streams -------------------------------------------------------------------------- */

static const amp_stream_ops *ops_of(int device, int index, int stream)
{
  if (device < AMP_CPU || device >= AMP_DEVICE_COUNT || index < 0 || index >= amp_device_available(device)) {
    amp__fail(AMP_E_DEVICE, "device %s:%d is not there: %s", amp_device_name(device), index + 1, amp_device_reason(device));
    return NULL;
  }
  if (stream < 0 || stream >= AMP_STREAMS) { amp__fail(AMP_E_INDEX, "there is no stream %d: a device has up to %d, from 0 on", stream, AMP_STREAMS); return NULL; }
  if (amp__devices[device].streams == NULL) amp__fail(AMP_E_UNSUPPORTED, "device %s has one stream only", amp_device_name(device));
  return amp__devices[device].streams;
}

int amp_stream_new(amp_state *S, int device, int index)
{
  AMP_ENTER(S);
  const amp_stream_ops *o = ops_of(device, index, 0);
  if (o == NULL) return S->err.code;
  int n = o->make(index);
  if (n > 0) __atomic_store_n(&amp__streamed, 1, __ATOMIC_RELEASE);
  return n;
}

int amp_stream_use(amp_state *S, int device, int index, int stream)
{
  AMP_ENTER(S);
  const amp_stream_ops *o = ops_of(device, index, stream < 0 ? 0 : stream);
  return o ? o->use(index, stream) : S->err.code;
}

int amp_stream_follow(amp_state *S, int device, int index, int next, int first)
{
  AMP_ENTER(S);
  const amp_stream_ops *o = ops_of(device, index, next > first ? next : first);
  if (o == NULL) return S->err.code;
  int here = amp__stream_here(device, index);
  if (next < 0) next = here;
  if (first < 0) first = here;
  if (next == first) return 0;
  void *e = o->event(index, 0);
  if (e == NULL) return S->err.code;
  int rc = o->record(index, e, first);
  if (rc >= 0) rc = o->after(index, e, next);
  o->event_free(index, e);
  return rc;
}

int amp_stream_query(amp_state *S, int device, int index, int stream)
{
  AMP_ENTER(S);
  const amp_stream_ops *o = ops_of(device, index, stream);
  return o ? o->query(index, stream) : S->err.code;
}

int amp_stream_synchronize(amp_state *S, int device, int index, int stream)
{
  AMP_ENTER(S);
  const amp_stream_ops *o = ops_of(device, index, stream);
  if (o == NULL) return S->err.code;
  S->host_waits++;
  return o->wait(index, stream);
}

/* -- Events ----------------------------------------------------------------------------- */

amp_event *amp_event_new(amp_state *S, int device, int index, int timing)
{
  AMP_ENTER(S);
  const amp_stream_ops *o = ops_of(device, index, 0);
  amp_event *e = o ? calloc(1, sizeof *e) : NULL;
  if (e == NULL) {
    if (o) amp__nomem(sizeof *e);
    return NULL;
  }
  *e = (amp_event){ (uint8_t)device, (uint8_t)index, o->event(index, timing) };
  if (e->e == NULL) { free(e); return NULL; }
  return e;
}

void amp_event_free(amp_event *e)
{
  if (e == NULL) return;
  amp__devices[e->device].streams->event_free(e->index, e->e);
  free(e);
}

int amp_event_record(amp_state *S, amp_event *e, int stream)
{
  AMP_ENTER(S);
  const amp_stream_ops *o = ops_of(e->device, e->index, stream);
  return o ? o->record(e->index, e->e, stream) : S->err.code;
}

int amp_event_wait(amp_state *S, amp_event *e, int index, int stream)
{
  AMP_ENTER(S);
  const amp_stream_ops *o = ops_of(e->device, index, stream);
  return o ? o->after(index, e->e, stream) : S->err.code;
}

int amp_event_query(amp_state *S, amp_event *e)
{
  AMP_ENTER(S);
  return amp__devices[e->device].streams->event_query(e->index, e->e);
}

int amp_event_synchronize(amp_state *S, amp_event *e)
{
  AMP_ENTER(S);
  S->host_waits++;
  return amp__devices[e->device].streams->event_wait(e->index, e->e);
}

int amp_event_elapsed(amp_state *S, amp_event *from, amp_event *to, double *ms)
{
  AMP_ENTER(S);
  if (from->device != to->device || from->index != to->index)
    return amp__fail(AMP_E_DEVICE, "the events are of %s:%d and %s:%d; time passes on one device", amp_device_name(from->device), from->index + 1,
                     amp_device_name(to->device), to->index + 1);
  return amp__devices[from->device].streams->elapsed(from->index, from->e, to->e, ms);
}

/* -- Pinned memory ------------------------------------------------------------------------ */

static bool can_pin(void) { return amp_device_available(AMP_CUDA) > 0 && amp__devices[AMP_CUDA].host_alloc != NULL; }

/* Not filled; in C order */
static amp_tensor *pinned(int ndim, const int64_t *size, int dtype)
{
  int64_t numel;
  if (amp__check_size(ndim, size, dtype, &numel) < 0) return NULL;
  size_t bytes = (size_t)numel * amp__dtype_size[dtype];
  amp_block *b = amp__block_pinned(bytes ? bytes : 1);
  if (b == NULL) return NULL;
  amp_storage *s = amp__storage_in(b, 0, bytes);
  amp__block_free(b);
  if (s == NULL) return NULL;
  s->flags = 0;
  amp_tensor *t = amp__tensor_of(s, dtype, ndim, size, NULL, 0);
  amp__storage_free(s);
  return t;
}

int amp_empty_pinned(amp_state *S, amp_ref *out, int ndim, const int64_t *size, int dtype)
{
  AMP_ENTER(S);
  if (ndim < 0 || ndim > AMP_MAX_DIM || dtype < 0 || dtype >= AMP_DTYPE_COUNT) return amp__fail(AMP_E_ARGUMENT, "no such tensor: %d dimensions of dtype %d", ndim, dtype);
  out->t = can_pin() ? pinned(ndim, size, dtype) : amp__tensor_make(dtype, AMP_CPU, 0, ndim, size);
  return out->t ? 0 : S->err.code;
}

int amp_is_pinned(const amp_ref *a) { return a->t && a->t->device == AMP_CPU && a->t->storage->block && a->t->storage->block->pinned; }

/* dst's elements are src's; not recorded unless `record` */
static int copy(amp_state *S, amp_tensor *dst, amp_tensor *src, bool async, bool record)
{
  amp_tensor *in[2] = { dst, src };
  int32_t grad_mode = S->grad_mode;
  if (!record) S->grad_mode = 0;
  S->priv->async = async;
  int rc = amp__dispatch(AMP_OP_copy, AMP_INPLACE, in, 2, NULL, NULL);
  S->priv->async = false;
  S->grad_mode = grad_mode;
  return rc;
}

int amp_pin_memory(amp_state *S, amp_ref *out, const amp_ref *a)
{
  AMP_ENTER(S);
  if (a->t == NULL) return amp__fail_arg(AMP_E_ARGUMENT, 1, "argument 1 is a tensor that was freed");
  if (a->t->device != AMP_CPU) return amp__fail_arg(AMP_E_DEVICE, 1, "pinned memory is the host's: the tensor is on %s:%d", amp_device_name(a->t->device), a->t->device_index + 1);
  if (amp_is_pinned(a) || !can_pin()) { amp_retain(out, a); return 0; }
  amp_tensor *t = pinned(a->t->ndim, a->t->size, a->t->dtype);
  if (t == NULL) return S->err.code;
  int rc = copy(S, t, a->t, false, false);
  if (rc < 0) amp__free(t);
  else out->t = t;
  return rc;
}

int amp_copy_async(amp_state *S, const amp_ref *dst, const amp_ref *src)
{
  AMP_ENTER(S);
  if (dst->t == NULL || src->t == NULL) return amp__fail(AMP_E_ARGUMENT, "argument %d is a tensor that was freed", dst->t ? 2 : 1);
  return copy(S, dst->t, src->t, true, true);
}

int amp_to_async(amp_state *S, amp_ref *out, const amp_ref *a, int device, int index)
{
  AMP_ENTER(S);
  if (a->t == NULL) return amp__fail_arg(AMP_E_ARGUMENT, 1, "argument 1 is a tensor that was freed");
  if (device == AMP_CPU && a->t->device != AMP_CPU && can_pin()) {
    amp_tensor *t = pinned(a->t->ndim, a->t->size, a->t->dtype);
    int rc = t ? copy(S, t, a->t, true, true) : S->err.code;
    if (rc < 0) amp__free(t);
    else out->t = t;
    return rc;
  }
  amp_slot at = { .i = device * 256 + index };
  amp_tensor *result[AMP_MAX_OUT] = { NULL };
  S->priv->async = true;
  int rc = amp__dispatch(AMP_OP_to_device, 0, &a->t, 1, result, &at);
  S->priv->async = false;
  if (rc >= 0) out->t = result[0];
  return rc;
}
