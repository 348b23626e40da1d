/*
** base/hooks.h: what a room asks of the rooms above it. They put their functions here once
** (library/library.c), so that nothing below names them: what happens when a tensor dies,
** who listens to ops, what makes memory free again.
**
** The inline functions are the names by which the rooms below call. Slots are never NULL
** once a state exists.
*/
#ifndef AMP_BASE_HOOKS_H
#define AMP_BASE_HOOKS_H
#include "base/base.h"

typedef struct amp_storage amp_storage;
typedef struct amp_rebase {
  amp_node *node, *outer;
} amp_rebase; /* of an in-place op; autograd/tape.c knows what they are */
typedef struct amp_frame amp_frame;
typedef struct amp_bwd amp_bwd;

typedef struct amp_hooks {
  /* library/ */
  amp_state *(*thread_state)(void); /* of a thread that has used none: one that goes with it */
  /* distributed/ */
  const struct amp_collectives_core *collectives;       /* for engines */
  int (*collectives_played)(int index, double timeout); /* a captured step that talks was queued */
  /* dispatch/ */
  void (*plugins_abandon)(void); /* in a forked child: what is not loaded yet never is */
  /* autograd/ */
  void (*tensor_dies)(amp_tensor *tensor);   /* it has an autograd side, which goes with it */
  void (*data_replaced)(amp_tensor *tensor); /* it lies elsewhere now: copies of its old elements are void */
  void (*view_refresh)(
      amp_tensor *tensor);            /* a view (with an ag) whose base changed: its flags are brought up to date */
  int (*record_view)(amp_call *call); /* history and base of a view just made */
  int (*record_begin)(amp_call *call, amp_node **made); /* all of recording that can fail, before the kernel runs; */
  void (*record_end)(amp_call *call, amp_node *n, amp_tensor *half_copy,
                     bool done); /* what takes effect after it. half_copy: out[0] in 16 bits, taken, or NULL */
  int (*rebase_begin)(amp_call *call, amp_rebase *r); /* the same for an in-place op */
  void (*rebase_end)(amp_call *call, amp_rebase *r, bool done);
  amp_tensor *(*gradient_beside)(amp_node *n, const amp_tensor *first, const amp_tensor *g); /* ops/rnn/ */
  int (*journal_call)(const amp_call *call, const amp_tensor *receiver);
  /* precision/ */
  int (*memory_short)(int device); /* gives up what can be made anew: how many tensors */
  int (*graphs_short)(int device); /* the same of what graphs keep */
  int (*autocast)(amp_call *call, amp_tensor **owned,
                  int *nowned); /* replaces inputs; owned ones are to be freed after the call */
  amp_tensor *(*cast_kept)(amp_tensor *tensor,
                           int dtype);      /* recorded; a weight's low copy is kept, as regions keep it */
  void (*float8_stepped)(amp_tensor *leaf); /* an optimizer has changed a weight that has a layer of 8 bits */
  void (*float8_free)(amp_ag *ag);          /* a weight dies, of which 8-bit regions kept something */
  void (*check_free)(amp_check *check);     /* drops one count */
  bool (*grad_dropped)(
      amp_tensor *leaf,
      bool wait); /* the gradient's check found an overflow and hides it; wait: devices are asked, too */
  int (*grad_drop_there)(amp_tensor *leaf); /* on a device, without a wait: 0 in place of what an overflow hides */
  /* capture/ */
  void (*capture_bump)(amp_storage *storage);
  void (*capture_note)(const amp_tensor *tensor);
  void (*capture_gradient)(amp_tensor *leaf, bool clear);
  void (*capture_shadow)(amp_tensor *leaf);
  const amp_hyper *(*capture_hyper)(const amp_optim *optim, int group, int ngroup);
  bool (*capture_made)(const amp_tensor *tensor);
  void (*capture_scale)(amp_scaler *scaler, amp_tensor *cell);
  void (*capture_talks)(double timeout); /* the step being captured has a call to other ranks */
  /* observe/ */
  bool (*observe_begin)(amp_frame *frame, int op, int flags, int64_t node);
  void (*observe_end)(amp_frame *frame, int status);
  int (*observe_op)(int op, unsigned flags, amp_tensor *const *inputs, int nin, amp_tensor **out,
                    const amp_slot *attrs);
  bool (*observe_each)(void);
  void (*observe_gradients)(const amp_bwd *bwd);
  void (*observe_step)(const void *optimizer);
  /* graph/ */
  int (*trace_op)(int op, unsigned flags, amp_tensor *const *in, int nin, amp_tensor **out, const amp_slot *attrs);
  int (*trace_detach)(amp_tensor *from, amp_tensor *to);
  int (*trace_refuse)(const char *what, const amp_tensor *t);
} amp_hooks;
extern amp_hooks amp__hooks;

