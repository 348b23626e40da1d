/*
** amp_bwd_pair.c: derivatives of losses of pairs of elements (pair_loss), of
** multilabel_margin_loss and of ctc. The slope in the input is a kernel; the slope
** in the target and the second slopes, which few need, are formulas in ops.
** `reduction` (none 0, mean 1, sum 2) is the first attribute of every row.
*/
#include "amp_bwd.h"

enum { NONE, MEAN, SUM };
enum { L1, SMOOTH_L1, HUBER, KL, KL_LOG, BCE, SOFT_MARGIN, HINGE, POISSON, POISSON_LOG, BCE_PROBS };

static amp_tensor *mul(amp_tensor *a, amp_tensor *b) { return X2(mul, a, b); }
static amp_tensor *scaled(amp_tensor *t, int64_t reduction, int64_t n) { return reduction == MEAN ? XN(div, t, (double)n) : t; }

static amp_tensor *at_least(amp_tensor *t, double low) {
  amp_sl s = amp__sl();
  amp__sl_f(&s, low);
  amp__sl_i(&s, AMP_NONE);
  return amp__x(AMP_OP_clamp, &s, 1, &t);
}
static amp_tensor *bounded(amp_tensor *t) { return at_least(t, -100); } /* a logarithm in binary cross entropy */

/* 1 in x's dtype where |x - t| is less than p, else 0 */
static amp_tensor *inside(amp_tensor *x, amp_tensor *t, double p) {
  amp_tensor *d = XN(lt, X1(abs, X2(sub, amp__xdetach(x), amp__xdetach(t))), p);
  return d ? amp__xcast(d, x->dtype) : NULL;
}

/* df/dt. NULL without an error: 0 everywhere (*zero) */
static amp_tensor *slope_t(amp_tensor *x, amp_tensor *t, int kind, double p, bool *zero) {
  *zero = false;
  switch (kind) {
  case KL: return X2(sub, XN(add, X1(log, t), 1), x);
  case KL_LOG: return mul(X1(exp, t), XN(add, X2(sub, t, x), 1));
  case BCE: case POISSON_LOG: return X1(neg, x);
  case SOFT_MARGIN: return X1(neg, mul(x, X1(sigmoid, X1(neg, mul(t, x)))));
  case POISSON: return X1(neg, X1(log, XN(add, x, p)));
  case BCE_PROBS: return X2(sub, bounded(X1(log1p, X1(neg, x))), bounded(X1(log, x)));
  default: *zero = true; return NULL;
  }
}

/* d2f/dx2 and d2f/dxdt */
static amp_tensor *slope_xx(amp_tensor *x, amp_tensor *t, int kind, double p, bool *zero) {
  amp_tensor *s;
  *zero = false;
  switch (kind) {
  case SMOOTH_L1:
    if (p > 0) return XN(div, inside(x, t, p), p);
    break;
  case HUBER: return inside(x, t, p);
  case BCE: s = X1(sigmoid, x); return mul(s, NX(sub, 1, s));
  case SOFT_MARGIN: s = X1(sigmoid, mul(t, x)); return mul(mul(s, NX(sub, 1, s)), X1(square, t));
  case POISSON: s = XN(add, x, p); return X2(div, X2(div, t, s), s); /* the square may overflow */
  case POISSON_LOG: return X1(exp, x);
  case BCE_PROBS: /* (x^2 - 2 x t + t) / (x (1 - x))^2 */
    s = at_least(mul(x, NX(sub, 1, x)), p);
    return X2(div, X2(add, mul(x, X2(sub, x, XN(mul, t, 2))), t), X1(square, s));
  default: break;
  }
  *zero = true;
  return NULL;
}

static amp_tensor *slope_xt(amp_tensor *x, amp_tensor *t, int kind, double p, bool *zero) {
  amp_tensor *s;
  *zero = false;
  switch (kind) {
  case SMOOTH_L1: case HUBER: return X1(neg, slope_xx(x, t, kind, p, zero));
  case KL: case BCE: case POISSON_LOG: return amp__xexpand(amp__xfull(-1, x->dtype, x->device, x->device_index, 0, NULL), x->ndim, x->size);
  case KL_LOG: return X1(neg, X1(exp, t));
  case SOFT_MARGIN: /* of -t s, s = sigmoid(-t x) */
    s = X1(sigmoid, X1(neg, mul(t, x)));
    return X2(sub, mul(mul(t, x), mul(s, NX(sub, 1, s))), s);
  case POISSON: return X1(neg, X1(reciprocal, XN(add, x, p)));
  case BCE_PROBS: return X1(neg, X1(reciprocal, at_least(mul(x, NX(sub, 1, x)), p)));
  default: break;
  }
  *zero = true;
  return NULL;
}

static amp_tensor *backward(amp_tensor *g, amp_tensor *x, amp_tensor *t, int64_t reduction, int kind, double p) {
  amp_tensor *in[3] = { g, x, t };
  amp_sl s = amp__sl();
  amp__sl_i(&s, reduction);
  amp__sl_i(&s, kind);
  amp__sl_f(&s, p);
  return amp__x(AMP_OP_pair_loss_backward, &s, 3, in);
}

