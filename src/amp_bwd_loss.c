/*
** amp_bwd_loss.c: derivatives of losses. `reduction` is none 0, mean 1, sum 2
** in every row. nll_loss and its backward are linear and each other's
** derivative; cross_entropy_backward is differentiated through softmax.
*/
#include "amp_bwd.h"

enum { NONE, MEAN, SUM };

static amp_tensor *mul(amp_tensor *a, amp_tensor *b) { return X2(mul, a, b); }

/* -- Labels ------------------------------------------------------------------------- */

static amp_tensor *nll(amp_tensor *x, amp_tensor *target, amp_tensor *w, int64_t reduction, int64_t ignore) {
  amp_tensor *in[3] = { x, target, w };
  amp_sl s = amp__sl();
  amp__sl_i(&s, reduction);
  amp__sl_i(&s, ignore);
  return amp__x(AMP_OP_nll_loss, &s, 3, in);
}

int amp__bwd_nll_loss(amp_bwd *b) {
  amp_tensor *in[4] = { G(b), IN(b, 1), amp__has(b, 2) ? IN(b, 2) : NULL, OUT(b, 1) };
  if (amp__has(b, 2)) OR_FAIL(in[2]);
  amp_sl s = amp__sl();
  amp__sl_shape(&s, SHAPE(b, 0));
  amp__sl_copy(&s, b->a, 2);
  return GIN(b, 0, amp__xto(b, 0, amp__x(AMP_OP_nll_loss_backward, &s, 4, in)));
}

int amp__bwd_nll_loss_backward(amp_bwd *b) {
  amp_tensor *w = NULL;
  if (amp__has(b, 2)) OR_FAIL(w = IN(b, 2));
  return GIN(b, 0, amp__xto(b, 0, nll(G(b), IN(b, 1), w, b->a[9].i, b->a[10].i)));
}

/* The scores, if nobody will see them again: on a GPU their gradient may take their place */
static amp_tensor *spent(amp_bwd *b) {
  const amp_node *n = b->node;
  amp_tensor *x = n->saved[0].t;
  if (!b->last || !x || x->device != AMP_CUDA || x->refs != 1 || x->storage->refs != 1 || (n->flags & AMP_N_FREED) || n->saved[0].version != amp__version(x)) return NULL;
  if (x->storage->block && x->storage->block->streams & ~((uint32_t)1 << amp__stream_here(x->device, x->device_index))) return NULL; /* another stream may be reading them yet */
  if (!(x->flags & AMP_T_DENSE) && !(x->ndim == 2 && x->stride[1] == 1 && x->stride[0] >= x->size[1])) return NULL; /* rows may lie apart, not on each other */
  return x->storage->flags & (AMP_S_EXPOSED | AMP_S_ARENA | AMP_S_FOREIGN) ? NULL : x;
}

int amp__bwd_cross_entropy_index(amp_bwd *b) {
  amp_tensor *out[AMP_MAX_OUT] = { spent(b) };
  amp_tensor *in[6] = { G(b), IN(b, 0), IN(b, 1), amp__has(b, 2) ? IN(b, 2) : NULL, OUT(b, 1), OUT(b, 2) };
  if (amp__has(b, 2)) OR_FAIL(in[3]);
  amp_sl s = amp__sl();
  amp__sl_copy(&s, b->a, 3);
  if (out[0] && in[0] && in[1] && in[2] && in[4] && in[5]) {
    int rc = amp__dispatch(AMP_OP_cross_entropy_backward, AMP_OUT, in, 6, out, s.v);
    if (rc == AMP_E_MEMORY) b->node->saved[0].version = amp__version(in[1]); /* nothing was written: it may be tried again */
    return rc < 0 ? rc : GIN(b, 0, amp__xto(b, 0, in[1]));
  }
  return GIN(b, 0, amp__xto(b, 0, amp__x(AMP_OP_cross_entropy_backward, &s, 6, in)));
}

