/*
** ops/elementwise/arithmetic_derivative.c: derivatives of arithmetic of two and three tensors
** (add, mul, div, pow, where, lerp, clamp and others), in the order of amp_ops.def.
** A formula is an expression of recorded ops, so its own derivative needs nothing
** more; where no graph of it is wanted, what takes more than one op is one kernel
** (slope, pair_slope). Gradients keep the dtype of the result they belong to until
** amp__op_to_input gives them the input's shape and dtype.
*/
#include <math.h>
#include "autograd/derivative.h"

/* -- Arithmetic --------------------------------------------------------------- */

static amp_tensor *times(amp_tensor *grad, double k)
{
  return k == 1 ? grad : k == -1 ? OP1(neg, grad) : OP_NUMBER(mul, grad, k);
}

static int add_back(amp_bwd *bwd, double alpha)
{
  int status = 0;
  if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, GRAD(bwd)));
  if (status == 0 && NEEDS(bwd, 1)) status = INPUT_GRAD(bwd, 1, times(amp__op_to_input(bwd, 1, GRAD(bwd)), alpha));
  return status;
}

int amp__bwd_add(amp_bwd *bwd) { return add_back(bwd, AMP_ARGS(bwd, add)->alpha); }
int amp__bwd_sub(amp_bwd *bwd) { return add_back(bwd, -AMP_ARGS(bwd, sub)->alpha); }

int amp__bwd_mul(amp_bwd *bwd)
{
  int status = 0;
  if (bwd->may_alias && GRAD(bwd) == amp__S->priv->one && amp__version(GRAD(bwd)) == amp__S->priv->one_version
      && !NEEDS(bwd, 1)) { /* a scaled loss, at which backward begins */
    amp_tensor *other = INPUT(bwd, 1);
    OR_FAIL(other);
    if (other->ndim == 0 && SHAPE(bwd, 0)->ndim == 0 && other->dtype == SHAPE(bwd, 0)->dtype
        && other->device == GRAD(bwd)->device && !amp__is_number(other))
      return INPUT_GRAD(bwd, 0, other);
  }
  if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, OP2(mul, GRAD(bwd), INPUT(bwd, 1))));
  if (status == 0 && NEEDS(bwd, 1))
    status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, OP2(mul, GRAD(bwd), INPUT(bwd, 0))));
  return status;
}

/* float16 as float32: g / y may overflow where g / y times x / y does not */
static amp_tensor *ranged(amp_tensor *tensor)
{
  return tensor && tensor->dtype == AMP_FLOAT16 ? amp__op_cast(tensor, AMP_FLOAT32) : tensor;
}

int amp__bwd_div(amp_bwd *bwd)
{
  int status = 0;
  if (!bwd->create_graph) {
    amp_tensor *grad = GRAD(bwd), *input = NEEDS(bwd, 1) ? INPUT(bwd, 0) : NULL, *other = INPUT(bwd, 1);
    if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, OP2(div, grad, other)));
    if (status == 0 && NEEDS(bwd, 1))
      status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, amp__pair_slope(TERM_DIV, grad, input, other, 1)));
    return status;
  }
  amp_tensor *divisor = INPUT(bwd, 1), *quotient = OP2(div, NEEDS(bwd, 1) ? ranged(GRAD(bwd)) : GRAD(bwd), divisor);
  if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, quotient));
  if (status == 0 && NEEDS(bwd, 1))
    status = INPUT_GRAD(
        bwd, 1, amp__op_to_input(bwd, 1, OP1(neg, OP2(mul, quotient, OP2(div, ranged(INPUT(bwd, 0)), divisor)))));
  return status;
}

int amp__bwd_mod(amp_bwd *bwd)
{
  int status = 0;
  if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, GRAD(bwd)));
  if (status == 0 && NEEDS(bwd, 1) && !bwd->create_graph)
    return INPUT_GRAD(bwd, 1,
                      amp__op_to_input(bwd, 1, amp__pair_slope(TERM_MOD, GRAD(bwd), INPUT(bwd, 0), INPUT(bwd, 1), 1)));
  if (status == 0 && NEEDS(bwd, 1))
    status = INPUT_GRAD(bwd, 1,
                        amp__op_to_input(bwd, 1,
                                         OP1(neg, OP2(mul, GRAD(bwd),
                                                      amp__op_cast(OP2(floor_divide, INPUT(bwd, 0), INPUT(bwd, 1)),
                                                                   GRAD(bwd)->dtype)))));
  return status;
}

