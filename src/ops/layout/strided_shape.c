/*
** ops/layout/strided_shape.c: shape rules of diagonals and of strided windows.
*/
#include "dispatch/shape_rules.h"

/* offset, dim1 and dim2 of the result, in which the last dimension becomes two */
int amp__infer_diag_embed(amp_call *call)
{
  args_diag_embed *args = (args_diag_embed *)call->attrs;
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM], offset = args->offset;
  if (input->ndim == 0) return amp__fail_arg(AMP_E_SHAPE, 1, "a scalar has no dimension to become a diagonal");
  if (input->ndim == AMP_MAX_DIM)
    return amp__fail_arg(AMP_E_SHAPE, 1, "the result would have %d dimensions; at most %d are supported",
                         input->ndim + 1, AMP_MAX_DIM);
  int status = amp__norm_dim(AMP_SLOT(args->dim1), input->ndim + 1, "dim1");
  if (status < 0 || (status = amp__norm_dim(AMP_SLOT(args->dim2), input->ndim + 1, "dim2")) < 0) return status;
  if (args->dim1 == args->dim2) return amp__fail(AMP_E_ARGUMENT, "dim1 and dim2 are both %lld", LL(args->dim1 + 1));
  int64_t side;
  if (offset == INT64_MIN || __builtin_add_overflow(input->size[input->ndim - 1], offset < 0 ? -offset : offset, &side))
    return amp__fail(AMP_E_VALUE, "offset %lld is too large", LL(offset));
  for (int d = 0, k = 0; d <= input->ndim; d++) size[d] = d == args->dim1 || d == args->dim2 ? side : input->size[k++];
  amp__out(call, 0, input->dtype, input->ndim + 1, size);
  return amp__check_size(input->ndim + 1, size, input->dtype, NULL);
}

/* Does a view of these sizes, with these strides and this offset, stay within n elements? */
static int reaches(int ndim, const int64_t *size, const int64_t *stride, int64_t offset, int64_t n)
{
  int64_t last = offset, span;
  bool empty = false, ok = offset >= 0;
  for (int d = 0; d < ndim && ok; d++) {
    if (size[d] == 0) empty = true;
    else
      ok = stride[d] >= 0 && !__builtin_mul_overflow(size[d] - 1, stride[d], &span)
           && !__builtin_add_overflow(last, span, &last);
  }
  if (ok && (empty || last < n)) return 0;
  return amp__fail(AMP_E_INDEX, "a view of shape %s from offset %lld on reaches beyond %lld elements",
                   amp__shape_str(ndim, size), LL(offset), LL(n));
}

int amp__infer_as_strided_scatter(amp_call *call)
{
  args_as_strided_scatter *args = (args_as_strided_scatter *)call->attrs;
  const amp_tensor *input = call->in[0], *src = call->in[1];
  int64_t size[AMP_MAX_DIM];
  int n, status = amp__shape_attr(AMP_SLOT(args->size), "size", &n, size);
  if (status < 0 || (status = amp__want_shape(src, "src", n, size)) < 0) return status;
  if (args->stride.n != n) return amp__fail(AMP_E_ARGUMENT, "as many strides as sizes are expected");
  if ((status = reaches(n, size, args->stride.at, args->offset, input->numel)) < 0) return status;
  if (src->dtype != input->dtype)
    return amp__fail_arg(AMP_E_DTYPE, 2, "src has dtype %s and input %s; cast one of them", amp_dtype_name(src->dtype),
                         amp_dtype_name(input->dtype));
  amp__out(call, 0, input->dtype, input->ndim, input->size);
  return 0;
}

/* as_strided_sum: a shape, and the size, stride and offset of a view of it */
int amp__infer_shape_attr(amp_call *call)
{
  args_as_strided_sum *args = (args_as_strided_sum *)call->attrs;
  int64_t size[AMP_MAX_DIM], view[AMP_MAX_DIM], n = 1;
  int ndim, nview, status = amp__shape_attr(AMP_SLOT(args->shape), "shape", &ndim, size);
  if (status < 0 || (status = amp__shape_attr(AMP_SLOT(args->size), "size", &nview, view)) < 0) return status;
  if ((status = amp__want_shape(call->in[0], "input", nview, view)) < 0) return status;
  for (int d = 0; d < ndim; d++) n *= size[d];
  if (args->stride.n != nview) return amp__fail(AMP_E_ARGUMENT, "as many strides as sizes are expected");
  if ((status = reaches(nview, view, args->stride.at, args->offset, n)) < 0) return status;
  amp__out(call, 0, call->in[0]->dtype, ndim, size);
  return 0;
}
