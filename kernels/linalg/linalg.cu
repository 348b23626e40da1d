/*
** linalg.cu: factors of square matrices and what follows from them: cholesky,
** inverse, linear_solve, trisolve, det, slogdet, cofactor.
**
** A factor is one block a matrix, a column at a time; a triangular system is one
** warp a column of its right side. Large matrices go to cuSOLVER where it is
** there. A factor that does not exist is noted in the device's trouble cell and
** raised at the next wait; results then hold whatever came out.
*/
#include "linalg/linalg.cuh"

namespace {

/* -- What failed ----------------------------------------------------------------- */

__global__ void tell(int64_t batch, const int32_t *info, int kind, int op, amp_trouble *cell)
{
  __shared__ unsigned long long first;
  if (threadIdx.x == 0) first = ~0ull;
  __syncthreads();
  unsigned long long mine = ~0ull;
  for (int64_t b = threadIdx.x; b < batch && mine == ~0ull; b += blockDim.x)
    if (info[b] != 0) mine = (unsigned long long)b;
  if (mine != ~0ull) atomicMin(&first, mine);
  __syncthreads();
  if (threadIdx.x == 0 && first != ~0ull)
    amp_note(cell, info[first] < 0 ? AMP_TROUBLE_ARGUMENT : kind, op, info[first], 0, (int64_t)first);
}

/* -- LU ---------------------------------------------------------------------------- */

/* As LAPACK's getrf: piv from 1, zero: the first zero pivot, from 1 (all threads agree) */
template <class T> __device__ int lu_block(int64_t n, T *a, int32_t *piv)
{
  __shared__ int64_t chosen;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  int zero = 0;
  for (int64_t j = 0; j < n; j++) {
    T *col = a + j * n;
    if (warp == 0) {
      T most = 0;
      int64_t at = j;
      for (int64_t i = j + lane; i < n; i += 32) {
        T v = fabs(col[i]);
        if (v > most) {
          most = v;
          at = i;
        }
      }
      for (int d = 16; d > 0; d >>= 1) {
        T v = __shfl_xor_sync(0xffffffffu, most, d);
        int64_t k = __shfl_xor_sync(0xffffffffu, at, d);
        if (v > most || (v == most && k < at)) {
          most = v;
          at = k;
        }
      }
      if (most == 0) at = j;
      if (lane == 0) {
        chosen = at;
        piv[j] = (int32_t)at + 1;
      }
    }
    __syncthreads();
    const int64_t at = chosen;
    if (at != j)
      for (int64_t c = threadIdx.x; c < n; c += blockDim.x) {
        T t = a[j + c * n];
        a[j + c * n] = a[at + c * n];
        a[at + c * n] = t;
      }
    __syncthreads();
    const T p = col[j];
    if (p == 0) {
      if (!zero) zero = (int)j + 1;
      continue;
    }
    const T inv = 1 / p;
    const T low = sizeof(T) == 4
                      ? (T)1.17549435e-38f
                      : (T)2.2250738585072014e-308; /* under it an inverse has lost digits; a denormal pivot has none */
    const bool divide = amp_finite(p) && (!amp_finite(inv) || (inv < low && inv > -low));
    for (int64_t i = j + 1 + threadIdx.x; i < n; i += blockDim.x) col[i] = divide ? col[i] / p : col[i] * inv;
    __syncthreads();
    for (int64_t c = j + 1 + warp; c < n; c += warps) {
      T *other = a + c * n;
      const T f = other[j];
      for (int64_t i = j + 1 + lane; i < n; i += 32) other[i] -= f * col[i];
    }
    __syncthreads();
  }
  return zero;
}

template <class T>
__global__ void __launch_bounds__(1024) lu(int64_t n, int64_t batch, T *a, int32_t *piv, int32_t *info, bool shared)
{
  AMP_SHARED(T, mine);
  for (int64_t b = blockIdx.x; b < batch; b += gridDim.x) {
    T *there = a + b * n * n, *here = shared ? mine : there;
    if (shared) amp_block_copy(here, there, n * n);
    __syncthreads();
    int zero = lu_block(n, here, piv + b * n);
    if (threadIdx.x == 0) info[b] = zero;
    __syncthreads();
    if (shared) amp_block_copy(there, here, n * n);
    __syncthreads();
  }
}

/* -- Triangular systems --------------------------------------------------------------- */

enum { LOWER = 1, UPPER = 2, UNIT_LOWER = 4, UNIT_UPPER = 8, EXCHANGE = 16, EXCHANGE_BACK = 32, UNITY = 64 };

/* One column x of n, by a warp: x <- L^-1 x or U^-1 x */
template <class T>
__device__ __forceinline__ void solve_column(int64_t n, const T *a, bool upper, bool unit, T *x, int lane)
{
  for (int64_t s = 0; s < n; s++) {
    const int64_t j = upper ? n - 1 - s : s;
    const T *col = a + j * n;
    __syncwarp();
    T f = x[j];
    if (!unit) f /= col[j];
    __syncwarp();
    if (!unit && lane == 0) x[j] = f;
    const int64_t from = upper ? 0 : j + 1, to = upper ? j : n;
    for (int64_t i = from + lane; i < to; i += 32) x[i] -= f * col[i];
  }
  __syncwarp();
}

/* Columns of b (n x k) in the order: EXCHANGE, LOWER, UPPER, EXCHANGE_BACK, those that are asked for.
** UNITY: b becomes the unit matrix first. */
template <class T>
__global__ void __launch_bounds__(256)
    solve(int64_t n, int64_t k, int64_t batch, const T *a, const int32_t *piv, T *b, int how)
{
  const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
  for (int64_t c = (int64_t)blockIdx.x * warps + (threadIdx.x >> 5); c < k * batch; c += (int64_t)gridDim.x * warps) {
    const int64_t z = c / k;
    const T *m = a + z * n * n;
    const int32_t *p = piv + z * n;
    T *x = b + c * n;
    if (how & UNITY)
      for (int64_t i = lane; i < n; i += 32) x[i] = i == c - z * k;
    __syncwarp();
    if ((how & EXCHANGE) && lane == 0)
      for (int64_t i = 0; i < n; i++) {
        T t = x[i];
        x[i] = x[p[i] - 1];
        x[p[i] - 1] = t;
      }
    if (how & LOWER) solve_column(n, m, false, (how & UNIT_LOWER) != 0, x, lane);
    if (how & UPPER) solve_column(n, m, true, (how & UNIT_UPPER) != 0, x, lane);
    if ((how & EXCHANGE_BACK) && lane == 0)
      for (int64_t i = n - 1; i >= 0; i--) {
        T t = x[i];
        x[i] = x[p[i] - 1];
        x[p[i] - 1] = t;
      }
    __syncwarp();
  }
}

/* info[b]: the first zero on the diagonal, from 1 */
template <class T> __global__ void zeros(int64_t n, int64_t batch, const T *a, int32_t *info)
{
  const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
  for (int64_t b = (int64_t)blockIdx.x * warps + (threadIdx.x >> 5); b < batch; b += (int64_t)gridDim.x * warps) {
    int first = INT32_MAX;
    for (int64_t i = n - 1 - lane; i >= 0; i -= 32)
      if (a[b * n * n + i * (n + 1)] == 0) first = (int)i + 1;
    first = -amp_reduce_warp<amp_most>(-first);
    if (lane == 0) info[b] = first == INT32_MAX ? 0 : first;
  }
}

/* -- Cholesky ---------------------------------------------------------------------------- */

template <class T> __device__ int cholesky_block(int64_t n, T *a)
{
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  for (int64_t j = 0; j < n; j++) {
    T *col = a + j * n;
    const T p = col[j];
    if (!(p > 0) || !amp_finite(p)) return (int)j + 1;
    const T d = sqrt(p);
    __syncthreads();
    for (int64_t i = j + threadIdx.x; i < n; i += blockDim.x) col[i] = i == j ? d : col[i] / d;
    __syncthreads();
    for (int64_t c = j + 1 + warp; c < n; c += warps) {
      T *other = a + c * n;
      const T f = col[c];
      for (int64_t i = c + lane; i < n; i += 32) other[i] -= f * col[i];
    }
    __syncthreads();
  }
  return 0;
}

template <class T>
__global__ void __launch_bounds__(1024) cholesky(int64_t n, int64_t batch, T *a, int32_t *info, bool shared)
{
  AMP_SHARED(T, mine);
  for (int64_t b = blockIdx.x; b < batch; b += gridDim.x) {
    T *there = a + b * n * n, *here = shared ? mine : there;
    if (shared) amp_block_copy(here, there, n * n);
    __syncthreads();
    int bad = cholesky_block(n, here);
    if (threadIdx.x == 0) info[b] = bad;
    __syncthreads();
    if (shared) amp_block_copy(there, here, n * n);
    __syncthreads();
  }
}

/* Zeros above the diagonal */
template <class T> __global__ void keep_lower(int64_t n, int64_t total, T *a)
{
  AMP_FOR(e, total)
  {
    int64_t at = e % (n * n);
    if (at % n < at / n) a[e] = 0;
  }
}

/* -- Determinants --------------------------------------------------------------------------- */

struct amp_times {
  template <class T> __device__ static T of(T a, T b) { return a * b; }
};

enum { DET, LOGS, COFACTORS };

/* A warp a matrix. COFACTORS: zero pivots become what rounding could have made of them, det goes to wide. */
template <class T>
__global__ void pivots(int64_t n, int64_t batch, T *a, const int32_t *piv, const int32_t *info, int what, T *out,
                       T *log_out, double *wide)
{
  const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
  for (int64_t b = (int64_t)blockIdx.x * warps + (threadIdx.x >> 5); b < batch; b += (int64_t)gridDim.x * warps) {
    T *m = a + b * n * n;
    double most = 0, sign = 1, det = 1, logs = 0;
    if (what == COFACTORS) {
      for (int64_t i = lane; i < n; i += 32) most = fmax(most, fabs((double)m[i * (n + 1)]));
      most = amp_reduce_warp<amp_most>(most);
    }
    for (int64_t i = lane; i < n; i += 32) {
      double u = (double)m[i * (n + 1)];
      if (what == COFACTORS && u == 0) {
        const double eps = sizeof(T) == 8 ? DBL_EPSILON : FLT_EPSILON;
        u = most > 0 ? eps * most : eps;
        m[i * (n + 1)] = (T)u;
        u = (double)(T)u;
      }
      if (piv[b * n + i] != i + 1) sign = -sign;
      if (u < 0) sign = -sign;
      if (u == 0) sign = 0;
      if (u != u) sign = u;
      det *= fabs(u);
      logs += log(fabs(u));
    }
    sign = amp_reduce_warp<amp_times>(sign);
    det = amp_reduce_warp<amp_times>(det) * sign;
    logs = amp_reduce_warp<amp_sum>(logs);
    if (what != COFACTORS && info[b] > 0) {
      sign = det = 0;
      logs = -INFINITY;
    } /* an exact zero, whatever stands after it */
    if (lane == 0) {
      if (what == COFACTORS) wide[b] = det;
      else out[b] = (T)(what == DET ? det : sign);
      if (what == LOGS) log_out[b] = (T)logs;
    }
  }
}

template <class T> __global__ void times(int64_t each, int64_t total, T *a, const double *f)
{
  AMP_FOR(i, total) a[i] = (T)(f[i / each] * (double)a[i]);
}

/* -- Launches ---------------------------------------------------------------------------------- */

/* Factors of a batch of n x n matrices with what belongs to them */
struct factored {
  amp_tensor *a, *mem; /* mem: info (batch), then piv (batch x n) */
  int64_t n, batch;
  int type;
  int32_t *info, *piv;
};

int begin(factored *made, const amp_tensor *input, bool turned)
{
  *made = factored{};
  made->n = amp_rows(input);
  made->batch = amp_batch(input, 2);
  made->type = amp_working(input->dtype);
  if (made->n > INT32_MAX / 2)
    return amp__fail(AMP_E_SHAPE, "matrices of %lld rows are too large for a GPU", (long long)made->n);
  made->a = amp_fresh(input, turned);
  made->mem = amp__cuda_scratch(4 * (size_t)(made->batch * (made->n + 1)));
  if (!made->a || !made->mem) return AMP_E_MEMORY;
  made->info = (int32_t *)amp__data(made->mem);
  made->piv = made->info + made->batch;
  return 0;
}

void end(factored *f)
{
  amp__free(f->a);
  amp__free(f->mem);
}

char *matrix(const amp_tensor *t, int64_t b, int64_t count)
{
  return (char *)amp__data(t) + (size_t)(b * count) * amp__dtype_size[t->dtype];
}

/* by: whether cuSOLVER made the factors */
int factor(factored *made, bool own, bool *by = NULL)
{
  int rc = 1;
  if (!own && amp_to_solver(made->n, 192, made->batch))
    for (int64_t b = 0; b < made->batch; b++)
      if ((rc = amp_solver_said(b, amp__cuda_solver_lu(made->type, made->n, matrix(made->a, b, made->n * made->n),
                                                       made->piv + b * made->n, made->info + b)))
          != 0)
        break;
  if (by) *by = rc == 0;
  if (rc <= 0) return rc;
  return amp_by_float(made->type, [&](auto zero) {
    typedef decltype(zero) T;
    size_t bytes = sizeof(T) * (size_t)(made->n * made->n);
    bool shared = bytes <= AMP_MATRIX_SHARED;
    AMP_LAUNCH((lu<T>), amp_grid(made->batch, 1, 32), amp_block_of(made->n), shared ? bytes : 0, made->n, made->batch,
               (T *)amp__data(made->a), made->piv, made->info, shared);
    return 0;
  });
}

/* b: n x k each */
int systems(const factored *f, const amp_tensor *a, amp_tensor *b, int64_t k, int how)
{
  if (k == 0) return 0;
  return amp_by_float(f->type, [&](auto zero) {
    typedef decltype(zero) T;
    int warps = k * f->batch >= 2048 ? 8 : k * f->batch >= 512 ? 2 : 1; /* few columns: spread over the card */
    AMP_LAUNCH((solve<T>), amp_grid(k * f->batch, warps, 32), 32 * warps, 0, f->n, k, f->batch, (const T *)amp__data(a),
               f->piv, (T *)amp__data(b), how);
    return 0;
  });
}

/* b <- A^-1 b or A^-T b by factors that are or are not cuSOLVER's; own kernels want the transposed factors for the
** latter */
int solve_by(const factored *factors, int op, bool transpose, amp_tensor *right, int64_t k, int unity)
{
  if (!unity && amp_to_solver(factors->n, 192, factors->batch)) {
    int rc = 1;
    amp_tensor *info = amp__cuda_scratch(4 * (size_t)factors->batch);
    int32_t *said = info ? (int32_t *)amp__data(info) : NULL;
    for (int64_t z = 0; z < factors->batch && info; z++)
      if ((rc = amp_solver_said(z, amp__cuda_solver_lu_solve(factors->type, transpose, factors->n, k,
                                                             matrix(factors->a, z, factors->n * factors->n),
                                                             factors->piv + z * factors->n,
                                                             matrix(right, z, factors->n * k), said + z)))
          != 0)
        break;
    if (rc == 0) rc = amp_tell_info(factors->batch, said, AMP_TROUBLE_SINGULAR, op);
    amp__free(info);
    if (rc <= 0) return rc;
  }
  if (!transpose) return systems(factors, factors->a, right, k, EXCHANGE | LOWER | UNIT_LOWER | UPPER | unity);
  amp_tensor *t = amp_fresh(factors->a, true);
  int rc = t ? systems(factors, t, right, k, LOWER | UPPER | UNIT_UPPER | EXCHANGE_BACK | unity) : AMP_E_MEMORY;
  amp__free(t);
  return rc;
}

/* det, slogdet, and the determinants of cofactor */
int determinants(factored *f, int what, amp_tensor *out, amp_tensor *logs, double *wide)
{
  return amp_by_float(f->type, [&](auto zero) {
    typedef decltype(zero) T;
    AMP_LAUNCH((pivots<T>), amp_grid(f->batch, 4, 16), 128, 0, f->n, f->batch, (T *)amp__data(f->a), f->piv, f->info,
               what, out ? (T *)amp__data(out) : NULL, logs ? (T *)amp__data(logs) : NULL, wide);
    return 0;
  });
}

int by_pivots(amp_call *c, bool logs)
{
  factored factors;
  amp_tensor *o = c->out[0], *l = logs ? c->out[1] : NULL, *to = NULL, *tl = NULL;
  if (o->numel == 0) return 0;
  int rc = begin(&factors, c->in[0], false);
  if (rc < 0) goto out;
  rc = AMP_E_MEMORY;
  if (!(to = amp_take(o, factors.type)) || (logs && !(tl = amp_take(l, factors.type)))) goto out;
  if ((rc = factor(&factors, false)) == 0) rc = determinants(&factors, logs ? LOGS : DET, to, tl, NULL);
out:
  rc = amp_give(o, to, rc);
  if (l) rc = amp_give(l, tl, rc);
  end(&factors);
  return rc;
}

} // namespace

