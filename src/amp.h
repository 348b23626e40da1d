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
#define AMP_VERSION "0.2.0" /* of this header; amp_version() is the library's */
#ifndef AMP_API
#define AMP_API __attribute__((visibility("default")))
#endif
#ifdef __cplusplus
extern "C" {
#endif
#else
#define AMP_API
#endif

/* -- Rules ---------------------------------------------------------------- */
/* Errors: an int result is 0, or what is said, or a negative enum amp_status; a pointer is NULL. S->err then holds the
** code, the op, the argument's place and the message, until the next failure; results are not to be read. Functions
** without a state can't fail, or say how. Nothing ends the process.
**
** Ownership: an amp_ref that is written must be empty before (it is not released) and owns one count then: give it
** to amp_release. Const handles and arrays of amp_tensor * are borrowed for the call; what is kept is counted. Texts
** are not the caller's to free. What a function named _new or _begin gives goes back by the one named _free or _end.
**
** Threads: a state is used by one thread at a time; different states at once. A tensor may be read by many threads
** and released by any of them. Writing to one that others use (in place, backward into its gradient, a step) needs
** the caller's lock, as do scalers, checks, optimizers and engines, which belong to one thread at a time. What takes
** no state may be called from any thread; where it changes the whole process, it says so. */

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
  AMP_FLOAT8_E4M3, AMP_FLOAT8_E5M2, /* for storage: what computes takes no operand of them */
  AMP_DTYPE_COUNT
};

enum amp_dtype_set { /* for amp_op_info.dtypes */
  AMP_DT_FLOAT = 15, AMP_DT_INT = 496, AMP_DT_BOOL = 512, AMP_DT_FLOAT8 = 3072
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
  AMP_E_INTERNAL = -12,
  AMP_E_MOVED = -13       /* amp_state.running isn't owner: write the state's fields anew, then call again */
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
  uint32_t scale_serial; /* AMP_T_SCALE: which scale it is, 0: it is not told */
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
  AMP_T_UNRECORDED = 64,   /* a view of a tracked tensor, made while nothing was recorded */
  AMP_T_SCALE = 128,       /* a scaler's scale: a product with it is a scaled loss */
  AMP_T_WEIGHT = 256,      /* a module's parameter: regions keep its cast, whether it requires grad or not */
  AMP_T_MASK = 512         /* bytes that pick elements as bool does; what is made of them and uint8 as well does so too */
};

/* A handle: owns one count of its tensor. A released handle holds NULL. */
#ifndef AMP_CDEF
typedef struct amp_ref { amp_tensor *t; } amp_ref;
#else /* the same; in Lua t:t() is the transpose, which a field would hide */
typedef struct amp_ref { amp_tensor *ptr_; } amp_ref;
#endif

/* One a device type. Bit 0 of `cache` and `verbose` says yes. A region of 8 bits has its recipe (enum amp_float8_recipe)
** in bits 2 and 3 of `cache`, its history's length in bits 1 to 7 of `verbose` and, above those, 4 to 7 of `cache`;
** `dtype` is its base. */
typedef struct amp_autocast_state {
  uint8_t enabled, dtype, cache, verbose;
} amp_autocast_state;
enum amp_float8_recipe { AMP_FLOAT8_NONE, AMP_FLOAT8_CURRENT, AMP_FLOAT8_DELAYED, AMP_FLOAT8_BLOCK };

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
  AMP_A_OBSERVE = 16,  /* amp_observe is on: Lua drains its spans after every call */
  AMP_A_REENTERED = 32 /* Lua's own: after the next op it asks anew which coroutine runs */
};
enum amp_interrupt { AMP_I_INTERRUPT = 1, AMP_I_OBSERVE = 2, AMP_I_TRACE = 4 }; /* bits of amp_state.interrupt */

/* What belongs to one Lua state (or one thread of a C program). Fields marked
** rw may be written between calls; the caller restores what it changed. */
typedef struct amp_state {
  int32_t attention;              /* rw, enum amp_attention */
  int32_t grad_mode;              /* rw, 1: record */
  int32_t autocast_on;            /* rw, 1: some device has a live region */
  int32_t autocast_depth;         /* rw, regions entered */
  amp_autocast_state autocast[2]; /* rw, by device type */
  int32_t allow_banned;           /* rw */
  uint8_t default_dtype, default_device, default_device_index, interrupt; /* interrupt: enum amp_interrupt */
  uint64_t seed, rng_offset;      /* Philox key and counter */
  int64_t casts, cached_casts, host_waits, recorded;
  amp_error err;
  struct amp_state_private *priv;
  /* rw: where *running isn't owner, an op gives AMP_E_MOVED and does nothing; NULL: it doesn't look. Of Lua: the fields
  ** above are those of coroutine `owner`, and another one runs. */
  const uint64_t *running;
  uint64_t owner;      /* 0: nobody; 1: who amp_links was called in, while its resumers are those */
} amp_state;

/* Of LuaJIT: where a coroutine's block, at its address, says where its innermost frame on the processor's stack is (bits 1
** and 2 are flags), and what a frame holds: places in bytes, but for word, a place in words of eight bytes. */
typedef struct amp_frames {
  int32_t word;        /* of the pointer to the frame */
  int32_t step;        /* to the frame of who resumed it, where that was Lua's resume or wrap */
  int32_t owner;       /* the address of the coroutine whose frame it is */
  int32_t outer;       /* pointer to the same coroutine's frame outside, 0: none */
  int32_t back;        /* where it returns to */
  uint64_t by_resume, by_wrap; /* what that is in resume, in wrap */
  uint64_t main;       /* the main thread's address, 0: not known */
} amp_frames;

typedef struct amp_memory_stats { /* bytes, of one device */
  int64_t live, cached, peak;
  int64_t large;  /* of the live bytes, those in blocks of 1 MiB and more */
  int64_t pace, pace_large;  /* rw: bytes in smaller and in large blocks from which on S->attention asks for a pace */
  int64_t high;   /* most live bytes since a backward ended */
  int64_t swing;  /* rw: largest fall of live bytes from there to a backward's end, less what collectors freed */
  int64_t allocations, failures;
  int64_t kept;   /* of the cached bytes, those that captured steps keep */
  int64_t rest;   /* rw: large bytes after the last collection; growth beyond asks for a pace: on the CPU where it takes fresh memory,
                  ** on a GPU, whose least ones at the end of a backward these are, at the next such end, which -1 says, and sets them anew */
} amp_memory_stats;

/* What the library knows of an op: its row. */
typedef struct amp_op_info {
  const char *name;
  const char *schema;  /* arguments in order, results after ->, see amp_ops.def */
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
  AMP_F_AUX = 1024,    /* results after the first are for backward alone */
  AMP_F_WIDENS = 2048, /* a GPU's kernel takes 16-bit inputs where autocast wants float32, and gives what it would of their casts */
  AMP_F_GRAD_ANY = 4096, /* a GPU's kernel of the derivative takes a gradient of any float dtype: none is cast for it */
  AMP_F_STATE = 8192   /* the second result is the last of the first, which is all of it where there is one: a second gradient may be either's */
};

enum amp_call_flag { /* added to an op's number */
  AMP_INPLACE = 0x10000, /* the first argument is the result */
  AMP_OUT = 0x20000,     /* o1 holds the tensor to write */
  AMP_WIDEN = 0x40000    /* inside the library: 16-bit inputs count as float32 */
};

/* -- Library -------------------------------------------------------------- */

