/*
** draw.cu: random draws that take more than a formula: exponential, multinomial,
** permutations.
**
** With replacement a value looks for its place among the running sums of weights;
** without, each weight is the rate of a process and the k first arrivals win. A
** permutation sorts 64 random bits an element (equal ones keep their order, which
** happens in one of 2^64 / n^2 permutations).
*/
#include "common/philox.cuh"
#include "order/sort.cuh"

namespace {

__global__ void fill_exponential(char *p, int dtype, int64_t n, double rate, const amp_rng rng)
{
  AMP_FOR(j, (n + 1) / 2)
  {
    uint4 w = amp_philox(rng, (uint64_t)j);
    if (dtype == AMP_FLOAT64) {
      amp_store<double>(p, dtype, 2 * j, -log1p(-amp_uniform2(w.x, w.y)) / rate);
      if (2 * j + 1 < n) amp_store<double>(p, dtype, 2 * j + 1, -log1p(-amp_uniform2(w.z, w.w)) / rate);
    } else {
      amp_store<float>(p, dtype, 2 * j, -logf(1.f - amp_uniform(w.x)) * (float)(1 / rate));
      if (2 * j + 1 < n) amp_store<float>(p, dtype, 2 * j + 1, -logf(1.f - amp_uniform(w.z)) * (float)(1 / rate));
    }
  }
}

__global__ void fill_bits(uint64_t *p, int64_t n, const amp_rng rng)
{
  AMP_FOR(j, (n + 1) / 2)
  {
    uint4 w = amp_philox(rng, (uint64_t)j);
    p[2 * j] = (uint64_t)w.x << 32 | w.y;
    if (2 * j + 1 < n) p[2 * j + 1] = (uint64_t)w.z << 32 | w.w;
  }
}

/* Notes what is wrong with weights; a block a row */
__global__ void __launch_bounds__(256)
    check_weights(const double *w, int64_t rows, int64_t n, int64_t need, amp_trouble *trouble)
{
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    int64_t positive = 0;
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      double v = w[r * n + i];
      if (!(v >= 0) || isinf(v)) amp_note(trouble, AMP_TROUBLE_PROBABILITY, AMP_OP_multinomial, 0, 0, r, v);
      positive += v > 0;
      sum += v;
    }
    positive = amp_reduce_block<amp_sum>(positive, (int64_t)0);
    sum = amp_reduce_block<amp_sum>(sum, 0.0);
    if (threadIdx.x) continue;
    if (positive < need) amp_note(trouble, AMP_TROUBLE_WEIGHTS, AMP_OP_multinomial, positive, need, r);
    else if (isinf(sum)) amp_note(trouble, AMP_TROUBLE_PROBABILITY, AMP_OP_multinomial, 0, 0, r, sum);
  }
}

__global__ void arrivals(const double *w, double *t, int64_t n, const amp_rng rng)
{
  AMP_FOR(i, n)
  {
    uint4 r = amp_philox(rng, (uint64_t)i);
    t[i] = w[i] > 0 ? -log1p(-amp_uniform2(r.x, r.y)) / w[i] : (double)INFINITY;
  }
}

/* The first whose running sum is above a part of the whole */
__global__ void places(const double *sum, int64_t n, int64_t k, int64_t all, char *out, int otype, const amp_rng rng)
{
  AMP_FOR(e, all)
  {
    const double *s = sum + e / k * n;
    uint4 r = amp_philox(rng, (uint64_t)e);
    double u = amp_uniform2(r.x, r.y) * s[n - 1];
    int64_t lo = 0, hi = n;
    while (lo < hi) {
      int64_t mid = (lo + hi) >> 1;
      if (s[mid] > u) hi = mid;
      else lo = mid + 1;
    }
    if (lo == n) /* rounded up to the whole: the last with a weight */
      for (lo = n - 1; lo > 0 && !(s[lo] > s[lo - 1]);) lo--;
    amp_store<int64_t>(out, otype, e, lo + 1);
  }
}

