/*
** ops/loss/loss_shape.c: shape rules of losses of pairs, multilabel_margin_loss and ctc, with
** their backward rows. Labels and lengths are values, which kernels check.
*/
#include "ops/loss/loss_shape.h"

/* -- Pairs of input and target ------------------------------------------------------------- */

static int same_shapes(const amp_tensor *input, const amp_tensor *y)
{
  if (amp__same_size(input, y)) return 0;
  return amp__fail(AMP_E_SHAPE, "input has shape %s and target %s; a loss wants equal shapes (reshape or expand one)",
                   SHAPE_OF(input), SHAPE_OF(y));
}

int amp__infer_loss(amp_call *call)
{
  const args_mse_loss *args = AMP_ARGS(call, mse_loss);
  const amp_tensor *input = call->in[0];
  int status;
  int dtype = call->flags & AMP_WIDEN ? AMP_FLOAT32 : input->dtype;
  if ((!(call->flags & AMP_WIDEN) && (status = amp__equal_dtypes(call, 2)) < 0)
      || (status = same_shapes(input, call->in[1])) < 0 || (status = want_reduction(args->reduction)) < 0)
    return status;
  if (args->reduction == REDUCTION_NONE) amp__like(call, 0, input, dtype);
  else amp__out(call, 0, dtype, 0, NULL);
  return 0;
}

/* grad input target */
int amp__infer_loss_backward(amp_call *call)
{
  const args_mse_loss_backward *args = AMP_ARGS(call, mse_loss_backward);
  const amp_tensor *input = call->in[1];
  int status;
  if ((status = same_shapes(input, call->in[2])) < 0 || (status = want_reduction(args->reduction)) < 0
      || (status = loss_grad(call->in[0], args->reduction, input->ndim, input->size)) < 0)
    return status;
  amp__like(call, 0, input, input->dtype);
  return 0;
}

/* -- Margins of many labels ------------------------------------------------------------- */

static int margin(const amp_tensor *input, int arg, const amp_tensor *target, int64_t reduction)
{
  int status;
  if ((status = want_float(input, arg, "input")) < 0 || (status = want_reduction(reduction)) < 0
      || (status = amp__want_index(target, arg + 1, "target")) < 0)
    return status;
  if ((input->ndim != 1 && input->ndim != 2) || input->size[input->ndim - 1] == 0)
    return amp__fail_arg(AMP_E_SHAPE, arg, "input should be N x C or a vector of C scores, got shape %s",
                         SHAPE_OF(input));
  if (amp__same_size(input, target)) return 0;
  return amp__fail_arg(AMP_E_SHAPE, arg + 1,
                       "target has shape %s, expected that of input, %s: each row's labels, then zeros",
                       SHAPE_OF(target), SHAPE_OF(input));
}

int amp__infer_multilabel_margin(amp_call *call)
{
  const args_multilabel_margin_loss *args = AMP_ARGS(call, multilabel_margin_loss);
  const amp_tensor *input = call->in[0];
  int status = margin(input, 1, call->in[1], args->reduction);
  if (status < 0) return status;
  amp__out(call, 0, input->dtype, args->reduction == REDUCTION_NONE ? input->ndim - 1 : 0, input->size);
  return 0;
}

/* grad input target */
int amp__infer_multilabel_margin_backward(amp_call *call)
{
  const args_multilabel_margin_loss_backward *args = AMP_ARGS(call, multilabel_margin_loss_backward);
  const amp_tensor *grad = call->in[0], *input = call->in[1];
  int status;
  if ((status = margin(input, 2, call->in[2], args->reduction)) < 0 || (status = want_float(grad, 1, "grad")) < 0)
    return status;
  if (args->reduction == REDUCTION_NONE) status = amp__want_shape(grad, "grad", input->ndim - 1, input->size);
  else if (grad->numel != 1)
    status = amp__fail_arg(AMP_E_SHAPE, 1, "grad has shape %s, expected a scalar", SHAPE_OF(grad));
  if (status < 0) return status;
  amp__like(call, 0, input, input->dtype);
  return 0;
}

/* -- Sequences ----------------------------------------------------------------------------- */

/* log_probs at argument `at`, the three that go with it after it */
static int sequences(const amp_call *call, int at, int64_t *cells)
{
  const args_ctc *args = AMP_ARGS(call, ctc);
  const amp_tensor *input = call->in[at], *tensor = call->in[at + 1];
  static const char *const name[2] = { "input_lengths", "target_lengths" };
  int status;
  if ((status = want_float(input, at + 1, "log_probs")) < 0
      || (status = amp__want_index(tensor, at + 2, "targets")) < 0)
    return status;
  if (input->ndim != 3)
    return amp__fail_arg(AMP_E_SHAPE, at + 1, "log_probs should be T x N x C (or T x C), got shape %s",
                         SHAPE_OF(input));
  if (input->size[2] == 0) return amp__fail_arg(AMP_E_SHAPE, at + 1, "log_probs %s has no classes", SHAPE_OF(input));
  if (tensor->ndim != 1 && !(tensor->ndim == 2 && tensor->size[0] == input->size[1]))
    return amp__fail_arg(AMP_E_SHAPE, at + 2,
                         "targets should be %lld x S, or a vector of all labels, for log_probs %s; got shape %s",
                         LL(input->size[1]), SHAPE_OF(input), SHAPE_OF(tensor));
  for (int i = 0; i < 2; i++) {
    const amp_tensor *l = call->in[at + 2 + i];
    if ((status = amp__want_index(l, at + 3 + i, name[i])) < 0) return status;
    if (l->ndim != 1 || l->size[0] != input->size[1])
      return amp__fail_arg(AMP_E_SHAPE, at + 3 + i,
                           "%s has shape %s, expected %lld, one a sequence (dimension 2 of log_probs %s)", name[i],
                           SHAPE_OF(l), LL(input->size[1]), SHAPE_OF(input));
  }
  if (args->blank < 1 || args->blank > input->size[2])
    return amp__fail(AMP_E_INDEX, "blank %lld is outside 1..%lld, the classes of log_probs %s", LL(args->blank),
                     LL(input->size[2]), SHAPE_OF(input));
  /* 2 S + 1 forward variables a step and sequence */
  if (__builtin_mul_overflow(tensor->numel, 2, cells) || __builtin_add_overflow(*cells, input->size[1], cells)
      || __builtin_mul_overflow(*cells, input->size[0], cells))
    return amp__fail(AMP_E_SHAPE, "log_probs %s and targets %s are too large", SHAPE_OF(input), SHAPE_OF(tensor));
  return 0;
}

int amp__infer_ctc(amp_call *call)
{
  const amp_tensor *input = call->in[0];
  int64_t cells;
  int status = sequences(call, 0, &cells);
  if (status < 0) return status;
  amp__out(call, 0, input->dtype, 1, &input->size[1]);
  amp__out(call, 1, amp__acc_dtype(input->dtype), 1, &cells);
  return 0;
}

/* grad log_probs targets input_lengths target_lengths nll alpha */
int amp__infer_ctc_backward(amp_call *call)
{
  const amp_tensor *input = call->in[1];
  int64_t cells;
  int status = sequences(call, 1, &cells);
  if (status < 0 || (status = want_float(call->in[0], 1, "grad")) < 0
      || (status = amp__want_shape(call->in[0], "grad", 1, &input->size[1])) < 0
      || (status = amp__want_shape(call->in[5], "nll", 1, &input->size[1])) < 0
      || (status = amp__want_shape(call->in[6], "alpha", 1, &cells)) < 0)
    return status;
  amp__out(call, 0, input->dtype, 3, input->size);
  return 0;
}
