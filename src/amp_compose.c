/*
** amp_compose.c: ops as expressions. Each helper dispatches one op and leaves
** the result in the state's autorelease pool, a stack of counted tensors; a
** mark is its height. A NULL operand means that an error is set already and
** passes through, so formulas need one test at the end.
**
** Owns: the pool's memory. It knows no dtype rules and no devices.
*/
#include <stdlib.h>
#include "amp_bwd.h"

/* -- The pool --------------------------------------------------------------- */

int amp__pool_mark(void) { return amp__S->priv->npool; }

void amp__pool_release(int mark) {
  struct amp_state_private *p = amp__S->priv;
  while (p->npool > mark) amp__free(p->pool[--p->npool]);
}

amp_tensor *amp__pooled(amp_tensor *t) {
  struct amp_state_private *p = amp__S->priv;
  if (!t) {
    p->lost += amp__S->err.code == AMP_E_MEMORY;
    return NULL;
  }
  if (amp_unlikely(p->npool == p->cap_pool)) {
    int cap = p->cap_pool ? 2 * p->cap_pool : 64;
    amp_tensor **pool = realloc(p->pool, sizeof *pool * cap);
    if (!pool) {
      amp__free(t);
      amp__nomem(sizeof *pool * cap);
      return NULL;
    }
    p->pool = pool;
    p->cap_pool = cap;
  }
  return p->pool[p->npool++] = t;
}

amp_tensor *amp__keep(amp_tensor *t) {
  if (t) amp__retain(t);
  return t;
}

int amp__err(void) {
  int code = amp__S->err.code;
  return code < 0 ? code : amp__fail(AMP_E_INTERNAL, "a formula failed without a message");
}

/* An argument that may be absent is NULL when making it failed, too: no formula can tell, but their caller can. */
int amp__whole(uint32_t lost, int rc) {
  if (amp_likely(rc < 0 || amp__S->priv->lost == lost)) return rc;
  return amp__S->err.code == AMP_E_MEMORY ? AMP_E_MEMORY : amp__fail(AMP_E_MEMORY, "no memory for a part of it");
}

/* -- Calls ------------------------------------------------------------------ */

int amp__xs(int op, const amp_sl *a, int n, amp_tensor *const *in, amp_tensor **out) {
  const amp_op_desc *d = &amp__ops[op];
  int fixed = d->info.flags & AMP_F_LIST ? d->info.nin - 1 : d->info.nin;
  for (int i = 0; i < AMP_MAX_OUT; i++) out[i] = NULL;
  for (int i = 0; i < n; i++)
    if (!in[i] && (i >= fixed || (d->required >> i & 1))) return amp__err();
  if (a && a->n != d->info.nslot)
    return amp__fail(AMP_E_INTERNAL, "%s wants %d attribute slots, a formula gave %d", d->info.name, d->info.nslot, a->n);
  int rc = amp__dispatch(op, 0, in, n, out, a ? a->v : NULL);
  if (rc < 0) return rc;
  for (int i = 0; i < AMP_MAX_OUT; i++)
    if (out[i] && !amp__pooled(out[i])) {
      while (++i < AMP_MAX_OUT) amp__free(out[i]);
      return amp__err();
    }
  return 0;
}

amp_tensor *amp__x(int op, const amp_sl *a, int n, amp_tensor *const *in) {
  amp_tensor *out[AMP_MAX_OUT];
  return amp__xs(op, a, n, in, out) < 0 ? NULL : out[0];
}

amp_tensor *amp__x1(int op, amp_tensor *a) { return amp__x(op, NULL, 1, &a); }

amp_tensor *amp__x2(int op, amp_tensor *a, amp_tensor *b) {
  amp_tensor *in[2] = { a, b };
  return amp__x(op, NULL, 2, in);
}

amp_tensor *amp__xn(int op, amp_tensor *a, double n) { return a ? amp__x2(op, a, amp__xnum(n)) : NULL; }
amp_tensor *amp__nx(int op, double n, amp_tensor *a) { return a ? amp__x2(op, amp__xnum(n), a) : NULL; }

