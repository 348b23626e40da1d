/*
** amp_comp_order.c: composites of counting and order: sums without NaN, diff,
** quantiles, unique values, bincount. They stand on sort, nonzero and scatter,
** and what is differentiable in those is here too.
*/
#include <math.h>
#include "amp_bwd.h"
#include "amp_infer.h"

static amp_tensor *clamp(amp_tensor *t, double least) {
  amp_sl s = amp__sl();
  amp__sl_f(&s, least);
  amp__sl_i(&s, AMP_NONE);
  return amp__x(AMP_OP_clamp, &s, 1, &t);
}

/* -- Sums ----------------------------------------------------------------------------------- */

static amp_tensor *without_nan(amp_tensor *t) { return amp__is_float(t->dtype) ? amp__xfill(X1(isnan, t), t, 0) : t; }

static amp_tensor *sum(const amp_slot *dims, int dtype, amp_tensor *t) { /* D and keepdim in 10 slots */
  amp_sl s = amp__sl();
  amp__sl_copy(&s, dims, 10);
  amp__sl_i(&s, dtype);
  return amp__x(AMP_OP_sum, &s, 1, &t);
}

int amp__comp_nansum(amp_call *c) {
  amp_tensor *t = without_nan(c->in[0]);
  amp_sl s = amp__sl();
  amp__sl_copy(&s, c->a, 11);
  return amp__ret(c, 0, amp__x(AMP_OP_sum, &s, 1, &t));
}

int amp__comp_nanmean(amp_call *c) {
  amp_tensor *t = c->in[0];
  int dtype = c->a[10].i == AMP_NONE ? t->dtype : (int)c->a[10].i, acc = amp__acc_dtype(dtype);
  if (!amp__is_float(dtype)) return amp__fail(AMP_E_DTYPE, "a mean has a float dtype, %s was asked for", amp_dtype_name(dtype));
  amp_tensor *n = sum(c->a, acc, X1(logical_not, X1(isnan, t)));
  return amp__ret(c, 0, amp__xcast(X2(div, sum(c->a, acc, without_nan(t)), n), dtype));
}

int amp__comp_aminmax(amp_call *c) {
  amp_sl s = amp__sl();
  if (c->a[0].i == AMP_NONE) amp__sl_nolist(&s);
  else amp__sl_list(&s, 1, &c->a[0].i);
  amp__sl_i(&s, c->a[1].i);
  int rc = amp__ret(c, 0, amp__x(AMP_OP_amin, &s, 1, c->in));
  return rc < 0 ? rc : amp__ret(c, 1, amp__x(AMP_OP_amax, &s, 1, c->in));
}

int amp__comp_diff(amp_call *c) {
  amp_tensor *t = c->in[0], *in[3];
  int64_t n = c->a[0].i;
  int k = 0, rc;
  if (n < 0) return amp__fail(AMP_E_VALUE, "n is %lld, it must not be negative", LL(n));
  if (t->ndim == 0) return amp__fail(AMP_E_SHAPE, "a scalar has no neighbours");
  if ((rc = amp__norm_dim(&c->a[1], t->ndim, "dim")) < 0) return rc;
  int dim = (int)c->a[1].i;
  if (c->in[1]) in[k++] = c->in[1];
  in[k++] = t;
  if (c->in[2]) in[k++] = c->in[2];
  if (n > 0 && k > 1) t = amp__xdim(AMP_OP_cat, dim, k, in);
  if (n == 0) t = X1(alias, t);
  for (; n > 0 && t; n--) {
    int64_t m = t->size[dim];
    if (m == 0) break;
    amp_tensor *next = amp__xnarrow(t, dim, 1, m - 1), *last = amp__xnarrow(t, dim, 0, m - 1);
    t = t->dtype == AMP_BOOL ? X2(ne, next, last) : X2(sub, next, last);
  }
  return amp__ret(c, 0, t);
}

/* -- Quantiles -------------------------------------------------------------------------------- */

