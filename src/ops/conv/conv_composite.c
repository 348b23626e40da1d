/*
** ops/conv/conv_composite.c: convolutions as users call them, in 1, 2 and 3 spatial
** dimensions, of batches or single samples. What may be asked for is checked
** here, in the caller's terms; the work is done by the rows convolution and,
** for transposed ones, convolution_input: a transposed convolution is the
** gradient in the input of the convolution that has its weight.
*/
#include "autograd/derivative.h"
#include "ops/conv/conv_geometry.h"

#define LL(x) ((long long)(x))
#define SHAPE_TEXT(t) amp__shape_str((t)->ndim, (t)->size)

static const char *const sample[4] = { "", "C x L", "C x H x W", "C x D x H x W" };

typedef struct problem { /* a call looked at */
  int spatial;           /* spatial dimensions */
  bool single;           /* one sample, without a dimension N */
  int64_t shape[5];      /* shape of the input, of a batch */
  args_convolution args;
} problem;

/* Ranks and dtypes of input, weight and bias */
static int look(const amp_call *call, int n, const char *const *weight, problem *geometry)
{
  const amp_tensor *input = call->in[0], *w = call->in[1], *bias = call->in[2];
  static const char *const what[3] = { "input", "weight", "bias" };
  for (int i = 1; i < 3; i++)
    if (call->in[i] && call->in[i]->dtype != input->dtype)
      return amp__fail_arg(AMP_E_DTYPE, i + 1,
                           "dtypes %s (input) and %s (%s) differ; cast one of them or run it under amp.autocast",
                           amp_dtype_name(input->dtype), amp_dtype_name(call->in[i]->dtype), what[i]);
  if (input->ndim != n + 1 && input->ndim != n + 2)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected %s or %s", SHAPE_TEXT(input), amp__conv_data[n],
                         sample[n]);
  if (w->ndim != n + 2)
    return amp__fail_arg(AMP_E_SHAPE, 2, "weight has shape %s, expected %d dimensions (%s)", SHAPE_TEXT(w), n + 2,
                         weight[n]);
  if (bias && bias->ndim != 1)
    return amp__fail_arg(AMP_E_SHAPE, 3,
                         "bias has shape %s, expected one dimension (an element a channel of the result)",
                         SHAPE_TEXT(bias));
  geometry->spatial = n;
  geometry->single = input->ndim == n + 1;
  geometry->shape[0] = 1;
  for (int d = 0; d < input->ndim; d++) geometry->shape[d + geometry->single] = input->size[d];
  return 0;
}

/* n values as the last of three at `to`; the others get `rest` */
static void place(int64_t *to, const int64_t *value, int n, int64_t rest)
{
  for (int i = 0; i < 3; i++) to[i] = i < 3 - n ? rest : value[i - (3 - n)];
}

static int want_bias(const amp_tensor *bias, int64_t channels, const char *which, const amp_tensor *weight)
{
  if (!bias || bias->size[0] == channels) return 0;
  return amp__fail_arg(AMP_E_SHAPE, 3, "bias has %lld elements, expected %lld (%s of weight, which is %s)",
                       LL(bias->size[0]), LL(channels), which, SHAPE_TEXT(weight));
}

/* A row that takes data, weight and bias; a sample goes and comes without N. */
static int run(amp_call *call, const problem *geometry, int op, const amp_attrs *attrs, amp_tensor *input)
{
  amp_tensor *inputs[3] = { input, call->in[1], call->in[2] };
  amp_tensor *output = amp__op(op, attrs, 3, inputs);
  if (output && geometry->single) output = amp__op_view(output, geometry->spatial + 1, output->size + 1);
  return amp__result(call, 0, output);
}

/* -- Convolutions ------------------------------------------------------------------- */

static int conv(amp_call *call, int n, const int64_t *stride, const int64_t *padding, const int64_t *dilation,
                int64_t groups)
{
  const amp_tensor *weight = call->in[1];
  problem geometry;
  int64_t size[5];
  int status = look(call, n, amp__conv_weight, &geometry);
  if (status < 0) return status;
  place(geometry.args.stride, stride, n, 1);
  place(geometry.args.padding, padding, n, 0);
  place(geometry.args.dilation, dilation, n, 1);
  geometry.args.groups = groups;
  if ((status = amp__conv_attributes(&geometry.args, n)) < 0
      || (status = amp__conv_shape(geometry.shape, weight->size, n, &geometry.args, geometry.single, size)) < 0
      || (status = want_bias(call->in[2], weight->size[0], "dimension 1", weight)) < 0)
    return status;
  amp_attrs attrs = amp__attrs();
  amp__attrs_all(&attrs, &geometry.args);
  return run(call, &geometry, AMP_OP_convolution, &attrs,
             geometry.single ? amp__op_unsqueeze(call->in[0], 0) : call->in[0]);
}

