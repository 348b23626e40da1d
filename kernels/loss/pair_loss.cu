/*
** pair_loss.cu: rows mse_loss, pair_loss and their backward rows: losses that are a
** function of one element of input and one of target.
**
** Each kind is two formulas of pair_formulas.h, the loss f(x, t) and its slope in x; p is the row's
** parameter (beta, delta, margin, eps). Unreduced losses and gradients go through
** the elementwise engine; reduced ones through one launch, whose blocks leave sums
** in double that the last block adds in a fixed order.
**
** In float32 a reduced loss moves 8 bytes an element, an unreduced one 12, a gradient 16. All of it is in registers;
** the sums of a block meet in shared memory. Memory's speed bounds the kinds without a logarithm.
*/
#include "elementwise/elementwise.cuh"
#include "common/math.cuh"
#include "common/rows.cuh"

namespace {

enum { MSE = KIND_COUNT, KINDS }; /* mse_loss beside the kinds of pair_loss */
static_assert(REDUCTION_COUNT == 4, "sums are left as they are or divided (mean); kl_div itself divides for batchmean");

/* -- Formulas ------------------------------------------------------------------------- */

AMP_FN soft(T x) { return x != x ? x : amp_softplus(x); }
AMP_FN sign_of(T d) { return d > 0 ? (T)1 : d < 0 ? (T)-1 : d; } /* 0 and NaN stay */
AMP_FN log_or(T l) { return l < -100 ? (T)-100 : l; }
AMP_FN logistic(T x, T m) { return (m == 0 ? (T)0 : m * x) + soft(x < 0 ? x : -x); }
AMP_FN at_least(T v, T low) { return v < low ? low : v; }

enum {
#define PAIR(kind, loss, slope) +1
  FORMULAS = 0
#include "loss/pair_formulas.h"
};
static_assert((int)FORMULAS == (int)KINDS, "a kind of the op table is not in pair_formulas.h");

#define CASE(kind, formula) \
  case kind: return formula;

AMP_FN loss(int kind, T x, T t, T p)
{
  T d = x - t, a = d < 0 ? -d : d;
  switch (kind) {
#define PAIR(kind, loss, slope) CASE(kind, loss)
#include "loss/pair_formulas.h"
  }
  AMP_NEVER();
}

AMP_FN slope(int kind, T x, T t, T p)
{
  T d = x - t, a = d < 0 ? -d : d;
  switch (kind) {
#define PAIR(kind, loss, slope) CASE(kind, slope)
#include "loss/pair_formulas.h"
  }
  AMP_NEVER();
}

AMP_FN checked(int kind, T x, T v, amp_trouble *trouble)
{
  if (kind == KIND_BCE_PROBS && (x < 0 || x > 1))
    amp_note(trouble, AMP_TROUBLE_PROBABILITY, AMP_OP_pair_loss, 0, 1, 0, (double)x);
  return v;
}

/* KIND -1: known at run time only */
template <int KIND> struct each {
  enum { flat = KIND >= 0 };
  int kind;
  double p;
  amp_trouble *trouble;
  template <class T> __device__ __forceinline__ T of(const T *a) const
  {
    int k = KIND < 0 ? kind : KIND;
    return checked(k, a[0], loss(k, a[0], a[1], (T)p), trouble);
  }
};
template <int KIND> struct back {
  enum { flat = KIND >= 0 };
  int kind;
  double p, scale;
  template <class T> __device__ __forceinline__ T of(const T *a) const
  {
    return (T)scale * a[0] * slope(KIND < 0 ? kind : KIND, a[1], a[2], (T)p);
  }
};

/* -- Sums --------------------------------------------------------------------------------- */

typedef struct job {
  amp_arg x, t;
  int32_t kind, alike, wide, odt;
  double p, scale;
  char *out;
  double *partial;
  unsigned *ticket;
  amp_trouble *trouble;
} job;

template <class T, int KIND> __global__ void __launch_bounds__(256, 4) sum_of(const job task)
{
  const int kind = KIND < 0 ? task.kind : KIND;
  double sum = 0;
  if (task.alike) {
    AMP_FOR(j, (task.x.numel + 7) / 8)
    {
      int64_t i = j * 8;
      if (task.wide && i + 8 <= task.x.numel) {
        T x[8], t[8], s = 0;
        amp_load_n<8>(x, task.x.p, task.x.dtype, i);
        amp_load_n<8>(t, task.t.p, task.t.dtype, i);
#pragma unroll
        for (int q = 0; q < 8; q++) s += checked(kind, x[q], loss(kind, x[q], t[q], (T)task.p), task.trouble);
        sum += (double)s;
      } else
        for (int64_t q = i; q < task.x.numel && q < i + 8; q++) {
          T x = amp_load<T>(task.x.p, task.x.dtype, q), t = amp_load<T>(task.t.p, task.t.dtype, q);
          sum += (double)checked(kind, x, loss(kind, x, t, (T)task.p), task.trouble);
        }
    }
  } else AMP_FOR(i, task.x.numel)
    {
      T x = amp_load<T>(task.x.p, task.x.dtype, amp_offset(task.x, i)),
        t = amp_load<T>(task.t.p, task.t.dtype, amp_offset(task.t, i));
      sum += (double)checked(kind, x, loss(kind, x, t, (T)task.p), task.trouble);
    }
  sum = amp_reduce_block<amp_sum>(sum, 0.0);
  if (threadIdx.x == 0) task.partial[blockIdx.x] = sum;
  if (!amp_last_block(task.ticket)) return;
  sum = 0;
  for (int i = threadIdx.x; i < (int)gridDim.x; i += blockDim.x) sum += task.partial[i];
  sum = amp_reduce_block<amp_sum>(sum, 0.0);
  if (threadIdx.x == 0) amp_store<double>(task.out, task.odt, 0, sum * task.scale);
}

/* -- Calls ---------------------------------------------------------------------------------- */

static bool wide(const amp_tensor *a, const amp_tensor *b)
{
  return a->dtype == AMP_FLOAT64 || b->dtype == AMP_FLOAT64;
}

template <template <int> class F, int NIN, class G>
static int elementwise(int kind, bool f64, amp_tensor *out, amp_tensor *const *in, G set)
{
#define ONE(T, K)                             \
  {                                           \
    F<K> f;                                   \
    memset((void *)&f, 0, sizeof f);          \
    set(f);                                   \
    return amp_ew_run<T, T, NIN>(out, in, f); \
  }
  if (f64) ONE(double, -1)
  switch (kind) {
  case MSE: ONE(float, MSE)
  case KIND_L1: ONE(float, KIND_L1)
  case KIND_SMOOTH_L1: ONE(float, KIND_SMOOTH_L1)
  case KIND_BCE: ONE(float, KIND_BCE)
  default: ONE(float, -1)
  }
#undef ONE
}

static int forward(amp_call *c, int64_t reduction, int kind, double p)
{
  amp_tensor *x = c->in[0], *t = c->in[1], *y = c->out[0];
  if (reduction == REDUCTION_NONE) {
    amp_trouble *trouble = amp_trouble_cell();
    return elementwise<each, 2>(kind, wide(x, t), y, c->in, [&](auto &f) {
      f.kind = kind;
      f.p = p;
      f.trouble = trouble;
    });
  }
  job task;
  memset((void *)&task, 0, sizeof task);
  task.x = amp_arg_of(x);
  task.t = amp_arg_of(t);
  task.kind = kind;
  task.alike = amp_alike(x, t);
  task.wide = amp_wide(task.x.p) && amp_wide(task.t.p);
  task.p = p;
  task.scale = reduction == REDUCTION_MEAN ? 1 / (double)x->numel : 1;
  if (x->numel == 0) task.scale = reduction == REDUCTION_MEAN ? NAN : 1;
  task.out = (char *)amp__data(y);
  task.odt = y->dtype;
  task.trouble = amp_trouble_cell();
  unsigned grid = amp_grid(x->numel, 256 * 16, 8);
  amp_tensor *s = amp__cuda_scratch(grid * sizeof(double));
  if (s == NULL || !(task.ticket = amp_ticket(amp__cuda_here()))) {
    amp__free(s);
    return AMP_E_MEMORY;
  }
  task.partial = (double *)amp__data(s);
  if (wide(x, t)) AMP_LAUNCH((sum_of<double, -1>), grid, 256, 0, task);
  else if (kind == MSE) AMP_LAUNCH((sum_of<float, MSE>), grid, 256, 0, task);
  else if (kind == KIND_L1) AMP_LAUNCH((sum_of<float, KIND_L1>), grid, 256, 0, task);
  else if (kind == KIND_SMOOTH_L1) AMP_LAUNCH((sum_of<float, KIND_SMOOTH_L1>), grid, 256, 0, task);
  else if (kind == KIND_BCE) AMP_LAUNCH((sum_of<float, KIND_BCE>), grid, 256, 0, task);
  else AMP_LAUNCH((sum_of<float, -1>), grid, 256, 0, task);
  amp__free(s);
  return 0;
}

/* grad input target */
static int backward(amp_call *c, int64_t reduction, int kind, double p)
{
  double scale = reduction == REDUCTION_MEAN ? 1 / (double)c->in[1]->numel : 1;
  return elementwise<back, 3>(kind, wide(c->in[1], c->in[2]), c->out[0], c->in, [&](auto &f) {
    f.kind = kind;
    f.p = p;
    f.scale = scale;
  });
}

/* -- Margins of many labels -------------------------------------------------------------------
** A row of target lists the row's labels, from 1, up to the first number under 1. A block takes a row: it
** marks the labels, then goes through them one after the other with all classes. */

typedef struct margin_job {
  amp_arg x, t, y, g; /* y: loss of each, or gradient; g: gradient of each or of the loss */
  int64_t rows, classes;
  int32_t reduction, op;
  uint8_t *is;        /* [rows][classes] */
  double *sums, *acc; /* [rows]; backward: [rows][classes] */
  amp_trouble *trouble;
} margin_job;

__device__ __forceinline__ int64_t place(const amp_arg &a, int64_t r, int64_t i)
{
  return (a.ndim > 1 ? r * a.stride[0] : 0) + i * a.stride[a.ndim - 1];
}

__global__ void __launch_bounds__(256) margins(const margin_job task)
{
  __shared__ long long end; /* of the row's labels */
  for (int64_t r = blockIdx.x; r < task.rows; r += gridDim.x) {
    uint8_t *is = task.is + r * task.classes;
    __syncthreads();
    if (threadIdx.x == 0) end = task.classes;
    for (int64_t i = threadIdx.x; i < task.classes; i += blockDim.x) {
      is[i] = 0;
      if (task.acc) task.acc[r * task.classes + i] = 0;
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < task.classes; i += blockDim.x)
      if (amp_load<int64_t>(task.t.p, task.t.dtype, place(task.t, r, i)) < 1) {
        atomicMin(&end, (long long)i);
        break;
      }
    __syncthreads();
    int64_t n = end;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      int64_t y = amp_load<int64_t>(task.t.p, task.t.dtype, place(task.t, r, i));
      if (y > task.classes) amp_note(task.trouble, AMP_TROUBLE_LABEL, task.op, y, task.classes, r);
      else is[y - 1] = 1;
    }
    __syncthreads();
    double sum = 0;
    for (int64_t j = 0; j < n; j++) {
      int64_t y = amp_load<int64_t>(task.t.p, task.t.dtype, place(task.t, r, j));
      if (y > task.classes) continue;
      double at = 1 - amp_load<double>(task.x.p, task.x.dtype, place(task.x, r, y - 1)), hits = 0;
      for (int64_t i = threadIdx.x; i < task.classes; i += blockDim.x) {
        double z = at + amp_load<double>(task.x.p, task.x.dtype, place(task.x, r, i));
        if (is[i] || z <= 0) continue; /* NaN goes on */
        sum += z;
        hits += 1;
        if (task.acc) task.acc[r * task.classes + i] += 1;
      }
      if (task.acc) {
        hits = amp_reduce_block<amp_sum>(hits, 0.0);
        if (threadIdx.x == 0) task.acc[r * task.classes + y - 1] -= hits; /* a label's cell belongs to one thread */
        __syncthreads();
      }
    }
    if (task.acc) {
      double q = amp_load<double>(task.g.p, task.g.dtype,
                                  task.reduction == REDUCTION_NONE && task.g.ndim ? r * task.g.stride[0] : 0)
                 / ((double)task.classes * (task.reduction == REDUCTION_MEAN ? (double)task.rows : 1));
      __syncthreads();
      for (int64_t i = threadIdx.x; i < task.classes; i += blockDim.x)
        amp_store<double>(task.y.p, task.y.dtype, place(task.y, r, i), q * task.acc[r * task.classes + i]);
    } else {
      sum = amp_reduce_block<amp_sum>(sum, 0.0) / (double)task.classes;
      if (threadIdx.x == 0) {
        task.sums[r] = sum;
        if (task.reduction == REDUCTION_NONE)
          amp_store<double>(task.y.p, task.y.dtype, task.y.ndim ? r * task.y.stride[0] : 0, sum);
      }
    }
  }
}

