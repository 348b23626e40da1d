/*
** unary.cu: elementwise kernels of one tensor.
**
** One function, unary, holds every formula, chosen by the row's number. Rows that
** training meets all the time have a kernel of their own in float32, where the
** choice is made by the compiler; the others, and float64 and integers, share
** kernels in which it is made at run time.
*/
#include "elementwise.cuh"
#include "math.cuh"

namespace {

typedef struct settings { double d[3]; int64_t i[3]; int32_t k; } settings;

#define S(n) ((T)s.d[n])

template <class T> __device__ __forceinline__ T sign_of(T a) { return a > 0 ? (T)1 : a < 0 ? (T)-1 : a; }

/* -- Formulas: floats -------------------------------------------------------------- */

template <class T> __device__ __forceinline__ T unary(int op, T a, const settings &s)
{
  switch (op) {
  case AMP_OP_neg: return -a;
  case AMP_OP_abs: return fabs(a);
  case AMP_OP_sign: return sign_of(a);
  case AMP_OP_floor: return floor(a);
  case AMP_OP_ceil: return ceil(a);
  case AMP_OP_round: return rint(a);
  case AMP_OP_trunc: return trunc(a);
  case AMP_OP_square: return a * a;
  case AMP_OP_relu: return a < 0 ? (T)0 : a;
  case AMP_OP_exp: return exp(a);
  case AMP_OP_exp2: return exp2(a);
  case AMP_OP_expm1: return expm1(a);
  case AMP_OP_log: return log(a);
  case AMP_OP_log2: return log2(a);
  case AMP_OP_log10: return log10(a);
  case AMP_OP_log1p: return log1p(a);
  case AMP_OP_sqrt: return sqrt(a);
  case AMP_OP_rsqrt: return 1 / sqrt(a);
  case AMP_OP_reciprocal: return 1 / a;
  case AMP_OP_sin: return sin(a);
  case AMP_OP_cos: return cos(a);
  case AMP_OP_tanh: return tanh(a);
  case AMP_OP_sigmoid: return amp_sigmoid(a);
  case AMP_OP_log_sigmoid: return -amp_softplus(-a);
  case AMP_OP_erf: return erf(a);
  case AMP_OP_gelu: return s.k ? amp_gelu_tanh(a) : amp_gelu(a);
  case AMP_OP_silu: return amp_silu(a);
  case AMP_OP_softplus: return a * S(0) > S(1) ? a : amp_softplus(a * S(0)) / S(0);
  case AMP_OP_tan: return tan(a);
  case AMP_OP_asin: return asin(a);
  case AMP_OP_acos: return acos(a);
  case AMP_OP_atan: return atan(a);
  case AMP_OP_sinh: return sinh(a);
  case AMP_OP_cosh: return cosh(a);
  case AMP_OP_asinh: return asinh(a);
  case AMP_OP_acosh: return acosh(a);
  case AMP_OP_atanh: return atanh(a);
  case AMP_OP_cbrt: return cbrt(a);
  case AMP_OP_erfc: return erfc(a);
  case AMP_OP_erfinv: return (T)erfinv((double)a);
  case AMP_OP_gamma: return a == -amp_inf<T>() ? (T)NAN : (T)tgamma((double)a);
  case AMP_OP_lgamma: return (T)lgamma((double)a);
  case AMP_OP_digamma: return (T)amp_digamma((double)a);
  case AMP_OP_polygamma: return (T)amp_polygamma(s.k, (double)a);
  case AMP_OP_frac: return a - trunc(a);
  case AMP_OP_nan_to_num: return a != a ? S(0) : isinf(a) ? (a > 0 ? S(1) : S(2)) : a;
  case AMP_OP_leaky_relu: return a > 0 ? a : a * S(0);
  case AMP_OP_threshold: return a <= S(0) ? S(1) : a;
  case AMP_OP_hardtanh: return a < S(0) ? S(0) : a > S(1) ? S(1) : a;
  case AMP_OP_hardshrink: return a >= -S(0) && a <= S(0) ? (T)0 : a;
  case AMP_OP_softshrink: return a > S(0) ? a - S(0) : a < -S(0) ? a + S(0) : a * 0;
  case AMP_OP_elu: return a > 0 ? a : S(0) * expm1(a);
  case AMP_OP_celu: return a > 0 ? a : S(0) * expm1(a / S(0));
  case AMP_OP_selu: return a > 0 ? (T)1.0507009873554804934193349852946 * a : (T)(1.0507009873554804934193349852946 * 1.6732632423543772848170429916717) * expm1(a);
  case AMP_OP_mish: return amp_mish(a);
  case AMP_OP_hardsigmoid: return a <= -3 ? (T)0 : a >= 3 ? (T)1 : a / 6 + (T)0.5;
  case AMP_OP_hardswish: return a <= -3 ? (T)0 : a >= 3 ? a : a * (a + 3) / 6;
  case AMP_OP_softsign: return a / (1 + fabs(a));
  case AMP_OP_clamp: { /* a NaN element stays; where min > max, max */
    T l = S(0), h = S(1);
    return a < l ? (l > h ? h : l) : a > h ? h : a;
  }
  default: return a;
  }
}

/* -- Formulas: integers ---------------------------------------------------------------- */

template <> __device__ __forceinline__ int64_t unary<int64_t>(int op, int64_t a, const settings &s)
{
  switch (op) {
  case AMP_OP_neg: return (int64_t)(0 - (uint64_t)a);
  case AMP_OP_abs: return a < 0 ? (int64_t)(0 - (uint64_t)a) : a;
  case AMP_OP_sign: return sign_of(a);
  case AMP_OP_square: return (int64_t)((uint64_t)a * (uint64_t)a);
  case AMP_OP_relu: return a < 0 ? 0 : a;
  case AMP_OP_bitwise_not: return s.k ? a == 0 : ~a;
  case AMP_OP_clamp: { int64_t l = s.i[0], h = s.i[1]; return a < l ? (l > h ? h : l) : a > h ? h : a; }
  default: return a;
  }
}

template <class T> __device__ __forceinline__ uint8_t truth(int op, T a)
{
  switch (op) {
  case AMP_OP_isnan: return a != a;
  case AMP_OP_isinf: return fabs((double)a) > DBL_MAX;
  case AMP_OP_isfinite: return fabs((double)a) <= DBL_MAX;
  default: return a == 0;
  }
}
template <> __device__ __forceinline__ uint8_t truth<int64_t>(int op, int64_t a) { return op == AMP_OP_isfinite ? 1 : op == AMP_OP_logical_not ? a == 0 : 0; }

template <int OP> struct fixed { enum { flat = 1 }; settings s; template <class T> __device__ __forceinline__ T of(const T *a) const { return unary<T>(OP, a[0], s); } };
struct by_number { enum { flat = 0 }; int op; settings s; template <class T> __device__ __forceinline__ T of(const T *a) const { return unary<T>(op, a[0], s); } };
struct test { enum { flat = 0 }; int op; template <class T> __device__ __forceinline__ uint8_t of(const T *a) const { return truth<T>(op, a[0]); } };

/* -- Calls ------------------------------------------------------------------------------- */

static int run_any(amp_call *c, int cls, const settings &s)
{
  by_number f = { c->id, s };
  if (cls == AMP_EW_F64) return amp_ew_run<double, double, 1>(c->out[0], c->in, f);
  if (cls == AMP_EW_I64) return amp_ew_run<int64_t, int64_t, 1>(c->out[0], c->in, f);
  return amp_ew_run<float, float, 1>(c->out[0], c->in, f);
}

template <int OP> static int run_one(amp_call *c, int cls, const settings &s)
{
  fixed<OP> f = { s };
  return cls == AMP_EW_F32 ? amp_ew_run<float, float, 1>(c->out[0], c->in, f) : run_any(c, cls, s);
}

static int class1(amp_call *c) { return amp_ew_class(c->out[0]->dtype, c->in, 1); }
static int float_class(amp_call *c) { int k = class1(c); return k == AMP_EW_I64 ? AMP_EW_F32 : k; }
static settings plain() { settings s; memset((void *)&s, 0, sizeof s); return s; }
static settings with(amp_call *c, int n) { settings s = plain(); for (int i = 0; i < n; i++) s.d[i] = c->a[i].f; return s; }

} // namespace

