/*
** amp_infer_distance.c: shape rules of norms and distances. A norm of nothing is
** 0, but for the extremes and negative powers, which have no such value.
*/
#include <math.h>
#include "amp_infer.h"

int amp__infer_lp_norm(amp_call *c) /* p dim keepdim dtype */
{
  const amp_tensor *x = c->in[0];
  double p = c->a[0].f;
  uint32_t mask;
  int dtype, rc, n = 0;
  int64_t size[AMP_MAX_DIM];
  if (p != p) return amp__fail(AMP_E_ARGUMENT, "p is not a number");
  if (c->a[1].i == 0) c->a[1].i = AMP_NONE;
  if ((rc = amp__norm_dims(c->a + 1, x->ndim, &mask)) < 0 || (rc = amp__dtype_attr(&c->a[11], x->dtype, &dtype)) < 0) return rc;
  if (!amp__is_float(dtype)) return amp__fail(AMP_E_DTYPE, "dtype %s: a norm is a float", amp_dtype_name(dtype));
  for (int d = 0; d < x->ndim; d++) {
    bool away = mask >> d & 1;
    if (away && x->size[d] == 0 && (p < 0 || isinf(p)))
      return amp__fail(AMP_E_SHAPE, "dimension %d has size 0, of which there is no norm with p = %g", d + 1, p);
    if (!away) size[n++] = x->size[d];
    else if (c->a[10].i) size[n++] = 1;
  }
  amp__out(c, 0, dtype, n, size);
  return 0;
}

int amp__infer_renorm(amp_call *c) /* p dim maxnorm */
{
  const amp_tensor *x = c->in[0];
  double p = c->a[0].f, most = c->a[2].f;
  int rc = amp__norm_dim(&c->a[1], x->ndim, "dim");
  if (rc < 0) return rc;
  if (x->ndim < 2) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected at least 2 dimensions: a slice of one has a norm", SHAPE_OF(x));
  if (!(p > 0)) return amp__fail(AMP_E_VALUE, "p %g must be positive", p);
  if (!(most >= 0)) return amp__fail(AMP_E_VALUE, "maxnorm %g must not be negative", most);
  amp__like(c, 0, x, x->dtype);
  return 0;
}

/* -- Distances of rows --------------------------------------------------------------- */

static int want_p(double p)
{
  return p >= 0 ? 0 : amp__fail(AMP_E_VALUE, "p %g must not be negative", p);
}

/* x1 is ... x P x M, x2 ... x R x M: ... x P x R */
static int distances(amp_call *c, int first, int *ndim, int64_t *size)
{
  const amp_tensor *a = c->in[first], *b = c->in[first + 1];
  int most = a->ndim > b->ndim ? a->ndim : b->ndim;
  for (int i = 0; i < 2; i++) {
    const amp_tensor *t = i ? b : a;
    if (t->ndim < 2) return amp__fail_arg(AMP_E_SHAPE, first + i + 1, "x%d has shape %s, expected rows of features: at least 2 dimensions", i + 1, SHAPE_OF(t));
  }
  if (a->size[a->ndim - 1] != b->size[b->ndim - 1])
    return amp__fail(AMP_E_SHAPE, "x1 of shape %s and x2 of shape %s have rows of different sizes, %lld and %lld", SHAPE_OF(a), SHAPE_OF(b),
                     LL(a->size[a->ndim - 1]), LL(b->size[b->ndim - 1]));
  if (a->dtype != b->dtype)
    return amp__fail(AMP_E_DTYPE, "dtypes %s and %s of x1 and x2 differ; cast one of them", amp_dtype_name(a->dtype), amp_dtype_name(b->dtype));
  for (int d = 0; d < most - 2; d++) {
    int i = d - (most - a->ndim), j = d - (most - b->ndim);
    int64_t m = i < 0 ? 1 : a->size[i], n = j < 0 ? 1 : b->size[j];
    if (m != n && m != 1 && n != 1)
      return amp__fail(AMP_E_SHAPE, "leading dimensions of x1 (%s) and x2 (%s) do not broadcast: %lld and %lld", SHAPE_OF(a), SHAPE_OF(b), LL(m), LL(n));
    size[d] = m == 1 ? n : m;
  }
  size[most - 2] = a->size[a->ndim - 2];
  size[most - 1] = b->size[b->ndim - 2];
  *ndim = most;
  return 0;
}

int amp__infer_cdist(amp_call *c)
{
  int64_t size[AMP_MAX_DIM];
  int ndim, rc = want_p(c->a[0].f);
  if (rc < 0 || (rc = distances(c, 0, &ndim, size)) < 0) return rc;
  amp__out(c, 0, c->in[0]->dtype, ndim, size);
  return 0;
}

/* grad x1 x2 dist, all of the same leading dimensions */
int amp__infer_cdist_backward(amp_call *c)
{
  const amp_tensor *a = c->in[1], *b = c->in[2];
  int64_t size[AMP_MAX_DIM];
  int ndim, rc = distances(c, 1, &ndim, size);
  if (rc < 0 || (rc = amp__want_shape(c->in[0], "grad", ndim, size)) < 0 || (rc = amp__want_shape(c->in[3], "dist", ndim, size)) < 0) return rc;
  for (int i = 1; i < 3; i++) {
    const amp_tensor *t = c->in[i];
    if (t->ndim != ndim || memcmp(t->size, size, sizeof *size * (size_t)(ndim - 2)) != 0)
      return amp__fail_arg(AMP_E_SHAPE, i + 1, "x%d has shape %s, its leading dimensions are not those of the distances, %s", i, SHAPE_OF(t), amp__shape_str(ndim, size));
  }
  amp__out(c, 0, a->dtype, a->ndim, a->size);
  amp__out(c, 1, b->dtype, b->ndim, b->size);
  return 0;
}

static int pairs(const amp_tensor *x, int arg, int64_t *n)
{
  if (x->ndim != 2) return amp__fail_arg(AMP_E_SHAPE, arg, "input has shape %s, expected a matrix", SHAPE_OF(x));
  int64_t m = x->size[0];
  if (m > 3000000000LL) return amp__fail_arg(AMP_E_SHAPE, arg, "input has %lld rows, whose pairs are too many", LL(m));
  *n = m < 2 ? 0 : m * (m - 1) / 2;
  return 0;
}

int amp__infer_pdist(amp_call *c)
{
  int64_t n;
  int rc = want_p(c->a[0].f);
  if (rc < 0 || (rc = pairs(c->in[0], 1, &n)) < 0) return rc;
  amp__out(c, 0, c->in[0]->dtype, 1, &n);
  return 0;
}

int amp__infer_pdist_backward(amp_call *c) /* grad input dist */
{
  const amp_tensor *x = c->in[1];
  int64_t n;
  int rc = pairs(x, 2, &n);
  if (rc < 0 || (rc = amp__want_shape(c->in[0], "grad", 1, &n)) < 0 || (rc = amp__want_shape(c->in[2], "dist", 1, &n)) < 0) return rc;
  amp__out(c, 0, x->dtype, 2, x->size);
  return 0;
}
