/*
** fft.cu: rows fft_complex, fft_real and fft_half by own kernels (Stockham's
** passes) or cuFFT.
**
** A tensor is outer x n x inner. Series that fit shared memory are transformed
** there, several to a block; longer ones pass by pass through two buffers. Factors
** are 4, 2, 3, 5 and primes up to 31; any other length is a convolution with a
** chirp (Bluestein). The inverse exchanges re and im on the way in and out. Real
** series go as complex ones here; cuFFT knows better, and is asked first.
**
** 16-bit data is computed in float32.
*/
#include "common/rows.cuh"
#include "../src/cuda/cuda_solver.h"

namespace {

enum transform { COMPLEX, REAL, HALF, TRANSFORMS };
static_assert(TRANSFORMS == 3, "element and result know three transforms");
enum { MOST_FACTORS = 40, LARGEST_PRIME = 31 };

template <class T> struct alignas(2 * sizeof(T)) cx {
  T x, y;
};
template <class T> __device__ __forceinline__ cx<T> mul(cx<T> a, cx<T> b)
{
  return { a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x };
}
template <class T> __device__ __forceinline__ cx<T> operator+(cx<T> a, cx<T> b) { return { a.x + b.x, a.y + b.y }; }
template <class T> __device__ __forceinline__ cx<T> operator-(cx<T> a, cx<T> b) { return { a.x - b.x, a.y - b.y }; }
template <class T> __device__ __forceinline__ cx<T> down(cx<T> a) { return { a.y, -a.x }; } /* times -i */
template <class T> __device__ __forceinline__ cx<T> operator*(T f, cx<T> a) { return { f * a.x, f * a.y }; }

typedef struct factors {
  int n, f[MOST_FACTORS];
} factors;

typedef struct job {
  transform kind;
  bool inverse, weighted; /* weighted: as in the rows */
  int64_t n, outer, inner;
  const void *in; /* dense, of the type computed in */
  void *out;
  double scale;
} job;

/* -- Elements ---------------------------------------------------------------------- */

/* Element j of series (o, i), as it is transformed */
template <class T> __device__ __forceinline__ cx<T> element(const job &task, int64_t o, int64_t j, int64_t i)
{
  const T *x = (const T *)task.in;
  cx<T> v;
  if (task.kind == REAL) return { x[(o * task.n + j) * task.inner + i], (T)0 };
  if (task.kind == COMPLEX) {
    int64_t at = 2 * ((o * task.n + j) * task.inner + i);
    v = { x[at], x[at + 1] };
  } else {
    int64_t h = task.n / 2, c = j <= h ? j : task.n - j, at = 2 * ((o * (h + 1) + c) * task.inner + i);
    bool single = c == 0 || 2 * c == task.n;
    T f = single || task.weighted ? (T)1 : (T)0.5;
    v = { f * x[at], single ? (T)0 : f * x[at + 1] };
    if (j > h) v.y = -v.y;
  }
  return task.inverse ? cx<T>{ v.y, v.x } : v;
}

/* ...and what becomes of its transform */
template <class T> __device__ __forceinline__ void result(const job &task, int64_t o, int64_t j, int64_t i, cx<T> v)
{
  T *y = (T *)task.out, f = (T)task.scale;
  if (task.kind == HALF) {
    y[(o * task.n + j) * task.inner + i] = f * (task.inverse ? v.y : v.x);
    return;
  }
  if (task.kind == COMPLEX) {
    int64_t at = 2 * ((o * task.n + j) * task.inner + i);
    y[at] = f * (task.inverse ? v.y : v.x);
    y[at + 1] = f * (task.inverse ? v.x : v.y);
    return;
  }
  int64_t h = task.n / 2, at = 2 * ((o * (h + 1) + j) * task.inner + i);
  bool single = j == 0 || 2 * j == task.n;
  if (j > h) return;
  if (task.weighted && !single) f *= 2;
  y[at] = f * v.x;
  y[at + 1] = single ? (T)0 : f * v.y;
}

/* -- One butterfly: r elements d apart from x go to places s apart from y, times w[p k step] ------------- */

template <class T> __device__ __forceinline__ void put(cx<T> *y, cx<T> v, const cx<T> *w, int64_t at)
{
  *y = at ? mul(v, w[at]) : v;
}

/* n: length of the table w (e^(-2 pi i j / n)) */
template <class T>
__device__ __forceinline__ void butterfly(int r, int64_t p, int64_t step, int64_t d, int64_t s, const cx<T> *x,
                                          cx<T> *y, const cx<T> *w, int64_t n)
{
  const int64_t e = p * step;
  if (r == 4) {
    cx<T> a = x[0] + x[2 * d], b = x[0] - x[2 * d], c = x[d] + x[3 * d], f = down(x[d] - x[3 * d]);
    y[0] = a + c;
    put(y + s, b + f, w, e);
    put(y + 2 * s, a - c, w, 2 * e);
    put(y + 3 * s, b - f, w, 3 * e);
  } else if (r == 2) {
    cx<T> a = x[0], b = x[d];
    y[0] = a + b;
    put(y + s, a - b, w, e);
  } else if (r == 3) {
    cx<T> a = x[0], b = x[d] + x[2 * d], c = (T)0.86602540378443864676 * down(x[d] - x[2 * d]), h = a - (T)0.5 * b;
    y[0] = a + b;
    put(y + s, h + c, w, e);
    put(y + 2 * s, h - c, w, 2 * e);
  } else if (r == 5) {
    const T c1 = (T)0.30901699437494742410, c2 = (T)-0.80901699437494742410, s1 = (T)0.95105651629515357212,
            s2 = (T)0.58778525229247312917;
    cx<T> a = x[0], b = x[d] + x[4 * d], c = x[2 * d] + x[3 * d], f = down(x[d] - x[4 * d]),
          g = down(x[2 * d] - x[3 * d]);
    cx<T> m = a + c1 * b + c2 * c, q = a + c2 * b + c1 * c, u = s1 * f + s2 * g, v = s2 * f - s1 * g;
    y[0] = a + b + c;
    put(y + s, m + u, w, e);
    put(y + 2 * s, q + v, w, 2 * e);
    put(y + 3 * s, q - v, w, 3 * e);
    put(y + 4 * s, m - u, w, 4 * e);
  } else {
    const int64_t root = n / r;
    for (int k = 0; k < r; k++) {
      cx<T> sum = x[0];
      for (int j = 1; j < r; j++) sum = sum + mul(x[j * d], w[(int64_t)(j * k % r) * root]);
      put(y + k * s, sum, w, k * e);
    }
  }
}

/* -- Tables ------------------------------------------------------------------------------ */

/* e^(-2 pi i j / n) */
template <class T> __global__ void roots(int64_t n, cx<T> *w)
{
  AMP_FOR(j, n)
  {
    double s, c;
    sincospi(2.0 * (double)j / (double)n, &s, &c);
    w[j] = { (T)c, (T)-s };
  }
}

/* Chirp e^(-pi i j^2 / n) of n, and the kernel it is convolved with, of m, with 1 / m in it */
template <class T> __global__ void chirps(int64_t n, int64_t m, cx<T> *chirp, cx<T> *kernel)
{
  AMP_FOR(j, m)
  {
    int64_t at = j < n ? j : m - j < n ? m - j : -1;
    double s = 0, c = 0;
    if (at >= 0) sincospi((double)(at * at % (2 * n)) / (double)n, &s, &c);
    if (j < n) chirp[j] = { (T)c, (T)-s };
    kernel[j] = { (T)(c / (double)m), (T)(s / (double)m) };
  }
}

/* -- In shared memory: `lanes` series a block --------------------------------------------------- */

template <class T>
__global__ void __launch_bounds__(512) together(const job task, const factors factor, int lanes, const cx<T> *roots)
{
  AMP_SHARED(cx<T>, a0);
  const int64_t series = task.outer * task.inner, groups = (series + lanes - 1) / lanes;
  const int n = (int)task.n;
  for (int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
    const int64_t first = group * lanes;
    const int here = (int)(series - first < lanes ? series - first : lanes), total = n * lanes;
    cx<T> *a = a0, *b = a0 + total;
    for (int e = threadIdx.x; e < n * here; e += blockDim.x) {
      int j = task.inner == 1 ? e % n : e / here, l = task.inner == 1 ? e / n : e % here;
      int64_t z = first + l, o = z / task.inner;
      a[j * lanes + l] = element<T>(task, o, j, z - o * task.inner);
    }
    __syncthreads();
    int left = n, s = lanes;
    for (int i = 0; i < factor.n; i++) {
      const int r = factor.f[i], m = left / r, d = m * s, step = n / left;
      for (int t = threadIdx.x; t < m * s; t += blockDim.x) {
        int p = t / s, q = t - p * s;
        if (q % lanes < here)
          butterfly(r, (int64_t)p, (int64_t)step, (int64_t)d, (int64_t)s, a + t, b + r * p * s + q, roots, (int64_t)n);
      }
      __syncthreads();
      cx<T> *swap = a;
      a = b;
      b = swap;
      left = m;
      s *= r;
    }
    const int kept = task.kind == REAL ? n / 2 + 1 : n;
    for (int e = threadIdx.x; e < kept * here; e += blockDim.x) {
      int j = task.inner == 1 ? e % kept : e / here, l = task.inner == 1 ? e / kept : e % here;
      int64_t z = first + l, o = z / task.inner;
      result<T>(task, o, j, z - o * task.inner, a[j * lanes + l]);
    }
    __syncthreads();
  }
}

/* -- Pass by pass -------------------------------------------------------------------------------- */

template <class T>
__global__ void pass(int r, int64_t n, int64_t left, int64_t s, int64_t outer, int64_t inner, const cx<T> *x, cx<T> *y,
                     const cx<T> *w)
{
  const int64_t m = left / r, d = m * s, each = n * inner;
  AMP_FOR(t, outer * d)
  {
    int64_t o = t / d, e = t - o * d, p = e / s, q = e - p * s;
    butterfly(r, p, n / left, d, s, x + o * each + e, y + o * each + r * p * s + q, w, n);
  }
}

/* work (outer x m x inner) <- elements, times the chirp if there is one, zeros after n */
template <class T> __global__ void bring(const job task, int64_t m, const cx<T> *chirp, cx<T> *work)
{
  AMP_FOR(e, task.outer * m * task.inner)
  {
    int64_t i = e % task.inner, z = e / task.inner, j = z % m, o = z / m;
    cx<T> v = { (T)0, (T)0 };
    if (j < task.n) v = element<T>(task, o, j, i);
    if (chirp && j < task.n) v = mul(v, chirp[j]);
    work[e] = v;
  }
}

template <class T> __global__ void take(const job task, int64_t m, const cx<T> *chirp, const cx<T> *work)
{
  AMP_FOR(e, task.outer * task.n * task.inner)
  {
    int64_t i = e % task.inner, z = e / task.inner, j = z % task.n, o = z / task.n;
    cx<T> v = work[(o * m + j) * task.inner + i];
    if (chirp) v = mul(cx<T>{ v.y, v.x }, chirp[j]); /* it was an inverse transform */
    result<T>(task, o, j, i, v);
  }
}

/* times the kernel's spectrum, re and im exchanged for the inverse transform */
template <class T> __global__ void convolve(int64_t total, int64_t m, int64_t inner, cx<T> *x, const cx<T> *kernel)
{
  AMP_FOR(e, total)
  {
    cx<T> v = mul(x[e], kernel[e / inner % m]);
    x[e] = { v.y, v.x };
  }
}

/* -- Around cuFFT -------------------------------------------------------------------------------- */

/* Half spectra with their weights, as complex-to-real transforms want them */
template <class T> __global__ void half(const job task, T *x)
{
  int64_t h = task.n / 2 + 1;
  AMP_FOR(e, task.outer * h * task.inner)
  {
    int64_t c = e / task.inner % h;
    bool single = c == 0 || 2 * c == task.n;
    T f = (T)task.scale * (single || task.weighted ? (T)1 : (T)0.5);
    x[2 * e] = f * ((const T *)task.in)[2 * e];
    x[2 * e + 1] = single ? (T)0 : f * ((const T *)task.in)[2 * e + 1];
  }
}

/* y times scale; places: of the frequencies of a real series (weights), else 0 */
template <class T> __global__ void scaled(const job task, int64_t places, int64_t total, T *y)
{
  AMP_FOR(e, total)
  {
    T f = (T)task.scale;
    if (places && task.weighted) {
      int64_t c = e / (2 * task.inner) % places;
      if (c != 0 && 2 * c != task.n) f *= 2;
    }
    y[e] *= f;
  }
}

/* -- Launches -------------------------------------------------------------------------------------- */

/* false: a prime is too large */
bool split(int64_t n, factors *factor)
{
  factor->n = 0;
  while (n % 4 == 0) {
    factor->f[factor->n++] = 4;
    n /= 4;
  }
  for (int p = 2; p <= LARGEST_PRIME && n > 1; p++)
    while (n % p == 0) {
      factor->f[factor->n++] = p;
      n /= p;
    }
  return n == 1;
}

/* The place of the result: x or y */
template <class T>
cx<T> *passes(const factors &factor, int64_t n, int64_t outer, int64_t inner, cx<T> *x, cx<T> *y, const cx<T> *w)
{
  int64_t left = n, s = inner;
  for (int i = 0; i < factor.n; i++) {
    AMP_LAUNCH((pass<T>), amp_grid(outer * (n / factor.f[i]) * inner, 256), 256, 0, factor.f[i], n, left, s, outer,
               inner, (const cx<T> *)x, y, w);
    cx<T> *swap = x;
    x = y;
    y = swap;
    left /= factor.f[i];
    s *= factor.f[i];
  }
  return x;
}

template <class T> cx<T> *carve(char **p, int64_t n)
{
  cx<T> *x = (cx<T> *)*p;
  *p += (sizeof(cx<T>) * (size_t)n + 255) / 256 * 256;
  return x;
}

template <class T> int by_chirp(const job &task)
{
  int64_t n = task.n, m = 1, total;
  factors factor;
  while (m < 2 * n - 1) m *= 2;
  split(m, &factor);
  total = task.outer * m * task.inner;
  amp_tensor *mem = amp__cuda_scratch(sizeof(cx<T>) * (size_t)(n + 3 * m + 2 * total) + 6 * 256);
  if (!mem) return AMP_E_MEMORY;
  char *p = (char *)amp__data(mem);
  cx<T> *chirp = carve<T>(&p, n), *w = carve<T>(&p, m), *k0 = carve<T>(&p, m), *k1 = carve<T>(&p, m),
        *x = carve<T>(&p, total), *y = carve<T>(&p, total);
  AMP_LAUNCH((roots<T>), amp_grid(m, 256), 256, 0, m, w);
  AMP_LAUNCH((chirps<T>), amp_grid(m, 256), 256, 0, n, m, chirp, k0);
  cx<T> *kernel = passes<T>(factor, m, 1, 1, k0, k1, w);
  AMP_LAUNCH((bring<T>), amp_grid(total, 256), 256, 0, task, m, (const cx<T> *)chirp, x);
  cx<T> *at = passes<T>(factor, m, task.outer, task.inner, x, y, w);
  AMP_LAUNCH((convolve<T>), amp_grid(total, 256), 256, 0, total, m, task.inner, at, (const cx<T> *)kernel);
  at = passes<T>(factor, m, task.outer, task.inner, at, at == x ? y : x, w);
  AMP_LAUNCH((take<T>), amp_grid(task.outer * n * task.inner, 256), 256, 0, task, m, (const cx<T> *)chirp,
             (const cx<T> *)at);
  amp__free(mem);
  return 0;
}

template <class T> int own(const job &task)
{
  factors factor;
  if (!split(task.n, &factor)) return by_chirp<T>(task);
  int64_t n = task.n, total = task.outer * n * task.inner, series = task.outer * task.inner;
  size_t most = amp__cuda_here()->shared;
  most = most > (100 << 10) ? 96 << 10 : 46 << 10;
  int64_t fits = (int64_t)(most / (2 * sizeof(cx<T>))) / n;
  bool in_shared = fits > 0;
  amp_tensor *mem = amp__cuda_scratch(sizeof(cx<T>) * (size_t)(n + (in_shared ? 0 : 2 * total)) + 3 * 256);
  if (!mem) return AMP_E_MEMORY;
  char *p = (char *)amp__data(mem);
  cx<T> *w = carve<T>(&p, n);
  AMP_LAUNCH((roots<T>), amp_grid(n, 256), 256, 0, n, w);
  if (in_shared) {
    int64_t lanes = 1024 / n, wanted = task.inner > 1 ? 16 : 1;
    if (lanes < wanted) lanes = wanted;
    if (lanes > 64) lanes = 64;
    if (lanes > fits) lanes = fits;
    if (lanes > series) lanes = series;
    size_t bytes = 2 * sizeof(cx<T>) * (size_t)(lanes * n);
    cudaError_t e = bytes > (46 << 10)
                        ? cudaFuncSetAttribute(together<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes)
                        : cudaSuccess;
    int64_t work = lanes * n;
    if (e == cudaSuccess)
      AMP_LAUNCH((together<T>), amp_grid(series, lanes, 32),
                 work <= 128    ? 32
                 : work <= 512  ? 128
                 : work <= 2048 ? 256
                                : 512,
                 bytes, task, factor, (int)lanes, (const cx<T> *)w);
    amp__free(mem);
    return amp__cuda_check(e, "shared memory for a Fourier transform");
  }
  cx<T> *x = carve<T>(&p, total), *y = carve<T>(&p, total);
  AMP_LAUNCH((bring<T>), amp_grid(total, 256), 256, 0, task, n, (const cx<T> *)NULL, x);
  cx<T> *at = passes<T>(factor, n, task.outer, task.inner, x, y, w);
  AMP_LAUNCH((take<T>), amp_grid(total, 256), 256, 0, task, n, (const cx<T> *)NULL, (const cx<T> *)at);
  amp__free(mem);
  return 0;
}

template <class T> int by_library(const job &task, int type)
{
  int rc;
  if (amp__cuda_fft == 0 || (amp__cuda_fft == 1 && task.n < 32)) return 1;
  amp_tensor *mem = NULL;
  void *x = (void *)task.in;
  if (task.kind == HALF) {
    int64_t places = task.outer * (task.n / 2 + 1) * task.inner;
    if (!(mem = amp__cuda_scratch(sizeof(cx<T>) * (size_t)places))) return AMP_E_MEMORY;
    x = amp__data(mem);
    AMP_LAUNCH((half<T>), amp_grid(places, 256), 256, 0, task, (T *)x);
  }
  rc = amp__cuda_fft_run(type, task.kind, task.inverse, task.n, task.outer, task.inner, x, task.out);
  amp__free(mem);
  if (rc || task.kind == HALF) return rc;
  int64_t places = task.kind == REAL ? task.n / 2 + 1 : 0,
          total = 2 * task.outer * (places ? places : task.n) * task.inner;
  if (task.scale != 1 || task.weighted)
    AMP_LAUNCH((scaled<T>), amp_grid(total, 256), 256, 0, task, places, total, (T *)task.out);
  return 0;
}

int run(amp_call *c, job task, int dim)
{
  amp_tensor *input = c->in[0], *output = c->out[0], *in = NULL, *to = NULL;
  int type = input->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32, rc = AMP_E_MEMORY,
      nd = task.kind == REAL ? input->ndim : input->ndim - 1;
  if (output->numel == 0) return 0;
  task.outer = task.inner = 1;
  for (int d = 0; d < dim; d++) task.outer *= input->size[d];
  for (int d = dim + 1; d < nd; d++) task.inner *= input->size[d];
  if (task.n == 0) return 0;
  if (task.n > (1 << 30))
    return amp__fail(AMP_E_SHAPE, "series of %lld values are too long for a GPU", (long long)task.n);
  if (!(in = amp__cuda_dense(input, type)) || !(to = amp_take(output, type))) goto out;
  task.in = amp__data(in);
  task.out = amp__data(to);
  rc = amp_by_float(type, [&](auto zero) {
    typedef decltype(zero) T;
    int done = by_library<T>(task, type);
    return done == 1 ? own<T>(task) : done;
  });
out:
  amp__free(in);
  return amp_give(output, to, rc);
}

} // namespace

extern "C" int amp__cuda_fft_complex(amp_call *c) /* dim inverse scale */
{
  const args_fft_complex *args = AMP_ARGS(c, fft_complex);
  int dim = (int)args->dim;
  job task = { COMPLEX, args->inverse != 0, false, c->in[0]->size[dim], 1, 1, NULL, NULL, args->scale };
  return run(c, task, dim);
}

extern "C" int amp__cuda_fft_real(amp_call *c) /* dim scale weighted */
{
  const args_fft_real *args = AMP_ARGS(c, fft_real);
  int dim = (int)args->dim;
  job task = { REAL, false, args->weighted != 0, c->in[0]->size[dim], 1, 1, NULL, NULL, args->scale };
  return run(c, task, dim);
}

extern "C" int amp__cuda_fft_half(amp_call *c) /* dim n scale weighted */
{
  const args_fft_half *args = AMP_ARGS(c, fft_half);
  int dim = (int)args->dim;
  job task = { HALF, true, args->weighted != 0, args->n, 1, 1, NULL, NULL, args->scale };
  return run(c, task, dim);
}
