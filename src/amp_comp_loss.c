/*
** amp_comp_loss.c: composite losses. Those of pairs of elements are checks around
** pair_loss; the others are formulas that stay finite. Outside an autocast region
** they want equal dtypes, as their parts would not. 16-bit losses are computed in
** float32 and rounded once, so a formula of many parts is as exact as one.
** Labels are checked by nll_loss, which the formulas with labels read scores with.
*/
#include "amp_products.h"

enum { NONE, MEAN, SUM, BATCHMEAN };
enum { L1, SMOOTH_L1, HUBER, KL, KL_LOG, BCE, SOFT_MARGIN, HINGE, POISSON, POISSON_LOG, BCE_PROBS }; /* pair_loss's words */

static amp_tensor *mul(amp_tensor *a, amp_tensor *b) { return X2(mul, a, b); }
static amp_tensor *one_minus(amp_tensor *a) { return NX(sub, 1, a); }
static amp_tensor *at_least(amp_tensor *a, double low) {
  amp_sl s = amp__sl();
  amp__sl_f(&s, low);
  amp__sl_i(&s, AMP_NONE);
  return amp__x(AMP_OP_clamp, &s, 1, &a);
}

static amp_tensor *reduced(amp_tensor *t, int64_t reduction) {
  return reduction == NONE ? t : reduction == MEAN ? amp__xmean(t, -1, NULL, false) : amp__xsum(t, -1, NULL, false);
}

/* The losses t, reduced and in the dtype of the first argument */
static int result(amp_call *c, amp_tensor *t, int64_t reduction) {
  t = reduced(t, reduction);
  return amp__ret(c, 0, t && t->dtype != c->in[0]->dtype ? amp__xcast(t, c->in[0]->dtype) : t);
}

/* 16-bit inputs as float32, from the first to the n-th; `in` receives them. */
static int widened(const amp_call *c, int n, amp_tensor **in) {
  for (int i = 0; i < n; i++) {
    in[i] = c->in[i];
    if (in[i] && amp__is_half(in[i]->dtype) && !(in[i] = amp__xcast(in[i], AMP_FLOAT32))) return amp__err();
  }
  return 0;
}

static int want_same(const amp_call *c) {
  const amp_tensor *x = c->in[0], *y = c->in[1];
  if (amp__same_size(x, y)) return 0;
  return amp__fail_arg(AMP_E_SHAPE, 2, "target should have the shape of input: input is %s, target is %s",
                       amp__shape_str(x->ndim, x->size), amp__shape_str(y->ndim, y->size));
}
static int want_float(const amp_call *c, int i, const char *what) {
  if (amp__is_float(c->in[i]->dtype)) return 0;
  return amp__fail_arg(AMP_E_DTYPE, i + 1, "%s has dtype %s, expected a float dtype", what, amp_dtype_name(c->in[i]->dtype));
}
static int want_number(double v, double low, const char *what) {
  if (v >= low) return 0;
  return amp__fail(AMP_E_VALUE, "%s %g should be %s%g", what, v, low > 0 ? "above " : "at least ", low > 0 ? 0.0 : low);
}

/* -- Pairs of elements ------------------------------------------------------------------ */

static amp_tensor *pair(amp_tensor *x, amp_tensor *t, int64_t reduction, int kind, double p) {
  amp_tensor *in[2] = { x, t };
  amp_sl s = amp__sl();
  amp__sl_i(&s, reduction);
  amp__sl_i(&s, kind);
  amp__sl_f(&s, p);
  return amp__x(AMP_OP_pair_loss, &s, 2, in);
}

static int pair_loss(amp_call *c, int64_t reduction, int kind, double p) {
  int rc = want_same(c);
  if (rc == 0) rc = amp__want_dtype(c->in[0], c->in[1]);
  return rc < 0 ? rc : amp__ret(c, 0, pair(c->in[0], c->in[1], reduction, kind, p));
}

