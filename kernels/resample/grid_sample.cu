/*
** grid_sample.cu: rows grid_sample, grid_sample_backward and grid_sample_double.
**
** What a point of the grid reads is a product of taps along each dimension (place,
** weight, the weight's first and second derivative in the grid's value), the same
** for all channels: a thread makes them once and goes through its channels. Taps
** outside the input have weight 0, and a weight of 0 reads nothing.
**
** Gradients in the input are added by atomics in float32 (float64 for float64):
** their last bit may differ between runs. In deterministic mode a thread a plane
** adds them in order instead.
*/
#include "common/planes.cuh"

namespace {

/* Switches over them are exhaustive: a word that one does not name is an error where they are compiled */
typedef decltype(GRID_SAMPLE_MODE_NEAREST) sample_mode;
typedef decltype(PADDING_MODE_ZEROS) padding_mode;
static_assert(GRID_SAMPLE_MODE_COUNT == 3 && PADDING_MODE_COUNT == 3, "launch, folded and bounded know three of each");
enum { ALL, NO_SUM, ONLY_SUM }; /* what a call does with gradients in the input */

struct grid_args {
  planes x, y;                    /* input; results or their gradient */
  planes h, gx, grad_grad;        /* twice: gradient of backward's first result; input's gradient; gradient of grad */
  amp_arg grid, along, grad_grid; /* grid; twice: gradient of backward's second result; the grid's gradient */
  int32_t dims, mode, padding, align, what;
  int64_t points, chunks, chunk;
};

/* -- Taps ------------------------------------------------------------------------- */

template <class T, int K> struct taps {
  int at[K];
  T w[K], d[K], dd[K], bad;
};

/* A place beyond a line's ends comes back as in a mirror; a line of no length has one place, 0 (false) */
template <class T> __device__ __forceinline__ bool mirrored(T &v, T n, bool align, T &f)
{
  const T lo = align ? (T)0 : (T)-0.5, span = align ? n - 1 : n;
  if (span <= 0) return false;
  T u = v - lo;
  if (u < 0) {
    u = -u;
    f = -f;
  }
  T turns = floor(u / span), rest = u - turns * span;
  if (fmod(turns, (T)2) != 0) {
    rest = span - rest;
    f = -f;
  }
  v = rest + lo;
  return true;
}

/* A place on a line of length size after padding that is not zeros; f becomes d place / d v */
template <class T> __device__ __attribute__((noinline)) T folded(T v, int size, int padding, bool align, T &f)
{
  const T n = (T)size;
  switch ((padding_mode)padding) {
  case PADDING_MODE_REFLECTION:
    if (!mirrored(v, n, align, f)) {
      f = 0;
      return 0;
    }
    break;
  case PADDING_MODE_BORDER:
  case PADDING_MODE_ZEROS:
  case PADDING_MODE_COUNT: break;
  }
  if (!(v > 0)) {
    f = 0;
    return 0;
  }
  if (v >= n - 1) {
    f = 0;
    return n - 1;
  }
  return v;
}
template <class T> __device__ __forceinline__ int bounded(T i, int size, int padding, bool align)
{
  T f = 1;
  switch ((padding_mode)padding) {
  case PADDING_MODE_ZEROS: return i >= 0 && i < (T)size ? (int)i : -1;
  case PADDING_MODE_BORDER:
  case PADDING_MODE_REFLECTION: return (int)folded(i, size, padding, align, f);
  case PADDING_MODE_COUNT: break;
  }
  AMP_NEVER();
}

template <class T> __device__ __forceinline__ T cubic(T x)
{
  return x <= 1 ? ((T)1.25 * x - (T)2.25) * x * x + 1 : (((T)-0.75 * x + (T)3.75) * x - 6) * x + 3;
}
template <class T> __device__ __forceinline__ T cubic1(T x)
{
  return x <= 1 ? ((T)3.75 * x - (T)4.5) * x : ((T)-2.25 * x + (T)7.5) * x - 6;
}
template <class T> __device__ __forceinline__ T cubic2(T x)
{
  return x <= 1 ? (T)7.5 * x - (T)4.5 : (T)-4.5 * x + (T)7.5;
}

template <class T, int K> __device__ __forceinline__ void place(taps<T, K> &t, T v, int size, int padding, bool align)
{
  T f = align ? ((T)size - 1) / 2 : (T)size / 2;
  v = align ? (v + 1) / 2 * ((T)size - 1) : ((v + 1) * (T)size - 1) / 2;
  t.bad = padding == PADDING_MODE_ZEROS || K == 4 ? v - v : (T)0;
  if (K == 4) {
    if (!(v > (T)-1e9 && v < (T)1e9)) v = -100;
    T i = floor(v), x = v - i, u[4] = { 1 + x, x, 1 - x, 2 - x };
#pragma unroll
    for (int k = 0; k < K; k++) {
      t.at[k] = bounded(i + (T)(k - 1), size, padding, align);
      t.w[k] = cubic(u[k & 3]);
      t.d[k] = (k < 2 ? f : -f) * cubic1(u[k & 3]);
      t.dd[k] = f * f * cubic2(u[k & 3]);
    }
  } else {
    if (padding != PADDING_MODE_ZEROS) v = folded(v, size, padding, align, f);
    else if (!(v > (T)-1e9 && v < (T)1e9)) v = -100;
    T i = K == 1 ? rint(v) : floor(v), x = v - i;
#pragma unroll
    for (int k = 0; k < K; k++) {
      t.at[k] = i + (T)k >= 0 && i + (T)k < (T)size ? (int)i + k : -1;
      t.w[k] = K == 1 ? (T)1 : k ? x : 1 - x;
      t.d[k] = K == 1 ? (T)0 : k ? f : -f;
      t.dd[k] = 0;
    }
  }
#pragma unroll
  for (int k = 0; k < K; k++)
    if (t.at[k] < 0) t.w[k] = t.d[k] = t.dd[k] = 0;
}

template <class T, int K> struct point {
  taps<T, K> t[3];
  int nz;
  T bad;
};

/* Where point p of image n stands in a tensor of the grid's shape; its values lie stride[nd + 1] apart */
__device__ __forceinline__ int64_t grid_at(const amp_arg &g, int nd, int64_t n, int64_t p)
{
  int64_t at = n * g.stride[0];
  uint32_t i = (uint32_t)p;
#pragma unroll 1
  for (int d = nd; d >= 1; d--) {
    uint32_t m = (uint32_t)g.size[d], q = i / m;
    at += (int64_t)(i - q * m) * g.stride[d];
    i = q;
  }
  return at;
}

template <class T, int K>
__device__ __forceinline__ void find(const grid_args &task, point<T, K> &q, int64_t n, int64_t p)
{
  int64_t at = grid_at(task.grid, task.dims, n, p), step = task.grid.stride[task.dims + 1];
  q.nz = task.dims == 3 ? K : 1;
  q.bad = 0;
#pragma unroll
  for (int a = 0; a < 3; a++) {
    if (a < task.dims) {
      place(q.t[a], planes_load(T(0), task.grid.p, task.grid.dtype, at + a * step), task.x.size[2 - a], task.padding,
            task.align);
      q.bad += q.t[a].bad;
    } else {
#pragma unroll
      for (int i = 0; i < K; i++) {
        q.t[a].at[i] = 0;
        q.t[a].w[i] = i == 0;
        q.t[a].d[i] = q.t[a].dd[i] = 0;
      }
    }
  }
}

/* Taps i of the dimensions; bicubic ones are looked up where they are used (their code is too long to be there 16
** times) */
#define EACH_TAP(q, ...)                                              \
  for (int iz = 0; iz < (q).nz; iz++) {                               \
    int z = (q).t[2].at[0];                                           \
    T wz = (q).t[2].w[0], dz = (q).t[2].d[0], ddz = (q).t[2].dd[0];   \
    _Pragma("unroll") for (int i = 1; i < K; i++) if (i == iz)        \
    {                                                                 \
      z = (q).t[2].at[i];                                             \
      wz = (q).t[2].w[i];                                             \
      dz = (q).t[2].d[i];                                             \
      ddz = (q).t[2].dd[i];                                           \
    }                                                                 \
    if (z < 0) continue;                                              \
    (void)dz;                                                         \
    (void)ddz;                                                        \
    _Pragma("unroll (K == 4 ? 1 : K)") for (int iy = 0; iy < K; iy++) \
    {                                                                 \
      int y = (q).t[1].at[iy];                                        \
      T wy = (q).t[1].w[iy];                                          \
      if (y < 0) continue;                                            \
      _Pragma("unroll") for (int ix = 0; ix < K; ix++)                \
      {                                                               \
        int x = (q).t[0].at[ix];                                      \
        T wx = (q).t[0].w[ix];                                        \
        if (x < 0) continue;                                          \
        __VA_ARGS__                                                   \
      }                                                               \
    }                                                                 \
  }
#define NZ(w, v) ((w) != 0 ? (v) : (T)0)
#define READ(v) planes_load(T(0), task.v.p, task.v.dtype, v##0 + planes_pixel(task.v, z, y, x))

template <class T>
__device__ __forceinline__ void put_sums(const grid_args &task, int64_t n, int64_t p, const T *sum, T bad)
{
  int64_t at = grid_at(task.grad_grid, task.dims, n, p);
  if (task.x.c == 0) bad = 0;
  planes_store(task.grad_grid.p, task.grad_grid.dtype, at, sum[0] + bad);
  planes_store(task.grad_grid.p, task.grad_grid.dtype, at + task.grad_grid.stride[task.dims + 1], sum[1] + bad);
  if (task.dims > 2)
    planes_store(task.grad_grid.p, task.grad_grid.dtype, at + 2 * task.grad_grid.stride[task.dims + 1], sum[2] + bad);
}

/* -- One point, channels c0 .. c1 ---------------------------------------------------- */

template <class T, int K>
__device__ __forceinline__ void forward(const grid_args &task, const point<T, K> &q, int64_t n, int64_t p, int64_t at,
                                        int64_t c0, int64_t c1)
{
  for (int64_t c = c0; c < c1; c++) {
    int64_t x0 = planes_channel(task.x, n, c);
    T sum = 0;
    EACH_TAP(q, T w = wx * wy * wz; sum += NZ(w, READ(x) * w);)
    planes_store(task.y.p, task.y.dtype, at + c * task.y.stride[1], sum + q.bad);
  }
}

template <class T, int K>
__device__ __forceinline__ void backward(const grid_args &task, const point<T, K> &q, int64_t n, int64_t p, int64_t at,
                                         int64_t c0, int64_t c1)
{
  T sum[3] = { 0, 0, 0 };
  for (int64_t c = c0; c < c1; c++) {
    int64_t x0 = planes_channel(task.x, n, c), to = planes_channel(task.gx, n, c);
    T g = planes_load(T(0), task.y.p, task.y.dtype, at + c * task.y.stride[1]);
    EACH_TAP(
        q, T w = wx * wy * wz; if (task.what != NO_SUM && w != 0) {
          T *place = (T *)task.gx.p + to + planes_pixel(task.gx, z, y, x);
          if (task.what == ALL) atomicAdd(place, w * g);
          else *place += w * g;
        } if (K > 1 && task.what != ONLY_SUM) {
          T ax = q.t[0].d[ix] * wy * wz, ay = wx * q.t[1].d[iy] * wz, az = wx * wy * dz, v = READ(x);
          sum[0] += NZ(ax, v * ax * g);
          sum[1] += NZ(ay, v * ay * g);
          sum[2] += NZ(az, v * az * g);
        })
  }
  if (task.what != ONLY_SUM) put_sums(task, n, p, sum, K > 1 ? q.bad : (T)0);
}

/* Gradients of backward: h is the gradient of its first result, along that of its second */
template <class T, int K>
__device__ __forceinline__ void twice(const grid_args &task, const point<T, K> &q, int64_t n, int64_t p, int64_t at,
                                      int64_t c0, int64_t c1)
{
  int64_t e = grid_at(task.along, task.dims, n, p), step = task.along.stride[task.dims + 1];
  T sum[3] = { 0, 0, 0 }, ex = planes_load(T(0), task.along.p, task.along.dtype, e),
    ey = planes_load(T(0), task.along.p, task.along.dtype, e + step);
  T ez = task.dims > 2 ? planes_load(T(0), task.along.p, task.along.dtype, e + 2 * step) : (T)0;
  for (int64_t c = c0; c < c1; c++) {
    int64_t x0 = planes_channel(task.x, n, c), h0 = planes_channel(task.h, n, c), to = planes_channel(task.gx, n, c);
    T g = planes_load(T(0), task.y.p, task.y.dtype, at + c * task.y.stride[1]), og = 0;
    EACH_TAP(
        q, T w = wx * wy * wz, ax = q.t[0].d[ix] * wy * wz, ay = wx * q.t[1].d[iy] * wz, az = wx * wy * dz,
        v = ex * ax + ey * ay + ez * az;
        if (task.what != NO_SUM && v != 0) {
          T *place = (T *)task.gx.p + to + planes_pixel(task.gx, z, y, x);
          if (task.what == ALL) atomicAdd(place, v * g);
          else *place += v * g;
        } if (task.what != ONLY_SUM) {
          T xv = READ(x), hv = READ(h), dx = q.t[0].d[ix], dy = q.t[1].d[iy];
          T ux = ex * q.t[0].dd[ix] * wy * wz + ey * dx * dy * wz + ez * dx * wy * dz;
          T uy = ex * dx * dy * wz + ey * wx * q.t[1].dd[iy] * wz + ez * wx * dy * dz;
          T uz = ex * dx * wy * dz + ey * wx * dy * dz + ez * wx * wy * ddz;
          og += NZ(w, hv * w) + NZ(v, xv * v);
          sum[0] += NZ(ax, hv * ax * g) + NZ(ux, xv * ux * g);
          sum[1] += NZ(ay, hv * ay * g) + NZ(uy, xv * uy * g);
          sum[2] += NZ(az, hv * az * g) + NZ(uz, xv * uz * g);
        })
    if (q.bad != 0 && task.what != NO_SUM) { /* NaN, through the first tap */
      bool there = q.t[0].at[0] >= 0 && q.t[1].at[0] >= 0 && q.t[2].at[0] >= 0;
      ((T *)task.gx.p)[to + (there ? planes_pixel(task.gx, q.t[2].at[0], q.t[1].at[0], q.t[0].at[0]) : 0)] = q.bad;
    }
    if (task.what != ONLY_SUM)
      planes_store(task.grad_grad.p, task.grad_grad.dtype,
                   planes_channel(task.grad_grad, n, c) + planes_place(task.grad_grad, (int)p), og + q.bad);
  }
  if (task.what != ONLY_SUM) put_sums(task, n, p, sum, q.bad);
}

enum { FORWARD, BACKWARD, TWICE };
template <int WHAT, class T, int K>
__device__ __forceinline__ void apply(const grid_args &task, int64_t n, int64_t p, int64_t c0, int64_t c1)
{
  point<T, K> q;
  int64_t at = n * task.y.stride[0] + planes_place(task.y, (int)p);
  find(task, q, n, p);
  if (WHAT == FORWARD) forward(task, q, n, p, at, c0, c1);
  else if (WHAT == BACKWARD) backward(task, q, n, p, at, c0, c1);
  else twice(task, q, n, p, at, c0, c1);
}

/* A thread a point and chunk of channels, or (ONLY_SUM) a thread a plane */
template <int WHAT, class T, int K> __global__ void __launch_bounds__(128) sample(const grid_args task)
{
  if (WHAT != FORWARD && task.what == ONLY_SUM) {
    AMP_FOR(i, task.x.n * task.x.c)
    for (int64_t p = 0; p < task.points; p++) apply<WHAT, T, K>(task, i / task.x.c, p, i % task.x.c, i % task.x.c + 1);
    return;
  }
  AMP_FOR(i, task.x.n * task.chunks * task.points)
  {
    int64_t r = i / task.points, c0 = r % task.chunks * task.chunk;
    apply<WHAT, T, K>(task, r / task.chunks, i % task.points, c0,
                      c0 + task.chunk < task.x.c ? c0 + task.chunk : task.x.c);
  }
}

/* -- Calls ------------------------------------------------------------------------------- */

/* args: of any of the rows */
template <class ARGS> static int set(grid_args *task, const ARGS *args, amp_tensor *x, amp_tensor *t)
{
  memset((void *)task, 0, sizeof *task);
  task->dims = x->ndim - 2;
  task->mode = (int)args->mode;
  task->padding = (int)args->padding_mode;
  task->align = args->align_corners != 0;
  task->x = planes_of(x, task->dims);
  task->grid = amp_arg_of(t);
  task->points = task->x.n ? t->numel / task->dims / task->x.n : 0;
  task->chunks = 1;
  task->chunk = task->x.c;
  if (task->points > INT32_MAX) return amp__fail(AMP_E_UNSUPPORTED, "grids of more than %d points", INT32_MAX);
  return planes_check(task->x);
}

template <int WHAT, class T> static void launch(const grid_args &task)
{
  int64_t n = task.x.n * (WHAT != FORWARD && task.what == ONLY_SUM ? task.x.c : task.chunks * task.points);
  unsigned grid = amp_grid(n, 128, 32);
  if (n == 0) return;
  switch ((sample_mode)task.mode) { /* by taps along a dimension */
  case GRID_SAMPLE_MODE_NEAREST: AMP_LAUNCH((sample<WHAT, T, 1>), grid, 128, 0, task); break;
  case GRID_SAMPLE_MODE_BILINEAR: AMP_LAUNCH((sample<WHAT, T, 2>), grid, 128, 0, task); break;
  case GRID_SAMPLE_MODE_BICUBIC: AMP_LAUNCH((sample<WHAT, T, 4>), grid, 128, 0, task); break;
  case GRID_SAMPLE_MODE_COUNT: AMP_NEVER();
  }
}

/* The gradients' two kernels; sums of the input's gradient go to `acc`, then to gx */
template <int WHAT, class T> static int gradients(grid_args *task, amp_tensor *gx, amp_tensor *gg)
{
  int type = sizeof(T) == 8 ? AMP_FLOAT64 : AMP_FLOAT32, rc = 0;
  amp_tensor *acc = gx->dtype == type ? gx : amp__cuda_make(type, gx->ndim, gx->size);
  if (acc == NULL) return AMP_E_MEMORY;
  task->gx = planes_of(acc, task->dims);
  task->grad_grid = amp_arg_of(gg);
  if (gx->numel > 0) rc = amp__cuda_fill_value(acc, 0);
  if (rc == 0) {
    task->what = amp__cuda_deterministic ? NO_SUM : ALL;
    launch<WHAT, T>(*task);
    task->what = ONLY_SUM;
    if (amp__cuda_deterministic) launch<WHAT, T>(*task);
    if (acc != gx && gx->numel > 0) rc = amp__cuda_copy_to(gx, acc);
  }
  if (acc != gx) amp__free(acc);
  return rc;
}

} // namespace

