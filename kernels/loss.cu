/*
** loss.cu: rows nll_loss, cross_entropy_index and their backward rows. Classes lie
** along dimension 2 (the only one of a vector); a row is one label's scores.
**
** cross_entropy reads the scores once forward, for a row's log of the sum of
** exponentials and its loss, and once backward, where it writes their gradient: into
** their own places where nobody will see them again (amp_bwd_loss.c), so a thread
** reads what it needs of its elements before it writes them.
** With classes beside each other a warp or a block takes a row, whatever the rows'
** strides are; else a thread does, beside its neighbours. Blocks leave sums in
** double, and the one that ends last adds them in a fixed order. A label out of
** range is noted, and its row counts for nothing.
*/
#include <type_traits>
#include "loss.cuh"

namespace {

__global__ void sum_weights(const char *w, int dtype, int64_t stride, int64_t n, double *out)
{
  double s = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) s += amp_load<double>(w, dtype, i * stride);
  s = amp_reduce_block<amp_sum>(s, 0.0);
  if (threadIdx.x == 0) *out = s;
}

/* -- nll_loss ------------------------------------------------------------------------- */

__global__ void __launch_bounds__(THREADS) nll(const job k)
{
  double loss = 0, part = 0;
  AMP_FOR(r, k.rows) {
    int64_t y = label_of(k, r);
    double w = y < 0 ? 0 : weight_of(k, y), l = y < 0 ? 0 : -w * amp_load<double>(k.x.p, k.x.dtype, amp_offset(k.x, r) + y * k.sx);
    if (k.reduction == NONE) amp_store<double>(k.each.p, k.each.dtype, amp_offset(k.each, r), l);
    loss += l;
    part += w;
  }
  finish(k, loss, part);
}

/* into zeros */
__global__ void __launch_bounds__(THREADS) nll_back(const job k)
{
  double q = k.reduction == NONE ? 0 : scale_of(k);
  AMP_FOR(r, k.rows) {
    int64_t y = label_of(k, r);
    if (y < 0) continue;
    double g = k.reduction == NONE ? amp_load<double>(k.each.p, k.each.dtype, amp_offset(k.each, r)) : q;
    amp_store<double>(k.y.p, k.y.dtype, amp_offset(k.y, r) + y * k.sy, -g * weight_of(k, y));
  }
}

/* -- cross_entropy: classes beside each other -------------------------------------------- */

template <class T, bool WARP> __global__ void __launch_bounds__(WARP ? 256 : 1024, WARP ? 4 : 1) ce_rows(const job k)
{
  AMP_ROW_LANES(WARP);
  double loss = 0, part = 0;
  const bool smooth = k.smooth != 0;
  AMP_ROW_LOOP(WARP, r, k.rows) {
    int64_t from = amp_offset(k.x, r), y = label_of(k, r);
    T m = -(T)INFINITY, s = 0, all = 0;
    const T base = base_of<T>(k, from);
    amp_row_each(from, from + k.classes, k.wide, lane, lanes,
      [&](int64_t i) {
        T v[8];
        amp_load_n<8>(v, k.x.p, k.x.dtype, i);
        amp_fold(m, s, v);
        if (smooth) {
#pragma unroll
          for (int j = 0; j < 8; j++) all += k.weight ? (T)weight_of(k, i + j - from) * (v[j] - base) : v[j] - base;
        }
      },
      [&](int64_t i) {
        T v[1] = { amp_load<T>(k.x.p, k.x.dtype, i) };
        amp_fold(m, s, v);
        if (smooth) all += k.weight ? (T)weight_of(k, i - from) * (v[0] - base) : v[0] - base;
      });
    amp_fold_row<WARP>(m, s);
    if (smooth) all = amp_row_reduce<WARP, amp_sum>(all, (T)0);
    if (lane == 0) {
      double w = y < 0 ? 0 : weight_of(k, y), l = y < 0 ? 0 : row_loss<T>(k, y, w, m, s, amp_load<T>(k.x.p, k.x.dtype, from + y), base, all);
      amp_store<T>(k.top, k.ldt, r, m);
      amp_store<T>(k.top, k.ldt, k.rows + r, s);
      if (k.reduction == NONE) amp_store<double>(k.each.p, k.each.dtype, amp_offset(k.each, r), l);
      loss += l;
      part += w;
    }
  }
  finish(k, loss, part);
}

