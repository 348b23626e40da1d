/*
** ops/elementwise/special_derivative.c: derivatives of the rarer elementwise functions, of settings-
** bearing activations and of two-tensor functions, in the order of amp_ops.def.
** Each as one kernel (slope, pair_slope), and in recorded ops for when a graph of it is
** wanted; where a function is in pieces, so is its derivative. For
** 16-bit values they are computed in float32: squares of x overflow long before
** the derivative does, and differences of rounded values are mostly rounding.
*/
#include <math.h>
#include "autograd/derivative.h"

static amp_tensor *wide(amp_tensor *tensor)
{
  return tensor && amp__is_half(tensor->dtype) ? amp__op_cast(tensor, AMP_FLOAT32) : tensor;
}
#define X wide(INPUT(b, 0))
#define Y wide(OUTPUT(b, 0))
#define WIDE_GRAD(b) wide((b)->grad[0])
/* One kernel, which computes in float32 by itself: at the saved input, at the result */
#define SX(function, p, q, r) amp__slope(FUNCTION_##function, GRAD(b), INPUT(b, 0), p, q, r)
#define SY(function, p, q, r) amp__slope(FUNCTION_##function, GRAD(b), OUTPUT(b, 0), p, q, r)
#define PAIR(term, left, right, by) amp__pair_slope(TERM_##term, GRAD(b), left, right, by)
#define IN0 INPUT(b, 0)
#define IN1 INPUT(b, 1)

static amp_tensor *mul(amp_tensor *left, amp_tensor *right) { return OP2(mul, left, right); }
static amp_tensor *sq(amp_tensor *tensor) { return OP2(mul, tensor, tensor); }
static amp_tensor *one_minus(amp_tensor *tensor) { return NUMBER_OP(sub, 1, tensor); }
/* g where lo < x < hi, else 0 */
static amp_tensor *between(amp_tensor *g, amp_tensor *x, double lo, double hi)
{
  return amp__op_mask(OP2(logical_and, OP_NUMBER(gt, x, lo), OP_NUMBER(lt, x, hi)), g);
}

/* -- Two tensors ---------------------------------------------------------------------- */

/* both gradients, of which only wanted ones are computed: fused, recorded, the same of the second */
#define BOTH(name, fused1, first, fused2, second)                                                           \
  int amp__bwd_##name(amp_bwd *b)                                                                           \
  {                                                                                                         \
    int rc = 0;                                                                                             \
    const bool graph = b->create_graph;                                                                     \
    if (NEEDS(b, 0)) rc = INPUT_GRAD(b, 0, amp__op_to_input(b, 0, graph ? (first) : (fused1)));             \
    if (rc == 0 && NEEDS(b, 1)) rc = INPUT_GRAD(b, 1, amp__op_to_input(b, 1, graph ? (second) : (fused2))); \
    return rc;                                                                                              \
  }
#define A wide(INPUT(b, 0))
#define B wide(INPUT(b, 1))
BOTH(fmod, GRAD(b), WIDE_GRAD(b), PAIR(FMOD, IN0, IN1, 1), OP1(neg, mul(WIDE_GRAD(b), OP1(trunc, OP2(div, A, B)))))
BOTH(hypot, PAIR(RATIO, IN0, OUTPUT(b, 0), 1), mul(WIDE_GRAD(b), OP2(div, A, Y)), PAIR(RATIO, IN1, OUTPUT(b, 0), 1),
     mul(WIDE_GRAD(b), OP2(div, B, Y)))
/* part / (input^2 + other^2); 0 at the origin, which has no direction */
static amp_tensor *turn(amp_bwd *b, amp_tensor *part)
{
  amp_tensor *x = A, *y = B, *n = OP2(add, sq(x), sq(y)), *zero = OP_NUMBER(eq, n, 0);
  return amp__op_mask_not(zero, OP2(div, part, amp__op_fill_where(zero, n, 1)));
}
BOTH(atan2, PAIR(ATAN2, IN0, IN1, 1), mul(WIDE_GRAD(b), turn(b, B)), PAIR(ATAN2, IN1, IN0, -1),
     OP1(neg, mul(WIDE_GRAD(b), turn(b, A))))
BOTH(logaddexp, PAIR(LOGADDEXP, IN0, IN1, 1), mul(WIDE_GRAD(b), OP1(sigmoid, OP2(sub, A, B))),
     PAIR(LOGADDEXP, IN1, IN0, 1), mul(WIDE_GRAD(b), OP1(sigmoid, OP2(sub, B, A))))
