/*
** amp_comp_resample.c: interpolate, affine_grid and the shuffles of pixels and
** channels. interpolate decides modes, sizes and factors as PyTorch does and
** leaves the work to resample (or, for 'area', avg_pool); the others are views
** and copies.
*/
#include <math.h>
#include "amp_bwd.h"

#define LL(x) ((long long)(x))
#define SHAPE_STR(t) amp__shape_str((t)->ndim, (t)->size)

/* -- interpolate -------------------------------------------------------------------------- */

enum { NEAREST, LINEAR, BILINEAR, BICUBIC, TRILINEAR, AREA, EXACT };
static const struct { const char *name; int low, high, kernel; } modes[] = { /* spatial dimensions; resample's mode */
  { "nearest", 1, 3, 0 }, { "linear", 1, 1, 2 }, { "bilinear", 2, 2, 2 }, { "bicubic", 2, 2, 3 }, { "trilinear", 3, 3, 2 }, { "area", 1, 3, 0 }, { "nearest-exact", 1, 3, 1 }
};

static int mode_of(const amp_call *c, int spatial) {
  int mode = (int)c->a[18].i;
  const amp_tensor *x = c->in[0];
  if (spatial < modes[mode].low || spatial > modes[mode].high)
    return amp__fail(AMP_E_SHAPE, "mode '%s' is for inputs of %d%s dimensions (N x C and %d%s), got shape %s", modes[mode].name, modes[mode].low + 2,
                     modes[mode].high > modes[mode].low ? " to 5" : "", modes[mode].low, modes[mode].high > modes[mode].low ? " to 3" : "", SHAPE_STR(x));
  bool smooth = mode != NEAREST && mode != AREA && mode != EXACT;
  if (c->a[19].i != AMP_NONE && !smooth)
    return amp__fail(AMP_E_ARGUMENT, "align_corners is for the modes linear, bilinear, bicubic and trilinear, got mode '%s'", modes[mode].name);
  if (c->a[21].i && mode != BILINEAR && mode != BICUBIC)
    return amp__fail(AMP_E_ARGUMENT, "antialias is for the modes bilinear and bicubic, got mode '%s'", modes[mode].name);
  return mode;
}

/* Slots: size 0..8, scale_factor 9..17, mode, align_corners, recompute_scale_factor, antialias */
int amp__comp_interpolate(amp_call *c) {
  const amp_slot *size = c->a, *factor = c->a + 9;
  amp_tensor *x = c->in[0];
  int spatial = x->ndim - 2, mode;
  bool again = c->a[20].i != AMP_NONE && c->a[20].i, by_size = size[0].i != AMP_NONE, by_factor = factor[0].i != AMP_NONE;
  int64_t out[3] = { 1, 1, 1 };
  double scale[3] = { 0, 0, 0 };
  if (spatial < 1 || spatial > 3) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected N x C x L, N x C x H x W or N x C x D x H x W", SHAPE_STR(x));
  if ((mode = mode_of(c, spatial)) < 0) return mode;
  if (by_size == by_factor) return amp__fail(AMP_E_ARGUMENT, "one of size and scale_factor must be given, got %s", by_size ? "both" : "neither");
  if (again && by_size) return amp__fail(AMP_E_ARGUMENT, "recompute_scale_factor needs scale_factor, got size");
  const amp_slot *list = by_size ? size : factor;
  if (list[0].i != 1 && list[0].i != spatial)
    return amp__fail(AMP_E_ARGUMENT, "%s has %lld values, expected 1 or %d for an input of shape %s", by_size ? "size" : "scale_factor", LL(list[0].i), spatial, SHAPE_STR(x));
  for (int i = 0; i < spatial; i++) {
    const amp_slot *v = &list[1 + (list[0].i == 1 ? 0 : i)];
    int64_t *o = &out[3 - spatial + i];
    int d = 2 + i;
    if (x->size[d] < 1) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s: dimension %d is empty", SHAPE_STR(x), d + 1);
    if (by_size) *o = v->i;
    else {
      if (!(v->f > 0) || !isfinite(v->f)) return amp__fail(AMP_E_ARGUMENT, "scale_factor %g must be positive", v->f);
      double n = floor((double)x->size[d] * v->f);
      *o = n < 2147483648.0 ? (int64_t)n : INT64_MAX;
      if (!again) scale[3 - spatial + i] = v->f;
    }
    if (*o < 1 || *o > INT32_MAX)
      return amp__fail(AMP_E_ARGUMENT, by_size ? "size %lld must be at least 1 (and below 2^31)" : "the result would have size %lld in dimension %d", LL(*o), d + 1);
  }
  amp_sl s = amp__sl();
  amp__sl_i(&s, spatial);
  for (int i = 0; i < 3; i++) amp__sl_i(&s, out[i]);
  if (mode == AREA) {
    for (int i = 0; i < 9; i++) amp__sl_i(&s, i < 3 ? 0 : i < 6); /* windows that share out the input */
    amp__sl_i(&s, 0);
    amp__sl_i(&s, AMP_NONE);
    return amp__ret(c, 0, amp__x(AMP_OP_avg_pool, &s, 1, &x));
  }
  amp__sl_i(&s, modes[mode].kernel);
  amp__sl_i(&s, c->a[19].i != AMP_NONE && c->a[19].i);
  amp__sl_i(&s, c->a[21].i);
  for (int i = 0; i < 3; i++) {
    if (scale[i] > 0) amp__sl_f(&s, scale[i]);
    else amp__sl_i(&s, AMP_NONE);
  }
  return amp__ret(c, 0, amp__x(AMP_OP_resample, &s, 1, &x));
}

