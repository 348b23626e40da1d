/*
** optim_quick.cuh: the kernel of SGD and Adam in float32.
**
** A block has 256 threads and one stretch of the line of elements, a thread 8 elements a turn in registers; the
** constants of up to 64 parameters lie in shared memory. Adam moves 28 bytes an element (gradient, master and two
** states read, master and states written) and 2 more with a 16-bit shadow, SGD 12: memory's speed bounds it. A small
** step is bound by the way to memory, so all that is read depends on nothing but the launch's argument and is on its
** way before the first of it is looked at.
*/
#ifndef AMP_OPTIM_QUICK_CUH
#define AMP_OPTIM_QUICK_CUH
#include "optim/optim.cuh"

namespace {

enum { KEEP = 64 }; /* a block of more parameters is for the other kernel */

/* Whether this thread's share of all gradients of the launch has one that is not finite */
enum { TURNS = 8 }; /* asked for at once */
typedef struct glance {
  amp_raw raw[TURNS];
  int32_t dtype[TURNS], parameter;
} glance; /* i: the parameter that the last one was of */

/* Ask for what this thread looks at from unit u on; what must be read one by one is looked at */
template <int MOST> __device__ __forceinline__ int ask_gradients(const list<MOST> &l, uint32_t u, glance &t)
{
  const header &o = l.head;
  int bad = 0;
#pragma unroll
  for (int j = 0; j < TURNS; j++) {
    const uint32_t v = u + j * THREADS;
    t.raw[j].a = t.raw[j].b = make_uint4(0, 0, 0, 0);
    t.dtype[j] = AMP_FLOAT32;
    if (v < o.total) {
      while (t.parameter + 1 < o.n && l.c[t.parameter + 1].at <= v) t.parameter++;
      const chunk &k = l.c[t.parameter];
      const int64_t e = (int64_t)(v - k.at) * N;
      t.dtype[j] = k.grad_dtype;
      if (e + N <= k.n) amp_ask(t.raw[j], k.grad, k.grad_dtype, e);
      else
        for (int64_t q = e; q < k.n; q++) bad |= amp_bad_value(amp_load<float>(k.grad, k.grad_dtype, q));
    }
  }
  return bad;
}

__device__ __forceinline__ int bad_of(const glance &t)
{
  int bad = 0;
#pragma unroll
  for (int j = 0; j < TURNS; j++) bad |= amp_bad_quad(t.raw[j].a, t.dtype[j]) | amp_bad_quad(t.raw[j].b, t.dtype[j]);
  return bad;
}

template <int WHAT> __device__ __forceinline__ int kind_of(const header &o)
{
  return WHAT == ADAM ? o.kind : (int)AMP_SGD;
}

/* The last parameter that begins at unit `from` or before */
template <int MOST> __device__ __forceinline__ int parameter_at(const list<MOST> &l, uint32_t from)
{
  int lo = 0, hi = l.head.n - 1;
  while (lo < hi) {
    int mid = (lo + hi + 1) / 2;
    if (l.c[mid].at <= from) lo = mid;
    else hi = mid - 1;
  }
  return lo;
}

/* What is made once a block: constants of its parameters, from parameter lo on, and (LOOK) whether all gradients of the
** launch are finite, by all blocks alike. False: a value is not finite, and the step is not made. */
template <bool LOOK, int MOST>
__device__ __forceinline__ int begin_block(const list<MOST> &l, int kind, int lo, uint32_t to, int bad,
                                           consts<float> *shared)
{
  const header &o = l.head;
  const int q = lo + (int)threadIdx.x;
  glance t;
  t.parameter = 0;
  if constexpr (LOOK) { bad |= ask_gradients(l, threadIdx.x, t); }
  if (threadIdx.x < KEEP && q < o.n && l.c[q].at < to)
    prepare(shared[threadIdx.x], kind, o.there ? *o.there : o.h, l.c[q]);
  if constexpr (LOOK) {
    bad |= bad_of(t);
    for (uint32_t v = threadIdx.x + TURNS * THREADS; v < o.total; v += TURNS * THREADS) {
      bad |= ask_gradients(l, v, t);
      bad |= bad_of(t);
    }
  }
  bad = __syncthreads_or(bad);
  if (bad && LOOK && blockIdx.x == 0 && threadIdx.x == 0) *o.mark = 1.f;
  return bad;
}

/* A thread's N elements on their way */
typedef struct eight {
  amp_raw grad, master;
  float s0[N], s1[N];
} eight;

template <int WHAT> __device__ __forceinline__ void ask_eight(const chunk &k, int64_t e, eight &v)
{
  amp_ask(v.grad, k.grad, k.grad_dtype, e);
  amp_ask(v.master, k.master, k.master_dtype, e);
  if (WHAT >= MOMENTUM) amp_load_n<N>(v.s0, k.s0, AMP_FLOAT32, e);
  if (WHAT == ADAM) amp_load_n<N>(v.s1, k.s1, AMP_FLOAT32, e);
}

/* Elements e .. e + N - 1 make their step */
template <int WHAT>
__device__ __forceinline__ void step_eight(int kind, const chunk &k, int64_t e, eight &v, const consts<float> &c)
{
  float p[N], g[N], none = 0;
  amp_take(g, v.grad, k.grad_dtype);
  amp_take(p, v.master, k.master_dtype);
#pragma unroll
  for (int j = 0; j < N; j++) element<float, WHAT>(kind, 0, p[j], g[j], v.s0[j], v.s1[j], none, c, NULL);
  amp_store_n<N>(k.master, k.master_dtype, e, p);
  if (k.shadow) amp_store_n<N>(k.shadow, k.shadow_dtype, e, p);
  if (WHAT >= MOMENTUM) amp_store_n<N>(k.s0, AMP_FLOAT32, e, v.s0);
  if (WHAT == ADAM) amp_store_n<N>(k.s1, AMP_FLOAT32, e, v.s1);
}

/* The same one by one: at the end of a parameter, or where it is not aligned */
template <int WHAT>
__device__ __forceinline__ void step_singly(int kind, const chunk &k, int64_t e, const consts<float> &c)
{
  float none = 0;
  for (int64_t j = e; j < k.n && j < e + N; j++) {
    float q = amp_load<float>(k.master, k.master_dtype, j), x = amp_load<float>(k.grad, k.grad_dtype, j);
    float a = WHAT >= MOMENTUM ? ((float *)k.s0)[j] : 0, b = WHAT == ADAM ? ((float *)k.s1)[j] : 0;
    element<float, WHAT>(kind, 0, q, x, a, b, none, c, NULL);
    amp_store<float>(k.master, k.master_dtype, j, q);
    if (k.shadow) amp_store<float>(k.shadow, k.shadow_dtype, j, q);
    if (WHAT >= MOMENTUM) ((float *)k.s0)[j] = a;
    if (WHAT == ADAM) ((float *)k.s1)[j] = b;
  }
}

/* A warp of the last block: all parameters' step counts grow; `steps`: a thread's first counts, read before the others
** were done */
template <int MOST> __device__ __forceinline__ void count_steps(const list<MOST> &l, int kind, double (&steps)[2])
{
  for (int q = threadIdx.x; q < l.head.n; q += 32) {
    const chunk &k = l.c[q];
    if (q >= 32) {
      steps[0] = k.steps[0];
      steps[1] = k.steps[1];
    }
    k.steps[0] = steps[0] + 1;
    if (kind == AMP_SGD && k.s0) k.steps[1] = steps[1] + 1;
  }
  if (threadIdx.x == 0) *l.head.ticket = 0;
}

template <int WHAT, int MOST, bool LOOK>
__global__ void __launch_bounds__(THREADS, LOOK               ? 1
                                           : WHAT == SGD      ? 5
                                           : WHAT == MOMENTUM ? 4
                                                              : 3) quick_kernel(const __grid_constant__ list<MOST> l)
{
  __shared__ consts<float> shared[KEEP];
  const header &o = l.head;
  const uint32_t from = blockIdx.x * o.share, to = o.total - from < o.share ? o.total : from + o.share;
  const int kind = kind_of<WHAT>(o);
  int bad = (int)threadIdx.x < o.found.n ? *o.found.cell[threadIdx.x] != 0 : 0;
  const int lo = parameter_at(l, from);
  int i = lo;
  uint32_t u = from + threadIdx.x;
  /* the block is counted once it has read its step counts; the warp that counts it has read the first of all, to be
  ** written should no other block come after it */
  const bool counts = threadIdx.x < 32;
  unsigned turn = 0;
  double steps[2] = { 0, 0 };
  if (counts && (int)threadIdx.x < o.n) {
    steps[0] = l.c[threadIdx.x].steps[0];
    if (kind == AMP_SGD) steps[1] = l.c[threadIdx.x].steps[1];
  }
  for (bool begun = false;; u += THREADS) {
    eight v;
    v.grad = v.master = amp_raw{};
    while (i + 1 < o.n && l.c[i + 1].at <= u) i++;
    const chunk &k = l.c[i];
    const int64_t e = (int64_t)(u - k.at) * N;
    const bool mine = u < to && e < k.n, whole = mine && k.aligned && e + N <= k.n;
    if (whole) ask_eight<WHAT>(k, e, v);
    if (!begun) {
      bad = begin_block<LOOK>(l, kind, lo, to, bad, shared);
      if (bad) return;
      if (threadIdx.x == 0) {
        __threadfence();
        turn = atomicAdd(o.ticket, 1u) + 1;
      }
    }
    const consts<float> c = shared[i - lo];
    if (whole) step_eight<WHAT>(kind, k, e, v, c);
    else if (mine) step_singly<WHAT>(kind, k, e, c);
    begun = true;
    if (u - threadIdx.x + THREADS >= to) break;
  }
  if (!counts || __shfl_sync(0xffffffffu, turn, 0) != gridDim.x) return;
  count_steps(l, kind, steps);
}

} // namespace

#endif
