/*
** dispatch/shape_rules.c: shape rules of element-wise ops and what all rules share:
** promotion, broadcasting, dimensions and layouts.
**
** Promotion is PyTorch's: tensors of one or more dimensions come before
** 0-dimensional ones, those before numbers, and who comes later only matters if
** its kind (bool < integer < float) is higher. Results keep the strides that all
** inputs of the full shape have in common, so channels_last survives. The path
** of two equal contiguous inputs is the one that must be short.
*/
#include <float.h>
#include <math.h>
#include "dispatch/shape_rules.h"

/* -- Dimensions ---------------------------------------------------------------- */

int amp__norm_dim(amp_slot *s, int ndim, const char *what)
{
  int64_t d = s->i;
  if (amp_unlikely(d == 0 || d > ndim || d < -ndim)) {
    if (d == AMP_NONE) return amp__fail(AMP_E_ARGUMENT, "%s is missing", what);
    if (ndim == 0) return amp__fail(AMP_E_INDEX, "%s %lld is out of range: a scalar has no dimensions", what, LL(d));
    return amp__fail(AMP_E_INDEX, "%s %lld is out of range for %d dimension%s (1..%d, or negative from the end)", what,
                     LL(d), ndim, ndim == 1 ? "" : "s", ndim);
  }
  s->i = d > 0 ? d - 1 : ndim + d;
  return 0;
}

int amp__row_dim(amp_slot *s, int ndim, const char *what)
{
  if (ndim == 0 && (s->i == 1 || s->i == -1)) {
    s->i = 0;
    return 0;
  }
  if (ndim == 0 && s->i != AMP_NONE)
    return amp__fail(AMP_E_INDEX, "%s %lld is out of range: a scalar has dimension 1 (or -1) alone", what, LL(s->i));
  return amp__norm_dim(s, ndim, what);
}

/* Dimensions of a scalar: 1, once, is all that it has. */
static __attribute__((noinline)) int scalar_dims(amp_slot *list, uint32_t *mask)
{
  int status;
  for (int i = 1; i <= list[0].i; i++) {
    if ((status = amp__row_dim(&list[i], 0, "dimension")) < 0) return status;
    if (i > 1) return amp__fail(AMP_E_ARGUMENT, "dimension %lld is given twice", LL(list[i].i + 1));
  }
  list[0].i = 0;
  *mask = 0;
  return 0;
}

int amp__norm_dims(amp_slot *list, int ndim, uint32_t *mask)
{
  uint32_t seen = 0;
  int status;
  if (!is_given(list)) {
    list[0].i = ndim;
    for (int i = 0; i < AMP_MAX_DIM; i++) list[1 + i].i = i < ndim ? i : 0;
    *mask = (1u << ndim) - 1;
    return 0;
  }
  if (list[0].i < 0 || list[0].i > AMP_MAX_DIM)
    return amp__fail(AMP_E_ARGUMENT, "%lld dimensions are given; at most %d can be", LL(list[0].i), AMP_MAX_DIM);
  if (amp_unlikely(ndim == 0)) return scalar_dims(list, mask);
  for (int i = 1; i <= list[0].i; i++) {
    if ((status = amp__norm_dim(&list[i], ndim, "dimension")) < 0) return status;
    if (seen >> list[i].i & 1) return amp__fail(AMP_E_ARGUMENT, "dimension %lld is given twice", LL(list[i].i + 1));
    seen |= 1u << list[i].i;
  }
  *mask = seen;
  return 0;
}

/* -- Attributes and arguments ------------------------------------------------------ */

int amp__default_float(void)
{
  return amp__S && amp__is_float(amp__S->default_dtype) ? amp__S->default_dtype : AMP_FLOAT32;
}

int amp__dtype_attr(const amp_slot *s, int absent, int *dtype)
{
  if (!is_given(s)) {
    *dtype = absent;
    return 0;
  }
  if (s->i < 0 || s->i >= AMP_DTYPE_COUNT) return amp__fail(AMP_E_DTYPE, "there is no dtype number %lld", LL(s->i));
  *dtype = (int)s->i;
  return 0;
}

int amp__shape_attr(amp_slot *s, const char *what, int *ndim, int64_t *size)
{
  if (!is_given(s)) return amp__fail(AMP_E_ARGUMENT, "%s is missing", what);
  if (s[0].i < 0 || s[0].i > AMP_MAX_DIM)
    return amp__fail(AMP_E_SHAPE, "%s has %lld dimensions; at most %d are supported", what, LL(s[0].i), AMP_MAX_DIM);
  *ndim = (int)s[0].i;
  for (int i = 0; i < *ndim; i++) size[i] = s[1 + i].i;
  return amp__check_size(*ndim, size, AMP_FLOAT64, NULL);
}

