/*
** streams.cpp: streams, events and graphs of the emulator.
**
** What a stream has to do is a queue of functions that say whether they are done: a copy is at once, a call to other
** processes (nccl.cpp) when those have come. A stream that meets one which is not waits there, while others go on.
** Unless streams are lazy they do at once whatever they can. A stream that waits for an event of a capturing one is
** captured with it, as CUDA has it, and must lead back to it before the capture ends.
*/
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>
#include "emulator.h"

struct emu_node {
  emu_work f;
  std::vector<emu_node *> after;
  int place;
  bool off;
};
struct emu_graph {
  std::vector<emu_node *> node;
  int refs;
};
struct emu_stream {
  bool capturing, broken, guest, stepping, stuck; /* guest: of another stream's capture; stuck: its first is not done */
  emu_graph *noted;
  std::vector<emu_node *> *now;
  std::deque<emu_work> queue;
};
struct emu_mark {
  emu_stream *s;
  bool done;
  std::chrono::steady_clock::time_point at;
  emu_graph *noted; /* of a capture: what it depends on there */
  std::vector<emu_node *> nodes;
};
struct emu_event {
  std::shared_ptr<emu_mark> mark;
};

/* With AMP_EMULATED_LAZY=1 a stream does nothing until it has to: a wait, an event that another stream waits for, a
** free. What must be ordered by an event, and is not, then shows. */
static bool lazy()
{
  static const bool on = getenv("AMP_EMULATED_LAZY") != nullptr;
  return on;
}
static std::vector<emu_stream *> &streams = *new std::vector<emu_stream *>; /* threads look at it to the very end */

/* -- Queues ------------------------------------------------------------------------ */

/* The stream's first function, if it can be done now */
static bool step(emu_stream *s)
{
  if (s->stepping || s->queue.empty()) return false;
  s->stepping = true;
  bool done = s->queue.front()();
  s->stepping = false;
  s->stuck = !done;
  if (done) s->queue.pop_front();
  return done;
}

/* Something somewhere, while the caller's own stream waits for another process */
static void let_others()
{
  bool moved = false;
  for (size_t i = 0; i < streams.size(); i++) moved = step(streams[i]) || moved;
  if (!moved) usleep(50);
}

/* Cards go on by themselves: for a thread that has nothing else to do */
void emu_go_on()
{
  std::lock_guard<std::recursive_mutex> guard(running);
  for (size_t i = 0; i < streams.size(); i++)
    if (streams[i]->stuck)
      while (step(streams[i]) && !lazy()) {}
}

static void catch_up(emu_stream *s)
{
  std::lock_guard<std::recursive_mutex> guard(running);
  while (s && !s->queue.empty())
    if (!step(s)) let_others();
}
void emu_catch_up_all()
{
  std::lock_guard<std::recursive_mutex> guard(running);
  for (size_t i = 0; i < streams.size(); i++) catch_up(streams[i]);
}

static bool reached(const std::shared_ptr<emu_mark> &m)
{
  while (!m->done && step(m->s)) {}
  return m->done;
}

static void later(emu_stream *s, const emu_work &f)
{
  std::lock_guard<std::recursive_mutex> guard(running);
  if (s == nullptr) {
    while (!f()) let_others();
    return;
  }
  s->queue.push_back(f);
  while (!lazy() && step(s)) {}
}

/* -- Graphs -------------------------------------------------------------------------- */

/* One node more, after what the stream depends on */
static void note(cudaStream_t s, const emu_work &f)
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

/* A launch of a graph: every node after those it depends on, otherwise by chance. What its nodes do is settled now;
** they may do something else in a later launch. */
struct emu_run {
  std::vector<emu_work> work;
  std::vector<int> open, ready;
  std::vector<std::vector<int>> next;

  explicit emu_run(const emu_graph *g) : open(g->node.size()), next(g->node.size())
  {
    for (const emu_node *k : g->node) {
      work.push_back(k->off ? nullptr : k->f);
      open[(size_t)k->place] = (int)k->after.size();
      for (const emu_node *d : k->after) next[(size_t)d->place].push_back(k->place);
      if (k->after.empty()) ready.push_back(k->place);
    }
  }

  /* Whatever can be done now; true: all is */
  bool go()
  {
    static uint64_t state = 88172645463325252u;
    static const bool shuffled = getenv("AMP_EMULATOR_IN_ORDER") == nullptr;
    for (size_t tries = 0; !ready.empty() && tries < ready.size();) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      size_t at = tries ? (tries + 1) % ready.size() : shuffled ? state % ready.size() : 0;
      int i = ready[at];
      if (work[(size_t)i] && !work[(size_t)i]()) { /* of several that wait for others the one that began first */
        tries++;
        continue;
      }
      tries = 0;
      ready.erase(ready.begin() + (long)at);
      for (int j : next[(size_t)i])
        if (--open[(size_t)j] == 0) ready.push_back(j);
    }
    return ready.empty();
  }
};

/* -- Launches and copies ----------------------------------------------------------- */

void emu_queue(cudaStream_t s, const emu_work &f)
{
  if (s && s->capturing) note(s, f);
  else later(s, f);
}

static cudaError_t perform(cudaStream_t s, const std::function<void()> &f)
{
  emu_queue(s, [f] {
    f();
    return true;
  });
  return cudaSuccess;
}

