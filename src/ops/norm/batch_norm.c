/*
** ops/norm/batch_norm.c: rows batch_norm and batch_norm_backward.
**
** Data is N x C x the rest, seen in one of two shapes: runs of one channel
** (NCHW), or runs of channels (channels-last, and N x C), else it is copied to
** C order. Threads take channels, so sums don't depend on their number. A run's
** mean and variance are taken while it is in cache and joined in double: one
** trip to memory, no cancellation. 16-bit runs are widened on the way.
*/
#include "cpu/vector_math.h"
#include "ops/norm/norm_runs.h"

typedef struct batch_norm {
  int dtype, type;                /* of the data; of the computation */
  int64_t images, channels, rest; /* rest: elements of an image and channel */
  bool inside;                    /* channels are contiguous */
  const char *input, *grad;
  char *output; /* output, or input's gradient */
  int64_t x_image, x_channel, x_step, g_image, g_channel, g_step, y_image, y_channel,
      y_step; /* strides: image, channel, rest */
  bool training;
  double eps;
  void *mean, *rstd;               /* [channels], in the computing type */
  double *var;                     /* [channels] biased */
  double *low;                     /* [channels] what the means were rounded by */
  const double *weight, *bias;     /* [channels] or NULL */
  double *weight_grad, *bias_grad; /* [channels] */
} batch_norm;

/* -- NCHW: runs of one channel ---------------------------------------------------------- */

#define AT(p, e) ((p) + (e)*size)

enum { TOGETHER = 64 }; /* channels whose runs are read in memory's order, image by image */

/* y = a x + b of a channel; true: y = a (x - mean) + b */
AMP_INLINE bool shift(const batch_norm *k, int64_t c, double mean, double r, double *a, double *b)
{
  bool far = norm_far(mean + k->low[c], r, k->var[c]);
  *a = r * (k->weight ? k->weight[c] : 1);
  *b = (k->bias ? k->bias[c] : 0) - (far ? k->low[c] : mean + k->low[c]) * *a;
  return far;
}
/* The gradient w r g + b x + d of a channel, of the sums of g and of g (x - mean - rest); true: w r g + b (x -
** mean) r + d */
AMP_INLINE bool back(const batch_norm *job, double w, double r, double mean, double sg, double sx, double m,
                     double rest, double *b, double *d)
{
  *b = *d = 0;
  if (!job->training) return false;
  *b = -w * r * (sx * r) / m;
  *d = -w * r * sg / m - *b * rest * r;
  if (norm_far_back(mean, r, *b)) return true;
  *b *= r;
  *d -= *b * mean;
  return false;
}

#define BODY "ops/norm/batch_norm_outer_body.h"
#include "cpu/each_real.h"

/* -- Channels inside: runs of channels --------------------------------------------------- */

#define BODY "ops/norm/batch_norm_inner_body.h"
#include "cpu/each_real.h"

/* -- Running over channels ----------------------------------------------------------------- */

typedef struct job {
  const batch_norm *k;
  enum task { STATISTICS_AND_APPLY, APPLY, BACKWARD } task;
  int64_t lane;
} job;

static void body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const job *j = ctx;
  const batch_norm *k = j->k;
#define PICK(f, ...) (k->type == AMP_FLOAT64 ? f##_f64(__VA_ARGS__) : f##_f32(__VA_ARGS__))
  if (!k->inside) {
    for (int64_t c = begin, e; c < end; c = e) {
      e = c + TOGETHER < end ? c + TOGETHER : end;
      if (j->task == STATISTICS_AND_APPLY) PICK(outer_stats, k, c, e);
      if (j->task <= APPLY) PICK(outer_apply, k, c, e);
      else PICK(outer_back, k, c, e);
    }
    return;
  }
  for (int64_t i = begin; i < end; i++) {
    int64_t c = i * j->lane, nc = k->channels - c < j->lane ? k->channels - c : j->lane;
    if (j->task == STATISTICS_AND_APPLY) PICK(inner_stats, k, c, nc);
    if (j->task <= APPLY) PICK(inner_apply, k, c, nc);
    else PICK(inner_back, k, c, nc);
  }
}

static void run(const batch_norm *k, enum task task)
{
  job j = { k, task, k->channels < NORM_SPAN ? k->channels : NORM_SPAN };
  int threads = amp__threads_for(k->images * k->channels * k->rest, k->channels);
  if (k->inside && threads > 1 && k->channels / threads < j.lane)
    j.lane = k->channels / threads >= 16 ? k->channels / threads / 16 * 16 : 16;
  int64_t units = k->inside ? (k->channels + j.lane - 1) / j.lane : k->channels;
  amp__parallel_ranges(threads < units ? threads : (int)units, units, body, &j);
}

