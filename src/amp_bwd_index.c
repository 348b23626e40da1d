/*
** amp_bwd_index.c: derivatives of joining and indexing. They come in pairs
** that are each other's derivative: index_select and index_add, gather and
** scatter_add, index and index_put, cat and narrow. Index tensors carry no
** gradient.
*/
#include "amp_bwd.h"

/* -- Joining -------------------------------------------------------------------- */

int amp__bwd_cat(amp_bwd *b) {
  amp_tensor *g = G(b);
  int dim = (int)b->a[0].i, rc = 0;
  int64_t start = 0;
  for (int i = 0; i < b->nin && rc == 0; i++) {
    const amp_shape *h = SHAPE(b, i);
    if (h->ndim != g->ndim) { /* an empty vector joins anything */
      if (NEED(b, i)) rc = GIN(b, i, amp__xzeros(b, i));
      continue;
    }
    if (NEED(b, i)) rc = GIN(b, i, amp__xto(b, i, b->nin == 1 ? g : amp__xnarrow(g, dim, start, h->size[dim])));
    start += h->size[dim];
  }
  return rc;
}

static int triangle(amp_bwd *b, int op) {
  amp_tensor *g = G(b);
  amp_sl s = amp__sl();
  amp__sl_i(&s, b->a[0].i);
  return GIN(b, 0, amp__x(op, &s, 1, &g));
}

int amp__bwd_tril(amp_bwd *b) { return triangle(b, AMP_OP_tril); }
int amp__bwd_triu(amp_bwd *b) { return triangle(b, AMP_OP_triu); }

/* -- One dimension by a vector of indices ----------------------------------------- */

int amp__bwd_index_select(amp_bwd *b) {
  amp_tensor *in[3] = { amp__xzeros(b, 0), IN(b, 1), G(b) };
  return GIN(b, 0, amp__xdim(AMP_OP_index_add, (int)b->a[0].i, 3, in));
}

int amp__bwd_index_add(amp_bwd *b) {
  int rc = 0;
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, G(b)));
  if (rc == 0 && NEED(b, 2)) {
    amp_tensor *in[2] = { G(b), IN(b, 1) }, *t = amp__xdim(AMP_OP_index_select, (int)b->a[0].i, 2, in);
    rc = GIN(b, 2, amp__xto(b, 2, b->a[1].f == 1 ? t : XN(mul, t, b->a[1].f)));
  }
  return rc;
}

/* -- Element by element along a dimension ------------------------------------------- */

int amp__bwd_gather(amp_bwd *b) {
  amp_tensor *in[3] = { amp__xzeros(b, 0), IN(b, 1), G(b) };
  return GIN(b, 0, amp__xdim(AMP_OP_scatter_add, (int)b->a[0].i, 3, in));
}

static amp_tensor *at_index(amp_bwd *b, amp_tensor *t, amp_tensor *index) {
  amp_tensor *in[2] = { t, index };
  return amp__xdim(AMP_OP_gather, (int)b->a[0].i, 2, in);
}

/* t, a gradient of the part of src that the indices reach, as one of src: zeros elsewhere */
static amp_tensor *whole_src(amp_bwd *b, amp_tensor *t) {
  const amp_shape *h = SHAPE(b, 2);
  if (!t || h->ndim != t->ndim || memcmp(h->size, t->size, sizeof(int64_t) * t->ndim) == 0) return amp__xto(b, 2, t);
  int64_t stride[AMP_MAX_DIM];
  amp__contiguous_strides(h->ndim, h->size, stride);
  amp_sl s = amp__sl();
  amp__sl_shape(&s, h);
  amp__sl_list(&s, t->ndim, t->size);
  amp__sl_list(&s, t->ndim, stride);
  amp__sl_i(&s, 0);
  return amp__xto(b, 2, amp__x(AMP_OP_as_strided_sum, &s, 1, &t));
}

/* The gradient of src: what lies at the indices. */
static amp_tensor *picked(amp_bwd *b, amp_tensor *index) { return whole_src(b, at_index(b, G(b), index)); }

int amp__bwd_scatter(amp_bwd *b) {
  int rc = 0;
  amp_tensor *index = IN(b, 1), *g = G(b);
  OR_FAIL(index);
  if (NEED(b, 0)) {
    amp_tensor *zero = amp__xfull(0, g->dtype, g->device, g->device_index, index->ndim, index->size);
    amp_tensor *in[3] = { g, index, zero };
    rc = GIN(b, 0, amp__xto(b, 0, amp__xdim(AMP_OP_scatter, (int)b->a[0].i, 3, in)));
  }
  if (rc == 0 && NEED(b, 2)) rc = GIN(b, 2, picked(b, index));
  return rc;
}

