/*
** ops/elementwise/binary.c: elementwise kernels of two and three tensors: arithmetic,
** comparison, logic, selection and the derivatives of activations.
**
** A loop exists per compute class (float32, float64, int64) and comes in three
** shapes: both dense, or either one value. Integers wrap in their own dtype
** because results are stored by truncation. What an integer op is not defined
** for (a zero divisor, a negative exponent) is looked for before anything is
** written.
*/
#include "ops/elementwise/binary.h"
#include "ops/elementwise/special.h"

/* -- Loops ----------------------------------------------------------------------- */

#define WRAP(op, a, b) (int64_t)((uint64_t)(a)op(uint64_t)(b))
#define ALPHA(T) (*(const T *)arg)

/* Remainders of float32: the core where it is exact, fmodf for the rest */
BINF_DENSE(fmod_core, amp__fmodf_core(a, b))
static AMP_CLONES bool far(int64_t n, const float *base, const float *divisor)
{
  int any = 0;
  for (int64_t i = 0; i < n; i++)
    any |= !(fabsf(base[i]) <= fabsf(divisor[i]) * 268435456.f && fabsf(base[i]) <= FLT_MAX
             && fabsf(divisor[i]) <= FLT_MAX && divisor[i] != 0.f);
  return any;
}
void amp__fmod_loop(int64_t n, void *const *operand)
{
  float keep[AMP_CHUNK];
  for (int64_t first = 0; first < n; first += AMP_CHUNK) { /* in place the operands are needed again */
    int64_t count = n - first < AMP_CHUNK ? n - first : AMP_CHUNK;
    const float *a = (const float *)operand[1] + first, *b = (const float *)operand[2] + first;
    void *part[3] = { keep, (void *)a, (void *)b };
    fmod_core(count, part, 0, NULL);
    if (far(count, a, b))
      for (int64_t i = 0; i < count; i++) {
        float x = a[i], y = b[i];
        if (!(fabsf(x) <= fabsf(y) * 268435456.f && fabsf(x) <= FLT_MAX && fabsf(y) <= FLT_MAX && y != 0.f))
          keep[i] = fmodf(x, y);
      }
    memcpy((float *)operand[0] + first, keep, sizeof(float) * (size_t)count);
  }
}
AMP_INLINE double modd_(double left, double right)
{
  double rest = fmod(left, right);
  return rest != 0.0 ? ((rest < 0.0) != (right < 0.0) ? rest + right : rest) : copysign(0.0, right);
}
AMP_INLINE int64_t modi_(int64_t left, int64_t right)
{
  if (right == -1) return 0; /* INT64_MIN % -1 traps */
  int64_t rest = left % right;
  return rest != 0 && ((rest < 0) != (right < 0)) ? rest + right : rest;
}
AMP_INLINE int64_t powi_(int64_t left, int64_t right)
{
  uint64_t result = 1, power = (uint64_t)left;
  for (; right > 0; right >>= 1, power *= power)
    if (right & 1) result *= power;
  return (int64_t)result;
}
/* NaN from either; the other operand's NaN shows by a + b */
#define MAXF(a, b) ((a) != (a) || (b) != (b) ? (a) + (b) : (a) > (b) ? (a) : (b))
#define MINF(a, b) ((a) != (a) || (b) != (b) ? (a) + (b) : (a) < (b) ? (a) : (b))

BIN3(add, a + b, a + b, WRAP(+, a, b))
BIN3(sub, a - b, a - b, WRAP(-, a, b))
BIN3(add_alpha, a + ALPHA(float) * b, a + ALPHA(double) * b, WRAP(+, a, WRAP(*, ALPHA(int64_t), b)))
BIN3(mul, a *b, a *b, WRAP(*, a, b))
BIN3(max, MAXF(a, b), MAXF(a, b), a > b ? a : b)
BIN3(min, MINF(a, b), MINF(a, b), a < b ? a : b)
BINF(div_f, a / b)
BIND(div_d, a / b)
static const amp_loop_fn div_loops[3] = { div_f, div_d, NULL };
CMP3(eq, a == b)
CMP3(ne, a != b)
CMP3(lt, a < b)
CMP3(le, a <= b)
CMP3(gt, a > b)
CMP3(ge, a >= b)
BIN_(AMP_CLONES_WIDE, and_u, uint8_t, uint8_t, (a != 0) & (b != 0))
BIN_(AMP_CLONES_WIDE, or_u, uint8_t, uint8_t, (a != 0) | (b != 0))
BIN_(AMP_CLONES_WIDE, xor_u, uint8_t, uint8_t, (a != 0) ^ (b != 0))

