/*
** amp_bwd_basic.c: derivatives of copies, views and arithmetic, in the order
** of amp_ops.def. A formula is an expression of recorded ops, so its own
** derivative needs nothing more. Gradients keep the dtype of the result they
** belong to until amp__xto gives them the input's shape and dtype.
**
** The gradient of a view is as_strided_sum: zeros of the input's shape with
** the gradient added where the view lay, its geometry being counted as if the
** input were contiguous; slices that overlap nowhere leave it to the engine to add
** them in place. as_strided and as_strided_sum are each other's derivative.
*/
#include <math.h>
#include "amp_bwd.h"

/* -- Copies and dtype ------------------------------------------------------- */

BWD(fill, amp__xzeros(b, 0))

int amp__bwd_copy(amp_bwd *b) {
  int rc = 0;
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xzeros(b, 0));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, G(b)));
  return rc;
}

int amp__bwd_cast(amp_bwd *b) {
  if (b->any_dtype && amp__is_float(G(b)->dtype) && SHAPE(b, 0)->ndim == G(b)->ndim) return GIN(b, 0, G(b));
  return GIN(b, 0, amp__xto(b, 0, G(b)));
}
BWD(clone, G(b))
BWD(to_device, G(b))

/* -- Views ------------------------------------------------------------------ */

BWD(alias, G(b))

static amp_tensor *view_back(amp_bwd *b) { return amp__xview(G(b), SHAPE(b, 0)->ndim, SHAPE(b, 0)->size); }
int amp__bwd_view(amp_bwd *b) { return GIN(b, 0, view_back(b)); }
int amp__bwd_squeeze(amp_bwd *b) { return GIN(b, 0, view_back(b)); }
int amp__bwd_unsqueeze(amp_bwd *b) { return GIN(b, 0, view_back(b)); }
BWD(expand, G(b))

int amp__bwd_transpose(amp_bwd *b) {
  return GIN(b, 0, amp__xtranspose(G(b), (int)b->a[0].i, (int)b->a[1].i));
}

int amp__bwd_permute(amp_bwd *b) {
  amp_tensor *g = G(b);
  int64_t back[AMP_MAX_DIM];
  for (int i = 0; i < g->ndim; i++) back[b->a[1 + i].i] = i + 1;
  amp_sl s = amp__sl();
  amp__sl_list(&s, g->ndim, back);
  return GIN(b, 0, amp__x(AMP_OP_permute, &s, 1, &g));
}

/* g added to zeros of the input's shape at the places of a view of g's size. Where the engine takes it as a part, only those places are
** touched: n slices of a tensor cost its size, not n times its size. */
static int strided_back(amp_bwd *b, const int64_t *stride, int64_t offset, bool apart) {
  amp_tensor *g = G(b);
  if (g->numel == 0) return GIN(b, 0, amp__xzeros(b, 0));
  if (apart && b->takes_part && g->dtype == SHAPE(b, 0)->dtype) {
    b->part = g;
    memcpy(b->part_stride, stride, sizeof *stride * (size_t)g->ndim);
    b->part_offset = offset;
    return 0;
  }
  amp_sl s = amp__sl();
  amp__sl_shape(&s, SHAPE(b, 0));
  amp__sl_list(&s, g->ndim, g->size);
  amp__sl_list(&s, g->ndim, stride);
  amp__sl_i(&s, offset);
  return GIN(b, 0, amp__x(AMP_OP_as_strided_sum, &s, 1, &g));
}

static int range_back(amp_bwd *b, int64_t start, int64_t step) {
  int64_t stride[AMP_MAX_DIM];
  const amp_shape *h = SHAPE(b, 0);
  int dim = (int)b->a[0].i;
  amp__contiguous_strides(h->ndim, h->size, stride);
  int64_t offset = start * stride[dim];
  if (G(b)->size[dim] > 1) stride[dim] *= step;
  return strided_back(b, stride, offset, true);
}

int amp__bwd_narrow(amp_bwd *b) { return range_back(b, b->a[1].i, 1); }
int amp__bwd_slice(amp_bwd *b) { return range_back(b, b->a[1].i, b->a[3].i); }

