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
#include "conv/conv.cuh"
#include "elementwise/elementwise.cuh"

namespace {

enum { TILE = CONV_TILE, DEPTH = CONV_DEPTH, THREADS = CONV_THREADS, FEW = 8 };

/* A pixel of the result as the sum sees it: its first place in the source, which may lie outside */
struct pixel {
  int64_t base;
  int z, y, x, there;
};
/* A term of the sum, a channel and a tap: what it adds to a pixel's place, and where its weights are */
struct tap {
  int64_t source, weight;
  int z, y, x, there;
};
/* What a block makes: results from channel `row` of a group on, of pixels from `pixel` on, in one phase */
struct block_tile {
  int row, group, phase;
  int64_t pixel;
};

/* Pixel q of a phase: the image, and the place along each dimension */
__device__ __forceinline__ void unfold(const conv_line *line, int64_t q, int64_t *n, int *z, int *y, int *x)
{
  if (q < ((int64_t)1 << 31)) {
    uint32_t p = (uint32_t)q, w = (uint32_t)line[2].n, h = (uint32_t)line[1].n, d = (uint32_t)line[0].n, r = p / w;
    *x = (int)(p - r * w);
    p = r / h;
    *y = (int)(r - p * h);
    r = p / d;
    *z = (int)(p - r * d);
    *n = r;
    return;
  }
  *x = (int)(q % line[2].n);
  q /= line[2].n;
  *y = (int)(q % line[1].n);
  q /= line[1].n;
  *z = (int)(q % line[0].n);
  *n = q / line[0].n;
}

/* Tile number b of a launch: channels run fastest, so that blocks beside each other share the source */
__device__ __forceinline__ block_tile tile_of(int64_t b, const conv_args &conv, int64_t tiles_p, int tiles_r)
{
  block_tile tile;
  tile.row = (int)(b % tiles_r) * TILE;
  b /= tiles_r;
  tile.pixel = b % tiles_p * TILE;
  b /= tiles_p;
  tile.group = (int)(b % conv.groups);
  tile.phase = (int)(b / conv.groups);
  return tile;
}

/* Dimension d's line of a phase */
__device__ __forceinline__ conv_line line_of(const conv_args &conv, int d, int phase)
{
  return conv_line_of(conv, d,
                      d == 2   ? phase % conv.phases[2]
                      : d == 1 ? phase / conv.phases[2] % conv.phases[1]
                               : phase / conv.phases[2] / conv.phases[1]);
}

/* Pixel q of a phase, if q < pixels */
__device__ __forceinline__ pixel pixel_of(const conv_args &conv, const conv_line *line, int group, int64_t q,
                                          int64_t pixels)
{
  pixel p = { 0, 0, 0, 0, q < pixels };
  if (p.there) {
    int64_t n;
    unfold(line, q, &n, &p.z, &p.y, &p.x);
    p.z = line[0].off + p.z * line[0].ss;
    p.y = line[1].off + p.y * line[1].ss;
    p.x = line[2].off + p.x * line[2].ss;
    p.base = n * conv.x.stride[0] + (int64_t)group * conv.chans * conv.x.stride[1] + p.z * conv.x.stride[2]
             + p.y * conv.x.stride[3] + p.x * conv.x.stride[4];
  }
  return p;
}

/* Term k of the sum of `depth`. INSIDE: channels run fastest, else taps */
template <bool INSIDE>
__device__ __forceinline__ tap tap_of(const conv_args &conv, const conv_line *line, const block_tile &tile, int k,
                                      int depth, int taps)
{
  tap t = { 0, 0, 0, 0, 0, k < depth };
  if (t.there) {
    int channel = INSIDE ? k % conv.chans : k / taps, i = INSIDE ? k / conv.chans : k % taps;
    int ix = i % line[2].taps, iy = i / line[2].taps % line[1].taps, iz = i / line[2].taps / line[1].taps;
    t.z = iz * line[0].ds;
    t.y = iy * line[1].ds;
    t.x = ix * line[2].ds;
    t.source = channel * conv.x.stride[1] + t.z * conv.x.stride[2] + t.y * conv.x.stride[3] + t.x * conv.x.stride[4];
    int wz = line[0].first + iz * line[0].step, wy = line[1].first + iy * line[1].step,
        wx = line[2].first + ix * line[2].step;
    t.weight = wz * conv.w.stride[2] + wy * conv.w.stride[3] + wx * conv.w.stride[4];
    if (conv.back)
      t.weight
          += (int64_t)(tile.group * conv.chans + channel) * conv.w.stride[0] + (int64_t)tile.row * conv.w.stride[1];
    else t.weight += channel * conv.w.stride[1] + (int64_t)(tile.group * conv.rows + tile.row) * conv.w.stride[0];
  }
  return t;
}

/* A piece of the source, terms x pixels, and one of the weights, terms x channels from `row` on, to shared memory */
template <class T, bool INSIDE>
__device__ __forceinline__ void load_tiles(conv_tile<T> &left, conv_tile<T> &right, const conv_args &conv,
                                           const pixel *pixels, const tap *taps, int row)
{
#pragma unroll
  for (int i = 0; i < TILE * DEPTH / THREADS; i++) {
    int e = threadIdx.x + i * THREADS, k = INSIDE ? e & (DEPTH - 1) : e / TILE, q = INSIDE ? e / DEPTH : e & (TILE - 1);
    const pixel &p = pixels[q];
    const tap &t = taps[k];
    T v = 0;
    if (p.there && t.there && conv_covers(conv, p.z + t.z, p.y + t.y, p.x + t.x))
      v = conv_load(T(0), conv.x.p, conv.x.dtype, p.base + t.source);
    left[k][q] = v;
  }
  int64_t next = conv.back ? conv.w.stride[1] : conv.w.stride[0];
#pragma unroll
  for (int i = 0; i < TILE * DEPTH / THREADS; i++) {
    int e = threadIdx.x + i * THREADS, k = e & (DEPTH - 1), r = e / DEPTH;
    right[k][r] = taps[k].there && row + r < conv.rows
                      ? conv_load(T(0), conv.w.p, conv.w.dtype, taps[k].weight + r * next)
                      : (T)0;
  }
}

/* A thread's 4 x 4 results: of pixels from q0, of channels of the group from r0 on */
template <class T>
__device__ __forceinline__ void store_results(const T (&acc)[4][4], const conv_args &conv, const conv_line *line,
                                              int group, int64_t q0, int64_t pixels, int row)
{
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int64_t q = q0 + i, n;
    int z, y, x;
    if (q >= pixels) continue;
    unfold(line, q, &n, &z, &y, &x);
    int64_t at = n * conv.y.stride[0] + (line[0].at + (int64_t)z * line[0].by) * conv.y.stride[2]
                 + (line[1].at + (int64_t)y * line[1].by) * conv.y.stride[3]
                 + (line[2].at + (int64_t)x * line[2].by) * conv.y.stride[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      int r = group * conv.rows + row + j;
      if (row + j >= conv.rows) continue;
      T v = acc[i][j];
      if (conv.bias) v += conv_load(T(0), conv.bias, conv.y.dtype, r * conv.bias_stride);
      conv_store(conv.y.p, conv.y.dtype, at + r * conv.y.stride[1], v);
    }
  }
}

