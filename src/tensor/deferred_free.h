/*
** tensor/deferred_free.h: blocks that several streams of a device worked on, between the moment
** they are freed and the one when all these have passed it (tensor/deferred_free.c).
*/
#ifndef AMP_TENSOR_DEFERRED_FREE_H
#define AMP_TENSOR_DEFERRED_FREE_H
#include "tensor/tensor.h"

/* What tensor/alloc.c has: its blocks are lists to tensor/deferred_free.c */
void *amp__deferred_free_take(
    int index,
    uint32_t *streams); /* all that were freed since the last time, and the streams that worked on them; NULL: none */
void amp__deferred_free_return(int index, void *list); /* they are deferred still: nothing could be marked */
void amp__deferred_free_over(void *list);              /* they are free */

/* Marks for what was freed since the last time; what was passed comes back. Calls the device, waits for nothing. */
void amp__deferred_free_settle(int device, int index);
/* The same, waiting until everything is back, unless a step is being captured. */
void amp__deferred_free_settle_all(int device);

#endif