template <class T, bool WARP> __global__ void __launch_bounds__(WARP ? 256 : 1024, WARP ? 4 : 1) ce_rows_back(const job k)
{
  AMP_ROW_LANES(WARP);
  double scale = k.reduction == NONE ? 0 : scale_of(k);
  AMP_ROW_LOOP(WARP, r, k.rows) {
    int64_t from = amp_offset(k.x, r), to = amp_offset(k.y, r) - from; /* `to` beside x's */
    slope<T> c = slope_of<T>(k, r, scale);
    const bool off = c.y < 0;
    amp_row_each(from, from + k.classes, k.wide && (to & 7) == 0, lane, lanes,
      [&](int64_t i) {
        T v[8];
        if (off) {
#pragma unroll
          for (int j = 0; j < 8; j++) v[j] = 0;
        }
        else {
          amp_load_n<8>(v, k.x.p, k.x.dtype, i);
#pragma unroll
          for (int j = 0; j < 8; j++) v[j] = slope_at(k, c, v[j], i + j - from);
        }
        amp_store_n<8>(k.y.p, k.y.dtype, i + to, v);
      },
      [&](int64_t i) { amp_store<T>(k.y.p, k.y.dtype, i + to, off ? (T)0 : slope_at(k, c, amp_load<T>(k.x.p, k.x.dtype, i), i - from)); });
  }
}

/* -- cross_entropy: a thread a row ----------------------------------------------------------- */

template <class T> __global__ void __launch_bounds__(THREADS, 4) ce_columns(const job k)
{
  double loss = 0, part = 0;
  AMP_FOR(r, k.rows) {
    int64_t from = amp_offset(k.x, r), y = label_of(k, r);
    T m = -(T)INFINITY, s = 0, all = 0;
    const T base = base_of<T>(k, from);
    for (int64_t c = 0; c < k.classes; c++) {
      T v[1] = { amp_load<T>(k.x.p, k.x.dtype, from + c * k.sx) };
      amp_fold(m, s, v);
      if (k.smooth != 0) all += k.weight ? (T)weight_of(k, c) * (v[0] - base) : v[0] - base;
    }
    if (m == -(T)INFINITY) s = (T)NAN;
    double w = y < 0 ? 0 : weight_of(k, y), l = y < 0 ? 0 : row_loss<T>(k, y, w, m, s, amp_load<T>(k.x.p, k.x.dtype, from + y * k.sx), base, all);
    amp_store<T>(k.top, k.ldt, r, m);
    amp_store<T>(k.top, k.ldt, k.rows + r, s);
    if (k.reduction == NONE) amp_store<double>(k.each.p, k.each.dtype, amp_offset(k.each, r), l);
    loss += l;
    part += w;
  }
  finish(k, loss, part);
}

template <class T> __global__ void __launch_bounds__(THREADS, 4) ce_columns_back(const job k)
{
  double scale = k.reduction == NONE ? 0 : scale_of(k);
  AMP_FOR(r, k.rows) {
    int64_t from = amp_offset(k.x, r), to = amp_offset(k.y, r);
    slope<T> c = slope_of<T>(k, r, scale);
    for (int64_t i = 0; i < k.classes; i++)
      amp_store<T>(k.y.p, k.y.dtype, to + i * k.sy, c.y < 0 ? (T)0 : slope_at(k, c, amp_load<T>(k.x.p, k.x.dtype, from + i * k.sx), i));
  }
}

