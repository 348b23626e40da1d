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
#include "conv/conv.cuh"

namespace {

enum { TILE = CONV_TILE, DEPTH = CONV_DEPTH, THREADS = CONV_THREADS, FEW = 8 };

/* A term of the sum, a pixel: where it is in the input and in the gradient */
struct pixel {
  int64_t input, grad;
  int z, y, x, there;
};
/* A column of the result, a channel of the input and a tap: what it adds to a pixel's place, where its weight is */
struct column {
  int64_t input, weight;
  int z, y, x, there;
};

/* Pixel q of the gradient: its image and places */
__device__ __forceinline__ void unfold(const conv_args &conv, int64_t q, int64_t *n, int *z, int *y, int *x)
{
  if (q < ((int64_t)1 << 31)) {
    uint32_t p = (uint32_t)q, w = (uint32_t)conv.y.size[2], h = (uint32_t)conv.y.size[1], d = (uint32_t)conv.y.size[0],
             r = p / w;
    *x = (int)(p - r * w);
    p = r / h;
    *y = (int)(r - p * h);
    r = p / d;
    *z = (int)(p - r * d);
    *n = r;
    return;
  }
  *x = (int)(q % conv.y.size[2]);
  q /= conv.y.size[2];
  *y = (int)(q % conv.y.size[1]);
  q /= conv.y.size[1];
  *z = (int)(q % conv.y.size[0]);
  *n = q / conv.y.size[0];
}

/* Runs of pixels */
struct cuts {
  int64_t pixels, run;
  int32_t count;
};
/* What a block makes: weights from channel `row` of a group and column `column` on, summed over pixels begin .. end
** - 1 */
struct block_tile {
  int row, column, group, cut;
  int64_t begin, end;
};

/* Tile number b of a launch */
__device__ __forceinline__ block_tile tile_of(int64_t b, const conv_args &conv, const cuts &runs, int tiles_r,
                                              int tiles_c)
{
  block_tile tile;
  tile.column = (int)(b % tiles_c) * TILE;
  b /= tiles_c;
  tile.row = (int)(b % tiles_r) * TILE;
  b /= tiles_r;
  tile.group = (int)(b % conv.groups);
  tile.cut = (int)(b / conv.groups);
  tile.begin = tile.cut * runs.run;
  tile.end = tile.begin + runs.run < runs.pixels ? tile.begin + runs.run : runs.pixels;
  return tile;
}

/* Column i of a group, if i < columns. INSIDE: channels run fastest, else taps. in_part: its weight is one of a
** run's */
template <bool INSIDE>
__device__ __forceinline__ column column_of(const conv_args &conv, int group, int i, int columns, int taps,
                                            bool in_part)
{
  column made = { 0, 0, 0, 0, 0, i < columns };
  if (made.there) {
    int c = INSIDE ? i % conv.chans : i / taps, t = INSIDE ? i / conv.chans : i % taps;
    int x = t % conv.w.size[2], y = t / conv.w.size[2] % conv.w.size[1], z = t / conv.w.size[2] / conv.w.size[1];
    made.z = z * conv.d[0] - conv.p[0];
    made.y = y * conv.d[1] - conv.p[1];
    made.x = x * conv.d[2] - conv.p[2];
    made.input = (int64_t)(group * conv.chans + c) * conv.x.stride[1] + made.z * conv.x.stride[2]
                 + made.y * conv.x.stride[3] + made.x * conv.x.stride[4];
    made.weight = in_part ? (int64_t)c * taps + t
                          : c * conv.w.stride[1] + z * conv.w.stride[2] + y * conv.w.stride[3] + x * conv.w.stride[4];
  }
  return made;
}

/* Pixel q of the gradient, if it is one of the tile's */
__device__ __forceinline__ pixel pixel_of(const conv_args &conv, const block_tile &tile, int64_t q)
{
  pixel p = { 0, 0, 0, 0, 0, q < tile.end };
  if (p.there) {
    int64_t n;
    int z, y, x;
    unfold(conv, q, &n, &z, &y, &x);
    p.grad = n * conv.y.stride[0] + z * conv.y.stride[2] + y * conv.y.stride[3] + x * conv.y.stride[4]
             + (int64_t)(tile.group * conv.rows + tile.row) * conv.y.stride[1];
    p.z = z * conv.s[0];
    p.y = y * conv.s[1];
    p.x = x * conv.s[2];
    p.input = n * conv.x.stride[0] + p.z * conv.x.stride[2] + p.y * conv.x.stride[3] + p.x * conv.x.stride[4];
  }
  return p;
}

/* A piece of the gradient, pixels x channels from `row` on, and one of the input, pixels x columns, to shared memory */
template <class T, bool INSIDE>
__device__ __forceinline__ void load_tiles(conv_tile<T> &left, conv_tile<T> &right, const conv_args &conv,
                                           const pixel *pixels, const column *columns, int row)
{
#pragma unroll
  for (int i = 0; i < TILE * DEPTH / THREADS; i++) {
    int e = threadIdx.x + i * THREADS, k = INSIDE ? e / TILE : e & (DEPTH - 1), r = INSIDE ? e & (TILE - 1) : e / DEPTH;
    left[k][r] = pixels[k].there && row + r < conv.rows
                     ? conv_load(T(0), conv.y.p, conv.y.dtype, pixels[k].grad + r * conv.y.stride[1])
                     : (T)0;
  }
#pragma unroll
  for (int i = 0; i < TILE * DEPTH / THREADS; i++) {
    int e = threadIdx.x + i * THREADS, k = INSIDE ? e / TILE : e & (DEPTH - 1), c = INSIDE ? e & (TILE - 1) : e / DEPTH;
    const pixel &p = pixels[k];
    const column &q = columns[c];
    right[k][c] = p.there && q.there && conv_covers(conv, p.z + q.z, p.y + q.y, p.x + q.x)
                      ? conv_load(T(0), conv.x.p, conv.x.dtype, p.input + q.input)
                      : (T)0;
  }
}

/* A thread's 4 x 4 sums, of channels from `row` on and of four columns: to the weight, or to its run's part */
template <class T>
__device__ __forceinline__ void store_sums(const T (&acc)[4][4], const conv_args &conv, const block_tile &tile, int row,
                                           const column *four, T *part, int columns)
{
#pragma unroll
  for (int i = 0; i < 4; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const column &q = four[j];
      if (row + i >= conv.rows || !q.there) continue;
      int64_t r = (int64_t)tile.group * conv.rows + row + i;
      if (part) part[(tile.cut * (int64_t)conv.groups * conv.rows + r) * columns + q.weight] = acc[i][j];
      else conv_store(conv.w.p, conv.w.dtype, r * conv.w.stride[0] + q.weight, acc[i][j]);
    }
  }
}