static amp_tensor *log_or_zero(amp_bwd *b)
{ /* 0 where input is 0 and the logarithm is not finite */
  amp_tensor *x = A, *y = B;
  return amp__op_mask_not(OP2(logical_and, OP_NUMBER(eq, x, 0), OP_NUMBER(le, y, 0)), OP1(log, y));
}
BOTH(xlogy, PAIR(XLOGY, IN0, IN1, 1), mul(WIDE_GRAD(b), log_or_zero(b)), PAIR(RATIO, IN0, IN1, 1),
     mul(WIDE_GRAD(b), OP2(div, A, B)))
BOTH(copysign, PAIR(COPYSIGN, IN0, OUTPUT(b, 0), 1), mul(WIDE_GRAD(b), mul(OP1(sign, X), OP1(sign, Y))),
     amp__op_zeros_like(b, 1), amp__op_zeros_like(b, 1))

/* -- Functions ---------------------------------------------------------------------------- */

SLOPE(tan, SY(TIMES_SQUARE, 1, 1, 0), mul(WIDE_GRAD(b), OP_NUMBER(add, sq(Y), 1)))
SLOPE(asin, SX(OVER_ROOT, 1, -1, 1), mul(WIDE_GRAD(b), OP1(rsqrt, one_minus(sq(X)))))
SLOPE(acos, SX(OVER_ROOT, 1, -1, -1), OP1(neg, mul(WIDE_GRAD(b), OP1(rsqrt, one_minus(sq(X))))))
SLOPE(atan, SX(OVER_SQUARE, 1, 1, 0), OP2(div, WIDE_GRAD(b), OP_NUMBER(add, sq(X), 1)))
SLOPE(sinh, SX(SINH, 1, 0, 0), mul(WIDE_GRAD(b), OP1(cosh, X)))
SLOPE(cosh, SX(COSH, 1, 0, 0), mul(WIDE_GRAD(b), OP1(sinh, X)))
SLOPE(asinh, SX(OVER_ROOT, 1, 1, 1), mul(WIDE_GRAD(b), OP1(rsqrt, OP_NUMBER(add, sq(X), 1))))
SLOPE(acosh, SX(OVER_ROOT, -1, 1, 1), mul(WIDE_GRAD(b), OP1(rsqrt, OP_NUMBER(sub, sq(X), 1))))
SLOPE(atanh, SX(OVER_SQUARE, 1, -1, 0), OP2(div, WIDE_GRAD(b), one_minus(sq(X))))
SLOPE(cbrt, SY(OVER_SQUARE, 0, 3, 0), OP2(div, WIDE_GRAD(b), OP_NUMBER(mul, sq(Y), 3)))
SLOPE(erfc, SX(BELL, -1.12837916709551257390, -1, 0),
      mul(WIDE_GRAD(b), OP_NUMBER(mul, OP1(exp, OP1(neg, sq(X))), -1.12837916709551257390)))
SLOPE(erfinv, SY(BELL, 0.88622692545275801365, 1, 0),
      mul(WIDE_GRAD(b), OP_NUMBER(mul, OP1(exp, sq(Y)), 0.88622692545275801365)))
static amp_tensor *polygamma(amp_tensor *input, int64_t n)
{
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, n);
  return amp__op(AMP_OP_polygamma, &attrs, 1, &input);
}
SLOPE(gamma, PAIR(GAMMA, OUTPUT(b, 0), IN0, 1), mul(WIDE_GRAD(b), mul(Y, OP1(digamma, X))))
SLOPE(lgamma, SX(DIGAMMA, 1, 0, 0), mul(WIDE_GRAD(b), OP1(digamma, X)))
SLOPE(digamma, SX(POLYGAMMA, 1, 1, 0), mul(WIDE_GRAD(b), polygamma(X, 1)))
SLOPE(polygamma, SX(POLYGAMMA, 1, (double)AMP_ARGS(b, polygamma)->n + 1, 0),
      mul(WIDE_GRAD(b), polygamma(X, AMP_ARGS(b, polygamma)->n + 1)))
BWD(frac, GRAD(b))
SLOPE(nan_to_num, SX(FINITE, 0, 0, 0), amp__op_mask(OP1(isfinite, X), WIDE_GRAD(b)))

