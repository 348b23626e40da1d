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

/* The gradient of src: what lies at the indices. Only the part of src that the indices reach was used. */
static amp_tensor *picked(amp_bwd *b, amp_tensor *index) {
  const amp_shape *h = SHAPE(b, 2);
  amp_tensor *in[2] = { G(b), index }, *t = amp__xdim(AMP_OP_gather, (int)b->a[0].i, 2, in);
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
  amp_tensor *in[3] = { amp__xzeros(b, 1), amp__xview(index, 1, &n), amp__xview(G(b), 2, rows) };
  return GIN(b, 1, amp__xdim(AMP_OP_index_add, 0, 3, in));
}
