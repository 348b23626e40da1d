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
#include "common/rows.cuh"

namespace {

enum { NONE = REDUCTION_NONE, MEAN = REDUCTION_MEAN, SUM = REDUCTION_SUM, THREADS = 256 };
static_assert(REDUCTION_COUNT == 4, "finish and scale_of know what each reduction does; batchmean is kl_div's alone");

typedef struct job {
  amp_arg x, y;         /* rows of scores and of their gradient: without the dimension of classes */
  amp_arg target, each; /* labels; a value a row: the loss, or its gradient (no reduction) */
  int64_t rows, classes, sx, sy, ignore;
  int32_t reduction, wide, op, wdt, tdt;
  double smooth;
  const char *weight, *grad, *total; /* gradient of the reduced loss; total of weights (backward) */
  int32_t gdt, odt, ldt, sums_total;
  int64_t sw; /* stride of weight */
  char *top, *out,
      *sum; /* top: largest scores of rows in C order, then their sums of exponentials about those; the results */
  double *partial, *wsum; /* [blocks][2]; of all weights, or NULL: classes */
  unsigned *ticket;
  amp_trouble *trouble;
} job;

__device__ __forceinline__ int64_t label_of(const job &task, int64_t r)
{
  int64_t y = amp_load<int64_t>(task.target.p, task.target.dtype, amp_offset(task.target, r));
  if (y == task.ignore) return -1;
  if (y < 1 || y > task.classes) {
    amp_note(task.trouble, AMP_TROUBLE_LABEL, task.op, y, task.classes, r);
    return -1;
  }
  return y - 1;
}
__device__ __forceinline__ double weight_of(const job &task, int64_t c)
{
  return task.weight ? amp_load<double>(task.weight, task.wdt, c * task.sw) : 1.0;
}

/* loss and weight are this thread's sums; the last block leaves the results */
__device__ void finish(const job &task, double loss, double part)
{
  loss = amp_reduce_block<amp_sum>(loss, 0.0);
  part = amp_reduce_block<amp_sum>(part, 0.0);
  if (threadIdx.x == 0) {
    task.partial[2 * blockIdx.x] = loss;
    task.partial[2 * blockIdx.x + 1] = part;
  }
  if (!amp_last_block(task.ticket)) return;
  loss = part = 0;
  for (int i = threadIdx.x; i < (int)gridDim.x; i += blockDim.x) {
    loss += task.partial[2 * i];
    part += task.partial[2 * i + 1];
  }
  loss = amp_reduce_block<amp_sum>(loss, 0.0);
  part = amp_reduce_block<amp_sum>(part, 0.0);
  if (threadIdx.x != 0) return;
  if (task.reduction != NONE) amp_store<double>(task.out, task.odt, 0, task.reduction == MEAN ? loss / part : loss);
  if (task.sum) amp_store<double>(task.sum, task.tdt, 0, part);
}

__device__ __forceinline__ double scale_of(const job &task)
{
  double g = amp_load<double>(task.grad, task.gdt, 0);
  return task.reduction == MEAN ? g / amp_load<double>(task.total, task.tdt, 0) : g;
}

/* -- A row -------------------------------------------------------------------------------- */

/* what scores are summed about, for labels smoothed: the first one */
template <class T> __device__ __forceinline__ T base_of(const job &task, int64_t from)
{
  T v = task.smooth != 0 ? amp_load<T>(task.x.p, task.x.dtype, from) : (T)0;
  return isfinite(v) ? v : (T)0;
}

/* loss of a row from its label's score and the weighted sum of all scores less base */
template <class T>
__device__ __forceinline__ double row_loss(const job &task, int64_t y, double w, T m, T s, T at, T base, T all)
{
  double above = (double)log(s), l = (1 - task.smooth) * w * (above + ((double)m - (double)at)),
         each = task.wsum ? *task.wsum : (double)task.classes;
  if (task.smooth != 0)
    l += task.smooth / (double)task.classes * (each * above + (each * ((double)m - (double)base) - (double)all));
  return l;
}

/* q (all softmax - each w), and less `take` at the label */
template <class T> struct slope {
  T most, all, each, take;
  int64_t y;
};
template <class T> __device__ __forceinline__ slope<T> slope_of(const job &task, int64_t r, double scale)
{
  slope<T> c;
  c.y = label_of(task, r);
  double q = task.reduction == NONE ? amp_load<double>(task.each.p, task.each.dtype, amp_offset(task.each, r)) : scale,
         w = c.y < 0 ? 0 : weight_of(task, c.y);
  double each = task.smooth / (double)task.classes;
  c.most = amp_load<T>(task.top, task.ldt, r);
  c.all = (T)(q * ((1 - task.smooth) * w + each * (task.wsum ? *task.wsum : (double)task.classes))
              / (double)amp_load<T>(task.top, task.ldt, task.rows + r));
  c.each = (T)(q * each);
  c.take = (T)(q * (1 - task.smooth) * w);
  return c;
}
template <class T> __device__ __forceinline__ T slope_at(const job &task, const slope<T> &c, T x, int64_t i)
{
  T d = c.all * exp(x - c.most);
  if (task.smooth != 0) d -= task.weight ? c.each * (T)weight_of(task, i) : c.each;
  return i == c.y ? d - c.take : d;
}

/* -- cross_entropy of float32 and 16-bit rows ------------------------------------------- */

enum { UNROLL = 4 };

/* A row: whole vectors `count` from p on, `head` elements before and `tail` behind them */
template <int D> struct span {
  const uint4 *p;
  int64_t begin;
  int count, head, tail;
};
template <int D> __device__ __forceinline__ span<D> span_of(const char *p, int64_t from, int64_t n)
{
  enum { V = amp_lane<D>::V };
  int64_t vb = (from + V - 1) / V, ve = (from + n) / V;
  span<D> s = { (const uint4 *)p + vb, vb * V, (int)(ve - vb), (int)(vb * V - from), (int)(from + n - ve * V) };
  return s;
}
template <int D> __device__ __forceinline__ void span_load(uint4 (&words)[UNROLL], const span<D> &row, int j, int lanes)
{
#pragma unroll
  for (int u = 0; u < UNROLL; u++) words[u] = j + u * lanes < row.count ? row.p[j + u * lanes] : amp_lowest<D>();
}
/* the elements of two of the vectors, whose room goes to the next ones of the row */
template <int D>
__device__ __forceinline__ void span_take(float (&v)[2 * amp_lane<D>::V], uint4 (&words)[UNROLL], int u,
                                          const span<D> &row, int j, int lanes)
{
  enum { V = amp_lane<D>::V };
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float some[V];
    amp_unpack<D>(some, words[u + i]);
#pragma unroll
    for (int q = 0; q < V; q++) v[i * V + q] = some[q];
    const int place = j + (UNROLL + u + i) * lanes;
    words[u + i] = place < row.count ? row.p[place] : amp_lowest<D>();
  }
}
/* the element beside the whole vectors that is lane's, counted from the row's begin; -1: none */
template <int D> __device__ __forceinline__ int64_t span_edge(const span<D> &row, int lane)
{
  if (lane < row.head) return lane;
  return lane >= 8 && lane < 8 + row.tail ? (int64_t)row.head + (int64_t)row.count * amp_lane<D>::V + lane - 8 : -1;
}