#define CONV(N)                                                                   \
  int amp__comp_conv##N##d(amp_call *c)                                           \
  {                                                                               \
    const args_conv##N##d *args = AMP_ARGS(c, conv##N##d);                        \
    return conv(c, N, args->stride, args->padding, args->dilation, args->groups); \
  }
CONV(1)
CONV(2)
CONV(3)

/* -- Transposed ones ---------------------------------------------------------------- */

/* `extra` zeros after each spatial dimension of the input */
static amp_tensor *longer(amp_tensor *input, int n, const int64_t *extra)
{
  amp_attrs attrs = amp__attrs();
  args_pad args = { .pad = { .n = 2 * n }, .mode = PAD_MODE_CONSTANT, .value = 0 };
  for (int i = 0; i < n; i++) args.pad.at[2 * i + 1] = extra[n - 1 - i];
  amp__attrs_all(&attrs, &args);
  return amp__op(AMP_OP_pad, &attrs, 1, &input);
}

typedef struct turned { /* attributes of a transposed convolution, n values each */
  const int64_t *stride, *padding, *output_padding, *dilation;
  int64_t groups;
} turned;

static int check_channels(const amp_call *call, const problem *geometry, int64_t groups, int64_t *channels)
{
  const amp_tensor *input = call->in[0], *weight = call->in[1];
  if (geometry->shape[1] != weight->size[0])
    return amp__fail(
        AMP_E_SHAPE,
        "input %s and weight %s do not match (dimension %d of input is %lld, dimension 1 of weight is %lld)",
        SHAPE_TEXT(input), SHAPE_TEXT(weight), 2 - geometry->single, LL(geometry->shape[1]), LL(weight->size[0]));
  if (weight->size[0] % groups)
    return amp__fail(AMP_E_SHAPE, "groups %lld must divide the channels of input (%lld)", LL(groups),
                     LL(weight->size[0]));
  if (__builtin_mul_overflow(weight->size[1], groups, channels))
    return amp__fail(AMP_E_ARGUMENT, "groups %lld is too large", LL(groups));
  return want_bias(call->in[2], *channels, groups > 1 ? "groups times dimension 2" : "dimension 2", weight);
}

/* Size of the result along spatial dimension i. *extra: elements that output_padding adds to the input, as if zeros
** followed it; what is left of output_padding is less than the stride. */
static int turned_size(const amp_call *call, const problem *geometry, const turned *args, int i, int64_t *size,
                       int64_t *extra)
{
  const amp_tensor *input = call->in[0], *weight = call->in[1];
  int64_t stride = args->stride[i], padding = args->padding[i], more = args->output_padding[i],
          dilation = args->dilation[i];
  int64_t kernel = weight->size[2 + i], most = stride > dilation ? stride : dilation, m = geometry->shape[2 + i], reach;
  if (kernel < 1) return amp__fail(AMP_E_SHAPE, "weight %s has an empty kernel", SHAPE_TEXT(weight));
  if (more < 0 || more >= most)
    return amp__fail(AMP_E_ARGUMENT, "output_padding %lld must lie in 0..%lld, less than stride %lld or dilation %lld",
                     LL(more), LL(most - 1), LL(stride), LL(dilation));
  if (m < 1)
    return amp__fail(AMP_E_SHAPE, "input of shape %s is empty in dimension %d", SHAPE_TEXT(input),
                     3 + i - geometry->single);
  if (m > INT32_MAX || __builtin_mul_overflow(dilation, kernel - 1, &reach) || reach > INT32_MAX)
    return amp__fail(AMP_E_SHAPE,
                     "kernel of size %lld (dilation %lld) or input of size %lld (dimension %d) is too large",
                     LL(kernel), LL(dilation), LL(m), 3 + i - geometry->single);
  *size = (m - 1) * stride - 2 * padding + reach + more + 1;
  if (*size < 1)
    return amp__fail(
        AMP_E_SHAPE,
        "dimension %d of the result would have %lld elements (input %lld, kernel %lld, stride %lld, padding %lld)",
        3 + i - geometry->single, LL(*size), LL(m), LL(kernel), LL(stride), LL(padding));
  *extra = more / stride;
  return 0;
}

