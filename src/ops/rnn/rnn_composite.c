/*
** ops/rnn/rnn_composite.c: recurrent cells and layers. A cell is a layer of one step; a
** net is rnn_layer for each layer and direction, joined by concatenation and
** dropout. With proj_size an LSTM's state is a product of its result, so its
** steps are layers of one step each.
**
** Everything a user can get wrong is checked here, in the user's words. Data is
** length x batch x size (or batch first, or without a batch), or with `packed`
** rows x size and the batch sizes last among the weights.
*/
#include <stdio.h>
#include <stdlib.h>
#include "autograd/derivative.h"
#include "dispatch/shape_rules.h"

/* The attributes of gru are those that rnn and lstm begin with. */
_Static_assert(offsetof(args_rnn, mode) == sizeof(args_gru) && offsetof(args_lstm, proj_size) == sizeof(args_gru),
               "rows of amp_ops.def begin otherwise");

typedef struct rnn_net {
  int mode;
  int64_t layers, directions, input_size, hidden, proj_size, output_size; /* output_size: of a direction */
  int64_t steps, batch;
  bool bias, batch_first, packed, single; /* single: no batch dimension was given */
  double dropout;
  amp_tensor *sizes;
  int weights_each, first; /* weights of a direction, and the place of the first among the arguments */
} rnn_net;

static int gates_of(int mode) { return mode == RNN_LAYER_MODE_LSTM ? 4 : mode == RNN_LAYER_MODE_GRU ? 3 : 1; }
static amp_tensor *linear(amp_tensor *input, amp_tensor *weight)
{
  amp_tensor *inputs[3] = { input, weight, NULL };
  return amp__op(AMP_OP_linear, NULL, 3, inputs);
}

static int same_dtype(const amp_tensor *input, const amp_tensor *tensor, const char *what)
{
  if (tensor == NULL || tensor->dtype == input->dtype) return 0;
  return amp__fail(AMP_E_DTYPE, "input is %s and %s is %s; cast one of them or run it under amp.autocast",
                   amp_dtype_name(input->dtype), what, amp_dtype_name(tensor->dtype));
}

/* One direction of a layer: results, last h, last c */
static int layer(int mode, bool reverse, amp_tensor *input, amp_tensor *h, amp_tensor *c, amp_tensor *const *w,
                 bool bias, amp_tensor *sizes, amp_tensor **out)
{
  amp_tensor *inputs[8] = { input, h, c, w[0], w[1], bias ? w[2] : NULL, bias ? w[3] : NULL, sizes };
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, mode);
  amp__attrs_int(&attrs, reverse);
  if (!input || !h || (mode == RNN_LAYER_MODE_LSTM && !c)) return amp__err();
  return amp__op_results(AMP_OP_rnn_layer, &attrs, 8, inputs, out);
}

/* -- Cells ------------------------------------------------------------------------ */

