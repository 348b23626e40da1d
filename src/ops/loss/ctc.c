/*
** ops/loss/ctc.c: rows ctc and ctc_backward: the likelihood of a label sequence under
** all alignments (Graves et al., 2006), by the forward-backward algorithm in the
** logarithmic domain.
**
** A sequence of S labels has L = 2 S + 1 states: blank l1 blank l2 ... blank. State s
** is reached from s, s - 1 and, where it is a label other than that of s - 2, s - 2.
** skip[s] is 0 there and -inf elsewhere, so one loop without branches does a step:
**
**   alpha[t][s] = log(sum exp(alpha[t-1][s], [s-1], [s-2] + skip[s])) + log_probs[t][label(s)]
**   beta[t][s]  = log(sum exp of beta[t+1] + log_probs[t+1] at s, s+1, s+2 + skip[s+2])
**
** beta leaves out step t itself, so exp(alpha + beta + nll) is the probability that
** the alignment is in state s at t, and the gradient of log_probs is minus its sum
** over the states of a label. The forward rows lie behind one another in `alpha`,
** L cells a step, sequence after sequence. Results beyond a sequence's length are 0.
*/
#include "cpu/kernel_help.h"

typedef struct sequence {
  int64_t steps, labels, target, cells;
} sequence; /* target, cells: offsets of its labels and alphas */

typedef struct job {
  bool f64;
  int64_t sequences, blank, classes, most; /* most: largest number of labels */
  const amp_tensor *input, *target;
  sequence *sequence;
  amp__compute_view log_probs, alpha, input_grad; /* log_probs, forward variables, gradient */
  const amp_tensor *nll, *grad;
  char *own;
  size_t own_bytes; /* of a thread */
} job;

enum { PAD = 2 }; /* cells of -inf on either side of a row of states */

static inline int64_t label(const job *job, const sequence *q, int64_t i)
{ /* of state 2 i + 1, from 0 */
  int64_t stride = job->target->stride[job->target->ndim - 1];
  return amp__label_at(amp__data(job->target), job->target->dtype, q->target + i * stride) - 1;
}

#define BODY "ops/loss/ctc_body.h"
#include "cpu/each_real.h"

static void forward_body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const job *job = ctx;
  char *own = job->own + (size_t)thread * job->own_bytes;
  for (int64_t n = begin; n < end; n++) {
    double l = job->f64 ? forward_f64(job, n, own) : forward_f32(job, n, own);
    amp__store_f64((char *)amp__data(job->nll) + n * amp__dtype_size[job->nll->dtype], job->nll->dtype, 1, &l, 1);
  }
}

static void backward_body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const job *job = ctx;
  char *own = job->own + (size_t)thread * job->own_bytes;
  for (int64_t n = begin; n < end; n++) {
    if (job->f64) backward_f64(job, n, own);
    else backward_f32(job, n, own);
  }
}

/* Lengths and labels, checked */
static int read_sequences(job *job, amp_tensor *const *inputs)
{
  const amp_tensor *input = inputs[0], *tensor = inputs[1];
  bool padded = tensor->ndim == 2;
  int64_t at = 0, cells = 0;
  for (int64_t i = 0; i < job->sequences; i++) {
    sequence *sequence = &job->sequence[i];
    sequence->steps = amp__label_at(amp__data(inputs[2]), inputs[2]->dtype, i * inputs[2]->stride[0]);
    sequence->labels = amp__label_at(amp__data(inputs[3]), inputs[3]->dtype, i * inputs[3]->stride[0]);
    if (sequence->steps < 0 || sequence->steps > input->size[0])
      return amp__fail_arg(
          AMP_E_VALUE, 3, "input_lengths is %lld at row %lld, expected 0..%lld, the steps of log_probs %s",
          (long long)sequence->steps, (long long)i + 1, (long long)input->size[0], amp__shape_str(3, input->size));
    int64_t room = padded ? tensor->size[1] : tensor->size[0] - at;
    if (sequence->labels < 0 || sequence->labels > room)
      return amp__fail_arg(AMP_E_VALUE, 4, "target_lengths is %lld at row %lld, where targets %s has %lld labels%s",
                           (long long)sequence->labels, (long long)i + 1, amp__shape_str(tensor->ndim, tensor->size),
                           (long long)room, padded ? "" : " left");
    sequence->target = padded ? i * tensor->stride[0] : at * tensor->stride[0];
    sequence->cells = cells * input->size[0];
    cells += 2 * sequence->labels + 1;
    at += sequence->labels;
    if (sequence->labels > job->most) job->most = sequence->labels;
    for (int64_t j = 0; j < sequence->labels; j++) {
      int64_t y = label(job, sequence, j) + 1;
      if (y < 1 || y > job->classes)
        return amp__fail_arg(AMP_E_INDEX, 2, "label %lld at row %lld, place %lld, expected 1..%lld", (long long)y,
                             (long long)i + 1, (long long)j + 1, (long long)job->classes);
      if (y == job->blank + 1)
        return amp__fail_arg(AMP_E_INDEX, 2, "label %lld at row %lld, place %lld is the blank, which no target holds",
                             (long long)y, (long long)i + 1, (long long)j + 1);
    }
  }
  if (!padded && at != tensor->size[0])
    return amp__fail_arg(AMP_E_VALUE, 4, "target_lengths add up to %lld, targets has %lld labels", (long long)at,
                         (long long)tensor->size[0]);
  return 0;
}

