/*
** binary.cu: elementwise kernels of two and three tensors: arithmetic,
** comparison, logic, bits, selection and the derivatives of activations.
**
** A launch is one of elementwise.cuh's two kernels: a thread holds 8 elements of each operand in registers, nothing
** lies in shared memory, each element is read once and written once (12 bytes in float32, 6 in 16 bits, of two dense
** operands). Memory's speed bounds it.
**
** The formulas stand in binary_formulas.h, with the rows' functions; add, sub, mul, div and the derivatives that every
** backward meets have float32 kernels of their own. What an integer op is not defined for (a zero divisor, a negative
** exponent) gives 0 and is noted in the device's trouble cell, which the next wait raises.
*/
#include "elementwise/formula_calls.cuh"
#include "elementwise/binary_rows.cuh"

namespace {

using namespace binary_text;

/* What formula_calls.cuh makes kernels and calls of; has: has the row such a formula? */
struct binary_rows {
  enum { operands = 2 };
  static const char *name() { return "binary_text"; }
  typedef binary_text::settings settings;
  template <class T> static __device__ __forceinline__ T of(int op, const T *a, const settings &s)
  {
    return binary<T>(op, a[0], a[1], s);
  }
/* The rows of the shared kernels */
#define ALL_SHARED(name, formula) \
  case AMP_OP_##name:             \
    EACH(formula)                 \
    break;
#define ALL_OWN(name, formula)
#define ALL_FAST(name, formula)
#define ALL_LONG(name, formula)
#define EACH(formula)                           \
  _Pragma("unroll") for (int i = 0; i < N; i++) \
  {                                             \
    const T a = x[0][i], b = x[1][i];           \
    y[i] = formula;                             \
  }
  template <class T, int N>
  static __device__ __forceinline__ void all(int op, const T (&x)[2][N], T (&y)[N], const settings &s)
  {
    switch (op) {
#define ROW(name, entry, real) ALL_##entry(name, real)
#define BOTH(name, entry, real, whole) ALL_##entry(name, real)
#include "elementwise/binary_formulas.h"
    }
  }
#define IS_LONG_SHARED false
#define IS_LONG_OWN false
#define IS_LONG_FAST false
#define IS_LONG_LONG true
#define LONG_CASE(name, entry) \
  case AMP_OP_##name: return IS_LONG_##entry;
  static constexpr bool is_long(int op)
  {
    switch (op) {
#define ROW(name, entry, real) LONG_CASE(name, entry)
#define BOTH(name, entry, real, whole) LONG_CASE(name, entry)
#include "elementwise/binary_formulas.h"
    }
    return false;
  }
  static constexpr bool has_real(int op)
  {
    switch (op) {
#define ROW(name, entry, real) case AMP_OP_##name:
#define BOTH(name, entry, real, whole) case AMP_OP_##name:
#include "elementwise/binary_formulas.h"
      return true;
    }
    return false;
  }
  static constexpr bool has_whole(int op)
  {
    switch (op) {
#define BOTH(name, entry, real, whole) case AMP_OP_##name:
#define WHOLE(name, whole) case AMP_OP_##name:
#include "elementwise/binary_formulas.h"
      return true;
    }
    return false;
  }
};
typedef formula_calls<binary_rows> run;

struct test {
  enum { flat = 0 };
  int op;
  AMP_EW_TEXT(op, "binary_text::test<%d>", op)
  template <class T> __device__ __forceinline__ uint8_t of(const T *a) const { return compare<T>(op, a[0], a[1]); }
};
/* -- Calls --------------------------------------------------------------------------------- */

static settings plain()
{
  settings s;
  memset((void *)&s, 0, sizeof s);
  s.trouble = amp_trouble_cell();
  return s;
}

/* add and sub */
template <int OP> static int run_scaled(amp_call *c, double alpha)
{
  settings s = plain();
  int cls = run::class_of(c);
  if (alpha != 1.0) {
    s.k = 1;
    s.alpha = alpha;
    s.ialpha = (int64_t)alpha;
    if (cls == AMP_EW_I64 && (double)s.ialpha != alpha)
      return amp__fail(AMP_E_VALUE, "alpha is %.14g, integer tensors need an integral one", alpha);
  }
  return cls == AMP_EW_I64 ? run::integers<OP>(c, s) : run::fast<OP>(c, cls, s);
}

static int run_compare(amp_call *c)
{
  test f = { c->id };
  amp_tensor *in[2] = { c->in[0], c->in[1] }, rounded;
  amp_storage store;
  int cls = amp_ew_class(-1, c->in, 2);
  for (int i = 0; i < 2; i++) { /* a number beside a 16-bit tensor counts as rounded to it */
    const amp_tensor *x = in[i], *y = in[1 - i];
    if (!(x->flags & AMP_T_NUMBER) || !amp__is_half(y->dtype)) continue;
    rounded = *x;
    memset((void *)&store, 0, sizeof store);
    rounded.storage = &store;
    rounded.dtype = AMP_FLOAT64;
    rounded.offset = 0;
    store.data = store.small;
    double v = *AMP_DATA(double, x);
    v = amp_round_host(v, y->dtype);
    memcpy(store.small, &v, sizeof v);
    in[i] = &rounded;
  }
  if (cls == AMP_EW_F64) return amp_ew_run<double, uint8_t, 2>(c->out[0], in, f);
  if (cls == AMP_EW_I64) return amp_ew_run<int64_t, uint8_t, 2>(c->out[0], in, f);
  return amp_ew_run<float, uint8_t, 2>(c->out[0], in, f);
}

} // namespace

