/*
** amp_infer_nn.c: shape rules of products, convolutions and pooling.
** Operands have one dtype. Data are N x C x H x W; convolutions and pooling give
** channels_last for channels_last, products always C order. Attributes that
** can't be (zero strides, windows larger than the data) are errors here, so that
** kernels need not look.
*/
#include "amp_infer.h"

/* -- Products ------------------------------------------------------------------ */

static int inner_mismatch(const amp_tensor *a, int da, const amp_tensor *b, int db)
{
  return amp__fail(AMP_E_SHAPE, "shapes %s and %s do not match (dimension %d of the first is %lld, dimension %d of the second is %lld)",
                   SHAPE_OF(a), SHAPE_OF(b), da + 1, LL(a->size[da]), db + 1, LL(b->size[db]));
}

int amp__infer_matmul(amp_call *c)
{
  const amp_tensor *a = c->in[0], *b = c->in[1];
  int64_t size[AMP_MAX_DIM + 1];
  int rc = amp__equal_dtypes(c, 2), n = 0;
  if (rc < 0) return rc;
  if (a->ndim == 0 || b->ndim == 0)
    return amp__fail(AMP_E_SHAPE, "shapes %s and %s: both operands need at least one dimension; use mul for scalars", SHAPE_OF(a), SHAPE_OF(b));
  int ka = a->ndim - 1, kb = b->ndim > 1 ? b->ndim - 2 : 0;
  if (a->size[ka] != b->size[kb]) return inner_mismatch(a, ka, b, kb);
  int na = a->ndim > 2 ? a->ndim - 2 : 0, nb = b->ndim > 2 ? b->ndim - 2 : 0, batch = na > nb ? na : nb;
  for (int d = 0; d < batch; d++) {
    int i = d - (batch - na), j = d - (batch - nb);
    int64_t x = i >= 0 ? a->size[i] : 1, y = j >= 0 ? b->size[j] : 1;
    if (x != y && x != 1 && y != 1)
      return amp__fail(AMP_E_SHAPE, "shapes %s and %s do not match in the batch (dimension %d of the first is %lld, dimension %d of the second is %lld)",
                       SHAPE_OF(a), SHAPE_OF(b), i + 1, LL(x), j + 1, LL(y));
    size[n++] = x == 1 ? y : x;
  }
  if (a->ndim > 1) size[n++] = a->size[a->ndim - 2];
  if (b->ndim > 1) size[n++] = b->size[b->ndim - 1];
  amp__out(c, 0, a->dtype, n, size);
  return 0;
}

int amp__infer_linear(amp_call *c)
{
  const amp_tensor *x = c->in[0], *w = c->in[1], *bias = c->nin > 2 ? c->in[2] : NULL;
  int64_t size[AMP_MAX_DIM];
  int rc = amp__equal_dtypes(c, 3);
  if (rc < 0) return rc;
  if (w->ndim != 2) return amp__fail_arg(AMP_E_SHAPE, 2, "weight has shape %s, expected a matrix (out x in)", SHAPE_OF(w));
  if (x->ndim == 0) return amp__fail_arg(AMP_E_SHAPE, 1, "input is a scalar, expected at least one dimension");
  if (x->size[x->ndim - 1] != w->size[1])
    return amp__fail(AMP_E_SHAPE, "input %s and weight %s do not match (dimension %d of input is %lld, dimension 2 of weight is %lld)", SHAPE_OF(x), SHAPE_OF(w),
                     x->ndim, LL(x->size[x->ndim - 1]), LL(w->size[1]));
  if (bias && (bias->ndim != 1 || bias->size[0] != w->size[0]))
    return amp__fail_arg(AMP_E_SHAPE, 3, "bias has shape %s, expected %lld (dimension 1 of weight)", SHAPE_OF(bias), LL(w->size[0]));
  for (int d = 0; d < x->ndim - 1; d++) size[d] = x->size[d];
  size[x->ndim - 1] = w->size[0];
  amp__out(c, 0, x->dtype, x->ndim, size);
  return 0;
}

/* -- Windows ---------------------------------------------------------------------- */