/* -- Ops with attributes ---------------------------------------------------- */

amp_tensor *amp__xnum(double v) { return amp__pooled(amp__number(v)); }

amp_tensor *amp__xcast(amp_tensor *a, int dtype) {
  if (!a || a->dtype == dtype) return a;
  amp_sl s = amp__sl();
  amp__sl_i(&s, dtype);
  return amp__x(AMP_OP_cast, &s, 1, &a);
}

static amp_tensor *reduce(int op, amp_tensor *a, int ndims, const int *dims, bool keepdim, int64_t dtype) {
  if (!a) return NULL;
  amp_sl s = amp__sl();
  if (ndims < 0) amp__sl_nolist(&s);
  else {
    int64_t list[AMP_MAX_DIM];
    if (ndims == 0) return a;
    for (int i = 0; i < ndims; i++) list[i] = dims[i] < 0 ? dims[i] : dims[i] + 1;
    amp__sl_list(&s, ndims, list);
  }
  amp__sl_i(&s, keepdim);
  amp__sl_i(&s, dtype);
  return amp__x(op, &s, 1, &a);
}

amp_tensor *amp__xsum(amp_tensor *a, int ndims, const int *dims, bool keepdim) {
  return reduce(AMP_OP_sum, a, ndims, dims, keepdim, a && amp__is_int(a->dtype) ? a->dtype : AMP_NONE);
}

amp_tensor *amp__xmean(amp_tensor *a, int ndims, const int *dims, bool keepdim) {
  return reduce(AMP_OP_mean, a, ndims, dims, keepdim, AMP_NONE);
}

static amp_tensor *shaped(int op, amp_tensor *a, int ndim, const int64_t *size) {
  amp_sl s = amp__sl();
  amp__sl_list(&s, ndim, size);
  return amp__x(op, &s, 1, &a);
}

static bool has_size(const amp_tensor *a, int ndim, const int64_t *size) {
  return a->ndim == ndim && memcmp(a->size, size, sizeof *size * ndim) == 0;
}

amp_tensor *amp__xview(amp_tensor *a, int ndim, const int64_t *size) {
  if (!a || has_size(a, ndim, size)) return a;
  int64_t stride[AMP_MAX_DIM];
  if (!amp__view_strides(a, ndim, size, stride)) a = amp__xcontiguous(a);
  return shaped(AMP_OP_view, a, ndim, size);
}

amp_tensor *amp__xexpand(amp_tensor *a, int ndim, const int64_t *size) {
  if (!a || has_size(a, ndim, size)) return a;
  return shaped(AMP_OP_expand, a, ndim, size);
}

amp_tensor *amp__xtranspose(amp_tensor *a, int d0, int d1) {
  amp_sl s = amp__sl();
  amp__sl_dim(&s, d0);
  amp__sl_dim(&s, d1);
  return amp__x(AMP_OP_transpose, &s, 1, &a);
}

amp_tensor *amp__xfull(double v, int dtype, int device, int index, int ndim, const int64_t *size) {
  amp_sl s = amp__sl();
  amp__sl_list(&s, ndim, size);
  amp__sl_f(&s, v);
  amp__sl_i(&s, dtype);
  amp__sl_i(&s, device * 256 + index);
  return amp__x(AMP_OP_full, &s, 0, NULL);
}

amp_tensor *amp__xto(amp_bwd *b, int i, amp_tensor *g) {
  const amp_shape *h = SHAPE(b, i);
  if (!g) return NULL;
  if (!has_size(g, h->ndim, h->size)) g = shaped(AMP_OP_sum_to, g, h->ndim, h->size);
  g = amp__xcast(g, h->dtype);
  if (g && (g->device != h->device || g->device_index != h->device_index)) {
    amp_sl s = amp__sl();
    amp__sl_i(&s, h->device * 256 + h->device_index);
    g = amp__x(AMP_OP_to_device, &s, 1, &g);
  }
  return g;
}

