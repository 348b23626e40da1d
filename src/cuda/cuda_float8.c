/*
** cuda/cuda_float8.c: 8-bit products by cublasLt, on cards that have units for them (compute capability 8.9 and more).
**
** Both operands lie in rows along the dimension that is summed, the only layout that Hopper's units take. In cublasLt's
** columns D^T (N x M) = other^T' input, with other transposed. Each scale goes by a pointer to what its operand is to
*be
** multiplied by, the largest |x| / the format's largest, so that nothing waits. Sums are exact float32 ones: the fast
** mode keeps fewer bits. Scales a piece have no form here; the rows around the plain product serve them.
*/
#include "cuda_core.h"
#include "cuda_gemm.h"
#include "ops/matmul/float8.h"

int amp__cuda_float8_lt(amp_call *c);
#ifdef AMP_EMULATED
int amp__cuda_float8_lt(amp_call *c)
{
  (void)c;
  return 1;
}
#else
#include <cublasLt.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

int amp__cuda_float8_factors(const amp_tensor *a, const amp_tensor *b, double a_most, double b_most, float *to);

#define FUNCTIONS(X)        \
  X(Create)                 \
  X(Matmul)                 \
  X(MatmulDescCreate)       \
  X(MatmulDescSetAttribute) \
  X(MatmulDescDestroy)      \
  X(MatrixLayoutCreate)     \
  X(MatrixLayoutDestroy)    \
  X(MatmulPreferenceCreate) X(MatmulPreferenceSetAttribute) X(MatmulPreferenceDestroy) X(MatmulAlgoGetHeuristic)
#define MEMBER(name) __typeof__(cublasLt##name) *name;
static struct {
  FUNCTIONS(MEMBER)
} lt;
static bool there;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cublasLtHandle_t handle[AMP_CUDA_MAX];

enum { WORKSPACE = 32 << 20, PLANS = 256 };

static void open_library(void)
{
  char name[64];
  snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
  void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!lib) lib = dlopen("libcublasLt.so", RTLD_NOW | RTLD_LOCAL);
  if (!lib) return;