int amp_tell_info(int64_t batch, const int32_t *info, int kind, int op)
{
  AMP_LAUNCH((tell), 1, batch < 32 ? 32 : 256, 0, batch, info, kind, op, amp_trouble_cell());
  return 0;
}

/* -- Rows ------------------------------------------------------------------------------------------ */

extern "C" int amp__cuda_cholesky(amp_call *c) /* upper */
{
  factored factors;
  bool upper = AMP_ARGS(c, cholesky)->upper != 0;
  if (c->out[0]->numel == 0) return 0;
  int rc = begin(&factors, c->in[0], !upper), taken = 1;
  if (rc < 0) goto out;
  if (amp_to_solver(factors.n, 128, factors.batch))
    for (int64_t b = 0; b < factors.batch; b++)
      if ((taken = amp_solver_said(b, amp__cuda_solver_cholesky(factors.type, factors.n,
                                                                matrix(factors.a, b, factors.n * factors.n),
                                                                factors.info + b)))
          != 0)
        break;
  if ((rc = taken) < 0) goto out;
  rc = amp_by_float(factors.type, [&](auto zero) {
    typedef decltype(zero) T;
    size_t bytes = sizeof(T) * (size_t)(factors.n * factors.n);
    bool shared = bytes <= AMP_MATRIX_SHARED;
    T *a = (T *)amp__data(factors.a);
    if (taken)
      AMP_LAUNCH((cholesky<T>), amp_grid(factors.batch, 1, 32), amp_block_of(factors.n), shared ? bytes : 0, factors.n,
                 factors.batch, a, factors.info, shared);
    AMP_LAUNCH((keep_lower<T>), amp_grid(factors.a->numel, 256), 256, 0, factors.n, factors.a->numel, a);
    return 0;
  });
  if (rc == 0) rc = amp_tell_info(factors.batch, factors.info, AMP_TROUBLE_NOT_POSITIVE, c->id);
  if (rc == 0) rc = amp_put(c->out[0], factors.a, !upper);
out:
  end(&factors);
  return rc;
}

