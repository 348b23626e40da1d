/*
** cuda_blas.c: products by cublasLt, opened when the first one comes.
**
** A plan (descriptors and an algorithm) is made once for a shape, layout, dtype
** and epilogue and kept for the life of the process. The first call of a plan
** times the heuristics' first candidates on the real operands; while a step is
** captured, and when runs must repeat, the first candidate is taken untimed.
** cublasLt thinks in columns: what is computed is C^T = B^T A^T.
*/
#include "cuda_core.h"
#include "cuda_gemm.h"
#ifdef AMP_EMULATED
int amp__cuda_gemm_lt(const amp_product *p)
{
  (void)p;
  return 1;
}
const char *amp__cuda_blas_info(void) { return "no cuBLAS in the emulator"; }
#else
#include <cublasLt.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- The library --------------------------------------------------------------- */

/* clang-format off */
#define FUNCTIONS(X) \
  X(Create) \
  X(GetVersion) \
  X(Matmul) X(MatmulDescCreate) X(MatmulDescSetAttribute) X(MatrixLayoutCreate) X(MatrixLayoutSetAttribute) \
      X(MatmulPreferenceCreate) X(MatmulPreferenceSetAttribute) X(MatmulPreferenceDestroy) X(MatmulAlgoGetHeuristic)
/* clang-format on */
#define MEMBER(name) __typeof__(cublasLt##name) *name;
static struct {
  FUNCTIONS(MEMBER)
} lt;
static char info[256];
static bool there;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void open_library(void)
{
  char name[64];
  snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
  void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!lib) lib = dlopen("libcublasLt.so", RTLD_NOW | RTLD_LOCAL);
  if (!lib) {
    snprintf(info, sizeof info, "%s is not found: products use amp's own kernel, which is slow", name);
    return;
  }
#define FIND(f)                                            \
  if (!(*(void **)&lt.f = dlsym(lib, "cublasLt" #f))) {    \
    snprintf(info, sizeof info, "cublasLt has no %s", #f); \
    return;                                                \
  }
  FUNCTIONS(FIND)
  size_t v = lt.GetVersion();
  snprintf(info, sizeof info, "cublasLt %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
  there = true;
}

static bool ready(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_library);
  return there;
}

const char *amp__cuda_blas_info(void)
{
  ready();
  return info;
}

/* -- Plans ------------------------------------------------------------------------ */

enum { WORKSPACE = 32 << 20, CANDIDATES = 8 };

typedef struct key {                                       /* whole: compared by its bytes */
  int64_t rows, cols, k, batch, ldx, ldy, ldd, sx, sy, sd; /* D is rows x cols in columns; X rows x k, Y k x cols */
  int32_t dtype, device, tx, ty, epilogue, align, tf32, fixed, bias, wide;
} key;
typedef struct plan {
  key k;
  cublasLtMatmulDesc_t op;
  cublasLtMatrixLayout_t x, y, d;
  cublasLtMatmulAlgo_t algo;
  float ms;
  size_t need; /* bytes of workspace */
  bool usable;
} plan;

static plan **table;
static size_t used, room;
static cublasLtHandle_t handle[AMP_CUDA_MAX];
static amp_tensor *workspace[AMP_CUDA_MAX];

static uint64_t hash(const key *k)
{
  uint64_t h = 0x9E3779B97F4A7C15u;
  const uint64_t *w = (const uint64_t *)k;
  for (size_t i = 0; i < sizeof *k / 8; i++) h = (h ^ w[i]) * 0xff51afd7ed558ccdu, h ^= h >> 32;
  return h;
}

static plan **find(const key *k)
{
  size_t i = hash(k) & (room - 1);
  while (table[i] && memcmp(&table[i]->k, k, sizeof *k) != 0) i = (i + 1) & (room - 1);
  return &table[i];
}

static bool grow(void)
{
  size_t n = room ? room * 2 : 256, old = room;
  plan **was = table, **fresh = calloc(n, sizeof *fresh);
  if (!fresh) return false;
  table = fresh;
  room = n;
  for (size_t i = 0; i < old; i++)
    if (was[i]) *find(&was[i]->k) = was[i];
  free(was);
  return true;
}

static cudaDataType type_of(int dtype)
{
  return dtype == AMP_FLOAT64   ? CUDA_R_64F
         : dtype == AMP_FLOAT32 ? CUDA_R_32F
         : dtype == AMP_FLOAT16 ? CUDA_R_16F
                                : CUDA_R_16BF;
}

static bool ok(cublasStatus_t s) { return s == CUBLAS_STATUS_SUCCESS; }

static bool layout(cublasLtMatrixLayout_t *l, int dtype, int64_t rows, int64_t cols, int64_t ld, int64_t batch,
                   int64_t stride)
{
  int32_t n = (int32_t)batch;
  return ok(lt.MatrixLayoutCreate(l, type_of(dtype), (uint64_t)rows, (uint64_t)cols, ld))
         && (batch <= 1
             || (ok(lt.MatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n))
                 && ok(lt.MatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                   sizeof stride))));
}

