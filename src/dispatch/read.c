/*
** dispatch/read.c: values in and out of tensors: made from numbers, bytes or memory
** of the caller; read one by one or all at once. Whatever dtype, layout and
** device, callers see doubles in C order. Reads of another device copy the
** tensor here first; every read counts as a wait of the host.
*/
#include <math.h>
#include <stdio.h>
#include "base/ids.h"
#include "dispatch/dispatch.h"

static int freed(void) { return amp__fail_arg(AMP_E_ARGUMENT, 1, "the tensor was freed"); }

/* -- From the caller ----------------------------------------------------------- */

static amp_tensor *make(int ndim, const int64_t *size, int dtype)
{
  if (dtype < 0 || dtype >= AMP_DTYPE_COUNT) {
    amp__fail(AMP_E_DTYPE, "there is no dtype number %d", dtype);
    return NULL;
  }
  if (amp__check_size(ndim, size, dtype, NULL) < 0) return NULL;
  return amp__tensor_make(dtype, AMP_CPU, 0, ndim, size);
}

/* "[2, 3]", the place of element i, counted from 1. */
static const char *place(const amp_tensor *tensor, int64_t i, char *buf, size_t size)
{
  int64_t index[AMP_MAX_DIM];
  size_t at = 0;
  for (int dim = tensor->ndim - 1; dim >= 0; dim--) {
    index[dim] = i % tensor->size[dim] + 1;
    i /= tensor->size[dim];
  }
  buf[0] = 0;
  for (int dim = 0; dim < tensor->ndim && at + 24 < size; dim++)
    at += (size_t)snprintf(buf + at, size - at, "%s%lld", dim ? ", " : "", (long long)index[dim]);
  return buf;
}

int amp_from_double(amp_state *state, amp_ref *out, const double *data, int ndim, const int64_t *size, int dtype)
{
  AMP_ENTER(state);
  amp_tensor *tensor = make(ndim, size, dtype);
  if (tensor == NULL) return state->err.code;
  char *p = amp__data(tensor);
  for (int64_t i = 0; i < tensor->numel; i++, p += amp__dtype_size[dtype])
    if (amp_unlikely(!amp__value_put(p, dtype, data[i]))) {
      char at[200];
      int status = amp__fail(AMP_E_VALUE, "value %.17g at [%s] does not fit %s", isnan(data[i]) ? (double)NAN : data[i],
                             place(tensor, i, at, sizeof at), amp_dtype_name(dtype));
      amp__free(tensor);
      return status;
    }
  out->t = tensor;
  return 0;
}

int amp_from_bytes(amp_state *state, amp_ref *out, const void *data, int64_t bytes, int ndim, const int64_t *size,
                   int dtype)
{
  AMP_ENTER(state);
  int64_t count;
  if (dtype < 0 || dtype >= AMP_DTYPE_COUNT) return amp__fail(AMP_E_DTYPE, "there is no dtype number %d", dtype);
  int status = amp__check_size(ndim, size, dtype, &count);
  if (status < 0) return status;
  int64_t want = count * amp__dtype_size[dtype];
  if (bytes != want)
    return amp__fail(AMP_E_SHAPE, "shape %s of %s takes %lld bytes, got %lld", amp__shape_str(ndim, size),
                     amp_dtype_name(dtype), (long long)want, (long long)bytes);
  amp_tensor *tensor = make(ndim, size, dtype);
  if (tensor == NULL) return state->err.code;
  if (bytes) memcpy(amp__data(tensor), data, (size_t)bytes);
  if (dtype == AMP_BOOL) { /* kernels count on 0 and 1 */
    uint8_t *p = amp__data(tensor);
    for (int64_t i = 0; i < count; i++) p[i] = p[i] != 0;
  }
  out->t = tensor;
  return 0;
}

int amp_from_ptr(amp_state *state, amp_ref *out, void *data, int ndim, const int64_t *size, int dtype)
{
  AMP_ENTER(state);
  int64_t count;
  if (dtype < 0 || dtype >= AMP_DTYPE_COUNT) return amp__fail(AMP_E_DTYPE, "there is no dtype number %d", dtype);
  int status = amp__check_size(ndim, size, dtype, &count);
  if (status < 0) return status;
  if (data == NULL && count > 0) return amp__fail(AMP_E_ARGUMENT, "the pointer is NULL");
  if ((uintptr_t)data % amp__dtype_size[dtype])
    return amp__fail(AMP_E_ARGUMENT, "the pointer is not aligned to %d bytes, as %s needs", amp__dtype_size[dtype],
                     amp_dtype_name(dtype));
  size_t bytes = (size_t)count * amp__dtype_size[dtype];
  amp_block *block = amp__block_foreign(AMP_CPU, 0, data, bytes);
  amp_storage *storage = block ? amp__storage_in(block, 0, bytes) : NULL;
  out->t = storage ? amp__tensor_of(storage, dtype, ndim, size, NULL, 0) : NULL;
  amp__storage_free(storage);
  amp__block_free(block);
  return out->t ? 0 : state->err.code;
}

int64_t amp_from_ptr_id(amp_state *state, const amp_ref *ref)
{
  AMP_ENTER(state);
  amp_block *block = ref->t ? ref->t->storage->block : NULL;
  if (block == NULL || !block->foreign) return 0;
  if (block->id == 0) block->id = amp__new_id();
  return block->id;
}

