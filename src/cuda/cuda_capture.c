/*
** cuda_capture.c: a captured step as a CUDA graph.
**
** The device's stream 0 is captured in relaxed mode, so memory may still be had
** from the driver; whatever waits is refused by amp__cuda_check_capture before the
** driver sees it. Graphs are replayed there, too, whichever stream the thread
** uses; that one waits before and after. Only the thread that began may launch
** meanwhile: launches of others would be part of the graph (cuda_device.c refuses
** them).
**
** A graph begins with one node that fetches the step's arguments and random numbers.
** What it fetches, and whether it runs at all, is set before a launch and holds
** for that one: launches that are still waiting have their own.
*/
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "cuda_branches.h"
#include "cuda_core.h"

typedef struct own {
  const void *data;
  int64_t numel;
  void *low;
  int32_t dtype;
} own; /* an argument's tensor; low: its cast, of which dtype */

typedef struct amp_step {
  cudaGraph_t graph; /* what nodes are named in */
  cudaGraphExec_t run;
  cudaGraphNode_t first;
  amp_beginning now; /* what the first node was told last */
  bool idle;         /* it does not run */
  own own[AMP_START_MOST];
} step;

int amp__cuda_capture_begin(int index, void *cell, amp_tensor *const *args, int n)
{
  amp_cuda_device *d = amp__cuda_enter(index);
  if (d == NULL) return AMP_E_DEVICE;
  step *k = calloc(1, sizeof *k);
  if (k == NULL) return amp__fail(AMP_E_MEMORY, "no memory for a captured step");
  int rc = amp__cuda_check(cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeRelaxed), "beginning a capture");
  if (rc < 0) {
    free(k);
    return rc;
  }
  for (int i = 0; i < n && n <= AMP_START_MOST; i++)
    if (args[i] && args[i]->device == AMP_CUDA && args[i]->device_index == index && args[i]->dtype == AMP_FLOAT32
        && (args[i]->flags & AMP_T_DENSE))
      k->own[i] = (own){ amp__data(args[i]), args[i]->numel, NULL, 0 };
  d->step = k;
  d->capturer = pthread_self();
  d->outer = amp__cuda_number(index);
  amp__cuda_choose(index, 0);
  d->random = cell;
  d->drawn = amp__cuda_api->state()->rng_offset;
  d->capture = true;
  amp__cuda_start();
  const cudaGraphNode_t *first;
  d->first = amp__branches_depends(d, &first) == 1 ? first[0] : NULL;
  d->branches = amp__branches_new(d);
  return 0;
}

bool amp__cuda_start_casts(const amp_tensor *t, const amp_tensor *out)
{
  amp_cuda_device *d = amp__cuda_here();
  if (!d->capture || t->dtype != AMP_FLOAT32 || !(t->flags & out->flags & AMP_T_DENSE)
      || (out->dtype != AMP_FLOAT16 && out->dtype != AMP_BFLOAT16))
    return false;
  for (int i = 0; i < t->ndim; i++)
    if (t->size[i] > 1 && (t->stride[i] != out->stride[i] || t->stride[i] < 0)) return false;
  const char *at = amp__data(out);
  for (int i = 0; i < AMP_START_MOST; i++) { /* an earlier one that was not read may have lain there */
    const own *o = &d->step->own[i];
    if (o->low && at < (char *)o->low + 2 * o->numel && (char *)o->low < at + 2 * out->numel) return false;
  }
  for (int i = 0; i < AMP_START_MOST; i++) {
    own *o = &d->step->own[i];
    if (o->data != amp__data(t) || o->numel != t->numel || o->low || !amp__branches_first(d->branches, t, out))
      continue;
    o->low = amp__data(out);
    o->dtype = out->dtype;
    return true;
  }
  return false;
}