/* e * x^(e - 1). Where e is 0 that is 0, not 0 * inf or NaN. */
static amp_tensor *pow_in_base(amp_tensor *x, amp_tensor *e)
{
  if (!x || !e) return NULL;
  if (amp__is_number(e)) {
    double value = amp__element(e, 0);
    return OP_NUMBER(mul, value == 2 ? x : OP_NUMBER(pow, x, value - 1), value);
  }
  amp_tensor *less
      = e && e->dtype == AMP_BOOL ? OP_NUMBER(add, e, -1) : OP_NUMBER(sub, e, 1); /* bools have no difference */
  return OP2(mul, OP2(pow, amp__op_fill_where(OP_NUMBER(eq, e, 0), x, 1), less), e);
}

/* x^e * log(x). Where x = 0 and e >= 0 that is 0. */
static amp_tensor *pow_in_exponent(amp_tensor *x, amp_tensor *e, amp_tensor *out)
{
  if (!x || !e || !out) return NULL;
  if (amp__is_number(x)) {
    double value = amp__element(x, 0);
    if (value != 0) return OP_NUMBER(mul, out, log(value));
    return amp__op_mask_not(OP_NUMBER(ge, e, 0), OP_NUMBER(mul, amp__op_detach(out), -INFINITY));
  }
  amp_tensor *zero = OP_NUMBER(eq, x, 0);
  if (amp__is_number(e)) {
    if (amp__element(e, 0) < 0) return OP2(mul, out, OP1(log, x));
  } else zero = OP2(logical_and, zero, OP_NUMBER(ge, e, 0));
  return OP2(mul, out, OP1(log, amp__op_fill_where(zero, x, 1)));
}

/* The same in one kernel each; 2 and 3 are what most exponents are */
static amp_tensor *fused_in_base(amp_bwd *bwd, amp_tensor *x, amp_tensor *e)
{
  double value = amp__is_number(e) ? amp__element(e, 0) : 0;
  if (value == 2) return amp__slope(FUNCTION_LINE, GRAD(bwd), x, 0, 2, 0);
  if (value == 3) return amp__slope(FUNCTION_TIMES_SQUARE, GRAD(bwd), x, 0, 3, 0);
  return amp__pair_slope(TERM_POW_BASE, GRAD(bwd), x, e, 1);
}
static amp_tensor *fused_in_exponent(amp_bwd *bwd, amp_tensor *x, amp_tensor *e, amp_tensor *out)
{
  if (!out) return NULL;
  double value = amp__is_number(x) ? amp__element(x, 0) : 1;
  if (value == 0) return OP2(mul, GRAD(bwd), pow_in_exponent(x, e, out)); /* 0 or infinity */
  return amp__is_number(x) ? amp__slope(FUNCTION_LINE, GRAD(bwd), out, 0, log(value), 0)
                           : amp__pair_slope(TERM_POW_EXPONENT, GRAD(bwd), x, out, 1);
}

int amp__bwd_pow(amp_bwd *bwd)
{
  int status = 0;
  amp_tensor *input = INPUT(bwd, 0), *exponent = INPUT(bwd, 1);
  if (!input || !exponent) return amp__err();
  if (NEEDS(bwd, 0)) {
    double value = amp__is_number(exponent) ? amp__element(exponent, 0) : 2;
    status = INPUT_GRAD(bwd, 0,
                        value == 0
                            ? amp__op_zeros_like(bwd, 0)
                            : amp__op_to_input(bwd, 0,
                                               value == 1          ? GRAD(bwd)
                                               : bwd->create_graph ? OP2(mul, GRAD(bwd), pow_in_base(input, exponent))
                                                                   : fused_in_base(bwd, input, exponent)));
  }
  if (status == 0 && NEEDS(bwd, 1))
    status = INPUT_GRAD(bwd, 1,
                        amp__op_to_input(bwd, 1,
                                         bwd->create_graph
                                             ? OP2(mul, GRAD(bwd), pow_in_exponent(input, exponent, OUTPUT(bwd, 0)))
                                             : fused_in_exponent(bwd, input, exponent, OUTPUT(bwd, 0))));
  return status;
}

