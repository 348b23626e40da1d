/*
** emulator.cpp: the machine behind cuda_runtime.h of this folder.
**
** A block's threads run on fibers with stacks of their own. A fiber that has
** finished a thread takes the next one of the block, so a kernel without
** barriers costs no switch at all. At a barrier or a warp's exchange a fiber goes
** back to the scheduler, which runs whoever can go on. A thread that ended no
** longer counts, as on a GPU. A kernel that can't go on (a barrier that only a
** part of the threads will reach) ends the process with a line that says so.
*/
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <mutex>
#include <ucontext.h>
#include <vector>
#include "cuda_runtime.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
char *emu_shared;

/* -- Fibers -------------------------------------------------------------------- */

namespace {

enum { STACK = 128 << 10, MAX_THREADS = 1024 };
struct fiber {
  ucontext_t start;
  jmp_buf here;
  char *stack;
  bool made;
  int thread;        /* it runs, -1: none */
  bool waiting;      /* at the barrier */
  void *fake;
};
struct warp { uint64_t generation; int arrived, live; char value[2][32][8]; bool there[2][32]; };

fiber fibers[MAX_THREADS];
warp warps[MAX_THREADS / 32];
jmp_buf scheduler;
#if defined(__SANITIZE_ADDRESS__)
void *scheduler_fake;
const void *scheduler_stack;
size_t scheduler_size;
#endif
const std::function<void()> *body;
int nthread, next_thread, live, at_barrier, current;
uint64_t barrier_generation;
int barrier_sum[2];
std::recursive_mutex running;

void set_thread(int t)
{
  threadIdx.x = (unsigned)t % blockDim.x;
  threadIdx.y = (unsigned)t / blockDim.x % blockDim.y;
  threadIdx.z = (unsigned)t / blockDim.x / blockDim.y;
}

void to_scheduler(fiber *f)
{
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&f->fake, scheduler_stack, scheduler_size);
#endif
  if (_setjmp(f->here) == 0) _longjmp(scheduler, 1);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(f->fake, &scheduler_stack, &scheduler_size);
#endif
}

void release_barrier()
{
  at_barrier = 0;
  barrier_generation++;
  barrier_sum[barrier_generation & 1] = 0;
}

void fiber_main()
{
  fiber *f = &fibers[current];
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_size);
#endif
  for (;;) {
    while (next_thread < nthread) {
      f->thread = next_thread++;
      set_thread(f->thread);
      (*body)();
      warp *w = &warps[f->thread / 32];
      live--;
      if (--w->live > 0 && w->arrived == w->live) { w->arrived = 0; w->generation++; }
      if (live > 0 && at_barrier == live) release_barrier();
    }
    f->thread = -1;
    to_scheduler(f);
  }
}

void enter(int i)
{
  fiber *f = &fibers[i];
  current = i;
  if (f->thread >= 0) set_thread(f->thread);
  if (_setjmp(scheduler) == 0) {
#if defined(__SANITIZE_ADDRESS__)
    if (!f->made && f->stack == nullptr) f->stack = (char *)malloc(STACK * 4);
    __sanitizer_start_switch_fiber(&scheduler_fake, f->stack, STACK * 4);
#endif
    if (f->made) _longjmp(f->here, 1);
    f->made = true;
#if !defined(__SANITIZE_ADDRESS__)
    f->stack = (char *)malloc(STACK);
#endif
    getcontext(&f->start);
    f->start.uc_stack.ss_sp = f->stack;
#if defined(__SANITIZE_ADDRESS__)
    f->start.uc_stack.ss_size = STACK * 4;
#else
    f->start.uc_stack.ss_size = STACK;
#endif
    f->start.uc_link = nullptr;
    makecontext(&f->start, fiber_main, 0);
    setcontext(&f->start);
  }
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(scheduler_fake, nullptr, nullptr);
#endif
}

