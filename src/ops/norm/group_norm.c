/*
** ops/norm/group_norm.c: rows group_norm and group_norm_backward.
**
** Data is N x C x the rest, seen as in batch_norm: runs of one channel, or runs
** of channels (channels-last, and N x C), else copied to C order. Whatever the
** way, a sample's pass over memory gives sums by channel; a group's statistics
** are joined from those of its channels, and a second pass applies to each
** channel a x + b (backward a g + b x + c). Threads take samples, or groups of
** samples where runs are of one channel. Gradients of weight and bias are left
** by sample and channel and added in order, whatever the number of threads.
*/
#include "ops/norm/norm_runs.h"

typedef struct group_norm {
  int dtype, type;                                        /* of the data; of the computation */
  int64_t images, channels, rest, groups, group_channels; /* group_channels: of one group */
  bool inside;                                            /* channels are contiguous */
  const char *input, *grad;
  char *output; /* output, or input's gradient */
  int64_t x_image, x_channel, x_step, g_image, g_channel, g_step, y_image, y_channel,
      y_step; /* strides: image, channel, rest */
  double eps;
  void *mean, *rstd;               /* [images][groups], in the computing type */
  const double *weight, *bias;     /* [channels] or NULL */
  double *weight_grad, *bias_grad; /* [images][channels] */
  char *buf;                       /* [thread][ROOM][channels] in double, for runs of channels */
} group_norm;

/* -- A group's coefficients ------------------------------------------------------------------- */

enum { ROOM = 7 };
#define AT(p, e) ((p) + (e)*size)

/* -- Runs of one channel ------------------------------------------------------------------------ */

#define BODY "ops/norm/group_norm_outer_body.h"
#include "cpu/each_real.h"

/* -- Runs of channels ----------------------------------------------------------------------------- */

/* blocks of rows, NORM_SPAN channels wide, and in a block its lanes */
#define EACH_BLOCK(norm)                                                                        \
  for (int64_t channel = 0, width;                                                              \
       width = (norm)->channels - channel < NORM_SPAN ? (norm)->channels - channel : NORM_SPAN, \
               channel < (norm)->channels;                                                      \
       channel += width)                                                                        \
    for (int64_t i = 0, rows; rows = (norm)->rest - i < most ? (norm)->rest - i : most, i < (norm)->rest; i += rows)
#define EACH_LANE for (int64_t j = 0, w; w = width - j < NORM_LANE ? width - j : NORM_LANE, j < width; j += w)

#define BODY "ops/norm/group_norm_inner_body.h"
#include "cpu/each_real.h"

static void body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const group_norm *job = ctx;
  bool wide = job->type == AMP_FLOAT64;
  if (job->grad == NULL) {
    if (job->inside) {
      if (wide) inner_forward_f64(job, begin, end, thread);
      else inner_forward_f32(job, begin, end, thread);
    } else if (wide) outer_forward_f64(job, begin, end);
    else outer_forward_f32(job, begin, end);
  } else if (job->inside) {
    if (wide) inner_backward_f64(job, begin, end, thread);
    else inner_backward_f32(job, begin, end, thread);
  } else if (wide) outer_backward_f64(job, begin, end);
  else outer_backward_f32(job, begin, end);
}

/* -- The rows -------------------------------------------------------------------------------------- */

typedef struct layout {
  amp__compute_view input, grad, output;
} layout;

static bool same_way(group_norm *k, const amp_tensor *input, const amp_tensor *grad, const amp_tensor *result,
                     layout *v)
{
  if (!amp__norm_strides(input, v->input.stride, &k->x_image, &k->x_channel, &k->x_step)
      || !amp__norm_strides(result, v->output.stride, &k->y_image, &k->y_channel, &k->y_step)
      || (grad && !amp__norm_strides(grad, v->grad.stride, &k->g_image, &k->g_channel, &k->g_step)))
    return false;
  bool in = (k->channels == 1 || k->x_channel == 1) && (k->channels == 1 || k->y_channel == 1)
            && (!grad || k->channels == 1 || k->g_channel == 1);
  bool out = (k->rest == 1 || k->x_step == 1) && (k->rest == 1 || k->y_step == 1)
             && (!grad || k->rest == 1 || k->g_step == 1);
  k->inside = in && (k->rest == 1 || !out);
  return in || out;
}

static bool open_layout(group_norm *job, const amp_tensor *input, const amp_tensor *grad, const amp_tensor *result,
                        layout *views)
{
  job->dtype = input->dtype;
  job->type = amp__compute_dtype(input->dtype);
  job->images = input->size[0];
  job->channels = input->size[1];
  job->group_channels = job->channels / job->groups;
  job->rest = 1;
  for (int dim = 2; dim < input->ndim; dim++) job->rest *= input->size[dim];
  if (!amp__compute_read(&views->input, input, input->dtype)
      || (grad && !amp__compute_read(&views->grad, grad, grad->dtype))
      || !amp__compute_write(&views->output, result, input->dtype))
    return false;
  if ((grad && grad->dtype != input->dtype) || !same_way(job, input, grad, result, views)) {
    amp__compute_drop(&views->input);
    amp__compute_drop(&views->grad);
    amp__compute_drop(&views->output);
    job->dtype = job->type;
    if (!amp__compute_read_c(&views->input, input, job->type)
        || (grad && !amp__compute_read_c(&views->grad, grad, job->type))
        || !amp__compute_write_c(&views->output, result, job->type))
      return false;
    same_way(job, input, grad, result, views);
  }
  job->input = views->input.p;
  job->grad = grad ? views->grad.p : NULL;
  job->output = views->output.p;
  return true;
}