int amp__equal_dtypes(const amp_call *call, int count)
{
  const amp_tensor *a = call->in[0];
  for (int i = 1; i < count && i < call->nin; i++) {
    const amp_tensor *b = call->in[i];
    if (b && amp_unlikely(b->dtype != a->dtype))
      return amp__fail_arg(AMP_E_DTYPE, i + 1, "dtypes %s and %s differ; cast one of them or run it under amp.autocast",
                           amp_dtype_name(a->dtype), amp_dtype_name(b->dtype));
  }
  return 0;
}

int amp__want_index(const amp_tensor *tensor, int arg, const char *what)
{
  if (amp__is_int(tensor->dtype)) return 0;
  return amp__fail_arg(
      AMP_E_DTYPE, arg,
      "%s has dtype %s, expected an integer dtype: t:long() converts, {dtype = 'int64'} makes such a tensor", what,
      amp_dtype_name(tensor->dtype));
}

int amp__want_shape(const amp_tensor *tensor, const char *what, int ndim, const int64_t *size)
{
  if (tensor->ndim == ndim && memcmp(tensor->size, size, sizeof *size * (size_t)ndim) == 0) return 0;
  return amp__fail(AMP_E_SHAPE, "%s has shape %s, expected %s", what, SHAPE_OF(tensor), amp__shape_str(ndim, size));
}

int amp__ask(amp_tensor *tensor, int op, double *v)
{
  amp_tensor *out[AMP_MAX_OUT] = { NULL };
  amp_slot a[AMP_MAX_SLOT];
  memcpy(a, amp__ops[op].defaults, sizeof a);
  a[0].i = AMP_NONE;
  int status = amp__dispatch_op(op, 0, &tensor, 1, out, a);
  if (status < 0) return status;
  amp_tensor *here = amp__on_cpu(out[0]);
  amp__free(out[0]);
  if (here == NULL) return amp__S->err.code;
  *v = amp__element(here, 0);
  amp__free(here);
  amp__S->host_waits++;
  return 0;
}

int amp__value_fits(double v, int dtype)
{
  bool ok = amp__fits(v, dtype);
  if (isfinite(v)) {
    if (dtype == AMP_FLOAT16) ok = fabs(v) < 65520;
    if (dtype == AMP_FLOAT32) ok = fabs(v) < 0x1.ffffffp127;
    if (dtype == AMP_BFLOAT16) ok = fabs(v) < 0x1.ffp127;
  }
  if (ok) return 0;
  if (amp__is_float(dtype))
    return amp__fail(AMP_E_VALUE,
                     "value %.17g does not fit dtype %s, whose largest is %.6g; use math.huge or a value in range", v,
                     amp_dtype_name(dtype),
                     dtype == AMP_FLOAT16    ? 65504.0
                     : dtype == AMP_BFLOAT16 ? 0x1.fep127
                                             : (double)FLT_MAX);
  return amp__fail(AMP_E_VALUE, "value %.17g does not fit dtype %s", isnan(v) ? (double)NAN : v, amp_dtype_name(dtype));
}

/* -- Promotion ------------------------------------------------------------------------ */

double amp__number_of(const amp_tensor *tensor) { return *(const double *)tensor->storage->data; }

static int combine(int high, int low)
{
  if (high < 0) return low;
  if (low < 0 || amp__is_float(high)) return high;
  if (high == AMP_BOOL || amp__is_float(low)) return amp__promote(high, low);
  return high;
}

int amp__result_dtype(const amp_call *call, int first, int count)
{
  int dims = -1, zero = -1, number = -1;
  for (int i = first; i < first + count && i < call->nin; i++) {
    const amp_tensor *tensor = call->in[i];
    if (tensor == NULL) continue;
    if (tensor->flags & AMP_T_NUMBER) {
      double v = amp__number_of(tensor);
      int dtype = v == floor(v) && isfinite(v) ? AMP_INT64 : amp__default_float();
      number = number < 0 ? dtype : amp__promote(number, dtype);
    } else {
      int *level = tensor->ndim ? &dims : &zero;
      *level = *level < 0 ? tensor->dtype : amp__promote(*level, tensor->dtype);
    }
  }
  if (dims < 0 && zero < 0) return amp__default_float();
  return combine(dims, combine(zero, number));
}

/* A number that meets integers must be one of theirs. */
static int check_numbers(const amp_call *call, int first, int n, int dtype)
{
  for (int i = first; i < first + n && i < call->nin; i++)
    if (call->in[i] && (call->in[i]->flags & AMP_T_NUMBER) && !amp__fits(amp__number_of(call->in[i]), dtype))
      return amp__fail_arg(AMP_E_VALUE, i + 1, "number %.17g does not fit dtype %s", amp__number_of(call->in[i]),
                           amp_dtype_name(dtype));
  return 0;
}

