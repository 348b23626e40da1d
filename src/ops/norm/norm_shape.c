/*
** ops/norm/norm_shape.c: shape rules of normalisation. Statistics that only
** backward reads are float32 (float64 for float64) whatever the input is.
*/
#include "dispatch/shape_rules.h"

/* -- Normalisation ------------------------------------------------------------- */

static int channels(const amp_call *call, int i, const char *what, int64_t n)
{
  const amp_tensor *tensor = i < call->nin ? call->in[i] : NULL;
  if (tensor == NULL || (tensor->ndim == 1 && tensor->size[0] == n)) return 0;
  return amp__fail_arg(AMP_E_SHAPE, i + 1, "%s has shape %s, expected %lld (dimension 2 of the input)", what,
                       SHAPE_OF(tensor), LL(n));
}

/* running_mean, running_var, weight and bias stand from place `at` on */
static int batch_norm_rule(amp_call *call, int at, bool training, double eps)
{
  static const char *const name[] = { "running_mean", "running_var", "weight", "bias" };
  const amp_tensor *input = call->in[0];
  int status;
  if (input->ndim < 2)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected at least 2 dimensions (N x C x ...)",
                         SHAPE_OF(input));
  int64_t n = input->size[1];
  for (int i = 0; i < 4; i++)
    if ((status = channels(call, at + i, name[i], n)) < 0) return status;
  if ((call->in[at] == NULL) != (call->in[at + 1] == NULL))
    return amp__fail(AMP_E_ARGUMENT, "running_mean and running_var come together");
  if (!training && call->in[at] == NULL)
    return amp__fail(AMP_E_ARGUMENT, "without training, running_mean and running_var are needed");
  if (training && n > 0 && input->numel == n)
    return amp__fail_arg(AMP_E_SHAPE, 1, "training needs more than one value per channel, input has shape %s",
                         SHAPE_OF(input));
  if (!(eps >= 0)) return amp__fail(AMP_E_VALUE, "eps %g must not be negative", eps);
  amp__like(call, 0, input, input->dtype);
  amp__out(call, 1, amp__acc_dtype(input->dtype), 1, &n);
  amp__out(call, 2, amp__acc_dtype(input->dtype), 1, &n);
  return 0;
}

int amp__infer_batch_norm(amp_call *call)
{
  const args_batch_norm *args = AMP_ARGS(call, batch_norm);
  return batch_norm_rule(call, 1, args->training, args->eps);
}

/* input residual? running_mean? running_var? weight? bias? batches? relu training momentum eps */
int amp__infer_batch_norm_act(amp_call *call)
{
  const args_batch_norm_act *args = AMP_ARGS(call, batch_norm_act);
  const amp_tensor *input = call->in[0], *r = call->nin > 1 ? call->in[1] : NULL,
                   *batches = call->nin > 6 ? call->in[6] : NULL;
  int status;
  for (int i = 0; i < 6 && i < call->nin; i++)
    if (call->in[i] && !amp__is_float(call->in[i]->dtype))
      return amp__fail_arg(AMP_E_DTYPE, i + 1, "argument %d has dtype %s, expected a float dtype", i + 1,
                           amp_dtype_name(call->in[i]->dtype));
  if ((status = batch_norm_rule(call, 2, args->training, args->eps)) < 0) return status;
  if (r) {
    if ((status = amp__want_shape(r, "residual", input->ndim, input->size)) < 0) return status;
    if (r->dtype != input->dtype)
      return amp__fail_arg(AMP_E_DTYPE, 2, "residual is %s, input %s", amp_dtype_name(r->dtype),
                           amp_dtype_name(input->dtype));
  }
  if (batches && (batches->dtype != AMP_INT64 || batches->numel != 1))
    return amp__fail_arg(AMP_E_DTYPE, 7, "batches is %s, expected one int64", amp__tensor_str(batches));
  /* where kernels can tell from the input what ReLU let through */
  if (input->device != AMP_CPU && r == NULL && args->training) call->unsaved = 1u << 8;
  return 0;
}

