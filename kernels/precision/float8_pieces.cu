/*
** float8_pieces.cu: casts to 8 bits where each piece of 128 elements of a row has a scale of its own, of matrices whose
** sizes are multiples of 16, as those of products are; and the scales of pieces as 8-bit units take them.
**
** Along rows as they lie in memory a warp has a piece, 4 elements a lane, read once and reduced by shuffles. Along
*columns
** (a product that sums over the rows) a block has 128 rows of 64 columns: a thread 4 rows of 8 columns, in registers;
*the
** largest |x| of a column is found by shuffles over a warp's 16 rows and shared memory over 8 warps; bytes then go
** through shared memory, as in float8_cast.cu, and out 128 at a time. In 16 bits 3 bytes move an element: memory's
*speed
** bounds both.
*/
#include "precision/float8.cuh"

namespace {

enum { PIECE = AMP_FLOAT8_PIECE, THREADS = 256, WARPS = THREADS / 32, COLUMNS = 64, WORDS = PIECE / 4, GROUP = 4 };

__global__ void __launch_bounds__(THREADS) cast_along(const amp_f8_rows in, float *largest, uint8_t *to, int64_t pieces)
{
  const int lane = threadIdx.x & 31;
  for (int64_t p = (int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5); p < in.rows * pieces;
       p += (int64_t)gridDim.x * WARPS) {
    const int64_t row = p / pieces, col = p % pieces * PIECE + lane * 4, at = row * in.stride + col;
    const bool inside = col < in.cols;
    float v[4] = { 0.f, 0.f, 0.f, 0.f }, most = 0.f;
    if (inside && in.dtype == AMP_FLOAT32) {
      const float4 w = *(const float4 *)((const float *)in.from + at);
      v[0] = w.x;
      v[1] = w.y;
      v[2] = w.z;
      v[3] = w.w;
    } else if (inside) {
      const uint2 w = *(const uint2 *)((const uint16_t *)in.from + at);
      const uint16_t h[4] = { (uint16_t)w.x, (uint16_t)(w.x >> 16), (uint16_t)w.y, (uint16_t)(w.y >> 16) };
#pragma unroll
      for (int j = 0; j < 4; j++) v[j] = in.dtype == AMP_FLOAT16 ? amp_h2f(h[j]) : amp_bf2f(h[j]);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) most = fmaxf(most, amp_f8_size(v[j]));
    most = amp_reduce_warp<amp_most>(most);
    const amp_f8_scaling s = amp_f8_scaling_of(most, in.format);
    if (lane == 0) largest[p] = most;
    if (!inside) continue;
    unsigned bytes = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) bytes |= amp_f8_round(v[j], s, in.format) << (8 * j);
    *(unsigned *)(to + row * in.cols + col) = bytes;
  }
}

/* Of `in`, whose columns are rows here: to [cols, rows], largest [cols, pieces of rows] */
__global__ void __launch_bounds__(THREADS)
    cast_across(const amp_f8_rows in, float *largest, uint8_t *to, int64_t pieces, int64_t across)
{
  __shared__ float part[WARPS][COLUMNS];
  __shared__ amp_f8_scaling scaling[COLUMNS];
  __shared__ unsigned words[COLUMNS * (WORDS + 1)];
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, at = warp * 16 + (lane >> 3) * GROUP;
  const int64_t piece = blockIdx.x / across, row0 = piece * PIECE, col0 = blockIdx.x % across * COLUMNS,
                row = row0 + at, col = col0 + (lane & 7) * 8;
  const bool inside = row < in.rows && col < in.cols;
  amp_raw raw[GROUP];
  float most[8];
#pragma unroll
  for (int j = 0; j < 8; j++) most[j] = 0.f;
  if (inside) {
#pragma unroll
    for (int i = 0; i < GROUP; i++) amp_ask(raw[i], in.from, in.dtype, (row + i) * in.stride + col);
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
      float v[8];
      amp_take(v, raw[i], in.dtype);
#pragma unroll
      for (int j = 0; j < 8; j++) most[j] = fmaxf(most[j], amp_f8_size(v[j]));
    }
  }
#pragma unroll
  for (int j = 0; j < 8; j++) {
    most[j] = fmaxf(most[j], __shfl_xor_sync(0xffffffffu, most[j], 8));
    most[j] = fmaxf(most[j], __shfl_xor_sync(0xffffffffu, most[j], 16));
    if (lane < 8) part[warp][lane * 8 + j] = most[j];
  }
  __syncthreads();
  if (threadIdx.x < COLUMNS) {
    float all = 0.f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) all = fmaxf(all, part[w][threadIdx.x]);
    scaling[threadIdx.x] = amp_f8_scaling_of(all, in.format);
    if (col0 + threadIdx.x < in.cols) largest[(col0 + threadIdx.x) * pieces + piece] = all;
  }
  __syncthreads();
  if (inside) {
    unsigned word[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
      float v[8];
      amp_take(v, raw[i], in.dtype);
#pragma unroll
      for (int j = 0; j < 8; j++) word[j] |= amp_f8_round(v[j], scaling[(lane & 7) * 8 + j], in.format) << (8 * i);
    }
#pragma unroll
    for (int j = 0; j < 8; j++) words[((lane & 7) * 8 + j) * (WORDS + 1) + at / GROUP] = word[j];
  }
  __syncthreads();
  for (int c = warp; c < COLUMNS && col0 + c < in.cols; c += WARPS)
    if (row0 + lane * 4 < in.rows)
      *(unsigned *)(to + (col0 + c) * in.rows + row0 + lane * 4) = words[c * (WORDS + 1) + lane];
}

/* [rows, pieces] -> [pieces, rows]: what elements are to be multiplied by */
__global__ void __launch_bounds__(THREADS)
    invert_pieces(const float *largest, float *to, int64_t rows, int64_t pieces, double most)
{
  AMP_FOR(i, rows * pieces) to[i] = (float)(1 / amp_f8_scale(largest[i % rows * pieces + i / rows], most));
}

} // namespace

extern "C" int amp__cuda_float8_quick_pieces(const amp_f8_rows *in, bool turned, float *largest, uint8_t *to);
extern "C" int amp__cuda_float8_quick_pieces(const amp_f8_rows *in, bool turned, float *largest, uint8_t *to)
{
  if (turned) {
    const int64_t pieces = amp__float8_pieces(in->rows), across = (in->cols + COLUMNS - 1) / COLUMNS;
    AMP_LAUNCH(cast_across, (unsigned)(pieces * across), THREADS, 0, *in, largest, to, pieces, across);
  } else {
    const int64_t pieces = amp__float8_pieces(in->cols);
    AMP_LAUNCH(cast_along, amp_grid(in->rows * pieces, WARPS, 16), THREADS, 0, *in, largest, to, pieces);
  }
  return 0;
}

extern "C" int amp__cuda_float8_piece_factors(const amp_tensor *largest, double most, float *to);
extern "C" int amp__cuda_float8_piece_factors(const amp_tensor *largest, double most, float *to)
{
  AMP_LAUNCH(invert_pieces, amp_grid(largest->numel, 1024, 16), THREADS, 0, (const float *)amp__data(largest), to,
             largest->size[0], largest->size[1], most);
  return 0;
}
