/*
** ops/loss/loss_composite.c: composite losses that stay finite. Those of pairs of elements are in pair_composite.c.
** Outside an autocast region they want equal dtypes, as their parts would not. 16-bit losses are computed in
** float32 and rounded once, so a formula of many parts is as exact as one. Labels are checked by nll_loss, which
** the formulas with labels read scores with.
*/
#include <math.h>
#include "ops/loss/loss_composite.h"

static amp_tensor *mul(amp_tensor *a, amp_tensor *b) { return OP2(mul, a, b); }
static amp_tensor *weighted(amp_tensor *loss, amp_tensor *w) { return w ? mul(loss, w) : loss; }
static amp_tensor *one_minus(amp_tensor *a) { return NUMBER_OP(sub, 1, a); }
static amp_tensor *at_least(amp_tensor *a, double low)
{
  amp_attrs s = amp__attrs();
  amp__attrs_float(&s, low);
  amp__attrs_int(&s, AMP_NONE);
  return amp__op(AMP_OP_clamp, &s, 1, &a);
}

static amp_tensor *reduced(amp_tensor *t, int64_t reduction)
{
  return reduction == REDUCTION_NONE   ? t
         : reduction == REDUCTION_MEAN ? amp__op_mean(t, -1, NULL, false)
                                       : amp__op_sum(t, -1, NULL, false);
}

int amp__loss_result(amp_call *c, amp_tensor *t, int64_t reduction)
{
  t = reduced(t, reduction);
  return amp__result(c, 0, t && t->dtype != c->in[0]->dtype ? amp__op_cast(t, c->in[0]->dtype) : t);
}

int amp__loss_widened(const amp_call *c, int n, amp_tensor **in)
{
  for (int i = 0; i < n; i++) {
    in[i] = c->in[i];
    if (in[i] && amp__is_half(in[i]->dtype) && !(in[i] = amp__op_cast(in[i], AMP_FLOAT32))) return amp__err();
  }
  return 0;
}

int amp__loss_same_size(const amp_call *c)
{
  const amp_tensor *x = c->in[0], *y = c->in[1];
  if (amp__same_size(x, y)) return 0;
  return amp__fail_arg(AMP_E_SHAPE, 2, "target should have the shape of input: input is %s, target is %s",
                       amp__shape_str(x->ndim, x->size), amp__shape_str(y->ndim, y->size));
}
static int want_float(const amp_call *c, int i, const char *what)
{
  if (amp__is_float(c->in[i]->dtype)) return 0;
  return amp__fail_arg(AMP_E_DTYPE, i + 1, "%s has dtype %s, expected a float dtype", what,
                       amp_dtype_name(c->in[i]->dtype));
}
int amp__loss_number(double v, double low, const char *what)
{
  if (v >= low) return 0;
  return amp__fail(AMP_E_VALUE, "%s %g should be %s%g", what, v, low > 0 ? "above " : "at least ", low > 0 ? 0.0 : low);
}

/* (log v + (x - t)^2 / v) / 2 with v = max(var, eps), through which the gradient passes unchanged */
int amp__comp_gaussian_nll_loss(amp_call *call)
{
  const args_gaussian_nll_loss *args = AMP_ARGS(call, gaussian_nll_loss);
  amp_tensor *in[3], *input, *tensor, *v = call->in[2];
  double eps = args->eps;
  int status;
  if ((status = want_float(call, 0, "input")) < 0 || (status = amp__loss_same_size(call)) < 0
      || (status = amp__want_dtype(call->in[0], call->in[1])) < 0
      || (status = amp__loss_number(eps, 5e-324, "eps")) < 0)
    return status;
  input = call->in[0];
  if (amp__is_number(v))
    v = amp__op_full(amp__element(v, 0), input->dtype, input->device, input->device_index, 0, NULL);
  else {
    if ((status = amp__want_dtype(input, v)) < 0) return status;
    int n = input->ndim - 1;
    bool rows = n >= 0 && memcmp(input->size, v->size, sizeof(int64_t) * (size_t)n) == 0
                && (v->ndim == n || (v->ndim == n + 1 && v->size[n] == 1));
    if (!rows && !amp__same_size(input, v))
      return amp__fail_arg(AMP_E_SHAPE, 3,
                           "var has shape %s, expected that of input, %s, or one value for its last dimension",
                           amp__shape_str(v->ndim, v->size), amp__shape_str(input->ndim, input->size));
    if (rows && v->ndim == n) v = amp__op_unsqueeze(v, -1);
  }
  OR_FAIL(v);
  if (v->device == AMP_CPU && v->numel
      && !amp__all_within(v, 0, INFINITY)) { /* a look at a GPU's values would wait for it */
    amp_tensor *bad = amp__op_detach(v);
    bad = bad ? OP1(amin, bad) : NULL;
    OR_FAIL(bad);
    if (amp__element(bad, 0) < 0)
      return amp__fail_arg(AMP_E_VALUE, 3, "var has a negative element, %g", amp__element(bad, 0));
  }
  amp_tensor *held = call->in[2];
  call->in[2] = v;
  status = amp__loss_widened(call, 3, in);
  call->in[2] = held;
  if (status < 0) return status;
  input = in[0];
  tensor = in[1];
  v = in[2];
  amp_tensor *fixed = amp__op_detach(v);
  if (fixed && !amp__all_within(fixed, eps, INFINITY))
    v = OP2(add, v, at_least(NUMBER_OP(sub, eps, fixed), 0)); /* the gradient goes straight through the limit */
  amp_tensor *loss = OP_NUMBER(mul, OP2(add, OP1(log, v), OP2(div, OP1(square, OP2(sub, input, tensor)), v)), 0.5);
  if (args->full) loss = OP_NUMBER(add, loss, 0.91893853320467274178);
  return amp__loss_result(call, loss, args->reduction);
}

