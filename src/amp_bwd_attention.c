/*
** amp_bwd_attention.c: derivatives of attention, of the vector product and of addr.
**
** attention's first derivative is the fused row attention_backward, which makes
** the scores anew block by block. Where a graph of the derivative is wanted the
** same formulas run in recorded ops, with the matrix of scores:
**
**   P = softmax(q k^T * scale + mask)      dv = P^T g
**   dS = P (g v^T - sum of its row with P)  dq = dS k * scale,  dk = dS^T q * scale
*/
#include "amp_attention.h"

static amp_tensor *transposed(amp_tensor *t) { return amp__xtranspose(t, -2, -1); }

static int recorded(amp_bwd *b, amp_tensor *g, amp_tensor *q, amp_tensor *k, amp_tensor *v, amp_tensor *mask) {
  int rc = 0, type = amp__is_half(q->dtype) ? AMP_FLOAT32 : q->dtype;
  double scale = b->a[1].f;
  g = amp__xcast(g, type);
  q = amp__xcast(q, type);
  k = amp__xcast(k, type);
  v = amp__xcast(v, type);
  amp_tensor *p = amp__attention_weights(q, k, mask, b->a[0].i != 0, scale);
  OR_FAIL(p);
  if (NEED(b, 2)) rc = GIN(b, 2, amp__xto(b, 2, X2(matmul, transposed(p), g)));
  if (rc < 0 || !(NEED(b, 0) || NEED(b, 1))) return rc;
  amp_tensor *in[2] = { X2(matmul, g, transposed(v)), p };
  amp_tensor *ds = amp__xdim(AMP_OP_softmax_backward, -1, 2, in);
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, XN(mul, X2(matmul, ds, k), scale)));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, XN(mul, X2(matmul, transposed(ds), q), scale)));
  return rc;
}

int amp__bwd_attention(amp_bwd *b) {
  amp_tensor *in[7] = { G(b), IN(b, 0), IN(b, 1), IN(b, 2), OUT(b, 0), OUT(b, 1), NULL }, *out[AMP_MAX_OUT];
  for (int i = 0; i < 6; i++) OR_FAIL(in[i]);
  if (amp__has(b, 3)) OR_FAIL(in[6] = IN(b, 3));
  if (b->create_graph) return recorded(b, in[0], in[1], in[2], in[3], in[6]);
  amp_sl s = amp__sl();
  amp__sl_copy(&s, b->a, 2);
  int rc = amp__xs(AMP_OP_attention_backward, &s, 7, in, out);
  bool all = NEED(b, 0) && NEED(b, 1) && NEED(b, 2);
  for (int i = 0; i < 3 && rc == 0; i++) {
    if (!NEED(b, i)) continue;
    /* one of three in a storage would keep the others' memory */
    amp_tensor *g = all || out[i]->storage != out[(i + 1) % 3]->storage ? out[i] : X1(clone, out[i]);
    rc = GIN(b, i, amp__xto(b, i, g));
  }
  return rc;
}

/* a x b: of a it is b x g, of b it is g x a */
static amp_tensor *cross(amp_bwd *b, amp_tensor *x, amp_tensor *y) {
  amp_tensor *in[2] = { x, y };
  return amp__xdim(AMP_OP_cross, (int)b->a[0].i, 2, in);
}

/* t with as many dimensions as the result */
static amp_tensor *whole(amp_bwd *b, amp_tensor *t) {
  const amp_shape *h = SHAPE(b, b->nin);
  int64_t size[AMP_MAX_DIM];
  if (!t) return NULL;
  for (int d = 0; d < h->ndim; d++) size[d] = d < h->ndim - t->ndim ? 1 : t->size[d - (h->ndim - t->ndim)];
  return amp__xview(t, h->ndim, size);
}

int amp__bwd_cross(amp_bwd *b) {
  int rc = 0;
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, cross(b, whole(b, IN(b, 1)), G(b))));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, cross(b, G(b), whole(b, IN(b, 0)))));
  return rc;
}

int amp__bwd_addr(amp_bwd *b) {
  double beta = b->a[0].f, alpha = b->a[1].f;
  amp_tensor *g = G(b);
  int rc = 0;
  if (NEED(b, 0)) rc = GIN(b, 0, beta == 0 ? amp__xzeros(b, 0) : amp__xto(b, 0, beta == 1 ? g : XN(mul, g, beta)));
  if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, XN(mul, X2(matmul, g, IN(b, 2)), alpha)));
  if (rc == 0 && NEED(b, 2)) rc = GIN(b, 2, amp__xto(b, 2, XN(mul, X2(matmul, IN(b, 1), g), alpha)));
  return rc;
}
