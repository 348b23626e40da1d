/*
** amp_tape.h: the inside of the tape, for amp_tape.c, amp_grad.c, amp_engine.c
** and amp_cast.c. Others see amp_core.h only.
*/
#ifndef AMP_TAPE_H
#define AMP_TAPE_H
#include "amp_core.h"

/* An in-place op on a view, as its base sees it: the gradient of the base's
** slice goes through `fn`, the rest passes. */
typedef struct amp_slices {
  amp_node *fn;
  int ndim;
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM], offset; /* in the base's memory order, from its start */
  int8_t order[AMP_MAX_DIM];                              /* the base's dimensions in memory order */
} amp_slices;

amp_node *amp__node_new(int op, int nin, int nout, int nslot, int nsaved, int ndim); /* ndim: most of its shapes; they and attributes not filled */
int amp__node_edge(amp_node *n, int i, amp_tensor *t); /* edge i is t's; n stays newer than what it leads to */
int amp__tie(amp_tensor *t, amp_node *n, int index);
void amp__edge_free(amp_edge *e);
void amp__saved_free(amp_saved *s);
void amp__physical_order(const amp_tensor *t, int8_t *order);
amp_tensor *amp__physical(amp_tensor *t);
const char *amp__node_name(const amp_node *n);
/* Origin bits (enum amp_origin, and those of scales met) of what n sends on, of a root's gradient that the caller gave (amp_origin.c). */
uint8_t amp__node_origin(const amp_node *n, uint8_t came);
uint8_t amp__root_origin(amp_tensor *given, uint8_t outer);
void amp__scales_enter(void);              /* a backward begins, or a sum of records: from here to leave bits of scales stand */
void amp__scales_leave(void);
uint8_t amp__scale_bit(amp_tensor *scale); /* of a scale, which it keeps until the outermost leave */
int amp__origin_of_sum(int a, int b);
int amp__grad_meet(amp_tensor *leaf, amp_tensor **scale); /* before the running backward adds: bring what is there to its scale; the sum's, borrowed, NULL: none known */
bool amp__grad_meets_same(const amp_grad *g);             /* what it adds carries the scale that g does, or none */
void amp__dead_push(int64_t id);   /* an id whose node or leaf is gone (amp_grad.c) */
typedef struct amp_later amp_later; /* products put off to the end of a backward (amp_later.c) */
typedef int (*amp_later_fn)(void *to, amp_tensor *leaf, amp_tensor *g); /* takes g where it gives 0 */
amp_tensor *amp__rnn_beside(amp_node *n, const amp_tensor *first, const amp_tensor *g); /* amp_bwd_rnn.c; for the engine */
int amp__later_flush(amp_later *l, bool all, amp_later_fn give, void *to); /* all: else only those that hold much */
void amp__later_free(amp_later *l);
amp_tensor *amp__seed(const amp_tensor *t); /* a gradient of one for a single value; in the pool (amp_grad.c) */
bool amp__observe_each(void);      /* amp_observe.c: gradients are looked at where they are made */
int64_t amp__new_id(void);         /* of the current state */

#endif
