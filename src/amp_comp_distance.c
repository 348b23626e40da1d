/*
** amp_comp_distance.c: norms of vectors and matrices, and distances, on top of
** the row lp_norm. 16-bit values are widened before they are multiplied or
** subtracted, so a result is rounded once. cdist and pdist have kernels of their
** own (cpu/cpu_distance.c).
*/
#include <math.h>
#include "amp_bwd.h"
#include "amp_infer.h"

static int wide(const amp_tensor *t) { return amp__is_half(t->dtype) ? AMP_FLOAT32 : t->dtype; }

/* p-norm over one dimension (from 0), or all if dim < 0 */
static amp_tensor *norm_of(amp_tensor *t, double p, int dim, bool keepdim, int64_t dtype) {
  int64_t one = dim + 1;
  amp_sl s = amp__sl();
  amp__sl_f(&s, p);
  if (dim < 0) amp__sl_nolist(&s);
  else amp__sl_list(&s, 1, &one);
  amp__sl_i(&s, keepdim);
  amp__sl_i(&s, dtype);
  return amp__x(AMP_OP_lp_norm, &s, 1, &t);
}

static amp_tensor *at_least(amp_tensor *t, double low) {
  amp_sl s = amp__sl();
  amp__sl_f(&s, low);
  amp__sl_i(&s, AMP_NONE);
  return amp__x(AMP_OP_clamp, &s, 1, &t);
}

/* -- Norms -------------------------------------------------------------------------------- */

static int vector_norm(amp_call *c) {
  amp_sl s = amp__sl();
  amp__sl_copy(&s, c->a, c->op->info.nslot);
  return amp__ret(c, 0, amp__x(AMP_OP_lp_norm, &s, 1, c->in));
}

int amp__comp_norm(amp_call *c) { return vector_norm(c); }
int amp__comp_vector_norm(amp_call *c) { return vector_norm(c); }

/* Singular values of the matrices in dimensions d0, d1, as a new last dimension */
static amp_tensor *singular_values(amp_tensor *x, int d0, int d1) {
  int64_t order[AMP_MAX_DIM];
  int n = 0;
  for (int d = 0; d < x->ndim; d++) if (d != d0 && d != d1) order[n++] = d + 1;
  order[n++] = d0 + 1;
  order[n++] = d1 + 1;
  amp_sl s = amp__sl();
  amp__sl_list(&s, n, order);
  return X1(svdvals, amp__x(AMP_OP_permute, &s, 1, &x));
}

int amp__comp_matrix_norm(amp_call *c) { /* ord dim keepdim dtype */
  amp_tensor *x = c->in[0], *y;
  amp_slot pair[2];
  int rc, dtype = c->a[11].i == AMP_NONE ? x->dtype : (int)c->a[11].i;
  bool keep = c->a[10].i != 0, frobenius = c->a[0].i == AMP_NONE;
  double ord = frobenius ? 2 : c->a[0].f;
  if (!amp__is_float(dtype)) return amp__fail(AMP_E_DTYPE, "dtype %s: a norm is a float", amp_dtype_name(dtype));
  if (!frobenius && ord != 0 && fabs(ord) != 1 && fabs(ord) != 2 && !isinf(ord))
    return amp__fail(AMP_E_ARGUMENT, "ord %g: a matrix has the norms 'fro', 'nuc', 1, -1, 2, -2, inf and -inf", ord);
  if (x->ndim < 2) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected at least 2 dimensions", amp__shape_str(x->ndim, x->size));
  for (int i = 0; i < 2; i++) {
    if (c->a[1].i != AMP_NONE && c->a[1].i != 2 && i == (c->a[1].i > 0))
      return amp__fail(AMP_E_ARGUMENT, "dim names %lld dimensions, a matrix has 2", (long long)c->a[1].i);
    pair[i].i = c->a[1].i == AMP_NONE ? i - 2 : c->a[2 + i].i;
    if ((rc = amp__norm_dim(&pair[i], x->ndim, "dim")) < 0) return rc;
  }
  int d0 = (int)pair[0].i, d1 = (int)pair[1].i;
  if (d0 == d1) return amp__fail(AMP_E_ARGUMENT, "dim names dimension %d twice", d0 + 1);
  if (frobenius) {
    int64_t list[2] = { d0 + 1, d1 + 1 };
    amp_sl s = amp__sl();
    amp__sl_f(&s, 2);
    amp__sl_list(&s, 2, list);
    amp__sl_i(&s, keep);
    amp__sl_i(&s, c->a[11].i);
    return amp__ret(c, 0, amp__x(AMP_OP_lp_norm, &s, 1, &x));
  }
  x = amp__xcast(x, amp__is_half(dtype) ? AMP_FLOAT32 : dtype);
  if (fabs(ord) == 1 || isinf(ord)) { /* norms of columns or rows, then the largest or smallest of them */
    int inner = isinf(ord) ? d1 : d0, outer = isinf(ord) ? d0 : d1;
    y = norm_of(norm_of(x, 1, inner, true, AMP_NONE), ord > 0 ? INFINITY : -INFINITY, outer, true, AMP_NONE);
  } else {
    y = singular_values(x, d0, d1);
    if (y) y = norm_of(y, ord == 0 ? 1 : ord > 0 ? INFINITY : -INFINITY, y->ndim - 1, false, AMP_NONE);
  }
  if (!y) return amp__err();
  int64_t size[AMP_MAX_DIM];
  int n = 0;
  for (int d = 0; d < x->ndim; d++) {
    if (d != d0 && d != d1) size[n++] = x->size[d];
    else if (keep) size[n++] = 1;
  }
  return amp__ret(c, 0, amp__xcast(amp__xview(y, n, size), dtype));
}

