/*
** ops/matmul/linear_act.c: rows linear_act, act_backward, linear_input, linear_weight and
** linear_both on a CPU, made of the kernels of the ops they join: a GPU gains by fusing
** them, a CPU has the data in its cache.
*/
#include "cpu/strided.h"

/* The attributes of gelu that `act` means */
static void gelu_of(int64_t act, amp_slot *attrs)
{
  ((args_gelu *)attrs)->approximate = act == ACT_GELU_TANH ? APPROXIMATE_TANH : APPROXIMATE_NONE;
}

int amp__cpu_linear_act(amp_call *call)
{
  int64_t act = AMP_ARGS(call, linear_act)->act;
  amp_tensor *before = act == ACT_RELU ? call->out[0] : call->out[1];
  amp_tensor *inputs[3] = { call->in[0], call->in[1], call->nin > 2 ? call->in[2] : NULL };
  amp_slot a[AMP_MAX_SLOT] = { { 0 } };
  gelu_of(act, a);
  int status = amp__cpu_row(AMP_OP_linear, 3, inputs, 1, &before, NULL);
  return status < 0 ? status
                    : amp__cpu_row(act == ACT_RELU ? AMP_OP_relu : AMP_OP_gelu, 1, &before, 1, &call->out[0], a);
}

/* out = sums of tensor over all but its last dimension */
static int sums(amp_tensor *tensor, amp_tensor *out)
{
  amp_slot a[AMP_MAX_SLOT] = { { 0 } };
  args_sum *args = (args_sum *)a;
  args->dim.n = tensor->ndim - 1;
  for (int dim = 0; dim + 1 < tensor->ndim; dim++) args->dim.at[dim] = dim;
  args->dtype = AMP_NONE;
  if (tensor->ndim == 1) return amp__copy_to(out, tensor);
  return amp__cpu_row(AMP_OP_sum, 1, &tensor, 1, &out, a);
}

int amp__cpu_act_backward(amp_call *call)
{
  int64_t act = AMP_ARGS(call, act_backward)->act;
  amp_slot a[AMP_MAX_SLOT] = { { 0 } };
  gelu_of(act, a);
  int status
      = amp__cpu_row(act == ACT_RELU ? AMP_OP_relu_backward : AMP_OP_gelu_backward, 2, call->in, 1, &call->out[0], a);
  return status < 0 ? status : sums(call->out[0], call->out[1]);
}

/* tensor as a matrix of rows; counted */
static amp_tensor *rows(amp_tensor *tensor, bool turned)
{
  amp_tensor *d = amp__dense(tensor, tensor->dtype);
  int64_t n = tensor->size[tensor->ndim - 1], m = n ? tensor->numel / n : 0, size[2] = { m, n }, stride[2] = { n, 1 };
  if (n == 0) {
    m = 1;
    for (int i = 0; i + 1 < tensor->ndim; i++) m *= tensor->size[i];
    size[0] = m;
  }
  if (turned) {
    size[0] = n;
    size[1] = m;
    stride[0] = 1;
    stride[1] = n;
  }
  amp_tensor *v = d ? amp__tensor_view(d, 2, size, stride, d->offset) : NULL;
  amp__free(d);
  return v;
}

/* grad where a ReLU's result is above 0, else 0; counted */
static amp_tensor *behind_relu(amp_tensor *grad, amp_tensor *result)
{
  amp_tensor *inputs[2] = { grad, result }, *before;
  amp_meta meta;
  amp__meta_of(grad, &meta);
  if ((before = amp__tensor_new(&meta)) && amp__cpu_row(AMP_OP_relu_backward, 2, inputs, 1, &before, NULL) < 0) {
    amp__free(before);
    before = NULL;
  }
  return before;
}

int amp__cpu_linear_input(amp_call *call)
{
  amp_tensor *inputs[2] = { behind_relu(call->in[0], call->in[2]), call->in[1] };
  int status = inputs[0] ? amp__cpu_row(AMP_OP_matmul, 2, inputs, 1, &call->out[0], NULL) : amp__S->err.code;
  amp__free(inputs[0]);
  return status;
}

/* Gradients of weight and bias into out[0] and out[1] */
static int weight_of(amp_tensor *grad, amp_tensor *input, amp_tensor **out)
{
  amp_tensor *inputs[2] = { rows(grad, true), rows(input, false) };
  int status = inputs[0] && inputs[1] ? amp__cpu_row(AMP_OP_matmul, 2, inputs, 1, &out[0], NULL) : amp__S->err.code;
  amp__free(inputs[0]);
  amp__free(inputs[1]);
  return status < 0 ? status : sums(grad, out[1]);
}

int amp__cpu_linear_weight(amp_call *call)
{
  amp_tensor *result = call->nin > 2 ? call->in[2] : NULL, *grad = call->in[0], *before = NULL;
  if (result && (grad = before = behind_relu(grad, result)) == NULL) return amp__S->err.code;
  int status = weight_of(grad, call->in[1], call->out);
  amp__free(before);
  return status;
}

int amp__cpu_linear_both(amp_call *call)
{
  amp_tensor *result = call->nin > 3 ? call->in[3] : NULL, *inputs[2] = { call->in[0], call->in[2] }, *before = NULL;
  if (result && (inputs[0] = before = behind_relu(inputs[0], result)) == NULL) return amp__S->err.code;
  int status = amp__cpu_row(AMP_OP_matmul, 2, inputs, 1, &call->out[0], NULL);
  if (status == 0) status = weight_of(inputs[0], call->in[1], call->out + 1);
  amp__free(before);
  return status;
}
