/*
** amp_read.c: values in and out of tensors: made from numbers, bytes or memory
** of the caller; read one by one or all at once. Whatever dtype, layout and
** device, callers see doubles in C order. Reads of another device copy the
** tensor here first; every read counts as a wait of the host.
*/
#include <math.h>
#include <stdio.h>
#include "amp_core.h"
#include "amp_tape.h"

static int freed(void) { return amp__fail_arg(AMP_E_ARGUMENT, 1, "the tensor was freed"); }

/* -- From the caller ----------------------------------------------------------- */

static amp_tensor *make(int ndim, const int64_t *size, int dtype)
{
  if (dtype < 0 || dtype >= AMP_DTYPE_COUNT) { amp__fail(AMP_E_DTYPE, "there is no dtype number %d", dtype); return NULL; }
  if (amp__check_size(ndim, size, dtype, NULL) < 0) return NULL;
  return amp__tensor_make(dtype, AMP_CPU, 0, ndim, size);
}

/* "[2, 3]", the place of element i, counted from 1. */
static const char *place(const amp_tensor *t, int64_t i, char *buf, size_t n)
{
  int64_t index[AMP_MAX_DIM];
  size_t at = 0;
  for (int d = t->ndim - 1; d >= 0; d--) {
    index[d] = i % t->size[d] + 1;
    i /= t->size[d];
  }
  buf[0] = 0;
  for (int d = 0; d < t->ndim && at + 24 < n; d++)
    at += (size_t)snprintf(buf + at, n - at, "%s%lld", d ? ", " : "", (long long)index[d]);
  return buf;
}

int amp_from_double(amp_state *S, amp_ref *out, const double *data, int ndim, const int64_t *size, int dtype)
{
  AMP_ENTER(S);
  amp_tensor *t = make(ndim, size, dtype);
  if (t == NULL) return S->err.code;
  char *p = amp__data(t);
  for (int64_t i = 0; i < t->numel; i++, p += amp__dtype_size[dtype])
    if (amp_unlikely(!amp__value_put(p, dtype, data[i]))) {
      char at[200];
      int rc = amp__fail(AMP_E_VALUE, "value %.17g at [%s] does not fit %s", isnan(data[i]) ? (double)NAN : data[i], place(t, i, at, sizeof at), amp_dtype_name(dtype));
      amp__free(t);
      return rc;
    }
  out->t = t;
  return 0;
}

int amp_from_bytes(amp_state *S, amp_ref *out, const void *data, int64_t bytes, int ndim, const int64_t *size, int dtype)
{
  AMP_ENTER(S);
  int64_t n;
  if (dtype < 0 || dtype >= AMP_DTYPE_COUNT) return amp__fail(AMP_E_DTYPE, "there is no dtype number %d", dtype);
  int rc = amp__check_size(ndim, size, dtype, &n);
  if (rc < 0) return rc;
  int64_t want = n * amp__dtype_size[dtype];
  if (bytes != want)
    return amp__fail(AMP_E_SHAPE, "shape %s of %s takes %lld bytes, got %lld", amp__shape_str(ndim, size), amp_dtype_name(dtype), (long long)want, (long long)bytes);
  amp_tensor *t = make(ndim, size, dtype);
  if (t == NULL) return S->err.code;
  if (bytes) memcpy(amp__data(t), data, (size_t)bytes);
  if (dtype == AMP_BOOL) { /* kernels count on 0 and 1 */
    uint8_t *p = amp__data(t);
    for (int64_t i = 0; i < n; i++) p[i] = p[i] != 0;
  }
  out->t = t;
  return 0;
}

int amp_from_ptr(amp_state *S, amp_ref *out, void *data, int ndim, const int64_t *size, int dtype)
{
  AMP_ENTER(S);
  int64_t n;
  if (dtype < 0 || dtype >= AMP_DTYPE_COUNT) return amp__fail(AMP_E_DTYPE, "there is no dtype number %d", dtype);
  int rc = amp__check_size(ndim, size, dtype, &n);
  if (rc < 0) return rc;
  if (data == NULL && n > 0) return amp__fail(AMP_E_ARGUMENT, "the pointer is NULL");
  if ((uintptr_t)data % amp__dtype_size[dtype])
    return amp__fail(AMP_E_ARGUMENT, "the pointer is not aligned to %d bytes, as %s needs", amp__dtype_size[dtype], amp_dtype_name(dtype));
  size_t bytes = (size_t)n * amp__dtype_size[dtype];
  amp_block *b = amp__block_foreign(AMP_CPU, 0, data, bytes);
  amp_storage *s = b ? amp__storage_in(b, 0, bytes) : NULL;
  out->t = s ? amp__tensor_of(s, dtype, ndim, size, NULL, 0) : NULL;
  amp__storage_free(s);
  amp__block_free(b);
  return out->t ? 0 : S->err.code;
}

