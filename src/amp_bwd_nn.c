/*
** amp_bwd_nn.c: derivatives of products, convolutions, pooling and dropout.
** Families are closed: conv2d, conv2d_input and conv2d_weight are bilinear in
** their arguments and the derivative of each uses the two others, as
** max_pool2d_backward and max_pool2d_gather use each other. Normalisation and
** losses are in amp_bwd_norm.c and amp_bwd_loss.c.
*/
#include "amp_bwd.h"

/* -- Products --------------------------------------------------------------------- */

/* t as a matrix of rows, its last dimension kept */
static amp_tensor *rows(amp_tensor *t) {
  if (!t || t->ndim == 2) return t;
  int64_t last = t->ndim ? t->size[t->ndim - 1] : 1, size[2] = { 1, last };
  for (int i = 0; i + 1 < t->ndim; i++) size[0] *= t->size[i];
  return amp__xview(t, 2, size);
}

static amp_tensor *transposed(amp_tensor *t) { return amp__xtranspose(t, -2, -1); }

int amp__bwd_matmul(amp_bwd *b) {
  const amp_shape *ha = SHAPE(b, 0), *hb = SHAPE(b, 1);
  amp_tensor *g = G(b), *x, *y;
  int rc = 0;
  if (ha->ndim == 1 && hb->ndim == 1) {
    if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, X2(mul, g, IN(b, 1))));
    if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, X2(mul, g, IN(b, 0))));
    return rc;
  }
  /* vectors become matrices; g gets back the dimension that went */
  if (ha->ndim == 1) g = amp__xunsqueeze(g, -2);
  if (hb->ndim == 1) g = amp__xunsqueeze(g, -1);
  if (NEED(b, 0)) {
    y = IN(b, 1);
    OR_FAIL(x = X2(matmul, g, hb->ndim == 1 ? amp__xunsqueeze(y, 0) : transposed(y)));
    rc = GIN(b, 0, amp__xto(b, 0, x));
  }
  if (rc == 0 && NEED(b, 1)) {
    x = IN(b, 0);
    if (hb->ndim <= 2 && ha->ndim >= 2) { /* one product for all batches */
      y = X2(matmul, transposed(rows(x)), rows(g));
      return GIN(b, 1, amp__xto(b, 1, amp__xview(y, hb->ndim, hb->size)));
    }
    y = X2(matmul, ha->ndim == 1 ? amp__xunsqueeze(x, 1) : transposed(x), g);
    if (y && hb->ndim == 1) y = amp__xview(y, y->ndim - 1, y->size);
    rc = GIN(b, 1, amp__xto(b, 1, y));
  }
  return rc;
}

int amp__bwd_linear(amp_bwd *b) {
  amp_tensor *g = G(b);
  int rc = 0;
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, X2(matmul, g, IN(b, 1))));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, X2(matmul, transposed(rows(g)), rows(IN(b, 0)))));
  if (rc == 0 && NEED(b, 2)) rc = GIN(b, 2, amp__xto(b, 2, g));
  return rc;
}

/* -- Convolution -------------------------------------------------------------------- */

enum { CONV_SLOTS = 7 }; /* stride 2, padding 2, dilation 2, groups */

static amp_tensor *conv(const amp_slot *a, amp_tensor *x, amp_tensor *w) {
  amp_tensor *in[3] = { x, w, NULL };
  amp_sl s = amp__sl();
  amp__sl_copy(&s, a, CONV_SLOTS);
  return amp__x(AMP_OP_conv2d, &s, 3, in);
}

/* conv2d_input or conv2d_weight, the result having shape h */
static amp_tensor *conv_back(int op, const amp_slot *a, const amp_shape *h, amp_tensor *g, amp_tensor *other) {
  amp_tensor *in[2] = { g, other };
  amp_sl s = amp__sl();
  amp__sl_shape(&s, h);
  amp__sl_copy(&s, a, CONV_SLOTS);
  return amp__x(op, &s, 2, in);
}

int amp__bwd_conv2d(amp_bwd *b) {
  int rc = 0;
  amp_tensor *g = G(b);
  if (NEED(b, 0)) rc = GIN(b, 0, conv_back(AMP_OP_conv2d_input, b->a, SHAPE(b, 0), g, IN(b, 1)));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, conv_back(AMP_OP_conv2d_weight, b->a, SHAPE(b, 1), g, IN(b, 0)));
  if (rc == 0 && NEED(b, 2)) rc = GIN(b, 2, amp__xto(b, 2, amp__xsum(g, 3, (int[]){ 0, 2, 3 }, false)));
  return rc;
}

int amp__bwd_conv2d_input(amp_bwd *b) {
  int rc = 0;
  const amp_slot *a = b->a + 9;
  if (NEED(b, 0)) rc = GIN(b, 0, conv(a, G(b), IN(b, 1)));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, conv_back(AMP_OP_conv2d_weight, a, SHAPE(b, 1), IN(b, 0), G(b)));
  return rc;
}

int amp__bwd_conv2d_weight(amp_bwd *b) {
  int rc = 0;
  const amp_slot *a = b->a + 9;
  if (NEED(b, 0)) rc = GIN(b, 0, conv(a, IN(b, 1), G(b)));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, conv_back(AMP_OP_conv2d_input, a, SHAPE(b, 1), IN(b, 0), G(b)));
  return rc;
}

/* -- Pooling ------------------------------------------------------------------------ */

static amp_tensor *max_pool_back(const amp_shape *h, amp_tensor *g, amp_tensor *indices) {
  amp_tensor *in[2] = { g, indices };
  amp_sl s = amp__sl();
  amp__sl_shape(&s, h);
  return amp__x(AMP_OP_max_pool2d_backward, &s, 2, in);
}

int amp__bwd_max_pool2d(amp_bwd *b) { return GIN(b, 0, max_pool_back(SHAPE(b, 0), G(b), OUT(b, 1))); }
int amp__bwd_max_pool2d_backward(amp_bwd *b) { return GIN(b, 0, X2(max_pool2d_gather, G(b), IN(b, 1))); }
int amp__bwd_max_pool2d_gather(amp_bwd *b) { return GIN(b, 0, max_pool_back(SHAPE(b, 0), G(b), IN(b, 1))); }

enum { POOL_SLOTS = 8 }; /* kernel 2, stride 2, padding 2, ceil_mode, count_include_pad */

int amp__bwd_avg_pool2d(amp_bwd *b) {
  amp_tensor *g = G(b);
  amp_sl s = amp__sl();
  amp__sl_shape(&s, SHAPE(b, 0));
  amp__sl_copy(&s, b->a, POOL_SLOTS);
  return GIN(b, 0, amp__x(AMP_OP_avg_pool2d_backward, &s, 1, &g));
}

int amp__bwd_avg_pool2d_backward(amp_bwd *b) {
  amp_tensor *g = G(b);
  amp_sl s = amp__sl();
  amp__sl_copy(&s, b->a + 9, POOL_SLOTS);
  return GIN(b, 0, amp__x(AMP_OP_avg_pool2d, &s, 1, &g));
}

/* -- Dropout ------------------------------------------------------------------------ */

int amp__bwd_dropout(amp_bwd *b) {
  double p = b->a[0].f;
  amp_tensor *g = G(b);
  if (!b->a[1].i || p == 0) return GIN(b, 0, amp__xto(b, 0, g));
  if (p == 1) return GIN(b, 0, amp__xzeros(b, 0));
  return GIN(b, 0, amp__xto(b, 0, X2(mul, XN(mul, g, 1 / (1 - p)), OUT(b, 1))));
}
