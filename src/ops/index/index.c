/*
** ops/index/index.c: reading and writing by index tensors, one dimension at a time:
** index_select, index_add, index_copy, index_fill, embedding, put,
** masked_scatter, nonzero. Element by element: ops/index/gather.c; several dimensions
** at once: ops/index/index_put.c.
**
** Every index is checked, and made to count from 0, before anything is written.
** Sums into 16-bit floats run in float32 and into short integers in int64, and
** are rounded or wrapped once, so many additions to one place lose nothing.
*/
#include "ops/index/index_values.h"
#include "cpu/vector_math.h"

/* -- Index tensors -------------------------------------------------------------------- */

int amp__index_error(int64_t i, int64_t place, int dim, int64_t size)
{
  if (i == 0)
    return amp__fail(AMP_E_INDEX,
                     "index 0 (element %lld of the index) for dimension %d of size %lld: "
                     "indices count from 1, negative ones from the end",
                     (long long)place + 1, dim + 1, (long long)size);
  return amp__fail(AMP_E_INDEX, "index %lld (element %lld of the index) is out of range for dimension %d of size %lld",
                   (long long)i, (long long)place + 1, dim + 1, (long long)size);
}

/* From 1 or the end to from 0; whether some value is out of range */
static AMP_CLONES int from_zero(int64_t n, int64_t *index, int64_t size)
{
  int64_t bad = 0;
  for (int64_t k = 0; k < n; k++) {
    const int64_t i = index[k];
    bad |= (i == 0) | (i > size) | (i < -size);
    index[k] = i > 0 ? i - 1 : size + i;
  }
  return bad != 0;
}

int64_t *amp__indices(amp_tensor *tensor, int dim, int64_t size, amp_tensor **hold)
{
  amp_tensor *d = amp__tensor_make(AMP_INT64, AMP_CPU, 0, tensor->ndim, tensor->size);
  *hold = NULL;
  if (d == NULL) return NULL;
  int64_t *values = AMP_DATA(int64_t, d);
  bool dense = tensor->flags & AMP_T_CONTIGUOUS;
  if (!dense && amp__copy_to(d, tensor) < 0) {
    amp__free(d);
    return NULL;
  }
  for (int64_t at = 0; at < d->numel; at += AMP_CHUNK) {
    int64_t n = d->numel - at < AMP_CHUNK ? d->numel - at : AMP_CHUNK;
    if (dense)
      amp__load(AMP_C_I64, values + at, tensor->dtype, (char *)amp__data(tensor) + at * amp__dtype_size[tensor->dtype],
                1, n);
    if (amp_likely(!from_zero(n, values + at, size))) continue;
    if (amp__copy_to(d, tensor) == 0) /* the values as given, to say which one it was */
      for (int64_t k = at; k < at + n; k++)
        if (values[k] == 0 || values[k] > size || values[k] < -size) {
          amp__index_error(values[k], k, dim, size);
          break;
        }
    amp__free(d);
    return NULL;
  }
  *hold = d;
  return values;
}

int amp__accumulator(amp_accumulator *acc, amp_tensor *out)
{
  int dtype = out->dtype;
  int wide = dtype == AMP_FLOAT64 ? AMP_FLOAT64 : amp__is_float(dtype) ? AMP_FLOAT32 : AMP_INT64;
  acc->out = out;
  acc->cls = amp__dtype_class[wide];
  if (dtype == wide) {
    acc->tensor = out;
    return 0;
  }
  acc->tensor = amp__tensor_make(wide, AMP_CPU, 0, out->ndim, out->size);
  if (acc->tensor == NULL) return amp__S->err.code;
  return amp__copy_to(acc->tensor, out);
}

int amp__accumulated(amp_accumulator *acc, int status)
{
  if (acc->tensor != acc->out) {
    if (status == 0 && acc->tensor) status = amp__copy_to(acc->out, acc->tensor);
    amp__free(acc->tensor);
  }
  return status;
}

/* The vector `index` as an index of gather's kind, for a tensor: repeated over all dimensions but dim. NULL: error */
static amp_tensor *along(amp_tensor *index, const amp_tensor *tensor, int dim)
{
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM] = { 0 };
  for (int d = 0; d < tensor->ndim; d++) size[d] = tensor->size[d];
  size[dim] = index->numel;
  stride[dim] = index->ndim ? index->stride[0] : 1;
  return amp__tensor_view(index, tensor->ndim, size, stride, index->offset);
}

/* -- index_select, embedding ------------------------------------------------------------- */