/* grad input result? weight? bias? mean rstd training residual */
int amp__infer_batch_norm_act_backward(amp_call *call)
{
  const args_batch_norm_act_backward *args = AMP_ARGS(call, batch_norm_act_backward);
  const amp_tensor *grad = call->in[0], *input = call->in[1], *result = call->in[2], *weight = call->in[3];
  int status;
  if (input->ndim < 2)
    return amp__fail_arg(AMP_E_SHAPE, 2, "input has shape %s, expected at least 2 dimensions", SHAPE_OF(input));
  int64_t n = input->size[1];
  if ((status = amp__want_shape(grad, "grad", input->ndim, input->size)) < 0
      || (result && (status = amp__want_shape(result, "result", input->ndim, input->size)) < 0))
    return status;
  if ((status = channels(call, 3, "weight", n)) < 0 || (status = channels(call, 4, "bias", n)) < 0
      || (status = channels(call, 5, "mean", n)) < 0 || (status = channels(call, 6, "rstd", n)) < 0)
    return status;
  if (result == NULL && (input->device == AMP_CPU || args->residual))
    return amp__fail_arg(AMP_E_ARGUMENT, 3, "argument 3: the result is needed");
  int dtype = weight ? weight->dtype : call->in[5]->dtype;
  amp__like(call, 0, input, input->dtype);
  amp__out(call, 1, dtype, 1, &n);
  amp__out(call, 2, dtype, 1, &n);
  if (args->residual) amp__like(call, 3, input, input->dtype);
  return 0;
}

/* grad input weight? mean rstd */
int amp__infer_batch_norm_backward(amp_call *call)
{
  const amp_tensor *grad = call->in[0], *input = call->in[1], *weight = call->in[2];
  int status;
  if (input->ndim < 2)
    return amp__fail_arg(AMP_E_SHAPE, 2, "input has shape %s, expected at least 2 dimensions", SHAPE_OF(input));
  int64_t n = input->size[1];
  if ((status = amp__want_shape(grad, "grad", input->ndim, input->size)) < 0
      || (status = channels(call, 2, "weight", n)) < 0 || (status = channels(call, 3, "mean", n)) < 0
      || (status = channels(call, 4, "rstd", n)) < 0)
    return status;
  int dtype = weight ? weight->dtype : call->in[3]->dtype;
  amp__like(call, 0, input, input->dtype);
  amp__out(call, 1, dtype, 1, &n);
  amp__out(call, 2, dtype, 1, &n);
  return 0;
}

/* The trailing dimensions of x that have the shape of attribute s; *lead: how many come before. */
static int trailing(const amp_tensor *input, amp_slot *s, int *n, int64_t *shape, int *lead)
{
  int status = amp__shape_attr(s, "shape", n, shape);
  if (status < 0) return status;
  *lead = input->ndim - *n;
  if (*n == 0) return amp__fail(AMP_E_SHAPE, "shape is empty; at least one dimension is normalised");
  if (*lead < 0 || memcmp(input->size + *lead, shape, sizeof *shape * (size_t)*n) != 0)
    return amp__fail(AMP_E_SHAPE, "input has shape %s, whose last dimensions are not %s", SHAPE_OF(input),
                     amp__shape_str(*n, shape));
  return 0;
}

/* weight and bias stand from place `at` on; *lead: dimensions that a statistic has */
static int layer_norm_rule(amp_call *call, int at, int *lead)
{
  const args_layer_norm *args = AMP_ARGS(call, layer_norm);
  int64_t shape[AMP_MAX_DIM];
  int n, status = trailing(call->in[0], AMP_SLOT(args->shape), &n, shape, lead);
  if (status < 0) return status;
  for (int i = at; i < at + 2 && i < call->nin; i++)
    if (call->in[i] && (status = amp__want_shape(call->in[i], i == at ? "weight" : "bias", n, shape)) < 0)
      return status;
  if (!(args->eps >= 0)) return amp__fail(AMP_E_VALUE, "eps %g must not be negative", args->eps);
  return 0;
}

int amp__infer_layer_norm(amp_call *call)
{
  const amp_tensor *input = call->in[0];
  int lead, status = layer_norm_rule(call, 1, &lead);
  if (status < 0) return status;
  amp__out(call, 0, call->flags & AMP_WIDEN ? AMP_FLOAT32 : input->dtype, input->ndim, input->size);
  amp__out(call, 1, amp__acc_dtype(input->dtype), lead, input->size);
  amp__out(call, 2, amp__acc_dtype(input->dtype), lead, input->size);
  amp__want_half_copy(call);
  return 0;
}