int amp__bwd_select(amp_bwd *b) {
  int64_t stride[AMP_MAX_DIM];
  const amp_shape *h = SHAPE(b, 0);
  int dim = (int)b->a[0].i;
  amp__contiguous_strides(h->ndim, h->size, stride);
  int64_t offset = b->a[1].i * stride[dim];
  for (int i = dim; i + 1 < h->ndim; i++) stride[i] = stride[i + 1];
  return strided_back(b, stride, offset, true);
}

/* Do the gradients of all slices lie as the slices of one dense tensor do? That tensor */
static amp_tensor *joined(amp_bwd *b, int dim) {
  int64_t stride[AMP_MAX_DIM];
  const amp_shape *h = SHAPE(b, 0);
  const amp_tensor *first = b->g[0];
  amp__contiguous_strides(h->ndim, h->size, stride);
  for (int i = 0; i < b->nout; i++) {
    const amp_tensor *g = b->g[i];
    if (g == NULL || g->storage != first->storage || g->dtype != h->dtype || g->offset != first->offset + i * stride[dim]) return NULL;
    for (int d = 0; d < g->ndim; d++) if (g->size[d] > 1 && g->stride[d] != stride[d + (d >= dim)]) return NULL;
  }
  amp_sl s = amp__sl();
  amp__sl_list(&s, h->ndim, h->size);
  amp__sl_list(&s, h->ndim, stride);
  amp__sl_i(&s, first->offset);
  return amp__x(AMP_OP_as_strided, &s, 1, (amp_tensor *const *)&b->g[0]);
}

int amp__bwd_unbind(amp_bwd *b) {
  amp_tensor *g[AMP_MAX_OUT], *one;
  int dim = (int)b->a[0].i;
  if (!b->create_graph && (one = joined(b, dim)) != NULL) return GIN(b, 0, one);
  for (int i = 0; i < b->nout; i++) {
    const amp_shape *o = SHAPE(b, b->nin + i);
    g[i] = b->g[i] ? b->g[i] : amp__xfull(0, o->dtype, o->device, o->device_index, o->ndim, o->size);
    OR_FAIL(g[i]);
  }
  return GIN(b, 0, amp__xdim(AMP_OP_stack, dim, b->nout, g));
}

int amp__bwd_diagonal(amp_bwd *b) {
  int64_t full[AMP_MAX_DIM], stride[AMP_MAX_DIM], k = b->a[0].i;
  const amp_shape *h = SHAPE(b, 0);
  int d1 = (int)b->a[1].i, d2 = (int)b->a[2].i, n = 0;
  amp__contiguous_strides(h->ndim, h->size, full);
  for (int i = 0; i < h->ndim; i++)
    if (i != d1 && i != d2) stride[n++] = full[i];
  stride[n] = full[d1] + full[d2];
  return strided_back(b, stride, k >= 0 ? k * full[d2] : -k * full[d1], true);
}

int amp__bwd_unfold(amp_bwd *b) {
  int64_t stride[AMP_MAX_DIM];
  const amp_shape *h = SHAPE(b, 0);
  int dim = (int)b->a[0].i;
  amp__contiguous_strides(h->ndim, h->size, stride);
  stride[h->ndim] = stride[dim];
  if (G(b)->size[dim] > 1) stride[dim] *= b->a[2].i;
  return strided_back(b, stride, 0, false);
}

enum { STRIDED_SIZE = 0, STRIDED_STRIDE = 9, STRIDED_OFFSET = 18 }; /* slots of a view's geometry */

int amp__bwd_as_strided(amp_bwd *b) {
  int64_t stride[AMP_MAX_DIM], offset = b->a[STRIDED_OFFSET].i;
  for (int i = 0; i < AMP_MAX_DIM; i++) stride[i] = b->a[STRIDED_STRIDE + 1 + i].i;
  return strided_back(b, stride, offset == AMP_NONE ? 0 : offset, false);
}

/* The view of t, as if contiguous, that 19 slots say */
static amp_tensor *strided_view(amp_tensor *t, const amp_slot *a) {
  t = amp__xcontiguous(t);
  if (!t) return NULL;
  amp_sl s = amp__sl();
  amp__sl_copy(&s, a, 19);
  s.v[STRIDED_OFFSET].i += t->offset;
  return amp__x(AMP_OP_as_strided, &s, 1, &t);
}

