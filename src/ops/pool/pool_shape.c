/*
** ops/pool/pool_shape.c: shape rules of the kernels of pooling and padding.
** The public pooling ops are composites (ops/pool/pool_composite.c), which know what a
** user may ask; here only what a kernel relies on is checked: ranks, sizes that
** belong together, attributes within 32 bits. Results have channels innermost
** where the input has.
*/
#include "dispatch/shape_rules.h"
#include "ops/pool/pool_windows.h"

/* Is tensor dense with channels (the dimension before the last `spatial`) innermost, and not C order too? */
static bool channels_inside(const amp_tensor *tensor, int spatial)
{
  int c = tensor->ndim - spatial - 1;
  int64_t count = tensor->size[c];
  if ((tensor->flags & (AMP_T_DENSE | AMP_T_CONTIGUOUS)) != AMP_T_DENSE || (count != 1 && tensor->stride[c] != 1))
    return false;
  for (int dim = tensor->ndim - 1; dim >= 0; dim--) {
    if (dim == c) continue;
    if (tensor->size[dim] != 1 && tensor->stride[dim] != count) return false;
    count *= tensor->size[dim];
  }
  return true;
}

/* Result i in that layout if tensor has it */
void amp__follow_channels(amp_call *call, int i, const amp_tensor *tensor, int spatial)
{
  amp_meta *meta = &call->meta[i];
  if (meta->ndim != tensor->ndim || !channels_inside(tensor, spatial)) return;
  int ch = meta->ndim - spatial - 1;
  int64_t count = meta->size[ch] > 1 ? meta->size[ch] : 1;
  meta->strides = 1;
  meta->stride[ch] = 1;
  for (int dim = meta->ndim - 1; dim >= 0; dim--) {
    if (dim == ch) continue;
    meta->stride[dim] = count;
    count *= meta->size[dim] > 1 ? meta->size[dim] : 1;
  }
}

static int want_spatial(const amp_tensor *tensor, int arg, const char *what, int64_t spatial)
{
  if (spatial < 1 || spatial > 3) return amp__fail(AMP_E_ARGUMENT, "spatial %lld must lie in 1..3", LL(spatial));
  if (tensor->ndim == spatial + 1 || tensor->ndim == spatial + 2) return 0;
  return amp__fail_arg(AMP_E_SHAPE, arg, "%s has shape %s, expected %d or %d dimensions", what, SHAPE_OF(tensor),
                       (int)spatial + 1, (int)spatial + 2);
}

static int within(const int64_t *value, const char *what, int64_t low)
{
  for (int i = 0; i < 3; i++)
    if (value[i] < low || value[i] > INT32_MAX)
      return amp__fail(AMP_E_ARGUMENT, "%s %lld must lie in %lld..%d", what, LL(value[i]), LL(low), INT32_MAX);
  return 0;
}

/* -- Windows ------------------------------------------------------------------------- */

/* `size` becomes that of the result for an input of size x. */
static int windows(const args_pool_windows *args, int ndim, const int64_t *x, int64_t *size)
{
  int spatial = (int)args->spatial, status;
  if ((status = within(args->size, "size", 0)) < 0 || (status = within(args->kernel_size, "kernel_size", 0)) < 0
      || (status = within(args->stride, "stride", 1)) < 0 || (status = within(args->padding, "padding", 0)) < 0)
    return status;
  for (int i = 0; i < ndim; i++) size[i] = x[i];
  for (int i = 0; i < spatial; i++) {
    int dim = ndim - spatial + i;
    size[dim] = args->size[3 - spatial + i];
    if (x[dim] == 0 && size[dim] > 0)
      return amp__fail(AMP_E_SHAPE, "input of shape %s is empty in dimension %d and has no windows",
                       amp__shape_str(ndim, x), dim + 1);
  }
  return amp__check_size(ndim, size, AMP_FLOAT64, NULL);
}

