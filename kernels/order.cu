/*
** order.cu: ops about the order of a row: sort, argsort, topk, kthvalue, median,
** nanmedian, mode.
**
** A row (a line along one dimension) becomes items of key and place, which are
** sorted (sort.cu); what stands where names the results. Of long rows of which
** little is wanted a block selects that first, digit by digit of the keys, and
** only what it leaves is sorted: the k least of a row (or of each of its parts).
*/
#include "sort.cuh"

namespace {

enum { SORT, TOPK, KTH, MEDIAN, NANMEDIAN, MODE };
enum { BLOCK = 256, LONG = 4096 };

typedef struct order {
  const char *in;
  char *values, *index;              /* NULL: not wanted */
  int32_t what, dtype, xdtype, es, nd, flip, is_float;
  int64_t n, rows, k, have, parts, piece, first; /* have: items a row in the sorted ones; first: row of this turn */
  int64_t size[AMP_MAX_DIM], is[AMP_MAX_DIM], vs[AMP_MAX_DIM], xs[AMP_MAX_DIM]; /* the other dimensions */
  int64_t step, vstep, xstep;
} order;

typedef struct spot { int64_t in, value, index; } spot;
__device__ __forceinline__ spot spot_of(const order &o, int64_t row)
{
  spot s = { 0, 0, 0 };
  row += o.first;
  for (int d = o.nd - 1; d >= 0; d--) {
    int64_t q = row / o.size[d], r = row - q * o.size[d];
    s.in += r * o.is[d]; s.value += r * o.vs[d]; s.index += r * o.xs[d];
    row = q;
  }
  return s;
}

template <class I> __global__ void __launch_bounds__(BLOCK) load_items(const order o, I *v, int64_t rows)
{
  typedef amp_kind_of<I> G;
  const typename G::K mask = o.flip ? ~(typename G::K)0 : 0;
  AMP_FOR(e, rows * o.n) {
    int64_t row = e / o.n, i = e - row * o.n;
    v[e] = G::make(G::load(o.in, o.dtype, spot_of(o, row).in + i * o.step) ^ mask, i);
  }
}

/* -- Selecting ------------------------------------------------------------------------ */

/* A block a part of a row. TOPK: its k least items, in any order, the rest of its room filled with last ones;
** KTH, MEDIAN, NANMEDIAN: the one item. */
template <class I> __global__ void __launch_bounds__(BLOCK) select_items(const order o, I *v, int64_t rows)
{
  typedef amp_kind_of<I> G;
  typedef typename G::K K;
  __shared__ unsigned count[256];
  __shared__ unsigned digit, before;
  const K flip = o.flip ? ~(K)0 : 0;
  for (int64_t u = blockIdx.x; u < rows * o.parts; u += gridDim.x) {
    int64_t row = u / o.parts, lo = (u - row * o.parts) * o.piece, hi = lo + o.piece < o.n ? lo + o.piece : o.n;
    const int64_t in = spot_of(o, row).in;
    unsigned need = (unsigned)(o.k < hi - lo ? o.k : hi - lo); /* the rank wanted, from 1 */
    if (o.what != TOPK && o.what != KTH) {
      if (threadIdx.x == 0) digit = 0;
      __syncthreads();
      unsigned mine = 0;
      if (o.is_float)
        for (int64_t i = lo + threadIdx.x; i < hi; i += BLOCK) mine += G::load(o.in, o.dtype, in + i * o.step) == ~(K)0;
      if (mine) atomicAdd(&digit, mine);
      __syncthreads();
      unsigned nan = digit, n = (unsigned)(hi - lo);
      need = 1 + (o.what == MEDIAN && nan > 0 ? n - nan : nan == n ? 0 : (n - nan - 1) / 2);
      __syncthreads();
    }
    K prefix = 0, mask = 0;
    for (int shift = 8 * (int)sizeof(K) - 8; shift >= 0; shift -= 8) {
      count[threadIdx.x] = 0;
      __syncthreads();
      for (int64_t i = lo + threadIdx.x; i < hi; i += BLOCK) {
        K key = G::load(o.in, o.dtype, in + i * o.step) ^ flip;
        if ((key & mask) == prefix) atomicAdd(&count[key >> shift & 255], 1u);
      }
      __syncthreads();
      if (threadIdx.x == 0) {
        unsigned sum = 0, d = 0;
        while (sum + count[d] < need) sum += count[d++];
        digit = d;
        before = sum;
      }
      __syncthreads();
      unsigned all = count[digit];
      need -= before;
      prefix |= (K)digit << shift;
      mask |= (K)255 << shift;
      __syncthreads();
      if (all == need && (o.what == TOPK || all == 1)) break; /* all with these digits */
    }
    /* in the order of places: those below, and the first `need` of the equal ones */
    I *out = v + u * o.k;
    int64_t taken = 0, equals = 0;
    for (int64_t base = lo; base < hi; base += BLOCK) {
      int64_t i = base + threadIdx.x;
      K key = 0;
      int less = 0, equal = 0;
      if (i < hi) {
        key = G::load(o.in, o.dtype, in + i * o.step) ^ flip;
        less = (key & mask) < prefix;
        equal = (key & mask) == prefix;
      }
      unsigned ballot_l = __ballot_sync(0xffffffffu, less), ballot_e = __ballot_sync(0xffffffffu, equal);
      const int lane = threadIdx.x & 31, w = threadIdx.x >> 5;
      if (lane == 0) { count[w] = (unsigned)__popc(ballot_l); count[w + 8] = (unsigned)__popc(ballot_e); }
      __syncthreads();
      int64_t l = 0, e = 0, l_all = 0, e_all = 0;
      for (int k = 0; k < BLOCK / 32; k++) {
        if (k < w) { l += count[k]; e += count[k + 8]; }
        l_all += count[k];
        e_all += count[k + 8];
      }
      l += __popc(ballot_l & ((1u << lane) - 1));
      e += equals + __popc(ballot_e & ((1u << lane) - 1));
      /* places among the taken ones: all below, then equals, of which the rank says whether they are */
      if (o.what != TOPK) {
        if (equal && e + 1 == need) v[u] = G::make(key, i);
      } else if (less || (equal && e < need)) {
        int64_t early = equals < need ? equals : need, mine = e < need ? e : need;
        out[taken + l + mine - early] = G::make(key, i);
      }
      int64_t was = equals < need ? equals : need, now = equals + e_all < need ? equals + e_all : need;
      taken += l_all + now - was;
      equals += e_all;
      __syncthreads();
    }
    if (o.what == TOPK)
      for (int64_t k = taken + threadIdx.x; k < o.k; k += BLOCK) out[k] = G::last();
  }
}

/* -- Results -------------------------------------------------------------------------- */

template <class I> __device__ __forceinline__ void write_item(const order &o, const spot &s, int64_t j, const I &item)
{
  int64_t at = amp_kind_of<I>::at(item);
  if (o.values) {
    int64_t from = s.in + at * o.step, to = s.value + j * o.vstep;
    switch (o.es) {
    case 1: ((uint8_t *)o.values)[to] = ((const uint8_t *)o.in)[from]; break;
    case 2: ((uint16_t *)o.values)[to] = ((const uint16_t *)o.in)[from]; break;
    case 4: ((uint32_t *)o.values)[to] = ((const uint32_t *)o.in)[from]; break;
    default: ((uint64_t *)o.values)[to] = ((const uint64_t *)o.in)[from];
    }
  }
  if (o.index) amp_store<int64_t>(o.index, o.xdtype, s.index + j * o.xstep, at + 1);
}

/* The first k items of each row */
template <class I> __global__ void __launch_bounds__(BLOCK) write_first(const order o, const I *v, int64_t rows)
{
  AMP_FOR(e, rows * o.k) {
    int64_t row = e / o.k, j = e - row * o.k;
    write_item(o, spot_of(o, row), j, v[row * o.have + j]);
  }
}

/* How many items of a sorted row have a key below this one */
template <class I> __device__ __forceinline__ int64_t below(const I *v, int64_t n, typename amp_kind_of<I>::K key)
{
  int64_t lo = 0;
  while (lo < n) {
    int64_t mid = (lo + n) >> 1;
    if (amp_kind_of<I>::key(v[mid]) < key) lo = mid + 1;
    else n = mid;
  }
  return lo;
}

template <class I> __global__ void __launch_bounds__(BLOCK) write_one(const order o, const I *v, int64_t rows)
{
  typedef amp_kind_of<I> G;
  AMP_FOR(row, rows) {
    const I *r = v + row * o.have;
    int64_t k = o.k - 1, n = o.have;
    if (n == 1) k = 0; /* selected */
    else if (o.what != KTH) {
      int64_t nan = o.is_float ? n - below(r, n, (typename G::K)~(typename G::K)0) : 0;
      k = o.what == MEDIAN && nan > 0 ? n - nan : nan == n ? 0 : (n - nan - 1) / 2;
    }
    write_item(o, spot_of(o, row), 0, r[k]);
  }
}

/* The last item of the first of the longest runs of equal keys; a block a row */
template <class I> __global__ void __launch_bounds__(BLOCK) write_mode(const order o, const I *v, int64_t rows)
{
  typedef amp_kind_of<I> G;
  __shared__ int64_t lengths[BLOCK], places[BLOCK];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const I *r = v + row * o.have;
    int64_t length = 0, place = 0;
    for (int64_t i = threadIdx.x; i < o.have; i += BLOCK) {
      typename G::K key = G::key(r[i]);
      if (i + 1 < o.have && G::key(r[i + 1]) == key) continue;
      int64_t n = i + 1 - below(r, i + 1, key);
      if (n > length) { length = n; place = i; }
    }
    lengths[threadIdx.x] = length;
    places[threadIdx.x] = place;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int t = 1; t < BLOCK; t++)
        if (lengths[t] > length || (lengths[t] == length && places[t] < place)) { length = lengths[t]; place = places[t]; }
      write_item(o, spot_of(o, row), 0, r[place]);
    }
    __syncthreads();
  }
}

