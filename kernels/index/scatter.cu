/*
** scatter.cu: what is added, multiplied or compared at indices: index_add,
** scatter_add, scatter_reduce, embedding_sum.
**
** Places may meet several times, so all of it is atomic (rows of float32 four numbers
** at a time): sums of floats depend in their last bits on the order in which threads come. In deterministic mode places
** are sorted (equal ones stay in order) and a thread does what meets at one. Sums
** into 16-bit floats run in float32 and into short integers in int64, and are
** rounded or wrapped once.
**
** An element is read once and its place read and written by the atomic, in the L2 cache. Atomics that meet at a place
** bound it, else memory's number of accesses.
*/
#include "index/index.cuh"

namespace {

/* -- Atomics ---------------------------------------------------------------------- */

__device__ __forceinline__ void add_to(float *p, float v) { atomicAdd(p, v); }
__device__ __forceinline__ void add_to(double *p, double v) { atomicAdd(p, v); }
__device__ __forceinline__ void add_to(int64_t *p, int64_t v)
{
  atomicAdd((unsigned long long *)p, (unsigned long long)v);
}

template <class T> struct bits_of {
  typedef unsigned long long type;
};
template <> struct bits_of<float> {
  typedef unsigned type;
};

/* Combinations of an element a with a value v, a line each; sums and counts have functions of their own */
/* clang-format off */
#define COMBINATIONS(PICK) \
  PICK(AMP_PICK_MUL, a * v) \
  PICK(AMP_PICK_MAX, v > a || v != v ? v : a) \
  PICK(AMP_PICK_MIN, v < a || v != v ? v : a)
/* clang-format on */
#define PICK(op, formula) +1
static_assert(COMBINATIONS(PICK) == AMP_PICK_WAYS - 2, "a way to combine has no formula");
#undef PICK

template <class T> __device__ __forceinline__ T combined(int op, T a, T v)
{
  switch (op) {
#define PICK(op, formula) \
  case op: return formula;
    COMBINATIONS(PICK)
#undef PICK
  }
  AMP_NEVER();
}
template <class T> __device__ __forceinline__ void combine_to(int op, T *p, T v)
{
  typedef typename bits_of<T>::type B;
  B old = *(B *)p, was;
  do {
    T a, r;
    was = old;
    memcpy(&a, &was, sizeof a);
    r = combined(op, a, v);
    B now;
    memcpy(&now, &r, sizeof now);
    if (now == was) return;
    old = atomicCAS((B *)p, was, now);
  } while (old != was);
}

template <class T> __global__ void __launch_bounds__(256) combine_at(const amp_pick pick, int op, double alpha)
{
  T fill = 0;
  if (pick.y == NULL) fill = amp_load<T>(&pick.fill, pick.dtype, 0);
  AMP_FOR(i, pick.n)
  {
    int64_t x, y;
    if (!amp_pick_at(pick, i, &x, &y)) continue;
    if (op == AMP_PICK_COUNT) {
      add_to((T *)pick.x + x, (T)1);
      continue;
    }
    T v = pick.y ? amp_load<T>(pick.y, pick.dtype, y) : fill;
    if (op == AMP_PICK_ADD) add_to((T *)pick.x + x, (T)alpha * v);
    else combine_to(op, (T *)pick.x + x, v);
  }
}

/* Sums of floats in fours, which lie beside each other on both sides; the innermost size and strides count them */
__device__ __forceinline__ void add_four(float *p, float4 v)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  atomicAdd((float4 *)p, v);
#else
  add_to(p, v.x);
  add_to(p + 1, v.y);
  add_to(p + 2, v.z);
  add_to(p + 3, v.w);
#endif
}

__global__ void __launch_bounds__(256) add_fours(const amp_pick pick, float alpha)
{
  AMP_FOR(i, pick.n)
  {
    int64_t x, y;
    if (!amp_pick_at(pick, i, &x, &y)) continue;
    const float4 v = *(const float4 *)((const float *)pick.y + y);
    add_four((float *)pick.x + x, make_float4(alpha * v.x, alpha * v.y, alpha * v.z, alpha * v.w));
  }
}

