/*
** ops/elementwise/arithmetic_derivative.c: derivatives of arithmetic of two and three tensors
** (add, mul, div, pow, where, lerp, clamp and others), in the order of amp_ops.def.
** A formula is an expression of recorded ops, so its own derivative needs nothing
** more. Gradients keep the dtype of the result they belong to until
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
  return OP2(mul, OP2(pow, amp__op_fill_where(OP_NUMBER(eq, e, 0), x, 1), OP_NUMBER(sub, e, 1)), e);
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

int amp__bwd_pow(amp_bwd *bwd)
{
  int status = 0;
  amp_tensor *input = INPUT(bwd, 0), *exponent = INPUT(bwd, 1);
  if (!input || !exponent) return amp__err();
  if (NEEDS(bwd, 0)) {
    double value = amp__is_number(exponent) ? amp__element(exponent, 0) : 2;
    status = INPUT_GRAD(
        bwd, 0,
        value == 0
            ? amp__op_zeros_like(bwd, 0)
            : amp__op_to_input(bwd, 0, value == 1 ? GRAD(bwd) : OP2(mul, GRAD(bwd), pow_in_base(input, exponent))));
  }
  if (status == 0 && NEEDS(bwd, 1))
    status = INPUT_GRAD(
        bwd, 1, amp__op_to_input(bwd, 1, OP2(mul, GRAD(bwd), pow_in_exponent(input, exponent, OUTPUT(bwd, 0)))));
  return status;
}

/* The chosen one gets the gradient; equal ones half each. op: comparison by which the other one was chosen */
static int extremum_back(amp_bwd *bwd, int loses)
{
  amp_tensor *left = INPUT(bwd, 0), *right = INPUT(bwd, 1), *grad = GRAD(bwd);
  int status = 0;
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

int amp__bwd_addcmul(amp_bwd *bwd)
{
  amp_tensor *grad = NEEDS(bwd, 1) || NEEDS(bwd, 2) ? times(GRAD(bwd), AMP_ARGS(bwd, addcmul)->value) : NULL;
  int status = NEEDS(bwd, 0) ? INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, GRAD(bwd))) : 0;
  if (status == 0 && NEEDS(bwd, 1))
    status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, OP2(mul, grad, INPUT(bwd, 2))));
  if (status == 0 && NEEDS(bwd, 2))
    status = INPUT_GRAD(bwd, 2, amp__op_to_input(bwd, 2, OP2(mul, grad, INPUT(bwd, 1))));
  return status;
}

int amp__bwd_addcdiv(amp_bwd *bwd)
{
  amp_tensor *quotient = NEEDS(bwd, 1) || NEEDS(bwd, 2)
                             ? OP2(div, times(ranged(GRAD(bwd)), AMP_ARGS(bwd, addcdiv)->value), INPUT(bwd, 2))
                             : NULL;
  int status = NEEDS(bwd, 0) ? INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, GRAD(bwd))) : 0;
  if (status == 0 && NEEDS(bwd, 1)) status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, quotient));
  if (status == 0 && NEEDS(bwd, 2))
    status = INPUT_GRAD(
        bwd, 2, amp__op_to_input(bwd, 2, OP1(neg, OP2(mul, quotient, OP2(div, ranged(INPUT(bwd, 1)), INPUT(bwd, 2))))));
  return status;
}

int amp__bwd_lerp(amp_bwd *bwd)
{
  amp_tensor *grad = GRAD(bwd), *rest = NULL;
  if (NEEDS(bwd, 0)) { /* two numbers would make a float32 */
    rest = grad->dtype == AMP_FLOAT64
               ? OP2(sub, amp__op_full(1, grad->dtype, grad->device, grad->device_index, 0, NULL), INPUT(bwd, 2))
               : NUMBER_OP(sub, 1, INPUT(bwd, 2));
    OR_FAIL(rest);
  }
  int status = rest ? INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, OP2(mul, grad, rest))) : 0;
  if (status == 0 && NEEDS(bwd, 1))
    status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, OP2(mul, grad, INPUT(bwd, 2))));
  if (status == 0 && NEEDS(bwd, 2))
    status = INPUT_GRAD(bwd, 2, amp__op_to_input(bwd, 2, OP2(mul, grad, OP2(sub, INPUT(bwd, 1), INPUT(bwd, 0)))));
  return status;
}

int amp__bwd_clamp(amp_bwd *bwd)
{
  const args_clamp *args = AMP_ARGS(bwd, clamp);
  amp_tensor *input = INPUT(bwd, 0), *within = NULL, *grad = GRAD(bwd);
  if (!input) return amp__err();
  if (AMP_GIVEN(args->min)) OR_FAIL(within = OP_NUMBER(gt, input, args->min));
  if (AMP_GIVEN(args->max)) {
    amp_tensor *below = OP_NUMBER(lt, input, args->max);
    OR_FAIL(within = within ? OP2(logical_and, within, below) : below);
  }
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, within ? amp__op_mask(within, grad) : grad));
}

BWD(masked_fill, amp__op_mask_not(INPUT(b, 1), GRAD(b)))