/* A block makes 64 pixels x 64 channels of the result: lines of the phase and places of its pixels once, then piece by
** piece the taps, both tiles, their product. INSIDE: channels lie beside each other in the source: then they, not the
** taps, run fastest through the sum. */
template <class T, bool INSIDE>
__global__ void __launch_bounds__(THREADS) pass(const conv_args conv, int64_t tiles_p, int tiles_r, int64_t total)
{
  alignas(16) __shared__ conv_tile<T> left;
  alignas(16) __shared__ conv_tile<T> right;
  __shared__ pixel pix[TILE];
  __shared__ tap tab[DEPTH];
  __shared__ conv_line line[3];
  int tid = threadIdx.x, tx = tid & 15, ty = tid >> 4;
  for (int64_t b = blockIdx.x; b < total; b += gridDim.x) {
    const block_tile tile = tile_of(b, conv, tiles_p, tiles_r);
    __syncthreads();
    if (tid < 3) line[tid] = line_of(conv, tid, tile.phase);
    __syncthreads();
    int64_t pixels = conv.n * line[0].n * line[1].n * line[2].n;
    int taps = line[0].taps * line[1].taps * line[2].taps, depth = conv.chans * taps;
    if (tile.pixel >= pixels) continue;
    if (tid < TILE) pix[tid] = pixel_of(conv, line, tile.group, tile.pixel + tid, pixels);
    T acc[4][4] = {};
    for (int k0 = 0; k0 < depth; k0 += DEPTH) {
      if (tid < DEPTH) tab[tid] = tap_of<INSIDE>(conv, line, tile, k0 + tid, depth, taps);
      __syncthreads(); /* the table is there, and what the last turn left has been read */
      load_tiles<T, INSIDE>(left, right, conv, pix, tab, tile.row);
      __syncthreads();
      conv_multiply<T>(acc, left, right, (INSIDE ? ty : tx) * 4, (INSIDE ? tx : ty) * 4);
    }
    store_results<T>(acc, conv, line, tile.group, tile.pixel + (INSIDE ? ty : tx) * 4, pixels,
                     tile.row + (INSIDE ? tx : ty) * 4);
  }
}

