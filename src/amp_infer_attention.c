/*
** amp_infer_attention.c: shape rules of attention's kernels, of the vector
** product, of addr and of embedding_sum. The kernels want equal leading dimensions (the composite expands
** views); results lie in memory in the order of the tensor they belong to, so
** heads that were made by a transpose join again without a copy.
*/
#include <math.h>
#include "amp_products.h"
#include "amp_infer.h"

/* -- Attention ------------------------------------------------------------------- */

/* Result i, contiguous with its dimensions (but the last) in the order that t's strides say. */
static void in_order_of(amp_call *c, int i, const amp_tensor *t)
{
  amp_meta *m = &c->meta[i];
  int order[AMP_MAX_DIM], n = m->ndim;
  int64_t next = 1;
  for (int d = 0; d < n - 1; d++) {
    int j = d;
    if (t->stride[d] <= 0 && t->size[d] > 1) return;
    for (; j > 0 && t->stride[order[j - 1]] < t->stride[d]; j--) order[j] = order[j - 1];
    order[j] = d;
  }
  order[n - 1] = n - 1;
  for (int j = n - 1; j >= 0; j--) {
    m->stride[order[j]] = next;
    next *= m->size[order[j]] > 0 ? m->size[order[j]] : 1;
  }
  m->strides = 1;
}

static int want_batch(const amp_tensor *t, const char *what, const amp_tensor *q)
{
  if (t->ndim == q->ndim && memcmp(t->size, q->size, sizeof *q->size * (size_t)(q->ndim - 2)) == 0) return 0;
  return amp__fail(AMP_E_SHAPE, "%s has shape %s, expected the leading dimensions of query's %s", what, SHAPE_OF(t), SHAPE_OF(q));
}

/* query key value from input i on, mask */
static int operands(amp_call *c, int i, const amp_tensor *mask)
{
  const amp_tensor *q = c->in[i], *k = c->in[i + 1], *v = c->in[i + 2];
  int64_t size[AMP_MAX_DIM];
  int rc, n = q->ndim;
  if (n < 2) return amp__fail(AMP_E_SHAPE, "query has shape %s, expected at least 2 dimensions", SHAPE_OF(q));
  if (!amp__is_float(q->dtype) || k->dtype != q->dtype || v->dtype != q->dtype)
    return amp__fail(AMP_E_DTYPE, "query, key and value are %s, %s and %s, expected one float dtype", amp_dtype_name(q->dtype), amp_dtype_name(k->dtype),
                     amp_dtype_name(v->dtype));
  if ((rc = want_batch(k, "key", q)) < 0 || (rc = want_batch(v, "value", q)) < 0) return rc;
  if (k->size[n - 1] != q->size[n - 1]) return amp__fail(AMP_E_SHAPE, "query %s and key %s differ in their last dimension", SHAPE_OF(q), SHAPE_OF(k));
  if (k->size[n - 2] != v->size[n - 2]) return amp__fail(AMP_E_SHAPE, "key %s and value %s differ in length (dimension %d)", SHAPE_OF(k), SHAPE_OF(v), n - 1);
  if (mask == NULL) return 0;
  memcpy(size, q->size, sizeof size);
  size[n - 1] = k->size[n - 2];
  return amp__want_shape(mask, "attn_mask", n, size);
}

int amp__infer_attention(amp_call *c)
{
  const amp_tensor *q = c->in[0], *v = c->in[2];
  int64_t size[AMP_MAX_DIM];
  int rc = operands(c, 0, c->in[3]), n = q->ndim;
  if (rc < 0) return rc;
  memcpy(size, q->size, sizeof size);
  size[n - 1] = v->size[n - 1];
  amp__out(c, 0, q->dtype, n, size);
  in_order_of(c, 0, q);
  amp__out(c, 1, amp__acc_dtype(q->dtype), n - 1, size);
  return 0;
}

/* Are query, key and value every third element of one dense tensor, in this order? Then so are their gradients, which need no copy to be
** the gradient of that tensor. */
static void pack(amp_call *c)
{
  const amp_tensor *q = c->in[1], *k = c->in[2], *v = c->in[3];
  int64_t apart = k->offset - q->offset, next = 1;
  if (q->storage != k->storage || q->storage != v->storage || q->dtype != k->dtype || q->dtype != v->dtype || apart <= 0 || v->offset - k->offset != apart) return;
  if (q->numel == 0 || !amp__same_size(q, k) || !amp__same_size(q, v) || memcmp(q->stride, k->stride, sizeof *q->stride * q->ndim) != 0
      || memcmp(q->stride, v->stride, sizeof *q->stride * q->ndim) != 0) return;
  bool taken[AMP_MAX_DIM + 1] = { false };
  for (;;) { /* the dimension, or the step from one to the other, whose elements lie `next` apart */
    int d = 0;
    while (d < q->ndim && (taken[d] || q->size[d] == 1 || q->stride[d] != next)) d++;
    if (d == q->ndim && (taken[d] || apart != next)) break;
    taken[d] = true;
    next *= d == q->ndim ? 3 : q->size[d];
  }
  if (next != 3 * q->numel) return;
  for (int i = 0; i < 3; i++) {
    amp_meta *m = &c->meta[i];
    memcpy(m->stride, q->stride, sizeof *q->stride * q->ndim);
    m->strides = i ? AMP_M_SHARED : AMP_M_ROOM;
    m->room = i ? i * apart : next;
  }
}