static int want_4d(const amp_tensor *t, int arg, const char *what)
{
  if (t->ndim == 4) return 0;
  return amp__fail_arg(AMP_E_SHAPE, arg, "%s has shape %s, expected 4 dimensions (N x C x H x W)%s", what, SHAPE_OF(t), t->ndim == 3 ? "; use unsqueeze(1) for one sample" : "");
}

typedef struct conv { int64_t stride[2], padding[2], dilation[2], groups; } conv;

static int conv_attr(const amp_slot *a, conv *v)
{
  for (int i = 0; i < 2; i++) {
    v->stride[i] = a[i].i;
    v->padding[i] = a[2 + i].i;
    v->dilation[i] = a[4 + i].i;
    if (v->stride[i] < 1) return amp__fail(AMP_E_ARGUMENT, "stride %lld must be at least 1", LL(v->stride[i]));
    if (v->padding[i] < 0) return amp__fail(AMP_E_ARGUMENT, "padding %lld is negative", LL(v->padding[i]));
    if (v->dilation[i] < 1) return amp__fail(AMP_E_ARGUMENT, "dilation %lld must be at least 1", LL(v->dilation[i]));
    if (v->padding[i] > INT32_MAX || v->dilation[i] > INT32_MAX || v->stride[i] > INT32_MAX) return amp__fail(AMP_E_ARGUMENT, "stride, padding or dilation is too large");
  }
  v->groups = a[6].i;
  return v->groups < 1 ? amp__fail(AMP_E_ARGUMENT, "groups %lld must be at least 1", LL(v->groups)) : 0;
}

/* Shape of the convolution of x and w */
static int conv_shape(const int64_t *x, const int64_t *w, const conv *v, int64_t *size)
{
  if (w[0] % v->groups || x[1] % v->groups)
    return amp__fail(AMP_E_SHAPE, "groups %lld must divide the channels of input (%lld) and of the result (%lld)", LL(v->groups), LL(x[1]), LL(w[0]));
  if (w[1] != x[1] / v->groups)
    return amp__fail(AMP_E_SHAPE, "input %s and weight %s do not match (dimension 2 of input is %lld, dimension 2 of weight is %lld, groups %lld)",
                     amp__shape_str(4, x), amp__shape_str(4, w), LL(x[1]), LL(w[1]), LL(v->groups));
  size[0] = x[0];
  size[1] = w[0];
  for (int i = 0; i < 2; i++) {
    int64_t reach, padded = x[2 + i] + 2 * v->padding[i];
    if (w[2 + i] < 1) return amp__fail(AMP_E_SHAPE, "weight %s has an empty kernel", amp__shape_str(4, w));
    if (__builtin_mul_overflow(v->dilation[i], w[2 + i] - 1, &reach) || reach + 1 > padded)
      return amp__fail(AMP_E_SHAPE, "kernel of size %lld (dilation %lld) is larger than the padded input of size %lld (dimension %d)", LL(w[2 + i]), LL(v->dilation[i]), LL(padded), 3 + i);
    size[2 + i] = (padded - reach - 1) / v->stride[i] + 1;
  }
  return 0;
}

/* Result i in t's channels_last, if it has that. */
static void follow_layout(amp_call *c, int i, const amp_tensor *t)
{
  if (amp__channels_last(t)) amp__as_channels_last(&c->meta[i]);
}

int amp__infer_conv2d(amp_call *c)
{
  const amp_tensor *x = c->in[0], *w = c->in[1], *bias = c->nin > 2 ? c->in[2] : NULL;
  int64_t size[4];
  conv v;
  int rc;
  if ((rc = amp__equal_dtypes(c, 3)) < 0 || (rc = want_4d(x, 1, "input")) < 0) return rc;
  if (w->ndim != 4) return amp__fail_arg(AMP_E_SHAPE, 2, "weight has shape %s, expected 4 dimensions (out x in/groups x kH x kW)", SHAPE_OF(w));
  if ((rc = conv_attr(c->a, &v)) < 0 || (rc = conv_shape(x->size, w->size, &v, size)) < 0) return rc;
  if (bias && (bias->ndim != 1 || bias->size[0] != w->size[0]))
    return amp__fail_arg(AMP_E_SHAPE, 3, "bias has shape %s, expected %lld (dimension 1 of weight)", SHAPE_OF(bias), LL(w->size[0]));
  amp__out(c, 0, x->dtype, 4, size);
  follow_layout(c, 0, x);
  return 0;
}

