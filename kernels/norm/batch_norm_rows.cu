/*
** batch_norm_rows.cu: batch norm of channels that lie beside each other, where
** memory's speed is all that counts: 16 bytes an access, many of them under way.
**
**   stats, sums   a block takes a strip of 128 bytes of channels and every so many
**                 tiles of rows, a whole card's blocks side by side from the last
**                 row, which their writer left in the cache, to the first. A
**                 thread's sums are shifted by its first value, so nothing cancels;
**                 they are joined in an order that doesn't change. The last block of
**                 a strip adds its parts up to statistics and coefficients.
**   apply, back   tiles of whole rows from the first to the last: what the sums read
**                 last, the cache still holds. They start as the sums' blocks end,
**                 and wait for the coefficients with their first tile under way.
*/
#include "norm/batch_norm_job.cuh"

namespace {

enum { STATS = 1024, SUMS = 512, TILE = 256 }; /* threads */

/* U rows of a thread, `line` apart; those outside are 0 */
template <int U>
__device__ __forceinline__ void take(uint4 (&v)[U], const void *p, int64_t at, int64_t line, int64_t row, int64_t down,
                                     int64_t rows)
{
#pragma unroll
  for (int u = 0; u < U; u++) v[u] = row + u * down < rows ? ((const uint4 *)p)[at + u * line] : make_uint4(0, 0, 0, 0);
}

/* -- Sums ------------------------------------------------------------------------------- */

/* Thread: a vector of channels; its rows in tiles of U x down rows from the last, task.parts tiles on */
#define SUMS_HERE(D, T)                                                                               \
  enum { V = lane<D>::V, WARPS = T / 32, COLS = 8 * V > WARPS ? 8 * V / WARPS : 1, U = 4 };           \
  const int tx = threadIdx.x & ((1 << task.log_vectors) - 1), down = T >> task.log_vectors,           \
            width = V << task.log_vectors, warp = threadIdx.x >> 5;                                   \
  const int64_t vectors = task.channels / V, column = ((int64_t)blockIdx.x << task.log_vectors) + tx, \
                line = down * vectors;                                                                \
  const int64_t rows = column < vectors ? task.units : 0, on = (int64_t)task.parts * U * down;        \
  int64_t row = rows ? (task.tiles - 1 - blockIdx.y) * U * down + (threadIdx.x >> task.log_vectors) : -1

/* Rows that part i has */
__device__ __forceinline__ double part_rows(const job &task, int i)
{
  return task.most - (i < task.extra ? 0.0 : (double)task.tile) - (i == 0 ? task.lack : 0.0);
}

/* Lanes of a warp with the same channels, all lanes 2^log apart, join means and deviations of n values each */
template <int V> __device__ __forceinline__ void join_lanes(int log, float &n, float (&mean)[V], float (&dev)[V])
{
#pragma unroll 1
  for (int d = 16; d >> log; d >>= 1) {
    const float n1 = n, n2 = __shfl_xor_sync(0xffffffffu, n, d);
#pragma unroll
    for (int j = 0; j < V; j++) {
      n = n1;
      join(n, mean[j], dev[j], n2, __shfl_xor_sync(0xffffffffu, mean[j], d), __shfl_xor_sync(0xffffffffu, dev[j], d));
    }
  }
}
/* or add two sums */
template <int V> __device__ __forceinline__ void add_lanes(int log, float (&a)[V], float (&b)[V])
{
#pragma unroll 1
  for (int d = 16; d >> log; d >>= 1) {
#pragma unroll
    for (int j = 0; j < V; j++) {
      a[j] += __shfl_xor_sync(0xffffffffu, a[j], d);
      b[j] += __shfl_xor_sync(0xffffffffu, b[j], d);
    }
  }
}

/* A lane's values of two kinds go to their warp's lines, from place `at` on */
template <int V, int N>
__device__ __forceinline__ void keep(float (&lines)[2][N], int at, const float (&a)[V], const float (&b)[V])
{
#pragma unroll
  for (int j = 0; j < V; j++) {
    lines[0][at + j] = a[j];
    lines[1][at + j] = b[j];
  }
}

template <int D, int T> __global__ void __launch_bounds__(T, 1) rows_stats(const job task)
{
  SUMS_HERE(D, T);
  __shared__ float sh[2][WARPS * (8 * V + 1)], count[WARPS];
  float n = 0, mean[V], dev[V], shift[V], base[V];
#pragma unroll
  for (int j = 0; j < V; j++) mean[j] = dev[j] = shift[j] = 0;
  const uint4 origin = rows ? ((const uint4 *)task.x)[column] : make_uint4(0, 0, 0, 0);
  uint4 first = origin;
  for (; row >= 0; row -= on) {
    if (row >= rows) continue;
    uint4 x[U];
    take(x, task.x, row * vectors + column, line, row, down, rows);
    if (n == 0) {
      first = x[0];
      open<D>(shift, first);
    }
    n += U;
    if (row + (U - 1) * down >= rows) { /* the last tile */
#pragma unroll
      for (int u = 1; u < U; u++)
        if (row + u * down >= rows) {
          x[u] = first;
          n -= 1;
        }
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      float v[V];
      open<D>(v, x[u]);
#pragma unroll
      for (int j = 0; j < V; j++) {
        float d = v[j] - shift[j];
        mean[j] += d;
        dev[j] = fmaf(d, d, dev[j]);
      }
    }
  }
  open<D>(base, origin);
  const float each = n > 0 ? 1 / n : 0.f;
#pragma unroll
  for (int j = 0; j < V; j++) {
    float m = mean[j] * each, q = dev[j] - mean[j] * m;
    mean[j] = n > 0 ? shift[j] - base[j] + m : 0.f;
    dev[j] = q < 0 ? 0.f : q;
  }
  join_lanes(task.log_vectors, n, mean, dev);
  if ((int)(threadIdx.x & 31) == tx) {
    keep(sh, warp * (width + 1) + tx * V, mean, dev);
    if (tx == 0) count[warp] = n;
  }
  amp_let_next();
  leave_part<T, COLS, true>(task, width, sh[0], sh[1], count);
  if (last_part(task))
    settle<T, COLS>(
        task, width, [&](int i) { return part_rows(task, i); },
        [&](int64_t c) { return amp_load<float>(task.x, D, c); });
}

/* Sums of g and g (x - mean); JOINED: g is masked by the result and kept */
template <int D, int T, int AFTER> __global__ void __launch_bounds__(T, 1) rows_sums(const job task)
{
  SUMS_HERE(D, T);
  __shared__ float sh[2][WARPS * (8 * V + 1)], about[3][8 * V];
  uint4 x[U], g[U], y[U];
  auto fetch = [&] {
    const int64_t at = row * vectors + column;
    take(x, task.x, at, line, row, down, rows);
    take(g, task.g, at, line, row, down, rows);
    if (AFTER == JOINED) { take(y, task.joined, at, line, row, down, rows); }
  };
  if (row >= 0) fetch();
  if ((int)threadIdx.x < width) {
    const int64_t c = (int64_t)blockIdx.x * width + threadIdx.x;
    about[0][threadIdx.x] = c < task.channels ? task.mean[c] : 0.f;
    if (AFTER == RELU && c < task.channels)
      forward_coef(task, c, task.mean[c], &about[1][threadIdx.x], &about[2][threadIdx.x]);
  }
  __syncthreads();
  float s[V], q[V], mean[V], a[V], b[V];
#pragma unroll
  for (int j = 0; j < V; j++) {
    s[j] = q[j] = a[j] = b[j] = 0;
    mean[j] = about[0][tx * V + j];
    if (AFTER == RELU) {
      a[j] = about[1][tx * V + j];
      b[j] = about[2][tx * V + j];
    }
  }
  while (row >= 0) {
#pragma unroll
    for (int u = 0; u < U; u++) {
      float v[V], h[V], w[V];
      open<D>(v, x[u]);
      open<D>(h, g[u]);
      if (AFTER == JOINED) { open<D>(w, y[u]); }
#pragma unroll
      for (int j = 0; j < V; j++) {
        h[j] = masked<D, AFTER>(h[j], AFTER == JOINED ? w[j] : less<D>(v[j], mean[j]), a[j], b[j]);
        s[j] += h[j];
        q[j] = fmaf(h[j], v[j] - mean[j], q[j]);
      }
      if (AFTER == JOINED && row + u * down < rows) {
        amp_store_n<V>(task.masked_g, D, (row * vectors + column + u * line) * V, h);
      }
    }
    row -= on;
    if (row >= 0) fetch();
  }
  add_lanes(task.log_vectors, s, q);
  if ((int)(threadIdx.x & 31) == tx) keep(sh, warp * (width + 1) + tx * V, s, q);
  amp_let_next();
  leave_part<T, COLS, false>(task, width, sh[0], sh[1], NULL);
  if (last_part(task)) settle_back<T, COLS>(task, width);
}

/* -- Elements --------------------------------------------------------------------------- */

/* Thread: a vector of channels of every `down`-th row of a tile */
#define TILES_HERE(D)                                                                                           \
  enum { V = lane<D>::V };                                                                                      \
  const int across = task.across, tx = threadIdx.x % (unsigned)across, ty = threadIdx.x / (unsigned)across,     \
            down = TILE / across;                                                                               \
  const int64_t vectors = task.channels / V, column = (int64_t)blockIdx.x * across + tx, line = down * vectors, \
                tiles = (task.units + U * down - 1) / (U * down);                                               \
  const int64_t rows = column < vectors && ty < down ? task.units : 0;                                          \
  int64_t tile = (int64_t)blockIdx.y - skip, row = tile * U * down + ty

template <int V> __device__ __forceinline__ void coefficients(float (&v)[V], const float *p, int64_t c, bool here)
{
#pragma unroll
  for (int j = 0; j < V; j += 4) {
    float4 q = here ? *(const float4 *)(p + c + j) : make_float4(0, 0, 0, 0);
    v[j] = q.x;
    v[j + 1] = q.y;
    v[j + 2] = q.z;
    v[j + 3] = q.w;
  }
}

template <int D, int AFTER> __global__ void __launch_bounds__(TILE, 4) rows_apply(const job task)
{
  enum { U = AFTER == JOINED ? 2 : 4 };
  const int skip = task.update, apart = gridDim.y - skip; /* the first row of blocks moves the running statistics */
  TILES_HERE(D);
  if (tile < 0) {
    amp_await();
    update(task, across * V);
    return;
  }
  uint4 x[U], z[U];
  float a[V], b[V], mean[V];
  auto fetch = [&] {
    take(x, task.x, row * vectors + column, line, row, down, rows);
    if (AFTER == JOINED) { take(z, task.joined, row * vectors + column, line, row, down, rows); }
  };
  fetch();
  amp_await();
  coefficients(a, task.coef, column * V, rows > 0);
  coefficients(b, task.coef + task.channels, column * V, rows > 0);
#pragma unroll
  for (int j = 0; j < V; j++) mean[j] = D == AMP_FLOAT32 && rows > 0 ? task.mean[column * V + j] : 0.f;
  while (tile < tiles) {
#pragma unroll
    for (int u = 0; u < U; u++) {
      float v[V], w[V];
      open<D>(v, x[u]);
      if (AFTER == JOINED) { open<D>(w, z[u]); }
#pragma unroll
      for (int j = 0; j < V; j++)
        v[j] = finish<D, AFTER>(task, less<D>(v[j], mean[j]), AFTER == JOINED ? w[j] : 0.f, a[j], b[j]);
      if (row + u * down < rows) amp_store_n<V>(task.y, D, (row * vectors + column + u * line) * V, v);
    }
    tile += apart;
    row = tile * U * down + ty;
    if (tile < tiles) fetch();
  }
}

template <int D, int AFTER> __global__ void __launch_bounds__(TILE, AFTER == RELU ? 3 : 4) rows_back(const job task)
{
  enum { U = 2 };
  const int skip = 0, apart = gridDim.y;
  TILES_HERE(D);
  uint4 x[U], g[U];
  float a[V], b[V], d[V], f[V], mean[V];
  take(x, task.x, row * vectors + column, line, row, down, rows);
  if (AFTER == RELU) { take(g, task.g, row * vectors + column, line, row, down, rows); }
  amp_await();
  if (AFTER != RELU) { take(g, task.g, row * vectors + column, line, row, down, rows); } /* the sums may have made it */
  coefficients(a, task.coef, column * V, rows > 0);
  coefficients(b, task.coef + task.channels, column * V, rows > 0);
  coefficients(d, task.coef + 2 * task.channels, column * V, rows > 0);
  coefficients(f, task.coef + 3 * task.channels, column * V, AFTER == RELU && rows > 0);
#pragma unroll
  for (int j = 0; j < V; j++) mean[j] = D == AMP_FLOAT32 && rows > 0 ? task.mean[column * V + j] : 0.f;
  while (tile < tiles) {
#pragma unroll
    for (int u = 0; u < U; u++) {
      float v[V], h[V];
      open<D>(v, x[u]);
      open<D>(h, g[u]);
#pragma unroll
      for (int j = 0; j < V; j++) {
        float t = less<D>(v[j], mean[j]);
        v[j] = fmaf(a[j], masked<D, AFTER>(h[j], t, a[j], f[j]), fmaf(b[j], t, d[j]));
      }
      if (row + u * down < rows) amp_store_n<V>(task.y, D, (row * vectors + column + u * line) * V, v);
    }
    tile += apart;
    row = tile * U * down + ty;
    if (tile < tiles) {
      take(x, task.x, row * vectors + column, line, row, down, rows);
      take(g, task.g, row * vectors + column, line, row, down, rows);
    }
  }
}

/* -- Launches ----------------------------------------------------------------------------- */

/* Blocks of apply: a tile each, as far as a grid goes, and a row of `more` */
static dim3 tiles_of(const job &task, int vectors, int turns, int more)
{
  int64_t tile = (int64_t)(TILE / task.across) * turns, tiles = (task.units + tile - 1) / tile;
  return dim3((unsigned)((vectors + task.across - 1) / task.across),
              (unsigned)((tiles < 65000 ? tiles : 65000) + more));
}

template <int D> static void pass(const job &task, int which, int after)
{
  const int vectors = (int)(task.channels / lane<D>::V);
  const dim3 grid((unsigned)task.strips, (unsigned)task.parts);
  if (which == AMP_BN_STATS) AMP_LAUNCH((rows_stats<D, STATS>), grid, STATS, 0, task);
  else if (which == AMP_BN_SUMS) {
    if (after == JOINED) AMP_LAUNCH((rows_sums<D, SUMS, JOINED>), grid, SUMS, 0, task);
    else if (after == RELU) AMP_LAUNCH((rows_sums<D, SUMS, RELU>), grid, SUMS, 0, task);
    else AMP_LAUNCH((rows_sums<D, SUMS, PLAIN>), grid, SUMS, 0, task);
  } else if (which == AMP_BN_APPLY) {
    if (after == JOINED)
      AMP_LAUNCH_NEXT(true, (rows_apply<D, JOINED>), tiles_of(task, vectors, 2, task.update), TILE, 0, task);
    else if (after == RELU)
      AMP_LAUNCH_NEXT(true, (rows_apply<D, RELU>), tiles_of(task, vectors, 4, task.update), TILE, 0, task);
    else AMP_LAUNCH_NEXT(true, (rows_apply<D, PLAIN>), tiles_of(task, vectors, 4, task.update), TILE, 0, task);
  } else if (after == RELU) AMP_LAUNCH_NEXT(true, (rows_back<D, RELU>), tiles_of(task, vectors, 2, 0), TILE, 0, task);
  else AMP_LAUNCH_NEXT(true, (rows_back<D, PLAIN>), tiles_of(task, vectors, 2, 0), TILE, 0, task);
}

} // namespace