typedef struct job {
  const void *x, *y, *bias;
  void *d, *aux;
} job; /* bias: also where SUMS go */

static cublasStatus_t launch(const plan *p, const job *j, const cublasLtMatmulAlgo_t *algo, size_t need)
{
  float one = 1, zero = 0;
  double one2 = 1, zero2 = 0;
  bool wide = p->k.dtype == AMP_FLOAT64;
  amp_tensor *own = NULL; /* products of a captured step, or of several streams, may run side by side */
  if ((amp__cuda_here()->branches || amp__cuda_number(p->k.device)) && need && !(own = amp__cuda_scratch(need)))
    return CUBLAS_STATUS_ALLOC_FAILED;
  cublasStatus_t s = CUBLAS_STATUS_SUCCESS; /* a plan still has its last job's pointers */
  if (j->bias) s = lt.MatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &j->bias, sizeof j->bias);
  if (j->aux && ok(s))
    s = lt.MatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &j->aux, sizeof j->aux);
  if (ok(s))
    s = lt.Matmul(handle[p->k.device], p->op, wide ? (void *)&one2 : (void *)&one, j->x, p->x, j->y, p->y,
                  wide ? (void *)&zero2 : (void *)&zero, j->d, p->d, j->d, p->d, algo,
                  amp__data(own ? own : workspace[p->k.device]), own ? need : WORKSPACE, amp__cuda_stream());
  amp__free(own);
  return s;
}

/* Milliseconds of one run of a candidate; negative: it fails */
static float timed(const plan *p, const job *j, const cublasLtMatmulAlgo_t *algo, size_t need, cudaEvent_t a,
                   cudaEvent_t b)
{
  float best = -1;
  if (!ok(launch(p, j, algo, need))) return -1;
  for (int i = 0; i < 3; i++) {
    float ms;
    if (cudaEventRecord(a, amp__cuda_stream()) != cudaSuccess) return -1;
    if (!ok(launch(p, j, algo, need)) || !ok(launch(p, j, algo, need))) return -1;
    if (cudaEventRecord(b, amp__cuda_stream()) != cudaSuccess || cudaEventSynchronize(b) != cudaSuccess
        || cudaEventElapsedTime(&ms, a, b) != cudaSuccess)
      return -1;
    if (best < 0 || ms < best) best = ms;
  }
  return best;
}

/* Leaves the time of the candidate taken in p->ms, negative if it was not timed. */
static void choose(plan *p, const job *j, cublasLtMatmulHeuristicResult_t *r, int n)
{
  cudaEvent_t a = NULL, b = NULL;
  int best = 0;
  float least = -1;
  if (!p->k.fixed && n > 1 && 2.0 * (double)p->k.rows * (double)p->k.cols * (double)p->k.k * (double)p->k.batch > 1e4
      && cudaEventCreateWithFlags(&a, cudaEventDefault) == cudaSuccess
      && cudaEventCreateWithFlags(&b, cudaEventDefault) == cudaSuccess) {
    for (int i = 0; i < n; i++) {
      if (r[i].state != CUBLAS_STATUS_SUCCESS) continue;
      float ms = timed(p, j, &r[i].algo, r[i].workspaceSize, a, b);
      if (ms >= 0 && (least < 0 || ms < least)) {
        least = ms;
        best = i;
      }
    }
    cudaGetLastError();
  }
  if (a) AMP_UNREAD(cudaEventDestroy(a));
  if (b) AMP_UNREAD(cudaEventDestroy(b));
  p->algo = r[best].algo;
  p->need = r[best].workspaceSize;
  p->ms = least;
}

