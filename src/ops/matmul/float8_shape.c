/*
** ops/matmul/float8_shape.c: shape rules of 8-bit products. All operands are matrices whose rows lie along the
** dimension that is summed. What a scale is made of, the largest |x|, is a float32 of its own: one of a matrix, or one
** of each piece of AMP_FLOAT8_PIECE elements of a row.
*/
#include "dispatch/shape_rules.h"
#include "ops/matmul/float8.h"

static int want_matrix(const amp_call *call, int i)
{
  const amp_tensor *tensor = call->in[i];
  if (tensor->ndim == 2) return 0;
  return amp__fail_arg(AMP_E_SHAPE, i + 1, "argument %d should be a matrix, got shape %s", i + 1, SHAPE_OF(tensor));
}

static int want_format(int64_t dtype)
{
  if (dtype >= 0 && dtype < AMP_DTYPE_COUNT && amp__is_float8((int)dtype)) return 0;
  return amp__fail(AMP_E_DTYPE, "an 8-bit float is expected, got %s", amp_dtype_name((int)dtype));
}

static int want_base(int64_t dtype)
{
  if (dtype >= 0 && dtype < AMP_DTYPE_COUNT && amp__is_float((int)dtype)) return 0;
  return amp__fail(AMP_E_DTYPE, "results are of a float dtype, got %s", amp_dtype_name((int)dtype));
}

/* input[M,K] other[N,K] (bias[N]): the result is M x N in base */
static int product_shape(amp_call *call, const amp_tensor *bias, int64_t base)
{
  const amp_tensor *a = call->in[0], *b = call->in[1];
  int status = want_matrix(call, 0);
  if (status == 0) status = want_matrix(call, 1);
  if (status == 0) status = want_base(base);
  if (status < 0) return status;
  if (a->size[1] != b->size[1])
    return amp__fail(AMP_E_SHAPE, "shapes %s and %s do not match in dimension 2", SHAPE_OF(a), SHAPE_OF(b));
  if (bias && (bias->ndim != 1 || bias->size[0] != b->size[0]))
    return amp__fail(AMP_E_SHAPE, "bias has shape %s, expected %lld", SHAPE_OF(bias), LL(b->size[0]));
  int64_t size[2] = { a->size[0], b->size[0] };
  amp__out(call, 0, (int)base, 2, size);
  return 0;
}

/* The largest values of a matrix: one, or one a piece. */
static bool largest_fits(const amp_tensor *largest, const amp_tensor *matrix)
{
  if (largest->dtype != AMP_FLOAT32 || !(largest->flags & AMP_T_CONTIGUOUS)) return false;
  if (largest->ndim == 1) return largest->size[0] == 1;
  return largest->ndim == 2 && largest->size[0] == matrix->size[0]
         && largest->size[1] == amp__float8_pieces(matrix->size[1]);
}

int amp__infer_float8_product(amp_call *call)
{
  const args_float8_product *args = AMP_ARGS(call, float8_product);
  const amp_tensor *input = call->in[0];
  int status = want_format(args->input_format);
  for (int i = 0; i < 2; i++)
    if (!amp__is_float(call->in[i]->dtype))
      return amp__fail_arg(AMP_E_DTYPE, i + 1, "argument %d should be of a float dtype, got %s", i + 1,
                           amp__tensor_str(call->in[i]));
  if (status == 0) status = want_format(args->other_format);
  if (status == 0) status = product_shape(call, call->nin > 2 ? call->in[2] : NULL, args->base);
  if (status < 0 || args->again == AGAIN_NONE) return status;
  if (args->recipe == RECIPE_BLOCK) return amp__fail(AMP_E_ARGUMENT, "pieces of rows serve one product only");
  if (args->again == AGAIN_SHARED) {
    status = call->nin < 5 || !call->in[3] || !call->in[4] ? AMP_E_SHAPE : want_format(call->in[3]->dtype);
    if (status < 0 || call->in[3]->numel != input->numel || !largest_fits(call->in[4], call->in[3]))
      return amp__fail_arg(AMP_E_SHAPE, 4, "the input's bytes, transposed, and their largest value are expected");
    call->unsaved = 1; /* the input itself */
    return 0;
  }
  if (args->again != AGAIN_KEPT && (call->nin < 4 || !call->in[3] || !amp__same_size(call->in[3], input)))
    return amp__fail_arg(AMP_E_SHAPE, 4, "a source like the input is expected");
  int64_t turned[2] = { input->size[1], input->size[0] }, one = 1;
  amp__out(call, 1, AMP_FLOAT32, 1, &one);
  if (args->again == AGAIN_KEPT) amp__out(call, 2, (int)args->input_format, 2, turned);
  call->unsaved = 1; /* the input itself */
  return 0;
}

static int want_largest(const amp_call *call, int i, const amp_tensor *matrix)
{
  if (largest_fits(call->in[i], matrix)) return 0;
  return amp__fail_arg(AMP_E_SHAPE, i + 1, "argument %d should be float32, one value or one a piece of a row, got %s",
                       i + 1, amp__tensor_str(call->in[i]));
}

