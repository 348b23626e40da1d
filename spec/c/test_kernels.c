/*
** test_kernels.c: CPU kernels that are not neural-net ones. Conversions for
** every half value, functions against double libm in ulps, the elementwise
** engine over dtypes and layouts against plain loops, reductions, indexing and
** random numbers at their edges.
*/
#include <float.h>
#include <stdlib.h>
#include "check.h"
#include "core.h"
#include "cpu/convert.h"
#include "cpu/vector_math.h"
#include "cpu/philox.h"

static amp_state *S;

/* -- Conversions ------------------------------------------------------------------ */

static uint32_t bits(float f)
{
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
static float of_bits(uint32_t u)
{
  float f;
  memcpy(&f, &u, 4);
  return f;
}

enum { HALVES = 65536, HALF_INF = 0x7c00, BF16_INF = 0x7f80 };
static uint16_t every[HALVES], rounded[HALVES], portable[HALVES]; /* every number of 16 bits; what floats become */
static float widened[HALVES], other[HALVES], between[HALVES];

static double half_value(int number)
{
  int exponent = number >> 10 & 31, fraction = number & 1023;
  double magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                     : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                    : ldexp(fraction, -24);
  return number >> 15 ? -magnitude : magnitude;
}

static void halves_and_back(void)
{
  amp__halves_to_floats(widened, every, HALVES);
  amp__portable_halves_to_floats(other, every, HALVES);
  int wrong = 0;
  for (int i = 0; i < HALVES; i++) {
    double want = half_value(i);
    bool ok = want != want
                  ? widened[i] != widened[i] && other[i] != other[i]
                  : (double)widened[i] == want && (double)other[i] == want && !signbit(widened[i]) == !signbit(want);
    wrong += !ok;
  }
  CHECK(wrong == 0);
  amp__floats_to_halves(rounded, widened, HALVES);
  amp__portable_floats_to_halves(portable, widened, HALVES);
  wrong = 0;
  for (int i = 0; i < HALVES; i++)
    wrong += widened[i] != widened[i] ? (rounded[i] & 0x7fff) <= HALF_INF || (portable[i] & 0x7fff) <= HALF_INF
                                      : rounded[i] != i || portable[i] != i;
  CHECK(wrong == 0);
}

/* Of two neighbours, i and the next, the one that a number goes to: the midpoint to the even one (step 0), the number
** below it to the lower (-1), that above it to the upper one (1) */
static int nearest(int i, int step) { return step < 0 ? i : step > 0 ? i + 1 : i + (i & 1); }

/* `widened` holds the halves, as halves_and_back leaves it */
static void between_halves(void)
{
  for (int step = -1; step <= 1; step++) {
    for (int i = 0; i < HALVES; i++) between[i] = 0;
    for (int i = 0; i < HALF_INF; i++) {
      double next = i == HALF_INF - 1 ? 65536.0 : (double)widened[i + 1], mid = ((double)widened[i] + next) / 2;
      between[i] = of_bits(bits((float)mid) + (uint32_t)step);
      between[i + 0x8000] = -between[i];
    }
    amp__floats_to_halves(rounded, between, HALVES);
    amp__portable_floats_to_halves(portable, between, HALVES);
    int wrong = 0;
    for (int i = 0; i < HALF_INF; i++) {
      int want = nearest(i, step);
      wrong += rounded[i] != want || portable[i] != want || rounded[i + 0x8000] != (want | 0x8000);
    }
    CHECK(wrong == 0);
  }
}

static void bfloat16s(void)
{
  amp__bf16s_to_floats(widened, every, HALVES);
  amp__floats_to_bf16s(rounded, widened, HALVES);
  int wrong = 0;
  for (int i = 0; i < HALVES; i++)
    wrong += bits(widened[i]) != (uint32_t)i << 16
             || (widened[i] != widened[i] ? (rounded[i] & 0x7fff) <= BF16_INF : rounded[i] != i);
  CHECK(wrong == 0);
  for (int step = -1; step <= 1; step++) {
    for (int i = 0; i < BF16_INF; i++) between[i] = of_bits(((uint32_t)i << 16) + 0x8000u + (uint32_t)step);
    amp__floats_to_bf16s(rounded, between, BF16_INF);
    wrong = 0;
    for (int i = 0; i < BF16_INF; i++) wrong += rounded[i] != nearest(i, step);
    CHECK(wrong == 0);
  }
}

/* A double goes to 16 bits in one rounding: through float32 these would become ties. */
static void doubles_in_one_rounding(void)
{
  double d = 1 + 0x1p-11 + 0x1p-40;
  uint16_t number;
  amp__store(AMP_FLOAT16, &number, 1, AMP_C_F64, &d, 1);
  CHECK(number == 0x3c01);
  d = 1 + 0x1p-8 - 0x1p-50;
  amp__store(AMP_BFLOAT16, &number, 1, AMP_C_F64, &d, 1);
  CHECK(number == 0x3f80);
}

static void misfits(void)
{
  float bad[4] = { 1, NAN, 2, 3 };
  CHECK(amp__first_misfit(AMP_INT32, AMP_C_F32, bad, 4) == 1);
  float edge[3] = { 2147483520.f, -2147483648.f, 2147483648.f };
  CHECK(amp__first_misfit(AMP_INT32, AMP_C_F32, edge, 3) == 2);
}

static void conversions(void)
{
  for (int i = 0; i < HALVES; i++) every[i] = (uint16_t)i;
  halves_and_back();
  between_halves();
  bfloat16s();
  doubles_in_one_rounding();
  misfits();
}

/* -- Functions --------------------------------------------------------------------- */

/* an op's number and its reference; x from lo to hi, error at most `ulps` */
static amp_tensor *vector(int dtype, int64_t n) { return amp__tensor_make(dtype, AMP_CPU, 0, 1, &n); }

static double ulps(float got, double want)
{
  int e;
  if (want != want) return got != got ? 0 : 1e9;
  if (isinf((float)want) || isinf(got)) return (float)want == got || fabs(want) > 3.4028e38 ? 0 : 1e9;
  frexp(want, &e);
  double u = ldexp(1, e - 24);
  return fabs((double)got - want) / (u < 0x1p-149 ? 0x1p-149 : u);
}

static void accuracy(const char *name, double (*f)(double), float lo, float hi, double limit)
{
  enum { N = 4096 };
  static float x[N];
  amp_tensor *in = vector(AMP_FLOAT32, N), *out[AMP_MAX_OUT];
  int op = amp_op_find(name);
  double worst = 0, at = 0;
  uint32_t b = 0;
  CHECK(op >= 0 && in);
  while (b <= 0x7f800000u) {
    int n = 0;
    for (; n + 2 <= N && b <= 0x7f800000u; b += 4999) { /* both signs, every exponent */
      x[n++] = of_bits(b);
      x[n++] = -of_bits(b);
    }
    for (int i = 0; i < n; i++)
      if (!(x[i] >= lo && x[i] <= hi)) x[i] = 1;
    for (int i = n; i < N; i++) x[i] = 1;
    memcpy(amp__data(in), x, sizeof x);
    OK(amp__dispatch(op, 0, &in, 1, out, NULL));
    for (int i = 0; i < N; i++) {
      double u = ulps(AMP_DATA(float, out[0])[i], f(x[i]));
      if (u > worst) {
        worst = u;
        at = x[i];
      }
    }
    amp__free(out[0]);
  }
  check_that(worst <= limit, __FILE__, __LINE__, name);
  if (worst > limit) printf("  %s: %.3f ulp at %.9g, allowed %.3f\n", name, worst, at, limit);
  /* infinities, NaN and zeros as libm has them */
  float s[5] = { INFINITY, -INFINITY, NAN, 0.f, -0.f };
  memcpy(amp__data(in), s, sizeof s);
  OK(amp__dispatch(op, 0, &in, 1, out, NULL));
  for (int i = 0; i < 5; i++) {
    double want = f(s[i]);
    check_that(ulps(AMP_DATA(float, out[0])[i], want) <= 2, __FILE__, __LINE__, name);
  }
  amp__free(out[0]);
  amp__free(in);
}

static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static double silu(double x) { return x == -INFINITY ? 0 : x * sigmoid(x); }
static double gelu(double x) { return x == -INFINITY ? 0 : x * 0.5 * erfc(-x * 0.70710678118654752440); }
static double log_sigmoid(double x) { return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x)); }
static double rsqrt(double x) { return 1 / sqrt(x); }