/* the sign of the divisor, as Lua's % */
static AMP_CLONES void mod_sign(int64_t n, float *rest, const float *divisor)
{
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) {
    const float v = rest[i], b = divisor[i];
    rest[i] = v != 0.f ? ((v < 0.f) != (b < 0.f) ? v + b : v) : copysignf(0.f, b);
  }
}
static void mod_f(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  float keep[AMP_CHUNK]; /* the divisor may be the result's memory */
  for (int64_t first = 0; first < n; first += AMP_CHUNK) {
    int64_t count = n - first < AMP_CHUNK ? n - first : AMP_CHUNK;
    void *part[3] = { keep, (float *)operand[1] + first, (float *)operand[2] + first };
    amp__fmod_loop(count, part);
    mod_sign(count, keep, part[2]);
    memcpy((float *)operand[0] + first, keep, sizeof(float) * (size_t)count);
  }
}
BIN_PLAIN(mod_d, double, modd_(a, b))
BIN_PLAIN(mod_i, int64_t, modi_(a, b))
BIN_PLAIN(pow_d, double, pow(a, b))
BIN_PLAIN(pow_i, int64_t, powi_(a, b))

BINF_DENSE(pow_core, amp__powf_core(a, b))
/* Is some base not in (0, inf), or (negative allowed) some exponent not finite? */
static AMP_CLONES bool outside(int64_t n, const float *base, int negative)
{
  int any = 0;
  for (int64_t i = 0; i < n; i++) any |= (fabsf(base[i]) <= FLT_MAX ? 0 : 1) | (negative || base[i] > 0.f ? 0 : 1);
  return any;
}
static void pow_f(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  const bool one = scalar & 4; /* exponent: repeated once, looked at once */
  float keep[AMP_CHUNK], many[AMP_CHUNK];
  const float *base = operand[1], *power = operand[2];
  const bool odd = one && outside(1, power, 1);
  if (one)
    for (int64_t i = 0; i < n && i < AMP_CHUNK; i++) many[i] = *power;
  /* in place, the base is needed again for what the core is not defined for */
  for (int64_t first = 0; first < n; first += AMP_CHUNK) {
    int64_t count = n - first < AMP_CHUNK ? n - first : AMP_CHUNK;
    float *out = (float *)operand[0] + first;
    const float *a = base + first, *b = one ? many : power + first;
    void *part[3] = { keep, (void *)a, (void *)b };
    pow_core(count, part, 0, arg);
    if (outside(count, a, 0) || (one ? odd : outside(count, b, 1)))
      for (int64_t i = 0; i < count; i++) {
        float x = a[i], y = b[i];
        if (!(x > 0.f && x <= FLT_MAX && fabsf(y) <= FLT_MAX)) keep[i] = powf(x, y);
      }
    memcpy(out, keep, sizeof(float) * (size_t)count);
  }
}
static const amp_loop_fn mod_loops[3] = { mod_f, mod_d, mod_i };
const amp_loop_fn amp__pow_loops[3] = { pow_f, pow_d, pow_i };

/* exponents that need no pow: by the exponent's class of value */
BIN3(pow1, a, a, a)
BIN3(pow2, a *a, a *a, WRAP(*, a, a))
BIN3(pow3, a *a *a, a *a *a, WRAP(*, a, WRAP(*, a, a)))
BINF(powm1_f, 1.f / a)
BIND(powm1_d, 1.0 / a)
BINF(powh_f, (a == -INFINITY ? INFINITY : sqrtf(a) + 0.f))
BIND(powh_d, (a == -INFINITY ? INFINITY : sqrt(a) + 0.0))

