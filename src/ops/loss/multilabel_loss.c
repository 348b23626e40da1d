/*
** ops/loss/multilabel_loss.c: multilabel_margin_loss and its backward row. A row of target
** lists the row's labels, from 1, up to the first number under 1; each pair of
** a label and a class that is none gives max(0, 1 - x[label] + x[class]) / C.
** A pair whose value is not above 0 has no slope.
*/
#include "cpu/kernel_help.h"

typedef struct job {
  int64_t rows, classes;
  amp__compute_view input, input_grad;
  const amp_tensor *target, *grad, *out;
  int64_t reduction;
  double scale;
  double *row, *row_grad; /* one row */
  uint8_t *is_label;      /* class is a label */
  int64_t *list;
} job;

/* The row's labels from 0, how many */
static int64_t labels(const job *job, int64_t row)
{
  const amp_tensor *tensor = job->target;
  int64_t base = tensor->ndim > 1 ? row * tensor->stride[0] : 0, count = 0;
  memset(job->is_label, 0, (size_t)job->classes);
  for (; count < job->classes; count++) {
    int64_t y = amp__label_at(amp__data(tensor), tensor->dtype, base + count * tensor->stride[tensor->ndim - 1]);
    if (y < 1) break;
    job->is_label[y - 1] = 1;
    job->list[count] = y - 1;
  }
  return count;
}

static int check(const job *job, int arg)
{
  const amp_tensor *tensor = job->target;
  for (int64_t r = 0; r < job->rows; r++)
    for (int64_t i = 0; i < job->classes; i++) {
      int64_t y = amp__label_at(amp__data(tensor), tensor->dtype,
                                (tensor->ndim > 1 ? r * tensor->stride[0] : 0) + i * tensor->stride[tensor->ndim - 1]);
      if (y < 1) break;
      if (y > job->classes)
        return amp__fail_arg(AMP_E_INDEX, arg, "label %lld at row %lld, place %lld, expected 1..%lld, or 0 at the end",
                             (long long)y, (long long)r + 1, (long long)i + 1, (long long)job->classes);
    }
  return 0;
}

static void load(const job *job, const amp_tensor *input, int64_t row)
{
  amp__load_f64(job->row, amp__address_of(input, input->ndim > 1 ? row * input->stride[0] : 0), input->dtype,
                input->stride[input->ndim - 1], job->classes);
}

/* One row's loss; with d also its slopes */
static double margins(const job *job, int64_t row, double *d)
{
  int64_t n = labels(job, row);
  double sum = 0;
  for (int64_t j = 0; j < n; j++) {
    double at = 1 - job->row[job->list[j]], hits = 0;
    for (int64_t i = 0; i < job->classes; i++) {
      double z = at + job->row[i];
      bool on = !job->is_label[i] && !(z <= 0); /* NaN goes on */
      sum += on ? z : 0;
      if (d) {
        d[i] += on;
        hits += on;
      }
    }
    if (d) d[job->list[j]] -= hits;
  }
  return sum / (double)job->classes;
}

static bool open_job(job *job, amp__scratch *scratch, void *own, size_t bytes, const amp_tensor *input,
                     const amp_tensor *target, int64_t reduction)
{
  job->classes = input->size[input->ndim - 1];
  job->rows = input->ndim > 1 ? input->size[0] : 1;
  job->target = target;
  job->reduction = reduction;
  size_t n = (size_t)job->classes;
  if (!amp__scratch_lend(scratch, own, bytes, n * (2 * sizeof(double) + sizeof(int64_t) + 1))) return false;
  job->row = scratch->p;
  job->row_grad = job->row + n;
  job->list = (int64_t *)(job->row_grad + n);
  job->is_label = (uint8_t *)(job->list + n);
  return true;
}

static void *element(const amp_tensor *tensor, int64_t row)
{
  return (char *)amp__data(tensor) + (tensor->ndim ? row * tensor->stride[0] : 0) * amp__dtype_size[tensor->dtype];
}

int amp__cpu_multilabel_margin_loss(amp_call *call)
{
  const args_multilabel_margin_loss *args = AMP_ARGS(call, multilabel_margin_loss);
  char own[8 << 10] __attribute__((aligned(64)));
  amp__scratch scratch;
  job job = { 0 };
  const amp_tensor *input = call->in[0], *out = call->out[0];
  double sum = 0;
  if (!open_job(&job, &scratch, own, sizeof own, input, call->in[1], args->reduction)) return AMP_E_MEMORY;
  int status = check(&job, 2);
  for (int64_t r = 0; r < job.rows && status == 0; r++) {
    load(&job, input, r);
    double l = margins(&job, r, NULL);
    if (job.reduction == REDUCTION_NONE) amp__store_f64(element(out, r), out->dtype, 1, &l, 1);
    sum += l;
  }
  if (job.reduction == REDUCTION_MEAN) sum /= (double)job.rows;
  if (job.reduction != REDUCTION_NONE && status == 0) amp__store_f64(amp__data(out), out->dtype, 1, &sum, 1);
  amp__scratch_return(&scratch);
  return status;
}

/* grad input target */
int amp__cpu_multilabel_margin_loss_backward(amp_call *call)
{
  const args_multilabel_margin_loss_backward *args = AMP_ARGS(call, multilabel_margin_loss_backward);
  char own[8 << 10] __attribute__((aligned(64)));
  amp__scratch scratch;
  job job = { 0 };
  const amp_tensor *grad = call->in[0], *input = call->in[1], *result = call->out[0];
  if (!open_job(&job, &scratch, own, sizeof own, input, call->in[2], args->reduction)) return AMP_E_MEMORY;
  int status = check(&job, 3);
  for (int64_t r = 0; r < job.rows && status == 0; r++) {
    double q;
    amp__load_f64(&q, job.reduction == REDUCTION_NONE ? element(grad, r) : amp__data(grad), grad->dtype, 1, 1);
    q /= (double)job.classes * (job.reduction == REDUCTION_MEAN ? (double)job.rows : 1);
    load(&job, input, r);
    memset(job.row_grad, 0, (size_t)job.classes * sizeof(double));
    margins(&job, r, job.row_grad);
    for (int64_t i = 0; i < job.classes; i++) job.row_grad[i] *= q;
    amp__store_f64((char *)amp__data(result)
                       + (result->ndim > 1 ? r * result->stride[0] : 0) * amp__dtype_size[result->dtype],
                   result->dtype, result->stride[result->ndim - 1], job.row_grad, job.classes);
  }
  amp__scratch_return(&scratch);
  return status;
}
