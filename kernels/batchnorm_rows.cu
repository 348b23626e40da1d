/*
** batchnorm_rows.cu: batch norm with a residual and ReLU, where memory's speed is
** all that counts: 16 bytes an access, two launches each way.
**
**   sums   blocks are strips of channels (ROWS: channels beside each other) or
**          channels (planes) x parts of the rest. A thread's sums are shifted by
**          its first value, so nothing cancels; they are joined in double in an
**          order that doesn't change. The last block of a strip adds its parts
**          up to statistics and coefficients.
**   apply  forward a x + b [+ residual], ReLU; backward a g + b x + d. It goes
**          through its part from the end, which the cache still holds.
**
** Backward with ReLU, but without a residual, asks a x + b again what ReLU let
** through instead of reading the result; with one it masks g while it sums, and
** the masked g is the residual's gradient.
** Halves are rounded where the separate ops round: values are theirs to the bit.
*/
#include "batchnorm.cuh"

namespace {

enum { THREADS = 256, PARTS = 256 };
enum { PLAIN, RELU, JOINED }; /* what follows: nothing, ReLU, a residual (and ReLU) */

typedef struct job {
  const void *x, *g, *r;        /* r: residual; backward: the result */
  void *y, *gm;                 /* y: what apply writes; gm: masked g */
  const float *w, *b;           /* [c] or NULL */
  float *mean, *rstd, *coef;    /* [c]; coef: [3][c] */
  double *partial, *var;        /* [strip][part][width][2]; [c] */
  unsigned *cells;              /* a ticket a strip */
  int *bad;                     /* [strips]: not finite */
  char *rm, *rv, *gw, *gb;      /* running statistics, gradients of w and b */
  int64_t *batches;
  int64_t srm, srv, sgw, sgb;
  int64_t c, units, per, run;   /* units: rows, or a channel's vectors; run: vectors of a plane */
  double count, eps, momentum;
  int32_t log, parts, relu, update, step, skip, rmdt, rvdt, gwdt, gbdt, live; /* step, skip: THREADS vectors on are so many images and vectors */
} job;

template <int D> struct lane { enum { V = D == AMP_FLOAT32 ? 4 : 8 }; };

/* -- Sums of a block and of a strip -------------------------------------------------- */

/* Sums over `lines` lines of `width` (a power of two) pairs: f(line, column, &a, &b) adds one; a line of sums to total.
** All threads of the block come. */
template <class F> __device__ __forceinline__ void fold(int width, int lines, double (*total)[THREADS], F f)
{
  int column = threadIdx.x & (width - 1), group = threadIdx.x / width, groups = THREADS / width;
  double a = 0, b = 0;
#pragma unroll 4
  for (int i = group; i < lines; i += groups) f(i, column, a, b);
  if (width == 1) {
    a = amp_reduce_block<amp_sum>(a, 0.0);
    b = amp_reduce_block<amp_sum>(b, 0.0);
    if (threadIdx.x == 0) { total[0][0] = a; total[1][0] = b; }
    __syncthreads();
    return;
  }
  __syncthreads();
  total[0][threadIdx.x] = a;
  total[1][threadIdx.x] = b;
  __syncthreads();
  if (group == 0) {
    for (int i = 1; i < groups; i++) { a += total[0][i * width + column]; b += total[1][i * width + column]; }
    total[0][column] = a;
    total[1][column] = b;
  }
  __syncthreads();
}

/* Is this the last block of its strip? */
__device__ __forceinline__ bool last_part(const job &k)
{
  __shared__ int last;
  if (k.parts == 1) { __syncthreads(); return true; }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(k.cells + blockIdx.x, 1u) == (unsigned)k.parts - 1;
    if (last) k.cells[blockIdx.x] = 0;
  }
  __syncthreads();
  if (last) __threadfence();
  return last != 0;
}

__device__ __forceinline__ double part_count(const job &k, int part, int each)
{
  int64_t from = part * k.per, left = k.units - from;
  return (double)((left < k.per ? left : k.per) * each);
}

