/*
** onednn_guard.h: oneDNN's calls, none of which throws. oneDNN is C++ behind a C
** API: where memory is short its operator new throws, through frames of C. The
** calls below go through onednn_guard.cpp, which makes a status of what is
** thrown, and callers take their own kernels as for any other failure. Built
** without a C++ compiler the plug-in calls oneDNN directly.
*/
#ifndef AMP_ONEDNN_GUARD_H
#define AMP_ONEDNN_GUARD_H
#include <dnnl.h>

#if DNNL_VERSION_MAJOR >= 3
/* clang-format off */
#define AMP_DNNL_OF_VERSION(X) \
  X(convolution_forward_primitive_desc_create) \
  X(convolution_backward_data_primitive_desc_create) \
  X(convolution_backward_weights_primitive_desc_create) X(matmul_primitive_desc_create) \
      X(memory_desc_create_with_strides) X(memory_desc_create_with_tag) X(memory_desc_destroy)
/* clang-format on */
#else
/* clang-format off */
#define AMP_DNNL_OF_VERSION(X) \
  X(dilated_convolution_forward_desc_init) \
  X(dilated_convolution_backward_data_desc_init) \
  X(dilated_convolution_backward_weights_desc_init) X(matmul_desc_init) X(memory_desc_init_by_strides) \
      X(memory_desc_init_by_tag) X(primitive_desc_create)
/* clang-format on */
#endif
/* clang-format off */
#define AMP_DNNL_CALLS(X)                                                                                      \
  X(engine_create)                                                                                             \
  X(stream_create)                                                                                             \
  X(memory_create)                                                                                             \
  X(memory_destroy) X(memory_set_data_handle) X(primitive_attr_create) X(primitive_attr_destroy)               \
      X(primitive_attr_set_scratchpad_mode) X(primitive_create) X(primitive_destroy) X(primitive_desc_destroy) \
          X(primitive_execute) X(reorder_primitive_desc_create) X(sgemm) X(post_ops_create) X(post_ops_destroy) \
              X(post_ops_append_binary) X(primitive_attr_set_post_ops)       \
                  AMP_DNNL_OF_VERSION(X)
/* clang-format on */

#if defined(AMP_ONEDNN_GUARDED) && !defined(__cplusplus)
#define AMP_DNNL_DECLARE(name) extern __typeof__(&dnnl_##name) const guarded_##name;
AMP_DNNL_CALLS(AMP_DNNL_DECLARE)
#define dnnl_engine_create guarded_engine_create
#define dnnl_stream_create guarded_stream_create
#define dnnl_memory_create guarded_memory_create
#define dnnl_memory_destroy guarded_memory_destroy
#define dnnl_memory_set_data_handle guarded_memory_set_data_handle
#define dnnl_primitive_attr_create guarded_primitive_attr_create
#define dnnl_primitive_attr_destroy guarded_primitive_attr_destroy
#define dnnl_primitive_attr_set_scratchpad_mode guarded_primitive_attr_set_scratchpad_mode
#define dnnl_primitive_create guarded_primitive_create
#define dnnl_primitive_destroy guarded_primitive_destroy
#define dnnl_primitive_desc_destroy guarded_primitive_desc_destroy
#define dnnl_primitive_execute guarded_primitive_execute
#define dnnl_reorder_primitive_desc_create guarded_reorder_primitive_desc_create
#define dnnl_sgemm guarded_sgemm
#define dnnl_post_ops_create guarded_post_ops_create
#define dnnl_post_ops_destroy guarded_post_ops_destroy
#define dnnl_post_ops_append_binary guarded_post_ops_append_binary
#define dnnl_primitive_attr_set_post_ops guarded_primitive_attr_set_post_ops
#if DNNL_VERSION_MAJOR >= 3
#define dnnl_convolution_forward_primitive_desc_create guarded_convolution_forward_primitive_desc_create
#define dnnl_convolution_backward_data_primitive_desc_create guarded_convolution_backward_data_primitive_desc_create
#define dnnl_convolution_backward_weights_primitive_desc_create \
  guarded_convolution_backward_weights_primitive_desc_create
#define dnnl_matmul_primitive_desc_create guarded_matmul_primitive_desc_create
#define dnnl_memory_desc_create_with_strides guarded_memory_desc_create_with_strides
#define dnnl_memory_desc_create_with_tag guarded_memory_desc_create_with_tag
#define dnnl_memory_desc_destroy guarded_memory_desc_destroy
#else
#define dnnl_dilated_convolution_forward_desc_init guarded_dilated_convolution_forward_desc_init
#define dnnl_dilated_convolution_backward_data_desc_init guarded_dilated_convolution_backward_data_desc_init
#define dnnl_dilated_convolution_backward_weights_desc_init guarded_dilated_convolution_backward_weights_desc_init
#define dnnl_matmul_desc_init guarded_matmul_desc_init
#define dnnl_memory_desc_init_by_strides guarded_memory_desc_init_by_strides
#define dnnl_memory_desc_init_by_tag guarded_memory_desc_init_by_tag
#define dnnl_primitive_desc_create guarded_primitive_desc_create
#endif
#endif
#endif
