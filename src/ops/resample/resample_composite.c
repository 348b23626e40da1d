/*
** ops/resample/resample_composite.c: interpolate, affine_grid and the shuffles of pixels and
** channels. interpolate decides modes, sizes and factors as PyTorch does and
** leaves the work to resample (or, for 'area', avg_pool); the others are views
** and copies.
*/
#include <math.h>
#include "autograd/derivative.h"

#define LL(x) ((long long)(x))
#define SHAPE_STR(t) amp__shape_str((t)->ndim, (t)->size)

/* -- interpolate -------------------------------------------------------------------------- */

static const struct {
  const char *name;
  int low, high; /* spatial dimensions */
  int kernel;    /* resample's mode */
} modes[] = { [INTERPOLATE_MODE_NEAREST] = { "nearest", 1, 3, RESAMPLE_MODE_NEAREST },
              [INTERPOLATE_MODE_LINEAR] = { "linear", 1, 1, RESAMPLE_MODE_LINEAR },
              [INTERPOLATE_MODE_BILINEAR] = { "bilinear", 2, 2, RESAMPLE_MODE_LINEAR },
              [INTERPOLATE_MODE_BICUBIC] = { "bicubic", 2, 2, RESAMPLE_MODE_CUBIC },
              [INTERPOLATE_MODE_TRILINEAR] = { "trilinear", 3, 3, RESAMPLE_MODE_LINEAR },
              [INTERPOLATE_MODE_AREA] = { "area", 1, 3, RESAMPLE_MODE_NEAREST }, /* avg_pool does it */
              [INTERPOLATE_MODE_NEAREST_EXACT] = { "nearest-exact", 1, 3, RESAMPLE_MODE_NEAREST_EXACT } };

static int check_mode(const amp_tensor *input, const args_interpolate *args, int spatial)
{
  int mode = (int)args->mode;
  if (spatial < modes[mode].low || spatial > modes[mode].high)
    return amp__fail(AMP_E_SHAPE, "mode '%s' is for inputs of %d%s dimensions (N x C and %d%s), got shape %s",
                     modes[mode].name, modes[mode].low + 2, modes[mode].high > modes[mode].low ? " to 5" : "",
                     modes[mode].low, modes[mode].high > modes[mode].low ? " to 3" : "", SHAPE_STR(input));
  bool smooth
      = mode != INTERPOLATE_MODE_NEAREST && mode != INTERPOLATE_MODE_AREA && mode != INTERPOLATE_MODE_NEAREST_EXACT;
  if (AMP_GIVEN(args->align_corners) && !smooth)
    return amp__fail(AMP_E_ARGUMENT,
                     "align_corners is for the modes linear, bilinear, bicubic and trilinear, got mode '%s'",
                     modes[mode].name);
  if (args->antialias && mode != INTERPOLATE_MODE_BILINEAR && mode != INTERPOLATE_MODE_BICUBIC)
    return amp__fail(AMP_E_ARGUMENT, "antialias is for the modes bilinear and bicubic, got mode '%s'",
                     modes[mode].name);
  return 0;
}

/* Size of the result's dimensions, as the last of three; the factors it was made with, 0 where size counts */
static int interpolated(const amp_tensor *input, const args_interpolate *args, int64_t *out, double *scale)
{
  int spatial = input->ndim - 2;
  bool by_size = AMP_GIVEN(args->size.n), by_factor = AMP_GIVEN(args->scale_factor.n),
       again = AMP_GIVEN(args->recompute_scale_factor) && args->recompute_scale_factor;
  if (by_size == by_factor)
    return amp__fail(AMP_E_ARGUMENT, "one of size and scale_factor must be given, got %s",
                     by_size ? "both" : "neither");
  if (again && by_size) return amp__fail(AMP_E_ARGUMENT, "recompute_scale_factor needs scale_factor, got size");
  int64_t listed = by_size ? args->size.n : args->scale_factor.n;
  if (listed != 1 && listed != spatial)
    return amp__fail(AMP_E_ARGUMENT, "%s has %lld values, expected 1 or %d for an input of shape %s",
                     by_size ? "size" : "scale_factor", LL(listed), spatial, SHAPE_STR(input));
  for (int i = 0; i < spatial; i++) {
    int from = listed == 1 ? 0 : i, to = 3 - spatial + i, dim = 2 + i;
    if (input->size[dim] < 1)
      return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s: dimension %d is empty", SHAPE_STR(input), dim + 1);
    if (by_size) out[to] = args->size.at[from];
    else {
      double factor = args->scale_factor.at[from];
      if (!(factor > 0) || !isfinite(factor))
        return amp__fail(AMP_E_ARGUMENT, "scale_factor %g must be positive", factor);
      double n = floor((double)input->size[dim] * factor);
      out[to] = n < 2147483648.0 ? (int64_t)n : INT64_MAX;
      if (!again) scale[to] = factor;
    }
    if (out[to] < 1 || out[to] > INT32_MAX)
      return amp__fail(AMP_E_ARGUMENT,
                       by_size ? "size %lld must be at least 1 (and below 2^31)"
                               : "the result would have size %lld in dimension %d",
                       LL(out[to]), dim + 1);
  }
  return 0;
}

