/*
** cuda.h: what the rooms of the CUDA plug-in share. Host code lives in src/cuda
** (C) and beside its kernels in kernels/ (C-like C++); both see this header.
**
**   table slot -> amp__cuda_run: the device is entered (stream, properties)
**   -> amp__cuda_NAME of the row -> launches, all on the device's stream
**
** The plug-in sees none of libamp.so's symbols: what it needs of the core comes
** in a table (amp_core_api), and cuda_core.c gives it the core's own names.
** What a kernel finds wrong with values (an index out of range) it notes in the
** device's trouble cell, memory of the host; the next wait raises it.
*/
#ifndef AMP_CUDA_CUDA_H
#define AMP_CUDA_CUDA_H
#include <cuda_runtime.h>
#include "core.h"
#include "cuda_trouble.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { AMP_CUDA_MAX = 16, AMP_CUDA_UPLOAD = 1024 /* bytes that travel as a launch's argument */ };

typedef struct amp_cuda_device {
  int index, sms, cc;             /* compute capability times 10 */
  size_t shared;                  /* most dynamic shared memory of a block */
  cudaStream_t stream;            /* number 0, where work goes unless the thread chose another: */
  cudaStream_t side[AMP_STREAMS]; /* those from 1 on (cuda_stream.c) */
  int made;                       /* how often one was asked for */
  amp_trouble *trouble;           /* host memory that kernels see... */
  amp_trouble *trouble_there;     /* ...at this address */
  char name[128];
  size_t memory;
  bool capture; /* a step is being captured, by this thread: */
  pthread_t capturer;
  int outer;                     /* the stream it uses otherwise */
  struct amp_step *step;         /* what it becomes (cuda_capture.c), */
  cudaGraphNode_t first;         /* with the node that fetches arguments */
  const uint64_t *random;        /* its cell of random numbers, */
  uint64_t drawn;                /* the generator's place when it began, */
  struct amp_branches *branches; /* and what of it waits for what (cuda_branches.c), or NULL */
} amp_cuda_device;

extern int amp__cuda_count;
extern amp_cuda_device amp__cuda_devices[AMP_CUDA_MAX];
/* The device entered last by this thread: every launch goes there. */
amp_cuda_device *amp__cuda_enter(int index); /* NULL with error */
amp_cuda_device *amp__cuda_here(void);
bool amp__cuda_forked(void);         /* this process is a child of the one that opened the card, and must not call it */
cudaStream_t amp__cuda_stream(void); /* of that device, the one this thread uses */
int amp__cuda_number(int index);     /* its number, of any device */
void amp__cuda_choose(int index, int number);

int amp__cuda_failed(cudaError_t e, const char *what); /* sets the error, gives its code */
void amp__cuda_forget(cudaError_t before);             /* the last error is none, but that of a launch before it
                                                          (cudaPeekAtLastError then) is not lost */
#define AMP_UNREAD(call) \
  do {                   \
    if (call) {}         \
  } while (0) /* the status of a call on which nothing depends: something is given up, or told without it */
static inline int amp__cuda_check(cudaError_t e, const char *what)
{
  return amp_likely(e == cudaSuccess) ? 0 : amp__cuda_failed(e, what);
}
int amp__cuda_wait(
    amp_cuda_device *d); /* until the stream is done; raises what kernels noted. Errors inside a capture */
int amp__cuda_wait_for(amp_cuda_device *d, cudaStream_t s); /* the same for any stream, not looking for captures */
int amp__cuda_told(amp_cuda_device *d);                     /* raises what kernels noted so far */
int amp__cuda_check_capture(const char *what); /* an error that says what can't be captured, while something is */

extern int amp__cuda_tf32;          /* float32 products and convolutions may use TF32 (off unless asked for) */
extern int amp__cuda_deterministic; /* the same bits at every run: no timing of candidates, no float atomics */

/* -- Memory (cuda_memory.c) -------------------------------------------------- */
void *amp__cuda_alloc(int index, size_t n);
void amp__cuda_free(int index, void *p, size_t n);
int amp__cuda_memory(int index, size_t *free_bytes, size_t *total);
int amp__cuda_transfer(amp_tensor *dst, const amp_tensor *src);
int amp__cuda_sync(int index);
/* Memory of the host (cuda_host.c); cards, streams: bits of those whose copies may be under way */
void *amp__cuda_host_alloc(size_t n);
void amp__cuda_host_free(void *p, size_t n, uint32_t cards, uint32_t streams);
void amp__cuda_host_trim(void);
/* -- Streams (cuda_stream.c) ----------------------------------------------------- */
extern const amp_stream_ops amp__cuda_stream_ops;
void *amp__cuda_mark(int index, uint32_t streams);
int amp__cuda_reached(int index, void *mark);
/* -- Captured steps (cuda_capture.c) ------------------------------------------- */
int amp__cuda_capture_begin(int index, void *cell, amp_tensor *const *own, int n);
int amp__cuda_capture_end(int index, void **graph, uint64_t *random);
int amp__cuda_capture_replay(int index, void *graph, const amp_start *start);
void amp__cuda_capture_free(int index, void *graph);
/* What the first node of a graph does (kernels/common/start.cu): copies bytes, of float32 also into 16 bits, and sets
 * the cell of random numbers */
