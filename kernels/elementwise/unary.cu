/*
** unary.cu: elementwise kernels of one tensor.
**
** A launch is one of elementwise.cuh's two kernels: a thread holds 8 elements (16 bytes of halves, 32 of floats) in
** registers, nothing lies in shared memory, each element is read once and written once (8 bytes in float32, 4 in
** 16 bits). Memory's speed bounds it, but for the formulas that take double (gamma and its kin), which arithmetic does.
**
** The formulas stand in unary_formulas.h, with the rows' functions. Rows that training meets all the time have a kernel
** of their own in float32, where the row is chosen by the compiler; the others, float64 and integers share kernels in
** which it is chosen at run time.
*/
#include "elementwise/formula_calls.cuh"
#include "elementwise/unary_rows.cuh"

namespace {

using namespace unary_text;

/* What formula_calls.cuh makes kernels and calls of; has: has the row such a formula? */
struct unary_rows {
  enum { operands = 1 };
  static const char *name() { return "unary_text"; }
  typedef unary_text::settings settings;
  template <class T> static __device__ __forceinline__ T of(int op, const T *a, const settings &s)
  {
    return unary<T>(op, a[0], s);
  }
/* The rows of the shared kernels */
#define ALL_SHARED(name, formula) \
  case AMP_OP_##name:             \
    EACH(formula)                 \
    break;
#define ALL_OWN(name, formula) ALL_SHARED(name, formula)
#define ALL_FAST(name, formula)
#define ALL_LONG(name, formula)
#define ALL_LONG_OWN(name, formula)
#define EACH(formula)                           \
  _Pragma("unroll") for (int i = 0; i < N; i++) \
  {                                             \
    const T a = x[0][i];                        \
    y[i] = formula;                             \
  }
#define S(n) ((T)s.d[n])
  template <class T, int N>
  static __device__ __forceinline__ void all(int op, const T (&x)[1][N], T (&y)[N], const settings &s)
  {
    switch (op) {
#define ROW(name, entry, real) ALL_##entry(name, real)
#define BOTH(name, entry, real, whole) ALL_##entry(name, real)
#include "elementwise/unary_formulas.h"
    }
  }
#undef S
#define IS_LONG_SHARED false
#define IS_LONG_OWN false
#define IS_LONG_FAST false
#define IS_LONG_LONG true
#define IS_LONG_LONG_OWN true
#define LONG_CASE(name, entry) \
  case AMP_OP_##name: return IS_LONG_##entry;
  static constexpr bool is_long(int op)
  {
    switch (op) {
#define ROW(name, entry, real) LONG_CASE(name, entry)
#define BOTH(name, entry, real, whole) LONG_CASE(name, entry)
#include "elementwise/unary_formulas.h"
    }
    return false;
  }
  static constexpr bool has_real(int op)
  {
    switch (op) {
#define ROW(name, entry, real) case AMP_OP_##name:
#define BOTH(name, entry, real, whole) case AMP_OP_##name:
#include "elementwise/unary_formulas.h"
      return true;
    }
    return false;
  }
  static constexpr bool has_whole(int op)
  {
    switch (op) {
#define BOTH(name, entry, real, whole) case AMP_OP_##name:
#define WHOLE(name, entry, whole) case AMP_OP_##name:
#include "elementwise/unary_formulas.h"
      return true;
    }
    return false;
  }
};
typedef formula_calls<unary_rows> run;

struct test {
  enum { flat = 0 };
  int op;
  AMP_EW_TEXT(op, "unary_text::test<%d>", op)
  template <class T> __device__ __forceinline__ uint8_t of(const T *a) const { return truth<T>(op, a[0]); }
};

/* -- Calls ------------------------------------------------------------------------------- */

static settings plain()
{
  settings s;
  memset((void *)&s, 0, sizeof s);
  return s;
}
static int run_test(amp_call *c)
{
  test f = { c->id };
  int cls = amp_ew_class_of_dtype(c->in[0]->dtype);
  if (cls == AMP_EW_F64) return amp_ew_run<double, uint8_t, 1>(c->out[0], c->in, f);
  if (cls == AMP_EW_I64) return amp_ew_run<int64_t, uint8_t, 1>(c->out[0], c->in, f);
  return amp_ew_run<float, uint8_t, 1>(c->out[0], c->in, f);
}

} // namespace