/* The version, "0.2.0"; equal to AMP_VERSION of the header that belongs to the library. Static. */
AMP_API const char *amp_version(void);
/* Wall time in seconds, from an arbitrary start; never runs backward. */
AMP_API double amp_clock(void);
/* AMP_ABI of the library that is loaded; a program compares it with the one it was compiled with. */
AMP_API int amp_abi_version(void);
/* The declarations of this header for ffi.cdef. Static. */
AMP_API const char *amp_cdef(void);
/* A hash of the op table. A plug-in with another one is refused; numbers of ops are only the same where it is. */
AMP_API uint64_t amp_table_hash(void);
/* A new state: recording, float32 on the CPU by default, no region, a seed of its own. NULL: no memory. The caller
** frees it. */
AMP_API amp_state *amp_state_new(void);
/* Frees a state that no thread is using; NULL is harmless. Tensors made with it stay valid, its engines and observer do
** not. */
AMP_API void amp_state_free(amp_state *S);
/* Functions that take no state use S in this thread from now on. */
AMP_API void amp_state_use(amp_state *S);
/* The state that this thread used last, which has their errors; NULL: none so far. */
AMP_API amp_state *amp_state_used(void);
/* Lua's own: note by which words of the stack the running coroutine's resumers are known, and make it the owner. 0: they are
** too many, and nobody owns the state. */
AMP_API int amp_links(amp_state *S, const amp_frames *frames);
/* Lua's own: whether the state's fields are another coroutine's than the one that runs, or its resumers are others. */
AMP_API int amp_moved(const amp_state *S);
/* Bytes of an element, 0 where there is no such dtype. */
AMP_API int amp_dtype_size(int dtype);
/* "float32" and so on; "no dtype" for a number that is none. Static. */
AMP_API const char *amp_dtype_name(int dtype);
/* "cpu" or "cuda"; "no device" for a number that is none. Static. */
AMP_API const char *amp_device_name(int device);
/* How many threads a kernel may use, in the whole process; gives the number in force. n <= 0 only asks. At most
** 1024. */
AMP_API int amp_set_threads(int n);
/* The instructions that CPU kernels are chosen for: "baseline", "avx2" or "avx512", the most that the processor has and
** the environment's AMP_CPU_ISA, one of these words, allows as the library is loaded. Static. */
AMP_API const char *amp_cpu_isa(void);
/* How many devices of a type there are; the first call for AMP_CUDA looks for its plug-in. 0: none, or no such type. */
AMP_API int amp_device_available(int device);
/* Why there are none of that type, or what serves it (a plug-in's version). Static, "" where there is nothing to
** say. */
AMP_API const char *amp_device_reason(int device);
/* For a process forked from one that uses a GPU, which the driver does not serve there: from now on what would touch devices of this
** type is an error that says so, and what the process inherited of them is let go without a word to the driver. */
AMP_API void amp_device_leave(int device);
/* Of "onednn", "lapack" or "cuda": version and path, or why it is not in use. Loads it at the first call. Static. */
AMP_API const char *amp_plugin_info(const char *name);
/* The folder in which plug-ins are looked for, copied; NULL or "": AMP_PLUGIN_DIR, else that of the library. In force
** for plug-ins not asked for so far, in the whole process. */
AMP_API void amp_set_plugin_dir(const char *dir);
/* Waits until a device has done its work; index from 0. Errors: AMP_E_DEVICE where there is none, and what the work
** itself ran into. */
AMP_API int amp_synchronize(amp_state *S, int device, int index);
/* The next op of S, or the next step of its backward, fails with AMP_E_INTERRUPTED. Safe in a signal handler and from
** any thread; NULL is harmless. */
AMP_API void amp_interrupt(amp_state *S);

/* -- Op table ------------------------------------------------------------- */

/* How many rows the table has: numbers of ops are 0 to that less 1. */
AMP_API int amp_op_count(void);
/* An op's row; NULL: no such number. Static. */
AMP_API const amp_op_info *amp_op_get(int op);
/* An op's number by its name, -1: no such name. In C, AMP_OP_name is the same without a search. */
AMP_API int amp_op_find(const char *name);
/* The name of an autocast class, NULL: no such number. Static. */
AMP_API const char *amp_policy_name(int policy);
/* The autocast class in force for an op (enum amp_policy), AMP_E_ARGUMENT where there is no such op. */
AMP_API int amp_policy_get(int op);
/* Gives an op another class, in the whole process; -1: the one it was built with. Ends a condition. Safe while others
** run ops. */
AMP_API int amp_policy_set(int op, int policy);
/* fp32 where the attribute in `slot` has one of n <= 8 values, else untouched; n 0 ends it. Whole process; call it
** while no other thread runs the op. */
AMP_API int amp_policy_condition(int op, int slot, const amp_slot *value, int n);

/* -- Calls ---------------------------------------------------------------- */
/* Results o1.. are empty handles (or, with AMP_OUT, the tensor to write). With
** AMP_INPLACE no result is given back. Missing arguments are NULL. `attrs` has
** the op's nslot slots, or NULL for the schema's defaults. */

/* An op of one tensor with its default attributes: *o1 = op(a). */
AMP_API int amp_op1(amp_state *S, int op, amp_ref *o1, const amp_ref *a);
/* An op of two tensors with its default attributes: *o1 = op(a, b). */
AMP_API int amp_op2(amp_state *S, int op, amp_ref *o1, const amp_ref *a, const amp_ref *b);
/* An op of a tensor and a number, which is weak in promotion; number_first swaps them: *o1 = op(number, a). */
AMP_API int amp_op2n(amp_state *S, int op, amp_ref *o1, const amp_ref *a, double number, int number_first);
/* The general call for up to five tensors and three results. Results that are NULL are dropped. */
AMP_API int amp_opx(amp_state *S, int op, amp_ref *o1, amp_ref *o2, amp_ref *o3,
                    const amp_ref *a, const amp_ref *b, const amp_ref *c,
                    const amp_ref *d, const amp_ref *e, const amp_slot *attrs);
/* n tensors as an array, the op's fixed arguments first, then its list; nothing in a list may be NULL. Also for ops of
** more than five tensors. */
AMP_API int amp_opl(amp_state *S, int op, amp_ref *o1, amp_ref *o2, amp_ref *o3,
                    amp_tensor *const *in, int n, const amp_slot *attrs);

/* -- Tensors -------------------------------------------------------------- */

/* Gives a count back and empties the handle; the last one frees the tensor. Never fails, never waits; an empty handle
** is harmless. Any thread. */
AMP_API void amp_release(amp_ref *r);
/* The same, called by a garbage collector: told apart in amp_memory's counts. */
AMP_API void amp_collect(amp_ref *r);
/* Another handle of the same tensor, with a count of its own: what hands a tensor to other threads and states. Any
** thread that holds a count. */
AMP_API void amp_retain(amp_ref *out, const amp_ref *a);
/* A CPU tensor of `ndim` sizes from values in C order, which are copied and rounded to `dtype`. AMP_E_VALUE where an
** integer dtype can't hold one. */
AMP_API int amp_from_double(amp_state *S, amp_ref *out, const double *data, int ndim, const int64_t *size, int dtype);
/* The same from raw elements of `dtype` in C order; `bytes` must be what the shape takes, else AMP_E_SHAPE. */
AMP_API int amp_from_bytes(amp_state *S, amp_ref *out, const void *data, int64_t bytes, int ndim, const int64_t *size, int dtype);
/* The same from numbers in a text of `length` bytes: a list of JSON's, nested in any way, or numbers with commas or blanks
** between them; exactly as many as the shape takes, else AMP_E_SHAPE. AMP_E_VALUE: what is no number, and at which byte. */
AMP_API int amp_from_text(amp_state *S, amp_ref *out, const char *text, int64_t length, int ndim, const int64_t *size, int dtype);
/* A tensor over memory of the caller, in C order, aligned to its elements: borrowed, it must outlive every tensor that
** uses it (amp_from_ptr_id tells). */
AMP_API int amp_from_ptr(amp_state *S, amp_ref *out, void *data, int ndim, const int64_t *size, int dtype);
/* What amp_dead_next tells once nothing uses the borrowed memory any more; 0: it is not borrowed. */
AMP_API int64_t amp_from_ptr_id(amp_state *S, const amp_ref *a);
/* A wrapped number: a float64 scalar that is weak in promotion, as a number beside a tensor is. */
AMP_API int amp_number(amp_state *S, amp_ref *out, double value);
/* The value of a tensor of one element; AMP_E_SHAPE if it has more. Waits for the device. Every NaN comes as the same
** one. */
AMP_API int amp_item(amp_state *S, const amp_ref *a, double *out);
/* All n elements in C order, whatever dtype, layout and device; n must be the tensor's numel. Waits for the device. */
AMP_API int amp_read(amp_state *S, const amp_ref *a, double *out, int64_t n);
/* One element by ndim indices, here from 0; AMP_E_INDEX where one is out of range. Waits for the device. */
AMP_API int amp_get1(amp_state *S, const amp_ref *a, const int64_t *index, double *out);
/* Address of the first element (on its device), NULL: the handle is empty. Strides as in amp_tensor. Valid while a
** count is held. Its storage counts as exposed from then on: autocast keeps no copy of it past a region. */
AMP_API void *amp_data_ptr(amp_state *S, const amp_ref *a);
/* Grows with every write to the storage; 0 for an empty handle. */
AMP_API uint32_t amp_tensor_version(const amp_ref *a);
/* Bytes of the storage in which a tensor's elements lie, from its first byte on; 0 of an empty handle. */
AMP_API int64_t amp_tensor_storage_bytes(const amp_ref *a);
/* enum amp_tensor_flag; a view has looked whether its base got or lost a history. Read them by this, not from the
** field. */
AMP_API uint32_t amp_tensor_flags(const amp_ref *a);
/* Another tensor on the same storage without history: writes are seen in both, gradients flow into neither. */
AMP_API int amp_detach(amp_state *S, amp_ref *out, const amp_ref *a);
/* 1: both lie in the same storage; 0 else, and for empty handles. */
AMP_API int amp_same_storage(const amp_ref *a, const amp_ref *b);
/* a takes b's storage, shape, dtype and device, and keeps its identity, handles and gradient. AMP_E_AUTOGRAD where a
** was made by a recorded op. */
AMP_API int amp_set_data(amp_state *S, const amp_ref *a, const amp_ref *b);
/* Counts of a device (index from 0), NULL: no such device. They live for ever and change under the reader; rw fields
** are for a collector's pacing. */
AMP_API amp_memory_stats *amp_memory(int device, int index);
/* Gives cached memory of a device type back to the system; -1: of all. Any thread. */
AMP_API void amp_empty_cache(int device);
/* For tests: the n-th allocation from now fails once, in the whole process; -1: none. */
AMP_API void amp_fail_allocation(int64_t n);

