/*
** reduce_arg.cu: reductions whose accumulator is more than one number: extremes
** with their index, variance, log-sum-exp; and equal.
**
** Indices count from 1; the first among equals wins, NaN wins over all. Variance
** joins means and squared deviations of eight elements at a time (Chan, Golub and
** LeVeque 1979), log-sum-exp maxima and sums of exponentials: one pass each.
*/
#include "reduce.cuh"

namespace {

/* -- Extremes with an index ----------------------------------------------------------- */

template <class T_> struct choosing {
  typedef T_ T;
  typedef struct { T v; int64_t at; } A; /* at < 0: none yet */
  enum { wide = 0 };
  int largest;
  __device__ __forceinline__ A start() const { A a = { (T)0, -1 }; return a; }
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
      if (k < m && (a.at < 0 || better(v[k], a.v))) { a.v = v[k]; a.at = at + (int64_t)k * step; }
  }
  __device__ __forceinline__ void store(const amp_red &p, int64_t at, A a) const
  {
    amp_store<int64_t>(p.out, p.odtype, at, a.at + 1);
    if (p.out2) amp_store<T>(p.out2, p.odtype2, at, a.v);
  }
};

/* -- Variance ---------------------------------------------------------------------------- */

template <class T_> struct moments {
  typedef T_ T;
  typedef struct { T n, mean, m2; } A;
  enum { wide = 0 };
  double correction;
  __device__ __forceinline__ A start() const { A a = { 0, 0, 0 }; return a; }
  __device__ __forceinline__ A join(A a, A b) const
  {
    if (a.n == 0) return b;
    if (b.n == 0) return a;
    T n = a.n + b.n, d = b.mean - a.mean, w = b.n / n;
    A r = { n, a.mean + d * w, a.m2 + b.m2 + d * d * a.n * w };
    return r;
  }
  template <int N> __device__ __forceinline__ void take(A &a, const T (&v)[N], int m, int64_t, int) const
  {
    A b = { (T)m, 0, 0 };
#pragma unroll
    for (int k = 0; k < N; k++) b.mean += k < m ? v[k] : (T)0;
    b.mean /= b.n;
#pragma unroll
    for (int k = 0; k < N; k++) { T d = v[k] - b.mean; b.m2 += k < m ? d * d : (T)0; }
    a = join(a, b);
  }
  __device__ __forceinline__ void store(const amp_red &p, int64_t at, A a) const
  {
    double left = (double)p.reduced - correction;
    amp_store<T>(p.out, p.odtype, at, (T)((double)a.m2 / (left > 0 ? left : 0)));
  }
};

/* -- log(sum of exp) ------------------------------------------------------------------------ */

/* s: the sum of exp(x - most), or of exp(x) where most is infinite */
template <class T_> struct log_sums {
  typedef T_ T;
  typedef struct { T most, s; } A;
  enum { wide = 0 };
  __device__ __forceinline__ T base(T most) const { return isinf(most) ? (T)0 : most; }
  __device__ __forceinline__ A start() const { A a = { (T)-INFINITY, 0 }; return a; }
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
  __device__ __forceinline__ void store(const amp_red &p, int64_t at, A a) const { amp_store<T>(p.out, p.odtype, at, log(a.s) + base(a.most)); }
};

/* -- Calls ------------------------------------------------------------------------------------ */

template <class T> static int choose(amp_red *p, bool largest)
{
  choosing<T> f = { largest };
  return amp_red_run(p, f);
}

/* values: of index's strides, or NULL */
static int search(const amp_tensor *t, amp_tensor *index, amp_tensor *values, uint32_t mask, bool largest)
{
  amp_red p;
  amp_red_plan_mask(&p, t, index, mask);
  if (p.outputs == 0) return 0;
  if (p.reduced == 0) return amp__fail(AMP_E_VALUE, "there is no extreme of 0 elements (shape %s)", amp__shape_str(t->ndim, t->size));
  if (values) {
    p.out2 = (char *)amp__data(values);
    p.odtype2 = values->dtype;
  }
  return t->dtype == AMP_FLOAT64 ? choose<double>(&p, largest) : amp__is_float(t->dtype) ? choose<float>(&p, largest) : choose<int64_t>(&p, largest);
}

