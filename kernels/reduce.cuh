/*
** reduce.cuh: the engine under all reductions.
**
** A family gives a functor F: elements of type T go into an accumulator A
** (start, take several at once, join two, store the end). The plan sorts the
** tensor's dimensions into kept and reduced ones, innermost first and merged;
** two kernels do the rest:
**
**   rows   memory runs along the reduced index: 1 to 256 threads a result
**   cols   memory runs along the kept one: threads side by side, and above each other
**
** Where results are few the reduced index is cut into parts, whose accumulators
** a third kernel joins. Cuts depend on shapes and the card alone and joins have a
** fixed order, so results repeat exactly.
*/
#ifndef AMP_REDUCE_CUH
#define AMP_REDUCE_CUH
#include "kernel.cuh"

/* max and min over everything, for reduce_arg.cu, which has those along a dimension (reduce.cu) */
extern "C" int amp__cuda_extreme_of_all(amp_call *c, int largest);

typedef struct amp_red {
  const char *in;
  char *out, *out2, *partial;       /* out2: of the same strides as out */
  int32_t dtype, odtype, odtype2, nk, nr, wide, columns; /* wide: 8 elements beside each other may be read at once */
  int64_t outputs, reduced, parts, piece;
  int64_t ksize[AMP_MAX_DIM], kin[AMP_MAX_DIM], kout[AMP_MAX_DIM], rsize[AMP_MAX_DIM], rin[AMP_MAX_DIM];
} amp_red;

/* -- Offsets ------------------------------------------------------------------- */

__device__ __forceinline__ int64_t amp_red_reduced(const amp_red &p, int64_t i)
{
  int64_t at = 0;
  for (int d = 0; d < p.nr - 1; d++) {
    int64_t q = (uint64_t)(i | p.rsize[d]) >> 32 ? i / p.rsize[d] : (int64_t)((uint32_t)i / (uint32_t)p.rsize[d]);
    at += (i - q * p.rsize[d]) * p.rin[d];
    i = q;
  }
  return at + i * p.rin[p.nr - 1];
}
/* of the reduced indices i, i + step, ... */
template <int N> __device__ __forceinline__ void amp_red_offsets(const amp_red &p, int64_t (&o)[N], int64_t in, int64_t i, int step)
{
  if (p.nr == 1) {
    int64_t by = step * p.rin[0];
    o[0] = in + i * p.rin[0];
#pragma unroll
    for (int k = 1; k < N; k++) o[k] = o[k - 1] + by;
  } else {
#pragma unroll
    for (int k = 0; k < N; k++) o[k] = in + amp_red_reduced(p, i + (int64_t)k * step);
  }
}
/* of result o, from dimension `first` on */
__device__ __forceinline__ void amp_red_kept(const amp_red &p, int64_t o, int first, int64_t *in, int64_t *out)
{
  *in = *out = 0;
  for (int d = first; d < p.nk; d++) {
    int64_t q = d == p.nk - 1 ? 0 : o / p.ksize[d], r = o - q * p.ksize[d];
    *in += r * p.kin[d];
    *out += r * p.kout[d];
    o = q;
  }
}

/* -- Loads: m of N elements at offsets o, the rest 0. Which dtypes a T is loaded from keeps the code short: floats from
** floats, integers from integers; other pairs are cast first. ------------------- */

#define AMP_RED_EACH(E) _Pragma("unroll") for (int k = 0; k < N; k++) v[k] = k < m ? (T)(E) : (T)0; break
template <int N, class T> __device__ __forceinline__ void amp_red_load(T (&v)[N], const void *p, int dtype, const int64_t (&o)[N], int m)
{
  if constexpr (amp_is<T>::real) {
    switch (dtype) {
    case AMP_FLOAT16: AMP_RED_EACH(amp_h2f(((const uint16_t *)p)[o[k]]));
    case AMP_BFLOAT16: AMP_RED_EACH(amp_bf2f(((const uint16_t *)p)[o[k]]));
    case AMP_FLOAT32: AMP_RED_EACH(((const float *)p)[o[k]]);
    default:
      if constexpr (sizeof(T) == 8) { AMP_RED_EACH(((const double *)p)[o[k]]); }
    }
  } else {
    switch (dtype) {
    case AMP_INT64: AMP_RED_EACH(((const int64_t *)p)[o[k]]);
    case AMP_INT32: AMP_RED_EACH(((const int32_t *)p)[o[k]]);
    case AMP_INT16: AMP_RED_EACH(((const int16_t *)p)[o[k]]);
    case AMP_INT8: AMP_RED_EACH(((const int8_t *)p)[o[k]]);
    case AMP_UINT8: AMP_RED_EACH(((const uint8_t *)p)[o[k]]);
    default: AMP_RED_EACH(((const uint8_t *)p)[o[k]] != 0);
    }
  }
}

