/*
** amp_bwd_reduce.c: derivatives of reductions and running sums. A reduced
** gradient is first viewed with its reduced dimensions kept (amp__xkept), then
** broadcasts by itself; the mask of reduced dimensions comes from the node.
** Gradients are exact where the usual quotient formulas are not: products of
** zeros, logsumexp of -inf, equal maxima.
*/
#include <float.h>
#include <math.h>
#include "amp_bwd.h"

static amp_tensor *kept(amp_bwd *b, amp_tensor *t, uint32_t mask) {
  const amp_shape *h = SHAPE(b, 0);
  return amp__xkept(t, h->ndim, h->size, mask);
}

static int64_t count(const amp_shape *h, uint32_t mask) {
  int64_t n = 1;
  for (int i = 0; i < h->ndim; i++)
    if (mask >> i & 1) n *= h->size[i];
  return n;
}

static int dims_of(uint32_t mask, int *dims) {
  int n = 0;
  for (int i = 0; i < AMP_MAX_DIM; i++)
    if (mask >> i & 1) dims[n++] = i;
  return n;
}

/* -- Sums and means ------------------------------------------------------------- */

/* g, cast while it is small, then repeated */
static amp_tensor *spread(amp_bwd *b, amp_tensor *g) {
  const amp_shape *h = SHAPE(b, 0);
  uint32_t mask = amp__dim_mask(b->a, h->ndim);
  return amp__xexpand(kept(b, amp__xcast(g, h->dtype), mask), h->ndim, h->size);
}

int amp__bwd_sum(amp_bwd *b) { return GIN(b, 0, spread(b, G(b))); }
int amp__bwd_sum_to(amp_bwd *b) { return GIN(b, 0, amp__xexpand(G(b), SHAPE(b, 0)->ndim, SHAPE(b, 0)->size)); }

int amp__bwd_mean(amp_bwd *b) {
  int64_t n = count(SHAPE(b, 0), amp__dim_mask(b->a, SHAPE(b, 0)->ndim));
  return GIN(b, 0, spread(b, XN(div, G(b), (double)n)));
}

/* -- Product -------------------------------------------------------------------- */

/* x moved by `step` along dim, ones moving in */
static amp_tensor *moved(amp_tensor *x, int dim, int64_t step) {
  if (!x) return NULL;
  int64_t size[AMP_MAX_DIM];
  memcpy(size, x->size, sizeof size);
  size[dim] = step;
  amp_tensor *one = amp__xfull(1, x->dtype, x->device, x->device_index, x->ndim, size);
  amp_tensor *in[2] = { one, amp__xnarrow(x, dim, 0, x->size[dim] - step) };
  return amp__xdim(AMP_OP_cat, dim, 2, in);
}

/* Products of the elements before each one along dim, in log2(n) steps; exact
** and differentiable whatever is zero. */
static amp_tensor *before(amp_tensor *x, int dim) {
  amp_tensor *e = moved(x, dim, 1);
  for (int64_t step = 1; e && step < e->size[dim]; step *= 2) e = X2(mul, e, moved(e, dim, step));
  return e;
}

/* The product of all other elements. Once only: by what is zero. */
static amp_tensor *others_once(amp_tensor *x, int dim) {
  amp_tensor *zero = XN(eq, x, 0), *rest = amp__xfill(zero, x, 1);
  amp_tensor *zeros = amp__xsum(zero, 1, &dim, true);
  amp_sl s = amp__sl();
  amp__sl_dim(&s, dim);
  amp__sl_i(&s, 1);
  amp__sl_i(&s, AMP_NONE);
  amp_tensor *p = amp__x(AMP_OP_prod, &s, 1, &rest);
  return amp__xwhere(zero, amp__xmask(XN(eq, zeros, 1), p), amp__xmask(XN(eq, zeros, 0), X2(div, p, rest)));
}

