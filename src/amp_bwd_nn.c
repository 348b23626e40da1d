/*
** amp_bwd_nn.c: derivatives of products and dropout. Convolutions are in
** amp_bwd_conv.c, normalisation and losses in amp_bwd_norm.c and
** amp_bwd_loss.c.
*/
#include "amp_bwd.h"

/* -- Products --------------------------------------------------------------------- */

/* t as a matrix of rows, its last dimension kept */
static amp_tensor *rows(amp_tensor *t) {
  if (!t || t->ndim == 2) return t;
  int64_t last = t->ndim ? t->size[t->ndim - 1] : 1, size[2] = { 1, last };
  for (int i = 0; i + 1 < t->ndim; i++) size[0] *= t->size[i];
  return amp__xview(t, 2, size);
}

static amp_tensor *transposed(amp_tensor *t) { return amp__xtranspose(t, -2, -1); }

int amp__bwd_matmul(amp_bwd *b) {
  const amp_shape *ha = SHAPE(b, 0), *hb = SHAPE(b, 1);
  amp_tensor *g = G(b), *x, *y;
  int rc = 0;
  if (ha->ndim == 1 && hb->ndim == 1) {
    if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, X2(mul, g, IN(b, 1))));
    if (rc == 0 && NEED(b, 1)) rc = GIN(b, 1, amp__xto(b, 1, X2(mul, g, IN(b, 0))));
    return rc;
  }
  /* vectors become matrices; g gets back the dimension that went */
  if (ha->ndim == 1) g = amp__xunsqueeze(g, -2);
  if (hb->ndim == 1) g = amp__xunsqueeze(g, -1);
  if (NEED(b, 0)) {
    y = IN(b, 1);
    OR_FAIL(x = X2(matmul, g, hb->ndim == 1 ? amp__xunsqueeze(y, 0) : transposed(y)));
    rc = GIN(b, 0, amp__xto(b, 0, x));
  }
  if (rc == 0 && NEED(b, 1)) {
    x = IN(b, 0);
    if (hb->ndim <= 2 && ha->ndim >= 2) { /* one product for all batches */
      y = X2(matmul, transposed(rows(x)), rows(g));
      return GIN(b, 1, amp__xto(b, 1, amp__xview(y, hb->ndim, hb->size)));
    }
    y = X2(matmul, ha->ndim == 1 ? amp__xunsqueeze(x, 1) : transposed(x), g);
    if (y && hb->ndim == 1) y = amp__xview(y, y->ndim - 1, y->size);
    rc = GIN(b, 1, amp__xto(b, 1, y));
  }
  return rc;
}

/* Are both products of linear's backward from g (with y: behind a ReLU, which gave y) so small that a device takes each in
** one launch? (Where it does not, it makes ReLU's derivative twice, of little.) */
static bool small_back(amp_bwd *b, const amp_tensor *g, const amp_tensor *y) {
  enum { MOST_SUM = 256, MOST_MASKED = 192, MOST = 4096, MOST_WORK = 1 << 21 };
  if (!g || g->device == AMP_CPU || amp__dtype_size[g->dtype] != 2 || b->create_graph || (y && g->dtype != y->dtype)) return false;
  const amp_shape *x = SHAPE(b, 0), *w = SHAPE(b, 1);
  int64_t rows = amp__count(x->ndim - 1, x->size), most = y ? MOST_MASKED : MOST_SUM;
  return x->ndim > 1 && rows <= most && w->size[0] <= most && w->size[1] <= MOST && rows * w->size[0] * w->size[1] <= MOST_WORK;
}

/* Gradients in input, weight and bias (here it is known: bias) from small products, in one launch */
static int both_back(amp_bwd *b, amp_tensor *g, amp_tensor *y, amp_tensor *bias) {
  amp_tensor *in[4] = { g, IN(b, 0), IN(b, 1), y }, *out[AMP_MAX_OUT] = { NULL };
  int rc = amp__xs(AMP_OP_linear_both, NULL, 4, in, out);
  if (rc == 0) rc = GIN(b, 0, amp__xto(b, 0, out[0]));
  if (rc == 0) rc = GIN(b, 1, amp__xto(b, 1, out[1]));
  return rc < 0 || !NEED(b, 2) ? rc : GIN(b, 2, amp__xto(b, 2, bias ? bias : out[2]));
}

