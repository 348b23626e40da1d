/*
** linalg_qr.cu: row qr, by Householder's reflections H = I - tau v v^T, v(0) = 1.
**
** A block factors a matrix: the length of a column by all of it, then each other
** column by a warp. The columns of Q are then independent of each other, a warp
** each. Large matrices go to cuSOLVER.
*/
#include "linalg/linalg.cuh"

namespace {

/* Length of n elements, by a block */
template <class T> __device__ double length(const T *x, int64_t n)
{
  double s = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) s += (double)x[i] * (double)x[i];
  s = amp_reduce_block<amp_sum>(s, 0.0);
  if ((s > 1e-290 && s < 1e300) || s != s || sizeof(T) == 4) return sqrt(s);
  double most = 0; /* squares too large or too small for double */
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) most = fmax(most, fabs((double)x[i]));
  most = amp_reduce_block<amp_most>(most, 0.0);
  if (most == 0 || !amp_finite(most)) return most;
  s = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    double v = (double)x[i] / most;
    s += v * v;
  }
  return most * sqrt(amp_reduce_block<amp_sum>(s, 0.0));
}

/* c <- H c, by a warp; v without its leading 1 */
template <class T> __device__ __forceinline__ void reflect(const T *v, T tau, T *c, int64_t n, int lane)
{
  T s = 0;
  for (int64_t i = lane; i < n; i += 32) s += i == 0 ? c[0] : v[i] * c[i];
  s = tau * amp_reduce_warp<amp_sum>(s);
  for (int64_t i = lane; i < n; i += 32) c[i] -= i == 0 ? s : s * v[i];
  __syncwarp();
}

template <class T>
__global__ void __launch_bounds__(1024) qr(int64_t m, int64_t n, int64_t batch, T *all, T *taus, bool shared)
{
  AMP_SHARED(T, mine);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  const int64_t r = m < n ? m : n;
  for (int64_t b = blockIdx.x; b < batch; b += gridDim.x) {
    T *there = all + b * m * n, *a = shared ? mine : there;
    if (shared) amp_block_copy(a, there, m * n);
    __syncthreads();
    for (int64_t k = 0; k < r; k++) {
      T *v = a + k + k * m;
      const T rest = (T)length(v + 1, m - k - 1), alpha = v[0];
      if (rest == 0) { /* the same in all threads */
        if (threadIdx.x == 0) taus[b * r + k] = 0;
        continue;
      }
      const T root = (T)hypot((double)alpha, (double)rest), beta = alpha > 0 ? -root : root,
              tau = (beta - alpha) / beta;
      for (int64_t i = 1 + threadIdx.x; i < m - k; i += blockDim.x) v[i] /= alpha - beta;
      __syncthreads();
      if (threadIdx.x == 0) {
        v[0] = beta;
        taus[b * r + k] = tau;
      }
      for (int64_t j = k + 1 + warp; j < n; j += warps) reflect(v, tau, a + k + j * m, m - k, lane);
      __syncthreads();
    }
    __syncthreads();
    if (shared) amp_block_copy(there, a, m * n);
    __syncthreads();
  }
}

/* Columns of Q, m x nq: the unit vectors reflected, a warp each */
template <class T>
__global__ void __launch_bounds__(128)
    form(int64_t m, int64_t n, int64_t nq, int64_t batch, const T *a, const T *taus, T *q)
{
  const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
  const int64_t r = m < n ? m : n;
  for (int64_t c = (int64_t)blockIdx.x * warps + (threadIdx.x >> 5); c < nq * batch; c += (int64_t)gridDim.x * warps) {
    const int64_t b = c / nq, j = c - b * nq;
    const T *v = a + b * m * n, *tau = taus + b * r;
    T *x = q + c * m;
    for (int64_t i = lane; i < m; i += 32) x[i] = i == j;
    __syncwarp();
    for (int64_t k = j < r ? j : r - 1; k >= 0; k--)
      if (tau[k] != 0) reflect(v + k + k * m, tau[k], x + k, m - k, lane);
  }
}

