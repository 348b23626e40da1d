/*
** amp_infer_conv.c: shape rules of convolutions, their gradients, im2col and
** col2im. Operands have one dtype. Results have channels innermost where the
** data they come from have. The public convolutions are composites
** (amp_comp_conv.c) and check what they are given by the functions here.
*/
#include "amp_conv.h"
#include "amp_infer.h"

const char *const amp__conv_data[4] = { "", "N x C x L", "N x C x H x W", "N x C x D x H x W" };
const char *const amp__conv_weight[4] = { "", "out x in/groups x kL", "out x in/groups x kH x kW", "out x in/groups x kD x kH x kW" };
const char *const amp__conv_turned[4] = { "", "in x out/groups x kL", "in x out/groups x kH x kW", "in x out/groups x kD x kH x kW" };

/* -- Convolutions ------------------------------------------------------------------- */

int amp__conv_attributes(const amp_slot *a, int spatial)
{
  for (int i = 3 - spatial; i < 3; i++) {
    int64_t s = a[CONV_STRIDE + i].i, p = a[CONV_PADDING + i].i, d = a[CONV_DILATION + i].i;
    if (s < 1) return amp__fail(AMP_E_ARGUMENT, "stride %lld must be at least 1", LL(s));
    if (p < 0) return amp__fail(AMP_E_ARGUMENT, "padding %lld is negative", LL(p));
    if (d < 1) return amp__fail(AMP_E_ARGUMENT, "dilation %lld must be at least 1", LL(d));
    if (p > INT32_MAX || d > INT32_MAX || s > INT32_MAX) return amp__fail(AMP_E_ARGUMENT, "stride %lld, padding %lld or dilation %lld is too large", LL(s), LL(p), LL(d));
  }
  if (a[CONV_GROUPS].i < 1) return amp__fail(AMP_E_ARGUMENT, "groups %lld must be at least 1", LL(a[CONV_GROUPS].i));
  return 0;
}

int amp__conv_shape(const int64_t *x, const int64_t *w, int spatial, const amp_slot *a, bool single, int64_t *size)
{
  int64_t groups = a[CONV_GROUPS].i;
  int n = spatial + 2;
  if (w[0] % groups || x[1] % groups)
    return amp__fail(AMP_E_SHAPE, "groups %lld must divide the channels of input (%lld) and of the result (%lld)", LL(groups), LL(x[1]), LL(w[0]));
  if (w[1] != x[1] / groups)
    return amp__fail(AMP_E_SHAPE, "input %s and weight %s do not match (dimension %d of input is %lld, dimension 2 of weight is %lld, groups %lld)",
                     amp__shape_str(n - single, x + single), amp__shape_str(n, w), 2 - single, LL(x[1]), LL(w[1]), LL(groups));
  size[0] = x[0];
  size[1] = w[0];
  for (int i = 0; i < spatial; i++) {
    int at = 3 - spatial + i;
    int64_t reach, padded = x[2 + i] + 2 * a[CONV_PADDING + at].i, d = a[CONV_DILATION + at].i;
    if (w[2 + i] < 1) return amp__fail(AMP_E_SHAPE, "weight %s has an empty kernel", amp__shape_str(n, w));
    if (x[2 + i] > INT32_MAX || padded > INT32_MAX)
      return amp__fail(AMP_E_SHAPE, "padded input of size %lld (dimension %d) is too large", LL(padded), 3 + i - single);
    if (__builtin_mul_overflow(d, w[2 + i] - 1, &reach) || reach + 1 > padded)
      return amp__fail(AMP_E_SHAPE, "kernel of size %lld (dilation %lld) is larger than the padded input of size %lld (dimension %d)", LL(w[2 + i]), LL(d), LL(padded), 3 + i - single);
    size[2 + i] = (padded - reach - 1) / a[CONV_STRIDE + at].i + 1;
  }
  return 0;
}

static int want_data(const amp_tensor *t, int arg, const char *what)
{
  if (t->ndim >= 3 && t->ndim <= 5) return 0;
  return amp__fail_arg(AMP_E_SHAPE, arg, "%s has shape %s, expected 3 to 5 dimensions (N x C and 1 to 3 more)", what, SHAPE_OF(t));
}