int amp__comp_l1_loss(amp_call *c) { return pair_loss(c, c->a[0].i, L1, 0); }
int amp__comp_soft_margin_loss(amp_call *c) { return pair_loss(c, c->a[0].i, SOFT_MARGIN, 0); }
int amp__comp_hinge_embedding_loss(amp_call *c) { return pair_loss(c, c->a[1].i, HINGE, c->a[0].f); }

int amp__comp_smooth_l1_loss(amp_call *c) {
  int rc = want_number(c->a[1].f, 0, "beta");
  return rc < 0 ? rc : pair_loss(c, c->a[0].i, SMOOTH_L1, c->a[1].f);
}

int amp__comp_huber_loss(amp_call *c) {
  int rc = want_number(c->a[1].f, 5e-324, "delta");
  return rc < 0 ? rc : pair_loss(c, c->a[0].i, HUBER, c->a[1].f);
}

int amp__comp_kl_div(amp_call *c) {
  int kind = c->a[1].i ? KL_LOG : KL, rc;
  if (c->a[0].i != BATCHMEAN) return pair_loss(c, c->a[0].i, kind, 0);
  amp_tensor *in[2];
  if ((rc = want_same(c)) < 0 || (rc = amp__want_dtype(c->in[0], c->in[1])) < 0 || (rc = widened(c, 2, in)) < 0) return rc;
  if (c->in[0]->ndim == 0) return amp__fail(AMP_E_SHAPE, "reduction 'batchmean' divides by the first dimension; input is a scalar");
  return result(c, XN(div, pair(in[0], in[1], SUM, kind, 0), (double)c->in[0]->size[0]), NONE);
}

/* t log t - t + log(2 pi t) / 2 where t > 1: Stirling's form of log t! */
static amp_tensor *stirling(amp_tensor *t) {
  amp_tensor *large = XN(gt, t, 1), *s = t ? amp__xfill(X1(logical_not, large), t, 2) : NULL;
  amp_tensor *l = X1(log, s);
  return amp__xmask(large, XN(add, X2(add, X2(sub, mul(s, l), s), XN(mul, l, 0.5)), 0.91893853320467274178));
}

int amp__comp_poisson_nll_loss(amp_call *c) {
  int kind = c->a[0].i ? POISSON_LOG : POISSON, rc;
  int64_t reduction = c->a[3].i;
  if (!c->a[1].i) return pair_loss(c, reduction, kind, c->a[2].f);
  amp_tensor *in[2];
  if ((rc = want_same(c)) < 0 || (rc = amp__want_dtype(c->in[0], c->in[1])) < 0 || (rc = widened(c, 2, in)) < 0) return rc;
  return result(c, X2(add, pair(in[0], in[1], NONE, kind, c->a[2].f), stirling(in[1])), reduction);
}

static amp_tensor *weighted(amp_tensor *l, amp_tensor *w) { return w ? mul(l, w) : l; }

/* w ((1 - t) x - (1 + (pos_weight - 1) t) log_sigmoid(x)): without pos_weight the fused form */
int amp__comp_bce_with_logits(amp_call *c) {
  amp_tensor *x = c->in[0], *t = c->in[1], *w = c->in[2], *pos = c->in[3], *in[4], *l;
  int rc;
  if ((rc = want_same(c)) < 0 || (rc = amp__want_dtype(x, t)) < 0 || (rc = amp__want_dtype(x, w)) < 0 || (rc = amp__want_dtype(x, pos)) < 0) return rc;
  if (!w && !pos) return amp__ret(c, 0, pair(x, t, c->a[0].i, BCE, 0));
  if ((rc = widened(c, 4, in)) < 0) return rc;
  x = in[0]; t = in[1]; w = in[2]; pos = in[3];
  if (pos) {
    l = mul(X1(log_sigmoid, x), XN(add, mul(XN(sub, pos, 1), t), 1));
    l = X2(sub, mul(one_minus(t), x), l);
  } else l = pair(x, t, NONE, BCE, 0);
  return result(c, weighted(l, w), c->a[0].i);
}

