/*
** cuda_branches.h: which launches of a captured step wait for which (cuda_branches.c).
*/
#ifndef AMP_CUDA_BRANCHES_H
#define AMP_CUDA_BRANCHES_H
#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct amp_branches amp_branches;

extern int amp__cuda_branches; /* captured steps are made of branches (on unless switched off) */
extern int
    amp__cuda_chain; /* launches of a row may begin before the one before them has ended (on unless switched off) */

int amp__branches_depends(
    const amp_cuda_device *d,
    const cudaGraphNode_t **nodes); /* how many nodes the captured stream depends on now; <0: none is captured */
amp_branches *amp__branches_new(amp_cuda_device *d); /* when a capture has begun; NULL: none, the step is one line */
int amp__branches_free(amp_branches *b); /* before it ends; an error if a kernel changed what it had not announced */
/* Could the row that runs now, which reads t and writes out, be the first thing of all that the step does? */
bool amp__branches_first(const amp_branches *b, const amp_tensor *t, const amp_tensor *out);
void amp__branches_enter(amp_branches *b, const amp_call *c);
void amp__branches_leave(amp_branches *b);
void amp__branches_changed(amp_branches *b,
                           const amp_storage *s); /* a storage's version has gone on: was that announced? */

/* What a row uses beyond its inputs and outputs, told before the launch: a tensor that it reads or writes (an input
** that it changes, temporary memory), or state shared with other rows, for which it is alone. Nothing outside of
** captures. */
void amp__cuda_touch(const amp_tensor *t, bool write);
void amp__cuda_alone(void);
/* Launches that are no row's, but wait for no more than for what they use: that is told between begin and start, and
** what turns out later before the launch that uses it. begin comes behind the entry of the device; each is ended. */
void amp__cuda_part_begin(void);
void amp__cuda_part_start(void);
void amp__cuda_part_end(void);
void amp__cuda_touch_bytes(const void *p, size_t n, bool write); /* p NULL: nothing */
/* The first of n cells, of `all`, for a launch that counts its blocks there: cells that no other of the captured step
 * uses */
unsigned amp__cuda_turn(unsigned n, unsigned all);
/* May a launch of a row begin while its last one still runs (AMP_LAUNCH_NEXT in kernels/common/kernel.cuh)? */
bool amp__cuda_chains(void);

#ifdef __cplusplus
}
#endif
#endif