static int conv_back(amp_call *c, int64_t *shape)
{
  int ndim, rc;
  if ((rc = amp__equal_dtypes(c, 2)) < 0 || (rc = want_4d(c->in[0], 1, "grad")) < 0 || (rc = amp__shape_attr(c->a, "shape", &ndim, shape)) < 0) return rc;
  return ndim != 4 ? amp__fail(AMP_E_SHAPE, "shape %s must have 4 dimensions", amp__shape_str(ndim, shape)) : 0;
}

int amp__infer_conv2d_input(amp_call *c)
{
  const amp_tensor *g = c->in[0], *w = c->in[1];
  int64_t shape[AMP_MAX_DIM], size[4];
  conv v;
  int rc = conv_back(c, shape);
  if (rc < 0) return rc;
  if (w->ndim != 4) return amp__fail_arg(AMP_E_SHAPE, 2, "weight has shape %s, expected 4 dimensions (out x in/groups x kH x kW)", SHAPE_OF(w));
  if ((rc = conv_attr(c->a + 9, &v)) < 0 || (rc = conv_shape(shape, w->size, &v, size)) < 0 || (rc = amp__want_shape(g, "grad", 4, size)) < 0) return rc;
  amp__out(c, 0, g->dtype, 4, shape);
  follow_layout(c, 0, g);
  return 0;
}

int amp__infer_conv2d_weight(amp_call *c)
{
  const amp_tensor *g = c->in[0], *x = c->in[1];
  int64_t shape[AMP_MAX_DIM], size[4];
  conv v;
  int rc = conv_back(c, shape);
  if (rc < 0 || (rc = want_4d(x, 2, "input")) < 0) return rc;
  if ((rc = conv_attr(c->a + 9, &v)) < 0 || (rc = conv_shape(x->size, shape, &v, size)) < 0 || (rc = amp__want_shape(g, "grad", 4, size)) < 0) return rc;
  amp__out(c, 0, g->dtype, 4, shape);
  return 0;
}

/* -- Pooling -------------------------------------------------------------------------- */

/* Slots: kernel 0, 1; stride 2, 3 (absent: the kernel, put in place); padding 4, 5; dilation (avg: 1) and ceil_mode
** as given. Size of the result in size[0..1]. */
static int pool_size(amp_slot *a, const amp_slot *dilation, bool ceil_mode, const int64_t *hw, int64_t *size)
{
  for (int i = 0; i < 2; i++) {
    int64_t k = a[i].i, p = a[4 + i].i, d = dilation ? dilation[i].i : 1, reach;
    if (k < 1) return amp__fail(AMP_E_ARGUMENT, "kernel_size %lld must be at least 1", LL(k));
    if (!given(&a[2 + i])) a[2 + i].i = k;
    int64_t s = a[2 + i].i;
    if (s < 1) return amp__fail(AMP_E_ARGUMENT, "stride %lld must be at least 1", LL(s));
    if (d < 1) return amp__fail(AMP_E_ARGUMENT, "dilation %lld must be at least 1", LL(d));
    if (p < 0 || p > k / 2) return amp__fail(AMP_E_ARGUMENT, "padding %lld must lie in 0..%lld, half of kernel_size %lld", LL(p), LL(k / 2), LL(k));
    if (k > INT32_MAX || s > INT32_MAX || d > INT32_MAX) return amp__fail(AMP_E_ARGUMENT, "kernel_size, stride or dilation is too large");
    reach = d * (k - 1) + 1;
    int64_t room = hw[i] + 2 * p - reach;
    if (room < 0)
      return amp__fail(AMP_E_SHAPE, "kernel of size %lld (dilation %lld) is larger than the padded input of size %lld (dimension %d)", LL(k), LL(d), LL(hw[i] + 2 * p), 3 + i);
    size[i] = (room + (ceil_mode ? s - 1 : 0)) / s + 1;
    if (ceil_mode && (size[i] - 1) * s >= hw[i] + p) size[i]--; /* no window starts in the right padding */
  }
  return 0;
}

