/*
** optim.cu: the fused optimizer step on a GPU: SGD, Adam, AdamW, RMSprop, Adagrad,
** LAMB; formulas as in cpu_optim.c.
**
** One launch steps many parameters. Their descriptors travel as its argument (40,
** or 400 where there are more), so nothing is uploaded and a step can be captured.
** Parameters form one line of elements, cut evenly: a block has one stretch of it
** and crosses from one parameter into the next as that needs. Per 8 elements a
** thread reads gradient, master and state and writes master, state and shadow,
** with 16-byte accesses. SGD and Adam ask for their data, the cells and what is the
** same for a parameter all at once; a thread finds its own parameter.
**
** Every block reads the found-inf cells first and leaves if one is set. Where all
** gradients are few, every block looks at all of them besides, so that no check
** comes before. Step counts lie on the device: all read them, and the block that
** ends last counts them up. Hyper-parameters come by value, or from device memory
** (`there`), where a captured step finds new ones. LAMB takes a launch before, for
** moments and the norms of parameter and update, summed in a fixed order.
*/
#include "rows.cuh"
#include "raw.cuh"
#include "scale.cuh"

namespace {

enum { SOME = 8, FEW = 40, MANY = CUDART_VERSION >= 12010 ? 400 : 40, N = 8, THREADS = 256 };
enum { SGD, MOMENTUM, ADAM, OTHER, LAMB_NORMS }; /* kernels */

typedef struct chunk {
  void *master, *shadow, *s0, *s1, *s2;
  const void *grad;
  double *steps;
  const float *factor;
  int64_t n;
  uint32_t at;             /* where it begins on the line, in units of N */
  uint8_t master_dtype, grad_dtype, shadow_dtype, aligned;
} chunk;

typedef struct header {
  amp_hyper h;
  const amp_hyper *there;  /* NULL: h */
  amp_found_list found;
  unsigned *ticket;        /* blocks done */
  float *mark;             /* the step looks at the gradients by itself, and leaves 1 here if one is not finite. NULL: it does not */
  double *norm;            /* LAMB: [blocks + chunks][2] */
  uint32_t share, total;   /* of a block, of all: in units of N */
  int32_t n, kind;
} header;
template <int MOST> struct list { header head; chunk c[MOST]; };
static_assert(sizeof(list<FEW>) <= 4096 && sizeof(list<MANY>) <= 32764, "a launch's argument");

/* -- What is the same for all elements of a parameter ------------------------------ */

template <class T> struct consts {
  T f, lr, wd, momentum, dampening1, keep, beta1_, beta2, beta2_, step, root, eps, decay, alpha, alpha_, correct;
  int nesterov, first;
};

template <class T> __device__ __forceinline__ void prepare(consts<T> &c, int kind, const amp_hyper &h, const chunk &k)
{
  const double steps[2] = { k.steps[0], k.steps[1] }, factor = k.factor ? (double)*k.factor : 1.0;
  double t = steps[0] + 1, lr = h.lr, wd = h.weight_decay, decay = 1;
  c.f = (T)(factor * (h.maximize ? -1 : 1) * (h.rescale != 0 ? h.rescale : 1));
  c.eps = (T)h.eps;
  c.momentum = (T)h.momentum;
  c.alpha = (T)h.alpha;
  c.alpha_ = (T)(1 - h.alpha);
  c.first = 0;
  c.nesterov = h.nesterov;
  if (kind == AMP_SGD) {
    c.first = steps[1] == 0;
    c.keep = c.first ? (T)0 : (T)h.momentum;
    c.dampening1 = c.first ? (T)1 : (T)(1 - h.dampening);
  } else if (kind == AMP_ADAGRAD) {
    lr = h.lr / (1 + (t - 1) * h.lr_decay);
    c.first = steps[0] == 0;
    c.alpha = (T)h.initial;
  } else if (kind != AMP_RMSPROP) {
    if (kind == AMP_ADAMW) { decay = 1 - h.lr * wd; wd = 0; }
    double one = 1 - pow(h.beta1, t);
    c.beta1_ = (T)(1 - h.beta1);
    c.beta2 = (T)h.beta2;
    c.beta2_ = (T)(1 - h.beta2);
    c.step = (T)(h.lr / one);
    c.root = (T)(1 / sqrt(1 - pow(h.beta2, t)));
    if (kind == AMP_LAMB) {
      c.correct = h.bias_correction ? (T)(1 / one) : (T)1;
      if (!h.bias_correction) c.root = 1;
      c.step = (T)h.lr;
    }
  }
  c.lr = (T)lr;
  c.wd = (T)wd;
  c.decay = (T)decay;
}

/* -- One element --------------------------------------------------------------------- */

template <class T> __device__ __forceinline__ T root_of(T v) { return sqrt(v); }

template <class T> __device__ __forceinline__ void adam(T &p, T g, T &m, T &v, T &top, bool ams, const consts<T> &c)
{
  T w = p * c.decay, x = c.f * g;
  if (c.wd != 0) x += c.wd * w;
  m += c.beta1_ * (x - m);
  v = c.beta2 * v + c.beta2_ * (x * x);
  T most = v;
  if (ams) most = top = top > v ? top : v;
  p = w - c.step * m / (root_of(most) * c.root + c.eps);
}

template <class T> __device__ __forceinline__ void momentum(T &p, T g, T &b, const consts<T> &c)
{
  T x = c.f * g;
  if (c.wd != 0) x += c.wd * p;
  b = (c.first ? (T)0 : c.keep * b) + c.dampening1 * x;
  p -= c.lr * (c.nesterov ? x + c.momentum * b : b);
}

/* the rest; s1 and s2 as the kind uses them, has: which states there are */
template <class T> __device__ __forceinline__ void other(int kind, int has, T &p, T g, T &s0, T &s1, T &s2, const consts<T> &c)
{
  if (kind == AMP_RMSPROP) {
    T x = c.f * g + c.wd * p, u;
    s0 = c.alpha * s0 + c.alpha_ * (x * x);
    u = s0;
    if (has & 4) { s2 += c.alpha_ * (x - s2); u -= s2 * s2; }
    T d = x / (root_of(u) + c.eps);
    if (has & 2) { d += c.momentum * s1; s1 = d; }
    p -= c.lr * d;
  } else if (kind == AMP_ADAGRAD) {
    T x = c.f * g + c.wd * p;
    s0 = (c.first ? c.alpha : s0) + x * x;
    p -= c.lr * (x / (root_of(s0) + c.eps));
  } else if (kind == AMP_SGD) {
    if (has & 1) momentum(p, g, s0, c);
    else p -= c.lr * (c.wd != 0 ? c.f * g + c.wd * p : c.f * g);
  } else if (kind == AMP_LAMB) p -= c.step * (c.correct * s0 / (root_of(s1) * c.root + c.eps) + c.wd * p);
  else adam(p, g, s0, s1, s2, (has & 4) != 0, c);
}

template <class T, int WHAT> __device__ __forceinline__ void element(int kind, int has, T &p, T g, T &s0, T &s1, T &s2, const consts<T> &c, double *norm)
{
  if (WHAT == SGD) {
    T x = c.f * g;
    if (c.wd != 0) x += c.wd * p;
    p -= c.lr * x;
  } else if (WHAT == MOMENTUM) momentum(p, g, s0, c);
  else if (WHAT == ADAM) adam(p, g, s0, s1, s2, false, c);
  else if (WHAT == OTHER) other(kind, has, p, g, s0, s1, s2, c);
  else {
    T x = c.f * g;
    s0 += c.beta1_ * (x - s0);
    s1 = c.beta2 * s1 + c.beta2_ * (x * x);
    T u = c.correct * s0 / (root_of(s1) * c.root + c.eps) + c.wd * p;
    norm[0] += (double)p * (double)p;
    norm[1] += (double)u * (double)u;
  }
}

/* -- The kernel ----------------------------------------------------------------------- */

template <class T> struct sort_of { enum { wide = 0 }; };
template <> struct sort_of<double> { enum { wide = 1 }; };

/* Elements [from, to) of a parameter */
template <class T, int WHAT> __device__ __forceinline__ void stretch(const chunk &k, int kind, int64_t from, int64_t to, const consts<T> &c, double *norm)
{
  const int state = sort_of<T>::wide ? AMP_FLOAT64 : AMP_FLOAT32;
  const int has = (k.s0 != NULL) | (k.s1 != NULL) << 1 | (k.s2 != NULL) << 2;
  const bool first = WHAT == OTHER ? has & 1 : WHAT >= MOMENTUM, second = WHAT == ADAM || WHAT == LAMB_NORMS || (WHAT == OTHER && has & 2), third = WHAT == OTHER && has & 4;
  const bool reads_grad = WHAT != OTHER || kind != AMP_LAMB, keeps = WHAT != OTHER || kind != AMP_LAMB; /* LAMB's second pass leaves the state */
  for (int64_t i = from + (int64_t)threadIdx.x * N; i < to; i += THREADS * N) {
    T p[N], g[N], s0[N], s1[N], s2[N];
    if (k.aligned && i + N <= k.n) {
      if (reads_grad) amp_load_n<N>(g, k.grad, k.grad_dtype, i);
      else {
#pragma unroll
        for (int j = 0; j < N; j++) g[j] = 0;
      }
      amp_load_n<N>(p, k.master, k.master_dtype, i);
      if (first) amp_load_n<N>(s0, k.s0, state, i);
      if (second) amp_load_n<N>(s1, k.s1, state, i);
      if (third) amp_load_n<N>(s2, k.s2, state, i);
#pragma unroll
      for (int j = 0; j < N; j++) element<T, WHAT>(kind, has, p[j], g[j], s0[j], s1[j], s2[j], c, norm);
      if (WHAT != LAMB_NORMS) {
        amp_store_n<N>(k.master, k.master_dtype, i, p);
        if (k.shadow) amp_store_n<N>(k.shadow, k.shadow_dtype, i, p);
      }
      if (first && keeps) amp_store_n<N>(k.s0, state, i, s0);
      if (second && keeps) amp_store_n<N>(k.s1, state, i, s1);
      if (third && keeps) amp_store_n<N>(k.s2, state, i, s2);
    } else
      for (int64_t j = i; j < k.n && j < i + N; j++) {
        T q = amp_load<T>(k.master, k.master_dtype, j), x = reads_grad ? amp_load<T>(k.grad, k.grad_dtype, j) : (T)0;
        T a = first ? ((T *)k.s0)[j] : (T)0, b = second ? ((T *)k.s1)[j] : (T)0, d = third ? ((T *)k.s2)[j] : (T)0;
        element<T, WHAT>(kind, has, q, x, a, b, d, c, norm);
        if (WHAT != LAMB_NORMS) {
          amp_store<T>(k.master, k.master_dtype, j, q);
          if (k.shadow) amp_store<T>(k.shadow, k.shadow_dtype, j, q);
        }
        if (first && keeps) ((T *)k.s0)[j] = a;
        if (second && keeps) ((T *)k.s1)[j] = b;
        if (third && keeps) ((T *)k.s2)[j] = d;
      }
  }
}

/* lr |parameter| / |update| from the sums that the blocks of a parameter left */
__device__ double trust(const header &l, const chunk &k, int i, const amp_hyper &h)
{
  double p = 0, u = 0;
  uint32_t units = (uint32_t)((k.n + N - 1) / N);
  if (units) {
    uint32_t b = k.at / l.share, end = (k.at + units - 1) / l.share;
    for (b += threadIdx.x; b <= end; b += THREADS) { p += l.norm[2 * ((int64_t)b + i)]; u += l.norm[2 * ((int64_t)b + i) + 1]; }
  }
  p = amp_reduce_block<amp_sum>(p, 0.0);
  u = amp_reduce_block<amp_sum>(u, 0.0);
  return (h.weight_decay != 0 || h.always_adapt) && p > 0 && u > 0 ? h.lr * (sqrt(p) / sqrt(u)) : h.lr;
}

template <class T, int WHAT, int MOST> __global__ void __launch_bounds__(THREADS) optim_kernel(const __grid_constant__ list<MOST> l)
{
  __shared__ consts<T> shared;
  const header &o = l.head;
  int bad = 0;
  for (int i = threadIdx.x; i < o.found.n; i += THREADS) bad |= *o.found.cell[i] != 0;
  if (__syncthreads_or(bad)) return;
  const amp_hyper &h = o.there ? *o.there : o.h;
  uint32_t from = blockIdx.x * o.share, to = o.total - from < o.share ? o.total : from + o.share;
  int lo = 0, hi = o.n - 1;
  while (lo < hi) { /* the last parameter that begins at `from` or before */
    int mid = (lo + hi + 1) / 2;
    if (l.c[mid].at <= from) lo = mid;
    else hi = mid - 1;
  }
  for (int i = lo; i < o.n && l.c[i].at < to; i++) {
    const chunk &k = l.c[i];
    uint32_t units = (uint32_t)((k.n + N - 1) / N), a = from > k.at ? from - k.at : 0, b = to - k.at < units ? to - k.at : units;
    __syncthreads(); /* the consts before have been read */
    if (threadIdx.x == 0) prepare(shared, o.kind, h, k);
    if (WHAT == OTHER && o.kind == AMP_LAMB) {
      double step = trust(o, k, i, h);
      if (threadIdx.x == 0) shared.step = (T)step;
    }
    __syncthreads();
    const consts<T> c = shared;
    double norm[2] = { 0, 0 };
    stretch<T, WHAT>(k, o.kind, (int64_t)a * N, (int64_t)b * N < k.n ? (int64_t)b * N : k.n, c, norm);
    if (WHAT == LAMB_NORMS) {
      double p = amp_reduce_block<amp_sum>(norm[0], 0.0), u = amp_reduce_block<amp_sum>(norm[1], 0.0);
      if (threadIdx.x == 0) { o.norm[2 * ((int64_t)blockIdx.x + i)] = p; o.norm[2 * ((int64_t)blockIdx.x + i) + 1] = u; }
    }
  }
  if (WHAT == LAMB_NORMS) return;
  if (!amp_last_block(o.ticket)) return; /* all have read the step counts */
  for (int i = threadIdx.x; i < o.n; i += THREADS) {
    l.c[i].steps[0] += 1;
    if (o.kind == AMP_SGD && l.c[i].s0) l.c[i].steps[1] += 1;
  }
}

/* SGD and Adam in float. What is read depends on nothing but the launch's argument, so all of it is on its way before the first
** of it is looked at. */
enum { KEEP = 64 }; /* a block of more parameters is for the other kernel */

/* Whether this thread's share of all gradients of the launch has one that is not finite */
enum { TURNS = 8 }; /* asked for at once */
typedef struct glance { amp_raw x[TURNS]; int32_t dtype[TURNS], i; } glance; /* i: the parameter that the last one was of */

/* Ask for what this thread looks at from unit u on; what must be read one by one is looked at */
template <int MOST> __device__ __forceinline__ int ask_gradients(const list<MOST> &l, uint32_t u, glance &t)
{
  const header &o = l.head;
  int bad = 0;
#pragma unroll
  for (int j = 0; j < TURNS; j++) {
    const uint32_t v = u + j * THREADS;
    t.x[j].a = t.x[j].b = make_uint4(0, 0, 0, 0);
    t.dtype[j] = AMP_FLOAT32;
    if (v < o.total) {
      while (t.i + 1 < o.n && l.c[t.i + 1].at <= v) t.i++;
      const chunk &k = l.c[t.i];
      const int64_t e = (int64_t)(v - k.at) * N;
      t.dtype[j] = k.grad_dtype;
      if (e + N <= k.n) amp_ask(t.x[j], k.grad, k.grad_dtype, e);
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
  for (int j = 0; j < TURNS; j++) bad |= amp_bad_quad(t.x[j].a, t.dtype[j]) | amp_bad_quad(t.x[j].b, t.dtype[j]);
  return bad;
}

template <int WHAT> __device__ __forceinline__ int kind_of(const header &o) { return WHAT == ADAM ? o.kind : (int)AMP_SGD; }

template <int WHAT, int MOST, bool LOOK> __global__ void __launch_bounds__(THREADS, LOOK ? 1 : WHAT == SGD ? 5 : WHAT == MOMENTUM ? 4 : 3) quick_kernel(const __grid_constant__ list<MOST> l)
{
  __shared__ consts<float> shared[KEEP];
  const header &o = l.head;
  const uint32_t from = blockIdx.x * o.share, to = o.total - from < o.share ? o.total : from + o.share;
  const int kind = kind_of<WHAT>(o);
  int bad = (int)threadIdx.x < o.found.n ? *o.found.cell[threadIdx.x] != 0 : 0;
  int lo = 0, hi = o.n - 1;
  while (lo < hi) { /* the last parameter that begins at `from` or before */
    int mid = (lo + hi + 1) / 2;
    if (l.c[mid].at <= from) lo = mid;
    else hi = mid - 1;
  }
  int i = lo;
  uint32_t u = from + threadIdx.x;
  /* the block is counted once it has read its step counts; the warp that counts it has read the first of all, to be written
  ** should no other block come after it */
  const bool counts = threadIdx.x < 32;
  unsigned turn = 0;
  double steps[2] = { 0, 0 };
  if (counts && (int)threadIdx.x < o.n) {
    steps[0] = l.c[threadIdx.x].steps[0];
    if (kind == AMP_SGD) steps[1] = l.c[threadIdx.x].steps[1];
  }
  for (bool begun = false;; u += THREADS) {
    float p[N], g[N], s0[N], s1[N], none = 0;
    amp_raw from_grad = {}, from_master = {};
    while (i + 1 < o.n && l.c[i + 1].at <= u) i++;
    const chunk &k = l.c[i];
    const int64_t e = (int64_t)(u - k.at) * N;
    const bool mine = u < to && e < k.n, whole = mine && k.aligned && e + N <= k.n;
    if (whole) {
      amp_ask(from_grad, k.grad, k.grad_dtype, e);
      amp_ask(from_master, k.master, k.master_dtype, e);
      if (WHAT >= MOMENTUM) amp_load_n<N>(s0, k.s0, AMP_FLOAT32, e);
      if (WHAT == ADAM) amp_load_n<N>(s1, k.s1, AMP_FLOAT32, e);
    }
    if (!begun) {
      const int q = lo + (int)threadIdx.x;
      glance t;
      t.i = 0;
      if constexpr (LOOK) { bad |= ask_gradients(l, threadIdx.x, t); }
      if (threadIdx.x < KEEP && q < o.n && l.c[q].at < to) prepare(shared[threadIdx.x], kind, o.there ? *o.there : o.h, l.c[q]);
      if constexpr (LOOK) {
        bad |= bad_of(t);
        for (uint32_t v = threadIdx.x + TURNS * THREADS; v < o.total; v += TURNS * THREADS) {
          bad |= ask_gradients(l, v, t);
          bad |= bad_of(t);
        }
      }
      if (__syncthreads_or(bad)) {
        if (LOOK && blockIdx.x == 0 && threadIdx.x == 0) *o.mark = 1.f;
        return;
      }
      if (threadIdx.x == 0) {
        __threadfence();
        turn = atomicAdd(o.ticket, 1u) + 1;
      }
    }
    const consts<float> c = shared[i - lo];
    if (whole) {
      amp_take(g, from_grad, k.grad_dtype);
      amp_take(p, from_master, k.master_dtype);
#pragma unroll
      for (int j = 0; j < N; j++) element<float, WHAT>(kind, 0, p[j], g[j], s0[j], s1[j], none, c, NULL);
      amp_store_n<N>(k.master, k.master_dtype, e, p);
      if (k.shadow) amp_store_n<N>(k.shadow, k.shadow_dtype, e, p);
      if (WHAT >= MOMENTUM) amp_store_n<N>(k.s0, AMP_FLOAT32, e, s0);
      if (WHAT == ADAM) amp_store_n<N>(k.s1, AMP_FLOAT32, e, s1);
    } else if (mine)
      for (int64_t j = e; j < k.n && j < e + N; j++) {
        float q = amp_load<float>(k.master, k.master_dtype, j), x = amp_load<float>(k.grad, k.grad_dtype, j);
        float a = WHAT >= MOMENTUM ? ((float *)k.s0)[j] : 0, b = WHAT == ADAM ? ((float *)k.s1)[j] : 0;
        element<float, WHAT>(kind, 0, q, x, a, b, none, c, NULL);
        amp_store<float>(k.master, k.master_dtype, j, q);
        if (k.shadow) amp_store<float>(k.shadow, k.shadow_dtype, j, q);
        if (WHAT >= MOMENTUM) ((float *)k.s0)[j] = a;
        if (WHAT == ADAM) ((float *)k.s1)[j] = b;
      }
    begun = true;
    if (u - threadIdx.x + THREADS >= to) break;
  }
  if (!counts || __shfl_sync(0xffffffffu, turn, 0) != gridDim.x) return;
  for (int q = threadIdx.x; q < o.n; q += 32) {
    const chunk &k = l.c[q];
    if (q >= 32) { steps[0] = k.steps[0]; steps[1] = k.steps[1]; }
    k.steps[0] = steps[0] + 1;
    if (kind == AMP_SGD && k.s0) k.steps[1] = steps[1] + 1;
  }
  if (threadIdx.x == 0) *o.ticket = 0;
}

/* -- Calls ------------------------------------------------------------------------------ */

/* Does a block have more parameters than a block of quick_kernel may? */
template <int MOST> static bool crowded(const list<MOST> &l)
{
  for (int i = 0; i + KEEP - 1 < l.head.n; i++) /* one more may have begun before the block */
    if (l.c[i].at / l.head.share == l.c[i + KEEP - 1].at / l.head.share) return true;
  return false;
}

template <bool LOOK, int MOST> static int launch_quick(const list<MOST> &l, unsigned grid)
{
  if (l.head.kind != AMP_SGD) AMP_LAUNCH((quick_kernel<ADAM, MOST, LOOK>), grid, THREADS, 0, l);
  else if (l.c[0].s0 == NULL) AMP_LAUNCH((quick_kernel<SGD, MOST, LOOK>), grid, THREADS, 0, l);
  else AMP_LAUNCH((quick_kernel<MOMENTUM, MOST, LOOK>), grid, THREADS, 0, l);
  return amp__cuda_check(cudaPeekAtLastError(), "an optimizer's step");
}

static bool quick(int kind, const amp_hyper *h) { return kind == AMP_SGD || ((kind == AMP_ADAM || kind == AMP_ADAMW) && !h->amsgrad); }

template <class T, int MOST> static int launch(list<MOST> &l, unsigned grid)
{
  header &o = l.head;
  int kind = o.kind;
  if constexpr (!sort_of<T>::wide) { /* float64 has one kernel for all kinds */
    if constexpr (MOST <= FEW) {
      if (o.mark) { return launch_quick<true>(l, grid); }
    }
    if (quick(kind, &o.h) && !crowded(l)) { return launch_quick<false>(l, grid); }
  }
  {
    amp_tensor *norm = NULL;
    if (kind == AMP_LAMB) {
      if (!(norm = amp__cuda_scratch(((size_t)grid + (size_t)o.n) * 16))) return AMP_E_MEMORY;
      o.norm = (double *)amp__data(norm);
      AMP_LAUNCH((optim_kernel<T, LAMB_NORMS, MOST>), grid, THREADS, 0, l);
    }
    AMP_LAUNCH((optim_kernel<T, OTHER, MOST>), grid, THREADS, 0, l);
    amp__free(norm);
  }
  return amp__cuda_check(cudaPeekAtLastError(), "an optimizer's step");
}

static bool aligned(const amp_optim_chunk *k)
{
  return (((uintptr_t)k->master | (uintptr_t)k->shadow | (uintptr_t)k->grad | (uintptr_t)k->s0 | (uintptr_t)k->s1 | (uintptr_t)k->s2) & 15) == 0;
}

/* The parameters from chunks[*at] on, as many as fit, whose master is float64 or not, as asked */
template <class T, int MOST> static int some(header o, const amp_optim_chunk *chunks, int n, int *at, amp_cuda_device *d)
{
  list<MOST> l;
  l.head = o;
  header &q = l.head;
  uint64_t total = 0;
  q.n = 0;
  for (; *at < n && q.n < MOST; ++*at) {
    const amp_optim_chunk *k = &chunks[*at];
    uint64_t units = ((uint64_t)k->n + N - 1) / N;
    if ((k->master_dtype == AMP_FLOAT64) != (sort_of<T>::wide != 0)) continue;
    if (total + units > UINT32_MAX && q.n > 0) break;
    if (units > UINT32_MAX) return amp__fail(AMP_E_UNSUPPORTED, "a parameter of %lld elements is more than an optimizer steps at once on a GPU", (long long)k->n);
    chunk *c = &l.c[q.n++];
    c->master = k->master; c->shadow = k->shadow; c->grad = k->grad; c->s0 = k->s0; c->s1 = k->s1; c->s2 = k->s2;
    c->steps = k->steps; c->factor = k->factor; c->n = k->n;
    c->master_dtype = k->master_dtype; c->grad_dtype = k->grad_dtype; c->shadow_dtype = k->shadow_dtype;
    c->aligned = aligned(k) && (k->grad_dtype != AMP_FLOAT64 || sort_of<T>::wide);
    c->at = (uint32_t)total;
    total += units;
  }
  if (q.n == 0) return 0;
  uint64_t most = (uint64_t)d->sms * 4, share = (total + most - 1) / most;
  if (share <= THREADS * 4) share = THREADS; /* what is there at once hides the way to memory */
  share = (share + THREADS - 1) / THREADS * THREADS;
  if (share == 0) share = THREADS;
  q.share = (uint32_t)share;
  q.total = (uint32_t)total;
  unsigned grid = (unsigned)((total + share - 1) / share);
  for (int i = q.n; i < MOST; i++) memset((void *)&l.c[i], 0, sizeof l.c[i]);
  return launch<T, MOST>(l, grid ? grid : 1);
}

template <class T> static int all(const header &o, const amp_optim_chunk *chunks, int n, amp_cuda_device *d)
{
  int rc = 0, at = 0;
  while (rc == 0 && at < n) /* a launch costs the host what its argument is long */
    rc = !sort_of<T>::wide && n - at <= SOME ? some<float, SOME>(o, chunks, n, &at, d) : !sort_of<T>::wide && n - at <= FEW ? some<float, FEW>(o, chunks, n, &at, d)
       : some<T, MANY>(o, chunks, n, &at, d);
  return rc;
}

} // namespace

/* What a captured step is to know of the launches */
static void tell(const amp_optim_chunk *chunks, int n, const float *const *found, int nfound, float *mark)
{
  for (int i = 0; i < n; i++) {
    const amp_optim_chunk *k = &chunks[i];
    const size_t all = (size_t)k->n, state = all * (k->master_dtype == AMP_FLOAT64 ? 8 : 4);
    amp__cuda_touch_bytes(k->grad, all * amp__dtype_size[k->grad_dtype], false);
    amp__cuda_touch_bytes(k->master, all * amp__dtype_size[k->master_dtype], true);
    amp__cuda_touch_bytes(k->shadow, all * amp__dtype_size[k->shadow_dtype], true);
    amp__cuda_touch_bytes(k->s0, state, true);
    amp__cuda_touch_bytes(k->s1, state, true);
    amp__cuda_touch_bytes(k->s2, state, true);
    amp__cuda_touch_bytes(k->steps, 2 * sizeof *k->steps, true);
    amp__cuda_touch_bytes(k->factor, sizeof *k->factor, false);
  }
  for (int i = 0; i < nfound; i++) amp__cuda_touch_bytes(found[i], sizeof *found[i], false);
  amp__cuda_touch_bytes(mark, sizeof *mark, true);
}

static int step(int kind, const amp_hyper *h, const amp_hyper *there, const amp_optim_chunk *chunks, int n, const float *const *found, int nfound, float *mark)
{
  header o;
  int rc = 0, wide = 0;
  if (n == 0) return 0;
  amp_cuda_device *d = amp_device_of(chunks[0].master);
  memset((void *)&o, 0, sizeof o);
  if (d == NULL) return AMP_E_DEVICE;
  amp__cuda_part_begin();
  tell(chunks, n, found, nfound, mark);
  o.ticket = amp_ticket(d);
  amp__cuda_part_start();
  o.h = *h;
  o.there = there;
  o.kind = kind;
  o.mark = mark;
  amp_tensor *held = o.ticket ? amp_found_pack(&o.found, found, nfound, &rc) : NULL;
  if (o.ticket == NULL) rc = AMP_E_DEVICE;
  for (int i = 0; i < n; i++) wide += chunks[i].master_dtype == AMP_FLOAT64;
  if (rc == 0 && wide < n) rc = all<float>(o, chunks, n, d);
  if (rc == 0 && wide > 0) rc = all<double>(o, chunks, n, d);
  amp__free(held);
  amp__cuda_part_end();
  return rc;
}

extern "C" {

int amp__cuda_optim_step_at(int kind, const amp_hyper *h, const amp_hyper *there, amp_optim_chunk *chunks, int n, const float *const *found, int nfound)
{
  return step(kind, h, there, chunks, n, found, nfound, NULL);
}

int amp__cuda_optim_step_look(int kind, const amp_hyper *h, const amp_hyper *there, amp_optim_chunk *chunks, int n, const float *const *found, int nfound, float *mark)
{
  static_assert((int)FEW >= (int)AMP_LOOK_MOST, "one launch steps them all");
  if (n == 0 || n > FEW || !quick(kind, h)) return 0;
  for (int i = 0; i < n; i++) {
    const amp_optim_chunk *k = &chunks[i];
    const uintptr_t g = (uintptr_t)k->grad, p = (uintptr_t)k->master;
    if (k->master_dtype == AMP_FLOAT64 || k->grad_dtype == AMP_FLOAT64 || !aligned(k)) return 0;
    if (g < p + (size_t)k->n * amp__dtype_size[k->master_dtype] && p < g + (size_t)k->n * amp__dtype_size[k->grad_dtype]) return 0; /* a block would see what another has stepped */
  }
  int rc = step(kind, h, there, chunks, n, found, nfound, mark);
  return rc < 0 ? rc : 1;
}

int amp__cuda_optim_step(int kind, const amp_hyper *h, amp_optim_chunk *chunks, int n, const float *const *found, int nfound)
{
  return amp__cuda_optim_step_at(kind, h, NULL, chunks, n, found, nfound);
}

}
