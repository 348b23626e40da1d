/*
** ops/matmul/matmul_composite.c: composite products: matmul with the shapes checked that their
** names promise.
*/
#include "ops/matmul/matmul.h"

/* -- Products --------------------------------------------------------------------- */

int amp__want_dims(const amp_call *call, int i, int ndim, const char *what)
{
  const amp_tensor *tensor = call->in[i];
  if (tensor->ndim == ndim) return 0;
  return amp__fail_arg(AMP_E_SHAPE, i + 1, "argument %d should be %s (%d dimension%s), got shape %s", i + 1, what, ndim,
                       ndim == 1 ? "" : "s", amp__shape_str(tensor->ndim, tensor->size));
}

int amp__want_dtype(const amp_tensor *a, const amp_tensor *b)
{
  if (!b || a->dtype == b->dtype) return 0;
  return amp__fail(AMP_E_DTYPE, "equal dtypes are expected, got %s and %s; cast one", amp_dtype_name(a->dtype),
                   amp_dtype_name(b->dtype));
}

/* The inner dimensions of a @ b agree, and, of batches, the first. */
static int want_fit(const amp_tensor *a, const amp_tensor *b, int first, int second)
{
  if (a->size[first] != b->size[second])
    return amp__fail(
        AMP_E_SHAPE,
        "shapes %s and %s don't fit: dimension %d of the first is %lld, dimension %d of the second is %lld",
        amp__shape_str(a->ndim, a->size), amp__shape_str(b->ndim, b->size), first + 1, (long long)a->size[first],
        second + 1, (long long)b->size[second]);
  return 0;
}

int amp__want_product(amp_call *call, int i, int da, int db, const char *wa, const char *wb)
{
  int status;
  const amp_tensor *a = call->in[i], *b = call->in[i + 1];
  if ((status = amp__want_dims(call, i, da, wa)) < 0 || (status = amp__want_dims(call, i + 1, db, wb)) < 0)
    return status;
  if (da == 3 && (status = want_fit(a, b, 0, 0)) < 0) return status;
  if ((status = want_fit(a, b, da - 1, db == 3)) < 0) return status;
  return amp__want_dtype(a, b);
}

int amp__comp_mm(amp_call *call)
{
  int status = amp__want_product(call, 0, 2, 2, "a matrix", "a matrix");
  return status < 0 ? status : amp__result(call, 0, OP2(matmul, call->in[0], call->in[1]));
}

int amp__comp_bmm(amp_call *call)
{
  int status = amp__want_product(call, 0, 3, 3, "a batch of matrices", "a batch of matrices");
  return status < 0 ? status : amp__result(call, 0, OP2(matmul, call->in[0], call->in[1]));
}

int amp__comp_mv(amp_call *call)
{
  int status = amp__want_product(call, 0, 2, 1, "a matrix", "a vector");
  return status < 0 ? status : amp__result(call, 0, OP2(matmul, call->in[0], call->in[1]));
}

int amp__comp_dot(amp_call *call)
{
  int status = amp__want_product(call, 0, 1, 1, "a vector", "a vector");
  return status < 0 ? status : amp__result(call, 0, OP2(matmul, call->in[0], call->in[1]));
}

int amp__want_addend(const amp_call *call, int ndim, const int64_t *size)
{
  const amp_tensor *input = call->in[0];
  for (int i = 0; i < input->ndim; i++) {
    int dim = i + ndim - input->ndim;
    if (dim < 0 || (input->size[i] != 1 && input->size[i] != size[dim]))
      return amp__fail_arg(AMP_E_SHAPE, 1, "input of shape %s can't be broadcast to the product's shape %s",
                           amp__shape_str(input->ndim, input->size), amp__shape_str(ndim, size));
  }
  return 0;
}

amp_tensor *amp__add_product(amp_tensor *input, double beta, double alpha, amp_tensor *product)
{
  if (!product) return NULL;
  if (beta == 0) return alpha == 1 ? product : OP_NUMBER(mul, product, alpha);
  amp_tensor *inputs[2] = { beta == 1 ? input : OP_NUMBER(mul, input, beta), product };
  amp_attrs attrs = amp__attrs();
  amp__attrs_float(&attrs, alpha);
  return amp__op(AMP_OP_add, &attrs, 2, inputs);
}

static int add_product(amp_call *call, int ndim, const char *what, double beta, double alpha)
{
  const amp_tensor *a = call->in[1], *b = call->in[2];
  int64_t size[3];
  int status = amp__want_product(call, 1, ndim, ndim, what, what);
  if (status == 0) status = amp__want_dtype(call->in[0], a);
  if (status < 0) return status;
  for (int i = 0; i < ndim; i++) size[i] = i == ndim - 1 ? b->size[i] : a->size[i];
  if ((status = amp__want_addend(call, ndim, size)) < 0) return status;
  return amp__result(call, 0, amp__add_product(call->in[0], beta, alpha, OP2(matmul, call->in[1], call->in[2])));
}

int amp__comp_addmm(amp_call *call)
{
  const args_addmm *args = AMP_ARGS(call, addmm);
  return add_product(call, 2, "a matrix", args->beta, args->alpha);
}

int amp__comp_baddbmm(amp_call *call)
{
  const args_baddbmm *args = AMP_ARGS(call, baddbmm);
  return add_product(call, 3, "a batch of matrices", args->beta, args->alpha);
}