/* Gradients of linear in its arguments from that of its result; bias: its gradient, if it is known (NULL: not). On a
** device the weight's product leaves the bias's sums as well; recorded, all are ops. */
static int linear_back(amp_bwd *b, amp_tensor *g, amp_tensor *bias) {
  int rc = 0;
  if (NEED(b, 0) && NEED(b, 1) && small_back(b, g, NULL)) return both_back(b, g, NULL, bias);
  if (NEED(b, 0)) rc = GIN(b, 0, amp__xto(b, 0, X2(matmul, g, IN(b, 1))));
  if (rc == 0 && NEED(b, 1)) {
    if (!b->create_graph && NEED(b, 2) && !bias && g && g->device != AMP_CPU && IN(b, 0)->ndim > 1) {
      amp_tensor *out[AMP_MAX_OUT] = { NULL }, *in[2] = { g, IN(b, 0) };
      if ((rc = amp__xs(AMP_OP_linear_weight, NULL, 2, in, out)) < 0) return rc;
      rc = GIN(b, 1, amp__xto(b, 1, out[0]));
      bias = out[1];
    } else rc = GIN(b, 1, amp__xto(b, 1, X2(matmul, transposed(rows(g)), rows(IN(b, 0)))));
  }
  if (rc == 0 && NEED(b, 2)) rc = GIN(b, 2, amp__xto(b, 2, bias ? bias : g));
  return rc;
}

static int relu_back(amp_bwd *b, amp_tensor *g, amp_tensor *y) {
  amp_tensor *in[3] = { g, IN(b, 0), y }, *out[AMP_MAX_OUT] = { NULL };
  if (NEED(b, 0)) return both_back(b, g, y, NULL);
  int rc = amp__xs(AMP_OP_linear_weight, NULL, 3, in, out);
  if (rc == 0) rc = GIN(b, 1, amp__xto(b, 1, out[0]));
  return rc < 0 ? rc : GIN(b, 2, amp__xto(b, 2, out[1]));
}

int amp__bwd_linear(amp_bwd *b) { return linear_back(b, G(b), NULL); }

int amp__bwd_linear_act(amp_bwd *b) {
  int64_t act = b->a[0].i;
  amp_tensor *g = G(b), *z, *in[3] = { IN(b, 0), IN(b, 1), IN(b, 2) };
  amp_sl s = amp__sl();
  if (!g) return 0;
  if (!b->create_graph) {
    amp_tensor *out[AMP_MAX_OUT] = { NULL }, *from[2] = { g, OUT(b, act ? 1 : 0) };
    if (act == 0 && NEED(b, 1) && (NEED(b, 0) || NEED(b, 2)) && from[1] && small_back(b, g, from[1])) return relu_back(b, g, from[1]);
    amp__sl_i(&s, act);
    int rc = amp__xs(AMP_OP_act_backward, &s, 2, from, out);
    return rc < 0 ? rc : linear_back(b, out[0], out[1]);
  }
  if (act == 0) return linear_back(b, X2(relu_backward, g, OUT(b, 0)), NULL);
  OR_FAIL(z = amp__x(AMP_OP_linear, NULL, 3, in)); /* once more, with its history */
  in[0] = g;
  in[1] = z;
  amp__sl_i(&s, act == 2);
  return linear_back(b, amp__x(AMP_OP_gelu_backward, &s, 2, in), NULL);
}

/* -- Dropout ------------------------------------------------------------------------ */

int amp__bwd_dropout(amp_bwd *b) {
  double p = b->a[0].f;
  amp_tensor *g = G(b);
  if (!b->a[1].i || p == 0) return GIN(b, 0, amp__xto(b, 0, g));
  if (p == 1) return GIN(b, 0, amp__xzeros(b, 0));
  return GIN(b, 0, amp__xto(b, 0, X2(mul, XN(mul, g, 1 / (1 - p)), OUT(b, 1))));
}