/* t with dimension dim as the last one, or back */
static amp_tensor *to_end(amp_tensor *t, int dim, bool back) {
  int64_t order[AMP_MAX_DIM];
  if (!t || dim == t->ndim - 1) return t;
  for (int d = 0; d < t->ndim; d++) {
    int from = d < dim ? d : d == t->ndim - 1 ? dim : d + 1, to = d;
    if (back) { order[from] = to + 1; } else order[to] = from + 1;
  }
  amp_sl s = amp__sl();
  amp__sl_list(&s, t->ndim, order);
  return amp__x(AMP_OP_permute, &s, 1, &t);
}

static int check_q(amp_tensor *q) {
  if (q->ndim > 1) return amp__fail_arg(AMP_E_SHAPE, 2, "q has shape %s, expected a number or a vector", SHAPE_OF(q));
  if (!amp__is_float(q->dtype) && !amp__is_number(q)) return amp__fail_arg(AMP_E_DTYPE, 2, "q has dtype %s, expected a float dtype", amp_dtype_name(q->dtype));
  if (q->device != AMP_CPU) return 0;
  for (int64_t i = 0; i < q->numel; i++) {
    double v = amp__element(q, q->ndim ? i * q->stride[0] : 0);
    if (!(v >= 0 && v <= 1)) return amp__fail_arg(AMP_E_VALUE, 2, "q %.14g (element %lld) must lie in 0..1", v, LL(i + 1));
  }
  return 0;
}

static int quantile(amp_call *c, bool skip_nan) {
  enum { LINEAR, LOWER, HIGHER, MIDPOINT, NEAREST };
  amp_tensor *x = c->in[0], *q = c->in[1];
  bool all = c->a[0].i == AMP_NONE, keepdim = c->a[1].i != 0, one = q->ndim == 0;
  int how = (int)c->a[2].i, rc = check_q(q), rank = x->ndim, dim = 0, acc = amp__acc_dtype(x->dtype);
  if (rc < 0) return rc;
  if (all || rank == 0) x = amp__xview(x, 1, &x->numel);
  if (!all && rank > 0 && (rc = amp__norm_dim(&c->a[0], rank, "dim")) < 0) return rc;
  if (!all && rank > 0) dim = (int)c->a[0].i;
  OR_FAIL(x = to_end(x, dim, false));
  int last = x->ndim - 1;
  int64_t n = x->size[last], m = q->numel, size[AMP_MAX_DIM];
  if (n == 0) return amp__fail(AMP_E_SHAPE, "dimension %d has size 0, there is no value to choose", dim + 1);
  if (!one && x->ndim == AMP_MAX_DIM) return amp__fail(AMP_E_SHAPE, "the result would have more than %d dimensions", AMP_MAX_DIM);
  /* sorted values, and the rank of each quantile among them: index (from 0) is n - 1 at q = 1 */
  int64_t end = last + 1;
  amp_sl s = amp__sl();
  amp__sl_list(&s, 1, &end);
  amp__sl_i(&s, 1);
  amp_tensor *nan = X1(isnan, x), *sorted = amp__xdim(AMP_OP_sort, last, 1, &x), *most, *ranks;
  amp_tensor *ok = X1(logical_not, nan);
  q = amp__is_number(q) ? amp__xfull(amp__element(q, 0), acc, x->device, x->device_index, 0, NULL) : amp__xcast(amp__xdetach(q), acc);
  if (q && (q->device != x->device || q->device_index != x->device_index)) {
    amp_sl at = amp__sl();
    amp__sl_i(&at, x->device * 256 + x->device_index);
    q = amp__x(AMP_OP_to_device, &at, 1, &q);
  }
  q = amp__xview(q, 1, &m);
  if (skip_nan) most = clamp(XN(sub, sum(s.v, acc, ok), 1), 0);
  else most = amp__xfull((double)(n - 1), acc, x->device, x->device_index, 0, NULL);
  ranks = X2(mul, q, most);
  for (int d = 0; d < last; d++) size[d] = x->size[d];
  size[last] = m;
  ranks = amp__xexpand(ranks, x->ndim, size);
  if (how == HIGHER) ranks = X1(ceil, ranks);
  if (how == NEAREST) ranks = X1(round, ranks);
  amp_tensor *low = how == HIGHER || how == NEAREST ? ranks : X1(floor, ranks), *in[2] = { sorted, amp__xcast(XN(add, low, 1), AMP_INT64) };
  amp_tensor *y = amp__xcast(amp__xdim(AMP_OP_gather, last, 2, in), acc);
  if (how == LINEAR || how == MIDPOINT) {
    in[1] = amp__xcast(XN(add, X1(ceil, ranks), 1), AMP_INT64);
    amp_tensor *above = amp__xcast(amp__xdim(AMP_OP_gather, last, 2, in), acc), *w = X2(sub, ranks, low);
    if (how == MIDPOINT) w = XN(mul, X1(ceil, w), 0.5);
    /* weight 0 of infinity is nothing, and from an infinity there is no way up */
    amp_tensor *d = amp__xmask_not(X2(logical_or, XN(eq, w, 0), X1(isinf, y)), X2(sub, above, y));
    y = X2(add, y, X2(mul, w, d));
  }
  if (!skip_nan) {
    amp_sl k = amp__sl();
    amp__sl_copy(&k, s.v, 10);
    y = amp__xfill(amp__x(AMP_OP_any, &k, 1, &nan), y, NAN);
  }
  y = amp__xcast(y, x->dtype);
  if (one) {
    if (all) y = amp__xview(y, keepdim ? rank : 0, (const int64_t[AMP_MAX_DIM]){ 1, 1, 1, 1, 1, 1, 1, 1 });
    else if (rank == 0) y = amp__xview(y, 0, size);
    else y = keepdim ? to_end(y, dim, true) : amp__xdim(AMP_OP_squeeze, last, 1, &y);
  } else {
    if (y && last > 0) { /* the quantiles in front */
      int64_t order[AMP_MAX_DIM] = { last + 1 };
      for (int d = 1; d <= last; d++) order[d] = d;
      amp_sl p = amp__sl();
      amp__sl_list(&p, y->ndim, order);
      y = amp__x(AMP_OP_permute, &p, 1, &y);
    }
    if (keepdim && all) {
      int64_t kept[AMP_MAX_DIM] = { m, 1, 1, 1, 1, 1, 1, 1 };
      if (rank == AMP_MAX_DIM) return amp__fail(AMP_E_SHAPE, "the result would have more than %d dimensions", AMP_MAX_DIM);
      y = amp__xview(y, rank + 1, kept);
    } else if (keepdim && rank > 0) y = amp__xunsqueeze(y, dim + 1);
  }
  return amp__ret(c, 0, y);
}
int amp__comp_quantile(amp_call *c) { return quantile(c, false); }
int amp__comp_nanquantile(amp_call *c) { return quantile(c, true); }

