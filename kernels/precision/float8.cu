/*
** float8.cu: casts to 8 bits by a scale, and what stands around an 8-bit product on cards without such units.
**
** The casts here are of matrices as they may lie; those of products' sizes go by float8_cast.cu and float8_pieces.cu.
*Of
** a whole matrix the largest |x| takes a pass of its own, which reads each element once, and one block that looks into
** the history; the cast reads once more and writes a byte. By pieces of 128 a block reads its piece once, into
*registers.
*/
#include "precision/float8.cuh"
#include "cuda/cuda_gemm.h"

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

__device__ __forceinline__ void count(double *counts, double x, double scale, uint8_t bits, int format)
{
  const double size = fabs(x * scale);
  if (size > amp_f8_most(format) * (1 + 0x1p-40) && size <= AMP_DOUBLE_MOST) atomicAdd(counts + 1, 1.0);
  if (x != 0 && (bits & 0x7f) == 0) atomicAdd(counts + 2, 1.0);
}

/* Floats that are not negative grow as their patterns do. */
__global__ void __launch_bounds__(256) find_largest(const matrix m, unsigned *largest)
{
  float most = 0.f;
  AMP_FOR(i, m.rows * m.cols) most = amp_most::of(most, amp_f8_size(at(m, i / m.cols, i % m.cols)));
  most = amp_reduce_block<amp_most>(most, 0.f);
  if (threadIdx.x == 0) atomicMax(largest, __float_as_uint(most));
}

/* One block: the largest of earlier steps, or this one's. */
__global__ void look_back(float *largest, const float *own, const float *history, int place, int window)
{
  const float most = amp_f8_before(history, place, window);
  if (threadIdx.x == 0) *largest = most > 0.f ? most : *own;
}

