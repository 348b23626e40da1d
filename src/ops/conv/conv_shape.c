/*
** ops/conv/conv_shape.c: shape rules of convolutions, their gradients, im2col and
** col2im. Operands have one dtype. Results have channels innermost where the
** data they come from have. The public convolutions are composites
** (ops/conv/conv_composite.c) and check what they are given by the functions here.
*/
#include "ops/conv/conv_geometry.h"
#include "dispatch/shape_rules.h"

const char *const amp__conv_data[4] = { "", "N x C x L", "N x C x H x W", "N x C x D x H x W" };
const char *const amp__conv_weight[4]
    = { "", "out x in/groups x kL", "out x in/groups x kH x kW", "out x in/groups x kD x kH x kW" };
const char *const amp__conv_turned[4]
    = { "", "in x out/groups x kL", "in x out/groups x kH x kW", "in x out/groups x kD x kH x kW" };

/* -- Convolutions ------------------------------------------------------------------- */

int amp__conv_attributes(const args_convolution *args, int spatial)
{
  for (int i = 3 - spatial; i < 3; i++) {
    int64_t stride = args->stride[i], padding = args->padding[i], dilation = args->dilation[i];
    if (stride < 1) return amp__fail(AMP_E_ARGUMENT, "stride %lld must be at least 1", LL(stride));
    if (padding < 0) return amp__fail(AMP_E_ARGUMENT, "padding %lld is negative", LL(padding));
    if (dilation < 1) return amp__fail(AMP_E_ARGUMENT, "dilation %lld must be at least 1", LL(dilation));
    if (padding > INT32_MAX || dilation > INT32_MAX || stride > INT32_MAX)
      return amp__fail(AMP_E_ARGUMENT, "stride %lld, padding %lld or dilation %lld is too large", LL(stride),
                       LL(padding), LL(dilation));
  }
  if (args->groups < 1) return amp__fail(AMP_E_ARGUMENT, "groups %lld must be at least 1", LL(args->groups));
  return 0;
}

int amp__conv_shape(const int64_t *input, const int64_t *weight, int spatial, const args_convolution *args, bool single,
                    int64_t *size)
{
  int64_t groups = args->groups;
  int n = spatial + 2;
  if (weight[0] % groups || input[1] % groups)
    return amp__fail(AMP_E_SHAPE, "groups %lld must divide the channels of input (%lld) and of the result (%lld)",
                     LL(groups), LL(input[1]), LL(weight[0]));
  if (weight[1] != input[1] / groups)
    return amp__fail(
        AMP_E_SHAPE,
        "input %s and weight %s do not match (dimension %d of input is %lld, dimension 2 of weight is %lld, "
        "groups %lld)",
        amp__shape_str(n - single, input + single), amp__shape_str(n, weight), 2 - single, LL(input[1]), LL(weight[1]),
        LL(groups));
  size[0] = input[0];
  size[1] = weight[0];
  for (int i = 0; i < spatial; i++) {
    int axis = 3 - spatial + i;
    int64_t reach, padded = input[2 + i] + 2 * args->padding[axis], dilation = args->dilation[axis];
    if (weight[2 + i] < 1) return amp__fail(AMP_E_SHAPE, "weight %s has an empty kernel", amp__shape_str(n, weight));
    if (input[2 + i] > INT32_MAX || padded > INT32_MAX)
      return amp__fail(AMP_E_SHAPE, "padded input of size %lld (dimension %d) is too large", LL(padded),
                       3 + i - single);
    if (__builtin_mul_overflow(dilation, weight[2 + i] - 1, &reach) || reach + 1 > padded)
      return amp__fail(
          AMP_E_SHAPE,
          "kernel of size %lld (dilation %lld) is larger than the padded input of size %lld (dimension %d)",
          LL(weight[2 + i]), LL(dilation), LL(padded), 3 + i - single);
    size[2 + i] = (padded - reach - 1) / args->stride[axis] + 1;
  }
  return 0;
}

static int want_data(const amp_tensor *input, int arg, const char *what)
{
  if (input->ndim >= 3 && input->ndim <= 5) return 0;
  return amp__fail_arg(AMP_E_SHAPE, arg, "%s has shape %s, expected 3 to 5 dimensions (N x C and 1 to 3 more)", what,
                       SHAPE_OF(input));
}

static int want_weight(const amp_tensor *weight, int spatial)
{
  if (weight->ndim == spatial + 2) return 0;
  return amp__fail_arg(AMP_E_SHAPE, 2, "weight has shape %s, expected %d dimensions (%s)", SHAPE_OF(weight),
                       spatial + 2, amp__conv_weight[spatial]);
}

