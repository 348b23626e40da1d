/*
** cast_rows.cuh: what a copy or a cast makes of an element, for the kernels of layout/copy.cu and for generated ones
** (elementwise/chain.cuh).
*/
#ifndef AMP_CAST_ROWS_CUH
#define AMP_CAST_ROWS_CUH
#include "common/elements.cuh"
#include "elementwise/places.cuh"

namespace cast_text {

template <class T> struct same {
  enum { flat = 1 };
  AMP_EW_TEXT(*this, "cast_text::same<%s>", amp_ew_type(T()))
  __device__ __forceinline__ T of(const T *a) const { return a[0]; }
};
/* a float that an integer can't hold is noted */
template <class T> struct checked {
  enum { flat = 0 };
  amp_trouble *trouble;
  int op;
  double low, high;
  AMP_EW_TEXT(*this, "cast_text::checked<%s>", amp_ew_type(T()))
  __device__ __forceinline__ T of(const T *a) const
  {
    double v = trunc((double)a[0]);
    if (!(v >= low && v < high)) amp_note(trouble, AMP_TROUBLE_CAST, op, 0, 0, 0, (double)a[0]);
    return a[0];
  }
};

} // namespace cast_text
#endif
