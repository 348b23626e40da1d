/*
** loss.cuh: what the losses of labels share: a launch's job, a row's label, loss and
** gradient; cross_entropy's kernels of float32 and 16-bit rows.
**
** Those take classes that lie beside each other in vectors of 16 bytes. A thread
** has the next UNROLL vectors on their way while it works on the ones before, and
** the few elements before and behind the whole vectors go to single lanes. A warp or
** a block takes a row; backward several blocks may share one. Not for labels smoothed
** with weights.
*/
#ifndef AMP_LOSS_CUH
#define AMP_LOSS_CUH
#include "rows.cuh"

namespace {

enum { NONE, MEAN, SUM, THREADS = 256 };

typedef struct job {
  amp_arg x, y;            /* rows of scores and of their gradient: without the dimension of classes */
  amp_arg target, each;    /* labels; a value a row: the loss, or its gradient (no reduction) */
  int64_t rows, classes, sx, sy, ignore;
  int32_t reduction, wide, op, wdt, tdt;
  double smooth;
  const char *weight, *grad, *total;  /* gradient of the reduced loss; total of weights (backward) */
  int32_t gdt, odt, ldt, sums_total;
  int64_t sw;              /* stride of weight */
  char *top, *out, *sum;   /* top: largest scores of rows in C order, then their sums of exponentials about those; the results */
  double *partial, *wsum;  /* [blocks][2]; of all weights, or NULL: classes */
  unsigned *ticket;
  amp_trouble *trouble;
} job;

__device__ __forceinline__ int64_t label_of(const job &k, int64_t r)
{
  int64_t y = amp_load<int64_t>(k.target.p, k.target.dtype, amp_offset(k.target, r));
  if (y == k.ignore) return -1;
  if (y < 1 || y > k.classes) { amp_note(k.trouble, AMP_TROUBLE_LABEL, k.op, y, k.classes, r); return -1; }
  return y - 1;
}
__device__ __forceinline__ double weight_of(const job &k, int64_t c) { return k.weight ? amp_load<double>(k.weight, k.wdt, c * k.sw) : 1.0; }

/* loss and weight are this thread's sums; the last block leaves the results */
__device__ void finish(const job &k, double loss, double part)
{
  loss = amp_reduce_block<amp_sum>(loss, 0.0);
  part = amp_reduce_block<amp_sum>(part, 0.0);
  if (threadIdx.x == 0) { k.partial[2 * blockIdx.x] = loss; k.partial[2 * blockIdx.x + 1] = part; }
  if (!amp_last_block(k.ticket)) return;
  loss = part = 0;
  for (int i = threadIdx.x; i < (int)gridDim.x; i += blockDim.x) { loss += k.partial[2 * i]; part += k.partial[2 * i + 1]; }
  loss = amp_reduce_block<amp_sum>(loss, 0.0);
  part = amp_reduce_block<amp_sum>(part, 0.0);
  if (threadIdx.x != 0) return;
  if (k.reduction != NONE) amp_store<double>(k.out, k.odt, 0, k.reduction == MEAN ? loss / part : loss);
  if (k.sum) amp_store<double>(k.sum, k.tdt, 0, part);
}

__device__ __forceinline__ double scale_of(const job &k)
{
  double g = amp_load<double>(k.grad, k.gdt, 0);
  return k.reduction == MEAN ? g / amp_load<double>(k.total, k.tdt, 0) : g;
}

/* -- A row -------------------------------------------------------------------------------- */

/* what scores are summed about, for labels smoothed: the first one */
template <class T> __device__ __forceinline__ T base_of(const job &k, int64_t from)
{
  T v = k.smooth != 0 ? amp_load<T>(k.x.p, k.x.dtype, from) : (T)0;
  return isfinite(v) ? v : (T)0;
}

/* loss of a row from its label's score and the weighted sum of all scores less base */
template <class T> __device__ __forceinline__ double row_loss(const job &k, int64_t y, double w, T m, T s, T at, T base, T all)
{
  double above = (double)log(s), l = (1 - k.smooth) * w * (above + ((double)m - (double)at)), each = k.wsum ? *k.wsum : (double)k.classes;
  if (k.smooth != 0) l += k.smooth / (double)k.classes * (each * above + (each * ((double)m - (double)base) - (double)all));
  return l;
}

/* q (all softmax - each w), and less `take` at the label */
template <class T> struct slope { T most, all, each, take; int64_t y; };
template <class T> __device__ __forceinline__ slope<T> slope_of(const job &k, int64_t r, double scale)
{
  slope<T> c;
  c.y = label_of(k, r);
  double q = k.reduction == NONE ? amp_load<double>(k.each.p, k.each.dtype, amp_offset(k.each, r)) : scale, w = c.y < 0 ? 0 : weight_of(k, c.y);
  double each = k.smooth / (double)k.classes;
  c.most = amp_load<T>(k.top, k.ldt, r);
  c.all = (T)(q * ((1 - k.smooth) * w + each * (k.wsum ? *k.wsum : (double)k.classes)) / (double)amp_load<T>(k.top, k.ldt, k.rows + r));
  c.each = (T)(q * each);
  c.take = (T)(q * (1 - k.smooth) * w);
  return c;
}
template <class T> __device__ __forceinline__ T slope_at(const job &k, const slope<T> &c, T x, int64_t i)
{
  T d = c.all * exp(x - c.most);
  if (k.smooth != 0) d -= k.weight ? c.each * (T)weight_of(k, i) : c.each;
  return i == c.y ? d - c.take : d;
}

/* -- cross_entropy of float32 and 16-bit rows ------------------------------------------- */

enum { UNROLL = 4 };

/* A row: whole vectors `count` from p on, `head` elements before and `tail` behind them */
template <int D> struct span { const uint4 *p; int64_t begin; int count, head, tail; };
template <int D> __device__ __forceinline__ span<D> span_of(const char *p, int64_t from, int64_t n)
{
  enum { V = amp_lane<D>::V };
  int64_t vb = (from + V - 1) / V, ve = (from + n) / V;
  span<D> s = { (const uint4 *)p + vb, vb * V, (int)(ve - vb), (int)(vb * V - from), (int)(from + n - ve * V) };
  return s;
}
template <int D> __device__ __forceinline__ void span_load(uint4 (&w)[UNROLL], const span<D> &s, int j, int lanes)
{
#pragma unroll
  for (int u = 0; u < UNROLL; u++) w[u] = j + u * lanes < s.count ? s.p[j + u * lanes] : amp_lowest<D>();
}
/* the elements of two of the vectors, whose room goes to the next ones of the row */
template <int D> __device__ __forceinline__ void span_take(float (&v)[2 * amp_lane<D>::V], uint4 (&w)[UNROLL], int u, const span<D> &s, int j, int lanes)
{
  enum { V = amp_lane<D>::V };
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float some[V];
    amp_unpack<D>(some, w[u + i]);
#pragma unroll
    for (int q = 0; q < V; q++) v[i * V + q] = some[q];
    const int place = j + (UNROLL + u + i) * lanes;
    w[u + i] = place < s.count ? s.p[place] : amp_lowest<D>();
  }
}
/* the element beside the whole vectors that is lane's, counted from the row's begin; -1: none */
template <int D> __device__ __forceinline__ int64_t span_edge(const span<D> &s, int lane)
{
  if (lane < s.head) return lane;
  return lane >= 8 && lane < 8 + s.tail ? (int64_t)s.head + (int64_t)s.count * amp_lane<D>::V + lane - 8 : -1;
}

