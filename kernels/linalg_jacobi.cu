/*
** linalg_jacobi.cu: singular and eigenvalues by rotations, always in double:
** svd, svdvals, pinverse (Hestenes), eigh, eigvalsh (Jacobi).
**
** A block takes a matrix. The pairs of a sweep come in rounds of n / 2 that have
** no index in common (as in a tournament), each pair by a warp, so a sweep has n
** barriers and not n^2. Results and limits are the CPU's (cpu_linalg_jacobi.c):
** what did not converge or is not finite is noted as trouble and gives NaN. Large
** matrices go to cuSOLVER, which computes in the tensor's own precision.
*/
#include "linalg.cuh"
#include "../src/cuda/cuda_gemm.h"

namespace {

enum { RANK_SWEEPS = 12, MAX_SWEEPS = 60 };
#define ROUNDING (16 * DBL_EPSILON)

/* Pair k of round t among n: of players 0..e-1 (e even) the last stays, the others move on. false: one sits out */
__device__ __forceinline__ bool pair_of(int64_t n, int64_t t, int64_t k, int64_t *p, int64_t *q)
{
  int64_t e = n + (n & 1), a = k == 0 ? e - 1 : (t + k) % (e - 1), b = k == 0 ? t : (t + e - 1 - k) % (e - 1);
  *p = a < b ? a : b;
  *q = a < b ? b : a;
  return *q < n;
}

/* Tangent of the smaller angle that makes (p, q; q, r) diagonal */
__device__ __forceinline__ double tangent(double p, double q, double r)
{
  double z = (r - p) / (2 * q);
  return (z >= 0 ? 1 : -1) / (fabs(z) + sqrt(1 + z * z));
}

__device__ __forceinline__ void rotate(double *x, double *y, double c, double s, int64_t n, int lane)
{
  for (int64_t i = lane; i < n; i += 32) {
    double a = x[i], b = y[i];
    x[i] = c * a - s * b;
    y[i] = s * a + c * b;
  }
}

__device__ __forceinline__ double dot(const double *x, const double *y, int64_t n, int lane)
{
  double s = 0;
  for (int64_t i = lane; i < n; i += 32) s += x[i] * y[i];
  return amp_reduce_warp<amp_sum>(s);
}

/* The power of 2 that brings n elements to about 1; 0: not finite. By a block. */
template <class T> __device__ double scale_of(const T *a, int64_t n)
{
  double most = 0;
  int bad = 0, e;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    double v = fabs((double)a[i]);
    if (!(v <= DBL_MAX)) bad = 1;
    else if (v > most) most = v;
  }
  most = amp_reduce_block<amp_most>(most, 0.0);
  if (__syncthreads_or(bad)) return 0;
  if (most == 0) return 1;
  frexp(most, &e);
  return ldexp(1.0, e > 1000 ? 1000 : e < -1000 ? -1000 : e);
}

/* order: places by value, falling or rising; equal ones keep theirs. By a block; the caller synchronises */
__device__ void sorted(const double *v, int64_t step, int64_t n, bool falling, int32_t *order)
{
  for (int64_t j = threadIdx.x; j < n; j += blockDim.x) {
    int64_t rank = 0;
    double x = v[j * step];
    for (int64_t i = 0; i < n; i++) {
      double y = v[i * step];
      rank += (falling ? y > x : y < x) || (y == x && i < j);
    }
    order[rank] = (int32_t)j;
  }
}

/* -- Singular values -------------------------------------------------------------- */

