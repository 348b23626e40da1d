/*
** amp_core.h: what the rooms of the core share: the structs behind the handles,
** the call record that travels from check to kernel to tape, and every function
** one room offers another (prefix amp__).
**
**   amp_op2 -> amp__dispatch: check -> autocast -> shape rule -> outputs
**           -> kernel -> version bump -> record (amp_node)
**
** Ownership: a function that returns amp_tensor* or amp_node* gives its caller
** one count unless it says "borrowed". Errors: return amp__fail(...) (negative)
** or NULL after it; text goes to the current state's err, nowhere else.
*/
#ifndef AMP_CORE_H
#define AMP_CORE_H
#ifdef __cplusplus /* a device's kernels: they read these structs and count nothing */
#include <cstring>
#define AMP_ATOMIC(type) type
#define AMP_THREAD __thread
#define AMP_ALIGN(n) alignas(n)
#else
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#define AMP_ATOMIC(type) _Atomic type
#define AMP_THREAD _Thread_local
#define AMP_ALIGN(n) _Alignas(n)
#endif
#include "amp.h"
#ifdef __cplusplus
extern "C" {
#endif

#define amp_likely(x) __builtin_expect(!!(x), 1)
#define amp_unlikely(x) __builtin_expect(!!(x), 0)
/* What must hold, checked in builds with AMP_DEBUG. */
#ifdef AMP_DEBUG
#define AMP_ASSERT(x) ((x) ? (void)0 : amp__assert_failed(#x, __FILE__, __LINE__))
void amp__assert_failed(const char *what, const char *file, int line) __attribute__((noreturn));
#else
#define AMP_ASSERT(x) ((void)0)
#endif
#define AMP_PRINTF(a, b) __attribute__((format(printf, a, b)))
#ifdef AMP_BRINGUP
#define AMP_SLOTFN __attribute__((weak))
#else
#define AMP_SLOTFN
#endif

/* -- State and errors (amp_state.c) --------------------------------------- */

/* The state of the call in progress; set by every public function. */
extern AMP_THREAD amp_state *amp__S __attribute__((tls_model("initial-exec")));
#define AMP_ENTER(S) (amp__S = (S))

typedef struct amp_ag amp_ag;
typedef struct amp_node amp_node;
typedef struct amp_call amp_call;
enum { AMP_KNOWN_SCALES = 8 };
struct amp_state_private {
  const char *op;          /* outermost op being dispatched, for messages */
  amp_tensor **pool; int npool, cap_pool;   /* autorelease pool (amp_compose.h) */
  uint32_t lost;           /* parts of formulas that memory was missing for, so far */
  amp_ag *shadows;         /* leaves with a shadow no optimizer owns */
  char **log; int nlog, caplog;             /* verbose lines not fetched yet */
  int64_t region_epoch;    /* number of the outermost region */
  bool passing;            /* a shadow of exposed storage was made: it goes with the region */
  int32_t ids;             /* whose list gets ids of what is gone (amp_grad.c) */
  char text[16][224];      /* ring of amp__shape_str; no thread-local array: dlopen has little static TLS */
  unsigned text_next;
  struct amp_capture *capture; /* being captured, NULL: nothing is */
  struct amp_journal *journal; /* the innermost that is open, NULL: none is */
  amp_tensor *one, *zeros; int32_t zeros_used, one_stream, zeros_stream; uint32_t one_version; /* of a device: what a backward begins with, read only; cells that hold 0 (amp_scale.c) */
  uint8_t origin;          /* enum amp_origin of what a running backward adds to leaves, and of gradients that begin one inside it */
  double known_scale[AMP_KNOWN_SCALES]; uint32_t known_next; /* loss scales that were told or read as numbers, the last ones; 0: none */
  amp_tensor *scale[3]; int32_t backwards; /* loss scales that the running backwards have met (amp_origin.c); how many run, one in another */
  bool async;              /* the copy being made may go on when the call has returned */
  struct amp_watch *watch; /* observer's inside (amp_observe.c), NULL: never used */
};
enum { AMP_I_INTERRUPT = 1, AMP_I_OBSERVE = 2 }; /* bits of S->interrupt, so that dispatch makes one test for both */

void amp__tty_forget(const amp_state *S); /* amp_tty.c: S goes, a signal must not find it */

/* Set the error and return `code`. The op's name is added by whoever reads. */
int amp__fail(int code, const char *fmt, ...) AMP_PRINTF(2, 3);
int amp__fail_arg(int code, int arg, const char *fmt, ...) AMP_PRINTF(3, 4); /* arg: place from 1 */
int amp__nomem(size_t bytes);
/* "2x3", "scalar"; a ring of buffers, valid for the next 16 calls */
const char *amp__shape_str(int ndim, const int64_t *size);
const char *amp__tensor_str(const amp_tensor *t); /* "float32 2x3 cpu" */
void amp__log(const char *fmt, ...) AMP_PRINTF(1, 2);  /* a line of verbose output */

/* -- dtypes (amp_tensor.c) ------------------------------------------------- */

extern const uint8_t amp__dtype_size[AMP_DTYPE_COUNT];
static inline bool amp__is_float(int dt) { return dt <= AMP_BFLOAT16; }
static inline bool amp__is_half(int dt) { return dt == AMP_FLOAT16 || dt == AMP_BFLOAT16; }
static inline bool amp__is_int(int dt) { return dt >= AMP_INT64 && dt <= AMP_UINT8; }
int amp__promote(int a, int b);                 /* PyTorch's lattice, no weak numbers */
float amp__half_to_float(uint16_t h);           /* scalar; bulk: cpu/cpu_convert.h */
uint16_t amp__float_to_half(float f);           /* round to nearest even */
float amp__bf16_to_float(uint16_t h);
uint16_t amp__float_to_bf16(float f);
double amp__value_get(const void *p, int dtype);          /* one value */
/* Every NaN as the one NaN: LuaJIT takes others for values of its own, and would follow their bits. */
static inline double amp__one_nan(double v) { return amp_unlikely(v != v) ? (double)__builtin_nan("") : v; }
bool amp__value_put(void *p, int dtype, double v);       /* false: it does not fit (NaN, range) an integer dtype */
bool amp__fits(double v, int dtype);            /* would amp__value_put take it? */

/* -- Memory (amp_alloc.c) -------------------------------------------------- */

/* Fixed-size objects (tensors, nodes): thread-cached free lists, zeroed not. */
void *amp__obj_alloc(size_t bytes);  /* NULL: no memory (no message) */
void amp__obj_free(void *p, size_t bytes);

/* A piece of device memory, counted; arenas are one block with many storages. */
typedef struct amp_block {
  AMP_ATOMIC(int32_t) refs;
  uint8_t device, index, foreign, pinned; /* foreign: not ours to free; pinned: memory of the host that a device gave */
  AMP_ATOMIC(uint32_t) streams;    /* bit i: stream i of the device had work on it (pinned: copies that may be under way); */
  AMP_ATOMIC(uint32_t) cards;      /* pinned: of which devices of the type */
  void *data;
  size_t bytes;                    /* as asked; the allocator rounds up */
  int64_t id;                      /* foreign: told by amp_dead_next when the block goes; 0: not */
} amp_block;
amp_block *amp__block_new(int device, int index, size_t bytes); /* 64-byte aligned; sets the error */
void amp__memory_collecting(bool on);             /* what this thread frees now, a collector frees */
void amp__memory_trough(void);                     /* a backward ended (what pacing reads) */
/* A pool of its own for what a captured step allocates; blocks that are freed come back to it as long as it lives. */
typedef struct amp_pool amp_pool;
amp_pool *amp__private_open(int device, int index);  /* blocks of this device come from it until amp__private_shut. NULL: no memory, or one is open */
void amp__private_shut(amp_pool *p);
void amp__private_drop(amp_pool *p);                 /* its blocks are everybody's */
bool amp__private_has(const amp_pool *p, const amp_block *b);
bool amp__private_any(const amp_block *b);           /* a block of some captured step */
amp_block *amp__block_foreign(int device, int index, void *data, size_t bytes); /* borrowed memory */
amp_block *amp__block_pinned(size_t bytes);  /* of the host, pinned by the GPUs' plug-in; sets the error */
void amp__block_free(amp_block *b);  /* drops one count */
extern int amp__streamed;            /* a second stream was made (amp_stream.c): */
void amp__block_touch(amp_block *b); /* the stream of this thread works on b */
void amp__block_moved(amp_block *b); /* and all later work on b's device, in whatever stream, comes after what this thread gave it */

enum { AMP_S_EXPOSED = 1, AMP_S_ARENA = 2, AMP_S_FOREIGN = 4 };
#define AMP_INLINE_BYTES 64
/* Storage: where elements lie. `data` may move (into an arena, or out of it):
** every tensor reads it anew at each call. Small ones hold their bytes inline. */
typedef struct amp_storage {
  AMP_ATOMIC(int32_t) refs;
  uint8_t device, index, flags, unused;
  uint32_t version;       /* bumped by every in-place change */
  uint32_t mark;          /* given when a captured step first takes a copy of it, never twice; 0: not yet */
  size_t bytes;
  void *data;
  amp_block *block;       /* NULL: inline */
  uint32_t born;          /* epoch in which it was made (amp_journal.c) */
  AMP_ALIGN(16) char small[AMP_INLINE_BYTES];
} amp_storage;
amp_storage *amp__storage_new(int device, int index, size_t bytes);
amp_storage *amp__storage_in(amp_block *b, size_t offset, size_t bytes); /* a slice of b; counts b */
void amp__storage_retain(amp_storage *s);
void amp__storage_free(amp_storage *s);  /* drops one count */
/* Give s other memory, keeping its bytes: into `b` at offset, or (b NULL) a block of its own. */
int amp__storage_move(amp_storage *s, amp_block *b, size_t offset);

/* -- Captured steps (amp_capture.c) ------------------------------------------ */

extern int amp__capturing;                         /* some state captures, or has a journal open: everything below is for that alone */
void amp__capture_bump(amp_storage *s);            /* a replay changes s */
void amp__capture_note(const amp_tensor *t);       /* a replay finds t where it is now (NULL is fine) */
void amp__capture_gradient(amp_tensor *leaf, bool clear); /* before a leaf's gradient changes, or goes */
void amp__capture_shadow(amp_tensor *leaf);        /* its low-precision copy is read */
const amp_hyper *amp__capture_hyper(const amp_optim *o, int group, int ngroup); /* where a replay finds hyper-parameters; NULL: not this state's, or error */
bool amp__capture_here(void);                      /* it is this state */
bool amp__capture_made(const amp_tensor *t);       /* this state captures nothing, or t was made since it does */

/* -- Journals (amp_journal.c) ------------------------------------------------- */

#ifndef __cplusplus
extern _Atomic uint32_t amp__epoch;                /* storages made now are of it */
int amp__journal_call(const amp_call *c, const amp_tensor *given); /* before c's kernel writes to `given` and to statistics */
#endif

/* -- Tensors (amp_tensor.c) ------------------------------------------------ */

/* What an output will be; outputs may lie in the storage of the first (which then says how large that is). */
enum { AMP_M_C_ORDER, AMP_M_STRIDES, AMP_M_ROOM, AMP_M_SHARED };
enum { AMP_TWIN = 3 };          /* where a call's output in 16 bits is, for the cast that a region will want (amp_cast.c); not a result */
typedef struct amp_meta {
  uint8_t dtype, ndim, device, device_index;
  uint8_t strides;              /* C order; as stride[] says; so, in a storage of `room` elements; so, in out[0]'s storage from `room` on */
  int64_t room;
  int64_t size[AMP_MAX_DIM];
  int64_t stride[AMP_MAX_DIM];
} amp_meta;

amp_tensor *amp__tensor_new(const amp_meta *m);         /* with storage, not filled */
amp_tensor *amp__tensor_make(int dtype, int device, int index, int ndim, const int64_t *size);
amp_tensor *amp__tensor_view(const amp_tensor *t, int ndim, const int64_t *size, const int64_t *stride, int64_t offset); /* same storage, no history */
amp_tensor *amp__tensor_alias(const amp_tensor *t);     /* the same view, no history */
amp_tensor *amp__tensor_of(amp_storage *s, int dtype, int ndim, const int64_t *size, const int64_t *stride, int64_t offset); /* counts s */
amp_tensor *amp__number(double v);                      /* AMP_T_NUMBER, float64, cpu, 0-d */
static inline void amp__retain(amp_tensor *t) { __atomic_fetch_add(&t->refs, 1, __ATOMIC_RELAXED); }
void amp__free(amp_tensor *t);                          /* drops one count; NULL is fine */
void amp__tensor_set_flags(amp_tensor *t);              /* CONTIGUOUS, DENSE, numel from sizes and strides */
void amp__meta_of(const amp_tensor *t, amp_meta *m);
void amp__contiguous_strides(int ndim, const int64_t *size, int64_t *stride);
int amp__check_size(int ndim, const int64_t *size, int dtype, int64_t *numel); /* overflow, negative: error */
static inline void *amp__data(const amp_tensor *t) {
  return (char *)t->storage->data + t->offset * amp__dtype_size[t->dtype];
}
#define AMP_DATA(type, t) ((type *)amp__data(t))
static inline bool amp__tracked(const amp_tensor *t) { return (t->flags & (AMP_T_REQUIRES_GRAD | AMP_T_HISTORY)) != 0; }
static inline uint32_t amp__version(const amp_tensor *t) { return t->storage->version; }
static inline void amp__bump(amp_tensor *t)
{
  t->storage->version++;
  if (amp_unlikely(amp__capturing)) amp__capture_bump(t->storage);
}
static inline bool amp__same_size(const amp_tensor *a, const amp_tensor *b) {
  return a->ndim == b->ndim && memcmp(a->size, b->size, sizeof(int64_t) * a->ndim) == 0;
}
int amp__stream_here(int device, int index); /* the stream of this thread, 0 without streams */
/* A device works on t outside of dispatch, which touches operands and results itself. NULL is fine */
static inline void amp__touch(const amp_tensor *t)
{
  if (amp_unlikely(amp__streamed) && t && t->device != AMP_CPU && t->storage->block) amp__block_touch(t->storage->block);
}
double amp__element(const amp_tensor *t, int64_t offset); /* CPU memory, element offset from t's start */
amp_tensor *amp__on_cpu(amp_tensor *t);                 /* t or a copy in CPU memory, counted */

/* -- Op descriptors and calls (amp_dispatch.c) ----------------------------- */

typedef struct amp_bwd amp_bwd;
typedef int (*amp_infer_fn)(amp_call *c);
typedef int (*amp_kernel_fn)(amp_call *c);
typedef int (*amp_bwd_fn)(amp_bwd *b);

typedef struct amp_op_desc {
  amp_op_info info;
  uint32_t save;            /* bits: I0.. low byte, O0.. next */
  uint8_t nrequired;        /* tensors that must be there */
  uint8_t required;         /* bit i: argument i must be there */
  uint8_t number_ok;        /* bit i: may be a number */
  AMP_ATOMIC(uint8_t) policy;   /* in force */
  int8_t dtype_slot;        /* slot of an attribute `dtype:t?`, -1: none */
  uint8_t nrule;
  struct { uint8_t slot, type, optional, most; } rule[8]; /* attributes of which few values have a meaning */
  amp_infer_fn infer;
  amp_kernel_fn front;      /* view maker or composite; NULL for K and N */
  amp_bwd_fn bwd;           /* NULL: not differentiable */
  amp_slot defaults[AMP_MAX_SLOT];
} amp_op_desc;
extern amp_op_desc amp__ops[AMP_OP_COUNT];
int amp__policy_of(int op, const amp_slot *a); /* class in force for a call with these attributes (amp_table.c) */
int amp__check_attributes(const amp_op_desc *d, const amp_slot *a); /* a caller's: counts, dtypes, words (amp_table.c) */
void amp__table_init(void);  /* once; amp_state_new calls it (amp_table.c) */

struct amp_call {
  const amp_op_desc *op;
  int id;
  unsigned flags;                 /* AMP_INPLACE, AMP_OUT */
  int nin, nout;
  bool twin;                      /* out[AMP_TWIN] is one */
  uint32_t unsaved;               /* bits as in the row's save: what this call's backward does without; set by the shape rule */
  amp_tensor **in;                /* borrowed; absent ones NULL */
  amp_tensor *out[AMP_MAX_OUT];   /* owned; set by dispatch before the kernel */
  amp_slot *a;                    /* attributes, normalised in place by the shape rule */
  amp_meta meta[AMP_MAX_OUT];     /* filled by the shape rule, with nout */
  amp_tensor *in_[AMP_MAX_IN];
  amp_slot a_[AMP_MAX_SLOT];
};

/* The one way any op runs. in: nin tensors (absent: NULL). out: up to AMP_MAX_OUT results, owned by the
** caller; with AMP_OUT out[0] is given; with AMP_INPLACE the result is in[0] and out is not touched.
** attrs NULL: defaults. */
int amp__dispatch(int op, unsigned flags, amp_tensor *const *in, int nin, amp_tensor **out, const amp_slot *attrs);
int amp__dispatch_op(int op, unsigned flags, amp_tensor *const *in, int nin, amp_tensor **out, const amp_slot *attrs); /* not observed */
amp_tensor *amp__raw_clone(amp_tensor *t);  /* a copy without history */
int amp__whole(uint32_t lost, int rc);      /* rc of a formula before which that many parts were lost; an error if it lost one and went on */

/* Helpers for shape rules (amp_infer.c) */
int amp__norm_dim(amp_slot *s, int ndim, const char *what);  /* 1-based -> from 0, with error */
int amp__norm_dims(amp_slot *list, int ndim, uint32_t *mask); /* a D attribute in place; absent: all */
void amp__out(amp_call *c, int i, int dtype, int ndim, const int64_t *size); /* meta[i], device of in[0] */
int amp__broadcast(amp_call *c, int n, int *ndim, int64_t *size); /* of the first n inputs that are there */
int amp__result_dtype(const amp_call *c, int first, int n); /* promotion of n inputs from first on; numbers are weak */
/* Helpers for views (amp_view.c) */
int amp__view_shape(const amp_tensor *t, amp_slot *shape, int64_t *size); /* an I attribute with at most one -1, filled in */
bool amp__view_strides(const amp_tensor *t, int ndim, const int64_t *size, int64_t *stride); /* false: it takes a copy */

/* -- Devices (amp_device.c) ------------------------------------------------ */

typedef struct amp_optim_chunk { /* one parameter of a fused step, contiguous in the same order */
  float *master; void *shadow; const void *grad;
  float *s0, *s1, *s2;           /* momentum | exp_avg, exp_avg_sq, max_exp_avg_sq */
  double *steps;                 /* of this parameter; the kernel counts it up */
  const float *factor;           /* pending factor of the gradient, NULL: 1 */
  int64_t n;
  uint8_t shadow_dtype, grad_dtype, first, master_dtype; /* first: no momentum yet; master may be float64/16-bit too (void * then) */
} amp_optim_chunk;

/* What a plug-in may call of the core: it sees no other symbol of the library. */
typedef struct amp_core_api {
  amp_state *(*state)(void);               /* of the call in progress */
  int (*fail)(int code, int arg, const char *text);
  const char *(*shape_str)(int ndim, const int64_t *size);
  const char *(*tensor_str)(const amp_tensor *t);
  amp_tensor *(*tensor_make)(int dtype, int device, int index, int ndim, const int64_t *size);
  amp_tensor *(*tensor_view)(const amp_tensor *t, int ndim, const int64_t *size, const int64_t *stride, int64_t offset);
  void (*free)(amp_tensor *t);
  int (*dispatch)(int op, unsigned flags, amp_tensor *const *in, int nin, amp_tensor **out, const amp_slot *attrs);
  const amp_op_desc *ops;
  void (*capture_bump)(amp_storage *s);
} amp_core_api;

/* What a replay begins with: bytes copied on the device, and random numbers' seed and place for the cell */
enum { AMP_START_MOST = 16 };
typedef struct amp_start {
  struct { void *to; const void *from; size_t bytes; int argument; } copy[AMP_START_MOST];
  int n;
  uint64_t *cell, random[2]; /* cell NULL: none are drawn */
} amp_start;

/* Streams of a device beside the one it starts with, number 0. All take the device's index. */
enum { AMP_STREAMS = 16 };
typedef struct amp_stream_ops {
  int (*make)(int index);                      /* a number from 1; they come round */
  int (*use)(int index, int stream);           /* this thread's from now on, <0: only asked; gives the one before */
  int (*query)(int index, int stream);         /* 1: all its work is done; 0 */
  int (*wait)(int index, int stream);          /* the host, until it is */
  void *(*event)(int index, int timing);       /* NULL with error */
  void (*event_free)(int index, void *e);
  int (*record)(int index, void *e, int stream);
  int (*after)(int index, void *e, int stream); /* what the stream gets from now on comes after e */
  int (*event_query)(int index, void *e);
  int (*event_wait)(int index, void *e);
  int (*elapsed)(int index, void *from, void *to, double *ms);
  int (*fence)(int index);                     /* all streams go on after what this thread's has got */
  void *(*mark)(int index, uint32_t streams);  /* where these streams are now; NULL: not to be had now, no error */
  int (*reached)(int index, void *mark);       /* 1: they are all past it, and it is gone */
} amp_stream_ops;

enum { AMP_LOOK_MOST = 40, AMP_LOOK_BYTES = 128 << 10 }; /* gradients that a step, or an update, looks at by itself, and their bytes */

typedef struct amp_device_ops {
  int count;
  const amp_core_api *core;      /* CPU: for plug-ins */
  const char *reason;            /* description, or why there is none */
  void *(*alloc)(int index, size_t bytes);   /* raw; amp_alloc.c pools it. NULL: none */
  void (*free)(int index, void *p, size_t bytes);
  int (*copy)(amp_tensor *dst, const amp_tensor *src);  /* contiguous, same dtype, one side is this device */
  int (*sync)(int index);
  amp_kernel_fn kernel[AMP_OP_COUNT];
  int (*threads)(int64_t work);  /* CPU: amp__threads, for plug-ins that bring threads of their own */
  const struct amp_linalg *linalg; /* CPU: own loops until LAPACK's plug-in, once it is loaded, puts itself there (amp_linalg.h) */
  /* found != 0 anywhere in the n float32 cells: do nothing at all */
  /* there: hyper-parameters in device memory, instead of *h, for captured steps (NULL: *h) */
  int (*optim_step)(int kind, const amp_hyper *h, const amp_hyper *there, amp_optim_chunk *chunks, int n, const float *const *found, int nfound);
  /* found |= any non-finite element of t; t *= *inv if inv (in place, t's dtype) */
  int (*check_scale)(amp_tensor *t, const float *inv, float *found);
  /* found |= any non-finite element of n tensors without gaps. NULL: one after the other by check_scale */
  int (*check_many)(amp_tensor *const *t, int n, float *found);
  /* *out = sum of |t * factor|^p over n tensors without gaps on one device (p infinite: the largest); a factor may be NULL. The slot, too */
  int (*norm_many)(amp_tensor *const *t, const float *const *factor, int n, double p, double *out);
  /* Captured steps: what is queued between begin and end becomes a graph; replay queues it. NULL: can't be captured */
  int (*capture_begin)(int index, void *cell, amp_tensor *const *own, int n); /* cell: uint64[2], where random numbers find seed and place; own: as in amp_capture_begin */
  int (*capture_end)(int index, void **graph, uint64_t *random); /* graph NULL: thrown away; random: counters that one replay draws */
  int (*capture_replay)(int index, void *graph, const amp_start *start);
  void (*capture_free)(int index, void *graph);
  int (*upload)(int index, void *dst, const void *src, size_t n); /* at most 1 KiB, read before it returns */
  int (*properties)(int index, amp_device_properties *p);
  const char *(*version_of)(const char *name);   /* of a library it uses; NULL: none of that name */
  const amp_stream_ops *streams;                 /* NULL: it has one */
  int (*memory)(int index, size_t *free_bytes, size_t *total); /* of the card, as its driver says. NULL: not known */
  /* Memory of the host that copies from and to the device need not stage. Freed: copies of streams of these devices may be under way */
  void *(*host_alloc)(size_t bytes);
  void (*host_free)(void *p, size_t bytes, uint32_t cards, uint32_t streams);
  void (*host_trim)(void);                       /* what is cached of it goes back */
  int (*set)(const char *name, int value);       /* a switch: the value it had (value < 0: asked only), or -1: no such switch */
  /* scale_to and inv_to: where the values go, the same cells or others. look: gradients that are to be finite as well (none where optim_step_look is NULL) */
  int (*scale_update)(const float *scale, const float *inv, float *scale_to, float *inv_to, double *tracker, double *hyst, const float *const *found, int nfound,
                      amp_tensor *const *look, int nlook, const amp_scaler_options *o);
  /* The same as optim_step, which looks at the gradients by itself: if one is not finite, *mark = 1 and nothing else changes.
  ** 1: queued; 0: not for this step, nothing is queued. May be NULL */
  int (*optim_step_look)(int kind, const amp_hyper *h, const amp_hyper *there, amp_optim_chunk *chunks, int n, const float *const *found, int nfound, float *mark);
} amp_device_ops;
extern amp_device_ops amp__devices[AMP_DEVICE_COUNT];
/* A row's kernel on a device, or NULL. Atomic: another thread's first product may just now load a plug-in that takes slots. */
static inline amp_kernel_fn amp__kernel(int device, int op) { return __atomic_load_n(&amp__devices[device].kernel[op], __ATOMIC_ACQUIRE); }
static inline void amp__set_kernel(amp_device_ops *d, int op, amp_kernel_fn fn) { __atomic_store_n(&d->kernel[op], fn, __ATOMIC_RELEASE); }
void amp__devices_init(void);  /* fills the CPU's table, then plug-ins override slots */
/* What a plug-in exports: amp_plugin_init. It refuses (returns a sentence) on another table hash. */
typedef const char *(*amp_plugin_init_fn)(uint64_t table_hash, amp_device_ops *devices);
const char *amp__plugin(const char *name);  /* load libamp_NAME.so beside this library; its info, or why not */
void amp__plugin_never(const char *name);   /* for a forked process: it is not loaded from now on */
int amp__threads(int64_t work);  /* threads worth using for `work` elementary operations */

/* -- Autocast (amp_cast.c) ------------------------------------------------- */

int amp__autocast(amp_call *c, amp_tensor **owned, int *nowned); /* replaces inputs; owned ones to be freed after */
amp_tensor *amp__cast(amp_tensor *t, int dtype);  /* recorded cast, through a leaf's shadow when there is one; t itself (counted) if equal */
/* A leaf's low-precision copy, filled for its present version (or NULL with error). Borrowed. */
amp_tensor *amp__shadow(amp_tensor *leaf, int dtype);
void amp__shadow_drop(amp_ag *ag);
int amp__shadows_shed(int device);      /* memory is short: those of this state that no optimizer keeps go; how many */
void amp__shadows_before_capture(void); /* a captured step makes its own */
int64_t amp__new_epoch(void);           /* a number for a region, unique in the process */
extern AMP_ATOMIC(int) amp__states;         /* how many there are */


/* -- Tape (amp_tape.c) ----------------------------------------------------- */


typedef struct amp_edge {     /* where a gradient goes; both NULL: nowhere */
  amp_node *node;             /* counted */
  amp_tensor *leaf;           /* counted */
  int32_t index;              /* output of node */
} amp_edge;

typedef struct amp_saved {    /* a tensor backward needs */
  amp_tensor *t;              /* leaf itself, or an alias without history */
  amp_edge edge;              /* history it had (inputs); outputs use the node */
  uint32_t version;
} amp_saved;

/* As short as the node's most dimensions allow: size[] holds ndim values. */
typedef struct amp_shape { uint8_t dtype, ndim, device, device_index; int64_t size[AMP_MAX_DIM]; } amp_shape;

enum { AMP_N_FREED = 1, AMP_N_LUA = 2, AMP_N_SLICES = 4, AMP_N_CAST = 8, AMP_N_SHADOW = 16 /* saves its leaf, for the version */,
  AMP_N_SPENT = 32 /* what it saved gave way to what this backward makes of it, and no other can have it */,
  AMP_N_SCALED = 64 /* it multiplies by a loss scale: gradients behind it are those of a scaled loss */ };
enum { AMP_MAX_LIST = 1000000 }; /* arguments of an op that takes a list, or of a function of Lua */
enum { AMP_NODE_LUA = 0x7fff }; /* op of a node whose function lives in Lua */

/* A recorded op. Order of backward is seq, descending. */
struct amp_node {
  AMP_ATOMIC(int32_t) refs;
  int16_t op;
  uint8_t flags, nout;
  int32_t nin, nsaved;
  int16_t nslot, shape_bytes;
  int32_t bytes;               /* of this allocation */
  int64_t seq;
  int64_t id;                  /* Lua function's id */
  int64_t *hooks;              /* id of each output's hooks (0: none, -1: gone with a backward); NULL: none at all */
  amp_edge *edge;              /* [nin] */
  amp_saved *saved;            /* [nsaved]: nin + nout, of which only the row's are filled, or none at all */
  char *shapes;                /* [nin + nout], shape_bytes each: amp__shape_of */
  amp_slot *a;                 /* [nslot] */
  struct amp_slices *slices;   /* AMP_N_SLICES: an in-place op seen from the base */
};

/* The shape of input i, or of output i - nin. */
static inline amp_shape *amp__shape_of(const amp_node *n, int i) { return (amp_shape *)(n->shapes + i * n->shape_bytes); }

typedef struct amp_grad {     /* a leaf's gradient, maybe 16-bit, maybe with a factor pending */
  amp_tensor *value;          /* NULL: none. Leaf's dtype once materialised */
  amp_tensor *factor;         /* float32 cell to be multiplied yet, NULL: 1 */
  amp_tensor *scale;          /* the loss scale in it, counted, while origin says that there is one; NULL: its scaler's, or none */
  amp_check *check;           /* last check of this value, counted; NULL: none */
  uint32_t version;           /* of value's storage when checked */
  uint8_t visible;            /* value has been handed to the user */
  uint8_t given;              /* a master has had it, a new one takes its place; 2: it has it still (amp_master.c) */
  uint8_t origin;             /* enum amp_origin: of which backwards it is the sum, while its version is `made` */
  uint32_t made;              /* version of value's storage when amp last wrote it; another one: somebody else has */
} amp_grad;

/* Where g comes from; 0: from the user's hand, or his pointer, who says no more of it. */
static inline int amp__grad_origin(const amp_grad *g) {
  return g->value && g->made == amp__version(g->value) && !(g->value->storage->flags & (AMP_S_EXPOSED | AMP_S_FOREIGN)) ? g->origin : 0;
}
/* amp changed g's values (or their memory) itself, and `before` is still true of them. */
static inline void amp__grad_from(amp_grad *g, int before) { g->origin = (uint8_t)before; g->made = amp__version(g->value); }

/* Autograd side of a tensor. */
struct amp_ag {
  amp_tensor *self;            /* borrowed */
  amp_node *node; int32_t index;
  amp_tensor *base;            /* a differentiable view's base, counted */
  uint32_t view_version;       /* base storage's version that node is right for */
  int64_t hook;                /* id of hooks of a leaf, 0: none */
  amp_grad grad;
  amp_tensor *shadow;          /* low-precision copy, its storage's version tells stale aliases */
  uint32_t shadow_version;     /* of self's storage that the shadow is right for */
  uint32_t shadow_stamp;       /* of the shadow's own storage, as it was filled */
  uint8_t shadow_is_model;     /* it is a parameter that users see (amp_master.c) */
  uint8_t shadow_owned;        /* an optimizer keeps it: it stays when memory is short */
  amp_tensor *twin;            /* self in 16 bits, left by what made it, while self's storage is as it was then; the first cast takes it */
  int64_t shadow_epoch;        /* region in which an exposed storage's shadow was filled */
  amp_ag *prev, *next;         /* list of droppable shadows; */
  amp_state *list_owner;       /* whose list, NULL: none */
};
void amp__want_twin(amp_call *c);            /* a shape rule's: a region's next cast of out[0] will be to 16 bits */
amp_ag *amp__ag(amp_tensor *t);              /* made at need; NULL with error */
void amp__ag_free(amp_tensor *t);
int amp__record(amp_call *c);                /* tie c->out to c->in */
/* The same in two halves: all that can fail before the kernel runs, what takes effect after it. */
int amp__record_begin(amp_call *c, amp_node **made);
void amp__record_end(amp_call *c, amp_node *n, bool done);
int amp__edge_of(amp_tensor *t, amp_edge *e); /* counted; regenerates a stale view's node */
int amp__record_view(amp_call *c);           /* history and base of a view just made */
void amp__view_refresh(amp_tensor *t);       /* a view (with an ag) whose base changed: bring its flags up to date */
static inline void amp__refresh(amp_tensor *t) { if (amp_unlikely((t->flags & AMP_T_VIEW) && t->ag)) amp__view_refresh(t); }
int amp__check_inplace(const amp_tensor *t); /* errors of an in-place op that is recorded */
/* History of an in-place op: all that can fail is made before the kernel runs, and takes effect after it. */
typedef struct amp_rebase { amp_node *node, *outer; } amp_rebase;
int amp__rebase_begin(amp_call *c, amp_rebase *r);
void amp__rebase_end(amp_call *c, amp_rebase *r, bool done); /* done: the kernel ran, its receiver has its new version */
void amp__node_free(amp_node *n);            /* drops one count */
void amp__node_release_saved(amp_node *n);   /* after backward */
void amp__node_spend(amp_node *n, uint32_t went); /* after a backward through those outputs */
bool amp__node_spent(const amp_node *n, uint32_t came);
amp_tensor *amp__saved_get(amp_node *n, int i, bool with_history); /* with version check; i < nin inputs, then outputs */

/* Leaf gradients */
int amp__grad_accumulate(amp_tensor *leaf, amp_tensor *g, bool may_keep); /* g any float dtype; takes g's count where it gives 0 */
void amp__dead_open(amp_state *S);   /* a list for ids of S's functions and hooks that are gone */
void amp__dead_close(amp_state *S);
int amp__grad_materialize(amp_tensor *leaf); /* value float32 (leaf's dtype), factor none */
void amp__grad_clear(amp_tensor *leaf);
int amp__grad_adopt(amp_tensor *leaf, amp_tensor *v); /* v, counted anew, is the leaf's gradient; NULL: none */
void amp__check_retain(amp_check *k);
/* For the optimizer: found-inf cell of the leaf's valid check, NULL if none or void. Borrowed. */
amp_tensor *amp__check_cell(const amp_grad *g);
bool amp__check_valid(const amp_grad *g);    /* checked, and unchanged since */
int amp__grad_drop_there(amp_tensor *leaf);  /* on a device, where nobody waited to know: 0 in place of what an overflow hides */
bool amp__grad_dropped(amp_tensor *leaf, bool wait); /* its check found an overflow and hides it; wait: ask devices too */

/* -- Observing (amp_observe.c) ----------------------------------------------- */

typedef struct amp_frame { /* an open span, on the C stack */
  struct amp_frame *outer;
  double began, inside;     /* inner spans' time */
  int64_t bytes, node;
  int32_t op, flags, depth, operands;
} amp_frame;
static inline bool amp__observing(void) { return (amp__S->interrupt & AMP_I_OBSERVE) != 0; }
bool amp__observe_begin(amp_frame *f, int op, int flags, int64_t node); /* false: leave the frame alone */
void amp__observe_end(amp_frame *f, int rc);
int amp__observe_op(int op, unsigned flags, amp_tensor *const *in, int nin, amp_tensor **out, const amp_slot *attrs);
void amp__observe_gradients(const amp_bwd *b); /* a derivative's results, before they are sent on */
void amp__observe_step(const void *optimizer);
void amp__observe_free(amp_state *S);
int64_t amp__newest_node(void);  /* amp_tape.c */

/* -- Derivatives (amp_engine.c calls amp_bwd_*.c) -------------------------- */

/* What a derivative sees. Gradients and saved tensors are borrowed; results go to gin, from the pool. */
struct amp_bwd {
  amp_node *node;
  int nin, nout;
  const amp_slot *a;
  amp_tensor *g[AMP_MAX_OUT];   /* NULL: zero; at least one is there */
  amp_tensor **gin;             /* [nin], NULL: none */
  bool create_graph;
  bool may_alias;               /* gin[0] may be a tensor that others hold: only a derivative reads it */
  bool any_dtype;               /* gin[0] may have any float dtype: its only reader takes it so */
  bool takes_part;              /* instead of gin[0] a view's derivative may give the gradient of some elements of input 0: */
  amp_tensor *part;             /* of these strides, as if the input were contiguous */
  int64_t part_stride[AMP_MAX_DIM], part_offset;
  amp_tensor *sum;              /* what came for input 0 so far, in its shape and dtype, or NULL; a derivative that adds it to gin[0] as it */
  bool summed;                  /* goes along sets this, and leaves sum itself as it is */
  bool last;                    /* the node's saved tensors are freed after this */
  struct amp_later **later;     /* where products may be left for the end of the backward (amp_later.c); NULL: nowhere */
  bool accumulates;             /* leaves' gradients are added to, all of them (amp__grad_to_add) */
};
/* one derivative per K and V row: int amp__bwd_NAME(amp_bwd *b) */

#define AMP_FN_K(name) int amp__cpu_##name(amp_call *c) AMP_SLOTFN; int amp__bwd_##name(amp_bwd *b) AMP_SLOTFN;
#define AMP_FN_N(name) int amp__cpu_##name(amp_call *c) AMP_SLOTFN;
#define AMP_FN_V(name) int amp__view_##name(amp_call *c) AMP_SLOTFN; int amp__bwd_##name(amp_bwd *b) AMP_SLOTFN;
#define AMP_FN_C(name) int amp__comp_##name(amp_call *c) AMP_SLOTFN;
#define AMP_OP(kind, name, schema, infer, policy, dtypes, save, flags, doc) AMP_FN_##kind(name) int amp__infer_##infer(amp_call *c) AMP_SLOTFN;
#include "amp_ops.def"
#undef AMP_OP

#ifdef __cplusplus
}
#endif
#endif