void run_block()
{
  int used = 0;
  live = nthread;
  next_thread = 0;
  at_barrier = 0;
  barrier_sum[0] = barrier_sum[1] = 0;
  for (int w = 0; w * 32 < nthread; w++) {
    warps[w].arrived = 0;
    warps[w].live = nthread - w * 32 < 32 ? nthread - w * 32 : 32;
    memset(warps[w].there, 0, sizeof warps[w].there);
  }
  for (int i = 0; i < MAX_THREADS && fibers[i].made; i++) fibers[i].thread = -1;
  while (live > 0) {
    int before = live;
    uint64_t moved = barrier_generation;
    for (int w = 0; w * 32 < nthread; w++) moved += warps[w].generation;
    for (int i = 0; i < used; i++)
      if (fibers[i].thread >= 0) enter(i);
    if (next_thread < nthread) {
      int i = 0;
      while (i < used && fibers[i].thread >= 0) i++;
      if (i == used) used++;
      enter(i);
      continue;
    }
    uint64_t now = barrier_generation;
    for (int w = 0; w * 32 < nthread; w++) now += warps[w].generation;
    if (live == before && moved == now) {
      fprintf(stderr, "emulator: a kernel can't go on: %d of %d threads wait at a barrier, others in a warp's exchange\n", at_barrier, live);
      abort();
    }
  }
}

} // namespace

extern "C" void emu_barrier(int pred, int *sum)
{
  fiber *f = &fibers[current];
  uint64_t g = barrier_generation;
  barrier_sum[g & 1] += pred;
  if (++at_barrier == live) {
    release_barrier();
    *sum = barrier_sum[g & 1];
    return;
  }
  while (barrier_generation == g) to_scheduler(f);
  *sum = barrier_sum[g & 1];
}

extern "C" void emu_exchange(const void *mine, void *all, size_t n)
{
  fiber *f = &fibers[current];
  warp *w = &warps[f->thread / 32];
  int lane = f->thread % 32;
  uint64_t g = w->generation;
  memcpy(w->value[g & 1][lane], mine, n);
  w->there[g & 1][lane] = true;
  if (++w->arrived == w->live) {
    w->arrived = 0;
    w->generation++;
    memset(w->there[(g + 1) & 1], 0, sizeof w->there[0]);
  } else while (w->generation == g) to_scheduler(f);
  for (int i = 0; i < 32; i++) {
    if (w->there[g & 1][i]) memcpy((char *)all + (size_t)i * n, w->value[g & 1][i], n);
    else memset((char *)all + (size_t)i * n, 0, n);
  }
}

/* -- Streams, graphs ------------------------------------------------------------- */

struct emu_node { std::function<void()> f; std::vector<emu_node *> after; int place; };
struct emu_graph { std::vector<emu_node *> node; int refs; };
struct emu_stream { bool capturing, broken; emu_graph *noted; std::vector<emu_node *> *now; };
struct emu_event { std::chrono::steady_clock::time_point at; };

static thread_local cudaError_t last_error = cudaSuccess;
static cudaError_t fail(cudaError_t e) { last_error = e; return e; }

/* One node more, after what the stream depends on */
static void note(cudaStream_t s, const std::function<void()> &f)
{
  emu_node *k = new emu_node{ f, *s->now, (int)s->noted->node.size() };
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

/* Every node after those it depends on, otherwise by chance */
static void run_graph(const emu_graph *g)
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
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    size_t at = shuffled ? state % ready.size() : 0;
    int i = ready[at];
    ready.erase(ready.begin() + (long)at);
    if (g->node[(size_t)i]->f) g->node[(size_t)i]->f();
    for (int j : next[(size_t)i]) if (--open[(size_t)j] == 0) ready.push_back(j);
  }
}

