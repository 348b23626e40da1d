/*
** amp_bwd_order.c: derivatives of ops that choose elements by order (sort, topk,
** kthvalue, mode, median, cummax), of running products and of writing by a
** vector of indices or a mask.
** What was chosen is known by its index, so the gradient is scattered there;
** median over everything knows no index and shares among equals.
*/
#include <math.h>
#include "amp_bwd.h"

/* -- Chosen by order ----------------------------------------------------------------- */

static int chosen(amp_bwd *b, int slot, bool kept) {
  const amp_shape *h = SHAPE(b, 0);
  amp_tensor *index = OUT(b, 1), *g = G(b);
  if (h->ndim == 0) return GIN(b, 0, amp__xto(b, 0, g));
  int dim = (int)b->a[slot].i;
  if (!kept) {
    index = amp__xkept(index, h->ndim, h->size, 1u << dim);
    g = amp__xkept(g, h->ndim, h->size, 1u << dim);
  }
  amp_tensor *in[3] = { amp__xzeros_at(b, 0, G(b)->dtype), index, g };
  return GIN(b, 0, amp__xto(b, 0, amp__xdim(AMP_OP_scatter, dim, 3, in)));
}

int amp__bwd_sort(amp_bwd *b) { return chosen(b, 0, true); }
int amp__bwd_topk(amp_bwd *b) { return chosen(b, 1, true); }
int amp__bwd_kthvalue(amp_bwd *b) { return chosen(b, 1, false); }
int amp__bwd_mode(amp_bwd *b) { return chosen(b, 0, false); }

static int median(amp_bwd *b) {
  if (b->a[0].i != AMP_NONE) return chosen(b, 0, false);
  amp_tensor *x = IN(b, 0), *y = OUT(b, 0);
  OR_FAIL(x);
  OR_FAIL(y);
  y = amp__xview(y, 0, y->size);
  amp_tensor *equal = amp__xwhere(X1(isnan, y), X1(isnan, x), X2(eq, x, y));
  amp_tensor *n = amp__xcast(amp__xsum(amp__xcast(equal, AMP_INT64), -1, NULL, false), amp__is_half(x->dtype) ? AMP_FLOAT32 : x->dtype);
  return GIN(b, 0, amp__xto(b, 0, amp__xmask(equal, X2(div, amp__xview(G(b), 0, G(b)->size), n))));
}
int amp__bwd_median(amp_bwd *b) { return median(b); }
int amp__bwd_nanmedian(amp_bwd *b) { return median(b); }

/* -- Running along a dimension --------------------------------------------------------- */

static int best_so_far(amp_bwd *b) {
  if (G(b)->ndim == 0) return GIN(b, 0, amp__xto(b, 0, G(b)));
  int type = amp__is_half(G(b)->dtype) ? AMP_FLOAT32 : G(b)->dtype;
  amp_tensor *in[3] = { amp__xzeros_at(b, 0, type), OUT(b, 1), amp__xcast(G(b), type) };
  return GIN(b, 0, amp__xto(b, 0, amp__xdim(AMP_OP_scatter_add, (int)b->a[0].i, 3, in)));
}
int amp__bwd_cummax(amp_bwd *b) { return best_so_far(b); }
int amp__bwd_cummin(amp_bwd *b) { return best_so_far(b); }

/* t moved by `step` along dim (negative: towards the start), v moving in */
static amp_tensor *moved(amp_tensor *t, int dim, int64_t step, double v) {
  if (!t) return NULL;
  int64_t size[AMP_MAX_DIM], by = step < 0 ? -step : step, left = t->size[dim] - by;
  memcpy(size, t->size, sizeof size);
  size[dim] = by;
  amp_tensor *fill = amp__xfull(v, t->dtype, t->device, t->device_index, t->ndim, size);
  amp_tensor *in[2] = { fill, amp__xnarrow(t, dim, step < 0 ? by : 0, left) };
  if (step < 0) { in[0] = in[1]; in[1] = fill; }
  return amp__xdim(AMP_OP_cat, dim, 2, in);
}

/* s[i] = g[i] + a[i] s[i + 1], in log2(n) steps that double what each place has summed */
static amp_tensor *recur_back(amp_tensor *g, amp_tensor *a, int dim) {
  for (int64_t step = 1; g && a && step < g->size[dim]; step *= 2) {
    g = X2(add, g, X2(mul, a, moved(g, dim, -step, 0)));
    if (2 * step < a->size[dim]) a = X2(mul, a, moved(a, dim, -step, 0));
  }
  return a ? g : NULL;
}

/* Gradient i is the product of all before i, times the sum over j >= i of g[j] times what lies between: exact whatever
** is zero, and differentiable again */
int amp__bwd_cumprod(amp_bwd *b) {
  int dim = (int)b->a[0].i, type = amp__is_half(G(b)->dtype) ? AMP_FLOAT32 : G(b)->dtype;
  amp_tensor *x = amp__xcast(IN(b, 0), type), *g = amp__xcast(G(b), type);
  OR_FAIL(x);
  OR_FAIL(g);
  if (x->ndim == 0 || x->size[dim] < 2) return GIN(b, 0, amp__xto(b, 0, g));
  if (!b->create_graph) {
    amp_tensor *in[2] = { g, x };
    return GIN(b, 0, amp__xto(b, 0, amp__xdim(AMP_OP_cumprod_backward, dim, 2, in)));
  }
  amp_tensor *before = moved(x, dim, 1, 1);
  for (int64_t step = 1; before && step < x->size[dim]; step *= 2) before = X2(mul, before, moved(before, dim, step, 1));
  return GIN(b, 0, amp__xto(b, 0, X2(mul, before, recur_back(g, moved(x, dim, -1, 0), dim))));
}