/* -- Captured steps and journals: for those alone who find amp__capturing set ------------ */

extern int amp__capturing;              /* some state captures, or has a journal open */
extern AMP_ATOMIC(uint32_t) amp__epoch; /* of journals: storages made now are of it */
static inline void amp__capture_bump(amp_storage *storage)
{
  amp__hooks.capture_bump(storage);
} /* a replay changes it */
static inline void amp__capture_note(const amp_tensor *tensor)
{
  amp__hooks.capture_note(tensor);
} /* a replay finds it where it is now (NULL is fine) */
static inline void amp__capture_gradient(amp_tensor *leaf, bool clear)
{
  amp__hooks.capture_gradient(leaf, clear);
} /* before a leaf's gradient changes, or goes */
static inline void amp__capture_shadow(amp_tensor *leaf)
{
  amp__hooks.capture_shadow(leaf);
} /* its low-precision copy is read */
/* Where a replay finds hyper-parameters; NULL: not this state's, or error */
static inline const amp_hyper *amp__capture_hyper(const amp_optim *optim, int group, int ngroup)
{
  return amp__hooks.capture_hyper(optim, group, ngroup);
}
static inline bool amp__capture_made(const amp_tensor *tensor)
{
  return amp__hooks.capture_made(tensor);
} /* this state captures nothing, or the tensor was made since it does */
/* A captured step multiplies by `cell`, which holds the scaler's scale; NULL: it updates the scaler */
static inline void amp__capture_scale(amp_scaler *scaler, amp_tensor *cell) { amp__hooks.capture_scale(scaler, cell); }
static inline bool amp__capture_here(void) { return amp__S && amp__S->priv->capture != NULL; } /* it is this state */

/* -- Spans of the observer ------------------------------------------------------------------- */

static inline bool amp__observing(void) { return (amp__S->interrupt & AMP_I_OBSERVE) != 0; }
static inline bool amp__observe_begin(amp_frame *frame, int op, int flags, int64_t node)
{
  return amp__hooks.observe_begin(frame, op, flags, node);
} /* false: leave the frame alone */
static inline void amp__observe_end(amp_frame *frame, int status) { amp__hooks.observe_end(frame, status); }
static inline void amp__observe_step(const void *optimizer) { amp__hooks.observe_step(optimizer); }
static inline void amp__observe_gradients(const amp_bwd *bwd)
{
  amp__hooks.observe_gradients(bwd);
} /* a derivative's results, before they are sent on */
static inline bool amp__observe_each(void) { return amp__hooks.observe_each(); }

/* -- Graphs that are recorded ---------------------------------------------------------------- */

static inline bool amp__tracing(void) { return (amp__S->interrupt & AMP_I_TRACE) != 0; }
/* What a graph can't hold: an error where S records one. Of a tensor: where the graph made it, or was given it. */
static inline int amp__trace_refuse(const char *what, const amp_tensor *t)
{
  return amp_unlikely(amp__tracing()) ? amp__hooks.trace_refuse(what, t) : 0;
}

struct amp_frame { /* an open span, on the C stack */
  amp_frame *outer;
  double began, inside; /* inner spans' time */
  int64_t bytes, node;
  int32_t op, flags, depth, operands;
};

#endif
