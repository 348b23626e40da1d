/*
** amp_infer_make.c: shape rules of ops that make a tensor out of attributes, or
** put one on another device. Absent dtypes and devices are the state's defaults;
** a device that is not there is an error that says what was looked for.
*/
#include <math.h>
#include "amp_infer.h"

static int want_device(int64_t v, int *device, int *index)
{
  if (v == AMP_NONE) {
    *device = amp__S ? amp__S->default_device : AMP_CPU;
    *index = amp__S ? amp__S->default_device_index : 0;
    if (*device == AMP_CPU) return 0;
  } else {
    if (v < 0 || v >= AMP_DEVICE_COUNT * 256) return amp__fail(AMP_E_DEVICE, "there is no device number %lld", LL(v));
    *device = (int)(v >> 8);
    *index = (int)(v & 255);
  }
  if (*device == AMP_CPU && *index > 0) return amp__fail(AMP_E_DEVICE, "device cpu:%d was asked for; there is one cpu", *index + 1);
  int n = amp_device_available(*device);
  if (n == 0) return amp__fail(AMP_E_DEVICE, "device %s is not available: %s", amp_device_name(*device), amp_device_reason(*device));
  if (*index >= n) return amp__fail(AMP_E_DEVICE, "device %s:%d was asked for, but there %s %d", amp_device_name(*device), *index + 1, n == 1 ? "is" : "are", n);
  return 0;
}

/* The last two slots are dtype and device. */
static int make(amp_call *c, int absent, int ndim, const int64_t *size)
{
  const amp_slot *last = c->a + c->op->info.nslot - 2;
  amp_meta *m = &c->meta[0];
  int dtype, device, index, rc;
  if ((rc = amp__dtype_attr(&last[0], absent, &dtype)) < 0 || (rc = want_device(last[1].i, &device, &index)) < 0) return rc;
  if (!(c->op->info.dtypes >> dtype & 1)) return amp__fail(AMP_E_DTYPE, "dtype %s is not supported here", amp_dtype_name(dtype));
  if ((rc = amp__check_size(ndim, size, dtype, NULL)) < 0) return rc;
  m->dtype = (uint8_t)dtype;
  m->ndim = (uint8_t)ndim;
  m->device = (uint8_t)device;
  m->device_index = (uint8_t)index;
  m->strides = 0;
  for (int i = 0; i < ndim; i++) m->size[i] = size[i];
  c->nout = 1;
  return 0;
}

static int make_shape(amp_call *c, int slot, int absent)
{
  int64_t size[AMP_MAX_DIM];
  int ndim, rc = amp__shape_attr(&c->a[slot], "shape", &ndim, size);
  return rc < 0 ? rc : make(c, absent, ndim, size);
}

static int default_dtype(void) { return amp__S ? amp__S->default_dtype : AMP_FLOAT32; }

int amp__infer_create(amp_call *c) { return make_shape(c, 0, default_dtype()); }

int amp__infer_create_full(amp_call *c)
{
  int rc = make_shape(c, 0, default_dtype());
  return rc < 0 ? rc : amp__value_fits(c->a[9].f, c->meta[0].dtype);
}

int amp__infer_create_int(amp_call *c)
{
  int64_t low = c->a[0].i, high = c->a[1].i;
  int rc;
  if (low >= high) return amp__fail(AMP_E_VALUE, "low %lld must be less than high %lld", LL(low), LL(high));
  if ((rc = make_shape(c, 2, AMP_INT64)) < 0 || (rc = amp__value_fits((double)low, c->meta[0].dtype)) < 0) return rc;
  return c->meta[0].dtype == AMP_INT64 ? 0 : amp__value_fits((double)(high - 1), c->meta[0].dtype);
}

/* In-place draws: what their one or two numbers may be */
int amp__infer_draw(amp_call *c)
{
  double a = c->a[0].f, b = c->a[1].f;
  amp__like(c, 0, c->in[0], c->in[0]->dtype);
  switch (c->id) {
  case AMP_OP_uniform:
    return a <= b && isfinite(b - a) ? 0 : amp__fail(AMP_E_VALUE, "from %g must not be above to %g, and both finite", a, b);
  case AMP_OP_normal: return b >= 0 ? 0 : amp__fail(AMP_E_VALUE, "std %g must not be negative", b);
  case AMP_OP_exponential: return a > 0 && isfinite(a) ? 0 : amp__fail(AMP_E_VALUE, "lambd %g must be positive and finite", a);
  default: return a >= 0 && a <= 1 ? 0 : amp__fail(AMP_E_VALUE, "p %g is not a probability: it must lie in 0..1", a);
  }
}

