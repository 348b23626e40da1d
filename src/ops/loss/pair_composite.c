/*
** ops/loss/pair_composite.c: losses of pairs of elements as ops: what each checks before it calls pair_loss with its
** kind, and the derivatives of pair_loss by kind. The slope in the input is a kernel; the slope in the target and the
** second slopes, which few need, are formulas in ops. `reduction` (none 0, mean 1, sum 2) is the first attribute of
** every row.
*/
#include "autograd/derivative.h"
#include "ops/loss/loss_composite.h"

static amp_tensor *mul(amp_tensor *a, amp_tensor *b) { return OP2(mul, a, b); }
static amp_tensor *weighted(amp_tensor *loss, amp_tensor *w) { return w ? mul(loss, w) : loss; }

/* -- Pairs of elements ------------------------------------------------------------------ */

amp_tensor *amp__loss_pair(amp_tensor *x, amp_tensor *t, int64_t reduction, int kind, double p)
{
  amp_tensor *in[2] = { x, t };
  amp_attrs s = amp__attrs();
  amp__attrs_int(&s, reduction);
  amp__attrs_int(&s, kind);
  amp__attrs_float(&s, p);
  return amp__op(AMP_OP_pair_loss, &s, 2, in);
}

static int pair_loss(amp_call *c, int64_t reduction, int kind, double p)
{
  int rc = amp__loss_same_size(c);
  if (rc == 0) rc = amp__want_dtype(c->in[0], c->in[1]);
  return rc < 0 ? rc : amp__result(c, 0, amp__loss_pair(c->in[0], c->in[1], reduction, kind, p));
}

int amp__comp_l1_loss(amp_call *c) { return pair_loss(c, AMP_ARGS(c, l1_loss)->reduction, KIND_L1, 0); }
int amp__comp_soft_margin_loss(amp_call *c)
{
  return pair_loss(c, AMP_ARGS(c, soft_margin_loss)->reduction, KIND_SOFT_MARGIN, 0);
}
int amp__comp_hinge_embedding_loss(amp_call *c)
{
  return pair_loss(c, AMP_ARGS(c, hinge_embedding_loss)->reduction, KIND_HINGE,
                   AMP_ARGS(c, hinge_embedding_loss)->margin);
}

int amp__comp_smooth_l1_loss(amp_call *c)
{
  const args_smooth_l1_loss *args = AMP_ARGS(c, smooth_l1_loss);
  int rc = amp__loss_number(args->beta, 0, "beta");
  return rc < 0 ? rc : pair_loss(c, args->reduction, KIND_SMOOTH_L1, args->beta);
}

int amp__comp_huber_loss(amp_call *c)
{
  const args_huber_loss *args = AMP_ARGS(c, huber_loss);
  int rc = amp__loss_number(args->delta, 5e-324, "delta");
  return rc < 0 ? rc : pair_loss(c, args->reduction, KIND_HUBER, args->delta);
}

int amp__comp_kl_div(amp_call *call)
{
  const args_kl_div *args = AMP_ARGS(call, kl_div);
  int kind = args->log_target ? KIND_KL_LOG : KIND_KL, status;
  if (args->reduction != REDUCTION_BATCHMEAN) return pair_loss(call, args->reduction, kind, 0);
  amp_tensor *in[2];
  if ((status = amp__loss_same_size(call)) < 0 || (status = amp__want_dtype(call->in[0], call->in[1])) < 0
      || (status = amp__loss_widened(call, 2, in)) < 0)
    return status;
  if (call->in[0]->ndim == 0)
    return amp__fail(AMP_E_SHAPE, "reduction 'batchmean' divides by the first dimension; input is a scalar");
  return amp__loss_result(
      call, OP_NUMBER(div, amp__loss_pair(in[0], in[1], REDUCTION_SUM, kind, 0), (double)call->in[0]->size[0]),
      REDUCTION_NONE);
}

/* t log t - t + log(2 pi t) / 2 where t > 1: Stirling's form of log t! */
static amp_tensor *stirling(amp_tensor *t)
{
  amp_tensor *large = OP_NUMBER(gt, t, 1), *s = t ? amp__op_fill_where(OP1(logical_not, large), t, 2) : NULL;
  amp_tensor *loss = OP1(log, s);
  return amp__op_mask(
      large, OP_NUMBER(add, OP2(add, OP2(sub, mul(s, loss), s), OP_NUMBER(mul, loss, 0.5)), 0.91893853320467274178));
}

