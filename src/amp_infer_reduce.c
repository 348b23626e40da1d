/*
** amp_infer_reduce.c: shape rules of reductions, running sums, flip and cat.
** Sums and products of integers and bools are int64; a given dtype wins. An
** empty list of dimensions means all of them, as an absent one does.
*/
#include "amp_infer.h"

/* Result i without the dimensions of mask, or with size 1 there. */
static void reduced(amp_call *c, int i, int dtype, uint32_t mask, bool keepdim)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM];
  int n = 0;
  for (int d = 0; d < t->ndim; d++) {
    if (!(mask >> d & 1)) size[n++] = t->size[d];
    else if (keepdim) size[n++] = 1;
  }
  amp__out(c, i, dtype, n, size);
}

static int dims(amp_call *c, uint32_t *mask)
{
  if (c->a[0].i == 0) c->a[0].i = AMP_NONE;
  return amp__norm_dims(c->a, c->in[0]->ndim, mask);
}

/* Extremes of nothing do not exist. */
static int not_empty(const amp_tensor *t, uint32_t mask)
{
  for (int d = 0; d < t->ndim; d++)
    if ((mask >> d & 1) && t->size[d] == 0)
      return amp__fail(AMP_E_SHAPE, "dimension %d has size 0, there is no value to choose", d + 1);
  return 0;
}

/* One dimension in slot 0, all if absent. */
static int one_dim(amp_call *c, uint32_t *mask)
{
  const amp_tensor *t = c->in[0];
  if (!given(&c->a[0])) { *mask = (1u << t->ndim) - 1; return 0; }
  int rc = amp__row_dim(&c->a[0], t->ndim, "dim");
  *mask = rc < 0 ? 0 : 1u << c->a[0].i;
  return rc;
}

static int sum_dtype(int dtype) { return amp__is_float(dtype) ? dtype : AMP_INT64; }

int amp__infer_reduce_sum(amp_call *c)
{
  uint32_t mask;
  int dtype, rc = dims(c, &mask);
  if (rc < 0 || (rc = amp__dtype_attr(&c->a[10], sum_dtype(c->in[0]->dtype), &dtype)) < 0) return rc;
  reduced(c, 0, dtype, mask, c->a[9].i != 0);
  return 0;
}

int amp__infer_reduce_mean(amp_call *c)
{
  uint32_t mask;
  int dtype, rc = dims(c, &mask);
  if (rc < 0 || (rc = amp__dtype_attr(&c->a[10], c->in[0]->dtype, &dtype)) < 0) return rc;
  if (!amp__is_float(dtype)) return amp__fail(AMP_E_DTYPE, "a mean has a float dtype, %s was asked for", amp_dtype_name(dtype));
  reduced(c, 0, dtype, mask, c->a[9].i != 0);
  return 0;
}

int amp__infer_reduce_prod(amp_call *c)
{
  uint32_t mask;
  int dtype, rc = one_dim(c, &mask);
  if (rc < 0 || (rc = amp__dtype_attr(&c->a[2], sum_dtype(c->in[0]->dtype), &dtype)) < 0) return rc;
  reduced(c, 0, dtype, mask, c->a[1].i != 0);
  return 0;
}

int amp__infer_reduce_max(amp_call *c)
{
  uint32_t mask;
  int rc = one_dim(c, &mask);
  if (rc < 0 || (rc = not_empty(c->in[0], mask)) < 0) return rc;
  reduced(c, 0, c->in[0]->dtype, mask, c->a[1].i != 0);
  if (given(&c->a[0])) reduced(c, 1, AMP_INT64, mask, c->a[1].i != 0);
  return 0;
}

int amp__infer_reduce_arg(amp_call *c)
{
  uint32_t mask;
  int rc = one_dim(c, &mask);
  if (rc < 0 || (rc = not_empty(c->in[0], mask)) < 0) return rc;
  reduced(c, 0, AMP_INT64, mask, c->a[1].i != 0);
  return 0;
}

int amp__infer_reduce_same(amp_call *c)
{
  uint32_t mask;
  int rc = dims(c, &mask);
  if (rc < 0 || (rc = not_empty(c->in[0], mask)) < 0) return rc;
  reduced(c, 0, c->in[0]->dtype, mask, c->a[9].i != 0);
  return 0;
}

