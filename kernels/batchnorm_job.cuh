/*
** batchnorm_job.cuh: what the kernels of batch norm by whole vectors share: a
** launch's argument, sums over a block and over the blocks of a strip, statistics
** and coefficients, what happens to an element. A strip is the channels of a
** column of blocks, a part the share of one of its blocks.
*/
#ifndef AMP_BATCHNORM_JOB_CUH
#define AMP_BATCHNORM_JOB_CUH
#include "batchnorm.cuh"

typedef struct amp_bn_job {
  const void *x, *g, *r;        /* r: residual; backward: the result */
  void *y, *gm;                 /* y: what apply writes; gm: masked g */
  const float *w, *b;           /* [c] or NULL */
  float *mean, *rstd, *coef;    /* [c]; coef: [4][c], the last is forward's constant */
  float2 *partial;              /* [strip][part][width]: mean and deviations, or sums */
  double *var;                  /* [c] */
  unsigned *cells;              /* a ticket a strip */
  int *bad;                     /* [strips]: not finite */
  char *rm, *rv, *gw, *gb;      /* running statistics, gradients of w and b */
  int64_t *batches;
  int64_t srm, srv, sgw, sgb;
  int64_t c, units, per, run;   /* units: rows, or a channel's vectors; planes: per: of a part, run: vectors of a plane */
  double count, eps, momentum;
  int64_t tile, whole, lack;    /* rows: of a tile; whole tiles of a part, one more of the first `extra`; rows that part `owner` lacks */
  int32_t strips, parts, log, across, extra, owner; /* rows: sums have 2^log vectors a strip, apply `across` */
  int32_t relu, update, step, skip, rmdt, rvdt, gwdt, gbdt, live; /* planes: step, skip: a block's threads on are so many images and vectors */
} amp_bn_job;

/* Launch a pass of a job by rows (channels beside each other) or planes; what follows: nothing, ReLU, a residual (and ReLU) */
enum { AMP_BN_STATS, AMP_BN_APPLY, AMP_BN_SUMS, AMP_BN_BACK };
enum { AMP_BN_PLAIN, AMP_BN_RELU, AMP_BN_JOINED };
void amp_bn_rows(const amp_bn_job *k, int pass, int dtype, int after);
void amp_bn_planes(const amp_bn_job *k, int pass, int dtype, int after);
/* How the sums of a job are cut: strips, parts and what goes with them; its width */
int amp_bn_cut_rows(amp_bn_job *k, int dtype, bool back);
int amp_bn_cut_planes(amp_bn_job *k);

