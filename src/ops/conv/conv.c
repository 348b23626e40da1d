/*
** ops/conv/conv.c: rows convolution, convolution_input and convolution_weight, as
** products of matrices whose column side is read from the image while it is
** packed.
**
** The gradient in the input is a convolution of the gradient with the turned
** weight: for a stride of s it falls apart into as many such convolutions as
** the strides multiply to, one for each phase of the output, each with the
** taps that reach it. No column matrix is ever stored, whatever the layout:
** N x C x ... and channels-last are strides. Other layouts are copied to the
** first one, 16-bit data is widened first and rounded once. Planes (data that
** are not channels-last) of float32 and less are first offered to the direct
** kernels, which need no packing at all (ops/conv/conv_direct.c, ops/conv/conv_sums.c).
*/
#include "ops/conv/conv.h"

/* -- Sizes and strides as of five dimensions ----------------------------------------- */

/* Spatial dimensions that are missing come before those there are and have one element. */
static void widen_size(int64_t *three, const amp_tensor *tensor)
{
  int spatial = tensor->ndim - 2;
  for (int i = 0; i < 3; i++) three[i] = i < 3 - spatial ? 1 : tensor->size[2 + i - (3 - spatial)];
}

void conv_widen(int64_t *five, const int64_t *stride, const amp_tensor *tensor)
{
  int spatial = tensor->ndim - 2;
  five[0] = stride[0];
  five[1] = stride[1];
  for (int i = 0; i < 3; i++) {
    int d = i - (3 - spatial);
    five[2 + i] = d >= 0 ? stride[2 + d] : stride[2] * tensor->size[2];
  }
}

static void setup(conv_problem *conv, const args_convolution *args, const amp_tensor *input, const amp_tensor *weight,
                  const amp_tensor *output)
{
  conv->spatial = input->ndim - 2;
  AMP_ASSERT(conv->spatial >= 1 && conv->spatial <= 3);
  AMP_ASSERT(weight->ndim == input->ndim && output->ndim == input->ndim);
  for (int i = 0; i < 3; i++) {
    conv->stride[i] = args->stride[i];
    conv->padding[i] = args->padding[i];
    conv->dilation[i] = args->dilation[i];
    if (i < 3 - conv->spatial) {
      conv->stride[i] = conv->dilation[i] = 1;
      conv->padding[i] = 0;
    }
  }
  conv->groups = args->groups;
  conv->images = input->size[0];
  conv->channels = input->size[1];
  conv->filters = weight->size[0];
  conv->group_channels = weight->size[1];
  widen_size(conv->in_size, input);
  widen_size(conv->kernel, weight);
  widen_size(conv->out_size, output);
  conv->group_filters = conv->filters / conv->groups;
  AMP_ASSERT(conv->channels == conv->group_channels * conv->groups && output->size[1] == conv->filters);
  AMP_ASSERT(conv->filters % conv->groups == 0 && output->size[0] == conv->images);
  conv->bytes = amp__dtype_size[conv->type];
}

static int64_t product(const int64_t *three) { return three[0] * three[1] * three[2]; }

static int64_t pixels_of(const amp_tensor *tensor)
{
  int64_t five[5], size[3];
  conv_widen(five, tensor->stride, tensor);
  widen_size(size, tensor);
  return conv_pixel_stride(size, five + 2);
}
static bool read_planes(amp__compute_view *view, const amp_tensor *tensor, int type)
{
  return pixels_of(tensor) ? amp__compute_read(view, tensor, type) : amp__compute_read_c(view, tensor, type);
}
static bool write_planes(amp__compute_view *view, const amp_tensor *tensor, int type)
{
  return pixels_of(tensor) ? amp__compute_write(view, tensor, type) : amp__compute_write_c(view, tensor, type);
}

static bool in_order(const conv_problem *conv, bool inside)
{ /* is the weight the matrix already? */
  const int64_t *ws = conv->weight_stride, *k = conv->kernel;
  int64_t taps = product(k), pixel = inside ? conv->group_channels : 1;
  bool row = conv->filters == 1 || ws[0] == conv->group_channels * taps,
       c = conv->group_channels == 1 || ws[1] == (inside ? 1 : taps);
  return row && c && (k[0] == 1 || ws[2] == k[1] * k[2] * pixel) && (k[1] == 1 || ws[3] == k[2] * pixel)
         && (k[2] == 1 || ws[4] == pixel);
}