/* -- Unique values ------------------------------------------------------------------------------- */

/* Runs of equal neighbours in a vector v: first values, and (if asked for) each element's run, scattered to `places` if
** given, and the lengths */
static int runs(amp_call *c, amp_tensor *v, amp_tensor *places, bool inverse, bool counts) {
  OR_FAIL(v);
  const amp_tensor *t = c->in[0];
  int64_t n = v->numel, one = n > 0;
  amp_tensor *first[2] = { amp__xfull(1, AMP_BOOL, t->device, t->device_index, 1, &one), NULL };
  if (n > 1) {
    amp_tensor *d = amp__xdetach(v);
    OR_FAIL(first[1] = X2(ne, amp__xnarrow(d, 0, 1, n - 1), amp__xnarrow(d, 0, 0, n - 1)));
  }
  amp_tensor *starts = n > 1 ? amp__xdim(AMP_OP_cat, 0, 2, first) : first[0], *at = X1(nonzero, starts);
  OR_FAIL(at);
  int64_t m = at->size[0];
  amp_tensor *in[3] = { v, at = amp__xview(at, 1, &m), NULL };
  /* where all differ the values are these already */
  amp_tensor *values = m < n ? amp__xdim(AMP_OP_index_select, 0, 2, in) : places ? v : X1(clone, v);
  int out = 0, rc = amp__ret(c, out++, values);
  if (rc == 0 && inverse) {
    amp_tensor *run = amp__xdim(AMP_OP_cumsum, 0, 1, &starts);
    if (places && run) {
      in[0] = in[1] = places;
      in[2] = run;
      run = amp__xdim(AMP_OP_scatter, 0, 3, in);
    }
    rc = amp__ret(c, out++, amp__xview(run, t->ndim, t->size));
  }
  if (rc == 0 && counts) {
    int64_t end = m > 0;
    in[0] = m > 0 ? amp__xnarrow(at, 0, 1, m - 1) : at;
    in[1] = amp__xfull((double)(n + 1), AMP_INT64, t->device, t->device_index, 1, &end);
    rc = amp__ret(c, out, X2(sub, amp__xdim(AMP_OP_cat, 0, 2, in), at));
  }
  return rc;
}

