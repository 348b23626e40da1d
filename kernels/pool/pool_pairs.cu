/*
** pool_pairs.cu: max pools of images with windows of 2x2 or 3x3 two apart, and
** their gradient, where channels lie beside each other: the pools of networks.
**
** A thread has two neighbouring channels (so that two places are 16 bytes and a
** warp's accesses are whole lines) and walks along a row of windows. What the next
** window shares with this one stays in registers, what else it needs is under way
** meanwhile. Forward that is a column of its input; backward, which gathers as
** pool_back.cu does, the windows on the left of a block of 2x2 pixels, which at
** most 2x2 windows cover.
** Other windows, layouts and dtypes: pool.cu, pool_back.cu.
*/
#include "common/divide.cuh"
#include "common/kernel.cuh"
#include "pool/pool_back.cuh"

namespace {

enum { THREADS = 128, STEPS = 8 }; /* windows a thread walks over */

typedef struct cutting {
  uint32_t threads;
  amp_divisor pairs, rows, chunks;
  int32_t padding[2], low[2]; /* low: backward, the first window of block 0 */
} cutting;

/* Two elements beside each other */
template <int D> struct two {
  typedef unsigned raw;
};
template <> struct two<AMP_FLOAT32> {
  typedef float2 raw;
};
template <int D> __device__ __forceinline__ typename two<D>::raw load_two(const char *p, int64_t i)
{
  return *(const unsigned *)((const uint16_t *)p + i);
}
template <> __device__ __forceinline__ float2 load_two<AMP_FLOAT32>(const char *p, int64_t i)
{
  return *(const float2 *)((const float *)p + i);
}
template <int D> __device__ __forceinline__ void store_two(char *p, int64_t i, float a, float b)
{
  if constexpr (D == AMP_FLOAT32) {
    *(float2 *)((float *)p + i) = make_float2(a, b);
  } else {
    uint16_t lo = D == AMP_FLOAT16 ? amp_f2h(a) : amp_f2bf(a), hi = D == AMP_FLOAT16 ? amp_f2h(b) : amp_f2bf(b);
    *(unsigned *)((uint16_t *)p + i) = (unsigned)lo | (unsigned)hi << 16;
  }
}
template <int D> __device__ __forceinline__ void open_two(float (&v)[2], typename two<D>::raw r)
{
  if constexpr (D == AMP_FLOAT32) {
    v[0] = r.x;
    v[1] = r.y;
  } else {
    uint16_t lo = (uint16_t)r, hi = (uint16_t)(r >> 16);
    v[0] = D == AMP_FLOAT16 ? amp_h2f(lo) : amp_bf2f(lo);
    v[1] = D == AMP_FLOAT16 ? amp_h2f(hi) : amp_bf2f(hi);
  }
}
template <int D> __device__ __forceinline__ typename two<D>::raw both(float v)
{
  if constexpr (D == AMP_FLOAT32) {
    return make_float2(v, v);
  } else {
    return (unsigned)(D == AMP_FLOAT16 ? amp_f2h(v) : amp_f2bf(v)) * 0x10001u;
  }
}

/* -- Largest values ------------------------------------------------------------------ */

/* A thread's strip of the input: row r of its windows begins at element line[r], if it is one of the image */
template <int K> struct strip {
  bool in[K];
  int64_t line[K];
};

/* Pairs of column `col` of a strip: the padding's outside of the image */
template <int D, int K>
__device__ __forceinline__ typename two<D>::raw pair_at(const planes &x, const strip<K> &s, int r, int col)
{
  return s.in[r] && (unsigned)col < (unsigned)x.size[2] ? load_two<D>(x.p, s.line[r] + col * x.stride[4])
                                                        : both<D>(-INFINITY);
}

/* The two new columns of a window start on their way */
template <int D, int K>
__device__ __forceinline__ void fetch_columns(const planes &x, const strip<K> &s, int col,
                                              typename two<D>::raw (&next)[K][2])
{
#pragma unroll
  for (int r = 0; r < K; r++) {
#pragma unroll
    for (int q = 0; q < 2; q++) next[r][q] = pair_at<D>(x, s, r, col + q);
  }
}

/* The window moves on by two columns; a window of 3 keeps its last one */
template <int D, int K>
__device__ __forceinline__ void shift_window(float (&v)[K][K][2], const typename two<D>::raw (&next)[K][2])
{
#pragma unroll
  for (int r = 0; r < K; r++) {
    if (K == 3) {
      v[r][0][0] = v[r][K - 1][0];
      v[r][0][1] = v[r][K - 1][1];
    }
    open_two<D>(v[r][K - 2], next[r][0]);
    open_two<D>(v[r][K - 1], next[r][1]);
  }
}

/* A window's largest values of both channels and where they are, `base` being the place of its corner; a NaN is
** larger than all */
template <int K>
__device__ __forceinline__ void find_largest(const float (&v)[K][K][2], int base, int w, float (&m)[2], int (&at)[2])
{
#pragma unroll
  for (int r = 0; r < K; r++) {
#pragma unroll
    for (int q = 0; q < K; q++) {
#pragma unroll
      for (int j = 0; j < 2; j++)
        if (v[r][q][j] > m[j] || v[r][q][j] != v[r][q][j]) {
          m[j] = v[r][q][j];
          at[j] = base + r * w + q;
        }
    }
  }
}

template <int D, int K>
__global__ void __launch_bounds__(THREADS, 8)
    largest(const planes x, const planes y, const planes t, const cutting task)
{
  uint32_t i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= task.threads) return;
  const int64_t c = 2 * (int64_t)amp_digit(i, task.pairs);
  const int row = (int)amp_digit(i, task.rows), first = (int)amp_digit(i, task.chunks) * STEPS,
            end = first + STEPS < y.size[2] ? first + STEPS : y.size[2];
  const int h = x.size[1], w = x.size[2], top = 2 * row - task.padding[0];
  const int64_t image = planes_channel(x, i, c);
  int64_t at_y = planes_channel(y, i, c) + planes_pixel(y, 0, row, first),
          at_t = planes_channel(t, i, c) + planes_pixel(t, 0, row, first);
  strip<K> s;
#pragma unroll
  for (int r = 0; r < K; r++) {
    s.in[r] = (unsigned)(top + r) < (unsigned)h;
    s.line[r] = image + (top + r) * x.stride[3];
  }
  float v[K][K][2];
  typename two<D>::raw next[K][2];
  int left = 2 * first - task.padding[1];
  if (K == 3) {
#pragma unroll
    for (int r = 0; r < K; r++) open_two<D>(v[r][K - 1], pair_at<D>(x, s, r, left));
  }
  fetch_columns<D>(x, s, left + K - 2, next);
  for (int o = first; o < end; o++, left += 2) {
    shift_window<D>(v, next);
    if (o + 1 < end) fetch_columns<D>(x, s, left + K, next);
    const int base = top * w + left + 1, start = base + (top < 0 ? -top * w : 0) + (left < 0 ? -left : 0);
    float m[2] = { -INFINITY, -INFINITY };
    int at[2] = { start, start };
    find_largest(v, base, w, m, at);
    store_two<D>(y.p, at_y, m[0], m[1]);
    *(uint4 *)((int64_t *)t.p + at_t) = make_uint4((unsigned)at[0], 0, (unsigned)at[1], 0);
    at_y += y.stride[4];
    at_t += t.stride[4];
  }
}

