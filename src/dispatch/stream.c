/*
** dispatch/stream.c: streams and events of a device as callers use them.
*/
#include <stdlib.h>
#include "dispatch/dispatch.h"

struct amp_event {
  uint8_t device, index;
  void *handle;
};

/* -- Streams -------------------------------------------------------------------------- */

static const amp_stream_ops *ops_of(int device, int index, int stream)
{
  if (device < AMP_CPU || device >= AMP_DEVICE_COUNT || index < 0 || index >= amp_device_available(device)) {
    amp__fail(AMP_E_DEVICE, "device %s:%d is not there: %s", amp_device_name(device), index + 1,
              amp_device_reason(device));
    return NULL;
  }
  if (stream < 0 || stream >= AMP_STREAMS) {
    amp__fail(AMP_E_INDEX, "there is no stream %d: a device has up to %d, from 0 on", stream, AMP_STREAMS);
    return NULL;
  }
  if (amp__devices[device].streams == NULL)
    amp__fail(AMP_E_UNSUPPORTED, "device %s has one stream only", amp_device_name(device));
  return amp__devices[device].streams;
}

int amp_stream_new(amp_state *state, int device, int index)
{
  AMP_ENTER(state);
  const amp_stream_ops *streams = ops_of(device, index, 0);
  if (streams == NULL) return state->err.code;
  int n = streams->make(index);
  if (n > 0) __atomic_store_n(&amp__streamed, 1, __ATOMIC_RELEASE);
  return n;
}

int amp_stream_use(amp_state *state, int device, int index, int stream)
{
  AMP_ENTER(state);
  const amp_stream_ops *streams = ops_of(device, index, stream < 0 ? 0 : stream);
  return streams ? streams->use(index, stream) : state->err.code;
}

int amp_stream_follow(amp_state *state, int device, int index, int next, int first)
{
  AMP_ENTER(state);
  const amp_stream_ops *streams = ops_of(device, index, next > first ? next : first);
  if (streams == NULL) return state->err.code;
  int here = amp__stream_here(device, index);
  if (next < 0) next = here;
  if (first < 0) first = here;
  if (next == first) return 0;
  void *e = streams->event(index, 0);
  if (e == NULL) return state->err.code;
  int status = streams->record(index, e, first);
  if (status >= 0) status = streams->after(index, e, next);
  streams->event_free(index, e);
  return status;
}

int amp_stream_query(amp_state *state, int device, int index, int stream)
{
  AMP_ENTER(state);
  const amp_stream_ops *streams = ops_of(device, index, stream);
  return streams ? streams->query(index, stream) : state->err.code;
}

int amp_stream_synchronize(amp_state *state, int device, int index, int stream)
{
  AMP_ENTER(state);
  const amp_stream_ops *streams = ops_of(device, index, stream);
  if (streams == NULL) return state->err.code;
  state->host_waits++;
  return streams->wait(index, stream);
}

/* -- Events ----------------------------------------------------------------------------- */

amp_event *amp_event_new(amp_state *state, int device, int index, int timing)
{
  AMP_ENTER(state);
  const amp_stream_ops *streams = ops_of(device, index, 0);
  amp_event *event = streams ? calloc(1, sizeof *event) : NULL;
  if (event == NULL) {
    if (streams) amp__nomem(sizeof *event);
    return NULL;
  }
  *event = (amp_event){ (uint8_t)device, (uint8_t)index, streams->event(index, timing) };
  if (event->handle == NULL) {
    free(event);
    return NULL;
  }
  return event;
}

void amp_event_free(amp_event *event)
{
  if (event == NULL) return;
  amp__devices[event->device].streams->event_free(event->index, event->handle);
  free(event);
}

int amp_event_record(amp_state *state, amp_event *event, int stream)
{
  AMP_ENTER(state);
  const amp_stream_ops *streams = ops_of(event->device, event->index, stream);
  return streams ? streams->record(event->index, event->handle, stream) : state->err.code;
}

int amp_event_wait(amp_state *state, amp_event *event, int index, int stream)
{
  AMP_ENTER(state);
  const amp_stream_ops *streams = ops_of(event->device, index, stream);
  return streams ? streams->after(index, event->handle, stream) : state->err.code;
}

int amp_event_query(amp_state *state, amp_event *event)
{
  AMP_ENTER(state);
  return amp__devices[event->device].streams->event_query(event->index, event->handle);
}

int amp_event_synchronize(amp_state *state, amp_event *event)
{
  AMP_ENTER(state);
  state->host_waits++;
  return amp__devices[event->device].streams->event_wait(event->index, event->handle);
}

int amp_event_elapsed(amp_state *state, amp_event *from, amp_event *to, double *ms)
{
  AMP_ENTER(state);
  if (from->device != to->device || from->index != to->index)
    return amp__fail(AMP_E_DEVICE, "the events are of %s:%d and %s:%d; time passes on one device",
                     amp_device_name(from->device), from->index + 1, amp_device_name(to->device), to->index + 1);
  return amp__devices[from->device].streams->elapsed(from->index, from->handle, to->handle, ms);
}