extern "C" {

/* What stands as `entry` in the list */
#define RUN_SHARED(name, cls) return run::floats<AMP_OP_##name>(c, cls, plain());
#define RUN_FAST(name, cls) return run::fast<AMP_OP_##name>(c, cls, plain());
#define RUN_OWN(name, cls)
#define RUN_LONG(name, cls) RUN_SHARED(name, cls)
#define ENTRY_LONG(name, body) ENTRY_SHARED(name, body)
#define ENTRY_SHARED(name, body) \
  int amp__cuda_##name(amp_call *c) { body }
#define ENTRY_FAST(name, body) ENTRY_SHARED(name, body)
#define ENTRY_OWN(name, body)

#define ROW(name, entry, real) ENTRY_##entry(name, RUN_##entry(name, run::float_class(c)))
#define BOTH(name, entry, real, whole)            \
  ENTRY_##entry(name, int cls = run::class_of(c); \
                if (cls == AMP_EW_I64) return run::integers<AMP_OP_##name>(c, plain()); RUN_##entry(name, cls))
#define WHOLE(name, whole) ENTRY_SHARED(name, return run::integers<AMP_OP_##name>(c, plain());)
#define TEST(name, formula) ENTRY_SHARED(name, return run_compare(c);)
#include "elementwise/binary_formulas.h"

int amp__cuda_add(amp_call *c) { return run_scaled<AMP_OP_add>(c, AMP_ARGS(c, add)->alpha); }
int amp__cuda_sub(amp_call *c) { return run_scaled<AMP_OP_sub>(c, AMP_ARGS(c, sub)->alpha); }

int amp__cuda_gelu_backward(amp_call *c)
{
  settings s = plain();
  s.k = (int32_t)AMP_ARGS(c, gelu_backward)->approximate;
  if (s.k == APPROXIMATE_TANH && amp__is_half(c->out[0]->dtype)) s.k = OF_HALF;
  return run::fast<AMP_OP_gelu_backward>(c, run::float_class(c), s);
}

int amp__cuda_elu_backward(amp_call *c) /* grad input; above below by */
{
  const args_elu_backward *args = AMP_ARGS(c, elu_backward);
  elu_slope f = { args->above, args->below, args->by };
  return run::class_of(c) == AMP_EW_F64 ? amp_ew_run<double, double, 2>(c->out[0], c->in, f)
                                        : amp_ew_run<float, float, 2>(c->out[0], c->in, f);
}

int amp__cuda_norm_backward(amp_call *c) /* grad input norm */
{
  norm_slope f;
  return amp_ew_class(c->out[0]->dtype, c->in, 3) == AMP_EW_F64 ? amp_ew_run<double, double, 3>(c->out[0], c->in, f)
                                                                : amp_ew_run<float, float, 3>(c->out[0], c->in, f);
}

int amp__cuda_where(amp_call *c)
{
  int cls = amp_ew_class(c->out[0]->dtype, c->in + 1, 2);
  choose f;
  if (cls == AMP_EW_F64) return amp_ew_run<double, double, 3>(c->out[0], c->in, f);
  if (cls == AMP_EW_I64) return amp_ew_run<int64_t, int64_t, 3>(c->out[0], c->in, f);
  return amp_ew_run<float, float, 3>(c->out[0], c->in, f);
}

int amp__cuda_masked_fill(amp_call *c)
{
  static const double most[AMP_DTYPE_COUNT]
      = { DBL_MAX, FLT_MAX, 65504.0, 0x1.fep127, 9223372036854775807.0, 2147483647.0, 32767.0, 127.0,
          255.0,   1.0,     448.0,   57344.0 };
  double v = AMP_ARGS(c, masked_fill)->value;
  int dtype = c->out[0]->dtype, cls = amp_ew_class_of_dtype(dtype);
  if (amp__is_float(dtype)) {
    double r = amp_round_host(v, dtype);
    if (isinf(r) && !isinf(v))
      return amp__fail(AMP_E_VALUE,
                       "the value %.14g does not fit %s, whose largest is %.6g; use -math.huge, or a value in range", v,
                       amp_dtype_name(dtype), most[dtype]);
  } else if (dtype != AMP_BOOL && !amp__fits(v, dtype)) /* 8-bit floats take all: they saturate */
    return amp__fail(AMP_E_VALUE, "the value %.14g does not fit %s, whose largest is %.20g", v, amp_dtype_name(dtype),
                     most[dtype]);
  if (cls == AMP_EW_F64) {
    masked<double> f = { v };
    return amp_ew_run<double, double, 2>(c->out[0], c->in, f);
  }
  if (cls == AMP_EW_I64) {
    masked<int64_t> f = { dtype == AMP_BOOL ? v != 0 : (int64_t)v };
    return amp_ew_run<int64_t, int64_t, 2>(c->out[0], c->in, f);
  }
  masked<float> f = { (float)v };
  return amp_ew_run<float, float, 2>(c->out[0], c->in, f);
}
}
