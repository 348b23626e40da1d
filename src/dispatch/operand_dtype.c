/*
** dispatch/operand_dtype.c: operands of a dtype that their op's row does not name: those that
** are taken all the same, and the error for the others.
*/
#include "dispatch/dispatch.h"

static const char *wanted_dtype(const amp_op_desc *row, int dtype)
{
  if (amp__is_float8(dtype))
    return "which is for storage, not for arithmetic; cast it first, as by t:float() or t:to('bfloat16')";
  switch (row->info.dtypes) {
  case AMP_DT_FLOAT: return "expected a float dtype";
  case AMP_DT_FLOAT | AMP_DT_INT: return "expected a float or integer dtype";
  case AMP_DT_INT: return "expected an integer dtype";
  case AMP_DT_INT | AMP_DT_BOOL: return "expected an integer dtype or bool";
  case AMP_DT_BOOL: return "expected bool";
  default: return "expected another dtype";
  }
}

/* A bool among the operands of arithmetic is 0 or 1 in the dtype that the others have. As in PyTorch bools have no
** difference, and bools alone no arithmetic. */
static bool counts_as_number(const amp_call *call, const amp_tensor *tensor)
{
  const amp_op_desc *row = call->op;
  if (tensor->dtype != AMP_BOOL || call->id == AMP_OP_sub) return false;
  if (!(row->info.flags & AMP_F_ELEMENTWISE) || !(row->info.dtypes & AMP_DT_INT)) return false;
  for (int i = 0; i < call->nin; i++)
    if (call->in[i] && call->in[i]->dtype != AMP_BOOL) return true;
  return false;
}

int amp__other_dtype(const amp_call *call, int i)
{
  const amp_op_desc *row = call->op;
  const amp_tensor *tensor = call->in[i];
  const bool number = tensor->flags & AMP_T_NUMBER; /* which has no dtype of its own */
  if ((number && call->nin > 1 && (row->info.dtypes & AMP_DT_INT)) || counts_as_number(call, tensor)) return 0;
  return amp__fail_arg(AMP_E_DTYPE, i + 1, "argument %d has dtype %s, %s", i + 1, amp_dtype_name(tensor->dtype),
                       wanted_dtype(row, tensor->dtype));
}