typedef struct {
  const amp_tensor *input, *out;
  const int64_t *index;
  int dim;
  int ndim;
  int64_t size[AMP_MAX_DIM], in_stride[AMP_MAX_DIM], out_stride[AMP_MAX_DIM];
  int64_t run, count;
  bool write;
} selecting;

/* One slice a (outer, index) pair; run > 0: it is that many dense elements on both sides */
static void select_part(int64_t begin, int64_t end, void *ctx)
{
  const selecting *task = ctx;
  int element_size = amp__dtype_size[task->input->dtype];
  char *src = amp__data(task->input), *dst = amp__data(task->out);
  int64_t j = begin % task->count, first_index = 0, first_out = 0;
  for (int64_t k = begin; k < end; k++, j++) {
    if (j == task->count) j = 0;
    if (k == begin || j == 0) { /* a new place of the dimensions before */
      int64_t outer = k / task->count;
      first_index = first_out = 0;
      for (int d = task->dim - 1; d >= 0; d--) {
        int64_t x = outer % task->input->size[d];
        outer /= task->input->size[d];
        first_index += x * task->input->stride[d];
        first_out += x * task->out->stride[d];
      }
    }
    int64_t i = first_index + task->index[j] * task->input->stride[task->dim],
            o = first_out + j * task->out->stride[task->dim];
    if (task->write)
      amp__copy_raw(task->ndim, task->size, src + i * element_size, task->input->dtype, task->in_stride,
                    dst + o * element_size, task->out->dtype, task->out_stride);
    else if (task->run > 0) memcpy(dst + o * element_size, src + i * element_size, (size_t)(task->run * element_size));
    else
      amp__copy_raw(task->ndim, task->size, dst + o * element_size, task->out->dtype, task->out_stride,
                    src + i * element_size, task->input->dtype, task->in_stride);
  }
}

/* out = in at `index` (n, from 0) of dimension dim, or the other way round; out's dimension dim holds all of them */
static void select_into(const amp_tensor *input, const amp_tensor *out, int dim, const int64_t *index, int64_t n,
                        bool write)
{
  selecting task = { .input = input, .out = out, .index = index, .dim = dim, .count = n, .write = write };
  int64_t outer = 1, slice = 1, expect = 1;
  bool dense = true;
  AMP_ASSERT(input->ndim == 0 || out->ndim == input->ndim);
  AMP_ASSERT(out->ndim == 0 || out->size[dim] == n);
  if (out->numel == 0) return;
  for (int d = 0; d < dim; d++) outer *= input->size[d];
  task.ndim = input->ndim ? input->ndim - dim - 1 : 0;
  for (int d = input->ndim - 1; d > dim; d--) {
    if (input->size[d] != 1 && (input->stride[d] != expect || out->stride[d] != expect)) dense = false;
    expect *= input->size[d];
    slice *= input->size[d];
    task.size[d - dim - 1] = input->size[d];
    task.in_stride[d - dim - 1] = input->stride[d];
    task.out_stride[d - dim - 1] = out->stride[d];
  }
  task.run = dense ? slice : 0;
  int threads = dense && !write ? amp__threads(out->numel) : 1;
  amp__parallel(threads, outer * n, 1, select_part, &task);
}

int amp__cpu_index_select(amp_call *call)
{
  amp_tensor *hold, *input = call->in[0];
  int dim = (int)AMP_ARGS(call, index_select)->dim;
  if (dim == input->ndim - 1 && call->out[0]->dtype == input->dtype && input->numel > 0 && !call->flags) {
    amp_tensor *ix = along(call->in[1], input, dim);
    int status = ix ? amp__gather(ix, dim, input, call->out[0]) : amp__S->err.code;
    amp__free(ix);
    return status;
  }
  int64_t *index = amp__indices(call->in[1], dim, input->size[dim], &hold);
  if (index == NULL) return amp__S->err.code;
  select_into(input, call->out[0], dim, index, hold->numel, false);
  amp__free(hold);
  return 0;
}

int amp__cpu_embedding(amp_call *call)
{
  amp_tensor *hold, *w = call->in[1], *out = call->out[0];
  int64_t *index = amp__indices(call->in[0], 0, w->size[0], &hold);
  if (index == NULL) return amp__S->err.code;
  AMP_ASSERT(out->flags & AMP_T_CONTIGUOUS); /* of which a matrix of rows is made */
  int64_t size[2] = { hold->numel, w->size[1] }, stride[2] = { w->size[1], 1 };
  amp_tensor *v = amp__tensor_view(out, 2, size, stride, out->offset);
  int status = v ? 0 : amp__S->err.code;
  if (v) select_into(w, v, 0, index, hold->numel, false);
  amp__free(v);
  amp__free(hold);
  return status;
}

