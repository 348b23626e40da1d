/*
** loss.cu: rows nll_loss, cross_entropy_index and their backward rows. Classes lie
** along dimension 2 (the only one of a vector); a row is one label's scores.
**
** cross_entropy reads the scores once forward, for a row's log of the sum of
** exponentials and its loss, and once backward, where it writes their gradient: into
** their own places where they are not read again (ops/loss/loss_derivative.c), so a thread
** reads what it needs of its elements before it writes them.
** With classes beside each other a warp or a block takes a row, whatever the rows'
** strides are; else a thread does, beside its neighbours. Blocks leave sums in
** double, and the one that ends last adds them in a fixed order. A label out of
** range is noted, and its row counts for nothing.
**
** cross_entropy moves 4 bytes a score in float32 forward and 8 backward, half of that in 16 bits; scores stay in
** registers, a block's sums meet in shared memory. Memory's speed bounds it.
*/
#include <type_traits>
#include "loss/loss.cuh"

namespace {

__global__ void sum_weights(const char *w, int dtype, int64_t stride, int64_t n, double *out)
{
  double s = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) s += amp_load<double>(w, dtype, i * stride);
  s = amp_reduce_block<amp_sum>(s, 0.0);
  if (threadIdx.x == 0) *out = s;
}

/* -- nll_loss ------------------------------------------------------------------------- */

__global__ void __launch_bounds__(THREADS) nll(const job task)
{
  double loss = 0, part = 0;
  AMP_FOR(r, task.rows)
  {
    int64_t y = label_of(task, r);
    double w = y < 0 ? 0 : weight_of(task, y),
           l = y < 0 ? 0 : -w * amp_load<double>(task.x.p, task.x.dtype, amp_offset(task.x, r) + y * task.sx);
    if (task.reduction == NONE) amp_store<double>(task.each.p, task.each.dtype, amp_offset(task.each, r), l);
    loss += l;
    part += w;
  }
  finish(task, loss, part);
}

/* into zeros */
__global__ void __launch_bounds__(THREADS) nll_back(const job task)
{
  double q = task.reduction == NONE ? 0 : scale_of(task);
  AMP_FOR(r, task.rows)
  {
    int64_t y = label_of(task, r);
    if (y < 0) continue;
    double g = task.reduction == NONE ? amp_load<double>(task.each.p, task.each.dtype, amp_offset(task.each, r)) : q;
    amp_store<double>(task.y.p, task.y.dtype, amp_offset(task.y, r) + y * task.sy, -g * weight_of(task, y));
  }
}

/* -- cross_entropy: classes beside each other -------------------------------------------- */

template <class T, bool WARP> __global__ void __launch_bounds__(WARP ? 256 : 1024, WARP ? 4 : 1) ce_rows(const job task)
{
  AMP_ROW_LANES(WARP);
  double loss = 0, part = 0;
  const bool smooth = task.smooth != 0;
  AMP_ROW_LOOP(WARP, r, task.rows)
  {
    int64_t from = amp_offset(task.x, r), y = label_of(task, r);
    T m = -(T)INFINITY, s = 0, all = 0;
    const T base = base_of<T>(task, from);
    amp_row_each(
        from, from + task.classes, task.wide, lane, lanes,
        [&](int64_t i) {
          T v[8];
          amp_load_n<8>(v, task.x.p, task.x.dtype, i);
          amp_fold(m, s, v);
          if (smooth) {
#pragma unroll
            for (int j = 0; j < 8; j++)
              all += task.weight ? (T)weight_of(task, i + j - from) * (v[j] - base) : v[j] - base;
          }
        },
        [&](int64_t i) {
          T v[1] = { amp_load<T>(task.x.p, task.x.dtype, i) };
          amp_fold(m, s, v);
          if (smooth) all += task.weight ? (T)weight_of(task, i - from) * (v[0] - base) : v[0] - base;
        });
    amp_fold_row<WARP>(m, s);
    if (smooth) all = amp_row_reduce<WARP, amp_sum>(all, (T)0);
    if (lane == 0) {
      double w = y < 0 ? 0 : weight_of(task, y),
             l = y < 0 ? 0 : row_loss<T>(task, y, w, m, s, amp_load<T>(task.x.p, task.x.dtype, from + y), base, all);
      amp_store<T>(task.top, task.ldt, r, m);
      amp_store<T>(task.top, task.ldt, task.rows + r, s);
      if (task.reduction == NONE) amp_store<double>(task.each.p, task.each.dtype, amp_offset(task.each, r), l);
      loss += l;
      part += w;
    }
  }
  finish(task, loss, part);
}