template <class T> __global__ void keep_upper(int64_t m, int64_t n, int64_t total, T *a)
{
  AMP_FOR(e, total)
  {
    int64_t at = e % (m * n);
    if (at % m > at / m) a[e] = 0;
  }
}

/* dst (its matrices turned) <- the first columns of made's */
int put_part(amp_tensor *dst, amp_tensor *made, int64_t cols)
{
  amp_tensor *to = amp_turned(dst), *from = NULL;
  int64_t size[AMP_MAX_DIM];
  int rc = AMP_E_MEMORY;
  for (int d = 0; d < made->ndim; d++) size[d] = made->size[d];
  size[made->ndim - 1] = cols;
  if (to && (from = amp__tensor_view(made, made->ndim, size, made->stride, made->offset)))
    rc = amp__cuda_copy_to(to, from);
  amp__free(to);
  amp__free(from);
  return rc;
}

} // namespace

extern "C" int amp__cuda_qr(amp_call *c)
{
  amp_tensor *t = c->in[0], *q_out = c->out[0], *r_out = c->out[1];
  int64_t m = amp_rows(t), n = amp_cols(t), nq = amp_cols(q_out), r = m < n ? m : n, batch = amp_batch(t, 2),
          size[AMP_MAX_DIM];
  int type = amp_working(t->dtype), rc = AMP_E_MEMORY;
  amp_tensor *a = NULL, *q = NULL, *tau = NULL, *info = NULL;
  if (q_out->numel == 0 && r_out->numel == 0) return 0;
  for (int d = 0; d < t->ndim; d++) size[d] = t->size[d];
  size[t->ndim - 2] = nq;
  size[t->ndim - 1] = m;
  if (!(a = amp_fresh(t, true)) || !(q = amp__cuda_make(type, t->ndim, size))
      || !(tau = amp__cuda_scratch((size_t)(batch * r) * amp__dtype_size[type])))
    goto out;
  rc = 1;
  if (r > 0 && m <= 32000 && amp_to_solver(n, 128, batch) && (info = amp__cuda_scratch(8 * (size_t)batch)))
    for (int64_t b = 0; b < batch; b++) {
      size_t each = amp__dtype_size[type];
      if ((rc
           = amp_solver_said(b, amp__cuda_solver_qr(type, m, n, nq, (char *)amp__data(a) + each * (size_t)(b * m * n),
                                                    (char *)amp__data(q) + each * (size_t)(b * m * nq),
                                                    (int32_t *)amp__data(info) + 2 * b)))
          != 0)
        break;
    }
  if (rc == 0) rc = amp_tell_info(2 * batch, (int32_t *)amp__data(info), AMP_TROUBLE_CONVERGENCE, c->id);
  if (rc < 0) goto out;
  amp_by_float(type, [&](auto zero) {
    typedef decltype(zero) T;
    size_t bytes = sizeof(T) * (size_t)(m * n);
    bool shared = bytes <= AMP_MATRIX_SHARED;
    T *x = (T *)amp__data(a), *f = (T *)amp__data(tau);
    if (rc == 1) {
      AMP_LAUNCH((qr<T>), amp_grid(batch, 1, 32), amp_block_of(n < m ? m : n), shared ? bytes : 0, m, n, batch, x, f,
                 shared);
      AMP_LAUNCH((form<T>), amp_grid(nq * batch, 4, 32), 128, 0, m, n, nq, batch, (const T *)x, (const T *)f,
                 (T *)amp__data(q));
    }
    AMP_LAUNCH((keep_upper<T>), amp_grid(a->numel, 256), 256, 0, m, n, a->numel, x);
    return 0;
  });
  rc = amp_put(q_out, q, true);
  if (rc == 0) rc = put_part(r_out, a, nq);
out:
  amp__free(a);
  amp__free(q);
  amp__free(tau);
  amp__free(info);
  return rc;
}