/* -- affine_grid --------------------------------------------------------------------------- */

/* n places from -1 to 1, at the ends of the line or (align false) in the middle of its n parts; as a column, along
** dimension d of nd */
static amp_tensor *places(const amp_tensor *t, int dtype, int64_t n, bool align, int d, int nd) {
  amp_sl s = amp__sl();
  double end = n > 1 ? align ? 1 : (double)(n - 1) / (double)n : 0;
  int64_t size[4] = { 1, 1, 1, 1 };
  amp__sl_f(&s, n > 1 ? -end : 0);
  amp__sl_f(&s, end);
  amp__sl_i(&s, n);
  amp__sl_i(&s, dtype);
  amp__sl_i(&s, t->device * 256 + t->device_index);
  size[d] = n;
  return amp__xview(amp__x(AMP_OP_linspace, &s, 0, NULL), nd + 1, size);
}

int amp__comp_affine_grid(amp_call *c) {
  const amp_slot *size = c->a;
  amp_tensor *theta = c->in[0], *part[4];
  int n = (int)size[0].i - 2, dtype = theta->dtype, wide = dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  int64_t shape[5], base[4], flat[3];
  bool align = c->a[9].i != 0;
  if (n != 2 && n != 3) return amp__fail(AMP_E_ARGUMENT, "size has %lld values, expected N, C, H, W or N, C, D, H, W", LL(size[0].i));
  if (theta->ndim != 3 || theta->size[0] != size[1].i || theta->size[1] != n || theta->size[2] != n + 1)
    return amp__fail_arg(AMP_E_SHAPE, 1, "theta has shape %s, expected %lld x %d x %d", SHAPE_STR(theta), LL(size[1].i), n, n + 1);
  shape[0] = size[1].i;
  flat[0] = shape[0];
  flat[1] = 1;
  flat[2] = n;
  for (int i = 0; i < n; i++) {
    int64_t m = size[3 + i].i;
    if (m < 1 || m > INT32_MAX) return amp__fail(AMP_E_ARGUMENT, "size %lld must be at least 1", LL(m));
    shape[1 + i] = base[i] = m;
    flat[1] *= m;
    if (flat[1] > INT64_MAX >> 34) return amp__fail(AMP_E_SHAPE, "a grid of so many points is too large");
  }
  shape[1 + n] = n;
  base[n] = 1;
  for (int i = 0; i <= n; i++)
    part[i] = amp__xexpand(i < n ? places(theta, wide, shape[n - i], align, n - 1 - i, n) : amp__xfull(1, wide, theta->device, theta->device_index, n + 1, base), n + 1, base);
  amp_sl s = amp__sl();
  amp__sl_i(&s, -1);
  amp_tensor *grid = amp__x(AMP_OP_cat, &s, n + 1, part);
  int64_t rows[2] = { flat[1], n + 1 };
  grid = amp__xview(grid, 2, rows);
  theta = amp__xcast(theta, wide);
  grid = X2(matmul, grid, theta ? amp__xtranspose(theta, 1, 2) : NULL);
  grid = amp__xview(grid, n + 2, shape);
  return amp__ret(c, 0, grid ? amp__xcast(grid, dtype) : NULL);
}

