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
#include "common/kernel.cuh"

/* max and min over everything, for reduce_arg.cu, which has those along a dimension (reduce.cu) */
extern "C" int amp__cuda_extreme_of_all(amp_call *c, int largest);

/* out2: of the same strides as out; wide: 8 elements beside each other may be read at once; kept_in, kept_out,
** reduced_in: strides of in and out by the dimensions of both kinds */
typedef struct amp_red {
  const char *in;
  char *out, *out2, *partial;
  int32_t dtype, out_dtype, out2_dtype, kept_dims, reduced_dims, wide, columns;
  int64_t outputs, reduced, parts, piece;
  int64_t kept_size[AMP_MAX_DIM], kept_in[AMP_MAX_DIM], kept_out[AMP_MAX_DIM];
  int64_t reduced_size[AMP_MAX_DIM], reduced_in[AMP_MAX_DIM];
} amp_red;

/* -- Offsets ------------------------------------------------------------------- */

__device__ __forceinline__ int64_t amp_red_reduced(const amp_red &plan, int64_t i)
{
  int64_t at = 0;
  for (int d = 0; d < plan.reduced_dims - 1; d++) {
    int64_t q = (uint64_t)(i | plan.reduced_size[d]) >> 32 ? i / plan.reduced_size[d]
                                                           : (int64_t)((uint32_t)i / (uint32_t)plan.reduced_size[d]);
    at += (i - q * plan.reduced_size[d]) * plan.reduced_in[d];
    i = q;
  }
  return at + i * plan.reduced_in[plan.reduced_dims - 1];
}
/* of the reduced indices i, i + step, ... */
template <int N>
__device__ __forceinline__ void amp_red_offsets(const amp_red &plan, int64_t (&o)[N], int64_t in, int64_t i, int step)
{
  if (plan.reduced_dims == 1) {
    int64_t by = step * plan.reduced_in[0];
    o[0] = in + i * plan.reduced_in[0];
#pragma unroll
    for (int k = 1; k < N; k++) o[k] = o[k - 1] + by;
  } else {
#pragma unroll
    for (int k = 0; k < N; k++) o[k] = in + amp_red_reduced(plan, i + (int64_t)k * step);
  }
}
/* of result o, from dimension `first` on */
__device__ __forceinline__ void amp_red_kept(const amp_red &plan, int64_t o, int first, int64_t *in, int64_t *out)
{
  *in = *out = 0;
  for (int d = first; d < plan.kept_dims; d++) {
    int64_t q = d == plan.kept_dims - 1 ? 0 : o / plan.kept_size[d], r = o - q * plan.kept_size[d];
    *in += r * plan.kept_in[d];
    *out += r * plan.kept_out[d];
    o = q;
  }
}

/* -- Loads: m of N elements at offsets o, the rest 0. Which dtypes a T is loaded from keeps the code short: floats from
** floats, integers from integers; other pairs are cast first. ------------------- */

#define AMP_RED_EACH(E)                                                       \
  _Pragma("unroll") for (int k = 0; k < N; k++) v[k] = k < m ? (T)(E) : (T)0; \
  return
