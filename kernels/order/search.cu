/*
** search.cu: places and counts of values: searchsorted, bucketize, isin, histc,
** one_hot.
**
** A thread halves a sorted row for its value; NaN is larger than all, as in sort.
** isin compares keys (sort.cuh): with each of a few test elements, else by a
** search among the sorted ones. Counts are integers, so atomics repeat exactly.
*/
#include "elementwise/elementwise.cuh"
#include "order/sort.cuh"

namespace {

enum { FEW = 64, BINS = 4096 };

/* -- Kernels ----------------------------------------------------------------------- */

/* How many of a row's n elements come before x (right: or are equal to it) */
template <class T>
__global__ void __launch_bounds__(256)
    search_rows(const T *seq, int64_t n, bool rows, const T *v, int64_t each, int64_t count, int64_t *out, bool right)
{
  AMP_FOR(i, count)
  {
    const T *s = rows ? seq + i / each * n : seq;
    T x = v[i];
    int64_t lo = 0, hi = n;
    while (lo < hi) {
      int64_t mid = (lo + hi) >> 1;
      T y = s[mid];
      bool before = x != x ? right || y == y : right ? y <= x : y < x;
      if (before) lo = mid + 1;
      else hi = mid;
    }
    out[i] = lo + 1;
  }
}

__global__ void __launch_bounds__(256) test_keys(const void *x, int dtype, int64_t n, const void *test,
                                                 const uint64_t *sorted, int64_t m, uint8_t *out, bool invert)
{
  AMP_FOR(i, n)
  {
    uint64_t key = amp_key64(x, dtype, i);
    bool hit = false;
    if (sorted) {
      int64_t lo = 0, hi = m;
      while (lo < hi) {
        int64_t mid = (lo + hi) >> 1;
        if (sorted[mid] < key) lo = mid + 1;
        else hi = mid;
      }
      hit = lo < m && sorted[lo] == key;
    } else
      for (int64_t j = 0; j < m; j++) hit |= amp_key64(test, dtype, j) == key;
    if (dtype == AMP_FLOAT64 && key == ~(uint64_t)0) hit = false; /* NaN equals nothing */
    out[i] = hit != invert;
  }
}

typedef struct bins {
  double low, high;
  const double *least, *most;
  int64_t n;
} bins; /* least, most: of the card, or NULL */

/* Elements of [low, high] in equal bins; high counts for the last one */
__global__ void __launch_bounds__(256)
    count_bins(const char *x, int dtype, int64_t n, const bins b, unsigned long long *count, amp_trouble *trouble)
{
  AMP_SHARED(unsigned, part);
  double low = b.least ? *b.least : b.low, high = b.most ? *b.most : b.high;
  const bool shared = b.n <= BINS;
  if (!(low - low == 0) || !(high - high == 0)) {
    if (blockIdx.x == 0 && threadIdx.x == 0)
      amp_note(trouble, AMP_TROUBLE_RANGE, AMP_OP_histc, 0, 0, 0, low - low == 0 ? high : low);
    return;
  }
  if (low == high) {
    low--;
    high++;
  }
  const double scale = (double)b.n / (high - low);
  if (shared)
    for (int k = threadIdx.x; k < b.n; k += blockDim.x) part[k] = 0;
  __syncthreads();
  AMP_FOR(i, n)
  {
    double v = amp_load<double>(x, dtype, i);
    if (!(v >= low && v <= high)) continue;
    int64_t at = (int64_t)((v - low) * scale);
    if (at >= b.n) at = b.n - 1;
    if (shared) atomicAdd(&part[at], 1u);
    else atomicAdd(&count[at], 1ull);
  }
  __syncthreads();
  if (shared)
    for (int k = threadIdx.x; k < b.n; k += blockDim.x)
      if (part[k]) atomicAdd(&count[k], (unsigned long long)part[k]);
}

__global__ void mark_labels(const char *v, int dtype, int64_t n, int64_t classes, char *o, int otype,
                            amp_trouble *trouble)
{
  AMP_FOR(i, n)
  {
    int64_t k = amp_load<int64_t>(v, dtype, i);
    if (k < 1 || k > classes) amp_note(trouble, AMP_TROUBLE_LABEL, AMP_OP_one_hot, k, classes, i);
    else amp_store<int64_t>(o, otype, i * classes + k - 1, (int64_t)1);
  }
}

/* -- Calls ------------------------------------------------------------------------------ */

static const int dtype_of[3] = { AMP_FLOAT32, AMP_FLOAT64, AMP_INT64 }; /* of AMP_EW_F32... */

/* t in dtype and C order on the card, a number too. NULL: error */
static amp_tensor *dense(amp_tensor *t, int dtype)
{
  if (t->device != AMP_CPU) return amp__cuda_dense(t, dtype);
  amp_tensor *d = amp__cuda_make(dtype, t->ndim, t->size);
  if (d && amp__cuda_fill_value(d, amp__value_get(amp__data(t), t->dtype)) < 0) {
    amp__free(d);
    return NULL;
  }
  return d;
}

/* out itself if it is of this dtype and in C order, else a tensor to be copied by `received`. NULL: error */
static amp_tensor *receiver(amp_tensor *out, int dtype)
{
  return out->dtype == dtype && amp__cuda_plain(out) ? out : amp__cuda_make(dtype, out->ndim, out->size);
}
static int received(amp_tensor *out, amp_tensor *t, int rc)
{
  if (t == out) return rc;
  if (rc == 0) rc = amp__cuda_copy_to(out, t);
  amp__free(t);
  return rc;
}

template <class T> static void search_as(amp_tensor *s, amp_tensor *x, amp_tensor *o, bool right)
{
  AMP_LAUNCH((search_rows<T>), amp_grid(x->numel, 256), 256, 0, AMP_DATA(const T, s), s->size[s->ndim - 1], s->ndim > 1,
             AMP_DATA(const T, x), x->ndim ? x->size[x->ndim - 1] : 1, x->numel, AMP_DATA(int64_t, o), right);
}

static int search(amp_call *c, amp_tensor *seq, amp_tensor *v, bool right)
{
  int cls = amp_ew_class(-1, c->in, 2);
  amp_tensor *s = dense(seq, dtype_of[cls]), *x = dense(v, dtype_of[cls]), *o = receiver(c->out[0], AMP_INT64);
  int rc = s && x && o ? 0 : AMP_E_MEMORY;
  if (rc == 0 && x->numel > 0) {
    if (cls == AMP_EW_F32) search_as<float>(s, x, o, right);
    else if (cls == AMP_EW_F64) search_as<double>(s, x, o, right);
    else search_as<int64_t>(s, x, o, right);
  }
  if (o) rc = received(c->out[0], o, rc);
  amp__free(s);
  amp__free(x);
  return rc;
}

} // namespace