/* input residual weight? bias?; shape eps dtype. Where a region has layer norms in float32, this one gives float32
** too, unless told */
int amp__infer_add_layer_norm(amp_call *call)
{
  const args_add_layer_norm *args = AMP_ARGS(call, add_layer_norm);
  const amp_state *state = amp__S;
  const amp_tensor *input = call->in[0];
  int lead, status = layer_norm_rule(call, 2, &lead);
  if (status < 0 || (status = amp__want_shape(call->in[1], "residual", input->ndim, input->size)) < 0) return status;
  int dtype = amp__promote(input->dtype, call->in[1]->dtype), result = dtype;
  bool region = state->autocast_on && !call->flags && state->autocast[input->device].enabled
                && amp__policy_of(call->id, call->attrs) == AMP_SPECIAL
                && amp__policy_of(AMP_OP_layer_norm, call->attrs) == AMP_FP32;
  if (AMP_GIVEN(args->dtype) && !amp__is_float((int)args->dtype))
    return amp__fail(AMP_E_DTYPE, "dtype is %s, a float dtype is expected", amp_dtype_name((int)args->dtype));
  int64_t size[AMP_MAX_DIM] = { 2 }; /* means, then 1 / standard deviations */
  for (int i = 0; i < lead; i++) size[1 + i] = input->size[i];
  if (AMP_GIVEN(args->dtype)) result = (int)args->dtype;
  else if (region && amp__is_half(dtype)) result = AMP_FLOAT32;
  amp__out(call, 0, result, input->ndim, input->size);
  amp__out(call, 1, dtype, input->ndim, input->size);
  amp__out(call, 2, amp__acc_dtype(dtype), lead + 1, size);
  amp__want_half_copy(call);
  return 0;
}

/* What a backward row is to add to the input's gradient, at place i */
static int addend(const amp_call *call, int i)
{
  const amp_tensor *input = call->in[1], *s = i < call->nin ? call->in[i] : NULL;
  int status = s ? amp__want_shape(s, "sum", input->ndim, input->size) : 0;
  if (status == 0 && s && s->dtype != input->dtype)
    return amp__fail_arg(AMP_E_DTYPE, i + 1, "sum is %s, expected %s, as the input", amp_dtype_name(s->dtype),
                         amp_dtype_name(input->dtype));
  return status;
}

/* grad input mean rstd weight? sum?; shape also */
int amp__infer_layer_norm_backward(amp_call *call)
{
  const args_layer_norm_backward *args = AMP_ARGS(call, layer_norm_backward);
  const amp_tensor *grad = call->in[0], *input = call->in[1], *weight = call->nin > 4 ? call->in[4] : NULL;
  int64_t shape[AMP_MAX_DIM];
  int n, lead, status = trailing(input, AMP_SLOT(args->shape), &n, shape, &lead);
  if (status < 0 || (status = amp__want_shape(grad, "grad", input->ndim, input->size)) < 0
      || (status = amp__want_shape(call->in[2], "mean", lead, input->size)) < 0
      || (status = amp__want_shape(call->in[3], "rstd", lead, input->size)) < 0 || (status = addend(call, 5)) < 0)
    return status;
  if (weight && (status = amp__want_shape(weight, "weight", n, shape)) < 0) return status;
  if (AMP_GIVEN(args->also) && !amp__is_float((int)args->also))
    return amp__fail(AMP_E_DTYPE, "a gradient can't be %s, a float dtype is expected", amp_dtype_name((int)args->also));
  int dtype = weight ? weight->dtype : call->in[2]->dtype;
  amp__out(call, 0, input->dtype, input->ndim, input->size);
  amp__out(call, 1, dtype, n, shape);
  amp__out(call, 2, dtype, n, shape);
  if (AMP_GIVEN(args->also)) amp__out(call, 3, (int)args->also, input->ndim, input->size);
  return 0;
}

/* -- Groups of channels, root mean squares ---------------------------------------- */