static plan *make(const key *k, const job *j)
{
  cublasLtMatmulHeuristicResult_t r[CANDIDATES];
  cublasLtMatmulPreference_t pref = NULL;
  int n = 0;
  plan *p = calloc(1, sizeof *p);
  if (!p) return NULL;
  p->k = *k;
  cublasComputeType_t compute = k->dtype == AMP_FLOAT64 ? CUBLAS_COMPUTE_64F
                                : k->tf32               ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                        : CUBLAS_COMPUTE_32F;
  cublasOperation_t tx = k->tx ? CUBLAS_OP_T : CUBLAS_OP_N, ty = k->ty ? CUBLAS_OP_T : CUBLAS_OP_N;
  static const cublasLtEpilogue_t with[]
      = { CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS,
          CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_BGRADB };
  static const cublasLtEpilogue_t without[]
      = { CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_GELU_AUX,
          CUBLASLT_EPILOGUE_DEFAULT };
  cublasLtEpilogue_t e = j->bias ? with[k->epilogue] : without[k->epilogue];
  uint64_t room_there = WORKSPACE;
  uint32_t align = (uint32_t)k->align;
  bool good = ok(lt.MatmulDescCreate(&p->op, compute, k->dtype == AMP_FLOAT64 ? CUDA_R_64F : CUDA_R_32F))
              && ok(lt.MatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSA, &tx, sizeof tx))
              && ok(lt.MatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSB, &ty, sizeof ty))
              && (k->epilogue == AMP_EPI_NONE
                  || ok(lt.MatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof e)))
              && layout(&p->x, k->dtype, k->tx ? k->k : k->rows, k->tx ? k->rows : k->k, k->ldx, k->batch, k->sx)
              && layout(&p->y, k->dtype, k->ty ? k->cols : k->k, k->ty ? k->k : k->cols, k->ldy, k->batch, k->sy)
              && layout(&p->d, k->wide ? AMP_FLOAT32 : k->dtype, k->rows, k->cols, k->ldd, k->batch, k->sd)
              && ok(lt.MatmulPreferenceCreate(&pref))
              && ok(lt.MatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room_there,
                                                    sizeof room_there));
  for (int i = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES; good && i <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; i++)
    good = ok(lt.MatmulPreferenceSetAttribute(pref, (cublasLtMatmulPreferenceAttributes_t)i, &align, sizeof align));
  if (good && j->aux)
    good = ok(lt.MatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &j->aux, sizeof j->aux))
           && ok(lt.MatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &k->ldd, sizeof k->ldd));
  if (good && j->bias)
    good = ok(lt.MatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &j->bias, sizeof j->bias));
  if (good)
    good = ok(lt.MatmulAlgoGetHeuristic(handle[k->device], p->op, p->x, p->y, p->d, p->d, pref, CANDIDATES, r, &n))
           && n > 0;
  if (pref) AMP_UNREAD(lt.MatmulPreferenceDestroy(pref));
  p->usable = good;
  if (good) choose(p, j, r, n);
  return p; /* one that can't be used is remembered as such */
}

static bool prepare(amp_cuda_device *d)
{
  int64_t n = WORKSPACE;
  if (!handle[d->index] && !ok(lt.Create(&handle[d->index]))) return false;
  if (!workspace[d->index]) workspace[d->index] = amp__cuda_make(AMP_UINT8, 1, &n);
  return workspace[d->index] != NULL;
}

/* -- Calls ----------------------------------------------------------------------------- */

/* A matrix of `outer` x `inner` with strides so, si as one of columns: transposed if its columns lie beside each other.
 * false: neither */
static bool columns(int64_t outer, int64_t inner, int64_t so, int64_t si, int32_t *t, int64_t *ld)
{
  if (si == 1 || inner == 1) {
    *t = 0;
    *ld = outer == 1 ? inner : so;
    if (*ld >= inner) return true;
  }
  if (so == 1 || outer == 1) {
    *t = 1;
    *ld = inner == 1 ? outer : si;
    if (*ld >= outer) return true;
  }
  return false;
}

static int alignment(const void *p, int64_t ld, int64_t stride, int size)
{
  uint64_t bits = (uint64_t)(uintptr_t)p | (uint64_t)(ld * size) | (uint64_t)(stride * size) | 256;
  return (int)(bits & -bits); /* the largest power of two that divides all */
}