static amp_tensor *receiver(amp_tensor *out)
{
  return amp__cuda_plain(out) ? out : amp__cuda_make(out->dtype, out->ndim, out->size);
}
static int received(amp_tensor *out, amp_tensor *t, int rc)
{
  if (t == out) return rc;
  if (rc == 0) rc = amp__cuda_copy_to(out, t);
  amp__free(t);
  return rc;
}

} // namespace

extern "C" {

int amp__cuda_exponential(amp_call *c)
{
  amp_tensor *o = c->out[0], *t = o->flags & AMP_T_DENSE ? o : receiver(o);
  if (t == NULL) return AMP_E_MEMORY;
  amp_rng rng = amp__cuda_rng((o->numel + 1) / 2);
  if (o->numel > 0)
    AMP_LAUNCH(fill_exponential, amp_grid(o->numel, 512), 256, 0, AMP_DATA(char, t), (int)t->dtype, o->numel,
               AMP_ARGS(c, exponential)->lambd, rng);
  return received(o, t, 0);
}

int amp__cuda_randperm(amp_call *c)
{
  amp_tensor *o = c->out[0];
  int64_t n = o->numel;
  if (n == 0) return 0;
  amp_tensor *t = amp__cuda_make(AMP_INT64, 1, &n);
  if (t == NULL) return AMP_E_MEMORY;
  amp_rng rng = amp__cuda_rng((n + 1) / 2);
  AMP_LAUNCH(fill_bits, amp_grid(n, 512), 256, 0, AMP_DATA(uint64_t, t), n, rng);
  int rc = amp_sort_index(t, 0, false, o);
  amp__free(t);
  return rc;
}

int amp__cuda_multinomial(amp_call *c)
{
  const args_multinomial *args = AMP_ARGS(c, multinomial);
  amp_tensor *weights = amp__cuda_dense(c->in[0], AMP_FLOAT64), *out = c->out[0], *scratch = NULL, *result;
  int64_t count = args->num_samples, n = c->in[0]->size[c->in[0]->ndim - 1], rows = n ? c->in[0]->numel / n : 0;
  int dim = c->in[0]->ndim - 1, rc = 0;
  bool again = args->replacement != 0;
  if (weights == NULL) return AMP_E_MEMORY;
  if (rows > 0) {
    AMP_LAUNCH(check_weights, amp_grid(rows, 1), 256, 0, AMP_DATA(const double, weights), rows, n, again ? 1 : count,
               amp_trouble_cell());
    if (again) {
      amp_slot slots[AMP_MAX_SLOT];
      args_cumsum *sums = (args_cumsum *)slots;
      memset((void *)slots, 0, sizeof slots);
      sums->dim = dim + 1;
      sums->dtype = AMP_NONE;
      scratch = amp__cuda_op(AMP_OP_cumsum, &weights, 1, slots);
      result = receiver(out);
      if (scratch && result) {
        amp_rng rng = amp__cuda_rng(rows * count);
        AMP_LAUNCH(places, amp_grid(rows * count, 256), 256, 0, AMP_DATA(const double, scratch), n, count, rows * count,
                   AMP_DATA(char, result), (int)result->dtype, rng);
      } else rc = AMP_E_MEMORY;
      if (result) rc = received(out, result, rc);
    } else if ((scratch = amp__cuda_make(AMP_FLOAT64, weights->ndim, weights->size)) != NULL) {
      amp_rng rng = amp__cuda_rng(weights->numel);
      AMP_LAUNCH(arrivals, amp_grid(weights->numel, 256), 256, 0, AMP_DATA(const double, weights),
                 AMP_DATA(double, scratch), weights->numel, rng);
      rc = amp_sort_least(scratch, dim, count, out);
    } else rc = AMP_E_MEMORY;
  }
  amp__free(scratch);
  amp__free(weights);
  return rc;
}
}