/* Columns of g (m x n) become orthogonal, v (or NULL) takes the rotations. false: no end. loose: as on the CPU */
__device__ bool orthogonal(int64_t m, int64_t n, double *g, double *v, bool *loose)
{
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  const int64_t rounds = n + (n & 1) - 1, pairs = (n + 1) / 2;
  *loose = false;
  if (n < 2) return true;
  for (int sweep = 0; sweep < MAX_SWEEPS; sweep++) {
    int again = 0, slack = 0;
    for (int64_t t = 0; t < rounds; t++) {
      for (int64_t k = warp; k < pairs; k += warps) {
        int64_t i, j;
        if (!pair_of(n, t, k, &i, &j)) continue;
        double *x = g + i * m, *y = g + j * m, p = dot(x, x, m, lane), r = dot(y, y, m, lane), q = dot(x, y, m, lane);
        if (!(fabs(q) > 4 * DBL_EPSILON * sqrt(p) * sqrt(r)) || fabs(q) < DBL_MIN) continue;
        if (sweep >= RANK_SWEEPS && sqrt(fmin(p, r)) <= ROUNDING * sqrt(fmax(p, r))) { slack = 1; continue; }
        double a = tangent(p, q, r), c = 1 / sqrt(1 + a * a), s = c * a;
        again = 1;
        rotate(x, y, c, s, m, lane);
        if (v) rotate(v + i * n, v + j * n, c, s, n, lane);
      }
      __syncthreads();
    }
    again = __syncthreads_or(again);
    *loose = __syncthreads_or(slack) != 0;
    if (!again) return true;
  }
  return false;
}

/* Columns from `have` on of u (m x count, element (i, j) at i * rs + j), orthogonal to those before: the unit vector that
** lies furthest from them, made orthogonal twice. rest: m doubles. By a block. */
template <class T> __device__ void complete(int64_t m, int64_t have, int64_t count, T *u, int64_t rs, double *rest)
{
  __shared__ unsigned long long best;
  for (int64_t n = have; n < count; n++) {
    if (threadIdx.x == 0) best = 0;
    __syncthreads();
    double most = -1;
    int64_t at = 0;
    for (int64_t i = threadIdx.x; i < m; i += blockDim.x) {
      double left = 1;
      for (int64_t j = 0; j < n; j++) left -= (double)u[i * rs + j] * (double)u[i * rs + j];
      if (left > most) { most = left; at = i; }
    }
    double top = amp_reduce_block<amp_most>(most, -1.0);
    if (most == top) atomicMax(&best, (unsigned long long)(m - at)); /* the first of them */
    __syncthreads();
    at = m - (int64_t)best;
    for (int64_t i = threadIdx.x; i < m; i += blockDim.x) rest[i] = i == at;
    __syncthreads();
    for (int pass = 0; pass < 2; pass++)
      for (int64_t j = 0; j < n; j++) { /* one after the other: by the whole block */
        double s = 0;
        for (int64_t i = threadIdx.x; i < m; i += blockDim.x) s += rest[i] * (double)u[i * rs + j];
        s = amp_reduce_block<amp_sum>(s, 0.0);
        for (int64_t i = threadIdx.x; i < m; i += blockDim.x) rest[i] -= s * (double)u[i * rs + j];
      }
    double s = 0;
    for (int64_t i = threadIdx.x; i < m; i += blockDim.x) s += rest[i] * rest[i];
    s = 1 / sqrt(amp_reduce_block<amp_sum>(s, 0.0));
    for (int64_t i = threadIdx.x; i < m; i += blockDim.x) u[i * rs + n] = (T)(rest[i] * s);
    __syncthreads();
  }
}

/* Doubles a block works in: g, v, s, rest, order (as pairs of int32) */
__host__ __device__ static inline int64_t svd_room(int64_t rows, int64_t r, bool vectors) { return rows * r + (vectors ? r * r : 0) + r + rows + (r + 1) / 2; }

