/*
** amp_bwd_distance.c: derivatives of norms and distances.
**
** Of y = |x|_p the gradient in x is sign(x) |x|^(p-1) y^(1-p), and 0 where that
** is no number: where y is 0, and, for p < 2, where x is 0. Extremes share their
** gradient among equals. It is written in x and y, so derivatives of it find
** their way to x through y as well.
**
** Distances of rows have fused backward kernels for the first derivative. When a
** graph of it is wanted, and for the euclidean distance of many rows, it is made
** of products and norms.
*/
#include <float.h>
#include <math.h>
#include "amp_bwd.h"

static amp_tensor *mul(amp_tensor *a, amp_tensor *b) { return X2(mul, a, b); }

/* g and y with the reduced dimensions kept */
static amp_tensor *norm_grad(amp_tensor *g, amp_tensor *x, amp_tensor *y, double p, uint32_t mask) {
  if (!x || !y || !g) return NULL;
  g = amp__xcast(g, x->dtype);
  y = amp__xcast(y, x->dtype);
  if (p == 0) return amp__xfull(0, x->dtype, x->device, x->device_index, x->ndim, x->size);
  if (p == 1) return mul(X1(sign, x), g);
  if (isinf(p)) {
    int dims[AMP_MAX_DIM], n = 0;
    for (int d = 0; d < x->ndim; d++) if (mask >> d & 1) dims[n++] = d;
    amp_tensor *equal = X2(eq, X1(abs, x), y);
    amp_tensor *count = n ? amp__xsum(amp__xcast(equal, x->dtype), n, dims, true) : NULL;
    if (n && !count) return NULL;
    return amp__xmask(equal, mul(X1(sign, x), count ? X2(div, g, count) : g));
  }
  amp_tensor *none = XN(lt, y, x->dtype == AMP_FLOAT64 ? DBL_MIN : FLT_MIN); /* nothing, or too little to divide by */
  g = amp__xmask_not(none, g);
  y = amp__xfill(none, y, 1);
  if (p == 2) return mul(x, X2(div, g, y));
  amp_tensor *zero = XN(eq, x, 0), *one = amp__xfill(zero, x, 1); /* a power of 0 has no derivative of its own */
  return mul(amp__xmask_not(zero, mul(X1(sign, one), XN(pow, X2(div, X1(abs, one), y), p - 1))), g); /* powers of quotients: in range */
}

int amp__bwd_lp_norm(amp_bwd *b) { /* p dim keepdim dtype */
  const amp_shape *h = SHAPE(b, 0);
  uint32_t mask = amp__dim_mask(b->a + 1, h->ndim);
  amp_tensor *x = IN(b, 0), *y = OUT(b, 0), *g = G(b);
  OR_FAIL(x && y);
  x = amp__xcast(x, amp__is_half(x->dtype) ? AMP_FLOAT32 : amp__promote(x->dtype, y->dtype));
  g = amp__xkept(g, h->ndim, h->size, mask);
  y = amp__xkept(y, h->ndim, h->size, mask);
  return GIN(b, 0, amp__xto(b, 0, norm_grad(g, x, y, b->a[0].f, mask)));
}

static amp_tensor *norm_of(amp_tensor *t, double p, uint32_t mask, bool keepdim) {
  int64_t list[AMP_MAX_DIM];
  int n = 0;
  if (!t) return NULL;
  for (int d = 0; d < t->ndim; d++) if (mask >> d & 1) list[n++] = d + 1;
  amp_sl s = amp__sl();
  amp__sl_f(&s, p);
  amp__sl_list(&s, n, list);
  amp__sl_i(&s, keepdim);
  amp__sl_i(&s, AMP_NONE);
  return amp__x(AMP_OP_lp_norm, &s, 1, &t);
}

