/*
** amp_comp_embedding.c: embedding_bag, rows of a table summed by bags. A bag is a
** row of a matrix of indices, or a run of a vector of them that begins at an
** offset; runs are told apart by a vector that says for each index which bag it
** is in. The row padding_idx takes no part, as if its indices were not there.
** Sums are the row embedding_sum's, whose derivative stands here too.
*/
#include <math.h>
#include "amp_bwd.h"

#define SHAPE_OF(t) amp__shape_str((t)->ndim, (t)->size)

enum { SUM, MEAN, MAX };
enum { MODE, PADDING, LAST }; /* slots */

static int check(const amp_call *c) {
  const amp_tensor *x = c->in[0], *w = c->in[1], *at = c->in[2], *s = c->in[3];
  if (!amp__is_int(x->dtype)) return amp__fail_arg(AMP_E_DTYPE, 1, "input has dtype %s, expected an integer dtype: t:long() converts", amp_dtype_name(x->dtype));
  if (!amp__is_float(w->dtype)) return amp__fail_arg(AMP_E_DTYPE, 2, "weight has dtype %s, expected a float dtype", amp_dtype_name(w->dtype));
  if (w->ndim != 2) return amp__fail_arg(AMP_E_SHAPE, 2, "weight has shape %s, expected a matrix (embeddings x size)", SHAPE_OF(w));
  if (x->ndim == 2 && at) return amp__fail_arg(AMP_E_ARGUMENT, 3, "offsets (%s) are for a vector of indices; input has shape %s, a bag a row", SHAPE_OF(at),
                                               SHAPE_OF(x));
  if (x->ndim == 1 && !at) return amp__fail_arg(AMP_E_ARGUMENT, 3, "input has shape %s; a vector of indices wants offsets, which say where bags start",
                                                SHAPE_OF(x));
  if (x->ndim != 1 && x->ndim != 2) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected a vector or a matrix of indices", SHAPE_OF(x));
  if (at && !amp__is_int(at->dtype)) return amp__fail_arg(AMP_E_DTYPE, 3, "offsets have dtype %s, expected an integer dtype: t:long() converts", amp_dtype_name(at->dtype));
  if (at && (at->ndim != 1 || (c->a[LAST].i && at->size[0] == 0))) return amp__fail_arg(AMP_E_SHAPE, 3, "offsets have shape %s, expected a vector%s",
                                                                                        SHAPE_OF(at), c->a[LAST].i ? " with at least the end" : "");
  if (!s) return 0;
  if (c->a[MODE].i != SUM) return amp__fail_arg(AMP_E_ARGUMENT, 4, "per_sample_weights are for mode 'sum', got '%s'", c->a[MODE].i == MEAN ? "mean" : "max");
  if (s->dtype != w->dtype) return amp__fail_arg(AMP_E_DTYPE, 4, "weight is %s and per_sample_weights %s; cast one of them", amp_dtype_name(w->dtype),
                                                 amp_dtype_name(s->dtype));
  return amp__same_size(x, s) ? 0 : amp__fail_arg(AMP_E_SHAPE, 4, "per_sample_weights have shape %s, expected input's %s", SHAPE_OF(s), SHAPE_OF(x));
}

/* Offsets rise from 1 to at most one past the end. Those on another device are trusted: nobody waits for them. */
static int check_offsets(amp_tensor *at, int64_t n) {
  if (at->device != AMP_CPU) return 0;
  amp_tensor *t = amp__on_cpu(at);
  int64_t before = 1;
  int rc = 0;
  if (!t) return amp__err();
  for (int64_t i = 0; i < t->size[0] && rc == 0; i++) {
    int64_t v = (int64_t)amp__element(t, i * t->stride[0]);
    if (i == 0 && v != 1) rc = amp__fail_arg(AMP_E_INDEX, 3, "the first offset is %lld; the first bag starts at 1", (long long)v);
    else if (v < before || v > n + 1)
      rc = amp__fail_arg(AMP_E_INDEX, 3, "offset %lld is %lld; offsets don't fall (the one before is %lld), and the last place is %lld", (long long)(i + 1),
                         (long long)v, (long long)before, (long long)n);
    before = v;
  }
  amp__free(t);
  return rc;
}

