/*
** elementwise.cuh: the engine under all elementwise kernels.
**
** A family gives a functor over NIN values of a compute type T that makes an R
** (F::flat 0: its code is too long to be there eight times, it has no wide kernel;
** 2: it chooses among formulas at run time, once for eight elements, by f.all);
** amp_ew_run finds out how the operands lie and launches one of two kernels:
**
**   wide   floats of 16 and 32 bits and bytes, 8 elements at once and 16-byte accesses:
**          all operands dense alike (or one value), or broadcast and strided where
**          along the last of the merged dimensions each has neighbours or one value
**   any    the rest, one element a thread and turn
**
** Dimensions are ordered by the result's strides and merged. Numbers and scalars of
** the CPU travel as values in the launch, scalars of the card are read by every
** thread. Results may be operands (in place).
*/
#ifndef AMP_ELEMENTWISE_CUH
#define AMP_ELEMENTWISE_CUH
#include "common/kernel.cuh"
#include "elementwise/places.cuh"
#include "../src/cuda/cuda_chain.h"

enum { AMP_EW_MOST = 5 };
#define AMP_EW_TURN(F, NIN) ((NIN) <= 2 && F::flat == 1 ? 2 : 1) /* vectors of a thread at once */

typedef amp_ew_of<AMP_EW_MOST> amp_ew;

template <class T> __device__ __forceinline__ T amp_ew_value(const amp_ew &e, int k) { return (T)e.op[k].v; }
template <> __device__ __forceinline__ int64_t amp_ew_value<int64_t>(const amp_ew &e, int k) { return e.op[k].i; }

/* -- Kernels --------------------------------------------------------------------- */

/* 8 elements of a dtype with 1, 2 or (floats) 4 bytes, on their way: all operands' are before the first is waited for
 */
static inline bool amp_ew_vector_dtype(int dtype)
{
  return dtype == AMP_FLOAT32 || dtype == AMP_FLOAT16 || dtype == AMP_BFLOAT16 || amp__dtype_size[dtype] == 1;
}
__device__ __forceinline__ bool amp_ew_half(int dtype) { return dtype == AMP_FLOAT16 || dtype == AMP_BFLOAT16; }

typedef struct amp_ew_raw {
  uint4 a, b;
} amp_ew_raw;
__device__ __forceinline__ void amp_ew_fetch(amp_ew_raw &r, const char *p, int dtype, int64_t i)
{
  if (dtype == AMP_FLOAT32) {
    const uint4 *q = (const uint4 *)(p + 4 * i);
    r.a = q[0];
    r.b = q[1];
  } else if (amp_ew_half(dtype)) r.a = *(const uint4 *)(p + 2 * i);
  else {
    const uint2 v = *(const uint2 *)(p + i);
    r.a.x = v.x;
    r.a.y = v.y;
  }
}
template <class T> __device__ __forceinline__ void amp_ew_open(T (&v)[AMP_EW_VECTOR], const amp_ew_raw &r, int dtype)
{
  const unsigned w[8] = { r.a.x, r.a.y, r.a.z, r.a.w, r.b.x, r.b.y, r.b.z, r.b.w };
  if (dtype == AMP_FLOAT32) { /* asked once, and not for each element */
#pragma unroll
    for (int k = 0; k < 8; k++) v[k] = (T)__uint_as_float(w[k]);
  } else if (dtype == AMP_FLOAT16) {
#pragma unroll
    for (int k = 0; k < 8; k++) v[k] = (T)amp_h2f((uint16_t)(w[k / 2] >> (16 * (k & 1))));
  } else if (dtype == AMP_BFLOAT16) {
#pragma unroll
    for (int k = 0; k < 8; k++) v[k] = (T)amp_bf2f((uint16_t)(w[k / 2] >> (16 * (k & 1))));
  } else {
#pragma unroll
    for (int k = 0; k < 8; k++) {
      const uint8_t b = (uint8_t)(w[k / 4] >> (8 * (k & 3)));
      v[k] = dtype == AMP_INT8          ? (T)(int8_t)b
             : dtype == AMP_UINT8       ? (T)b
             : dtype >= AMP_FLOAT8_E4M3 ? (T)amp_f8_to_float(b, dtype)
                                        : (T)(b != 0);
    }
  }
}
template <class R>
__device__ __forceinline__ void amp_ew_put(char *p, int dtype, int64_t i, const R (&v)[AMP_EW_VECTOR])
{
  if (dtype == AMP_FLOAT32) amp_store_n<AMP_EW_VECTOR>(p, AMP_FLOAT32, i, v);
  else if (dtype == AMP_FLOAT16) amp_store_n<AMP_EW_VECTOR>(p, AMP_FLOAT16, i, v);
  else if (dtype == AMP_BFLOAT16) amp_store_n<AMP_EW_VECTOR>(p, AMP_BFLOAT16, i, v);
  else {
    unsigned w[2] = { 0, 0 };
#pragma unroll
    for (int k = 0; k < 8; k++)
      w[k / 4] |= (unsigned)(dtype >= AMP_FLOAT8_E4M3 ? amp_float_to_f8(amp_narrow(v[k]), dtype)
                             : dtype == AMP_BOOL      ? (uint8_t)(v[k] != 0)
                                                      : (uint8_t)amp_whole(v[k]))
                  << (8 * (k & 3));
    *(uint2 *)(p + i) = make_uint2(w[0], w[1]);
  }
}

