/*
** ops/norm/norm_composite.c: normalisation made of other ops: instance_norm by
** group_norm with a group a channel, and local_response_norm.
*/
#include <math.h>
#include "autograd/derivative.h"

/* An in-place op outside any graph */
static int change(int op, amp_tensor *tensor, amp_tensor *other, const amp_attrs *s)
{
  amp_tensor *inputs[2] = { tensor, other };
  amp__plain plain = amp__plain_begin();
  int status = amp__dispatch(op, AMP_INPLACE, inputs, other ? 2 : 1, NULL, s ? s->v : NULL);
  amp__plain_end(plain);
  return status;
}

/* -- Normalisation ---------------------------------------------------------------------------- */

int amp__comp_sync_batch_norm(amp_call *call)
{
  amp_attrs attrs = amp__attrs();
  amp__attrs_copy(&attrs, call->attrs, call->op->info.nslot);
  return amp__result(call, 0, amp__op(AMP_OP_batch_norm, &attrs, 5, call->in));
}

/* What running will hold: running + momentum (mean over samples of stat - running), in its dtype */
static amp_tensor *moved(amp_tensor *running, amp_tensor *stat, double momentum)
{
  int samples = 0, dtype = running->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  stat = amp__op_mean(stat, 1, &samples, false);
  amp_tensor *tensor = OP2(add, OP_NUMBER(mul, amp__op_cast(amp__op_detach(running), dtype), 1 - momentum),
                           OP_NUMBER(mul, stat, momentum));
  return amp__op_cast(tensor, running->dtype);
}

/* The copies come last: they take no memory, so that both statistics move or none. A journal's notes come before
** them. */
static int instance_stats(amp_call *call)
{
  const args_instance_norm *args = AMP_ARGS(call, instance_norm);
  int dims[AMP_MAX_DIM], n = 0, dtype = amp__is_half(call->in[0]->dtype) ? AMP_FLOAT32 : call->in[0]->dtype;
  int64_t list[AMP_MAX_DIM];
  amp_tensor *input = amp__op_cast(amp__op_detach(call->in[0]), dtype);
  for (int dim = 2; dim < call->in[0]->ndim; dim++) {
    dims[n] = dim;
    list[n++] = dim + 1;
  }
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, n, list);
  amp__attrs_float(&attrs, 1);
  amp__attrs_int(&attrs, 0);
  amp_tensor *var = amp__op(AMP_OP_var, &attrs, 1, &input), *mean = amp__op_mean(input, n, dims, false);
  if (!var || !mean) return amp__err();
  mean = moved(call->in[1], mean, args->momentum);
  var = moved(call->in[2], var, args->momentum);
  if (!mean || !var) return amp__err();
  int status = amp__journal_note(call->in[1]);
  if (status == 0) status = amp__journal_note(call->in[2]);
  if (status == 0) status = change(AMP_OP_copy, call->in[1], mean, NULL);
  return status < 0 ? status : change(AMP_OP_copy, call->in[2], var, NULL);
}

int amp__comp_instance_norm(amp_call *call)
{ /* input running_mean? running_var? weight? bias?; use_input_stats momentum eps */
  const args_instance_norm *args = AMP_ARGS(call, instance_norm);
  static const char *const name[] = { "", "running_mean", "running_var", "weight", "bias" };
  amp_tensor *input = call->in[0];
  amp_attrs attrs = amp__attrs();
  if (input->ndim < 2)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected N x C x ...",
                         amp__shape_str(input->ndim, input->size));
  for (int i = 1; i < 5; i++)
    if (call->in[i] && (call->in[i]->ndim != 1 || call->in[i]->size[0] != input->size[1]))
      return amp__fail_arg(AMP_E_SHAPE, i + 1, "%s has shape %s, expected %lld (dimension 2 of the input)", name[i],
                           amp__shape_str(call->in[i]->ndim, call->in[i]->size), (long long)input->size[1]);
  if ((call->in[1] == NULL) != (call->in[2] == NULL))
    return amp__fail(AMP_E_ARGUMENT, "running_mean and running_var come together");
  if (!args->use_input_stats) {
    if (!call->in[1])
      return amp__fail(AMP_E_ARGUMENT, "without use_input_stats, running_mean and running_var are needed");
    amp__attrs_int(&attrs, 0);
    amp__attrs_copy(&attrs, AMP_SLOT(args->momentum), 2);
    return amp__result(call, 0, amp__op(AMP_OP_batch_norm, &attrs, 5, call->in));
  }
  if (input->numel && input->numel == input->size[0] * input->size[1])
    return amp__fail_arg(AMP_E_SHAPE, 1, "statistics need more than one value a channel and sample, input has shape %s",
                         amp__shape_str(input->ndim, input->size));
  amp_tensor *inputs[3] = { input, call->in[3], call->in[4] };
  amp__attrs_int(&attrs, input->size[1] ? input->size[1] : 1);
  amp__attrs_copy(&attrs, AMP_SLOT(args->eps), 1);
  int status = amp__result(call, 0, amp__op(AMP_OP_group_norm, &attrs, 3, inputs));
  return status == 0 && call->in[1] && input->numel ? instance_stats(call) : status;
}

int amp__comp_local_response_norm(amp_call *call)
{ /* size alpha beta k */
  const args_local_response_norm *args = AMP_ARGS(call, local_response_norm);
  amp_tensor *input = call->in[0];
  int64_t n = args->size, edge[AMP_MAX_DIM];
  if (input->ndim < 3)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected at least 3 dimensions (N x C x ...)",
                         amp__shape_str(input->ndim, input->size));
  if (n < 1) return amp__fail(AMP_E_ARGUMENT, "size %lld must be positive", (long long)n);
  if (input->numel == 0) return amp__result(call, 0, OP1(clone, input));
  int64_t before = n / 2, after = (n - 1) / 2, channels = input->size[1]; /* neighbours, as far as there are any */
  if (before > channels - 1) before = channels - 1;
  if (after > channels - 1) after = channels - 1;
  amp_tensor *weight = amp__op_cast(input, amp__is_half(input->dtype) ? AMP_FLOAT32 : input->dtype),
             *sq = OP2(mul, weight, weight), *list[3];
  int parts = 0;
  for (int side = 0; side < 2; side++) {
    if (side == 1) list[parts++] = sq;
    if ((side ? after : before) == 0) continue;
    memcpy(edge, input->size, sizeof edge);
    edge[1] = side ? after : before;
    list[parts++] = sq ? amp__op_full(0, sq->dtype, input->device, input->device_index, input->ndim, edge) : NULL;
  }
  amp_tensor *padded = parts == 1 ? sq : amp__op_dim(AMP_OP_cat, 1, parts, list), *sum = NULL;
  for (int64_t i = 0; i <= before + after; i++) {
    amp_tensor *tensor = amp__op_narrow(padded, 1, i, channels);
    sum = i == 0 ? tensor : OP2(add, sum, tensor);
  }
  amp_tensor *d = OP_NUMBER(pow, OP_NUMBER(add, OP_NUMBER(mul, sum, args->alpha / (double)n), args->k), args->beta);
  return amp__result(call, 0, amp__op_cast(OP2(div, weight, d), input->dtype));
}
