/*
** reduce_arg.cu: reductions whose accumulator is more than one number: extremes
** with their index, variance, log-sum-exp; and equal.
**
** Indices count from 1; the first among equals wins, NaN wins over all. Variance
** joins means and squared deviations of eight elements at a time (Chan, Golub and
** LeVeque 1979), log-sum-exp maxima and sums of exponentials: one pass each.
**
** An element is read once (4 bytes in float32); accumulators stay in registers and meet as in reduce.cuh. Memory's
** speed bounds all but log-sum-exp in double.
*/
#include "elementwise/elementwise.cuh"
#include "reduce/reduce.cuh"

namespace {

/* -- Extremes with an index ----------------------------------------------------------- */

template <class T_> struct choosing {
  typedef T_ T;
  typedef struct {
    T v;
    int64_t at;
  } A; /* at < 0: none yet */
  enum { wide = 0 };
  int largest;
  __device__ __forceinline__ A start() const
  {
    A a = { (T)0, -1 };
    return a;
  }
  __device__ __forceinline__ bool better(T x, T y) const { return (largest ? x > y : x < y) || (x != x && y == y); }
  __device__ __forceinline__ A join(A a, A b) const
  {
    if (a.at < 0) return b;
    if (b.at < 0) return a;
    if (better(b.v, a.v)) return b;
    return better(a.v, b.v) || a.at < b.at ? a : b;
  }
  template <int N> __device__ __forceinline__ void take(A &a, const T (&v)[N], int m, int64_t at, int step) const
  {
#pragma unroll
    for (int k = 0; k < N; k++)
      if (k < m && (a.at < 0 || better(v[k], a.v))) {
        a.v = v[k];
        a.at = at + (int64_t)k * step;
      }
  }
  __device__ __forceinline__ void store(const amp_red &plan, int64_t at, A a) const
  {
    amp_store<int64_t>(plan.out, plan.out_dtype, at, a.at + 1);
    if (plan.out2) amp_store<T>(plan.out2, plan.out2_dtype, at, a.v);
  }
};

/* -- Variance ---------------------------------------------------------------------------- */

/* base: an element, from which the mean is counted: an offset that all share is gone before anything is rounded */
enum { VARIANCE, DEVIATION, CENTRE };
template <class T_> struct moments {
  typedef T_ T;
  typedef struct {
    T n, base, mean, m2;
  } A;
  enum { wide = 0 };
  double correction;
  int what;
  __device__ __forceinline__ A start() const
  {
    A a = { 0, 0, 0, 0 };
    return a;
  }
  __device__ __forceinline__ A join(A a, A b) const
  {
    if (a.n == 0) return b;
    if (b.n == 0) return a;
    T n = a.n + b.n, d = (b.base - a.base) + (b.mean - a.mean), w = b.n / n;
    A r = { n, a.base, a.mean + d * w, a.m2 + b.m2 + d * d * a.n * w };
    return r;
  }
  template <int N> __device__ __forceinline__ void take(A &a, const T (&v)[N], int m, int64_t, int) const
  {
    A b = { (T)m, v[0], 0, 0 };
#pragma unroll
    for (int k = 1; k < N; k++) b.mean += k < m ? v[k] - b.base : (T)0;
    b.mean /= b.n;
#pragma unroll
    for (int k = 0; k < N; k++) {
      T d = (v[k] - b.base) - b.mean;
      b.m2 += k < m ? d * d : (T)0;
    }
    a = join(a, b);
  }
  __device__ __forceinline__ void store(const amp_red &plan, int64_t at, A a) const
  {
    double left = (double)plan.reduced - correction, v = (double)a.m2 / (left > 0 ? left : 0);
    if (what == CENTRE) amp_store<double>(plan.out, plan.out_dtype, at, (double)a.base + (double)a.mean);
    else amp_store<double>(plan.out, plan.out_dtype, at, what == DEVIATION ? sqrt(v) : v);
  }
};

/* -- log(sum of exp) ------------------------------------------------------------------------ */

/* s: the sum of exp(x - most), or of exp(x) where most is infinite */
template <class T_> struct log_sums {
  typedef T_ T;
  typedef struct {
    T most, s;
  } A;
  enum { wide = 0 };
  __device__ __forceinline__ T base(T most) const { return isinf(most) ? (T)0 : most; }
  __device__ __forceinline__ A start() const
  {
    A a = { (T)-INFINITY, 0 };
    return a;
  }
  __device__ __forceinline__ A join(A a, A b) const
  {
    T m = a.most > b.most ? a.most : b.most, c = base(m);
    A r = { m, (a.s == 0 ? (T)0 : a.s * exp(base(a.most) - c)) + (b.s == 0 ? (T)0 : b.s * exp(base(b.most) - c)) };
    return r;
  }
  template <int N> __device__ __forceinline__ void take(A &a, const T (&v)[N], int m, int64_t, int) const
  {
    A b = start();
#pragma unroll
    for (int k = 0; k < N; k++)
      if (k < m && v[k] > b.most) b.most = v[k];
    T c = base(b.most);
#pragma unroll
    for (int k = 0; k < N; k++) b.s += k < m ? exp(v[k] - c) : (T)0;
    a = join(a, b);
  }
  __device__ __forceinline__ void store(const amp_red &plan, int64_t at, A a) const
  {
    amp_store<T>(plan.out, plan.out_dtype, at, log(a.s) + base(a.most));
  }
};

/* -- Calls ------------------------------------------------------------------------------------ */

template <class T> static int choose(amp_red *plan, bool largest)
{
  choosing<T> f = { largest };
  return amp_red_run(plan, f);
}

/* values: of index's strides, or NULL */
static int search(const amp_tensor *t, amp_tensor *index, amp_tensor *values, uint32_t mask, bool largest)
{
  amp_red plan;
  amp_red_plan_mask(&plan, t, index, mask);
  if (plan.outputs == 0) return 0;
  if (plan.reduced == 0)
    return amp__fail(AMP_E_VALUE, "there is no extreme of 0 elements (shape %s)", amp__shape_str(t->ndim, t->size));
  if (values) {
    plan.out2 = (char *)amp__data(values);
    plan.out2_dtype = values->dtype;
  }
  return t->dtype == AMP_FLOAT64   ? choose<double>(&plan, largest)
         : amp__is_float(t->dtype) ? choose<float>(&plan, largest)
                                   : choose<int64_t>(&plan, largest);
}

static int extreme(amp_call *c, const int64_t &dim, bool largest)
{
  amp_tensor *t = c->in[0], *values = c->out[0], *index = c->out[1], *v = values;
  if (!AMP_GIVEN(dim)) {
    if (t->numel == 0 && values->numel > 0)
      return amp__fail(AMP_E_VALUE, "there is no extreme of 0 elements (shape %s)", amp__shape_str(t->ndim, t->size));
    return amp__cuda_extreme_of_all(c, largest);
  }
  if (memcmp(values->stride, index->stride, sizeof(int64_t) * index->ndim) != 0
      && (v = amp__cuda_make(values->dtype, values->ndim, values->size)) == NULL)
    return AMP_E_MEMORY;
  int rc = search(t, index, v, 1u << dim, largest);
  if (v != values) {
    if (rc == 0) rc = amp__cuda_copy_to(values, v);
    amp__free(v);
  }
  return rc;
}

static int arg(amp_call *c, const int64_t &dim, bool largest)
{
  amp_tensor *t = c->in[0];
  if (AMP_GIVEN(dim)) return search(t, c->out[0], NULL, 1u << dim, largest);
  /* over everything: a vector in C order */
  amp_tensor *flat = amp__cuda_dense(t, t->dtype);
  if (flat == NULL) return AMP_E_MEMORY;
  int64_t one = 1;
  amp_tensor *v = amp__tensor_view(flat, 1, &t->numel, &one, flat->offset),
             *o = v ? amp__tensor_view(c->out[0], 0, NULL, NULL, c->out[0]->offset) : NULL;
  int rc = o ? search(v, o, NULL, 1, largest) : AMP_E_MEMORY;
  amp__free(o);
  amp__free(v);
  amp__free(flat);
  return rc;
}

/* x (, mean's halves), g; the mean in two numbers of float32 */
struct centred {
  enum { flat = 1 };
  __device__ __forceinline__ double of(const double *a) const { return (a[0] - a[1]) * a[2]; }
  __device__ __forceinline__ float of(const float *a) const { return ((a[0] - a[1]) - a[2]) * a[3]; }
};
struct upper_half {
  enum { flat = 0 };
  __device__ __forceinline__ double of(const double *a) const { return (double)(float)a[0]; }
};
struct lower_half {
  enum { flat = 0 };
  __device__ __forceinline__ double of(const double *a) const { return a[0] - (double)(float)a[0]; }
};

} // namespace