/* -- The same in order ----------------------------------------------------------------- */

/* v: n sorted places. A thread combines all that meets at one, in the order of the walk. */
template <class T>
__global__ void __launch_bounds__(256)
    combine_sorted(const amp_pick pick, const amp_pair *v, int64_t n, int64_t inner, int op, double alpha)
{
  T fill = 0;
  if (pick.y == NULL) fill = amp_load<T>(&pick.fill, pick.dtype, 0);
  AMP_FOR(e, n * inner)
  {
    int64_t k = e / inner, j = e - k * inner;
    uint64_t key = v[k].key;
    if (key == ~(uint64_t)0 || (k > 0 && v[k - 1].key == key)) continue;
    T *at = (T *)pick.x + (int64_t)key + (inner > 1 ? j * pick.xs[pick.nd - 1] : 0), sum = *at;
    for (; k < n && v[k].key == key; k++) {
      T y = pick.y ? amp_load<T>(pick.y, pick.dtype, amp_pick_plain_at(pick, (int64_t)v[k].at * inner + j)) : fill;
      sum = op == AMP_PICK_ADD ? sum + (T)alpha * y : combined(op, sum, y);
    }
    *at = sum;
  }
}

/* x / count where it is 2 or more; integers round down */
template <class T> __global__ void divide_by(const amp_arg x, const int64_t *count)
{
  AMP_FOR(i, x.numel)
  {
    int64_t n = count[i];
    if (n < 2) continue;
    T *p = (T *)x.p + amp_offset(x, i);
    if (amp_is<T>::real) *p /= (T)n;
    else {
      int64_t v = (int64_t)*p;
      *p = (T)(v / n - (v % n < 0));
    }
  }
}

/* -- embedding_sum --------------------------------------------------------------------- */

typedef struct rows {
  const char *w, *index, *bag, *scale;
  char *out;
  int32_t wtype, itype, btype, stype, otype, id;
  int64_t n, d, each, count, table, rs, cs, pad;
  amp_trouble *trouble;
} rows;

/* As many indices a bag each: no atomics */
template <class T> __global__ void __launch_bounds__(256) sum_even(const rows bags)
{
  AMP_FOR(i, bags.count * bags.d)
  {
    int64_t bag = i / bags.d, col = i - bag * bags.d;
    T sum = 0;
    for (int64_t j = bag * bags.each; j < (bag + 1) * bags.each; j++) {
      int64_t at = amp_index(amp_load<int64_t>(bags.index, bags.itype, j), bags.table, bags.trouble, bags.id, j);
      if (at < 0 || at == bags.pad) continue;
      T v = amp_load<T>(bags.w, bags.wtype, at * bags.rs + col * bags.cs);
      sum += bags.scale ? amp_load<T>(bags.scale, bags.stype, j) * v : v;
    }
    amp_store<T>(bags.out, bags.otype, i, sum);
  }
}

template <class T> __global__ void __launch_bounds__(256) sum_bags(const rows bags)
{
  AMP_FOR(i, bags.n * bags.d)
  {
    int64_t j = i / bags.d, col = i - j * bags.d;
    int64_t at = amp_index(amp_load<int64_t>(bags.index, bags.itype, j), bags.table, bags.trouble, bags.id, j);
    int64_t bag = amp_index(amp_load<int64_t>(bags.bag, bags.btype, j), bags.count, bags.trouble, bags.id, j);
    if (at < 0 || bag < 0 || at == bags.pad) continue;
    T v = amp_load<T>(bags.w, bags.wtype, at * bags.rs + col * bags.cs);
    add_to((T *)bags.out + bag * bags.d + col, bags.scale ? amp_load<T>(bags.scale, bags.stype, j) * v : v);
  }
}

__global__ void list_bags(const rows bags, amp_pair *places)
{
  AMP_FOR(j, bags.n)
  {
    int64_t bag = amp_index(amp_load<int64_t>(bags.bag, bags.btype, j), bags.count, bags.trouble, bags.id, j);
    amp_pair place = { bag < 0 ? ~(uint64_t)0 : (uint64_t)bag, (uint64_t)j };
    places[j] = place;
  }
}

