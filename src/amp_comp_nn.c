/*
** amp_comp_nn.c: composite products and losses. Products are matmul with the
** shapes checked that their names promise. Losses are formulas that stay
** finite; outside an autocast region they want equal dtypes, as their
** parts would not.
*/
#include "amp_bwd.h"

/* -- Products --------------------------------------------------------------------- */

static int want_dims(const amp_call *c, int i, int ndim, const char *what) {
  const amp_tensor *t = c->in[i];
  if (t->ndim == ndim) return 0;
  return amp__fail_arg(AMP_E_SHAPE, i + 1, "argument %d should be %s (%d dimension%s), got shape %s", i + 1, what, ndim, ndim == 1 ? "" : "s",
                       amp__shape_str(t->ndim, t->size));
}

static int want_dtype(const amp_tensor *a, const amp_tensor *b) {
  if (!b || a->dtype == b->dtype) return 0;
  return amp__fail(AMP_E_DTYPE, "equal dtypes are expected, got %s and %s; cast one", amp_dtype_name(a->dtype), amp_dtype_name(b->dtype));
}

/* The inner dimensions of a @ b agree, and, of batches, the first. */
static int want_fit(const amp_tensor *a, const amp_tensor *b, int first, int second) {
  if (a->size[first] != b->size[second])
    return amp__fail(AMP_E_SHAPE, "shapes %s and %s don't fit: dimension %d of the first is %lld, dimension %d of the second is %lld",
                     amp__shape_str(a->ndim, a->size), amp__shape_str(b->ndim, b->size), first + 1, (long long)a->size[first],
                     second + 1, (long long)b->size[second]);
  return 0;
}

static int product(amp_call *c, int i, int da, int db, const char *wa, const char *wb) {
  int rc;
  const amp_tensor *a = c->in[i], *b = c->in[i + 1];
  if ((rc = want_dims(c, i, da, wa)) < 0 || (rc = want_dims(c, i + 1, db, wb)) < 0) return rc;
  if (da == 3 && (rc = want_fit(a, b, 0, 0)) < 0) return rc;
  if ((rc = want_fit(a, b, da - 1, db == 3)) < 0) return rc;
  return want_dtype(a, b);
}

int amp__comp_mm(amp_call *c) {
  int rc = product(c, 0, 2, 2, "a matrix", "a matrix");
  return rc < 0 ? rc : amp__ret(c, 0, X2(matmul, c->in[0], c->in[1]));
}

int amp__comp_bmm(amp_call *c) {
  int rc = product(c, 0, 3, 3, "a batch of matrices", "a batch of matrices");
  return rc < 0 ? rc : amp__ret(c, 0, X2(matmul, c->in[0], c->in[1]));
}

int amp__comp_mv(amp_call *c) {
  int rc = product(c, 0, 2, 1, "a matrix", "a vector");
  return rc < 0 ? rc : amp__ret(c, 0, X2(matmul, c->in[0], c->in[1]));
}

int amp__comp_dot(amp_call *c) {
  int rc = product(c, 0, 1, 1, "a vector", "a vector");
  return rc < 0 ? rc : amp__ret(c, 0, X2(matmul, c->in[0], c->in[1]));
}

/* beta * input + alpha * product; beta 0 leaves input out, whatever it holds. */
static int add_product(amp_call *c, int ndim, const char *what) {
  amp_tensor *x = c->in[0], *a = c->in[1], *b = c->in[2];
  double beta = c->a[0].f, alpha = c->a[1].f;
  int64_t size[3];
  int rc = product(c, 1, ndim, ndim, what, what);
  if (rc == 0) rc = want_dtype(x, a);
  if (rc < 0) return rc;
  for (int i = 0; i < ndim; i++) size[i] = i == ndim - 1 ? b->size[i] : a->size[i];
  for (int i = 0; i < x->ndim; i++) {
    int d = i + ndim - x->ndim;
    if (d < 0 || (x->size[i] != 1 && x->size[i] != size[d]))
      return amp__fail_arg(AMP_E_SHAPE, 1, "input of shape %s can't be broadcast to the product's shape %s",
                           amp__shape_str(x->ndim, x->size), amp__shape_str(ndim, size));
  }
  amp_tensor *p = X2(matmul, a, b);
  if (beta == 0) return amp__ret(c, 0, alpha == 1 ? p : XN(mul, p, alpha));
  amp_tensor *in[2] = { beta == 1 ? x : XN(mul, x, beta), p };
  amp_sl s = amp__sl();
  amp__sl_f(&s, alpha);
  return amp__ret(c, 0, amp__x(AMP_OP_add, &s, 2, in));
}

int amp__comp_addmm(amp_call *c) { return add_product(c, 2, "a matrix"); }
int amp__comp_baddbmm(amp_call *c) { return add_product(c, 3, "a batch of matrices"); }

/* -- Losses ----------------------------------------------------------------------- */

enum { NONE, MEAN, SUM };

static amp_tensor *mul(amp_tensor *a, amp_tensor *b) { return X2(mul, a, b); }
static amp_tensor *one_minus(amp_tensor *a) { return NX(sub, 1, a); }

static amp_tensor *reduced(amp_tensor *t, int64_t reduction) {
  return reduction == NONE ? t : reduction == MEAN ? amp__xmean(t, -1, NULL, false) : amp__xsum(t, -1, NULL, false);
}

static int want_same(const amp_call *c) {
  const amp_tensor *x = c->in[0], *y = c->in[1];
  if (amp__same_size(x, y)) return 0;
  return amp__fail_arg(AMP_E_SHAPE, 2, "target should have the shape of input: input is %s, target is %s",
                       amp__shape_str(x->ndim, x->size), amp__shape_str(y->ndim, y->size));
}

