/*
** cpu_search.c: places and counts of values: searchsorted, bucketize, isin,
** count_nonzero, histc, one_hot.
**
** Searches are branch-free halvings of a dense row, eight side by side; NaN is
** larger than all, as in sort. isin compares keys (cpu_sort.h): with each of a few test elements by
** vectors, else by a search among the sorted ones.
*/
#include <math.h>
#include "cpu_sort.h"
#include "cpu_math.h"

/* out itself if kernels can write int64 in C order there, else a tensor to be copied by `settled`. NULL: error */
static amp_tensor *counts_of(amp_tensor *out)
{
  if (out->dtype == AMP_INT64 && (out->flags & AMP_T_CONTIGUOUS)) return out;
  return amp__tensor_make(AMP_INT64, AMP_CPU, 0, out->ndim, out->size);
}

static int settled(amp_tensor *out, amp_tensor *t, int rc)
{
  if (t == NULL) return amp__S->err.code;
  if (t == out) return rc;
  if (rc == 0) rc = amp__copy_to(out, t);
  amp__free(t);
  return rc;
}

/* -- searchsorted, bucketize ------------------------------------------------------------------ */

typedef struct { const void *seq, *v; int64_t *out; int64_t n, m, row; int cls; bool right; } searching;

/* How many of the n elements of s come before x (or are equal to it): TEST is < (<=), false where s is NaN. Eight
** searches go side by side, so that one waits for memory while others halve. */
#define SEARCH(T, TEST, NAN_BEFORE) \
{ \
  const T *s = k->seq, *v = k->v; \
  for (int64_t i = lo, end; i < hi; i = end) { \
    end = k->row ? (i / k->m + 1) * k->m : hi; /* what one row of s is for */ \
    if (end > hi) end = hi; \
    if (k->row) s = (const T *)k->seq + i / k->m * k->row; \
    for (int64_t j = i; j < end; j += 8) { \
      const int w = end - j < 8 ? (int)(end - j) : 8; \
      int64_t at[8] = { 0 }, n = k->n; \
      T x[8] = { 0 }; \
      for (int l = 0; l < w; l++) x[l] = v[j + l]; \
      for (; n > 1; n -= n / 2) \
        for (int l = 0; l < 8; l++) at[l] += s[at[l] + n / 2 - 1] TEST x[l] ? n / 2 : 0; \
      for (int l = 0; l < w; l++) { \
        if (x[l] != x[l]) at[l] = NAN_BEFORE; \
        else if (n == 1) at[l] += s[at[l]] TEST x[l]; \
        k->out[j + l] = at[l] + 1; \
      } \
    } \
  } \
}
#define NOT_NAN(T) not_nan_##T(s, k->n)
static int64_t not_nan_float(const float *s, int64_t n) { while (n > 0 && s[n - 1] != s[n - 1]) n--; return n; }
static int64_t not_nan_double(const double *s, int64_t n) { while (n > 0 && s[n - 1] != s[n - 1]) n--; return n; }

static void search_part(int64_t lo, int64_t hi, void *ctx)
{
  const searching *k = ctx;
  switch (k->cls * 2 + k->right) {
  case AMP_C_F32 * 2: SEARCH(float, <, NOT_NAN(float)) break;
  case AMP_C_F32 * 2 + 1: SEARCH(float, <=, k->n) break;
  case AMP_C_F64 * 2: SEARCH(double, <, NOT_NAN(double)) break;
  case AMP_C_F64 * 2 + 1: SEARCH(double, <=, k->n) break;
  case AMP_C_I64 * 2: SEARCH(int64_t, <, 0) break;
  default: SEARCH(int64_t, <=, 0)
  }
}

