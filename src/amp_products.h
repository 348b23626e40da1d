/*
** amp_products.h: checks that composite products share, in words the caller
** knows, and the sum they end with.
*/
#ifndef AMP_PRODUCTS_H
#define AMP_PRODUCTS_H
#include "amp_bwd.h"

int amp__want_dims(const amp_call *c, int i, int ndim, const char *what);  /* argument i has ndim dimensions */
int amp__want_dtype(const amp_tensor *a, const amp_tensor *b);             /* equal ones; b may be NULL */
/* Arguments i and i + 1 have da and db dimensions, fit each other, and have one dtype. */
int amp__want_product(amp_call *c, int i, int da, int db, const char *wa, const char *wb);
/* The first argument broadcasts to a product of this shape. */
int amp__want_addend(const amp_call *c, int ndim, const int64_t *size);
/* beta * input + alpha * p, slots beta and alpha first; beta 0 leaves input out, whatever it holds. */
amp_tensor *amp__add_product(const amp_call *c, amp_tensor *p);

#endif