/* a: batch x m x n in C order; u m x nu, v n x nv in C order or NULL */
template <class T>
__global__ void __launch_bounds__(1024) svd(int64_t m, int64_t n, int64_t nu, int64_t nv, int64_t batch, const T *a, T *sv, T *u, T *v, double *mem, int op, amp_trouble *cell)
{
  AMP_SHARED(double, mine);
  const bool wide = m < n, vectors = u != NULL;
  const int64_t r = wide ? m : n, rows = wide ? n : m, left = wide ? nv : nu;
  double *g = mem ? mem + blockIdx.x * svd_room(rows, r, vectors) : mine, *y = g + rows * r, *s = vectors ? y + r * r : y, *rest = s + r;
  int32_t *order = (int32_t *)(rest + rows);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  for (int64_t b = blockIdx.x; b < batch; b += gridDim.x) {
    const T *x = a + b * m * n;
    T *lo = (wide ? v : u), *ro = (wide ? u : v), *so = sv + b * r;
    if (vectors) { lo += b * rows * left; ro += b * r * r; }
    bool loose = false;
    const double scale = scale_of(x, m * n);
    bool ok = scale != 0;
    if (ok) {
      for (int64_t e = threadIdx.x; e < m * n; e += blockDim.x) {
        int64_t i = e / n, j = e - i * n;
        g[wide ? j + i * rows : i + j * rows] = (double)x[e] / scale;
      }
      for (int64_t e = threadIdx.x; vectors && e < r * r; e += blockDim.x) y[e] = e % (r + 1) == 0;
      __syncthreads();
      ok = orthogonal(rows, r, g, vectors ? y : NULL, &loose);
    }
    __syncthreads();
    if (!ok) {
      if (threadIdx.x == 0) amp_note(cell, AMP_TROUBLE_CONVERGENCE, op, 0, 0, b);
      for (int64_t j = threadIdx.x; j < r; j += blockDim.x) so[j] = (T)NAN;
      for (int64_t e = threadIdx.x; vectors && e < rows * left; e += blockDim.x) lo[e] = (T)NAN;
      for (int64_t e = threadIdx.x; vectors && e < r * r; e += blockDim.x) ro[e] = (T)NAN;
      continue;
    }
    for (int64_t j = warp; j < r; j += warps) {
      double q = sqrt(dot(g + j * rows, g + j * rows, rows, lane));
      if (lane == 0) s[j] = q;
    }
    __syncthreads();
    sorted(s, 1, r, true, order);
    __syncthreads();
    for (int64_t j = threadIdx.x; j < r; j += blockDim.x) so[j] = (T)(s[order[j]] * scale);
    if (vectors) {
      /* shorter columns have no direction of their own */
      const double least = fmax(loose && r > 0 ? 2 * ROUNDING * s[order[0]] : 0.0, 1e-290);
      int64_t have = 0;
      while (have < r && s[order[have]] > least) have++;
      for (int64_t e = threadIdx.x; e < rows * have; e += blockDim.x) {
        int64_t i = e / have, j = e - i * have;
        lo[i * left + j] = (T)(g[i + order[j] * rows] / s[order[j]]);
      }
      for (int64_t e = threadIdx.x; e < r * r; e += blockDim.x) {
        int64_t i = e / r, j = e - i * r;
        ro[e] = (T)y[i + order[j] * r];
      }
      __syncthreads();
      complete(rows, have, left, lo, left, rest);
    }
    __syncthreads();
  }
}

/* -- Eigenvalues ---------------------------------------------------------------------- */

__host__ __device__ static inline int64_t eigh_room(int64_t n, bool vectors) { return n * n * (vectors ? 2 : 1) + (n + 1) + (n + 1) / 2; }

