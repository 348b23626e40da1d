/*
** tensor/tensor.c: tensors: a dtype, sizes and strides over a counted storage.
** What reads or writes single elements for callers is in dispatch/read.c.
**
** A tensor is plain memory: views share the storage, aliases share the view
** too, and nothing here knows of history except that the last count gives the
** autograd side back. amp__free may be called from any thread and from
** finalizers; it waits for nothing.
*/
#include "tensor/tensor.h"

/* -- Shapes ------------------------------------------------------------------ */

void amp__contiguous_strides(int ndim, const int64_t *size, int64_t *stride)
{
  int64_t s = 1;
  for (int i = ndim - 1; i >= 0; i--) {
    stride[i] = s;
    s *= size[i] > 1 ? size[i] : 1;
  }
}

int amp__check_size(int ndim, const int64_t *size, int dtype, int64_t *numel)
{
  int64_t count = 1, bytes;
  bool empty = false, overflow = false;
  if (ndim < 0 || ndim > AMP_MAX_DIM)
    return amp__fail(AMP_E_SHAPE, "%d dimensions are too many; at most %d are supported", ndim, AMP_MAX_DIM);
  for (int i = 0; i < ndim; i++) {
    if (size[i] < 0)
      return amp__fail(AMP_E_SHAPE, "size %lld of dimension %d is negative in shape %s", (long long)size[i], i + 1,
                       amp__shape_str(ndim, size));
    if (size[i] == 0) empty = true;
    else overflow |= __builtin_mul_overflow(count, size[i], &count);
  }
  overflow |= __builtin_mul_overflow(count, (int64_t)amp__dtype_size[dtype], &bytes)
              || count > INT64_MAX / 16; /* strides too must fit, and sums of them */
  if (overflow)
    return amp__fail(AMP_E_SHAPE, "a tensor of shape %s has more bytes than can be addressed",
                     amp__shape_str(ndim, size));
  if (numel) *numel = empty ? 0 : count;
  return 0;
}

void amp__tensor_set_flags(amp_tensor *tensor)
{
  int64_t count = 1;
  bool contiguous = true;
  uint32_t flags = tensor->flags & ~(uint32_t)(AMP_T_CONTIGUOUS | AMP_T_DENSE);
  for (int i = tensor->ndim - 1; i >= 0; i--) {
    if (tensor->size[i] != 1 && tensor->stride[i] != count) contiguous = false;
    count *= tensor->size[i];
  }
  tensor->numel = count;
  if (contiguous || count == 0) {
    tensor->flags = flags | AMP_T_CONTIGUOUS | AMP_T_DENSE;
    return;
  }
  /* dense: by growing stride, each one is the product of the sizes before */
  uint32_t left = 0;
  int64_t want = 1;
  for (int i = 0; i < tensor->ndim; i++)
    if (tensor->size[i] != 1) left |= 1u << i;
  while (left) {
    int hit = -1;
    for (int i = 0; i < tensor->ndim; i++)
      if ((left >> i & 1) && tensor->stride[i] == want) {
        hit = i;
        break;
      }
    if (hit < 0) {
      tensor->flags = flags;
      return;
    }
    want *= tensor->size[hit];
    left &= ~(1u << hit);
  }
  tensor->flags = flags | AMP_T_DENSE;
}

/* Old dimensions fall into runs that are contiguous among themselves; new ones must not cross a run. */
bool amp__view_strides(const amp_tensor *tensor, int ndim, const int64_t *size, int64_t *stride)
{
  if (tensor->flags & AMP_T_CONTIGUOUS) {
    amp__contiguous_strides(ndim, size, stride);
    return true;
  }
  int v = ndim - 1;
  int64_t run = 1, made = 1, base = tensor->ndim ? tensor->stride[tensor->ndim - 1] : 1;
  for (int dim = tensor->ndim - 1; dim >= 0; dim--) {
    run *= tensor->size[dim];
    if (dim > 0 && (tensor->size[dim - 1] == 1 || tensor->stride[dim - 1] == run * base)) continue;
    while (v >= 0 && (made < run || size[v] == 1)) {
      stride[v] = made * base;
      made *= size[v--];
    }
    if (made != run) return false;
    if (dim > 0) {
      run = made = 1;
      base = tensor->stride[dim - 1];
    }
  }
  return v < 0;
}

