/*
** ops/layout/layout_composite.c: composite ops about layout, joining and repeating.
** A composite checks what its parts would report in words the caller does not
** know, then is a formula; its parts record themselves, so it needs no
** derivative. Dimensions arrive counting from 1, as the user gave them.
** Products and losses are in ops/matmul/matmul_composite.c.
*/
#include <math.h>
#include "autograd/derivative.h"
#include "dispatch/shape_rules.h"

/* -- Layout --------------------------------------------------------------------- */

static bool is_channels_last(const amp_tensor *tensor)
{
  static const int order[4] = { 1, 3, 2, 0 }; /* from the innermost */
  int64_t next = 1;
  for (int k = 0; k < 4; k++) {
    int d = order[k];
    if (tensor->size[d] != 1 && tensor->stride[d] != next) return false;
    next *= tensor->size[d];
  }
  return true;
}

int amp__comp_contiguous(amp_call *call)
{
  amp_tensor *input = call->in[0];
  bool last = AMP_ARGS(call, contiguous)->memory_format == CONTIGUOUS_MEMORY_FORMAT_CHANNELS_LAST;
  if (last && input->ndim != 4)
    return amp__fail(AMP_E_SHAPE, "channels_last is a layout of 4 dimensions (N x C x H x W), the tensor has %d",
                     input->ndim);
  if (last ? is_channels_last(input) : (input->flags & AMP_T_CONTIGUOUS) != 0) return amp__result(call, 0, input);
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, last ? CLONE_MEMORY_FORMAT_CHANNELS_LAST : CLONE_MEMORY_FORMAT_CONTIGUOUS);
  return amp__result(call, 0, amp__op(AMP_OP_clone, &attrs, 1, &input));
}

static int cast_kept(amp_call *call, const amp_slot *attr)
{
  amp_tensor *input = call->in[0];
  int dtype = 0, status;
  if (attr->i == AMP_NONE) return amp__fail(AMP_E_ARGUMENT, "dtype is missing");
  if ((status = amp__dtype_attr(attr, 0, &dtype)) < 0) return status;
  if (!amp__is_float(dtype)) return amp__fail(AMP_E_DTYPE, "a float dtype is expected, got %s", amp_dtype_name(dtype));
  bool casts = input->dtype != dtype && (input->dtype == AMP_FLOAT32 || amp__is_half(input->dtype));
  if (!casts) return amp__result(call, 0, input);
  if ((call->out[0] = amp__hooks.cast_kept(input, dtype)) == NULL) return amp__S->err.code;
  return 0;
}

int amp__comp_amp_cast(amp_call *call) { return cast_kept(call, AMP_SLOT(AMP_ARGS(call, amp_cast)->dtype)); }
int amp__comp_amp_multicast(amp_call *call) { return cast_kept(call, AMP_SLOT(AMP_ARGS(call, amp_multicast)->dtype)); }

int amp__comp_reshape(amp_call *call)
{
  args_reshape *args = (args_reshape *)call->attrs;
  amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM];
  int status = amp__view_shape(input, AMP_SLOT(args->shape.n), size);
  if (status < 0) return status;
  amp_tensor *v = amp__op_view(input, (int)args->shape.n, size);
  return amp__result(call, 0, v == input ? OP1(alias, input) : v);
}

int amp__comp_flatten(amp_call *call)
{
  args_flatten *args = (args_flatten *)call->attrs;
  amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM], one = 1;
  int n = 0;
  if (input->ndim == 0) return amp__result(call, 0, amp__op_view(input, 1, &one));
  int status = amp__norm_dim(AMP_SLOT(args->start_dim), input->ndim, "start_dim");
  if (status == 0) status = amp__norm_dim(AMP_SLOT(args->end_dim), input->ndim, "end_dim");
  if (status < 0) return status;
  int from = (int)args->start_dim, to = (int)args->end_dim;
  if (from > to) return amp__fail(AMP_E_ARGUMENT, "start_dim %d comes after end_dim %d", from + 1, to + 1);
  for (int i = 0; i < input->ndim; i++) {
    if (i > from && i <= to) size[n - 1] *= input->size[i];
    else size[n++] = input->size[i];
  }
  return amp__result(call, 0, amp__op_view(input, n, size));
}

