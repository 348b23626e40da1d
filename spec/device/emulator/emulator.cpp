/*
** emulator.cpp: the runtime behind cuda_runtime.h of this folder: memory, streams, events, graphs. What a launch does
** is in fibers.cpp.
*/
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <vector>
#include "emulator.h"

/* -- Streams, graphs ------------------------------------------------------------- */

struct emu_node {
  std::function<void()> f;
  std::vector<emu_node *> after;
  int place;
  bool off;
};
struct emu_graph {
  std::vector<emu_node *> node;
  int refs;
};
struct emu_stream {
  bool capturing, broken;
  emu_graph *noted;
  std::vector<emu_node *> *now;
  std::deque<std::function<void()>> queue;
};
struct emu_mark {
  emu_stream *s;
  bool done;
  std::chrono::steady_clock::time_point at;
};
struct emu_event {
  std::shared_ptr<emu_mark> mark;
};

static thread_local cudaError_t last_error = cudaSuccess;
static cudaError_t fail(cudaError_t e)
{
  last_error = e;
  return e;
}

/* With AMP_EMULATED_LAZY=1 a stream does nothing until it has to: a wait, an event that another stream waits for, a
** free. What must be ordered by an event, and is not, then shows. */
static bool lazy()
{
  static const bool on = getenv("AMP_EMULATED_LAZY") != nullptr;
  return on;
}
static std::vector<emu_stream *> streams;
static std::map<const char *, size_t> pinned;

static bool step(emu_stream *s)
{
  if (s->queue.empty()) return false;
  std::function<void()> f = std::move(s->queue.front());
  s->queue.pop_front();
  f();
  return true;
}
static void catch_up(emu_stream *s)
{
  std::lock_guard<std::recursive_mutex> guard(running);
  while (s && step(s)) {}
}
static void catch_up_all()
{
  std::lock_guard<std::recursive_mutex> guard(running);
  for (emu_stream *s : streams) catch_up(s);
}
static void reach(const std::shared_ptr<emu_mark> &m)
{
  std::lock_guard<std::recursive_mutex> guard(running);
  while (!m->done && step(m->s)) {}
}
static void later(emu_stream *s, const std::function<void()> &f)
{
  std::lock_guard<std::recursive_mutex> guard(running);
  if (lazy() && s) s->queue.push_back(f);
  else f();
}
static bool is_pinned(const void *p)
{
  std::lock_guard<std::recursive_mutex> guard(running);
  auto k = pinned.upper_bound((const char *)p);
  if (k == pinned.begin()) return false;
  --k;
  return (const char *)p < k->first + k->second;
}

/* One node more, after what the stream depends on */
static void note(cudaStream_t s, const std::function<void()> &f)
{
  emu_node *k = new emu_node{ f, *s->now, (int)s->noted->node.size(), false };
  s->noted->node.push_back(k);
  *s->now = { k };
}

static void drop(emu_graph *g)
{
  if (g && --g->refs == 0) {
    for (emu_node *k : g->node) delete k;
    delete g;
  }
}

/* What its nodes do now; they may do something else in a later launch */
static std::vector<std::function<void()>> work_of(const emu_graph *g)
{
  std::vector<std::function<void()>> w;
  for (const emu_node *k : g->node) w.push_back(k->off ? nullptr : k->f);
  return w;
}

/* Every node after those it depends on, otherwise by chance */
static void run_graph(const emu_graph *g, const std::vector<std::function<void()>> &work)
{
  static uint64_t state = 88172645463325252u;
  static const bool shuffled = getenv("AMP_EMULATOR_IN_ORDER") == nullptr;
  size_t n = g->node.size();
  std::vector<int> open(n), ready;
  std::vector<std::vector<int>> next(n);
  for (size_t i = 0; i < n; i++) {
    open[i] = (int)g->node[i]->after.size();
    for (const emu_node *d : g->node[i]->after) next[(size_t)d->place].push_back((int)i);
    if (open[i] == 0) ready.push_back((int)i);
  }
  while (!ready.empty()) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    size_t at = shuffled ? state % ready.size() : 0;
    int i = ready[at];
    ready.erase(ready.begin() + (long)at);
    if (work[(size_t)i]) work[(size_t)i]();
    for (int j : next[(size_t)i])
      if (--open[(size_t)j] == 0) ready.push_back(j);
  }
}