/* What a row's scores are folded into: the largest, the sum of exponentials about it, the plain sum less `base` (smooth
** labels alone) */
struct row_folds {
  float most, sum, all;
};

/* Folds this lane's vectors of a row; `next`: the first of them, on their way */
template <int D>
__device__ __forceinline__ void fold_vectors(row_folds &folds, const span<D> &row, uint4 (&next)[UNROLL], int lane,
                                             int lanes, bool smooth, float base)
{
  enum { V = amp_lane<D>::V };
  for (int j = lane; j < row.count; j += UNROLL * lanes) {
#pragma unroll
    for (int u = 0; u < UNROLL; u += 2) {
      float v[2 * V];
      span_take(v, next, u, row, j, lanes);
      amp_fold_fast(folds.most, folds.sum, v);
      if (smooth) {
#pragma unroll
        for (int q = 0; q < 2 * V; q++) folds.all += j + (u + q / V) * lanes < row.count ? v[q] - base : 0.f;
      }
    }
  }
}

/* Joins the folds of a warp's lanes */
__device__ __forceinline__ void join_warp(row_folds &folds, bool smooth)
{
  amp_fold_fast_warp(folds.most, folds.sum);
  if (smooth) folds.all = amp_reduce_warp<amp_sum>(folds.all);
}

