/*
** random.cu: random tensors: uniform, normal, integers, Bernoulli, permutations,
** dropout. A thread turns one counter of the sequence into four values (two where
** 64 bits are needed). Uniform values have as many random bits as their dtype has
** precision; normal ones are Box and Muller's.
**
** A fill reads nothing and writes an element once; counters and values stay in registers.
*/
#include "elementwise/elementwise.cuh"
#include "common/philox.cuh"

namespace {

enum distribution { UNIFORM, NORMAL, INTEGER, BERNOULLI };
typedef struct draw {
  distribution kind;
  int32_t dtype;
  double a, b; /* from, to - from | mean, std | probability */
  uint64_t low, range, threshold;
  amp_rng rng;
} draw;

static __device__ __forceinline__ float limited(float v, const draw &drawn)
{
  if (drawn.a == 0 && drawn.b == 1) return v;
  float a = (float)drawn.a, b = (float)drawn.b, end = (float)(drawn.a + drawn.b), x = a + v * b;
  x = amp_rounded(x, drawn.dtype);
  return x < end || b == 0.f ? x : a;
}

/* Values from element i on, as many of them as there are below n, of a counter's four words: four in float32, or two in
** float64 (per) */
static __device__ __forceinline__ void put_uniform(char *p, int64_t i, int64_t n, const uint32_t (&w)[4],
                                                   const draw &drawn, int per)
{
  if (per == 4) {
    int bits = drawn.dtype == AMP_FLOAT32 ? 24 : drawn.dtype == AMP_FLOAT16 ? 11 : 8;
    float unit = 1.f / (float)(1 << bits);
    for (int k = 0; k < 4 && i + k < n; k++)
      amp_store<float>(p, drawn.dtype, i + k, limited((float)(w[k] >> (32 - bits)) * unit, drawn));
  } else {
    for (int k = 0; k < 2 && i + k < n; k++) {
      double v = drawn.a + amp_uniform2(w[2 * k], w[2 * k + 1]) * drawn.b;
      amp_store<double>(p, drawn.dtype, i + k, v < drawn.a + drawn.b || drawn.b == 0 ? v : drawn.a);
    }
  }
}
static __device__ __forceinline__ void put_normal(char *p, int64_t i, int64_t n, const uint32_t (&w)[4],
                                                  const draw &drawn, int per)
{
  if (per == 4) {
    for (int k = 0; k < 4; k += 2) {
      float u = ((float)(w[k] >> 1) + 0.5f) * 0x1p-31f, r = sqrtf(-2.f * logf(u)),
            t = (float)(w[k + 1] >> 8) * (6.283185307f * 0x1p-24f), s, c;
      s = sinf(t);
      c = cosf(t);
      if (i + k < n) amp_store<float>(p, drawn.dtype, i + k, (float)drawn.a + r * c * (float)drawn.b);
      if (i + k + 1 < n) amp_store<float>(p, drawn.dtype, i + k + 1, (float)drawn.a + r * s * (float)drawn.b);
    }
  } else {
    double r = sqrt(-2.0 * log(1.0 - amp_uniform2(w[0], w[1]))), t = 6.28318530717958647692 * amp_uniform2(w[2], w[3]);
    if (i < n) amp_store<double>(p, drawn.dtype, i, drawn.a + r * cos(t) * drawn.b);
    if (i + 1 < n) amp_store<double>(p, drawn.dtype, i + 1, drawn.a + r * sin(t) * drawn.b);
  }
}

/* A thread takes one counter at a time */
__global__ void fill_random(char *p, int64_t n, const draw drawn)
{
  int per = drawn.kind == INTEGER || (drawn.dtype == AMP_FLOAT64 && drawn.kind != BERNOULLI) ? 2 : 4;
  AMP_FOR(j, (n + per - 1) / per)
  {
    uint4 w4 = amp_philox(drawn.rng, (uint64_t)j);
    uint32_t w[4] = { w4.x, w4.y, w4.z, w4.w };
    int64_t i = j * per;
    switch (drawn.kind) {
    case UNIFORM: put_uniform(p, i, n, w, drawn, per); break;
    case NORMAL: put_normal(p, i, n, w, drawn, per); break;
    case INTEGER:
      for (int k = 0; k < 2 && i + k < n; k++)
        amp_store<int64_t>(p, drawn.dtype, i + k,
                           (int64_t)(drawn.low + __umul64hi((uint64_t)w[2 * k] << 32 | w[2 * k + 1], drawn.range)));
      break;
    case BERNOULLI:
      for (int k = 0; k < 4 && i + k < n; k++)
        amp_store<uint8_t>(p, drawn.dtype, i + k, (uint8_t)(w[k] < drawn.threshold));
      break;
    }
  }
}

/* dense alike; mask may be absent */
__global__ void drop(char *out, uint8_t *mask, const char *x, int dtype, int64_t n, uint32_t least, double scale,
                     const amp_rng rng)
{
  AMP_FOR(j, (n + 3) / 4)
  {
    uint4 w4 = amp_philox(rng, (uint64_t)j);
    uint32_t w[4] = { w4.x, w4.y, w4.z, w4.w };
    for (int k = 0; k < 4 && 4 * j + k < n; k++) {
      int64_t i = 4 * j + k;
      bool keep = w[k] >= least;
      if (dtype == AMP_FLOAT64) amp_store<double>(out, dtype, i, keep ? amp_load<double>(x, dtype, i) * scale : 0.0);
      else amp_store<float>(out, dtype, i, keep ? amp_load<float>(x, dtype, i) * (float)scale : 0.f);
      if (mask) mask[i] = keep;
    }
  }
}

/* 1 where a uniform value is below the element's probability */
__global__ void sample(char *o, int odtype, const char *x, int dtype, int64_t n, const amp_rng rng,
                       amp_trouble *trouble)
{
  AMP_FOR(i, n)
  {
    double p = amp_load<double>(x, dtype, i);
    uint4 w = amp_philox(rng, (uint64_t)i);
    if (!(p >= 0 && p <= 1)) amp_note(trouble, AMP_TROUBLE_PROBABILITY, AMP_OP_bernoulli_sample, 0, 1, i, p);
    amp_store<uint8_t>(o, odtype, i, (uint8_t)(amp_uniform2(w.x, w.y) < p));
  }
}

/* Poisson counts: products of uniforms for small rates, Hoermann's transformed rejection (PTRS, 1993) from 10 on */
__global__ void poisson_counts(char *out, int odtype, const char *x, int dtype, int64_t n, const amp_rng rng,
                               amp_trouble *trouble)
{
  AMP_FOR(i, n)
  {
    double rate = amp_load<double>(x, dtype, i), k = 0;
    if (!(rate >= 0)) {
      amp_note(trouble, AMP_TROUBLE_NEGATIVE, AMP_OP_poisson, 0, 0, i, rate);
      amp_store<double>(out, odtype, i, 0.0);
      continue;
    }
    uint64_t at = (uint64_t)i << 20; /* each element has draws of its own */
    if (rate < 10) {
      double limit = exp(-rate), prod = 1;
      k = -1;
      do {
        uint4 w = amp_philox(rng, at++);
        prod *= 1.0 - amp_uniform2(w.x, w.y);
        k++;
      } while (prod > limit);
    } else {
      double slam = sqrt(rate), loglam = log(rate), b = 0.931 + 2.53 * slam, a = -0.059 + 0.02483 * b,
             ia = 1.1239 + 1.1328 / (b - 3.4), vr = 0.9277 - 3.6224 / (b - 2);
      for (;;) {
        uint4 w = amp_philox(rng, at++);
        double u = amp_uniform2(w.x, w.y) - 0.5, v = amp_uniform2(w.z, w.w), us = 0.5 - fabs(u);
        k = floor((2 * a / us + b) * u + rate + 0.43);
        if (us >= 0.07 && v <= vr) break;
        if (k < 0 || (us < 0.013 && v > us)) continue;
        if (log(v) + log(ia) - log(a / (us * us) + b) <= -rate + k * loglam - lgamma(k + 1)) break;
      }
    }
    amp_store<double>(out, odtype, i, k);
  }
}

/* -- Calls ------------------------------------------------------------------------------ */

static int fill(amp_tensor *t, draw drawn)
{
  amp_tensor *dense = t->flags & AMP_T_DENSE ? t : amp__cuda_make(t->dtype, t->ndim, t->size);
  int rc = 0, per = drawn.kind == INTEGER || (t->dtype == AMP_FLOAT64 && drawn.kind != BERNOULLI) ? 2 : 4;
  if (dense == NULL) return AMP_E_MEMORY;
  int64_t n = (t->numel + per - 1) / per;
  drawn.dtype = t->dtype;
  drawn.rng = amp__cuda_rng(n);
  if (n > 0) AMP_LAUNCH(fill_random, amp_grid(n, 256), 256, 0, (char *)amp__data(dense), t->numel, drawn);
  if (dense != t) {
    rc = amp__cuda_copy_to(t, dense);
    amp__free(dense);
  }
  return rc;
}
static draw drawing(distribution kind, double a, double b)
{
  draw drawn;
  memset((void *)&drawn, 0, sizeof drawn);
  drawn.kind = kind;
  drawn.a = a;
  drawn.b = b;
  return drawn;
}
static int check_p(double p)
{
  return p >= 0 && p <= 1 ? 0 : amp__fail(AMP_E_VALUE, "p %g is not a probability: it must lie in 0..1", p);
}

} // namespace

