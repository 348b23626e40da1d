/*
** ops/create/create.c: tensors made out of attributes: empty, full, arange, linspace,
** eye. Values are computed in double (whole steps in int64) and rounded once.
** Results are fresh and dense.
*/
#include <math.h>
#include "cpu/strided.h"

int amp__cpu_empty(amp_call *call) { return 0; }
int amp__cpu_full(amp_call *call) { return amp__fill_value(call->out[0], AMP_ARGS(call, full)->value); }

/* In chunks through a buffer of one class */
typedef struct {
  amp_tensor *tensor;
  double start, step, end;
  int64_t count;
  int64_t istart, istep;
  bool whole, ends;
} series;

static void series_part(int64_t begin, int64_t end, void *ctx)
{
  const series *task = ctx;
  double buf[AMP_CHUNK];
  int64_t *ibuf = (int64_t *)buf;
  char *p = amp__data(task->tensor);
  int element_size = amp__dtype_size[task->tensor->dtype];
  for (int64_t at = begin; at < end; at += AMP_CHUNK) {
    int64_t m = end - at < AMP_CHUNK ? end - at : AMP_CHUNK;
    if (task->whole)
      for (int64_t i = 0; i < m; i++) ibuf[i] = task->istart + (at + i) * task->istep;
    else if (task->ends) /* from the nearer end, so that both are exact and the middle is symmetric */
      for (int64_t i = 0; i < m; i++)
        buf[i] = at + i < (task->count + 1) / 2 ? task->start + (double)(at + i) * task->step
                                                : task->end - (double)(task->count - 1 - at - i) * task->step;
    else
      for (int64_t i = 0; i < m; i++) buf[i] = task->start + (double)(at + i) * task->step;
    amp__store(task->tensor->dtype, p + at * element_size, 1, task->whole ? AMP_C_I64 : AMP_C_F64, buf, m);
  }
}

static int fill_series(series *task)
{
  task->count = task->tensor->numel;
  amp__parallel(amp__threads(task->count), task->count, AMP_CHUNK, series_part, task);
  return 0;
}

int amp__cpu_arange(amp_call *call)
{
  const args_arange *args = AMP_ARGS(call, arange);
  series task = { .tensor = call->out[0], .start = args->start, .end = args->end, .step = args->step };
  if (amp__is_int(task.tensor->dtype) && task.start == floor(task.start) && task.step == floor(task.step)
      && fabs(task.start) < 0x1p62 && fabs(task.step) < 0x1p62) {
    task.whole = true;
    task.istart = (int64_t)task.start;
    task.istep = (int64_t)task.step;
  }
  return fill_series(&task);
}

int amp__cpu_linspace(amp_call *call)
{
  const args_linspace *args = AMP_ARGS(call, linspace);
  series task = { .tensor = call->out[0], .start = args->start, .end = args->end, .ends = true };
  int64_t n = args->steps;
  task.step = n > 1 ? (task.end - task.start) / (double)(n - 1) : 0;
  if (n == 1) task.end = task.start;
  return fill_series(&task);
}

int amp__cpu_eye(amp_call *call)
{
  amp_tensor *out = call->out[0];
  int status = amp__fill_value(out, 0);
  if (status < 0) return status;
  int64_t n = out->size[0] < out->size[1] ? out->size[0] : out->size[1], step = out->stride[0] + out->stride[1];
  char one[8] __attribute__((aligned(8)));
  double v = 1;
  if (n == 0) return 0;
  amp__store(out->dtype, one, 1, AMP_C_F64, &v, 1);
  amp__move(amp__dtype_size[out->dtype], amp__data(out), step, one, 0, n);
  return 0;
}