int amp__comp_poisson_nll_loss(amp_call *call)
{
  const args_poisson_nll_loss *args = AMP_ARGS(call, poisson_nll_loss);
  int kind = args->log_input ? KIND_POISSON_LOG : KIND_POISSON, status;
  int64_t reduction = args->reduction;
  if (!args->full) return pair_loss(call, reduction, kind, args->eps);
  amp_tensor *in[2];
  if ((status = amp__loss_same_size(call)) < 0 || (status = amp__want_dtype(call->in[0], call->in[1])) < 0
      || (status = amp__loss_widened(call, 2, in)) < 0)
    return status;
  return amp__loss_result(
      call, OP2(add, amp__loss_pair(in[0], in[1], REDUCTION_NONE, kind, args->eps), stirling(in[1])), reduction);
}

/* w ((1 - t) x - (1 + (pos_weight - 1) t) log_sigmoid(x)): without pos_weight the fused form */
int amp__comp_bce_with_logits(amp_call *call)
{
  const args_bce_with_logits *args = AMP_ARGS(call, bce_with_logits);
  amp_tensor *input = call->in[0], *target = call->in[1], *weight = call->in[2], *pos = call->in[3], *in[4], *loss;
  int status;
  if ((status = amp__loss_same_size(call)) < 0 || (status = amp__want_dtype(input, target)) < 0
      || (status = amp__want_dtype(input, weight)) < 0 || (status = amp__want_dtype(input, pos)) < 0)
    return status;
  if (!weight && !pos) return amp__result(call, 0, amp__loss_pair(input, target, args->reduction, KIND_BCE, 0));
  if ((status = amp__loss_widened(call, 4, in)) < 0) return status;
  input = in[0];
  target = in[1];
  weight = in[2];
  pos = in[3];
  if (pos) {
    loss = mul(OP1(log_sigmoid, input), OP_NUMBER(add, mul(OP_NUMBER(sub, pos, 1), target), 1));
    loss = OP2(sub, mul(NUMBER_OP(sub, 1, target), input), loss);
  } else loss = amp__loss_pair(input, target, REDUCTION_NONE, KIND_BCE, 0);
  return amp__loss_result(call, weighted(loss, weight), args->reduction);
}

/* -(t log x + (1 - t) log(1 - x)), logarithms not under -100; the slope is (x - t) / max(x (1 - x), p), with a
** p that the dtype can tell from 0 */
int amp__comp_binary_cross_entropy(amp_call *call)
{
  const args_binary_cross_entropy *args = AMP_ARGS(call, binary_cross_entropy);
  amp_tensor *input = call->in[0], *target = call->in[1], *weight = call->in[2], *in[3];
  double p = input->dtype == AMP_FLOAT16 ? 1.0 / 32768 : 1e-12;
  int status;
  if ((status = amp__loss_same_size(call)) < 0 || (status = amp__want_dtype(input, target)) < 0
      || (status = amp__want_dtype(input, weight)) < 0)
    return status;
  if (!weight) return amp__result(call, 0, amp__loss_pair(input, target, args->reduction, KIND_BCE_PROBS, p));
  if ((status = amp__loss_widened(call, 3, in)) < 0) return status;
  return amp__loss_result(call, weighted(amp__loss_pair(in[0], in[1], REDUCTION_NONE, KIND_BCE_PROBS, p), in[2]),
                          args->reduction);
}

/* -- Slopes ------------------------------------------------------------------------------- */

static amp_tensor *scaled(amp_tensor *t, int64_t reduction, int64_t n)
{
  return reduction == REDUCTION_MEAN ? OP_NUMBER(div, t, (double)n) : t;
}

static amp_tensor *at_least(amp_tensor *t, double low)
{
  amp_attrs s = amp__attrs();
  amp__attrs_float(&s, low);
  amp__attrs_int(&s, AMP_NONE);
  return amp__op(AMP_OP_clamp, &s, 1, &t);
}
static amp_tensor *bounded(amp_tensor *t) { return at_least(t, -100); } /* a logarithm in binary cross entropy */