/* Indices sorted by bags; out has room for sums of T */
template <class T> __global__ void __launch_bounds__(256) sum_sorted(const rows bags, const amp_pair *places)
{
  AMP_FOR(e, bags.n * bags.d)
  {
    int64_t i = e / bags.d, col = e - i * bags.d;
    uint64_t bag = places[i].key;
    if (bag == ~(uint64_t)0 || (i > 0 && places[i - 1].key == bag)) continue;
    T sum = 0;
    for (; i < bags.n && places[i].key == bag; i++) {
      int64_t j = (int64_t)places[i].at,
              at = amp_index(amp_load<int64_t>(bags.index, bags.itype, j), bags.table, bags.trouble, bags.id, j);
      if (at < 0 || at == bags.pad) continue;
      T w = amp_load<T>(bags.w, bags.wtype, at * bags.rs + col * bags.cs);
      sum += bags.scale ? amp_load<T>(bags.scale, bags.stype, j) * w : w;
    }
    ((T *)bags.out)[(int64_t)bag * bags.d + col] = sum;
  }
}

/* -- Walks ------------------------------------------------------------------------------- */

template <class T> static int combine_in_order(const amp_pick &pick, int op, double alpha)
{
  amp_places s;
  if (amp_pick_sort(pick, &s) < 0) return AMP_E_MEMORY;
  AMP_LAUNCH((combine_sorted<T>), amp_grid(pick.n, 256, 32), 256, 0, pick, s.v, s.n, s.inner, op, alpha);
  amp__free(s.room);
  return 0;
}

/* How each word of `reduce` combines */
static const int combine_of[] = { AMP_PICK_ADD, AMP_PICK_MUL, AMP_PICK_ADD, AMP_PICK_MAX, AMP_PICK_MIN };
static_assert(sizeof combine_of / sizeof *combine_of == REDUCE_COUNT, "a word of `reduce` has no way to combine");

/* The walk over index, with y or a value */
static void over(amp_pick *pick, amp_call *c, amp_tensor *x, amp_tensor *y, int dim, amp_tensor *ix)
{
  amp_pick_begin(pick, c, x, ix->ndim, ix->size);
  if (y) amp_pick_plain(pick, y);
  amp_pick_strides(pick, x, dim);
  int64_t *s = amp_pick_index(pick, ix, x->ndim ? x->size[dim] : 1, x->ndim ? x->stride[dim] : 0);
  for (int d = 0; d < ix->ndim; d++) s[d] = ix->stride[d];
}

static int divide(amp_call *c, amp_tensor *x, int dim, amp_tensor *ix, bool include)
{
  amp_pick pick;
  amp_tensor *count = amp__cuda_make(AMP_INT64, x->ndim, x->size);
  int rc = count ? amp__cuda_fill_value(count, include) : AMP_E_MEMORY;
  if (rc == 0) {
    over(&pick, c, count, NULL, dim, ix);
    rc = amp_pick_combine(&pick, AMP_INT64, AMP_PICK_COUNT, 1);
  }
  if (rc == 0 && x->numel > 0) {
    amp_arg a = amp_arg_of(x);
    const int64_t *n = AMP_DATA(int64_t, count);
    unsigned grid = amp_grid(x->numel, 256);
    if (x->dtype == AMP_FLOAT32) AMP_LAUNCH((divide_by<float>), grid, 256, 0, a, n);
    else if (x->dtype == AMP_FLOAT64) AMP_LAUNCH((divide_by<double>), grid, 256, 0, a, n);
    else AMP_LAUNCH((divide_by<int64_t>), grid, 256, 0, a, n);
  }
  amp__free(count);
  return rc;
}

