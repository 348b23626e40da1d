/*
** dispatch/op_builder.c: ops as expressions. Each helper dispatches one op and leaves
** the result in the state's autorelease pool, a stack of counted tensors; a
** mark is its height. A NULL operand means that an error is set already and
** passes through, so formulas need one test at the end.
**
** Owns: the pool's memory. It knows no dtype rules and no devices.
*/
#include <stdlib.h>
#include "dispatch/op_builder.h"

/* -- The pool --------------------------------------------------------------- */

int amp__pool_mark(void) { return amp__S->priv->npool; }

void amp__pool_release(int mark)
{
  struct amp_state_private *priv = amp__S->priv;
  AMP_ASSERT(mark >= 0 && mark <= priv->npool); /* marks are released in the opposite order */
  while (priv->npool > mark) amp__free(priv->pool[--priv->npool]);
}

/* Nothing to put there, or no room for it yet */
static __attribute__((noinline)) amp_tensor *pooled_slow(amp_tensor *tensor)
{
  struct amp_state_private *priv = amp__S->priv;
  if (!tensor) {
    priv->lost += amp__S->err.code == AMP_E_MEMORY;
    return NULL;
  }
  if (priv->npool == priv->cap_pool) {
    int cap = priv->cap_pool ? 2 * priv->cap_pool : 64;
    amp_tensor **pool = realloc(priv->pool, sizeof *pool * cap);
    if (!pool) {
      amp__free(tensor);
      amp__nomem(sizeof *pool * cap);
      return NULL;
    }
    priv->pool = pool;
    priv->cap_pool = cap;
  }
  return priv->pool[priv->npool++] = tensor;
}

static inline amp_tensor *pooled(amp_tensor *tensor)
{
  struct amp_state_private *priv = amp__S->priv;
  if (amp_unlikely(!tensor || priv->npool == priv->cap_pool)) return pooled_slow(tensor);
  return priv->pool[priv->npool++] = tensor;
}
amp_tensor *amp__pooled(amp_tensor *tensor) { return pooled(tensor); }

amp_tensor *amp__keep(amp_tensor *tensor)
{
  if (tensor) amp__retain(tensor);
  return tensor;
}

int amp__err(void)
{
  int code = amp__S->err.code;
  return code < 0 ? code : amp__fail(AMP_E_INTERNAL, "a formula failed without a message");
}

/* An argument that may be absent is NULL when making it failed, too: no formula can tell, but their caller can. */
int amp__whole(uint32_t lost, int status)
{
  if (amp_likely(status < 0 || amp__S->priv->lost == lost)) return status;
  return amp__S->err.code == AMP_E_MEMORY ? AMP_E_MEMORY : amp__fail(AMP_E_MEMORY, "no memory for a part of it");
}

/* -- Calls ------------------------------------------------------------------ */

int amp__op_results(int op, const amp_attrs *a, int count, amp_tensor *const *inputs, amp_tensor **out)
{
  const amp_op_desc *row = &amp__ops[op];
  int fixed = row->info.flags & AMP_F_LIST ? row->info.nin - 1 : row->info.nin;
  for (int i = 0; i < AMP_MAX_OUT; i++) out[i] = NULL;
  for (int i = 0; i < count; i++)
    if (!inputs[i] && (i >= fixed || (row->required >> i & 1))) return amp__err();
  if (a && a->n != row->info.nslot)
    return amp__fail(AMP_E_INTERNAL, "%s wants %d attribute slots, a formula gave %d", row->info.name, row->info.nslot,
                     a->n);
  int status = amp__dispatch(op, 0, inputs, count, out, a ? a->v : NULL);
  if (status < 0) return status;
  for (int i = 0; i < AMP_MAX_OUT; i++)
    if (out[i] && !pooled(out[i])) {
      while (++i < AMP_MAX_OUT) amp__free(out[i]);
      return amp__err();
    }
  return 0;
}