/* -- Rows of two or three tensors ---------------------------------------------------------- */

/* 1 - cos where the target is 1, max(0, cos - margin) where it is -1 */
int amp__comp_cosine_embedding_loss(amp_call *call)
{
  const args_cosine_embedding_loss *args = AMP_ARGS(call, cosine_embedding_loss);
  amp_tensor *a, *b, *tensor, *in[3];
  int status, last = -1;
  if ((status = want_float(call, 0, "input1")) < 0 || (status = amp__want_dtype(call->in[0], call->in[1])) < 0
      || (status = amp__loss_widened(call, 3, in)) < 0)
    return status;
  a = in[0];
  b = in[1];
  tensor = in[2];
  if (!amp__same_size(a, b) || (a->ndim != 1 && a->ndim != 2))
    return amp__fail_arg(AMP_E_SHAPE, 2, "input1 is %s and input2 %s; both should be N x D, or vectors",
                         amp__shape_str(a->ndim, a->size), amp__shape_str(b->ndim, b->size));
  if (tensor->ndim != a->ndim - 1 || (tensor->ndim && tensor->size[0] != a->size[0]))
    return amp__fail_arg(AMP_E_SHAPE, 3, "target has shape %s, expected %s: 1 or -1 for each row of input1 %s",
                         amp__shape_str(tensor->ndim, tensor->size), amp__shape_str(a->ndim - 1, a->size),
                         amp__shape_str(a->ndim, a->size));
  amp_tensor *ab = amp__op_sum(mul(a, b), 1, &last, false),
             *aa = OP_NUMBER(add, amp__op_sum(OP1(square, a), 1, &last, false), 1e-12);
  amp_tensor *bb = OP_NUMBER(add, amp__op_sum(OP1(square, b), 1, &last, false), 1e-12),
             *cosine = OP2(div, ab, OP1(sqrt, mul(aa, bb)));
  amp_tensor *near = amp__op_mask(OP_NUMBER(eq, tensor, 1), one_minus(cosine)),
             *far = amp__op_mask(OP_NUMBER(eq, tensor, -1), at_least(OP_NUMBER(sub, cosine, args->margin), 0));
  return amp__loss_result(call, OP2(add, near, far), args->reduction);
}

int amp__comp_margin_ranking_loss(amp_call *call)
{
  const args_margin_ranking_loss *args = AMP_ARGS(call, margin_ranking_loss);
  amp_tensor *in[3];
  int status;
  if ((status = want_float(call, 0, "input1")) < 0 || (status = amp__want_dtype(call->in[0], call->in[1])) < 0
      || (status = amp__loss_widened(call, 3, in)) < 0)
    return status;
  if (in[0]->ndim != in[1]->ndim || in[0]->ndim != in[2]->ndim)
    return amp__fail(AMP_E_SHAPE, "input1, input2 and target should have as many dimensions: they are %s, %s and %s",
                     amp__shape_str(in[0]->ndim, in[0]->size), amp__shape_str(in[1]->ndim, in[1]->size),
                     amp__shape_str(in[2]->ndim, in[2]->size));
  amp_tensor *loss = mul(in[2], OP2(sub, in[1], in[0]));
  return amp__loss_result(call, at_least(args->margin == 0 ? loss : OP_NUMBER(add, loss, args->margin), 0),
                          args->reduction);
}

