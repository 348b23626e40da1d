/*
** ops/fft/fft_shape.c: shape rules of the kernels of Fourier transforms. Composites
** (ops/fft/fft_composite.c) have checked dimensions and lengths in the caller's words.
*/
#include "dispatch/shape_rules.h"

static int want_dim(int64_t dim, int dims)
{
  if (dim >= 0 && dim < dims) return 0;
  return amp__fail(AMP_E_INDEX, "dim %lld (from 0) is out of range for %d dimension%s", LL(dim), dims,
                   dims == 1 ? "" : "s");
}

static int want_pairs(const amp_tensor *input)
{
  if (input->ndim >= 2 && input->size[input->ndim - 1] == 2) return 0;
  return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected complex values: a last dimension of size 2",
                       SHAPE_OF(input));
}

int amp__infer_fft_complex(amp_call *call)
{
  const amp_tensor *input = call->in[0];
  int status = want_pairs(input);
  if (status < 0 || (status = want_dim(AMP_ARGS(call, fft_complex)->dim, input->ndim - 1)) < 0) return status;
  amp__out(call, 0, input->dtype, input->ndim, input->size);
  return 0;
}

int amp__infer_fft_real(amp_call *call)
{
  const args_fft_real *args = AMP_ARGS(call, fft_real);
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM + 1];
  int status = want_dim(args->dim, input->ndim);
  if (status < 0) return status;
  if (input->ndim == AMP_MAX_DIM)
    return amp__fail_arg(AMP_E_SHAPE, 1,
                         "input has %d dimensions; its complex transform would have more than the %d there can be",
                         input->ndim, AMP_MAX_DIM);
  if (input->size[args->dim] == 0) /* half a spectrum has a frequency 0, of which no value says anything */
    return amp__fail_arg(AMP_E_SHAPE, 1,
                         "input has shape %s: dimension %lld, along which it is to be transformed, is empty",
                         SHAPE_OF(input), LL(args->dim + 1));
  for (int d = 0; d < input->ndim; d++) size[d] = input->size[d];
  size[args->dim] = size[args->dim] / 2 + 1;
  size[input->ndim] = 2;
  amp__out(call, 0, input->dtype, input->ndim + 1, size);
  return 0;
}

int amp__infer_fft_half(amp_call *call)
{
  const args_fft_half *args = AMP_ARGS(call, fft_half);
  const amp_tensor *input = call->in[0];
  int64_t size[AMP_MAX_DIM], n = args->n;
  int status = want_pairs(input);
  if (status < 0 || (status = want_dim(args->dim, input->ndim - 1)) < 0) return status;
  if (n < 1 || n / 2 + 1 != input->size[args->dim])
    return amp__fail(AMP_E_SHAPE, "half a spectrum of %lld frequencies does not belong to n = %lld values",
                     LL(input->size[args->dim]), LL(n));
  for (int d = 0; d < input->ndim; d++) size[d] = input->size[d];
  size[args->dim] = n;
  amp__out(call, 0, input->dtype, input->ndim - 1, size);
  return 0;
}