static void launch_now(const std::function<void()> &f, dim3 grid, dim3 block, size_t shared)
{
  std::lock_guard<std::recursive_mutex> guard(running);
  char *memory = (char *)malloc(shared + 16);
  memset(memory, 0xff, shared + 16); /* as little initialised as on a GPU */
  emu_shared = (char *)(((uintptr_t)memory + 15) & ~(uintptr_t)15);
  body = &f;
  blockDim = block;
  gridDim = grid;
  nthread = (int)(block.x * block.y * block.z);
  for (blockIdx.z = 0; blockIdx.z < grid.z; blockIdx.z++)
    for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
      for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++) run_block();
  free(memory);
}

void emu_launch(const std::function<void()> &f, dim3 grid, dim3 block, size_t shared, cudaStream_t s)
{
  uint64_t threads = (uint64_t)block.x * block.y * block.z;
  if (threads == 0 || threads > MAX_THREADS || grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 || shared > 227 * 1024) {
    fail(cudaErrorInvalidConfiguration);
    return;
  }
  if (s && s->capturing) note(s, [=] { launch_now(f, grid, block, shared); });
  else launch_now(f, grid, block, shared);
}

void emu_name(const char *kernel)
{
  static const bool on = getenv("AMP_EMULATOR_TRACE") != nullptr;
  if (on) fprintf(stderr, "launch %s\n", kernel);
}

static cudaError_t perform(cudaStream_t s, const std::function<void()> &f)
{
  if (s && s->capturing) note(s, f);
  else f();
  return cudaSuccess;
}

static cudaError_t wait(cudaStream_t s)
{
  if (s && s->capturing) { s->broken = true; return fail(cudaErrorStreamCaptureUnsupported); }
  return cudaSuccess;
}

extern "C" {

cudaError_t cudaGetDeviceCount(int *n) { const char *e = getenv("AMP_EMULATED_GPUS"); *n = e ? atoi(e) : 1; return *n > 0 ? cudaSuccess : fail(cudaErrorNoDevice); }
static thread_local int device;
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) { *a = { cudaMemoryTypeDevice, 0, (void *)p, nullptr }; return cudaSuccess; }
cudaError_t cudaSetDevice(int i) { int n; cudaGetDeviceCount(&n); if (i < 0 || i >= n) return fail(cudaErrorInvalidDevice); device = i; return cudaSuccess; }
cudaError_t cudaGetDevice(int *i) { *i = device; return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int)
{
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "emulated GPU");
  p->totalGlobalMem = (size_t)1 << 30;
  p->major = 9; p->minor = 0; { const char *e = getenv("AMP_EMULATED_SMS"); p->multiProcessorCount = e ? atoi(e) : 2; } p->warpSize = 32; p->maxThreadsPerBlock = 1024; p->sharedMemPerBlockOptin = 227 * 1024;
  p->l2CacheSize = 1 << 20;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *v) { *v = 13000; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *v) { *v = 13000; return cudaSuccess; }