typedef struct amp_fetch {
  void *to;
  const void *from;
  size_t bytes;
  void *low;
  int32_t dtype;
} amp_fetch; /* to, low: NULL or where; dtype: low's */
typedef struct amp_beginning {
  amp_fetch fetch[AMP_START_MOST];
  int n;
  uint64_t *cell, random[2];
} amp_beginning;
void amp__cuda_start(void); /* launched with nothing to do, then told for each replay: */
int amp__cuda_start_with(cudaGraphExec_t graph, cudaGraphNode_t node, const amp_beginning *b);
/* May a captured step's cast of t into out be left to the first node? Then it is. t: an argument */
bool amp__cuda_start_casts(const amp_tensor *t, const amp_tensor *out);
/* n bytes of the host's to the device, as a launch's argument (at most AMP_CUDA_UPLOAD): no memory must stay */
int amp__cuda_upload(void *dst, const void *src, size_t n);
/* A scratch tensor (uint8) of the device, to be freed when the launches are queued */
amp_tensor *amp__cuda_scratch(size_t n);

/* -- Tensors for kernels (cuda_core.c) ---------------------------------------- */
amp_tensor *amp__cuda_make(int dtype, int ndim, const int64_t *size); /* on the device entered, not filled */
amp_tensor *amp__cuda_dense(amp_tensor *t,
                            int dtype); /* t in dtype and C order: itself (counted) or a copy. NULL: error */
amp_tensor *amp__cuda_op(int op, amp_tensor *const *in, int nin,
                         const amp_slot *a); /* an op by dispatch, not recorded; counted */
bool amp__cuda_plain(const amp_tensor *t);   /* C order without gaps */

/* -- Parts of other slots ------------------------------------------------------ */
int amp__cuda_copy_to(amp_tensor *dst,
                      const amp_tensor *src); /* broadcast and cast, same device (kernels/layout/copy.cu) */
int amp__cuda_fill_value(amp_tensor *t, double v);
int amp__cuda_check_cast(const amp_tensor *t, int dtype);
int amp__cuda_optim_step(int kind, const amp_hyper *h, amp_optim_chunk *chunks, int n, const float *const *found,
                         int nfound);
/* hyper-parameters from device memory (there NULL: h); h still says which kernel (kind, amsgrad) */
int amp__cuda_optim_step_at(int kind, const amp_hyper *h, const amp_hyper *there, amp_optim_chunk *chunks, int n,
                            const float *const *found, int nfound);
int amp__cuda_optim_step_look(int kind, const amp_hyper *h, const amp_hyper *there, amp_optim_chunk *chunks, int n,
                              const float *const *found, int nfound, float *mark);
int amp__cuda_check_many(amp_tensor *const *t, int n, float *found);
int amp__cuda_norm_many(amp_tensor *const *t, const float *const *factor, int n, double p,
                        double *out); /* kernels/precision/clip.cu */
int amp__cuda_check_scale(amp_tensor *t, const float *inv, float *found);
int amp__cuda_scale_update(const float *scale, const float *inv, float *scale_to, float *inv_to, double *tracker,
                           double *hyst, const float *const *found, int nfound, amp_tensor *const *look, int nlook,
                           const amp_scaler_options *o);

/* -- Random numbers: Philox; a launch draws `n` counters -------------------------- */
/* The first counter; in a captured step cell[0] is the seed and cell[1] is added to the counter (NULL: neither). */
typedef struct amp_rng {
  uint64_t seed, counter;
  const uint64_t *cell;
} amp_rng;
amp_rng amp__cuda_rng(int64_t n);

/* -- The rows' functions: one each, in kernels/ or here. A row without one is an error of the linker. -- */
#define AMP_CUDA_FN_K(name) int amp__cuda_##name(amp_call *c);
#define AMP_CUDA_FN_N(name) int amp__cuda_##name(amp_call *c);
#define AMP_CUDA_FN_V(name)
#define AMP_CUDA_FN_C(name)
#define AMP_OP(kind, name, schema, infer, policy, dtypes, save, flags, doc) AMP_CUDA_FN_##kind(name)
#include "amp_ops.def"
#undef AMP_OP

#ifdef __cplusplus
}
#endif
#endif
