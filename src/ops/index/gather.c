/*
** ops/index/gather.c: element by element along a dimension: gather, scatter,
** scatter_add, scatter_reduce.
**
** Index and plain operand are walked row by row in chunks, and each index is
** checked as it is used. Where a receiver existed before the call all of them
** are checked before the first write; a fresh result is simply dropped. Sums,
** products and extremes of narrow dtypes run in float32 or int64
** (amp_accumulator).
*/
#include "ops/index/index_values.h"
#include "cpu/vector_math.h"

/* -- Chunks -------------------------------------------------------------------------------- */

/* n indices v of a dimension of `size`; x is the operand they index (sd elements a step, and sx from one element of the
** chunk to the next), y the plain one. True: an index is out of range (those before it were used). */
typedef bool (*chunk_fn)(int64_t n, const int64_t *v, uint64_t size, void *x, int64_t sd, int64_t sx, void *y,
                         int64_t sy);

/* The test is a branch that is never taken but by indices from the end */
#define ALONG(T, X, Y, BODY)                                                            \
  for (int64_t j = 0; j < n; j++) {                                                     \
    uint64_t i = (uint64_t)v[j] - 1;                                                    \
    if (amp_unlikely(i >= size) && (v[j] >= 0 || (i += size + 1) >= size)) return true; \
    T *p = X, *q = Y;                                                                   \
    BODY;                                                                               \
  }
#define BY_STRIDES(T, BODY)                                                     \
  if (sx == 0 && sd == 1 && sy == 1) ALONG(T, x + i, y + j, BODY)               \
  else if (sx == 0 && sd == 1) ALONG(T, x + i, y + j * sy, BODY)                \
  else if (sx == 1 && sy == 1) ALONG(T, x + (j + (int64_t)i * sd), y + j, BODY) \
  else ALONG(T, x + (j * sx + (int64_t)i * sd), y + j * sy, BODY)
#define CHUNK(name, T, BODY)                                                                                           \
  static bool name(int64_t n, const int64_t *v, uint64_t size, void *x_, int64_t sd, int64_t sx, void *y_, int64_t sy) \
  {                                                                                                                    \
    T *x = x_, *y = y_;                                                                                                \
    BY_STRIDES(T, BODY)                                                                                                \
    return false;                                                                                                      \
  }
CHUNK(read_1, uint8_t, *q = *p)
CHUNK(read_2, uint16_t, *q = *p)
CHUNK(read_4, uint32_t, *q = *p)
CHUNK(read_8, uint64_t, *q = *p)
CHUNK(write_1, uint8_t, *p = *q)
CHUNK(write_2, uint16_t, *p = *q)
CHUNK(write_4, uint32_t, *p = *q)
CHUNK(write_8, uint64_t, *p = *q)
CHUNK(add_f, float, *p += *q)
CHUNK(add_d, double, *p += *q)
CHUNK(add_i, uint64_t, *p += *q)
CHUNK(mul_f, float, *p *= *q)
CHUNK(mul_d, double, *p *= *q)
CHUNK(mul_i, uint64_t, *p *= *q)
#define PICK(OP) *p = ((*q OP * p) | (*q != *q)) ? *q : *p
CHUNK(max_f, float, PICK(>))
CHUNK(max_d, double, PICK(>))
CHUNK(max_i, int64_t, PICK(>))
CHUNK(min_f, float, PICK(<))
CHUNK(min_d, double, PICK(<))
CHUNK(min_i, int64_t, PICK(<))

static AMP_CLONES_WIDE bool outside(int64_t n, const int64_t *index, int64_t size)
{
  int64_t bad = 0;
  for (int64_t j = 0; j < n; j++) bad |= (index[j] == 0) | (index[j] > size) | (index[j] < -size);
  return bad != 0;
}

/* -- The walk ------------------------------------------------------------------------------ */

typedef struct walk {
  const amp_tensor *index, *indexed, *plain;
  int dim, element_size;
  chunk_fn run;                          /* NULL: only check the indices */
  int64_t row_length, chunks_a_row, bad; /* chunks are units; `per` in a row */
} walk;