/* -- Gradient --------------------------------------------------------------------------- */

/* A thread's two rows of windows: row r begins at line_g[r] of the gradient and line_t[r] of the places, if there */
typedef struct window_rows {
  bool in[2];
  int64_t line_g[2], line_t[2];
} window_rows;

/* Windows on their way: gradient and places of both rows */
template <int D> struct column {
  uint4 t[2];
  typename two<D>::raw g[2];
};

/* Column o of windows starts on its way; place 0, which is no pixel's, where there is none */
template <int D>
__device__ __forceinline__ void fetch_windows(const planes &g, const planes &t, const window_rows &s, int o,
                                              column<D> &next)
{
#pragma unroll
  for (int r = 0; r < 2; r++) {
    bool there = s.in[r] && (unsigned)o < (unsigned)g.size[2];
    next.t[r] = there ? *(const uint4 *)((const int64_t *)t.p + s.line_t[r] + o * t.stride[4]) : make_uint4(0, 0, 0, 0);
    next.g[r] = there ? load_two<D>(g.p, s.line_g[r] + o * g.stride[4]) : both<D>(0.f);
  }
}

/* The four windows around a block of pixels: [row][left, right][channel] */
typedef struct windows {
  unsigned place[2][2][2];
  float v[2][2][2];
} windows;

