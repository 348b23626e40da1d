/*
** cpu/strided.c: the strided iteration engine (see cpu/strided.h).
**
** Three ways through memory, fastest first:
**   linear  every operand is dense of its class (or one value): the loop gets
**           pointers and all n elements;
**   rows    inner runs of 64 elements and more: chunks of a row, converted;
**   packed  short inner runs: chunks gathered across rows, so that the loop
**           still sees 512 elements at a time.
** A range [lo, hi) of the flattened index goes to each thread, so results do not
** depend on their number.
*/
#include "base/workers.h"
#include "cpu/strided.h"
#include "cpu/vector_math.h"

void amp__parallel(int threads, int64_t count, int64_t grain, amp_part_fn body, void *ctx)
{
  int64_t blocks = (count + grain - 1) / grain;
  if (threads > blocks) threads = (int)blocks;
  if (threads <= 1) {
    if (count > 0) body(0, count, ctx);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int i = 0; i < threads; i++) {
    amp__worker_begins();
    int64_t begin = blocks * i / threads * grain, end = blocks * (i + 1) / threads * grain;
    if (end > count) end = count;
    if (begin < end) body(begin, end, ctx);
  }
}

int amp__cpu_row(int op, int nin, amp_tensor *const *inputs, int nout, amp_tensor *const *out, const amp_slot *attrs)
{
  amp_call call;
  memset(&call, 0, sizeof call);
  call.op = &amp__ops[op];
  call.id = op;
  call.in = call.in_store;
  call.attrs = call.attr_store;
  memcpy(call.attr_store, attrs ? attrs : call.op->defaults, sizeof(amp_slot) * (size_t)call.op->info.nslot);
  for (int i = 0; i < nin; i++) call.in_store[i] = inputs[i];
  for (int i = 0; i < nout; i++) call.out[i] = out[i];
  call.nin = nin;
  call.nout = nout;
  return amp__kernel(AMP_CPU, op)(&call);
}

int amp__class_of(int out, amp_tensor *const *inputs, int count)
{
  int cls = out >= 0 ? amp__dtype_class[out] : AMP_C_I64, ndim = 0;
  for (int i = 0; i < count; i++)
    if (inputs[i] && !(inputs[i]->flags & AMP_T_NUMBER) && inputs[i]->ndim > ndim) ndim = inputs[i]->ndim;
  /* tensors first, then scalars (which do not widen floats), then plain numbers (nor integers, if integral) */
  for (int pass = 0; pass < 3; pass++)
    for (int i = 0; i < count; i++) {
      const amp_tensor *tensor = inputs[i];
      if (tensor == NULL || pass != (tensor->flags & AMP_T_NUMBER ? 2 : tensor->ndim == 0 && ndim > 0)) continue;
      int k = amp__dtype_class[tensor->dtype];
      if (pass == 2 && cls == AMP_C_I64) {
        double v = *AMP_DATA(double, tensor);
        if (!(v >= -9.2e18 && v <= 9.2e18 && v == (double)(int64_t)v)) cls = AMP_C_F64;
      } else if (k == AMP_C_F64 && (pass == 0 || cls == AMP_C_I64)) cls = k;
      else if (k == AMP_C_F32 && cls == AMP_C_I64) cls = k;
    }
  return cls;
}

/* -- Shape ------------------------------------------------------------------------- */

typedef struct iter {
  int ndim, operands, results; /* dimension 0 is the innermost */
  int64_t size[AMP_MAX_DIM], total;
  amp_operand *operand;
  uint8_t element_size[AMP_MAX_OP], class_size[AMP_MAX_OP]; /* bytes of an element in memory and in its class */
  bool direct[AMP_MAX_OP];                                  /* the dtype is the class */
  const amp_loop *loop;
} iter;

