/*
** float8.cu: casts to 8 bits by a scale, and what stands around an 8-bit product on cards without such units.
**
** A scale is the format's largest value / the largest |x|. Of a whole matrix that takes a pass of its own, which reads
** each element once, and one thread that looks into the history; the cast reads once more and writes a byte. By pieces
** of 128 a block reads its piece once, into registers. Memory's speed bounds all of them.
** Scales and x times them are taken in double, as on a processor, so that both round alike.
*/
#include "common/kernel.cuh"
#include "ops/matmul/float8.h"

namespace {

enum { PIECE = AMP_FLOAT8_PIECE };

struct matrix {
  const void *p;
  int64_t rows, cols, row_stride, col_stride;
  int dtype;
};
static matrix matrix_of(const amp_tensor *t)
{
  matrix m = { amp__data(t), t->size[0], t->size[1], t->stride[0], t->stride[1], t->dtype };
  return m;
}
__device__ __forceinline__ double at(const matrix &m, int64_t row, int64_t col)
{
  return amp_load<double>(m.p, m.dtype, row * m.row_stride + col * m.col_stride);
}

/* A finite |x| as a float, 0 for what is no number: the largest of an element type is one of float32 at most. */
__device__ __forceinline__ float size_of(double x)
{
  const double size = fabs(x);
  return !(size <= 1.7976931348623157e308) ? 0.f : size > 3.4028234663852886e38 ? 3.402823466e38f : (float)size;
}
__device__ __forceinline__ double scale_of(float largest, double most)
{
  return largest > 0.f ? most / (double)largest : 1.0;
}
__device__ __forceinline__ double most_of(int format) { return format == AMP_FLOAT8_E5M2 ? 57344.0 : 448.0; }

__device__ __forceinline__ uint8_t cast(double x, double scale, int format)
{
  const float v = fabs(x) <= 1.7976931348623157e308 ? amp_odd(x * scale) : __uint_as_float(0x7fc00000u);
  return amp_float_to_f8(v, format);
}

__device__ __forceinline__ void count(double *counts, double x, double scale, uint8_t bits, int format)
{
  const double size = fabs(x * scale);
  if (size > most_of(format) * (1 + 0x1p-40) && size <= 1.7976931348623157e308) atomicAdd(counts + 1, 1.0);
  if (x != 0 && (bits & 0x7f) == 0) atomicAdd(counts + 2, 1.0);
}

/* Floats that are not negative grow as their patterns do. */
__global__ void __launch_bounds__(256) find_largest(const matrix m, unsigned *largest)
{
  float most = 0.f;
  AMP_FOR(i, m.rows * m.cols) most = amp_most::of(most, size_of(at(m, i / m.cols, i % m.cols)));
  most = amp_reduce_block<amp_most>(most, 0.f);
  if (threadIdx.x == 0) atomicMax(largest, __float_as_uint(most));
}

/* One thread: the largest of earlier steps in place of this one's. */
__global__ void look_back(float *largest, float *own, const float *history, int place, int window)
{
  if (blockIdx.x || threadIdx.x) return;
  float most = 0.f;
  *own = *largest;
  for (int i = place + 1; history && i <= place + window; i++) most = amp_most::of(most, history[i]);
  if (most > 0.f) *largest = most;
}

__global__ void note(float *history, const float *own, int room, int shift, int place)
{
  if (blockIdx.x || threadIdx.x) return;
  if (shift) {
    for (int i = room - 1; i > 0; i--) history[i] = history[i - 1];
    history[0] = 0.f;
  }
  if (*own > history[place]) history[place] = *own;
}

__global__ void __launch_bounds__(256)
    cast_matrix(const matrix m, const float *largest, uint8_t *to, int format, double *counts)
{
  const double scale = scale_of(*largest, most_of(format));
  AMP_FOR(i, m.rows * m.cols)
  {
    const double x = at(m, i / m.cols, i % m.cols);
    const uint8_t bits = cast(x, scale, format);
    to[i] = bits;
    if (counts) count(counts, x, scale, bits, format);
  }
}

/* A block of PIECE threads has a piece at a time. */
__global__ void __launch_bounds__(PIECE)
    cast_pieces(const matrix m, float *largest, uint8_t *to, int format, int64_t pieces, double *counts)
{
  for (int64_t p = blockIdx.x; p < m.rows * pieces; p += gridDim.x) {
    const int64_t row = p / pieces, col = p % pieces * PIECE + threadIdx.x;
    const double x = col < m.cols ? at(m, row, col) : 0.0;
    const float most = amp_reduce_block<amp_most>(size_of(x), 0.f);
    const double scale = scale_of(most, most_of(format));
    if (threadIdx.x == 0) largest[p] = most;
    if (col < m.cols) {
      const uint8_t bits = cast(x, scale, format);
      to[row * m.cols + col] = bits;
      if (counts) count(counts, x, scale, bits, format);
    }
  }
}

__global__ void add_count(double *counts, double n)
{
  if (blockIdx.x == 0 && threadIdx.x == 0) counts[0] += n;
}

__global__ void __launch_bounds__(256) widen(const matrix m, const float *largest, float *to, int64_t pieces)
{
  AMP_FOR(i, m.rows * m.cols)
  {
    const int64_t row = i / m.cols, col = i % m.cols;
    const float x = amp_load<float>(m.p, m.dtype, row * m.row_stride + col * m.col_stride);
    to[i] = largest ? (float)(x / scale_of(largest[row * pieces + col / PIECE], most_of(m.dtype))) : x;
  }
}

struct ending {
  const float *sums, *a, *b; /* a: NULL: the operands were divided by their scales already */
  const void *bias;
  int bias_dtype, input_format, other_format, base;
  int64_t n, cols, bias_stride;
};
__global__ void __launch_bounds__(256) finish(const ending e, void *to)
{
  const double factor
      = e.a ? 1 / scale_of(*e.a, most_of(e.input_format)) / scale_of(*e.b, most_of(e.other_format)) : 1.0;
  AMP_FOR(i, e.n)
  {
    double v = e.sums[i] * factor;
    if (e.bias) v += amp_load<double>(e.bias, e.bias_dtype, i % e.cols * e.bias_stride);
    amp_store<double>(to, e.base, i, v);
  }
}

/* What each operand's elements are to be multiplied by, for units that take a scale by a pointer. */
__global__ void invert(const float *a, const float *b, double a_most, double b_most, float *to)
{
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    to[0] = (float)(1 / scale_of(*a, a_most));
    to[1] = (float)(1 / scale_of(*b, b_most));
  }
}

} // namespace

