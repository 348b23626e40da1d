/* onednn2.c: oneDNN's API v2, where descriptors are structs and operations have descriptors of their own. */
#include "onednn.h"
#if DNNL_VERSION_MAJOR == 2
#include <stdlib.h>

static dnn_md make(int ndim, const int64_t *size, dnnl_data_type_t type, const int64_t *stride)
{
  dnnl_dims_t d, s;
  dnnl_memory_desc_t *md = malloc(sizeof *md);
  if (md == NULL) return NULL;
  for (int i = 0; i < ndim; i++) {
    d[i] = size[i];
    s[i] = stride ? stride[i] : 0;
  }
  dnnl_status_t status = stride ? dnnl_memory_desc_init_by_strides(md, ndim, d, type, s)
                                : dnnl_memory_desc_init_by_tag(md, ndim, d, type, dnnl_format_tag_any);
  if (status == dnnl_success) return md;
  free(md);
  return NULL;
}

dnn_md dnn_md_strided(int ndim, const int64_t *size, dnnl_data_type_t type, const int64_t *stride)
{
  return make(ndim, size, type, stride);
}
dnn_md dnn_md_any(int ndim, const int64_t *size, dnnl_data_type_t type) { return make(ndim, size, type, NULL); }

dnn_md dnn_md_blocked(int ndim, const int64_t *size, dnnl_data_type_t type)
{
  static const dnnl_format_tag_t tag[3] = { dnnl_aBc16b, dnnl_aBcd16b, dnnl_aBcde16b };
  dnnl_memory_desc_t *md = malloc(sizeof *md);
  if (md == NULL || dnnl_memory_desc_init_by_tag(md, ndim, size, type, tag[ndim - 3]) == dnnl_success) return md;
  free(md);
  return NULL;
}

void dnn_md_free(dnn_md md) { free((void *)md); }
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

static dnnl_status_t forward(dnnl_primitive_desc_t *pd, const dnn_problem *problem, dnnl_prop_kind_t kind,
                             dnnl_engine_t engine, dnnl_primitive_attr_t attr)
{
  dnn_md src = problem->hint_src ? problem->hint_src : problem->src;
  dnnl_convolution_desc_t d;
  dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
      &d, kind, dnnl_convolution_direct, src, problem->weight, problem->bias, problem->dst, problem->stride,
      problem->dilation, problem->pad_begin, problem->pad_end);
  return status ? status : dnnl_primitive_desc_create(pd, &d, attr, engine, NULL);
}

int dnn_primitive_desc(dnnl_primitive_desc_t *pd, const dnn_problem *problem, dnnl_engine_t engine,
                       dnnl_primitive_attr_t attr)
{
  dnnl_status_t status;
  dnnl_primitive_desc_t hint = NULL;
  if (problem->kind == DNN_MATMUL) {
    dnnl_matmul_desc_t d;
    status = dnnl_matmul_desc_init(&d, problem->src, problem->weight, problem->bias, problem->dst);
    return status ? status : dnnl_primitive_desc_create(pd, &d, attr, engine, NULL);
  }
  if (problem->kind == DNN_CONV) return forward(pd, problem, dnnl_forward_inference, engine, attr);
  if ((status = forward(&hint, problem, dnnl_forward_training, engine, attr)) != dnnl_success) return status;
  dnnl_convolution_desc_t d;
  if (problem->kind == DNN_CONV_INPUT)
    status = dnnl_dilated_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, problem->src,
                                                              problem->weight, problem->dst, problem->stride,
                                                              problem->dilation, problem->pad_begin, problem->pad_end);
  else
    status = dnnl_dilated_convolution_backward_weights_desc_init(
        &d, dnnl_convolution_direct, problem->src, problem->weight, NULL, problem->dst, problem->stride,
        problem->dilation, problem->pad_begin, problem->pad_end);
  if (status == dnnl_success) status = dnnl_primitive_desc_create(pd, &d, attr, engine, hint);
  dnnl_primitive_desc_destroy(hint);
  return status;
}
#endif
