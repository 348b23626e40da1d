/*
** ops/random/draw.c: random draws that depend on a tensor or have no bounded number of
** trials: exponential, bernoulli with probabilities, poisson, multinomial.
**
** Where a value takes one uniform number these come from the kernel of uniform;
** else from a stream of doubles that claims a block of the state's sequence
** whenever it is empty, so the same seed gives the same draws.
*/
#include <math.h>
#include "cpu/philox.h"
#include "ops/random/random.h"
#include "ops/order/sort.h"
#include "cpu/vector_math.h"

/* The tensor's shape full of uniform values in [0, 1), float32 or float64, in C order. NULL: error */
static amp_tensor *uniform(const amp_tensor *tensor)
{
  amp_tensor *draws = amp__tensor_make(tensor->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32, AMP_CPU, 0,
                                       tensor->ndim, tensor->size);
  args_uniform args = { .from = 0, .to = 1 };
  amp_call call = { .out = { draws }, .attrs = AMP_SLOT(args) };
  if (draws && amp__cpu_uniform(&call) == 0) return draws;
  amp__free(draws);
  return NULL;
}

static AMP_CLONES void exponential_f(float *x, int64_t count, float scale)
{
  AMP_IVDEP
  for (int64_t i = 0; i < count; i++) x[i] = -amp__logf(1.f - x[i]) * scale;
}

int amp__cpu_exponential(amp_call *call)
{
  double rate = AMP_ARGS(call, exponential)->lambd;
  amp_tensor *draws = uniform(call->out[0]);
  if (draws == NULL) return amp__S->err.code;
  if (draws->dtype == AMP_FLOAT32) exponential_f(AMP_DATA(float, draws), draws->numel, (float)(1 / rate));
  else {
    double *x = AMP_DATA(double, draws);
    for (int64_t i = 0; i < draws->numel; i++) x[i] = -log1p(-x[i]) / rate;
  }
  int status = amp__copy_to(call->out[0], draws);
  amp__free(draws);
  return status;
}

int amp__cpu_bernoulli_sample(amp_call *call)
{
  amp_tensor *draws = uniform(call->in[0]), *p = draws ? amp__dense(call->in[0], draws->dtype) : NULL;
  int status = p ? 0 : amp__S->err.code;
  for (int64_t i = 0; status == 0 && i < draws->numel; i++) {
    double q = draws->dtype == AMP_FLOAT32 ? AMP_DATA(float, p)[i] : AMP_DATA(double, p)[i];
    if (!(q >= 0 && q <= 1)) {
      status = amp__fail(AMP_E_VALUE, "element %lld is %g, which is not a probability: it must lie in 0..1",
                         (long long)i + 1, q);
      break;
    }
    if (draws->dtype == AMP_FLOAT32) AMP_DATA(float, draws)[i] = AMP_DATA(float, draws)[i] < (float)q;
    else AMP_DATA(double, draws)[i] = AMP_DATA(double, draws)[i] < q;
  }
  if (status == 0) status = amp__copy_to(call->out[0], draws);
  amp__free(p);
  amp__free(draws);
  return status;
}

/* -- A stream of doubles in [0, 1) ---------------------------------------------------------------- */

typedef struct {
  uint32_t words[AMP_RNG_BLOCK] __attribute__((aligned(64)));
  int left;
} stream;

static double next(stream *stream)
{
  if (stream->left == 0) {
    amp__philox_block(stream->words, amp__S->seed, amp__rng_take(1));
    stream->left = AMP_RNG_BLOCK / 2;
  }
  stream->left--;
  return (double)(((uint64_t)stream->words[stream->left] << 32 | stream->words[stream->left + AMP_RNG_BLOCK / 2]) >> 11)
         * 0x1p-53;
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
static double poisson(stream *stream, double rate)
{
  if (rate < 10) {
    const double least = exp(-rate);
    double k = 0;
    for (double p = next(stream); p > least; p *= next(stream)) k++;
    return rate == 0 ? 0 : k;
  }
  const double b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b, inverse = 1.1239 + 1.1328 / (b - 3.4),
               r = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    const double u = next(stream) - 0.5, v = next(stream), us = 0.5 - fabs(u),
                 k = floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= r) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (log(v * inverse / (a / (us * us) + b)) <= k * log(rate) - rate - log_factorial(k)) return k;
  }
}

