/*
** ops/rnn/rnn.c: rows rnn_layer and rnn_layer_backward: operands, weights packed
** once, scratch and threads. The loops are in ops/rnn/rnn_rows.h, the products in
** ops/rnn/rnn_product.c.
**
** The input's projection of the whole sequence is one product, shared out by
** rows; then the steps run, shared out by batch elements. Gradients of weights
** are not made here: the derivative multiplies what rnn_layer_backward leaves.
*/
#include "ops/rnn/rnn.h"
#include "cpu/strided.h"

/* tensors in C order that stand for arguments and results */
enum { HELD = 12 };
typedef struct hold {
  amp_tensor *tensor[HELD], *result[HELD]; /* result: the tensor that t is written to at the end, or NULL */
  int count;
  amp__scratch first, weights, scratch;
} hold;

/* -- Operands -------------------------------------------------------------------- */

static const void *as_operand(hold *hold, amp_tensor *tensor, int dtype, bool *ok)
{
  amp_tensor *dense = tensor ? amp__dense(tensor, dtype) : NULL;
  if (dense == NULL) {
    *ok = *ok && tensor == NULL;
    return NULL;
  }
  AMP_ASSERT(hold->count < HELD);
  hold->result[hold->count] = NULL;
  hold->tensor[hold->count++] = dense;
  return amp__data(dense);
}

static void *result(hold *hold, amp_tensor *tensor, int dtype, bool *ok)
{
  bool own = tensor->dtype == dtype && (tensor->flags & AMP_T_CONTIGUOUS);
  amp_tensor *dense = own ? tensor : amp__tensor_make(dtype, AMP_CPU, 0, tensor->ndim, tensor->size);
  if (dense == NULL) {
    *ok = false;
    return NULL;
  }
  if (own) amp__retain(tensor);
  AMP_ASSERT(hold->count < HELD);
  hold->result[hold->count] = own ? NULL : tensor;
  hold->tensor[hold->count++] = dense;
  return amp__data(dense);
}

static int finish(hold *hold, int status)
{
  for (int i = 0; i < hold->count; i++) {
    if (status == 0 && hold->result[i]) status = amp__copy_to(hold->result[i], hold->tensor[i]);
    amp__free(hold->tensor[i]);
  }
  amp__scratch_return(&hold->first);
  amp__scratch_return(&hold->weights);
  amp__scratch_return(&hold->scratch);
  return status;
}

static bool lend(amp__scratch *scratch, size_t bytes) { return amp__scratch_lend(scratch, NULL, 0, bytes); }

/* -- Sizes ----------------------------------------------------------------------------- */

/* args: rnn_layer_backward has the same */
static void types(rnn_layer *layer, const amp_tensor *w_hh, const args_rnn_layer *args)
{
  layer->mode = (int)args->mode;
  layer->reverse = args->reverse != 0;
  layer->dtype = w_hh->dtype;
  layer->type = amp__compute_dtype(w_hh->dtype);
  layer->operand = w_hh->dtype == AMP_BFLOAT16 && amp__rnn_bf16() ? AMP_BFLOAT16 : layer->type;
  layer->round = layer->operand != layer->dtype;
  layer->gates = w_hh->size[0];
  layer->hidden = layer->gates / (layer->mode == RNN_LAYER_MODE_LSTM ? 4 : layer->mode == RNN_LAYER_MODE_GRU ? 3 : 1);
  layer->state_size = w_hh->size[1];
  layer->reserve_row = layer->hidden
                       * (layer->mode == RNN_LAYER_MODE_LSTM  ? 5
                          : layer->mode == RNN_LAYER_MODE_GRU ? 4
                                                              : 1);
  layer->wide = layer->hidden > layer->state_size ? layer->hidden : layer->state_size;
}

/* Steps and their rows: of `data` (steps x batch x ..., or rows x ... with batch sizes) */
static int steps(rnn_layer *layer, hold *hold, const amp_tensor *data, const amp_tensor *sizes, int64_t count)
{
  layer->batch = count;
  if (sizes == NULL) {
    layer->steps = data->size[0];
    layer->rows = layer->steps * count;
    return 0;
  }
  layer->steps = sizes->size[0];
  layer->rows = data->size[0];
  if (!lend(&hold->first, sizeof(int64_t) * (size_t)(layer->steps + 1))) return AMP_E_MEMORY;
  layer->first = hold->first.p;
  layer->first[0] = 0;
  for (int64_t step_at = 0, last = count; step_at < layer->steps; step_at++) {
    int64_t rows = (int64_t)amp__element(sizes, step_at * sizes->stride[0]);
    if (rows < 1 || rows > last || (step_at == 0 && rows != count))
      return amp__fail(
          AMP_E_VALUE,
          "batch_sizes must begin with the batch size %lld, stay above 0 and never grow; number %lld is %lld",
          (long long)count, (long long)(step_at + 1), (long long)rows);
    last = rows;
    layer->first[step_at + 1] = layer->first[step_at] + rows;
  }
  if (layer->first[layer->steps] == layer->rows) return 0;
  return amp__fail(AMP_E_VALUE, "batch_sizes add up to %lld, input has %lld rows",
                   (long long)layer->first[layer->steps], (long long)layer->rows);
}

