/*
** cuda_device.c: the cards, the table that the plug-in fills, and waits.
**
** Each row's slot is one function, run: it enters the device of the operands,
** calls the row's own function and looks for a launch that failed. Errors that a
** kernel finds in values lie in a cell of host memory that it sees (trouble); a
** wait reads and clears it, so no call waits for them alone.
*/
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "cuda_branches.h"
#include "cuda_chain.h"
#include "cuda_core.h"
#include "cuda_gemm.h"
#include "cuda_solver.h"
#include "amp_cudnn.h"
#include "library/table_hash.h"

AMP_API const char *amp_plugin_init(uint64_t hash, amp_device_ops *devices);
AMP_API const char *amp_plugin_version(void);

int amp__cuda_count, amp__cuda_tf32, amp__cuda_deterministic;
amp_cuda_device amp__cuda_devices[AMP_CUDA_MAX];
static _Thread_local amp_cuda_device *here;
static _Thread_local uint8_t chosen[AMP_CUDA_MAX]; /* number of the stream of each that this thread uses */
static char reason[512];

#define AMP_ROW_K(name) [AMP_OP_##name] = amp__cuda_##name,
#define AMP_ROW_N(name) [AMP_OP_##name] = amp__cuda_##name,
#define AMP_ROW_V(name)
#define AMP_ROW_C(name)
#define AMP_OP(kind, name, schema, infer, policy, dtypes, save, flags, doc) AMP_ROW_##kind(name)
static amp_kernel_fn row[AMP_OP_COUNT] = {
#include "amp_ops.def"
};
#undef AMP_OP

/* -- Errors ------------------------------------------------------------------------ */

static _Thread_local cudaError_t kept; /* a launch's, which had to make way */

void amp__cuda_forget(cudaError_t before)
{
  cudaGetLastError();
  if (before != cudaSuccess) kept = before;
}

