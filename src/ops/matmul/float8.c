/*
** ops/matmul/float8.c: 8-bit products on a processor: the numbers that a GPU's 8-bit units give, by way of float32.
**
** A scale is the format's largest value / the largest |x|, taken in double, and so is x times it: each element is
** rounded once. Products of 8-bit floats are exact in float32, where they are summed by the ordinary matrix product.
** What is no number stays none: Inf and NaN become NaN and are left out of the largest.
*/
#include "cpu/convert.h"
#include "cpu/kernel_help.h"
#include "cpu/strided.h"
#include "dispatch/op_builder.h"
#include "ops/matmul/float8.h"

enum { CHUNK = AMP_FLOAT8_PIECE };

/* -- Quantising ----------------------------------------------------------------- */

typedef struct quantize_task {
  const amp_tensor *input;
  uint8_t *output;
  float *largest;
  double most, scale; /* scale: of the whole matrix */
  int format;
  bool block;
  uint32_t largest_bits; /* of a finite |x|, as a float's pattern, which grows with it */
  int64_t saturated, zeros;
} quantize_task;

static float largest_of(const double *x, int64_t count)
{
  double largest = 0;
  for (int64_t i = 0; i < count; i++) {
    double size = fabs(x[i]);
    largest = size > largest && size <= DBL_MAX ? size : largest;
  }
  return largest > FLT_MAX ? FLT_MAX : (float)largest;
}

static double scale_of(float largest, double most) { return largest > 0 ? most / (double)largest : 1; }

static void load_chunk(const quantize_task *task, int64_t row, int64_t col, int64_t count, double *x)
{
  const amp_tensor *input = task->input;
  const char *data = amp__data(input);
  int64_t at = row * input->stride[0] + col * input->stride[1];
  amp__load(AMP_C_F64, x, input->dtype, data + at * amp__dtype_size[input->dtype], input->stride[1], count);
}