/* All taps, and where each stands in the weight */
static void all_taps(const conv_problem *conv, conv_tap *tap, int64_t *off)
{
  for (int64_t h = 0, t = 0; h < conv->kernel[0]; h++)
    for (int64_t i = 0; i < conv->kernel[1]; i++)
      for (int64_t j = 0; j < conv->kernel[2]; j++, t++) {
        tap[t] = (conv_tap){ (int32_t)(h * conv->dilation[0] - conv->padding[0]),
                             (int32_t)(i * conv->dilation[1] - conv->padding[1]),
                             (int32_t)(j * conv->dilation[2] - conv->padding[2]) };
        off[t] = h * conv->weight_stride[2] + i * conv->weight_stride[3] + j * conv->weight_stride[4];
      }
}

static void image_of(const conv_problem *conv, conv_image *image, const conv_tap *tap)
{
  *image = (conv_image){ .data = conv->input.p,
                         .image_stride = conv->in_stride[0],
                         .channel_stride = conv->in_stride[1],
                         .depth_stride = conv->in_stride[2],
                         .row_stride = conv->in_stride[3],
                         .pixel_stride = conv->in_stride[4],
                         .channels = conv->group_channels,
                         .depth = conv->in_size[0],
                         .height = conv->in_size[1],
                         .width = conv->in_size[2],
                         .out_depth = conv->out_size[0],
                         .out_height = conv->out_size[1],
                         .out_width = conv->out_size[2],
                         .step_depth = conv->stride[0],
                         .step_height = conv->stride[1],
                         .step_width = conv->stride[2],
                         .taps = product(conv->kernel),
                         .tap = tap };
  image->channels_inside = conv->in_stride[1] == 1 && conv->group_channels > 1;
}

/* Memory for taps, their offsets in the weight, and a weight matrix */
typedef struct conv_tables {
  amp__scratch memory;
  conv_tap *tap;
  int64_t *off;
  char *matrix;
  char own[16 << 10];
} conv_tables;
static bool make_tables(conv_tables *tables, const conv_problem *conv, int64_t matrix_elems)
{
  size_t taps = (size_t)product(conv->kernel), head = (taps * (sizeof(conv_tap) + sizeof(int64_t)) + 63) / 64 * 64;
  if (!amp__scratch_lend(&tables->memory, tables->own, sizeof tables->own,
                         head + (size_t)matrix_elems * conv->bytes + 64))
    return false;
  tables->off = tables->memory.p;
  tables->tap = (conv_tap *)(tables->off + taps);
  tables->matrix = (char *)tables->memory.p + head;
  return true;
}

static void fill_view(const amp__compute_view *view, const amp_tensor *tensor, int type, const amp__compute_view *bias)
{ /* with 0, or a value a channel */
  if (!bias && (view->block || (tensor->flags & AMP_T_DENSE))) {
    memset(view->p, 0, (size_t)tensor->numel * amp__dtype_size[type]);
    return;
  }
  amp__walk walk;
  const int64_t *st[1] = { view->stride };
  amp__walk_init(&walk, tensor->ndim, tensor->size, 1u << 1, 1, st);
  amp__walk_pos pos;
  amp__walk_seek(&walk, &pos, 0);
  for (int64_t i = 0; i < walk.n; i++, amp__walk_next(&walk, &pos))
    for (int64_t c = 0; c < tensor->size[1]; c++) {
      int64_t at = pos.off[0] + c * view->stride[1];
      if (type == AMP_FLOAT64) ((double *)view->p)[at] = bias ? ((const double *)bias->p)[c] : 0;
      else ((float *)view->p)[at] = bias ? ((const float *)bias->p)[c] : 0;
    }
}

static void drop(conv_problem *conv, conv_tables *tables)
{
  amp__scratch_return(&tables->memory);
  amp__compute_drop(&conv->input);
  amp__compute_drop(&conv->weight);
  amp__compute_drop(&conv->output);
  amp__compute_drop(&conv->bias);
}

/* -- Directly ------------------------------------------------------------------------------ */

/* May planes of the tensor be read (or written) by rows? Channels-last data go the other way. */
static bool by_rows(const amp_tensor *tensor, const conv_problem *conv)
{
  return conv->type == AMP_FLOAT32 && (tensor->size[1] == 1 || tensor->stride[1] != 1);
}