const amp_loop_fn *amp__pow_of(double exponent, int cls)
{
  static const amp_loop_fn inverse[3] = { powm1_f, powm1_d, NULL }, root[3] = { powh_f, powh_d, NULL };
  const amp_loop_fn *loops = NULL;
  if (exponent == 1.0) loops = pow1_loops;
  else if (exponent == 2.0) loops = pow2_loops;
  else if (exponent == 3.0) loops = pow3_loops;
  else if (exponent == -1.0) loops = inverse;
  else if (exponent == 0.5) loops = root;
  return loops && loops[cls] ? loops : NULL;
}

/* -- Calling ---------------------------------------------------------------------- */

static int add_sub(amp_call *call, const amp_loop_fn *plain, double sign)
{
  const args_add *args = AMP_ARGS(call, add);
  int cls = class_of2(call);
  double alpha = args->alpha;
  if (amp_likely(alpha == 1.0)) return run2(call, plain, cls, 1, NULL);
  alpha *= sign;
  float f = (float)alpha;
  if (cls == AMP_C_I64) {
    int64_t i = (int64_t)alpha;
    return run2(call, add_alpha_loops, cls, 1, &i);
  }
  return run2(call, add_alpha_loops, cls, 1, cls == AMP_C_F64 ? (void *)&alpha : &f);
}

int amp__cpu_add(amp_call *call) { return add_sub(call, add_loops, 1.0); }
int amp__cpu_sub(amp_call *call) { return add_sub(call, sub_loops, -1.0); }
int amp__cpu_mul(amp_call *call) { return run2(call, mul_loops, class_of2(call), 1, NULL); }
int amp__cpu_maximum(amp_call *call) { return run2(call, max_loops, class_of2(call), 1, NULL); }
int amp__cpu_minimum(amp_call *call) { return run2(call, min_loops, class_of2(call), 1, NULL); }

int amp__cpu_div(amp_call *call)
{
  int cls = class_of2(call);
  return run2(call, div_loops, cls == AMP_C_I64 ? AMP_C_F32 : cls, 2, NULL);
}

/* Is some element zero, or (negative) below zero? */
static void find_zero(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  const int64_t *data = operand[0];
  int found = 0;
  for (int64_t i = 0; i < n; i++) found |= data[i] == 0;
  if (found) __atomic_store_n((int *)arg, 1, __ATOMIC_RELAXED);
}
static void find_negative(int64_t n, void *const *operand, unsigned scalar, const void *arg)
{
  const int64_t *data = operand[0];
  int found = 0;
  for (int64_t i = 0; i < n; i++) found |= data[i] < 0;
  if (found) __atomic_store_n((int *)arg, 1, __ATOMIC_RELAXED);
}
static bool some(amp_tensor *tensor, amp_loop_fn find)
{
  int found = 0;
  uint8_t cls = AMP_C_I64;
  amp_loop loop = { find, &found, 0, 0, 1 };
  amp__elementwise(&loop, 1, &tensor, &cls);
  return found != 0;
}

int amp__cpu_mod(amp_call *call)
{
  int cls = class_of2(call);
  if (cls == AMP_C_I64 && call->out[0]->numel > 0 && some(call->in[1], find_zero))
    return amp__fail_arg(AMP_E_VALUE, 2, "an integer modulo zero; cast to a float dtype for NaN");
  return run2_dense(call, mod_loops, cls, 8);
}

int amp__cpu_pow(amp_call *call)
{
  int cls = class_of2(call);
  const amp_tensor *exponent = call->in[1];
  if (cls == AMP_C_I64 && call->out[0]->numel > 0 && some(call->in[1], find_negative))
    return amp__fail_arg(AMP_E_VALUE, 2, "an integer to a negative power; cast to a float dtype");
  if (exponent->numel == 1) {
    const double y = amp__element(exponent, 0);
    const amp_loop_fn *loops = amp__pow_of(y, cls);
    if (loops) return run2(call, loops, cls, y == -1.0 || y == 0.5 ? 2 : 1, NULL);
  }
  return run2_as(call, amp__pow_loops, cls, 12, 4, NULL);
}

/* -- Comparison and logic ------------------------------------------------------------ */