static void functions(void)
{
  const float M = FLT_MAX;
  accuracy("exp", exp, -M, M, 2);
  accuracy("exp2", exp2, -M, M, 2);
  accuracy("expm1", expm1, -M, M, 2);
  accuracy("log", log, -M, M, 2);
  accuracy("log2", log2, -M, M, 1);
  accuracy("log10", log10, -M, M, 1);
  accuracy("log1p", log1p, -M, M, 2);
  accuracy("tanh", tanh, -M, M, 2);
  accuracy("erf", erf, -M, M, 2);
  accuracy("sin", sin, -M, M, 1);
  accuracy("cos", cos, -M, M, 1);
  accuracy("sqrt", sqrt, -M, M, 1);
  accuracy("rsqrt", rsqrt, -M, M, 2);
  accuracy("sigmoid", sigmoid, -M, M, 3);
  accuracy("silu", silu, -87, M, 3);
  accuracy("gelu", gelu, -13, M, 6);
  accuracy("log_sigmoid", log_sigmoid, -M, M, 2);
}

/* -- Elementwise engine ---------------------------------------------------------------- */

/* t seen with its dimensions in reverse and every second element of a larger tensor */
static amp_tensor *strided(int dtype, int ndim, const int64_t *size, int how)
{
  int64_t big[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int64_t step = 1;
  for (int d = 0; d < ndim; d++) big[d] = size[d] * 2;
  amp_tensor *t = amp__tensor_make(dtype, AMP_CPU, 0, ndim, big), *v;
  for (int d = how == 1 ? 0 : ndim - 1; how == 1 ? d < ndim : d >= 0; d += how == 1 ? 1 : -1) {
    stride[d] = step * (how == 2 ? 2 : 1);
    step *= how == 2 ? big[d] : size[d];
  }
  v = amp__tensor_view(t, ndim, size, stride, 0);
  amp__free(t);
  return v;
}

static int64_t offset(const amp_tensor *t, int64_t i) /* of the i-th element in C order */
{
  int64_t o = 0;
  for (int d = t->ndim - 1; d >= 0; d--) {
    o += i % t->size[d] * t->stride[d];
    i /= t->size[d];
  }
  return o;
}

static void fill(amp_tensor *t, int seed)
{
  for (int64_t i = 0; i < t->numel; i++)
    amp__value_put((char *)amp__data(t) + offset(t, i) * amp__dtype_size[t->dtype], t->dtype,
                   (double)((i * 7 + seed) % 5 + 1));
}

static void engine(void)
{
  static const int64_t sizes[][3] = { { 3, 5, 7 }, { 2, 1, 600 }, { 40, 30, 2 }, { 1, 1, 1 } };
  int wrong = 0;
  for (int dtype = 0; dtype < AMP_DTYPE_COUNT; dtype++)
    for (int other = 0; other < AMP_DTYPE_COUNT; other++)
      for (int how = 0; how < 9; how++)
        for (int k = 0; k < 4; k++) {
          if ((AMP_DT_FLOAT8 >> dtype | AMP_DT_FLOAT8 >> other) & 1) continue; /* mul takes no 8-bit floats */
          int64_t small[3] = { sizes[k][0], 1, sizes[k][2] };
          amp_tensor *in[2]
              = { strided(dtype, 3, sizes[k], how % 3), strided(other, 3, how & 1 ? small : sizes[k], how / 3) },
              *out[AMP_MAX_OUT];
          fill(in[0], 1);
          fill(in[1], 2);
          OK(amp__dispatch(AMP_OP_mul, 0, in, 2, out, NULL));
          for (int64_t i = 0; i < out[0]->numel; i++) {
            int64_t j = how & 1 ? i / (sizes[k][1] * sizes[k][2]) * sizes[k][2] + i % sizes[k][2] : i;
            double want = amp__element(in[0], offset(in[0], i)) * amp__element(in[1], offset(in[1], j));
            if (out[0]->dtype == AMP_BOOL) want = want != 0;
            wrong += amp__element(out[0], offset(out[0], i)) != want;
          }
          for (int i = 0; i < 2; i++) amp__free(in[i]);
          amp__free(out[0]);
        }
  CHECK(wrong == 0);
}

/* -- Edges ------------------------------------------------------------------------------ */

static amp_tensor *floats(int n, const double *v, int dtype)
{
  amp_tensor *t = vector(dtype, n);
  for (int i = 0; i < n; i++) amp__value_put((char *)amp__data(t) + i * amp__dtype_size[dtype], dtype, v[i]);
  return t;
}

/* op(a) or op(a, b) with default attributes: the first value, NaN on error (whose code is in S->err) */
static double value(int op, amp_tensor *a, amp_tensor *b)
{
  amp_tensor *in[2] = { a, b }, *out[AMP_MAX_OUT];
  S->err.code = 0;
  if (amp__dispatch(op, 0, in, b ? 2 : 1, out, NULL) < 0) return NAN;
  double v = out[0]->numel ? amp__element(out[0], 0) : NAN;
  for (int i = 0; i < AMP_MAX_OUT; i++) amp__free(out[i]);
  return v;
}

static void edges(void)
{
  double nan3[3] = { 1, NAN, 5 }, two[2] = { 7, -7 }, zero[2] = { 0, 0 }, minus[2] = { -1, -1 },
         least[1] = { -9223372036854775808.0 };
  amp_tensor *a = floats(3, nan3, AMP_FLOAT32), *e = floats(0, nan3, AMP_FLOAT32), *i = floats(2, two, AMP_INT64),
             *z = floats(2, zero, AMP_INT64);
  amp_tensor *m = floats(2, minus, AMP_INT64), *l = floats(1, least, AMP_INT64), *l1 = floats(1, minus, AMP_INT64);
  CHECK(isnan(value(AMP_OP_max, a, NULL)) && S->err.code == 0);
  CHECK(isnan(value(AMP_OP_min, a, NULL)));
  CHECK(value(AMP_OP_argmax, a, NULL) == 2);
  CHECK(value(AMP_OP_sum, e, NULL) == 0);
  CHECK(value(AMP_OP_prod, e, NULL) == 1);
  CHECK(isnan(value(AMP_OP_mean, e, NULL)) && S->err.code == 0);
  CHECK(isnan(value(AMP_OP_var, e, NULL)) && S->err.code == 0);
  CHECK(value(AMP_OP_logsumexp, e, NULL) == -INFINITY);
  CHECK(value(AMP_OP_any, e, NULL) == 0 && value(AMP_OP_all, e, NULL) == 1);
  CHECK(isnan(value(AMP_OP_max, e, NULL)) && S->err.code < 0);
  value(AMP_OP_mod, i, z);
  CHECK(S->err.code == AMP_E_VALUE);
  CHECK(value(AMP_OP_mod, l, l1) == 0);
  value(AMP_OP_pow, i, m);
  CHECK(S->err.code == AMP_E_VALUE);
  /* NaN and infinity have no integer; nothing is written then */
  amp_tensor *in[2] = { floats(3, nan3, AMP_INT32), a }, *none[AMP_MAX_OUT];
  AMP_DATA(int32_t, in[0])[0] = 42;
  CHECK(amp__dispatch(AMP_OP_copy, AMP_INPLACE, in, 2, none, NULL) == AMP_E_VALUE);
  CHECK(AMP_DATA(int32_t, in[0])[0] == 42);
  amp__free(in[0]);
  amp__free(a);
  amp__free(e);
  amp__free(i);
  amp__free(z);
  amp__free(m);
  amp__free(l);
  amp__free(l1);
}

/* A sum of many float32 is as good as one in double, and the same however threads share it */
static void sums(void)
{
  int64_t size[2] = { 1500, 700 };
  amp_tensor *t = amp__tensor_make(AMP_FLOAT32, AMP_CPU, 0, 2, size), *out[AMP_MAX_OUT];
  amp_slot a[11] = { { .i = 1 } };
  double all = 0, col = 0;
  for (int64_t k = 0; k < t->numel; k++) {
    float v = 1.f + (float)(k * 2654435761u % 1000) * 1e-3f;
    AMP_DATA(float, t)[k] = v;
    all += v;
    if (k % size[1] == 3) col += v;
  }
  float first[3];
  for (int threads = 1; threads <= 2; threads++) {
    amp_set_threads(threads);
    double s = value(AMP_OP_sum, t, NULL);
    CHECK_NEAR(s / all, 1, 1e-7);
    a[1].i = 1;
    a[10].i = AMP_NONE;
    OK(amp__dispatch(AMP_OP_sum, 0, &t, 1, out, a));
    float c = AMP_DATA(float, out[0])[3];
    CHECK_NEAR(c / col, 1, 1e-6);
    amp__free(out[0]);
    double v = value(AMP_OP_var, t, NULL);
    if (threads == 1) {
      first[0] = (float)s;
      first[1] = c;
      first[2] = (float)v;
    } else CHECK(first[0] == (float)s && first[1] == c && first[2] == (float)v);
  }
  amp_set_threads(1);
  amp__free(t);
}

static void random_numbers(void)
{
  uint32_t w[AMP_RNG_BLOCK];
  /* the published test vector: key and counter zero */
  amp__philox_block(w, 0, 0);
  CHECK(w[0] == 0x6627e8d5u && w[64] == 0xe169c58du && w[128] == 0xbc57ac4cu && w[192] == 0x9b00dbd8u);
  amp_slot a[11] = { { .i = 1 }, { .i = 200001 } };
  a[9].i = AMP_FLOAT32;
  a[10].i = 0;
  amp_tensor *out[3][AMP_MAX_OUT];
  S->seed = 7;
  for (int k = 0; k < 3; k++) {
    amp_set_threads(1 + k);
    S->rng_offset = 0;
    OK(amp__dispatch(AMP_OP_randn, 0, NULL, 0, out[k], a));
    CHECK(memcmp(amp__data(out[0][0]), amp__data(out[k][0]), 200001 * 4) == 0);
  }
  amp_set_threads(1);
  double m = 0, v = 0;
  for (int i = 0; i < 200001; i++) {
    double x = AMP_DATA(float, out[0][0])[i];
    m += x;
    v += x * x;
  }
  CHECK_NEAR(m / 200001, 0, 0.01);
  CHECK_NEAR(v / 200001, 1, 0.02);
  for (int k = 0; k < 3; k++) amp__free(out[k][0]);
  OK(amp__dispatch(AMP_OP_rand, 0, NULL, 0, out[0], (a[9].i = AMP_FLOAT16, a)));
  int outside = 0;
  for (int i = 0; i < 200001; i++) outside += AMP_DATA(uint16_t, out[0][0])[i] >= 0x3c00;
  CHECK(outside == 0); /* [0, 1) in half too */
  amp__free(out[0][0]);
}

int main(void)
{
  S = amp_state_new();
  CHECK(S != NULL);
  AMP_ENTER(S);
  S->grad_mode = 0;
  conversions();
  functions();
  engine();
  edges();
  sums();
  random_numbers();
  amp_state_free(S);
  return DONE();
}