/* The strip's statistics, from parts (mean, deviations), and forward's coefficients */
__device__ __forceinline__ void settle(const job &k, int width, int each, double (*total)[THREADS])
{
  __shared__ int odd;
  const double *p = k.partial + (int64_t)blockIdx.x * k.parts * width * 2;
  const int column = threadIdx.x & (width - 1);
  const double shift = p[2 * column];
  fold(width, k.parts, total, [&](int i, int j, double &a, double &b) {
    double n = part_count(k, i, each), d = p[2 * ((int64_t)i * width + j)] - shift;
    a += n * d;
    b += p[2 * ((int64_t)i * width + j) + 1] + n * d * d;
  });
  if (threadIdx.x == 0) odd = 0;
  __syncthreads();
  const int64_t c = (int64_t)blockIdx.x * width + threadIdx.x;
  if ((int)threadIdx.x < width && c < k.c) {
    double d = total[0][threadIdx.x] / k.count, mean = shift + d, var = total[1][threadIdx.x] / k.count - d * d;
    if (var < 0) var = 0;
    if (!(fabs(mean) <= DBL_MAX && fabs(var) <= DBL_MAX)) odd = 1;
    float m = (float)mean, r = (float)(1 / sqrt(var + k.eps));
    double a = (double)r * (k.w ? (double)k.w[c] : 1.0);
    k.mean[c] = m;
    k.rstd[c] = r;
    k.var[c] = var;
    k.coef[c] = (float)a;
    k.coef[k.c + c] = (float)((k.b ? (double)k.b[c] : 0.0) - (double)m * a);
  }
  __syncthreads();
  if (threadIdx.x == 0) k.bad[blockIdx.x] = odd;
}

/* The strip's gradients of w and b, and backward's coefficients */
__device__ __forceinline__ void settle_back(const job &k, int width, double (*total)[THREADS])
{
  const double *p = k.partial + (int64_t)blockIdx.x * k.parts * width * 2;
  fold(width, k.parts, total, [&](int i, int j, double &a, double &b) {
    a += p[2 * ((int64_t)i * width + j)];
    b += p[2 * ((int64_t)i * width + j) + 1];
  });
  const int64_t c = (int64_t)blockIdx.x * width + threadIdx.x;
  if ((int)threadIdx.x < width && c < k.c) {
    double sg = total[0][threadIdx.x], sx = total[1][threadIdx.x];
    double r = (double)k.rstd[c], w = k.w ? (double)k.w[c] : 1.0, b = k.live ? -w * r * r * (sx * r) / k.count : 0;
    k.coef[c] = (float)(w * r);
    k.coef[k.c + c] = (float)b;
    k.coef[2 * k.c + c] = (float)(k.live ? -w * r * sg / k.count - b * (double)k.mean[c] : 0);
    if (k.gw) amp_store<double>(k.gw, k.gwdt, c * k.sgw, sx * r);
    if (k.gb) amp_store<double>(k.gb, k.gbdt, c * k.sgb, sg);
  }
}

/* Without a batch's statistics: the running ones */
__global__ void __launch_bounds__(THREADS) running(const job k)
{
  AMP_FOR(c, k.c) {
    float m = (float)amp_load<double>(k.rm, k.rmdt, c * k.srm), r = (float)(1 / sqrt(amp_load<double>(k.rv, k.rvdt, c * k.srv) + k.eps));
    double a = (double)r * (k.w ? (double)k.w[c] : 1.0);
    k.mean[c] = m;
    k.rstd[c] = r;
    k.coef[c] = (float)a;
    k.coef[k.c + c] = (float)((k.b ? (double)k.b[c] : 0.0) - (double)m * a);
  }
}

__device__ __forceinline__ void move_to(char *p, int dtype, int64_t i, double v, double momentum)
{
  if (p) amp_store<double>(p, dtype, i, (1 - momentum) * amp_load<double>(p, dtype, i) + momentum * v);
}

/* Running statistics of the strip's channels: the first part's block of apply sees to them, when all strips are known */
__device__ __forceinline__ void update(const job &k, int width)
{
  if (blockIdx.y != 0 || !k.update) return;
  int odd = 0;
  for (int i = threadIdx.x; i < (int)gridDim.x; i += THREADS) odd |= k.bad[i];
  odd = __syncthreads_or(odd);
  if (blockIdx.x == 0 && threadIdx.x == 0 && k.batches) *k.batches += 1;
  const int64_t c = (int64_t)blockIdx.x * width + threadIdx.x;
  if (odd || (int)threadIdx.x >= width || c >= k.c || !(k.count > 1)) return;
  move_to(k.rm, k.rmdt, c * k.srm, (double)k.mean[c], k.momentum);
  move_to(k.rv, k.rvdt, c * k.srv, k.var[c] * (k.count / (k.count - 1)), k.momentum);
}

/* -- Elements ---------------------------------------------------------------------------- */

/* a x + b and what follows, as the ops give it one after the other */
template <int D, int AFTER> __device__ __forceinline__ float finish(const job &k, float x, float r, float a, float b)
{
  float v = fmaf(a, x, b);
  if (AFTER == JOINED) {
    v = amp_rounded(amp_rounded(v, D) + r, D);
    if (!k.relu) return v;
  }
  return AFTER != PLAIN && v < 0 ? 0.f : v;
}