template <int D, bool WARP> __global__ void __launch_bounds__(WARP ? 256 : 512, WARP ? 4 : 2) ce_fast(const job k)
{
  enum { V = amp_lane<D>::V };
  __shared__ float parts[2][16][3];
  AMP_ROW_LANES(WARP);
  double loss = 0, part = 0;
  const bool smooth = k.smooth != 0;
  int turn = 0;
  AMP_ROW_LOOP(WARP, r, k.rows) {
    const int64_t from = amp_offset(k.x, r);
    const span<D> row = span_of<D>(k.x.p, from, k.classes);
    uint4 now[UNROLL];
    span_load(now, row, lane, lanes);
    int64_t y = -1;
    const float base = base_of<float>(k, from);
    float at = 0, m = -INFINITY, s = 0, all = 0;
    if (lane == 0) {
      y = label_of(k, r);
      if (y >= 0) at = amp_load<float>(k.x.p, D, from + y);
    }
    const int64_t edge = span_edge(row, lane);
    if (edge >= 0) {
      float v[1] = { amp_load<float>(k.x.p, D, from + edge) };
      amp_fold_fast(m, s, v);
      if (smooth) all = v[0] - base;
    }
    for (int j = lane; j < row.count; j += UNROLL * lanes) {
#pragma unroll
      for (int u = 0; u < UNROLL; u += 2) {
        float v[2 * V];
        span_take(v, now, u, row, j, lanes);
        amp_fold_fast(m, s, v);
        if (smooth) {
#pragma unroll
          for (int q = 0; q < 2 * V; q++) all += j + (u + q / V) * lanes < row.count ? v[q] - base : 0.f;
        }
      }
    }
    /* of the warp, then of the block in its first warp; others go on to the next row */
    amp_fold_fast_warp(m, s);
    if (smooth) all = amp_reduce_warp<amp_sum>(all);
    if (!WARP) {
      float(*mine)[3] = parts[turn];
      turn ^= 1;
      if ((threadIdx.x & 31) == 0) { mine[threadIdx.x >> 5][0] = m; mine[threadIdx.x >> 5][1] = s; mine[threadIdx.x >> 5][2] = all; }
      __syncthreads();
      if (threadIdx.x >= 32) continue;
      bool is = lane < (int)blockDim.x >> 5;
      m = is ? mine[lane][0] : -INFINITY;
      s = is ? mine[lane][1] : 0;
      amp_fold_fast_warp(m, s);
      if (smooth) all = amp_reduce_warp<amp_sum>(is ? mine[lane][2] : 0.f);
    }
    if (lane == 0) {
      if (m == -INFINITY) s = NAN;
      double w = y < 0 ? 0 : weight_of(k, y), l = y < 0 ? 0 : row_loss<float>(k, y, w, m, s, at, base, all);
      amp_store<float>(k.top, k.ldt, r, m);
      amp_store<float>(k.top, k.ldt, k.rows + r, s);
      if (k.reduction == NONE) amp_store<double>(k.each.p, k.each.dtype, amp_offset(k.each, r), l);
      loss += l;
      part += w;
    }
  }
  finish(k, loss, part);
}

