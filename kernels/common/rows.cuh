/*
** rows.cuh: what softmax, losses and normalisation share: a row of data taken by
** a warp or a block, in steps of 8 elements; softmax's running maximum and sum;
** tensors seen as outer x n x inner.
*/
#ifndef AMP_ROWS_CUH
#define AMP_ROWS_CUH
#include "common/kernel.cuh"

enum {
  AMP_ROW_WARP = 1024,
  AMP_ROW_LONG = 8192
}; /* up to WARP elements a warp takes a row; from LONG on a block of 1024 threads */

/* Elements [b, e): vec(i) where 8 lie together on a boundary of 8, one(i) for the others */
template <class V, class S>
__device__ __forceinline__ void amp_row_each(int64_t b, int64_t e, bool wide, int lane, int lanes, V vec, S one)
{
  int64_t vb = (b + 7) >> 3, ve = e >> 3;
  if (!wide || vb >= ve) {
    for (int64_t i = b + lane; i < e; i += lanes) one(i);
    return;
  }
  for (int64_t j = vb + lane; j < ve; j += lanes) vec(j << 3);
  int head = (int)((vb << 3) - b), tail = (int)(e - (ve << 3));
  if (lane < head) one(b + lane);
  for (int k = lane; k < tail; k += lanes) one((ve << 3) + k);
  for (int k = lanes + lane; k < head; k += lanes) one(b + k);
}

/* Sums over the threads of a row: a warp, or the block */
template <bool WARP, class F, class T> __device__ __forceinline__ T amp_row_reduce(T v, T id)
{
  return WARP ? amp_reduce_warp<F>(v) : amp_reduce_block<F>(v, id);
}

/* The rows of a launch: AMP_ROW_LOOP(WARP, r, rows) with lane, lanes */
#define AMP_ROW_LANES(WARP) const int lane = WARP ? threadIdx.x & 31 : threadIdx.x, lanes = WARP ? 32 : blockDim.x
#define AMP_ROW_LOOP(WARP, r, rows)                                                                           \
  for (int64_t r = WARP ? (int64_t)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5) : (int64_t)blockIdx.x; \
       r < (rows); r += WARP ? (int64_t)gridDim.x * (blockDim.x >> 5) : (int64_t)gridDim.x)

/* Launch kernel<T, WARP> over rows of n */
#define AMP_ROW_LAUNCH(kernel, T, rows, n, ...)                                                                  \
  do {                                                                                                           \
    if ((n) <= AMP_ROW_WARP) AMP_LAUNCH((kernel<T, true>), amp_grid(rows, 8, 16), 256, 0, __VA_ARGS__);          \
    else AMP_LAUNCH((kernel<T, false>), amp_grid(rows, 1, 16), (n) < AMP_ROW_LONG ? 256 : 1024, 0, __VA_ARGS__); \
  } while (0)

/* -- Running maximum m and sum s of exp(x - m) ------------------------------------ */

template <int N, class T> __device__ __forceinline__ void amp_fold(T &m, T &s, const T (&v)[N])
{
  T top = m;
#pragma unroll
  for (int k = 0; k < N; k++) top = v[k] > top ? v[k] : top;
  T base = top == -(T)INFINITY ? (T)0 : top; /* nothing but -inf and NaN yet */
  if (top != m) s *= exp(m - base);
  m = top;
#pragma unroll
  for (int k = 0; k < N; k++) s += exp(v[k] - base);
}

template <class T> __device__ __forceinline__ void amp_fold_join(T &m, T &s, T top)
{
  s *= m == top ? (T)1 : exp(m - (top == -(T)INFINITY ? (T)0 : top));
  m = top;
}

/* of a row; a row without a finite element gives NaN */
template <bool WARP, class T> __device__ __forceinline__ void amp_fold_row(T &m, T &s)
{
  T top = amp_row_reduce<WARP, amp_most>(m, -(T)INFINITY);
  amp_fold_join(m, s, top);
  s = amp_row_reduce<WARP, amp_sum>(s, (T)0);
  if (top == -(T)INFINITY) s = (T)NAN;
}

/* -- Vectors of 16 bytes, as they lie in memory ------------------------------------
** Loads of several come before the first is used, and none waits for a branch: what
** keeps enough bytes on their way. */

template <int D> struct amp_lane {
  enum { B = D == AMP_FLOAT32 ? 4 : 2, V = 16 / B };
}; /* bytes of an element, elements of a vector */