int amp__bwd_prod(amp_bwd *b) {
  const amp_shape *h = SHAPE(b, 0);
  int64_t n = amp__count(h->ndim, h->size);
  int dim = b->a[0].i == AMP_NONE || h->ndim == 0 ? -1 : (int)b->a[0].i;
  amp_tensor *x = IN(b, 0), *g = G(b), *t;
  if (!x) return amp__err();
  if (n == 0) return GIN(b, 0, amp__xzeros(b, 0));
  x = amp__xcast(x, g->dtype);
  if (dim < 0) {
    x = amp__xview(x, 1, &n);
    g = amp__xview(g, 0, h->size);
    dim = 0;
  } else g = kept(b, g, 1u << dim);
  if (b->create_graph) t = X2(mul, before(x, dim), amp__xflip(before(amp__xflip(x, dim), dim), dim));
  else t = others_once(x, dim);
  return GIN(b, 0, amp__xto(b, 0, amp__xview(X2(mul, t, g), h->ndim, h->size)));
}

/* -- Extrema -------------------------------------------------------------------- */

/* Is there a NaN among the results? On a GPU nobody waits to see. */
static bool may_be_nan(const amp_tensor *y) {
  bool any = false;
  if (y->device != AMP_CPU || y->numel != 1 || amp__capturing) return true;
  if (y->dtype == AMP_FLOAT32) any = isnan(*AMP_DATA(float, y));
  else if (y->dtype == AMP_FLOAT64) any = isnan(*AMP_DATA(double, y));
  else any = amp__is_half(y->dtype);
  return any;
}

/* Share g evenly among the elements that equal the result; `all`: a NaN among them is the result, else it leaves nothing but NaN. */
static int share(amp_bwd *b, uint32_t mask, bool all) {
  int dims[AMP_MAX_DIM], n = dims_of(mask, dims);
  amp_tensor *x = IN(b, 0), *y = OUT(b, 0), *each = kept(b, G(b), mask);
  OR_FAIL(x && y);
  amp_tensor *equal = X2(eq, x, kept(b, y, mask));
  if (all && may_be_nan(y)) equal = X2(logical_or, equal, X1(isnan, x));
  if (n > 0) each = X2(div, each, amp__xsum(equal, n, dims, true));
  return GIN(b, 0, amp__xto(b, 0, all ? amp__xmask(equal, each) : X2(mul, equal, each)));
}

static int extremum(amp_bwd *b) {
  const amp_shape *h = SHAPE(b, 0);
  if (b->a[0].i == AMP_NONE) return share(b, (1u << h->ndim) - 1, true);
  if (h->ndim == 0) return GIN(b, 0, G(b));
  int dim = (int)b->a[0].i;
  amp_tensor *in[3] = { amp__xzeros(b, 0), kept(b, OUT(b, 1), 1u << dim), kept(b, G(b), 1u << dim) };
  return GIN(b, 0, amp__xdim(AMP_OP_scatter, dim, 3, in));
}

int amp__bwd_max(amp_bwd *b) { return extremum(b); }
int amp__bwd_min(amp_bwd *b) { return extremum(b); }
int amp__bwd_amax(amp_bwd *b) { return share(b, amp__dim_mask(b->a, SHAPE(b, 0)->ndim), false); }
int amp__bwd_amin(amp_bwd *b) { return share(b, amp__dim_mask(b->a, SHAPE(b, 0)->ndim), false); }

/* -- Moments and exponents -------------------------------------------------------- */

/* x less its mean. The mean of what is left is what the first mean was rounded by, a number without a derivative. */
static amp_tensor *deviation(amp_tensor *x, int n, const int *dims) {
  amp_tensor *d = X2(sub, x, n ? amp__xmean(x, n, dims, true) : x);
  return n ? X2(sub, d, amp__xmean(amp__xdetach(d), n, dims, true)) : d;
}

/* g (x - mean), g having the reduced dimensions kept */
static int spread_grad(amp_bwd *b, amp_tensor *g, uint32_t mask) {
  amp_tensor *x = IN(b, 0);
  int dims[AMP_MAX_DIM], n = dims_of(mask, dims);
  OR_FAIL(x && g);
  if (amp__is_half(x->dtype)) { x = amp__xcast(x, AMP_FLOAT32); g = amp__xcast(g, AMP_FLOAT32); }
  OR_FAIL(x && g);
  if (b->create_graph || x->numel == 0) return GIN(b, 0, amp__xto(b, 0, X2(mul, g, deviation(x, n, dims))));
  amp_tensor *in[2] = { g, x };
  int64_t list[AMP_MAX_DIM];
  for (int i = 0; i < n; i++) list[i] = dims[i] + 1;
  amp_sl s = amp__sl();
  amp__sl_list(&s, n, list);
  return GIN(b, 0, amp__xto(b, 0, amp__x(AMP_OP_var_backward, &s, 2, in)));
}