/* C values of any float dtype (absent: NULL stays) */
static const double *vector(const amp_tensor *tensor, double *dst, int64_t c)
{
  if (!tensor) return NULL;
  amp__load_f64(dst, amp__data(tensor), tensor->dtype, tensor->ndim ? tensor->stride[0] : 1, c);
  return dst;
}

/* The data in one of the two shapes, x and y (and g) alike. Copies sit in v. */
typedef struct layout {
  amp__compute_view input, grad, output;
} layout;

static bool same_way(batch_norm *job, const amp_tensor *input, const amp_tensor *grad, const amp_tensor *result,
                     layout *views)
{
  bool ok = amp__norm_strides(input, views->input.stride, &job->x_image, &job->x_channel, &job->x_step)
            && amp__norm_strides(result, views->output.stride, &job->y_image, &job->y_channel, &job->y_step)
            && (!grad || amp__norm_strides(grad, views->grad.stride, &job->g_image, &job->g_channel, &job->g_step));
  if (!ok) return false;
  bool in = (job->channels == 1 || job->x_channel == 1) && (job->channels == 1 || job->y_channel == 1)
            && (!grad || job->channels == 1 || job->g_channel == 1);
  bool out = (job->rest == 1 || job->x_step == 1) && (job->rest == 1 || job->y_step == 1)
             && (!grad || job->rest == 1 || job->g_step == 1);
  job->inside = in && (job->rest == 1 || !out);
  if (!in && !out) return false;
  if (job->inside
      && (job->rest == 1
          || (job->x_image == job->rest * job->x_step && job->y_image == job->rest * job->y_step
              && (!grad || job->g_image == job->rest * job->g_step)))) {
    if (job->rest == 1) {
      job->x_step = job->x_image;
      job->y_step = job->y_image;
      job->g_step = job->g_image;
    } /* images are one long run of pixels */
    job->rest *= job->images;
    job->images = 1;
  }
  return true;
}