/* g where ReLU let through; s: JOINED: the result, else x */
template <int D, int AFTER> __device__ __forceinline__ float masked(float g, float s, float a, float b)
{
  if (AFTER == PLAIN) return g;
  float v = AFTER == JOINED ? s : amp_rounded(fmaf(a, s, b), D);
  return v <= 0 ? 0.f : g;
}

/* What forward's coefficients are (see settle) */
__device__ __forceinline__ void forward_coef(const job &k, int64_t c, float m, float *a, float *b)
{
  double s = (double)k.rstd[c] * (k.w ? (double)k.w[c] : 1.0);
  *a = (float)s;
  *b = (float)((k.b ? (double)k.b[c] : 0.0) - (double)m * s);
}

/* -- Channels beside each other: a thread has V channels of every so many rows ---------------- */

#define ROWS_HERE(D)                                                                                                   \
  enum { V = lane<D>::V };                                                                                             \
  const int tx = threadIdx.x & ((1 << k.log) - 1), ty = threadIdx.x >> k.log, ny = THREADS >> k.log, width = V << k.log; \
  const int64_t c = ((int64_t)blockIdx.x << k.log) * V + tx * V, from = blockIdx.y * k.per, to = from + k.per < k.units ? from + k.per : k.units; \
  (void)width

template <int D> __global__ void __launch_bounds__(THREADS, 4) rows_stats(const job k)
{
  ROWS_HERE(D);
  enum { U = 4 };
  __shared__ float sh[2][THREADS * V];
  __shared__ double total[2][THREADS];
  float shift[V], s[V], q[V];
#pragma unroll
  for (int j = 0; j < V; j++) shift[j] = s[j] = q[j] = 0;
  int64_t r = from + ty;
  if (c < k.c && r < to) {
    amp_load_n<V>(shift, k.x, D, r * k.c + c);
    for (r += ny; r + (U - 1) * ny < to; r += U * ny) {
      float x[U][V];
#pragma unroll
      for (int u = 0; u < U; u++) amp_load_n<V>(x[u], k.x, D, (r + u * ny) * k.c + c);
#pragma unroll
      for (int u = 0; u < U; u++) {
#pragma unroll
        for (int j = 0; j < V; j++) { float d = x[u][j] - shift[j]; s[j] += d; q[j] += d * d; }
      }
    }
    for (; r < to; r += ny) {
      float x[V];
      amp_load_n<V>(x, k.x, D, r * k.c + c);
#pragma unroll
      for (int j = 0; j < V; j++) { float d = x[j] - shift[j]; s[j] += d; q[j] += d * d; }
    }
  }
  int64_t mine = from + ty < to ? (to - from - ty - 1) / ny + 1 : 0;
  float share = mine > 0 ? 1 / (float)mine : 0.f;
#pragma unroll
  for (int j = 0; j < V; j++) {
    float m = s[j] * share, dev = q[j] - s[j] * m;
    sh[0][ty * width + tx * V + j] = shift[j] + m;
    sh[1][ty * width + tx * V + j] = dev < 0 ? 0.f : dev;
  }
  __syncthreads();
  const int column = threadIdx.x & (width - 1);
  const double base = (double)sh[0][column];
  fold(width, ny, total, [&](int i, int j, double &a, double &b) {
    double n = from + i < to ? (double)((to - from - i - 1) / ny + 1) : 0.0, d = (double)sh[0][i * width + j] - base;
    if (n > 0) { a += n * d; b += (double)sh[1][i * width + j] + n * d * d; }
  });
  if ((int)threadIdx.x < width) {
    double n = (double)(to - from), d = total[0][threadIdx.x] / n, *p = k.partial + 2 * (((int64_t)blockIdx.x * k.parts + blockIdx.y) * width + threadIdx.x);
    p[0] = base + d;
    p[1] = total[1][threadIdx.x] - n * d * d;
  }
  if (last_part(k)) settle(k, width, 1, total);
}