static int cell(amp_call *call, int mode)
{
  int k = mode == RNN_LAYER_MODE_LSTM ? 3 : 2, status; /* place of w_ih */
  amp_tensor *inputs[7] = { NULL }, *out[AMP_MAX_OUT];
  for (int i = 0; i < call->nin && i < 7; i++) inputs[i] = call->in[i];
  amp_tensor *input = inputs[0], *h = inputs[1], *w_ih = inputs[k], *w_hh = inputs[k + 1],
             *b[2] = { inputs[k + 2], inputs[k + 3] };
  int64_t gates = gates_of(mode);
  if (input->ndim != 1 && input->ndim != 2)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected batch x size, or size", SHAPE_OF(input));
  static const char *const name[] = { "hx", "cx", "w_ih", "w_hh", "b_ih", "b_hh" };
  for (int i = 1; i < call->nin; i++)
    if ((status = same_dtype(input, call->in[i], name[i - 1 + (mode != RNN_LAYER_MODE_LSTM && i > 1)])) < 0)
      return status;
  if (w_hh->ndim != 2 || w_hh->size[0] != gates * w_hh->size[1])
    return amp__fail_arg(AMP_E_SHAPE, k + 2, "w_hh has shape %s, expected %s%s x hidden", SHAPE_OF(w_hh),
                         gates == 1   ? ""
                         : gates == 3 ? "3 "
                                      : "4 ",
                         "hidden");
  int64_t hidden = w_hh->size[1], count = input->ndim == 2 ? input->size[0] : 1, last = input->size[input->ndim - 1];
  if (w_ih->ndim != 2 || w_ih->size[0] != w_hh->size[0])
    return amp__fail_arg(AMP_E_SHAPE, k + 1, "w_ih has shape %s, expected %lld x size of input (w_hh is %s)",
                         SHAPE_OF(w_ih), LL(w_hh->size[0]), SHAPE_OF(w_hh));
  if (w_ih->size[1] != last)
    return amp__fail(AMP_E_SHAPE,
                     "input has shape %s and w_ih %s: the last dimension of input is %lld, w_ih takes %lld",
                     SHAPE_OF(input), SHAPE_OF(w_ih), LL(last), LL(w_ih->size[1]));
  for (int i = 0; i < 2; i++)
    if (b[i] && (b[i]->ndim != 1 || b[i]->size[0] != w_hh->size[0]))
      return amp__fail(AMP_E_SHAPE, "%s has shape %s, expected %lld (dimension 1 of w_hh)", i ? "b_hh" : "b_ih",
                       SHAPE_OF(b[i]), LL(w_hh->size[0]));
  int64_t state[2] = { count, hidden }, data[3] = { 1, count, last };
  for (int i = 0; i < (mode == RNN_LAYER_MODE_LSTM ? 2 : 1); i++) {
    const amp_tensor *tensor = inputs[1 + i];
    const int64_t *want = input->ndim == 2 ? state : state + 1;
    if (tensor->ndim != input->ndim || memcmp(tensor->size, want, sizeof *want * (size_t)input->ndim) != 0)
      return amp__fail_arg(
          AMP_E_SHAPE, 2 + i, "%s has shape %s, expected %s for an input of shape %s and %lld hidden values",
          i ? "cx" : "hx", SHAPE_OF(tensor), amp__shape_str(input->ndim, want), SHAPE_OF(input), LL(hidden));
  }
  amp_tensor *w[4] = { w_ih, w_hh, b[0], b[1] };
  status = layer(mode, false, amp__op_view(input, 3, data), amp__op_view(h, 2, state),
                 mode == RNN_LAYER_MODE_LSTM ? amp__op_view(inputs[2], 2, state) : NULL, w, true, NULL, out);
  for (int i = 0; i < (mode == RNN_LAYER_MODE_LSTM ? 2 : 1) && status == 0; i++)
    status = amp__result(call, i, input->ndim == 2 ? out[1 + i] : amp__op_view(out[1 + i], 1, &hidden));
  return status;
}

int amp__comp_rnn_tanh_cell(amp_call *call) { return cell(call, RNN_LAYER_MODE_TANH); }
int amp__comp_rnn_relu_cell(amp_call *call) { return cell(call, RNN_LAYER_MODE_RELU); }
int amp__comp_lstm_cell(amp_call *call) { return cell(call, RNN_LAYER_MODE_LSTM); }
int amp__comp_gru_cell(amp_call *call) { return cell(call, RNN_LAYER_MODE_GRU); }

/* -- Checks of a net ------------------------------------------------------------------ */

/* "w_ih of layer 2, backward" */
static const char *weight_name(char *buf, size_t bytes, const rnn_net *net, int64_t i)
{
  static const char *const name[5] = { "w_ih", "w_hh", "b_ih", "b_hh", "w_hr" };
  int64_t w = i % net->weights_each, d = i / net->weights_each, part = !net->bias && w == 2 ? 4 : w;
  snprintf(buf, bytes, "%s of layer %lld%s", name[part], LL(d / net->directions + 1),
           d % net->directions ? ", backward" : "");
  return buf;
}

static int check_weight(const amp_call *call, const rnn_net *net, int64_t i)
{
  int64_t part = i % net->weights_each, l = i / net->weights_each / net->directions,
          rows = gates_of(net->mode) * net->hidden, size[2] = { rows, 0 };
  const amp_tensor *weight = call->in[net->first + i];
  char buf[64];
  int status = same_dtype(call->in[0], weight, weight_name(buf, sizeof buf, net, i));
  if (status < 0) return status;
  int ndim = 2;
  if (part == 0) size[1] = l == 0 ? net->input_size : net->output_size * net->directions;
  else if (part == 1) size[1] = net->output_size;
  else if (net->bias && part < 4) ndim = 1;
  else {
    size[0] = net->proj_size;
    size[1] = net->hidden;
  }
  if (weight->ndim == ndim && memcmp(weight->size, size, sizeof *size * (size_t)ndim) == 0) return 0;
  if (i == 0 && weight->ndim == 2 && weight->size[0] == rows)
    return amp__fail(
        AMP_E_SHAPE,
        "input has shape %s and w_ih of layer 1 %s: the last dimension of input is %lld, the layer takes %lld",
        SHAPE_OF(call->in[0]), SHAPE_OF(weight), LL(net->input_size), LL(weight->size[1]));
  return amp__fail(AMP_E_SHAPE, "%s has shape %s, expected %s", buf, SHAPE_OF(weight), amp__shape_str(ndim, size));
}