int amp__bwd_as_strided_scatter(amp_bwd *b) {
  int rc = 0;
  if (NEED(b, 0)) {
    amp_sl s = amp__sl();
    amp__sl_copy(&s, b->a, 19);
    amp_tensor *in[2] = { amp__xcontiguous(G(b)), amp__xzeros_at(b, 1, G(b)->dtype) };
    rc = GIN(b, 0, amp__xto(b, 0, amp__x(AMP_OP_as_strided_scatter, &s, 2, in)));
  }
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, strided_view(G(b), b->a)));
  return rc;
}

BWD(as_strided_sum, strided_view(G(b), b->a + 9))

/* -- Arithmetic --------------------------------------------------------------- */

static amp_tensor *times(amp_tensor *g, double k) { return k == 1 ? g : k == -1 ? X1(neg, g) : XN(mul, g, k); }

static int add_back(amp_bwd *b, double alpha) {
  int rc = 0;
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, G(b)));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, times(amp__xto(b, 1, G(b)), alpha));
  return rc;
}

int amp__bwd_add(amp_bwd *b) { return add_back(b, b->a[0].f); }
int amp__bwd_sub(amp_bwd *b) { return add_back(b, -b->a[0].f); }

int amp__bwd_mul(amp_bwd *b) {
  int rc = 0;
  if (b->may_alias && G(b) == amp__S->priv->one && amp__version(G(b)) == amp__S->priv->one_version && !NEED(b, 1)) { /* a scaled loss, at which backward begins */
    amp_tensor *y = IN(b, 1);
    OR_FAIL(y);
    if (y->ndim == 0 && SHAPE(b, 0)->ndim == 0 && y->dtype == SHAPE(b, 0)->dtype && y->device == G(b)->device && !amp__is_number(y)) return GIN(b, 0, y);
  }
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, X2(mul, G(b), IN(b, 1))));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, X2(mul, G(b), IN(b, 0))));
  return rc;
}

int amp__bwd_div(amp_bwd *b) {
  int rc = 0;
  amp_tensor *y = IN(b, 1), *q = X2(div, G(b), y);
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, q));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, X1(neg, X2(mul, q, X2(div, IN(b, 0), y)))));
  return rc;
}

int amp__bwd_mod(amp_bwd *b) {
  int rc = 0;
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, G(b)));
  if (rc == 0 && NEED(b, 1))
    rc = GIN(b, 1, amp__xto(b, 1, X1(neg, X2(mul, G(b), amp__xcast(X2(floor_divide, IN(b, 0), IN(b, 1)), G(b)->dtype)))));
  return rc;
}

/* e * x^(e - 1). Where e is 0 that is 0, not 0 * inf or NaN. */
static amp_tensor *pow_in_base(amp_tensor *x, amp_tensor *e) {
  if (!x || !e) return NULL;
  if (amp__is_number(e)) {
    double v = amp__element(e, 0);
    return XN(mul, v == 2 ? x : XN(pow, x, v - 1), v);
  }
  return X2(mul, X2(pow, amp__xfill(XN(eq, e, 0), x, 1), XN(sub, e, 1)), e);
}

/* x^e * log(x). Where x = 0 and e >= 0 that is 0. */
static amp_tensor *pow_in_exponent(amp_tensor *x, amp_tensor *e, amp_tensor *out) {
  if (!x || !e || !out) return NULL;
  if (amp__is_number(x)) {
    double v = amp__element(x, 0);
    if (v != 0) return XN(mul, out, log(v));
    return amp__xmask_not(XN(ge, e, 0), XN(mul, amp__xdetach(out), -INFINITY));
  }
  amp_tensor *zero = XN(eq, x, 0);
  if (amp__is_number(e)) {
    if (amp__element(e, 0) < 0) return X2(mul, out, X1(log, x));
  } else zero = X2(logical_and, zero, XN(ge, e, 0));
  return X2(mul, out, X1(log, amp__xfill(zero, x, 1)));
}