/* p-norm of a - b + eps over the last dimension */
static amp_tensor *distance(amp_tensor *a, amp_tensor *b, double p, double eps)
{
  amp_tensor *d = OP_NUMBER(add, OP2(sub, a, b), eps);
  if (!d) return NULL;
  amp_attrs attrs = amp__attrs();
  int64_t last = -1;
  amp__attrs_float(&attrs, p);
  amp__attrs_list(&attrs, 1, &last);
  amp__attrs_int(&attrs, 0);
  amp__attrs_int(&attrs, AMP_NONE);
  return amp__op(AMP_OP_norm, &attrs, 1, &d);
}

int amp__comp_triplet_margin_loss(amp_call *call)
{
  const args_triplet_margin_loss *args = AMP_ARGS(call, triplet_margin_loss);
  double margin = args->margin, p = args->p, eps = args->eps;
  amp_tensor *in[3];
  int status;
  for (int i = 1; i < 3; i++) {
    if ((status = amp__want_dtype(call->in[0], call->in[i])) < 0) return status;
    if (call->in[i]->ndim != call->in[0]->ndim)
      return amp__fail_arg(
          AMP_E_SHAPE, i + 1, "anchor, positive and negative should have as many dimensions: they are %s, %s and %s",
          amp__shape_str(call->in[0]->ndim, call->in[0]->size), amp__shape_str(call->in[1]->ndim, call->in[1]->size),
          amp__shape_str(call->in[2]->ndim, call->in[2]->size));
  }
  if (call->in[0]->ndim == 0)
    return amp__fail_arg(AMP_E_SHAPE, 1, "anchor is a scalar; distances are taken along the last dimension");
  if ((status = amp__loss_number(p, 5e-324, "p")) < 0 || (status = amp__loss_number(margin, 5e-324, "margin")) < 0
      || (status = amp__loss_widened(call, 3, in)) < 0)
    return status;
  amp_tensor *near = distance(in[0], in[1], p, eps), *far = distance(in[0], in[2], p, eps);
  if (args->swap) far = OP2(minimum, far, distance(in[1], in[2], p, eps));
  return amp__loss_result(call, at_least(OP_NUMBER(add, OP2(sub, near, far), margin), 0), args->reduction);
}

/* -- Labels ------------------------------------------------------------------------------ */

/* Elements of x (N x C or C) at each row's label; NULL with an error if a label is none */
static amp_tensor *at_label(amp_tensor *x, amp_tensor *target)
{
  amp_tensor *in[3] = { x, target, NULL };
  amp_attrs s = amp__attrs();
  amp__attrs_int(&s, REDUCTION_NONE);
  amp__attrs_int(&s, INT64_MIN + 8); /* no label is ignored */
  return OP1(neg, amp__op(AMP_OP_nll_loss, &s, 3, in));
}

int amp__comp_multi_margin_loss(amp_call *call)
{
  const args_multi_margin_loss *args = AMP_ARGS(call, multi_margin_loss);
  amp_tensor *input, *target = call->in[1], *weight, *in[3];
  int64_t p = args->p;
  double margin = args->margin;
  int status, last = -1;
  if ((status = want_float(call, 0, "input")) < 0 || (status = amp__want_dtype(call->in[0], call->in[2])) < 0
      || (status = amp__loss_widened(call, 3, in)) < 0)
    return status;
  input = in[0];
  weight = in[2];
  if (p != 1 && p != 2) return amp__fail(AMP_E_ARGUMENT, "p should be 1 or 2, got %lld", (long long)p);
  if (input->ndim != 1 && input->ndim != 2)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input should be N x C or a vector of C scores, got shape %s",
                         amp__shape_str(input->ndim, input->size));
  int64_t classes = input->size[input->ndim - 1];
  if (classes == 0)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input %s has no classes", amp__shape_str(input->ndim, input->size));
  if (weight && (weight->ndim != 1 || weight->size[0] != classes))
    return amp__fail_arg(AMP_E_SHAPE, 3, "weight has shape %s, expected %lld, one a class",
                         amp__shape_str(weight->ndim, weight->size), (long long)classes);
  amp_tensor *own = at_label(input, target); /* checks the target too */
  OR_FAIL(own);
  amp_tensor *column = amp__op_unsqueeze(target, -1), *place = NULL, *loss;
  amp_attrs attrs = amp__attrs(); /* 1 .. C */
  amp__attrs_float(&attrs, 1);
  amp__attrs_float(&attrs, (double)classes + 1);
  amp__attrs_float(&attrs, 1);
  amp__attrs_int(&attrs, AMP_INT64);
  amp__attrs_int(&attrs, input->device * 256 + input->device_index);
  place = amp__op(AMP_OP_arange, &attrs, 0, NULL);
  loss = at_least(OP_NUMBER(add, OP2(sub, input, amp__op_unsqueeze(own, -1)), margin), 0);
  if (p == 2) loss = OP1(square, loss);
  loss = amp__op_sum(amp__op_fill_where(OP2(eq, column, place), loss, 0), 1, &last, false);
  if (weight) loss = mul(loss, at_label(amp__op_expand(weight, input->ndim, input->size), target));
  return amp__loss_result(call, OP_NUMBER(div, loss, (double)classes), args->reduction);
}