template <int N, class T>
__device__ __forceinline__ void amp_red_load(T (&v)[N], const void *p, int dtype, const int64_t (&o)[N], int m)
{
  constexpr bool real = amp_is<T>::real;
  switch ((amp_dtype)dtype) { /* exhaustive: a dtype without its load is an error where it is compiled */
  case AMP_FLOAT64:
    if constexpr (real && sizeof(T) == 8) { AMP_RED_EACH(((const double *)p)[o[k]]); }
    break;
  case AMP_FLOAT32:
    if constexpr (real) { AMP_RED_EACH(((const float *)p)[o[k]]); }
    break;
  case AMP_FLOAT16:
    if constexpr (real) { AMP_RED_EACH(amp_h2f(((const uint16_t *)p)[o[k]])); }
    break;
  case AMP_BFLOAT16:
    if constexpr (real) { AMP_RED_EACH(amp_bf2f(((const uint16_t *)p)[o[k]])); }
    break;
  case AMP_INT64:
    if constexpr (!real) { AMP_RED_EACH(((const int64_t *)p)[o[k]]); }
    break;
  case AMP_INT32:
    if constexpr (!real) { AMP_RED_EACH(((const int32_t *)p)[o[k]]); }
    break;
  case AMP_INT16:
    if constexpr (!real) { AMP_RED_EACH(((const int16_t *)p)[o[k]]); }
    break;
  case AMP_INT8:
    if constexpr (!real) { AMP_RED_EACH(((const int8_t *)p)[o[k]]); }
    break;
  case AMP_UINT8:
    if constexpr (!real) { AMP_RED_EACH(((const uint8_t *)p)[o[k]]); }
    break;
  case AMP_BOOL:
    if constexpr (!real) { AMP_RED_EACH(((const uint8_t *)p)[o[k]] != 0); }
    break;
  case AMP_FLOAT8_E4M3: /* rows that reduce take none */
  case AMP_FLOAT8_E5M2:
  case AMP_DTYPE_COUNT: break;
  }
  AMP_NEVER();
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

template <class F> __global__ void __launch_bounds__(256, 4) amp_red_rows(const amp_red plan, const F f, int group)
{
  typedef typename F::T T;
  typedef typename F::A A;
  enum { N = AMP_RED_N };
  const int lane = threadIdx.x & (group - 1), per = blockDim.x / group;
  const int64_t units = plan.outputs * plan.parts;
  for (int64_t first = (int64_t)blockIdx.x * per; first < units; first += (int64_t)gridDim.x * per) {
    int64_t u = first + threadIdx.x / group, o = u, lo = 0, hi = plan.reduced, out = 0;
    A a = f.start();
    if (u < units) {
      int64_t in;
      if (plan.parts > 1) {
        o = u / plan.parts;
        lo = (u - o * plan.parts) * plan.piece;
        if (lo + plan.piece < hi) hi = lo + plan.piece;
      }
      amp_red_kept(plan, o, 0, &in, &out);
      if (plan.wide && sizeof(T) == 4) {
        for (int64_t i = lo + lane * N; i < hi; i += group * N) {
          T v[N];
          int64_t at = in + (plan.reduced_dims == 1 ? i : amp_red_reduced(plan, i));
          if (i + N <= hi) {
            amp_load_n<N>(v, plan.in, plan.dtype, at);
            f.take(a, v, N, i, 1);
          } else {
            int64_t o[N];
#pragma unroll
            for (int k = 0; k < N; k++) o[k] = at + k;
            amp_red_load(v, plan.in, plan.dtype, o, (int)(hi - i));
            f.take(a, v, (int)(hi - i), i, 1);
          }
        }
      } else
        for (int64_t i = lo + lane; i < hi; i += group * N) {
          T v[N];
          int64_t left = (hi - i + group - 1) / group, o[N];
          int m = left < N ? (int)left : N;
          amp_red_offsets(plan, o, in, i, group);
          amp_red_load(v, plan.in, plan.dtype, o, m);
          f.take(a, v, m, i, group);
        }
    }
    a = amp_red_join(f, a, group);
    if (lane == 0 && u < units) {
      if (plan.parts > 1) ((A *)plan.partial)[u] = a;
      else f.store(plan, out, a);
    }
  }
}

/* V columns a thread, R of their elements at a time */
template <class F, int V, int R> __global__ void __launch_bounds__(256) amp_red_cols(const amp_red plan, const F f)
{
  typedef typename F::T T;
  typedef typename F::A A;
  __shared__ A all[256];
  const int64_t tiles = (plan.kept_size[0] + blockDim.x * V - 1) / (blockDim.x * V),
                units = plan.outputs / plan.kept_size[0] * tiles * plan.parts;
  const int by = blockDim.y;
  for (int64_t u = blockIdx.x; u < units; u += gridDim.x) {
    int64_t w = u / plan.parts, part = u - w * plan.parts, outer = w / tiles, lo = part * plan.piece,
            hi = lo + plan.piece < plan.reduced ? lo + plan.piece : plan.reduced, in, out;
    int64_t col = ((w - outer * tiles) * blockDim.x + threadIdx.x) * V;
    A a[V];
    amp_red_kept(plan, outer, 1, &in, &out);
#pragma unroll
    for (int c = 0; c < V; c++) a[c] = f.start();
    if (col < plan.kept_size[0]) {
      in += col * plan.kept_in[0];
      for (int64_t i = lo + threadIdx.y; i < hi; i += by * R) {
        T v[V][R];
        int64_t left = (hi - i + by - 1) / by, o[R];
        int m = left < R ? (int)left : R;
        amp_red_offsets(plan, o, in, i, by);
        if constexpr (V == 1) { /* in braces: nvcc 13.0 drops a branch whose else begins with a pragma */
          amp_red_load(v[0], plan.in, plan.dtype, o, m);
        } else {
#pragma unroll
          for (int k = 0; k < R; k++) {
            T row[V] = {};
            if (k < m) amp_load_n<V>(row, plan.in, plan.dtype, o[k]);
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
      if (threadIdx.y == 0 && col + c < plan.kept_size[0]) {
        if (plan.parts > 1) ((A *)plan.partial)[(outer * plan.kept_size[0] + col + c) * plan.parts + part] = x;
        else f.store(plan, out + (col + c) * plan.kept_out[0], x);
      }
    }
  }
}

/* The parts of each result: a warp each */
template <class F> __global__ void __launch_bounds__(256) amp_red_parts(const amp_red plan, const F f)
{
  typedef typename F::A A;
  const A *all = (const A *)plan.partial;
  const int lane = threadIdx.x & 31;
  for (int64_t first = (int64_t)blockIdx.x * 8; first < plan.outputs; first += (int64_t)gridDim.x * 8) {
    int64_t o = first + (threadIdx.x >> 5), in, out;
    A a = f.start();
    if (o < plan.outputs)
      for (int64_t k = lane; k < plan.parts; k += 32) a = f.join(a, all[o * plan.parts + k]);
    a = amp_red_join(f, a, 32);
    if (lane == 0 && o < plan.outputs) {
      amp_red_kept(plan, o, 0, &in, &out);
      f.store(plan, out, a);
    }
  }
}

/* -- Plans ---------------------------------------------------------------------------- */

/* A dimension comes among the `n` kept or reduced ones, which lie by rising stride of the input */
static inline void amp_red_add_kept(amp_red *plan, int n, int64_t size, int64_t stride, int64_t out_stride)
{
  int at = n;
  for (; at > 0 && stride != 0 && plan->kept_in[at - 1] > stride; at--) {
    plan->kept_size[at] = plan->kept_size[at - 1];
    plan->kept_in[at] = plan->kept_in[at - 1];
    plan->kept_out[at] = plan->kept_out[at - 1];
  }
  plan->kept_size[at] = size;
  plan->kept_in[at] = stride;
  plan->kept_out[at] = out_stride;
}
static inline void amp_red_add_reduced(amp_red *plan, int n, int64_t size, int64_t stride)
{
  int at = n;
  for (; at > 0 && stride != 0 && plan->reduced_in[at - 1] > stride; at--) {
    plan->reduced_size[at] = plan->reduced_size[at - 1];
    plan->reduced_in[at] = plan->reduced_in[at - 1];
  }
  plan->reduced_size[at] = size;
  plan->reduced_in[at] = stride;
}

/* The n kept or reduced dimensions with those that continue one another made one; returns how many are left */
static inline int amp_red_merge_kept(amp_red *plan, int n)
{
  int last = 0;
  for (int i = 1; i < n; i++) {
    if (plan->kept_in[i] == plan->kept_in[last] * plan->kept_size[last]
        && plan->kept_out[i] == plan->kept_out[last] * plan->kept_size[last])
      plan->kept_size[last] *= plan->kept_size[i];
    else {
      last++;
      plan->kept_size[last] = plan->kept_size[i];
      plan->kept_in[last] = plan->kept_in[i];
      plan->kept_out[last] = plan->kept_out[i];
    }
  }
  return last + 1;
}
static inline int amp_red_merge_reduced(amp_red *plan, int n)
{
  int last = 0;
  for (int i = 1; i < n; i++) {
    if (plan->reduced_in[i] == plan->reduced_in[last] * plan->reduced_size[last])
      plan->reduced_size[last] *= plan->reduced_size[i];
    else {
      last++;
      plan->reduced_size[last] = plan->reduced_size[i];
      plan->reduced_in[last] = plan->reduced_in[i];
    }
  }
  return last + 1;
}

/* Which kernel takes the plan, and whether it may load by 8 elements */
static inline void amp_red_choose(amp_red *plan)
{
  plan->columns = plan->kept_size[0] > 1 && plan->kept_in[0] != 0
                  && (plan->kept_in[0] < plan->reduced_in[0] || plan->reduced_in[0] == 0 || plan->reduced <= 1);
  int64_t unit = plan->columns ? plan->kept_in[0] : plan->reduced_in[0], mask = 0;
  for (int d = plan->columns; d < plan->kept_dims; d++) mask |= plan->kept_in[d];
  for (int d = !plan->columns; d < plan->reduced_dims; d++) mask |= plan->reduced_in[d];
  if (plan->columns || plan->reduced_dims > 1) mask |= plan->columns ? plan->kept_size[0] : plan->reduced_size[0];
  plan->wide = unit == 1 && mask % AMP_RED_N == 0 && (uintptr_t)plan->in % 16 == 0
               && (plan->dtype == AMP_FLOAT32 || amp__is_half(plan->dtype));
}

/* outdim[d]: the dimension of out that dimension d of in becomes, -1: reduced */
static inline void amp_red_plan(amp_red *plan, const amp_tensor *in, const amp_tensor *out, const int *outdim)
{
  int kept = 0, reduced = 0;
  memset((void *)plan, 0, sizeof *plan);
  plan->outputs = plan->reduced = plan->parts = 1;
  plan->in = (const char *)amp__data(in);
  plan->out = (char *)amp__data(out);
  plan->dtype = in->dtype;
  plan->out_dtype = out->dtype;
  for (int d = in->ndim - 1; d >= 0; d--) {
    const int64_t n = in->size[d];
    if (outdim[d] >= 0) plan->outputs *= n;
    else plan->reduced *= n;
    if (n == 1) continue;
    if (outdim[d] >= 0) amp_red_add_kept(plan, kept++, n, in->stride[d], out->stride[outdim[d]]);
    else amp_red_add_reduced(plan, reduced++, n, in->stride[d]);
  }
  if (kept == 0) amp_red_add_kept(plan, kept++, 1, 0, 1);
  if (reduced == 0) amp_red_add_reduced(plan, reduced++, 1, 1);
  plan->kept_dims = amp_red_merge_kept(plan, kept);
  plan->reduced_dims = amp_red_merge_reduced(plan, reduced);
  amp_red_choose(plan);
}

/* The usual case: mask of reduced dimensions, out with or without them */
static inline void amp_red_plan_mask(amp_red *plan, const amp_tensor *in, const amp_tensor *out, uint32_t mask)
{
  int outdim[AMP_MAX_DIM], at = 0;
  bool keep = out->ndim == in->ndim;
  for (int d = 0; d < in->ndim; d++) {
    outdim[d] = mask >> d & 1 ? -1 : at;
    if (keep || !(mask >> d & 1)) at++;
  }
  amp_red_plan(plan, in, out, outdim);
}

/* Bits of the dimensions of a D attribute */
template <class DIMS> static inline uint32_t amp_red_mask(const DIMS &dims)
{
  uint32_t m = 0;
  for (int i = 0; i < dims.n; i++) m |= 1u << dims.at[i];
  return m;
}
/* of a d? attribute */
static inline uint32_t amp_red_one(const amp_call *c, const int64_t &dim)
{
  return AMP_GIVEN(dim) ? 1u << dim : (1u << c->in[0]->ndim) - 1;
}

/* Cut the reduced index into pieces (whole multiples of `step`) so that `units` blocks become enough of them */
static inline void amp_red_cut(amp_red *plan, int64_t units, int64_t step, int64_t least)
{
  int64_t want = (int64_t)amp__cuda_here()->sms * 8; /* whole rounds of 4 blocks each, or nearly so */
  if (units >= want / 2 || plan->reduced < 2 * least) return;
  int64_t parts = (want + units - 1) / units, most = plan->reduced / least;
  if (parts > most) parts = most;
  plan->piece = ((plan->reduced + parts - 1) / parts + step - 1) / step * step;
  plan->parts = (plan->reduced + plan->piece - 1) / plan->piece;
}

template <class F> static int amp_red_run(amp_red *plan, const F &f)
{
  enum { N = AMP_RED_N };
  amp_tensor *partial = NULL;
  if (plan->outputs == 0) return 0;
  plan->piece = plan->reduced;
  if (plan->columns) {
    int v = plan->wide && F::wide ? 8 : 1, bx = 1;
    while (bx < 32 && bx * v < plan->kept_size[0]) bx *= 2;
    int by = 256 / bx;
    while (by > 1 && by >= 2 * plan->reduced) by /= 2;
    int64_t tiles = plan->outputs / plan->kept_size[0] * ((plan->kept_size[0] + bx * v - 1) / (bx * v));
    amp_red_cut(plan, tiles, 1, by * 16);
    if (plan->parts > 1
        && (partial = amp__cuda_scratch((size_t)(plan->outputs * plan->parts) * sizeof(typename F::A))) == NULL)
      return AMP_E_MEMORY;
    if (partial) plan->partial = (char *)amp__data(partial);
    dim3 block((unsigned)bx, (unsigned)by);
    if constexpr (F::wide) {
      if (v == 8) AMP_LAUNCH((amp_red_cols<F, 8, 4>), amp_grid(tiles * plan->parts, 1), block, 0, *plan, f);
    }
    if (v == 1) AMP_LAUNCH((amp_red_cols<F, 1, 8>), amp_grid(tiles * plan->parts, 1), block, 0, *plan, f);
  } else {
    int group = 1;
    while (group < 32 && group * N < plan->reduced) group *= 2;
    if (plan->reduced > 1024) group = 256;
    int64_t per = 256 / group;
    if (group == 256) {
      amp_red_cut(plan, plan->outputs, 2048, 8192);
      if (plan->parts > 1
          && (partial = amp__cuda_scratch((size_t)(plan->outputs * plan->parts) * sizeof(typename F::A))) == NULL)
        return AMP_E_MEMORY;
      if (partial) plan->partial = (char *)amp__data(partial);
    }
    AMP_LAUNCH((amp_red_rows<F>), amp_grid(plan->outputs * plan->parts, per), 256, 0, *plan, f, group);
  }
  if (partial) {
    AMP_LAUNCH((amp_red_parts<F>), amp_grid(plan->outputs, 8), 256, 0, *plan, f);
    amp__free(partial);
  }
  return 0;
}

#endif
