/*
** ops/create/series.c: tensors of places and series: logspace, tril_indices,
** triu_indices, and diag_embed, which writes through a view of the diagonal.
*/
#include <math.h>
#include "cpu/strided.h"

int amp__cpu_logspace(amp_call *call)
{
  const args_logspace *args = AMP_ARGS(call, logspace);
  double start = args->start, end = args->end, base = args->base, buf[AMP_CHUNK];
  int64_t count = args->steps;
  amp_tensor *out = call->out[0];
  const double step = count > 1 ? (end - start) / (double)(count - 1) : 0;
  char *p = amp__data(out);
  if (count == 1) end = start;
  for (int64_t at = 0; at < count; at += AMP_CHUNK) {
    const int64_t m = count - at < AMP_CHUNK ? count - at : AMP_CHUNK;
    for (int64_t i = 0; i < m; i++) /* exponents from the nearer end */
      buf[i] = pow(base, at + i < (count + 1) / 2 ? start + (double)(at + i) * step
                                                  : end - (double)(count - 1 - at - i) * step);
    amp__store(out->dtype, p + at * out->stride[0] * amp__dtype_size[out->dtype], out->stride[0], AMP_C_F64, buf, m);
  }
  return 0;
}

static int triangle_indices(amp_call *call, int64_t rows, int64_t cols, int64_t offset, bool lower)
{
  int64_t count = call->out[0]->size[1], k = 0;
  amp_tensor *out = call->out[0], *tensor = amp__tensor_make(AMP_INT64, AMP_CPU, 0, 2, out->size);
  if (tensor == NULL) return amp__S->err.code;
  int64_t *p = AMP_DATA(int64_t, tensor);
  for (int64_t i = 0; i < rows && k < count; i++) {
    int64_t from = lower || i + offset < 0 ? 0 : i + offset, to = lower ? i + offset + 1 : cols;
    if (to > cols) to = cols;
    for (int64_t j = from; j < to; j++, k++) {
      p[k] = i + 1;
      p[count + k] = j + 1;
    }
  }
  int status = amp__copy_to(out, tensor);
  amp__free(tensor);
  return status;
}

int amp__cpu_tril_indices(amp_call *call)
{
  const args_tril_indices *args = AMP_ARGS(call, tril_indices);
  return triangle_indices(call, args->row, args->col, args->offset, true);
}

int amp__cpu_triu_indices(amp_call *call)
{
  const args_triu_indices *args = AMP_ARGS(call, triu_indices);
  return triangle_indices(call, args->row, args->col, args->offset, false);
}

int amp__cpu_diag_embed(amp_call *call)
{
  const args_diag_embed *args = AMP_ARGS(call, diag_embed);
  amp_tensor *input = call->in[0], *out = call->out[0];
  int64_t offset = args->offset, d1 = args->dim1, d2 = args->dim2, stride[AMP_MAX_DIM];
  int status = amp__fill_value(out, 0), k = 0;
  if (status < 0 || input->numel == 0) return status;
  for (int dim = 0; dim < out->ndim; dim++)
    if (dim != d1 && dim != d2) stride[k++] = out->stride[dim];
  stride[k] = out->stride[d1] + out->stride[d2];
  amp_tensor *value
      = amp__tensor_view(out, input->ndim, input->size, stride,
                         out->offset + (offset > 0 ? offset * out->stride[d2] : -offset * out->stride[d1]));
  status = value ? amp__copy_to(value, input) : amp__S->err.code;
  amp__free(value);
  return status;
}
