/*
** ops/order/search.c: places and counts of values: searchsorted, bucketize, isin,
** histc, one_hot.
**
** Searches are branch-free halvings of a dense row, eight side by side; NaN is
** larger than all, as in sort. isin compares keys (ops/order/sort.h): with each of a few test elements by
** vectors, else by a search among the sorted ones.
*/
#include <math.h>
#include "ops/order/sort.h"
#include "cpu/vector_math.h"

/* out itself if kernels can write int64 in C order there, else a tensor to be copied by `settled`. NULL: error */
static amp_tensor *counts_of(amp_tensor *out)
{
  if (out->dtype == AMP_INT64 && (out->flags & AMP_T_CONTIGUOUS)) return out;
  return amp__tensor_make(AMP_INT64, AMP_CPU, 0, out->ndim, out->size);
}

static int settled(amp_tensor *out, amp_tensor *tensor, int status)
{
  if (tensor == NULL) return amp__S->err.code;
  if (tensor == out) return status;
  if (status == 0) status = amp__copy_to(out, tensor);
  amp__free(tensor);
  return status;
}

/* -- searchsorted, bucketize ------------------------------------------------------------------ */

typedef struct {
  const void *sorted, *values;
  int64_t *out;
  int64_t length, per_row, row_step;
  int compute_class;
  bool right;
} searching;

static int64_t not_nan_float(const float *sorted, int64_t n)
{
  while (n > 0 && sorted[n - 1] != sorted[n - 1]) n--;
  return n;
}
static int64_t not_nan_double(const double *sorted, int64_t n)
{
  while (n > 0 && sorted[n - 1] != sorted[n - 1]) n--;
  return n;
}

#define element float
#define SEARCH left_f32
#define BEFORE(s, x) ((s) < (x))
#define IS_NAN(x) ((x) != (x))
#define NAN_BEFORE not_nan_float(s, task->length)
#include "ops/order/search_body.h"

#define element float
#define SEARCH right_f32
#define BEFORE(s, x) ((s) <= (x))
#define IS_NAN(x) ((x) != (x))
#define NAN_BEFORE task->length
#include "ops/order/search_body.h"

#define element double
#define SEARCH left_f64
#define BEFORE(s, x) ((s) < (x))
#define IS_NAN(x) ((x) != (x))
#define NAN_BEFORE not_nan_double(s, task->length)
#include "ops/order/search_body.h"

#define element double
#define SEARCH right_f64
#define BEFORE(s, x) ((s) <= (x))
#define IS_NAN(x) ((x) != (x))
#define NAN_BEFORE task->length
#include "ops/order/search_body.h"

#define element int64_t
#define SEARCH left_i64
#define BEFORE(s, x) ((s) < (x))
#define IS_NAN(x) false
#define NAN_BEFORE 0
#include "ops/order/search_body.h"

#define element int64_t
#define SEARCH right_i64
#define BEFORE(s, x) ((s) <= (x))
#define IS_NAN(x) false
#define NAN_BEFORE 0
#include "ops/order/search_body.h"

static void search_part(int64_t begin, int64_t end, void *ctx)
{
  const searching *task = ctx;
  switch (task->compute_class * 2 + task->right) {
  case AMP_C_F32 * 2: left_f32(task, begin, end); break;
  case AMP_C_F32 * 2 + 1: right_f32(task, begin, end); break;
  case AMP_C_F64 * 2: left_f64(task, begin, end); break;
  case AMP_C_F64 * 2 + 1: right_f64(task, begin, end); break;
  case AMP_C_I64 * 2: left_i64(task, begin, end); break;
  default: right_i64(task, begin, end);
  }
}