int amp__infer_arange(amp_call *c)
{
  double start = c->a[0].f, end = c->a[1].f, step = c->a[2].f;
  int rc;
  if (!isfinite(start) || !isfinite(end) || !isfinite(step))
    return amp__fail(AMP_E_VALUE, "start %g, end %g and step %g must be finite", start, end, step);
  if (step == 0) return amp__fail(AMP_E_VALUE, "step must not be 0");
  double n = ceil((end - start) / step);
  if (n < 0) return amp__fail(AMP_E_VALUE, "step %g leads away from end: start %g, end %g", step, start, end);
  if (!(n < 0x1p62)) return amp__fail(AMP_E_SHAPE, "%g values from %g to %g by %g are too many", n, start, end, step);
  int64_t size = (int64_t)n;
  if ((rc = make(c, default_dtype(), 1, &size)) < 0 || size == 0) return rc;
  if ((rc = amp__value_fits(start, c->meta[0].dtype)) < 0) return rc;
  return amp__value_fits(start + (double)(size - 1) * step, c->meta[0].dtype);
}

int amp__infer_linspace(amp_call *c)
{
  int rc;
  if (c->a[2].i < 0) return amp__fail(AMP_E_VALUE, "steps %lld is negative", LL(c->a[2].i));
  if ((rc = make(c, default_dtype(), 1, &c->a[2].i)) < 0) return rc;
  if ((rc = amp__value_fits(c->a[0].f, c->meta[0].dtype)) < 0) return rc;
  return amp__value_fits(c->a[1].f, c->meta[0].dtype);
}

int amp__infer_logspace(amp_call *c)
{
  int rc;
  if (c->a[2].i < 0) return amp__fail(AMP_E_VALUE, "steps %lld is negative", LL(c->a[2].i));
  if ((rc = make(c, default_dtype(), 1, &c->a[2].i)) < 0 || c->a[2].i == 0) return rc;
  double base = c->a[3].f, first = pow(base, c->a[0].f), last = pow(base, c->a[1].f);
  if (!isfinite(first) || !isfinite(last)) return amp__fail(AMP_E_VALUE, "base %g to the powers %g and %g is not finite", base, c->a[0].f, c->a[1].f);
  if ((rc = amp__value_fits(first, c->meta[0].dtype)) < 0) return rc;
  return amp__value_fits(last, c->meta[0].dtype);
}

/* Elements of a row x col matrix with column - row <= offset (lower), or >= */
int amp__infer_triangle_indices(amp_call *c)
{
  int64_t row = c->a[0].i, col = c->a[1].i, offset = c->a[2].i, size[2] = { 2, 0 };
  bool lower = c->id == AMP_OP_tril_indices;
  if (row < 0 || col < 0) return amp__fail(AMP_E_VALUE, "row %lld and col %lld must not be negative", LL(row), LL(col));
  if (row >= INT32_MAX || col >= INT32_MAX) return amp__fail(AMP_E_SHAPE, "a matrix of %lld x %lld is too large", LL(row), LL(col));
  if (offset > col) offset = col;
  if (offset < -row) offset = -row;
  c->a[2].i = offset;
  for (int64_t i = 0; i < row; i++) {
    int64_t n = lower ? i + offset + 1 : col - i - offset;
    size[1] += n < 0 ? 0 : n > col ? col : n;
  }
  return make(c, AMP_INT64, 2, size);
}

int amp__infer_eye(amp_call *c)
{
  int64_t size[2] = { c->a[0].i, given(&c->a[1]) ? c->a[1].i : c->a[0].i };
  return make(c, default_dtype(), 2, size);
}

int amp__infer_randperm(amp_call *c)
{
  int rc;
  if (c->a[0].i < 0) return amp__fail(AMP_E_VALUE, "n %lld is negative", LL(c->a[0].i));
  if ((rc = make(c, AMP_INT64, 1, &c->a[0].i)) < 0) return rc;
  return amp__value_fits((double)c->a[0].i, c->meta[0].dtype);
}

int amp__infer_to_device(amp_call *c)
{
  int device = AMP_CPU, index = 0, rc = want_device(c->a[0].i, &device, &index);
  if (rc < 0) return rc;
  if (device == AMP_CPU && c->in[0]->device != AMP_CPU) amp__S->host_waits++;
  amp__like(c, 0, c->in[0], c->in[0]->dtype);
  c->meta[0].device = (uint8_t)device;
  c->meta[0].device_index = (uint8_t)index;
  return 0;
}
