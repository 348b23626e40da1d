/*
** ops/pool/pool_windows.h: the attributes that max_pool, avg_pool and avg_pool_backward
** (behind its shape) begin with.
*/
#ifndef AMP_POOL_WINDOWS_H
#define AMP_POOL_WINDOWS_H
#include "base/table.h"

typedef struct {
  int64_t spatial, size[3], kernel_size[3], stride[3], padding[3];
} AMP_OVER_SLOTS args_pool_windows;
#define POOL_WINDOWS(args) AMP_ARGS_FROM(args, spatial, pool_windows)

_Static_assert(offsetof(args_max_pool, dilation) == sizeof(args_pool_windows)
                   && offsetof(args_avg_pool, count_include_pad) == sizeof(args_pool_windows),
               "rows of amp_ops.def begin otherwise");
_Static_assert(sizeof(args_avg_pool_backward) - offsetof(args_avg_pool_backward, spatial) == sizeof(args_avg_pool),
               "avg_pool_backward has other attributes than avg_pool");

#endif
