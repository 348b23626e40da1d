/*
** softmax.cu: rows softmax, log_softmax and their backward rows.
**
** Along contiguous memory a warp or a block takes a row. float32 and 16-bit rows of
** whole vectors stay in registers, up to 1024 elements in a warp's; others take one
** trip for the largest element and the sum (kept up to date together), a second one,
** out of the cache, that writes. Along another dimension 32 columns go side by side, 8 threads each.
** A row of -inf alone, or with +inf or NaN, gives NaN, as on the CPU.
**
** Forward moves 8 bytes an element in float32 and 4 in 16 bits, backward 12 and 6; shared memory holds a block's
** partial maxima and sums alone. Memory's speed bounds it.
*/
#include "common/bits.cuh"

namespace {

/* Rows, a line a row, and three formulas. `element`: of the result, from those of the operands, a and b, and the
** row's largest element c.most and c.sum; `settled`: c.sum from the row's sum, which c.sum was; `quick`: of the
** result where a row is in registers, where forward a is already less c.most (and, of softmax, an exponential). */
/* clang-format off */
#define ROWS(ROW, LAST) \
  ROW(SOFTMAX, exp(a - c.most) * c.sum, 1 / c.sum, a * c.sum) \
  ROW(LOG_SOFTMAX, (a - c.most) - c.sum, log(c.sum), a - c.sum) \
  ROW(SOFTMAX_BACK, b * (a - c.sum), c.sum, b * (a - c.sum)) \
  LAST(LOG_SOFTMAX_BACK, a - exp(b) * c.sum, c.sum, a - amp_exp_fast(b) * c.sum)
/* clang-format on */
#define ROW(what, element, settled, quick) what,
typedef enum row_kind { ROWS(ROW, ROW) } row_kind;
#undef ROW

__device__ __forceinline__ bool is_back(row_kind what) { return what >= SOFTMAX_BACK; }

typedef struct job {
  const char *a, *b; /* b: the result, in a backward row */
  char *y;
  int32_t a_dtype, b_dtype, y_dtype;
  row_kind what;
  int32_t wide;
  int64_t outer, length, inner;
} job;

/* what a row's elements have in common */
template <class T> struct common {
  T most, sum;
};

#define ROW(what, element, settled, quick) \
  case what: return FORMULA(element, settled);
template <class T> __device__ __forceinline__ T value(row_kind what, T a, T b, const common<T> &c)
{
#define FORMULA(element, settled) element
  switch (what) {
    ROWS(ROW, ROW)
  }
#undef FORMULA
  AMP_NEVER();
}
template <class T> __device__ __forceinline__ T settled(row_kind what, const common<T> &c)
{
#define FORMULA(element, settled) settled
  switch (what) {
    ROWS(ROW, ROW)
  }
#undef FORMULA
  AMP_NEVER();
}
#undef ROW

/* One condition after another: machine code of rows in registers is shorter so than by a switch */
__device__ __forceinline__ float value_quick(row_kind kind, const float &a, const float &b, const common<float> &c)
{
#define ROW(what, element, settled, quick) kind == what ? quick:
#define LAST(what, element, settled, quick) quick
  return ROWS(ROW, LAST);
#undef ROW
#undef LAST
}

template <class T, bool WARP>
__global__ void __launch_bounds__(WARP ? 256 : 1024, WARP ? 4 : 1) softmax_rows(const job task)
{
  AMP_ROW_LANES(WARP);
  const bool back = is_back(task.what), dot = task.what == SOFTMAX_BACK;
  AMP_ROW_LOOP(WARP, r, task.outer)
  {
    int64_t from = r * task.length, to = from + task.length;
    common<T> c = { -(T)INFINITY, 0 };
    amp_row_each(
        from, to, task.wide, lane, lanes,
        [&](int64_t i) {
          T a[8], b[8];
          amp_load_n<8>(a, task.a, task.a_dtype, i);
          if (!back) {
            amp_fold(c.most, c.sum, a);
            return;
          }
          if (dot) amp_load_n<8>(b, task.b, task.b_dtype, i);
#pragma unroll
          for (int j = 0; j < 8; j++) c.sum += dot ? a[j] * b[j] : a[j];
        },
        [&](int64_t i) {
          T a[1] = { amp_load<T>(task.a, task.a_dtype, i) };
          if (!back) amp_fold(c.most, c.sum, a);
          else c.sum += dot ? a[0] * amp_load<T>(task.b, task.b_dtype, i) : a[0];
        });
    if (back) c.sum = amp_row_reduce<WARP, amp_sum>(c.sum, (T)0);
    else amp_fold_row<WARP>(c.most, c.sum);
    c.sum = settled(task.what, c);
    amp_row_each(
        from, to, task.wide, lane, lanes,
        [&](int64_t i) {
          T a[8], b[8];
          amp_load_n<8>(a, task.a, task.a_dtype, i);
          if (back) amp_load_n<8>(b, task.b, task.b_dtype, i);
#pragma unroll
          for (int j = 0; j < 8; j++) a[j] = value(task.what, a[j], back ? b[j] : (T)0, c);
          amp_store_n<8>(task.y, task.y_dtype, i, a);
        },
        [&](int64_t i) {
          amp_store<T>(task.y, task.y_dtype, i,
                       value(task.what, amp_load<T>(task.a, task.a_dtype, i),
                             back ? amp_load<T>(task.b, task.b_dtype, i) : (T)0, c));
        });
  }
}

/* -- Rows in registers: a lane has K vectors of V elements, vector j at lane + j * lanes ------------ */

/* A lane's part of the sum that a backward row takes: of a, or of a b */
template <int K, int V>
__device__ __forceinline__ float lane_sum(row_kind what, const float (&a)[K][V], const float (&b)[K][V])
{
  float sum = 0;
#pragma unroll
  for (int j = 0; j < K; j++) {
#pragma unroll
    for (int q = 0; q < V; q++) sum += what == SOFTMAX_BACK ? a[j][q] * b[j][q] : a[j][q];
  }
  return sum;
}

/* The row's largest element */
template <bool WARP, int K, int V>
__device__ __forceinline__ float largest(const float (&a)[K][V], int lane, int lanes, int vectors, float *part)
{
  float most = -INFINITY;
#pragma unroll
  for (int j = 0; j < K; j++)
    if (lane + j * lanes < vectors) {
#pragma unroll
      for (int q = 0; q < V; q++) most = fmaxf(most, a[j][q]);
    }
  return row_most<WARP>(most, part);
}

/* A lane's elements become exponentials (log_softmax: differences from `about`); their sum */
template <int K, int V>
__device__ __forceinline__ float exponentials(row_kind what, float (&a)[K][V], float about, int lane, int lanes,
                                              int vectors)
{
  float sum = 0;
#pragma unroll
  for (int j = 0; j < K; j++) {
#pragma unroll
    for (int q = 0; q < V; q++) {
      float d = a[j][q] - about, e = amp_exp_fast(d);
      sum += lane + j * lanes < vectors ? e : 0.f;
      a[j][q] = what == SOFTMAX ? e : d;
    }
  }
  return sum;
}

/* Operands and result of B bytes an element; a warp or a block takes a row */
template <int B, int K, bool WARP>
__global__ void __launch_bounds__(WARP ? 128 : 512, WARP ? 6 : 1) softmax_fast(const job task)
{
  enum { V = 16 / B };
  __shared__ float part[3][16];
  AMP_ROW_LANES(WARP);
  const int vectors = (int)task.length / V;
  const bool back = is_back(task.what);
  AMP_ROW_LOOP(WARP, r, task.outer)
  {
    bits<16> raw_a[K], raw_b[K];
    float a[K][V], b[K][V];
    const int64_t base = r * vectors;
#pragma unroll
    for (int j = 0; j < K; j++) raw_a[j] = fetch<16>(task.a, base + lane + j * lanes, lane + j * lanes < vectors);
    if (back) {
#pragma unroll
      for (int j = 0; j < K; j++) raw_b[j] = fetch<16>(task.b, base + lane + j * lanes, lane + j * lanes < vectors);
      widen<B, V>(b, raw_b, task.b_dtype);
    }
    widen<B, V>(a, raw_a, task.a_dtype);
    common<float> c = { -INFINITY, 0 };
    if (back) c.sum = lane_sum(task.what, a, b);
    else {
      c.most = largest<WARP>(a, lane, lanes, vectors, part[0]);
      c.sum = exponentials(task.what, a, amp_finite_or_0(c.most), lane, lanes, vectors);
    }
    c.sum = row_sum<WARP>(c.sum, part[1]);
    if (!back && c.most == -INFINITY) c.sum = NAN;
    c.sum = settled(task.what, c);
#pragma unroll
    for (int j = 0; j < K; j++) {
      if (lane + j * lanes >= vectors) continue;
#pragma unroll
      for (int q = 0; q < V; q++) a[j][q] = value_quick(task.what, a[j][q], b[j][q], c);
      put<B, V>(task.y, base + lane + j * lanes, a[j], task.y_dtype);
    }
    if (!WARP) __syncthreads();
  }
}

template <int B> static void fast_rows(const job &task)
{
  enum { U = B / 2 };
  const unsigned warps = amp_grid(task.outer, 4, 4096), blocks = amp_grid(task.outer, 1, 4096),
                 t16 = (unsigned)((task.length + 511) / 512 * 32), t32 = (unsigned)((task.length + 1023) / 1024 * 32);
  if (task.length <= 256) AMP_LAUNCH((softmax_fast<B, U, true>), warps, 128, 0, task);
  else if (task.length <= 512) AMP_LAUNCH((softmax_fast<B, 2 * U, true>), warps, 128, 0, task);
  else if (task.length <= 1024) AMP_LAUNCH((softmax_fast<B, 4 * U, true>), warps, 128, 0, task);
  else if (task.length <= 16 * 512) AMP_LAUNCH((softmax_fast<B, 2 * U, false>), blocks, t16, 0, task);
  else AMP_LAUNCH((softmax_fast<B, 4 * U, false>), blocks, t32, 0, task);
}
/* May a row stay in registers? */
static bool fast(const job *task, bool back)
{
  return task->wide && task->inner == 1 && task->a_dtype != AMP_FLOAT64 && task->a_dtype == task->y_dtype
         && (!back || task->b_dtype == task->a_dtype) && task->length % (task->a_dtype == AMP_FLOAT32 ? 4 : 8) == 0
         && task->length <= 32 * 512;
}

/* block 32 x 8 */
template <class T> __global__ void __launch_bounds__(256, 4) softmax_columns(const job task)
{
  __shared__ T ms[8][33], ss[8][33];
  const bool back = is_back(task.what);
  const int64_t tiles = (task.inner + 31) / 32;
  for (int64_t t = blockIdx.x; t < task.outer * tiles; t += gridDim.x) {
    int64_t o = t / tiles, in = (t - o * tiles) * 32 + threadIdx.x, base = o * task.length * task.inner + in;
    bool on = in < task.inner;
    common<T> c = { -(T)INFINITY, 0 };
    for (int64_t i = threadIdx.y; on && i < task.length; i += 8) {
      T a[1] = { amp_load<T>(task.a, task.a_dtype, base + i * task.inner) };
      if (!back) amp_fold(c.most, c.sum, a);
      else c.sum += task.what == SOFTMAX_BACK ? a[0] * amp_load<T>(task.b, task.b_dtype, base + i * task.inner) : a[0];
    }
    __syncthreads();
    ms[threadIdx.y][threadIdx.x] = c.most;
    ss[threadIdx.y][threadIdx.x] = c.sum;
    __syncthreads();
    T top = -(T)INFINITY, sum = 0;
    for (int y = 0; y < 8; y++) {
      T m = ms[y][threadIdx.x];
      top = m > top ? m : top;
    }
    for (int y = 0; y < 8; y++) {
      T m = ms[y][threadIdx.x], s = ss[y][threadIdx.x];
      if (!back) amp_fold_join(m, s, top);
      sum += s;
    }
    c.most = top;
    c.sum = !back && top == -(T)INFINITY ? (T)NAN : sum;
    c.sum = settled(task.what, c);
    for (int64_t i = threadIdx.y; on && i < task.length; i += 8) {
      int64_t at = base + i * task.inner;
      amp_store<T>(task.y, task.y_dtype, at,
                   value(task.what, amp_load<T>(task.a, task.a_dtype, at),
                         back ? amp_load<T>(task.b, task.b_dtype, at) : (T)0, c));
    }
  }
}

static int run(amp_call *c, int64_t dim, row_kind what)
{
  const bool back = what >= SOFTMAX_BACK;
  amp_tensor *y = c->out[0], *a = amp_own(c->in[0]), *b = back ? amp_own(c->in[1]) : NULL, *out = amp_own(y);
  int rc = 0, d = y->ndim ? (int)dim : 0;
  if (y->numel > 0 && !(amp_alike(a, y) && (!b || amp_alike(b, y)))) {
    amp__free(a);
    amp__free(b);
    amp__free(out);
    a = amp__cuda_dense(c->in[0], c->in[0]->dtype);
    b = back ? amp__cuda_dense(c->in[1], c->in[1]->dtype) : NULL;
    out = amp_take(y, y->dtype);
    if (!a || (back && !b) || !out) rc = AMP_E_MEMORY;
  }
  if (rc == 0 && y->numel > 0) {
    job task;
    memset((void *)&task, 0, sizeof task);
    task.a = (const char *)amp__data(a);
    task.a_dtype = a->dtype;
    if (b) {
      task.b = (const char *)amp__data(b);
      task.b_dtype = b->dtype;
    }
    task.y = (char *)amp__data(out);
    task.y_dtype = out->dtype;
    task.what = what;
    task.length = y->ndim ? y->size[d] : 1;
    task.inner = y->ndim ? out->stride[d] : 1;
    if (task.length == 1) task.inner = 1; /* its stride says nothing */
    task.outer = y->numel / (task.length * task.inner);
    task.wide = amp_wide(task.a) && amp_wide(task.y) && amp_wide(task.b);
    bool f64 = a->dtype == AMP_FLOAT64 || out->dtype == AMP_FLOAT64 || (b && b->dtype == AMP_FLOAT64);
    if (fast(&task, back)) {
      if (task.a_dtype == AMP_FLOAT32) fast_rows<4>(task);
      else fast_rows<2>(task);
    } else
      rc = amp_by_float(f64 ? AMP_FLOAT64 : AMP_FLOAT32, [&](auto zero) {
        typedef decltype(zero) T;
        if (task.inner == 1) AMP_ROW_LAUNCH(softmax_rows, T, task.outer, task.length, task);
        else
          AMP_LAUNCH((softmax_columns<T>), amp_grid(task.outer * ((task.inner + 31) / 32), 1, 16), dim3(32, 8), 0,
                     task);
        return 0;
      });
  }
  amp__free(a);
  amp__free(b);
  return amp_give(y, out, rc);
}

} // namespace

extern "C" {
int amp__cuda_softmax(amp_call *c) { return run(c, AMP_ARGS(c, softmax)->dim, SOFTMAX); }
int amp__cuda_log_softmax(amp_call *c) { return run(c, AMP_ARGS(c, log_softmax)->dim, LOG_SOFTMAX); }
int amp__cuda_softmax_backward(amp_call *c) { return run(c, AMP_ARGS(c, softmax_backward)->dim, SOFTMAX_BACK); }
int amp__cuda_log_softmax_backward(amp_call *c)
{
  return run(c, AMP_ARGS(c, log_softmax_backward)->dim, LOG_SOFTMAX_BACK);
}
}
