/*
** capture/capture.h: what a captured step must know of what runs meanwhile.
*/
#ifndef AMP_CAPTURE_CAPTURE_H
#define AMP_CAPTURE_CAPTURE_H
#include "precision/precision.h"
#ifdef __cplusplus
extern "C" {
#endif

void amp__capture_install(void); /* puts its functions into amp__hooks */

#ifdef __cplusplus
}
#endif
#endif