template <class T, bool WARP>
__global__ void __launch_bounds__(WARP ? 256 : 1024, WARP ? 4 : 1) ce_rows_back(const job task)
{
  AMP_ROW_LANES(WARP);
  double scale = task.reduction == NONE ? 0 : scale_of(task);
  AMP_ROW_LOOP(WARP, r, task.rows)
  {
    int64_t from = amp_offset(task.x, r), to = amp_offset(task.y, r) - from; /* `to` beside x's */
    slope<T> c = slope_of<T>(task, r, scale);
    const bool off = c.y < 0;
    amp_row_each(
        from, from + task.classes, task.wide && (to & 7) == 0, lane, lanes,
        [&](int64_t i) {
          T v[8];
          if (off) {
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = 0;
          } else {
            amp_load_n<8>(v, task.x.p, task.x.dtype, i);
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = slope_at(task, c, v[j], i + j - from);
          }
          amp_store_n<8>(task.y.p, task.y.dtype, i + to, v);
        },
        [&](int64_t i) {
          amp_store<T>(task.y.p, task.y.dtype, i + to,
                       off ? (T)0 : slope_at(task, c, amp_load<T>(task.x.p, task.x.dtype, i), i - from));
        });
  }
}

/* -- cross_entropy: a thread a row ----------------------------------------------------------- */

template <class T> __global__ void __launch_bounds__(THREADS, 4) ce_columns(const job task)
{
  double loss = 0, part = 0;
  AMP_FOR(r, task.rows)
  {
    int64_t from = amp_offset(task.x, r), y = label_of(task, r);
    T m = -(T)INFINITY, s = 0, all = 0;
    const T base = base_of<T>(task, from);
    for (int64_t c = 0; c < task.classes; c++) {
      T v[1] = { amp_load<T>(task.x.p, task.x.dtype, from + c * task.sx) };
      amp_fold(m, s, v);
      if (task.smooth != 0) all += task.weight ? (T)weight_of(task, c) * (v[0] - base) : v[0] - base;
    }
    if (m == -(T)INFINITY) s = (T)NAN;
    double w = y < 0 ? 0 : weight_of(task, y),
           l = y < 0
                   ? 0
                   : row_loss<T>(task, y, w, m, s, amp_load<T>(task.x.p, task.x.dtype, from + y * task.sx), base, all);
    amp_store<T>(task.top, task.ldt, r, m);
    amp_store<T>(task.top, task.ldt, task.rows + r, s);
    if (task.reduction == NONE) amp_store<double>(task.each.p, task.each.dtype, amp_offset(task.each, r), l);
    loss += l;
    part += w;
  }
  finish(task, loss, part);
}

template <class T> __global__ void __launch_bounds__(THREADS, 4) ce_columns_back(const job task)
{
  double scale = task.reduction == NONE ? 0 : scale_of(task);
  AMP_FOR(r, task.rows)
  {
    int64_t from = amp_offset(task.x, r), to = amp_offset(task.y, r);
    slope<T> c = slope_of<T>(task, r, scale);
    for (int64_t i = 0; i < task.classes; i++)
      amp_store<T>(task.y.p, task.y.dtype, to + i * task.sy,
                   c.y < 0 ? (T)0 : slope_at(task, c, amp_load<T>(task.x.p, task.x.dtype, from + i * task.sx), i));
  }
}

