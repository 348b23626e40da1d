/* onednn2.c: oneDNN's API v2, where descriptors are structs and operations have descriptors of their own. */
#include "onednn.h"
#if DNNL_VERSION_MAJOR == 2
#include <stdlib.h>

static dnn_md make(int ndim, const int64_t *size, dnnl_data_type_t type, const int64_t *stride)
{
  dnnl_dims_t d, s;
  dnnl_memory_desc_t *md = malloc(sizeof *md);
  if (md == NULL) return NULL;
  for (int i = 0; i < ndim; i++) { d[i] = size[i]; s[i] = stride ? stride[i] : 0; }
  dnnl_status_t rc = stride ? dnnl_memory_desc_init_by_strides(md, ndim, d, type, s)
                            : dnnl_memory_desc_init_by_tag(md, ndim, d, type, dnnl_format_tag_any);
  if (rc == dnnl_success) return md;
  free(md);
  return NULL;
}

dnn_md dnn_md_strided(int ndim, const int64_t *size, dnnl_data_type_t type, const int64_t *stride) { return make(ndim, size, type, stride); }
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

static dnnl_status_t forward(dnnl_primitive_desc_t *pd, const dnn_problem *p, dnnl_prop_kind_t kind, dnnl_engine_t engine, dnnl_primitive_attr_t attr)
{
  dnn_md src = p->hint_src ? p->hint_src : p->src;
  dnnl_convolution_desc_t d;
  dnnl_status_t rc = dnnl_dilated_convolution_forward_desc_init(&d, kind, dnnl_convolution_direct, src, p->weight, p->bias,
                                                                p->dst, p->stride, p->dilation, p->pad_begin, p->pad_end);
  return rc ? rc : dnnl_primitive_desc_create(pd, &d, attr, engine, NULL);
}

int dnn_primitive_desc(dnnl_primitive_desc_t *pd, const dnn_problem *p, dnnl_engine_t engine, dnnl_primitive_attr_t attr)
{
  dnnl_status_t rc;
  dnnl_primitive_desc_t hint = NULL;
  if (p->kind == DNN_MATMUL) {
    dnnl_matmul_desc_t d;
    rc = dnnl_matmul_desc_init(&d, p->src, p->weight, p->bias, p->dst);
    return rc ? rc : dnnl_primitive_desc_create(pd, &d, attr, engine, NULL);
  }
  if (p->kind == DNN_CONV) return forward(pd, p, dnnl_forward_inference, engine, attr);
  if ((rc = forward(&hint, p, dnnl_forward_training, engine, attr)) != dnnl_success) return rc;
  dnnl_convolution_desc_t d;
  if (p->kind == DNN_CONV_INPUT)
    rc = dnnl_dilated_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, p->src, p->weight, p->dst, p->stride, p->dilation, p->pad_begin, p->pad_end);
  else
    rc = dnnl_dilated_convolution_backward_weights_desc_init(&d, dnnl_convolution_direct, p->src, p->weight, NULL, p->dst, p->stride, p->dilation, p->pad_begin, p->pad_end);
  if (rc == dnnl_success) rc = dnnl_primitive_desc_create(pd, &d, attr, engine, hint);
  dnnl_primitive_desc_destroy(hint);
  return rc;
}
#endif
