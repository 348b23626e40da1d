/*
** precision/precision.h: autocast, and the low-precision copies of leaves.
*/
#ifndef AMP_PRECISION_PRECISION_H
#define AMP_PRECISION_PRECISION_H
#include "autograd/autograd.h"
#ifdef __cplusplus
extern "C" {
#endif

void amp__precision_install(void); /* puts its functions into amp__hooks */
amp_tensor *amp__cast(
    amp_tensor *tensor,
    int dtype); /* recorded cast, through a leaf's shadow when there is one; tensor itself (counted) if equal */
/* A leaf's low-precision copy, filled for its present version (or NULL with error). Borrowed. */
amp_tensor *amp__shadow(amp_tensor *leaf, int dtype);
void amp__shadows_before_capture(void); /* a captured step makes its own */
int64_t amp__new_epoch(void);           /* a number for a region, unique in the process */

#ifdef __cplusplus
}
#endif
#endif
