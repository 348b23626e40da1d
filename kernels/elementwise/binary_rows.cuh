/*
** binary_rows.cuh: the formulas of binary_formulas.h as functions, and those of rows that stand in no list, for
** the kernels of binary.cu, where the row is chosen when it runs or by the compiler, and for generated kernels
** (elementwise/chain.cuh), which name it: a function a row.
*/
#ifndef AMP_BINARY_ROWS_CUH
#define AMP_BINARY_ROWS_CUH
#include "common/math.cuh"
#include "elementwise/places.cuh"

namespace binary_text {

typedef struct settings {
  double alpha;
  int64_t ialpha;
  int32_t k;
  amp_trouble *trouble;
} settings;

enum { OF_HALF = APPROXIMATE_COUNT }; /* k of gelu_backward: tanh's formula for 16 bits */
template <class T> __device__ __forceinline__ T gelu_slope(int k, T x)
{
  return k == OF_HALF            ? amp_gelu_tanh_grad_of_half(x)
         : k == APPROXIMATE_TANH ? amp_gelu_tanh_grad(x)
                                 : amp_gelu_grad(x);
}

#define WRAP(op, a, b) (int64_t)((uint64_t)(a)op(uint64_t)(b))

template <class T> __device__ __forceinline__ T larger(T a, T b) { return a != a || b != b ? a + b : a > b ? a : b; }
template <class T> __device__ __forceinline__ T smaller(T a, T b) { return a != a || b != b ? a + b : a < b ? a : b; }

/* What an integer is divided by, and the power it is raised to, looked at first. */
__device__ __forceinline__ int64_t not_zero(int op, int64_t a, int64_t b, const settings &s)
{
  if (b == 0) amp_note(s.trouble, AMP_TROUBLE_ZERO, op, a, 0, 0);
  return b;
}
__device__ __forceinline__ int64_t not_negative(int op, int64_t b, const settings &s)
{
  if (b < 0) amp_note(s.trouble, AMP_TROUBLE_NEGATIVE_POWER, op, b, 0, 0);
  return b;
}

#ifdef AMP_GENERATED

template <int OP> struct of_real;
template <int OP> struct of_whole;
template <int OP> struct of_test;
#define FORMULA(kind, name, formula)                                                          \
  template <> struct kind<AMP_OP_##name> {                                                    \
    template <class T> static __device__ __forceinline__ auto of(T a, T b, const settings &s) \
    {                                                                                         \
      enum { op = AMP_OP_##name };                                                            \
      return formula;                                                                         \
    }                                                                                         \
  };
#define ROW(name, entry, real) FORMULA(of_real, name, (T)(real))
#define BOTH(name, entry, real, whole) \
  FORMULA(of_real, name, (T)(real))    \
  FORMULA(of_whole, name, (int64_t)(whole))
#define WHOLE(name, whole) FORMULA(of_whole, name, (int64_t)(whole))
#define TEST(name, formula) FORMULA(of_test, name, (uint8_t)(formula))
#include "elementwise/binary_formulas.h"
#undef FORMULA

template <int OP> struct fixed {
  settings s;
  __device__ __forceinline__ int64_t of(const int64_t *a) const { return of_whole<OP>::of(a[0], a[1], s); }
  template <class T> __device__ __forceinline__ T of(const T *a) const { return of_real<OP>::of(a[0], a[1], s); }
};
template <int OP> struct test {
  int row;
  template <class T> __device__ __forceinline__ uint8_t of(const T *a) const
  {
    return of_test<OP>::of(a[0], a[1], settings());
  }
};

#else

/* -- Formulas: floats, integers, tests ----------------------------------------------- */

#define CASE(name, formula) \
  case AMP_OP_##name:       \
    return formula;

template <class T> __device__ __forceinline__ T binary(int op, T a, T b, const settings &s)
{
  switch (op) {
#define ROW(name, entry, real) CASE(name, real)
#define BOTH(name, entry, real, whole) CASE(name, real)
#include "elementwise/binary_formulas.h"
  }
  AMP_NEVER();
}

template <> __device__ __forceinline__ int64_t binary<int64_t>(int op, int64_t a, int64_t b, const settings &s)
{
  switch (op) {
#define BOTH(name, entry, real, whole) CASE(name, whole)
#define WHOLE(name, whole) CASE(name, whole)
#include "elementwise/binary_formulas.h"
  }
  AMP_NEVER();
}

template <class T> __device__ __forceinline__ uint8_t compare(int op, T a, T b)
{
  switch (op) {
#define TEST(name, formula) CASE(name, formula)
#include "elementwise/binary_formulas.h"
  }
  AMP_NEVER();
}

#undef CASE
#endif
#undef WRAP

/* -- Rows without a line there --------------------------------------------------------------- */

struct choose {
  enum { flat = 1 };
  AMP_EW_TEXT(*this, "binary_text::choose")
  template <class T> __device__ __forceinline__ T of(const T *a) const { return a[0] != 0 ? a[1] : a[2]; }
};
/* derivatives of elu and its relatives, and of the euclidean norm */
struct elu_slope {
  enum { flat = 1 };
  double above, below, by;
  AMP_EW_TEXT(*this, "binary_text::elu_slope")
  template <class T> __device__ __forceinline__ T of(const T *a) const
  {
    return a[0] * (a[1] > 0 ? (T)above : (T)below * exp(a[1] / (T)by));
  }
};
struct norm_slope {
  enum { flat = 1 };
  AMP_EW_TEXT(*this, "binary_text::norm_slope")
  template <class T> __device__ __forceinline__ T of(const T *a) const
  {
    return a[2] < (sizeof(T) == 8 ? (T)DBL_MIN : (T)FLT_MIN) ? 0 * a[1] : a[0] * (a[1] / a[2]);
  }
};
template <class T> struct masked {
  enum { flat = 1 };
  T v;
  AMP_EW_TEXT(*this, "binary_text::masked<%s>", amp_ew_type(T()))
  __device__ __forceinline__ T of(const T *a) const { return a[1] != 0 ? v : a[0]; }
};

} // namespace binary_text
#endif