static int want_weight(const amp_tensor *w, int spatial)
{
  if (w->ndim == spatial + 2) return 0;
  return amp__fail_arg(AMP_E_SHAPE, 2, "weight has shape %s, expected %d dimensions (%s)", SHAPE_OF(w), spatial + 2, amp__conv_weight[spatial]);
}

static int want_bias(const amp_call *c, int64_t channels)
{
  const amp_tensor *b = c->nin > 2 ? c->in[2] : NULL;
  if (b == NULL || (b->ndim == 1 && b->size[0] == channels)) return 0;
  return amp__fail_arg(AMP_E_SHAPE, 3, "bias has shape %s, expected %lld (an element a channel)", SHAPE_OF(b), LL(channels));
}

int amp__infer_convolution(amp_call *c)
{
  const amp_tensor *x = c->in[0], *w = c->in[1];
  int64_t size[5];
  int rc, n = x->ndim - 2;
  if ((rc = amp__equal_dtypes(c, 3)) < 0 || (rc = want_data(x, 1, "input")) < 0 || (rc = want_weight(w, n)) < 0) return rc;
  if ((rc = amp__conv_attributes(c->a, n)) < 0 || (rc = amp__conv_shape(x->size, w->size, n, c->a, false, size)) < 0) return rc;
  if ((rc = want_bias(c, w->size[0])) < 0) return rc;
  amp__out(c, 0, x->dtype, x->ndim, size);
  amp__follow_channels(c, 0, x, n);
  return 0;
}

/* The shape attribute of a gradient, of the rank of grad */
static int result_shape(amp_call *c, int64_t *shape)
{
  int ndim, rc;
  if ((rc = want_data(c->in[0], 1, "grad")) < 0 || (rc = amp__shape_attr(c->a, "shape", &ndim, shape)) < 0) return rc;
  if (ndim == c->in[0]->ndim) return 0;
  return amp__fail(AMP_E_SHAPE, "shape %s must have the %d dimensions of grad", amp__shape_str(ndim, shape), c->in[0]->ndim);
}

/* bias: of a channel each, or, on a device, anything of the result's shape */
int amp__infer_convolution_input(amp_call *c)
{
  const amp_tensor *g = c->in[0], *w = c->in[1];
  int64_t shape[AMP_MAX_DIM], size[5];
  int rc, n = g->ndim - 2;
  if ((rc = amp__equal_dtypes(c, 3)) < 0 || (rc = result_shape(c, shape)) < 0 || (rc = want_weight(w, n)) < 0) return rc;
  if ((rc = amp__conv_attributes(c->a + 9, n)) < 0 || (rc = amp__conv_shape(shape, w->size, n, c->a + 9, false, size)) < 0) return rc;
  const amp_tensor *b = c->nin > 2 ? c->in[2] : NULL;
  bool whole = b && b->device != AMP_CPU && b->ndim > 1;
  if ((rc = amp__want_shape(g, "grad", n + 2, size)) < 0 || (rc = whole ? amp__want_shape(b, "bias", n + 2, shape) : want_bias(c, shape[1])) < 0) return rc;
  amp__out(c, 0, g->dtype, n + 2, shape);
  amp__follow_channels(c, 0, g, n);
  return 0;
}

int amp__infer_convolution_weight(amp_call *c)
{
  const amp_tensor *g = c->in[0], *x = c->in[1];
  int64_t shape[AMP_MAX_DIM], size[5];
  int rc, n = g->ndim - 2;
  if ((rc = amp__equal_dtypes(c, 2)) < 0 || (rc = result_shape(c, shape)) < 0) return rc;
  if (x->ndim != g->ndim) return amp__fail_arg(AMP_E_SHAPE, 2, "input has shape %s, grad %s: equal ranks are expected", SHAPE_OF(x), SHAPE_OF(g));
  if ((rc = amp__conv_attributes(c->a + 9, n)) < 0 || (rc = amp__conv_shape(x->size, shape, n, c->a + 9, false, size)) < 0) return rc;
  if ((rc = amp__want_shape(g, "grad", n + 2, size)) < 0) return rc;
  amp__out(c, 0, g->dtype, n + 2, shape);
  return 0;
}

/* -- Windows as columns ---------------------------------------------------------------- */