#define FIND(f) \
  if (!(*(void **)&lt.f = dlsym(lib, "cublasLt" #f))) return;
  FUNCTIONS(FIND)
  there = true;
}

static bool ready(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_library);
  return there;
}

typedef struct plan { /* the first members are its key */
  int64_t m, n, k;
  int32_t input, other, base, bias, device, made;
  cublasLtMatmulDesc_t op;
  cublasLtMatrixLayout_t x, y, d;
  cublasLtMatmulAlgo_t algo;
  bool usable;
} plan;
static plan table[PLANS];
static int used;

static bool ok(cublasStatus_t s) { return s == CUBLAS_STATUS_SUCCESS; }
static cudaDataType type_of(int dtype)
{
  switch ((enum amp_dtype)dtype) {
  case AMP_FLOAT8_E4M3: return CUDA_R_8F_E4M3;
  case AMP_FLOAT8_E5M2: return CUDA_R_8F_E5M2;
  case AMP_FLOAT16: return CUDA_R_16F;
  case AMP_BFLOAT16: return CUDA_R_16BF;
  default: return CUDA_R_32F;
  }
}

static bool set(plan *p, cublasLtMatmulDescAttributes_t what, const void *value, size_t bytes)
{
  return ok(lt.MatmulDescSetAttribute(p->op, what, value, bytes));
}

static bool point(plan *p, const float *factors, const void *bias)
{
  const float *other = factors + 1;
  return set(p, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &other, sizeof other)
         && set(p, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &factors, sizeof factors)
         && (!bias || set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
}

static bool make(plan *p, const float *factors, const void *bias)
{
  cublasOperation_t turned = CUBLAS_OP_T, plain = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
  cudaDataType bias_type = type_of(p->base);
  int8_t fast = 0;
  uint64_t most = WORKSPACE;
  cublasLtMatmulPreference_t preference = NULL;
  cublasLtMatmulHeuristicResult_t found;
  int n = 0;
  bool good = ok(lt.MatmulDescCreate(&p->op, CUBLAS_COMPUTE_32F, CUDA_R_32F))
              && set(p, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned)
              && set(p, CUBLASLT_MATMUL_DESC_TRANSB, &plain, sizeof plain)
              && set(p, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
  if (good && bias)
    good = set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue)
           && set(p, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof bias_type);
  good
      = good && point(p, factors, bias)
        && ok(lt.MatrixLayoutCreate(&p->x, type_of(p->other), (uint64_t)p->k, (uint64_t)p->n, p->k))
        && ok(lt.MatrixLayoutCreate(&p->y, type_of(p->input), (uint64_t)p->k, (uint64_t)p->m, p->k))
        && ok(lt.MatrixLayoutCreate(&p->d, type_of(p->base), (uint64_t)p->n, (uint64_t)p->m, p->n))
        && ok(lt.MatmulPreferenceCreate(&preference))
        && ok(lt.MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most))
        && ok(lt.MatmulAlgoGetHeuristic(handle[p->device], p->op, p->x, p->y, p->d, p->d, preference, 1, &found, &n))
        && n > 0;
  if (preference) AMP_UNREAD(lt.MatmulPreferenceDestroy(preference));
  if (good) p->algo = found.algo;
  return good;
}

/* The plan of a product, made at need; NULL: there is none, and no room for more. */
static plan *plan_for(const plan *wanted, const float *factors, const void *bias)
{
  const size_t key = offsetof(plan, made);
  for (int i = 0; i < used; i++)
    if (memcmp(&table[i], wanted, key) == 0) return table[i].usable ? &table[i] : NULL;
  if (used == PLANS) return NULL;
  plan *p = &table[used++];
  *p = *wanted;
  p->usable = make(p, factors, bias);
  return p->usable ? p : NULL;
}

static bool whole_rows(const amp_tensor *t)
{
  return amp__cuda_plain(t) && ((uintptr_t)amp__data(t) & 15) == 0 && t->size[0] % 16 == 0 && t->size[1] % 16 == 0;
}

int amp__cuda_float8_lt(amp_call *c)
{
  amp_cuda_device *d = amp__cuda_here();
  amp_tensor *input = c->in[0], *other = c->in[1], *bias = c->nin > 4 ? c->in[4] : NULL, *out = c->out[0];
  if (d->cc < 89 || c->in[2]->ndim != 1 || out->numel == 0 || input->numel == 0 || !whole_rows(input)
      || !whole_rows(other) || !amp__is_half(out->dtype)
      || (bias && (bias->dtype != out->dtype || bias->stride[0] != 1)) || !ready())
    return 1;
  amp_tensor *factors = amp__cuda_scratch(2 * sizeof(float)), *room = amp__cuda_scratch(WORKSPACE);
  int rc = factors && room ? amp__cuda_float8_factors(c->in[2], c->in[3], amp__float8_most(input->dtype),
                                                      amp__float8_most(other->dtype), amp__data(factors))
                           : AMP_E_MEMORY;
  if (rc == 0) {
    plan wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.m = input->size[0];
    wanted.n = other->size[0];
    wanted.k = input->size[1];
    wanted.input = input->dtype;
    wanted.other = other->dtype;
    wanted.base = out->dtype;
    wanted.bias = bias != NULL;
    wanted.device = d->index;
    float one = 1, zero = 0;
    const float *at = amp__data(factors);
    const void *added = bias ? amp__data(bias) : NULL;
    pthread_mutex_lock(&lock);
    plan *p = handle[d->index] || ok(lt.Create(&handle[d->index])) ? plan_for(&wanted, at, added) : NULL;
    rc = 1;
    if (p && point(p, at, added)
        && ok(lt.Matmul(handle[d->index], p->op, &one, amp__data(other), p->x, amp__data(input), p->y, &zero,
                        amp__data(out), p->d, amp__data(out), p->d, &p->algo, amp__data(room), WORKSPACE,
                        amp__cuda_stream())))
      rc = 0;
    pthread_mutex_unlock(&lock);
  }
  amp__free(factors);
  amp__free(room);
  return rc;
}
#endif
