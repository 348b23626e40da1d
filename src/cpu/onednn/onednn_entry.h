/*
** onednn_entry.h: primitives that a thread keeps. One is found by its key, numbers that
** say what is multiplied and how operands lie, or made; then it runs on pointers.
*/
#ifndef AMP_ONEDNN_ENTRY_H
#define AMP_ONEDNN_ENTRY_H
#include <pthread.h>
#include <signal.h>
#include "base/device.h"
#include "onednn.h"

enum { DNN_SLOTS = 256, DNN_KEY = 48, DNN_OPERANDS = 5 };

/* How an operand gets into the primitive's layout, or out of it */
enum dnn_how { DNN_AS_IT_LIES, DNN_REORDER, DNN_LAYOUT, DNN_FINISH };

typedef struct dnn_operand {
  dnnl_memory_t user, own; /* own: as the primitive wants it; the same as user if it takes it as it lies */
  dnnl_primitive_t reorder;
  dnn_layout layout;         /* DNN_LAYOUT, DNN_FINISH */
  size_t bytes;              /* of own, if it is another */
  bool out, last, bias_half; /* DNN_FINISH: the result has channels last; the bias's dtype */
  int arg, how;
} dnn_operand;

typedef struct dnn_entry {
  int64_t key[DNN_KEY];
  dnnl_primitive_t prim; /* NULL: oneDNN can't, remembered */
  dnnl_memory_t scratch;
  size_t scratch_bytes;
  bool ran, lends_stack; /* it may run what dnn_hold_signals is for: oneDNN's general products */
  int count, threads;
  int place[DNN_OPERANDS]; /* of each operand's data */
  dnn_operand operand[DNN_OPERANDS];
  struct dnn_entry *next;
} dnn_entry;

typedef struct dnn_cache {
  dnn_entry *slot[DNN_SLOTS];
  int count;
  char *mem;
  size_t bytes;
} dnn_cache;

extern amp_kernel_fn dnn_plain[AMP_OP_COUNT]; /* the kernels from before, for what oneDNN can't do */
extern int (*dnn_core_threads)(int64_t work);
extern const amp_core_api *dnn_core;
extern dnnl_engine_t dnn_engine;
extern pthread_mutex_t dnn_shared; /* what oneDNN keeps for all threads */

bool dnn_entries_start(void); /* once; false: no thread key is left */
dnn_cache *dnn_table(void);   /* the thread's; NULL: no memory */
/* A key's first word is its length. */
size_t dnn_hash(const int64_t *key);
dnn_entry *dnn_find(dnn_cache *cache, const int64_t *key, size_t hash);
dnn_entry *dnn_add(dnn_cache *cache, const int64_t *key, size_t hash);
void dnn_entry_empty(dnn_entry *entry); /* of its primitive, so that it can be filled anew */
/* Fill entry for the problem, whose descriptors say what the primitive may choose; user: how the tensors really
** lie, which are src and dst (of a convolution, else NULL). finish: a bias that the primitive does not take. */
void dnn_build(dnn_entry *entry, const dnn_problem *problem, const dnn_problem *user, const amp_tensor *src,
               const amp_tensor *dst, const amp_tensor *finish);
/* data: src, weight, dst, bias, what is added (the last two may be missing). offer: of a graph's run, or NULL.
** false: not done, nothing written that counts. */
bool dnn_run(dnn_cache *cache, dnn_entry *entry, void *const *data, amp_offer *offer);
/* The offer made to a product with this weight, to be used by one kernel; NULL: none */
amp_offer *dnn_offer(const amp_tensor *weight);
void dnn_problem_free(dnn_problem *problem);

/* For so many floating-point operations, of which a core does some 32 in the time of a simple one */
int dnn_threads_for(double flop);
/* oneDNN takes the OpenMP runtime's number, when making a primitive as when running it. Gives the one before. */
int dnn_use_threads(int count);

/* Around what runs in oneDNN on so many threads. Before 3.12 its products in float32 on x86 let the stack pointer point
** into the heap, and the frame of a signal's handler would overwrite what lies there: until then signals wait, in the
** calling thread as in the team's. */
void dnn_hold_signals(int threads, sigset_t *before);
void dnn_release_signals(const sigset_t *before);

/* of float32 and bfloat16 tensors, the only ones here */
static inline void *dnn_data(const amp_tensor *tensor)
{
  return (char *)tensor->storage->data + tensor->offset * (tensor->dtype == AMP_FLOAT32 ? 4 : 2);
}
static inline int dnn_type(const amp_tensor *tensor)
{
  return tensor->dtype == AMP_FLOAT32 ? (int)dnnl_f32 : tensor->dtype == AMP_BFLOAT16 ? (int)dnnl_bf16 : -1;
}

int dnn_linear(amp_call *call);
int dnn_matmul(amp_call *call);
int dnn_convolution(amp_call *call);
int dnn_convolution_input(amp_call *call);
int dnn_convolution_weight(amp_call *call);

#endif
