/*
** ternary_rows.cuh: what ternary.cu computes, for its kernels and for generated ones (elementwise/chain.cuh).
*/
#ifndef AMP_TERNARY_ROWS_CUH
#define AMP_TERNARY_ROWS_CUH
#include "common/elements.cuh"
#include "elementwise/places.cuh"

namespace ternary_text {

template <int OP> struct three {
  enum { flat = 1 };
  double value;
  int64_t whole;
  AMP_EW_TEXT(*this, "ternary_text::three<%d>", OP)
  template <class T> __device__ __forceinline__ T of(const T *a) const
  {
    if constexpr (OP == AMP_OP_lerp) /* exact at both ends */
      return (a[2] < 0 ? -a[2] : a[2]) < (T)0.5 ? a[0] + a[2] * (a[1] - a[0]) : a[1] - (a[1] - a[0]) * (1 - a[2]);
    else if constexpr (OP == AMP_OP_addcmul) return a[0] + (T)value * a[1] * a[2];
    else {
      static_assert(OP == AMP_OP_addcdiv, "a row without its formula");
      return a[0] + (T)value * (a[1] / a[2]);
    }
  }
};
struct whole_three {
  enum { flat = 1 };
  int64_t value;
  AMP_EW_TEXT(*this, "ternary_text::whole_three")
  __device__ __forceinline__ int64_t of(const int64_t *a) const
  {
    return (int64_t)((uint64_t)a[0] + (uint64_t)value * (uint64_t)a[1] * (uint64_t)a[2]);
  }
};

} // namespace ternary_text
#endif
