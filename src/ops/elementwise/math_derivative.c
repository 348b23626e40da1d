/*
** ops/elementwise/math_derivative.c: derivatives of element-wise functions, in the order of
** amp_ops.def. One line each: g times f'(x), written with the saved input or
** the saved result, whichever the function's row keeps: as one kernel (slope), and in
** recorded ops for when a graph of it is wanted. Fused derivatives
** (relu_backward, gelu_backward, ...) are rows too and stand at the end.
*/
#include <math.h>
#include "autograd/derivative.h"

#define X INPUT(b, 0)
#define Y OUTPUT(b, 0)
#define S(function, point, p, q, r) amp__slope(FUNCTION_##function, GRAD(b), point, p, q, r)
#define LN2 0.69314718055994530942
#define LN10 2.30258509299404568402
#define TWO_BY_SQRT_PI 1.12837916709551257390

/* -- Functions ---------------------------------------------------------------- */

static amp_tensor *mul(amp_tensor *left, amp_tensor *right) { return OP2(mul, left, right); }
static amp_tensor *sq(amp_tensor *tensor) { return OP2(mul, tensor, tensor); }
static amp_tensor *one_minus(amp_tensor *tensor) { return NUMBER_OP(sub, 1, tensor); }

BWD(neg, OP1(neg, GRAD(b)))
SLOPE(abs, S(ABS, X, 0, 0, 0), mul(GRAD(b), OP1(sign, X)))
BWD(sign, amp__op_zeros_like(b, 0))
BWD(floor, amp__op_zeros_like(b, 0))
BWD(ceil, amp__op_zeros_like(b, 0))
BWD(round, amp__op_zeros_like(b, 0))
BWD(trunc, amp__op_zeros_like(b, 0))
BWD(exp, mul(GRAD(b), Y))
SLOPE(exp2, S(LINE, Y, 0, LN2, 0), mul(GRAD(b), OP_NUMBER(mul, Y, LN2)))
SLOPE(expm1, S(EXP, X, 1, 0, 0), mul(GRAD(b), OP1(exp, X))) /* the result + 1 is 0 from -17 on */
BWD(log, OP2(div, GRAD(b), X))
SLOPE(log2, S(OVER, X, LN2, 1, 0), OP2(div, GRAD(b), OP_NUMBER(mul, X, LN2)))
SLOPE(log10, S(OVER, X, LN10, 1, 0), OP2(div, GRAD(b), OP_NUMBER(mul, X, LN10)))
SLOPE(log1p, S(OVER, X, 1, 1, 1), OP2(div, GRAD(b), OP_NUMBER(add, X, 1)))
SLOPE(sqrt, S(OVER, Y, 2, 1, 0), OP2(div, GRAD(b), OP_NUMBER(mul, Y, 2)))

SLOPE(rsqrt, S(RSQRT, Y, 0, 0, 0), mul(mul(GRAD(b), OP_NUMBER(mul, Y, -0.5)), sq(Y)))
SLOPE(reciprocal, S(RECIPROCAL, Y, 0, 0, 0), OP1(neg, mul(mul(GRAD(b), Y), Y)))
SLOPE(square, S(LINE, X, 0, 2, 0), mul(GRAD(b), OP_NUMBER(mul, X, 2)))
SLOPE(sin, S(SIN, X, 1, 0, 0), mul(GRAD(b), OP1(cos, X)))
SLOPE(cos, S(COS, X, -1, 0, 0), OP1(neg, mul(GRAD(b), OP1(sin, X))))
BWD(tanh, OP2(tanh_backward, GRAD(b), Y))
BWD(sigmoid, OP2(sigmoid_backward, GRAD(b), Y))
SLOPE(log_sigmoid, S(SOFTPLUS, X, -1, INFINITY, 0), mul(GRAD(b), OP1(sigmoid, OP1(neg, X))))
SLOPE(erf, S(BELL, X, TWO_BY_SQRT_PI, -1, 0), mul(GRAD(b), OP_NUMBER(mul, OP1(exp, OP1(neg, sq(X))), TWO_BY_SQRT_PI)))
BWD(relu, OP2(relu_backward, GRAD(b), Y))

static amp_tensor *gelu_backward(amp_tensor *grad, amp_tensor *input, int64_t approximate)
{
  amp_tensor *inputs[2] = { grad, input };
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, approximate);
  return amp__op(AMP_OP_gelu_backward, &attrs, 2, inputs);
}

BWD(gelu, gelu_backward(GRAD(b), X, AMP_ARGS(b, gelu)->approximate))
BWD(silu, OP2(silu_backward, GRAD(b), X))