static int want_bias(const amp_call *call, int64_t channels)
{
  const amp_tensor *bias = call->nin > 2 ? call->in[2] : NULL;
  if (bias == NULL || (bias->ndim == 1 && bias->size[0] == channels)) return 0;
  return amp__fail_arg(AMP_E_SHAPE, 3, "bias has shape %s, expected %lld (an element a channel)", SHAPE_OF(bias),
                       LL(channels));
}

int amp__infer_convolution(amp_call *call)
{
  const args_convolution *args = AMP_ARGS(call, convolution);
  const amp_tensor *input = call->in[0], *weight = call->in[1];
  int64_t size[5];
  int status, n = input->ndim - 2;
  if ((status = amp__equal_dtypes(call, 3)) < 0 || (status = want_data(input, 1, "input")) < 0
      || (status = want_weight(weight, n)) < 0)
    return status;
  if ((status = amp__conv_attributes(args, n)) < 0
      || (status = amp__conv_shape(input->size, weight->size, n, args, false, size)) < 0)
    return status;
  if ((status = want_bias(call, weight->size[0])) < 0) return status;
  amp__out(call, 0, input->dtype, input->ndim, size);
  amp__follow_channels(call, 0, input, n);
  return 0;
}

/* The shape attribute of a gradient, of the rank of grad */
static int result_shape(amp_call *call, int64_t *shape)
{
  int ndim, status;
  if ((status = want_data(call->in[0], 1, "grad")) < 0
      || (status = amp__shape_attr(call->attrs, "shape", &ndim, shape)) < 0)
    return status;
  if (ndim == call->in[0]->ndim) return 0;
  return amp__fail(AMP_E_SHAPE, "shape %s must have the %d dimensions of grad", amp__shape_str(ndim, shape),
                   call->in[0]->ndim);
}

/* bias: of a channel each, or, on a device, anything of the result's shape */
int amp__infer_convolution_input(amp_call *call)
{
  const args_convolution *args = AMP_ARGS_FROM(AMP_ARGS(call, convolution_input), stride, convolution);
  const amp_tensor *grad = call->in[0], *weight = call->in[1];
  int64_t shape[AMP_MAX_DIM], size[5];
  int status, n = grad->ndim - 2;
  if ((status = amp__equal_dtypes(call, 3)) < 0 || (status = result_shape(call, shape)) < 0
      || (status = want_weight(weight, n)) < 0)
    return status;
  if ((status = amp__conv_attributes(args, n)) < 0
      || (status = amp__conv_shape(shape, weight->size, n, args, false, size)) < 0)
    return status;
  const amp_tensor *bias = call->nin > 2 ? call->in[2] : NULL;
  bool whole = bias && bias->device != AMP_CPU && bias->ndim > 1;
  if ((status = amp__want_shape(grad, "grad", n + 2, size)) < 0
      || (status = whole ? amp__want_shape(bias, "bias", n + 2, shape) : want_bias(call, shape[1])) < 0)
    return status;
  amp__out(call, 0, grad->dtype, n + 2, shape);
  amp__follow_channels(call, 0, grad, n);
  return 0;
}

int amp__infer_convolution_weight(amp_call *call)
{
  const args_convolution *args = AMP_ARGS_FROM(AMP_ARGS(call, convolution_weight), stride, convolution);
  const amp_tensor *grad = call->in[0], *input = call->in[1];
  int64_t shape[AMP_MAX_DIM], size[5];
  int status, n = grad->ndim - 2;
  if ((status = amp__equal_dtypes(call, 2)) < 0 || (status = result_shape(call, shape)) < 0) return status;
  if (input->ndim != grad->ndim)
    return amp__fail_arg(AMP_E_SHAPE, 2, "input has shape %s, grad %s: equal ranks are expected", SHAPE_OF(input),
                         SHAPE_OF(grad));
  if ((status = amp__conv_attributes(args, n)) < 0
      || (status = amp__conv_shape(input->size, shape, n, args, false, size)) < 0)
    return status;
  if ((status = amp__want_shape(grad, "grad", n + 2, size)) < 0) return status;
  amp__out(call, 0, grad->dtype, n + 2, shape);
  return 0;
}

/* -- Windows as columns ---------------------------------------------------------------- */

