/*
** base/base.h: the ground: the state of a caller, errors, dtypes. It includes nothing
** of the rooms above it; what they hold in a state they declare themselves.
**
** Errors: a function returns amp__fail(...) (negative) or NULL after it; the text
** goes to the current state's err, nowhere else.
*/
#ifndef AMP_BASE_BASE_H
#define AMP_BASE_BASE_H
#include <pthread.h>
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
#define AMP_ASSUME(x) AMP_ASSERT(x)
void amp__assert_failed(const char *what, const char *file, int line) __attribute__((noreturn));
#else
#define AMP_ASSERT(x) ((void)0)
#define AMP_ASSUME(x) ((x) ? (void)0 : __builtin_unreachable()) /* of a switch over all of an enum: no other value */
#endif
#define AMP_PRINTF(a, b) __attribute__((format(printf, a, b)))
#ifdef AMP_BRINGUP
#define AMP_SLOTFN __attribute__((weak))
#else
#define AMP_SLOTFN
#endif

/* A variable of a thread at a known distance from the thread's own address: a look at it costs no call. glibc keeps
** room for it in libraries that are opened at run time; musl refuses to open them. */
#ifdef __GLIBC__
#define AMP_TLS_NEAR __attribute__((tls_model("initial-exec")))
#else
#define AMP_TLS_NEAR
#endif

/* -- State and errors (base/state.c) --------------------------------------- */

/* The state of the call in progress; set by every public function. */
extern AMP_ATOMIC(int) amp__states; /* how many there are */
extern AMP_THREAD amp_state *amp__S AMP_TLS_NEAR;
#define AMP_ENTER(S) (amp__S = (S))

typedef struct amp_ag amp_ag;
typedef struct amp_node amp_node;
typedef struct amp_call amp_call;
enum { AMP_KNOWN_SCALES = 8 };
#define AMP_LINKS 96
typedef struct amp_link {
  const uint64_t *at;
  uint64_t is;
} amp_link;

/* What a graph's run offers the kernel of a product that it calls: the kernel may keep the weight as it likes it, and
** add what is added after it (graph/product.c). */
typedef struct amp_offer {
  const amp_tensor *weight; /* the product's: a kernel that reads another one leaves the offer alone */
  amp_tensor *packed;       /* a kernel's own form of the weight, bytes; NULL: none yet. The run has its count. */
  uint64_t form;            /* the kernel's word for this form */
  const amp_tensor *added;  /* what is added to the result after it, NULL: nothing */
  bool done;                /* the kernel has added it */
} amp_offer;

struct amp_state_private {
  const char *op;    /* outermost op being dispatched, for messages */
  amp_tensor **pool; /* autorelease pool (dispatch/op_builder.h) */
  int npool, cap_pool;
  uint32_t lost;   /* parts of formulas that memory was missing for, so far */
  amp_ag *shadows; /* leaves with a shadow no optimizer owns */
  char **log;      /* verbose lines not fetched yet */
  int nlog, caplog;
  int64_t region_epoch; /* number of the outermost region */
  bool passing;         /* a shadow of exposed storage was made: it goes with the region */
  int32_t ids;          /* whose list gets ids of what is gone (base/ids.c) */
  char text[16][224];   /* ring of amp__shape_str; no thread-local array: dlopen has little static TLS */
  unsigned text_next;
  struct amp_capture *capture; /* being captured, NULL: nothing is */
  struct amp_journal *journal; /* the innermost that is open, NULL: none is */
  amp_tensor *one;             /* what a backward on a device begins with, read only (autograd/gradient.c), counted */
  amp_tensor *zeros;           /* cells of a device that hold 0 (dispatch/cell.c), counted */
  int32_t zeros_used, one_stream, zeros_stream;
  uint32_t one_version;
  /* enum amp_origin of what a running backward adds to leaves, and of gradients that begin one inside it */
  uint8_t origin;
  double known_scale[AMP_KNOWN_SCALES]; /* loss scales that were told or read as numbers, the last ones; 0: none */
  uint32_t known_next;
  amp_tensor *scale[3];     /* those that the running backwards have met (autograd/gradient_origin.c), counted */
  int32_t backwards;        /* how many run, one in another */
  amp_link link[AMP_LINKS]; /* words by which the resumers of a coroutine are known (base/running.c) */
  int links;
  uint64_t linked;         /* the coroutine that they are of */
  bool async;              /* the copy being made may go on when the call has returned */
  struct amp_trace *trace; /* of a graph, NULL: nothing is recorded (graph/trace.c) */
  amp_offer *offer;        /* of the node that runs, NULL: none */
  int64_t float8_step;     /* the region that a recomputation belongs to, 0: the one that runs */
  int64_t float8_casts;    /* to 8 bits, of all casts */
  bool float8_counts;      /* casts count what saturates and what becomes 0 */
  struct amp_watch *watch; /* observer's inside (observe/observe.c), NULL: never used */
};