/* -- Mailboxes: tensors from one state to another -------------------------- */

/* A mailbox holds the last `keep` letters that were put into it, by whichever thread, until somebody takes them. */
typedef struct amp_mailbox amp_mailbox;
typedef struct amp_letter { /* as it was put; the letter's own until amp_letter_free */
  int64_t version;     /* the number of the put, from 1 */
  const void *note;    /* bytes of the sender's */
  int64_t size;        /* how many */
  int32_t n;           /* tensors */
  int32_t reserved;
} amp_letter;
/* The mailbox of this name in the process, made where it is not there; a count of the caller's. keep 0: whatever it has,
** 1 at first. NULL: AMP_E_STATE, it was opened with another number. */
AMP_API amp_mailbox *amp_mailbox_open(amp_state *S, const char *name, int keep);
/* Gives the count back; with the last one the letters go. NULL is harmless. Any thread. */
AMP_API void amp_mailbox_close(amp_mailbox *box);
/* Puts n tensors, which are shared and not copied, and a note, which is copied; where the mailbox is full the oldest
** letter goes. Gives the letter's version. AMP_E_AUTOGRAD for a tensor with a history or that requires grad,
** AMP_E_STATE for memory of Lua's. Work of a GPU on them must be done before. */
AMP_API int64_t amp_mailbox_put(amp_state *S, amp_mailbox *box, amp_tensor *const *tensor, int n, const void *note, int64_t size);
/* The oldest letter, the caller's; waits up to so many seconds for one. NULL: none came (S->err.code is 0), or an
** interrupt. */
AMP_API amp_letter *amp_mailbox_take(amp_state *S, amp_mailbox *box, double seconds);
/* Tensor i (from 0) of a letter, an own handle. AMP_E_STATE: it was changed in place since it was put. */
AMP_API int amp_letter_tensor(amp_state *S, amp_ref *out, const amp_letter *letter, int i);
/* Frees a letter and its counts; NULL is harmless. Any thread. */
AMP_API void amp_letter_free(amp_letter *letter);
/* Drops all letters. Any thread. */
AMP_API void amp_mailbox_clear(amp_mailbox *box);
/* How many letters lie in it; how many were put in all, and dropped unread, where the pointers are not NULL. Any thread. */
AMP_API int amp_mailbox_count(const amp_mailbox *box, int64_t *puts, int64_t *dropped);

/* -- Autograd ------------------------------------------------------------- */

enum amp_backward_flag {
  AMP_B_CREATE_GRAPH = 1, AMP_B_RETAIN_GRAPH = 2,
  AMP_B_ACCUMULATE = 4,   /* into leaves; else results are asked for one by one */
  AMP_B_ALLOW_UNUSED = 8,
  AMP_B_STOP = 16,        /* gradients go no further back than the inputs */
  AMP_B_COLLECT = 32,     /* where memory is short, stop with AMP_R_MEMORY, once for each op, instead of failing */
  AMP_B_ONES = 64         /* the gradients given are ones, as nobody gave any */
};
/* What a gradient is the sum of; 0: nobody knows, as it was written by hand or began with a gradient of the caller's. */
enum amp_origin {
  AMP_O_PLAIN = 1,        /* backwards of losses without a scale */
  AMP_O_SCALED = 2,       /* backwards of scaled losses */
  AMP_O_UNSCALED = 4,     /* what a scaler has unscaled */
  AMP_O_MIXED = 8,        /* scaled and others in one sum; only amp_grads_origin says it */
  AMP_O_HAND = 16         /* backwards of losses times a number that a scaler's scale is or was: any step takes it */
};
enum amp_request_kind { AMP_R_NONE, AMP_R_FUNCTION, AMP_R_HOOK, AMP_R_MEMORY /* give some back, then run again */, AMP_R_READY /* a leaf's gradient is complete (amp_ready) */ };

typedef struct amp_engine { /* head of a running backward; read it between steps */
  int32_t request;     /* enum amp_request_kind, what Lua is asked for */
  int32_t n;           /* gradients given (and, for a hook, wanted) */
  int32_t wanted;      /* gradients wanted back */
  int32_t reserved;
  int64_t id;          /* of the function or hook */
} amp_engine;

/* Makes a leaf ask for gradients, or no longer. AMP_E_DTYPE for integers, AMP_E_AUTOGRAD to switch off what an op
** made. */
AMP_API int amp_requires_grad(amp_state *S, const amp_ref *a, int on);
/* A leaf's gradient as an own handle, in the leaf's dtype; empty: there is none. Applies a pending factor (so it may
** launch work), and waits where an overflow is to hide it. */
AMP_API int amp_grad_get(amp_state *S, amp_ref *out, const amp_ref *a);
/* Gives a leaf a gradient of its own shape, dtype and device, counted, not copied; NULL: none. */
AMP_API int amp_grad_set(amp_state *S, const amp_ref *a, const amp_ref *grad);
/* 1: a scaler's check of the gradient stands for its values as they are; 2: for scaled ones; 0: none does. */
AMP_API int amp_grad_check_hold(const amp_ref *a);
/* The check that was made stands for the values as they are now, too: for a caller who changed them and knows they
** stayed finite. */
AMP_API void amp_grad_check_keep(const amp_ref *a);
/* The origins (enum amp_origin) of n leaves' gradients, or-ed. *at (may be NULL): the first one with a bit of mask, -1. */
AMP_API int amp_grads_origin(amp_tensor *const *leaf, int n, int mask, int *at);
/* The origin of a's gradient is this, for a caller who knows: it stands until somebody writes the gradient. */
AMP_API void amp_grad_origin_put(const amp_ref *a, int origin);
/* What is known of a's gradient, for amp_grad_keep: amp_grad_check_hold and the origin; 0: nothing. */
AMP_API int amp_grad_hold(const amp_ref *a);
/* The caller has changed the gradient, and that is still so. */
AMP_API void amp_grad_keep(const amp_ref *a, int held);
/* Gradients that the caller begins backwards with are of this origin from now on; what they were before. */
AMP_API int amp_backward_origin(amp_state *S, int origin);
/* The same, where they carry a scaler's scale, that of this tensor (amp_scaler_scale_tensor). */
AMP_API int amp_backward_scale(amp_state *S, const amp_ref *scale);
/* 1: there is a gradient. Does not wait: 1 also where only the device knows that an overflow hides it. */
AMP_API int amp_grad_defined(const amp_ref *a);
/* The id under which the caller keeps hooks of a's gradient; backward then stops with AMP_R_HOOK and that id. <0:
** error, such as a tensor that needs no gradient. */
AMP_API int64_t amp_hook(amp_state *S, const amp_ref *a);
/* Ties outputs to inputs by a derivative of the caller's own: backward stops with AMP_R_FUNCTION and *id. *id 0:
** nothing is recorded, no input needs a gradient. Inputs and outputs may be NULL or no floats; up to a million and 255.
** The id lives until amp_dead_next gives it. */
AMP_API int amp_function(amp_state *S, amp_tensor *const *in, int nin, amp_tensor *const *out, int nout, int64_t *id);
/* The id under which the caller is told that a leaf's gradient is complete: a backward that adds to it stops with
** AMP_R_READY and that id once it has, at its end at the latest. <0: error, such as a tensor made by an op. */
AMP_API int64_t amp_ready(amp_state *S, const amp_ref *a);
/* Nobody is told any more. */
AMP_API void amp_ready_off(const amp_ref *a);
/* The next id of this state (of a function, hook or borrowed memory) that nothing uses any more, 0: none. */
AMP_API int64_t amp_dead_next(amp_state *S);
/* Starts a backward from nroot tensors with the gradients given (grad or one NULL: ones, for a scalar). input NULL:
** into every leaf reached, else into the ninput tensors. The engine is the caller's until amp_backward_end; NULL on
** error. All calls with it are made by the state that began it. */
AMP_API amp_engine *amp_backward_begin(amp_state *S, amp_tensor *const *root, amp_tensor *const *grad, int nroot,
                                       amp_tensor *const *input, int ninput, int flags);