amp_tensor *amp__op(int op, const amp_attrs *a, int n, amp_tensor *const *inputs)
{
  amp_tensor *out[AMP_MAX_OUT];
  return amp__op_results(op, a, n, inputs, out) < 0 ? NULL : out[0];
}

amp_tensor *amp__op1(int op, amp_tensor *a) { return amp__op(op, NULL, 1, &a); }

amp_tensor *amp__op2(int op, amp_tensor *a, amp_tensor *b)
{
  amp_tensor *inputs[2] = { a, b };
  return amp__op(op, NULL, 2, inputs);
}

amp_tensor *amp__op_number(int op, amp_tensor *a, double n)
{
  return a ? amp__op2(op, a, amp__wrapped_number(n)) : NULL;
}
amp_tensor *amp__number_op(int op, double n, amp_tensor *a)
{
  return a ? amp__op2(op, amp__wrapped_number(n), a) : NULL;
}

/* -- Ops with attributes ---------------------------------------------------- */

amp_tensor *amp__wrapped_number(double v) { return amp__pooled(amp__number(v)); }

amp_tensor *amp__op_cast(amp_tensor *a, int dtype)
{
  if (!a || a->dtype == dtype) return a;
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, dtype);
  return amp__op(AMP_OP_cast, &attrs, 1, &a);
}

static amp_tensor *reduce(int op, amp_tensor *a, int ndims, const int *dims, bool keepdim, int64_t dtype)
{
  if (!a) return NULL;
  amp_attrs attrs = amp__attrs();
  if (ndims < 0) amp__attrs_no_list(&attrs);
  else {
    int64_t list[AMP_MAX_DIM];
    if (ndims == 0) return a;
    for (int i = 0; i < ndims; i++) list[i] = dims[i] < 0 ? dims[i] : dims[i] + 1;
    amp__attrs_list(&attrs, ndims, list);
  }
  amp__attrs_int(&attrs, keepdim);
  amp__attrs_int(&attrs, dtype);
  return amp__op(op, &attrs, 1, &a);
}

amp_tensor *amp__op_sum(amp_tensor *a, int ndims, const int *dims, bool keepdim)
{
  return reduce(AMP_OP_sum, a, ndims, dims, keepdim, a && amp__is_int(a->dtype) ? a->dtype : AMP_NONE);
}

amp_tensor *amp__op_mean(amp_tensor *a, int ndims, const int *dims, bool keepdim)
{
  return reduce(AMP_OP_mean, a, ndims, dims, keepdim, AMP_NONE);
}

amp_tensor *amp__op_shaped(int op, amp_tensor *a, int ndim, const int64_t *size)
{
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, ndim, size);
  return amp__op(op, &attrs, 1, &a);
}

static bool has_size(const amp_tensor *a, int ndim, const int64_t *size)
{
  return a->ndim == ndim && memcmp(a->size, size, sizeof *size * ndim) == 0;
}

amp_tensor *amp__op_view(amp_tensor *a, int ndim, const int64_t *size)
{
  if (!a || has_size(a, ndim, size)) return a;
  int64_t stride[AMP_MAX_DIM];
  if (!amp__view_strides(a, ndim, size, stride)) a = amp__op_contiguous(a);
  return amp__op_shaped(AMP_OP_view, a, ndim, size);
}

amp_tensor *amp__op_expand(amp_tensor *a, int ndim, const int64_t *size)
{
  if (!a || has_size(a, ndim, size)) return a;
  return amp__op_shaped(AMP_OP_expand, a, ndim, size);
}

amp_tensor *amp__op_transpose(amp_tensor *a, int d0, int d1)
{
  amp_attrs attrs = amp__attrs();
  amp__attrs_dim(&attrs, d0);
  amp__attrs_dim(&attrs, d1);
  return amp__op(AMP_OP_transpose, &attrs, 1, &a);
}

amp_tensor *amp__op_full(double v, int dtype, int device, int index, int ndim, const int64_t *size)
{
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, ndim, size);
  amp__attrs_float(&attrs, v);
  amp__attrs_int(&attrs, dtype);
  amp__attrs_int(&attrs, device * 256 + index);
  return amp__op(AMP_OP_full, &attrs, 0, NULL);
}