/* -- index_add ------------------------------------------------------------------------------ */

#define AXPY(name, CLONES, T, E)                            \
  static CLONES void name(int64_t n, T *o, const T *x, T a) \
  {                                                         \
    AMP_IVDEP                                               \
    for (int64_t i = 0; i < n; i++) o[i] = E;               \
  }
AXPY(axpy_f, AMP_CLONES, float, o[i] + a * x[i])
AXPY(axpy_d, AMP_CLONES_WIDE, double, o[i] + a * x[i])
AXPY(axpy_i, AMP_CLONES_WIDE, int64_t, (int64_t)((uint64_t)o[i] + (uint64_t)a * (uint64_t)x[i]))

typedef struct {
  amp_tensor *acc, *src;
  const int64_t *index;
  int cls, dim;
  double alpha;
  int64_t count, inner, outer;
  int parts;
} adding;

/* Part i of `parts` takes the indices that are i modulo parts: no two write one row */
static void add_part(int64_t begin, int64_t end, void *ctx)
{
  const adding *task = ctx;
  int element_size = amp__class_size[task->cls];
  int64_t rows = task->acc->size[task->dim];
  for (int64_t part = begin; part < end; part++)
    for (int64_t o = 0; o < task->outer; o++)
      for (int64_t j = 0; j < task->count; j++) {
        int64_t i = task->index[j];
        if (task->parts > 1 && i % task->parts != part) continue;
        char *dst = (char *)amp__data(task->acc) + (o * rows + i) * task->inner * element_size;
        const char *src = (const char *)amp__data(task->src) + (o * task->count + j) * task->inner * element_size;
        switch (task->cls) {
        case AMP_C_F32: axpy_f(task->inner, (float *)dst, (const float *)src, (float)task->alpha); break;
        case AMP_C_F64: axpy_d(task->inner, (double *)dst, (const double *)src, task->alpha); break;
        default: axpy_i(task->inner, (int64_t *)dst, (const int64_t *)src, (int64_t)task->alpha);
        }
      }
}

int amp__cpu_index_add(amp_call *call)
{
  const args_index_add *args = AMP_ARGS(call, index_add);
  amp_tensor *out = call->out[0], *hold, *src = NULL, *dense = NULL;
  int dim = (int)args->dim, status = 0;
  adding task = { .dim = dim, .alpha = args->alpha, .inner = 1, .outer = 1 };
  int64_t *index = amp__indices(call->in[1], dim, out->size[dim], &hold);
  amp_accumulator acc = { .tensor = NULL, .out = out };
  if (index == NULL) return amp__S->err.code;
  if (out != call->in[0] && (status = amp__copy_to(out, call->in[0])) < 0) goto out;
  if ((status = amp__accumulator(&acc, out)) < 0) goto out;
  /* the loop wants C order */
  dense = amp__dense(acc.tensor, acc.tensor->dtype);
  src = amp__dense(call->in[2], acc.tensor->dtype);
  if (dense == NULL || src == NULL) {
    status = amp__S->err.code;
    goto out;
  }
  for (int d = 0; d < dim; d++) task.outer *= out->size[d];
  for (int d = dim + 1; d < out->ndim; d++) task.inner *= out->size[d];
  task.acc = dense;
  task.src = src;
  task.index = index;
  task.cls = acc.cls;
  AMP_ASSERT(task.inner * task.outer * hold->numel == src->numel);
  task.count = hold->numel;
  task.parts = amp__threads(src->numel * 2);
  if (task.inner < 8 && task.parts == 1 && task.alpha == 1) { /* runs too short for calls */
    amp_tensor *ix = along(call->in[1], out, dim);
    status = ix ? amp__scatter_sum(ix, dim, acc.tensor, src) : amp__S->err.code;
    amp__free(ix);
    goto out;
  }
  if (task.count * task.inner > 0) amp__parallel(task.parts, task.parts, 1, add_part, &task);
  if (dense != acc.tensor) status = amp__copy_to(acc.tensor, dense);
out:
  status = amp__accumulated(&acc, status);
  amp__free(dense);
  amp__free(src);
  amp__free(hold);
  return status;
}

/* -- index_copy, index_fill, put, masked_scatter: writing ---------------------------------------------- */

