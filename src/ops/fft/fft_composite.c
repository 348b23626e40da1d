/*
** ops/fft/fft_composite.c: Fourier transforms as users call them, on top of three kernels
** (complex to complex, real to half a spectrum, half a spectrum to real).
**
** A complex tensor is a real one with a last dimension of size 2. The dimensions
** that `dim`, `n` and `s` speak of are those before it, so the same dim is right
** for rfft and for irfft. Series are cut or filled with zeros to n beforehand.
*/
#include <math.h>
#include "autograd/derivative.h"

#define LL(x) ((long long)(x))
#define SHAPE_OF(t) amp__shape_str((t)->ndim, (t)->size)

static double scale_of(int norm, bool inverse, int64_t n)
{
  if (norm == NORM_ORTHO) return 1 / sqrt((double)n);
  return (norm == NORM_FORWARD) != inverse ? 1 / (double)n : 1;
}

static int want_pairs(const amp_tensor *tensor, bool may_be_real)
{
  if (tensor->ndim >= 2 && tensor->size[tensor->ndim - 1] == 2) return 0;
  return amp__fail_arg(
      AMP_E_SHAPE, 1,
      "input has shape %s, expected a complex tensor: a last dimension of size 2 for real and imaginary parts%s",
      SHAPE_OF(tensor), may_be_real ? "; a real one is taken with real = true" : "");
}

/* The dimension's size is to be n */
static amp_tensor *fit(amp_tensor *tensor, int dim, int64_t n)
{
  if (!tensor || tensor->size[dim] == n) return tensor;
  if (tensor->size[dim] > n) return amp__op_narrow(tensor, dim, 0, n);
  amp_attrs attrs = amp__attrs();
  int behind = tensor->ndim - 1 - dim;
  amp__attrs_int(&attrs, 2 * (behind + 1));
  for (int i = 0; i < 16; i++) amp__attrs_int(&attrs, i == 2 * behind + 1 ? n - tensor->size[dim] : 0);
  amp__attrs_int(&attrs, PAD_MODE_CONSTANT);
  amp__attrs_float(&attrs, 0);
  return amp__op(AMP_OP_pad, &attrs, 1, &tensor);
}

static amp_tensor *as_pairs(amp_tensor *tensor)
{
  return tensor ? fit(amp__op_unsqueeze(tensor, -1), tensor->ndim, 2) : NULL;
}

static amp_tensor *complex_along(amp_tensor *tensor, int dim, int64_t n, bool inverse, int norm)
{
  tensor = fit(tensor, dim, n);
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, dim);
  amp__attrs_int(&attrs, inverse);
  amp__attrs_float(&attrs, scale_of(norm, inverse, n));
  return amp__op(AMP_OP_fft_complex, &attrs, 1, &tensor);
}

static amp_tensor *real_along(amp_tensor *tensor, int dim, int64_t n, int norm)
{
  tensor = fit(tensor, dim, n);
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, dim);
  amp__attrs_float(&attrs, scale_of(norm, false, n));
  amp__attrs_int(&attrs, 0);
  return amp__op(AMP_OP_fft_real, &attrs, 1, &tensor);
}

static amp_tensor *half_along(amp_tensor *tensor, int dim, int64_t n, int norm)
{
  tensor = fit(tensor, dim, n / 2 + 1);
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, dim);
  amp__attrs_int(&attrs, n);
  amp__attrs_float(&attrs, scale_of(norm, true, n));
  amp__attrs_int(&attrs, 1);
  return amp__op(AMP_OP_fft_half, &attrs, 1, &tensor);
}

/* -- Over several dimensions ------------------------------------------------------------- */

enum kind { COMPLEX, INVERSE, REAL, HALF };

typedef struct plan {
  int count, dim[AMP_MAX_DIM];
  int64_t length[AMP_MAX_DIM];
} plan;

static int want_length(int64_t n, int dim)
{
  if (n > INT64_C(1) << 38)
    return amp__fail(AMP_E_MEMORY, "%lld values along dimension %d are more than any memory holds", LL(n), dim + 1);
  if (n >= 1) return 0;
  return amp__fail(AMP_E_ARGUMENT, "%lld values along dimension %d: a transform needs at least 1", LL(n), dim + 1);
}

