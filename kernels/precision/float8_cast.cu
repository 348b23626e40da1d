/*
** float8_cast.cu: casts to 8 bits of matrices whose sizes are multiples of 16, as those of products are.
**
** A block casts a square of 128 x 128 elements, read once, 16 bytes a thread. Bytes go out along the rows as they come;
** for the transposed copy, which 8-bit units need for the other products, 4 rows make a word, words go through shared
** memory (a word more a column, so that neither side meets a bank twice) and out along the columns, 128 bytes at a
*time.
** Its own largest |x|, where the scale is of earlier steps,
** is taken on the way; else each block finds it among those that the blocks of the pass before it left. In 16 bits 4
*bytes move an element, 3
** without the transposed copy; the pass for the largest reads 2. Memory's speed bounds both.
*/
#include "precision/float8.cuh"

namespace {

enum { SIDE = 128, THREADS = 256, WORDS = SIDE / 4, GROUP = 4 };

struct cast_job {
  amp_f8_rows in;
  const float *history; /* NULL: its own largest is the scale's */
  int place, window;
  const float *part; /* [parts], whose largest is its own */
  int parts;
  bool noted; /* its own is found here, where earlier steps know of a largest */
  float *own, *largest;
  uint8_t *rows, *turned; /* NULL: not wanted */
};

/* For a whole block */
__device__ __forceinline__ float largest_part(const float *part, int parts)
{
  float most = 0.f;
  for (int i = (int)threadIdx.x; i < parts; i += THREADS) most = fmaxf(most, part[i]);
  return amp_reduce_block<amp_most>(most, 0.f);
}

/* 8 elements to 8 bytes */
__device__ __forceinline__ uint2 cast_eight(const float (&v)[8], const amp_f8_scaling &s, int format)
{
  uint2 bytes = { 0, 0 };
#pragma unroll
  for (int j = 0; j < 4; j++) {
    bytes.x |= amp_f8_round(v[j], s, format) << (8 * j);
    bytes.y |= amp_f8_round(v[j + 4], s, format) << (8 * j);
  }
  return bytes;
}

/* Byte j of 4 words, as a word */
__device__ __forceinline__ unsigned column(const unsigned (&w)[GROUP], int j)
{
  const int shift = 8 * j;
  return (w[0] >> shift & 0xffu) | (w[1] >> shift & 0xffu) << 8 | (w[2] >> shift & 0xffu) << 16
         | (w[3] >> shift & 0xffu) << 24;
}

/* 4 rows of 8 columns as 8 words of 4 rows */
__device__ __forceinline__ void turn_words(unsigned *to, const uint2 (&bytes)[GROUP])
{
  const unsigned low[GROUP] = { bytes[0].x, bytes[1].x, bytes[2].x, bytes[3].x },
                 high[GROUP] = { bytes[0].y, bytes[1].y, bytes[2].y, bytes[3].y };
#pragma unroll
  for (int j = 0; j < 4; j++) {
    to[j * (WORDS + 1)] = column(low, j);
    to[(j + 4) * (WORDS + 1)] = column(high, j);
  }
}

template <bool TURNED> __global__ void __launch_bounds__(THREADS) cast_square(const cast_job job)
{
  __shared__ unsigned words[TURNED ? SIDE * (WORDS + 1) : 1];
  const int format = job.in.format, dtype = job.in.dtype;
  const float before = job.history ? amp_f8_before(job.history, job.place, job.window) : 0.f;
  const float found = before > 0.f ? 0.f : largest_part(job.part, job.parts), largest = before > 0.f ? before : found;
  const bool noted = job.noted && before > 0.f;
  const amp_f8_scaling scaling = amp_f8_scaling_of(largest, format);
  const int64_t across = (job.in.cols + SIDE - 1) / SIDE, squares = (job.in.rows + SIDE - 1) / SIDE * across;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  float most = 0.f;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *job.largest = largest;
    if (!noted) *job.own = before > 0.f ? *job.part : found;
  }
  for (int64_t square = blockIdx.x; square < squares; square += gridDim.x) {
    const int64_t row0 = square / across * SIDE, col0 = square % across * SIDE;
    /* a warp has 32 columns, 8 a lane, and 32 rows, 4 a lane */
    const int64_t col = col0 + (warp & 3) * 32 + (lane & 3) * 8;
#pragma unroll 1
    for (int part = 0; part < 2; part++) {
      const int at = (warp >> 2) * 32 + part * 64 + (lane >> 2) * GROUP;
      const int64_t row = row0 + at;
      if (row >= job.in.rows || col >= job.in.cols) continue;
      amp_raw raw[GROUP];
      uint2 bytes[GROUP];
#pragma unroll
      for (int i = 0; i < GROUP; i++) amp_ask(raw[i], job.in.from, dtype, (row + i) * job.in.stride + col);
#pragma unroll
      for (int i = 0; i < GROUP; i++) {
        float v[8];
        amp_f8_take(v, raw[i], job.in);
        if (noted) {
#pragma unroll
          for (int j = 0; j < 8; j++) most = fmaxf(most, amp_f8_size(v[j]));
        }
        bytes[i] = cast_eight(v, scaling, format);
        if (job.rows) *(uint2 *)(job.rows + (row + i) * job.in.cols + col) = bytes[i];
      }
      if (TURNED) turn_words(words + (int)(col - col0) * (WORDS + 1) + at / GROUP, bytes);
    }
    if (TURNED) {
      __syncthreads();
      for (int c = warp; c < SIDE && col0 + c < job.in.cols; c += THREADS / 32)
        if (row0 + lane * 4 < job.in.rows)
          *(unsigned *)(job.turned + (col0 + c) * job.in.rows + row0 + lane * 4) = words[c * (WORDS + 1) + lane];
      __syncthreads();
    }
  }
  if (noted) {
    most = amp_reduce_block<amp_most>(most, 0.f);
    if (threadIdx.x == 0) atomicMax((unsigned *)job.own, __float_as_uint(most));
  }
}