/* y = x f(n), f = maxnorm / (n + 1e-7) where the norm n of a slice is above maxnorm, else 1 */
int amp__bwd_renorm(amp_bwd *b) { /* p dim maxnorm */
  const amp_shape *h = SHAPE(b, 0);
  uint32_t mask = ((1u << h->ndim) - 1) & ~(1u << b->a[1].i);
  double p = b->a[0].f, most = b->a[2].f;
  int dims[AMP_MAX_DIM], nd = 0;
  amp_tensor *x = IN(b, 0), *g = G(b);
  OR_FAIL(x);
  for (int d = 0; d < h->ndim; d++) if (mask >> d & 1) dims[nd++] = d;
  int dtype = amp__is_half(x->dtype) ? AMP_FLOAT32 : x->dtype;
  x = amp__xcast(x, dtype);
  g = amp__xcast(g, dtype);
  amp_tensor *n = norm_of(x, p, mask, true), *over = XN(gt, n, most), *inv = X1(reciprocal, XN(add, n, 1e-7));
  amp_tensor *f = amp__xfill(X1(logical_not, over), XN(mul, inv, most), 1);
  amp_tensor *slope = amp__xmask(over, XN(mul, mul(inv, inv), -most)); /* of f in n */
  amp_tensor *gn = mul(slope, amp__xsum(mul(g, x), nd, dims, true));
  return GIN(b, 0, amp__xto(b, 0, X2(add, mul(g, f), norm_grad(gn, x, n, p, mask))));
}

/* -- Distances of rows ------------------------------------------------------------------------- */

/* x1, x2 with the leading dimensions of the distances */
static amp_tensor *rows_of(amp_tensor *x, const amp_shape *dist) {
  int64_t size[AMP_MAX_DIM];
  if (!x) return NULL;
  for (int d = 0; d < dist->ndim - 2; d++) size[d] = dist->size[d];
  size[dist->ndim - 2] = x->size[x->ndim - 2];
  size[dist->ndim - 1] = x->size[x->ndim - 1];
  return amp__xexpand(x, dist->ndim, size);
}

/* With q = g / dist: sum_j q_ij (x_i - z_j), by products */
static int euclid(amp_bwd *b, amp_tensor *x1, amp_tensor *x2, amp_tensor *dist, amp_tensor *g) {
  int rc = 0, last = dist->ndim - 1, before = last - 1;
  amp_tensor *none = XN(eq, dist, 0);
  amp_tensor *q = X2(div, amp__xmask_not(none, g), amp__xfill(none, dist, 1));
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, X2(sub, mul(x1, amp__xsum(q, 1, &last, true)), X2(matmul, q, x2))));
  if (rc == 0 && NEED(b, 1)) {
    amp_tensor *t = amp__xtranspose(q, before, last);
    rc = GIN(b, 1, amp__xto(b, 1, X2(sub, mul(x2, amp__xsum(t, 1, &last, true)), X2(matmul, t, x1))));
  }
  return rc;
}

int amp__bwd_cdist(amp_bwd *b) { /* p compute_mode */
  const amp_shape *h = SHAPE(b, 2);
  double p = b->a[0].f;
  amp_tensor *x1 = rows_of(IN(b, 0), h), *x2 = rows_of(IN(b, 1), h), *dist = OUT(b, 0), *g = G(b), *out[AMP_MAX_OUT];
  int dtype = amp__is_half(h->dtype) ? AMP_FLOAT32 : h->dtype, at = h->ndim - 2, features = h->ndim, rc;
  OR_FAIL(x1 && x2 && dist);
  if (isinf(p) && dtype != h->dtype) { /* no coordinate is as far as the rounded distance says */
    amp_sl s = amp__sl();
    amp__sl_copy(&s, b->a, 2);
    amp_tensor *in[2] = { x1 = amp__xcast(x1, dtype), x2 = amp__xcast(x2, dtype) };
    OR_FAIL(x1 && x2 && (dist = amp__x(AMP_OP_cdist, &s, 2, in)) && (g = amp__xcast(g, dtype)));
  }
  if (p == 2 && (x1->size[at] > 25 || x2->size[at] > 25) && b->a[1].i != 2)
    return euclid(b, amp__xcast(x1, dtype), amp__xcast(x2, dtype), amp__xcast(dist, dtype), amp__xcast(g, dtype));
  if (!b->create_graph) {
    amp_tensor *in[4] = { g, x1, x2, dist };
    amp_sl s = amp__sl();
    amp__sl_f(&s, p);
    rc = amp__xs(AMP_OP_cdist_backward, &s, 4, in, out);
    if (rc == 0 && NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, out[0]));
    if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, out[1]));
    return rc;
  }
  if (h->ndim == AMP_MAX_DIM) return amp__fail(AMP_E_SHAPE, "a graph of its derivative needs a dimension more than the %d there can be", AMP_MAX_DIM);
  amp_tensor *d = X2(sub, amp__xunsqueeze(amp__xcast(x1, dtype), at + 1), amp__xunsqueeze(amp__xcast(x2, dtype), at));
  amp_tensor *t = norm_grad(amp__xunsqueeze(amp__xcast(g, dtype), features), d, amp__xunsqueeze(amp__xcast(dist, dtype), features), p, 1u << features);
  int across = at + 1;
  rc = NEED(b, 0) ? GIN(b, 0, amp__xto(b, 0, amp__xsum(t, 1, &across, false))) : t ? 0 : amp__err();
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, X1(neg, amp__xsum(t, 1, &at, false))));
  return rc;
}