/* 0: done. 1: see e->request, answer with amp_backward_supply, and run again. <0: error; only amp_backward_end may
** follow, and some leaves have got their gradients. With AMP_B_COLLECT a lack of memory is a request first,
** AMP_R_MEMORY: free some and run again, and the step that failed is taken once more. */
AMP_API int amp_backward_run(amp_state *S, amp_engine *e);
/* While a request is open: gradient i (from 0, of e->n) that came to it, an own handle; empty: none came. */
AMP_API int amp_backward_arg(amp_state *S, amp_ref *out, amp_engine *e, int i);
/* The answer: gradient i (from 0, of e->wanted), counted; NULL: none. */
AMP_API int amp_backward_supply(amp_state *S, amp_engine *e, int i, const amp_ref *g);
/* After the end: the gradient of input i (from 0), an own handle. None came: empty with AMP_B_ALLOW_UNUSED, else
** AMP_E_AUTOGRAD. */
AMP_API int amp_backward_result(amp_state *S, amp_ref *out, amp_engine *e, int i);
/* Frees the engine; always, also after an error. Not NULL. */
AMP_API void amp_backward_end(amp_state *S, amp_engine *e);
/* How many leaves the graph of n roots reaches; the first `cap` of them as own handles in out. */
AMP_API int amp_graph_leaves(amp_state *S, amp_tensor *const *root, int n, amp_ref *out, int cap);
/* The op that made a, NULL: a is a leaf or plain. Static. */
AMP_API const char *amp_node_name(const amp_ref *a);

/* -- Journals: what a function changes in tensors that were there before it ------ */

typedef struct amp_journal amp_journal;
/* A journal, to be opened at once and shut when the function is over or left. NULL: error. */
AMP_API amp_journal *amp_journal_new(amp_state *S);
/* Frees a journal that is shut; NULL is harmless. */
AMP_API void amp_journal_free(amp_journal *j);
/* From here on the first write of S to a storage that was there before is noted, with the bytes it had. */
AMP_API void amp_journal_open(amp_state *S, amp_journal *j);
/* Ends that. A journal may be shut twice. */
AMP_API void amp_journal_shut(amp_state *S, amp_journal *j);
/* How many storages were changed. */
AMP_API int amp_journal_count(const amp_journal *j);
/* Notes t now, where a journal is open: a change that comes after others then takes no memory. */
AMP_API int amp_journal_note(amp_state *S, const amp_ref *t);
/* Storages that were changed get the bytes and versions they had before the function, for running it again. */
AMP_API int amp_journal_back(amp_state *S, amp_journal *j);
/* The same for good, for a function whose results are of no use: takes no memory. */
AMP_API int amp_journal_undo(amp_state *S, amp_journal *j);
/* They get those they had before amp_journal_back. */
AMP_API int amp_journal_forth(amp_state *S, amp_journal *j);

/* -- Autocast ------------------------------------------------------------- */

/* To be called when the outermost region of S has ended: drops copies in lower precision of storage that pointers lead to. */
AMP_API void amp_autocast_leave(amp_state *S);
/* The step that casts to 8 bits belong to: the number of the outermost region, or the one that was set for a
** recomputation; 0 for the region's own again. */
AMP_API int64_t amp_float8_step(amp_state *S);
/* Set the step of regions of 8 bits; 0: the region's own again. Gives what was set before. */
AMP_API int64_t amp_float8_set_step(amp_state *S, int64_t step);
/* Casts to 8 bits since the state began. */
AMP_API int64_t amp_float8_casts(amp_state *S);
/* The largest |x| of earlier steps of the layer whose weight t is, the last first: of its inputs (kind 0), of gradients
** (1). Up to `room` numbers go to `values`; how many there are. 0: nothing is known. A wait for the device. */
AMP_API int amp_float8_history(amp_state *S, const amp_ref *t, int kind, double *values, int room);
/* The same, set; values from 0 to the largest float32. */
AMP_API int amp_float8_set_history(amp_state *S, const amp_ref *t, int kind, const double *values, int n);
/* on: casts of this state count elements, those beyond the largest value, and those that become 0. */
AMP_API void amp_float8_count(amp_state *S, int on);
/* These three of a layer's inputs, weight and gradients into counts[9], which are 0 from then on. 1, or 0: the layer has
** cast nothing. A wait for the device. */
AMP_API int amp_float8_take_counts(amp_state *S, const amp_ref *t, double *counts);
/* Drops all such copies of S, also inside a region. */
AMP_API void amp_clear_autocast_cache(amp_state *S);
/* a in dtype, as a region casts an op's input: a parameter's copy is kept, the cast is counted, and printed where the region
** is verbose, as one of argument number `argument` of `who`. a itself where it has the dtype. */
AMP_API int amp_autocast_cast(amp_state *S, amp_ref *out, const amp_ref *a, int dtype, const char *who, int argument);
/* The next waiting line of verbose output, NULL: none. It lives until the next call for S. */
AMP_API const char *amp_log_next(amp_state *S);

/* -- Loss scaling --------------------------------------------------------- */
/* Scale, growth tracker and hysteresis live in device cells; a check holds the
** snapshots (1/scale, found-inf) that gradients refer to, so update() may change the cells. */

typedef struct amp_scaler amp_scaler;
typedef struct amp_check amp_check;

typedef struct amp_scaler_options {
  double init_scale, growth_factor, backoff_factor, min_scale, max_scale; /* NaN: no bound */
  int64_t growth_interval, hysteresis;
} amp_scaler_options;

