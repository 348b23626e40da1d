/*
** im2col.cu: rows im2col and col2im: windows of an image as columns, and columns
** added back into an image. A thread an element of the result; col2im asks which
** windows an element lies in, so results repeat.
**
** Columns are as many times larger than the image as a window has elements: writing them bounds im2col, reading them
** col2im. Nothing lies in shared memory.
*/
#include "common/kernel.cuh"

namespace {

struct columns {
  char *image, *col;
  int32_t dtype;
  int32_t k[2], d[2], p[2], s[2], size[2], out[2];
  int64_t n, c, is[4], cs[3]; /* strides: image N C H W; columns N, row, window */
};

template <class B> __global__ void __launch_bounds__(256) to_columns(const columns job, int64_t total)
{
  AMP_FOR(i, total)
  {
    int64_t q = i;
    int x = (int)(q % job.out[1]);
    q /= job.out[1];
    int y = (int)(q % job.out[0]);
    q /= job.out[0];
    int b = (int)(q % job.k[1]);
    q /= job.k[1];
    int a = (int)(q % job.k[0]);
    q /= job.k[0];
    int64_t c = q % job.c, n = q / job.c, row = (c * job.k[0] + a) * job.k[1] + b;
    int64_t h = (int64_t)y * job.s[0] - job.p[0] + (int64_t)a * job.d[0],
            w = (int64_t)x * job.s[1] - job.p[1] + (int64_t)b * job.d[1];
    B t = 0;
    if (h >= 0 && h < job.size[0] && w >= 0 && w < job.size[1])
      t = ((const B *)job.image)[n * job.is[0] + c * job.is[1] + h * job.is[2] + w * job.is[3]];
    ((B *)job.col)[n * job.cs[0] + row * job.cs[1] + ((int64_t)y * job.out[1] + x) * job.cs[2]] = t;
  }
}

/* Window o whose tap t reaches place i, or -1 */
__device__ __forceinline__ int window(const columns &job, int d, int i, int t)
{
  int64_t at = (int64_t)i + job.p[d] - (int64_t)t * job.d[d];
  if (at < 0 || at % job.s[d]) return -1;
  at /= job.s[d];
  return at < job.out[d] ? (int)at : -1;
}

template <class T> __global__ void __launch_bounds__(256) to_image(const columns job, int64_t total)
{
  AMP_FOR(i, total)
  {
    int64_t q = i;
    int column = (int)(q % job.size[1]);
    q /= job.size[1];
    int row = (int)(q % job.size[0]);
    q /= job.size[0];
    int64_t c = q % job.c, n = q / job.c;
    T sum = 0;
    for (int a = 0; a < job.k[0]; a++) {
      int y = window(job, 0, row, a);
      if (y < 0) continue;
      for (int b = 0; b < job.k[1]; b++) {
        int x = window(job, 1, column, b);
        if (x >= 0)
          sum += amp_load<T>(job.col, job.dtype,
                             n * job.cs[0] + ((c * job.k[0] + a) * job.k[1] + b) * job.cs[1]
                                 + ((int64_t)y * job.out[1] + x) * job.cs[2]);
      }
    }
    amp_store<T>(job.image, job.dtype, n * job.is[0] + c * job.is[1] + row * job.is[2] + column * job.is[3], sum);
  }
}

/* args: of either row; an image or columns without N are those of one sample */
template <class ARGS> static columns columns_of(const ARGS *args, const amp_tensor *image, const amp_tensor *col)
{
  columns job;
  memset((void *)&job, 0, sizeof job);
  int m = image->ndim;
  job.image = (char *)amp__data(image);
  job.col = (char *)amp__data(col);
  job.dtype = image->dtype;
  job.n = m == 4 ? image->size[0] : 1;
  job.c = image->size[m - 3];
  for (int i = 0; i < m; i++) job.is[4 - m + i] = image->stride[i];
  for (int i = 0; i < col->ndim; i++) job.cs[3 - col->ndim + i] = col->stride[i];
  for (int i = 0; i < 2; i++) {
    const int64_t reach = args->dilation[i] * (args->kernel_size[i] - 1) + 1;
    job.k[i] = (int32_t)args->kernel_size[i];
    job.d[i] = (int32_t)args->dilation[i];
    job.p[i] = (int32_t)args->padding[i];
    job.s[i] = (int32_t)args->stride[i];
    job.size[i] = (int32_t)image->size[m - 2 + i];
    job.out[i] = (int32_t)((image->size[m - 2 + i] + 2 * args->padding[i] - reach) / args->stride[i] + 1);
  }
  return job;
}

} // namespace

static_assert(AMP_DTYPE_COUNT == 12, "floats have 2, 4 or 8 bytes");

extern "C" {

int amp__cuda_im2col(amp_call *c)
{
  int64_t n = c->out[0]->numel;
  if (n == 0) return 0;
  columns job = columns_of(AMP_ARGS(c, im2col), c->in[0], c->out[0]);
  switch (amp__dtype_size[job.dtype]) {
  case 2: AMP_LAUNCH((to_columns<uint16_t>), amp_grid(n, 256, 32), 256, 0, job, n); break;
  case 4: AMP_LAUNCH((to_columns<uint32_t>), amp_grid(n, 256, 32), 256, 0, job, n); break;
  default: AMP_LAUNCH((to_columns<uint64_t>), amp_grid(n, 256, 32), 256, 0, job, n);
  }
  return 0;
}

int amp__cuda_col2im(amp_call *c)
{
  int64_t n = c->out[0]->numel;
  if (n == 0) return 0;
  columns job = columns_of(AMP_ARGS(c, col2im), c->out[0], c->in[0]);
  if (job.dtype == AMP_FLOAT64) AMP_LAUNCH((to_image<double>), amp_grid(n, 256, 32), 256, 0, job, n);
  else AMP_LAUNCH((to_image<float>), amp_grid(n, 256, 32), 256, 0, job, n);
  return 0;
}
}