int amp_bn_cut_rows(amp_bn_job *task, int dtype, bool back)
{
  const int v = dtype == AMP_FLOAT32 ? 4 : 8, vectors = (int)(task->channels / v), threads = back ? SUMS : STATS;
  task->log_vectors = 0;
  while (task->log_vectors < 3 && (2 << task->log_vectors) <= vectors) task->log_vectors++;
  task->across = vectors < TILE ? vectors : TILE;
  task->strips = (vectors + (1 << task->log_vectors) - 1) >> task->log_vectors;
  task->tile = (int64_t)(threads >> task->log_vectors) * 4;
  task->tiles = (task->units + task->tile - 1) / task->tile;
  const int64_t parts = amp__cuda_here()->sms / task->strips;
  task->parts = (int32_t)(parts < 1 ? 1 : parts < task->tiles ? parts : task->tiles);
  task->most = (double)((task->tiles + task->parts - 1) / task->parts * task->tile);
  task->extra = (int32_t)((task->tiles - 1) % task->parts + 1);
  task->lack = (double)(task->tiles * task->tile - task->units);
  return v << task->log_vectors;
}

void amp_bn_rows(const amp_bn_job *task, int which, int dtype, int after)
{
  if (dtype == AMP_FLOAT16) pass<AMP_FLOAT16>(*task, which, after);
  else if (dtype == AMP_BFLOAT16) pass<AMP_BFLOAT16>(*task, which, after);
  else pass<AMP_FLOAT32>(*task, which, after);
}