static void raw(conv_direct *direct, const amp_tensor *src, const int64_t *src_stride, const amp_tensor *dst,
                const int64_t *dst_stride)
{
  direct->src = amp__data(src);
  direct->src_dtype = src->dtype;
  direct->src_image = src_stride[0];
  direct->src_channel = src_stride[1];
  direct->dst = amp__data(dst);
  direct->dst_dtype = dst->dtype;
  direct->dst_image = dst_stride[0];
  direct->dst_channel = dst_stride[1];
  for (int i = 0; i < 3; i++) {
    direct->src_axis[i] = src_stride[2 + i];
    direct->dst_axis[i] = dst_stride[2 + i];
  }
}

/* The output from the input, or (sums) the gradient in the weight from both: 0, an error, or 1 (nothing done) */
static int forward_direct(conv_problem *conv, conv_tables *tables, const amp_tensor *input, const amp_tensor *result,
                          bool sums)
{
  int64_t in_stride[5], out_stride[5], taps = product(conv->kernel);
  conv_direct direct = { .images = conv->images,
                         .groups = conv->groups,
                         .channels = conv->group_channels,
                         .rows = conv->group_filters,
                         .taps = taps,
                         .tap = tables->tap,
                         .weight = conv->weight.p,
                         .weight_group = conv->group_filters * conv->weight_stride[0],
                         .weight_row = conv->weight_stride[0],
                         .weight_channel = conv->weight_stride[1],
                         .weight_tap = tables->off,
                         .bias = conv->bias.p };
  conv_widen(in_stride, input->stride, input);
  conv_widen(out_stride, result->stride, result);
  raw(&direct, input, in_stride, result, out_stride);
  for (int i = 0; i < 3; i++) {
    direct.in[i] = conv->in_size[i];
    direct.out[i] = conv->out_size[i];
    direct.step[i] = conv->stride[i];
  }
  bool one = taps == 1 && input->dtype == AMP_FLOAT32
             && conv->stride[0] * conv->stride[1] * conv->stride[2] == 1; /* the image is the column matrix */
  int threads = conv_threads(2.0 * (double)result->numel * (double)(conv->group_channels * taps));
  return one ? 1 : sums ? conv_direct_sums(&direct, conv->weight.p, threads) : conv_direct_run(&direct, threads);
}

/* -- convolution -------------------------------------------------------------------------- */

int amp__cpu_convolution(amp_call *call)
{
  amp_tensor *input = call->in[0], *weight = call->in[1], *bias = amp__input_or_null(call, 2), *result = call->out[0];
  conv_problem conv = { .type = amp__compute_dtype(result->dtype) };
  conv_tables tables = { 0 };
  int status = AMP_E_MEMORY;
  setup(&conv, AMP_ARGS(call, convolution), input, weight, result);
  AMP_ASSERT(!bias || bias->numel == conv.filters);
  if (result->numel == 0) return 0;
  int64_t taps = product(conv.kernel), k = conv.group_channels * taps;
  if (!amp__compute_read(&conv.weight, weight, conv.type) || (bias && !amp__compute_read_c(&conv.bias, bias, conv.type))
      || !make_tables(&tables, &conv, conv.group_filters * k))
    goto out;
  conv_widen(conv.weight_stride, conv.weight.stride, weight);
  all_taps(&conv, tables.tap, tables.off);
  if (conv.group_channels > 0 && by_rows(input, &conv)
      && (status = forward_direct(&conv, &tables, input, result, false)) != 1)
    goto out;
  if (conv_depthwise_fits(&conv)) {
    drop(&conv, &tables);
    return conv_depthwise(&conv, input, weight, bias, result, CONV_MADE_OUTPUT);
  }
  status = AMP_E_MEMORY;
  if (!amp__compute_read(&conv.input, input, conv.type) || !write_planes(&conv.output, result, conv.type)) goto out;
  conv_widen(conv.in_stride, conv.input.stride, input);
  conv_widen(conv.out_stride, conv.output.stride, result);
  conv_pass pass = { .rows = conv.group_filters,
                     .inner = k,
                     .out_image = conv.out_stride[0],
                     .out_row = conv.out_stride[1],
                     .out_pixel = conv_pixel_stride(conv.out_size, conv.out_stride + 2) };
  image_of(&conv, &pass.image, tables.tap);
  bool direct = in_order(&conv, pass.image.channels_inside);
  status = 0;
  for (int64_t g = 0; g < conv.groups && status == 0; g++) {
    pass.weight = (const char *)conv.weight.p + g * conv.group_filters * conv.weight_stride[0] * conv.bytes;
    pass.image.data = (const char *)conv.input.p + g * conv.group_channels * conv.in_stride[1] * conv.bytes;
    pass.out = (char *)conv.output.p + g * conv.group_filters * conv.out_stride[1] * conv.bytes;
    pass.bias = bias ? (const char *)conv.bias.p + g * conv.group_filters * conv.bytes : NULL;
    if (!direct) {
      conv_weight_matrix(tables.matrix, pass.weight, conv.bytes, conv.group_filters, conv.weight_stride[0],
                         conv.group_channels, conv.weight_stride[1], taps, tables.off, pass.image.channels_inside);
      pass.weight = tables.matrix;
    }
    status = conv_run_pass(&pass, conv.images, conv.type);
  }
  if (status == 0) amp__compute_written(&conv.output, result, conv.type);
out:
  drop(&conv, &tables);
  return status;
}

