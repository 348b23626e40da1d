/* onednn3.c: oneDNN's API v3, where descriptors are opaque and operation descriptors are gone. */
#include "onednn.h"
#if DNNL_VERSION_MAJOR >= 3

static dnn_md make(int ndim, const int64_t *size, dnnl_data_type_t type, const int64_t *stride)
{
  dnnl_dims_t d, s;
  dnnl_memory_desc_t md = NULL;
  for (int i = 0; i < ndim; i++) {
    d[i] = size[i];
    s[i] = stride ? stride[i] : 0;
  }
  dnnl_status_t rc = stride ? dnnl_memory_desc_create_with_strides(&md, ndim, d, type, s)
                            : dnnl_memory_desc_create_with_tag(&md, ndim, d, type, dnnl_format_tag_any);
  return rc == dnnl_success ? md : NULL;
}

dnn_md dnn_md_strided(int ndim, const int64_t *size, dnnl_data_type_t type, const int64_t *stride)
{
  return make(ndim, size, type, stride);
}
dnn_md dnn_md_any(int ndim, const int64_t *size, dnnl_data_type_t type) { return make(ndim, size, type, NULL); }

dnn_md dnn_md_blocked(int ndim, const int64_t *size, dnnl_data_type_t type)
{
  static const dnnl_format_tag_t tag[3] = { dnnl_aBc16b, dnnl_aBcd16b, dnnl_aBcde16b };
  dnnl_memory_desc_t md = NULL;
  return dnnl_memory_desc_create_with_tag(&md, ndim, size, type, tag[ndim - 3]) == dnnl_success ? md : NULL;
}

void dnn_md_free(dnn_md md)
{
  if (md) dnnl_memory_desc_destroy((dnnl_memory_desc_t)md);
}
dnn_md dnn_query(dnnl_primitive_desc_t pd, dnnl_query_t what) { return dnnl_primitive_desc_query_md(pd, what, 0); }

bool dnn_add_after(dnnl_primitive_attr_t attr, const dnn_problem *problem)
{
  dnnl_post_ops_t ops;
  if (!problem->added) return true;
  if (dnnl_post_ops_create(&ops) != dnnl_success) return false;
  bool ok = dnnl_post_ops_append_binary(ops, dnnl_binary_add, problem->added) == dnnl_success
            && dnnl_primitive_attr_set_post_ops(attr, ops) == dnnl_success;
  dnnl_post_ops_destroy(ops);
  return ok;
}

static dnnl_status_t forward(dnnl_primitive_desc_t *pd, const dnn_problem *p, dnnl_prop_kind_t kind,
                             dnnl_engine_t engine, dnnl_primitive_attr_t attr)
{
  dnn_md src = p->hint_src ? p->hint_src : p->src;
  return dnnl_convolution_forward_primitive_desc_create(pd, engine, kind, dnnl_convolution_direct, src, p->weight,
                                                        p->bias, p->dst, p->stride, p->dilation, p->pad_begin,
                                                        p->pad_end, attr);
}

int dnn_primitive_desc(dnnl_primitive_desc_t *pd, const dnn_problem *p, dnnl_engine_t engine,
                       dnnl_primitive_attr_t attr)
{
  dnnl_status_t rc;
  dnnl_primitive_desc_t hint = NULL;
  if (p->kind == DNN_MATMUL)
    return dnnl_matmul_primitive_desc_create(pd, engine, p->src, p->weight, p->bias, p->dst, attr);
  if (p->kind == DNN_CONV) return forward(pd, p, dnnl_forward_inference, engine, attr);
  if ((rc = forward(&hint, p, dnnl_forward_training, engine, attr)) != dnnl_success) return rc;
  if (p->kind == DNN_CONV_INPUT)
    rc = dnnl_convolution_backward_data_primitive_desc_create(pd, engine, dnnl_convolution_direct, p->src, p->weight,
                                                              p->dst, p->stride, p->dilation, p->pad_begin, p->pad_end,
                                                              hint, attr);
  else
    rc = dnnl_convolution_backward_weights_primitive_desc_create(pd, engine, dnnl_convolution_direct, p->src, p->weight,
                                                                 NULL, p->dst, p->stride, p->dilation, p->pad_begin,
                                                                 p->pad_end, hint, attr);
  dnnl_primitive_desc_destroy(hint);
  return rc;
}
#endif
