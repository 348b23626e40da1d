/*
** amp_comp_index.c: composites that rearrange or repeat: stacks, roll, rot90,
** movedim, repeat_interleave, diagonals, take. Dimensions arrive counting from 1
** and are made to count from 0 at the start of each.
*/
#include "amp_bwd.h"
#include "amp_infer.h"

/* -- Stacks ------------------------------------------------------------------------------- */

/* t as vstack (rank 2) or dstack (3) see it: with that many dimensions; hstack: 1 */
static amp_tensor *at_least(amp_tensor *t, int rank) {
  int64_t size[3] = { 1, 1, 1 };
  if (t->ndim >= rank) return t;
  if (rank == 3 && t->ndim == 2) { size[0] = t->size[0]; size[1] = t->size[1]; }
  else if (t->ndim == 1) size[rank == 1 ? 0 : 1] = t->size[0];
  return amp__xview(t, rank, size);
}

static int joined(amp_call *c, int rank, int dim) {
  amp_tensor *few[AMP_MAX_IN], **in = few, *out = NULL;
  amp_block *lent = NULL;
  int i;
  if (c->nin == 0) return amp__fail(AMP_E_ARGUMENT, "an empty list of tensors");
  if (c->nin > AMP_MAX_IN) {
    if ((lent = amp__block_new(AMP_CPU, 0, sizeof *in * (size_t)c->nin)) == NULL) return amp__err();
    in = lent->data;
  }
  for (i = 0; i < c->nin; i++)
    if ((in[i] = at_least(c->in[i], rank)) == NULL) break;
  if (i == c->nin) out = amp__xdim(AMP_OP_cat, dim >= 0 ? dim : in[0]->ndim > 1, c->nin, in);
  if (lent) amp__block_free(lent);
  return amp__ret(c, 0, out);
}

int amp__comp_hstack(amp_call *c) { return joined(c, 1, -1); }
int amp__comp_vstack(amp_call *c) { return joined(c, 2, 0); }
int amp__comp_dstack(amp_call *c) { return joined(c, 3, 2); }

/* -- Moving ------------------------------------------------------------------------------- */

static amp_tensor *copy_of(amp_tensor *t) { return X1(clone, t); }

static amp_tensor *rolled(amp_tensor *t, int64_t shift, int dim) {
  int64_t n = t ? t->size[dim] : 0;
  if (n == 0 || shift % n == 0) return t;
  shift = (shift % n + n) % n;
  amp_tensor *in[2] = { amp__xnarrow(t, dim, n - shift, shift), amp__xnarrow(t, dim, 0, n - shift) };
  return amp__xdim(AMP_OP_cat, dim, 2, in);
}

int amp__comp_roll(amp_call *c) {
  enum { SHIFTS, DIMS = 9 };
  amp_tensor *t = c->in[0];
  int64_t n = c->a[SHIFTS].i;
  if (c->a[DIMS].i == AMP_NONE || c->a[DIMS].i == 0) {
    if (n != 1) return amp__fail(AMP_E_ARGUMENT, "%lld shifts are given without dims; without dims one is expected", LL(n));
    amp_tensor *flat = rolled(amp__xview(t, 1, &t->numel), c->a[SHIFTS + 1].i, 0);
    t = flat ? amp__xview(flat, t->ndim, t->size) : NULL;
  } else {
    if (n != c->a[DIMS].i) return amp__fail(AMP_E_ARGUMENT, "%lld shifts are given for %lld dimensions", LL(n), LL(c->a[DIMS].i));
    for (int i = 1; i <= n; i++) {
      int rc = amp__row_dim(&c->a[DIMS + i], t->ndim, "dimension");
      if (rc < 0) return rc;
    }
    for (int i = 1; i <= n && t; i++) t = rolled(t, c->a[SHIFTS + i].i, (int)c->a[DIMS + i].i);
  }
  return amp__ret(c, 0, t && t->storage == c->in[0]->storage ? copy_of(t) : t);
}

int amp__comp_rot90(amp_call *c) {
  amp_tensor *t = c->in[0];
  int k = (int)((c->a[0].i % 4 + 4) % 4), d0 = 0, d1 = 1, rc;
  if (c->a[1].i != AMP_NONE && c->a[1].i != 0) {
    for (int i = 1; i <= c->a[1].i; i++)
      if ((rc = amp__norm_dim(&c->a[1 + i], t->ndim, "dimension")) < 0) return rc;
    if (c->a[1].i != 2) return amp__fail(AMP_E_ARGUMENT, "%lld dims are given; a turn has two", LL(c->a[1].i));
    d0 = (int)c->a[2].i;
    d1 = (int)c->a[3].i;
    if (d0 == d1) return amp__fail(AMP_E_ARGUMENT, "dimension %d is given twice", d0 + 1);
  } else if (t->ndim < 2) return amp__fail(AMP_E_SHAPE, "two dimensions or more are expected, got shape %s", SHAPE_OF(t));
  if (k == 0) t = copy_of(t);
  else if (k == 1) t = amp__xtranspose(amp__xflip(t, d1), d0, d1);
  else if (k == 2) t = amp__xflip(amp__xflip(t, d0), d1);
  else t = amp__xtranspose(amp__xflip(t, d0), d0, d1);
  return amp__ret(c, 0, t);
}

