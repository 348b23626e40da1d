/*
** cuda_fft.c: Fourier transforms by cuFFT, opened when the first one comes.
**
** Plans are kept, the most recently used ones; their work space is scratch of the
** pool, given back when a transform is queued. A plan is not made while a step is
** captured (it waits for the card): own kernels go then, unless one is there,
** which from then on stays, for the graph holds what it points to.
*/
#include "cuda_core.h"
#include "cuda_solver.h"

int amp__cuda_fft = 1;

#ifdef AMP_EMULATED
const char *amp__cuda_fft_info(void) { return "no cuFFT in the emulator"; }
int amp__cuda_fft_run(int type, int kind, bool inverse, int64_t n, int64_t batch, int64_t inner, void *x, void *y)
{
  (void)type;
  (void)kind;
  (void)inverse;
  (void)n;
  (void)batch;
  (void)inner;
  (void)x;
  (void)y;
  return 1;
}
#else
#include <cufft.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

/* -- The library ------------------------------------------------------------------ */

#define FUNCTIONS(X)   \
  X(Create)            \
  X(Destroy)           \
  X(SetAutoAllocation) \
  X(MakePlanMany64)    \
  X(SetWorkArea) X(SetStream) X(GetVersion) X(ExecC2C) X(ExecR2C) X(ExecC2R) X(ExecZ2Z) X(ExecD2Z) X(ExecZ2D)
#define MEMBER(name) __typeof__(cufft##name) *name;
static struct {
  FUNCTIONS(MEMBER)
} ft;
static char info[256];
static bool there;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void open_library(void)
{
  char name[64];
  int v = 0;
  snprintf(name, sizeof name, "libcufft.so.%d", CUFFT_VER_MAJOR);
  void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!lib) lib = dlopen("libcufft.so", RTLD_NOW | RTLD_LOCAL);
  if (!lib) {
    snprintf(info, sizeof info, "%s is not found: Fourier transforms use amp's own kernels", name);
    return;
  }
#define FIND(f)                                         \
  if (!(*(void **)&ft.f = dlsym(lib, "cufft" #f))) {    \
    snprintf(info, sizeof info, "cuFFT has no %s", #f); \
    return;                                             \
  }
  FUNCTIONS(FIND)
  if (ft.GetVersion(&v) != CUFFT_SUCCESS) v = CUFFT_VERSION;
  snprintf(info, sizeof info, "cuFFT %d.%d.%d", v / 1000, v / 100 % 10, v % 100);
  there = true;
}

static bool ready(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_library);
  return there;
}

const char *amp__cuda_fft_info(void)
{
  ready();
  return info;
}

/* -- Plans --------------------------------------------------------------------------- */

enum { PLANS = 64, LOOPS = 16 /* transforms of one plan in a row, at most */ };

typedef struct plan {
  int64_t n, batch, inner; /* inner > 1: columns, of which a plan takes inner at a time */
  int type, device;        /* type: cufftType */
  cufftHandle handle;
  size_t work;
  uint64_t used; /* when last; 0: free */
  bool captured;
} plan;

static plan table[PLANS];
static uint64_t now;

/* A plan, with the lock held; NULL: none can be had */
static plan *find(int64_t n, int64_t batch, int64_t inner, int type, int device, bool may_make)
{
  plan *oldest = NULL;
  for (int i = 0; i < PLANS; i++) {
    plan *p = &table[i];
    if (p->used && p->n == n && p->batch == batch && p->inner == inner && p->type == type && p->device == device) {
      p->used = ++now;
      return p;
    }
    if (!p->captured && (!oldest || p->used < oldest->used)) oldest = p;
  }
  if (!may_make || !oldest) return NULL;
  if (oldest->used) AMP_UNREAD(ft.Destroy(oldest->handle)); /* what it still does ends first */
  *oldest = (plan){ .n = n, .batch = batch, .inner = inner, .type = type, .device = device };
  if (ft.Create(&oldest->handle) != CUFFT_SUCCESS) return NULL;
  bool real_in = type == CUFFT_R2C || type == CUFFT_D2Z, real_out = type == CUFFT_C2R || type == CUFFT_Z2D;
  long long size = n, from = real_out ? n / 2 + 1 : n, to = real_in ? n / 2 + 1 : n, step = inner;
  if (ft.SetAutoAllocation(oldest->handle, 0) != CUFFT_SUCCESS
      || ft.MakePlanMany64(oldest->handle, 1, &size, &from, step, inner > 1 ? 1 : from, &to, step, inner > 1 ? 1 : to,
                           (cufftType)type, inner > 1 ? inner : batch, &oldest->work)
             != CUFFT_SUCCESS) {
    AMP_UNREAD(ft.Destroy(oldest->handle));
    return NULL;
  }
  oldest->used = ++now;
  return oldest;
}

static cufftResult execute(const plan *p, bool inverse, void *x, void *y)
{
  int direction = inverse ? CUFFT_INVERSE : CUFFT_FORWARD;
  switch (p->type) {
  case CUFFT_C2C: return ft.ExecC2C(p->handle, x, y, direction);
  case CUFFT_R2C: return ft.ExecR2C(p->handle, x, y);
  case CUFFT_C2R: return ft.ExecC2R(p->handle, x, y);
  case CUFFT_Z2Z: return ft.ExecZ2Z(p->handle, x, y, direction);
  case CUFFT_D2Z: return ft.ExecD2Z(p->handle, x, y);
  case CUFFT_Z2D: return ft.ExecZ2D(p->handle, x, y);
  }
  return CUFFT_INVALID_TYPE;
}

int amp__cuda_fft_run(int type, int kind, bool inverse, int64_t n, int64_t batch, int64_t inner, void *x, void *y)
{
  static const int types[2][3] = { { CUFFT_C2C, CUFFT_R2C, CUFFT_C2R }, { CUFFT_Z2Z, CUFFT_D2Z, CUFFT_Z2D } };
  amp_cuda_device *d = amp__cuda_here();
  amp_tensor *work = NULL;
  bool wide = type == AMP_FLOAT64;
  size_t each = wide ? 8 : 4;
  int64_t loops = inner > 1 ? batch : 1;
  int rc = 1;
  if (loops > LOOPS) return 1;
  size_t in = (size_t)(kind == 1 ? n : 2 * (kind == 2 ? n / 2 + 1 : n)) * each * (size_t)inner,
         out = (size_t)(kind == 2 ? n : 2 * (kind == 1 ? n / 2 + 1 : n)) * each * (size_t)inner;
  if ((((uintptr_t)x | (uintptr_t)y | (loops > 1 ? in | out : 0)) & (2 * each - 1)) || !ready())
    return 1; /* complex values want their boundary */
  pthread_mutex_lock(&lock);
  plan *p = find(n, inner > 1 ? 1 : batch, inner, types[wide][kind], d->index, !d->capture);
  if (!p || !(work = amp__cuda_scratch(p->work)) || ft.SetWorkArea(p->handle, amp__data(work)) != CUFFT_SUCCESS
      || ft.SetStream(p->handle, amp__cuda_stream()) != CUFFT_SUCCESS)
    goto out;
  if (d->capture) p->captured = true;
  for (int64_t i = 0; i < loops; i++) {
    cufftResult r = execute(p, inverse, (char *)x + (size_t)i * in, (char *)y + (size_t)i * out);
    if (r != CUFFT_SUCCESS) {
      rc = amp__fail(AMP_E_DEVICE, "cuFFT failed with status %d", (int)r);
      goto out;
    }
  }
  rc = 0;
out:
  pthread_mutex_unlock(&lock);
  amp__free(work);
  return rc;
}
#endif
