/*
** amp_bwd_special.c: derivatives of the rarer elementwise functions, of settings-
** bearing activations and of two-tensor functions, in the order of amp_ops.def.
** All in recorded ops; where a function is in pieces, so is its derivative. For
** 16-bit values they are computed in float32: squares of x overflow long before
** the derivative does, and differences of rounded values are mostly rounding.
*/
#include "amp_bwd.h"

static amp_tensor *wide(amp_tensor *t) { return t && amp__is_half(t->dtype) ? amp__xcast(t, AMP_FLOAT32) : t; }
#define X wide(IN(b, 0))
#define Y wide(OUT(b, 0))
#undef G
#define G(b) wide((b)->g[0])

static amp_tensor *mul(amp_tensor *a, amp_tensor *b) { return X2(mul, a, b); }
static amp_tensor *sq(amp_tensor *a) { return X2(mul, a, a); }
static amp_tensor *one_minus(amp_tensor *a) { return NX(sub, 1, a); }
/* g where lo < x < hi, else 0 */
static amp_tensor *between(amp_tensor *g, amp_tensor *x, double lo, double hi) {
  return amp__xmask(X2(logical_and, XN(gt, x, lo), XN(lt, x, hi)), g);
}

/* -- Two tensors ---------------------------------------------------------------------- */

/* both gradients, of which only wanted ones are computed */
#define BOTH(name, first, second) \
int amp__bwd_##name(amp_bwd *b) { \
  int rc = 0; \
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, first)); \
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, second)); \
  return rc; \
}
#define A wide(IN(b, 0))
#define B wide(IN(b, 1))
BOTH(fmod, G(b), X1(neg, mul(G(b), X1(trunc, X2(div, A, B)))))
BOTH(hypot, mul(G(b), X2(div, A, Y)), mul(G(b), X2(div, B, Y)))
/* part / (input^2 + other^2); 0 at the origin, which has no direction */
static amp_tensor *turn(amp_bwd *b, amp_tensor *part) {
  amp_tensor *x = A, *y = B, *n = X2(add, sq(x), sq(y)), *zero = XN(eq, n, 0);
  return amp__xmask_not(zero, X2(div, part, amp__xfill(zero, n, 1)));
}
BOTH(atan2, mul(G(b), turn(b, B)), X1(neg, mul(G(b), turn(b, A))))
BOTH(logaddexp, mul(G(b), X1(sigmoid, X2(sub, A, B))), mul(G(b), X1(sigmoid, X2(sub, B, A))))
static amp_tensor *log_or_zero(amp_bwd *b) { /* 0 where input is 0 and the logarithm is not finite */
  amp_tensor *x = A, *y = B;
  return amp__xmask_not(X2(logical_and, XN(eq, x, 0), XN(le, y, 0)), X1(log, y));
}
BOTH(xlogy, mul(G(b), log_or_zero(b)), mul(G(b), X2(div, A, B)))
int amp__bwd_copysign(amp_bwd *b) {
  int rc = 0;
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, mul(G(b), mul(X1(sign, X), X1(sign, Y)))));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xzeros(b, 1));
  return rc;
}

/* -- Functions ---------------------------------------------------------------------------- */

BWD(tan, mul(G(b), XN(add, sq(Y), 1)))
BWD(asin, mul(G(b), X1(rsqrt, one_minus(sq(X)))))
BWD(acos, X1(neg, mul(G(b), X1(rsqrt, one_minus(sq(X))))))
BWD(atan, X2(div, G(b), XN(add, sq(X), 1)))
BWD(sinh, mul(G(b), X1(cosh, X)))
BWD(cosh, mul(G(b), X1(sinh, X)))
BWD(asinh, mul(G(b), X1(rsqrt, XN(add, sq(X), 1))))
BWD(acosh, mul(G(b), X1(rsqrt, XN(sub, sq(X), 1))))
BWD(atanh, X2(div, G(b), one_minus(sq(X))))
BWD(cbrt, X2(div, G(b), XN(mul, sq(Y), 3)))
BWD(erfc, mul(G(b), XN(mul, X1(exp, X1(neg, sq(X))), -1.12837916709551257390)))
BWD(erfinv, mul(G(b), XN(mul, X1(exp, sq(Y)), 0.88622692545275801365)))
static amp_tensor *polygamma(amp_tensor *x, int64_t n) {
  amp_sl s = amp__sl();
  amp__sl_i(&s, n);
  return amp__x(AMP_OP_polygamma, &s, 1, &x);
}
BWD(gamma, mul(G(b), mul(Y, X1(digamma, X))))
BWD(lgamma, mul(G(b), X1(digamma, X)))
BWD(digamma, mul(G(b), polygamma(X, 1)))
BWD(polygamma, mul(G(b), polygamma(X, b->a[0].i + 1)))
BWD(frac, G(b))
BWD(nan_to_num, amp__xmask(X1(isfinite, X), G(b)))

/* -- Activations ----------------------------------------------------------------------------- */

BWD(leaky_relu, amp__xwhere(XN(gt, X, 0), G(b), XN(mul, G(b), b->a[0].f)))
/* below zero the derivative of alpha (e^x - 1) is the result + alpha */
BWD(elu, amp__xwhere(XN(gt, X, 0), G(b), mul(G(b), XN(add, Y, b->a[0].f))))
BWD(celu, amp__xwhere(XN(gt, X, 0), G(b), mul(G(b), XN(add, XN(div, Y, b->a[0].f), 1))))
#define SELU_SCALE 1.0507009873554804934193349852946
#define SELU_ALPHA 1.6732632423543772848170429916717
BWD(selu, amp__xwhere(XN(gt, X, 0), XN(mul, G(b), SELU_SCALE), mul(G(b), XN(add, Y, SELU_SCALE * SELU_ALPHA))))
static amp_tensor *softplus(amp_tensor *x) {
  amp_sl s = amp__sl();
  amp__sl_f(&s, 1);
  amp__sl_f(&s, 20);
  return amp__x(AMP_OP_softplus, &s, 1, &x);
}
/* t + x s (1 - t^2), t = tanh(softplus(x)), s = sigmoid(x) */
int amp__bwd_mish(amp_bwd *b) {
  amp_tensor *x = X, *t = X1(tanh, softplus(x));
  return GIN(b, 0, amp__xto(b, 0, mul(G(b), X2(add, t, mul(mul(x, X1(sigmoid, x)), one_minus(sq(t)))))));
}
BWD(hardsigmoid, between(XN(div, G(b), 6), X, -3, 3))
int amp__bwd_hardswish(amp_bwd *b) {
  amp_tensor *x = X, *g = G(b);
  return GIN(b, 0, amp__xto(b, 0, amp__xwhere(XN(ge, x, 3), g, amp__xmask(XN(gt, x, -3), mul(g, XN(add, XN(div, x, 3), 0.5))))));
}
BWD(hardtanh, between(G(b), X, b->a[0].f, b->a[1].f))
int amp__bwd_softsign(amp_bwd *b) {
  amp_tensor *d = XN(add, X1(abs, X), 1);
  return GIN(b, 0, amp__xto(b, 0, X2(div, G(b), sq(d))));
}
BWD(hardshrink, amp__xmask_not(XN(le, X1(abs, X), b->a[0].f), G(b)))
BWD(softshrink, amp__xmask_not(XN(le, X1(abs, X), b->a[0].f), G(b)))
BWD(threshold, amp__xmask_not(XN(le, X, b->a[0].f), G(b)))