/* g (n x n) becomes diagonal. turn: cosine and sine of each pair of a round */
__device__ bool diagonal(int64_t n, double *g, double *v, double *turn)
{
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  const int64_t rounds = n + (n & 1) - 1, pairs = (n + 1) / 2;
  for (int sweep = 0; sweep < MAX_SWEEPS; sweep++) {
    double off = 0, on = 0;
    for (int64_t e = threadIdx.x; e < n * n; e += blockDim.x) {
      double x = g[e] * g[e];
      if (e % (n + 1) == 0) on += x;
      else off += x;
    }
    off = amp_reduce_block<amp_sum>(off, 0.0);
    on = amp_reduce_block<amp_sum>(on, 0.0);
    if (off <= 1e-36 * (on + off) || off < DBL_MIN) return true;
    for (int64_t t = 0; t < rounds; t++) {
      __syncthreads();
      for (int64_t k = threadIdx.x; k < pairs; k += blockDim.x) {
        int64_t p, q;
        double c = 0, s = 0; /* c 0: left alone */
        if (pair_of(n, t, k, &p, &q)) {
          double e = g[p + q * n], a = g[p * (n + 1)], b = g[q * (n + 1)];
          if (!(fabs(e) <= 1e-20 * sqrt(fabs(a)) * sqrt(fabs(b))) && fabs(e) >= DBL_MIN) {
            double w = tangent(a, e, b);
            c = 1 / sqrt(1 + w * w);
            s = c * w;
          }
        }
        turn[2 * k] = c;
        turn[2 * k + 1] = s;
      }
      __syncthreads();
      for (int64_t k = warp; k < pairs; k += warps) {
        int64_t p, q;
        if (!pair_of(n, t, k, &p, &q) || turn[2 * k] == 0) continue;
        rotate(g + p * n, g + q * n, turn[2 * k], turn[2 * k + 1], n, lane);
        if (v) rotate(v + p * n, v + q * n, turn[2 * k], turn[2 * k + 1], n, lane);
      }
      __syncthreads();
      for (int64_t e = threadIdx.x; e < pairs * n; e += blockDim.x) { /* rows: neighbours take neighbouring pairs */
        int64_t i = e / pairs, k = e - i * pairs, p, q;
        double c = turn[2 * k], s = turn[2 * k + 1];
        if (!pair_of(n, t, k, &p, &q) || c == 0) continue;
        double a = g[p + i * n], b = g[q + i * n];
        g[p + i * n] = i == q ? 0 : c * a - s * b;
        g[q + i * n] = i == p ? 0 : s * a + c * b;
      }
    }
    __syncthreads();
  }
  return false;
}

/* a: batch x n x n in C order, one triangle of which is read; w rising; v in C order or NULL */
template <class T>
__global__ void __launch_bounds__(1024) eigh(int64_t n, int64_t batch, bool upper, const T *a, T *w, T *vectors, double *mem, int op, amp_trouble *cell)
{
  AMP_SHARED(double, mine);
  double *g = mem ? mem + blockIdx.x * eigh_room(n, vectors != NULL) : mine, *v = vectors ? g + n * n : NULL, *turn = g + n * n * (vectors ? 2 : 1);
  int32_t *order = (int32_t *)(turn + n + 1);
  for (int64_t b = blockIdx.x; b < batch; b += gridDim.x) {
    for (int64_t e = threadIdx.x; e < n * n; e += blockDim.x) {
      int64_t i = e / n, j = e - i * n;
      g[e] = (double)a[b * n * n + ((i > j) == upper ? j * n + i : e)];
      if (v) v[e] = i == j;
    }
    __syncthreads();
    const double scale = scale_of(g, n * n);
    bool ok = scale != 0;
    __syncthreads();
    if (ok) {
      for (int64_t e = threadIdx.x; e < n * n; e += blockDim.x) g[e] /= scale;
      __syncthreads();
      ok = diagonal(n, g, v, turn);
    }
    __syncthreads();
    if (ok) sorted(g, n + 1, n, false, order);
    else if (threadIdx.x == 0) amp_note(cell, AMP_TROUBLE_CONVERGENCE, op, 0, 0, b);
    __syncthreads();
    for (int64_t j = threadIdx.x; j < n; j += blockDim.x) w[b * n + j] = ok ? (T)(g[order[j] * (n + 1)] * scale) : (T)NAN;
    for (int64_t e = threadIdx.x; v && e < n * n; e += blockDim.x) vectors[b * n * n + e] = ok ? (T)v[e / n + order[e % n] * n] : (T)NAN;
    __syncthreads();
  }
}

/* -- Launches ---------------------------------------------------------------------------- */

/* info[b] = 1 where matrix b is not finite; a block each */
template <class T> __global__ void not_finite(int64_t each, int64_t batch, const T *a, int32_t *info)
{
  for (int64_t b = blockIdx.x; b < batch; b += gridDim.x) {
    int bad = 0;
    for (int64_t i = threadIdx.x; i < each; i += blockDim.x) bad |= !amp_finite(a[b * each + i]);
    bad = __syncthreads_or(bad);
    if (threadIdx.x == 0) info[b] = bad;
  }
}

