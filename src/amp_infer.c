/*
** amp_infer.c: shape rules of element-wise ops and what all rules share:
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
#include "amp_infer.h"

/* -- Dimensions ---------------------------------------------------------------- */

int amp__norm_dim(amp_slot *s, int ndim, const char *what)
{
  int64_t d = s->i;
  if (amp_unlikely(d == 0 || d > ndim || d < -ndim)) {
    if (d == AMP_NONE) return amp__fail(AMP_E_ARGUMENT, "%s is missing", what);
    if (ndim == 0) return amp__fail(AMP_E_INDEX, "%s %lld is out of range: a scalar has no dimensions", what, LL(d));
    return amp__fail(AMP_E_INDEX, "%s %lld is out of range for %d dimension%s (1..%d, or negative from the end)", what, LL(d), ndim, ndim == 1 ? "" : "s", ndim);
  }
  s->i = d > 0 ? d - 1 : ndim + d;
  return 0;
}

int amp__row_dim(amp_slot *s, int ndim, const char *what)
{
  if (ndim == 0 && (s->i == 1 || s->i == -1)) { s->i = 0; return 0; }
  if (ndim == 0 && s->i != AMP_NONE) return amp__fail(AMP_E_INDEX, "%s %lld is out of range: a scalar has dimension 1 (or -1) alone", what, LL(s->i));
  return amp__norm_dim(s, ndim, what);
}

int amp__norm_dims(amp_slot *list, int ndim, uint32_t *mask)
{
  uint32_t seen = 0;
  int rc;
  if (!given(list)) {
    list[0].i = ndim;
    for (int i = 0; i < AMP_MAX_DIM; i++) list[1 + i].i = i < ndim ? i : 0;
    *mask = (1u << ndim) - 1;
    return 0;
  }
  if (list[0].i < 0 || list[0].i > AMP_MAX_DIM) return amp__fail(AMP_E_ARGUMENT, "%lld dimensions are given; at most %d can be", LL(list[0].i), AMP_MAX_DIM);
  for (int i = 1; i <= list[0].i; i++) {
    if ((rc = amp__row_dim(&list[i], ndim, "dimension")) < 0) return rc;
    if (seen >> list[i].i & 1) return amp__fail(AMP_E_ARGUMENT, "dimension %lld is given twice", LL(list[i].i + 1));
    seen |= 1u << list[i].i;
  }
  if (ndim == 0) seen = 0, list[0].i = 0; /* all that a scalar has */
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
  if (!given(s)) { *dtype = absent; return 0; }
  if (s->i < 0 || s->i >= AMP_DTYPE_COUNT) return amp__fail(AMP_E_DTYPE, "there is no dtype number %lld", LL(s->i));
  *dtype = (int)s->i;
  return 0;
}

int amp__shape_attr(amp_slot *s, const char *what, int *ndim, int64_t *size)
{
  if (!given(s)) return amp__fail(AMP_E_ARGUMENT, "%s is missing", what);
  if (s[0].i < 0 || s[0].i > AMP_MAX_DIM) return amp__fail(AMP_E_SHAPE, "%s has %lld dimensions; at most %d are supported", what, LL(s[0].i), AMP_MAX_DIM);
  *ndim = (int)s[0].i;
  for (int i = 0; i < *ndim; i++) size[i] = s[1 + i].i;
  return amp__check_size(*ndim, size, AMP_FLOAT64, NULL);
}

int amp__equal_dtypes(const amp_call *c, int n)
{
  const amp_tensor *a = c->in[0];
  for (int i = 1; i < n && i < c->nin; i++) {
    const amp_tensor *b = c->in[i];
    if (b && amp_unlikely(b->dtype != a->dtype))
      return amp__fail_arg(AMP_E_DTYPE, i + 1, "dtypes %s and %s differ; cast one of them or run it under amp.autocast", amp_dtype_name(a->dtype), amp_dtype_name(b->dtype));
  }
  return 0;
}

int amp__want_index(const amp_tensor *t, int arg, const char *what)
{
  if (amp__is_int(t->dtype)) return 0;
  return amp__fail_arg(AMP_E_DTYPE, arg, "%s has dtype %s, expected an integer dtype: t:long() converts, {dtype = 'int64'} makes such a tensor", what, amp_dtype_name(t->dtype));
}