/* -- Calls -------------------------------------------------------------------------------- */

template <class I> static int turn(const order &o, int64_t rows, bool selects, char *room)
{
  I *v = (I *)room, *spare = v + rows * o.have;
  if (selects) AMP_LAUNCH((select_items<I>), amp_grid(rows * o.parts, 1), BLOCK, 0, o, v, rows);
  else AMP_LAUNCH((load_items<I>), amp_grid(rows * o.n, BLOCK), BLOCK, 0, o, v, rows);
  v = (I *)amp_sort_items(sizeof(I) > 8, v, spare, rows, o.have);
  if (o.what == MODE) AMP_LAUNCH((write_mode<I>), amp_grid(rows, 1), BLOCK, 0, o, v, rows);
  else if (o.what == SORT || o.what == TOPK) AMP_LAUNCH((write_first<I>), amp_grid(rows * o.k, BLOCK), BLOCK, 0, o, v, rows);
  else AMP_LAUNCH((write_one<I>), amp_grid(rows, BLOCK), BLOCK, 0, o, v, rows);
  return 0;
}

/* dim < 0: t is one row, in C order. values, index: NULL or of t's dtype and an integer one; they lack the dimension
** unless they have as many as t. */
static int run(order *o, const amp_tensor *t, int dim, amp_tensor *values, amp_tensor *index)
{
  const amp_tensor *like = values ? values : index;
  bool kept = like->ndim == t->ndim, wide = amp__dtype_size[t->dtype] == 8;
  o->dtype = t->dtype;
  o->es = amp__dtype_size[t->dtype];
  o->is_float = amp__is_float(t->dtype);
  o->n = dim < 0 || t->ndim == 0 ? t->numel : t->size[dim];
  o->step = dim < 0 || t->ndim == 0 ? 1 : t->stride[dim];
  o->vstep = o->xstep = o->nd = 0;
  o->rows = o->parts = 1;
  o->first = 0;
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
  if (dim < 0 && index && index->ndim == 1) o->xstep = index->stride[0];
  if (o->rows == 0 || o->n == 0 || like->numel == 0) return 0;
  if (o->n > UINT32_MAX - 1) return amp__fail(AMP_E_UNSUPPORTED, "%lld elements in one row are more than %lld", (long long)o->n, (long long)UINT32_MAX - 1);
  o->in = (const char *)amp__data(t);
  o->values = values ? (char *)amp__data(values) : NULL;
  o->index = index ? (char *)amp__data(index) : NULL;
  o->xdtype = index ? index->dtype : 0;
  if (o->what == SORT) o->k = o->n;
  o->have = o->n;
  int64_t sms = amp__cuda_here()->sms;
  bool selects = o->n > LONG && (o->what == TOPK ? o->k <= o->n / 8 : o->what != SORT && o->what != MODE && (o->rows >= 16 || o->n <= 262144));
  if (selects) {
    o->have = o->what == TOPK ? o->k : 1;
    if (o->what == TOPK && o->rows < sms) {
      int64_t parts = (2 * sms + o->rows - 1) / o->rows, least = 4 * o->k > 8192 ? 4 * o->k : 8192;
      if (parts > o->n / least) parts = o->n / least;
      if (parts > 1) { o->parts = parts; o->have = parts * o->k; }
    }
  }
  o->piece = (o->n + o->parts - 1) / o->parts;
  int64_t bytes = o->have * 2 * (wide ? 16 : 8), most = ((int64_t)1 << 28) / bytes;
  if (most < 1) most = 1;
  if (most > o->rows) most = o->rows;
  amp_tensor *room = amp__cuda_scratch((size_t)(most * bytes));
  if (room == NULL) return AMP_E_MEMORY;
  for (; o->first < o->rows; o->first += most) {
    int64_t rows = o->rows - o->first < most ? o->rows - o->first : most;
    if (wide) turn<amp_pair>(*o, rows, selects, AMP_DATA(char, room));
    else turn<uint64_t>(*o, rows, selects, AMP_DATA(char, room));
  }
  amp__free(room);
  return 0;
}

