/*
** amp_bwd_norm.c: derivatives of normalisation and softmax.
**
** All norms are one formula over different dimensions. With mean E over a group
** of M elements, xh = (x - mean) r, h = grad * weight:
**
**   P(h) = h - E[h] - xh E[h xh]         gx = r P(h)
**   gw = sum grad xh                      gb = sum grad
**
** rms_norm is the same without a mean: E[h] goes from P. group_norm is seen as
** N x groups x channels of a group x the rest.
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
  amp_tensor *g, *x, *w, *mean, *r;          /* w NULL: ones; mean NULL: 0, not the input's */
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
  if (!n->live) return u;
  return X2(sub, n->mean ? X2(sub, u, mean(n, u)) : u, mul(n->xh, mean(n, mul(u, n->xh))));
}

/* *sum += t. false: an error is set */
static bool join(amp_tensor **sum, amp_tensor *t) {
  *sum = *sum && t ? X2(add, *sum, t) : t;
  return *sum != NULL;
}

/* mean and 1/std as functions of the input; eps is what the given ones say it was */
static void relive(norm *n) {
  amp_tensor *x = amp__xcast(n->x, n->r->dtype);
  if (n->mean) n->mean = mean(n, x);
  amp_tensor *d = n->mean ? X2(sub, x, n->mean) : x, *var = mean(n, mul(d, d));
  amp_tensor *eps = amp__xdetach(X2(sub, X1(reciprocal, mul(n->r, n->r)), var));
  n->r = X1(rsqrt, X2(add, var, eps));
}

/* A gradient in the shape that the row's input i has, where the formula saw another */
static int give(amp_bwd *b, int i, amp_tensor *t) {
  const amp_shape *h = SHAPE(b, i);
  if (t && amp__count(t->ndim, t->size) == amp__count(h->ndim, h->size)) t = amp__xview(t, h->ndim, h->size);
  return GIN(b, i, amp__xto(b, i, t));
}

static int second(amp_bwd *b, norm *n, amp_tensor *v, amp_tensor *a, amp_tensor *c) {
  int rc = 0;
  OR_FAIL(n->r);
  if (n->live && b->create_graph) relive(n);
  OR_FAIL(n->xh = mul(n->mean ? X2(sub, n->x, n->mean) : n->x, n->r));
  amp_tensor *pv = v ? mul(n->r, project(n, v)) : NULL;
  if (v) OR_FAIL(pv);
  if (NEED(b, n->ig)) {
    amp_tensor *t = NULL;
    if (v && !join(&t, by_weight(n, pv))) return amp__err();
    if (a && !join(&t, mul(a, n->xh))) return amp__err();
    if (c && !join(&t, amp__xexpand(c, n->x->ndim, n->x->size))) return amp__err();
    if (t) rc = give(b, n->ig, t);
  }
  if (rc == 0 && v && NEED(b, n->iw))
    rc = give(b, n->iw, amp__xsum(mul(n->g, pv), n->nrest, n->rest, false));
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
    if (t) rc = give(b, n->ix, t);
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

/* The result, if it was saved; else once more: in training statistics are those of the batch, with or without running ones */
static amp_tensor *result_again(amp_bwd *b) {
  if (b->node->saved[b->nin].t) return OUT(b, 0);
  amp_tensor *in[7] = { amp__xdetach(IN(b, 0)), NULL, NULL, NULL, amp__has(b, 4) ? amp__xdetach(IN(b, 4)) : NULL, amp__has(b, 5) ? amp__xdetach(IN(b, 5)) : NULL, NULL };
  amp_sl s = amp__sl();
  amp__sl_copy(&s, b->a, 4);
  return in[0] ? amp__x(AMP_OP_batch_norm_act, &s, 7, in) : NULL;
}

/* input residual? running_mean? running_var? weight? bias? batches?; relu training momentum eps */
int amp__bwd_batch_norm_act(amp_bwd *b) {
  bool relu = b->a[0].i != 0, residual = amp__has(b, 1);
  amp_tensor *g = G(b), *x = IN(b, 0), *w = NULL, *bias = NULL, *out[AMP_MAX_OUT] = { NULL };
  amp_sl s = amp__sl();
  int rc;
  if (!g) return 0;
  OR_FAIL(x);
  if (amp__has(b, 4)) OR_FAIL(w = IN(b, 4));
  if (amp__has(b, 5)) OR_FAIL(bias = IN(b, 5));
  amp__sl_i(&s, b->a[1].i);
  if (relu && !b->create_graph) {
    amp_tensor *y = b->node->saved[b->nin].t ? OUT(b, 0) : NULL;
    amp_tensor *in[7] = { g, x, y, w, bias, OUT(b, 1), OUT(b, 2) };
    if (b->node->saved[b->nin].t) OR_FAIL(y);
    amp__sl_i(&s, residual);
    rc = amp__xs(AMP_OP_batch_norm_act_backward, &s, 7, in, out);
    if (rc == 0 && residual && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, out[3]));
  } else {
    if (relu) {
      amp_tensor *y = result_again(b);
      OR_FAIL(y);
      OR_FAIL(g = X2(relu_backward, g, y));
    }
    amp_tensor *in[5] = { g, x, w, OUT(b, 1), OUT(b, 2) };
    rc = amp__xs(AMP_OP_batch_norm_backward, &s, 5, in, out);
    if (rc == 0 && residual && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, g));
  }
  if (rc == 0 && NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, out[0]));
  if (rc == 0 && w && NEED(b, 4)) rc = GIN(b, 4, amp__xto(b, 4, out[1]));
  if (rc == 0 && bias && NEED(b, 5)) rc = GIN(b, 5, amp__xto(b, 5, out[2]));
  return rc;
}

