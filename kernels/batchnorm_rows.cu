/*
** batchnorm_rows.cu: batch norm of channels that lie beside each other, where
** memory's speed is all that counts: 16 bytes an access, many of them under way.
**
**   stats, sums   a block takes a strip of 128 bytes of channels and every so many
**                 tiles of rows, a whole card's blocks side by side from the last
**                 row, which whoever wrote them left in the cache, to the first. A
**                 thread's sums are shifted by its first value, so nothing cancels;
**                 they are joined in an order that doesn't change. The last block of
**                 a strip adds its parts up to statistics and coefficients.
**   apply, back   tiles of whole rows from the first to the last: what the sums read
**                 last, the cache still holds. They start as the sums' blocks end,
**                 and wait for the coefficients with their first tile under way.
*/
#include "batchnorm_job.cuh"

namespace {

enum { STATS = 1024, SUMS = 512, TILE = 256 }; /* threads */

/* U rows of a thread, `line` apart; those outside are 0 */
template <int U> __device__ __forceinline__ void take(uint4 (&v)[U], const void *p, int64_t at, int64_t line, int64_t row, int64_t down, int64_t rows)
{
#pragma unroll
  for (int u = 0; u < U; u++) v[u] = row + u * down < rows ? ((const uint4 *)p)[at + u * line] : make_uint4(0, 0, 0, 0);
}

/* -- Sums ------------------------------------------------------------------------------- */

/* Thread: a vector of channels; its rows in tiles of U x down rows from the last, k.parts tiles on */
#define SUMS_HERE(D, T)                                                                                              \
  enum { V = lane<D>::V, WARPS = T / 32, COLS = 8 * V > WARPS ? 8 * V / WARPS : 1, U = 4 };                       \
  const int tx = threadIdx.x & ((1 << k.log) - 1), down = T >> k.log, width = V << k.log, warp = threadIdx.x >> 5;   \
  const int64_t vectors = k.c / V, column = ((int64_t)blockIdx.x << k.log) + tx, line = down * vectors;              \
  const int64_t rows = column < vectors ? k.units : 0, on = (int64_t)k.parts * U * down;                             \
  int64_t row = rows ? (k.tiles - 1 - blockIdx.y) * U * down + (threadIdx.x >> k.log) : -1

/* Rows that part i has */
__device__ __forceinline__ double part_rows(const job &k, int i) { return k.most - (i < k.extra ? 0.0 : (double)k.tile) - (i == 0 ? k.lack : 0.0); }

template <int D, int T> __global__ void __launch_bounds__(T, 1) rows_stats(const job k)
{
  SUMS_HERE(D, T);
  __shared__ float sh[2][WARPS * (8 * V + 1)], count[WARPS];
  float n = 0, mean[V], dev[V], shift[V], base[V];
#pragma unroll
  for (int j = 0; j < V; j++) mean[j] = dev[j] = shift[j] = 0;
  const uint4 origin = rows ? ((const uint4 *)k.x)[column] : make_uint4(0, 0, 0, 0);
  uint4 first = origin;
  for (; row >= 0; row -= on) {
    if (row >= rows) continue;
    uint4 x[U];
    take(x, k.x, row * vectors + column, line, row, down, rows);
    if (n == 0) { first = x[0]; open<D>(shift, first); }
    n += U;
    if (row + (U - 1) * down >= rows) { /* the last tile */
#pragma unroll
      for (int u = 1; u < U; u++) if (row + u * down >= rows) { x[u] = first; n -= 1; }
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      float v[V];
      open<D>(v, x[u]);
#pragma unroll
      for (int j = 0; j < V; j++) { float d = v[j] - shift[j]; mean[j] += d; dev[j] = fmaf(d, d, dev[j]); }
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
#pragma unroll 1
  for (int d = 16; d >> k.log; d >>= 1) { /* lanes with the same channels */
    const float n1 = n, n2 = __shfl_xor_sync(0xffffffffu, n, d);
#pragma unroll
    for (int j = 0; j < V; j++) {
      n = n1;
      join(n, mean[j], dev[j], n2, __shfl_xor_sync(0xffffffffu, mean[j], d), __shfl_xor_sync(0xffffffffu, dev[j], d));
    }
  }
  if ((int)(threadIdx.x & 31) == tx) {
#pragma unroll
    for (int j = 0; j < V; j++) { sh[0][warp * (width + 1) + tx * V + j] = mean[j]; sh[1][warp * (width + 1) + tx * V + j] = dev[j]; }
    if (tx == 0) count[warp] = n;
  }
  amp_let_next();
  leave_part<T, COLS, true>(k, width, sh[0], sh[1], count);
  if (last_part(k)) settle<T, COLS>(k, width, [&](int i) { return part_rows(k, i); }, [&](int64_t c) { return amp_load<float>(k.x, D, c); });
}

/* Sums of g and g (x - mean); JOINED: g is masked by the result and kept */
template <int D, int T, int AFTER> __global__ void __launch_bounds__(T, 1) rows_sums(const job k)
{
  SUMS_HERE(D, T);
  __shared__ float sh[2][WARPS * (8 * V + 1)], about[3][8 * V];
  uint4 x[U], g[U], y[U];
  auto fetch = [&] {
    const int64_t at = row * vectors + column;
    take(x, k.x, at, line, row, down, rows);
    take(g, k.g, at, line, row, down, rows);
    if (AFTER == JOINED) { take(y, k.r, at, line, row, down, rows); }
  };
  if (row >= 0) fetch();
  if ((int)threadIdx.x < width) {
    const int64_t c = (int64_t)blockIdx.x * width + threadIdx.x;
    about[0][threadIdx.x] = c < k.c ? k.mean[c] : 0.f;
    if (AFTER == RELU && c < k.c) forward_coef(k, c, k.mean[c], &about[1][threadIdx.x], &about[2][threadIdx.x]);
  }
  __syncthreads();
  float s[V], q[V], mean[V], a[V], b[V];
#pragma unroll
  for (int j = 0; j < V; j++) {
    s[j] = q[j] = a[j] = b[j] = 0;
    mean[j] = about[0][tx * V + j];
    if (AFTER == RELU) { a[j] = about[1][tx * V + j]; b[j] = about[2][tx * V + j]; }
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
      if (AFTER == JOINED && row + u * down < rows) { amp_store_n<V>(k.gm, D, (row * vectors + column + u * line) * V, h); }
    }
    row -= on;
    if (row >= 0) fetch();
  }
#pragma unroll 1
  for (int d = 16; d >> k.log; d >>= 1) {
#pragma unroll
    for (int j = 0; j < V; j++) { s[j] += __shfl_xor_sync(0xffffffffu, s[j], d); q[j] += __shfl_xor_sync(0xffffffffu, q[j], d); }
  }
  if ((int)(threadIdx.x & 31) == tx) {
#pragma unroll
    for (int j = 0; j < V; j++) { sh[0][warp * (width + 1) + tx * V + j] = s[j]; sh[1][warp * (width + 1) + tx * V + j] = q[j]; }
  }
  amp_let_next();
  leave_part<T, COLS, false>(k, width, sh[0], sh[1], NULL);
  if (last_part(k)) settle_back<T, COLS>(k, width);
}

/* -- Elements --------------------------------------------------------------------------- */

/* Thread: a vector of channels of every `down`-th row of a tile */
#define TILES_HERE(D)                                                                                                \
  enum { V = lane<D>::V };                                                                                           \
  const int across = k.across, tx = threadIdx.x % (unsigned)across, ty = threadIdx.x / (unsigned)across, down = TILE / across; \
  const int64_t vectors = k.c / V, column = (int64_t)blockIdx.x * across + tx, line = down * vectors, tiles = (k.units + U * down - 1) / (U * down); \
  const int64_t rows = column < vectors && ty < down ? k.units : 0;                                                  \
  int64_t tile = (int64_t)blockIdx.y - skip, row = tile * U * down + ty

template <int V> __device__ __forceinline__ void coefficients(float (&v)[V], const float *p, int64_t c, bool here)
{
#pragma unroll
  for (int j = 0; j < V; j += 4) {
    float4 q = here ? *(const float4 *)(p + c + j) : make_float4(0, 0, 0, 0);
    v[j] = q.x; v[j + 1] = q.y; v[j + 2] = q.z; v[j + 3] = q.w;
  }
}

template <int D, int AFTER> __global__ void __launch_bounds__(TILE, 4) rows_apply(const job k)
{
  enum { U = AFTER == JOINED ? 2 : 4 };
  const int skip = k.update, apart = gridDim.y - skip; /* the first row of blocks moves the running statistics */
  TILES_HERE(D);
  if (tile < 0) {
    amp_await();
    update(k, across * V);
    return;
  }
  uint4 x[U], z[U];
  float a[V], b[V], mean[V];
  auto fetch = [&] {
    take(x, k.x, row * vectors + column, line, row, down, rows);
    if (AFTER == JOINED) { take(z, k.r, row * vectors + column, line, row, down, rows); }
  };
  fetch();
  amp_await();
  coefficients(a, k.coef, column * V, rows > 0);
  coefficients(b, k.coef + k.c, column * V, rows > 0);
#pragma unroll
  for (int j = 0; j < V; j++) mean[j] = D == AMP_FLOAT32 && rows > 0 ? k.mean[column * V + j] : 0.f;
  while (tile < tiles) {
#pragma unroll
    for (int u = 0; u < U; u++) {
      float v[V], w[V];
      open<D>(v, x[u]);
      if (AFTER == JOINED) { open<D>(w, z[u]); }
#pragma unroll
      for (int j = 0; j < V; j++) v[j] = finish<D, AFTER>(k, less<D>(v[j], mean[j]), AFTER == JOINED ? w[j] : 0.f, a[j], b[j]);
      if (row + u * down < rows) amp_store_n<V>(k.y, D, (row * vectors + column + u * line) * V, v);
    }
    tile += apart;
    row = tile * U * down + ty;
    if (tile < tiles) fetch();
  }
}

template <int D, int AFTER> __global__ void __launch_bounds__(TILE, AFTER == RELU ? 3 : 4) rows_back(const job k)
{
  enum { U = 2 };
  const int skip = 0, apart = gridDim.y;
  TILES_HERE(D);
  uint4 x[U], g[U];
  float a[V], b[V], d[V], f[V], mean[V];
  take(x, k.x, row * vectors + column, line, row, down, rows);
  if (AFTER == RELU) { take(g, k.g, row * vectors + column, line, row, down, rows); }
  amp_await();
  if (AFTER != RELU) { take(g, k.g, row * vectors + column, line, row, down, rows); } /* the sums may have made it */
  coefficients(a, k.coef, column * V, rows > 0);
  coefficients(b, k.coef + k.c, column * V, rows > 0);
  coefficients(d, k.coef + 2 * k.c, column * V, rows > 0);
  coefficients(f, k.coef + 3 * k.c, column * V, AFTER == RELU && rows > 0);
#pragma unroll
  for (int j = 0; j < V; j++) mean[j] = D == AMP_FLOAT32 && rows > 0 ? k.mean[column * V + j] : 0.f;
  while (tile < tiles) {
#pragma unroll
    for (int u = 0; u < U; u++) {
      float v[V], h[V];
      open<D>(v, x[u]);
      open<D>(h, g[u]);
#pragma unroll
      for (int j = 0; j < V; j++) { float t = less<D>(v[j], mean[j]); v[j] = fmaf(a[j], masked<D, AFTER>(h[j], t, a[j], f[j]), fmaf(b[j], t, d[j])); }
      if (row + u * down < rows) amp_store_n<V>(k.y, D, (row * vectors + column + u * line) * V, v);
    }
    tile += apart;
    row = tile * U * down + ty;
    if (tile < tiles) {
      take(x, k.x, row * vectors + column, line, row, down, rows);
      take(g, k.g, row * vectors + column, line, row, down, rows);
    }
  }
}

/* -- Launches ----------------------------------------------------------------------------- */

/* Blocks of apply: a tile each, as far as a grid goes, and a row of `more` */
static dim3 tiles_of(const job &k, int vectors, int turns, int more)
{
  int64_t tile = (int64_t)(TILE / k.across) * turns, tiles = (k.units + tile - 1) / tile;
  return dim3((unsigned)((vectors + k.across - 1) / k.across), (unsigned)((tiles < 65000 ? tiles : 65000) + more));
}

template <int D> static void pass(const job &k, int which, int after)
{
  const int vectors = (int)(k.c / lane<D>::V);
  const dim3 grid((unsigned)k.strips, (unsigned)k.parts);
  if (which == AMP_BN_STATS) AMP_LAUNCH((rows_stats<D, STATS>), grid, STATS, 0, k);
  else if (which == AMP_BN_SUMS) {
    if (after == JOINED) AMP_LAUNCH((rows_sums<D, SUMS, JOINED>), grid, SUMS, 0, k);
    else if (after == RELU) AMP_LAUNCH((rows_sums<D, SUMS, RELU>), grid, SUMS, 0, k);
    else AMP_LAUNCH((rows_sums<D, SUMS, PLAIN>), grid, SUMS, 0, k);
  } else if (which == AMP_BN_APPLY) {
    if (after == JOINED) AMP_LAUNCH_NEXT(true, (rows_apply<D, JOINED>), tiles_of(k, vectors, 2, k.update), TILE, 0, k);
    else if (after == RELU) AMP_LAUNCH_NEXT(true, (rows_apply<D, RELU>), tiles_of(k, vectors, 4, k.update), TILE, 0, k);
    else AMP_LAUNCH_NEXT(true, (rows_apply<D, PLAIN>), tiles_of(k, vectors, 4, k.update), TILE, 0, k);
  } else if (after == RELU) AMP_LAUNCH_NEXT(true, (rows_back<D, RELU>), tiles_of(k, vectors, 2, 0), TILE, 0, k);
  else AMP_LAUNCH_NEXT(true, (rows_back<D, PLAIN>), tiles_of(k, vectors, 2, 0), TILE, 0, k);
}

} // namespace

int amp_bn_cut_rows(amp_bn_job *k, int dtype, bool back)
{
  const int v = dtype == AMP_FLOAT32 ? 4 : 8, vectors = (int)(k->c / v), threads = back ? SUMS : STATS;
  k->log = 0;
  while (k->log < 3 && (2 << k->log) <= vectors) k->log++;
  k->across = vectors < TILE ? vectors : TILE;
  k->strips = (vectors + (1 << k->log) - 1) >> k->log;
  k->tile = (int64_t)(threads >> k->log) * 4;
  k->tiles = (k->units + k->tile - 1) / k->tile;
  const int64_t parts = amp__cuda_here()->sms / k->strips;
  k->parts = (int32_t)(parts < 1 ? 1 : parts < k->tiles ? parts : k->tiles);
  k->most = (double)((k->tiles + k->parts - 1) / k->parts * k->tile);
  k->extra = (int32_t)((k->tiles - 1) % k->parts + 1);
  k->lack = (double)(k->tiles * k->tile - k->units);
  return v << k->log;
}

void amp_bn_rows(const amp_bn_job *k, int which, int dtype, int after)
{
  if (dtype == AMP_FLOAT16) pass<AMP_FLOAT16>(*k, which, after);
  else if (dtype == AMP_BFLOAT16) pass<AMP_BFLOAT16>(*k, which, after);
  else pass<AMP_FLOAT32>(*k, which, after);
}