/* Slots: kernel_size, dilation, padding, stride, two each. Windows along both sizes of an image. */
static int windows(const amp_slot *a, const int64_t *image, int dim, int64_t *count)
{
  for (int i = 0; i < 2; i++) {
    int64_t k = a[i].i, d = a[2 + i].i, p = a[4 + i].i, s = a[6 + i].i, reach, padded;
    if (k < 1) return amp__fail(AMP_E_ARGUMENT, "kernel_size %lld must be at least 1", LL(k));
    if (d < 1) return amp__fail(AMP_E_ARGUMENT, "dilation %lld must be at least 1", LL(d));
    if (p < 0) return amp__fail(AMP_E_ARGUMENT, "padding %lld is negative", LL(p));
    if (s < 1) return amp__fail(AMP_E_ARGUMENT, "stride %lld must be at least 1", LL(s));
    if (k > INT32_MAX || d > INT32_MAX || p > INT32_MAX || s > INT32_MAX || image[i] > INT32_MAX)
      return amp__fail(AMP_E_ARGUMENT, "kernel_size %lld, dilation %lld, padding %lld, stride %lld or size %lld is too large", LL(k), LL(d), LL(p), LL(s), LL(image[i]));
    padded = image[i] + 2 * p;
    if (__builtin_mul_overflow(d, k - 1, &reach) || reach + 1 > padded)
      return amp__fail(AMP_E_SHAPE, "kernel of size %lld (dilation %lld) is larger than the padded input of size %lld (dimension %d)", LL(k), LL(d), LL(padded), dim + i + 1);
    count[i] = (padded - reach - 1) / s + 1;
  }
  return 0;
}

int amp__infer_im2col(amp_call *c)
{
  const amp_tensor *x = c->in[0];
  int64_t count[2], size[3] = { 1 };
  int n = x->ndim, rc;
  if (n != 3 && n != 4) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected C x H x W or N x C x H x W", SHAPE_OF(x));
  if ((rc = windows(c->a, x->size + n - 2, n - 2, count)) < 0) return rc;
  if (n == 4) size[0] = x->size[0];
  size[1] = x->size[n - 3];
  for (int i = 0; i < 2; i++)
    if (__builtin_mul_overflow(size[1], c->a[i].i, &size[1])) return amp__fail(AMP_E_SHAPE, "windows of %lldx%lld of an input of shape %s are too many", LL(c->a[0].i), LL(c->a[1].i), SHAPE_OF(x));
  if (__builtin_mul_overflow(count[0], count[1], &size[2])) return amp__fail(AMP_E_SHAPE, "%lldx%lld windows are too many", LL(count[0]), LL(count[1]));
  if ((rc = amp__check_size(3, size, x->dtype, NULL)) < 0) return rc;
  amp__out(c, 0, x->dtype, n - 1, n == 4 ? size : size + 1);
  return 0;
}

int amp__infer_col2im(amp_call *c)
{
  const amp_tensor *x = c->in[0];
  int64_t image[2] = { c->a[0].i, c->a[1].i }, count[2], size[4] = { 1 }, k;
  int n = x->ndim, rc;
  if (n != 2 && n != 3) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected columns x windows or N x columns x windows", SHAPE_OF(x));
  for (int i = 0; i < 2; i++)
    if (image[i] < 1) return amp__fail(AMP_E_ARGUMENT, "output_size %lld must be at least 1", LL(image[i]));
  if ((rc = windows(c->a + 2, image, 1, count)) < 0) return rc;
  if (__builtin_mul_overflow(c->a[2].i, c->a[3].i, &k) || x->size[n - 2] % k)
    return amp__fail_arg(AMP_E_SHAPE, 1, "dimension %d of input is %lld, expected a multiple of kernel_size %lldx%lld", n - 1, LL(x->size[n - 2]), LL(c->a[2].i), LL(c->a[3].i));
  int64_t all;
  if (__builtin_mul_overflow(count[0], count[1], &all) || x->size[n - 1] != all)
    return amp__fail_arg(AMP_E_SHAPE, 1, "dimension %d of input is %lld, expected %lldx%lld windows for output_size %lldx%lld", n, LL(x->size[n - 1]), LL(count[0]),
                         LL(count[1]), LL(image[0]), LL(image[1]));
  if (n == 3) size[0] = x->size[0];
  size[1] = x->size[n - 2] / k;
  size[2] = image[0];
  size[3] = image[1];
  if ((rc = amp__check_size(4, size, x->dtype, NULL)) < 0) return rc;
  amp__out(c, 0, x->dtype, n + 1, n == 3 ? size : size + 1);
  return 0;
}
