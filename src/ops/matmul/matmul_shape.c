/*
** ops/matmul/matmul_shape.c: shape rules of products. Operands have one dtype, results are
** in C order. Convolutions are in ops/conv/conv_shape.c, pooling in
** ops/pool/pool_shape.c.
*/
#include "dispatch/shape_rules.h"

/* -- Products ------------------------------------------------------------------ */

static int inner_mismatch(const amp_tensor *a, int da, const amp_tensor *b, int db)
{
  return amp__fail(
      AMP_E_SHAPE,
      "shapes %s and %s do not match (dimension %d of the first is %lld, dimension %d of the second is %lld)",
      SHAPE_OF(a), SHAPE_OF(b), da + 1, LL(a->size[da]), db + 1, LL(b->size[db]));
}

int amp__infer_matmul(amp_call *call)
{
  const amp_tensor *a = call->in[0], *b = call->in[1];
  int64_t size[AMP_MAX_DIM + 1];
  int status = amp__equal_dtypes(call, 2), count = 0;
  if (status < 0) return status;
  if (a->ndim == 0 || b->ndim == 0)
    return amp__fail(AMP_E_SHAPE, "shapes %s and %s: both operands need at least one dimension; use mul for scalars",
                     SHAPE_OF(a), SHAPE_OF(b));
  int ka = a->ndim - 1, kb = b->ndim > 1 ? b->ndim - 2 : 0;
  if (a->size[ka] != b->size[kb]) return inner_mismatch(a, ka, b, kb);
  int a_ndim = a->ndim > 2 ? a->ndim - 2 : 0, b_ndim = b->ndim > 2 ? b->ndim - 2 : 0,
      batch = a_ndim > b_ndim ? a_ndim : b_ndim;
  for (int dim = 0; dim < batch; dim++) {
    int i = dim - (batch - a_ndim), j = dim - (batch - b_ndim);
    int64_t x = i >= 0 ? a->size[i] : 1, y = j >= 0 ? b->size[j] : 1;
    if (x != y && x != 1 && y != 1)
      return amp__fail(
          AMP_E_SHAPE,
          "shapes %s and %s do not match in the batch (dimension %d of the first is %lld, dimension %d of the second "
          "is %lld)",
          SHAPE_OF(a), SHAPE_OF(b), i + 1, LL(x), j + 1, LL(y));
    size[count++] = x == 1 ? y : x;
  }
  if (a->ndim > 1) size[count++] = a->size[a->ndim - 2];
  if (b->ndim > 1) size[count++] = b->size[b->ndim - 1];
  amp__out(call, 0, a->dtype, count, size);
  return 0;
}

int amp__infer_linear(amp_call *call)
{
  const amp_tensor *input = call->in[0], *weight = call->in[1], *bias = call->nin > 2 ? call->in[2] : NULL;
  int64_t size[AMP_MAX_DIM];
  int status = amp__equal_dtypes(call, 3);
  if (status < 0) return status;
  if (weight->ndim != 2)
    return amp__fail_arg(AMP_E_SHAPE, 2, "weight has shape %s, expected a matrix (out x in)", SHAPE_OF(weight));
  if (input->ndim == 0) return amp__fail_arg(AMP_E_SHAPE, 1, "input is a scalar, expected at least one dimension");
  if (input->size[input->ndim - 1] != weight->size[1])
    return amp__fail(
        AMP_E_SHAPE,
        "input %s and weight %s do not match (dimension %d of input is %lld, dimension 2 of weight is %lld)",
        SHAPE_OF(input), SHAPE_OF(weight), input->ndim, LL(input->size[input->ndim - 1]), LL(weight->size[1]));
  if (bias && (bias->ndim != 1 || bias->size[0] != weight->size[0]))
    return amp__fail_arg(AMP_E_SHAPE, 3, "bias has shape %s, expected %lld (dimension 1 of weight)", SHAPE_OF(bias),
                         LL(weight->size[0]));
  for (int dim = 0; dim < input->ndim - 1; dim++) size[dim] = input->size[dim];
  size[input->ndim - 1] = weight->size[0];
  amp__out(call, 0, input->dtype, input->ndim, size);
  if (call->id == AMP_OP_linear) amp__aligned_rows(call, 0);
  return 0;
}