static int check_state(const amp_call *call, const rnn_net *net, int i)
{
  const amp_tensor *tensor = call->in[i], *input = call->in[0];
  const char *what = i == 1 ? "hx" : "cx";
  int64_t size[3] = { net->layers * net->directions, net->batch, i == 1 ? net->output_size : net->hidden };
  if (net->single) size[1] = size[2];
  int ndim = net->single ? 2 : 3, status = same_dtype(input, tensor, what);
  if (status < 0) return status;
  if (net->packed && tensor->ndim == 3 && tensor->size[1] < 1)
    return amp__fail_arg(AMP_E_SHAPE, i + 1, "%s has shape %s, a batch of 0", what, SHAPE_OF(tensor));
  if (tensor->ndim == ndim && memcmp(tensor->size, size, sizeof *size * (size_t)ndim) == 0) return 0;
  return amp__fail_arg(AMP_E_SHAPE, i + 1,
                       "%s has shape %s, expected %s (layers * directions%s x hidden) for an input of shape %s", what,
                       SHAPE_OF(tensor), amp__shape_str(ndim, size), net->single ? "" : " x batch", SHAPE_OF(input));
}

/* Sizes of the input, and of packed data the batch sizes */
static int read_data(const amp_call *call, rnn_net *net)
{
  const amp_tensor *input = call->in[0];
  int time = net->batch_first && !net->single && !net->packed ? 1 : 0;
  net->input_size = input->size[input->ndim - 1];
  if (net->packed) {
    net->sizes = call->in[call->nin - 1];
    if (net->sizes->dtype != AMP_INT64 || net->sizes->ndim != 1 || net->sizes->size[0] < 1
        || net->sizes->device != AMP_CPU)
      return amp__fail(AMP_E_ARGUMENT, "batch_sizes is %s, expected int64 and one dimension of at least 1, on the CPU",
                       amp__tensor_str(net->sizes));
    net->steps = net->sizes->size[0];
    net->batch = (int64_t)amp__element(net->sizes, 0);
    return 0;
  }
  net->steps = input->size[time];
  net->batch = net->single ? 1 : input->size[1 - time];
  if (net->steps < 1)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s: a sequence has at least one step", SHAPE_OF(input));
  return 0;
}

static int read_net(const amp_call *call, rnn_net *net, int mode)
{
  const amp_tensor *input = call->in[0];
  const args_gru *args = AMP_ARGS(call, gru);
  int status;
  net->mode = mode;
  net->layers = args->num_layers;
  net->bias = args->bias != 0;
  net->batch_first = args->batch_first != 0;
  net->directions = args->bidirectional ? 2 : 1;
  net->dropout = args->training ? args->dropout : 0;
  net->packed = args->packed != 0;
  net->proj_size = mode == RNN_LAYER_MODE_LSTM ? AMP_ARGS(call, lstm)->proj_size : 0;
  net->first = mode == RNN_LAYER_MODE_LSTM ? 3 : 2;
  net->weights_each = 2 + (net->bias ? 2 : 0) + (net->proj_size ? 1 : 0);
  int64_t weights = call->nin - net->first - (net->packed ? 1 : 0);
  if (net->layers < 1 || net->layers > 1000000)
    return amp__fail(AMP_E_ARGUMENT, "num_layers %lld must lie in 1..1000000", LL(net->layers));
  if (!(args->dropout >= 0 && args->dropout <= 1))
    return amp__fail(AMP_E_VALUE, "dropout %g must lie in 0..1", args->dropout);
  if (weights != net->layers * net->directions * net->weights_each)
    return amp__fail(AMP_E_ARGUMENT, "%lld weights are given, expected %lld: %d for each of %lld layers%s",
                     LL(weights < 0 ? 0 : weights), LL(net->layers * net->directions * net->weights_each),
                     net->weights_each, LL(net->layers), net->directions == 2 ? " in both directions" : "");
  if (!amp__is_float(input->dtype))
    return amp__fail_arg(AMP_E_DTYPE, 1, "input has dtype %s, expected a float dtype", amp_dtype_name(input->dtype));
  net->single = !net->packed && input->ndim == 2;
  if (net->packed ? input->ndim != 2 : input->ndim != 3 && input->ndim != 2)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected %s", SHAPE_OF(input),
                         net->packed        ? "rows x size"
                         : net->batch_first ? "batch x length x size, or length x size"
                                            : "length x batch x size, or length x size");
  const amp_tensor *u = call->in[net->first + 1];
  if (u->ndim != 2 || u->size[0] % gates_of(mode))
    return amp__fail(AMP_E_SHAPE, "w_hh of layer 1 has shape %s, expected %s%s", SHAPE_OF(u),
                     gates_of(mode) == 1   ? ""
                     : gates_of(mode) == 3 ? "3 * "
                                           : "4 * ",
                     "hidden x hidden");
  net->hidden = u->size[0] / gates_of(mode);
  if (net->proj_size < 0 || (net->proj_size && net->proj_size >= net->hidden))
    return amp__fail(AMP_E_ARGUMENT, "proj_size %lld must be less than the hidden size %lld", LL(net->proj_size),
                     LL(net->hidden));
  net->output_size = net->proj_size ? net->proj_size : net->hidden;
  if ((status = read_data(call, net)) < 0) return status;
  for (int64_t i = 0; i < weights; i++)
    if ((status = check_weight(call, net, i)) < 0) return status;
  for (int i = 1; i < net->first; i++)
    if ((status = check_state(call, net, i)) < 0) return status;
  return 0;
}