/* Innermost first; size 1 dropped; ordered by operand 0's strides; merged. */
static void prepare(iter *iter, const amp_loop *loop, int ndim, const int64_t *size, int nop, amp_operand *operand)
{
  AMP_ASSERT(nop <= AMP_MAX_OP && loop->nout <= nop && ndim <= AMP_MAX_DIM);
  int count = 0;
  int64_t stride[AMP_MAX_OP][AMP_MAX_DIM];
  iter->loop = loop;
  iter->operands = nop;
  iter->results = loop->nout;
  iter->operand = operand;
  iter->total = 1;
  for (int dim = ndim - 1; dim >= 0; dim--) {
    iter->total *= size[dim];
    if (size[dim] == 1) continue;
    int64_t s0 = operand[0].stride[dim] < 0 ? -operand[0].stride[dim] : operand[0].stride[dim];
    int place = count;
    /* insertion keeps C order among equals */
    while (place > 0 && s0 != 0) {
      int64_t prev = stride[0][place - 1] < 0 ? -stride[0][place - 1] : stride[0][place - 1];
      if (prev <= s0) break;
      place--;
    }
    for (int k = count; k > place; k--) {
      iter->size[k] = iter->size[k - 1];
      for (int i = 0; i < nop; i++) stride[i][k] = stride[i][k - 1];
    }
    iter->size[place] = size[dim];
    for (int i = 0; i < nop; i++) stride[i][place] = operand[i].stride[dim];
    count++;
  }
  int merged = 0;
  for (int dim = 1; dim < count; dim++) {
    bool merge = true;
    for (int i = 0; i < nop && merge; i++) merge = stride[i][dim] == stride[i][merged] * iter->size[merged];
    if (merge) iter->size[merged] *= iter->size[dim];
    else {
      merged++;
      iter->size[merged] = iter->size[dim];
      for (int i = 0; i < nop; i++) stride[i][merged] = stride[i][dim];
    }
  }
  if (count == 0) {
    iter->size[0] = 1;
    for (int i = 0; i < nop; i++) stride[i][0] = 1;
  }
  iter->ndim = merged + 1;
  for (int i = 0; i < nop; i++) {
    for (int dim = 0; dim <= merged; dim++) operand[i].stride[dim] = stride[i][dim];
    iter->element_size[i] = amp__dtype_size[operand[i].dtype];
    iter->class_size[i] = amp__class_size[operand[i].cls];
    iter->direct[i] = operand[i].dtype == amp__class_dtype[operand[i].cls]
                      || (operand[i].cls == AMP_C_U8 && operand[i].dtype == AMP_UINT8);
  }
}

/* -- Rows -------------------------------------------------------------------------- */

typedef struct position {
  int64_t index[AMP_MAX_DIM];
  char *memory[AMP_MAX_OP];
} position;

static void seek(const iter *iter, position *position, int64_t start)
{
  for (int i = 0; i < iter->operands; i++) position->memory[i] = iter->operand[i].p;
  for (int dim = 0; dim < iter->ndim; dim++) {
    int64_t k = iter->ndim == 1 ? start : start % iter->size[dim];
    if (iter->ndim > 1) start /= iter->size[dim];
    position->index[dim] = k;
    for (int i = 0; i < iter->operands; i++)
      position->memory[i] += k * iter->operand[i].stride[dim] * iter->element_size[i];
  }
}

/* The next row; the index along dimension 0 is 0 again, the pointers stand `done` elements in. */
static void next_row(const iter *iter, position *position, int64_t done)
{
  for (int i = 0; i < iter->operands; i++)
    position->memory[i] -= done * iter->operand[i].stride[0] * iter->element_size[i];
  position->index[0] = 0;
  for (int dim = 1; dim < iter->ndim; dim++) {
    if (++position->index[dim] < iter->size[dim]) {
      for (int i = 0; i < iter->operands; i++)
        position->memory[i] += iter->operand[i].stride[dim] * iter->element_size[i];
      return;
    }
    position->index[dim] = 0;
    for (int i = 0; i < iter->operands; i++)
      position->memory[i] -= (iter->size[dim] - 1) * iter->operand[i].stride[dim] * iter->element_size[i];
  }
}

static void copy_run(const iter *iter, char *const *memory, int64_t count)
{
  const amp_operand *operand = iter->operand;
  int64_t dst_stride = operand[0].stride[0], src_stride = operand[1].stride[0];
  if (operand[0].dtype == operand[1].dtype)
    amp__move(iter->element_size[0], memory[0], dst_stride, memory[1], src_stride, count);
  else if (dst_stride == 1 && iter->direct[0])
    amp__load(operand[0].cls, memory[0], operand[1].dtype, memory[1], src_stride, count);
  else if (src_stride == 1 && iter->direct[1])
    amp__store(operand[0].dtype, memory[0], dst_stride, operand[1].cls, memory[1], count);
  else {
    double buf[AMP_CHUNK];
    for (int64_t i = 0; i < count; i += AMP_CHUNK) {
      int64_t chunk = count - i < AMP_CHUNK ? count - i : AMP_CHUNK;
      amp__load(operand[1].cls, buf, operand[1].dtype, memory[1] + i * src_stride * iter->element_size[1], src_stride,
                chunk);
      amp__store(operand[0].dtype, memory[0] + i * dst_stride * iter->element_size[0], dst_stride, operand[0].cls, buf,
                 chunk);
    }
  }
}

