/*
** unary_rows.cuh: the formulas of unary_formulas.h as functions, for the kernels of unary.cu, where the row is
** chosen when it runs or by the compiler, and for generated kernels (elementwise/chain.cuh), which name it: a
** function a row.
*/
#ifndef AMP_UNARY_ROWS_CUH
#define AMP_UNARY_ROWS_CUH
#include "common/math.cuh"
#include "elementwise/places.cuh"

namespace unary_text {

constexpr double SELU_SCALE = 1.0507009873554804934193349852946, SELU_ALPHA = 1.6732632423543772848170429916717;

typedef struct settings {
  double d[3];
  int64_t i[3];
  int32_t k;
} settings;

#define S(n) ((T)s.d[n])

template <class T> __device__ __forceinline__ T sign_of(T a) { return a > 0 ? (T)1 : a < 0 ? (T)-1 : a; }
/* A NaN element stays; where low > high, high */
template <class T> __device__ __forceinline__ T limited(T a, T low, T high)
{
  return a < low ? (low > high ? high : low) : a > high ? high : a;
}

#ifdef AMP_GENERATED

template <int OP> struct of_real;
template <int OP> struct of_whole;
template <int OP> struct of_real_test;
template <int OP> struct of_whole_test;
#define FORMULA(kind, name, formula)                                                                         \
  template <> struct kind<AMP_OP_##name> {                                                                   \
    template <class T> static __device__ __forceinline__ auto of(T a, const settings &s) { return formula; } \
  };
#define ROW(name, entry, real) FORMULA(of_real, name, (T)(real))
#define BOTH(name, entry, real, whole) \
  FORMULA(of_real, name, (T)(real))    \
  FORMULA(of_whole, name, (int64_t)(whole))
#define WHOLE(name, entry, whole) FORMULA(of_whole, name, (int64_t)(whole))
#define TEST(name, real, whole)                \
  FORMULA(of_real_test, name, (uint8_t)(real)) \
  FORMULA(of_whole_test, name, (uint8_t)(whole))
#include "elementwise/unary_formulas.h"
#undef FORMULA

template <int OP> struct fixed {
  settings s;
  __device__ __forceinline__ int64_t of(const int64_t *a) const { return of_whole<OP>::of(a[0], s); }
  template <class T> __device__ __forceinline__ T of(const T *a) const { return of_real<OP>::of(a[0], s); }
};
template <int OP> struct test {
  int row;
  __device__ __forceinline__ uint8_t of(const int64_t *a) const { return of_whole_test<OP>::of(a[0], settings()); }
  template <class T> __device__ __forceinline__ uint8_t of(const T *a) const
  {
    return of_real_test<OP>::of(a[0], settings());
  }
};

#else

/* -- Formulas: floats, integers, tests --------------------------------------------- */

#define CASE(name, formula) \
  case AMP_OP_##name:       \
    return formula;

template <class T> __device__ __forceinline__ T unary(int op, T a, const settings &s)
{
  switch (op) {
#define ROW(name, entry, real) CASE(name, real)
#define BOTH(name, entry, real, whole) CASE(name, real)
#include "elementwise/unary_formulas.h"
  }
  AMP_NEVER();
}

template <> __device__ __forceinline__ int64_t unary<int64_t>(int op, int64_t a, const settings &s)
{
  switch (op) {
#define BOTH(name, entry, real, whole) CASE(name, whole)
#define WHOLE(name, entry, whole) CASE(name, whole)
#include "elementwise/unary_formulas.h"
  }
  AMP_NEVER();
}

template <class T> __device__ __forceinline__ uint8_t truth(int op, T a)
{
  switch (op) {
#define TEST(name, real, whole) CASE(name, real)
#include "elementwise/unary_formulas.h"
  }
  AMP_NEVER();
}
template <> __device__ __forceinline__ uint8_t truth<int64_t>(int op, int64_t a)
{
  switch (op) {
#define TEST(name, real, whole) CASE(name, whole)
#include "elementwise/unary_formulas.h"
  }
  AMP_NEVER();
}

#undef CASE
#endif
#undef S

} // namespace unary_text
#endif