/* What was on its way becomes the windows on the right */
template <int D> __device__ __forceinline__ void take_right(windows &a, const column<D> &next)
{
#pragma unroll
  for (int r = 0; r < 2; r++) {
    a.place[r][1][0] = next.t[r].x;
    a.place[r][1][1] = next.t[r].z;
    open_two<D>(a.v[r][1], next.g[r]);
  }
}
__device__ __forceinline__ void move_left(windows &a)
{
#pragma unroll
  for (int r = 0; r < 2; r++) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      a.place[r][0][j] = a.place[r][1][j];
      a.v[r][0][j] = a.v[r][1][j];
    }
  }
}

/* A block's pixels [dy][dx][channel] add up the windows whose largest value they were; me: the place of its corner */
template <bool CENTRE>
__device__ __forceinline__ void add_windows(const windows &a, unsigned me, int w, float (&sum)[2][2][2])
{
#pragma unroll
  for (int dy = 0; dy < 2; dy++) {
#pragma unroll
    for (int dx = 0; dx < 2; dx++) {
      sum[dy][dx][0] = sum[dy][dx][1] = 0;
#pragma unroll
      for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int q = 0; q < 2; q++) {
          if (CENTRE && (r > dy || q > dx)) continue;
#pragma unroll
          for (int j = 0; j < 2; j++) sum[dy][dx][j] += a.place[r][q][j] == me + dy * w + dx ? a.v[r][q][j] : 0.f;
        }
      }
    }
  }
}

/* CENTRE: windows of 3x3, padding 1, where window o of a dimension has 2 o - 1 to 2 o + 1 */
template <int D, bool CENTRE>
__global__ void __launch_bounds__(THREADS, 7) gather(const planes x, const planes g, const planes t, const cutting task)
{
  uint32_t i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= task.threads) return;
  const int64_t c = 2 * (int64_t)amp_digit(i, task.pairs);
  const int h = x.size[1], w = x.size[2], wide = (w + 1) / 2;
  const int row = (int)amp_digit(i, task.rows), first = (int)amp_digit(i, task.chunks) * STEPS,
            end = first + STEPS < wide ? first + STEPS : wide;
  const bool below = 2 * row + 1 < h;
  int64_t at = planes_channel(x, i, c) + planes_pixel(x, 0, 2 * row, 2 * first);
  const int64_t image_g = planes_channel(g, i, c), image_t = planes_channel(t, i, c);
  window_rows s;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    int o = row + task.low[0] + r;
    s.in[r] = (unsigned)o < (unsigned)g.size[1];
    s.line_g[r] = image_g + o * g.stride[3];
    s.line_t[r] = image_t + o * t.stride[3];
  }
  windows a;
  column<D> next;
  fetch_windows(g, t, s, first + task.low[1], next);
  take_right(a, next);
  fetch_windows(g, t, s, first + task.low[1] + 1, next);
  for (int b = first; b < end; b++) {
    move_left(a);
    take_right(a, next);
    if (b + 1 < end) fetch_windows(g, t, s, b + task.low[1] + 2, next);
    float sum[2][2][2];
    add_windows<CENTRE>(a, (unsigned)(2 * row * w + 2 * b) + 1, w, sum);
    const bool beside = 2 * b + 1 < w;
    store_two<D>(x.p, at, sum[0][0][0], sum[0][0][1]);
    if (beside) store_two<D>(x.p, at + x.stride[4], sum[0][1][0], sum[0][1][1]);
    if (below) store_two<D>(x.p, at + x.stride[3], sum[1][0][0], sum[1][0][1]);
    if (below && beside) store_two<D>(x.p, at + x.stride[3] + x.stride[4], sum[1][1][0], sum[1][1][1]);
    at += 2 * x.stride[4];
  }
}