int amp__comp_normalize(amp_call *c) { /* p dim eps */
  amp_tensor *x = c->in[0];
  int rc = amp__row_dim(&c->a[1], x->ndim, "dim");
  if (rc < 0) return rc;
  amp_tensor *n = norm_of(x, c->a[0].f, (int)c->a[1].i, true, wide(x));
  return amp__ret(c, 0, amp__xcast(X2(div, x, at_least(n, c->a[2].f)), x->dtype));
}

/* -- Distances -------------------------------------------------------------------------------- */

int amp__comp_dist(amp_call *c) {
  int dtype = amp__promote(c->in[0]->dtype, c->in[1]->dtype);
  amp_tensor *d = X2(sub, amp__xcast(c->in[0], wide(c->in[0])), c->in[1]);
  return amp__ret(c, 0, norm_of(d, c->a[0].f, -1, false, dtype));
}

int amp__comp_pairwise_distance(amp_call *c) { /* p eps keepdim */
  int dtype = amp__promote(c->in[0]->dtype, c->in[1]->dtype);
  if (c->in[0]->ndim == 0 && c->in[1]->ndim == 0) return amp__fail_arg(AMP_E_SHAPE, 1, "x1 and x2 are scalars, expected vectors along the last dimension");
  amp_tensor *d = XN(add, X2(sub, amp__xcast(c->in[0], wide(c->in[0])), c->in[1]), c->a[1].f);
  return amp__ret(c, 0, d ? norm_of(d, c->a[0].f, d->ndim - 1, c->a[2].i != 0, dtype) : NULL);
}

/* Of a CPU's tensor without gaps */
static bool all_finite(const amp_tensor *t) {
  double sum = 0;
  if (t->dtype == AMP_FLOAT64) for (int64_t i = 0; i < t->numel; i++) sum += AMP_DATA(double, t)[i] * 0;
  else for (int64_t i = 0; i < t->numel; i++) sum += AMP_DATA(float, t)[i] * 0;
  return sum == 0;
}

/* Sums of x y, which might leave the range, over the norms; where they do (on a GPU: always), of x / |x| with y */
int amp__comp_cosine_similarity(amp_call *c) { /* dim eps */
  amp_tensor *x = c->in[0], *y = c->in[1];
  int64_t size[AMP_MAX_DIM];
  int ndim, dtype = amp__promote(x->dtype, y->dtype), rc = amp__broadcast(c, 2, &ndim, size);
  if (rc < 0 || (rc = amp__row_dim(&c->a[0], ndim, "dim")) < 0) return rc;
  int dim = (int)c->a[0].i;
  int both = amp__promote(wide(x), wide(y)); /* one dtype from the start, or the narrower one rounds the sums */
  x = amp__xcast(x, both);
  y = amp__xcast(y, both);
  if (x && y && (x->ndim != y->ndim || x->size[dim] != y->size[dim])) {
    x = amp__xexpand(x, ndim, size);
    y = amp__xexpand(y, ndim, size);
  }
  double eps = c->a[1].f;
  amp_tensor *nx = at_least(norm_of(x, 2, dim, false, AMP_NONE), eps), *ny = at_least(norm_of(y, 2, dim, false, AMP_NONE), eps), *cosine = NULL;
  OR_FAIL(nx && ny);
  if (x->device == AMP_CPU && !amp__capturing) OR_FAIL(cosine = X2(div, amp__xsum(X2(mul, x, y), 1, &dim, false), X2(mul, nx, ny)));
  if (!cosine) cosine = X2(div, amp__xsum(X2(mul, X2(div, x, amp__xunsqueeze(nx, dim)), y), 1, &dim, false), ny);
  else if (!all_finite(cosine)) { /* of vectors of length 1 */
    amp_tensor *lx = amp__xdetach(nx), *ly = amp__xdetach(ny);
    x = X2(div, x, amp__xunsqueeze(lx, dim));
    y = X2(div, y, amp__xunsqueeze(ly, dim));
    nx = X2(maximum, norm_of(x, 2, dim, false, AMP_NONE), NX(div, eps, lx));
    ny = X2(maximum, norm_of(y, 2, dim, false, AMP_NONE), NX(div, eps, ly));
    cosine = X2(div, amp__xsum(X2(mul, x, y), 1, &dim, false), X2(mul, nx, ny));
  }
  return amp__ret(c, 0, amp__xcast(cosine, dtype));
}