int amp__infer_max_pool(amp_call *call)
{
  const args_max_pool *args = AMP_ARGS(call, max_pool);
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM];
  int status;
  if ((status = want_spatial(input, 1, "input", args->spatial)) < 0
      || (status = windows(POOL_WINDOWS(args), input->ndim, input->size, size)) < 0
      || (status = within(args->dilation, "dilation", 1)) < 0)
    return status;
  amp__out(call, 0, input->dtype, input->ndim, size);
  amp__out(call, 1, AMP_INT64, input->ndim, size);
  for (int i = 0; i < 2; i++) amp__follow_channels(call, i, input, (int)args->spatial);
  return 0;
}

int amp__infer_avg_pool(amp_call *call)
{
  const args_avg_pool *args = AMP_ARGS(call, avg_pool);
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM];
  int status;
  if ((status = want_spatial(input, 1, "input", args->spatial)) < 0
      || (status = windows(POOL_WINDOWS(args), input->ndim, input->size, size)) < 0)
    return status;
  amp__out(call, 0, input->dtype, input->ndim, size);
  amp__follow_channels(call, 0, input, (int)args->spatial);
  return 0;
}

int amp__infer_avg_pool_backward(amp_call *call)
{
  const args_avg_pool_backward *args = AMP_ARGS(call, avg_pool_backward);
  const amp_tensor *grad = call->in[0];
  int64_t shape[AMP_MAX_DIM], size[AMP_MAX_DIM];
  int status, ndim;
  if ((status = amp__shape_attr(call->attrs, "shape", &ndim, shape)) < 0
      || (status = want_spatial(grad, 1, "grad", args->spatial)) < 0)
    return status;
  if (ndim != grad->ndim) return amp__want_shape(grad, "grad", ndim, shape);
  if ((status = windows(POOL_WINDOWS(args), ndim, shape, size)) < 0
      || (status = amp__want_shape(grad, "grad", ndim, size)) < 0)
    return status;
  amp__out(call, 0, grad->dtype, ndim, shape);
  amp__follow_channels(call, 0, grad, (int)args->spatial);
  return 0;
}

/* -- Places ------------------------------------------------------------------------------ */

static int want_places(const amp_call *call)
{
  const amp_tensor *input = call->in[0], *tensor = call->in[1];
  if (!amp__is_float(input->dtype))
    return amp__fail_arg(AMP_E_DTYPE, 1, "input has dtype %s, expected a float dtype", amp_dtype_name(input->dtype));
  if (tensor->dtype == AMP_INT64) return 0;
  return amp__fail_arg(AMP_E_DTYPE, 2, "indices have dtype %s, expected int64", amp_dtype_name(tensor->dtype));
}

int amp__infer_pool_scatter(amp_call *call)
{
  const amp_tensor *grad = call->in[0];
  int64_t shape[AMP_MAX_DIM], spatial = AMP_ARGS(call, pool_scatter)->spatial;
  int ndim, status;
  if ((status = want_places(call)) < 0 || (status = want_spatial(grad, 1, "input", spatial)) < 0) return status;
  if ((status = amp__want_shape(call->in[1], "indices", grad->ndim, grad->size)) < 0
      || (status = amp__shape_attr(call->attrs, "shape", &ndim, shape)) < 0)
    return status;
  if (ndim != grad->ndim || memcmp(shape, grad->size, sizeof *shape * (size_t)(ndim - spatial)) != 0)
    return amp__fail(AMP_E_SHAPE, "input of shape %s does not belong to a result of shape %s", SHAPE_OF(grad),
                     amp__shape_str(ndim, shape));
  amp__out(call, 0, grad->dtype, ndim, shape);
  amp__follow_channels(call, 0, call->in[1], (int)spatial);
  return 0;
}