static int transposed(amp_call *call, int n, const turned *args)
{
  int64_t size[5], extra[3] = { 0 };
  bool more = false;
  problem geometry;
  int status = look(call, n, amp__conv_turned, &geometry);
  if (status < 0) return status;
  place(geometry.args.stride, args->stride, n, 1);
  place(geometry.args.padding, args->padding, n, 0);
  place(geometry.args.dilation, args->dilation, n, 1);
  geometry.args.groups = args->groups;
  size[0] = geometry.shape[0];
  if ((status = amp__conv_attributes(&geometry.args, n)) < 0
      || (status = check_channels(call, &geometry, args->groups, &size[1])) < 0)
    return status;
  for (int i = 0; i < n; i++) {
    if ((status = turned_size(call, &geometry, args, i, &size[2 + i], &extra[i])) < 0) return status;
    more = more || extra[i] > 0;
  }
  amp_tensor *grad = geometry.single ? amp__op_unsqueeze(call->in[0], 0) : call->in[0];
  if (more) grad = grad ? longer(grad, n, extra) : NULL;
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, n + 2, size);
  amp__attrs_all(&attrs, &geometry.args);
  return run(call, &geometry, AMP_OP_convolution_input, &attrs, grad);
}

#define TRANSPOSED(N)                                                                                     \
  int amp__comp_conv_transpose##N##d(amp_call *c)                                                         \
  {                                                                                                       \
    const args_conv_transpose##N##d *args = AMP_ARGS(c, conv_transpose##N##d);                            \
    const turned a = { args->stride, args->padding, args->output_padding, args->dilation, args->groups }; \
    return transposed(c, N, &a);                                                                          \
  }
TRANSPOSED(1)
TRANSPOSED(2)
TRANSPOSED(3)

/* -- Time x batch x channels ----------------------------------------------------------- */

int amp__comp_conv_tbc(amp_call *call)
{
  const amp_tensor *input = call->in[0], *w = call->in[1], *bias = call->in[2];
  if (input->ndim != 3)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected time x batch x in", SHAPE_TEXT(input));
  if (w->ndim != 3)
    return amp__fail_arg(AMP_E_SHAPE, 2, "weight has shape %s, expected kernel x in x out", SHAPE_TEXT(w));
  for (int i = 1; i < 3; i++)
    if (call->in[i]->dtype != input->dtype)
      return amp__fail_arg(AMP_E_DTYPE, i + 1, "dtypes %s and %s differ; cast one of them or run it under amp.autocast",
                           amp_dtype_name(input->dtype), amp_dtype_name(call->in[i]->dtype));
  if (input->size[2] != w->size[1])
    return amp__fail(
        AMP_E_SHAPE,
        "input %s and weight %s do not match (dimension 3 of input is %lld, dimension 2 of weight is %lld)",
        SHAPE_TEXT(input), SHAPE_TEXT(w), LL(input->size[2]), LL(w->size[1]));
  if (bias->ndim != 1 || bias->size[0] != w->size[2])
    return amp__fail_arg(AMP_E_SHAPE, 3, "bias has shape %s, expected %lld (dimension 3 of weight)", SHAPE_TEXT(bias),
                         LL(w->size[2]));
  int64_t pad = AMP_ARGS(call, conv_tbc)->pad, time = input->size[0], k = w->size[0];
  if (pad < 0 || pad > INT32_MAX) return amp__fail(AMP_E_ARGUMENT, "pad %lld must lie in 0..%d", LL(pad), INT32_MAX);
  if (k < 1 || k > time + 2 * pad)
    return amp__fail(AMP_E_SHAPE, "kernel of size %lld must lie in 1..%lld, the padded input's length", LL(k),
                     LL(time + 2 * pad));
  /* batch x in x time and out x in x kernel, as views */
  amp_tensor *data = amp__op_transpose(amp__op_transpose(call->in[0], 0, 1), 1, 2),
             *weight = amp__op_transpose(call->in[1], 0, 2);
  if (!data || !weight) return amp__err();
  amp_tensor *in[3] = { data, weight, call->in[2] };
  amp_attrs attrs = amp__attrs();
  args_convolution args = { .stride = { 1, 1, 1 }, .padding = { 0, 0, pad }, .dilation = { 1, 1, 1 }, .groups = 1 };
  amp__attrs_all(&attrs, &args);
  amp_tensor *output = amp__op(AMP_OP_convolution, &attrs, 3, in);
  return amp__result(call, 0, amp__op_contiguous(amp__op_transpose(amp__op_transpose(output, 1, 2), 0, 1)));
}