int amp__bwd_pair_loss(amp_bwd *b) {
  amp_tensor *x = IN(b, 0), *t = IN(b, 1), *gx = NULL, *gt;
  int64_t reduction = b->a[0].i;
  int kind = (int)b->a[1].i, rc = 0;
  bool even = kind == L1 || kind == SMOOTH_L1 || kind == HUBER, zero; /* functions of x - t */
  OR_FAIL(x && t ? x : NULL);
  if (NEED(b, 0) || even) {
    OR_FAIL(gx = backward(G(b), x, t, reduction, kind, b->a[2].f));
    if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, gx));
  }
  if (rc < 0 || !NEED(b, 1)) return rc;
  if (even) return GIN(b, 1, amp__xto(b, 1, X1(neg, gx)));
  gt = slope_t(x, t, kind, b->a[2].f, &zero);
  if (zero) return GIN(b, 1, amp__xzeros(b, 1));
  return GIN(b, 1, amp__xto(b, 1, mul(scaled(G(b), reduction, x->numel), gt)));
}

/* For the incoming v, of g k f_x (k: 1 over the count of a mean): dg = sum v k f_x, dx = v g k f_xx, dt = v g k f_xt */
int amp__bwd_pair_loss_backward(amp_bwd *b) {
  amp_tensor *v = G(b), *x = IN(b, 1), *t = IN(b, 2), *q = NULL, *s;
  int64_t reduction = b->a[0].i;
  int kind = (int)b->a[1].i, rc = 0;
  double p = b->a[2].f;
  bool zero;
  OR_FAIL(v && x && t ? v : NULL);
  if (NEED(b, 0)) {
    s = backward(v, x, t, NONE, kind, p);
    if (reduction != NONE) s = scaled(amp__xsum(s, -1, NULL, false), reduction, v->numel);
    rc = GIN(b, 0, amp__xto(b, 0, s));
  }
  if (rc == 0 && (NEED(b, 1) || NEED(b, 2))) OR_FAIL(q = mul(v, scaled(IN(b, 0), reduction, v->numel)));
  for (int i = 1; i < 3 && rc == 0; i++) {
    if (!NEED(b, i)) continue;
    s = i == 1 ? slope_xx(x, t, kind, p, &zero) : slope_xt(x, t, kind, p, &zero);
    rc = GIN(b, i, zero ? amp__xzeros(b, i) : amp__xto(b, i, mul(q, s)));
  }
  return rc;
}

/* -- Margins of many labels: linear in pieces ------------------------------------------------ */

static amp_tensor *margin_backward(amp_tensor *g, amp_tensor *x, amp_tensor *target, int64_t reduction) {
  amp_tensor *in[3] = { g, x, target };
  amp_sl s = amp__sl();
  amp__sl_i(&s, reduction);
  return amp__x(AMP_OP_multilabel_margin_loss_backward, &s, 3, in);
}

int amp__bwd_multilabel_margin_loss(amp_bwd *b) {
  return GIN(b, 0, amp__xto(b, 0, margin_backward(G(b), IN(b, 0), IN(b, 1), b->a[0].i)));
}

int amp__bwd_multilabel_margin_loss_backward(amp_bwd *b) {
  amp_tensor *v = G(b), *x = IN(b, 1), *one;
  int64_t reduction = b->a[0].i;
  int rc = 0, last = -1;
  OR_FAIL(v && x ? v : NULL);
  if (NEED(b, 0)) {
    one = amp__xfull(1, v->dtype, v->device, v->device_index, 0, NULL);
    if (reduction == NONE) one = amp__xexpand(one, x->ndim - 1, x->size);
    v = mul(v, margin_backward(one, amp__xdetach(x), IN(b, 2), reduction));
    rc = GIN(b, 0, amp__xto(b, 0, reduction == NONE ? amp__xsum(v, 1, &last, false) : amp__xsum(v, -1, NULL, false)));
  }
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xzeros(b, 1));
  return rc;
}

/* -- Sequences ------------------------------------------------------------------------------- */

int amp__bwd_ctc(amp_bwd *b) {
  amp_tensor *in[7] = { G(b), IN(b, 0), IN(b, 1), IN(b, 2), IN(b, 3), OUT(b, 0), OUT(b, 1) };
  amp_sl s = amp__sl();
  for (int i = 0; i < 7; i++) OR_FAIL(in[i]);
  amp__sl_i(&s, b->a[0].i);
  return GIN(b, 0, amp__xto(b, 0, amp__x(AMP_OP_ctc_backward, &s, 7, in)));
}

int amp__bwd_ctc_backward(amp_bwd *b) {
  return amp__fail(AMP_E_AUTOGRAD, "ctc_loss has a first derivative only; its gradient can't be differentiated again");
}