/* In C order a matrix is seen transposed, and so is its inverse */
extern "C" int amp__cuda_inverse(amp_call *c)
{
  factored factors;
  amp_tensor *result = c->out[0], *x = NULL;
  bool by = false;
  if (result->numel == 0) return 0;
  int rc = begin(&factors, c->in[0], false);
  if (rc < 0) goto out;
  rc = AMP_E_MEMORY;
  if (!(x = amp_take(result, factors.type))) goto out;
  if ((rc = factor(&factors, false, &by)) < 0
      || (rc = amp_tell_info(factors.batch, factors.info, AMP_TROUBLE_SINGULAR, c->id)) < 0)
    goto out;
  if (by) { /* by the library with a unit matrix that is written first: no steps of own ones */
    rc = systems(&factors, factors.a, x, factors.n, UNITY);
    if (rc == 0) rc = solve_by(&factors, c->id, false, x, factors.n, 0);
  } else rc = solve_by(&factors, c->id, false, x, factors.n, UNITY);
out:
  rc = amp_give(result, x, rc);
  end(&factors);
  return rc;
}

extern "C" int amp__cuda_linear_solve(amp_call *c) /* adjoint */
{
  factored factors;
  amp_tensor *o = c->out[0], *x = NULL;
  if (o->numel == 0 && c->in[0]->numel == 0) return 0;
  int rc = begin(&factors, c->in[0], false);
  if (rc < 0) goto out;
  rc = AMP_E_MEMORY;
  if (!(x = amp_fresh(c->in[1], true))) goto out;
  if ((rc = factor(&factors, false)) < 0
      || (rc = amp_tell_info(factors.batch, factors.info, AMP_TROUBLE_SINGULAR, c->id)) < 0)
    goto out;
  if ((rc = solve_by(&factors, c->id, AMP_ARGS(c, linear_solve)->adjoint == 0, x, amp_cols(o), 0)) == 0)
    rc = amp_put(o, x, true);
out:
  amp__free(x);
  end(&factors);
  return rc;
}