/* The chosen one gets the gradient; equal ones half each. loses: the comparison by which the other one was chosen */
static int extremum_back(amp_bwd *bwd, int loses)
{
  amp_tensor *left = INPUT(bwd, 0), *right = INPUT(bwd, 1), *grad = GRAD(bwd);
  int status = 0, term = loses == AMP_OP_lt ? TERM_UPPER : TERM_LOWER;
  if (!bwd->create_graph) {
    if (NEEDS(bwd, 0))
      status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, amp__pair_slope(term, grad, left, right, 1)));
    if (status == 0 && NEEDS(bwd, 1))
      status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, amp__pair_slope(term, grad, right, left, 1)));
    return status;
  }
  amp_tensor *share = amp__op_where(OP2(eq, left, right), OP_NUMBER(mul, grad, 0.5), grad);
  if (NEEDS(bwd, 0))
    status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, amp__op_mask_not(amp__op2(loses, left, right), share)));
  if (status == 0 && NEEDS(bwd, 1))
    status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, amp__op_mask_not(amp__op2(loses, right, left), share)));
  return status;
}

int amp__bwd_maximum(amp_bwd *bwd) { return extremum_back(bwd, AMP_OP_lt); }
int amp__bwd_minimum(amp_bwd *bwd) { return extremum_back(bwd, AMP_OP_gt); }

int amp__bwd_where(amp_bwd *bwd)
{
  int status = 0;
  amp_tensor *cond = INPUT(bwd, 0);
  if (NEEDS(bwd, 1)) status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, amp__op_mask(cond, GRAD(bwd))));
  if (status == 0 && NEEDS(bwd, 2))
    status = INPUT_GRAD(bwd, 2, amp__op_to_input(bwd, 2, amp__op_mask_not(cond, GRAD(bwd))));
  return status;
}

/* -- Three tensors ------------------------------------------------------------------ */

/* May slope, which gives its point's dtype, make the gradient of input i from that point? */
static bool fits(amp_bwd *bwd, int i, amp_tensor *point)
{
  return !bwd->create_graph && point && point->dtype == SHAPE(bwd, i)->dtype && !amp__is_number(point);
}

/* value * grad * factor, of input i */
static amp_tensor *scaled(amp_bwd *bwd, int i, double value, amp_tensor *factor)
{
  if (value == 1) return OP2(mul, GRAD(bwd), factor);
  return fits(bwd, i, factor) ? amp__slope(FUNCTION_LINE, GRAD(bwd), factor, 0, value, 0)
                              : OP2(mul, times(GRAD(bwd), value), factor);
}

int amp__bwd_addcmul(amp_bwd *bwd)
{
  const double value = AMP_ARGS(bwd, addcmul)->value;
  int status = NEEDS(bwd, 0) ? INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, GRAD(bwd))) : 0;
  for (int i = 1; i < 3 && status == 0; i++) {
    amp_tensor *other = NEEDS(bwd, i) ? INPUT(bwd, 3 - i) : NULL;
    if (!NEEDS(bwd, i)) continue;
    OR_FAIL(other);
    status = INPUT_GRAD(bwd, i, amp__op_to_input(bwd, i, scaled(bwd, i, value, other)));
  }
  return status;
}