void emu_launch(const std::function<void()> &f, dim3 grid, dim3 block, size_t shared, cudaStream_t s)
{
  uint64_t threads = (uint64_t)block.x * block.y * block.z;
  if (threads == 0 || threads > MAX_THREADS || grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535
      || grid.z > 65535 || shared > 227 * 1024) {
    fail(cudaErrorInvalidConfiguration);
    return;
  }
  if (s && s->capturing) note(s, [=] { launch_now(f, grid, block, shared); });
  else if (lazy()) later(s, [=] { launch_now(f, grid, block, shared); });
  else launch_now(f, grid, block, shared);
}

cudaError_t emu_relaunch(cudaGraphExec_t, cudaGraphNode_t node, const std::function<void()> &f, dim3 grid, dim3 block,
                         size_t shared)
{
  node->f = [=] { launch_now(f, grid, block, shared); };
  if (getenv("AMP_EMULATOR_TRACE")) fprintf(stderr, "node told anew\n");
  return cudaSuccess;
}

void emu_name(const char *kernel)
{
  static const bool on = getenv("AMP_EMULATOR_TRACE") != nullptr;
  if (on) fprintf(stderr, "launch %s\n", kernel);
}

static cudaError_t perform(cudaStream_t s, const std::function<void()> &f)
{
  if (s && s->capturing) note(s, f);
  else later(s, f);
  return cudaSuccess;
}

