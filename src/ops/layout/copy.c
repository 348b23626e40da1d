/*
** ops/layout/copy.c: copies between layouts and dtypes, and the kernels that are such:
** copy, clone, cast, fill, to_device, flip, cat, triangles, strided windows.
**
** A copy is the engine with no loop. Special cases within one dtype: all dense in
** one order is memcpy; rows that are dense (or reversed) in both go row by row; a
** transposition goes in blocks of whole cache lines, for else every element of a
** column costs a line. What an integer dtype cannot hold is looked for before
** anything is written.
*/
#include <math.h>
#include "cpu/transpose8.h"
#include "cpu/strided.h"
#include "cpu/vector_math.h"

/* -- Transposition --------------------------------------------------------------- */

enum { TILE = 32 };
typedef struct {
  char *dst;
  const char *src;
  int64_t rows, cols, dst_stride, src_stride;
  int element_size;
} transposition;

#define element uint8_t
#define TRANSPOSE transpose8
#include "ops/layout/transpose_body.h"

#define element uint16_t
#define TRANSPOSE transpose16
#include "ops/layout/transpose_body.h"

#define element uint64_t
#define TRANSPOSE transpose64
#include "ops/layout/transpose_body.h"

typedef uint32_t v8 __attribute__((vector_size(32), aligned(4), may_alias));

