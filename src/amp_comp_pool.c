/*
** amp_comp_pool.c: pooling as users call it: what their arguments may be and
** which windows they mean, in 1, 2 and 3 spatial dimensions alike. The work is
** done by the rows max_pool, avg_pool and unpool; lp_pool is powers around a
** mean. Attributes of `spatial` values fill the last of three places.
*/
#include <math.h>
#include "amp_bwd.h"

typedef struct window { int64_t size[3], kernel[3], stride[3], padding[3], dilation[3]; } window;
static const window point = { { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 0, 0 }, { 1, 1, 1 } };
static const char *const layout[] = { "", "C x L", "C x H x W", "C x D x H x W" };

#define LL(x) ((long long)(x))

static int want_rank(const amp_tensor *x, int spatial) {
  if (x->ndim == spatial + 1 || x->ndim == spatial + 2) return 0;
  return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected %s or N x %s", amp__shape_str(x->ndim, x->size), layout[spatial], layout[spatial]);
}

/* One dimension of size n: kernel k, stride s, padding p, dilation d give *size windows. */
static int along(int64_t n, int dim, int64_t k, int64_t s, int64_t p, int64_t d, bool ceil_mode, int64_t *size) {
  if (k < 1) return amp__fail(AMP_E_ARGUMENT, "kernel_size %lld must be at least 1", LL(k));
  if (s < 1) return amp__fail(AMP_E_ARGUMENT, "stride %lld must be at least 1", LL(s));
  if (d < 1) return amp__fail(AMP_E_ARGUMENT, "dilation %lld must be at least 1", LL(d));
  if (p < 0 || p > k / 2) return amp__fail(AMP_E_ARGUMENT, "padding %lld must lie in 0..%lld, half of kernel_size %lld", LL(p), LL(k / 2), LL(k));
  if (k > INT32_MAX || s > INT32_MAX || d > INT32_MAX) return amp__fail(AMP_E_ARGUMENT, "kernel_size %lld, stride %lld or dilation %lld is too large", LL(k), LL(s), LL(d));
  int64_t room = n + 2 * p - d * (k - 1) - 1;
  if (room < 0)
    return amp__fail(AMP_E_SHAPE, "kernel of size %lld (dilation %lld) is larger than the padded input of size %lld (dimension %d)", LL(k), LL(d), LL(n + 2 * p), dim + 1);
  *size = (room + (ceil_mode ? s - 1 : 0)) / s + 1;
  if (ceil_mode && (*size - 1) * s >= n + p) --*size; /* no window starts in the right padding */
  return 0;
}

/* Attributes may be NULL: their usual values; of stride also absent. */
static int windows(const amp_call *c, int spatial, const amp_slot *kernel, const amp_slot *stride, const amp_slot *padding, const amp_slot *dilation, bool ceil_mode, window *w) {
  const amp_tensor *x = c->in[0];
  int rc = want_rank(x, spatial);
  *w = point;
  for (int i = 0; i < spatial && rc == 0; i++) {
    int at = 3 - spatial + i, d = x->ndim - spatial + i;
    w->kernel[at] = kernel[i].i;
    w->stride[at] = stride[i].i == AMP_NONE ? kernel[i].i : stride[i].i;
    if (padding) w->padding[at] = padding[i].i;
    if (dilation) w->dilation[at] = dilation[i].i;
    rc = along(x->size[d], d, w->kernel[at], w->stride[at], w->padding[at], w->dilation[at], ceil_mode, &w->size[at]);
  }
  return rc;
}

/* output_size windows that share out the input: kernel 0 */
static int shares(const amp_call *c, int spatial, const amp_slot *size, window *w) {
  const amp_tensor *x = c->in[0];
  int rc = want_rank(x, spatial);
  *w = point;
  if (rc < 0) return rc;
  for (int i = 0; i < 3; i++) w->kernel[i] = 0;
  for (int i = 0; i < spatial; i++) {
    int d = x->ndim - spatial + i;
    if (size[i].i < 1 || size[i].i > INT32_MAX) return amp__fail(AMP_E_ARGUMENT, "output_size %lld must be at least 1 (and below 2^31)", LL(size[i].i));
    if (x->size[d] == 0) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s: dimension %d is empty", amp__shape_str(x->ndim, x->size), d + 1);
    w->size[3 - spatial + i] = size[i].i;
  }
  return 0;
}