/* (cos z - sin z / z) / x, z = pi x. Near 0 the difference loses all its digits: Taylor's series, terms 2 k z^(2 k
** - 1) / (2 k + 1)! */
static amp_tensor *sinc_slope(amp_tensor *input)
{
  const double pi = 3.14159265358979323846;
  double c = 18 / 121645100408832000.0;
  if (!input) return NULL;
  amp_tensor *near = OP_NUMBER(lt, OP1(abs, amp__op_detach(input)), 0.25), *far = amp__op_fill_where(near, input, 1),
             *z = OP_NUMBER(mul, far, pi);
  far = OP2(div, OP2(sub, OP1(cos, z), OP2(div, OP1(sin, z), z)), far);
  z = OP_NUMBER(mul, amp__op_mask(near, input), pi);
  amp_tensor *u = sq(z), *series = OP_NUMBER(mul, u, -c);
  for (int k = 8; k > 0; k--) {
    c *= (double)k / (k + 1) * (2 * k + 2) * (2 * k + 3);
    series = OP_NUMBER(add, series, k % 2 ? -c : c);
    if (k > 1) series = mul(series, u);
  }
  return amp__op_where(near, OP_NUMBER(mul, mul(z, series), pi), far);
}
int amp__bwd_sinc(amp_bwd *b)
{
  return INPUT_GRAD(b, 0,
                    b->create_graph ? amp__op_to_input(b, 0, mul(WIDE_GRAD(b), sinc_slope(X)))
                                    : OP2(sinc_backward, b->grad[0], INPUT(b, 0)));
}
/* g / (x (1 - x)), 0 beyond the limits and at them */
int amp__bwd_logit(amp_bwd *b)
{
  const args_logit *args = AMP_ARGS(b, logit);
  double eps = args->eps;
  if (!b->create_graph)
    return INPUT_GRAD(
        b, 0, amp__op_to_input(b, 0, AMP_GIVEN(args->eps) ? SX(LOGIT, eps, 1 - eps, 0) : SX(LOGIT, NAN, NAN, 0)));
  amp_tensor *x = X, *g = WIDE_GRAD(b);
  if (AMP_GIVEN(args->eps)) {
    amp_tensor *within = OP2(logical_and, OP_NUMBER(gt, x, eps), OP_NUMBER(lt, x, 1 - eps));
    g = amp__op_mask(within, g);
    x = amp__op_where(within, x, amp__wrapped_number(0.5));
  }
  return INPUT_GRAD(b, 0, amp__op_to_input(b, 0, OP2(div, g, mul(x, one_minus(x)))));
}

/* -- Activations ----------------------------------------------------------------------------- */

SLOPE(leaky_relu, SX(LEAKY_RELU, AMP_ARGS(b, leaky_relu)->negative_slope, 0, 0),
      amp__op_where(OP_NUMBER(gt, X, 0), WIDE_GRAD(b),
                    OP_NUMBER(mul, WIDE_GRAD(b), AMP_ARGS(b, leaky_relu)->negative_slope)))
