/*
** formula_calls.cuh: kernels and calls of rows whose formulas stand in a list (unary_formulas.h, binary_formulas.h).
**
** A family of rows, ROWS, says its name(), how many `operands` it has, what `settings` of a call its formulas take, has
*the
** formulas themselves, of(row, elements, settings) for one result and all(row, elements, results, settings) for as many
** as a thread holds, and knows which rows have one (has_real, has_whole), and whose is too long to be there so many
** times (is_long). A call of a row without the formula that it needs does not compile.
*/
#ifndef AMP_FORMULA_CALLS_CUH
#define AMP_FORMULA_CALLS_CUH
#include "elementwise/elementwise.cuh"

namespace {

template <class ROWS> struct formula_calls {
  typedef typename ROWS::settings settings;
  enum { operands = ROWS::operands };

  /* A kernel of the row's own, and one in which the row is chosen at run time */
  template <int OP> struct fixed {
    enum { flat = 1 };
    settings s;
    AMP_EW_LONG_TEXT(ROWS::is_long(OP), s, "%s::fixed<%d>", ROWS::name(), OP)
    template <class T> __device__ __forceinline__ T of(const T *a) const { return ROWS::template of<T>(OP, a, s); }
  };
  template <bool LONG> struct by_number {
    static constexpr int flat = LONG ? 0 : 2;
    int op;
    settings s;
    AMP_EW_LONG_TEXT(ROWS::is_long(op), s, "%s::fixed<%d>", ROWS::name(), op)
    template <class T> __device__ __forceinline__ T of(const T *a) const { return ROWS::template of<T>(op, a, s); }
    template <class T, int N> __device__ __forceinline__ void all(const T (&x)[operands][N], T (&y)[N]) const
    {
      ROWS::all(op, x, y, s);
    }
  };

  /* The class in which a call is computed; that of a row without a formula for integers */
  static int class_of(amp_call *c) { return amp_ew_class(c->out[0]->dtype, c->in, operands); }
  static int float_class(amp_call *c)
  {
    int cls = class_of(c);
    return cls == AMP_EW_I64 ? AMP_EW_F32 : cls;
  }

  template <int OP> static int integers(amp_call *c, const settings &s)
  {
    static_assert(ROWS::has_whole(OP), "the row has no formula for integers in its list");
    by_number<true> f = { OP, s };
    return amp_ew_run<int64_t, int64_t, operands>(c->out[0], c->in, f);
  }
  /* cls: AMP_EW_F32 or AMP_EW_F64 */
  template <int OP> static int floats(amp_call *c, int cls, const settings &s)
  {
    static_assert(ROWS::has_real(OP), "the row has no formula for floats in its list");
    by_number<ROWS::is_long(OP)> f = { OP, s };
    return cls == AMP_EW_F64 ? amp_ew_run<double, double, operands>(c->out[0], c->in, f)
                             : amp_ew_run<float, float, operands>(c->out[0], c->in, f);
  }
  /* the same, with a kernel of the row's own in float32 */
  template <int OP> static int fast(amp_call *c, int cls, const settings &s)
  {
    static_assert(ROWS::has_real(OP), "the row has no formula for floats in its list");
    fixed<OP> f = { s };
    return cls == AMP_EW_F32 ? amp_ew_run<float, float, operands>(c->out[0], c->in, f) : floats<OP>(c, cls, s);
  }
};

} // namespace
#endif