int amp__infer_pool_gather(amp_call *call)
{
  const amp_tensor *input = call->in[0], *tensor = call->in[1];
  int64_t spatial = AMP_ARGS(call, pool_gather)->spatial;
  int status;
  if ((status = want_places(call)) < 0 || (status = want_spatial(input, 1, "input", spatial)) < 0) return status;
  if (tensor->ndim != input->ndim
      || memcmp(tensor->size, input->size, sizeof *tensor->size * (size_t)(input->ndim - spatial)) != 0)
    return amp__fail(AMP_E_SHAPE, "indices of shape %s do not belong to an input of shape %s", SHAPE_OF(tensor),
                     SHAPE_OF(input));
  amp__out(call, 0, input->dtype, tensor->ndim, tensor->size);
  amp__follow_channels(call, 0, tensor, (int)spatial);
  return 0;
}

/* -- Resampling ---------------------------------------------------------------------------- */

static int resampled(const args_resample *args, int ndim, const int64_t *x, int64_t *size)
{
  const double *const scales[3] = { &args->scale1, &args->scale2, &args->scale3 };
  int spatial = (int)args->spatial, status;
  if ((status = within(args->size, "size", 1)) < 0) return status;
  for (int i = 0; i < ndim; i++) size[i] = x[i];
  for (int i = 0; i < spatial; i++) {
    int dim = ndim - spatial + i;
    const double *scale = scales[3 - spatial + i];
    size[dim] = args->size[3 - spatial + i];
    if (x[dim] < 1 || x[dim] > INT32_MAX)
      return amp__fail(AMP_E_SHAPE, "input of shape %s can't be resampled: dimension %d has %lld elements",
                       amp__shape_str(ndim, x), dim + 1, LL(x[dim]));
    if (AMP_GIVEN(*scale) && !(*scale > 0)) return amp__fail(AMP_E_ARGUMENT, "scale %g must be positive", *scale);
  }
  return amp__check_size(ndim, size, AMP_FLOAT64, NULL);
}

int amp__infer_resample(amp_call *call)
{
  const args_resample *args = AMP_ARGS(call, resample);
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM];
  int status;
  if ((status = want_spatial(input, 1, "input", args->spatial)) < 0
      || (status = resampled(args, input->ndim, input->size, size)) < 0)
    return status;
  amp__out(call, 0, input->dtype, input->ndim, size);
  amp__follow_channels(call, 0, input, (int)args->spatial);
  return 0;
}

int amp__infer_resample_backward(amp_call *call)
{
  const args_resample_backward *args = AMP_ARGS(call, resample_backward);
  const amp_tensor *grad = call->in[0];
  int64_t shape[AMP_MAX_DIM], size[AMP_MAX_DIM];
  int status, ndim;
  if ((status = amp__shape_attr(call->attrs, "shape", &ndim, shape)) < 0
      || (status = want_spatial(grad, 1, "grad", args->spatial)) < 0)
    return status;
  if (ndim != grad->ndim) return amp__want_shape(grad, "grad", ndim, shape);
  if ((status = resampled(AMP_ARGS_FROM(args, spatial, resample), ndim, shape, size)) < 0
      || (status = amp__want_shape(grad, "grad", ndim, size)) < 0)
    return status;
  amp__out(call, 0, grad->dtype, ndim, shape);
  amp__follow_channels(call, 0, grad, (int)args->spatial);
  return 0;
}

/* -- Grids ------------------------------------------------------------------------------------ */

/* input and grid, arguments `arg` and the next */
static int want_grid(const amp_tensor *input, const amp_tensor *tensor, int arg, int64_t mode)
{
  int count = input->ndim - 2;
  if (count != 2 && count != 3)
    return amp__fail_arg(AMP_E_SHAPE, arg, "input has shape %s, expected N x C x H x W or N x C x D x H x W",
                         SHAPE_OF(input));
  if (tensor->ndim != input->ndim || tensor->size[tensor->ndim - 1] != count || tensor->size[0] != input->size[0])
    return amp__fail_arg(AMP_E_SHAPE, arg + 1, "grid has shape %s, expected %lld x %s x %d for an input of shape %s",
                         SHAPE_OF(tensor), LL(input->size[0]), count == 2 ? "H x W" : "D x H x W", count,
                         SHAPE_OF(input));
  if (mode == GRID_SAMPLE_MODE_BICUBIC && count == 3)
    return amp__fail(AMP_E_ARGUMENT, "mode 'bicubic' is for inputs of 4 dimensions, got shape %s", SHAPE_OF(input));
  for (int dim = 2; dim < input->ndim; dim++)
    if (input->size[dim] < 1 || input->size[dim] > INT32_MAX)
      return amp__fail_arg(AMP_E_SHAPE, arg, "input of shape %s has nothing to sample in dimension %d", SHAPE_OF(input),
                           dim + 1);
  return 0;
}

