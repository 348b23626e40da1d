/*
** resample.cu: rows resample and resample_backward: nearest, linear and cubic
** interpolation in 1, 2 and 3 dimensions, antialiased or not.
**
** A small kernel makes a table for each dimension: of every output its first
** input, the number of its taps and their weights (in double, rounded once). A
** thread makes an element of the result from the three tables. Backward gathers:
** first inputs never fall along the outputs, so the outputs that an input reaches
** lie beside each other, and a second table says which. Results repeat.
** Where a source lies follows the CPU: in float32 for nearest, else in double.
**
** Tables are small and stay in the cache; an element of the result reads its taps and is written once. Memory's speed
** bounds all but cubic and antialiased modes.
*/
#include "common/planes.cuh"

namespace {

/* Switches over it are exhaustive: a mode that one does not name is an error where they are compiled */
typedef decltype(RESAMPLE_MODE_NEAREST) resample_mode;
static_assert(RESAMPLE_MODE_COUNT == 4, "half_of, weight_of and fill_table know four modes");

struct axis {
  int32_t in, out, mode, align, smooth, most; /* most: taps an output has room for */
  double ratio;
};
struct table {
  int32_t *first, *count;
  void *weights;
  int32_t *first_out, *last_out;
  int32_t most, same;
};
struct tables {
  table t[3];
};

__device__ __forceinline__ double keys(double x, double a) /* Keys' cubic kernel */
{
  x = fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

/* How far a mode's weights reach, in inputs; 0: an output is one of the inputs */
__host__ __device__ __forceinline__ int half_of(int mode)
{
  switch ((resample_mode)mode) {
  case RESAMPLE_MODE_NEAREST:
  case RESAMPLE_MODE_NEAREST_EXACT: return 0;
  case RESAMPLE_MODE_LINEAR: return 1;
  case RESAMPLE_MODE_CUBIC: return 2;
  case RESAMPLE_MODE_COUNT: break;
  }
  AMP_NEVER();
}

/* An antialiased mode's weight at distance x */
__device__ __forceinline__ double weight_of(int mode, double x)
{
  switch ((resample_mode)mode) {
  case RESAMPLE_MODE_LINEAR: return fabs(x) < 1 ? 1 - fabs(x) : 0;
  case RESAMPLE_MODE_CUBIC: return keys(x, -0.5);
  case RESAMPLE_MODE_NEAREST:
  case RESAMPLE_MODE_NEAREST_EXACT:
  case RESAMPLE_MODE_COUNT: break;
  }
  AMP_NEVER();
}

/* Weights of inputs from .. from + k - 1; those outside count for the input's ends */
template <class T>
__device__ __forceinline__ void put(const table &t, int o, int in, int64_t from, int k, const double *w)
{
  int lo = from < 0 ? 0 : from >= in ? in - 1 : (int)from, n = 0;
  double to[4] = { 0, 0, 0, 0 };
  for (int i = 0; i < k; i++) {
    int64_t at = from + i;
    int p = at < 0 ? 0 : at >= in ? in - 1 : (int)at;
    to[p - lo] += w[i];
    if (n < p - lo + 1) n = p - lo + 1;
  }
  t.first[o] = lo;
  t.count[o] = n;
  for (int i = 0; i < n; i++) ((T *)t.weights)[(int64_t)o * t.most + i] = (T)to[i];
}

/* Antialiased: all inputs that the widened weights reach */
template <class T> __device__ __forceinline__ void put_smooth(const axis &a, const table &t, int o)
{
  const double half = half_of(a.mode), support = a.ratio >= 1 ? half * a.ratio : half,
               inverse = a.ratio >= 1 ? 1 / a.ratio : 1;
  double center = a.ratio * (o + 0.5), l = center - support + 0.5, h = center + support + 0.5, sum = 0;
  int lo = l < 0 ? 0 : l >= a.in ? a.in - 1 : (int)l, n = (h < a.in ? (int)h : a.in) - lo;
  if (n > t.most) n = t.most;
  if (n < 1) n = 1;
  T *w = (T *)t.weights + (int64_t)o * t.most;
  for (int pass = 0; pass < 2; pass++) /* twice, for their sum */
    for (int j = 0; j < n; j++) {
      const double v = weight_of(a.mode, (j + lo - center + 0.5) * inverse);
      if (pass == 0) sum += v;
      else w[j] = sum != 0 ? (T)(v / sum) : (T)(j == 0);
    }
  t.first[o] = lo;
  t.count[o] = n;
}

/* The input nearest to output o, or (nearest_exact) to its middle */
__device__ __forceinline__ int nearest_of(const axis &a, int o)
{
  const bool middle = a.mode == RESAMPLE_MODE_NEAREST_EXACT;
  if (!middle && a.in == a.out) return o;
  if (!middle && 2 * (int64_t)a.in == a.out) return o / 2;
  const float at = __fmul_rn(middle ? (float)o + 0.5f : (float)o, (float)a.ratio);
  return at < (float)a.in ? (int)at : a.in - 1;
}

/* The input at or before output o, which lies *x behind it; first: none before the first input */
__device__ __forceinline__ int64_t source_of(const axis &a, int o, bool first, double *x)
{
  double at = a.align ? __dmul_rn(a.ratio, o) : __dmul_rn(a.ratio, o + 0.5) - 0.5;
  if (first && at < 0) at = 0;
  if (at > a.in) at = a.in;
  const double f = floor(at);
  *x = at - f;
  return (int64_t)f;
}

/* A thread an output: its first input, the number of its taps and their weights */
template <class T> __global__ void __launch_bounds__(128) fill_table(const axis a, const table t)
{
  AMP_FOR(i, (int64_t)a.out)
  {
    const int o = (int)i;
    if (a.smooth && half_of(a.mode) > 0) {
      put_smooth<T>(a, t, o);
      continue;
    }
    double w[4] = { 1, 0, 0, 0 }, x;
    int64_t from = o;
    int taps = 1;
    switch ((resample_mode)a.mode) {
    case RESAMPLE_MODE_NEAREST:
    case RESAMPLE_MODE_NEAREST_EXACT: from = nearest_of(a, o); break;
    case RESAMPLE_MODE_LINEAR:
      if (a.in == a.out) break;
      from = source_of(a, o, true, &x);
      taps = 2;
      w[0] = 1 - x;
      w[1] = x;
      break;
    case RESAMPLE_MODE_CUBIC:
      from = source_of(a, o, false, &x) - 1;
      taps = 4;
      for (int k = 0; k < 4; k++) w[k] = keys(x - (k - 1), -0.75);
      break;
    case RESAMPLE_MODE_COUNT: AMP_NEVER();
    }
    put<T>(t, o, a.in, from, taps, w);
  }
}

/* The outputs lo..hi that have taps at input i: the first whose last tap is not before it, the last whose first is
** not behind it */
__global__ void __launch_bounds__(128) fill_reach(const axis a, const table t)
{
  AMP_FOR(i, (int64_t)a.in)
  {
    int p = 0, q = a.out;
    while (p < q) {
      int m = p + (q - p) / 2;
      if (t.first[m] + t.count[m] - 1 < (int)i) p = m + 1;
      else q = m;
    }
    t.first_out[i] = p;
    q = a.out;
    while (p < q) {
      int m = p + (q - p) / 2;
      if (t.first[m] <= (int)i) p = m + 1;
      else q = m;
    }
    t.last_out[i] = p - 1;
  }
}

/* A tap of weight 0 reads nothing: a NaN there stays there */
template <class T> __global__ void __launch_bounds__(256) along(const planes x, const planes y, const tables a)
{
  AMP_FOR(i, y.numel)
  {
    spot s = planes_spot(y, i);
    int z0 = a.t[0].first[s.z], y0 = a.t[1].first[s.y], x0 = a.t[2].first[s.x], nz = a.t[0].count[s.z],
        ny = a.t[1].count[s.y], nx = a.t[2].count[s.x];
    const T *wz = (const T *)a.t[0].weights + (int64_t)s.z * a.t[0].most,
            *wy = (const T *)a.t[1].weights + (int64_t)s.y * a.t[1].most,
            *wx = (const T *)a.t[2].weights + (int64_t)s.x * a.t[2].most;
    int64_t from = planes_channel(x, s.n, s.c);
    T sum = 0;
    for (int p = 0; p < nz; p++) {
      T fz = wz[p], plane = 0;
      if (fz == 0) continue;
      for (int q = 0; q < ny; q++) {
        T fy = wy[q], row = 0;
        if (fy == 0) continue;
        for (int r = 0; r < nx; r++) {
          T fx = wx[r];
          if (fx != 0) row += fx * planes_load(T(0), x.p, x.dtype, from + planes_pixel(x, z0 + p, y0 + q, x0 + r));
        }
        plane += fy * row;
      }
      sum += fz * plane;
    }
    planes_store(y.p, y.dtype, planes_at(y, s), sum);
  }
}

/* x: the input's gradient, g: the outputs' */
template <class T> __global__ void __launch_bounds__(256) against(const planes x, const planes g, const tables a)
{
  AMP_FOR(i, x.numel)
  {
    spot s = planes_spot(x, i);
    int64_t from = planes_channel(g, s.n, s.c);
    T sum = 0;
    for (int z = a.t[0].first_out[s.z]; z <= a.t[0].last_out[s.z]; z++) {
      T fz = ((const T *)a.t[0].weights)[(int64_t)z * a.t[0].most + s.z - a.t[0].first[z]], plane = 0;
      if (fz == 0) continue;
      for (int y = a.t[1].first_out[s.y]; y <= a.t[1].last_out[s.y]; y++) {
        T fy = ((const T *)a.t[1].weights)[(int64_t)y * a.t[1].most + s.y - a.t[1].first[y]], row = 0;
        if (fy == 0) continue;
        for (int u = a.t[2].first_out[s.x]; u <= a.t[2].last_out[s.x]; u++) {
          T fx = ((const T *)a.t[2].weights)[(int64_t)u * a.t[2].most + s.x - a.t[2].first[u]];
          if (fx != 0) row += fx * planes_load(T(0), g.p, g.dtype, from + planes_pixel(g, z, y, u));
        }
        plane += fy * row;
      }
      sum += fz * plane;
    }
    planes_store(x.p, x.dtype, planes_at(x, s), sum);
  }
}

/* -- Calls ---------------------------------------------------------------------------- */

/* args: of either row */
template <class ARGS> static axis axis_of(const ARGS *args, int i, bool there, int64_t in)
{
  const double *scales[3] = { &args->scale1, &args->scale2, &args->scale3 }, *scale = scales[i];
  axis v = { (int32_t)in,
             there ? (int32_t)args->size[i] : 1,
             there ? (int32_t)args->mode : (int32_t)RESAMPLE_MODE_NEAREST,
             args->align_corners != 0,
             args->antialias != 0,
             4,
             1 };
  const int half = half_of(v.mode);
  if (v.align && half > 0) v.ratio = v.out > 1 ? (double)(in - 1) / (v.out - 1) : 0;
  else v.ratio = there && AMP_GIVEN(*scale) ? 1 / *scale : (double)in / v.out;
  if (v.smooth && half > 0) {
    double support = v.ratio >= 1 ? half * v.ratio : half;
    int64_t most = support < (double)in ? 2 * (int64_t)ceil(support) + 2 : in;
    v.most = (int32_t)(most > in ? in : most);
  }
  return v;
}

template <class T, class ARGS> static int run(amp_call *c, const ARGS *args, bool back)
{
  amp_tensor *from = back ? c->out[0] : c->in[0]; /* the large side of a call forward */
  int spatial = (int)args->spatial, rc;
  planes x = planes_of(c->in[0], spatial), y = planes_of(c->out[0], spatial);
  axis ax[3];
  size_t bytes = 0, at[3];
  if ((rc = planes_check(x)) < 0 || (rc = planes_check(y)) < 0) return rc;
  for (int i = 0; i < 3; i++) {
    bool there = i >= 3 - spatial;
    ax[i] = axis_of(args, i, there, there ? from->size[from->ndim - 3 + i] : 1);
    at[i] = bytes;
    bytes += ((size_t)ax[i].out * ((size_t)ax[i].most * sizeof(T) + 8) + (back ? (size_t)ax[i].in * 8 : 0) + 15) / 16
             * 16;
  }
  amp_tensor *scratch = amp__cuda_scratch(bytes);
  if (scratch == NULL) return AMP_E_MEMORY;
  tables t;
  memset((void *)&t, 0, sizeof t);
  for (int i = 0; i < 3; i++) {
    table *k = &t.t[i];
    k->most = ax[i].most;
    k->weights = (char *)amp__data(scratch) + at[i];
    k->first = (int32_t *)((T *)k->weights + (size_t)ax[i].out * ax[i].most);
    k->count = k->first + ax[i].out;
    k->first_out = k->count + ax[i].out;
    k->last_out = k->first_out + ax[i].in;
    AMP_LAUNCH((fill_table<T>), amp_grid(ax[i].out, 128), 128, 0, ax[i], *k);
    if (back) AMP_LAUNCH((fill_reach), amp_grid(ax[i].in, 128), 128, 0, ax[i], *k);
  }
  if (back) AMP_LAUNCH((against<T>), amp_grid(y.numel, 256, 32), 256, 0, y, x, t);
  else AMP_LAUNCH((along<T>), amp_grid(y.numel, 256, 32), 256, 0, x, y, t);
  amp__free(scratch);
  return 0;
}

template <class ARGS> static int resample(amp_call *c, const ARGS *args, bool back)
{
  if (c->out[0]->numel == 0) return 0;
  return c->out[0]->dtype == AMP_FLOAT64 ? run<double>(c, args, back) : run<float>(c, args, back);
}

} // namespace

extern "C" int amp__cuda_resample(amp_call *c) { return resample(c, AMP_ARGS(c, resample), false); }
extern "C" int amp__cuda_resample_backward(amp_call *c) { return resample(c, AMP_ARGS(c, resample_backward), true); }