/* in: log_probs targets input_lengths target_lengths */
static int run(job *job, amp_tensor *const *inputs, int64_t blank, amp__range_fn body)
{
  amp__scratch scratch = { 0 }, own = { 0 };
  int status = AMP_E_MEMORY, type = amp__compute_dtype(inputs[0]->dtype);
  job->f64 = type == AMP_FLOAT64;
  job->input = inputs[0];
  job->target = inputs[1];
  job->sequences = inputs[0]->size[1];
  job->classes = inputs[0]->size[2];
  job->blank = blank - 1;
  sequence few[16];
  if (!amp__scratch_lend(&scratch, few, sizeof few, (size_t)job->sequences * sizeof *job->sequence)) goto out;
  job->sequence = scratch.p;
  if ((status = read_sequences(job, inputs)) < 0) goto out;
  status = AMP_E_MEMORY;
  if (!amp__compute_read(&job->log_probs, inputs[0], type)) goto out;
  int64_t states = 2 * job->most + 1;
  job->own_bytes
      = ((size_t)states * sizeof(int64_t) + 6 * (size_t)(states + 2 * PAD) * amp__dtype_size[type] + 63) / 64 * 64;
  int threads = amp__threads_for(job->sequences * inputs[0]->size[0] * (states * 20), job->sequences);
  char small[4 << 10] __attribute__((aligned(64)));
  if (!amp__scratch_lend(&own, small, sizeof small, job->own_bytes * (size_t)threads)) goto out;
  job->own = own.p;
  amp__parallel_ranges(threads, job->sequences, body, job);
  status = 0;
out:
  amp__scratch_return(&own);
  amp__scratch_return(&scratch);
  amp__compute_drop(&job->log_probs);
  return status;
}

int amp__cpu_ctc(amp_call *call)
{
  const args_ctc *args = AMP_ARGS(call, ctc);
  job job = { .nll = call->out[0] };
  int type = amp__compute_dtype(call->in[0]->dtype);
  if (!amp__compute_write_c(&job.alpha, call->out[1], type)) return AMP_E_MEMORY;
  if (call->out[1]->numel)
    memset(job.alpha.p, 0, (size_t)call->out[1]->numel * amp__dtype_size[type]); /* padding is not left to chance */
  int status = run(&job, call->in, args->blank, forward_body);
  amp__compute_written(&job.alpha, call->out[1], type);
  return status;
}

/* grad log_probs targets input_lengths target_lengths nll alpha */
int amp__cpu_ctc_backward(amp_call *call)
{
  const args_ctc_backward *args = AMP_ARGS(call, ctc_backward);
  job job = { .grad = call->in[0], .nll = call->in[5] };
  int type = amp__compute_dtype(call->in[1]->dtype), status = AMP_E_MEMORY;
  if (call->out[0]->numel == 0) return 0;
  if (!amp__compute_read_c(&job.alpha, call->in[6], type)) return AMP_E_MEMORY;
  if (!amp__compute_write_c(&job.input_grad, call->out[0], type)) goto out;
  status = run(&job, call->in + 1, args->blank, backward_body);
  amp__compute_written(&job.input_grad, call->out[0], type);
out:
  amp__compute_drop(&job.alpha);
  return status;
}
