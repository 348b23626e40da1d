/*
** ops/linalg/linalg_shape.c: shape rules of linear algebra: matrices in the last two
** dimensions. Batches of two operands are equal here; composites broadcast them.
*/
#include "dispatch/shape_rules.h"
#include "ops/linalg/linalg_parts.h"

int amp__want_matrix(const amp_tensor *input, int arg, const char *what)
{
  if (input->ndim >= 2) return 0;
  return amp__fail_arg(AMP_E_SHAPE, arg, "%s has shape %s, expected a matrix: at least 2 dimensions", what,
                       SHAPE_OF(input));
}

int amp__want_square(const amp_tensor *input, int arg, const char *what)
{
  int status = amp__want_matrix(input, arg, what);
  if (status < 0 || input->size[input->ndim - 1] == input->size[input->ndim - 2]) return status;
  return amp__fail_arg(AMP_E_SHAPE, arg,
                       "%s has shape %s, expected square matrices: they have %lld rows and %lld columns", what,
                       SHAPE_OF(input), LL(input->size[input->ndim - 2]), LL(input->size[input->ndim - 1]));
}

/* meta[i]: in[0]'s batch, then the given dimensions */
static void batch_of(amp_call *call, int i, int n, int64_t rows, int64_t cols)
{
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM + 2];
  int k = input->ndim - 2;
  for (int d = 0; d < k; d++) size[d] = input->size[d];
  if (n > 0) size[k++] = rows;
  if (n > 1) size[k++] = cols;
  amp__out(call, i, input->dtype, k, size);
}

int amp__infer_square(amp_call *call)
{
  int status = amp__want_square(call->in[0], 1, "input");
  if (status == 0) amp__out(call, 0, call->in[0]->dtype, call->in[0]->ndim, call->in[0]->size);
  return status;
}

int amp__infer_det(amp_call *call)
{
  int status = amp__want_square(call->in[0], 1, "input");
  if (status == 0) batch_of(call, 0, 0, 0, 0);
  return status;
}

int amp__infer_slogdet(amp_call *call)
{
  int status = amp__infer_det(call);
  if (status == 0) batch_of(call, 1, 0, 0, 0);
  return status;
}

int amp__infer_linear_solve(amp_call *call)
{
  const amp_tensor *a = call->in[0], *b = call->in[1];
  int status = amp__want_square(a, 1, "A");
  if (status < 0 || (status = amp__want_matrix(b, 2, "B")) < 0 || (status = amp__equal_dtypes(call, 2)) < 0)
    return status;
  if (a->ndim != b->ndim || memcmp(a->size, b->size, sizeof *a->size * (size_t)(a->ndim - 1)) != 0)
    return amp__fail(AMP_E_SHAPE, "A of shape %s and B of shape %s do not match", SHAPE_OF(a), SHAPE_OF(b));
  amp__out(call, 0, a->dtype, b->ndim, b->size);
  return 0;
}

int amp__infer_qr(amp_call *call)
{
  const amp_tensor *input = call->in[0];
  int status = amp__want_matrix(input, 1, "input");
  if (status < 0) return status;
  int64_t m = input->size[input->ndim - 2], n = input->size[input->ndim - 1],
          q = AMP_ARGS(call, qr)->mode == QR_MODE_COMPLETE || m < n ? m : n;
  batch_of(call, 0, 2, m, q);
  batch_of(call, 1, 2, q, n);
  return 0;
}

int amp__infer_svd(amp_call *call)
{
  const args_svd *args = AMP_ARGS(call, svd);
  const amp_tensor *input = call->in[0];
  int status = amp__want_matrix(input, 1, "input");
  if (status < 0) return status;
  int64_t m = input->size[input->ndim - 2], n = input->size[input->ndim - 1], r = m < n ? m : n;
  batch_of(call, 0, 2, m, args->some ? r : m);
  batch_of(call, 1, 1, r, 0);
  batch_of(call, 2, 2, n, args->some ? r : n);
  return 0;
}

int amp__infer_svdvals(amp_call *call)
{
  const amp_tensor *input = call->in[0];
  int status = amp__want_matrix(input, 1, "input");
  if (status < 0) return status;
  int64_t m = input->size[input->ndim - 2], n = input->size[input->ndim - 1];
  batch_of(call, 0, 1, m < n ? m : n, 0);
  return 0;
}

int amp__infer_eigvalsh(amp_call *call)
{
  int status = amp__want_square(call->in[0], 1, "input");
  if (status == 0) batch_of(call, 0, 1, call->in[0]->size[call->in[0]->ndim - 1], 0);
  return status;
}

int amp__infer_eigh(amp_call *call)
{
  int status = amp__infer_eigvalsh(call);
  if (status == 0) amp__out(call, 1, call->in[0]->dtype, call->in[0]->ndim, call->in[0]->size);
  return status;
}

int amp__infer_pinverse(amp_call *call)
{
  const args_pinverse *args = AMP_ARGS(call, pinverse);
  const amp_tensor *input = call->in[0];
  int status = amp__want_matrix(input, 1, "input");
  if (status < 0) return status;
  if (AMP_GIVEN(args->rcond) && !(args->rcond >= 0))
    return amp__fail(AMP_E_VALUE, "rcond %g must not be negative", args->rcond);
  batch_of(call, 0, 2, input->size[input->ndim - 1], input->size[input->ndim - 2]);
  return 0;
}
