/*
** slope_formulas.h: what slope.cu computes, a line a word of the rows slope (FUNCTION) and pair_slope (TERM). g is the
** gradient, x the point, a and b the operands, T their type; p, q and r are the numbers of the function. Included with
** one or more of these defined:
**
**   SLOPE(group, word, formula), PAIR(group, word, formula)
**
** group: what shares kernels. PLAIN: arithmetic; CURVED: with a function of the maths library; LONG: in double, or too
** long to be there eight times.
*/
/* clang-format off */
#ifndef SLOPE
#define SLOPE(group, word, formula)
#endif
#ifndef PAIR
#define PAIR(group, word, formula)
#endif

SLOPE(PLAIN, LINE, g * (p + q * x))
SLOPE(PLAIN, OVER, g * q / (x * p + r))
SLOPE(PLAIN, OVER_SQUARE, g / (p + q * x * x))
SLOPE(PLAIN, OVER_ROOT, g * (r / sqrt(p + q * x * x)))
SLOPE(PLAIN, TIMES_SQUARE, g * (p + q * x * x))
SLOPE(PLAIN, ABS, g * (x > 0 ? (T)1 : x < 0 ? (T)-1 : x))
SLOPE(PLAIN, RSQRT, g * (x * (T)-0.5) * (x * x))
SLOPE(PLAIN, RECIPROCAL, -(g * x * x))
SLOPE(CURVED, EXP, g * exp(x))
SLOPE(CURVED, BELL, g * (exp(q * x * x) * p))
SLOPE(CURVED, SIN, g * cos(x))
SLOPE(CURVED, COS, -(g * sin(x)))
SLOPE(CURVED, SINH, g * cosh(x))
SLOPE(CURVED, COSH, g * sinh(x))
SLOPE(CURVED, SOFTPLUS, x * p > q ? g : g * amp_sigmoid(x * p))
SLOPE(CURVED, MISH, g * amp_mish_grad(x))
SLOPE(PLAIN, FINITE, isfinite(x) ? g : (T)0)
SLOPE(PLAIN, LOGIT, p != p || (x > p && x < q) ? g / (x * (1 - x)) : (T)0)
SLOPE(PLAIN, LEAKY_RELU, x > 0 ? g : g * p)
SLOPE(PLAIN, CLAMP, (p == -amp_inf<T>() || x > p) && (q == amp_inf<T>() || x < q) ? (r == 1 ? g : g / r) : (T)0)
SLOPE(PLAIN, HARDSWISH, x >= 3 ? g : x <= -3 ? (T)0 : g * (x / 3 + (T)0.5))
SLOPE(PLAIN, SOFTSIGN, g / ((1 + fabs(x)) * (1 + fabs(x))))
SLOPE(PLAIN, SHRINK, fabs(x) <= p ? (T)0 : g)
SLOPE(PLAIN, THRESHOLD, x <= p ? (T)0 : g)
SLOPE(CURVED, TANHSHRINK, g * (tanh(x) * tanh(x)))
SLOPE(PLAIN, QUOTIENT, x == 0 ? (T)0 : g * q / x)
SLOPE(LONG, DIGAMMA, g * ((T)amp_digamma((double)x) * p))
SLOPE(LONG, POLYGAMMA, g * ((T)amp_polygamma((int)q, (double)x) * p))

PAIR(PLAIN, DIV, -((g / b) * (a / b)))
PAIR(PLAIN, LOWER, a > b ? (T)0 : a == b ? g * (T)0.5 : g)
PAIR(PLAIN, UPPER, a < b ? (T)0 : a == b ? g * (T)0.5 : g)
PAIR(PLAIN, RATIO, g * (a / b))
PAIR(PLAIN, ATAN2, g * (a * a + b * b == 0 ? (T)0 : b / (a * a + b * b)))
PAIR(CURVED, LOGADDEXP, g * amp_sigmoid(a - b))
PAIR(CURVED, XLOGY, g * (a == 0 && b <= 0 ? (T)0 : log(b)))
PAIR(PLAIN, COPYSIGN, g * (sign_of(a) * sign_of(b)))
PAIR(PLAIN, DIFFERENCE, g * (a - b))
PAIR(PLAIN, RECTIFY_INPUT, a > 0 ? g : g * b)
PAIR(PLAIN, RECTIFY_WEIGHT, a > 0 ? (T)0 : g * a)
PAIR(CURVED, GATE, g * a * amp_sigmoid(b) * amp_sigmoid(-b))
PAIR(CURVED, EXP_DIFFERENCE, g * exp(a - b))
PAIR(CURVED, POW_BASE, g * (b == 0 ? (T)0 : power(a, b - 1) * b))
PAIR(CURVED, POW_EXPONENT, g * (a == 0 && b - b == 0 ? (T)0 : b * log(a))) /* b: the power */
PAIR(PLAIN, FMOD, -(g * trunc(a / b)))
PAIR(LONG, MOD, -(g * (T)amp_floordiv((double)a, (double)b)))
PAIR(LONG, GAMMA, g * (a * (T)amp_digamma((double)b)))

#undef SLOPE
#undef PAIR
/* clang-format on */
