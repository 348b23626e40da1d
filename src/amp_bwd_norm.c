/*
** amp_bwd_norm.c: derivatives of normalisation and softmax.
**
** batch_norm and layer_norm are one formula over different dimensions. With
** mean E over a group of M elements, xh = (x - mean) r, h = grad * weight:
**
**   P(h) = h - E[h] - xh E[h xh]         gx = r P(h)
**   gw = sum grad xh                      gb = sum grad
**
** The backward rows' own derivative, for the incoming v (of gx), a (of gw) and
** c (of gb), is second() below. In training mean and r depend on the input:
** dr/dx = -r^2 xh / M. When a graph of this derivative is wanted, both are made
** anew from the input, so that third derivatives see that too.
*/
#include "amp_bwd.h"

/* Inputs of a backward row, given broadcastable: where they stand and over what they were reduced */
typedef struct norm {
  int ig, ix, iw;                            /* places of grad, input, weight */
  amp_tensor *g, *x, *w, *mean, *r;          /* w NULL: ones */
  int ngroup, group[AMP_MAX_DIM];            /* dimensions of one statistic */
  int nrest, rest[AMP_MAX_DIM];              /* dimensions the weight does not have */
  double m;                                  /* elements of one statistic */
  bool live;                                 /* the statistics are the input's own */
  amp_tensor *xh;
} norm;

static amp_tensor *mul(amp_tensor *a, amp_tensor *b) { return X2(mul, a, b); }
static amp_tensor *sum(const norm *n, amp_tensor *t) { return amp__xsum(t, n->ngroup, n->group, true); }
static amp_tensor *mean(const norm *n, amp_tensor *t) { return XN(div, sum(n, t), n->m); }
static amp_tensor *by_weight(const norm *n, amp_tensor *t) { return n->w ? mul(t, n->w) : t; }

static amp_tensor *project(const norm *n, amp_tensor *u) {
  return n->live ? X2(sub, X2(sub, u, mean(n, u)), mul(n->xh, mean(n, mul(u, n->xh)))) : u;
}

/* *sum += t. false: an error is set */
static bool join(amp_tensor **sum, amp_tensor *t) {
  *sum = *sum && t ? X2(add, *sum, t) : t;
  return *sum != NULL;
}

/* mean and 1/std as functions of the input; eps is what the given ones say it was */
static void relive(norm *n) {
  amp_tensor *x = amp__xcast(n->x, n->mean->dtype);
  n->mean = mean(n, x);
  amp_tensor *d = X2(sub, x, n->mean), *var = mean(n, mul(d, d));
  amp_tensor *eps = amp__xdetach(X2(sub, X1(reciprocal, mul(n->r, n->r)), var));
  n->r = X1(rsqrt, X2(add, var, eps));
}

static int second(amp_bwd *b, norm *n, amp_tensor *v, amp_tensor *a, amp_tensor *c) {
  int rc = 0;
  OR_FAIL(n->mean && n->r);
  if (n->live && b->create_graph) relive(n);
  OR_FAIL(n->xh = mul(X2(sub, n->x, n->mean), n->r));
  amp_tensor *pv = v ? mul(n->r, project(n, v)) : NULL;
  if (v) OR_FAIL(pv);
  if (NEED(b, n->ig)) {
    amp_tensor *t = NULL;
    if (v && !join(&t, by_weight(n, pv))) return amp__err();
    if (a && !join(&t, mul(a, n->xh))) return amp__err();
    if (c && !join(&t, amp__xexpand(c, n->x->ndim, n->x->size))) return amp__err();
    if (t) rc = GIN(b, n->ig, amp__xto(b, n->ig, t));
  }
  if (rc == 0 && v && NEED(b, n->iw))
    rc = GIN(b, n->iw, amp__xto(b, n->iw, amp__xsum(mul(n->g, pv), n->nrest, n->rest, false)));
  if (rc == 0 && NEED(b, n->ix)) {
    amp_tensor *u = NULL, *t = NULL, *h = by_weight(n, n->g);
    if (a && !join(&u, mul(a, n->g))) return amp__err();
    if (v && n->live) {
      amp_tensor *w = X2(add, mul(v, mean(n, mul(h, n->xh))), mul(h, mean(n, mul(v, n->xh))));
      if (!join(&u, X1(neg, mul(n->r, w)))) return amp__err();
      amp_tensor *s = mul(mul(n->r, n->r), XN(div, sum(n, mul(v, project(n, h))), -n->m));
      if (!join(&t, mul(s, n->xh))) return amp__err();
    }
    if (u && !join(&t, mul(n->r, project(n, u)))) return amp__err();
    if (t) rc = GIN(b, n->ix, amp__xto(b, n->ix, t));
  }
  return rc;
}

/* -- Batch norm ----------------------------------------------------------------------- */

/* A vector over channels against data of shape h */
static amp_tensor *channels(amp_tensor *t, const amp_shape *h) {
  int64_t size[AMP_MAX_DIM];
  for (int i = 0; i < h->ndim; i++) size[i] = i == 1 ? h->size[1] : 1;
  return amp__xview(t, h->ndim, size);
}

