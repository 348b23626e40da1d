/*
** precision/scale.h: what loss scaling (precision/scale.c, precision/check.c), clipping (precision/clip.c) and the
** optimizer step (optim/optim.c, optim/arena.c) offer each other: device cells, the
** pending factor of a gradient, a plain mode in which ops neither record nor
** autocast, and the CPU's kernels (precision/scale_cpu.c, optim/step_cpu.c).
*/
#ifndef AMP_SCALE_H
#define AMP_SCALE_H
#include "autograd/gradient.h"
#include "precision/precision.h"

void amp__check_install(void); /* puts its functions into amp__hooks */

enum { AMP_MAX_PLACES = 17 }; /* the CPU and 16 cards */

struct amp_scaler {
  _Atomic int32_t refs;
  amp_scaler_options options;
  uint32_t epoch;                           /* updates so far: the iteration */
  uint32_t serial;                          /* of the scale as it is */
  double scale0, tracker0, hyst0;           /* until the cells are there */
  amp_tensor *scale, *inv, *tracker, *hyst; /* 0-d, on the home device; NULL: not yet */
  bool fixed; /* they keep their addresses: a captured step uses them, or they are the CPU's. Else scale and inv are new
                 ones after each update */
  int nplace;
  struct {
    uint8_t device, index;
    amp_tensor *scale, *inv;
  } place[AMP_MAX_PLACES]; /* copies elsewhere */
  int ndone, capdone;
  struct amp__done {
    amp_tensor *tensor;
    uint32_t version;
  } * done; /* what this iteration multiplied in place, counted */
};

enum amp_found { AMP_FOUND_UNKNOWN, AMP_FOUND_NO, AMP_FOUND_YES };
struct amp_check {
  _Atomic int32_t refs;
  amp_scaler *scaler;
  uint32_t epoch;     /* of the scaler when made */
  bool raw;           /* looked at gradients without unscaling them first */
  bool drop;          /* on overflow the user sees no gradients */
  bool mixed;         /* something other than the pending gradients was looked at */
  bool pending_check; /* found does not know of the pending gradients yet: the step that comes looks by itself */
  int npending, pending_place;
  struct amp__pending_gradient {
    amp_tensor *tensor;
    uint32_t version;
  } * pending; /* counted; no pending_check: that step has looked, and an update may look again */
  uint8_t
      found_state; /* enum amp_found: what a wait for other devices' cells said, until another gradient is looked at */
  int nplace;
  struct {
    uint8_t device, index;
    uint32_t serial;
    amp_tensor *inv, *found;
  } place[AMP_MAX_PLACES];       /* serial: of inv's scale */
  amp_tensor *other, *other_inv; /* the last scale of others that gradients carried, and 1 over it */
};

int amp__scaler_cells(amp_scaler *scaler, int device, int index, amp_tensor **scale,
                      amp_tensor **inv); /* of a device, borrowed */
/* Which scale scaler has now, where a device is asked that may have gone on by replays: none that another one is. */
uint32_t amp__scaler_serial(const amp_scaler *scaler, int device);
/* Multiplied at once where a pending factor would not do: the user holds the tensor, or it is float64. */
static inline bool amp__grad_at_once(const amp_grad *grad)
{
  return grad->visible || grad->value->dtype == AMP_FLOAT64;
}
/* Gradients that partly lie in one another get memory of their own, as each element is to be multiplied once. */
int amp__grads_part(amp_tensor *const *leaf, int count);
/* Leave the factor c pending on grad. `factors` keeps the last product of two: most gradients share theirs. */
typedef struct amp__factor_product {
  amp_tensor *a, *c, *ac; /* counted: another tensor could have the address of one that is gone */
} amp__factor_product;
amp_tensor *amp__factor_times(amp__factor_product *factors, amp_tensor *factor,
                              amp_tensor *c); /* factor * c as a cell, counted */
int amp__grad_pend(amp_grad *grad, amp_tensor *c, amp__factor_product *factors);
void amp__factor_product_end(amp__factor_product *factors);
void amp__scaler_forget(amp_scaler *scaler); /* the iteration is over: nothing is unscaled (precision/check.c) */
/* A step looks at a check's pending gradients by itself: may it (the i-th of count has gradient g)? It has. It does
** not: they are looked at now. */
bool amp__check_pending(const amp_check *check, int i, int count, const amp_tensor *g);
void amp__check_looked(amp_check *check);
int amp__check_settle(amp_check *check);
/* Would a look at the pending gradients, on this device, still say what the check's found-inf cell says? They are
** needed no more. */
bool amp__check_again_looks(const amp_check *check, int device, int index);
void amp__check_forget(amp_check *check);
/* A checked gradient that changed since: check it anew under *fresh (made at need, counted). */
int amp__check_again(amp_tensor *leaf, amp_check **fresh);

int amp__cpu_optim_step(int kind, const amp_hyper *hyper, const amp_hyper *on_device, amp_optim_chunk *chunks,
                        int count, const float *const *found, int nfound);
int amp__cpu_check_scale(amp_tensor *tensor, const float *inv, float *found);
int amp__cpu_scale_update(const float *scale, const float *inv, float *scale_to, float *inv_to, double *tracker,
                          double *hyst, const float *const *found, int nfound, amp_tensor *const *look, int nlook,
                          const amp_scaler_options *options);
double amp__cpu_norm_part(const amp_tensor *tensor,
                          double p); /* sum of |tensor|^p; p infinite: the largest |tensor|; NaN if one is */

#endif