int amp_number(amp_state *state, amp_ref *out, double value)
{
  AMP_ENTER(state);
  return (out->t = amp__number(value)) ? 0 : state->err.code;
}

void *amp_data_ptr(amp_state *state, const amp_ref *ref)
{
  AMP_ENTER(state);
  if (ref->t == NULL) {
    freed();
    return NULL;
  }
  if (amp__trace_refuse("the address of its elements is read", ref->t) < 0) return NULL;
  if (!(ref->t->storage->flags & AMP_S_EXPOSED)) ref->t->storage->flags |= AMP_S_EXPOSED; /* readers may share it */
  return amp__data(ref->t);
}

/* -- To the caller ----------------------------------------------------------------- */

double amp__element(const amp_tensor *tensor, int64_t offset)
{
  return amp__one_nan(
      amp__value_get((const char *)amp__data(tensor) + offset * amp__dtype_size[tensor->dtype], tensor->dtype));
}

/* tensor itself or a copy of it in CPU memory, counted. */
amp_tensor *amp__on_cpu(amp_tensor *tensor)
{
  amp_tensor *dense = tensor, *here;
  if (tensor->device == AMP_CPU) {
    amp__retain(tensor);
    return tensor;
  }
  if (!(tensor->flags & AMP_T_CONTIGUOUS)) {
    amp_tensor *out[AMP_MAX_OUT] = { NULL };
    amp_slot contiguous = { .i = 1 };
    amp__plain plain = amp__plain_begin();
    int status = amp__dispatch(AMP_OP_clone, 0, &tensor, 1, out, &contiguous);
    amp__plain_end(plain);
    if (status < 0) return NULL;
    dense = out[0];
  }
  here = amp__tensor_make(tensor->dtype, AMP_CPU, 0, tensor->ndim, tensor->size);
  if (here && amp__devices[tensor->device].copy(here, dense) < 0) {
    amp__free(here);
    here = NULL;
  }
  if (dense != tensor) amp__free(dense);
  return here;
}

int amp_item(amp_state *state, const amp_ref *ref, double *out)
{
  AMP_ENTER(state);
  if (ref->t == NULL) return freed();
  if (ref->t->numel != 1)
    return amp__fail(AMP_E_SHAPE, "a tensor of one element is expected, got shape %s",
                     amp__shape_str(ref->t->ndim, ref->t->size));
  if (amp__trace_refuse("its value is read", ref->t) < 0) return state->err.code;
  amp_tensor *tensor = amp__on_cpu(ref->t);
  if (tensor == NULL) return state->err.code;
  state->host_waits++;
  *out = amp__element(tensor, 0);
  amp__free(tensor);
  return 0;
}

int amp_get1(amp_state *state, const amp_ref *ref, const int64_t *index, double *out)
{
  AMP_ENTER(state);
  const amp_tensor *tensor = ref->t;
  int64_t at = 0;
  if (tensor == NULL) return freed();
  if (amp__trace_refuse("its values are read", tensor) < 0) return state->err.code;
  for (int i = 0; i < tensor->ndim; i++) {
    if (index[i] < 0 || index[i] >= tensor->size[i])
      return amp__fail(AMP_E_INDEX, "index %lld is out of range for dimension %d of size %lld", (long long)index[i] + 1,
                       i + 1, (long long)tensor->size[i]);
    at += index[i] * tensor->stride[i];
  }
  state->host_waits++;
  if (tensor->device == AMP_CPU) {
    *out = amp__element(tensor, at);
    return 0;
  }
  amp_tensor *one = amp__tensor_of(tensor->storage, tensor->dtype, 0, NULL, NULL, tensor->offset + at);
  amp_tensor *here = one ? amp__on_cpu(one) : NULL;
  if (here) *out = amp__element(here, 0);
  amp__free(one);
  if (here == NULL) return state->err.code;
  amp__free(here);
  return 0;
}

int amp_read(amp_state *state, const amp_ref *ref, double *out, int64_t count)
{
  AMP_ENTER(state);
  if (ref->t == NULL) return freed();
  if (count != ref->t->numel)
    return amp__fail(AMP_E_ARGUMENT, "the tensor has %lld elements, room for %lld was given", (long long)ref->t->numel,
                     (long long)count);
  if (amp__trace_refuse("its values are read", ref->t) < 0) return state->err.code;
  amp_tensor *tensor = amp__on_cpu(ref->t);
  if (tensor == NULL) return state->err.code;
  state->host_waits++;
  int64_t index[AMP_MAX_DIM] = { 0 }, at = 0;
  int last = tensor->ndim - 1;
  int64_t row = last >= 0 ? tensor->size[last] : 1, step = last >= 0 ? tensor->stride[last] : 0;
  for (int64_t i = 0; i < count; i += row) {
    for (int64_t k = 0; k < row; k++) *out++ = amp__element(tensor, at + k * step);
    for (int dim = last - 1; dim >= 0; dim--) {
      at += tensor->stride[dim];
      if (++index[dim] < tensor->size[dim]) break;
      at -= index[dim] * tensor->stride[dim];
      index[dim] = 0;
    }
  }
  amp__free(tensor);
  return 0;
}