/* a block row of gridDim.y > 1 blocks: they share each row */
template <int D, bool WARP> __global__ void __launch_bounds__(WARP ? 256 : 512, WARP ? 4 : 2) ce_fast_back(const job k)
{
  enum { V = amp_lane<D>::V };
  AMP_ROW_LANES(WARP);
  const int step = lanes * (int)gridDim.y, first = lane + lanes * (int)blockIdx.y;
  const double scale = k.reduction == NONE ? 0 : scale_of(k);
  AMP_ROW_LOOP(WARP, r, k.rows) {
    const int64_t from = amp_offset(k.x, r), to = amp_offset(k.y, r);
    const span<D> row = span_of<D>(k.x.p, from, k.classes);
    uint4 *out = (uint4 *)k.y.p + (row.begin + to - from) / V;
    uint4 now[UNROLL];
    span_load(now, row, first, step);
    const slope<float> c = slope_of<float>(k, r, scale);
    const float each = k.smooth != 0 ? c.each : 0.f;
    const bool off = c.y < 0;
    const int at = c.y < row.head ? -1 : (int)((c.y - row.head) / V), part = (int)((c.y - row.head) % V); /* the label's vector, and its element there */
    bool mine = false;
    float label = 0;
    const int64_t edge = blockIdx.y == 0 ? span_edge(row, lane) : -1;
    if (edge >= 0) amp_store<float>(k.y.p, D, to + edge, off ? 0.f : slope_at<float>(k, c, amp_load<float>(k.x.p, D, from + edge), edge));
    for (int j = first; j < row.count; j += UNROLL * step) {
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        const int place = j + u * step, later = place + UNROLL * step;
        float v[V];
        amp_unpack<D>(v, now[u]);
        if (later < row.count) now[u] = row.p[later];
        if (place >= row.count) break;
        if (place == at) { /* its score, before the gradient may take its place */
          mine = true;
#pragma unroll
          for (int q = 0; q < V; q++) label = q == part ? v[q] : label;
        }
        if (off) {
#pragma unroll
          for (int q = 0; q < V; q++) v[q] = 0;
        } else {
#pragma unroll
          for (int q = 0; q < V; q++) v[q] = c.all * amp_exp_fast(v[q] - c.most) - each;
        }
        out[place] = amp_pack<D>(v);
      }
    }
    if (mine) amp_store<float>(k.y.p, D, to + c.y, slope_at<float>(k, c, label, c.y));
  }
}

} // namespace
#endif