/* May the kernels of loss.cuh take it? */
static bool quick(const job *task, const amp_tensor *x, const amp_tensor *y)
{
  const int v = x->dtype == AMP_FLOAT32 ? 4 : 8;
  if (!task->wide || x->dtype == AMP_FLOAT64 || task->classes < 64 || task->classes > INT32_MAX / 2
      || (task->smooth != 0 && task->weight) || task->sx != 1 || (y && (y->dtype != x->dtype || task->sy != 1)))
    return false;
  for (int d = 0; y && d < task->x.ndim; d++)
    if ((task->x.stride[d] - task->y.stride[d]) % v) return false;
  return true;
}
static int threads_of(const job *task, int v)
{
  int t = task->rows < 4 * (int64_t)amp__cuda_here()->sms ? 512 : 256;
  while (t > 128 && t * UNROLL * v > task->classes) t /= 2;
  return t;
}
/* blocks that are all on the card at once, with equal numbers of rows */
static unsigned even(int64_t rows, int64_t most)
{
  int64_t per = (rows + most - 1) / most;
  return (unsigned)(per ? (rows + per - 1) / per : 1);
}
template <int D> static int fast(const job &task)
{
  const int t = threads_of(&task, amp_lane<D>::V), sms = amp__cuda_here()->sms;
  if (task.classes <= AMP_ROW_WARP) AMP_LAUNCH((ce_fast<D, true>), even((task.rows + 7) / 8, sms * 4), 256, 0, task);
  else AMP_LAUNCH((ce_fast<D, false>), even(task.rows, (int64_t)sms * (1024 / t)), t, 0, task);
  return 0;
}
template <int D> static int fast_back(const job &task)
{
  const int t = threads_of(&task, amp_lane<D>::V);
  const int64_t sms = amp__cuda_here()->sms, turns = task.classes / (t * UNROLL * amp_lane<D>::V);
  int64_t share = task.rows ? sms * 8 / task.rows : 1;
  share = share > turns ? turns : share;
  if (task.classes <= AMP_ROW_WARP) AMP_LAUNCH((ce_fast_back<D, true>), amp_grid(task.rows, 8, 16), 256, 0, task);
  else
    AMP_LAUNCH((ce_fast_back<D, false>), dim3(amp_grid(task.rows, 1, 4096), (unsigned)(share < 1 ? 1 : share)), t, 0,
               task);
  return 0;
}
/* f(dtype) of float32 and the two 16-bit floats */
static_assert(AMP_DTYPE_COUNT == 12, "by_kind knows the floats but float64");
template <class F> static int by_kind(int dtype, F f)
{
  switch (dtype) {
  case AMP_FLOAT32: return f(std::integral_constant<int, AMP_FLOAT32>());
  case AMP_FLOAT16: return f(std::integral_constant<int, AMP_FLOAT16>());
  default: return f(std::integral_constant<int, AMP_BFLOAT16>());
  }
}

/* -- Calls --------------------------------------------------------------------------------------- */

/* t's rows: its dimensions without that of classes, whose stride is *step */
static amp_arg rows_of(const amp_tensor *t, int64_t *step)
{
  amp_arg a = amp_arg_of(t);
  int cd = t->ndim > 1 ? 1 : 0, n = 0;
  *step = t->ndim ? t->stride[cd] : 1;
  for (int d = 0; d < t->ndim; d++)
    if (d != cd) {
      a.size[n] = t->size[d];
      a.stride[n++] = t->stride[d];
    }
  a.ndim = n;
  if (t->ndim && t->size[cd] > 0) a.numel /= t->size[cd];
  return a;
}

/* what all four rows have: scores (or their gradient), labels, weights, reduction, ignore_index */
static job begin(const amp_call *c, const amp_tensor *x, const amp_tensor *target, const amp_tensor *w,
                 int64_t reduction, int64_t ignore)
{
  job task;
  memset((void *)&task, 0, sizeof task);
  task.classes = x->ndim ? x->size[x->ndim > 1 ? 1 : 0] : 1;
  task.target = amp_arg_of(target);
  task.rows = target->numel;
  task.reduction = (int32_t)reduction;
  task.ignore = ignore;
  task.op = c->id;
  task.trouble = amp_trouble_cell();
  if (w) {
    task.weight = (const char *)amp__data(w);
    task.wdt = w->dtype;
    task.sw = w->ndim ? w->stride[0] : 1;
  }
  return task;
}

/* the results of a forward row: loss, total, sums of blocks; the scratch to be freed */
static amp_tensor *results(job *task, const amp_tensor *out, const amp_tensor *total, unsigned blocks)
{
  amp_tensor *s = amp__cuda_scratch((2 * (size_t)blocks + 1) * sizeof(double));
  if (s == NULL || !(task->ticket = amp_ticket(amp__cuda_here()))) {
    amp__free(s);
    return NULL;
  }
  task->partial = (double *)amp__data(s);
  if (task->reduction == NONE) task->each = amp_arg_of(out);
  task->out = (char *)amp__data(out);
  task->odt = out->dtype;
  task->sum = (char *)amp__data(total);
  task->tdt = total->dtype;
  return s;
}

static void gradient(job *task, const amp_tensor *g, const amp_tensor *total)
{
  if (task->reduction == NONE) task->each = amp_arg_of(g);
  task->grad = (const char *)amp__data(g);
  task->gdt = g->dtype;
  task->total = (const char *)amp__data(total);
  task->tdt = total->dtype;
}

/* the sum of all weights, where labels are smoothed */
static void weigh(job *task, double *cell)
{
  if (task->smooth == 0 || task->weight == NULL) return;
  AMP_LAUNCH(sum_weights, 1, 256, 0, task->weight, (int)task->wdt, task->sw, task->classes, cell);
  task->wsum = cell;
}

static amp_tensor *argument(const amp_call *c, int i) { return i < c->nin ? c->in[i] : NULL; }

} // namespace

