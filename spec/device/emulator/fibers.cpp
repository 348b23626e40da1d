/*
** fibers.cpp: a launch on the emulator: blocks one after the other, their threads on fibers.
**
** A block's threads run on fibers with stacks of their own. A fiber that has
** finished a thread takes the next one of the block, so a kernel without
** barriers costs no switch at all. At a barrier or a warp's exchange a fiber goes
** back to the scheduler, which runs those that can go on, in turn. A switch is a
** dozen instructions of its own on x86-64 and arm64, swapcontext elsewhere. A thread
** that ended no longer counts, as on a GPU. A kernel that can't go on (a barrier that
** only a part of the threads will reach) ends the process with a line that says so.
*/
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>
#include "emulator.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
char *emu_shared;
std::recursive_mutex running;

/* -- Switches ------------------------------------------------------------------ */

/* Where a stack's owner stopped */
#if defined(__x86_64__) || defined(__aarch64__)
typedef void *place;
extern "C" void emu_switch(place *from,
                           place to); /* keeps the registers that a call keeps on the stack that it leaves */
#if defined(__x86_64__)
__asm__(".text\n.hidden emu_switch\n.globl emu_switch\n.type emu_switch, @function\nemu_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
        ".size emu_switch, . - emu_switch\n");
enum { RETURN = 6, FRAME = 8 }; /* in words: six registers, the address, one that makes it even */
#else
__asm__(".text\n.hidden emu_switch\n.globl emu_switch\n.type emu_switch, %function\nemu_switch:\n"
        "  sub sp, sp, #160\n  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
        "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
        "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
        "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
        "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
        "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
        "  add sp, sp, #160\n  ret\n"
        ".size emu_switch, . - emu_switch\n");
enum { RETURN = 11, FRAME = 20 };
#endif
static void prepare(place *at, char *stack, size_t size, void (*entry)())
{
  void **top = (void **)((uintptr_t)(stack + size) & ~(uintptr_t)15) - FRAME;
  memset(top, 0, FRAME * sizeof *top);
  top[RETURN] = (void *)entry;
  *at = top;
}
#else
typedef ucontext_t place;
#define emu_switch(from, to) swapcontext(from, &(to))
static void prepare(place *at, char *stack, size_t size, void (*entry)())
{
  getcontext(at);
  at->uc_stack.ss_sp = stack;
  at->uc_stack.ss_size = size;
  at->uc_link = nullptr;
  makecontext(at, entry, 0);
}
#endif

/* -- Fibers -------------------------------------------------------------------- */

namespace {

#if defined(__SANITIZE_ADDRESS__)
enum { STACK = 512 << 10 };
#else
enum { STACK = 128 << 10 };
#endif
struct fiber {
  place here;
  char *stack;
  int thread;                /* it runs, -1: none */
  uint3 index;               /* of that thread */
  const uint64_t *waits_for; /* a generation other than `seen`; NULL: it can go on */
  uint64_t seen;
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
place scheduler;
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

void set_thread(fiber *f, int t)
{
  f->thread = t;
  f->index.x = (unsigned)t % blockDim.x;
  f->index.y = (unsigned)t / blockDim.x % blockDim.y;
  f->index.z = (unsigned)t / blockDim.x / blockDim.y;
  threadIdx = f->index;
}

void to_scheduler(fiber *f)
{
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&f->fake, scheduler_stack, scheduler_size);
#endif
  emu_switch(&f->here, scheduler);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(f->fake, &scheduler_stack, &scheduler_size);
#endif
}

/* Until the generation is another than now */
void wait_for(fiber *f, const uint64_t *generation)
{
  f->waits_for = generation;
  f->seen = *generation;
  to_scheduler(f);
  f->waits_for = nullptr;
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
      set_thread(f, backward ? nthread - 1 - next_thread : next_thread);
      next_thread++;
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
  if (f->thread >= 0) threadIdx = f->index;
  if (f->stack == nullptr) {
    f->stack = (char *)malloc(STACK);
    prepare(&f->here, f->stack, STACK, fiber_main);
  }
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&scheduler_fake, f->stack, STACK);
#endif
  emu_switch(&scheduler, f->here);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(scheduler_fake, nullptr, nullptr);
#endif
}

bool can_go_on(const fiber *f) { return f->thread >= 0 && (f->waits_for == nullptr || *f->waits_for != f->seen); }

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
  for (int i = 0; i < MAX_THREADS && fibers[i].stack; i++) fibers[i].thread = -1;
  for (int i = 0; i < nthread; i++) {
    pipelines[i].open.clear();
    pipelines[i].groups.clear();
  }
  while (next_thread < nthread) enter(used++);
  while (live > 0) {
    bool moved = false;
    for (int i = 0; i < used; i++) {
      if (!can_go_on(&fibers[i])) continue;
      enter(i);
      moved = true;
    }
    if (!moved) {
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
  wait_for(f, &barrier_generation);
  *sum = barrier_sum[g & 1];
}

/* Gives a lane's bytes to its warp and waits for the others'; the generation in which they lie */
static uint64_t meet(warp *w, fiber *f, const void *mine, size_t n)
{
  int lane = f->thread % 32;
  uint64_t g = w->generation;
  memcpy(w->value[g & 1][lane], mine, n);
  w->there[g & 1][lane] = true;
  if (++w->arrived == w->live) {
    w->arrived = 0;
    w->generation++;
    memset(w->there[(g + 1) & 1], 0, sizeof w->there[0]);
  } else wait_for(f, &w->generation);
  return g;
}

extern "C" void emu_exchange(const void *mine, void *all, size_t n)
{
  fiber *f = &fibers[current];
  warp *w = &warps[f->thread / 32];
  uint64_t g = meet(w, f, mine, n);
  for (int i = 0; i < 32; i++) {
    if (w->there[g & 1][i]) memcpy((char *)all + (size_t)i * n, w->value[g & 1][i], n);
    else memset((char *)all + (size_t)i * n, 0, n);
  }
}

extern "C" void emu_take(const void *mine, int lane, void *theirs, size_t n)
{
  fiber *f = &fibers[current];
  warp *w = &warps[f->thread / 32];
  uint64_t g = meet(w, f, mine, n);
  if (w->there[g & 1][lane]) memcpy(theirs, w->value[g & 1][lane], n);
  else memset(theirs, 0, n);
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