template <int D, int AFTER> __global__ void __launch_bounds__(THREADS, 4) rows_apply(const job k)
{
  ROWS_HERE(D);
  enum { U = AFTER == JOINED ? 2 : 4 };
  update(k, width);
  if (c >= k.c) return;
  float a[V], b[V];
#pragma unroll
  for (int j = 0; j < V; j++) { a[j] = k.coef[c + j]; b[j] = k.coef[k.c + c + j]; }
  int64_t r = to - 1 - ty;
  for (; r - (U - 1) * ny >= from; r -= U * ny) {
    float x[U][V], z[U][V];
#pragma unroll
    for (int u = 0; u < U; u++) {
      amp_load_n<V>(x[u], k.x, D, (r - u * ny) * k.c + c);
      if (AFTER == JOINED) { amp_load_n<V>(z[u], k.r, D, (r - u * ny) * k.c + c); }
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
#pragma unroll
      for (int j = 0; j < V; j++) x[u][j] = finish<D, AFTER>(k, x[u][j], AFTER == JOINED ? z[u][j] : 0.f, a[j], b[j]);
      amp_store_n<V>(k.y, D, (r - u * ny) * k.c + c, x[u]);
    }
  }
  for (; r >= from; r -= ny) {
    float x[V], z[V];
    amp_load_n<V>(x, k.x, D, r * k.c + c);
    if (AFTER == JOINED) { amp_load_n<V>(z, k.r, D, r * k.c + c); }
#pragma unroll
    for (int j = 0; j < V; j++) x[j] = finish<D, AFTER>(k, x[j], AFTER == JOINED ? z[j] : 0.f, a[j], b[j]);
    amp_store_n<V>(k.y, D, r * k.c + c, x);
  }
}

/* Sums of g and g (x - mean); JOINED: g is masked by the result and kept */
template <int D, int AFTER> __global__ void __launch_bounds__(THREADS, 4) rows_sums(const job k)
{
  ROWS_HERE(D);
  enum { U = 2 };
  __shared__ float sh[2][THREADS * V];
  __shared__ double total[2][THREADS];
  float s[V], q[V], mean[V], a[V], b[V];
#pragma unroll
  for (int j = 0; j < V; j++) {
    s[j] = q[j] = a[j] = b[j] = 0;
    mean[j] = c < k.c ? k.mean[c + j] : 0.f;
    if (AFTER == RELU && c < k.c) forward_coef(k, c + j, mean[j], &a[j], &b[j]);
  }
  if (c < k.c) {
    int64_t r = from + ty;
    for (; r + (U - 1) * ny < to; r += U * ny) {
      float x[U][V], g[U][V], y[U][V];
#pragma unroll
      for (int u = 0; u < U; u++) {
        amp_load_n<V>(x[u], k.x, D, (r + u * ny) * k.c + c);
        amp_load_n<V>(g[u], k.g, D, (r + u * ny) * k.c + c);
        if (AFTER == JOINED) { amp_load_n<V>(y[u], k.r, D, (r + u * ny) * k.c + c); }
      }
#pragma unroll
      for (int u = 0; u < U; u++) {
#pragma unroll
        for (int j = 0; j < V; j++) {
          g[u][j] = masked<D, AFTER>(g[u][j], AFTER == JOINED ? y[u][j] : x[u][j], a[j], b[j]);
          s[j] += g[u][j];
          q[j] += g[u][j] * (x[u][j] - mean[j]);
        }
        if (AFTER == JOINED) { amp_store_n<V>(k.gm, D, (r + u * ny) * k.c + c, g[u]); }
      }
    }
    for (; r < to; r += ny) {
      float x[V], g[V], y[V];
      amp_load_n<V>(x, k.x, D, r * k.c + c);
      amp_load_n<V>(g, k.g, D, r * k.c + c);
      if (AFTER == JOINED) { amp_load_n<V>(y, k.r, D, r * k.c + c); }
#pragma unroll
      for (int j = 0; j < V; j++) {
        g[j] = masked<D, AFTER>(g[j], AFTER == JOINED ? y[j] : x[j], a[j], b[j]);
        s[j] += g[j];
        q[j] += g[j] * (x[j] - mean[j]);
      }
      if (AFTER == JOINED) { amp_store_n<V>(k.gm, D, r * k.c + c, g); }
    }
  }
#pragma unroll
  for (int j = 0; j < V; j++) { sh[0][ty * width + tx * V + j] = s[j]; sh[1][ty * width + tx * V + j] = q[j]; }
  __syncthreads();
  fold(width, ny, total, [&](int i, int j, double &u, double &v) { u += (double)sh[0][i * width + j]; v += (double)sh[1][i * width + j]; });
  if ((int)threadIdx.x < width) {
    double *p = k.partial + 2 * (((int64_t)blockIdx.x * k.parts + blockIdx.y) * width + threadIdx.x);
    p[0] = total[0][threadIdx.x];
    p[1] = total[1][threadIdx.x];
  }
  if (last_part(k)) settle_back(k, width, total);
}