int amp__bwd_pow(amp_bwd *b) {
  int rc = 0;
  amp_tensor *x = IN(b, 0), *e = IN(b, 1);
  if (!x || !e) return amp__err();
  if (NEED(b, 0)) {
    double v = amp__is_number(e) ? amp__element(e, 0) : 2;
    rc = GIN(b, 0, v == 0 ? amp__xzeros(b, 0) : amp__xto(b, 0, v == 1 ? G(b) : X2(mul, G(b), pow_in_base(x, e))));
  }
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, X2(mul, G(b), pow_in_exponent(x, e, OUT(b, 0)))));
  return rc;
}

/* The chosen one gets g; equal ones half each. op: comparison by which the other one was chosen */
static int extremum_back(amp_bwd *b, int loses) {
  amp_tensor *x = IN(b, 0), *y = IN(b, 1), *g = G(b);
  int rc = 0;
  amp_tensor *t = amp__xwhere(X2(eq, x, y), XN(mul, g, 0.5), g);
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, amp__xmask_not(amp__x2(loses, x, y), t)));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, amp__xmask_not(amp__x2(loses, y, x), t)));
  return rc;
}

int amp__bwd_maximum(amp_bwd *b) { return extremum_back(b, AMP_OP_lt); }
int amp__bwd_minimum(amp_bwd *b) { return extremum_back(b, AMP_OP_gt); }

int amp__bwd_where(amp_bwd *b) {
  int rc = 0;
  amp_tensor *cond = IN(b, 0);
  if (NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, amp__xmask(cond, G(b))));
  if (rc == 0 && NEED(b, 2)) rc = GIN(b, 2, amp__xto(b, 2, amp__xmask_not(cond, G(b))));
  return rc;
}

/* -- Three tensors ------------------------------------------------------------------ */

int amp__bwd_addcmul(amp_bwd *b) {
  amp_tensor *g = NEED(b, 1) || NEED(b, 2) ? times(G(b), b->a[0].f) : NULL;
  int rc = NEED(b, 0) ? GIN(b, 0, amp__xto(b, 0, G(b))) : 0;
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, X2(mul, g, IN(b, 2))));
  if (rc == 0 && NEED(b, 2)) rc = GIN(b, 2, amp__xto(b, 2, X2(mul, g, IN(b, 1))));
  return rc;
}

int amp__bwd_addcdiv(amp_bwd *b) {
  amp_tensor *y = NEED(b, 1) || NEED(b, 2) ? X2(div, times(G(b), b->a[0].f), IN(b, 2)) : NULL;
  int rc = NEED(b, 0) ? GIN(b, 0, amp__xto(b, 0, G(b))) : 0;
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, y));
  if (rc == 0 && NEED(b, 2)) rc = GIN(b, 2, amp__xto(b, 2, X1(neg, X2(mul, y, X2(div, IN(b, 1), IN(b, 2))))));
  return rc;
}

int amp__bwd_lerp(amp_bwd *b) {
  amp_tensor *g = G(b), *rest = NULL;
  if (NEED(b, 0)) { /* two numbers would make a float32 */
    rest = g->dtype == AMP_FLOAT64 ? X2(sub, amp__xfull(1, g->dtype, g->device, g->device_index, 0, NULL), IN(b, 2)) : NX(sub, 1, IN(b, 2));
    OR_FAIL(rest);
  }
  int rc = rest ? GIN(b, 0, amp__xto(b, 0, X2(mul, g, rest))) : 0;
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, X2(mul, g, IN(b, 2))));
  if (rc == 0 && NEED(b, 2)) rc = GIN(b, 2, amp__xto(b, 2, X2(mul, g, X2(sub, IN(b, 1), IN(b, 0)))));
  return rc;
}

int amp__bwd_clamp(amp_bwd *b) {
  amp_tensor *x = IN(b, 0), *in = NULL, *g = G(b);
  if (!x) return amp__err();
  if (b->a[0].i != AMP_NONE) OR_FAIL(in = XN(gt, x, b->a[0].f));
  if (b->a[1].i != AMP_NONE) {
    amp_tensor *lt = XN(lt, x, b->a[1].f);
    OR_FAIL(in = in ? X2(logical_and, in, lt) : lt);
  }
  return GIN(b, 0, amp__xto(b, 0, in ? amp__xmask(in, g) : g));
}

BWD(masked_fill, amp__xmask_not(IN(b, 1), G(b)))