void amp__meta_of(const amp_tensor *tensor, amp_meta *meta)
{
  meta->dtype = tensor->dtype;
  meta->ndim = tensor->ndim;
  meta->device = tensor->device;
  meta->device_index = tensor->device_index;
  meta->strides = (tensor->flags & (AMP_T_DENSE | AMP_T_CONTIGUOUS)) == AMP_T_DENSE;
  for (int i = 0; i < tensor->ndim; i++) meta->size[i] = tensor->size[i];
  if (meta->strides)
    for (int i = 0; i < tensor->ndim; i++) meta->stride[i] = tensor->stride[i];
}

/* -- Making ---------------------------------------------------------------------- */

/* Numbers come to each thread in lots, so that no op pays for a shared counter. */
static int64_t next_id(void)
{
  enum { LOT = 1024 };
  static _Atomic int64_t issued = 1;
  static _Thread_local int64_t next AMP_TLS_NEAR = 0, end AMP_TLS_NEAR = 0;
  if (amp_unlikely(next == end)) {
    next = atomic_fetch_add_explicit(&issued, LOT, memory_order_relaxed);
    end = next + LOT;
  }
  return next++;
}

static amp_tensor *shell(int dtype, int device, int index, int ndim)
{
  amp_tensor *tensor = amp__obj_alloc(sizeof *tensor);
  if (amp_unlikely(tensor == NULL)) {
    amp__nomem(sizeof *tensor);
    return NULL;
  }
  tensor->refs = 1;
  tensor->dtype = (uint8_t)dtype;
  tensor->ndim = (uint8_t)ndim;
  tensor->device = (uint8_t)device;
  tensor->device_index = (uint8_t)index;
  tensor->flags = 0;
  tensor->scale_serial = 0;
  tensor->id = next_id();
  tensor->offset = 0;
  tensor->storage = NULL;
  tensor->ag = NULL;
  tensor->size[0] = tensor->stride[0] = 1; /* of a scalar, where it counts as a row of one element */
  return tensor;
}

static amp_tensor *without_storage(amp_tensor *tensor)
{
  amp__obj_free(tensor, sizeof *tensor);
  return NULL;
}

amp_tensor *amp__tensor_new(const amp_meta *meta)
{
  int64_t count = 1;
  bool overflow = false;
  amp_tensor *tensor = shell(meta->dtype, meta->device, meta->device_index, meta->ndim);
  if (amp_unlikely(tensor == NULL)) return NULL;
  for (int i = meta->ndim - 1; i >= 0; i--) {
    tensor->size[i] = meta->size[i];
    tensor->stride[i] = count;
    overflow |= __builtin_mul_overflow(count, meta->size[i] > 1 ? meta->size[i] : 1, &count);
  }
  overflow |= count > INT64_MAX / 16;
  for (int i = 0; i < meta->ndim; i++)
    if (meta->size[i] == 0) count = 0;
  if (amp_unlikely(overflow)) {
    amp__fail(AMP_E_SHAPE, "a tensor of shape %s has more bytes than can be addressed",
              amp__shape_str(meta->ndim, meta->size));
    return without_storage(tensor);
  }
  tensor->numel = count;
  tensor->flags = AMP_T_CONTIGUOUS | AMP_T_DENSE;
  if (meta->strides) {
    for (int i = 0; i < meta->ndim; i++) tensor->stride[i] = meta->stride[i];
    amp__tensor_set_flags(tensor);
    if (count > 0) { /* there may be gaps */
      count = 1;
      for (int i = 0; i < meta->ndim; i++) count += (meta->size[i] - 1) * meta->stride[i];
      if (meta->strides == AMP_M_ROOM) count = meta->room;
    }
  }
  tensor->storage = amp__storage_new(meta->device, meta->device_index, (size_t)count * amp__dtype_size[meta->dtype]);
  return amp_likely(tensor->storage != NULL) ? tensor : without_storage(tensor);
}

amp_tensor *amp__tensor_make(int dtype, int device, int index, int ndim, const int64_t *size)
{
  amp_meta meta;
  meta.dtype = (uint8_t)dtype;
  meta.ndim = (uint8_t)ndim;
  meta.device = (uint8_t)device;
  meta.device_index = (uint8_t)index;
  meta.strides = 0;
  for (int i = 0; i < ndim; i++) meta.size[i] = size[i];
  return amp__tensor_new(&meta);
}