/* May the kernels of loss.cuh take it? */
static bool quick(const job *k, const amp_tensor *x, const amp_tensor *y)
{
  const int v = x->dtype == AMP_FLOAT32 ? 4 : 8;
  if (!k->wide || x->dtype == AMP_FLOAT64 || k->classes < 64 || k->classes > INT32_MAX / 2 || (k->smooth != 0 && k->weight) || k->sx != 1 || (y && (y->dtype != x->dtype || k->sy != 1))) return false;
  for (int d = 0; y && d < k->x.ndim; d++) if ((k->x.stride[d] - k->y.stride[d]) % v) return false;
  return true;
}
static int threads_of(const job *k, int v)
{
  int t = k->rows < 4 * (int64_t)amp__cuda_here()->sms ? 512 : 256;
  while (t > 128 && t * UNROLL * v > k->classes) t /= 2;
  return t;
}
/* blocks that are all on the card at once, with equal numbers of rows */
static unsigned even(int64_t rows, int64_t most)
{
  int64_t per = (rows + most - 1) / most;
  return (unsigned)(per ? (rows + per - 1) / per : 1);
}
template <int D> static int fast(const job &k)
{
  const int t = threads_of(&k, amp_lane<D>::V), sms = amp__cuda_here()->sms;
  if (k.classes <= AMP_ROW_WARP) AMP_LAUNCH((ce_fast<D, true>), even((k.rows + 7) / 8, sms * 4), 256, 0, k);
  else AMP_LAUNCH((ce_fast<D, false>), even(k.rows, (int64_t)sms * (1024 / t)), t, 0, k);
  return 0;
}
template <int D> static int fast_back(const job &k)
{
  const int t = threads_of(&k, amp_lane<D>::V);
  const int64_t sms = amp__cuda_here()->sms, turns = k.classes / (t * UNROLL * amp_lane<D>::V);
  int64_t share = k.rows ? sms * 8 / k.rows : 1;
  share = share > turns ? turns : share;
  if (k.classes <= AMP_ROW_WARP) AMP_LAUNCH((ce_fast_back<D, true>), amp_grid(k.rows, 8, 16), 256, 0, k);
  else AMP_LAUNCH((ce_fast_back<D, false>), dim3(amp_grid(k.rows, 1, 4096), (unsigned)(share < 1 ? 1 : share)), t, 0, k);
  return 0;
}
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
    if (d != cd) { a.size[n] = t->size[d]; a.stride[n++] = t->stride[d]; }
  a.ndim = n;
  if (t->ndim && t->size[cd] > 0) a.numel /= t->size[cd];
  return a;
}

/* what all four rows have: scores (or their gradient), labels, weights, reduction, ignore_index */
static job begin(const amp_call *c, const amp_tensor *x, const amp_tensor *target, const amp_tensor *w, int64_t reduction, int64_t ignore)
{
  job k;
  memset((void *)&k, 0, sizeof k);
  k.classes = x->ndim ? x->size[x->ndim > 1 ? 1 : 0] : 1;
  k.target = amp_arg_of(target);
  k.rows = target->numel;
  k.reduction = (int32_t)reduction;
  k.ignore = ignore;
  k.op = c->id;
  k.trouble = amp_trouble_cell();
  if (w) { k.weight = (const char *)amp__data(w); k.wdt = w->dtype; k.sw = w->ndim ? w->stride[0] : 1; }
  return k;
}

/* the results of a forward row: loss, total, sums of blocks; the scratch to be freed */
static amp_tensor *results(job *k, const amp_tensor *out, const amp_tensor *total, unsigned blocks)
{
  amp_tensor *s = amp__cuda_scratch((2 * (size_t)blocks + 1) * sizeof(double));
  if (s == NULL || !(k->ticket = amp_ticket(amp__cuda_here()))) { amp__free(s); return NULL; }
  k->partial = (double *)amp__data(s);
  if (k->reduction == NONE) k->each = amp_arg_of(out);
  k->out = (char *)amp__data(out);
  k->odt = out->dtype;
  k->sum = (char *)amp__data(total);
  k->tdt = total->dtype;
  return s;
}

static void gradient(job *k, const amp_tensor *g, const amp_tensor *total)
{
  if (k->reduction == NONE) k->each = amp_arg_of(g);
  k->grad = (const char *)amp__data(g);
  k->gdt = g->dtype;
  k->total = (const char *)amp__data(total);
  k->tdt = total->dtype;
}

/* the sum of all weights, where labels are smoothed */
static void weigh(job *k, double *cell)
{
  if (k->smooth == 0 || k->weight == NULL) return;
  AMP_LAUNCH(sum_weights, 1, 256, 0, k->weight, (int)k->wdt, k->sw, k->classes, cell);
  k->wsum = cell;
}

static amp_tensor *argument(const amp_call *c, int i) { return i < c->nin ? c->in[i] : NULL; }

} // namespace

