/*
** ops/pool/pool_avg.c: rows avg_pool and avg_pool_backward, for windows of one size
** and for such as share out the input. See ops/pool/pool.h for sizes and windows;
** loops are in ops/pool/pool_avg.h.
*/
#include "ops/pool/pool.h"
#include "cpu/strided.h"

#define real float
#define NAME(name) avg_f32_##name
#include "ops/pool/pool_avg.h"
#undef real
#undef NAME
#define real double
#define NAME(name) avg_f64_##name
#include "ops/pool/pool_avg.h"
#undef real
#undef NAME

typedef struct job {
  const amp__pool *pool;
  bool back;
  char *buf;
  size_t each;
} job;

#define RUN(name, ...)                                                         \
  (pool->type == AMP_FLOAT64 ? avg_f64_##name(pool, begin, end, ##__VA_ARGS__) \
                             : avg_f32_##name(pool, begin, end, ##__VA_ARGS__))
static void body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const job *job = ctx;
  const amp__pool *pool = job->pool;
  void *buf = job->buf + (size_t)thread * job->each;
  if (pool->last && job->back) RUN(back_pixels);
  else if (pool->last) RUN(pixels);
  else if (job->back) RUN(back_planes, buf);
  else RUN(planes, buf);
}

/* input: the large planes; `out` is written */
static int run(amp__pool *pool, const args_avg_pool *args, const amp_tensor *input, const amp_tensor *output,
               const amp_tensor *out)
{
  char own[8 << 10] __attribute__((aligned(64)));
  amp__scratch scratch;
  bool back = out == input;
  job task = { pool, back, NULL, 0 };
  amp__pool_attributes(pool, POOL_WINDOWS(args));
  pool->whole = args->count_include_pad != 0;
  pool->divisor = args->divisor;
  int status = amp__pool_open(pool, input, output, out, NULL, true);
  if (status < 0) goto out;
  int64_t pixels = pool->out[0] * pool->out[1] * pool->out[2],
          count = !pool->last ? pool->images * pool->channels
                  : back      ? pool->images
                              : pool->images * pixels,
          work = pool->images * pool->channels * pixels;
  work *= amp__pool_taps(pool);
  int threads = amp__threads_for(work / 2, count);
  task.each = ((size_t)(pool->in_size[2] + 2 * pool->out[2]) * amp__dtype_size[pool->type] + 127) / 64 * 64;
  if (!amp__scratch_lend(&scratch, own, sizeof own, task.each * (size_t)threads)) {
    status = AMP_E_MEMORY;
    goto out;
  }
  task.buf = scratch.p;
  amp__parallel_ranges(threads, count, body, &task);
  amp__scratch_return(&scratch);
out:
  return amp__pool_close(pool, input, out, status);
}

int amp__cpu_avg_pool(amp_call *call)
{
  amp__pool pool = { 0 };
  return call->out[0]->numel == 0 ? 0 : run(&pool, AMP_ARGS(call, avg_pool), call->in[0], call->out[0], call->out[0]);
}

int amp__cpu_avg_pool_backward(amp_call *call)
{
  const args_avg_pool *args = AMP_ARGS_FROM(AMP_ARGS(call, avg_pool_backward), spatial, avg_pool);
  amp__pool pool = { 0 };
  if (call->out[0]->numel == 0) return 0;
  if (call->in[0]->numel == 0) return amp__fill_value(call->out[0], 0);
  return run(&pool, args, call->out[0], call->in[0], call->out[0]);
}