template <class T, class R, int NIN, class F>
__global__ void __launch_bounds__(256) amp_ew_wide(const amp_ew e, const F f)
{
  enum { N = AMP_EW_VECTOR, U = AMP_EW_TURN(F, NIN) };
  T value[NIN > 0 ? NIN : 1] = {};
#pragma unroll
  for (int k = 0; k < NIN; k++)
    if (e.op[1 + k].mode == AMP_EW_VALUE) value[k] = amp_ew_value<T>(e, 1 + k);
  for (int64_t first = (int64_t)blockIdx.x * (256 * U) + threadIdx.x; first * N < e.n;
       first += (int64_t)gridDim.x * (256 * U)) {
    int64_t at[U][NIN + 1];
    amp_ew_raw raw[U][NIN > 0 ? NIN : 1];
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int64_t j = first + u * 256;
      if ((j + 1) * N > e.n) continue;
      if (e.dims) amp_ew_places(e, (uint32_t)j, at[u]);
      else {
#pragma unroll
        for (int k = 0; k <= NIN; k++) at[u][k] = e.op[k].mode == AMP_EW_DENSE ? j * N : 0;
      }
#pragma unroll
      for (int k = 0; k < NIN; k++)
        if (e.op[1 + k].mode == AMP_EW_DENSE) amp_ew_fetch(raw[u][k], e.op[1 + k].p, e.op[1 + k].dtype, at[u][1 + k]);
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      if ((first + u * 256 + 1) * N > e.n) continue;
      T x[NIN > 0 ? NIN : 1][N];
      R y[N];
#pragma unroll
      for (int k = 0; k < NIN; k++) {
        if (e.op[1 + k].mode == AMP_EW_DENSE) amp_ew_open(x[k], raw[u][k], e.op[1 + k].dtype);
        else {
          T one = e.op[1 + k].mode == AMP_EW_VALUE ? value[k]
                                                   : amp_load<T>(e.op[1 + k].p, e.op[1 + k].dtype, at[u][1 + k]);
#pragma unroll
          for (int q = 0; q < N; q++) x[k][q] = one;
        }
      }
      if constexpr (F::flat == 2) f.all(x, y);
      else {
#pragma unroll
        for (int q = 0; q < N; q++) {
          T a[NIN > 0 ? NIN : 1];
#pragma unroll
          for (int k = 0; k < NIN; k++) a[k] = x[k][q];
          y[q] = f.of(a);
        }
      }
      amp_ew_put(e.op[0].p, e.op[0].dtype, at[u][0], y);
    }
  }
  /* flat: less than a vector */
  const int64_t i = e.n / N * N + threadIdx.x;
  if (blockIdx.x == 0 && i < e.n) {
    T a[NIN > 0 ? NIN : 1];
#pragma unroll
    for (int k = 0; k < NIN; k++)
      a[k] = e.op[1 + k].mode == AMP_EW_VALUE
                 ? value[k]
                 : amp_load<T>(e.op[1 + k].p, e.op[1 + k].dtype, e.op[1 + k].mode == AMP_EW_DENSE ? i : 0);
    amp_store<R>(e.op[0].p, e.op[0].dtype, i, f.of(a));
  }
}

template <class T, class R, int NIN, class F>
__global__ void __launch_bounds__(256) amp_ew_any(const amp_ew e, const F f)
{
  AMP_FOR(j, e.n)
  {
    int64_t at[NIN + 1];
    amp_ew_far_places(e, j, at);
    T a[NIN > 0 ? NIN : 1];
#pragma unroll
    for (int k = 0; k < NIN; k++)
      a[k] = e.op[1 + k].mode == AMP_EW_VALUE ? amp_ew_value<T>(e, 1 + k)
                                              : amp_load<T>(e.op[1 + k].p, e.op[1 + k].dtype, at[1 + k]);
    amp_store<R>(e.op[0].p, e.op[0].dtype, at[0], f.of(a));
  }
}

