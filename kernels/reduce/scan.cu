/*
** scan.cu: what depends on all elements before, along a dimension: cumsum,
** cumprod, cummax, cummin, logcumsumexp, and cumprod's gradient.
**
** A functor makes states of elements and joins two of neighbouring stretches.
** A block takes a line (or a part of one: totals of parts first, then their
** running join, then all again from there); where lines lie beside each other in
** memory and are short, a thread takes one each. The order of joins is fixed.
**
** A line that one block takes is read once and written once (8 bytes an element in float32), a line in parts is read
** twice. States stay in registers; their joins pass through shuffles and shared memory. Memory's speed bounds it.
*/
#include "common/kernel.cuh"

namespace {

/* size and strides: of the dimensions but the line's */
typedef struct lines {
  const char *in;
  char *out, *index, *totals;
  int32_t dtype, out_dtype, dims;
  int64_t length, lines, step, out_step, index_step, parts, piece;
  int64_t size[AMP_MAX_DIM], in_stride[AMP_MAX_DIM], out_stride[AMP_MAX_DIM], index_stride[AMP_MAX_DIM];
} lines;

__device__ __forceinline__ void line_at(const lines &task, int64_t l, int64_t *a, int64_t *b, int64_t *x)
{
  *a = *b = *x = 0;
  for (int d = task.dims - 1; d >= 0; d--) {
    int64_t q = l / task.size[d], r = l - q * task.size[d];
    *a += r * task.in_stride[d];
    *b += r * task.out_stride[d];
    *x += r * task.index_stride[d];
    l = q;
  }
}

/* -- States ----------------------------------------------------------------------- */

__device__ __forceinline__ double plus(double a, double b) { return a + b; }
__device__ __forceinline__ int64_t plus(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
__device__ __forceinline__ double times(double a, double b) { return a * b; }
__device__ __forceinline__ int64_t times(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

template <class T_> struct running {
  typedef T_ T;
  typedef T_ S;
  int product;
  __device__ __forceinline__ S none() const { return (S)product; }
  __device__ __forceinline__ S of(T v, int64_t) const { return v; }
  __device__ __forceinline__ S join(S a, S b) const { return product ? times(a, b) : plus(a, b); }
  __device__ __forceinline__ void store(const lines &task, int64_t o, int64_t, S s) const
  {
    amp_store<S>(task.out, task.out_dtype, o, s);
  }
};

/* The last of equal extremes names the place; a NaN, once met, stays the extreme. */
template <class T_> struct extreme {
  typedef T_ T;
  typedef struct {
    T v;
    int64_t at;
  } S;
  int largest;
  __device__ __forceinline__ S none() const
  {
    S s = { (T)0, 0 };
    return s;
  }
  __device__ __forceinline__ S of(T v, int64_t i) const
  {
    S s = { v, i + 1 };
    return s;
  }
  __device__ __forceinline__ S join(S a, S b) const
  {
    if (a.at == 0) return b;
    if (b.at == 0) return a;
    return (largest ? b.v >= a.v : b.v <= a.v) || b.v != b.v ? b : a;
  }
  __device__ __forceinline__ void store(const lines &task, int64_t o, int64_t x, S s) const
  {
    amp_store<T>(task.out, task.out_dtype, o, s.v);
    ((int64_t *)task.index)[x] = s.at;
  }
};

/* log(sum of exp) = most + log(1 + rest), rest being the sum of exp(x - most) of all but the largest; NaN is a rest too
 */
struct log_sum {
  typedef double T;
  typedef struct {
    double most, rest;
  } S;
  __device__ __forceinline__ S none() const
  {
    S s = { -INFINITY, 0 };
    return s;
  }
  __device__ __forceinline__ S of(T v, int64_t) const
  {
    S s = { v != v ? (double)-INFINITY : v, v != v ? v : 0 };
    return s;
  }
  __device__ __forceinline__ S join(S a, S b) const
  {
    bool first = a.most >= b.most;
    S big = first ? a : b, small = first ? b : a;
    bool alone = isinf(small.most) || isinf(big.most);
    big.rest += alone ? small.rest : (small.rest + 1) * exp(small.most - big.most);
    return big;
  }
  __device__ __forceinline__ void store(const lines &task, int64_t o, int64_t, S s) const
  {
    amp_store<double>(task.out, task.out_dtype, o, s.most + (isinf(s.most) ? s.rest : log1p(s.rest)));
  }
};

template <class S> __device__ __forceinline__ S shift_up(S a, int d)
{
  unsigned w[sizeof(S) / 4];
  memcpy(w, &a, sizeof a);
#pragma unroll
  for (unsigned k = 0; k < sizeof(S) / 4; k++) w[k] = __shfl_up_sync(0xffffffffu, w[k], d);
  memcpy(&a, w, sizeof a);
  return a;
}

/* -- Kernels ------------------------------------------------------------------------- */

enum { EACH = 4, BLOCK = 256 };

/* A block a part of a line. totals only, or results that go on from totals */
template <class F> __global__ void __launch_bounds__(BLOCK) scan_lines(const lines task, const F f, int write)
{
  typedef typename F::S S;
  __shared__ S warp_total[BLOCK / 32];
  const int lane = threadIdx.x & 31, w = threadIdx.x >> 5;
  for (int64_t u = blockIdx.x; u < task.lines * task.parts; u += gridDim.x) {
    int64_t line = u / task.parts, lo = (u - line * task.parts) * task.piece,
            hi = lo + task.piece < task.length ? lo + task.piece : task.length, a, b, x;
    line_at(task, line, &a, &b, &x);
    S carry = write && task.parts > 1 ? ((const S *)task.totals)[u] : f.none();
    for (int64_t base = lo; base < hi; base += BLOCK * EACH) {
      S s[EACH];
      int64_t first = base + threadIdx.x * EACH;
#pragma unroll
      for (int k = 0; k < EACH; k++) {
        s[k] = first + k < hi
                   ? f.of(amp_load<typename F::T>(task.in, task.dtype, a + (first + k) * task.step), first + k)
                   : f.none();
        if (k) s[k] = f.join(s[k - 1], s[k]);
      }
      S mine = s[EACH - 1];
      for (int d = 1; d < 32; d <<= 1) {
        S up = shift_up(mine, d);
        if (lane >= d) mine = f.join(up, mine);
      }
      if (lane == 31) warp_total[w] = mine;
      S before = shift_up(mine, 1);
      if (lane == 0) before = f.none();
      __syncthreads();
      S all = carry;
#pragma unroll 1
      for (int k = 0; k < BLOCK / 32; k++) {
        if (k == w) before = f.join(all, before);
        all = f.join(all, warp_total[k]);
      }
      carry = all;
      if (write) {
#pragma unroll
        for (int k = 0; k < EACH; k++)
          if (first + k < hi)
            f.store(task, b + (first + k) * task.out_step, x + (first + k) * task.index_step, f.join(before, s[k]));
      }
      __syncthreads();
    }
    if (!write && threadIdx.x == 0) ((S *)task.totals)[u] = carry;
  }
}

/* Totals of a line's parts become what comes before each */
template <class F> __global__ void scan_totals(const lines task, const F f)
{
  typedef typename F::S S;
  AMP_FOR(line, task.lines)
  {
    S *t = (S *)task.totals + line * task.parts, all = f.none();
    for (int64_t k = 0; k < task.parts; k++) {
      S next = t[k];
      t[k] = all;
      all = f.join(all, next);
    }
  }
}

template <class F> __global__ void __launch_bounds__(BLOCK) scan_columns(const lines task, const F f)
{
  AMP_FOR(line, task.lines)
  {
    int64_t a, b, x;
    line_at(task, line, &a, &b, &x);
    typename F::S s = f.none();
    for (int64_t i = 0; i < task.length; i++) {
      s = f.join(s, f.of(amp_load<typename F::T>(task.in, task.dtype, a + i * task.step), i));
      f.store(task, b + i * task.out_step, x + i * task.index_step, s);
    }
  }
}

/* Forward the product of all before, then backward times s = g + (next x) s, exact whatever is zero */
template <class T> __global__ void product_gradient(const lines task, const T *g, const T *x, T *o)
{
  AMP_FOR(line, task.lines)
  {
    int64_t a, b, unused;
    line_at(task, line, &a, &b, &unused);
    T before = 1, sum = 0;
    for (int64_t i = 0; i < task.length; i++) {
      o[b + i * task.out_step] = before;
      before *= x[a + i * task.step];
    }
    for (int64_t i = task.length - 1; i >= 0; i--) {
      sum = g[a + i * task.step] + (i + 1 < task.length ? x[a + (i + 1) * task.step] * sum : 0);
      o[b + i * task.out_step] *= sum;
    }
  }
}

/* -- Calls ------------------------------------------------------------------------------ */

static void lines_of(lines *task, const amp_tensor *t, const amp_tensor *o, const amp_tensor *index, int dim)
{
  memset((void *)task, 0, sizeof *task);
  task->in = (const char *)amp__data(t);
  task->out = (char *)amp__data(o);
  task->index = index ? (char *)amp__data(index) : NULL;
  task->dtype = t->dtype;
  task->out_dtype = o->dtype;
  task->length = t->ndim ? t->size[dim] : 1;
  task->step = t->ndim ? t->stride[dim] : 1;
  task->out_step = t->ndim ? o->stride[dim] : 1;
  task->index_step = index && t->ndim ? index->stride[dim] : 1;
  task->lines = task->parts = 1;
  task->piece = task->length;
  for (int d = 0; d < t->ndim; d++) {
    if (d == dim) continue;
    task->lines *= t->size[d];
    task->size[task->dims] = t->size[d];
    task->in_stride[task->dims] = t->stride[d];
    task->out_stride[task->dims] = o->stride[d];
    task->index_stride[task->dims++] = index ? index->stride[d] : 0;
  }
}

template <class F> static int run(lines *task, const F &f)
{
  int64_t sms = amp__cuda_here()->sms, want = sms * 4;
  if (task->length * task->lines == 0) return 0;
  if (task->length <= 8
      || (task->step != 1 && task->step != -1 && task->lines >= 32
          && (task->length <= 4096 || task->lines >= sms * BLOCK))) {
    AMP_LAUNCH((scan_columns<F>), amp_grid(task->lines, BLOCK), BLOCK, 0, *task, f);
    return 0;
  }
  amp_tensor *totals = NULL;
  if (task->lines < sms && task->length >= 16384) {
    int64_t parts = (want + task->lines - 1) / task->lines, most = task->length / 8192;
    if (parts > most) parts = most;
    task->piece = ((task->length + parts - 1) / parts + BLOCK * EACH - 1) / (BLOCK * EACH) * (BLOCK * EACH);
    task->parts = (task->length + task->piece - 1) / task->piece;
  }
  if (task->parts > 1) {
    if ((totals = amp__cuda_scratch((size_t)(task->lines * task->parts) * sizeof(typename F::S))) == NULL)
      return AMP_E_MEMORY;
    task->totals = (char *)amp__data(totals);
    AMP_LAUNCH((scan_lines<F>), amp_grid(task->lines * task->parts, 1), BLOCK, 0, *task, f, 0);
    AMP_LAUNCH((scan_totals<F>), amp_grid(task->lines, 32), 32, 0, *task, f);
  }
  AMP_LAUNCH((scan_lines<F>), amp_grid(task->lines * task->parts, 1), BLOCK, 0, *task, f, 1);
  amp__free(totals);
  return 0;
}

/* Sums and products in double (int64 for integers), rounded as they are stored */
static int sums(amp_call *c, int64_t dim, int product, bool back)
{
  amp_tensor *t = c->in[0], *o = c->out[0];
  bool whole = !amp__is_float(o->dtype);
  lines task;
  if (whole && amp__is_float(t->dtype)) {
    if ((t = amp__cuda_dense(t, AMP_INT64)) == NULL) return AMP_E_MEMORY;
  } else amp__retain(t);
  lines_of(&task, t, o, NULL, (int)dim);
  if (back && task.length > 0) { /* the same from the other end */
    task.in += (task.length - 1) * task.step * amp__dtype_size[task.dtype];
    task.out += (task.length - 1) * task.out_step * amp__dtype_size[task.out_dtype];
    task.step = -task.step;
    task.out_step = -task.out_step;
  }
  int rc;
  if (whole) {
    running<int64_t> f = { product };
    rc = run(&task, f);
  } else {
    running<double> f = { product };
    rc = run(&task, f);
  }
  amp__free(t);
  return rc;
}

static int extremes(amp_call *c, int64_t dim, int largest)
{
  amp_tensor *t = c->in[0];
  lines task;
  lines_of(&task, t, c->out[0], c->out[1], (int)dim);
  if (t->dtype == AMP_FLOAT64) {
    extreme<double> f = { largest };
    return run(&task, f);
  }
  if (amp__is_float(t->dtype)) {
    extreme<float> f = { largest };
    return run(&task, f);
  }
  extreme<int64_t> f = { largest };
  return run(&task, f);
}

} // namespace

extern "C" {

int amp__cuda_cumsum(amp_call *c) { return sums(c, AMP_ARGS(c, cumsum)->dim, 0, false); }
int amp__cuda_cumsum_back(amp_call *c) { return sums(c, AMP_ARGS(c, cumsum_back)->dim, 0, true); }
int amp__cuda_cumprod(amp_call *c) { return sums(c, AMP_ARGS(c, cumprod)->dim, 1, false); }
int amp__cuda_cummax(amp_call *c) { return extremes(c, AMP_ARGS(c, cummax)->dim, 1); }
int amp__cuda_cummin(amp_call *c) { return extremes(c, AMP_ARGS(c, cummin)->dim, 0); }

int amp__cuda_logcumsumexp(amp_call *c)
{
  lines task;
  log_sum f;
  lines_of(&task, c->in[0], c->out[0], NULL, (int)AMP_ARGS(c, logcumsumexp)->dim);
  return run(&task, f);
}

int amp__cuda_cumprod_backward(amp_call *c)
{
  amp_tensor *out = c->out[0];
  int dtype = out->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  amp_tensor *g = amp__cuda_dense(c->in[0], dtype), *x = amp__cuda_dense(c->in[1], dtype);
  amp_tensor *o = out->dtype == dtype ? out : amp__cuda_make(dtype, out->ndim, out->size);
  int rc = g && x && o ? 0 : AMP_E_MEMORY;
  if (rc == 0 && x->ndim == 0) rc = amp__cuda_copy_to(o, g);
  else if (rc == 0 && x->numel > 0) {
    lines task;
    lines_of(&task, x, o, NULL, (int)AMP_ARGS(c, cumprod_backward)->dim);
    if (dtype == AMP_FLOAT64)
      AMP_LAUNCH((product_gradient<double>), amp_grid(task.lines, 64), 64, 0, task, AMP_DATA(const double, g),
                 AMP_DATA(const double, x), AMP_DATA(double, o));
    else
      AMP_LAUNCH((product_gradient<float>), amp_grid(task.lines, 64), 64, 0, task, AMP_DATA(const float, g),
                 AMP_DATA(const float, x), AMP_DATA(float, o));
  }
  if (rc == 0 && o != out) rc = amp__cuda_copy_to(out, o);
  if (o != out) amp__free(o);
  amp__free(g);
  amp__free(x);
  return rc;
}
}