static void sampled(const amp_tensor *input, const amp_tensor *tensor, int64_t *size)
{
  size[0] = input->size[0];
  size[1] = input->size[1];
  for (int dim = 2; dim < input->ndim; dim++) size[dim] = tensor->size[dim - 1];
}

int amp__infer_grid_sample(amp_call *call)
{
  const amp_tensor *input = call->in[0], *tensor = call->in[1];
  int64_t size[AMP_MAX_DIM];
  int status;
  if ((status = amp__equal_dtypes(call, 2)) < 0
      || (status = want_grid(input, tensor, 1, AMP_ARGS(call, grid_sample)->mode)) < 0)
    return status;
  sampled(input, tensor, size);
  amp__out(call, 0, input->dtype, input->ndim, size);
  return 0;
}

int amp__infer_grid_sample_backward(amp_call *call)
{
  const amp_tensor *grad = call->in[0], *input = call->in[1], *tensor = call->in[2];
  int64_t size[AMP_MAX_DIM];
  int status;
  if ((status = amp__equal_dtypes(call, 3)) < 0
      || (status = want_grid(input, tensor, 2, AMP_ARGS(call, grid_sample_backward)->mode)) < 0)
    return status;
  sampled(input, tensor, size);
  if ((status = amp__want_shape(grad, "grad", input->ndim, size)) < 0) return status;
  amp__out(call, 0, input->dtype, input->ndim, input->size);
  amp__out(call, 1, tensor->dtype, tensor->ndim, tensor->size);
  return 0;
}

int amp__infer_grid_sample_double(amp_call *call)
{
  const amp_tensor *input = call->in[1], *tensor = call->in[2];
  int status;
  if ((status = amp__equal_dtypes(call, 5)) < 0 || (status = amp__infer_grid_sample_backward(call)) < 0) return status;
  if ((status = amp__want_shape(call->in[3], "ginput", input->ndim, input->size)) < 0
      || (status = amp__want_shape(call->in[4], "ggrid", tensor->ndim, tensor->size)) < 0)
    return status;
  amp__out(call, 0, input->dtype, input->ndim, call->in[0]->size);
  amp__out(call, 1, input->dtype, input->ndim, input->size);
  amp__out(call, 2, tensor->dtype, tensor->ndim, tensor->size);
  return 0;
}

/* -- Padding ---------------------------------------------------------------------------------- */

static const char *const pad_mode[] = { "constant", "reflect", "replicate", "circular" };