/* -- convolution_input: grad, weight -> input's gradient ------------------------------------------ */

typedef struct scatter {
  const char *src;
  char *dst;
  int64_t channels, size[3], image_stride, channel_stride, step[3];
  int bytes;
} scatter;

static void scatter_body(void *ctx, int64_t begin, int64_t end, int thread)
{ /* planes of a phase to their places */
  const scatter *task = ctx;
  int64_t lines = task->size[0] * task->size[1], w = task->size[2], dw = task->step[2];
  for (int64_t i = begin; i < end; i++)
    for (int64_t y = 0; y < lines; y++) {
      const char *from = task->src + (i * lines + y) * w * task->bytes;
      char *to = task->dst
                 + (i / task->channels * task->image_stride + i % task->channels * task->channel_stride
                    + y / task->size[1] * task->step[0] + y % task->size[1] * task->step[1])
                       * task->bytes;
      if (task->bytes == 4)
        for (int64_t x = 0; x < w; x++) ((float *)to)[x * dw] = ((const float *)from)[x];
      else
        for (int64_t x = 0; x < w; x++) ((double *)to)[x * dw] = ((const double *)from)[x];
    }
}

static int64_t floor_mod(int64_t value, int64_t divisor)
{
  int64_t r = value % divisor;
  return r < 0 ? r + divisor : r;
}

/* Taps that reach places of phase `start`, with their places in grad and in the weight */
static int64_t phase_taps(const conv_problem *conv, const int64_t *start, conv_tap *tap, int64_t *off)
{
  int64_t n = 0, t[3];
  for (int64_t h = 0; h < conv->kernel[0]; h++) {
    if (floor_mod(t[0] = start[0] + conv->padding[0] - h * conv->dilation[0], conv->stride[0])) continue;
    for (int64_t i = 0; i < conv->kernel[1]; i++) {
      if (floor_mod(t[1] = start[1] + conv->padding[1] - i * conv->dilation[1], conv->stride[1])) continue;
      for (int64_t j = 0; j < conv->kernel[2]; j++) {
        if (floor_mod(t[2] = start[2] + conv->padding[2] - j * conv->dilation[2], conv->stride[2])) continue;
        tap[n] = (conv_tap){ (int32_t)(t[0] / conv->stride[0]), (int32_t)(t[1] / conv->stride[1]),
                             (int32_t)(t[2] / conv->stride[2]) };
        off[n++] = h * conv->weight_stride[2] + i * conv->weight_stride[3] + j * conv->weight_stride[4];
      }
    }
  }
  return n;
}

/* The gradient of the output as an image, from which a phase of n places along each dimension is made */
static conv_image phase_image(const conv_problem *conv, const int64_t *n, const conv_tap *tap, int64_t taps)
{
  return (conv_image){ .image_stride = conv->out_stride[0],
                       .channel_stride = conv->out_stride[1],
                       .depth_stride = conv->out_stride[2],
                       .row_stride = conv->out_stride[3],
                       .pixel_stride = conv->out_stride[4],
                       .channels = conv->group_filters,
                       .depth = conv->out_size[0],
                       .height = conv->out_size[1],
                       .width = conv->out_size[2],
                       .out_depth = n[0],
                       .out_height = n[1],
                       .out_width = n[2],
                       .step_depth = 1,
                       .step_height = 1,
                       .step_width = 1,
                       .taps = taps,
                       .tap = tap,
                       .channels_inside = conv->out_stride[1] == 1 && conv->group_filters > 1 };
}