/* -- Calls -------------------------------------------------------------------------------- */

static bool cut(cutting *task, const planes &x, int64_t rows, int64_t columns)
{
  int64_t pairs = x.c / 2, chunks = (columns + STEPS - 1) / STEPS, n = pairs * rows * chunks;
  if (n <= 0 || x.n >= INT32_MAX / n) return false;
  task->threads = (uint32_t)(n * x.n);
  task->pairs = amp_divisor_of(pairs);
  task->rows = amp_divisor_of(rows);
  task->chunks = amp_divisor_of(chunks);
  return true;
}
static bool fits(const planes &x, const planes &y, const planes &t)
{
  return x.dtype == y.dtype && planes_by_eight(x) && planes_by_eight(y) && planes_by_eight(t) && x.size[0] == 1
         && y.size[0] == 1 && x.size[1] < INT32_MAX / 4 && x.size[2] < INT32_MAX / 4;
}
static unsigned blocks(const cutting &task) { return (task.threads + THREADS - 1) / THREADS; }

} // namespace

/* w: kernel_size, stride, padding, three each */
int amp_pool_pairs(const planes &x, const planes &y, const planes &t, const int32_t *w)
{
  cutting task;
  memset((void *)&task, 0, sizeof task);
  if (!fits(x, y, t) || w[0] != 1 || w[6] != 0 || w[1] != w[2] || w[1] < 2 || w[1] > 3 || w[4] != 2 || w[5] != 2)
    return 1;
  for (int i = 0; i < 2; i++) {
    task.padding[i] = w[7 + i];
    if (task.padding[i] < 0 || task.padding[i] > 1 || 2 * (y.size[1 + i] - 1) - task.padding[i] >= x.size[1 + i])
      return 1;
  }
  if (!cut(&task, x, y.size[1], y.size[2])) return 1;
#define GO(D)                                                                            \
  do {                                                                                   \
    if (w[1] == 3) AMP_LAUNCH((largest<D, 3>), blocks(task), THREADS, 0, x, y, t, task); \
    else AMP_LAUNCH((largest<D, 2>), blocks(task), THREADS, 0, x, y, t, task);           \
  } while (0)
  if (x.dtype == AMP_FLOAT16) GO(AMP_FLOAT16);
  else if (x.dtype == AMP_BFLOAT16) GO(AMP_BFLOAT16);
  else GO(AMP_FLOAT32);
#undef GO
  return 0;
}

int amp_pool_pairs_back(const planes &x, const planes &g, const planes &t, const int32_t *w)
{
  cutting task;
  memset((void *)&task, 0, sizeof task);
  if (!fits(x, g, t) || w[0] != 1 || w[6] != 0) return 1;
  for (int i = 0; i < 2; i++) { /* the windows of pixels 0 and 1 */
    int size = w[1 + i], p = w[7 + i];
    if (w[4 + i] != 2 || size < 1 || size > 3 || p < 0 || p > 1) return 1;
    int low = p - size + 1, high = (1 + p) / 2;
    task.low[i] = low < 0 ? -(-low / 2) : (low + 1) / 2;
    if (high - task.low[i] > 1) return 1;
  }
  if (!cut(&task, x, (x.size[1] + 1) / 2, (x.size[2] + 1) / 2)) return 1;
  const bool centre = w[1] == 3 && w[2] == 3 && w[7] == 1 && w[8] == 1;
#define GO(D)                                                                           \
  do {                                                                                  \
    if (centre) AMP_LAUNCH((gather<D, true>), blocks(task), THREADS, 0, x, g, t, task); \
    else AMP_LAUNCH((gather<D, false>), blocks(task), THREADS, 0, x, g, t, task);       \
  } while (0)
  if (x.dtype == AMP_FLOAT16) GO(AMP_FLOAT16);
  else if (x.dtype == AMP_BFLOAT16) GO(AMP_BFLOAT16);
  else GO(AMP_FLOAT32);
#undef GO
  return 0;
}
