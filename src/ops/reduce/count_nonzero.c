/*
** ops/reduce/count_nonzero.c: the count of elements that are not zero: a comparison, and its sum.
*/
#include "core.h"

int amp__cpu_count_nonzero(amp_call *call)
{
  amp_tensor *zero = amp__number(0), *inputs[2] = { call->in[0], zero }, *ne[AMP_MAX_OUT] = { NULL },
             *out[AMP_MAX_OUT] = { call->out[0] };
  const args_count_nonzero *args = AMP_ARGS(call, count_nonzero);
  args_sum sum_args = { .dim.n = args->dim.n, .dtype = AMP_INT64 };
  int status = zero ? amp__dispatch(AMP_OP_ne, 0, inputs, 2, ne, NULL) : amp__S->err.code;
  for (int i = 0; AMP_GIVEN(args->dim.n) && i < args->dim.n; i++)
    sum_args.dim.at[i] = args->dim.at[i] + 1; /* the rest is unset */
  if (status == 0) status = amp__dispatch(AMP_OP_sum, AMP_OUT, ne, 1, out, AMP_SLOT(sum_args));
  amp__free(ne[0]);
  amp__free(zero);
  return status;
}