template <int D> __device__ __forceinline__ void amp_unpack(float (&v)[amp_lane<D>::V], uint4 w)
{
  const unsigned u[4] = { w.x, w.y, w.z, w.w };
#pragma unroll
  for (int j = 0; j < 4; j++) {
    if constexpr (D == AMP_FLOAT32) {
      v[j] = __uint_as_float(u[j]);
    } else if constexpr (D == AMP_BFLOAT16) {
      v[2 * j] = __uint_as_float(u[j] << 16);
      v[2 * j + 1] = __uint_as_float(u[j] & 0xffff0000u);
    } else {
      v[2 * j] = amp_h2f((uint16_t)u[j]);
      v[2 * j + 1] = amp_h2f((uint16_t)(u[j] >> 16));
    }
  }
}
template <int D> __device__ __forceinline__ uint4 amp_pack(const float (&v)[amp_lane<D>::V])
{
  unsigned u[4];
#pragma unroll
  for (int j = 0; j < 4; j++) {
    if constexpr (D == AMP_FLOAT32) {
      u[j] = __float_as_uint(v[j]);
    } else if constexpr (D == AMP_BFLOAT16) {
      u[j] = (unsigned)amp_f2bf(v[2 * j]) | (unsigned)amp_f2bf(v[2 * j + 1]) << 16;
    } else {
      u[j] = (unsigned)amp_f2h(v[2 * j]) | (unsigned)amp_f2h(v[2 * j + 1]) << 16;
    }
  }
  return make_uint4(u[0], u[1], u[2], u[3]);
}
/* a vector of -inf */
template <int D> __device__ __forceinline__ uint4 amp_lowest()
{
  const unsigned w = D == AMP_FLOAT32 ? 0xff800000u : D == AMP_BFLOAT16 ? 0xff80ff80u : 0xfc00fc00u;
  return make_uint4(w, w, w, w);
}

/* -- exp of float in two instructions, for values that are not above 0 ------------- */

__device__ __forceinline__ float amp_exp_fast(float x)
{
  const float t = x * 1.44269504f; /* log2 e */
#ifdef AMP_EMULATED
  return exp2f(t);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(t));
  return y;
#endif
}

/* amp_fold of many values at once */
__device__ __forceinline__ float amp_finite_or_0(float m) { return m == -INFINITY ? 0.f : m; }
template <int N> __device__ __forceinline__ void amp_fold_fast(float &m, float &s, const float (&v)[N])
{
  float top = m, part[4] = { 0, 0, 0, 0 };
#pragma unroll
  for (int k = 0; k < N; k++) top = fmaxf(top, v[k]);
  const float base = amp_finite_or_0(top);
  if (top != m) s *= amp_exp_fast(m - base);
  m = top;
#pragma unroll
  for (int k = 0; k < N; k++) part[k & 3] += amp_exp_fast(v[k] - base);
  s += part[0] + part[1] + (part[2] + part[3]);
}
__device__ __forceinline__ void amp_fold_fast_warp(float &m, float &s)
{
  float top = amp_reduce_warp<amp_most>(m);
  s = amp_reduce_warp<amp_sum>(s * amp_exp_fast(m - amp_finite_or_0(top)));
  m = top;
}

/* -- Layouts ---------------------------------------------------------------------- */

/* Both without gaps and with the same strides */
static inline bool amp_alike(const amp_tensor *a, const amp_tensor *b)
{
  if (!(a->flags & b->flags & AMP_T_DENSE)) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->size[d] != 1 && a->stride[d] != b->stride[d]) return false;
  return true;
}
static inline bool amp_wide(const void *p) { return ((uintptr_t)p & 15) == 0; }

/* An argument: itself or, if `plain` is not enough, in C order; NULL: error. Freed by its owner. */
static inline amp_tensor *amp_own(amp_tensor *t)
{
  if (t) amp__retain(t);
  return t;
}
/* A result to fill: itself, or one in C order that amp_give copies back */
static inline amp_tensor *amp_take(amp_tensor *t, int dtype)
{
  return t->dtype == dtype && amp__cuda_plain(t) ? amp_own(t) : amp__cuda_make(dtype, t->ndim, t->size);
}
static inline int amp_give(amp_tensor *t, amp_tensor *made, int rc)
{
  if (rc == 0 && made != t && made) rc = amp__cuda_copy_to(t, made);
  amp__free(made);
  return rc;
}

/* n cells of the device that are 0 between launches, for counting blocks. NULL: error. A ticket: one for blocks, one
 * for a flag. */
enum { AMP_CELLS = 1 << 16 };
unsigned *amp_cells(amp_cuda_device *d, unsigned n);
static inline unsigned *amp_ticket(amp_cuda_device *d) { return amp_cells(d, 2); }

/* True in the block of a launch that ends last, whose writes all others' precede; the counter is 0 again. */
__device__ __forceinline__ bool amp_last_block(unsigned *ticket)
{
  __shared__ int last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(ticket, 1u) == gridDim.x * gridDim.y * gridDim.z - 1;
  __syncthreads();
  if (last && threadIdx.x == 0) *ticket = 0;
  if (last) __threadfence();
  return last != 0;
}

#endif