/* Where no graph is wanted */
static int addcdiv_back(amp_bwd *bwd, double value)
{
  amp_tensor *grad = GRAD(bwd), *above = NEEDS(bwd, 2) ? INPUT(bwd, 1) : NULL, *below = INPUT(bwd, 2);
  int status = 0;
  if (NEEDS(bwd, 1))
    status = INPUT_GRAD(bwd, 1,
                        amp__op_to_input(bwd, 1,
                                         value == 1             ? OP2(div, grad, below)
                                         : !fits(bwd, 1, below) ? OP2(div, times(ranged(grad), value), below)
                                                                : amp__slope(FUNCTION_OVER, grad, below, 1, value, 0)));
  if (status == 0 && NEEDS(bwd, 2))
    status = INPUT_GRAD(bwd, 2, amp__op_to_input(bwd, 2, amp__pair_slope(TERM_DIV, grad, above, below, value)));
  return status;
}

int amp__bwd_addcdiv(amp_bwd *bwd)
{
  const double value = AMP_ARGS(bwd, addcdiv)->value;
  int status = NEEDS(bwd, 0) ? INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, GRAD(bwd))) : 0;
  if (status < 0 || !(NEEDS(bwd, 1) || NEEDS(bwd, 2))) return status;
  if (!bwd->create_graph) return addcdiv_back(bwd, value);
  amp_tensor *quotient = OP2(div, times(ranged(GRAD(bwd)), value), INPUT(bwd, 2));
  if (NEEDS(bwd, 1)) status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, quotient));
  if (status == 0 && NEEDS(bwd, 2))
    status = INPUT_GRAD(
        bwd, 2, amp__op_to_input(bwd, 2, OP1(neg, OP2(mul, quotient, OP2(div, ranged(INPUT(bwd, 1)), INPUT(bwd, 2))))));
  return status;
}

int amp__bwd_lerp(amp_bwd *bwd)
{
  amp_tensor *grad = GRAD(bwd), *rest = NULL;
  amp_tensor *weight = INPUT(bwd, 2);
  OR_FAIL(weight);
  if (NEEDS(bwd, 0) && !fits(bwd, 0, weight)) { /* two numbers would make a float32 */
    rest = grad->dtype == AMP_FLOAT64
               ? OP2(sub, amp__op_full(1, grad->dtype, grad->device, grad->device_index, 0, NULL), INPUT(bwd, 2))
               : NUMBER_OP(sub, 1, INPUT(bwd, 2));
    OR_FAIL(rest);
  }
  int status = rest ? INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, OP2(mul, grad, rest))) : 0;
  if (NEEDS(bwd, 0) && !rest)
    status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, amp__slope(FUNCTION_LINE, grad, weight, 1, -1, 0)));
  if (status == 0 && NEEDS(bwd, 1))
    status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, OP2(mul, grad, INPUT(bwd, 2))));
  if (status == 0 && NEEDS(bwd, 2))
    status = INPUT_GRAD(bwd, 2,
                        amp__op_to_input(bwd, 2,
                                         !bwd->create_graph
                                             ? amp__pair_slope(TERM_DIFFERENCE, grad, INPUT(bwd, 1), INPUT(bwd, 0), 1)
                                             : OP2(mul, grad, OP2(sub, INPUT(bwd, 1), INPUT(bwd, 0)))));
  return status;
}

int amp__bwd_clamp(amp_bwd *bwd)
{
  const args_clamp *args = AMP_ARGS(bwd, clamp);
  amp_tensor *input = INPUT(bwd, 0), *within = NULL, *grad = GRAD(bwd);
  if (!input) return amp__err();
  if (!bwd->create_graph)
    return INPUT_GRAD(
        bwd, 0,
        amp__op_to_input(bwd, 0,
                         amp__slope(FUNCTION_CLAMP, grad, input, AMP_GIVEN(args->min) ? args->min : -INFINITY,
                                    AMP_GIVEN(args->max) ? args->max : INFINITY, 1)));
  if (AMP_GIVEN(args->min)) OR_FAIL(within = OP_NUMBER(gt, input, args->min));
  if (AMP_GIVEN(args->max)) {
    amp_tensor *below = OP_NUMBER(lt, input, args->max);
    OR_FAIL(within = within ? OP2(logical_and, within, below) : below);
  }
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, within ? amp__op_mask(within, grad) : grad));
}

BWD(masked_fill, amp__op_mask_not(INPUT(b, 1), GRAD(b)))
