/*
** places.cuh: where the elements of a launch's operands lie, of elementwise.cuh's kernels and of generated ones.
*/
#ifndef AMP_PLACES_CUH
#define AMP_PLACES_CUH
#include "common/divide.cuh"

enum { AMP_EW_VECTOR = 8 };
enum { AMP_EW_DENSE, AMP_EW_ONE, AMP_EW_VALUE };

template <int MOST> struct amp_ew_of {
  int64_t n;
  int32_t dims, small; /* dims 0: flat; small: turns fit 31 bits */
  int64_t size[AMP_MAX_DIM];
  amp_divisor by[AMP_MAX_DIM]; /* sizes; wide kernel: the last one's and its strides are a vector's */
  struct {
    char *p;
    int32_t dtype, mode;
    int64_t stride[AMP_MAX_DIM];
    double v;
    int64_t i;
  } op[MOST]; /* results first */
};

/* Offsets of turn j */
template <class E, int K> __device__ __forceinline__ void amp_ew_places(const E &e, uint32_t j, int64_t (&at)[K])
{
#pragma unroll
  for (int k = 0; k < K; k++) at[k] = 0;
  for (int d = e.dims - 1; d >= 0; d--) {
    uint32_t r = d ? amp_digit(j, e.by[d]) : j;
#pragma unroll
    for (int k = 0; k < K; k++) at[k] += (int64_t)r * e.op[k].stride[d];
  }
}

/* The same where they may be more */
template <class E, int K> __device__ __forceinline__ void amp_ew_far_places(const E &e, int64_t j, int64_t (&at)[K])
{
  if (e.small) {
    amp_ew_places(e, (uint32_t)j, at);
    return;
  }
#pragma unroll
  for (int k = 0; k < K; k++) at[k] = 0;
  for (int d = e.dims - 1; d >= 0; d--) {
    int64_t q = d ? j / e.size[d] : 0, r = j - q * e.size[d];
#pragma unroll
    for (int k = 0; k < K; k++) at[k] += r * e.op[k].stride[d];
    j = q;
  }
}

/* -- Names: what a functor is called in generated text, and what of it goes there as it is ------------------- */

#ifdef AMP_GENERATED
#define AMP_EW_TEXT(given, ...)
#else
#include <cstdio>
#define AMP_EW_TEXT(given, ...) AMP_EW_LONG_TEXT(false, given, __VA_ARGS__)
#define AMP_EW_LONG_TEXT(is_long, given, ...)                         \
  template <class STEP> void text(STEP *step) const                   \
  {                                                                   \
    snprintf(step->functor, sizeof step->functor, __VA_ARGS__);       \
    step->lengthy = is_long;                                          \
    step->bytes = sizeof(given);                                      \
    static_assert(sizeof(given) <= sizeof step->part, "it is small"); \
    memcpy(step->part, (const void *)&(given), sizeof(given));        \
  }
#endif

#endif
