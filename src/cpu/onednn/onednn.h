/*
** onednn.h: what differs between oneDNN's C APIs v2 and v3, which onednn2.c and
** onednn3.c implement side by side: making memory descriptors and primitive
** descriptors. Everything else is the same text in both and stands in
** onednn_plugin.c.
*/
#ifndef AMP_ONEDNN_H
#define AMP_ONEDNN_H
#include <stdbool.h>
#include <stdint.h>
#include <dnnl.h>
#include "onednn_guard.h"

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t dnn_md;
#else
typedef const dnnl_memory_desc_t *dnn_md;
#endif

enum dnn_kind { DNN_MATMUL, DNN_CONV, DNN_CONV_INPUT, DNN_CONV_WEIGHT };

typedef struct dnn_problem { /* a primitive to be made; conv fields for convolutions only */
  int kind;
  dnn_md src, weight, bias, dst; /* gradients of the same places in the backward kinds; bias may be NULL */
  dnn_md hint_src;               /* NULL, or the forward convolution's where src has another dtype */
  dnnl_dims_t stride, dilation, pad_begin, pad_end; /* one a spatial dimension; dilation from 0 */
  dnn_md added;                                     /* to the result, NULL: nothing is */
} dnn_problem;

/* Descriptors of ours; NULL on failure */
dnn_md dnn_md_strided(int ndim, const int64_t *size, dnnl_data_type_t type, const int64_t *stride);
dnn_md dnn_md_any(int ndim, const int64_t *size, dnnl_data_type_t type);
dnn_md dnn_md_blocked(int ndim, const int64_t *size, dnnl_data_type_t type); /* channels in blocks of 16 */
void dnn_md_free(dnn_md md);
/* Scratchpad in user mode; 0 or a dnnl_status_t */
int dnn_primitive_desc(dnnl_primitive_desc_t *pd, const dnn_problem *problem, dnnl_engine_t engine,
                       dnnl_primitive_attr_t attr);
/* What is added to the problem's result becomes part of attr; false: it can't */
bool dnn_add_after(dnnl_primitive_attr_t attr, const dnn_problem *problem);
dnn_md dnn_query(dnnl_primitive_desc_t pd, dnnl_query_t what); /* borrowed from pd */

/* Layouts (onednn_layout.c): n images of c channels of p pixels; block 1: N x C x pixels, else blocks of channels */
typedef struct dnn_layout {
  int64_t n, c, p, block;
  int bytes;
} dnn_layout;
/* Elements from planes into the blocked layout; with `back` the other way */
void dnn_layout_move(const dnn_layout *layout, void *planes, void *blocked, int back, int threads);
/* float32 sums in the layout plus a bias (float32 or bfloat16), into planes (or channels last) of float32 or
** bfloat16 */
void dnn_layout_finish(const dnn_layout *layout, void *out, bool out_last, const float *sums, const void *bias,
                       bool bias_half, int threads);

#endif
