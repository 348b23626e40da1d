/*
** autograd/gradient.h: the gradients of leaves, and the loss scales that they carry (autograd/gradient_origin.c).
*/
#ifndef AMP_AUTOGRAD_GRADIENT_H
#define AMP_AUTOGRAD_GRADIENT_H
#include "autograd/autograd.h"
#include "dispatch/cell.h"

enum {
  AMP_ORIGIN_KEPT = AMP_O_PLAIN | AMP_O_SCALED | AMP_O_UNSCALED | AMP_O_HAND
}; /* of enum amp_origin: what a record keeps */

uint32_t amp__scale_serial(void); /* a new one */
void amp__scale_known(double v);  /* a number that is a scale: a loss times it is scaled by hand */
bool amp__same_scale(const amp_tensor *a, const amp_tensor *b); /* for sure, without a wait */
bool amp__scale_is(const amp_tensor *scale, uint32_t serial);
amp_tensor *amp__scale_inverse(amp_tensor *scale,
                               const amp_tensor *tensor); /* 1 over it as a cell where tensor is, counted */
amp_tensor *amp__grad_scale(const amp_grad *grad); /* the one that grad carries, borrowed; NULL: none that is known */
void amp__grad_scale_put(amp_grad *grad, amp_tensor *scale); /* it carries that one */
int amp__grad_rescale(amp_tensor *leaf,
                      amp_tensor *to); /* a gradient that carries another scale is brought to this one */
/* A leaf's gradient record, NULL: no gradient. */
static inline amp_grad *amp__grad_of(const amp_tensor *leaf)
{
  return leaf && leaf->ag && leaf->ag->grad.value ? &leaf->ag->grad : NULL;
}

#endif
