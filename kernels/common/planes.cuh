/*
** planes.cuh: images for the kernels of pooling, resampling and grids: sizes and
** strides as N C D H W whatever the rank is (what is missing has one element),
** and walks over all elements in the order in which they lie: planes, or, with
** channels beside each other, pixels.
*/
#ifndef AMP_PLANES_CUH
#define AMP_PLANES_CUH
#include "common/kernel.cuh"

struct planes {
  char *p;
  int32_t dtype, last; /* last: channels lie beside each other */
  int64_t n, c, numel;
  int32_t size[3];
  int64_t stride[5];
};

struct spot {
  int64_t n, c;
  int z, y, x;
};

static inline planes planes_of(const amp_tensor *t, int spatial)
{
  planes v;
  int c = t->ndim - spatial - 1;
  memset((void *)&v, 0, sizeof v);
  v.p = (char *)amp__data(t);
  v.dtype = t->dtype;
  v.numel = t->numel;
  v.n = c > 0 ? t->size[0] : 1;
  v.c = t->size[c];
  v.stride[0] = c > 0 ? t->stride[0] : 0;
  v.stride[1] = t->stride[c];
  for (int i = 0; i < 3; i++) {
    int d = t->ndim - 3 + i;
    v.size[i] = i < 3 - spatial ? 1 : (int32_t)t->size[d];
    v.stride[2 + i] = i < 3 - spatial ? 0 : t->stride[d];
  }
  v.last = v.c > 1 && v.stride[1] == 1;
  return v;
}

/* Element i, in the order in which v's lie */
template <class I> __device__ __forceinline__ spot planes_split(const planes &v, I i)
{
  spot s;
  I c = 0, q, n = (I)v.c;
  if (v.last) {
    q = i / n;
    c = i - q * n;
    i = q;
  }
  q = i / (I)v.size[2];
  s.x = (int)(i - q * (I)v.size[2]);
  i = q / (I)v.size[1];
  s.y = (int)(q - i * (I)v.size[1]);
  q = i / (I)v.size[0];
  s.z = (int)(i - q * (I)v.size[0]);
  if (!v.last) {
    i = q / n;
    c = q - i * n;
    q = i;
  }
  s.n = (int64_t)q;
  s.c = (int64_t)c;
  return s;
}
__device__ __forceinline__ spot planes_spot(const planes &v, int64_t i)
{
  return v.numel < ((int64_t)1 << 31) ? planes_split<uint32_t>(v, (uint32_t)i) : planes_split<int64_t>(v, i);
}
__device__ __forceinline__ int64_t planes_channel(const planes &v, int64_t n, int64_t c)
{
  return n * v.stride[0] + c * v.stride[1];
}
__device__ __forceinline__ int64_t planes_pixel(const planes &v, int z, int y, int x)
{
  return z * v.stride[2] + y * v.stride[3] + x * v.stride[4];
}
__device__ __forceinline__ int64_t planes_at(const planes &v, const spot &s)
{
  return planes_channel(v, s.n, s.c) + planes_pixel(v, s.z, s.y, s.x);
}
/* Place k (from 0) of a flattened plane */
__device__ __forceinline__ int64_t planes_place(const planes &v, int k)
{
  unsigned w = (unsigned)v.size[2], h = (unsigned)v.size[1], r = (unsigned)k / w, x = (unsigned)k - r * w, z = r / h,
           y = r - z * h;
  return planes_pixel(v, (int)z, (int)y, (int)x);
}

static inline int planes_check(const planes &v)
{
  double n = (double)v.size[0] * v.size[1] * v.size[2];
  return n <= INT32_MAX ? 0 : amp__fail(AMP_E_UNSUPPORTED, "planes of more than %d elements", INT32_MAX);
}

/* Elements of floats: T double is for float64, float for the others */
__device__ __forceinline__ double planes_load(double, const void *p, int, int64_t i) { return ((const double *)p)[i]; }
__device__ __forceinline__ float planes_load(float, const void *p, int dtype, int64_t i)
{
  if (dtype == AMP_FLOAT32) return ((const float *)p)[i];
  uint16_t h = ((const uint16_t *)p)[i];
  return dtype == AMP_FLOAT16 ? amp_h2f(h) : amp_bf2f(h);
}
__device__ __forceinline__ void planes_store(void *p, int, int64_t i, double v) { ((double *)p)[i] = v; }
__device__ __forceinline__ void planes_store(void *p, int dtype, int64_t i, float v)
{
  if (dtype == AMP_FLOAT32) ((float *)p)[i] = v;
  else ((uint16_t *)p)[i] = dtype == AMP_FLOAT16 ? amp_f2h(v) : amp_f2bf(v);
}

#endif
