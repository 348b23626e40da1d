/*
** cuda_solver.c: factorisations by cuSOLVER, opened when the first large matrix
** comes.
**
** One handle a device; work space is scratch of the pool, given back when the
** calls are queued. Some of the library's functions wait for the card, so captured
** steps never come here (amp_to_solver). What fails in the values stands in info,
** on the device.
*/
#include "cuda_core.h"
#include "cuda_solver.h"

int amp__cuda_solver = 1;

#ifdef AMP_EMULATED
const char *amp__cuda_solver_info(void) { return "no cuSOLVER in the emulator"; }
int amp__cuda_solver_lu(int type, int64_t n, void *a, int32_t *piv, int32_t *info)
{
  (void)type;
  (void)n;
  (void)a;
  (void)piv;
  (void)info;
  return 1;
}
int amp__cuda_solver_lu_solve(int type, bool transpose, int64_t n, int64_t k, const void *lu, const int32_t *piv,
                              void *b, int32_t *info)
{
  (void)type;
  (void)transpose;
  (void)n;
  (void)k;
  (void)lu;
  (void)piv;
  (void)b;
  (void)info;
  return 1;
}
int amp__cuda_solver_cholesky(int type, int64_t n, void *a, int32_t *info)
{
  (void)type;
  (void)n;
  (void)a;
  (void)info;
  return 1;
}
int amp__cuda_solver_qr(int type, int64_t m, int64_t n, int64_t nq, void *a, void *q, int32_t *info)
{
  (void)type;
  (void)m;
  (void)n;
  (void)nq;
  (void)a;
  (void)q;
  (void)info;
  return 1;
}
int amp__cuda_solver_svd(int type, int64_t m, int64_t n, bool some, void *a, void *s, void *u, void *v, int32_t *info)
{
  (void)type;
  (void)m;
  (void)n;
  (void)some;
  (void)a;
  (void)s;
  (void)u;
  (void)v;
  (void)info;
  return 1;
}
int amp__cuda_solver_eigh(int type, bool vectors, int64_t n, void *a, void *w, int32_t *info)
{
  (void)type;
  (void)vectors;
  (void)n;
  (void)a;
  (void)w;
  (void)info;
  return 1;
}
#else
#include <cusolverDn.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

/* -- The library ------------------------------------------------------------------- */

#define TWICE(X, name) X(S##name) X(D##name)
/* clang-format off */
#define FUNCTIONS(X) \
  X(Create) \
  X(SetStream) \
  X(CreateGesvdjInfo) TWICE(X, getrf_bufferSize) TWICE(X, getrf) TWICE(X, getrs) TWICE(X, potrf_bufferSize) \
      TWICE(X, potrf) TWICE(X, geqrf_bufferSize) TWICE(X, geqrf) TWICE(X, orgqr_bufferSize) TWICE(X, orgqr) \
          TWICE(X, gesvdj_bufferSize) TWICE(X, gesvdj) TWICE(X, syevd_bufferSize) TWICE(X, syevd)
/* clang-format on */
#define MEMBER(name) __typeof__(cusolverDn##name) *name;
static struct {
  FUNCTIONS(MEMBER)
} so;
static char info_text[256];
static bool there;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cusolverDnHandle_t handle[AMP_CUDA_MAX];
static gesvdjInfo_t jacobi;

static void open_library(void)
{
  char name[64];
  snprintf(name, sizeof name, "libcusolver.so.%d", CUSOLVER_VER_MAJOR);
  void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!lib) lib = dlopen("libcusolver.so", RTLD_NOW | RTLD_LOCAL);
  if (!lib) {
    snprintf(info_text, sizeof info_text,
             "%s is not found: linear algebra uses amp's own kernels, which are slow for large matrices", name);
    return;
  }
