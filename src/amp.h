/*
** amp.h: the whole public C API of amp, mixed-precision deep learning.
**
** One idea to read this by: everything that can be done to tensors is a row of
** amp_ops.def, called by its number through amp_op1 / amp_op2 / amp_opx /
** amp_opl. Attributes travel in an array of 8-byte slots laid out by the row's
** schema (amp_op_info). What is not an op is life-cycle, autograd, autocast,
** loss scaling and optimizer steps, below.
**
** Conventions: a function returns 0 or a negative enum amp_status and then the
** state's `err` says what was asked and got. Every call takes the amp_state of
** its caller first: it holds grad mode, autocast, seed, counters and the last
** error, one a Lua state (or thread). Results are written to an amp_ref, which
** follows the state, owns one count and is given back by amp_release. Indices and dimensions
** count from 1, negative ones from the end. Nothing here calls back.
**
** The text between the markers is also what LuaJIT's FFI parses (amp_cdef).
*/
#ifndef AMP_H
#define AMP_H
#ifndef AMP_CDEF
#include <stddef.h>
#include <stdint.h>
#ifndef AMP_API
#define AMP_API __attribute__((visibility("default")))
#endif
#ifdef __cplusplus
extern "C" {
#endif
#else
#define AMP_API
#endif

/* -- Types ---------------------------------------------------------------- */

enum amp_limit {
  AMP_ABI = 1,       /* version of this header's layout */
  AMP_MAX_DIM = 8,   /* dimensions of a tensor */
  AMP_MAX_SLOT = 32, /* attribute slots of an op */
  AMP_MAX_IN = 8,    /* tensor arguments of an op that takes no list */
  AMP_MAX_OUT = 4    /* results of an op */
};

enum amp_dtype {
  AMP_FLOAT64, AMP_FLOAT32, AMP_FLOAT16, AMP_BFLOAT16,
  AMP_INT64, AMP_INT32, AMP_INT16, AMP_INT8, AMP_UINT8, AMP_BOOL,
  AMP_DTYPE_COUNT
};

enum amp_dtype_set { /* for amp_op_info.dtypes */
  AMP_DT_FLOAT = 15, AMP_DT_INT = 496, AMP_DT_BOOL = 512
};

enum amp_device_type { AMP_CPU, AMP_CUDA, AMP_DEVICE_COUNT };

enum amp_status {
  AMP_OK = 0,
  AMP_E_ARGUMENT = -1,    /* an argument no call of this op can take */
  AMP_E_SHAPE = -2,       /* shapes that don't fit each other */
  AMP_E_DTYPE = -3,       /* a dtype the op can't take, or unequal ones */
  AMP_E_DEVICE = -4,      /* an absent device, or operands on several */
  AMP_E_INDEX = -5,       /* an index or label out of range */
  AMP_E_MEMORY = -6,      /* no memory even after caches were emptied */
  AMP_E_AUTOGRAD = -7,    /* freed graph, in-place change, no history */
  AMP_E_STATE = -8,       /* calls in an order that has no meaning */
  AMP_E_UNSUPPORTED = -9, /* right call, no kernel for it here */
  AMP_E_VALUE = -10,      /* a value outside what the op is defined for */
  AMP_E_INTERRUPTED = -11,
  AMP_E_INTERNAL = -12
};

enum amp_policy { /* autocast classes, in the order amp_policy_name knows */
  AMP_PASSTHROUGH, AMP_LOWER, AMP_FP32, AMP_FP32_UNLESS_DTYPE,
  AMP_PROMOTE, AMP_SPECIAL, AMP_BANNED,
  AMP_POLICY_COUNT
};

/* A value of an attribute. Which member, the op's schema says. An absent
** optional attribute is AMP_NONE in `i`. */
typedef union amp_slot { int64_t i; double f; } amp_slot;

/* A tensor, as other code may read it. Never write its fields. Sizes and
** strides are in elements, C order; `offset` is in elements too. */
typedef struct amp_tensor {
  int32_t refs;
  uint8_t dtype, ndim, device, device_index; /* device_index from 0 */
  uint32_t flags;      /* enum amp_tensor_flag */
  uint32_t reserved;
  int64_t id;          /* unique in the process, never reused */
  int64_t numel;
  int64_t offset;
  struct amp_storage *storage;
  struct amp_ag *ag;   /* autograd side; NULL on plain tensors. All a release reads lies in one cache line. */
  int64_t size[8];
  int64_t stride[8];
} amp_tensor;

enum amp_tensor_flag {
  AMP_T_REQUIRES_GRAD = 1, /* a leaf that asked for gradients */
  AMP_T_HISTORY = 2,       /* made by a recorded op */
  AMP_T_CONTIGUOUS = 4,    /* C order without gaps */
  AMP_T_DENSE = 8,         /* some order without gaps or overlap */
  AMP_T_NUMBER = 16,       /* a wrapped number: weak in promotion */
  AMP_T_VIEW = 32,         /* shares another tensor's storage */
  AMP_T_UNRECORDED = 64    /* a view of a tracked tensor, made while nothing was recorded */
};

/* A handle: owns one count of its tensor. A released handle holds NULL. */
#ifndef AMP_CDEF
typedef struct amp_ref { amp_tensor *t; } amp_ref;
#else /* the same; in Lua t:t() is the transpose, which a field would hide */
typedef struct amp_ref { amp_tensor *ptr_; } amp_ref;
#endif

typedef struct amp_autocast_state { /* one a device type */
  uint8_t enabled, dtype, cache, verbose;
} amp_autocast_state;

typedef struct amp_error {
  int32_t code;        /* enum amp_status */
  int32_t arg;         /* the argument's place from 1, 0 if none */
  char op[48];
  char message[976];
} amp_error;

enum amp_attention { /* bits of amp_state.attention: Lua's turn, soon */
  AMP_A_PACE = 1,      /* much was allocated: advance the collector */
  AMP_A_LOG = 2,       /* amp_log_next has lines */
  AMP_A_DEAD = 4,      /* amp_dead_next has ids */
  AMP_A_SCOPE = 8,     /* Lua's own: a scope is noting the handles made */
  AMP_A_OBSERVE = 16   /* amp_observe is on: Lua drains its spans after every call */
};

/* What belongs to one Lua state (or one thread of a C program). Fields marked
** rw may be written between calls; the caller restores what it changed. */
typedef struct amp_state {
  int32_t attention;              /* rw, enum amp_attention */
  int32_t grad_mode;              /* rw, 1: record */
  int32_t autocast_on;            /* rw, 1: some device has a live region */
  int32_t autocast_depth;         /* rw, regions entered */
  amp_autocast_state autocast[2]; /* rw, by device type */
  int32_t allow_banned;           /* rw */
  uint8_t default_dtype, default_device, default_device_index, interrupt; /* interrupt: bit 1 interrupted, bit 2 observed */
  uint64_t seed, rng_offset;      /* Philox key and counter */
  int64_t casts, cached_casts, host_waits, recorded;
  amp_error err;
  struct amp_state_private *priv;
} amp_state;

typedef struct amp_memory_stats { /* bytes, of one device */
  int64_t live, cached, peak;
  int64_t large;  /* of the live bytes, those in blocks of 1 MiB and more */
  int64_t pace, pace_large;  /* rw: bytes in smaller and in large blocks from which on S->attention asks for a pace */
  int64_t high;   /* most live bytes since a backward ended */
  int64_t swing;  /* rw: largest fall of live bytes from there to a backward's end, less what collectors freed */
  int64_t allocations, failures;
} amp_memory_stats;

/* What the library knows of an op: its row. */
typedef struct amp_op_info {
  const char *name;
  const char *schema;  /* arguments in order, see amp_ops.def */
  const char *doc;
  int32_t policy;      /* enum amp_policy, as built */
  uint32_t dtypes;     /* bit 1 << dtype: may be given */
  uint32_t flags;      /* enum amp_op_flag */
  int32_t kind;        /* 'K' kernel, 'N' no derivative, 'V' view, 'C' composite */
  int32_t nin;         /* tensor arguments (a list counts as one) */
  int32_t nslot;       /* attribute slots */
  int32_t nout;        /* results */
} amp_op_info;

enum amp_op_flag {
  AMP_F_INPLACE = 1,   /* has a form name_ that changes its first argument */
  AMP_F_METHOD = 2,    /* natural as a method */
  AMP_F_PRIVATE = 4,   /* a part of other ops (a backward kernel) */
  AMP_F_RANDOM = 8,    /* draws from the state's generator */
  AMP_F_FIRST = 16,    /* has a first derivative only */
  AMP_F_CREATE = 32,   /* makes a tensor out of attributes */
  AMP_F_ELEMENTWISE = 64, /* out[i] depends on in[i] only, with broadcasting */
  AMP_F_LIST = 128,    /* last tensor argument is a list */
  AMP_F_NODIFF_OUT1 = 256, /* results after the first carry no gradient */
  AMP_F_ONLY_INPLACE = 512, /* exists as name_ alone */
  AMP_F_AUX = 1024     /* results after the first are for backward alone */
};

enum amp_call_flag { /* added to an op's number */
  AMP_INPLACE = 0x10000, /* the first argument is the result */
  AMP_OUT = 0x20000      /* o1 holds the tensor to write */
};

/* -- Library -------------------------------------------------------------- */

AMP_API const char *amp_version(void);
AMP_API double amp_clock(void); /* wall time in seconds, from an arbitrary start; never runs backward */
AMP_API int amp_abi_version(void);
AMP_API const char *amp_cdef(void);        /* this text, for ffi.cdef */
AMP_API uint64_t amp_table_hash(void);     /* of the op table; plug-ins must agree */
AMP_API amp_state *amp_state_new(void);    /* NULL: no memory */
AMP_API void amp_state_free(amp_state *S);
AMP_API int amp_dtype_size(int dtype);
AMP_API const char *amp_dtype_name(int dtype);
AMP_API const char *amp_device_name(int device);
AMP_API int amp_set_threads(int n);        /* 0: ask only; gives the number in force */
AMP_API int amp_device_available(int device);       /* number of devices */
AMP_API const char *amp_device_reason(int device);  /* why there is none; plug-in's description */
AMP_API const char *amp_plugin_info(const char *name); /* "onednn": version and path, or why not */
AMP_API void amp_set_plugin_dir(const char *dir);
AMP_API int amp_synchronize(amp_state *S, int device, int index); /* waits until the device has done its work */
AMP_API void amp_interrupt(amp_state *S);  /* safe in a signal handler */

/* -- Op table ------------------------------------------------------------- */

AMP_API int amp_op_count(void);
AMP_API const amp_op_info *amp_op_get(int op);  /* NULL: no such number */
AMP_API int amp_op_find(const char *name);      /* -1: no such name */
AMP_API const char *amp_policy_name(int policy);
AMP_API int amp_policy_get(int op);
AMP_API int amp_policy_set(int op, int policy);   /* whole process; policy -1: as built. Ends a condition */
/* fp32 where the attribute in `slot` has one of n <= 8 values, else untouched; n 0 ends it. */
AMP_API int amp_policy_condition(int op, int slot, const amp_slot *value, int n);

/* -- Calls ---------------------------------------------------------------- */
/* Results o1.. are empty handles (or, with AMP_OUT, the tensor to write). With
** AMP_INPLACE no result is given back. Missing arguments are NULL. `attrs` has
** the op's nslot slots, or NULL for the schema's defaults. */

AMP_API int amp_op1(amp_state *S, int op, amp_ref *o1, const amp_ref *a);
AMP_API int amp_op2(amp_state *S, int op, amp_ref *o1, const amp_ref *a, const amp_ref *b);
AMP_API int amp_op2n(amp_state *S, int op, amp_ref *o1, const amp_ref *a, double number, int number_first);
AMP_API int amp_opx(amp_state *S, int op, amp_ref *o1, amp_ref *o2, amp_ref *o3,
                    const amp_ref *a, const amp_ref *b, const amp_ref *c,
                    const amp_ref *d, const amp_ref *e, const amp_slot *attrs);
/* n tensors, the op's fixed arguments first, then its list */
AMP_API int amp_opl(amp_state *S, int op, amp_ref *o1, amp_ref *o2, amp_ref *o3,
                    amp_tensor *const *in, int n, const amp_slot *attrs);

/* -- Tensors -------------------------------------------------------------- */

AMP_API void amp_release(amp_ref *r);  /* never fails, never waits; twice is harmless */
AMP_API void amp_collect(amp_ref *r);  /* the same, called by a garbage collector: told apart in amp_memory's counts */
AMP_API void amp_retain(amp_ref *out, const amp_ref *a);  /* another handle of the same tensor */
AMP_API int amp_from_double(amp_state *S, amp_ref *out, const double *data, int ndim, const int64_t *size, int dtype);
AMP_API int amp_from_bytes(amp_state *S, amp_ref *out, const void *data, int64_t bytes, int ndim, const int64_t *size, int dtype); /* copies */
AMP_API int amp_from_ptr(amp_state *S, amp_ref *out, void *data, int ndim, const int64_t *size, int dtype);  /* borrows: data must outlive it */
AMP_API int64_t amp_from_ptr_id(amp_state *S, const amp_ref *a); /* what amp_dead_next tells once nothing uses the memory; 0: not borrowed */
AMP_API int amp_number(amp_state *S, amp_ref *out, double value);  /* a wrapped number, weak in promotion */
AMP_API int amp_item(amp_state *S, const amp_ref *a, double *out);  /* waits */
AMP_API int amp_read(amp_state *S, const amp_ref *a, double *out, int64_t n); /* all elements in C order; waits */
AMP_API int amp_get1(amp_state *S, const amp_ref *a, const int64_t *index, double *out); /* one element, indices from 0 */
AMP_API void *amp_data_ptr(amp_state *S, const amp_ref *a);  /* marks the storage as exposed */
AMP_API uint32_t amp_tensor_version(const amp_ref *a);
AMP_API uint32_t amp_tensor_flags(const amp_ref *a); /* enum amp_tensor_flag; a view has looked whether its base got or lost a history */
AMP_API int amp_detach(amp_state *S, amp_ref *out, const amp_ref *a);
AMP_API int amp_same_storage(const amp_ref *a, const amp_ref *b);
AMP_API int amp_set_data(amp_state *S, const amp_ref *a, const amp_ref *b); /* a takes b's storage and shape, keeps its identity */
AMP_API amp_memory_stats *amp_memory(int device, int index);
AMP_API void amp_empty_cache(int device);
AMP_API void amp_fail_allocation(int64_t n); /* tests: the n-th allocation from now fails once; -1: none */

/* -- Autograd ------------------------------------------------------------- */

enum amp_backward_flag {
  AMP_B_CREATE_GRAPH = 1, AMP_B_RETAIN_GRAPH = 2,
  AMP_B_ACCUMULATE = 4,   /* into leaves; else results are asked for one by one */
  AMP_B_ALLOW_UNUSED = 8,
  AMP_B_STOP = 16         /* gradients go no further back than the inputs */
};
enum amp_request_kind { AMP_R_NONE, AMP_R_FUNCTION, AMP_R_HOOK };

typedef struct amp_engine { /* head of a running backward; read it between steps */
  int32_t request;     /* enum amp_request_kind, what Lua is asked for */
  int32_t n;           /* gradients given (and, for a hook, wanted) */
  int32_t wanted;      /* gradients wanted back */
  int32_t reserved;
  int64_t id;          /* of the function or hook */
} amp_engine;

AMP_API int amp_requires_grad(amp_state *S, const amp_ref *a, int on);
AMP_API int amp_grad_get(amp_state *S, amp_ref *out, const amp_ref *a);  /* out empty if none; materialises */
AMP_API int amp_grad_set(amp_state *S, const amp_ref *a, const amp_ref *grad); /* NULL: none */
AMP_API int amp_grad_check_hold(const amp_ref *a);  /* 1: a scaler's check stands, of the values as they are; 2: of scaled ones */
AMP_API void amp_grad_check_keep(const amp_ref *a); /* it stands for the changed ones, too */
AMP_API int amp_grad_defined(const amp_ref *a); /* does not wait: yes where only the device knows that an overflow hides it */
AMP_API int64_t amp_hook(amp_state *S, const amp_ref *a);  /* the id under which Lua keeps a's hooks; <0 error */
/* Tie outputs to inputs by a function that lives in Lua: a node with this id. */
AMP_API int amp_function(amp_state *S, amp_tensor *const *in, int nin, amp_tensor *const *out, int nout, int64_t *id);
AMP_API int64_t amp_dead_next(amp_state *S);  /* next id whose node is gone, 0: none */
/* inputs == NULL: into every leaf reached. Returns NULL on error. */
AMP_API amp_engine *amp_backward_begin(amp_state *S, amp_tensor *const *root, amp_tensor *const *grad, int nroot,
                                       amp_tensor *const *input, int ninput, int flags);
AMP_API int amp_backward_run(amp_state *S, amp_engine *e);  /* 0 done, 1 see e->request, <0 error */
AMP_API int amp_backward_arg(amp_state *S, amp_ref *out, amp_engine *e, int i);  /* i from 0; empty: no gradient came */
AMP_API int amp_backward_supply(amp_state *S, amp_engine *e, int i, const amp_ref *g); /* NULL: none */
AMP_API int amp_backward_result(amp_state *S, amp_ref *out, amp_engine *e, int i);
AMP_API void amp_backward_end(amp_state *S, amp_engine *e);  /* always, also after an error */
/* Leaves that the graph of n roots reaches: their number; the first `cap` as handles in out. */
AMP_API int amp_graph_leaves(amp_state *S, amp_tensor *const *root, int n, amp_ref *out, int cap);
AMP_API const char *amp_node_name(const amp_ref *a);  /* op that made it, NULL: a leaf */

/* -- Autocast ------------------------------------------------------------- */

AMP_API void amp_autocast_leave(amp_state *S);  /* outermost region ended: drop casts no optimizer owns */
AMP_API void amp_clear_autocast_cache(amp_state *S);
AMP_API const char *amp_log_next(amp_state *S); /* next line of verbose output, NULL: none */

/* -- Loss scaling --------------------------------------------------------- */
/* Scale, growth tracker and hysteresis live in device cells; a check holds the
** snapshots (1/scale, found-inf) that gradients refer to, so update() may change the cells. */

typedef struct amp_scaler amp_scaler;
typedef struct amp_check amp_check;

typedef struct amp_scaler_options {
  double init_scale, growth_factor, backoff_factor, min_scale, max_scale; /* NaN: no bound */
  int64_t growth_interval, hysteresis;
} amp_scaler_options;

AMP_API amp_scaler *amp_scaler_new(amp_state *S, const amp_scaler_options *o);
AMP_API void amp_scaler_free(amp_scaler *s);
AMP_API int amp_scaler_set(amp_state *S, amp_scaler *s, const amp_scaler_options *o); /* constants; not the scale */
AMP_API int amp_scaler_scale_tensor(amp_state *S, amp_ref *out, amp_scaler *s, int device, int index); /* float32 cell, a copy */
AMP_API int amp_scaler_get(amp_state *S, amp_scaler *s, double *scale, int64_t *tracker, int64_t *hysteresis_left); /* waits */
AMP_API int amp_scaler_put(amp_state *S, amp_scaler *s, double scale, int64_t tracker, int64_t hysteresis_left); /* -1: as it is */
AMP_API amp_check *amp_check_new(amp_state *S, amp_scaler *s);
AMP_API void amp_check_free(amp_check *k);  /* drops one count */
/* Check the gradients of n leaves; leave 1/scale pending on them (unscale != 0). A gradient already checked
** under k and unchanged since is not looked at again; one that another check of this iteration unscaled is not
** unscaled again. Add to unscale: 2 to allow float16 parameters, 4 to let the user see no gradients on overflow,
** 8 where somebody else will unscale. */
AMP_API int amp_check_grads(amp_state *S, amp_check *k, amp_tensor *const *leaf, int n, int unscale);
AMP_API int amp_check_holds(const amp_check *k, amp_tensor *const *leaf, int n); /* gradients, all checked in k's iteration and unchanged; else -1 */
AMP_API int amp_check_devices(const amp_check *k);  /* bit 1 << device type: has looked there */
AMP_API int amp_check_tensor(amp_state *S, amp_ref *out, amp_check *k, int device, int index); /* found-inf, a copy: 0 or more */
AMP_API int amp_check_found(amp_state *S, amp_check *k);  /* waits: 1, 0, <0 error */
AMP_API int amp_scaler_update(amp_state *S, amp_scaler *s, amp_check *const *k, int n); /* on the device; the next iteration begins */
AMP_API void amp_scaler_next(amp_scaler *s); /* the next iteration begins, with the scale as it is */
/* Gradients laid aside: swapping exchanges the records of n leaves for those held, empty at first. */
typedef struct amp_aside amp_aside;
AMP_API amp_aside *amp_aside_new(amp_state *S, amp_tensor *const *leaf, int n); /* counts the leaves */
AMP_API void amp_aside_free(amp_aside *k);
AMP_API int amp_aside_swap(amp_state *S, amp_aside *k);
AMP_API int amp_aside_count(const amp_aside *k);             /* leaves whose gradient it holds */
AMP_API int amp_aside_merge(amp_state *S, amp_aside *k);     /* held gradients are added to the leaves'; it is empty then */
/* float32 masters of 16-bit parameters. give: a master without a gradient gets its model's, as it lies. refresh:
** models take their masters' values where the step did not write them; the masters' gradients are cleared. */
AMP_API int amp_masters_give(amp_state *S, amp_tensor *const *master, amp_tensor *const *model, int n);
AMP_API int amp_masters_refresh(amp_state *S, amp_tensor *const *master, amp_tensor *const *model, int n);
/* Total norm of unscaled gradients (p-norm; p = infinity allowed) into *norm, then, if max_norm >= 0, multiply them. */
AMP_API int amp_clip_grad_norm(amp_state *S, amp_ref *norm, amp_tensor *const *leaf, int n, double max_norm, double p);

/* -- Optimizers ----------------------------------------------------------- */

enum amp_optim_kind { AMP_SGD, AMP_ADAM, AMP_ADAMW, AMP_RMSPROP, AMP_ADAGRAD, AMP_LAMB, AMP_OPTIM_COUNT };

typedef struct amp_optim amp_optim;

typedef struct amp_hyper {  /* of a group, at each step */
  double lr, momentum, dampening, weight_decay, beta1, beta2, eps;
  double alpha, lr_decay, initial;  /* RMSprop's smoothing; Adagrad's decay of lr and first sum of squares */
  int32_t nesterov, maximize, amsgrad, centered, bias_correction, always_adapt;
  double rescale;  /* gradients are multiplied by it in the step; 0: they are not */
} amp_hyper;

AMP_API amp_optim *amp_optim_new(amp_state *S, int kind);
AMP_API void amp_optim_free(amp_optim *o);
AMP_API int amp_optim_add_group(amp_state *S, amp_optim *o, amp_tensor *const *param, int n); /* number from 0, or <0 */
/* Step every group, unless a gradient's check found an overflow (then nothing changes). hyper: one a group. */
AMP_API int amp_optim_step(amp_state *S, amp_optim *o, const amp_hyper *hyper, int ngroup);
/* The next step looks at this check besides those of its gradients; may be given many times, counted. */
AMP_API int amp_optim_guard(amp_state *S, amp_optim *o, amp_check *k);
AMP_API int amp_optim_set_param(amp_state *S, amp_optim *o, int group, int param, const amp_ref *t); /* another tensor, the state stays */
AMP_API int amp_optim_clear_grad(amp_state *S, amp_optim *o, int to_zero);
AMP_API int amp_optim_state_count(int kind);
AMP_API const char *amp_optim_state_name(int kind, int which);
AMP_API int amp_optim_state(amp_state *S, amp_ref *out, amp_optim *o, int group, int param, int which); /* empty: none yet */
AMP_API int amp_optim_state_set(amp_state *S, amp_optim *o, int group, int param, int which, const amp_ref *v);
AMP_API int amp_optim_get_steps(amp_state *S, amp_optim *o, int group, int param, double *steps);
AMP_API int amp_optim_set_steps(amp_state *S, amp_optim *o, int group, int param, double steps);

/* -- Observing ------------------------------------------------------------ */
/* While it is on, every op, derivative, optimizer step and check leaves a span: what ran, for how long, how much it
** allocated; with AMP_O_FINITE the first value that is Inf or NaN is kept as well. Spans wait in a buffer until they
** are read (inner ones before the outer); nothing calls back. Off, it costs nothing. */

enum amp_observe_flag { AMP_O_SPANS = 1, AMP_O_FINITE = 2, AMP_O_SYNC = 4 /* wait for the device after each op */ };
enum amp_span_kind { AMP_SPAN_NONE = -1, AMP_SPAN_BACKWARD = -2, AMP_SPAN_STEP = -3, AMP_SPAN_CHECK = -4, AMP_SPAN_CLIP = -5 };
enum amp_span_flag {
  AMP_SP_BACKWARD = 1,  /* inside a backward */
  AMP_SP_NODE = 2,      /* a whole derivative: `op` is the forward op */
  AMP_SP_INPLACE = 4, AMP_SP_VIEW = 8, AMP_SP_COMPOSITE = 16,
  AMP_SP_CAST = 32,     /* a cast that another op asked for */
  AMP_SP_FAILED = 64
};

typedef struct amp_span {
  int32_t op, parent;      /* an op's number or enum amp_span_kind; what it ran in */
  int32_t flags, depth;    /* enum amp_span_flag; spans around it */
  int64_t node;            /* in a backward: the forward node whose derivative runs; 0: none */
  double total, self;      /* seconds; self: without inner spans */
  int64_t bytes, own;      /* of results made: inner spans' too; its own */
  uint8_t dtype, ndim[3];  /* of the first result; of the first three arguments, at most 5 dimensions of each */
  int32_t size[15];        /* 5 an argument */
} amp_span;

enum amp_value_kind { AMP_V_NAN = 1, AMP_V_POSITIVE = 2, AMP_V_NEGATIVE = 4 /* infinities */ };

typedef struct amp_anomaly { /* the first value that is not finite */
  int32_t kinds;           /* enum amp_value_kind; 0: none so far */
  int32_t op, flags;       /* AMP_SP_BACKWARD: in the gradient of argument `place` of op's */
  int32_t place;           /* from 1: the result, or the argument whose gradient it is */
  int32_t operands, noperand; /* bit i: operand i (backward: incoming gradient i) was not finite before */
  int32_t overflow;        /* 1: with the gradients divided by `scale` it is finite */
  uint8_t dtype, ndim, unused[2];
  int64_t size[8];         /* of the tensor that holds it */
  int64_t node, leaf;      /* forward node; id of the parameter whose gradient (or which operand) it is, 0: none */
  int64_t step;            /* from 1 */
  double scale;            /* of the loss, 0: not known */
} amp_anomaly;

typedef struct amp_observer {
  amp_span *span;          /* n spans; the reader sets n to 0 */
  int32_t n, flags;
  int64_t lost;            /* spans for which there was no room */
  int64_t steps;           /* steps of the optimizer that stepped first */
  double scale;            /* rw: loss scale in use, 0: none */
  amp_anomaly anomaly;
} amp_observer;

AMP_API amp_observer *amp_observe(amp_state *S, int flags); /* 0: off; -1: a pause. The same observer at every call; NULL: no memory */
AMP_API int64_t amp_observe_node(amp_state *S); /* newest node recorded: those up to it are older than what comes */

/* -- Files ---------------------------------------------------------------- */

AMP_API uint32_t amp_crc32(uint32_t crc, const void *data, size_t n); /* start with 0 */

#ifndef AMP_CDEF
enum amp_op_id {
#define AMP_OP(kind, name, schema, infer, policy, dtypes, save, flags, doc) AMP_OP_##name,
#include "amp_ops.def"
#undef AMP_OP
  AMP_OP_COUNT
};
#define AMP_NONE INT64_MIN
#ifdef __cplusplus
}
#endif
#endif
#endif
