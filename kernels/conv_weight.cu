/*
** conv_weight.cu: row convolution_weight by own kernels: sums over the pixels of
** all images.
**
**   sums     a product of matrices, channels of the gradient x (channels of the
**            input and taps), both gathered: 64 x 64 weights a block
**   direct   few channels a group (depthwise): a block a weight, or 32 weights of
**            neighbouring channels where those lie beside each other
**
** Where there are too few weights to fill the card the pixels are cut into runs,
** whose sums lie in scratch memory and are added up in order: results repeat.
*/
#include "conv.cuh"

namespace {

enum { TILE = 64, DEPTH = 16, THREADS = 256, FEW = 8 };

struct pixel { int64_t x, g; int z, y, xx, there; };
struct column { int64_t x, w; int z, y, xx, there; };

/* Pixel q of the gradient: its image and places */
__device__ __forceinline__ void unfold(const conv_args &a, int64_t q, int64_t *n, int *z, int *y, int *x)
{
  if (q < ((int64_t)1 << 31)) {
    uint32_t p = (uint32_t)q, w = (uint32_t)a.y.size[2], h = (uint32_t)a.y.size[1], d = (uint32_t)a.y.size[0], r = p / w;
    *x = (int)(p - r * w);
    p = r / h;
    *y = (int)(r - p * h);
    r = p / d;
    *z = (int)(p - r * d);
    *n = r;
    return;
  }
  *x = (int)(q % a.y.size[2]);
  q /= a.y.size[2];
  *y = (int)(q % a.y.size[1]);
  q /= a.y.size[1];
  *z = (int)(q % a.y.size[0]);
  *n = q / a.y.size[0];
}
__device__ __forceinline__ bool inside(const conv_args &a, int z, int y, int x)
{
  return (unsigned)z < (unsigned)a.x.size[0] && (unsigned)y < (unsigned)a.x.size[1] && (unsigned)x < (unsigned)a.x.size[2];
}

struct cuts { int64_t pixels, run; int32_t count; }; /* runs of pixels */

/* x is the input, y the gradient, w the result. part: sums of a run for every weight in C order, NULL: results at once */
template <class T, bool INSIDE> __global__ void __launch_bounds__(THREADS) sums(const conv_args a, const cuts s, T *part, int tiles_r, int tiles_c, int64_t total)
{
  alignas(16) __shared__ T left[DEPTH][TILE + 4];
  alignas(16) __shared__ T right[DEPTH][TILE + 4];
  __shared__ pixel pix[DEPTH];
  __shared__ column col[TILE];
  int tid = threadIdx.x, tx = tid & 15, ty = tid >> 4, taps = a.w.size[0] * a.w.size[1] * a.w.size[2], columns = a.chans * taps;
  for (int64_t b = blockIdx.x; b < total; b += gridDim.x) {
    int64_t tile = b;
    int c0 = (int)(tile % tiles_c) * TILE;
    tile /= tiles_c;
    int r0 = (int)(tile % tiles_r) * TILE;
    tile /= tiles_r;
    int g = (int)(tile % a.groups), cut = (int)(tile / a.groups);
    int64_t q0 = cut * s.run, q1 = q0 + s.run < s.pixels ? q0 + s.run : s.pixels;
    __syncthreads();
    if (tid < TILE) {
      column k = { 0, 0, 0, 0, 0, c0 + tid < columns };
      if (k.there) {
        int i = c0 + tid, c = INSIDE ? i % a.chans : i / taps, t = INSIDE ? i / a.chans : i % taps;
        int x = t % a.w.size[2], y = t / a.w.size[2] % a.w.size[1], z = t / a.w.size[2] / a.w.size[1];
        k.z = z * a.d[0] - a.p[0];
        k.y = y * a.d[1] - a.p[1];
        k.xx = x * a.d[2] - a.p[2];
        k.x = (int64_t)(g * a.chans + c) * a.x.stride[1] + k.z * a.x.stride[2] + k.y * a.x.stride[3] + k.xx * a.x.stride[4];
        k.w = part ? (int64_t)c * taps + t : c * a.w.stride[1] + z * a.w.stride[2] + y * a.w.stride[3] + x * a.w.stride[4];
      }
      col[tid] = k;
    }
    T acc[4][4] = {};
    for (int64_t k0 = q0; k0 < q1; k0 += DEPTH) {
      if (tid < DEPTH) {
        pixel p = { 0, 0, 0, 0, 0, k0 + tid < q1 };
        if (p.there) {
          int64_t n;
          int z, y, x;
          unfold(a, k0 + tid, &n, &z, &y, &x);
          p.g = n * a.y.stride[0] + z * a.y.stride[2] + y * a.y.stride[3] + x * a.y.stride[4] + (int64_t)(g * a.rows + r0) * a.y.stride[1];
          p.z = z * a.s[0];
          p.y = y * a.s[1];
          p.xx = x * a.s[2];
          p.x = n * a.x.stride[0] + p.z * a.x.stride[2] + p.y * a.x.stride[3] + p.xx * a.x.stride[4];
        }
        pix[tid] = p;
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < TILE * DEPTH / THREADS; i++) {
        int e = tid + i * THREADS, k = INSIDE ? e / TILE : e & (DEPTH - 1), r = INSIDE ? e & (TILE - 1) : e / DEPTH;
        left[k][r] = pix[k].there && r0 + r < a.rows ? conv_load(T(0), a.y.p, a.y.dtype, pix[k].g + r * a.y.stride[1]) : (T)0;
      }
#pragma unroll
      for (int i = 0; i < TILE * DEPTH / THREADS; i++) {
        int e = tid + i * THREADS, k = INSIDE ? e / TILE : e & (DEPTH - 1), c = INSIDE ? e & (TILE - 1) : e / DEPTH;
        const pixel &p = pix[k];
        const column &q = col[c];
        right[k][c] = p.there && q.there && inside(a, p.z + q.z, p.y + q.y, p.xx + q.xx) ? conv_load(T(0), a.x.p, a.x.dtype, p.x + q.x) : (T)0;
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < DEPTH; k++) {
        T u[4], v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) { u[i] = left[k][ty * 4 + i]; v[i] = right[k][tx * 4 + i]; }
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
          for (int j = 0; j < 4; j++) acc[i][j] += u[i] * v[j];
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
      for (int j = 0; j < 4; j++) {
        int r = r0 + ty * 4 + i;
        const column &q = col[tx * 4 + j];
        if (r >= a.rows || !q.there) continue;
        int64_t row = (int64_t)g * a.rows + r;
        if (part) part[(cut * (int64_t)a.groups * a.rows + row) * columns + q.w] = acc[i][j];
        else conv_store(a.w.p, a.w.dtype, row * a.w.stride[0] + q.w, acc[i][j]);
      }
    }
  }
}

/* LANES neighbouring channels of the gradient (32 or 1) a block, the block's other threads share the pixels */
template <class T, int LANES> __global__ void __launch_bounds__(THREADS) direct(const conv_args a, const cuts s, T *part, int64_t bundles, int64_t total)
{
  __shared__ T sum[THREADS];
  int taps = a.w.size[0] * a.w.size[1] * a.w.size[2], lane = threadIdx.x % LANES, slot = threadIdx.x / LANES;
  enum { SLOTS = THREADS / LANES };
  for (int64_t b = blockIdx.x; b < total; b += gridDim.x) {
    int64_t tile = b;
    int t = (int)(tile % taps);
    tile /= taps;
    int c = (int)(tile % a.chans);
    tile /= a.chans;
    int64_t row = tile % bundles * LANES + lane;
    int cut = (int)(tile / bundles);
    int64_t q0 = cut * s.run, q1 = q0 + s.run < s.pixels ? q0 + s.run : s.pixels, g = row / a.rows;
    int x = t % a.w.size[2], y = t / a.w.size[2] % a.w.size[1], z = t / a.w.size[2] / a.w.size[1];
    bool there = row < (int64_t)a.groups * a.rows;
    const int64_t xc = (g * a.chans + c) * a.x.stride[1], yc = row * a.y.stride[1];
    T v = 0;
    if (there)
      for (int64_t q = q0 + slot; q < q1; q += SLOTS) {
        int64_t n;
        int oz, oy, ox;
        unfold(a, q, &n, &oz, &oy, &ox);
        int iz = oz * a.s[0] - a.p[0] + z * a.d[0], iy = oy * a.s[1] - a.p[1] + y * a.d[1], ix = ox * a.s[2] - a.p[2] + x * a.d[2];
        if (!inside(a, iz, iy, ix)) continue;
        v += conv_load(T(0), a.y.p, a.y.dtype, yc + n * a.y.stride[0] + oz * a.y.stride[2] + oy * a.y.stride[3] + ox * a.y.stride[4])
             * conv_load(T(0), a.x.p, a.x.dtype, xc + n * a.x.stride[0] + iz * a.x.stride[2] + iy * a.x.stride[3] + ix * a.x.stride[4]);
      }
    if (LANES == 1) v = amp_reduce_block<amp_sum>(v, (T)0);
    else {
      __syncthreads();
      sum[threadIdx.x] = v;
      __syncthreads();
      for (int half = SLOTS / 2; half > 0; half /= 2) {
        if (slot < half) sum[threadIdx.x] += sum[threadIdx.x + half * LANES];
        __syncthreads();
      }
      v = sum[lane];
    }
    if (slot == 0 && there) {
      if (part) part[((cut * (int64_t)a.groups * a.rows + row) * a.chans + c) * taps + t] = v;
      else conv_store(a.w.p, a.w.dtype, row * a.w.stride[0] + c * a.w.stride[1] + z * a.w.stride[2] + y * a.w.stride[3] + x * a.w.stride[4], v);
    }
  }
}

/* The runs' sums, in order, to the weight */
template <class T> __global__ void __launch_bounds__(256) gather(const T *part, int count, const amp_arg w)
{
  AMP_FOR(i, w.numel) {
    T v = 0;
    for (int k = 0; k < count; k++) v += part[k * w.numel + i];
    amp_store<T>(w.p, w.dtype, amp_offset(w, i), v);
  }
}

template <class T> static int run(const conv_args &v, const amp_tensor *x, amp_tensor *w)
{
  bool last = conv_inside(x), few = v.rows < FEW;
  int taps = v.w.size[0] * v.w.size[1] * v.w.size[2], sms = amp__cuda_here()->sms;
  int64_t channels = (int64_t)v.groups * v.rows, bundles = last ? (channels + 31) / 32 : channels;
  int tiles_r = (v.rows + TILE - 1) / TILE, tiles_c = (int)(((int64_t)v.chans * taps + TILE - 1) / TILE);
  int64_t blocks = few ? bundles * v.chans * taps : (int64_t)tiles_r * tiles_c * v.groups;
  cuts s = { v.n * v.y.size[0] * v.y.size[1] * v.y.size[2], 0, 1 };
  int64_t most = s.pixels / 512, want = ((int64_t)sms * 4 + blocks - 1) / blocks, memory = ((int64_t)256 << 20) / (w->numel * (int64_t)sizeof(T));
  if (want > most) want = most;
  if (want > memory) want = memory;
  if (want < 1) want = 1;
  s.run = ((s.pixels + want - 1) / want + DEPTH - 1) / DEPTH * DEPTH;
  s.count = (int32_t)((s.pixels + s.run - 1) / s.run);
  amp_tensor *scratch = NULL;
  T *part = NULL;
  if (s.count > 1) {
    if ((scratch = amp__cuda_scratch((size_t)(s.count * w->numel) * sizeof(T))) == NULL) return AMP_E_MEMORY;
    part = (T *)amp__data(scratch);
  }
  int64_t total = blocks * s.count;
  unsigned grid = (unsigned)(total < 1 << 30 ? total : 1 << 30);
  if (few && last) AMP_LAUNCH((direct<T, 32>), grid, THREADS, 0, v, s, part, bundles, total);
  else if (few) AMP_LAUNCH((direct<T, 1>), grid, THREADS, 0, v, s, part, bundles, total);
  else if (last) AMP_LAUNCH((sums<T, true>), grid, THREADS, 0, v, s, part, tiles_r, tiles_c, total);
  else AMP_LAUNCH((sums<T, false>), grid, THREADS, 0, v, s, part, tiles_r, tiles_c, total);
  if (part) AMP_LAUNCH((gather<T>), amp_grid(w->numel, 256), 256, 0, part, (int)s.count, amp_arg_of(w));
  amp__free(scratch);
  return 0;
}

} // namespace

/* c: grad input; shape, then the attributes */
extern "C" int amp__cuda_conv_plain_weight(amp_call *c)
{
  amp_tensor *g = c->in[0], *x = c->in[1], *w = c->out[0];
  conv_args v;
  if (w->numel == 0) return 0;
  if (g->numel == 0 || x->numel == 0) return amp__cuda_fill_value(w, 0);
  memset((void *)&v, 0, sizeof v);
  conv_attributes(&v, c->a + 9, x->ndim - 2);
  v.x = conv_side_of(x);
  v.y = conv_side_of(g);
  v.w = conv_side_of(w);
  v.n = x->size[0];
  v.rows = (int32_t)(w->size[0] / v.groups);
  v.chans = (int32_t)w->size[1];
  if ((int64_t)v.chans * v.w.size[0] * v.w.size[1] * v.w.size[2] > INT32_MAX) return amp__fail(AMP_E_UNSUPPORTED, "convolution on the GPU with %lld weights a channel", (long long)(w->numel / w->size[0]));
  return w->dtype == AMP_FLOAT64 ? run<double>(v, x, w) : run<float>(v, x, w);
}