/* -- How operands lie ----------------------------------------------------------------- */

/* Strides of t as an operand of a shape it broadcasts to */
static inline void amp_ew_strides(const amp_tensor *t, const amp_tensor *shape, int64_t *stride)
{
  int lead = shape->ndim - t->ndim;
  for (int d = 0; d < shape->ndim; d++) stride[d] = d < lead || t->size[d - lead] == 1 ? 0 : t->stride[d - lead];
}

/* Does every operand have neighbours, or one value, along the last dimension, in whole vectors? Then its strides
** become a vector's. */
template <class E> static inline bool amp_ew_vectors(E *e, int nin, bool any_dtype)
{
  const int last = e->dims - 1;
  if (last < 0 || e->size[last] % AMP_EW_VECTOR || e->op[0].stride[last] != 1 || e->n / AMP_EW_VECTOR > INT32_MAX)
    return false;
  for (int k = 0; k <= nin; k++) {
    if (e->op[k].mode == AMP_EW_VALUE) continue;
    if (e->op[k].stride[last] == 0) continue;
    if (e->op[k].stride[last] != 1 || ((uintptr_t)e->op[k].p & 15)
        || !(any_dtype || amp_ew_vector_dtype(e->op[k].dtype)))
      return false;
    for (int d = 0; d < last; d++)
      if (e->op[k].stride[d] % AMP_EW_VECTOR) return false;
  }
  for (int k = 0; k <= nin; k++) {
    if (e->op[k].mode == AMP_EW_DENSE && e->op[k].stride[last] == 0) e->op[k].mode = AMP_EW_ONE;
    e->op[k].stride[last] *= AMP_EW_VECTOR;
  }
  e->size[last] /= AMP_EW_VECTOR;
  return true;
}

/* Dimensions of the result that are not 1, those of large strides first; their number */
static inline int amp_ew_order(const amp_tensor *out, int *order)
{
  int n = 0;
  for (int d = 0; d < out->ndim; d++) {
    if (out->size[d] == 1) continue;
    int64_t s = out->stride[d] < 0 ? -out->stride[d] : out->stride[d];
    int j = n++;
    for (; j > 0; j--) {
      int64_t o = out->stride[order[j - 1]];
      if ((o < 0 ? -o : o) >= s) break;
      order[j] = order[j - 1];
    }
    order[j] = d;
  }
  return n;
}

/* Fill e for a result and nin operands; true: for the wide kernel, if it may be (any_dtype: it takes all). */
template <class E>
static inline bool amp_ew_layout(E *e, amp_tensor *out, amp_tensor *const *in, int nin, bool wide,
                                 bool any_dtype = false)
{
  bool flat = wide && (out->flags & AMP_T_DENSE) != 0;
  memset((void *)e, 0, sizeof *e);
  e->n = out->numel;
  for (int d = 0; d < out->ndim; d++) e->size[d] = out->size[d];
  for (int k = 0; k <= nin; k++) {
    amp_tensor *t = k ? in[k - 1] : out;
    e->op[k].dtype = t->dtype;
    if (t->device == AMP_CPU) { /* a number, or a scalar of the host */
      e->op[k].mode = AMP_EW_VALUE;
      const amp_chain_number n = amp__chain_number(t);
      e->op[k].v = n.v;
      e->op[k].i = n.i;
      continue;
    }
    e->op[k].p = (char *)amp__data(t);
    amp_ew_strides(t, out, e->op[k].stride);
    if (k && t->numel == 1) {
      e->op[k].mode = AMP_EW_ONE;
      continue;
    }
    if (((uintptr_t)e->op[k].p & 15) || !(any_dtype || amp_ew_vector_dtype(t->dtype))) flat = false;
    if (k == 0) continue;
    if (t->numel != out->numel || t->ndim > out->ndim) {
      flat = false;
      continue;
    }
    for (int d = 0; d < out->ndim; d++)
      if (out->size[d] != 1 && e->op[k].stride[d] != out->stride[d]) flat = false;
  }
  if (flat) return true;
  /* by the result's strides, largest first; then merged */
  int order[AMP_MAX_DIM], n = amp_ew_order(out, order);
  E m = *e;
  m.dims = 0;
  for (int j = 0; j < n; j++) {
    int d = order[j];
    bool joins = m.dims > 0;
    for (int k = 0; k <= nin && joins; k++) joins = m.op[k].stride[m.dims - 1] == e->op[k].stride[d] * e->size[d];
    if (joins) m.size[m.dims - 1] *= e->size[d];
    else m.size[m.dims++] = e->size[d];
    for (int k = 0; k <= nin; k++) m.op[k].stride[m.dims - 1] = e->op[k].stride[d];
  }
  *e = m;
  wide = wide && amp_ew_vectors(e, nin, any_dtype);
  e->small = e->n <= INT32_MAX;
  if (wide || e->small)
    for (int d = 0; d < e->dims; d++) e->by[d] = amp_divisor_of(e->size[d]);
  return wide;
}