int amp__infer_reduce_bool(amp_call *c)
{
  uint32_t mask;
  int rc = dims(c, &mask);
  if (rc < 0) return rc;
  reduced(c, 0, AMP_BOOL, mask, c->a[9].i != 0);
  return 0;
}

/* keepdim is the row's last slot */
int amp__infer_reduce_float(amp_call *c)
{
  uint32_t mask;
  int rc = dims(c, &mask);
  if (rc < 0) return rc;
  reduced(c, 0, c->in[0]->dtype, mask, c->a[c->op->info.nslot - 1].i != 0);
  return 0;
}

int amp__infer_center(amp_call *c)
{
  uint32_t mask;
  const amp_tensor *t = c->in[1];
  int rc = amp__norm_dims(c->a, t->ndim, &mask);
  if (rc < 0) return rc;
  amp__like(c, 0, c->in[1], c->in[1]->dtype);
  return 0;
}

int amp__infer_sum_to(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM];
  int n, rc = amp__shape_attr(c->a, "shape", &n, size);
  if (rc < 0) return rc;
  bool ok = n <= t->ndim;
  for (int d = 0; d < n && ok; d++) ok = size[d] == 1 || size[d] == t->size[t->ndim - n + d];
  if (!ok) return amp__fail(AMP_E_SHAPE, "shape %s is not one that broadcasts to %s", amp__shape_str(n, size), SHAPE_OF(t));
  amp__out(c, 0, t->dtype, n, size);
  return 0;
}

int amp__infer_cumulative(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int dtype, rc = amp__row_dim(&c->a[0], t->ndim, "dim");
  if (rc < 0 || (rc = amp__dtype_attr(&c->a[1], sum_dtype(t->dtype), &dtype)) < 0) return rc;
  amp__out(c, 0, dtype, t->ndim, t->size);
  return 0;
}

int amp__infer_flip(amp_call *c)
{
  uint32_t mask;
  int rc = amp__norm_dims(c->a, c->in[0]->ndim, &mask);
  if (rc < 0) return rc;
  amp__like(c, 0, c->in[0], c->in[0]->dtype);
  return 0;
}

/* An empty vector joins anything, as in PyTorch. */
static bool skipped(const amp_tensor *t) { return t->ndim == 1 && t->size[0] == 0; }

int amp__infer_cat(amp_call *c)
{
  const amp_tensor *first = NULL;
  int64_t size[AMP_MAX_DIM], total = 0;
  int rc, at = 0;
  bool last = true;
  if (c->nin < 1) return amp__fail(AMP_E_ARGUMENT, "at least one tensor is expected");
  for (int i = 0; i < c->nin && first == NULL; i++)
    if (!skipped(c->in[i])) { first = c->in[i]; at = i; }
  if (first == NULL) first = c->in[0];
  if (first->ndim == 0) return amp__fail_arg(AMP_E_SHAPE, at + 1, "scalars can't be joined by cat; use stack");
  if ((rc = amp__norm_dim(&c->a[0], first->ndim, "dim")) < 0) return rc;
  int dim = (int)c->a[0].i;
  for (int d = 0; d < first->ndim; d++) size[d] = first->size[d];
  for (int i = 0; i < c->nin; i++) {
    const amp_tensor *t = c->in[i];
    if (t != first && skipped(t)) continue;
    if (t->ndim != first->ndim)
      return amp__fail_arg(AMP_E_SHAPE, i + 1, "tensor %d has shape %s, tensor %d has %s: the numbers of dimensions differ", at + 1, SHAPE_OF(first), i + 1, SHAPE_OF(t));
    for (int d = 0; d < t->ndim; d++)
      if (d != dim && t->size[d] != first->size[d])
        return amp__fail_arg(AMP_E_SHAPE, i + 1, "shapes %s and %s do not match (dimension %d of tensor %d is %lld, of tensor %d %lld); only dimension %d may differ",
                             SHAPE_OF(first), SHAPE_OF(t), d + 1, at + 1, LL(first->size[d]), i + 1, LL(t->size[d]), dim + 1);
    if (__builtin_add_overflow(total, t->size[dim], &total)) return amp__fail(AMP_E_SHAPE, "the joined dimension %d is too large", dim + 1);
    last = last && amp__channels_last(t);
  }
  size[dim] = total;
  amp__out(c, 0, amp__result_dtype(c, 0, c->nin), first->ndim, size);
  if (last && first->ndim == 4) amp__as_channels_last(&c->meta[0]);
  return 0;
}
