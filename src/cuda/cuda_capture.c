/*
** cuda_capture.c: a captured step as a CUDA graph.
**
** The device's stream 0 is captured in relaxed mode, so memory may still be had
** from the driver; whatever waits is refused by amp__cuda_check_capture before the
** driver sees it. Graphs are replayed there, too, whichever stream the thread
** uses; that one waits before and after. Only the thread that began may launch
** meanwhile: launches of others would be part of the graph (cuda_device.c refuses
** them).
*/
#include <pthread.h>
#include "cuda_branches.h"
#include "cuda_core.h"

int amp__cuda_capture_begin(int index, void *cell)
{
  amp_cuda_device *d = amp__cuda_enter(index);
  if (d == NULL) return AMP_E_DEVICE;
  int rc = amp__cuda_check(cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeRelaxed), "beginning a capture");
  if (rc < 0) return rc;
  d->capturer = pthread_self();
  d->outer = amp__cuda_number(index);
  amp__cuda_choose(index, 0);
  d->random = cell;
  d->draws = 0;
  d->capture = true;
  d->branches = amp__branches_new(d);
  return 0;
}

int amp__cuda_capture_end(int index, void **graph, uint64_t *random)
{
  amp_cuda_device *d = amp__cuda_enter(index);
  cudaGraph_t g = NULL;
  cudaGraphExec_t e = NULL;
  if (d == NULL) return AMP_E_DEVICE;
  d->capture = false;
  amp__cuda_choose(index, d->outer);
  *random = d->draws;
  int rc = amp__branches_free(d->branches);
  d->branches = NULL;
  cudaError_t err = cudaStreamEndCapture(d->stream, &g);
  if (graph == NULL) {
    cudaGetLastError();
    rc = 0;
  } else if (rc == 0 && (rc = amp__cuda_check(err, "capturing a step")) == 0 && (rc = amp__cuda_check(cudaGraphInstantiate(&e, g, 0), "making a graph of a step")) == 0) *graph = e;
  if (err != cudaSuccess) cudaGetLastError(); /* told, or no matter */
  if (g) cudaGraphDestroy(g);
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
  cudaEventDestroy(e);
  return rc;
}

int amp__cuda_capture_replay(int index, void *graph)
{
  amp_cuda_device *d = amp__cuda_enter(index);
  if (d == NULL) return AMP_E_DEVICE;
  cudaStream_t s = amp__cuda_stream();
  int rc = follow(d->stream, s);
  if (rc == 0) rc = amp__cuda_check(cudaGraphLaunch(graph, d->stream), "replaying a step");
  return rc < 0 ? rc : follow(s, d->stream);
}

void amp__cuda_capture_free(int index, void *graph)
{
  if (!amp__cuda_forked() && amp__cuda_enter(index)) cudaGraphExecDestroy(graph);
}
