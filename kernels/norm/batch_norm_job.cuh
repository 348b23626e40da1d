/*
** batch_norm_job.cuh: what the kernels of batch norm by whole vectors share: a
** launch's argument, sums over a block and over the blocks of a strip, statistics
** and coefficients, what happens to an element. A strip is the channels of a
** column of blocks, a part the share of one of its blocks.
*/
#ifndef AMP_BATCH_NORM_JOB_CUH
#define AMP_BATCH_NORM_JOB_CUH
#include "norm/batch_norm.cuh"

/* Rows: a part has `most` of them (the first `extra` parts), or a tile less, and the first one `lack` less; `tile`
** rows are a tile; sums have 2^log_vectors vectors a strip, apply has `across`. Planes: a block's threads on are
** `step` images and `skip` vectors. */
typedef struct amp_bn_job {
  const void *x, *g, *joined; /* joined: residual; backward: the result */
  void *y, *masked_g;         /* y: what apply writes */
  const float *w, *b;         /* [channels] or NULL */
  float *mean, *rstd, *coef;  /* [channels]; coef: [4][channels], the last is forward's constant */
  float2 *partial;            /* [strip][width][part]: mean and deviations, or sums */
  double *var;                /* [channels] */
  unsigned *cells;            /* a ticket a strip */
  int *bad;                   /* [strips]: not finite */
  char *running_mean, *running_var, *grad_w, *grad_b;
  int64_t *batches;
  int64_t running_mean_stride, running_var_stride, grad_w_stride, grad_b_stride;
  int64_t channels, units, part_vectors, plane_vectors; /* units: rows, or a channel's vectors */
  double count, inverse, eps, momentum;                 /* inverse: 1 / count */
  double most, lack;
  int64_t tile, tiles;
  int32_t strips, parts, log_vectors, across, extra;
  int32_t centred; /* float32: a (x - mean) + b, not a x + b */
  int32_t relu, update, step, skip, running_mean_dtype, running_var_dtype, grad_w_dtype, grad_b_dtype, live;
} amp_bn_job;

/* Launch a pass of a job by rows (channels beside each other) or planes; what follows: nothing, ReLU, a residual (and
** ReLU) */
enum { AMP_BN_STATS, AMP_BN_APPLY, AMP_BN_SUMS, AMP_BN_BACK };
enum { AMP_BN_PLAIN, AMP_BN_RELU, AMP_BN_JOINED };
void amp_bn_rows(const amp_bn_job *task, int pass, int dtype, int after);
void amp_bn_planes(const amp_bn_job *task, int pass, int dtype, int after);
/* How the sums of a job are cut: strips, parts and what goes with them; its width */
int amp_bn_cut_rows(amp_bn_job *task, int dtype, bool back);
int amp_bn_cut_planes(amp_bn_job *task);

