/*
** amp_tensor.c: tensors: a dtype, sizes and strides over a counted storage.
** What reads or writes single elements for callers is in amp_read.c.
**
** A tensor is plain memory: views share the storage, aliases share the view
** too, and nothing here knows of history except that the last count gives the
** autograd side back. amp__free may be called from any thread and from
** finalizers; it waits for nothing.
*/
#include "amp_core.h"

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
  int64_t n = 1, bytes;
  bool empty = false, overflow = false;
  if (ndim < 0 || ndim > AMP_MAX_DIM)
    return amp__fail(AMP_E_SHAPE, "%d dimensions are too many; at most %d are supported", ndim, AMP_MAX_DIM);
  for (int i = 0; i < ndim; i++) {
    if (size[i] < 0)
      return amp__fail(AMP_E_SHAPE, "size %lld of dimension %d is negative in shape %s", (long long)size[i], i + 1, amp__shape_str(ndim, size));
    if (size[i] == 0) empty = true;
    else overflow |= __builtin_mul_overflow(n, size[i], &n);
  }
  overflow |= __builtin_mul_overflow(n, (int64_t)amp__dtype_size[dtype], &bytes) || n > INT64_MAX / 16; /* strides too must fit, and sums of them */
  if (overflow)
    return amp__fail(AMP_E_SHAPE, "shape %s of %s has more bytes than can be addressed", amp__shape_str(ndim, size), amp_dtype_name(dtype));
  if (numel) *numel = empty ? 0 : n;
  return 0;
}

void amp__tensor_set_flags(amp_tensor *t)
{
  int64_t n = 1;
  bool contiguous = true;
  uint32_t flags = t->flags & ~(uint32_t)(AMP_T_CONTIGUOUS | AMP_T_DENSE);
  for (int i = t->ndim - 1; i >= 0; i--) {
    if (t->size[i] != 1 && t->stride[i] != n) contiguous = false;
    n *= t->size[i];
  }
  t->numel = n;
  if (contiguous || n == 0) { t->flags = flags | AMP_T_CONTIGUOUS | AMP_T_DENSE; return; }
  /* dense: by growing stride, each one is the product of the sizes before */
  uint32_t left = 0;
  int64_t want = 1;
  for (int i = 0; i < t->ndim; i++) if (t->size[i] != 1) left |= 1u << i;
  while (left) {
    int hit = -1;
    for (int i = 0; i < t->ndim; i++) if ((left >> i & 1) && t->stride[i] == want) { hit = i; break; }
    if (hit < 0) { t->flags = flags; return; }
    want *= t->size[hit];
    left &= ~(1u << hit);
  }
  t->flags = flags | AMP_T_DENSE;
}

void amp__meta_of(const amp_tensor *t, amp_meta *m)
{
  m->dtype = t->dtype;
  m->ndim = t->ndim;
  m->device = t->device;
  m->device_index = t->device_index;
  m->strides = (t->flags & (AMP_T_DENSE | AMP_T_CONTIGUOUS)) == AMP_T_DENSE;
  for (int i = 0; i < t->ndim; i++) m->size[i] = t->size[i];
  if (m->strides) for (int i = 0; i < t->ndim; i++) m->stride[i] = t->stride[i];
}

/* -- Making ---------------------------------------------------------------------- */

/* Numbers come to each thread in lots, so that no op pays for a shared counter. */
static int64_t next_id(void)
{
  enum { LOT = 1024 };
  static _Atomic int64_t issued = 1;
  static _Thread_local int64_t next __attribute__((tls_model("initial-exec"))) = 0, end __attribute__((tls_model("initial-exec"))) = 0;
  if (amp_unlikely(next == end)) {
    next = atomic_fetch_add_explicit(&issued, LOT, memory_order_relaxed);
    end = next + LOT;
  }
  return next++;
}

static amp_tensor *shell(int dtype, int device, int index, int ndim)
{
  amp_tensor *t = amp__obj_alloc(sizeof *t);
  if (amp_unlikely(t == NULL)) { amp__nomem(sizeof *t); return NULL; }
  t->refs = 1;
  t->dtype = (uint8_t)dtype;
  t->ndim = (uint8_t)ndim;
  t->device = (uint8_t)device;
  t->device_index = (uint8_t)index;
  t->flags = 0;
  t->scale_serial = 0;
  t->id = next_id();
  t->offset = 0;
  t->storage = NULL;
  t->ag = NULL;
  t->size[0] = t->stride[0] = 1; /* of a scalar, where it counts as a row of one element */
  return t;
}

