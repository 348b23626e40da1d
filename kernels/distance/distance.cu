/*
** distance.cu: rows cdist and pdist, and their backward rows.
**
** Forward a block of 16 x 16 threads takes as many pairs of rows, whose features
** pass through shared memory; differences are taken as they stand, so that near
** rows have exact distances. Backward a first launch leaves what a pair's features
** have in common, a second one sums a row's pairs, a thread a feature, in order.
**
** A tile's features are read from memory once for 16 rows, so arithmetic and shared memory bound it.
*/
#include "common/rows.cuh"

namespace {

enum { TILE = 16 };
/* Norms, a line a kind: a sum a with one more difference d (w its size), and what a pair with the share q gives to the
** gradient of a feature whose difference is d (dist: the pair's distance) */
/* clang-format off */
#define NORMS(NORM) \
  NORM(ZERO, a + (d != 0 ? (T)1 : (T)0), (T)0) \
  NORM(ONE, a + w, d > 0 ? q : d < 0 ? -q : d * q) \
  NORM(TWO, a + d * d, q * d) \
  NORM(MOST, w > a || d != d ? w : a, fabs(d) == dist ? (d < 0 ? -q : q) : (T)0) \
  NORM(POWER, a + power(d, p), signed_by(d, d == 0 ? (T)0 : q * power(d, p - 1)))
/* clang-format on */
#define NORM(kind, sum, gradient) kind,
enum { NORMS(NORM) };
#undef NORM

static int kind_of(double p) { return p == 0 ? ZERO : p == 1 ? ONE : p == 2 ? TWO : isinf(p) ? MOST : POWER; }

typedef struct job {
  const void *x, *z, *g, *dist, *share; /* of the computing type, in C order */
  void *out;
  int64_t batch, p, r, m;           /* rows, rows of the second operand, features */
  int32_t kind, triangle, swap, nd; /* triangle: pairs i < j of one matrix; swap: rows of the result are z's */
  double norm;
  int64_t size[AMP_MAX_DIM], sx[AMP_MAX_DIM], sz[AMP_MAX_DIM]; /* leading dimensions; strides in matrices */
} job;

__device__ __forceinline__ int64_t first_pair(int64_t n, int64_t i) { return i * (2 * n - i - 1) / 2; }
__device__ __forceinline__ int64_t pair_of(const job &k, int64_t b, int64_t i, int64_t j)
{
  if (k.triangle) return i < j ? first_pair(k.r, i) + j - i - 1 : first_pair(k.r, j) + i - j - 1;
  return (b * k.p + (k.swap ? j : i)) * k.r + (k.swap ? i : j);
}
template <class T> __device__ __forceinline__ T power(T d, T p)
{
  T a = fabs(d);
  return a > 0 && !isinf(a) ? (T)pow(a, p) : a;
}

template <class T> __device__ __forceinline__ T signed_by(T d, T w) { return d < 0 ? -w : w; }

template <class T> __device__ __forceinline__ T add(int kind, T a, T d, T p)
{
  T w = fabs(d);
  switch (kind) {
#define NORM(kind, sum, gradient) \
  case kind: return sum;
    NORMS(NORM)
#undef NORM
  }
  AMP_NEVER();
}
template <class T> __device__ __forceinline__ T pulled(int kind, T q, T d, T dist, T p)
{
  switch (kind) {
#define NORM(kind, sum, gradient) \
  case kind: return gradient;
    NORMS(NORM)
#undef NORM
  }
  AMP_NEVER();
}

template <class T> __global__ void __launch_bounds__(TILE *TILE) distances(const job k)
{
  __shared__ T xs[TILE][TILE + 1], zs[TILE][TILE + 1];
  const int64_t tp = (k.p + TILE - 1) / TILE, tr = (k.r + TILE - 1) / TILE;
  for (int64_t t = blockIdx.x; t < k.batch * tp * tr; t += gridDim.x) {
    int64_t b = t / (tp * tr), u = t - b * tp * tr, i0 = u / tr * TILE, j0 = u % tr * TILE, bx = 0, bz = 0, q = b;
    if (k.triangle && j0 + TILE <= i0) continue;
    for (int d = k.nd - 1; d >= 0; d--) {
      int64_t n = q % k.size[d];
      q /= k.size[d];
      bx += n * k.sx[d];
      bz += n * k.sz[d];
    }
    const T *x = (const T *)k.x + bx * k.p * k.m, *z = (const T *)k.z + bz * k.r * k.m;
    int64_t i = i0 + threadIdx.y, j = j0 + threadIdx.x;
    T a = 0;
    for (int64_t f = 0; f < k.m; f += TILE) {
      int64_t c = f + threadIdx.x;
      __syncthreads();
      xs[threadIdx.y][threadIdx.x] = i < k.p && c < k.m ? x[i * k.m + c] : (T)0;
      zs[threadIdx.y][threadIdx.x] = j0 + threadIdx.y < k.r && c < k.m ? z[(j0 + threadIdx.y) * k.m + c] : (T)0;
      __syncthreads();
      for (int n = 0; n < TILE; n++) a = add(k.kind, a, xs[threadIdx.y][n] - zs[threadIdx.x][n], (T)k.norm);
    }
    if (k.kind == TWO) a = sqrt(a);
    else if (k.kind == POWER) a = (T)pow(a, (T)(1 / k.norm));
    if (i < k.p && j < k.r && (!k.triangle || j > i))
      ((T *)k.out)[k.triangle ? first_pair(k.r, i) + j - i - 1 : (b * k.p + i) * k.r + j] = a;
  }
}

/* what all features of a pair have in common; of a triangle each pair twice, once is kept */
template <class T> __global__ void __launch_bounds__(256) shares(const job k, T *out)
{
  AMP_FOR(t, k.batch * k.p * k.r)
  {
    int64_t b = t / (k.p * k.r), u = t - b * k.p * k.r, i = u / k.r, j = u - i * k.r;
    if (k.triangle && j <= i) continue;
    int64_t at = pair_of(k, b, i, j);
    T g = ((const T *)k.g)[at], y = ((const T *)k.dist)[at],
      q = k.kind == TWO     ? g / y
          : k.kind == POWER ? (T)(g / pow(y, (T)(k.norm - 1)))
                            : g;
    if (y == 0 || k.kind == ZERO) q = 0;
    else if (k.kind == MOST) {
      const T *x = (const T *)k.x + (b * k.p + i) * k.m, *z = (const T *)k.z + (b * k.r + j) * k.m;
      int64_t equal = 0;
      for (int64_t f = 0; f < k.m; f++) equal += fabs(x[f] - z[f]) == y;
      q /= (T)(equal ? equal : 1);
    }
    out[at] = q;
  }
}

/* the gradient of one operand: x's, or with swap z's (p and r are the pairs' own) */
template <class T> __global__ void __launch_bounds__(256) pull(const job k)
{
  const int64_t rows = k.swap ? k.r : k.p, others = k.swap ? k.p : k.r;
  AMP_FOR(t, k.batch * rows * k.m)
  {
    int64_t f = t % k.m, n = t / k.m, b = n / rows, i = n - b * rows;
    const T *mine = (const T *)(k.swap ? k.z : k.x), *theirs = (const T *)(k.swap ? k.x : k.z);
    T v = mine[t], s = 0;
    for (int64_t j = 0; j < others; j++) {
      if (k.triangle && i == j) continue;
      int64_t at = pair_of(k, b, i, j);
      T q = ((const T *)k.share)[at], d = v - theirs[(b * others + j) * k.m + f];
      if (q == 0) continue;
      s += pulled(k.kind, q, d, k.kind == MOST ? ((const T *)k.dist)[at] : (T)0, (T)k.norm);
    }
    ((T *)k.out)[t] = s;
  }
}

static job begin(double norm)
{
  job k;
  memset((void *)&k, 0, sizeof k);
  k.norm = norm;
  k.kind = kind_of(norm);
  k.batch = 1;
  return k;
}

static int forward(const job &k, int type)
{
  int64_t tiles = k.batch * ((k.p + TILE - 1) / TILE) * ((k.r + TILE - 1) / TILE);
  return amp_by_float(type, [&](auto zero) {
    AMP_LAUNCH((distances<decltype(zero)>), amp_grid(tiles, 1, 32), dim3(TILE, TILE), 0, k);
    return 0;
  });
}

/* y: x's gradient, yz: z's, or NULL */
static int backward(job &k, int type, amp_tensor *y, amp_tensor *yz, int64_t pairs)
{
  amp_tensor *s = amp__cuda_scratch((size_t)pairs * amp__dtype_size[type]);
  if (s == NULL) return AMP_E_MEMORY;
  amp_by_float(type, [&](auto zero) {
    typedef decltype(zero) T;
    int64_t all = k.batch * k.p * k.r;
    if (all > 0) AMP_LAUNCH((shares<T>), amp_grid(all, 256), 256, 0, k, (T *)amp__data(s));
    k.share = amp__data(s);
    k.out = amp__data(y);
    if (y->numel > 0) AMP_LAUNCH((pull<T>), amp_grid(y->numel, 256), 256, 0, k);
    if (yz && yz->numel > 0) {
      k.swap = 1;
      k.out = amp__data(yz);
      AMP_LAUNCH((pull<T>), amp_grid(yz->numel, 256), 256, 0, k);
    }
    return 0;
  });
  amp__free(s);
  return 0;
}

static int type_of(const amp_tensor *t) { return t->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32; }

} // namespace