int amp__bwd_var(amp_bwd *b) {
  const amp_shape *h = SHAPE(b, 0);
  uint32_t mask = amp__dim_mask(b->a, h->ndim);
  double left = (double)count(h, mask) - b->a[9].f;
  return spread_grad(b, XN(mul, kept(b, G(b), mask), 2 / (left > 0 ? left : 0)), mask);
}

/* The gradient of a root is 0, not infinity or NaN, where the root is 0. */
int amp__bwd_std(amp_bwd *b) {
  const amp_shape *h = SHAPE(b, 0);
  uint32_t mask = amp__dim_mask(b->a, h->ndim);
  double left = (double)count(h, mask) - b->a[9].f;
  amp_tensor *y = OUT(b, 0), *g = G(b);
  OR_FAIL(y);
  if (amp__is_half(y->dtype)) { y = amp__xcast(y, AMP_FLOAT32); g = amp__xcast(g, AMP_FLOAT32); }
  y = kept(b, y, mask);
  amp_tensor *none = XN(eq, y, 0);
  g = X2(div, amp__xmask_not(none, kept(b, g, mask)), amp__xfill(none, y, 1));
  return spread_grad(b, XN(mul, g, 1 / (left > 0 ? left : 0)), mask);
}

static amp_tensor *at_least(amp_tensor *t, double low) {
  amp_sl s = amp__sl();
  amp__sl_f(&s, low);
  amp__sl_i(&s, AMP_NONE);
  return amp__x(AMP_OP_clamp, &s, 1, &t);
}

/* g e / sum e for e = exp(x - result). The result is rounded, at most by the log of e's sum, which sets that right; the sum of -inf alone is 0. */
int amp__bwd_logsumexp(amp_bwd *b) {
  int dims[AMP_MAX_DIM], nd = SHAPE(b, 0)->ndim, n = dims_of(amp__dim_mask(b->a, nd), dims);
  uint32_t mask = amp__dim_mask(b->a, nd);
  amp_tensor *x = IN(b, 0), *y = amp__xdetach(OUT(b, 0));
  OR_FAIL(x && y);
  if (n == 0) return GIN(b, 0, amp__xto(b, 0, G(b)));
  y = kept(b, y, mask);
  if (amp__is_half(x->dtype)) { /* the rounded result is too far off for an exponent */
    int64_t list[AMP_MAX_DIM];
    amp_sl s = amp__sl();
    for (int i = 0; i < n; i++) list[i] = dims[i] + 1;
    amp__sl_list(&s, n, list);
    amp__sl_i(&s, 1);
    OR_FAIL(x = amp__xcast(x, AMP_FLOAT32));
    amp_tensor *plain = amp__xdetach(x);
    OR_FAIL(y = amp__x(AMP_OP_logsumexp, &s, 1, &plain));
  }
  amp_tensor *e = X1(exp, X2(sub, x, at_least(y, -FLT_MAX)));
  return GIN(b, 0, amp__xto(b, 0, X2(mul, e, X2(div, kept(b, G(b), mask), at_least(amp__xsum(e, n, dims, true), FLT_MIN)))));
}

/* -- Along a dimension ------------------------------------------------------------- */

int amp__bwd_cumsum(amp_bwd *b) {
  amp_tensor *g = G(b);
  if (g->ndim == 0) return GIN(b, 0, amp__xto(b, 0, g));
  int dim = (int)b->a[0].i;
  g = amp__xflip(g, dim);
  return GIN(b, 0, amp__xto(b, 0, amp__xflip(amp__xdim(AMP_OP_cumsum, dim, 1, &g), dim)));
}

int amp__bwd_flip(amp_bwd *b) {
  amp_tensor *g = G(b);
  amp_sl s = amp__sl();
  amp__sl_copy(&s, b->a, 9);
  for (int i = 0; i < s.v[0].i; i++) s.v[1 + i].i++;
  return GIN(b, 0, amp__x(AMP_OP_flip, &s, 1, &g));
}