/* A block makes 64 channels of the gradient x 64 columns of one run: places of its columns once, then piece by piece
** the pixels, both tiles, their product. x is the input, y the gradient, w the result. part: sums of a run for every
** weight in C order, NULL: results at once */
template <class T, bool INSIDE>
__global__ void __launch_bounds__(THREADS)
    sums(const conv_args conv, const cuts runs, T *part, int tiles_r, int tiles_c, int64_t total)
{
  alignas(16) __shared__ conv_tile<T> left;
  alignas(16) __shared__ conv_tile<T> right;
  __shared__ pixel pix[DEPTH];
  __shared__ column col[TILE];
  int tid = threadIdx.x, tx = tid & 15, ty = tid >> 4, taps = conv.w.size[0] * conv.w.size[1] * conv.w.size[2],
      columns = conv.chans * taps;
  for (int64_t b = blockIdx.x; b < total; b += gridDim.x) {
    const block_tile tile = tile_of(b, conv, runs, tiles_r, tiles_c);
    __syncthreads();
    if (tid < TILE) col[tid] = column_of<INSIDE>(conv, tile.group, tile.column + tid, columns, taps, part != NULL);
    T acc[4][4] = {};
    for (int64_t k0 = tile.begin; k0 < tile.end; k0 += DEPTH) {
      if (tid < DEPTH) pix[tid] = pixel_of(conv, tile, k0 + tid);
      __syncthreads();
      load_tiles<T, INSIDE>(left, right, conv, pix, col, tile.row);
      __syncthreads();
      conv_multiply<T>(acc, left, right, ty * 4, tx * 4);
    }
    __syncthreads();
    store_sums<T>(acc, conv, tile, tile.row + ty * 4, col + tx * 4, part, columns);
  }
}

