/*
** amp_comp_math.c: elementwise composites: limits, shrinking, gates, closeness.
*/
#include <math.h>
#include "amp_bwd.h"

static amp_tensor *limited(amp_tensor *x, double lo, double hi, bool has_lo, bool has_hi) {
  amp_sl s = amp__sl();
  if (has_lo) amp__sl_f(&s, lo); else amp__sl_i(&s, AMP_NONE);
  if (has_hi) amp__sl_f(&s, hi); else amp__sl_i(&s, AMP_NONE);
  return amp__x(AMP_OP_clamp, &s, 1, &x);
}
int amp__comp_clamp_min(amp_call *c) { return amp__ret(c, 0, limited(c->in[0], c->a[0].f, 0, true, false)); }
int amp__comp_clamp_max(amp_call *c) { return amp__ret(c, 0, limited(c->in[0], 0, c->a[0].f, false, true)); }
int amp__comp_relu6(amp_call *c) { return amp__ret(c, 0, limited(c->in[0], 0, 6, true, true)); }

/* float32 for 16 bits: where more than one op follows, results are rounded once */
static amp_tensor *wide(amp_tensor *x) { return x && amp__is_half(x->dtype) ? amp__xcast(x, AMP_FLOAT32) : x; }

int amp__comp_tanhshrink(amp_call *c) {
  amp_tensor *x = wide(c->in[0]);
  return amp__ret(c, 0, amp__xcast(X2(sub, x, X1(tanh, x)), c->in[0]->dtype));
}

/* sin(z) / z near 0, where the quotient's derivatives lose all their digits: Taylor's series */
static amp_tensor *sinc_series(amp_tensor *z) {
  amp_tensor *u = X2(mul, z, z), *y = XN(add, XN(mul, u, -1 / 110.), 1);
  for (int k = 72; k > 0; k = k == 72 ? 42 : k == 42 ? 20 : k == 20 ? 6 : 0) y = XN(add, XN(mul, X2(mul, u, y), -1. / k), 1);
  return y;
}

/* At 0 the quotient is taken at 1, so that no NaN gets into derivatives. */
int amp__comp_sinc(amp_call *c) {
  const double pi = 3.14159265358979323846;
  amp_tensor *x = wide(c->in[0]), *z;
  bool recorded = x && amp__S->grad_mode && amp__tracked(x);
  amp_tensor *near = recorded ? XN(lt, X1(abs, amp__xdetach(x)), 0.05) : XN(eq, x, 0);
  z = XN(mul, amp__xfill(near, x, 1), pi);
  amp_tensor *y = X2(div, X1(sin, z), z);
  if (recorded) y = amp__xwhere(near, sinc_series(XN(mul, amp__xmask(near, x), pi)), y);
  else y = amp__xfill(near, y, 1);
  return amp__ret(c, 0, amp__xcast(y, c->in[0]->dtype));
}

int amp__comp_positive(amp_call *c) { return amp__ret(c, 0, X1(alias, c->in[0])); }

int amp__comp_logit(amp_call *c) {
  amp_tensor *x = c->in[0];
  if (c->a[0].i != AMP_NONE) {
    double eps = c->a[0].f;
    if (!(eps >= 0 && eps <= 0.5)) return amp__fail(AMP_E_VALUE, "eps is %g, must be in [0, 0.5]", eps);
    x = limited(x, eps, 1 - eps, true, true);
  }
  if (x && amp__S->grad_mode && amp__tracked(x)) return amp__ret(c, 0, X2(sub, X1(log, x), X1(log1p, X1(neg, x)))); /* its slope is infinite at 0 and 1, no NaN */
  return amp__ret(c, 0, X1(log, X2(div, x, NX(sub, 1, x))));
}

int amp__comp_softmin(amp_call *c) {
  amp_tensor *x = X1(neg, c->in[0]);
  amp_sl s = amp__sl();
  amp__sl_copy(&s, c->a, 2);
  return amp__ret(c, 0, amp__x(AMP_OP_softmax, &s, 1, &x));
}

int amp__comp_glu(amp_call *c) {
  amp_tensor *x = c->in[0];
  int d;
  if (x->ndim == 0) return amp__fail(AMP_E_SHAPE, "a scalar has no dimension to halve");
  int rc = amp__norm_dim(&c->a[0], x->ndim, "dim");
  if (rc < 0) return rc;
  d = (int)c->a[0].i;
  if (x->size[d] % 2) return amp__fail(AMP_E_SHAPE, "dimension %d has size %lld, which can't be halved", d + 1, (long long)x->size[d]);
  int64_t h = x->size[d] / 2;
  amp_tensor *y = X2(mul, wide(amp__xnarrow(x, d, 0, h)), X1(sigmoid, wide(amp__xnarrow(x, d, h, h))));
  return amp__ret(c, 0, amp__xcast(y, x->dtype));
}

int amp__comp_prelu(amp_call *c) {
  amp_tensor *x = c->in[0], *w = c->in[1];
  int64_t size[AMP_MAX_DIM] = { 0 }, channels = x->ndim > 1 ? x->size[1] : 1;
  if (x->dtype != w->dtype) return amp__fail(AMP_E_DTYPE, "input is %s, weight %s; cast one", amp_dtype_name(x->dtype), amp_dtype_name(w->dtype));
  if (w->ndim > 1 || (w->numel != 1 && w->numel != channels))
    return amp__fail(AMP_E_SHAPE, "weight of shape %s: one slope is expected, or %lld, one a channel of the input's shape %s",
                     amp__shape_str(w->ndim, w->size), (long long)channels, amp__shape_str(x->ndim, x->size));
  for (int d = 0; d < x->ndim; d++) size[d] = d == 1 && w->numel != 1 ? channels : 1;
  if (x->ndim > 0) w = amp__xview(w, x->ndim, size);
  else w = amp__xview(w, 0, size);
  return amp__ret(c, 0, amp__xwhere(XN(gt, x, 0), x, X2(mul, w, x)));
}

int amp__comp_isclose(amp_call *c) {
  amp_tensor *a = c->in[0], *b = c->in[1];
  double rtol = c->a[0].f, atol = c->a[1].f;
  if (!(rtol >= 0 && atol >= 0)) return amp__fail(AMP_E_VALUE, "rtol %g and atol %g must not be negative", rtol, atol);
  if (!amp__is_float(a->dtype) && !amp__is_float(b->dtype)) { a = amp__xcast(a, AMP_FLOAT64); b = amp__xcast(b, AMP_FLOAT64); }
  amp_tensor *near = X2(le, X1(abs, X2(sub, a, b)), XN(add, XN(mul, X1(abs, b), rtol), atol));
  amp_tensor *close = X2(logical_or, X2(eq, a, b), X2(logical_and, near, X2(logical_and, X1(isfinite, a), X1(isfinite, b))));
  if (c->a[2].i) close = X2(logical_or, close, X2(logical_and, X1(isnan, a), X1(isnan, b)));
  return amp__ret(c, 0, close);
}