/* Place o of a source line for place i of the result and tap t, or -1 */
__device__ __forceinline__ int reached(const conv_args &conv, int d, int i, int t)
{
  int64_t v;
  if (!conv.back) v = (int64_t)i * conv.s[d] - conv.p[d] + (int64_t)t * conv.d[d];
  else {
    v = (int64_t)i + conv.p[d] - (int64_t)t * conv.d[d];
    if (conv.s[d] != 1) {
      if (v < 0 || (uint32_t)v % (uint32_t)conv.s[d]) return -1; /* v is below the padded size, 32 bits */
      v = (uint32_t)v / (uint32_t)conv.s[d];
    }
  }
  return v >= 0 && v < conv.x.size[d] ? (int)v : -1;
}

template <class T> __global__ void __launch_bounds__(256) direct(const conv_args conv, int64_t total, int inside_y)
{
  int64_t channels = (int64_t)conv.groups * conv.rows;
  AMP_FOR(i, total)
  {
    int64_t q = i, r;
    if (inside_y) {
      r = q % channels;
      q /= channels;
    }
    int x = (int)(q % conv.y.size[2]);
    q /= conv.y.size[2];
    int y = (int)(q % conv.y.size[1]);
    q /= conv.y.size[1];
    int z = (int)(q % conv.y.size[0]);
    q /= conv.y.size[0];
    if (!inside_y) {
      r = q % channels;
      q /= channels;
    }
    int64_t g = r / conv.rows, row = r - g * conv.rows;
    int64_t src = q * conv.x.stride[0] + g * conv.chans * conv.x.stride[1], source_step = conv.x.stride[1];
    int64_t weight = conv.back ? g * conv.chans * conv.w.stride[0] + row * conv.w.stride[1] : r * conv.w.stride[0],
            weight_step = conv.back ? conv.w.stride[0] : conv.w.stride[1];
    T sum = 0;
    for (int kz = 0; kz < conv.w.size[0]; kz++) {
      int sz = reached(conv, 0, z, kz);
      if (sz < 0) continue;
      for (int ky = 0; ky < conv.w.size[1]; ky++) {
        int sy = reached(conv, 1, y, ky);
        if (sy < 0) continue;
        for (int kx = 0; kx < conv.w.size[2]; kx++) {
          int sx = reached(conv, 2, x, kx);
          if (sx < 0) continue;
          int64_t from = src + sz * conv.x.stride[2] + sy * conv.x.stride[3] + sx * conv.x.stride[4];
          int64_t by = weight + kz * conv.w.stride[2] + ky * conv.w.stride[3] + kx * conv.w.stride[4];
#pragma unroll 1
          for (int c = 0; c < conv.chans; c++)
            sum += conv_load(T(0), conv.x.p, conv.x.dtype, from + c * source_step)
                   * conv_load(T(0), conv.w.p, conv.w.dtype, by + c * weight_step);
        }
      }
    }
    if (conv.bias) sum += conv_load(T(0), conv.bias, conv.y.dtype, r * conv.bias_stride);
    conv_store(conv.y.p, conv.y.dtype,
               q * conv.y.stride[0] + r * conv.y.stride[1] + z * conv.y.stride[2] + y * conv.y.stride[3]
                   + x * conv.y.stride[4],
               sum);
  }
}