int amp__comp_multilabel_soft_margin_loss(amp_call *call)
{
  const args_multilabel_soft_margin_loss *args = AMP_ARGS(call, multilabel_soft_margin_loss);
  amp_tensor *in[3];
  int status, last = -1;
  if ((status = amp__loss_same_size(call)) < 0 || (status = amp__want_dtype(call->in[0], call->in[1])) < 0
      || (status = amp__want_dtype(call->in[0], call->in[2])) < 0 || (status = amp__loss_widened(call, 3, in)) < 0)
    return status;
  if (in[0]->ndim == 0)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input is a scalar; its last dimension should be the classes");
  return amp__loss_result(
      call, amp__op_mean(weighted(amp__loss_pair(in[0], in[1], REDUCTION_NONE, KIND_BCE, 0), in[2]), 1, &last, false),
      args->reduction);
}

/* Whether a float target has the shape that class labels of x would have. */
static bool labels_shape(const amp_tensor *x, const amp_tensor *t)
{
  if (t->ndim != x->ndim - 1) return false;
  for (int d = 0; d < t->ndim; d++)
    if (t->size[d] != x->size[x->ndim == 1 || d == 0 ? d : d + 1]) return false;
  return true;
}

/* Probabilities as target: -sum_c w_c t_c log_softmax(x)_c */
static int soft_cross_entropy(amp_call *call)
{
  const args_cross_entropy *args = AMP_ARGS(call, cross_entropy);
  amp_tensor *input = call->in[0], *target = call->in[1], *weight = call->in[2];
  int64_t reduction = args->reduction;
  double smooth = args->label_smoothing;
  int class_dim = input->ndim > 1 ? 1 : 0, status;
  if (labels_shape(input, target))
    return amp__fail_arg(
        AMP_E_DTYPE, 2,
        "target has dtype %s and, for input of shape %s, the shape of class labels, %s: class labels are integers: "
        "labels:long(), or {dtype = 'int64'} where they are made; probabilities have the shape of input",
        amp_dtype_name(target->dtype), amp__shape_str(input->ndim, input->size),
        amp__shape_str(target->ndim, target->size));
  if ((status = amp__loss_same_size(call)) < 0 || (status = amp__want_dtype(input, target)) < 0) return status;
  int64_t classes = input->size[class_dim];
  if (smooth > 0) target = OP_NUMBER(add, OP_NUMBER(mul, target, 1 - smooth), smooth / (double)classes);
  amp_tensor *result = mul(amp__op_dim(AMP_OP_log_softmax, class_dim, 1, &input), target);
  if (weight) {
    int64_t size[AMP_MAX_DIM];
    if ((status = amp__want_dtype(input, weight)) < 0) return status;
    if (weight->ndim != 1 || weight->size[0] != classes)
      return amp__fail_arg(AMP_E_SHAPE, 3, "weight should have one element for each of %lld classes, got shape %s",
                           (long long)classes, amp__shape_str(weight->ndim, weight->size));
    for (int i = 0; i < input->ndim; i++) size[i] = i == class_dim ? classes : 1;
    result = mul(result, amp__op_view(weight, input->ndim, size));
  }
  result = OP1(neg, reduction == REDUCTION_NONE ? amp__op_sum(result, 1, &class_dim, false)
                                                : amp__op_sum(result, -1, NULL, false));
  return amp__result(
      call, 0, reduction == REDUCTION_MEAN ? OP_NUMBER(div, result, (double)input->numel / (double)classes) : result);
}