/* 1 in x's dtype where |x - t| is less than p, else 0 */
static amp_tensor *inside(amp_tensor *x, amp_tensor *t, double p)
{
  amp_tensor *d = OP_NUMBER(lt, OP1(abs, OP2(sub, amp__op_detach(x), amp__op_detach(t))), p);
  return d ? amp__op_cast(d, x->dtype) : NULL;
}

/* A function of input - target: its slope in the target is the negative of that in the input. */
static bool is_difference(int kind)
{
  switch ((enum kind_word)kind) { /* every kind has its formula: -Wswitch */
  case KIND_L1:
  case KIND_SMOOTH_L1:
  case KIND_HUBER: return true;
  case KIND_KL:
  case KIND_KL_LOG:
  case KIND_BCE:
  case KIND_SOFT_MARGIN:
  case KIND_POISSON:
  case KIND_POISSON_LOG:
  case KIND_BCE_PROBS:
  case KIND_HINGE:
  case KIND_COUNT: break;
  }
  return false;
}

/* df/dt. NULL without an error: 0 everywhere (*zero) */
static amp_tensor *slope_t(amp_tensor *input, amp_tensor *tensor, int kind, double p, bool *zero)
{
  *zero = false;
  switch ((enum kind_word)kind) { /* every kind has its formula: -Wswitch */
  case KIND_KL: return OP2(sub, OP_NUMBER(add, OP1(log, tensor), 1), input);
  case KIND_KL_LOG: return mul(OP1(exp, tensor), OP_NUMBER(add, OP2(sub, tensor, input), 1));
  case KIND_BCE:
  case KIND_POISSON_LOG: return OP1(neg, input);
  case KIND_SOFT_MARGIN: return OP1(neg, mul(input, OP1(sigmoid, OP1(neg, mul(tensor, input)))));
  case KIND_POISSON: return OP1(neg, OP1(log, OP_NUMBER(add, input, p)));
  case KIND_BCE_PROBS: return OP2(sub, bounded(OP1(log1p, OP1(neg, input))), bounded(OP1(log, input)));
  case KIND_L1: /* no slope of their own in the target */
  case KIND_SMOOTH_L1:
  case KIND_HUBER:
  case KIND_HINGE:
  case KIND_COUNT: break;
  }
  *zero = true;
  return NULL;
}

/* d2f/dx2 and d2f/dxdt */
static amp_tensor *slope_xx(amp_tensor *input, amp_tensor *tensor, int kind, double p, bool *zero)
{
  amp_tensor *s;
  *zero = false;
  switch ((enum kind_word)kind) { /* every kind has its formula: -Wswitch */
  case KIND_SMOOTH_L1:
    if (p > 0) return OP_NUMBER(div, inside(input, tensor, p), p);
    break;
  case KIND_HUBER: return inside(input, tensor, p);
  case KIND_BCE: s = OP1(sigmoid, input); return mul(s, NUMBER_OP(sub, 1, s));
  case KIND_SOFT_MARGIN:
    s = OP1(sigmoid, mul(tensor, input));
    return mul(mul(s, NUMBER_OP(sub, 1, s)), OP1(square, tensor));
  case KIND_POISSON:
    s = OP_NUMBER(add, input, p);
    return OP2(div, OP2(div, tensor, s), s); /* the square may overflow */
  case KIND_POISSON_LOG: return OP1(exp, input);
  case KIND_BCE_PROBS: /* (x^2 - 2 x t + t) / (x (1 - x))^2 */
    s = at_least(mul(input, NUMBER_OP(sub, 1, input)), p);
    return OP2(div, OP2(add, mul(input, OP2(sub, input, OP_NUMBER(mul, tensor, 2))), tensor), OP1(square, s));
  case KIND_L1: /* no second slope */
  case KIND_KL:
  case KIND_KL_LOG:
  case KIND_HINGE:
  case KIND_COUNT: break;
  }
  *zero = true;
  return NULL;
}