/* Row numbers (from 1) of the pairs of x's rows, first (0) or second (1) */
static amp_tensor *pair(const amp_tensor *x, int which) {
  int64_t n = x->size[0];
  amp_sl s = amp__sl();
  amp__sl_i(&s, n);
  amp__sl_i(&s, n);
  amp__sl_i(&s, 1);
  amp__sl_i(&s, AMP_INT64);
  amp__sl_i(&s, x->device * 256 + x->device_index);
  amp_tensor *t = amp__xnarrow(amp__x(AMP_OP_triu_indices, &s, 0, NULL), 0, which, 1);
  int64_t count = t ? t->numel : 0;
  return amp__xview(t, 1, &count);
}

static amp_tensor *select_rows(amp_tensor *x, amp_tensor *index) {
  amp_tensor *in[2] = { x, index };
  return amp__xdim(AMP_OP_index_select, 0, 2, in);
}

static amp_tensor *add_rows(amp_tensor *x, amp_tensor *index, amp_tensor *src) {
  amp_tensor *in[3] = { x, index, src };
  return amp__xdim(AMP_OP_index_add, 0, 3, in);
}

int amp__bwd_pdist(amp_bwd *b) {
  amp_tensor *x = IN(b, 0), *dist = OUT(b, 0), *g = G(b);
  double p = b->a[0].f;
  OR_FAIL(x && dist);
  if (isinf(p) && amp__is_half(x->dtype)) { /* as above */
    amp_sl s = amp__sl();
    amp__sl_copy(&s, b->a, 1);
    OR_FAIL((x = amp__xcast(x, AMP_FLOAT32)) && (dist = amp__x(AMP_OP_pdist, &s, 1, &x)) && (g = amp__xcast(g, AMP_FLOAT32)));
  }
  if (!b->create_graph) {
    amp_tensor *in[3] = { g, x, dist };
    amp_sl s = amp__sl();
    amp__sl_f(&s, p);
    return GIN(b, 0, amp__xto(b, 0, amp__x(AMP_OP_pdist_backward, &s, 3, in)));
  }
  int dtype = amp__is_half(x->dtype) ? AMP_FLOAT32 : x->dtype;
  amp_tensor *i = pair(x, 0), *j = pair(x, 1);
  x = amp__xcast(x, dtype);
  amp_tensor *t = norm_grad(amp__xunsqueeze(amp__xcast(g, dtype), 1), X2(sub, select_rows(x, i), select_rows(x, j)),
                            amp__xunsqueeze(amp__xcast(dist, dtype), 1), p, 2);
  amp_tensor *sum = add_rows(amp__xzeros_at(b, 0, dtype), i, t);
  return GIN(b, 0, amp__xto(b, 0, add_rows(sum, j, X1(neg, t))));
}