/* [rows, cols] -> [cols, rows] */
__global__ void __launch_bounds__(256) turn(const uint8_t *from, uint8_t *to, int64_t rows, int64_t cols)
{
  AMP_FOR(i, rows * cols) to[i] = from[i % rows * cols + i / rows];
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
  const double scale = amp_f8_scale(*largest, amp_f8_most(format));
  AMP_FOR(i, m.rows * m.cols)
  {
    const double x = at(m, i / m.cols, i % m.cols);
    const uint8_t bits = amp_f8_cast(x, scale, format);
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
    const float most = amp_reduce_block<amp_most>(amp_f8_size(x), 0.f);
    const double scale = amp_f8_scale(most, amp_f8_most(format));
    if (threadIdx.x == 0) largest[p] = most;
    if (col < m.cols) {
      const uint8_t bits = amp_f8_cast(x, scale, format);
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
    to[i] = largest ? (float)(x / amp_f8_scale(largest[row * pieces + col / PIECE], amp_f8_most(m.dtype))) : x;
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
      = e.a ? 1 / amp_f8_scale(*e.a, amp_f8_most(e.input_format)) / amp_f8_scale(*e.b, amp_f8_most(e.other_format))
            : 1.0;
  AMP_FOR(i, e.n)
  {
    double v = e.sums[i] * factor;
    if (e.bias) v += amp_load<double>(e.bias, e.bias_dtype, i % e.cols * e.bias_stride);
    amp_store<double>(to, e.base, i, v);
  }
}

/* By what a product is to be multiplied, and 1, for units that take two factors by pointers. */
__global__ void join(const float *a, const float *b, double a_most, double b_most, float *to)
{
  if (blockIdx.x || threadIdx.x) return;
  to[0] = (float)(1 / amp_f8_scale(*a, a_most) / amp_f8_scale(*b, b_most));
  to[4] = 1.f;
}

} // namespace

extern "C" int amp__cuda_float8_factor(const amp_tensor *a, const amp_tensor *b, double a_most, double b_most,
                                       float *to);
extern "C" int amp__cuda_float8_factor(const amp_tensor *a, const amp_tensor *b, double a_most, double b_most,
                                       float *to)
{
  AMP_LAUNCH(join, 1, 32, 0, (const float *)amp__data(a), (const float *)amp__data(b), a_most, b_most, to);
  return 0;
}

/* A cast of a whole matrix as it may lie */
static int whole(amp_call *c, const matrix &m, double *cells)
{
  const args_float8_quantize *args = AMP_ARGS(c, float8_quantize);
  amp_tensor *history = c->nin > 1 ? c->in[1] : NULL, *known = c->nin > 3 ? c->in[3] : NULL;
  float *largest = (float *)amp__data(c->out[1]), *own = (float *)amp__data(c->out[2]);
  const int64_t n = m.rows * m.cols;
  int rc = known ? amp__cuda_check(
               cudaMemcpyAsync(own, amp__data(known), sizeof *own, cudaMemcpyDeviceToDevice, amp__cuda_stream()),
               "a copy of a largest value")
                 : amp__cuda_fill_value(c->out[2], 0);
  if (rc < 0) return rc;
  if (n && !known) AMP_LAUNCH(find_largest, amp_grid(n, 1024, 8), 256, 0, m, (unsigned *)own);
  AMP_LAUNCH(look_back, 1, 32, 0, largest, (const float *)own,
             history ? (const float *)amp__data(history) : (const float *)NULL, (int)args->place, (int)args->window);
  if (n)
    AMP_LAUNCH(cast_matrix, amp_grid(n, 1024, 16), 256, 0, m, (const float *)largest, (uint8_t *)amp__data(c->out[0]),
               (int)args->format, cells);
  return 0;
}

/* A cast of a matrix that lies as products' do (float8_cast.cu): 0 done, 1 it lies otherwise */
extern "C" int amp__cuda_float8_quick(amp_call *c);
/* By 8-bit units: 0 done, 1 there are none for this, <0 an error */
extern "C" int amp__cuda_float8_lt(amp_call *c);

extern "C" {

static int quantize(amp_call *c)
{
  const args_float8_quantize *args = AMP_ARGS(c, float8_quantize);
  const matrix m = matrix_of(c->in[0]);
  amp_tensor *counts = c->nin > 2 ? c->in[2] : NULL;
  double *cells = counts ? (double *)amp__data(counts) : NULL;
  uint8_t *to = (uint8_t *)amp__data(c->out[0]);
  const int64_t n = m.rows * m.cols;
  int rc = 0;
  if (args->block) {
    const int64_t pieces = amp__float8_pieces(m.cols);
    if (n)
      AMP_LAUNCH(cast_pieces, amp_grid(m.rows * pieces, 1, 64), PIECE, 0, m, (float *)amp__data(c->out[1]), to,
                 (int)args->format, pieces, cells);
  } else if ((rc = whole(c, m, cells)) < 0) return rc;
  if (args->both && n)
    AMP_LAUNCH(turn, amp_grid(n, 1024, 16), 256, 0, (const uint8_t *)to, (uint8_t *)amp__data(c->out[3]), m.rows,
               m.cols);
  if (cells) AMP_LAUNCH(add_count, 1, 32, 0, cells, (double)n);
  return 0;
}

int amp__cuda_float8_quantize(amp_call *c)
{
  const int64_t function = AMP_ARGS(c, float8_quantize)->of;
  int rc = amp__cuda_float8_quick(c);
  if (rc != 1) return rc;
  if (function == OF_NONE) return quantize(c);
  amp_tensor *input = c->in[0];
  amp_slot approximate;
  approximate.i = function == OF_GELU_TANH ? APPROXIMATE_TANH : APPROXIMATE_NONE;
  amp_tensor *made = amp__cuda_op(AMP_OP_gelu, &input, 1, &approximate);
  c->in[0] = made;
  rc = made ? quantize(c) : AMP_E_MEMORY;
  c->in[0] = input;
  amp__free(made);
  return rc;
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

/* a b^T in float32, of operands of one dtype, which goes with the end */
static amp_tensor *sums_of(amp_tensor *a, amp_tensor *b)
{
  const int64_t size[2] = { a->size[0], b->size[0] };
  amp_tensor *sums = amp__cuda_make(AMP_FLOAT32, 2, size);
  amp_product p;
  if (!sums) return NULL;
  memset((void *)&p, 0, sizeof p);
  p.dtype = a->dtype;
  p.wide = a->dtype != AMP_FLOAT32;
  p.m = a->size[0];
  p.n = b->size[0];
  p.k = a->size[1];
  p.a = (const char *)amp__data(a);
  p.b = (const char *)amp__data(b);
  p.c = (char *)amp__data(sums);
  p.ars = a->stride[0];
  p.acs = a->stride[1];
  p.brs = b->stride[1];
  p.bcs = b->stride[0];
  p.crs = p.n;
  p.ccs = 1;
  if (sums->numel == 0 || amp__cuda_gemm(&p) == 0) return sums;
  amp__free(sums);
  return NULL;
}

/* By 16-bit units, which hold each value of 8 bits as it is, where an operand has one scale; pieces are divided by
** theirs, in float32. What is made goes with the end. */
int amp__cuda_float8_mm(amp_call *c)
{
  int rc = amp__cuda_float8_lt(c);
  if (rc != 1) return rc;
  const bool whole = c->in[2]->ndim == 1;
  amp_tensor *left[2] = { c->in[0], c->in[2] }, *right[2] = { c->in[1], c->in[3] };
  amp_slot half, slots[3];
  half.i = AMP_FLOAT16;
  amp_tensor *a = whole ? amp__cuda_op(AMP_OP_cast, left, 1, &half) : amp__cuda_op(AMP_OP_float8_expand, left, 2, NULL);
  amp_tensor *b = !a      ? NULL
                  : whole ? amp__cuda_op(AMP_OP_cast, right, 1, &half)
                          : amp__cuda_op(AMP_OP_float8_expand, right, 2, NULL);
  amp_tensor *sums = b ? sums_of(a, b) : NULL;
  rc = AMP_E_MEMORY;
  if (sums) {
    amp_tensor *ends[4] = { sums, c->in[2], c->in[3], c->nin > 4 ? c->in[4] : NULL };
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