/* The part of the result at places `start`, start + stride, ...; phase: memory for it if there is a stride */
static int one_phase(const conv_problem *conv, const amp_tensor *result, const int64_t *start, conv_tables *tables,
                     char *phase)
{
  int64_t taps = phase_taps(conv, start, tables->tap, tables->off), n[3], plane;
  int status = 0;
  for (int i = 0; i < 3; i++) n[i] = (conv->in_size[i] - start[i] + conv->stride[i] - 1) / conv->stride[i];
  plane = product(n);
  if (taps == 0) return 0;
  conv_pass pass = { .rows = conv->group_channels,
                     .inner = conv->group_filters * taps,
                     .out_image = conv->in_stride[0],
                     .out_row = conv->in_stride[1],
                     .out_pixel = conv_pixel_stride(conv->in_size, conv->in_stride + 2) };
  AMP_ASSERT(phase || conv->stride[0] * conv->stride[1] * conv->stride[2] == 1);
  if (phase) {
    pass.out_image = conv->group_channels * plane;
    pass.out_row = plane;
    pass.out_pixel = 1;
  }
  pass.image = phase_image(conv, n, tables->tap, taps);
  for (int64_t g = 0; g < conv->groups && status == 0; g++) {
    char *dst = (char *)conv->input.p
                + (g * conv->group_channels * conv->in_stride[1] + start[0] * conv->in_stride[2]
                   + start[1] * conv->in_stride[3] + start[2] * conv->in_stride[4])
                      * conv->bytes;
    pass.image.data = (const char *)conv->output.p + g * conv->group_filters * conv->out_stride[1] * conv->bytes;
    pass.out = phase ? phase : dst;
    pass.bias = conv->bias.p ? (const char *)conv->bias.p + g * conv->group_channels * conv->bytes : NULL;
    conv_weight_matrix(tables->matrix,
                       (const char *)conv->weight.p + g * conv->group_filters * conv->weight_stride[0] * conv->bytes,
                       conv->bytes, conv->group_channels, conv->weight_stride[1], conv->group_filters,
                       conv->weight_stride[0], taps, tables->off, pass.image.channels_inside);
    pass.weight = tables->matrix;
    status = conv_run_pass(&pass, conv->images, conv->type);
    if (status || !phase) continue;
    scatter task = { phase,
                     dst,
                     conv->group_channels,
                     { n[0], n[1], n[2] },
                     conv->in_stride[0],
                     conv->in_stride[1],
                     { conv->stride[0] * conv->in_stride[2], conv->stride[1] * conv->in_stride[3],
                       conv->stride[2] * conv->in_stride[4] },
                     conv->bytes };
    amp__parallel_ranges(
        amp__threads_for(conv->images * conv->group_channels * plane, conv->images * conv->group_channels),
        conv->images * conv->group_channels, scatter_body, &task);
  }
  return status;
}

/* The same without another layout of the data: 0, an error, or 1 (nothing done) */
static int phase_direct(const conv_problem *conv, const amp_tensor *grad, const amp_tensor *result,
                        const int64_t *start, conv_tables *tables)
{
  int64_t in_stride[5], out_stride[5];
  conv_direct direct = { .images = conv->images,
                         .groups = conv->groups,
                         .channels = conv->group_filters,
                         .rows = conv->group_channels,
                         .tap = tables->tap,
                         .weight = conv->weight.p,
                         .weight_group = conv->group_filters * conv->weight_stride[0],
                         .weight_row = conv->weight_stride[1],
                         .weight_channel = conv->weight_stride[0],
                         .weight_tap = tables->off,
                         .bias = conv->bias.p,
                         .step = { 1, 1, 1 } };
  direct.taps = phase_taps(conv, start, tables->tap, tables->off);
  conv_widen(in_stride, result->stride, result);
  conv_widen(out_stride, grad->stride, grad);
  raw(&direct, grad, out_stride, result, in_stride);
  double flop = 2.0 * (double)(conv->images * conv->channels * conv->group_filters * direct.taps);
  for (int i = 0; i < 3; i++) {
    direct.in[i] = conv->out_size[i];
    direct.out[i] = (conv->in_size[i] - start[i] + conv->stride[i] - 1) / conv->stride[i];
    direct.dst_axis[i] = conv->stride[i] * in_stride[2 + i];
    direct.dst = (char *)direct.dst + start[i] * in_stride[2 + i] * amp__dtype_size[result->dtype];
    flop *= (double)direct.out[i];
  }
  return conv_direct_run(&direct, conv_threads(flop));
}

