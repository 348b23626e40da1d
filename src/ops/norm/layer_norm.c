/*
** ops/norm/layer_norm.c: rows layer_norm, add_layer_norm, rms_norm, backward rows. A row
** of data (the last dimensions) is contiguous, or the data is copied to C order;
** threads take rows. rms_norm is layer_norm with a mean of 0 that no gradient
** goes through. The gradients of weight and bias are summed by blocks of rows,
** joined in order, so they don't depend on the number of threads.
*/
#include <float.h>
#include "cpu/strided.h"
#include "ops/norm/norm_runs.h"

enum { BLOCKS = 64 }; /* of rows, at most; each has its own sums of weight and bias */
enum { FLUSH = 16 };  /* rows whose sums are kept in the computing type before they join in double */

typedef struct layer_norm {
  int type;
  bool is_rms;                        /* about 0, not about the mean */
  int64_t rows, size, rows_per_block; /* per: rows of a block */
  const char *input, *grad, *add;     /* add NULL, or added to y (backward) */
  char *output;
  int x_dtype, g_dtype, y_dtype, add_dtype;
  void *mean, *rstd, *weight, *bias; /* in the computing type, contiguous; w, b NULL: 1, 0 */
  double eps;
  double *sums; /* [block][2][size] */
  char *buf;    /* [thread][3 or, backward, 5][size] */
} layer_norm;

#define BODY "ops/norm/layer_norm_body.h"
#include "cpu/each_real.h"

static void forward_body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const layer_norm *k = ctx;
  if (k->type == AMP_FLOAT64) forward_f64(k, begin, end, thread);
  else forward_f32(k, begin, end, thread);
}
static void backward_body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const layer_norm *k = ctx;
  if (k->type == AMP_FLOAT64) backward_f64(k, begin, end, thread);
  else backward_f32(k, begin, end, thread);
}

/* Data in C order: as it is (any float dtype), or copied in the computing type */
static bool open_rows(amp__compute_view *v, const amp_tensor *tensor, int type, int *dtype)
{
  bool as_is = (tensor->flags & AMP_T_CONTIGUOUS) != 0;
  *dtype = as_is ? tensor->dtype : type;
  return as_is ? amp__compute_read(v, tensor, tensor->dtype) : amp__compute_read_c(v, tensor, type);
}
static bool open_out(amp__compute_view *v, const amp_tensor *tensor, int type, int *dtype)
{
  bool as_is = (tensor->flags & AMP_T_CONTIGUOUS) != 0;
  *dtype = as_is ? tensor->dtype : type;
  return as_is ? amp__compute_write(v, tensor, tensor->dtype) : amp__compute_write_c(v, tensor, type);
}

static void set_rows(layer_norm *k, int64_t ndim, const int64_t *size, const amp_tensor *input)
{
  k->size = 1;
  for (int64_t d = 0; d < ndim; d++) k->size *= size[d];
  k->rows = k->size ? input->numel / k->size : 0;
}