/* -- Steps of an LSTM whose state is projected ------------------------------------------- */

static int64_t size_at(const rnn_net *net, int64_t step_at)
{
  if (step_at < 0 || step_at >= net->steps) return 0;
  return net->sizes ? (int64_t)amp__element(net->sizes, step_at * net->sizes->stride[0]) : net->batch;
}

static amp_tensor *rows_of(amp_tensor *tensor, int64_t first, int64_t rows)
{
  return tensor && first == 0 && tensor->size[0] == rows ? tensor : amp__op_narrow(tensor, 0, first, rows);
}
static amp_tensor *join(int n, amp_tensor *const *inputs)
{
  return n == 1 ? inputs[0] : amp__op_dim(AMP_OP_cat, 0, n, inputs);
}

/* So many rows of a state: those of the step before, then those that start now */
static amp_tensor *state(amp_tensor *before, amp_tensor *initial, int64_t rows)
{
  if (!before) return rows_of(initial, 0, rows);
  if (before->size[0] >= rows) return rows_of(before, 0, rows);
  amp_tensor *inputs[2] = { before, amp__op_narrow(initial, 0, before->size[0], rows - before->size[0]) };
  return join(2, inputs);
}

static int projected(const rnn_net *net, bool reverse, amp_tensor *input, amp_tensor *h0, amp_tensor *c0,
                     amp_tensor *const *w, amp_tensor **out)
{
  int64_t width = input->size[input->ndim - 1], rows = input->numel / (width > 0 ? width : 1), at = 0;
  amp_tensor *h = NULL, *c = NULL, *last[2] = { NULL, NULL }, *one[AMP_MAX_OUT], *output;
  int status = AMP_E_MEMORY;
  if (width == 0) return amp__fail(AMP_E_SHAPE, "an input of size 0 takes no proj_size");
  int64_t flat[2] = { rows, width };
  OR_FAIL(input = amp__op_view(input, 2, flat));
  amp_tensor **list = malloc(sizeof *list * (size_t)net->steps);
  if (!list) return amp__nomem(sizeof *list * (size_t)net->steps);
  if (reverse) at = rows;
  for (int64_t i = 0; i < net->steps; i++) {
    int64_t step_at = reverse ? net->steps - 1 - i : i, count = size_at(net, step_at), data[3] = { 1, count, width };
    int64_t left = reverse ? at : rows - at;
    if (count < 0 || count > net->batch || count > left || (i == net->steps - 1 && count != left)) {
      status = amp__fail(AMP_E_VALUE, "batch_sizes never grow and add up to the %lld rows of input", LL(rows));
      goto out;
    }
    if (reverse) at -= count;
    h = state(h, h0, count);
    c = state(c, c0, count);
    if ((status = layer(RNN_LAYER_MODE_LSTM, false, amp__op_view(rows_of(input, at, count), 3, data), h, c, w,
                        net->bias, NULL, one))
        < 0)
      goto out;
    list[step_at] = h = linear(one[1], w[net->weights_each - 1]);
    c = one[2];
    if (!reverse) at += count;
    /* elements whose last step this is stand before those that ended earlier */
    int64_t more = reverse ? 0 : size_at(net, step_at + 1);
    if (!reverse && count > more) {
      amp_tensor *a[2] = { rows_of(h, 0, count), last[0] }, *b[2] = { c, last[1] };
      if (more) {
        a[0] = amp__op_narrow(h, 0, more, count - more);
        b[0] = amp__op_narrow(c, 0, more, count - more);
      }
      last[0] = join(last[0] ? 2 : 1, a);
      last[1] = join(last[1] ? 2 : 1, b);
      if (!last[0] || !last[1]) {
        status = amp__err();
        goto out;
      }
    }
  }
  status = 0;
  output = join((int)net->steps, list);
  int64_t whole[3] = { net->steps, net->batch, net->output_size };
  out[0] = net->packed ? output : amp__op_view(output, 3, whole);
  out[1] = reverse ? h : last[0];
  out[2] = reverse ? c : last[1];
  if (!out[0] || !out[1] || !out[2]) status = amp__err();
out:
  free(list);
  return status;
}