static void walk_part(int64_t begin, int64_t end, void *ctx)
{
  walk *task = ctx;
  const amp_tensor *index = task->index, *indexed = task->indexed, *plain = task->plain;
  const int last = index->ndim - 1, dim = task->dim;
  const int64_t dim_stride = indexed->ndim ? indexed->stride[dim] : 0, size = indexed->ndim ? indexed->size[dim] : 1;
  const int64_t indexed_step = last < 0 || last == dim ? 0 : indexed->stride[last],
                plain_step = last < 0 ? 0 : plain->stride[last], index_step = last < 0 ? 1 : index->stride[last];
  const bool direct = index->dtype == AMP_INT64 && index_step == 1;
  int64_t coords[AMP_MAX_DIM] = { 0 }, indexed_offset = 0, plain_offset = 0, index_offset = 0,
          rest = begin / task->chunks_a_row, chunk = begin % task->chunks_a_row, buf[AMP_CHUNK];
  char *indexed_data = amp__data(indexed), *plain_data = amp__data(plain);
  const char *index_data = amp__data(index);
  const int index_bytes = amp__dtype_size[index->dtype];
  for (int d = last - 1; d >= 0; d--) {
    coords[d] = rest % index->size[d];
    rest /= index->size[d];
    if (d != dim) indexed_offset += coords[d] * indexed->stride[d];
    plain_offset += coords[d] * plain->stride[d];
    index_offset += coords[d] * index->stride[d];
  }
  for (int64_t k = begin; k < end; k++) {
    const int64_t j = chunk * AMP_CHUNK, n = task->row_length - j < AMP_CHUNK ? task->row_length - j : AMP_CHUNK;
    const int64_t *values = (const int64_t *)(index_data + (index_offset + j * index_step) * index_bytes);
    if (!direct) {
      amp__load(AMP_C_I64, buf, index->dtype, values, index_step, n);
      values = buf;
    }
    const bool bad
        = task->run
              ? task->run(n, values, (uint64_t)size,
                          indexed_data + (indexed_offset + j * indexed_step) * task->element_size, dim_stride,
                          indexed_step, plain_data + (plain_offset + j * plain_step) * task->element_size, plain_step)
              : outside(n, values, size);
    if (amp_unlikely(bad)) {
      __atomic_store_n(&task->bad, 1, __ATOMIC_RELAXED);
      return;
    }
    if (++chunk < task->chunks_a_row) continue;
    chunk = 0;
    for (int d = last - 1; d >= 0; d--) {
      if (d != dim) indexed_offset += indexed->stride[d];
      plain_offset += plain->stride[d];
      index_offset += index->stride[d];
      if (++coords[d] < index->size[d]) break;
      if (d != dim) indexed_offset -= index->size[d] * indexed->stride[d];
      plain_offset -= index->size[d] * plain->stride[d];
      index_offset -= index->size[d] * index->stride[d];
      coords[d] = 0;
    }
  }
}

/* `run` on all of the index tensor; `indexed` and `values` are of one dtype. threads > 1: only where no element of
** `indexed` is written twice */
static int walk_all(chunk_fn run, amp_tensor *index, int dim, const amp_tensor *indexed, const amp_tensor *values,
                    int threads)
{
  amp_tensor *hold;
  walk w = { .index = index,
             .indexed = indexed,
             .plain = values,
             .dim = dim,
             .element_size = amp__dtype_size[indexed->dtype],
             .run = run };
  AMP_ASSERT(!run || indexed->dtype == values->dtype);
  AMP_ASSERT(indexed->ndim == index->ndim || indexed->ndim == 0);
  if (index->numel == 0) return 0;
  w.row_length = index->ndim ? index->size[index->ndim - 1] : 1;
  w.chunks_a_row = (w.row_length + AMP_CHUNK - 1) / AMP_CHUNK;
  amp__parallel(threads, index->numel / w.row_length * w.chunks_a_row, 1, walk_part, &w);
  if (amp_likely(!w.bad)) return 0;
  amp__indices(index, dim, indexed->ndim ? indexed->size[dim] : 1, &hold); /* says which one */
  return amp__S->err.code;
}