/* -- Accumulators between threads ------------------------------------------------ */

template <class A> __device__ __forceinline__ A amp_shuffle(A a, int d)
{
  static_assert(sizeof(A) % 4 == 0, "whole words");
  unsigned w[sizeof(A) / 4];
  memcpy(w, &a, sizeof a);
#pragma unroll
  for (unsigned k = 0; k < sizeof(A) / 4; k++) w[k] = __shfl_xor_sync(0xffffffffu, w[k], d);
  memcpy(&a, w, sizeof a);
  return a;
}

/* Over `group` threads beside each other, a power of two; all of the block come */
template <class F> __device__ __forceinline__ typename F::A amp_red_join(const F &f, typename F::A a, int group)
{
  typedef typename F::A A;
  for (int d = group > 32 ? 16 : group >> 1; d > 0; d >>= 1) {
    A b = amp_shuffle(a, d);
    a = threadIdx.x & d ? f.join(b, a) : f.join(a, b);
  }
  if (group > 32) {
    __shared__ A part[8];
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = a;
    __syncthreads();
    a = part[0];
    for (unsigned k = 1; k < blockDim.x >> 5; k++) a = f.join(a, part[k]);
    __syncthreads();
  }
  return a;
}

/* -- Kernels ------------------------------------------------------------------------ */

enum { AMP_RED_N = 8 };

template <class F> __global__ void __launch_bounds__(256, 4) amp_red_rows(const amp_red p, const F f, int group)
{
  typedef typename F::T T;
  typedef typename F::A A;
  enum { N = AMP_RED_N };
  const int lane = threadIdx.x & (group - 1), per = blockDim.x / group;
  const int64_t units = p.outputs * p.parts;
  for (int64_t first = (int64_t)blockIdx.x * per; first < units; first += (int64_t)gridDim.x * per) {
    int64_t u = first + threadIdx.x / group, o = u, lo = 0, hi = p.reduced, out = 0;
    A a = f.start();
    if (u < units) {
      int64_t in;
      if (p.parts > 1) {
        o = u / p.parts;
        lo = (u - o * p.parts) * p.piece;
        if (lo + p.piece < hi) hi = lo + p.piece;
      }
      amp_red_kept(p, o, 0, &in, &out);
      if (p.wide && sizeof(T) == 4) {
        for (int64_t i = lo + lane * N; i < hi; i += group * N) {
          T v[N];
          int64_t at = in + (p.nr == 1 ? i : amp_red_reduced(p, i));
          if (i + N <= hi) { amp_load_n<N>(v, p.in, p.dtype, at); f.take(a, v, N, i, 1); }
          else {
            int64_t o[N];
#pragma unroll
            for (int k = 0; k < N; k++) o[k] = at + k;
            amp_red_load(v, p.in, p.dtype, o, (int)(hi - i));
            f.take(a, v, (int)(hi - i), i, 1);
          }
        }
      } else for (int64_t i = lo + lane; i < hi; i += group * N) {
        T v[N];
        int64_t left = (hi - i + group - 1) / group, o[N];
        int m = left < N ? (int)left : N;
        amp_red_offsets(p, o, in, i, group);
        amp_red_load(v, p.in, p.dtype, o, m);
        f.take(a, v, m, i, group);
      }
    }
    a = amp_red_join(f, a, group);
    if (lane == 0 && u < units) {
      if (p.parts > 1) ((A *)p.partial)[u] = a;
      else f.store(p, out, a);
    }
  }
}

