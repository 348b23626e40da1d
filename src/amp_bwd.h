/*
** amp_bwd.h: words that derivatives share, on top of amp_compose.h. Like the
** helpers there they put results into the pool and pass NULL on. Dimensions
** count from 0 here; the helpers count them from 1 for the ops.
*/
#ifndef AMP_BWD_H
#define AMP_BWD_H
#include "amp_compose.h"

/* A derivative of one input whose formula is a single expression of b. */
#define BWD(name, expr) \
  int amp__bwd_##name(amp_bwd *b) { return GIN(b, 0, amp__xto(b, 0, expr)); }
/* Leave a derivative with the error that is set. */
#define OR_FAIL(t) do { if (!(t)) return amp__err(); } while (0)

int amp__err(void);                                       /* code of the error that is set */
amp_tensor *amp__xnum(double v);                          /* a wrapped number */
amp_tensor *amp__xwhere(amp_tensor *cond, amp_tensor *a, amp_tensor *b);
amp_tensor *amp__xmask(amp_tensor *cond, amp_tensor *a);     /* a where cond, else 0 */
amp_tensor *amp__xmask_not(amp_tensor *cond, amp_tensor *a); /* 0 where cond, else a */
amp_tensor *amp__xfill(amp_tensor *cond, amp_tensor *a, double v); /* v where cond, else a */
amp_tensor *amp__xzeros(amp_bwd *b, int i);               /* like input i */
amp_tensor *amp__xzeros_at(amp_bwd *b, int i, int dtype); /* the same in another dtype */
amp_tensor *amp__xdetach(amp_tensor *t);                  /* without history */
amp_tensor *amp__xdim(int op, int dim, int n, amp_tensor *const *in); /* an op whose first slot is a dimension; others default */
amp_tensor *amp__xnarrow(amp_tensor *t, int dim, int64_t start, int64_t length);
amp_tensor *amp__xflip(amp_tensor *t, int dim);
amp_tensor *amp__xcontiguous(amp_tensor *t);
amp_tensor *amp__xunsqueeze(amp_tensor *t, int dim);
amp_tensor *amp__xmean(amp_tensor *t, int ndims, const int *dims, bool keepdim); /* as amp__xsum */
/* t, reduced over the dimensions of mask, as if they had been kept with size 1 */
amp_tensor *amp__xkept(amp_tensor *t, int ndim, const int64_t *size, uint32_t mask);

/* The gradient of an input as a sum over rows of two operands: part[left]^T part[right]; right < 0: the sum of part[left]'s rows */
typedef struct amp_want { int input, left, right; } amp_want;
/* Put the gradients of these inputs off to the end of the backward (amp_later.c); parts: matrices. 1: done, 0: make them now, <0: error */
int amp__later(amp_bwd *b, int nparts, amp_tensor *const *part, int n, const amp_want *want);
/* The gradient that the leaf behind input i has so far, borrowed, if a derivative may add its own to it in place, which then
** counts as given; else NULL. Nothing else must fail between the call and that. */
amp_tensor *amp__grad_to_add(amp_bwd *b, int i);
void amp__grad_not_added(amp_bwd *b, int i); /* adding failed */

static inline bool amp__is_number(const amp_tensor *t) { return (t->flags & AMP_T_NUMBER) != 0; }
static inline void amp__sl_dim(amp_sl *s, int dim) { amp__sl_i(s, dim < 0 ? dim : dim + 1); }
static inline void amp__sl_copy(amp_sl *s, const amp_slot *a, int n) {
  for (int i = 0; i < n; i++) s->v[s->n++] = a[i];
}
static inline void amp__sl_shape(amp_sl *s, const amp_shape *h) { amp__sl_list(s, h->ndim, h->size); }
static inline int64_t amp__count(int ndim, const int64_t *size) {
  int64_t n = 1;
  for (int i = 0; i < ndim; i++) n *= size[i];
  return n;
}
/* Bits of a D attribute as the shape rule left it (from 0; absent: all). */
static inline uint32_t amp__dim_mask(const amp_slot *a, int ndim) {
  uint32_t m = 0;
  if (a[0].i == AMP_NONE) return (1u << ndim) - 1;
  for (int i = 0; i < a[0].i; i++) m |= 1u << a[1 + i].i;
  return m;
}
#endif