int amp__comp_interpolate(amp_call *call)
{
  const args_interpolate *args = AMP_ARGS(call, interpolate);
  amp_tensor *input = call->in[0];
  int spatial = input->ndim - 2, status;
  int64_t out[3] = { 1, 1, 1 };
  double scale[3] = { 0, 0, 0 };
  if (spatial < 1 || spatial > 3)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected N x C x L, N x C x H x W or N x C x D x H x W",
                         SHAPE_STR(input));
  if ((status = check_mode(input, args, spatial)) < 0 || (status = interpolated(input, args, out, scale)) < 0)
    return status;
  amp_attrs attrs = amp__attrs();
  if (args->mode == INTERPOLATE_MODE_AREA) { /* windows that share out the input */
    args_avg_pool area = { .spatial = spatial,
                           .size = { out[0], out[1], out[2] },
                           .kernel_size = { 0, 0, 0 },
                           .stride = { 1, 1, 1 },
                           .divisor = AMP_NONE };
    amp__attrs_all(&attrs, &area);
    return amp__result(call, 0, amp__op(AMP_OP_avg_pool, &attrs, 1, &input));
  }
  amp__attrs_int(&attrs, spatial);
  for (int i = 0; i < 3; i++) amp__attrs_int(&attrs, out[i]);
  amp__attrs_int(&attrs, modes[args->mode].kernel);
  amp__attrs_int(&attrs, AMP_GIVEN(args->align_corners) && args->align_corners);
  amp__attrs_int(&attrs, args->antialias);
  for (int i = 0; i < 3; i++) {
    if (scale[i] > 0) amp__attrs_float(&attrs, scale[i]);
    else amp__attrs_int(&attrs, AMP_NONE);
  }
  return amp__result(call, 0, amp__op(AMP_OP_resample, &attrs, 1, &input));
}

/* -- affine_grid --------------------------------------------------------------------------- */

/* count places from -1 to 1, at the ends of the line or (align false) in the middle of its `count` parts; as a
** column, along dimension dim of ndim */
static amp_tensor *places(const amp_tensor *tensor, int dtype, int64_t count, bool align, int dim, int ndim)
{
  amp_attrs attrs = amp__attrs();
  double end = count > 1 ? align ? 1 : (double)(count - 1) / (double)count : 0;
  int64_t size[4] = { 1, 1, 1, 1 };
  amp__attrs_float(&attrs, count > 1 ? -end : 0);
  amp__attrs_float(&attrs, end);
  amp__attrs_int(&attrs, count);
  amp__attrs_int(&attrs, dtype);
  amp__attrs_int(&attrs, tensor->device * 256 + tensor->device_index);
  size[dim] = count;
  return amp__op_view(amp__op(AMP_OP_linspace, &attrs, 0, NULL), ndim + 1, size);
}

int amp__comp_affine_grid(amp_call *call)
{
  const args_affine_grid *args = AMP_ARGS(call, affine_grid);
  const int64_t *size = args->size.at;
  amp_tensor *theta = call->in[0], *part[4];
  int count = (int)args->size.n - 2, dtype = theta->dtype, wide = dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  int64_t shape[5], base[4], flat[3];
  bool align = args->align_corners != 0;
  if (count != 2 && count != 3)
    return amp__fail(AMP_E_ARGUMENT, "size has %lld values, expected N, C, H, W or N, C, D, H, W", LL(args->size.n));
  if (theta->ndim != 3 || theta->size[0] != size[0] || theta->size[1] != count || theta->size[2] != count + 1)
    return amp__fail_arg(AMP_E_SHAPE, 1, "theta has shape %s, expected %lld x %d x %d", SHAPE_STR(theta), LL(size[0]),
                         count, count + 1);
  shape[0] = size[0];
  flat[0] = shape[0];
  flat[1] = 1;
  flat[2] = count;
  for (int i = 0; i < count; i++) {
    int64_t m = size[2 + i];
    if (m < 1 || m > INT32_MAX) return amp__fail(AMP_E_ARGUMENT, "size %lld must be at least 1", LL(m));
    shape[1 + i] = base[i] = m;
    flat[1] *= m;
    if (flat[1] > INT64_MAX >> 34) return amp__fail(AMP_E_SHAPE, "a grid of so many points is too large");
  }
  shape[1 + count] = count;
  base[count] = 1;
  for (int i = 0; i <= count; i++)
    part[i] = amp__op_expand(i < count ? places(theta, wide, shape[count - i], align, count - 1 - i, count)
                                       : amp__op_full(1, wide, theta->device, theta->device_index, count + 1, base),
                             count + 1, base);
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, -1);
  amp_tensor *grid = amp__op(AMP_OP_cat, &attrs, count + 1, part);
  int64_t rows[2] = { flat[1], count + 1 };
  grid = amp__op_view(grid, 2, rows);
  theta = amp__op_cast(theta, wide);
  grid = OP2(matmul, grid, theta ? amp__op_transpose(theta, 1, 2) : NULL);
  grid = amp__op_view(grid, count + 2, shape);
  return amp__result(call, 0, grid ? amp__op_cast(grid, dtype) : NULL);
}