/* exp(x[i] - y[i]) times the sum over j >= i of g[j] exp(y[i] - y[j]); y grows, so no factor is above 1 */
int amp__bwd_logcumsumexp(amp_bwd *b) {
  int dim = (int)b->a[0].i, type = amp__is_half(G(b)->dtype) ? AMP_FLOAT32 : G(b)->dtype;
  amp_tensor *x = amp__xcast(IN(b, 0), type), *y = amp__xcast(OUT(b, 0), type), *g = amp__xcast(G(b), type);
  OR_FAIL(x);
  OR_FAIL(y);
  OR_FAIL(g);
  if (x->ndim > 0 && x->size[dim] > 1) {
    amp_tensor *none = XN(eq, y, -INFINITY), *all = XN(eq, y, INFINITY); /* what comes after +inf adds nothing to it */
    g = recur_back(g, X1(exp, amp__xfill(X2(logical_or, none, all), X2(sub, y, moved(y, dim, -1, INFINITY)), -INFINITY)), dim);
    y = amp__xfill(none, y, 0);
  }
  return GIN(b, 0, amp__xto(b, 0, X2(mul, X1(exp, X2(sub, x, y)), g)));
}

/* -- Written by indices, places or a mask ------------------------------------------------ */

static amp_tensor *zero_at(amp_bwd *b, amp_tensor *index) {
  amp_tensor *in[2] = { G(b), index };
  return amp__xdim(AMP_OP_index_fill, (int)b->a[0].i, 2, in); /* value 0 */
}

int amp__bwd_index_fill(amp_bwd *b) { return GIN(b, 0, amp__xto(b, 0, zero_at(b, IN(b, 1)))); }

int amp__bwd_index_copy(amp_bwd *b) {
  int rc = 0;
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, zero_at(b, IN(b, 1))));
  if (rc == 0 && NEED(b, 2)) {
    amp_tensor *in[2] = { G(b), IN(b, 1) };
    rc = GIN(b, 2, amp__xto(b, 2, amp__xdim(AMP_OP_index_select, (int)b->a[0].i, 2, in)));
  }
  return rc;
}

int amp__bwd_put(amp_bwd *b) {
  int rc = 0;
  amp_tensor *g = G(b), *index = IN(b, 1);
  OR_FAIL(index);
  if (NEED(b, 0)) {
    amp_tensor *t = g;
    if (!b->a[0].i) {
      amp_tensor *in[3] = { g, index, amp__xfull(0, g->dtype, g->device, g->device_index, index->ndim, index->size) };
      t = amp__x(AMP_OP_put, NULL, 3, in);
    }
    rc = GIN(b, 0, amp__xto(b, 0, t));
  }
  if (rc == 0 && NEED(b, 2)) rc = GIN(b, 2, amp__xto(b, 2, amp__xview(X2(take, g, index), SHAPE(b, 2)->ndim, SHAPE(b, 2)->size)));
  return rc;
}

/* The k-th element of the source went where the mask is true for the k-th time: that gradient is added at k, and 0 at some
** place for every element that the mask left alone. The size of nothing depends on the mask, so nobody waits for it. */
static amp_tensor *at_source(amp_tensor *g, amp_tensor *mask, const amp_shape *h) {
  int64_t n = amp__count(h->ndim, h->size), all = g->numel;
  amp_tensor *to = amp__xfull(0, g->dtype, g->device, g->device_index, 1, &n);
  if (n == 0 || all == 0 || !to) return amp__xview(to, h->ndim, h->size);
  amp_tensor *ones = amp__xfull(1, AMP_INT64, g->device, g->device_index, g->ndim, g->size);
  amp_tensor *place = amp__xview(amp__xmask(mask, ones), 1, &all);
  place = amp__xdim(AMP_OP_cumsum, 0, 1, &place);
  amp_sl s = amp__sl();
  amp__sl_f(&s, 1);
  amp__sl_f(&s, (double)n);
  place = place ? amp__x(AMP_OP_clamp, &s, 1, &place) : NULL;
  amp_tensor *in[3] = { to, place, amp__xview(amp__xmask(mask, g), 1, &all) };
  return amp__xview(place && in[2] ? amp__xdim(AMP_OP_scatter_add, 0, 3, in) : NULL, h->ndim, h->size);
}

int amp__bwd_masked_scatter(amp_bwd *b) {
  int rc = 0;
  amp_tensor *g = G(b), *mask = IN(b, 1);
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, amp__xmask_not(mask, g)));
  if (rc == 0 && NEED(b, 2)) {
    OR_FAIL(g);
    OR_FAIL(mask);
    rc = GIN(b, 2, amp__xto(b, 2, at_source(g, mask, SHAPE(b, 2))));
  }
  return rc;
}

int amp__bwd_diag_embed(amp_bwd *b) {
  amp_tensor *g = G(b);
  amp_sl s = amp__sl();
  amp__sl_i(&s, b->a[0].i);
  amp__sl_dim(&s, (int)b->a[1].i);
  amp__sl_dim(&s, (int)b->a[2].i);
  return GIN(b, 0, amp__x(AMP_OP_diagonal, &s, 1, &g));
}