static int run(const conv_args &conv, const amp_tensor *x, const amp_tensor *y)
{
  bool wide = y->dtype == AMP_FLOAT64, last = conv_inside(x);
  if (conv.rows < FEW) {
    unsigned grid = amp_grid(y->numel, 256, 32);
    if (wide) AMP_LAUNCH((direct<double>), grid, 256, 0, conv, y->numel, (int)conv_inside(y));
    else AMP_LAUNCH((direct<float>), grid, 256, 0, conv, y->numel, (int)conv_inside(y));
    return 0;
  }
  int64_t deepest = (int64_t)conv.chans * conv.w.size[0] * conv.w.size[1] * conv.w.size[2], pixels = conv.n, phases = 1;
  if (deepest > INT32_MAX)
    return amp__fail(AMP_E_UNSUPPORTED, "convolution on the GPU with %lld weights a channel", (long long)deepest);
  for (int i = 0; i < 3; i++) {
    int64_t by = conv.back ? conv.s[i] : 1;
    pixels *= (conv.y.size[i] + by - 1) / by; /* of the first phase, the largest */
    phases *= conv.phases[i];
  }
  int64_t tiles_p = (pixels + TILE - 1) / TILE, total;
  int tiles_r = (conv.rows + TILE - 1) / TILE;
  total = tiles_p * tiles_r * conv.groups * phases;
  unsigned grid = (unsigned)(total < 1 << 30 ? total : 1 << 30);
  if (wide && last) AMP_LAUNCH((pass<double, true>), grid, THREADS, 0, conv, tiles_p, tiles_r, total);
  else if (wide) AMP_LAUNCH((pass<double, false>), grid, THREADS, 0, conv, tiles_p, tiles_r, total);
  else if (last) AMP_LAUNCH((pass<float, true>), grid, THREADS, 0, conv, tiles_p, tiles_r, total);
  else AMP_LAUNCH((pass<float, false>), grid, THREADS, 0, conv, tiles_p, tiles_r, total);
  return 0;
}

template <class T> struct plus {
  enum { flat = 0 };
  __device__ __forceinline__ T of(const T *a) const { return a[0] + a[1]; }
};

} // namespace

extern "C" {

/* y += a value a channel (or one each), for convolutions that were made without */
int amp__cuda_conv_bias(amp_tensor *y, amp_tensor *bias)
{
  int64_t size[5] = { 1, bias->size[0], 1, 1, 1 }, stride[5] = { 0, bias->stride[0], 0, 0, 0 };
  amp_tensor *b = bias->ndim > 1 ? NULL : amp__tensor_view(bias, y->ndim, size, stride, bias->offset);
  if (b == NULL && bias->ndim == 1) return AMP_E_MEMORY;
  amp_tensor *in[2] = { y, b ? b : bias };
  int rc = y->dtype == AMP_FLOAT64 ? amp_ew_run<double, double, 2>(y, in, plus<double>())
                                   : amp_ew_run<float, float, 2>(y, in, plus<float>());
  amp__free(b);
  return rc;
}

/* c: input weight bias */
int amp__cuda_conv_plain(amp_call *c)
{
  amp_tensor *x = c->in[0], *w = c->in[1], *bias = c->nin > 2 ? c->in[2] : NULL, *y = c->out[0];
  conv_args conv;
  if (y->numel == 0) return 0;
  memset((void *)&conv, 0, sizeof conv);
  conv_attributes(&conv, AMP_ARGS(c, convolution), x->ndim - 2);
  conv.x = conv_side_of(x);
  conv.w = conv_side_of(w);
  conv.y = conv_side_of(y);
  conv.n = x->size[0];
  conv.rows = (int32_t)(w->size[0] / conv.groups);
  conv.chans = (int32_t)w->size[1];
  if (bias) {
    conv.bias = (const char *)amp__data(bias);
    conv.bias_stride = bias->stride[0];
  }
  return run(conv, x, y);
}

/* c: grad weight bias; shape, then the attributes */
int amp__cuda_conv_plain_input(amp_call *c)
{
  amp_tensor *grad = c->in[0], *weight = c->in[1], *bias = c->nin > 2 ? c->in[2] : NULL, *y = c->out[0];
  conv_args conv;
  if (y->numel == 0) return 0;
  memset((void *)&conv, 0, sizeof conv);
  conv_attributes(&conv, AMP_ARGS(c, convolution_input), y->ndim - 2);
  conv.back = 1;
  conv.x = conv_side_of(grad);
  conv.w = conv_side_of(weight);
  conv.y = conv_side_of(y);
  conv.n = y->size[0];
  conv.rows = (int32_t)weight->size[1];
  conv.chans = (int32_t)(weight->size[0] / conv.groups);
  for (int i = 0; i < 3; i++) conv.phases[i] = conv.s[i] < conv.y.size[i] ? conv.s[i] : conv.y.size[i];
  if (bias) {
    conv.bias = (const char *)amp__data(bias);
    conv.bias_stride = bias->stride[0];
  }
  return run(conv, grad, y);
}
}