static void largest_part(int64_t begin, int64_t end, void *context)
{
  quantize_task *task = context;
  int64_t cols = task->input->size[1];
  double x[CHUNK];
  float largest = 0;
  for (int64_t row = begin; row < end; row++)
    for (int64_t col = 0; col < cols; col += CHUNK) {
      int64_t count = cols - col < CHUNK ? cols - col : CHUNK;
      load_chunk(task, row, col, count, x);
      float here = largest_of(x, count);
      largest = here > largest ? here : largest;
    }
  uint32_t bits, before = __atomic_load_n(&task->largest_bits, __ATOMIC_RELAXED);
  memcpy(&bits, &largest, sizeof bits);
  while (
      bits > before
      && !__atomic_compare_exchange_n(&task->largest_bits, &before, bits, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
}

static void quantize_chunk(quantize_task *task, const double *x, int64_t count, double scale, uint8_t *to,
                           int64_t *saturated, int64_t *zeros)
{
  double limit = task->most * (1 + 0x1p-40); /* the largest times its scale may be this much above */
  for (int64_t i = 0; i < count; i++) {
    double v = x[i] * scale, size = fabs(v);
    float f = fabs(x[i]) <= DBL_MAX ? amp__round_odd(v) : __builtin_nanf("");
    to[i] = amp__float_to_float8(f, task->format, true);
    *saturated += size > limit && size <= DBL_MAX;
    *zeros += x[i] != 0 && (to[i] & 0x7f) == 0;
  }
}

static void quantize_part(int64_t begin, int64_t end, void *context)
{
  quantize_task *task = context;
  int64_t cols = task->input->size[1], pieces = amp__float8_pieces(cols), saturated = 0, zeros = 0;
  double x[CHUNK];
  for (int64_t row = begin; row < end; row++)
    for (int64_t piece = 0; piece < pieces; piece++) {
      int64_t col = piece * CHUNK, count = cols - col < CHUNK ? cols - col : CHUNK;
      double scale = task->scale;
      load_chunk(task, row, col, count, x);
      if (task->block) {
        float largest = task->largest[row * pieces + piece] = largest_of(x, count);
        scale = scale_of(largest, task->most);
      }
      quantize_chunk(task, x, count, scale, task->output + row * cols + col, &saturated, &zeros);
    }
  __atomic_fetch_add(&task->saturated, saturated, __ATOMIC_RELAXED);
  __atomic_fetch_add(&task->zeros, zeros, __ATOMIC_RELAXED);
}

/* The largest of the steps before, 0: there are none */
static float from_history(amp_tensor *history, const args_float8_quantize *args)
{
  const float *at = amp__data(history);
  float largest = 0;
  for (int64_t i = args->place + 1; i <= args->place + args->window; i++) largest = at[i] > largest ? at[i] : largest;
  return largest;
}

int amp__cpu_float8_note(amp_call *call)
{
  const args_float8_note *args = AMP_ARGS(call, float8_note);
  float *at = amp__data(call->out[0]), own = *(const float *)amp__data(call->in[1]);
  if (args->shift) {
    memmove(at + 1, at, sizeof *at * (size_t)(call->out[0]->size[0] - 1));
    at[0] = 0;
  }
  if (own > at[args->place]) at[args->place] = own;
  return 0;
}

/* [rows, cols] -> [cols, rows], by squares that stay in the cache */
typedef struct turn_task {
  const uint8_t *from;
  uint8_t *to;
  int64_t rows, cols;
} turn_task;

static void turn_part(int64_t begin, int64_t end, void *context)
{
  enum { SQUARE = 64 };
  const turn_task *task = context;
  for (int64_t square = begin; square < end; square++)
    for (int64_t row0 = 0; row0 < task->rows; row0 += SQUARE)
      for (int64_t col = square * SQUARE; col < task->cols && col < (square + 1) * SQUARE; col++)
        for (int64_t row = row0; row < task->rows && row < row0 + SQUARE; row++)
          task->to[col * task->rows + row] = task->from[row * task->cols + col];
}

static void turn(const amp_tensor *from, amp_tensor *to)
{
  turn_task task = { amp__data(from), amp__data(to), from->size[0], from->size[1] };
  amp__parallel(amp__threads(from->numel), (from->size[1] + 63) / 64, 1, turn_part, &task);
}

/* gelu(input), counted */
static amp_tensor *function_of(amp_tensor *input, int64_t function)
{
  amp_slot attrs[AMP_MAX_SLOT] = { { 0 } };
  amp_meta meta;
  ((args_gelu *)attrs)->approximate = function == OF_GELU_TANH ? APPROXIMATE_TANH : APPROXIMATE_NONE;
  amp__meta_of(input, &meta);
  amp_tensor *output = amp__tensor_new(&meta);
  if (output && amp__cpu_row(AMP_OP_gelu, 1, &input, 1, &output, attrs) == 0) return output;
  amp__free(output);
  return NULL;
}

static int quantize(amp_call *call, amp_tensor *input)
{
  const args_float8_quantize *args = AMP_ARGS(call, float8_quantize);
  amp_tensor *history = call->nin > 1 ? call->in[1] : NULL, *counts = call->nin > 2 ? call->in[2] : NULL,
             *known = call->nin > 3 ? call->in[3] : NULL, *dense = NULL;
  if (input->numel && input->stride[1] != 1 && (input = dense = amp__dense(input, input->dtype)) == NULL)
    return amp__S->err.code;
  quantize_task task = { .input = input,
                         .output = amp__data(call->out[0]),
                         .largest = amp__data(call->out[1]),
                         .most = amp__float8_most(args->format),
                         .scale = 1,
                         .format = (int)args->format,
                         .block = args->block != 0 };
  int threads = amp__threads(input->numel * 8);
  if (!task.block) {
    float own;
    if (!known) amp__parallel(threads, input->size[0], 1, largest_part, &task);
    memcpy(&own, known ? amp__data(known) : &task.largest_bits, sizeof own);
    float largest = history ? from_history(history, args) : 0;
    *(float *)amp__data(call->out[2]) = own;
    task.largest[0] = largest > 0 ? largest : own;
    task.scale = scale_of(task.largest[0], task.most);
  }
  amp__parallel(threads, input->size[0], 1, quantize_part, &task);
  if (args->both) turn(call->out[0], call->out[3]);
  if (counts) {
    double *sums = amp__data(counts);
    sums[0] += (double)input->numel;
    sums[1] += (double)task.saturated;
    sums[2] += (double)task.zeros;
  }
  amp__free(dense);
  return 0;
}

int amp__cpu_float8_quantize(amp_call *call)
{
  int64_t function = AMP_ARGS(call, float8_quantize)->of;
  amp_tensor *input = call->in[0], *made = NULL;
  if (function != OF_NONE && (input = made = function_of(input, function)) == NULL) return amp__S->err.code;
  int status = quantize(call, input);
  amp__free(made);
  return status;
}

/* -- Back to float32 -------------------------------------------------------------- */

typedef struct expand_task {
  const amp_tensor *input;
  const float *largest; /* of each piece; NULL: values stay as they are */
  float *output;
} expand_task;

static void expand_part(int64_t begin, int64_t end, void *context)
{
  const expand_task *task = context;
  const amp_tensor *input = task->input;
  int64_t cols = input->size[1], pieces = amp__float8_pieces(cols);
  for (int64_t row = begin; row < end; row++) {
    float *to = task->output + row * cols;
    amp__load(AMP_C_F32, to, input->dtype, (const char *)amp__data(input) + row * input->stride[0], input->stride[1],
              cols);
    for (int64_t col = 0; task->largest && col < cols; col++) {
      float largest = task->largest[row * pieces + col / AMP_FLOAT8_PIECE];
      to[col] = (float)(to[col] / scale_of(largest, amp__float8_most(input->dtype)));
    }
  }
}

int amp__cpu_float8_expand(amp_call *call)
{
  amp_tensor *input = call->in[0], *largest = call->in[1];
  expand_task task = { input, largest->ndim == 2 ? amp__data(largest) : NULL, amp__data(call->out[0]) };
  amp__parallel(amp__threads(input->numel * 4), input->size[0], 1, expand_part, &task);
  return 0;
}

typedef struct finish_task {
  const float *sums;
  const double *bias; /* NULL: none */
  double factor;
  int64_t cols;
  char *output;
  int dtype;
} finish_task;

static void finish_part(int64_t begin, int64_t end, void *context)
{
  const finish_task *task = context;
  double x[CHUNK];
  for (int64_t row = begin; row < end; row++)
    for (int64_t col = 0; col < task->cols; col += CHUNK) {
      int64_t count = task->cols - col < CHUNK ? task->cols - col : CHUNK, at = row * task->cols + col;
      for (int64_t i = 0; i < count; i++) {
        x[i] = task->sums[at + i] * task->factor;
        if (task->bias) x[i] += task->bias[col + i];
      }
      amp__store(task->dtype, task->output + at * amp__dtype_size[task->dtype], 1, AMP_C_F64, x, count);
    }
}

int amp__cpu_float8_finish(amp_call *call)
{
  const args_float8_finish *args = AMP_ARGS(call, float8_finish);
  amp_tensor *sums = call->in[0], *a = call->in[1], *b = call->in[2], *bias = call->nin > 3 ? call->in[3] : NULL;
  finish_task task = { .sums = amp__data(sums),
                       .factor = 1,
                       .cols = sums->size[1],
                       .output = amp__data(call->out[0]),
                       .dtype = call->out[0]->dtype };
  amp_tensor *wide = NULL;
  if (bias && (wide = amp__dense(bias, AMP_FLOAT64)) == NULL) return amp__S->err.code;
  if (wide) task.bias = amp__data(wide);
  if (a->ndim == 1) { /* else the operands were divided by their scales already */
    double sa = scale_of(*(const float *)amp__data(a), amp__float8_most(args->input_format));
    double sb = scale_of(*(const float *)amp__data(b), amp__float8_most(args->other_format));
    task.factor = 1 / sa / sb;
  }
  amp__parallel(amp__threads(sums->numel * 2), sums->size[0], 1, finish_part, &task);
  amp__free(wide);
  return 0;
}

/* -- The product ------------------------------------------------------------------- */

int amp__cpu_float8_mm(amp_call *call)
{
  amp_tensor *in[4] = { call->in[0], call->in[1], call->in[2], call->in[3] }, *out[AMP_MAX_OUT] = { call->out[0] };
  amp__plain plain = amp__plain_begin();
  int mark = amp__pool_mark();
  amp_tensor *a = OP2(float8_expand, in[0], in[2]), *b = OP2(float8_expand, in[1], in[3]);
  amp_tensor *sums = a && b ? OP2(matmul, a, amp__op_transpose(b, 0, 1)) : NULL;
  int status = sums ? 0 : amp__err();
  if (status == 0) {
    amp_tensor *inputs[4] = { sums, in[2], in[3], call->nin > 4 ? call->in[4] : NULL };
    amp_attrs attrs = amp__attrs();
    amp__attrs_int(&attrs, in[0]->dtype);
    amp__attrs_int(&attrs, in[1]->dtype);
    amp__attrs_int(&attrs, call->out[0]->dtype);
    status = amp__dispatch(AMP_OP_float8_finish, AMP_OUT, inputs, 4, out, attrs.v);
  }
  amp__pool_release(mark);
  amp__plain_end(plain);
  return status;
}
