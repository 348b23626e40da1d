/*
** conv.cu: rows convolution and convolution_input by own kernels, for every dtype,
** layout, stride and rank. cuDNN (src/cuda/cudnn_conv.c) is asked first where it is
** there; these are what it is compared with.
**
**   pass     a product of matrices, pixels x (channels of the source and taps) x
**            channels of the result, whose left side is gathered on its way to
**            shared memory: 64 x 64 results a block, 4 x 4 a thread
**   direct   few channels a group (depthwise): a thread a result
**
** Sums are in float32 (float64 for float64), in one order: results repeat.
*/
#include "conv.cuh"
#include "elementwise.cuh"

namespace {

enum { TILE = 64, DEPTH = 16, THREADS = 256, FEW = 8 };

struct pixel { int64_t base; int z, y, x, there; };
struct tap { int64_t x, w; int z, y, xx, there; };

__device__ __forceinline__ bool inside(const conv_args &a, int z, int y, int x)
{
  return (unsigned)z < (unsigned)a.x.size[0] && (unsigned)y < (unsigned)a.x.size[1] && (unsigned)x < (unsigned)a.x.size[2];
}

/* Pixel q of a phase: the image, and the place along each dimension */
__device__ __forceinline__ void unfold(const conv_line *l, int64_t q, int64_t *n, int *z, int *y, int *x)
{
  if (q < ((int64_t)1 << 31)) {
    uint32_t p = (uint32_t)q, w = (uint32_t)l[2].n, h = (uint32_t)l[1].n, d = (uint32_t)l[0].n, r = p / w;
    *x = (int)(p - r * w);
    p = r / h;
    *y = (int)(r - p * h);
    r = p / d;
    *z = (int)(p - r * d);
    *n = r;
    return;
  }
  *x = (int)(q % l[2].n);
  q /= l[2].n;
  *y = (int)(q % l[1].n);
  q /= l[1].n;
  *z = (int)(q % l[0].n);
  *n = q / l[0].n;
}

/* INSIDE: channels lie beside each other in the source: then they, not the taps, run fastest through the sum. */
template <class T, bool INSIDE> __global__ void __launch_bounds__(THREADS) pass(const conv_args a, int64_t tiles_p, int tiles_r, int64_t total)
{
  alignas(16) __shared__ T left[DEPTH][TILE + 4];
  alignas(16) __shared__ T right[DEPTH][TILE + 4];
  __shared__ pixel pix[TILE];
  __shared__ tap tab[DEPTH];
  __shared__ conv_line l[3];
  int tid = threadIdx.x, tx = tid & 15, ty = tid >> 4;
  for (int64_t b = blockIdx.x; b < total; b += gridDim.x) {
    int64_t tile = b;
    int r0 = (int)(tile % tiles_r) * TILE;
    tile /= tiles_r;
    int64_t q0 = tile % tiles_p * TILE;
    tile /= tiles_p;
    int g = (int)(tile % a.groups), phase = (int)(tile / a.groups);
    __syncthreads();
    if (tid < 3) l[tid] = conv_line_of(a, tid, tid == 2 ? phase % a.phases[2] : tid == 1 ? phase / a.phases[2] % a.phases[1] : phase / a.phases[2] / a.phases[1]);
    __syncthreads();
    int64_t pixels = a.n * l[0].n * l[1].n * l[2].n;
    int taps = l[0].taps * l[1].taps * l[2].taps, depth = a.chans * taps;
    if (q0 >= pixels) continue;
    if (tid < TILE) {
      pixel p = { 0, 0, 0, 0, q0 + tid < pixels };
      if (p.there) {
        int64_t n;
        unfold(l, q0 + tid, &n, &p.z, &p.y, &p.x);
        p.z = l[0].off + p.z * l[0].ss;
        p.y = l[1].off + p.y * l[1].ss;
        p.x = l[2].off + p.x * l[2].ss;
        p.base = n * a.x.stride[0] + (int64_t)g * a.chans * a.x.stride[1] + p.z * a.x.stride[2] + p.y * a.x.stride[3] + p.x * a.x.stride[4];
      }
      pix[tid] = p;
    }
    T acc[4][4] = {};
    for (int k0 = 0; k0 < depth; k0 += DEPTH) {
      if (tid < DEPTH) {
        tap t = { 0, 0, 0, 0, 0, k0 + tid < depth };
        if (t.there) {
          int k = k0 + tid, c = INSIDE ? k % a.chans : k / taps, i = INSIDE ? k / a.chans : k % taps;
          int ix = i % l[2].taps, iy = i / l[2].taps % l[1].taps, iz = i / l[2].taps / l[1].taps;
          t.z = iz * l[0].ds;
          t.y = iy * l[1].ds;
          t.xx = ix * l[2].ds;
          t.x = c * a.x.stride[1] + t.z * a.x.stride[2] + t.y * a.x.stride[3] + t.xx * a.x.stride[4];
          int wz = l[0].first + iz * l[0].step, wy = l[1].first + iy * l[1].step, wx = l[2].first + ix * l[2].step;
          t.w = wz * a.w.stride[2] + wy * a.w.stride[3] + wx * a.w.stride[4];
          if (a.back) t.w += (int64_t)(g * a.chans + c) * a.w.stride[0] + (int64_t)r0 * a.w.stride[1];
          else t.w += c * a.w.stride[1] + (int64_t)(g * a.rows + r0) * a.w.stride[0];
        }
        tab[tid] = t;
      }
      __syncthreads(); /* the table is there, and what the last turn left has been read */
#pragma unroll
      for (int i = 0; i < TILE * DEPTH / THREADS; i++) {
        int e = tid + i * THREADS, k = INSIDE ? e & (DEPTH - 1) : e / TILE, q = INSIDE ? e / DEPTH : e & (TILE - 1);
        const pixel &p = pix[q];
        const tap &t = tab[k];
        T v = 0;
        if (p.there && t.there && inside(a, p.z + t.z, p.y + t.y, p.x + t.xx)) v = conv_load(T(0), a.x.p, a.x.dtype, p.base + t.x);
        left[k][q] = v;
      }
      int64_t wr = a.back ? a.w.stride[1] : a.w.stride[0];
#pragma unroll
      for (int i = 0; i < TILE * DEPTH / THREADS; i++) {
        int e = tid + i * THREADS, k = e & (DEPTH - 1), r = e / DEPTH;
        right[k][r] = tab[k].there && r0 + r < a.rows ? conv_load(T(0), a.w.p, a.w.dtype, tab[k].w + r * wr) : (T)0;
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < DEPTH; k++) {
        T u[4], v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) { u[i] = left[k][(INSIDE ? ty : tx) * 4 + i]; v[i] = right[k][(INSIDE ? tx : ty) * 4 + i]; }
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
          for (int j = 0; j < 4; j++) acc[i][j] += u[i] * v[j];
        }
      }
    }
    int first_q = (INSIDE ? ty : tx) * 4, first_r = r0 + (INSIDE ? tx : ty) * 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int64_t q = q0 + first_q + i, n;
      int z, y, x;
      if (q >= pixels) continue;
      unfold(l, q, &n, &z, &y, &x);
      int64_t at = n * a.y.stride[0] + (l[0].at + (int64_t)z * l[0].by) * a.y.stride[2] + (l[1].at + (int64_t)y * l[1].by) * a.y.stride[3] + (l[2].at + (int64_t)x * l[2].by) * a.y.stride[4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        int r = g * a.rows + first_r + j;
        if (first_r + j >= a.rows) continue;
        T v = acc[i][j];
        if (a.bias) v += conv_load(T(0), a.bias, a.y.dtype, r * a.bias_stride);
        conv_store(a.y.p, a.y.dtype, at + r * a.y.stride[1], v);
      }
    }
  }
}