int amp__cuda_failed(cudaError_t e, const char *what)
{
  cudaGetLastError(); /* one that is not for ever is gone with it */
  kept = cudaSuccess;
  if (e == cudaErrorMemoryAllocation) return amp__fail(AMP_E_MEMORY, "%s: no memory is left on the GPU", what);
  return amp__fail(AMP_E_DEVICE, "%s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
}

static int tell(const amp_trouble *t)
{
  const char *op = t->op >= 0 && t->op < AMP_OP_COUNT ? amp__cuda_api->ops[t->op].info.name : "an op";
  long long v = (long long)t->value, limit = (long long)t->limit, place = (long long)t->place + 1;
  switch ((enum amp_trouble_kind)t->kind) { /* every kind has its text: -Werror=switch */
  case AMP_TROUBLE_NONE: break;
  case AMP_TROUBLE_INDEX:
    return amp__fail(
        AMP_E_INDEX,
        "%s on the GPU: index %lld is out of range for a dimension of size %lld (index tensor's element %lld)", op, v,
        limit, place);
  case AMP_TROUBLE_LABEL:
    return amp__fail(AMP_E_INDEX, "%s on the GPU: label %lld in row %lld is not in 1..%lld", op, v, place, limit);
  case AMP_TROUBLE_ZERO:
    return amp__fail(
        AMP_E_VALUE,
        "%s on the GPU: an integer divided by zero (element %lld); cast to a float dtype for NaN and infinity", op,
        place);
  case AMP_TROUBLE_NEGATIVE_POWER:
    return amp__fail(AMP_E_VALUE, "%s on the GPU: an integer to a negative power (%lld); cast to a float dtype", op, v);
  case AMP_TROUBLE_CAST:
    return amp__fail(AMP_E_VALUE, "%s on the GPU: the value %.9g can't be cast to an integer dtype: it is out of range",
                     op, t->number);
  case AMP_TROUBLE_SINGULAR: return amp__fail(AMP_E_VALUE, "%s on the GPU: matrix %lld is singular", op, place);
  case AMP_TROUBLE_NOT_POSITIVE:
    return amp__fail(AMP_E_VALUE, "%s on the GPU: matrix %lld is not positive-definite (leading minor %lld)", op, place,
                     v);
  case AMP_TROUBLE_PROBABILITY:
    return amp__fail(AMP_E_VALUE, "%s on the GPU: %.9g in row %lld is not a probability or weight", op, t->number,
                     place);
  case AMP_TROUBLE_NEGATIVE:
    return amp__fail(AMP_E_VALUE, "%s on the GPU: a negative value, %.9g (element %lld)", op, t->number, place);
  case AMP_TROUBLE_CONVERGENCE:
    return amp__fail(AMP_E_VALUE, "%s on the GPU: matrix %lld holds NaN or infinity, or the iteration did not converge",
                     op, place);
  case AMP_TROUBLE_LENGTH:
    return amp__fail(AMP_E_VALUE, "%s on the GPU: length %lld of sequence %lld is not in 0..%lld", op, v, place, limit);
  case AMP_TROUBLE_SOURCE:
    return amp__fail(AMP_E_VALUE, "%s on the GPU: mask is true at %lld places, source has %lld elements", op, v, limit);
  case AMP_TROUBLE_RANGE:
    return amp__fail(AMP_E_VALUE,
                     "%s on the GPU: an extreme of the elements is %g, which is not finite; give min and max", op,
                     t->number);
  case AMP_TROUBLE_WEIGHTS:
    return amp__fail(AMP_E_VALUE, "%s on the GPU: row %lld has %lld weights above 0, fewer than the %lld needed", op,
                     place, v, limit);
  case AMP_TROUBLE_ARGUMENT:
    return amp__fail(AMP_E_INTERNAL, "%s on the GPU: the library refused argument %lld for matrix %lld", op, -v, place);
  }
  return amp__fail(AMP_E_INTERNAL, "%s on the GPU: trouble %d", op, t->kind);
}

int amp__cuda_check_capture(const char *what)
{
  if (here == NULL || !here->capture) return 0;
  return amp__fail(
      AMP_E_STATE,
      "%s waits for the GPU, which a captured step can't do; take it out of the function given to amp.capture", what);
}

int amp__cuda_wait(amp_cuda_device *d)
{
  int rc = amp__cuda_check_capture("reading a value");
  if (rc < 0) return rc;
  return amp__cuda_wait_for(d, amp__cuda_stream());
}

int amp__cuda_wait_for(amp_cuda_device *d, cudaStream_t s)
{
  int rc = amp__cuda_check(cudaStreamSynchronize(s), "waiting for the GPU");
  return rc < 0 ? rc : amp__cuda_told(d);
}

int amp__cuda_told(amp_cuda_device *d)
{
  if (amp_likely(d->trouble->kind == AMP_TROUBLE_NONE)) return 0;
  amp_trouble t = *d->trouble;
  memset(d->trouble, 0, sizeof t);
  return tell(&t);
}

int amp__cuda_sync(int index)
{
  amp_cuda_device *d = amp__cuda_enter(index);
  if (d == NULL) return AMP_E_DEVICE;
  int rc = amp__cuda_check_capture("waiting for the GPU");
  for (int n = 1; n < AMP_STREAMS && rc == 0; n++)
    if (d->side[n]) rc = amp__cuda_check(cudaStreamSynchronize(d->side[n]), "waiting for the GPU");
  return rc < 0 ? rc : amp__cuda_wait_for(d, d->stream);
}

/* -- Entering a device -------------------------------------------------------------- */

/* All of it or nothing, and once: threads may come together */
static amp_cuda_device *open_device(amp_cuda_device *d)
{
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  cudaStream_t s = NULL;
  void *p = NULL, *q = NULL;
  pthread_mutex_lock(&lock);
  if (d->stream) goto out;
  if (amp__cuda_check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "making a stream")) goto out;
  if (amp__cuda_check(cudaHostAlloc(&p, sizeof *d->trouble, cudaHostAllocMapped), "memory of the host") == 0
      && amp__cuda_check(cudaHostGetDevicePointer(&q, p, 0), "memory of the host") == 0) {
    d->trouble = memset(p, 0, sizeof *d->trouble);
    d->trouble_there = q;
    d->stream = s;
  } else {
    if (p) AMP_UNREAD(cudaFreeHost(p));
    AMP_UNREAD(cudaStreamDestroy(s));
  }
out:
  pthread_mutex_unlock(&lock);
  return d->stream ? d : NULL;
}