static amp_tensor *slope_xt(amp_tensor *input, amp_tensor *tensor, int kind, double p, bool *zero)
{
  amp_tensor *s;
  *zero = false;
  switch ((enum kind_word)kind) { /* every kind has its formula: -Wswitch */
  case KIND_SMOOTH_L1:
  case KIND_HUBER: return OP1(neg, slope_xx(input, tensor, kind, p, zero));
  case KIND_KL:
  case KIND_BCE:
  case KIND_POISSON_LOG:
    return amp__op_expand(amp__op_full(-1, input->dtype, input->device, input->device_index, 0, NULL), input->ndim,
                          input->size);
  case KIND_KL_LOG: return OP1(neg, OP1(exp, tensor));
  case KIND_SOFT_MARGIN: /* of -t s, s = sigmoid(-t x) */
    s = OP1(sigmoid, OP1(neg, mul(tensor, input)));
    return OP2(sub, mul(mul(tensor, input), mul(s, NUMBER_OP(sub, 1, s))), s);
  case KIND_POISSON: return OP1(neg, OP1(reciprocal, OP_NUMBER(add, input, p)));
  case KIND_BCE_PROBS: return OP1(neg, OP1(reciprocal, at_least(mul(input, NUMBER_OP(sub, 1, input)), p)));
  case KIND_L1: /* no mixed slope */
  case KIND_HINGE:
  case KIND_COUNT: break;
  }
  *zero = true;
  return NULL;
}

static amp_tensor *backward(amp_tensor *g, amp_tensor *x, amp_tensor *t, int64_t reduction, int kind, double p)
{
  amp_tensor *in[3] = { g, x, t };
  amp_attrs s = amp__attrs();
  amp__attrs_int(&s, reduction);
  amp__attrs_int(&s, kind);
  amp__attrs_float(&s, p);
  return amp__op(AMP_OP_pair_loss_backward, &s, 3, in);
}

int amp__bwd_pair_loss(amp_bwd *bwd)
{
  const args_pair_loss *args = AMP_ARGS(bwd, pair_loss);
  amp_tensor *input = INPUT(bwd, 0), *target = INPUT(bwd, 1), *gx = NULL, *gt;
  int64_t reduction = args->reduction;
  int kind = (int)args->kind, status = 0;
  bool difference = is_difference(kind), zero;
  OR_FAIL(input && target ? input : NULL);
  if (NEEDS(bwd, 0) || difference) {
    OR_FAIL(gx = backward(GRAD(bwd), input, target, reduction, kind, args->p));
    if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, gx));
  }
  if (status < 0 || !NEEDS(bwd, 1)) return status;
  if (difference) return INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, OP1(neg, gx)));
  gt = slope_t(input, target, kind, args->p, &zero);
  if (zero) return INPUT_GRAD(bwd, 1, amp__op_zeros_like(bwd, 1));
  return INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, mul(scaled(GRAD(bwd), reduction, input->numel), gt)));
}

/* For the incoming v, of g k f_x (k: 1 over the count of a mean): dg = sum v k f_x, dx = v g k f_xx, dt = v g k f_xt */
int amp__bwd_pair_loss_backward(amp_bwd *bwd)
{
  const args_pair_loss_backward *args = AMP_ARGS(bwd, pair_loss_backward);
  amp_tensor *v = GRAD(bwd), *input = INPUT(bwd, 1), *target = INPUT(bwd, 2), *q = NULL, *s;
  int64_t reduction = args->reduction;
  int kind = (int)args->kind, status = 0;
  double p = args->p;
  bool zero;
  OR_FAIL(v && input && target ? v : NULL);
  if (NEEDS(bwd, 0)) {
    s = backward(v, input, target, REDUCTION_NONE, kind, p);
    if (reduction != REDUCTION_NONE) s = scaled(amp__op_sum(s, -1, NULL, false), reduction, v->numel);
    status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, s));
  }
  if (status == 0 && (NEEDS(bwd, 1) || NEEDS(bwd, 2))) OR_FAIL(q = mul(v, scaled(INPUT(bwd, 0), reduction, v->numel)));
  for (int i = 1; i < 3 && status == 0; i++) {
    if (!NEEDS(bwd, i)) continue;
    s = i == 1 ? slope_xx(input, target, kind, p, &zero) : slope_xt(input, target, kind, p, &zero);
    status = INPUT_GRAD(bwd, i, zero ? amp__op_zeros_like(bwd, i) : amp__op_to_input(bwd, i, mul(q, s)));
  }
  return status;
}
