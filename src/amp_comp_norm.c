/*
** amp_comp_norm.c: normalisation and dropout made of other ops: instance_norm by
** group_norm with a group a channel, local_response_norm, and the dropouts that
** draw one value a channel or keep mean and variance.
*/
#include <math.h>
#include "amp_bwd.h"

/* An in-place op outside any graph */
static int change(int op, amp_tensor *t, amp_tensor *other, const amp_sl *s) {
  amp_tensor *in[2] = { t, other };
  int32_t grad_mode = amp__S->grad_mode;
  amp__S->grad_mode = 0;
  int rc = amp__dispatch(op, AMP_INPLACE, in, other ? 2 : 1, NULL, s ? s->v : NULL);
  amp__S->grad_mode = grad_mode;
  return rc;
}

/* -- Normalisation ---------------------------------------------------------------------------- */

int amp__comp_sync_batch_norm(amp_call *c) {
  amp_sl s = amp__sl();
  amp__sl_copy(&s, c->a, c->op->info.nslot);
  return amp__ret(c, 0, amp__x(AMP_OP_batch_norm, &s, 5, c->in));
}

/* What running will hold: running + momentum (mean over samples of stat - running), in its dtype */
static amp_tensor *moved(amp_tensor *running, amp_tensor *stat, double momentum) {
  int samples = 0, dtype = running->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  stat = amp__xmean(stat, 1, &samples, false);
  amp_tensor *t = X2(add, XN(mul, amp__xcast(amp__xdetach(running), dtype), 1 - momentum), XN(mul, stat, momentum));
  return amp__xcast(t, running->dtype);
}

/* The copies come last: they take no memory, so that both statistics move or none. */
static int instance_stats(amp_call *c) {
  int dims[AMP_MAX_DIM], n = 0, dtype = amp__is_half(c->in[0]->dtype) ? AMP_FLOAT32 : c->in[0]->dtype;
  int64_t list[AMP_MAX_DIM];
  amp_tensor *x = amp__xcast(amp__xdetach(c->in[0]), dtype);
  for (int d = 2; d < c->in[0]->ndim; d++) { dims[n] = d; list[n++] = d + 1; }
  amp_sl s = amp__sl();
  amp__sl_list(&s, n, list);
  amp__sl_f(&s, 1);
  amp__sl_i(&s, 0);
  amp_tensor *var = amp__x(AMP_OP_var, &s, 1, &x), *mean = amp__xmean(x, n, dims, false);
  if (!var || !mean) return amp__err();
  mean = moved(c->in[1], mean, c->a[1].f);
  var = moved(c->in[2], var, c->a[1].f);
  if (!mean || !var) return amp__err();
  int rc = change(AMP_OP_copy, c->in[1], mean, NULL);
  return rc < 0 ? rc : change(AMP_OP_copy, c->in[2], var, NULL);
}

int amp__comp_instance_norm(amp_call *c) { /* input running_mean? running_var? weight? bias?; use_input_stats momentum eps */
  static const char *const name[] = { "", "running_mean", "running_var", "weight", "bias" };
  amp_tensor *x = c->in[0];
  amp_sl s = amp__sl();
  if (x->ndim < 2) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected N x C x ...", amp__shape_str(x->ndim, x->size));
  for (int i = 1; i < 5; i++)
    if (c->in[i] && (c->in[i]->ndim != 1 || c->in[i]->size[0] != x->size[1]))
      return amp__fail_arg(AMP_E_SHAPE, i + 1, "%s has shape %s, expected %lld (dimension 2 of the input)", name[i],
                           amp__shape_str(c->in[i]->ndim, c->in[i]->size), (long long)x->size[1]);
  if ((c->in[1] == NULL) != (c->in[2] == NULL)) return amp__fail(AMP_E_ARGUMENT, "running_mean and running_var come together");
  if (!c->a[0].i) {
    if (!c->in[1]) return amp__fail(AMP_E_ARGUMENT, "without use_input_stats, running_mean and running_var are needed");
    amp__sl_i(&s, 0);
    amp__sl_copy(&s, c->a + 1, 2);
    return amp__ret(c, 0, amp__x(AMP_OP_batch_norm, &s, 5, c->in));
  }
  if (x->numel && x->numel == x->size[0] * x->size[1])
    return amp__fail_arg(AMP_E_SHAPE, 1, "statistics need more than one value a channel and sample, input has shape %s", amp__shape_str(x->ndim, x->size));
  amp_tensor *in[3] = { x, c->in[3], c->in[4] };
  amp__sl_i(&s, x->size[1] ? x->size[1] : 1);
  amp__sl_copy(&s, c->a + 2, 1);
  int rc = amp__ret(c, 0, amp__x(AMP_OP_group_norm, &s, 3, in));
  return rc == 0 && c->in[1] && x->numel ? instance_stats(c) : rc;
}

