/*
** ops/fft/fft_derivative.c: derivatives of Fourier transforms. They are linear, so the
** gradient is the transposed transform: of fft the one in the other direction,
** of half a spectrum and real values each the other one, frequencies that stand
** for two counting twice in just one of the two.
*/
#include "autograd/derivative.h"

int amp__bwd_fft_complex(amp_bwd *bwd)
{
  const args_fft_complex *args = AMP_ARGS(bwd, fft_complex);
  amp_tensor *g = GRAD(bwd);
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, args->dim);
  amp__attrs_int(&attrs, !args->inverse);
  amp__attrs_float(&attrs, args->scale);
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, amp__op(AMP_OP_fft_complex, &attrs, 1, &g)));
}

int amp__bwd_fft_real(amp_bwd *bwd)
{
  const args_fft_real *args = AMP_ARGS(bwd, fft_real);
  amp_tensor *g = GRAD(bwd);
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, args->dim);
  amp__attrs_int(&attrs, SHAPE(bwd, 0)->size[args->dim]);
  amp__attrs_float(&attrs, args->scale);
  amp__attrs_int(&attrs, args->weighted);
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, amp__op(AMP_OP_fft_half, &attrs, 1, &g)));
}

int amp__bwd_fft_half(amp_bwd *bwd)
{
  const args_fft_half *args = AMP_ARGS(bwd, fft_half);
  amp_tensor *g = GRAD(bwd);
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, args->dim);
  amp__attrs_float(&attrs, args->scale);
  amp__attrs_int(&attrs, args->weighted);
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, amp__op(AMP_OP_fft_real, &attrs, 1, &g)));
}