amp_cuda_device *amp__cuda_enter(int index)
{
  amp_cuda_device *d = &amp__cuda_devices[index];
  if (amp_likely(here == d && (amp__cuda_count == 1 || d->stream))) {
    if (amp__cuda_count > 1 && amp__cuda_check(cudaSetDevice(index), "choosing the GPU"))
      return NULL; /* another library may have changed it */
    return d;
  }
  if (index < 0 || index >= amp__cuda_count) {
    amp__fail(AMP_E_DEVICE, "there is no GPU %d", index + 1);
    return NULL;
  }
  if (amp__cuda_check(cudaSetDevice(index), "choosing the GPU")) return NULL;
  if (!open_device(d)) return NULL;
  return here = d;
}

amp_cuda_device *amp__cuda_here(void) { return here; }
cudaStream_t amp__cuda_stream(void)
{
  int n = chosen[here->index];
  return amp_likely(n == 0) ? here->stream : here->side[n];
}
static pid_t opener;
bool amp__cuda_forked(void) { return getpid() != opener; }
int amp__cuda_number(int index) { return chosen[index]; }
void amp__cuda_choose(int index, int number) { chosen[index] = (uint8_t)number; }

/* -- The slots ------------------------------------------------------------------------ */

static int run(amp_call *c)
{
  int index = -1;
  for (int i = 0; i < c->nin && index < 0; i++)
    if (c->in[i] && c->in[i]->device == AMP_CUDA) index = c->in[i]->device_index;
  if (index < 0 && c->nout && c->out[0] && c->out[0]->device == AMP_CUDA) index = c->out[0]->device_index;
  amp_cuda_device *d = amp__cuda_enter(index < 0 ? 0 : index);
  if (d == NULL) return AMP_E_DEVICE;
  if (amp_unlikely(d->capture) && !pthread_equal(d->capturer, pthread_self()))
    return amp__fail(AMP_E_STATE, "another thread is capturing a step on this GPU");
  amp_branches *branches = d->capture ? d->branches : NULL;
  if (branches) amp__branches_enter(branches, c);
  int rc = row[c->id](c);
  if (branches) amp__branches_leave(branches);
  cudaError_t e = cudaPeekAtLastError();
  if (e == cudaSuccess) e = kept;
  if (amp_unlikely(e != cudaSuccess && rc >= 0)) rc = amp__cuda_failed(e, "a launch");
  return rc;
}

amp_kernel_fn amp__cuda_row(int op) { return row[op]; }

static int upload(int index, void *dst, const void *src, size_t n)
{
  return amp__cuda_enter(index) ? amp__cuda_upload(dst, src, n) : AMP_E_DEVICE;
}

static int properties(int index, amp_device_properties *p)
{
  const amp_cuda_device *d = &amp__cuda_devices[index];
  memset(p, 0, sizeof *p);
  memcpy(p->name, d->name, sizeof p->name);
  p->total_memory = (int64_t)d->memory;
  p->major = d->cc / 10;
  p->minor = d->cc % 10;
  p->multi_processor_count = d->sms;
  return 0;
}

/* Switches and the most that each takes */
static int set(const char *name, int value)
{
  static const struct {
    const char *name;
    int *cell, most;
  } list[] = {
    { "branches", &amp__cuda_branches, 1 },   { "chain", &amp__cuda_chain, 1 },
    { "generated", &amp__cuda_generated, 1 }, { "small", &amp__cuda_small, 1 },
    { "split", &amp__cuda_split, 2 },         { "rnn", &amp__cuda_rnn, 3 },
    { "tf32", &amp__cuda_tf32, 1 },           { "deterministic", &amp__cuda_deterministic, 1 },
    { "cudnn", &amp__cuda_cudnn, 2 },         { "cusolver", &amp__cuda_solver, 2 },
    { "cufft", &amp__cuda_fft, 2 },
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    if (strcmp(name, list[i].name) != 0) continue;
    int was = *list[i].cell;
    if (value >= 0) *list[i].cell = value < list[i].most ? value : list[i].most;
    return was;
  }
  return -1;
}