/* x w? b? -> y mean? rstd */
static int forward(layer_norm *job, amp_call *call, amp_tensor *weight, amp_tensor *b, amp_tensor *mean,
                   amp_tensor *rstd)
{
  const args_layer_norm *args = AMP_ARGS(call, layer_norm);
  amp_tensor *input = call->in[0], *result = call->out[0];
  char own[16 << 10] __attribute__((aligned(64)));
  amp__compute_view vx = { 0 }, vy = { 0 }, vw = { 0 }, vb = { 0 }, vm = { 0 }, vr = { 0 };
  amp__scratch scratch = { 0 };
  int status = AMP_E_MEMORY;
  job->type = result->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : amp__compute_dtype(input->dtype);
  set_rows(job, args->shape.n, args->shape.at, input);
  if (input->numel == 0) return 0;
  if (!open_rows(&vx, input, job->type, &job->x_dtype) || !open_out(&vy, result, job->type, &job->y_dtype)
      || (weight && !amp__compute_read_c(&vw, weight, job->type)) || (b && !amp__compute_read_c(&vb, b, job->type))
      || (mean && !amp__compute_write_c(&vm, mean, job->type)) || !amp__compute_write_c(&vr, rstd, job->type))
    goto out;
  int threads = amp__threads_for(input->numel, job->rows);
  if (!amp__scratch_lend(&scratch, own, sizeof own,
                         (size_t)threads * 3 * (size_t)job->size * amp__dtype_size[job->type]))
    goto out;
  job->input = vx.p;
  job->output = vy.p;
  job->weight = weight ? vw.p : NULL;
  job->bias = b ? vb.p : NULL;
  job->mean = vm.p;
  job->rstd = vr.p;
  job->buf = scratch.p;
  amp__parallel_ranges(threads, job->rows, forward_body, job);
  amp__compute_written(&vy, result, job->y_dtype);
  if (mean) amp__compute_written(&vm, mean, job->type);
  amp__compute_written(&vr, rstd, job->type);
  status = 0;
out:
  amp__scratch_return(&scratch);
  amp__compute_drop(&vx);
  amp__compute_drop(&vy);
  amp__compute_drop(&vw);
  amp__compute_drop(&vb);
  amp__compute_drop(&vm);
  amp__compute_drop(&vr);
  return status;
}

int amp__cpu_layer_norm(amp_call *call)
{ /* input weight? bias?; shape eps */
  const args_layer_norm *args = AMP_ARGS(call, layer_norm);
  layer_norm k = { .eps = args->eps };
  return forward(&k, call, amp__input_or_null(call, 1), amp__input_or_null(call, 2), call->out[1], call->out[2]);
}

/* input residual weight? bias?; shape eps dtype -> result sum statistics: made of the kernels of add and layer_norm */
int amp__cpu_add_layer_norm(amp_call *call)
{
  amp_tensor *sum = call->out[1], *at = call->out[2], *out[3] = { call->out[0], NULL, NULL };
  amp_tensor *inputs[3] = { sum, amp__input_or_null(call, 2), amp__input_or_null(call, 3) };
  int status = AMP_E_MEMORY;
  for (int i = 0; i < 2; i++)
    out[1 + i] = amp__tensor_view(at, at->ndim - 1, at->size + 1, at->stride + 1, at->offset + i * at->stride[0]);
  if (out[1] && out[2] && (status = amp__cpu_row(AMP_OP_add, 2, call->in, 1, &sum, NULL)) == 0)
    status = amp__cpu_row(AMP_OP_layer_norm, 3, inputs, 3, out, call->attrs);
  amp__free(out[1]);
  amp__free(out[2]);
  return status;
}

int amp__cpu_rms_norm(amp_call *call)
{ /* input weight?; shape eps: absent, the computing type's last place */
  const args_rms_norm *args = AMP_ARGS(call, rms_norm);
  double last = call->in[0]->dtype == AMP_FLOAT64 ? DBL_EPSILON : FLT_EPSILON;
  layer_norm k = { .is_rms = true, .eps = !AMP_GIVEN(args->eps) ? last : args->eps };
  return forward(&k, call, amp__input_or_null(call, 1), NULL, NULL, call->out[1]);
}

/* One sum over blocks, into a tensor of the row's shape */
static bool gradient(const layer_norm *job, int64_t blocks, int which, const amp_tensor *tensor)
{
  amp__compute_view v = { 0 };
  if (!tensor) return true;
  if (!amp__compute_write_c(&v, tensor, job->type)) return false;
  double *s = job->sums + which * job->size;
  for (int64_t b = 1; b < blocks; b++)
    for (int64_t i = 0; i < job->size; i++) s[i] += s[b * 2 * job->size + i];
  for (int64_t i = 0; i < job->size; i++) {
    double total = blocks ? s[i] : 0;
    if (job->type == AMP_FLOAT64) ((double *)v.p)[i] = total;
    else ((float *)v.p)[i] = (float)total;
  }
  amp__compute_written(&v, tensor, job->type);
  return true;
}

