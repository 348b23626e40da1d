/*
** amp_infer_order.c: shape rules of sorting, counting and drawing by weights.
** A scalar sorts as a row of one element. one_hot without a number of classes
** must look at its labels to know how many there are.
*/
#include "amp_infer.h"

static int row_dim(const amp_tensor *t, amp_slot *s) { return amp__row_dim(s, t->ndim, "dim"); }

static int64_t row_size(const amp_tensor *t, int64_t dim) { return t->ndim ? t->size[dim] : 1; }

int amp__infer_sort(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int rc = row_dim(t, &c->a[0]);
  if (rc < 0) return rc;
  amp__out(c, 0, t->dtype, t->ndim, t->size);
  amp__out(c, 1, AMP_INT64, t->ndim, t->size);
  return 0;
}

int amp__infer_running(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int rc = row_dim(t, &c->a[0]);
  if (rc == 0) amp__out(c, 0, t->dtype, t->ndim, t->size);
  return rc;
}

int amp__infer_argsort(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int rc = row_dim(t, &c->a[0]);
  if (rc < 0) return rc;
  amp__out(c, 0, AMP_INT64, t->ndim, t->size);
  return 0;
}

int amp__infer_topk(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM], k = c->a[0].i;
  int rc = row_dim(t, &c->a[1]);
  if (rc < 0) return rc;
  int64_t n = row_size(t, c->a[1].i);
  if (k < 0 || k > n) return amp__fail(AMP_E_VALUE, "k is %lld, dimension %lld has %lld elements", LL(k), LL(c->a[1].i + 1), LL(n));
  for (int d = 0; d < t->ndim; d++) size[d] = d == c->a[1].i ? k : t->size[d];
  if (t->ndim == 0 && k == 0) return amp__fail(AMP_E_VALUE, "k is 0, of a scalar there is one element");
  amp__out(c, 0, t->dtype, t->ndim, size);
  amp__out(c, 1, AMP_INT64, t->ndim, size);
  return 0;
}

/* Values and indices without dimension dim, or with size 1 there */
static void chosen(amp_call *c, int64_t dim, bool keepdim)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM];
  int n = 0;
  for (int d = 0; d < t->ndim; d++) {
    if (d != dim) size[n++] = t->size[d];
    else if (keepdim) size[n++] = 1;
  }
  amp__out(c, 0, t->dtype, n, size);
  amp__out(c, 1, AMP_INT64, n, size);
}

int amp__infer_kthvalue(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int rc = row_dim(t, &c->a[1]);
  if (rc < 0) return rc;
  int64_t k = c->a[0].i, n = row_size(t, c->a[1].i);
  if (k < 1 || k > n) return amp__fail(AMP_E_VALUE, "k is %lld, it must be 1 to %lld, the size of dimension %lld", LL(k), LL(n), LL(c->a[1].i + 1));
  chosen(c, c->a[1].i, c->a[2].i != 0);
  return 0;
}

int amp__infer_mode(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int rc = row_dim(t, &c->a[0]);
  if (rc < 0) return rc;
  if (row_size(t, c->a[0].i) == 0) return amp__fail(AMP_E_SHAPE, "dimension %lld has size 0, there is no value to choose", LL(c->a[0].i + 1));
  chosen(c, c->a[0].i, c->a[1].i != 0);
  return 0;
}

/* -- Searching and counting ---------------------------------------------------------------- */

int amp__infer_searchsorted(amp_call *c)
{
  const amp_tensor *s = c->in[0], *v = c->in[1];
  if (s->flags & AMP_T_NUMBER || s->ndim == 0) return amp__fail_arg(AMP_E_SHAPE, 1, "sorted_sequence is a scalar, expected a row of values");
  bool ok = s->ndim == 1 || (v->ndim == s->ndim && !(v->flags & AMP_T_NUMBER));
  for (int d = 0; d < s->ndim - 1 && ok; d++) ok = s->size[d] == v->size[d];
  if (!ok)
    return amp__fail(AMP_E_SHAPE, "sorted_sequence has shape %s and input %s: all but the last dimension must be equal, or sorted_sequence a vector", SHAPE_OF(s), SHAPE_OF(v));
  amp__out(c, 0, AMP_INT64, v->ndim, v->size);
  return 0;
}