__global__ void __launch_bounds__(1024) add_rows(const double *v, int64_t n, double scale, char *out, int dtype)
{
  double s = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) s += v[i];
  s = amp_reduce_block<amp_sum>(s, 0.0);
  if (threadIdx.x == 0) amp_store<double>(out, dtype, 0, s * scale);
}

static int margin(amp_call *c, int64_t reduction, const amp_tensor *x, const amp_tensor *t, const amp_tensor *g)
{
  margin_job task;
  amp_tensor *y = c->out[0];
  memset((void *)&task, 0, sizeof task);
  task.x = amp_arg_of(x);
  task.t = amp_arg_of(t);
  task.y = amp_arg_of(y);
  task.g = amp_arg_of(g);
  task.classes = x->size[x->ndim - 1];
  task.rows = x->ndim > 1 ? x->size[0] : 1;
  task.reduction = (int32_t)reduction;
  task.op = c->id;
  task.trouble = amp_trouble_cell();
  size_t cells = (size_t)task.rows * (size_t)task.classes, sums = (g ? cells : (size_t)task.rows) * sizeof(double);
  amp_tensor *s = amp__cuda_scratch(sums + cells);
  if (s == NULL) return AMP_E_MEMORY;
  *(g ? &task.acc : &task.sums) = (double *)amp__data(s);
  task.is = (uint8_t *)amp__data(s) + sums;
  if (task.rows > 0) AMP_LAUNCH(margins, amp_grid(task.rows, 1), 256, 0, task);
  if (g == NULL && task.reduction != REDUCTION_NONE)
    AMP_LAUNCH(add_rows, 1, 1024, 0, task.sums, task.rows,
               task.reduction == REDUCTION_MEAN ? (task.rows ? 1 / (double)task.rows : NAN) : 1.0, (char *)amp__data(y),
               (int)y->dtype);
  amp__free(s);
  return 0;
}

} // namespace

extern "C" {
int amp__cuda_mse_loss(amp_call *c) { return forward(c, AMP_ARGS(c, mse_loss)->reduction, MSE, 0); }
int amp__cuda_mse_loss_backward(amp_call *c) { return backward(c, AMP_ARGS(c, mse_loss_backward)->reduction, MSE, 0); }
int amp__cuda_pair_loss(amp_call *c)
{
  const args_pair_loss *args = AMP_ARGS(c, pair_loss);
  return forward(c, args->reduction, (int)args->kind, args->p);
}
int amp__cuda_pair_loss_backward(amp_call *c)
{
  const args_pair_loss_backward *args = AMP_ARGS(c, pair_loss_backward);
  return backward(c, args->reduction, (int)args->kind, args->p);
}
int amp__cuda_multilabel_margin_loss(amp_call *c)
{
  return margin(c, AMP_ARGS(c, multilabel_margin_loss)->reduction, c->in[0], c->in[1], NULL);
}
int amp__cuda_multilabel_margin_loss_backward(amp_call *c)
{
  return margin(c, AMP_ARGS(c, multilabel_margin_loss_backward)->reduction, c->in[1], c->in[2], c->in[0]);
}
}
