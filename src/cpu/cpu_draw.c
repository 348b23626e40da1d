/*
** cpu_draw.c: random draws that depend on a tensor or have no bounded number of
** trials: exponential, bernoulli with probabilities, poisson, multinomial.
**
** Where a value takes one uniform number these come from the kernel of uniform;
** else from a stream of doubles that claims a block of the state's sequence
** whenever it is empty, so the same seed gives the same draws.
*/
#include <math.h>
#include "cpu_random.h"
#include "cpu_sort.h"
#include "cpu_math.h"

/* t's shape full of uniform values in [0, 1), float32 or float64, in C order. NULL: error */
static amp_tensor *uniform(const amp_tensor *t)
{
  amp_tensor *u = amp__tensor_make(t->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32, AMP_CPU, 0, t->ndim, t->size);
  amp_slot a[2] = { { .f = 0 }, { .f = 1 } };
  amp_call c = { .out = { u }, .a = a };
  if (u && amp__cpu_uniform(&c) == 0) return u;
  amp__free(u);
  return NULL;
}

static AMP_CLONES void exponential_f(float *x, int64_t n, float scale)
{
  AMP_IVDEP for (int64_t i = 0; i < n; i++) x[i] = -amp__logf(1.f - x[i]) * scale;
}

int amp__cpu_exponential(amp_call *c)
{
  double rate = c->a[0].f;
  amp_tensor *u = uniform(c->out[0]);
  if (u == NULL) return amp__S->err.code;
  if (u->dtype == AMP_FLOAT32) exponential_f(AMP_DATA(float, u), u->numel, (float)(1 / rate));
  else {
    double *x = AMP_DATA(double, u);
    for (int64_t i = 0; i < u->numel; i++) x[i] = -log1p(-x[i]) / rate;
  }
  int rc = amp__copy_to(c->out[0], u);
  amp__free(u);
  return rc;
}

int amp__cpu_bernoulli_sample(amp_call *c)
{
  amp_tensor *u = uniform(c->in[0]), *p = u ? amp__dense(c->in[0], u->dtype) : NULL;
  int rc = p ? 0 : amp__S->err.code;
  for (int64_t i = 0; rc == 0 && i < u->numel; i++) {
    double q = u->dtype == AMP_FLOAT32 ? AMP_DATA(float, p)[i] : AMP_DATA(double, p)[i];
    if (!(q >= 0 && q <= 1)) { rc = amp__fail(AMP_E_VALUE, "element %lld is %g, which is not a probability: it must lie in 0..1", (long long)i + 1, q); break; }
    if (u->dtype == AMP_FLOAT32) AMP_DATA(float, u)[i] = AMP_DATA(float, u)[i] < (float)q;
    else AMP_DATA(double, u)[i] = AMP_DATA(double, u)[i] < q;
  }
  if (rc == 0) rc = amp__copy_to(c->out[0], u);
  amp__free(p);
  amp__free(u);
  return rc;
}

/* -- A stream of doubles in [0, 1) ---------------------------------------------------------------- */

typedef struct { uint32_t w[AMP_RNG_BLOCK] __attribute__((aligned(64))); int left; } stream;

static double next(stream *s)
{
  if (s->left == 0) {
    amp__philox_block(s->w, amp__S->seed, amp__rng_take(1));
    s->left = AMP_RNG_BLOCK / 2;
  }
  s->left--;
  return (double)(((uint64_t)s->w[s->left] << 32 | s->w[s->left + AMP_RNG_BLOCK / 2]) >> 11) * 0x1p-53;
}

static double log_factorial(double k)
{
#ifdef __GLIBC__
  int sign;
  return lgamma_r(k + 1, &sign); /* lgamma writes a global */
#else
  return lgamma(k + 1);
#endif
}

/* Few: uniform numbers multiplied until their product is below exp(-rate). Many: transformed rejection, W. Hörmann,
** "The transformed rejection method for generating Poisson random variables" (1993), algorithm PTRS. */
static double poisson(stream *s, double rate)
{
  if (rate < 10) {
    const double least = exp(-rate);
    double k = 0;
    for (double p = next(s); p > least; p *= next(s)) k++;
    return rate == 0 ? 0 : k;
  }
  const double b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b, inverse = 1.1239 + 1.1328 / (b - 3.4), r = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    const double u = next(s) - 0.5, v = next(s), us = 0.5 - fabs(u), k = floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= r) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (log(v * inverse / (a / (us * us) + b)) <= k * log(rate) - rate - log_factorial(k)) return k;
  }
}