template <int D, int AFTER> __global__ void __launch_bounds__(THREADS, 4) rows_back(const job k)
{
  ROWS_HERE(D);
  enum { U = 2 };
  if (c >= k.c) return;
  float a[V], b[V], d[V], f[V];
#pragma unroll
  for (int j = 0; j < V; j++) {
    a[j] = k.coef[c + j];  /* forward's as well */
    b[j] = k.coef[k.c + c + j];
    d[j] = k.coef[2 * k.c + c + j];
    if (AFTER == RELU) { float same; forward_coef(k, c + j, k.mean[c + j], &same, &f[j]); } else f[j] = 0;
  }
  int64_t r = to - 1 - ty;
  for (; r - (U - 1) * ny >= from; r -= U * ny) {
    float x[U][V], g[U][V];
#pragma unroll
    for (int u = 0; u < U; u++) {
      amp_load_n<V>(x[u], k.x, D, (r - u * ny) * k.c + c);
      amp_load_n<V>(g[u], k.g, D, (r - u * ny) * k.c + c);
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
#pragma unroll
      for (int j = 0; j < V; j++) x[u][j] = fmaf(a[j], masked<D, AFTER>(g[u][j], x[u][j], a[j], f[j]), fmaf(b[j], x[u][j], d[j]));
      amp_store_n<V>(k.y, D, (r - u * ny) * k.c + c, x[u]);
    }
  }
  for (; r >= from; r -= ny) {
    float x[V], g[V];
    amp_load_n<V>(x, k.x, D, r * k.c + c);
    amp_load_n<V>(g, k.g, D, r * k.c + c);
#pragma unroll
    for (int j = 0; j < V; j++) x[j] = fmaf(a[j], masked<D, AFTER>(g[j], x[j], a[j], f[j]), fmaf(b[j], x[j], d[j]));
    amp_store_n<V>(k.y, D, r * k.c + c, x);
  }
}

/* -- Planes: a block has a channel's vectors from..to, over all images ------------------------- */

/* Vector u of the channel, THREADS vectors on: n images and i vectors more */
typedef struct walk { int64_t n, i; } walk;
__device__ __forceinline__ walk walk_to(const job &k, int64_t u) { walk w; w.n = u / k.run; w.i = u - w.n * k.run; return w; }
__device__ __forceinline__ void walk_on(const job &k, walk &w)
{
  w.n += k.step;
  w.i += k.skip;
  if (w.i >= k.run) { w.i -= k.run; w.n++; }
}
#define PLANES_HERE(D)                                                                                                 \
  enum { V = lane<D>::V };                                                                                             \
  const int64_t c = blockIdx.x, from = blockIdx.y * k.per, to = from + k.per < k.units ? from + k.per : k.units;       \
  walk w = walk_to(k, from + threadIdx.x)
#define PLANES_AT ((w.n * k.c + c) * k.run + w.i) * V

template <int D> __global__ void __launch_bounds__(THREADS) planes_stats(const job k)
{
  PLANES_HERE(D);
  __shared__ double total[2][THREADS];
  __shared__ float sh[3][THREADS];
  float shift = 0, s = 0, q = 0, n = 0;
  for (int64_t u = from + threadIdx.x; u < to; u += THREADS, walk_on(k, w)) {
    float x[V];
    amp_load_n<V>(x, k.x, D, PLANES_AT);
    if (n == 0) shift = x[0];
    n += V;
#pragma unroll
    for (int j = 0; j < V; j++) { float d = x[j] - shift; s += d; q += d * d; }
  }
  float m = n > 0 ? s / n : 0.f, dev = q - s * m;
  sh[0][threadIdx.x] = n;
  sh[1][threadIdx.x] = shift + m;
  sh[2][threadIdx.x] = dev < 0 ? 0.f : dev;
  __syncthreads();
  const double base = (double)sh[1][0];
  fold(1, THREADS, total, [&](int i, int, double &a, double &b) {
    double e = (double)sh[0][i], d = (double)sh[1][i] - base;
    if (e > 0) { a += e * d; b += (double)sh[2][i] + e * d * d; }
  });
  if (threadIdx.x == 0) {
    double all = (double)((to - from) * V), d = total[0][0] / all, *p = k.partial + 2 * ((int64_t)blockIdx.x * k.parts + blockIdx.y);
    p[0] = base + d;
    p[1] = total[1][0] - all * d * d;
  }
  if (last_part(k)) settle(k, 1, V, total);
}

