/*
** order.cu: ops about the order of a row: sort, argsort, topk, kthvalue, median,
** nanmedian, mode.
**
** A row (a line along one dimension) becomes items of key and place, which are
** sorted (sort.cu); what stands where names the results. Of long rows of which
** little is wanted a block selects that first, digit by digit of the keys, and
** only what it leaves is sorted: the k least of a row (or of each of its parts).
*/
#include "order/sort.cuh"

namespace {

enum { SORT, TOPK, KTH, MEDIAN, NANMEDIAN, MODE };
enum { BLOCK = 256, LONG = 4096 };

/* have: items a row in the sorted ones; first: row of this turn; size and strides: of the dimensions but the row's */
typedef struct order {
  const char *in;
  char *values, *index; /* NULL: not wanted */
  int32_t what, dtype, index_dtype, element_size, dims, flip, is_float;
  int64_t length, rows, wanted, have, parts, piece, first;
  int64_t size[AMP_MAX_DIM], in_stride[AMP_MAX_DIM], value_stride[AMP_MAX_DIM], index_stride[AMP_MAX_DIM];
  int64_t step, value_step, index_step;
} order;

typedef struct spot {
  int64_t in, value, index;
} spot;
__device__ __forceinline__ spot spot_of(const order &task, int64_t row)
{
  spot s = { 0, 0, 0 };
  row += task.first;
  for (int d = task.dims - 1; d >= 0; d--) {
    int64_t q = row / task.size[d], r = row - q * task.size[d];
    s.in += r * task.in_stride[d];
    s.value += r * task.value_stride[d];
    s.index += r * task.index_stride[d];
    row = q;
  }
  return s;
}

template <class I> __global__ void __launch_bounds__(BLOCK) load_items(const order task, I *v, int64_t rows)
{
  typedef amp_kind_of<I> G;
  const typename G::K mask = task.flip ? ~(typename G::K)0 : 0;
  AMP_FOR(e, rows * task.length)
  {
    int64_t row = e / task.length, i = e - row * task.length;
    v[e] = G::make(G::load(task.in, task.dtype, spot_of(task, row).in + i * task.step) ^ mask, i);
  }
}

/* -- Selecting ------------------------------------------------------------------------ */

/* A part of a row, of places lo .. hi - 1, whose row begins at element `in`; flip: the largest are sought */
template <class K> struct part {
  int64_t in, lo, hi;
  K flip;
};
/* Keys whose bits under the mask are the prefix: the sought item is among them, of rank `need` from 1 */
template <class K> struct found {
  K prefix, mask;
  unsigned need;
};

template <class G>
__device__ __forceinline__ typename G::K key_at(const order &task, const part<typename G::K> &p, int64_t i)
{
  return G::load(task.in, task.dtype, p.in + i * task.step) ^ p.flip;
}

/* The rank of a part's median, NaN being the last keys: the first NaN's where MEDIAN has one */
template <class G>
__device__ __forceinline__ unsigned median_rank(const order &task, const part<typename G::K> &p, unsigned &nans)
{
  typedef typename G::K K;
  if (threadIdx.x == 0) nans = 0;
  __syncthreads();
  unsigned mine = 0;
  if (task.is_float)
    for (int64_t i = p.lo + threadIdx.x; i < p.hi; i += BLOCK)
      mine += G::load(task.in, task.dtype, p.in + i * task.step) == ~(K)0;
  if (mine) atomicAdd(&nans, mine);
  __syncthreads();
  const unsigned nan = nans, n = (unsigned)(p.hi - p.lo);
  const unsigned rank = 1 + (task.what == MEDIAN && nan > 0 ? n - nan : nan == n ? 0 : (n - nan - 1) / 2);
  __syncthreads();
  return rank;
}

/* Digit by digit, of 8 bits from the highest on: how many keys have each, and which of them has the rank */
template <class G>
__device__ __forceinline__ void find_rank(const order &task, const part<typename G::K> &p, unsigned *count,
                                          unsigned &digit, unsigned &before, found<typename G::K> &f)
{
  typedef typename G::K K;
  f.prefix = f.mask = 0;
  for (int shift = 8 * (int)sizeof(K) - 8; shift >= 0; shift -= 8) {
    count[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t i = p.lo + threadIdx.x; i < p.hi; i += BLOCK) {
      K key = key_at<G>(task, p, i);
      if ((key & f.mask) == f.prefix) atomicAdd(&count[key >> shift & 255], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned sum = 0, d = 0;
      while (sum + count[d] < f.need) sum += count[d++];
      digit = d;
      before = sum;
    }
    __syncthreads();
    unsigned all = count[digit];
    f.need -= before;
    f.prefix |= (K)digit << shift;
    f.mask |= (K)255 << shift;
    __syncthreads();
    if (all == f.need && (task.what == TOPK || all == 1)) break; /* all with these digits */
  }
}

/* Of a block's threads: how many before this one are less than what was found, or equal, and how many of all are */
typedef struct ranks {
  int64_t less, equal, all_less, all_equal;
} ranks;
__device__ __forceinline__ ranks rank_threads(int less, int equal, unsigned *count)
{
  const unsigned ballot_less = __ballot_sync(0xffffffffu, less), ballot_equal = __ballot_sync(0xffffffffu, equal);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  if (lane == 0) {
    count[warp] = (unsigned)__popc(ballot_less);
    count[warp + 8] = (unsigned)__popc(ballot_equal);
  }
  __syncthreads();
  ranks r = { 0, 0, 0, 0 };
  for (int k = 0; k < BLOCK / 32; k++) {
    if (k < warp) {
      r.less += count[k];
      r.equal += count[k + 8];
    }
    r.all_less += count[k];
    r.all_equal += count[k + 8];
  }
  r.less += __popc(ballot_less & ((1u << lane) - 1));
  r.equal += __popc(ballot_equal & ((1u << lane) - 1));
  return r;
}

/* In the order of places: those below what was found, and the first `need` of the equal ones, or (not TOPK) the one of
** rank `need`, which goes to `one` */
template <class I>
__device__ __forceinline__ void write_found(const order &task, const part<typename amp_kind_of<I>::K> &p,
                                            const found<typename amp_kind_of<I>::K> &f, unsigned *count, I *out, I *one)
{
  typedef amp_kind_of<I> G;
  typedef typename G::K K;
  const unsigned need = f.need;
  int64_t taken = 0, equals = 0;
  for (int64_t base = p.lo; base < p.hi; base += BLOCK) {
    int64_t i = base + threadIdx.x;
    K key = 0;
    int less = 0, equal = 0;
    if (i < p.hi) {
      key = key_at<G>(task, p, i);
      less = (key & f.mask) < f.prefix;
      equal = (key & f.mask) == f.prefix;
    }
    const ranks r = rank_threads(less, equal, count);
    const int64_t e = equals + r.equal;
    /* places among the taken ones: all below, then equals, of which the rank says whether they are */
    if (task.what != TOPK) {
      if (equal && e + 1 == need) *one = G::make(key, i);
    } else if (less || (equal && e < need)) {
      int64_t early = equals < need ? equals : need, mine = e < need ? e : need;
      out[taken + r.less + mine - early] = G::make(key, i);
    }
    int64_t was = equals < need ? equals : need, now = equals + r.all_equal < need ? equals + r.all_equal : need;
    taken += r.all_less + now - was;
    equals += r.all_equal;
    __syncthreads();
  }
  if (task.what == TOPK)
    for (int64_t k = taken + threadIdx.x; k < task.wanted; k += BLOCK) out[k] = G::last();
}

/* A block a part of a row. TOPK: its k least items, in any order, the rest of its room filled with last ones;
** KTH, MEDIAN, NANMEDIAN: the one item. */
template <class I> __global__ void __launch_bounds__(BLOCK) select_items(const order task, I *v, int64_t rows)
{
  typedef amp_kind_of<I> G;
  typedef typename G::K K;
  __shared__ unsigned count[256];
  __shared__ unsigned digit, before;
  for (int64_t u = blockIdx.x; u < rows * task.parts; u += gridDim.x) {
    const int64_t row = u / task.parts, lo = (u - row * task.parts) * task.piece,
                  hi = lo + task.piece < task.length ? lo + task.piece : task.length;
    const part<K> p = { spot_of(task, row).in, lo, hi, task.flip ? ~(K)0 : (K)0 };
    found<K> f;
    f.need = (unsigned)(task.wanted < hi - lo ? task.wanted : hi - lo);
    if (task.what != TOPK && task.what != KTH) f.need = median_rank<G>(task, p, digit);
    find_rank<G>(task, p, count, digit, before, f);
    write_found(task, p, f, count, v + u * task.wanted, v + u);
  }
}

/* -- Results -------------------------------------------------------------------------- */

template <class I>
__device__ __forceinline__ void write_item(const order &task, const spot &s, int64_t j, const I &item)
{
  int64_t at = amp_kind_of<I>::at(item);
  if (task.values) {
    int64_t from = s.in + at * task.step, to = s.value + j * task.value_step;
    switch (task.element_size) {
    case 1: ((uint8_t *)task.values)[to] = ((const uint8_t *)task.in)[from]; break;
    case 2: ((uint16_t *)task.values)[to] = ((const uint16_t *)task.in)[from]; break;
    case 4: ((uint32_t *)task.values)[to] = ((const uint32_t *)task.in)[from]; break;
    default: ((uint64_t *)task.values)[to] = ((const uint64_t *)task.in)[from];
    }
  }
  if (task.index) amp_store<int64_t>(task.index, task.index_dtype, s.index + j * task.index_step, at + 1);
}

/* The first k items of each row */
template <class I> __global__ void __launch_bounds__(BLOCK) write_first(const order task, const I *v, int64_t rows)
{
  AMP_FOR(e, rows * task.wanted)
  {
    int64_t row = e / task.wanted, j = e - row * task.wanted;
    write_item(task, spot_of(task, row), j, v[row * task.have + j]);
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

template <class I> __global__ void __launch_bounds__(BLOCK) write_one(const order task, const I *v, int64_t rows)
{
  typedef amp_kind_of<I> G;
  AMP_FOR(row, rows)
  {
    const I *r = v + row * task.have;
    int64_t k = task.wanted - 1, n = task.have;
    if (n == 1) k = 0; /* selected */
    else if (task.what != KTH) {
      int64_t nan = task.is_float ? n - below(r, n, (typename G::K) ~(typename G::K)0) : 0;
      k = task.what == MEDIAN && nan > 0 ? n - nan : nan == n ? 0 : (n - nan - 1) / 2;
    }
    write_item(task, spot_of(task, row), 0, r[k]);
  }
}

/* The last item of the first of the longest runs of equal keys; a block a row */
template <class I> __global__ void __launch_bounds__(BLOCK) write_mode(const order task, const I *v, int64_t rows)
{
  typedef amp_kind_of<I> G;
  __shared__ int64_t lengths[BLOCK], places[BLOCK];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const I *r = v + row * task.have;
    int64_t length = 0, place = 0;
    for (int64_t i = threadIdx.x; i < task.have; i += BLOCK) {
      typename G::K key = G::key(r[i]);
      if (i + 1 < task.have && G::key(r[i + 1]) == key) continue;
      int64_t n = i + 1 - below(r, i + 1, key);
      if (n > length) {
        length = n;
        place = i;
      }
    }
    lengths[threadIdx.x] = length;
    places[threadIdx.x] = place;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int t = 1; t < BLOCK; t++)
        if (lengths[t] > length || (lengths[t] == length && places[t] < place)) {
          length = lengths[t];
          place = places[t];
        }
      write_item(task, spot_of(task, row), 0, r[place]);
    }
    __syncthreads();
  }
}

/* -- Calls -------------------------------------------------------------------------------- */

template <class I> static int turn(const order &task, int64_t rows, bool selects, char *room)
{
  I *v = (I *)room, *spare = v + rows * task.have;
  if (selects) AMP_LAUNCH((select_items<I>), amp_grid(rows * task.parts, 1), BLOCK, 0, task, v, rows);
  else AMP_LAUNCH((load_items<I>), amp_grid(rows * task.length, BLOCK), BLOCK, 0, task, v, rows);
  v = (I *)amp_sort_items(sizeof(I) > 8, v, spare, rows, task.have);
  if (task.what == MODE) AMP_LAUNCH((write_mode<I>), amp_grid(rows, 1), BLOCK, 0, task, v, rows);
  else if (task.what == SORT || task.what == TOPK)
    AMP_LAUNCH((write_first<I>), amp_grid(rows * task.wanted, BLOCK), BLOCK, 0, task, v, rows);
  else AMP_LAUNCH((write_one<I>), amp_grid(rows, BLOCK), BLOCK, 0, task, v, rows);
  return 0;
}

/* Where the rows of t lie, and their results */
static void rows_of(order *task, const amp_tensor *t, int dim, const amp_tensor *values, const amp_tensor *index)
{
  const bool kept = (values ? values : index)->ndim == t->ndim;
  task->dtype = t->dtype;
  task->element_size = amp__dtype_size[t->dtype];
  task->is_float = amp__is_float(t->dtype);
  task->length = dim < 0 || t->ndim == 0 ? t->numel : t->size[dim];
  task->step = dim < 0 || t->ndim == 0 ? 1 : t->stride[dim];
  task->value_step = task->index_step = task->dims = 0;
  task->rows = task->parts = 1;
  task->first = 0;
  for (int d = 0, k = 0; d < t->ndim && dim >= 0; d++) {
    if (d == dim) {
      if (kept && values) task->value_step = values->stride[d];
      if (kept && index) task->index_step = index->stride[d];
      k += kept;
      continue;
    }
    task->size[task->dims] = t->size[d];
    task->in_stride[task->dims] = t->stride[d];
    task->value_stride[task->dims] = values ? values->stride[k] : 0;
    task->index_stride[task->dims++] = index ? index->stride[k] : 0;
    task->rows *= t->size[d];
    k++;
  }
  if (dim < 0 && index && index->ndim == 1) task->index_step = index->stride[0];
}

/* dim < 0: t is one row, in C order. values, index: NULL or of t's dtype and an integer one; they lack the dimension
** unless they have as many as t. */
static int run(order *task, const amp_tensor *t, int dim, amp_tensor *values, amp_tensor *index)
{
  const amp_tensor *like = values ? values : index;
  const bool wide = amp__dtype_size[t->dtype] == 8;
  rows_of(task, t, dim, values, index);
  if (task->rows == 0 || task->length == 0 || like->numel == 0) return 0;
  if (task->length > UINT32_MAX - 1)
    return amp__fail(AMP_E_UNSUPPORTED, "%lld elements in one row are more than %lld", (long long)task->length,
                     (long long)UINT32_MAX - 1);
  task->in = (const char *)amp__data(t);
  task->values = values ? (char *)amp__data(values) : NULL;
  task->index = index ? (char *)amp__data(index) : NULL;
  task->index_dtype = index ? index->dtype : 0;
  if (task->what == SORT) task->wanted = task->length;
  task->have = task->length;
  int64_t sms = amp__cuda_here()->sms;
  bool selects = task->length > LONG
                 && (task->what == TOPK
                         ? task->wanted <= task->length / 8
                         : task->what != SORT && task->what != MODE && (task->rows >= 16 || task->length <= 262144));
  if (selects) {
    task->have = task->what == TOPK ? task->wanted : 1;
    if (task->what == TOPK && task->rows < sms) {
      int64_t parts = (2 * sms + task->rows - 1) / task->rows,
              least = 4 * task->wanted > 8192 ? 4 * task->wanted : 8192;
      if (parts > task->length / least) parts = task->length / least;
      if (parts > 1) {
        task->parts = parts;
        task->have = parts * task->wanted;
      }
    }
  }
  task->piece = (task->length + task->parts - 1) / task->parts;
  int64_t bytes = task->have * 2 * (wide ? 16 : 8), most = ((int64_t)1 << 28) / bytes;
  if (most < 1) most = 1;
  if (most > task->rows) most = task->rows;
  amp_tensor *room = amp__cuda_scratch((size_t)(most * bytes));
  if (room == NULL) return AMP_E_MEMORY;
  for (; task->first < task->rows; task->first += most) {
    int64_t rows = task->rows - task->first < most ? task->rows - task->first : most;
    if (wide) turn<amp_pair>(*task, rows, selects, AMP_DATA(char, room));
    else turn<uint64_t>(*task, rows, selects, AMP_DATA(char, room));
  }
  amp__free(room);
  return 0;
}

/* run, by way of a tensor of the right dtype where the receiver has another */
static int run_into(order *task, const amp_tensor *t, int dim, amp_tensor *values, amp_tensor *index)
{
  amp_tensor *v = values;
  if (v && v->dtype != t->dtype && (v = amp__cuda_make(t->dtype, v->ndim, v->size)) == NULL) return AMP_E_MEMORY;
  int rc = run(task, t, dim, v, index);
  if (v != values) {
    if (rc == 0) rc = amp__cuda_copy_to(values, v);
    amp__free(v);
  }
  return rc;
}

static order wanted(int what, int64_t k, bool flip)
{
  order task;
  memset((void *)&task, 0, sizeof task);
  task.what = what;
  task.wanted = k;
  task.flip = flip;
  return task;
}

static int median(amp_call *c, const int64_t &dim, int what)
{
  order task = wanted(what, 1, false);
  if (AMP_GIVEN(dim)) return run_into(&task, c->in[0], (int)dim, c->out[0], c->out[1]);
  amp_tensor *flat = amp__cuda_dense(c->in[0], c->in[0]->dtype);
  if (flat == NULL) return AMP_E_MEMORY;
  int rc = run_into(&task, flat, -1, c->out[0], NULL);
  amp__free(flat);
  return rc;
}

__global__ void keys_only(const amp_pair *v, uint64_t *key, int64_t n) { AMP_FOR(i, n) key[i] = v[i].key; }

} // namespace

