/*
** fold_formulas.h: what reduce.cu folds, a line an operation: the value to start from, how two parts a and b (of
** type A) are joined, and what an element v (of type T) counts. Included with FOLD(op, start, join, weigh) defined; the
** enum of operations is made from it, so that none is without its formulas.
*/
/* clang-format off */
FOLD(PROD, 1, times(a, b), v)
FOLD(MOST, lowest<A>(), most(a, b), v)
FOLD(LEAST, highest<A>(), least(a, b), v)
FOLD(SQUARE, 0, plus(a, b), v * v)
FOLD(ABS, 0, plus(a, b), size(v))
FOLD(MOST_ABS, 0, most(a, b), size(v))
FOLD(LEAST_ABS, highest<A>(), least(a, b), size(v))
FOLD(NONZERO, 0, plus(a, b), (T)(v != 0))
FOLD(POWERS, 0, plus(a, b), raise(v))
FOLD(ANY, 0, (A)(a != 0 || b != 0), (T)(v != 0))
FOLD(ALL, 1, (A)(a != 0 && b != 0), (T)(v != 0))
#undef FOLD
/* clang-format on */
