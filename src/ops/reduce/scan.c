/*
** ops/reduce/scan.c: what depends on all elements before, along a dimension: cummax,
** cummin, logcumsumexp, the gradient of cumprod. (Running sums and products
** themselves: ops/reduce/reduce_arg.c.)
**
** Lines are loaded in chunks of their compute class and shared among threads.
** The last of equal extremes names the place; a NaN, once met, stays the extreme.
*/
#include <math.h>
#include "cpu/strided.h"
#include "cpu/vector_math.h"

enum { MOST, LEAST, LOGSUM };
typedef struct scan {
  int what, dim, cls;
  const amp_tensor *input, *out;
  int64_t *index; /* of C order */
  int64_t index_stride[AMP_MAX_DIM];
} scan;

typedef struct {
  union {
    float f;
    double d;
    int64_t i;
  } best;
  int64_t place;
  double most, rest;
} state;

#define BODY "ops/reduce/scan_body.h"
#include "cpu/each_real.h"
#define real int64_t
#define NAME(name) name##_i64
#include "ops/reduce/scan_body.h"
#undef real
#undef NAME

/* log(sum of exp) = most + log(1 + rest), rest being the sum of exp(x - most) of all but the largest; 0 where most is
** infinite. The logarithm is exact for the least rest too: what rounding 1 + rest loses is put back, which takes a
** third of log1p's time. Calls stand by themselves: they keep nothing in registers. */
static void log_sum(int64_t count, double *v, state *state)
{
  double rest[AMP_CHUNK], sum[AMP_CHUNK], lost[AMP_CHUNK];
  for (int64_t i = 0; i < count; i++) {
    const double x = v[i];
    if (x != x || state->most != state->most) state->most = x != x ? x : state->most;
    else if (x > state->most) {
      state->rest = state->most == -INFINITY ? 0 : (state->rest + 1) * exp(state->most - x);
      state->most = x;
    } else if (x != -INFINITY && state->most != INFINITY) state->rest += exp(x - state->most);
    v[i] = state->most;
    rest[i] = state->rest;
  }
  for (int64_t i = 0; i < count; i++) {
    sum[i] = 1 + rest[i];
    lost[i] = (rest[i] - (sum[i] - 1)) / sum[i];
  }
  for (int64_t i = 0; i < count; i++) sum[i] = log(sum[i]);
  for (int64_t i = 0; i < count; i++) v[i] += sum[i] + lost[i];
}

static void scan_part(int64_t begin, int64_t end, void *ctx)
{
  const scan *job = ctx;
  const amp_tensor *tensor = job->input, *o = job->out;
  const int item_size = amp__dtype_size[tensor->dtype], out_item_size = amp__dtype_size[o->dtype];
  const int64_t len = tensor->ndim ? tensor->size[job->dim] : 1, step = tensor->ndim ? tensor->stride[job->dim] : 1,
                ostep = tensor->ndim ? o->stride[job->dim] : 1;
  const int64_t xstep = tensor->ndim ? job->index_stride[job->dim] : 1;
  double room[AMP_CHUNK];
  int64_t index[AMP_CHUNK];
  /* where memory is as the loops want it they read and write it, else by way of room and index */
  const bool from_memory = tensor->dtype == amp__class_dtype[job->cls] && step == 1 && job->what != LOGSUM;
  const bool to_memory = o->dtype == amp__class_dtype[job->cls] && ostep == 1 && job->what != LOGSUM;
  for (int64_t line = begin; line < end; line++) {
    int64_t rest = line, a = 0, b = 0, x = 0;
    for (int dim = tensor->ndim - 1; dim >= 0; dim--) {
      if (dim == job->dim) continue;
      const int64_t at = rest % tensor->size[dim];
      rest /= tensor->size[dim];
      a += at * tensor->stride[dim];
      b += at * o->stride[dim];
      x += at * job->index_stride[dim];
    }
    state st = { .most = -INFINITY }, *s = &st;
    for (int64_t from = 0; from < len; from += AMP_CHUNK) {
      const int64_t n = len - from < AMP_CHUNK ? len - from : AMP_CHUNK;
      const void *src = (const char *)amp__data(tensor) + (a + from * step) * item_size;
      char *out = (char *)amp__data(o) + (b + from * ostep) * out_item_size;
      void *dst = to_memory ? (void *)out : room;
      int64_t *place = job->index && xstep == 1 ? job->index + x + from : index;
      if (!from_memory) {
        amp__load(job->cls, room, tensor->dtype, src, step, n);
        src = room;
      }
      switch (job->what == LOGSUM ? 6 : job->what * 3 + job->cls) {
      case AMP_C_F32: extreme_f32(true, n, from, src, dst, place, &s->best.f, &s->place); break;
      case AMP_C_F64: extreme_f64(true, n, from, src, dst, place, &s->best.d, &s->place); break;
      case AMP_C_I64: extreme_i64(true, n, from, src, dst, place, &s->best.i, &s->place); break;
      case 3 + AMP_C_F32: extreme_f32(false, n, from, src, dst, place, &s->best.f, &s->place); break;
      case 3 + AMP_C_F64: extreme_f64(false, n, from, src, dst, place, &s->best.d, &s->place); break;
      case 3 + AMP_C_I64: extreme_i64(false, n, from, src, dst, place, &s->best.i, &s->place); break;
      default: log_sum(n, room, s);
      }
      if (!to_memory) amp__store(o->dtype, out, ostep, job->cls, room, n);
      if (job->index && place == index) amp__move(8, job->index + x + from * xstep, xstep, index, 1, n);
    }
  }
}

