/*
** amp_infer_pool.c: shape rules of the kernels of pooling and padding.
** The public pooling ops are composites (amp_comp_pool.c), which know what a
** user may ask; here only what a kernel relies on is checked: ranks, sizes that
** belong together, attributes within 32 bits. Results have channels innermost
** where the input has.
*/
#include "amp_infer.h"

/* Is t dense with channels (the dimension before the last `spatial`) innermost, and not C order too? */
static bool channels_inside(const amp_tensor *t, int spatial)
{
  int c = t->ndim - spatial - 1;
  int64_t n = t->size[c];
  if ((t->flags & (AMP_T_DENSE | AMP_T_CONTIGUOUS)) != AMP_T_DENSE || (n != 1 && t->stride[c] != 1)) return false;
  for (int d = t->ndim - 1; d >= 0; d--) {
    if (d == c) continue;
    if (t->size[d] != 1 && t->stride[d] != n) return false;
    n *= t->size[d];
  }
  return true;
}

/* Result i in that layout if t has it */
void amp__follow_channels(amp_call *c, int i, const amp_tensor *t, int spatial)
{
  amp_meta *m = &c->meta[i];
  if (m->ndim != t->ndim || !channels_inside(t, spatial)) return;
  int ch = m->ndim - spatial - 1;
  int64_t n = m->size[ch] > 1 ? m->size[ch] : 1;
  m->strides = 1;
  m->stride[ch] = 1;
  for (int d = m->ndim - 1; d >= 0; d--) {
    if (d == ch) continue;
    m->stride[d] = n;
    n *= m->size[d] > 1 ? m->size[d] : 1;
  }
}

static int want_spatial(const amp_tensor *t, int arg, const char *what, int64_t spatial)
{
  if (spatial < 1 || spatial > 3) return amp__fail(AMP_E_ARGUMENT, "spatial %lld must lie in 1..3", LL(spatial));
  if (t->ndim == spatial + 1 || t->ndim == spatial + 2) return 0;
  return amp__fail_arg(AMP_E_SHAPE, arg, "%s has shape %s, expected %d or %d dimensions", what, SHAPE_OF(t), (int)spatial + 1, (int)spatial + 2);
}

static int within(const amp_slot *a, int n, const char *what, int64_t low)
{
  for (int i = 0; i < n; i++)
    if (a[i].i < low || a[i].i > INT32_MAX) return amp__fail(AMP_E_ARGUMENT, "%s %lld must lie in %lld..%d", what, LL(a[i].i), LL(low), INT32_MAX);
  return 0;
}

/* -- Windows ------------------------------------------------------------------------- */

/* Slots: spatial, then size, kernel_size, stride, padding, three each. `size` becomes that of the result for an
** input of size x. */
static int windows(const amp_slot *a, int ndim, const int64_t *x, int64_t *size)
{
  int spatial = (int)a[0].i, rc;
  if ((rc = within(a + 1, 3, "size", 0)) < 0 || (rc = within(a + 4, 3, "kernel_size", 0)) < 0 || (rc = within(a + 7, 3, "stride", 1)) < 0 ||
      (rc = within(a + 10, 3, "padding", 0)) < 0) return rc;
  for (int i = 0; i < ndim; i++) size[i] = x[i];
  for (int i = 0; i < spatial; i++) {
    int d = ndim - spatial + i;
    size[d] = a[1 + 3 - spatial + i].i;
    if (x[d] == 0 && size[d] > 0) return amp__fail(AMP_E_SHAPE, "input of shape %s is empty in dimension %d and has no windows", amp__shape_str(ndim, x), d + 1);
  }
  return amp__check_size(ndim, size, AMP_FLOAT64, NULL);
}

int amp__infer_max_pool(amp_call *c)
{
  const amp_tensor *x = c->in[0];
  int64_t size[AMP_MAX_DIM];
  int rc;
  if ((rc = want_spatial(x, 1, "input", c->a[0].i)) < 0 || (rc = windows(c->a, x->ndim, x->size, size)) < 0 || (rc = within(c->a + 13, 3, "dilation", 1)) < 0) return rc;
  amp__out(c, 0, x->dtype, x->ndim, size);
  amp__out(c, 1, AMP_INT64, x->ndim, size);
  for (int i = 0; i < 2; i++) amp__follow_channels(c, i, x, (int)c->a[0].i);
  return 0;
}

int amp__infer_avg_pool(amp_call *c)
{
  const amp_tensor *x = c->in[0];
  int64_t size[AMP_MAX_DIM];
  int rc;
  if ((rc = want_spatial(x, 1, "input", c->a[0].i)) < 0 || (rc = windows(c->a, x->ndim, x->size, size)) < 0) return rc;
  amp__out(c, 0, x->dtype, x->ndim, size);
  amp__follow_channels(c, 0, x, (int)c->a[0].i);
  return 0;
}