static int groups(const amp_tensor *input, int arg, int64_t n)
{
  if (input->ndim < 2)
    return amp__fail_arg(AMP_E_SHAPE, arg, "input has shape %s, expected at least 2 dimensions (N x C x ...)",
                         SHAPE_OF(input));
  if (n < 1) return amp__fail(AMP_E_ARGUMENT, "num_groups %lld must be positive", LL(n));
  if (input->size[1] % n != 0)
    return amp__fail(AMP_E_SHAPE, "%lld channels (dimension 2 of the input %s) can't be shared among num_groups = %lld",
                     LL(input->size[1]), SHAPE_OF(input), LL(n));
  return 0;
}

int amp__infer_group_norm(amp_call *call) /* input weight? bias? num_groups eps */
{
  const args_group_norm *args = AMP_ARGS(call, group_norm);
  const amp_tensor *input = call->in[0];
  int status = groups(input, 1, args->num_groups);
  if (status < 0 || (status = channels(call, 1, "weight", input->size[1])) < 0
      || (status = channels(call, 2, "bias", input->size[1])) < 0)
    return status;
  if (!(args->eps >= 0)) return amp__fail(AMP_E_VALUE, "eps %g must not be negative", args->eps);
  int64_t size[2] = { input->size[0], args->num_groups };
  amp__like(call, 0, input, input->dtype);
  amp__out(call, 1, amp__acc_dtype(input->dtype), 2, size);
  amp__out(call, 2, amp__acc_dtype(input->dtype), 2, size);
  return 0;
}

/* grad input mean rstd weight? */
int amp__infer_group_norm_backward(amp_call *call)
{
  const args_group_norm_backward *args = AMP_ARGS(call, group_norm_backward);
  const amp_tensor *grad = call->in[0], *input = call->in[1], *weight = call->nin > 4 ? call->in[4] : NULL;
  int status = groups(input, 2, args->num_groups);
  if (status < 0) return status;
  int64_t size[2] = { input->size[0], args->num_groups }, n = input->size[1];
  if ((status = amp__want_shape(grad, "grad", input->ndim, input->size)) < 0
      || (status = amp__want_shape(call->in[2], "mean", 2, size)) < 0
      || (status = amp__want_shape(call->in[3], "rstd", 2, size)) < 0 || (status = channels(call, 4, "weight", n)) < 0)
    return status;
  int dtype = weight ? weight->dtype : call->in[2]->dtype;
  amp__like(call, 0, input, input->dtype);
  amp__out(call, 1, dtype, 1, &n);
  amp__out(call, 2, dtype, 1, &n);
  return 0;
}

int amp__infer_rms_norm(amp_call *call) /* input weight? shape eps */
{
  const args_rms_norm *args = AMP_ARGS(call, rms_norm);
  const amp_tensor *input = call->in[0];
  int64_t shape[AMP_MAX_DIM];
  int n, lead, status = trailing(input, AMP_SLOT(args->shape), &n, shape, &lead);
  if (status < 0) return status;
  if (call->nin > 1 && call->in[1] && (status = amp__want_shape(call->in[1], "weight", n, shape)) < 0) return status;
  if (AMP_GIVEN(args->eps) && !(args->eps >= 0))
    return amp__fail(AMP_E_VALUE, "eps %g must not be negative", args->eps);
  amp__out(call, 0, input->dtype, input->ndim, input->size);
  amp__out(call, 1, amp__acc_dtype(input->dtype), lead, input->size);
  return 0;
}

/* grad input rstd weight? sum? */
int amp__infer_rms_norm_backward(amp_call *call)
{
  const args_rms_norm_backward *args = AMP_ARGS(call, rms_norm_backward);
  const amp_tensor *grad = call->in[0], *input = call->in[1], *weight = call->nin > 3 ? call->in[3] : NULL;
  int64_t shape[AMP_MAX_DIM];
  int n, lead, status = trailing(input, AMP_SLOT(args->shape), &n, shape, &lead);
  if (status < 0 || (status = amp__want_shape(grad, "grad", input->ndim, input->size)) < 0
      || (status = amp__want_shape(call->in[2], "rstd", lead, input->size)) < 0 || (status = addend(call, 4)) < 0)
    return status;
  if (weight && (status = amp__want_shape(weight, "weight", n, shape)) < 0) return status;
  amp__out(call, 0, input->dtype, input->ndim, input->size);
  amp__out(call, 1, weight ? weight->dtype : call->in[2]->dtype, n, shape);
  return 0;
}