static size_t taken;
cudaError_t cudaMemGetInfo(size_t *f, size_t *t) { *t = (size_t)1 << 30; *f = *t > taken ? *t - taken : 0; return cudaSuccess; }
cudaError_t cudaMalloc(void **p, size_t n)
{
  *p = nullptr;
  if (n + taken > (size_t)1 << 30) return fail(cudaErrorMemoryAllocation);
  size_t *q = (size_t *)malloc(n + 256);
  if (!q) return fail(cudaErrorMemoryAllocation);
  memset(q, 0xff, n + 256); /* NaN: what nobody wrote shows */
  *q = n;
  taken += n;
  *p = (char *)q + 256;
  return cudaSuccess;
}
cudaError_t cudaFree(void *p) { if (p) { size_t *q = (size_t *)((char *)p - 256); taken -= *q; free(q); } return cudaSuccess; }
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned) { *p = malloc(n); return *p ? cudaSuccess : fail(cudaErrorMemoryAllocation); }
cudaError_t cudaFreeHost(void *p) { free(p); return cudaSuccess; }
cudaError_t cudaHostGetDevicePointer(void **d, void *h, unsigned) { *d = h; return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, enum cudaMemcpyKind, cudaStream_t s) { return perform(s, [=] { if (n) memmove(dst, src, n); }); }
cudaError_t cudaMemcpyPeerAsync(void *dst, int, const void *src, int, size_t n, cudaStream_t s) { return perform(s, [=] { if (n) memmove(dst, src, n); }); }
cudaError_t cudaMemsetAsync(void *dst, int v, size_t n, cudaStream_t s) { return perform(s, [=] { if (n) memset(dst, v, n); }); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) { *s = new emu_stream{ false, false, nullptr, nullptr }; return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t s) { delete s; return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t s) { return wait(s); }
cudaError_t cudaStreamQuery(cudaStream_t s) { return wait(s); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) { *e = new emu_event; return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t e) { delete e; return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t) { e->at = std::chrono::steady_clock::now(); return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) { *ms = std::chrono::duration<float, std::milli>(b->at - a->at).count(); return cudaSuccess; }
cudaError_t cudaGetLastError(void) { cudaError_t e = last_error; last_error = cudaSuccess; return e; }
cudaError_t cudaPeekAtLastError(void) { return last_error; }
const char *cudaGetErrorString(cudaError_t e)
{
  return e == cudaSuccess ? "no error" : e == cudaErrorMemoryAllocation ? "out of memory" : e == cudaErrorInvalidConfiguration ? "invalid configuration argument"
       : e == cudaErrorStreamCaptureUnsupported ? "operation not permitted when stream is capturing" : e == cudaErrorNoDevice ? "no CUDA-capable device is detected" : "an error";
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
    if (joined[i]) for (emu_node *k : s->noted->node[i]->after) joined[(size_t)k->place] = true;
  for (bool b : joined) s->broken = s->broken || !b;
  delete s->now;
  if (s->broken) { drop(s->noted); return fail(cudaErrorStreamCaptureInvalidated); }
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
  *status = !s->capturing ? cudaStreamCaptureStatusNone : s->broken ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *, cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges, size_t *n)
{
  cudaStreamIsCapturing(s, status);
  if (*status == cudaStreamCaptureStatusNone) return cudaSuccess;
  if (graph) *graph = s->noted;
  if (nodes) *nodes = s->now->data();
  if (edges) *edges = nullptr;
  if (n) *n = s->now->size();
  return cudaSuccess;
}
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t s, cudaGraphNode_t *nodes, const cudaGraphEdgeData *, size_t n, unsigned flags)
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
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *nodes, size_t n)
{
  *node = new emu_node{ nullptr, std::vector<emu_node *>(nodes, nodes + n), (int)graph->node.size() };
  graph->node.push_back(*node);
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *) { return cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long) { g->refs++; *e = g; return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s)
{
  return perform(s, [=] { run_graph(e); });
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) { drop(g); return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) { return cudaGraphDestroy(e); }
cudaError_t cudaGraphGetNodes(cudaGraph_t g, void *, size_t *n) { *n = g->node.size(); return cudaSuccess; }

} // extern "C"

/* Newton's steps on erf from a rational start (Giles, 2010). */
double erfinv(double x)
{
  if (!(x > -1 && x < 1)) return x == 1 ? INFINITY : x == -1 ? -INFINITY : NAN;
  double w = -log((1 - x) * (1 + x)), y;
  if (w < 5) y = 1.50140941 + (w - 2.5) * (0.246640727 + (w - 2.5) * (-0.00417768164 + (w - 2.5) * -0.00125372503));
  else { double r = sqrt(w) - 3; y = 2.83297682 + r * (1.00167406 + r * (0.00943887047 + r * -0.0076224613)); }
  y *= x;
  for (int i = 0; i < 4; i++) {
    double e = fabs(x) < 0.5 ? erf(y) - x : x > 0 ? (1 - x) - erfc(y) : erfc(-y) - (1 + x);
    y -= e * 0.88622692545275801365 * exp(y * y);
  }
  return y;
}
