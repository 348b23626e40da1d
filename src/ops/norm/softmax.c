/*
** ops/norm/softmax.c: rows softmax, log_softmax and their backward rows.
**
** One row along the dimension at a time: contiguous rows of the computing type
** in place, others through a buffer, widened on reading and rounded once on
** writing. The largest value is taken off first, so nothing overflows; a row
** of -inf alone, or with +inf or NaN, gives NaN.
*/
#include "cpu/rows.h"
#include "ops/elementwise/special.h"

enum { SOFTMAX, LOG_SOFTMAX, SOFTMAX_BACK, LOG_SOFTMAX_BACK };

typedef struct job {
  int what, type;
  const amp_tensor *first, *result, *output;          /* b: the result, in a backward row */
  int64_t size, first_step, result_step, output_step; /* length of a row, strides along it */
  amp__walk walk;
  char *buf; /* [thread][3][size] */
} job;

#define BODY "ops/norm/softmax_body.h"
#include "cpu/each_real.h"

static void body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const job *job = ctx;
  if (job->type == AMP_FLOAT64) rows_f64(job, begin, end, thread);
  else rows_f32(job, begin, end, thread);
}

static int run(amp_call *call, int what)
{
  const args_softmax *args = AMP_ARGS(call, softmax);
  char own[16 << 10] __attribute__((aligned(64)));
  bool back = what >= SOFTMAX_BACK;
  const amp_tensor *a = call->in[0], *b = back ? call->in[1] : NULL, *result = call->out[0];
  int dim = result->ndim ? (int)args->dim : 0;
  job job = { .what = what, .first = a, .result = b, .output = result };
  amp__scratch scratch;
  job.type = a->dtype == AMP_FLOAT64 || result->dtype == AMP_FLOAT64 || (b && b->dtype == AMP_FLOAT64) ? AMP_FLOAT64
                                                                                                       : AMP_FLOAT32;
  if (result->numel == 0) return 0;
  job.size = result->ndim ? result->size[dim] : 1;
  job.first_step = result->ndim ? a->stride[dim] : 1;
  job.output_step = result->ndim ? result->stride[dim] : 1;
  job.result_step = b && result->ndim ? b->stride[dim] : 1;
  const int64_t *strides[3] = { a->stride, result->stride, b ? b->stride : NULL };
  amp__walk_init(&job.walk, result->ndim, result->size, result->ndim ? 1u << dim : 0, back ? 3 : 2, strides);
  int threads = amp__threads_for(4 * result->numel, job.walk.n);
  if (!amp__scratch_lend(&scratch, own, sizeof own, (size_t)threads * 3 * (size_t)job.size * amp__dtype_size[job.type]))
    return AMP_E_MEMORY;
  job.buf = scratch.p;
  amp__parallel_ranges(threads, job.walk.n, body, &job);
  amp__scratch_return(&scratch);
  return 0;
}

int amp__cpu_softmax(amp_call *call) { return run(call, SOFTMAX); }
int amp__cpu_log_softmax(amp_call *call) { return run(call, LOG_SOFTMAX); }
int amp__cpu_softmax_backward(amp_call *call) { return run(call, SOFTMAX_BACK); }
int amp__cpu_log_softmax_backward(amp_call *call) { return run(call, LOG_SOFTMAX_BACK); }