/* -(t log x + (1 - t) log(1 - x)), logarithms not under -100; the slope is (x - t) / max(x (1 - x), p), with a
** p that the dtype can tell from 0 */
int amp__comp_binary_cross_entropy(amp_call *c) {
  amp_tensor *x = c->in[0], *t = c->in[1], *w = c->in[2], *in[3];
  double p = x->dtype == AMP_FLOAT16 ? 1.0 / 32768 : 1e-12;
  int rc;
  if ((rc = want_same(c)) < 0 || (rc = amp__want_dtype(x, t)) < 0 || (rc = amp__want_dtype(x, w)) < 0) return rc;
  if (!w) return amp__ret(c, 0, pair(x, t, c->a[0].i, BCE_PROBS, p));
  if ((rc = widened(c, 3, in)) < 0) return rc;
  return result(c, weighted(pair(in[0], in[1], NONE, BCE_PROBS, p), in[2]), c->a[0].i);
}

/* (log v + (x - t)^2 / v) / 2 with v = max(var, eps), through which the gradient passes unchanged */
int amp__comp_gaussian_nll_loss(amp_call *c) {
  amp_tensor *in[3], *x, *t, *v = c->in[2];
  double eps = c->a[1].f;
  int rc;
  if ((rc = want_float(c, 0, "input")) < 0 || (rc = want_same(c)) < 0 || (rc = amp__want_dtype(c->in[0], c->in[1])) < 0 || (rc = want_number(eps, 5e-324, "eps")) < 0) return rc;
  x = c->in[0];
  if (amp__is_number(v)) v = amp__xfull(amp__element(v, 0), x->dtype, x->device, x->device_index, 0, NULL);
  else {
    if ((rc = amp__want_dtype(x, v)) < 0) return rc;
    int n = x->ndim - 1;
    bool rows = n >= 0 && memcmp(x->size, v->size, sizeof(int64_t) * (size_t)n) == 0 && (v->ndim == n || (v->ndim == n + 1 && v->size[n] == 1));
    if (!rows && !amp__same_size(x, v))
      return amp__fail_arg(AMP_E_SHAPE, 3, "var has shape %s, expected that of input, %s, or one value for its last dimension", amp__shape_str(v->ndim, v->size), amp__shape_str(x->ndim, x->size));
    if (rows && v->ndim == n) v = amp__xunsqueeze(v, -1);
  }
  OR_FAIL(v);
  if (v->device == AMP_CPU && v->numel) { /* a look at a GPU's values would wait for it */
    amp_tensor *bad = amp__xdetach(v);
    bad = bad ? X1(amin, bad) : NULL;
    OR_FAIL(bad);
    if (amp__element(bad, 0) < 0) return amp__fail_arg(AMP_E_VALUE, 3, "var has a negative element, %g", amp__element(bad, 0));
  }
  amp_tensor *held = c->in[2];
  c->in[2] = v;
  rc = widened(c, 3, in);
  c->in[2] = held;
  if (rc < 0) return rc;
  x = in[0]; t = in[1]; v = in[2];
  amp_tensor *fixed = amp__xdetach(v);
  v = X2(add, v, at_least(NX(sub, eps, fixed), 0)); /* the gradient goes straight through the limit */
  amp_tensor *l = XN(mul, X2(add, X1(log, v), X2(div, X1(square, X2(sub, x, t)), v)), 0.5);
  if (c->a[0].i) l = XN(add, l, 0.91893853320467274178);
  return result(c, l, c->a[2].i);
}

/* -- Rows of two or three tensors ---------------------------------------------------------- */

