/*
** library/table_hash.h: a hash of the op table and of the structs that cross the border
** between the core and a plug-in. Both sides compile it; amp_plugin_init
** compares its own with the caller's and refuses when they differ, so a
** library and a plug-in of two versions never meet.
*/
#ifndef AMP_LIBRARY_TABLE_HASH_H
#define AMP_LIBRARY_TABLE_HASH_H
#include "ops/linalg/factorisations.h"

static inline uint64_t amp__hash_bytes(uint64_t h, const void *data, size_t n)
{
  const unsigned char *p = data;
  for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 1099511628211u;
  return h;
}

static inline uint64_t amp__table_hash(void)
{
  const uint32_t layout[] = { AMP_ABI,
                              sizeof(amp_tensor),
                              sizeof(amp_storage),
                              sizeof(amp_block),
                              sizeof(amp_call),
                              sizeof(amp_meta),
                              sizeof(amp_op_desc),
                              sizeof(amp_device_ops),
                              sizeof(amp_optim_chunk),
                              sizeof(amp_hyper),
                              sizeof(amp_scaler_options),
                              sizeof(amp_linalg),
                              sizeof(amp_core_api) };
  uint64_t h = amp__hash_bytes(14695981039346656037u, layout, sizeof layout);
#ifdef AMP_HASH_CORE /* the core has the table itself: the same bytes once */
  for (int i = 0; i < AMP_OP_COUNT; i++) {
    const amp_op_info *info = amp_op_get(i);
    const char kind[2] = { (char)info->kind, 0 };
    h = amp__hash_bytes(h, kind, sizeof kind);
    h = amp__hash_bytes(h, info->name, strlen(info->name) + 1);
    h = amp__hash_bytes(h, info->schema, strlen(info->schema) + 1);
  }
  return h;
#else
  static const char rows[] =
#define AMP_OP(kind, name, schema, infer, policy, dtypes, save, flags, doc) #kind "\0" #name "\0" schema "\0"
#include "amp_ops.def"
#undef AMP_OP
      ;
  return amp__hash_bytes(h, rows, sizeof rows - 1);
#endif
}

#endif
