/*
** binary_formulas.h: what binary.cu computes, a line a row of the op table: the formula, and with it the function that
** the table calls. A row cannot have the one without the other.
**
** In a formula a and b are the elements, T their type and s the call's settings. Included with one or more of these
** defined:
**
**   ROW(name, entry, real)            floats only; integers are computed as float32
**   BOTH(name, entry, real, whole)    floats, and integers, whose dtype stays
**   WHOLE(name, whole)                integers only
**   TEST(name, formula)               gives booleans
**
** entry: SHARED, the kernels in which the row is chosen at run time; LONG, the same, too long for the one of them that
** holds a formula eight times (generated ones have it in a loop); FAST, a kernel of its own in float32; OWN, a function
** written out in binary.cu.
*/
/* clang-format off */
#ifndef ROW
#define ROW(name, entry, real)
#endif
#ifndef BOTH
#define BOTH(name, entry, real, whole)
#endif
#ifndef WHOLE
#define WHOLE(name, whole)
#endif
#ifndef TEST
#define TEST(name, formula)
#endif

BOTH(add, OWN, s.k ? a + (T)s.alpha * b : a + b, s.k ? WRAP(+, a, WRAP(*, s.ialpha, b)) : WRAP(+, a, b))
BOTH(sub, OWN, s.k ? a - (T)s.alpha * b : a - b, s.k ? WRAP(-, a, WRAP(*, s.ialpha, b)) : WRAP(-, a, b))
BOTH(mul, FAST, a * b, WRAP(*, a, b))
BOTH(maximum, SHARED, larger(a, b), a > b ? a : b)
BOTH(minimum, SHARED, smaller(a, b), a < b ? a : b)
BOTH(mod, LONG, amp_mod(a, b), amp_mod(a, not_zero(op, a, b, s)))
BOTH(fmod, LONG, fmod(a, b), not_zero(op, a, b, s) == 0 || b == -1 ? 0 : a % b)
BOTH(floor_divide, LONG, (T)amp_floordiv((double)a, (double)b), amp_floordiv(a, not_zero(op, a, b, s)))
BOTH(pow, SHARED, b == 2 ? a * a : b == 1 ? a : b == 3 ? a * a * a : pow(a, b), amp_power(a, not_negative(op, b, s)))

ROW(div, FAST, a / b)
ROW(hypot, SHARED, hypot(a, b))
ROW(atan2, SHARED, atan2(a, b))
ROW(logaddexp, SHARED, amp_logaddexp(a, b))
ROW(xlogy, SHARED, b != b ? b : a == 0 ? (T)0 : a * log(b))
ROW(copysign, SHARED, copysign(a, b))

ROW(rectify, FAST, a > 0 ? a : b * a)
ROW(gate, FAST, a * amp_sigmoid(b))

ROW(relu_backward, FAST, b <= 0 ? (T)0 : a)
ROW(sigmoid_backward, FAST, a * b * (1 - b))
ROW(tanh_backward, FAST, a * (1 - b * b))
ROW(silu_backward, FAST, a * amp_silu_grad(b))
ROW(gelu_backward, OWN, a * gelu_slope(s.k, b))
ROW(sinc_backward, LONG, a * amp_sinc_grad(b))

WHOLE(bitwise_and, a & b)
WHOLE(bitwise_or, a | b)
WHOLE(bitwise_xor, a ^ b)
WHOLE(bitwise_left_shift, b < 0 || b > 63 ? 0 : (int64_t)((uint64_t)a << b))
WHOLE(bitwise_right_shift, a >> (b < 0 || b > 63 ? 63 : b))

TEST(eq, a == b)
TEST(ne, a != b)
TEST(lt, a < b)
TEST(le, a <= b)
TEST(gt, a > b)
TEST(ge, a >= b)
TEST(logical_and, (a != 0) & (b != 0))
TEST(logical_or, (a != 0) | (b != 0))
TEST(logical_xor, (a != 0) ^ (b != 0))

#undef ROW
#undef BOTH
#undef WHOLE
#undef TEST
/* clang-format on */
