/*
** rows.cuh: what softmax, losses and normalisation share: a row of data taken by
** a warp or a block, in steps of 8 elements; softmax's running maximum and sum;
** tensors seen as outer x n x inner.
*/
#ifndef AMP_ROWS_CUH
#define AMP_ROWS_CUH
#include "kernel.cuh"

enum { AMP_ROW_WARP = 1024, AMP_ROW_LONG = 8192 }; /* up to WARP elements a warp takes a row; from LONG on a block of 1024 threads */

/* Elements [b, e): vec(i) where 8 lie together on a boundary of 8, one(i) for the others */
template <class V, class S> __device__ __forceinline__ void amp_row_each(int64_t b, int64_t e, bool wide, int lane, int lanes, V vec, S one)
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
template <bool WARP, class F, class T> __device__ __forceinline__ T amp_row_reduce(T v, T id) { return WARP ? amp_reduce_warp<F>(v) : amp_reduce_block<F>(v, id); }

/* The rows of a launch: AMP_ROW_LOOP(WARP, r, rows) with lane, lanes */
#define AMP_ROW_LANES(WARP) const int lane = WARP ? threadIdx.x & 31 : threadIdx.x, lanes = WARP ? 32 : blockDim.x
#define AMP_ROW_LOOP(WARP, r, rows)                                                                                                \
  for (int64_t r = WARP ? (int64_t)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5) : (int64_t)blockIdx.x; r < (rows); \
       r += WARP ? (int64_t)gridDim.x * (blockDim.x >> 5) : (int64_t)gridDim.x)

/* Launch kernel<T, WARP> over rows of n */
#define AMP_ROW_LAUNCH(kernel, T, rows, n, ...)                                                                    \
  do {                                                                                                             \
    if ((n) <= AMP_ROW_WARP) AMP_LAUNCH((kernel<T, true>), amp_grid(rows, 8, 16), 256, 0, __VA_ARGS__);            \
    else AMP_LAUNCH((kernel<T, false>), amp_grid(rows, 1, 16), (n) < AMP_ROW_LONG ? 256 : 1024, 0, __VA_ARGS__);   \
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
static inline amp_tensor *amp_own(amp_tensor *t) { if (t) amp__retain(t); return t; }
/* A result to fill: itself, or one in C order that amp_give copies back */
static inline amp_tensor *amp_take(amp_tensor *t, int dtype) { return t->dtype == dtype && amp__cuda_plain(t) ? amp_own(t) : amp__cuda_make(dtype, t->ndim, t->size); }
static inline int amp_give(amp_tensor *t, amp_tensor *made, int rc)
{
  if (rc == 0 && made != t && made) rc = amp__cuda_copy_to(t, made);
  amp__free(made);
  return rc;
}

/* n cells of the device that are 0 between launches, for counting blocks. NULL: error. A ticket: one for blocks, one for a flag. */
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
