/*
** precision/cast_user.c: casts that a region makes for functions of the user's.
**
** half_function, custom_fwd and their like live in Lua and decide by themselves what
** is cast; the casts are made here, as those of ops are: parameters' ones are kept,
** all are counted, and a verbose region prints each.
*/
#include "dispatch/op_builder.h"
#include "precision/float8.h"
#include "precision/precision.h"

/* A cast that is a node: a copy that is kept would be a constant of the graph. */
static amp_tensor *recorded_cast(amp_tensor *tensor, int dtype)
{
  amp_tensor *out[AMP_MAX_OUT] = { NULL };
  amp_slot attribute = { .i = dtype };
  if (tensor->dtype == dtype) {
    amp__retain(tensor);
    return tensor;
  }
  if (amp__dispatch(AMP_OP_cast, 0, &tensor, 1, out, &attribute) < 0) return NULL;
  amp__S->casts++;
  return out[0];
}

int amp_autocast_cast(amp_state *state, amp_ref *out, const amp_ref *ref, int dtype, const char *who, int argument)
{
  AMP_ENTER(state);
  amp_tensor *tensor = ref->t;
  out->t = NULL;
  if (tensor == NULL) return amp__fail_arg(AMP_E_ARGUMENT, argument, "a tensor in argument %d was freed", argument);
  if (!amp__is_float(tensor->dtype) || !amp__is_float(dtype))
    return amp__fail_arg(AMP_E_DTYPE, argument, "autocast casts float tensors to float dtypes, not %s to %s",
                         amp_dtype_name(tensor->dtype), amp_dtype_name(dtype));
  amp__refresh(tensor);
  int64_t cached = state->cached_casts;
  if ((out->t = amp__tracing() ? recorded_cast(tensor, dtype) : amp__cast(tensor, dtype)) == NULL)
    return state->err.code;
  if (state->autocast[tensor->device].verbose & AMP_REGION_FLAG && tensor->dtype != dtype)
    amp__log("amp: %s: argument %d from %s to %s, %s%s", who, argument, amp_dtype_name(tensor->dtype),
             amp_dtype_name(dtype), amp__shape_str(tensor->ndim, tensor->size),
             state->cached_casts > cached ? ", cached" : "");
  return 0;
}