/* A scaler, the caller's; the options are copied. NULL: AMP_E_VALUE says which one is out of range, or no memory. */
AMP_API amp_scaler *amp_scaler_new(amp_state *S, const amp_scaler_options *o);
/* Drops the caller's count; checks keep the scaler as long as they live. NULL is harmless. */
AMP_API void amp_scaler_free(amp_scaler *s);
/* Other constants; init_scale is ignored (amp_scaler_put changes the scale). */
AMP_API int amp_scaler_set(amp_state *S, amp_scaler *s, const amp_scaler_options *o);
/* The scale as a float32 scalar on a device (index from 0), a copy: what a backward of the scaled loss starts from. */
AMP_API int amp_scaler_scale_tensor(amp_state *S, amp_ref *out, amp_scaler *s, int device, int index);
/* Reads scale, steps since the last change and overflows left before a backoff; each may be NULL. Waits for the
** device. */
AMP_API int amp_scaler_get(amp_state *S, amp_scaler *s, double *scale, int64_t *tracker, int64_t *hysteresis_left);
/* Sets them; -1 leaves a count as it is. AMP_E_VALUE where the scale or 1 over it is no positive float32 number. */
AMP_API int amp_scaler_put(amp_state *S, amp_scaler *s, double scale, int64_t tracker, int64_t hysteresis_left);
/* A check of this iteration, the caller's: found-inf 0 and a snapshot of 1/scale at first use on each device. NULL: no
** memory. */
AMP_API amp_check *amp_check_new(amp_state *S, amp_scaler *s);
/* Drops a count; gradients that refer to the check keep it. NULL is harmless. */
AMP_API void amp_check_free(amp_check *k);
enum amp_check_flag {
  AMP_UNSCALE = 1,      /* leave 1/scale pending on the gradients */
  AMP_UNSCALE_HALF = 2, /* of float16 parameters, too */
  AMP_CHECK_DROP = 4,   /* let the user see no gradients on overflow */
  AMP_CHECK_RAW = 8,    /* the caller will unscale */
  AMP_CHECK_SOON = 16   /* amp_optim_step of these leaves comes next, before a gradient changes: it may look by itself */
};
/* Looks at the gradients of n leaves for Inf and NaN, as unscale (enum amp_check_flag) says. One already checked under k
** and unchanged since is not looked at again; one that another check of this iteration unscaled is not unscaled again.
** What AMP_CHECK_SOON put off another call for k, with n 0 say, looks at now. Does not wait. AMP_E_STATE, and nothing
** changes: a gradient's origin (amp_grads_origin) is not what unscale says, be it that its loss was not scaled, or that
** it was unscaled and has got a scaled one since. */
AMP_API int amp_check_grads(amp_state *S, amp_check *k, amp_tensor *const *leaf, int n, int unscale);
/* How many of the leaves have gradients, if all of them were checked in k's iteration and are unchanged; else -1. */
AMP_API int amp_check_holds(const amp_check *k, amp_tensor *const *leaf, int n);
/* Bit 1 << device type for each type on which k has looked. */
AMP_API int amp_check_devices(const amp_check *k);
/* Found-inf summed up as a float32 scalar on a device, a copy: 0, or more on overflow. Does not wait. */
AMP_API int amp_check_tensor(amp_state *S, amp_ref *out, amp_check *k, int device, int index);
/* 1: an overflow was found; 0: none; <0 error. Waits for the device. */
AMP_API int amp_check_found(amp_state *S, amp_check *k);
/* Grows or backs the scale off by what n checks found, on the device, without waiting; the next iteration begins. */
AMP_API int amp_scaler_update(amp_state *S, amp_scaler *s, amp_check *const *k, int n);
/* The next iteration begins, with the scale as it is. */
AMP_API void amp_scaler_next(amp_scaler *s);
/* Gradients laid aside: swapping exchanges the records of n leaves for those held, empty at first. */
typedef struct amp_aside amp_aside;
/* An empty place for the gradients of n leaves, which it counts; the caller's. NULL on error. */
AMP_API amp_aside *amp_aside_new(amp_state *S, amp_tensor *const *leaf, int n);
/* Frees it with the gradients it holds. NULL is harmless. */
AMP_API void amp_aside_free(amp_aside *k);
/* Exchanges the leaves' gradients for those held: nothing is read, converted or copied. */
AMP_API int amp_aside_swap(amp_state *S, amp_aside *k);
/* The same, unless it was done before: aside is 1 where the gradients of before are to be held, 0 where they lie in the leaves. */
AMP_API int amp_aside_put(amp_state *S, amp_aside *k, int aside);
/* How many leaves' gradients it holds. */
AMP_API int amp_aside_count(const amp_aside *k);
/* Adds the held gradients to the leaves'; it is empty then. */
AMP_API int amp_aside_merge(amp_state *S, amp_aside *k);
/* float32 masters of n 16-bit parameters, pair by pair of equal shape: a master without a gradient gets its model's, as
** it lies. */
AMP_API int amp_masters_give(amp_state *S, amp_tensor *const *master, amp_tensor *const *model, int n);
/* Models take their masters' values where the step did not write them; the masters' gradients are cleared. */
AMP_API int amp_masters_refresh(amp_state *S, amp_tensor *const *master, amp_tensor *const *model, int n);
/* The total p-norm of unscaled gradients (p > 0, infinity allowed) as a float32 scalar into *norm; then, if max_norm >=
** 0, multiplies them by what brings it down to that. Does not wait. */
AMP_API int amp_clip_grad_norm(amp_state *S, amp_ref *norm, amp_tensor *const *leaf, int n, double max_norm, double p);

/* -- Several processes ----------------------------------------------------- */
/* Ranks count from 0 here. Collectives run in order, in a thread of the engine (MPI) or a stream of the device (NCCL);
** a work is one call under way. */

enum amp_dist_kind {
  AMP_DIST_ALL_REDUCE, AMP_DIST_BROADCAST, AMP_DIST_REDUCE, AMP_DIST_ALL_GATHER, AMP_DIST_GATHER, AMP_DIST_SCATTER,
  AMP_DIST_REDUCE_SCATTER, AMP_DIST_ALL_TO_ALL, AMP_DIST_SEND, AMP_DIST_RECV, AMP_DIST_BARRIER, AMP_DIST_GROUP,
  AMP_DIST_KINDS
};
enum amp_dist_op { AMP_DIST_SUM, AMP_DIST_MEAN, AMP_DIST_MAX, AMP_DIST_MIN, AMP_DIST_PRODUCT,
  AMP_DIST_ALIKE = 256 /* added: all ranks call the same for sure, and nothing compares */ };

typedef struct amp_work amp_work;

/* Loads an engine's plug-in ("mpi_openmpi", "mpi_mpich", "nccl") and joins the other processes. AMP_E_UNSUPPORTED: it is
** not there. A second call gives the same rank and size. */
AMP_API int amp_dist_start(amp_state *S, const char *engine, int32_t *rank, int32_t *size);
/* A group of n ranks of the world; its number, from 1. Called by all ranks of the world, in the same order. */
AMP_API int amp_dist_group(amp_state *S, const int32_t *rank, int n, double timeout);
/* Begins a call (enum amp_dist_kind, amp_dist_op) in a group (0: the world) with the tensors of distributed/collectives.h,
** contiguous, of one dtype. like: the tensor whose shape all ranks must agree on, NULL: none. root: a place in the group,
** or a rank of the world for send and recv. NULL: error. */
AMP_API amp_work *amp_dist_call(amp_state *S, int kind, int op, int group, int root, double timeout, amp_tensor *like,
                                amp_tensor *const *in, int nin, amp_tensor *const *out, int nout);
/* 1: it is done; 0: not within these seconds; <0: error, such as calls that differ between ranks, which names them. */
AMP_API int amp_dist_wait(amp_state *S, amp_work *w, double seconds);
/* Waits no more for it; its tensors are kept until it is done. NULL is harmless. */
AMP_API void amp_dist_free(amp_work *w);
/* Gradients of n leaves of one dtype and device as one piece of memory, for collectives. */
typedef struct amp_bucket amp_bucket;
/* The caller's; counts the leaves. dtype: of the memory, -1: the leaves'. NULL on error. */
AMP_API amp_bucket *amp_bucket_new(amp_state *S, amp_tensor *const *leaf, int n, int dtype);
/* A new piece with copies of the gradients (0 where there is none), and behind them for each leaf 1 or 0: it has one. */
AMP_API int amp_bucket_pack(amp_state *S, amp_ref *flat, amp_bucket *b);
/* Gradients lie in that piece from now on, as tensors of their own; where no rank had one, there is none. One that the
** caller holds keeps its place and gets the values. */
AMP_API int amp_bucket_unpack(amp_state *S, amp_bucket *b);
/* Frees it; gradients stay. NULL is harmless. */
AMP_API void amp_bucket_free(amp_bucket *b);
/* Leaves the other processes, after they have come here as well (status 0), or at once. The process calls it at its end
** by itself. */
AMP_API int amp_dist_stop(amp_state *S, double timeout, int status);

/* -- Optimizers ----------------------------------------------------------- */

enum amp_optim_kind {
  AMP_SGD, AMP_ADAM, AMP_ADAMW, AMP_RMSPROP, AMP_ADAGRAD, AMP_LAMB,
  AMP_NADAM, AMP_RADAM, AMP_ADADELTA, AMP_ADAMAX, AMP_LION, AMP_OPTIM_COUNT
};

typedef struct amp_optim amp_optim;