template <int D, int AFTER> __global__ void __launch_bounds__(THREADS) planes_apply(const job k)
{
  PLANES_HERE(D);
  update(k, 1);
  const float a = k.coef[c], b = k.coef[k.c + c];
#pragma unroll 2
  for (int64_t u = from + threadIdx.x; u < to; u += THREADS, walk_on(k, w)) {
    float x[V], z[V];
    amp_load_n<V>(x, k.x, D, PLANES_AT);
    if (AFTER == JOINED) { amp_load_n<V>(z, k.r, D, PLANES_AT); }
#pragma unroll
    for (int j = 0; j < V; j++) x[j] = finish<D, AFTER>(k, x[j], AFTER == JOINED ? z[j] : 0.f, a, b);
    amp_store_n<V>(k.y, D, PLANES_AT, x);
  }
}

template <int D, int AFTER> __global__ void __launch_bounds__(THREADS) planes_sums(const job k)
{
  PLANES_HERE(D);
  __shared__ double total[2][THREADS];
  __shared__ float sh[2][THREADS];
  const float mean = k.mean[c];
  float s = 0, q = 0, a, b;
  forward_coef(k, c, mean, &a, &b);
#pragma unroll 2
  for (int64_t u = from + threadIdx.x; u < to; u += THREADS, walk_on(k, w)) {
    float x[V], g[V], y[V];
    amp_load_n<V>(x, k.x, D, PLANES_AT);
    amp_load_n<V>(g, k.g, D, PLANES_AT);
    if (AFTER == JOINED) { amp_load_n<V>(y, k.r, D, PLANES_AT); }
#pragma unroll
    for (int j = 0; j < V; j++) {
      g[j] = masked<D, AFTER>(g[j], AFTER == JOINED ? y[j] : x[j], a, b);
      s += g[j];
      q += g[j] * (x[j] - mean);
    }
    if (AFTER == JOINED) { amp_store_n<V>(k.gm, D, PLANES_AT, g); }
  }
  sh[0][threadIdx.x] = s;
  sh[1][threadIdx.x] = q;
  __syncthreads();
  fold(1, THREADS, total, [&](int i, int, double &u, double &v) { u += (double)sh[0][i]; v += (double)sh[1][i]; });
  if (threadIdx.x == 0) {
    double *p = k.partial + 2 * ((int64_t)blockIdx.x * k.parts + blockIdx.y);
    p[0] = total[0][0];
    p[1] = total[1][0];
  }
  if (last_part(k)) settle_back(k, 1, total);
}

template <int D, int AFTER> __global__ void __launch_bounds__(THREADS) planes_back(const job k)
{
  PLANES_HERE(D);
  const float a = k.coef[c], b = k.coef[k.c + c], d = k.coef[2 * k.c + c];
  float same, f;
  forward_coef(k, c, k.mean[c], &same, &f);
#pragma unroll 2
  for (int64_t u = from + threadIdx.x; u < to; u += THREADS, walk_on(k, w)) {
    float x[V], g[V];
    amp_load_n<V>(x, k.x, D, PLANES_AT);
    amp_load_n<V>(g, k.g, D, PLANES_AT);
#pragma unroll
    for (int j = 0; j < V; j++) x[j] = fmaf(a, masked<D, AFTER>(g[j], x[j], a, f), fmaf(b, x[j], d));
    amp_store_n<V>(k.y, D, PLANES_AT, x);
  }
}

/* -- Calls ----------------------------------------------------------------------------------------- */

/* Without gaps, channels beside each other or planes */
static bool lies(const amp_tensor *t, bool last)
{
  int64_t n = last ? t->size[1] : 1;
  if (last && t->size[1] != 1 && t->stride[1] != 1) return false;
  for (int d = t->ndim - 1; d >= 0; d--) {
    if (last && d == 1) continue;
    if (t->size[d] != 1 && t->stride[d] != n) return false;
    n *= t->size[d];
  }
  return true;
}

/* t (NULL passes) as x lies and in its dtype, on a boundary of 16 bytes: itself or a copy */
static amp_tensor *as(amp_tensor *t, const amp_tensor *x, bool last, bool *ok)
{
  if (t == NULL || !*ok) return NULL;
  if (t->dtype == x->dtype && lies(t, last) && amp_wide(amp__data(t))) return amp_own(t);
  amp_tensor *flat = amp__cuda_make(x->dtype, 1, &x->numel), *v = flat ? amp__tensor_view(flat, x->ndim, x->size, x->stride, 0) : NULL;
  amp__free(flat);
  if (v && amp__cuda_copy_to(v, t) < 0) { amp__free(v); v = NULL; }
  if (v == NULL) *ok = false;
  return v;
}