/* Place o of a source line for place i of the result and tap t, or -1 */
__device__ __forceinline__ int reached(const conv_args &a, int d, int i, int t)
{
  int64_t v;
  if (!a.back) v = (int64_t)i * a.s[d] - a.p[d] + (int64_t)t * a.d[d];
  else {
    v = (int64_t)i + a.p[d] - (int64_t)t * a.d[d];
    if (a.s[d] != 1) {
      if (v < 0 || (uint32_t)v % (uint32_t)a.s[d]) return -1; /* v is below the padded size, 32 bits */
      v = (uint32_t)v / (uint32_t)a.s[d];
    }
  }
  return v >= 0 && v < a.x.size[d] ? (int)v : -1;
}

template <class T> __global__ void __launch_bounds__(256) direct(const conv_args a, int64_t total, int inside_y)
{
  int64_t channels = (int64_t)a.groups * a.rows;
  AMP_FOR(i, total) {
    int64_t q = i, r;
    if (inside_y) { r = q % channels; q /= channels; }
    int x = (int)(q % a.y.size[2]);
    q /= a.y.size[2];
    int y = (int)(q % a.y.size[1]);
    q /= a.y.size[1];
    int z = (int)(q % a.y.size[0]);
    q /= a.y.size[0];
    if (!inside_y) { r = q % channels; q /= channels; }
    int64_t g = r / a.rows, row = r - g * a.rows;
    int64_t src = q * a.x.stride[0] + g * a.chans * a.x.stride[1], xc = a.x.stride[1];
    int64_t w = a.back ? g * a.chans * a.w.stride[0] + row * a.w.stride[1] : r * a.w.stride[0], wc = a.back ? a.w.stride[0] : a.w.stride[1];
    T sum = 0;
    for (int kz = 0; kz < a.w.size[0]; kz++) {
      int sz = reached(a, 0, z, kz);
      if (sz < 0) continue;
      for (int ky = 0; ky < a.w.size[1]; ky++) {
        int sy = reached(a, 1, y, ky);
        if (sy < 0) continue;
        for (int kx = 0; kx < a.w.size[2]; kx++) {
          int sx = reached(a, 2, x, kx);
          if (sx < 0) continue;
          int64_t from = src + sz * a.x.stride[2] + sy * a.x.stride[3] + sx * a.x.stride[4];
          int64_t by = w + kz * a.w.stride[2] + ky * a.w.stride[3] + kx * a.w.stride[4];
#pragma unroll 1
          for (int c = 0; c < a.chans; c++) sum += conv_load(T(0), a.x.p, a.x.dtype, from + c * xc) * conv_load(T(0), a.w.p, a.w.dtype, by + c * wc);
        }
      }
    }
    if (a.bias) sum += conv_load(T(0), a.bias, a.y.dtype, r * a.bias_stride);
    conv_store(a.y.p, a.y.dtype, q * a.y.stride[0] + r * a.y.stride[1] + z * a.y.stride[2] + y * a.y.stride[3] + x * a.y.stride[4], sum);
  }
}