int amp__infer_linear_act(amp_call *call)
{
  int status = amp__infer_linear(call);
  if (status < 0 || AMP_ARGS(call, linear_act)->act == ACT_RELU) return status; /* relu's result says it all */
  amp__out(call, 1, call->meta[0].dtype, call->meta[0].ndim, call->meta[0].size);
  return 0;
}

/* grad saved */
int amp__infer_act_backward(amp_call *call)
{
  const amp_tensor *grad = call->in[0], *s = call->in[1];
  if (!amp__same_size(grad, s))
    return amp__fail(AMP_E_SHAPE, "grad has shape %s, the saved tensor %s", SHAPE_OF(grad), SHAPE_OF(s));
  if (grad->ndim == 0) return amp__fail_arg(AMP_E_SHAPE, 1, "grad is a scalar, expected at least one dimension");
  amp__out(call, 0, s->dtype, grad->ndim, grad->size);
  amp__out(call, 1, s->dtype, 1, &grad->size[grad->ndim - 1]);
  return 0;
}

/* Argument i is what a ReLU gave, whose gradient is the first one */
static int want_result(const amp_call *call, int i)
{
  if (amp__same_size(call->in[0], call->in[i])) return 0;
  return amp__fail_arg(AMP_E_SHAPE, i + 1, "result has shape %s, grad %s", SHAPE_OF(call->in[i]),
                       SHAPE_OF(call->in[0]));
}

/* grad weight result */
int amp__infer_linear_input(amp_call *call)
{
  const amp_tensor *grad = call->in[0], *weight = call->in[1];
  int count = grad->ndim, status = amp__equal_dtypes(call, 3);
  int64_t size[AMP_MAX_DIM];
  if (status < 0) return status;
  if (weight->ndim != 2 || count == 0 || grad->size[count - 1] != weight->size[0])
    return amp__fail(AMP_E_SHAPE,
                     "grad %s and weight %s do not match (the last dimension of grad is the first of weight, a matrix)",
                     SHAPE_OF(grad), SHAPE_OF(weight));
  if ((status = want_result(call, 2)) < 0) return status;
  for (int dim = 0; dim < count - 1; dim++) size[dim] = grad->size[dim];
  size[count - 1] = weight->size[1];
  amp__out(call, 0, grad->dtype, count, size);
  return 0;
}

/* grad input result */
int amp__infer_linear_weight(amp_call *call)
{
  const amp_tensor *grad = call->in[0], *input = call->in[1];
  int count = grad->ndim;
  int status = amp__equal_dtypes(call, 3);
  if (status == 0 && call->nin > 2 && call->in[2]) status = want_result(call, 2);
  if (status < 0) return status;
  bool fit = count > 0 && count == input->ndim;
  for (int dim = 0; fit && dim + 1 < count; dim++) fit = grad->size[dim] == input->size[dim];
  if (!fit)
    return amp__fail(AMP_E_SHAPE, "grad %s and input %s differ before their last dimensions", SHAPE_OF(grad),
                     SHAPE_OF(input));
  int64_t size[2] = { grad->size[count - 1], input->size[count - 1] };
  amp__out(call, 0, input->dtype, 2, size);
  amp__out(call, 1, input->dtype, 1, size);
  return 0;
}

/* grad input weight result */
int amp__infer_linear_both(amp_call *call)
{
  const amp_tensor *grad = call->in[0], *input = call->in[1], *weight = call->in[2];
  int count = grad->ndim, status = amp__equal_dtypes(call, 4);
  if (status == 0 && call->nin > 3 && call->in[3]) status = want_result(call, 3);
  if (status < 0) return status;
  bool fit = count > 0 && count == input->ndim;
  for (int dim = 0; fit && dim + 1 < count; dim++) fit = grad->size[dim] == input->size[dim];
  if (!fit)
    return amp__fail(AMP_E_SHAPE, "grad %s and input %s differ before their last dimensions", SHAPE_OF(grad),
                     SHAPE_OF(input));
  if (weight->ndim != 2 || weight->size[0] != grad->size[count - 1] || weight->size[1] != input->size[count - 1])
    return amp__fail_arg(AMP_E_SHAPE, 3,
                         "weight has shape %s, expected %lldx%lld (the last dimensions of grad and input)",
                         SHAPE_OF(weight), LL(grad->size[count - 1]), LL(input->size[count - 1]));
  amp__out(call, 0, input->dtype, count, input->size);
  amp__out(call, 1, input->dtype, 2, weight->size);
  amp__out(call, 2, input->dtype, 1, weight->size);
  return 0;
}
