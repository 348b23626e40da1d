/*
** ops/order/sort.h: elements as keys that sort like unsigned integers.
**
** A key orders its dtype as PyTorch does: NaN above everything and equal to
** itself, -0 equal to 0; `flip` turns the order around. An item is a key with
** the place it came from (from 0) below it, so no two items are equal, equal
** keys keep their order, and any way of sorting is a stable one (radix passes
** look at the key alone: they want the items as they came, by place).
**
**   dtypes of up to 32 bits: key << 32 | place       64 bits: amp_pair
*/
#ifndef AMP_OPS_SORT_H
#define AMP_OPS_SORT_H
#include "cpu/strided.h"

typedef struct amp_pair {
  uint64_t key, place;
} amp_pair;

/* Keys of n elements, `stride` elements apart. 32: dtypes of at most 4 bytes; 64: of 8 */
void amp__keys32(uint32_t *key, int dtype, const void *data, int64_t stride, int64_t n, bool flip);
void amp__keys64(uint64_t *key, int dtype, const void *data, int64_t stride, int64_t n, bool flip);
uint32_t amp__nan_key(void); /* key of a NaN of up to 32 bits, not flipped; 64 bits: all ones */
void amp__keys32_to_floats(float *out, const uint64_t *item, int64_t n,
                           bool flip); /* float32 values back (any NaN, +0) */

/* Sort n items; spare has room for n. amp__sort32 wants them by place, amp__order32 in any order. amp__select32:
** item[k] becomes the item that sorting would put there, with smaller ones before it and larger ones behind. */
void amp__sort32(uint64_t *item, uint64_t *spare, int64_t n);
void amp__order32(uint64_t *item, uint64_t *spare, int64_t n);
void amp__select32(uint64_t *item, uint64_t *spare, int64_t n, int64_t k);
void amp__sort64(amp_pair *item, amp_pair *spare, int64_t n);
void amp__order64(amp_pair *item, amp_pair *spare, int64_t n);
void amp__select64(amp_pair *item, amp_pair *spare, int64_t n, int64_t k);

#endif