int amp__bwd_batch_norm(amp_bwd *b) {
  amp_tensor *out[AMP_MAX_OUT];
  amp_tensor *in[5] = { G(b), IN(b, 0), amp__has(b, 3) ? IN(b, 3) : NULL, OUT(b, 1), OUT(b, 2) };
  if (amp__has(b, 3)) OR_FAIL(in[2]);
  amp_sl s = amp__sl();
  amp__sl_i(&s, b->a[0].i);
  int rc = amp__xs(AMP_OP_batch_norm_backward, &s, 5, in, out);
  if (rc == 0 && NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, out[0]));
  if (rc == 0 && NEED(b, 3)) rc = GIN(b, 3, amp__xto(b, 3, out[1]));
  if (rc == 0 && NEED(b, 4)) rc = GIN(b, 4, amp__xto(b, 4, out[2]));
  return rc;
}

int amp__bwd_batch_norm_backward(amp_bwd *b) {
  const amp_shape *h = SHAPE(b, 1);
  norm n = { .ig = 0, .ix = 1, .iw = 2, .live = b->a[0].i != 0, .m = 1 };
  OR_FAIL(n.g = IN(b, 0));
  OR_FAIL(n.x = IN(b, 1));
  if (amp__has(b, 2)) OR_FAIL(n.w = channels(IN(b, 2), h));
  n.mean = channels(IN(b, 3), h);
  n.r = channels(IN(b, 4), h);
  for (int i = 0; i < h->ndim; i++)
    if (i != 1) {
      n.group[n.ngroup++] = n.rest[n.nrest++] = i;
      n.m *= (double)h->size[i];
    }
  amp_tensor *a = b->g[1], *c = b->g[2];
  if (a) OR_FAIL(a = channels(a, h));
  if (c) OR_FAIL(c = channels(c, h));
  return second(b, &n, b->g[0], a, c);
}

/* -- Layer norm ------------------------------------------------------------------------- */

int amp__bwd_layer_norm(amp_bwd *b) {
  amp_tensor *out[AMP_MAX_OUT];
  amp_tensor *in[5] = { G(b), IN(b, 0), OUT(b, 1), OUT(b, 2), amp__has(b, 1) ? IN(b, 1) : NULL };
  if (amp__has(b, 1)) OR_FAIL(in[4]);
  amp_sl s = amp__sl();
  amp__sl_copy(&s, b->a, 9);
  int rc = amp__xs(AMP_OP_layer_norm_backward, &s, 5, in, out);
  if (rc == 0 && NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, out[0]));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, out[1]));
  if (rc == 0 && NEED(b, 2)) rc = GIN(b, 2, amp__xto(b, 2, out[2]));
  return rc;
}

int amp__bwd_layer_norm_backward(amp_bwd *b) {
  const amp_shape *h = SHAPE(b, 1);
  int first = h->ndim - (int)b->a[0].i;
  uint32_t inner = 0;
  norm n = { .ig = 0, .ix = 1, .iw = 4, .live = true, .m = 1 };
  OR_FAIL(n.g = IN(b, 0));
  OR_FAIL(n.x = IN(b, 1));
  if (amp__has(b, 4)) OR_FAIL(n.w = IN(b, 4));
  for (int i = 0; i < h->ndim; i++) {
    if (i < first) n.rest[n.nrest++] = i;
    else {
      n.group[n.ngroup++] = i;
      n.m *= (double)h->size[i];
      inner |= 1u << i;
    }
  }
  n.mean = amp__xkept(IN(b, 2), h->ndim, h->size, inner);
  n.r = amp__xkept(IN(b, 3), h->ndim, h->size, inner);
  return second(b, &n, b->g[0], b->g[1], b->g[2]);
}

/* -- Softmax ------------------------------------------------------------------------------ */

static amp_tensor *softmax_back(int op, int64_t dim, amp_tensor *g, amp_tensor *y) {
  amp_tensor *in[2] = { g, y };
  return amp__xdim(op, (int)dim, 2, in);
}

BWD(softmax, softmax_back(AMP_OP_softmax_backward, b->a[0].i, G(b), OUT(b, 0)))
BWD(log_softmax, softmax_back(AMP_OP_log_softmax_backward, b->a[0].i, G(b), OUT(b, 0)))

static amp_tensor *along(amp_bwd *b, amp_tensor *t) {
  int dim = (int)b->a[0].i;
  return t && t->ndim == 0 ? t : amp__xsum(t, 1, &dim, true);
}

/* of y (g - sum g y) */
int amp__bwd_softmax_backward(amp_bwd *b) {
  amp_tensor *v = G(b), *y = IN(b, 1);
  int rc = 0;
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, softmax_back(AMP_OP_softmax_backward, b->a[0].i, v, y)));
  if (rc == 0 && NEED(b, 1)) {
    amp_tensor *g = IN(b, 0);
    amp_tensor *t = X2(sub, mul(v, X2(sub, g, along(b, mul(g, y)))), mul(g, along(b, mul(v, y))));
    rc = GIN(b, 1, amp__xto(b, 1, t));
  }
  return rc;
}

/* of g - exp(y) sum g */
int amp__bwd_log_softmax_backward(amp_bwd *b) {
  amp_tensor *v = G(b), *ve = mul(v, X1(exp, IN(b, 1)));
  int rc = 0;
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, X2(sub, v, along(b, ve))));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, X1(neg, mul(ve, along(b, IN(b, 0))))));
  return rc;
}