#define FIND(f)                                                      \
  if (!(*(void **)&so.f = dlsym(lib, "cusolverDn" #f))) {            \
    snprintf(info_text, sizeof info_text, "cuSOLVER has no %s", #f); \
    return;                                                          \
  }
  FUNCTIONS(FIND)
  int v[3] = { CUSOLVER_VER_MAJOR, CUSOLVER_VER_MINOR, CUSOLVER_VER_PATCH };
  cusolverStatus_t (*property)(libraryPropertyType, int *) = NULL;
  *(void **)&property = dlsym(lib, "cusolverGetProperty");
  for (int i = 0, of; property && i < 3; i++)
    if (property((libraryPropertyType)i, &of) == CUSOLVER_STATUS_SUCCESS) v[i] = of;
  cusolverStatus_t s = so.CreateGesvdjInfo(&jacobi);
  there = s == CUSOLVER_STATUS_SUCCESS;
  if (there) snprintf(info_text, sizeof info_text, "cuSOLVER %d.%d.%d", v[0], v[1], v[2]);
  else snprintf(info_text, sizeof info_text, "cuSOLVER %d.%d.%d does not start: status %d", v[0], v[1], v[2], (int)s);
}

static bool ready(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_library);
  return there;
}

const char *amp__cuda_solver_info(void)
{
  ready();
  return info_text;
}

/* The device's handle, with the lock held until leave; NULL: there is none */
static cusolverDnHandle_t enter(void)
{
  amp_cuda_device *d = amp__cuda_here();
  if (!ready()) return NULL;
  pthread_mutex_lock(&lock);
  if (!handle[d->index] && so.Create(&handle[d->index]) != CUSOLVER_STATUS_SUCCESS) handle[d->index] = NULL;
  if (handle[d->index] && so.SetStream(handle[d->index], amp__cuda_stream()) == CUSOLVER_STATUS_SUCCESS)
    return handle[d->index];
  pthread_mutex_unlock(&lock);
  return NULL;
}

/* What a call comes to: 1 where the library can't, so own kernels go on, unless it has begun */
static int leave(cusolverStatus_t s, bool begun)
{
  pthread_mutex_unlock(&lock);
  if (s == CUSOLVER_STATUS_SUCCESS) return 0;
  if (begun && s == CUSOLVER_STATUS_ALLOC_FAILED) return amp__fail(AMP_E_MEMORY, "no memory for cuSOLVER");
  if (begun) return amp__fail(AMP_E_DEVICE, "cuSOLVER stopped with status %d", (int)s);
  if (s == CUSOLVER_STATUS_NOT_SUPPORTED || s == CUSOLVER_STATUS_INVALID_VALUE || s == CUSOLVER_STATUS_ALLOC_FAILED
      || s == CUSOLVER_STATUS_NOT_INITIALIZED)
    return 1;
  return amp__fail(AMP_E_DEVICE, "cuSOLVER failed with status %d", (int)s);
}

/* Filled with 0: factors of QR are read where nothing was written, and times 0 a NaN from there would show */
static cusolverStatus_t scratch(amp_tensor **w, int64_t bytes)
{
  if (!(*w = amp__cuda_scratch((size_t)bytes))) return CUSOLVER_STATUS_ALLOC_FAILED;
  return cudaMemsetAsync(amp__data(*w), 0, (size_t)bytes, amp__cuda_stream()) == cudaSuccess
             ? CUSOLVER_STATUS_SUCCESS
             : CUSOLVER_STATUS_EXECUTION_FAILED;
}

#define BOTH(single, twice) (wide ? (twice) : (single))

/* -- Square matrices ------------------------------------------------------------------- */

int amp__cuda_solver_lu(int type, int64_t n, void *a, int32_t *piv, int32_t *info)
{
  bool wide = type == AMP_FLOAT64;
  int k = (int)n, room = 0;
  amp_tensor *w = NULL;
  cusolverDnHandle_t h = enter();
  if (!h) return 1;
  cusolverStatus_t s = BOTH(so.Sgetrf_bufferSize(h, k, k, a, k, &room), so.Dgetrf_bufferSize(h, k, k, a, k, &room));
  if (!s) s = scratch(&w, (int64_t)room * amp__dtype_size[type]);
  if (!s)
    s = BOTH(so.Sgetrf(h, k, k, a, k, amp__data(w), piv, info), so.Dgetrf(h, k, k, a, k, amp__data(w), piv, info));
  amp__free(w);
  return leave(s, false);
}

int amp__cuda_solver_lu_solve(int type, bool transpose, int64_t n, int64_t cols, const void *lu, const int32_t *piv,
                              void *b, int32_t *info)
{
  bool wide = type == AMP_FLOAT64;
  int k = (int)n, r = (int)cols;
  cublasOperation_t op = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
  if (cols == 0) return 0;
  cusolverDnHandle_t h = cols <= INT32_MAX ? enter() : NULL;
  if (!h) return 1;
  cusolverStatus_t s
      = BOTH(so.Sgetrs(h, op, k, r, lu, k, piv, b, k, info), so.Dgetrs(h, op, k, r, lu, k, piv, b, k, info));
  return leave(s, false);
}

int amp__cuda_solver_cholesky(int type, int64_t n, void *a, int32_t *info)
{
  bool wide = type == AMP_FLOAT64;
  int k = (int)n, room = 0;
  amp_tensor *w = NULL;
  cusolverDnHandle_t h = enter();
  if (!h) return 1;
  cublasFillMode_t lower = CUBLAS_FILL_MODE_LOWER;
  cusolverStatus_t s
      = BOTH(so.Spotrf_bufferSize(h, lower, k, a, k, &room), so.Dpotrf_bufferSize(h, lower, k, a, k, &room));
  if (!s) s = scratch(&w, (int64_t)room * amp__dtype_size[type]);
  if (!s)
    s = BOTH(so.Spotrf(h, lower, k, a, k, amp__data(w), room, info),
             so.Dpotrf(h, lower, k, a, k, amp__data(w), room, info));
  amp__free(w);
  return leave(s, false);
}

/* -- Orthogonal factors -------------------------------------------------------------------- */

int amp__cuda_solver_qr(int type, int64_t rows, int64_t cols, int64_t nq, void *a, void *q, int32_t *info)
{
  bool wide = type == AMP_FLOAT64;
  int m = (int)rows, n = (int)cols, r = m < n ? m : n, c = (int)nq, room = 0, more = 0;
  size_t each = amp__dtype_size[type];
  amp_tensor *w = NULL, *tau = NULL;
  cusolverDnHandle_t h = enter();
  if (!h) return 1;
  cusolverStatus_t s = scratch(&tau, (int64_t)each * r);
  if (!s) s = BOTH(so.Sgeqrf_bufferSize(h, m, n, a, m, &room), so.Dgeqrf_bufferSize(h, m, n, a, m, &room));
  if (!s)
    s = BOTH(so.Sorgqr_bufferSize(h, m, c, r, q, m, amp__data(tau), &more),
             so.Dorgqr_bufferSize(h, m, c, r, q, m, amp__data(tau), &more));
  if (more > room) room = more;
  if (!s) s = scratch(&w, (int64_t)room * (int64_t)each);
  bool begun = !s;
  if (!s)
    s = BOTH(so.Sgeqrf(h, m, n, a, m, amp__data(tau), amp__data(w), room, info),
             so.Dgeqrf(h, m, n, a, m, amp__data(tau), amp__data(w), room, info));
  if (!s
      && cudaMemcpyAsync(q, a, each * (size_t)m * (size_t)r, cudaMemcpyDeviceToDevice, amp__cuda_stream())
             != cudaSuccess)
    s = CUSOLVER_STATUS_EXECUTION_FAILED;
  if (!s)
    s = BOTH(so.Sorgqr(h, m, c, r, q, m, amp__data(tau), amp__data(w), room, info + 1),
             so.Dorgqr(h, m, c, r, q, m, amp__data(tau), amp__data(w), room, info + 1));
  amp__free(tau);
  amp__free(w);
  return leave(s, begun);
}

int amp__cuda_solver_svd(int type, int64_t rows, int64_t cols, bool some, void *a, void *sv, void *u, void *v,
                         int32_t *info)
{
  bool wide = type == AMP_FLOAT64;
  int m = (int)rows, n = (int)cols, econ = some || !u, room = 0;
  amp_tensor *w = NULL, *none = NULL;
  cusolverEigMode_t job = u ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
  cusolverDnHandle_t h = enter();
  if (!h) return 1;
  cusolverStatus_t s = CUSOLVER_STATUS_SUCCESS;
  if (!u) { /* places that the library may use even for values alone */
    int64_t r = m < n ? m : n;
    s = scratch(&none, (int64_t)amp__dtype_size[type] * (m + n) * r);
    if (!s) {
      u = amp__data(none);
      v = (char *)u + (size_t)amp__dtype_size[type] * (size_t)(m * r);
    }
  }
  if (!s)
    s = BOTH(so.Sgesvdj_bufferSize(h, job, econ, m, n, a, m, sv, u, m, v, n, &room, jacobi),
             so.Dgesvdj_bufferSize(h, job, econ, m, n, a, m, sv, u, m, v, n, &room, jacobi));
  if (!s) s = scratch(&w, (int64_t)room * amp__dtype_size[type]);
  if (!s)
    s = BOTH(so.Sgesvdj(h, job, econ, m, n, a, m, sv, u, m, v, n, amp__data(w), room, info, jacobi),
             so.Dgesvdj(h, job, econ, m, n, a, m, sv, u, m, v, n, amp__data(w), room, info, jacobi));
  amp__free(w);
  amp__free(none);
  return leave(s, false);
}

int amp__cuda_solver_eigh(int type, bool vectors, int64_t size, void *a, void *w, int32_t *info)
{
  bool wide = type == AMP_FLOAT64;
  int n = (int)size, room = 0;
  amp_tensor *work = NULL;
  cusolverEigMode_t job = vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
  cublasFillMode_t lower = CUBLAS_FILL_MODE_LOWER;
  cusolverDnHandle_t h = enter();
  if (!h) return 1;
  cusolverStatus_t s = BOTH(so.Ssyevd_bufferSize(h, job, lower, n, a, n, w, &room),
                            so.Dsyevd_bufferSize(h, job, lower, n, a, n, w, &room));
  if (!s) s = scratch(&work, (int64_t)room * amp__dtype_size[type]);
  if (!s)
    s = BOTH(so.Ssyevd(h, job, lower, n, a, n, w, amp__data(work), room, info),
             so.Dsyevd(h, job, lower, n, a, n, w, amp__data(work), room, info));
  amp__free(work);
  return leave(s, false);
}
#endif