/* Are there places of a phase that no tap reaches? */
static bool has_gaps(const conv_problem *conv)
{
  for (int i = 0; i < 3; i++)
    for (int64_t a = 0; a < conv->stride[i] && a < conv->in_size[i]; a++) {
      bool reached = false;
      for (int64_t j = 0; j < conv->kernel[i] && !reached; j++)
        reached = floor_mod(a + conv->padding[i] - j * conv->dilation[i], conv->stride[i]) == 0;
      if (!reached) return true;
    }
  return false;
}

int amp__cpu_convolution_input(amp_call *call)
{
  amp_tensor *grad = call->in[0], *weight = call->in[1], *bias = amp__input_or_null(call, 2), *result = call->out[0];
  conv_problem conv = { .type = amp__compute_dtype(result->dtype) };
  conv_tables tables = { 0 };
  amp_block *phase = NULL;
  int status = AMP_E_MEMORY;
  setup(&conv, AMP_ARGS_FROM(AMP_ARGS(call, convolution_input), stride, convolution), result, weight, grad);
  if (result->numel == 0) return 0;
  int64_t phases = conv.stride[0] * conv.stride[1] * conv.stride[2], most = 1, start[3];
  bool gaps = grad->numel == 0 || has_gaps(&conv),
       one = product(conv.kernel) == 1 && phases == 1 && result->dtype == AMP_FLOAT32;
  if (!amp__compute_read(&conv.weight, weight, conv.type) || (bias && !amp__compute_read_c(&conv.bias, bias, conv.type))
      || !make_tables(&tables, &conv, conv.group_filters * conv.group_channels * product(conv.kernel)))
    goto out;
  conv_widen(conv.weight_stride, conv.weight.stride, weight);
  status = 1;
  if (!gaps && !one && by_rows(grad, &conv)) {
    status = 0;
    for (start[0] = 0; start[0] < conv.stride[0] && start[0] < conv.in_size[0] && status == 0; start[0]++)
      for (start[1] = 0; start[1] < conv.stride[1] && start[1] < conv.in_size[1] && status == 0; start[1]++)
        for (start[2] = 0; start[2] < conv.stride[2] && start[2] < conv.in_size[2] && status == 0; start[2]++)
          status = phase_direct(&conv, grad, result, start, &tables);
  }
  if (status != 1) goto out;
  if (grad->numel > 0 && conv_depthwise_fits(&conv)) {
    drop(&conv, &tables);
    return conv_depthwise(&conv, result, weight, bias, grad, CONV_MADE_INPUT);
  }
  status = AMP_E_MEMORY;
  if (!amp__compute_read(&conv.output, grad, conv.type)
      || !(phases > 1 ? amp__compute_write(&conv.input, result, conv.type)
                      : write_planes(&conv.input, result, conv.type)))
    goto out;
  conv_widen(conv.in_stride, conv.input.stride, result);
  conv_widen(conv.out_stride, conv.output.stride, grad);
  if (gaps) fill_view(&conv.input, result, conv.type, bias ? &conv.bias : NULL);
  if (phases > 1) {
    for (int i = 0; i < 3; i++) most *= (conv.in_size[i] + conv.stride[i] - 1) / conv.stride[i];
    phase = amp__block_new(AMP_CPU, 0, (size_t)(conv.images * conv.group_channels * most) * conv.bytes + 64);
    if (!phase) goto out;
  }
  status = 0;
  if (grad->numel > 0)
    for (start[0] = 0; start[0] < conv.stride[0] && start[0] < conv.in_size[0]; start[0]++)
      for (start[1] = 0; start[1] < conv.stride[1] && start[1] < conv.in_size[1]; start[1]++)
        for (start[2] = 0; start[2] < conv.stride[2] && start[2] < conv.in_size[2] && status == 0; start[2]++)
          status = one_phase(&conv, result, start, &tables, phase ? phase->data : NULL);
  if (status == 0) amp__compute_written(&conv.input, result, conv.type);
out:
  if (phase) amp__block_free(phase);
  drop(&conv, &tables);
  return status;
}

/* -- convolution_weight: grad, input -> weight's gradient ----------------------------------------- */