/* run, by way of a tensor of the right dtype where the receiver has another */
static int run_into(order *o, const amp_tensor *t, int dim, amp_tensor *values, amp_tensor *index)
{
  amp_tensor *v = values;
  if (v && v->dtype != t->dtype && (v = amp__cuda_make(t->dtype, v->ndim, v->size)) == NULL) return AMP_E_MEMORY;
  int rc = run(o, t, dim, v, index);
  if (v != values) {
    if (rc == 0) rc = amp__cuda_copy_to(values, v);
    amp__free(v);
  }
  return rc;
}

static order wanted(int what, int64_t k, bool flip)
{
  order o;
  memset((void *)&o, 0, sizeof o);
  o.what = what;
  o.k = k;
  o.flip = flip;
  return o;
}

static int median(amp_call *c, int what)
{
  order o = wanted(what, 1, false);
  if (c->a[0].i != AMP_NONE) return run_into(&o, c->in[0], (int)c->a[0].i, c->out[0], c->out[1]);
  amp_tensor *flat = amp__cuda_dense(c->in[0], c->in[0]->dtype);
  if (flat == NULL) return AMP_E_MEMORY;
  int rc = run_into(&o, flat, -1, c->out[0], NULL);
  amp__free(flat);
  return rc;
}

__global__ void keys_only(const amp_pair *v, uint64_t *key, int64_t n) { AMP_FOR(i, n) key[i] = v[i].key; }

} // namespace

