/*
** base/pointer_map.h: hash tables whose entries begin with a pointer, which is their key; NULL: an empty entry.
** The tables are their users': an array of a power of two of entries, at most half full.
*/
#ifndef AMP_BASE_POINTER_MAP_H
#define AMP_BASE_POINTER_MAP_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "base/base.h"

/* Which entry of `cap` has the key, or else the empty one that is its. */
static inline size_t amp__pointer_find(const void *entries, size_t entry_bytes, size_t cap, const void *key)
{
  size_t at = (((uintptr_t)key >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (cap - 1);
  AMP_ASSERT(key && cap && (cap & (cap - 1)) == 0);
  for (;; at = (at + 1) & (cap - 1)) {
    const void *stored;
    memcpy(&stored, (const char *)entries + at * entry_bytes, sizeof stored);
    if (stored == NULL || stored == key) return at;
  }
}

/* Copies the entries of a table into a larger, empty one. */
static inline void amp__pointer_refill(void *to, size_t to_cap, const void *from, size_t from_cap, size_t entry_bytes)
{
  for (size_t i = 0; i < from_cap; i++) {
    const char *entry = (const char *)from + i * entry_bytes;
    const void *key;
    memcpy(&key, entry, sizeof key);
    if (key) memcpy((char *)to + amp__pointer_find(to, entry_bytes, to_cap, key) * entry_bytes, entry, entry_bytes);
  }
}

#endif
