/*
** amp_optim.h: what amp_optim.c, amp_optim_state.c and amp_arena.c share.
*/
#ifndef AMP_OPTIM_H
#define AMP_OPTIM_H
#include "amp_scale.h"

enum { AMP_OPTIM_STATES = 3 };

typedef struct amp__param {
  amp_tensor *t;                       /* counted */
  amp_tensor *steps;                   /* float64 [2] beside t: updates so far; updates of the momentum. NULL: none */
  amp_tensor *state[AMP_OPTIM_STATES]; /* t's shape and layout (C order where t has gaps); NULL: none yet */
  double told[2];                      /* what steps holds, while the optimizer's `told` is on */
  uint8_t placed;                      /* the arena has looked at it */
  uint8_t shared;                      /* another parameter lies in the same storage */
} amp__param;

typedef struct amp__group { int n; amp__param *p; } amp__group;

struct amp_optim {
  int kind, ngroup;
  amp__group *group;
  bool told;         /* step counts were read (amp_optim_look), and nothing has stepped since */
  amp_check **guard; int nguard; /* what the next step looks at besides its gradients' checks, counted */
};

/* What t's state, or a copy of t to step on, looks like. */
void amp__optim_meta(const amp_tensor *t, int dtype, amp_meta *m);
static inline int amp__optim_dtype(const amp_tensor *t) { return t->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32; }
int amp__optim_zero(amp_tensor *t);
amp_tensor *amp__optim_as(amp_tensor *v, const amp_meta *m); /* v in the shape, dtype, device and layout of m: itself if it is so. Counted */
static inline int amp__optim_replace(amp_tensor **slot, amp_tensor *v)
{ /* takes v's count */
  if (!v) return amp__S->err.code;
  amp__free(*slot);
  *slot = v;
  return 0;
}

/* Move what these n parameters own into common blocks, with zeroed states for the bits of `need` that are
** missing. What does not fit in is left as it is; no memory for a block is no error. */
int amp__arena_join(amp__param *const *p, int n, unsigned need);

#endif