static int search(amp_call *call, amp_tensor *seq, amp_tensor *values, bool right)
{
  int cls = amp__class_of(-1, call->in, 2), dtype = amp__class_dtype[cls], status = 0;
  amp_tensor *sorted = amp__dense(seq, dtype), *input = amp__dense(values, dtype), *out = counts_of(call->out[0]);
  if (sorted == NULL || input == NULL || out == NULL) status = amp__S->err.code;
  else if (input->numel > 0) {
    AMP_ASSERT(seq->ndim > 0 && (seq->ndim == 1 || seq->ndim == values->ndim));
    int64_t length = seq->size[seq->ndim - 1];
    searching task = { .sorted = amp__data(sorted),
                       .values = amp__data(input),
                       .out = AMP_DATA(int64_t, out),
                       .length = length,
                       .per_row = input->ndim ? input->size[input->ndim - 1] : 1,
                       .row_step = seq->ndim > 1 ? length : 0,
                       .compute_class = cls,
                       .right = right };
    amp__parallel(amp__threads(input->numel * 16), input->numel, AMP_CHUNK, search_part, &task);
  }
  status = settled(call->out[0], out, status);
  amp__free(sorted);
  amp__free(input);
  return status;
}
int amp__cpu_searchsorted(amp_call *call)
{
  return search(call, call->in[0], call->in[1], AMP_ARGS(call, searchsorted)->right != 0);
}
int amp__cpu_bucketize(amp_call *call)
{
  return search(call, call->in[1], call->in[0], AMP_ARGS(call, bucketize)->right != 0);
}

/* -- isin ------------------------------------------------------------------------------------------ */

typedef struct {
  const uint64_t *keys;
  uint8_t *out;
  const uint64_t *test;
  int64_t tests;
  bool invert, is_float;
} testing;

static AMP_CLONES_WIDE void test_few(uint8_t *out, const uint64_t *k, int64_t n, const uint64_t *test, int64_t count)
{
  uint64_t hit[AMP_CHUNK];
  for (int64_t i = 0; i < n; i++) hit[i] = 0;
  for (int64_t j = 0; j < count; j++) {
    const uint64_t t = test[j];
    for (int64_t i = 0; i < n; i++) hit[i] |= k[i] == t;
  }
  for (int64_t i = 0; i < n; i++) out[i] = (uint8_t)hit[i];
}

static void test_part(int64_t begin, int64_t end, void *ctx)
{
  const testing *task = ctx;
  for (int64_t at = begin; at < end; at += AMP_CHUNK) {
    const int64_t n = end - at < AMP_CHUNK ? end - at : AMP_CHUNK;
    const uint64_t *k = task->keys + at;
    uint8_t *out = task->out + at;
    if (task->tests <= 16) test_few(out, k, n, task->test, task->tests);
    else
      for (int64_t i = 0; i < n; i++) {
        const uint64_t *p = task->test;
        for (int64_t m = task->tests; m > 1;) {
          const int64_t half = m / 2;
          p += p[half] <= k[i] ? half : 0;
          m -= half;
        }
        out[i] = *p == k[i];
      }
    if (task->is_float)
      for (int64_t i = 0; i < n; i++) out[i] &= k[i] != ~(uint64_t)0; /* NaN equals nothing */
    if (task->invert)
      for (int64_t i = 0; i < n; i++) out[i] ^= 1;
  }
}

/* Keys of the tensor's elements in C order, as doubles or int64; an int64 tensor. NULL: error */
static amp_tensor *keys_of(amp_tensor *tensor, int dtype)
{
  amp_tensor *d = amp__dense(tensor, dtype), *k = d ? amp__tensor_make(AMP_INT64, AMP_CPU, 0, 1, &tensor->numel) : NULL;
  if (k) amp__keys64(AMP_DATA(uint64_t, k), dtype, amp__data(d), 1, tensor->numel, false);
  amp__free(d);
  return k;
}

