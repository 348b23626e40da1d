/*
** im2col.cu: rows im2col and col2im: windows of an image as columns, and columns
** added back into an image. A thread an element of the result; col2im asks which
** windows an element lies in, so results repeat.
*/
#include "kernel.cuh"

namespace {

struct columns {
  char *image, *col;
  int32_t dtype;
  int32_t k[2], d[2], p[2], s[2], size[2], out[2];
  int64_t n, c, is[4], cs[3];  /* strides: image N C H W; columns N, row, window */
};

template <class B> __global__ void __launch_bounds__(256) to_columns(const columns v, int64_t total)
{
  AMP_FOR(i, total) {
    int64_t q = i;
    int x = (int)(q % v.out[1]);
    q /= v.out[1];
    int y = (int)(q % v.out[0]);
    q /= v.out[0];
    int b = (int)(q % v.k[1]);
    q /= v.k[1];
    int a = (int)(q % v.k[0]);
    q /= v.k[0];
    int64_t c = q % v.c, n = q / v.c, row = (c * v.k[0] + a) * v.k[1] + b;
    int64_t h = (int64_t)y * v.s[0] - v.p[0] + (int64_t)a * v.d[0], w = (int64_t)x * v.s[1] - v.p[1] + (int64_t)b * v.d[1];
    B t = 0;
    if (h >= 0 && h < v.size[0] && w >= 0 && w < v.size[1]) t = ((const B *)v.image)[n * v.is[0] + c * v.is[1] + h * v.is[2] + w * v.is[3]];
    ((B *)v.col)[n * v.cs[0] + row * v.cs[1] + ((int64_t)y * v.out[1] + x) * v.cs[2]] = t;
  }
}

/* Window o whose tap t reaches place i, or -1 */
__device__ __forceinline__ int window(const columns &v, int d, int i, int t)
{
  int64_t at = (int64_t)i + v.p[d] - (int64_t)t * v.d[d];
  if (at < 0 || at % v.s[d]) return -1;
  at /= v.s[d];
  return at < v.out[d] ? (int)at : -1;
}

template <class T> __global__ void __launch_bounds__(256) to_image(const columns v, int64_t total)
{
  AMP_FOR(i, total) {
    int64_t q = i;
    int w = (int)(q % v.size[1]);
    q /= v.size[1];
    int h = (int)(q % v.size[0]);
    q /= v.size[0];
    int64_t c = q % v.c, n = q / v.c;
    T sum = 0;
    for (int a = 0; a < v.k[0]; a++) {
      int y = window(v, 0, h, a);
      if (y < 0) continue;
      for (int b = 0; b < v.k[1]; b++) {
        int x = window(v, 1, w, b);
        if (x >= 0) sum += amp_load<T>(v.col, v.dtype, n * v.cs[0] + ((c * v.k[0] + a) * v.k[1] + b) * v.cs[1] + ((int64_t)y * v.out[1] + x) * v.cs[2]);
      }
    }
    amp_store<T>(v.image, v.dtype, n * v.is[0] + c * v.is[1] + h * v.is[2] + w * v.is[3], sum);
  }
}

/* a: kernel_size, dilation, padding, stride; an image or columns without N are those of one sample */
static columns columns_of(const amp_slot *a, const amp_tensor *image, const amp_tensor *col)
{
  columns v;
  memset((void *)&v, 0, sizeof v);
  int m = image->ndim;
  v.image = (char *)amp__data(image);
  v.col = (char *)amp__data(col);
  v.dtype = image->dtype;
  v.n = m == 4 ? image->size[0] : 1;
  v.c = image->size[m - 3];
  for (int i = 0; i < m; i++) v.is[4 - m + i] = image->stride[i];
  for (int i = 0; i < col->ndim; i++) v.cs[3 - col->ndim + i] = col->stride[i];
  for (int i = 0; i < 2; i++) {
    v.k[i] = (int32_t)a[i].i;
    v.d[i] = (int32_t)a[2 + i].i;
    v.p[i] = (int32_t)a[4 + i].i;
    v.s[i] = (int32_t)a[6 + i].i;
    v.size[i] = (int32_t)image->size[m - 2 + i];
    v.out[i] = (int32_t)((image->size[m - 2 + i] + 2 * a[4 + i].i - a[2 + i].i * (a[i].i - 1) - 1) / a[6 + i].i + 1);
  }
  return v;
}

} // namespace

extern "C" {

int amp__cuda_im2col(amp_call *c)
{
  int64_t n = c->out[0]->numel;
  if (n == 0) return 0;
  columns v = columns_of(c->a, c->in[0], c->out[0]);
  switch (amp__dtype_size[v.dtype]) {
  case 2: AMP_LAUNCH((to_columns<uint16_t>), amp_grid(n, 256, 32), 256, 0, v, n); break;
  case 4: AMP_LAUNCH((to_columns<uint32_t>), amp_grid(n, 256, 32), 256, 0, v, n); break;
  default: AMP_LAUNCH((to_columns<uint64_t>), amp_grid(n, 256, 32), 256, 0, v, n);
  }
  return 0;
}

int amp__cuda_col2im(amp_call *c)
{
  int64_t n = c->out[0]->numel;
  if (n == 0) return 0;
  columns v = columns_of(c->a + 2, c->out[0], c->in[0]);
  if (v.dtype == AMP_FLOAT64) AMP_LAUNCH((to_image<double>), amp_grid(n, 256, 32), 256, 0, v, n);
  else AMP_LAUNCH((to_image<float>), amp_grid(n, 256, 32), 256, 0, v, n);
  return 0;
}

}