static int scatter(amp_call *c, int dim, int how, bool include)
{
  amp_tensor *src = c->in[2], *y = src, *ix = NULL;
  bool number = src->flags & AMP_T_NUMBER;
  amp_wide w;
  amp_pick pick;
  int rc = amp_wide_begin(&w, c->out[0], c->in[0]);
  if (rc == 0 && c->in[1]->numel > 0) {
    if ((ix = amp__cuda_dense(c->in[1], c->in[1]->dtype)) == NULL) rc = AMP_E_MEMORY;
    if (rc == 0 && number) y = NULL;
    double v = number ? amp__value_get(amp__data(src), src->dtype) : 0;
    if (rc == 0 && !include) { /* an extreme starts from any of its values */
      amp_tensor *same = NULL;
      bool extreme = how == REDUCE_AMAX || how == REDUCE_AMIN;
      if (extreme && y && y->dtype != w.t->dtype && (same = amp__cuda_dense(y, w.t->dtype)) == NULL) rc = AMP_E_MEMORY;
      if (rc == 0) {
        over(&pick, c, w.t, extreme ? (same ? same : y) : NULL, dim, ix);
        if (pick.y == NULL) amp_pick_fill(&pick, w.t->dtype, extreme ? v : how == REDUCE_PROD);
        rc = amp_pick_move(&pick, amp__dtype_size[w.t->dtype], true);
      }
      amp__free(same);
    }
    if (rc == 0) {
      over(&pick, c, w.t, y, dim, ix);
      if (y == NULL) amp_pick_fill(&pick, w.t->dtype, v);
      rc = amp_pick_combine(&pick, w.t->dtype, combine_of[how], 1);
    }
    if (rc == 0 && how == REDUCE_MEAN) rc = divide(c, w.t, dim, ix, include);
  }
  amp__free(ix);
  return amp_wide_end(&w, rc);
}

/* Does a sum of floats go in fours? Then p counts them. */
bool in_fours(amp_pick *pick, int op)
{
  int last = pick->nd - 1;
  if (last < 0 || op != AMP_PICK_ADD || !pick->y || pick->dtype != AMP_FLOAT32 || pick->xs[last] != 1
      || pick->ys[last] != 1 || pick->size[last] % 4)
    return false;
  if (((uintptr_t)pick->x | (uintptr_t)pick->y) & 15) return false;
  for (int d = 0; d < last; d++)
    if (pick->xs[d] % 4 || pick->ys[d] % 4) return false;
  for (int k = 0; k < pick->nidx; k++)
    if (pick->idx[k].step % 4 || pick->idx[k].stride[last]) return false;
  pick->size[last] /= 4;
  pick->n /= 4;
  pick->xs[last] = pick->ys[last] = 4;
  return true;
}

} // namespace

int amp_pick_combine(amp_pick *pick, int dtype, int op, double alpha)
{
  if (pick->n == 0) return 0;
  amp_pick_end(pick, amp__dtype_size[dtype], false);
  if (amp__cuda_deterministic && amp__is_float(dtype)
      && op != AMP_PICK_COUNT) /* of 0 and -0 the first is the largest, too */
    return dtype == AMP_FLOAT64 ? combine_in_order<double>(*pick, op, alpha)
                                : combine_in_order<float>(*pick, op, alpha);
  if (dtype == AMP_FLOAT32 && in_fours(pick, op)) {
    AMP_LAUNCH(add_fours, amp_grid(pick->n, 256, 32), 256, 0, *pick, (float)alpha);
    return 0;
  }
  unsigned grid = amp_grid(pick->n, 256, 32);
  if (dtype == AMP_FLOAT32) AMP_LAUNCH((combine_at<float>), grid, 256, 0, *pick, op, alpha);
  else if (dtype == AMP_FLOAT64) AMP_LAUNCH((combine_at<double>), grid, 256, 0, *pick, op, alpha);
  else AMP_LAUNCH((combine_at<int64_t>), grid, 256, 0, *pick, op, alpha);
  return 0;
}