/* The largest of what a block reads, each; nothing is read where earlier steps know of one: the cast finds it then. */
__global__ void __launch_bounds__(THREADS)
    find_largest(const amp_f8_rows in, const float *history, int place, int window, float *part, float *own)
{
  if (history && amp_f8_before(history, place, window) > 0.f) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *own = 0.f;
    return;
  }
  const int64_t width = in.cols / 8, n = in.rows * width, step = (int64_t)gridDim.x * THREADS;
  const bool whole = in.stride == in.cols;
  float most = 0.f;
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += 4 * step) {
    amp_raw raw[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int64_t at = i + k * step;
      if (at < n) amp_ask(raw[k], in.from, in.dtype, whole ? at * 8 : at / width * in.stride + at % width * 8);
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
      if (i + k * step >= n) continue;
      float v[8];
      amp_f8_take(v, raw[k], in);
#pragma unroll
      for (int j = 0; j < 8; j++) most = fmaxf(most, amp_f8_size(v[j]));
    }
  }
  most = amp_reduce_block<amp_most>(most, 0.f);
  if (threadIdx.x == 0) part[blockIdx.x] = most;
}

} // namespace

/* Rows as quick casts take them, of a matrix or (turned) of its transpose; false: it lies otherwise. */
static bool rows_of(const amp_tensor *t, int format, amp_f8_rows *in, bool *turned)
{
  const int of_rows = t->stride[1] == 1 ? 0 : 1;
  *turned = of_rows == 1;
  in->from = amp__data(t);
  in->rows = t->size[of_rows];
  in->cols = t->size[!of_rows];
  in->stride = t->stride[of_rows];
  in->dtype = t->dtype;
  in->format = format;
  in->function = OF_NONE;
  const bool plain = t->dtype == AMP_FLOAT32 || t->dtype == AMP_FLOAT16 || t->dtype == AMP_BFLOAT16;
  return plain && t->numel > 0 && t->stride[!of_rows] == 1 && in->rows % 16 == 0 && in->cols % 16 == 0
         && in->stride % 8 == 0 && in->stride >= in->cols && ((uintptr_t)in->from & 15) == 0;
}

extern "C" int amp__cuda_float8_quick_pieces(const amp_f8_rows *in, bool turned, float *largest, uint8_t *to);
/* By the kernels for sizes of products; 1: not one of theirs */
extern "C" int amp__cuda_float8_quick(amp_call *c);
extern "C" int amp__cuda_float8_quick(amp_call *c)
{
  const args_float8_quantize *args = AMP_ARGS(c, float8_quantize);
  amp_tensor *history = c->nin > 1 ? c->in[1] : NULL, *known = c->nin > 3 ? c->in[3] : NULL;
  cast_job job;
  bool turned;
  if ((c->nin > 2 && c->in[2]) || !rows_of(c->in[0], (int)args->format, &job.in, &turned)) return 1;
  if (args->block && args->of != OF_NONE) return 1;
  if (args->block)
    return amp__cuda_float8_quick_pieces(&job.in, turned, (float *)amp__data(c->out[1]),
                                         (uint8_t *)amp__data(c->out[0]));
  job.in.function = (int)args->of;
  uint8_t *to = (uint8_t *)amp__data(c->out[0]), *other = args->both ? (uint8_t *)amp__data(c->out[3]) : NULL;
  const unsigned blocks = known ? 1 : amp_grid(job.in.rows * job.in.cols, THREADS * 32, 8);
  amp_tensor *parts = known ? NULL : amp__cuda_scratch(blocks * sizeof(float));
  if (!known && !parts) return AMP_E_MEMORY;
  job.history = history ? (const float *)amp__data(history) : NULL;
  job.place = (int)args->place;
  job.window = (int)args->window;
  job.part = (const float *)amp__data(known ? known : parts);
  job.parts = (int)blocks;
  job.noted = history && !known;
  job.own = (float *)amp__data(c->out[2]);
  job.largest = (float *)amp__data(c->out[1]);
  job.rows = turned ? other : to;
  job.turned = turned ? to : other;
  const int64_t squares = (job.in.rows + SIDE - 1) / SIDE * ((job.in.cols + SIDE - 1) / SIDE);
  if (!known)
    AMP_LAUNCH(find_largest, blocks, THREADS, 0, job.in, job.history, job.place, job.window, (float *)amp__data(parts),
               job.own);
  /* a block begins by looking for the scale: the blocks that are on the card at once do all squares */
  if (job.turned) AMP_LAUNCH(cast_square<true>, amp_grid(squares, 1, 3), THREADS, 0, job);
  else AMP_LAUNCH(cast_square<false>, amp_grid(squares, 1, 3), THREADS, 0, job);
  amp__free(parts);
  return 0;
}
