/*
** amp_compose.h: ops as expressions, for derivatives and composites in C.
**
** Every helper runs one op through amp__dispatch and puts the result into the
** state's autorelease pool, so formulas nest without clean-up. A NULL argument
** gives NULL back (the error is already set), so one test at the end suffices:
**
**   int amp__bwd_tanh(amp_bwd *b) { return GIN(b, 0, X2(tanh_backward, G(b), OUT(b, 0))); }
**
** The engine and amp__dispatch release the pool around every derivative and
** composite; whoever else uses these calls amp__pool_mark / amp__pool_release.
** Nothing here allocates by itself or decides dtypes.
*/
#ifndef AMP_COMPOSE_H
#define AMP_COMPOSE_H
#include "amp_core.h"

int amp__pool_mark(void);
void amp__pool_release(int mark);
amp_tensor *amp__pooled(amp_tensor *t);          /* hand a counted tensor to the pool; NULL passes */
amp_tensor *amp__keep(amp_tensor *t);            /* take a count out: t, retained; NULL passes */

/* Attributes in row order */
typedef struct amp_sl { int n; amp_slot v[AMP_MAX_SLOT]; } amp_sl;
static inline amp_sl amp__sl(void) { amp_sl s; s.n = 0; return s; }
static inline void amp__sl_i(amp_sl *s, int64_t i) { s->v[s->n++].i = i; }
static inline void amp__sl_f(amp_sl *s, double f) { s->v[s->n++].f = f; }
static inline void amp__sl_list(amp_sl *s, int n, const int64_t *v) { /* I and D attributes */
  s->v[s->n++].i = n;
  for (int i = 0; i < AMP_MAX_DIM; i++) s->v[s->n++].i = i < n ? v[i] : 0;
}
static inline void amp__sl_nolist(amp_sl *s) { s->v[s->n++].i = AMP_NONE; for (int i = 0; i < AMP_MAX_DIM; i++) s->v[s->n++].i = 0; }

/* Run op on n tensors (NULL in `in` where optional[i]: absent). First result, borrowed from the pool. */
amp_tensor *amp__x(int op, const amp_sl *a, int n, amp_tensor *const *in);
/* All results into out[AMP_MAX_OUT] (borrowed from the pool). 0 or error. */
int amp__xs(int op, const amp_sl *a, int n, amp_tensor *const *in, amp_tensor **out);
amp_tensor *amp__x1(int op, amp_tensor *a);      /* a NULL: NULL */
amp_tensor *amp__x2(int op, amp_tensor *a, amp_tensor *b);
amp_tensor *amp__xn(int op, amp_tensor *a, double n);  /* op(a, number) */
amp_tensor *amp__nx(int op, double n, amp_tensor *a);  /* op(number, a) */
#define X1(name, a) amp__x1(AMP_OP_##name, a)
#define X2(name, a, b) amp__x2(AMP_OP_##name, a, b)
#define XN(name, a, n) amp__xn(AMP_OP_##name, a, n)
#define NX(name, n, a) amp__nx(AMP_OP_##name, n, a)

/* Common ones with attributes; dims here count from 0 and may be negative */
amp_tensor *amp__xcast(amp_tensor *a, int dtype);
amp_tensor *amp__xsum(amp_tensor *a, int ndims, const int *dims, bool keepdim); /* ndims < 0: all; keeps a's dtype */
amp_tensor *amp__xview(amp_tensor *a, int ndim, const int64_t *size);           /* reshape */
amp_tensor *amp__xexpand(amp_tensor *a, int ndim, const int64_t *size);
amp_tensor *amp__xtranspose(amp_tensor *a, int d0, int d1);
amp_tensor *amp__xfull(double v, int dtype, int device, int index, int ndim, const int64_t *size);
/* sum_to the shape and cast to the dtype and device of input i of the node: the end of most formulas */
amp_tensor *amp__xto(amp_bwd *b, int i, amp_tensor *g);

/* In a derivative */
#define G(b) ((b)->g[0])
#define NEED(b, i) amp__need(b, i)
#define IN(b, i) amp__bin(b, i)
#define OUT(b, i) amp__bin(b, (b)->nin + (i))
#define SHAPE(b, i) amp__shape_of((b)->node, i)  /* of input i; outputs after nin */
bool amp__need(amp_bwd *b, int i);               /* somebody wants the gradient of input i */
amp_tensor *amp__bin(amp_bwd *b, int i);         /* saved tensor; NULL + error if changed in place or freed. Borrowed */
bool amp__has(amp_bwd *b, int i);                /* input i was given */
/* Set the gradient of input i; NULL means an error happened: returns its code. */
int amp__gin(amp_bwd *b, int i, amp_tensor *g);
#define GIN(b, i, g) amp__gin(b, i, g)

/* In a composite: give the result out (counted from the pooled tensor); NULL: returns the error's code */
int amp__ret(amp_call *c, int i, amp_tensor *t);

#endif
