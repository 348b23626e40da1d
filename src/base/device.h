/*
** base/device.h: what a device offers: a table of functions, filled by what brings the
** device (library/functions.c for the CPU, plug-ins for others). Empty slots are NULL.
*/
#ifndef AMP_BASE_DEVICE_H
#define AMP_BASE_DEVICE_H
#include "base/table.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct amp_optim_chunk { /* one parameter of a fused step, contiguous in the same order */
  float *master;
  void *shadow;
  const void *grad;
  float *s0, *s1, *s2; /* momentum | exp_avg, exp_avg_sq, max_exp_avg_sq */
  double *steps;       /* of this parameter; the kernel counts it up */
  const float *factor; /* pending factor of the gradient, NULL: 1 */
  int64_t n;
  uint8_t shadow_dtype, grad_dtype, first,
      master_dtype; /* first: no momentum yet; master may be float64/16-bit too (void * then) */
} amp_optim_chunk;

/* What a plug-in may call of the core: it sees no other symbol of the library. */
typedef struct amp_core_api {
  amp_state *(*state)(void); /* of the call in progress */
  int (*fail)(int code, int arg, const char *text);
  const char *(*shape_str)(int ndim, const int64_t *size);
  const char *(*tensor_str)(const amp_tensor *tensor);
  amp_tensor *(*tensor_make)(int dtype, int device, int index, int ndim, const int64_t *size);
  amp_tensor *(*tensor_view)(const amp_tensor *tensor, int ndim, const int64_t *size, const int64_t *stride,
                             int64_t offset);
  void (*free)(amp_tensor *tensor);
  int (*dispatch)(int op, unsigned flags, amp_tensor *const *inputs, int nin, amp_tensor **out, const amp_slot *attrs);
  const amp_op_desc *ops;
  void (*capture_bump)(amp_storage *storage);
  void (*fork_guest)(pthread_mutex_t *m); /* a mutex of the plug-in that a fork takes (base/fork.c) */
} amp_core_api;

/* What a replay begins with: bytes copied on the device, and random numbers' seed and place for the cell */
enum { AMP_START_MOST = 16 };
typedef struct amp_start {
  struct {
    void *to;
    const void *from;
    size_t bytes;
    int argument;
  } copy[AMP_START_MOST];
  int n;
  uint64_t *cell, random[2]; /* cell NULL: none are drawn */
} amp_start;

/* Streams of a device beside the one it starts with, number 0. All take the device's index. */
enum { AMP_STREAMS = 16 };
typedef struct amp_stream_ops {
  int (*make)(int index);                /* a number from 1; they come round */
  int (*use)(int index, int stream);     /* this thread's from now on, <0: only asked; gives the one before */
  int (*query)(int index, int stream);   /* 1: all its work is done; 0 */
  int (*wait)(int index, int stream);    /* the host, until it is */
  void *(*event)(int index, int timing); /* NULL with error */
  void (*event_free)(int index, void *e);
  int (*record)(int index, void *e, int stream);
  int (*after)(int index, void *e, int stream); /* what the stream gets from now on comes after e */
  int (*event_query)(int index, void *e);
  int (*event_wait)(int index, void *e);
  int (*elapsed)(int index, void *from, void *to, double *ms);
  int (*fence)(int index);                    /* all streams go on after what this thread's has got */
  void *(*mark)(int index, uint32_t streams); /* where these streams are now; NULL: not to be had now, no error */
  int (*reached)(int index, void *mark);      /* 1: they are all past it, and it is gone */
  void *(*raw)(int index);                    /* this thread's stream, as the device's own libraries know it */
} amp_stream_ops;

enum {
  AMP_LOOK_MOST = 40,
  AMP_LOOK_BYTES = 128 << 10
}; /* gradients that a step, or an update, looks at by itself, and their bytes */

