/*
** ctc.cu: rows ctc and ctc_backward: the likelihood of a label sequence under all
** alignments (Graves et al., 2006), in the logarithmic domain; ops/loss/ctc.c says the
** recursion. A block takes a sequence and its threads the states, step by step; the
** forward variables go to memory, where the next step and backward find them.
**
** Backward, each class of a step is written once: the blank from all even states,
** a label by the thread of its first place, which walks the other ones. So nothing
** depends on the order of threads. Lengths and labels are checked here: a sequence
** with a wrong one is noted and left out.
*/
#include "common/rows.cuh"

namespace {

typedef struct job {
  amp_arg x, target, steps, labels, y; /* y: gradient of log_probs */
  char *nll, *alpha;
  const char *grad, *nll_in;
  int64_t snll, sgrad, most; /* most: labels of a sequence */
  int32_t nlldt, gdt, blank, op;
  char *scratch;
  int64_t each; /* bytes of it a sequence */
  amp_trouble *trouble;
} job;

typedef struct sequence {
  int64_t steps, labels, target, cells;
  bool bad;
} sequence;

__device__ __forceinline__ int64_t length_at(const amp_arg &a, int64_t i)
{
  return amp_load<int64_t>(a.p, a.dtype, i * a.stride[0]);
}

/* Sequence n; all threads of a block come. Labels are checked, too */
__device__ sequence sequence_of(const job &task, int64_t n)
{
  sequence q;
  const bool padded = task.target.ndim == 2;
  int64_t at = 0, cells = 0, bad = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    int64_t l = length_at(task.labels, i);
    l = l < 0 || l > task.most ? 0 : l;
    at += l;
    cells += 2 * l + 1;
  }
  at = amp_reduce_block<amp_sum>(at, (int64_t)0);
  cells = amp_reduce_block<amp_sum>(cells, (int64_t)0);
  q.steps = length_at(task.steps, n);
  q.labels = length_at(task.labels, n);
  int64_t room = padded ? task.target.size[1] : task.target.size[0] - at;
  q.target = padded ? n * task.target.stride[0] : at * task.target.stride[0];
  q.cells = cells * task.x.size[0];
  q.bad = q.steps < 0 || q.steps > task.x.size[0] || q.labels < 0 || q.labels > room;
  if (threadIdx.x == 0) {
    if (q.steps < 0 || q.steps > task.x.size[0])
      amp_note(task.trouble, AMP_TROUBLE_LENGTH, task.op, q.steps, task.x.size[0], n);
    else if (q.bad) amp_note(task.trouble, AMP_TROUBLE_LENGTH, task.op, q.labels, room > 0 ? room : 0, n);
    else if (!padded && n == task.x.size[1] - 1 && q.labels != room)
      amp_note(task.trouble, AMP_TROUBLE_LENGTH, task.op, q.labels, room, n);
  }
  if (q.bad) return q;
  const int64_t step = task.target.stride[task.target.ndim - 1];
  for (int64_t i = threadIdx.x; i < q.labels; i += blockDim.x) {
    int64_t y = amp_load<int64_t>(task.target.p, task.target.dtype, q.target + i * step);
    if (y >= 1 && y <= task.x.size[2] && y != task.blank + 1) continue;
    amp_note(task.trouble, AMP_TROUBLE_LABEL, task.op, y, task.x.size[2], n);
    bad = 1;
  }
  q.bad = __syncthreads_or((int)bad) != 0;
  return q;
}

__device__ __forceinline__ int64_t class_of(const job &task, const sequence &q, int64_t s)
{
  return s & 1 ? amp_load<int64_t>(task.target.p, task.target.dtype,
                                   q.target + s / 2 * task.target.stride[task.target.ndim - 1])
                     - 1
               : (int64_t)task.blank;
}
/* from s - 2 into s */
__device__ __forceinline__ bool skips(const job &task, const sequence &q, int64_t s)
{
  return (s & 1) && s > 1 && class_of(task, q, s) != class_of(task, q, s - 2);
}
template <class T>
__device__ __forceinline__ T score(const job &task, const sequence &q, int64_t t, int64_t n, int64_t s)
{
  return amp_load<T>(task.x.p, task.x.dtype,
                     t * task.x.stride[0] + n * task.x.stride[1] + class_of(task, q, s) * task.x.stride[2]);
}
template <class T> __device__ __forceinline__ T join(T p, T q, T r)
{
  T m = p > q ? p : q;
  m = m > r ? m : r;
  m = m == -(T)INFINITY ? (T)0 : m;
  return log(exp(p - m) + exp(q - m) + exp(r - m)) + m;
}