/* x times f[j], or with rcond (>= 0) by 1 / f[j], 0 for those up to rcond times f[0]; x is rows x r */
template <class T> __global__ void weigh(int64_t rows, int64_t r, int64_t total, T *x, const T *f, double rcond)
{
  AMP_FOR(e, total) {
    const T *s = f + e / (rows * r) * r;
    double d = (double)s[e % r];
    x[e] = d > rcond * (double)s[0] ? (T)((double)x[e] / d) : d == d ? (T)0 : (T)NAN;
  }
}

/* Blocks that work at a time, and scratch for them unless shared memory will do (*mem NULL then). 0: error */
unsigned blocks_of(int64_t batch, int64_t doubles, amp_tensor **mem, size_t *shared)
{
  unsigned blocks = amp_grid(batch, 1, 8);
  *mem = NULL;
  *shared = 0;
  if (8 * doubles <= AMP_MATRIX_SHARED) { *shared = (size_t)(8 * doubles); return blocks; }
  while (blocks > 1 && (double)blocks * 8.0 * (double)doubles > 1e9) blocks /= 2;
  *mem = amp__cuda_scratch(8 * (size_t)doubles * blocks);
  return *mem ? blocks : 0;
}

/* Decomposes the matrices of t into dense results of the working type: s, and u, v or neither */
int decompose(amp_call *c, amp_tensor *t, bool some, amp_tensor *s, amp_tensor *u, amp_tensor *v)
{
  int64_t m = amp_rows(t), n = amp_cols(t), r = m < n ? m : n, nu = some ? r : m, nv = some ? r : n, batch = amp_batch(t, 2);
  int type = amp_working(t->dtype), rc = 1;
  size_t each = amp__dtype_size[type];
  amp_tensor *a = NULL, *mem = NULL, *info = NULL;
  if (r > 0 && (m > n ? m : n) <= 32000 && amp_to_solver(r, 64, batch)) { /* what stands in memory is A^T = V S U^T, column by column */
    if (!(a = amp_fresh(t, false)) || !(info = amp__cuda_scratch(4 * (size_t)batch))) { rc = AMP_E_MEMORY; goto out; }
    amp_by_float(type, [&](auto zero) {
      typedef decltype(zero) T;
      AMP_LAUNCH((not_finite<T>), amp_grid(batch, 1), 1024, 0, m * n, batch, (const T *)amp__data(a), (int32_t *)amp__data(info));
      return 0;
    });
    amp_tell_info(batch, (int32_t *)amp__data(info), AMP_TROUBLE_CONVERGENCE, c->id);
    int64_t count_v = batch * n * nv, count_u = batch * m * nu;
    amp_tensor *lv = v ? amp__cuda_make(type, 1, &count_v) : NULL, *lu = v ? amp__cuda_make(type, 1, &count_u) : NULL;
    if (v && (!lv || !lu)) rc = AMP_E_MEMORY;
    for (int64_t b = 0; b < batch && rc >= 0; b++)
      if ((rc = amp__cuda_solver_svd(type, n, m, some, (char *)amp__data(a) + (size_t)(b * m * n) * each, (char *)amp__data(s) + (size_t)(b * r) * each,
                                     v ? (char *)amp__data(lv) + (size_t)(b * n * nv) * each : NULL, v ? (char *)amp__data(lu) + (size_t)(b * m * nu) * each : NULL,
                                     (int32_t *)amp__data(info) + b)) != 0) break;
    if (rc == 0) rc = amp_tell_info(batch, (int32_t *)amp__data(info), AMP_TROUBLE_CONVERGENCE, c->id);
    if (rc == 0 && v) { /* columns to C order */
      int64_t zu[3] = { batch, m, nu }, su[3] = { m * nu, 1, m }, zv[3] = { batch, n, nv }, sw[3] = { n * nv, 1, n }, fu[3] = { m * nu, nu, 1 }, fv[3] = { n * nv, nv, 1 };
      for (int i = 0; i < 2 && rc == 0; i++) {
        amp_tensor *flat = i ? lv : lu, *out = i ? v : u;
        amp_tensor *from = amp__tensor_view(flat, 3, i ? zv : zu, i ? sw : su, 0), *to = amp__tensor_view(out, 3, i ? zv : zu, i ? fv : fu, out->offset);
        rc = from && to ? amp__cuda_copy_to(to, from) : AMP_E_MEMORY;
        amp__free(from);
        amp__free(to);
      }
    }
    amp__free(lv);
    amp__free(lu);
    if (rc <= 0) goto out;
    amp__free(a);
    a = NULL;
  }
  rc = AMP_E_MEMORY;
  if (!(a = amp__cuda_dense(t, type))) goto out;
  rc = amp_by_float(type, [&](auto zero) {
    typedef decltype(zero) T;
    size_t shared;
    unsigned blocks = blocks_of(batch, svd_room(m < n ? n : m, r, u != NULL), &mem, &shared);
    if (!blocks) return (int)AMP_E_MEMORY;
    AMP_LAUNCH((svd<T>), blocks, amp_block_of(r), shared, m, n, nu, nv, batch, (const T *)amp__data(a), (T *)amp__data(s), u ? (T *)amp__data(u) : NULL,
               v ? (T *)amp__data(v) : NULL, mem ? (double *)amp__data(mem) : NULL, c->id, amp_trouble_cell());
    return 0;
  });
out:
  amp__free(a);
  amp__free(mem);
  amp__free(info);
  return rc;
}

} // namespace