static int compare(amp_call *call, const amp_loop_fn *loops)
{
  amp_tensor *tensor[3] = { call->out[0], call->in[0], call->in[1] };
  int cls = amp__class_of(-1, call->in, 2);
  const uint8_t classes[3] = { AMP_C_U8, (uint8_t)cls, (uint8_t)cls };
  amp_loop loop = { loops[cls], NULL, 1, 6, 1 };
  /* a number beside a 16-bit tensor counts as rounded to it: half(0.1) equals 0.1 */
  amp_tensor rounded;
  amp_storage store;
  for (int i = 0; i < 2; i++) {
    amp_tensor *input = call->in[i], *output = call->in[1 - i];
    if (!(input->flags & AMP_T_NUMBER) || !amp__is_half(output->dtype)) continue;
    rounded = *input;
    rounded.storage = &store;
    rounded.dtype = output->dtype;
    rounded.offset = 0;
    store.data = store.small;
    float value = (float)*AMP_DATA(double, input);
    amp__store(output->dtype, store.data, 1, AMP_C_F32, &value, 1);
    tensor[1 + i] = &rounded;
  }
  amp__elementwise(&loop, 3, tensor, classes);
  return 0;
}

int amp__cpu_eq(amp_call *call) { return compare(call, eq_loops); }
int amp__cpu_ne(amp_call *call) { return compare(call, ne_loops); }
int amp__cpu_lt(amp_call *call) { return compare(call, lt_loops); }
int amp__cpu_le(amp_call *call) { return compare(call, le_loops); }
int amp__cpu_gt(amp_call *call) { return compare(call, gt_loops); }
int amp__cpu_ge(amp_call *call) { return compare(call, ge_loops); }

static int logic(amp_call *call, amp_loop_fn float_loop)
{
  amp_tensor *tensors[3] = { call->out[0], call->in[0], call->in[1] };
  static const uint8_t classes[3] = { AMP_C_U8, AMP_C_U8, AMP_C_U8 };
  amp_loop loop = { float_loop, NULL, 1, 6, 1 };
  amp__elementwise(&loop, 3, tensors, classes);
  return 0;
}
int amp__cpu_logical_and(amp_call *call) { return logic(call, and_u); }
int amp__cpu_logical_or(amp_call *call) { return logic(call, or_u); }
int amp__cpu_logical_xor(amp_call *call) { return logic(call, xor_u); }

/* -- Selection ----------------------------------------------------------------------- */

#define real float
#define NAME(name) name##_f
#include "ops/elementwise/where_body.h"
#define real double
#define NAME(name) name##_d
#include "ops/elementwise/where_body.h"
#define real int64_t
#define NAME(name) name##_i
#include "ops/elementwise/where_body.h"
static const amp_loop_fn where_loops[3] = { where_f, where_d, where_i };

int amp__cpu_where(amp_call *call)
{
  amp_tensor *tensors[4] = { call->out[0], call->in[0], call->in[1], call->in[2] };
  int cls = amp__class_of(call->out[0]->dtype, call->in + 1, 2);
  AMP_ASSERT(call->in[0]->dtype == AMP_BOOL);
  const uint8_t classes[4] = { (uint8_t)cls, AMP_C_U8, (uint8_t)cls, (uint8_t)cls };
  amp_loop loop = { where_loops[cls], NULL, 1, 12, 1 };
  amp__elementwise(&loop, 4, tensors, classes);
  return 0;
}

static const amp_loop_fn masked_loops[3] = { masked_f, masked_d, masked_i };

int amp__cpu_masked_fill(amp_call *call)
{
  const args_masked_fill *args = AMP_ARGS(call, masked_fill);
  double value = args->value;
  int dtype = call->out[0]->dtype, cls = amp__dtype_class[dtype];
  float f = (float)value;
  int64_t i = 0;
  AMP_ASSERT(amp__is_float(dtype) || dtype == AMP_BOOL || amp__fits(value, dtype));
  if (!amp__is_float(dtype)) i = dtype == AMP_BOOL ? value != 0 : (int64_t)value; /* which fits, says the shape rule */
  amp_tensor *tensor[3] = { call->out[0], call->in[0], call->in[1] };
  const uint8_t classes[3] = { (uint8_t)cls, (uint8_t)cls, AMP_C_U8 };
  amp_loop loop = { masked_loops[cls],
                    cls == AMP_C_F32   ? (void *)&f
                    : cls == AMP_C_F64 ? (void *)&value
                                       : &i,
                    1, 0, 1 };
  amp__elementwise(&loop, 3, tensor, classes);
  return 0;
}