static void put(amp_sl *s, const int64_t *v) { for (int i = 0; i < 3; i++) amp__sl_i(s, v[i]); }

static amp_sl slots(int spatial, const window *w) {
  amp_sl s = amp__sl();
  amp__sl_i(&s, spatial);
  put(&s, w->size);
  put(&s, w->kernel);
  put(&s, w->stride);
  put(&s, w->padding);
  return s;
}

/* -- Largest values ---------------------------------------------------------------------- */

static int largest(amp_call *c, int spatial, const window *w, bool indices) {
  amp_tensor *out[AMP_MAX_OUT];
  amp_sl s = slots(spatial, w);
  put(&s, w->dilation);
  int rc = amp__xs(AMP_OP_max_pool, &s, 1, c->in, out);
  if (rc == 0) rc = amp__ret(c, 0, out[0]);
  return rc == 0 && indices ? amp__ret(c, 1, out[1]) : rc;
}

static int max_pool(amp_call *c, int n) { /* kernel, stride, padding, dilation, ceil_mode, return_indices */
  const amp_slot *a = c->a;
  window w;
  int rc = windows(c, n, a, a + n, a + 2 * n, a + 3 * n, a[4 * n].i != 0, &w);
  return rc < 0 ? rc : largest(c, n, &w, a[4 * n + 1].i != 0);
}

static int adaptive_max_pool(amp_call *c, int n) {
  window w;
  int rc = shares(c, n, c->a, &w);
  return rc < 0 ? rc : largest(c, n, &w, c->a[n].i != 0);
}

int amp__comp_max_pool1d(amp_call *c) { return max_pool(c, 1); }
int amp__comp_max_pool2d(amp_call *c) { return max_pool(c, 2); }
int amp__comp_max_pool3d(amp_call *c) { return max_pool(c, 3); }
int amp__comp_adaptive_max_pool1d(amp_call *c) { return adaptive_max_pool(c, 1); }
int amp__comp_adaptive_max_pool2d(amp_call *c) { return adaptive_max_pool(c, 2); }
int amp__comp_adaptive_max_pool3d(amp_call *c) { return adaptive_max_pool(c, 3); }

/* -- Means ---------------------------------------------------------------------------------- */

static amp_tensor *mean(amp_tensor *x, int spatial, const window *w, bool whole, int64_t divisor) {
  amp_sl s = slots(spatial, w);
  amp__sl_i(&s, whole);
  amp__sl_i(&s, divisor);
  return amp__x(AMP_OP_avg_pool, &s, 1, &x);
}

static int avg_pool(amp_call *c, int n) { /* kernel, stride, padding, ceil_mode, count_include_pad, divisor_override (n > 1) */
  const amp_slot *a = c->a;
  window w;
  int rc = windows(c, n, a, a + n, a + 2 * n, NULL, a[3 * n].i != 0, &w);
  int64_t divisor = n > 1 ? a[3 * n + 2].i : AMP_NONE;
  if (rc < 0) return rc;
  if (divisor == 0) return amp__fail(AMP_E_ARGUMENT, "divisor_override is 0");
  return amp__ret(c, 0, mean(c->in[0], n, &w, a[3 * n + 1].i != 0, divisor));
}

static int adaptive_avg_pool(amp_call *c, int n) {
  window w;
  int rc = shares(c, n, c->a, &w);
  return rc < 0 ? rc : amp__ret(c, 0, mean(c->in[0], n, &w, false, AMP_NONE));
}

int amp__comp_avg_pool1d(amp_call *c) { return avg_pool(c, 1); }
int amp__comp_avg_pool2d(amp_call *c) { return avg_pool(c, 2); }
int amp__comp_avg_pool3d(amp_call *c) { return avg_pool(c, 3); }
int amp__comp_adaptive_avg_pool1d(amp_call *c) { return adaptive_avg_pool(c, 1); }
int amp__comp_adaptive_avg_pool2d(amp_call *c) { return adaptive_avg_pool(c, 2); }
int amp__comp_adaptive_avg_pool3d(amp_call *c) { return adaptive_avg_pool(c, 3); }

/* -- Norms ------------------------------------------------------------------------------------ */

