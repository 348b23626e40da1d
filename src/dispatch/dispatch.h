/*
** dispatch/dispatch.h: the call record that travels from check to kernel to tape, and the
** one way any op runs.
**
**   amp_op2 -> amp__dispatch: check -> autocast -> shape rule -> outputs
**           -> kernel -> version bump -> record (amp_node)
*/
#ifndef AMP_DISPATCH_DISPATCH_H
#define AMP_DISPATCH_DISPATCH_H
#include "tensor/tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { AMP_MAX_LIST = 1000000 }; /* arguments of an op that takes a list, or of a function of Lua */

struct amp_call {
  const amp_op_desc *op;
  int id;
  unsigned flags; /* AMP_INPLACE, AMP_OUT */
  int nin, nout;
  bool half_copy;   /* out[AMP_HALF_COPY] is one */
  bool done;        /* a region ran other rows in its place, which gave out[0] */
  uint32_t unsaved; /* bits as in the row's save: what this call's backward does without; set by the shape rule */
  amp_tensor **in;  /* borrowed; absent ones NULL */
  amp_tensor *out[AMP_MAX_OUT]; /* owned; set by dispatch before the kernel */
  amp_slot *attrs;              /* attributes, normalised in place by the shape rule */
  amp_meta meta[AMP_MAX_OUT];   /* filled by the shape rule, with nout */
  amp_tensor *in_store[AMP_MAX_IN];
  amp_slot attr_store[AMP_MAX_SLOT];
};

/* A view whose base may have changed: its flags are brought up to date. */
static inline void amp__refresh(amp_tensor *tensor)
{
  if (amp_unlikely((tensor->flags & AMP_T_VIEW) && tensor->ag)) amp__hooks.view_refresh(tensor);
}

/* Between begin and end ops do not autocast, and record only where that is said. */
typedef struct amp__plain {
  amp_state *state;
  int32_t grad_mode, autocast_on; /* as they were */
} amp__plain;
static inline amp__plain amp__plain_record(amp_state *state, int32_t grad_mode)
{
  amp__plain before = { state, state->grad_mode, state->autocast_on };
  state->grad_mode = grad_mode;
  state->autocast_on = 0;
  return before;
}
static inline amp__plain amp__plain_begin(void) { return amp__plain_record(amp__S, 0); }
static inline void amp__plain_end(amp__plain before)
{
  before.state->grad_mode = before.grad_mode;
  before.state->autocast_on = before.autocast_on;
}

/* The one way any op runs. in: nin tensors (absent: NULL). out: up to AMP_MAX_OUT results, owned by the
** caller; with AMP_OUT out[0] is given; with AMP_INPLACE the result is in[0] and out is not touched.
** attrs NULL: defaults. */
int amp__dispatch(int op, unsigned flags, amp_tensor *const *inputs, int nin, amp_tensor **out, const amp_slot *attrs);
int amp__dispatch_op(int op, unsigned flags, amp_tensor *const *inputs, int nin, amp_tensor **out,
                     const amp_slot *attrs);    /* not observed */
amp_tensor *amp__raw_clone(amp_tensor *tensor); /* a copy without history */
int amp__whole(
    uint32_t lost,
    int status); /* status of a formula before which that many parts were lost; an error if it lost one and went on */

/* in[i] has a dtype that its row does not name (dispatch/operand_dtype.c): 0 where it may have it */
int amp__other_dtype(const amp_call *call, int i);

/* Helpers for shape rules (dispatch/shape_rules.c) */
int amp__norm_dim(amp_slot *s, int ndim, const char *what);   /* 1-based -> from 0, with error */
int amp__norm_dims(amp_slot *list, int ndim, uint32_t *mask); /* a D attribute in place; absent: all */
void amp__out(amp_call *call, int i, int dtype, int ndim, const int64_t *size); /* meta[i], device of in[0] */
int amp__broadcast(amp_call *call, int count, int *ndim,
                   int64_t *size); /* of the first `count` inputs that are there */
int amp__result_dtype(const amp_call *call, int first,
                      int count); /* promotion of `count` inputs from first on; numbers are weak */
/* Helpers for views (ops/layout/view.c) */
int amp__view_shape(const amp_tensor *tensor, amp_slot *shape,
                    int64_t *size); /* an I attribute with at most one -1, filled in */

#ifdef __cplusplus
}
#endif
#endif