extern "C" {

int amp__cuda_cdist(amp_call *c) /* p compute_mode */
{
  amp_tensor *out = c->out[0], *x = NULL, *z = NULL, *y = NULL;
  int rc = AMP_E_MEMORY, type = type_of(out), nd = out->ndim - 2;
  job k = begin(AMP_ARGS(c, cdist)->p);
  if (out->numel == 0) return 0;
  if (!(x = amp__cuda_dense(c->in[0], type)) || !(z = amp__cuda_dense(c->in[1], type)) || !(y = amp_take(out, type)))
    goto out;
  k.p = x->size[x->ndim - 2];
  k.r = z->size[z->ndim - 2];
  k.m = x->size[x->ndim - 1];
  k.x = amp__data(x);
  k.z = amp__data(z);
  k.out = amp__data(y);
  k.nd = nd;
  for (int64_t d = nd - 1, nx = 1, nz = 1; d >= 0; d--) {
    int i = (int)d - (out->ndim - x->ndim), j = (int)d - (out->ndim - z->ndim);
    int64_t a = i < 0 ? 1 : x->size[i], b = j < 0 ? 1 : z->size[j];
    k.sx[d] = a == 1 ? 0 : nx;
    k.sz[d] = b == 1 ? 0 : nz;
    k.size[d] = out->size[d];
    k.batch *= out->size[d];
    nx *= a;
    nz *= b;
  }
  rc = forward(k, type);
out:
  amp__free(x);
  amp__free(z);
  return amp_give(out, y, rc);
}

int amp__cuda_pdist(amp_call *c)
{
  amp_tensor *out = c->out[0], *x = NULL, *y = NULL;
  int rc = AMP_E_MEMORY, type = type_of(out);
  job k = begin(AMP_ARGS(c, pdist)->p);
  if (out->numel == 0) return 0;
  if ((x = amp__cuda_dense(c->in[0], type)) && (y = amp_take(out, type))) {
    k.p = k.r = x->size[0];
    k.m = x->size[1];
    k.x = k.z = amp__data(x);
    k.out = amp__data(y);
    k.triangle = 1;
    rc = forward(k, type);
  }
  amp__free(x);
  return amp_give(out, y, rc);
}

int amp__cuda_cdist_backward(amp_call *c) /* grad x1 x2 dist; p */
{
  amp_tensor *t[4] = { NULL, NULL, NULL, NULL }, *y, *yz;
  int rc = 0, type = type_of(c->in[1]);
  job k = begin(AMP_ARGS(c, cdist_backward)->p);
  for (int i = 0; i < 4; i++)
    if (!(t[i] = amp__cuda_dense(c->in[i], type))) rc = AMP_E_MEMORY;
  y = amp_take(c->out[0], type);
  yz = amp_take(c->out[1], type);
  if (rc == 0 && y && yz) {
    int n = t[1]->ndim;
    k.p = t[1]->size[n - 2];
    k.r = t[2]->size[n - 2];
    k.m = t[1]->size[n - 1];
    for (int d = 0; d < n - 2; d++) k.batch *= t[1]->size[d];
    k.g = amp__data(t[0]);
    k.x = amp__data(t[1]);
    k.z = amp__data(t[2]);
    k.dist = amp__data(t[3]);
    rc = backward(k, type, y, yz, t[0]->numel);
  } else rc = AMP_E_MEMORY;
  for (int i = 0; i < 4; i++) amp__free(t[i]);
  rc = amp_give(c->out[0], y, rc);
  return amp_give(c->out[1], yz, rc);
}

int amp__cuda_pdist_backward(amp_call *c) /* grad input dist; p */
{
  amp_tensor *t[3] = { NULL, NULL, NULL }, *y;
  int rc = 0, type = type_of(c->in[1]);
  job k = begin(AMP_ARGS(c, pdist_backward)->p);
  for (int i = 0; i < 3; i++)
    if (!(t[i] = amp__cuda_dense(c->in[i], type))) rc = AMP_E_MEMORY;
  y = amp_take(c->out[0], type);
  if (rc == 0 && y) {
    k.p = k.r = t[1]->size[0];
    k.m = t[1]->size[1];
    k.g = amp__data(t[0]);
    k.x = k.z = amp__data(t[1]);
    k.dist = amp__data(t[2]);
    k.triangle = 1;
    rc = backward(k, type, y, NULL, t[0]->numel);
  } else rc = AMP_E_MEMORY;
  for (int i = 0; i < 3; i++) amp__free(t[i]);
  return amp_give(c->out[0], y, rc);
}
}