extern "C" int amp__cuda_float8_factors(const amp_tensor *a, const amp_tensor *b, double a_most, double b_most,
                                        float *to)
{
  AMP_LAUNCH(invert, 1, 32, 0, (const float *)amp__data(a), (const float *)amp__data(b), a_most, b_most, to);
  return 0;
}

/* By 8-bit units: 0 done, 1 there are none for this, <0 an error */
extern "C" int amp__cuda_float8_lt(amp_call *c);

extern "C" {

int amp__cuda_float8_quantize(amp_call *c)
{
  const args_float8_quantize *args = AMP_ARGS(c, float8_quantize);
  const matrix m = matrix_of(c->in[0]);
  amp_tensor *history = c->nin > 1 ? c->in[1] : NULL, *counts = c->nin > 2 ? c->in[2] : NULL;
  float *largest = (float *)amp__data(c->out[1]);
  double *cells = counts ? (double *)amp__data(counts) : NULL;
  uint8_t *to = (uint8_t *)amp__data(c->out[0]);
  const int64_t n = m.rows * m.cols;
  if (args->block) {
    const int64_t pieces = amp__float8_pieces(m.cols);
    if (n)
      AMP_LAUNCH(cast_pieces, amp_grid(m.rows * pieces, 1, 64), PIECE, 0, m, largest, to, (int)args->format, pieces,
                 cells);
  } else {
    int rc = amp__cuda_fill_value(c->out[1], 0);
    if (rc < 0) return rc;
    if (n) AMP_LAUNCH(find_largest, amp_grid(n, 1024, 8), 256, 0, m, (unsigned *)largest);
    AMP_LAUNCH(look_back, 1, 32, 0, largest, (float *)amp__data(c->out[2]),
               history ? (const float *)amp__data(history) : (const float *)NULL, (int)args->place, (int)args->window);
    if (n)
      AMP_LAUNCH(cast_matrix, amp_grid(n, 1024, 16), 256, 0, m, (const float *)largest, to, (int)args->format, cells);
  }
  if (cells) AMP_LAUNCH(add_count, 1, 32, 0, cells, (double)n);
  return 0;
}

int amp__cuda_float8_note(amp_call *c)
{
  const args_float8_note *args = AMP_ARGS(c, float8_note);
  AMP_LAUNCH(note, 1, 32, 0, (float *)amp__data(c->out[0]), (const float *)amp__data(c->in[1]), (int)c->out[0]->size[0],
             (int)args->shift, (int)args->place);
  return 0;
}

int amp__cuda_float8_expand(amp_call *c)
{
  const matrix m = matrix_of(c->in[0]);
  const amp_tensor *largest = c->in[1];
  if (m.rows * m.cols == 0) return 0;
  AMP_LAUNCH(widen, amp_grid(m.rows * m.cols, 1024, 16), 256, 0, m,
             largest->ndim == 2 ? (const float *)amp__data(largest) : (const float *)NULL,
             (float *)amp__data(c->out[0]), amp__float8_pieces(m.cols));
  return 0;
}

int amp__cuda_float8_finish(amp_call *c)
{
  const args_float8_finish *args = AMP_ARGS(c, float8_finish);
  const amp_tensor *bias = c->nin > 3 ? c->in[3] : NULL;
  const bool whole = c->in[1]->ndim == 1;
  ending e = { (const float *)amp__data(c->in[0]),
               whole ? (const float *)amp__data(c->in[1]) : NULL,
               whole ? (const float *)amp__data(c->in[2]) : NULL,
               bias ? amp__data(bias) : NULL,
               bias ? (int)bias->dtype : (int)AMP_FLOAT32,
               (int)args->input_format,
               (int)args->other_format,
               c->out[0]->dtype,
               c->out[0]->numel,
               c->out[0]->size[1],
               bias ? bias->stride[0] : 0 };
  if (e.n == 0) return 0;
  AMP_LAUNCH(finish, amp_grid(e.n, 1024, 16), 256, 0, e, (void *)amp__data(c->out[0]));
  return 0;
}

/* Runs the rows that follow one another, on the calling state's stream; what they make goes with the end. */
int amp__cuda_float8_mm(amp_call *c)
{
  int rc = amp__cuda_float8_lt(c);
  if (rc != 1) return rc;
  amp_tensor *left[2] = { c->in[0], c->in[2] }, *right[2] = { c->in[1], c->in[3] };
  amp_tensor *a = amp__cuda_op(AMP_OP_float8_expand, left, 2, NULL);
  amp_tensor *b = a ? amp__cuda_op(AMP_OP_float8_expand, right, 2, NULL) : NULL;
  amp_slot dims[2];
  dims[0].i = 1;
  dims[1].i = 2;
  amp_tensor *turned = b ? amp__cuda_op(AMP_OP_transpose, &b, 1, dims) : NULL;
  amp_tensor *pair[2] = { a, turned };
  amp_tensor *sums = turned ? amp__cuda_op(AMP_OP_matmul, pair, 2, NULL) : NULL;
  rc = AMP_E_MEMORY;
  if (sums) {
    amp_tensor *ends[4] = { sums, c->in[2], c->in[3], c->nin > 4 ? c->in[4] : NULL };
    amp_slot slots[3];
    slots[0].i = c->in[0]->dtype;
    slots[1].i = c->in[1]->dtype;
    slots[2].i = c->out[0]->dtype;
    amp_call end = *c;
    end.in = ends;
    end.nin = 4;
    end.attrs = slots;
    rc = amp__cuda_float8_finish(&end);
  }
  amp__free(sums);
  amp__free(turned);
  amp__free(b);
  amp__free(a);
  return rc;
}

/* Only calls other rows, which the processor's kernel does for all devices (AMP_R_CALLS). */
int amp__cuda_float8_product(amp_call *c)
{
  return amp__fail(AMP_E_INTERNAL, "%s has no kernel here", c->op->info.name);
}
}