extern "C" {

int amp__cuda_searchsorted(amp_call *c) { return search(c, c->in[0], c->in[1], AMP_ARGS(c, searchsorted)->right != 0); }
int amp__cuda_bucketize(amp_call *c) { return search(c, c->in[1], c->in[0], AMP_ARGS(c, bucketize)->right != 0); }

int amp__cuda_isin(amp_call *c)
{
  int dtype = amp_ew_class(-1, c->in, 2) != AMP_EW_I64 ? AMP_FLOAT64 : AMP_INT64;
  amp_tensor *x = dense(c->in[0], dtype), *test = dense(c->in[1], dtype), *o = receiver(c->out[0], AMP_BOOL),
             *key = NULL;
  int rc = x && test && o ? 0 : AMP_E_MEMORY;
  if (rc == 0 && test->numel > FEW) {
    if ((key = amp__cuda_make(AMP_INT64, 1, &test->numel)) == NULL) rc = AMP_E_MEMORY;
    else rc = amp_sort_keys(test, AMP_DATA(uint64_t, key));
  }
  if (rc == 0 && x->numel > 0)
    AMP_LAUNCH(test_keys, amp_grid(x->numel, 256), 256, 0, amp__data(x), dtype, x->numel, amp__data(test),
               key ? AMP_DATA(const uint64_t, key) : (const uint64_t *)NULL, test->numel, AMP_DATA(uint8_t, o),
               AMP_ARGS(c, isin)->invert != 0);
  if (o) rc = received(c->out[0], o, rc);
  amp__free(key);
  amp__free(test);
  amp__free(x);
  return rc;
}

int amp__cuda_histc(amp_call *c)
{
  const args_histc *args = AMP_ARGS(c, histc);
  int64_t n = args->bins;
  bins b = { args->min, args->max, NULL, NULL, n };
  amp_tensor *x = amp__cuda_dense(c->in[0], c->in[0]->dtype), *count = amp__cuda_make(AMP_INT64, 1, &n), *wide = NULL,
             *least = NULL, *most = NULL;
  int rc = x && count ? amp__cuda_fill_value(count, 0) : AMP_E_MEMORY;
  if (rc == 0 && b.low == b.high && b.low == 0 && x->numel > 0) {
    amp_slot all[AMP_MAX_SLOT];
    memset((void *)all, 0, sizeof all);
    ((args_amin *)all)->dim.n = AMP_NONE;
    if ((wide = amp__cuda_dense(x, AMP_FLOAT64)) == NULL || (least = amp__cuda_op(AMP_OP_amin, &wide, 1, all)) == NULL)
      rc = AMP_E_MEMORY;
    ((args_amax *)all)->dim.n = AMP_NONE;
    if (rc == 0 && (most = amp__cuda_op(AMP_OP_amax, &wide, 1, all)) == NULL) rc = AMP_E_MEMORY;
    if (rc == 0) {
      b.least = AMP_DATA(double, least);
      b.most = AMP_DATA(double, most);
    }
  }
  if (rc == 0 && x->numel > 0)
    AMP_LAUNCH(count_bins, amp_grid(x->numel, 2048, 8), 256, n <= BINS ? (size_t)n * 4 : 0, AMP_DATA(const char, x),
               (int)x->dtype, x->numel, b, AMP_DATA(unsigned long long, count), amp_trouble_cell());
  if (rc == 0) rc = amp__cuda_copy_to(c->out[0], count);
  amp__free(most);
  amp__free(least);
  amp__free(wide);
  amp__free(count);
  amp__free(x);
  return rc;
}

int amp__cuda_one_hot(amp_call *c)
{
  amp_tensor *v = amp__cuda_dense(c->in[0], c->in[0]->dtype), *o = receiver(c->out[0], c->out[0]->dtype);
  int rc = v && o ? amp__cuda_fill_value(o, 0) : AMP_E_MEMORY;
  if (rc == 0 && v->numel > 0)
    AMP_LAUNCH(mark_labels, amp_grid(v->numel, 256), 256, 0, AMP_DATA(const char, v), (int)v->dtype, v->numel,
               AMP_ARGS(c, one_hot)->num_classes, AMP_DATA(char, o), (int)o->dtype, amp_trouble_cell());
  amp__free(v);
  return o ? received(c->out[0], o, rc) : rc;
}
}
