/*
** loss_pair.cu: rows mse_loss, pair_loss and their backward rows: losses that are a
** function of one element of input and one of target.
**
** Each kind is two formulas, the loss f(x, t) and its slope in x; p is the row's
** parameter (beta, delta, margin, eps). Unreduced losses and gradients go through
** the elementwise engine; reduced ones through one launch, whose blocks leave sums
** in double that the last block adds in a fixed order.
*/
#include "elementwise.cuh"
#include "math.cuh"
#include "rows.cuh"

namespace {

enum { NONE, MEAN, SUM };
enum { L1, SMOOTH_L1, HUBER, KL, KL_LOG, BCE, SOFT_MARGIN, HINGE, POISSON, POISSON_LOG, BCE_PROBS, MSE };

/* -- Formulas ------------------------------------------------------------------------- */

AMP_FN soft(T x) { return x != x ? x : amp_softplus(x); }
AMP_FN sign_of(T d) { return d > 0 ? (T)1 : d < 0 ? (T)-1 : d; } /* 0 and NaN stay */
AMP_FN log_or(T l) { return l < -100 ? (T)-100 : l; }

AMP_FN loss(int kind, T x, T t, T p)
{
  T d = x - t, a = d < 0 ? -d : d;
  switch (kind) {
  case L1: return a;
  case SMOOTH_L1: return a < p ? d * d / (2 * p) : a - p / 2;
  case HUBER: return a > p ? p * (a - p / 2) : d * d / 2;
  case KL: return (t == 0 ? (T)0 : t * log(t)) - t * x;
  case KL_LOG: return exp(t) * (t - x);
  case BCE: return (1 - t) * x + soft(-x);
  case SOFT_MARGIN: return soft(-t * x);
  case HINGE: return (t != -1 ? x : (T)0) + (t != 1 ? (p - x < 0 ? (T)0 : p - x) : (T)0);
  case POISSON: return x - t * log(x + p);
  case POISSON_LOG: return exp(x) - t * x;
  case BCE_PROBS: return -(t * log_or(log(x)) + (1 - t) * log_or(log1p(-x)));
  default: return d * d;
  }
}

AMP_FN slope(int kind, T x, T t, T p)
{
  T d = x - t, a = d < 0 ? -d : d;
  switch (kind) {
  case L1: return sign_of(d);
  case SMOOTH_L1: return a < p ? d / p : sign_of(d);
  case HUBER: return d > p ? p : d < -p ? -p : d;
  case KL: return -t;
  case KL_LOG: return -exp(t);
  case BCE: return amp_sigmoid(x) - t;
  case SOFT_MARGIN: return -t * amp_sigmoid(-t * x);
  case HINGE: return (t != -1 ? (T)1 : (T)0) - (t != 1 && p - x > 0 ? (T)1 : (T)0);
  case POISSON: return 1 - t / (x + p);
  case POISSON_LOG: return exp(x) - t;
  case BCE_PROBS: { T v = x * (1 - x); return d / (v < p ? p : v); }
  default: return 2 * d;
  }
}

AMP_FN checked(int kind, T x, T v, amp_trouble *trouble)
{
  if (kind == BCE_PROBS && (x < 0 || x > 1)) amp_note(trouble, AMP_TROUBLE_PROBABILITY, AMP_OP_pair_loss, 0, 1, 0, (double)x);
  return v;
}

/* KIND -1: known at run time only */
template <int KIND> struct each { enum { flat = KIND >= 0 }; int kind; double p; amp_trouble *trouble;
  template <class T> __device__ __forceinline__ T of(const T *a) const { int k = KIND < 0 ? kind : KIND; return checked(k, a[0], loss(k, a[0], a[1], (T)p), trouble); } };
template <int KIND> struct back { enum { flat = KIND >= 0 }; int kind; double p, scale;
  template <class T> __device__ __forceinline__ T of(const T *a) const { return (T)scale * a[0] * slope(KIND < 0 ? kind : KIND, a[1], a[2], (T)p); } };

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

template <class T, int KIND> __global__ void __launch_bounds__(256, 4) sum_of(const job k)
{
  const int kind = KIND < 0 ? k.kind : KIND;
  double sum = 0;
  if (k.alike) {
    AMP_FOR(j, (k.x.numel + 7) / 8) {
      int64_t i = j * 8;
      if (k.wide && i + 8 <= k.x.numel) {
        T x[8], t[8], s = 0;
        amp_load_n<8>(x, k.x.p, k.x.dtype, i);
        amp_load_n<8>(t, k.t.p, k.t.dtype, i);
#pragma unroll
        for (int q = 0; q < 8; q++) s += checked(kind, x[q], loss(kind, x[q], t[q], (T)k.p), k.trouble);
        sum += (double)s;
      } else
        for (int64_t q = i; q < k.x.numel && q < i + 8; q++) {
          T x = amp_load<T>(k.x.p, k.x.dtype, q), t = amp_load<T>(k.t.p, k.t.dtype, q);
          sum += (double)checked(kind, x, loss(kind, x, t, (T)k.p), k.trouble);
        }
    }
  } else
    AMP_FOR(i, k.x.numel) {
      T x = amp_load<T>(k.x.p, k.x.dtype, amp_offset(k.x, i)), t = amp_load<T>(k.t.p, k.t.dtype, amp_offset(k.t, i));
      sum += (double)checked(kind, x, loss(kind, x, t, (T)k.p), k.trouble);
    }
  sum = amp_reduce_block<amp_sum>(sum, 0.0);
  if (threadIdx.x == 0) k.partial[blockIdx.x] = sum;
  if (!amp_last_block(k.ticket)) return;
  sum = 0;
  for (int i = threadIdx.x; i < (int)gridDim.x; i += blockDim.x) sum += k.partial[i];
  sum = amp_reduce_block<amp_sum>(sum, 0.0);
  if (threadIdx.x == 0) amp_store<double>(k.out, k.odt, 0, sum * k.scale);
}

/* -- Calls ---------------------------------------------------------------------------------- */

static bool wide(const amp_tensor *a, const amp_tensor *b) { return a->dtype == AMP_FLOAT64 || b->dtype == AMP_FLOAT64; }

template <template <int> class F, int NIN, class G> static int elementwise(int kind, bool f64, amp_tensor *out, amp_tensor *const *in, G set)
{
#define ONE(T, K) { F<K> f; memset((void *)&f, 0, sizeof f); set(f); return amp_ew_run<T, T, NIN>(out, in, f); }
  if (f64) ONE(double, -1)
  switch (kind) {
  case MSE: ONE(float, MSE)
  case L1: ONE(float, L1)
  case SMOOTH_L1: ONE(float, SMOOTH_L1)
  case BCE: ONE(float, BCE)
  default: ONE(float, -1)
  }
#undef ONE
}

static int forward(amp_call *c, int kind, double p)
{
  amp_tensor *x = c->in[0], *t = c->in[1], *y = c->out[0];
  if (c->a[0].i == NONE) {
    amp_trouble *trouble = amp_trouble_cell();
    return elementwise<each, 2>(kind, wide(x, t), y, c->in, [&](auto &f) { f.kind = kind; f.p = p; f.trouble = trouble; });
  }
  job k;
  memset((void *)&k, 0, sizeof k);
  k.x = amp_arg_of(x);
  k.t = amp_arg_of(t);
  k.kind = kind;
  k.alike = amp_alike(x, t);
  k.wide = amp_wide(k.x.p) && amp_wide(k.t.p);
  k.p = p;
  k.scale = c->a[0].i == MEAN ? 1 / (double)x->numel : 1;
  if (x->numel == 0) k.scale = c->a[0].i == MEAN ? NAN : 1;
  k.out = (char *)amp__data(y);
  k.odt = y->dtype;
  k.trouble = amp_trouble_cell();
  unsigned grid = amp_grid(x->numel, 256 * 16, 8);
  amp_tensor *s = amp__cuda_scratch(grid * sizeof(double));
  if (s == NULL || !(k.ticket = amp_ticket(amp__cuda_here()))) { amp__free(s); return AMP_E_MEMORY; }
  k.partial = (double *)amp__data(s);
  if (wide(x, t)) AMP_LAUNCH((sum_of<double, -1>), grid, 256, 0, k);
  else if (kind == MSE) AMP_LAUNCH((sum_of<float, MSE>), grid, 256, 0, k);
  else if (kind == L1) AMP_LAUNCH((sum_of<float, L1>), grid, 256, 0, k);
  else if (kind == SMOOTH_L1) AMP_LAUNCH((sum_of<float, SMOOTH_L1>), grid, 256, 0, k);
  else if (kind == BCE) AMP_LAUNCH((sum_of<float, BCE>), grid, 256, 0, k);
  else AMP_LAUNCH((sum_of<float, -1>), grid, 256, 0, k);
  amp__free(s);
  return 0;
}

/* grad input target */
static int backward(amp_call *c, int kind, double p)
{
  double scale = c->a[0].i == MEAN ? 1 / (double)c->in[1]->numel : 1;
  return elementwise<back, 3>(kind, wide(c->in[1], c->in[2]), c->out[0], c->in, [&](auto &f) { f.kind = kind; f.p = p; f.scale = scale; });
}

/* -- Margins of many labels -------------------------------------------------------------------
** A row of target lists the row's labels, from 1, up to the first number under 1. A block takes a row: it
** marks the labels, then goes through them one after the other with all classes. */

typedef struct margin_job {
  amp_arg x, t, y, g;                 /* y: loss of each, or gradient; g: gradient of each or of the loss */
  int64_t rows, classes;
  int32_t reduction, op;
  uint8_t *is;                        /* [rows][classes] */
  double *sums, *acc;                 /* [rows]; backward: [rows][classes] */
  amp_trouble *trouble;
} margin_job;

__device__ __forceinline__ int64_t place(const amp_arg &a, int64_t r, int64_t i) { return (a.ndim > 1 ? r * a.stride[0] : 0) + i * a.stride[a.ndim - 1]; }

__global__ void __launch_bounds__(256) margins(const margin_job k)
{
  __shared__ long long end; /* of the row's labels */
  for (int64_t r = blockIdx.x; r < k.rows; r += gridDim.x) {
    uint8_t *is = k.is + r * k.classes;
    __syncthreads();
    if (threadIdx.x == 0) end = k.classes;
    for (int64_t i = threadIdx.x; i < k.classes; i += blockDim.x) { is[i] = 0; if (k.acc) k.acc[r * k.classes + i] = 0; }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < k.classes; i += blockDim.x)
      if (amp_load<int64_t>(k.t.p, k.t.dtype, place(k.t, r, i)) < 1) { atomicMin(&end, (long long)i); break; }
    __syncthreads();
    int64_t n = end;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      int64_t y = amp_load<int64_t>(k.t.p, k.t.dtype, place(k.t, r, i));
      if (y > k.classes) amp_note(k.trouble, AMP_TROUBLE_LABEL, k.op, y, k.classes, r);
      else is[y - 1] = 1;
    }
    __syncthreads();
    double sum = 0;
    for (int64_t j = 0; j < n; j++) {
      int64_t y = amp_load<int64_t>(k.t.p, k.t.dtype, place(k.t, r, j));
      if (y > k.classes) continue;
      double at = 1 - amp_load<double>(k.x.p, k.x.dtype, place(k.x, r, y - 1)), hits = 0;
      for (int64_t i = threadIdx.x; i < k.classes; i += blockDim.x) {
        double z = at + amp_load<double>(k.x.p, k.x.dtype, place(k.x, r, i));
        if (is[i] || z <= 0) continue; /* NaN goes on */
        sum += z;
        hits += 1;
        if (k.acc) k.acc[r * k.classes + i] += 1;
      }
      if (k.acc) {
        hits = amp_reduce_block<amp_sum>(hits, 0.0);
        if (threadIdx.x == 0) k.acc[r * k.classes + y - 1] -= hits; /* a label's cell is nobody else's */
        __syncthreads();
      }
    }
    if (k.acc) {
      double q = amp_load<double>(k.g.p, k.g.dtype, k.reduction == NONE && k.g.ndim ? r * k.g.stride[0] : 0) / ((double)k.classes * (k.reduction == MEAN ? (double)k.rows : 1));
      __syncthreads();
      for (int64_t i = threadIdx.x; i < k.classes; i += blockDim.x) amp_store<double>(k.y.p, k.y.dtype, place(k.y, r, i), q * k.acc[r * k.classes + i]);
    } else {
      sum = amp_reduce_block<amp_sum>(sum, 0.0) / (double)k.classes;
      if (threadIdx.x == 0) {
        k.sums[r] = sum;
        if (k.reduction == NONE) amp_store<double>(k.y.p, k.y.dtype, k.y.ndim ? r * k.y.stride[0] : 0, sum);
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

static int margin(amp_call *c, const amp_tensor *x, const amp_tensor *t, const amp_tensor *g)
{
  margin_job k;
  amp_tensor *y = c->out[0];
  memset((void *)&k, 0, sizeof k);
  k.x = amp_arg_of(x);
  k.t = amp_arg_of(t);
  k.y = amp_arg_of(y);
  k.g = amp_arg_of(g);
  k.classes = x->size[x->ndim - 1];
  k.rows = x->ndim > 1 ? x->size[0] : 1;
  k.reduction = (int32_t)c->a[0].i;
  k.op = c->id;
  k.trouble = amp_trouble_cell();
  size_t cells = (size_t)k.rows * (size_t)k.classes, sums = (g ? cells : (size_t)k.rows) * sizeof(double);
  amp_tensor *s = amp__cuda_scratch(sums + cells);
  if (s == NULL) return AMP_E_MEMORY;
  *(g ? &k.acc : &k.sums) = (double *)amp__data(s);
  k.is = (uint8_t *)amp__data(s) + sums;
  if (k.rows > 0) AMP_LAUNCH(margins, amp_grid(k.rows, 1), 256, 0, k);
  if (g == NULL && k.reduction != NONE)
    AMP_LAUNCH(add_rows, 1, 1024, 0, k.sums, k.rows, k.reduction == MEAN ? (k.rows ? 1 / (double)k.rows : NAN) : 1.0, (char *)amp__data(y), (int)y->dtype);
  amp__free(s);
  return 0;
}

} // namespace

extern "C" {
int amp__cuda_mse_loss(amp_call *c) { return forward(c, MSE, 0); }
int amp__cuda_mse_loss_backward(amp_call *c) { return backward(c, MSE, 0); }
int amp__cuda_pair_loss(amp_call *c) { return forward(c, (int)c->a[1].i, c->a[2].f); }
int amp__cuda_pair_loss_backward(amp_call *c) { return backward(c, (int)c->a[1].i, c->a[2].f); }
int amp__cuda_multilabel_margin_loss(amp_call *c) { return margin(c, c->in[0], c->in[1], NULL); }
int amp__cuda_multilabel_margin_loss_backward(amp_call *c) { return margin(c, c->in[1], c->in[2], c->in[0]); }
}