/* -- The net ------------------------------------------------------------------------------- */

/* state i of layers * directions: batch x size */
static amp_tensor *initial(const rnn_net *net, amp_tensor *tensor, int64_t i)
{
  int64_t size[2] = { net->batch, tensor->size[tensor->ndim - 1] };
  if (net->layers * net->directions > 1) tensor = amp__op_narrow(tensor, 0, i, 1);
  return amp__op_view(tensor, 2, size);
}

static amp_tensor *stacked(const rnn_net *net, amp_tensor *const *list)
{
  int64_t count = net->layers * net->directions, size[3] = { count, net->batch, list[0]->size[1] };
  if (net->single) size[1] = size[2];
  return amp__op_view(join((int)count, list), net->single ? 2 : 3, size);
}

static amp_tensor *drop(amp_tensor *input, double p)
{
  amp_attrs attrs = amp__attrs();
  amp__attrs_float(&attrs, p);
  amp__attrs_int(&attrs, 1);
  return amp__op(AMP_OP_dropout, &attrs, 1, &input);
}

static int run(amp_call *call, int mode)
{
  rnn_net net = { .mode = mode };
  amp_tensor *input = call->in[0], *out[AMP_MAX_OUT], *y[2];
  int status = read_net(call, &net, mode);
  if (status < 0) return status;
  int64_t count = net.layers * net.directions, data[3] = { net.steps, 1, net.input_size };
  amp_tensor **last = malloc(sizeof *last * (size_t)count * 2);
  if (!last) return amp__nomem(sizeof *last * (size_t)count * 2);
  if (net.single) input = amp__op_view(input, 3, data);
  else if (net.batch_first && !net.packed) input = amp__op_transpose(input, 0, 1);
  for (int64_t l = 0; l < net.layers; l++) {
    for (int64_t d = 0; d < net.directions; d++) {
      int64_t i = l * net.directions + d;
      amp_tensor *const *w = call->in + net.first + i * net.weights_each;
      amp_tensor *h = initial(&net, call->in[1], i),
                 *s = mode == RNN_LAYER_MODE_LSTM ? initial(&net, call->in[2], i) : NULL;
      if (!input || !h || (mode == RNN_LAYER_MODE_LSTM && !s)) {
        status = amp__err();
        goto out;
      }
      status = net.proj_size ? projected(&net, d == 1, input, h, s, w, out)
                             : layer(mode, d == 1, input, h, s, w, net.bias, net.sizes, out);
      if (status < 0) goto out;
      y[d] = out[0];
      last[i] = out[1];
      last[count + i] = out[2];
    }
    input = net.directions == 2 ? amp__op_dim(AMP_OP_cat, -1, 2, y) : y[0];
    if (net.dropout > 0 && l + 1 < net.layers) input = drop(input, net.dropout);
  }
  if (net.single) {
    int64_t size[2] = { net.steps, net.output_size * net.directions };
    input = amp__op_view(input, 2, size);
  } else if (net.batch_first && !net.packed) input = amp__op_transpose(input, 0, 1);
  if ((status = amp__result(call, 0, input)) < 0 || (status = amp__result(call, 1, stacked(&net, last))) < 0) goto out;
  if (mode == RNN_LAYER_MODE_LSTM) status = amp__result(call, 2, stacked(&net, last + count));
out:
  free(last);
  return status;
}

int amp__comp_rnn(amp_call *call)
{
  return run(call, AMP_ARGS(call, rnn)->mode == RNN_MODE_RELU ? RNN_LAYER_MODE_RELU : RNN_LAYER_MODE_TANH);
}
int amp__comp_lstm(amp_call *call) { return run(call, RNN_LAYER_MODE_LSTM); }
int amp__comp_gru(amp_call *call) { return run(call, RNN_LAYER_MODE_GRU); }