int amp__bwd_scatter_add(amp_bwd *b) {
  int rc = 0;
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, G(b)));
  if (rc == 0 && NEED(b, 2)) rc = GIN(b, 2, picked(b, IN(b, 1)));
  return rc;
}

/* -- scatter_reduce ------------------------------------------------------------------------- */

enum { SUM, PROD, MEAN, AMAX, AMIN };

static amp_tensor *full(amp_tensor *like, double v, int dtype) {
  return like ? amp__xfull(v, dtype, like->device, like->device_index, like->ndim, like->size) : NULL;
}

static amp_tensor *zero_at(amp_bwd *b, amp_tensor *t, amp_tensor *index) {
  amp_tensor *in[3] = { t, index, amp__xnum(0) };
  return amp__xdim(AMP_OP_scatter, (int)b->a[0].i, 3, in);
}

static amp_tensor *scatter_sum(amp_bwd *b, amp_tensor *t, amp_tensor *index, amp_tensor *src) {
  amp_tensor *in[3] = { t, index, src };
  return amp__xdim(AMP_OP_scatter_add, (int)b->a[0].i, 3, in);
}

static amp_tensor *scatter_product(amp_bwd *b, amp_tensor *t, amp_tensor *index, amp_tensor *src) {
  amp_tensor *in[3] = { t, index, src };
  amp_sl s = amp__sl();
  amp__sl_dim(&s, (int)b->a[0].i);
  amp__sl_i(&s, PROD);
  amp__sl_i(&s, 1);
  return amp__x(AMP_OP_scatter_reduce, &s, 3, in);
}

/* Does t, on any device, have a zero? Waits. */
static int has_zero(amp_tensor *t, bool *yes) {
  if (!t) return amp__err();
  amp_sl s = amp__sl();
  amp__sl_nolist(&s);
  amp__sl_i(&s, 0);
  amp_tensor *zero = XN(eq, t, 0), *any = zero ? amp__x(AMP_OP_any, &s, 1, &zero) : NULL, *cpu = any ? amp__on_cpu(any) : NULL;
  if (!cpu) return amp__err();
  amp__S->host_waits++;
  *yes = amp__element(cpu, 0) != 0;
  amp__free(cpu);
  return 0;
}

/* For each element of src the product of the others that go to its place. Once only where some are zero. */
static amp_tensor *other_factors(amp_bwd *b, amp_tensor *index, amp_tensor *src, amp_tensor *ones) {
  amp_tensor *zero = XN(eq, src, 0), *rest = amp__xfill(zero, src, 1);
  amp_tensor *product = at_index(b, scatter_product(b, ones, index, rest), index);
  amp_tensor *zeros = at_index(b, scatter_sum(b, full(ones, 0, ones->dtype), index, amp__xcast(zero, ones->dtype)), index);
  return amp__xwhere(zero, amp__xmask(XN(eq, zeros, 1), product), amp__xmask(XN(eq, zeros, 0), X2(div, product, rest)));
}

int amp__bwd_scatter_reduce(amp_bwd *b) {
  int rc = 0, how = (int)b->a[1].i, type = amp__is_half(G(b)->dtype) ? AMP_FLOAT32 : G(b)->dtype;
  bool include = b->a[2].i != 0;
  amp_tensor *index = IN(b, 1), *g = amp__xcast(G(b), type), *x = NULL, *src = NULL, *self = g, *to_src = g, *n;
  OR_FAIL(index);
  OR_FAIL(g);
  if (how != SUM) {
    OR_FAIL(src = IN(b, 2));
    OR_FAIL(x = IN(b, 0));
    for (int d = 0; d < index->ndim && src; d++)
      if (src->size[d] != index->size[d]) src = amp__xnarrow(src, d, 0, index->size[d]);
    src = amp__xcast(src, type);
    x = amp__xcast(x, type);
  }
  switch (how) {
  case SUM: to_src = at_index(b, g, index); break;
  case MEAN:
    n = scatter_sum(b, full(g, include ? 1 : 0, type), index, full(index, 1, type));
    self = g = X2(div, g, amp__xfill(XN(eq, n, 0), n, 1));
    to_src = at_index(b, g, index);
    break;
  case AMAX: case AMIN: { /* shared among equals */
    amp_tensor *y = amp__xcast(OUT(b, 0), type), *is = amp__xcast(X2(eq, x, y), type), *are = amp__xcast(X2(eq, src, at_index(b, y, index)), type);
    if (!include) is = zero_at(b, is, index);
    n = scatter_sum(b, is, index, are);
    g = X2(div, g, amp__xfill(XN(eq, n, 0), n, 1));
    self = include ? X2(mul, is, g) : g;
    to_src = X2(mul, are, at_index(b, g, index));
    break;
  }
  default: {
    amp_tensor *ones = full(g, 1, type);
    OR_FAIL(ones);
    if (b->create_graph && NEED(b, 2)) {
      bool yes = false;
      if ((rc = has_zero(src, &yes)) < 0) return rc;
      if (yes) return amp__fail(AMP_E_UNSUPPORTED, "a product of src values of which one is 0 has a first derivative only");
    }
    if (include) self = X2(mul, g, scatter_product(b, ones, index, src));
    if (NEED(b, 2)) to_src = X2(mul, at_index(b, include ? X2(mul, g, x) : g, index), other_factors(b, index, src, ones));
  }
  }
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, include ? self : zero_at(b, self, index)));
  if (rc == 0 && NEED(b, 2)) rc = GIN(b, 2, whole_src(b, to_src));
  return rc;
}