/* For each of n indices the number of its bag, from 1 */
static amp_tensor *bags(amp_tensor *at, int64_t n) {
  int64_t one = at->size[0], whole = n + 1;
  amp_tensor *zeros = amp__xfull(0, AMP_INT64, at->device, at->device_index, 1, &whole), *ones = amp__xfull(1, AMP_INT64, at->device, at->device_index, 1, &one);
  amp_tensor *in[3] = { zeros, at, ones };
  amp_tensor *starts = amp__xdim(AMP_OP_index_add, 0, 3, in);
  return amp__xnarrow(amp__xdim(AMP_OP_cumsum, 0, 1, &starts), 0, 0, n);
}

/* Sums by bag of w's rows; a column of ones counts. */
static amp_tensor *sums(amp_tensor *index, amp_tensor *w, amp_tensor *bag, amp_tensor *scale, int64_t count, int64_t pad) {
  amp_tensor *in[4] = { index, w, bag, scale };
  amp_sl s = amp__sl();
  amp__sl_i(&s, count);
  amp__sl_i(&s, pad);
  return amp__x(AMP_OP_embedding_sum, &s, 4, in);
}

static amp_tensor *means(amp_tensor *index, amp_tensor *w, amp_tensor *bag, int64_t count, int64_t each, int64_t pad) {
  amp_tensor *y = sums(index, w, bag, NULL, count, pad);
  if (!y) return NULL;
  if (!bag && pad == AMP_NONE) return each > 1 ? XN(div, y, (double)each) : y;
  int64_t column[2] = { w->size[0], 1 };
  amp_tensor *n = sums(index, amp__xfull(1, y->dtype, w->device, w->device_index, 2, column), bag, NULL, count, pad);
  return X2(div, y, X2(maximum, n, amp__xnum(1)));
}

/* Rows of padding are as small as can be; so is an empty bag, which becomes 0. */
static amp_tensor *maxima(amp_tensor *index, amp_tensor *w, amp_tensor *bag, int64_t count, int64_t each, int64_t pad) {
  int64_t n = index->size[0], d = w->size[1], cube[3] = { count, each, d }, flat[2] = { n, d }, size[2] = { count, d }, dim = 2;
  int mid = 1;
  amp_tensor *in[2] = { index, w }, *rows = amp__x(AMP_OP_embedding, NULL, 2, in), *y;
  if (pad != AMP_NONE) rows = amp__xwhere(amp__xunsqueeze(XN(ne, index, (double)pad), 1), rows, amp__xnum(-INFINITY));
  if (!rows) return NULL;
  amp_sl s = amp__sl();
  if (bag) {
    amp_tensor *three[3] = { amp__xfull(-INFINITY, w->dtype, w->device, w->device_index, 2, size), amp__xexpand(amp__xunsqueeze(bag, 1), 2, flat), rows };
    amp__sl_i(&s, 1);
    amp__sl_i(&s, 3); /* amax */
    amp__sl_i(&s, 1);
    y = amp__x(AMP_OP_scatter_reduce, &s, 3, three);
  } else {
    rows = amp__xview(rows, 3, cube);
    if (each == 0) return amp__xsum(rows, 1, &mid, false);
    amp__sl_list(&s, 1, &dim);
    amp__sl_i(&s, 0);
    y = amp__x(AMP_OP_amax, &s, 1, &rows);
  }
  return y ? amp__xfill(XN(eq, amp__xdetach(y), -INFINITY), y, 0) : NULL;
}

