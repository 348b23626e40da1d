/*
** cudnn_graph.c: cuDNN's library, graphs, and plans (amp_cudnn.h).
**
** The library is opened by name when the first graph comes. Candidates are the
** engine configurations of heuristics mode A, of which numerical notes strike out
** those that would round operands or sums down; where none is left those of the
** fallback mode. Up to 8 are timed on the real operands, as long as half a second
** has not passed; results of all are right, so the last one's may stay.
*/
#include <stdlib.h>
#include "amp_cudnn.h"

int amp__cuda_cudnn = 1;
/* AMP_CUDNN in the environment, 0 to 2, for specs and benchmarks */
__attribute__((constructor)) static void from_environment(void)
{
  const char *e = getenv("AMP_CUDNN");
  if (e && *e >= '0' && *e <= '2') amp__cuda_cudnn = *e - '0';
}

#ifndef AMP_DNN
const char *amp__cuda_dnn_info(void)
{
#ifdef AMP_EMULATED
  return "no cuDNN in the emulator";
#else
  return "built without cuDNN's headers: convolutions use amp's own kernels, which are slow";
#endif
}
#else
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* -- The library ---------------------------------------------------------------------- */

/* clang-format off */
#define FUNCTIONS(X) \
  X(GetVersion) \
  X(GetErrorString) \
  X(Create) \
  X(SetStream) \
  X(BackendCreateDescriptor) X(BackendDestroyDescriptor) X(BackendFinalize) X(BackendSetAttribute) \
      X(BackendGetAttribute) X(BackendExecute)
/* clang-format on */
#define MEMBER(name) __typeof__(cudnn##name) *name;
static struct {
  FUNCTIONS(MEMBER)
} dnn;
static char info[256];
static bool there;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  cudnnHandle_t handle;
  cudaStream_t stream;
  bool refused;
} card[AMP_CUDA_MAX];

