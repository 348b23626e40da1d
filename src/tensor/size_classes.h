/*
** tensor/size_classes.h: the sizes that blocks of memory come in (tensor/alloc.c). Class 0 is 64 bytes; then 8 steps
** for each doubling.
*/
#ifndef AMP_TENSOR_SIZE_CLASSES_H
#define AMP_TENSOR_SIZE_CLASSES_H
#include "tensor/tensor.h"

enum {
  CLASSES = 1 + 42 * 8, /* up to 256 TiB */
  HUGE_PAGE = 2 << 20,
  CHUNK_MAX = 8 << 20, /* the largest that is part of a mapping */
  OLDEST_MAX = 4 << 20 /* a GPU's up to this have classes' sizes */
};

static inline int class_of(size_t bytes)
{
  if (bytes <= 64) return 0;
  int e = 63 - __builtin_clzll(bytes - 1);
  return 1 + (e - 6) * 8 + (int)((bytes - 1 - ((size_t)1 << e)) >> (e - 3));
}

static inline size_t class_bytes(int cls)
{
  if (cls == 0) return 64;
  int e = 6 + (cls - 1) / 8, k = (cls - 1) % 8;
  return ((size_t)1 << e) + ((size_t)(k + 1) << (e - 3));
}

static inline size_t capacity_of(int device, size_t bytes, int *cls)
{
  *cls = class_of(bytes);
  size_t capacity = class_bytes(*cls);
  if (device != AMP_CPU
      && capacity
             > OLDEST_MAX) { /* a GPU's memory is scarce: 64 steps for each doubling, in the lists of the classes */
    size_t step = bytes > (size_t)64 * HUGE_PAGE ? HUGE_PAGE : (size_t)1 << (57 - __builtin_clzll(bytes - 1));
    capacity = (bytes + step - 1) & ~(step - 1);
  } else if (capacity > CHUNK_MAX) { /* whole pages are enough: a class would waste up to an eighth */
    capacity = (bytes + HUGE_PAGE - 1) & ~((size_t)HUGE_PAGE - 1);
    *cls = class_of(capacity);
  }
  return capacity;
}

#endif
