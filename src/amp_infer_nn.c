/*
** amp_infer_nn.c: shape rules of products. Operands have one dtype, results are
** in C order. Convolutions are in amp_infer_conv.c, pooling in
** amp_infer_pool.c.
*/
#include "amp_infer.h"

/* -- Products ------------------------------------------------------------------ */

static int inner_mismatch(const amp_tensor *a, int da, const amp_tensor *b, int db)
{
  return amp__fail(AMP_E_SHAPE, "shapes %s and %s do not match (dimension %d of the first is %lld, dimension %d of the second is %lld)",
                   SHAPE_OF(a), SHAPE_OF(b), da + 1, LL(a->size[da]), db + 1, LL(b->size[db]));
}

int amp__infer_matmul(amp_call *c)
{
  const amp_tensor *a = c->in[0], *b = c->in[1];
  int64_t size[AMP_MAX_DIM + 1];
  int rc = amp__equal_dtypes(c, 2), n = 0;
  if (rc < 0) return rc;
  if (a->ndim == 0 || b->ndim == 0)
    return amp__fail(AMP_E_SHAPE, "shapes %s and %s: both operands need at least one dimension; use mul for scalars", SHAPE_OF(a), SHAPE_OF(b));
  int ka = a->ndim - 1, kb = b->ndim > 1 ? b->ndim - 2 : 0;
  if (a->size[ka] != b->size[kb]) return inner_mismatch(a, ka, b, kb);
  int na = a->ndim > 2 ? a->ndim - 2 : 0, nb = b->ndim > 2 ? b->ndim - 2 : 0, batch = na > nb ? na : nb;
  for (int d = 0; d < batch; d++) {
    int i = d - (batch - na), j = d - (batch - nb);
    int64_t x = i >= 0 ? a->size[i] : 1, y = j >= 0 ? b->size[j] : 1;
    if (x != y && x != 1 && y != 1)
      return amp__fail(AMP_E_SHAPE, "shapes %s and %s do not match in the batch (dimension %d of the first is %lld, dimension %d of the second is %lld)",
                       SHAPE_OF(a), SHAPE_OF(b), i + 1, LL(x), j + 1, LL(y));
    size[n++] = x == 1 ? y : x;
  }
  if (a->ndim > 1) size[n++] = a->size[a->ndim - 2];
  if (b->ndim > 1) size[n++] = b->size[b->ndim - 1];
  amp__out(c, 0, a->dtype, n, size);
  return 0;
}

int amp__infer_linear(amp_call *c)
{
  const amp_tensor *x = c->in[0], *w = c->in[1], *bias = c->nin > 2 ? c->in[2] : NULL;
  int64_t size[AMP_MAX_DIM];
  int rc = amp__equal_dtypes(c, 3);
  if (rc < 0) return rc;
  if (w->ndim != 2) return amp__fail_arg(AMP_E_SHAPE, 2, "weight has shape %s, expected a matrix (out x in)", SHAPE_OF(w));
  if (x->ndim == 0) return amp__fail_arg(AMP_E_SHAPE, 1, "input is a scalar, expected at least one dimension");
  if (x->size[x->ndim - 1] != w->size[1])
    return amp__fail(AMP_E_SHAPE, "input %s and weight %s do not match (dimension %d of input is %lld, dimension 2 of weight is %lld)", SHAPE_OF(x), SHAPE_OF(w),
                     x->ndim, LL(x->size[x->ndim - 1]), LL(w->size[1]));
  if (bias && (bias->ndim != 1 || bias->size[0] != w->size[0]))
    return amp__fail_arg(AMP_E_SHAPE, 3, "bias has shape %s, expected %lld (dimension 1 of weight)", SHAPE_OF(bias), LL(w->size[0]));
  for (int d = 0; d < x->ndim - 1; d++) size[d] = x->size[d];
  size[x->ndim - 1] = w->size[0];
  amp__out(c, 0, x->dtype, x->ndim, size);
  if (c->id == AMP_OP_linear) amp__aligned_rows(c, 0);
  return 0;
}

int amp__infer_linear_act(amp_call *c)
{
  int rc = amp__infer_linear(c);
  if (rc < 0 || c->a[0].i == 0) return rc; /* relu's result says it all */
  amp__out(c, 1, c->meta[0].dtype, c->meta[0].ndim, c->meta[0].size);
  return 0;
}