int amp__infer_avg_pool_backward(amp_call *c)
{
  const amp_tensor *g = c->in[0];
  int64_t shape[AMP_MAX_DIM], size[AMP_MAX_DIM];
  int rc, ndim;
  if ((rc = amp__shape_attr(c->a, "shape", &ndim, shape)) < 0 || (rc = want_spatial(g, 1, "grad", c->a[9].i)) < 0) return rc;
  if (ndim != g->ndim) return amp__want_shape(g, "grad", ndim, shape);
  if ((rc = windows(c->a + 9, ndim, shape, size)) < 0 || (rc = amp__want_shape(g, "grad", ndim, size)) < 0) return rc;
  amp__out(c, 0, g->dtype, ndim, shape);
  amp__follow_channels(c, 0, g, (int)c->a[9].i);
  return 0;
}

/* -- Places ------------------------------------------------------------------------------ */

static int want_places(const amp_call *c)
{
  const amp_tensor *x = c->in[0], *t = c->in[1];
  if (!amp__is_float(x->dtype)) return amp__fail_arg(AMP_E_DTYPE, 1, "input has dtype %s, expected a float dtype", amp_dtype_name(x->dtype));
  if (t->dtype == AMP_INT64) return 0;
  return amp__fail_arg(AMP_E_DTYPE, 2, "indices have dtype %s, expected int64", amp_dtype_name(t->dtype));
}

int amp__infer_pool_scatter(amp_call *c)
{
  const amp_tensor *g = c->in[0];
  int64_t shape[AMP_MAX_DIM], spatial = c->a[9].i;
  int ndim, rc;
  if ((rc = want_places(c)) < 0 || (rc = want_spatial(g, 1, "input", spatial)) < 0) return rc;
  if ((rc = amp__want_shape(c->in[1], "indices", g->ndim, g->size)) < 0 || (rc = amp__shape_attr(c->a, "shape", &ndim, shape)) < 0) return rc;
  if (ndim != g->ndim || memcmp(shape, g->size, sizeof *shape * (size_t)(ndim - spatial)) != 0)
    return amp__fail(AMP_E_SHAPE, "input of shape %s does not belong to a result of shape %s", SHAPE_OF(g), amp__shape_str(ndim, shape));
  amp__out(c, 0, g->dtype, ndim, shape);
  amp__follow_channels(c, 0, c->in[1], (int)spatial);
  return 0;
}

int amp__infer_pool_gather(amp_call *c)
{
  const amp_tensor *x = c->in[0], *t = c->in[1];
  int64_t spatial = c->a[0].i;
  int rc;
  if ((rc = want_places(c)) < 0 || (rc = want_spatial(x, 1, "input", spatial)) < 0) return rc;
  if (t->ndim != x->ndim || memcmp(t->size, x->size, sizeof *t->size * (size_t)(x->ndim - spatial)) != 0)
    return amp__fail(AMP_E_SHAPE, "indices of shape %s do not belong to an input of shape %s", SHAPE_OF(t), SHAPE_OF(x));
  amp__out(c, 0, x->dtype, t->ndim, t->size);
  amp__follow_channels(c, 0, t, (int)spatial);
  return 0;
}

/* -- Resampling ---------------------------------------------------------------------------- */

/* Slots: spatial, size 3, mode, align_corners, antialias, scales 3. */
static int resampled(const amp_slot *a, int ndim, const int64_t *x, int64_t *size)
{
  int spatial = (int)a[0].i, rc;
  if ((rc = within(a + 1, 3, "size", 1)) < 0) return rc;
  for (int i = 0; i < ndim; i++) size[i] = x[i];
  for (int i = 0; i < spatial; i++) {
    int d = ndim - spatial + i;
    double s = a[7 + 3 - spatial + i].f;
    size[d] = a[1 + 3 - spatial + i].i;
    if (x[d] < 1 || x[d] > INT32_MAX) return amp__fail(AMP_E_SHAPE, "input of shape %s can't be resampled: dimension %d has %lld elements", amp__shape_str(ndim, x), d + 1, LL(x[d]));
    if (given(&a[7 + 3 - spatial + i]) && !(s > 0)) return amp__fail(AMP_E_ARGUMENT, "scale %g must be positive", s);
  }
  return amp__check_size(ndim, size, AMP_FLOAT64, NULL);
}