/* Probabilities as target: -sum_c w_c t_c log_softmax(x)_c */
static int soft_cross_entropy(amp_call *c) {
  amp_tensor *x = c->in[0], *t = c->in[1], *w = c->in[2];
  int64_t reduction = c->a[0].i;
  double smooth = c->a[2].f;
  int cd = x->ndim > 1 ? 1 : 0, rc;
  if ((rc = want_same(c)) < 0 || (rc = want_dtype(x, t)) < 0) return rc;
  int64_t classes = x->size[cd];
  if (smooth > 0) t = XN(add, XN(mul, t, 1 - smooth), smooth / (double)classes);
  amp_tensor *y = mul(amp__xdim(AMP_OP_log_softmax, cd, 1, &x), t);
  if (w) {
    int64_t size[AMP_MAX_DIM];
    if ((rc = want_dtype(x, w)) < 0) return rc;
    if (w->ndim != 1 || w->size[0] != classes)
      return amp__fail_arg(AMP_E_SHAPE, 3, "weight should have one element for each of %lld classes, got shape %s",
                           (long long)classes, amp__shape_str(w->ndim, w->size));
    for (int i = 0; i < x->ndim; i++) size[i] = i == cd ? classes : 1;
    y = mul(y, amp__xview(w, x->ndim, size));
  }
  y = X1(neg, reduction == NONE ? amp__xsum(y, 1, &cd, false) : amp__xsum(y, -1, NULL, false));
  return amp__ret(c, 0, reduction == MEAN ? XN(div, y, (double)x->numel / (double)classes) : y);
}

int amp__comp_cross_entropy(amp_call *c) {
  const amp_tensor *x = c->in[0], *t = c->in[1];
  double smooth = c->a[2].f;
  if (!(smooth >= 0 && smooth <= 1))
    return amp__fail(AMP_E_ARGUMENT, "label_smoothing %g is outside 0 to 1", smooth);
  if (!amp__is_float(x->dtype))
    return amp__fail_arg(AMP_E_DTYPE, 1, "input (logits) has dtype %s, expected a float dtype", amp_dtype_name(x->dtype));
  if (x->ndim == 0) return amp__fail_arg(AMP_E_SHAPE, 1, "input (logits) has no dimension of classes");
  if (amp__is_float(t->dtype)) return soft_cross_entropy(c);
  amp_sl s = amp__sl();
  amp__sl_copy(&s, c->a, 3);
  return amp__ret(c, 0, amp__x(AMP_OP_cross_entropy_index, &s, 3, c->in));
}

int amp__comp_l1_loss(amp_call *c) {
  int rc = want_same(c);
  if (rc == 0) rc = want_dtype(c->in[0], c->in[1]);
  return rc < 0 ? rc : amp__ret(c, 0, reduced(X1(abs, X2(sub, c->in[0], c->in[1])), c->a[0].i));
}

/* (1 - t) x - (1 + (pos_weight - 1) t) log_sigmoid(x) */
int amp__comp_bce_with_logits(amp_call *c) {
  amp_tensor *x = c->in[0], *t = c->in[1], *w = c->in[2], *pos = c->in[3];
  int rc;
  if ((rc = want_same(c)) < 0 || (rc = want_dtype(x, t)) < 0 || (rc = want_dtype(x, w)) < 0 || (rc = want_dtype(x, pos)) < 0) return rc;
  amp_tensor *l = X1(log_sigmoid, x);
  if (pos) l = mul(l, XN(add, mul(XN(sub, pos, 1), t), 1));
  l = X2(sub, mul(one_minus(t), x), l);
  return amp__ret(c, 0, reduced(w ? mul(l, w) : l, c->a[0].i));
}

/* -(t log x + (1 - t) log(1 - x)), logarithms not under -100 */
static amp_tensor *bounded_bce(amp_tensor *x, amp_tensor *t) {
  amp_sl s = amp__sl();
  amp__sl_f(&s, -100);
  amp__sl_i(&s, AMP_NONE);
  amp_tensor *a = X1(log, x), *b = X1(log1p, X1(neg, x));
  a = amp__x(AMP_OP_clamp, &s, 1, &a);
  b = amp__x(AMP_OP_clamp, &s, 1, &b);
  return X1(neg, X2(add, mul(t, a), mul(one_minus(t), b)));
}

/* The gradient is (x - t) / max(x (1 - x), tiny). Where x (1 - x) < tiny the formula
** above has none that is finite: there the value is held and a line of that slope added. */
int amp__comp_binary_cross_entropy(amp_call *c) {
  amp_tensor *x = c->in[0], *t = c->in[1], *w = c->in[2], *l;
  int rc;
  if ((rc = want_same(c)) < 0 || (rc = want_dtype(x, t)) < 0 || (rc = want_dtype(x, w)) < 0) return rc;
  if (amp__S->grad_mode && amp__tracked(x)) {
    double tiny = x->dtype == AMP_FLOAT16 ? 1.0 / 32768 : 1e-12;
    amp_tensor *held = amp__xdetach(x);
    amp_tensor *edge = XN(lt, mul(held, one_minus(held)), tiny);
    amp_tensor *line = mul(XN(div, X2(sub, held, amp__xdetach(t)), tiny), X2(sub, x, held));
    l = amp__xwhere(edge, X2(add, bounded_bce(held, t), line), bounded_bce(amp__xfill(edge, x, 0.5), t));
  } else l = bounded_bce(x, t);
  return amp__ret(c, 0, reduced(w ? mul(l, w) : l, c->a[0].i));
}