int amp__operand_dtype(const amp_call *call, int first, int count, int *dtype)
{
  if (amp_likely(count == 2)) {
    const amp_tensor *a = call->in[first], *b = call->in[first + 1];
    uint32_t numbers = (a->flags | b->flags) & AMP_T_NUMBER;
    if (amp_likely(a->dtype == b->dtype && !numbers)) {
      *dtype = a->dtype;
      return 0;
    }
    if (!(a->flags & AMP_T_NUMBER) && amp__is_float(a->dtype) && numbers) {
      *dtype = a->dtype;
      return 0;
    }
  }
  *dtype = amp__result_dtype(call, first, count);
  return amp__is_int(*dtype) ? check_numbers(call, first, count, *dtype) : 0;
}

/* -- Results ----------------------------------------------------------------------------- */

static const amp_tensor *home(const amp_call *call)
{
  const amp_tensor *tensor = NULL;
  for (int i = 0; i < call->nin; i++) {
    if (call->in[i] == NULL) continue;
    if (tensor == NULL) tensor = call->in[i];
    if (call->in[i]->device != AMP_CPU) return call->in[i];
  }
  return tensor;
}

static void place(amp_meta *meta, int dtype, const amp_tensor *at)
{
  meta->dtype = (uint8_t)dtype;
  meta->device = at->device;
  meta->device_index = at->device_index;
  meta->strides = 0;
}

void amp__out(amp_call *call, int i, int dtype, int ndim, const int64_t *size)
{
  AMP_ASSERT(i < AMP_MAX_OUT && ndim <= AMP_MAX_DIM);
  amp_meta *meta = &call->meta[i];
  place(meta, dtype, home(call));
  meta->ndim = (uint8_t)ndim;
  for (int dim = 0; dim < ndim; dim++) meta->size[dim] = size[dim];
  if (call->nout <= i) call->nout = i + 1;
}

void amp__like(amp_call *call, int i, const amp_tensor *tensor, int dtype)
{
  amp__meta_of(tensor, &call->meta[i]);
  call->meta[i].dtype = (uint8_t)dtype;
  if (call->nout <= i) call->nout = i + 1;
}

void amp__aligned_rows(amp_call *call, int i)
{
  enum { LEAST = 4096, EACH = 8 }; /* shorter rows are not worth the surprise */
  amp_meta *meta = &call->meta[i];
  int64_t n = meta->ndim ? meta->size[meta->ndim - 1] : 0;
  if (meta->device == AMP_CPU || !amp__is_half(meta->dtype) || meta->ndim < 2 || n < LEAST || n % EACH == 0) return;
  meta->stride[meta->ndim - 1] = 1;
  n = (n + EACH - 1) / EACH * EACH;
  for (int dim = meta->ndim - 2; dim >= 0; dim--) {
    meta->stride[dim] = n;
    n *= meta->size[dim] > 1 ? meta->size[dim] : 1;
  }
  meta->strides = 1;
}

bool amp__channels_last(const amp_tensor *tensor)
{
  if (tensor->ndim != 4 || (tensor->flags & (AMP_T_DENSE | AMP_T_CONTIGUOUS)) != AMP_T_DENSE) return false;
  const int order[4] = { 1, 3, 2, 0 };
  int64_t n = 1;
  for (int k = 0; k < 4; k++) {
    int dim = order[k];
    if (tensor->size[dim] != 1 && tensor->stride[dim] != n) return false;
    n *= tensor->size[dim];
  }
  return true;
}

void amp__as_channels_last(amp_meta *meta)
{
  int64_t c = meta->size[1] > 1 ? meta->size[1] : 1, h = meta->size[2] > 1 ? meta->size[2] : 1,
          w = meta->size[3] > 1 ? meta->size[3] : 1;
  meta->strides = 1;
  meta->stride[0] = c * h * w;
  meta->stride[1] = 1;
  meta->stride[2] = w * c;
  meta->stride[3] = c;
}

/* -- Broadcasting -------------------------------------------------------------------------- */

/* Shapes of which the matrix product exists, where the element-wise one does not. */
static const char *other_product(const amp_call *call, const amp_tensor *a, const amp_tensor *b)
{
  bool fits = call->op && amp__row_is(call->op, AMP_R_PRODUCT) && a == call->in[0] && a->ndim >= 2 && b->ndim >= 1
              && a->size[a->ndim - 1] == b->size[b->ndim > 1 ? b->ndim - 2 : 0];
  return fits ? "; * is element-wise, the matrix product is a:matmul(b)" : "";
}

