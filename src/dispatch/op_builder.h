/*
** dispatch/op_builder.h: ops as expressions, for derivatives and composites in C.
**
** Every helper runs one op through amp__dispatch and puts the result into the
** state's autorelease pool, so formulas nest without clean-up. A NULL argument
** gives NULL back (the error is already set), so one test at the end suffices:
**
**   int amp__bwd_tanh(amp_bwd *b) { return INPUT_GRAD(b, 0, OP2(tanh_backward, GRAD(b), OUTPUT(b, 0))); }
**
** The engine and amp__dispatch release the pool around every derivative and
** composite; all other users call amp__pool_mark / amp__pool_release.
** Nothing here allocates by itself or decides dtypes.
*/
#ifndef AMP_DISPATCH_OP_BUILDER_H
#define AMP_DISPATCH_OP_BUILDER_H
#include "dispatch/dispatch.h"

int amp__pool_mark(void);
void amp__pool_release(int mark);
amp_tensor *amp__pooled(amp_tensor *tensor); /* hand a counted tensor to the pool; NULL passes */
amp_tensor *amp__keep(amp_tensor *tensor);   /* take a count out: tensor, retained; NULL passes */

/* Attributes in row order */
typedef struct amp_attrs {
  int n;
  amp_slot v[AMP_MAX_SLOT];
} amp_attrs;
static inline amp_attrs amp__attrs(void)
{
  amp_attrs attrs;
  attrs.n = 0;
  return attrs;
}
static inline void amp__attrs_int(amp_attrs *attrs, int64_t i)
{
  AMP_ASSERT(attrs->n < AMP_MAX_SLOT);
  attrs->v[attrs->n++].i = i;
}
static inline void amp__attrs_float(amp_attrs *attrs, double f)
{
  AMP_ASSERT(attrs->n < AMP_MAX_SLOT);
  attrs->v[attrs->n++].f = f;
}
static inline void amp__attrs_list(amp_attrs *attrs, int n, const int64_t *v)
{ /* I and D attributes */
  AMP_ASSERT(n <= AMP_MAX_DIM && attrs->n + 1 + AMP_MAX_DIM <= AMP_MAX_SLOT);
  attrs->v[attrs->n++].i = n;
  for (int i = 0; i < AMP_MAX_DIM; i++) attrs->v[attrs->n++].i = i < n ? v[i] : 0;
}
static inline void amp__attrs_no_list(amp_attrs *attrs)
{
  attrs->v[attrs->n++].i = AMP_NONE;
  for (int i = 0; i < AMP_MAX_DIM; i++) attrs->v[attrs->n++].i = 0;
}

/* Run op on `count` tensors (NULL in `inputs`: absent). First result, borrowed from the pool. */
amp_tensor *amp__op(int op, const amp_attrs *a, int count, amp_tensor *const *inputs);
/* All results into out[AMP_MAX_OUT] (borrowed from the pool). 0 or error. */
int amp__op_results(int op, const amp_attrs *a, int count, amp_tensor *const *inputs, amp_tensor **out);
amp_tensor *amp__op1(int op, amp_tensor *a); /* a NULL: NULL */
amp_tensor *amp__op2(int op, amp_tensor *a, amp_tensor *b);
amp_tensor *amp__op_number(int op, amp_tensor *a, double n); /* op(a, number) */
amp_tensor *amp__number_op(int op, double n, amp_tensor *a); /* op(number, a) */
#define OP1(name, a) amp__op1(AMP_OP_##name, a)
#define OP2(name, a, b) amp__op2(AMP_OP_##name, a, b)
#define OP_NUMBER(name, a, n) amp__op_number(AMP_OP_##name, a, n)
#define NUMBER_OP(name, n, a) amp__number_op(AMP_OP_##name, n, a)

