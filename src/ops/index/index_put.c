/*
** ops/index/index_put.c: reading and writing several dimensions by index tensors.
**
** The index tensors are broadcast together and turned into one list of offsets.
** The result's dimensions are the kept ones with the index's in place of the
** first indexed dimension where the indexed ones stand side by side, else in
** front. So a result is [before][index][after], and each (before, index) pair
** is one strided slice.
*/
#include "ops/index/index_values.h"
#include "cpu/vector_math.h"

typedef struct picking {
  int kept_dims, index_dims, kept_before;                   /* kept_before: kept dimensions before the index part */
  int64_t kept_size[AMP_MAX_DIM], kept_stride[AMP_MAX_DIM]; /* kept dimensions of the indexed tensor */
  int64_t index_size[AMP_MAX_DIM], count;                   /* shape of the index part, and its number of elements */
  int64_t *offset;                                          /* [count], in elements of the indexed tensor */
  amp_tensor *hold;                                         /* the memory of offset */
} picking;

/* Index tensors are inputs from `first` on, for dimensions dims of tensor, the indexed tensor, whose strides make
** the offsets. */
static int prepare(picking *part, amp_call *call, int first, const int64_t *dims, const amp_tensor *tensor)
{
  int n = call->nin - first, status = 0;
  AMP_ASSERT(n >= 1 && n <= AMP_MAX_DIM);
  amp_call only = { .nin = n, .in = call->in + first };
  part->hold = NULL;
  if ((status = amp__broadcast(&only, n, &part->index_dims, part->index_size)) < 0) return status;
  part->hold = amp__tensor_make(AMP_INT64, AMP_CPU, 0, part->index_dims, part->index_size);
  if (part->hold == NULL) return amp__S->err.code;
  part->count = part->hold->numel;
  part->offset = AMP_DATA(int64_t, part->hold);
  memset(part->offset, 0, sizeof(int64_t) * (size_t)part->count);
  for (int i = 0; i < n; i++) {
    int dim = (int)dims[i];
    amp_tensor *own;
    int64_t *v = amp__indices(call->in[first + i], dim, tensor->size[dim], &own);
    if (v == NULL) return amp__S->err.code;
    amp_operand operand;
    amp__operand(&operand, own, AMP_C_I64, part->index_dims, part->index_size);
    int64_t at[AMP_MAX_DIM] = { 0 }, q = 0;
    for (int64_t k = 0; k < part->count; k++) {
      part->offset[k] += v[q] * tensor->stride[dim];
      for (int d = part->index_dims - 1; d >= 0; d--) {
        q += operand.stride[d];
        if (++at[d] < part->index_size[d]) break;
        q -= part->index_size[d] * operand.stride[d];
        at[d] = 0;
      }
    }
    amp__free(own);
  }
  part->kept_dims = 0;
  part->kept_before = 0;
  bool adjacent = dims[n - 1] - dims[0] == n - 1;
  for (int d = 0; d < tensor->ndim; d++) {
    bool indexed = false;
    for (int i = 0; i < n; i++) indexed |= dims[i] == d;
    if (indexed) continue;
    if (adjacent && d < dims[0]) part->kept_before++;
    part->kept_size[part->kept_dims] = tensor->size[d];
    part->kept_stride[part->kept_dims++] = tensor->stride[d];
  }
  return 0;
}

/* A run of n elements: of the indexed tensor at x, of a tensor of the result's shape at r; strides in elements */
#define RUN(name, T, E)                                                       \
  AMP_INLINE void name(void *x_, int64_t xs, void *r_, int64_t rs, int64_t n) \
  {                                                                           \
    T *x = x_, *r = r_;                                                       \
    for (int64_t j = 0; j < n; j++) E;                                        \
  }
RUN(read_1, uint8_t, r[j * rs] = x[j * xs])
RUN(read_2, uint16_t, r[j * rs] = x[j * xs])
RUN(read_4, uint32_t, r[j * rs] = x[j * xs])
RUN(read_8, uint64_t, r[j * rs] = x[j * xs])
RUN(write_1, uint8_t, x[j * xs] = r[j * rs])
RUN(write_2, uint16_t, x[j * xs] = r[j * rs])
RUN(write_4, uint32_t, x[j * xs] = r[j * rs])
RUN(write_8, uint64_t, x[j * xs] = r[j * rs])
RUN(add_f32, float, x[j * xs] += r[j * rs])
RUN(add_f64, double, x[j * xs] += r[j * rs])
RUN(add_i64, uint64_t, x[j * xs] += r[j * rs])

typedef void (*run_fn)(void *x, int64_t xs, void *r, int64_t rs, int64_t n);