int amp__cuda_capture_end(int index, void **graph, uint64_t *random)
{
  amp_cuda_device *d = amp__cuda_enter(index);
  cudaGraph_t g = NULL;
  if (d == NULL) return AMP_E_DEVICE;
  step *k = d->step;
  d->step = NULL;
  d->capture = false;
  amp__cuda_choose(index, d->outer);
  *random = amp__cuda_api->state()->rng_offset - d->drawn;
  int rc = amp__branches_free(d->branches);
  d->branches = NULL;
  cudaError_t err = cudaStreamEndCapture(d->stream, &g);
  if (graph == NULL) {
    cudaGetLastError();
    rc = 0;
  } else if (rc == 0 && (rc = amp__cuda_check(err, "capturing a step")) == 0
             && (rc = amp__cuda_check(cudaGraphInstantiate(&k->run, g, 0), "making a graph of a step")) == 0) {
    k->graph = g;
    k->first = d->first;
    *graph = k;
  }
  if (err != cudaSuccess) cudaGetLastError(); /* told, or no matter */
  if (rc < 0 || graph == NULL) {
    free(k);
    if (g) AMP_UNREAD(cudaGraphDestroy(g));
  }
  return rc;
}

/* What `next` gets from now on comes after what `first` has got */
static int follow(cudaStream_t next, cudaStream_t first)
{
  cudaEvent_t e;
  if (next == first) return 0;
  int rc = amp__cuda_check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "an event");
  if (rc < 0) return rc;
  rc = amp__cuda_check(cudaEventRecord(e, first), "an event");
  if (rc == 0) rc = amp__cuda_check(cudaStreamWaitEvent(next, e, 0), "an event");
  AMP_UNREAD(cudaEventDestroy(e));
  return rc;
}

/* Tell the first node what this replay begins with */
static int prepare(step *k, const amp_start *start)
{
  amp_beginning b;
  int at[AMP_START_MOST];
  memset(&b, 0, sizeof b); /* compared by its bytes */
  for (int i = 0; i < AMP_START_MOST; i++) at[i] = -1;
  for (int i = 0; i < start->n; i++) {
    if (start->copy[i].argument < AMP_START_MOST) at[start->copy[i].argument] = b.n;
    b.fetch[b.n].to = start->copy[i].to;
    b.fetch[b.n].from = start->copy[i].from;
    b.fetch[b.n++].bytes = start->copy[i].bytes;
  }
  for (int i = 0; i < AMP_START_MOST; i++) { /* only where there are no more arguments than these */
    const own *o = &k->own[i];
    if (o->low == NULL) continue;
    if (at[i] < 0) { /* it is there since an earlier replay */
      at[i] = b.n++;
      b.fetch[at[i]].from = o->data;
      b.fetch[at[i]].bytes = (size_t)o->numel * 4;
    }
    b.fetch[at[i]].low = o->low;
    b.fetch[at[i]].dtype = o->dtype;
  }
  b.cell = start->cell;
  b.random[0] = start->random[0];
  b.random[1] = start->random[1];
  bool idle = b.n == 0 && b.cell == NULL;
  if (k->first == NULL) return idle ? 0 : amp__fail(AMP_E_INTERNAL, "the captured step has no place for its arguments");
  if (idle != k->idle) {
    int rc = amp__cuda_check(cudaGraphNodeSetEnabled(k->run, k->first, !idle), "a captured step's arguments");
    if (rc < 0) return rc;
    k->idle = idle;
  }
  if (idle || memcmp(&b, &k->now, sizeof b) == 0) return 0;
  int rc = amp__cuda_start_with(k->run, k->first, &b);
  if (rc == 0) k->now = b;
  return rc;
}

int amp__cuda_capture_replay(int index, void *graph, const amp_start *start)
{
  amp_cuda_device *d = amp__cuda_enter(index);
  if (d == NULL) return AMP_E_DEVICE;
  cudaStream_t s = amp__cuda_stream();
  step *k = graph;
  int rc = prepare(k, start);
  if (rc == 0) rc = follow(d->stream, s);
  if (rc == 0) rc = amp__cuda_check(cudaGraphLaunch(k->run, d->stream), "replaying a step");
  return rc < 0 ? rc : follow(s, d->stream);
}

void amp__cuda_capture_free(int index, void *graph)
{
  step *k = graph;
  if (!amp__cuda_forked() && amp__cuda_enter(index)) {
    AMP_UNREAD(cudaGraphExecDestroy(k->run));
    AMP_UNREAD(cudaGraphDestroy(k->graph));
  }
  free(k);
}