int amp__comp_embedding_bag(amp_call *c) {
  amp_tensor *x = c->in[0], *w = c->in[1], *at = c->in[2], *scale = c->in[3], *bag = NULL, *y;
  int rc = check(c);
  int64_t pad = c->a[PADDING].i, mode = c->a[MODE].i, n = x->numel;
  if (rc < 0 || (at && (rc = check_offsets(at, n)) < 0)) return rc;
  int64_t nbag = at ? at->size[0] - (c->a[LAST].i ? 1 : 0) : x->size[0], each = at ? 1 : x->size[1];
  if (pad != AMP_NONE && (pad == 0 || pad > w->size[0] || pad < -w->size[0]))
    return amp__fail(AMP_E_INDEX, "padding_idx %lld is out of range for %lld rows", (long long)pad, (long long)w->size[0]);
  if (pad != AMP_NONE && pad < 0) pad = w->size[0] + pad + 1;
  bool more = at && c->a[LAST].i && at->device != AMP_CPU; /* nobody here knows the end: what comes after it gets a bag too, dropped below */
  if (at && c->a[LAST].i && !more) { /* the end: what comes after it is in no bag */
    n = (int64_t)amp__element(at, nbag * at->stride[0]) - 1;
    OR_FAIL(x = amp__xnarrow(x, 0, 0, n));
    if (scale) OR_FAIL(scale = amp__xnarrow(scale, 0, 0, n));
    OR_FAIL(at = amp__xnarrow(at, 0, 0, nbag));
  }
  x = amp__xview(x, 1, &n);
  if (scale) scale = amp__xview(scale, 1, &n);
  if (!x || (c->in[3] && !scale)) return amp__err();
  if (at) OR_FAIL(bag = bags(at, n));
  nbag += more;
  y = mode == SUM ? sums(x, w, bag, scale, nbag, pad) : mode == MEAN ? means(x, w, bag, nbag, each, pad) : maxima(x, w, bag, nbag, each, pad);
  if (more && y) y = amp__xnarrow(y, 0, 0, nbag - 1);
  return amp__ret(c, 0, amp__xcast(y, w->dtype));
}

/* -- embedding_sum --------------------------------------------------------------------- */

/* out[bag] += scale * weight[index]: the gradient of a row is that of its bag */
int amp__bwd_embedding_sum(amp_bwd *b) {
  amp_tensor *g = G(b), *index = IN(b, 0), *w = IN(b, 1), *bag = NULL, *scale = NULL, *each;
  const amp_shape *h = SHAPE(b, 0);
  int64_t n = amp__count(h->ndim, h->size), pad = b->a[1].i;
  int rc = 0, last = 1;
  OR_FAIL(index && w);
  if (amp__has(b, 2)) OR_FAIL(bag = IN(b, 2));
  if (amp__has(b, 3)) OR_FAIL(scale = IN(b, 3));
  OR_FAIL(index = amp__xview(index, 1, &n));
  if (bag) {
    amp_tensor *in[2] = { g, amp__xview(bag, 1, &n) };
    each = amp__xdim(AMP_OP_index_select, 0, 2, in);
  } else {
    int64_t count = g->size[0], cube[3] = { count, count ? n / count : 0, g->size[1] }, flat[2] = { n, g->size[1] };
    each = amp__xview(amp__xexpand(amp__xunsqueeze(g, 1), 3, cube), 2, flat);
  }
  if (pad != AMP_NONE) each = amp__xmask_not(amp__xunsqueeze(XN(eq, index, (double)pad), 1), each);
  OR_FAIL(each);
  if (NEED(b, 1)) {
    amp_tensor *in[3] = { amp__xzeros_at(b, 1, each->dtype), index, scale ? X2(mul, each, amp__xunsqueeze(amp__xcast(amp__xview(scale, 1, &n), each->dtype), 1)) : each };
    rc = GIN(b, 1, amp__xto(b, 1, amp__xdim(AMP_OP_index_add, 0, 3, in)));
  }
  if (rc == 0 && NEED(b, 3)) {
    amp_tensor *in[2] = { index, w }, *rows = amp__xcast(amp__x(AMP_OP_embedding, NULL, 2, in), each->dtype);
    amp_tensor *t = amp__xsum(X2(mul, rows, each), 1, &last, false);
    rc = GIN(b, 3, amp__xto(b, 3, t ? amp__xview(t, SHAPE(b, 3)->ndim, SHAPE(b, 3)->size) : NULL));
  }
  return rc;
}