int amp__bwd_batch_norm_backward(amp_bwd *b) {
  const amp_shape *h = SHAPE(b, 1);
  norm n = { .ig = 0, .ix = 1, .iw = 2, .live = b->a[0].i != 0, .m = 1 };
  OR_FAIL(n.g = IN(b, 0));
  OR_FAIL(n.x = IN(b, 1));
  if (amp__has(b, 2)) OR_FAIL(n.w = channels(IN(b, 2), h));
  OR_FAIL(n.mean = channels(IN(b, 3), h));
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

/* What came for the input x so far, if the backward row may add it */
static amp_tensor *add_so_far(amp_bwd *b, const amp_tensor *x) {
  b->summed = b->sum && NEED(b, 0) && b->sum->dtype == x->dtype;
  return b->summed ? b->sum : NULL;
}

int amp__bwd_layer_norm(amp_bwd *b) {
  amp_tensor *out[AMP_MAX_OUT];
  amp_tensor *in[6] = { G(b), IN(b, 0), OUT(b, 1), OUT(b, 2), amp__has(b, 1) ? IN(b, 1) : NULL };
  OR_FAIL(in[1]);
  if (amp__has(b, 1)) OR_FAIL(in[4]);
  in[5] = add_so_far(b, in[1]);
  amp_sl s = amp__sl();
  amp__sl_copy(&s, b->a, 9);
  amp__sl_i(&s, AMP_NONE);
  int rc = amp__xs(AMP_OP_layer_norm_backward, &s, 6, in, out);
  if (rc == 0 && NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, out[0]));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, out[1]));
  if (rc == 0 && NEED(b, 2)) rc = GIN(b, 2, amp__xto(b, 2, out[2]));
  return rc;
}

/* t's part i along its first dimension, which goes; without history */
static amp_tensor *part(amp_tensor *t, int i) {
  amp_sl s = amp__sl();
  amp__sl_dim(&s, 0);
  amp__sl_i(&s, i + 1);
  return t ? amp__x(AMP_OP_select, &s, 1, &t) : NULL;
}

/* input residual weight? bias?; shape eps dtype -> result sum statistics. The sum's gradient is the two inputs', which one pass
** gives in float32 for one and in 16 bits for the other */
int amp__bwd_add_layer_norm(amp_bwd *b) {
  const amp_shape *h = SHAPE(b, b->nin + 1);
  amp_tensor *g = G(b), *t = amp__xcast(b->g[1], h->dtype), *out[AMP_MAX_OUT] = { NULL };
  int rc = 0, also = -1;
  if (b->g[1]) OR_FAIL(t);
  if (g) {
    amp_tensor *at = amp__xdetach(OUT(b, 2)), *in[6] = { g, OUT(b, 1), part(at, 0), part(at, 1), amp__has(b, 2) ? IN(b, 2) : NULL, t };
    amp_sl s = amp__sl();
    if (!in[1] || !in[2] || !in[3] || (amp__has(b, 2) && !in[4])) return amp__err();
    for (int i = 0; i < 2 && !b->create_graph && h->device != AMP_CPU; i++)
      if (NEED(b, i) && SHAPE(b, i)->dtype != h->dtype) also = SHAPE(b, i)->dtype;
    amp__sl_copy(&s, b->a, 9);
    amp__sl_i(&s, also < 0 ? AMP_NONE : also);
    if ((rc = amp__xs(AMP_OP_layer_norm_backward, &s, 6, in, out)) < 0) return rc;
    t = out[0];
  }
  for (int i = 0; i < 2 && rc == 0; i++)
    if (NEED(b, i)) rc = GIN(b, i, amp__xto(b, i, SHAPE(b, i)->dtype == also ? out[3] : t));
  for (int i = 2; i < 4 && rc == 0 && g; i++)
    if (NEED(b, i)) rc = GIN(b, i, amp__xto(b, i, out[i - 1]));
  return rc;
}

