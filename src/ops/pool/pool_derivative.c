/*
** ops/pool/pool_derivative.c: derivatives of pooling, resampling, padding, grid_sample.
** All but the last are linear in their input (max_pool once its places are
** chosen), so each family is closed: a kernel's derivative is its transpose and
** the transpose's is the kernel. grid_sample is not linear in its grid; the
** derivative of its backward row is a kernel without one.
*/
#include "autograd/derivative.h"

/* An op with the attributes `args` of so many bytes */
static amp_tensor *apply(int op, const void *args, size_t bytes, amp_tensor *input)
{
  amp_attrs attrs = amp__attrs();
  amp__attrs_append(&attrs, args, bytes);
  return amp__op(op, &attrs, 1, &input);
}

/* An op whose first attribute is the result's shape; `args` follow it */
static amp_tensor *back(int op, const amp_shape *shape, const void *args, size_t bytes, amp_tensor *grad)
{
  amp_attrs attrs = amp__attrs();
  amp__attrs_shape(&attrs, shape);
  amp__attrs_append(&attrs, args, bytes);
  return amp__op(op, &attrs, 1, &grad);
}

/* -- Places -------------------------------------------------------------------------- */

/* windows: of the pool that the places come from; NULL: unknown */
static amp_tensor *scatter(const amp_shape *shape, amp_tensor *grad, amp_tensor *places, int64_t spatial,
                           const args_max_pool *windows)
{
  amp_tensor *inputs[2] = { grad, places };
  amp_attrs attrs = amp__attrs();
  amp__attrs_shape(&attrs, shape);
  amp__attrs_int(&attrs, spatial);
  for (int i = 0; i < 3; i++) amp__attrs_int(&attrs, windows ? windows->kernel_size[i] : 0);
  for (int i = 0; i < 3; i++) amp__attrs_int(&attrs, windows ? windows->stride[i] : 1);
  for (int i = 0; i < 3; i++) amp__attrs_int(&attrs, windows ? windows->padding[i] : 0);
  return amp__op(AMP_OP_pool_scatter, &attrs, 2, inputs);
}

static amp_tensor *gather(amp_tensor *input, amp_tensor *places, int64_t spatial)
{
  amp_tensor *inputs[2] = { input, places };
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, spatial);
  return amp__op(AMP_OP_pool_gather, &attrs, 2, inputs);
}

int amp__bwd_max_pool(amp_bwd *bwd)
{
  const args_max_pool *args = AMP_ARGS(bwd, max_pool);
  bool near = args->dilation[0] == 1 && args->dilation[1] == 1 && args->dilation[2] == 1;
  return INPUT_GRAD(bwd, 0, scatter(SHAPE(bwd, 0), GRAD(bwd), OUTPUT(bwd, 1), args->spatial, near ? args : NULL));
}
int amp__bwd_pool_gather(amp_bwd *bwd)
{
  return INPUT_GRAD(bwd, 0,
                    scatter(SHAPE(bwd, 0), GRAD(bwd), INPUT(bwd, 1), AMP_ARGS(bwd, pool_gather)->spatial, NULL));
}
int amp__bwd_pool_scatter(amp_bwd *bwd)
{
  return INPUT_GRAD(bwd, 0, gather(GRAD(bwd), INPUT(bwd, 1), AMP_ARGS(bwd, pool_scatter)->spatial));
}
int amp__bwd_unpool(amp_bwd *bwd)
{
  return INPUT_GRAD(bwd, 0, gather(GRAD(bwd), INPUT(bwd, 1), AMP_ARGS(bwd, unpool)->spatial));
}

/* -- Linear maps ---------------------------------------------------------------------- */

int amp__bwd_avg_pool(amp_bwd *bwd)
{
  const args_avg_pool *args = AMP_ARGS(bwd, avg_pool);
  return INPUT_GRAD(bwd, 0, back(AMP_OP_avg_pool_backward, SHAPE(bwd, 0), args, sizeof *args, GRAD(bwd)));
}
int amp__bwd_avg_pool_backward(amp_bwd *bwd)
{
  const args_avg_pool *args = AMP_ARGS_FROM(AMP_ARGS(bwd, avg_pool_backward), spatial, avg_pool);
  return INPUT_GRAD(bwd, 0, apply(AMP_OP_avg_pool, args, sizeof *args, GRAD(bwd)));
}

int amp__bwd_resample(amp_bwd *bwd)
{
  const args_resample *args = AMP_ARGS(bwd, resample);
  return INPUT_GRAD(bwd, 0, back(AMP_OP_resample_backward, SHAPE(bwd, 0), args, sizeof *args, GRAD(bwd)));
}
int amp__bwd_resample_backward(amp_bwd *bwd)
{
  const args_resample *args = AMP_ARGS_FROM(AMP_ARGS(bwd, resample_backward), spatial, resample);
  return INPUT_GRAD(bwd, 0, apply(AMP_OP_resample, args, sizeof *args, GRAD(bwd)));
}

int amp__bwd_pad(amp_bwd *bwd)
{
  const args_pad *args = AMP_ARGS(bwd, pad);
  if (args->mode != PAD_MODE_CONSTANT) /* pad_backward has no value */
    return INPUT_GRAD(bwd, 0, back(AMP_OP_pad_backward, SHAPE(bwd, 0), args, offsetof(args_pad, value), GRAD(bwd)));
  args_pad away = *args;
  for (int i = 0; i < away.pad.n; i++) away.pad.at[i] = -away.pad.at[i];
  away.value = 0;
  return INPUT_GRAD(bwd, 0, apply(AMP_OP_pad, &away, sizeof away, GRAD(bwd)));
}

int amp__bwd_pad_backward(amp_bwd *bwd)
{
  const args_pad_backward *args = AMP_ARGS(bwd, pad_backward);
  args_pad again = { .mode = args->mode, .value = 0 };
  memcpy(&again.pad, &args->pad, sizeof again.pad);
  return INPUT_GRAD(bwd, 0, apply(AMP_OP_pad, &again, sizeof again, GRAD(bwd)));
}

/* -- Grids ------------------------------------------------------------------------------ */

int amp__bwd_grid_sample(amp_bwd *bwd)
{
  amp_tensor *inputs[3] = { GRAD(bwd), INPUT(bwd, 0), INPUT(bwd, 1) }, *out[AMP_MAX_OUT];
  amp_attrs attrs = amp__attrs();
  amp__attrs_all(&attrs, AMP_ARGS(bwd, grid_sample));
  int status = amp__op_results(AMP_OP_grid_sample_backward, &attrs, 3, inputs, out);
  for (int i = 0; i < 2 && status == 0; i++)
    if (NEEDS(bwd, i)) status = INPUT_GRAD(bwd, i, out[i]);
  return status;
}

int amp__bwd_grid_sample_backward(amp_bwd *bwd)
{
  amp_tensor *inputs[5] = { INPUT(bwd, 0), INPUT(bwd, 1), INPUT(bwd, 2), bwd->grad[0], bwd->grad[1] },
             *out[AMP_MAX_OUT];
  amp_attrs attrs = amp__attrs();
  amp__attrs_all(&attrs, AMP_ARGS(bwd, grid_sample_backward));
  for (int i = 0; i < 2; i++)
    if (!inputs[3 + i]) inputs[3 + i] = amp__op_zeros_like(bwd, 1 + i);
  int status = amp__op_results(AMP_OP_grid_sample_double, &attrs, 5, inputs, out);
  for (int i = 0; i < 3 && status == 0; i++)
    if (NEEDS(bwd, i)) status = INPUT_GRAD(bwd, i, out[i]);
  return status;
}