/* The gradient of a root is 0, not infinity or NaN, where a window holds nothing but zeros. */
static amp_tensor *root(amp_tensor *x, double p) {
  if (!x) return NULL;
  if (p < 0 || !amp__S->grad_mode || !amp__tracked(x)) return p == 2 ? X1(sqrt, x) : XN(pow, x, 1 / p);
  amp_tensor *zero = XN(eq, x, 0), *y = amp__xfill(zero, x, 1);
  return amp__xmask_not(zero, p == 2 ? X1(sqrt, y) : XN(pow, y, 1 / p));
}

/* (k * mean(x^p))^(1/p), k being the kernel's elements. Powers of 16-bit values are float32: they would overflow. */
static int lp_pool(amp_call *c, int n) { /* norm_type, kernel, stride, ceil_mode */
  const amp_slot *a = c->a;
  double p = a[0].f, k = 1;
  window w;
  amp_tensor *x = c->in[0];
  int dtype = x->dtype, rc = windows(c, n, a + 1, a + 1 + n, NULL, NULL, a[1 + 2 * n].i != 0, &w);
  if (rc < 0) return rc;
  if (!isfinite(p) || p == 0) return amp__fail(AMP_E_ARGUMENT, "norm_type %g must be finite and not 0; for infinity use max_pool", p);
  for (int i = 0; i < 3; i++) k *= (double)w.kernel[i];
  x = amp__xcast(x, dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32);
  x = p == 2 ? X1(square, x) : p == 1 ? x : XN(pow, x, p);
  if (!x) return amp__err();
  x = XN(mul, mean(x, n, &w, true, AMP_NONE), k);
  return amp__ret(c, 0, amp__xcast(p == 1 ? x : root(x, p), dtype));
}

int amp__comp_lp_pool1d(amp_call *c) { return lp_pool(c, 1); }
int amp__comp_lp_pool2d(amp_call *c) { return lp_pool(c, 2); }
int amp__comp_lp_pool3d(amp_call *c) { return lp_pool(c, 3); }

/* -- Back to places ------------------------------------------------------------------------------ */

static int max_unpool(amp_call *c, int n) { /* kernel, stride, padding, output_size */
  const amp_slot *a = c->a, *size = a + 3 * n;
  const amp_tensor *x = c->in[0];
  int64_t shape[AMP_MAX_DIM];
  int rc = want_rank(x, n);
  if (rc < 0) return rc;
  bool sized = size[0].i != AMP_NONE;
  if (sized && size[0].i != n && size[0].i != x->ndim)
    return amp__fail(AMP_E_ARGUMENT, "output_size has %lld values, expected %d (or %d, the whole shape)", LL(size[0].i), n, x->ndim);
  for (int d = 0; d < x->ndim; d++) shape[d] = x->size[d];
  for (int i = 0; i < n; i++) {
    int d = x->ndim - n + i;
    int64_t k = a[i].i, s = a[n + i].i == AMP_NONE ? k : a[n + i].i, p = a[2 * n + i].i;
    if (k < 1 || k > INT32_MAX) return amp__fail(AMP_E_ARGUMENT, "kernel_size %lld must be at least 1", LL(k));
    if (s < 1 || s > INT32_MAX) return amp__fail(AMP_E_ARGUMENT, "stride %lld must be at least 1", LL(s));
    if (p < 0 || p > INT32_MAX) return amp__fail(AMP_E_ARGUMENT, "padding %lld must be at least 0", LL(p));
    int64_t usual = (x->size[d] - 1) * s - 2 * p + k;
    shape[d] = sized ? size[1 + i + (size[0].i - n)].i : usual;
    if (sized && (shape[d] <= usual - s || shape[d] >= usual + s))
      return amp__fail(AMP_E_ARGUMENT, "output_size %lld of dimension %d must lie between %lld and %lld", LL(shape[d]), d + 1, LL(usual - s + 1), LL(usual + s - 1));
    if (shape[d] < 1) return amp__fail(AMP_E_SHAPE, "dimension %d of the result would have %lld elements", d + 1, LL(shape[d]));
  }
  amp_sl s = amp__sl();
  amp__sl_list(&s, x->ndim, shape);
  amp__sl_i(&s, n);
  return amp__ret(c, 0, amp__x(AMP_OP_unpool, &s, 2, c->in));
}

int amp__comp_max_unpool1d(amp_call *c) { return max_unpool(c, 1); }
int amp__comp_max_unpool2d(amp_call *c) { return max_unpool(c, 2); }
int amp__comp_max_unpool3d(amp_call *c) { return max_unpool(c, 3); }