/* A row of the last dimensions: im is the place of the mean, -1: none; the sum stands behind the weight, iw */
static int rows(amp_bwd *b, int im, int ir, int iw) {
  const amp_shape *h = SHAPE(b, 1);
  int first = h->ndim - (int)b->a[0].i;
  uint32_t inner = 0;
  norm n = { .ig = 0, .ix = 1, .iw = iw, .live = true, .m = 1 };
  OR_FAIL(n.g = IN(b, 0));
  OR_FAIL(n.x = IN(b, 1));
  if (amp__has(b, iw)) OR_FAIL(n.w = IN(b, iw));
  for (int i = 0; i < h->ndim; i++) {
    if (i < first) n.rest[n.nrest++] = i;
    else {
      n.group[n.ngroup++] = i;
      n.m *= (double)h->size[i];
      inner |= 1u << i;
    }
  }
  if (im >= 0) OR_FAIL(n.mean = amp__xkept(IN(b, im), h->ndim, h->size, inner));
  n.r = amp__xkept(IN(b, ir), h->ndim, h->size, inner);
  if (b->g[0] && NEED(b, iw + 1)) {
    int rc = GIN(b, iw + 1, amp__xto(b, iw + 1, b->g[0]));
    if (rc < 0) return rc;
  }
  return second(b, &n, b->g[0], b->g[1], im >= 0 ? b->g[2] : NULL);
}

int amp__bwd_layer_norm_backward(amp_bwd *b) { return rows(b, 2, 3, 4); }

/* -- Root mean square -------------------------------------------------------------------- */

int amp__bwd_rms_norm(amp_bwd *b) {
  amp_tensor *out[AMP_MAX_OUT];
  amp_tensor *in[5] = { G(b), IN(b, 0), OUT(b, 1), amp__has(b, 1) ? IN(b, 1) : NULL };
  OR_FAIL(in[1]);
  if (amp__has(b, 1)) OR_FAIL(in[3]);
  in[4] = add_so_far(b, in[1]);
  amp_sl s = amp__sl();
  amp__sl_copy(&s, b->a, 9);
  int rc = amp__xs(AMP_OP_rms_norm_backward, &s, 5, in, out);
  if (rc == 0 && NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, out[0]));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, out[1]));
  return rc;
}

int amp__bwd_rms_norm_backward(amp_bwd *b) { return rows(b, -1, 2, 3); }

/* -- Groups of channels ------------------------------------------------------------------- */

int amp__bwd_group_norm(amp_bwd *b) {
  amp_tensor *out[AMP_MAX_OUT];
  amp_tensor *in[5] = { G(b), IN(b, 0), OUT(b, 1), OUT(b, 2), amp__has(b, 1) ? IN(b, 1) : NULL };
  if (amp__has(b, 1)) OR_FAIL(in[4]);
  amp_sl s = amp__sl();
  amp__sl_i(&s, b->a[0].i);
  int rc = amp__xs(AMP_OP_group_norm_backward, &s, 5, in, out);
  if (rc == 0 && NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, out[0]));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, out[1]));
  if (rc == 0 && NEED(b, 2)) rc = GIN(b, 2, amp__xto(b, 2, out[2]));
  return rc;
}

int amp__bwd_group_norm_backward(amp_bwd *b) {
  const amp_shape *h = SHAPE(b, 1);
  int64_t groups = b->a[0].i, d = h->size[1] / groups, rest = 1;
  for (int i = 2; i < h->ndim; i++) rest *= h->size[i];
  int64_t data[4] = { h->size[0], groups, d, rest }, of_group[4] = { h->size[0], groups, 1, 1 }, of_channel[3] = { groups, d, 1 };
  norm n = { .ig = 0, .ix = 1, .iw = 4, .ngroup = 2, .group = { 2, 3 }, .nrest = 2, .rest = { 0, 3 }, .live = true, .m = (double)(d * rest) };
  amp_tensor *v = b->g[0], *a = b->g[1], *c = b->g[2];
  OR_FAIL(n.g = amp__xview(IN(b, 0), 4, data));
  OR_FAIL(n.x = amp__xview(IN(b, 1), 4, data));
  if (amp__has(b, 4)) OR_FAIL(n.w = amp__xview(IN(b, 4), 3, of_channel));
  OR_FAIL(n.mean = amp__xview(IN(b, 2), 4, of_group));
  n.r = amp__xview(IN(b, 3), 4, of_group);
  if (v) OR_FAIL(v = amp__xview(v, 4, data));
  if (a) OR_FAIL(a = amp__xview(a, 3, of_channel));
  if (c) OR_FAIL(c = amp__xview(c, 3, of_channel));
  return second(b, &n, v, a, c);
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
