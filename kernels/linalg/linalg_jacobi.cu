/*
** linalg_jacobi.cu: singular and eigenvalues by rotations, always in double:
** svd, svdvals, pinverse (Hestenes), eigh, eigvalsh (Jacobi).
**
** A block takes a matrix. The pairs of a sweep come in rounds of n / 2 that have
** no index in common (as in a tournament), each pair by a warp, so a sweep has n
** barriers and not n^2. Results and limits are the CPU's (ops/linalg/linalg_jacobi.c):
** what did not converge or is not finite is noted as trouble and gives NaN. Large
** matrices go to cuSOLVER, which computes in the tensor's own precision.
*/
#include "linalg/linalg.cuh"
#include "../src/cuda/cuda_gemm.h"

namespace {

enum { RANK_SWEEPS = 12, MAX_SWEEPS = 60 };
#define ROUNDING (16 * DBL_EPSILON)

/* Pair k of round t among n: of players 0..e-1 (e even) the last stays, the others move on. false: one sits out */
__device__ __forceinline__ bool pair_of(int64_t n, int64_t turn, int64_t k, int64_t *p, int64_t *q)
{
  int64_t e = n + (n & 1), a = k == 0 ? e - 1 : (turn + k) % (e - 1), b = k == 0 ? turn : (turn + e - 1 - k) % (e - 1);
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
__device__ bool orthogonal(int64_t m, int64_t n, double *columns, double *turns, bool *loose)
{
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  const int64_t rounds = n + (n & 1) - 1, pairs = (n + 1) / 2;
  *loose = false;
  if (n < 2) return true;
  for (int sweep = 0; sweep < MAX_SWEEPS; sweep++) {
    int again = 0, slack = 0;
    for (int64_t round = 0; round < rounds; round++) {
      for (int64_t pair = warp; pair < pairs; pair += warps) {
        int64_t i, j;
        if (!pair_of(n, round, pair, &i, &j)) continue;
        double *x = columns + i * m, *y = columns + j * m, p = dot(x, x, m, lane), r = dot(y, y, m, lane),
               q = dot(x, y, m, lane);
        if (!(fabs(q) > 4 * DBL_EPSILON * sqrt(p) * sqrt(r)) || fabs(q) < DBL_MIN) continue;
        if (sweep >= RANK_SWEEPS && sqrt(fmin(p, r)) <= ROUNDING * sqrt(fmax(p, r))) {
          slack = 1;
          continue;
        }
        double a = tangent(p, q, r), c = 1 / sqrt(1 + a * a), s = c * a;
        again = 1;
        rotate(x, y, c, s, m, lane);
        if (turns) rotate(turns + i * n, turns + j * n, c, s, n, lane);
      }
      __syncthreads();
    }
    again = __syncthreads_or(again);
    *loose = __syncthreads_or(slack) != 0;
    if (!again) return true;
  }
  return false;
}

/* Columns from `have` on of u (m x count, element (i, j) at i * rs + j), orthogonal to those before: the unit
** vector that lies furthest from them, made orthogonal twice. rest: m doubles. By a block. */
template <class T>
__device__ void complete(int64_t m, int64_t have, int64_t count, T *vectors, int64_t row_step, double *rest)
{
  __shared__ unsigned long long best;
  for (int64_t n = have; n < count; n++) {
    if (threadIdx.x == 0) best = 0;
    __syncthreads();
    double most = -1;
    int64_t farthest = 0;
    for (int64_t i = threadIdx.x; i < m; i += blockDim.x) {
      double left = 1;
      for (int64_t j = 0; j < n; j++) left -= (double)vectors[i * row_step + j] * (double)vectors[i * row_step + j];
      if (left > most) {
        most = left;
        farthest = i;
      }
    }
    double top = amp_reduce_block<amp_most>(most, -1.0);
    if (most == top) atomicMax(&best, (unsigned long long)(m - farthest)); /* the first of them */
    __syncthreads();
    farthest = m - (int64_t)best;
    for (int64_t i = threadIdx.x; i < m; i += blockDim.x) rest[i] = i == farthest;
    __syncthreads();
    for (int pass = 0; pass < 2; pass++)
      for (int64_t j = 0; j < n; j++) { /* one after the other: by the whole block */
        double s = 0;
        for (int64_t i = threadIdx.x; i < m; i += blockDim.x) s += rest[i] * (double)vectors[i * row_step + j];
        s = amp_reduce_block<amp_sum>(s, 0.0);
        for (int64_t i = threadIdx.x; i < m; i += blockDim.x) rest[i] -= s * (double)vectors[i * row_step + j];
      }
    double s = 0;
    for (int64_t i = threadIdx.x; i < m; i += blockDim.x) s += rest[i] * rest[i];
    s = 1 / sqrt(amp_reduce_block<amp_sum>(s, 0.0));
    for (int64_t i = threadIdx.x; i < m; i += blockDim.x) vectors[i * row_step + n] = (T)(rest[i] * s);
    __syncthreads();
  }
}

/* Doubles a block works in: g, v, s, rest, order (as pairs of int32) */
__host__ __device__ static inline int64_t svd_room(int64_t rows, int64_t r, bool vectors)
{
  return rows * r + (vectors ? r * r : 0) + r + rows + (r + 1) / 2;
}

/* A matrix whose columns did not become orthogonal: a message, and NaN in all its results. so: r singular values; lo:
** rows x left, ro: r x r vectors, if wanted */
template <class T>
__device__ __forceinline__ void svd_failed(T *values, T *left_vectors, T *right_vectors, int64_t rank, int64_t rows,
                                           int64_t left, bool vectors, int op, amp_trouble *cell, int64_t b)
{
  if (threadIdx.x == 0) amp_note(cell, AMP_TROUBLE_CONVERGENCE, op, 0, 0, b);
  for (int64_t j = threadIdx.x; j < rank; j += blockDim.x) values[j] = (T)NAN;
  for (int64_t e = threadIdx.x; vectors && e < rows * left; e += blockDim.x) left_vectors[e] = (T)NAN;
  for (int64_t e = threadIdx.x; vectors && e < rank * rank; e += blockDim.x) right_vectors[e] = (T)NAN;
}

/* Vectors of a matrix whose columns g (rows x r) are orthogonal, s[j] long, in falling order order[]: columns of unit
** length to lo, completed to `left` of them, and the turns y to ro */
template <class T>
__device__ __forceinline__ void svd_vectors(T *left_vectors, T *right_vectors, const double *columns,
                                            const double *turns, const double *length, const int32_t *order,
                                            double *rest, int64_t rank, int64_t rows, int64_t left, bool loose)
{
  /* shorter columns have no direction of their own */
  const double least = fmax(loose && rank > 0 ? 2 * ROUNDING * length[order[0]] : 0.0, 1e-290);
  int64_t have = 0;
  while (have < rank && length[order[have]] > least) have++;
  for (int64_t e = threadIdx.x; e < rows * have; e += blockDim.x) {
    int64_t i = e / have, j = e - i * have;
    left_vectors[i * left + j] = (T)(columns[i + order[j] * rows] / length[order[j]]);
  }
  for (int64_t e = threadIdx.x; e < rank * rank; e += blockDim.x) {
    int64_t i = e / rank, j = e - i * rank;
    right_vectors[e] = (T)turns[i + order[j] * rank];
  }
  __syncthreads();
  complete(rows, have, left, left_vectors, left, rest);
}

/* Singular values sv, and vectors u (m x nu), v (n x nv) in C order or NULL, of a: batch x m x n in C order. A block
** takes a matrix: the columns of the longer side, turned in pairs until all are orthogonal (one-sided Jacobi), are its
** left vectors times the values. In shared memory, or `mem` where that is too small. */
template <class T>
__global__ void __launch_bounds__(1024) svd(int64_t m, int64_t n, int64_t nu, int64_t nv, int64_t batch, const T *a,
                                            T *sv, T *u, T *v, double *mem, int op, amp_trouble *cell)
{
  AMP_SHARED(double, mine);
  const bool wide = m < n, vectors = u != NULL;
  const int64_t rank = wide ? m : n, rows = wide ? n : m, left = wide ? nv : nu;
  double *columns = mem ? mem + blockIdx.x * svd_room(rows, rank, vectors) : mine, *turns = columns + rows * rank,
         *length = vectors ? turns + rank * rank : turns, *rest = length + rank;
  int32_t *order = (int32_t *)(rest + rows);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  for (int64_t b = blockIdx.x; b < batch; b += gridDim.x) {
    const T *x = a + b * m * n;
    T *left_vectors = (wide ? v : u), *right_vectors = (wide ? u : v), *values_here = sv + b * rank;
    if (vectors) {
      left_vectors += b * rows * left;
      right_vectors += b * rank * rank;
    }
    bool loose = false;
    const double scale = scale_of(x, m * n);
    bool ok = scale != 0;
    if (ok) {
      for (int64_t e = threadIdx.x; e < m * n; e += blockDim.x) {
        int64_t i = e / n, j = e - i * n;
        columns[wide ? j + i * rows : i + j * rows] = (double)x[e] / scale;
      }
      for (int64_t e = threadIdx.x; vectors && e < rank * rank; e += blockDim.x) turns[e] = e % (rank + 1) == 0;
      __syncthreads();
      ok = orthogonal(rows, rank, columns, vectors ? turns : NULL, &loose);
    }
    __syncthreads();
    if (!ok) {
      svd_failed(values_here, left_vectors, right_vectors, rank, rows, left, vectors, op, cell, b);
      continue;
    }
    for (int64_t j = warp; j < rank; j += warps) {
      double q = sqrt(dot(columns + j * rows, columns + j * rows, rows, lane));
      if (lane == 0) length[j] = q;
    }
    __syncthreads();
    sorted(length, 1, rank, true, order);
    __syncthreads();
    for (int64_t j = threadIdx.x; j < rank; j += blockDim.x) values_here[j] = (T)(length[order[j]] * scale);
    if (vectors) svd_vectors(left_vectors, right_vectors, columns, turns, length, order, rest, rank, rows, left, loose);
    __syncthreads();
  }
}

/* -- Eigenvalues ---------------------------------------------------------------------- */

__host__ __device__ static inline int64_t eigh_room(int64_t n, bool vectors)
{
  return n * n * (vectors ? 2 : 1) + (n + 1) + (n + 1) / 2;
}

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
__global__ void __launch_bounds__(1024)
    eigh(int64_t n, int64_t batch, bool upper, const T *a, T *w, T *vectors, double *mem, int op, amp_trouble *cell)
{
  AMP_SHARED(double, mine);
  double *g = mem ? mem + blockIdx.x * eigh_room(n, vectors != NULL) : mine, *v = vectors ? g + n * n : NULL,
         *turn = g + n * n * (vectors ? 2 : 1);
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
    for (int64_t j = threadIdx.x; j < n; j += blockDim.x)
      w[b * n + j] = ok ? (T)(g[order[j] * (n + 1)] * scale) : (T)NAN;
    for (int64_t e = threadIdx.x; v && e < n * n; e += blockDim.x)
      vectors[b * n * n + e] = ok ? (T)v[e / n + order[e % n] * n] : (T)NAN;
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
  AMP_FOR(e, total)
  {
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
  if (8 * doubles <= AMP_MATRIX_SHARED) {
    *shared = (size_t)(8 * doubles);
    return blocks;
  }
  while (blocks > 1 && (double)blocks * 8.0 * (double)doubles > 1e9) blocks /= 2;
  *mem = amp__cuda_scratch(8 * (size_t)doubles * blocks);
  return *mem ? blocks : 0;
}

/* batch matrices of rows x cols, which lie in `flat` column by column, into C order */
static int to_rows(int64_t batch, int64_t rows, int64_t cols, amp_tensor *flat, amp_tensor *out)
{
  const int64_t size[3] = { batch, rows, cols }, down[3] = { rows * cols, 1, rows },
                along[3] = { rows * cols, cols, 1 };
  amp_tensor *from = amp__tensor_view(flat, 3, size, down, 0), *to = amp__tensor_view(out, 3, size, along, out->offset);
  int rc = from && to ? amp__cuda_copy_to(to, from) : AMP_E_MEMORY;
  amp__free(from);
  amp__free(to);
  return rc;
}

/* Decomposes the matrices of t into dense results of the working type: s, and u, v or neither */
int decompose(amp_call *c, amp_tensor *input, bool some, amp_tensor *s, amp_tensor *u, amp_tensor *v)
{
  int64_t m = amp_rows(input), n = amp_cols(input), rank = m < n ? m : n, count_of_u = some ? rank : m,
          count_of_v = some ? rank : n, batch = amp_batch(input, 2);
  int type = amp_working(input->dtype), rc = 1;
  size_t each = amp__dtype_size[type];
  amp_tensor *a = NULL, *mem = NULL, *info = NULL;
  if (rank > 0 && (m > n ? m : n) <= 32000
      && amp_to_solver(rank, 64, batch)) { /* what stands in memory is A^T = V S U^T, column by column */
    if (!(a = amp_fresh(input, false)) || !(info = amp__cuda_scratch(4 * (size_t)batch))) {
      rc = AMP_E_MEMORY;
      goto out;
    }
    amp_by_float(type, [&](auto zero) {
      typedef decltype(zero) T;
      AMP_LAUNCH((not_finite<T>), amp_grid(batch, 1), 1024, 0, m * n, batch, (const T *)amp__data(a),
                 (int32_t *)amp__data(info));
      return 0;
    });
    amp_tell_info(batch, (int32_t *)amp__data(info), AMP_TROUBLE_CONVERGENCE, c->id);
    int64_t count_v = batch * n * count_of_v, count_u = batch * m * count_of_u;
    amp_tensor *solver_v = v ? amp__cuda_make(type, 1, &count_v) : NULL,
               *solver_u = v ? amp__cuda_make(type, 1, &count_u) : NULL;
    if (v && (!solver_v || !solver_u)) rc = AMP_E_MEMORY;
    for (int64_t b = 0; b < batch && rc >= 0; b++)
      if ((rc = amp__cuda_solver_svd(type, n, m, some, (char *)amp__data(a) + (size_t)(b * m * n) * each,
                                     (char *)amp__data(s) + (size_t)(b * rank) * each,
                                     v ? (char *)amp__data(solver_v) + (size_t)(b * n * count_of_v) * each : NULL,
                                     v ? (char *)amp__data(solver_u) + (size_t)(b * m * count_of_u) * each : NULL,
                                     (int32_t *)amp__data(info) + b))
          != 0)
        break;
    if (rc == 0) rc = amp_tell_info(batch, (int32_t *)amp__data(info), AMP_TROUBLE_CONVERGENCE, c->id);
    if (rc == 0 && v && (rc = to_rows(batch, m, count_of_u, solver_u, u)) == 0)
      rc = to_rows(batch, n, count_of_v, solver_v, v);
    amp__free(solver_v);
    amp__free(solver_u);
    if (rc <= 0) goto out;
    amp__free(a);
    a = NULL;
  }
  rc = AMP_E_MEMORY;
  if (!(a = amp__cuda_dense(input, type))) goto out;
  rc = amp_by_float(type, [&](auto zero) {
    typedef decltype(zero) T;
    size_t shared;
    unsigned blocks = blocks_of(batch, svd_room(m < n ? n : m, rank, u != NULL), &mem, &shared);
    if (!blocks) return (int)AMP_E_MEMORY;
    AMP_LAUNCH((svd<T>), blocks, amp_block_of(rank), shared, m, n, count_of_u, count_of_v, batch,
               (const T *)amp__data(a), (T *)amp__data(s), u ? (T *)amp__data(u) : NULL, v ? (T *)amp__data(v) : NULL,
               mem ? (double *)amp__data(mem) : NULL, c->id, amp_trouble_cell());
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
  if (rc == 0) rc = decompose(c, c->in[0], AMP_ARGS(c, svd)->some != 0, t[1], t[0], t[2]);
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
  const args_pinverse *args = AMP_ARGS(c, pinverse);
  amp_tensor *t = c->in[0], *result = c->out[0], *to = NULL, *s = NULL, *u = NULL, *v = NULL;
  int64_t m = amp_rows(t), n = amp_cols(t), r = m < n ? m : n, batch = amp_batch(t, 2), zu[3] = { batch, m, r },
          zv[3] = { batch, n, r };
  int type = amp_working(t->dtype), rc = AMP_E_MEMORY;
  if (result->numel == 0) return 0;
  double eps = t->dtype == AMP_FLOAT64   ? DBL_EPSILON
               : t->dtype == AMP_FLOAT32 ? FLT_EPSILON
               : t->dtype == AMP_FLOAT16 ? 0x1p-10
                                         : 0x1p-7;
  double rcond = !AMP_GIVEN(args->rcond) ? (double)(m < n ? n : m) * eps : args->rcond;
  if (!(to = amp_take(result, type)) || !(s = amp__cuda_make(type, 2, zu)) || !(u = amp__cuda_make(type, 3, zu))
      || !(v = amp__cuda_make(type, 3, zv)))
    goto out;
  if ((rc = decompose(c, t, true, s, u, v)) < 0) goto out;
  rc = amp_by_float(type, [&](auto zero) {
    typedef decltype(zero) T;
    AMP_LAUNCH((weigh<T>), amp_grid(v->numel, 256), 256, 0, n, r, v->numel, (T *)amp__data(v), (const T *)amp__data(s),
               rcond);
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
    if (batch > 1) {
      p.nbatch = 1;
      p.size[0] = batch;
      p.as[0] = n * r;
      p.bs[0] = m * r;
      p.cs[0] = n * m;
    }
    rc = amp__cuda_gemm(&p);
  }
out:
  rc = amp_give(result, to, rc);
  amp__free(s);
  amp__free(u);
  amp__free(v);
  return rc;
}

static int eigenvalues(amp_call *c, bool upper, bool vectors)
{
  amp_tensor *input = c->in[0], *values_out = c->out[0], *vectors_out = vectors ? c->out[1] : NULL, *values = NULL,
             *found = NULL, *matrix = NULL, *mem = NULL, *info = NULL;
  int64_t n = amp_rows(input), batch = amp_batch(input, 2);
  int type = amp_working(input->dtype), rc = AMP_E_MEMORY, taken = 1;
  size_t each = amp__dtype_size[type];
  if (values_out->numel == 0) return 0;
  if (!(values = amp_take(values_out, type)) || (vectors && !(found = amp_take(vectors_out, type)))) goto out;
  if (amp_to_solver(n, 64, batch)) {
    if (!(matrix = amp_fresh(input, !upper)) || !(info = amp__cuda_scratch(4 * (size_t)batch))) goto out;
    amp_by_float(type, [&](auto zero) {
      typedef decltype(zero) T;
      AMP_LAUNCH((not_finite<T>), amp_grid(batch, 1), 1024, 0, n * n, batch, (const T *)amp__data(matrix),
                 (int32_t *)amp__data(info));
      return 0;
    });
    amp_tell_info(batch, (int32_t *)amp__data(info), AMP_TROUBLE_CONVERGENCE, c->id);
    for (int64_t b = 0; b < batch; b++)
      if ((taken
           = amp__cuda_solver_eigh(type, vectors, n, (char *)amp__data(matrix) + (size_t)(b * n * n) * each,
                                   (char *)amp__data(values) + (size_t)(b * n) * each, (int32_t *)amp__data(info) + b))
          != 0)
        break;
    if (taken == 0) {
      rc = amp_tell_info(batch, (int32_t *)amp__data(info), AMP_TROUBLE_CONVERGENCE, c->id);
      if (rc == 0 && vectors) rc = amp_put(found, matrix, true);
      goto out;
    }
    if ((rc = taken) < 0) goto out;
    rc = AMP_E_MEMORY;
    amp__free(matrix);
    matrix = NULL;
  }
  if (!(matrix = amp__cuda_dense(input, type))) goto out;
  rc = amp_by_float(type, [&](auto zero) {
    typedef decltype(zero) T;
    size_t shared;
    unsigned blocks = blocks_of(batch, eigh_room(n, vectors), &mem, &shared);
    if (!blocks) return (int)AMP_E_MEMORY;
    AMP_LAUNCH((eigh<T>), blocks, amp_block_of(n), shared, n, batch, upper, (const T *)amp__data(matrix),
               (T *)amp__data(values), found ? (T *)amp__data(found) : NULL, mem ? (double *)amp__data(mem) : NULL,
               c->id, amp_trouble_cell());
    return 0;
  });
out:
  rc = amp_give(values_out, values, rc);
  if (vectors) rc = amp_give(vectors_out, found, rc);
  amp__free(matrix);
  amp__free(mem);
  amp__free(info);
  return rc;
}

extern "C" int amp__cuda_eigh(amp_call *c) { return eigenvalues(c, AMP_ARGS(c, eigh)->UPLO == UPLO_U, true); }
extern "C" int amp__cuda_eigvalsh(amp_call *c) { return eigenvalues(c, AMP_ARGS(c, eigvalsh)->UPLO == UPLO_U, false); }