/* Dimension dim of `count` elements with `before` and `after` added: may mode do that? */
static int check_padding(int ndim, const int64_t *x, int dim, int64_t before, int64_t after, int64_t mode)
{
  int64_t count = x[dim], most = count;
  if (before > INT32_MAX || after > INT32_MAX || before < -INT32_MAX || after < -INT32_MAX)
    return amp__fail(AMP_E_ARGUMENT, "pad %lld is too large",
                     LL(before > INT32_MAX || before < -INT32_MAX ? before : after));
  bool none_left = count + before + after < 0;
  if (none_left || (mode == PAD_MODE_CONSTANT && (before + count < 0 || after + count < 0)))
    return amp__fail(AMP_E_SHAPE, "pad (%lld, %lld) takes more than the %lld elements of dimension %d", LL(before),
                     LL(after), LL(count), dim + 1);
  if (mode == PAD_MODE_CONSTANT) return 0;
  if (mode == PAD_MODE_REFLECT) most--;
  if (mode == PAD_MODE_CIRCULAR) most += (before < 0 ? before : 0) + (after < 0 ? after : 0);
  if (mode != PAD_MODE_REPLICATE && (before > most || after > most))
    return amp__fail(AMP_E_SHAPE,
                     "pad (%lld, %lld) must be at most %lld in mode '%s' for the %lld elements of dimension %d",
                     LL(before), LL(after), LL(most), pad_mode[mode], LL(count), dim + 1);
  if (count + before + after > 0 && count < 1)
    return amp__fail(AMP_E_SHAPE, "mode '%s' needs elements in dimension %d, got shape %s", pad_mode[mode], dim + 1,
                     amp__shape_str(ndim, x));
  if (-before >= count || -after >= count)
    return amp__fail(AMP_E_SHAPE, "pad (%lld, %lld) takes all of the %lld elements of dimension %d", LL(before),
                     LL(after), LL(count), dim + 1);
  return 0;
}

/* Shape of x padded with `count` values (before, after; the last dimension first) */
static int padded(int64_t count, const int64_t *pad, int64_t mode, int ndim, const int64_t *x, int64_t *size)
{
  if (mode < PAD_MODE_CONSTANT || mode > PAD_MODE_CIRCULAR)
    return amp__fail(AMP_E_ARGUMENT, "there is no padding mode %lld", LL(mode));
  if (count % 2)
    return amp__fail(AMP_E_ARGUMENT, "pad has %lld values, expected pairs (before, after), the last dimension first",
                     LL(count));
  if (count / 2 > ndim)
    return amp__fail(AMP_E_ARGUMENT, "pad has %lld values, too many for an input of shape %s", LL(count),
                     amp__shape_str(ndim, x));
  if (mode != PAD_MODE_CONSTANT && (count < 2 || count > 6 || ndim < count / 2 + 1 || ndim > count / 2 + 2))
    return amp__fail(AMP_E_ARGUMENT,
                     "mode '%s' takes 2, 4 or 6 values of pad for an input of 1, 2 or 3 dimensions more than "
                     "C or N x C, got %lld values for shape %s",
                     pad_mode[mode], LL(count), amp__shape_str(ndim, x));
  for (int i = 0; i < ndim; i++) size[i] = x[i];
  for (int i = 0; i < count / 2; i++) {
    int dim = ndim - 1 - i, status = check_padding(ndim, x, dim, pad[2 * i], pad[2 * i + 1], mode);
    if (status < 0) return status;
    size[dim] = x[dim] + pad[2 * i] + pad[2 * i + 1];
  }
  return amp__check_size(ndim, size, AMP_FLOAT64, NULL);
}

int amp__infer_pad(amp_call *call)
{
  const args_pad *args = AMP_ARGS(call, pad);
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM];
  int status;
  if ((status = padded(args->pad.n, args->pad.at, args->mode, input->ndim, input->size, size)) < 0) return status;
  if (args->mode == PAD_MODE_CONSTANT && (status = amp__value_fits(args->value, input->dtype)) < 0) return status;
  amp__out(call, 0, input->dtype, input->ndim, size);
  if (input->ndim >= 4) amp__follow_channels(call, 0, input, input->ndim - 2);
  return 0;
}

int amp__infer_pad_backward(amp_call *call)
{
  const args_pad_backward *args = AMP_ARGS(call, pad_backward);
  const amp_tensor *grad = call->in[0];
  int64_t shape[AMP_MAX_DIM], size[AMP_MAX_DIM];
  int ndim, status;
  if ((status = amp__shape_attr(call->attrs, "shape", &ndim, shape)) < 0
      || (status = padded(args->pad.n, args->pad.at, args->mode, ndim, shape, size)) < 0
      || (status = amp__want_shape(grad, "grad", ndim, size)) < 0)
    return status;
  amp__out(call, 0, grad->dtype, ndim, shape);
  return 0;
}