extern "C" {

int amp__cuda_nll_loss(amp_call *c)
{
  const args_nll_loss *args = AMP_ARGS(c, nll_loss);
  job task = begin(c, c->in[0], c->in[1], argument(c, 2), args->reduction, args->ignore_index);
  task.x = rows_of(c->in[0], &task.sx);
  unsigned grid = amp_grid(task.rows, THREADS, 4);
  amp_tensor *s = results(&task, c->out[0], c->out[1], grid);
  if (s == NULL) return AMP_E_MEMORY;
  AMP_LAUNCH(nll, grid, THREADS, 0, task);
  amp__free(s);
  return 0;
}

/* grad target weight? total */
int amp__cuda_nll_loss_backward(amp_call *c)
{
  const args_nll_loss_backward *args = AMP_ARGS(c, nll_loss_backward);
  amp_tensor *y = c->out[0];
  job task = begin(c, y, c->in[1], argument(c, 2), args->reduction, args->ignore_index);
  task.y = rows_of(y, &task.sy);
  gradient(&task, c->in[0], c->in[3]);
  int rc = amp__cuda_fill_value(y, 0);
  if (rc == 0 && task.rows > 0) AMP_LAUNCH(nll_back, amp_grid(task.rows, THREADS), THREADS, 0, task);
  return rc;
}

int amp__cuda_cross_entropy_index(amp_call *c)
{
  const args_cross_entropy_index *args = AMP_ARGS(c, cross_entropy_index);
  amp_tensor *x = c->in[0], *top = c->out[1], *flat = amp_take(top, top->dtype);
  job task = begin(c, x, c->in[1], argument(c, 2), args->reduction, args->ignore_index);
  task.smooth = args->label_smoothing;
  task.x = rows_of(x, &task.sx);
  task.wide = amp_wide(task.x.p);
  unsigned most = amp_grid(task.rows, 1, 16);
  amp_tensor *s = flat ? results(&task, c->out[0], c->out[2], most) : NULL;
  if (s == NULL) {
    amp__free(flat);
    return AMP_E_MEMORY;
  }
  task.top = (char *)amp__data(flat);
  task.ldt = flat->dtype;
  weigh(&task, task.partial + 2 * most);
  if (quick(&task, x, NULL)) by_kind(x->dtype, [&](auto kind) { return fast<kind.value>(task); });
  else
    amp_by_float(x->dtype, [&](auto zero) {
      typedef decltype(zero) T;
      if (task.sx == 1 || task.classes == 1) AMP_ROW_LAUNCH(ce_rows, T, task.rows, task.classes, task);
      else AMP_LAUNCH((ce_columns<T>), amp_grid(task.rows, THREADS), THREADS, 0, task);
      return 0;
    });
  amp__free(s);
  return amp_give(top, flat, 0);
}

/* grad input target weight? top total */
int amp__cuda_cross_entropy_backward(amp_call *c)
{
  const args_cross_entropy_backward *args = AMP_ARGS(c, cross_entropy_backward);
  amp_tensor *x = c->in[1], *y = c->out[0], *top, *s = NULL;
  if (x->numel == 0) return 0;
  job task = begin(c, x, c->in[2], c->in[3], args->reduction, args->ignore_index);
  task.smooth = args->label_smoothing;
  task.x = rows_of(x, &task.sx);
  task.y = rows_of(y, &task.sy);
  task.wide = amp_wide(task.x.p) && amp_wide(task.y.p);
  gradient(&task, c->in[0], c->in[5]);
  if (!(top = amp__cuda_dense(c->in[4], c->in[4]->dtype))) return AMP_E_MEMORY;
  if (task.smooth != 0 && task.weight && !(s = amp__cuda_scratch(sizeof(double)))) {
    amp__free(top);
    return AMP_E_MEMORY;
  }
  task.top = (char *)amp__data(top);
  task.ldt = top->dtype;
  if (s) weigh(&task, (double *)amp__data(s));
  if (quick(&task, x, y)) by_kind(x->dtype, [&](auto kind) { return fast_back<kind.value>(task); });
  else
    amp_by_float(x->dtype, [&](auto zero) {
      typedef decltype(zero) T;
      if ((task.sx == 1 && task.sy == 1) || task.classes == 1)
        AMP_ROW_LAUNCH(ce_rows_back, T, task.rows, task.classes, task);
      else AMP_LAUNCH((ce_columns_back<T>), amp_grid(task.rows, THREADS), THREADS, 0, task);
      return 0;
    });
  amp__free(s);
  amp__free(top);
  return 0;
}
}