/* Does x go by whole vectors? 1: not, 0: yes, *last tells how. All of `others` are alike. */
static int fits(const amp_tensor *x, bool *last, amp_tensor *const *others, int n)
{
  if (x->ndim < 2 || x->numel == 0 || x->size[1] > AMP_CELLS || x->dtype == AMP_FLOAT64 || !amp_wide(amp__data(x))) return 1;
  int64_t v = x->dtype == AMP_FLOAT32 ? 4 : 8, c = x->size[1], s = x->numel / (x->size[0] * c);
  if (lies(x, true) && c % v == 0) *last = true;
  else if (lies(x, false) && s % v == 0) *last = false;
  else return 1;
  for (int i = 0; i < n; i++)
    if (others[i] && (others[i]->dtype != x->dtype || !lies(others[i], *last) || !amp_wide(amp__data(others[i])))) return 1;
  return 0;
}

/* How the work is cut, and scratch memory for it (NULL: error) */
static amp_tensor *cut(job *k, const amp_tensor *x, bool last, dim3 *grid)
{
  int64_t v = x->dtype == AMP_FLOAT32 ? 4 : 8, most = (int64_t)amp__cuda_here()->sms * 4, strips, least, parts;
  k->c = x->size[1];
  k->count = (double)(x->numel / k->c);
  if (last) {
    while (k->log < 3 && (v << (k->log + 1)) * 2 <= k->c) k->log++; /* two strips at least */
    strips = (k->c + (v << k->log) - 1) / (v << k->log);
    k->units = x->numel / k->c;
    least = (int64_t)(THREADS >> k->log) * 4;
  } else {
    strips = k->c;
    k->run = x->numel / (x->size[0] * k->c * v);
    k->units = x->size[0] * k->run;
    k->step = (int32_t)(THREADS / k->run);
    k->skip = (int32_t)(THREADS % k->run);
    least = THREADS * 2;
  }
  parts = most / strips;
  if (parts > (k->units + least - 1) / least) parts = (k->units + least - 1) / least;
  if (parts > PARTS) parts = PARTS;
  if (parts < 1) parts = 1;
  k->per = (k->units + parts - 1) / parts;
  k->parts = (int32_t)((k->units + k->per - 1) / k->per); /* none is empty */
  *grid = dim3((unsigned)strips, (unsigned)k->parts);
  size_t width = last ? (size_t)(v << k->log) : 1, c = (size_t)k->c;
  size_t sums = (size_t)strips * width * (size_t)k->parts * 2 * sizeof(double), var = c * sizeof(double), coef = 3 * c * sizeof(float);
  amp_tensor *s = amp__cuda_scratch(sums + var + coef + (size_t)strips * sizeof(int));
  if (s == NULL || !(k->cells = amp_cells(amp__cuda_here(), (unsigned)strips))) { amp__free(s); return NULL; }
  char *p = (char *)amp__data(s);
  k->partial = (double *)p;
  k->var = (double *)(p + sums);
  k->coef = (float *)(p + sums + var);
  k->bad = (int *)(p + sums + var + coef);
  return s;
}

static void vector(const amp_tensor *t, char **p, int32_t *dtype, int64_t *stride)
{
  if (t == NULL) return;
  *p = (char *)amp__data(t);
  *dtype = t->dtype;
  *stride = t->ndim ? t->stride[0] : 1;
}

/* kernel_AFTER<D>, by rows or planes */
#define BY_AFTER(kernel, D)                                                                       \
  do {                                                                                            \
    if (after == JOINED) AMP_LAUNCH((kernel<D, JOINED>), grid, THREADS, 0, k);                    \
    else if (after == RELU) AMP_LAUNCH((kernel<D, RELU>), grid, THREADS, 0, k);                   \
    else AMP_LAUNCH((kernel<D, PLAIN>), grid, THREADS, 0, k);                                     \
  } while (0)
#define BY_DTYPE(LAUNCH, kernel)                                                                  \
  do {                                                                                            \
    if (dtype == AMP_FLOAT16) LAUNCH(kernel, AMP_FLOAT16);                                        \
    else if (dtype == AMP_BFLOAT16) LAUNCH(kernel, AMP_BFLOAT16);                                 \
    else LAUNCH(kernel, AMP_FLOAT32);                                                             \
  } while (0)
#define ALONE(kernel, D) AMP_LAUNCH((kernel<D>), grid, THREADS, 0, k)

} // namespace

