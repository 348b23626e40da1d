/*
** kernel.cuh: what all kernels share: launches, reductions over a warp and a block, a tensor as a launch's argument.
** Elements of any dtype in registers: elements.cuh.
**
** Kernels are templates over the type they compute in (float, double, int64_t),
** not over dtypes: a load asks the operand's dtype, which all threads of a launch
** agree on, so it costs an instruction or two where memory takes hundreds.
** 16-bit floats are uint16_t in memory; only the functions here know their bits.
** Built with AMP_EMULATED (spec/device/emulator) the same sources run on a CPU.
*/
#ifndef AMP_KERNEL_CUH
#define AMP_KERNEL_CUH
#include "common/elements.cuh"
#include "../src/cuda/cuda_branches.h"

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
