/*
** dispatch/transfer.c: pinned memory, and copies that the host does not wait for.
*/
#include "dispatch/dispatch.h"

/* -- Pinned memory ------------------------------------------------------------------------ */

static bool can_pin(void) { return amp_device_available(AMP_CUDA) > 0 && amp__devices[AMP_CUDA].host_alloc != NULL; }

/* Not filled; in C order */
static amp_tensor *pinned(int ndim, const int64_t *size, int dtype)
{
  int64_t numel;
  if (amp__check_size(ndim, size, dtype, &numel) < 0) return NULL;
  size_t bytes = (size_t)numel * amp__dtype_size[dtype];
  amp_block *block = amp__block_pinned(bytes ? bytes : 1);
  if (block == NULL) return NULL;
  amp_storage *storage = amp__storage_in(block, 0, bytes);
  amp__block_free(block);
  if (storage == NULL) return NULL;
  storage->flags = 0;
  amp_tensor *tensor = amp__tensor_of(storage, dtype, ndim, size, NULL, 0);
  amp__storage_free(storage);
  return tensor;
}

int amp_empty_pinned(amp_state *state, amp_ref *out, int ndim, const int64_t *size, int dtype)
{
  AMP_ENTER(state);
  if (ndim < 0 || ndim > AMP_MAX_DIM || dtype < 0 || dtype >= AMP_DTYPE_COUNT)
    return amp__fail(AMP_E_ARGUMENT, "no such tensor: %d dimensions of dtype %d", ndim, dtype);
  out->t = can_pin() ? pinned(ndim, size, dtype) : amp__tensor_make(dtype, AMP_CPU, 0, ndim, size);
  return out->t ? 0 : state->err.code;
}

int amp_is_pinned(const amp_ref *ref)
{
  return ref->t && ref->t->device == AMP_CPU && ref->t->storage->block && ref->t->storage->block->pinned;
}

/* dst's elements are src's; not recorded unless `record` */
static int copy(amp_state *state, amp_tensor *dst, amp_tensor *src, bool async, bool record)
{
  amp_tensor *inputs[2] = { dst, src };
  amp__plain plain = amp__plain_record(state, record ? state->grad_mode : 0);
  state->priv->async = async;
  int status = amp__dispatch(AMP_OP_copy, AMP_INPLACE, inputs, 2, NULL, NULL);
  state->priv->async = false;
  amp__plain_end(plain);
  return status;
}

int amp_pin_memory(amp_state *state, amp_ref *out, const amp_ref *ref)
{
  AMP_ENTER(state);
  if (amp__trace_refuse("memory is pinned", NULL) < 0) return state->err.code;
  if (ref->t == NULL) return amp__fail_arg(AMP_E_ARGUMENT, 1, "argument 1 is a tensor that was freed");
  if (ref->t->device != AMP_CPU)
    return amp__fail_arg(AMP_E_DEVICE, 1, "pinned memory is the host's: the tensor is on %s:%d",
                         amp_device_name(ref->t->device), ref->t->device_index + 1);
  if (amp_is_pinned(ref) || !can_pin()) {
    amp_retain(out, ref);
    return 0;
  }
  amp_tensor *tensor = pinned(ref->t->ndim, ref->t->size, ref->t->dtype);
  if (tensor == NULL) return state->err.code;
  int status = copy(state, tensor, ref->t, false, false);
  if (status < 0) amp__free(tensor);
  else out->t = tensor;
  return status;
}

int amp_copy_async(amp_state *state, const amp_ref *dst, const amp_ref *src)
{
  AMP_ENTER(state);
  if (amp__trace_refuse("a copy is queued", NULL) < 0) return state->err.code;
  if (dst->t == NULL || src->t == NULL)
    return amp__fail(AMP_E_ARGUMENT, "argument %d is a tensor that was freed", dst->t ? 2 : 1);
  return copy(state, dst->t, src->t, true, true);
}

int amp_to_async(amp_state *state, amp_ref *out, const amp_ref *ref, int device, int index)
{
  AMP_ENTER(state);
  if (amp__trace_refuse("a copy is queued", NULL) < 0) return state->err.code;
  if (ref->t == NULL) return amp__fail_arg(AMP_E_ARGUMENT, 1, "argument 1 is a tensor that was freed");
  if (device == AMP_CPU && ref->t->device != AMP_CPU && can_pin()) {
    amp_tensor *tensor = pinned(ref->t->ndim, ref->t->size, ref->t->dtype);
    int status = tensor ? copy(state, tensor, ref->t, true, true) : state->err.code;
    if (status < 0) amp__free(tensor);
    else out->t = tensor;
    return status;
  }
  amp_slot at = { .i = device * 256 + index };
  amp_tensor *result[AMP_MAX_OUT] = { NULL };
  state->priv->async = true;
  int status = amp__dispatch(AMP_OP_to_device, 0, &ref->t, 1, result, &at);
  state->priv->async = false;
  if (status >= 0) out->t = result[0];
  return status;
}