/* -- More ops ------------------------------------------------------------------ */

amp_tensor *amp__op_where(amp_tensor *cond, amp_tensor *a, amp_tensor *b)
{
  amp_tensor *inputs[3] = { cond, a, b };
  return amp__op(AMP_OP_where, NULL, 3, inputs);
}

amp_tensor *amp__op_mask(amp_tensor *cond, amp_tensor *a)
{
  return a ? amp__op_where(cond, a, amp__wrapped_number(0)) : NULL;
}
amp_tensor *amp__op_mask_not(amp_tensor *cond, amp_tensor *a)
{
  return a ? amp__op_where(cond, amp__wrapped_number(0), a) : NULL;
}
amp_tensor *amp__op_fill_where(amp_tensor *cond, amp_tensor *a, double v)
{
  return a ? amp__op_where(cond, amp__wrapped_number(v), a) : NULL;
}

amp_tensor *amp__op_detach(amp_tensor *tensor) { return tensor ? amp__pooled(amp__tensor_alias(tensor)) : NULL; }

amp_tensor *amp__op_dim(int op, int dim, int n, amp_tensor *const *inputs)
{
  const amp_op_desc *row = &amp__ops[op];
  amp_attrs attrs = amp__attrs();
  amp__attrs_copy(&attrs, row->defaults, row->info.nslot);
  attrs.v[0].i = dim < 0 ? dim : dim + 1;
  return amp__op(op, &attrs, n, inputs);
}

amp_tensor *amp__op_narrow(amp_tensor *tensor, int dim, int64_t start, int64_t length)
{
  amp_attrs attrs = amp__attrs();
  amp__attrs_dim(&attrs, dim);
  amp__attrs_int(&attrs, start + 1);
  amp__attrs_int(&attrs, length);
  return amp__op(AMP_OP_narrow, &attrs, 1, &tensor);
}

amp_tensor *amp__op_flip(amp_tensor *tensor, int dim)
{
  int64_t list = dim + 1;
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, 1, &list);
  return amp__op(AMP_OP_flip, &attrs, 1, &tensor);
}

amp_tensor *amp__op_contiguous(amp_tensor *tensor)
{
  if (!tensor || (tensor->flags & AMP_T_CONTIGUOUS)) return tensor;
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, 1);
  return amp__op(AMP_OP_clone, &attrs, 1, &tensor);
}

amp_tensor *amp__op_unsqueeze(amp_tensor *tensor, int dim) { return amp__op_dim(AMP_OP_unsqueeze, dim, 1, &tensor); }

amp_tensor *amp__op_kept_dims(amp_tensor *tensor, int ndim, const int64_t *size, uint32_t mask)
{
  int64_t kept[AMP_MAX_DIM];
  for (int i = 0; i < ndim; i++) kept[i] = mask >> i & 1 ? 1 : size[i];
  return amp__op_view(tensor, ndim, kept);
}

int amp__result(amp_call *call, int i, amp_tensor *tensor)
{
  if (!tensor) return amp__err();
  call->out[i] = amp__keep(tensor);
  return 0;
}

/* -- Looking at values -------------------------------------------------------- */

#define BEYOND(T)                                                                        \
  do {                                                                                   \
    const T *v = AMP_DATA(T, tensor), lo = (T)low, hi = (T)high;                         \
    for (int64_t i = 0; i < tensor->numel; i++) beyond |= !(v[i] >= lo) | !(v[i] <= hi); \
  } while (0)

bool amp__all_within(const amp_tensor *tensor, double low, double high)
{
  int beyond = 0;
  if (tensor->device != AMP_CPU || amp__capturing || !(tensor->flags & (AMP_T_CONTIGUOUS | AMP_T_DENSE))) return false;
  if (tensor->dtype == AMP_FLOAT32) BEYOND(float);
  else if (tensor->dtype == AMP_FLOAT64) BEYOND(double);
  else return false;
  return !beyond;
}
