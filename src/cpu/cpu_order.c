/*
** cpu_order.c: ops about the order of a row: sort, argsort, topk, kthvalue,
** median, nanmedian, mode.
**
** A row (a line along one dimension) becomes items of key and place (cpu_sort.h),
** which are sorted or selected; what is left of them names the results. Rows are
** shared among threads, each with a piece of one block of scratch memory. topk
** of few never holds its row: it keeps what beats the k-th best so far.
*/
#include "cpu_sort.h"
#include "cpu_math.h"

enum { SORT, TOPK, KTH, MEDIAN, NANMEDIAN, MODE };
typedef struct order {
  int what, dtype, nd;
  bool flip, sorted, wide, lean;    /* wide: 64-bit keys; lean: topk without the whole row */
  int64_t n, rows, k, room;         /* room: items of one scratch array */
  int64_t size[AMP_MAX_DIM], is[AMP_MAX_DIM], vs[AMP_MAX_DIM], xs[AMP_MAX_DIM]; /* the other dimensions */
  int64_t step, vstep, xstep;
  const char *in;
  char *values;                     /* NULL: not wanted */
  int64_t *index;
  char *scratch;
  int64_t scratch_bytes, parts;
} order;

#define MAKE32(k, i) ((uint64_t)(k) << 32 | (uint64_t)(i))
#define AT32(x) ((int64_t)((x) & 0xffffffffu))
#define KEY32(x) ((uint32_t)((x) >> 32))
#define MAKE64(k, i) ((amp_pair){ (k), (uint64_t)(i) })
#define AT64(x) ((int64_t)(x).at)
#define KEY64(x) ((x).key)

#define ANY(name, CLONES, K) \
static CLONES bool name(const K *k, K limit, int n) { int any = 0; for (int i = 0; i < n; i++) any |= k[i] <= limit; return any; }
ANY(any_32, AMP_CLONES, uint32_t)
ANY(any_64, AMP_CLONES_WIDE, uint64_t)

