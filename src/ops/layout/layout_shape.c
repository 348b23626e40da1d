/*
** ops/layout/layout_shape.c: shape rules of copies and triangles. Views have theirs in ops/layout/view.c.
*/
#include "dispatch/shape_rules.h"

int amp__infer_fill(amp_call *call)
{
  const args_fill *args = AMP_ARGS(call, fill);
  amp__like(call, 0, call->in[0], call->in[0]->dtype);
  return amp__value_fits(args->value, call->in[0]->dtype);
}

int amp__infer_copy(amp_call *call)
{
  const amp_tensor *input = call->in[0], *source = call->in[1];
  int64_t size[AMP_MAX_DIM];
  int ndim = 0, status = amp__broadcast(call, 2, &ndim, size);
  if (status < 0) return status;
  if (ndim != input->ndim || memcmp(size, input->size, sizeof *size * (size_t)ndim) != 0)
    return amp__fail(AMP_E_SHAPE, "shape %s can't be broadcast to the receiver's %s", SHAPE_OF(source),
                     SHAPE_OF(input));
  if (input->device == AMP_CPU && source->device != AMP_CPU) amp__S->host_waits++;
  amp__like(call, 0, input, input->dtype);
  return 0;
}

int amp__infer_cast(amp_call *call)
{
  const args_cast *args = AMP_ARGS(call, cast);
  int dtype = 0, status;
  if (!AMP_GIVEN(args->dtype)) return amp__fail(AMP_E_ARGUMENT, "dtype is missing");
  if ((status = amp__dtype_attr(AMP_SLOT(args->dtype), 0, &dtype)) < 0) return status;
  amp__like(call, 0, call->in[0], dtype);
  return 0;
}

int amp__infer_clone(amp_call *call)
{
  const args_clone *args = AMP_ARGS(call, clone);
  const amp_tensor *input = call->in[0];
  if (args->memory_format < CLONE_MEMORY_FORMAT_PRESERVE || args->memory_format > CLONE_MEMORY_FORMAT_CHANNELS_LAST)
    return amp__fail(AMP_E_ARGUMENT, "there is no memory format number %lld", LL(args->memory_format));
  amp__like(call, 0, input, input->dtype);
  if (args->memory_format == CLONE_MEMORY_FORMAT_CONTIGUOUS) call->meta[0].strides = 0;
  if (args->memory_format == CLONE_MEMORY_FORMAT_CHANNELS_LAST) {
    if (input->ndim != 4)
      return amp__fail(AMP_E_SHAPE, "channels_last is a layout of 4 dimensions, got shape %s", SHAPE_OF(input));
    amp__as_channels_last(&call->meta[0]);
  }
  return 0;
}

int amp__infer_triangle(amp_call *call)
{
  if (call->in[0]->ndim < 2)
    return amp__fail(AMP_E_SHAPE, "a matrix or a batch of them is expected, got shape %s", SHAPE_OF(call->in[0]));
  amp__like(call, 0, call->in[0], call->in[0]->dtype);
  return 0;
}
