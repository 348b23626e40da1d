/*
** cuda_runtime.h of the emulator: as much of CUDA as amp's plug-in and kernels
** use, on a CPU, so that specs and sanitizers reach them where no GPU is.
**
**   AMP_LAUNCH -> emu_launch: blocks one after the other; a block's threads are
**   fibers that run until they meet a barrier or a warp's exchange
**
** Streams run at once and in order; with AMP_EMULATED_LAZY=1 as late as they may.
** While a stream is captured, launches and copies are noted with their arguments
** and what they depend on; a graph runs in another order at each launch, any that
** its dependencies allow. AMP_EMULATED_ORDER=backward runs a launch's last block
** and thread first. Memory is the host's own, from malloc, so that AddressSanitizer
** sees what lies outside; AMP_EMULATED_MEMORY says how many MiB a card has (1024).
*/
#ifndef EMU_CUDA_RUNTIME_H
#define EMU_CUDA_RUNTIME_H
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default) /* for NCCL's plug-in and its stand-in, which are libraries of their own */
#ifdef __cplusplus
extern "C" {
#endif

/* -- Runtime API ------------------------------------------------------------ */

#define CUDART_VERSION 13000
#define EMU_READ \
  __attribute__((warn_unused_result)) /* a status that is not read is a warning: AMP_UNREAD says why not */

typedef enum cudaError {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDevice = 101,
  cudaErrorNotReady = 600,
  cudaErrorNoDevice = 100,
  cudaErrorInsufficientDriver = 35,
  cudaErrorIllegalAddress = 700,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorCapturedEvent = 907
} cudaError_t;
typedef struct emu_stream *cudaStream_t;
typedef struct emu_event *cudaEvent_t;
typedef struct emu_graph *cudaGraph_t;
typedef struct emu_node *cudaGraphNode_t;
typedef struct cudaGraphEdgeData_st {
  unsigned char from_port, to_port, type, reserved[5];
} cudaGraphEdgeData;
enum cudaStreamUpdateCaptureDependenciesFlags {
  cudaStreamAddCaptureDependencies = 0,
  cudaStreamSetCaptureDependencies = 1
};
typedef struct emu_graph *cudaGraphExec_t;
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76
};
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone,
  cudaStreamCaptureStatusActive,
  cudaStreamCaptureStatusInvalidated
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum {
  cudaStreamNonBlocking = 1,
  cudaHostAllocMapped = 2,
  cudaHostAllocDefault = 0,
  cudaHostAllocPortable = 1,
  cudaEventDisableTiming = 2,
  cudaEventDefault = 0
};
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major, minor, multiProcessorCount, l2CacheSize, warpSize, maxThreadsPerBlock;
  size_t sharedMemPerBlockOptin;
};

enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
struct cudaPointerAttributes {
  enum cudaMemoryType type;
  int device;
  void *devicePointer, *hostPointer;
};

EMU_READ cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p);
EMU_READ cudaError_t cudaGetDeviceCount(int *n);
EMU_READ cudaError_t cudaSetDevice(int index);
EMU_READ cudaError_t cudaGetDevice(int *index);
EMU_READ cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int index);
EMU_READ cudaError_t cudaDriverGetVersion(int *v);
EMU_READ cudaError_t cudaRuntimeGetVersion(int *v);
EMU_READ cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total);
EMU_READ cudaError_t cudaMalloc(void **p, size_t n);
EMU_READ cudaError_t cudaFree(void *p);
EMU_READ cudaError_t cudaHostAlloc(void **p, size_t n, unsigned flags);
EMU_READ cudaError_t cudaFreeHost(void *p);
EMU_READ cudaError_t cudaHostGetDevicePointer(void **d, void *h, unsigned flags);
EMU_READ cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind, cudaStream_t s);
EMU_READ cudaError_t cudaMemcpyPeerAsync(void *dst, int to, const void *src, int from, size_t n, cudaStream_t s);
EMU_READ cudaError_t cudaMemsetAsync(void *dst, int value, size_t n, cudaStream_t s);
EMU_READ cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
EMU_READ cudaError_t cudaStreamDestroy(cudaStream_t s);
EMU_READ cudaError_t cudaStreamSynchronize(cudaStream_t s);
EMU_READ cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
EMU_READ cudaError_t cudaStreamQuery(cudaStream_t s);
EMU_READ cudaError_t cudaDeviceSynchronize(void);
EMU_READ cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
EMU_READ cudaError_t cudaEventDestroy(cudaEvent_t e);
EMU_READ cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
EMU_READ cudaError_t cudaEventSynchronize(cudaEvent_t e);
EMU_READ cudaError_t cudaEventQuery(cudaEvent_t e);
EMU_READ cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorString(cudaError_t e);
const char *cudaGetErrorName(cudaError_t e);
EMU_READ cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode);
EMU_READ cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g);
EMU_READ cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *status,
                                              unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **nodes,
                                              const cudaGraphEdgeData **edges, size_t *n);
