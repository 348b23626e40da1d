/*
** ops/create/create_shape.c: shape rules of ops that make a tensor out of attributes, or
** put one on another device. Absent dtypes and devices are the state's defaults;
** a device that is not there is an error that says what was looked for.
*/
#include <math.h>
#include "dispatch/shape_rules.h"

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
  if (*device == AMP_CPU && *index > 0)
    return amp__fail(AMP_E_DEVICE, "device cpu:%d was asked for; there is one cpu", *index + 1);
  int n = amp_device_available(*device);
  if (n == 0)
    return amp__fail(AMP_E_DEVICE, "device %s is not available: %s", amp_device_name(*device),
                     amp_device_reason(*device));
  if (*index >= n)
    return amp__fail(AMP_E_DEVICE, "device %s:%d was asked for, but there %s %d", amp_device_name(*device), *index + 1,
                     n == 1 ? "is" : "are", n);
  return 0;
}

/* Slots of the attributes dtype and device; absent: the dtype where none is given */
static int make(amp_call *call, const amp_slot *dtype_slot, const amp_slot *device_slot, int absent, int ndim,
                const int64_t *size)
{
  amp_meta *meta = &call->meta[0];
  int dtype, device, index, status;
  if ((status = amp__dtype_attr(dtype_slot, absent, &dtype)) < 0
      || (status = want_device(device_slot->i, &device, &index)) < 0)
    return status;
  if (!(call->op->info.dtypes >> dtype & 1))
    return amp__fail(AMP_E_DTYPE, "dtype %s is not supported here", amp_dtype_name(dtype));
  if ((status = amp__check_size(ndim, size, dtype, NULL)) < 0) return status;
  meta->dtype = (uint8_t)dtype;
  meta->ndim = (uint8_t)ndim;
  meta->device = (uint8_t)device;
  meta->device_index = (uint8_t)index;
  meta->strides = 0;
  for (int i = 0; i < ndim; i++) meta->size[i] = size[i];
  call->nout = 1;
  return 0;
}

static int default_dtype(void) { return amp__S ? amp__S->default_dtype : AMP_FLOAT32; }

/* The row's attributes dtype and device, for make */
#define KIND(args) AMP_SLOT((args)->dtype), AMP_SLOT((args)->device)

int amp__infer_create(amp_call *call) /* empty, rand, randn */
{
  args_empty *args = (args_empty *)call->attrs;
  int64_t size[AMP_MAX_DIM];
  int ndim, status = amp__shape_attr(AMP_SLOT(args->shape), "shape", &ndim, size);
  return status < 0 ? status : make(call, KIND(args), default_dtype(), ndim, size);
}

int amp__infer_create_full(amp_call *call)
{
  args_full *args = (args_full *)call->attrs;
  int64_t size[AMP_MAX_DIM];
  int ndim, status = amp__shape_attr(AMP_SLOT(args->shape), "shape", &ndim, size);
  if (status < 0 || (status = make(call, KIND(args), default_dtype(), ndim, size)) < 0) return status;
  return amp__value_fits(args->value, call->meta[0].dtype);
}

int amp__infer_create_int(amp_call *call) /* randint */
{
  args_randint *args = (args_randint *)call->attrs;
  int64_t low = args->low, high = args->high, size[AMP_MAX_DIM];
  int ndim, status;
  if (low >= high) return amp__fail(AMP_E_VALUE, "low %lld must be less than high %lld", LL(low), LL(high));
  if ((status = amp__shape_attr(AMP_SLOT(args->shape), "shape", &ndim, size)) < 0
      || (status = make(call, KIND(args), AMP_INT64, ndim, size)) < 0
      || (status = amp__value_fits((double)low, call->meta[0].dtype)) < 0)
    return status;
  return call->meta[0].dtype == AMP_INT64 ? 0 : amp__value_fits((double)(high - 1), call->meta[0].dtype);
}

/* In-place draws: what their one or two numbers may be */
int amp__infer_draw(amp_call *call)
{
  amp__like(call, 0, call->in[0], call->in[0]->dtype);
  switch (call->id) {
  case AMP_OP_uniform: {
    double from = AMP_ARGS(call, uniform)->from, to = AMP_ARGS(call, uniform)->to;
    if (from <= to && isfinite(to - from)) return 0;
    return amp__fail(AMP_E_VALUE, "from %g must not be above to %g, and both finite", from, to);
  }
  case AMP_OP_normal: {
    double std = AMP_ARGS(call, normal)->std;
    return std >= 0 ? 0 : amp__fail(AMP_E_VALUE, "std %g must not be negative", std);
  }
  case AMP_OP_exponential: {
    double lambd = AMP_ARGS(call, exponential)->lambd;
    if (lambd > 0 && isfinite(lambd)) return 0;
    return amp__fail(AMP_E_VALUE, "lambd %g must be positive and finite", lambd);
  }
  default: {
    double p = AMP_ARGS(call, bernoulli)->p;
    if (p >= 0 && p <= 1) return 0;
    return amp__fail(AMP_E_VALUE, "p %g is not a probability: it must lie in 0..1", p);
  }
  }
}