extern "C" {

int amp__cuda_rand(amp_call *c) { return fill(c->out[0], drawing(UNIFORM, 0, 1)); }
int amp__cuda_randn(amp_call *c) { return fill(c->out[0], drawing(NORMAL, 0, 1)); }

int amp__cuda_uniform(amp_call *c)
{
  const args_uniform *args = AMP_ARGS(c, uniform);
  double a = args->from, b = args->to;
  if (!(a <= b) || !isfinite(b - a))
    return amp__fail(AMP_E_VALUE, "from %g must not be above to %g, and both finite", a, b);
  return fill(c->out[0], drawing(UNIFORM, a, b - a));
}
int amp__cuda_normal(amp_call *c)
{
  const args_normal *args = AMP_ARGS(c, normal);
  if (!(args->std >= 0)) return amp__fail(AMP_E_VALUE, "std %g must not be negative", args->std);
  return fill(c->out[0], drawing(NORMAL, args->mean, args->std));
}
int amp__cuda_randint(amp_call *c)
{
  const args_randint *args = AMP_ARGS(c, randint);
  draw drawn = drawing(INTEGER, 0, 0);
  if (args->low >= args->high)
    return amp__fail(AMP_E_VALUE, "low %lld must be less than high %lld", (long long)args->low, (long long)args->high);
  drawn.low = (uint64_t)args->low;
  drawn.range = (uint64_t)args->high - (uint64_t)args->low;
  return fill(c->out[0], drawn);
}
int amp__cuda_bernoulli(amp_call *c)
{
  double p = AMP_ARGS(c, bernoulli)->p;
  int rc = check_p(p);
  draw drawn = drawing(BERNOULLI, p, 0);
  drawn.threshold = p == 1 ? (uint64_t)1 << 32 : (uint64_t)(p * 0x1p32);
  return rc < 0 ? rc : fill(c->out[0], drawn);
}

int amp__cuda_bernoulli_sample(amp_call *c)
{
  amp_tensor *o = c->out[0], *x = amp__cuda_dense(c->in[0], c->in[0]->dtype),
             *y = amp__cuda_plain(o) ? o : amp__cuda_make(o->dtype, o->ndim, o->size);
  int rc = x && y ? 0 : AMP_E_MEMORY;
  amp_rng rng = amp__cuda_rng(o->numel);
  if (rc == 0 && o->numel > 0)
    AMP_LAUNCH(sample, amp_grid(o->numel, 256), 256, 0, (char *)amp__data(y), (int)o->dtype, (const char *)amp__data(x),
               (int)x->dtype, o->numel, rng, amp_trouble_cell());
  if (rc == 0 && y != o) rc = amp__cuda_copy_to(o, y);
  if (y != o) amp__free(y);
  amp__free(x);
  return rc;
}

int amp__cuda_poisson(amp_call *c)
{
  amp_tensor *o = c->out[0], *x = amp__cuda_dense(c->in[0], c->in[0]->dtype),
             *y = amp__cuda_plain(o) ? o : amp__cuda_make(o->dtype, o->ndim, o->size);
  int rc = x && y ? 0 : AMP_E_MEMORY;
  amp_rng rng = amp__cuda_rng(o->numel << 20);
  if (rc == 0 && o->numel > 0)
    AMP_LAUNCH(poisson_counts, amp_grid(o->numel, 256), 256, 0, (char *)amp__data(y), (int)o->dtype,
               (const char *)amp__data(x), (int)x->dtype, o->numel, rng, amp_trouble_cell());
  if (rc == 0 && y != o) rc = amp__cuda_copy_to(o, y);
  if (y != o) amp__free(y);
  amp__free(x);
  return rc;
}

int amp__cuda_dropout(amp_call *c)
{
  const args_dropout *args = AMP_ARGS(c, dropout);
  double p = args->p;
  bool training = args->training != 0;
  amp_tensor *t = c->in[0], *out = c->out[0], *mask = c->nout > 1 ? c->out[1] : NULL;
  int rc = check_p(p);
  if (rc < 0) return rc;
  if (!training || p == 0 || p == 1) {
    bool zero = training && p == 1;
    if (mask && (rc = amp__cuda_fill_value(mask, zero ? 0 : 1)) < 0) return rc;
    if (zero) return amp__cuda_fill_value(out, 0);
    return out == t ? 0 : amp__cuda_copy_to(out, t);
  }
  double least = p * 0x1p32;
  bool alike
      = (t->flags & out->flags & AMP_T_DENSE) && memcmp(t->stride, out->stride, sizeof(int64_t) * t->ndim) == 0
        && (!mask
            || ((mask->flags & AMP_T_DENSE) && memcmp(mask->stride, out->stride, sizeof(int64_t) * out->ndim) == 0));
  amp_tensor *x = t, *y = out, *m = mask;
  if (!alike) {
    x = amp__cuda_dense(t, out->dtype);
    y = amp__cuda_make(out->dtype, out->ndim, out->size);
    if (mask) m = amp__cuda_make(mask->dtype, mask->ndim, mask->size);
    if (!x || !y || (mask && !m)) rc = AMP_E_MEMORY;
  }
  amp_rng rng = amp__cuda_rng((out->numel + 3) / 4);
  if (rc == 0 && out->numel > 0)
    AMP_LAUNCH(drop, amp_grid(out->numel, 1024), 256, 0, (char *)amp__data(y),
               m ? (uint8_t *)amp__data(m) : (uint8_t *)NULL, (const char *)amp__data(x), (int)out->dtype, out->numel,
               least > 4294967295.0 ? 4294967295u : (uint32_t)least, 1 / (1 - p), rng);
  if (rc == 0 && y != out) rc = amp__cuda_copy_to(out, y);
  if (rc == 0 && m != mask) rc = amp__cuda_copy_to(mask, m);
  if (x != t) amp__free(x);
  if (y != out) amp__free(y);
  if (m != mask) amp__free(m);
  return rc;
}
}