int amp__infer_bucketize(amp_call *c)
{
  const amp_tensor *v = c->in[0], *b = c->in[1];
  if (b->ndim != 1) return amp__fail_arg(AMP_E_SHAPE, 2, "boundaries has shape %s, expected a vector", SHAPE_OF(b));
  amp__out(c, 0, AMP_INT64, v->ndim, v->size);
  return 0;
}

int amp__infer_isin(amp_call *c)
{
  amp__out(c, 0, AMP_BOOL, c->in[0]->ndim, c->in[0]->size);
  return 0;
}

int amp__infer_count_nonzero(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  uint32_t mask;
  int64_t size[AMP_MAX_DIM];
  int n = 0;
  if (c->a[0].i == 0) c->a[0].i = AMP_NONE;
  int rc = amp__norm_dims(c->a, t->ndim, &mask);
  if (rc < 0) return rc;
  for (int d = 0; d < t->ndim; d++)
    if (!(mask >> d & 1)) size[n++] = t->size[d];
  amp__out(c, 0, AMP_INT64, n, size);
  return 0;
}

int amp__infer_histc(amp_call *c)
{
  int64_t bins = c->a[0].i;
  double min = c->a[1].f, max = c->a[2].f;
  if (bins < 1) return amp__fail(AMP_E_VALUE, "bins is %lld, at least 1 is expected", LL(bins));
  if (!(min - min == 0) || !(max - max == 0)) return amp__fail(AMP_E_VALUE, "min %g and max %g must be finite", min, max);
  if (min > max) return amp__fail(AMP_E_VALUE, "min %g is above max %g", min, max);
  amp__out(c, 0, c->in[0]->dtype, 1, &bins);
  return 0;
}

/* The largest element of an integer tensor on the CPU, at least 1 */
static int64_t largest(const amp_tensor *t)
{
  int64_t at[AMP_MAX_DIM] = { 0 }, o = 0, most = 1;
  for (int64_t i = 0; i < t->numel; i++) {
    int64_t v = (int64_t)amp__element(t, o);
    if (v > most) most = v;
    for (int d = t->ndim - 1; d >= 0; d--) {
      o += t->stride[d];
      if (++at[d] < t->size[d]) break;
      o -= at[d] * t->stride[d];
      at[d] = 0;
    }
  }
  return most;
}

int amp__infer_one_hot(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM], classes = c->a[0].i;
  if (t->ndim == AMP_MAX_DIM) return amp__fail_arg(AMP_E_SHAPE, 1, "input has %d dimensions; at most %d are supported", t->ndim, AMP_MAX_DIM - 1);
  if (classes == -1) {
    if (t->numel == 0) return amp__fail(AMP_E_VALUE, "num_classes must be given where there are no labels");
    if (t->device != AMP_CPU) { /* found there: one value travels */
      double most;
      int rc = amp__ask(c->in[0], AMP_OP_amax, &most);
      if (rc < 0) return rc;
      classes = most > 1 ? (int64_t)most : 1;
    } else {
      classes = largest(t);
      amp__S->host_waits++;
    }
    c->a[0].i = classes;
  } else if (classes < 1) return amp__fail(AMP_E_VALUE, "num_classes is %lld, at least 1 is expected (-1: the largest label)", LL(classes));
  for (int d = 0; d < t->ndim; d++) size[d] = t->size[d];
  size[t->ndim] = classes;
  amp__out(c, 0, AMP_INT64, t->ndim + 1, size);
  return amp__check_size(t->ndim + 1, size, AMP_INT64, NULL);
}

int amp__infer_multinomial(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int64_t n = c->a[0].i, size[2];
  if (t->ndim < 1 || t->ndim > 2) return amp__fail(AMP_E_SHAPE, "input has shape %s, expected a vector of weights or a matrix with a row of weights each", SHAPE_OF(t));
  int64_t kinds = t->size[t->ndim - 1];
  if (n < 1) return amp__fail(AMP_E_VALUE, "num_samples is %lld, at least 1 is expected", LL(n));
  if (kinds == 0) return amp__fail(AMP_E_SHAPE, "input has shape %s: there are no weights to draw by", SHAPE_OF(t));
  if (!c->a[1].i && n > kinds)
    return amp__fail(AMP_E_VALUE, "num_samples is %lld, but there are %lld weights; draw with replacement = true", LL(n), LL(kinds));
  size[0] = t->size[0];
  size[t->ndim - 1] = n;
  amp__out(c, 0, AMP_INT64, t->ndim, size);
  return 0;
}