/* V columns a thread, R of their elements at a time */
template <class F, int V, int R> __global__ void __launch_bounds__(256) amp_red_cols(const amp_red p, const F f)
{
  typedef typename F::T T;
  typedef typename F::A A;
  __shared__ A all[256];
  const int64_t tiles = (p.ksize[0] + blockDim.x * V - 1) / (blockDim.x * V), units = p.outputs / p.ksize[0] * tiles * p.parts;
  const int by = blockDim.y;
  for (int64_t u = blockIdx.x; u < units; u += gridDim.x) {
    int64_t w = u / p.parts, part = u - w * p.parts, outer = w / tiles, lo = part * p.piece, hi = lo + p.piece < p.reduced ? lo + p.piece : p.reduced, in, out;
    int64_t col = ((w - outer * tiles) * blockDim.x + threadIdx.x) * V;
    A a[V];
    amp_red_kept(p, outer, 1, &in, &out);
#pragma unroll
    for (int c = 0; c < V; c++) a[c] = f.start();
    if (col < p.ksize[0]) {
      in += col * p.kin[0];
      for (int64_t i = lo + threadIdx.y; i < hi; i += by * R) {
        T v[V][R];
        int64_t left = (hi - i + by - 1) / by, o[R];
        int m = left < R ? (int)left : R;
        amp_red_offsets(p, o, in, i, by);
        if constexpr (V == 1) { /* in braces: nvcc 13.0 drops a branch whose else begins with a pragma */
          amp_red_load(v[0], p.in, p.dtype, o, m);
        } else {
#pragma unroll
          for (int k = 0; k < R; k++) {
            T row[V] = {};
            if (k < m) amp_load_n<V>(row, p.in, p.dtype, o[k]);
#pragma unroll
            for (int c = 0; c < V; c++) v[c][k] = row[c];
          }
        }
#pragma unroll
        for (int c = 0; c < V; c++) f.take(a[c], v[c], m, i, by);
      }
    }
#pragma unroll
    for (int c = 0; c < V; c++) {
      A x = a[c];
      if (by > 1) {
        __syncthreads();
        all[threadIdx.y * blockDim.x + threadIdx.x] = x;
        __syncthreads();
        if (threadIdx.y == 0)
          for (int k = 1; k < by; k++) x = f.join(x, all[k * blockDim.x + threadIdx.x]);
      }
      if (threadIdx.y == 0 && col + c < p.ksize[0]) {
        if (p.parts > 1) ((A *)p.partial)[(outer * p.ksize[0] + col + c) * p.parts + part] = x;
        else f.store(p, out + (col + c) * p.kout[0], x);
      }
    }
  }
}

/* The parts of each result: a warp each */
template <class F> __global__ void __launch_bounds__(256) amp_red_parts(const amp_red p, const F f)
{
  typedef typename F::A A;
  const A *all = (const A *)p.partial;
  const int lane = threadIdx.x & 31;
  for (int64_t first = (int64_t)blockIdx.x * 8; first < p.outputs; first += (int64_t)gridDim.x * 8) {
    int64_t o = first + (threadIdx.x >> 5), in, out;
    A a = f.start();
    if (o < p.outputs)
      for (int64_t k = lane; k < p.parts; k += 32) a = f.join(a, all[o * p.parts + k]);
    a = amp_red_join(f, a, 32);
    if (lane == 0 && o < p.outputs) {
      amp_red_kept(p, o, 0, &in, &out);
      f.store(p, out, a);
    }
  }
}

/* -- Plans ---------------------------------------------------------------------------- */

/* outdim[d]: the dimension of out that dimension d of in becomes, -1: reduced */
static inline void amp_red_plan(amp_red *p, const amp_tensor *in, const amp_tensor *out, const int *outdim)
{
  int k = 0, r = 0, at;
  memset((void *)p, 0, sizeof *p);
  p->outputs = p->reduced = p->parts = 1;
  p->in = (const char *)amp__data(in);
  p->out = (char *)amp__data(out);
  p->dtype = in->dtype;
  p->odtype = out->dtype;
  for (int d = in->ndim - 1; d >= 0; d--) {
    int64_t n = in->size[d], s = in->stride[d];
    if (outdim[d] >= 0) p->outputs *= n;
    else p->reduced *= n;
    if (n == 1) continue;
    if (outdim[d] >= 0) {
      for (at = k++; at > 0 && s != 0 && p->kin[at - 1] > s; at--) { p->ksize[at] = p->ksize[at - 1]; p->kin[at] = p->kin[at - 1]; p->kout[at] = p->kout[at - 1]; }
      p->ksize[at] = n; p->kin[at] = s; p->kout[at] = out->stride[outdim[d]];
    } else {
      for (at = r++; at > 0 && s != 0 && p->rin[at - 1] > s; at--) { p->rsize[at] = p->rsize[at - 1]; p->rin[at] = p->rin[at - 1]; }
      p->rsize[at] = n; p->rin[at] = s;
    }
  }
  if (k == 0) { p->ksize[0] = 1; p->kout[0] = 1; k = 1; }
  if (r == 0) { p->rsize[0] = 1; p->rin[0] = 1; r = 1; }
  int m = 0;
  for (int i = 1; i < k; i++) {
    if (p->kin[i] == p->kin[m] * p->ksize[m] && p->kout[i] == p->kout[m] * p->ksize[m]) p->ksize[m] *= p->ksize[i];
    else { m++; p->ksize[m] = p->ksize[i]; p->kin[m] = p->kin[i]; p->kout[m] = p->kout[i]; }
  }
  p->nk = m + 1;
  m = 0;
  for (int i = 1; i < r; i++) {
    if (p->rin[i] == p->rin[m] * p->rsize[m]) p->rsize[m] *= p->rsize[i];
    else { m++; p->rsize[m] = p->rsize[i]; p->rin[m] = p->rin[i]; }
  }
  p->nr = m + 1;
  p->columns = p->ksize[0] > 1 && p->kin[0] != 0 && (p->kin[0] < p->rin[0] || p->rin[0] == 0 || p->reduced <= 1);
  int64_t unit = p->columns ? p->kin[0] : p->rin[0], mask = 0;
  for (int d = p->columns; d < p->nk; d++) mask |= p->kin[d];
  for (int d = !p->columns; d < p->nr; d++) mask |= p->rin[d];
  if (p->columns || p->nr > 1) mask |= p->columns ? p->ksize[0] : p->rsize[0];
  p->wide = unit == 1 && mask % AMP_RED_N == 0 && (uintptr_t)p->in % 16 == 0 && (in->dtype == AMP_FLOAT32 || amp__is_half(in->dtype));
}

