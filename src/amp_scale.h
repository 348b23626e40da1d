/*
** amp_scale.h: what loss scaling (amp_scale.c, amp_check.c), clipping (amp_clip.c) and the
** optimizer step (amp_optim.c, amp_arena.c) offer each other: device cells, the
** pending factor of a gradient, a plain mode in which ops neither record nor
** autocast, and the CPU's kernels (cpu/cpu_scale.c, cpu/cpu_optim.c).
*/
#ifndef AMP_SCALE_H
#define AMP_SCALE_H
#include "amp_core.h"

enum { AMP_MAX_PLACES = 17 }; /* the CPU and 16 cards */

struct amp_scaler {
  _Atomic int32_t refs;
  amp_scaler_options o;
  uint32_t epoch;                 /* updates so far: the iteration */
  uint32_t serial;                /* of the scale as it is */
  double scale0, tracker0, hyst0; /* until the cells are there */
  amp_tensor *scale, *inv, *tracker, *hyst; /* 0-d, on the home device; NULL: not yet */
  bool fixed;                     /* they keep their addresses: a captured step uses them, or they are the CPU's. Else scale and inv are new ones after each update */
  int nplace;
  struct { uint8_t device, index; amp_tensor *scale, *inv; } place[AMP_MAX_PLACES]; /* copies elsewhere */
  int ndone, capdone;
  struct amp__done { amp_tensor *t; uint32_t version; } *done; /* what this iteration multiplied in place, counted */
};

struct amp_check {
  _Atomic int32_t refs;
  amp_scaler *s;
  uint32_t epoch; /* of s when made */
  bool raw;       /* looked at gradients without unscaling them first */
  bool drop;      /* on overflow the user sees no gradients */
  bool mixed;     /* something other than late's gradients was looked at */
  bool due;       /* found does not tell of late's gradients yet: the step that comes looks by itself */
  int nlate, late_place;
  struct amp__late { amp_tensor *t; uint32_t version; } *late; /* counted; not due: that step has looked, and an update may look again */
  uint8_t told;   /* what a wait for other devices' cells said, until another gradient is looked at */
  int nplace;
  struct { uint8_t device, index; uint32_t serial; amp_tensor *inv, *found; } place[AMP_MAX_PLACES]; /* serial: of inv's scale */
  amp_tensor *other, *other_inv; /* the last scale of others that gradients carried, and 1 over it */
};

/* Bits of amp_check_grads' last argument, see amp.h. */
enum { AMP_UNSCALE = 1, AMP_UNSCALE_HALF = 2, AMP_CHECK_DROP = 4, AMP_CHECK_RAW = 8, AMP_CHECK_SOON = 16 };

/* Ops between begin and end neither record nor autocast. */
typedef struct amp__plain { int32_t grad_mode, autocast_on; } amp__plain;
amp__plain amp__plain_begin(void);
void amp__plain_end(amp__plain p);

amp_tensor *amp__cell(int dtype, int device, int index, double value);  /* 0-d, float32 or float64 */
amp_tensor *amp__cell_copy(amp_tensor *cell, int device, int index);    /* its own memory, maybe elsewhere */
amp_tensor *amp__cell_zero(int device, int index);                      /* float32, 0; maybe part of a longer tensor */
int amp__cell_read(amp_tensor *cell, double *v);                        /* waits for a device; the caller counts it */
int amp__scaler_cells(amp_scaler *s, int device, int index, amp_tensor **scale, amp_tensor **inv); /* of a device, borrowed */
/* Which scale s has now, where a device is asked that may have gone on by replays: none that another one is. */
uint32_t amp__scaler_serial(const amp_scaler *s, int device);
uint32_t amp__scale_serial(void);       /* a new one */
void amp__scale_known(double v);        /* a number that is a scale: a loss times it is scaled by hand */
bool amp__same_scale(const amp_tensor *a, const amp_tensor *b); /* for sure, without a wait */
bool amp__scale_is(const amp_tensor *scale, uint32_t serial);
amp_tensor *amp__scale_inverse(amp_tensor *scale, const amp_tensor *t); /* 1 over it as a cell where t is, counted */
amp_tensor *amp__grad_scale(const amp_grad *g);                 /* the one that g carries, borrowed; NULL: none that is known */
void amp__grad_scale_put(amp_grad *g, amp_tensor *scale);       /* it carries that one */
int amp__grad_rescale(amp_tensor *leaf, amp_tensor *to);        /* a gradient that carries another scale is brought to this one */
/* A leaf's gradient record, NULL: no gradient. */
static inline amp_grad *amp__grad_of(const amp_tensor *leaf) { return leaf && leaf->ag && leaf->ag->grad.value ? &leaf->ag->grad : NULL; }
/* Multiplied at once where a pending factor would not do: the user holds the tensor, or it is float64. */
static inline bool amp__grad_at_once(const amp_grad *g) { return g->visible || g->value->dtype == AMP_FLOAT64; }
bool amp__same_place(const amp_tensor *a, const amp_tensor *b); /* the same elements in the same order */
/* Gradients that partly lie in one another get memory of their own, as each element is to be multiplied once. */
int amp__grads_part(amp_tensor *const *leaf, int n);
/* Leave *c pending on g. m keeps the last product of two factors: most gradients share theirs. */
typedef struct amp__product { amp_tensor *a, *c, *ac; } amp__product;
amp_tensor *amp__factor_times(amp__product *m, amp_tensor *factor, amp_tensor *c); /* factor * c as a cell, counted */
int amp__grad_pend(amp_grad *g, amp_tensor *c, amp__product *m);
void amp__product_end(amp__product *m);
void amp__scaler_forget(amp_scaler *s); /* the iteration is over: nothing is unscaled (amp_check.c) */
/* A step looks at k's late gradients by itself: may it (the i-th of n has gradient g)? It has. It does not: they are looked at now. */
bool amp__check_late(const amp_check *k, int i, int n, const amp_tensor *g);
void amp__check_looked(amp_check *k);
int amp__check_settle(amp_check *k);
/* Would a look at the late gradients, on this device, still say what k's found-inf cell says? They are needed no more. */
bool amp__check_again_looks(const amp_check *k, int device, int index);
void amp__check_forget(amp_check *k);
/* A checked gradient that changed since: check it anew under *fresh (made at need, counted). */
int amp__check_again(amp_tensor *leaf, amp_check **fresh);

int amp__cpu_optim_step(int kind, const amp_hyper *h, const amp_hyper *there, amp_optim_chunk *chunks, int n, const float *const *found, int nfound);
int amp__cpu_check_scale(amp_tensor *t, const float *inv, float *found);
int amp__cpu_scale_update(const float *scale, const float *inv, float *scale_to, float *inv_to, double *tracker, double *hyst, const float *const *found, int nfound, amp_tensor *const *look, int nlook, const amp_scaler_options *o);
double amp__cpu_norm_part(const amp_tensor *t, double p); /* sum of |t|^p; p infinite: the largest |t|; NaN if one is */

#endif
