/*
** ops/loss/nll_loss_shape.c: shape rules of nll_loss, cross_entropy and their backward rows. Classes lie along
** dimension 2, or along the only one; labels are any integer dtype. Sums that only backward reads are float32
** (float64 for float64) whatever the input is.
*/
#include "ops/loss/loss_shape.h"

static int64_t classes(int ndim, const int64_t *size) { return size[ndim > 1 ? 1 : 0]; }

/* Shape of labels for an input of this shape: without the classes. */
static int label_shape(int ndim, const int64_t *size, int64_t *out)
{
  int n = 0;
  for (int dim = 0; dim < ndim; dim++)
    if (dim != (ndim > 1 ? 1 : 0)) out[n++] = size[dim];
  return n;
}

static int labels(const amp_tensor *target, int arg, int ndim, const int64_t *size, int *nrow, int64_t *rows)
{
  int status = amp__want_index(target, arg, "target");
  if (status < 0) return status;
  if (ndim == 0) return amp__fail(AMP_E_SHAPE, "the input is a scalar, expected classes along a dimension");
  *nrow = label_shape(ndim, size, rows);
  if (target->ndim == *nrow && memcmp(target->size, rows, sizeof *rows * (size_t)*nrow) == 0) return 0;
  return amp__fail_arg(AMP_E_SHAPE, arg,
                       "target has shape %s, expected %s: that of the input %s without its classes (dimension %d)",
                       SHAPE_OF(target), amp__shape_str(*nrow, rows), amp__shape_str(ndim, size), ndim > 1 ? 2 : 1);
}

static int class_weight(const amp_call *call, int i, int like, int64_t count)
{
  const amp_tensor *weight = i < call->nin ? call->in[i] : NULL;
  if (weight == NULL) return 0;
  bool widened = (call->id == AMP_OP_cross_entropy_index || call->id == AMP_OP_cross_entropy_backward)
                 && weight->device != AMP_CPU && weight->dtype == AMP_FLOAT32;
  if (weight->dtype != call->in[like]->dtype && !widened)
    return amp__fail_arg(AMP_E_DTYPE, i + 1,
                         "dtypes %s and %s of input and weight differ; cast one of them or run it under amp.autocast",
                         amp_dtype_name(call->in[like]->dtype), amp_dtype_name(weight->dtype));
  if (weight->ndim == 1 && weight->size[0] == count) return 0;
  return amp__fail_arg(AMP_E_SHAPE, i + 1, "weight has shape %s, expected %lld, one a class", SHAPE_OF(weight),
                       LL(count));
}

static int smoothing(double v)
{
  return v >= 0 && v <= 1 ? 0 : amp__fail(AMP_E_VALUE, "label_smoothing %g must lie in 0..1", v);
}

int amp__infer_nll_loss(amp_call *call)
{
  const args_nll_loss *args = AMP_ARGS(call, nll_loss);
  const amp_tensor *input = call->in[0];
  int64_t rows[AMP_MAX_DIM];
  int n, status;
  if ((status = want_float(input, 1, "input")) < 0 || (status = want_reduction(args->reduction)) < 0
      || (status = labels(call->in[1], 2, input->ndim, input->size, &n, rows)) < 0
      || (status = class_weight(call, 2, 0, classes(input->ndim, input->size))) < 0)
    return status;
  amp__out(call, 0, input->dtype, args->reduction == REDUCTION_NONE ? n : 0, rows);
  amp__out(call, 1, amp__acc_dtype(input->dtype), 0, NULL);
  return 0;
}

/* grad target weight? total; the input's shape in slot 0 */
int amp__infer_nll_loss_backward(amp_call *call)
{
  const args_nll_loss_backward *args = AMP_ARGS(call, nll_loss_backward);
  const amp_tensor *grad = call->in[0];
  int64_t shape[AMP_MAX_DIM], rows[AMP_MAX_DIM];
  int ndim, n, status;
  if ((status = want_float(grad, 1, "grad")) < 0 || (status = want_reduction(args->reduction)) < 0
      || (status = amp__shape_attr(AMP_SLOT(args->shape), "shape", &ndim, shape)) < 0
      || (status = labels(call->in[1], 2, ndim, shape, &n, rows)) < 0
      || (status = loss_grad(grad, args->reduction, n, rows)) < 0
      || (status = want_scalar(call->in[3], 4, "total")) < 0)
    return status;
  const amp_tensor *weight = call->in[2];
  if (weight && (weight->ndim != 1 || weight->size[0] != classes(ndim, shape)))
    return amp__fail_arg(AMP_E_SHAPE, 3, "weight has shape %s, expected %lld, one a class", SHAPE_OF(weight),
                         LL(classes(ndim, shape)));
  amp__out(call, 0, grad->dtype, ndim, shape);
  return 0;
}

int amp__infer_cross_entropy_index(amp_call *call)
{
  const args_cross_entropy_index *args = AMP_ARGS(call, cross_entropy_index);
  const amp_tensor *input = call->in[0];
  int64_t rows[AMP_MAX_DIM];
  int count, status;
  if ((status = want_float(input, 1, "input")) < 0 || (status = want_reduction(args->reduction)) < 0
      || (status = smoothing(args->label_smoothing)) < 0
      || (status = labels(call->in[1], 2, input->ndim, input->size, &count, rows)) < 0
      || (status = class_weight(call, 2, 0, classes(input->ndim, input->size))) < 0)
    return status;
  amp__out(call, 0, args->widen && amp__is_half(input->dtype) ? AMP_FLOAT32 : input->dtype,
           args->reduction == REDUCTION_NONE ? count : 0, rows);
  memmove(rows + 1, rows, (size_t)count * sizeof *rows);
  rows[0] = 2;
  amp__out(call, 1, amp__acc_dtype(input->dtype), count + 1, rows);
  amp__out(call, 2, amp__acc_dtype(input->dtype), 0, NULL);
  return 0;
}

/* grad input target weight? top total; top: the largest score of each row, and the sum of its exponentials about
** that */
int amp__infer_cross_entropy_backward(amp_call *call)
{
  const args_cross_entropy_backward *args = AMP_ARGS(call, cross_entropy_backward);
  const amp_tensor *input = call->in[1];
  int64_t all[AMP_MAX_DIM + 1] = { 2 }, *rows = all + 1;
  int n, status;
  if ((status = want_float(input, 2, "input")) < 0 || (status = want_float(call->in[0], 1, "grad")) < 0
      || (status = want_reduction(args->reduction)) < 0 || (status = smoothing(args->label_smoothing)) < 0
      || (status = labels(call->in[2], 3, input->ndim, input->size, &n, rows)) < 0
      || (status = class_weight(call, 3, 1, classes(input->ndim, input->size))) < 0
      || (status = amp__want_shape(call->in[4], "top", n + 1, all)) < 0
      || (status = want_scalar(call->in[5], 6, "total")) < 0
      || (status = loss_grad(call->in[0], args->reduction, n, rows)) < 0)
    return status;
  amp__like(call, 0, input, input->dtype);
  if (input->ndim == 2) amp__aligned_rows(call, 0);
  return 0;
}