extern "C" {

/* rows whose dtype stays; integers too */
#define SAME(name) int amp__cuda_##name(amp_call *c) { return run_any(c, class1(c), plain()); }
#define SAME_FAST(name) int amp__cuda_##name(amp_call *c) { return run_one<AMP_OP_##name>(c, class1(c), plain()); }
SAME_FAST(neg) SAME_FAST(abs) SAME(sign) SAME(floor) SAME(ceil) SAME(round) SAME(trunc) SAME_FAST(square) SAME_FAST(relu)

#define FLOAT(name) int amp__cuda_##name(amp_call *c) { return run_any(c, float_class(c), plain()); }
#define FLOAT_FAST(name) int amp__cuda_##name(amp_call *c) { return run_one<AMP_OP_##name>(c, float_class(c), plain()); }
FLOAT_FAST(exp) FLOAT(exp2) FLOAT(expm1) FLOAT_FAST(log) FLOAT(log2) FLOAT(log10) FLOAT(log1p) FLOAT_FAST(sqrt) FLOAT_FAST(rsqrt) FLOAT_FAST(reciprocal)
FLOAT(sin) FLOAT(cos) FLOAT_FAST(tanh) FLOAT_FAST(sigmoid) FLOAT(log_sigmoid) FLOAT(erf) FLOAT_FAST(silu) FLOAT(tan) FLOAT(asin) FLOAT(acos) FLOAT(atan)
FLOAT(sinh) FLOAT(cosh) FLOAT(asinh) FLOAT(acosh) FLOAT(atanh) FLOAT(cbrt) FLOAT(erfc) FLOAT(erfinv) FLOAT(gamma) FLOAT(lgamma) FLOAT(digamma) FLOAT(frac)
FLOAT(selu) FLOAT(mish) FLOAT(hardsigmoid) FLOAT_FAST(hardswish) FLOAT(softsign)

#define WITH(name, n) int amp__cuda_##name(amp_call *c) { return run_any(c, float_class(c), with(c, n)); }
WITH(softplus, 2) WITH(threshold, 2) WITH(hardtanh, 2) WITH(hardshrink, 1) WITH(softshrink, 1) WITH(elu, 1) WITH(celu, 1)
int amp__cuda_leaky_relu(amp_call *c) { return run_one<AMP_OP_leaky_relu>(c, float_class(c), with(c, 1)); }

int amp__cuda_gelu(amp_call *c)
{
  settings s = plain();
  s.k = (int32_t)c->a[0].i;
  return run_one<AMP_OP_gelu>(c, float_class(c), s);
}

int amp__cuda_polygamma(amp_call *c)
{
  settings s = plain();
  s.k = (int32_t)c->a[0].i;
  return run_any(c, float_class(c), s);
}

int amp__cuda_nan_to_num(amp_call *c)
{
  static const double most[4] = { DBL_MAX, FLT_MAX, 65504.0, 0x1.fep127 };
  int dtype = c->out[0]->dtype;
  if (!amp__is_float(dtype)) return amp__cuda_copy_to(c->out[0], c->in[0]);
  settings s = plain();
  for (int i = 0; i < 3; i++) s.d[i] = c->a[i].i != AMP_NONE ? c->a[i].f : i == 0 ? 0 : i == 1 ? most[dtype] : -most[dtype];
  return run_any(c, float_class(c), s);
}

int amp__cuda_bitwise_not(amp_call *c)
{
  settings s = plain();
  s.k = c->in[0]->dtype == AMP_BOOL;
  return run_any(c, AMP_EW_I64, s);
}

static int64_t bound(double v) { return v >= 9223372036854775807.0 ? INT64_MAX : v <= -9223372036854775808.0 ? INT64_MIN : (int64_t)v; }

int amp__cuda_clamp(amp_call *c)
{
  settings s = plain();
  int cls = class1(c);
  s.d[0] = c->a[0].i == AMP_NONE ? -INFINITY : c->a[0].f;
  s.d[1] = c->a[1].i == AMP_NONE ? INFINITY : c->a[1].f;
  if (s.d[0] != s.d[0] || s.d[1] != s.d[1]) {
    if (cls == AMP_EW_I64) return amp__fail(AMP_E_VALUE, "a bound is NaN, which %s can't hold", amp_dtype_name(c->out[0]->dtype));
    return amp__cuda_fill_value(c->out[0], NAN);
  }
  if (cls == AMP_EW_I64)
    for (int i = 0; i < 2; i++) {
      double v = s.d[i];
      if (isfinite(v) && (v < 0) == (i == 1) && !amp__fits(v, c->out[0]->dtype))
        return amp__fail(AMP_E_VALUE, "%s %.17g does not fit %s", i ? "max" : "min", v, amp_dtype_name(c->out[0]->dtype));
      s.i[i] = bound(v);
    }
  return run_any(c, cls, s);
}

static int run_truth(amp_call *c)
{
  test f = { c->id };
  int k = amp_ew_class_of_dtype(c->in[0]->dtype);
  if (k == AMP_EW_F64) return amp_ew_run<double, uint8_t, 1>(c->out[0], c->in, f);
  if (k == AMP_EW_I64) return amp_ew_run<int64_t, uint8_t, 1>(c->out[0], c->in, f);
  return amp_ew_run<float, uint8_t, 1>(c->out[0], c->in, f);
}
int amp__cuda_logical_not(amp_call *c) { return run_truth(c); }
int amp__cuda_isnan(amp_call *c) { return run_truth(c); }
int amp__cuda_isinf(amp_call *c) { return run_truth(c); }
int amp__cuda_isfinite(amp_call *c) { return run_truth(c); }

}