int amp__bwd_softplus(amp_bwd *b)
{
  const args_softplus *args = AMP_ARGS(b, softplus);
  double beta = args->beta, threshold = args->threshold;
  if (!b->create_graph) return INPUT_GRAD(b, 0, amp__op_to_input(b, 0, S(SOFTPLUS, X, beta, threshold, 0)));
  amp_tensor *z = OP_NUMBER(mul, X, beta), *grad = GRAD(b);
  return INPUT_GRAD(
      b, 0, amp__op_to_input(b, 0, amp__op_where(OP_NUMBER(gt, z, threshold), grad, mul(grad, OP1(sigmoid, z)))));
}

/* -- Fused derivatives: inputs are a gradient and a point ----------------------- */

/* The gradient in the gradient is the same row again; in the point it is v * grad * f''. */
static int second(amp_bwd *bwd, amp_tensor *again, amp_tensor *(*slope2)(amp_bwd *bwd, amp_tensor *point))
{
  int status = 0;
  if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, again));
  if (status == 0 && NEEDS(bwd, 1))
    status
        = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, mul(mul(GRAD(bwd), INPUT(bwd, 0)), slope2(bwd, INPUT(bwd, 1)))));
  return status;
}

int amp__bwd_relu_backward(amp_bwd *bwd)
{
  int status = 0;
  if (NEEDS(bwd, 0))
    status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, OP2(relu_backward, GRAD(bwd), INPUT(bwd, 1))));
  if (status == 0 && NEEDS(bwd, 1)) status = INPUT_GRAD(bwd, 1, amp__op_zeros_like(bwd, 1));
  return status;
}

/* none: phi(x) (2 - x^2), phi the normal density; all is 0 beyond +-40, and no square overflows there.
** tanh, with u = k (x + c x^3), t = tanh(u): (1 - t^2) (u' + x u'' / 2 - x t u'^2) */
static amp_tensor *gelu2(amp_bwd *bwd, amp_tensor *input)
{
  const args_gelu_backward *args = AMP_ARGS(bwd, gelu_backward);
  const double k = 0.79788456080286535588, c = 0.044715, by_sqrt_2pi = 0.39894228040143267794;
  amp_attrs attrs = amp__attrs();
  amp__attrs_float(&attrs, -40);
  amp__attrs_float(&attrs, 40);
  input = amp__op(AMP_OP_clamp, &attrs, 1, &input);
  amp_tensor *square = sq(input);
  if (args->approximate == APPROXIMATE_NONE)
    return mul(OP_NUMBER(mul, OP1(exp, OP_NUMBER(mul, square, -0.5)), by_sqrt_2pi), NUMBER_OP(sub, 2, square));
  amp_tensor *u_slope = OP_NUMBER(mul, OP_NUMBER(add, OP_NUMBER(mul, square, 3 * c), 1), k);
  amp_tensor *tanh_u = OP1(tanh, mul(input, OP_NUMBER(mul, OP_NUMBER(add, OP_NUMBER(mul, square, c), 1), k)));
  amp_tensor *inner
      = OP2(sub, OP2(add, u_slope, OP_NUMBER(mul, square, 3 * k * c)), mul(mul(input, tanh_u), sq(u_slope)));
  return mul(one_minus(sq(tanh_u)), inner);
}

int amp__bwd_gelu_backward(amp_bwd *bwd)
{
  const args_gelu_backward *args = AMP_ARGS(bwd, gelu_backward);
  amp_tensor *again = NEEDS(bwd, 0) ? gelu_backward(GRAD(bwd), INPUT(bwd, 1), args->approximate) : NULL;
  return second(bwd, again, gelu2);
}

/* s (1 - s) (2 + x (1 - 2 s)) */
static amp_tensor *silu2(amp_bwd *bwd, amp_tensor *x)
{
  amp_tensor *s = OP1(sigmoid, x);
  return mul(mul(s, one_minus(s)), OP_NUMBER(add, mul(x, one_minus(OP_NUMBER(mul, s, 2))), 2));
}

int amp__bwd_silu_backward(amp_bwd *bwd)
{
  amp_tensor *again = NEEDS(bwd, 0) ? OP2(silu_backward, GRAD(bwd), INPUT(bwd, 1)) : NULL;
  return second(bwd, again, silu2);
}

static amp_tensor *sigmoid2(amp_bwd *bwd, amp_tensor *output) { return one_minus(OP_NUMBER(mul, output, 2)); }
static amp_tensor *tanh2(amp_bwd *bwd, amp_tensor *output) { return OP_NUMBER(mul, output, -2); }

int amp__bwd_sigmoid_backward(amp_bwd *bwd)
{
  amp_tensor *again = NEEDS(bwd, 0) ? OP2(sigmoid_backward, GRAD(bwd), INPUT(bwd, 1)) : NULL;
  return second(bwd, again, sigmoid2);
}

int amp__bwd_tanh_backward(amp_bwd *bwd)
{
  amp_tensor *again = NEEDS(bwd, 0) ? OP2(tanh_backward, GRAD(bwd), INPUT(bwd, 1)) : NULL;
  return second(bwd, again, tanh2);
}