/* weight as B of products: for `turned` the results are w's columns, else its rows */
static void *pack(rnn_weight *weight, const rnn_layer *layer, const void *src, int64_t rows, int64_t cols, bool turned,
                  void *dst)
{
  weight->rows = turned ? cols : rows;
  weight->cols = turned ? rows : cols;
  weight->op = layer->operand;
  weight->type = layer->type;
  weight->packed = NULL;
  if (dst) amp__rnn_pack(weight, src, turned ? cols : 1, turned ? 1 : cols, dst);
  return (char *)dst + (amp__rnn_packed(weight) + 63) / 64 * 64;
}

/* Threads for all steps, and scratch for them: batch elements are shared out, at least 4 a thread (a product of
** fewer rows reads the weights as often). */
static int threads_for(rnn_layer *layer, hold *hold, double flop, int *threads)
{
  int64_t most = (layer->batch + 3) / 4, products = 0;
  *threads = flop < 2e6 ? 1 : amp__threads_for((int64_t)(flop / 32), most);
  int64_t part = (layer->batch + *threads - 1) / *threads;
  for (int64_t rows = 1; rows <= part;
       rows++) { /* a smaller product may pack where a larger one reads in place, or the other way */
    int64_t s = (int64_t)amp__rnn_gemm(&layer->state_weight, rows);
    if (s > products) products = s;
  }
  layer->gemm = ((size_t)products + 63) / 64 * 64;
  layer->each = (layer->gemm + amp__rnn_room(layer, part) * amp__dtype_size[layer->type] + 4095) / 4096 * 4096;
  if (!lend(&hold->scratch, layer->each * (size_t)*threads)) return AMP_E_MEMORY;
  layer->scratch = hold->scratch.p;
  return 0;
}

/* -- Forward ------------------------------------------------------------------------------ */

enum { BLOCK = 336 }; /* rows of the projection that a thread takes at once */

typedef struct projection {
  const rnn_layer *layer;
  char *scratch;
  size_t each;
} projection;

static void project_body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const projection *p = ctx;
  const rnn_layer *layer = p->layer;
  for (int64_t b = begin; b < end; b++) {
    int64_t row = b * BLOCK, rows = layer->rows - row < BLOCK ? layer->rows - row : BLOCK;
    amp__rnn_product(&layer->input_weight, rows, rnn_at(layer->input, row * layer->input_size, layer->operand),
                     layer->input_size, rnn_at(layer->reserve, row * layer->reserve_row, layer->type),
                     layer->reserve_row, false, layer->bias, p->scratch + (size_t)thread * p->each);
  }
}

static int project(const rnn_layer *layer)
{
  char small[16 << 10] __attribute__((aligned(64)));
  int64_t blocks = (layer->rows + BLOCK - 1) / BLOCK, last = layer->rows % BLOCK;
  double flop = 2.0 * (double)layer->rows * (double)layer->gates * (double)layer->input_size;
  int threads = flop < 2e6 ? 1 : amp__threads_for((int64_t)(flop / 32), blocks);
  size_t a = amp__rnn_gemm(&layer->input_weight, layer->rows < BLOCK ? layer->rows : BLOCK),
         b = amp__rnn_gemm(&layer->input_weight, last);
  projection p = { layer, NULL, ((a > b ? a : b) + 255) / 256 * 256 };
  amp__scratch scratch;
  if (!amp__scratch_lend(&scratch, small, sizeof small, p.each * (size_t)threads)) return AMP_E_MEMORY;
  p.scratch = scratch.p;
  amp__parallel_ranges(threads, blocks, project_body, &p);
  amp__scratch_return(&scratch);
  return 0;
}

#define real float
#define NAME(x) x##_f32
#include "ops/rnn/rnn_bias_body.h"
#define real double
#define NAME(x) x##_f64
#include "ops/rnn/rnn_bias_body.h"

static void forward_body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const rnn_layer *layer = ctx;
  void *scratch = layer->scratch + (size_t)thread * layer->each;
  if (layer->type == AMP_FLOAT64) amp__rnn_forward_f64(layer, begin, end, scratch);
  else amp__rnn_forward_f32(layer, begin, end, scratch);
}