int amp_bn_forward(const amp_bn *c)
{
  bool last, ok = true, live = c->training || !c->rm || !c->rv;
  amp_tensor *others[1] = { c->y }, *m = NULL, *r = NULL, *w = NULL, *b = NULL, *z = NULL, *s = NULL;
  job k;
  dim3 grid;
  int rc = AMP_E_MEMORY, dtype = c->x->dtype, after = c->residual ? JOINED : c->relu ? RELU : PLAIN;
  if (fits(c->x, &last, others, 1)) return 1;
  memset((void *)&k, 0, sizeof k);
  if (!(m = amp_take(c->mean, AMP_FLOAT32)) || !(r = amp_take(c->rstd, AMP_FLOAT32))) goto out;
  if ((c->w && !(w = amp__cuda_dense(c->w, AMP_FLOAT32))) || (c->b && !(b = amp__cuda_dense(c->b, AMP_FLOAT32)))) goto out;
  z = as(c->residual, c->x, last, &ok);
  if (!ok || !(s = cut(&k, c->x, last, &grid))) goto out;
  k.x = amp__data(c->x);
  k.y = amp__data(c->y);
  k.r = z ? amp__data(z) : NULL;
  k.mean = AMP_DATA(float, m);
  k.rstd = AMP_DATA(float, r);
  k.w = w ? AMP_DATA(float, w) : NULL;
  k.b = b ? AMP_DATA(float, b) : NULL;
  vector(c->rm, &k.rm, &k.rmdt, &k.srm);
  vector(c->rv, &k.rv, &k.rvdt, &k.srv);
  k.batches = c->batches && c->training ? AMP_DATA(int64_t, c->batches) : NULL;
  k.relu = c->relu;
  k.update = c->training;
  k.eps = c->eps;
  k.momentum = c->momentum;
  if (c->training) {
    amp__cuda_touch(c->rm, true);
    amp__cuda_touch(c->rv, true);
    amp__cuda_touch(c->batches, true);
  }
  if (!live) AMP_LAUNCH(running, amp_grid(k.c, THREADS), THREADS, 0, k);
  else if (last) BY_DTYPE(ALONE, rows_stats);
  else BY_DTYPE(ALONE, planes_stats);
  if (last) BY_DTYPE(BY_AFTER, rows_apply);
  else BY_DTYPE(BY_AFTER, planes_apply);
  if (c->training) {
    if (c->rm) amp__bump(c->rm);
    if (c->rv) amp__bump(c->rv);
    if (c->batches) amp__bump(c->batches);
  }
  rc = 0;
out:
  amp__free(s);
  amp__free(z);
  amp__free(w);
  amp__free(b);
  rc = amp_give(c->mean, m, rc);
  return amp_give(c->rstd, r, rc);
}

int amp_bn_backward(const amp_bn *c)
{
  bool last, ok = true;
  amp_tensor *others[2] = { c->dx, c->dr }, *m = NULL, *r = NULL, *w = NULL, *b = NULL, *g = NULL, *y = NULL, *s = NULL;
  job k;
  dim3 grid;
  int rc = AMP_E_MEMORY, dtype = c->x->dtype, after = c->dr ? JOINED : c->relu ? RELU : PLAIN;
  if (fits(c->x, &last, others, 2)) return 1;
  memset((void *)&k, 0, sizeof k);
  if (!(m = amp__cuda_dense(c->mean, AMP_FLOAT32)) || !(r = amp__cuda_dense(c->rstd, AMP_FLOAT32))) goto out;
  if ((c->w && !(w = amp__cuda_dense(c->w, AMP_FLOAT32))) || (c->b && !(b = amp__cuda_dense(c->b, AMP_FLOAT32)))) goto out;
  g = as(c->g, c->x, last, &ok);
  if (after == JOINED) y = as(c->y, c->x, last, &ok);
  if (!ok || !(s = cut(&k, c->x, last, &grid))) goto out;
  k.x = amp__data(c->x);
  k.g = amp__data(g);
  k.r = y ? amp__data(y) : NULL;
  k.y = amp__data(c->dx);
  k.gm = c->dr ? amp__data(c->dr) : NULL;
  k.mean = AMP_DATA(float, m);
  k.rstd = AMP_DATA(float, r);
  k.w = w ? AMP_DATA(float, w) : NULL;
  k.b = b ? AMP_DATA(float, b) : NULL;
  vector(c->dw, &k.gw, &k.gwdt, &k.sgw);
  vector(c->db, &k.gb, &k.gbdt, &k.sgb);
  k.live = c->training;
  if (last) BY_DTYPE(BY_AFTER, rows_sums);
  else BY_DTYPE(BY_AFTER, planes_sums);
  if (after == JOINED) { k.g = k.gm; after = PLAIN; }
  if (last) BY_DTYPE(BY_AFTER, rows_back);
  else BY_DTYPE(BY_AFTER, planes_back);
  rc = 0;
out:
  amp__free(s);
  amp__free(g);
  amp__free(y);
  amp__free(w);
  amp__free(b);
  amp__free(m);
  amp__free(r);
  return rc;
}