int amp__scatter_sum(amp_tensor *index, int dim, const amp_tensor *indexed, const amp_tensor *values)
{
  const int cls = amp__dtype_class[indexed->dtype];
  AMP_ASSERT(indexed->dtype == AMP_FLOAT32 || indexed->dtype == AMP_FLOAT64 || indexed->dtype == AMP_INT64);
  return walk_all(cls == AMP_C_F32 ? add_f : cls == AMP_C_F64 ? add_d : add_i, index, dim, indexed, values, 1);
}

static chunk_fn by_size(int element_size, bool write)
{
  static const chunk_fn f[2][4] = { { read_1, read_2, read_4, read_8 }, { write_1, write_2, write_4, write_8 } };
  return f[write][element_size == 1 ? 0 : element_size == 2 ? 1 : element_size == 4 ? 2 : 3];
}

/* Results that were there before the call are not touched if an index is wrong */
static int check_first(const amp_call *call, amp_tensor *index, int dim, const amp_tensor *input)
{
  return call->flags ? walk_all(NULL, index, dim, input, index, 1) : 0;
}

int amp__gather(amp_tensor *index, int dim, const amp_tensor *input, const amp_tensor *out)
{
  return walk_all(by_size(amp__dtype_size[input->dtype], false), index, dim, input, out,
                  amp__threads(index->numel * 4));
}

int amp__cpu_gather(amp_call *call)
{
  int dim = (int)AMP_ARGS(call, gather)->dim, status = check_first(call, call->in[1], dim, call->in[0]);
  amp_tensor *out = call->out[0], *gathered = out;
  if (status < 0) return status;
  if (out->dtype != call->in[0]->dtype
      && (gathered = amp__tensor_make(call->in[0]->dtype, AMP_CPU, 0, out->ndim, out->size)) == NULL)
    return amp__S->err.code;
  status = amp__gather(call->in[1], dim, call->in[0], gathered);
  if (gathered != out) {
    if (status == 0) status = amp__copy_to(out, gathered);
    amp__free(gathered);
  }
  return status;
}

/* -- Scatter -------------------------------------------------------------------------------- */

/* src in dtype; a number as a tensor of the index's shape that repeats it. NULL: error */
static amp_tensor *plain(amp_tensor *src, const amp_tensor *index, int dtype)
{
  static const int64_t none[AMP_MAX_DIM];
  if (!(src->flags & AMP_T_NUMBER)) {
    if (src->dtype != dtype) return amp__dense(src, dtype);
    amp__retain(src);
    return src;
  }
  amp_tensor *one = amp__tensor_make(dtype, AMP_CPU, 0, 0, NULL), *repeated = NULL;
  if (one && amp__copy_to(one, src) == 0) repeated = amp__tensor_view(one, index->ndim, index->size, none, one->offset);
  amp__free(one);
  return repeated;
}

enum { WRITE = -1 }; /* beside the words of `reduce`: no reduction, the last value stays */
static const chunk_fn combine[][3] = { [REDUCE_SUM] = { add_f, add_d, add_i },
                                       [REDUCE_PROD] = { mul_f, mul_d, mul_i },
                                       [REDUCE_MEAN] = { add_f, add_d, add_i },
                                       [REDUCE_AMAX] = { max_f, max_d, max_i },
                                       [REDUCE_AMIN] = { min_f, min_d, min_i } };

/* `value` at every index of `input` */
static int write_number(amp_tensor *index, int dim, amp_tensor *input, double value)
{
  amp_tensor *number = amp__number(value), *repeated = number ? plain(number, index, input->dtype) : NULL;
  int status = repeated ? walk_all(by_size(amp__dtype_size[input->dtype], true), index, dim, input, repeated, 1)
                        : amp__S->err.code;
  amp__free(repeated);
  amp__free(number);
  return status;
}

/* What a reduction without the receiver's own values starts from: an extreme, from any of its values */
static int write_start(amp_tensor *index, int dim, amp_tensor *input, const amp_tensor *src, int how)
{
  if (how == REDUCE_AMAX || how == REDUCE_AMIN)
    return walk_all(by_size(amp__dtype_size[input->dtype], true), index, dim, input, src, 1);
  return write_number(index, dim, input, how == REDUCE_PROD);
}