int amp__infer_max_pool2d(amp_call *c)
{
  const amp_tensor *x = c->in[0];
  int64_t size[4];
  int rc;
  if ((rc = want_4d(x, 1, "input")) < 0 || (rc = pool_size(c->a, c->a + 6, c->a[8].i != 0, x->size + 2, size + 2)) < 0) return rc;
  size[0] = x->size[0];
  size[1] = x->size[1];
  amp__out(c, 0, x->dtype, 4, size);
  amp__out(c, 1, AMP_INT64, 4, size);
  follow_layout(c, 0, x);
  follow_layout(c, 1, x);
  return 0;
}

int amp__infer_avg_pool2d(amp_call *c)
{
  const amp_tensor *x = c->in[0];
  int64_t size[4];
  int rc;
  if ((rc = want_4d(x, 1, "input")) < 0 || (rc = pool_size(c->a, NULL, c->a[6].i != 0, x->size + 2, size + 2)) < 0) return rc;
  size[0] = x->size[0];
  size[1] = x->size[1];
  amp__out(c, 0, x->dtype, 4, size);
  follow_layout(c, 0, x);
  return 0;
}

static int planes(amp_call *c, int64_t *shape)
{
  const amp_tensor *g = c->in[0];
  int ndim, rc;
  if ((rc = want_4d(g, 1, "grad")) < 0 || (rc = amp__shape_attr(c->a, "shape", &ndim, shape)) < 0) return rc;
  if (ndim != 4 || shape[0] != g->size[0] || shape[1] != g->size[1])
    return amp__fail(AMP_E_SHAPE, "grad has shape %s, which does not belong to an input of shape %s", SHAPE_OF(g), amp__shape_str(ndim, shape));
  return 0;
}

int amp__infer_avg_pool2d_backward(amp_call *c)
{
  const amp_tensor *g = c->in[0];
  int64_t shape[AMP_MAX_DIM], size[4];
  int rc = planes(c, shape);
  if (rc < 0 || (rc = pool_size(c->a + 9, NULL, c->a[15].i != 0, shape + 2, size + 2)) < 0) return rc;
  size[0] = shape[0];
  size[1] = shape[1];
  if ((rc = amp__want_shape(g, "grad", 4, size)) < 0) return rc;
  amp__out(c, 0, g->dtype, 4, shape);
  follow_layout(c, 0, g);
  return 0;
}

static int want_places(const amp_tensor *t, int arg, const amp_tensor *like)
{
  if (t->dtype != AMP_INT64) return amp__fail_arg(AMP_E_DTYPE, arg, "indices have dtype %s, expected int64", amp_dtype_name(t->dtype));
  return like ? amp__want_shape(t, "indices", like->ndim, like->size) : 0;
}

int amp__infer_max_pool2d_backward(amp_call *c)
{
  int64_t shape[AMP_MAX_DIM];
  int rc = planes(c, shape);
  if (rc < 0 || (rc = want_places(c->in[1], 2, c->in[0])) < 0) return rc;
  amp__out(c, 0, c->in[0]->dtype, 4, shape);
  follow_layout(c, 0, c->in[0]);
  return 0;
}

int amp__infer_max_pool2d_gather(amp_call *c)
{
  const amp_tensor *x = c->in[0], *index = c->in[1];
  int rc;
  if ((rc = want_4d(x, 1, "input")) < 0 || (rc = want_4d(index, 2, "indices")) < 0 || (rc = want_places(index, 2, NULL)) < 0) return rc;
  if (index->size[0] != x->size[0] || index->size[1] != x->size[1])
    return amp__fail(AMP_E_SHAPE, "indices have shape %s, which does not belong to an input of shape %s", SHAPE_OF(index), SHAPE_OF(x));
  amp__out(c, 0, x->dtype, 4, index->size);
  follow_layout(c, 0, index);
  return 0;
}