static void open_library(void)
{
  void *lib = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  if (!lib) lib = dlopen("libcudnn.so", RTLD_NOW | RTLD_LOCAL);
  if (!lib) {
    snprintf(info, sizeof info, "libcudnn.so.9 is not found: convolutions use amp's own kernels, which are slow");
    return;
  }
#define FIND(f)                                              \
  if (!(*(void **)&dnn.f = dlsym(lib, "cudnn" #f))) {        \
    snprintf(info, sizeof info, "cuDNN has no cudnn%s", #f); \
    return;                                                  \
  }
  FUNCTIONS(FIND)
  size_t v = dnn.GetVersion();
  if (v < 90100 || v >= 100000) {
    snprintf(info, sizeof info, "cuDNN %zu is not between 9.1 and 10", v);
    return;
  }
  snprintf(info, sizeof info, "cuDNN %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
  there = true;
}

static bool ready(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_library);
  return there;
}

const char *amp__cuda_dnn_info(void)
{
  ready();
  return info;
}

int amp__dnn_version(void) { return ready() ? (int)dnn.GetVersion() : 0; }

static cudnnHandle_t handle(void) { return card[amp__cuda_here()->index].handle; }

bool amp__dnn_enter(void)
{
  if (amp__cuda_cudnn == 0 || !ready()) return false;
  int i = amp__cuda_here()->index;
  pthread_mutex_lock(&lock);
  if (!card[i].handle && !card[i].refused) {
    cudnnStatus_t s = dnn.Create(&card[i].handle);
    if (s != CUDNN_STATUS_SUCCESS) {
      card[i].refused = true;
      card[i].handle = NULL;
      snprintf(info, sizeof info, "cuDNN does not start: %s", dnn.GetErrorString(s));
    }
  }
  cudaStream_t stream = amp__cuda_stream();
  if (card[i].handle && card[i].stream != stream) {
    if (dnn.SetStream(card[i].handle, stream) != CUDNN_STATUS_SUCCESS) card[i].refused = true;
    else card[i].stream = stream;
  }
  if (card[i].handle && !card[i].refused) return true;
  pthread_mutex_unlock(&lock);
  return false;
}

void amp__dnn_leave(void) { pthread_mutex_unlock(&lock); }

/* -- Nodes ---------------------------------------------------------------------------------- */

void amp__dnn_begin(amp_dnn_graph *g) { memset(g, 0, sizeof *g); }

static void fail(amp_dnn_graph *g, const char *what, int status)
{
  if (g->failed) return;
  g->failed = what;
  g->status = status;
}

void *amp__dnn_node(amp_dnn_graph *g, cudnnBackendDescriptorType_t type)
{
  void *d = NULL;
  if (g->failed) return NULL;
  if (g->nnode == AMP_DNN_NODES) {
    fail(g, "a graph of too many nodes", 0);
    return NULL;
  }
  cudnnStatus_t s = dnn.BackendCreateDescriptor(type, &d);
  if (s != CUDNN_STATUS_SUCCESS) {
    fail(g, "a descriptor", s);
    return NULL;
  }
  return g->node[g->nnode++] = d;
}

void amp__dnn_set(amp_dnn_graph *g, void *node, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  int64_t n, const void *v)
{
  if (g->failed) return;
  cudnnStatus_t s = dnn.BackendSetAttribute(node, name, type, n, v);
  if (s != CUDNN_STATUS_SUCCESS) fail(g, "an attribute", s);
}

void amp__dnn_finish(amp_dnn_graph *g, void *node)
{
  if (g->failed) return;
  cudnnStatus_t s = dnn.BackendFinalize(node);
  if (s != CUDNN_STATUS_SUCCESS) fail(g, "finishing a descriptor", s);
}

void amp__dnn_operation(amp_dnn_graph *g, void *node)
{
  amp__dnn_finish(g, node);
  if (!g->failed && g->nop == AMP_DNN_OPS) fail(g, "a graph of too many operations", 0);
  if (!g->failed) g->op[g->nop++] = node;
}

static void drop(amp_dnn_graph *g)
{
  while (g->nnode > 0) AMP_UNREAD(dnn.BackendDestroyDescriptor(g->node[--g->nnode]));
  g->nop = 0;
}

#define SET_INT64(node, name, n, v) amp__dnn_set(g, node, name, CUDNN_TYPE_INT64, n, v)
#define SET_NODE(node, name, v) amp__dnn_set(g, node, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &(v))

static cudnnDataType_t type_of(int dtype)
{
  switch ((enum amp_dtype)dtype) { /* no case is left out: -Werror=switch */
  case AMP_FLOAT64: return CUDNN_DATA_DOUBLE;
  case AMP_FLOAT32: return CUDNN_DATA_FLOAT;
  case AMP_FLOAT16: return CUDNN_DATA_HALF;
  case AMP_BFLOAT16: return CUDNN_DATA_BFLOAT16;
  case AMP_INT64: return CUDNN_DATA_INT64;
  case AMP_INT32: return CUDNN_DATA_INT32;
  case AMP_INT8: return CUDNN_DATA_INT8;
  case AMP_UINT8: return CUDNN_DATA_UINT8;
  case AMP_BOOL: return CUDNN_DATA_BOOLEAN;
  case AMP_INT16: /* graphs have no tensors of these */
  case AMP_FLOAT8_E4M3:
  case AMP_FLOAT8_E5M2:
  case AMP_DTYPE_COUNT: break;
  }
  return CUDNN_DATA_FLOAT;
}

void *amp__dnn_tensor(amp_dnn_graph *g, int64_t id, int dtype, int ndim, const int64_t *size, const int64_t *stride,
                      int align, bool inner)
{
  void *t = amp__dnn_node(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  cudnnDataType_t type = type_of(dtype);
  int64_t bytes = align;
  amp__dnn_set(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  SET_INT64(t, CUDNN_ATTR_TENSOR_DIMENSIONS, ndim, size);
  SET_INT64(t, CUDNN_ATTR_TENSOR_STRIDES, ndim, stride);
  SET_INT64(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id);
  SET_INT64(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &bytes);
  if (inner) amp__dnn_set(g, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inner);
  amp__dnn_finish(g, t);
  return t;
}

void *amp__dnn_number(amp_dnn_graph *g, int64_t id)
{
  void *t = amp__dnn_node(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  const int64_t one[4] = { 1, 1, 1, 1 }, bytes = 16;
  const bool yes = true;
  amp__dnn_set(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  SET_INT64(t, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, one);
  SET_INT64(t, CUDNN_ATTR_TENSOR_STRIDES, 4, one);
  SET_INT64(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id);
  SET_INT64(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &bytes);
  amp__dnn_set(g, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
  amp__dnn_finish(g, t);
  return t;
}

/* -- Operations ----------------------------------------------------------------------------------- */

void amp__dnn_convolution(amp_dnn_graph *g, int kind, void *x, void *w, void *y, int spatial, const int64_t *stride,
                          const int64_t *padding, const int64_t *dilation)
{
  static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t alpha, beta, conv, x, w, y;
  } of[3] = {
    { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y },
    { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY },
    { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY },
  };
  void *c = amp__dnn_node(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  int64_t dims = spatial;
  float alpha = 1, beta = 0;
  amp__dnn_set(g, c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  amp__dnn_set(g, c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  SET_INT64(c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &dims);
  SET_INT64(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, dims, stride);
  SET_INT64(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, dims, padding);
  SET_INT64(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, dims, padding);
  SET_INT64(c, CUDNN_ATTR_CONVOLUTION_DILATIONS, dims, dilation);
  amp__dnn_finish(g, c);
  void *o = amp__dnn_node(g, of[kind].type);
  SET_NODE(o, of[kind].conv, c);
  SET_NODE(o, of[kind].x, x);
  SET_NODE(o, of[kind].w, w);
  SET_NODE(o, of[kind].y, y);
  amp__dnn_set(g, o, of[kind].alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
  amp__dnn_set(g, o, of[kind].beta, CUDNN_TYPE_FLOAT, 1, &beta);
  amp__dnn_operation(g, o);
}

void amp__dnn_pointwise_of(amp_dnn_graph *g, cudnnPointwiseMode_t mode, int dtype, int axis, void *x, void *b, void *t,
                           void *y)
{
  void *p = amp__dnn_node(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  cudnnDataType_t compute = type_of(dtype);
  int64_t along = axis;
  amp__dnn_set(g, p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  amp__dnn_set(g, p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  if (axis >= 0) SET_INT64(p, CUDNN_ATTR_POINTWISE_AXIS, 1, &along);
  amp__dnn_finish(g, p);
  void *o = amp__dnn_node(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  SET_NODE(o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p);
  SET_NODE(o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b) SET_NODE(o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
  if (t) SET_NODE(o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
  SET_NODE(o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  amp__dnn_operation(g, o);
}

void amp__dnn_pointwise(amp_dnn_graph *g, cudnnPointwiseMode_t mode, void *x, void *b, void *y)
{
  amp__dnn_pointwise_of(g, mode, AMP_FLOAT32, -1, x, b, NULL, y);
}

void amp__dnn_matmul(amp_dnn_graph *g, void *a, void *b, void *c, void *rows, void *columns, void *terms)
{
  void *m = amp__dnn_node(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  amp__dnn_set(g, m, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  amp__dnn_finish(g, m);
  void *o = amp__dnn_node(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  SET_NODE(o, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  SET_NODE(o, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  SET_NODE(o, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
  SET_NODE(o, CUDNN_ATTR_OPERATION_MATMUL_DESC, m);
  if (rows) SET_NODE(o, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, rows);
  if (columns) SET_NODE(o, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, columns);
  if (terms) SET_NODE(o, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, terms);
  amp__dnn_operation(g, o);
}

void amp__dnn_reduce(amp_dnn_graph *g, cudnnReduceTensorOp_t op, void *x, void *y)
{
  void *r = amp__dnn_node(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  amp__dnn_set(g, r, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
  amp__dnn_set(g, r, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  amp__dnn_finish(g, r);
  void *o = amp__dnn_node(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  SET_NODE(o, CUDNN_ATTR_OPERATION_REDUCTION_DESC, r);
  SET_NODE(o, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  SET_NODE(o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  amp__dnn_operation(g, o);
}

void amp__dnn_reshape(amp_dnn_graph *g, void *x, void *y)
{
  void *o = amp__dnn_node(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  SET_NODE(o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  SET_NODE(o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  amp__dnn_operation(g, o);
}

/* -- Plans --------------------------------------------------------------------------------------------- */

static amp_dnn_plan **table;
static size_t used, room; /* room: a power of two */

static uint64_t hash(const unsigned char *k, size_t n) /* FNV-1a */
{
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < n; i++) h = (h ^ k[i]) * 1099511628211u;
  return h ^ h >> 29;
}

static amp_dnn_plan **slot(const void *key, size_t n)
{
  size_t i = (size_t)hash(key, n) & (room - 1);
  while (table[i] && (table[i]->nkey != n || memcmp(table[i]->key, key, n) != 0)) i = (i + 1) & (room - 1);
  return &table[i];
}

static bool grow(void)
{
  size_t was = room;
  amp_dnn_plan **old = table, **fresh = calloc(was ? 2 * was : 64, sizeof *fresh);
  if (!fresh) return false;
  table = fresh;
  room = was ? 2 * was : 64;
  for (size_t i = 0; i < was; i++)
    if (old[i]) *slot(old[i]->key, old[i]->nkey) = old[i];
  free(old);
  return true;
}

amp_dnn_plan *amp__dnn_find(const void *key, size_t n, bool make)
{
  if (room == 0 && !grow()) return NULL;
  amp_dnn_plan *p = *slot(key, n);
  if (p || !make || (used * 2 >= room && !grow()) || !(p = calloc(1, sizeof *p + n))) return p;
  p->key = memcpy(p + 1, key, n);
  p->nkey = n;
  p->ms = -1;
  used++;
  return *slot(key, n) = p;
}

int amp__dnn_execute(const amp_dnn_plan *p, const amp_dnn_job *j)
{
  enum { ALIGN = 256 };
  amp_dnn_graph keeper, *g = &keeper;
  amp_tensor *scratch = NULL;
  if (p->workspace > 0 && !(scratch = amp__cuda_scratch((size_t)p->workspace + ALIGN))) return 2;
  amp__dnn_begin(g);
  void *pack = amp__dnn_node(g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  amp__dnn_set(g, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, j->n, j->pointer);
  SET_INT64(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, j->n, j->id);
  if (scratch) {
    void *memory = (void *)(((uintptr_t)amp__data(scratch) + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1));
    amp__dnn_set(g, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &memory);
  }
  amp__dnn_finish(g, pack);
  if (!g->failed) {
    cudnnStatus_t s = dnn.BackendExecute(handle(), p->plan, pack);
    if (s != CUDNN_STATUS_SUCCESS) fail(g, "running a plan", s);
  }
  drop(g);
  amp__free(scratch);
  if (g->failed) cudaGetLastError();
  return g->failed ? 1 : 0;
}

/* -- Candidates ------------------------------------------------------------------------------------------- */

enum { MOST = 64, TIMED = 8, TURNS = 3 };

/* Does the engine of a configuration compute as precisely as is wanted? */
static bool precise(void *config, const amp_dnn_job *j)
{
  void *engine = NULL;
  cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  int64_t n = 0;
  bool good = false;
  if (dnn.BackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS) return false;
  if (dnn.BackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine)
          == CUDNN_STATUS_SUCCESS
      && dnn.BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, note)
             == CUDNN_STATUS_SUCCESS) {
    good = true;
    for (int64_t i = 0; i < n && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++) switch (note[i]) {
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        if (j->exact) good = false;
        break;
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        if (amp__cuda_deterministic) good = false;
        break;
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: good = false; break;
      default: break;
      }
  }
  AMP_UNREAD(dnn.BackendDestroyDescriptor(engine));
  return good;
}

/* Configurations that a heuristics mode names for the graph `og`, the precise ones of them */
static int candidates(void *og, cudnnBackendHeurMode_t mode, const amp_dnn_job *j, void **config)
{
  amp_dnn_graph keeper, *g = &keeper;
  int64_t n = 0, got = 0;
  int kept = 0;
  void *list[MOST];
  amp__dnn_begin(g);
  void *h = amp__dnn_node(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  SET_NODE(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, og);
  amp__dnn_set(g, h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  amp__dnn_finish(g, h);
  if (g->failed
      || dnn.BackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n, NULL)
             != CUDNN_STATUS_SUCCESS)
    n = 0;
  if (n > MOST) n = MOST;
  int64_t made = 0;
  while (made < n
         && dnn.BackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &list[made]) == CUDNN_STATUS_SUCCESS)
    made++;
  if (made > 0
      && dnn.BackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &got, list)
             != CUDNN_STATUS_SUCCESS)
    got = 0;
  for (int64_t i = 0; i < made; i++) {
    if (i < got && precise(list[i], j)) config[kept++] = list[i];
    else AMP_UNREAD(dnn.BackendDestroyDescriptor(list[i]));
  }
  drop(g);
  return kept;
}

static void *plan_of(void *config, int64_t *workspace)
{
  void *plan = NULL;
  int64_t n = 0;
  cudnnHandle_t h = handle();
  if (dnn.BackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) != CUDNN_STATUS_SUCCESS) return NULL;
  if (dnn.BackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &h) == CUDNN_STATUS_SUCCESS
      && dnn.BackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &config)
             == CUDNN_STATUS_SUCCESS
      && dnn.BackendFinalize(plan) == CUDNN_STATUS_SUCCESS
      && dnn.BackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, workspace)
             == CUDNN_STATUS_SUCCESS)
    return plan;
  AMP_UNREAD(dnn.BackendDestroyDescriptor(plan));
  return NULL;
}

static int once(const amp_dnn_plan *p, const amp_dnn_job *j)
{
  return p ? amp__dnn_execute(p, j) : j->rival(j->rival_data);
}

/* Milliseconds of a run, of the plan or (NULL) the rival; <0: it failed */
static float time_of(const amp_dnn_plan *p, const amp_dnn_job *j, cudaEvent_t *event)
{
  float ms = -1;
  if (once(p, j) != 0 || cudaEventRecord(event[0], amp__cuda_stream()) != cudaSuccess) return -1;
  for (int i = 0; i < TURNS; i++)
    if (once(p, j) != 0) return -1;
  if (cudaEventRecord(event[1], amp__cuda_stream()) != cudaSuccess || cudaEventSynchronize(event[1]) != cudaSuccess)
    return -1;
  return cudaEventElapsedTime(&ms, event[0], event[1]) == cudaSuccess ? ms / TURNS : -1;
}

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void clear(amp_dnn_plan *p)
{
  if (p->plan) AMP_UNREAD(dnn.BackendDestroyDescriptor(p->plan));
  if (p->config) AMP_UNREAD(dnn.BackendDestroyDescriptor(p->config));
  p->plan = p->config = NULL;
  p->state = AMP_DNN_NONE;
}

static void take(amp_dnn_plan *p, const amp_dnn_plan *from)
{
  clear(p);
  p->plan = from->plan;
  p->config = from->config;
  p->workspace = from->workspace;
  p->ms = from->ms;
  p->state = AMP_DNN_USABLE;
}

void amp__dnn_make(amp_dnn_plan *p, amp_dnn_graph *g, const amp_dnn_job *j)
{
  static const cudnnBackendHeurMode_t mode[2] = { CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK };
  cudnnHandle_t h = handle();
  cudaEvent_t event[2] = { NULL, NULL };
  bool timed = !j->fixed && cudaEventCreateWithFlags(&event[0], cudaEventDefault) == cudaSuccess
               && cudaEventCreateWithFlags(&event[1], cudaEventDefault) == cudaSuccess;
  int64_t limit = (int64_t)(amp__cuda_here()->memory / 8);
  if (limit > (int64_t)1 << 30) limit = (int64_t)1 << 30;
  p->state = AMP_DNN_NONE;
  void *og = amp__dnn_node(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  amp__dnn_set(g, og, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &h);
  amp__dnn_set(g, og, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->nop, g->op);
  amp__dnn_finish(g, og);
  for (int m = 0; m < 2 && !g->failed && p->state != AMP_DNN_USABLE; m++) {
    void *config[MOST];
    int n = candidates(og, mode[m], j, config), tried = 0;
    double began = now();
    for (int i = 0; i < n; i++) {
      amp_dnn_plan q = { .config = config[i], .ms = -1, .state = AMP_DNN_USABLE };
      bool more = p->state != AMP_DNN_USABLE || (timed && tried < TIMED && now() - began < 0.5);
      if (more) q.plan = plan_of(config[i], &q.workspace);
      if (q.plan && q.workspace <= limit) {
        tried++;
        if (timed) q.ms = time_of(&q, j, event);
        if (timed ? q.ms >= 0 && (p->ms < 0 || q.ms < p->ms) : p->state != AMP_DNN_USABLE) {
          take(p, &q);
          continue;
        }
      }
      if (q.plan) AMP_UNREAD(dnn.BackendDestroyDescriptor(q.plan));
      AMP_UNREAD(dnn.BackendDestroyDescriptor(q.config));
    }
  }
  if (p->state == AMP_DNN_USABLE && timed && j->rival) {
    float ms = time_of(NULL, j, event);
    if (ms >= 0 && ms < p->ms) clear(p);
  }
  for (int i = 0; i < 2; i++)
    if (event[i]) AMP_UNREAD(cudaEventDestroy(event[i]));
  drop(g);
}
#endif