extern "C" int amp__cuda_trisolve(amp_call *c) /* upper transpose unitriangular */
{
  const args_trisolve *args = AMP_ARGS(c, trisolve);
  factored factors;
  amp_tensor *result = c->out[0], *x = NULL;
  bool upper = args->upper != 0, transpose = args->transpose != 0, unit = args->unitriangular != 0;
  if (c->in[0]->numel == 0) return 0;
  int rc = begin(&factors, c->in[0], !transpose);
  if (rc < 0) goto out;
  rc = AMP_E_MEMORY;
  if (!(x = amp_fresh(c->in[1], true))) goto out;
  rc = unit ? 0 : amp_by_float(factors.type, [&](auto zero) {
    typedef decltype(zero) T;
    AMP_LAUNCH((zeros<T>), amp_grid(factors.batch, 4, 16), 128, 0, factors.n, factors.batch,
               (const T *)amp__data(factors.a), factors.info);
    return amp_tell_info(factors.batch, factors.info, AMP_TROUBLE_SINGULAR, c->id);
  });
  if (rc == 0)
    rc = systems(&factors, factors.a, x, amp_cols(result),
                 (upper != transpose ? UPPER : LOWER) | (unit ? UNIT_LOWER | UNIT_UPPER : 0));
  if (rc == 0) rc = amp_put(result, x, true);
out:
  amp__free(x);
  end(&factors);
  return rc;
}