int amp_sort_index(const amp_tensor *t, int dim, bool flip, amp_tensor *index)
{
  order task = wanted(SORT, 0, flip);
  return run(&task, t, dim, NULL, index);
}

int amp_sort_least(const amp_tensor *t, int dim, int64_t k, amp_tensor *index)
{
  order task = wanted(TOPK, k, false);
  return run(&task, t, dim, NULL, index);
}

int amp_sort_keys(const amp_tensor *t, uint64_t *key)
{
  order task = wanted(SORT, 0, false);
  if (t->numel == 0) return 0;
  amp_tensor *room = amp__cuda_scratch((size_t)t->numel * 2 * sizeof(amp_pair));
  if (room == NULL) return AMP_E_MEMORY;
  amp_pair *v = AMP_DATA(amp_pair, room);
  task.in = (const char *)amp__data(t);
  task.dtype = t->dtype;
  task.length = t->numel;
  task.step = 1;
  AMP_LAUNCH((load_items<amp_pair>), amp_grid(task.length, BLOCK), BLOCK, 0, task, v, (int64_t)1);
  v = (amp_pair *)amp_sort_items(true, v, v + task.length, 1, task.length);
  AMP_LAUNCH(keys_only, amp_grid(task.length, BLOCK), BLOCK, 0, v, key, task.length);
  amp__free(room);
  return 0;
}