/* Common ones with attributes; dims here count from 0 and may be negative */
amp_tensor *amp__op_cast(amp_tensor *a, int dtype);
amp_tensor *amp__op_sum(amp_tensor *a, int ndims, const int *dims, bool keepdim); /* ndims < 0: all; keeps a's dtype */
amp_tensor *amp__op_view(amp_tensor *a, int ndim, const int64_t *size);           /* reshape */
amp_tensor *amp__op_expand(amp_tensor *a, int ndim, const int64_t *size);
amp_tensor *amp__op_transpose(amp_tensor *a, int d0, int d1);
amp_tensor *amp__op_full(double v, int dtype, int device, int index, int ndim, const int64_t *size);
amp_tensor *amp__op_shaped(int op, amp_tensor *a, int ndim, const int64_t *size); /* an op whose attribute is a shape */
int amp__err(void);                                                               /* code of the error that is set */
amp_tensor *amp__wrapped_number(double v);                                        /* a wrapped number */
amp_tensor *amp__op_where(amp_tensor *cond, amp_tensor *a, amp_tensor *b);
amp_tensor *amp__op_mask(amp_tensor *cond, amp_tensor *a);                 /* a where cond, else 0 */
amp_tensor *amp__op_mask_not(amp_tensor *cond, amp_tensor *a);             /* 0 where cond, else a */
amp_tensor *amp__op_fill_where(amp_tensor *cond, amp_tensor *a, double v); /* v where cond, else a */
amp_tensor *amp__op_detach(amp_tensor *tensor);                            /* without history */
amp_tensor *amp__op_dim(int op, int dim, int count,
                        amp_tensor *const *inputs); /* an op whose first slot is a dimension; others default */
amp_tensor *amp__op_narrow(amp_tensor *tensor, int dim, int64_t start, int64_t length);
amp_tensor *amp__op_flip(amp_tensor *tensor, int dim);
amp_tensor *amp__op_contiguous(amp_tensor *tensor);
amp_tensor *amp__op_unsqueeze(amp_tensor *tensor, int dim);
amp_tensor *amp__op_mean(amp_tensor *tensor, int ndims, const int *dims, bool keepdim); /* as amp__op_sum */
/* tensor, reduced over the dimensions of mask, as if they had been kept with size 1 */
amp_tensor *amp__op_kept_dims(amp_tensor *tensor, int ndim, const int64_t *size, uint32_t mask);
static inline bool amp__is_number(const amp_tensor *tensor) { return (tensor->flags & AMP_T_NUMBER) != 0; }
static inline void amp__attrs_dim(amp_attrs *attrs, int dim) { amp__attrs_int(attrs, dim < 0 ? dim : dim + 1); }
static inline void amp__attrs_copy(amp_attrs *attrs, const amp_slot *a, int n)
{
  for (int i = 0; i < n; i++) attrs->v[attrs->n++] = a[i];
}
/* All attributes of a struct args_NAME, which a pointer gives */
static inline void amp__attrs_append(amp_attrs *attrs, const void *args, size_t bytes)
{
  memcpy(attrs->v + attrs->n, args, bytes);
  attrs->n += (int)(bytes / sizeof *attrs->v);
}
#define amp__attrs_all(s, args) amp__attrs_append(s, args, sizeof *(args))
static inline int64_t amp__count(int ndim, const int64_t *size)
{
  int64_t n = 1;
  for (int i = 0; i < ndim; i++) n *= size[i];
  return n;
}
/* Bits of a D attribute as the shape rule left it (from 0; absent: all). */
static inline uint32_t amp__dim_mask(const amp_slot *attrs, int ndim)
{
  uint32_t m = 0;
  if (attrs[0].i == AMP_NONE) return (1u << ndim) - 1;
  for (int i = 0; i < attrs[0].i; i++) m |= 1u << attrs[1 + i].i;
  return m;
}

/* Are all of a float32 or float64 CPU tensor's numbers within [low, high]? NaN isn't. On a GPU that would take a
** wait: false. */
bool amp__all_within(const amp_tensor *tensor, double low, double high);

/* In a composite: give the result out (counted from the pooled tensor); NULL: returns the error's code */
int amp__result(amp_call *call, int i, amp_tensor *tensor);

#endif
