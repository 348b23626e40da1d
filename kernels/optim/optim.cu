/*
** optim.cu: the fused optimizer step on a GPU, of all kinds in enum amp_optim_kind; formulas as in optim/step_cpu.c.
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
**
** In float32 Adam moves 28 bytes an element, SGD 12, momentum 20, and 2 more for a 16-bit shadow; shared memory holds
** a parameter's constants. Memory's speed bounds large steps, the way to memory small ones.
*/
#include "optim/optim_quick.cuh"

namespace {

/* -- The kernel of all kinds ------------------------------------------------------------- */

template <class T> struct sort_of {
  enum { wide = 0 };
};
template <> struct sort_of<double> {
  enum { wide = 1 };
};

/* Elements [from, to) of a parameter */
template <class T, int WHAT>
__device__ __forceinline__ void stretch(const chunk &k, int kind, int64_t from, int64_t to, const consts<T> &c,
                                        double *norm)
{
  const int state = sort_of<T>::wide ? AMP_FLOAT64 : AMP_FLOAT32;
  const int has = (k.s0 != NULL) | (k.s1 != NULL) << 1 | (k.s2 != NULL) << 2;
  const bool first = WHAT == OTHER ? has & 1 : WHAT >= MOMENTUM,
             second = WHAT == ADAM || WHAT == LAMB_NORMS || (WHAT == OTHER && has & 2),
             third = WHAT == OTHER && has & 4;
  const bool reads_grad = WHAT != OTHER || kind != AMP_LAMB,
             keeps = WHAT != OTHER || kind != AMP_LAMB; /* LAMB's second pass leaves the state */
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
    for (b += threadIdx.x; b <= end; b += THREADS) {
      p += l.norm[2 * ((int64_t)b + i)];
      u += l.norm[2 * ((int64_t)b + i) + 1];
    }
  }
  p = amp_reduce_block<amp_sum>(p, 0.0);
  u = amp_reduce_block<amp_sum>(u, 0.0);
  return (h.weight_decay != 0 || h.always_adapt) && p > 0 && u > 0 ? h.lr * (sqrt(p) / sqrt(u)) : h.lr;
}

template <class T, int WHAT, int MOST>
__global__ void __launch_bounds__(THREADS) optim_kernel(const __grid_constant__ list<MOST> l)
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
    uint32_t units = (uint32_t)((k.n + N - 1) / N), a = from > k.at ? from - k.at : 0,
             b = to - k.at < units ? to - k.at : units;
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
      if (threadIdx.x == 0) {
        o.norm[2 * ((int64_t)blockIdx.x + i)] = p;
        o.norm[2 * ((int64_t)blockIdx.x + i) + 1] = u;
      }
    }
  }
  if (WHAT == LAMB_NORMS) return;
  if (!amp_last_block(o.ticket)) return; /* all have read the step counts */
  for (int i = threadIdx.x; i < o.n; i += THREADS) {
    if (o.kind == AMP_NADAM) l.c[i].steps[1] = amp__nadam_rates(h.beta1, h.lr_decay, l.c[i].steps).product;
    l.c[i].steps[0] += 1;
    if (o.kind == AMP_SGD && l.c[i].s0) l.c[i].steps[1] += 1;
  }
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

static bool quick(int kind, const amp_hyper *h)
{
  return kind == AMP_SGD || ((kind == AMP_ADAM || kind == AMP_ADAMW) && !h->amsgrad);
}

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
  return (((uintptr_t)k->master | (uintptr_t)k->shadow | (uintptr_t)k->grad | (uintptr_t)k->s0 | (uintptr_t)k->s1
           | (uintptr_t)k->s2)
          & 15)
         == 0;
}

/* The parameters from chunks[*at] on, as many as fit, whose master is float64 or not, as asked */
template <class T, int MOST>
static int some(header o, const amp_optim_chunk *chunks, int n, int *at, amp_cuda_device *d)
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
    if (units > UINT32_MAX)
      return amp__fail(AMP_E_UNSUPPORTED,
                       "a parameter of %lld elements is more than an optimizer steps at once on a GPU",
                       (long long)k->n);
    chunk *c = &l.c[q.n++];
    c->master = k->master;
    c->shadow = k->shadow;
    c->grad = k->grad;
    c->s0 = k->s0;
    c->s1 = k->s1;
    c->s2 = k->s2;
    c->steps = k->steps;
    c->factor = k->factor;
    c->n = k->n;
    c->master_dtype = k->master_dtype;
    c->grad_dtype = k->grad_dtype;
    c->shadow_dtype = k->shadow_dtype;
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
    rc = !sort_of<T>::wide && n - at <= SOME  ? some<float, SOME>(o, chunks, n, &at, d)
         : !sort_of<T>::wide && n - at <= FEW ? some<float, FEW>(o, chunks, n, &at, d)
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

static int step(int kind, const amp_hyper *h, const amp_hyper *there, const amp_optim_chunk *chunks, int n,
                const float *const *found, int nfound, float *mark)
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

int amp__cuda_optim_step_at(int kind, const amp_hyper *h, const amp_hyper *there, amp_optim_chunk *chunks, int n,
                            const float *const *found, int nfound)
{
  return step(kind, h, there, chunks, n, found, nfound, NULL);
}

int amp__cuda_optim_step_look(int kind, const amp_hyper *h, const amp_hyper *there, amp_optim_chunk *chunks, int n,
                              const float *const *found, int nfound, float *mark)
{
  static_assert((int)FEW >= (int)AMP_LOOK_MOST, "one launch steps them all");
  if (n == 0 || n > FEW || !quick(kind, h)) return 0;
  for (int i = 0; i < n; i++) {
    const amp_optim_chunk *k = &chunks[i];
    const uintptr_t g = (uintptr_t)k->grad, p = (uintptr_t)k->master;
    if (k->master_dtype == AMP_FLOAT64 || k->grad_dtype == AMP_FLOAT64 || !aligned(k)) return 0;
    if (g < p + (size_t)k->n * amp__dtype_size[k->master_dtype]
        && p < g + (size_t)k->n * amp__dtype_size[k->grad_dtype])
      return 0; /* a block would see what another has stepped */
  }
  int rc = step(kind, h, there, chunks, n, found, nfound, mark);
  return rc < 0 ? rc : 1;
}

int amp__cuda_optim_step(int kind, const amp_hyper *h, amp_optim_chunk *chunks, int n, const float *const *found,
                         int nfound)
{
  return amp__cuda_optim_step_at(kind, h, NULL, chunks, n, found, nfound);
}
}