void amp__tty_forget(const amp_state *state); /* terminal/tty.c: state goes, a signal must not find it */

/* Set the error and return `code`. The op's name is added by the reader. */
int amp__fail(int code, const char *fmt, ...) AMP_PRINTF(2, 3);
int amp__fail_arg(int code, int arg, const char *fmt, ...) AMP_PRINTF(3, 4); /* arg: place from 1 */
int amp__nomem(size_t bytes);                                                /* tensor/counters.c */
/* "2x3", "scalar"; a ring of buffers, valid for the next 16 calls */
const char *amp__shape_str(int ndim, const int64_t *size);
const char *amp__tensor_str(const amp_tensor *tensor); /* "float32 2x3 cpu" */
void amp__log(const char *fmt, ...) AMP_PRINTF(1, 2);  /* a line of verbose output */

/* -- dtypes (base/dtype.c) ------------------------------------------------- */

extern const uint8_t amp__dtype_size[AMP_DTYPE_COUNT];
static inline bool amp__is_float(int dtype) { return dtype <= AMP_BFLOAT16; }
static inline bool amp__is_float8(int dtype) { return dtype >= AMP_FLOAT8_E4M3; }
/* Has a place in history. A gradient of an 8-bit float is a float32: casts pass it through. */
static inline bool amp__has_gradient(int dtype) { return amp__is_float(dtype) || amp__is_float8(dtype); }
static inline int amp__gradient_dtype(int dtype) { return amp__is_float8(dtype) ? AMP_FLOAT32 : dtype; }
static inline bool amp__is_half(int dtype) { return dtype == AMP_FLOAT16 || dtype == AMP_BFLOAT16; }
static inline bool amp__is_int(int dtype) { return dtype >= AMP_INT64 && dtype <= AMP_UINT8; }
int amp__promote(int a, int b);       /* PyTorch's lattice, no weak numbers */
float amp__half_to_float(uint16_t h); /* scalar; bulk: cpu/convert.h */
uint16_t amp__float_to_half(float f); /* round to nearest even */
float amp__bf16_to_float(uint16_t h);
uint16_t amp__float_to_bf16(float f);
float amp__float8_to_float(uint8_t bits, int dtype);
/* To nearest even. saturate: what is too large and the infinities give the largest value, else NaN or, where the dtype
** has it, infinity. */
uint8_t amp__float_to_float8(float f, int dtype, bool saturate);
float amp__round_odd(double x);                  /* to float32 so that a later rounding to fewer bits is right */
double amp__value_get(const void *p, int dtype); /* one value */
/* Every NaN as the one NaN: LuaJIT takes others for values of its own, and would follow their bits. */
static inline double amp__one_nan(double v) { return amp_unlikely(v != v) ? (double)__builtin_nan("") : v; }
bool amp__value_put(void *p, int dtype, double v); /* false: it does not fit (NaN, range) an integer dtype */
bool amp__fits(double v, int dtype);               /* would amp__value_put take it? */

#ifdef __cplusplus
}
#endif
#endif