/* grad saved */
int amp__infer_act_backward(amp_call *c)
{
  const amp_tensor *g = c->in[0], *s = c->in[1];
  if (!amp__same_size(g, s)) return amp__fail(AMP_E_SHAPE, "grad has shape %s, the saved tensor %s", SHAPE_OF(g), SHAPE_OF(s));
  if (g->ndim == 0) return amp__fail_arg(AMP_E_SHAPE, 1, "grad is a scalar, expected at least one dimension");
  amp__out(c, 0, s->dtype, g->ndim, g->size);
  amp__out(c, 1, s->dtype, 1, &g->size[g->ndim - 1]);
  return 0;
}

/* Argument i is what a ReLU gave, whose gradient is the first one */
static int want_result(const amp_call *c, int i)
{
  if (amp__same_size(c->in[0], c->in[i])) return 0;
  return amp__fail_arg(AMP_E_SHAPE, i + 1, "result has shape %s, grad %s", SHAPE_OF(c->in[i]), SHAPE_OF(c->in[0]));
}

/* grad weight result */
int amp__infer_linear_input(amp_call *c)
{
  const amp_tensor *g = c->in[0], *w = c->in[1];
  int n = g->ndim, rc = amp__equal_dtypes(c, 3);
  int64_t size[AMP_MAX_DIM];
  if (rc < 0) return rc;
  if (w->ndim != 2 || n == 0 || g->size[n - 1] != w->size[0])
    return amp__fail(AMP_E_SHAPE, "grad %s and weight %s do not match (the last dimension of grad is the first of weight, a matrix)", SHAPE_OF(g), SHAPE_OF(w));
  if ((rc = want_result(c, 2)) < 0) return rc;
  for (int d = 0; d < n - 1; d++) size[d] = g->size[d];
  size[n - 1] = w->size[1];
  amp__out(c, 0, g->dtype, n, size);
  return 0;
}

/* grad input result */
int amp__infer_linear_weight(amp_call *c)
{
  const amp_tensor *g = c->in[0], *x = c->in[1];
  int n = g->ndim;
  int rc = amp__equal_dtypes(c, 3);
  if (rc == 0 && c->nin > 2 && c->in[2]) rc = want_result(c, 2);
  if (rc < 0) return rc;
  bool fit = n > 0 && n == x->ndim;
  for (int d = 0; fit && d + 1 < n; d++) fit = g->size[d] == x->size[d];
  if (!fit) return amp__fail(AMP_E_SHAPE, "grad %s and input %s differ before their last dimensions", SHAPE_OF(g), SHAPE_OF(x));
  int64_t size[2] = { g->size[n - 1], x->size[n - 1] };
  amp__out(c, 0, x->dtype, 2, size);
  amp__out(c, 1, x->dtype, 1, size);
  return 0;
}

/* grad input weight result */
int amp__infer_linear_both(amp_call *c)
{
  const amp_tensor *g = c->in[0], *x = c->in[1], *w = c->in[2];
  int n = g->ndim, rc = amp__equal_dtypes(c, 4);
  if (rc == 0 && c->nin > 3 && c->in[3]) rc = want_result(c, 3);
  if (rc < 0) return rc;
  bool fit = n > 0 && n == x->ndim;
  for (int d = 0; fit && d + 1 < n; d++) fit = g->size[d] == x->size[d];
  if (!fit) return amp__fail(AMP_E_SHAPE, "grad %s and input %s differ before their last dimensions", SHAPE_OF(g), SHAPE_OF(x));
  if (w->ndim != 2 || w->size[0] != g->size[n - 1] || w->size[1] != x->size[n - 1])
    return amp__fail_arg(AMP_E_SHAPE, 3, "weight has shape %s, expected %lldx%lld (the last dimensions of grad and input)", SHAPE_OF(w), LL(g->size[n - 1]), LL(x->size[n - 1]));
  amp__out(c, 0, x->dtype, n, x->size);
  amp__out(c, 1, x->dtype, 2, w->size);
  amp__out(c, 2, x->dtype, 1, w->size);
  return 0;
}
