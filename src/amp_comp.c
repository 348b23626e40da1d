/*
** amp_comp.c: composite ops about layout, arithmetic, reductions and joining.
** A composite checks what its parts would report in words the caller does not
** know, then is a formula; its parts record themselves, so it needs no
** derivative. Dimensions arrive counting from 1, as the user gave them.
** Products and losses are in amp_comp_nn.c.
*/
#include <math.h>
#include "amp_bwd.h"

/* -- Layout --------------------------------------------------------------------- */

static bool is_channels_last(const amp_tensor *t) {
  static const int order[4] = { 1, 3, 2, 0 }; /* from the innermost */
  int64_t next = 1;
  for (int k = 0; k < 4; k++) {
    int d = order[k];
    if (t->size[d] != 1 && t->stride[d] != next) return false;
    next *= t->size[d];
  }
  return true;
}

int amp__comp_contiguous(amp_call *c) {
  amp_tensor *t = c->in[0];
  bool last = c->a[0].i == 1;
  if (last && t->ndim != 4)
    return amp__fail(AMP_E_SHAPE, "channels_last is a layout of 4 dimensions (N x C x H x W), the tensor has %d", t->ndim);
  if (last ? is_channels_last(t) : (t->flags & AMP_T_CONTIGUOUS) != 0) return amp__ret(c, 0, t);
  amp_sl s = amp__sl();
  amp__sl_i(&s, last ? 2 : 1);
  return amp__ret(c, 0, amp__x(AMP_OP_clone, &s, 1, &t));
}

int amp__comp_reshape(amp_call *c) {
  amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM];
  int rc = amp__view_shape(t, c->a, size);
  if (rc < 0) return rc;
  amp_tensor *v = amp__xview(t, (int)c->a[0].i, size);
  return amp__ret(c, 0, v == t ? X1(alias, t) : v);
}

int amp__comp_flatten(amp_call *c) {
  amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM], one = 1;
  int n = 0;
  if (t->ndim == 0) return amp__ret(c, 0, amp__xview(t, 1, &one));
  int rc = amp__norm_dim(&c->a[0], t->ndim, "start_dim");
  if (rc == 0) rc = amp__norm_dim(&c->a[1], t->ndim, "end_dim");
  if (rc < 0) return rc;
  int from = (int)c->a[0].i, to = (int)c->a[1].i;
  if (from > to)
    return amp__fail(AMP_E_ARGUMENT, "start_dim %d comes after end_dim %d", from + 1, to + 1);
  for (int i = 0; i < t->ndim; i++) {
    if (i > from && i <= to) size[n - 1] *= t->size[i];
    else size[n++] = t->size[i];
  }
  return amp__ret(c, 0, amp__xview(t, n, size));
}

int amp__comp_t(amp_call *c) {
  amp_tensor *t = c->in[0];
  if (t->ndim > 2)
    return amp__fail(AMP_E_SHAPE, "t is for matrices, the tensor has %d dimensions; use transpose(dim0, dim1)", t->ndim);
  return amp__ret(c, 0, t->ndim < 2 ? X1(alias, t) : amp__xtranspose(t, 0, 1));
}

/* -- Arithmetic ------------------------------------------------------------------- */

int amp__comp_rpow(amp_call *c) { return amp__ret(c, 0, NX(pow, c->a[0].f, c->in[0])); }
int amp__comp_rdiv(amp_call *c) { return amp__ret(c, 0, NX(div, c->a[0].f, c->in[0])); }

/* -- Joining -------------------------------------------------------------------------- */