int amp__infer_resample(amp_call *c)
{
  const amp_tensor *x = c->in[0];
  int64_t size[AMP_MAX_DIM];
  int rc;
  if ((rc = want_spatial(x, 1, "input", c->a[0].i)) < 0 || (rc = resampled(c->a, x->ndim, x->size, size)) < 0) return rc;
  amp__out(c, 0, x->dtype, x->ndim, size);
  amp__follow_channels(c, 0, x, (int)c->a[0].i);
  return 0;
}

int amp__infer_resample_backward(amp_call *c)
{
  const amp_tensor *g = c->in[0];
  int64_t shape[AMP_MAX_DIM], size[AMP_MAX_DIM];
  int rc, ndim;
  if ((rc = amp__shape_attr(c->a, "shape", &ndim, shape)) < 0 || (rc = want_spatial(g, 1, "grad", c->a[9].i)) < 0) return rc;
  if (ndim != g->ndim) return amp__want_shape(g, "grad", ndim, shape);
  if ((rc = resampled(c->a + 9, ndim, shape, size)) < 0 || (rc = amp__want_shape(g, "grad", ndim, size)) < 0) return rc;
  amp__out(c, 0, g->dtype, ndim, shape);
  amp__follow_channels(c, 0, g, (int)c->a[9].i);
  return 0;
}

/* -- Grids ------------------------------------------------------------------------------------ */

/* input x and grid t, arguments `arg` and the next; mode word */
static int want_grid(const amp_tensor *x, const amp_tensor *t, int arg, int64_t mode)
{
  int n = x->ndim - 2;
  if (n != 2 && n != 3) return amp__fail_arg(AMP_E_SHAPE, arg, "input has shape %s, expected N x C x H x W or N x C x D x H x W", SHAPE_OF(x));
  if (t->ndim != x->ndim || t->size[t->ndim - 1] != n || t->size[0] != x->size[0])
    return amp__fail_arg(AMP_E_SHAPE, arg + 1, "grid has shape %s, expected %lld x %s x %d for an input of shape %s", SHAPE_OF(t), LL(x->size[0]), n == 2 ? "H x W" : "D x H x W", n, SHAPE_OF(x));
  if (mode == 2 && n == 3) return amp__fail(AMP_E_ARGUMENT, "mode 'bicubic' is for inputs of 4 dimensions, got shape %s", SHAPE_OF(x));
  for (int d = 2; d < x->ndim; d++)
    if (x->size[d] < 1 || x->size[d] > INT32_MAX) return amp__fail_arg(AMP_E_SHAPE, arg, "input of shape %s has nothing to sample in dimension %d", SHAPE_OF(x), d + 1);
  return 0;
}

static void sampled(const amp_tensor *x, const amp_tensor *t, int64_t *size)
{
  size[0] = x->size[0];
  size[1] = x->size[1];
  for (int d = 2; d < x->ndim; d++) size[d] = t->size[d - 1];
}

int amp__infer_grid_sample(amp_call *c)
{
  const amp_tensor *x = c->in[0], *t = c->in[1];
  int64_t size[AMP_MAX_DIM];
  int rc;
  if ((rc = amp__equal_dtypes(c, 2)) < 0 || (rc = want_grid(x, t, 1, c->a[0].i)) < 0) return rc;
  sampled(x, t, size);
  amp__out(c, 0, x->dtype, x->ndim, size);
  return 0;
}

int amp__infer_grid_sample_backward(amp_call *c)
{
  const amp_tensor *g = c->in[0], *x = c->in[1], *t = c->in[2];
  int64_t size[AMP_MAX_DIM];
  int rc;
  if ((rc = amp__equal_dtypes(c, 3)) < 0 || (rc = want_grid(x, t, 2, c->a[0].i)) < 0) return rc;
  sampled(x, t, size);
  if ((rc = amp__want_shape(g, "grad", x->ndim, size)) < 0) return rc;
  amp__out(c, 0, x->dtype, x->ndim, x->size);
  amp__out(c, 1, t->dtype, t->ndim, t->size);
  return 0;
}

int amp__infer_grid_sample_double(amp_call *c)
{
  const amp_tensor *x = c->in[1], *t = c->in[2];
  int rc;
  if ((rc = amp__equal_dtypes(c, 5)) < 0 || (rc = amp__infer_grid_sample_backward(c)) < 0) return rc;
  if ((rc = amp__want_shape(c->in[3], "ginput", x->ndim, x->size)) < 0 || (rc = amp__want_shape(c->in[4], "ggrid", t->ndim, t->size)) < 0) return rc;
  amp__out(c, 0, x->dtype, x->ndim, c->in[0]->size);
  amp__out(c, 1, x->dtype, x->ndim, x->size);
  amp__out(c, 2, t->dtype, t->ndim, t->size);
  return 0;
}