amp_tensor *amp__tensor_of(amp_storage *storage, int dtype, int ndim, const int64_t *size, const int64_t *stride,
                           int64_t offset)
{
  amp_tensor *tensor = shell(dtype, storage->device, storage->index, ndim);
  if (tensor == NULL) return NULL;
  for (int i = 0; i < ndim; i++) tensor->size[i] = size[i];
  if (stride)
    for (int i = 0; i < ndim; i++) tensor->stride[i] = stride[i];
  else amp__contiguous_strides(ndim, size, tensor->stride);
  tensor->offset = offset;
  tensor->storage = storage;
  amp__storage_retain(storage);
  amp__tensor_set_flags(tensor);
  return tensor;
}

amp_tensor *amp__tensor_view(const amp_tensor *tensor, int ndim, const int64_t *size, const int64_t *stride,
                             int64_t offset)
{
  amp_tensor *value = amp__tensor_of(tensor->storage, tensor->dtype, ndim, size, stride, offset);
  if (value) value->flags |= AMP_T_VIEW;
  return value;
}

amp_tensor *amp__tensor_alias(const amp_tensor *tensor)
{
  amp_tensor *value = shell(tensor->dtype, tensor->device, tensor->device_index, tensor->ndim);
  if (value == NULL) return NULL;
  value->flags = tensor->flags & ~(uint32_t)(AMP_T_REQUIRES_GRAD | AMP_T_HISTORY | AMP_T_WEIGHT);
  value->scale_serial = tensor->scale_serial;
  value->numel = tensor->numel;
  value->offset = tensor->offset;
  for (int i = 0; i < tensor->ndim; i++) {
    value->size[i] = tensor->size[i];
    value->stride[i] = tensor->stride[i];
  }
  value->storage = tensor->storage;
  amp__storage_retain(value->storage);
  AMP_ASSERT(value->ag == NULL);
  return value;
}

amp_tensor *amp__number(double value)
{
  amp_tensor *tensor = amp__tensor_make(AMP_FLOAT64, AMP_CPU, 0, 0, NULL);
  if (tensor == NULL) return NULL;
  tensor->flags |= AMP_T_NUMBER;
  *(double *)tensor->storage->data = value;
  return tensor;
}

/* -- Counts ------------------------------------------------------------------------- */

void amp__free(amp_tensor *tensor)
{
  if (tensor == NULL) return;
  AMP_ASSERT(tensor->refs > 0);
  /* the only owner needs no atomic subtraction */
  if (__atomic_load_n(&tensor->refs, __ATOMIC_ACQUIRE) != 1
      && __atomic_sub_fetch(&tensor->refs, 1, __ATOMIC_ACQ_REL) != 0)
    return;
  if (amp_unlikely(tensor->ag != NULL)) amp__hooks.tensor_dies(tensor);
  amp__storage_free(tensor->storage);
  amp__obj_free(tensor, sizeof *tensor);
}

void amp_collect(amp_ref *r)
{
  amp__memory_collecting(true);
  amp_release(r);
  amp__memory_collecting(false);
}

void amp_release(amp_ref *r)
{
  amp_tensor *tensor = r->t;
  r->t = NULL;
  amp__free(tensor);
}

void amp_retain(amp_ref *out, const amp_ref *ref)
{
  out->t = ref->t;
  if (ref->t) amp__retain(ref->t);
}

/* -- Identity ------------------------------------------------------------------------- */

uint32_t amp_tensor_version(const amp_ref *ref) { return ref->t ? amp__version(ref->t) : 0; }

int64_t amp_tensor_storage_bytes(const amp_ref *ref)
{
  return ref->t && ref->t->storage ? (int64_t)ref->t->storage->bytes : 0;
}

int amp_same_storage(const amp_ref *ref, const amp_ref *b)
{
  return ref->t && b->t && ref->t->storage == b->t->storage;
}