/* -- Words of derivatives (amp_bwd.h) --------------------------------------- */

amp_tensor *amp__xwhere(amp_tensor *cond, amp_tensor *a, amp_tensor *b) {
  amp_tensor *in[3] = { cond, a, b };
  return amp__x(AMP_OP_where, NULL, 3, in);
}

amp_tensor *amp__xmask(amp_tensor *cond, amp_tensor *a) { return a ? amp__xwhere(cond, a, amp__xnum(0)) : NULL; }
amp_tensor *amp__xmask_not(amp_tensor *cond, amp_tensor *a) { return a ? amp__xwhere(cond, amp__xnum(0), a) : NULL; }
amp_tensor *amp__xfill(amp_tensor *cond, amp_tensor *a, double v) { return a ? amp__xwhere(cond, amp__xnum(v), a) : NULL; }

amp_tensor *amp__xzeros_at(amp_bwd *b, int i, int dtype) {
  const amp_shape *h = SHAPE(b, i);
  return amp__xfull(0, dtype, h->device, h->device_index, h->ndim, h->size);
}

amp_tensor *amp__xzeros(amp_bwd *b, int i) { return amp__xzeros_at(b, i, SHAPE(b, i)->dtype); }

amp_tensor *amp__xdetach(amp_tensor *t) { return t ? amp__pooled(amp__tensor_alias(t)) : NULL; }

amp_tensor *amp__xdim(int op, int dim, int n, amp_tensor *const *in) {
  const amp_op_desc *d = &amp__ops[op];
  amp_sl s = amp__sl();
  amp__sl_copy(&s, d->defaults, d->info.nslot);
  s.v[0].i = dim < 0 ? dim : dim + 1;
  return amp__x(op, &s, n, in);
}

amp_tensor *amp__xnarrow(amp_tensor *t, int dim, int64_t start, int64_t length) {
  amp_sl s = amp__sl();
  amp__sl_dim(&s, dim);
  amp__sl_i(&s, start + 1);
  amp__sl_i(&s, length);
  return amp__x(AMP_OP_narrow, &s, 1, &t);
}

amp_tensor *amp__xflip(amp_tensor *t, int dim) {
  int64_t list = dim + 1;
  amp_sl s = amp__sl();
  amp__sl_list(&s, 1, &list);
  return amp__x(AMP_OP_flip, &s, 1, &t);
}

amp_tensor *amp__xcontiguous(amp_tensor *t) {
  if (!t || (t->flags & AMP_T_CONTIGUOUS)) return t;
  amp_sl s = amp__sl();
  amp__sl_i(&s, 1);
  return amp__x(AMP_OP_clone, &s, 1, &t);
}

amp_tensor *amp__xunsqueeze(amp_tensor *t, int dim) { return amp__xdim(AMP_OP_unsqueeze, dim, 1, &t); }

amp_tensor *amp__xkept(amp_tensor *t, int ndim, const int64_t *size, uint32_t mask) {
  int64_t kept[AMP_MAX_DIM];
  for (int i = 0; i < ndim; i++) kept[i] = mask >> i & 1 ? 1 : size[i];
  return amp__xview(t, ndim, kept);
}

/* -- A derivative's view of its node ---------------------------------------- */

bool amp__need(amp_bwd *b, int i) { return i < b->nin && (b->node->edge[i].node || b->node->edge[i].leaf); }
bool amp__has(amp_bwd *b, int i) { return i < b->nin && SHAPE(b, i)->dtype != 0xff; }
amp_tensor *amp__bin(amp_bwd *b, int i) { return amp__pooled(amp__saved_get(b->node, i, b->create_graph)); }

int amp__gin(amp_bwd *b, int i, amp_tensor *g) {
  if (!g) return amp__err();
  b->gin[i] = g;
  return 0;
}

int amp__ret(amp_call *c, int i, amp_tensor *t) {
  if (!t) return amp__err();
  c->out[i] = amp__keep(t);
  return 0;
}