/* run, which is compiled in, over all of the indexed part of `indexed` and of `result`, a tensor of the result's
** shape with strides result_stride; elements of element_size bytes */
AMP_INLINE void each(const picking *part, char *indexed, char *result, const int64_t *result_stride, int element_size,
                     run_fn run)
{
  int64_t size[AMP_MAX_DIM], slice_stride[AMP_MAX_DIM], slice_result_stride[AMP_MAX_DIM], coords[AMP_MAX_DIM];
  int dims = part->kept_dims - part->kept_before; /* dimensions of a slice */
  int64_t slice = 1, before = 1, inner, indexed_step, result_step;
  for (int d = 0; d < dims; d++) {
    size[d] = part->kept_size[part->kept_before + d];
    slice_stride[d] = part->kept_stride[part->kept_before + d];
    slice_result_stride[d] = result_stride[part->kept_before + part->index_dims + d];
    slice *= size[d];
  }
  for (int d = 0; d < part->kept_before; d++) before *= part->kept_size[d];
  inner = dims > 0 ? size[dims - 1] : 1;
  indexed_step = dims > 0 ? slice_stride[dims - 1] : 0;
  result_step = dims > 0 ? slice_result_stride[dims - 1] : 0;
  if (slice > 0)
    for (int64_t b = 0; b < before; b++) {
      int64_t indexed_first = 0, result_first = 0, rest = b;
      for (int d = part->kept_before - 1; d >= 0; d--) {
        indexed_first += rest % part->kept_size[d] * part->kept_stride[d];
        result_first += rest % part->kept_size[d] * result_stride[d];
        rest /= part->kept_size[d];
      }
      int64_t index_coords[AMP_MAX_DIM] = { 0 }, result_at = result_first;
      for (int64_t k = 0; k < part->count; k++) {
        int64_t xo = indexed_first + part->offset[k], ro = result_at;
        for (int d = 0; d < dims; d++) coords[d] = 0;
        for (int64_t done = 0; done < slice; done += inner) {
          run(indexed + xo * element_size, indexed_step, result + ro * element_size, result_step, inner);
          for (int d = dims - 2; d >= 0; d--) {
            xo += slice_stride[d];
            ro += slice_result_stride[d];
            if (++coords[d] < size[d]) break;
            xo -= size[d] * slice_stride[d];
            ro -= size[d] * slice_result_stride[d];
            coords[d] = 0;
          }
        }
        for (int d = part->index_dims - 1; d >= 0; d--) {
          result_at += result_stride[part->kept_before + d];
          if (++index_coords[d] < part->index_size[d]) break;
          result_at -= part->index_size[d] * result_stride[part->kept_before + d];
          index_coords[d] = 0;
        }
      }
    }
}

static void read_all(const picking *part, void *indexed, void *result, const int64_t *result_stride, int element_size)
{
  switch (element_size) {
  case 1: each(part, indexed, result, result_stride, 1, read_1); break;
  case 2: each(part, indexed, result, result_stride, 2, read_2); break;
  case 4: each(part, indexed, result, result_stride, 4, read_4); break;
  default: each(part, indexed, result, result_stride, 8, read_8);
  }
}

static void write_all(const picking *part, void *indexed, void *result, const int64_t *result_stride, int element_size)
{
  switch (element_size) {
  case 1: each(part, indexed, result, result_stride, 1, write_1); break;
  case 2: each(part, indexed, result, result_stride, 2, write_2); break;
  case 4: each(part, indexed, result, result_stride, 4, write_4); break;
  default: each(part, indexed, result, result_stride, 8, write_8);
  }
}

static void add_all(const picking *part, void *indexed, void *result, const int64_t *result_stride, int cls)
{
  switch (cls) {
  case AMP_C_F32: each(part, indexed, result, result_stride, 4, add_f32); break;
  case AMP_C_F64: each(part, indexed, result, result_stride, 8, add_f64); break;
  default: each(part, indexed, result, result_stride, 8, add_i64);
  }
}

int amp__cpu_index(amp_call *call)
{
  picking part;
  int status = prepare(&part, call, 1, AMP_ARGS(call, index)->dims.at, call->in[0]);
  if (status == 0 && call->out[0]->numel > 0)
    read_all(&part, amp__data(call->in[0]), amp__data(call->out[0]), call->out[0]->stride,
             amp__dtype_size[call->in[0]->dtype]);
  amp__free(part.hold);
  return status;
}

int amp__cpu_index_put(amp_call *call)
{
  const args_index_put *args = AMP_ARGS(call, index_put);
  amp_tensor *out = call->out[0], *values = NULL;
  picking part = { .hold = NULL };
  amp_accumulator acc = { .tensor = out, .out = out };
  amp_operand source;
  int64_t size[AMP_MAX_DIM];
  int status, dims = 0;
  bool sum = args->accumulate != 0;
  /* check indices and values before the first write */
  if ((status = prepare(&part, call, 2, args->dims.at, out)) < 0
      || (status = amp__check_cast(call->in[1], out->dtype)) < 0)
    goto out;
  if (out != call->in[0] && (status = amp__copy_to(out, call->in[0])) < 0) goto out;
  if (sum) {
    acc.tensor = NULL;
    if ((status = amp__accumulator(&acc, out)) < 0) goto out;
    if (acc.tensor != out) { /* offsets are for other strides now */
      amp__free(part.hold);
      if ((status = prepare(&part, call, 2, args->dims.at, acc.tensor)) < 0) goto out;
    }
  }
  values = call->in[1];
  if (values->dtype == acc.tensor->dtype) amp__retain(values);
  else if ((values = amp__dense(values, acc.tensor->dtype)) == NULL) {
    status = amp__S->err.code;
    goto out;
  }
  for (int d = 0; d < part.kept_before; d++) size[dims++] = part.kept_size[d];
  for (int d = 0; d < part.index_dims; d++) size[dims++] = part.index_size[d];
  for (int d = part.kept_before; d < part.kept_dims; d++) size[dims++] = part.kept_size[d];
  AMP_ASSERT(dims <= AMP_MAX_DIM && part.count == part.hold->numel);
  amp__operand(&source, values, AMP_C_F32, dims, size);
  if (part.count > 0) {
    if (sum) add_all(&part, amp__data(acc.tensor), source.p, source.stride, acc.cls);
    else write_all(&part, amp__data(out), source.p, source.stride, amp__dtype_size[out->dtype]);
  }
out:
  status = amp__accumulated(&acc, status);
  amp__free(values);
  amp__free(part.hold);
  return status;
}