namespace {

typedef amp_bn_job job;
enum { PLAIN = AMP_BN_PLAIN, RELU = AMP_BN_RELU, JOINED = AMP_BN_JOINED };

/* 16 bytes: V elements */
template <int D> struct lane {
  enum { V = D == AMP_FLOAT32 ? 4 : 8 };
};

template <int D> __device__ __forceinline__ void open(float (&v)[lane<D>::V], uint4 q)
{
  const unsigned w[4] = { q.x, q.y, q.z, q.w };
#pragma unroll
  for (int j = 0; j < 4; j++) {
    if constexpr (D == AMP_FLOAT32) {
      v[j] = __uint_as_float(w[j]);
    } else {
      uint16_t lo = (uint16_t)w[j], hi = (uint16_t)(w[j] >> 16);
      v[2 * j] = D == AMP_FLOAT16 ? amp_h2f(lo) : amp_bf2f(lo);
      v[2 * j + 1] = D == AMP_FLOAT16 ? amp_h2f(hi) : amp_bf2f(hi);
    }
  }
}

/* -- Sums of a block and of a strip -------------------------------------------------- */

/* Count, mean and deviations of two samples, without cancellation (Chan, Golub and LeVeque 1979) */
__device__ __forceinline__ void join(float &n, float &mean, float &dev, float n2, float mean2, float dev2)
{
  const float share = n2 > 0 ? __fdividef(n2, n + n2) : 0.f, apart = mean2 - mean;
  if (share > 0) {
    dev += dev2 + (n > 0 ? apart * apart * (n * share) : 0.f);
    mean += apart * share;
    n += n2;
  }
}

/* The channels of a strip go around the warps: COLS of a warp at most, `column` of lane i is its i-th */
#define COLUMN(i) ((threadIdx.x >> 5) + (i) * (T / 32))

/* The block's part of the strip: sh0 and sh1 have a line of `width` columns and one more a warp: sums, or (MOMENTS)
** means from the channel's base and deviations of count[warp] elements. */
template <int T, int COLS, bool MOMENTS>
__device__ __forceinline__ void leave_part(const job &task, int width, const float *sh0, const float *sh1,
                                           const float *count)
{
  const int lane_ = threadIdx.x & 31;
  __syncthreads();
  if ((int)COLUMN(0) >= width) return;
  float a[COLS], b[COLS], n = MOMENTS && lane_ < T / 32 ? count[lane_] : 0.f;
#pragma unroll
  for (int i = 0; i < COLS; i++) {
    const int at = lane_ * (width + 1) + COLUMN(i);
    const bool there = lane_ < T / 32 && (int)COLUMN(i) < width;
    a[i] = there ? sh0[at] : 0.f;
    b[i] = there ? sh1[at] : 0.f;
  }
#pragma unroll 1
  for (int d = 16; d > 0; d >>= 1) {
    const float n1 = n, n2 = MOMENTS ? __shfl_xor_sync(0xffffffffu, n, d) : 0.f;
#pragma unroll
    for (int i = 0; i < COLS; i++) {
      const float a2 = __shfl_xor_sync(0xffffffffu, a[i], d), b2 = __shfl_xor_sync(0xffffffffu, b[i], d);
      n = n1;
      if (MOMENTS) {
        join(n, a[i], b[i], n2, a2, b2);
      } else {
        a[i] += a2;
        b[i] += b2;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < COLS; i++)
    if (lane_ == 0 && (int)COLUMN(i) < width)
      task.partial[((int64_t)blockIdx.x * width + COLUMN(i)) * task.parts + blockIdx.y] = make_float2(a[i], b[i]);
}

/* Is this the last block of its strip, to which the others' parts are there? */
__device__ __forceinline__ bool last_part(const job &task)
{
  __shared__ int last;
  __syncthreads();
  if (task.parts == 1) return true;
  if (threadIdx.x == 0) { /* what the block's threads wrote is before its fence by the barrier */
    __threadfence();
    last = atomicAdd(task.cells + blockIdx.x, 1u) == (unsigned)task.parts - 1;
    if (last) task.cells[blockIdx.x] = 0;
    __threadfence();
  }
  __syncthreads();
  return last != 0;
}

/* A lane's channel of the strip, or -1 */
template <int T, int COLS> __device__ __forceinline__ int64_t channel_of(const job &task, int width)
{
  const int lane_ = threadIdx.x & 31, column = COLUMN(lane_);
  const int64_t c = (int64_t)blockIdx.x * width + column;
  return lane_ < COLS && column < width && c < task.channels ? c : -1;
}

/* Two sums over the parts of a lane's channel: of(part, value, &a, &b) adds a part */
template <int T, int COLS, class F>
__device__ __forceinline__ void strip_sums(const job &task, int width, double *total_a, double *total_b, F of)
{
  const int lane_ = threadIdx.x & 31;
  if ((int)COLUMN(0) >= width) return;
  const float2 *p = task.partial + ((int64_t)blockIdx.x * width + COLUMN(0)) * task.parts;
  double a[COLS], b[COLS];
#pragma unroll
  for (int i = 0; i < COLS; i++) a[i] = b[i] = 0;
#pragma unroll 2
  for (int part = lane_; part < task.parts; part += 32) {
    float2 v[COLS];
#pragma unroll
    for (int i = 0; i < COLS; i++)
      v[i] = (int)COLUMN(i) < width ? p[(int64_t)i * (T / 32) * task.parts + part] : make_float2(0, 0);
#pragma unroll
    for (int i = 0; i < COLS; i++) of(part, v[i], a[i], b[i]);
  }
#pragma unroll 1
  for (int d = 16; d > 0; d >>= 1) {
#pragma unroll
    for (int i = 0; i < COLS; i++) {
      a[i] += __shfl_xor_sync(0xffffffffu, a[i], d);
      b[i] += __shfl_xor_sync(0xffffffffu, b[i], d);
    }
  }
#pragma unroll
  for (int i = 0; i < COLS; i++)
    if (lane_ == i) {
      *total_a = a[i];
      *total_b = b[i];
    }
}

/* float32 elements are taken less their mean before they are multiplied, or a large offset would cost their digits; 16
** bits have no digits to lose. taken: the mean's part in a x + b, less: the element that is multiplied */
__device__ __forceinline__ double taken(const job &task, double mean) { return task.centred ? 0.0 : mean; }
template <int D> __device__ __forceinline__ float less(float x, float mean) { return D == AMP_FLOAT32 ? x - mean : x; }

/* The strip's statistics, from parts of count(part) elements with means from base(channel), and forward's coefficients
 */
template <int T, int COLS, class N, class B>
__device__ __forceinline__ void settle(const job &task, int width, N count, B base)
{
  const int64_t c = channel_of<T, COLS>(task, width);
  const double w = c >= 0 && task.w ? (double)task.w[c] : 1.0, bias = c >= 0 && task.b ? (double)task.b[c] : 0.0,
               from = c >= 0 ? (double)base(c) : 0.0;
  double sum = 0, dev = 0;
  int odd = 0;
  strip_sums<T, COLS>(task, width, &sum, &dev, [&](int i, float2 v, double &a, double &b) {
    const double n = count(i), d = (double)v.x;
    a += n * d;
    b += (double)v.y + n * d * d;
  });
  if (c >= 0) {
    const double d = sum * task.inverse, mean = from + d;
    double var = dev * task.inverse - d * d;
    if (var < 0) var = 0;
    odd = !(fabs(mean) <= DBL_MAX && fabs(var) <= DBL_MAX);
    float m = (float)mean, r = (float)rsqrt(var + task.eps);
    double a = (double)r * w;
    task.mean[c] = m;
    task.rstd[c] = r;
    task.var[c] = var;
    task.coef[c] = (float)a;
    task.coef[task.channels + c] = (float)(bias - taken(task, (double)m) * a);
  }
  odd = __syncthreads_or(odd);
  if (threadIdx.x == 0) task.bad[blockIdx.x] = odd;
}

/* What forward's coefficients are (see settle) */
__device__ __forceinline__ void forward_coef(const job &task, int64_t c, float m, float *a, float *b)
{
  double s = (double)task.rstd[c] * (task.w ? (double)task.w[c] : 1.0);
  *a = (float)s;
  *b = (float)((task.b ? (double)task.b[c] : 0.0) - taken(task, (double)m) * s);
}

/* The strip's gradients of w and b, and backward's coefficients */
template <int T, int COLS> __device__ __forceinline__ void settle_back(const job &task, int width)
{
  const int64_t c = channel_of<T, COLS>(task, width);
  const double r = c >= 0 ? (double)task.rstd[c] : 0.0, mean = c >= 0 ? (double)task.mean[c] : 0.0,
               w = c >= 0 && task.w ? (double)task.w[c] : 1.0, bias = c >= 0 && task.b ? (double)task.b[c] : 0.0;
  double sg = 0, sx = 0;
  strip_sums<T, COLS>(task, width, &sg, &sx, [&](int, float2 v, double &a, double &b) {
    a += (double)v.x;
    b += (double)v.y;
  });
  if (c < 0) return;
  const double s = r * w, each = task.live ? s * task.inverse : 0, b = -each * r * (sx * r);
  task.coef[c] = (float)s; /* forward's as well */
  task.coef[task.channels + c] = (float)b;
  task.coef[2 * task.channels + c] = (float)(-each * sg - b * taken(task, mean));
  task.coef[3 * task.channels + c] = (float)(bias - taken(task, mean) * s);
  if (task.grad_w) amp_store<double>(task.grad_w, task.grad_w_dtype, c * task.grad_w_stride, sx * r);
  if (task.grad_b) amp_store<double>(task.grad_b, task.grad_b_dtype, c * task.grad_b_stride, sg);
}

__device__ __forceinline__ void move_to(char *p, int dtype, int64_t i, double v, double momentum)
{
  if (p) amp_store<double>(p, dtype, i, (1 - momentum) * amp_load<double>(p, dtype, i) + momentum * v);
}

/* Running statistics of `width` channels a column of blocks, when all strips are known */
__device__ __forceinline__ void update(const job &task, int width)
{
  int odd = 0;
  for (int i = threadIdx.x; i < task.strips; i += blockDim.x) odd |= task.bad[i];
  odd = __syncthreads_or(odd);
  if (blockIdx.x == 0 && threadIdx.x == 0 && task.batches) *task.batches += 1;
  if (odd || !(task.count > 1)) return;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const int64_t c = (int64_t)blockIdx.x * width + i;
    if (c >= task.channels) return;
    move_to(task.running_mean, task.running_mean_dtype, c * task.running_mean_stride, (double)task.mean[c],
            task.momentum);
    move_to(task.running_var, task.running_var_dtype, c * task.running_var_stride,
            task.var[c] * (task.count / (task.count - 1)), task.momentum);
  }
}

/* -- Elements ---------------------------------------------------------------------------- */

/* a x + b and what follows, as the ops give it one after the other */
template <int D, int AFTER> __device__ __forceinline__ float finish(const job &task, float x, float r, float a, float b)
{
  float v = fmaf(a, x, b);
  if (AFTER == JOINED) {
    v = amp_rounded(amp_rounded(v, D) + r, D);
    if (!task.relu) return v;
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