static int extreme(amp_call *c, bool largest)
{
  amp_tensor *t = c->in[0], *values = c->out[0], *index = c->out[1], *v = values;
  if (c->a[0].i == AMP_NONE) {
    if (t->numel == 0 && values->numel > 0) return amp__fail(AMP_E_VALUE, "there is no extreme of 0 elements (shape %s)", amp__shape_str(t->ndim, t->size));
    return amp__cuda_extreme_of_all(c, largest);
  }
  if (memcmp(values->stride, index->stride, sizeof(int64_t) * index->ndim) != 0 && (v = amp__cuda_make(values->dtype, values->ndim, values->size)) == NULL) return AMP_E_MEMORY;
  int rc = search(t, index, v, 1u << c->a[0].i, largest);
  if (v != values) {
    if (rc == 0) rc = amp__cuda_copy_to(values, v);
    amp__free(v);
  }
  return rc;
}

static int arg(amp_call *c, bool largest)
{
  amp_tensor *t = c->in[0];
  if (c->a[0].i != AMP_NONE) return search(t, c->out[0], NULL, 1u << c->a[0].i, largest);
  /* over everything: a vector in C order */
  amp_tensor *flat = amp__cuda_dense(t, t->dtype);
  if (flat == NULL) return AMP_E_MEMORY;
  int64_t one = 1;
  amp_tensor *v = amp__tensor_view(flat, 1, &t->numel, &one, flat->offset), *o = v ? amp__tensor_view(c->out[0], 0, NULL, NULL, c->out[0]->offset) : NULL;
  int rc = o ? search(v, o, NULL, 1, largest) : AMP_E_MEMORY;
  amp__free(o);
  amp__free(v);
  amp__free(flat);
  return rc;
}

} // namespace

extern "C" {

int amp__cuda_max(amp_call *c) { return extreme(c, true); }
int amp__cuda_min(amp_call *c) { return extreme(c, false); }
int amp__cuda_argmax(amp_call *c) { return arg(c, true); }
int amp__cuda_argmin(amp_call *c) { return arg(c, false); }

int amp__cuda_var(amp_call *c)
{
  amp_red p;
  amp_red_plan_mask(&p, c->in[0], c->out[0], amp_red_mask(c->a));
  if (c->in[0]->dtype == AMP_FLOAT64) { moments<double> f = { c->a[9].f }; return amp_red_run(&p, f); }
  moments<float> f = { c->a[9].f };
  return amp_red_run(&p, f);
}

int amp__cuda_logsumexp(amp_call *c)
{
  amp_red p;
  amp_red_plan_mask(&p, c->in[0], c->out[0], amp_red_mask(c->a));
  if (c->in[0]->dtype == AMP_FLOAT64) { log_sums<double> f; return amp_red_run(&p, f); }
  log_sums<float> f;
  return amp_red_run(&p, f);
}

/* Not one pair differs; NaN differs from itself. */
int amp__cuda_equal(amp_call *c)
{
  amp_tensor *o = c->out[0];
  if (!amp__same_size(c->in[0], c->in[1])) return amp__cuda_fill_value(o, 0);
  if (c->in[0]->numel == 0) return amp__cuda_fill_value(o, 1);
  amp_slot all[AMP_MAX_SLOT];
  memset((void *)all, 0, sizeof all);
  all[0].i = AMP_NONE;
  amp_tensor *same = amp__cuda_op(AMP_OP_eq, c->in, 2, NULL), *yes = same ? amp__cuda_op(AMP_OP_all, &same, 1, all) : NULL;
  int rc = yes ? amp__cuda_copy_to(o, yes) : AMP_E_MEMORY;
  amp__free(yes);
  amp__free(same);
  return rc;
}

}