/* -- Chains: what would be computed is noted, for a kernel of several rows (src/cuda/cuda_chain.h) ------------ */

static inline const char *amp_ew_type(double) { return "double"; }
static inline const char *amp_ew_type(float) { return "float"; }
static inline const char *amp_ew_type(int64_t) { return "int64_t"; }
static inline const char *amp_ew_type(uint8_t) { return "uint8_t"; }

template <class F> static auto amp_ew_name(const F &f, amp_chain_step *step, int) -> decltype(f.text(step), true)
{
  f.text(step);
  return true;
}
template <class F> static bool amp_ew_name(const F &, amp_chain_step *, long) { return false; } /* of no row */

template <class T, class R, int NIN, class F>
static int amp_ew_record(amp_tensor *out, amp_tensor *const *in, const F &f)
{
  amp_chain_step *step = amp__chain_step(amp_ew_type(T()), out, in, NIN);
  if (step && !amp_ew_name(f, step, 0)) amp__chain_record->unfit = true;
  return 0;
}

template <class T, class R, int NIN, class F> static int amp_ew_run(amp_tensor *out, amp_tensor *const *in, F f)
{
  amp_ew e;
  if (amp_unlikely(amp__chain_record != NULL)) return amp_ew_record<T, R, NIN>(out, in, f);
  if (out->numel == 0) return 0;
  constexpr bool can = F::flat && (sizeof(T) <= 4 || NIN == 0); /* few operands of double and int64_t would fit */
  bool wide = amp_ew_layout(&e, out, in, NIN, can);
  if constexpr (can) {
    if (wide) {
      AMP_LAUNCH((amp_ew_wide<T, R, NIN, F>), amp_grid(e.n, 256 * AMP_EW_VECTOR * AMP_EW_TURN(F, NIN), 1 << 12), 256, 0,
                 e, f);
      return 0;
    }
  }
  AMP_LAUNCH((amp_ew_any<T, R, NIN, F>), amp_grid(e.n, 256, 32), 256, 0, e, f);
  return 0;
}

/* -- Compute classes: as on the CPU (tensors first, then scalars, then numbers) ----------- */

enum { AMP_EW_F32, AMP_EW_F64, AMP_EW_I64 };
static inline int amp_ew_class_of_dtype(int dtype)
{
  return dtype == AMP_FLOAT64 ? AMP_EW_F64 : amp__has_gradient(dtype) ? AMP_EW_F32 : AMP_EW_I64;
}
/* Class in which n inputs and a result of dtype out (-1: none) are computed */
static inline int amp_ew_class(int out, amp_tensor *const *in, int n)
{
  int cls = out >= 0 ? amp_ew_class_of_dtype(out) : AMP_EW_I64, ndim = 0;
  for (int i = 0; i < n; i++)
    if (in[i] && !(in[i]->flags & AMP_T_NUMBER) && in[i]->ndim > ndim) ndim = in[i]->ndim;
  for (int pass = 0; pass < 3; pass++)
    for (int i = 0; i < n; i++) {
      const amp_tensor *t = in[i];
      if (t == NULL || pass != (t->flags & AMP_T_NUMBER ? 2 : t->ndim == 0 && ndim > 0)) continue;
      int k = amp_ew_class_of_dtype(t->dtype);
      if (pass == 2 && cls == AMP_EW_I64) {
        double v = *AMP_DATA(double, t);
        if (!(v >= -9.2e18 && v <= 9.2e18 && v == (double)(int64_t)v)) cls = AMP_EW_F64;
      } else if (k == AMP_EW_F64 && (pass == 0 || cls == AMP_EW_I64)) cls = k;
      else if (k == AMP_EW_F32 && cls == AMP_EW_I64) cls = k;
    }
  return cls;
}

#endif
