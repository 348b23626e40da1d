/*
** sort.cuh: elements as keys that sort like unsigned integers, and rows of them.
**
** A key orders its dtype as the CPU does: NaN above everything and equal to
** itself, -0 equal to 0; `flip` turns the order around. An item is a key with the
** place it came from (from 0) below it, so no two items are equal, equal keys keep
** their order, and any way of sorting is a stable one.
**
**   dtypes of up to 32 bits: key << 32 | place       64 bits: amp_pair
*/
#ifndef AMP_SORT_CUH
#define AMP_SORT_CUH
#include "common/kernel.cuh"

typedef struct alignas(16) amp_pair {
  uint64_t key, at;
} amp_pair;

template <class T, class S> __device__ __forceinline__ T amp_float_key(T b, T inf, T sign)
{
  if ((b & (T)~sign) > inf) return (T) ~(T)0;
  if (b == sign) return sign;
  return (T)(b ^ (T)((T)((S)b >> (8 * sizeof(T) - 1)) | sign));
}

static_assert(AMP_DTYPE_COUNT == 12, "amp_key64 knows two dtypes of 64 bits");

/* of dtypes up to 32 bits; the switch is exhaustive: a dtype without its key is an error where it is compiled */
__device__ __forceinline__ uint32_t amp_key32(const void *p, int dtype, int64_t i)
{
  switch ((amp_dtype)dtype) {
  case AMP_FLOAT32: return amp_float_key<uint32_t, int32_t>(((const uint32_t *)p)[i], 0x7f800000u, 0x80000000u);
  case AMP_FLOAT16:
    return (uint32_t)amp_float_key<uint16_t, int16_t>(((const uint16_t *)p)[i], 0x7c00u, 0x8000u) << 16 | 0xffffu;
  case AMP_BFLOAT16:
    return (uint32_t)amp_float_key<uint16_t, int16_t>(((const uint16_t *)p)[i], 0x7f80u, 0x8000u) << 16 | 0xffffu;
  case AMP_INT32: return (uint32_t)((const int32_t *)p)[i] ^ 0x80000000u;
  case AMP_INT16: return (uint32_t)(int32_t)((const int16_t *)p)[i] ^ 0x80000000u;
  case AMP_INT8: return (uint32_t)(int32_t)((const int8_t *)p)[i] ^ 0x80000000u;
  case AMP_UINT8:
  case AMP_BOOL: return ((const uint8_t *)p)[i];
  case AMP_FLOAT8_E4M3: /* rows that sort take none */
  case AMP_FLOAT8_E5M2:
  case AMP_FLOAT64:
  case AMP_INT64:
  case AMP_DTYPE_COUNT: break;
  }
  AMP_NEVER();
}
__device__ __forceinline__ uint64_t amp_key64(const void *p, int dtype, int64_t i)
{
  uint64_t b = ((const uint64_t *)p)[i];
  return dtype == AMP_FLOAT64 ? amp_float_key<uint64_t, int64_t>(b, 0x7ff0000000000000u, 0x8000000000000000u)
                              : b ^ 0x8000000000000000u;
}

/* Both kinds of items alike: I is uint64_t or amp_pair */
template <class I> struct amp_kind_of;
template <> struct amp_kind_of<uint64_t> {
  typedef uint32_t K;
  __device__ __forceinline__ static uint64_t make(uint32_t key, int64_t at)
  {
    return (uint64_t)key << 32 | (uint64_t)at;
  }
  __device__ __forceinline__ static uint32_t load(const void *p, int dtype, int64_t i)
  {
    return amp_key32(p, dtype, i);
  }
  __device__ __forceinline__ static uint32_t key(uint64_t v) { return (uint32_t)(v >> 32); }
  __device__ __forceinline__ static int64_t at(uint64_t v) { return (int64_t)(v & 0xffffffffu); }
  __device__ __forceinline__ static bool less(uint64_t a, uint64_t b) { return a < b; }
  __device__ __forceinline__ static uint64_t last() { return ~(uint64_t)0; }
};
template <> struct amp_kind_of<amp_pair> {
  typedef uint64_t K;
  __device__ __forceinline__ static amp_pair make(uint64_t key, int64_t at)
  {
    amp_pair v = { key, (uint64_t)at };
    return v;
  }
  __device__ __forceinline__ static uint64_t load(const void *p, int dtype, int64_t i)
  {
    return amp_key64(p, dtype, i);
  }
  __device__ __forceinline__ static uint64_t key(const amp_pair &v) { return v.key; }
  __device__ __forceinline__ static int64_t at(const amp_pair &v) { return (int64_t)v.at; }
  __device__ __forceinline__ static bool less(const amp_pair &a, const amp_pair &b)
  {
    return a.key < b.key || (a.key == b.key && a.at < b.at);
  }
  __device__ __forceinline__ static amp_pair last()
  {
    amp_pair v = { ~(uint64_t)0, ~(uint64_t)0 };
    return v;
  }
};

/* Sort each of `rows` rows of n items (C order); spare has room for as many. The sorted ones: v or spare (sort.cu) */
void *amp_sort_items(bool wide, void *v, void *spare, int64_t rows, int64_t n);
/* t's elements along dim (< 0: all of them, t being dense), as order.cu does for the row argsort: index counts from 1
 */
int amp_sort_index(const amp_tensor *t, int dim, bool flip, amp_tensor *index);
/* Indices (from 1) of the k least elements of each line along dim, in order */
int amp_sort_least(const amp_tensor *t, int dim, int64_t k, amp_tensor *index);
/* Sorted keys of all of t (float64 or int64, dense) into `key`, as many uint64 */
int amp_sort_keys(const amp_tensor *t, uint64_t *key);

#endif