/* `input` / count where count is not 0; integers round down */
static int divide(amp_tensor *input, amp_tensor *index, int dim, bool include)
{
  amp_tensor *count = amp__tensor_make(AMP_INT64, AMP_CPU, 0, input->ndim, input->size), *one = amp__number(1),
             *ones = NULL, *dense = NULL;
  int status = count && one ? amp__fill_value(count, include ? 1 : 0) : amp__S->err.code;
  if (status == 0 && (ones = plain(one, index, AMP_INT64)) == NULL) status = amp__S->err.code;
  if (status == 0) status = walk_all(add_i, index, dim, count, ones, 1);
  if (status == 0 && (dense = amp__dense(input, input->dtype)) == NULL) status = amp__S->err.code;
  if (status == 0) {
    const int64_t *counts = AMP_DATA(int64_t, count);
    float *f = amp__data(dense);
    double *d = amp__data(dense);
    int64_t *v = amp__data(dense);
    for (int64_t i = 0; i < input->numel; i++) {
      if (counts[i] < 2) continue;
      if (input->dtype == AMP_FLOAT32) f[i] /= (float)counts[i];
      else if (input->dtype == AMP_FLOAT64) d[i] /= (double)counts[i];
      else v[i] = v[i] / counts[i] - (v[i] % counts[i] < 0);
    }
    if (dense != input) status = amp__copy_to(input, dense);
  }
  amp__free(count);
  amp__free(one);
  amp__free(ones);
  amp__free(dense);
  return status;
}

static int scatter(amp_call *call, int dim, int how, bool include)
{
  amp_tensor *out = call->out[0], *src = NULL, *index = call->in[1];
  int status = check_first(call, index, dim, out);
  if (status < 0 || (status = amp__check_cast(call->in[2], out->dtype)) < 0) return status;
  if (out != call->in[0] && (status = amp__copy_to(out, call->in[0])) < 0) return status;
  if (index->numel == 0) return 0;
  amp_accumulator acc = { .tensor = out, .out = out };
  if (how != WRITE) {
    acc.tensor = NULL;
    if ((status = amp__accumulator(&acc, out)) < 0) goto out;
  }
  if ((src = plain(call->in[2], index, acc.tensor->dtype)) == NULL) {
    status = amp__S->err.code;
    goto out;
  }
  if (!include && (status = write_start(index, dim, acc.tensor, src, how)) < 0) goto out;
  status = walk_all(how == WRITE ? by_size(amp__dtype_size[out->dtype], true) : combine[how][acc.cls], index, dim,
                    acc.tensor, src, 1);
  if (status == 0 && how == REDUCE_MEAN) status = divide(acc.tensor, index, dim, include);
out:
  status = amp__accumulated(&acc, status);
  amp__free(src);
  return status;
}
/* A mean, or a reduction without the receiver's values, takes memory between its writes: in place it works on a copy.
 */
static int scatter_safely(amp_call *call, int dim, int how, bool include)
{
  amp_tensor *out = call->out[0];
  if (out != call->in[0] || (include && how != REDUCE_MEAN)) return scatter(call, dim, how, include);
  amp_tensor *fresh = amp__tensor_make(out->dtype, AMP_CPU, 0, out->ndim, out->size);
  if (fresh == NULL) return amp__S->err.code;
  amp_call inner = *call;
  inner.out[0] = fresh;
  int status = scatter(&inner, dim, how, include);
  if (status == 0) status = amp__copy_to(out, fresh);
  amp__free(fresh);
  return status;
}
int amp__cpu_scatter(amp_call *call) { return scatter(call, (int)AMP_ARGS(call, scatter)->dim, WRITE, true); }
int amp__cpu_scatter_add(amp_call *call)
{
  return scatter(call, (int)AMP_ARGS(call, scatter_add)->dim, REDUCE_SUM, true);
}
int amp__cpu_scatter_reduce(amp_call *call)
{
  const args_scatter_reduce *args = AMP_ARGS(call, scatter_reduce);
  return scatter_safely(call, (int)args->dim, (int)args->reduce, args->include_self != 0);
}