static const char *version_of(const char *name)
{
  return strcmp(name, "cublas") == 0     ? amp__cuda_blas_info()
         : strcmp(name, "cudnn") == 0    ? amp__cuda_dnn_info()
         : strcmp(name, "cusolver") == 0 ? amp__cuda_solver_info()
         : strcmp(name, "cufft") == 0    ? amp__cuda_fft_info()
         : strcmp(name, "nvrtc") == 0    ? amp__cuda_chain_info()
                                         : NULL;
}

const char *amp_plugin_version(void)
{
  static char text[64];
  int v = 0;
  if (cudaRuntimeGetVersion(&v) != cudaSuccess) v = CUDART_VERSION;
  snprintf(text, sizeof text, "CUDA %d.%d", v / 1000, v % 1000 / 10);
  return text;
}

/* What a card is; false: it does not say */
static bool describe(int index)
{
  struct cudaDeviceProp p;
  amp_cuda_device *d = &amp__cuda_devices[index];
  if (cudaGetDeviceProperties(&p, index) != cudaSuccess) return false;
  *d = (amp_cuda_device){ .index = index,
                          .sms = p.multiProcessorCount,
                          .cc = p.major * 10 + p.minor,
                          .shared = p.sharedMemPerBlockOptin,
                          .memory = p.totalGlobalMem };
  snprintf(d->name, sizeof d->name, "%.127s", p.name);
  return true;
}

const char *amp_plugin_init(uint64_t hash, amp_device_ops *devices)
{
  int n = 0, driver = 0;
  if (hash != amp__table_hash()) return "it was built for another version of amp";
  amp__cuda_api = devices[AMP_CPU].core;
  opener = getpid();
  cudaError_t e = cudaGetDeviceCount(&n);
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "no NVIDIA driver is installed";
  if (e == cudaErrorInsufficientDriver) {
    int runtime = 0;
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = CUDART_VERSION;
    snprintf(reason, sizeof reason, "the NVIDIA driver is too old: it knows CUDA %d.%d, this build needs %d.%d",
             driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    return reason;
  }
  if (e != cudaSuccess || n == 0) {
    snprintf(reason, sizeof reason, "no GPU is found (%s)",
             e == cudaSuccess ? "the driver lists none" : cudaGetErrorString(e));
    cudaGetLastError();
    return reason;
  }
  amp__cuda_count = n < AMP_CUDA_MAX ? n : AMP_CUDA_MAX;
  for (int i = 0; i < amp__cuda_count; i++)
    if (!describe(i)) return "a GPU does not say what it is";
  amp_device_ops *g = &devices[AMP_CUDA];
  for (int i = 0; i < AMP_OP_COUNT; i++)
    if (row[i]) amp__set_kernel(g, i, run);
  g->capture_begin = amp__cuda_capture_begin;
  g->capture_end = amp__cuda_capture_end;
  g->capture_replay = amp__cuda_capture_replay;
  g->capture_free = amp__cuda_capture_free;
  g->upload = upload;
  g->properties = properties;
  g->version_of = version_of;
  g->set = set;
  g->streams = &amp__cuda_stream_ops;
  g->memory = amp__cuda_memory;
  g->host_alloc = amp__cuda_host_alloc;
  g->host_free = amp__cuda_host_free;
  g->host_trim = amp__cuda_host_trim;
  g->alloc = amp__cuda_alloc;
  g->free = amp__cuda_free;
  g->copy = amp__cuda_transfer;
  g->sync = amp__cuda_sync;
  g->optim_step = amp__cuda_optim_step_at;
  g->optim_step_look = amp__cuda_optim_step_look;
  g->check_scale = amp__cuda_check_scale;
  g->check_many = amp__cuda_check_many;
  g->norm_many = amp__cuda_norm_many;
  g->chain = amp__cuda_chain_run;
  g->scale_update = amp__cuda_scale_update;
  snprintf(reason, sizeof reason, "%s, %s (compute capability %d.%d)", amp_plugin_version(), amp__cuda_devices[0].name,
           amp__cuda_devices[0].cc / 10, amp__cuda_devices[0].cc % 10);
  g->reason = reason;
  g->count = amp__cuda_count;
  return NULL;
}