template <class T> __global__ void __launch_bounds__(256) forward(const job task)
{
  const T none = -(T)INFINITY;
  for (int64_t n = blockIdx.x; n < task.x.size[1]; n += gridDim.x) {
    sequence q = sequence_of(task, n);
    int64_t L = 2 * q.labels + 1;
    T *alpha = (T *)task.alpha + q.cells, *prev = alpha;
    if (q.bad) {
      if (threadIdx.x == 0) amp_store<double>(task.nll, task.nlldt, n * task.snll, 0.0);
      continue;
    }
    for (int64_t t = 0; t < q.steps; t++, alpha += L) {
      for (int64_t s = threadIdx.x; s < L; s += blockDim.x) {
        T v = t == 0 ? (s < 2 ? (T)0 : none)
                     : join(prev[s], s > 0 ? prev[s - 1] : none, skips(task, q, s) ? prev[s - 2] : none);
        alpha[s] = v + score<T>(task, q, t, n, s);
      }
      __syncthreads();
      prev = alpha;
    }
    if (threadIdx.x == 0) {
      double l = q.labels ? INFINITY : 0;
      if (q.steps > 0) {
        double a = prev[L - 1], b = L > 1 ? (double)prev[L - 2] : -(double)INFINITY, m = a > b ? a : b;
        l = m == -(double)INFINITY ? (double)INFINITY : -(m + log(exp(a - m) + exp(b - m)));
      }
      amp_store<double>(task.nll, task.nlldt, n * task.snll, l);
    }
    __syncthreads();
  }
}

/* into zeros */
template <class T> __global__ void __launch_bounds__(256) backward(const job task)
{
  const T none = -(T)INFINITY;
  for (int64_t n = blockIdx.x; n < task.x.size[1]; n += gridDim.x) {
    sequence q = sequence_of(task, n);
    const int64_t L = 2 * q.labels + 1, most = 2 * task.most + 1;
    const double grad = amp_load<double>(task.grad, task.gdt, n * task.sgrad);
    const T g = (T)grad, nll = amp_load<T>(task.nll_in, task.nlldt, n * task.snll);
    if (q.bad || grad == 0) continue;
    T *beta = (T *)(task.scratch + n * task.each), *next = beta + most, *post = next + most;
    int32_t *later = (int32_t *)(post + most),
            *first = later + task.most; /* the next place of the same label, -1: none; is it the first? */
    for (int64_t i = threadIdx.x; i < q.labels; i += blockDim.x) {
      int64_t c = class_of(task, q, 2 * i + 1), j = i + 1, h = 0;
      while (j < q.labels && class_of(task, q, 2 * j + 1) != c) j++;
      while (h < i && class_of(task, q, 2 * h + 1) != c) h++;
      later[i] = j < q.labels ? (int32_t)j : -1;
      first[i] = h == i;
    }
    for (int64_t t = q.steps - 1; t >= 0; t--) {
      const T *alpha = (const T *)task.alpha + q.cells + t * L;
      double blank = 0;
      __syncthreads();
      for (int64_t s = threadIdx.x; s < L; s += blockDim.x) {
        T b;
        if (t == q.steps - 1) b = s >= L - 2 ? (T)0 : none;
        else
          b = join(beta[s] + score<T>(task, q, t + 1, n, s),
                   s + 1 < L ? beta[s + 1] + score<T>(task, q, t + 1, n, s + 1) : none,
                   s + 2 < L && skips(task, q, s + 2) ? beta[s + 2] + score<T>(task, q, t + 1, n, s + 2) : none);
        next[s] = b;
        T p = exp(alpha[s] + b + nll);
        post[s] = p;
        if (!(s & 1)) blank += (double)p;
      }
      blank = amp_reduce_block<amp_sum>(blank, 0.0); /* a barrier, too: post is complete */
      int64_t row = t * task.y.stride[0] + n * task.y.stride[1];
      if (threadIdx.x == 0) amp_store<T>(task.y.p, task.y.dtype, row + task.blank * task.y.stride[2], -g * (T)blank);
      for (int64_t i = threadIdx.x; i < q.labels; i += blockDim.x) {
        if (!first[i]) continue;
        T sum = 0;
        for (int64_t j = i; j >= 0; j = later[j]) sum += post[2 * j + 1];
        amp_store<T>(task.y.p, task.y.dtype, row + class_of(task, q, 2 * i + 1) * task.y.stride[2], -g * sum);
      }
      T *swap = beta;
      beta = next;
      next = swap;
    }
  }
}