int amp__cpu_poisson(amp_call *call)
{
  amp_tensor *tensor = amp__tensor_make(AMP_FLOAT64, AMP_CPU, 0, call->in[0]->ndim, call->in[0]->size);
  int status = tensor ? amp__copy_to(tensor, call->in[0]) : amp__S->err.code;
  stream stream = { .left = 0 };
  double *p = tensor ? AMP_DATA(double, tensor) : NULL;
  for (int64_t i = 0; status == 0 && i < tensor->numel; i++) {
    if (!(p[i] >= 0) || p[i] > 0x1p53)
      status = amp__fail(AMP_E_VALUE, "element %lld is %g, which is not a rate: it must be finite and not negative",
                         (long long)i + 1, p[i]);
    else p[i] = poisson(&stream, p[i]);
  }
  if (status == 0) status = amp__copy_to(call->out[0], tensor);
  amp__free(tensor);
  return status;
}

/* -- multinomial ----------------------------------------------------------------------------------- */

/* Weights w into running sums; with an error naming what is wrong in row `row` */
static int check_weights(const double *w, int64_t count, int64_t row, int64_t need, double *total)
{
  int64_t positive = 0;
  *total = 0;
  for (int64_t i = 0; i < count; i++) {
    if (!(w[i] >= 0) || isinf(w[i]))
      return amp__fail(AMP_E_VALUE, "weight %g (row %lld, element %lld) must be finite and not negative", w[i],
                       (long long)row + 1, (long long)i + 1);
    *total += w[i];
    positive += w[i] > 0;
  }
  if (positive < need)
    return amp__fail(AMP_E_VALUE, "row %lld has %lld weights above 0, fewer than the %lld needed", (long long)row + 1,
                     (long long)positive, (long long)need);
  return isfinite(*total)
             ? 0
             : amp__fail(AMP_E_VALUE, "the weights of row %lld add up to more than a double holds", (long long)row + 1);
}

int amp__cpu_multinomial(amp_call *call)
{
  const args_multinomial *args = AMP_ARGS(call, multinomial);
  amp_tensor *w = amp__dense(call->in[0], AMP_FLOAT64), *out = call->out[0], *output = NULL;
  int64_t k = args->num_samples, count = call->in[0]->size[call->in[0]->ndim - 1],
          rows = count ? call->in[0]->numel / count : 0;
  bool again = args->replacement != 0;
  int status = 0;
  stream stream = { .left = 0 };
  amp_block *lent = amp__block_new(AMP_CPU, 0, 2 * sizeof(amp_pair) * (size_t)count);
  output = amp__tensor_make(AMP_INT64, AMP_CPU, 0, out->ndim, out->size);
  if (w == NULL || lent == NULL || output == NULL) {
    status = amp__S->err.code;
    goto out;
  }
  for (int64_t r = 0; r < rows && status == 0; r++) {
    const double *p = AMP_DATA(double, w) + r * count;
    int64_t *q = AMP_DATA(int64_t, output) + r * k;
    double total, *sum = lent->data;
    amp_pair *v = lent->data;
    if ((status = check_weights(p, count, r, again ? 1 : k, &total)) < 0) break;
    if (again) {
      double run = 0;
      int64_t last = 0;
      for (int64_t i = 0; i < count; i++) {
        sum[i] = run += p[i];
        if (p[i] > 0) last = i;
      }
      for (int64_t j = 0; j < k; j++) { /* the first whose running sum is above u */
        const double u = next(&stream) * run;
        int64_t lo = 0, hi = last;
        while (lo < hi) {
          const int64_t mid = (lo + hi) / 2;
          if (sum[mid] > u) hi = mid;
          else lo = mid + 1;
        }
        q[j] = lo + 1;
      }
    } else { /* the k first arrivals of processes with these rates */
      double t[AMP_CHUNK];
      uint64_t key[AMP_CHUNK];
      for (int64_t start = 0; start < count; start += AMP_CHUNK) {
        const int64_t m = count - start < AMP_CHUNK ? count - start : AMP_CHUNK;
        for (int64_t i = 0; i < m; i++) t[i] = p[start + i] > 0 ? -log(1 - next(&stream)) / p[start + i] : INFINITY;
        amp__keys64(key, AMP_FLOAT64, t, 1, m, false);
        for (int64_t i = 0; i < m; i++) v[start + i] = (amp_pair){ key[i], (uint64_t)(start + i) };
      }
      amp__select64(v, v + count, count, k - 1);
      amp__order64(v, v + count, k);
      for (int64_t j = 0; j < k; j++) q[j] = (int64_t)v[j].place + 1;
    }
  }
  if (status == 0) status = amp__copy_to(out, output);
out:
  if (lent) amp__block_free(lent);
  amp__free(output);
  amp__free(w);
  return status;
}