int amp__comp_cross_entropy(amp_call *call)
{
  const args_cross_entropy *args = AMP_ARGS(call, cross_entropy);
  const amp_tensor *input = call->in[0], *target = call->in[1];
  double smooth = args->label_smoothing;
  if (!(smooth >= 0 && smooth <= 1)) return amp__fail(AMP_E_ARGUMENT, "label_smoothing %g is outside 0 to 1", smooth);
  if (!amp__is_float(input->dtype))
    return amp__fail_arg(AMP_E_DTYPE, 1, "input (logits) has dtype %s, expected a float dtype",
                         amp_dtype_name(input->dtype));
  if (input->ndim == 0) return amp__fail_arg(AMP_E_SHAPE, 1, "input (logits) has no dimension of classes");
  if (amp__is_float(target->dtype)) {
    if (args->ignore_index >= 1)
      return amp__fail(AMP_E_ARGUMENT,
                       "ignore_index %lld has no meaning for a target of probabilities (%s); it is one of labels",
                       (long long)args->ignore_index, amp_dtype_name(target->dtype));
    amp_tensor *in[3] = { call->in[0], call->in[1], call->nin > 2 ? call->in[2] : NULL };
    if (call->flags & AMP_WIDEN)
      for (int i = 0; i < 3; i++)
        if (in[i]) OR_FAIL(call->in[i] = amp__op_cast(in[i], AMP_FLOAT32));
    return soft_cross_entropy(call);
  }
  /* the kernel widens the input as it reads it; weights of another dtype are float32 for it */
  if (call->flags & AMP_WIDEN && call->nin > 2 && call->in[2] && call->in[2]->dtype != input->dtype)
    OR_FAIL(call->in[2] = amp__op_cast(call->in[2], AMP_FLOAT32));
  amp_attrs attrs = amp__attrs();
  amp__attrs_copy(&attrs, AMP_SLOT(args->reduction), 3);
  amp__attrs_int(&attrs, (call->flags & AMP_WIDEN) != 0);
  return amp__result(call, 0, amp__op(AMP_OP_cross_entropy_index, &attrs, 3, call->in));
}

/* -- Sequences ---------------------------------------------------------------------------- */

/* An infinite loss is 0 with zero_infinity; the mean is over sequences of loss / target length. */
int amp__comp_ctc_loss(amp_call *call)
{
  const args_ctc_loss *args = AMP_ARGS(call, ctc_loss);
  amp_tensor *input = call->in[0], *in[4] = { input, call->in[1], call->in[2], call->in[3] };
  int64_t reduction = args->reduction;
  int status;
  if ((status = want_float(call, 0, "log_probs")) < 0) return status;
  bool one = input->ndim == 2;
  if (one) {
    if (in[1]->ndim != 1)
      return amp__fail_arg(AMP_E_SHAPE, 2, "targets should be a vector for log_probs %s (T x C), got shape %s",
                           amp__shape_str(input->ndim, input->size), amp__shape_str(in[1]->ndim, in[1]->size));
    in[0] = amp__op_unsqueeze(input, 1);
  }
  int64_t single = 1;
  for (int i = 2; i < 4; i++)
    if (in[i]->ndim == 0 && (one || input->size[1] == 1)) in[i] = amp__op_view(in[i], 1, &single);
  for (int i = 0; i < 4; i++) OR_FAIL(in[i]);
  if (amp__is_half(input->dtype)) OR_FAIL(in[0] = amp__op_cast(in[0], AMP_FLOAT32));
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, args->blank);
  amp_tensor *loss = amp__op(AMP_OP_ctc, &attrs, 4, in);
  OR_FAIL(loss);
  if (args->zero_infinity) loss = amp__op_fill_where(OP1(isinf, loss), loss, 0);
  if (reduction == REDUCTION_MEAN) {
    amp_tensor *length = at_least(in[3], 1);
    length = length ? amp__op_cast(length, in[0]->dtype) : NULL;
    loss = length ? OP2(div, loss, length) : NULL;
  }
  if (one && loss && reduction == REDUCTION_NONE) loss = amp__op_view(loss, 0, NULL);
  return amp__loss_result(call, loss, reduction);
}