namespace {

typedef amp_bn_job job;
enum { PLAIN = AMP_BN_PLAIN, RELU = AMP_BN_RELU, JOINED = AMP_BN_JOINED };

/* 16 bytes: V elements */
template <int D> struct lane { enum { V = D == AMP_FLOAT32 ? 4 : 8 }; };

template <int D> __device__ __forceinline__ void open(float (&v)[lane<D>::V], uint4 q)
{
  const unsigned w[4] = { q.x, q.y, q.z, q.w };
#pragma unroll
  for (int j = 0; j < 4; j++) {
    if constexpr (D == AMP_FLOAT32) { v[j] = __uint_as_float(w[j]); }
    else {
      uint16_t lo = (uint16_t)w[j], hi = (uint16_t)(w[j] >> 16);
      v[2 * j] = D == AMP_FLOAT16 ? amp_h2f(lo) : amp_bf2f(lo);
      v[2 * j + 1] = D == AMP_FLOAT16 ? amp_h2f(hi) : amp_bf2f(hi);
    }
  }
}

/* -- Sums of a block and of a strip -------------------------------------------------- */

/* Sums over `lines` lines of `width` (a power of two) pairs: f(line, column, &a, &b) adds one; a line of sums to total.
** All T threads of the block come. */
template <int T, class F> __device__ __forceinline__ void fold(int width, int lines, double (*total)[T], F f)
{
  int column = threadIdx.x & (width - 1), group = threadIdx.x / width, groups = T / width;
  double a = 0, b = 0;
#pragma unroll 8
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
#pragma unroll 4
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

/* The strip's statistics, from parts (mean, deviations) of count(part) elements, and forward's coefficients */
template <int T, class N> __device__ __forceinline__ void settle(const job &k, int width, double (*total)[T], N count)
{
  __shared__ int odd;
  const float2 *p = k.partial + (int64_t)blockIdx.x * k.parts * width;
  const double shift = (double)p[threadIdx.x & (width - 1)].x;
  fold<T>(width, k.parts, total, [&](int i, int j, double &a, double &b) {
    const float2 v = p[(int64_t)i * width + j];
    double n = count(i), d = (double)v.x - shift;
    a += n * d;
    b += (double)v.y + n * d * d;
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

/* What forward's coefficients are (see settle) */
__device__ __forceinline__ void forward_coef(const job &k, int64_t c, float m, float *a, float *b)
{
  double s = (double)k.rstd[c] * (k.w ? (double)k.w[c] : 1.0);
  *a = (float)s;
  *b = (float)((k.b ? (double)k.b[c] : 0.0) - (double)m * s);
}

/* The strip's gradients of w and b, and backward's coefficients */
template <int T> __device__ __forceinline__ void settle_back(const job &k, int width, double (*total)[T])
{
  const float2 *p = k.partial + (int64_t)blockIdx.x * k.parts * width;
  fold<T>(width, k.parts, total, [&](int i, int j, double &a, double &b) {
    const float2 v = p[(int64_t)i * width + j];
    a += (double)v.x;
    b += (double)v.y;
  });
  const int64_t c = (int64_t)blockIdx.x * width + threadIdx.x;
  if ((int)threadIdx.x < width && c < k.c) {
    double sg = total[0][threadIdx.x], sx = total[1][threadIdx.x];
    double r = (double)k.rstd[c], w = k.w ? (double)k.w[c] : 1.0, b = k.live ? -w * r * r * (sx * r) / k.count : 0;
    float same;
    k.coef[c] = (float)(w * r); /* forward's as well */
    k.coef[k.c + c] = (float)b;
    k.coef[2 * k.c + c] = (float)(k.live ? -w * r * sg / k.count - b * (double)k.mean[c] : 0);
    forward_coef(k, c, k.mean[c], &same, k.coef + 3 * k.c + c);
    if (k.gw) amp_store<double>(k.gw, k.gwdt, c * k.sgw, sx * r);
    if (k.gb) amp_store<double>(k.gb, k.gbdt, c * k.sgb, sg);
  }
}

__device__ __forceinline__ void move_to(char *p, int dtype, int64_t i, double v, double momentum)
{
  if (p) amp_store<double>(p, dtype, i, (1 - momentum) * amp_load<double>(p, dtype, i) + momentum * v);
}

/* Running statistics of `width` channels a column of blocks: the first block of apply in each sees to them, when all strips are known */
__device__ __forceinline__ void update(const job &k, int width)
{
  if (blockIdx.y != 0 || !k.update) return;
  int odd = 0;
  for (int i = threadIdx.x; i < k.strips; i += blockDim.x) odd |= k.bad[i];
  odd = __syncthreads_or(odd);
  if (blockIdx.x == 0 && threadIdx.x == 0 && k.batches) *k.batches += 1;
  if (odd || !(k.count > 1)) return;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const int64_t c = (int64_t)blockIdx.x * width + i;
    if (c >= k.c) return;
    move_to(k.rm, k.rmdt, c * k.srm, (double)k.mean[c], k.momentum);
    move_to(k.rv, k.rvdt, c * k.srv, k.var[c] * (k.count / (k.count - 1)), k.momentum);
  }
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

/* g where ReLU let through; s: JOINED: the result, else x. A value up to half of the least one is rounded to 0. */
template <int D, int AFTER> __device__ __forceinline__ float masked(float g, float s, float a, float b)
{
  if (AFTER == PLAIN) return g;
  if (AFTER == JOINED) return s <= 0 ? 0.f : g;
  const float least = D == AMP_FLOAT16 ? 0x1p-25f : D == AMP_BFLOAT16 ? 0x1p-134f : 0.f;
  return fmaf(a, s, b) <= least ? 0.f : g;
}

} // namespace

#endif
