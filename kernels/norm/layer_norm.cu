/*
** layer_norm.cu: rows layer_norm, add_layer_norm and rms_norm, backward rows; renorm.
**
** A row of data (the last dimensions) lies in one piece, or the data is copied to C
** order. float32 and 16-bit rows of whole vectors stay in registers (layer_norm.cuh) or,
** backward, are read ahead (norm_ring.cuh); others are read again out of the cache.
** Backward, blocks leave sums of the gradients of weight and bias, which another
** launch adds in a fixed order.
**
** Forward moves 8 bytes an element in float32 (16 with a residual), backward 12, half of that in 16 bits; shared
** memory holds partial sums and, backward, rows read ahead. Memory's speed bounds it.
*/
#include "elementwise/elementwise.cuh"
#include "norm/layer_norm.cuh"
#include "norm/norm_ring.cuh"

namespace {

enum { CHUNKS = 64 };

/* -- Any row ------------------------------------------------------------------------- */

template <class T, bool WARP> __global__ void __launch_bounds__(WARP ? 256 : 1024, 1) forward_any(const job task)
{
  AMP_ROW_LANES(WARP);
  AMP_ROW_LOOP(WARP, r, task.rows)
  {
    int64_t from = r * task.length, to = from + task.length;
    T mean = 0, dev = 0, low = 0; /* low: what the mean, which is counted from the first element, is rounded by */
    if (!task.is_rms) {
      const T base = amp_load<T>(task.x, task.x_dtype, from);
      T step = 0;
      for (int64_t i = from + lane; i < to; i += lanes) step += amp_load<T>(task.x, task.x_dtype, i) - base;
      step = amp_row_reduce<WARP, amp_sum>(step, (T)0) / (T)task.length;
      mean = base + step;
      low = (base - mean) + step;
    }
    for (int64_t i = from + lane; i < to; i += lanes) {
      T d = (amp_load<T>(task.x, task.x_dtype, i) - mean) - low;
      dev += d * d;
    }
    double total = (double)amp_row_reduce<WARP, amp_sum>(dev, (T)0);
    if (isinf(total)) { /* squares past float32's range */
      double wide = 0;
      for (int64_t i = from + lane; i < to; i += lanes) {
        double d = amp_load<double>(task.x, task.x_dtype, i) - (double)mean;
        wide += d * d;
      }
      total = amp_row_reduce<WARP, amp_sum>(wide, 0.0);
    }
    T rstd = (T)(1 / sqrt(total / (double)task.length + task.eps));
    if (lane == 0) {
      if (!task.is_rms) amp_store<T>(task.mean, task.stat_dtype, r, mean);
      amp_store<T>(task.rstd, task.stat_dtype, r, rstd);
    }
    for (int64_t i = from + lane; i < to; i += lanes) {
      T y = ((amp_load<T>(task.x, task.x_dtype, i) - mean) - low) * rstd;
      if (task.w) y *= amp_load<T>(task.w, task.w_dtype, i - from);
      if (task.b) y += amp_load<T>(task.b, task.b_dtype, i - from);
      amp_store<T>(task.y, task.y_dtype, i, y);
    }
  }
}

template <class T, bool WARP> __global__ void __launch_bounds__(WARP ? 256 : 1024, 1) backward_any(const job task)
{
  AMP_ROW_LANES(WARP);
  AMP_ROW_LOOP(WARP, r, task.rows)
  {
    int64_t from = r * task.length, to = from + task.length;
    T mean = task.is_rms ? (T)0 : amp_load<T>(task.mean, task.stat_dtype, r),
      rstd = amp_load<T>(task.rstd, task.stat_dtype, r), sum_g = 0, sum_gx = 0;
    for (int64_t i = from + lane; i < to; i += lanes) {
      T g = amp_load<T>(task.g, task.g_dtype, i);
      if (task.w) g *= amp_load<T>(task.w, task.w_dtype, i - from);
      sum_g += g;
      sum_gx += g * ((amp_load<T>(task.x, task.x_dtype, i) - mean) * rstd);
    }
    sum_g = task.is_rms ? (T)0 : amp_row_reduce<WARP, amp_sum>(sum_g, (T)0) / (T)task.length;
    sum_gx = amp_row_reduce<WARP, amp_sum>(sum_gx, (T)0) / (T)task.length;
    for (int64_t i = from + lane; i < to; i += lanes) {
      T g = amp_load<T>(task.g, task.g_dtype, i), x = (amp_load<T>(task.x, task.x_dtype, i) - mean) * rstd;
      if (task.w) g *= amp_load<T>(task.w, task.w_dtype, i - from);
      T y = rstd * (g - sum_g - x * sum_gx);
      amp_store<T>(task.y, task.y_dtype, i, task.more ? y + amp_load<T>(task.more, task.y_dtype, i) : y);
    }
  }
}

/* sums of columns over a chunk of rows; block 32 x 8 */
template <class T> __global__ void __launch_bounds__(256) columns_any(const job task)
{
  __shared__ T part[2][8][33];
  int64_t c = (int64_t)blockIdx.x * 32 + threadIdx.x, per = (task.rows + gridDim.y - 1) / gridDim.y,
          from = blockIdx.y * per, to = from + per < task.rows ? from + per : task.rows;
  T grad_w = 0, grad_b = 0;
  for (int64_t r = from + threadIdx.y; c < task.length && r < to; r += 8) {
    T g = amp_load<T>(task.g, task.g_dtype, r * task.length + c),
      mean = task.is_rms ? (T)0 : amp_load<T>(task.mean, task.stat_dtype, r);
    grad_w += g
              * ((amp_load<T>(task.x, task.x_dtype, r * task.length + c) - mean)
                 * amp_load<T>(task.rstd, task.stat_dtype, r));
    grad_b += g;
  }
  part[0][threadIdx.y][threadIdx.x] = grad_w;
  part[1][threadIdx.y][threadIdx.x] = grad_b;
  __syncthreads();
  if (threadIdx.y >= 2 || c >= task.length) return;
  T s = 0;
  for (int y = 0; y < 8; y++) s += part[threadIdx.y][y][threadIdx.x];
  ((T *)task.partial)[((int64_t)blockIdx.y * 2 + threadIdx.y) * task.length + c] = s;
}

/* the sums of all blocks: of weight (which 0), of bias (which 1); block 32 x 32 */
template <class T>
__global__ void __launch_bounds__(1024)
    add_blocks(const T *p, int blocks, int64_t n, char *grad_w, int wdt, char *grad_b, int bdt)
{
  __shared__ T part[32][33];
  amp_await();
  int64_t c = (int64_t)blockIdx.x * 32 + threadIdx.x;
  int side = blockIdx.y;
  T s = 0;
  if (c < n) {
    for (int b = threadIdx.y; b < blocks; b += 8 * 32) { /* 8 loads at once, also the last ones */
      T v[8];
#pragma unroll
      for (int i = 0; i < 8; i++) v[i] = b + i * 32 < blocks ? p[((int64_t)(b + i * 32) * 2 + side) * n + c] : (T)0;
#pragma unroll
      for (int i = 0; i < 8; i++) s += v[i];
    }
  }
  part[threadIdx.y][threadIdx.x] = s;
  __syncthreads();
  s = amp_reduce_warp<amp_sum>(part[threadIdx.x][threadIdx.y]);
  c = (int64_t)blockIdx.x * 32 + threadIdx.y;
  if (threadIdx.x != 0 || c >= n) return;
  if (side == 0 && grad_w) amp_store<T>(grad_w, wdt, c, s);
  if (side == 1 && grad_b) amp_store<T>(grad_b, bdt, c, s);
}

/* -- Calls ------------------------------------------------------------------------------ */

typedef struct hold {
  amp_tensor *t[8];
  int n, rc;
} hold; /* operands, freed together */
static const char *dense(hold *h, amp_tensor *t, int32_t *dtype, int as = -1)
{
  if (t == NULL) return NULL;
  amp_tensor *d = amp__cuda_dense(t, as < 0 ? (int)t->dtype : as);
  if (d == NULL) {
    h->rc = AMP_E_MEMORY;
    return NULL;
  }
  h->t[h->n++] = d;
  *dtype = d->dtype;
  return (const char *)amp__data(d);
}
static void drop(hold *h)
{
  for (int i = 0; i < h->n; i++) amp__free(h->t[i]);
}
static amp_tensor *argument(const amp_call *c, int i) { return i < c->nin ? c->in[i] : NULL; }

/* shape: of the dimensions that are normalised, an attribute of the row */
template <class SHAPE> static void sizes(job *task, const SHAPE &shape, const amp_tensor *x)
{
  task->length = 1;
  for (int64_t d = 0; d < shape.n; d++) task->length *= shape.at[d];
  task->rows = task->length ? x->numel / task->length : 0;
}

static bool half(int dtype) { return dtype == AMP_FLOAT16 || dtype == AMP_BFLOAT16; }

/* May a row stay in registers? ydt: the result's dtype */
static bool fast(const job *task, bool f64, int64_t most, int ydt)
{
  return !f64 && task->wide && task->stat_dtype == AMP_FLOAT32 && task->x_dtype == ydt
         && task->length % (task->x_dtype == AMP_FLOAT32 ? 4 : 8) == 0 && task->length <= most;
}

/* Threads that have `each` elements of a row of n */
static unsigned threads_of(int64_t n, int each) { return (unsigned)((n + 32 * each - 1) / (32 * each) * 32); }

template <int XB, int WB, int RB> static void forward_rows(const job &task)
{
  enum { U = XB / 2 }; /* vectors that 8 elements are */
  const unsigned warps = amp_grid(task.rows, 4, 4096), blocks = amp_grid(task.rows, 1, 4096);
  const bool few = task.rows <= 8; /* their time is that of the launch, which may overlap with the kernel before */
  if (task.length <= 256) AMP_LAUNCH_NEXT(few, (forward_fast<XB, WB, RB, U, true>), warps, 128, 0, task);
  else if (task.length <= 512) AMP_LAUNCH_NEXT(few, (forward_fast<XB, WB, RB, 2 * U, true>), warps, 128, 0, task);
  else if (task.length <= 768) AMP_LAUNCH_NEXT(few, (forward_fast<XB, WB, RB, 3 * U, true>), warps, 128, 0, task);
  else if (task.length <= 1024) AMP_LAUNCH_NEXT(few, (forward_fast<XB, WB, RB, 4 * U, true>), warps, 128, 0, task);
  else if (task.length <= 16 * 512)
    AMP_LAUNCH_NEXT(few, (forward_fast<XB, WB, RB, 2 * U, false>), blocks, threads_of(task.length, 16), 0, task);
  else AMP_LAUNCH_NEXT(few, (forward_fast<XB, WB, RB, 4 * U, false>), blocks, threads_of(task.length, 32), 0, task);
}

/* Elements that a thread has backward, threads of a block, blocks: all on the card at once, with equal numbers of rows
 */
typedef struct plan {
  int each;
  unsigned threads, blocks;
  bool ring;
} plan;
static plan backward_plan(const job *task)
{
  plan p;
  int64_t sms = amp__cuda_here()->sms, items = task->rows, most;
  p.ring = ringed(task, amp__cuda_here());
  if (p.ring) {
    p.each = 0;
    p.threads = RING_WARPS * 32;
    p.blocks = amp_grid(task->rows, RING_WARPS, 1);
    return p;
  }
  if (task->length <= 1024) {
    p.each = (int)((task->length + 255) / 256) * 8;
    p.threads = p.each <= 16   ? +room<16, true>::THREADS
                : p.each <= 24 ? +room<24, true>::THREADS
                               : +room<32, true>::THREADS;
    items = (task->rows + p.threads / 32 - 1) / (p.threads / 32);
    most = p.each > 8 ? sms : 2 * sms;
  } else {
    p.each = task->length <= 8 * 512 && task->x_dtype != AMP_FLOAT32 ? 8 : task->length <= 16 * 512 ? 16 : 24;
    p.threads = threads_of(task->length, p.each);
    most = sms * (p.each == 8 ? 1024 : 512) / p.threads;
  }
  int64_t per = (items + most - 1) / most;
  p.blocks = (unsigned)((items + per - 1) / per);
  return p;
}
template <int XB, int GB, int K> static int backward_ringed(const job &task, const plan &p)
{
  enum { E = K * 16 / XB };
  const size_t shared = E * 32 * sizeof(float) + (size_t)RING_WARPS * ring<E>::DEPTH * ring_row<XB, GB>(task);
  int rc = amp__cuda_check(
      cudaFuncSetAttribute(backward_ring<XB, GB, K>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
      "shared memory of layer_norm");
  if (rc < 0) return rc;
  AMP_LAUNCH((backward_ring<XB, GB, K>), p.blocks, p.threads, shared, task);
  return 0;
}

template <int XB, int GB> static int backward_rows(const job &task, const plan &p)
{
  enum { U = XB / 2 };
  if (p.ring)
    return task.length <= 512   ? backward_ringed<XB, GB, 2 * U>(task, p)
           : task.length <= 768 ? backward_ringed<XB, GB, 3 * U>(task, p)
                                : backward_ringed<XB, GB, 4 * U>(task, p);
  const size_t shared = (size_t)p.each * (task.length <= 1024 ? 32 : p.threads) * sizeof(float);
  if (task.length <= 1024) switch (p.each) {
    case 8: AMP_LAUNCH((backward_fast<XB, GB, U, true>), p.blocks, p.threads, shared, task); break;
    case 16: AMP_LAUNCH((backward_fast<XB, GB, 2 * U, true>), p.blocks, p.threads, shared, task); break;
    case 24: AMP_LAUNCH((backward_fast<XB, GB, 3 * U, true>), p.blocks, p.threads, shared, task); break;
    default: AMP_LAUNCH((backward_fast<XB, GB, 4 * U, true>), p.blocks, p.threads, shared, task);
    }
  else if (p.each == 8) AMP_LAUNCH((backward_fast<XB, GB, U, false>), p.blocks, p.threads, shared, task);
  else if (p.each == 16) AMP_LAUNCH((backward_fast<XB, GB, 2 * U, false>), p.blocks, p.threads, shared, task);
  else {
    if (shared > 46 << 10) { /* more than 48 KiB with what the kernel has itself */
      int rc = amp__cuda_check(cudaFuncSetAttribute(backward_fast<XB, GB, 3 * U, false>,
                                                    cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                               "shared memory of layer_norm");
      if (rc < 0) return rc;
    }
    AMP_LAUNCH((backward_fast<XB, GB, 3 * U, false>), p.blocks, p.threads, shared, task);
  }
  return 0;
}

static bool narrows(const amp_tensor *t) { return half(t->dtype) && amp__cuda_plain(t) && amp_wide(amp__data(t)); }

/* sum = x + r, by the row add */
static int add(amp_tensor *sum, amp_tensor *x, amp_tensor *r)
{
  amp_call c;
  memset((void *)&c, 0, sizeof c);
  c.id = AMP_OP_add;
  c.in = c.in_store;
  c.attrs = c.attr_store;
  ((args_add *)c.attrs)->alpha = 1;
  c.in_store[0] = x;
  c.in_store[1] = r;
  c.out[0] = sum;
  c.nin = 2;
  c.nout = 1;
  return amp__cuda_add(&c);
}

/* Rows in registers; narrow: the weights are of the input's dtype */
static void forward_quick(const job &task, bool narrow)
{
  if (task.x_dtype == AMP_FLOAT32 && !task.r) forward_rows<4, 4, 0>(task);
  else if (task.x_dtype == AMP_FLOAT32 && task.r_dtype == AMP_FLOAT32) forward_rows<4, 4, 4>(task);
  else if (task.x_dtype == AMP_FLOAT32) forward_rows<4, 4, 2>(task);
  else if (narrow && !task.r) forward_rows<2, 2, 0>(task);
  else if (narrow) forward_rows<2, 2, 2>(task);
  else if (!task.r) forward_rows<2, 4, 0>(task);
  else forward_rows<2, 4, 2>(task);
}

/* How a job's rows in registers differ: weights of the input's 16-bit dtype, else float32; the result of float32 in 16
** bits alone */
typedef struct form {
  bool narrow, thin;
} form;

/* May all rows stay in registers? Then *f says how */
static bool is_quick(job *task, bool f64, form *f)
{
  task->wide = amp_wide(task->x) && amp_wide(task->r) && amp_wide(task->sum) && amp_wide(task->y) && amp_wide(task->w)
               && amp_wide(task->b);
  f->narrow = (!task->w || task->w_dtype == task->x_dtype) && (!task->b || task->b_dtype == task->x_dtype)
              && task->x_dtype != AMP_FLOAT32;
  f->thin = task->x_dtype == AMP_FLOAT32 && half(task->y_dtype);
  return fast(task, f64, ROW_FORWARD, f->thin ? task->x_dtype : task->y_dtype) && (task->eps == 0 || task->eps > 1e-30)
         && (f->narrow || ((!task->w || task->w_dtype == AMP_FLOAT32) && (!task->b || task->b_dtype == AMP_FLOAT32)));
}

/* x and r, of which one pass makes the sum; false: a kernel of its own has to */
static bool joins(job *task, hold *h, amp_tensor *x, amp_tensor *r, amp_tensor *sum, bool f64)
{
  amp_tensor *a = x->dtype == sum->dtype ? x : r, *d = a == x ? r : x;
  if (a->dtype != sum->dtype || (d->dtype != a->dtype && !half(d->dtype)) || !amp__cuda_plain(sum)) return false;
  task->x = dense(h, a, &task->x_dtype);
  task->r = dense(h, d, &task->r_dtype);
  task->sum = (char *)amp__data(sum);
  form f;
  return h->rc == 0 && is_quick(task, f64, &f);
}

/* half_copy: NULL, or where the result may go in 16 bits as well (task->half_copy then says that it does) */
static void launch_forward(job *task, bool f64, amp_tensor *half_copy)
{
  form f;
  if (!is_quick(task, f64, &f)) {
    amp_by_float(f64 ? AMP_FLOAT64 : AMP_FLOAT32, [&](auto zero) {
      typedef decltype(zero) T;
      AMP_ROW_LAUNCH(forward_any, T, task->rows, task->length, *task);
      return 0;
    });
    return;
  }
  if (f.thin) {
    task->half_copy = task->y;
    task->half_dtype = task->y_dtype;
    task->y = NULL;
  } else if (half_copy && task->x_dtype == AMP_FLOAT32 && narrows(half_copy)) {
    task->half_copy = (char *)amp__data(half_copy);
    task->half_dtype = half_copy->dtype;
  }
  forward_quick(*task, f.narrow);
}

/* r: added to the input first, the sum being the second result; else NULL */
template <class SHAPE>
static int forward(amp_call *c, const SHAPE &shape, double eps, bool rms, amp_tensor *r, amp_tensor *w, amp_tensor *b,
                   amp_tensor *mean, amp_tensor *rstd)
{
  amp_tensor *x = c->in[0], *y = c->out[0], *sum = r ? c->out[1] : x,
             *half_copy = c->half_copy ? c->out[AMP_HALF_COPY] : NULL, *out = NULL, *m = NULL, *scale = NULL;
  const bool f64 = y->dtype == AMP_FLOAT64 || sum->dtype == AMP_FLOAT64;
  job task;
  hold h = { { NULL }, 0, 0 };
  memset((void *)&task, 0, sizeof task);
  sizes(&task, shape, x);
  if (x->numel == 0) return 0;
  auto weight = [&](amp_tensor *t, int32_t *dtype) {
    return dense(&h, t, dtype,
                 t && (y->dtype == AMP_FLOAT32 || sum->dtype == AMP_FLOAT32) && half(t->dtype) ? (int)AMP_FLOAT32 : -1);
  };
  task.w = weight(w, &task.w_dtype);
  task.b = weight(b, &task.b_dtype);
  out = amp_take(y, y->dtype);
  if (mean) m = amp_take(mean, mean->dtype);
  scale = amp_take(rstd, rstd->dtype);
  if (!out || (mean && !m) || !scale) h.rc = AMP_E_MEMORY;
  if (h.rc == 0) {
    task.y = (char *)amp__data(out);
    task.y_dtype = out->dtype;
    if (m) task.mean = (char *)amp__data(m);
    task.rstd = (char *)amp__data(scale);
    task.stat_dtype = scale->dtype;
    task.is_rms = rms;
    task.eps = eps;
    if (r && !joins(&task, &h, x, r, sum, f64) && h.rc == 0) {
      task.r = task.sum = NULL;
      h.rc = add(sum, x, r);
      r = NULL;
    }
  }
  if (!r && h.rc == 0)
    task.x = dense(&h, sum, &task.x_dtype, half(sum->dtype) && y->dtype == AMP_FLOAT32 ? (int)AMP_FLOAT32 : -1);
  if (h.rc == 0) launch_forward(&task, f64, out == y ? half_copy : NULL);
  drop(&h);
  int rc = amp_give(y, out, h.rc);
  if (mean) rc = amp_give(mean, m, rc);
  rc = amp_give(rstd, scale, rc);
  return rc == 0 && half_copy && !task.half_copy ? amp__cuda_copy_to(half_copy, y) : rc;
}

static int backward_quick(const job &task, const plan &p)
{
  return task.x_dtype != AMP_FLOAT32   ? backward_rows<2, 2>(task, p)
         : task.g_dtype != AMP_FLOAT32 ? backward_rows<4, 2>(task, p)
                                       : backward_rows<4, 4>(task, p);
}

/* The input's gradient, and the weight's and the bias's (NULL: not wanted) out of the sums of `blocks` blocks; quick:
** rows in registers */
static int launch_backward(const job &task, const plan &p, bool quick, bool f64, int64_t blocks, amp_tensor *out_w,
                           amp_tensor *out_b)
{
  int rc = quick ? backward_quick(task, p) : 0;
  amp_by_float(f64 ? AMP_FLOAT64 : AMP_FLOAT32, [&](auto zero) {
    typedef decltype(zero) T;
    const unsigned cols = (unsigned)((task.length + 31) / 32);
    if (!quick) {
      AMP_ROW_LAUNCH(backward_any, T, task.rows, task.length, task);
      AMP_LAUNCH((columns_any<T>), dim3(cols, (unsigned)blocks), dim3(32, 8), 0, task);
    }
    if (out_w || out_b)
      AMP_LAUNCH_NEXT(quick, (add_blocks<T>), dim3(cols, 2), dim3(32, 32), 0, (const T *)task.partial, (int)blocks,
                      task.length, out_w ? (char *)amp__data(out_w) : (char *)NULL, out_w ? (int)out_w->dtype : 0,
                      out_b ? (char *)amp__data(out_b) : (char *)NULL, out_b ? (int)out_b->dtype : 0);
    return 0;
  });
  return rc;
}

template <class SHAPE>
static int backward(amp_call *c, const SHAPE &shape, bool rms, amp_tensor *mean, amp_tensor *rstd, amp_tensor *w,
                    amp_tensor *sum)
{
  amp_tensor *g = c->in[0], *x = c->in[1], *y = c->out[0], *grad_w = c->out[1], *grad_b = rms ? NULL : c->out[2],
             *also = c->out[3], *out, *out_w, *out_b, *s = NULL;
  job task;
  hold h = { { NULL }, 0, 0 };
  int rc = 0;
  memset((void *)&task, 0, sizeof task);
  sizes(&task, shape, x);
  if (task.length == 0) return 0;
  if (task.rows == 0) {
    if (grad_w && (rc = amp__cuda_fill_value(grad_w, 0)) < 0) return rc;
    return grad_b ? amp__cuda_fill_value(grad_b, 0) : 0;
  }
  task.x = dense(&h, x, &task.x_dtype);
  task.g = dense(&h, g, &task.g_dtype);
  task.w = dense(&h, w, &task.w_dtype);
  task.more = dense(&h, sum, &task.y_dtype, y->dtype);
  task.mean = (char *)dense(&h, mean, &task.stat_dtype, rstd->dtype);
  task.rstd = (char *)dense(&h, rstd, &task.stat_dtype);
  out = amp_take(y, y->dtype);
  out_w = grad_w ? amp_take(grad_w, grad_w->dtype) : NULL;
  out_b = grad_b ? amp_take(grad_b, grad_b->dtype) : NULL;
  bool f64 = rstd->dtype == AMP_FLOAT64 || x->dtype == AMP_FLOAT64;
  task.is_rms = rms;
  task.wide = out && amp_wide(task.x) && amp_wide(task.g) && amp_wide(task.more) && amp_wide(amp__data(out));
  task.y_dtype = y->dtype;
  bool quick = fast(&task, f64, ROW_BACK, task.y_dtype)
               && (task.x_dtype == AMP_FLOAT32 ? task.g_dtype != AMP_FLOAT64 : task.g_dtype == task.x_dtype);
  plan p = { 0, 0, 0, false };
  if (quick) p = backward_plan(&task);
  if (quick && also && task.x_dtype == AMP_FLOAT32 && out == y && narrows(also)) {
    task.half_copy = (char *)amp__data(also);
    task.half_dtype = also->dtype;
  }
  int64_t blocks = quick ? p.blocks : task.rows < CHUNKS * 8 ? (task.rows + 7) / 8 : (int64_t)CHUNKS;
  s = amp__cuda_scratch((size_t)blocks * 2 * (size_t)task.length * (f64 ? 8 : 4));
  if (!out || (grad_w && !out_w) || (grad_b && !out_b) || !s) h.rc = AMP_E_MEMORY;
  if (h.rc == 0) {
    task.y = (char *)amp__data(out);
    task.y_dtype = out->dtype;
    task.partial = (char *)amp__data(s);
    h.rc = launch_backward(task, p, quick, f64, blocks, out_w, out_b);
  }
  drop(&h);
  amp__free(s);
  rc = amp_give(y, out, h.rc);
  if (grad_w) rc = amp_give(grad_w, out_w, rc);
  if (grad_b) rc = amp_give(grad_b, out_b, rc);
  return rc == 0 && also && !task.half_copy ? amp__cuda_copy_to(also, y) : rc;
}

/* maxnorm / (norm + 1e-7) where the norm is above maxnorm, else 1 */
struct shrink {
  enum { flat = 0 };
  double most;
  template <class T> __device__ __forceinline__ T of(const T *a) const
  {
    return (double)a[0] > most ? (T)(most / ((double)a[0] + 1e-7)) : (T)1;
  }
};
struct times {
  enum { flat = 0 };
  template <class T> __device__ __forceinline__ T of(const T *a) const { return a[0] * a[1]; }
};

} // namespace

extern "C" {

int amp__cuda_layer_norm(amp_call *c)
{
  const args_layer_norm *args = AMP_ARGS(c, layer_norm);
  return forward(c, args->shape, args->eps, false, NULL, argument(c, 1), argument(c, 2), c->out[1], c->out[2]);
}
int amp__cuda_add_layer_norm(amp_call *c) /* input residual weight? bias? -> result sum statistics */
{
  const args_add_layer_norm *args = AMP_ARGS(c, add_layer_norm);
  amp_tensor *at = c->out[2], *part[2];
  for (int i = 0; i < 2; i++)
    part[i] = amp__tensor_view(at, at->ndim - 1, at->size + 1, at->stride + 1, at->offset + i * at->stride[0]);
  int rc = AMP_E_MEMORY;
  if (part[0] && part[1])
    rc = forward(c, args->shape, args->eps, false, c->in[1], argument(c, 2), argument(c, 3), part[0], part[1]);
  for (int i = 0; i < 2; i++) amp__free(part[i]);
  return rc;
}
int amp__cuda_rms_norm(amp_call *c)
{
  const args_rms_norm *args = AMP_ARGS(c, rms_norm);
  double eps = AMP_GIVEN(args->eps) ? args->eps : c->in[0]->dtype == AMP_FLOAT64 ? DBL_EPSILON : FLT_EPSILON;
  return forward(c, args->shape, eps, true, NULL, argument(c, 1), NULL, NULL, c->out[1]);
}
/* grad input mean rstd weight? sum?; shape also */
int amp__cuda_layer_norm_backward(amp_call *c)
{
  return backward(c, AMP_ARGS(c, layer_norm_backward)->shape, false, c->in[2], c->in[3], argument(c, 4),
                  argument(c, 5));
}
/* grad input rstd weight? sum? */
int amp__cuda_rms_norm_backward(amp_call *c)
{
  return backward(c, AMP_ARGS(c, rms_norm_backward)->shape, true, NULL, c->in[2], argument(c, 3), argument(c, 4));
}

int amp__cuda_renorm(amp_call *c) /* p dim maxnorm */
{
  const args_renorm *args = AMP_ARGS(c, renorm);
  amp_tensor *x = c->in[0], *norm;
  amp_slot slots[AMP_MAX_SLOT];
  args_lp_norm *length = (args_lp_norm *)slots;
  int n = 0, type = x->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  if (x->numel == 0) return 0;
  memset(slots, 0, sizeof slots);
  length->p = args->p;
  for (int i = 0; i < x->ndim; i++)
    if (i != args->dim) length->dim.at[n++] = i + 1;
  length->dim.n = n;
  length->keepdim = 1;
  length->dtype = type;
  if (!(norm = amp__cuda_op(AMP_OP_lp_norm, &x, 1, slots))) return AMP_E_MEMORY;
  shrink f = { args->maxnorm };
  times m;
  amp_tensor *in[2] = { x, norm };
  int rc = amp_by_float(type, [&](auto zero) {
    typedef decltype(zero) T;
    int code = amp_ew_run<T, T, 1>(norm, &norm, f);
    return code < 0 ? code : amp_ew_run<T, T, 2>(c->out[0], in, m);
  });
  amp__free(norm);
  return rc;
}
}
