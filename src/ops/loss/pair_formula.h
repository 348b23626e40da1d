/*
** ops/loss/pair_formula.h: the loops of a loss of pairs, FORMULA_forward_f32 and so on. The includer defines FORMULA,
** its name, VALUE and SLOPE, expressions of an element x, its target t, their difference d and the number p, and
** LONG_FORMULA where SLOPE takes many instructions; all is undefined at the end.
*/
#ifndef LONG_FORMULA
#define LONG_FORMULA 0
#endif
#define GLUE_(a, b) a##b
#define GLUE(a, b) GLUE_(a, b)
#define NAME_(name) NAME(name)
#define BODY "ops/loss/pair_formula_body.h"
#include "cpu/each_real.h"
#undef NAME_
#undef GLUE
#undef GLUE_
#undef LONG_FORMULA
#undef SLOPE
#undef VALUE
#undef FORMULA