/* g times above where x is positive, else times below e^(x / by): from -17 on e^x is lost in the result + 1 */
static amp_tensor *elu_backward(amp_tensor *g, amp_tensor *x, double above, double below, double by)
{
  amp_tensor *inputs[2] = { g, x };
  amp_attrs attrs = amp__attrs();
  amp__attrs_float(&attrs, above);
  amp__attrs_float(&attrs, below);
  amp__attrs_float(&attrs, by);
  return amp__op(AMP_OP_elu_backward, &attrs, 2, inputs);
}
#define SELU_SCALE 1.0507009873554804934193349852946
#define SELU_ALPHA 1.6732632423543772848170429916717
BWD(elu, elu_backward(GRAD(b), IN0, 1, AMP_ARGS(b, elu)->alpha, 1))
BWD(celu, elu_backward(GRAD(b), IN0, 1, 1, AMP_ARGS(b, celu)->alpha))
BWD(selu, elu_backward(GRAD(b), IN0, SELU_SCALE, SELU_SCALE *SELU_ALPHA, 1))
int amp__bwd_elu_backward(amp_bwd *bwd)
{ /* above below by */
  const args_elu_backward *args = AMP_ARGS(bwd, elu_backward);
  double above = args->above, below = args->below, by = args->by;
  int status = 0;
  if (NEEDS(bwd, 0))
    status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, elu_backward(GRAD(bwd), INPUT(bwd, 1), above, below, by)));
  if (status == 0 && NEEDS(bwd, 1))
    status = INPUT_GRAD(
        bwd, 1,
        amp__op_to_input(bwd, 1, mul(WIDE_GRAD(bwd), elu_backward(INPUT(bwd, 0), INPUT(bwd, 1), 0, below / by, by))));
  return status;
}
static amp_tensor *softplus(amp_tensor *input)
{
  amp_attrs attrs = amp__attrs();
  amp__attrs_float(&attrs, 1);
  amp__attrs_float(&attrs, 20);
  return amp__op(AMP_OP_softplus, &attrs, 1, &input);
}
/* t + x s (1 - t^2), t = tanh(softplus(x)), s = sigmoid(x) */
int amp__bwd_mish(amp_bwd *b)
{
  if (!b->create_graph) return INPUT_GRAD(b, 0, amp__op_to_input(b, 0, SX(MISH, 0, 0, 0)));
  amp_tensor *x = X, *t = OP1(tanh, softplus(x));
  return INPUT_GRAD(
      b, 0, amp__op_to_input(b, 0, mul(WIDE_GRAD(b), OP2(add, t, mul(mul(x, OP1(sigmoid, x)), one_minus(sq(t)))))));
}
SLOPE(hardsigmoid, SX(CLAMP, -3, 3, 6), between(OP_NUMBER(div, WIDE_GRAD(b), 6), X, -3, 3))
int amp__bwd_hardswish(amp_bwd *b)
{
  if (!b->create_graph) return INPUT_GRAD(b, 0, amp__op_to_input(b, 0, SX(HARDSWISH, 0, 0, 0)));
  amp_tensor *input = X, *grad = WIDE_GRAD(b);
  return INPUT_GRAD(
      b, 0,
      amp__op_to_input(b, 0,
                       amp__op_where(OP_NUMBER(ge, input, 3), grad,
                                     amp__op_mask_not(OP_NUMBER(le, input, -3),
                                                      mul(grad, OP_NUMBER(add, OP_NUMBER(div, input, 3), 0.5))))));
}
SLOPE(hardtanh, SX(CLAMP, AMP_ARGS(b, hardtanh)->min_val, AMP_ARGS(b, hardtanh)->max_val, 1),
      between(WIDE_GRAD(b), X, AMP_ARGS(b, hardtanh)->min_val, AMP_ARGS(b, hardtanh)->max_val))
int amp__bwd_softsign(amp_bwd *b)
{
  if (!b->create_graph) return INPUT_GRAD(b, 0, amp__op_to_input(b, 0, SX(SOFTSIGN, 0, 0, 0)));
  amp_tensor *d = OP_NUMBER(add, OP1(abs, X), 1);
  return INPUT_GRAD(b, 0, amp__op_to_input(b, 0, OP2(div, WIDE_GRAD(b), sq(d))));
}
SLOPE(hardshrink, SX(SHRINK, AMP_ARGS(b, hardshrink)->lambd, 0, 0),
      amp__op_mask_not(OP_NUMBER(le, OP1(abs, X), AMP_ARGS(b, hardshrink)->lambd), WIDE_GRAD(b)))
SLOPE(softshrink, SX(SHRINK, AMP_ARGS(b, softshrink)->lambd, 0, 0),
      amp__op_mask_not(OP_NUMBER(le, OP1(abs, X), AMP_ARGS(b, softshrink)->lambd), WIDE_GRAD(b)))
SLOPE(threshold, SX(THRESHOLD, AMP_ARGS(b, threshold)->threshold, 0, 0),
      amp__op_mask_not(OP_NUMBER(le, X, AMP_ARGS(b, threshold)->threshold), WIDE_GRAD(b)))
SLOPE(tanhshrink, SX(TANHSHRINK, 0, 0, 0), mul(WIDE_GRAD(b), sq(OP1(tanh, X))))

/* -- prelu and glu: of two operands --------------------------------------------------------------- */

static amp_tensor *positive(amp_tensor *x) { return OP_NUMBER(gt, x, 0); }
BOTH(rectify, PAIR(RECTIFY_INPUT, IN0, IN1, 1), amp__op_where(positive(A), WIDE_GRAD(b), mul(WIDE_GRAD(b), B)),
     PAIR(RECTIFY_WEIGHT, IN0, IN1, 1), amp__op_mask_not(positive(A), mul(WIDE_GRAD(b), A)))
BOTH(gate, amp__slope(FUNCTION_SOFTPLUS, GRAD(b), IN1, 1, INFINITY, 0), mul(WIDE_GRAD(b), OP1(sigmoid, B)),
     PAIR(GATE, IN0, IN1, 1), OP2(sigmoid_backward, mul(WIDE_GRAD(b), A), OP1(sigmoid, B)))