static bool open_layout(batch_norm *job, const amp_tensor *input, const amp_tensor *grad, const amp_tensor *result,
                        layout *views)
{
  job->dtype = input->dtype;
  job->type = amp__compute_dtype(input->dtype);
  job->images = input->size[0];
  job->channels = input->ndim > 1 ? input->size[1] : 1;
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
    int type = job->type;
    job->dtype = type;
    if (!amp__compute_read_c(&views->input, input, type) || (grad && !amp__compute_read_c(&views->grad, grad, type))
        || !amp__compute_write_c(&views->output, result, type))
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

/* -- batch_norm -------------------------------------------------------------------------------- */

static void update_running(const batch_norm *job, amp_tensor *tensor, bool variance, double momentum, double count)
{
  double buf[64];
  if (!tensor) return;
  for (int64_t c = 0; c < job->channels; c += 64) {
    int64_t n = job->channels - c < 64 ? job->channels - c : 64, step = tensor->ndim ? tensor->stride[0] : 1;
    char *p = (char *)amp__data(tensor) + c * step * amp__dtype_size[tensor->dtype];
    amp__load_f64(buf, p, tensor->dtype, step, n);
    for (int64_t j = 0; j < n; j++) {
      double mean = job->type == AMP_FLOAT64 ? ((double *)job->mean)[c + j] : ((float *)job->mean)[c + j];
      double v = variance ? job->var[c + j] * (count / (count - 1)) : mean;
      buf[j] = (1 - momentum) * buf[j] + momentum * v;
    }
    amp__store_f64(p, tensor->dtype, step, buf, n);
  }
  amp__bump(tensor);
}

/* Statistics of no elements */
static void set_no_statistics(batch_norm *k, int64_t channels)
{
  for (int64_t i = 0; i < channels; i++) {
    k->var[i] = NAN;
    k->low[i] = 0;
    if (k->type == AMP_FLOAT64) ((double *)k->mean)[i] = ((double *)k->rstd)[i] = NAN;
    else ((float *)k->mean)[i] = ((float *)k->rstd)[i] = NAN;
  }
}

/* Statistics are those that are kept from call to call. */
static void set_running_statistics(batch_norm *job, int64_t channels, const double *mean, const double *var)
{
  for (int64_t i = 0; i < channels; i++) {
    double rstd = 1 / sqrt(var[i] + job->eps);
    job->var[i] = var[i];
    job->low[i] = 0;
    if (job->type == AMP_FLOAT64) {
      ((double *)job->mean)[i] = mean[i];
      ((double *)job->rstd)[i] = rstd;
    } else {
      ((float *)job->mean)[i] = (float)mean[i];
      ((float *)job->rstd)[i] = (float)rstd;
      job->low[i] = mean[i] - (double)(float)mean[i];
    }
  }
}

int amp__cpu_batch_norm(amp_call *call)
{
  const args_batch_norm *args = AMP_ARGS(call, batch_norm);
  amp_tensor *input = call->in[0], *rm = amp__input_or_null(call, 1), *rv = amp__input_or_null(call, 2),
             *result = call->out[0], *om = call->out[1], * or = call->out[2];
  double momentum = args->momentum, own[512];
  batch_norm job = { .training = args->training != 0, .eps = args->eps };
  layout views = { 0 };
  amp__compute_view vm = { 0 }, vr = { 0 };
  amp__scratch scratch = { 0 };
  int status = AMP_E_MEMORY;
  int64_t c = input->ndim > 1 ? input->size[1] : 1;
  bool live = job.training || !rm || !rv;
  if (c == 0) return 0;
  if (!open_layout(&job, input, NULL, result, &views)) goto out;
  if (!amp__scratch_lend(&scratch, own, sizeof own, (size_t)c * 6 * sizeof(double))) goto out;
  if (!amp__compute_write_c(&vm, om, job.type) || !amp__compute_write_c(&vr, or, job.type)) goto out;
  double *d = scratch.p;
  job.weight = vector(amp__input_or_null(call, 3), d, c);
  job.bias = vector(amp__input_or_null(call, 4), d + c, c);
  job.var = d + 2 * c;
  job.low = d + 5 * c;
  job.mean = vm.p;
  job.rstd = vr.p;
  status = 0;
  if (live) {
    double count = (double)input->numel / (double)c;
    if (input->numel == 0) set_no_statistics(&job, c);
    else run(&job, STATISTICS_AND_APPLY);
    bool finite = count > 1;
    for (int64_t i = 0; i < c && finite; i++)
      finite = isfinite(job.var[i])
               && isfinite(job.type == AMP_FLOAT64 ? ((double *)job.mean)[i] : ((float *)job.mean)[i]);
    if (job.training && finite) { /* an overflowed batch must not poison what evaluation uses */
      update_running(&job, rm, false, momentum, count);
      update_running(&job, rv, true, momentum, count);
    }
  } else set_running_statistics(&job, c, vector(rm, d + 3 * c, c), vector(rv, d + 4 * c, c));
  if (input->numel && !live) run(&job, APPLY);
  amp__compute_written(&views.output, result, job.dtype);
  amp__compute_written(&vm, om, job.type);
  amp__compute_written(&vr, or, job.type);
out:
  amp__scratch_return(&scratch);
  close_layout(&views);
  amp__compute_drop(&vm);
  amp__compute_drop(&vr);
  return status;
}

/* -- batch_norm_backward: grad input weight? mean rstd -> input's, weight's, bias's ----------------- */

static void write_vector(const amp_tensor *tensor, const double *src, int64_t c)
{
  if (tensor) amp__store_f64(amp__data(tensor), tensor->dtype, tensor->ndim ? tensor->stride[0] : 1, src, c);
}

int amp__cpu_batch_norm_backward(amp_call *call)
{
  const args_batch_norm_backward *args = AMP_ARGS(call, batch_norm_backward);
  amp_tensor *grad = call->in[0], *input = call->in[1], *weight = call->in[2], *result = call->out[0];
  double own[512];
  batch_norm job = { .training = args->training != 0 };
  layout views = { 0 };
  amp__compute_view vm = { 0 }, vr = { 0 };
  amp__scratch scratch = { 0 };
  int status = AMP_E_MEMORY;
  int64_t c = input->ndim > 1 ? input->size[1] : 1;
  if (c == 0) return 0;
  if (!open_layout(&job, input, grad, result, &views)) goto out;
  if (!amp__scratch_lend(&scratch, own, sizeof own, (size_t)c * 3 * sizeof(double))) goto out;
  if (!amp__compute_read_c(&vm, call->in[3], job.type) || !amp__compute_read_c(&vr, call->in[4], job.type)) goto out;
  double *d = scratch.p;
  job.weight = vector(weight, d, c);
  job.weight_grad = d + c;
  job.bias_grad = d + 2 * c;
  job.mean = vm.p;
  job.rstd = vr.p;
  if (input->numel) run(&job, BACKWARD);
  else memset(job.weight_grad, 0, (size_t)c * 2 * sizeof(double));
  amp__compute_written(&views.output, result, job.dtype);
  write_vector(call->out[1], job.weight_grad, c);
  write_vector(call->out[2], job.bias_grad, c);
  status = 0;
out:
  amp__scratch_return(&scratch);
  close_layout(&views);
  amp__compute_drop(&vm);
  amp__compute_drop(&vr);
  return status;
}