int amp__want_shape(const amp_tensor *t, const char *what, int ndim, const int64_t *size)
{
  if (t->ndim == ndim && memcmp(t->size, size, sizeof *size * (size_t)ndim) == 0) return 0;
  return amp__fail(AMP_E_SHAPE, "%s has shape %s, expected %s", what, SHAPE_OF(t), amp__shape_str(ndim, size));
}

int amp__ask(amp_tensor *t, int op, double *v)
{
  amp_tensor *out[AMP_MAX_OUT] = { NULL };
  amp_slot a[AMP_MAX_SLOT];
  memcpy(a, amp__ops[op].defaults, sizeof a);
  a[0].i = AMP_NONE;
  int rc = amp__dispatch_op(op, 0, &t, 1, out, a);
  if (rc < 0) return rc;
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
    return amp__fail(AMP_E_VALUE, "value %.17g does not fit dtype %s, whose largest is %.6g; use math.huge or a value in range", v, amp_dtype_name(dtype),
                     dtype == AMP_FLOAT16 ? 65504.0 : dtype == AMP_BFLOAT16 ? 0x1.fep127 : (double)FLT_MAX);
  return amp__fail(AMP_E_VALUE, "value %.17g does not fit dtype %s", isnan(v) ? (double)NAN : v, amp_dtype_name(dtype));
}

/* -- Promotion ------------------------------------------------------------------------ */

static double number_of(const amp_tensor *t) { return *(const double *)t->storage->data; }

static int combine(int high, int low)
{
  if (high < 0) return low;
  if (low < 0 || amp__is_float(high)) return high;
  if (high == AMP_BOOL || amp__is_float(low)) return amp__promote(high, low);
  return high;
}

int amp__result_dtype(const amp_call *c, int first, int n)
{
  int dims = -1, zero = -1, number = -1;
  for (int i = first; i < first + n && i < c->nin; i++) {
    const amp_tensor *t = c->in[i];
    if (t == NULL) continue;
    if (t->flags & AMP_T_NUMBER) {
      double v = number_of(t);
      int d = v == floor(v) && isfinite(v) ? AMP_INT64 : amp__default_float();
      number = number < 0 ? d : amp__promote(number, d);
    } else {
      int *level = t->ndim ? &dims : &zero;
      *level = *level < 0 ? t->dtype : amp__promote(*level, t->dtype);
    }
  }
  if (dims < 0 && zero < 0) return amp__default_float();
  return combine(dims, combine(zero, number));
}

/* A number that meets integers must be one of theirs. */
static int check_numbers(const amp_call *c, int first, int n, int dtype)
{
  for (int i = first; i < first + n && i < c->nin; i++)
    if (c->in[i] && (c->in[i]->flags & AMP_T_NUMBER) && !amp__fits(number_of(c->in[i]), dtype))
      return amp__fail_arg(AMP_E_VALUE, i + 1, "number %.17g does not fit dtype %s", number_of(c->in[i]), amp_dtype_name(dtype));
  return 0;
}

static int operand_dtype(const amp_call *c, int first, int n, int *dtype)
{
  if (amp_likely(n == 2)) {
    const amp_tensor *a = c->in[first], *b = c->in[first + 1];
    uint32_t numbers = (a->flags | b->flags) & AMP_T_NUMBER;
    if (amp_likely(a->dtype == b->dtype && !numbers)) { *dtype = a->dtype; return 0; }
    if (!(a->flags & AMP_T_NUMBER) && amp__is_float(a->dtype) && numbers) { *dtype = a->dtype; return 0; }
  }
  *dtype = amp__result_dtype(c, first, n);
  return amp__is_int(*dtype) ? check_numbers(c, first, n, *dtype) : 0;
}

/* -- Results ----------------------------------------------------------------------------- */

static const amp_tensor *home(const amp_call *c)
{
  const amp_tensor *t = NULL;
  for (int i = 0; i < c->nin; i++) {
    if (c->in[i] == NULL) continue;
    if (t == NULL) t = c->in[i];
    if (c->in[i]->device != AMP_CPU) return c->in[i];
  }
  return t;
}

static void place(amp_meta *m, int dtype, const amp_tensor *at)
{
  m->dtype = (uint8_t)dtype;
  m->device = at->device;
  m->device_index = at->device_index;
  m->strides = 0;
}