/* -- Shuffles --------------------------------------------------------------------------------- */

static amp_tensor *permuted(amp_tensor *input, int count, const int64_t *dims)
{ /* dims from 1 */
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, count, dims);
  return input ? amp__op(AMP_OP_permute, &attrs, 1, &input) : NULL;
}

/* dimensions before the last three as one */
static int leading(const amp_tensor *input, int64_t *n)
{
  if (input->ndim < 3)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected ... x C x H x W", SHAPE_STR(input));
  *n = 1;
  for (int i = 0; i < input->ndim - 3; i++) *n *= input->size[i];
  return 0;
}

static int want_factor(const char *what, int64_t factor)
{
  return factor < 1 || factor > 1 << 20
             ? amp__fail(AMP_E_ARGUMENT, "%s %lld must be at least 1 (and at most %d)", what, LL(factor), 1 << 20)
             : 0;
}

static int reshaped(amp_call *call, amp_tensor *output, int64_t channels, int64_t height, int64_t width)
{
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM];
  for (int i = 0; i < input->ndim - 3; i++) size[i] = input->size[i];
  size[input->ndim - 3] = channels;
  size[input->ndim - 2] = height;
  size[input->ndim - 1] = width;
  return amp__result(call, 0, amp__op_view(output, input->ndim, size));
}

int amp__comp_pixel_shuffle(amp_call *call)
{
  amp_tensor *input = call->in[0];
  int64_t count = 1, factor = AMP_ARGS(call, pixel_shuffle)->upscale_factor;
  int status;
  if ((status = leading(input, &count)) < 0 || (status = want_factor("upscale_factor", factor)) < 0) return status;
  int64_t channels = input->size[input->ndim - 3], height = input->size[input->ndim - 2],
          width = input->size[input->ndim - 1];
  if (channels % (factor * factor))
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s: %lld channels are no multiple of upscale_factor^2 = %lld",
                         SHAPE_STR(input), LL(channels), LL(factor * factor));
  channels /= factor * factor;
  amp_tensor *output = amp__op_view(input, 6, (int64_t[]){ count, channels, factor, factor, height, width });
  return reshaped(call, permuted(output, 6, (int64_t[]){ 1, 2, 5, 3, 6, 4 }), channels, height * factor,
                  width * factor);
}

int amp__comp_pixel_unshuffle(amp_call *call)
{
  amp_tensor *input = call->in[0];
  int64_t count = 1, factor = AMP_ARGS(call, pixel_unshuffle)->downscale_factor;
  int status;
  if ((status = leading(input, &count)) < 0 || (status = want_factor("downscale_factor", factor)) < 0) return status;
  int64_t channels = input->size[input->ndim - 3], height = input->size[input->ndim - 2],
          width = input->size[input->ndim - 1];
  if (height % factor || width % factor)
    return amp__fail_arg(AMP_E_SHAPE, 1,
                         "input has shape %s: height and width must be multiples of downscale_factor %lld",
                         SHAPE_STR(input), LL(factor));
  amp_tensor *output
      = amp__op_view(input, 6, (int64_t[]){ count, channels, height / factor, factor, width / factor, factor });
  return reshaped(call, permuted(output, 6, (int64_t[]){ 1, 2, 4, 6, 3, 5 }), channels * factor * factor,
                  height / factor, width / factor);
}

int amp__comp_channel_shuffle(amp_call *call)
{
  amp_tensor *input = call->in[0];
  int64_t groups = AMP_ARGS(call, channel_shuffle)->groups, size[4] = { 0, 0, 0, 1 };
  if (input->ndim < 3)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected N x C x ...", SHAPE_STR(input));
  if (groups < 1) return amp__fail(AMP_E_ARGUMENT, "groups %lld must be at least 1", LL(groups));
  if (input->size[1] % groups)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s: %lld channels are no multiple of groups %lld",
                         SHAPE_STR(input), LL(input->size[1]), LL(groups));
  size[0] = input->size[0];
  size[1] = groups;
  size[2] = input->size[1] / groups;
  for (int i = 2; i < input->ndim; i++) size[3] *= input->size[i];
  return amp__result(
      call, 0,
      amp__op_view(permuted(amp__op_view(input, 4, size), 4, (int64_t[]){ 1, 3, 2, 4 }), input->ndim, input->size));
}
