/*
** autograd/tape.h: the inside of the tape, for autograd/tape.c, autograd/gradient.c, autograd/engine.c
** and precision/cast.c. Others see core.h only.
*/
#ifndef AMP_TAPE_H
#define AMP_TAPE_H
#include "core.h"

/* An in-place op on a view, as its base sees it: the gradient of the base's
** slice goes through `fn`, the rest passes. */
typedef struct amp_slices {
  amp_node *function;
  int ndim;
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM], offset; /* in the base's memory order, from its start */
  int8_t order[AMP_MAX_DIM];                              /* the base's dimensions in memory order */
} amp_slices;

static inline uint32_t amp__node_flags(const amp_node *node) /* of its row, 0: it has none */
{
  return node->op >= 0 && node->op < AMP_OP_COUNT ? amp__ops[node->op].info.flags : 0;
}
static inline bool amp__node_is(const amp_node *node, uint64_t trait)
{
  return node->op >= 0 && node->op < AMP_OP_COUNT && amp__row_is(&amp__ops[node->op], trait);
}
amp_node *amp__node_new(int op, int nin, int nout, int nslot, int nsaved,
                        int ndim); /* ndim: most of its shapes; they and attributes not filled */
int amp__node_edge(amp_node *node, int i,
                   amp_tensor *tensor); /* edge i is the tensor's; node stays newer than what it leads to */
int amp__tie(amp_tensor *tensor, amp_node *node, int index);
void amp__edge_free(amp_edge *edge);
void amp__saved_free(amp_saved *saved);
void amp__physical_order(const amp_tensor *tensor, int8_t *order);
amp_tensor *amp__physical(amp_tensor *tensor);
const char *amp__node_name(const amp_node *node);
/* Origin bits (enum amp_origin, and those of scales met) of what node sends on, of a root's gradient that the
** caller gave (autograd/gradient_origin.c). */
uint8_t amp__node_origin(const amp_node *node, uint8_t came);
uint8_t amp__root_origin(amp_tensor *root_grad, uint8_t outer);
void amp__scales_enter(void); /* a backward begins, or a sum of records: from here to leave bits of scales stand */
void amp__scales_leave(void);
uint8_t amp__scale_bit(amp_tensor *scale); /* of a scale, which it keeps until the outermost leave */
int amp__origin_of_sum(int a, int b);
int amp__grad_meet(amp_tensor *leaf, amp_tensor **scale); /* before the running backward adds: bring what is there to
                                                             its scale; the sum's, borrowed, NULL: none known */
bool amp__grad_meets_same(const amp_grad *grad);          /* what it adds carries the scale that grad does, or none */
typedef struct amp_deferred_wgrad
    amp_deferred_wgrad; /* products put off to the end of a backward (autograd/deferred_wgrad.c) */
typedef int (*amp_deferred_wgrad_fn)(void *to, amp_tensor *leaf, amp_tensor *g); /* takes g where it gives 0 */
int amp__deferred_wgrad_flush(amp_deferred_wgrad *deferred, bool all, amp_deferred_wgrad_fn give,
                              void *to); /* all: else only those that hold much */
bool amp__deferred_wgrad_has(const amp_deferred_wgrad *deferred, const amp_tensor *leaf); /* some of it waits there */
void amp__deferred_wgrad_free(amp_deferred_wgrad *deferred);
amp_tensor *amp__seed(
    const amp_tensor *tensor); /* a gradient of one for a single value; in the pool (autograd/gradient.c) */

#endif