extern "C" {

int amp__cuda_max(amp_call *c) { return extreme(c, AMP_ARGS(c, max)->dim, true); }
int amp__cuda_min(amp_call *c) { return extreme(c, AMP_ARGS(c, min)->dim, false); }
int amp__cuda_argmax(amp_call *c) { return arg(c, AMP_ARGS(c, argmax)->dim, true); }
int amp__cuda_argmin(amp_call *c) { return arg(c, AMP_ARGS(c, argmin)->dim, false); }

int amp__cuda_var(amp_call *c)
{
  const args_var *args = AMP_ARGS(c, var);
  amp_red plan;
  amp_red_plan_mask(&plan, c->in[0], c->out[0], amp_red_mask(args->dim));
  if (c->in[0]->dtype == AMP_FLOAT64) {
    moments<double> f = { args->correction, VARIANCE };
    return amp_red_run(&plan, f);
  }
  moments<float> f = { args->correction, VARIANCE };
  return amp_red_run(&plan, f);
}

/* In double: squares of float32 may leave its range where their root does not */
int amp__cuda_std(amp_call *c)
{
  const args_std *args = AMP_ARGS(c, std);
  amp_red plan;
  amp_red_plan_mask(&plan, c->in[0], c->out[0], amp_red_mask(args->dim));
  moments<double> f = { args->correction, DEVIATION };
  return amp_red_run(&plan, f);
}

/* g (x - mean): the mean in double, then elements in the computing type about its two halves */
int amp__cuda_var_backward(amp_call *c) /* grad input; dim */
{
  amp_tensor *g = c->in[0], *x = c->in[1], *mean = NULL, *high = NULL, *low = NULL, *in[4];
  uint32_t mask = amp_red_mask(AMP_ARGS(c, var_backward)->dim) & ((1u << x->ndim) - 1);
  int64_t size[AMP_MAX_DIM];
  int rc = AMP_E_MEMORY;
  const bool wide = x->dtype == AMP_FLOAT64;
  amp_red plan;
  for (int i = 0; i < x->ndim; i++) size[i] = mask >> i & 1 ? 1 : x->size[i];
  if (!(mean = amp__cuda_make(AMP_FLOAT64, x->ndim, size))) goto out;
  amp_red_plan_mask(&plan, x, mean, mask);
  if (wide) {
    moments<double> f = { 0, CENTRE };
    if ((rc = amp_red_run(&plan, f)) == 0) {
      in[0] = x, in[1] = mean, in[2] = g;
      rc = amp_ew_run<double, double, 3>(c->out[0], in, centred());
    }
    goto out;
  } else {
    moments<float> f = { 0, CENTRE };
    if ((rc = amp_red_run(&plan, f)) < 0) goto out;
  }
  rc = AMP_E_MEMORY;
  if (!(high = amp__cuda_make(AMP_FLOAT32, x->ndim, size)) || !(low = amp__cuda_make(AMP_FLOAT32, x->ndim, size)))
    goto out;
  if ((rc = amp_ew_run<double, double, 1>(high, &mean, upper_half())) < 0
      || (rc = amp_ew_run<double, double, 1>(low, &mean, lower_half())) < 0)
    goto out;
  in[0] = x, in[1] = high, in[2] = low, in[3] = g;
  rc = amp_ew_run<float, float, 4>(c->out[0], in, centred());
out:
  amp__free(mean);
  amp__free(high);
  amp__free(low);
  return rc;
}

int amp__cuda_logsumexp(amp_call *c)
{
  amp_red plan;
  amp_red_plan_mask(&plan, c->in[0], c->out[0], amp_red_mask(AMP_ARGS(c, logsumexp)->dim));
  if (c->in[0]->dtype == AMP_FLOAT64) {
    log_sums<double> f;
    return amp_red_run(&plan, f);
  }
  log_sums<float> f;
  return amp_red_run(&plan, f);
}

/* Not one pair differs; NaN differs from itself. */
int amp__cuda_equal(amp_call *c)
{
  amp_tensor *o = c->out[0];
  if (!amp__same_size(c->in[0], c->in[1])) return amp__cuda_fill_value(o, 0);
  if (c->in[0]->numel == 0) return amp__cuda_fill_value(o, 1);
  amp_slot all[AMP_MAX_SLOT];
  memset((void *)all, 0, sizeof all);
  ((args_all *)all)->dim.n = AMP_NONE;
  amp_tensor *same = amp__cuda_op(AMP_OP_eq, c->in, 2, NULL),
             *yes = same ? amp__cuda_op(AMP_OP_all, &same, 1, all) : NULL;
  int rc = yes ? amp__cuda_copy_to(o, yes) : AMP_E_MEMORY;
  amp__free(yes);
  amp__free(same);
  return rc;
}
}