static int mismatch(const amp_call *call, const amp_tensor *a, const amp_tensor *b)
{
  for (int k = 1; k <= a->ndim && k <= b->ndim; k++) {
    int64_t x = a->size[a->ndim - k], y = b->size[b->ndim - k];
    if (x != y && x != 1 && y != 1)
      return amp__fail(
          AMP_E_SHAPE,
          "shapes %s and %s do not match (dimension %d of the first is %lld, dimension %d of the second is %lld)%s",
          SHAPE_OF(a), SHAPE_OF(b), a->ndim - k + 1, LL(x), b->ndim - k + 1, LL(y), other_product(call, a, b));
  }
  return amp__fail(AMP_E_SHAPE, "shapes %s and %s do not match", SHAPE_OF(a), SHAPE_OF(b));
}

int amp__broadcast(amp_call *call, int count, int *ndim, int64_t *size)
{
  int most = 0;
  for (int i = 0; i < count && i < call->nin; i++)
    if (call->in[i] && call->in[i]->ndim > most) most = call->in[i]->ndim;
  for (int dim = 0; dim < most; dim++) {
    const amp_tensor *who = NULL;
    size[dim] = 1;
    for (int i = 0; i < count && i < call->nin; i++) {
      const amp_tensor *tensor = call->in[i];
      int k = tensor ? dim - (most - tensor->ndim) : -1;
      if (k < 0 || tensor->size[k] == 1 || (who && tensor->size[k] == size[dim])) continue;
      if (who) return mismatch(call, who, tensor);
      size[dim] = tensor->size[k];
      who = tensor;
    }
  }
  *ndim = most;
  return 0;
}

/* The strides in which all inputs of the full shape agree, if dense. */
static void keep_strides(const amp_call *call, amp_meta *meta)
{
  const amp_tensor *first = NULL;
  for (int i = 0; i < call->nin; i++) {
    const amp_tensor *tensor = call->in[i];
    if (tensor == NULL || tensor->ndim != meta->ndim
        || memcmp(tensor->size, meta->size, sizeof(int64_t) * meta->ndim) != 0)
      continue;
    if ((tensor->flags & (AMP_T_DENSE | AMP_T_CONTIGUOUS)) != AMP_T_DENSE) return;
    if (first && memcmp(tensor->stride, first->stride, sizeof(int64_t) * meta->ndim) != 0) return;
    if (first == NULL) first = tensor;
  }
  if (first == NULL) return;
  meta->strides = 1;
  for (int dim = 0; dim < meta->ndim; dim++) meta->stride[dim] = first->stride[dim];
}

int amp__pointwise(amp_call *call, int dtype)
{
  amp_meta *meta = &call->meta[0];
  const amp_tensor *a = call->in[0], *b = call->nin > 1 ? call->in[1] : NULL;
  int ndim, status;
  call->nout = 1;
  if (amp_likely(call->nin == 2 && b && (a->flags & b->flags & AMP_T_CONTIGUOUS) && a->device == b->device
                 && amp__same_size(a, b))) {
    place(meta, dtype, a);
    meta->ndim = a->ndim;
    for (int dim = 0; dim < a->ndim; dim++) meta->size[dim] = a->size[dim];
    return 0;
  }
  if (call->nin == 2 && b && b->ndim == 0 && (a->flags & AMP_T_CONTIGUOUS) && b->device == AMP_CPU) {
    place(meta, dtype, a);
    meta->ndim = a->ndim;
    for (int dim = 0; dim < a->ndim; dim++) meta->size[dim] = a->size[dim];
    return 0;
  }
  if ((status = amp__broadcast(call, call->nin, &ndim, meta->size)) < 0) return status;
  place(meta, dtype, home(call));
  meta->ndim = (uint8_t)ndim;
  keep_strides(call, meta);
  return 0;
}

/* -- Also in 16 bits ----------------------------------------------------------------------------- */

void amp__want_half_copy(amp_call *call)
{
  const amp_state *state = amp__S;
  const amp_meta *meta = &call->meta[0];
  if (meta->device == AMP_CPU || meta->dtype != AMP_FLOAT32 || call->flags & ~AMP_WIDEN || !state->grad_mode
      || !state->autocast_on)
    return;
  const amp_autocast_state *a = &state->autocast[meta->device];
  bool recorded = false;
  for (int i = 0; i < call->nin; i++) recorded |= call->in[i] && amp__tracked(call->in[i]);
  if (!recorded || !a->enabled || !amp__is_half(a->dtype)) return;
  amp__out(call, AMP_HALF_COPY, a->dtype, meta->ndim, meta->size);
  call->half_copy = true;
}