void amp__out(amp_call *c, int i, int dtype, int ndim, const int64_t *size)
{
  amp_meta *m = &c->meta[i];
  place(m, dtype, home(c));
  m->ndim = (uint8_t)ndim;
  for (int d = 0; d < ndim; d++) m->size[d] = size[d];
  if (c->nout <= i) c->nout = i + 1;
}

void amp__like(amp_call *c, int i, const amp_tensor *t, int dtype)
{
  amp__meta_of(t, &c->meta[i]);
  c->meta[i].dtype = (uint8_t)dtype;
  if (c->nout <= i) c->nout = i + 1;
}

void amp__aligned_rows(amp_call *c, int i)
{
  enum { LEAST = 4096, EACH = 8 }; /* shorter rows are not worth the surprise */
  amp_meta *m = &c->meta[i];
  int64_t n = m->ndim ? m->size[m->ndim - 1] : 0;
  if (m->device == AMP_CPU || !amp__is_half(m->dtype) || m->ndim < 2 || n < LEAST || n % EACH == 0) return;
  m->stride[m->ndim - 1] = 1;
  n = (n + EACH - 1) / EACH * EACH;
  for (int d = m->ndim - 2; d >= 0; d--) {
    m->stride[d] = n;
    n *= m->size[d] > 1 ? m->size[d] : 1;
  }
  m->strides = 1;
}

bool amp__channels_last(const amp_tensor *t)
{
  if (t->ndim != 4 || (t->flags & (AMP_T_DENSE | AMP_T_CONTIGUOUS)) != AMP_T_DENSE) return false;
  const int order[4] = { 1, 3, 2, 0 };
  int64_t n = 1;
  for (int k = 0; k < 4; k++) {
    int d = order[k];
    if (t->size[d] != 1 && t->stride[d] != n) return false;
    n *= t->size[d];
  }
  return true;
}

void amp__as_channels_last(amp_meta *m)
{
  int64_t c = m->size[1] > 1 ? m->size[1] : 1, h = m->size[2] > 1 ? m->size[2] : 1, w = m->size[3] > 1 ? m->size[3] : 1;
  m->strides = 1;
  m->stride[0] = c * h * w;
  m->stride[1] = 1;
  m->stride[2] = w * c;
  m->stride[3] = c;
}

/* -- Broadcasting -------------------------------------------------------------------------- */

/* Shapes of which the matrix product exists, where the element-wise one does not. */
static const char *other_product(const amp_call *c, const amp_tensor *a, const amp_tensor *b)
{
  bool fits = c->op == &amp__ops[AMP_OP_mul] && a == c->in[0] && a->ndim >= 2 && b->ndim >= 1 && a->size[a->ndim - 1] == b->size[b->ndim > 1 ? b->ndim - 2 : 0];
  return fits ? "; * is element-wise, the matrix product is a:matmul(b)" : "";
}

static int mismatch(const amp_call *c, const amp_tensor *a, const amp_tensor *b)
{
  for (int k = 1; k <= a->ndim && k <= b->ndim; k++) {
    int64_t x = a->size[a->ndim - k], y = b->size[b->ndim - k];
    if (x != y && x != 1 && y != 1)
      return amp__fail(AMP_E_SHAPE, "shapes %s and %s do not match (dimension %d of the first is %lld, dimension %d of the second is %lld)%s",
                       SHAPE_OF(a), SHAPE_OF(b), a->ndim - k + 1, LL(x), b->ndim - k + 1, LL(y), other_product(c, a, b));
  }
  return amp__fail(AMP_E_SHAPE, "shapes %s and %s do not match", SHAPE_OF(a), SHAPE_OF(b));
}

int amp__broadcast(amp_call *c, int n, int *ndim, int64_t *size)
{
  int most = 0;
  for (int i = 0; i < n && i < c->nin; i++)
    if (c->in[i] && c->in[i]->ndim > most) most = c->in[i]->ndim;
  for (int d = 0; d < most; d++) {
    const amp_tensor *who = NULL;
    size[d] = 1;
    for (int i = 0; i < n && i < c->nin; i++) {
      const amp_tensor *t = c->in[i];
      int k = t ? d - (most - t->ndim) : -1;
      if (k < 0 || t->size[k] == 1 || (who && t->size[k] == size[d])) continue;
      if (who) return mismatch(c, who, t);
      size[d] = t->size[k];
      who = t;
    }
  }
  *ndim = most;
  return 0;
}

