/*
** amp_infer_linalg.c: shape rules of linear algebra: matrices in the last two
** dimensions. Batches of two operands are equal here; composites broadcast them.
*/
#include "amp_infer.h"

static int want_matrix(const amp_tensor *t, int arg, const char *what)
{
  if (t->ndim >= 2) return 0;
  return amp__fail_arg(AMP_E_SHAPE, arg, "%s has shape %s, expected a matrix: at least 2 dimensions", what, SHAPE_OF(t));
}

static int want_square(const amp_tensor *t, int arg, const char *what)
{
  int rc = want_matrix(t, arg, what);
  if (rc < 0 || t->size[t->ndim - 1] == t->size[t->ndim - 2]) return rc;
  return amp__fail_arg(AMP_E_SHAPE, arg, "%s has shape %s, expected square matrices: they have %lld rows and %lld columns", what, SHAPE_OF(t),
                       LL(t->size[t->ndim - 2]), LL(t->size[t->ndim - 1]));
}

/* meta[i]: in[0]'s batch, then the given dimensions */
static void batch_of(amp_call *c, int i, int n, int64_t d0, int64_t d1)
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM + 2];
  int k = t->ndim - 2;
  for (int d = 0; d < k; d++) size[d] = t->size[d];
  if (n > 0) size[k++] = d0;
  if (n > 1) size[k++] = d1;
  amp__out(c, i, t->dtype, k, size);
}

int amp__infer_square(amp_call *c)
{
  int rc = want_square(c->in[0], 1, "input");
  if (rc == 0) amp__out(c, 0, c->in[0]->dtype, c->in[0]->ndim, c->in[0]->size);
  return rc;
}

int amp__infer_det(amp_call *c)
{
  int rc = want_square(c->in[0], 1, "input");
  if (rc == 0) batch_of(c, 0, 0, 0, 0);
  return rc;
}

int amp__infer_slogdet(amp_call *c)
{
  int rc = amp__infer_det(c);
  if (rc == 0) batch_of(c, 1, 0, 0, 0);
  return rc;
}

int amp__infer_linear_solve(amp_call *c)
{
  const amp_tensor *a = c->in[0], *b = c->in[1];
  int rc = want_square(a, 1, "A");
  if (rc < 0 || (rc = want_matrix(b, 2, "B")) < 0 || (rc = amp__equal_dtypes(c, 2)) < 0) return rc;
  if (a->ndim != b->ndim || memcmp(a->size, b->size, sizeof *a->size * (size_t)(a->ndim - 1)) != 0)
    return amp__fail(AMP_E_SHAPE, "A of shape %s and B of shape %s do not match", SHAPE_OF(a), SHAPE_OF(b));
  amp__out(c, 0, a->dtype, b->ndim, b->size);
  return 0;
}

int amp__infer_qr(amp_call *c) /* mode */
{
  const amp_tensor *t = c->in[0];
  int rc = want_matrix(t, 1, "input");
  if (rc < 0) return rc;
  int64_t m = t->size[t->ndim - 2], n = t->size[t->ndim - 1], q = c->a[0].i == 1 || m < n ? m : n;
  batch_of(c, 0, 2, m, q);
  batch_of(c, 1, 2, q, n);
  return 0;
}

int amp__infer_svd(amp_call *c) /* some */
{
  const amp_tensor *t = c->in[0];
  int rc = want_matrix(t, 1, "input");
  if (rc < 0) return rc;
  int64_t m = t->size[t->ndim - 2], n = t->size[t->ndim - 1], r = m < n ? m : n;
  batch_of(c, 0, 2, m, c->a[0].i ? r : m);
  batch_of(c, 1, 1, r, 0);
  batch_of(c, 2, 2, n, c->a[0].i ? r : n);
  return 0;
}

int amp__infer_svdvals(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  int rc = want_matrix(t, 1, "input");
  if (rc < 0) return rc;
  int64_t m = t->size[t->ndim - 2], n = t->size[t->ndim - 1];
  batch_of(c, 0, 1, m < n ? m : n, 0);
  return 0;
}

int amp__infer_eigvalsh(amp_call *c)
{
  int rc = want_square(c->in[0], 1, "input");
  if (rc == 0) batch_of(c, 0, 1, c->in[0]->size[c->in[0]->ndim - 1], 0);
  return rc;
}

int amp__infer_eigh(amp_call *c)
{
  int rc = amp__infer_eigvalsh(c);
  if (rc == 0) amp__out(c, 1, c->in[0]->dtype, c->in[0]->ndim, c->in[0]->size);
  return rc;
}

int amp__infer_pinverse(amp_call *c) /* rcond */
{
  const amp_tensor *t = c->in[0];
  int rc = want_matrix(t, 1, "input");
  if (rc < 0) return rc;
  if (given(&c->a[0]) && !(c->a[0].f >= 0)) return amp__fail(AMP_E_VALUE, "rcond %g must not be negative", c->a[0].f);
  batch_of(c, 0, 2, t->size[t->ndim - 1], t->size[t->ndim - 2]);
  return 0;
}