/* Windows along both sizes of an image, whose first dimension is `dim` */
static int windows(const args_im2col *args, const int64_t *image, int dim, int64_t *count)
{
  for (int i = 0; i < 2; i++) {
    int64_t kernel = args->kernel_size[i], dilation = args->dilation[i], padding = args->padding[i],
            stride = args->stride[i], reach, padded;
    if (kernel < 1) return amp__fail(AMP_E_ARGUMENT, "kernel_size %lld must be at least 1", LL(kernel));
    if (dilation < 1) return amp__fail(AMP_E_ARGUMENT, "dilation %lld must be at least 1", LL(dilation));
    if (padding < 0) return amp__fail(AMP_E_ARGUMENT, "padding %lld is negative", LL(padding));
    if (stride < 1) return amp__fail(AMP_E_ARGUMENT, "stride %lld must be at least 1", LL(stride));
    if (kernel > INT32_MAX || dilation > INT32_MAX || padding > INT32_MAX || stride > INT32_MAX || image[i] > INT32_MAX)
      return amp__fail(AMP_E_ARGUMENT,
                       "kernel_size %lld, dilation %lld, padding %lld, stride %lld or size %lld is too large",
                       LL(kernel), LL(dilation), LL(padding), LL(stride), LL(image[i]));
    padded = image[i] + 2 * padding;
    if (__builtin_mul_overflow(dilation, kernel - 1, &reach) || reach + 1 > padded)
      return amp__fail(
          AMP_E_SHAPE,
          "kernel of size %lld (dilation %lld) is larger than the padded input of size %lld (dimension %d)", LL(kernel),
          LL(dilation), LL(padded), dim + i + 1);
    count[i] = (padded - reach - 1) / stride + 1;
  }
  return 0;
}

int amp__infer_im2col(amp_call *call)
{
  const args_im2col *args = AMP_ARGS(call, im2col);
  const amp_tensor *input = call->in[0];
  int64_t count[2], size[3] = { 1 };
  int n = input->ndim, status;
  if (n != 3 && n != 4)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected C x H x W or N x C x H x W", SHAPE_OF(input));
  if ((status = windows(args, input->size + n - 2, n - 2, count)) < 0) return status;
  if (n == 4) size[0] = input->size[0];
  size[1] = input->size[n - 3];
  for (int i = 0; i < 2; i++)
    if (__builtin_mul_overflow(size[1], args->kernel_size[i], &size[1]))
      return amp__fail(AMP_E_SHAPE, "windows of %lldx%lld of an input of shape %s are too many",
                       LL(args->kernel_size[0]), LL(args->kernel_size[1]), SHAPE_OF(input));
  if (__builtin_mul_overflow(count[0], count[1], &size[2]))
    return amp__fail(AMP_E_SHAPE, "%lldx%lld windows are too many", LL(count[0]), LL(count[1]));
  if ((status = amp__check_size(3, size, input->dtype, NULL)) < 0) return status;
  amp__out(call, 0, input->dtype, n - 1, n == 4 ? size : size + 1);
  return 0;
}

int amp__infer_col2im(amp_call *call)
{
  const args_col2im *args = AMP_ARGS(call, col2im);
  const amp_tensor *input = call->in[0];
  const int64_t *image = args->output_size, *kernel = args->kernel_size;
  int64_t count[2], size[4] = { 1 }, k;
  int n = input->ndim, status;
  if (n != 2 && n != 3)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected columns x windows or N x columns x windows",
                         SHAPE_OF(input));
  for (int i = 0; i < 2; i++)
    if (image[i] < 1) return amp__fail(AMP_E_ARGUMENT, "output_size %lld must be at least 1", LL(image[i]));
  if ((status = windows(AMP_ARGS_FROM(args, kernel_size, im2col), image, 1, count)) < 0) return status;
  if (__builtin_mul_overflow(kernel[0], kernel[1], &k) || input->size[n - 2] % k)
    return amp__fail_arg(AMP_E_SHAPE, 1, "dimension %d of input is %lld, expected a multiple of kernel_size %lldx%lld",
                         n - 1, LL(input->size[n - 2]), LL(kernel[0]), LL(kernel[1]));
  int64_t all;
  if (__builtin_mul_overflow(count[0], count[1], &all) || input->size[n - 1] != all)
    return amp__fail_arg(AMP_E_SHAPE, 1,
                         "dimension %d of input is %lld, expected %lldx%lld windows for output_size %lldx%lld", n,
                         LL(input->size[n - 1]), LL(count[0]), LL(count[1]), LL(image[0]), LL(image[1]));
  if (n == 3) size[0] = input->size[0];
  size[1] = input->size[n - 2] / k;
  size[2] = image[0];
  size[3] = image[1];
  if ((status = amp__check_size(4, size, input->dtype, NULL)) < 0) return status;
  amp__out(call, 0, input->dtype, n + 1, n == 3 ? size : size + 1);
  return 0;
}