extern "C" int amp__cuda_svd(amp_call *c) /* some */
{
  amp_tensor *o[3] = { c->out[0], c->out[1], c->out[2] }, *t[3] = { NULL, NULL, NULL };
  int type = amp_working(c->in[0]->dtype), rc = 0;
  if (o[0]->numel == 0 && o[1]->numel == 0 && o[2]->numel == 0) return 0;
  for (int i = 0; i < 3; i++)
    if (!(t[i] = amp_take(o[i], type))) rc = AMP_E_MEMORY;
  if (rc == 0) rc = decompose(c, c->in[0], c->a[0].i != 0, t[1], t[0], t[2]);
  for (int i = 0; i < 3; i++) rc = amp_give(o[i], t[i], rc);
  return rc;
}

extern "C" int amp__cuda_svdvals(amp_call *c)
{
  amp_tensor *o = c->out[0];
  if (o->numel == 0) return 0;
  amp_tensor *s = amp_take(o, amp_working(c->in[0]->dtype));
  return amp_give(o, s, s ? decompose(c, c->in[0], true, s, NULL, NULL) : AMP_E_MEMORY);
}

/* V diag(1 / s) U^T */
extern "C" int amp__cuda_pinverse(amp_call *c) /* rcond */
{
  amp_tensor *t = c->in[0], *o = c->out[0], *to = NULL, *s = NULL, *u = NULL, *v = NULL;
  int64_t m = amp_rows(t), n = amp_cols(t), r = m < n ? m : n, batch = amp_batch(t, 2), zu[3] = { batch, m, r }, zv[3] = { batch, n, r };
  int type = amp_working(t->dtype), rc = AMP_E_MEMORY;
  if (o->numel == 0) return 0;
  double eps = t->dtype == AMP_FLOAT64 ? DBL_EPSILON : t->dtype == AMP_FLOAT32 ? FLT_EPSILON : t->dtype == AMP_FLOAT16 ? 0x1p-10 : 0x1p-7;
  double rcond = c->a[0].i == AMP_NONE ? (double)(m < n ? n : m) * eps : c->a[0].f;
  if (!(to = amp_take(o, type)) || !(s = amp__cuda_make(type, 2, zu)) || !(u = amp__cuda_make(type, 3, zu)) || !(v = amp__cuda_make(type, 3, zv))) goto out;
  if ((rc = decompose(c, t, true, s, u, v)) < 0) goto out;
  rc = amp_by_float(type, [&](auto zero) {
    typedef decltype(zero) T;
    AMP_LAUNCH((weigh<T>), amp_grid(v->numel, 256), 256, 0, n, r, v->numel, (T *)amp__data(v), (const T *)amp__data(s), rcond);
    return 0;
  });
  if (rc == 0) {
    amp_product p;
    memset((void *)&p, 0, sizeof p);
    p.dtype = type;
    p.m = n;
    p.n = m;
    p.k = r;
    p.a = (const char *)amp__data(v);
    p.b = (const char *)amp__data(u);
    p.c = (char *)amp__data(to);
    p.ars = r;
    p.acs = 1;
    p.brs = 1;
    p.bcs = r;
    p.crs = m;
    p.ccs = 1;
    if (batch > 1) { p.nbatch = 1; p.size[0] = batch; p.as[0] = n * r; p.bs[0] = m * r; p.cs[0] = n * m; }
    rc = amp__cuda_gemm(&p);
  }
out:
  rc = amp_give(o, to, rc);
  amp__free(s);
  amp__free(u);
  amp__free(v);
  return rc;
}