EMU_READ cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t s, cudaGraphNode_t *nodes,
                                                         const cudaGraphEdgeData *edges, size_t n, unsigned flags);
EMU_READ cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status);
EMU_READ cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode);
EMU_READ cudaError_t cudaGraphInstantiate(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long flags);
EMU_READ cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t e, cudaGraphNode_t node, unsigned on);
EMU_READ cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s);
EMU_READ cudaError_t cudaGraphDestroy(cudaGraph_t g);
EMU_READ cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e);
EMU_READ cudaError_t cudaGraphGetNodes(cudaGraph_t g, void *nodes, size_t *n);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#ifdef __cplusplus

/* -- Kernels ----------------------------------------------------------------- */

#include <algorithm>
#include <math.h>
#include <cstring>
#include <functional>
using std::max;
using std::min;

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __grid_constant__

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) double2 {
  double x, y;
};
static inline uint4 make_uint4(unsigned a, unsigned b, unsigned c, unsigned d) { return uint4{ a, b, c, d }; }
static inline uint2 make_uint2(unsigned a, unsigned b) { return uint2{ a, b }; }
static inline float2 make_float2(float a, float b) { return float2{ a, b }; }
static inline float4 make_float4(float a, float b, float c, float d) { return float4{ a, b, c, d }; }

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
enum { warpSize = 32 };
extern char *emu_shared;                         /* a launch's dynamic shared memory */
extern "C" void emu_barrier(int pred, int *sum); /* all threads of the block; sum of pred */
extern "C" void emu_exchange(const void *mine, void *all,
                             size_t n); /* n <= 24 bytes a lane, among the live lanes of a warp; 0 for others */
extern "C" void emu_take(const void *mine, int lane, void *theirs, size_t n); /* the same, of one lane of 0 to 31 */
/* Copies in the background (cp.async): a thread's groups, whose bytes arrive when they are waited for; `from` NULL:
 * zeros */
extern "C" void emu_async_copy(void *to, const void *from, size_t n);
extern "C" void emu_async_commit(void);
extern "C" void emu_async_wait(int left);
void emu_name(
    const char *kernel); /* of the launch that follows: a line on standard error if AMP_EMULATOR_TRACE is set */
void emu_launch(const std::function<void()> &body, dim3 grid, dim3 block, size_t shared, cudaStream_t s);
typedef std::function<bool()> emu_work; /* true: done; false: not yet, it is called again */
__attribute__((visibility("default"))) void emu_go_on();
__attribute__((visibility("default"))) void emu_queue(cudaStream_t s, const emu_work &f);
cudaError_t emu_relaunch(cudaGraphExec_t graph, cudaGraphNode_t node, const std::function<void()> &body, dim3 grid,
                         dim3 block, size_t shared); /* what a node does in launches to come */

static inline void __syncthreads()
{
  int sum;
  emu_barrier(0, &sum);
}
static inline int __syncthreads_or(int p)
{
  int sum;
  emu_barrier(p != 0, &sum);
  return sum != 0;
}
static inline int __syncthreads_count(int p)
{
  int sum;
  emu_barrier(p != 0, &sum);
  return sum;
}
static inline void __syncwarp(unsigned = ~0u)
{
  int v = 0, all[32];
  emu_exchange(&v, all, sizeof v);
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline int emu_lane()
{
  return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31);
}