/* Which items of the row at p are the result: *first and how many */
#define ROW(S, ITEM, K) \
static void load_##S(const order *o, const char *p, ITEM *v) \
{ \
  K key[AMP_CHUNK]; \
  const int es = amp__dtype_size[o->dtype]; \
  for (int64_t at = 0; at < o->n; at += AMP_CHUNK) { \
    const int64_t m = o->n - at < AMP_CHUNK ? o->n - at : AMP_CHUNK; \
    amp__keys##S(key, o->dtype, p + at * o->step * es, o->step, m, o->flip); \
    for (int64_t i = 0; i < m; i++) v[at + i] = MAKE##S(key[i], at + i); \
  } \
} \
static void best_##S(const order *o, const char *p, ITEM *v, ITEM *spare) \
{ \
  enum { GROUP = 64 }; \
  K key[AMP_CHUNK], limit = ~(K)0; \
  const int es = amp__dtype_size[o->dtype]; \
  int64_t count = 0; \
  for (int64_t at = 0; at < o->n; at += AMP_CHUNK) { \
    const int64_t m = o->n - at < AMP_CHUNK ? o->n - at : AMP_CHUNK; \
    amp__keys##S(key, o->dtype, p + at * o->step * es, o->step, m, o->flip); \
    for (int64_t g = 0; g < m; g += GROUP) { \
      const int gn = m - g < GROUP ? (int)(m - g) : GROUP; \
      if (!any_##S(key + g, limit, gn)) continue; \
      for (int64_t i = g; i < g + gn; i++) { v[count] = MAKE##S(key[i], at + i); count += key[i] <= limit; } \
    } \
    if (count + AMP_CHUNK > o->room) { \
      amp__select##S(v, spare, count, o->k - 1); \
      count = o->k; \
      limit = KEY##S(v[o->k - 1]); \
      if (limit > 0) limit--; /* equals that come later lose */ \
      else break; \
    } \
  } \
  if (count > o->k) amp__select##S(v, spare, count, o->k - 1); \
} \
static int64_t row_##S(const order *o, const char *p, ITEM *v, ITEM *spare, ITEM **first) \
{ \
  const int64_t n = o->n; \
  int64_t k = o->k; \
  *first = v; \
  if (o->what == TOPK && o->lean) best_##S(o, p, v, spare); \
  else load_##S(o, p, v); \
  switch (o->what) { \
  case SORT: amp__sort##S(v, spare, n); return n; \
  case TOPK: \
    if (!o->lean && o->sorted && k > n / 4) { amp__sort##S(v, spare, n); return k; } \
    if (!o->lean && k < n) amp__select##S(v, spare, n, k - 1); \
    if (o->sorted) amp__order##S(v, spare, k); \
    return k; \
  case MODE: { \
    int64_t most = 0, run = 0; \
    amp__sort##S(v, spare, n); \
    for (int64_t i = 0; i < n; i++) { \
      run = i > 0 && KEY##S(v[i]) == KEY##S(v[i - 1]) ? run + 1 : 1; \
      if (run > most) { most = run; *first = v + i; } \
    } \
    return 1; \
  } \
  case MEDIAN: case NANMEDIAN: { \
    int64_t nan = 0; \
    if (amp__is_float(o->dtype)) for (int64_t i = 0; i < n; i++) nan += KEY##S(v[i]) == ~(K)0; \
    k = o->what == MEDIAN && nan > 0 ? n - nan : nan == n ? 0 : (n - nan - 1) / 2; \
  } /* fall through */ \
  default: \
    amp__select##S(v, spare, n, k); \
    *first = v + k; \
    return 1; \
  } \
} \
static void places_##S(const order *o, int64_t *x, const ITEM *v, int64_t m) \
{ \
  if (o->xstep == 1) for (int64_t i = 0; i < m; i++) x[i] = AT##S(v[i]) + 1; \
  else for (int64_t i = 0; i < m; i++) x[i * o->xstep] = AT##S(v[i]) + 1; \
} \
static void values_##S(const order *o, char *y, const char *p, const ITEM *v, int64_t m) \
{ \
  const int64_t s = o->step, t = o->vstep; \
  switch (amp__dtype_size[o->dtype]) { \
  case 1: for (int64_t i = 0; i < m; i++) ((uint8_t *)y)[i * t] = ((const uint8_t *)p)[AT##S(v[i]) * s]; break; \
  case 2: for (int64_t i = 0; i < m; i++) ((uint16_t *)y)[i * t] = ((const uint16_t *)p)[AT##S(v[i]) * s]; break; \
  case 4: for (int64_t i = 0; i < m; i++) ((uint32_t *)y)[i * t] = ((const uint32_t *)p)[AT##S(v[i]) * s]; break; \
  default: for (int64_t i = 0; i < m; i++) ((uint64_t *)y)[i * t] = ((const uint64_t *)p)[AT##S(v[i]) * s]; \
  } \
}
ROW(32, uint64_t, uint32_t)
ROW(64, amp_pair, uint64_t)

/* Long sorted rows of float32: from the keys, but for zeros and NaN, of which keys know one each */
static void sorted_floats(const order *o, float *y, const char *p, const uint64_t *v, int64_t m)
{
  const uint32_t mask = o->flip ? ~0u : 0, special[2] = { 0x80000000u ^ mask, amp__nan_key() ^ mask };
  amp__keys32_to_floats(y, v, m, o->flip);
  for (int j = 0; j < 2; j++) {
    int64_t lo = 0, hi = m;
    while (lo < hi) {
      const int64_t mid = (lo + hi) / 2;
      if (KEY32(v[mid]) < special[j]) lo = mid + 1; else hi = mid;
    }
    for (; lo < m && KEY32(v[lo]) == special[j]; lo++) y[lo] = ((const float *)p)[AT32(v[lo]) * o->step];
  }
}

static void order_part(int64_t lo, int64_t hi, void *ctx)
{
  const order *o = ctx;
  const int es = amp__dtype_size[o->dtype];
  for (int64_t part = lo; part < hi; part++) {
    char *scratch = o->scratch + part * o->scratch_bytes;
    const int64_t end = o->rows * (part + 1) / o->parts;
    for (int64_t r = o->rows * part / o->parts; r < end; r++) {
      int64_t i = 0, v = 0, x = 0, rest = r;
      for (int d = o->nd - 1; d >= 0; d--) {
        const int64_t at = rest % o->size[d];
        rest /= o->size[d];
        i += at * o->is[d]; v += at * o->vs[d]; x += at * o->xs[d];
      }
      const char *p = o->in + i * es;
      char *y = o->values ? o->values + v * es : NULL;
      if (o->wide) {
        amp_pair *item = (amp_pair *)scratch, *first;
        const int64_t m = row_64(o, p, item, item + o->room, &first);
        if (y) values_64(o, y, p, first, m);
        if (o->index) places_64(o, o->index + x, first, m);
      } else {
        uint64_t *item = (uint64_t *)scratch, *first;
        const int64_t m = row_32(o, p, item, item + o->room, &first);
        if (y && m > 2048 && o->dtype == AMP_FLOAT32 && o->vstep == 1 && (o->what == SORT || o->sorted)) sorted_floats(o, (float *)y, p, first, m);
        else if (y) values_32(o, y, p, first, m);
        if (o->index) places_32(o, o->index + x, first, m);
      }
    }
  }
}

/* dim < 0: t is one row, in C order. values, index: NULL or of the row's dtype and int64; kept: they lack the dimension
** unless they have as many as t. */
static int run(order *o, const amp_tensor *t, int dim, amp_tensor *values, amp_tensor *index)
{
  const amp_tensor *like = values ? values : index;
  o->dtype = t->dtype;
  o->n = dim < 0 || t->ndim == 0 ? t->numel : t->size[dim];
  o->step = dim < 0 || t->ndim == 0 ? 1 : t->stride[dim];
  o->vstep = o->xstep = 0;
  o->rows = 1;
  o->nd = 0;
  o->wide = amp__dtype_size[t->dtype] == 8 || o->n > UINT32_MAX;
  bool kept = like->ndim == t->ndim;
  for (int d = 0, k = 0; d < t->ndim && dim >= 0; d++) {
    if (d == dim) {
      if (kept && values) o->vstep = values->stride[d];
      if (kept && index) o->xstep = index->stride[d];
      k += kept;
      continue;
    }
    o->size[o->nd] = t->size[d];
    o->is[o->nd] = t->stride[d];
    o->vs[o->nd] = values ? values->stride[k] : 0;
    o->xs[o->nd++] = index ? index->stride[k] : 0;
    o->rows *= t->size[d];
    k++;
  }
  if (o->rows == 0 || o->n == 0 || like->numel == 0) return 0;
  if (o->n > UINT32_MAX && amp__dtype_size[t->dtype] < 8)
    return amp__fail(AMP_E_UNSUPPORTED, "%lld elements in one row are more than %lld", (long long)o->n, (long long)UINT32_MAX);
  o->in = amp__data(t);
  o->values = values ? amp__data(values) : NULL;
  o->index = index ? AMP_DATA(int64_t, index) : NULL;
  o->lean = o->what == TOPK && o->k < o->n / 8;
  o->room = o->lean ? 4 * o->k + 2 * AMP_CHUNK : o->n;
  if (o->room > o->n + AMP_CHUNK) o->room = o->n + AMP_CHUNK;
  o->scratch_bytes = 2 * o->room * (o->wide ? (int64_t)sizeof(amp_pair) : 8);
  o->parts = amp__threads(o->n * o->rows * 16);
  if (o->parts > o->rows) o->parts = o->rows;
  amp_block *lent = amp__block_new(AMP_CPU, 0, (size_t)(o->scratch_bytes * o->parts));
  if (lent == NULL) return amp__S->err.code;
  o->scratch = lent->data;
  amp__parallel((int)o->parts, o->parts, 1, order_part, o);
  amp__block_free(lent);
  return 0;
}

/* run, by way of a tensor of the right dtype where the receiver has another */
static int run_into(order *o, const amp_tensor *t, int dim, amp_tensor *values, amp_tensor *index)
{
  amp_tensor *v = values, *x = index;
  int rc = 0;
  if (v && v->dtype != t->dtype) v = amp__tensor_make(t->dtype, AMP_CPU, 0, v->ndim, v->size);
  if (x && x->dtype != AMP_INT64) x = amp__tensor_make(AMP_INT64, AMP_CPU, 0, x->ndim, x->size);
  if ((values && !v) || (index && !x)) rc = amp__S->err.code;
  if (rc == 0) rc = run(o, t, dim, v, x);
  if (rc == 0 && v != values) rc = amp__copy_to(values, v);
  if (rc == 0 && x != index) rc = amp__copy_to(index, x);
  if (v != values) amp__free(v);
  if (x != index) amp__free(x);
  return rc;
}

int amp__cpu_sort(amp_call *c)
{
  order o = { .what = SORT, .flip = c->a[1].i != 0 };
  return run_into(&o, c->in[0], (int)c->a[0].i, c->out[0], c->out[1]);
}

int amp__cpu_argsort(amp_call *c)
{
  order o = { .what = SORT, .flip = c->a[1].i != 0 };
  return run_into(&o, c->in[0], (int)c->a[0].i, NULL, c->out[0]);
}

int amp__cpu_topk(amp_call *c)
{
  order o = { .what = TOPK, .k = c->a[0].i, .flip = c->a[2].i != 0, .sorted = c->a[3].i != 0 };
  return run_into(&o, c->in[0], (int)c->a[1].i, c->out[0], c->out[1]);
}

int amp__cpu_kthvalue(amp_call *c)
{
  order o = { .what = KTH, .k = c->a[0].i - 1 };
  return run_into(&o, c->in[0], (int)c->a[1].i, c->out[0], c->out[1]);
}

int amp__cpu_mode(amp_call *c)
{
  order o = { .what = MODE };
  return run_into(&o, c->in[0], (int)c->a[0].i, c->out[0], c->out[1]);
}

static int median(amp_call *c, int what)
{
  order o = { .what = what };
  if (c->a[0].i != AMP_NONE) return run_into(&o, c->in[0], (int)c->a[0].i, c->out[0], c->out[1]);
  amp_tensor *flat = amp__dense(c->in[0], c->in[0]->dtype);
  if (flat == NULL) return amp__S->err.code;
  int rc = run_into(&o, flat, -1, c->out[0], NULL);
  amp__free(flat);
  return rc;
}
int amp__cpu_median(amp_call *c) { return median(c, MEDIAN); }
int amp__cpu_nanmedian(amp_call *c) { return median(c, NANMEDIAN); }