/* What a product is for the library; false: none that it is asked for */
static bool key_of(const amp_product *p, const amp_cuda_device *d, const void *bias, key *k)
{
  const int size = amp__dtype_size[p->dtype];
  memset(k, 0, sizeof *k);
  k->rows = p->n;
  k->cols = p->m;
  k->k = p->k;
  k->dtype = p->dtype;
  k->device = d->index;
  k->epilogue = p->epilogue ? p->epilogue : p->bias ? AMP_EPI_BIAS : AMP_EPI_NONE;
  k->bias = bias != NULL;
  k->tf32 = amp__cuda_tf32 && p->dtype == AMP_FLOAT32;
  k->ldd = p->crs;
  k->wide = p->wide;
  /* X = B^T in rows x k: B's k is its outer dimension; Y = A^T in k x cols: A's m is its outer one */
  if (!columns(p->k, p->n, p->brs, p->bcs, &k->tx, &k->ldx) || !columns(p->m, p->k, p->ars, p->acs, &k->ty, &k->ldy))
    return false;
  k->batch = 1;
  if (p->nbatch > 0) {
    int e = p->nbatch - 1; /* the innermost is the library's, others are looped over */
    k->batch = p->size[e];
    k->sx = p->bs[e];
    k->sy = p->as[e];
    k->sd = p->cs[e];
    if (k->batch > INT32_MAX) return false;
  }
  int least = 256, at[3] = { alignment(p->b, k->ldx, k->sx, size), alignment(p->a, k->ldy, k->sy, size),
                             alignment(p->c, k->ldd, k->sd, p->wide ? 4 : size) };
  for (int i = 0; i < 3; i++)
    if (at[i] < least) least = at[i];
  k->align = least < 16 ? least : 16;
  return !((uintptr_t)bias & 15) && !((uintptr_t)p->aux & 15) && (!p->aux || p->n % 8 == 0);
}

/* The plan for a product, made and timed where there is none; NULL: there can be none. The lock is held. */
static const plan *plan_for(const amp_product *p, const key *k, const job *j)
{
  key free_key = *k;
  free_key.fixed = 0;
  plan **slot = find(amp__cuda_deterministic ? k : &free_key); /* one that was timed serves captures, too */
  if (!*slot && k->fixed) slot = find(k);
  if (*slot) return *slot;
  plan *fresh = make(k, j);
  if (!fresh) return NULL;
  *slot = fresh;
  used++;
  if (k->epilogue == AMP_EPI_SUMS && fresh->usable && fresh->ms >= 0) {
    /* is it worth it? A pass over the operand of its own costs a launch and its bytes */
    job plain = *j;
    plain.bias = NULL;
    key q = *k;
    q.epilogue = AMP_EPI_NONE;
    q.bias = 0;
    if (used * 2 >= room && !grow()) return NULL;
    plan **other = find(&q);
    if (!*other && (*other = make(&q, &plain))) used++;
    const double bytes = (double)p->m * (double)p->k * amp__dtype_size[p->dtype];
    if (*other && (*other)->usable && (*other)->ms >= 0
        && fresh->ms > (*other)->ms + 2 * (0.003f + (float)(bytes / 2.5e9)))
      fresh->usable = false;
  }
  return *find(&fresh->k);
}

/* One call of the library for each matrix of the outer batches */
static int launch_all(const amp_product *p, const plan *q, const void *bias)
{
  const int size = amp__dtype_size[p->dtype];
  int64_t outer = 1;
  for (int e = 0; e + 1 < p->nbatch; e++) outer *= p->size[e];
  for (int64_t i = 0; i < outer; i++) {
    int64_t z = i, a = 0, b = 0, c = 0;
    for (int e = p->nbatch - 2; e >= 0; e--) {
      int64_t t = z % p->size[e];
      a += t * p->as[e];
      b += t * p->bs[e];
      c += t * p->cs[e];
      z /= p->size[e];
    }
    job j = { p->b + b * size, p->a + a * size, bias, p->c + c * (p->wide ? 4 : size), p->aux };
    cublasStatus_t s = launch(q, &j, &q->algo, q->need);
    if (s == CUBLAS_STATUS_ALLOC_FAILED && amp__cuda_api->state()->err.code == AMP_E_MEMORY) return AMP_E_MEMORY;
    if (!ok(s)) return amp__fail(AMP_E_DEVICE, "cublasLt failed with status %d", (int)s);
  }
  return 0;
}

int amp__cuda_gemm_lt(const amp_product *p)
{
  key k;
  int rc = 1;
  amp_cuda_device *d = amp__cuda_here();
  const void *bias = p->epilogue == AMP_EPI_SUMS ? p->sums : p->bias;
  if (p->k == 0 || p->ccs != 1 || p->crs < p->n || ((bias || p->epilogue) && p->dtype == AMP_FLOAT64)) return 1;
  if (p->m > INT32_MAX || p->n > INT32_MAX || p->k > INT32_MAX) return 1;
  if (!ready() || !key_of(p, d, bias, &k)) return 1;
  pthread_mutex_lock(&lock);
  k.fixed = d->capture || amp__cuda_deterministic;
  if (prepare(d) && (used * 2 < room || grow())) {
    const job j = { p->b, p->a, bias, p->c, p->aux };
    const plan *q = plan_for(p, &k, &j);
    if (q && q->usable) rc = launch_all(p, q, bias);
  }
  pthread_mutex_unlock(&lock);
  return rc;
}
#endif