int amp__cpu_index_copy(amp_call *call)
{
  amp_tensor *out = call->out[0], *hold, *src = NULL;
  int dim = (int)AMP_ARGS(call, index_copy)->dim, status = 0;
  int64_t *index = amp__indices(call->in[1], dim, out->size[dim], &hold);
  if (index == NULL) return amp__S->err.code;
  if ((status = amp__check_cast(call->in[2], out->dtype)) < 0) goto out;
  if (out != call->in[0] && (status = amp__copy_to(out, call->in[0])) < 0) goto out;
  src = call->in[2];
  if (src->dtype == out->dtype) amp__retain(src);
  else if ((src = amp__dense(src, out->dtype)) == NULL) {
    status = amp__S->err.code;
    goto out;
  }
  if (src->numel > 0) select_into(out, src, dim, index, hold->numel, true);
out:
  amp__free(src);
  amp__free(hold);
  return status;
}

int amp__cpu_index_fill(amp_call *call)
{
  const args_index_fill *args = AMP_ARGS(call, index_fill);
  static const int64_t none[AMP_MAX_DIM];
  amp_tensor *out = call->out[0], *hold, *one = NULL, *src = NULL;
  int dim = (int)args->dim, status = 0;
  int64_t *index = amp__indices(call->in[1], dim, out->size[dim], &hold), size[AMP_MAX_DIM];
  if (index == NULL) return amp__S->err.code;
  if (out != call->in[0] && (status = amp__copy_to(out, call->in[0])) < 0) goto out;
  if (out->numel == 0 || hold->numel == 0) goto out;
  for (int d = 0; d < out->ndim; d++) size[d] = d == dim ? hold->numel : out->size[d];
  if ((one = amp__tensor_make(out->dtype, AMP_CPU, 0, 0, NULL)) == NULL
      || (status = amp__fill_value(one, args->value)) < 0
      || (src = amp__tensor_view(one, out->ndim, size, none, one->offset)) == NULL) {
    status = amp__S->err.code;
    goto out;
  }
  select_into(out, src, dim, index, hold->numel, true);
out:
  amp__free(src);
  amp__free(one);
  amp__free(hold);
  return status;
}

#define PUT(T, E)                      \
  {                                    \
    T *o = amp__data(acc.tensor);      \
    const T *s = amp__data(src);       \
    for (int64_t k = 0; k < n; k++) E; \
  }

int amp__cpu_put(amp_call *call)
{
  const args_put *args = AMP_ARGS(call, put);
  amp_tensor *out = call->out[0], *hold, *src = NULL;
  int64_t *places = amp__indices(call->in[1], 0, out->numel, &hold), n = call->in[1]->numel;
  int status = 0;
  amp_accumulator acc = { .tensor = out, .out = out };
  if (places == NULL) return amp__S->err.code;
  if ((status = amp__check_cast(call->in[2], out->dtype)) < 0) goto out;
  if (out != call->in[0] && (status = amp__copy_to(out, call->in[0])) < 0) goto out;
  if (args->accumulate) {
    acc.tensor = NULL;
    if ((status = amp__accumulator(&acc, out)) < 0) goto out;
  }
  if ((src = amp__dense(call->in[2], acc.tensor->dtype)) == NULL) {
    status = amp__S->err.code;
    goto out;
  }
  AMP_ASSERT(src->numel == n);
  if (!(acc.tensor->flags & AMP_T_CONTIGUOUS)) /* places in C order into offsets */
    for (int64_t k = 0; k < n; k++) {
      int64_t rest = places[k], o = 0;
      for (int d = acc.tensor->ndim - 1; d >= 0; d--) {
        o += rest % acc.tensor->size[d] * acc.tensor->stride[d];
        rest /= acc.tensor->size[d];
      }
      places[k] = o;
    }
  if (!args->accumulate) switch (amp__dtype_size[out->dtype]) {
    case 1: PUT(uint8_t, o[places[k]] = s[k]) break;
    case 2: PUT(uint16_t, o[places[k]] = s[k]) break;
    case 4: PUT(uint32_t, o[places[k]] = s[k]) break;
    default: PUT(uint64_t, o[places[k]] = s[k])
    }
  else if (acc.cls == AMP_C_F32) PUT(float, o[places[k]] += s[k])
  else if (acc.cls == AMP_C_F64) PUT(double, o[places[k]] += s[k])
  else PUT(uint64_t, o[places[k]] += s[k])
out:
  status = amp__accumulated(&acc, status);
  amp__free(src);
  amp__free(hold);
  return status;
}