static int run(const conv_args &v, const amp_tensor *x, const amp_tensor *y)
{
  bool wide = y->dtype == AMP_FLOAT64, last = conv_inside(x);
  if (v.rows < FEW) {
    unsigned grid = amp_grid(y->numel, 256, 32);
    if (wide) AMP_LAUNCH((direct<double>), grid, 256, 0, v, y->numel, (int)conv_inside(y));
    else AMP_LAUNCH((direct<float>), grid, 256, 0, v, y->numel, (int)conv_inside(y));
    return 0;
  }
  int64_t deepest = (int64_t)v.chans * v.w.size[0] * v.w.size[1] * v.w.size[2], pixels = v.n, phases = 1;
  if (deepest > INT32_MAX) return amp__fail(AMP_E_UNSUPPORTED, "convolution on the GPU with %lld weights a channel", (long long)deepest);
  for (int i = 0; i < 3; i++) {
    int64_t by = v.back ? v.s[i] : 1;
    pixels *= (v.y.size[i] + by - 1) / by; /* of the first phase, the largest */
    phases *= v.phases[i];
  }
  int64_t tiles_p = (pixels + TILE - 1) / TILE, total;
  int tiles_r = (v.rows + TILE - 1) / TILE;
  total = tiles_p * tiles_r * v.groups * phases;
  unsigned grid = (unsigned)(total < 1 << 30 ? total : 1 << 30);
  if (wide && last) AMP_LAUNCH((pass<double, true>), grid, THREADS, 0, v, tiles_p, tiles_r, total);
  else if (wide) AMP_LAUNCH((pass<double, false>), grid, THREADS, 0, v, tiles_p, tiles_r, total);
  else if (last) AMP_LAUNCH((pass<float, true>), grid, THREADS, 0, v, tiles_p, tiles_r, total);
  else AMP_LAUNCH((pass<float, false>), grid, THREADS, 0, v, tiles_p, tiles_r, total);
  return 0;
}

