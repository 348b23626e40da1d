/*
** optim/optim.h: what optim/optim.c, optim/optim_state.c and optim/arena.c share.
*/
#ifndef AMP_OPTIM_H
#define AMP_OPTIM_H
#include "precision/scale.h"

enum { AMP_OPTIM_STATES = 3 };

typedef struct amp__param {
  amp_tensor *tensor; /* counted */
  amp_tensor *steps;  /* float64 [2] beside tensor: updates so far; updates of the momentum. NULL: none */
  amp_tensor *state[AMP_OPTIM_STATES]; /* its shape and layout (C order where it has gaps); NULL: none yet */
  double known_steps[2];               /* what steps holds, while the optimizer's steps_known is on */
  uint8_t placed;                      /* the arena has looked at it */
  uint8_t shared;                      /* another parameter lies in the same storage */
} amp__param;

typedef struct amp__group {
  int count;
  amp__param *params;
} amp__group;

struct amp_optim {
  int kind, ngroup;
  amp__group *group;
  bool steps_known; /* step counts were read (amp_optim_look), and nothing has stepped since */
  amp_check **guard;
  int nguard; /* what the next step looks at besides its gradients' checks, counted */
};

/* What the tensor's state, or a copy of it to step on, looks like. */
void amp__optim_meta(const amp_tensor *tensor, int dtype, amp_meta *meta);
static inline int amp__optim_dtype(const amp_tensor *tensor)
{
  return tensor->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
}
bool amp__optim_lies_as(const amp_tensor *a, const amp_meta *meta); /* its elements are in meta's order */
void amp__optim_drop_guards(amp_optim *optim);
static inline bool amp__optim_has_grad(const amp__param *param)
{
  return param->tensor->ag && param->tensor->ag->grad.value;
}
int amp__optim_zero(amp_tensor *tensor);
amp_tensor *amp__optim_as(
    amp_tensor *value,
    const amp_meta *meta); /* value in the shape, dtype, device and layout of meta: itself if it is so. Counted */
static inline int amp__optim_replace(amp_tensor **slot, amp_tensor *value)
{ /* takes value's count */
  if (!value) return amp__S->err.code;
  amp__free(*slot);
  *slot = value;
  return 0;
}

/* Move what these `count` parameters own into common blocks, with zeroed states for the bits of `need` that are
** missing. What does not fit in is left as it is; no memory for a block is no error. */
int amp__arena_join(amp__param *const *p, int count, unsigned need);

#endif