static int eigenvalues(amp_call *c, bool vectors) /* UPLO */
{
  amp_tensor *t = c->in[0], *wo = c->out[0], *vo = vectors ? c->out[1] : NULL, *w = NULL, *v = NULL, *a = NULL, *mem = NULL, *info = NULL;
  int64_t n = amp_rows(t), batch = amp_batch(t, 2);
  int type = amp_working(t->dtype), rc = AMP_E_MEMORY, taken = 1;
  size_t each = amp__dtype_size[type];
  bool upper = c->a[0].i != 0;
  if (wo->numel == 0) return 0;
  if (!(w = amp_take(wo, type)) || (vectors && !(v = amp_take(vo, type)))) goto out;
  if (amp_to_solver(n, 64, batch)) {
    if (!(a = amp_fresh(t, !upper)) || !(info = amp__cuda_scratch(4 * (size_t)batch))) goto out;
    amp_by_float(type, [&](auto zero) {
      typedef decltype(zero) T;
      AMP_LAUNCH((not_finite<T>), amp_grid(batch, 1), 1024, 0, n * n, batch, (const T *)amp__data(a), (int32_t *)amp__data(info));
      return 0;
    });
    amp_tell_info(batch, (int32_t *)amp__data(info), AMP_TROUBLE_CONVERGENCE, c->id);
    for (int64_t b = 0; b < batch; b++)
      if ((taken = amp__cuda_solver_eigh(type, vectors, n, (char *)amp__data(a) + (size_t)(b * n * n) * each, (char *)amp__data(w) + (size_t)(b * n) * each,
                                         (int32_t *)amp__data(info) + b)) != 0) break;
    if (taken == 0) {
      rc = amp_tell_info(batch, (int32_t *)amp__data(info), AMP_TROUBLE_CONVERGENCE, c->id);
      if (rc == 0 && vectors) rc = amp_put(v, a, true);
      goto out;
    }
    if ((rc = taken) < 0) goto out;
    rc = AMP_E_MEMORY;
    amp__free(a);
    a = NULL;
  }
  if (!(a = amp__cuda_dense(t, type))) goto out;
  rc = amp_by_float(type, [&](auto zero) {
    typedef decltype(zero) T;
    size_t shared;
    unsigned blocks = blocks_of(batch, eigh_room(n, vectors), &mem, &shared);
    if (!blocks) return (int)AMP_E_MEMORY;
    AMP_LAUNCH((eigh<T>), blocks, amp_block_of(n), shared, n, batch, upper, (const T *)amp__data(a), (T *)amp__data(w), v ? (T *)amp__data(v) : NULL,
               mem ? (double *)amp__data(mem) : NULL, c->id, amp_trouble_cell());
    return 0;
  });
out:
  rc = amp_give(wo, w, rc);
  if (vectors) rc = amp_give(vo, v, rc);
  amp__free(a);
  amp__free(mem);
  amp__free(info);
  return rc;
}

extern "C" int amp__cuda_eigh(amp_call *c) { return eigenvalues(c, true); }
extern "C" int amp__cuda_eigvalsh(amp_call *c) { return eigenvalues(c, false); }
