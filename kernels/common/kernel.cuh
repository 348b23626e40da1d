/*
** kernel.cuh: what all kernels share: launches, elements of any dtype in
** registers, reductions over a warp and a block, a tensor as a launch's argument.
**
** Kernels are templates over the type they compute in (float, double, int64_t),
** not over dtypes: a load asks the operand's dtype, which all threads of a launch
** agree on, so it costs an instruction or two where memory takes hundreds.
** 16-bit floats are uint16_t in memory; only the functions here know their bits.
** Built with AMP_EMULATED (spec/device/emulator) the same sources run on a CPU.
*/
#ifndef AMP_KERNEL_CUH
#define AMP_KERNEL_CUH
#include <cfloat>
#include <cmath>
#include "../src/cuda/cuda.h"
#include "../src/cuda/cuda_branches.h"

/* -- Choices ------------------------------------------------------------------- */

/* Stands where no call arrives: the switch before it is made from a list, or its choice checked when compiled. */
#ifdef AMP_EMULATED
#include <cstdlib>
#define AMP_NEVER() abort()
#else
#define AMP_NEVER() __builtin_unreachable()
#endif

/* -- Launches ------------------------------------------------------------------ */

#ifdef AMP_EMULATED
#include <tuple>
template <class... P, class... A>
static void amp_emulate(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... a)
{
  std::tuple<P...> all{ P(a)... };
  emu_launch([kernel, all] { std::apply(kernel, all); }, grid, block, shared, amp__cuda_stream());
}
#define AMP_LAUNCH(kernel, grid, block, shared, ...) \
  (emu_name(#kernel), amp_emulate(kernel, grid, block, shared, __VA_ARGS__))
#define AMP_LAUNCH_NEXT(next, kernel, grid, block, shared, ...) \
  ((void)(next), AMP_LAUNCH(kernel, grid, block, shared, __VA_ARGS__))
template <class... P, class... A>
static cudaError_t amp_emulate_anew(cudaGraphExec_t graph, cudaGraphNode_t node, void (*kernel)(P...), dim3 grid,
                                    dim3 block, size_t shared, A... a)
{
  std::tuple<P...> all{ P(a)... };
  return emu_relaunch(
      graph, node, [kernel, all] { std::apply(kernel, all); }, grid, block, shared);
}
#define AMP_RELAUNCH(graph, node, ...) amp_emulate_anew(graph, node, __VA_ARGS__)
/* dynamic shared memory of a launch */
#define AMP_SHARED(type, name) type *name = (type *)emu_shared
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define AMP_LAUNCH(kernel, grid, block, shared, ...) kernel<<<grid, block, shared, amp__cuda_stream()>>>(__VA_ARGS__)
#define AMP_SHARED(type, name)                                        \
  extern __shared__ __align__(16) unsigned char amp_dynamic_shared[]; \
  type *name = (type *)amp_dynamic_shared

/* A launch which, if `next`, may start while the one before it (of the same row, and of this kind) still runs: it
** reads what came before that one, and calls amp_await before all else that it reads, and before it writes. On cards,
** and with code, from 9.0 on. */
#define AMP_LAUNCH_NEXT(next, kernel, grid, block, shared, ...) \
  amp_launch_next(next, kernel, grid, block, shared, __VA_ARGS__)
template <class T> struct amp_same {
  typedef T type;
};
/* A node of a graph that is there: its kernel's arguments and grid in launches to come. A cudaError_t */
#define AMP_RELAUNCH(graph, node, kernel, grid, block, shared, ...) \
  amp_relaunch(graph, node, kernel, grid, block, shared, __VA_ARGS__)
template <class... P>
static cudaError_t amp_relaunch(cudaGraphExec_t graph, cudaGraphNode_t node, void (*kernel)(P...), dim3 grid,
                                dim3 block, size_t shared, typename amp_same<P>::type... args)
{
  void *list[] = { (void *)&args... };
  cudaKernelNodeParams p = {};
  p.func = (void *)kernel;
  p.gridDim = grid;
  p.blockDim = block;
  p.sharedMemBytes = (unsigned)shared;
  p.kernelParams = list;
  return cudaGraphExecKernelNodeSetParams(graph, node, &p);
}
template <class... P>
static void amp_launch_next(bool next, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                            typename amp_same<P>::type... args)
{
  static int code; /* what the kernel was compiled for; 0: not known yet */
  if (next && code == 0) {
    cudaFuncAttributes a;
    if (cudaFuncGetAttributes(&a, kernel) == cudaSuccess) code = a.ptxVersion;
    else cudaGetLastError();
  }
  if (!next || code < 90 || !amp__cuda_chains()) {
    kernel<<<grid, block, shared, amp__cuda_stream()>>>(args...);
    return;
  }
  cudaLaunchConfig_t c = {};
  cudaLaunchAttribute a;
  a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  a.val.programmaticStreamSerializationAllowed = 1;
  c.gridDim = grid;
  c.blockDim = block;
  c.dynamicSmemBytes = shared;
  c.stream = amp__cuda_stream();
  c.attrs = &a;
  c.numAttrs = 1;
  void *list[] = { (void *)&args... };
  (void)cudaLaunchKernelExC(&c, (const void *)kernel, list);
}
/* A launch whose blocks wait for each other: all are on the card at once, or it is an error */
template <class... P>
static int amp_launch_together(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                               typename amp_same<P>::type... args)
{
  int rc = amp__cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                           "shared memory of a launch");
  void *list[] = { (void *)&args... };
  return rc < 0 ? rc
                : amp__cuda_check(
                    cudaLaunchCooperativeKernel((const void *)kernel, grid, block, list, shared, amp__cuda_stream()),
                    "a launch of blocks that wait for each other");
}
#endif

__device__ __forceinline__ void amp_await(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void amp_let_next(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* Blocks of `per` items each for n items, not more than fill the card `times` over: kernels stride over the rest. */
static inline unsigned amp_grid(int64_t n, int64_t per, int times = 16)
{
  int64_t most = (int64_t)amp__cuda_here()->sms * times, blocks = (n + per - 1) / per;
  return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

#define AMP_FOR(i, n) \
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (int64_t)gridDim.x * blockDim.x)

/* -- 16-bit floats --------------------------------------------------------------- */

__device__ __forceinline__ float amp_bf2f(uint16_t h) { return __uint_as_float((unsigned)h << 16); }
#ifdef AMP_EMULATED
static inline float amp_h2f(uint16_t h)
{
  unsigned sign = (unsigned)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
  if (e == 31) return __uint_as_float(sign | 0x7f800000u | m << 13);
  if (e == 0) {
    float v = (float)m * 0x1p-24f;
    return sign ? -v : v;
  }
  return __uint_as_float(sign | (e + 112) << 23 | m << 13);
}
static inline uint16_t amp_f2h(float f)
{
  unsigned u = __float_as_uint(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000u) return (uint16_t)(sign | 0x7fff);
  if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00);
  if (a < 0x38800000u) {
    float v = __uint_as_float(a) * 0x1p24f;
    return (uint16_t)(sign | (unsigned)(int)nearbyintf(v));
  }
  return (uint16_t)(sign | ((a - 0x38000000u + 0xfff + (a >> 13 & 1)) >> 13));
}
static inline uint16_t amp_f2bf(float f)
{
  unsigned u = __float_as_uint(f);
  if ((u & 0x7fffffff) > 0x7f800000u) return 0x7fff;
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
#else
__device__ __forceinline__ float amp_h2f(uint16_t h) { return __half2float(__ushort_as_half(h)); }
__device__ __forceinline__ uint16_t amp_f2h(float f) { return __half_as_ushort(__float2half_rn(f)); }
__device__ __forceinline__ uint16_t amp_f2bf(float f) { return __bfloat16_as_ushort(__float2bfloat16_rn(f)); }
#endif
/* to float32 so that a later rounding to fewer bits is right */
__device__ __forceinline__ float amp_odd(double x)
{
  float f = (float)x;
  if ((double)f == x || !(fabs(x) <= (double)FLT_MAX)) return f;
  unsigned u = __float_as_uint(f);
  if (fabs((double)f) > fabs(x)) u--; /* towards zero */
  return __uint_as_float(u | 1);
}

/* -- Elements of any dtype ---------------------------------------------------------- */

template <class T> struct amp_is {
  enum { real = 1 };
};
template <> struct amp_is<int64_t> {
  enum { real = 0 };
};
template <> struct amp_is<uint8_t> {
  enum { real = 0 };
};

/* 8-bit floats, as on the CPU (cpu/convert.c), without float subnormals on the way */
__device__ __forceinline__ float amp_f8_to_float(uint8_t bits, int dtype)
{
  if (dtype == AMP_FLOAT8_E5M2) return amp_h2f((uint16_t)(bits << 8)); /* the upper half of a float16 */
  const unsigned magnitude = bits & 0x7fu, sign = (unsigned)(bits & 0x80u) << 24;
  if (magnitude < 8) return __uint_as_float(__float_as_uint((float)magnitude * 0x1p-9f) | sign);
  return __uint_as_float((magnitude == 0x7fu ? 0x7fc00000u : (magnitude << 20) + (120u << 23)) | sign);
}
template <bool SATURATE = true> __device__ __forceinline__ uint8_t amp_float_to_f8(float f, int dtype)
{
  const bool wide = dtype == AMP_FLOAT8_E5M2;
  const unsigned shift = wide ? 21 : 20, rebias = wide ? 112u << 2 : 120u << 3, most = wide ? 0x7bu : 0x7eu;
  const unsigned u = __float_as_uint(f), sign = u >> 24 & 0x80u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return (uint8_t)(sign | (wide ? 0x7eu : 0x7fu));
  if (a < (wide ? 0x38800000u : 0x3c800000u)) { /* subnormal: the sum rounds for us */
    const float adder = wide ? 0x1p7f : 0x1p14f;
    return (uint8_t)(sign | (__float_as_uint(__uint_as_float(a) + adder) - __float_as_uint(adder)));
  }
  unsigned r = ((a + (1u << (shift - 1)) - 1u + (a >> shift & 1u)) >> shift) - rebias;
  if (r > most) r = SATURATE ? most : most + 1;
  return (uint8_t)(sign | r);
}

static_assert(AMP_DTYPE_COUNT == 12, "amp_load and amp_store know twelve dtypes, of which the last case is bool's");

template <class T> __device__ __forceinline__ T amp_load(const void *p, int dtype, int64_t i)
{
  switch (dtype) {
  case AMP_FLOAT64: return (T)((const double *)p)[i];
  case AMP_FLOAT32: return (T)((const float *)p)[i];
  case AMP_FLOAT16: return (T)amp_h2f(((const uint16_t *)p)[i]);
  case AMP_BFLOAT16: return (T)amp_bf2f(((const uint16_t *)p)[i]);
  case AMP_INT64: return (T)((const int64_t *)p)[i];
  case AMP_INT32: return (T)((const int32_t *)p)[i];
  case AMP_INT16: return (T)((const int16_t *)p)[i];
  case AMP_INT8: return (T)((const int8_t *)p)[i];
  case AMP_UINT8: return (T)((const uint8_t *)p)[i];
  case AMP_FLOAT8_E4M3:
  case AMP_FLOAT8_E5M2: return (T)amp_f8_to_float(((const uint8_t *)p)[i], dtype);
  default: return (T)(((const uint8_t *)p)[i] != 0);
  }
}

__device__ __forceinline__ float amp_narrow(float v) { return v; }
__device__ __forceinline__ float amp_narrow(double v) { return amp_odd(v); }
__device__ __forceinline__ float amp_narrow(int64_t v) { return amp_odd((double)v); }
__device__ __forceinline__ float amp_narrow(uint8_t v) { return (float)v; }
/* floats to integers: what does not fit is 0; integers wrap */
__device__ __forceinline__ int64_t amp_whole(float v)
{
  return v >= -9.22337203e18f && v <= 9.22337149e18f ? (int64_t)v : 0;
}
__device__ __forceinline__ int64_t amp_whole(double v)
{
  return v >= -9223372036854775808.0 && v <= 9223372036854774784.0 ? (int64_t)v : 0;
}
__device__ __forceinline__ int64_t amp_whole(int64_t v) { return v; }
__device__ __forceinline__ int64_t amp_whole(uint8_t v) { return v; }

template <class T> __device__ __forceinline__ void amp_store(void *p, int dtype, int64_t i, T v)
{
  switch (dtype) {
  case AMP_FLOAT64: ((double *)p)[i] = (double)v; break;
  case AMP_FLOAT32: ((float *)p)[i] = (float)v; break;
  case AMP_FLOAT16: ((uint16_t *)p)[i] = amp_f2h(amp_narrow(v)); break;
  case AMP_BFLOAT16: ((uint16_t *)p)[i] = amp_f2bf(amp_narrow(v)); break;
  case AMP_INT64: ((int64_t *)p)[i] = amp_whole(v); break;
  case AMP_INT32: ((int32_t *)p)[i] = (int32_t)amp_whole(v); break;
  case AMP_INT16: ((int16_t *)p)[i] = (int16_t)amp_whole(v); break;
  case AMP_INT8: ((int8_t *)p)[i] = (int8_t)amp_whole(v); break;
  case AMP_UINT8: ((uint8_t *)p)[i] = (uint8_t)amp_whole(v); break;
  case AMP_FLOAT8_E4M3:
  case AMP_FLOAT8_E5M2: ((uint8_t *)p)[i] = amp_float_to_f8(amp_narrow(v), dtype); break;
  default: ((uint8_t *)p)[i] = v != 0;
  }
}

/* The value v has once it is stored as dtype (16-bit floats round) */
__device__ __forceinline__ float amp_rounded(float v, int dtype)
{
  return dtype == AMP_FLOAT16 ? amp_h2f(amp_f2h(v)) : dtype == AMP_BFLOAT16 ? amp_bf2f(amp_f2bf(v)) : v;
}

/* N elements beside each other; whole: all are there and p + i is aligned to 16 bytes (or to their size, if that is
 * less) */
template <int N, class T> __device__ __forceinline__ void amp_load_n(T (&v)[N], const void *p, int dtype, int64_t i)
{
  if (dtype == AMP_FLOAT32 && N % 4 == 0) {
    const float4 *q = (const float4 *)((const float *)p + i);
#pragma unroll
    for (int k = 0; k < N / 4; k++) {
      float4 x = q[k];
      v[4 * k] = (T)x.x;
      v[4 * k + 1] = (T)x.y;
      v[4 * k + 2] = (T)x.z;
      v[4 * k + 3] = (T)x.w;
    }
  } else if ((dtype == AMP_FLOAT16 || dtype == AMP_BFLOAT16) && N % 8 == 0) {
    const uint4 *q = (const uint4 *)((const uint16_t *)p + i);
#pragma unroll
    for (int k = 0; k < N / 8; k++) {
      uint4 x = q[k];
      unsigned w[4] = { x.x, x.y, x.z, x.w };
#pragma unroll
      for (int j = 0; j < 4; j++) {
        uint16_t lo = (uint16_t)w[j], hi = (uint16_t)(w[j] >> 16);
        v[8 * k + 2 * j] = (T)(dtype == AMP_FLOAT16 ? amp_h2f(lo) : amp_bf2f(lo));
        v[8 * k + 2 * j + 1] = (T)(dtype == AMP_FLOAT16 ? amp_h2f(hi) : amp_bf2f(hi));
      }
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; k++) v[k] = amp_load<T>(p, dtype, i + k);
  }
}

template <int N, class T> __device__ __forceinline__ void amp_store_n(void *p, int dtype, int64_t i, const T (&v)[N])
{
  if (dtype == AMP_FLOAT32 && N % 4 == 0) {
    float4 *q = (float4 *)((float *)p + i);
#pragma unroll
    for (int k = 0; k < N / 4; k++)
      q[k] = make_float4((float)v[4 * k], (float)v[4 * k + 1], (float)v[4 * k + 2], (float)v[4 * k + 3]);
  } else if ((dtype == AMP_FLOAT16 || dtype == AMP_BFLOAT16) && N % 8 == 0) {
    uint4 *q = (uint4 *)((uint16_t *)p + i);
#pragma unroll
    for (int k = 0; k < N / 8; k++) {
      unsigned w[4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        float a = amp_narrow(v[8 * k + 2 * j]), b = amp_narrow(v[8 * k + 2 * j + 1]);
        w[j] = dtype == AMP_FLOAT16 ? (unsigned)amp_f2h(a) | (unsigned)amp_f2h(b) << 16
                                    : (unsigned)amp_f2bf(a) | (unsigned)amp_f2bf(b) << 16;
      }
      q[k] = make_uint4(w[0], w[1], w[2], w[3]);
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; k++) amp_store<T>(p, dtype, i + k, v[k]);
  }
}

/* -- Reductions ------------------------------------------------------------------------ */

struct amp_sum {
  template <class T> __device__ static T of(T a, T b) { return a + b; }
};
struct amp_most {
  template <class T> __device__ static T of(T a, T b) { return a > b ? a : b; }
};

/* Over the lanes of a warp; every lane has the result. All 32 must come. */
template <class F, class T> __device__ __forceinline__ T amp_reduce_warp(T v)
{
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) v = F::of(v, __shfl_xor_sync(0xffffffffu, v, d));
  return v;
}

/* Over a block of whole warps; every thread has the result. `id` is F's neutral value. Ends and may begin with a
 * barrier's worth of order. */
template <class F, class T> __device__ __forceinline__ T amp_reduce_block(T v, T id)
{
  __shared__ T part[32];
  int lane = threadIdx.x & 31, w = threadIdx.x >> 5, n = (blockDim.x + 31) >> 5;
  v = amp_reduce_warp<F>(v);
  __syncthreads(); /* an earlier call's parts have been read */
  if (lane == 0) part[w] = v;
  __syncthreads();
  v = lane < n ? part[lane] : id;
  return amp_reduce_warp<F>(v);
}

/* -- Tensors as arguments ---------------------------------------------------------------- */

typedef struct amp_arg { /* a tensor, or absent (p NULL) */
  char *p;
  int32_t dtype, ndim;
  int64_t numel, size[AMP_MAX_DIM], stride[AMP_MAX_DIM]; /* elements */
} amp_arg;

static inline amp_arg amp_arg_of(const amp_tensor *t)
{
  amp_arg a;
  memset((void *)&a, 0, sizeof a);
  if (t == NULL) return a;
  a.p = (char *)amp__data(t);
  a.dtype = t->dtype;
  a.ndim = t->ndim;
  a.numel = t->numel;
  for (int d = 0; d < t->ndim; d++) {
    a.size[d] = t->size[d];
    a.stride[d] = t->stride[d];
  }
  return a;
}

/* The offset of element i of a (in C order) */
__device__ __forceinline__ int64_t amp_offset(const amp_arg &a, int64_t i)
{
  int64_t at = 0;
  for (int d = a.ndim - 1; d > 0; d--) {
    int64_t q = i / a.size[d];
    at += (i - q * a.size[d]) * a.stride[d];
    i = q;
  }
  return a.ndim ? at + i * a.stride[0] : 0;
}

/* Note what is wrong with a value; the first stays. */
__device__ __forceinline__ void amp_note(amp_trouble *t, int kind, int op, int64_t value, int64_t limit, int64_t place,
                                         double number = 0)
{
#ifdef AMP_EMULATED
  if (t->kind == 0) {
    t->kind = kind;
    t->op = op;
    t->value = value;
    t->limit = limit;
    t->place = place;
    t->number = number;
  }
#else
  if (atomicCAS((int *)&t->kind, 0, kind) == 0) {
    t->op = op;
    t->value = value;
    t->limit = limit;
    t->place = place;
    t->number = number;
    __threadfence_system();
  }
#endif
}

/* An index counting from 1, negative ones from the end, to one from 0; -1 and a note if out of range */
__device__ __forceinline__ int64_t amp_index(int64_t i, int64_t n, amp_trouble *t, int op, int64_t place)
{
  int64_t k = i > 0 ? i - 1 : i + n;
  if (i == 0 || k < 0 || k >= n) {
    amp_note(t, AMP_TROUBLE_INDEX, op, i, n, place);
    return -1;
  }
  return k;
}

/* v as an element of a dtype has it; the host's */
static inline double amp_round_host(double v, int dtype)
{
  uint64_t bits = 0;
  return amp__value_put(&bits, dtype, v) ? amp__value_get(&bits, dtype) : v;
}

static inline amp_trouble *amp_trouble_cell() { return amp__cuda_here()->trouble_there; }

/* float, double or int64_t for a dtype: amp_by_class(dtype, [&](auto zero) { typedef decltype(zero) T; ... }) */
template <class F> static int amp_by_float(int dtype, F f) { return dtype == AMP_FLOAT64 ? f(0.0) : f(0.f); }
template <class F> static int amp_by_class(int dtype, F f)
{
  return dtype == AMP_FLOAT64 ? f(0.0) : amp__has_gradient(dtype) ? f(0.f) : f((int64_t)0);
}

#endif