/* 1 - cos where the target is 1, max(0, cos - margin) where it is -1 */
int amp__comp_cosine_embedding_loss(amp_call *c) {
  amp_tensor *a, *b, *t, *in[3];
  int rc, last = -1;
  if ((rc = want_float(c, 0, "input1")) < 0 || (rc = amp__want_dtype(c->in[0], c->in[1])) < 0 || (rc = widened(c, 3, in)) < 0) return rc;
  a = in[0]; b = in[1]; t = in[2];
  if (!amp__same_size(a, b) || (a->ndim != 1 && a->ndim != 2))
    return amp__fail_arg(AMP_E_SHAPE, 2, "input1 is %s and input2 %s; both should be N x D, or vectors", amp__shape_str(a->ndim, a->size), amp__shape_str(b->ndim, b->size));
  if (t->ndim != a->ndim - 1 || (t->ndim && t->size[0] != a->size[0]))
    return amp__fail_arg(AMP_E_SHAPE, 3, "target has shape %s, expected %s: 1 or -1 for each row of input1 %s", amp__shape_str(t->ndim, t->size),
                         amp__shape_str(a->ndim - 1, a->size), amp__shape_str(a->ndim, a->size));
  amp_tensor *ab = amp__xsum(mul(a, b), 1, &last, false), *aa = XN(add, amp__xsum(X1(square, a), 1, &last, false), 1e-12);
  amp_tensor *bb = XN(add, amp__xsum(X1(square, b), 1, &last, false), 1e-12), *cosine = X2(div, ab, X1(sqrt, mul(aa, bb)));
  amp_tensor *near = amp__xmask(XN(eq, t, 1), one_minus(cosine)), *far = amp__xmask(XN(eq, t, -1), at_least(XN(sub, cosine, c->a[0].f), 0));
  return result(c, X2(add, near, far), c->a[1].i);
}

int amp__comp_margin_ranking_loss(amp_call *c) {
  amp_tensor *in[3];
  int rc;
  if ((rc = want_float(c, 0, "input1")) < 0 || (rc = amp__want_dtype(c->in[0], c->in[1])) < 0 || (rc = widened(c, 3, in)) < 0) return rc;
  if (in[0]->ndim != in[1]->ndim || in[0]->ndim != in[2]->ndim)
    return amp__fail(AMP_E_SHAPE, "input1, input2 and target should have as many dimensions: they are %s, %s and %s", amp__shape_str(in[0]->ndim, in[0]->size),
                     amp__shape_str(in[1]->ndim, in[1]->size), amp__shape_str(in[2]->ndim, in[2]->size));
  amp_tensor *l = mul(in[2], X2(sub, in[1], in[0]));
  return result(c, at_least(c->a[0].f == 0 ? l : XN(add, l, c->a[0].f), 0), c->a[1].i);
}

/* p-norm of a - b + eps over the last dimension */
static amp_tensor *distance(amp_tensor *a, amp_tensor *b, double p, double eps) {
  amp_tensor *d = XN(add, X2(sub, a, b), eps);
  if (!d) return NULL;
  amp_sl s = amp__sl();
  int64_t last = -1;
  amp__sl_f(&s, p);
  amp__sl_list(&s, 1, &last);
  amp__sl_i(&s, 0);
  amp__sl_i(&s, AMP_NONE);
  return amp__x(AMP_OP_norm, &s, 1, &d);
}

int amp__comp_triplet_margin_loss(amp_call *c) {
  double margin = c->a[0].f, p = c->a[1].f, eps = c->a[2].f;
  amp_tensor *in[3];
  int rc;
  for (int i = 1; i < 3; i++) {
    if ((rc = amp__want_dtype(c->in[0], c->in[i])) < 0) return rc;
    if (c->in[i]->ndim != c->in[0]->ndim)
      return amp__fail_arg(AMP_E_SHAPE, i + 1, "anchor, positive and negative should have as many dimensions: they are %s, %s and %s", amp__shape_str(c->in[0]->ndim, c->in[0]->size),
                           amp__shape_str(c->in[1]->ndim, c->in[1]->size), amp__shape_str(c->in[2]->ndim, c->in[2]->size));
  }
  if (c->in[0]->ndim == 0) return amp__fail_arg(AMP_E_SHAPE, 1, "anchor is a scalar; distances are taken along the last dimension");
  if ((rc = want_number(p, 5e-324, "p")) < 0 || (rc = want_number(margin, 5e-324, "margin")) < 0 || (rc = widened(c, 3, in)) < 0) return rc;
  amp_tensor *near = distance(in[0], in[1], p, eps), *far = distance(in[0], in[2], p, eps);
  if (c->a[3].i) far = X2(minimum, far, distance(in[1], in[2], p, eps));
  return result(c, at_least(XN(add, X2(sub, near, far), margin), 0), c->a[4].i);
}