int amp__cpu_poisson(amp_call *c)
{
  amp_tensor *t = amp__tensor_make(AMP_FLOAT64, AMP_CPU, 0, c->in[0]->ndim, c->in[0]->size);
  int rc = t ? amp__copy_to(t, c->in[0]) : amp__S->err.code;
  stream s = { .left = 0 };
  double *p = t ? AMP_DATA(double, t) : NULL;
  for (int64_t i = 0; rc == 0 && i < t->numel; i++) {
    if (!(p[i] >= 0) || p[i] > 0x1p53) rc = amp__fail(AMP_E_VALUE, "element %lld is %g, which is not a rate: it must be finite and not negative", (long long)i + 1, p[i]);
    else p[i] = poisson(&s, p[i]);
  }
  if (rc == 0) rc = amp__copy_to(c->out[0], t);
  amp__free(t);
  return rc;
}

/* -- multinomial ----------------------------------------------------------------------------------- */

/* Weights w into running sums; with an error naming what is wrong in row `row` */
static int check_weights(const double *w, int64_t n, int64_t row, int64_t need, double *total)
{
  int64_t positive = 0;
  *total = 0;
  for (int64_t i = 0; i < n; i++) {
    if (!(w[i] >= 0) || isinf(w[i])) return amp__fail(AMP_E_VALUE, "weight %g (row %lld, element %lld) must be finite and not negative", w[i], (long long)row + 1, (long long)i + 1);
    *total += w[i];
    positive += w[i] > 0;
  }
  if (positive < need)
    return amp__fail(AMP_E_VALUE, "row %lld has %lld weights above 0, fewer than the %lld needed", (long long)row + 1, (long long)positive, (long long)need);
  return isfinite(*total) ? 0 : amp__fail(AMP_E_VALUE, "the weights of row %lld add up to more than a double holds", (long long)row + 1);
}

int amp__cpu_multinomial(amp_call *c)
{
  amp_tensor *w = amp__dense(c->in[0], AMP_FLOAT64), *out = c->out[0], *o = NULL;
  int64_t k = c->a[0].i, n = c->in[0]->size[c->in[0]->ndim - 1], rows = n ? c->in[0]->numel / n : 0;
  bool again = c->a[1].i != 0;
  int rc = 0;
  stream s = { .left = 0 };
  amp_block *lent = amp__block_new(AMP_CPU, 0, 2 * sizeof(amp_pair) * (size_t)n);
  o = amp__tensor_make(AMP_INT64, AMP_CPU, 0, out->ndim, out->size);
  if (w == NULL || lent == NULL || o == NULL) { rc = amp__S->err.code; goto out; }
  for (int64_t r = 0; r < rows && rc == 0; r++) {
    const double *p = AMP_DATA(double, w) + r * n;
    int64_t *q = AMP_DATA(int64_t, o) + r * k;
    double total, *sum = lent->data;
    amp_pair *v = lent->data;
    if ((rc = check_weights(p, n, r, again ? 1 : k, &total)) < 0) break;
    if (again) {
      double run = 0;
      int64_t last = 0;
      for (int64_t i = 0; i < n; i++) { sum[i] = run += p[i]; if (p[i] > 0) last = i; }
      for (int64_t j = 0; j < k; j++) { /* the first whose running sum is above u */
        const double u = next(&s) * run;
        int64_t lo = 0, hi = last;
        while (lo < hi) { const int64_t mid = (lo + hi) / 2; if (sum[mid] > u) hi = mid; else lo = mid + 1; }
        q[j] = lo + 1;
      }
    } else { /* the k first arrivals of processes with these rates */
      double t[AMP_CHUNK];
      uint64_t key[AMP_CHUNK];
      for (int64_t at = 0; at < n; at += AMP_CHUNK) {
        const int64_t m = n - at < AMP_CHUNK ? n - at : AMP_CHUNK;
        for (int64_t i = 0; i < m; i++) t[i] = p[at + i] > 0 ? -log(1 - next(&s)) / p[at + i] : INFINITY;
        amp__keys64(key, AMP_FLOAT64, t, 1, m, false);
        for (int64_t i = 0; i < m; i++) v[at + i] = (amp_pair){ key[i], (uint64_t)(at + i) };
      }
      amp__select64(v, v + n, n, k - 1);
      amp__order64(v, v + n, k);
      for (int64_t j = 0; j < k; j++) q[j] = (int64_t)v[j].at + 1;
    }
  }
  if (rc == 0) rc = amp__copy_to(out, o);
out:
  if (lent) amp__block_free(lent);
  amp__free(o);
  amp__free(w);
  return rc;
}
