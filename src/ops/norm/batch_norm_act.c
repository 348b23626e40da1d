/*
** ops/norm/batch_norm_act.c: rows batch_norm_act and batch_norm_act_backward on a CPU,
** made of the kernels of the ops they join: values are theirs to the bit. A GPU
** gains by fusing them (kernels/norm/batch_norm_act.cu).
*/
#include "cpu/strided.h"

static amp_tensor *argument(const amp_call *call, int i) { return i < call->nin ? call->in[i] : NULL; }

int amp__cpu_batch_norm_act(amp_call *call)
{
  const args_batch_norm_act *args = AMP_ARGS(call, batch_norm_act);
  amp_tensor *result = call->out[0], *batches = argument(call, 6), *pair[2] = { result, argument(call, 1) };
  amp_tensor *inputs[5] = { call->in[0], argument(call, 2), argument(call, 3), argument(call, 4), argument(call, 5) };
  int status = amp__cpu_row(AMP_OP_batch_norm, 5, inputs, 3, call->out, AMP_SLOT(args->training));
  if (status == 0 && pair[1]) status = amp__cpu_row(AMP_OP_add, 2, pair, 1, &result, NULL);
  if (status == 0 && args->relu) status = amp__cpu_row(AMP_OP_relu, 1, &result, 1, &result, NULL);
  if (status == 0 && batches && args->training) {
    *(int64_t *)amp__data(batches) += 1;
    amp__bump(batches);
  }
  return status;
}

/* The result once more, in float64, from what backward has: its sign is relu's mask. Counted; NULL: error. */
static amp_tensor *again(const amp_call *call)
{
  amp_tensor *result = NULL,
             *tensor[5] = { call->in[1], call->in[5], call->in[6], argument(call, 3), argument(call, 4) },
             *d[5] = { NULL };
  bool copied = true;
  for (int i = 0; i < 5; i++)
    if (tensor[i] && (d[i] = amp__dense(tensor[i], AMP_FLOAT64)) == NULL) copied = false;
  if (copied && (result = amp__tensor_make(AMP_FLOAT64, AMP_CPU, 0, tensor[0]->ndim, tensor[0]->size)) != NULL) {
    int64_t channels = tensor[0]->size[1], inner = 1;
    for (int i = 2; i < tensor[0]->ndim; i++) inner *= tensor[0]->size[i];
    for (int64_t i = 0; i < result->numel; i++) {
      int64_t k = i / inner % channels;
      double v = (AMP_DATA(double, d[0])[i] - AMP_DATA(double, d[1])[k]) * AMP_DATA(double, d[2])[k];
      AMP_DATA(double, result)[i] = v * (d[3] ? AMP_DATA(double, d[3])[k] : 1) + (d[4] ? AMP_DATA(double, d[4])[k] : 0);
    }
  }
  for (int i = 0; i < 5; i++) amp__free(d[i]);
  return result;
}

int amp__cpu_batch_norm_act_backward(amp_call *call)
{
  const args_batch_norm_act_backward *args = AMP_ARGS(call, batch_norm_act_backward);
  amp_tensor *input = call->in[1], *grad = args->residual ? call->out[3] : NULL, *result = call->in[2],
             *pair[2] = { call->in[0], NULL };
  amp_meta meta;
  if (result) amp__retain(result);
  else if ((result = again(call)) == NULL) return amp__S->err.code;
  pair[1] = result;
  if (grad) amp__retain(grad);
  else {
    amp__meta_of(input, &meta);
    if ((grad = amp__tensor_new(&meta)) == NULL) {
      amp__free(result);
      return amp__S->err.code;
    }
  }
  amp_tensor *inputs[5] = { grad, input, call->in[3], call->in[5], call->in[6] };
  int status = amp__cpu_row(AMP_OP_relu_backward, 2, pair, 1, &grad, NULL);
  if (status == 0) status = amp__cpu_row(AMP_OP_batch_norm_backward, 5, inputs, 3, call->out, call->attrs);
  amp__free(grad);
  amp__free(result);
  return status;
}