typedef struct amp_hyper {  /* of a group, at each step */
  double lr, momentum, dampening, weight_decay, beta1, beta2, eps;
  double alpha, lr_decay, initial;  /* RMSprop's smoothing, Adadelta's rho; Adagrad's decay of lr, NAdam's of momentum; Adagrad's first sum of squares */
  int32_t nesterov, maximize, amsgrad, centered, bias_correction, always_adapt;
  int32_t decoupled, unused;  /* NAdam, RAdam: weight decay as AdamW's; 0 */
  double rescale;  /* gradients are multiplied by it in the step; 0: they are not */
} amp_hyper;

/* An optimizer without parameters, the caller's. kind: enum amp_optim_kind. NULL on error. */
AMP_API amp_optim *amp_optim_new(amp_state *S, int kind);
/* Frees it with its state, and drops the counts of its parameters. NULL is harmless. */
AMP_API void amp_optim_free(amp_optim *o);
/* Adds n float leaves as a group, which are counted; gives its number, from 0. <0: one was made by an op, or is in the
** optimizer already. */
AMP_API int amp_optim_add_group(amp_state *S, amp_optim *o, amp_tensor *const *param, int n);
/* Steps every group, with one amp_hyper for each; parameters without a gradient are left alone. If a gradient's check
** or a guard found an overflow, nothing changes (and 0 comes back). AMP_E_STATE: a gradient is that of a scaled loss and
** was not unscaled. Does not wait. */
AMP_API int amp_optim_step(amp_state *S, amp_optim *o, const amp_hyper *hyper, int ngroup);
/* The next step looks at this check besides those of its gradients; counted, and dropped by that step. The same one
** twice is harmless. */
AMP_API int amp_optim_guard(amp_state *S, amp_optim *o, amp_check *k);
/* Another leaf of the same shape takes a parameter's place (both from 0); the state stays. */
AMP_API int amp_optim_set_param(amp_state *S, amp_optim *o, int group, int param, const amp_ref *t);
/* Drops the gradients of all parameters; to_zero keeps them as zeros. */
AMP_API int amp_optim_clear_grad(amp_state *S, amp_optim *o, int to_zero);
/* How many state tensors a parameter has under a kind. */
AMP_API int amp_optim_state_count(int kind);
/* The name of one (from 0), such as "exp_avg"; NULL: no such one. Static. */
AMP_API const char *amp_optim_state_name(int kind, int which);
/* A parameter's state tensor: an own handle that shares the optimizer's memory. Empty: no step has made it. AMP_E_INDEX
** where there is none such. */
AMP_API int amp_optim_state(amp_state *S, amp_ref *out, amp_optim *o, int group, int param, int which);
/* Sets it to a copy of v, of the parameter's shape; NULL: none. */
AMP_API int amp_optim_state_set(amp_state *S, amp_optim *o, int group, int param, int which, const amp_ref *v);
/* On: reads all parameters' step counts with one wait; the functions below take them from there until Off or the next
** step, instead of a wait each. */
AMP_API int amp_optim_look(amp_state *S, amp_optim *o, int on);
/* How many steps a parameter has made. Waits for the device. */
AMP_API int amp_optim_get_steps(amp_state *S, amp_optim *o, int group, int param, double *steps);
/* Sets that number, 0 or more. */
AMP_API int amp_optim_set_steps(amp_state *S, amp_optim *o, int group, int param, double steps);

/* -- Captured steps -------------------------------------------------------- */
/* What a device is given between begin and end does not run: it becomes a graph, and each replay runs all of it, as if
** the calls were made again. The host's part (Lua, C) does not repeat. Nothing in between may wait for the device. */

typedef struct amp_capture amp_capture;
/* Begins to capture what S gives a device (index from 0). own: n tensors, counted, that replays put arguments into; NULL: an
** argument that stays. The capture is the caller's; NULL: error, such as a device that has no graphs. */
AMP_API amp_capture *amp_capture_begin(amp_state *S, int device, int index, amp_tensor *const *own, int n);
/* Ends it; keep 0: what was captured failed, its gradients become nil. <0: error, as where something in between
** waited. */
AMP_API int amp_capture_end(amp_state *S, amp_capture *c, int keep);
/* A scaler's cells keep their addresses from now on, as a captured step that uses it needs, and are nobody else's. Before the
** capture begins. */
AMP_API int amp_scaler_keep(amp_state *S, amp_scaler *s);
/* Hyper-parameters of an optimizer's captured step in the next replays, one amp_hyper for each group. */
AMP_API int amp_capture_hyper(amp_state *S, amp_capture *c, const amp_optim *o, const amp_hyper *h, int n);
/* Runs all that was captured once more, with the values of given[i] in own[i]: same shapes; a given one of the same dtype and
** strides is copied by the graph itself, if it changed since the last time. NULLs and the step's own tensor are skipped.
** Does not wait. */
AMP_API int amp_capture_replay(amp_state *S, amp_capture *c, amp_tensor *const *given, int n);
/* Frees the capture and its graph. NULL is harmless. */
AMP_API void amp_capture_free(amp_capture *c);

/* -- Graphs ----------------------------------------------------------------- */
/* A function as a list of op calls (rows of the table), recorded while it runs for some inputs. It runs again without the
** function: with other values, and in whatever region and grad mode its caller is in. Values are numbered from 0; so are
** nodes, in the order in which they run. A graph may be run by several threads at once; what changes it may not. */

typedef struct amp_graph amp_graph;
enum amp_graph_kind {
  AMP_G_INPUT, AMP_G_PARAMETER, AMP_G_BUFFER, AMP_G_CONSTANT,
  AMP_G_NUMBER,          /* a number beside a tensor, weak in promotion */
  AMP_G_RESULT           /* of a node */
};
typedef struct amp_graph_value {
  const char *name;
  amp_tensor *tensor;    /* of a parameter, buffer, constant or number; borrowed */
  int32_t node;          /* that makes it, -1: none */
  uint8_t kind, dtype, ndim, device, device_index; /* enum amp_graph_kind; as they were when it was recorded */
  uint8_t free_dims;     /* bit d: an input's size d may be another one at each run */
  int64_t size[8];
} amp_graph_value;
enum { AMP_G_DETACH = -1 }; /* amp_graph_node.op: amp_detach, which is no row */
typedef struct amp_graph_node {
  const char *name;
  int32_t op, flags;     /* number of the row; AMP_INPLACE, AMP_OUT */
  int32_t nin, nout;
  const int32_t *in;     /* [nin] values, -1: absent */
  int32_t out[4];        /* values, -1: there is none */
  const amp_slot *attrs; /* [the row's nslot] */
  int8_t grad, regions;  /* grad mode: -1 the caller's, 0, 1; bit d: on device type d the region is its own, as in autocast */
  int8_t unused[2];
  amp_autocast_state autocast[2];
} amp_graph_node;
/* A number in a node's attributes, or of a number, that follows free sizes: numerator * product of size^power / denominator
** + more. Of several for one place the sum. */
typedef struct amp_graph_size {
  int32_t node, slot;    /* node -1: of the number that is value `slot`; -2: free size `slot` must be this */
  int32_t real, unused;  /* the attribute is a float */
  double numerator, denominator, more;
  int8_t power[16];      /* of each free size, in the order of the inputs and their dimensions */
} amp_graph_size;