int amp_sort_index(const amp_tensor *t, int dim, bool flip, amp_tensor *index)
{
  order o = wanted(SORT, 0, flip);
  return run(&o, t, dim, NULL, index);
}

int amp_sort_least(const amp_tensor *t, int dim, int64_t k, amp_tensor *index)
{
  order o = wanted(TOPK, k, false);
  return run(&o, t, dim, NULL, index);
}

int amp_sort_keys(const amp_tensor *t, uint64_t *key)
{
  order o = wanted(SORT, 0, false);
  if (t->numel == 0) return 0;
  amp_tensor *room = amp__cuda_scratch((size_t)t->numel * 2 * sizeof(amp_pair));
  if (room == NULL) return AMP_E_MEMORY;
  amp_pair *v = AMP_DATA(amp_pair, room);
  o.in = (const char *)amp__data(t);
  o.dtype = t->dtype;
  o.n = t->numel;
  o.step = 1;
  AMP_LAUNCH((load_items<amp_pair>), amp_grid(o.n, BLOCK), BLOCK, 0, o, v, (int64_t)1);
  v = (amp_pair *)amp_sort_items(true, v, v + o.n, 1, o.n);
  AMP_LAUNCH(keys_only, amp_grid(o.n, BLOCK), BLOCK, 0, v, key, o.n);
  amp__free(room);
  return 0;
}

extern "C" {

int amp__cuda_sort(amp_call *c)
{
  order o = wanted(SORT, 0, c->a[1].i != 0);
  return run_into(&o, c->in[0], (int)c->a[0].i, c->out[0], c->out[1]);
}
int amp__cuda_argsort(amp_call *c)
{
  order o = wanted(SORT, 0, c->a[1].i != 0);
  return run_into(&o, c->in[0], (int)c->a[0].i, NULL, c->out[0]);
}
int amp__cuda_topk(amp_call *c)
{
  order o = wanted(TOPK, c->a[0].i, c->a[2].i != 0);
  return run_into(&o, c->in[0], (int)c->a[1].i, c->out[0], c->out[1]);
}
int amp__cuda_kthvalue(amp_call *c)
{
  order o = wanted(KTH, c->a[0].i, false);
  return run_into(&o, c->in[0], (int)c->a[1].i, c->out[0], c->out[1]);
}
int amp__cuda_mode(amp_call *c)
{
  order o = wanted(MODE, 1, false);
  return run_into(&o, c->in[0], (int)c->a[0].i, c->out[0], c->out[1]);
}
int amp__cuda_median(amp_call *c) { return median(c, MEDIAN); }
int amp__cuda_nanmedian(amp_call *c) { return median(c, NANMEDIAN); }

}