int amp__comp_flipud(amp_call *c) {
  if (c->in[0]->ndim < 1) return amp__fail(AMP_E_SHAPE, "a scalar has no dimension to reverse");
  return amp__ret(c, 0, amp__xflip(c->in[0], 0));
}

int amp__comp_fliplr(amp_call *c) {
  if (c->in[0]->ndim < 2) return amp__fail(AMP_E_SHAPE, "two dimensions or more are expected, got shape %s", SHAPE_OF(c->in[0]));
  return amp__ret(c, 0, amp__xflip(c->in[0], 1));
}

int amp__comp_movedim(amp_call *c) {
  amp_tensor *t = c->in[0];
  amp_slot *from = c->a, *to = c->a + 9;
  uint32_t taken, filled;
  int64_t order[AMP_MAX_DIM];
  int rc;
  if (from->i == AMP_NONE || to->i == AMP_NONE) return amp__fail(AMP_E_ARGUMENT, "source and destination must be given");
  if (from->i != to->i) return amp__fail(AMP_E_ARGUMENT, "%lld source dimensions are given for %lld destinations", LL(from->i), LL(to->i));
  if ((rc = amp__norm_dims(from, t->ndim, &taken)) < 0 || (rc = amp__norm_dims(to, t->ndim, &filled)) < 0) return rc;
  for (int i = 1; i <= from->i; i++) order[to[i].i] = from[i].i + 1;
  for (int d = 0, next = 0; d < t->ndim; d++) {
    if (filled >> d & 1) continue;
    while (taken >> next & 1) next++;
    order[d] = ++next;
  }
  amp_sl s = amp__sl();
  amp__sl_list(&s, t->ndim, order);
  return amp__ret(c, 0, amp__x(AMP_OP_permute, &s, 1, &t));
}

/* -- Repeating --------------------------------------------------------------------------------- */

/* Indices (from 1) of n elements, each as often as counts (n of them, or one for all) says */
static amp_tensor *repeated_indices(amp_tensor *counts, int64_t n) {
  amp_tensor *given = amp__on_cpu(counts), *t = NULL;
  int64_t total = 0;
  if (!given) return NULL;
  amp__S->host_waits += counts->device != AMP_CPU;
  const int64_t step = given->ndim && given->numel > 1 ? given->stride[0] : 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t m = (int64_t)amp__element(given, i * step);
    if (m < 0) { amp__fail(AMP_E_VALUE, "repeats: element %lld is %lld; a count must not be negative", LL(i + 1), LL(m)); goto out; }
    if (__builtin_add_overflow(total, m, &total)) { amp__fail(AMP_E_SHAPE, "repeats make the tensor too large"); goto out; }
  }
  if (amp__check_size(1, &total, AMP_INT64, NULL) < 0 || (t = amp__tensor_make(AMP_INT64, AMP_CPU, 0, 1, &total)) == NULL) goto out;
  int64_t *p = AMP_DATA(int64_t, t);
  for (int64_t i = 0; i < n; i++)
    for (int64_t m = (int64_t)amp__element(given, i * step); m > 0; m--) *p++ = i + 1;
out:
  amp__free(given);
  return amp__pooled(t);
}