typedef struct {
  char bytes[AMP_CHUNK * 8] __attribute__((aligned(64)));
} chunk_buffer;

static void repeat(void *dst, int size, const void *value, int64_t count) { amp__move(size, dst, 1, value, 0, count); }

/* count elements of one row, from memory on */
static void run_row(const iter *iter, char *const *memory, int64_t count, chunk_buffer *buf)
{
  void *chunk[AMP_MAX_OP];
  unsigned scalar = 0, buffered = 0;
  for (int i = 0; i < iter->operands; i++) {
    int64_t stride = iter->operand[i].stride[0];
    chunk[i] = memory[i];
    if (i >= iter->results && stride == 0) {
      if (!iter->direct[i]) {
        amp__load(iter->operand[i].cls, buf[i].bytes, iter->operand[i].dtype, memory[i], 1, 1);
        chunk[i] = buf[i].bytes;
      }
      if ((iter->loop->scalar >> i & 1) && count > 1) scalar |= 1u << i;
      else if (count > 1) {
        char value[8];
        memcpy(value, chunk[i], iter->class_size[i]);
        repeat(buf[i].bytes, iter->class_size[i], value, count < AMP_CHUNK ? count : AMP_CHUNK);
        chunk[i] = buf[i].bytes;
        buffered |= 1u << i;
      }
    } else if (!iter->direct[i] || stride != 1) buffered |= 1u << i;
  }
  if (buffered == 0) {
    iter->loop->f(count, chunk, scalar, iter->loop->arg);
    return;
  }
  for (int64_t start = 0; start < count; start += AMP_CHUNK) {
    int64_t length = count - start < AMP_CHUNK ? count - start : AMP_CHUNK;
    for (int i = 0; i < iter->operands; i++) {
      int64_t stride = iter->operand[i].stride[0];
      if (scalar >> i & 1) continue;
      if (!(buffered >> i & 1)) {
        chunk[i] = memory[i] + start * iter->element_size[i] * stride;
        continue;
      }
      chunk[i] = buf[i].bytes;
      if (i >= iter->results && stride != 0)
        amp__load(iter->operand[i].cls, buf[i].bytes, iter->operand[i].dtype,
                  memory[i] + start * stride * iter->element_size[i], stride, length);
    }
    iter->loop->f(length, chunk, scalar, iter->loop->arg);
    for (int i = 0; i < iter->results; i++)
      if (buffered >> i & 1)
        amp__store(iter->operand[i].dtype, memory[i] + start * iter->operand[i].stride[0] * iter->element_size[i],
                   iter->operand[i].stride[0], iter->operand[i].cls, buf[i].bytes, length);
  }
}

/* -- Packed ------------------------------------------------------------------------ */

/* Is operand i dense in the flattened order? */
static bool is_linear(const iter *iter, int i)
{
  int64_t stride = 1;
  for (int dim = 0; dim < iter->ndim; dim++) {
    if (iter->operand[i].stride[dim] != stride) return false;
    stride *= iter->size[dim];
  }
  return true;
}

static bool is_single(const iter *iter, int i)
{
  for (int dim = 0; dim < iter->ndim; dim++)
    if (iter->operand[i].stride[dim] != 0) return false;
  return true;
}

#define element uint8_t
#define NAME(x) x##8
#include "cpu/strided_pack_body.h"

#define element uint16_t
#define NAME(x) x##16
#include "cpu/strided_pack_body.h"

#define element uint32_t
#define NAME(x) x##32
#include "cpu/strided_pack_body.h"

#define element uint64_t
#define NAME(x) x##64
#include "cpu/strided_pack_body.h"