static amp_tensor *without_storage(amp_tensor *t)
{
  amp__obj_free(t, sizeof *t);
  return NULL;
}

amp_tensor *amp__tensor_new(const amp_meta *m)
{
  int64_t n = 1;
  bool overflow = false;
  amp_tensor *t = shell(m->dtype, m->device, m->device_index, m->ndim);
  if (amp_unlikely(t == NULL)) return NULL;
  for (int i = m->ndim - 1; i >= 0; i--) {
    t->size[i] = m->size[i];
    t->stride[i] = n;
    overflow |= __builtin_mul_overflow(n, m->size[i] > 1 ? m->size[i] : 1, &n);
  }
  overflow |= n > INT64_MAX / 16;
  for (int i = 0; i < m->ndim; i++) if (m->size[i] == 0) n = 0;
  if (amp_unlikely(overflow)) {
    amp__fail(AMP_E_SHAPE, "shape %s of %s has more bytes than can be addressed", amp__shape_str(m->ndim, m->size), amp_dtype_name(m->dtype));
    return without_storage(t);
  }
  t->numel = n;
  t->flags = AMP_T_CONTIGUOUS | AMP_T_DENSE;
  if (m->strides) {
    for (int i = 0; i < m->ndim; i++) t->stride[i] = m->stride[i];
    amp__tensor_set_flags(t);
    if (n > 0) { /* there may be gaps */
      n = 1;
      for (int i = 0; i < m->ndim; i++) n += (m->size[i] - 1) * m->stride[i];
      if (m->strides == AMP_M_ROOM) n = m->room;
    }
  }
  t->storage = amp__storage_new(m->device, m->device_index, (size_t)n * amp__dtype_size[m->dtype]);
  return amp_likely(t->storage != NULL) ? t : without_storage(t);
}

amp_tensor *amp__tensor_make(int dtype, int device, int index, int ndim, const int64_t *size)
{
  amp_meta m;
  m.dtype = (uint8_t)dtype;
  m.ndim = (uint8_t)ndim;
  m.device = (uint8_t)device;
  m.device_index = (uint8_t)index;
  m.strides = 0;
  for (int i = 0; i < ndim; i++) m.size[i] = size[i];
  return amp__tensor_new(&m);
}

amp_tensor *amp__tensor_of(amp_storage *s, int dtype, int ndim, const int64_t *size, const int64_t *stride, int64_t offset)
{
  amp_tensor *t = shell(dtype, s->device, s->index, ndim);
  if (t == NULL) return NULL;
  for (int i = 0; i < ndim; i++) t->size[i] = size[i];
  if (stride) for (int i = 0; i < ndim; i++) t->stride[i] = stride[i];
  else amp__contiguous_strides(ndim, size, t->stride);
  t->offset = offset;
  t->storage = s;
  amp__storage_retain(s);
  amp__tensor_set_flags(t);
  return t;
}

amp_tensor *amp__tensor_view(const amp_tensor *t, int ndim, const int64_t *size, const int64_t *stride, int64_t offset)
{
  amp_tensor *v = amp__tensor_of(t->storage, t->dtype, ndim, size, stride, offset);
  if (v) v->flags |= AMP_T_VIEW;
  return v;
}

amp_tensor *amp__tensor_alias(const amp_tensor *t)
{
  amp_tensor *v = shell(t->dtype, t->device, t->device_index, t->ndim);
  if (v == NULL) return NULL;
  v->flags = t->flags & ~(uint32_t)(AMP_T_REQUIRES_GRAD | AMP_T_HISTORY | AMP_T_WEIGHT);
  v->scale_serial = t->scale_serial;
  v->numel = t->numel;
  v->offset = t->offset;
  for (int i = 0; i < t->ndim; i++) {
    v->size[i] = t->size[i];
    v->stride[i] = t->stride[i];
  }
  v->storage = t->storage;
  amp__storage_retain(v->storage);
  return v;
}