/* Starts to record what S does with n inputs of these names, none of them twice. NULL: error, such as one that is recording already. The
** graph is the caller's. S records history meanwhile; what S has of a region and of that is the caller's of each run, and what
** sets grad_mode or a device's autocast state anew is the function's own. */
AMP_API amp_graph *amp_graph_begin(amp_state *S, amp_tensor *const *input, const char *const *name, int n);
/* Ends it; the m tensors are its outputs. keep 0: what was recorded is of no use; only amp_graph_free may follow, which also
** does alone while it is suspended. */
AMP_API int amp_graph_end(amp_state *S, amp_graph *g, amp_tensor *const *output, int m, int keep);
/* Recording stops for a while, as where the coroutine that records yields. A second call is harmless. */
AMP_API void amp_graph_suspend(amp_state *S, amp_graph *g);
/* It goes on. A second call is harmless. */
AMP_API void amp_graph_resume(amp_state *S, amp_graph *g);
/* 1: S is recording. */
AMP_API int amp_graph_recording(const amp_state *S);
/* While S records: bit d, size d of the tensor depends on values (of nonzero, say), so that a size read is not what a later run
** has. */
AMP_API int amp_graph_varies(const amp_state *S, const amp_ref *t);
/* While g is recorded: names of nodes begin so from now on; own != 0: the first one is called just so. */
AMP_API int amp_graph_at(amp_state *S, amp_graph *g, const char *prefix, int own);
/* While g is recorded: the tensor is known by this name (kind: AMP_G_PARAMETER, AMP_G_BUFFER, AMP_G_CONSTANT). Counted. */
AMP_API int amp_graph_know(amp_state *S, amp_graph *g, const amp_ref *t, int kind, const char *name);
/* An empty graph to be built by the functions below. NULL: no memory. */
AMP_API amp_graph *amp_graph_new(amp_state *S);
/* Adds a value that no node makes; v is copied, its tensor counted. Gives its number. */
AMP_API int amp_graph_add_value(amp_state *S, amp_graph *g, const amp_graph_value *v);
/* Adds a node, with nout results named after it, whose out is filled in; in-place and OUT results are values there
** already. Gives its number. */
AMP_API int amp_graph_add_node(amp_state *S, amp_graph *g, const amp_graph_node *n, const amp_graph_value *results);
/* Adds a number that follows free sizes; by rising nodes. */
AMP_API int amp_graph_add_size(amp_state *S, amp_graph *g, const amp_graph_size *s);
/* Ends building: these values are the outputs. Checks all of it. */
AMP_API int amp_graph_finish(amp_state *S, amp_graph *g, const int32_t *output, int m);
/* How many values there are. */
AMP_API int amp_graph_value_count(const amp_graph *g);
/* How many nodes. */
AMP_API int amp_graph_node_count(const amp_graph *g);
/* How many numbers that follow free sizes. */
AMP_API int amp_graph_size_count(const amp_graph *g);
/* Value i (from 0), NULL: no such one. Valid until the graph is changed. */
AMP_API const amp_graph_value *amp_graph_value_at(const amp_graph *g, int i);
/* Node i (from 0), NULL: no such one. Valid until the graph is changed. */
AMP_API const amp_graph_node *amp_graph_node_at(const amp_graph *g, int i);
/* Number i (from 0) that follows free sizes, NULL: no such one. Valid until the graph is changed. */
AMP_API const amp_graph_size *amp_graph_size_at(const amp_graph *g, int i);
/* How many inputs it has; 0 for NULL. */
AMP_API int amp_graph_inputs(const amp_graph *g);
/* How many outputs it has; 0 for NULL. */
AMP_API int amp_graph_outputs(const amp_graph *g);
/* The value that is input i (from 0), -1: no such one. */
AMP_API int amp_graph_input(const amp_graph *g, int i);
/* The value that is output i (from 0), -1: no such one. */
AMP_API int amp_graph_output(const amp_graph *g, int i);
/* Sizes of an input that may be others at each run: bit d is dimension d, from 0. */
AMP_API int amp_graph_free_dims(amp_state *S, amp_graph *g, int input, int dims);
/* Another tensor in place of a parameter, buffer or constant (by its value's number), counted. */
AMP_API int amp_graph_set_tensor(amp_state *S, amp_graph *g, int value, const amp_ref *t);
/* Calls node `node` (from 0) by itself, in its own region and grad mode where it has one: nin operands as it has them, absent
** ones empty; out[4] are empty handles for its results. Of an in-place node the first operand is the result; one that writes
** to a value (AMP_OUT) has that as the last of one operand more. */
AMP_API int amp_graph_call(amp_state *S, const amp_graph *g, int node, const amp_ref *in, int nin, amp_ref *out);
/* Moves it to a device (type * 256 + index from 0): constants, and parameters and buffers, which keep their identity and their
** gradients; inputs are expected there from then on. What a graph of a GPU keeps on the CPU stays there. */
AMP_API int amp_graph_to(amp_state *S, amp_graph *g, int device);
/* A graph from a file that amp's g:save wrote, on a device (type * 256 + index from 0); the caller's. NULL: error. The file may be
** anyone's: one that is damaged, or of a newer version, is refused. No Lua anywhere. */
AMP_API amp_graph *amp_graph_load(amp_state *S, const char *path, int device);
/* The text in the file it was read from, NULL: it was read from none. Valid as long as the graph. */
AMP_API const char *amp_graph_text(const amp_graph *g);
/* Runs it: n inputs, m empty handles for the outputs. In the state that the thread used last (a thread that has none gets one);
** errors go there. One differentiable function where grad mode is on. A failed run writes no output. */
AMP_API int amp_graph_run(amp_graph *g, const amp_ref *inputs, int n, amp_ref *outputs, int m);
typedef struct amp_graph_paused amp_graph_paused;
/* The same for callers who can make memory free: a run that lacks it stays in *paused (NULL at first) and goes on at the next call
** with the same inputs, still held, so that no write and no draw happens twice. */
AMP_API int amp_graph_run_on(amp_graph *g, const amp_ref *inputs, int n, amp_ref *outputs, int m, amp_graph_paused **paused);
/* Gives a run up that stayed so. NULL is harmless. */
AMP_API void amp_graph_drop(amp_graph_paused *paused);
enum amp_graph_pass {
  AMP_G_DEAD = 1, AMP_G_COMMON = 2, AMP_G_CONSTANTS = 4, AMP_G_FOLD = 8, AMP_G_JOINS = 16, AMP_G_CHAINS = 32,
  AMP_G_ANYWHERE = 64,   /* to compare: joined rows also where they gain nothing */
  AMP_G_REGION = 128,    /* its runs are in the region in which it was recorded, or out of any as that was */
  AMP_G_LAYOUT = 256,    /* with AMP_G_REGION, where S wants no gradients now: convolutions on a CPU with channels last */
  AMP_G_LEAN = 512,      /* no weights of products stay in their kernels' own forms between runs: less memory */
  AMP_G_TRAINS = 1024    /* of amp_graph_missed: the passes ran where S wanted gradients */
};
/* Why nodes that a row does together are several: nothing (no pass has joined any); another node reads what is between, or
** it is an output; something writes it; grad modes or regions differ; attributes, or shapes and dtypes, are not those of
** the joined row; it is for another device; dtypes are the same in the region of the recording alone; on a CPU its
** backward takes more memory; a class was set; draws would change their order. */
enum amp_graph_why {
  AMP_G_WHY_NOTHING, AMP_G_WHY_READ, AMP_G_WHY_OUTPUT, AMP_G_WHY_WRITTEN, AMP_G_WHY_MODES, AMP_G_WHY_ATTRIBUTES,
  AMP_G_WHY_SHAPES, AMP_G_WHY_DEVICE, AMP_G_WHY_REGION, AMP_G_WHY_TRAINS, AMP_G_WHY_CLASS, AMP_G_WHY_ORDER
};
typedef struct amp_graph_miss {
  int32_t first, second; /* nodes */
  int32_t op, why;       /* the row that would do both; enum amp_graph_why */
  int32_t other;         /* node that reads what is between as well, -1: none */
} amp_graph_miss;
/* Passes over a finished graph, in place: what changes nothing and is not used goes, equal nodes become one, nodes of constants
** are computed, batch norm in eval mode goes into the product before it, nodes that one row does together become that row,
** elementwise rows in a row work through memory together. What depends on parameters alone is kept between runs while they
** stay as they are. Results agree with those before within rounding. Without any pass
** only copies of constants go that a recording makes and that nothing writes. */
AMP_API int amp_graph_optimize(amp_state *S, amp_graph *g, int passes);
/* Before its constants are asked for: those that a pass computed of tensors which others have are of these as they are now.
** Runs see to it themselves. */
AMP_API int amp_graph_refresh(amp_state *S, amp_graph *g);
/* What passes found of node i (from 0): k > 0, it belongs to elementwise chain k; -1, it depends on nothing but what the graph
** holds, and its results are kept between runs; 0, nothing, or there is no such node. */
AMP_API int amp_graph_group(const amp_graph *g, int i);
/* Nodes of a finished graph that the joins of `passes` (enum amp_graph_pass) would have made one, but for a reason; up to
** `room` go to list. How many there are, <0: error. */
AMP_API int amp_graph_missed(amp_state *S, amp_graph *g, int passes, amp_graph_miss *list, int room);
/* Frees it; what runs of it gave stays. NULL is harmless. */
AMP_API void amp_graph_free(amp_graph *g);

/* -- GPUs ------------------------------------------------------------------- */