/* The strides in which all inputs of the full shape agree, if dense. */
static void keep_strides(const amp_call *c, amp_meta *m)
{
  const amp_tensor *first = NULL;
  for (int i = 0; i < c->nin; i++) {
    const amp_tensor *t = c->in[i];
    if (t == NULL || t->ndim != m->ndim || memcmp(t->size, m->size, sizeof(int64_t) * m->ndim) != 0) continue;
    if ((t->flags & (AMP_T_DENSE | AMP_T_CONTIGUOUS)) != AMP_T_DENSE) return;
    if (first && memcmp(t->stride, first->stride, sizeof(int64_t) * m->ndim) != 0) return;
    if (first == NULL) first = t;
  }
  if (first == NULL) return;
  m->strides = 1;
  for (int d = 0; d < m->ndim; d++) m->stride[d] = first->stride[d];
}

static int pointwise(amp_call *c, int dtype)
{
  amp_meta *m = &c->meta[0];
  const amp_tensor *a = c->in[0], *b = c->nin > 1 ? c->in[1] : NULL;
  int ndim, rc;
  c->nout = 1;
  if (amp_likely(c->nin == 2 && b && (a->flags & b->flags & AMP_T_CONTIGUOUS) && a->device == b->device && amp__same_size(a, b))) {
    place(m, dtype, a);
    m->ndim = a->ndim;
    for (int d = 0; d < a->ndim; d++) m->size[d] = a->size[d];
    return 0;
  }
  if (c->nin == 2 && b && b->ndim == 0 && (a->flags & AMP_T_CONTIGUOUS) && b->device == AMP_CPU) {
    place(m, dtype, a);
    m->ndim = a->ndim;
    for (int d = 0; d < a->ndim; d++) m->size[d] = a->size[d];
    return 0;
  }
  if ((rc = amp__broadcast(c, c->nin, &ndim, m->size)) < 0) return rc;
  place(m, dtype, home(c));
  m->ndim = (uint8_t)ndim;
  keep_strides(c, m);
  return 0;
}

/* -- Element-wise rules ------------------------------------------------------------------------ */

int amp__infer_none(amp_call *c) { return 0; }

int amp__infer_same(amp_call *c) { amp__like(c, 0, c->in[0], c->in[0]->dtype); return 0; }

int amp__infer_fill(amp_call *c)
{
  amp__like(c, 0, c->in[0], c->in[0]->dtype);
  return amp__value_fits(c->a[0].f, c->in[0]->dtype);
}

int amp__infer_unary(amp_call *c)
{
  amp__like(c, 0, c->in[0], c->in[0]->dtype);
  return 0;
}

int amp__infer_unary_float(amp_call *c)
{
  int dt = c->in[0]->dtype;
  amp__like(c, 0, c->in[0], amp__is_float(dt) ? dt : amp__default_float());
  return 0;
}

int amp__infer_unary_bool(amp_call *c) { amp__like(c, 0, c->in[0], AMP_BOOL); return 0; }

int amp__infer_triangle(amp_call *c)
{
  if (c->in[0]->ndim < 2) return amp__fail(AMP_E_SHAPE, "a matrix or a batch of them is expected, got shape %s", SHAPE_OF(c->in[0]));
  return amp__infer_unary(c);
}

int amp__infer_broadcast(amp_call *c)
{
  int dtype, rc = operand_dtype(c, 0, c->nin, &dtype);
  if (rc < 0) return rc;
  if ((c->id == AMP_OP_add || c->id == AMP_OP_sub) && !amp__is_float(dtype) && amp_unlikely(!amp__fits(c->a[0].f, AMP_INT64) || c->a[0].f != floor(c->a[0].f)))
    return amp__fail(AMP_E_VALUE, "alpha %.17g must be integral for %s operands", c->a[0].f, amp_dtype_name(dtype));
  return pointwise(c, dtype);
}

int amp__infer_broadcast_float(amp_call *c)
{
  int dtype, rc = operand_dtype(c, 0, c->nin, &dtype);
  if (rc < 0) return rc;
  return pointwise(c, amp__is_float(dtype) ? dtype : amp__default_float());
}