int amp__comp_local_response_norm(amp_call *c) { /* size alpha beta k */
  amp_tensor *x = c->in[0];
  int64_t n = c->a[0].i, edge[AMP_MAX_DIM];
  if (x->ndim < 3) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected at least 3 dimensions (N x C x ...)", amp__shape_str(x->ndim, x->size));
  if (n < 1) return amp__fail(AMP_E_ARGUMENT, "size %lld must be positive", (long long)n);
  if (x->numel == 0) return amp__ret(c, 0, X1(clone, x));
  int64_t before = n / 2, after = (n - 1) / 2, channels = x->size[1]; /* neighbours, as far as there are any */
  if (before > channels - 1) before = channels - 1;
  if (after > channels - 1) after = channels - 1;
  amp_tensor *w = amp__xcast(x, amp__is_half(x->dtype) ? AMP_FLOAT32 : x->dtype), *sq = X2(mul, w, w), *list[3];
  int parts = 0;
  for (int side = 0; side < 2; side++) {
    if (side == 1) list[parts++] = sq;
    if ((side ? after : before) == 0) continue;
    memcpy(edge, x->size, sizeof edge);
    edge[1] = side ? after : before;
    list[parts++] = sq ? amp__xfull(0, sq->dtype, x->device, x->device_index, x->ndim, edge) : NULL;
  }
  amp_tensor *padded = parts == 1 ? sq : amp__xdim(AMP_OP_cat, 1, parts, list), *sum = NULL;
  for (int64_t i = 0; i <= before + after; i++) {
    amp_tensor *t = amp__xnarrow(padded, 1, i, channels);
    sum = i == 0 ? t : X2(add, sum, t);
  }
  amp_tensor *d = XN(pow, XN(add, XN(mul, sum, c->a[1].f / (double)n), c->a[3].f), c->a[2].f);
  return amp__ret(c, 0, amp__xcast(X2(div, w, d), x->dtype));
}

/* -- Dropout ------------------------------------------------------------------------------------ */

static int check_p(double p) {
  return p >= 0 && p <= 1 ? 0 : amp__fail(AMP_E_VALUE, "p %g must lie in 0..1", p);
}

/* 1 with probability 1 - p, else 0: an element, or (by_channel) a channel each */
static amp_tensor *draw(amp_tensor *x, double p, int lead) {
  int64_t size[AMP_MAX_DIM];
  for (int d = 0; d < x->ndim; d++) size[d] = d < lead ? x->size[d] : 1;
  amp_tensor *m = amp__xfull(0, x->dtype, x->device, x->device_index, x->ndim, size);
  amp_sl s = amp__sl();
  amp__sl_f(&s, 1 - p);
  if (!m || change(AMP_OP_bernoulli, m, NULL, &s) < 0) return NULL;
  return m;
}

/* least, most: ranks that may come; a rank of `least` is a sample without N if batched is above it */
static int by_channel(amp_call *c, int least, int most, int batched, const char *what) {
  amp_tensor *x = c->in[0];
  double p = c->a[0].f;
  int rc = check_p(p);
  if (rc < 0) return rc;
  if (x->ndim < least || x->ndim > most) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected %s", amp__shape_str(x->ndim, x->size), what);
  if (!c->a[1].i || p == 0) return amp__ret(c, 0, X1(alias, x));
  amp_tensor *m = draw(x, p, x->ndim < batched ? 1 : 2);
  return amp__ret(c, 0, X2(mul, x, p < 1 ? XN(mul, m, 1 / (1 - p)) : m));
}

int amp__comp_dropout1d(amp_call *c) { return by_channel(c, 2, 3, 3, "N x C x L or C x L"); }
int amp__comp_dropout2d(amp_call *c) { return by_channel(c, 3, 4, 3, "N x C x H x W (or N x C x L)"); }
int amp__comp_dropout3d(amp_call *c) { return by_channel(c, 4, 5, 5, "N x C x D x H x W or C x D x H x W"); }

/* What SELU makes of minus infinity, -scale alpha, takes the place of what is dropped; a and b keep mean 0 and variance 1 */
static int alpha_dropout(amp_call *c, bool channels) {
  const double alpha = 1.7580993408473766;
  amp_tensor *x = c->in[0];
  double p = c->a[0].f;
  int rc = check_p(p);
  if (rc < 0) return rc;
  if (channels && x->ndim < 2) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected N x C x ...", amp__shape_str(x->ndim, x->size));
  if (!c->a[1].i || p == 0) return amp__ret(c, 0, X1(alias, x));
  amp_tensor *m = draw(x, p, channels ? 2 : x->ndim);
  if (p == 1) return amp__ret(c, 0, X2(mul, x, m));
  double a = 1 / sqrt((alpha * alpha * p + 1) * (1 - p));
  amp_tensor *shift = XN(add, XN(mul, m, alpha * a), alpha * a * (p - 1));
  return amp__ret(c, 0, X2(add, X2(mul, x, XN(mul, m, a)), shift));
}

int amp__comp_alpha_dropout(amp_call *c) { return alpha_dropout(c, false); }
int amp__comp_feature_alpha_dropout(amp_call *c) { return alpha_dropout(c, true); }