/* One transform a dimension, lengths n: of the dimension itself if absent. The last one is halved or restored. */
static int transform(amp_call *call, int kind, int norm, bool real, plan *steps)
{
  amp_tensor *input = call->in[0];
  int status;
  for (int i = 0; i < steps->count; i++) {
    bool last = i == steps->count - 1;
    if (steps->length[i] == AMP_NONE)
      steps->length[i] = kind == HALF && last ? 2 * (input->size[steps->dim[i]] - 1) : input->size[steps->dim[i]];
    if ((status = want_length(steps->length[i], steps->dim[i])) < 0) return status;
    if (input->size[steps->dim[i]] == 0)
      return amp__fail_arg(AMP_E_SHAPE, 1,
                           "input has shape %s: dimension %d, along which it is to be transformed, is empty",
                           SHAPE_OF(input), steps->dim[i] + 1);
  }
  if (kind <= INVERSE && real) input = as_pairs(input);
  if (kind == REAL) input = real_along(input, steps->dim[steps->count - 1], steps->length[steps->count - 1], norm);
  for (int i = 0; i < steps->count - (kind >= REAL); i++)
    input = complex_along(input, steps->dim[i], steps->length[i], kind == INVERSE || kind == HALF, norm);
  if (kind == HALF) input = half_along(input, steps->dim[steps->count - 1], steps->length[steps->count - 1], norm);
  return amp__result(call, 0, input);
}

/* slot: the dimension, from 1; n: the length, or absent */
static int one(amp_call *call, int kind, int64_t n, amp_slot *slot, int64_t norm, bool real)
{
  amp_tensor *input = call->in[0];
  plan steps = { .count = 1 };
  real = real || kind == REAL;
  int status = real ? 0 : want_pairs(input, kind != HALF);
  if (status < 0 || (status = amp__norm_dim(slot, real ? input->ndim : input->ndim - 1, "dim")) < 0) return status;
  steps.dim[0] = (int)slot->i;
  steps.length[0] = n;
  if (n != AMP_NONE && n < 1) return amp__fail(AMP_E_ARGUMENT, "n is %lld, must be at least 1", LL(n));
  return transform(call, kind, (int)norm, real, &steps);
}

/* The row's attributes n, dim and norm */
#define ONE(c, args, kind, real) one(c, kind, args->n, AMP_SLOT(args->dim), args->norm, real)

int amp__comp_fft(amp_call *call)
{
  args_fft *args = (args_fft *)call->attrs;
  return ONE(call, args, COMPLEX, args->real != 0);
}
int amp__comp_ifft(amp_call *call)
{
  args_ifft *args = (args_ifft *)call->attrs;
  return ONE(call, args, INVERSE, args->real != 0);
}
int amp__comp_rfft(amp_call *call)
{
  args_rfft *args = (args_rfft *)call->attrs;
  return ONE(call, args, REAL, false);
}
int amp__comp_irfft(amp_call *call)
{
  args_irfft *args = (args_irfft *)call->attrs;
  return ONE(call, args, HALF, false);
}

/* lengths, dims: the attributes s and dim; two: how many dimensions there must be, 0: any number */
static int several(amp_call *call, int kind, const amp_slot *lengths, amp_slot *dims, int64_t norm, bool real, int two)
{
  amp_tensor *input = call->in[0];
  plan steps = { 0 };
  uint32_t mask;
  real = real || kind == REAL;
  int status = real ? 0 : want_pairs(input, kind != HALF), nd = real ? input->ndim : input->ndim - 1;
  if (status < 0) return status;
  bool has_s = lengths[0].i != AMP_NONE, has_dim = dims[0].i != AMP_NONE && dims[0].i != 0;
  if (has_dim) {
    if ((status = amp__norm_dims(dims, nd, &mask)) < 0) return status;
    steps.count = (int)dims[0].i;
  } else steps.count = has_s ? (int)lengths[0].i : two ? two : nd;
  if (steps.count > nd || steps.count < 1)
    return amp__fail_arg(AMP_E_SHAPE, 1,
                         "input has shape %s: there are %d dimensions to transform along, expected %s%d",
                         SHAPE_OF(input), nd, steps.count < 1 ? "at least " : "", steps.count < 1 ? 1 : steps.count);
  if (two && steps.count != two)
    return amp__fail(AMP_E_ARGUMENT, "%s names %d dimensions, expected %d", has_dim ? "dim" : "s", steps.count, two);
  if (has_s && lengths[0].i != steps.count)
    return amp__fail(AMP_E_ARGUMENT, "s has %lld lengths for %d dimensions", LL(lengths[0].i), steps.count);
  for (int i = 0; i < steps.count; i++) {
    steps.dim[i] = has_dim ? (int)dims[1 + i].i : nd - steps.count + i;
    steps.length[i] = has_s && lengths[1 + i].i != -1 ? lengths[1 + i].i : AMP_NONE; /* -1: as it is */
    if (steps.length[i] != AMP_NONE && steps.length[i] < 1)
      return amp__fail(AMP_E_ARGUMENT, "s has length %lld for dimension %d, must be at least 1 (or -1: its size)",
                       LL(steps.length[i]), steps.dim[i] + 1);
  }
  return transform(call, kind, (int)norm, real, &steps);
}

