/*
** chain.cuh: what all generated kernels share: elementwise rows that follow each other as one launch.
**
** A thread holds C::vector elements of each input in registers, makes what each row makes of them one after the
** other, and writes the last one's result. Inputs are read once and the result is written once, whatever the
** number of rows; memory bounds it. What lies between two rows has been rounded to its dtype, as if it had been
** written and read: it is kept as its bits.
**
** src/cuda/cuda_chain.c writes the rest: a class C that says how many `inputs` it has, how many elements a thread
** takes (`turns` times `vector`) and whether they are gone through by a loop (`rolled`), how elements are fetched,
** and what is made of element q of them: of(), the bits of the result.
*/
#ifndef AMP_CHAIN_CUH
#define AMP_CHAIN_CUH
#include "elementwise/binary_rows.cuh"
#include "elementwise/cast_rows.cuh"
#include "elementwise/ternary_rows.cuh"
#include "elementwise/unary_rows.cuh"

enum { AMP_CHAIN_WORDS = 16, AMP_CHAIN_THREADS = 256 };

/* -- Elements as bits -------------------------------------------------------------- */

__device__ constexpr int amp_bytes_of(int dtype)
{
  return dtype == AMP_FLOAT64 || dtype == AMP_INT64                            ? 8
         : dtype == AMP_FLOAT32 || dtype == AMP_INT32                          ? 4
         : dtype == AMP_FLOAT16 || dtype == AMP_BFLOAT16 || dtype == AMP_INT16 ? 2
                                                                               : 1;
}
template <int BYTES> struct amp_bits_type {
  typedef unsigned type;
};
template <> struct amp_bits_type<8> {
  typedef uint64_t type;
};
template <int D> using amp_bits = typename amp_bits_type<amp_bytes_of(D)>::type;

/* What amp_store would write */
template <int D, class R> __device__ __forceinline__ amp_bits<D> amp_to_bits(R v)
{
  if constexpr (D == AMP_FLOAT64) return (uint64_t)__double_as_longlong((double)v);
  else if constexpr (D == AMP_FLOAT32) return __float_as_uint((float)v);
  else if constexpr (D == AMP_FLOAT16) return amp_f2h(amp_narrow(v));
  else if constexpr (D == AMP_BFLOAT16) return amp_f2bf(amp_narrow(v));
  else if constexpr (D == AMP_INT64) return (uint64_t)amp_whole(v);
  else if constexpr (D == AMP_INT32) return (unsigned)(int32_t)amp_whole(v);
  else if constexpr (D == AMP_INT16) return (uint16_t)amp_whole(v);
  else if constexpr (D == AMP_INT8 || D == AMP_UINT8) return (uint8_t)amp_whole(v);
  else if constexpr (D == AMP_FLOAT8_E4M3 || D == AMP_FLOAT8_E5M2) return amp_float_to_f8(amp_narrow(v), D);
  else return v != 0;
}
/* What amp_load would read */
template <class T, int D> __device__ __forceinline__ T amp_of_bits(amp_bits<D> b)
{
  if constexpr (D == AMP_FLOAT64) return (T)__longlong_as_double((long long)b);
  else if constexpr (D == AMP_FLOAT32) return (T)__uint_as_float(b);
  else if constexpr (D == AMP_FLOAT16) return (T)amp_h2f((uint16_t)b);
  else if constexpr (D == AMP_BFLOAT16) return (T)amp_bf2f((uint16_t)b);
  else if constexpr (D == AMP_INT64) return (T)(int64_t)b;
  else if constexpr (D == AMP_INT32) return (T)(int32_t)b;
  else if constexpr (D == AMP_INT16) return (T)(int16_t)(uint16_t)b;
  else if constexpr (D == AMP_INT8) return (T)(int8_t)(uint8_t)b;
  else if constexpr (D == AMP_UINT8) return (T)(uint8_t)b;
  else if constexpr (D == AMP_FLOAT8_E4M3 || D == AMP_FLOAT8_E5M2) return (T)amp_f8_to_float((uint8_t)b, D);
  else return (T)((uint8_t)b != 0);
}