extern "C" {

int amp__cuda_scatter_add(amp_call *c) { return scatter(c, (int)AMP_ARGS(c, scatter_add)->dim, REDUCE_SUM, true); }
int amp__cuda_scatter_reduce(amp_call *c)
{
  const args_scatter_reduce *args = AMP_ARGS(c, scatter_reduce);
  return scatter(c, (int)args->dim, (int)args->reduce, args->include_self != 0);
}

int amp__cuda_index_add(amp_call *c)
{
  const args_index_add *args = AMP_ARGS(c, index_add);
  amp_tensor *ix = amp__cuda_dense(c->in[1], c->in[1]->dtype), *src = c->in[2];
  int dim = (int)args->dim;
  amp_wide w = { NULL, NULL };
  amp_pick pick;
  int rc = ix ? amp_wide_begin(&w, c->out[0], c->in[0]) : AMP_E_MEMORY;
  if (rc == 0) {
    amp_tensor *x = w.t;
    amp_pick_begin(&pick, c, x, src->ndim, src->size);
    amp_pick_plain(&pick, src);
    amp_pick_strides(&pick, x, dim);
    amp_pick_index(&pick, ix, x->size[dim], x->stride[dim])[dim] = 1;
    rc = amp_pick_combine(&pick, x->dtype, AMP_PICK_ADD, args->alpha);
  }
  amp__free(ix);
  return amp_wide_end(&w, rc);
}

/* input weight bag? scale?, count padding_idx */
int amp__cuda_embedding_sum(amp_call *c)
{
  const args_embedding_sum *args = AMP_ARGS(c, embedding_sum);
  amp_tensor *w = c->in[1], *out = c->out[0], *index = NULL, *bag = NULL, *scale = NULL, *room = NULL;
  rows k;
  int rc = amp__cuda_fill_value(out, 0);
  memset((void *)&k, 0, sizeof k);
  k.n = c->in[0]->numel;
  if (rc < 0 || k.n == 0 || out->numel == 0) return rc;
  if ((index = amp__cuda_dense(c->in[0], c->in[0]->dtype)) == NULL) return AMP_E_MEMORY;
  if (c->in[2] && (bag = amp__cuda_dense(c->in[2], c->in[2]->dtype)) == NULL) rc = AMP_E_MEMORY;
  if (c->in[3] && (scale = amp__cuda_dense(c->in[3], c->in[3]->dtype)) == NULL) rc = AMP_E_MEMORY;
  if (rc == 0) {
    k.w = (const char *)amp__data(w);
    k.index = (const char *)amp__data(index);
    k.bag = bag ? (const char *)amp__data(bag) : NULL;
    k.scale = scale ? (const char *)amp__data(scale) : NULL;
    k.out = (char *)amp__data(out);
    k.wtype = w->dtype;
    k.itype = index->dtype;
    k.otype = out->dtype;
    k.id = c->id;
    k.btype = bag ? bag->dtype : 0;
    k.stype = scale ? scale->dtype : 0;
    k.d = w->size[1];
    k.rs = w->stride[0];
    k.cs = w->stride[1];
    k.table = w->size[0];
    k.count = out->size[0];
    k.each = bag ? 1 : k.n / k.count;
    k.pad = !AMP_GIVEN(args->padding_idx) ? -1 : args->padding_idx - 1;
    k.trouble = amp_trouble_cell();
    unsigned grid = amp_grid((bag ? k.n : k.count) * k.d, 256, 32);
    bool wide = out->dtype == AMP_FLOAT64;
    if (bag && amp__cuda_deterministic) {
      if ((room = amp__cuda_scratch((size_t)k.n * 2 * sizeof(amp_pair))) == NULL) rc = AMP_E_MEMORY;
      else {
        amp_pair *v = AMP_DATA(amp_pair, room);
        AMP_LAUNCH(list_bags, amp_grid(k.n, 256), 256, 0, k, v);
        v = (amp_pair *)amp_sort_items(true, v, v + k.n, 1, k.n);
        if (wide) AMP_LAUNCH((sum_sorted<double>), grid, 256, 0, k, (const amp_pair *)v);
        else AMP_LAUNCH((sum_sorted<float>), grid, 256, 0, k, (const amp_pair *)v);
      }
    } else if (bag && wide) AMP_LAUNCH((sum_bags<double>), grid, 256, 0, k);
    else if (bag) AMP_LAUNCH((sum_bags<float>), grid, 256, 0, k);
    else if (wide) AMP_LAUNCH((sum_even<double>), grid, 256, 0, k);
    else AMP_LAUNCH((sum_even<float>), grid, 256, 0, k);
  }
  amp__free(room);
  amp__free(index);
  amp__free(bag);
  amp__free(scale);
  return rc;
}
}