/* grad query key value out lse attn_mask? */
int amp__infer_attention_backward(amp_call *c)
{
  const amp_tensor *q = c->in[1];
  int64_t size[AMP_MAX_DIM];
  int rc = operands(c, 1, c->in[6]), n = q->ndim;
  if (rc < 0) return rc;
  memcpy(size, q->size, sizeof size);
  size[n - 1] = c->in[3]->size[n - 1];
  for (int i = 0; i <= 4; i += 4) {
    if ((rc = amp__want_shape(c->in[i], i ? "out" : "grad", n, size)) < 0) return rc;
    if (!amp__is_float(c->in[i]->dtype)) return amp__fail(AMP_E_DTYPE, "%s is %s, expected a float dtype", i ? "out" : "grad", amp_dtype_name(c->in[i]->dtype));
  }
  if ((rc = amp__want_shape(c->in[5], "lse", n - 1, size)) < 0) return rc;
  if (!amp__is_float(c->in[5]->dtype)) return amp__fail(AMP_E_DTYPE, "lse is %s, expected a float dtype", amp_dtype_name(c->in[5]->dtype));
  for (int i = 0; i < 3; i++) {
    const amp_tensor *t = c->in[1 + i];
    amp__out(c, i, t->dtype, t->ndim, t->size);
    in_order_of(c, i, t);
  }
  pack(c);
  return 0;
}

/* -- Vector product ------------------------------------------------------------------ */

int amp__infer_cross(amp_call *c)
{
  const amp_tensor *a = c->in[0], *b = c->in[1];
  int64_t size[AMP_MAX_DIM];
  int n, rc;
  if ((rc = amp__broadcast(c, 2, &n, size)) < 0) return rc;
  if (!given(&c->a[0])) {
    int d = 0;
    while (d < n && size[d] != 3) d++;
    if (d == n) return amp__fail(AMP_E_SHAPE, "no dimension of shapes %s and %s has size 3", SHAPE_OF(a), SHAPE_OF(b));
    c->a[0].i = d;
  } else {
    if ((rc = amp__norm_dim(&c->a[0], n, "dim")) < 0) return rc;
    if (size[c->a[0].i] != 3)
      return amp__fail(AMP_E_SHAPE, "dimension %lld of the result %s has size %lld; a vector product is of 3 components (input %s, other %s)",
                       LL(c->a[0].i + 1), amp__shape_str(n, size), LL(size[c->a[0].i]), SHAPE_OF(a), SHAPE_OF(b));
  }
  for (int i = 0; i < 2; i++) {
    const amp_tensor *t = c->in[i];
    int d = (int)c->a[0].i - (n - t->ndim);
    if (d < 0 || t->size[d] != 3)
      return amp__fail_arg(AMP_E_SHAPE, i + 1, "%s has shape %s, expected 3 components along dimension %lld of %s", i ? "other" : "input", SHAPE_OF(t),
                           LL(c->a[0].i + 1), amp__shape_str(n, size));
  }
  amp__out(c, 0, amp__result_dtype(c, 0, 2), n, size);
  return 0;
}

/* -- input + outer product ------------------------------------------------------------- */

/* input vec1 vec2, beta alpha */
int amp__infer_addr(amp_call *c)
{
  static const char *const name[2] = { "beta", "alpha" };
  int rc = amp__equal_dtypes(c, 3);
  for (int i = 1; i < 3 && rc == 0; i++) rc = amp__want_dims(c, i, 1, "a vector");
  if (rc < 0) return rc;
  int64_t size[2] = { c->in[1]->size[0], c->in[2]->size[0] };
  if ((rc = amp__want_addend(c, 2, size)) < 0) return rc;
  for (int i = 0; i < 2; i++) {
    double v = c->a[i].f;
    if (!amp__is_float(c->in[0]->dtype) && !(v == floor(v) && fabs(v) <= 9007199254740992.0))
      return amp__fail(AMP_E_VALUE, "%s %g: %s tensors take an integer", name[i], v, amp_dtype_name(c->in[0]->dtype));
  }
  amp__out(c, 0, c->in[0]->dtype, 2, size);
  return 0;
}

/* -- Rows of a table, summed ------------------------------------------------------------- */

/* input weight bag? scale?, count padding_idx */
int amp__infer_embedding_sum(amp_call *c)
{
  const amp_tensor *x = c->in[0], *w = c->in[1], *bag = c->in[2], *scale = c->in[3];
  int64_t count = c->a[0].i, pad = c->a[1].i;
  int rc = amp__want_index(x, 1, "input");
  if (rc < 0 || (bag && (rc = amp__want_index(bag, 3, "bag")) < 0)) return rc;
  if (w->ndim != 2 || !amp__is_float(w->dtype)) return amp__fail_arg(AMP_E_SHAPE, 2, "weight is %s, expected a matrix of floats", amp__tensor_str(w));
  if (bag && bag->numel != x->numel) return amp__fail_arg(AMP_E_SHAPE, 3, "bag has shape %s and input %s; one for each index is expected", SHAPE_OF(bag), SHAPE_OF(x));
  if (scale && (scale->numel != x->numel || !amp__is_float(scale->dtype)))
    return amp__fail_arg(AMP_E_SHAPE, 4, "scale is %s and input has shape %s; a float for each index is expected", amp__tensor_str(scale), SHAPE_OF(x));
  if (count < 0 || (!bag && (count == 0 ? x->numel != 0 : x->numel % count != 0)))
    return amp__fail(AMP_E_SHAPE, "%lld bags don't share %lld indices evenly", LL(count), LL(x->numel));
  if (given(&c->a[1]) && (pad < 1 || pad > w->size[0])) return amp__fail(AMP_E_INDEX, "padding_idx %lld is out of range for %lld rows", LL(pad), LL(w->size[0]));
  int64_t size[2] = { count, w->size[1] };
  if ((rc = amp__check_size(2, size, AMP_FLOAT64, NULL)) < 0) return rc;
  amp__out(c, 0, amp__acc_dtype(w->dtype), 2, size);
  return 0;
}