/* The gradient in the weight, for each group a product of the gradient's planes and the image's columns transposed */
static int weight_products(conv_problem *conv, conv_tables *tables)
{
  int64_t taps = product(conv->kernel), k = conv->group_channels * taps, plane = product(conv->out_size),
          pixel_step = conv_pixel_stride(conv->out_size, conv->out_stride + 2);
  int status = 0;
  conv_image image;
  image_of(conv, &image, tables->tap);
  conv_planes planes = { .image_stride = conv->out_stride[0],
                         .channel_stride = conv->out_stride[1],
                         .pixel_stride = pixel_step,
                         .pixels = plane };
  bool f64 = conv->type == AMP_FLOAT64, direct = in_order(conv, image.channels_inside);
  int threads = conv_threads(2.0 * (double)conv->group_filters * (double)k * (double)(conv->images * plane));
  for (int64_t g = 0; g < conv->groups && status == 0; g++) {
    amp_gemm gemm = { .m = conv->group_filters, .n = k, .k = conv->images * plane, .crs = k, .ccs = 1 };
    char *dst = (char *)conv->weight.p + g * conv->group_filters * conv->weight_stride[0] * conv->bytes;
    image.data = (const char *)conv->input.p + g * conv->group_channels * conv->in_stride[1] * conv->bytes;
    planes.data = (const char *)conv->output.p + g * conv->group_filters * conv->out_stride[1] * conv->bytes;
    gemm.c = direct ? dst : tables->matrix;
    if (conv->images == 1 || planes.image_stride == plane * pixel_step) {
      gemm.a = planes.data;
      gemm.ars = planes.channel_stride;
      gemm.acs = pixel_step;
    } else {
      gemm.a = &planes;
      gemm.pack_a = f64 ? conv_pack_planes_f64 : conv_pack_planes_f32;
    }
    gemm.b = &image;
    gemm.pack_b = f64 ? conv_pack_rows_f64 : conv_pack_rows_f32;
    status = amp__gemm_threads(&gemm, conv->type, threads);
    if (direct) continue;
    for (int64_t r = 0; r < conv->group_filters; r++)
      for (int64_t i = 0; i < k; i++) {
        int64_t c = image.channels_inside ? i % conv->group_channels : i / taps,
                tap = image.channels_inside ? i / conv->group_channels : i % taps;
        memcpy(dst + (r * conv->weight_stride[0] + c * conv->weight_stride[1] + tables->off[tap]) * conv->bytes,
               tables->matrix + (r * k + i) * conv->bytes, (size_t)conv->bytes);
      }
  }
  return status;
}

int amp__cpu_convolution_weight(amp_call *call)
{
  amp_tensor *grad = call->in[0], *input = call->in[1], *result = call->out[0];
  conv_problem conv = { .type = amp__compute_dtype(result->dtype) };
  conv_tables tables = { 0 };
  int status = AMP_E_MEMORY;
  setup(&conv, AMP_ARGS_FROM(AMP_ARGS(call, convolution_weight), stride, convolution), input, result, grad);
  if (result->numel == 0) return 0;
  if (!amp__compute_write(&conv.weight, result, conv.type)
      || !make_tables(&tables, &conv, conv.group_filters * conv.group_channels * product(conv.kernel)))
    goto out;
  conv_widen(conv.weight_stride, conv.weight.stride, result);
  all_taps(&conv, tables.tap, tables.off);
  status = 0;
  bool none = grad->numel == 0 || input->numel == 0;
  if (none) fill_view(&conv.weight, result, conv.type, NULL);
  if (none
      || (by_rows(input, &conv) && by_rows(grad, &conv)
          && (status = forward_direct(&conv, &tables, input, grad, true)) != 1)) {
    if (status == 0) amp__compute_written(&conv.weight, result, conv.type);
    goto out;
  }
  if (conv_depthwise_fits(&conv)) {
    drop(&conv, &tables);
    return conv_depthwise(&conv, input, result, NULL, grad, CONV_MADE_WEIGHT);
  }
  status = AMP_E_MEMORY;
  if (!amp__compute_read(&conv.input, input, conv.type) || !read_planes(&conv.output, grad, conv.type)) goto out;
  conv_widen(conv.in_stride, conv.input.stride, input);
  conv_widen(conv.out_stride, conv.output.stride, grad);
  status = weight_products(&conv, &tables);
  if (status == 0) amp__compute_written(&conv.weight, result, conv.type);
out:
  drop(&conv, &tables);
  return status;
}