/* LANES neighbouring channels of the gradient (32 or 1) a block, the block's other threads share the pixels */
template <class T, int LANES>
__global__ void __launch_bounds__(THREADS)
    direct(const conv_args conv, const cuts runs, T *part, int64_t bundles, int64_t total)
{
  __shared__ T sum[THREADS];
  int taps = conv.w.size[0] * conv.w.size[1] * conv.w.size[2], lane = threadIdx.x % LANES, slot = threadIdx.x / LANES;
  enum { SLOTS = THREADS / LANES };
  for (int64_t b = blockIdx.x; b < total; b += gridDim.x) {
    int64_t tile = b;
    int tap = (int)(tile % taps);
    tile /= taps;
    int c = (int)(tile % conv.chans);
    tile /= conv.chans;
    int64_t row = tile % bundles * LANES + lane;
    int cut = (int)(tile / bundles);
    int64_t q0 = cut * runs.run, q1 = q0 + runs.run < runs.pixels ? q0 + runs.run : runs.pixels, g = row / conv.rows;
    int x = tap % conv.w.size[2], y = tap / conv.w.size[2] % conv.w.size[1], z = tap / conv.w.size[2] / conv.w.size[1];
    bool there = row < (int64_t)conv.groups * conv.rows;
    const int64_t input_at = (g * conv.chans + c) * conv.x.stride[1], grad_at = row * conv.y.stride[1];
    T sum_here = 0;
    if (there)
      for (int64_t q = q0 + slot; q < q1; q += SLOTS) {
        int64_t n;
        int oz, oy, ox;
        unfold(conv, q, &n, &oz, &oy, &ox);
        int iz = oz * conv.s[0] - conv.p[0] + z * conv.d[0], iy = oy * conv.s[1] - conv.p[1] + y * conv.d[1],
            ix = ox * conv.s[2] - conv.p[2] + x * conv.d[2];
        if (!conv_covers(conv, iz, iy, ix)) continue;
        sum_here += conv_load(T(0), conv.y.p, conv.y.dtype,
                              grad_at + n * conv.y.stride[0] + oz * conv.y.stride[2] + oy * conv.y.stride[3]
                                  + ox * conv.y.stride[4])
                    * conv_load(T(0), conv.x.p, conv.x.dtype,
                                input_at + n * conv.x.stride[0] + iz * conv.x.stride[2] + iy * conv.x.stride[3]
                                    + ix * conv.x.stride[4]);
      }
    if (LANES == 1) sum_here = amp_reduce_block<amp_sum>(sum_here, (T)0);
    else {
      __syncthreads();
      sum[threadIdx.x] = sum_here;
      __syncthreads();
      for (int half = SLOTS / 2; half > 0; half /= 2) {
        if (slot < half) sum[threadIdx.x] += sum[threadIdx.x + half * LANES];
        __syncthreads();
      }
      sum_here = sum[lane];
    }
    if (slot == 0 && there) {
      if (part) part[((cut * (int64_t)conv.groups * conv.rows + row) * conv.chans + c) * taps + tap] = sum_here;
      else
        conv_store(conv.w.p, conv.w.dtype,
                   row * conv.w.stride[0] + c * conv.w.stride[1] + z * conv.w.stride[2] + y * conv.w.stride[3]
                       + x * conv.w.stride[4],
                   sum_here);
    }
  }
}

