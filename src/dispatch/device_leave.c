/*
** dispatch/device_leave.c: a device that this process must not touch.
**
** A forked process has its parent's handles of GPU memory, but the driver's
** connection is not its own: the first call would fail somewhere deep, or hang.
** amp_device_leave puts a table in the device's place whose every slot either
** says so (kernels, copies, waits) or does nothing (what finalizers call: memory
** and events are the parent's).
*/
#include "dispatch/dispatch.h"

static const char why[]
    = "this is a process forked from one that may use the GPU, such as a worker of a DataLoader, which works on "
      "the CPU; "
      "make CPU tensors in the dataset and let the loader copy batches: DataLoader(set, {device = 'cuda'})";

static int refuse(void) { return amp__fail(AMP_E_DEVICE, "a GPU is out of reach here: %s", why); }

static int refuse_kernel(amp_call *call) { return refuse(); }
static int refuse_copy(amp_tensor *dst, const amp_tensor *src) { return refuse(); }
static int refuse_index(int index) { return refuse(); }
static int refuse_upload(int index, void *dst, const void *src, size_t n) { return refuse(); }
static int refuse_capture(int index, void *cell, amp_tensor *const *own, int n) { return refuse(); }
static void no_free(int index, void *p, size_t bytes) {}
static void no_host_free(void *p, size_t bytes, uint32_t cards, uint32_t streams) {}
static void no_capture_free(int index, void *graph) {}

static int no_use(int index, int stream) { return 0; }
static int done(int index, int stream) { return 1; }
static int refuse_stream(int index, int stream) { return refuse(); }
static void *no_event(int index, int timing)
{
  refuse();
  return NULL;
}
static void no_event_free(int index, void *e) {}
static int refuse_record(int index, void *e, int stream) { return refuse(); }
static int refuse_event(int index, void *e) { return refuse(); }
static int refuse_elapsed(int index, void *from, void *to, double *ms) { return refuse(); }
static int no_fence(int index) { return 0; }
static void *no_mark(int index, uint32_t streams) { return NULL; }
static int reached(int index, void *mark) { return 1; }

static const amp_stream_ops no_streams = { .make = refuse_index,
                                           .use = no_use,
                                           .query = done,
                                           .wait = refuse_stream,
                                           .event = no_event,
                                           .event_free = no_event_free,
                                           .record = refuse_record,
                                           .after = refuse_record,
                                           .event_query = refuse_event,
                                           .event_wait = refuse_event,
                                           .elapsed = refuse_elapsed,
                                           .fence = no_fence,
                                           .mark = no_mark,
                                           .reached = reached };

void amp_device_leave(int device)
{
  if (device <= AMP_CPU || device >= AMP_DEVICE_COUNT) return;
  amp_device_ops *d = &amp__devices[device];
  amp__plugin_never("cuda");
  amp_device_ops left = { .reason = why,
                          .free = no_free,
                          .copy = refuse_copy,
                          .sync = refuse_index,
                          .upload = refuse_upload,
                          .capture_begin = refuse_capture,
                          .capture_free = no_capture_free,
                          .host_free = no_host_free,
                          .streams = d->streams ? &no_streams : NULL };
  for (int i = 0; i < AMP_OP_COUNT; i++) left.kernel[i] = refuse_kernel;
  *d = left;
}