/* in: log_probs targets input_lengths target_lengths */
static job begin(const amp_call *c, int64_t blank, amp_tensor *const *in)
{
  job task;
  memset((void *)&task, 0, sizeof task);
  task.x = amp_arg_of(in[0]);
  task.target = amp_arg_of(in[1]);
  task.steps = amp_arg_of(in[2]);
  task.labels = amp_arg_of(in[3]);
  task.most = in[1]->size[in[1]->ndim - 1];
  task.blank = (int32_t)blank - 1;
  task.op = c->id;
  task.trouble = amp_trouble_cell();
  return task;
}
static int type_of(const amp_tensor *t) { return t->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32; }

} // namespace

extern "C" {

int amp__cuda_ctc(amp_call *c)
{
  amp_tensor *nll = c->out[0], *out = c->out[1], *alpha = amp_take(out, type_of(c->in[0]));
  job task = begin(c, AMP_ARGS(c, ctc)->blank, c->in);
  int rc = alpha ? amp__cuda_fill_value(alpha, 0) : AMP_E_MEMORY; /* padding is not left to chance */
  if (rc == 0 && nll->numel > 0) {
    task.alpha = (char *)amp__data(alpha);
    task.nll = (char *)amp__data(nll);
    task.nlldt = nll->dtype;
    task.snll = nll->stride[0];
    amp_by_float(alpha->dtype, [&](auto zero) {
      AMP_LAUNCH((forward<decltype(zero)>), amp_grid(nll->numel, 1), 256, 0, task);
      return 0;
    });
  }
  return amp_give(out, alpha, rc);
}

/* grad log_probs targets input_lengths target_lengths nll alpha */
int amp__cuda_ctc_backward(amp_call *c)
{
  amp_tensor *g = c->in[0], *nll = c->in[5], *y = c->out[0], *alpha, *s = NULL;
  int rc, type = type_of(c->in[1]);
  if (y->numel == 0) return 0;
  job task = begin(c, AMP_ARGS(c, ctc_backward)->blank, c->in + 1);
  if ((rc = amp__cuda_fill_value(y, 0)) < 0) return rc;
  task.each = (int64_t)(3 * (2 * (size_t)task.most + 1) * amp__dtype_size[type]
                        + 2 * (size_t)task.most * sizeof(int32_t) + 15)
              / 16 * 16;
  if (!(alpha = amp__cuda_dense(c->in[6], type))
      || !(s = amp__cuda_scratch((size_t)task.each * (size_t)task.x.size[1]))) {
    amp__free(alpha);
    return AMP_E_MEMORY;
  }
  task.y = amp_arg_of(y);
  task.alpha = (char *)amp__data(alpha);
  task.grad = (const char *)amp__data(g);
  task.gdt = g->dtype;
  task.sgrad = g->stride[0];
  task.nll_in = (const char *)amp__data(nll);
  task.nlldt = nll->dtype;
  task.snll = nll->stride[0];
  task.scratch = (char *)amp__data(s);
  amp_by_float(type, [&](auto zero) {
    AMP_LAUNCH((backward<decltype(zero)>), amp_grid(task.x.size[1], 1), 256, 0, task);
    return 0;
  });
  amp__free(s);
  amp__free(alpha);
  return 0;
}
}