extern "C" {

int amp__cuda_sort(amp_call *c)
{
  const args_sort *args = AMP_ARGS(c, sort);
  order task = wanted(SORT, 0, args->descending != 0);
  return run_into(&task, c->in[0], (int)args->dim, c->out[0], c->out[1]);
}
int amp__cuda_argsort(amp_call *c)
{
  const args_argsort *args = AMP_ARGS(c, argsort);
  order task = wanted(SORT, 0, args->descending != 0);
  return run_into(&task, c->in[0], (int)args->dim, NULL, c->out[0]);
}
int amp__cuda_topk(amp_call *c)
{
  const args_topk *args = AMP_ARGS(c, topk);
  order task = wanted(TOPK, args->k, args->largest != 0);
  return run_into(&task, c->in[0], (int)args->dim, c->out[0], c->out[1]);
}
int amp__cuda_kthvalue(amp_call *c)
{
  const args_kthvalue *args = AMP_ARGS(c, kthvalue);
  order task = wanted(KTH, args->k, false);
  return run_into(&task, c->in[0], (int)args->dim, c->out[0], c->out[1]);
}
int amp__cuda_mode(amp_call *c)
{
  order task = wanted(MODE, 1, false);
  return run_into(&task, c->in[0], (int)AMP_ARGS(c, mode)->dim, c->out[0], c->out[1]);
}
int amp__cuda_median(amp_call *c) { return median(c, AMP_ARGS(c, median)->dim, MEDIAN); }
int amp__cuda_nanmedian(amp_call *c) { return median(c, AMP_ARGS(c, nanmedian)->dim, NANMEDIAN); }
}