int amp__infer_arange(amp_call *call)
{
  const args_arange *args = AMP_ARGS(call, arange);
  double start = args->start, end = args->end, step = args->step;
  int status;
  if (!isfinite(start) || !isfinite(end) || !isfinite(step))
    return amp__fail(AMP_E_VALUE, "start %g, end %g and step %g must be finite", start, end, step);
  if (step == 0) return amp__fail(AMP_E_VALUE, "step must not be 0");
  double n = ceil((end - start) / step);
  if (n < 0) return amp__fail(AMP_E_VALUE, "step %g leads away from end: start %g, end %g", step, start, end);
  if (!(n < 0x1p62)) return amp__fail(AMP_E_SHAPE, "%g values from %g to %g by %g are too many", n, start, end, step);
  int64_t size = (int64_t)n;
  if ((status = make(call, KIND(args), default_dtype(), 1, &size)) < 0 || size == 0) return status;
  if ((status = amp__value_fits(start, call->meta[0].dtype)) < 0) return status;
  return amp__value_fits(start + (double)(size - 1) * step, call->meta[0].dtype);
}

int amp__infer_linspace(amp_call *call)
{
  const args_linspace *args = AMP_ARGS(call, linspace);
  int status;
  if (args->steps < 0) return amp__fail(AMP_E_VALUE, "steps %lld is negative", LL(args->steps));
  if ((status = make(call, KIND(args), default_dtype(), 1, &args->steps)) < 0) return status;
  if ((status = amp__value_fits(args->start, call->meta[0].dtype)) < 0) return status;
  return amp__value_fits(args->end, call->meta[0].dtype);
}

int amp__infer_logspace(amp_call *call)
{
  const args_logspace *args = AMP_ARGS(call, logspace);
  int status;
  if (args->steps < 0) return amp__fail(AMP_E_VALUE, "steps %lld is negative", LL(args->steps));
  if ((status = make(call, KIND(args), default_dtype(), 1, &args->steps)) < 0 || args->steps == 0) return status;
  double base = args->base, first = pow(base, args->start), last = pow(base, args->end);
  if (!isfinite(first) || !isfinite(last))
    return amp__fail(AMP_E_VALUE, "base %g to the powers %g and %g is not finite", base, args->start, args->end);
  if ((status = amp__value_fits(first, call->meta[0].dtype)) < 0) return status;
  return amp__value_fits(last, call->meta[0].dtype);
}

/* Elements of a row x col matrix with column - row <= offset (lower), or >= */
int amp__infer_triangle_indices(amp_call *call)
{
  args_tril_indices *args = (args_tril_indices *)call->attrs; /* or triu_indices */
  int64_t row = args->row, col = args->col, offset = args->offset, size[2] = { 2, 0 };
  bool lower = call->id == AMP_OP_tril_indices;
  if (row < 0 || col < 0) return amp__fail(AMP_E_VALUE, "row %lld and col %lld must not be negative", LL(row), LL(col));
  if (row >= INT32_MAX || col >= INT32_MAX)
    return amp__fail(AMP_E_SHAPE, "a matrix of %lld x %lld is too large", LL(row), LL(col));
  if (offset > col) offset = col;
  if (offset < -row) offset = -row;
  args->offset = offset;
  for (int64_t i = 0; i < row; i++) {
    int64_t n = lower ? i + offset + 1 : col - i - offset;
    size[1] += n < 0 ? 0 : n > col ? col : n;
  }
  return make(call, KIND(args), AMP_INT64, 2, size);
}

int amp__infer_eye(amp_call *call)
{
  const args_eye *args = AMP_ARGS(call, eye);
  int64_t size[2] = { args->n, AMP_GIVEN(args->m) ? args->m : args->n };
  return make(call, KIND(args), default_dtype(), 2, size);
}

int amp__infer_randperm(amp_call *call)
{
  const args_randperm *args = AMP_ARGS(call, randperm);
  int status;
  if (args->n < 0) return amp__fail(AMP_E_VALUE, "n %lld is negative", LL(args->n));
  if ((status = make(call, KIND(args), AMP_INT64, 1, &args->n)) < 0) return status;
  return amp__value_fits((double)args->n, call->meta[0].dtype);
}

int amp__infer_to_device(amp_call *call)
{
  int device = AMP_CPU, index = 0, status = want_device(AMP_ARGS(call, to_device)->device, &device, &index);
  if (status < 0) return status;
  if (device == AMP_CPU && call->in[0]->device != AMP_CPU) amp__S->host_waits++;
  amp__like(call, 0, call->in[0], call->in[0]->dtype);
  call->meta[0].device = (uint8_t)device;
  call->meta[0].device_index = (uint8_t)index;
  return 0;
}