int amp__cpu_isin(amp_call *call)
{
  bool is_float = amp__class_of(-1, call->in, 2) != AMP_C_I64;
  int dtype = is_float ? AMP_FLOAT64 : AMP_INT64, status = 0;
  amp_tensor *out = call->out[0], *key = keys_of(call->in[0], dtype), *test = keys_of(call->in[1], dtype), *o = NULL;
  amp_block *lent = NULL;
  if (key == NULL || test == NULL) {
    status = amp__S->err.code;
    goto out;
  }
  o = out->dtype == AMP_BOOL && (out->flags & AMP_T_CONTIGUOUS)
          ? out
          : amp__tensor_make(AMP_BOOL, AMP_CPU, 0, out->ndim, out->size);
  if (o == NULL) {
    status = amp__S->err.code;
    goto out;
  }
  testing task = { .keys = AMP_DATA(uint64_t, key),
                   .out = AMP_DATA(uint8_t, o),
                   .test = AMP_DATA(uint64_t, test),
                   .tests = test->numel,
                   .invert = AMP_ARGS(call, isin)->invert != 0,
                   .is_float = is_float };
  if (task.tests > 16) {
    if ((lent = amp__block_new(AMP_CPU, 0, 2 * sizeof(amp_pair) * (size_t)task.tests)) == NULL) {
      status = amp__S->err.code;
      goto out;
    }
    amp_pair *v = lent->data;
    uint64_t *k = AMP_DATA(uint64_t, test);
    for (int64_t i = 0; i < task.tests; i++) v[i] = (amp_pair){ k[i], (uint64_t)i };
    amp__sort64(v, v + task.tests, task.tests);
    for (int64_t i = 0; i < task.tests; i++) k[i] = v[i].key;
  }
  amp__parallel(amp__threads(key->numel * 8), key->numel, AMP_CHUNK, test_part, &task);
  if (o != out) status = amp__copy_to(out, o);
out:
  if (o != out) amp__free(o);
  if (lent) amp__block_free(lent);
  amp__free(test);
  amp__free(key);
  return status;
}

/* -- Counts ------------------------------------------------------------------------------------------ */

/* Elements of [min, max] in equal bins; max counts for the last one, others for none */
int amp__cpu_histc(amp_call *call)
{
  const args_histc *args = AMP_ARGS(call, histc);
  int64_t bins = args->bins;
  double low = args->min, high = args->max;
  amp_tensor *input = amp__dense(call->in[0], AMP_FLOAT64), *n = amp__tensor_make(AMP_INT64, AMP_CPU, 0, 1, &bins);
  int status = input && n ? amp__fill_value(n, 0) : amp__S->err.code;
  if (status < 0) goto out;
  const double *data = AMP_DATA(double, input);
  int64_t *count = AMP_DATA(int64_t, n);
  if (low == high && low == 0 && input->numel > 0) {
    low = high = data[0];
    for (int64_t i = 1; i < input->numel; i++) {
      low = data[i] < low || data[i] != data[i] ? data[i] : low;
      high = data[i] > high || data[i] != data[i] ? data[i] : high;
    }
    if (!isfinite(low) || !isfinite(high)) {
      status = amp__fail(AMP_E_VALUE, "the elements range from %g to %g, which is not finite; give min and max",
                         isnan(low) ? (double)NAN : low, isnan(high) ? (double)NAN : high);
      goto out;
    }
  }
  if (low == high) {
    low--;
    high++;
  }
  const double scale = (double)bins / (high - low);
  for (int64_t i = 0; i < input->numel; i++) {
    if (!(data[i] >= low && data[i] <= high)) continue;
    int64_t at = (int64_t)((data[i] - low) * scale);
    count[at < bins ? at : bins - 1]++;
  }
  status = amp__copy_to(call->out[0], n);
out:
  amp__free(input);
  amp__free(n);
  return status;
}

int amp__cpu_one_hot(amp_call *call)
{
  amp_tensor *values = amp__dense(call->in[0], AMP_INT64), *out = counts_of(call->out[0]);
  int64_t classes = AMP_ARGS(call, one_hot)->num_classes;
  int status = values && out ? amp__fill_value(out, 0) : amp__S->err.code;
  if (status == 0) {
    AMP_ASSERT(out->numel == values->numel * classes);
    const int64_t *p = AMP_DATA(int64_t, values);
    int64_t *q = AMP_DATA(int64_t, out);
    for (int64_t i = 0; i < values->numel && status == 0; i++) {
      if (p[i] < 1 || p[i] > classes)
        status = amp__fail(AMP_E_INDEX,
                           "label %lld (element %lld) is out of range: labels are 1 to num_classes, which is %lld",
                           (long long)p[i], (long long)i + 1, (long long)classes);
      else q[i * classes + p[i] - 1] = 1;
    }
  }
  amp__free(values);
  return settled(call->out[0], out, status);
}
