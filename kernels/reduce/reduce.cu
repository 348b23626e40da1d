/*
** reduce.cu: sums, means, products, extremes, truth and norms over dimensions.
**
** Sums of floats go eight at a time into a double, so they are as good as their
** rounding at the end; products run in double throughout. Everything but sums
** shares one functor, whose formula is chosen at run time.
**
** An element is read once (4 bytes in float32, 2 in 16 bits). A thread's sums stay in registers, those of a block
** meet by shuffles and in shared memory (reduce.cuh). Memory's speed bounds large reductions, the launch small ones.
*/
#include "reduce/reduce.cuh"

namespace {

enum { STORE, MEAN, ROOT, POWER };
enum {
#define FOLD(op, start, join, weigh) op,
#include "reduce/fold_formulas.h"
};

template <class T> __device__ __forceinline__ T plus(T a, T b) { return a + b; }
__device__ __forceinline__ int64_t plus(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
template <class T> __device__ __forceinline__ T times(T a, T b) { return a * b; }
__device__ __forceinline__ int64_t times(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
/* a NaN is taken and then kept: nothing is greater than it */
template <class T> __device__ __forceinline__ T most(T a, T b) { return b > a || b != b ? b : a; }
template <class T> __device__ __forceinline__ T least(T a, T b) { return b < a || b != b ? b : a; }
template <class T> __device__ __forceinline__ T lowest() { return (T)-INFINITY; }
template <> __device__ __forceinline__ int64_t lowest<int64_t>() { return INT64_MIN; }
template <class T> __device__ __forceinline__ T highest() { return (T)INFINITY; }
template <> __device__ __forceinline__ int64_t highest<int64_t>() { return INT64_MAX; }

/* -- Sums ---------------------------------------------------------------------------- */

template <class T_, class A_> struct adding {
  typedef T_ T;
  typedef A_ A;
  enum { wide = sizeof(T) == 4 };
  int finish;
  __device__ __forceinline__ A start() const { return 0; }
  __device__ __forceinline__ A join(A a, A b) const { return plus(a, b); }
  template <int N>
  __device__ __forceinline__ void take(A &a, const T (&v)[N], int, int64_t,
                                       int) const /* those that are not there are 0 */
  {
    T s[N];
#pragma unroll
    for (int k = 0; k < N; k++) s[k] = v[k];
#pragma unroll
    for (int w = N / 2; w > 0; w /= 2) {
#pragma unroll
      for (int k = 0; k < w; k++) s[k] = plus(s[k], s[k + w]);
    }
    a = plus(a, (A)s[0]);
  }
  __device__ __forceinline__ void store(const amp_red &plan, int64_t at, A a) const
  {
    amp_store<A>(plan.out, plan.out_dtype, at, finish == MEAN ? a / (A)plan.reduced : a);
  }
};

#define CASE(op, formula) \
  case op: return formula;

/* -- The others ------------------------------------------------------------------------- */

template <class T_, class A_> struct folding {
  typedef T_ T;
  typedef A_ A;
  enum { wide = 0 };
  int op, finish;
  double power;
  __device__ A start() const
  {
    switch (op) {
#define FOLD(op, start, join, weigh) CASE(op, start)
#include "reduce/fold_formulas.h"
    }
    AMP_NEVER();
  }
  __device__ A join(A a, A b) const
  {
    switch (op) {
#define FOLD(op, start, join, weigh) CASE(op, join)
#include "reduce/fold_formulas.h"
    }
    AMP_NEVER();
  }
  __device__ __forceinline__ T weigh(T v) const
  {
    switch (op) {
#define FOLD(op, start, join, weigh) CASE(op, weigh)
#include "reduce/fold_formulas.h"
    }
    AMP_NEVER();
  }
  __device__ __forceinline__ double size(double v) const { return fabs(v); }
  __device__ __forceinline__ float size(float v) const { return fabsf(v); }
  __device__ __forceinline__ int64_t size(int64_t v) const { return v; }
  __device__ __forceinline__ double raise(double v) const { return pow(fabs(v), power); }
  __device__ __forceinline__ float raise(float v) const { return powf(fabsf(v), (float)power); }
  __device__ __forceinline__ int64_t raise(int64_t v) const { return v; }
  /* in double where float's range would not do */
  __device__ __forceinline__ double power_of(double v) const { return raise(v); }
  __device__ __forceinline__ int64_t power_of(int64_t v) const { return v; }
  __device__ __forceinline__ double power_of(float v) const
  {
    float r = raise(v);
    return r <= 3e38f && r >= 1e-30f ? (double)r : raise((double)v);
  }
  template <int N> __device__ __forceinline__ void take(A &a, const T (&v)[N], int m, int64_t, int) const
  {
#pragma unroll
    for (int k = 0; k < N; k++)
      if (k < m) a = op == SQUARE ? a + (A)v[k] * (A)v[k] : join(a, op == POWERS ? power_of(v[k]) : (A)weigh(v[k]));
  }
  __device__ __forceinline__ A last(A a) const
  {
    return finish == ROOT ? (A)sqrt((double)a) : finish == POWER ? (A)pow((double)a, 1 / power) : a;
  }
  __device__ __forceinline__ void store(const amp_red &plan, int64_t at, A a) const
  {
    amp_store<A>(plan.out, plan.out_dtype, at, last(a));
  }
};

/* -- Calls --------------------------------------------------------------------------------- */

enum { F32, F64, I64 };
static int class_of(int dtype) { return dtype == AMP_FLOAT64 ? F64 : amp__is_float(dtype) ? F32 : I64; }

static int run_sum(amp_red *plan, int cls, int finish)
{
  if (cls == F32) {
    adding<float, double> f = { finish };
    return amp_red_run(plan, f);
  }
  if (cls == F64) {
    adding<double, double> f = { finish };
    return amp_red_run(plan, f);
  }
  adding<int64_t, int64_t> f = { finish };
  return amp_red_run(plan, f);
}

static int run_fold(amp_red *plan, int cls, int op, int finish, double power)
{
  if (cls == F32) {
    folding<float, double> f = { op, finish, power };
    return amp_red_run(plan, f);
  }
  if (cls == F64) {
    folding<double, double> f = { op, finish, power };
    return amp_red_run(plan, f);
  }
  folding<int64_t, int64_t> f = { op, finish, power };
  return amp_red_run(plan, f);
}

/* The class of a sum, product or extreme; what is of the other kind is cast first. *t is counted. */
static int prepare(amp_call *c, amp_tensor **t)
{
  static const int dtype[3] = { AMP_FLOAT32, AMP_FLOAT64, AMP_INT64 };
  int k = class_of(c->out[0]->dtype);
  *t = c->in[0];
  if (k == F32 && c->in[0]->dtype == AMP_FLOAT64) k = F64;
  if ((k == I64) == amp__is_float(c->in[0]->dtype)) *t = amp__cuda_dense(c->in[0], dtype[k]);
  else amp__retain(*t);
  return k;
}

static int total(amp_call *c, uint32_t mask, int finish)
{
  amp_red plan;
  amp_tensor *t;
  int k = prepare(c, &t);
  if (t == NULL) return AMP_E_MEMORY;
  amp_red_plan_mask(&plan, t, c->out[0], mask);
  int rc = run_sum(&plan, k, finish);
  amp__free(t);
  return rc;
}

static int fold(amp_call *c, uint32_t mask, int op)
{
  amp_red plan;
  amp_tensor *t;
  int k = prepare(c, &t);
  if (t == NULL) return AMP_E_MEMORY;
  amp_red_plan_mask(&plan, t, c->out[0], mask);
  int rc = run_fold(&plan, op == PROD && k == F32 ? F64 : k, op, STORE, 0);
  amp__free(t);
  return rc;
}

static int truth(amp_call *c, uint32_t mask, int op)
{
  amp_red plan;
  amp_red_plan_mask(&plan, c->in[0], c->out[0], mask);
  return run_fold(&plan, class_of(c->in[0]->dtype), op, STORE, 0);
}

} // namespace

extern "C" {

int amp__cuda_sum(amp_call *c) { return total(c, amp_red_mask(AMP_ARGS(c, sum)->dim), STORE); }
int amp__cuda_mean(amp_call *c) { return total(c, amp_red_mask(AMP_ARGS(c, mean)->dim), MEAN); }
int amp__cuda_prod(amp_call *c) { return fold(c, amp_red_one(c, AMP_ARGS(c, prod)->dim), PROD); }
int amp__cuda_amax(amp_call *c) { return fold(c, amp_red_mask(AMP_ARGS(c, amax)->dim), MOST); }
int amp__cuda_amin(amp_call *c) { return fold(c, amp_red_mask(AMP_ARGS(c, amin)->dim), LEAST); }
int amp__cuda_any(amp_call *c) { return truth(c, amp_red_mask(AMP_ARGS(c, any)->dim), ANY); }
int amp__cuda_all(amp_call *c) { return truth(c, amp_red_mask(AMP_ARGS(c, all)->dim), ALL); }

int amp__cuda_extreme_of_all(amp_call *c, int largest)
{
  return fold(c, (1u << c->in[0]->ndim) - 1, largest ? MOST : LEAST);
}

int amp__cuda_sum_to(amp_call *c)
{
  const amp_tensor *t = c->in[0], *s = c->out[0];
  int outdim[AMP_MAX_DIM], lead = t->ndim - s->ndim;
  amp_red plan;
  for (int d = 0; d < t->ndim; d++) outdim[d] = d < lead || (s->size[d - lead] == 1 && t->size[d] != 1) ? -1 : d - lead;
  amp_red_plan(&plan, t, s, outdim);
  return run_sum(&plan, class_of(t->dtype), STORE);
}

int amp__cuda_count_nonzero(amp_call *c)
{
  amp_red plan;
  amp_red_plan_mask(&plan, c->in[0], c->out[0], amp_red_mask(AMP_ARGS(c, count_nonzero)->dim));
  return run_fold(&plan, class_of(c->in[0]->dtype), NONZERO, STORE, 0);
}

int amp__cuda_lp_norm(amp_call *c) /* p dim keepdim dtype */
{
  static const int ops[6] = { SQUARE, ABS, MOST_ABS, LEAST_ABS, NONZERO, POWERS };
  const args_lp_norm *args = AMP_ARGS(c, lp_norm);
  amp_red plan;
  double p = args->p;
  int wide = c->in[0]->dtype == AMP_FLOAT64 || c->out[0]->dtype == AMP_FLOAT64;
  int k = p == 2 ? 0 : p == 1 ? 1 : p == INFINITY ? 2 : p == -INFINITY ? 3 : p == 0 ? 4 : 5;
  amp_red_plan_mask(&plan, c->in[0], c->out[0], amp_red_mask(args->dim));
  return run_fold(&plan, wide ? F64 : F32, ops[k], k == 0 ? ROOT : k == 5 ? POWER : STORE, p);
}
}
