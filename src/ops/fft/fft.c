/*
** ops/fft/fft.c: rows fft_complex, fft_real and fft_half: series along one dimension
** of a tensor of any layout.
**
** Series are taken in groups: their elements are brought beside each other (re
** and im apart), transformed together, and written where the result wants them,
** times scale. Real series of even length are complex ones of half the length,
** (x0 + i x1), (x2 + i x3), ..., whose transform is then taken apart:
**
**   X[k] = (Z[k] + conj Z[h-k]) / 2 - i/2 e^(-2 pi i k / n) (Z[k] - conj Z[h-k]),  h = n / 2
**
** 16-bit data is computed in float32.
*/
#include <math.h>
#include "ops/fft/fft_plan.h"
#include "cpu/kernel_help.h"
#include "cpu/transpose8.h"

enum { GROUP = 16 };

typedef struct job {
  const amp_fft *plan;
  int type;
  int64_t length, lanes;                  /* length of the series; how many together */
  bool inverse, real_in, real_out, whole; /* whole: real series of odd length, as complex ones */
  double scale;
  bool weighted;
  amp__compute_view source, result;
  amp__walk walk;
  int64_t in_step, in_pair, out_step, out_pair; /* strides along the series and within pairs */
  char *scratch;
  size_t bytes_a_thread;
} job;

#define real float
#define NAME(x) x##_f32
#include "ops/fft/fft_series_body.h"

#define real double
#define NAME(x) x##_f64
#include "ops/fft/fft_series_body.h"

static void body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const job *task = ctx;
  int64_t in_offset[GROUP], out_offset[GROUP];
  amp__walk_pos pos;
  void *mem = task->scratch + (size_t)thread * task->bytes_a_thread;
  amp__walk_seek(&task->walk, &pos, begin);
  for (int64_t i = begin; i < end;) {
    int64_t lanes = 0;
    for (; lanes < task->lanes && i < end; lanes++, i++, amp__walk_next(&task->walk, &pos)) {
      in_offset[lanes] = pos.off[0];
      out_offset[lanes] = pos.off[1];
    }
    AMP_ASSERT(lanes >= 1 && lanes <= GROUP);
    if (task->type == AMP_FLOAT64) series_f64(task, lanes, in_offset, out_offset, mem);
    else series_f32(task, lanes, in_offset, out_offset, mem);
  }
}

static int run(amp_call *call, job *task, int dim)
{
  const amp_tensor *in = call->in[0], *out = call->out[0];
  amp__scratch scratch = { 0 };
  int status = AMP_E_MEMORY, dims = task->real_in ? in->ndim : in->ndim - 1;
  task->type = amp__compute_dtype(in->dtype);
  AMP_ASSERT(task->real_in || in->size[dims] == 2);
  AMP_ASSERT(task->real_out || out->size[out->ndim - 1] == 2);
  task->whole = (task->real_in || task->real_out) && task->length % 2 != 0;
  if (!amp__compute_read(&task->source, in, task->type) || !amp__compute_write(&task->result, out, task->type))
    goto out;
  task->in_step = task->source.stride[dim];
  task->in_pair = task->real_in ? 0 : task->source.stride[dims];
  task->out_step = task->result.stride[dim];
  task->out_pair = task->real_out ? 0 : task->result.stride[dims];
  const int64_t *strides[2] = { task->source.stride, task->result.stride };
  amp__walk_init(&task->walk, dims, out->size, 1u << dim, 2, strides);
  status = 0;
  if (task->walk.n == 0 || task->length == 0) goto out;
  int64_t length = (task->real_in || task->real_out) && !task->whole ? task->length / 2 : task->length,
          bytes = amp__dtype_size[task->type];
  /* together as long as they fit a cache (strided ones a slower one); else each by itself, in columns and rows */
  bool many = task->walk.n >= 8 && length * bytes * GROUP * 4 <= (task->in_step > 2 ? 1 << 20 : 256 << 10);
  task->lanes = many ? GROUP : 1;
  status = AMP_E_MEMORY;
  if (!(task->plan = amp__fft_plan(length, task->type, many, length != task->length))) goto out;
  double work = 2.0 * (double)task->walk.n * (double)task->length * log2((double)task->length + 2);
  int threads
      = amp__threads_for(work > 1e15 ? (int64_t)1e15 : (int64_t)work, (task->walk.n + task->lanes - 1) / task->lanes);
  task->bytes_a_thread
      = ((size_t)(4 * (task->length + 2) * task->lanes + amp__fft_scratch(task->plan, task->lanes)) * (size_t)bytes
         + 63)
        / 64 * 64;
  if (!amp__scratch_lend(&scratch, NULL, 0, task->bytes_a_thread * (size_t)threads)) goto out;
  task->scratch = scratch.p;
  amp__parallel_ranges(threads, task->walk.n, body, task);
  status = 0;
out:
  if (status == 0) amp__compute_written(&task->result, out, task->type);
  amp__compute_drop(&task->source);
  amp__compute_drop(&task->result);
  amp__scratch_return(&scratch);
  return status;
}

int amp__cpu_fft_complex(amp_call *call)
{
  const args_fft_complex *args = AMP_ARGS(call, fft_complex);
  int dim = (int)args->dim;
  job task = { .length = call->in[0]->size[dim], .inverse = args->inverse != 0, .scale = args->scale };
  return run(call, &task, dim);
}

int amp__cpu_fft_real(amp_call *call)
{
  const args_fft_real *args = AMP_ARGS(call, fft_real);
  int dim = (int)args->dim;
  job task
      = { .length = call->in[0]->size[dim], .real_in = true, .scale = args->scale, .weighted = args->weighted != 0 };
  return run(call, &task, dim);
}

int amp__cpu_fft_half(amp_call *call)
{
  const args_fft_half *args = AMP_ARGS(call, fft_half);
  int dim = (int)args->dim;
  job task = { .length = args->n, .real_out = true, .scale = args->scale, .weighted = args->weighted != 0 };
  return run(call, &task, dim);
}
