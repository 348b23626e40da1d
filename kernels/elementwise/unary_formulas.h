/*
** unary_formulas.h: what unary.cu computes, a line a row of the op table: the formula, and with it the function that
** the table calls. A row cannot have the one without the other.
**
** In a formula a is the element, T its type and s the call's settings. Included with one or more of these defined:
**
**   ROW(name, entry, real)            floats only; integers are computed as float32
**   BOTH(name, entry, real, whole)    floats, and integers, whose dtype stays
**   WHOLE(name, entry, whole)         integers only
**   TEST(name, real, whole)           gives booleans
**   ONE(name, entry, first, real)     as ROW, with an attribute of the row as s.d[0]
**   TWO(name, entry, first, second, real)   and another one as s.d[1]
**
** entry: SHARED, the kernels in which the row is chosen at run time; LONG, the same, too long for the one of them that
** holds a formula eight times (generated ones have it in a loop); FAST, a kernel of its own in float32; OWN, a function
** written out in unary.cu.
*/
/* clang-format off */
#ifndef ROW
#define ROW(name, entry, real)
#endif
#ifndef BOTH
#define BOTH(name, entry, real, whole)
#endif
#ifndef WHOLE
#define WHOLE(name, entry, whole)
#endif
#ifndef TEST
#define TEST(name, real, whole)
#endif
#ifndef ONE
#define ONE(name, entry, first, real) ROW(name, OWN, real)
#endif
#ifndef TWO
#define TWO(name, entry, first, second, real) ROW(name, OWN, real)
#endif

BOTH(neg, FAST, -a, (int64_t)(0 - (uint64_t)a))
BOTH(abs, FAST, fabs(a), a < 0 ? (int64_t)(0 - (uint64_t)a) : a)
BOTH(sign, SHARED, sign_of(a), sign_of(a))
BOTH(floor, SHARED, floor(a), a)
BOTH(ceil, SHARED, ceil(a), a)
BOTH(round, SHARED, rint(a), a)
BOTH(trunc, SHARED, trunc(a), a)
BOTH(square, FAST, a * a, (int64_t)((uint64_t)a * (uint64_t)a))
BOTH(relu, FAST, a < 0 ? (T)0 : a, a < 0 ? 0 : a)
BOTH(clamp, OWN, limited(a, S(0), S(1)), limited(a, s.i[0], s.i[1]))
WHOLE(bitwise_not, OWN, s.k ? a == 0 : ~a)

ROW(exp, FAST, exp(a))
ROW(exp2, SHARED, exp2(a))
ROW(expm1, SHARED, expm1(a))
ROW(log, FAST, log(a))
ROW(log2, SHARED, log2(a))
ROW(log10, SHARED, log10(a))
ROW(log1p, SHARED, log1p(a))
ROW(sqrt, FAST, sqrt(a))
ROW(rsqrt, FAST, 1 / sqrt(a))
ROW(reciprocal, FAST, 1 / a)
ROW(sin, LONG, sin(a))
ROW(cos, LONG, cos(a))
ROW(tan, LONG, tan(a))
ROW(asin, SHARED, asin(a))
ROW(acos, SHARED, acos(a))
ROW(atan, SHARED, atan(a))
ROW(sinh, SHARED, sinh(a))
ROW(cosh, SHARED, cosh(a))
ROW(tanh, FAST, tanh(a))
ROW(asinh, SHARED, asinh(a))
ROW(acosh, SHARED, acosh(a))
ROW(atanh, SHARED, atanh(a))
ROW(cbrt, SHARED, cbrt(a))
ROW(frac, SHARED, a - trunc(a))
ROW(sinc, LONG, amp_sinc(a))
ROW(nan_to_num, OWN, a != a ? S(0) : isinf(a) ? (a > 0 ? S(1) : S(2)) : a)

ROW(erf, SHARED, erf(a))
ROW(erfc, SHARED, erfc(a))
ROW(erfinv, LONG, (T)erfinv((double)a))
ROW(gamma, LONG, a == -amp_inf<T>() ? (T)NAN : (T)tgamma((double)a))
ROW(lgamma, LONG, (T)lgamma((double)a))
ROW(digamma, LONG, (T)amp_digamma((double)a))
ROW(polygamma, LONG_OWN, (T)amp_polygamma(s.k, (double)a))
ROW(logit, OWN, amp_logit(s.k ? a < S(0) ? S(0) : a > S(1) ? S(1) : a : a))

ROW(sigmoid, FAST, amp_sigmoid(a))
ROW(log_sigmoid, SHARED, -amp_softplus(-a))
ROW(silu, FAST, amp_silu(a))
ROW(gelu, OWN, s.k == APPROXIMATE_TANH ? amp_gelu_tanh(a) : amp_gelu(a))
ROW(mish, SHARED, amp_mish(a))
ROW(selu, SHARED, a > 0 ? (T)SELU_SCALE * a : (T)(SELU_SCALE * SELU_ALPHA) * expm1(a))
ROW(hardsigmoid, SHARED, a <= -3 ? (T)0 : a >= 3 ? (T)1 : (a + 3) / 6)
ROW(hardswish, FAST, a <= -3 ? (T)0 : a >= 3 ? a : a * (a + 3) / 6)
ROW(tanhshrink, SHARED, a - tanh(a))
ROW(softsign, SHARED, a / (1 + fabs(a)))
ONE(leaky_relu, FAST, negative_slope, a > 0 ? a : a * S(0))
ONE(elu, SHARED, alpha, a > 0 ? a : S(0) * expm1(a))
ONE(celu, SHARED, alpha, a > 0 ? a : S(0) * expm1(a / S(0)))
ONE(hardshrink, SHARED, lambd, a >= -S(0) && a <= S(0) ? (T)0 : a)
ONE(softshrink, SHARED, lambd, a > S(0) ? a - S(0) : a < -S(0) ? a + S(0) : a * 0)
TWO(softplus, SHARED, beta, threshold, a * S(0) > S(1) ? a : amp_softplus(a * S(0)) / S(0))
TWO(threshold, SHARED, threshold, value, a <= S(0) ? S(1) : a)
TWO(hardtanh, SHARED, min_val, max_val, a < S(0) ? S(0) : a > S(1) ? S(1) : a)

TEST(isnan, a != a, 0)
TEST(isinf, fabs((double)a) > DBL_MAX, 0)
TEST(isfinite, fabs((double)a) <= DBL_MAX, 1)
TEST(logical_not, a == 0, a == 0)

#undef ROW
#undef BOTH
#undef WHOLE
#undef TEST
#undef ONE
#undef TWO
/* clang-format on */
