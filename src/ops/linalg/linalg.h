/*
** ops/linalg/linalg.h: what the files of linear algebra share: Jacobi's methods for the
** table of own factorisations. They compute in double whatever the type is.
*/
#ifndef AMP_OPS_LINALG_H
#define AMP_OPS_LINALG_H
#include "ops/linalg/factorisations.h"

int amp__jacobi_svd(int type, int64_t m, int64_t n, int64_t nu, int64_t nv, void *a, void *s, void *u, void *vt);
int amp__jacobi_eigh(int type, bool vectors, int64_t n, void *a, void *w);

#endif