int amp__infer_float8_mm(amp_call *call)
{
  int status = product_shape(call, call->nin > 4 ? call->in[4] : NULL, AMP_ARGS(call, float8_mm)->base);
  for (int i = 0; i < 2 && status == 0; i++) {
    status = want_format(call->in[i]->dtype);
    if (status == 0) status = want_largest(call, i + 2, call->in[i]);
  }
  if (status < 0 || call->in[2]->ndim == call->in[3]->ndim) return status;
  return amp__fail(AMP_E_SHAPE, "both operands have one scale, or both one a piece");
}

int amp__infer_float8_quantize(amp_call *call)
{
  const args_float8_quantize *args = AMP_ARGS(call, float8_quantize);
  const amp_tensor *input = call->in[0], *history = call->nin > 1 ? call->in[1] : NULL,
                   *counts = call->nin > 2 ? call->in[2] : NULL, *known = call->nin > 3 ? call->in[3] : NULL;
  int status = want_matrix(call, 0);
  if (status == 0) status = want_format(args->format);
  if (status < 0) return status;
  if (history
      && (history->dtype != AMP_FLOAT32 || history->ndim != 1 || !(history->flags & AMP_T_CONTIGUOUS)
          || args->window < 0 || args->place < -1 || args->place + 1 + args->window > history->size[0] || args->block))
    return amp__fail_arg(AMP_E_ARGUMENT, 2, "a history of %lld steps from place %lld is not in %s", LL(args->window),
                         LL(args->place), amp__tensor_str(history));
  if (counts && (counts->dtype != AMP_FLOAT64 || counts->numel != 3 || !(counts->flags & AMP_T_CONTIGUOUS)))
    return amp__fail_arg(AMP_E_ARGUMENT, 3, "counts should be three float64, got %s", amp__tensor_str(counts));
  if (known && (known->dtype != AMP_FLOAT32 || known->numel != 1 || args->block))
    return amp__fail_arg(AMP_E_ARGUMENT, 4, "what is known should be one float32 of a whole matrix, got %s",
                         amp__tensor_str(known));
  if (args->both && args->block) return amp__fail(AMP_E_ARGUMENT, "pieces of rows are not those of columns");
  int64_t pieces[2] = { args->block ? input->size[0] : 1, amp__float8_pieces(input->size[1]) };
  amp__out(call, 0, (int)args->format, 2, input->size);
  amp__out(call, 1, AMP_FLOAT32, args->block ? 2 : 1, pieces);
  pieces[0] = 1;
  amp__out(call, 2, AMP_FLOAT32, 1, pieces);
  if (!args->both) return 0;
  int64_t turned[2] = { input->size[1], input->size[0] };
  amp__out(call, 3, (int)args->format, 2, turned);
  return 0;
}

int amp__infer_float8_note(amp_call *call)
{
  const args_float8_note *args = AMP_ARGS(call, float8_note);
  const amp_tensor *history = call->in[0], *own = call->in[1];
  if (history->dtype != AMP_FLOAT32 || history->ndim != 1 || !(history->flags & AMP_T_CONTIGUOUS)
      || own->dtype != AMP_FLOAT32 || own->numel != 1 || args->place < 0 || args->place >= history->size[0])
    return amp__fail_arg(AMP_E_ARGUMENT, 1, "place %lld is not in a history of %s, or what is noted is no number: %s",
                         LL(args->place), amp__tensor_str(history), amp__tensor_str(own));
  amp__out(call, 0, AMP_FLOAT32, 1, history->size);
  return 0;
}

int amp__infer_float8_expand(amp_call *call)
{
  int status = want_matrix(call, 0);
  if (status == 0) status = want_format(call->in[0]->dtype);
  if (status == 0) status = want_largest(call, 1, call->in[0]);
  if (status < 0) return status;
  amp__out(call, 0, AMP_FLOAT32, 2, call->in[0]->size);
  return 0;
}

int amp__infer_float8_finish(amp_call *call)
{
  const args_float8_finish *args = AMP_ARGS(call, float8_finish);
  const amp_tensor *sums = call->in[0], *bias = call->nin > 3 ? call->in[3] : NULL;
  int status = want_matrix(call, 0);
  if (status == 0) status = want_base(args->base);
  if (status == 0) status = want_format(args->input_format);
  if (status == 0) status = want_format(args->other_format);
  if (status < 0) return status;
  if (sums->dtype != AMP_FLOAT32 || !(sums->flags & AMP_T_CONTIGUOUS))
    return amp__fail_arg(AMP_E_DTYPE, 1, "sums should be contiguous float32, got %s", amp__tensor_str(sums));
  for (int i = 1; i < 3; i++)
    if (call->in[i]->dtype != AMP_FLOAT32 || call->in[i]->numel < 1)
      return amp__fail_arg(AMP_E_DTYPE, i + 1, "largest values should be float32, got %s",
                           amp__tensor_str(call->in[i]));
  if (bias && (bias->ndim != 1 || bias->size[0] != sums->size[1]))
    return amp__fail_arg(AMP_E_SHAPE, 4, "bias has shape %s, expected %lld", SHAPE_OF(bias), LL(sums->size[1]));
  amp__out(call, 0, (int)args->base, 2, sums->size);
  return 0;
}
