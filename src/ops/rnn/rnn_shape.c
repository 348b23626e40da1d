/*
** ops/rnn/rnn_shape.c: shape rules of one recurrent layer in one direction. What
** users call is checked by the composites in their words; these rules only hold
** for the kernels. Batch sizes are looked at by the kernel.
*/
#include "dispatch/shape_rules.h"

static int gates_of(int64_t mode) { return mode == RNN_LAYER_MODE_LSTM ? 4 : mode == RNN_LAYER_MODE_GRU ? 3 : 1; }

/* Values of a row of the reserve for each hidden one. A GPU keeps gates in 16 bits where its tensors are
** (kernels/rnn/rnn.cuh) */
static int kept_of(const amp_tensor *w_hh, int64_t mode)
{
  bool packs = w_hh->device != AMP_CPU && amp__is_half(w_hh->dtype);
  if (mode == RNN_LAYER_MODE_LSTM) return packs ? 3 : 5;
  return mode == RNN_LAYER_MODE_GRU ? packs ? 2 : 4 : 1;
}

static int want(const amp_tensor *tensor, const char *what, int dtype, int ndim, const int64_t *size)
{
  if (tensor == NULL) return 0;
  if (tensor->dtype != dtype)
    return amp__fail(AMP_E_DTYPE, "%s is %s, expected %s", what, amp_dtype_name(tensor->dtype), amp_dtype_name(dtype));
  return amp__want_shape(tensor, what, ndim, size);
}

static int check_sizes(const amp_tensor *tensor)
{
  if (tensor == NULL) return 0;
  if (tensor->dtype != AMP_INT64 || tensor->device != AMP_CPU)
    return amp__fail(AMP_E_DTYPE, "batch_sizes is %s, expected int64 on the CPU", amp__tensor_str(tensor));
  return tensor->ndim != 1 || tensor->size[0] < 1 ? amp__fail(
             AMP_E_SHAPE, "batch_sizes has shape %s, expected one dimension of at least 1", SHAPE_OF(tensor))
                                                  : 0;
}

/* hidden size, or an error */
static int hidden_of(const amp_tensor *w_hh, int64_t mode, bool single, int64_t *h)
{
  if (!amp__is_float(w_hh->dtype))
    return amp__fail(AMP_E_DTYPE, "w_hh is %s, expected a float dtype", amp_dtype_name(w_hh->dtype));
  if (w_hh->ndim != 2 || w_hh->size[0] % gates_of(mode))
    return amp__fail(AMP_E_SHAPE, "w_hh has shape %s, expected %d hidden x hidden", SHAPE_OF(w_hh), gates_of(mode));
  *h = w_hh->size[0] / gates_of(mode);
  if (*h == w_hh->size[1] || (single && mode != RNN_LAYER_MODE_GRU)) return 0;
  return amp__fail(AMP_E_SHAPE, "w_hh has shape %s, expected %lldx%lld", SHAPE_OF(w_hh), LL(w_hh->size[0]), LL(*h));
}

int amp__infer_rnn_layer(amp_call *call)
{
  const amp_tensor *inputs[8];
  for (int i = 0; i < 8; i++) inputs[i] = i < call->nin ? call->in[i] : NULL;
  const amp_tensor *input = inputs[0], *hx = inputs[1], *w_hh = inputs[4], *sizes = inputs[7];
  int64_t mode = AMP_ARGS(call, rnn_layer)->mode, hidden, rows, g = w_hh->ndim ? w_hh->size[0] : 0;
  int status, ndim = sizes ? 2 : 3, dtype = w_hh->dtype;
  if ((status = check_sizes(sizes)) < 0) return status;
  if (input->ndim != ndim)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected %d dimensions", SHAPE_OF(input), ndim);
  if (!sizes && input->size[0] < 1)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s: a sequence has at least one step", SHAPE_OF(input));
  if ((status = hidden_of(w_hh, mode, !sizes && input->size[0] == 1, &hidden)) < 0) return status;
  if ((mode == RNN_LAYER_MODE_LSTM) != (inputs[2] != NULL))
    return amp__fail_arg(AMP_E_ARGUMENT, 3, "cx is the state of an LSTM");
  if (hx->ndim != 2) return amp__fail_arg(AMP_E_SHAPE, 2, "hx has shape %s, expected 2 dimensions", SHAPE_OF(hx));
  int64_t count = sizes ? hx->size[0] : input->size[1], in_size = input->size[ndim - 1];
  int64_t state[2] = { count, w_hh->size[1] }, cell[2] = { count, hidden }, w_ih[2] = { g, in_size };
  if (input->dtype != dtype)
    return amp__fail_arg(AMP_E_DTYPE, 1, "input is %s and w_hh is %s; cast one of them or run it under amp.autocast",
                         amp_dtype_name(input->dtype), amp_dtype_name(dtype));
  if ((status = want(hx, "hx", dtype, 2, state)) < 0 || (status = want(inputs[2], "cx", dtype, 2, cell)) < 0
      || (status = want(inputs[3], "w_ih", dtype, 2, w_ih)) < 0 || (status = want(inputs[5], "b_ih", dtype, 1, &g)) < 0
      || (status = want(inputs[6], "b_hh", dtype, 1, &g)) < 0)
    return status;
  int64_t y[3] = { input->size[0], sizes ? hidden : count, hidden }, none = 0;
  rows = sizes ? input->size[0] : input->size[0] * count;
  int64_t reserve, last, row = hidden * kept_of(w_hh, mode);
  if (__builtin_mul_overflow(rows, row, &reserve)
      || __builtin_mul_overflow(count, mode == RNN_LAYER_MODE_LSTM ? hidden : 0, &last)
      || __builtin_add_overflow(reserve, last, &reserve))
    return amp__fail(AMP_E_SHAPE, "a sequence of %lld rows and %lld hidden values is too large", LL(rows), LL(hidden));
  amp__out(call, 0, dtype, ndim, y);
  amp__out(call, 1, dtype, 2, cell);
  if (mode == RNN_LAYER_MODE_LSTM) amp__out(call, 2, dtype, 2, cell);
  else amp__out(call, 2, dtype, 1, &none);
  amp__out(call, 3, amp__acc_dtype(dtype), 1, &reserve);
  return 0;
}

