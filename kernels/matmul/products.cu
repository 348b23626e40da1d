/*
** products.cu: rows cross and addr, products without a sum over more than two.
** The two products of a component of cross are rounded alike, so a x a is 0.
*/
#include "elementwise/elementwise.cuh"

namespace {

__device__ __forceinline__ float minor(float a, float b, float c, float d) { return __fmul_rn(a, b) - __fmul_rn(c, d); }
__device__ __forceinline__ double minor(double a, double b, double c, double d)
{
  return __dmul_rn(a, b) - __dmul_rn(c, d);
}
__device__ __forceinline__ int64_t minor(int64_t a, int64_t b, int64_t c, int64_t d)
{
  return (int64_t)((uint64_t)a * (uint64_t)b - (uint64_t)c * (uint64_t)d);
}

/* A thread a vector; strides of a and b are those of the result's shape, dimension dim apart */
struct vectors {
  amp_arg o, a, b;
  int64_t n, so, sa, sb;
};

template <class T> __global__ void __launch_bounds__(256) cross(const vectors job)
{
  AMP_FOR(j, job.n)
  {
    int64_t i = j, at_out = 0, at_a = 0, at_b = 0;
    for (int d = job.o.ndim - 1; d >= 0; d--) {
      int64_t q = i / job.o.size[d], r = i - q * job.o.size[d];
      at_out += r * job.o.stride[d];
      at_a += r * job.a.stride[d];
      at_b += r * job.b.stride[d];
      i = q;
    }
    T x[3], y[3];
#pragma unroll
    for (int k = 0; k < 3; k++) {
      x[k] = amp_load<T>(job.a.p, job.a.dtype, at_a + k * job.sa);
      y[k] = amp_load<T>(job.b.p, job.b.dtype, at_b + k * job.sb);
    }
#pragma unroll
    for (int k = 0; k < 3; k++) {
      int p = (k + 1) % 3, q = (k + 2) % 3;
      amp_store<T>(job.o.p, job.o.dtype, at_out + k * job.so, minor(x[p], y[q], x[q], y[p]));
    }
  }
}

static amp_arg without(const amp_tensor *t, const amp_tensor *shape, int dim, int64_t *step)
{
  amp_arg a = amp_arg_of(t);
  int64_t stride[AMP_MAX_DIM];
  amp_ew_strides(t, shape, stride);
  *step = stride[dim];
  a.ndim = shape->ndim - 1;
  for (int d = 0, k = 0; d < shape->ndim; d++) {
    if (d == dim) continue;
    a.size[k] = shape->size[d];
    a.stride[k++] = stride[d];
  }
  return a;
}

/* beta * input + alpha * vec1 * vec2; beta 0 leaves input out, whatever it holds */
template <class T> struct outer {
  enum { flat = 0 };
  T beta, alpha;
  __device__ __forceinline__ T of(const T *a) const
  {
    return beta == 0 ? alpha * a[1] * a[2] : beta * a[0] + alpha * a[1] * a[2];
  }
};
template <> struct outer<int64_t> {
  enum { flat = 0 };
  int64_t beta, alpha;
  __device__ __forceinline__ int64_t of(const int64_t *a) const
  {
    uint64_t p = (uint64_t)alpha * (uint64_t)a[1] * (uint64_t)a[2];
    return (int64_t)(beta == 0 ? p : (uint64_t)beta * (uint64_t)a[0] + p);
  }
};

} // namespace

extern "C" {

int amp__cuda_cross(amp_call *c)
{
  amp_tensor *out = c->out[0];
  int dim = (int)AMP_ARGS(c, cross)->dim, cls = amp_ew_class(out->dtype, c->in, 2);
  vectors job;
  if (out->numel == 0) return 0;
  memset((void *)&job, 0, sizeof job);
  job.n = out->numel / 3;
  job.o = without(out, out, dim, &job.so);
  job.a = without(c->in[0], out, dim, &job.sa);
  job.b = without(c->in[1], out, dim, &job.sb);
  if (cls == AMP_EW_F64) AMP_LAUNCH((cross<double>), amp_grid(job.n, 256, 32), 256, 0, job);
  else if (cls == AMP_EW_I64) AMP_LAUNCH((cross<int64_t>), amp_grid(job.n, 256, 32), 256, 0, job);
  else AMP_LAUNCH((cross<float>), amp_grid(job.n, 256, 32), 256, 0, job);
  return 0;
}

int amp__cuda_addr(amp_call *c)
{
  const args_addr *args = AMP_ARGS(c, addr);
  amp_tensor *out = c->out[0];
  double beta = args->beta, alpha = args->alpha;
  int64_t size[2] = { c->in[1]->size[0], 1 }, stride[2] = { c->in[1]->stride[0], 0 };
  int cls = amp_ew_class_of_dtype(out->dtype), rc;
  amp_tensor *column = amp__tensor_view(c->in[1], 2, size, stride, c->in[1]->offset);
  if (column == NULL) return AMP_E_MEMORY;
  amp_tensor *in[3] = { c->in[0], column, c->in[2] };
  if (cls == AMP_EW_F64) rc = amp_ew_run<double, double, 3>(out, in, outer<double>{ beta, alpha });
  else if (cls == AMP_EW_I64)
    rc = amp_ew_run<int64_t, int64_t, 3>(out, in, outer<int64_t>{ (int64_t)beta, (int64_t)alpha });
  else rc = amp_ew_run<float, float, 3>(out, in, outer<float>{ (float)beta, (float)alpha });
  amp__free(column);
  return rc;
}
}