/* -- Derivatives of activations: a the gradient, b the input or result ------------------ */

BINF(relu_bwd_f, b <= 0.f ? 0.f : a)
BIND(relu_bwd_d, b <= 0.0 ? 0.0 : a)
BINF(sigmoid_bwd_f, a *b *(1.f - b))
BIND(sigmoid_bwd_d, a *b *(1.0 - b))
BINF(tanh_bwd_f, a *(1.f - b * b))
BIND(tanh_bwd_d, a *(1.0 - b * b))
BINF_DENSE(silu_bwd_f, a *amp__silu_gradf(b))
BINF_DENSE(gelu_bwd_f, a *amp__gelu_gradf(b))
BINF_DENSE(gelu_tanh_bwd_f, a *amp__gelu_tanh_gradf(b))

static double silu_grad(double x)
{
  if (isinf(x)) return x > 0 ? 1.0 : 0.0;
  double q = x < 0 ? exp(x) / (1.0 + exp(x)) : 1.0 / (1.0 + exp(-x));
  return q * (1.0 + x * (1.0 - q));
}
static double gelu_grad(double x)
{
  if (isinf(x)) return x > 0 ? 1.0 : 0.0;
  return 0.5 * erfc(-x * 0.70710678118654752440) + x * 0.39894228040143267794 * exp(-0.5 * x * x);
}
static double gelu_tanh_grad(double x)
{
  if (fabs(x) > 50) return x > 0 ? 1.0 : 0.0;
  double t = tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.79788456080286535588 * (1.0 + 0.134145 * x * x);
}
BIN_PLAIN(silu_bwd_d, double, a *silu_grad(b))
BIN_PLAIN(gelu_bwd_d, double, a *gelu_grad(b))
BIN_PLAIN(gelu_tanh_bwd_d, double, a *gelu_tanh_grad(b))

#define BWD(name, cost)                                                       \
  int amp__cpu_##name##_backward(amp_call *c)                                 \
  {                                                                           \
    static const amp_loop_fn loops[3] = { name##_bwd_f, name##_bwd_d, NULL }; \
    return run2(c, loops, class_of2(c), cost, NULL);                          \
  }
BWD(relu, 1)
BWD(sigmoid, 1)
BWD(tanh, 1)

int amp__cpu_silu_backward(amp_call *call)
{
  static const amp_loop_fn loops[3] = { silu_bwd_f, silu_bwd_d, NULL };
  return run2_dense(call, loops, class_of2(call), 8);
}

int amp__cpu_gelu_backward(amp_call *call)
{
  const args_gelu_backward *args = AMP_ARGS(call, gelu_backward);
  static const amp_loop_fn exact[3] = { gelu_bwd_f, gelu_bwd_d, NULL },
                           tanh_[3] = { gelu_tanh_bwd_f, gelu_tanh_bwd_d, NULL };
  return run2_dense(call, args->approximate == APPROXIMATE_TANH ? tanh_ : exact, class_of2(call), 12);
}

/* -- prelu and glu ---------------------------------------------------------------------- */

BINF(rectify_f, (a > 0.f ? a : b * a))
BIND(rectify_d, (a > 0 ? a : b * a))
int amp__cpu_rectify(amp_call *call)
{
  static const amp_loop_fn loops[3] = { rectify_f, rectify_d, NULL };
  return run2(call, loops, class_of2(call), 1, NULL);
}

BINF_DENSE(gate_f, a *amp__sigmoidf(b))
static double sigmoid(double x) { return x < 0 ? exp(x) / (1.0 + exp(x)) : 1.0 / (1.0 + exp(-x)); }
BIN_PLAIN(gate_d, double, a *sigmoid(b))
int amp__cpu_gate(amp_call *call)
{
  static const amp_loop_fn loops[3] = { gate_f, gate_d, NULL };
  return run2_dense(call, loops, class_of2(call), 8);
}