static int search(amp_call *c, amp_tensor *seq, amp_tensor *v, bool right)
{
  int cls = amp__class_of(-1, c->in, 2), dtype = amp__class_dtype[cls], rc = 0;
  amp_tensor *s = amp__dense(seq, dtype), *x = amp__dense(v, dtype), *out = counts_of(c->out[0]);
  if (s == NULL || x == NULL || out == NULL) rc = amp__S->err.code;
  else if (x->numel > 0) {
    searching k = { amp__data(s), amp__data(x), AMP_DATA(int64_t, out), seq->size[seq->ndim - 1], x->ndim ? x->size[x->ndim - 1] : 1, 0, cls, right };
    k.row = seq->ndim > 1 ? k.n : 0;
    amp__parallel(amp__threads(x->numel * 16), x->numel, AMP_CHUNK, search_part, &k);
  }
  rc = settled(c->out[0], out, rc);
  amp__free(s);
  amp__free(x);
  return rc;
}
int amp__cpu_searchsorted(amp_call *c) { return search(c, c->in[0], c->in[1], c->a[0].i != 0); }
int amp__cpu_bucketize(amp_call *c) { return search(c, c->in[1], c->in[0], c->a[0].i != 0); }

/* -- isin ------------------------------------------------------------------------------------------ */

typedef struct { const uint64_t *key; uint8_t *out; const uint64_t *test; int64_t n; bool invert, is_float; } testing;

static AMP_CLONES_WIDE void test_few(uint8_t *o, const uint64_t *k, int64_t n, const uint64_t *test, int64_t m)
{
  uint64_t hit[AMP_CHUNK];
  for (int64_t i = 0; i < n; i++) hit[i] = 0;
  for (int64_t j = 0; j < m; j++) {
    const uint64_t t = test[j];
    for (int64_t i = 0; i < n; i++) hit[i] |= k[i] == t;
  }
  for (int64_t i = 0; i < n; i++) o[i] = (uint8_t)hit[i];
}

static void test_part(int64_t lo, int64_t hi, void *ctx)
{
  const testing *t = ctx;
  for (int64_t at = lo; at < hi; at += AMP_CHUNK) {
    const int64_t n = hi - at < AMP_CHUNK ? hi - at : AMP_CHUNK;
    const uint64_t *k = t->key + at;
    uint8_t *o = t->out + at;
    if (t->n <= 16) test_few(o, k, n, t->test, t->n);
    else for (int64_t i = 0; i < n; i++) {
      const uint64_t *p = t->test;
      for (int64_t m = t->n; m > 1; ) { const int64_t half = m / 2; p += p[half] <= k[i] ? half : 0; m -= half; }
      o[i] = *p == k[i];
    }
    if (t->is_float) for (int64_t i = 0; i < n; i++) o[i] &= k[i] != ~(uint64_t)0; /* NaN equals nothing */
    if (t->invert) for (int64_t i = 0; i < n; i++) o[i] ^= 1;
  }
}

/* Keys of t's elements in C order, as doubles or int64; an int64 tensor. NULL: error */
static amp_tensor *keys_of(amp_tensor *t, int dtype)
{
  amp_tensor *d = amp__dense(t, dtype), *k = d ? amp__tensor_make(AMP_INT64, AMP_CPU, 0, 1, &t->numel) : NULL;
  if (k) amp__keys64(AMP_DATA(uint64_t, k), dtype, amp__data(d), 1, t->numel, false);
  amp__free(d);
  return k;
}

int amp__cpu_isin(amp_call *c)
{
  bool is_float = amp__class_of(-1, c->in, 2) != AMP_C_I64;
  int dtype = is_float ? AMP_FLOAT64 : AMP_INT64, rc = 0;
  amp_tensor *out = c->out[0], *key = keys_of(c->in[0], dtype), *test = keys_of(c->in[1], dtype), *o = NULL;
  amp_block *lent = NULL;
  if (key == NULL || test == NULL) { rc = amp__S->err.code; goto out; }
  o = out->dtype == AMP_BOOL && (out->flags & AMP_T_CONTIGUOUS) ? out : amp__tensor_make(AMP_BOOL, AMP_CPU, 0, out->ndim, out->size);
  if (o == NULL) { rc = amp__S->err.code; goto out; }
  testing t = { AMP_DATA(uint64_t, key), AMP_DATA(uint8_t, o), AMP_DATA(uint64_t, test), test->numel, c->a[1].i != 0, is_float };
  if (t.n > 16) {
    if ((lent = amp__block_new(AMP_CPU, 0, 2 * sizeof(amp_pair) * (size_t)t.n)) == NULL) { rc = amp__S->err.code; goto out; }
    amp_pair *v = lent->data;
    uint64_t *k = AMP_DATA(uint64_t, test);
    for (int64_t i = 0; i < t.n; i++) v[i] = (amp_pair){ k[i], (uint64_t)i };
    amp__sort64(v, v + t.n, t.n);
    for (int64_t i = 0; i < t.n; i++) k[i] = v[i].key;
  }
  amp__parallel(amp__threads(key->numel * 8), key->numel, AMP_CHUNK, test_part, &t);
  if (o != out) rc = amp__copy_to(out, o);
out:
  if (o != out) amp__free(o);
  if (lent) amp__block_free(lent);
  amp__free(test);
  amp__free(key);
  return rc;
}