int amp__comp_repeat_interleave(amp_call *c) {
  amp_tensor *t = c->in[0], *r = c->in[1];
  int64_t size[AMP_MAX_DIM];
  int dim = 0, rc;
  if (c->a[0].i == AMP_NONE) t = amp__xview(t, 1, &t->numel);
  else if ((rc = amp__norm_dim(&c->a[0], t->ndim, "dim")) < 0) return rc;
  else dim = (int)c->a[0].i;
  if (!t) return amp__err();
  if (amp__is_number(r)) {
    double times = amp__element(r, 0);
    if (!(times >= 0) || times != (double)(int64_t)times) return amp__fail(AMP_E_VALUE, "repeats is %.14g, expected an integer of 0 or more", times);
    if (t->ndim == AMP_MAX_DIM) return amp__fail(AMP_E_SHAPE, "a number of repeats needs one more dimension than %d", AMP_MAX_DIM);
    for (int d = 0; d <= t->ndim; d++) size[d] = d <= dim ? t->size[d] : d == dim + 1 ? (int64_t)times : t->size[d - 1];
    if ((rc = amp__check_size(t->ndim + 1, size, t->dtype, NULL)) < 0) return rc;
    amp_tensor *v = amp__xcontiguous(amp__xexpand(amp__xunsqueeze(t, dim + 1), t->ndim + 1, size));
    for (int d = 0; d < t->ndim; d++) size[d] = d == dim ? t->size[d] * (int64_t)times : t->size[d];
    v = amp__xview(v, t->ndim, size);
    return amp__ret(c, 0, v && v->storage == c->in[0]->storage ? copy_of(v) : v);
  }
  if ((rc = amp__want_index(r, 2, "repeats")) < 0) return rc;
  int64_t n = t->size[dim];
  if (r->ndim > 1 || (r->numel != 1 && r->numel != n))
    return amp__fail_arg(AMP_E_SHAPE, 2, "repeats has shape %s, expected a vector of %lld counts, one for each element of dimension %d", SHAPE_OF(r), LL(n), dim + 1);
  amp_tensor *in[2] = { t, repeated_indices(r, n) };
  if (in[1] && t->device != AMP_CPU) {
    amp_sl s = amp__sl();
    amp__sl_i(&s, t->device * 256 + t->device_index);
    in[1] = amp__x(AMP_OP_to_device, &s, 1, &in[1]);
  }
  return amp__ret(c, 0, amp__xdim(AMP_OP_index_select, dim, 2, in));
}

int amp__comp_diag(amp_call *c) {
  amp_tensor *t = c->in[0];
  amp_sl s = amp__sl();
  if (t->ndim < 1 || t->ndim > 2) return amp__fail(AMP_E_SHAPE, "a vector or a matrix is expected, got shape %s; use diagonal or diag_embed", SHAPE_OF(t));
  amp__sl_i(&s, c->a[0].i);
  amp__sl_i(&s, 1);
  amp__sl_i(&s, 2);
  if (t->ndim == 1) return amp__ret(c, 0, amp__x(AMP_OP_diag_embed, &s, 1, &t));
  return amp__ret(c, 0, copy_of(amp__x(AMP_OP_diagonal, &s, 1, &t)));
}

/* -- Taking -------------------------------------------------------------------------------------- */

int amp__comp_take(amp_call *c) {
  amp_tensor *t = c->in[0], *index = c->in[1];
  int rc = amp__want_index(index, 2, "index");
  if (rc < 0) return rc;
  if (t->numel == 0 && index->numel > 0) return amp__fail(AMP_E_INDEX, "input has shape %s: there is nothing to take %lld elements from", SHAPE_OF(t), LL(index->numel));
  amp_tensor *in[2] = { amp__xview(t, 1, &t->numel), amp__xview(index, 1, &index->numel) };
  t = amp__xdim(AMP_OP_index_select, 0, 2, in);
  return amp__ret(c, 0, amp__xview(t, index->ndim, index->size));
}

int amp__comp_take_along_dim(amp_call *c) {
  amp_tensor *t = c->in[0], *index = c->in[1];
  int64_t ts[AMP_MAX_DIM], xs[AMP_MAX_DIM];
  int rc = amp__want_index(index, 2, "indices"), dim = 0;
  if (rc < 0) return rc;
  if (c->a[0].i == AMP_NONE) {
    t = amp__xview(t, 1, &t->numel);
    index = amp__xview(index, 1, &index->numel);
  } else {
    if ((rc = amp__row_dim(&c->a[0], t->ndim, "dim")) < 0) return rc;
    dim = (int)c->a[0].i;
    if (t->ndim != index->ndim)
      return amp__fail(AMP_E_SHAPE, "indices has shape %s and input %s: the numbers of dimensions differ", SHAPE_OF(index), SHAPE_OF(t));
    for (int d = 0; d < t->ndim; d++) {
      ts[d] = t->size[d];
      xs[d] = index->size[d];
      if (d == dim || ts[d] == xs[d]) continue;
      if (ts[d] == 1) ts[d] = xs[d];
      else if (xs[d] == 1) xs[d] = ts[d];
      else
        return amp__fail(AMP_E_SHAPE, "indices has shape %s and input %s: dimension %d is %lld and %lld", SHAPE_OF(index), SHAPE_OF(t), d + 1, LL(xs[d]), LL(ts[d]));
    }
    t = amp__xexpand(t, t->ndim, ts);
    index = amp__xexpand(index, index->ndim, xs);
  }
  amp_tensor *in[2] = { t, index };
  return amp__ret(c, 0, amp__xdim(AMP_OP_gather, dim, 2, in));
}