static void close_layout(layout *v)
{
  amp__compute_drop(&v->input);
  amp__compute_drop(&v->grad);
  amp__compute_drop(&v->output);
}

static const double *vector(const amp_tensor *tensor, double *dst, int64_t c)
{
  if (tensor) amp__load_f64(dst, amp__data(tensor), tensor->dtype, tensor->stride[0], c);
  return tensor ? dst : NULL;
}

static int64_t units(const group_norm *k) { return k->inside ? k->images : k->images * k->groups; }

int amp__cpu_group_norm(amp_call *call)
{ /* input weight? bias?; num_groups eps */
  const args_group_norm *args = AMP_ARGS(call, group_norm);
  amp_tensor *input = call->in[0], *result = call->out[0];
  double own[1024];
  group_norm job = { .groups = args->num_groups, .eps = args->eps };
  layout views = { 0 };
  amp__compute_view vm = { 0 }, vr = { 0 };
  amp__scratch scratch = { 0 };
  int status = AMP_E_MEMORY;
  if (input->numel == 0) {
    status = amp__fill_value(call->out[1], 0);
    return status < 0 ? status : amp__fill_value(call->out[2], 0);
  }
  if (!open_layout(&job, input, NULL, result, &views)) goto out;
  int threads = amp__threads_for(input->numel * 2, units(&job));
  if (!amp__scratch_lend(&scratch, own, sizeof own,
                         (size_t)job.channels * (2 + ROOM * (size_t)threads) * sizeof(double)))
    goto out;
  if (!amp__compute_write_c(&vm, call->out[1], job.type) || !amp__compute_write_c(&vr, call->out[2], job.type))
    goto out;
  double *d = scratch.p;
  job.weight = vector(amp__input_or_null(call, 1), d, job.channels);
  job.bias = vector(amp__input_or_null(call, 2), d + job.channels, job.channels);
  job.buf = (char *)(d + 2 * job.channels);
  job.mean = vm.p;
  job.rstd = vr.p;
  amp__parallel_ranges(threads, units(&job), body, &job);
  amp__compute_written(&views.output, result, job.dtype);
  amp__compute_written(&vm, call->out[1], job.type);
  amp__compute_written(&vr, call->out[2], job.type);
  status = 0;
out:
  amp__scratch_return(&scratch);
  close_layout(&views);
  amp__compute_drop(&vm);
  amp__compute_drop(&vr);
  return status;
}

static void by_channel(const amp_tensor *tensor, double *sums, int64_t n, int64_t c)
{
  if (!tensor) return;
  for (int64_t i = 1; i < n; i++)
    for (int64_t j = 0; j < c; j++) sums[j] += sums[i * c + j];
  amp__store_f64(amp__data(tensor), tensor->dtype, tensor->stride[0], sums, c);
}

int amp__cpu_group_norm_backward(amp_call *call)
{ /* grad input mean rstd weight?; num_groups */
  const args_group_norm_backward *args = AMP_ARGS(call, group_norm_backward);
  amp_tensor *grad = call->in[0], *input = call->in[1], *result = call->out[0];
  double own[1024];
  group_norm job = { .groups = args->num_groups };
  layout views = { 0 };
  amp__compute_view vm = { 0 }, vr = { 0 };
  amp__scratch scratch = { 0 };
  int status = AMP_E_MEMORY;
  if (input->numel == 0) {
    if ((status = amp__fill_value(call->out[1], 0)) < 0) return status;
    return amp__fill_value(call->out[2], 0);
  }
  if (!open_layout(&job, input, grad, result, &views)) goto out;
  int threads = amp__threads_for(input->numel * 3, units(&job));
  if (!amp__scratch_lend(&scratch, own, sizeof own,
                         (size_t)job.channels * (1 + 2 * (size_t)job.images + ROOM * (size_t)threads) * sizeof(double)))
    goto out;
  if (!amp__compute_read_c(&vm, call->in[2], job.type) || !amp__compute_read_c(&vr, call->in[3], job.type)) goto out;
  double *d = scratch.p;
  job.weight = vector(amp__input_or_null(call, 4), d, job.channels);
  job.weight_grad = d + job.channels;
  job.bias_grad = job.weight_grad + job.images * job.channels;
  job.buf = (char *)(job.bias_grad + job.images * job.channels);
  job.mean = vm.p;
  job.rstd = vr.p;
  amp__parallel_ranges(threads, units(&job), body, &job);
  amp__compute_written(&views.output, result, job.dtype);
  by_channel(call->out[1], job.weight_grad, job.images, job.channels);
  by_channel(call->out[2], job.bias_grad, job.images, job.channels);
  status = 0;
out:
  amp__scratch_return(&scratch);
  close_layout(&views);
  amp__compute_drop(&vm);
  amp__compute_drop(&vr);
  return status;
}