#define NEXT(T)                            \
  {                                        \
    T *o = amp__data(y);                   \
    const T *s = amp__data(src);           \
    for (int64_t i = 0; i < y->numel; i++) \
      if (m[i]) o[i] = s[k++];             \
  }

int amp__cpu_masked_scatter(amp_call *call)
{
  amp_tensor *out = call->out[0], *mask = NULL, *src = NULL, *y = NULL;
  int64_t n = 0, k = 0;
  int status = amp__S->err.code;
  if ((mask = amp__tensor_make(AMP_BOOL, AMP_CPU, 0, out->ndim, out->size)) == NULL) return status;
  if ((status = amp__copy_to(mask, call->in[1])) < 0 || (status = amp__check_cast(call->in[2], out->dtype)) < 0)
    goto out;
  const uint8_t *m = amp__data(mask);
  for (int64_t i = 0; i < mask->numel; i++) n += m[i];
  if (n > call->in[2]->numel) {
    status = amp__fail(AMP_E_VALUE, "mask is true at %lld places, source has %lld elements", (long long)n,
                       (long long)call->in[2]->numel);
    goto out;
  }
  if (out != call->in[0] && (status = amp__copy_to(out, call->in[0])) < 0) goto out;
  src = amp__dense(call->in[2], out->dtype);
  y = amp__dense(out, out->dtype);
  if (src == NULL || y == NULL) {
    status = amp__S->err.code;
    goto out;
  }
  switch (amp__dtype_size[out->dtype]) {
  case 1: NEXT(uint8_t) break;
  case 2: NEXT(uint16_t) break;
  case 4: NEXT(uint32_t) break;
  default: NEXT(uint64_t)
  }
  if (y != out) status = amp__copy_to(out, y);
out:
  amp__free(y);
  amp__free(src);
  amp__free(mask);
  return status;
}
/* -- nonzero ---------------------------------------------------------------------------------------- */

int amp__cpu_nonzero(amp_call *call)
{
  amp_tensor *input = call->in[0], *truth = amp__dense(input, AMP_BOOL), *result = call->out[0];
  if (truth == NULL) return amp__S->err.code;
  const uint8_t *flag = amp__data(truth);
  int dims = input->ndim, status = 0;
  int64_t n = 0, coords[AMP_MAX_DIM] = { 0 }, len = dims ? input->size[dims - 1] : 1;
  for (int64_t i = 0; i < input->numel; i++) n += flag[i] != 0;
  if (result->size[0] != n) { /* the shape rule may not have looked */
    int64_t size[2] = { n, dims };
    if ((result = amp__tensor_make(AMP_INT64, AMP_CPU, 0, 2, size)) == NULL) {
      status = amp__S->err.code;
      goto out;
    }
    amp__free(call->out[0]);
    call->out[0] = result;
  }
  int64_t *place = AMP_DATA(int64_t, result), row_stride = result->stride[0], col_stride = result->stride[1];
  if (dims == 0) goto out;
  for (int64_t i = 0; i < input->numel; i += len, flag += len) { /* a row of the last dimension */
    for (int64_t j = 0; j < len; j += AMP_CHUNK) {
      int64_t found[AMP_CHUNK + 1], hits = 0;
      const int64_t end = len - j < AMP_CHUNK ? len : j + AMP_CHUNK;
      for (int64_t k = j; k < end; k++) {
        uint64_t eight = 1; /* eight falses at a time */
        if (k + 8 <= end) memcpy(&eight, flag + k, 8);
        if (eight == 0) {
          k += 7;
          continue;
        }
        if (k + 8 > end) {
          found[hits] = k + 1;
          hits += flag[k] != 0;
          continue;
        }
        for (int l = 0; l < 8; l++) {
          found[hits] = k + l + 1;
          hits += flag[k + l] != 0;
        }
        k += 7;
      }
      if (dims == 2 && col_stride == 1 && row_stride == 2)
        for (int64_t k = 0; k < hits; k++) {
          place[2 * k] = coords[0] + 1;
          place[2 * k + 1] = found[k];
        }
      else
        for (int64_t k = 0; k < hits; k++) {
          for (int d = 0; d < dims - 1; d++) place[k * row_stride + d * col_stride] = coords[d] + 1;
          place[k * row_stride + (dims - 1) * col_stride] = found[k];
        }
      place += hits * row_stride;
    }
    for (int d = dims - 2; d >= 0; d--) {
      if (++coords[d] < input->size[d]) break;
      coords[d] = 0;
    }
  }
out:
  amp__free(truth);
  return status;
}
