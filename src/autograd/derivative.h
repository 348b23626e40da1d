/*
** autograd/derivative.h: words that derivatives share, on top of dispatch/op_builder.h. Like the
** helpers there they put results into the pool and pass NULL on. Dimensions
** count from 0 here; the helpers count them from 1 for the ops.
*/
#ifndef AMP_AUTOGRAD_DERIVATIVE_H
#define AMP_AUTOGRAD_DERIVATIVE_H
#include "autograd/autograd.h"
#include "dispatch/op_builder.h"

/* sum_to the shape and cast to the dtype and device of input i of the node: the end of most formulas */
amp_tensor *amp__op_to_input(amp_bwd *bwd, int i, amp_tensor *g);

/* In a derivative */
#define GRAD(b) ((b)->grad[0])
#define NEEDS(b, i) amp__need(b, i)
#define INPUT(b, i) amp__saved_tensor(b, i)
#define OUTPUT(b, i) amp__saved_tensor(b, (b)->nin + (i))
#define SHAPE(b, i) amp__shape_of((b)->node, i) /* of input i; outputs after nin */
bool amp__need(amp_bwd *bwd, int i);            /* the gradient of input i is wanted */
amp_tensor *amp__saved_tensor(amp_bwd *bwd,
                              int i); /* saved tensor; NULL + error if changed in place or freed. Borrowed */
bool amp__has(amp_bwd *bwd, int i);   /* input i was given */
/* Set the gradient of input i; NULL means an error happened: returns its code. */
int amp__input_grad(amp_bwd *bwd, int i, amp_tensor *g);
#define INPUT_GRAD(b, i, g) amp__input_grad(b, i, g)

/* A derivative of one input whose formula is a single expression of b. */
#define BWD(name, expr) \
  int amp__bwd_##name(amp_bwd *b) { return INPUT_GRAD(b, 0, amp__op_to_input(b, 0, expr)); }
/* Leave a derivative with the error that is set. */
#define OR_FAIL(t)               \
  do {                           \
    if (!(t)) return amp__err(); \
  } while (0)

/* Derivatives of functions in one pass (rows slope and pair_slope), which are not recorded: where a graph of the
** derivative is wanted (create_graph) it is made of other ops. function: FUNCTION_..., term: TERM_... */
amp_tensor *amp__slope(int function, amp_tensor *grad, amp_tensor *point, double p, double q, double r);
amp_tensor *amp__pair_slope(int term, amp_tensor *grad, amp_tensor *input, amp_tensor *other, double by);
/* A derivative of one input: `recorded` where a graph of it is wanted, else `fused` */
#define SLOPE(name, fused, recorded)                                                         \
  int amp__bwd_##name(amp_bwd *b)                                                            \
  {                                                                                          \
    return INPUT_GRAD(b, 0, amp__op_to_input(b, 0, b->create_graph ? (recorded) : (fused))); \
  }
/* op (index_add, scatter, ...), along a dimension from 0, of zeros of input 0's shape, an index and its gradient: into
** those zeros themselves, where no graph of it is wanted */
amp_tensor *amp__op_into_zeros(amp_bwd *bwd, int op, int dim, amp_tensor *index, amp_tensor *grad);

amp_tensor *amp__op_zeros_like(amp_bwd *bwd, int i);               /* like input i */
amp_tensor *amp__op_zeros_like_in(amp_bwd *bwd, int i, int dtype); /* the same in another dtype */

/* The gradient of an input as a sum over rows of two operands: part[left]^T part[right]; right < 0: the sum of
** part[left]'s rows */
typedef struct amp_want {
  int input, left, right;
} amp_want;
/* Put the gradients of these inputs off to the end of the backward (autograd/deferred_wgrad.c); parts: matrices. 1:
** done, 0: make them now, <0: error */
int amp__defer_wgrad(amp_bwd *bwd, int nparts, amp_tensor *const *part, int count, const amp_want *want);
/* The gradient that the leaf behind input i has so far, borrowed, if a derivative may add its own to it in place, which
** then counts as given; else NULL. Nothing else must fail between the call and that. */
amp_tensor *amp__grad_to_add(amp_bwd *bwd, int i);
void amp__grad_not_added(amp_bwd *bwd, int i); /* adding failed */

static inline void amp__attrs_shape(amp_attrs *attrs, const amp_shape *shape)
{
  amp__attrs_list(attrs, shape->ndim, shape->size);
}
#endif