extern "C" int amp__cuda_det(amp_call *c) { return by_pivots(c, false); }
extern "C" int amp__cuda_slogdet(amp_call *c) { return by_pivots(c, true); }

/* det(A) A^-T: the inverse of the matrix as it stands in memory is A^-T column by column */
extern "C" int amp__cuda_cofactor(amp_call *c)
{
  factored factors;
  amp_tensor *result = c->out[0], *x = NULL, *det = NULL;
  if (result->numel == 0) return 0;
  int rc = begin(&factors, c->in[0], false);
  if (rc < 0) goto out;
  rc = AMP_E_MEMORY;
  if (!(x = amp__cuda_make(factors.type, result->ndim, result->size))
      || !(det = amp__cuda_scratch(sizeof(double) * (size_t)factors.batch)))
    goto out;
  if ((rc = factor(&factors, true)) < 0
      || (rc = determinants(&factors, COFACTORS, NULL, NULL, (double *)amp__data(det))) < 0)
    goto out;
  if ((rc = solve_by(&factors, c->id, false, x, factors.n, UNITY)) < 0) goto out;
  rc = amp_by_float(factors.type, [&](auto zero) {
    typedef decltype(zero) T;
    AMP_LAUNCH((times<T>), amp_grid(x->numel, 256), 256, 0, factors.n * factors.n, x->numel, (T *)amp__data(x),
               (const double *)amp__data(det));
    return 0;
  });
  if (rc == 0) rc = amp_put(result, x, true);
out:
  amp__free(x);
  amp__free(det);
  end(&factors);
  return rc;
}
