/*
** amp_comp_nn.c: composite products: matmul with the shapes checked that their
** names promise.
*/
#include "amp_products.h"

/* -- Products --------------------------------------------------------------------- */

int amp__want_dims(const amp_call *c, int i, int ndim, const char *what) {
  const amp_tensor *t = c->in[i];
  if (t->ndim == ndim) return 0;
  return amp__fail_arg(AMP_E_SHAPE, i + 1, "argument %d should be %s (%d dimension%s), got shape %s", i + 1, what, ndim, ndim == 1 ? "" : "s",
                       amp__shape_str(t->ndim, t->size));
}

int amp__want_dtype(const amp_tensor *a, const amp_tensor *b) {
  if (!b || a->dtype == b->dtype) return 0;
  return amp__fail(AMP_E_DTYPE, "equal dtypes are expected, got %s and %s; cast one", amp_dtype_name(a->dtype), amp_dtype_name(b->dtype));
}

/* The inner dimensions of a @ b agree, and, of batches, the first. */
static int want_fit(const amp_tensor *a, const amp_tensor *b, int first, int second) {
  if (a->size[first] != b->size[second])
    return amp__fail(AMP_E_SHAPE, "shapes %s and %s don't fit: dimension %d of the first is %lld, dimension %d of the second is %lld",
                     amp__shape_str(a->ndim, a->size), amp__shape_str(b->ndim, b->size), first + 1, (long long)a->size[first],
                     second + 1, (long long)b->size[second]);
  return 0;
}

int amp__want_product(amp_call *c, int i, int da, int db, const char *wa, const char *wb) {
  int rc;
  const amp_tensor *a = c->in[i], *b = c->in[i + 1];
  if ((rc = amp__want_dims(c, i, da, wa)) < 0 || (rc = amp__want_dims(c, i + 1, db, wb)) < 0) return rc;
  if (da == 3 && (rc = want_fit(a, b, 0, 0)) < 0) return rc;
  if ((rc = want_fit(a, b, da - 1, db == 3)) < 0) return rc;
  return amp__want_dtype(a, b);
}

int amp__comp_mm(amp_call *c) {
  int rc = amp__want_product(c, 0, 2, 2, "a matrix", "a matrix");
  return rc < 0 ? rc : amp__ret(c, 0, X2(matmul, c->in[0], c->in[1]));
}

int amp__comp_bmm(amp_call *c) {
  int rc = amp__want_product(c, 0, 3, 3, "a batch of matrices", "a batch of matrices");
  return rc < 0 ? rc : amp__ret(c, 0, X2(matmul, c->in[0], c->in[1]));
}

int amp__comp_mv(amp_call *c) {
  int rc = amp__want_product(c, 0, 2, 1, "a matrix", "a vector");
  return rc < 0 ? rc : amp__ret(c, 0, X2(matmul, c->in[0], c->in[1]));
}

int amp__comp_dot(amp_call *c) {
  int rc = amp__want_product(c, 0, 1, 1, "a vector", "a vector");
  return rc < 0 ? rc : amp__ret(c, 0, X2(matmul, c->in[0], c->in[1]));
}

int amp__want_addend(const amp_call *c, int ndim, const int64_t *size) {
  const amp_tensor *x = c->in[0];
  for (int i = 0; i < x->ndim; i++) {
    int d = i + ndim - x->ndim;
    if (d < 0 || (x->size[i] != 1 && x->size[i] != size[d]))
      return amp__fail_arg(AMP_E_SHAPE, 1, "input of shape %s can't be broadcast to the product's shape %s",
                           amp__shape_str(x->ndim, x->size), amp__shape_str(ndim, size));
  }
  return 0;
}

amp_tensor *amp__add_product(const amp_call *c, amp_tensor *p) {
  double beta = c->a[0].f, alpha = c->a[1].f;
  if (!p) return NULL;
  if (beta == 0) return alpha == 1 ? p : XN(mul, p, alpha);
  amp_tensor *in[2] = { beta == 1 ? c->in[0] : XN(mul, c->in[0], beta), p };
  amp_sl s = amp__sl();
  amp__sl_f(&s, alpha);
  return amp__x(AMP_OP_add, &s, 2, in);
}

static int add_product(amp_call *c, int ndim, const char *what) {
  const amp_tensor *a = c->in[1], *b = c->in[2];
  int64_t size[3];
  int rc = amp__want_product(c, 1, ndim, ndim, what, what);
  if (rc == 0) rc = amp__want_dtype(c->in[0], a);
  if (rc < 0) return rc;
  for (int i = 0; i < ndim; i++) size[i] = i == ndim - 1 ? b->size[i] : a->size[i];
  if ((rc = amp__want_addend(c, ndim, size)) < 0) return rc;
  return amp__ret(c, 0, amp__add_product(c, X2(matmul, c->in[1], c->in[2])));
}

int amp__comp_addmm(amp_call *c) { return add_product(c, 2, "a matrix"); }
int amp__comp_baddbmm(amp_call *c) { return add_product(c, 3, "a batch of matrices"); }
