/*
** ops/matmul/matmul.h: checks that composite products share, in words the caller
** knows, and the sum they end with.
*/
#ifndef AMP_OPS_MATMUL_H
#define AMP_OPS_MATMUL_H
#include "autograd/derivative.h"

int amp__want_dims(const amp_call *call, int i, int ndim, const char *what); /* argument i has ndim dimensions */
int amp__want_dtype(const amp_tensor *a, const amp_tensor *b);               /* equal ones; b may be NULL */
/* Arguments i and i + 1 have da and db dimensions, fit each other, and have one dtype. */
int amp__want_product(amp_call *call, int i, int da, int db, const char *wa, const char *wb);
/* The first argument broadcasts to a product of this shape. */
int amp__want_addend(const amp_call *call, int ndim, const int64_t *size);
/* beta * input + alpha * product; beta 0 leaves input out, whatever it holds. */
amp_tensor *amp__add_product(amp_tensor *input, double beta, double alpha, amp_tensor *product);

#endif
