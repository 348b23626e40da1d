/*
** ops/resample/grid_sample.c: rows grid_sample, grid_sample_backward, grid_sample_double.
**
** One idea: what a point of the grid reads is a list of taps (offset, weight,
** the weight's derivatives), the same for every channel. It is made for a block
** of points at a time, then every channel of the block is read or added to in
** long loops. The second derivative needs no more than derivatives of the
** weights along the gradient's direction.
*/
#include <math.h>
#include "cpu/strided.h"
#include "cpu/kernel_help.h"

enum { BLOCK = 128, TAPS = 16 };

typedef struct grid {
  int dims, mode, padding, type, what;
  bool align;
  int64_t images, channels, in_size[3], volume, points,
      nblock;                              /* sizes D H W of the input; points of the grid an image */
  amp__compute_view input, grid, grad;     /* grad: or the result; all in C order */
  amp__compute_view grad_input, grad_grid; /* second derivative: gradients of the first one's results */
  amp__compute_view out_grad, out_input, out_grid;
  void *block;
  char *buf;
  size_t each;
} grid;

#define real float
#define FLOOR floorf
#define RINT rintf
#define NAME(name) grid_f32_##name
#include "ops/resample/grid_sample_loops.h"
#undef real
#undef NAME
#undef FLOOR
#undef RINT
#define FLOOR floor
#define RINT rint
#define real double
#define NAME(name) grid_f64_##name
#include "ops/resample/grid_sample_loops.h"
#undef real
#undef NAME

enum work { FORWARD, BACKWARD, TWICE };

static void body(void *ctx, int64_t begin, int64_t end, int thread)
{
  grid job = *(const grid *)ctx;
  job.block = job.buf + (size_t)thread * job.each;
  bool wide = job.type == AMP_FLOAT64;
  switch ((enum work)job.what) {
  case FORWARD:
    if (wide) grid_f64_forward(&job, begin, end);
    else grid_f32_forward(&job, begin, end);
    break;
  case BACKWARD:
    if (wide) grid_f64_backward(&job, begin, end);
    else grid_f32_backward(&job, begin, end);
    break;
  case TWICE:
    if (wide) grid_f64_twice(&job, begin, end);
    else grid_f32_twice(&job, begin, end);
    break;
  }
}

/* args: all three rows have these */
static int set(grid *job, const args_grid_sample *args, const amp_tensor *input, const amp_tensor *tensor, int what)
{
  job->dims = input->ndim - 2;
  job->mode = (int)args->mode;
  job->padding = (int)args->padding_mode;
  job->align = args->align_corners != 0;
  job->type = amp__compute_dtype(input->dtype);
  job->what = what;
  job->images = input->size[0];
  job->channels = input->size[1];
  for (int i = 0; i < 3; i++) job->in_size[i] = i >= 3 - job->dims ? input->size[input->ndim - 3 + i] : 1;
  job->volume = job->in_size[0] * job->in_size[1] * job->in_size[2];
  job->points = job->images ? tensor->numel / job->dims / job->images : 0;
  job->nblock = (job->points + BLOCK - 1) / BLOCK;
  if (job->volume > INT32_MAX)
    return amp__fail(AMP_E_UNSUPPORTED, "grid_sample of planes of more than %d elements", INT32_MAX);
  return amp__compute_read_c(&job->input, input, job->type) && amp__compute_read_c(&job->grid, tensor, job->type)
             ? 0
             : AMP_E_MEMORY;
}

static int run(grid *job)
{
  amp__scratch scratch;
  int64_t count = job->what == FORWARD ? job->images * job->nblock : job->images;
  int threads = amp__threads_for(job->images * job->points * (job->channels + 4) * 8, count);
  job->each = ((job->type == AMP_FLOAT64 ? sizeof(grid_f64_block) : sizeof(grid_f32_block)) + 127) / 64 * 64;
  if (!amp__scratch_lend(&scratch, NULL, 0, job->each * (size_t)threads)) return AMP_E_MEMORY;
  job->buf = scratch.p;
  amp__parallel_ranges(threads, count, body, job);
  amp__scratch_return(&scratch);
  return 0;
}

static bool zeroed(amp__compute_view *v, const amp_tensor *tensor, int type)
{
  if (!amp__compute_write_c(v, tensor, type)) return false;
  memset(v->p, 0, (size_t)tensor->numel * amp__dtype_size[type]);
  return true;
}

static int done(grid *job, int status)
{
  amp__compute_view *v[] = { &job->input,     &job->grid,     &job->grad,      &job->grad_input,
                             &job->grad_grid, &job->out_grad, &job->out_input, &job->out_grid };
  for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) amp__compute_drop(v[i]);
  return status;
}

int amp__cpu_grid_sample(amp_call *call)
{
  grid job = { 0 };
  amp_tensor *output = call->out[0];
  if (output->numel == 0) return 0;
  int status = set(&job, AMP_ARGS(call, grid_sample), call->in[0], call->in[1], FORWARD);
  if (status == 0 && !amp__compute_write_c(&job.grad, output, job.type)) status = AMP_E_MEMORY;
  if (status == 0) status = run(&job);
  if (status == 0) amp__compute_written(&job.grad, output, job.type);
  return done(&job, status);
}

int amp__cpu_grid_sample_backward(amp_call *call)
{
  grid job = { 0 };
  amp_tensor *gx = call->out[0], *gg = call->out[1];
  int status = set(&job, AMP_ARGS(call, grid_sample), call->in[1], call->in[2], BACKWARD);
  if (status == 0
      && (!amp__compute_read_c(&job.grad, call->in[0], job.type) || !zeroed(&job.out_input, gx, job.type)
          || !zeroed(&job.out_grid, gg, job.type)))
    status = AMP_E_MEMORY;
  if (status == 0 && job.images > 0) status = run(&job);
  if (status == 0) {
    amp__compute_written(&job.out_input, gx, job.type);
    amp__compute_written(&job.out_grid, gg, job.type);
  }
  return done(&job, status);
}

int amp__cpu_grid_sample_double(amp_call *call)
{
  grid job = { 0 };
  amp_tensor *const *o = call->out;
  int status = set(&job, AMP_ARGS(call, grid_sample), call->in[1], call->in[2], TWICE);
  if (status == 0
      && (!amp__compute_read_c(&job.grad, call->in[0], job.type)
          || !amp__compute_read_c(&job.grad_input, call->in[3], job.type)
          || !amp__compute_read_c(&job.grad_grid, call->in[4], job.type) || !zeroed(&job.out_grad, o[0], job.type)
          || !zeroed(&job.out_input, o[1], job.type) || !zeroed(&job.out_grid, o[2], job.type)))
    status = AMP_E_MEMORY;
  if (status == 0 && job.images > 0) status = run(&job);
  if (status == 0) {
    amp__compute_written(&job.out_grad, o[0], job.type);
    amp__compute_written(&job.out_input, o[1], job.type);
    amp__compute_written(&job.out_grid, o[2], job.type);
  }
  return done(&job, status);
}
