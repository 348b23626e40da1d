/*
** fibers.cpp: a launch on the emulator: blocks one after the other, their threads on fibers.
**
** A block's threads run on fibers with stacks of their own. A fiber that has
** finished a thread takes the next one of the block, so a kernel without
** barriers costs no switch at all. At a barrier or a warp's exchange a fiber goes
** back to the scheduler, which runs one that can go on. A thread that ended no
** longer counts, as on a GPU. A kernel that can't go on (a barrier that only a
** part of the threads will reach) ends the process with a line that says so.
*/
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <ucontext.h>
#include <vector>
#include "emulator.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
char *emu_shared;
std::recursive_mutex running;

/* -- Fibers -------------------------------------------------------------------- */

namespace {

enum { STACK = 128 << 10 };
struct fiber {
  ucontext_t start;
  jmp_buf here;
  char *stack;
  bool made;
  int thread;   /* it runs, -1: none */
  bool waiting; /* at the barrier */
  void *fake;
};
struct warp {
  uint64_t generation;
  int arrived, live;
  char value[2][32][24];
  bool there[2][32];
};

struct copy {
  char *to;
  const char *from;
  size_t n;
};
struct pipeline {
  std::vector<copy> open;
  std::vector<std::vector<copy>> groups;
};
fiber fibers[MAX_THREADS];
pipeline pipelines[MAX_THREADS];
warp warps[MAX_THREADS / 32];
jmp_buf scheduler;
#if defined(__SANITIZE_ADDRESS__)
void *scheduler_fake;
const void *scheduler_stack;
size_t scheduler_size;
#endif
const std::function<void()> *body;
int nthread, next_thread, live, at_barrier, current;
bool backward;
uint64_t barrier_generation;
int barrier_sum[2];

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
      f->thread = backward ? nthread - 1 - next_thread : next_thread;
      next_thread++;
      set_thread(f->thread);
      (*body)();
      warp *w = &warps[f->thread / 32];
      live--;
      if (--w->live > 0 && w->arrived == w->live) {
        w->arrived = 0;
        w->generation++;
      }
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
  for (int i = 0; i < nthread; i++) {
    pipelines[i].open.clear();
    pipelines[i].groups.clear();
  }
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
      fprintf(stderr,
              "emulator: a kernel can't go on: %d of %d threads wait at a barrier, others in a warp's exchange\n",
              at_barrier, live);
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
  } else
    while (w->generation == g) to_scheduler(f);
  for (int i = 0; i < 32; i++) {
    if (w->there[g & 1][i]) memcpy((char *)all + (size_t)i * n, w->value[g & 1][i], n);
    else memset((char *)all + (size_t)i * n, 0, n);
  }
}

/* -- Copies in the background ------------------------------------------------------ */

extern "C" void emu_async_copy(void *to, const void *from, size_t n)
{
  if (((uintptr_t)to | (uintptr_t)from) % n) {
    fprintf(stderr, "a copy of %zu bytes is not aligned\n", n);
    abort();
  }
  pipelines[fibers[current].thread].open.push_back({ (char *)to, (const char *)from, n });
}

extern "C" void emu_async_commit(void)
{
  pipeline &p = pipelines[fibers[current].thread];
  p.groups.push_back(std::move(p.open));
  p.open.clear();
}

extern "C" void emu_async_wait(int left)
{
  pipeline &p = pipelines[fibers[current].thread];
  while ((int)p.groups.size() > left) {
    for (const copy &c : p.groups.front()) {
      if (c.from) memcpy(c.to, c.from, c.n);
      else memset(c.to, 0, c.n);
    }
    p.groups.erase(p.groups.begin());
  }
}

/* -- A launch ------------------------------------------------------------------------- */

void launch_now(const std::function<void()> &f, dim3 grid, dim3 block, size_t shared)
{
  std::lock_guard<std::recursive_mutex> guard(running);
  char *memory = (char *)malloc(shared + 16);
  memset(memory, 0xff, shared + 16); /* as little initialised as on a GPU */
  emu_shared = (char *)(((uintptr_t)memory + 15) & ~(uintptr_t)15);
  body = &f;
  blockDim = block;
  gridDim = grid;
  nthread = (int)(block.x * block.y * block.z);
  const char *order
      = getenv("AMP_EMULATED_ORDER"); /* backward: the last block and thread first, for sums that depend on it */
  backward = order && strcmp(order, "backward") == 0;
  uint64_t n = (uint64_t)grid.x * grid.y * grid.z;
  for (uint64_t i = 0; i < n; i++) {
    uint64_t at = backward ? n - 1 - i : i;
    blockIdx.x = (unsigned)(at % grid.x);
    blockIdx.y = (unsigned)(at / grid.x % grid.y);
    blockIdx.z = (unsigned)(at / grid.x / grid.y);
    run_block();
  }
  free(memory);
}
