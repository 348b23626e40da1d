/*
** binary.cu: elementwise kernels of two and three tensors: arithmetic,
** comparison, logic, bits, selection and the derivatives of activations.
**
** As in unary.cu one function holds the formulas; add, sub, mul, div and the
** derivatives that every backward meets have float32 kernels of their own. What an
** integer op is not defined for (a zero divisor, a negative exponent) gives 0 and
** is noted in the device's trouble cell, which the next wait raises.
*/
#include "elementwise.cuh"
#include "math.cuh"

namespace {

typedef struct settings { double alpha; int64_t ialpha; int32_t k; amp_trouble *trouble; } settings;

#define WRAP(op, a, b) (int64_t)((uint64_t)(a) op (uint64_t)(b))

template <class T> __device__ __forceinline__ T larger(T a, T b) { return a != a || b != b ? a + b : a > b ? a : b; }
template <class T> __device__ __forceinline__ T smaller(T a, T b) { return a != a || b != b ? a + b : a < b ? a : b; }

/* -- Formulas: floats ---------------------------------------------------------------- */

template <class T> __device__ __forceinline__ T binary(int op, T a, T b, const settings &s)
{
  switch (op) {
  case AMP_OP_add: return s.k ? a + (T)s.alpha * b : a + b;
  case AMP_OP_sub: return s.k ? a - (T)s.alpha * b : a - b;
  case AMP_OP_mul: return a * b;
  case AMP_OP_div: return a / b;
  case AMP_OP_maximum: return larger(a, b);
  case AMP_OP_minimum: return smaller(a, b);
  case AMP_OP_mod: return amp_mod(a, b);
  case AMP_OP_fmod: return fmod(a, b);
  case AMP_OP_floor_divide: return (T)amp_floordiv((double)a, (double)b);
  case AMP_OP_pow: return b == 2 ? a * a : b == 1 ? a : b == 3 ? a * a * a : pow(a, b);
  case AMP_OP_hypot: return hypot(a, b);
  case AMP_OP_atan2: return atan2(a, b);
  case AMP_OP_logaddexp: return amp_logaddexp(a, b);
  case AMP_OP_xlogy: return b != b ? b : a == 0 ? (T)0 : a * log(b);
  case AMP_OP_copysign: return copysign(a, b);
  case AMP_OP_relu_backward: return b <= 0 ? (T)0 : a;
  case AMP_OP_sigmoid_backward: return a * b * (1 - b);
  case AMP_OP_tanh_backward: return a * (1 - b * b);
  case AMP_OP_silu_backward: return a * amp_silu_grad(b);
  case AMP_OP_gelu_backward: return a * (s.k ? amp_gelu_tanh_grad(b) : amp_gelu_grad(b));
  default: return a;
  }
}

/* -- Formulas: integers ------------------------------------------------------------------ */

template <> __device__ __forceinline__ int64_t binary<int64_t>(int op, int64_t a, int64_t b, const settings &s)
{
  switch (op) {
  case AMP_OP_add: return s.k ? WRAP(+, a, WRAP(*, s.ialpha, b)) : WRAP(+, a, b);
  case AMP_OP_sub: return s.k ? WRAP(-, a, WRAP(*, s.ialpha, b)) : WRAP(-, a, b);
  case AMP_OP_mul: return WRAP(*, a, b);
  case AMP_OP_maximum: return a > b ? a : b;
  case AMP_OP_minimum: return a < b ? a : b;
  case AMP_OP_mod: if (b == 0) amp_note(s.trouble, AMP_TROUBLE_ZERO, op, a, 0, 0); return amp_mod(a, b);
  case AMP_OP_fmod: if (b == 0) amp_note(s.trouble, AMP_TROUBLE_ZERO, op, a, 0, 0); return b == 0 || b == -1 ? 0 : a % b;
  case AMP_OP_floor_divide: if (b == 0) amp_note(s.trouble, AMP_TROUBLE_ZERO, op, a, 0, 0); return amp_floordiv(a, b);
  case AMP_OP_pow: if (b < 0) amp_note(s.trouble, AMP_TROUBLE_NEGATIVE_POWER, op, b, 0, 0); return amp_power(a, b);
  case AMP_OP_bitwise_and: return a & b;
  case AMP_OP_bitwise_or: return a | b;
  case AMP_OP_bitwise_xor: return a ^ b;
  case AMP_OP_bitwise_left_shift: return b < 0 || b > 63 ? 0 : (int64_t)((uint64_t)a << b);
  case AMP_OP_bitwise_right_shift: return a >> (b < 0 || b > 63 ? 63 : b);
  default: return a;
  }
}

template <class T> __device__ __forceinline__ uint8_t compare(int op, T a, T b)
{
  switch (op) {
  case AMP_OP_eq: return a == b;
  case AMP_OP_ne: return a != b;
  case AMP_OP_lt: return a < b;
  case AMP_OP_le: return a <= b;
  case AMP_OP_gt: return a > b;
  case AMP_OP_ge: return a >= b;
  case AMP_OP_logical_and: return (a != 0) & (b != 0);
  case AMP_OP_logical_or: return (a != 0) | (b != 0);
  default: return (a != 0) ^ (b != 0);
  }
}

template <int OP> struct fixed { enum { flat = 1 }; settings s; template <class T> __device__ __forceinline__ T of(const T *a) const { return binary<T>(OP, a[0], a[1], s); } };
struct by_number { enum { flat = 0 }; int op; settings s; template <class T> __device__ __forceinline__ T of(const T *a) const { return binary<T>(op, a[0], a[1], s); } };
struct test { enum { flat = 0 }; int op; template <class T> __device__ __forceinline__ uint8_t of(const T *a) const { return compare<T>(op, a[0], a[1]); } };
struct choose { enum { flat = 1 }; template <class T> __device__ __forceinline__ T of(const T *a) const { return a[0] != 0 ? a[1] : a[2]; } };
template <class T> struct masked { enum { flat = 1 }; T v; __device__ __forceinline__ T of(const T *a) const { return a[1] != 0 ? v : a[0]; } };

/* -- Calls --------------------------------------------------------------------------------- */

static settings plain()
{
  settings s;
  memset((void *)&s, 0, sizeof s);
  s.trouble = amp_trouble_cell();
  return s;
}

static int run_any(amp_call *c, int cls, const settings &s)
{
  by_number f = { c->id, s };
  if (cls == AMP_EW_F64) return amp_ew_run<double, double, 2>(c->out[0], c->in, f);
  if (cls == AMP_EW_I64) return amp_ew_run<int64_t, int64_t, 2>(c->out[0], c->in, f);
  return amp_ew_run<float, float, 2>(c->out[0], c->in, f);
}
template <int OP> static int run_one(amp_call *c, int cls, const settings &s)
{
  fixed<OP> f = { s };
  return cls == AMP_EW_F32 ? amp_ew_run<float, float, 2>(c->out[0], c->in, f) : run_any(c, cls, s);
}
static int class2(amp_call *c) { return amp_ew_class(c->out[0]->dtype, c->in, 2); }
static int float_class2(amp_call *c) { int k = class2(c); return k == AMP_EW_I64 ? AMP_EW_F32 : k; }

/* alpha of add and sub */
static int scaled(amp_call *c, int cls, settings *s)
{
  double alpha = c->a[0].f;
  if (alpha == 1.0) return 0;
  s->k = 1;
  s->alpha = alpha;
  s->ialpha = (int64_t)alpha;
  if (cls == AMP_EW_I64 && (double)s->ialpha != alpha) return amp__fail(AMP_E_VALUE, "alpha is %.14g, integer tensors need an integral one", alpha);
  return 0;
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

int amp__cuda_add(amp_call *c)
{
  settings s = plain();
  int cls = class2(c), rc = scaled(c, cls, &s);
  return rc < 0 ? rc : run_one<AMP_OP_add>(c, cls, s);
}
int amp__cuda_sub(amp_call *c)
{
  settings s = plain();
  int cls = class2(c), rc = scaled(c, cls, &s);
  return rc < 0 ? rc : run_one<AMP_OP_sub>(c, cls, s);
}
int amp__cuda_mul(amp_call *c) { return run_one<AMP_OP_mul>(c, class2(c), plain()); }
int amp__cuda_div(amp_call *c) { return run_one<AMP_OP_div>(c, float_class2(c), plain()); }

#define PLAIN(name) int amp__cuda_##name(amp_call *c) { return run_any(c, class2(c), plain()); }
#define FLOAT(name) int amp__cuda_##name(amp_call *c) { return run_any(c, float_class2(c), plain()); }
#define FAST(name) int amp__cuda_##name(amp_call *c) { return run_one<AMP_OP_##name>(c, class2(c), plain()); }
#define BITS(name) int amp__cuda_##name(amp_call *c) { return run_any(c, AMP_EW_I64, plain()); }
PLAIN(maximum) PLAIN(minimum) PLAIN(mod) PLAIN(fmod) PLAIN(floor_divide) PLAIN(pow)
FLOAT(hypot) FLOAT(atan2) FLOAT(logaddexp) FLOAT(xlogy) FLOAT(copysign)
FAST(relu_backward) FAST(sigmoid_backward) FAST(tanh_backward) FAST(silu_backward)
BITS(bitwise_and) BITS(bitwise_or) BITS(bitwise_xor) BITS(bitwise_left_shift) BITS(bitwise_right_shift)

int amp__cuda_gelu_backward(amp_call *c)
{
  settings s = plain();
  s.k = (int32_t)c->a[0].i;
  return run_one<AMP_OP_gelu_backward>(c, class2(c), s);
}

#define COMPARE(name) int amp__cuda_##name(amp_call *c) { return run_compare(c); }
COMPARE(eq) COMPARE(ne) COMPARE(lt) COMPARE(le) COMPARE(gt) COMPARE(ge) COMPARE(logical_and) COMPARE(logical_or) COMPARE(logical_xor)

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
  static const double most[AMP_DTYPE_COUNT] = { DBL_MAX, FLT_MAX, 65504.0, 0x1.fep127, 9223372036854775807.0, 2147483647.0, 32767.0, 127.0, 255.0, 1.0 };
  double v = c->a[0].f;
  int dtype = c->out[0]->dtype, cls = amp_ew_class_of_dtype(dtype);
  if (amp__is_float(dtype)) {
    double r = amp_round_host(v, dtype);
    if (isinf(r) && !isinf(v))
      return amp__fail(AMP_E_VALUE, "the value %.14g does not fit %s, whose largest is %.6g; use -math.huge, or a value in range", v, amp_dtype_name(dtype), most[dtype]);
  } else if (dtype != AMP_BOOL && !amp__fits(v, dtype))
    return amp__fail(AMP_E_VALUE, "the value %.14g does not fit %s, whose largest is %.20g", v, amp_dtype_name(dtype), most[dtype]);
  if (cls == AMP_EW_F64) { masked<double> f = { v }; return amp_ew_run<double, double, 2>(c->out[0], c->in, f); }
  if (cls == AMP_EW_I64) { masked<int64_t> f = { dtype == AMP_BOOL ? v != 0 : (int64_t)v }; return amp_ew_run<int64_t, int64_t, 2>(c->out[0], c->in, f); }
  masked<float> f = { (float)v };
  return amp_ew_run<float, float, 2>(c->out[0], c->in, f);
}

}
