/*
** ops/reduce/spread.c: row var_backward: g (x - mean). The mean comes in float64 and is
** taken away in two parts, so an offset that all elements share is gone before
** anything is rounded.
*/
#include "ops/reduce/reduce.h"
#include "cpu/vector_math.h"

static AMP_CLONES void spread_f(int64_t count, void *const *p, unsigned scalar, const void *arg)
{
  float *o = p[0];
  const float *x = p[1], *high = p[2], *low = p[3], *grad = p[4];
  (void)arg;
  if ((scalar & 28) == 28) {
    const float h = *high, l = *low, k = *grad;
    AMP_IVDEP
    for (int64_t i = 0; i < count; i++) o[i] = ((x[i] - h) - l) * k;
  } else if ((scalar & 28) == 0) {
    AMP_IVDEP
    for (int64_t i = 0; i < count; i++) o[i] = ((x[i] - high[i]) - low[i]) * grad[i];
  } else if ((scalar & 28) == 16) {
    const float k = *grad;
    AMP_IVDEP
    for (int64_t i = 0; i < count; i++) o[i] = ((x[i] - high[i]) - low[i]) * k;
  } else
    for (int64_t i = 0; i < count; i++) {
      const float h = high[scalar & 4 ? 0 : i], l = low[scalar & 8 ? 0 : i], k = grad[scalar & 16 ? 0 : i];
      o[i] = ((x[i] - h) - l) * k;
    }
}

static AMP_CLONES_WIDE void spread_d(int64_t count, void *const *p, unsigned scalar, const void *arg)
{
  double *o = p[0];
  const double *x = p[1], *mean = p[2], *g = p[4];
  (void)arg;
  for (int64_t i = 0; i < count; i++) o[i] = (x[i] - mean[scalar & 4 ? 0 : i]) * g[scalar & 16 ? 0 : i];
}

int amp__cpu_var_backward(amp_call *call) /* grad input; dim */
{
  static const amp_loop_fn loops[2] = { spread_f, spread_d };
  amp_tensor *grad = call->in[0], *input = call->in[1];
  bool wide = input->dtype == AMP_FLOAT64;
  uint32_t mask = amp__rmask(AMP_SLOT(AMP_ARGS(call, var_backward)->dim)) & ((1u << input->ndim) - 1);
  int64_t size[AMP_MAX_DIM];
  for (int dim = 0; dim < input->ndim; dim++) size[dim] = mask >> dim & 1 ? 1 : input->size[dim];
  amp_tensor *mean = amp__tensor_make(AMP_FLOAT64, AMP_CPU, 0, input->ndim, size), *high = NULL, *low = NULL;
  int status = AMP_E_MEMORY;
  if (!mean || (status = amp__means(input, mask, mean)) < 0) goto out;
  status = AMP_E_MEMORY;
  if (!wide) {
    high = amp__tensor_make(AMP_FLOAT32, AMP_CPU, 0, input->ndim, size);
    low = amp__tensor_make(AMP_FLOAT32, AMP_CPU, 0, input->ndim, size);
    if (!high || !low) goto out;
    for (int64_t i = 0; i < mean->numel; i++) {
      double m = AMP_DATA(double, mean)[i];
      AMP_DATA(float, high)[i] = (float)m;
      AMP_DATA(float, low)[i] = (float)(m - (double)(float)m);
    }
  }
  amp_tensor *tensor[5] = { call->out[0], input, wide ? mean : high, wide ? mean : low, grad };
  uint8_t k = wide ? AMP_C_F64 : AMP_C_F32;
  const uint8_t cls[5] = { k, k, k, k, k };
  amp_loop loop = { loops[wide], NULL, 1, 28, 2 };
  amp__elementwise(&loop, 5, tensor, cls);
  status = 0;
out:
  amp__free(mean);
  amp__free(high);
  amp__free(low);
  return status;
}
