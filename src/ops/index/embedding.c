/*
** ops/index/embedding.c: row embedding_sum, rows of a table added up by bags in one
** pass: no copy of the rows is made. Sums are in the computing type. Bags that are
** given in rising order (as offsets make them) are shared among threads.
*/
#include "ops/index/index_values.h"
#include "cpu/kernel_help.h"

typedef struct job {
  const amp_tensor *table, *out;
  const int64_t *index, *bag;  /* from 0; bag NULL: each indices a bag */
  const void *scale;           /* in the computing type; NULL: 1 */
  int64_t count, per_bag, pad; /* pad: index that takes no part, -1: none */
  int type;
  char *rows; /* a row for each thread */
  int parts;
} job;

#define real float
#define NAME(x) x##_f32
#include "ops/index/embedding_body.h"

#define real double
#define NAME(x) x##_f64
#include "ops/index/embedding_body.h"

/* Where part p of task->parts begins: between two bags */
static int64_t cut(const job *task, int64_t p)
{
  int64_t i = task->count * p / task->parts;
  if (!task->bag) return i / task->per_bag * task->per_bag;
  while (i > 0 && i < task->count && task->bag[i] == task->bag[i - 1]) i++;
  return i;
}

static void body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const job *task = ctx;
  int64_t lo = cut(task, begin), hi = end == task->parts ? task->count : cut(task, end);
  if (task->type == AMP_FLOAT64) sum_f64(task, lo, hi, thread);
  else sum_f32(task, lo, hi, thread);
}

int amp__cpu_embedding_sum(amp_call *call)
{
  const args_embedding_sum *args = AMP_ARGS(call, embedding_sum);
  amp_tensor *index = NULL, *bag = NULL, *scale = NULL, *out = call->out[0];
  amp__scratch scratch = { 0 };
  job task = { .table = call->in[1],
               .out = out,
               .type = out->dtype,
               .count = call->in[0]->numel,
               .pad = AMP_GIVEN(args->padding_idx) ? args->padding_idx - 1 : -1 };
  AMP_ASSERT((out->flags & AMP_T_CONTIGUOUS) && (out->dtype == AMP_FLOAT32 || out->dtype == AMP_FLOAT64));
  int status = amp__fill_value(out, 0);
  if (status < 0 || task.count == 0) return status;
  AMP_ASSERT(call->in[2] || task.count % out->size[0] == 0);
  task.per_bag = call->in[2] ? 1 : task.count / out->size[0];
  status = AMP_E_MEMORY;
  if ((task.index = amp__indices(call->in[0], 0, task.table->size[0], &index)) == NULL) {
    status = amp__S->err.code;
    goto out;
  }
  if (call->in[2] && (task.bag = amp__indices(call->in[2], 0, out->size[0], &bag)) == NULL) {
    status = amp__S->err.code;
    goto out;
  }
  if (call->in[3]) {
    if ((scale = amp__dense(call->in[3], task.type)) == NULL) goto out;
    task.scale = amp__data(scale);
  }
  bool rising = true;
  for (int64_t i = 1; task.bag && rising && i < task.count; i++) rising = task.bag[i] >= task.bag[i - 1];
  task.parts = rising ? amp__threads_for(task.count * task.table->size[1], task.count) : 1;
  if (!amp__scratch_lend(&scratch, NULL, 0, (size_t)task.parts * (size_t)(task.table->size[1] + 8) * sizeof(double)))
    goto out;
  task.rows = scratch.p;
  amp__parallel_ranges(task.parts, task.parts, body, &task);
  amp__scratch_return(&scratch);
  status = 0;
out:
  amp__free(index);
  amp__free(bag);
  amp__free(scale);
  return status;
}