template <class T> static inline T emu_pick(T v, int lane)
{
  T theirs;
  emu_take(&v, lane & 31, &theirs, sizeof v);
  return theirs;
}
template <class T> static inline T __shfl_sync(unsigned, T v, int lane, int width = 32)
{
  int me = emu_lane();
  return emu_pick(v, (me & ~(width - 1)) | (lane & (width - 1)));
}
template <class T> static inline T __shfl_xor_sync(unsigned, T v, int mask, int width = 32)
{
  (void)width;
  return emu_pick(v, emu_lane() ^ mask);
}
template <class T> static inline T __shfl_down_sync(unsigned, T v, unsigned d, int width = 32)
{
  int me = emu_lane(), at = (me & (width - 1)) + (int)d;
  return emu_pick(v, at < width ? me + (int)d : me);
}
template <class T> static inline T __shfl_up_sync(unsigned, T v, unsigned d, int width = 32)
{
  int me = emu_lane(), at = (me & (width - 1)) - (int)d;
  return emu_pick(v, at >= 0 ? me - (int)d : me);
}
static inline unsigned __ballot_sync(unsigned, int p)
{
  int v = p != 0, all[32];
  emu_exchange(&v, all, sizeof v);
  unsigned m = 0;
  for (int i = 0; i < 32; i++)
    if (all[i]) m |= 1u << i;
  return m;
}
static inline int __any_sync(unsigned m, int p) { return __ballot_sync(m, p) != 0; }
static inline int __all_sync(unsigned m, int p) { return __ballot_sync(m, !p) == 0; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a * b) >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}

template <class F> EMU_READ static inline cudaError_t cudaFuncSetAttribute(F, enum cudaFuncAttribute, int)
{
  return cudaSuccess;
}
template <class T> static inline T atomicAdd(T *p, T v)
{
  T old = *p;
  *p = old + v;
  return old;
}
template <class T> static inline T atomicMax(T *p, T v)
{
  T old = *p;
  if (v > old) *p = v;
  return old;
}
template <class T> static inline T atomicMin(T *p, T v)
{
  T old = *p;
  if (v < old) *p = v;
  return old;
}
template <class T> static inline T atomicOr(T *p, T v)
{
  T old = *p;
  *p = old | v;
  return old;
}
template <class T> static inline T atomicAnd(T *p, T v)
{
  T old = *p;
  *p = old & v;
  return old;
}
template <class T> static inline T atomicExch(T *p, T v)
{
  T old = *p;
  *p = v;
  return old;
}
template <class T> static inline T atomicCAS(T *p, T was, T v)
{
  T old = *p;
  if (old == was) *p = v;
  return old;
}

template <class To, class From> static inline To emu_bits(From f)
{
  To t;
  static_assert(sizeof t == sizeof f, "size");
  std::memcpy(&t, &f, sizeof t);
  return t;
}
static inline unsigned __float_as_uint(float f) { return emu_bits<unsigned>(f); }
static inline int __float_as_int(float f) { return emu_bits<int>(f); }
static inline float __uint_as_float(unsigned u) { return emu_bits<float>(u); }
static inline float __int_as_float(int u) { return emu_bits<float>(u); }
static inline long long __double_as_longlong(double d) { return emu_bits<long long>(d); }
static inline double __longlong_as_double(long long l) { return emu_bits<double>(l); }
static inline float rsqrtf(float x) { return 1.f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float __fdividef(float a, float b) { return a / b; }
#define __expf expf
#define __logf logf
static inline float __fmul_rn(float a, float b)
{
  volatile float r = a * b;
  return r;
}
static inline float __fadd_rn(float a, float b)
{
  volatile float r = a + b;
  return r;
}
static inline double __dmul_rn(double a, double b)
{
  volatile double r = a * b;
  return r;
}
static inline double __dadd_rn(double a, double b)
{
  volatile double r = a + b;
  return r;
}
double erfinv(double x);
static inline void sincospi(double x, double *s, double *c) /* exact at multiples of 1 / 2 */
{
  double q = nearbyint(2 * x), r = (x - q / 2) * 3.14159265358979323846, a = sin(r), b = cos(r);
  int k = (int)(q - 4 * floor(q / 4));
  *s = k == 0 ? a : k == 1 ? b : k == 2 ? -a : -b;
  *c = k == 0 ? b : k == 1 ? -a : k == 2 ? -b : a;
}
static inline float erfinvf(float x) { return (float)erfinv((double)x); }
template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcs(const T *p) { return *p; }
template <class T> static inline T __ldcg(const T *p) { return *p; }
template <class T> static inline void __stcs(T *p, T v) { *p = v; }
#endif
#endif
