/*
** cuda/cuda_float8.c: 8-bit products by cublasLt, on cards that have units for them (compute capability 8.9 and more).
**
** Both operands lie in rows along the dimension that is summed, the only layout that Hopper's units take. In cublasLt's
** columns D^T (N x M) = other^T' input, with other transposed. Scales go by pointers, at multiples of 16 bytes, so that
** nothing waits: what operands are to be multiplied by. The fast mode of sums is off; all the same Hopper's units keep
** some 14 bits of a sum of a few terms. Scales of pieces of 128 go as matrices of their own, along the rows of the
** result first, from cublasLt 12.9 on and on cards of 9.0 alone; elsewhere the rows around the product serve them.
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

int amp__cuda_float8_factor(const amp_tensor *a, const amp_tensor *b, double a_most, double b_most, float *to);
int amp__cuda_float8_piece_factors(const amp_tensor *largest, double most, float *to);

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
  int32_t input, other, base, bias, device, pieces, made;
  cublasLtMatmulDesc_t op;
  cublasLtMatrixLayout_t x, y, d;
  cublasLtMatmulAlgo_t algo;
  bool usable;
} plan;
static plan table[PLANS];
static int used, oldest; /* oldest: of a full table */

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

/* of: factors of input, and of other */
static bool point(plan *p, const float *const *of, const void *bias)
{
  return set(p, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &of[1], sizeof of[1])
         && set(p, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &of[0], sizeof of[0])
         && (!bias || set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
}

static bool by_pieces(plan *p)
{
#if CUBLAS_VERSION >= 120900
  int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
  return set(p, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &mode, sizeof mode)
         && set(p, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &mode, sizeof mode);
#else
  (void)p;
  return false;
#endif
}

static bool make(plan *p, const float *const *of, const void *bias)
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
  if (good && p->pieces) good = by_pieces(p);
  good
      = good && point(p, of, bias)
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

/* Launches that are queued have what they need. */
static void forget(plan *p)
{
  if (p->op) AMP_UNREAD(lt.MatmulDescDestroy(p->op));
  if (p->x) AMP_UNREAD(lt.MatrixLayoutDestroy(p->x));
  if (p->y) AMP_UNREAD(lt.MatrixLayoutDestroy(p->y));
  if (p->d) AMP_UNREAD(lt.MatrixLayoutDestroy(p->d));
}

/* The plan of a product, made at need, in a full table in place of the oldest; NULL: there is none. */
static plan *plan_for(const plan *wanted, const float *const *of, const void *bias)
{
  const size_t key = offsetof(plan, made);
  for (int i = 0; i < used; i++)
    if (memcmp(&table[i], wanted, key) == 0) return table[i].usable ? &table[i] : NULL;
  plan *p;
  if (used < PLANS) p = &table[used++];
  else {
    p = &table[oldest];
    oldest = (oldest + 1) % PLANS;
    forget(p);
  }
  *p = *wanted;
  p->usable = make(p, of, bias);
  return p->usable ? p : NULL;
}

static bool whole_rows(const amp_tensor *t)
{
  return amp__cuda_plain(t) && ((uintptr_t)amp__data(t) & 15) == 0 && t->size[0] % 16 == 0 && t->size[1] % 16 == 0;
}

/* By what products are to be multiplied yet: of whole matrices both scales as one, in double, since their product fits
** where they do not, and 1; of pieces each operand's own. 0 or error */
static int scales_of(const amp_call *c, float *made, const float **of)
{
  const amp_tensor *a = c->in[2], *b = c->in[3];
  double a_most = amp__float8_most(c->in[0]->dtype), b_most = amp__float8_most(c->in[1]->dtype);
  of[0] = made;
  of[1] = made + (a->numel + 3) / 4 * 4; /* 16 bytes are what each begins at a multiple of */
  if (a->ndim == 1) return amp__cuda_float8_factor(a, b, a_most, b_most, made);
  int rc = amp__cuda_float8_piece_factors(a, a_most, made);
  return rc < 0 ? rc : amp__cuda_float8_piece_factors(b, b_most, made + (a->numel + 3) / 4 * 4);
}

static bool fits(const amp_cuda_device *d, const amp_call *c)
{
  const amp_tensor *input = c->in[0], *other = c->in[1], *bias = c->nin > 4 ? c->in[4] : NULL, *out = c->out[0];
  return d->cc >= 89 && (c->in[2]->ndim == 1 || d->cc == 90) && out->numel > 0 && input->numel > 0 && whole_rows(input)
         && whole_rows(other) && amp__is_half(out->dtype)
         && (!bias || (bias->dtype == out->dtype && bias->stride[0] == 1)) && ready();
}

static int multiply(const amp_call *c, plan *wanted, const float *const *of, void *room)
{
  const amp_tensor *input = c->in[0], *other = c->in[1], *bias = c->nin > 4 ? c->in[4] : NULL;
  const void *added = bias ? amp__data(bias) : NULL;
  void *out = amp__data(c->out[0]);
  float one = 1, zero = 0;
  int rc = 1, device = wanted->device;
  pthread_mutex_lock(&lock);
  plan *p = handle[device] || ok(lt.Create(&handle[device])) ? plan_for(wanted, of, added) : NULL;
  if (p && point(p, of, added)
      && ok(lt.Matmul(handle[device], p->op, &one, amp__data(other), p->x, amp__data(input), p->y, &zero, out, p->d,
                      out, p->d, &p->algo, room, WORKSPACE, amp__cuda_stream())))
    rc = 0;
  pthread_mutex_unlock(&lock);
  return rc;
}

int amp__cuda_float8_lt(amp_call *c)
{
  amp_cuda_device *d = amp__cuda_here();
  amp_tensor *input = c->in[0], *other = c->in[1];
  if (!fits(d, c)) return 1;
  const float *of[2];
  amp_tensor *made = amp__cuda_scratch(sizeof(float) * (size_t)(c->in[2]->numel + c->in[3]->numel + 8)),
             *room = amp__cuda_scratch(WORKSPACE);
  int rc = made && room ? scales_of(c, amp__data(made), of) : AMP_E_MEMORY;
  if (rc == 0) {
    plan wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.m = input->size[0];
    wanted.n = other->size[0];
    wanted.k = input->size[1];
    wanted.input = input->dtype;
    wanted.other = other->dtype;
    wanted.base = c->out[0]->dtype;
    wanted.bias = c->nin > 4 && c->in[4];
    wanted.pieces = c->in[2]->ndim == 2;
    wanted.device = d->index;
    rc = multiply(c, &wanted, of, amp__data(room));
  }
  amp__free(made);
  amp__free(room);
  return rc;
}
#endif