template <class T> struct plus { enum { flat = 0 }; __device__ __forceinline__ T of(const T *a) const { return a[0] + a[1]; } };

} // namespace

extern "C" {

/* y += a value a channel (or one each), for convolutions that were made without */
int amp__cuda_conv_bias(amp_tensor *y, amp_tensor *bias)
{
  int64_t size[5] = { 1, bias->size[0], 1, 1, 1 }, stride[5] = { 0, bias->stride[0], 0, 0, 0 };
  amp_tensor *b = bias->ndim > 1 ? NULL : amp__tensor_view(bias, y->ndim, size, stride, bias->offset);
  if (b == NULL && bias->ndim == 1) return AMP_E_MEMORY;
  amp_tensor *in[2] = { y, b ? b : bias };
  int rc = y->dtype == AMP_FLOAT64 ? amp_ew_run<double, double, 2>(y, in, plus<double>()) : amp_ew_run<float, float, 2>(y, in, plus<float>());
  amp__free(b);
  return rc;
}

/* c: input weight bias */
int amp__cuda_conv_plain(amp_call *c)
{
  amp_tensor *x = c->in[0], *w = c->in[1], *b = c->nin > 2 ? c->in[2] : NULL, *y = c->out[0];
  conv_args v;
  if (y->numel == 0) return 0;
  memset((void *)&v, 0, sizeof v);
  conv_attributes(&v, c->a, x->ndim - 2);
  v.x = conv_side_of(x);
  v.w = conv_side_of(w);
  v.y = conv_side_of(y);
  v.n = x->size[0];
  v.rows = (int32_t)(w->size[0] / v.groups);
  v.chans = (int32_t)w->size[1];
  if (b) { v.bias = (const char *)amp__data(b); v.bias_stride = b->stride[0]; }
  return run(v, x, y);
}

/* c: grad weight bias; shape, then the attributes */
int amp__cuda_conv_plain_input(amp_call *c)
{
  amp_tensor *g = c->in[0], *w = c->in[1], *b = c->nin > 2 ? c->in[2] : NULL, *y = c->out[0];
  conv_args v;
  if (y->numel == 0) return 0;
  memset((void *)&v, 0, sizeof v);
  conv_attributes(&v, c->a + 9, y->ndim - 2);
  v.back = 1;
  v.x = conv_side_of(g);
  v.w = conv_side_of(w);
  v.y = conv_side_of(y);
  v.n = y->size[0];
  v.rows = (int32_t)w->size[1];
  v.chans = (int32_t)(w->size[0] / v.groups);
  for (int i = 0; i < 3; i++) v.phases[i] = v.s[i] < v.y.size[i] ? v.s[i] : v.y.size[i];
  if (b) { v.bias = (const char *)amp__data(b); v.bias_stride = b->stride[0]; }
  return run(v, g, y);
}

}