/* 8 x 8 words: swap neighbours, pairs, halves */
static inline __attribute__((always_inline)) void block8(uint32_t *dst, int64_t dst_stride, const uint32_t *src,
                                                         int64_t src_stride)
{
  v8 a[8], b[8];
  for (int i = 0; i < 8; i++) a[i] = *(const v8 *)(src + i * src_stride);
  for (int i = 0; i < 8; i += 2) {
    b[i] = AMP_SHUFFLE(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    b[i + 1] = AMP_SHUFFLE(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4)
    for (int k = 0; k < 2; k++) {
      a[i + 2 * k] = AMP_SHUFFLE(b[i + k], b[i + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      a[i + 2 * k + 1] = AMP_SHUFFLE(b[i + k], b[i + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int i = 0; i < 4; i++) {
    *(v8 *)(dst + i * dst_stride) = AMP_SHUFFLE(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    *(v8 *)(dst + (i + 4) * dst_stride) = AMP_SHUFFLE(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

/* Rows begin to end of dst in blocks of 16 x 16 words: whole lines read, whole lines written */
AMP_CLONES static void transpose32(const transposition *task, int64_t begin, int64_t end)
{
  uint32_t *dst = (uint32_t *)task->dst;
  const uint32_t *src = (const uint32_t *)task->src;
  int64_t row = begin, col;
  for (; row + 16 <= end; row += 16) {
    for (col = 0; col + 16 <= task->cols; col += 16)
      for (int k = 0; k < 4; k++) {
        int64_t i = row + (k & 1) * 8, j = col + (k >> 1) * 8;
        block8(dst + i * task->dst_stride + j, task->dst_stride, src + j * task->src_stride + i, task->src_stride);
      }
    for (; col < task->cols; col++)
      for (int i = 0; i < 16; i++) dst[(row + i) * task->dst_stride + col] = src[col * task->src_stride + row + i];
  }
  for (; row < end; row++)
    for (col = 0; col < task->cols; col++) dst[row * task->dst_stride + col] = src[col * task->src_stride + row];
}

static void transpose_part(int64_t begin, int64_t end, void *ctx)
{
  const transposition *task = ctx;
  switch (task->element_size) {
  case 1: transpose8(task, begin, end); return;
  case 2: transpose16(task, begin, end); return;
  case 4: transpose32(task, begin, end); return;
  default: transpose64(task, begin, end);
  }
}

/* Same dtype, dst dense along one dimension and src along another: true if done. */
static bool transpose(int ndim, const int64_t *size, char *dst, const int64_t *dst_stride, const char *src,
                      const int64_t *src_stride, int element_size)
{
  int i = -1, j = -1;
  int64_t rest[AMP_MAX_DIM], coords[AMP_MAX_DIM] = { 0 };
  int dim[AMP_MAX_DIM], n = 0;
  for (int d = 0; d < ndim; d++) {
    if (size[d] == 1) continue;
    if (dst_stride[d] == 1) i = d;
    else if (src_stride[d] == 1) j = d;
  }
  if (i < 0 || j < 0 || src_stride[i] == 0 || size[i] < 8 || size[j] < 8 || size[i] * size[j] < 1024) return false;
  for (int d = 0; d < ndim; d++)
    if (d != i && d != j && size[d] > 1) {
      dim[n] = d;
      rest[n++] = size[d];
    }
  transposition task = { dst, src, size[j], size[i], dst_stride[j], src_stride[i], element_size };
  for (;;) {
    amp__parallel(amp__threads(task.rows * task.cols * 2), task.rows, TILE, transpose_part, &task);
    int k = n - 1;
    for (; k >= 0; k--) {
      task.dst += dst_stride[dim[k]] * element_size;
      task.src += src_stride[dim[k]] * element_size;
      if (++coords[k] < rest[k]) break;
      task.dst -= rest[k] * dst_stride[dim[k]] * element_size;
      task.src -= rest[k] * src_stride[dim[k]] * element_size;
      coords[k] = 0;
    }
    if (k < 0) return true;
  }
}

/* -- Rows ---------------------------------------------------------------------------- */

typedef struct {
  char *dst;
  const char *src;
  int64_t run, size[AMP_MAX_DIM], dst_stride[AMP_MAX_DIM], src_stride[AMP_MAX_DIM]; /* strides in bytes */
  int ndim, element_size;
  bool reversed;
} rows;

#define REVERSED(T)                               \
  {                                               \
    T *d = (T *)dst;                              \
    const T *s = (const T *)src;                  \
    for (int64_t i = 0; i < n; i++) d[i] = s[-i]; \
    return;                                       \
  }
AMP_CLONES static void reverse(char *dst, const char *src, int64_t n, int element_size)
{
  switch (element_size) {
  case 1: REVERSED(uint8_t)
  case 2: REVERSED(uint16_t)
  case 4: REVERSED(uint32_t)
  default: REVERSED(uint64_t)
  }
}

static void rows_part(int64_t begin, int64_t end, void *ctx)
{
  const rows *task = ctx;
  int64_t coords[AMP_MAX_DIM], k = begin;
  char *dst = task->dst;
  const char *src = task->src;
  for (int i = task->ndim - 1; i >= 0; i--) {
    coords[i] = k % task->size[i];
    k /= task->size[i];
    dst += coords[i] * task->dst_stride[i];
    src += coords[i] * task->src_stride[i];
  }
  for (int64_t r = begin; r < end; r++) {
    if (task->reversed) reverse(dst, src, task->run, task->element_size);
    else memcpy(dst, src, (size_t)(task->run * task->element_size));
    for (int i = task->ndim - 1; i >= 0; i--) {
      dst += task->dst_stride[i];
      src += task->src_stride[i];
      if (++coords[i] < task->size[i]) break;
      dst -= task->size[i] * task->dst_stride[i];
      src -= task->size[i] * task->src_stride[i];
      coords[i] = 0;
    }
  }
}

/* Same dtype, both dense along one dimension (src perhaps backwards), in rows worth a call: true if done. */
static bool copy_rows(int ndim, const int64_t *size, char *dst, const int64_t *dst_stride, const char *src,
                      const int64_t *src_stride, int element_size)
{
  int inner = -1;
  for (int d = 0; d < ndim; d++)
    if (size[d] > 1 && dst_stride[d] == 1 && (src_stride[d] == 1 || src_stride[d] == -1)) inner = d;
  if (inner < 0 || size[inner] * element_size < 64) return false;
  rows task
      = { .dst = dst, .src = src, .run = size[inner], .element_size = element_size, .reversed = src_stride[inner] < 0 };
  int64_t count = 1;
  for (int d = 0; d < ndim; d++) {
    if (d == inner || size[d] == 1) continue;
    task.size[task.ndim] = size[d];
    task.dst_stride[task.ndim] = dst_stride[d] * element_size;
    task.src_stride[task.ndim++] = src_stride[d] * element_size;
    count *= size[d];
  }
  amp__parallel(amp__threads(count * task.run), count, 1, rows_part, &task);
  return true;
}

/* -- Copies ------------------------------------------------------------------------ */

/* Class through which a value of dtype `src` reaches dtype `dst`: exact, rounded once at the end */
static int through(int dst, int src)
{
  if (dst == AMP_BOOL) return AMP_C_U8;
  int k = amp__dtype_class[src];
  bool narrow = amp__is_half(dst) || amp__is_float8(dst);
  if (narrow && (src == AMP_INT64 || src == AMP_INT32)) return AMP_C_F64;
  if (dst == AMP_FLOAT64 && k == AMP_C_I64) return AMP_C_F64;
  if (dst == AMP_FLOAT32 && k == AMP_C_I64) return AMP_C_F32;
  if (narrow && k == AMP_C_I64) return AMP_C_F32;
  return k;
}

void amp__copy_raw(int ndim, const int64_t *size, void *dst, int ddtype, const int64_t *dstride, const void *src,
                   int sdtype, const int64_t *sstride)
{
  AMP_ASSERT(ndim >= 0 && ndim <= AMP_MAX_DIM);
  static const amp_loop loop = { NULL, NULL, 1, 0, 1 };
  amp_operand operands[2];
  int64_t n = 1;
  for (int d = 0; d < ndim; d++) n *= size[d];
  if (n == 0) return;
  if (ddtype == sdtype) {
    int element_size = amp__dtype_size[ddtype];
    if (ndim > 1 || sstride[0] < 0) {
      if (copy_rows(ndim, size, dst, dstride, src, sstride, element_size)
          || transpose(ndim, size, dst, dstride, src, sstride, element_size))
        return;
    }
  }
  operands[0].p = dst;
  operands[1].p = (char *)src;
  operands[0].dtype = (uint8_t)ddtype;
  operands[1].dtype = (uint8_t)sdtype;
  operands[0].cls = operands[1].cls = (uint8_t)through(ddtype, sdtype);
  for (int d = 0; d < ndim; d++) {
    operands[0].stride[d] = dstride[d];
    operands[1].stride[d] = sstride[d];
  }
  amp__iterate(&loop, ndim, size, 2, operands);
}

static int misfit(double value, int dtype)
{
  if (isnan(value)) return amp__fail(AMP_E_VALUE, "NaN can't be cast to %s", amp_dtype_name(dtype));
  return amp__fail(AMP_E_VALUE, "the value %.9g can't be cast to %s: it is out of range", value, amp_dtype_name(dtype));
}

typedef struct {
  int dtype, cls;
  int found;
  double value;
} check_arg;
static void check_loop(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  check_arg *k = (check_arg *)arg;
  int64_t i = amp__first_misfit(k->dtype, k->cls, operand[0], n);
  if (amp_likely(i == n) || __atomic_exchange_n(&k->found, 1, __ATOMIC_RELAXED)) return;
  k->value = k->cls == AMP_C_F32 ? (double)((const float *)operand[0])[i] : ((const double *)operand[0])[i];
}

int amp__check_cast(const amp_tensor *tensor, int dtype)
{
  if (!amp__has_gradient(tensor->dtype) || !amp__is_int(dtype)) return 0;
  check_arg k = { dtype, amp__dtype_class[tensor->dtype], 0, 0 };
  uint8_t cls = (uint8_t)k.cls;
  amp_loop loop = { check_loop, &k, 0, 0, 1 };
  amp_tensor *u = (amp_tensor *)tensor;
  amp__elementwise(&loop, 1, &u, &cls);
  return k.found ? misfit(k.value, dtype) : 0;
}

int amp__copy_to(amp_tensor *dst, const amp_tensor *src)
{
  amp_operand source;
  AMP_ASSERT(dst->device == AMP_CPU && src->device == AMP_CPU && src->ndim <= dst->ndim);
  int status = amp__check_cast(src, dst->dtype);
  if (status < 0 || dst->numel == 0) return status;
  if (dst->dtype == src->dtype && dst->numel == src->numel
      && ((dst->flags & src->flags & AMP_T_CONTIGUOUS)
          || ((dst->flags & src->flags & AMP_T_DENSE) && amp__same_size(dst, src)
              && memcmp(dst->stride, src->stride, sizeof(int64_t) * dst->ndim) == 0))) {
    int element_size = amp__dtype_size[dst->dtype];
    if (dst->numel <= 65536) {
      memmove(amp__data(dst), amp__data(src), (size_t)(dst->numel * element_size));
      return 0;
    }
    int64_t one = 1;
    amp__copy_raw(1, &dst->numel, amp__data(dst), dst->dtype, &one, amp__data(src), src->dtype, &one);
    return 0;
  }
  amp__operand(&source, src, 0, dst->ndim, dst->size);
  amp__copy_raw(dst->ndim, dst->size, amp__data(dst), dst->dtype, dst->stride, source.p, src->dtype, source.stride);
  return 0;
}

amp_tensor *amp__dense(amp_tensor *tensor, int dtype)
{
  if (tensor->dtype == dtype && (tensor->flags & AMP_T_CONTIGUOUS)) {
    amp__retain(tensor);
    return tensor;
  }
  amp_tensor *d = amp__tensor_make(dtype, AMP_CPU, 0, tensor->ndim, tensor->size);
  if (d && amp__copy_to(d, tensor) < 0) {
    amp__free(d);
    return NULL;
  }
  return d;
}

int amp__cpu_copy(amp_call *call) { return amp__copy_to(call->out[0], call->in[1]); }
int amp__cpu_clone(amp_call *call) { return amp__copy_to(call->out[0], call->in[0]); }
int amp__cpu_cast(amp_call *call) { return amp__copy_to(call->out[0], call->in[0]); }
/* -- Casts to 8 bits that do not saturate ------------------------------------------- */

static void unsaturated_loop(int64_t count, void *const *operand, unsigned scalar, const void *arg)
{
  const double *values = operand[1];
  uint8_t *bits = operand[0];
  int dtype = *(const int *)arg;
  for (int64_t i = 0; i < count; i++) bits[i] = amp__float_to_float8(amp__round_odd(values[i]), dtype, false);
}

int amp__cpu_cast_unsaturated(amp_call *call)
{
  amp_tensor *result = call->out[0], *input = call->in[0], *operands[2] = { result, input };
  int dtype = result->dtype;
  if (!amp__is_float8(dtype) || input->dtype == dtype) return amp__copy_to(result, input);
  uint8_t classes[2] = { AMP_C_U8, AMP_C_F64 };
  amp_loop loop = { unsaturated_loop, &dtype, 1, 0, 4 };
  result->dtype = AMP_UINT8; /* its patterns are written as they are */
  amp__elementwise(&loop, 2, operands, classes);
  result->dtype = (uint8_t)dtype;
  return 0;
}

int amp__cpu_to_device(amp_call *call) { return amp__copy_to(call->out[0], call->in[0]); }

/* -- Filling ------------------------------------------------------------------------ */

int amp__fill_value(amp_tensor *tensor, double v)
{
  char value[8] __attribute__((aligned(8)));
  int64_t zero[AMP_MAX_DIM] = { 0 }, one = 1;
  if (amp__is_int(tensor->dtype)) {
    if (!amp__fits(v, tensor->dtype)) return misfit(v, tensor->dtype);
    int64_t i = (int64_t)v;
    amp__store(tensor->dtype, value, 1, AMP_C_I64, &i, 1);
  } else amp__store(tensor->dtype, value, 1, AMP_C_F64, &v, 1);
  if (tensor->flags & AMP_T_DENSE) {
    uint64_t bits = 0;
    memcpy(&bits, value, amp__dtype_size[tensor->dtype]);
    if (bits == 0 && tensor->numel <= 65536)
      memset(amp__data(tensor), 0, (size_t)tensor->numel * amp__dtype_size[tensor->dtype]);
    else amp__copy_raw(1, &tensor->numel, amp__data(tensor), tensor->dtype, &one, value, tensor->dtype, zero);
  } else
    amp__copy_raw(tensor->ndim, tensor->size, amp__data(tensor), tensor->dtype, tensor->stride, value, tensor->dtype,
                  zero);
  return 0;
}

int amp__cpu_fill(amp_call *call) { return amp__fill_value(call->out[0], AMP_ARGS(call, fill)->value); }

/* -- Rearranging ---------------------------------------------------------------------- */

int amp__cpu_flip(amp_call *call)
{
  const args_flip *args = AMP_ARGS(call, flip);
  const amp_tensor *input = call->in[0];
  amp_tensor *out = call->out[0];
  int64_t stride[AMP_MAX_DIM];
  if (out->numel == 0) return 0;
  char *p = amp__data(input);
  for (int d = 0; d < input->ndim; d++) stride[d] = input->stride[d];
  for (int i = 0; i < args->dims.n; i++) {
    int d = (int)args->dims.at[i];
    p += (input->size[d] - 1) * input->stride[d] * amp__dtype_size[input->dtype];
    stride[d] = -input->stride[d];
  }
  amp__copy_raw(out->ndim, out->size, amp__data(out), out->dtype, out->stride, p, input->dtype, stride);
  return 0;
}

int amp__cpu_cat(amp_call *call)
{
  amp_tensor *out = call->out[0];
  int dim = (int)AMP_ARGS(call, cat)->dim, status;
  AMP_ASSERT(dim >= 0 && dim < out->ndim);
  char *p = amp__data(out);
  for (int i = 0; i < call->nin; i++)
    if ((status = amp__check_cast(call->in[i], out->dtype)) < 0) return status;
  for (int i = 0; i < call->nin; i++) {
    const amp_tensor *input = call->in[i];
    if (input->ndim != out->ndim || input->numel == 0) continue; /* an empty vector joins anything */
    amp__copy_raw(input->ndim, input->size, p, out->dtype, out->stride, amp__data(input), input->dtype, input->stride);
    p += input->size[dim] * out->stride[dim] * amp__dtype_size[out->dtype];
  }
  return 0;
}

/* Copy, then zero each row of each matrix on one side of the k-th diagonal */
static int triangle(amp_call *call, int64_t k, bool lower)
{
  amp_tensor *out = call->out[0];
  int status = out == call->in[0] ? 0 : amp__copy_to(out, call->in[0]);
  if (status < 0 || out->numel == 0) return status;
  int dims = out->ndim, element_size = amp__dtype_size[out->dtype];
  int64_t rows = out->size[dims - 2], cols = out->size[dims - 1], matrices = out->numel / (rows * cols);
  int64_t col_stride = out->stride[dims - 1], zero = 0;
  for (int64_t m = 0; m < matrices; m++) {
    char *p = amp__data(out);
    int64_t at = m;
    for (int d = dims - 3; d >= 0; d--) {
      p += at % out->size[d] * out->stride[d] * element_size;
      at /= out->size[d];
    }
    for (int64_t i = 0; i < rows; i++, p += out->stride[dims - 2] * element_size) {
      /* column of the first element above the diagonal; k may be anything */
      int64_t edge = k >= cols ? cols : k < -rows ? 0 : i + k + (lower ? 1 : 0);
      edge = edge < 0 ? 0 : edge > cols ? cols : edge;
      if (lower) amp__move(element_size, p + edge * col_stride * element_size, col_stride, &zero, 0, cols - edge);
      else amp__move(element_size, p, col_stride, &zero, 0, edge);
    }
  }
  return 0;
}
int amp__cpu_tril(amp_call *call) { return triangle(call, AMP_ARGS(call, tril)->diagonal, true); }
int amp__cpu_triu(amp_call *call) { return triangle(call, AMP_ARGS(call, triu)->diagonal, false); }

/* -- Strided windows -------------------------------------------------------------------- */

/* in[0] as if in C order, with the elements of a strided view replaced */
int amp__cpu_as_strided_scatter(amp_call *call)
{
  const args_as_strided_scatter *args = AMP_ARGS(call, as_strided_scatter);
  amp_tensor *out = call->out[0];
  const amp_tensor *s = call->in[1];
  int64_t stride[AMP_MAX_DIM];
  AMP_ASSERT(out->flags & AMP_T_CONTIGUOUS);
  int status = amp__copy_to(out, call->in[0]);
  if (status < 0 || (status = amp__check_cast(s, out->dtype)) < 0) return status;
  for (int d = 0; d < s->ndim; d++) stride[d] = args->stride.at[d];
  amp__copy_raw(s->ndim, s->size, (char *)amp__data(out) + args->offset * amp__dtype_size[out->dtype], out->dtype,
                stride, amp__data(s), s->dtype, s->stride);
  return 0;
}

/* May two places of the view be one element? No, if each stride is beyond the reach of the smaller ones. */
static bool overlaps(int n, const int64_t *size, const int64_t *stride)
{
  int64_t reach = 0;
  bool done[AMP_MAX_DIM] = { false };
  for (int k = 0; k < n; k++) {
    int least = -1;
    for (int d = 0; d < n; d++)
      if (!done[d] && (least < 0 || stride[d] < stride[least])) least = d;
    done[least] = true;
    if (size[least] == 1) continue;
    if (stride[least] <= reach) return true;
    reach += (size[least] - 1) * stride[least];
  }
  return false;
}

/* zeros + in at the places of a strided view; where places coincide, summed in float32 at least */
int amp__cpu_as_strided_sum(amp_call *call)
{
  const args_as_strided_sum *args = AMP_ARGS(call, as_strided_sum);
  amp_tensor *out = call->out[0];
  const amp_tensor *input = call->in[0];
  int64_t stride[AMP_MAX_DIM], offset = args->offset;
  int status;
  AMP_ASSERT(out->flags & AMP_T_CONTIGUOUS);
  for (int d = 0; d < input->ndim; d++) stride[d] = args->stride.at[d];
  if (input->numel == 0 || !overlaps(input->ndim, input->size, stride)) {
    if ((status = amp__fill_value(out, 0)) < 0 || input->numel == 0) return status;
    amp__copy_raw(input->ndim, input->size, (char *)amp__data(out) + offset * amp__dtype_size[out->dtype], out->dtype,
                  stride, amp__data(input), input->dtype, input->stride);
    return 0;
  }
  int wide = out->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  amp_tensor *acc = out->dtype == wide ? out : amp__tensor_make(wide, AMP_CPU, 0, out->ndim, out->size);
  amp_tensor *src = acc ? amp__dense((amp_tensor *)input, wide) : NULL;
  status = src ? amp__fill_value(acc, 0) : amp__S->err.code;
  if (status == 0) {
    int64_t at[AMP_MAX_DIM] = { 0 }, p = offset;
    float *f = AMP_DATA(float, acc);
    double *g = AMP_DATA(double, acc);
    for (int64_t i = 0; i < input->numel; i++) {
      if (wide == AMP_FLOAT32) f[p] += AMP_DATA(float, src)[i];
      else g[p] += AMP_DATA(double, src)[i];
      for (int d = input->ndim - 1; d >= 0; d--) {
        p += stride[d];
        if (++at[d] < input->size[d]) break;
        p -= at[d] * stride[d];
        at[d] = 0;
      }
    }
    if (acc != out) status = amp__copy_to(out, acc);
  }
  if (acc != out) amp__free(acc);
  amp__free(src);
  return status;
}