amp_tensor *amp__number(double value)
{
  amp_tensor *t = amp__tensor_make(AMP_FLOAT64, AMP_CPU, 0, 0, NULL);
  if (t == NULL) return NULL;
  t->flags |= AMP_T_NUMBER;
  *(double *)t->storage->data = value;
  return t;
}

/* -- Counts ------------------------------------------------------------------------- */

void amp__free(amp_tensor *t)
{
  if (t == NULL) return;
  /* the only owner needs no atomic subtraction */
  if (__atomic_load_n(&t->refs, __ATOMIC_ACQUIRE) != 1 && __atomic_sub_fetch(&t->refs, 1, __ATOMIC_ACQ_REL) != 0) return;
  if (amp_unlikely(t->ag != NULL)) amp__ag_free(t);
  amp__storage_free(t->storage);
  amp__obj_free(t, sizeof *t);
}

void amp_collect(amp_ref *r)
{
  amp__memory_collecting(true);
  amp_release(r);
  amp__memory_collecting(false);
}

void amp_release(amp_ref *r)
{
  amp_tensor *t = r->t;
  r->t = NULL;
  amp__free(t);
}

void amp_retain(amp_ref *out, const amp_ref *a)
{
  out->t = a->t;
  if (a->t) amp__retain(a->t);
}

/* -- Identity ------------------------------------------------------------------------- */

uint32_t amp_tensor_version(const amp_ref *a) { return a->t ? amp__version(a->t) : 0; }

int64_t amp_tensor_storage_bytes(const amp_ref *a) { return a->t && a->t->storage ? (int64_t)a->t->storage->bytes : 0; }

int amp_same_storage(const amp_ref *a, const amp_ref *b)
{
  return a->t && b->t && a->t->storage == b->t->storage;
}

int amp_detach(amp_state *S, amp_ref *out, const amp_ref *a)
{
  AMP_ENTER(S);
  if (a->t == NULL) return amp__fail_arg(AMP_E_ARGUMENT, 1, "the tensor was freed");
  if ((out->t = amp__tensor_alias(a->t)) == NULL) return S->err.code;
  out->t->flags = (out->t->flags & ~(uint32_t)AMP_T_UNRECORDED) | AMP_T_VIEW;
  return 0;
}

/* The tensor keeps its handles, its id and its gradient; only where its elements lie changes. The new storage gets
** a version that no saved copy of the old one can have. */
int amp_set_data(amp_state *S, const amp_ref *a, const amp_ref *b)
{
  AMP_ENTER(S);
  amp_tensor *t = a->t, *u = b->t;
  if (t == NULL || u == NULL) return amp__fail_arg(AMP_E_ARGUMENT, t ? 2 : 1, "the tensor was freed");
  if (t == u) return 0;
  if (t->flags & AMP_T_HISTORY)
    return amp__fail(AMP_E_AUTOGRAD, "only a leaf's data can be replaced; this tensor was made by a recorded op");
  if ((t->flags & AMP_T_REQUIRES_GRAD) && !amp__is_float(u->dtype))
    return amp__fail(AMP_E_DTYPE, "a tensor that requires grad can't become %s", amp_dtype_name(u->dtype));
  amp_storage *old = t->storage;
  if (t->ag) amp__shadow_drop(t->ag);
  if (old != u->storage) {
    uint32_t least = old->version + 1;
    if (u->storage->version < least) u->storage->version = least;
    amp__storage_retain(u->storage);
    t->storage = u->storage;
    amp__storage_free(old);
  } else u->storage->version++;
  t->dtype = u->dtype;
  t->device = u->device;
  t->device_index = u->device_index;
  t->ndim = u->ndim;
  t->numel = u->numel;
  t->offset = u->offset;
  for (int i = 0; i < u->ndim; i++) {
    t->size[i] = u->size[i];
    t->stride[i] = u->stride[i];
  }
  const uint32_t layout = AMP_T_CONTIGUOUS | AMP_T_DENSE;
  t->flags = (t->flags & ~(layout | AMP_T_NUMBER)) | (u->flags & layout);
  return 0;
}