static cudaError_t wait(cudaStream_t s)
{
  if (s && s->capturing) {
    s->broken = true;
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  catch_up(s);
  return cudaSuccess;
}

extern "C" {

cudaError_t cudaGetDeviceCount(int *n)
{
  const char *e = getenv("AMP_EMULATED_GPUS");
  *n = e ? atoi(e) : 1;
  return *n > 0 ? cudaSuccess : fail(cudaErrorNoDevice);
}
static thread_local int device;
static size_t memory()
{
  const char *e = getenv("AMP_EMULATED_MEMORY");
  return (size_t)(e ? atoi(e) : 1024) << 20;
} /* MiB */
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
  *a = { cudaMemoryTypeDevice, 0, (void *)p, nullptr };
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int i)
{
  int n;
  if (cudaGetDeviceCount(&n) != cudaSuccess || i < 0 || i >= n) return fail(cudaErrorInvalidDevice);
  device = i;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int *i)
{
  *i = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int)
{
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "emulated GPU");
  p->totalGlobalMem = memory();
  p->major = 9;
  p->minor = 0;
  {
    const char *e = getenv("AMP_EMULATED_SMS");
    p->multiProcessorCount = e ? atoi(e) : 2;
  }
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->sharedMemPerBlockOptin = 227 * 1024;
  p->l2CacheSize = 1 << 20;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *v)
{
  *v = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v)
{
  *v = 13000;
  return cudaSuccess;
}
static size_t taken;
cudaError_t cudaMemGetInfo(size_t *f, size_t *t)
{
  *t = memory();
  *f = *t > taken ? *t - taken : 0;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void **p, size_t n)
{
  *p = nullptr;
  if (n + taken > memory()) return fail(cudaErrorMemoryAllocation);
  size_t *q = (size_t *)malloc(n + 256);
  if (!q) return fail(cudaErrorMemoryAllocation);
  memset(q, 0xff, n + 256); /* NaN: what was not written shows */
  *q = n;
  taken += n;
  *p = (char *)q + 256;
  return cudaSuccess;
}
cudaError_t cudaFree(void *p)
{
  if (p) {
    catch_up_all();
    size_t *q = (size_t *)((char *)p - 256);
    taken -= *q;
    free(q);
  }
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned)
{
  *p = malloc(n);
  if (!*p) return fail(cudaErrorMemoryAllocation);
  std::lock_guard<std::recursive_mutex> guard(running);
  pinned[(const char *)*p] = n;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void *p)
{
  catch_up_all();
  std::lock_guard<std::recursive_mutex> guard(running);
  pinned.erase((const char *)p);
  free(p);
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void **d, void *h, unsigned)
{
  *d = h;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind, cudaStream_t s)
{
  if (n && kind == cudaMemcpyHostToDevice && lazy()
      && !is_pinned(src)) { /* ordinary memory is read before the call returns */
    std::vector<char> bytes((const char *)src, (const char *)src + n);
    return perform(s, [=] { memcpy(dst, bytes.data(), n); });
  }
  cudaError_t e = perform(s, [=] {
    if (n) memmove(dst, src, n);
  });
  return e == cudaSuccess && kind == cudaMemcpyDeviceToHost && lazy() && !is_pinned(dst) ? wait(s) : e;
}
cudaError_t cudaMemcpyPeerAsync(void *dst, int, const void *src, int, size_t n, cudaStream_t s)
{
  return perform(s, [=] {
    if (n) memmove(dst, src, n);
  });
}
cudaError_t cudaMemsetAsync(void *dst, int v, size_t n, cudaStream_t s)
{
  static const bool traced = getenv("AMP_EMULATOR_TRACE") != nullptr;
  if (traced) fprintf(stderr, "memset\n");
  return perform(s, [=] {
    if (n) memset(dst, v, n);
  });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
  *s = new emu_stream{ false, false, nullptr, nullptr, {} };
  std::lock_guard<std::recursive_mutex> guard(running);
  streams.push_back(*s);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
  catch_up(s);
  std::lock_guard<std::recursive_mutex> guard(running);
  streams.erase(std::find(streams.begin(), streams.end(), s));
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) { return wait(s); }
cudaError_t cudaStreamQuery(cudaStream_t s) /* asking is what makes a lazy stream go on */
{
  if (s->capturing) return wait(s);
  std::lock_guard<std::recursive_mutex> guard(running);
  step(s);
  return s->queue.empty() ? cudaSuccess : fail(cudaErrorNotReady);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
  std::shared_ptr<emu_mark> m = e->mark;
  if (s->capturing) return m && !m->done ? fail(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
  if (m) later(s, [m] { reach(m); });
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
  catch_up_all();
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
  *e = new emu_event;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
  std::shared_ptr<emu_mark> m(new emu_mark{ s, false, {} });
  e->mark = m;
  later(s, [m] {
    m->at = std::chrono::steady_clock::now();
    m->done = true;
  });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
  if (e->mark) reach(e->mark);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e)
{
  if (!e->mark || e->mark->done) return cudaSuccess;
  std::lock_guard<std::recursive_mutex> guard(running);
  step(e->mark->s);
  return e->mark->done ? cudaSuccess : fail(cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
  if (!a->mark || !b->mark || !a->mark->done || !b->mark->done) return fail(cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(b->mark->at - a->mark->at).count();
  return cudaSuccess;
}
cudaError_t cudaGetLastError(void)
{
  cudaError_t e = last_error;
  last_error = cudaSuccess;
  return e;
}
cudaError_t cudaPeekAtLastError(void) { return last_error; }
const char *cudaGetErrorString(cudaError_t e)
{
  return e == cudaSuccess                         ? "no error"
         : e == cudaErrorMemoryAllocation         ? "out of memory"
         : e == cudaErrorInvalidConfiguration     ? "invalid configuration argument"
         : e == cudaErrorStreamCaptureUnsupported ? "operation not permitted when stream is capturing"
         : e == cudaErrorNoDevice                 ? "no CUDA-capable device is detected"
                                                  : "an error";
}
const char *cudaGetErrorName(cudaError_t e) { return cudaGetErrorString(e); }
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode)
{
  if (s->capturing) return fail(cudaErrorInvalidValue);
  s->capturing = true;
  s->broken = false;
  s->noted = new emu_graph{ {}, 1 };
  s->now = new std::vector<emu_node *>;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
  *g = nullptr;
  if (!s->capturing) return fail(cudaErrorInvalidValue);
  s->capturing = false;
  std::vector<bool> joined(s->noted->node.size()); /* all must lead to what the stream depends on now */
  for (emu_node *k : *s->now) joined[(size_t)k->place] = true;
  for (size_t i = joined.size(); i-- > 0;)
    if (joined[i])
      for (emu_node *k : s->noted->node[i]->after) joined[(size_t)k->place] = true;
  for (bool b : joined) s->broken = s->broken || !b;
  delete s->now;
  if (s->broken) {
    drop(s->noted);
    return fail(cudaErrorStreamCaptureInvalidated);
  }
  if (getenv("AMP_EMULATOR_TRACE")) {
    std::vector<int> path(joined.size());
    int most = 0;
    for (size_t i = 0; i < path.size(); i++) {
      const emu_node *k = s->noted->node[i];
      for (const emu_node *a : k->after) path[i] = std::max(path[i], path[(size_t)a->place]);
      path[i] += k->f ? 1 : 0;
      most = std::max(most, path[i]);
    }
    fprintf(stderr, "graph of %zu nodes, %d in a line\n", path.size(), most);
  }
  *g = s->noted;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status)
{
  *status = !s->capturing ? cudaStreamCaptureStatusNone
            : s->broken   ? cudaStreamCaptureStatusInvalidated
                          : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *,
                                     cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *n)
{
  if (cudaStreamIsCapturing(s, status) != cudaSuccess) return cudaErrorInvalidValue;
  if (*status == cudaStreamCaptureStatusNone) return cudaSuccess;
  if (graph) *graph = s->noted;
  if (nodes) *nodes = s->now->data();
  if (edges) *edges = nullptr;
  if (n) *n = s->now->size();
  return cudaSuccess;
}
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t s, cudaGraphNode_t *nodes, const cudaGraphEdgeData *,
                                                size_t n, unsigned flags)
{
  if (!s->capturing) return fail(cudaErrorInvalidValue);
  std::vector<emu_node *> given(nodes, nodes + n);
  if (flags == cudaStreamSetCaptureDependencies) s->now->clear();
  for (emu_node *k : given) {
    bool there = false;
    for (emu_node *h : *s->now) there = there || h == k;
    if (!there) s->now->push_back(k);
  }
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *) { return cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long)
{
  g->refs++;
  *e = g;
  return cudaSuccess;
}
cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t, cudaGraphNode_t node, unsigned on)
{
  node->off = !on;
  if (getenv("AMP_EMULATOR_TRACE")) fprintf(stderr, "node %s\n", on ? "on" : "off");
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s)
{
  std::vector<std::function<void()>> work = work_of(e);
  e->refs++; /* one that is destroyed meanwhile runs yet */
  return perform(s, [=] {
    run_graph(e, work);
    drop(e);
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
  drop(g);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) { return cudaGraphDestroy(e); }
cudaError_t cudaGraphGetNodes(cudaGraph_t g, void *, size_t *n)
{
  *n = g->node.size();
  return cudaSuccess;
}

} // extern "C"

/* Newton's steps on erf from a rational start (Giles, 2010). */
double erfinv(double x)
{
  if (!(x > -1 && x < 1)) return x == 1 ? INFINITY : x == -1 ? -INFINITY : NAN;
  double w = -log((1 - x) * (1 + x)), y;
  if (w < 5) y = 1.50140941 + (w - 2.5) * (0.246640727 + (w - 2.5) * (-0.00417768164 + (w - 2.5) * -0.00125372503));
  else {
    double r = sqrt(w) - 3;
    y = 2.83297682 + r * (1.00167406 + r * (0.00943887047 + r * -0.0076224613));
  }
  y *= x;
  for (int i = 0; i < 4; i++) {
    double e = fabs(x) < 0.5 ? erf(y) - x : x > 0 ? (1 - x) - erfc(y) : erfc(-y) - (1 + x);
    y -= e * 0.88622692545275801365 * exp(y * y);
  }
  return y;
}