void emu_launch(const std::function<void()> &f, dim3 grid, dim3 block, size_t shared, cudaStream_t s)
{
  uint64_t threads = (uint64_t)block.x * block.y * block.z;
  if (threads == 0 || threads > MAX_THREADS || grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535
      || grid.z > 65535 || shared > 227 * 1024) {
    emu_fail(cudaErrorInvalidConfiguration);
    return;
  }
  perform(s, [=] { launch_now(f, grid, block, shared); });
}

cudaError_t emu_relaunch(cudaGraphExec_t, cudaGraphNode_t node, const std::function<void()> &f, dim3 grid, dim3 block,
                         size_t shared)
{
  node->f = [=] {
    launch_now(f, grid, block, shared);
    return true;
  };
  if (getenv("AMP_EMULATOR_TRACE")) fprintf(stderr, "node told anew\n");
  return cudaSuccess;
}

static cudaError_t wait(cudaStream_t s)
{
  if (s && s->capturing) {
    s->broken = true;
    return emu_fail(cudaErrorStreamCaptureUnsupported);
  }
  catch_up(s);
  return cudaSuccess;
}

static bool behind(cudaStream_t s) { return s && (lazy() || !s->queue.empty()); }

extern "C" {

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind, cudaStream_t s)
{
  if (n && kind == cudaMemcpyHostToDevice && behind(s)
      && !emu_pinned(src)) { /* ordinary memory is read before the call returns */
    std::vector<char> bytes((const char *)src, (const char *)src + n);
    return perform(s, [=] { memcpy(dst, bytes.data(), n); });
  }
  bool waits = kind == cudaMemcpyDeviceToHost && behind(s) && !emu_pinned(dst);
  cudaError_t e = perform(s, [=] {
    if (n) memmove(dst, src, n);
  });
  return e == cudaSuccess && waits ? wait(s) : e;
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

/* -- Streams and events ---------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
  *s = new emu_stream{ false, false, false, false, false, nullptr, nullptr, {} };
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
  return s->queue.empty() ? cudaSuccess : emu_fail(cudaErrorNotReady);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
  std::shared_ptr<emu_mark> m = e->mark;
  if (m && m->noted) {
    if (s->capturing && s->noted != m->noted) return emu_fail(cudaErrorStreamCaptureUnsupported);
    if (!s->capturing) {
      s->capturing = s->guest = true;
      s->broken = false;
      s->noted = m->noted;
      s->now = new std::vector<emu_node *>;
    }
    for (emu_node *k : m->nodes)
      if (std::find(s->now->begin(), s->now->end(), k) == s->now->end()) s->now->push_back(k);
    return cudaSuccess;
  }
  if (s->capturing) return m && !m->done ? emu_fail(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
  if (m) later(s, [m] { return reached(m); });
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
  emu_catch_up_all();
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
  std::shared_ptr<emu_mark> m(new emu_mark{ s, false, {}, nullptr, {} });
  e->mark = m;
  if (s && s->capturing) {
    m->noted = s->noted;
    m->nodes = *s->now;
    return cudaSuccess;
  }
  later(s, [m] {
    m->at = std::chrono::steady_clock::now();
    m->done = true;
    return true;
  });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
  if (e->mark && e->mark->noted) return emu_fail(cudaErrorCapturedEvent);
  std::lock_guard<std::recursive_mutex> guard(running);
  while (e->mark && !reached(e->mark)) let_others();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e)
{
  std::shared_ptr<emu_mark> m = e->mark;
  if (m && m->noted) return emu_fail(cudaErrorCapturedEvent);
  if (!m || m->done) return cudaSuccess;
  std::unique_lock<std::recursive_mutex> guard(running, std::try_to_lock); /* another thread is at the streams */
  if (guard.owns_lock()) step(m->s);
  return m->done ? cudaSuccess : emu_fail(cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
  if (!a->mark || !b->mark || !a->mark->done || !b->mark->done) return emu_fail(cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(b->mark->at - a->mark->at).count();
  return cudaSuccess;
}

/* -- Captures ---------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode)
{
  if (s->capturing) return emu_fail(cudaErrorInvalidValue);
  s->capturing = true;
  s->broken = s->guest = false;
  s->noted = new emu_graph{ {}, 1 };
  s->now = new std::vector<emu_node *>;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
  *g = nullptr;
  if (!s->capturing || s->guest) return emu_fail(cudaErrorInvalidValue);
  s->capturing = false;
  std::vector<bool> joined(s->noted->node.size()); /* all must lead to what the stream depends on now */
  for (emu_node *k : *s->now) joined[(size_t)k->place] = true;
  for (size_t i = joined.size(); i-- > 0;)
    if (joined[i])
      for (emu_node *k : s->noted->node[i]->after) joined[(size_t)k->place] = true;
  for (bool b : joined) s->broken = s->broken || !b;
  delete s->now;
  for (emu_stream *other : streams) {
    if (!other->guest || other->noted != s->noted) continue;
    s->broken = s->broken || other->broken;
    other->capturing = other->guest = false;
    delete other->now;
  }
  if (s->broken) {
    drop(s->noted);
    return emu_fail(cudaErrorStreamCaptureInvalidated);
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
  if (!s->capturing) return emu_fail(cudaErrorInvalidValue);
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
  std::shared_ptr<emu_run> run(new emu_run(e));
  e->refs++; /* one that is destroyed meanwhile runs yet */
  emu_queue(s, [=] {
    if (!run->go()) return false;
    drop(e);
    return true;
  });
  return cudaSuccess;
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