int64_t amp_from_ptr_id(amp_state *S, const amp_ref *a)
{
  AMP_ENTER(S);
  amp_block *b = a->t ? a->t->storage->block : NULL;
  if (b == NULL || !b->foreign) return 0;
  if (b->id == 0) b->id = amp__new_id();
  return b->id;
}

int amp_number(amp_state *S, amp_ref *out, double value)
{
  AMP_ENTER(S);
  return (out->t = amp__number(value)) ? 0 : S->err.code;
}

void *amp_data_ptr(amp_state *S, const amp_ref *a)
{
  AMP_ENTER(S);
  if (a->t == NULL) { freed(); return NULL; }
  if (!(a->t->storage->flags & AMP_S_EXPOSED)) a->t->storage->flags |= AMP_S_EXPOSED; /* readers may share it */
  return amp__data(a->t);
}

/* -- To the caller ----------------------------------------------------------------- */

double amp__element(const amp_tensor *t, int64_t offset)
{
  return amp__one_nan(amp__value_get((const char *)amp__data(t) + offset * amp__dtype_size[t->dtype], t->dtype));
}

/* t itself or a copy of it in CPU memory, counted. */
amp_tensor *amp__on_cpu(amp_tensor *t)
{
  amp_tensor *dense = t, *here;
  if (t->device == AMP_CPU) { amp__retain(t); return t; }
  if (!(t->flags & AMP_T_CONTIGUOUS)) {
    amp_tensor *out[AMP_MAX_OUT] = { NULL };
    amp_slot contiguous = { .i = 1 };
    int32_t grad_mode = amp__S->grad_mode;
    amp__S->grad_mode = 0;
    int rc = amp__dispatch(AMP_OP_clone, 0, &t, 1, out, &contiguous);
    amp__S->grad_mode = grad_mode;
    if (rc < 0) return NULL;
    dense = out[0];
  }
  here = amp__tensor_make(t->dtype, AMP_CPU, 0, t->ndim, t->size);
  if (here && amp__devices[t->device].copy(here, dense) < 0) { amp__free(here); here = NULL; }
  if (dense != t) amp__free(dense);
  return here;
}

int amp_item(amp_state *S, const amp_ref *a, double *out)
{
  AMP_ENTER(S);
  if (a->t == NULL) return freed();
  if (a->t->numel != 1)
    return amp__fail(AMP_E_SHAPE, "a tensor of one element is expected, got shape %s", amp__shape_str(a->t->ndim, a->t->size));
  amp_tensor *t = amp__on_cpu(a->t);
  if (t == NULL) return S->err.code;
  S->host_waits++;
  *out = amp__element(t, 0);
  amp__free(t);
  return 0;
}

int amp_get1(amp_state *S, const amp_ref *a, const int64_t *index, double *out)
{
  AMP_ENTER(S);
  const amp_tensor *t = a->t;
  int64_t at = 0;
  if (t == NULL) return freed();
  for (int i = 0; i < t->ndim; i++) {
    if (index[i] < 0 || index[i] >= t->size[i])
      return amp__fail(AMP_E_INDEX, "index %lld is out of range for dimension %d of size %lld", (long long)index[i] + 1, i + 1, (long long)t->size[i]);
    at += index[i] * t->stride[i];
  }
  S->host_waits++;
  if (t->device == AMP_CPU) { *out = amp__element(t, at); return 0; }
  amp_tensor *one = amp__tensor_of(t->storage, t->dtype, 0, NULL, NULL, t->offset + at);
  amp_tensor *here = one ? amp__on_cpu(one) : NULL;
  if (here) *out = amp__element(here, 0);
  amp__free(one);
  if (here == NULL) return S->err.code;
  amp__free(here);
  return 0;
}

int amp_read(amp_state *S, const amp_ref *a, double *out, int64_t n)
{
  AMP_ENTER(S);
  if (a->t == NULL) return freed();
  if (n != a->t->numel)
    return amp__fail(AMP_E_ARGUMENT, "the tensor has %lld elements, room for %lld was given", (long long)a->t->numel, (long long)n);
  amp_tensor *t = amp__on_cpu(a->t);
  if (t == NULL) return S->err.code;
  S->host_waits++;
  int64_t index[AMP_MAX_DIM] = { 0 }, at = 0;
  int last = t->ndim - 1;
  int64_t row = last >= 0 ? t->size[last] : 1, step = last >= 0 ? t->stride[last] : 0;
  for (int64_t i = 0; i < n; i += row) {
    for (int64_t k = 0; k < row; k++) *out++ = amp__element(t, at + k * step);
    for (int d = last - 1; d >= 0; d--) {
      at += t->stride[d];
      if (++index[d] < t->size[d]) break;
      at -= index[d] * t->stride[d];
      index[d] = 0;
    }
  }
  amp__free(t);
  return 0;
}