/* -- Several dimensions by index tensors ---------------------------------------------- */

/* op(first, [second,] the node's indices from `from` on); dims count from 1 again */
static amp_tensor *by_indices(amp_bwd *b, int op, amp_tensor *first, amp_tensor *second, int from, int accumulate) {
  amp_tensor *in[2 + AMP_MAX_DIM];
  int n = 0;
  in[n++] = first;
  if (second) in[n++] = second;
  for (int i = from; i < b->nin && n < 2 + AMP_MAX_DIM; i++) in[n++] = IN(b, i);
  amp_sl s = amp__sl();
  amp__sl_copy(&s, b->a, 9);
  for (int i = 0; i < s.v[0].i; i++) s.v[1 + i].i++;
  if (accumulate >= 0) amp__sl_i(&s, accumulate);
  return first ? amp__x(op, &s, n, in) : NULL;
}

int amp__bwd_index(amp_bwd *b) {
  return GIN(b, 0, by_indices(b, AMP_OP_index_put, amp__xzeros(b, 0), G(b), 1, 1));
}

int amp__bwd_index_put(amp_bwd *b) {
  int rc = 0;
  amp_tensor *g = G(b);
  if (NEED(b, 0)) {
    amp_tensor *t = g;
    if (!b->a[9].i) {
      OR_FAIL(t = amp__xfull(0, g->dtype, g->device, g->device_index, 0, NULL));
      t = by_indices(b, AMP_OP_index_put, g, t, 2, 0);
    }
    rc = GIN(b, 0, amp__xto(b, 0, t));
  }
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, by_indices(b, AMP_OP_index, g, NULL, 2, -1)));
  return rc;
}

int amp__bwd_embedding(amp_bwd *b) {
  const amp_shape *w = SHAPE(b, 1);
  amp_tensor *index = IN(b, 0);
  OR_FAIL(index);
  int64_t n = index->numel, rows[2] = { n, w->size[1] };
  amp_tensor *in[3] = { NULL, amp__xview(index, 1, &n), amp__xview(G(b), 2, rows) }, *sum;
  if (b->a[0].i != AMP_NONE) in[2] = amp__xmask_not(amp__xunsqueeze(XN(eq, in[1], (double)(b->a[0].i + 1)), 1), in[2]);
  OR_FAIL(in[1] && in[2]);
  if ((sum = amp__grad_to_add(b, 1)) != NULL && sum->dtype != in[2]->dtype) {
    amp__grad_not_added(b, 1);
    sum = NULL;
  }
  if (sum) in[0] = sum; /* a table that is a product's weight, too */
  else OR_FAIL(in[0] = amp__xzeros(b, 1));
  if (b->create_graph) return GIN(b, 1, amp__xdim(AMP_OP_index_add, 0, 3, in));
  amp_sl s = amp__sl();
  amp__sl_dim(&s, 0);
  amp__sl_f(&s, 1);
  int rc = amp__dispatch(AMP_OP_index_add, AMP_INPLACE, in, 3, NULL, s.v);
  if (in[0] != sum) return rc < 0 ? rc : GIN(b, 1, in[0]);
  if (rc < 0) amp__grad_not_added(b, 1);
  return rc;
}
