/*
** emulator.cpp: the runtime behind cuda_runtime.h of this folder: cards, memory, errors. Streams, events and graphs are
** in streams.cpp; what a launch does is in fibers.cpp.
*/
#include <cstdio>
#include <cstdlib>
#include <map>
#include "emulator.h"

static thread_local cudaError_t last_error = cudaSuccess;
cudaError_t emu_fail(cudaError_t e)
{
  last_error = e;
  return e;
}

static std::map<const char *, size_t> pinned;
bool emu_pinned(const void *p)
{
  std::lock_guard<std::recursive_mutex> guard(running);
  auto k = pinned.upper_bound((const char *)p);
  if (k == pinned.begin()) return false;
  --k;
  return (const char *)p < k->first + k->second;
}

void emu_name(const char *kernel)
{
  static const bool on = getenv("AMP_EMULATOR_TRACE") != nullptr;
  if (on) fprintf(stderr, "launch %s\n", kernel);
}

extern "C" {

cudaError_t cudaGetDeviceCount(int *n)
{
  const char *e = getenv("AMP_EMULATED_GPUS");
  *n = e ? atoi(e) : 1;
  return *n > 0 ? cudaSuccess : emu_fail(cudaErrorNoDevice);
}
static thread_local int device;
static size_t memory()
{
  const char *e = getenv("AMP_EMULATED_MEMORY");
  return (size_t)(e ? atoi(e) : 1024) << 20;
} /* MiB */
struct block {
  size_t n;
  int card;
};
static std::map<const char *, block> blocks; /* of cards, by where they begin */
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
  std::lock_guard<std::recursive_mutex> guard(running);
  auto k = blocks.upper_bound((const char *)p);
  *a = { cudaMemoryTypeUnregistered, 0, (void *)p, nullptr };
  if (k != blocks.begin() && (const char *)p < (--k)->first + k->second.n)
    *a = { cudaMemoryTypeDevice, k->second.card, (void *)p, nullptr };
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int i)
{
  int n;
  if (cudaGetDeviceCount(&n) != cudaSuccess || i < 0 || i >= n) return emu_fail(cudaErrorInvalidDevice);
  device = i;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int *i)
{
  *i = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int)
{
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "emulated GPU");
  p->totalGlobalMem = memory();
  p->major = 9;
  p->minor = 0;
  {
    const char *e = getenv("AMP_EMULATED_SMS");
    p->multiProcessorCount = e ? atoi(e) : 2;
  }
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->sharedMemPerBlockOptin = 227 * 1024;
  p->l2CacheSize = 1 << 20;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *v)
{
  *v = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v)
{
  *v = 13000;
  return cudaSuccess;
}
static size_t taken;
cudaError_t cudaMemGetInfo(size_t *f, size_t *t)
{
  *t = memory();
  *f = *t > taken ? *t - taken : 0;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void **p, size_t n)
{
  *p = nullptr;
  if (n + taken > memory()) return emu_fail(cudaErrorMemoryAllocation);
  char *q = (char *)malloc(n + (n == 0));
  if (!q) return emu_fail(cudaErrorMemoryAllocation);
  memset(q, 0xff, n); /* NaN: what was not written shows */
  std::lock_guard<std::recursive_mutex> guard(running);
  blocks[q] = { n, device };
  taken += n;
  *p = q;
  return cudaSuccess;
}
cudaError_t cudaFree(void *p)
{
  if (p == nullptr) return cudaSuccess;
  emu_catch_up_all();
  std::lock_guard<std::recursive_mutex> guard(running);
  auto k = blocks.find((const char *)p);
  if (k == blocks.end()) return emu_fail(cudaErrorInvalidValue);
  taken -= k->second.n;
  blocks.erase(k);
  free(p);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned)
{
  *p = malloc(n);
  if (!*p) return emu_fail(cudaErrorMemoryAllocation);
  std::lock_guard<std::recursive_mutex> guard(running);
  pinned[(const char *)*p] = n;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void *p)
{
  emu_catch_up_all();
  std::lock_guard<std::recursive_mutex> guard(running);
  pinned.erase((const char *)p);
  free(p);
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void **d, void *h, unsigned)
{
  *d = h;
  return cudaSuccess;
}
cudaError_t cudaGetLastError(void)
{
  cudaError_t e = last_error;
  last_error = cudaSuccess;
  return e;
}
cudaError_t cudaPeekAtLastError(void) { return last_error; }
const char *cudaGetErrorString(cudaError_t e)
{
  return e == cudaSuccess                         ? "no error"
         : e == cudaErrorMemoryAllocation         ? "out of memory"
         : e == cudaErrorInvalidConfiguration     ? "invalid configuration argument"
         : e == cudaErrorStreamCaptureUnsupported ? "operation not permitted when stream is capturing"
         : e == cudaErrorCapturedEvent ? "operation not permitted on an event last recorded in a capturing stream"
         : e == cudaErrorNoDevice      ? "no CUDA-capable device is detected"
                                       : "an error";
}
const char *cudaGetErrorName(cudaError_t e) { return cudaGetErrorString(e); }

} // extern "C"

/* Newton's steps on erf from a rational start (Giles, 2010). */
double erfinv(double x)
{
  if (!(x > -1 && x < 1)) return x == 1 ? INFINITY : x == -1 ? -INFINITY : NAN;
  double w = -log((1 - x) * (1 + x)), y;
  if (w < 5) y = 1.50140941 + (w - 2.5) * (0.246640727 + (w - 2.5) * (-0.00417768164 + (w - 2.5) * -0.00125372503));
  else {
    double r = sqrt(w) - 3;
    y = 2.83297682 + r * (1.00167406 + r * (0.00943887047 + r * -0.0076224613));
  }
  y *= x;
  for (int i = 0; i < 4; i++) {
    double e = fabs(x) < 0.5 ? erf(y) - x : x > 0 ? (1 - x) - erfc(y) : erfc(-y) - (1 + x);
    y -= e * 0.88622692545275801365 * exp(y * y);
  }
  return y;
}