/* -- Labels ------------------------------------------------------------------------------ */

/* Elements of x (N x C or C) at each row's label; NULL with an error if a label is none */
static amp_tensor *at_label(amp_tensor *x, amp_tensor *target) {
  amp_tensor *in[3] = { x, target, NULL };
  amp_sl s = amp__sl();
  amp__sl_i(&s, NONE);
  amp__sl_i(&s, INT64_MIN + 8); /* no label is ignored */
  return X1(neg, amp__x(AMP_OP_nll_loss, &s, 3, in));
}

int amp__comp_multi_margin_loss(amp_call *c) {
  amp_tensor *x, *t = c->in[1], *w, *in[3];
  int64_t p = c->a[0].i;
  double margin = c->a[1].f;
  int rc, last = -1;
  if ((rc = want_float(c, 0, "input")) < 0 || (rc = amp__want_dtype(c->in[0], c->in[2])) < 0 || (rc = widened(c, 3, in)) < 0) return rc;
  x = in[0]; w = in[2];
  if (p != 1 && p != 2) return amp__fail(AMP_E_ARGUMENT, "p should be 1 or 2, got %lld", (long long)p);
  if (x->ndim != 1 && x->ndim != 2) return amp__fail_arg(AMP_E_SHAPE, 1, "input should be N x C or a vector of C scores, got shape %s", amp__shape_str(x->ndim, x->size));
  int64_t classes = x->size[x->ndim - 1];
  if (classes == 0) return amp__fail_arg(AMP_E_SHAPE, 1, "input %s has no classes", amp__shape_str(x->ndim, x->size));
  if (w && (w->ndim != 1 || w->size[0] != classes))
    return amp__fail_arg(AMP_E_SHAPE, 3, "weight has shape %s, expected %lld, one a class", amp__shape_str(w->ndim, w->size), (long long)classes);
  amp_tensor *own = at_label(x, t);     /* checks the target too */
  OR_FAIL(own);
  amp_tensor *column = amp__xunsqueeze(t, -1), *place = NULL, *l;
  amp_sl s = amp__sl();                 /* 1 .. C */
  amp__sl_f(&s, 1);
  amp__sl_f(&s, (double)classes + 1);
  amp__sl_f(&s, 1);
  amp__sl_i(&s, AMP_INT64);
  amp__sl_i(&s, x->device * 256 + x->device_index);
  place = amp__x(AMP_OP_arange, &s, 0, NULL);
  l = at_least(XN(add, X2(sub, x, amp__xunsqueeze(own, -1)), margin), 0);
  if (p == 2) l = X1(square, l);
  l = amp__xsum(amp__xfill(X2(eq, column, place), l, 0), 1, &last, false);
  if (w) l = mul(l, at_label(amp__xexpand(w, x->ndim, x->size), t));
  return result(c, XN(div, l, (double)classes), c->a[2].i);
}

int amp__comp_multilabel_soft_margin_loss(amp_call *c) {
  amp_tensor *in[3];
  int rc, last = -1;
  if ((rc = want_same(c)) < 0 || (rc = amp__want_dtype(c->in[0], c->in[1])) < 0 || (rc = amp__want_dtype(c->in[0], c->in[2])) < 0 || (rc = widened(c, 3, in)) < 0) return rc;
  if (in[0]->ndim == 0) return amp__fail_arg(AMP_E_SHAPE, 1, "input is a scalar; its last dimension should be the classes");
  return result(c, amp__xmean(weighted(pair(in[0], in[1], NONE, BCE, 0), in[2]), 1, &last, false), c->a[0].i);
}

/* Whether a float target has the shape that class labels of x would have. */
static bool labels_shape(const amp_tensor *x, const amp_tensor *t) {
  if (t->ndim != x->ndim - 1) return false;
  for (int d = 0; d < t->ndim; d++)
    if (t->size[d] != x->size[x->ndim == 1 || d == 0 ? d : d + 1]) return false;
  return true;
}