int amp__cpu_rnn_layer(amp_call *call)
{
  amp_tensor *inputs[8], *output = call->out[0];
  rnn_layer layer = { 0 };
  hold hold = { .count = 0 };
  bool ok = true;
  int status, threads;
  for (int i = 0; i < 8; i++) inputs[i] = amp__input_or_null(call, i);
  types(&layer, inputs[4], AMP_ARGS(call, rnn_layer));
  if ((status = steps(&layer, &hold, inputs[0], inputs[7], inputs[1]->size[0])) < 0) goto out;
  layer.input_size = inputs[0]->size[inputs[0]->ndim - 1];
  status = AMP_E_MEMORY;
  layer.input = as_operand(&hold, inputs[0], layer.operand, &ok);
  layer.first_h = as_operand(&hold, inputs[1], layer.operand, &ok);
  layer.first_c = as_operand(&hold, inputs[2], layer.type, &ok);
  const void *w_ih = as_operand(&hold, inputs[3], layer.operand, &ok),
             *w_hh = as_operand(&hold, inputs[4], layer.operand, &ok);
  const void *b_ih = as_operand(&hold, inputs[5], layer.type, &ok),
             *b_hh = as_operand(&hold, inputs[6], layer.type, &ok);
  layer.result = result(&hold, output, layer.operand, &ok);
  layer.last_h = result(&hold, call->out[1], layer.operand, &ok);
  layer.last_c = result(&hold, call->out[2], layer.type, &ok);
  layer.reserve = result(&hold, call->out[3], layer.type, &ok);
  if (!ok) goto out;
  if (layer.mode == RNN_LAYER_MODE_LSTM)
    memcpy(rnn_at(layer.reserve, layer.rows * layer.reserve_row, layer.type), layer.first_c,
           amp__dtype_size[layer.type] * (size_t)(layer.batch * layer.hidden));
  void *end = pack(&layer.state_weight, &layer, w_hh, layer.gates, layer.state_size, false, NULL);
  size_t hh = (size_t)(uintptr_t)end,
         ih = (size_t)(uintptr_t)pack(&layer.input_weight, &layer, w_ih, layer.gates, layer.input_size, false, NULL);
  if (!lend(&hold.weights, hh + ih + (size_t)(layer.gates + layer.hidden) * 8)) goto out;
  end = pack(&layer.state_weight, &layer, w_hh, layer.gates, layer.state_size, false, hold.weights.p);
  end = pack(&layer.input_weight, &layer, w_ih, layer.gates, layer.input_size, false, end);
  if (layer.type == AMP_FLOAT64) biases_f64(&layer, b_ih, b_hh, end);
  else biases_f32(&layer, b_ih, b_hh, end);
  double flop = 2.0 * (double)layer.rows * (double)layer.gates * (double)layer.state_size;
  if ((status = threads_for(&layer, &hold, flop, &threads)) < 0 || (status = project(&layer)) < 0) goto out;
  amp__parallel_ranges(threads, layer.batch, forward_body, &layer);
out:
  return finish(&hold, status);
}

/* -- Backward ----------------------------------------------------------------------------- */

static void backward_body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const rnn_layer *layer = ctx;
  void *scratch = layer->scratch + (size_t)thread * layer->each;
  if (layer->type == AMP_FLOAT64) amp__rnn_backward_f64(layer, begin, end, scratch);
  else amp__rnn_backward_f32(layer, begin, end, scratch);
}

/* grad? grad_h? grad_c? reserve w_hh result hx batch_sizes? -> of gates, of hx, of cx (LSTM) or of the state's gates
** (GRU), and each step's state before it (none for a single step) */
int amp__cpu_rnn_layer_backward(amp_call *call)
{
  amp_tensor *inputs[8];
  rnn_layer layer = { 0 };
  hold hold = { .count = 0 };
  bool ok = true;
  int status, threads;
  for (int i = 0; i < 8; i++) inputs[i] = amp__input_or_null(call, i);
  types(&layer, inputs[4], AMP_ARGS(call, rnn_layer));
  if ((status = steps(&layer, &hold, inputs[5], inputs[7], inputs[6]->size[0])) < 0) goto out;
  status = AMP_E_MEMORY;
  layer.grad = as_operand(&hold, inputs[0], layer.type, &ok);
  layer.grad_h = as_operand(&hold, inputs[1], layer.type, &ok);
  layer.grad_c = as_operand(&hold, inputs[2], layer.type, &ok);
  layer.reserve = (void *)(uintptr_t)as_operand(&hold, inputs[3], layer.type, &ok);
  const void *w_hh = as_operand(&hold, inputs[4], layer.operand, &ok);
  layer.result = (void *)(uintptr_t)as_operand(&hold, inputs[5], layer.operand, &ok);
  layer.first_h = as_operand(&hold, inputs[6], layer.operand, &ok);
  layer.dgates = result(&hold, call->out[0], layer.operand, &ok);
  layer.dfirst_h = result(&hold, call->out[1], layer.type, &ok);
  if (layer.mode == RNN_LAYER_MODE_GRU) layer.dgates_state = result(&hold, call->out[2], layer.operand, &ok);
  else layer.dfirst_c = result(&hold, call->out[2], layer.type, &ok);
  if (call->out[3]->numel > 0) layer.hprev = result(&hold, call->out[3], layer.operand, &ok);
  if (!ok) goto out;
  if (!lend(&hold.weights,
            (size_t)(uintptr_t)pack(&layer.state_weight, &layer, w_hh, layer.gates, layer.state_size, true, NULL)))
    goto out;
  pack(&layer.state_weight, &layer, w_hh, layer.gates, layer.state_size, true, hold.weights.p);
  double flop = 2.0 * (double)layer.rows * (double)layer.gates * (double)layer.state_size;
  if ((status = threads_for(&layer, &hold, flop, &threads)) < 0) goto out;
  amp__parallel_ranges(threads, layer.batch, backward_body, &layer);
out:
  return finish(&hold, status);
}