static int backward(layer_norm *job, amp_call *call, amp_tensor *mean, amp_tensor *rstd, amp_tensor *weight,
                    amp_tensor *add)
{
  const args_layer_norm_backward *args = AMP_ARGS(call, layer_norm_backward);
  amp_tensor *grad = call->in[0], *input = call->in[1], *result = call->out[0];
  char own[16 << 10] __attribute__((aligned(64)));
  amp__compute_view vx = { 0 }, vg = { 0 }, vy = { 0 }, vw = { 0 }, vm = { 0 }, vr = { 0 }, va = { 0 };
  amp__scratch scratch = { 0 };
  int status = AMP_E_MEMORY;
  job->type = rstd->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : amp__compute_dtype(input->dtype);
  set_rows(job, args->shape.n, args->shape.at, input);
  if (job->size == 0) return 0;
  if (!open_rows(&vx, input, job->type, &job->x_dtype) || !open_rows(&vg, grad, job->type, &job->g_dtype)
      || !open_out(&vy, result, job->type, &job->y_dtype) || (add && !open_rows(&va, add, job->type, &job->add_dtype))
      || (weight && !amp__compute_read_c(&vw, weight, job->type))
      || (mean && !amp__compute_read_c(&vm, mean, job->type)) || !amp__compute_read_c(&vr, rstd, job->type))
    goto out;
  job->rows_per_block = (job->rows + BLOCKS - 1) / BLOCKS;
  if (job->rows_per_block < 8) job->rows_per_block = 8;
  int64_t blocks = (job->rows + job->rows_per_block - 1) / job->rows_per_block;
  int threads = amp__threads_for(2 * input->numel, blocks);
  size_t bytes = (size_t)blocks * 2 * (size_t)job->size * sizeof(double);
  if (!amp__scratch_lend(&scratch, own, sizeof own,
                         bytes + (size_t)threads * 5 * (size_t)job->size * amp__dtype_size[job->type]))
    goto out;
  job->input = vx.p;
  job->grad = vg.p;
  job->output = vy.p;
  job->add = add ? va.p : NULL;
  job->weight = weight ? vw.p : NULL;
  job->mean = vm.p;
  job->rstd = vr.p;
  job->sums = scratch.p;
  job->buf = (char *)scratch.p + bytes;
  amp__parallel_ranges(threads, blocks, backward_body, job);
  if (!gradient(job, blocks, 0, call->out[1]) || (!job->is_rms && !gradient(job, blocks, 1, call->out[2]))) goto out;
  amp__compute_written(&vy, result, job->y_dtype);
  status = 0;
out:
  amp__scratch_return(&scratch);
  amp__compute_drop(&vx);
  amp__compute_drop(&vg);
  amp__compute_drop(&vy);
  amp__compute_drop(&vw);
  amp__compute_drop(&vm);
  amp__compute_drop(&vr);
  amp__compute_drop(&va);
  return status;
}

int amp__cpu_layer_norm_backward(amp_call *call)
{ /* grad input mean rstd weight? sum?; shape also */
  const args_layer_norm_backward *args = AMP_ARGS(call, layer_norm_backward);
  layer_norm k = { .is_rms = false };
  int status = backward(&k, call, call->in[2], call->in[3], amp__input_or_null(call, 4), amp__input_or_null(call, 5));
  return status == 0 && call->out[3]
             ? amp__cpu_row(AMP_OP_cast, 1, &call->out[0], 1, &call->out[3], AMP_SLOT(args->also))
             : status;
}

int amp__cpu_rms_norm_backward(amp_call *call)
{ /* grad input rstd weight? sum? */
  layer_norm k = { .is_rms = true };
  return backward(&k, call, NULL, call->in[2], amp__input_or_null(call, 3), amp__input_or_null(call, 4));
}