/* Probabilities as target: -sum_c w_c t_c log_softmax(x)_c */
static int soft_cross_entropy(amp_call *c) {
  amp_tensor *x = c->in[0], *t = c->in[1], *w = c->in[2];
  int64_t reduction = c->a[0].i;
  double smooth = c->a[2].f;
  int cd = x->ndim > 1 ? 1 : 0, rc;
  if (labels_shape(x, t))
    return amp__fail_arg(AMP_E_DTYPE, 2, "target has dtype %s and, for input of shape %s, the shape of class labels, %s: class labels are integers: labels:long(), "
                         "or {dtype = 'int64'} where they are made; probabilities have the shape of input", amp_dtype_name(t->dtype),
                         amp__shape_str(x->ndim, x->size), amp__shape_str(t->ndim, t->size));
  if ((rc = want_same(c)) < 0 || (rc = amp__want_dtype(x, t)) < 0) return rc;
  int64_t classes = x->size[cd];
  if (smooth > 0) t = XN(add, XN(mul, t, 1 - smooth), smooth / (double)classes);
  amp_tensor *y = mul(amp__xdim(AMP_OP_log_softmax, cd, 1, &x), t);
  if (w) {
    int64_t size[AMP_MAX_DIM];
    if ((rc = amp__want_dtype(x, w)) < 0) return rc;
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
  if (amp__is_float(t->dtype)) {
    if (c->a[1].i >= 1)
      return amp__fail(AMP_E_ARGUMENT, "ignore_index %lld has no meaning for a target of probabilities (%s); it is one of labels", (long long)c->a[1].i, amp_dtype_name(t->dtype));
    amp_tensor *in[3] = { c->in[0], c->in[1], c->nin > 2 ? c->in[2] : NULL };
    if (c->flags & AMP_WIDEN)
      for (int i = 0; i < 3; i++)
        if (in[i]) OR_FAIL(c->in[i] = amp__xcast(in[i], AMP_FLOAT32));
    return soft_cross_entropy(c);
  }
  amp_sl s = amp__sl();
  amp__sl_copy(&s, c->a, 3);
  amp__sl_i(&s, (c->flags & AMP_WIDEN) != 0);
  return amp__ret(c, 0, amp__x(AMP_OP_cross_entropy_index, &s, 3, c->in));
}

/* -- Sequences ---------------------------------------------------------------------------- */

/* An infinite loss is 0 with zero_infinity; the mean is over sequences of loss / target length. */
int amp__comp_ctc_loss(amp_call *c) {
  amp_tensor *x = c->in[0], *in[4] = { x, c->in[1], c->in[2], c->in[3] };
  int64_t reduction = c->a[1].i;
  int rc;
  if ((rc = want_float(c, 0, "log_probs")) < 0) return rc;
  bool one = x->ndim == 2;
  if (one) {
    if (in[1]->ndim != 1) return amp__fail_arg(AMP_E_SHAPE, 2, "targets should be a vector for log_probs %s (T x C), got shape %s", amp__shape_str(x->ndim, x->size), amp__shape_str(in[1]->ndim, in[1]->size));
    in[0] = amp__xunsqueeze(x, 1);
  }
  int64_t single = 1;
  for (int i = 2; i < 4; i++)
    if (in[i]->ndim == 0 && (one || x->size[1] == 1)) in[i] = amp__xview(in[i], 1, &single);
  for (int i = 0; i < 4; i++) OR_FAIL(in[i]);
  if (amp__is_half(x->dtype)) OR_FAIL(in[0] = amp__xcast(in[0], AMP_FLOAT32));
  amp_sl s = amp__sl();
  amp__sl_i(&s, c->a[0].i);
  amp_tensor *l = amp__x(AMP_OP_ctc, &s, 4, in);
  OR_FAIL(l);
  if (c->a[2].i) l = amp__xfill(X1(isinf, l), l, 0);
  if (reduction == MEAN) {
    amp_tensor *length = at_least(in[3], 1);
    length = length ? amp__xcast(length, in[0]->dtype) : NULL;
    l = length ? X2(div, l, length) : NULL;
  }
  if (one && l && reduction == NONE) l = amp__xview(l, 0, NULL);
  return result(c, l, reduction);
}