/* -- Counts ------------------------------------------------------------------------------------------ */

int amp__cpu_count_nonzero(amp_call *c)
{
  amp_tensor *zero = amp__number(0), *in[2] = { c->in[0], zero }, *ne[AMP_MAX_OUT] = { NULL }, *out[AMP_MAX_OUT] = { c->out[0] };
  amp_slot a[11] = { { .i = c->a[0].i } };
  int rc = zero ? amp__dispatch(AMP_OP_ne, 0, in, 2, ne, NULL) : amp__S->err.code;
  for (int i = 1; c->a[0].i != AMP_NONE && i <= c->a[0].i; i++) a[i].i = c->a[i].i + 1; /* those behind the count are anything */
  a[10].i = AMP_INT64;
  if (rc == 0) rc = amp__dispatch(AMP_OP_sum, AMP_OUT, ne, 1, out, a);
  amp__free(ne[0]);
  amp__free(zero);
  return rc;
}

/* Elements of [min, max] in equal bins; max counts for the last one, others for none */
int amp__cpu_histc(amp_call *c)
{
  int64_t bins = c->a[0].i;
  double low = c->a[1].f, high = c->a[2].f;
  amp_tensor *x = amp__dense(c->in[0], AMP_FLOAT64), *n = amp__tensor_make(AMP_INT64, AMP_CPU, 0, 1, &bins);
  int rc = x && n ? amp__fill_value(n, 0) : amp__S->err.code;
  if (rc < 0) goto out;
  const double *p = AMP_DATA(double, x);
  int64_t *count = AMP_DATA(int64_t, n);
  if (low == high && low == 0 && x->numel > 0) {
    low = high = p[0];
    for (int64_t i = 1; i < x->numel; i++) {
      low = p[i] < low || p[i] != p[i] ? p[i] : low;
      high = p[i] > high || p[i] != p[i] ? p[i] : high;
    }
    if (!isfinite(low) || !isfinite(high)) {
      rc = amp__fail(AMP_E_VALUE, "the elements range from %g to %g, which is not finite; give min and max", isnan(low) ? (double)NAN : low, isnan(high) ? (double)NAN : high);
      goto out;
    }
  }
  if (low == high) { low--; high++; }
  const double scale = (double)bins / (high - low);
  for (int64_t i = 0; i < x->numel; i++) {
    if (!(p[i] >= low && p[i] <= high)) continue;
    int64_t at = (int64_t)((p[i] - low) * scale);
    count[at < bins ? at : bins - 1]++;
  }
  rc = amp__copy_to(c->out[0], n);
out:
  amp__free(x);
  amp__free(n);
  return rc;
}

int amp__cpu_one_hot(amp_call *c)
{
  amp_tensor *v = amp__dense(c->in[0], AMP_INT64), *o = counts_of(c->out[0]);
  int64_t classes = c->a[0].i;
  int rc = v && o ? amp__fill_value(o, 0) : amp__S->err.code;
  if (rc == 0) {
    const int64_t *p = AMP_DATA(int64_t, v);
    int64_t *q = AMP_DATA(int64_t, o);
    for (int64_t i = 0; i < v->numel && rc == 0; i++) {
      if (p[i] < 1 || p[i] > classes)
        rc = amp__fail(AMP_E_INDEX, "label %lld (element %lld) is out of range: labels are 1 to num_classes, which is %lld", (long long)p[i], (long long)i + 1, (long long)classes);
      else q[i * classes + p[i] - 1] = 1;
    }
  }
  amp__free(v);
  return settled(c->out[0], o, rc);
}
