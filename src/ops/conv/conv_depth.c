/*
** ops/conv/conv_depth.c: convolutions with one input channel a group, forward and
** both gradients, plane by plane (ops/conv/conv_rows.h). A product of matrices would
** spend its time on packing there. 16-bit data is widened first; sums are
** float32 (float64 for float64).
*/
#include "ops/conv/conv.h"

/* Columns [low, high) of an output row whose tap at `first` falls inside a row of `width`, for a stride of `step` */
static inline void inside(int64_t out_width, int64_t width, int64_t step, int64_t first, int64_t *low, int64_t *high)
{
  *low = first < 0 ? (-first + step - 1) / step : 0;
  *high = first >= width ? 0 : (width - first + step - 1) / step;
  if (*high > out_width) *high = out_width;
  if (*low > *high) *low = *high;
}

#define NAME(x) x##_f32
#define real float
#include "ops/conv/conv_rows.h"

#define NAME(x) x##_f64
#define real double
#include "ops/conv/conv_rows.h"

bool conv_depthwise_fits(const conv_problem *conv)
{
  return conv->group_channels == 1 && conv->group_filters <= 4 && (conv->groups > 1 || conv->group_filters == 1);
}

typedef struct job {
  const conv_problem *conv;
  enum conv_made made;
  bool bias;
} job;

static void body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const job *task = ctx;
  for (int64_t i = begin; i < end; i++) {
    if (task->conv->type == AMP_FLOAT64) plane_f64(task->conv, task->made, task->bias, i);
    else plane_f32(task->conv, task->made, task->bias, i);
  }
}

/* Planes are read by rows: elements of one follow each other. */
static bool open(amp__compute_view *view, const amp_tensor *tensor, int type, bool result)
{
  int last = tensor->ndim - 1;
  bool follow = tensor->size[last] == 1 || tensor->stride[last] == 1, ok;
  if (result) ok = follow ? amp__compute_write(view, tensor, type) : amp__compute_write_c(view, tensor, type);
  else ok = follow ? amp__compute_read(view, tensor, type) : amp__compute_read_c(view, tensor, type);
  AMP_ASSERT(!ok || tensor->size[last] == 1 || view->stride[last] == 1);
  return ok;
}

int conv_depthwise(conv_problem *conv, const amp_tensor *input, const amp_tensor *weight, const amp_tensor *bias,
                   const amp_tensor *output, enum conv_made made)
{
  int type = conv->type, status = AMP_E_MEMORY;
  if (open(&conv->input, input, type, made == CONV_MADE_INPUT)
      && open(&conv->weight, weight, type, made == CONV_MADE_WEIGHT)
      && open(&conv->output, output, type, made == CONV_MADE_OUTPUT)
      && (!bias || amp__compute_read_c(&conv->bias, bias, type))) {
    job task = { conv, made, bias != NULL };
    int64_t planes = made == CONV_MADE_OUTPUT  ? conv->images * conv->filters
                     : made == CONV_MADE_INPUT ? conv->images * conv->channels
                                               : conv->filters;
    int64_t work = conv->images * conv->filters * conv->out_size[0] * conv->out_size[1] * conv->out_size[2]
                   * conv->kernel[0] * conv->kernel[1] * conv->kernel[2] / 4;
    conv_widen(conv->in_stride, conv->input.stride, input);
    conv_widen(conv->weight_stride, conv->weight.stride, weight);
    conv_widen(conv->out_stride, conv->output.stride, output);
    amp__parallel_ranges(amp__threads_for(work, planes), planes, body, &task);
    amp__compute_written(made == CONV_MADE_OUTPUT  ? &conv->output
                         : made == CONV_MADE_INPUT ? &conv->input
                                                   : &conv->weight,
                         made == CONV_MADE_OUTPUT  ? output
                         : made == CONV_MADE_INPUT ? input
                                                   : weight,
                         type);
    status = 0;
  }
  amp__compute_drop(&conv->input);
  amp__compute_drop(&conv->weight);
  amp__compute_drop(&conv->output);
  amp__compute_drop(&conv->bias);
  return status;
}