/* A value of the host */
typedef struct amp_value {
  double v;
  int64_t i;
} amp_value;
template <class T> __device__ __forceinline__ T amp_of_value(const amp_value &n) { return (T)n.v; }
template <> __device__ __forceinline__ int64_t amp_of_value<int64_t>(const amp_value &n) { return n.i; }

/* -- Elements beside each other in words ---------------------------------------------- */

template <int D> __device__ __forceinline__ amp_bits<D> amp_word_bits(const unsigned (&w)[AMP_CHAIN_WORDS], int q)
{
  constexpr int bytes = amp_bytes_of(D);
  if constexpr (bytes == 8) return (uint64_t)w[2 * q + 1] << 32 | w[2 * q];
  else if constexpr (bytes == 4) return w[q];
  else if constexpr (bytes == 2) return w[q / 2] >> (16 * (q & 1)) & 0xffffu;
  else return w[q / 4] >> (8 * (q & 3)) & 0xffu;
}
/* w: 0 before */
template <int D> __device__ __forceinline__ void amp_put_bits(unsigned (&w)[AMP_CHAIN_WORDS], int q, amp_bits<D> b)
{
  constexpr int bytes = amp_bytes_of(D);
  if constexpr (bytes == 8) {
    w[2 * q] = (unsigned)b;
    w[2 * q + 1] = (unsigned)(b >> 32);
  } else if constexpr (bytes == 4) w[q] = b;
  else if constexpr (bytes == 2) w[q / 2] |= (unsigned)b << (16 * (q & 1));
  else w[q / 4] |= (unsigned)b << (8 * (q & 3));
}

/* Element 1 becomes element 0, and so on */
template <int D> __device__ __forceinline__ void amp_next_bits(unsigned (&w)[AMP_CHAIN_WORDS])
{
  constexpr int bytes = amp_bytes_of(D), by = bytes == 8 ? 2 : 1;
#pragma unroll
  for (int k = 0; k < AMP_CHAIN_WORDS; k++) {
    const unsigned above = k + by < AMP_CHAIN_WORDS ? w[k + by] : 0;
    if constexpr (bytes >= 4) w[k] = above;
    else w[k] = w[k] >> (8 * bytes) | above << (32 - 8 * bytes);
  }
}

template <int D> __device__ __forceinline__ amp_bits<D> amp_read_bits(const char *p, int64_t i)
{
  constexpr int bytes = amp_bytes_of(D);
  if constexpr (bytes == 8) return ((const uint64_t *)p)[i];
  else if constexpr (bytes == 4) return ((const unsigned *)p)[i];
  else if constexpr (bytes == 2) return ((const uint16_t *)p)[i];
  else return ((const uint8_t *)p)[i];
}
template <int D> __device__ __forceinline__ void amp_write_bits(char *p, int64_t i, amp_bits<D> b)
{
  constexpr int bytes = amp_bytes_of(D);
  if constexpr (bytes == 8) ((uint64_t *)p)[i] = b;
  else if constexpr (bytes == 4) ((unsigned *)p)[i] = b;
  else if constexpr (bytes == 2) ((uint16_t *)p)[i] = (uint16_t)b;
  else ((uint8_t *)p)[i] = (uint8_t)b;
}

/* N elements from place `at` on, or N times the one there */
template <int D, int N>
__device__ __forceinline__ void amp_chain_fetch(unsigned (&w)[AMP_CHAIN_WORDS], const char *p, int mode, int64_t at)
{
  constexpr int words = N * amp_bytes_of(D) / 4;
  if (N == 1 || mode != AMP_EW_DENSE) {
    const amp_bits<D> b = amp_read_bits<D>(p, at);
#pragma unroll
    for (int k = 0; k < AMP_CHAIN_WORDS; k++) w[k] = 0;
#pragma unroll
    for (int q = 0; q < N; q++) amp_put_bits<D>(w, q, b);
    return;
  }
  const char *from = p + at * amp_bytes_of(D);
  if constexpr (words >= 4) {
#pragma unroll
    for (int k = 0; k < words / 4; k++) {
      const uint4 v = ((const uint4 *)from)[k];
      w[4 * k] = v.x;
      w[4 * k + 1] = v.y;
      w[4 * k + 2] = v.z;
      w[4 * k + 3] = v.w;
    }
  } else if constexpr (words == 2) {
    const uint2 v = *(const uint2 *)from;
    w[0] = v.x;
    w[1] = v.y;
  } else if constexpr (words == 1) w[0] = *(const unsigned *)from;
}
template <int D, int N>
__device__ __forceinline__ void amp_chain_store(char *p, int64_t at, const unsigned (&w)[AMP_CHAIN_WORDS])
{
  constexpr int words = N * amp_bytes_of(D) / 4;
  char *to = p + at * amp_bytes_of(D);
  if constexpr (words >= 4) {
#pragma unroll
    for (int k = 0; k < words / 4; k++)
      ((uint4 *)to)[k] = make_uint4(w[4 * k], w[4 * k + 1], w[4 * k + 2], w[4 * k + 3]);
  } else if constexpr (words == 2) *(uint2 *)to = make_uint2(w[0], w[1]);
  else *(unsigned *)to = w[0];
}