/* -- Padding ---------------------------------------------------------------------------------- */

enum { CONSTANT, REFLECT, REPLICATE, CIRCULAR };
static const char *const pad_mode[] = { "constant", "reflect", "replicate", "circular" };

/* Shape of x padded; a: pad (count and 16 values), mode */
static int padded(const amp_slot *a, int ndim, const int64_t *x, int64_t *size)
{
  int64_t n = a[0].i, mode = a[17].i;
  if (mode < CONSTANT || mode > CIRCULAR) return amp__fail(AMP_E_ARGUMENT, "there is no padding mode %lld", LL(mode));
  if (n % 2) return amp__fail(AMP_E_ARGUMENT, "pad has %lld values, expected pairs (before, after), the last dimension first", LL(n));
  if (n / 2 > ndim) return amp__fail(AMP_E_ARGUMENT, "pad has %lld values, too many for an input of shape %s", LL(n), amp__shape_str(ndim, x));
  if (mode != CONSTANT && (n < 2 || n > 6 || ndim < n / 2 + 1 || ndim > n / 2 + 2))
    return amp__fail(AMP_E_ARGUMENT, "mode '%s' takes 2, 4 or 6 values of pad for an input of 1, 2 or 3 dimensions more than C or N x C, got %lld values for shape %s",
                     pad_mode[mode], LL(n), amp__shape_str(ndim, x));
  for (int i = 0; i < ndim; i++) size[i] = x[i];
  for (int i = 0; i < n / 2; i++) {
    int d = ndim - 1 - i;
    int64_t p = a[1 + 2 * i].i, q = a[2 + 2 * i].i, most = x[d];
    if (p > INT32_MAX || q > INT32_MAX || p < -INT32_MAX || q < -INT32_MAX) return amp__fail(AMP_E_ARGUMENT, "pad %lld is too large", LL(p > INT32_MAX || p < -INT32_MAX ? p : q));
    size[d] = x[d] + p + q;
    if (size[d] < 0) return amp__fail(AMP_E_SHAPE, "pad (%lld, %lld) takes more than the %lld elements of dimension %d", LL(p), LL(q), LL(x[d]), d + 1);
    if (mode == CONSTANT) {
      if (p + x[d] < 0 || q + x[d] < 0) return amp__fail(AMP_E_SHAPE, "pad (%lld, %lld) takes more than the %lld elements of dimension %d", LL(p), LL(q), LL(x[d]), d + 1);
      continue;
    }
    if (mode == REFLECT) most--;
    if (mode == CIRCULAR) most += (p < 0 ? p : 0) + (q < 0 ? q : 0);
    if (mode != REPLICATE && (p > most || q > most))
      return amp__fail(AMP_E_SHAPE, "pad (%lld, %lld) must be at most %lld in mode '%s' for the %lld elements of dimension %d", LL(p), LL(q), LL(most), pad_mode[mode], LL(x[d]), d + 1);
    if (size[d] > 0 && x[d] < 1) return amp__fail(AMP_E_SHAPE, "mode '%s' needs elements in dimension %d, got shape %s", pad_mode[mode], d + 1, amp__shape_str(ndim, x));
    if (-p >= x[d] || -q >= x[d]) return amp__fail(AMP_E_SHAPE, "pad (%lld, %lld) takes all of the %lld elements of dimension %d", LL(p), LL(q), LL(x[d]), d + 1);
  }
  return amp__check_size(ndim, size, AMP_FLOAT64, NULL);
}

int amp__infer_pad(amp_call *c)
{
  const amp_tensor *x = c->in[0];
  int64_t size[AMP_MAX_DIM];
  int rc;
  if ((rc = padded(c->a, x->ndim, x->size, size)) < 0) return rc;
  if (c->a[17].i == CONSTANT && (rc = amp__value_fits(c->a[18].f, x->dtype)) < 0) return rc;
  amp__out(c, 0, x->dtype, x->ndim, size);
  if (x->ndim >= 4) amp__follow_channels(c, 0, x, x->ndim - 2);
  return 0;
}

int amp__infer_pad_backward(amp_call *c)
{
  const amp_tensor *g = c->in[0];
  int64_t shape[AMP_MAX_DIM], size[AMP_MAX_DIM];
  int ndim, rc;
  if ((rc = amp__shape_attr(c->a, "shape", &ndim, shape)) < 0 || (rc = padded(c->a + 9, ndim, shape, size)) < 0 || (rc = amp__want_shape(g, "grad", ndim, size)) < 0) return rc;
  amp__out(c, 0, g->dtype, ndim, shape);
  return 0;
}