int amp__comp_unique(amp_call *c) {
  amp_tensor *flat = amp__xview(c->in[0], 1, &c->in[0]->numel), *out[AMP_MAX_OUT];
  OR_FAIL(flat);
  int rc = amp__xs(AMP_OP_sort, NULL, 1, &flat, out);
  return rc < 0 ? rc : runs(c, out[0], out[1], c->a[1].i != 0, c->a[2].i != 0);
}

int amp__comp_unique_consecutive(amp_call *c) {
  return runs(c, amp__xview(c->in[0], 1, &c->in[0]->numel), NULL, c->a[0].i != 0, c->a[1].i != 0);
}

/* -- Counts ---------------------------------------------------------------------------------------- */

/* The extremes of an int64 vector */
static void extremes(const int64_t *v, int64_t n, int64_t *low, int64_t *high) {
  int64_t a = v[0], b = v[0];
  for (int64_t i = 1; i < n; i++) {
    a = v[i] < a ? v[i] : a;
    b = v[i] > b ? v[i] : b;
  }
  *low = a;
  *high = b;
}

int amp__comp_bincount(amp_call *c) {
  amp_tensor *t = c->in[0], *w = c->in[1];
  int64_t n = c->a[0].i, low = 1, high = 0;
  int rc = amp__want_index(t, 1, "input");
  if (rc < 0) return rc;
  if (t->ndim != 1) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected a vector", SHAPE_OF(t));
  if (w && (rc = amp__want_shape(w, "weights", 1, t->size)) < 0) return rc;
  if (n < 0) return amp__fail(AMP_E_VALUE, "minlength is %lld, it must not be negative", LL(n));
  OR_FAIL(t = amp__xcontiguous(amp__xcast(t, AMP_INT64)));
  if (t->numel > 0) {
    amp_tensor *cpu = amp__on_cpu(t);
    OR_FAIL(cpu);
    amp__S->host_waits += t->device != AMP_CPU;
    extremes(AMP_DATA(int64_t, cpu), cpu->numel, &low, &high);
    amp__free(cpu);
  }
  if (low < 1) return amp__fail_arg(AMP_E_VALUE, 1, "input has the element %lld; what is counted are indices, from 1", LL(low));
  if (high > n) n = high;
  int dtype = !w ? AMP_INT64 : amp__is_float(w->dtype) ? w->dtype : AMP_FLOAT64;
  if ((rc = amp__check_size(1, &n, dtype, NULL)) < 0) return rc;
  if (!w && t->device == AMP_CPU) { /* their range is known: count in place */
    amp_tensor *o = amp__xfull(0, AMP_INT64, AMP_CPU, 0, 1, &n);
    OR_FAIL(o);
    const int64_t *v = AMP_DATA(int64_t, t);
    int64_t *count = AMP_DATA(int64_t, o);
    for (int64_t i = 0; i < t->numel; i++) count[v[i] - 1]++;
    return amp__ret(c, 0, o);
  }
  amp_tensor *ones = w ? amp__xcast(w, dtype) : amp__xexpand(amp__xfull(1, dtype, t->device, t->device_index, 0, NULL), 1, t->size);
  amp_tensor *in[3] = { amp__xfull(0, dtype, t->device, t->device_index, 1, &n), t, ones };
  return amp__ret(c, 0, n > 0 && t->numel > 0 ? amp__xdim(AMP_OP_scatter_add, 0, 3, in) : in[0]);
}
