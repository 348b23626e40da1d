/*
** observe/observe.h: spans of time around ops, derivatives and steps.
*/
#ifndef AMP_OBSERVE_OBSERVE_H
#define AMP_OBSERVE_OBSERVE_H
#include "autograd/autograd.h"
#ifdef __cplusplus
extern "C" {
#endif

void amp__observe_install(void); /* puts its functions into amp__hooks */
void amp__observe_free(amp_state *state);

#ifdef __cplusplus
}
#endif
#endif