int amp__comp_t(amp_call *call)
{
  amp_tensor *input = call->in[0];
  if (input->ndim > 2)
    return amp__fail(AMP_E_SHAPE, "t is for matrices, the tensor has %d dimensions; use transpose(dim0, dim1)",
                     input->ndim);
  return amp__result(call, 0, input->ndim < 2 ? OP1(alias, input) : amp__op_transpose(input, 0, 1));
}

/* -- Joining -------------------------------------------------------------------------- */

int amp__comp_stack(amp_call *call)
{
  args_stack *args = (args_stack *)call->attrs;
  if (call->nin == 0) return amp__fail(AMP_E_ARGUMENT, "an empty list of tensors");
  const amp_tensor *input = call->in[0];
  amp_tensor *few[AMP_MAX_IN], **in = few, *out = NULL;
  amp_block *lent = NULL;
  int status = amp__norm_dim(AMP_SLOT(args->dim), input->ndim + 1, "dim");
  if (status < 0) return status;
  if (input->ndim == AMP_MAX_DIM)
    return amp__fail(AMP_E_SHAPE, "a stack of tensors of %d dimensions would have more than %d", input->ndim,
                     AMP_MAX_DIM);
  for (int i = 1; i < call->nin; i++)
    if (!amp__same_size(input, call->in[i]))
      return amp__fail_arg(AMP_E_SHAPE, i + 1, "tensors of one shape are expected: tensor 1 is %s, tensor %d is %s",
                           amp__shape_str(input->ndim, input->size), i + 1,
                           amp__shape_str(call->in[i]->ndim, call->in[i]->size));
  if (call->nin > AMP_MAX_IN) {
    if ((lent = amp__block_new(AMP_CPU, 0, sizeof *in * (size_t)call->nin)) == NULL) return amp__err();
    in = lent->data;
  }
  int dim = (int)args->dim, i;
  for (i = 0; i < call->nin; i++)
    if ((in[i] = amp__op_unsqueeze(call->in[i], dim)) == NULL) break;
  if (i == call->nin) out = amp__op_dim(AMP_OP_cat, dim, call->nin, in);
  if (lent) amp__block_free(lent);
  return amp__result(call, 0, out);
}

/* One dimension after the other, seen as outer x 1 x inner and the 1 repeated. */
int amp__comp_repeat(amp_call *call)
{
  const args_repeat *args = AMP_ARGS(call, repeat);
  amp_tensor *input = call->in[0];
  int n = (int)args->repeats.n, lead = n - input->ndim;
  int64_t size[AMP_MAX_DIM], whole[AMP_MAX_DIM] = { 0 }, outer = 1, inner = 1;
  int status;
  if (lead < 0)
    return amp__fail(AMP_E_ARGUMENT, "%d repeats are fewer than the tensor's %d dimensions", n, input->ndim);
  for (int i = 0; i < n; i++) {
    size[i] = i < lead ? 1 : input->size[i - lead];
    outer *= size[i];
    if (args->repeats.at[i] < 0)
      return amp__fail(AMP_E_ARGUMENT, "repeats %s: a count is negative", amp__shape_str(n, args->repeats.at));
    if (__builtin_mul_overflow(size[i], args->repeats.at[i], &whole[i]))
      return amp__fail(AMP_E_SHAPE, "repeats %s make the tensor too large", amp__shape_str(n, args->repeats.at));
  }
  if ((status = amp__check_size(n, whole, input->dtype, NULL)) < 0) return status;
  for (int i = n - 1; i >= 0 && input; i--) {
    int64_t times = args->repeats.at[i];
    outer = size[i] ? outer / size[i] : outer;
    inner *= size[i];
    if (times != 1) {
      int64_t one[3] = { 1, 1, inner }, many[3] = { 1, times, inner };
      one[0] = many[0] = amp__count(i, size);
      if (__builtin_mul_overflow(size[i], times, &size[i]) || __builtin_mul_overflow(inner, times, &inner))
        return amp__fail(AMP_E_SHAPE, "repeats %s make the tensor too large", amp__shape_str(n, args->repeats.at));
      input = amp__op_contiguous(amp__op_expand(amp__op_view(input, 3, one), 3, many));
    }
  }
  input = amp__op_view(input, n, size);
  if (input == call->in[0]) {
    amp_attrs attrs = amp__attrs();
    amp__attrs_int(&attrs, CLONE_MEMORY_FORMAT_CONTIGUOUS);
    input = amp__op(AMP_OP_clone, &attrs, 1, &input);
  }
  return amp__result(call, 0, input);
}