int amp__comp_stack(amp_call *c) {
  if (c->nin == 0) return amp__fail(AMP_E_ARGUMENT, "an empty list of tensors");
  const amp_tensor *t = c->in[0];
  amp_tensor *few[AMP_MAX_IN], **in = few, *out = NULL;
  amp_block *lent = NULL;
  int rc = amp__norm_dim(&c->a[0], t->ndim + 1, "dim");
  if (rc < 0) return rc;
  if (t->ndim == AMP_MAX_DIM) return amp__fail(AMP_E_SHAPE, "a stack of tensors of %d dimensions would have more than %d", t->ndim, AMP_MAX_DIM);
  for (int i = 1; i < c->nin; i++)
    if (!amp__same_size(t, c->in[i]))
      return amp__fail_arg(AMP_E_SHAPE, i + 1, "tensors of one shape are expected: tensor 1 is %s, tensor %d is %s",
                           amp__shape_str(t->ndim, t->size), i + 1, amp__shape_str(c->in[i]->ndim, c->in[i]->size));
  if (c->nin > AMP_MAX_IN) {
    if ((lent = amp__block_new(AMP_CPU, 0, sizeof *in * (size_t)c->nin)) == NULL) return amp__err();
    in = lent->data;
  }
  int dim = (int)c->a[0].i, i;
  for (i = 0; i < c->nin; i++)
    if ((in[i] = amp__xunsqueeze(c->in[i], dim)) == NULL) break;
  if (i == c->nin) out = amp__xdim(AMP_OP_cat, dim, c->nin, in);
  if (lent) amp__block_free(lent);
  return amp__ret(c, 0, out);
}

/* One dimension after the other, seen as outer x 1 x inner and the 1 repeated. */
int amp__comp_repeat(amp_call *c) {
  amp_tensor *t = c->in[0];
  int n = (int)c->a[0].i, lead = n - t->ndim;
  int64_t size[AMP_MAX_DIM], whole[AMP_MAX_DIM] = { 0 }, outer = 1, inner = 1;
  int rc;
  if (lead < 0)
    return amp__fail(AMP_E_ARGUMENT, "%d repeats are fewer than the tensor's %d dimensions", n, t->ndim);
  for (int i = 0; i < n; i++) {
    size[i] = i < lead ? 1 : t->size[i - lead];
    outer *= size[i];
    if (c->a[1 + i].i < 0) return amp__fail(AMP_E_ARGUMENT, "repeats %s: a count is negative", amp__shape_str(n, &c->a[1].i));
    if (__builtin_mul_overflow(size[i], c->a[1 + i].i, &whole[i]))
      return amp__fail(AMP_E_SHAPE, "repeats %s make the tensor too large", amp__shape_str(n, &c->a[1].i));
  }
  if ((rc = amp__check_size(n, whole, t->dtype, NULL)) < 0) return rc;
  for (int i = n - 1; i >= 0 && t; i--) {
    int64_t times = c->a[1 + i].i;
    outer = size[i] ? outer / size[i] : outer;
    inner *= size[i];
    if (times != 1) {
      int64_t one[3] = { 1, 1, inner }, many[3] = { 1, times, inner };
      one[0] = many[0] = amp__count(i, size);
      if (__builtin_mul_overflow(size[i], times, &size[i]) || __builtin_mul_overflow(inner, times, &inner))
        return amp__fail(AMP_E_SHAPE, "repeats %s make the tensor too large", amp__shape_str(n, &c->a[1].i));
      t = amp__xcontiguous(amp__xexpand(amp__xview(t, 3, one), 3, many));
    }
  }
  t = amp__xview(t, n, size);
  if (t == c->in[0]) {
    amp_sl s = amp__sl();
    amp__sl_i(&s, 1);
    t = amp__x(AMP_OP_clone, &s, 1, &t);
  }
  return amp__ret(c, 0, t);
}

int amp__comp_masked_select(amp_call *c) {
  amp_tensor *t = c->in[0], *m = c->in[1];
  int64_t size[AMP_MAX_DIM], n;
  int ndim, rc;
  if (m->dtype != AMP_BOOL)
    return amp__fail_arg(AMP_E_DTYPE, 2, "mask has dtype %s, expected bool", amp_dtype_name(m->dtype));
  if ((rc = amp__broadcast(c, 2, &ndim, size)) < 0) return rc;
  n = amp__count(ndim, size);
  t = amp__xview(amp__xexpand(t, ndim, size), 1, &n);
  m = amp__xview(amp__xexpand(m, ndim, size), 1, &n);
  amp_tensor *at = X1(nonzero, m);
  if (!t || !at) return amp__err();
  amp_tensor *in[2] = { t, amp__xview(at, 1, &at->numel) };
  return amp__ret(c, 0, amp__xdim(AMP_OP_index_select, 0, 2, in));
}
