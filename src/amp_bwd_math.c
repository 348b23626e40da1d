/*
** amp_bwd_math.c: derivatives of element-wise functions, in the order of
** amp_ops.def. One line each: g times f'(x), written with the saved input or
** the saved result, whichever the function's row keeps. Fused derivatives
** (relu_backward, gelu_backward, ...) are rows too and stand at the end.
*/
#include "amp_bwd.h"

#define X IN(b, 0)
#define Y OUT(b, 0)
#define LN2 0.69314718055994530942
#define LN10 2.30258509299404568402
#define TWO_BY_SQRT_PI 1.12837916709551257390

/* -- Functions ---------------------------------------------------------------- */

static amp_tensor *mul(amp_tensor *a, amp_tensor *b) { return X2(mul, a, b); }
static amp_tensor *sq(amp_tensor *a) { return X2(mul, a, a); }
static amp_tensor *one_minus(amp_tensor *a) { return NX(sub, 1, a); }

BWD(neg, X1(neg, G(b)))
BWD(abs, mul(G(b), X1(sign, X)))
BWD(sign, amp__xzeros(b, 0))
BWD(floor, amp__xzeros(b, 0))
BWD(ceil, amp__xzeros(b, 0))
BWD(round, amp__xzeros(b, 0))
BWD(trunc, amp__xzeros(b, 0))
BWD(exp, mul(G(b), Y))
BWD(exp2, mul(G(b), XN(mul, Y, LN2)))
BWD(expm1, mul(G(b), XN(add, Y, 1)))
BWD(log, X2(div, G(b), X))
BWD(log2, X2(div, G(b), XN(mul, X, LN2)))
BWD(log10, XN(div, X2(div, G(b), X), LN10))
BWD(log1p, X2(div, G(b), XN(add, X, 1)))
BWD(sqrt, X2(div, G(b), XN(mul, Y, 2)))

int amp__bwd_rsqrt(amp_bwd *b) {
  amp_tensor *y = Y;
  return GIN(b, 0, amp__xto(b, 0, mul(mul(G(b), XN(mul, y, -0.5)), sq(y))));
}

int amp__bwd_reciprocal(amp_bwd *b) {
  amp_tensor *y = Y;
  return GIN(b, 0, amp__xto(b, 0, X1(neg, mul(mul(G(b), y), y))));
}

BWD(square, mul(G(b), XN(mul, X, 2)))
BWD(sin, mul(G(b), X1(cos, X)))
BWD(cos, X1(neg, mul(G(b), X1(sin, X))))
BWD(tanh, X2(tanh_backward, G(b), Y))
BWD(sigmoid, X2(sigmoid_backward, G(b), Y))
BWD(log_sigmoid, mul(G(b), X1(sigmoid, X1(neg, X))))

int amp__bwd_erf(amp_bwd *b) {
  amp_tensor *x = X;
  return GIN(b, 0, amp__xto(b, 0, mul(G(b), XN(mul, X1(exp, X1(neg, sq(x))), TWO_BY_SQRT_PI))));
}

BWD(relu, X2(relu_backward, G(b), Y))

static amp_tensor *gelu_backward(amp_tensor *g, amp_tensor *x, int64_t approximate) {
  amp_tensor *in[2] = { g, x };
  amp_sl s = amp__sl();
  amp__sl_i(&s, approximate);
  return amp__x(AMP_OP_gelu_backward, &s, 2, in);
}

BWD(gelu, gelu_backward(G(b), X, b->a[0].i))
BWD(silu, X2(silu_backward, G(b), X))

int amp__bwd_softplus(amp_bwd *b) {
  double beta = b->a[0].f, threshold = b->a[1].f;
  amp_tensor *z = XN(mul, X, beta), *g = G(b);
  return GIN(b, 0, amp__xto(b, 0, amp__xwhere(XN(gt, z, threshold), g, mul(g, X1(sigmoid, z)))));
}

/* -- Fused derivatives: inputs are a gradient and a point ----------------------- */

/* The gradient in the gradient is the same row again; in the point it is v * grad * f''. */
static int second(amp_bwd *b, amp_tensor *again, amp_tensor *(*f2)(amp_bwd *b, amp_tensor *point)) {
  int rc = 0;
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, again));
  if (rc == 0 && NEED(b, 1))
    rc = GIN(b, 1, amp__xto(b, 1, mul(mul(G(b), IN(b, 0)), f2(b, IN(b, 1)))));
  return rc;
}

int amp__bwd_relu_backward(amp_bwd *b) {
  int rc = 0;
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, X2(relu_backward, G(b), IN(b, 1))));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xzeros(b, 1));
  return rc;
}

/* none: phi(x) (2 - x^2), phi the normal density.
** tanh, with u = k (x + c x^3), t = tanh(u): (1 - t^2) (u' + x u'' / 2 - x t u'^2) */
static amp_tensor *gelu2(amp_bwd *b, amp_tensor *x) {
  const double k = 0.79788456080286535588, c = 0.044715, by_sqrt_2pi = 0.39894228040143267794;
  amp_tensor *x2 = sq(x);
  if (b->a[0].i == 0) return mul(XN(mul, X1(exp, XN(mul, x2, -0.5)), by_sqrt_2pi), NX(sub, 2, x2));
  amp_tensor *u1 = XN(mul, XN(add, XN(mul, x2, 3 * c), 1), k);
  amp_tensor *t = X1(tanh, mul(x, XN(mul, XN(add, XN(mul, x2, c), 1), k)));
  amp_tensor *inner = X2(sub, X2(add, u1, XN(mul, x2, 3 * k * c)), mul(mul(x, t), sq(u1)));
  return mul(one_minus(sq(t)), inner);
}

int amp__bwd_gelu_backward(amp_bwd *b) {
  amp_tensor *again = NEED(b, 0) ? gelu_backward(G(b), IN(b, 1), b->a[0].i) : NULL;
  return second(b, again, gelu2);
}

/* s (1 - s) (2 + x (1 - 2 s)) */
static amp_tensor *silu2(amp_bwd *b, amp_tensor *x) {
  amp_tensor *s = X1(sigmoid, x);
  return mul(mul(s, one_minus(s)), XN(add, mul(x, one_minus(XN(mul, s, 2))), 2));
}

int amp__bwd_silu_backward(amp_bwd *b) {
  amp_tensor *again = NEED(b, 0) ? X2(silu_backward, G(b), IN(b, 1)) : NULL;
  return second(b, again, silu2);
}

static amp_tensor *sigmoid2(amp_bwd *b, amp_tensor *y) { return one_minus(XN(mul, y, 2)); }
static amp_tensor *tanh2(amp_bwd *b, amp_tensor *y) { return XN(mul, y, -2); }

int amp__bwd_sigmoid_backward(amp_bwd *b) {
  amp_tensor *again = NEED(b, 0) ? X2(sigmoid_backward, G(b), IN(b, 1)) : NULL;
  return second(b, again, sigmoid2);
}

int amp__bwd_tanh_backward(amp_bwd *b) {
  amp_tensor *again = NEED(b, 0) ? X2(tanh_backward, G(b), IN(b, 1)) : NULL;
  return second(b, again, tanh2);
}