/* -- The two kernels ------------------------------------------------------------------- */

/* Vectors: elementwise.cuh's wide kernel for any number of rows */
template <class C>
__device__ __forceinline__ void amp_chain_wide(const typename C::places &e, const typename C::numbers &n,
                                               const typename C::steps &s)
{
  enum { N = C::vector, PARTS = AMP_EW_VECTOR / N, U = C::turns, STRIDE = AMP_CHAIN_THREADS };
  const int64_t vectors = e.n / AMP_EW_VECTOR * PARTS;
  for (int64_t first = (int64_t)blockIdx.x * (STRIDE * U) + threadIdx.x; first < vectors;
       first += (int64_t)gridDim.x * (STRIDE * U)) {
    int64_t at[U][C::inputs + 1];
    unsigned w[U][C::inputs][AMP_CHAIN_WORDS];
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int64_t turn = first + u * STRIDE, j = turn / PARTS;
      if (turn >= vectors) continue;
      if (e.dims) amp_ew_places(e, (uint32_t)j, at[u]);
#pragma unroll
      for (int k = 0; k <= C::inputs; k++) {
        if (e.op[k].mode != AMP_EW_DENSE) {
          if (!e.dims) at[u][k] = 0;
        } else at[u][k] = (e.dims ? at[u][k] : j * AMP_EW_VECTOR) + turn % PARTS * N;
      }
      C::template fetch<N>(w[u], e, at[u]);
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (first + u * STRIDE >= vectors) continue;
      unsigned y[AMP_CHAIN_WORDS] = {};
      if constexpr (C::rolled) { /* long code is there once */
#pragma unroll 1
        for (int q = 0; q < N; q++) {
          amp_next_bits<C::result>(y);
          amp_put_bits<C::result>(y, N - 1, C::of(w[u], 0, n, s));
          C::next(w[u]);
        }
      } else {
#pragma unroll
        for (int q = 0; q < N; q++) amp_put_bits<C::result>(y, q, C::of(w[u], q, n, s));
      }
      amp_chain_store<C::result, N>(e.op[0].p, at[u][0], y);
    }
  }
  /* flat: less than a vector */
  const int64_t i = e.n / AMP_EW_VECTOR * AMP_EW_VECTOR + threadIdx.x;
  if (blockIdx.x == 0 && i < e.n) {
    int64_t at[C::inputs + 1];
    unsigned w[C::inputs][AMP_CHAIN_WORDS];
#pragma unroll
    for (int k = 0; k <= C::inputs; k++) at[k] = e.op[k].mode == AMP_EW_DENSE ? i : 0;
    C::template fetch<1>(w, e, at);
    amp_write_bits<C::result>(e.op[0].p, i, C::of(w, 0, n, s));
  }
}

/* The rest, one element a thread and turn */
template <class C>
__device__ __forceinline__ void amp_chain_any(const typename C::places &e, const typename C::numbers &n,
                                              const typename C::steps &s)
{
  for (int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; j < e.n; j += (int64_t)gridDim.x * blockDim.x) {
    int64_t at[C::inputs + 1];
    unsigned w[C::inputs][AMP_CHAIN_WORDS];
    amp_ew_far_places(e, j, at);
    C::template fetch<1>(w, e, at);
    amp_write_bits<C::result>(e.op[0].p, at[0], C::of(w, 0, n, s));
  }
}

#endif