static int run(amp_call *call, int what)
{
  const args_cummax *args = AMP_ARGS(call, cummax);
  const amp_tensor *tensor = call->in[0];
  scan job = { .what = what,
               .dim = (int)args->dim,
               .cls = what == LOGSUM ? AMP_C_F64 : amp__dtype_class[tensor->dtype],
               .input = tensor,
               .out = call->out[0] };
  if (tensor->numel == 0) return 0;
  if (what != LOGSUM) {
    job.index = AMP_DATA(int64_t, call->out[1]);
    for (int dim = 0; dim < tensor->ndim; dim++) job.index_stride[dim] = call->out[1]->stride[dim];
  }
  int64_t lines = tensor->ndim ? tensor->numel / tensor->size[job.dim] : 1;
  amp__parallel(amp__threads(tensor->numel * (what == LOGSUM ? 64 : 4)), lines, 1, scan_part, &job);
  return 0;
}
int amp__cpu_cummax(amp_call *call) { return run(call, MOST); }
int amp__cpu_cummin(amp_call *call) { return run(call, LEAST); }
int amp__cpu_logcumsumexp(amp_call *call) { return run(call, LOGSUM); }

/* -- cumprod's gradient ------------------------------------------------------------------ */

typedef struct {
  const amp_tensor *grad, *input, *output;
  int dim;
} product;

#define BODY "ops/reduce/product_body.h"
#include "cpu/each_real.h"

static void product_part(int64_t begin, int64_t end, void *ctx)
{
  const product *job = ctx;
  const int dim = job->dim, nd = job->input->ndim;
  const int64_t n = job->input->size[dim];
  for (int64_t line = begin; line < end; line++) {
    int64_t rest = line, a = 0, b = 0, c = 0;
    for (int d = nd - 1; d >= 0; d--) {
      if (d == dim) continue;
      const int64_t at = rest % job->input->size[d];
      rest /= job->input->size[d];
      a += at * job->grad->stride[d];
      b += at * job->input->stride[d];
      c += at * job->output->stride[d];
    }
    if (job->input->dtype == AMP_FLOAT64) line_gradient_f64(job, n, a, b, c);
    else line_gradient_f32(job, n, a, b, c);
  }
}

int amp__cpu_cumprod_backward(amp_call *call)
{
  const args_cumprod_backward *args = AMP_ARGS(call, cumprod_backward);
  amp_tensor *out = call->out[0];
  int dtype = out->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32, status = 0;
  amp_tensor *grad = amp__dense(call->in[0], dtype), *input = amp__dense(call->in[1], dtype);
  amp_tensor *output = out->dtype == dtype ? out : amp__tensor_make(dtype, AMP_CPU, 0, out->ndim, out->size);
  if (grad == NULL || input == NULL || output == NULL) status = amp__S->err.code;
  else if (input->numel > 0 && input->ndim > 0) {
    product job = { grad, input, output, (int)args->dim };
    amp__parallel(amp__threads(input->numel * 4), input->numel / input->size[job.dim], 1, product_part, &job);
  } else status = amp__copy_to(output, grad);
  if (status == 0 && output != out) status = amp__copy_to(out, output);
  if (output != out) amp__free(output);
  amp__free(grad);
  amp__free(input);
  return status;
}