/* The runs' sums, in order, to the weight */
template <class T> __global__ void __launch_bounds__(256) gather(const T *part, int count, const amp_arg w)
{
  AMP_FOR(i, w.numel)
  {
    T v = 0;
    for (int k = 0; k < count; k++) v += part[k * w.numel + i];
    amp_store<T>(w.p, w.dtype, amp_offset(w, i), v);
  }
}

template <class T> static int run(const conv_args &conv, const amp_tensor *input, amp_tensor *weight)
{
  bool last = conv_inside(input), few = conv.rows < FEW;
  int taps = conv.w.size[0] * conv.w.size[1] * conv.w.size[2], sms = amp__cuda_here()->sms;
  int64_t channels = (int64_t)conv.groups * conv.rows, bundles = last ? (channels + 31) / 32 : channels;
  int tiles_r = (conv.rows + TILE - 1) / TILE, tiles_c = (int)(((int64_t)conv.chans * taps + TILE - 1) / TILE);
  int64_t blocks = few ? bundles * conv.chans * taps : (int64_t)tiles_r * tiles_c * conv.groups;
  cuts runs = { conv.n * conv.y.size[0] * conv.y.size[1] * conv.y.size[2], 0, 1 };
  int64_t most = runs.pixels / 512, want = ((int64_t)sms * 4 + blocks - 1) / blocks,
          memory = ((int64_t)256 << 20) / (weight->numel * (int64_t)sizeof(T));
  if (want > most) want = most;
  if (want > memory) want = memory;
  if (want < 1) want = 1;
  runs.run = ((runs.pixels + want - 1) / want + DEPTH - 1) / DEPTH * DEPTH;
  runs.count = (int32_t)((runs.pixels + runs.run - 1) / runs.run);
  amp_tensor *scratch = NULL;
  T *part = NULL;
  if (runs.count > 1) {
    if ((scratch = amp__cuda_scratch((size_t)(runs.count * weight->numel) * sizeof(T))) == NULL) return AMP_E_MEMORY;
    part = (T *)amp__data(scratch);
  }
  int64_t total = blocks * runs.count;
  unsigned grid = (unsigned)(total < 1 << 30 ? total : 1 << 30);
  if (few && last) AMP_LAUNCH((direct<T, 32>), grid, THREADS, 0, conv, runs, part, bundles, total);
  else if (few) AMP_LAUNCH((direct<T, 1>), grid, THREADS, 0, conv, runs, part, bundles, total);
  else if (last) AMP_LAUNCH((sums<T, true>), grid, THREADS, 0, conv, runs, part, tiles_r, tiles_c, total);
  else AMP_LAUNCH((sums<T, false>), grid, THREADS, 0, conv, runs, part, tiles_r, tiles_c, total);
  if (part) AMP_LAUNCH((gather<T>), amp_grid(weight->numel, 256), 256, 0, part, (int)runs.count, amp_arg_of(weight));
  amp__free(scratch);
  return 0;
}

} // namespace

/* c: grad input; shape, then the attributes */
extern "C" int amp__cuda_conv_plain_weight(amp_call *c)
{
  amp_tensor *grad = c->in[0], *input = c->in[1], *weight = c->out[0];
  conv_args conv;
  if (weight->numel == 0) return 0;
  if (grad->numel == 0 || input->numel == 0) return amp__cuda_fill_value(weight, 0);
  memset((void *)&conv, 0, sizeof conv);
  conv_attributes(&conv, AMP_ARGS(c, convolution_weight), input->ndim - 2);
  conv.x = conv_side_of(input);
  conv.y = conv_side_of(grad);
  conv.w = conv_side_of(weight);
  conv.n = input->size[0];
  conv.rows = (int32_t)(weight->size[0] / conv.groups);
  conv.chans = (int32_t)weight->size[1];
  if ((int64_t)conv.chans * conv.w.size[0] * conv.w.size[1] * conv.w.size[2] > INT32_MAX)
    return amp__fail(AMP_E_UNSUPPORTED, "convolution on the GPU with %lld weights a channel",
                     (long long)(weight->numel / weight->size[0]));
  return weight->dtype == AMP_FLOAT64 ? run<double>(conv, input, weight) : run<float>(conv, input, weight);
}