/* count elements from flattened index `at` on between memory (strided) and a dense array, unchanged */
static void pack(const iter *iter, int i, int64_t start, int64_t count, void *dense, bool gather)
{
  int64_t index[AMP_MAX_DIM];
  const int64_t *stride = iter->operand[i].stride;
  char *memory = iter->operand[i].p;
  for (int dim = 0; dim < iter->ndim; dim++) {
    index[dim] = start % iter->size[dim];
    start /= iter->size[dim];
    memory += index[dim] * stride[dim] * iter->element_size[i];
  }
  switch (iter->element_size[i]) {
  case 1: pack8(iter, stride, index, memory, count, dense, gather); break;
  case 2: pack16(iter, stride, index, memory, count, dense, gather); break;
  case 4: pack32(iter, stride, index, memory, count, dense, gather); break;
  default: pack64(iter, stride, index, memory, count, dense, gather);
  }
}

static void run_packed(const iter *iter, int64_t begin, int64_t end)
{
  chunk_buffer buf[AMP_MAX_OP], raw;
  void *chunk[AMP_MAX_OP];
  bool linear[AMP_MAX_OP];
  unsigned scalar = 0;
  for (int i = 0; i < iter->operands; i++) {
    linear[i] = is_linear(iter, i);
    if (i >= iter->results && is_single(iter, i)) {
      amp__load(iter->operand[i].cls, buf[i].bytes, iter->operand[i].dtype, iter->operand[i].p, 1, 1);
      chunk[i] = buf[i].bytes;
      if (iter->loop->scalar >> i & 1) scalar |= 1u << i;
      else {
        char value[8];
        memcpy(value, buf[i].bytes, 8);
        repeat(buf[i].bytes, iter->class_size[i], value, AMP_CHUNK);
      }
      linear[i] = false;
    }
  }
  for (int64_t start = begin; start < end; start += AMP_CHUNK) {
    int64_t length = end - start < AMP_CHUNK ? end - start : AMP_CHUNK;
    for (int i = 0; i < iter->operands; i++) {
      if (i >= iter->results && is_single(iter, i)) continue;
      char *memory = iter->operand[i].p + start * iter->element_size[i];
      if (linear[i] && iter->direct[i]) {
        chunk[i] = memory;
        continue;
      }
      chunk[i] = buf[i].bytes;
      if (i < iter->results) continue;
      if (linear[i]) amp__load(iter->operand[i].cls, buf[i].bytes, iter->operand[i].dtype, memory, 1, length);
      else if (iter->direct[i]) pack(iter, i, start, length, buf[i].bytes, true);
      else {
        pack(iter, i, start, length, raw.bytes, true);
        amp__load(iter->operand[i].cls, buf[i].bytes, iter->operand[i].dtype, raw.bytes, 1, length);
      }
    }
    if (iter->loop->f) iter->loop->f(length, chunk, scalar, iter->loop->arg);
    else if (chunk[0] != chunk[1]) {
      if (iter->class_size[0] == iter->class_size[1])
        memcpy(chunk[0], chunk[1], (size_t)(length * iter->class_size[0]));
    }
    for (int i = 0; i < iter->results; i++) {
      if (linear[i] && iter->direct[i]) continue;
      if (linear[i])
        amp__store(iter->operand[i].dtype, iter->operand[i].p + start * iter->element_size[i], 1, iter->operand[i].cls,
                   buf[i].bytes, length);
      else if (iter->direct[i]) pack(iter, i, start, length, buf[i].bytes, false);
      else {
        amp__store(iter->operand[i].dtype, raw.bytes, 1, iter->operand[i].cls, buf[i].bytes, length);
        pack(iter, i, start, length, raw.bytes, false);
      }
    }
  }
}

/* -- Driving ------------------------------------------------------------------------- */

static void run_range(int64_t begin, int64_t end, void *ctx)
{
  const iter *task = ctx;
  if (task->ndim > 1 && task->size[0] < 64) {
    run_packed(task, begin, end);
    return;
  }
  chunk_buffer buf[AMP_MAX_OP];
  position position;
  seek(task, &position, begin);
  while (begin < end) {
    int64_t first = position.index[0],
            count = task->size[0] - first < end - begin ? task->size[0] - first : end - begin;
    if (task->loop->f) run_row(task, position.memory, count, buf);
    else copy_run(task, position.memory, count);
    begin += count;
    if (begin < end) next_row(task, &position, first);
  }
}

void amp__iterate(const amp_loop *loop, int ndim, const int64_t *size, int nop, amp_operand *operand)
{
  iter iter;
  prepare(&iter, loop, ndim, size, nop, operand);
  if (iter.total == 0) return;
  amp__parallel(amp__threads(iter.total * loop->cost), iter.total, AMP_CHUNK, run_range, &iter);
}