extern "C" {

int amp__cuda_nll_loss(amp_call *c)
{
  job k = begin(c, c->in[0], c->in[1], argument(c, 2), c->a[0].i, c->a[1].i);
  k.x = rows_of(c->in[0], &k.sx);
  unsigned grid = amp_grid(k.rows, THREADS, 4);
  amp_tensor *s = results(&k, c->out[0], c->out[1], grid);
  if (s == NULL) return AMP_E_MEMORY;
  AMP_LAUNCH(nll, grid, THREADS, 0, k);
  amp__free(s);
  return 0;
}

/* grad target weight? total */
int amp__cuda_nll_loss_backward(amp_call *c)
{
  amp_tensor *y = c->out[0];
  job k = begin(c, y, c->in[1], argument(c, 2), c->a[9].i, c->a[10].i);
  k.y = rows_of(y, &k.sy);
  gradient(&k, c->in[0], c->in[3]);
  int rc = amp__cuda_fill_value(y, 0);
  if (rc == 0 && k.rows > 0) AMP_LAUNCH(nll_back, amp_grid(k.rows, THREADS), THREADS, 0, k);
  return rc;
}

int amp__cuda_cross_entropy_index(amp_call *c)
{
  amp_tensor *x = c->in[0], *top = c->out[1], *flat = amp_take(top, top->dtype);
  job k = begin(c, x, c->in[1], argument(c, 2), c->a[0].i, c->a[1].i);
  k.smooth = c->a[2].f;
  k.x = rows_of(x, &k.sx);
  k.wide = amp_wide(k.x.p);
  unsigned most = amp_grid(k.rows, 1, 16);
  amp_tensor *s = flat ? results(&k, c->out[0], c->out[2], most) : NULL;
  if (s == NULL) { amp__free(flat); return AMP_E_MEMORY; }
  k.top = (char *)amp__data(flat);
  k.ldt = flat->dtype;
  weigh(&k, k.partial + 2 * most);
  if (quick(&k, x, NULL)) by_kind(x->dtype, [&](auto kind) { return fast<kind.value>(k); });
  else amp_by_float(x->dtype, [&](auto zero) {
    typedef decltype(zero) T;
    if (k.sx == 1 || k.classes == 1) AMP_ROW_LAUNCH(ce_rows, T, k.rows, k.classes, k);
    else AMP_LAUNCH((ce_columns<T>), amp_grid(k.rows, THREADS), THREADS, 0, k);
    return 0;
  });
  amp__free(s);
  return amp_give(top, flat, 0);
}

/* grad input target weight? top total */
int amp__cuda_cross_entropy_backward(amp_call *c)
{
  amp_tensor *x = c->in[1], *y = c->out[0], *top, *s = NULL;
  if (x->numel == 0) return 0;
  job k = begin(c, x, c->in[2], c->in[3], c->a[0].i, c->a[1].i);
  k.smooth = c->a[2].f;
  k.x = rows_of(x, &k.sx);
  k.y = rows_of(y, &k.sy);
  k.wide = amp_wide(k.x.p) && amp_wide(k.y.p);
  gradient(&k, c->in[0], c->in[5]);
  if (!(top = amp__cuda_dense(c->in[4], c->in[4]->dtype))) return AMP_E_MEMORY;
  if (k.smooth != 0 && k.weight && !(s = amp__cuda_scratch(sizeof(double)))) { amp__free(top); return AMP_E_MEMORY; }
  k.top = (char *)amp__data(top);
  k.ldt = top->dtype;
  if (s) weigh(&k, (double *)amp__data(s));
  if (quick(&k, x, y)) by_kind(x->dtype, [&](auto kind) { return fast_back<kind.value>(k); });
  else amp_by_float(x->dtype, [&](auto zero) {
    typedef decltype(zero) T;
    if ((k.sx == 1 && k.sy == 1) || k.classes == 1) AMP_ROW_LAUNCH(ce_rows_back, T, k.rows, k.classes, k);
    else AMP_LAUNCH((ce_columns_back<T>), amp_grid(k.rows, THREADS), THREADS, 0, k);
    return 0;
  });
  amp__free(s);
  amp__free(top);
  return 0;
}

}