typedef struct amp_device_properties {
  char name[128];
  int64_t total_memory;           /* bytes */
  int32_t major, minor;           /* compute capability */
  int32_t multi_processor_count;
  int32_t unused;
} amp_device_properties;
/* Name, memory and compute capability of a device (index from 0). AMP_E_DEVICE where there is none. */
AMP_API int amp_device_get_properties(amp_state *S, int device, int index, amp_device_properties *p);
/* A switch of a device type, in the whole process: "tf32", "deterministic"; to compare ways of doing the same, "branches"
** (captured steps as graphs of branches, else in one line), "chain" (launches of an op that begin before the one before has
** ended), "generated" (elementwise nodes of a graph as one kernel that NVRTC compiles), "small" (own kernel for small
** products), "split" (large 16-bit products with odd extents in parts), "rnn" (a recurrent step in one launch, 3: all
** steps), "cudnn", "cusolver", "cufft" (0: never, 1: where it pays; the last five 2: wherever it can).
** Of the CPU, for tests: "fill", a byte that all memory of any device is set to when it is handed out (0: left as it is).
** value < 0 only asks. Gives the value it had; <0: error. */
AMP_API int amp_device_set(amp_state *S, int device, const char *name, int value);
/* What a device type uses, "cublas", "cudnn" and so on: its version, or why it is not there. Static. */
AMP_API const char *amp_device_library(int device, const char *name);

/* 1: runs repeat bit by bit on every device, in the whole process; 0: where it costs speed they need not; <0: only asks.
** Gives what it was. In force for devices that are found later, too. */
AMP_API int amp_use_deterministic(int on);
/* Bytes of a device (index from 0) that nobody holds, and all it has, as its driver says. */
AMP_API int amp_device_memory(amp_state *S, int device, int index, int64_t *free_bytes, int64_t *total);

/* -- Pinned memory and streams -------------------------------------------- */
/* A device has up to 16 streams, 0 being the one it starts with. A thread's ops go to the stream it uses (of each device);
** work of one stream is done in order, of different ones in any order that events leave. Memory needs no care: what a
** stream still works on is not given to another. None of these may be called while a step is captured. */

/* A copy of a CPU tensor in pinned memory, without history; where there is no GPU, another handle of a itself. */
AMP_API int amp_pin_memory(amp_state *S, amp_ref *out, const amp_ref *a);
/* A CPU tensor in pinned memory (ordinary one without a GPU), not filled. */
AMP_API int amp_empty_pinned(amp_state *S, amp_ref *out, int ndim, const int64_t *size, int dtype);
/* 1: the tensor lies in pinned memory. */
AMP_API int amp_is_pinned(const amp_ref *a);
/* dst:copy_(src), which between a device and pinned memory is queued only: wait (for the stream, or an event after it)
** before the host's side is written, or read. Between others it is an ordinary copy. */
AMP_API int amp_copy_async(amp_state *S, const amp_ref *dst, const amp_ref *src);
/* A copy of a on another device in the same way; to the CPU it lies in pinned memory. */
AMP_API int amp_to_async(amp_state *S, amp_ref *out, const amp_ref *a, int device, int index);

/* A stream's number, from 1; the sixteenth call for a device gives the first again. <0: error. */
AMP_API int amp_stream_new(amp_state *S, int device, int index);
/* The stream that this thread's work on a device goes to from now on (<0: only asks); gives the one before. */
AMP_API int amp_stream_use(amp_state *S, int device, int index, int stream);
/* What stream `next` gets from now on comes after all that `first` has been given; does not wait. <0: this thread's. */
AMP_API int amp_stream_follow(amp_state *S, int device, int index, int next, int first);
/* 1: a stream has done all it was given; 0: not yet; <0: error. */
AMP_API int amp_stream_query(amp_state *S, int device, int index, int stream);
/* Waits until it has. */
AMP_API int amp_stream_synchronize(amp_state *S, int device, int index, int stream);

typedef struct amp_event amp_event;
/* A mark that can be set into streams of a device, the caller's; timing: amp_event_elapsed can read it. NULL: error. */
AMP_API amp_event *amp_event_new(amp_state *S, int device, int index, int timing);
/* Frees it, also while streams wait for it. NULL is harmless. */
AMP_API void amp_event_free(amp_event *e);
/* Sets it behind what a stream has been given so far. */
AMP_API int amp_event_record(amp_state *S, amp_event *e, int stream);
/* What a stream (of any device) is given from now on comes after the mark; the host does not wait. An event that was
** never recorded is reached. */
AMP_API int amp_event_wait(amp_state *S, amp_event *e, int index, int stream);
/* 1: it has been reached; 0: not yet; <0: error. */
AMP_API int amp_event_query(amp_state *S, amp_event *e);
/* Waits until it has been. */
AMP_API int amp_event_synchronize(amp_state *S, amp_event *e);
/* Milliseconds of the device between two events that were made with timing and have been reached. */
AMP_API int amp_event_elapsed(amp_state *S, amp_event *from, amp_event *to, double *ms);

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

/* Switches observing S on, by enum amp_observe_flag; 0: off, -1: a pause. The same observer at every call, S's; NULL:
** no memory. */
AMP_API amp_observer *amp_observe(amp_state *S, int flags);
/* The newest node recorded: those up to it are older than what comes. */
AMP_API int64_t amp_observe_node(amp_state *S);

/* -- Prompts -------------------------------------------------------------- */
/* For programs with a prompt; of the process, which has one terminal. Handlers only set fields of amp_tty. */

enum amp_tty_mode {
  AMP_TTY_OFF,   /* SIGINT does what it did before */
  AMP_TTY_NOTE,  /* it is counted */
  AMP_TTY_STOP,  /* S's next op fails with AMP_E_INTERRUPTED, too; the third one ends the process */
  AMP_TTY_HOST   /* the same, and what handled it before is called; the second one ends the process */
};

typedef struct amp_tty { int32_t interrupts, resized, resumed; } amp_tty; /* rw: readers clear what they saw */

/* Takes SIGINT over, by enum amp_tty_mode, for S (which may be NULL). Gives the process's amp_tty; NULL: no such
** mode. */
AMP_API amp_tty *amp_tty_watch(amp_state *S, int mode);
/* Standard input key by key with pastes in brackets, or as it was; signals that end or stop the process put it back.
** -1: no terminal. */
AMP_API int amp_tty_raw(int on);
/* Bytes of standard input; 0: none within `seconds` (<0: waits), -1: end or error, -2: a signal came. */
AMP_API int amp_tty_read(char *buffer, int n, double seconds);
/* 1: the file descriptor is a terminal. */
AMP_API int amp_tty_is(int fd);
/* Rows and columns of standard output's terminal; -1: it is none. */
AMP_API int amp_tty_size(int *rows, int *columns);

/* -- Files ---------------------------------------------------------------- */

/* The CRC-32 of n bytes, going on from `crc`; start with 0. */
AMP_API uint32_t amp_crc32(uint32_t crc, const void *data, size_t n);

enum amp_file_kinds { AMP_FILE_NONE, AMP_FILE_REGULAR, AMP_FILE_FOLDER, AMP_FILE_LINK, AMP_FILE_PIPE, AMP_FILE_SOCKET, AMP_FILE_DEVICE };

/* What a path names (enum amp_file_kinds), with follow != 0 behind links, and its permission bits, where `mode` is not
** NULL; less than 0: the system's error, negative. */
AMP_API int amp_file_kind(const char *path, int follow, uint32_t *mode);
/* 1: there is a process of that number; 0: there is none. */
AMP_API int amp_file_alive(int process);
/* Opens a regular file for reading, never waiting: gives its descriptor, which is the caller's to close, and its size.
** AMP_E_ARGUMENT: why not. */
AMP_API int amp_file_open(amp_state *S, const char *path, int64_t *size);
/* Reads n bytes from byte `at` on; AMP_E_VALUE where there are fewer. */
AMP_API int amp_file_read(amp_state *S, int fd, void *to, int64_t n, int64_t at);
/* A CPU tensor of the elements that stand in a file from byte `at` on, in C order; swap != 0: in the other byte order.
** crc, where it is not NULL, goes on over the file's bytes. */
AMP_API int amp_from_file(amp_state *S, amp_ref *out, int fd, int64_t at, int ndim, const int64_t *size, int dtype, int swap, uint32_t *crc);

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