extern "C" {

/* What stands as `entry` in the list */
#define RUN_SHARED(name, cls, s) return run::floats<AMP_OP_##name>(c, cls, s);
#define RUN_FAST(name, cls, s) return run::fast<AMP_OP_##name>(c, cls, s);
#define ENTRY_SHARED(name, body) \
  int amp__cuda_##name(amp_call *c) { body }
#define ENTRY_FAST(name, body) ENTRY_SHARED(name, body)
#define ENTRY_LONG(name, body) ENTRY_SHARED(name, body)
#define ENTRY_OWN(name, body)
#define RUN_OWN(name, cls, s)
#define RUN_LONG(name, cls, s) RUN_SHARED(name, cls, s)
#define RUN_LONG_OWN(name, cls, s)
#define ENTRY_LONG_OWN(name, body)

#define ROW(name, entry, real) ENTRY_##entry(name, RUN_##entry(name, run::float_class(c), plain()))
#define BOTH(name, entry, real, whole)                                                  \
  ENTRY_##entry(name, int cls = run::class_of(c);                                       \
                if (cls == AMP_EW_I64) return run::integers<AMP_OP_##name>(c, plain()); \
                RUN_##entry(name, cls, plain()))
#define TEST(name, real, whole) ENTRY_SHARED(name, return run_test(c);)
#define ONE(name, entry, first, real)                                          \
  ENTRY_##entry(name, settings s = plain(); s.d[0] = AMP_ARGS(c, name)->first; \
                RUN_##entry(name, run::float_class(c), s))
#define TWO(name, entry, first, second, real)                                                                      \
  ENTRY_##entry(name, settings s = plain(); s.d[0] = AMP_ARGS(c, name)->first; s.d[1] = AMP_ARGS(c, name)->second; \
                RUN_##entry(name, run::float_class(c), s))
#include "elementwise/unary_formulas.h"

int amp__cuda_gelu(amp_call *c)
{
  settings s = plain();
  s.k = (int32_t)AMP_ARGS(c, gelu)->approximate;
  return run::fast<AMP_OP_gelu>(c, run::float_class(c), s);
}

int amp__cuda_logit(amp_call *c)
{
  const args_logit *args = AMP_ARGS(c, logit);
  settings s = plain();
  s.k = AMP_GIVEN(args->eps);
  if (s.k) {
    s.d[0] = args->eps;
    s.d[1] = 1 - args->eps;
  }
  return run::floats<AMP_OP_logit>(c, run::float_class(c), s);
}

int amp__cuda_polygamma(amp_call *c)
{
  settings s = plain();
  s.k = (int32_t)AMP_ARGS(c, polygamma)->n;
  return run::floats<AMP_OP_polygamma>(c, run::float_class(c), s);
}

int amp__cuda_nan_to_num(amp_call *c)
{
  static const double most[4] = { DBL_MAX, FLT_MAX, 65504.0, 0x1.fep127 };
  const args_nan_to_num *args = AMP_ARGS(c, nan_to_num);
  int dtype = c->out[0]->dtype;
  if (!amp__is_float(dtype)) return amp__cuda_copy_to(c->out[0], c->in[0]);
  settings s = plain();
  s.d[0] = AMP_GIVEN(args->nan) ? args->nan : 0;
  s.d[1] = AMP_GIVEN(args->posinf) ? args->posinf : most[dtype];
  s.d[2] = AMP_GIVEN(args->neginf) ? args->neginf : -most[dtype];
  return run::floats<AMP_OP_nan_to_num>(c, run::float_class(c), s);
}

int amp__cuda_bitwise_not(amp_call *c)
{
  settings s = plain();
  s.k = c->in[0]->dtype == AMP_BOOL;
  return run::integers<AMP_OP_bitwise_not>(c, s);
}

static int64_t bound(double v)
{
  return v >= 9223372036854775807.0 ? INT64_MAX : v <= -9223372036854775808.0 ? INT64_MIN : (int64_t)v;
}

int amp__cuda_clamp(amp_call *c)
{
  const args_clamp *args = AMP_ARGS(c, clamp);
  settings s = plain();
  int cls = run::class_of(c);
  s.d[0] = AMP_GIVEN(args->min) ? args->min : -INFINITY;
  s.d[1] = AMP_GIVEN(args->max) ? args->max : INFINITY;
  if (s.d[0] != s.d[0] || s.d[1] != s.d[1]) {
    if (cls == AMP_EW_I64)
      return amp__fail(AMP_E_VALUE, "a bound is NaN, which %s can't hold", amp_dtype_name(c->out[0]->dtype));
    return amp__cuda_fill_value(c->out[0], NAN);
  }
  if (cls != AMP_EW_I64) return run::floats<AMP_OP_clamp>(c, cls, s);
  for (int i = 0; i < 2; i++) {
    double v = s.d[i];
    if (isfinite(v) && (v < 0) == (i == 1) && !amp__fits(v, c->out[0]->dtype))
      return amp__fail(AMP_E_VALUE, "%s %.17g does not fit %s", i ? "max" : "min", v, amp_dtype_name(c->out[0]->dtype));
    s.i[i] = bound(v);
  }
  return run::integers<AMP_OP_clamp>(c, s);
}
}