/* The row's attributes s, dim and norm */
#define SEVERAL(c, args, kind, real, two) \
  several(c, kind, AMP_SLOT(args->s), AMP_SLOT(args->dim), args->norm, real, two)

int amp__comp_fft2(amp_call *call)
{
  args_fft2 *args = (args_fft2 *)call->attrs;
  return SEVERAL(call, args, COMPLEX, args->real != 0, 2);
}
int amp__comp_ifft2(amp_call *call)
{
  args_ifft2 *args = (args_ifft2 *)call->attrs;
  return SEVERAL(call, args, INVERSE, args->real != 0, 2);
}
int amp__comp_rfft2(amp_call *call)
{
  args_rfft2 *args = (args_rfft2 *)call->attrs;
  return SEVERAL(call, args, REAL, false, 2);
}
int amp__comp_irfft2(amp_call *call)
{
  args_irfft2 *args = (args_irfft2 *)call->attrs;
  return SEVERAL(call, args, HALF, false, 2);
}
int amp__comp_fftn(amp_call *call)
{
  args_fftn *args = (args_fftn *)call->attrs;
  return SEVERAL(call, args, COMPLEX, args->real != 0, 0);
}
int amp__comp_ifftn(amp_call *call)
{
  args_ifftn *args = (args_ifftn *)call->attrs;
  return SEVERAL(call, args, INVERSE, args->real != 0, 0);
}
int amp__comp_rfftn(amp_call *call)
{
  args_rfftn *args = (args_rfftn *)call->attrs;
  return SEVERAL(call, args, REAL, false, 0);
}
int amp__comp_irfftn(amp_call *call)
{
  args_irfftn *args = (args_irfftn *)call->attrs;
  return SEVERAL(call, args, HALF, false, 0);
}

/* -- Order of frequencies -------------------------------------------------------------------- */

/* dims: the attribute dim; pairs: of complex values; back: undo the shift */
static int shift(amp_call *call, amp_slot *dims, bool pairs, bool back)
{
  amp_tensor *input = call->in[0];
  uint32_t mask;
  int64_t shifts[AMP_MAX_DIM], at[AMP_MAX_DIM];
  int status, n = 0;
  if (pairs && (status = want_pairs(input, false)) < 0) return status;
  if (dims->i == 0) dims->i = AMP_NONE;
  if ((status = amp__norm_dims(dims, pairs ? input->ndim - 1 : input->ndim, &mask)) < 0) return status;
  for (int d = 0; d < input->ndim; d++) {
    if (!(mask >> d & 1)) continue;
    shifts[n] = back ? (input->size[d] + 1) / 2 : input->size[d] / 2;
    at[n++] = d + 1;
  }
  if (n == 0) return amp__result(call, 0, OP1(clone, input));
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, n, shifts);
  amp__attrs_list(&attrs, n, at);
  return amp__result(call, 0, amp__op(AMP_OP_roll, &attrs, 1, &input));
}

int amp__comp_fftshift(amp_call *call)
{
  args_fftshift *args = (args_fftshift *)call->attrs;
  return shift(call, AMP_SLOT(args->dim), args->complex != 0, false);
}

int amp__comp_ifftshift(amp_call *call)
{
  args_ifftshift *args = (args_ifftshift *)call->attrs;
  return shift(call, AMP_SLOT(args->dim), args->complex != 0, true);
}
