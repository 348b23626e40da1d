/*
** create.cu: tensors made out of attributes: empty, full, arange, linspace,
** logspace, eye, indices of triangles. Values are computed in double (whole steps
** in int64) and rounded once, as on the CPU.
**
** A thread makes an element; nothing is read, so writing (4 bytes in float32) bounds it.
*/
#include "common/kernel.cuh"

namespace {

typedef struct series {
  double start, step, end, base;
  int64_t n, istart, istep;
  int32_t kind;
} series;
enum { WHOLE, STEPS, ENDS, POWERS };

__global__ void fill_series(char *p, int dtype, int64_t stride, const series s)
{
  AMP_FOR(i, s.n)
  {
    if (s.kind == WHOLE) {
      amp_store<int64_t>(p, dtype, i * stride, s.istart + i * s.istep);
      continue;
    }
    double v;
    if (s.kind == STEPS) v = __dadd_rn(s.start, __dmul_rn((double)i, s.step));
    else
      v = i < (s.n + 1) / 2 ? __dadd_rn(s.start, __dmul_rn((double)i, s.step))
                            : __dadd_rn(s.end, -__dmul_rn((double)(s.n - 1 - i), s.step));
    amp_store<double>(p, dtype, i * stride, s.kind == POWERS ? pow(s.base, v) : v);
  }
}

__global__ void ones_on_diagonal(char *p, int dtype, int64_t step, int64_t n)
{
  AMP_FOR(i, n) amp_store<double>(p, dtype, i * step, 1.0);
}

/* Element k of a triangle, row by row: rows that are cut off at the left have a growing number of elements, then all.
 */
__global__ void triangle(char *p, int dtype, int64_t s0, int64_t s1, int64_t rows, int64_t cols, int64_t offset,
                         int lower)
{
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    int64_t before = 0; /* elements of the rows above */
    for (int64_t q = 0; q < r; q++) {
      int64_t from = lower || q + offset < 0 ? 0 : q + offset, to = lower ? q + offset + 1 : cols;
      if (to > cols) to = cols;
      if (to > from) before += to - from;
    }
    int64_t from = lower || r + offset < 0 ? 0 : r + offset, to = lower ? r + offset + 1 : cols;
    if (to > cols) to = cols;
    for (int64_t j = from + threadIdx.x; j < to; j += blockDim.x) {
      amp_store<int64_t>(p, dtype, (before + j - from) * s1, r + 1);
      amp_store<int64_t>(p, dtype, s0 + (before + j - from) * s1, j + 1);
    }
  }
}

static int run(amp_tensor *o, const series &s)
{
  if (o->numel > 0)
    AMP_LAUNCH(fill_series, amp_grid(o->numel, 256), 256, 0, (char *)amp__data(o), (int)o->dtype, o->stride[0], s);
  return 0;
}

/* args: of either row */
template <class ARGS> static int triangle_indices(amp_call *c, const ARGS *args, int lower)
{
  amp_tensor *o = c->out[0];
  if (o->numel > 0)
    AMP_LAUNCH(triangle, amp_grid(args->row, 1), 128, 0, (char *)amp__data(o), (int)o->dtype, o->stride[0],
               o->stride[1], args->row, args->col, args->offset, lower);
  return 0;
}

} // namespace

extern "C" {

int amp__cuda_empty(amp_call *) { return 0; }
int amp__cuda_full(amp_call *c) { return amp__cuda_fill_value(c->out[0], AMP_ARGS(c, full)->value); }

int amp__cuda_arange(amp_call *c)
{
  const args_arange *args = AMP_ARGS(c, arange);
  amp_tensor *o = c->out[0];
  series s = { args->start, args->step, 0, 0, o->numel, 0, 0, STEPS };
  if (amp__is_int(o->dtype) && s.start == floor(s.start) && s.step == floor(s.step) && fabs(s.start) < 0x1p62
      && fabs(s.step) < 0x1p62) {
    s.kind = WHOLE;
    s.istart = (int64_t)s.start;
    s.istep = (int64_t)s.step;
  }
  return run(o, s);
}

static series ends(double start, double end, int64_t n, int kind)
{
  series s = { start, 0, end, 10, n, 0, 0, kind };
  s.step = n > 1 ? (s.end - s.start) / (double)(n - 1) : 0;
  if (n == 1) s.end = s.start;
  return s;
}
int amp__cuda_linspace(amp_call *c)
{
  const args_linspace *args = AMP_ARGS(c, linspace);
  return run(c->out[0], ends(args->start, args->end, args->steps, ENDS));
}
int amp__cuda_logspace(amp_call *c)
{
  const args_logspace *args = AMP_ARGS(c, logspace);
  series s = ends(args->start, args->end, args->steps, POWERS);
  s.base = args->base;
  return run(c->out[0], s);
}

int amp__cuda_eye(amp_call *c)
{
  amp_tensor *o = c->out[0];
  int rc = amp__cuda_fill_value(o, 0);
  int64_t n = o->size[0] < o->size[1] ? o->size[0] : o->size[1];
  if (rc == 0 && n > 0)
    AMP_LAUNCH(ones_on_diagonal, amp_grid(n, 256), 256, 0, (char *)amp__data(o), (int)o->dtype,
               o->stride[0] + o->stride[1], n);
  return rc;
}

int amp__cuda_tril_indices(amp_call *c) { return triangle_indices(c, AMP_ARGS(c, tril_indices), 1); }
int amp__cuda_triu_indices(amp_call *c) { return triangle_indices(c, AMP_ARGS(c, triu_indices), 0); }
}