/* grad? grad_h? grad_c? reserve w_hh result hx batch_sizes? */
int amp__infer_rnn_layer_backward(amp_call *call)
{
  const amp_tensor *inputs[8];
  for (int i = 0; i < 8; i++) inputs[i] = i < call->nin ? call->in[i] : NULL;
  const amp_tensor *w_hh = inputs[4], *output = inputs[5], *hx = inputs[6], *sizes = inputs[7];
  int64_t mode = AMP_ARGS(call, rnn_layer_backward)->mode, hidden, none = 0;
  int status, ndim = sizes ? 2 : 3, dtype = w_hh->dtype;
  if ((status = check_sizes(sizes)) < 0) return status;
  if (output->ndim != ndim)
    return amp__fail(AMP_E_SHAPE, "result has shape %s, expected %d dimensions", SHAPE_OF(output), ndim);
  if ((status = hidden_of(w_hh, mode, !sizes && output->size[0] == 1, &hidden)) < 0) return status;
  if (hx->ndim != 2) return amp__fail(AMP_E_SHAPE, "hx has shape %s, expected 2 dimensions", SHAPE_OF(hx));
  int64_t count = hx->size[0], rows = sizes ? output->size[0] : output->size[0] * count,
          shape[3] = { output->size[0], sizes ? hidden : count, hidden };
  int64_t state[2] = { count, w_hh->size[1] }, cell[2] = { count, hidden }, gates[2] = { rows, w_hh->size[0] };
  int64_t before[2] = { !sizes && output->size[0] == 1 ? 0 : rows, w_hh->size[1] }; /* of a single step that is hx */
  int64_t reserve = rows * hidden * kept_of(w_hh, mode) + (mode == RNN_LAYER_MODE_LSTM ? count * hidden : 0);
  if ((status = want(output, "result", dtype, ndim, shape)) < 0 || (status = want(hx, "hx", dtype, 2, state)) < 0
      || (status = want(inputs[3], "reserve", amp__acc_dtype(dtype), 1, &reserve)) < 0)
    return status;
  for (int i = 0; i < 3; i++) {
    static const char *const name[3] = { "grad", "grad_h", "grad_c" };
    if (inputs[i] && !amp__is_float(inputs[i]->dtype))
      return amp__fail(AMP_E_DTYPE, "%s is %s, expected a float dtype", name[i], amp_dtype_name(inputs[i]->dtype));
    if (inputs[i] && (i < 2 || mode == RNN_LAYER_MODE_LSTM)
        && (status = amp__want_shape(inputs[i], name[i], i ? 2 : ndim, i ? cell : shape)) < 0)
      return status;
  }
  amp__out(call, 0, dtype, 2, gates);
  amp__out(call, 1, dtype, 2, state);
  if (mode == RNN_LAYER_MODE_GRU) amp__out(call, 2, dtype, 2, gates);
  else if (mode == RNN_LAYER_MODE_LSTM) amp__out(call, 2, dtype, 2, cell);
  else amp__out(call, 2, dtype, 1, &none);
  amp__out(call, 3, dtype, 2, before);
  for (int i = 0; i < 4; i++) { /* a first gradient may be absent: the others say where */
    call->meta[i].device = w_hh->device;
    call->meta[i].device_index = w_hh->device_index;
  }
  return 0;
}
