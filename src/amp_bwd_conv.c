/*
** amp_bwd_conv.c: derivatives of convolutions, im2col and col2im. Families are
** closed: convolution, convolution_input and convolution_weight are bilinear in
** their data and weights, and the derivative of each uses the two others;
** im2col and col2im are each other's.
*/
#include "amp_bwd.h"
#include "amp_conv.h"

/* -- Convolutions ------------------------------------------------------------------- */

static amp_tensor *conv(const amp_slot *a, amp_tensor *x, amp_tensor *w) {
  amp_tensor *in[3] = { x, w, NULL };
  amp_sl s = amp__sl();
  amp__sl_copy(&s, a, CONV_SLOTS);
  return amp__x(AMP_OP_convolution, &s, 3, in);
}

/* convolution_input or convolution_weight, the result having shape h */
static amp_tensor *back(int op, const amp_slot *a, const amp_shape *h, amp_tensor *g, amp_tensor *other, amp_tensor *sum) {
  amp_tensor *in[3] = { g, other, sum };
  amp_sl s = amp__sl();
  amp__sl_shape(&s, h);
  amp__sl_copy(&s, a, CONV_SLOTS);
  return amp__x(op, &s, op == AMP_OP_convolution_input ? 3 : 2, in);
}

/* The gradient of a bias: all but the channels summed */
static amp_tensor *bias(amp_bwd *b, amp_tensor *g) {
  if (g == NULL) return NULL;
  return amp__xto(b, 2, SHAPE(b, 2)->ndim > 1 ? g : amp__xsum(g, g->ndim - 1, (int[]){ 0, 2, 3, 4 }, false));
}

/* The gradient of a sum is one element seen everywhere: kernels are faster on a copy, and two of them read it. */
static amp_tensor *dense(amp_tensor *g) { return g && !(g->flags & AMP_T_DENSE) ? amp__xcontiguous(g) : g; }

int amp__bwd_convolution(amp_bwd *b) {
  int rc = 0;
  amp_tensor *g = dense(G(b));
  OR_FAIL(g);
  if (NEED(b, 0)) {
    b->summed = b->sum && g->device != AMP_CPU;
    rc = GIN(b, 0, back(AMP_OP_convolution_input, b->a, SHAPE(b, 0), g, IN(b, 1), b->summed ? b->sum : NULL));
  }
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, back(AMP_OP_convolution_weight, b->a, SHAPE(b, 1), g, IN(b, 0), NULL));
  if (rc == 0 && NEED(b, 2)) rc = GIN(b, 2, bias(b, g));
  return rc;
}

int amp__bwd_convolution_input(amp_bwd *b) {
  int rc = 0;
  const amp_slot *a = b->a + 9;
  amp_tensor *g = dense(G(b));
  OR_FAIL(g);
  if (NEED(b, 0)) rc = GIN(b, 0, conv(a, g, IN(b, 1)));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, back(AMP_OP_convolution_weight, a, SHAPE(b, 1), IN(b, 0), g, NULL));
  if (rc == 0 && NEED(b, 2)) rc = GIN(b, 2, bias(b, g));
  return rc;
}

int amp__bwd_convolution_weight(amp_bwd *b) {
  int rc = 0;
  const amp_slot *a = b->a + 9;
  if (NEED(b, 0)) rc = GIN(b, 0, conv(a, IN(b, 1), G(b)));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, back(AMP_OP_convolution_input, a, SHAPE(b, 1), IN(b, 0), G(b), NULL));
  return rc;
}

/* -- Windows as columns ---------------------------------------------------------------- */

int amp__bwd_im2col(amp_bwd *b) {
  const amp_shape *h = SHAPE(b, 0);
  amp_tensor *g = G(b);
  amp_sl s = amp__sl();
  amp__sl_i(&s, h->size[h->ndim - 2]);
  amp__sl_i(&s, h->size[h->ndim - 1]);
  amp__sl_copy(&s, b->a, 8);
  return GIN(b, 0, amp__x(AMP_OP_col2im, &s, 1, &g));
}

int amp__bwd_col2im(amp_bwd *b) {
  amp_tensor *g = G(b);
  amp_sl s = amp__sl();
  amp__sl_copy(&s, b->a + 2, 8);
  return GIN(b, 0, amp__x(AMP_OP_im2col, &s, 1, &g));
}
