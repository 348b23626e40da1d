/*
** amp_late.h: blocks that several streams of a device worked on, between the moment
** they are freed and the one when all these have passed it (amp_late.c).
*/
#ifndef AMP_LATE_H
#define AMP_LATE_H
#include "amp_core.h"

/* What amp_alloc.c has: its blocks are lists to amp_late.c */
void *amp__late_take(int index, uint32_t *streams); /* all that were freed since the last time, and who worked on them; NULL: none */
void amp__late_return(int index, void *list);       /* they are late still: nothing could be marked */
void amp__late_over(void *list);                    /* they are free */

/* Marks for what was freed since the last time; what was passed comes back. Calls the device, waits for nothing. */
void amp__late_settle(int device, int index);
/* The same, waiting until everything is back, unless a step is being captured. */
void amp__late_settle_all(int device);

#endif