int amp__infer_broadcast_pow(amp_call *c)
{
  const amp_tensor *e = c->in[1];
  int dtype, rc = operand_dtype(c, 0, 2, &dtype);
  if (rc < 0) return rc;
  if (!amp__is_float(dtype) && (e->flags & AMP_T_NUMBER) && number_of(e) < 0)
    return amp__fail_arg(AMP_E_VALUE, 2, "integers to the negative power %.17g have no integer result; cast to a float dtype first", number_of(e));
  return pointwise(c, dtype);
}

int amp__infer_compare(amp_call *c)
{
  int dtype, rc = operand_dtype(c, 0, c->nin, &dtype);
  return rc < 0 ? rc : pointwise(c, AMP_BOOL);
}

int amp__infer_equal(amp_call *c) { amp__out(c, 0, AMP_BOOL, 0, NULL); return 0; }

int amp__infer_where(amp_call *c)
{
  int dtype, rc;
  if (c->in[0]->dtype != AMP_BOOL)
    return amp__fail_arg(AMP_E_DTYPE, 1, "condition has dtype %s, expected bool", amp_dtype_name(c->in[0]->dtype));
  if ((rc = operand_dtype(c, 1, 2, &dtype)) < 0) return rc;
  return pointwise(c, dtype);
}

int amp__infer_clamp(amp_call *c)
{
  int dtype = c->in[0]->dtype;
  if (!given(&c->a[0]) && !given(&c->a[1])) return amp__fail(AMP_E_ARGUMENT, "min or max must be given");
  for (int i = 0; i < 2; i++)
    if (given(&c->a[i]) && !amp__is_float(dtype) && c->a[i].f != floor(c->a[i].f)) dtype = amp__default_float();
  for (int i = 0; i < 2 && !amp__is_float(dtype); i++) { /* a bound beyond the far end would leave nothing to be */
    double v = given(&c->a[i]) ? c->a[i].f : 0;
    if (isfinite(v) && (v < 0) == (i == 1) && !amp__fits(v, dtype))
      return amp__fail(AMP_E_VALUE, "%s %.17g does not fit %s", i ? "max" : "min", v, amp_dtype_name(dtype));
  }
  amp__like(c, 0, c->in[0], dtype);
  return 0;
}

int amp__infer_masked_fill(amp_call *c)
{
  int rc;
  if (c->in[1]->dtype != AMP_BOOL)
    return amp__fail_arg(AMP_E_DTYPE, 2, "mask has dtype %s, expected bool", amp_dtype_name(c->in[1]->dtype));
  if ((rc = amp__value_fits(c->a[0].f, c->in[0]->dtype)) < 0) return rc;
  return pointwise(c, c->in[0]->dtype);
}

int amp__infer_copy(amp_call *c)
{
  const amp_tensor *t = c->in[0], *u = c->in[1];
  int64_t size[AMP_MAX_DIM];
  int ndim = 0, rc = amp__broadcast(c, 2, &ndim, size);
  if (rc < 0) return rc;
  if (ndim != t->ndim || memcmp(size, t->size, sizeof *size * (size_t)ndim) != 0)
    return amp__fail(AMP_E_SHAPE, "shape %s can't be broadcast to the receiver's %s", SHAPE_OF(u), SHAPE_OF(t));
  if (t->device == AMP_CPU && u->device != AMP_CPU) amp__S->host_waits++;
  amp__like(c, 0, t, t->dtype);
  return 0;
}

/* -- Copies --------------------------------------------------------------------------------------- */

int amp__infer_cast(amp_call *c)
{
  int dtype = 0, rc;
  if (!given(&c->a[0])) return amp__fail(AMP_E_ARGUMENT, "dtype is missing");
  if ((rc = amp__dtype_attr(&c->a[0], 0, &dtype)) < 0) return rc;
  amp__like(c, 0, c->in[0], dtype);
  return 0;
}

int amp__infer_clone(amp_call *c)
{
  const amp_tensor *t = c->in[0];
  if (c->a[0].i < 0 || c->a[0].i > 2) return amp__fail(AMP_E_ARGUMENT, "there is no memory format number %lld", LL(c->a[0].i));
  amp__like(c, 0, t, t->dtype);
  if (c->a[0].i == 1) c->meta[0].strides = 0;
  if (c->a[0].i == 2) {
    if (t->ndim != 4) return amp__fail(AMP_E_SHAPE, "channels_last is a layout of 4 dimensions, got shape %s", SHAPE_OF(t));
    amp__as_channels_last(&c->meta[0]);
  }
  return 0;
}