void amp__operand(amp_operand *operand, const amp_tensor *tensor, int cls, int ndim, const int64_t *size)
{
  int lead = ndim - tensor->ndim;
  operand->p = amp__data(tensor);
  operand->dtype = tensor->dtype;
  operand->cls = (uint8_t)cls;
  for (int dim = 0; dim < ndim; dim++)
    operand->stride[dim]
        = dim < lead || (tensor->size[dim - lead] == 1 && size[dim] != 1) ? 0 : tensor->stride[dim - lead];
}

typedef struct linear {
  const amp_loop *loop;
  int nop;
  void *memory[AMP_MAX_OP];
  uint8_t size[AMP_MAX_OP];
  unsigned scalar;
} linear;

static void run_linear(int64_t begin, int64_t end, void *ctx)
{
  const linear *linear = ctx;
  void *chunk[AMP_MAX_OP];
  for (int i = 0; i < linear->nop; i++)
    chunk[i] = linear->scalar >> i & 1 ? linear->memory[i] : (char *)linear->memory[i] + begin * linear->size[i];
  linear->loop->f(end - begin, chunk, linear->scalar, linear->loop->arg);
}

/* Few enough for one chunk, dense, but of another dtype than the loop's */
static void run_small(const linear *linear, int64_t count, amp_tensor *const *tensors, const uint8_t *cls,
                      unsigned convert)
{
  chunk_buffer buf[AMP_MAX_OP];
  void *chunk[AMP_MAX_OP];
  for (int i = 0; i < linear->nop; i++) {
    chunk[i] = convert >> i & 1 ? buf[i].bytes : linear->memory[i];
    if ((convert >> i & 1) && i >= linear->loop->nout)
      amp__load(cls[i], buf[i].bytes, tensors[i]->dtype, linear->memory[i], 1, count);
  }
  linear->loop->f(count, chunk, linear->scalar, linear->loop->arg);
  for (int i = 0; i < linear->loop->nout; i++)
    if (convert >> i & 1) amp__store(tensors[i]->dtype, linear->memory[i], 1, cls[i], buf[i].bytes, count);
}

void amp__elementwise(const amp_loop *loop, int nop, amp_tensor *const *tensors, const uint8_t *cls)
{
  const amp_tensor *out = tensors[0];
  if (amp_likely(loop->f != NULL && (out->flags & AMP_T_DENSE))) {
    /* every operand lies as the first does, or is one value */
    linear linear;
    uint64_t single[AMP_MAX_OP];
    int64_t count = out->numel;
    unsigned convert = 0;
    linear.loop = loop;
    linear.nop = nop;
    linear.scalar = 0;
    int i = 0;
    for (; i < nop; i++) {
      const amp_tensor *a = tensors[i];
      if (a->numel == count) {
        if (amp_unlikely(a->dtype != amp__class_dtype[cls[i]])) {
          if (count > AMP_CHUNK) break;
          convert |= 1u << i;
        }
        if (amp_unlikely(
                !((a->flags & out->flags & AMP_T_CONTIGUOUS)
                  || (amp__same_size(a, out) && memcmp(a->stride, out->stride, sizeof(int64_t) * out->ndim) == 0))))
          break;
        linear.memory[i] = amp__data(a);
        linear.size[i] = amp__class_size[cls[i]];
      } else if (a->numel == 1 && (loop->scalar >> i & 1)) {
        amp__load(cls[i], &single[i], a->dtype, amp__data(a), 1, 1);
        linear.memory[i] = &single[i];
        linear.scalar |= 1u << i;
      } else break;
    }
    if (i == nop) {
      if (amp_unlikely(convert)) {
        if (count > 0) run_small(&linear, count, tensors, cls, convert);
      } else if (amp_likely(count <= 2048)) {
        if (count > 0) loop->f(count, linear.memory, linear.scalar, loop->arg);
      } else amp__parallel(amp__threads(count * loop->cost), count, AMP_CHUNK, run_linear, &linear);
      return;
    }
  }
  amp_operand op[AMP_MAX_OP];
  for (int i = 0; i < nop; i++) amp__operand(&op[i], tensors[i], cls[i], out->ndim, out->size);
  amp__iterate(loop, out->ndim, out->size, nop, op);
}