/* gx = q (W p - T) with p = softmax(x), q the gradient of a row (over the total for a mean),
** T_j = (1 - smoothing) w_y [j = y] + smoothing / C w_j, W = sum T; all 0 in ignored rows.
** For the incoming v: dx = q W p (v - sum v p), dg = sum v (W p - T). */
int amp__bwd_cross_entropy_backward(amp_bwd *b) {
  const amp_shape *h = SHAPE(b, 1);
  int64_t reduction = b->a[0].i, ignore = b->a[1].i;
  double smooth = b->a[2].f;
  int cd = h->ndim > 1 ? 1 : 0, rc = 0;
  amp_tensor *v = G(b), *x = IN(b, 1), *target = IN(b, 2), *w = NULL, *valid = NULL, *total = NULL;
  OR_FAIL(x && target);
  if (amp__has(b, 3)) OR_FAIL(w = IN(b, 3));
  if (reduction == MEAN) OR_FAIL(total = IN(b, 5));
  amp_tensor *p = amp__xdim(AMP_OP_softmax, cd, 1, &x);
  amp_tensor *ones = amp__xexpand(amp__xfull(1, x->dtype, x->device, x->device_index, 0, NULL), x->ndim, x->size);
  amp_tensor *W = X1(neg, nll(ones, target, w, NONE, ignore));
  if (smooth != 0) {
    double each = smooth / (double)h->size[cd];
    amp_tensor *t = w ? X1(neg, nll(ones, target, NULL, NONE, ignore)) : W; /* 1, 0 where ignored */
    OR_FAIL(valid = XN(mul, t, each));
    W = X2(add, XN(mul, W, 1 - smooth), w ? mul(valid, amp__xsum(w, -1, NULL, false)) : XN(mul, t, smooth));
  }
  OR_FAIL(W);
  if (NEED(b, 0)) {
    amp_tensor *vT = XN(mul, nll(v, target, w, NONE, ignore), -(1 - smooth));
    if (smooth != 0) {
      amp_tensor *vw = v;
      if (w) {
        int64_t size[AMP_MAX_DIM];
        for (int i = 0; i < h->ndim; i++) size[i] = i == cd ? h->size[cd] : 1;
        vw = mul(v, amp__xview(w, h->ndim, size));
      }
      vT = X2(add, vT, mul(valid, amp__xsum(vw, 1, &cd, false)));
    }
    amp_tensor *t = X2(sub, mul(W, amp__xsum(mul(v, p), 1, &cd, false)), vT);
    if (reduction != NONE) t = amp__xsum(t, -1, NULL, false);
    rc = GIN(b, 0, amp__xto(b, 0, total ? X2(div, t, total) : t));
  }
  if (rc == 0 && NEED(b, 1)) {
    amp_tensor *q = mul(IN(b, 0), W), *in[2] = { v, p };
    if (total) q = X2(div, q, total);
    q = amp__xkept(q, h->ndim, h->size, 1u << cd);
    rc = GIN(b, 1, amp__xto(b, 1, mul(q, amp__xdim(AMP_OP_softmax_backward, cd, 2, in))));
  }
  return rc;
}

/* -- Squares ------------------------------------------------------------------------ */

int amp__bwd_mse_loss(amp_bwd *b) {
  amp_tensor *in[3] = { G(b), IN(b, 0), IN(b, 1) };
  amp_sl s = amp__sl();
  amp__sl_i(&s, b->a[0].i);
  amp_tensor *t = amp__x(AMP_OP_mse_loss_backward, &s, 3, in);
  int rc = 0;
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, t));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, X1(neg, t)));
  return rc;
}

/* of 2 g (x - t), over the count for a mean */
int amp__bwd_mse_loss_backward(amp_bwd *b) {
  amp_tensor *v = G(b), *k = NULL, *t;
  int64_t reduction = b->a[0].i;
  int rc = 0;
  OR_FAIL(k = XN(mul, v, reduction == MEAN ? 2 / (double)v->numel : 2));
  if (NEED(b, 0)) {
    t = mul(k, X2(sub, IN(b, 1), IN(b, 2)));
    rc = GIN(b, 0, amp__xto(b, 0, reduction == NONE ? t : amp__xsum(t, -1, NULL, false)));
  }
  if (rc == 0 && (NEED(b, 1) || NEED(b, 2))) {
    OR_FAIL(t = mul(k, IN(b, 0)));
    if (NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, t));
    if (rc == 0 && NEED(b, 2)) rc = GIN(b, 2, amp__xto(b, 2, X1(neg, t)));
  }
  return rc;
}