/* Joins the folds of a block's warps in its first warp; false: this thread is in another, which goes on to the next
** row. parts: a warp's folds each */
__device__ __forceinline__ bool join_block(row_folds &folds, float (*parts)[3], int lane, bool smooth)
{
  if ((threadIdx.x & 31) == 0) {
    parts[threadIdx.x >> 5][0] = folds.most;
    parts[threadIdx.x >> 5][1] = folds.sum;
    parts[threadIdx.x >> 5][2] = folds.all;
  }
  __syncthreads();
  if (threadIdx.x >= 32) return false;
  bool is = lane < (int)blockDim.x >> 5;
  folds.most = is ? parts[lane][0] : -INFINITY;
  folds.sum = is ? parts[lane][1] : 0;
  amp_fold_fast_warp(folds.most, folds.sum);
  if (smooth) folds.all = amp_reduce_warp<amp_sum>(is ? parts[lane][2] : 0.f);
  return true;
}

/* cross_entropy forward: a warp or a block a row, which is read once */
template <int D, bool WARP> __global__ void __launch_bounds__(WARP ? 256 : 512, WARP ? 4 : 2) ce_fast(const job task)
{
  __shared__ float parts[2][16][3]; /* of two rows in turn: a warp may still read the one before */
  AMP_ROW_LANES(WARP);
  double loss = 0, part = 0;
  const bool smooth = task.smooth != 0;
  int turn = 0;
  AMP_ROW_LOOP(WARP, r, task.rows)
  {
    const int64_t from = amp_offset(task.x, r);
    const span<D> row = span_of<D>(task.x.p, from, task.classes);
    uint4 next[UNROLL];
    span_load(next, row, lane, lanes);
    int64_t label = -1;
    const float base = base_of<float>(task, from);
    float score = 0; /* the label's */
    row_folds folds = { -INFINITY, 0, 0 };
    if (lane == 0) {
      label = label_of(task, r);
      if (label >= 0) score = amp_load<float>(task.x.p, D, from + label);
    }
    const int64_t edge = span_edge(row, lane);
    if (edge >= 0) {
      float v[1] = { amp_load<float>(task.x.p, D, from + edge) };
      amp_fold_fast(folds.most, folds.sum, v);
      if (smooth) folds.all = v[0] - base;
    }
    fold_vectors<D>(folds, row, next, lane, lanes, smooth, base);
    join_warp(folds, smooth);
    if (!WARP) {
      float(*mine)[3] = parts[turn];
      turn ^= 1;
      if (!join_block(folds, mine, lane, smooth)) continue;
    }
    if (lane == 0) {
      if (folds.most == -INFINITY) folds.sum = NAN;
      double weight = label < 0 ? 0 : weight_of(task, label),
             row_value
             = label < 0 ? 0 : row_loss<float>(task, label, weight, folds.most, folds.sum, score, base, folds.all);
      amp_store<float>(task.top, task.ldt, r, folds.most);
      amp_store<float>(task.top, task.ldt, task.rows + r, folds.sum);
      if (task.reduction == NONE) amp_store<double>(task.each.p, task.each.dtype, amp_offset(task.each, r), row_value);
      loss += row_value;
      part += weight;
    }
  }
  finish(task, loss, part);
}

/* a block row of gridDim.y > 1 blocks: they share each row */
template <int D, bool WARP>
__global__ void __launch_bounds__(WARP ? 256 : 512, WARP ? 4 : 2) ce_fast_back(const job task)
{
  enum { V = amp_lane<D>::V };
  AMP_ROW_LANES(WARP);
  const int step = lanes * (int)gridDim.y, first = lane + lanes * (int)blockIdx.y;
  const double scale = task.reduction == NONE ? 0 : scale_of(task);
  AMP_ROW_LOOP(WARP, r, task.rows)
  {
    const int64_t from = amp_offset(task.x, r), to = amp_offset(task.y, r);
    const span<D> row = span_of<D>(task.x.p, from, task.classes);
    uint4 *out = (uint4 *)task.y.p + (row.begin + to - from) / V;
    uint4 now[UNROLL];
    span_load(now, row, first, step);
    const slope<float> c = slope_of<float>(task, r, scale);
    const float each = task.smooth != 0 ? c.each : 0.f;
    const bool off = c.y < 0;
    const int at = c.y < row.head ? -1 : (int)((c.y - row.head) / V),
              part = (int)((c.y - row.head) % V); /* the label's vector, and its element there */
    bool mine = false;
    float label = 0;
    const int64_t edge = blockIdx.y == 0 ? span_edge(row, lane) : -1;
    if (edge >= 0)
      amp_store<float>(task.y.p, D, to + edge,
                       off ? 0.f : slope_at<float>(task, c, amp_load<float>(task.x.p, D, from + edge), edge));
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
    if (mine) amp_store<float>(task.y.p, D, to + c.y, slope_at<float>(task, c, label, c.y));
  }
}

} // namespace
#endif
