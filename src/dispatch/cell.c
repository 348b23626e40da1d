/*
** dispatch/cell.c: single values in a device's memory.
*/
#include "dispatch/cell.h"
#include "dispatch/op_builder.h"

amp_tensor *amp__cell(int dtype, int device, int index, double value)
{
  amp_tensor *tensor;
  if (device == AMP_CPU) {
    tensor = amp__tensor_make(dtype, device, index, 0, NULL);
    if (!tensor) return NULL;
    if (dtype == AMP_FLOAT64) *AMP_DATA(double, tensor) = value;
    else *AMP_DATA(float, tensor) = (float)value;
    return tensor;
  }
  amp_tensor *out[AMP_MAX_OUT] = { 0 };
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, 0, NULL);
  amp__attrs_float(&attrs, value);
  amp__attrs_int(&attrs, dtype);
  amp__attrs_int(&attrs, device * 256 + index);
  return amp__dispatch(AMP_OP_full, 0, NULL, 0, out, attrs.v) ? NULL : out[0];
}

amp_tensor *amp__cell_copy(amp_tensor *tensor, int device, int index)
{
  if (tensor->device == AMP_CPU && device == AMP_CPU) {
    amp_tensor *c = amp__tensor_make(tensor->dtype, AMP_CPU, 0, 0, NULL);
    if (c) memcpy(amp__data(c), amp__data(tensor), amp__dtype_size[tensor->dtype]);
    return c;
  }
  amp_tensor *out[AMP_MAX_OUT] = { 0 };
  amp_attrs attrs = amp__attrs();
  bool here = tensor->device == device && tensor->device_index == index;
  amp__attrs_int(&attrs, here ? 0 : device * 256 + index);
  return amp__dispatch(here ? AMP_OP_clone : AMP_OP_to_device, 0, &tensor, 1, out, attrs.v) ? NULL : out[0];
}

/* A cell of its own costs a launch; a strip of them costs one for all. Captured steps fill theirs at each replay. */
amp_tensor *amp__cell_zero(int device, int index)
{
  enum { STRIP = 64 };
  struct amp_state_private *priv = amp__S->priv;
  if (device == AMP_CPU || amp__capture_here()) return amp__cell(AMP_FLOAT32, device, index, 0);
  if (!priv->zeros || priv->zeros->device != device || priv->zeros->device_index != index || priv->zeros_used == STRIP
      || priv->zeros_stream != amp__stream_here(device, index)) {
    amp_tensor *out[AMP_MAX_OUT] = { 0 };
    amp_attrs attrs = amp__attrs();
    int64_t n = STRIP;
    amp__attrs_list(&attrs, 1, &n);
    amp__attrs_float(&attrs, 0);
    amp__attrs_int(&attrs, AMP_FLOAT32);
    amp__attrs_int(&attrs, device * 256 + index);
    if (amp__dispatch(AMP_OP_full, 0, NULL, 0, out, attrs.v)) return NULL;
    amp__free(priv->zeros);
    priv->zeros = out[0];
    priv->zeros_used = 0;
    priv->zeros_stream = amp__stream_here(device, index);
  }
  return amp__tensor_view(priv->zeros, 0, NULL, NULL, priv->zeros->offset + priv->zeros_used++);
}

int amp__cell_read(amp_tensor *tensor, double *v)
{
  if (tensor->device == AMP_CPU) {
    *v = tensor->dtype == AMP_FLOAT64 ? *AMP_DATA(double, tensor) : *AMP_DATA(float, tensor);
    return 0;
  }
  amp_tensor *here = amp__on_cpu(tensor);
  if (!here) return amp__S->err.code;
  *v = amp__element(here, 0);
  amp__free(here);
  return 0;
}