int amp_detach(amp_state *state, amp_ref *out, const amp_ref *ref)
{
  AMP_ENTER(state);
  if (ref->t == NULL) return amp__fail_arg(AMP_E_ARGUMENT, 1, "the tensor was freed");
  if ((out->t = amp__tensor_alias(ref->t)) == NULL) return state->err.code;
  out->t->flags = (out->t->flags & ~(uint32_t)AMP_T_UNRECORDED) | AMP_T_VIEW;
  if (amp_unlikely(amp__tracing()) && amp__hooks.trace_detach(ref->t, out->t) < 0) {
    amp__free(out->t);
    out->t = NULL;
    return state->err.code;
  }
  return 0;
}

/* The tensor keeps its handles, its id and its gradient; only where its elements lie changes. The new storage gets
** a version that no saved copy of the old one can have. */
int amp_set_data(amp_state *state, const amp_ref *ref, const amp_ref *b)
{
  AMP_ENTER(state);
  amp_tensor *tensor = ref->t, *u = b->t;
  if (tensor == NULL || u == NULL) return amp__fail_arg(AMP_E_ARGUMENT, tensor ? 2 : 1, "the tensor was freed");
  if (tensor == u) return 0;
  if (amp__trace_refuse("its data are replaced", NULL) < 0) return state->err.code;
  if (tensor->flags & AMP_T_HISTORY)
    return amp__fail(AMP_E_AUTOGRAD, "only a leaf's data can be replaced; this tensor was made by a recorded op");
  if ((tensor->flags & AMP_T_REQUIRES_GRAD) && !amp__is_float(u->dtype))
    return amp__fail(AMP_E_DTYPE, "a tensor that requires grad can't become %s", amp_dtype_name(u->dtype));
  amp_storage *old = tensor->storage;
  if (tensor->ag) amp__hooks.data_replaced(tensor);
  if (old != u->storage) {
    uint32_t least = old->version + 1;
    if (u->storage->version < least) u->storage->version = least;
    amp__storage_retain(u->storage);
    tensor->storage = u->storage;
    amp__storage_free(old);
  } else u->storage->version++;
  tensor->dtype = u->dtype;
  tensor->device = u->device;
  tensor->device_index = u->device_index;
  tensor->ndim = u->ndim;
  tensor->numel = u->numel;
  tensor->offset = u->offset;
  for (int i = 0; i < u->ndim; i++) {
    tensor->size[i] = u->size[i];
    tensor->stride[i] = u->stride[i];
  }
  const uint32_t layout = AMP_T_CONTIGUOUS | AMP_T_DENSE;
  tensor->flags = (tensor->flags & ~(layout | AMP_T_NUMBER)) | (u->flags & layout);
  return 0;
}

/* -- Places ------------------------------------------------------------------------- */

bool amp__same_place(const amp_tensor *a, const amp_tensor *b)
{
  return a == b
         || (a->storage == b->storage && a->offset == b->offset && a->dtype == b->dtype && amp__same_size(a, b)
             && memcmp(a->stride, b->stride, sizeof(int64_t) * a->ndim) == 0);
}

/* Bytes of the tensor's storage: from the first of its elements to behind the last. */
static __attribute__((noinline)) void reach(const amp_tensor *tensor, int64_t *first, int64_t *end)
{
  int64_t bytes = amp__dtype_size[tensor->dtype], last = tensor->offset;
  for (int i = 0; i < tensor->ndim; i++) last += (tensor->size[i] - 1) * tensor->stride[i];
  *first = tensor->offset * bytes;
  *end = (last + 1) * bytes;
}

bool amp__may_overlap(const amp_tensor *a, const amp_tensor *b)
{
  int64_t first_a, first_b, end_a, end_b;
  if (a->storage != b->storage || a->numel == 0 || b->numel == 0) return false;
  reach(a, &first_a, &end_a);
  reach(b, &first_b, &end_b);
  return first_a < end_b && first_b < end_a;
}

bool amp__lies_in(const amp_tensor *part, const amp_tensor *whole)
{
  int64_t first, end, whole_first, whole_end;
  if (part->storage != whole->storage || part->dtype != whole->dtype) return false;
  if (part->numel == 0) return true;
  if (whole->numel == 0) return false;
  reach(part, &first, &end);
  reach(whole, &whole_first, &whole_end);
  return first >= whole_first && end <= whole_end;
}
