/*
** amp_cast_user.c: casts that a region makes for functions of the user's.
**
** half_function, custom_fwd and their like live in Lua and decide by themselves what
** is cast; the casts are made here, as those of ops are: parameters' ones are kept,
** all are counted, and a verbose region prints each.
*/
#include "amp_compose.h"

int amp_autocast_cast(amp_state *S, amp_ref *out, const amp_ref *a, int dtype, const char *who, int argument)
{
  AMP_ENTER(S);
  amp_tensor *t = a->t;
  out->t = NULL;
  if (t == NULL) return amp__fail_arg(AMP_E_ARGUMENT, argument, "a tensor in argument %d was freed", argument);
  if (!amp__is_float(t->dtype) || !amp__is_float(dtype))
    return amp__fail_arg(AMP_E_DTYPE, argument, "autocast casts float tensors to float dtypes, not %s to %s", amp_dtype_name(t->dtype), amp_dtype_name(dtype));
  amp__refresh(t);
  int64_t cached = S->cached_casts;
  if ((out->t = amp__cast(t, dtype)) == NULL) return S->err.code;
  if (S->autocast[t->device].verbose && t->dtype != dtype)
    amp__log("amp: %s: argument %d from %s to %s, %s%s", who, argument, amp_dtype_name(t->dtype), amp_dtype_name(dtype),
             amp__shape_str(t->ndim, t->size), S->cached_casts > cached ? ", cached" : "");
  return 0;
}