/* The usual case: mask of reduced dimensions, out with or without them */
static inline void amp_red_plan_mask(amp_red *p, const amp_tensor *in, const amp_tensor *out, uint32_t mask)
{
  int outdim[AMP_MAX_DIM], at = 0;
  bool keep = out->ndim == in->ndim;
  for (int d = 0; d < in->ndim; d++) {
    outdim[d] = mask >> d & 1 ? -1 : at;
    if (keep || !(mask >> d & 1)) at++;
  }
  amp_red_plan(p, in, out, outdim);
}

static inline uint32_t amp_red_mask(const amp_slot *dims) /* of a D attribute */
{
  uint32_t m = 0;
  for (int i = 0; i < dims[0].i; i++) m |= 1u << dims[1 + i].i;
  return m;
}
/* of a d? attribute */
static inline uint32_t amp_red_one(const amp_call *c, int slot) { return c->a[slot].i == AMP_NONE ? (1u << c->in[0]->ndim) - 1 : 1u << c->a[slot].i; }

/* Cut the reduced index into pieces (whole multiples of `step`) so that `units` blocks become enough of them */
static inline void amp_red_cut(amp_red *p, int64_t units, int64_t step, int64_t least)
{
  int64_t want = (int64_t)amp__cuda_here()->sms * 8; /* whole rounds of 4 blocks each, or nearly so */
  if (units >= want / 2 || p->reduced < 2 * least) return;
  int64_t parts = (want + units - 1) / units, most = p->reduced / least;
  if (parts > most) parts = most;
  p->piece = ((p->reduced + parts - 1) / parts + step - 1) / step * step;
  p->parts = (p->reduced + p->piece - 1) / p->piece;
}

template <class F> static int amp_red_run(amp_red *p, const F &f)
{
  enum { N = AMP_RED_N };
  amp_tensor *partial = NULL;
  if (p->outputs == 0) return 0;
  p->piece = p->reduced;
  if (p->columns) {
    int v = p->wide && F::wide ? 8 : 1, bx = 1;
    while (bx < 32 && bx * v < p->ksize[0]) bx *= 2;
    int by = 256 / bx;
    while (by > 1 && by >= 2 * p->reduced) by /= 2;
    int64_t tiles = p->outputs / p->ksize[0] * ((p->ksize[0] + bx * v - 1) / (bx * v));
    amp_red_cut(p, tiles, 1, by * 16);
    if (p->parts > 1 && (partial = amp__cuda_scratch((size_t)(p->outputs * p->parts) * sizeof(typename F::A))) == NULL) return AMP_E_MEMORY;
    if (partial) p->partial = (char *)amp__data(partial);
    dim3 block((unsigned)bx, (unsigned)by);
    if constexpr (F::wide) {
      if (v == 8) AMP_LAUNCH((amp_red_cols<F, 8, 4>), amp_grid(tiles * p->parts, 1), block, 0, *p, f);
    }
    if (v == 1) AMP_LAUNCH((amp_red_cols<F, 1, 8>), amp_grid(tiles * p->parts, 1), block, 0, *p, f);
  } else {
    int group = 1;
    while (group < 32 && group * N < p->reduced) group *= 2;
    if (p->reduced > 1024) group = 256;
    int64_t per = 256 / group;
    if (group == 256) {
      amp_red_cut(p, p->outputs, 2048, 8192);
      if (p->parts > 1 && (partial = amp__cuda_scratch((size_t)(p->outputs * p->parts) * sizeof(typename F::A))) == NULL) return AMP_E_MEMORY;
      if (partial) p->partial = (char *)amp__data(partial);
    }
    AMP_LAUNCH((amp_red_rows<F>), amp_grid(p->outputs * p->parts, per), 256, 0, *p, f, group);
  }
  if (partial) {
    AMP_LAUNCH((amp_red_parts<F>), amp_grid(p->outputs, 8), 256, 0, *p, f);
    amp__free(partial);
  }
  return 0;
}

#endif