/* -- Shuffles --------------------------------------------------------------------------------- */

static amp_tensor *permuted(amp_tensor *x, int n, const int64_t *dims) { /* dims from 1 */
  amp_sl s = amp__sl();
  amp__sl_list(&s, n, dims);
  return x ? amp__x(AMP_OP_permute, &s, 1, &x) : NULL;
}

/* dimensions before the last three as one */
static int leading(const amp_tensor *x, int64_t *n) {
  if (x->ndim < 3) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected ... x C x H x W", SHAPE_STR(x));
  *n = 1;
  for (int i = 0; i < x->ndim - 3; i++) *n *= x->size[i];
  return 0;
}

static int want_factor(const char *what, int64_t r) {
  return r < 1 || r > 1 << 20 ? amp__fail(AMP_E_ARGUMENT, "%s %lld must be at least 1 (and at most %d)", what, LL(r), 1 << 20) : 0;
}

static int reshaped(amp_call *c, amp_tensor *y, int64_t ch, int64_t h, int64_t w) {
  const amp_tensor *x = c->in[0];
  int64_t size[AMP_MAX_DIM];
  for (int i = 0; i < x->ndim - 3; i++) size[i] = x->size[i];
  size[x->ndim - 3] = ch;
  size[x->ndim - 2] = h;
  size[x->ndim - 1] = w;
  return amp__ret(c, 0, amp__xview(y, x->ndim, size));
}

int amp__comp_pixel_shuffle(amp_call *c) {
  amp_tensor *x = c->in[0];
  int64_t n = 1, r = c->a[0].i;
  int rc;
  if ((rc = leading(x, &n)) < 0 || (rc = want_factor("upscale_factor", r)) < 0) return rc;
  int64_t ch = x->size[x->ndim - 3], h = x->size[x->ndim - 2], w = x->size[x->ndim - 1];
  if (ch % (r * r)) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s: %lld channels are no multiple of upscale_factor^2 = %lld", SHAPE_STR(x), LL(ch), LL(r * r));
  ch /= r * r;
  amp_tensor *y = amp__xview(x, 6, (int64_t[]){ n, ch, r, r, h, w });
  return reshaped(c, permuted(y, 6, (int64_t[]){ 1, 2, 5, 3, 6, 4 }), ch, h * r, w * r);
}

int amp__comp_pixel_unshuffle(amp_call *c) {
  amp_tensor *x = c->in[0];
  int64_t n = 1, r = c->a[0].i;
  int rc;
  if ((rc = leading(x, &n)) < 0 || (rc = want_factor("downscale_factor", r)) < 0) return rc;
  int64_t ch = x->size[x->ndim - 3], h = x->size[x->ndim - 2], w = x->size[x->ndim - 1];
  if (h % r || w % r) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s: height and width must be multiples of downscale_factor %lld", SHAPE_STR(x), LL(r));
  amp_tensor *y = amp__xview(x, 6, (int64_t[]){ n, ch, h / r, r, w / r, r });
  return reshaped(c, permuted(y, 6, (int64_t[]){ 1, 2, 4, 6, 3, 5 }), ch * r * r, h / r, w / r);
}

int amp__comp_channel_shuffle(amp_call *c) {
  amp_tensor *x = c->in[0];
  int64_t g = c->a[0].i, size[4] = { 0, 0, 0, 1 };
  if (x->ndim < 3) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected N x C x ...", SHAPE_STR(x));
  if (g < 1) return amp__fail(AMP_E_ARGUMENT, "groups %lld must be at least 1", LL(g));
  if (x->size[1] % g) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s: %lld channels are no multiple of groups %lld", SHAPE_STR(x), LL(x->size[1]), LL(g));
  size[0] = x->size[0];
  size[1] = g;
  size[2] = x->size[1] / g;
  for (int i = 2; i < x->ndim; i++) size[3] *= x->size[i];
  return amp__ret(c, 0, amp__xview(permuted(amp__xview(x, 4, size), 4, (int64_t[]){ 1, 3, 2, 4 }), x->ndim, x->size));
}
