/*
** ops/random/dropout_composite.c: dropouts made of other ops: those that draw one value a channel, and those that keep
** mean and variance.
*/
#include <math.h>
#include "autograd/derivative.h"

/* An in-place op outside any graph */
static int change(int op, amp_tensor *tensor, amp_tensor *other, const amp_attrs *s)
{
  amp_tensor *inputs[2] = { tensor, other };
  int32_t grad_mode = amp__S->grad_mode;
  amp__S->grad_mode = 0;
  int status = amp__dispatch(op, AMP_INPLACE, inputs, other ? 2 : 1, NULL, s ? s->v : NULL);
  amp__S->grad_mode = grad_mode;
  return status;
}

static int check_p(double p) { return p >= 0 && p <= 1 ? 0 : amp__fail(AMP_E_VALUE, "p %g must lie in 0..1", p); }

/* 1 with probability 1 - p, else 0: an element, or (by_channel) a channel each */
static amp_tensor *draw(amp_tensor *input, double p, int lead)
{
  int64_t size[AMP_MAX_DIM];
  for (int dim = 0; dim < input->ndim; dim++) size[dim] = dim < lead ? input->size[dim] : 1;
  amp_tensor *mask = amp__op_full(0, input->dtype, input->device, input->device_index, input->ndim, size);
  amp_attrs attrs = amp__attrs();
  amp__attrs_float(&attrs, 1 - p);
  if (!mask || change(AMP_OP_bernoulli, mask, NULL, &attrs) < 0) return NULL;
  return mask;
}

/* least, most: ranks that may come; a rank of `least` is a sample without N if batched is above it */
static int by_channel(amp_call *call, int least, int most, int batched, const char *what)
{
  const args_dropout2d *args = AMP_ARGS(call, dropout2d);
  amp_tensor *input = call->in[0];
  double p = args->p;
  int status = check_p(p);
  if (status < 0) return status;
  if (input->ndim < least || input->ndim > most)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected %s", amp__shape_str(input->ndim, input->size),
                         what);
  if (!args->training || p == 0) return amp__result(call, 0, OP1(alias, input));
  amp_tensor *mask = draw(input, p, input->ndim < batched ? 1 : 2);
  return amp__result(call, 0, OP2(mul, input, p < 1 ? OP_NUMBER(mul, mask, 1 / (1 - p)) : mask));
}

int amp__comp_dropout1d(amp_call *call) { return by_channel(call, 2, 3, 3, "N x C x L or C x L"); }
int amp__comp_dropout2d(amp_call *call) { return by_channel(call, 3, 4, 3, "N x C x H x W (or N x C x L)"); }
int amp__comp_dropout3d(amp_call *call) { return by_channel(call, 4, 5, 5, "N x C x D x H x W or C x D x H x W"); }

/* What SELU makes of minus infinity, -scale alpha, takes the place of what is dropped; a and b keep mean 0 and
** variance 1 */
static int alpha_dropout(amp_call *call, bool channels)
{
  const args_alpha_dropout *args = AMP_ARGS(call, alpha_dropout);
  const double alpha = 1.7580993408473766;
  amp_tensor *input = call->in[0];
  double p = args->p;
  int status = check_p(p);
  if (status < 0) return status;
  if (channels && input->ndim < 2)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected N x C x ...",
                         amp__shape_str(input->ndim, input->size));
  if (!args->training || p == 0) return amp__result(call, 0, OP1(alias, input));
  amp_tensor *mask = draw(input, p, channels ? 2 : input->ndim);
  if (p == 1) return amp__result(call, 0, OP2(mul, input, mask));
  double a = 1 / sqrt((alpha * alpha * p + 1) * (1 - p));
  amp_tensor *shift = OP_NUMBER(add, OP_NUMBER(mul, mask, alpha * a), alpha * a * (p - 1));
  return amp__result(call, 0, OP2(add, OP2(mul, input, OP_NUMBER(mul, mask, a)), shift));
}

int amp__comp_alpha_dropout(amp_call *call) { return alpha_dropout(call, false); }
int amp__comp_feature_alpha_dropout(amp_call *call) { return alpha_dropout(call, true); }