extern "C" {

int amp__cuda_grid_sample(amp_call *c)
{
  grid_args task;
  amp_tensor *y = c->out[0];
  if (y->numel == 0) return 0;
  int rc = set(&task, AMP_ARGS(c, grid_sample), c->in[0], c->in[1]);
  if (rc < 0) return rc;
  task.y = planes_of(y, task.dims);
  int64_t want = (int64_t)amp__cuda_here()->sms * 2048 / (task.x.n * task.points) + 1;
  task.chunk = want < task.x.c ? (task.x.c + want - 1) / want : 1;
  task.chunks = (task.x.c + task.chunk - 1) / task.chunk;
  if (y->dtype == AMP_FLOAT64) launch<FORWARD, double>(task);
  else launch<FORWARD, float>(task);
  return 0;
}

int amp__cuda_grid_sample_backward(amp_call *c)
{
  grid_args task;
  int rc = set(&task, AMP_ARGS(c, grid_sample_backward), c->in[1], c->in[2]);
  if (rc < 0) return rc;
  task.y = planes_of(c->in[0], task.dims);
  return c->in[1]->dtype == AMP_FLOAT64 ? gradients<BACKWARD, double>(&task, c->out[0], c->out[1])
                                        : gradients<BACKWARD, float>(&task, c->out[0], c->out[1]);
}

int amp__cuda_grid_sample_double(amp_call *c)
{
  grid_args task;
  int rc = set(&task, AMP_ARGS(c, grid_sample_double), c->in[1], c->in[2]);
  if (rc < 0) return rc;
  task.y = planes_of(c->in[0], task.dims);
  task.h = planes_of(c->in[3], task.dims);
  task.along = amp_arg_of(c->in[4]);
  task.grad_grad = planes_of(c->out[0], task.dims);
  return c->in[1]->dtype == AMP_FLOAT64 ? gradients<TWICE, double>(&task, c->out[1], c->out[2])
                                        : gradients<TWICE, float>(&task, c->out[1], c->out[2]);
}
}