typedef struct amp_device_ops {
  int count;
  const amp_core_api *core;                /* CPU: for plug-ins */
  const char *reason;                      /* description, or why there is none */
  void *(*alloc)(int index, size_t bytes); /* raw; tensor/alloc.c pools it. NULL: none */
  void (*free)(int index, void *p, size_t bytes);
  int (*copy)(amp_tensor *dst, const amp_tensor *src); /* contiguous, same dtype, one side is this device */
  int (*sync)(int index);
  amp_kernel_fn kernel[AMP_OP_COUNT];
  int (*threads)(int64_t work);    /* CPU: amp__threads, for plug-ins that bring threads of their own */
  const struct amp_linalg *linalg; /* CPU: own loops until LAPACK's plug-in, once it is loaded, puts itself there
                                      (ops/linalg/factorisations.h) */
  /* found != 0 anywhere in the n float32 cells: do nothing at all */
  /* there: hyper-parameters in device memory, instead of *h, for captured steps (NULL: *h) */
  int (*optim_step)(int kind, const amp_hyper *hyper, const amp_hyper *on_device, amp_optim_chunk *chunks, int n,
                    const float *const *found, int nfound);
  /* found |= any non-finite element of t; t *= *inv if inv (in place, t's dtype) */
  int (*check_scale)(amp_tensor *tensor, const float *inv, float *found);
  /* found |= any non-finite element of n tensors without gaps. NULL: one after the other by check_scale */
  int (*check_many)(amp_tensor *const *t, int n, float *found);
  /* *out = sum of |t * factor|^p over n tensors without gaps on one device (p infinite: the largest); a factor may
  ** be NULL. The slot, too */
  int (*norm_many)(amp_tensor *const *t, const float *const *factor, int n, double p, double *out);
  /* Captured steps: what is queued between begin and end becomes a graph; replay queues it. NULL: can't be captured */
  int (*capture_begin)(
      int index, void *cell, amp_tensor *const *own,
      int n); /* cell: uint64[2], where random numbers find seed and place; own: as in amp_capture_begin */
  int (*capture_end)(int index, void **graph,
                     uint64_t *random); /* graph NULL: thrown away; random: counters that one replay draws */
  int (*capture_replay)(int index, void *graph, const amp_start *start);
  void (*capture_free)(int index, void *graph);
  int (*upload)(int index, void *dst, const void *src, size_t n); /* at most 1 KiB, read before it returns */
  int (*properties)(int index, amp_device_properties *p);
  const char *(*version_of)(const char *name);                 /* of a library it uses; NULL: none of that name */
  const amp_stream_ops *streams;                               /* NULL: it has one */
  int (*memory)(int index, size_t *free_bytes, size_t *total); /* of the card, as its driver says. NULL: not known */
  /* Memory of the host that copies from and to the device need not stage. Freed: copies of streams of these devices
  ** may be under way */
  void *(*host_alloc)(size_t bytes);
  void (*host_free)(void *p, size_t bytes, uint32_t cards, uint32_t streams);
  void (*host_trim)(void); /* what is cached of it goes back */
  int (*set)(const char *name,
             int value); /* a switch: the value it had (value < 0: asked only), or -1: no such switch */
  /* scale_to and inv_to: where the values go, the same cells or others. look: gradients that are to be finite as
  ** well (none where optim_step_look is NULL) */
  int (*scale_update)(const float *scale, const float *inv, float *scale_to, float *inv_to, double *tracker,
                      double *hyst, const float *const *found, int nfound, amp_tensor *const *look, int nlook,
                      const amp_scaler_options *options);
  /* The same as optim_step, which looks at the gradients by itself: if one is not finite, *mark = 1 and nothing
  ** else changes. 1: queued; 0: not for this step, nothing is queued. May be NULL */
  int (*optim_step_look)(int kind, const amp_hyper *hyper, const amp_hyper *on_device, amp_optim_chunk *chunks, int n,
                         const float *const *found, int nfound, float *mark);
  /* Elementwise rows in one launch. call[i]: a row's call as its shape rule left it; an operand that another of them
  ** makes is that one's out[0], of which only the last one's has memory. 1: queued; 0: nothing is, and *why is a
  ** sentence that has not been told yet, or empty; <0: error. NULL: there is none */
  int (*chain)(int index, amp_call *call, int count, char *why, size_t room);
} amp_device_ops;
extern amp_device_ops amp__devices[AMP_DEVICE_COUNT];
/* A row's kernel on a device, or NULL. Atomic: another thread's first product may just now load a plug-in that
** takes slots. */
static inline amp_kernel_fn amp__kernel(int device, int op)
{
  return __atomic_load_n(&amp__devices[device].kernel[op], __ATOMIC_ACQUIRE);
}
static inline void amp__set_kernel(amp_device_ops *d, int op, amp_kernel_fn fn)
{
  __atomic_store_n(&d->kernel[op], fn, __ATOMIC_RELEASE);
}
void amp__devices_install(
    const amp_kernel_fn *kernels,
    uint64_t hash); /* the CPU's own kernels, by op (dispatch/device.c); plug-ins override slots */
/* What a plug-in exports: amp_plugin_init. It refuses (returns a sentence) on another table hash. */
typedef const char *(*amp_plugin_init_fn)(uint64_t table_hash, amp_device_ops *devices);
const char *amp__plugin(const char *name); /* load libamp_NAME.so beside this library; its info, or why not */
void amp__plugin_never(const char *name);  /* for a forked process: it is not loaded from now on */
int amp__threads(int64_t work);            /* threads worth using for `work` elementary operations */

#ifdef __cplusplus
}
#endif
#endif
